/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: file blocks that are lost read as errors; names and extended attributes that are lost are told.  See repair_lost.h.
 */
#include "core/device/device.h"
#include "core/blocks/balloc.h"
#include "core/delta/space.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/repair/repair_internal.h"
#include "core/repair/key_ranges.h"
#include "core/repair/repair_lost.h"

#define FILL_ROOM	32u	/* of so many blocks one is to be free, or none is taken for what reads as an error */
#define FILL_MORE	4096u	/* at most so many blocks in a file beyond those that it has lost, as nobody knows which */

int repair_note_lost(struct repair *repair, u64 ino, u64 block, u64 count)
{
	struct tree_key first = tree_key(ino, TUX3_ITEM_EXTENT, block), last = first;
	struct node_key packed = node_key_pack(&first), packed_last;

	count = min_t(u64, count, TUX3_EXTENT_MAX);
	if (!count || block > U64_MAX - count)
		return 0;
	last.offset += count - 1;
	packed_last = node_key_pack(&last);
	return key_ranges_add(&repair->lost_blocks, &packed, &packed_last);
}

/* ---- holes ---- */

struct holes {
	struct repair *repair;
	const struct lost_file *file;
	struct repair_table all;	/* struct block_range: file blocks without an extent */
	struct repair_table lost;	/* struct key_range: those of them that may have had one */
	u64 before, next;		/* where the last extent begins and ends */
	bool any;			/* there is one before */
	u64 all_blocks, lost_blocks;
};

/*
 * What of a hole is in this set.  An extent whose key is in it may reach beyond, by up to tail blocks, but not over another one.
 */
static int hole_lost(struct holes *holes, const struct block_range *hole, const struct repair_table *ranges, u64 tail)
{
	u64 ino = holes->file->ino, end = hole->addr + hole->len, from, to, at;
	struct tree_key key = tree_key(ino, TUX3_ITEM_EXTENT, holes->any ? holes->before : 0);
	struct node_key first = node_key_pack(&key), last, part_first, part_last;
	const struct key_range *range = ranges->entries;
	int err = 0;

	key.offset = end - 1;
	last = node_key_pack(&key);
	for (at = key_ranges_find(ranges, &first); at < ranges->count && !err; at++) {
		if (node_key_less(&last, &range[at].first))
			break;
		from = node_key_less(&range[at].first, &first) ? 0 : node_key_unpack(&range[at].first).offset;
		from = max(from, hole->addr);
		to = end;
		if (node_key_less(&range[at].last, &last)) {
			to = node_key_unpack(&range[at].last).offset;
			to = end - to > tail ? to + tail : end;
		}
		if (from >= to)
			continue;
		key.offset = from;
		part_first = node_key_pack(&key);
		key.offset = to - 1;
		part_last = node_key_pack(&key);
		err = key_ranges_add(&holes->lost, &part_first, &part_last);
	}
	return err;
}

static int hole_to(struct holes *holes, u64 to)
{
	struct repair *repair = holes->repair;
	struct block_range hole = { .addr = holes->next, .len = 0 }, *entry;
	int err;

	to = min(to, holes->file->size_blocks);
	if (to <= holes->next)
		return 0;
	hole.len = to - holes->next;
	entry = repair_add(&holes->all, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	*entry = hole;
	holes->all_blocks += hole.len;
	err = hole_lost(holes, &hole, &repair->lost_blocks, 1);
	return err ? err : hole_lost(holes, &hole, &repair->lost_keys, TUX3_EXTENT_CSUM_MAX(repair->vol->block_size));
}

static int hole_extent(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct disk_extent extent = {};
	struct holes *holes = ctx;
	int err;

	memcpy(&extent, data, min_t(size_t, len, sizeof(extent)));
	err = hole_to(holes, key->offset);
	holes->any = true;
	holes->before = key->offset;
	holes->next = max(holes->next, key->offset + le32_to_cpu(extent.len));
	return err;
}

static int find_holes(struct holes *holes)
{
	u64 ino = holes->file->ino, i;
	struct tree_key from = tree_key(ino, TUX3_ITEM_EXTENT, 0), to = tree_key(ino, TUX3_ITEM_EXTENT, U64_MAX);
	const struct key_range *range;
	int err = tree_scan(holes->repair->vol, &from, &to, hole_extent, holes);

	if (!err)
		err = hole_to(holes, U64_MAX);
	range = holes->lost.entries;
	for (i = 0; i < holes->lost.count; i++)
		holes->lost_blocks += node_key_unpack(&range[i].last).offset - node_key_unpack(&range[i].first).offset + 1;
	return err;
}

/* ---- filling them ---- */

/* Blocks for this part of a file, with checksums that are not those of what is in them. */
static int fill_part(struct repair *repair, u64 ino, u64 block, u32 want, u32 *filled)
{
	struct volume *vol = repair->vol;
	struct disk_extent *extent = (struct disk_extent *)repair->item;
	u8 *data = kvmalloc(vol->block_size, GFP_KERNEL);
	u64 addr;
	u32 i;
	int err = data ? balloc_alloc(vol, BALLOC_DATA, 0, 1, min(want, TUX3_EXTENT_CSUM_MAX(vol->block_size)), &addr,
				      filled) : -ENOMEM;

	for (i = 0; !err && i < *filled; i++) {
		if (device_read(vol->dev, addr + i, 1, data))
			memset(data, 0, vol->block_size);
		extent->csum[i] = cpu_to_le32(~crc32c(~0, data, vol->block_size));
	}
	kvfree(data);
	if (err)
		return err;
	extent->addr = cpu_to_le64(addr);
	extent->birth = cpu_to_le64(vol->delta.committed);
	extent->len = cpu_to_le32(*filled);
	extent->flags = cpu_to_le32(TUX3_EXTENT_CSUM);
	return repair_set(repair, ino, TUX3_ITEM_EXTENT, block, extent, sizeof(*extent) + *filled * sizeof(__le32));
}

static int fill_hole(struct repair *repair, struct lost_file *file, u64 block, u64 count, u64 *budget)
{
	u32 filled;
	int err = 0;

	count = min(count, *budget);
	while (count && !err) {
		err = fill_part(repair, file->ino, block, min_t(u64, count, U32_MAX), &filled);
		if (err)
			break;
		block += filled;
		count -= filled;
		*budget -= filled;
		file->filled += filled;
	}
	return err;
}

/*
 * What an ordinary write would get, now and once all is written.  A volume that was filled further could not be written, and
 * nothing could be removed from it.
 */
static u64 room_to_fill(struct repair *repair)
{
	u64 total, left, available;
	s64 now = atomic64_read(&repair->vol->balloc.free_blocks);

	space_stat(repair->vol, &total, &left, &available);
	return max_t(s64, min_t(s64, now, left) - (s64)(left - available), 0);
}

/* Of that, for what only may have been lost: many more are to stay free. */
static u64 free_to_fill(struct repair *repair)
{
	s64 room = atomic64_read(&repair->vol->balloc.free_blocks) - (s64)(repair->vol->total_blocks / FILL_ROOM);

	return min_t(u64, max_t(s64, room, 0), room_to_fill(repair));
}

/* First one block of each, so that whoever reads from the beginning to the end of one finds it. */
static int fill_doubtful(struct repair *repair, struct lost_file *file, struct holes *holes)
{
	u64 budget = min(file->lost, repair->unclaimed) + min_t(u64, free_to_fill(repair), FILL_MORE), i;
	const struct key_range *range = holes->lost.entries;
	u32 first, pass;
	int err = 0;

	budget = min(budget, room_to_fill(repair));
	first = holes->lost_blocks > budget;
	for (pass = 0; pass <= first; pass++) {
		for (i = 0; i < holes->lost.count && !err; i++) {
			u64 from = node_key_unpack(&range[i].first).offset, to = node_key_unpack(&range[i].last).offset + 1;

			if (first && !pass)
				err = fill_hole(repair, file, from, 1, &budget);
			else
				err = fill_hole(repair, file, from + first, to - from - first, &budget);
		}
	}
	return err;
}

/* If that is all that the file has of holes, those are where its blocks were. */
static int fill_all(struct repair *repair, struct lost_file *file, struct holes *holes)
{
	const struct block_range *hole = holes->all.entries;
	u64 budget = min(file->lost, room_to_fill(repair)), i;
	int err = 0;

	for (i = 0; i < holes->all.count && !err; i++)
		err = fill_hole(repair, file, hole[i].addr, hole[i].len, &budget);
	return err;
}

static void tell_where(struct lost_file *file, const struct holes *holes, bool all)
{
	const struct block_range *hole = holes->all.entries;
	const struct key_range *range = holes->lost.entries;
	u64 from = all ? hole->addr : node_key_unpack(&range->first).offset, to;

	to = all ? hole[holes->all.count - 1].addr + hole[holes->all.count - 1].len :
	     node_key_unpack(&range[holes->lost.count - 1].last).offset + 1;
	scnprintf(file->text, sizeof(file->text), "; that is between file blocks %llu and %llu%s", (unsigned long long)from,
		  (unsigned long long)to, !file->filled || file->filled >= (all ? holes->all_blocks : holes->lost_blocks) ? "" :
		  ", and elsewhere there gives zeros");
}

int repair_fill_lost(struct repair *repair, struct lost_file *file)
{
	struct holes holes = { .repair = repair, .file = file };
	int err = find_holes(&holes);
	bool all = holes.all_blocks && holes.all_blocks <= min(file->lost, repair->unclaimed);

	if (!err && repair_wants_csum(repair, 0) && (all || holes.lost.count))
		err = all ? fill_all(repair, file, &holes) : fill_doubtful(repair, file, &holes);
	if (all || holes.lost.count)
		tell_where(file, &holes, all);
	repair->unclaimed -= min(repair->unclaimed, file->filled);
	kvfree(holes.all.entries);
	kvfree(holes.lost.entries);
	return err == -ENOSPC || err == -EIO ? 0 : err;
}

int repair_fill_end(struct repair *repair, struct lost_file *file, u64 block)
{
	u64 budget = 1, filled = file->filled;
	int err = 0;

	if (repair_wants_csum(repair, 0) && free_to_fill(repair) && block + 1 < TUX3_SIZE_MAX >> repair->vol->block_shift)
		err = fill_hole(repair, file, block, 1, &budget);
	file->end_filled = file->filled > filled;
	return err == -ENOSPC || err == -EIO ? 0 : err;
}

/* ---- names, extended attributes ---- */

struct lost_names {
	u64 dir, names;		/* so many it had */
};

/* Is any item of this type of the inode in the range? */
static bool range_has(const struct key_range *range, u64 ino, u8 type)
{
	struct tree_key from = tree_key(ino, type, 0), to = tree_key(ino, type, U64_MAX);
	struct node_key first = node_key_pack(&from), last = node_key_pack(&to);

	return !node_key_less(&last, &range->first) && !node_key_less(&range->last, &first);
}

/* Only what the first look found was there before: later ones are about what repair did. */
int repair_note_names(struct repair *repair, u64 dir, u64 names)
{
	struct tree_key from = tree_key(dir, TUX3_ITEM_DIRENT, 0);
	struct node_key first = node_key_pack(&from);
	const struct key_range *range = repair->lost_keys.entries;
	u64 at = key_ranges_find(&repair->lost_keys, &first);
	struct lost_names *lost;

	if (repair->round || at == repair->lost_keys.count || !range_has(&range[at], dir, TUX3_ITEM_DIRENT))
		return 0;
	lost = repair_add(&repair->lost_names, sizeof(*lost));
	if (lost)
		*lost = (struct lost_names){ dir, names };
	return lost ? 0 : -ENOMEM;
}

static void tell_names(struct repair *repair, const struct lost_names *lost)
{
	struct disk_attr attr;

	if (repair_get_attr(repair, lost->dir, &attr) || le64_to_cpu(attr.size) >= lost->names)
		return;
	repair_note(repair, REPAIR_LOST, lost->dir, "%llu names of directory %llu: it had %llu, and nothing tells what else",
		    (unsigned long long)(lost->names - le64_to_cpu(attr.size)), (unsigned long long)lost->dir,
		    (unsigned long long)lost->names);
}

/* Of the inode with which the leaf began, if what comes before these was in another one.  *told: the one that was told last. */
static void tell_xattrs(struct repair *repair, const struct key_range *range, u64 *told)
{
	u64 ino = node_key_unpack(&range->first).ino;
	struct disk_attr attr;

	if (ino == *told || !range_has(range, ino, TUX3_ITEM_XATTR) || repair_get_attr(repair, ino, &attr) ||
	    !(le32_to_cpu(attr.flags) & TUX3_ATTR_XATTRS))
		return;
	*told = ino;
	repair_note(repair, REPAIR_LOST, ino, "Inode %llu may have had more extended attributes: they were in a tree node that is lost",
		    (unsigned long long)ino);
}

bool repair_xattrs_lost(struct repair *repair, u64 ino)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_XATTR, 0);
	struct node_key first = node_key_pack(&from);
	const struct key_range *range = repair->lost_keys.entries;
	u64 at = key_ranges_find(&repair->lost_keys, &first);

	return at < repair->lost_keys.count && range_has(&range[at], ino, TUX3_ITEM_XATTR);
}

/* Of owners that have nothing, nobody misses them. */
static void tell_limits(struct repair *repair, const struct key_range *range)
{
	static const char *const owners[] = { "users", "groups", "projects" };
	struct tree_key first = node_key_unpack(&range->first), last = node_key_unpack(&range->last);
	u64 from, to;
	u8 type;

	for (type = TUX3_ITEM_QUOTA_USER; type <= TUX3_ITEM_QUOTA_PROJECT; type++) {
		from = first.ino == TUX3_INO_VOLUME && first.type == type ? first.offset : 0;
		to = last.ino == TUX3_INO_VOLUME && last.type == type ? min_t(u64, last.offset, U32_MAX) : U32_MAX;
		if (range_has(range, TUX3_INO_VOLUME, type) && from <= to)
			repair_note(repair, REPAIR_LOST, 0,
				    "The limits of %s from %llu to %llu, if they had any: they were in a tree node that is lost",
				    owners[type - TUX3_ITEM_QUOTA_USER], (unsigned long long)from, (unsigned long long)to);
	}
}

void repair_tell_lost(struct repair *repair)
{
	const struct repair_table *lost = repair->leaf_missing ? &repair->lost_keys : &repair->lost_leaves;
	const struct lost_names *names = repair->lost_names.entries;
	const struct key_range *range = lost->entries;
	bool quota = repair->vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA;
	u64 i, told = 0;

	for (i = 0; i < repair->lost_names.count; i++)
		tell_names(repair, &names[i]);
	for (i = 0; i < lost->count; i++) {
		tell_xattrs(repair, &range[i], &told);
		if (quota)
			tell_limits(repair, &range[i]);
	}
}
