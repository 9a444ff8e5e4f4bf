// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Committing a delta: what the back end does with a group of finished changes.
 *
 *	transition	the delta is frozen (delta.c)
 *	place		for each dirty inode: blocks for its data, submitted at once; its records logged
 *			and applied to the tree in memory (so mappings exist before pages turn clean)
 *	log		the log blocks are submitted beside the data
 *	durable		all writes completed, one flush
 *	done		committed moves; overlays of the delta are dropped, what it freed may be reused
 *
 * A delta with more than DATA_FIRST_BYTES of data, or a volume without data checksums, has its data
 * flushed before its log is written (two flushes): otherwise replay recognises by the checksums
 * that data of the last commit is missing.  So has one in which blocks move from file to file: these were written long ago,
 * and if one of them is rotten by now, that says nothing of the commit.  Likewise what fsyncs have put where it stays, if that is
 * all its data, or much.
 *
 * Any error on the way aborts: the volume becomes read-only and every waiter hears of it.
 * What was applied in memory by then is never written, since no unify starts after an error.  Nor does another commit:
 * the aborted delta stays the back delta until the volume is closed.  So its removed ranges, names, xattrs, attributes
 * and cached data go on covering the tree, which holds some of them and not others, and readers see what the front
 * end has made of the volume.
 *
 * commit_mutex held throughout.
 */
#include "core/volume.h"
#include "core/device/device.h"
#include "core/blocks/balloc.h"
#include "core/blocks/block_reads.h"
#include "core/tree/tree.h"
#include "core/quota/quota.h"
#include "core/log/log.h"
#include "core/log/prefetch.h"
#include "core/delta/delta.h"
#include "core/delta/pace.h"
#include "core/delta/space.h"
#include "core/inode/file_range.h"
#include "core/inode/ialloc.h"
#include "core/inode/inode.h"
#include "core/inode/inode_quota.h"
#include "core/inode/xattr.h"
#include "core/names/name_change.h"
#include "core/names/parent.h"
#include "core/data/data.h"
#include "core/data/delete.h"
#include "core/data/reach.h"
#include "core/data/remap.h"
#include "core/commit/commit.h"
#include "core/commit/unify.h"
#include "core/intent/intent.h"

#define DATA_FIRST_BYTES (4u << 20)
#define COMMIT_SMALL_BLOCKS 1024u
#define COMMIT_SYNCED_S 1u
#define COMMIT_LINE 64u		/* bytes that come into a CPU's cache together; a guess does no harm */

/* Read the inode's state at the end of the delta.  Returns its dirty bits. */
static u32 commit_take_attr(struct tux3_inode *inode, u64 delta, struct tux3_attr *attr)
{
	struct inode_slot *slot;
	u32 dirty;

	spin_lock(&inode->lock);
	slot = inode_slot_of(inode, delta);
	*attr = slot->frozen ? inode->frozen : *inode_attr(inode);
	slot->taken = true;
	dirty = slot->dirty;
	spin_unlock(&inode->lock);
	return dirty;
}

/*
 * Names of directories in which names changed are not logged all at once, but each with the inode that it is about, where these
 * come in the same order, as they mostly do.  So what belongs together is added to the tree at one place, whose leaves
 * get full; and of an inode that goes, the parent pointers have gone with it.  A directory's own turn comes when all its
 * names are logged, or so many others are under way.
 */
#define COMMIT_DIRS 4u

struct commit_dirs {
	struct name_cursor names[COMMIT_DIRS];
	u32 count, oldest;
};

/* With the edit lock: the names that the inode got or lost.  The newest directory first: mostly it is that.  dirs NULL: none. */
static int commit_names_of(struct commit_dirs *dirs, u64 ino)
{
	u32 n = dirs ? dirs->count : 0;
	int err = 0;

	while (n-- && !err)
		err = name_commit(&dirs->names[(dirs->oldest + n) % COMMIT_DIRS], ino);
	return err;
}

/* Mostly there are none: the inode came and went within the delta, or this one's own turn is later.  Then without the lock. */
static int commit_names(struct volume *vol, struct commit_dirs *dirs, u64 ino)
{
	u32 n = dirs ? dirs->count : 0;
	int err;

	while (n && !name_cursor_is_at(&dirs->names[n - 1], ino))
		n--;
	if (!n)
		return 0;
	tree_edit_begin(vol);
	err = commit_names_of(dirs, ino);
	tree_edit_end(vol);
	return err;
}

/* Of a directory. */
static int commit_names_left(struct name_cursor *names)
{
	struct volume *vol = names->dir->vol;
	int err;

	if (!name_cursor_is_at(names, 0))
		return 0;
	tree_edit_begin(vol);
	err = name_commit(names, 0);
	tree_edit_end(vol);
	return err;
}

/* Its leaf was read ahead by commit_read_ahead(). */
static int commit_attr(struct tux3_inode *inode, const struct tux3_attr *attr, struct commit_dirs *dirs)
{
	struct record_attr record = { .ino = cpu_to_le64(inode->ino) };
	bool settled;
	int err;

	attr_to_disk(&record.attr, attr, inode->blocks);
	tree_edit_begin(inode->vol);
	err = log_record(inode->vol, TUX3_RECORD_ATTR_SET, &record, sizeof(record), NULL, 0);
	settled = !err && !inode->in_tree;
	if (!err)
		err = commit_names_of(dirs, inode->ino);
	tree_edit_end(inode->vol);
	WRITE_ONCE(inode->tree_size, attr->size);
	if (settled) {
		WRITE_ONCE(inode->in_tree, true);	/* an fsync looks */
		ialloc_settle(inode->vol, inode->ino);
	}
	return err;
}

/* An inode without a name but still in use must be found at mount, should the machine crash. */
static int commit_orphan(struct tux3_inode *inode, bool orphan)
{
	int err;

	if (inode->orphan_in_tree == orphan)
		return 0;
	err = delete_mark_orphan(inode->vol, inode->ino, orphan ? TUX3_ORPHAN_DELETE : 0, 0);
	if (!err)
		inode->orphan_in_tree = orphan;
	return err;
}

/*
 * It has no name any more.  Everything else is as the tree has it, and not as it became in this delta: data that was cut off
 * in it, for one, goes with the rest.
 */
static int commit_nameless(struct tux3_inode *inode)
{
	struct record_attr record = { .ino = cpu_to_le64(inode->ino) };
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	int err = tree_lookup(inode->vol, &key, &record.attr, sizeof(record.attr));

	if (err != sizeof(record.attr))
		return err < 0 ? err : -EIO;
	record.attr.nlink = 0;
	return log_record_at(inode->vol, &key, TUX3_RECORD_ATTR_SET, &record, sizeof(record), NULL, 0);
}

static int commit_kill(struct tux3_inode *inode, u64 delta, struct commit_dirs *dirs)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	struct volume *vol = inode->vol;
	int is_long, err;

	inode->deleted = true;
	if (!inode->in_tree) {
		count_add(vol, TUX3_COUNT_INODES_VANISHED, 1);
		name_vanish(inode, delta);
		return commit_names(vol, dirs, inode->ino);
	}
	is_long = delete_inode_is_long(inode);
	err = min(is_long, 0);
	/* Of a long delete no slice may get its turn in this commit: the tree must say that there is no name. */
	if (!err && !inode->orphan_in_tree && is_long)
		err = commit_nameless(inode);
	if (err)
		return err;
	tree_edit_begin_at(vol, &key);
	err = delete_inode(inode, is_long);
	if (!err)
		err = commit_names_of(dirs, inode->ino);
	tree_edit_end(vol);
	/* A long delete gives the number back when it is over. */
	inode->number_returned = is_long && !err;
	return err;
}

/* Who syncs a file again and again does so soon, too, when a commit that is due comes first. */
static bool commit_synced_lately(const struct tux3_inode *inode)
{
	u32 synced_s = READ_ONCE(inode->synced_s);

	return synced_s && (u32)(ktime_get_ns() / NSEC_PER_SEC) - synced_s <= COMMIT_SYNCED_S;
}

/* Blocks of data that commits have given a place so far. */
static u64 commit_placed(struct volume *vol)
{
	return delta_counter(vol, TUX3_COUNT_DATA_BLOCKS) + delta_counter(vol, TUX3_COUNT_EARLY_BLOCKS);
}

static int commit_data(struct tux3_inode *inode, u64 delta, struct tux3_attr *attr, struct io_window *io)
{
	struct volume *vol = inode->vol;
	u64 before = commit_placed(vol);
	int err = data_commit(inode, delta, attr, io);

	if (READ_ONCE(inode->slot[delta & 1].awaited) || commit_synced_lately(inode))
		vol->delta.awaited += commit_placed(vol) - before;
	return err;
}

/* Can its attributes be set?  Mostly they are where the last edit was, and else the next one will be here. */
static int commit_reach_attr(struct tux3_inode *inode)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	struct volume *vol = inode->vol;
	int err;

	if (!inode->in_tree || tree_edit_is_near(vol, &key, &key))
		return 0;
	tree_edit_begin(vol);
	tree_edit_reach(vol, &key);
	tree_edit_end(vol);
	if (tree_edit_is_near(vol, &key, &key))
		return 0;
	cache_keep(vol, true);
	err = tree_look(vol, &key);
	cache_keep(vol, false);
	return err;
}

/* Is what has changed of it all its own?  Then the tree is as it should be without it, too. */
static bool commit_may_lose(struct tux3_inode *inode, u64 delta, u32 dirty)
{
	const struct inode_slot *slot;
	bool may;

	spin_lock(&inode->lock);
	slot = inode_slot_of(inode, delta);
	may = !(dirty & ~(INODE_DIRTY_ATTR | INODE_DIRTY_DATA | INODE_DIRTY_XATTRS | INODE_DIRTY_ATIME | INODE_DIRTY_DELETE)) &&
	      !slot->tie && !slot->ties && !slot->untied;
	spin_unlock(&inode->lock);
	return may;
}

/*
 * Its attributes cannot be read any more, and so not set: nothing of it is committed.  Names, and what comes with them, cannot be
 * left out: that stops the volume.  Attributes alone, and extended ones, may be set by the next commit.
 */
static int commit_lose(struct tux3_inode *inode, u64 delta, u32 dirty)
{
	if (!commit_may_lose(inode, delta, dirty))
		return -EIO;
	if (dirty & INODE_DIRTY_DATA)
		WRITE_ONCE(inode->stuck, true);
	if (inode->slot[delta & 1].cut != DATA_END)
		WRITE_ONCE(inode->cutting, false);
	if (dirty & ~(INODE_DIRTY_ATIME | INODE_DIRTY_DELETE))
		data_tell_lost(inode);
	return 0;
}

/* What it takes to set or remove an extended attribute.  Of an inode that is new all goes where its number was found to be free. */
static int commit_reach_xattr(struct tux3_inode *inode, u64 hash)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_XATTR, hash);
	struct volume *vol = inode->vol;
	int err;

	if (!inode->in_tree || (tree_edit_has_all(vol, &key, &key) && balloc_all_loaded(vol)))
		return 0;
	cache_keep(vol, true);
	err = reach_xattr(inode, hash);
	cache_keep(vol, false);
	return err;
}

static int commit_xattrs(struct tux3_inode *inode, u64 delta, struct io_window *io)
{
	bool lost = false;
	int err = xattr_commit(inode, delta, commit_reach_xattr, io_window_wait(io), &lost);

	if (unlikely(lost) && !err)
		data_tell_lost(inode);
	return err;
}

/* names: of a directory, where to go on with its names, if they changed.  dirs: of others, where their own may come next. */
static int commit_inode(struct tux3_inode *inode, u64 delta, struct name_cursor *names, struct commit_dirs *dirs,
			struct io_window *io)
{
	struct volume *vol = inode->vol;
	struct tux3_attr attr;
	u32 dirty = commit_take_attr(inode, delta, &attr);
	bool kill;
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (inode->deleted)
		return commit_names(vol, dirs, inode->ino);
	cache_keep_no_more(vol);
	/* No name at the end of this delta, and none given since. */
	kill = !attr.nlink && !READ_ONCE(inode->attr.nlink) && vol->host->inode_kill(inode);
	/* Of one that goes, delete.c looks at all.  That it has no name any more cannot be left out. */
	err = !kill && (attr.nlink || inode->orphan_in_tree) ? commit_reach_attr(inode) : 0;
	if (!kill && !err)
		err = quota_reach(inode, delta, dirty, &attr);
	if (unlikely(err == -EIO))
		return commit_lose(inode, delta, dirty);
	if (!err)
		err = inode_refresh_blocks(inode);
	if (err)
		return err;
	if (kill) {
		/* What was moved out of a directory before it went: the parent pointers must go. */
		if (inode->in_tree && dirty & INODE_DIRTY_NAMES)
			err = commit_names_left(names);
		return err ? err : commit_kill(inode, delta, dirs);
	}

	if (dirty & INODE_DIRTY_NAMES)
		err = commit_names_left(names);
	vol->log.blocks_delta = 0;
	if (!err && dirty & INODE_DIRTY_XATTRS)
		err = commit_xattrs(inode, delta, io);
	/* Before data: a long truncate puts an item of its own where an orphan's is. */
	if (!err)
		err = commit_orphan(inode, !attr.nlink);
	if (!err && unlikely(inode->stuck))
		err = data_commit_stuck(inode, delta, dirty, &attr);
	else if (!err && (dirty & INODE_DIRTY_DATA || (S_ISLNK(attr.mode) && !inode->in_tree)))
		err = commit_data(inode, delta, &attr, io);
	if (err)
		return err;
	if (vol->log.blocks_delta)
		inode_add_blocks(inode, vol->log.blocks_delta);
	err = commit_attr(inode, &attr, dirs);
	count_add(vol, TUX3_COUNT_INODES_COMMITTED, 1);
	return err;
}

/* The delta is durable, or the volume is closed after an error: its slots are free again. */
static void commit_inode_done(struct tux3_inode *inode, u64 delta, int err)
{
	struct volume *vol = inode->vol;
	struct inode_slot *slot = &inode->slot[delta & 1];
	struct rb_root removed = RB_ROOT, prealloc;
	u32 dirty = slot->dirty;
	bool last;

	lockdep_assert_held(&vol->delta.commit_mutex);
	/*
	 * Before the host drops clean data: what was removed and then written again is in the tree, not a hole.  Others only
	 * look at the set of a back delta.
	 */
	if (!RB_EMPTY_ROOT(&slot->removed)) {
		spin_lock(&inode->lock);
		removed = slot->removed;
		slot->removed = RB_ROOT;
		spin_unlock(&inode->lock);
	}
	if (dirty & INODE_DIRTY_NAMES)
		name_done(inode, delta);
	if (dirty & INODE_DIRTY_XATTRS)
		xattr_done(inode, delta);
	if (dirty & INODE_DIRTY_DATA)
		vol->host->data_done(inode, delta, err);
	spin_lock(&inode->lock);
	prealloc = slot->prealloc;
	if (unlikely(slot->lost))
		inode_quota_carry_locked(inode, delta);
	inode_slot_reset(inode_slot_of(inode, delta));
	inode->given_back = false;
	last = !inode->slot[~delta & 1].dirty;
	spin_unlock(&inode->lock);
	if (!RB_EMPTY_ROOT(&removed))
		file_ranges_free(&removed);
	if (!RB_EMPTY_ROOT(&prealloc))
		file_ranges_free(&prealloc);
	if (inode->deleted && last && !inode->number_returned) {
		inode->number_returned = true;
		ialloc_free(vol, inode->ino);
	}
	inode_verify_done(inode, delta);
	vol->host->inode_release(inode);
}

/* Flush, unless the device needs none.  Everything completed before is durable then. */
static int commit_flush(struct volume *vol, u64 *io_ns)
{
	u64 start = ktime_get_ns(), ns;
	int err = unify_poll(vol);	/* what a unify has completed by now, this flush makes durable too */

	if (err || !vol->dev->volatile_cache)
		return err;
	if (!vol->opts.drop_flush)
		err = device_flush(vol->dev);
	ns = ktime_get_ns() - start;
	*io_ns += ns;
	count_add(vol, TUX3_COUNT_FLUSHES, 1);
	count_add(vol, TUX3_COUNT_DEVICE_NS, ns);
	if (!err)
		unify_flushed(vol);
	return err;
}

static int commit_wait_io(struct volume *vol, struct io_window *io, struct blk_plug *plug, u64 *io_ns)
{
	u64 start = ktime_get_ns();
	int err;

	device_kick(vol->dev);
	blk_finish_plug(plug);
	err = io_window_finish(io);
	*io_ns += io_busy_ns(&io->busy);
	io->busy = (struct io_busy){};
	count_add(vol, TUX3_COUNT_DEVICE_NS, ktime_get_ns() - start);
	return err;
}

/*
 * Is the data to be durable before the log is written?  What fsyncs have put where it stays is: if there is no other the commit
 * says so for nothing, and else that counts, too, for a mount would read it.
 */
static bool commit_data_first(const struct volume *vol, u64 data_blocks, u64 early_blocks)
{
	if (vol->log.moved || !data_blocks)
		return vol->log.moved || early_blocks;
	return (data_blocks + early_blocks) << vol->block_shift > DATA_FIRST_BYTES ||
	       !(vol->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM);
}

/*
 * Data and log have been placed: make them durable.  err: what went wrong before, if anything.  *io_ns: how long the device
 * was busy with it.
 */
static int commit_write(struct volume *vol, u64 delta, struct io_window *io, struct blk_plug *plug, u64 data_blocks,
			u64 early_blocks, int err, u64 *io_ns)
{
	bool data_first = commit_data_first(vol, data_blocks, early_blocks);
	int io_err;

	if (data_first) {
		io_err = commit_wait_io(vol, io, plug, io_ns);
		blk_start_plug(plug);
		if (!err)
			err = io_err;
		if (!err && data_blocks)
			err = commit_flush(vol, io_ns);
	}
	if (!err) {
		intent_name(vol, &vol->log.intent);
		err = log_write_commit(vol, delta, data_first ? TUX3_COMMIT_DATA_FLUSHED : 0, io_window_wait(io));
	}
	io_err = commit_wait_io(vol, io, plug, io_ns);
	if (!err)
		err = io_err;
	return err ? err : commit_flush(vol, io_ns);
}

#define COMMIT_AHEAD 256u	/* inodes */
#define COMMIT_AHEAD_RUNS 8u	/* of dirty blocks, each looked for by itself */

/*
 * Will the commit free blocks of this inode, in maps not in memory?  Of a large file that goes on it does so here and
 * there: not looked for.  What goes in parts is looked for in parts (delete.c, data_commit.c).
 */
static bool commit_frees_blocks(struct tux3_inode *inode, u64 delta)
{
	bool frees;

	if (!inode->in_tree || !inode->blocks)		/* which only we change */
		return false;
	spin_lock(&inode->lock);
	frees = (!inode->attr.nlink && !delete_is_long(inode->vol, inode->blocks)) ||
		(inode->slot[delta & 1].dirty & INODE_DIRTY_DATA && inode->blocks <= COMMIT_SMALL_BLOCKS &&
		 !balloc_all_loaded(inode->vol));
	spin_unlock(&inode->lock);
	return frees;
}

/* Where these blocks are now, for their free maps.  false: nothing more is to be found out. */
static bool commit_ahead_run(struct tux3_inode *inode, u64 block, u64 end)
{
	struct prefetch *ahead = inode->vol->ahead;

	while (block < end) {
		struct data_extent extent = { .block = block, .count = end - block };

		if (prefetch_full(ahead) || data_map_tree(inode, &extent, NULL, 0))
			return false;
		if (extent.kind == DATA_MAPPED || extent.kind == DATA_UNWRITTEN)
			prefetch_add_blocks(ahead, extent.addr, extent.count);
		block += extent.count;
	}
	return true;
}

/*
 * The free maps of what goes with this inode, or with what is dirty of it: an fsync of little is to look at little of its file.
 * Where that is in many pieces, all extents are gone through once.  What was punched or cut is looked for with its leaves.
 */
static void commit_ahead_blocks(struct tux3_inode *inode, u64 delta)
{
	struct tree_key first = tree_key(inode->ino, TUX3_ITEM_XATTR, 0);
	struct tree_key last = tree_key(inode->ino, TUX3_ITEM_EXTENT, U64_MAX);
	u64 block = 0, count;
	u32 runs = 0;

	if (READ_ONCE(inode->attr.nlink)) {
		for (; runs < COMMIT_AHEAD_RUNS; runs++, block += count)
			if (inode->vol->host->data_next(inode, delta, block, &block, &count) ||
			    !commit_ahead_run(inode, block, block + count))
				return;
		first = tree_key(inode->ino, TUX3_ITEM_EXTENT, block);
	}
	prefetch_add_items(inode->vol->ahead, &first, &last);
}

/*
 * Bring into memory what the next inodes of the list need of the tree and of the free maps, many reads at once, so that
 * nothing is read while the tree is locked.  Returns the first inode that was left out.
 */
static struct llist_node *commit_read_ahead(struct volume *vol, struct llist_node *from, u64 delta)
{
	struct llist_node *end = from, *node;
	u32 n;

	for (n = 0; end && n < COMMIT_AHEAD && !prefetch_full(vol->ahead); n++, end = end->next) {
		struct tux3_inode *inode = llist_entry(end, struct tux3_inode, dirty_node[delta & 1]);
		struct tree_key key = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);

		prefetch_add_key(vol->ahead, &key);
	}
	prefetch_run(vol->ahead);
	for (node = from; node != end && !prefetch_full(vol->ahead); node = node->next) {
		struct tux3_inode *inode = llist_entry(node, struct tux3_inode, dirty_node[delta & 1]);

		if (commit_frees_blocks(inode, delta))
			commit_ahead_blocks(inode, delta);
	}
	prefetch_run(vol->ahead);
	return node == from ? from->next : node;
}

/* Is something missing in memory that the inode will need? */
static bool commit_must_read(struct tux3_inode *inode, u64 delta)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	bool there = tree_edit_is_near(inode->vol, &key, &key);

	if (!there) {
		tree_edit_begin(inode->vol);
		there = tree_edit_reach(inode->vol, &key);
		tree_edit_end(inode->vol);
	}
	return !there || commit_frees_blocks(inode, delta);
}

/* A large delta has more inodes than a cache of the CPU has room for: the next one comes in while this one is worked on. */
static void commit_next_comes(const struct llist_node *node, u64 delta)
{
	const struct tux3_inode *inode;
	u32 at;

	if (!node)
		return;
	inode = llist_entry(node, struct tux3_inode, dirty_node[delta & 1]);
	for (at = 0; at < offsetof(struct tux3_inode, xattr_mutex); at += COMMIT_LINE)
		prefetch((const u8 *)inode + at);
}

/* Its names will come with their inodes. */
static int commit_open_dir(struct commit_dirs *dirs, struct tux3_inode *dir, u64 delta, struct io_window *io)
{
	struct name_cursor *names;
	int err = 0;

	if (dirs->count < COMMIT_DIRS) {
		names = &dirs->names[dirs->count++];
	} else {
		names = &dirs->names[dirs->oldest];
		dirs->oldest = (dirs->oldest + 1) % COMMIT_DIRS;
		err = commit_inode(names->dir, delta, names, NULL, io);
	}
	*names = name_cursor(dir, delta);
	return err;
}

static int commit_close_dirs(struct commit_dirs *dirs, u64 delta, struct io_window *io)
{
	int err = 0;
	u32 n;

	for (n = 0; n < dirs->count && !err; n++) {
		struct name_cursor *names = &dirs->names[(dirs->oldest + n) % COMMIT_DIRS];

		err = commit_inode(names->dir, delta, names, NULL, io);
	}
	return err;
}

/* Everything that the delta changed, as records; data is submitted on the way. */
static int commit_place(struct volume *vol, struct llist_node *inodes, struct llist_node *remaps, u64 delta,
			struct io_window *io, s64 *charged)
{
	struct tux3_inode *inode, *next;
	struct llist_node *ahead = inodes;
	struct commit_dirs dirs = {};
	int err = likely(!remaps) ? 0 : data_commit_remaps(vol, remaps, delta);

	if (err)
		return err;
	llist_for_each_entry_safe(inode, next, inodes, dirty_node[delta & 1]) {
		commit_next_comes(inode->dirty_node[delta & 1].next, delta);
		if (&inode->dirty_node[delta & 1] == ahead)
			ahead = commit_must_read(inode, delta) ? commit_read_ahead(vol, ahead, delta) : ahead->next;
		if (inode->slot[delta & 1].dirty & INODE_DIRTY_NAMES) {
			err = commit_open_dir(&dirs, inode, delta, io);
			if (!err)
				err = commit_names(vol, &dirs, inode->ino);
		} else {
			err = commit_inode(inode, delta, NULL, &dirs, io);
		}
		if (err)
			return err;
		cond_resched();
	}
	err = commit_close_dirs(&dirs, delta, io);
	if (!err)
		err = delete_continue(vol, charged);
	return err ? err : quota_commit(vol, delta);
}

/* The inodes stay dirty in their slot, where commit_give_up() finds them: the front delta has the other one. */
static void commit_keep_aborted(struct volume *vol, struct llist_node *inodes, struct llist_node *remaps, u64 delta, int err)
{
	struct tux3_inode *inode;

	llist_for_each_entry(inode, inodes, dirty_node[delta & 1])
		if (vol->host->data_aborted && inode->slot[delta & 1].dirty & INODE_DIRTY_DATA)
			vol->host->data_aborted(inode, delta, err);
	WRITE_ONCE(vol->delta.dirty[delta & 1].first, inodes);
	WRITE_ONCE(vol->delta.remaps[delta & 1].first, remaps);
}

static void commit_done(struct volume *vol, struct llist_node *inodes, struct llist_node *remaps, u64 delta, int err)
{
	struct delta_state *state = &vol->delta;
	struct tux3_inode *inode, *next;

	lockdep_assert_held(&vol->delta.commit_mutex);
	/* First the counts, so that who waits for committed finds them right. */
	delta_clear_counts(vol, delta & 1);
	if (err) {
		commit_keep_aborted(vol, inodes, remaps, delta, err);
	} else {
		intent_retire(vol, delta);
		if (unlikely(remaps))
			data_remaps_done(remaps);
		llist_for_each_entry_safe(inode, next, inodes, dirty_node[delta & 1]) {
			commit_next_comes(inode->dirty_node[delta & 1].next, delta);
			commit_inode_done(inode, delta, 0);
		}
	}
	/* But this one last: an inode that is dirty in the delta may still be let go of, and changes it (data_give_back). */
	atomic64_set(&state->extra[delta & 1], 0);
	if (!err)
		quota_settle(vol, delta);
	space_commit_over(vol);
	delete_done(vol, err);
	ialloc_settle_all(vol);
	parent_done(vol, delta);
	if (!err)
		WRITE_ONCE(state->committed, delta);
}

static u64 commit_ino(const struct llist_node *node, u64 delta)
{
	return llist_entry(node, struct tux3_inode, dirty_node[delta & 1])->ino;
}

/* Two lists of inodes, each in the order of their numbers. */
static struct llist_node *commit_merge(struct llist_node *a, struct llist_node *b, u64 delta)
{
	struct llist_node *merged = NULL, **end = &merged;

	while (a && b) {
		struct llist_node **next = commit_ino(a, delta) <= commit_ino(b, delta) ? &a : &b;

		*end = *next;
		end = &(*next)->next;
		*next = *end;
	}
	*end = a ? a : b;
	return merged;
}

/* The part at the beginning of the list that is in order; *list is what comes behind it. */
static struct llist_node *commit_cut_run(struct llist_node **list, u64 delta)
{
	struct llist_node *run = *list, *last = run;

	while (last->next && commit_ino(last, delta) <= commit_ino(last->next, delta))
		last = last->next;
	*list = last->next;
	last->next = NULL;
	return run;
}

/* Runs that are in order are merged: number n of the array, if there is one, is made of 2^n of them. */
static noinline struct llist_node *commit_sort_few(struct llist_node *list, u64 delta)
{
	struct llist_node *sorted[32] = {}, *run;
	u32 i, used = 0;

	while (list) {
		run = commit_cut_run(&list, delta);
		for (i = 0; i < ARRAY_SIZE(sorted) - 1 && sorted[i]; i++) {
			run = commit_merge(sorted[i], run, delta);
			sorted[i] = NULL;
		}
		sorted[i] = sorted[i] ? commit_merge(sorted[i], run, delta) : run;
		used = max(used, i + 1);
	}
	for (run = NULL, i = 0; i < used; i++)
		run = commit_merge(sorted[i], run, delta);
	return run;
}

#define COMMIT_DIGIT 6u		/* bits */

/* By some bits of their numbers, less base; those that are the same there stay in the order in which they are. */
static noinline struct llist_node *commit_sort_digit(struct llist_node *list, u64 delta, u64 base, u32 shift)
{
	struct llist_node *first[1 << COMMIT_DIGIT] = {}, **end[1 << COMMIT_DIGIT], **last = &list;
	u32 i;

	for (; list; list = list->next) {
		i = (commit_ino(list, delta) - base) >> shift & (ARRAY_SIZE(first) - 1);
		if (first[i])
			*end[i] = list;
		else
			first[i] = list;
		end[i] = &list->next;
	}
	for (i = 0; i < ARRAY_SIZE(first); i++) {
		if (!first[i])
			continue;
		*last = first[i];
		last = end[i];
	}
	*last = NULL;
	return list;
}

#define COMMIT_FEW 256u		/* inodes */
#define COMMIT_FEW_RUNS 16u	/* in order */

/* Lists of a delta's inodes as they were taken, in one. */
struct commit_taken {
	struct llist_node *oldest;	/* of the list that was added last */
	u64 low, high, above;		/* numbers; of the first */
	u32 count, runs;		/* of inodes in order */
};

/* list: the newest first. */
static void commit_add_list(struct commit_taken *taken, struct llist_node *list, u64 delta)
{
	struct llist_node *next;

	for (; list; list = next) {
		u64 ino = commit_ino(list, delta);

		taken->count++;
		taken->runs += ino > taken->above;
		taken->above = ino;
		taken->low = min(taken->low, ino);
		taken->high = max(taken->high, ino);
		next = list->next;
		list->next = taken->oldest;
		taken->oldest = list;
	}
}

/*
 * By number, as they lie in the tree.  New ones are in order already, but for a directory now and then.  Where there is little to
 * merge that is done; many in any order are sorted digit by digit, which goes to each but a few times, where each merge would go
 * to more of them than a CPU's cache has room for.
 */
static struct llist_node *commit_sort(struct commit_taken *taken, u64 delta)
{
	struct llist_node *inodes = taken->oldest;
	u32 shift;

	if (taken->runs == 1)
		return inodes;
	if (taken->runs <= COMMIT_FEW_RUNS || taken->count < COMMIT_FEW)
		return commit_sort_few(inodes, delta);
	for (shift = 0; shift < 64 && (taken->high - taken->low) >> shift; shift += COMMIT_DIGIT) {
		inodes = commit_sort_digit(inodes, delta, taken->low, shift);
		cond_resched();
	}
	return inodes;
}

/* All inodes that are dirty in the delta, in the order of their numbers. */
static struct llist_node *commit_take(struct volume *vol, u64 delta)
{
	struct commit_taken taken = { .low = U64_MAX, .above = U64_MAX, .runs = 1 };
	struct delta_state *state = &vol->delta;
	int cpu;

	lockdep_assert_held(&vol->delta.commit_mutex);
	commit_add_list(&taken, llist_del_all(&state->dirty[delta & 1]), delta);
	for_each_possible_cpu(cpu)
		commit_add_list(&taken, llist_del_all(&per_cpu_ptr(state->cpu, cpu)->dirty[delta & 1]), delta);
	return commit_sort(&taken, delta);
}

/* What the delta has freed can be used again. */
static int commit_release(struct volume *vol)
{
	int err = block_reads_release(vol);

	if (!err && unlikely(block_reads_keep(vol)) && space_misses_blocks(vol))
		err = block_reads_settle(vol);
	return err;
}

int commit_delta(struct volume *vol)
{
	u64 start = ktime_get_ns(), delta, data, early, log, blocks, load, changes, io_ns = 0;
	bool alone, written;
	struct llist_node *inodes, *remaps;
	struct blk_plug plug;
	struct io_window io;
	s64 charged;
	int err = volume_error(vol);

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (err)	/* and perhaps a delta was aborted, whose slot would be the next front delta's */
		return err;
	delta = delta_transition(vol, &charged);
	inodes = commit_take(vol, delta);
	remaps = llist_del_all(&vol->delta.remaps[delta & 1]);
	vol->delta.applying = delta;
	changes = delta_changes_sum(&vol->delta, delta & 1);
	load = delta_load(&vol->delta, delta & 1);
	WRITE_ONCE(vol->delta.committing, load);
	vol->delta.awaited = 0;
	data = delta_counter(vol, TUX3_COUNT_DATA_BLOCKS);
	early = delta_counter(vol, TUX3_COUNT_EARLY_BLOCKS);
	log = vol->log.length;
	blocks = delta_counter(vol, TUX3_COUNT_LOG_BLOCKS);
	alone = vol->unify.phase == UNIFY_IDLE;
	io_window_init(&io);
	err = intent_begin_commit(vol, delta, &charged);
	log_begin_commit(vol);

	/* Neighbours on the disk become one request: data of small files, and the log. */
	blk_start_plug(&plug);
	if (!err)
		err = commit_place(vol, inodes, remaps, delta, &io, &charged);
	if (!err && vol->unify.follows)
		err = tree_place(vol);
	data = delta_counter(vol, TUX3_COUNT_DATA_BLOCKS) - data;
	early = delta_counter(vol, TUX3_COUNT_EARLY_BLOCKS) - early;
	written = intent_seal(vol, delta) || err || vol->log.records || vol->log.must_write;
	if (!written) {
		blk_finish_plug(&plug);
		err = io_window_finish(&io);
		count_add(vol, TUX3_COUNT_DELTAS_EMPTY, 1);
	} else {
		err = commit_write(vol, delta, &io, &plug, data, early, err, &io_ns);
		count_add(vol, TUX3_COUNT_DELTAS, 1);
	}
	log_end_commit(vol);
	if (err)
		volume_abort(vol, err, "a commit failed");
	else
		vol->log.must_write = false;
	trace_tux3_commit(vol, delta, changes, data, vol->log.length - log,
			  ktime_get_ns() - start, err);
	commit_done(vol, inodes, remaps, delta, err);
	if (load > DELTA_HEAVY_BYTES + (vol->delta.awaited << vol->block_shift))
		WRITE_ONCE(vol->delta.heavy_ns, ktime_get_ns());
	WRITE_ONCE(vol->delta.committing, 0);
	blocks = data + delta_counter(vol, TUX3_COUNT_LOG_BLOCKS) - blocks;
	if (!err) {
		pace_learn(vol, blocks << vol->block_shift, io_ns, alone);
		pace_learn_load(vol, load - min(load, early << vol->block_shift), ktime_get_ns() - start);
		err = commit_release(vol);
		if (!err)
			err = intent_committed(vol, written);
	}
	if (!err) {
		space_check_commit(vol, delta, charged);
		space_settle(vol, charged);
		err = unify_verify(vol);
	}
	count_add(vol, TUX3_COUNT_COMMIT_NS, ktime_get_ns() - start);
	wake_up_all(&vol->delta.commit_queue);
	if (!err)
		err = unify_poll(vol);
	/* What long deletes wait for; not within that unify. */
	if (!err && unlikely(delete_is_starved(vol)) && !vol->unify.follows)
		err = delta_unify_committed(vol);
	return err;
}

void commit_give_up(struct volume *vol, unsigned int slot)
{
	struct llist_node *inodes = commit_take(vol, slot);
	struct tux3_inode *inode, *next;

	lockdep_assert_held(&vol->delta.commit_mutex);
	data_remaps_done(llist_del_all(&vol->delta.remaps[slot]));
	llist_for_each_entry_safe(inode, next, inodes, dirty_node[slot])
		commit_inode_done(inode, slot, -ESHUTDOWN);
}
