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
 * the path to it redirected and split (a *tight* delta): that is many blocks for one file.  Or the delta as a
 * whole is charged, before it takes its first operation, for redirecting and splitting every node of
 * the tree: 2 x nodes; a node is redirected at most once in a delta, and an existing one has to be split
 * because of what it holds already at most once; further splits are growth.  While there is room that is the better
 * bargain: an operation then costs little more than what it adds.  space_open_delta() chooses.
 *
 * In a tight delta the top of the tree is shared by all items, so the delta as a whole is charged for it: for the
 * root, and for the level below if that has few nodes (space_levels).  An item pays for the levels under these: one
 * redirect and one split for each, for each item set adds at most one node to a level.  Each of these splits brings
 * the top a branch.  A node that is split in the middle has room for 63 more, one that is split behind its last
 * branch leaves 1/16 of itself free: so a node that was full is split twice before it has room for so many, and 2/63
 * of a block for each item, BRANCH_BYTES, pays for what comes then.
 *
 * If the root is split while the front delta is open, then its level becomes one of the top that has two nodes: what
 * the standing charge has for splitting it pays for redirecting these, for neither needs to be split again.
 *
 * The tree may grow while the delta before is committed.  Then its standing charge must grow by twice as much when
 * that commit is settled.  That is why growth has three times its price: one part was used, and the two others, which
 * come back at that moment, pay for it.  So the balance does not shrink by growth. It may shrink by splits that are
 * no growth, of leaves that were full: the charge becomes larger by these, too.  It would not have to, for what was
 * accepted: there is one node more to be redirected, and one less that may have to be split for what it holds, since
 * both halves have room.  So nothing that was accepted lacks a block; less is accepted until the next delta is open.
 *
 * What the back end does of its own accord: each slice of a long delete is charged when it begins, and the first one of a
 * commit may go below zero by a part of the slack that nobody else may touch.  So after a unify there is always room for
 * one, whatever the front end has taken; if there is none it is time for that unify (delete.c).  Of each commit's log the
 * slack covers the header, the block for the next one, and the names of all groups whose free maps change.  The
 * record of a merge is paid by the node that it saves.  After each commit space_check_commit() compares what was taken
 * with what was paid, with volume_options.costs kind by kind; the counter overdrafts is 0, or something here is wrong.
 *
 * Below zero go three kinds of operations, each only so far that the others still can:
 *
 *	keeps		what changes in place (chmod, rename, a truncate upwards): by the largest rename, and a third
 *			more, since a rename may make the tree grow a little, so what they took need not all come back
 *	frees		what frees in the end (unlink, truncate ...): by the reserve, so that a full volume can always be
 *			emptied: that has room for the largest of these, too.  Each, once committed and unified, leaves the
 *			volume with no less than before
 *	paid		writes to preallocated blocks: by what is set aside for them
 *
 * Where a tight delta pays for leaves, since there are few, a leaf that was full and is split makes the balance shrink by three
 * blocks, and who splits it may have been charged one.  So on a full volume the standing charge may come to be more than there
 * is, by more than that, and for good.  Then who keeps or frees may be *alone* in a delta, when a unify has given back all that
 * there is: it is charged if nobody else is.  The standing charge is for all nodes of the top redirected and split; what is missing
 * of it is three times the leaves that were split just now, which are no more than half of all.  One operation redirects few, so
 * what is there is enough for one that frees (with two of the three commits' logs of the slack, since there is no other commit).  A
 * rename may go on to split leaves: who keeps must leave what is needed after it.
 *
 * All of these are computed from the tree as it is after each commit (space_full_price).  Where its shape is about to
 * change so that prices rise they are those of then (AHEAD_BRANCHES): or a volume that is full at that moment would
 * not have what it takes to empty it.
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
#include "core/blocks/held.h"
#include "core/blocks/block_reads.h"
#include "core/delta/delta.h"
#include "core/delta/paid.h"
#include "core/delta/space.h"
#include "core/tree/tree.h"

#define SLICE_ITEMS	SPACE_ITEMS_SLICE
#define ITEM_BYTES	288u	/* that an item can add to leaves, half full: 2 x (24, attributes 112), 16 for branches */
#define RECORD_BYTES	128u	/* that it can add to the log: header 8, inode 8, attributes 112; or less, and padding to 8 */
#define TEXT_BYTES	48u	/* that 16 bytes of text can add to leaves: large items leave them a third full */
#define TEXT_RECORD	SPACE_TEXT_BYTES	/* and to the log */
#define BRANCH_BYTES	128u	/* that it can add to nodes above those for which it pays: a branch, and see below */
static_assert(SPACE_ITEM_EXTENTS * SPACE_EXTENT_BYTES >= ITEM_BYTES && SPACE_ITEM_EXTENTS * SPACE_EXTENT_RECORD >= RECORD_BYTES, "");
#define CREDIT_SHARE	64u	/* the CPUs take such a part of the balance for operations to come, all together */
#define CREDIT_MIN	32	/* blocks; one CPU.  Less is not worth it */
#define CREDIT_MAX	1024
#define LOST_AT_ONCE	1024u	/* blocks, for which a cost has room */
#define STAT_TRIES	100u	/* for statfs, of which any is nearly right */
#define QUOTA_ITEMS	6u	/* user, group, project; before and after a change of owner */
#define OVERTAKEN_MAX	50u	/* so often others may be quicker than who waits for space */
#define ALONE_NODES	(SPACE_ITEMS_REPLACE + QUOTA_ITEMS + 1)	/* that the largest one that frees redirects, with the root */
#define ALONE_SPLITS	5u	/* and so many that one which keeps, and it, may split */
#define UNWRITTEN_BYTES	(2 * SPACE_EXTENT_BYTES + 8u)	/* by which writing to a preallocated block can make the tree grow */

/* What a block of the log, or of the tree, has room for. */
static u32 space_room(struct volume *vol)
{
	return vol->block_size - max(sizeof(struct disk_node), sizeof(struct disk_log));
}

/*
 * Where the root has few branches the delta pays for the level below it, too: that is less than if each item did.  ahead: so few
 * that with so many more there would be still.
 */
#define FEW_BRANCHES	32u
#define AHEAD_BRANCHES	8u

static u32 space_levels(struct volume *vol, u32 ahead)
{
	u32 top = min_t(u32, READ_ONCE(vol->tree.root_level), TUX3_MAX_LEVEL);
	u32 branches = READ_ONCE(vol->space.root_branches);

	if (!top)
		return 0;
	return branches && branches + ahead <= FEW_BRANCHES ? top - 1 : top;
}

/* Less than is right: see SPACE_FORMULAS. */
static s64 space_less(struct volume *vol, enum space_formula formula, s64 blocks)
{
	return likely(vol->opts.cheap != formula) ? blocks : max(blocks - (s64)vol->opts.cheap_by, (s64)0);
}

/* Nodes at this level and above; where that is not known, no fewer than there are.  Of a damaged volume it may be anything. */
static s64 space_nodes_from(struct volume *vol, u32 level)
{
	u32 top = min_t(u32, READ_ONCE(vol->tree.root_level), TUX3_MAX_LEVEL);
	s64 here = max(READ_ONCE(vol->space.root_branches), 1u), nodes = 1;

	while (top-- > level && nodes < (s64)vol->total_blocks) {
		nodes += here;
		here *= space_room(vol) / sizeof(struct disk_branch);
	}
	return min_t(s64, nodes, vol->total_blocks);
}

/* A node of each level redirected, and split. */
static u64 space_path_blocks(struct volume *vol, u32 levels)
{
	return space_less(vol, SPACE_CHEAP_PATH, 2 * levels);
}

u32 space_less_paid(struct volume *vol, u32 times)
{
	return space_less(vol, SPACE_CHEAP_PAID, times);
}

/* ---- costs ---- */

static u64 space_prealloc_share(struct volume *vol, u64 blocks)
{
	return DIV_ROUND_UP(blocks * UNWRITTEN_BYTES, space_room(vol));
}

static u32 cost_field(u64 cost, u32 shift)
{
	if (shift == SPACE_ITEMS_SHIFT)
		return (cost & ~SPACE_COST_UNCOUNTED) >> shift;
	return cost >> shift & (shift < SPACE_TEXT_SHIFT ? U16_MAX : U8_MAX);
}

u32 space_cost_extents(u64 cost)
{
	return cost_field(cost, SPACE_EXTENTS_SHIFT);
}

static u32 cost_field_max(u32 shift)
{
	return cost_field(~0ull, shift);
}

bool space_cost_add(u64 *cost, u64 more)
{
	static const u32 shifts[] = { SPACE_DATA_SHIFT, SPACE_EXTENTS_SHIFT, SPACE_PROMISED_SHIFT, SPACE_ITEMS_SHIFT };
	u32 text = cost_field(more, SPACE_TEXT_SHIFT), i;

	if (cost_field(*cost, SPACE_TEXT_SHIFT) + text > cost_field_max(SPACE_TEXT_SHIFT))
		more += space_cost_bytes(text * SPACE_TEXT_BYTES) - ((u64)text << SPACE_TEXT_SHIFT);
	for (i = 0; i < ARRAY_SIZE(shifts); i++)
		if (cost_field(*cost, shifts[i]) + cost_field(more, shifts[i]) > cost_field_max(shifts[i]))
			return false;
	*cost += more;
	return true;
}

u32 space_value_blocks(struct volume *vol, u32 size)
{
	return size > TUX3_XATTR_INLINE_MAX ? DIV_ROUND_UP(size, vol->block_size) : 0;
}

/* In the item is the value, or what says where it is. */
u64 space_cost_xattr(struct volume *vol, u32 len, u32 size)
{
	u32 blocks = space_value_blocks(vol, size);

	return blocks + space_cost_items(vol, SPACE_ITEMS_XATTR) +
	       space_cost_text(len + (blocks ? blocks * sizeof(struct disk_xattr_piece) : size));
}

static u32 cost_items(struct volume *vol, u64 cost)
{
	u32 items = cost_field(cost, SPACE_ITEMS_SHIFT);

	if (unlikely(vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA) && items && !(cost & SPACE_COST_UNCOUNTED))
		items += QUOTA_ITEMS;
	return items;
}

/* items: of this cost, item_bytes: what each adds to tree and log.  All but their paths. */
static __always_inline u64 space_always(struct volume *vol, u64 cost, u32 items, u32 item_bytes)
{
	u32 bytes = items * item_bytes, room = space_room(vol);

	if (!(cost << (64 - SPACE_ITEMS_SHIFT)))	/* nothing else, as mostly */
		return DIV_ROUND_UP(bytes, room);
	bytes += cost_field(cost, SPACE_EXTENTS_SHIFT) * (3 * SPACE_EXTENT_BYTES + SPACE_EXTENT_RECORD) +
		 cost_field(cost, SPACE_TEXT_SHIFT) * (3 * TEXT_BYTES + TEXT_RECORD) +
		 cost_field(cost, SPACE_PROMISED_SHIFT) * UNWRITTEN_BYTES;
	return cost_field(cost, SPACE_DATA_SHIFT) + DIV_ROUND_UP(bytes, room);
}

/* In a tight delta in which each item pays for so many levels. */
static u64 space_tight_price(struct volume *vol, u64 cost, u32 levels)
{
	u32 items = cost_items(vol, cost);

	return space_always(vol, cost, items, 3 * ITEM_BYTES + RECORD_BYTES + BRANCH_BYTES) +
	       items * space_path_blocks(vol, levels);
}

static u64 space_whole_price(struct volume *vol, u64 cost)
{
	return space_always(vol, cost, cost_items(vol, cost), 3 * ITEM_BYTES + RECORD_BYTES);
}

static u64 cost_less(struct volume *vol, enum space_formula formula, u32 shift, u64 cost)
{
	u32 less = vol->opts.cheap == formula ? min(vol->opts.cheap_by, cost_field(cost, shift)) : 0;

	return cost - ((u64)less << shift);
}

static u64 space_cheap_cost(struct volume *vol, u64 cost)
{
	if (likely(!vol->opts.cheap))
		return cost;
	cost = cost_less(vol, SPACE_CHEAP_DATA, SPACE_DATA_SHIFT, cost);
	cost = cost_less(vol, SPACE_CHEAP_EXTENTS, SPACE_EXTENTS_SHIFT, cost);
	cost = cost_less(vol, SPACE_CHEAP_PROMISED, SPACE_PROMISED_SHIFT, cost);
	return cost_less(vol, SPACE_CHEAP_ITEMS, SPACE_ITEMS_SHIFT, cost);
}

u64 space_price(struct volume *vol, u64 delta, u64 cost)
{
	cost = space_cheap_cost(vol, cost);
	if (unlikely(READ_ONCE(vol->space.tight[delta & 1])))
		return space_less(vol, SPACE_CHEAP_TIGHT_PRICE,
				  space_tight_price(vol, cost, READ_ONCE(vol->space.levels[delta & 1])));
	return space_less(vol, SPACE_CHEAP_PRICE, space_whole_price(vol, cost));
}

u64 space_full_price(struct volume *vol, u64 cost)
{
	return space_tight_price(vol, cost, READ_ONCE(vol->space.full_levels));
}

/* For who keeps what there is: a rename, and what some may make the tree grow by; or a new mode with the largest ACL. */
static u64 space_keeps(struct volume *vol, u32 levels)
{
	u64 cost = space_cost_replace(vol, TUX3_NAME_MAX, TUX3_NAME_MAX) + space_cost_items(vol, SPACE_ITEMS_REPLACE / 3) +
		   space_cost_name(TUX3_NAME_MAX);
	u64 rename = space_tight_price(vol, cost, levels);
	u64 mode = space_tight_price(vol, space_cost_xattr(vol, TUX3_NAME_MAX, TUX3_XATTR_SIZE_MAX), levels);

	return space_less(vol, SPACE_CHEAP_KEEPS, max(rename, mode));
}

/* For those that free: a rename over a file. */
static u64 space_frees(struct volume *vol, u32 levels)
{
	return space_less(vol, SPACE_CHEAP_FREES,
			  space_tight_price(vol, space_cost_replace(vol, TUX3_NAME_MAX, TUX3_NAME_MAX), levels));
}

static u64 space_reserve(struct volume *vol, u32 levels)
{
	return space_keeps(vol, levels) + space_frees(vol, levels);
}

/* A damaged volume may count less than nothing, or more than there is. */
static u64 space_aside(struct volume *vol)
{
	return space_prealloc_share(vol, clamp(vol->space.unwritten, (s64)0, (s64)vol->total_blocks));
}

/* What the log of any commit takes that no operation is charged for: its header, the next block, GROUP_TOUCHED. */
static u64 space_own_log(struct volume *vol)
{
	return space_less(vol, SPACE_CHEAP_OWN_LOG,
			  2 + DIV_ROUND_UP(sizeof(struct disk_commit) + balloc_touched_bytes(vol), space_room(vol)));
}

/* A slice of a long delete: see delete_continue(). */
static u64 space_own_slice(struct volume *vol, u32 levels)
{
	return space_less(vol, SPACE_CHEAP_SLICE, space_tight_price(vol, space_cost_items(vol, SLICE_ITEMS), levels));
}

/* Of the tree as it is, and as it was when the delta was opened. */
static u32 space_slice_levels(struct volume *vol, u64 delta)
{
	return max(vol->space.levels[delta & 1], space_levels(vol, 0));
}

/*
 * Three times the log's own: two commits that were charged before the first of them was settled, and the one that a
 * unify may need, which then gives all of it back.
 */
static u64 space_slack(struct volume *vol, u32 levels)
{
	return space_own_slice(vol, levels) + 3 * space_own_log(vol);
}

/* ---- what was charged, and what was taken ---- */

void space_note(struct volume *vol, u64 delta, u64 cost, s64 times)
{
	struct space_charges *charges = &vol->space.charges[delta & 1];
	u32 levels = READ_ONCE(vol->space.levels[delta & 1]);

	cost = space_cheap_cost(vol, cost);
	atomic64_add(times * cost_field(cost, SPACE_DATA_SHIFT), &charges->data);
	atomic64_add(times * cost_field(cost, SPACE_EXTENTS_SHIFT), &charges->extents);
	atomic64_add(times * cost_field(cost, SPACE_PROMISED_SHIFT), &charges->promised);
	atomic64_add(times * cost_field(cost, SPACE_TEXT_SHIFT), &charges->text);
	atomic64_add(times * cost_items(vol, cost), &charges->items);
	if (READ_ONCE(vol->space.tight[delta & 1]))
		atomic64_add(times * (s64)(cost_items(vol, cost) * space_path_blocks(vol, levels)), &charges->paths);
}

void space_note_log(struct volume *vol, u64 delta, u64 blocks)
{
	lockdep_assert_held(&vol->delta.commit_mutex);
	if (vol->opts.costs)
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
	u64 text = atomic64_xchg(&charges->text, 0);
	u32 room = space_room(vol), item_bytes = ITEM_BYTES + (vol->space.tight[delta & 1] ? BRANCH_BYTES : 0);
	/* Each merge saves a node, which pays for its record. */
	s64 merges = DIV_ROUND_UP((u64)vol->log.merges * LOG_MERGE_BYTES, room);

	/* What is inline was charged as a block: an eighth of one at most, it is in the log, and twice in leaves half full. */
	paid[SPACE_DATA] = atomic64_xchg(&charges->data, 0) - vol->log.inlined;
	paid[SPACE_LOG] = DIV_ROUND_UP(vol->log.inlined_bytes, room) +
			  DIV_ROUND_UP(items * RECORD_BYTES + extents * SPACE_EXTENT_RECORD + text * TEXT_RECORD, room) +
			  atomic64_xchg(&charges->log, 0) + space_own_log(vol) + merges;
	paid[SPACE_NODES] = standing + atomic64_xchg(&charges->paths, 0) + DIV_ROUND_UP(2 * vol->log.inlined_bytes, room) +
			    DIV_ROUND_UP(items * item_bytes + extents * SPACE_EXTENT_BYTES + text * TEXT_BYTES, room) - merges;
	paid[SPACE_ASIDE] = space_prealloc_share(vol, atomic64_xchg(&charges->promised, 0));
}

/* What prices must have come to, by what was charged kind by kind: growth three times (see above). */
static s64 space_due(struct volume *vol, u64 delta, s64 standing)
{
	struct space_charges *charges = &vol->space.charges[delta & 1];
	u32 item_bytes = 3 * ITEM_BYTES + RECORD_BYTES + (vol->space.tight[delta & 1] ? BRANCH_BYTES : 0);
	u64 bytes = atomic64_read(&charges->items) * item_bytes + atomic64_read(&charges->promised) * UNWRITTEN_BYTES +
		    atomic64_read(&charges->extents) * (3 * SPACE_EXTENT_BYTES + SPACE_EXTENT_RECORD) +
		    atomic64_read(&charges->text) * (3 * TEXT_BYTES + TEXT_RECORD);

	return standing + atomic64_read(&charges->data) + atomic64_read(&charges->paths) + atomic64_read(&charges->log) +
	       DIV_ROUND_UP(bytes, space_room(vol));
}

static bool space_check_kinds(struct volume *vol, u64 delta, s64 standing, s64 charged)
{
#define X(name, text) text,
	static const char *const texts[] = { SPACE_KINDS(X) };
#undef X
	s64 paid[SPACE_KIND_COUNT], taken[SPACE_KIND_COUNT], due = space_due(vol, delta, standing);
	bool right = charged >= due;
	u32 kind;

	if (!right)
		volume_warn(vol, "delta %llu was charged %lld blocks, and what its operations may take comes to %lld: a price is too low",
			    (unsigned long long)delta, charged, due);
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
	if (unlikely(vol->opts.costs) && !space_check_kinds(vol, delta, vol->space.closed, charged))
		right = false;
	if (!right)
		count_add(vol, TUX3_COUNT_OVERDRAFTS, 1);
}

/* It has not changed since it was last seen if it is not in memory. */
static void space_look_at_root(struct volume *vol, bool read)
{
	u32 branches = tree_root_branches(vol, read);

	if (branches)
		WRITE_ONCE(vol->space.root_branches, branches);
	WRITE_ONCE(vol->space.full_levels, space_levels(vol, AHEAD_BRANCHES));
}

/*
 * How far below zero who keeps and who frees may go.  Where more is kept than for the tree as it is, since its shape is about to
 * change, that is not to be found yet on a volume that was full before: then only who adds has to wait for it.
 */
static void space_set_floors(struct volume *vol, u64 front)
{
	struct space *space = &vol->space;
	u32 full = space->full_levels;
	u32 now = min(full, max(space->levels[front & 1], space_levels(vol, 0)));
	u64 ahead = space_reserve(vol, full) + space_slack(vol, full) - space_reserve(vol, now) - space_slack(vol, now);

	WRITE_ONCE(space->ahead, ahead);
	WRITE_ONCE(space->keeps, space_keeps(vol, now) + ahead);
	WRITE_ONCE(space->frees, space_reserve(vol, now) + ahead);
}

static void space_set_alone(struct volume *vol, u64 front)
{
	struct space *space = &vol->space;

	WRITE_ONCE(space->unified, !vol->tree.dirty_count && !vol->log.length);
	WRITE_ONCE(space->alone, space->available - space->standing[front & 1]);
}

static s64 space_available(struct volume *vol)
{
	struct space *space = &vol->space;

	space_look_at_root(vol, false);
	WRITE_ONCE(space->reserve, space_reserve(vol, space->full_levels));
	WRITE_ONCE(space->aside, space_aside(vol));
	space_set_floors(vol, vol->delta.front);
	return atomic64_read(&vol->balloc.free_blocks) - (s64)space->reserve - (s64)space->aside -
	       (s64)space_slack(vol, space->full_levels);
}

void space_init(struct volume *vol)
{
	paid_init(vol);
	space_look_at_root(vol, true);
	WRITE_ONCE(vol->space.available, space_available(vol));
	atomic64_set(&vol->space.balance, vol->space.available);
	atomic64_set(&vol->space.freed, 1);
	spin_lock_init(&vol->space.full_lock);
	vol->space.full_at = 0;
	space_open_delta(vol, vol->delta.committed + 1);
}

/* Nodes of the tree; of a damaged volume the counts may be anything. */
static s64 space_nodes(struct volume *vol)
{
	return atomic64_read(&vol->balloc.disk_used) + atomic64_read(&vol->balloc.promised) -
	       atomic64_read(&vol->balloc.data_used) - (s64)vol->balloc.fixed_blocks;
}

/* Of the tree, and of the two roots that it may get: for more, it has to grow by so many nodes that these pay for them. */
static s64 space_height(struct volume *vol)
{
	return min_t(u32, READ_ONCE(vol->tree.root_level), TUX3_MAX_LEVEL) + 3;
}

/* For redirecting and splitting every node there is. */
static s64 space_whole_standing(struct volume *vol)
{
	return space_less(vol, SPACE_CHEAP_STANDING,
			  2 * clamp(space_nodes(vol), (s64)1, (s64)vol->total_blocks) + 2 * space_height(vol));
}

/* For those at this level and above; a second split of one of them; a new root, and the split that it comes from. */
static s64 space_tight_standing(struct volume *vol, u32 levels)
{
	return space_less(vol, SPACE_CHEAP_TOP, 2 * space_nodes_from(vol, levels) + 3);
}

/* Too little to pay for the whole tree in each delta. */
static bool space_is_short(struct volume *vol, s64 standing)
{
	return space_balance(vol) - standing < max_t(s64, standing, vol->total_blocks / 32);
}

void space_open_delta(struct volume *vol, u64 delta)
{
	struct space *space = &vol->space;
	s64 standing = space_whole_standing(vol);
	/* Where the number of nodes cannot be true, each operation pays for those that it changes. */
	bool tight = space->want_tight || space_nodes(vol) < 1 || space_is_short(vol, standing);
	u32 levels = space_levels(vol, 0);

	space->want_tight = false;
	space->splits = atomic64_read(&vol->tree.splits);
	space->standing[delta & 1] = tight ? space_tight_standing(vol, levels) : standing;
	atomic64_sub(space->standing[delta & 1], &space->balance);
	WRITE_ONCE(space->levels[delta & 1], levels);
	WRITE_ONCE(space->tight[delta & 1], tight);
	space_set_floors(vol, delta);
	/* While the delta before is committed nobody is alone: the balance is less by what that one was charged. */
	space_set_alone(vol, delta);
}

/* What a delta counts that is not in the tree yet: dirty data, and what was preallocated or goes. */
static s64 space_pending(struct volume *vol, unsigned int slot)
{
	struct delta_state *delta = &vol->delta;

	return (delta_dirty_bytes_sum(delta, slot) >> vol->block_shift) + atomic64_read(&delta->extra[slot]);
}

/* From here on until space_commit_over() its data is placed, and what it removed is freed: statfs counts what was pending. */
static void space_commit_begins(struct volume *vol, u64 delta)
{
	struct space *space = &vol->space;

	atomic64_inc(&space->stat_seq);
	smp_mb__after_atomic();
	WRITE_ONCE(space->stat.data, atomic64_read(&vol->balloc.data_used));
	WRITE_ONCE(space->stat.deleting, atomic64_read(&space->deleting));
	WRITE_ONCE(space->stat.pending, space_pending(vol, delta & 1));
	WRITE_ONCE(space->stat.slot, delta & 1);
	WRITE_ONCE(space->stat.committing, true);
	smp_mb__before_atomic();
	atomic64_inc(&space->stat_seq);
}

void space_commit_over(struct volume *vol)
{
	struct space *space = &vol->space;

	atomic64_inc(&space->stat_seq);
	smp_mb__after_atomic();
	WRITE_ONCE(space->stat.committing, false);
	smp_mb__before_atomic();
	atomic64_inc(&space->stat_seq);
}

s64 space_close_delta(struct volume *vol, u64 delta)
{
	s64 standing = vol->space.standing[delta & 1];

	lockdep_assert_held(&vol->delta.commit_mutex);
	space_commit_begins(vol, delta);
	space_taken(vol, vol->space.taken);
	vol->space.closed = standing;
	vol->space.standing[delta & 1] = 0;
	return standing;
}

/*
 * In a tight delta, besides: of nodes that were split since it was opened only one half may be paid.  Where all levels are the
 * delta's they are among those.
 */
static s64 space_split_standing(struct volume *vol, u32 levels)
{
	return levels ? 2 * (atomic64_read(&vol->tree.splits) - vol->space.splits) : 0;
}

/* The tree has grown: so must what the front delta was charged for redirecting it. */
static void space_raise_standing(struct volume *vol)
{
	struct space *space = &vol->space;
	unsigned int front = vol->delta.front & 1;
	u32 levels = space->levels[front];
	s64 standing = space->tight[front] ? space_tight_standing(vol, levels) + space_split_standing(vol, levels) :
					     space_whole_standing(vol);
	s64 more = standing - space->standing[front];

	if (more <= 0)
		return;
	space->standing[front] += more;
	atomic64_sub(more, &space->balance);
}

/* It was opened before the last commit, which has split nodes or grown the tree since, or merged nodes of its top. */
bool space_opens_cheaper(struct volume *vol)
{
	struct space *space = &vol->space;

	lockdep_assert_held(&vol->delta.commit_mutex);
	return space->standing[vol->delta.front & 1] > space_tight_standing(vol, space_levels(vol, 0));
}

static s64 space_floor(struct volume *vol, unsigned int flags)
{
	struct space *space = &vol->space;

	if (likely(!flags))
		return 0;
	if (flags & DELTA_PAID)
		return -(s64)(READ_ONCE(space->frees) + READ_ONCE(space->aside));
	if (flags & DELTA_FREES)
		return -(s64)READ_ONCE(space->frees);
	return flags & DELTA_KEEPS ? -(s64)READ_ONCE(space->keeps) : 0;
}

s64 space_balance(struct volume *vol)
{
	s64 balance = atomic64_read(&vol->space.balance);
	int cpu;

	for_each_possible_cpu(cpu)
		balance += atomic64_read(&per_cpu_ptr(vol->delta.cpu, cpu)->credit);
	return balance;
}

/* Back into the balance.  Was there any? */
static bool space_collect_credit(struct volume *vol)
{
	s64 credit = 0, all = 0;
	int cpu;

	for_each_possible_cpu(cpu) {
		atomic64_t *of_cpu = &per_cpu_ptr(vol->delta.cpu, cpu)->credit;

		credit = atomic64_read(of_cpu) ? atomic64_xchg(of_cpu, 0) : 0;
		atomic64_add(credit, &vol->space.balance);
		all += credit;
	}
	return all > 0;
}

/* What a CPU takes for operations to come, on top of this charge: little beside what there is. */
static s64 space_new_credit(struct volume *vol)
{
	s64 share = atomic64_read(&vol->space.balance) / (CREDIT_SHARE * (s64)num_possible_cpus());

	return !vol->opts.manual && share >= CREDIT_MIN ? min_t(s64, share, CREDIT_MAX) : 0;
}

static bool space_sub(atomic64_t *from, s64 blocks, s64 floor)
{
	if (atomic64_read(from) - blocks < floor)	/* or others would miss for a moment what is theirs */
		return false;
	if (atomic64_sub_return(blocks, from) >= floor)
		return true;
	atomic64_add(blocks, from);
	return false;
}

/*
 * Leaves were split, and the delta as a whole is charged for more than there is: see "alone" at the top.  May who keeps or frees be
 * the first, and the only one in it?
 */
static bool space_may_be_alone(struct volume *vol, u64 blocks, unsigned int flags)
{
	struct space *space = &vol->space;
	s64 ahead = READ_ONCE(space->ahead), there = READ_ONCE(space->available) + ahead;
	s64 nodes = min_t(s64, space_nodes_from(vol, space_levels(vol, 0)), ALONE_NODES);

	if (READ_ONCE(space->alone) >= 0 || !space_is_tight(space, READ_ONCE(vol->delta.front)) ||
	    (s64)blocks + ahead > -space_floor(vol, flags))
		return false;
	return flags & (DELTA_FREES | DELTA_PAID) ? there + 2 * (s64)space_own_log(vol) >= nodes : there >= nodes + ALONE_SPLITS;
}

static bool space_charge_alone(struct volume *vol, u64 blocks, unsigned int flags)
{
	return flags && READ_ONCE(vol->space.unified) && space_may_be_alone(vol, blocks, flags) &&
	       space_sub(&vol->space.balance, blocks, READ_ONCE(vol->space.alone) - (s64)blocks);
}

/* Would it fit if the front delta was charged nothing yet? */
static bool space_fits_alone(struct volume *vol, u64 blocks, unsigned int flags)
{
	return READ_ONCE(vol->space.alone) - (s64)blocks >= space_floor(vol, flags) || space_may_be_alone(vol, blocks, flags);
}

/* Each try takes for a moment what it then gives back: the next may miss it, and who waits for space tries again. */
bool space_charge(struct volume *vol, struct delta_cpu *cpu, u64 blocks, unsigned int flags)
{
	s64 floor = space_floor(vol, flags), credit;

	if (likely(atomic64_read(&cpu->credit) >= (s64)blocks && space_sub(&cpu->credit, blocks, 0)))
		return true;
	credit = blocks <= CREDIT_MAX ? space_new_credit(vol) : 0;
	if (credit && space_sub(&vol->space.balance, blocks + credit, 0)) {
		atomic64_add(credit, &cpu->credit);
		return true;
	}
	return space_sub(&vol->space.balance, blocks, floor) ||
	       (space_collect_credit(vol) && space_sub(&vol->space.balance, blocks, floor)) ||
	       space_charge_alone(vol, blocks, flags);
}

void space_uncharge(struct volume *vol, struct delta_cpu *cpu, u64 blocks)
{
	s64 credit = atomic64_read(&cpu->credit);

	if (!blocks)
		return;
	if (credit > 0 && credit + blocks < 2 * CREDIT_MAX)
		atomic64_add(blocks, &cpu->credit);
	else
		atomic64_add(blocks, &vol->space.balance);
}

/* Operations that free: what they free is there when they are committed. */
static s64 space_frees_begun(struct volume *vol)
{
	s64 frees = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		frees += atomic64_read(&per_cpu_ptr(vol->delta.cpu, cpu)->frees);
	return frees;
}

/* Moves with everything that may make a charge fit that did not. */
static s64 space_freed(struct volume *vol)
{
	return atomic64_read(&vol->space.freed) + space_frees_begun(vol);
}

/* A slice pays for its paths in any delta. */
static void space_note_slice(struct volume *vol)
{
	u64 cost = space_cost_items(vol, SLICE_ITEMS), delta = vol->delta.applying;

	if (likely(!vol->opts.costs))
		return;
	space_note(vol, delta, cost, 1);
	if (!vol->space.tight[delta & 1])
		atomic64_add(cost_items(vol, cost) * space_path_blocks(vol, space_slice_levels(vol, delta)),
			     &vol->space.charges[delta & 1].paths);
}

bool space_charge_slice(struct volume *vol, bool first, s64 *charged)
{
	s64 price = space_own_slice(vol, space_slice_levels(vol, vol->delta.applying));
	s64 left = atomic64_sub_return(price, &vol->space.balance);
	/* The counts of a damaged volume may be anything.  With nothing for a unify to give back it goes ahead. */
	bool unified = !vol->tree.dirty_count && !vol->log.length;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (left < 0 && space_collect_credit(vol))
		left = atomic64_read(&vol->space.balance);
	if (left >= 0 || (first && (left >= -(s64)vol->space.frees - price || unified))) {
		*charged += price;
		space_note_slice(vol);
		return true;
	}
	atomic64_add(price, &vol->space.balance);
	return false;
}

/* Whatever there is: what the back delta was charged for them comes back when it is settled.  Until then others may wait. */
void space_charge_lost(struct volume *vol, u64 blocks)
{
	u64 front = vol->delta.front, part, cost, price;

	lockdep_assert_held(&vol->delta.commit_mutex);
	for (; blocks; blocks -= part) {
		part = min_t(u64, blocks, LOST_AT_ONCE);
		cost = space_cost_prealloc(vol, part) - space_cost_items(vol, SPACE_ITEMS_ALLOCATE);
		price = space_price(vol, front, cost);
		atomic64_sub(price, &vol->space.balance);
		atomic64_add(price, &raw_cpu_ptr(vol->delta.cpu)->charged[front & 1]);
		if (unlikely(vol->opts.costs))
			space_note(vol, front, cost, 1);
	}
}

static void space_move_balance(struct volume *vol, s64 charged)
{
	s64 available = space_available(vol), move = available - vol->space.available + charged;
	/* A commit gives back the standing charge of its delta; that of the next one was taken for it. */
	s64 taken = charged ? vol->space.standing[vol->delta.front & 1] : 0;

	WRITE_ONCE(vol->space.alone, S64_MAX);
	WRITE_ONCE(vol->space.available, available);
	atomic64_add(move, &vol->space.balance);
	if (move > taken)
		atomic64_inc(&vol->space.freed);
	space_raise_standing(vol);
	space_set_alone(vol, vol->delta.front);
}

/* Before deltas are tight, whose operations go below zero for what a unify gives back. */
bool space_misses_blocks(struct volume *vol)
{
	return vol->space.tight[vol->delta.front & 1] || space_is_short(vol, space_whole_standing(vol));
}

/*
 * A hold is over when its time is, and as soon as what it keeps may be missed.  Who is refused before that ends it himself
 * (delta_commit_space).
 */
static bool space_ends_hold(struct volume *vol)
{
	return ktime_get_ns() >= vol->held.until_ns || (vol->held.kept.blocks && space_misses_blocks(vol));
}

void space_settle(struct volume *vol, s64 charged)
{
	lockdep_assert_held(&vol->delta.commit_mutex);
	space_move_balance(vol, charged);
	if (unlikely(vol->held.on) && space_ends_hold(vol))
		space_end_hold(vol);
}

void space_end_hold(struct volume *vol)
{
	if (likely(!vol->held.on))
		return;
	held_end(vol);
	space_move_balance(vol, 0);
}

/* Was as much refused before, and nothing was freed since? */
static bool space_known_full(struct volume *vol, u64 blocks)
{
	struct space *space = &vol->space;
	bool known;

	spin_lock(&space->full_lock);
	known = space->full_at == space_freed(vol) && blocks >= space->full_cost;
	spin_unlock(&space->full_lock);
	return known;
}

/* So many blocks could not be had.  freed: space_freed(), from before it was found out what there is. */
static void space_note_full(struct volume *vol, u64 blocks, s64 freed)
{
	struct space *space = &vol->space;

	if (unlikely(block_reads_keep(vol)))
		return;
	spin_lock(&space->full_lock);
	if (freed > space->full_at || (freed == space->full_at && blocks < space->full_cost)) {
		space->full_at = freed;
		space->full_cost = blocks;
	}
	spin_unlock(&space->full_lock);
}

static int space_refuse(struct volume *vol, u64 blocks)
{
	count_add(vol, TUX3_COUNT_ENOSPC, 1);
	trace_tux3_enospc(vol, blocks, space_balance(vol));
	return -ENOSPC;
}

/* More than what making a file, or writing one block of it, may take. */
static u64 space_ordinary(struct volume *vol, u32 levels)
{
	return max(space_tight_price(vol, space_cost_items(vol, SPACE_ITEMS_LINK) + space_cost_name(TUX3_NAME_MAX), levels),
		   space_tight_price(vol, space_cost_data(vol, 1, 1), levels));
}

static s64 space_data_now(struct volume *vol)
{
	struct space *space = &vol->space;

	if (READ_ONCE(space->stat.committing))
		return READ_ONCE(space->stat.data) + READ_ONCE(space->stat.pending) - READ_ONCE(space->stat.deleting) +
		       space_pending(vol, !READ_ONCE(space->stat.slot));
	return atomic64_read(&vol->balloc.data_used) + space_pending(vol, 0) + space_pending(vol, 1) -
	       atomic64_read(&space->deleting);
}

/*
 * Blocks that are free, or will be when everything is committed and unified, if all that is dirty takes a new place, and of what
 * was removed only whole files gave room.  A commit that begins or ends meanwhile does not make it wrong.
 */
static s64 space_left(struct volume *vol)
{
	u32 tries = 0;
	s64 data, seq;

	do {
		seq = atomic64_read(&vol->space.stat_seq);
		smp_rmb();
		data = space_data_now(vol);
		smp_rmb();
	} while ((seq & 1 || atomic64_read(&vol->space.stat_seq) != seq) && tries++ < STAT_TRIES);
	return (s64)vol->total_blocks - atomic64_read(&vol->balloc.disk_used) + atomic64_read(&vol->balloc.data_used) -
	       atomic64_read(&vol->balloc.promised) - data;
}

/*
 * May so much fit when all is committed and unified, if what others have dirty takes no more than it does now?  Where it may not,
 * and all that there was is back, other commits bring nothing but what is freed meanwhile.
 */
static bool space_may_fit(struct volume *vol, u64 blocks)
{
	u32 levels = READ_ONCE(vol->space.full_levels);
	s64 kept = (s64)READ_ONCE(vol->space.reserve) + space_slack(vol, levels) + (s64)READ_ONCE(vol->space.aside) +
		   space_tight_standing(vol, space_levels(vol, 0));

	return space_left(vol) + max(space_pending(vol, 0), (s64)0) +
	       max(space_pending(vol, 1), (s64)0) - kept >= (s64)blocks;
}

/*
 * All that there was is back.  Is it time to give up?  Not while it is only that others were quicker: what they were charged comes
 * back, too.
 */
static bool space_gives_up(struct volume *vol, u64 blocks, unsigned int flags, const struct space_try *try, unsigned int attempt)
{
	if (attempt > 1 && !flags && !space_may_fit(vol, blocks))
		return true;
	if (attempt <= 3)
		return false;
	if (delta_counter(vol, TUX3_COUNT_OPS) != try->ops || space_fits_alone(vol, blocks, flags))
		return attempt > OVERTAKEN_MAX;
	return attempt > 10 || (READ_ONCE(vol->space.unified) && space_freed(vol) == try->freed);
}

/* The first attempt commits, the second one unifies: then all is back that there was.  Others are for what is freed meanwhile. */
int space_wait(struct volume *vol, u64 blocks, unsigned int flags, struct space_try *try)
{
	unsigned int attempt = try->attempts++;
	s64 freed;
	int err;

	count_add(vol, TUX3_COUNT_ENTER_WAITS, 1);
	if (!flags && space_known_full(vol, blocks))
		return space_refuse(vol, blocks);
	if (space_gives_up(vol, blocks, flags, try, attempt)) {
		if (!flags)
			space_note_full(vol, blocks, try->freed);
		return space_refuse(vol, blocks);
	}
	/* Where a commit is not known to bring enough it is the one before the unify, too. */
	if (!attempt && !flags && !space_may_fit(vol, blocks))
		attempt = try->attempts++;
	/* Of who frees while the commit goes on it knows nothing.  But what it brings back itself is seen here. */
	freed = space_frees_begun(vol);
	err = delta_commit_space(vol, flags, attempt);
	try->freed = freed + atomic64_read(&vol->space.freed);
	try->ops = delta_counter(vol, TUX3_COUNT_OPS);
	return err;
}

/* More could not be had if all data were gone. */
static s64 space_most(struct volume *vol)
{
	return (s64)vol->total_blocks - (s64)vol->balloc.fixed_blocks - (s64)READ_ONCE(vol->space.reserve);
}

/* Of these, what no ordinary write gets where the tree is like that.  Two blocks are chosen for the log already. */
static s64 space_kept_of(struct volume *vol, u32 levels, s64 standing)
{
	return space_reserve(vol, levels) + space_slack(vol, levels) + READ_ONCE(vol->space.aside) + standing +
	       space_ordinary(vol, levels) + 2;
}

/*
 * And when so many blocks are full of data, whose checksums take nodes, of which more is kept: in extents as long as can be, three
 * of which fill a leaf, of leaves that are a little less full.
 */
static s64 space_kept_later(struct volume *vol, s64 left)
{
	u32 fan = space_room(vol) / sizeof(struct disk_branch) / 8 * 7, data = space_room(vol) / 32 * 6, top = 0;
	s64 more = vol->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM ? max(left, (s64)0) / data : 0, here, below = 1;
	bool few;

	if (more <= AHEAD_BRANCHES)
		return 0;
	for (here = clamp(space_nodes(vol), (s64)1, (s64)vol->total_blocks) + more; here > 1; top++) {
		below = here;
		here = DIV_ROUND_UP(here, fan);
	}
	few = top && below + AHEAD_BRANCHES <= FEW_BRANCHES;
	return more + space_kept_of(vol, top - few, 2 * (few ? 1 + below : 1) + 3);
}

static s64 space_kept(struct volume *vol, s64 left)
{
	/* What is asked for next may split a leaf or two itself. */
	s64 now = space_kept_of(vol, space_levels(vol, AHEAD_BRANCHES + 2), space_tight_standing(vol, space_levels(vol, 0)));

	return max(now, space_kept_later(vol, left));
}

bool space_has(struct volume *vol, u64 blocks, u64 promised)
{
	s64 left = space_left(vol);

	left -= space_kept(vol, left);
	return left >= 0 && blocks + space_prealloc_share(vol, promised) <= (u64)left;
}

bool space_never_has(struct volume *vol, u64 blocks, u64 promised)
{
	s64 most = space_most(vol);

	return most < 0 || blocks + space_prealloc_share(vol, promised) > (u64)most;
}

int space_ask(struct volume *vol, u64 blocks, u64 promised)
{
	u64 price = blocks + space_ordinary(vol, READ_ONCE(vol->space.full_levels));	/* at least */
	s64 freed;
	int err;

	if (space_has(vol, blocks, promised))
		return 0;
	if (space_never_has(vol, blocks, promised) || space_known_full(vol, price))
		return space_refuse(vol, price);
	/* Of who frees while the commit goes on it knows nothing.  But what it brings back itself is seen here. */
	freed = space_frees_begun(vol);
	err = delta_commit_space(vol, 0, 2);
	freed += atomic64_read(&vol->space.freed);
	if (!err && !space_has(vol, blocks, promised)) {
		space_note_full(vol, price, freed);
		err = space_refuse(vol, price);
	}
	return err;
}

/* ---- the table ---- */

bool space_table_row(struct volume *vol, u32 i, struct space_row *row)
{
	static const struct space_row rows[] = {
#define X(NAME, i, e, d, p, how_far, text) \
		{ .name = #NAME, .how = how_far, .what = text, .items = i, .extents = e, .data = d, .promised = p },
		SPACE_TABLE(X)
#undef X
	};
	u64 cost;

	if (i >= ARRAY_SIZE(rows))
		return false;
	*row = rows[i];
	cost = ((u64)row->data << SPACE_DATA_SHIFT) + ((u64)row->extents << SPACE_EXTENTS_SHIFT) +
	       ((u64)row->promised << SPACE_PROMISED_SHIFT) + space_cost_items(vol, row->items);
	row->price = space_whole_price(vol, cost);
	row->tight_price = space_full_price(vol, cost);
	return true;
}

u64 space_needs(struct volume *vol, u64 unwritten, bool all)
{
	u32 levels = space_levels(vol, AHEAD_BRANCHES);
	u64 least = space_prealloc_share(vol, unwritten) + space_slack(vol, levels);

	return all ? least + space_reserve(vol, levels) + space_tight_standing(vol, levels) : least;
}

void space_get_kept(struct volume *vol, struct space_kept *kept)
{
	u32 levels = READ_ONCE(vol->space.full_levels);

	*kept = (struct space_kept){
		.item_bytes = ITEM_BYTES, .item_log_bytes = RECORD_BYTES, .text_bytes = TEXT_BYTES, .text_log_bytes = TEXT_RECORD,
		.levels = levels,
		.standing = space_tight_standing(vol, space_levels(vol, 0)),
		.whole_standing = space_whole_standing(vol), .keeps = space_keeps(vol, levels),
		.frees = space_frees(vol, levels), .slice = space_own_slice(vol, levels), .log = 3 * space_own_log(vol),
		.aside = READ_ONCE(vol->space.aside), .ordinary = space_ordinary(vol, levels),
	};
}

/* Nodes by which the tree will be larger when what is pending is committed, as measured with small files: a guess, for df. */
#define STAT_CHANGE_BYTES 256u

static s64 space_pending_nodes(struct volume *vol)
{
	s64 changes = delta_changes(&vol->delta, 0) + delta_changes(&vol->delta, 1);

	return changes * STAT_CHANGE_BYTES >> vol->block_shift;
}

/*
 * available: what the next ordinary write can get, when everything is committed and unified: so nothing where it would be
 * refused.
 */
void space_stat(struct volume *vol, u64 *total, u64 *free, u64 *available)
{
	s64 left = min_t(s64, space_left(vol) - space_pending_nodes(vol), vol->total_blocks);

	*total = vol->total_blocks;
	*free = max_t(s64, left, 0);
	*available = max_t(s64, left - space_kept(vol, left), 0);
}
