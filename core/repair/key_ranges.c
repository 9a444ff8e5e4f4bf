/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: sets of keys.  See key_ranges.h.
 */
#include "core/tree/tree_internal.h"
#include "core/repair/repair_internal.h"
#include "core/repair/key_ranges.h"

u64 key_ranges_find(const struct repair_table *ranges, const struct node_key *key)
{
	const struct key_range *range = ranges->entries;
	u64 low = 0, high = ranges->count;

	while (low < high) {
		u64 middle = low + (high - low) / 2;

		if (node_key_less(&range[middle].last, key))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool key_ranges_have(const struct repair_table *ranges, const struct node_key *key)
{
	const struct key_range *range = ranges->entries;
	u64 at = key_ranges_find(ranges, key);

	return at < ranges->count && !node_key_less(key, &range[at].first);
}

int key_ranges_add(struct repair_table *ranges, const struct node_key *first, const struct node_key *last)
{
	struct key_range new = { *first, *last }, *range;
	u64 at = key_ranges_find(ranges, first), end = at;

	if (!repair_add(ranges, sizeof(*range)))
		return -ENOMEM;
	ranges->count--;
	range = ranges->entries;
	for (; end < ranges->count && !node_key_less(&new.last, &range[end].first); end++) {
		if (node_key_less(&range[end].first, &new.first))
			new.first = range[end].first;
		if (node_key_less(&new.last, &range[end].last))
			new.last = range[end].last;
	}
	memmove(&range[at + 1], &range[end], (ranges->count - end) * sizeof(*range));
	range[at] = new;
	ranges->count -= end - at;
	ranges->count++;
	return 0;
}

int key_ranges_add_without(struct repair_table *ranges, const struct key_range *range, const struct repair_table *without)
{
	const struct key_range *hole = without->entries;
	struct node_key from = range->first, last;
	u64 at = key_ranges_find(without, &from);
	int err = 0;

	for (; !err && at < without->count && !node_key_less(&range->last, &hole[at].first); at++) {
		last = hole[at].first;
		if (node_key_less(&from, &last)) {
			node_key_step_down(&last);
			err = key_ranges_add(ranges, &from, &last);
		}
		from = hole[at].last;
		if (!node_key_less(&from, &range->last))
			return err;
		node_key_step_up(&from);
	}
	return err ? err : key_ranges_add(ranges, &from, &range->last);
}
