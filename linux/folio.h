/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cached file data, and which delta it is dirty in.
 *
 * A file's page cache folios hold the newest contents.  A folio that was ever dirty has a struct folio_state as its
 * private data, with a bit for each of its blocks (at most 64: the mapping's largest folio order sees to that; a
 * folio has at least one block, for the block size is at least that of a page).
 *
 *	dirty[delta & 1]	changed in that delta.  Set by the front end inside the delta, cleared by the back end
 *				when the delta is durable (data_done), or by the front end when a truncate in the
 *				same delta takes it back.
 *	sent			of the back delta: the back end has taken these blocks from the folio: it sends
 *				their contents as they are now
 *	copied			of the back delta: its contents are in a private copy, since the front delta
 *				changed the block
 *
 * dirty[back] & ~sent & ~copied are blocks the back end still needs as they are.  Before the front end changes such a
 * block (write, page made writable, tail zeroed by a truncate) it copies it.  A block that is sent while its folio is
 * under writeback must not be changed either: wait, outside the delta.  (All blocks of a delta in one folio are taken
 * at once, and end their writeback together, when all are written and their new addresses are in the tree.)
 *
 * A folio with a dirty bit has a reference from its state, so it is not reclaimed before its new address is in the
 * tree.  One that leaves the page cache with bits of the back delta (truncate, delete) lives on, *detached*, until
 * data_done.
 *
 * Stores through a writable mapping go to the delta in which the back end write-protects the page: a page may be
 * stored to after the transition, until the back end takes it.
 *
 * PG_dirty and the mapping's tags follow: set when a bit is set, cleared when the back end takes the folio and no bit
 * of the front delta is there.  So the kernel's accounting and throttling of dirty pages work as for any filesystem.
 *
 * A *stray* is a block that somebody changed without telling: a device that was given the page to read into
 * (get_user_pages) may do so when the back end has long taken it, and the kernel may have made a page writable without a
 * fault (mmap.c).  Such a folio stays PG_dirty; file_redirty_strays() brings it into a delta.
 *
 * Locking: node->data_lock for everything in the state.  Who changes contents keeps the folio from leaving the page
 * cache (i_rwsem exclusively, or the folio lock), and has called folio_change_begin() in his delta: then it stays there.
 * The back end takes a folio's contents with the folio lock held.
 */
#ifndef TUX3_LINUX_FOLIO_H
#define TUX3_LINUX_FOLIO_H

#include "linux/device.h"
#include "linux/vfs.h"

#define FOLIO_BLOCKS_MAX 64u

struct folio_copy {
	struct folio_copy *next;
	u32 index;			/* block within the folio */
	struct folio *data;		/* one block */
};

/*
 * Which delta slot is meant is said by whoever asks: an operation of delta N uses dirty[N & 1], and the other slot is
 * that of the back delta N - 1 (or empty): see core/delta/delta.h.  Rules and the reasons for them: folio.c (front end),
 * writeback.c (back end).
 */
struct folio_state {
	struct tux3_node *node;
	struct folio *folio;		/* changes with its lock and data_lock, if its memory fails (regain.c) */
	u64 block;			/* file block of the folio's first */
	u32 blocks;
	u64 since;			/* intent_now(), before anything was dirty */
	atomic_t writes;		/* taken blocks not written yet, and one while held: writeback ends at 0 */
	u64 dirty[2];
	u64 sent, copied;
	u64 left;			/* back end: taken blocks not submitted yet */
	u64 stray;			/* changed behind our back */
	struct folio_copy *copies;
	struct folio *snapshot;		/* back end: what it took of the folio, if not the folio itself */
	u32 snapshot_first;		/* the block that its first one is of */
	struct list_head link[2];	/* node->dirty[]; if dirty[] != 0, and perhaps when it is again */
	bool detached;			/* the folio has left the page cache: nobody changes it any more */
	bool held;			/* back end: see writes */
};

static inline bool folio_state_busy(const struct folio_state *state)
{
	return !list_empty(&state->link[0]) || !list_empty(&state->link[1]);
}

/* Blocks dirty in the back delta, whose slot this is, that the back end still needs from the folio. */
static inline u64 folio_state_pending(const struct folio_state *state, unsigned int slot)
{
	return state->dirty[slot] & ~state->sent & ~state->copied;
}

/* So many states are looked at in one hold of data_lock, and so many dirty blocks are looked through in whatever order. */
#define FEW_DIRTY	128u

/* ---- front end ---- */

/* What one operation changes in one folio. */
struct folio_part {
	struct folio *folio;		/* the caller's reference */
	u64 mask;			/* blocks of it */
	struct folio_state *state;	/* by folio_change_prepare */
	struct folio_copy *spare;	/* likewise */
	u64 need, made;			/* by folio_change_begin: blocks that must be, and that were copied */
};

static inline u32 folio_blocks(struct tux3_node *node, struct folio *folio)
{
	return folio_size(folio) >> node->core.vol->block_shift;
}

static inline u64 folio_block(struct tux3_node *node, struct folio *folio)
{
	return folio_pos(folio) >> node->core.vol->block_shift;
}

/* Bits of blocks [from, from + count) of a folio. count > 0. */
static inline u64 folio_mask(u32 from, u32 count)
{
	return (~0ULL >> (64 - count)) << from;
}

/* The state's blocks in [from, end). */
static inline u64 state_range(const struct folio_state *state, u64 from, u64 end)
{
	u64 first = max(from, state->block), stop = min(end, state->block + state->blocks);

	return first < stop ? folio_mask(first - state->block, stop - first) : 0;
}

static inline unsigned int node_front_slot(struct tux3_node *node)
{
	return READ_ONCE(node->core.vol->delta.front) & 1;
}

/*
 * Outside a delta, the folio uptodate, or locked by the caller who fills it: give it a state, wait for writeback of
 * the blocks in mask, and get memory for copies that the back end needs.  Does not wait with the folio locked
 * (locked: tell): then -EAGAIN asks to unlock it and wait (folio_wait_writeback).  -ENOMEM.  -ESTALE: the folio has
 * left the page cache, which a reference alone does not prevent (RWF_DONTCACHE): look for it anew.  Before the first call
 * for a part its state and spare are NULL; it may be called again.  With a gfp that does not allow to wait for memory nothing
 * is waited for: -EAGAIN.
 */
int folio_change_prepare(struct tux3_node *node, struct folio_part *part, bool locked, gfp_t gfp);
void folio_change_cancel(struct folio_part *part);	/* spare copies go; always, at the end */

/*
 * Inside the delta, all parts of the operation at once: copies what the back end needs, then marks the blocks dirty.
 * Returns how many were not dirty in this delta before; -EAGAIN (nothing done): something happened since it was
 * prepared: leave, prepare again.  The contents may then be changed until the operation leaves.  Also does
 * data_dirty() and delta_add_dirty_bytes().  stored: by a store through a mapping; then data_stored().
 */
int folio_change_begin(struct delta_op *op, struct tux3_node *node, struct folio_part *parts, u32 count, bool stored);
/* Inside the delta, after begin: the page cache's dirty flags, for all parts. */
void folio_change_end(struct tux3_node *node, struct folio_part *parts, u32 count);
/*
 * The same for blocks whose cached contents will change, but are not to be dirty: copies only (tails zeroed by
 * truncate, blocks beyond the new end in a folio that stays). 0 or -EAGAIN.
 */
int folio_keep_old(struct delta_op *op, struct tux3_node *node, struct folio_part *part);

/* Inside the delta: blocks [from, from + count) (DATA_END: to the end) will not be written. Tells delta_add_dirty_bytes. */
void folio_forget_dirty(struct delta_op *op, struct tux3_node *node, u64 from, u64 count);

/* Of the folio's blocks, those dirty in the delta of this slot. */
u64 folio_dirty_mask(struct tux3_node *node, struct folio *folio, unsigned int slot);
/* Blocks dirty in any delta, for stat. */
u64 folio_dirty_blocks(struct tux3_node *node);

/* ---- dirty.c ---- */

/* The first run of blocks in [from, end) that are dirty in any delta, and not removed since; false: none.  And is this block? */
bool folio_find_dirty(struct tux3_node *node, u64 from, u64 end, u64 *block, u64 *count);
bool folio_block_dirty(struct tux3_node *node, u64 block);
/* For the back end, when its list is in order: an index of that, for kvfree().  NULL: it is short, or there is no memory. */
struct back_index *back_index_new(struct tux3_node *node, unsigned int slot);

/* ---- the page cache's side: address space operations ---- */

void folio_state_invalidate(struct folio *folio, size_t offset, size_t length);
bool folio_state_release(struct folio *folio, gfp_t gfp);

/* For writeback.c. */
struct folio_copy *folio_copy_alloc(struct tux3_node *node, gfp_t gfp);
void folio_copies_free(struct folio_copy *copies);
/*
 * A block of the folio as it is to be written: right if the block is pending, under data_lock, afterwards.  Copies of
 * these blocks, one after the other: without data_lock.  Then with it those of pending blocks become the state's, the
 * others stay where they are; mask: as many as were filled.  Returns what is pending still.
 */
void folio_read_block(struct tux3_node *node, struct folio *folio, u32 index, void *to);
void folio_copies_fill(struct tux3_node *node, struct folio *folio, u64 mask, struct folio_copy *copies);
u64 folio_copies_install(struct folio_state *state, unsigned int slot, u64 mask, struct folio_copy **copies);
void folio_state_free(struct folio_state *state);

/* ---- read.c ---- */

int read_init(void);		/* for the module: its work queue */
void read_exit(void);
int file_read_folio(struct file *file, struct folio *folio);
void file_readahead(struct readahead_control *rac);
/*
 * Make a folio uptodate, synchronously.  Locked by the caller, stays locked.  skip: blocks that the caller is about
 * to overwrite as a whole and that need not be read (the folio is then not marked uptodate: the caller does, when
 * they are filled).
 */
int folio_fill(struct tux3_node *node, struct folio *folio, u64 skip);

/* ---- regain.c ---- */

int file_memory_failed(struct address_space *mapping, struct folio *folio);		/* ->error_remove_folio */

/* ---- direct.c ---- */

int direct_init(void);		/* for the module: its work queue */
void direct_exit(void);

/* Of the caller's memory, in bytes. */
static inline u32 direct_alignment(struct tux3_device *dev)
{
	struct block_device *bdev = bdev_device_of(dev)->bdev;

	return max(bdev_dma_alignment(bdev) + 1, bdev_logical_block_size(bdev));
}

/* Can this one, with IOCB_DIRECT, go to the caller's memory?  Then it may still find less than there is: the cache has the rest. */
bool direct_read_fits(struct kiocb *iocb, const struct iov_iter *to);
ssize_t direct_read(struct kiocb *iocb, struct iov_iter *to);

/* ---- writeback.c: host functions of the data kind (host.h), and ->writepages ---- */

int host_data_next(struct tux3_inode *inode, u64 delta, u64 from, u64 *block, u64 *count);
int host_data_write(struct tux3_inode *inode, u64 delta, u64 block, u64 addr, u32 count, __le32 *csum,
		    struct io_wait *wait);
int host_data_copy(struct tux3_inode *inode, u64 delta, u64 block, void *data, u32 len);
void host_data_aborted(struct tux3_inode *inode, u64 delta, int err);
void host_data_done(struct tux3_inode *inode, u64 delta, int err);
int file_writepages(struct address_space *mapping, struct writeback_control *wbc);
/*
 * Strays are looked for and become dirty in the front delta: for who wants all of a file to be durable, before its commit.  -EBUSY:
 * there are some, and the volume is frozen.
 */
int file_redirty_strays(struct tux3_node *node);

/* ---- mmap.c, write.c ---- */

int file_mmap(struct file *file, struct vm_area_struct *vma);
/*
 * An operation of its own: these blocks become dirty, for changes that were made or will be made through a mapping.
 * The folio is unlocked before, with a reference, and locked after: 0; -EFAULT: it is not within the file any more;
 * -ENOSPC ...
 */
int folio_make_dirty(struct tux3_node *node, struct folio *folio, u64 mask);
void folio_find_strays(struct tux3_node *node, struct folio *folio);	/* the folio locked, and PG_dirty */
ssize_t file_write_iter(struct kiocb *iocb, struct iov_iter *from);
ssize_t file_read_iter(struct kiocb *iocb, struct iov_iter *to);

/*
 * For blocks that must get dirty with a change of others (data_change.h): the folio uptodate, with a reference and unlocked,
 * or NULL: it is a hole.  Or ERR_PTR.  write.c
 */
struct folio *file_get_block(struct tux3_node *node, u64 block, bool even_hole);

/* Within inode_change_begin() and _end() of a change of the data or the size: what of attr the VFS has, too. */
static inline void node_show_change(struct tux3_node *node, struct tux3_attr *attr)
{
	node_set_mode(node, attr);
	inode_set_mtime_to_ts(&node->vfs, time_to_vfs(attr->mtime));
	inode_set_ctime_to_ts(&node->vfs, time_to_vfs(attr->ctime));
	i_size_write(&node->vfs, attr->size);
}

#endif
