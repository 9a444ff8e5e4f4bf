/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A delta from frozen to durable: commit.c is its course, data_commit.c what becomes of file data, data_place.c where it goes.
 */
#ifndef TUX3_COMMIT_H
#define TUX3_COMMIT_H

#include "core/env.h"

struct volume;
struct tux3_inode;
struct tux3_attr;
struct io_window;

/* Commit the delta that is now the front one; commit_mutex held. */
int commit_delta(struct volume *vol);
/* At the end of a volume that is abandoned: release the inodes dirty in this slot. */
void commit_give_up(struct volume *vol, unsigned int slot);
/*
 * data_commit.c: place, submit and log what is dirty in delta.  attr: the copy that will be
 * logged; the flags that say how the file is stored are changed in it.
 */
int data_commit(struct tux3_inode *inode, u64 delta, struct tux3_attr *attr, struct io_window *io);
/* Instead of it, of an inode that is stuck: size and flags in attr become what the tree says.  dirty: INODE_DIRTY_... */
int data_commit_stuck(struct tux3_inode *inode, u64 delta, u32 dirty, struct tux3_attr *attr);
/* Something of what was changed is not committed, since it cannot be read: users of the file, and who reads messages, are told. */
void data_tell_lost(struct tux3_inode *inode);
/* Before any inode of delta: the remaps of this list, which are those of delta.  Stays as it is. */
int data_commit_remaps(struct volume *vol, struct llist_node *list, u64 delta);
/* quota_commit.c: log the limits that were changed in delta, and grace that has begun.  Behind all that moves usage. */
int quota_commit(struct volume *vol, u64 delta);
/*
 * Can usage move when what is dirty of the inode is committed, that of who has it and of who had it?  -EIO: some cannot be read.
 * Else it is in memory until delta is committed.  dirty: INODE_DIRTY_...
 */
int quota_reach(struct tux3_inode *inode, u64 delta, u32 dirty, const struct tux3_attr *attr);

/*
 * data_place.c: blocks for file blocks from block on, that get dirty data: *run of them, at most count, at *addr.  In ascending
 * order; the places are for all data of an inode in one commit.  -EUCLEAN: *run of them are preallocated where nothing can be.
 */
struct data_places {
	struct tux3_inode *inode;
	u64 delta;
	const struct tux3_attr *attr;
	u32 span;		/* so many file blocks get room together, a power of 2; 0: none do */
	bool known;		/* what is above and below */
	bool filled;		/* at the end of the delta the file has no holes */
};
int data_place(struct data_places *places, u64 block, u64 count, u64 *addr, u32 *run);

#endif
