/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where file data is.  The host caches it; see host.h for who keeps what.
 *
 * What else a change of the data, the size or the allocation brings with it is said in data_change.h.
 */
#ifndef TUX3_DATA_H
#define TUX3_DATA_H

#include "core/env.h"
#include "core/inode/inode.h"

struct io_wait;

#define DATA_PUNCH_PARTS 32u	/* in which a hole goes at most, each with a record of its own: data_commit.c */
#define DATA_BATCH_MAX 256u

static inline u32 data_inline_max(u32 block_size)	/* files up to this many bytes live in the tree */
{
	return block_size / 8;
}

enum data_kind { DATA_HOLE, DATA_UNWRITTEN, DATA_MAPPED, DATA_INLINE };

struct data_extent {
	enum data_kind kind;
	u64 block;		/* file block asked for */
	u64 count;		/* blocks from there on of this kind, contiguous on disk if MAPPED */
	u64 addr;		/* MAPPED, UNWRITTEN: disk block of block */
	bool has_csum;		/* MAPPED: csum[] filled for the first min(count, csum_max) blocks */
	u64 birth;		/* MAPPED: no block of it was written later than in this delta, whose commit may be under way */
	u64 whole_addr, whole;	/* MAPPED, UNWRITTEN: all of the extent, so many blocks, whatever was asked for */
};

/*
 * What is at file block `block`, for up to max blocks, as the newest state that is not in the host's
 * cache.  Outside a delta or not, any thread; reads the tree.  0, -EIO, -ENOMEM.
 */
int data_map(struct tux3_inode *inode, u64 block, u64 max, struct data_extent *extent,
	     __le32 *csum, u32 csum_max);
/* The same for who must not wait: -EAGAIN if it is not known at once, or the block is in none of the file's extents. */
int data_map_now(struct tux3_inode *inode, u64 block, u64 max, struct data_extent *extent, __le32 *csum, u32 csum_max);
/* The same from the tree alone, for extent->count blocks from extent->block on: for the back end. */
int data_map_tree(struct tux3_inode *inode, struct data_extent *extent, __le32 *csum, u32 csum_max);
/*
 * For the back end: how file blocks [from, end) lie on the disk around one of them, as the tree has them.  Looks at a few extents
 * only: what a file of many pieces has there may fill many leaves.
 */
struct data_layout {
	bool mapped;		/* the block has a place: then nothing else is known */
	u64 hole, hole_end;	/* the hole that it is in, within from and end */
	u64 hole_addr;		/* where the hole would begin if it followed the extent before it; 0: there is none */
	u64 low, high;		/* the file blocks looked at, within from and end */
	u64 blocks;		/* of these have a place */
	u64 base;		/* where from would be if it were as far from most of them as it is in the file, or 0 */
	u64 votes;		/* of them for base, less those against */
};
int data_layout(struct tux3_inode *inode, u64 from, u64 end, u64 block, struct data_layout *layout);
/* Inline data: copies up to size bytes, returns the length. */
int data_read_inline(struct tux3_inode *inode, void *data, u32 size);
/* Check one block read from disk; on mismatch prints file, block, address, expected and found; -EIO. */
int data_verify(struct tux3_inode *inode, u64 block, u64 addr, const void *data, __le32 csum);

/*
 * A walk through a part of a file: where data is in the newest state, with what is dirty in the host's cache or
 * preallocated, and not committed yet (data_look.c).  The caller holds the file's lock, shared at least; outside a delta.
 */
struct data_look {
	/* What data_look_next() found: count blocks from block on. */
	u64 block, count;
	u64 addr;		/* MAPPED, UNWRITTEN: disk block of block; 0: not placed yet */
	enum data_kind kind;
	bool delayed;		/* MAPPED: dirty; UNWRITTEN: preallocated by a delta that is not committed */
	/* Its own. */
	struct tux3_inode *inode;
	u64 next, end;
	u64 window;
	u64 dirty, dirty_end;	/* a run of dirty blocks; what is before it, or behind it and before known, is clean */
	u64 known;
};

void data_look_begin(struct data_look *look, struct tux3_inode *inode, u64 block, u64 end);
/* 1: the next run, which may be of the same kind as the last one; 0: there is no more; -EIO, -ENOMEM. */
int data_look_next(struct data_look *look);
/* lseek()'s SEEK_DATA, or SEEK_HOLE (hole true), in a file of this size: the offset, -ENXIO, -EINTR: killed, -EIO, -ENOMEM. */
s64 data_seek(struct tux3_inode *inode, u64 size, u64 offset, bool hole);
/* What these blocks are: holes, preallocated and never written, dirty (and so in need of a new place anyway). */
struct data_count {
	u64 holes, unwritten, dirty;
	u64 promised;		/* of the unwritten ones: by a delta that is not committed */
};
int data_look_count(struct tux3_inode *inode, u64 block, u64 count, struct data_count *counts);

/* Inside a delta. */
void data_dirty(struct delta_op *op, struct tux3_inode *inode);
void data_stored(struct delta_op *op, struct tux3_inode *inode);	/* the same, by a store through a mapping */
/* These blocks are gone (count DATA_END: to the end).  -ENOMEM, and then nothing changed. */
int data_remove(struct delta_op *op, struct tux3_inode *inode, u64 block, u64 count);
/*
 * After a truncate, outside the delta, the file still locked: if many blocks are to be freed, wait until they are.
 * Nobody may change the file meanwhile.  0, or the volume's error.
 */
int data_cut_wait(struct tux3_inode *inode);
/*
 * Holes in these blocks, so many, become allocated and read as zeros.  The operation was charged
 * space_cost_prealloc(vol, holes).  -ENOMEM.  Sets TUX3_ATTR_PREALLOC.
 */
int data_prealloc(struct delta_op *op, struct tux3_inode *inode, u64 block, u64 count, u64 holes);
/*
 * These blocks, an extent of the tree that is not dirty, stay where they are and lose their checksums: from the commit on
 * others may write to them behind the filesystem's back.  Charged space_cost_items(vol, DATA_UNCHECK_ITEMS).  Nobody writes
 * to the file until that commit is durable.
 */
#define DATA_UNCHECK_ITEMS 3u
void data_uncheck(struct delta_op *op, struct tux3_inode *inode, u64 block, u64 count);
/*
 * Of the blocks that the operation made dirty, so many were preallocated and never written: they take no new space.  If
 * that is all of them, it entered with DELTA_PAID.
 */
void data_paid(struct delta_op *op, struct tux3_inode *inode, u64 blocks);
/*
 * Inside: the inode has no name and no user.  For statfs its blocks, and those dirty in the host's cache, are free from now on.
 * Again does no harm.
 */
void data_give_back(struct delta_op *op, struct tux3_inode *inode, u64 dirty);
/*
 * The host saw the last user of an inode with nlink 0 go: the back end deletes it; dirty as above.  Never fails
 * (after an error of the volume it does nothing).  May commit, and so release the last pin: hold one.
 */
void data_forget(struct tux3_inode *inode, u64 dirty);
/*
 * For stat: what the file takes in the newest state, in blocks.  dirty: how many are dirty in the host's
 * cache, asked before this: then what a commit has just placed is counted, once or twice, but never missed.  Dirty
 * blocks may replace placed ones, and nobody looks which: so they count only as far as the size asks for them.
 */
u64 data_blocks(struct tux3_inode *inode, u64 dirty);

#endif
