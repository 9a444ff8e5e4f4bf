/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ranges of files whose blocks change their place, in one delta and without a byte being copied: two ranges swap their contents;
 * or the end of a file moves, because a part of it is taken out or put in.
 *
 * A remap says of some ranges of one or two files what is mapped there from now on.  It is made of what is committed:
 *
 *	1. The host has its locks of both files, so that nobody changes them, and nothing is read of them into its cache or
 *	   made writable in a mapping (data_remap_ops.lock).
 *	2. What is dirty of them is committed, what is inline gets a block (apart), and what is cached of the ranges goes (drop).
 *	   So the tree has all there is of the ranges, and nothing can move it.
 *	3. The new mapping is put together in memory.  What its commit takes is known then, and charged: -ENOSPC, -EDQUOT, or
 *	   -EFBIG if that is more log than volume_options.remap_bytes; or -EIO if blocks are not the file's alone, as on a damaged
 *	   volume, for the commit could not leave them out; and nothing was done.
 *	4. Inside a delta it goes to the inodes and to the delta, with the new sizes and times.
 *	5. That delta's commit is waited for, with the locks held.  It logs holes for all ranges, then the new mapping
 *	   (data_commit_remaps()); log.moving keeps what is a hole in between from being freed.
 *
 * So after a crash all of it is there, or nothing.  Until the commit is over the remap is what the ranges have, for who asks
 * data_map(): that matters if the commit fails, for then it stays so until the volume is closed.
 */
#ifndef TUX3_REMAP_H
#define TUX3_REMAP_H

#include "core/env.h"
#include "core/data/data.h"

#define REMAP_LOG_MAX	(8u << 20)	/* bytes of log that one may take, by default */

struct remap_range {
	u64 block, count;	/* count: up to DATA_END */
};

struct remap_run {
	u64 block, addr;
	u32 count, flags;	/* TUX3_EXTENT_... */
	u64 csum;		/* with CSUM: number of the first one among those of the side */
};

/* What becomes of the ranges of one file: the runs, and between them holes. */
struct remap_side {
	struct tux3_inode *inode;
	struct remap_range drop;	/* freed before that; count 0: nothing */
	struct remap_range *ranges;
	struct remap_run *runs;		/* all within ranges; both in ascending order */
	__le32 *csums;
	u32 range_count, range_room;
	u32 run_count, run_room;
	u64 csum_count, csum_room;
	u64 blocks;			/* of the runs */
	u64 new_size;
	bool unwritten;			/* some of the runs are */
};

struct data_remap {
	struct llist_node link;		/* delta.remaps */
	u32 sides;
	struct remap_side side[2];	/* may both be of one inode: then new_size is the same */
};

/* What the host does, outside a delta if nothing else is said.  It has its locks of the files against writes and truncates. */
struct data_remap_ops {
	/* Stores through mappings that nobody was told of are in the front delta.  May be NULL. */
	int (*settle)(struct tux3_inode *inode);
	/* Nothing more comes into the cache, or gets dirty through mappings, of one file or of two; b NULL: one.  May be NULL. */
	void (*lock)(struct tux3_inode *a, struct tux3_inode *b);
	void (*unlock)(struct tux3_inode *a, struct tux3_inode *b);
	/* Before that: data_set_apart(). */
	int (*apart)(struct tux3_inode *inode);
	/* Cached blocks, none of which is dirty, go.  -EAGAIN: one is not clean after all, or cannot go now. */
	int (*drop)(struct tux3_inode *inode, u64 block, u64 count);
	/* Inside, with inode->lock: size and times were set.  May be NULL. */
	void (*changed)(struct tux3_inode *inode);
};

/* As XFS_EXCHANGE_RANGE_... of the kernel. */
#define EXCHANGE_TO_EOF		1u	/* to the ends of both files, and the sizes are exchanged */
#define EXCHANGE_DSYNC		2u	/* durable on return: always so */
#define EXCHANGE_DRY_RUN	4u	/* only see whether the arguments are right */
#define EXCHANGE_FILE1_WRITTEN	8u	/* only what was written of file 1: its holes, and what is preallocated, stay */
#define EXCHANGE_KNOWN		15u

struct data_exchange {
	struct tux3_inode *inode[2];
	u64 offset[2], len;		/* bytes */
	u32 flags;
	const u64 *fresh;		/* what data_start_commit() said of inode[1] must still be so, or -EBUSY; NULL: any */
	const struct data_remap_ops *ops;
	/*
	 * With all locks, outside a delta, when all is said that can be said against it but for space: it is going to be done.
	 * For what a changed file loses first, which may change its times.  May be NULL.
	 */
	int (*begins)(const struct data_exchange *exchange);
};

/*
 * Two ranges swap.  Offsets are at multiples of a block, and so is the length, unless both ranges end where their files do.
 * -EINVAL: they are not, or are not within the files, or overlap.  0: it is durable.
 */
int data_exchange(const struct data_exchange *exchange);
/* How do two files have to be locked: which is the first?  By number. */
static inline unsigned int data_exchange_first(const struct tux3_inode *a, const struct tux3_inode *b)
{
	return a->ino > b->ino;
}

/*
 * What a file is now, for who wants to exchange something with it if it has not changed by then.  What was changed of it is
 * committed, really, not put ahead as by an fsync: a commit takes the right to store through mappings away, and with the locks of
 * the host nobody gets it again before the file was looked at.  So each store from now on is noticed.  And it is no longer inline,
 * for getting blocks is a change, too.  Locked against writes as for data_exchange().
 */
#define EXCHANGE_FRESH_WORDS	6u
int data_start_commit(struct tux3_inode *inode, const struct data_remap_ops *ops, u64 *words);

/*
 * Bytes [from, from + len) are taken out, and what follows them comes there: whole blocks, that end within the file.  Or so many
 * come in at from, within the file, as a hole.  -EINVAL, -EFBIG.
 */
int data_collapse(struct tux3_inode *inode, const struct data_remap_ops *ops, u64 from, u64 len);
int data_insert(struct tux3_inode *inode, const struct data_remap_ops *ops, u64 from, u64 len);

/* For data_map(): is what the extent asks for in a remap?  Then it is filled in.  If not it may become shorter. */
bool data_remap_look(struct tux3_inode *inode, struct data_extent *extent, __le32 *csum, u32 csum_max);
/* Back end: these are durable, or the volume is closed without. */
void data_remaps_done(struct llist_node *list);

#endif
