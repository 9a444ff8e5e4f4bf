// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Putting stores through mappings off to the next delta: put_off.h.
 *
 * Locking: commit_mutex held, nobody is inside a delta.  So lists, counts and slots of both deltas are ours, but for who looks
 * at an inode without entering (fsync, stat, reclaim): inode->lock, and the host's lock inside it, are for these.
 */
#include "core/volume.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/inode/inode.h"
#include "core/data/data_change.h"
#include "core/commit/put_off.h"

#define PUT_OFF_CHANGES	64u	/* of a delta at most, so that its list is short */
#define PUT_OFF_BLOCKS	64u	/* dirty ones of an inode */

/* inode->lock held. */
static bool may_put_off(struct tux3_inode *inode, u64 delta)
{
	const struct inode_slot *slot = &inode->slot[delta & 1];
	const struct tux3_attr *attr = &inode->attr;

	lockdep_assert_held(&inode->lock);
	if (!slot->stored || slot->awaited || slot->dirty & ~(INODE_DIRTY_ATTR | INODE_DIRTY_DATA | INODE_DIRTY_ATIME) ||
	    inode->slot[~delta & 1].dirty)
		return false;
	/* Quotas, and blocks that were preallocated, are accounted for in each delta: such inodes stay. */
	if (inode->owner || slot->extra || slot->paid || slot->charged || !RB_EMPTY_ROOT(&slot->removed) ||
	    !RB_EMPTY_ROOT(&slot->prealloc) || slot->cut != DATA_END || slot->unchecked_end)
		return false;
	return S_ISREG(attr->mode) && attr->nlink && !READ_ONCE(inode->cutting) && !inode->deleted &&
	       !data_maybe_inline(inode->vol, attr->flags, attr->size);
}

/* What faults would be charged: one for each block, and each sets the times before. */
static u64 put_off_price(struct volume *vol, u64 delta, u32 blocks)
{
	return blocks * space_price(vol, delta, space_cost_data(vol, 1, 1)) +
	       (blocks + 1) * space_price(vol, delta, space_cost_items(vol, 1));
}

static void put_off_note(struct volume *vol, u64 delta, u32 blocks)
{
	space_note(vol, delta, space_cost_data(vol, 1, 1), blocks);
	space_note(vol, delta, space_cost_items(vol, 1), blocks + 1);
}

/* inode->lock held.  Its blocks: how many; -EAGAIN: it stays.  Space is charged before it is known for how many. */
static int put_off_data(struct tux3_inode *inode, u64 delta)
{
	struct volume *vol = inode->vol;
	u64 all = put_off_price(vol, delta + 1, PUT_OFF_BLOCKS), price;
	int blocks = 0;

	if (!space_charge(vol, raw_cpu_ptr(vol->delta.cpu), all, 0))
		return -EAGAIN;
	if (inode->slot[delta & 1].dirty & INODE_DIRTY_DATA)
		blocks = vol->host->data_put_off(inode, delta, PUT_OFF_BLOCKS);
	price = blocks < 0 ? 0 : put_off_price(vol, delta + 1, blocks);
	space_uncharge(vol, raw_cpu_ptr(vol->delta.cpu), all - price);
	if (blocks < 0)
		return blocks;
	atomic64_add(price, &raw_cpu_ptr(vol->delta.cpu)->charged[~delta & 1]);
	put_off_note(vol, delta + 1, blocks);
	return blocks;
}

/* The host looks only at what is to be put off. */
static bool stores_known(struct tux3_inode *inode, u64 delta)
{
	const struct tux3_host_ops *host = inode->vol->host;
	bool may;

	if (!host->data_stores_known)
		return true;
	spin_lock(&inode->lock);
	may = may_put_off(inode, delta);
	spin_unlock(&inode->lock);
	return may && host->data_stores_known(inode, delta, PUT_OFF_BLOCKS);
}

/* How many blocks went, or -EAGAIN: it stays. */
static int put_off_inode(struct tux3_inode *inode, u64 delta)
{
	unsigned int from = delta & 1;
	int blocks = -EAGAIN;

	if (!stores_known(inode, delta))
		return -EAGAIN;
	spin_lock(&inode->lock);
	if (may_put_off(inode, delta))		/* it may be waited for by now */
		blocks = put_off_data(inode, delta);
	if (blocks >= 0) {
		inode->slot[!from] = inode->slot[from];
		inode->changed_delta = delta + 1;
		inode_slot_reset(&inode->slot[from]);
	}
	spin_unlock(&inode->lock);
	return blocks;
}

static void put_off_counts(struct volume *vol, u64 delta, u32 inodes, u64 blocks)
{
	struct delta_state *state = &vol->delta;
	unsigned int from = delta & 1;

	delta_move_counts(vol, from, blocks << vol->block_shift, inodes);
	atomic64_set(&state->first_change_ns[!from], atomic64_read(&state->first_change_ns[from]));
	count_add(vol, TUX3_COUNT_INODES_PUT_OFF, inodes);
}

/* Is it time for what was put off before? */
static bool delta_is_old(struct volume *vol, u64 delta)
{
	u64 first = atomic64_read(&vol->delta.first_change_ns[delta & 1]), now = ktime_get_ns();

	return first && now > first && now - first >= READ_ONCE(vol->opts.age_ms) * 1000000ULL;
}

/* Nobody is inside.  How many went. */
static u32 put_off_list(struct volume *vol, struct llist_head *list, u64 delta, u64 *blocks)
{
	struct llist_node **at, *node;
	unsigned int from = delta & 1;
	u32 inodes = 0;

	for (at = &list->first; (node = *at); ) {
		struct tux3_inode *inode = llist_entry(node, struct tux3_inode, dirty_node[from]);
		int went = put_off_inode(inode, delta);

		if (went < 0) {
			at = &node->next;
			continue;
		}
		WRITE_ONCE(*at, node->next);	/* is it empty?  The thread looks without a lock */
		llist_add(&inode->dirty_node[!from], &vol->delta.dirty[!from]);
		inodes++;
		*blocks += went;
	}
	return inodes;
}

bool put_off_stored(struct volume *vol, u64 delta)
{
	struct delta_state *state = &vol->delta;
	unsigned int from = delta & 1;
	u32 inodes = 0;
	u64 blocks = 0;
	int cpu;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!vol->host->data_put_off || atomic_read(&state->wholes) || delta_changes_sum(state, from) > PUT_OFF_CHANGES ||
	    delta_is_old(vol, delta))
		return false;
	inodes = put_off_list(vol, &state->dirty[from], delta, &blocks);
	for_each_possible_cpu(cpu)
		inodes += put_off_list(vol, &per_cpu_ptr(state->cpu, cpu)->dirty[from], delta, &blocks);
	if (inodes)
		put_off_counts(vol, delta, inodes, blocks);
	return inodes;
}
