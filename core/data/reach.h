/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Can all that an edit of the tree meets be read?  Asked before anything is changed or logged: an edit that meets a bad block in
 * the middle of a commit stops the volume.  It reads what the edit would read, and no more.
 */
#ifndef TUX3_REACH_H
#define TUX3_REACH_H

#include "core/env.h"

struct tux3_inode;
struct tree_key;
struct volume;

/*
 * Mapping or removing *count blocks of the inode from block on: the leaves, what is before them there, and the free maps of the
 * blocks that go.  *count becomes less: so many of them, since what is behind lies in another leaf, or needs less, or more.
 * 0; -EIO: of these something cannot be read; -ENOMEM.  *bad_end: with -EIO, where the range ends of a leaf that cannot be read;
 * else block.
 * reach_all(): any of them; count DATA_END: to the end.
 */
int reach_blocks(struct tux3_inode *inode, u64 block, u64 *count, u64 *bad_end);
int reach_all(struct tux3_inode *inode, u64 block, u64 count);
/* The free maps alone, when the leaves are known to be in memory. */
int reach_maps(struct tux3_inode *inode, u64 block, u64 count);
/* These stay in memory, when they have been looked at, until this delta is committed.  -EAGAIN: too many do. */
int reach_need_maps(struct tux3_inode *inode, u64 block, u64 count, u64 delta);
/* Setting or deleting its item of this type, offset 0. */
int reach_item(struct tux3_inode *inode, u8 type);
/* Its extended attributes with this hash, with the free maps of the blocks that they have. */
int reach_xattr(struct tux3_inode *inode, u64 hash);

#endif
