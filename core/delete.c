// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Deleting inodes.  A small one goes with one record.  A large one goes in slices, over several
 * commits, so that none of them gets long: an ORPHAN item stands for what is left to do, so that a
 * crash in between only means that the next mount goes on.
 *
 * All of it by the back end, commit_mutex held.
 */
#include "volume.h"

#define SLICE_EXTENTS	2048u		/* items freed in one commit */
#define SLICE_BLOCKS	32768u		/* an inode with more blocks is deleted in slices */

struct delete_work {
	struct list_head link;
	u64 ino;
	u64 next;		/* file block where the next slice starts */
	bool done;		/* finished in the commit being made */
};

bool delete_in_progress(struct volume *vol, u64 ino)
{
	struct delete_work *work;

	list_for_each_entry(work, &vol->delta.deletes, link) {
		if (work->ino == ino)
			return true;
	}
	return false;
}

static int delete_orphan_item(struct volume *vol, u64 ino, bool set)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, ino);
	struct disk_orphan item = { .kind = cpu_to_le32(TUX3_ORPHAN_DELETE) };
	struct record_item record;

	tree_key_to_disk(&record.key, &key);
	if (set)
		return log_record(vol, TUX3_RECORD_ITEM_SET, &record, sizeof(record), &item, sizeof(item));
	return log_record(vol, TUX3_RECORD_ITEM_DELETE, &record, sizeof(record), NULL, 0);
}

static int delete_all(struct volume *vol, u64 ino, bool orphan_in_tree)
{
	struct record_inode record = { .ino = cpu_to_le64(ino) };
	int err = log_record(vol, TUX3_RECORD_INODE_DELETE, &record, sizeof(record), NULL, 0);

	if (!err && orphan_in_tree)
		err = delete_orphan_item(vol, ino, false);
	if (!err)
		count_add(vol, TUX3_COUNT_INODES_DELETED, 1);
	return err;
}

static struct delete_work *delete_queue(struct volume *vol, u64 ino)
{
	struct delete_work *work = kzalloc(sizeof(*work), GFP_NOFS);

	if (work) {
		work->ino = ino;
		list_add_tail(&work->link, &vol->delta.deletes);
	}
	return work;
}

int delete_inode(struct volume *vol, u64 ino, u64 blocks, bool orphan_in_tree)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);
	int err = 0;

	tree_prefetch(vol, &key);
	tree_edit_begin(vol);
	if (blocks <= SLICE_BLOCKS)
		err = delete_all(vol, ino, orphan_in_tree);
	else if (!orphan_in_tree)
		err = delete_orphan_item(vol, ino, true);
	tree_edit_end(vol);
	if (!err && blocks > SLICE_BLOCKS && !delete_queue(vol, ino))
		err = -ENOMEM;
	return err;
}

struct slice {
	u32 items;
	u64 end;
};

static int slice_count(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct slice *slice = ctx;

	slice->end = key->offset;
	return ++slice->items > SLICE_EXTENTS;
}

/* After a slice: the attributes say how many blocks are left. */
static int delete_slice_attr(struct volume *vol, u64 ino)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);
	struct record_attr record = { .ino = cpu_to_le64(ino) };
	int len = tree_edit_lookup(vol, &key, &record.attr, sizeof(record.attr));

	if (len != sizeof(record.attr))
		return len < 0 ? len : -EIO;
	record.attr.blocks = cpu_to_le64(le64_to_cpu(record.attr.blocks) + vol->log.blocks_delta);
	record.attr.nlink = 0;		/* its names went in the commit that began this */
	return log_record(vol, TUX3_RECORD_ATTR_SET, &record, sizeof(record), NULL, 0);
}

/* Free the next extents of one inode, or finish it. */
static int delete_slice(struct volume *vol, struct delete_work *work)
{
	struct tree_key from = tree_key(work->ino, TUX3_ITEM_EXTENT, work->next);
	struct tree_key to = tree_key(work->ino, TUX3_ITEM_EXTENT, U64_MAX);
	struct record_extent record = { .ino = cpu_to_le64(work->ino), .block = cpu_to_le64(work->next) };
	struct slice slice = {};
	int more = tree_scan(vol, &from, &to, slice_count, &slice), err;

	if (more < 0)
		return more;
	tree_edit_begin(vol);
	if (more) {
		record.count = cpu_to_le64(slice.end - work->next);
		vol->log.blocks_delta = 0;
		err = log_record(vol, TUX3_RECORD_EXTENT_PUNCH, &record, sizeof(record), NULL, 0);
		if (!err)
			err = delete_slice_attr(vol, work->ino);
		work->next = slice.end;
	} else {
		err = delete_all(vol, work->ino, true);
		work->done = true;
	}
	tree_edit_end(vol);
	return err;
}

int delete_continue(struct volume *vol)
{
	struct delete_work *work;
	int err = 0;

	list_for_each_entry(work, &vol->delta.deletes, link) {
		err = delete_slice(vol, work);
		if (err)
			break;
	}
	return err;
}

void delete_done(struct volume *vol, int err)
{
	struct delete_work *work, *next;

	list_for_each_entry_safe(work, next, &vol->delta.deletes, link) {
		if (!work->done && !err)
			continue;
		list_del(&work->link);
		if (!err)
			ialloc_free(vol, work->ino);
		kfree(work);
	}
}

struct orphans {
	struct volume *vol;
	int err;
};

static int orphan_found(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct orphans *orphans = ctx;
	struct disk_orphan item;

	if (len != sizeof(item) || key->offset <= TUX3_INO_ROOT || key->offset > TUX3_INO_MAX) {
		volume_warn(orphans->vol, "orphan item for inode %llu is not valid",
			    (unsigned long long)key->offset);
		return -EIO;
	}
	memcpy(&item, data, sizeof(item));
	if (le32_to_cpu(item.kind) != TUX3_ORPHAN_DELETE) {
		volume_warn(orphans->vol, "orphan item for inode %llu has unknown kind %u",
			    (unsigned long long)key->offset, le32_to_cpu(item.kind));
		return -EIO;
	}
	if (!delete_queue(orphans->vol, key->offset))
		return -ENOMEM;
	atomic64_dec(&orphans->vol->inodes);
	return 0;
}

int delete_orphans(struct volume *vol)
{
	struct tree_key from = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, 0);
	struct tree_key to = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, U64_MAX);
	struct orphans orphans = { .vol = vol };

	return tree_scan(vol, &from, &to, orphan_found, &orphans);
}

void delete_exit(struct volume *vol)
{
	delete_done(vol, -ESHUTDOWN);
}
