// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What was looked at lately, for changes that a commit cannot leave out (tree_look_for()): it carries the number of the delta, as
 * do nodes that edits make of it (node_need()), and stays in memory until that is committed.
 *
 * So a leaf need not be looked at twice for one delta: whatever has become of it, its range of keys leads to such nodes.  Each
 * CPU remembers the ranges of the last few leaves that were looked at there.  Only if the leaves beside it stay, too: one of them
 * gets the range should all items of a leaf go.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

#define LOOKED_SETS	8u	/* by the type of the items that were looked for */
#define LOOKED_RANGES	8u

struct looked_range {
	u64 delta;			/* 0: none */
	struct node_key low, high;	/* low <= key < high */
};

/* Whoever reads it takes no lock, which would be most of what it costs: seq is odd while it is written, and another one then. */
struct looked_set {
	spinlock_t lock;		/* to write it; who does not get it leaves it alone */
	u32 seq, next;			/* next: the range that goes next */
	struct looked_range range[LOOKED_RANGES];
};

struct tree_looked {
	struct looked_set set[LOOKED_SETS];
};

int looked_init(struct node_cache *cache)
{
	int cpu, i;

	cache->looked = alloc_percpu(struct tree_looked);	/* zeroed */
	if (!cache->looked)
		return -ENOMEM;
	for_each_possible_cpu(cpu)
		for (i = 0; i < LOOKED_SETS; i++)
			spin_lock_init(&per_cpu_ptr(cache->looked, cpu)->set[i].lock);
	return 0;
}

void looked_exit(struct node_cache *cache)
{
	free_percpu(cache->looked);
	cache->looked = NULL;
}

static struct looked_set *looked_set(struct volume *vol, const struct node_key *key)
{
	return &raw_cpu_ptr(vol->cache.looked)->set[(u8)key->high % LOOKED_SETS];
}

static struct node_key key_read(const struct node_key *key)
{
	return (struct node_key){ READ_ONCE(key->high), READ_ONCE(key->low) };
}

static void key_write(struct node_key *to, const struct node_key *key)
{
	WRITE_ONCE(to->high, key->high);
	WRITE_ONCE(to->low, key->low);
}

static bool range_has(const struct looked_range *range, u64 delta, const struct node_key *key)
{
	struct node_key low = key_read(&range->low), high = key_read(&range->high);

	return READ_ONCE(range->delta) == delta && !node_key_less(key, &low) && node_key_less(key, &high);
}

bool looked_has(struct volume *vol, u64 delta, const struct node_key *key)
{
	const struct looked_set *set = looked_set(vol, key);
	u32 seq = smp_load_acquire(&set->seq), i;

	for (i = 0; i < LOOKED_RANGES && !range_has(&set->range[i], delta, key); i++)
		;
	smp_rmb();
	return i < LOOKED_RANGES && !(seq & 1) && READ_ONCE(set->seq) == seq;
}

void looked_add(struct volume *vol, u64 delta, const struct node_key *key, const struct node_key *low, const struct node_key *high)
{
	struct looked_set *set = looked_set(vol, key);
	struct looked_range *range;

	if (!spin_trylock(&set->lock))
		return;
	range = &set->range[set->next++ % LOOKED_RANGES];
	WRITE_ONCE(set->seq, set->seq + 1);
	smp_wmb();
	WRITE_ONCE(range->delta, delta);
	key_write(&range->low, low);
	key_write(&range->high, high);
	smp_store_release(&set->seq, set->seq + 1);
	spin_unlock(&set->lock);
}
