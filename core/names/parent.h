/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Parent pointers of files with several names: their chains have an end (parent.c).
 */
#ifndef TUX3_PARENT_H
#define TUX3_PARENT_H

#include "core/env.h"

struct volume;
struct tux3_inode;
struct delta_op;

#define PARENT_BUCKETS_SHIFT 12
#define PARENT_STRETCH	((1u << PARENT_BUCKETS_SHIFT) / BITS_PER_LONG)

struct parents {
	atomic_t bytes[2][1u << PARENT_BUCKETS_SHIFT];	/* by delta & 1: of pointers given in the delta */
	unsigned long used[2];		/* a bit for each stretch of buckets of which some are not 0 */
};

/*
 * Outside a delta, before the inode gets this name: -EMLINK, the item would become too long.  May commit.
 * For new inodes it need not be asked.
 */
int parent_room(struct tux3_inode *inode, u64 dir, const char *name, u32 len);
/*
 * Outside: can the place of this pointer be read, of an inode that has its items in several leaves?  name_look_parent() counts on
 * this having been asked.  0, or -EIO.
 */
int parent_look(struct tux3_inode *inode, u64 dir, const char *name, u32 len);
/* Inside: it got the name. */
void parent_add(struct delta_op *op, struct tux3_inode *inode, u64 dir, const char *name, u32 len);
/* Back end: the delta is in the tree. */
void parent_done(struct volume *vol, u64 delta);
/* For volume_options.verify: of a durable delta nothing is pending.  0, or -EIO and a sentence. */
int parent_verify(struct volume *vol, u64 delta, char *why, size_t why_size);

#endif
