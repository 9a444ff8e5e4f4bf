/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sets of file blocks: trees of ranges, disjoint and not touching.  Each call costs O(log n), and what it swallows.
 */
#ifndef TUX3_FILE_RANGE_H
#define TUX3_FILE_RANGE_H

#include "core/env.h"

struct inode_range {
	struct rb_node node;	/* by block */
	u64 block;
	u64 count;		/* ~0: everything from block on */
};

/* Is block in one of the ranges?  *count: blocks from there on with the same answer. */
bool file_ranges_find(const struct rb_root *ranges, u64 block, u64 *count);
/*
 * Add or take away blocks.  spare: a range from kmalloc that may be used up; returned if it was not.
 */
struct inode_range *file_ranges_add(struct rb_root *ranges, u64 block, u64 count, struct inode_range *spare);
struct inode_range *file_ranges_cut(struct rb_root *ranges, u64 block, u64 count, struct inode_range *spare);
struct inode_range *file_ranges_first(const struct rb_root *ranges);
struct inode_range *file_ranges_next(struct inode_range *range);
void file_ranges_free(struct rb_root *ranges);

#endif
