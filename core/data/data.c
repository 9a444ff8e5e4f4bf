// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where file data is: the front end's view.  Described in data.h.
 *
 * A block removed in a delta that is not applied yet is a hole, whatever the tree says: so the ranges
 * removed are looked at first, the tree second.  (The other way round could see the old extent, then
 * find that the removal has been applied and forgotten.)
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/log/apply.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/inode/file_range.h"
#include "core/inode/inode.h"
#include "core/inode/inode_quota.h"
#include "core/inode/path.h"
#include "core/data/data.h"
#include "core/data/delete.h"
#include "core/data/remap.h"

/* ---- the newest state: removed ranges, then the tree ---- */

static bool data_removed(struct tux3_inode *inode, u64 block, u64 *count)
{
	bool removed = false;
	u64 here;
	int i;

	*count = DATA_END - block;
	spin_lock(&inode->lock);
	for (i = 0; i < 2; i++) {
		bool in = file_ranges_find(&inode->slot[i].removed, block, &here);

		if (in && !removed)
			*count = here;		/* the first set that has it decides how far */
		else if (in)
			*count = max(*count, here);
		else if (!removed)
			*count = min(*count, here);
		removed |= in;
	}
	spin_unlock(&inode->lock);
	return removed;
}

/*
 * The extent in the tree that has the block.  1: *extent filled, *start is its first file block; 0: none.  now: -EAGAIN rather
 * than wait.
 */
static int extent_at(struct tux3_inode *inode, u64 block, struct disk_extent *extent, u64 *start, bool now)
{
	struct volume *vol = inode->vol;
	struct tree_key first = tree_key(inode->ino, TUX3_ITEM_EXTENT, 0), found;
	struct tree_key at = tree_key(inode->ino, TUX3_ITEM_EXTENT, block);
	u32 size = TUX3_ITEM_MAX(vol->block_size);
	int len = (now ? tree_lookup_before_now : tree_lookup_before)(vol, &at, &first, &found, extent, size);

	if (len == -ENOENT || (len > 0 && !extent_check(vol, extent, len) &&
			       found.offset + le32_to_cpu(extent->len) <= block))
		return 0;
	if (len < 0)
		return len;
	if (extent_check(vol, extent, len)) {
		inode_warn(vol, "file", inode->ino, ": the extent at block %llu is not valid", (unsigned long long)found.offset);
		return -EIO;
	}
	*start = found.offset;
	return 1;
}

struct next_extent {
	u64 block;
	bool found;
	bool unwritten;
	u64 len;
};

static int next_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct next_extent *next = ctx;
	struct disk_extent extent;

	if (len < sizeof(extent))
		return -EIO;
	memcpy(&extent, data, sizeof(extent));	/* items are not aligned */
	next->block = key->offset;
	next->unwritten = le32_to_cpu(extent.flags) & TUX3_EXTENT_UNWRITTEN;
	next->len = le32_to_cpu(extent.len);
	next->found = true;
	return 1;
}

/* The first extent that starts in these blocks.  What is behind them, in another leaf perhaps, is not looked at. */
static int extent_after(struct tux3_inode *inode, u64 block, u64 count, struct next_extent *next)
{
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_EXTENT, block);
	struct tree_key to = tree_key(inode->ino, TUX3_ITEM_EXTENT, count > DATA_END - block ? DATA_END : block + count - 1);
	int err;

	next->found = false;
	err = tree_scan(inode->vol, &from, &to, next_item, next);
	return err < 0 ? err : 0;
}

static void map_fill(struct data_extent *out, const struct disk_extent *extent, u64 start, __le32 *csum, u32 csum_max)
{
	u64 skip = out->block - start, left = le32_to_cpu(extent->len) - skip;
	u32 flags = le32_to_cpu(extent->flags);

	out->kind = flags & TUX3_EXTENT_UNWRITTEN ? DATA_UNWRITTEN : DATA_MAPPED;
	out->addr = le64_to_cpu(extent->addr) + skip;
	out->count = min(out->count, left);
	out->whole_addr = le64_to_cpu(extent->addr);
	out->whole = le32_to_cpu(extent->len);
	out->has_csum = flags & TUX3_EXTENT_CSUM;
	out->birth = le64_to_cpu(extent->birth);
	if (out->has_csum && csum_max)
		memcpy(csum, extent->csum + skip, min_t(u64, out->count, csum_max) * sizeof(__le32));
}

/*
 * What the tree says, for up to out->count blocks from out->block on.  For a hole it is asked twice, and a commit that preallocates
 * may come between: what is there now does not begin with a hole any more.
 */
int data_map_tree(struct tux3_inode *inode, struct data_extent *out, __le32 *csum, u32 csum_max)
{
	struct disk_extent *extent = kvmalloc(TUX3_ITEM_MAX(inode->vol->block_size), GFP_COMMIT);
	struct next_extent next;
	u64 start;
	int err;

	if (!extent)
		return -ENOMEM;
	do {
		next.found = false;
		err = extent_at(inode, out->block, extent, &start, false);
		if (!err)
			err = extent_after(inode, out->block, out->count, &next);
	} while (!err && next.found && next.block == out->block);
	if (err == 1) {
		map_fill(out, extent, start, csum, csum_max);
		err = 0;
	} else if (!err) {
		out->kind = DATA_HOLE;
		if (next.found)
			out->count = min(out->count, next.block - out->block);
	}
	kvfree(extent);
	return err;
}

#define LAYOUT_EXTENTS 32u	/* looked at behind a block */

struct layout_look {
	struct data_layout *layout;
	u64 from, end, block;
	u32 left;
};

/* The vote of an extent; a majority stays (Boyer and Moore). */
static void layout_vote(struct data_layout *layout, u64 base, u64 blocks)
{
	if (base == layout->base) {
		layout->votes += blocks;
	} else if (blocks > layout->votes) {
		layout->votes = blocks - layout->votes;
		layout->base = base;
	} else {
		layout->votes -= blocks;
	}
}

/* An extent at this file block, which may begin before from and end behind end. */
static void layout_add(struct layout_look *look, u64 block, const struct disk_extent *extent)
{
	struct data_layout *layout = look->layout;
	u64 addr = le64_to_cpu(extent->addr), high = min(block + le32_to_cpu(extent->len), look->end);
	u64 low = max(block, look->from);

	if (high <= low)
		return;
	if (high <= look->block)
		layout->hole = max(layout->hole, high);
	else
		layout->hole_end = min(layout->hole_end, low);
	layout->low = min(layout->low, low);
	layout->high = max(layout->high, high);
	layout->blocks += high - low;
	if (block < look->from)
		layout_vote(layout, addr + (look->from - block), high - low);
	else if (addr > block - look->from)
		layout_vote(layout, addr - (block - look->from), high - low);
}

static int layout_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct layout_look *look = ctx;
	struct disk_extent extent;

	if (len < sizeof(extent))
		return -EIO;
	memcpy(&extent, data, sizeof(extent));	/* items are not aligned */
	layout_add(look, key->offset, &extent);
	return !--look->left;
}

int data_layout(struct tux3_inode *inode, u64 from, u64 end, u64 block, struct data_layout *layout)
{
	struct tree_key first = tree_key(inode->ino, TUX3_ITEM_EXTENT, 0), at = tree_key(inode->ino, TUX3_ITEM_EXTENT, block);
	struct tree_key last = tree_key(inode->ino, TUX3_ITEM_EXTENT, end - 1), found;
	struct layout_look look = { .layout = layout, .from = from, .end = end, .block = block, .left = LAYOUT_EXTENTS };
	struct disk_extent extent;
	int err;

	*layout = (struct data_layout){ .hole = from, .hole_end = end, .low = block, .high = block + 1 };
	err = tree_lookup_before(inode->vol, &at, &first, &found, &extent, sizeof(extent));
	if (err >= (int)sizeof(extent)) {
		layout->mapped = block - found.offset < le32_to_cpu(extent.len);
		if (layout->mapped)
			return 0;
		layout_add(&look, found.offset, &extent);
		layout->hole_addr = le64_to_cpu(extent.addr) + (layout->hole - found.offset);
	} else if (err != -ENOENT) {
		return err < 0 ? err : -EIO;
	}
	err = tree_scan(inode->vol, &at, &last, layout_item, &look);
	return min(err, 0);
}

/* What overrides the tree.  false: nothing does, for up to extent->count blocks. */
static bool map_without_tree(struct tux3_inode *inode, u64 block, u64 max, struct data_extent *extent, __le32 *csum, u32 csum_max)
{
	u64 count;
	bool is_inline;

	memset(extent, 0, sizeof(*extent));
	extent->block = block;
	extent->kind = DATA_HOLE;
	if (unlikely(READ_ONCE(inode->remap))) {
		extent->count = max;
		if (data_remap_look(inode, extent, csum, csum_max))
			return true;
		max = extent->count;
	}
	if (data_removed(inode, block, &count)) {
		extent->count = min(count, max);
		return true;
	}
	extent->count = min(count, max);
	spin_lock(&inode->lock);
	is_inline = inode_attr(inode)->flags & TUX3_ATTR_INLINE;
	spin_unlock(&inode->lock);
	if (is_inline) {
		extent->kind = block ? DATA_HOLE : DATA_INLINE;
		extent->count = block ? extent->count : 1;
	}
	return is_inline;
}

/*
 * A file that is stuck may have become longer, with zeros in the block where it ended, or been cut off there before.  That is lost,
 * too, so from its old end on the device has what was there before: this cannot be read any more.
 */
static int map_hide_end(struct tux3_inode *inode, struct data_extent *extent)
{
	u64 size = READ_ONCE(inode->tree_size), last = size >> inode->vol->block_shift;

	if (likely(!READ_ONCE(inode->stuck)) || extent->kind != DATA_MAPPED || READ_ONCE(inode->attr.size) <= size)
		return 0;
	if (extent->block >= last)
		return -EIO;
	extent->count = min(extent->count, last - extent->block);
	return 0;
}

int data_map(struct tux3_inode *inode, u64 block, u64 max, struct data_extent *extent, __le32 *csum, u32 csum_max)
{
	int err;

	if (map_without_tree(inode, block, max, extent, csum, csum_max))
		return 0;
	err = data_map_tree(inode, extent, csum, csum_max);
	if (!err)
		err = map_hide_end(inode, extent);
	if (err == -EIO)
		inode_warn(inode->vol, "file", inode->ino, ", offset %llu: where its data is cannot be read",
			   (unsigned long long)block << inode->vol->block_shift);
	return err;
}

int data_map_now(struct tux3_inode *inode, u64 block, u64 max, struct data_extent *extent, __le32 *csum, u32 csum_max)
{
	struct disk_extent *item;
	u64 start;
	int err = -EAGAIN;

	if (map_without_tree(inode, block, max, extent, csum, csum_max))
		return 0;
	item = kmalloc(TUX3_ITEM_MAX(inode->vol->block_size), GFP_NOWAIT | __GFP_NOWARN);
	if (item && extent_at(inode, block, item, &start, true) == 1) {
		map_fill(extent, item, start, csum, csum_max);
		err = map_hide_end(inode, extent);
	}
	kfree(item);
	return err;
}

int data_read_inline(struct tux3_inode *inode, void *data, u32 size)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_INLINE, 0);

	return tree_lookup(inode->vol, &key, data, size);
}

int data_verify(struct tux3_inode *inode, u64 block, u64 addr, const void *data, __le32 csum)
{
	struct volume *vol = inode->vol;
	u32 found = crc32c(~0u, data, vol->block_size);

	if (likely(found == le32_to_cpu(csum)))
		return 0;
	count_add(vol, TUX3_COUNT_CSUM_ERRORS, 1);
	inode_warn(vol, "file", inode->ino, ", offset %llu: block %llu has checksum %08x instead of %08x; the read fails",
		   (unsigned long long)block << vol->block_shift, (unsigned long long)addr, found, le32_to_cpu(csum));
	return -EIO;
}

/* ---- changes, inside a delta ---- */

void data_dirty(struct delta_op *op, struct tux3_inode *inode)
{
	inode_mark_dirty(op, inode, INODE_DIRTY_DATA);
}

void data_stored(struct delta_op *op, struct tux3_inode *inode)
{
	inode_mark_stored(op, inode);
}

/* inode->lock held. */
static void data_add_extra(struct delta_op *op, struct tux3_inode *inode, s64 blocks)
{
	inode_slot_of(inode, op->delta)->extra += blocks;
	atomic64_add(blocks, &op->vol->delta.extra[op->delta & 1]);
}

/* What a range takes with it, as far as that is known without reading the tree. */
static void data_remove_extra(struct delta_op *op, struct tux3_inode *inode, u64 block, u64 count)
{
	struct inode_slot *slot = &inode->slot[op->delta & 1];
	u64 end = count > DATA_END - block ? DATA_END : block + count, promised = 0, here;

	lockdep_assert_held(&inode->lock);
	if (!block && count == DATA_END) {	/* all there is, and what the delta before brings */
		data_add_extra(op, inode, -(s64)inode->blocks - slot->extra - inode->slot[~op->delta & 1].extra);
		atomic64_add(slot->paid, &op->vol->delta.extra[op->delta & 1]);
		slot->paid = 0;
		return;
	}
	for (; slot->extra > (s64)promised && block < end; block += here) {
		bool in = file_ranges_find(&slot->prealloc, block, &here);

		here = min(here, end - block);
		promised += in ? here : 0;
	}
	if (promised)
		data_add_extra(op, inode, -min_t(s64, promised, slot->extra));
}

int data_remove(struct delta_op *op, struct tux3_inode *inode, u64 block, u64 count)
{
	struct inode_range *add = kmalloc(sizeof(*add), GFP_NOFS), *cut = kmalloc(sizeof(*cut), GFP_NOFS);
	struct inode_slot *slot = &inode->slot[op->delta & 1];

	if (!add || !cut) {
		kfree(add);
		kfree(cut);
		return -ENOMEM;
	}
	spin_lock(&inode->lock);
	inode_dirty_locked(op, inode, INODE_DIRTY_DATA);
	if (count == DATA_END && inode->attr.nlink && delete_is_long(inode->vol, inode->blocks)) {
		slot->cut = block;
		WRITE_ONCE(inode->cutting, true);
	}
	data_remove_extra(op, inode, block, count);
	inode_quota_frees_locked(op, inode, false);
	add = file_ranges_add(&slot->removed, block, count, add);
	if (!add)
		delta_add_change(op, sizeof(*add));
	cut = file_ranges_cut(&slot->prealloc, block, count, cut);
	spin_unlock(&inode->lock);
	kfree(add);
	kfree(cut);
	return 0;
}

/* It is being made read-only (by sysrq, say) while we cut: then it is he who does that who makes the commits. */
static int cut_wait_read_only(struct tux3_inode *inode)
{
	struct volume *vol = inode->vol;

	delta_wait(vol->delta.commit_queue, !smp_load_acquire(&inode->cutting) || volume_error(vol) || !READ_ONCE(vol->read_only),
		   true);
	return volume_error(vol);
}

int data_cut_wait(struct tux3_inode *inode)
{
	struct volume *vol = inode->vol;
	int err = 0;

	while (unlikely(smp_load_acquire(&inode->cutting)) && !err) {
		if (unlikely(READ_ONCE(vol->read_only)))
			err = cut_wait_read_only(inode);
		else
			err = READ_ONCE(vol->delta.paused) ? -EBUSY : delta_commit_surely(vol);
	}
	return !err && unlikely(delete_cut_failed(vol, inode->ino)) ? -EIO : err;
}

int data_prealloc(struct delta_op *op, struct tux3_inode *inode, u64 block, u64 count, u64 holes)
{
	struct inode_range *add = kmalloc(sizeof(*add), GFP_NOFS);
	struct inode_slot *slot = &inode->slot[op->delta & 1];

	if (!add)
		return -ENOMEM;
	spin_lock(&inode->lock);
	inode_dirty_locked(op, inode, INODE_DIRTY_DATA);
	WRITE_ONCE(inode->attr.flags, inode->attr.flags | TUX3_ATTR_PREALLOC);
	add = file_ranges_add(&slot->prealloc, block, count, add);
	if (!add)
		delta_add_change(op, sizeof(*add));
	data_add_extra(op, inode, holes);
	slot->promised += holes;
	spin_unlock(&inode->lock);
	kfree(add);
	return 0;
}

void data_uncheck(struct delta_op *op, struct tux3_inode *inode, u64 block, u64 count)
{
	struct inode_slot *slot = &inode->slot[op->delta & 1];

	spin_lock(&inode->lock);
	inode_dirty_locked(op, inode, INODE_DIRTY_DATA);
	/* One range from the first to the last: what is between comes too, or has no checksums. */
	slot->unchecked = slot->unchecked_end ? min(slot->unchecked, block) : block;
	slot->unchecked_end = max(slot->unchecked_end, block + count);
	spin_unlock(&inode->lock);
}

void data_paid(struct delta_op *op, struct tux3_inode *inode, u64 blocks)
{
	if (likely(!blocks))
		return;
	spin_lock(&inode->lock);
	inode_slot_of(inode, op->delta)->paid += blocks;
	spin_unlock(&inode->lock);
	atomic64_sub(blocks, &op->vol->delta.extra[op->delta & 1]);
}

void data_give_back(struct delta_op *op, struct tux3_inode *inode, u64 dirty)
{
	unsigned int slot = op->delta & 1;
	s64 blocks;

	spin_lock(&inode->lock);
	inode_quota_frees_locked(op, inode, true);
	if (!inode->given_back) {
		inode->given_back = true;
		if (!inode->slot[slot].dirty && inode->slot[!slot].dirty)
			slot = !slot;		/* its commit will delete the inode */
		blocks = inode->blocks + dirty + inode->slot[0].extra + inode->slot[1].extra -
			 inode->slot[0].paid - inode->slot[1].paid;
		inode_slot_of(inode, slot)->extra -= blocks;
		if (blocks)
			atomic64_sub(blocks, &op->vol->delta.extra[slot]);
	}
	spin_unlock(&inode->lock);
}

void data_forget(struct tux3_inode *inode, u64 dirty)
{
	struct volume *vol = inode->vol;
	struct delta_op op;
	int err = delta_enter(vol, &op, space_cost_items(vol, SPACE_ITEMS_FORGET), DELTA_FREES | DELTA_MUST);

	if (err) {		/* its orphan item stands: the next mount deletes it, or a remount */
		if (err == -EROFS)
			delta_forget_later(vol, inode->ino);
		return;
	}
	data_give_back(&op, inode, dirty);
	inode_mark_dirty(&op, inode, INODE_DIRTY_DELETE);
	delta_leave(&op);
}

u64 data_blocks(struct tux3_inode *inode, u64 dirty)
{
	s64 placed, extra, most, least;
	u64 paid;

	spin_lock(&inode->lock);
	least = attr_least_blocks(inode_attr(inode));
	placed = inode->blocks;
	extra = inode_slot_of(inode, 0)->extra + inode_slot_of(inode, 1)->extra;
	paid = inode_slot_of(inode, 0)->paid + inode_slot_of(inode, 1)->paid;
	most = (inode_attr(inode)->size + inode->vol->block_size - 1) >> inode->vol->block_shift;
	spin_unlock(&inode->lock);
	most = max(most + max(extra, (s64)0), placed + min(extra, (s64)0));
	return clamp(placed + (s64)(dirty - min(dirty, paid)) + extra, least, max(most, least));
}
