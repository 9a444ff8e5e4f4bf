// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where a file is dirty: found without a look at all that is cached of it, or all that is dirty.
 *
 *	not taken	is PG_dirty, as all that is dirty in the front delta is; so by the tag of the page cache
 *	taken		by the back end, which takes PG_dirty from it: by its list, which is in order then (struct back_index)
 *
 * The tags are looked at first, and then what was taken: so who is taken in between is found there, or is in the tree, where
 * whoever asks looks afterwards.
 */
#include <linux/mm.h>
#include "core/inode/file_range.h"
#include "linux/folio.h"

/* Of the state's blocks those that were removed in the delta of this slot. */
static u64 state_removed(struct tux3_node *node, const struct folio_state *state, unsigned int slot)
{
	struct tux3_inode *core = &node->core;
	u64 bits = 0, here;
	u32 i;

	spin_lock(&core->lock);
	for (i = 0; i < state->blocks; i += here) {
		bool removed = file_ranges_find(&core->slot[slot].removed, state->block + i, &here);

		here = min_t(u64, here, state->blocks - i);
		bits |= removed ? folio_mask(i, here) : 0;
	}
	spin_unlock(&core->lock);
	return bits;
}

/*
 * What is dirty of it, and still there: where the folio is larger than a hole that was made since, the back delta has blocks in
 * that, too.  data_lock held.
 */
static u64 state_dirty(struct tux3_node *node, const struct folio_state *state)
{
	unsigned int front = node_front_slot(node);
	u64 bits = state->dirty[front], back = state->dirty[!front] & ~bits;

	if (likely(!back) || RB_EMPTY_ROOT(&node->core.slot[front].removed))
		return bits | back;
	return bits | (back & ~state_removed(node, state, front));
}

/* ---- by the page cache ---- */

struct dirty_run {
	u64 from;		/* where it is looked for */
	u64 block, stop;	/* what was found so far; stop 0: nothing */
};

/* Adds what one folio, which comes after the last one, has of the run.  false: that was its end.  data_lock held. */
static bool run_add_folio(struct dirty_run *run, struct tux3_node *node, struct folio *folio)
{
	struct folio_state *state = folio_get_private(folio);
	u64 first = folio_block(node, folio), bits;
	u32 blocks = folio_blocks(node, folio);

	if (folio->mapping != node->vfs.i_mapping || first + blocks <= run->from)
		return true;
	bits = state ? state_dirty(node, state) : 0;
	if (first < run->from)
		bits &= ~0ULL << (run->from - first);
	if (!run->stop) {
		if (!bits)
			return true;
		run->block = run->stop = first + __ffs64(bits);
	}
	if (first > run->stop)
		return false;
	bits = ~(bits >> (run->stop - first));
	run->stop += bits ? min_t(u64, __ffs64(bits), first + blocks - run->stop) : 64;
	return run->stop == first + blocks;
}

/* Through the page cache.  tagged: only folios that are PG_dirty. */
static struct dirty_run find_run(struct tux3_node *node, u64 from, u64 end, bool tagged)
{
	u32 shift = node->core.vol->block_shift - PAGE_SHIFT, looked = 0, i;
	pgoff_t index = from << shift, last = ((end - 1) << shift) | ((1UL << shift) - 1);
	struct address_space *mapping = node->vfs.i_mapping;
	struct dirty_run run = { .from = from };
	struct folio_batch batch;
	bool more = true;

	folio_batch_init(&batch);
	while (more && (tagged ? filemap_get_folios_tag(mapping, &index, last, PAGECACHE_TAG_DIRTY, &batch) :
				 filemap_get_folios(mapping, &index, last, &batch))) {
		spin_lock(&node->data_lock);
		for (i = 0; i < folio_batch_count(&batch) && more; i++)
			more = run_add_folio(&run, node, batch.folios[i]);
		spin_unlock(&node->data_lock);
		looked += folio_batch_count(&batch);
		folio_batch_release(&batch);
		cond_resched();
	}
	if (looked)
		count_add(node->core.vol, TUX3_COUNT_DIRTY_LOOKS, looked);
	return run;
}

/* ---- by the lists ---- */

/* Adds the first dirty blocks that the state has at or after from, if they come before what was found.  data_lock held. */
static void state_next_dirty(struct tux3_node *node, const struct folio_state *state, u64 from, struct dirty_run *found)
{
	u64 bits = state->detached ? 0 : state_dirty(node, state) & state_range(state, from, DATA_END);
	u32 first = bits ? __ffs64(bits) : 0;

	if (!bits || state->block + first >= found->block)
		return;
	bits = ~(bits >> first);
	found->block = state->block + first;
	found->stop = found->block + (bits ? __ffs64(bits) : 64);
}

/* Likewise of all on a list, with others that were looked at.  false: they are too many. */
static bool list_next_dirty(struct tux3_node *node, unsigned int slot, u64 from, struct dirty_run *found, u32 *looked)
{
	struct folio_state *state;

	list_for_each_entry(state, &node->dirty[slot], link[slot]) {
		if (++*looked > FEW_DIRTY)
			return false;
		state_next_dirty(node, state, from, found);
	}
	return true;
}

static bool lists_next_dirty(struct tux3_node *node, u64 from, struct dirty_run *found)
{
	u32 looked = 0;

	*found = (struct dirty_run){ .block = DATA_END, .stop = DATA_END };
	return list_next_dirty(node, 0, from, found, &looked) && list_next_dirty(node, 1, from, found, &looked);
}

/*
 * The same as find_run(), of what is on the lists: if that is little, and not just being sorted by the back end, which takes none
 * from its list without data_lock.
 */
static bool find_run_listed(struct tux3_node *node, u64 from, struct dirty_run *run)
{
	struct dirty_run next;
	bool few;

	*run = (struct dirty_run){ .from = from };
	spin_lock(&node->data_lock);
	few = !node->sorting && folio_dirty_blocks(node) <= FEW_DIRTY && lists_next_dirty(node, from, &next);
	if (few && next.block < DATA_END) {
		run->block = next.block;
		do {
			run->stop = next.stop;
		} while (lists_next_dirty(node, run->stop, &next) && next.block == run->stop);
	}
	spin_unlock(&node->data_lock);
	return few;
}

/* ---- what the back end has taken ---- */

struct back_index *back_index_new(struct tux3_node *node, unsigned int slot)
{
	size_t count = list_count_nodes(&node->dirty[slot]);
	struct folio_state *state;
	struct back_index *back;

	if (count <= FEW_DIRTY)
		return NULL;
	back = kvmalloc(struct_size(back, state, count), GFP_NOFS | __GFP_NOWARN);
	if (!back)
		return NULL;
	back->count = back->done = 0;
	list_for_each_entry(state, &node->dirty[slot], link[slot])
		back->state[back->count++] = state;
	return back;
}

/* The first of those not done that reaches beyond this block. */
static size_t back_search(const struct back_index *back, u64 block)
{
	size_t low = back->done, high = back->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (back->state[middle]->block + back->state[middle]->blocks > block)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* At or after *from: found is what a few states have, or *from becomes where to go on.  true: there are more.  data_lock held. */
static bool back_look(struct tux3_node *node, u64 *from, struct dirty_run *found)
{
	const struct back_index *back = node->back;
	size_t i = back_search(back, *from);
	u32 looked;

	for (looked = 0; looked < FEW_DIRTY && i < back->count && found->block == DATA_END; looked++, i++) {
		state_next_dirty(node, back->state[i], *from, found);
		*from = back->state[i]->block + back->state[i]->blocks;
	}
	count_add(node->core.vol, TUX3_COUNT_DIRTY_LOOKS, looked);
	return i < back->count && found->block == DATA_END;
}

/* What may have been taken: the first dirty blocks of it in [from, end).  false: they are many, and in no order. */
static bool find_taken(struct tux3_node *node, u64 from, u64 end, struct dirty_run *found)
{
	bool told = true, more = false;
	u32 looked = 0;

	*found = (struct dirty_run){ .block = DATA_END, .stop = DATA_END };
	do {
		spin_lock(&node->data_lock);
		if (node->back)
			more = back_look(node, &from, found);
		else if (node->sorted && !node->sorting)
			told = list_next_dirty(node, !node_front_slot(node), from, found, &looked);
		else
			more = false;		/* none is taken before the list is in order */
		spin_unlock(&node->data_lock);
		cond_resched();
	} while (more && from < end);
	return told;
}

/* The same as find_run(), of what is PG_dirty, and what was taken. */
static bool find_run_indexed(struct tux3_node *node, u64 from, u64 end, struct dirty_run *run)
{
	struct dirty_run tagged = { .stop = from }, taken, *next;

	*run = (struct dirty_run){ .from = from };
	do {
		if (tagged.stop <= from) {
			tagged = find_run(node, from, end, true);
			if (!tagged.stop)
				tagged.block = tagged.stop = DATA_END;
		}
		if (!find_taken(node, from, end, &taken))
			return false;
		next = taken.block < tagged.block ? &taken : &tagged;
		if (next->block == DATA_END || (run->stop && next->block > run->stop))
			break;
		if (!run->stop)
			run->block = next->block;
		from = run->stop = next->stop;
	} while (from < end);
	return true;
}

/* ---- both ---- */

/*
 * If a delta became the back one while we looked for what is PG_dirty only, it may have been the one of what we missed.
 *
 * Nor is the flag enough while somebody takes it from a folio that is dirty in no delta (folio_clean()): who makes it dirty at that
 * moment may find the flag there still, and be done before it is set anew.  Either we see that somebody is about it, or he sees
 * what was dirty before we came.  Then all that is cached is looked at.
 */
bool folio_find_dirty(struct tux3_node *node, u64 from, u64 end, u64 *block, u64 *count)
{
	u64 front = READ_ONCE(node->core.vol->delta.front);
	struct dirty_run run;
	bool cleaning, tagged;

	if (!folio_dirty_blocks(node))
		return false;
	smp_mb();		/* pairs with folio_clean() */
	cleaning = atomic_read(&node->cleaning);
	tagged = !cleaning && !READ_ONCE(node->dirty_blocks[~front & 1]);
	if (tagged)
		run = find_run(node, from, end, true);
	smp_rmb();
	if (tagged && READ_ONCE(node->core.vol->delta.front) != front)
		tagged = false;
	if (!tagged && !find_run_listed(node, from, &run) && (cleaning || !find_run_indexed(node, from, end, &run)))
		run = find_run(node, from, end, false);
	/* A folio may reach beyond the end. */
	if (!run.stop || run.block >= end)
		return false;
	*block = run.block;
	*count = min(run.stop, end) - run.block;
	return true;
}

bool folio_block_dirty(struct tux3_node *node, u64 block)
{
	u64 found, count;

	return folio_find_dirty(node, block, block + 1, &found, &count);
}
