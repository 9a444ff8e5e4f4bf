// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The rules of file data, described in data_change.h: plans, prices, and how a truncate or fallocate is carried out.
 */
#include "core/volume.h"
#include "core/data/data.h"
#include "core/data/data_change.h"
#include "core/data/delete.h"
#include "core/tree/tree.h"
#include "core/delta/delta.h"
#include "core/delta/paid.h"
#include "core/delta/space.h"
#include "core/inode/inode.h"
#include "core/inode/inode_quota.h"
#include "core/names/ops.h"

/* ---- plans ---- */

void data_change_add_edge(struct data_change *change, u64 block, u32 from, u32 to, bool even_hole)
{
	struct data_edge *edge;
	u32 i;

	/* Beyond the end there is nothing, whatever may be allocated there. */
	if (!even_hole && block << change->inode->vol->block_shift >= change->size)
		return;
	for (i = 0; i < change->edges && change->edge[i].block != block; i++)
		;
	edge = &change->edge[i];
	if (i == change->edges) {
		*edge = (struct data_edge){ .block = block };
		change->edges++;
	}
	/* There is one reason only to zero a part of a block. */
	if (from < to) {
		edge->from = from;
		edge->to = to;
	}
	edge->even_hole |= even_hole;
}

/* What every change of the data or the size must make dirty. */
static void plan_edges(struct data_change *change)
{
	struct volume *vol = change->inode->vol;
	u32 in_block = change->size & (vol->block_size - 1);

	/* An empty file has no data to keep: a truncate took it, perhaps in this delta, when the flag still stands. */
	if (change->new_size && data_maybe_inline(vol, change->flags, change->size))
		data_change_add_edge(change, 0, 0, 0, change->flags & TUX3_ATTR_INLINE);
	if (change->new_size > change->size && in_block)
		data_change_add_edge(change, change->size >> vol->block_shift, in_block, vol->block_size, false);
}

/* ---- prices ---- */

/* A write has no other cost: what its blocks cost pays for the attributes, too. */
static u64 change_cost(const struct data_change *change, u32 blocks)
{
	if (change->base && !blocks)
		return change->base;
	return change->base + space_cost_data(change->inode->vol, blocks, min(blocks, change->new_blocks));
}

/*
 * A write that goes on where the one before it ended, in one delta, makes a run of dirty blocks longer: its ends, for which the
 * tree's paths are paid, are as many as before.  Up to what one batch may have, for which that is right: see space_cost_data().
 */
static bool run_goes_on(const struct data_change *change, const struct inode_slot *slot)
{
	u64 end = READ_ONCE(slot->run_end), last = change->first + change->count - 1;

	return end % DATA_BATCH_MAX && (change->first == end || change->first + 1 == end) &&
	       last / DATA_BATCH_MAX == end / DATA_BATCH_MAX && !change->edges && !(READ_ONCE(slot->dirty) & INODE_DIRTY_REMAP);
}

/* What is kept of the price where so many blocks get dirty. */
static u64 settled_cost(const struct data_change *change, u32 newly)
{
	u64 cost = change_cost(change, newly);

	if (!change->paid && !change->beside && !change->uncounted)
		return cost;
	if (!change->base && !newly)
		return 0;
	cost = cost - space_cost_items(change->inode->vol, change->paid + change->beside) + space_cost_beside(change->beside);
	return change->uncounted ? space_cost_uncounted(cost) : cost;
}

/* ---- quotas ---- */

/* May the file be inline still? */
static bool stays_inline(const struct data_change *change)
{
	return change->new_size <= data_inline_max(change->inode->vol->block_size) && !(change->flags & TUX3_ATTR_PREALLOC) &&
	       !change->fill_count;
}

/*
 * A file that was inline, or may be in the delta that is committed, gets a block: perhaps it was dirty, and not charged for.  One
 * that is longer already has paid, though the tree may have it inline until that is committed.
 */
static bool inline_ends(const struct data_change *change)
{
	struct volume *vol = change->inode->vol;

	return !(change->flags & TUX3_ATTR_PREALLOC) && !stays_inline(change) &&
	       change->size <= data_inline_max(vol->block_size) && data_maybe_inline(vol, change->flags, change->size);
}

/* Of an inline file that ends: is block 0 a hole, and stays one, or is counted among what is filled?  1, 0, or -errno. */
static int first_is_hole(const struct data_change *change)
{
	struct data_look look;
	int got;
	u32 i;

	if (change->count && !change->first)
		return 0;
	for (i = 0; i < change->edges; i++)
		if (!change->edge[i].block)
			return 0;
	data_look_begin(&look, change->inode, 0, 1);
	got = data_look_next(&look);
	return got < 0 ? got : !got || look.kind == DATA_HOLE;
}

/* How many blocks of those that are written to are holes, besides those counted otherwise. */
static int charge_look(struct quota_charge *charge)
{
	struct data_change *change = container_of(charge, struct data_change, quota);
	bool skip_first = stays_inline(change) || inline_ends(change);
	struct data_look look;
	s64 holes = 0;
	int got = inline_ends(change) ? first_is_hole(change) : 0;

	if (got < 0)
		return got;
	holes -= got;

	data_look_begin(&look, change->inode, change->first, change->first + change->count);
	while ((got = data_look_next(&look)) > 0) {
		if (look.kind == DATA_HOLE)
			holes += look.count - (skip_first && !look.block);
		cond_resched();
	}
	charge->amount.blocks = holes + inline_ends(change) + change->holes;
	return got;
}

static int data_change_charge(struct data_change *change, struct delta_op *op)
{
	change->quota = (struct quota_charge){
		.amount = { .blocks = change->new_blocks + inline_ends(change) + change->holes,
			    .unsure = change->new_blocks || inline_ends(change) },
		.look = charge_look,
	};
	return inode_quota_charge(change->inode, op, &change->charged, change->cost, change->enter, &change->quota);
}

static void settle_quota(struct data_change *change, struct delta_op *op, u32 newly)
{
	inode_quota_settle(change->inode, op, &change->quota, newly + inline_ends(change) + change->holes);
}

/* ---- entering and settling ---- */

/* The file's lock is held; a store has no such lock, and no base. */
static bool keeps_owner(const struct data_change *change)
{
	return change->write || change->base;
}

/*
 * The ends of what is written lie in one leaf, if what is before it, and what comes behind, do.  Outside; of a file that cannot be
 * inline, and of nothing else that gets dirty.
 */
static void look_at_leaves(struct data_change *change)
{
	const struct tux3_inode *inode = change->inode;
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_EXTENT, change->first);
	struct tree_key to = tree_key(inode->ino, TUX3_ITEM_EXTENT, change->first + change->count);

	paid_begin(inode->vol, &change->look);
	change->look_paid = 0;
	if (change->edges || change->unwritten || change->enter & DELTA_NOWAIT ||
	    change->size <= data_inline_max(inode->vol->block_size))
		change->look.delta = 0;
	else
		change->look_paid = paid_items(inode->vol, &change->look, &from, &to, SPACE_ITEMS_WRITE - 1);
}

/*
 * Attributes that the delta has changed are paid, and the ends of a run that goes on.  All items of a new file are beside each
 * other: near full, where paths count, nothing is paid for these, nor for those of the owner if somebody has paid them.
 */
static void look_at_paid(struct data_change *change, u64 delta)
{
	const struct inode_slot *slot = &change->inode->slot[delta & 1];

	change->paid = inode_attr_is_paid(change->inode, delta);
	change->beside = 0;
	change->ends_pay = false;
	change->uncounted = keeps_owner(change) && space_is_tight(&change->inode->vol->space, delta) &&
			    inode_quota_is_paid(change->inode, delta);
	if (!change->write)
		return;
	if (run_goes_on(change, slot))		/* inside, the file's lock is enough for run_end */
		change->paid += SPACE_ITEMS_WRITE - 1;
	else if (space_is_tight(&change->inode->vol->space, delta) && inode_is_new(change->inode, delta))
		change->beside = SPACE_ITEMS_WRITE - 1;
	else if (paid_holds(&change->look, delta) && !(READ_ONCE(slot->dirty) & INODE_DIRTY_REMAP)) {
		change->beside = change->look_paid;
		change->ends_pay = true;
	}
}

/* In a tight delta it needs no more room for a moment than it takes: if that is known before, and it is still so inside. */
static int enter_tight(struct data_change *change, struct delta_op *op)
{
	struct volume *vol = change->inode->vol;
	int err;

	look_at_leaves(change);
	look_at_paid(change, READ_ONCE(vol->delta.front));
	change->charged = settled_cost(change, change->blocks);
	err = delta_enter(vol, op, change->charged, change->enter);
	if (err)
		return err;
	look_at_paid(change, op->delta);
	if (space_price(vol, op->delta, settled_cost(change, change->blocks)) <= space_price(vol, op->delta, change->charged))
		return 0;
	delta_refund(op, change->charged, 0);
	delta_leave(op);
	change->charged = change->cost;
	err = delta_enter(vol, op, change->cost, change->enter);
	if (!err)
		look_at_paid(change, op->delta);
	return err;
}

/* For intents.  A store is the first of many. */
static void note_change(const struct data_change *change)
{
	u32 i;

	if (!change->write) {
		inode_note_all(change->inode);
		return;
	}
	inode_note_change(change->inode, change->first, change->count);
	for (i = 0; i < change->edges; i++)
		inode_note_change(change->inode, change->edge[i].block, 1);
}

static int change_enter(struct data_change *change, struct delta_op *op)
{
	struct volume *vol = change->inode->vol;
	int err;

	if (unlikely(READ_ONCE(change->inode->stuck) || delete_cut_failed(vol, change->inode->ino)))
		return -EIO;
	change->look.delta = 0;
	if (unlikely(change->write && space_is_tight(&vol->space, READ_ONCE(vol->delta.front)))) {
		err = enter_tight(change, op);
	} else {
		change->charged = change->cost;
		err = delta_enter(vol, op, change->cost, change->enter);
	}
	/* Who has limits may be refused: then he enters again, and pays all before. */
	if (unlikely(READ_ONCE(change->inode->owner)) && !err)
		err = data_change_charge(change, op);
	if (err)
		return err;
	look_at_paid(change, op->delta);
	return 0;
}

/*
 * What is preallocated was found outside.  If another delta is open by now, the commit of the one before may be over: stores may
 * have been written there, and what was still to be preallocated may not be, where something could not be read (data_commit.c).
 * A store has data_store_is_stale().
 */
static bool change_is_stale(const struct data_change *change, const struct delta_op *op)
{
	return ((change->write && change->unwritten) || change->promised) && op->delta != change->looked;
}

int data_change_enter(struct data_change *change, struct delta_op *op)
{
	u32 shift = change->inode->vol->block_shift;
	int err = change_enter(change, op);

	while (!err && unlikely(change_is_stale(change, op))) {
		data_change_undone(change, op);
		if (change->promised)
			return -ESTALE;
		change->enter = 0;
		err = data_price_write(change, change->first << shift, (change->first + change->count) << shift);
		if (!err)
			err = change_enter(change, op);
	}
	if (!err && unlikely(READ_ONCE(change->inode->told)))
		note_change(change);
	return err;
}

void data_change_undone(struct data_change *change, struct delta_op *op)
{
	inode_quota_settle(change->inode, op, &change->quota, 0);
	delta_refund(op, change->charged, 0);
	delta_leave(op);
}

void data_change_settle(struct data_change *change, struct delta_op *op, u32 newly)
{
	if (unlikely(READ_ONCE(change->inode->owner)))
		settle_quota(change, op, newly);
	if (unlikely(change->unwritten))
		data_paid(op, change->inode, min(newly, change->unwritten));
	if (newly < change->blocks || change->paid || change->beside || change->uncounted)
		delta_refund(op, change->charged, settled_cost(change, newly));
	if (unlikely(READ_ONCE(change->inode->owner)) && keeps_owner(change))
		inode_quota_pay(change->inode, op->delta, settled_cost(change, newly));
}

void data_settle_write(struct data_change *change, struct delta_op *op, u32 newly)
{
	if (change->count)
		WRITE_ONCE(change->inode->slot[op->delta & 1].run_end, change->first + change->count);
	data_change_settle(change, op, newly);
	if (unlikely(change->ends_pay) && newly)
		paid_keep(op, &change->look);
}

/* ---- writes ---- */

void data_plan_write_edges(struct data_change *change, u64 from, u64 to)
{
	u32 shift = change->inode->vol->block_shift, i;

	plan_edges(change);
	for (i = change->edges; i-- > 0; ) {
		u64 block = change->edge[i].block;

		if (block >= from >> shift && block <= (to - 1) >> shift)
			change->edge[i] = change->edge[--change->edges];
	}
}

/* Blocks that are preallocated, or dirty already, cost less. */
int data_price_write(struct data_change *change, u64 from, u64 to)
{
	struct tux3_inode *inode = change->inode;
	u32 shift = inode->vol->block_shift;
	u64 first = from >> shift, count = ((to - 1) >> shift) - first + 1;
	struct data_count counts;
	int err;

	change->write = true;
	change->blocks = change->new_blocks = count + change->edges;
	change->first = first;
	change->count = count;
	change->unwritten = 0;
	if (unlikely(change->flags & TUX3_ATTR_PREALLOC)) {
		change->looked = READ_ONCE(inode->vol->delta.front);
		err = data_look_count(inode, first, count, &counts);
		if (err)
			return err;
		change->unwritten = counts.unwritten;
		change->new_blocks -= counts.unwritten;
		/*
		 * A block that is dirty already may need a new place, but no second one in this delta: a write to
		 * nothing but these and preallocated ones keeps what there is.
		 */
		if (counts.unwritten + counts.dirty >= change->blocks)
			change->enter = counts.dirty ? DELTA_KEEPS : DELTA_PAID;
	}
	change->cost = space_cost_data(inode->vol, change->blocks, change->new_blocks);
	return 0;
}

/* ---- stores through a mapping ---- */

void data_plan_store(struct data_change *change, struct tux3_inode *inode)
{
	struct tux3_attr attr;

	inode_get_attr(inode, &attr);
	change->inode = inode;
	change->flags = attr.flags;
	change->size = change->new_size = attr.size;
	change->edges = change->unwritten = change->enter = 0;
	change->base = change->holes = change->fill_count = 0;
	change->apart = change->write = change->promised = false;
	plan_edges(change);
}

/* A block of an unwritten extent needs no new space, if it is not dirty yet. */
int data_price_store(struct data_change *change, u64 block, u32 count, bool dirty)
{
	struct tux3_inode *inode = change->inode;
	struct data_extent extent;
	int err = 0;

	change->blocks = change->new_blocks = count + change->edges;
	change->first = block;
	change->count = count;
	if (unlikely(change->flags & TUX3_ATTR_PREALLOC) && change->blocks == 1 && !dirty) {
		change->looked = READ_ONCE(inode->vol->delta.front);
		err = data_map(inode, block, 1, &extent, NULL, 0);
		if (!err && extent.kind == DATA_UNWRITTEN) {
			change->unwritten = 1;
			change->new_blocks = 0;
			change->enter = DELTA_PAID;
		}
	}
	change->cost = space_cost_data(inode->vol, change->blocks, change->new_blocks);
	return err;
}

/* The times were set in a change of their own: where nothing got dirty all comes back. */
void data_settle_store(struct data_change *change, struct delta_op *op, int newly)
{
	if (newly > 0) {
		data_change_settle(change, op, newly);
	} else {
		inode_quota_settle(change->inode, op, &change->quota, 0);
		delta_refund(op, change->charged, 0);
	}
}

/* ---- sizes and allocation: the delta ---- */

/* Enters a delta with the edges dirty. */
static int change_begin(struct data_change *change, struct delta_op *op)
{
	int got;

	for (;;) {
		got = change->ops->prepare ? change->ops->prepare(change) : 0;
		if (!got)
			got = data_change_enter(change, op);
		if (got)
			return got;
		got = change->ops->begin(change, op);
		if (got >= 0) {
			data_change_settle(change, op, got);
			return 0;
		}
		data_change_undone(change, op);
		if (got != -EAGAIN)
			return got;
	}
}

static void change_attr(struct data_change *change, struct delta_op *op)
{
	struct tux3_attr *attr = inode_change_begin(op, change->inode);

	attr->mtime = attr->ctime = inode_now(change->inode->vol);
	attr->size = change->new_size;
	attr_apply(attr, change->attr, change->set);
	if (change->ops->attr)
		change->ops->attr(change, attr);
	inode_change_end(change->inode);
}

static int change_inside(struct data_change *change, struct delta_op *op)
{
	bool shorter = change->new_size < change->size;
	int err = 0;

	if (change->hole_count)
		err = data_remove(op, change->inode, change->hole, change->hole_count);
	if (!err && (change->holes || change->apart))
		err = data_prealloc(op, change->inode, change->fill, change->fill_count, change->holes);
	if (!err && change->apart) {
		change->ops->apply(change, op);
		return 0;
	}
	if (err) {		/* the edges are dirty, but no more */
		inode_quota_settle(change->inode, op, &change->quota, max_t(s64, change->quota.amount.blocks - change->holes, 0));
		return err;
	}
	/* Who reads without a lock must not find within the file what is beyond its end. */
	if (shorter)
		change_attr(change, op);
	change->ops->apply(change, op);
	if (!shorter)
		change_attr(change, op);
	return 0;
}

/* Data that was inline may get a block. */
static bool change_moves_inline(const struct data_change *change)
{
	u32 i;

	for (i = 0; i < change->edges && !change->edge[i].even_hole; i++)
		;
	return i < change->edges;
}

/* base: what it costs besides edges and attributes. */
static int change_run(struct data_change *change, u64 base)
{
	struct volume *vol = change->inode->vol;
	struct delta_op op;
	int err = change->ops->open(change);

	if (change->enter == DELTA_KEEPS && change_moves_inline(change))
		change->enter = 0;
	change->blocks = change->new_blocks = change->edges;
	change->base = base + attr_apply_cost(vol, change->set);
	change->cost = change_cost(change, change->blocks);
	if (!err)
		err = change_begin(change, &op);
	if (!err) {
		err = change_inside(change, &op);
		if (change->ops->end)
			change->ops->end(change);
		delta_leave(&op);
	}
	change->ops->close(change, err);
	if (!err)
		change->set = 0;	/* the next one of the same call need not */
	return err;
}

/* Blocks that the file may have in the hole. */
static u64 hole_blocks(const struct data_change *change)
{
	u32 shift = change->inode->vol->block_shift;
	u64 end = (change->size + (1u << shift) - 1) >> shift;

	if (change->hole_count != DATA_END || change->flags & TUX3_ATTR_PREALLOC)
		return change->hole_count;
	return end > change->hole ? end - change->hole : 0;
}

/*
 * What this costs is the same for a large hole and for a larger one: the back end removes it in so many parts, or in slices.
 * A small one has no more parts than blocks, and two ends at which extents may be cut.
 */
static int change_run_freeing(struct data_change *change)
{
	u32 parts = min_t(u64, hole_blocks(change), DATA_PUNCH_PARTS - 2) + 2;
	u32 records = parts * (sizeof(struct disk_record) + sizeof(struct record_extent));
	int err = delete_look(change->inode, change->hole, change->hole_count);

	if (!err)
		err = inode_quota_read(change->inode);
	if (err)
		return err;
	change->enter = DELTA_FREES;
	return change_run(change, space_cost_items(change->inode->vol, SPACE_ITEMS_REMOVE) + space_cost_records(records));
}

/* An owner is not changed with the size by any system call; if it is to be, then before. */
static int change_owner(struct data_change *change)
{
	u32 set = change->set & OP_ATTR_OWNER;
	int err = op_setattr(change->inode, change->attr, set);

	change->set &= ~set;
	return err;
}

int data_truncate(struct data_change *change, u64 size)
{
	struct volume *vol = change->inode->vol;
	int err = unlikely(READ_ONCE(change->inode->owner)) && change->set & OP_ATTR_OWNER ? change_owner(change) : 0;

	if (err)
		return err;
	change->new_size = size;
	if (size != change->size)
		plan_edges(change);
	/* To the size it has: what is preallocated behind it goes, as with other file systems. */
	if (size > change->size || (size == change->size && !(change->flags & TUX3_ATTR_PREALLOC))) {
		change->enter = DELTA_KEEPS;
		return change_run(change, space_cost_items(vol, SPACE_ITEMS_GROW));
	}
	change->hole = (size + vol->block_size - 1) >> vol->block_shift;
	change->hole_count = DATA_END;
	err = change_run_freeing(change);
	return err ? err : data_cut_wait(change->inode);
}

/* Zero what the range has of blocks at its edges, remove the blocks between. */
static int change_punch(struct data_change *change, u64 from, u64 to)
{
	struct volume *vol = change->inode->vol;
	u32 shift = vol->block_shift, mask = vol->block_size - 1;
	u64 first = from >> shift, stop = to >> shift;	/* whole blocks: [first, stop) */

	if (first == stop) {
		data_change_add_edge(change, first, from & mask, to & mask, false);
	} else {
		/* Inline data is no block that could be removed. */
		if (from & mask || (!first && data_maybe_inline(vol, change->flags, change->size)))
			data_change_add_edge(change, first++, from & mask, vol->block_size, false);
		if (to & mask)
			data_change_add_edge(change, stop, 0, to & mask, false);
	}
	plan_edges(change);
	change->hole = first;
	change->hole_count = stop - first;
	return change_run_freeing(change);
}

/*
 * One delta: at most DATA_BATCH_MAX blocks.  All of them are named to the back end, which fills what is a hole when it
 * commits: that is no more than what was counted, since only this thread changes the file, but for page faults, which pay
 * for themselves.
 */
static int change_fill(struct data_change *change, u64 block, u64 count, u64 new_size)
{
	struct data_count counts;
	int err;

	change->looked = READ_ONCE(change->inode->vol->delta.front);
	err = data_look_count(change->inode, block, count, &counts);
	change->new_size = max(change->size, new_size);
	if (err || (!counts.holes && change->new_size == change->size && !change->set))
		return err;
	plan_edges(change);
	change->fill = block;
	change->fill_count = count;
	change->holes = counts.holes;
	change->promised = counts.promised;
	return change_run(change, space_cost_prealloc(change->inode->vol, counts.holes));
}

/*
 * A fill for which there is no room is not begun: it would take all there is before it fails.  What the file has is only looked for
 * where it matters, and no further than until it is too much.  A punch before it gives no room to it in the end, and makes
 * everything preallocated.
 */
static int change_ask(struct data_change *change, unsigned int what, u64 from, u64 to)
{
	struct volume *vol = change->inode->vol;
	u64 block = from >> vol->block_shift, end = ((to - 1) >> vol->block_shift) + 1, holes = 0, promised = 0;
	struct data_look look;
	int got;

	if (space_has(vol, end - block, end - block))
		return 0;
	data_look_begin(&look, change->inode, block, end);
	while ((got = data_look_next(&look)) > 0 && !space_never_has(vol, holes, promised)) {
		if (look.kind == DATA_HOLE)
			holes += look.count;
		if (look.kind == DATA_HOLE || (what & DATA_PUNCH && look.kind != DATA_UNWRITTEN))
			promised += look.count;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return got < 0 ? got : holes ? space_ask(vol, holes, promised) : 0;
}

int data_fallocate(struct data_change *change, unsigned int what, u64 from, u64 to)
{
	u32 max = DATA_BATCH_MAX, shift = change->inode->vol->block_shift;
	int err = what & DATA_FILL && from < to ? change_ask(change, what, from, to) : 0;

	if (!err && what & DATA_PUNCH)
		err = change_punch(change, from, to);

	while (!err && what & DATA_FILL && from < to) {
		u64 block = from >> shift, last = (to - 1) >> shift, count = min_t(u64, max, last - block + 1);
		u64 stop = min(to, (block + count) << shift);

		data_change_reset(change);
		err = change_fill(change, block, count, what & DATA_KEEP_SIZE ? 0 : stop);
		if (err == -ESTALE || data_batch_smaller(change->inode->vol, &max, from, stop, err)) {
			err = 0;
			continue;
		}
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
		from = stop;
		cond_resched();
	}
	return err;
}

int data_set_apart(struct data_change *change)
{
	plan_edges(change);
	change->fill = 0;
	change->fill_count = 1;
	change->apart = true;
	return change_run(change, space_cost_prealloc(change->inode->vol, 1));
}
