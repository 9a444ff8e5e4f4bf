/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The rules of file data: what else must happen, and what it costs, when a file's data, size or allocation changes.  A host
 * has the cached blocks, copies, and locks; the rest of its policy is here, once for all hosts.
 *
 * A change is planned outside a delta and carried out in one; the file is locked against other changes from
 * data_change_reset() on.  A plan is made of
 *
 *	edges	single blocks that get dirty though the change is not about them, perhaps with some of their bytes zeroed:
 *		  - block 0, if the file may be inline: the back end has to store it anew, or elsewhere;
 *		  - the block that the end of the file is in, if the end moves forward: on the disk it may have anything
 *		    beyond the old end;
 *		  - blocks of which a punch takes a part.
 *		A block that is a hole, or beyond the end, needs none of this, and is no edge.  (But block 0 is one if the
 *		file is inline: then it is in no extent.)
 *	a hole	blocks that are removed: [hole, hole + hole_count)
 *	a fill	blocks of which those that are holes get allocated: [fill, fill + fill_count)
 *
 * Truncates and fallocate are data_truncate() and data_fallocate(); the host is called back (struct data_change_ops).
 *
 * A write is the host's own, for it is about copying:
 *
 *	data_plan_write(&change, from, to);		at most DATA_BATCH_MAX blocks: see data_batch_end()
 *	data_change_edges(&change, get_edge);		and the blocks in [from, to) themselves, those that it covers in part read
 *	data_price_write(&change, from, to);
 *	data_change_enter(&change, &op);
 *	copy; mark all blocks dirty in op.delta (private copies: see host.h); newly: those that were not;
 *	    data_dirty(&op, inode); delta_add_dirty_bytes(&op, newly << shift)
 *	data_settle_write(&change, &op, newly);
 *	attr = inode_change_begin(); size, mtime, ctime; inode_change_end();
 *	delta_leave(&op);
 *
 * A store through a mapping makes its block dirty before it is made, in a fault of its own: it is charged there, and a commit
 * that takes the block write-protects it, so that the next store is charged anew.  Nobody has the file's lock: size
 * and flags are those of a moment.  The host keeps truncates and punches away, and tries again what has become of them since:
 *
 *	data_plan_store(&change, inode);
 *	data_change_edges(&change, get_edge);		no edge, and so 0, if it is one of the blocks themselves
 *	data_price_store(&change, block, count, dirty);
 *	data_change_enter(&change, &op);
 *	data_store_is_stale(&change, &op, dirty)?  Then -EAGAIN: settle, leave, and from the beginning; else
 *	mark all blocks dirty in op.delta, as above
 *	data_settle_store(&change, &op, newly);		or what went wrong instead
 *	delta_leave(&op);
 *
 * What a block was charged when it got dirty is the delta's until its commit, also if the block is removed before that.
 *
 * Quotas are charged for the same blocks, as if each were a hole; if that is too much, for those that are.  Block 0 of a file that
 * may be inline takes nothing as long as it may stay so; the change after which it may not is charged for it (inline_ends()).
 */
#ifndef TUX3_DATA_CHANGE_H
#define TUX3_DATA_CHANGE_H

#include "core/volume.h"
#include "core/data/data.h"
#include "core/inode/inode_quota.h"

#define DATA_EDGES_MAX 3u

struct data_change;

struct data_edge {
	u64 block;
	u32 from, to;		/* bytes that become zeros.  (Those beyond the end of the file may be zeros already.) */
	bool even_hole;		/* it is one even if it is a hole */
};

/* What a host does for data_truncate() and data_fallocate().  All with its lock of the file. */
struct data_change_ops {
	/*
	 * Outside a delta: everything that may wait or fail.  The plan is complete, but for edges that are holes
	 * (data_change_edges()), and those that the host adds.  close() always follows.
	 */
	int (*open)(struct data_change *change);
	/* Outside a delta, before each try to begin; NULL: nothing to do. */
	int (*prepare)(struct data_change *change);
	/*
	 * Inside the delta: the edges get dirty, with data_dirty() and delta_add_dirty_bytes().  Returns how many were not dirty
	 * in it; or -EAGAIN, and nothing was done: leave, prepare again.
	 */
	int (*begin)(struct data_change *change, struct delta_op *op);
	/*
	 * Inside: the bytes of the edges become zeros, and those of the cached block at data_change_tail(), which gets
	 * not dirty by it; cached blocks in the hole are not written any more (delta_add_dirty_bytes()).
	 */
	void (*apply)(struct data_change *change, struct delta_op *op);
	/* Inside: within inode_change_begin() and _end(), when the size and times are set.  May be NULL. */
	void (*attr)(struct data_change *change, struct tux3_attr *attr);
	/* Inside, the last, whether it could be done or not.  May be NULL. */
	void (*end)(struct data_change *change);
	/* Outside.  err: it has failed, and may have failed at any point. */
	void (*close)(struct data_change *change, int err);
};

struct data_change {
	struct tux3_inode *inode;
	const struct data_change_ops *ops;	/* NULL for writes */
	const struct tux3_attr *attr;		/* what else of it is set in the same delta */
	u32 set;				/* OP_ATTR_... */
	/* The file before. */
	u32 flags;
	u64 size;
	/* The plan. */
	u64 new_size;
	u64 hole, hole_count;			/* DATA_END: all from there on */
	u64 fill, fill_count;
	u64 holes;				/* blocks of the fill that are */
	bool apart;				/* what is inline is to get a block, and nothing else */
	u32 edges;
	struct data_edge edge[DATA_EDGES_MAX];
	/* The price. */
	u32 blocks;				/* that get dirty */
	u32 new_blocks, unwritten;		/* of these: need space; are preallocated and were never written */
	u64 looked;				/* the delta that was open when that was found, or how many holes a fill has */
	bool promised;				/* of the fill there is something that is preallocated, but not in the tree yet */
	u32 enter;				/* DELTA_... */
	bool write;				/* by the file's host: with its lock, data_price_write() */
	u32 paid, beside;			/* inside: items that somebody has paid in the delta; of which the path is paid */
	bool ends_pay;				/* inside: the ends of what is written pay for their paths */
	struct paid_look look;			/* for these; a write, in a tight delta */
	u32 look_paid;				/* of them, items whose paths are paid */
	bool uncounted;				/* inside: what is counted for its owner is paid */
	u64 base;				/* besides those blocks */
	u64 cost;				/* all */
	u64 charged;				/* inside: of that, without what is paid */
	u64 first, count;			/* the blocks that are written to; for changes of hosts */
	struct quota_charge quota;		/* from data_change_enter() on, if the inode has an owner */
};

/* The caller has the file's lock.  reset: for the next change by the same struct; attr and set remain. */
static inline void data_change_reset(struct data_change *change)
{
	change->flags = READ_ONCE(change->inode->attr.flags);
	change->size = change->new_size = change->inode->attr.size;
	change->hole_count = change->fill_count = change->holes = 0;
	change->edges = change->unwritten = change->enter = 0;
	change->base = change->count = 0;
	change->apart = change->write = change->promised = false;
}

static inline void data_change_init(struct data_change *change, struct tux3_inode *inode,
				    const struct data_change_ops *ops)
{
	change->inode = inode;
	change->ops = ops;
	change->attr = NULL;
	change->set = 0;
	data_change_reset(change);
}

/* May the data of a file of this size, with these flags, be inline?  Perhaps the back end is making it so right now. */
static inline bool data_maybe_inline(struct volume *vol, u32 flags, u64 size)
{
	return flags & TUX3_ATTR_INLINE || (size && size <= data_inline_max(vol->block_size));
}

/* Another edge; if the block is one already, it is that, with these bytes. */
void data_change_add_edge(struct data_change *change, u64 block, u32 from, u32 to, bool even_hole);

/*
 * Brings the edges into the cache; a block that turns out to be a hole is no edge, unless it is to be one.  get: 1: there it
 * is, 0: it is a hole and even_hole is not set, or -errno.
 */
static inline int data_change_edges(struct data_change *change, int (*get)(struct data_change *change, u32 i))
{
	u32 i = 0;
	int got;

	while (i < change->edges) {
		got = get(change, i);
		if (got < 0)
			return got;
		if (got)
			i++;
		else
			change->edge[i] = change->edge[--change->edges];
	}
	return 0;
}

/* A truncate: what is cached of the block new_size is in gets zeroed from this byte of it on.  0: nothing. */
static inline u32 data_change_tail(const struct data_change *change)
{
	return change->hole_count == DATA_END ? change->new_size & (change->inode->vol->block_size - 1) : 0;
}

/* Is it one that may remove blocks? */
static inline bool data_change_removes(const struct data_change *change)
{
	return change->enter == DELTA_FREES;
}

/* delta_enter(); -EDQUOT; -ESTALE: a fill, whose holes are to be counted anew. */
int data_change_enter(struct data_change *change, struct delta_op *op);

/* Nothing was changed: what was paid comes back, and the delta is left. */
void data_change_undone(struct data_change *change, struct delta_op *op);

/*
 * Inside the delta: newly blocks were not dirty in it before.  What was paid for the others comes back, and what was paid for the
 * attributes, if somebody else has changed them in the delta: he has paid.
 */
void data_change_settle(struct data_change *change, struct delta_op *op, u32 newly);
/* The same for a write, with the file's lock.  change->count is 0 if not all of its blocks are dirty now. */
void data_settle_write(struct data_change *change, struct delta_op *op, u32 newly);

/* A write of several changes, with the inode exclusively: so many bytes of it are to come.  A hint for who waits for the inode. */
static inline void data_note_writing(struct tux3_inode *inode, u64 bytes)
{
	WRITE_ONCE(inode->writing, min_t(u64, bytes >> inode->vol->block_shift, U32_MAX));
}

/* ---- writes ---- */

void data_plan_write_edges(struct data_change *change, u64 from, u64 to);
static inline void data_plan_write(struct data_change *change, u64 from, u64 to)
{
	u64 size = change->size;

	change->new_size = max(size, to);
	if (unlikely(data_maybe_inline(change->inode->vol, change->flags, size) ||
		     (to > size && size & (change->inode->vol->block_size - 1))))
		data_plan_write_edges(change, from, to);
}

int data_price_write(struct data_change *change, u64 from, u64 to);

/*
 * Where the batch that starts at from ends: at to if that fits, else at a multiple of max blocks.  On a volume (or a quota) that
 * is nearly full smaller batches may fit where DATA_BATCH_MAX blocks do not: data_batch_smaller() says whether to try one after
 * that of [from, stop), which is then smaller than this.
 */
static inline u64 data_batch_end(struct volume *vol, u64 from, u64 to, u32 max)
{
	u64 first = from >> vol->block_shift, last = (to - 1) >> vol->block_shift;

	return last - first < max ? to : (first - first % max + max) << vol->block_shift;
}

static inline bool data_batch_smaller(struct volume *vol, u32 *max, u64 from, u64 stop, int err)
{
	u64 blocks = ((stop - 1) >> vol->block_shift) - (from >> vol->block_shift) + 1;

	if ((err != -ENOSPC && err != -EDQUOT) || blocks == 1)
		return false;
	while (*max >= blocks)
		*max /= 2;
	return true;
}

/*
 * An untorn write: its caller asks (RWF_ATOMIC, tux3_write_atomic()) that it be in one delta as a whole, or fail with nothing
 * done.  It is a power of two of bytes, at least a block, at a multiple of its length, and so a single batch, which its host
 * then makes neither smaller nor shorter.
 */
#define DATA_ATOMIC_MAX (1u << 20)

static inline u32 data_atomic_max(const struct volume *vol)
{
	return min_t(u32, DATA_ATOMIC_MAX, DATA_BATCH_MAX << vol->block_shift);
}

static inline bool data_atomic_fits(const struct volume *vol, u64 pos, u64 len)
{
	return is_power_of_2(len) && len >= vol->block_size && len <= data_atomic_max(vol) && !(pos & (len - 1));
}

/* ---- stores through a mapping ---- */

void data_plan_store(struct data_change *change, struct tux3_inode *inode);
/* count blocks, the first of them is block; dirty: in the front or the back delta one is.  0 or -errno. */
int data_price_store(struct data_change *change, u64 block, u32 count, bool dirty);

/*
 * Inside: of the blocks one is dirty in the back delta.  Then what is preallocated is being written: this needs new space.  And so
 * it may if a commit has begun since that was found, and is over: it has written it, or could not preallocate it.
 */
static inline bool data_store_is_stale(const struct data_change *change, const struct delta_op *op, bool dirty_in_back)
{
	return change->unwritten && (dirty_in_back || op->delta != change->looked);
}

/* Inside: so many blocks were not dirty before; below 0: none became so. */
void data_settle_store(struct data_change *change, struct delta_op *op, int newly);

/* ---- sizes and allocation.  0, -ENOSPC, -EDQUOT, -EINTR: killed, -EIO, -ENOMEM ... ---- */

int data_truncate(struct data_change *change, u64 size);

/*
 * Bytes [from, to), from < to <= TUX3_SIZE_MAX + 1.  PUNCH: they become zeros, whole blocks of them holes.  FILL: holes get
 * allocated, in several deltas, if there is room for all of them; else nothing is done.  (If others take the room meanwhile, what
 * was allocated by then stays, as with other file systems.)  Both: first the one, then the other.  FILL makes the file longer if
 * need be, unless it keeps its size.
 */
#define DATA_PUNCH	1u
#define DATA_FILL	2u
#define DATA_KEEP_SIZE	4u
int data_fallocate(struct data_change *change, unsigned int what, u64 from, u64 to);

/* The file's data is inline: it gets a block of its own, and is in extents from the commit on, for good.  Times stay. */
int data_set_apart(struct data_change *change);

#endif
