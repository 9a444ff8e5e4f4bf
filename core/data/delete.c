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
 * What cannot be read cannot be freed, and one bad block must not take the volume along: before a slice changes anything, or an
 * inode that is small goes, it is looked whether all that this takes can be read (look_*).  If not, it is put off until the
 * volume is opened again, or repaired: the ORPHAN item stays, and that is told.  The data of a file whose end could not be cut off
 * is not changed meanwhile (delete_cut_failed), or what is behind the end would come back.
 *
 * All of it by the back end, commit_mutex held.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/format/chain.h"
#include "core/tree/tree.h"
#include "core/log/apply.h"
#include "core/log/log.h"
#include "core/log/prefetch.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/inode/ialloc.h"
#include "core/inode/inode.h"
#include "core/inode/path.h"
#include "core/data/data.h"
#include "core/inode/inode_quota.h"
#include "core/quota/quota.h"
#include "core/data/delete.h"
#include "core/data/reach.h"

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
	bool put_off;		/* done, but its item stays: something that it takes cannot be read */
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

/* ---- can it be read? ---- */

int delete_look_blocks(struct volume *vol, u64 addr, u64 count)
{
	int ret = balloc_all_loaded(vol) ? 0 : balloc_test(vol, addr, count);

	return ret == -ERANGE ? 0 : min(ret, 0);	/* what the map says is another matter */
}

/* Blocks of as many items as there is room for.  Of an item with more of them, which large blocks allow, not all are looked at. */
#define LOOK_RANGES	96u

struct look {
	struct volume *vol;
	struct tree_key next;		/* where to go on, if there was no room for an item */
	u32 count;
	u32 len[LOOK_RANGES];		/* apart from the addresses: the stack is small */
	u64 addr[LOOK_RANGES];
};

static void look_add(struct look *look, u64 addr, u32 len)
{
	if (look->count == LOOK_RANGES)
		return;
	look->addr[look->count] = addr;
	look->len[look->count++] = len;
}

/* Where the tree is locked, so nothing is read. */
static int look_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	const struct disk_xattr *entry;
	struct disk_extent extent;
	struct look *look = ctx;
	u32 i, most = key->type == TUX3_ITEM_XATTR ? len / sizeof(struct disk_xattr_piece) : 1;

	if (look->count && look->count + most > LOOK_RANGES) {
		look->next = *key;
		return 1;
	}
	if (key->type == TUX3_ITEM_EXTENT && !extent_check(look->vol, data, len)) {
		memcpy(&extent, data, sizeof(extent));
		look_add(look, le64_to_cpu(extent.addr), le32_to_cpu(extent.len));
	}
	while (key->type == TUX3_ITEM_XATTR && (entry = chain_next_xattr(&chain))) {
		const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);

		for (i = 0; i < entry->pieces; i++)
			look_add(look, get_unaligned_le64(&piece[i].addr), get_unaligned_le32(&piece[i].len));
	}
	return 0;
}

/* delta: until this one is committed free maps stay; 0: they need not. */
static int look_items(struct volume *vol, const struct tree_key *from, const struct tree_key *to, u64 delta)
{
	struct look look = { .vol = vol, .next = *from };
	int more, err = 0;
	u32 i;

	do {
		look.count = 0;
		more = tree_scan(vol, &look.next, to, look_item, &look);
		for (i = 0; i < look.count && !err; i++)
			err = delta ? balloc_need(vol, look.addr[i], look.len[i], delta) :
				      delete_look_blocks(vol, look.addr[i], look.len[i]);
	} while (more > 0 && !err);
	return more < 0 ? more : err;
}

int delete_look_items(struct volume *vol, const struct tree_key *from, const struct tree_key *to)
{
	return look_items(vol, from, to, 0);
}

int delete_need_maps(struct volume *vol, const struct tree_key *from, const struct tree_key *to, u64 delta)
{
	return balloc_all_stay(vol) ? 0 : look_items(vol, from, to, delta);
}

static int look_key(struct volume *vol, u64 ino, u8 type, u64 offset)
{
	struct tree_key key = tree_key(ino, type, offset);

	return tree_look(vol, &key);
}

/* Attributes, usage of who has the inode, and the ORPHAN item.  gone: that there are no attributes is no matter. */
static int look_attr(struct volume *vol, u64 ino, bool gone)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);
	struct disk_attr attr = {};
	int err = tree_lookup(vol, &key, &attr, sizeof(attr));

	if (err == -ENOENT && gone)
		return 0;
	if (err != sizeof(attr))
		return err < 0 && err != -ENOENT ? err : -EIO;
	err = look_key(vol, TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, ino);
	if (!(vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA))
		return err;
	if (!err)
		err = look_key(vol, TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, le32_to_cpu(attr.uid));
	if (!err)
		err = look_key(vol, TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_GROUP, le32_to_cpu(attr.gid));
	return err ? err : look_key(vol, TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_PROJECT, le32_to_cpu(attr.projid));
}

/*
 * A leaf that has nothing but this inode goes with it, and the one before gets its range: numbers, too, that new inodes have been
 * given since, which come into the tree with this commit or the next one.  So that one must be readable.
 */
static int look_before(struct volume *vol, u64 ino)
{
	struct tree_key at = tree_key(ino - 1, U8_MAX, U64_MAX);

	return tree_look_before(vol, &at);
}

/* All that the inode still has. */
static int look_inode(struct volume *vol, u64 ino)
{
	struct tree_key from = tree_key(ino, 0, 0), to = tree_key(ino, U8_MAX, U64_MAX);
	int err = delete_look_items(vol, &from, &to);

	if (!err)
		err = look_before(vol, ino);
	return err ? err : look_attr(vol, ino, true);
}

/* What a slice changes: these items, of which the leaves have been read, and an extent before them that goes on into them. */
static int look_slice(struct volume *vol, u64 ino, const struct tree_key *from, const struct tree_key *to)
{
	struct tree_key at = *from, first = tree_key(ino, from->type, 0), found;
	int err = balloc_all_loaded(vol) ? 0 : delete_look_items(vol, from, to);

	if (!err && from->offset) {
		at.offset--;
		err = tree_lookup_before(vol, &at, &first, &found, NULL, 0);
		err = err == -ENOENT ? 0 : min(err, 0);
	}
	return err ? err : look_attr(vol, ino, false);
}

int delete_look(struct tux3_inode *inode, u64 block, u64 count)
{
	u64 end = count > DATA_END - block ? DATA_END : block + count;
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_EXTENT, block), to = tree_key(inode->ino, TUX3_ITEM_EXTENT, end - 1);
	struct tree_skip all = { .left = U64_MAX };
	int err;

	/* What is cut off in slices is looked at with each of them; what has no name is not (data_remove()). */
	if (likely(!inode->scattered) || !count ||
	    (end == DATA_END && READ_ONCE(inode->attr.nlink) && delete_is_long(inode->vol, READ_ONCE(inode->blocks))))
		return 0;
	err = tree_skip(inode->vol, &from, &to, &all);
	return err < 0 ? err : look_slice(inode->vol, inode->ino, &from, &to);
}

/* ---- small ones, and how large ones begin ---- */

/* The end of this inode could not be cut off, in this session or before: it has an item for that.  forget: it goes, too. */
static bool cut_is_put_off(struct volume *vol, u64 ino, bool forget)
{
	struct delete_work *work, *found = NULL;
	bool is;

	if (likely(!READ_ONCE(vol->delta.cuts_failed)))
		return false;
	spin_lock(&vol->delta.forgotten_lock);
	list_for_each_entry(work, &vol->delta.cuts_put_off, link)
		if (work->ino == ino)
			found = work;
	is = found;
	if (found && forget)
		list_del(&found->link);
	spin_unlock(&vol->delta.forgotten_lock);
	if (forget)
		kfree(found);
	return is;
}

bool delete_cut_failed(struct volume *vol, u64 ino)
{
	return cut_is_put_off(vol, ino, false);
}

static int delete_all(struct volume *vol, u64 ino, bool orphan_in_tree)
{
	struct record_inode record = { .ino = cpu_to_le64(ino) };
	int err = ialloc_hold(vol, ino);

	orphan_in_tree |= cut_is_put_off(vol, ino, true);
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

/* A small one.  What it has is mostly in one leaf, in memory. */
static int look_small(struct tux3_inode *inode)
{
	struct tree_key from = tree_key(inode->ino, 0, 0), to = tree_key(inode->ino, U8_MAX, U64_MAX);
	struct volume *vol = inode->vol;
	int err;

	if (!tree_edit_is_near(vol, &from, &to))
		return look_inode(vol, inode->ino);
	err = tree_edit_has_all(vol, &from, &to) ? 0 : look_before(vol, inode->ino);
	if (!err && unlikely(inode->owner))
		err = READ_ONCE(vol->tree.must_look) ? look_attr(vol, inode->ino, false) : inode_quota_read(inode);
	if (!err && inode->orphan_in_tree)
		err = look_key(vol, TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, inode->ino);
	if (err)
		return err;
	return inode->blocks && !balloc_all_loaded(vol) ? delete_look_items(vol, &from, &to) : 0;
}

int delete_inode_is_long(struct tux3_inode *inode)
{
	struct tree_skip slice = { .left = inode->vol->opts.slice_extents };
	struct volume *vol = inode->vol;
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (delete_is_long(vol, inode->blocks))
		return 1;
	cache_keep(vol, true);
	if (inode->attr.flags & TUX3_ATTR_XATTRS)
		err = xattrs_look(vol, inode->ino, 0, &slice);
	if (!err)
		err = look_small(inode);
	cache_keep(vol, false);
	return err == -EIO ? 1 : err;
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

/* What a look has said, before anything was changed.  What cannot be read stays as it is; it has no more turns. */
static int work_looked(struct volume *vol, struct delete_work *work, int err)
{
	if (err != -EIO)
		return err;
	if (work->kind == TUX3_ORPHAN_TRUNCATE)
		inode_tell(vol, "what was cut off inode", work->ino, " cannot be freed, since metadata of it cannot be read: its data cannot be changed; fsck.tux3 -y repairs that");
	else
		inode_tell(vol, "inode", work->ino, " is removed, but cannot be freed, since metadata of it cannot be read: its blocks stay in use; fsck.tux3 -y repairs that");
	work->done = work->put_off = true;
	return 0;
}

/* Free the next xattrs of one inode, at most *left.  0: the few that it still has go with it; 1: this was its turn. */
static int slice_xattrs(struct volume *vol, struct delete_work *work, u32 *left)
{
	u32 limit = min(vol->opts.slice_extents, *left);
	struct tree_skip slice = { .left = limit };
	struct record_hashes record = { .ino = cpu_to_le64(work->ino), .first = cpu_to_le64(work->hash) };
	int more = xattrs_look(vol, work->ino, work->hash, &slice), err;
	struct tree_key from, to;

	if (more < 0) {
		err = work_looked(vol, work, more);
		return err ? err : 1;
	}
	if (!more)
		return 0;
	*left -= limit;
	from = tree_key(work->ino, TUX3_ITEM_XATTR, work->hash);
	to = tree_key(work->ino, TUX3_ITEM_XATTR, slice.next - 1);
	prefetch_add_items(vol->ahead, &from, &to);
	prefetch_run(vol->ahead);
	cache_keep(vol, true);
	err = look_slice(vol, work->ino, &from, &to);
	cache_keep(vol, false);
	err = work_looked(vol, work, err);
	if (err || work->put_off)
		return err ? err : 1;
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
		return work_looked(vol, work, more);
	*left -= more ? limit : limit - slice.left;
	if (more)
		to.offset = slice.next - 1;
	else if (!work->next)
		from = tree_key(work->ino, TUX3_ITEM_XATTR, 0);		/* few, and they go with it */
	prefetch_add_items(vol->ahead, &from, &to);
	prefetch_run(vol->ahead);
	cache_keep(vol, true);
	if (more || work->kind == TUX3_ORPHAN_TRUNCATE)
		err = look_slice(vol, work->ino, &from, &to);
	else
		err = look_inode(vol, work->ino);
	cache_keep(vol, false);
	err = work_looked(vol, work, err);
	if (err || work->put_off)
		return err;
	tree_edit_begin(vol);
	err = more ? slice_punch(vol, work, slice.next) : slice_finish(vol, work);
	tree_edit_end(vol);
	return err;
}

static int delete_slice(struct volume *vol, struct delete_work *work, u32 *left)
{
	int more;

	cache_keep_no_more(vol);
	more = work->xattrs ? slice_xattrs(vol, work, left) : 0;
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

/* Before anybody hears that the cut is over. */
static void cut_keep(struct volume *vol, struct delete_work *work)
{
	spin_lock(&vol->delta.forgotten_lock);
	list_add(&work->link, &vol->delta.cuts_put_off);
	spin_unlock(&vol->delta.forgotten_lock);
	WRITE_ONCE(vol->delta.cuts_failed, true);
}

static void works_free(struct volume *vol, struct list_head *works, int err)
{
	struct delete_work *work, *next;

	list_for_each_entry_safe(work, next, works, link) {
		list_del_init(&work->link);
		atomic64_sub(work->left, &vol->space.deleting);
		atomic_sub(work->unknown, &vol->quota.unknown);
		quota_owner_deletes(work->owner, -1);
		quota_owner_put(vol, work->owner);
		if (!err && work->put_off && work->kind == TUX3_ORPHAN_TRUNCATE)
			cut_keep(vol, work);
		if (work->inode) {
			smp_store_release(&work->inode->cutting, false);	/* who sees that sees what is kept */
			vol->host->inode_release(work->inode);
			work->inode = NULL;
		} else if (!err && work->kind == TUX3_ORPHAN_DELETE && !work->put_off) {
			ialloc_free(vol, work->ino);
		}
		if (list_empty(&work->link))
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
	works_free(vol, &vol->delta.cuts_put_off, -ESHUTDOWN);
}
