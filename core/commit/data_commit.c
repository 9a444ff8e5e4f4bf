// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Committing file data: the back end finds blocks for what is dirty in a delta, submits it and logs
 * the mappings.
 *
 * In this order: ranges removed in the delta go from the tree; extents that are to be unchecked lose their checksums; what is
 * a hole then in preallocated ranges gets unwritten extents; then dirty data is mapped, in their place.  So the newest of several
 * changes to a block wins, whatever their order within the delta was: a block removed and then written is dirty, one
 * written and then removed is not dirty any more.
 *
 * Before all that ranges of files whose blocks change their place get them (remap.h).
 *
 * What cannot be read cannot be edited, and one bad block must not stop the volume.  So before anything is placed or logged it
 * is looked (data_reach()), which reads what the edit would read anyway.  What meets a bad block is dropped, as by other Linux
 * filesystems when a write of theirs fails: leaf by leaf, so it is what could not be read back; each who has the file open hears of
 * it by fsync.  The end of a file that cannot be cut off is left to delete.c, and goes later.  A file that is inline, or cannot be
 * cut, is stuck: nothing more of its data is committed, and size and flags stay as the tree has them.
 *
 * Data goes to newly allocated blocks, but for blocks of unwritten extents, which nobody can read
 * before the commit, and for what an fsync has put where it may stay (core/inode/early.h).
 * Small files without extents go inline into the tree.
 *
 * commit_mutex held.
 */
#include "core/volume.h"
#include "core/device/device.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/log/log.h"
#include "core/log/prefetch.h"
#include "core/delta/pace.h"
#include "core/delta/space.h"
#include "core/inode/early.h"
#include "core/inode/file_range.h"
#include "core/inode/inode.h"
#include "core/inode/path.h"
#include "core/data/data.h"
#include "core/data/delete.h"
#include "core/data/reach.h"
#include "core/data/remap.h"
#include "core/intent/intent.h"
#include "core/commit/commit.h"

struct data_commit {
	struct tux3_inode *inode;
	struct volume *vol;
	u64 delta;
	struct tux3_attr *attr;
	struct io_window *io;
	bool was_inline;	/* the tree has an INLINE item */
	bool lost;		/* something of it is not committed */
	bool all_lost;		/* nor is anything more of it */
	u64 end;		/* what is dirty or reserved from here on is lost; DATA_END: it is not */
	u64 cut;		/* what is behind this goes later; DATA_END: nothing does */
	u64 unkept;		/* blocks that were to be preallocated, and are not */
	u64 bad, bad_end;	/* what was found last to be in a leaf that cannot be read: a disk may try that for seconds */
	struct data_places places;
};

static int data_record(struct data_commit *dc, enum tux3_record_type type, const void *payload, u32 len,
		       const void *tail, u32 tail_len, u8 item, u64 offset)
{
	struct tree_key key = tree_key(dc->inode->ino, item, offset);

	return log_record_at(dc->vol, &key, type, payload, len, tail, tail_len);
}

/* ---- what cannot be read ---- */

/*
 * As reach_blocks().  Mostly they are where the last edit was.  Of an inode that is new, all keys lead to where its number was
 * found to be free.
 */
static int data_reach(struct data_commit *dc, u64 block, u64 *count)
{
	struct tree_key from = tree_key(dc->inode->ino, TUX3_ITEM_EXTENT, block);
	struct tree_key end = tree_key(dc->inode->ino, TUX3_ITEM_EXTENT, *count > DATA_END - block ? DATA_END : block + *count);
	u64 bad_end;
	int err;

	if (!dc->inode->in_tree)
		return 0;
	if (likely(tree_edit_has_all(dc->vol, &from, &end)))
		return reach_maps(dc->inode, block, *count);
	if (unlikely(block >= dc->bad && block < dc->bad_end)) {
		*count = min(*count, dc->bad_end - block);
		return -EIO;
	}
	cache_keep(dc->vol, true);
	err = reach_blocks(dc->inode, block, count, &bad_end);
	cache_keep(dc->vol, false);
	if (unlikely(bad_end > block)) {
		dc->bad = block;
		dc->bad_end = bad_end;
	}
	return err;
}

static int data_reach_all(struct data_commit *dc, u64 block, u64 count)
{
	u64 end = count > DATA_END - block ? DATA_END : block + count, part;
	int err = 0;

	for (; block < end && !err; block += part) {
		part = end - block;
		err = data_reach(dc, block, &part);
		cond_resched();
	}
	return err;
}

static int data_reach_inline(struct data_commit *dc)
{
	struct tree_key key = tree_key(dc->inode->ino, TUX3_ITEM_INLINE, 0);
	int err;

	if (!dc->inode->in_tree || tree_edit_has_all(dc->vol, &key, &key))
		return 0;
	cache_keep(dc->vol, true);
	err = reach_item(dc->inode, TUX3_ITEM_INLINE);
	cache_keep(dc->vol, false);
	return err;
}

/* Can an item say that an end goes later? */
static int data_reach_orphan(struct data_commit *dc)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, dc->inode->ino);
	int err;

	cache_keep(dc->vol, true);
	err = tree_look(dc->vol, &key);
	cache_keep(dc->vol, false);
	return err;
}

/*
 * Of blocks [block, end): those before *stop can all be read, or none of them can (*lost).  As many at once as can be: it is one
 * record, for which was paid, that maps or frees what lies in several leaves.
 */
static int data_readable(struct data_commit *dc, u64 block, u64 end, u64 *stop, bool *lost)
{
	u64 part = end - block;
	int err = data_reach(dc, block, &part);

	*lost = err == -EIO;
	dc->lost |= *lost;
	*stop = block + part;
	while ((!err || err == -EIO) && *stop < end) {
		part = end - *stop;
		err = data_reach(dc, *stop, &part);
		if ((err == -EIO) != *lost)
			return err == -EIO ? 0 : err;
		*stop += part;
		cond_resched();
	}
	return err == -EIO ? 0 : err;
}

/* What a look has said: true if something cannot be read, which is no error of the commit. */
static bool data_loses(struct data_commit *dc, int *err)
{
	if (likely(*err != -EIO))
		return false;
	dc->lost = true;
	*err = 0;
	return true;
}

void data_tell_lost(struct tux3_inode *inode)
{
	inode_tell(inode->vol, "what was changed of inode", inode->ino, " cannot be committed, since metadata of it cannot be read: it is lost, and fsync of it says so; fsck.tux3 -y repairs what is bad");
	count_add(inode->vol, TUX3_COUNT_INODES_LOST, 1);
	inode->slot[inode->vol->delta.applying & 1].lost = true;
	inode->vol->host->data_lost(inode);
}

/* As the tree has them. */
static int data_stored_attr(struct data_commit *dc, struct disk_attr *attr)
{
	struct tree_key key = tree_key(dc->inode->ino, TUX3_ITEM_ATTR, 0);
	int len = tree_lookup(dc->vol, &key, attr, sizeof(*attr));

	if (len == sizeof(*attr))
		return 0;
	return len < 0 ? len : -EIO;
}

/* Of a file that is stuck.  Who truncates it is not to wait. */
static int data_keep_stored(struct data_commit *dc)
{
	u32 stored = TUX3_ATTR_INLINE | TUX3_ATTR_PREALLOC;
	struct disk_attr attr;
	int err = data_stored_attr(dc, &attr);

	if (err)
		return err;
	dc->lost |= dc->attr->size != le64_to_cpu(attr.size);
	dc->attr->size = le64_to_cpu(attr.size);
	dc->attr->flags = (dc->attr->flags & ~stored) | (le32_to_cpu(attr.flags) & stored);
	if (dc->inode->slot[dc->delta & 1].cut != DATA_END)
		WRITE_ONCE(dc->inode->cutting, false);
	return 0;
}

/* That it was only read is no reason to tell again. */
int data_commit_stuck(struct tux3_inode *inode, u64 delta, u32 dirty, struct tux3_attr *attr)
{
	struct data_commit dc = {
		.inode = inode, .vol = inode->vol, .delta = delta, .attr = attr, .lost = dirty & INODE_DIRTY_DATA,
	};
	int err;

	lockdep_assert_held(&inode->vol->delta.commit_mutex);
	err = data_keep_stored(&dc);
	if (!err && dc.lost && dirty != INODE_DIRTY_ATIME)
		data_tell_lost(inode);
	return err;
}

/* Nothing more of its data is committed. */
static int data_lose_all(struct data_commit *dc)
{
	WRITE_ONCE(dc->inode->stuck, true);
	dc->all_lost = true;
	return data_keep_stored(dc);
}

/* ---- extents that go ---- */

static int data_punch_part(struct data_commit *dc, u64 block, u64 count)
{
	struct record_extent record = {
		.ino = cpu_to_le64(dc->inode->ino), .block = cpu_to_le64(block), .count = cpu_to_le64(count),
	};

	return data_record(dc, TUX3_RECORD_EXTENT_PUNCH, &record, sizeof(record), NULL, 0, TUX3_ITEM_EXTENT, block);
}

/* 1: something of it cannot be read, and nothing was done. */
static int data_punch_looked(struct data_commit *dc, u64 block, u64 count)
{
	int err = data_reach_all(dc, block, count);

	return err ? (err == -EIO ? 1 : err) : data_punch_part(dc, block, count);
}

/*
 * A range may have very many extents.  It goes in parts: what each needs is read, and looked at, before the tree is locked for it,
 * and between them others can read the tree.  1: from *from on something cannot be read.
 */
static int data_punch(struct data_commit *dc, u64 *from, u64 count)
{
	struct volume *vol = dc->vol;
	u64 end = count > DATA_END - *from ? DATA_END : *from + count;
	u64 extents = max_t(u64, vol->opts.slice_extents, dc->inode->blocks / DATA_PUNCH_PARTS);
	struct tree_key first, to, last = tree_key(dc->inode->ino, TUX3_ITEM_EXTENT, end - 1);
	int more = dc->inode->blocks > extents, err = 0;

	while (more && !err) {
		struct tree_skip part = { .left = extents };

		first = tree_key(dc->inode->ino, TUX3_ITEM_EXTENT, *from);
		more = tree_skip(vol, &first, &last, &part);
		if (more < 0)
			return more == -EIO ? 1 : more;
		to = more ? tree_key(dc->inode->ino, TUX3_ITEM_EXTENT, part.next - 1) : last;
		prefetch_add_items(vol->ahead, &first, &to);
		prefetch_run(vol->ahead);
		if (more) {
			err = data_punch_looked(dc, *from, part.next - *from);
			*from = err ? *from : part.next;
			cond_resched();
		}
	}
	return err ? err : data_punch_looked(dc, *from, end == DATA_END ? DATA_END : end - *from);
}

/* What the caller, or who made the change, has looked at: all or nothing. */
static int data_punch_all(struct data_commit *dc, u64 block, u64 count)
{
	int err = data_punch(dc, &block, count);

	return err > 0 ? -EIO : err;
}

/* What of it can be.  The rest stays, and cannot be read. */
static int data_punch_readable(struct data_commit *dc, u64 block, u64 count)
{
	u64 end = block + count, stop;
	int err = data_punch(dc, &block, count);
	bool lost;

	if (likely(err <= 0))
		return err;
	for (err = 0; block < end && !err; block = stop) {
		err = data_readable(dc, block, end, &stop, &lost);
		if (!err && !lost)
			err = data_punch_part(dc, block, stop - block);
	}
	return err;
}

/* ---- inline ---- */

static int inline_store(struct data_commit *dc, u64 at, const void *data, u32 len)
{
	struct tree_key key = tree_key(dc->inode->ino, TUX3_ITEM_INLINE, at);
	struct record_item record;

	tree_key_to_disk(&record.key, &key);
	return data_record(dc, TUX3_RECORD_ITEM_SET, &record, sizeof(record), data, len, TUX3_ITEM_INLINE, at);
}

/* The file's data: a block was charged for it. */
static int inline_store_data(struct data_commit *dc, const void *data)
{
	dc->vol->log.inlined++;
	dc->vol->log.inlined_bytes += dc->attr->size;
	return inline_store(dc, 0, data, dc->attr->size);
}

static int inline_delete(struct data_commit *dc)
{
	struct tree_key key = tree_key(dc->inode->ino, TUX3_ITEM_INLINE, 0);
	struct record_item record;

	dc->was_inline = false;
	tree_key_to_disk(&record.key, &key);
	return data_record(dc, TUX3_RECORD_ITEM_DELETE, &record, sizeof(record), NULL, 0, TUX3_ITEM_INLINE, 0);
}

static int symlink_store(struct data_commit *dc)
{
	u32 at, len, size = dc->attr->size;
	int err = 0;

	for (at = 0; at < size && !err; at += len) {
		len = min(size - at, TUX3_SYMLINK_PIECE);
		err = inline_store(dc, at, dc->inode->target + at, len);
	}
	return err;
}

/* How the file is stored is the back end's part of the attributes, in the live ones too. */
static void data_set_flag(struct data_commit *dc, u32 flag, bool set)
{
	struct tux3_inode *inode = dc->inode;

	dc->attr->flags = set ? dc->attr->flags | flag : dc->attr->flags & ~flag;
	spin_lock(&inode->lock);
	if (set != !!(inode->attr.flags & flag))
		inode->stored_delta = dc->delta;
	WRITE_ONCE(inode->attr.flags, set ? inode->attr.flags | flag : inode->attr.flags & ~flag);
	spin_unlock(&inode->lock);
}

/* ---- extents ---- */

static int data_map_run(struct data_commit *dc, u64 block, u64 addr, u32 count, u32 flags)
{
	struct record_extent *record = dc->vol->log.extent;
	u32 len = sizeof(*record);

	record->ino = cpu_to_le64(dc->inode->ino);
	record->block = cpu_to_le64(block);
	record->count = cpu_to_le64(count);
	record->addr = cpu_to_le64(addr);
	record->flags = cpu_to_le32(flags);
	record->spare = 0;
	if (flags & TUX3_EXTENT_CSUM)
		len += count * sizeof(__le32);
	return data_record(dc, TUX3_RECORD_EXTENT_MAP, record, len, NULL, 0, TUX3_ITEM_EXTENT, block);
}

static u32 data_csum_flag(struct volume *vol)
{
	return vol->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM ? TUX3_EXTENT_CSUM : 0;
}

/* So many bytes more are in flight; more than max may not be. */
static int data_submitted(struct data_commit *dc, u64 bytes, u64 max)
{
	if (!io_window_add(dc->io, bytes, max))
		return 0;
	device_kick(dc->vol->dev);
	return io_window_turn(dc->io);
}

/* The first of these blocks, to a new place: *count. */
static int data_write_new(struct data_commit *dc, u64 block, u32 *count)
{
	u64 max = pace_in_flight_max(dc->vol), addr;
	u32 flags = data_csum_flag(dc->vol), run = 0;
	int err = data_place(&dc->places, block, min_t(u64, *count, max / 2 >> dc->vol->block_shift), &addr, &run);

	if (unlikely(err == -EUCLEAN)) {
		dc->lost = true;
		*count = run;
		return 0;
	}
	if (!err)
		err = dc->vol->host->data_write(dc->inode, dc->delta, block, addr, run,
						flags ? dc->vol->log.extent->csum : NULL, io_window_wait(dc->io));
	if (!err)
		err = data_map_run(dc, block, addr, run, flags);
	if (!err)
		err = data_submitted(dc, (u64)run << dc->vol->block_shift, max);
	count_add(dc->vol, TUX3_COUNT_DATA_BLOCKS, run);
	WRITE_ONCE(dc->inode->unsynced, READ_ONCE(dc->inode->unsynced) + run);
	*count = run;
	return err;
}

/* Or they stay where an intent has put them: 1; 0: not *count of them.  What was preallocated has its place already. */
static int data_keep_early(struct data_commit *dc, u64 block, u32 *count)
{
	struct volume *vol = dc->vol;
	u64 addr;
	int err;

	if (dc->attr->flags & TUX3_ATTR_PREALLOC ||
	    !early_look(dc->inode, dc->delta, block, count, &addr, vol->log.extent->csum, LOG_EXTENT_BLOCKS))
		return 0;
	err = intent_keep(vol, addr, *count);
	if (err)
		return err == -ENOMEM ? 0 : err;
	dc->inode->goal = addr + *count;
	count_add(vol, TUX3_COUNT_EARLY_BLOCKS, *count);
	err = data_map_run(dc, block, addr, *count, data_csum_flag(vol));
	return err ? err : 1;
}

static int data_write_run(struct data_commit *dc, u64 block, u64 count)
{
	int err = 0;
	u32 run;

	for (; count && err >= 0; block += run, count -= run) {
		run = min_t(u64, count, U32_MAX);
		err = data_keep_early(dc, block, &run);
		if (!err)
			err = data_write_new(dc, block, &run);
	}
	return min(err, 0);
}

/* The file's leaves are not all to be there: what goes into others is written. */
static int data_write_readable(struct data_commit *dc, u64 block, u64 count)
{
	u64 end = block + count, stop;
	bool lost;
	int err = 0;

	for (; block < end && !err; block = stop) {
		err = data_readable(dc, block, end, &stop, &lost);
		if (!err && !lost)
			err = data_write_run(dc, block, stop - block);
	}
	return err;
}

static int data_write_dirty(struct data_commit *dc)
{
	u64 block = 0, count;
	int err;

	for (;;) {
		err = dc->vol->host->data_next(dc->inode, dc->delta, block, &block, &count);
		if (err || block >= dc->end)
			return err == -ENOENT ? 0 : err;
		count = min(count, dc->end - block);
		err = data_write_readable(dc, block, count);
		if (err)
			return err;
		block += count;
	}
}

/* What the tree holds inline becomes block 0; its buffer lives until the end of the commit. */
static int inline_to_extent(struct data_commit *dc, u32 len)
{
	struct volume *vol = dc->vol;
	u32 flags = data_csum_flag(vol), run;
	void *data = log_commit_buffer(vol, vol->block_size);
	u64 addr;
	int err, found;

	if (!data)
		return -ENOMEM;
	found = data_read_inline(dc->inode, data, len);
	if (found < 0)
		return found;
	err = balloc_alloc(vol, BALLOC_DATA, dc->inode->goal, 1, 1, &addr, &run);
	if (err)
		return err;
	dc->inode->goal = addr + 1;
	vol->log.extent->csum[0] = cpu_to_le32(crc32c(~0u, data, vol->block_size));
	device_write(vol->dev, addr, data, 1, 0, io_window_wait(dc->io));
	count_add(vol, TUX3_COUNT_DATA_BLOCKS, 1);
	return data_map_run(dc, 0, addr, 1, flags);
}

/* ---- the parts of a commit ---- */

/*
 * The end of a file, which was cut off at first, cannot go from block on now.  An item says that it is to; and what was written
 * there since is lost, or it would be cut off later: so that is where the file ends.  What is before that is committed: an fsync
 * may have said that it is durable.  Of an inode without a name all goes anyway, or it gets one, and is as long as before.
 */
static int data_leave_cut(struct data_commit *dc, u64 first, u64 block)
{
	int err = data_reach_orphan(dc);

	if (data_loses(dc, &err) || !dc->attr->nlink)
		return data_lose_all(dc);
	if (err)
		return err;
	WRITE_ONCE(dc->inode->stuck, true);
	dc->attr->size = min(dc->attr->size, first << dc->vol->block_shift);
	dc->cut = block;
	dc->end = first;
	return 0;
}

/* The end of a file goes: at once, or in slices if it is long. */
static int data_commit_cut(struct data_commit *dc, u64 block)
{
	struct tux3_inode *inode = dc->inode;
	u64 cut = inode->slot[dc->delta & 1].cut, first = block;
	bool is_long = inode->in_tree && dc->attr->nlink && cut != DATA_END;
	int err = 0;

	if (cut != DATA_END && !is_long)
		WRITE_ONCE(inode->cutting, false);
	if (!inode->in_tree)
		return 0;
	if (is_long)
		err = data_reach_orphan(dc);
	if (data_loses(dc, &err))
		return data_lose_all(dc);
	if (!is_long)
		err = data_punch(dc, &block, DATA_END);
	else if (!err && block < cut)	/* an earlier truncate; data written since then may be there */
		err = data_punch(dc, &block, cut - block);
	if (unlikely(err > 0)) {
		dc->lost = true;
		return data_leave_cut(dc, first, block);
	}
	if (!err && is_long)
		dc->cut = cut;
	return err;
}

static int data_commit_removed(struct data_commit *dc)
{
	const struct rb_root *removed = &dc->inode->slot[dc->delta & 1].removed;
	struct inode_range *range;
	int err = 0;

	/* The set is that of the back delta: nobody changes it. */
	for (range = file_ranges_first(removed); range; range = file_ranges_next(range)) {
		if (dc->was_inline && !range->block) {
			err = data_reach_inline(dc);
			if (!err)	/* it goes with what is behind it, or not at all */
				err = data_reach_all(dc, 0, range->count);
			if (data_loses(dc, &err))
				return data_lose_all(dc);
			if (!err)
				err = inline_delete(dc);
		}
		if (err)
			break;
		if (range->count >= DATA_END - range->block)
			err = data_commit_cut(dc, range->block);
		else if (dc->inode->in_tree)
			err = data_punch_readable(dc, range->block, range->count);
		if (err)
			break;
	}
	return err;
}

static int prealloc_range(struct data_commit *dc, u64 block, u64 end)
{
	struct data_extent extent = { .block = block };
	u32 run;
	u64 addr;
	int err = 0;

	while (!err && extent.block < end) {
		extent.count = end - extent.block;
		err = data_map_tree(dc->inode, &extent, NULL, 0);
		if (err)
			return err;
		run = min_t(u64, extent.count, LOG_EXTENT_BLOCKS * 16);
		if (extent.kind == DATA_HOLE) {
			err = balloc_alloc(dc->vol, BALLOC_DATA, dc->inode->goal, 1, run, &addr, &run);
			if (!err) {
				dc->inode->goal = addr + run;
				err = data_map_run(dc, extent.block, addr, run, TUX3_EXTENT_UNWRITTEN);
			}
		} else {
			run = extent.count;
			/* Was it to be taken out before? */
			dc->unkept += unlikely(dc->lost) && extent.kind == DATA_MAPPED ? run : 0;
		}
		extent.block += run;
	}
	return err;
}

static int data_commit_prealloc(struct data_commit *dc)
{
	struct inode_range *range;
	u64 block, to, stop;
	bool lost;
	int err = 0;

	for (range = file_ranges_first(&dc->inode->slot[dc->delta & 1].prealloc); range; range = file_ranges_next(range)) {
		to = min(range->block + range->count, dc->end);
		for (block = range->block; block < to && !err; block = stop) {
			err = data_readable(dc, block, to, &stop, &lost);
			if (!err && !lost)
				err = prealloc_range(dc, block, stop);
			dc->unkept += lost ? stop - block : 0;
		}
	}
	return err;
}

/*
 * Since the transition the front end has counted on what this delta preallocates: who writes there, or fills around it, was not
 * charged for these blocks.  What is not kept the front delta pays for.
 */
static void data_pay_unkept(struct data_commit *dc)
{
	if (unlikely(dc->unkept))
		space_charge_lost(dc->vol, min(dc->unkept, dc->inode->slot[dc->delta & 1].promised));
}

/* The same blocks are mapped again, without checksums: what is there may be changed by others from now on. */
static int data_commit_unchecked(struct data_commit *dc)
{
	const struct inode_slot *slot = &dc->inode->slot[dc->delta & 1];
	struct data_extent extent = { .block = slot->unchecked };
	u32 run;
	int err = 0;

	while (!err && extent.block < slot->unchecked_end) {
		extent.count = slot->unchecked_end - extent.block;
		extent.has_csum = false;
		err = data_map_tree(dc->inode, &extent, NULL, 0);
		if (err)
			break;
		run = min_t(u64, extent.count, LOG_EXTENT_BLOCKS);
		if (extent.kind == DATA_MAPPED && extent.has_csum)
			err = data_map_run(dc, extent.block, extent.addr, run, TUX3_EXTENT_UNCHECKED);
		extent.block += run;
	}
	return err;
}

/* May the file live inline at the end of this delta?  alone: no block but the first has data. */
static bool data_fits_inline(struct data_commit *dc, bool alone)
{
	return S_ISREG(dc->attr->mode) && alone && dc->attr->size <= data_inline_max(dc->vol->block_size) &&
	       dc->attr->size && !(dc->attr->flags & TUX3_ATTR_PREALLOC);
}

static bool data_has_blocks(struct data_commit *dc)
{
	return dc->inode->in_tree && dc->inode->blocks;
}

/* Can what it takes to make it inline be read? */
static int data_reach_to_inline(struct data_commit *dc)
{
	int err = data_reach_inline(dc);

	return err || !data_has_blocks(dc) ? err : data_reach_all(dc, 0, DATA_END);
}

static int data_commit_inline(struct data_commit *dc)
{
	u8 *data = log_commit_buffer(dc->vol, dc->attr->size);
	int err;

	if (!data)
		return -ENOMEM;
	err = dc->vol->host->data_copy(dc->inode, dc->delta, 0, data, dc->attr->size);
	if (!err && data_has_blocks(dc))		/* as was just looked at */
		err = data_punch_all(dc, 0, DATA_END);
	if (!err)
		err = inline_store_data(dc, data);
	if (!err)
		data_set_flag(dc, TUX3_ATTR_INLINE, true);
	return err;
}

/* The file was inline, and its block 0 is not dirty: the size alone may have moved. */
static int data_keep_inline(struct data_commit *dc, bool others_dirty)
{
	u32 max = data_inline_max(dc->vol->block_size);
	u8 *data;
	int len;

	data = log_commit_buffer(dc->vol, max);
	if (!data)
		return -ENOMEM;
	len = data_read_inline(dc->inode, data, max);
	if (len < 0)
		return len;
	if (data_fits_inline(dc, !others_dirty))
		return len == dc->attr->size ? 0 : inline_store_data(dc, data);
	len = min_t(u64, len, dc->attr->size);
	if (len) {
		int err = inline_to_extent(dc, len);

		if (err)
			return err;
	}
	return inline_delete(dc);
}

/*
 * Of a file that became longer the block where it ended had to be zeroed from there on: as it was cut off there before, the device
 * has something behind its old end.  If the zeros cannot be committed that is where it still ends, and nothing is put behind it.
 */
static int data_look_growth(struct data_commit *dc)
{
	u64 size = dc->inode->tree_size, last = size >> dc->vol->block_shift, one = 1, first, count;
	int err;

	if (dc->was_inline || dc->attr->size <= size || last << dc->vol->block_shift == size)
		return 0;
	err = data_reach(dc, last, &one);
	/* Where it was a hole there was nothing to be zeroed. */
	if (unlikely(err == -EIO) && (dc->vol->host->data_next(dc->inode, dc->delta, last, &first, &count) || first != last))
		return 0;
	if (unlikely(data_loses(dc, &err))) {
		WRITE_ONCE(dc->inode->stuck, true);
		dc->attr->size = size;
		dc->end = min(dc->end, last);
	}
	return err;
}

static int data_commit_dirty(struct data_commit *dc)
{
	u64 first = 0, count = 0, one = 1, next;
	bool dirty0, alone;
	int err = dc->vol->host->data_next(dc->inode, dc->delta, 0, &first, &count);

	if (err && err != -ENOENT)
		return err;
	dirty0 = !err && !first;
	alone = dirty0 && count == 1 &&
		dc->vol->host->data_next(dc->inode, dc->delta, 1, &next, &count) == -ENOENT;
	if (data_fits_inline(dc, alone)) {
		err = data_reach_to_inline(dc);
		if (err != -EIO)
			return err ? err : data_commit_inline(dc);
		err = 0;
	}
	if (dc->was_inline) {
		bool dirty = !err;

		/* It gets a block, or may. */
		err = data_reach_inline(dc);
		if (!err)
			err = data_reach(dc, 0, &one);
		if (data_loses(dc, &err))
			return data_lose_all(dc);
		if (!err)
			err = dirty0 ? inline_delete(dc) : data_keep_inline(dc, dirty);
	} else {
		err = 0;
	}
	if (err)
		return err;
	data_set_flag(dc, TUX3_ATTR_INLINE, dc->was_inline);
	err = data_commit_prealloc(dc);
	return err ? err : data_write_dirty(dc);
}

int data_commit(struct tux3_inode *inode, u64 delta, struct tux3_attr *attr, struct io_window *io)
{
	struct data_commit dc = {
		.inode = inode, .vol = inode->vol, .delta = delta, .attr = attr, .io = io,
		.was_inline = inode->in_tree && attr->flags & TUX3_ATTR_INLINE,
		.end = DATA_END, .cut = DATA_END,
		.places = { .inode = inode, .delta = delta, .attr = attr },
	};
	int err;

	lockdep_assert_held(&inode->vol->delta.commit_mutex);
	if (S_ISLNK(attr->mode))
		return inode->in_tree || !inode->target ? 0 : symlink_store(&dc);
	err = data_commit_removed(&dc);
	if (!err && !inode->stuck)
		err = data_commit_unchecked(&dc);
	if (!err && !dc.all_lost)
		err = data_look_growth(&dc);
	if (!err && !dc.all_lost)
		err = data_commit_dirty(&dc);
	data_pay_unkept(&dc);
	early_done(inode, delta);
	if (unlikely(dc.cut != DATA_END) && !err)
		err = delete_cut(inode, dc.cut);
	if (unlikely(dc.lost) && !err)
		data_tell_lost(inode);
	return err;
}

/* ---- remaps ---- */

static void remap_count(struct tux3_inode *inode)
{
	inode_add_blocks(inode, inode->vol->log.blocks_delta);
	inode->vol->log.blocks_delta = 0;
	inode->goal = 0;
}

static int remap_clear(struct data_commit *dc, const struct remap_side *side)
{
	int err = 0;
	u32 i;

	dc->inode = side->inode;
	for (i = 0; i < side->range_count && !err; i++)
		err = data_punch_all(dc, side->ranges[i].block, side->ranges[i].count);
	remap_count(side->inode);
	return err;
}

static int remap_fill(struct data_commit *dc, const struct remap_side *side)
{
	int err = 0;
	u32 i;

	dc->inode = side->inode;
	for (i = 0; i < side->run_count && !err; i++) {
		const struct remap_run *run = &side->runs[i];

		if (run->flags & TUX3_EXTENT_CSUM)
			memcpy(dc->vol->log.extent->csum, side->csums + run->csum, run->count * sizeof(__le32));
		err = data_map_run(dc, run->block, run->addr, run->count, run->flags);
		cond_resched();
	}
	remap_count(side->inode);
	return err;
}

static int remap_commit(struct data_commit *dc, const struct data_remap *remap)
{
	const struct remap_side *side = remap->side;
	int err = 0;
	u32 i;

	for (i = 0; i < remap->sides && !err; i++) {
		dc->inode = side[i].inode;
		err = inode_refresh_blocks(dc->inode);
		if (!err && side[i].drop.count)
			err = data_punch_all(dc, side[i].drop.block, side[i].drop.count);
		remap_count(dc->inode);
	}
	/* First all holes: what two ranges swap is for a moment in neither. */
	dc->vol->log.moving = dc->vol->log.moved = true;
	for (i = 0; i < remap->sides && !err; i++)
		err = remap_clear(dc, &side[i]);
	for (i = 0; i < remap->sides && !err; i++)
		err = remap_fill(dc, &side[i]);
	dc->vol->log.moving = false;
	return err;
}

int data_commit_remaps(struct volume *vol, struct llist_node *list, u64 delta)
{
	struct data_commit dc = { .vol = vol, .delta = delta };
	struct data_remap *remap, *next;
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	vol->log.blocks_delta = 0;
	llist_for_each_entry_safe(remap, next, list, link) {
		err = remap_commit(&dc, remap);
		if (err)
			break;
	}
	return err;
}
