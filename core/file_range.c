// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lists of ranges of file blocks: sorted, disjoint, not touching.  Memory for what an edit may need is
 * given by the caller, so that it cannot fail under a spinlock.  inode->lock protects the lists.
 */
#include "data.h"
#include "file_range.h"

static u64 range_end(u64 block, u64 count)
{
	return count > DATA_END - block ? DATA_END : block + count;
}

bool file_ranges_find(const struct list_head *ranges, u64 block, u64 *count)
{
	struct file_range *range;

	*count = DATA_END - block;
	list_for_each_entry(range, ranges, link) {
		u64 end = range_end(range->block, range->count);

		if (block < range->block) {
			*count = range->block - block;
			return false;
		}
		if (block < end) {
			*count = end - block;
			return true;
		}
	}
	return false;
}

/* Returns what of spare was not needed (NULL if it was). */
struct file_range *file_ranges_add(struct list_head *ranges, u64 block, u64 count, struct file_range *spare)
{
	struct file_range *range, *next;
	struct list_head *before = ranges;
	u64 end = range_end(block, count);

	list_for_each_entry_safe(range, next, ranges, link) {
		u64 range_stop = range_end(range->block, range->count);

		if (range_stop < block) {
			before = &range->link;
			continue;
		}
		if (range->block > end)
			break;
		block = min(block, range->block);	/* touches or overlaps: swallow it */
		end = max(end, range_stop);
		list_del(&range->link);
		if (spare)
			kfree(range);
		else
			spare = range;
	}
	spare->block = block;
	spare->count = end - block;
	list_add(&spare->link, before);
	return NULL;
}

struct file_range *file_ranges_cut(struct list_head *ranges, u64 block, u64 count, struct file_range *spare)
{
	struct file_range *range, *next;
	u64 end = range_end(block, count);

	list_for_each_entry_safe(range, next, ranges, link) {
		u64 stop = range_end(range->block, range->count);

		if (stop <= block)
			continue;
		if (range->block >= end)
			break;
		if (range->block < block && stop > end) {	/* both ends stay */
			spare->block = end;
			spare->count = stop - end;
			list_add(&spare->link, &range->link);
			range->count = block - range->block;
			return NULL;
		}
		if (range->block < block) {
			range->count = block - range->block;
		} else if (stop > end) {
			range->count = stop - end;
			range->block = end;
		} else {
			list_del(&range->link);
			kfree(range);
		}
	}
	return spare;
}

void file_ranges_free(struct list_head *ranges)
{
	struct file_range *range, *next;

	list_for_each_entry_safe(range, next, ranges, link) {
		list_del(&range->link);
		kfree(range);
	}
}
