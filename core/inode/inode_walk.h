/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All inodes of a volume, by number, at the speed of reading leaves: for bulkstat.
 *
 * Locking: any thread, no locks, outside a delta.  tree.sem is held shared for a leaf at a time.  Nothing is committed, no inode
 * object is made.
 */
#ifndef TUX3_INODE_WALK_H
#define TUX3_INODE_WALK_H

#include "core/env.h"
#include "core/inode/inode.h"

struct tux3_ioc_inode;
struct tux3_ioc_inodes_header;

struct inode_seen {
	u64 ino;
	struct tux3_attr attr;
	u64 blocks;		/* as stat(2) counts them, in blocks of the volume */
};

/*
 * The next inodes with a name, from number *ino on: at most max of them.  Returns how many, 0: there are no more; *ino is where
 * to go on.  -errno if the first one cannot be had.
 *
 * An inode that has a name during a whole sequence of calls is told exactly once, with a state that it had during the call that
 * told it; and what is told was there.  On volumes without a host (tools) that is what the tree has.
 */
int inode_walk(struct volume *vol, u64 *ino, struct inode_seen *seen, u32 max);

/* For ioctls: so many are wanted, from header->ino on.  -EINVAL. */
int inode_walk_request(struct tux3_ioc_inodes_header *header, u32 *wanted);
/* All of it in the structure of theirs. */
void inode_seen_to_ioctl(struct volume *vol, const struct inode_seen *seen, struct tux3_ioc_inode *to);

#endif
