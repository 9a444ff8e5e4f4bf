/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: which blocks are in use, free maps that say so, and the unify that makes it all durable.
 *
 * Nodes that repair changed have no blocks yet: they get some that are free by the new maps and were free by the old ones, too, so
 * that the old state is there until the anchor is written.  Only where that is not enough, the volume being full, they may get
 * what the old state had in use and the new one has not.
 */
#include "core/error.h"
#include "core/device/device.h"
#include "core/format/anchor.h"
#include "core/format/chain.h"
#include "core/blocks/balloc.h"
#include "core/blocks/freemap.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/log/apply.h"
#include "core/log/log.h"
#include "core/log/log_read.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/data/data.h"
#include "core/commit/unify.h"
#include "core/repair/repair_internal.h"

/* ---- sets of blocks ---- */

int block_set_init(struct block_set *set, struct volume *vol)
{
	set->group_count = vol->group_count;
	set->groups = kvzalloc(set->group_count * sizeof(*set->groups), GFP_KERNEL);
	return set->groups ? 0 : -ENOMEM;
}

void block_set_exit(struct block_set *set)
{
	u64 i;

	for (i = 0; set->groups && i < set->group_count; i++)
		kvfree(set->groups[i]);
	kvfree(set->groups);
	set->groups = NULL;
}

static unsigned long *block_set_group(struct block_set *set, struct volume *vol, u64 index)
{
	if (!set->groups[index])
		set->groups[index] = kvzalloc(vol->group_blocks / 8, GFP_KERNEL);
	return set->groups[index];
}

int block_set_add(struct block_set *set, struct volume *vol, u64 addr, u64 len)
{
	while (len) {
		unsigned long *bits = block_set_group(set, vol, addr / vol->group_blocks);
		u32 from = addr % vol->group_blocks, count = min_t(u64, len, vol->group_blocks - from);

		if (!bits)
			return -ENOMEM;
		bitmap_set(bits, from, count);
		addr += count;
		len -= count;
	}
	return 0;
}

u64 block_set_run(const struct block_set *set, struct volume *vol, u64 addr, u64 len, bool *in)
{
	u64 run = 0;

	*in = block_set_has(set, vol, addr);
	while (run < len) {
		const unsigned long *bits = set->groups[(addr + run) / vol->group_blocks];
		u32 from = (addr + run) % vol->group_blocks, end = min_t(u64, from + len - run, vol->group_blocks), at = end;

		if (bits)
			at = *in ? find_next_zero_bit(bits, end, from) : find_next_bit(bits, end, from);
		else if (*in)
			at = from;
		run += at - from;
		if (at < end)
			break;
	}
	return run;
}

bool block_set_has(const struct block_set *set, struct volume *vol, u64 addr)
{
	const unsigned long *bits = set->groups[addr / vol->group_blocks];
	u32 n = addr % vol->group_blocks;

	return bits && bits[n / BITS_PER_LONG] >> n % BITS_PER_LONG & 1;
}

/* ---- what is in use ---- */

static int use_run(struct repair *repair, const struct tree_key *key, const void *data, u64 addr, u32 len)
{
	repair->data_total += len;
	return block_set_add(&repair->used, repair->vol, addr, len);
}

int repair_item_blocks(struct repair *repair, const struct tree_key *key, const void *data, u32 len, block_run_fn fn)
{
	const struct disk_xattr *entry;
	struct disk_extent extent;
	struct chain chain;
	int err = 0;
	u32 i;

	if (key->type == TUX3_ITEM_EXTENT && len >= sizeof(extent)) {
		memcpy(&extent, data, sizeof(extent));
		/* Other flags may be wrong, and are mended: the blocks are its own all the same. */
		extent.flags &= cpu_to_le32(TUX3_EXTENT_CSUM);
		if (!extent_check(repair->vol, &extent, len))
			return fn(repair, key, data, le64_to_cpu(extent.addr), le32_to_cpu(extent.len));
	} else if (key->type == TUX3_ITEM_XATTR) {
		chain = chain_of(data, len);
		while (!err && (entry = chain_next_xattr(&chain))) {
			const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);

			for (i = 0; i < entry->pieces && !err; i++, piece++) {
				u64 addr = get_unaligned_le64(&piece->addr);
				u32 count = get_unaligned_le32(&piece->len);

				if (apply_blocks_valid(repair->vol, addr, count))
					err = fn(repair, key, data, addr, count);
			}
		}
	}
	return err;
}

static int use_item(struct repair *repair, const struct tree_key *key, const void *data, u32 len)
{
	struct disk_extent extent;

	if (key->type == TUX3_ITEM_ATTR && key->ino != TUX3_INO_VOLUME)
		repair->inode_total++;
	if (key->type == TUX3_ITEM_EXTENT && len >= sizeof(extent)) {
		memcpy(&extent, data, sizeof(extent));
		if (le32_to_cpu(extent.flags) & TUX3_EXTENT_UNWRITTEN)
			repair->unwritten_total += le32_to_cpu(extent.len);
	}
	return repair_item_blocks(repair, key, data, len, use_run);
}

static int use_node(void *ctx, const struct tree_visit *visit)
{
	struct repair *repair = ctx;
	struct volume *vol = repair->vol;
	int err = 0;
	u32 i;

	if (!visit->data)
		return 0;
	if (!node_unplaced(visit->addr) && !balloc_is_fixed(vol, visit->addr))
		err = block_set_add(&repair->used, vol, visit->addr, 1);
	for (i = 0; !visit->level && i < node_count(visit->data) && !err; i++) {
		struct node_key packed = leaf_key(visit->data, i);
		struct tree_key key = node_key_unpack(&packed);

		err = use_item(repair, &key, leaf_data(visit->data, i), leaf_len(visit->data, i));
	}
	return err;
}

int repair_count_used(struct repair *repair)
{
	int err;

	block_set_exit(&repair->used);
	repair->data_total = repair->unwritten_total = repair->inode_total = 0;
	err = block_set_init(&repair->used, repair->vol);
	return err ? err : tree_walk(repair->vol, use_node, repair);
}

/* ---- free maps ---- */

/* As the map of a group should be. */
static void map_bits(struct repair *repair, u64 index, u8 *bits)
{
	struct volume *vol = repair->vol;
	const unsigned long *used = repair->used.groups[index];
	u64 start = balloc_group_start(vol, index);
	u32 length = group_length(vol, index), fixed = group_fixed_blocks(vol, index, 0, length), i;

	for (i = 0; i < vol->group_blocks / BITS_PER_LONG; i++)
		put_unaligned_le64(used ? used[i] : 0, bits + i * sizeof(u64));
	for (i = 0; fixed && i < length; i++) {
		if (balloc_is_fixed(vol, start + i)) {
			bits[i / 8] |= 1u << i % 8;
			fixed--;
		}
	}
	for (i = length; i < vol->group_blocks; i++)
		bits[i / 8] |= 1u << i % 8;
}

int repair_set_maps(struct repair *repair, bool forget, bool tell)
{
	struct volume *vol = repair->vol;
	u8 *bits = kvmalloc(vol->group_blocks / 8, GFP_KERNEL);
	int err = bits ? 0 : -ENOMEM;
	u64 index, changed;

	for (index = 0; index < vol->group_count && !err; index++) {
		map_bits(repair, index, bits);
		err = balloc_set_group(vol, index, bits, forget, &changed);
		if (err || !changed)
			continue;
		repair->unclaimed += changed;
		if (!tell)
			continue;
		repair->changes++;
		repair_note(repair, REPAIR_MENDED, 0, "The free map of group %llu was wrong for %llu blocks",
			    (unsigned long long)index, (unsigned long long)changed);
	}
	kvfree(bits);
	if (!err)
		balloc_recount(vol, repair->data_total);
	return err;
}

/*
 * Of a tree that was cut, and not all of it found again: where nothing is left that knows of it, as when its root is gone with
 * all below, this is all that tells.
 */
static void tell_shortfall(struct repair *repair)
{
	u64 inodes = le64_to_cpu(repair->vol->anchor.inodes), data = le64_to_cpu(repair->vol->anchor.data_blocks);
	u64 left = min(inodes, repair->inode_total), data_left = min(data, repair->data_total);

	if (left < inodes || data_left < data)
		repair_note(repair, REPAIR_LOST, 0,
			    "%llu of %llu inodes and %llu of %llu data blocks: the part of the tree that they were in was not found",
			    (unsigned long long)(inodes - left), (unsigned long long)inodes,
			    (unsigned long long)(data - data_left), (unsigned long long)data);
}

/* The totals of the anchor are those of its tree; those of a tree that was cut tell what is missing. */
void repair_check_totals(struct repair *repair, bool cut)
{
	struct volume *vol = repair->vol;
	const struct disk_anchor *anchor = &vol->anchor;

	if (!cut && (le64_to_cpu(anchor->used_blocks) != atomic64_read(&vol->balloc.disk_used) ||
		     le64_to_cpu(anchor->data_blocks) != repair->data_total || le64_to_cpu(anchor->inodes) != repair->inode_total ||
		     le64_to_cpu(anchor->unwritten_blocks) != repair->unwritten_total)) {
		repair->changes++;
		repair_note(repair, REPAIR_MENDED, 0,
			    "The volume counts %lld blocks in use, %llu of data, %llu unwritten, and %llu inodes",
			    (long long)atomic64_read(&vol->balloc.disk_used), (unsigned long long)repair->data_total,
			    (unsigned long long)repair->unwritten_total, (unsigned long long)repair->inode_total);
	}
	if (cut)
		tell_shortfall(repair);
	vol->tree_inodes = repair->inode_total;
	vol->space.unwritten = repair->unwritten_total;
}

/* ---- room ---- */

/* A preallocated extent. */
struct promise {
	struct tree_key key;
	u32 len;
};

static int note_promise(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct repair *repair = ctx;
	struct disk_extent extent;
	struct promise *promise;

	if (key->type != TUX3_ITEM_EXTENT || len < sizeof(extent))
		return 0;
	memcpy(&extent, data, sizeof(extent));
	if (!(le32_to_cpu(extent.flags) & TUX3_EXTENT_UNWRITTEN))
		return 0;
	promise = repair_add(&repair->promises, sizeof(*promise));
	if (!promise)
		return -ENOMEM;
	*promise = (struct promise){ *key, le32_to_cpu(extent.len) };
	return 0;
}

static int promise_order(const void *a, const void *b)
{
	const struct promise *x = a, *y = b;

	return x->len != y->len ? (x->len > y->len ? -1 : 1) : tree_key_compare(&x->key, &y->key);
}

static int promise_break(struct repair *repair, const struct promise *promise)
{
	u64 ino = promise->key.ino;
	struct disk_attr attr;
	int err = repair_get_attr(repair, ino, &attr);

	if (!err)
		err = repair_delete(repair, ino, TUX3_ITEM_EXTENT, promise->key.offset);
	if (err)
		return err == -ENOENT ? 0 : err;
	repair_note(repair, REPAIR_LOST, ino,
		    "%u blocks that are preallocated for inode %llu from file block %llu on: there is no room for what a mount needs",
		    promise->len, (unsigned long long)ino, (unsigned long long)promise->key.offset);
	attr.blocks = cpu_to_le64(le64_to_cpu(attr.blocks) - min_t(u64, promise->len, le64_to_cpu(attr.blocks)));
	return repair_set_attr(repair, ino, &attr);
}

/* So many blocks are missing: for who removes files; all: and for other changes. */
static s64 room_missing(struct repair *repair, u64 unwritten, u64 given, bool all)
{
	const struct check_result *check = &repair->result->check;
	struct volume *vol = repair->vol;

	return space_needs(vol, unwritten, all) + balloc_fixed_blocks(vol) + check->nodes + check->data_blocks - given -
	       vol->total_blocks;
}

int repair_make_room(struct repair *repair)
{
	struct tree_key from = tree_key(TUX3_INO_FIRST, 0, 0), to = tree_key(TUX3_INO_MAX, 0xff, U64_MAX);
	u64 unwritten = repair->result->check.unwritten_blocks, given = 0, i;
	const struct promise *promise;
	int err;

	if (!unwritten || room_missing(repair, unwritten, 0, false) <= 0)
		return 0;
	repair->promises.count = 0;
	err = tree_scan(repair->vol, &from, &to, note_promise, repair);
	promise = repair->promises.entries;
	if (!err && repair->promises.count)
		sort(repair->promises.entries, repair->promises.count, sizeof(*promise), promise_order, NULL);
	for (i = 0; i < repair->promises.count && !err && room_missing(repair, unwritten, given, true) > 0; i++) {
		err = promise_break(repair, &promise[i]);
		given += promise[i].len;
		unwritten -= min_t(u64, promise[i].len, unwritten);
	}
	return err;
}

/* ---- writing ---- */

/*
 * A free block for the log.  What it named may not be kept for it: where the log was cut, that comes from a damaged block or
 * anchor, and a node could be put there.  If there is no other, it is kept.
 */
static int log_place(struct repair *repair, u64 other, u64 *place)
{
	struct volume *vol = repair->vol;
	u64 addr;
	u32 len;
	int err = balloc_alloc(vol, BALLOC_LOG, 0, 1, 1, &addr, &len);

	if (!err)
		*place = addr;
	else if (err == -ENOSPC && *place != other && apply_blocks_valid(vol, *place, 1) &&
		 !block_set_has(&repair->used, vol, *place))
		err = 0;
	return err;
}

/* The log begins anew, at a place that is free, with numbers that no block of it ever had. */
static int log_restart(struct repair *repair)
{
	struct volume *vol = repair->vol;
	int err = log_place(repair, 0, &vol->log.next_addr);

	if (!err)
		err = log_place(repair, vol->log.next_addr, &vol->log.after_addr);
	/* Where old, damaged and forged blocks have none: one that is at most LOG_LATER_MAX higher is taken for a later one. */
	vol->log.next_seq = get_random_u64() >> 2;
	vol->log.skip = 0;
	/* All that was put off until the anchor is durable stays busy until the volume is closed. */
	range_list_exit(&vol->log.blocks);
	range_list_exit(&vol->balloc.node_frees);
	memset(&vol->log.intent, 0, sizeof(vol->log.intent));
	return err;
}

/* Are all anchors of a volume whole? */
static bool anchors_whole(struct repair *repair)
{
	struct disk_anchor anchor;
	char why[160];
	unsigned int n;

	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++)
		if (volume_read_anchor_slot(repair->vol->dev, n, &anchor, why, sizeof(why)))
			return false;
	return true;
}

static int place_nodes(struct repair *repair)
{
	int err = tree_place(repair->vol);

	if (err == -ENOSPC) {
		err = repair_set_maps(repair, true, false);
		if (!err)
			err = tree_place(repair->vol);
	}
	return err;
}

static int unify_once(struct volume *vol)
{
	int err = unify_start(vol);

	return err ? err : unify_finish(vol);
}

/* both: the other pair, too. */
static int write_anchors(struct volume *vol, bool both, char *why, size_t why_size)
{
	int err;

	vol->delta.committed = vol->delta.applying;
	err = unify_once(vol);
	if (!err && both) {
		vol->delta.applying = ++vol->delta.committed;
		err = unify_once(vol);
	}
	if (err)
		snprintf(why, why_size, "writing failed (%s)", error_text(err));
	return err;
}

int repair_write(struct repair *repair, char *why, size_t why_size)
{
	struct volume *vol = repair->vol;
	bool again = !anchors_whole(repair);
	int err;

	err = repair_count_used(repair);
	if (!err)
		err = repair_set_maps(repair, false, false);
	vol->space.unwritten = repair->unwritten_total;
	vol->tree_inodes = repair->inode_total;
	delta_lock(vol);
	if (!err)
		err = log_restart(repair);
	vol->log.replaying = false;
	vol->intent.closing = true;	/* the anchor names no intents */
	if (!err)
		err = place_nodes(repair);
	if (err)
		snprintf(why, why_size, err == -ENOSPC ?
			 "there is no room for the %llu tree nodes that are to be written: nothing was changed"
			 : "the tree cannot be written (%llu nodes): nothing was changed", (unsigned long long)vol->tree.unplaced);
	if (!err)
		err = write_anchors(vol, again, why, why_size);
	delta_unlock(vol);
	return err;
}

/* The log goes on behind the anchor, so all else stays as it is. */
int repair_write_anchor(struct repair *repair, char *why, size_t why_size)
{
	int err = anchor_write_copy(repair->vol->dev, &repair->vol->anchor, repair->anchor_copy) ?: device_flush(repair->vol->dev);

	if (err)
		snprintf(why, why_size, "the copy of the anchor cannot be written (%s)", error_text(err));
	return err;
}
