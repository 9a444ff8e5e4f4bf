// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Deleting inodes, and cutting the ends off files.  What is small goes with one record.  What is large, or has very many
 * extended attributes (they go first), goes in slices, over several commits, so that none of them gets long: an ORPHAN
 * item stands for what is left to do, so that after a crash in between the next mount goes on.
 *
 * What goes into one commit is limited, however many inodes there are: they take turns.  Truncates, for which somebody
 * waits, and deletes take turns with each other.
 *
 * Each slice is charged.  If not even the first one of a commit can be, twice in a row, it is time for a unify
 * (delete_is_starved), which gives back what the slices before have taken.
 *
 * While a cut is under way the host lets nobody change the file (data_cut_wait), so that nothing new gets
 * into the range that is going.
 *
 * All of it by the back end, commit_mutex held.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/log/log.h"
#include "core/log/prefetch.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/inode/ialloc.h"
#include "core/inode/inode.h"
#include "core/data/data.h"
#include "core/inode/inode_quota.h"
#include "core/quota/quota.h"
#include "core/data/delete.h"

#define WORKS_MAX	1024u	/* inodes that get a slice in one commit */
#define SLICES_MAX	16u	/* all slices of a commit together, in full ones */

struct delete_work {
	struct list_head link;
	u64 ino;
	u32 kind;		/* TUX3_ORPHAN_... */
	struct tux3_inode *inode;	/* TRUNCATE: pinned; NULL if it goes on from before a crash */
	bool xattrs;		/* DELETE: there may be more of them than go with the inode */
	u64 hash;		/* of the first xattr that is left */
	u64 next;		/* file block where the next slice starts */
	u64 turn;		/* the delta in which it had its last slice */
	s64 left;		/* DELETE of this session: blocks it has still to free, in space.deleting too */
	struct quota_owner *owner;	/* DELETE: counted there */
	bool unknown;		/* DELETE: it goes on from before a crash, and is counted as nobody's yet */
	bool done;		/* finished in the commit being made */
};

/* kind 0: remove it. */
static int delete_orphan_item(struct volume *vol, u64 ino, u32 kind, u64 block)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, ino);
	struct disk_orphan item = { .kind = cpu_to_le32(kind), .block = cpu_to_le64(block) };
	struct record_item record;

	tree_key_to_disk(&record.key, &key);
	if (kind)
		return log_record(vol, TUX3_RECORD_ITEM_SET, &record, sizeof(record), &item, sizeof(item));
	return log_record(vol, TUX3_RECORD_ITEM_DELETE, &record, sizeof(record), NULL, 0);
}

int delete_mark_orphan(struct volume *vol, u64 ino, u32 kind, u64 block)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, ino);
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	tree_edit_begin_at(vol, &key);
	err = delete_orphan_item(vol, ino, kind, block);
	tree_edit_end(vol);
	return err;
}

static int delete_all(struct volume *vol, u64 ino, bool orphan_in_tree)
{
	struct record_inode record = { .ino = cpu_to_le64(ino) };
	int err = ialloc_hold(vol, ino);

	if (!err)
		err = log_record(vol, TUX3_RECORD_INODE_DELETE, &record, sizeof(record), NULL, 0);
	if (!err && orphan_in_tree)
		err = delete_orphan_item(vol, ino, 0, 0);
	if (!err)
		count_add(vol, TUX3_COUNT_INODES_DELETED, 1);
	return err;
}

static struct delete_work *delete_queue(struct volume *vol, u64 ino, u32 kind, u64 block)
{
	struct delete_work *work = kzalloc(sizeof(*work), GFP_COMMIT);

	if (work) {
		work->ino = ino;
		work->kind = kind;
		work->xattrs = kind == TUX3_ORPHAN_DELETE;
		work->next = block;
		list_add_tail(&work->link, kind == TUX3_ORPHAN_TRUNCATE ? &vol->delta.cuts : &vol->delta.deletes);
	}
	return work;
}

int delete_inode(struct tux3_inode *inode, bool is_long)
{
	struct volume *vol = inode->vol;
	struct delete_work *work;
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!is_long)
		err = delete_all(vol, inode->ino, inode->orphan_in_tree);
	else if (!inode->orphan_in_tree)
		err = delete_orphan_item(vol, inode->ino, TUX3_ORPHAN_DELETE, 0);
	if (err || !is_long)
		return err;
	work = delete_queue(vol, inode->ino, TUX3_ORPHAN_DELETE, 0);
	if (!work)
		return -ENOMEM;
	work->left = inode->blocks;
	work->owner = inode_quota_delete(inode);
	atomic64_add(inode->blocks, &vol->space.deleting);
	return 0;
}

/* Of one that goes on from before a crash. */
static struct delete_work *delete_queue_again(struct volume *vol, u64 ino, u32 kind, u64 block)
{
	struct delete_work *work = delete_queue(vol, ino, kind, block);

	if (work && kind == TUX3_ORPHAN_DELETE) {
		work->unknown = true;
		atomic_inc(&vol->quota.unknown);
	}
	return work;
}

/* Now it is known of whom it is.  Without memory the next slice may tell. */
static void delete_known(struct volume *vol, struct delete_work *work, const struct disk_attr *attr)
{
	u32 id[QUOTA_KINDS] = {
		[QUOTA_USER] = le32_to_cpu(attr->uid), [QUOTA_GROUP] = le32_to_cpu(attr->gid),
		[QUOTA_PROJECT] = le32_to_cpu(attr->projid),
	};

	work->owner = quota_kept(&vol->quota) ? quota_owner_get(vol, id) : NULL;
	if (quota_kept(&vol->quota) && !work->owner)
		return;
	quota_owner_deletes(work->owner, 1);
	work->unknown = false;
	atomic_dec(&vol->quota.unknown);
}

bool delete_is_long(struct volume *vol, u64 blocks)
{
	return blocks > 16ULL * vol->opts.slice_extents;
}

/* Has it, from this hash on, more xattrs than slice->left?  Then slice->next is the hash of the next one. */
static int xattrs_look(struct volume *vol, u64 ino, u64 hash, struct tree_skip *slice)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_XATTR, hash);
	struct tree_key to = tree_key(ino, TUX3_ITEM_XATTR, U64_MAX);

	return tree_skip(vol, &from, &to, slice);
}

int delete_inode_is_long(struct tux3_inode *inode)
{
	struct tree_skip slice = { .left = inode->vol->opts.slice_extents };

	lockdep_assert_held(&inode->vol->delta.commit_mutex);
	if (delete_is_long(inode->vol, inode->blocks))
		return 1;
	return inode->attr.flags & TUX3_ATTR_XATTRS ? xattrs_look(inode->vol, inode->ino, 0, &slice) : 0;
}

int delete_cut(struct tux3_inode *inode, u64 block)
{
	struct volume *vol = inode->vol;
	struct delete_work *work;
	int err = delete_mark_orphan(vol, inode->ino, TUX3_ORPHAN_TRUNCATE, block);

	lockdep_assert_held(&inode->vol->delta.commit_mutex);
	if (err)
		return err;
	work = delete_queue(vol, inode->ino, TUX3_ORPHAN_TRUNCATE, block);
	if (!work)
		return -ENOMEM;
	work->inode = inode;
	vol->host->inode_grab(inode);
	return 0;
}


/* After a slice: the attributes say how many blocks are left. */
static int slice_attr(struct volume *vol, struct delete_work *work)
{
	struct tree_key key = tree_key(work->ino, TUX3_ITEM_ATTR, 0);
	struct record_attr record = { .ino = cpu_to_le64(work->ino) };
	int len = tree_edit_lookup(vol, &key, &record.attr, sizeof(record.attr));

	if (len != sizeof(record.attr))
		return len < 0 ? len : -EIO;
	if (unlikely(work->unknown))
		delete_known(vol, work, &record.attr);
	record.attr.blocks = cpu_to_le64(attr_blocks_after(vol, le64_to_cpu(record.attr.blocks), vol->log.blocks_delta));
	if (work->left) {
		work->left += vol->log.blocks_delta;
		atomic64_add(vol->log.blocks_delta, &vol->space.deleting);
	}
	if (work->kind == TUX3_ORPHAN_DELETE)
		record.attr.nlink = 0;		/* its names went in the commit that began this */
	if (work->inode)
		inode_add_blocks(work->inode, vol->log.blocks_delta);
	return log_record(vol, TUX3_RECORD_ATTR_SET, &record, sizeof(record), NULL, 0);
}

static int slice_punch(struct volume *vol, struct delete_work *work, u64 end)
{
	struct record_extent record = {
		.ino = cpu_to_le64(work->ino), .block = cpu_to_le64(work->next),
		.count = cpu_to_le64(end == DATA_END ? DATA_END : end - work->next),
	};
	int err;

	vol->log.blocks_delta = 0;
	err = log_record(vol, TUX3_RECORD_EXTENT_PUNCH, &record, sizeof(record), NULL, 0);
	work->next = end;
	return err ? err : slice_attr(vol, work);
}

/* Free the next xattrs of one inode, at most *left.  0: the few that it still has go with it. */
static int slice_xattrs(struct volume *vol, struct delete_work *work, u32 *left)
{
	u32 limit = min(vol->opts.slice_extents, *left);
	struct tree_skip slice = { .left = limit };
	struct record_hashes record = { .ino = cpu_to_le64(work->ino), .first = cpu_to_le64(work->hash) };
	int more = xattrs_look(vol, work->ino, work->hash, &slice), err;
	struct tree_key from, to;

	if (more <= 0)
		return more;
	*left -= limit;
	from = tree_key(work->ino, TUX3_ITEM_XATTR, work->hash);
	to = tree_key(work->ino, TUX3_ITEM_XATTR, slice.next - 1);
	prefetch_add_items(vol->ahead, &from, &to);
	prefetch_run(vol->ahead);
	record.last = cpu_to_le64(slice.next - 1);
	vol->log.blocks_delta = 0;
	tree_edit_begin(vol);
	err = log_record(vol, TUX3_RECORD_XATTR_PUNCH, &record, sizeof(record), NULL, 0);
	if (!err)
		err = slice_attr(vol, work);
	tree_edit_end(vol);
	work->hash = slice.next;
	return err ? err : 1;
}

/* The last slice. */
static int slice_finish(struct volume *vol, struct delete_work *work)
{
	int err;

	work->done = true;
	if (work->kind == TUX3_ORPHAN_DELETE)
		return delete_all(vol, work->ino, true);
	err = slice_punch(vol, work, DATA_END);
	if (err || (work->inode && work->inode->orphan_in_tree))	/* unlinked since: the item says so now */
		return err;
	return delete_orphan_item(vol, work->ino, 0, 0);
}

/* Free the next extents of one inode, at most *left, or finish it. */
static int slice_extents(struct volume *vol, struct delete_work *work, u32 *left)
{
	struct tree_key from = tree_key(work->ino, TUX3_ITEM_EXTENT, work->next);
	struct tree_key to = tree_key(work->ino, TUX3_ITEM_EXTENT, U64_MAX);
	u32 limit = min(vol->opts.slice_extents, *left);
	struct tree_skip slice = { .left = limit };
	int more = tree_skip(vol, &from, &to, &slice), err;

	if (more < 0)
		return more;
	*left -= more ? limit : limit - slice.left;
	if (more)
		to.offset = slice.next - 1;
	else if (!work->next)
		from = tree_key(work->ino, TUX3_ITEM_XATTR, 0);		/* few, and they go with it */
	prefetch_add_items(vol->ahead, &from, &to);
	prefetch_run(vol->ahead);
	tree_edit_begin(vol);
	err = more ? slice_punch(vol, work, slice.next) : slice_finish(vol, work);
	tree_edit_end(vol);
	return err;
}

static int delete_slice(struct volume *vol, struct delete_work *work, u32 *left)
{
	int more = work->xattrs ? slice_xattrs(vol, work, left) : 0;

	if (more)
		return min(more, 0);
	work->xattrs = false;
	return slice_extents(vol, work, left);
}

/* Who comes next in this queue and had no turn in this commit yet. */
static struct delete_work *queue_next(struct volume *vol, struct list_head *queue)
{
	struct delete_work *work = list_first_entry_or_null(queue, struct delete_work, link);

	return work && work->turn != vol->delta.applying ? work : NULL;
}

static struct delete_work *work_next(struct volume *vol, unsigned int n)
{
	struct delta_state *delta = &vol->delta;
	struct delete_work *work = queue_next(vol, n % 2 ? &delta->deletes : &delta->cuts);

	return work ? work : queue_next(vol, n % 2 ? &delta->cuts : &delta->deletes);
}

/* To the end of its queue, which delta_sleep_ms() must not see empty, or to those that are over. */
static void work_passed(struct volume *vol, struct delete_work *work)
{
	struct list_head *queue = work->kind == TUX3_ORPHAN_TRUNCATE ? &vol->delta.cuts : &vol->delta.deletes;

	if (work->done)
		list_move_tail(&work->link, &vol->delta.deletes_done);
	else if (work->link.next != queue)
		list_move_tail(&work->link, queue);
}

int delete_continue(struct volume *vol, s64 *charged)
{
	u32 left = min_t(u64, (u64)vol->opts.slice_extents * SLICES_MAX, U32_MAX);
	struct delete_work *work;
	unsigned int n;
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	for (n = 0; !err && n < WORKS_MAX && left && (work = work_next(vol, n)); n++) {
		if (!space_charge_slice(vol, !n, charged)) {
			vol->delta.starved += !n;
			break;
		}
		vol->delta.starved = 0;
		work->turn = vol->delta.applying;
		err = delete_slice(vol, work, &left);
		work_passed(vol, work);
		cond_resched();
	}
	return err;
}

static void works_free(struct volume *vol, struct list_head *works, int err)
{
	struct delete_work *work, *next;

	list_for_each_entry_safe(work, next, works, link) {
		list_del(&work->link);
		atomic64_sub(work->left, &vol->space.deleting);
		atomic_sub(work->unknown, &vol->quota.unknown);
		quota_owner_deletes(work->owner, -1);
		quota_owner_put(vol, work->owner);
		if (work->inode) {
			WRITE_ONCE(work->inode->cutting, false);
			vol->host->inode_release(work->inode);
		} else if (!err && work->kind == TUX3_ORPHAN_DELETE) {
			ialloc_free(vol, work->ino);
		}
		kfree(work);
	}
}

void delete_done(struct volume *vol, int err)
{
	works_free(vol, &vol->delta.deletes_done, err);
	if (err) {
		works_free(vol, &vol->delta.cuts, err);
		works_free(vol, &vol->delta.deletes, err);
	}
}

bool delete_under_way(struct volume *vol)
{
	return !list_empty(&vol->delta.deletes) || !list_empty(&vol->delta.cuts);
}

/* What the commits so far have charged may be enough once it is settled: so not at the first time. */
bool delete_is_starved(struct volume *vol)
{
	lockdep_assert_held(&vol->delta.commit_mutex);
	return vol->delta.starved > 1;
}

bool delete_cuts_left(struct volume *vol)
{
	return !list_empty(&vol->delta.cuts);
}

static int orphan_found(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct volume *vol = ctx;
	struct disk_orphan item;

	if (len != sizeof(item) || key->offset <= TUX3_INO_ROOT || key->offset > TUX3_INO_MAX) {
		volume_warn(vol, "orphan item for inode %llu is not valid",
			    (unsigned long long)key->offset);
		return -EIO;
	}
	memcpy(&item, data, sizeof(item));
	if (le32_to_cpu(item.kind) != TUX3_ORPHAN_DELETE && le32_to_cpu(item.kind) != TUX3_ORPHAN_TRUNCATE) {
		volume_warn(vol, "orphan item for inode %llu has unknown kind %u",
			    (unsigned long long)key->offset, le32_to_cpu(item.kind));
		return -EIO;
	}
	if (!delete_queue_again(vol, key->offset, le32_to_cpu(item.kind), le64_to_cpu(item.block)))
		return -ENOMEM;
	if (le32_to_cpu(item.kind) == TUX3_ORPHAN_DELETE)
		volume_count_inodes(vol, -1);
	return 0;
}

int delete_orphans(struct volume *vol)
{
	struct tree_key from = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, 0);
	struct tree_key to = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, U64_MAX);

	return tree_scan(vol, &from, &to, orphan_found, vol);
}

/* One may have gone with the last commit, which took it for dead already: then there is no item. */
static int later_begin(struct volume *vol, u64 ino)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, ino);
	struct disk_orphan item;
	int len = tree_lookup(vol, &key, &item, sizeof(item));

	if (len < 0)
		return len == -ENOENT ? 0 : len;
	if (len != sizeof(item) || le32_to_cpu(item.kind) != TUX3_ORPHAN_DELETE)
		return 0;
	return delete_queue_again(vol, ino, TUX3_ORPHAN_DELETE, 0) ? 0 : -ENOMEM;
}

int delete_begin_later(struct volume *vol)
{
	struct delta_forgotten *forgotten, *next;
	struct list_head list;
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	INIT_LIST_HEAD(&list);
	delta_take_forgotten(vol, &list);
	list_for_each_entry_safe(forgotten, next, &list, link) {
		if (!err)
			err = later_begin(vol, forgotten->ino);
		kfree(forgotten);
	}
	return err;
}

void delete_exit(struct volume *vol)
{
	delete_done(vol, -ESHUTDOWN);
}
