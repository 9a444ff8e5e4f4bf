// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sets of file blocks.  Memory for what an edit may need is given by the caller, so that it cannot fail under a
 * spinlock.  inode->lock protects the sets.
 */
#include "core/format/format.h"
#include "core/inode/file_range.h"

static u64 range_end(u64 block, u64 count)
{
	return count > DATA_END - block ? DATA_END : block + count;
}

static u64 range_stop(const struct inode_range *range)
{
	return range_end(range->block, range->count);
}

static struct inode_range *range_of(struct rb_node *node)
{
	return node ? rb_entry(node, struct inode_range, node) : NULL;
}

struct inode_range *file_ranges_first(const struct rb_root *ranges)
{
	return range_of(rb_first(ranges));
}

struct inode_range *file_ranges_next(struct inode_range *range)
{
	return range_of(rb_next(&range->node));
}

/* The first range that ends at or after block: the ends are in the order of the ranges. */
static struct inode_range *range_from(const struct rb_root *ranges, u64 block)
{
	struct rb_node *node = ranges->rb_node;
	struct inode_range *found = NULL;

	while (node) {
		struct inode_range *range = range_of(node);

		if (range_stop(range) >= block) {
			found = range;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return found;
}

static void range_insert(struct rb_root *ranges, struct inode_range *new, u64 block, u64 count)
{
	struct rb_node **link = &ranges->rb_node, *parent = NULL;

	new->block = block;
	new->count = count;
	while (*link) {
		parent = *link;
		link = block < range_of(parent)->block ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&new->node, parent, link);
	rb_insert_color(&new->node, ranges);
}

static void range_drop(struct rb_root *ranges, struct inode_range *range)
{
	rb_erase(&range->node, ranges);
	kfree(range);
}

bool file_ranges_find(const struct rb_root *ranges, u64 block, u64 *count)
{
	struct inode_range *range = range_from(ranges, block);

	if (range && range_stop(range) == block)
		range = file_ranges_next(range);
	if (range && range->block <= block) {
		*count = range_stop(range) - block;
		return true;
	}
	*count = (range ? range->block : DATA_END) - block;
	return false;
}

struct inode_range *file_ranges_add(struct rb_root *ranges, u64 block, u64 count, struct inode_range *spare)
{
	struct inode_range *range = range_from(ranges, block), *next;
	u64 end = range_end(block, count);

	if (!range || range->block > end) {
		range_insert(ranges, spare, block, end - block);
		return NULL;
	}
	/* It touches or overlaps: it grows, and swallows those behind it. */
	block = min(block, range->block);
	end = max(end, range_stop(range));
	while ((next = file_ranges_next(range)) && next->block <= end) {
		end = max(end, range_stop(next));
		range_drop(ranges, next);
	}
	range->block = block;
	range->count = end - block;
	return spare;
}

struct inode_range *file_ranges_cut(struct rb_root *ranges, u64 block, u64 count, struct inode_range *spare)
{
	struct inode_range *range = range_from(ranges, block), *next;
	u64 end = range_end(block, count);

	for (; range && range->block < end; range = next) {
		u64 stop = range_stop(range);

		next = file_ranges_next(range);
		if (stop <= block)
			continue;
		if (range->block < block && stop > end) {	/* both ends stay */
			range->count = block - range->block;
			range_insert(ranges, spare, end, stop - end);
			return NULL;
		}
		if (range->block < block) {
			range->count = block - range->block;
		} else if (stop > end) {
			range->count = stop - end;
			range->block = end;
		} else {
			range_drop(ranges, range);
		}
	}
	return spare;
}

void file_ranges_free(struct rb_root *ranges)
{
	struct inode_range *range, *next;
	u32 n = 0;

	rbtree_postorder_for_each_entry_safe(range, next, ranges, node) {
		kfree(range);
		if (!(++n % 1024))
			cond_resched();
	}
	*ranges = RB_ROOT;
}
