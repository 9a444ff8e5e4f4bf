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
 * blocks promised to tree nodes: new ones, since the tree grows, and copies of nodes that are redirected.
 * A unify takes only what was promised.  What a commit frees becomes allocatable only after it.
 *
 * Data blocks, log bytes and growth are charged by each operation.  Growth is what its items add, at
 * worst in leaves half full.  (The price counts it three times, see below.)
 *
 * Redirects can be bounded in two ways.  Either each operation is charged, for each item it changes,
 * the whole path to it redirected and split (a *tight* delta): that is many blocks for one file.  Or the delta as a
 * whole is charged, before it takes its first operation, for redirecting and splitting every node of
 * the tree: 2 x nodes; a node is redirected at most once in a delta, and an existing one has to be split
 * because of what it holds already at most once; further splits are growth.  While there is room that is the better
 * bargain: an operation then costs little more than what it adds.  space_open_delta() chooses.
 *
 * The tree may grow while the delta before is committed.  Then its standing charge must grow by twice as
 * much when that commit is settled.  That is why growth has three times its price: one part was used,
 * and the two others, which come back at that moment, pay for it.  So the balance does not shrink by it.
 *
 * What the back end does of its own accord: each slice of a long delete is charged when it begins, and the first one of a
 * commit may go below zero by a part of the slack that nobody else may touch.  So after a unify there is always room for
 * one, whatever the front end has taken; if there is none it is time for that unify (delete.c).  Of each commit's log the
 * slack covers the header, the block for the next one, and the names of all groups whose free maps change.  The
 * record of a merge is paid by the node that it saves.  After each commit space_check_commit() compares what was taken
 * with what was paid, in debug builds kind by kind; the counter overdrafts is 0, or something here is wrong.
 *
 * Below zero go three kinds of operations, each only so far that the others still can:
 *
 *	keeps		what changes in place (chmod, rename, a truncate upwards): by a few operations.  A rename
 *			may make the tree grow a little, so what they took need not all come back
 *	frees		what frees in the end (unlink, truncate ...): by the reserve, so that a full volume can always be
 *			emptied.  Each, once committed and unified, leaves the volume with no less than before
 *	paid		writes to preallocated blocks: by what is set aside for them
 *
 * Preallocation is a promise.  Writing to an unwritten block takes no new data block, but it splits the extent, adds
 * a checksum, and so the tree grows.  Each write of a run of blocks adds two items at most, one to each side;
 * counting that for every block (UNWRITTEN_BYTES) is too much by half, and makes what is set aside fall by no less than
 * what the tree grows with each write, whatever the order.  The operation that preallocates is charged its share; from
 * its commit on the share is in `aside`, which is derived from the number of unwritten blocks in the tree.  The anchor
 * has that number and replay follows it, so the promise holds after a crash.  All else that such a write takes comes back
 * after its commit and the next unify: for that the reserve serves as working capital.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"

#define SLICE_ITEMS	8u	/* that a slice of a long delete can change */
#define ITEM_BYTES	640u	/* that an item can add to leaves, half full: 2 x (header 24, name 255, and what goes with it) */
#define RECORD_BYTES	320u	/* that it can add to the log */
#define QUOTA_ITEMS	6u	/* user, group, project; before and after a change of owner */
#define UNWRITTEN_BYTES	(2 * SPACE_EXTENT_BYTES + 8u)	/* by which writing to a preallocated block can make the tree grow */

/* What a block of the log, or of the tree, has room for. */
static u32 space_room(struct volume *vol)
{
	return vol->block_size - max(sizeof(struct disk_node), sizeof(struct disk_log));
}

/*
 * Blocks that changing one item can take: the path to it redirected, split at each level, a new root; all of that in
 * a tree that has become one level higher by the time of the commit.
 */
static u64 space_path_blocks(struct volume *vol)
{
	return 2 * (READ_ONCE(vol->tree.root_level) + 2) + 1;
}

/* ---- costs ---- */

static u64 space_prealloc_share(struct volume *vol, u64 blocks)
{
	return DIV_ROUND_UP(blocks * UNWRITTEN_BYTES, space_room(vol));
}

static u32 cost_field(u64 cost, u32 shift)
{
	return cost >> shift & SPACE_FIELD_MAX;
}

u32 space_cost_extents(u64 cost)
{
	return cost_field(cost, SPACE_EXTENTS_SHIFT);
}

static u32 cost_items(struct volume *vol, u64 cost)
{
	u32 items = cost_field(cost, SPACE_ITEMS_SHIFT);

	if (unlikely(vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA) && items)
		items += QUOTA_ITEMS;
	return items;
}

/* items: of this cost.  All but their paths. */
static __always_inline u64 space_always(struct volume *vol, u64 cost, u32 items)
{
	u32 bytes = items * (3 * ITEM_BYTES + RECORD_BYTES), room = space_room(vol);

	if (!(cost << (64 - SPACE_ITEMS_SHIFT)))	/* nothing else, as mostly */
		return DIV_ROUND_UP(bytes, room);
	bytes += cost_field(cost, SPACE_EXTENTS_SHIFT) * (3 * SPACE_EXTENT_BYTES + SPACE_EXTENT_RECORD) +
		 cost_field(cost, SPACE_PROMISED_SHIFT) * UNWRITTEN_BYTES;
	return cost_field(cost, SPACE_DATA_SHIFT) + DIV_ROUND_UP(bytes, room);
}

u64 space_price(struct volume *vol, u64 delta, u64 cost)
{
	u32 items = cost_items(vol, cost);
	u64 always = space_always(vol, cost, items);

	return likely(!READ_ONCE(vol->space.tight[delta & 1])) ? always : always + items * space_path_blocks(vol);
}

u64 space_full_price(struct volume *vol, u64 cost)
{
	u32 items = cost_items(vol, cost);

	return space_always(vol, cost, items) + items * space_path_blocks(vol);
}

/* For operations that keep what there is: the largest, a rename, at least once. */
static u64 space_keeps(struct volume *vol)
{
	return space_full_price(vol, space_cost_items(vol, 16));
}

/* And for those that free: a few of them at a time. */
static u64 space_reserve(struct volume *vol)
{
	return space_keeps(vol) + 2 * space_full_price(vol, space_cost_items(vol, 8));
}

/* A damaged volume may count less than nothing, or more than there is. */
static u64 space_aside(struct volume *vol)
{
	return space_prealloc_share(vol, clamp(vol->space.unwritten, (s64)0, (s64)vol->total_blocks));
}

/* What the log of any commit takes that no operation is charged for: its header, the next block, GROUP_TOUCHED. */
static u64 space_own_log(struct volume *vol)
{
	return 2 + DIV_ROUND_UP(sizeof(struct disk_commit) + balloc_touched_bytes(vol), space_room(vol));
}

/* A slice of a long delete: see delete_continue(). */
static u64 space_own_slice(struct volume *vol)
{
	return space_full_price(vol, space_cost_items(vol, SLICE_ITEMS));
}

/*
 * Three times the log's own: two commits that were charged before the first of them was settled, and the one that a
 * unify may need, which then gives all of it back.
 */
static u64 space_slack(struct volume *vol)
{
	return space_own_slice(vol) + 3 * space_own_log(vol);
}

/* ---- what was charged, and what was taken ---- */

void space_note_kinds(struct volume *vol, u64 delta, u64 cost, s64 times)
{
	struct space_charges *charges = &vol->space.charges[delta & 1];

	atomic64_add(times * cost_field(cost, SPACE_DATA_SHIFT), &charges->data);
	atomic64_add(times * cost_field(cost, SPACE_EXTENTS_SHIFT), &charges->extents);
	atomic64_add(times * cost_field(cost, SPACE_PROMISED_SHIFT), &charges->promised);
	atomic64_add(times * cost_items(vol, cost), &charges->items);
	if (READ_ONCE(vol->space.tight[delta & 1]))
		atomic64_add(times * (s64)(cost_items(vol, cost) * space_path_blocks(vol)), &charges->paths);
}

void space_note_log(struct volume *vol, u64 delta, u64 blocks)
{
	lockdep_assert_held(&vol->delta.commit_mutex);
	if (IS_ENABLED(CONFIG_PROVE_LOCKING))
		atomic64_add(blocks, &vol->space.charges[delta & 1].log);
}

static void space_taken(struct volume *vol, s64 *taken)
{
	taken[SPACE_DATA] = vol->balloc.taken[BALLOC_DATA];
	taken[SPACE_LOG] = vol->balloc.taken[BALLOC_LOG];
	taken[SPACE_NODES] = vol->balloc.taken[BALLOC_NODE];
	taken[SPACE_ASIDE] = space_aside(vol);
}

/* Who pays for what: the table in DESIGN 9. */
static void space_paid(struct volume *vol, u64 delta, s64 standing, s64 *paid)
{
	struct space_charges *charges = &vol->space.charges[delta & 1];
	u64 items = atomic64_xchg(&charges->items, 0), extents = atomic64_xchg(&charges->extents, 0);
	u32 room = space_room(vol);
	/* Each merge saves a node, which pays for its record. */
	s64 merges = DIV_ROUND_UP((u64)vol->log.merges * LOG_MERGE_BYTES, room);

	paid[SPACE_DATA] = atomic64_xchg(&charges->data, 0);
	paid[SPACE_LOG] = DIV_ROUND_UP(items * RECORD_BYTES + extents * SPACE_EXTENT_RECORD, room) +
			  atomic64_xchg(&charges->log, 0) + space_own_log(vol) + merges;
	paid[SPACE_NODES] = standing + atomic64_xchg(&charges->paths, 0) +
			    DIV_ROUND_UP(items * ITEM_BYTES + extents * SPACE_EXTENT_BYTES, room) - merges;
	paid[SPACE_ASIDE] = space_prealloc_share(vol, atomic64_xchg(&charges->promised, 0));
}

static bool space_check_kinds(struct volume *vol, u64 delta, s64 standing)
{
#define X(name, text) text,
	static const char *const texts[] = { SPACE_KINDS(X) };
#undef X
	s64 paid[SPACE_KIND_COUNT], taken[SPACE_KIND_COUNT];
	bool right = true;
	u32 kind;

	space_paid(vol, delta, standing, paid);
	space_taken(vol, taken);
	for (kind = 0; kind < SPACE_KIND_COUNT; kind++) {
		s64 blocks = taken[kind] - vol->space.taken[kind];

		if (blocks <= paid[kind])
			continue;
		volume_warn(vol, "the commit of delta %llu took %lld blocks %s, and was charged %lld: an operation costs more than is thought",
			    (unsigned long long)delta, blocks, texts[kind], paid[kind]);
		right = false;
	}
	return right;
}

void space_check_commit(struct volume *vol, u64 delta, s64 charged)
{
	const s64 *before = vol->space.taken, *taken = vol->balloc.taken;
	s64 blocks = taken[BALLOC_DATA] + taken[BALLOC_LOG] + taken[BALLOC_NODE] -
		     before[SPACE_DATA] - before[SPACE_LOG] - before[SPACE_NODES];
	bool right = blocks <= charged + (s64)space_own_log(vol);

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (IS_ENABLED(CONFIG_PROVE_LOCKING) && !space_check_kinds(vol, delta, vol->space.closed))
		right = false;
	if (!right)
		count_add(vol, TUX3_COUNT_OVERDRAFTS, 1);
}

static s64 space_available(struct volume *vol)
{
	struct space *space = &vol->space;

	WRITE_ONCE(space->keeps, space_keeps(vol));
	WRITE_ONCE(space->reserve, space_reserve(vol));
	WRITE_ONCE(space->aside, space_aside(vol));
	return atomic64_read(&vol->balloc.free_blocks) - (s64)space->reserve - (s64)space->aside -
	       (s64)space_slack(vol);
}

void space_init(struct volume *vol)
{
	vol->space.available = space_available(vol);
	atomic64_set(&vol->space.balance, vol->space.available);
	atomic64_set(&vol->space.freed, 1);
	atomic64_set(&vol->space.full_at, 0);
	space_open_delta(vol, vol->delta.committed + 1);
}

/* Nodes of the tree; of a damaged volume the counts may be anything. */
static s64 space_nodes(struct volume *vol)
{
	return atomic64_read(&vol->balloc.disk_used) + atomic64_read(&vol->balloc.promised) -
	       atomic64_read(&vol->balloc.data_used) - (s64)vol->balloc.fixed_blocks;
}

/* For redirecting and splitting every node there is. */
static s64 space_standing(struct volume *vol)
{
	return 2 * clamp(space_nodes(vol), (s64)1, (s64)vol->total_blocks) + 2 * TUX3_MAX_LEVEL;
}

void space_open_delta(struct volume *vol, u64 delta)
{
	struct space *space = &vol->space;
	s64 standing = space_standing(vol), left = atomic64_read(&space->balance) - standing;
	/* Where the number of nodes cannot be true, each operation pays for those that it changes. */
	bool tight = space->want_tight || space_nodes(vol) < 1 || left < max_t(s64, standing, vol->total_blocks / 32);

	space->want_tight = false;
	space->standing[delta & 1] = tight ? 0 : standing;
	atomic64_sub(space->standing[delta & 1], &space->balance);
	WRITE_ONCE(space->tight[delta & 1], tight);
}

s64 space_close_delta(struct volume *vol, u64 delta)
{
	s64 standing = vol->space.standing[delta & 1];

	lockdep_assert_held(&vol->delta.commit_mutex);
	space_taken(vol, vol->space.taken);
	vol->space.closed = standing;
	vol->space.standing[delta & 1] = 0;
	return standing;
}

/* The tree has grown: so must what the front delta was charged for redirecting it. */
static void space_raise_standing(struct volume *vol)
{
	struct space *space = &vol->space;
	unsigned int front = vol->delta.front & 1;
	s64 more = space_standing(vol) - space->standing[front];

	if (space->tight[front] || more <= 0)
		return;
	space->standing[front] += more;
	atomic64_sub(more, &space->balance);
}

static s64 space_floor(struct volume *vol, unsigned int flags)
{
	struct space *space = &vol->space;

	if (likely(!flags))
		return 0;
	if (flags & DELTA_PAID)
		return -(s64)(READ_ONCE(space->reserve) + READ_ONCE(space->aside));
	if (flags & DELTA_FREES)
		return -(s64)READ_ONCE(space->reserve);
	return flags & DELTA_KEEPS ? -(s64)READ_ONCE(space->keeps) : 0;
}

bool space_charge(struct volume *vol, u64 blocks, unsigned int flags)
{
	s64 floor = space_floor(vol, flags);

	if (atomic64_sub_return(blocks, &vol->space.balance) >= floor)
		return true;
	atomic64_add(blocks, &vol->space.balance);
	return false;
}

void space_uncharge(struct volume *vol, u64 blocks)
{
	atomic64_add(blocks, &vol->space.balance);
}

/* A slice pays for its paths in any delta. */
static void space_note_slice(struct volume *vol)
{
	u64 cost = space_cost_items(vol, SLICE_ITEMS), delta = vol->delta.applying;

	space_note(vol, delta, cost, 1);
	if (IS_ENABLED(CONFIG_PROVE_LOCKING) && !vol->space.tight[delta & 1])
		atomic64_add(cost_items(vol, cost) * space_path_blocks(vol), &vol->space.charges[delta & 1].paths);
}

bool space_charge_slice(struct volume *vol, bool first, s64 *charged)
{
	s64 price = space_own_slice(vol), left = atomic64_sub_return(price, &vol->space.balance);
	/* The counts of a damaged volume may be anything.  With nothing for a unify to give back it goes ahead. */
	bool unified = !vol->tree.dirty_count && !vol->log.length;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (left >= 0 || (first && (left >= -(s64)vol->space.reserve - price || unified))) {
		*charged += price;
		space_note_slice(vol);
		return true;
	}
	atomic64_add(price, &vol->space.balance);
	return false;
}

void space_settle(struct volume *vol, s64 charged)
{
	s64 available = space_available(vol), move = available - vol->space.available + charged;

	lockdep_assert_held(&vol->delta.commit_mutex);
	vol->space.available = available;
	atomic64_add(move, &vol->space.balance);
	if (move > 0)
		atomic64_inc(&vol->space.freed);
	space_raise_standing(vol);
}

/* Was as much refused before, and nothing was freed since? */
static bool space_known_full(struct volume *vol, u64 blocks)
{
	struct space *space = &vol->space;

	return atomic64_read(&space->full_at) == atomic64_read(&space->freed) &&
	       blocks >= (u64)atomic64_read(&space->full_cost);
}

static int space_refuse(struct volume *vol, u64 blocks)
{
	count_add(vol, TUX3_COUNT_ENOSPC, 1);
	trace_tux3_enospc(vol, blocks, atomic64_read(&vol->space.balance));
	return -ENOSPC;
}

int space_wait(struct volume *vol, u64 blocks, unsigned int flags, unsigned int attempt)
{
	struct space *space = &vol->space;
	s64 freed = atomic64_read(&space->freed);
	int err;

	count_add(vol, TUX3_COUNT_ENTER_WAITS, 1);
	if (!flags && space_known_full(vol, blocks))
		return space_refuse(vol, blocks);
	err = delta_commit_space(vol, flags, attempt);
	if (err)
		return err;
	/* The second unify frees what the first one's commit and deletes left behind. */
	if (attempt < 3 || atomic64_read(&space->freed) != freed)
		return attempt < 10 ? 0 : space_refuse(vol, blocks);
	if (!flags) {
		atomic64_set(&space->full_cost, blocks);
		atomic64_set(&space->full_at, freed);
	}
	return space_refuse(vol, blocks);
}

/* For a tree as high as it is: more than what making a file, or writing one block of it, may take. */
static u64 space_ordinary(struct volume *vol)
{
	return max(space_full_price(vol, space_cost_items(vol, 6)), space_full_price(vol, space_cost_data(vol, 1, 1)));
}

/*
 * available: what the next ordinary write can get, when everything is committed and unified: so nothing where it would be
 * refused.  Two blocks are chosen for the log already.
 */
void space_stat(struct volume *vol, u64 *total, u64 *free, u64 *available)
{
	struct delta_state *delta = &vol->delta;
	s64 pending = (atomic64_read(&delta->dirty_bytes[0]) + atomic64_read(&delta->dirty_bytes[1])) >>
		      vol->block_shift;
	s64 left = (s64)vol->total_blocks - atomic64_read(&vol->balloc.disk_used) -
		   atomic64_read(&vol->balloc.promised) - (s64)READ_ONCE(vol->log.length) - pending -
		   atomic64_read(&delta->extra[0]) - atomic64_read(&delta->extra[1]) +
		   atomic64_read(&vol->space.deleting);
	s64 keep = READ_ONCE(vol->space.reserve) + READ_ONCE(vol->space.aside) + space_slack(vol) +
		   space_ordinary(vol) + 2;

	*total = vol->total_blocks;
	left = min_t(s64, left, vol->total_blocks);
	*free = max_t(s64, left, 0);
	*available = max_t(s64, left - keep, 0);
}
