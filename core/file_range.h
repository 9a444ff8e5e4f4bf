/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Lists of ranges of file blocks: sorted, disjoint, not touching.
 */
#ifndef TUX3_FILE_RANGE_H
#define TUX3_FILE_RANGE_H

#include "env.h"

struct file_range {
	struct list_head link;
	u64 block;
	u64 count;		/* ~0: everything from block on */
};

/* Is block in one of the ranges?  *count: blocks from there on with the same answer. */
bool file_ranges_find(const struct list_head *ranges, u64 block, u64 *count);
/*
 * Add or take away blocks.  spare: a range from kmalloc that may be used up; returned if it was not.
 */
struct file_range *file_ranges_add(struct list_head *ranges, u64 block, u64 count, struct file_range *spare);
struct file_range *file_ranges_cut(struct list_head *ranges, u64 block, u64 count, struct file_range *spare);
void file_ranges_free(struct list_head *ranges);

#endif
