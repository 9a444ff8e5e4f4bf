// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Space: nothing is accepted that cannot be committed.
 *
 * Each operation charges its worst-case cost in blocks against space.balance with one atomic
 * subtraction (delta_enter).  If that would leave the balance negative the cost is taken back, and
 * the caller gets space back by a commit, then by a unify; if its cost still does not fit, the
 * answer is ENOSPC, which is remembered until something grows the balance.
 *
 * What the balance means.  After each commit the back end knows
 *
 *	available = blocks that can be allocated now - reserve - slack
 *
 * and every operation of the front delta has been charged against it.  So, with charged(d) the charges
 * of delta d,
 *
 *	balance = available as of the last settlement - charged(back, if it is committing) - charged(front)
 *
 * and when delta B has been committed at a real cost that made available what it is now, the balance
 * must move by (available now - available then) + charged(B): one atomic addition, without a lock and
 * without knowing what the front end did meanwhile (space_settle).
 *
 * Why a commit cannot run out.  It takes from the allocatable blocks: data blocks, log blocks, and
 * blocks for tree nodes that are redirected or split.  Each of these was charged: data block by
 * block, items at the worst case (every node on the path redirected, every one split), log records at
 * a block for each operation.  What the commit frees becomes allocatable only after it.
 * A unify allocates nothing.  What the back end does of its own accord (slices of long deletes,
 * the next log block) is covered by the slack.
 *
 * Operations that free space in the end (unlink, truncate ...) may go below zero by the reserve, so
 * that a full volume can always be emptied: each such operation, once committed and unified, leaves
 * the volume with no less than before.
 */
#include "volume.h"

/* Blocks that changing one item can take: the path to it redirected, split at each level, a new root. */
static u64 space_item_blocks(struct volume *vol)
{
	return 2 * (READ_ONCE(vol->tree.root_level) + 1) + 1;
}

u64 space_cost_items(struct volume *vol, u32 items)
{
	if (vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA)
		items += 6;		/* user, group, project; before and after a change of owner */
	return items * space_item_blocks(vol) + 1;
}

u64 space_cost_data(struct volume *vol, u64 blocks, u64 new_blocks)
{
	/*
	 * At worst each block becomes an extent of its own: an item of 52 bytes in a leaf half full, and a
	 * record of 52 bytes.  These items are neighbours, so only the ends of their run cost a path.
	 */
	u64 items = DIV_ROUND_UP(blocks * 192, vol->block_size);

	return new_blocks + items + space_cost_items(vol, 4);
}

/* For operations that free: a few of them at a time. */
static u64 space_reserve(struct volume *vol)
{
	return 2 * space_cost_items(vol, 8);
}

static u64 space_slack(struct volume *vol)
{
	return space_cost_items(vol, 8) + 8;
}

static s64 space_available(struct volume *vol)
{
	vol->space.reserve = space_reserve(vol);
	return atomic64_read(&vol->balloc.free_blocks) - (s64)vol->space.reserve - (s64)space_slack(vol);
}

void space_init(struct volume *vol)
{
	vol->space.available = space_available(vol);
	atomic64_set(&vol->space.balance, vol->space.available);
	atomic64_set(&vol->space.freed, 1);
	atomic64_set(&vol->space.full_at, 0);
}

bool space_charge(struct volume *vol, u64 cost, unsigned int flags)
{
	s64 floor = flags & DELTA_FREES ? -(s64)READ_ONCE(vol->space.reserve) : 0;

	if (atomic64_sub_return(cost, &vol->space.balance) >= floor)
		return true;
	atomic64_add(cost, &vol->space.balance);
	return false;
}

void space_uncharge(struct volume *vol, u64 cost)
{
	atomic64_add(cost, &vol->space.balance);
}

void space_settle(struct volume *vol, s64 charged)
{
	s64 available = space_available(vol), move = available - vol->space.available + charged;

	vol->space.available = available;
	atomic64_add(move, &vol->space.balance);
	if (move > 0)
		atomic64_inc(&vol->space.freed);
}

/* Was as much refused before, and nothing was freed since? */
static bool space_known_full(struct volume *vol, u64 cost)
{
	struct space *space = &vol->space;

	return atomic64_read(&space->full_at) == atomic64_read(&space->freed) &&
	       cost >= (u64)atomic64_read(&space->full_cost);
}

int space_wait(struct volume *vol, u64 cost, unsigned int flags, unsigned int attempt)
{
	struct space *space = &vol->space;
	s64 freed = atomic64_read(&space->freed);
	int err;

	count_add(vol, TUX3_COUNT_ENTER_WAITS, 1);
	if (!(flags & DELTA_FREES) && space_known_full(vol, cost)) {
		count_add(vol, TUX3_COUNT_ENOSPC, 1);
		return -ENOSPC;
	}
	err = attempt ? delta_commit_unify(vol) : delta_commit(vol);
	if (err)
		return err;
	/* The second unify frees what the first one's commit and deletes left behind. */
	if (attempt < 3 || atomic64_read(&space->freed) != freed)
		return attempt < 100 ? 0 : -ENOSPC;
	if (!(flags & DELTA_FREES)) {
		atomic64_set(&space->full_cost, cost);
		atomic64_set(&space->full_at, freed);
	}
	count_add(vol, TUX3_COUNT_ENOSPC, 1);
	return -ENOSPC;
}

void space_stat(struct volume *vol, u64 *total, u64 *free, u64 *available)
{
	struct delta_state *delta = &vol->delta;
	s64 pending = (atomic64_read(&delta->dirty_bytes[0]) + atomic64_read(&delta->dirty_bytes[1])) >>
		      vol->block_shift;
	s64 left = (s64)vol->total_blocks - atomic64_read(&vol->balloc.disk_used) - (s64)READ_ONCE(vol->log.length) -
		   pending;
	s64 keep = READ_ONCE(vol->space.reserve) + space_slack(vol);

	*total = vol->total_blocks;
	*free = max_t(s64, left, 0);
	*available = max_t(s64, left - keep, 0);
}
