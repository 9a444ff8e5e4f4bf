/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Data that stays where an fsync has put it.
 *
 * An fsync that goes ahead of its delta writes data of large files to blocks that are nobody's else, and it is durable before the
 * commit of that delta.  What has not changed since need not be written again: the commit maps it where it is, with the checksums
 * that the intent has.
 *
 * So the inode has a list of such runs, from when its intent is durable until the delta is committed.  Whether they have changed
 * is what intents ask anyway (told and fresh in inode.h): a block that a later change may be in is dropped.  That looks at the
 * newest state, and the commit is about an earlier one, if anything has changed since; so it may drop a run for nothing, but never
 * keeps one that is not what the delta has.  A run counts for the delta in which it was captured alone: one before it may be under
 * way, and have older data of the same blocks.
 */
#ifndef TUX3_EARLY_H
#define TUX3_EARLY_H

#include "core/env.h"

struct tux3_inode;

struct early_run {
	struct early_run *next;
	u64 delta, block, addr;
	u32 count;
	u32 first;		/* of the checksums: those before it were of blocks that have changed */
	__le32 csum[];
};

/* In front of next: that is where these blocks are, with these checksums; without memory not all of them. */
struct early_run *early_new(struct early_run *next, u64 delta, u64 block, u64 addr, u32 count, const __le32 *csum);
void early_free(struct early_run *runs);
/* They are of the intent that told says.  If that still holds the inode gets them, else they go. */
void early_add(struct tux3_inode *inode, u64 told, struct early_run *runs);
/* inode->lock held: these blocks have changed, or nobody knows whether. */
void early_drop(struct tux3_inode *inode, u64 block, u64 end);
/*
 * For the commit of the delta, in which the block is dirty.  true: the data of *count blocks is from *addr on, no more than max,
 * with these checksums; false: that of *count blocks is not known to be anywhere.
 */
bool early_look(struct tux3_inode *inode, u64 delta, u64 block, u32 *count, u64 *addr, __le32 *csum, u32 max);
/* The delta has the inode's data. */
void early_done(struct tux3_inode *inode, u64 delta);

#endif
