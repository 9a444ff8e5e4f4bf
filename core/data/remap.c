// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Remaps: how they are put together, and given to a delta.  Described in remap.h; what the commit does with them: data_commit.c.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/inode/inode.h"
#include "core/inode/inode_quota.h"
#include "core/inode/path.h"
#include "core/data/data.h"
#include "core/data/reach.h"
#include "core/data/remap.h"

#define REMAP_TRIES		8u	/* where stores to mappings get between */
#define REMAP_COST_MAX		60000u	/* extents of a cost, of which there are several then: DELTA_TIMES() */
#define REMAP_COST_ITEMS	120u	/* and items */
#define RANGE_ITEMS		6u	/* extents that lie across its ends are cut */

/* ---- in memory ---- */

static void remap_free(struct data_remap *remap)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(remap->side); i++) {
		kvfree(remap->side[i].ranges);
		kvfree(remap->side[i].runs);
		kvfree(remap->side[i].csums);
	}
	kfree(remap);
}

/* An array of count elements, with room for so many: one with room for at least more in addition. */
static void *array_grow(void *old, u64 count, u64 room, u32 size)
{
	void *new = kvmalloc(room * size, GFP_NOFS | __GFP_NOWARN);

	if (!new)
		return NULL;
	if (count)
		memcpy(new, old, count * size);
	kvfree(old);
	return new;
}

static int side_add_range(struct remap_side *side, u64 block, u64 count)
{
	if (side->range_count == side->range_room) {
		u32 room = side->range_room ? 2 * side->range_room : 1;
		void *ranges = array_grow(side->ranges, side->range_count, room, sizeof(*side->ranges));

		if (!ranges)
			return -ENOMEM;
		side->ranges = ranges;
		side->range_room = room;
	}
	side->ranges[side->range_count++] = (struct remap_range){ .block = block, .count = count };
	return 0;
}

static int side_add_csums(struct remap_side *side, const __le32 *csums, u32 count)
{
	if (side->csum_count + count > side->csum_room) {
		u64 room = max_t(u64, 2 * side->csum_room, LOG_EXTENT_BLOCKS);
		void *new = array_grow(side->csums, side->csum_count, room, sizeof(*csums));

		if (!new)
			return -ENOMEM;
		side->csums = new;
		side->csum_room = room;
	}
	memcpy(side->csums + side->csum_count, csums, count * sizeof(*csums));
	side->csum_count += count;
	return 0;
}

static u32 run_max(u32 flags)
{
	return flags & TUX3_EXTENT_CSUM ? LOG_EXTENT_BLOCKS : TUX3_EXTENT_MAX;
}

static bool run_goes_on(const struct remap_run *last, const struct remap_run *run)
{
	return last->block + last->count == run->block && last->addr + last->count == run->addr && last->flags == run->flags &&
	       last->count + run->count <= run_max(run->flags);
}

static int side_add_run(struct remap_side *side, struct remap_run *run, const __le32 *csums)
{
	int err = run->flags & TUX3_EXTENT_CSUM ? side_add_csums(side, csums, run->count) : 0;

	if (err)
		return err;
	side->blocks += run->count;
	side->unwritten |= run->flags & TUX3_EXTENT_UNWRITTEN;
	if (side->run_count && run_goes_on(&side->runs[side->run_count - 1], run)) {
		side->runs[side->run_count - 1].count += run->count;
		return 0;
	}
	if (side->run_count == side->run_room) {
		u32 room = max(2 * side->run_room, 16u);
		void *runs = array_grow(side->runs, side->run_count, room, sizeof(*run));

		if (!runs)
			return -ENOMEM;
		side->runs = runs;
		side->run_room = room;
	}
	side->runs[side->run_count++] = *run;
	return 0;
}

/* ---- what it takes ---- */

static u64 side_log_bytes(const struct remap_side *side)
{
	u64 records = (u64)side->run_count + side->range_count;

	return records * (sizeof(struct disk_record) + sizeof(struct record_extent)) + side->csum_count * sizeof(__le32);
}

static int remap_check_size(const struct data_remap *remap, struct volume *vol)
{
	u64 bytes = side_log_bytes(&remap->side[0]) + side_log_bytes(&remap->side[1]);

	return bytes > vol->opts.remap_bytes ? -EFBIG : 0;
}

/* An item for each run; its checksums as bytes.  *flags: how many times. */
static u64 remap_cost(const struct data_remap *remap, struct volume *vol, unsigned int *flags)
{
	u64 items = SPACE_ITEMS_REMAP, bytes = 0, extents, times;
	u32 i;

	for (i = 0; i < remap->sides; i++) {
		const struct remap_side *side = &remap->side[i];
		u64 ranges = side->range_count + !!side->drop.count;

		items += side->run_count + ranges * RANGE_ITEMS;
		bytes += side->csum_count * sizeof(__le32) + ranges * 2 * TUX3_ITEM_MAX(vol->block_size);
	}
	extents = DIV_ROUND_UP(bytes, SPACE_EXTENT_BYTES / 3);
	times = max(DIV_ROUND_UP(items, REMAP_COST_ITEMS), DIV_ROUND_UP(extents, REMAP_COST_MAX));
	*flags = DELTA_TIMES((u32)times);
	return space_cost_items(vol, DIV_ROUND_UP(items, times)) + (DIV_ROUND_UP(extents, times) << SPACE_EXTENTS_SHIFT);
}

/* ---- putting together ---- */

/* Blocks of a file, as the tree has them, come to side at to. */
struct remap_source {
	struct tux3_inode *inode;
	u64 block, end;
	u64 to;
};

static u32 extent_flags(struct volume *vol, const struct data_extent *extent)
{
	if (extent->kind == DATA_UNWRITTEN)
		return TUX3_EXTENT_UNWRITTEN;
	if (extent->has_csum)
		return TUX3_EXTENT_CSUM;
	return vol->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM ? TUX3_EXTENT_UNCHECKED : 0;
}

/* The file is damaged or forged, and stays as it is: the commit could not go on, and leave out the rest of a remap. */
static int remap_refuse(const struct tux3_inode *inode, u64 block, const char *what)
{
	inode_warn(inode->vol, "file", inode->ino, ": the extent at block %llu has blocks that %s: fsck.tux3 -y repairs that",
		   (unsigned long long)block, what);
	return -EIO;
}

/* Its blocks leave the file for a moment, and come back: so they had better be its own. */
static int run_look(const struct tux3_inode *inode, u64 block, const struct remap_run *run)
{
	int own = balloc_may_be_data(inode->vol, run->addr, run->count);

	return own > 0 ? 0 : own ? own : remap_refuse(inode, block, "are not in use");
}

static int remap_read(struct data_remap *remap, struct remap_side *side, const struct remap_source *source)
{
	__le32 *csums = kvmalloc(LOG_EXTENT_BLOCKS * sizeof(*csums), GFP_NOFS);
	struct volume *vol = source->inode->vol;
	struct data_extent extent;
	u64 block = source->block;
	int err = csums ? 0 : -ENOMEM;

	while (!err && block < source->end) {
		struct remap_run run;

		extent = (struct data_extent){ .block = block, .count = source->end - block };
		err = data_map_tree(source->inode, &extent, csums, LOG_EXTENT_BLOCKS);
		if (!err && extent.kind != DATA_HOLE) {
			run = (struct remap_run){
				.block = source->to + (block - source->block), .addr = extent.addr,
				.flags = extent_flags(vol, &extent), .csum = side->csum_count,
			};
			extent.count = min_t(u64, extent.count, run_max(run.flags));
			run.count = extent.count;
			/* What was preallocated behind the end of the file moves, too. */
			err = run.block + run.count - 1 > TUX3_SIZE_MAX >> vol->block_shift ? -EFBIG :
			      run_look(source->inode, block, &run);
			if (!err)
				err = side_add_run(side, &run, csums);
		}
		block += extent.count;
		if (!err)
			err = remap_check_size(remap, vol);
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	}
	kvfree(csums);
	return err;
}

static bool ranges_meet(const struct block_range *ranges, u64 count, u64 addr, u64 len)
{
	u64 low = 0, high = count;

	while (low < high) {
		u64 middle = low + (high - low) / 2;

		if (ranges[middle].addr + ranges[middle].len <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && ranges[low].addr < addr + len;
}

/* Of what goes, none is also what moves. */
static int drop_look(const struct remap_side *side, const struct block_range *ranges, u64 count)
{
	struct data_extent extent = { .block = side->drop.block };
	u64 end = side->drop.block + side->drop.count;
	int err = 0;

	for (; !err && extent.block < end; extent.block += extent.count) {
		extent.count = end - extent.block;
		err = data_map_tree(side->inode, &extent, NULL, 0);
		if (!err && extent.kind != DATA_HOLE && ranges_meet(ranges, count, extent.addr, extent.count))
			err = remap_refuse(side->inode, extent.block, "others of the file have, too");
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	}
	return err;
}

/* No block moves twice. */
static int remap_look(const struct data_remap *remap)
{
	const struct remap_side *side = remap->side;
	u64 count = (u64)side[0].run_count + side[1].run_count, blocks = side[0].blocks + side[1].blocks, n;
	struct block_range *ranges = kvmalloc(max(count, 1ULL) * sizeof(*ranges), GFP_NOFS | __GFP_NOWARN);
	int err = 0;

	if (!ranges)
		return -ENOMEM;
	for (n = 0; n < count; n++) {
		const struct remap_run *run = n < side[0].run_count ? &side[0].runs[n] : &side[1].runs[n - side[0].run_count];

		ranges[n] = (struct block_range){ run->addr, run->count };
	}
	count = block_ranges_unite(ranges, count);
	for (n = 0; n < count; n++)
		blocks -= ranges[n].len;
	if (blocks)
		err = remap_refuse(side[0].inode, side[0].ranges[0].block, "others of the file have, too");
	if (!err)
		err = drop_look(&side[0], ranges, count);
	kvfree(ranges);
	return err;
}

/* All that was changed of the file before is durable, and it is not inline. */
static int remap_settle(struct tux3_inode *inode, const struct data_remap_ops *ops)
{
	int err = data_cut_wait(inode);
	u32 tries;

	for (tries = 0; !err && tries < REMAP_TRIES; tries++) {
		err = ops->settle ? ops->settle(inode) : 0;
		if (!err)
			err = delta_commit_inode(inode);
		if (err || !(READ_ONCE(inode->attr.flags) & TUX3_ATTR_INLINE))
			return err;
		err = ops->apart(inode);
	}
	return err ? err : -EBUSY;
}

/* Locked: with what got dirty until then, and without what is cached.  -EAGAIN: something still is. */
static int remap_clean(struct tux3_inode *inode, const struct data_remap_ops *ops, u64 block, u64 count)
{
	u64 end = count > DATA_END - block ? DATA_END : block + count, at, more;
	int err = delta_commit_inode(inode);
	u32 dirty;

	if (!err && count)
		err = ops->drop(inode, block, end - block);
	if (err)
		return err;
	spin_lock(&inode->lock);
	dirty = inode_slot_of(inode, 0)->dirty | inode_slot_of(inode, 1)->dirty;
	spin_unlock(&inode->lock);
	if (dirty & (INODE_DIRTY_DATA | INODE_DIRTY_REMAP) || READ_ONCE(inode->attr.flags) & TUX3_ATTR_INLINE)
		return -EAGAIN;
	return inode->vol->host->data_dirty(inode, block, end, &at, &more) ? -EAGAIN : 0;
}

static void remap_unlock(struct tux3_inode *const *inode, const struct data_remap_ops *ops)
{
	if (ops->unlock)
		ops->unlock(inode[0], inode[1]);
}

/* inode[1] may be NULL, or the other one.  Locked on return 0; nothing in the cache has to do with these blocks, if any. */
static int remap_prepare(struct tux3_inode *const *inode, const struct data_remap_ops *ops, const u64 *block, u64 count)
{
	u32 tries, i;
	int err = -EAGAIN;

	for (tries = 0; err == -EAGAIN && tries < REMAP_TRIES; tries++) {
		for (i = 0, err = 0; i < 2 && inode[i] && !err; i++)
			err = remap_settle(inode[i], ops);
		if (err)
			break;
		if (ops->lock)
			ops->lock(inode[0], inode[1]);
		for (i = 0; i < 2 && inode[i] && !err; i++)
			err = remap_clean(inode[i], ops, block[i], count);
		if (err)
			remap_unlock(inode, ops);
	}
	return err == -EAGAIN ? -EBUSY : err;
}

/* ---- to a delta ---- */

/* Inside. */
static void side_change(struct data_remap *remap, struct remap_side *side, const struct data_remap_ops *ops, struct delta_op *op)
{
	struct tux3_inode *inode = side->inode;
	struct tux3_attr *attr = inode_change_begin(op, inode);

	attr->mtime = attr->ctime = inode_now(op->vol);
	attr->size = side->new_size;
	if (side->unwritten)
		WRITE_ONCE(attr->flags, attr->flags | TUX3_ATTR_PREALLOC);
	WRITE_ONCE(inode->remap, remap);
	inode_dirty_locked(op, inode, INODE_DIRTY_REMAP);
	if (ops->changed)
		ops->changed(inode);
	if (side->drop.count || remap->sides == 2)
		inode_quota_frees_locked(op, inode, false);
	inode_change_end(inode);
}

/* Who gets more blocks than he gives is charged for them, unless they come from what counts for the same. */
static int remap_enter(struct data_remap *remap, struct delta_op *op)
{
	struct remap_side *a = &remap->side[0], *b = &remap->side[1], *gains = b->blocks > a->blocks ? b : a;
	struct remap_side *loses = gains == a ? b : a;
	struct volume *vol = a->inode->vol;
	unsigned int flags;
	u64 cost = remap_cost(remap, vol, &flags);
	struct quota_charge charge = {};

	if (remap->sides == 1 || a->inode == b->inode)
		return delta_enter(vol, op, cost, flags);
	charge.amount.blocks = gains->blocks - loses->blocks;
	charge.kept = loses->inode->owner;
	return inode_quota_enter(gains->inode, op, cost, flags, &charge);
}

/* What the commit changes of a file: can all be read?  A half of a remap it cannot leave out. */
static int side_can_be_read(const struct remap_side *side)
{
	int err = READ_ONCE(side->inode->stuck) ? -EIO : reach_item(side->inode, TUX3_ITEM_ATTR);
	u32 i;

	if (!err)
		err = inode_quota_read(side->inode);
	if (!err && side->drop.count)
		err = reach_all(side->inode, side->drop.block, side->drop.count);
	for (i = 0; i < side->range_count && !err; i++)
		err = reach_all(side->inode, side->ranges[i].block, side->ranges[i].count);
	return err;
}

/* Takes over the remap, whatever becomes of it. */
static int remap_run(struct data_remap *remap, const struct data_remap_ops *ops)
{
	struct volume *vol = remap->side[0].inode->vol;
	struct delta_op op;
	u64 delta;
	u32 i;
	int err = 0;

	for (i = 0; i < remap->sides && !err; i++)
		err = side_can_be_read(&remap->side[i]);
	if (!err)
		err = remap_enter(remap, &op);
	if (err) {
		remap_free(remap);
		return err;
	}
	side_change(remap, &remap->side[0], ops, &op);
	if (remap->sides == 2 && remap->side[1].inode != remap->side[0].inode)
		side_change(remap, &remap->side[1], ops, &op);
	delta_add_change(&op, 0);
	llist_add(&remap->link, &vol->delta.remaps[op.delta & 1]);
	delta = op.delta;
	delta_leave(&op);
	return delta_commit_through(vol, delta);
}

static struct data_remap *remap_new(struct tux3_inode *a, struct tux3_inode *b)
{
	struct data_remap *remap = kzalloc(sizeof(*remap), GFP_NOFS);

	if (!remap)
		return NULL;
	remap->sides = b ? 2 : 1;
	remap->side[0].inode = a;
	remap->side[0].new_size = a->attr.size;
	remap->side[1].inode = b;
	if (b)
		remap->side[1].new_size = b->attr.size;
	return remap;
}

/* ---- exchange ---- */

/* In blocks. */
struct exchange_plan {
	u64 block[2], count;
	u64 size[2], new_size[2];
	u64 whole;		/* of the blocks, those from here on go whatever FILE1_WRITTEN says: the ends of files are there */
};

static bool ends_fit(const struct data_exchange *exchange, const struct exchange_plan *plan)
{
	return exchange->offset[0] + exchange->len == plan->size[0] && exchange->offset[1] + exchange->len == plan->size[1];
}

static int plan_to_eof(const struct data_exchange *exchange, struct exchange_plan *plan, u64 *len)
{
	u64 left[2] = { plan->size[0] - exchange->offset[0], plan->size[1] - exchange->offset[1] };
	u32 shift = exchange->inode[0]->vol->block_shift;

	if (exchange->offset[0] > plan->size[0] || exchange->offset[1] > plan->size[1])
		return -EINVAL;
	if (left[1] > TUX3_SIZE_MAX - exchange->offset[0] || left[0] > TUX3_SIZE_MAX - exchange->offset[1])
		return -EFBIG;
	plan->new_size[0] = exchange->offset[0] + left[1];
	plan->new_size[1] = exchange->offset[1] + left[0];
	plan->whole = min(left[0], left[1]) >> shift;
	*len = max(left[0], left[1]);
	return 0;
}

static int exchange_make_plan(const struct data_exchange *exchange, struct exchange_plan *plan)
{
	u32 shift = exchange->inode[0]->vol->block_shift, mask = exchange->inode[0]->vol->block_size - 1, i;
	bool same = exchange->inode[0] == exchange->inode[1];
	u64 len = exchange->len;
	int err = 0;

	for (i = 0; i < 2; i++)
		plan->size[i] = plan->new_size[i] = exchange->inode[i]->attr.size;
	plan->whole = DATA_END;
	if ((exchange->offset[0] | exchange->offset[1]) & mask || exchange->offset[0] > TUX3_SIZE_MAX ||
	    exchange->offset[1] > TUX3_SIZE_MAX || (same && exchange->flags & EXCHANGE_TO_EOF))
		return -EINVAL;
	if (exchange->flags & EXCHANGE_TO_EOF)
		err = plan_to_eof(exchange, plan, &len);
	else if (len > TUX3_SIZE_MAX || exchange->offset[0] + len > plan->size[0] || exchange->offset[1] + len > plan->size[1] ||
		 (len & mask && !ends_fit(exchange, plan)))
		err = -EINVAL;
	plan->block[0] = exchange->offset[0] >> shift;
	plan->block[1] = exchange->offset[1] >> shift;
	plan->count = (len + mask) >> shift;
	if (!err && same && plan->block[0] < plan->block[1] + plan->count && plan->block[1] < plan->block[0] + plan->count)
		err = -EINVAL;
	return err;
}

/* Blocks of the plan [at, at + count) swap. */
static int exchange_part(struct data_remap *remap, const struct exchange_plan *plan, u64 at, u64 count)
{
	int err = 0;
	u32 i;

	for (i = 0; i < 2 && !err; i++) {
		u64 block = plan->block[i] + at, other = plan->block[!i] + at;
		struct remap_source source = {
			.inode = remap->side[!i].inode, .block = other, .end = other + count, .to = block,
		};

		err = side_add_range(&remap->side[i], block, count);
		if (!err)
			err = remap_read(remap, &remap->side[i], &source);
	}
	return err;
}

/* What file 1 has no data for stays, but from plan->whole on. */
static int exchange_written(struct data_remap *remap, const struct exchange_plan *plan)
{
	struct tux3_inode *inode = remap->side[0].inode;
	u64 at = 0, end = min(plan->whole, plan->count);
	int err = 0;

	while (!err && at < end) {
		struct data_extent extent = { .block = plan->block[0] + at, .count = end - at };

		err = data_map_tree(inode, &extent, NULL, 0);
		if (!err && extent.kind == DATA_MAPPED)
			err = exchange_part(remap, plan, at, extent.count);
		at += extent.count;
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	}
	return err || end == plan->count ? err : exchange_part(remap, plan, end, plan->count - end);
}

static void data_freshness(struct tux3_inode *inode, u64 *words)
{
	struct tux3_attr attr;

	inode_get_attr(inode, &attr);
	words[0] = inode->vol->id;
	words[1] = inode->ino;
	words[2] = attr.generation;
	words[3] = attr.change;
	words[4] = (u64)attr.mtime.sec * 1000000000 + attr.mtime.nsec;
	words[5] = (u64)attr.ctime.sec * 1000000000 + attr.ctime.nsec;
}

/* A page that a store has made writable again since its commit took it would take others, and nobody would notice. */
int data_start_commit(struct tux3_inode *inode, const struct data_remap_ops *ops, u64 *words)
{
	struct tux3_inode *const alone[2] = { inode };
	const u64 block = 0;
	int err = remap_prepare(alone, ops, &block, 0);

	if (err)
		return err;
	data_freshness(inode, words);
	remap_unlock(alone, ops);
	return 0;
}

static bool is_fresh(const struct data_exchange *exchange)
{
	u64 words[EXCHANGE_FRESH_WORDS];

	if (!exchange->fresh)
		return true;
	data_freshness(exchange->inode[1], words);
	return !memcmp(words, exchange->fresh, sizeof(words));
}

static int exchange_run(const struct data_exchange *exchange, const struct exchange_plan *plan)
{
	struct data_remap *remap = remap_new(exchange->inode[0], exchange->inode[1]);
	int err;

	if (!remap)
		return -ENOMEM;
	remap->side[0].new_size = plan->new_size[0];
	remap->side[1].new_size = plan->new_size[1];
	if (exchange->flags & EXCHANGE_FILE1_WRITTEN)
		err = exchange_written(remap, plan);
	else
		err = exchange_part(remap, plan, 0, plan->count);
	if (!err && remap->side[0].range_count)
		err = remap_look(remap);
	if (!err && remap->side[0].range_count && exchange->begins)
		err = exchange->begins(exchange);
	if (!err && remap->side[0].range_count)
		return remap_run(remap, exchange->ops);
	remap_free(remap);
	return err;
}

int data_exchange(const struct data_exchange *exchange)
{
	struct exchange_plan plan;
	int err = is_fresh(exchange) ? exchange_make_plan(exchange, &plan) : -EBUSY;

	if (err || exchange->flags & EXCHANGE_DRY_RUN || !plan.count)
		return err;
	err = remap_prepare(exchange->inode, exchange->ops, plan.block, plan.count);
	if (err)
		return err;
	/* Stores through mappings may have come in between. */
	err = is_fresh(exchange) ? exchange_run(exchange, &plan) : -EBUSY;
	remap_unlock(exchange->inode, exchange->ops);
	return err;
}

/* ---- the end of a file moves ---- */

static int tail_run(struct tux3_inode *inode, const struct data_remap_ops *ops, u64 from, u64 to, u64 new_size)
{
	struct remap_source source = { .inode = inode, .block = from, .end = DATA_END, .to = to };
	struct data_remap *remap = remap_new(inode, NULL);
	u64 first = min(from, to);
	int err;

	if (!remap)
		return -ENOMEM;
	remap->side[0].new_size = new_size;
	if (to < from)
		remap->side[0].drop = (struct remap_range){ .block = to, .count = from - to };
	err = side_add_range(&remap->side[0], first, DATA_END - first);
	if (!err)
		err = remap_read(remap, &remap->side[0], &source);
	if (!err)
		err = remap_look(remap);
	if (!err)
		return remap_run(remap, ops);
	remap_free(remap);
	return err;
}

static int remap_tail(struct tux3_inode *inode, const struct data_remap_ops *ops, u64 from, u64 to, u64 new_size)
{
	struct tux3_inode *const both[2] = { inode, NULL };
	u64 first = min(from, to);
	int err = remap_prepare(both, ops, &first, DATA_END - first);

	if (err)
		return err;
	err = tail_run(inode, ops, from, to, new_size);
	remap_unlock(both, ops);
	return err;
}

int data_collapse(struct tux3_inode *inode, const struct data_remap_ops *ops, u64 from, u64 len)
{
	u32 shift = inode->vol->block_shift;
	u64 size = inode->attr.size;

	if (!len || (from | len) & (inode->vol->block_size - 1) || from >= size || len >= size - from)
		return -EINVAL;
	return remap_tail(inode, ops, (from + len) >> shift, from >> shift, size - len);
}

int data_insert(struct tux3_inode *inode, const struct data_remap_ops *ops, u64 from, u64 len)
{
	u32 shift = inode->vol->block_shift;
	u64 size = inode->attr.size;

	if (!len || (from | len) & (inode->vol->block_size - 1) || from >= size)
		return -EINVAL;
	if (len > TUX3_SIZE_MAX - size)
		return -EFBIG;
	return remap_tail(inode, ops, from >> shift, (from + len) >> shift, size + len);
}

/* ---- instead of the tree ---- */

static void run_fill(struct data_extent *out, const struct remap_side *side, const struct remap_run *run, __le32 *csum,
		     u32 csum_max)
{
	u64 skip = out->block - run->block;

	out->kind = run->flags & TUX3_EXTENT_UNWRITTEN ? DATA_UNWRITTEN : DATA_MAPPED;
	out->addr = run->addr + skip;
	out->count = min(out->count, run->count - skip);
	out->has_csum = run->flags & TUX3_EXTENT_CSUM;
	if (out->has_csum && csum_max)
		memcpy(csum, side->csums + run->csum + skip, min_t(u64, out->count, csum_max) * sizeof(*csum));
}

/* How many of the ranges, and of the runs, begin at this block or before it. */
static u32 ranges_to(const struct remap_side *side, u64 block)
{
	u32 low = 0, high = side->range_count;

	while (low < high) {
		u32 mid = low + (high - low) / 2;

		if (side->ranges[mid].block <= block)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static u32 runs_to(const struct remap_side *side, u64 block)
{
	u32 low = 0, high = side->run_count;

	while (low < high) {
		u32 mid = low + (high - low) / 2;

		if (side->runs[mid].block <= block)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool side_look(const struct remap_side *side, struct data_extent *out, __le32 *csum, u32 csum_max)
{
	u32 range = ranges_to(side, out->block), run = runs_to(side, out->block);
	u64 left = range ? side->ranges[range - 1].count - min(side->ranges[range - 1].count,
							       out->block - side->ranges[range - 1].block) : 0;

	if (!left) {
		if (range < side->range_count)
			out->count = min(out->count, side->ranges[range].block - out->block);
		return false;
	}
	out->count = min(out->count, left);
	if (run && out->block - side->runs[run - 1].block < side->runs[run - 1].count) {
		run_fill(out, side, &side->runs[run - 1], csum, csum_max);
		return true;
	}
	out->kind = DATA_HOLE;
	if (run < side->run_count)
		out->count = min(out->count, side->runs[run].block - out->block);
	return true;
}

bool data_remap_look(struct tux3_inode *inode, struct data_extent *extent, __le32 *csum, u32 csum_max)
{
	struct data_remap *remap;
	bool found = false;
	u32 i;

	spin_lock(&inode->lock);
	remap = inode->remap;
	for (i = 0; remap && i < remap->sides && !found; i++)
		found = remap->side[i].inode == inode && side_look(&remap->side[i], extent, csum, csum_max);
	spin_unlock(&inode->lock);
	return found;
}

void data_remaps_done(struct llist_node *list)
{
	struct data_remap *remap, *next;
	u32 i;

	llist_for_each_entry_safe(remap, next, list, link) {
		for (i = 0; i < remap->sides; i++) {
			struct tux3_inode *inode = remap->side[i].inode;

			spin_lock(&inode->lock);
			WRITE_ONCE(inode->remap, NULL);
			spin_unlock(&inode->lock);
		}
		remap_free(remap);
	}
}
