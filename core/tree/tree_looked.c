// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What was looked at lately, for changes that a commit cannot leave out (tree_look_for()): it carries the number of the delta, as
 * do nodes that edits make of it (node_need()), and stays in memory until that is committed.
 *
 * So a leaf need not be looked at twice for one delta: whatever has become of it, its range of keys leads to such nodes.  Only if
 * the leaves beside it stay, too: one of them gets the range should all items of the leaf go.
 *
 * Each CPU remembers the ranges that were looked at there for the newest delta.  Those that meet become one: of an inode table, or
 * a directory, that is gone through there are few, in whatever order.  If they get too many all are forgotten.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

#define LOOKED_RANGES	128u
#define LOOKED_TYPES	8u

struct looked_range {
	struct node_key low, high;	/* low <= key < high */
};

/* Whoever reads it takes no lock, which would be most of what it costs: seq is odd while it is written, and another one then. */
struct tree_looked {
	spinlock_t lock;		/* to write it; who does not get it leaves it alone */
	u32 seq, count;
	u64 delta;			/* for which they were looked at; 0: none */
	u32 last[LOOKED_TYPES];		/* by type of item: the range where one was found last; a guess, whoever writes it */
	struct looked_range range[LOOKED_RANGES];	/* in order, with something between them */
};

int looked_init(struct node_cache *cache)
{
	int cpu;

	cache->looked = alloc_percpu(struct tree_looked);	/* zeroed */
	if (!cache->looked)
		return -ENOMEM;
	for_each_possible_cpu(cpu)
		spin_lock_init(&per_cpu_ptr(cache->looked, cpu)->lock);
	return 0;
}

void looked_exit(struct node_cache *cache)
{
	free_percpu(cache->looked);
	cache->looked = NULL;
}

static inline struct node_key key_read(const struct node_key *key)
{
	return (struct node_key){ READ_ONCE(key->high), READ_ONCE(key->low) };
}

static void key_write(struct node_key *to, const struct node_key *key)
{
	WRITE_ONCE(to->high, key->high);
	WRITE_ONCE(to->low, key->low);
}

static inline bool range_has(const struct looked_range *range, const struct node_key *from, const struct node_key *to)
{
	struct node_key low = key_read(&range->low), high = key_read(&range->high);

	return !node_key_less(from, &low) && node_key_less(to, &high);
}

/* How many of the first count ranges end before key, or with reach: end there or before. */
static u32 ranges_before(const struct tree_looked *looked, u32 count, const struct node_key *key, bool reach)
{
	u32 low = 0, high = count;

	while (low < high) {
		u32 middle = (low + high) / 2;
		struct node_key end = key_read(&looked->range[middle].high);

		if (node_key_less(&end, key) || (reach && node_key_equal(&end, key)))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool ranges_search(struct tree_looked *looked, const struct node_key *from, const struct node_key *to)
{
	u32 count = min(READ_ONCE(looked->count), LOOKED_RANGES), i = ranges_before(looked, count, from, true);

	if (i == count || !range_has(&looked->range[i], from, to))
		return false;
	WRITE_ONCE(looked->last[from->high % LOOKED_TYPES], i);
	return true;
}

static inline bool ranges_have(struct tree_looked *looked, const struct node_key *from, const struct node_key *to)
{
	u32 i = READ_ONCE(looked->last[from->high % LOOKED_TYPES]);

	return likely(i < READ_ONCE(looked->count) && range_has(&looked->range[i], from, to)) || ranges_search(looked, from, to);
}

/* Whether what was read between is of one state, for this delta. */
static bool read_ends(const struct tree_looked *looked, u32 seq, u64 delta)
{
	bool same = READ_ONCE(looked->delta) == delta;

	smp_rmb();
	return same && !(seq & 1) && READ_ONCE(looked->seq) == seq;
}

bool looked_has(struct volume *vol, u64 delta, const struct node_key *key)
{
	struct tree_looked *looked = raw_cpu_ptr(vol->cache.looked);
	u32 seq = smp_load_acquire(&looked->seq);

	return ranges_have(looked, key, key) && read_ends(looked, seq, delta);
}

bool tree_looked_at(struct volume *vol, const struct tree_span *spans, u32 count, u64 delta)
{
	struct tree_looked *looked = raw_cpu_ptr(vol->cache.looked);
	u32 seq = smp_load_acquire(&looked->seq), i;

	for (i = 0; i < count; i++) {
		struct node_key from = node_key_pack(&spans[i].first), to = node_key_pack(&spans[i].last);

		if (!ranges_have(looked, &from, &to))
			return false;
	}
	return read_ends(looked, seq, delta);
}

static void range_write(struct tree_looked *looked, u32 i, const struct node_key *low, const struct node_key *high)
{
	key_write(&looked->range[i].low, low);
	key_write(&looked->range[i].high, high);
}

/* Those from `from` on are from `to` on. */
static void ranges_move(struct tree_looked *looked, u32 from, u32 to)
{
	u32 moved = looked->count - from, i, k;

	for (i = 0; i < moved && from != to; i++) {
		k = to > from ? moved - 1 - i : i;
		range_write(looked, to + k, &looked->range[from + k].low, &looked->range[from + k].high);
	}
	WRITE_ONCE(looked->count, to + moved);
}

/* In the place of those that it meets. */
static void ranges_add(struct tree_looked *looked, const struct node_key *low, const struct node_key *high)
{
	struct looked_range all = { *low, *high };
	u32 first = ranges_before(looked, looked->count, low, false), end = first;

	while (end < looked->count && !node_key_less(high, &looked->range[end].low))
		end++;
	if (end > first) {
		const struct looked_range *from = &looked->range[first], *to = &looked->range[end - 1];

		all.low = node_key_less(&from->low, low) ? from->low : *low;
		all.high = node_key_less(high, &to->high) ? to->high : *high;
	} else if (looked->count == LOOKED_RANGES) {
		WRITE_ONCE(looked->count, 0);
		first = end = 0;
	}
	ranges_move(looked, end, first + 1);
	range_write(looked, first, &all.low, &all.high);
}

void looked_add(struct volume *vol, u64 delta, const struct node_key *low, const struct node_key *high)
{
	struct tree_looked *looked = raw_cpu_ptr(vol->cache.looked);

	if (!spin_trylock(&looked->lock))
		return;
	if (looked->delta <= delta) {
		WRITE_ONCE(looked->seq, looked->seq + 1);
		smp_wmb();
		if (looked->delta != delta) {
			WRITE_ONCE(looked->delta, delta);
			WRITE_ONCE(looked->count, 0);
		}
		ranges_add(looked, low, high);
		smp_store_release(&looked->seq, looked->seq + 1);
	}
	spin_unlock(&looked->lock);
}
