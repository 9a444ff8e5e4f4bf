/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What comes of a file when a leaf of the tree, or a free map, that a change of it needs cannot be read: what is lost is told,
 * once; nothing is used for it; and all else goes on.  test_bad_block.c does all operations, with each node.
 */
#include "support_bad.h"
#include "core/blocks/balloc.h"
#include "core/data/data.h"
#include "core/repair/repair.h"
#include "core/tree/tree_internal.h"
#include "user/env/log.h"
#include "user/lib/lib.h"

#include <errno.h>
#include <string.h>
#include <linux/falloc.h>

/* The one that has the extent of this block. */
static u64 leaf_of_pieces(struct bed *bed, u64 block)
{
	struct bad_leaf leaf = {};

	bed_open(bed);
	leaf.key = tree_key(bed_file_ino(bed, "/pieces"), TUX3_ITEM_EXTENT, block);
	assert_ok(tree_walk(tux3_core(bed->volume), bad_see_leaf, &leaf));
	assert_true(leaf.addr);
	bed_close(bed);
	return leaf.addr;
}

/* What is free, when everything is committed and what can be given back was. */
static u64 free_blocks(struct bed *bed)
{
	struct tux3_statfs statfs;

	bad_sync(bed);
	tux3_statfs(bed->volume, &statfs);
	return statfs.free_blocks;
}

/* What is lost of a write is told once; the rest of it, and of the delta, is there; and nothing is used for it. */
static void test_write_is_told_once(void **state)
{
	struct tux3_node *node, *other;
	struct bad_nodes nodes = {};
	struct bed bed = {};
	u8 *bytes = bad_make(&bed, &nodes);
	u64 leaf = leaf_of_pieces(&bed, 600), left;
	char byte;

	env_set_log(bad_message);
	be_bad(&bed, leaf);
	bed_open(&bed);
	node = bed_find(&bed, "/pieces");
	other = bed_find(&bed, "/other");
	left = free_blocks(&bed);
	memset(bad_data, 'n', sizeof(bad_data));
	assert_ok(bad_write(node, 0, 1));		/* in another leaf */
	assert_ok(bad_write(node, 600, 3));
	assert_ok(bad_write(other, 4, 1));
	assert_int_equal(tux3_sync(bed.volume), -EIO);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(free_blocks(&bed), left);
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_ok(tux3_fsync(node, false));
	assert_ok(tux3_fsync(other, false));
	/* In the cache it is still, as after a write that failed elsewhere; but no longer. */
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), 1);
	assert_int_equal(byte, 'n');
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "/pieces");
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), -EIO);
	assert_int_equal(tux3_read(node, &byte, 1, 0), 1);
	assert_int_equal(byte, 'n');
	tux3_node_put(node, 1);
	bed_close(&bed);
	be_bad(&bed, 0);
	bed_open(&bed);
	node = bed_find(&bed, "/pieces");
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), 1);
	assert_int_equal(byte, 'x');
	assert_int_equal(tux3_read(node, &byte, 1, 601 * BLOCK), 1);
	assert_int_equal(byte, 0);
	tux3_node_put(node, 1);
	bed_check(&bed);
	bed_close(&bed);
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

static void assert_begins(struct bed *bed, const char *path, u64 block, char with)
{
	struct tux3_node *node = bed_find(bed, path);
	char byte;

	assert_int_equal(tux3_read(node, &byte, 1, block * BLOCK), 1);
	assert_int_equal(byte, with);
	tux3_node_put(node, 1);
}

static u64 went_ahead(struct bed *bed)
{
	return delta_counter(tux3_core(bed->volume), TUX3_COUNT_FSYNCS_AHEAD);
}

/* An fsync that writes an intent says that all is well: so it does not, where a commit would leave something out. */
static void test_fsync_does_not_go_ahead(void **state)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD };
	struct tux3_node *node, *other;
	struct bad_nodes nodes = {};
	u8 *bytes = bad_make(&bed, &nodes);
	u64 leaf = leaf_of_pieces(&bed, 600), ahead;
	u32 i;

	env_set_log(bad_message);
	be_bad(&bed, leaf);
	bed_open(&bed);
	node = bed_find(&bed, "/pieces");
	other = bed_find(&bed, "/other");
	for (i = 0; i < 3; i++) {	/* the first one makes the area */
		assert_ok(bad_write(other, 4, 1));
		assert_ok(tux3_fsync(other, false));
	}
	ahead = went_ahead(&bed);
	assert_true(ahead);
	assert_ok(bad_write(node, 0, 1));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(went_ahead(&bed), ++ahead);
	assert_ok(bad_write(node, 600, 1));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_int_equal(went_ahead(&bed), ahead);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	tux3_abandon(bed.volume);
	assert_true(bad_open(&bed));
	bed_close(&bed);
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

/* What became of the file is lost, and the leaf can be read again after a crash. */
static void lost_and_readable(struct bed *bed, struct tux3_node *node)
{
	assert_int_equal(tux3_fsync(node, false), -EIO);
	tux3_node_put(node, 1);
	be_bad(bed, 0);
	bed_crash(bed);
}

/* A leaf that an fsync has found, and that leaves memory and gets bad before the commit of what is durable already. */
static void test_what_went_ahead_is_committed(void **state)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD };
	struct tux3_node *node;
	u64 ahead, leaf;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	assert_ok(tux3_fsync(node, false));	/* the first one makes the area */
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	leaf = bad_device(bed.dev)->bad[0];
	be_bad(&bed, 0);
	ahead = went_ahead(&bed);
	memset(bad_data, 'n', sizeof(bad_data));
	assert_ok(bad_write(node, 601, 1));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(went_ahead(&bed), ahead + 1);
	bad_forget_nodes(&bed);
	be_bad(&bed, leaf);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
	be_bad(&bed, 0);
	bed_crash(&bed);
	assert_begins(&bed, "/dir/pieces", 601, 'n');
	bad_end(&bed);
}

/* Before the first item of a leaf lies what was removed: so what is before it is in another leaf. */
static void test_leaf_before_stays(void **state)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD };
	struct tux3_node *node;
	struct node_key low;
	struct tree_key key;
	u64 ahead, leaf;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	assert_ok(tux3_fsync(node, false));	/* the first one makes the area */
	assert_ok(tux3_sync(bed.volume));
	key = tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 601);
	assert_true(tree_leaf_of(tux3_core(bed.volume), &key, &key, &low));
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, low.low * BLOCK, BLOCK));
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, low.low - 2));
	leaf = bad_device(bed.dev)->bad[0];
	be_bad(&bed, 0);
	ahead = went_ahead(&bed);
	memset(bad_data, 'n', sizeof(bad_data));
	assert_ok(bad_write(node, low.low + 2, 1));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(went_ahead(&bed), ahead + 1);
	bad_forget_nodes(&bed);
	be_bad(&bed, leaf);
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	be_bad(&bed, 0);
	bed_crash(&bed);
	assert_begins(&bed, "/dir/pieces", low.low + 2, 'n');
	bad_end(&bed);
}

/* A commit counts for quotas what was written: so their usage must be readable, too, and stays. */
static void usage_is_bad(bool before)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD, .quota = true };
	struct tux3_node *node;
	u64 ahead, leaf;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	assert_ok(tux3_fsync(node, false));	/* the first one makes the area */
	assert_ok(tux3_sync(bed.volume));
	ahead = went_ahead(&bed);
	bad_item(&bed, tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 0));
	leaf = bad_device(bed.dev)->bad[0];
	if (!before)
		be_bad(&bed, 0);
	memset(bad_data, 'n', sizeof(bad_data));
	assert_ok(bad_write(node, 601, 1));
	assert_int_equal(tux3_fsync(node, false), before ? -EIO : 0);
	assert_int_equal(went_ahead(&bed), ahead + !before);
	bad_forget_nodes(&bed);
	be_bad(&bed, leaf);
	assert_int_equal(tux3_sync(bed.volume), before ? -EIO : 0);	/* tells of it, too */
	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
	be_bad(&bed, 0);
	bed_crash(&bed);
	assert_begins(&bed, "/dir/pieces", 601, before ? 0 : 'n');
	bad_end(&bed);
}

static void test_usage_stays(void **state)
{
	usage_is_bad(false);
}

static void test_fsync_looks_at_usage(void **state)
{
	usage_is_bad(true);
}

#define USERS	200u	/* with usage, so that it is in several leaves */

static void make_users(struct bed *bed)
{
	struct tux3_node *node;
	char name[32];
	u32 i;

	for (i = 0; i < USERS; i++) {
		snprintf(name, sizeof(name), "/dir/user%u", i);
		node = bed_file(bed, name);
		assert_ok(bad_chown(node, 1000 + i));
		tux3_node_put(node, 1);
	}
}

/*
 * A commit takes from who had a file, too, what a new owner gets: that usage stays, where an fsync has said that all is well, and
 * where names were changed, which cannot be left out.
 */
static void old_usage_is_bad(bool renamed)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD, .quota = true };
	struct tux3_node *node;
	u64 ahead, leaf;

	bad_begin(&bed);
	make_users(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	assert_ok(bad_chown(node, 1000 + USERS / 2));
	assert_ok(tux3_fsync(node, false));	/* the first one makes the area */
	bad_item(&bed, tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 1000 + USERS / 2));
	leaf = bad_device(bed.dev)->bad[0];
	be_bad(&bed, 0);
	ahead = went_ahead(&bed);
	assert_ok(bad_chown(node, 1000));
	if (!renamed) {
		assert_ok(tux3_fsync(node, false));
		assert_int_equal(went_ahead(&bed), ahead + 1);
	}
	bad_forget_nodes(&bed);
	if (renamed)
		assert_ok(tux3_path_rename(bed.volume, NULL, "/dir/pieces", "/dir/moved", 0));
	be_bad(&bed, leaf);
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	be_bad(&bed, 0);
	bed_crash(&bed);
	node = bed_find(&bed, renamed ? "/dir/moved" : "/dir/pieces");
	assert_int_equal(node->inode.attr.uid, 1000);
	tux3_node_put(node, 1);
	bad_end(&bed);
}

static void test_old_usage_stays(void **state)
{
	old_usage_is_bad(false);
	old_usage_is_bad(true);
}

/* While a commit is under way that has the file for the first time. */
static void write_beside(void *ctx)
{
	struct tux3_node *node = ctx;

	assert_false(node->inode.in_tree);
	memset(bad_data, 'n', sizeof(bad_data));
	assert_ok(bad_write(node, 1, 1));
	assert_ok(tux3_fsync(node, false));
}

/* The leaf that this makes stays, too, if an fsync beside it counts on its being there for the next one. */
static void test_leaf_of_new_file_stays(void **state)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD };
	struct tux3_node *node, *first;
	struct bad_leaf leaf = {};
	struct volume *vol;
	u64 ahead;
	u32 i;

	bad_begin(&bed);
	vol = tux3_core(bed.volume);
	first = bed_find(&bed, "/file");
	for (i = 0; i < 2; i++) {		/* the first one makes the area */
		assert_ok(bad_write(first, 0, 3));
		assert_ok(tux3_fsync(first, false));
	}
	cache_shrink(vol, U64_MAX);
	node = bed_file(&bed, "/dir/new");
	assert_ok(bad_write(node, 0, 3));
	assert_true(first->inode.ino < node->inode.ino);
	assert_ok(bad_write(first, 0, 3));
	ahead = went_ahead(&bed);
	bad_device(bed.dev)->beside = write_beside;
	bad_device(bed.dev)->ctx = node;
	assert_ok(delta_commit(vol));
	delta_lock(vol);
	assert_ok(delta_unify_committed(vol));	/* so that nodes can leave memory */
	delta_unlock(vol);
	assert_int_equal(went_ahead(&bed), ahead + 1);
	leaf.key = tree_key(node->inode.ino, TUX3_ITEM_ATTR, 0);
	assert_ok(tree_walk(vol, bad_see_leaf, &leaf));
	bad_forget_nodes(&bed);
	be_bad(&bed, leaf.addr);
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	tux3_node_put(first, 1);
	be_bad(&bed, 0);
	bed_crash(&bed);
	assert_begins(&bed, "/dir/new", 1, 'n');
	bad_end(&bed);
}

/* What is lost of a write that begins in a bad leaf is not more than what needs that leaf: behind it something is durable. */
static void test_loss_ends_where_the_leaf_does(void **state)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD };
	struct tux3_node *node;
	struct tree_key key;
	struct node_key low;
	u64 first, ahead;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	assert_ok(tux3_fsync(node, false));	/* the first one makes the area */
	assert_ok(tux3_sync(bed.volume));
	key = tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 601);
	assert_true(tree_leaf_of(tux3_core(bed.volume), &key, &key, &low));
	first = low.low;			/* has an extent, and the block behind it has none */
	assert_true(first && first % 2 == 0);
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, first - 2));
	ahead = went_ahead(&bed);
	memset(bad_data, 'n', sizeof(bad_data));
	assert_ok(bad_write(node, first + 1, 1));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(went_ahead(&bed), ahead + 1);
	memset(bad_data, 'm', sizeof(bad_data));
	assert_ok(bad_write(node, first - 2, 3));
	assert_ok(bad_write(node, first + 1, 1));
	bad_sync(&bed);
	lost_and_readable(&bed, node);
	assert_begins(&bed, "/dir/pieces", first + 1, 'm');
	bad_end(&bed);
}

/* Nor does what was cut off come back while the file is in use, and is longer again. */
static void test_cut_does_not_come_back(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char byte = 0;
	ssize_t got;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	assert_ok(tux3_truncate(node, 300 * BLOCK));
	assert_ok(bad_write(node, 900, 1));
	bad_sync(&bed);
	got = tux3_read(node, &byte, 1, 400 * BLOCK);
	assert_true(got == -EIO || (got == 1 && !byte));
	lost_and_readable(&bed, node);
	bad_end(&bed);
}

/* What an fsync has said of the rest of a file holds when its end is cut off and that cannot be committed. */
static void test_fsync_before_a_cut(void **state)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD };
	struct tux3_node *node;
	u64 ahead;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	assert_ok(tux3_fsync(node, false));	/* the first one makes the area */
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	ahead = went_ahead(&bed);
	memset(bad_data, 'n', sizeof(bad_data));
	assert_ok(bad_write(node, 0, 1));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(went_ahead(&bed), ahead + 1);
	assert_ok(tux3_truncate(node, 500 * BLOCK));
	bad_sync(&bed);
	assert_int_equal(tux3_fsync(node, false), -EIO);
	tux3_node_put(node, 1);
	tux3_abandon(bed.volume);
	assert_true(bad_open(&bed));
	assert_begins(&bed, "/dir/pieces", 0, 'n');
	bad_end(&bed);
}

/* It ends where it ended, and here, behind that, there is nothing. */
static void ends_at(struct bed *bed, const char *path, u64 size, u64 behind)
{
	struct tux3_node *node = bed_find(bed, path);
	struct tux3_stat stat;
	char byte = 0;

	assert_ok(tux3_stat_node(node, &stat));
	assert_true(tux3_read(node, &byte, 1, behind) == 0 || !byte);
	assert_int_equal(stat.size, size);
	tux3_node_put(node, 1);
}

/* What was behind the end does not come back when the file gets longer, and the zeros that were to be there cannot be committed. */
static void test_growth_is_lost(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char byte;

	bad_begin(&bed);
	node = bed_find(&bed, "/pieces");
	assert_ok(tux3_truncate(node, 600 * BLOCK + 100));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), 1);	/* or who writes behind it would have to read it */
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	assert_ok(bad_write(node, 900, 1));
	lost_and_readable(&bed, node);
	ends_at(&bed, "/pieces", 600 * BLOCK + 100, 600 * BLOCK + 200);
	bad_end(&bed);
}

/* Nor is it in its last block while it is in use, and nobody knows any more where that ended. */
static void growth_is_lost_in_use(u8 type, u64 block)
{
	struct bed bed = {};
	struct tux3_node *node;
	char byte = 0;
	u32 i;

	bad_begin(&bed);
	node = bed_find(&bed, "/pieces");
	assert_ok(tux3_truncate(node, 600 * BLOCK + 100));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), 1);
	bad_item(&bed, tree_key(node->inode.ino, type, block));
	assert_ok(bad_write(node, 900, 1));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	be_bad(&bed, 0);
	tux3_change_options(bed.volume, &(struct tux3_options){ .data_cache_bytes = BLOCK });
	for (i = 0; i < 600; i += 2)
		assert_int_equal(tux3_read(node, &byte, 1, i * BLOCK), 1);
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK + 200), -EIO);
	assert_int_equal(tux3_read(node, &byte, 1, 900 * BLOCK), 1);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	ends_at(&bed, "/pieces", 600 * BLOCK + 100, 600 * BLOCK + 200);
	bad_end(&bed);
}

static void test_growth_is_lost_in_use(void **state)
{
	growth_is_lost_in_use(TUX3_ITEM_ATTR, 0);
	growth_is_lost_in_use(TUX3_ITEM_EXTENT, 600);
}

/* It does not matter what else cannot be read. */
static void test_growth_is_lost_without_orphans(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char byte;

	bad_begin(&bed);
	node = bed_find(&bed, "/pieces");
	assert_ok(tux3_truncate(node, 600 * BLOCK + 100));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), 1);
	bad_items(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600),
		  tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, node->inode.ino));
	assert_ok(bad_write(node, 900, 1));
	lost_and_readable(&bed, node);
	ends_at(&bed, "/pieces", 600 * BLOCK + 100, 600 * BLOCK + 200);
	bad_end(&bed);
}

/* The same of a file that is so small that it would be inline from now on. */
static void test_small_growth_is_lost(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char byte;

	bad_begin(&bed);
	node = bed_find(&bed, "/xattrs");		/* which are between its attributes and its data */
	assert_ok(bad_write(node, 0, 1));
	assert_ok(tux3_fsync(node, false));
	assert_ok(tux3_truncate(node, 100));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(tux3_read(node, &byte, 1, 0), 1);
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 0));
	assert_int_equal(tux3_write(node, "y", 1, 300), 1);
	lost_and_readable(&bed, node);
	ends_at(&bed, "/xattrs", 100, 200);
	bad_end(&bed);
}

/*
 * A file that is inline gets blocks, and something behind them is cut off, where it had had some before: in a leaf that begins
 * there still, and cannot be read.
 */
static void test_inline_is_cut_behind(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char name[32];
	u32 i;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	for (i = 0; i < 11; i++) {
		snprintf(name, sizeof(name), "user.attr%u", i);
		assert_ok(tux3_setxattr(node, NULL, name, bad_data, 300, 0));
	}
	tux3_node_put(bad_new_pieces(&bed, "/dir/behind"), 1);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(tux3_write(node, bad_data, 10, 0), 10);
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 2 * BAD_PIECES - 1));
	assert_ok(bad_write(node, 0, 3));
	assert_ok(tux3_truncate(node, 2 * BLOCK));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	tux3_node_put(node, 1);
	bad_sync(&bed);
	be_bad(&bed, 0);
	bed_check(&bed);
	assert_begins(&bed, "/dir/pieces", 0, 'x');
	bad_end(&bed);
}

/* A long end, reserved, is to go in slices, and in the same delta the growth is lost: all that is behind the end goes. */
static void test_growth_is_lost_before_a_cut(void **state)
{
	struct bed bed = { .opts.slice_extents = 1 };
	struct tux3_node *node;
	char byte = 0;
	u32 i;

	bad_begin(&bed);
	node = bed_find(&bed, "/pieces");
	assert_ok(tux3_truncate(node, 600 * BLOCK + 100));
	for (i = 0; i < BAD_PIECES; i++)
		assert_ok(tux3_fallocate(node, FALLOC_FL_KEEP_SIZE, (2000 + 2 * i) * BLOCK, BLOCK));
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), 1);
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	assert_ok(bad_write(node, 2501, 1));
	assert_ok(bad_write(node, 2701, 1));
	assert_ok(tux3_truncate(node, 2600 * BLOCK));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	for (i = 0; i < 500; i++)
		assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	tux3_node_put(node, 1);
	be_bad(&bed, 0);
	bed_crash(&bed);
	assert_ok(tux3_sync(bed.volume));
	node = bed_find(&bed, "/pieces");
	assert_int_equal(node->inode.attr.size, 600 * BLOCK + 100);
	assert_ok(tux3_truncate(node, 2600 * BLOCK));
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK + 200), 1);
	assert_int_equal(byte, 0);
	assert_int_equal(tux3_read(node, &byte, 1, 2501 * BLOCK), 1);
	assert_int_equal(byte, 0);
	tux3_node_put(node, 1);
	bad_end(&bed);
}

#define GROUPS_BYTES	(512u << 20)	/* a group has 127 MiB */

/* Of the group that has the file's first block.  What else is changed in this test is elsewhere. */
static u64 map_of(struct bed *bed, const char *path, unsigned int slot)
{
	struct volume *vol = tux3_core(bed->volume);
	struct tux3_node *node = bed_find(bed, path);
	struct data_extent extent;

	assert_ok(data_map(&node->inode, 0, 1, &extent, NULL, 0));
	assert_int_equal(extent.kind, DATA_MAPPED);
	tux3_node_put(node, 1);
	assert_true(extent.addr / vol->group_blocks);
	return balloc_slot_addr(vol, extent.addr / vol->group_blocks, slot);
}

/* What is written over frees blocks: if their free map cannot be read, it is lost, too. */
static void bad_map(unsigned int slot)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node, *other;
	u64 map;

	bed_make(&bed, GROUPS_BYTES, BLOCK);
	node = bed_file(&bed, "/large");
	assert_ok(tux3_fallocate(node, 0, 0, 300u << 20));
	tux3_node_put(node, 1);
	bad_make_pieces(&bed, "/pieces", 50);
	bed_reopen(&bed);
	map = map_of(&bed, "/pieces", slot);
	bed_close(&bed);
	bad_wrap(&bed);
	be_bad(&bed, map);
	env_set_log(bad_message);
	assert_true(bad_open(&bed));
	node = bed_find(&bed, "/pieces");
	other = bed_find(&bed, "/large");
	assert_ok(bad_write(node, 0, 1));
	assert_ok(bad_write(other, 0, 1));
	bad_sync(&bed);
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_ok(tux3_fsync(node, false));
	assert_ok(tux3_fsync(other, false));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	tux3_abandon(bed.volume);
	assert_true(bad_open(&bed));
	bed_close(&bed);
	be_bad(&bed, 0);
	bed_open(&bed);
	bed_check(&bed);
	bed_free(&bed);
	env_set_log(NULL);
}

static void test_bad_map(void **state)
{
	bad_map(0);		/* either: which of the two is newer cannot be told then */
	bad_map(1);
}

/* Others take the place in memory that the free map of this block had, and it gets bad. */
static void map_gets_bad(struct bed *bed, u64 addr)
{
	struct volume *vol = tux3_core(bed->volume);
	u64 group = addr / vol->group_blocks, i;

	for (i = 0; i < vol->group_count; i++)
		if (i != group)
			assert_true(balloc_test(vol, i * vol->group_blocks + 100, 1) >= 0);
	bad_device(bed->dev)->bad[0] = balloc_slot_addr(vol, group, 0);
	bad_device(bed->dev)->bad[1] = balloc_slot_addr(vol, group, 1);
}

static u64 place_of(struct tux3_node *node)
{
	struct data_extent extent;

	assert_ok(data_map(&node->inode, 0, 1, &extent, NULL, 0));
	assert_int_equal(extent.kind, DATA_MAPPED);
	return extent.addr;
}

/* A free map that an fsync has found, where the commit of what is durable already frees something. */
static void test_map_stays(void **state)
{
	struct bed bed = { .opts = { .manual = true, .fsync = TUX3_FSYNC_AHEAD, .groups_kept = 4 } };
	struct tux3_node *node, *other;
	u64 ahead, addr;
	u32 i;

	bed_make(&bed, 3 * (u64)GROUPS_BYTES, BLOCK);
	node = bed_file(&bed, "/large");
	assert_ok(tux3_fallocate(node, 0, 0, 300u << 20));
	tux3_node_put(node, 1);
	bad_make_pieces(&bed, "/pieces", 50);
	tux3_node_put(bed_file(&bed, "/other"), 1);
	bed_close(&bed);
	bad_wrap(&bed);
	env_set_log(bad_message);
	assert_true(bad_open(&bed));
	node = bed_find(&bed, "/pieces");
	other = bed_find(&bed, "/other");
	addr = place_of(node);
	assert_true(addr / tux3_core(bed.volume)->group_blocks > 1);
	for (i = 0; i < 2; i++) {		/* the first one makes the area */
		assert_ok(bad_write(other, 0, 1));
		assert_ok(tux3_fsync(other, false));
	}
	assert_ok(tux3_sync(bed.volume));
	ahead = went_ahead(&bed);
	memset(bad_data, 'n', sizeof(bad_data));
	assert_ok(bad_write(node, 0, 1));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(went_ahead(&bed), ahead + 1);
	map_gets_bad(&bed, addr);
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	be_bad(&bed, 0);
	bed_crash(&bed);
	assert_begins(&bed, "/pieces", 0, 'n');
	bed_free(&bed);
	env_set_log(NULL);
}

/* One that could not be read for a moment: the group's free blocks are found as before. */
static void test_map_comes_back(void **state)
{
	struct bed bed = { .opts = { .manual = true, .groups_kept = 4 } };
	struct tux3_node *node;
	struct volume *vol;
	char why[300];
	u64 addr;

	bed_make(&bed, 3 * (u64)GROUPS_BYTES, BLOCK);
	node = bed_file(&bed, "/large");
	assert_ok(tux3_fallocate(node, 0, 0, 300u << 20));
	tux3_node_put(node, 1);
	bad_make_pieces(&bed, "/pieces", 50);
	bed_close(&bed);
	bad_wrap(&bed);
	env_set_log(bad_message);
	assert_true(bad_open(&bed));
	vol = tux3_core(bed.volume);
	node = bed_find(&bed, "/pieces");
	addr = place_of(node);
	tux3_node_put(node, 1);
	assert_int_equal(balloc_test(vol, addr, 1), 1);
	map_gets_bad(&bed, addr);
	assert_int_equal(balloc_test(vol, addr, 1), -EIO);
	assert_int_equal(vol->balloc.bad_groups, 1);
	be_bad(&bed, 0);
	assert_int_equal(balloc_test(vol, addr, 1), 1);
	assert_int_equal(vol->balloc.bad_groups, 0);
	if (balloc_verify(vol, why, sizeof(why)))
		fail_msg("%s", why);
	bed_free(&bed);
	env_set_log(NULL);
}

/* The free map of a group with nodes, which a commit puts elsewhere: their blocks are lost until it is repaired, and no more. */
static void map_of_nodes_is_bad(bool unifies)
{
	struct bed bed = { .opts = { .manual = true, .groups_kept = 4 } };
	struct repair_options opts = {};
	struct repair_result result;
	struct bad_nodes nodes = {};
	struct tux3_node *node;
	struct volume *vol;
	char why[300];
	u32 i;

	bed_make(&bed, 3 * (u64)GROUPS_BYTES, BLOCK);
	node = bed_file(&bed, "/large");
	assert_ok(tux3_fallocate(node, 0, 0, 1350u << 20));
	tux3_node_put(node, 1);
	bad_make_pieces(&bed, "/pieces", 1500);
	bed_reopen(&bed);
	assert_ok(bad_unlink(&bed, "/large"));
	bed_reopen(&bed);
	tux3_node_put(bed_file(&bed, "/other"), 1);
	bed_close(&bed);
	bad_wrap(&bed);
	env_set_log(bad_message);
	assert_true(bad_open(&bed));
	vol = tux3_core(bed.volume);
	assert_ok(tree_walk(vol, bad_see_node, &nodes));
	node = bed_find(&bed, "/pieces");
	map_gets_bad(&bed, nodes.addr[nodes.count - 1]);
	memset(bad_data, 'n', sizeof(bad_data));
	for (i = 1; i < 3000; i += 200)
		assert_ok(bad_write(node, i, 1));
	assert_ok(tux3_sync(bed.volume));
	assert_true(bad_device(bed.dev)->failed);
	if (unifies)
		assert_ok(delta_commit_unify(vol));
	tux3_node_put(node, 1);
	tux3_abandon(bed.volume);
	if (unifies)
		assert_ok(volume_repair(bed.dev, &opts, &result, why, sizeof(why)));
	be_bad(&bed, 0);
	bed_open(&bed);
	assert_begins(&bed, "/pieces", 1, 'n');
	bed_free(&bed);
	env_set_log(NULL);
}

static void test_map_of_nodes_is_bad(void **state)
{
	map_of_nodes_is_bad(false);
	map_of_nodes_is_bad(true);
}

/* A file without a name, which the tree knows, is written to. */
static void test_nameless_is_written(void **state)
{
	struct bed bed = {};
	struct tux3_node *node, *other;

	bad_begin(&bed);
	node = bed_find(&bed, "/pieces");
	other = bed_find(&bed, "/other");
	assert_ok(bad_unlink(&bed, "/pieces"));
	bad_sync(&bed);
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_ATTR, 0));
	assert_ok(bad_write(node, 0, 1));
	assert_ok(bad_write(other, 4, 1));
	bad_sync(&bed);
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_ok(tux3_fsync(other, false));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bad_sync(&bed);
	bad_end(&bed);
}

/* What could not be cut off is behind the end of the file, whatever was written since. */
static void cut_is_left(bool writes)
{
	struct bed bed = {};
	struct tux3_node *node;
	char byte = 0;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	assert_ok(tux3_truncate(node, 0));
	if (writes)
		assert_ok(bad_write(node, 0, 2));
	else
		assert_ok(tux3_truncate(node, BAD_PIECES * BLOCK));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	tux3_node_put(node, 1);
	tux3_abandon(bed.volume);
	assert_true(bad_open(&bed));
	node = bed_find(&bed, "/dir/pieces");
	if (tux3_read(node, &byte, 1, 0) == 1)
		assert_int_equal(byte, 0);
	tux3_node_put(node, 1);
	bad_end(&bed);
}

static void test_cut_is_left(void **state)
{
	cut_is_left(true);
	cut_is_left(false);
}

/* What cannot be committed of a file that is stuck is told, its size, too. */
static void test_size_of_stuck_file(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	struct tux3_stat stat;
	int err;

	bad_begin(&bed);
	node = bed_find(&bed, "/pieces");
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_ATTR, 0));
	assert_ok(bad_write(node, 0, 1));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	be_bad(&bed, 0);
	err = tux3_truncate(node, 4 * BAD_PIECES * BLOCK);
	if (!err)
		err = tux3_fsync(node, false);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "/pieces");
	assert_ok(tux3_stat_node(node, &stat));
	assert_true(err == -EIO || stat.size == 4 * BAD_PIECES * BLOCK);
	tux3_node_put(node, 1);
	bad_end(&bed);
}

static int chmod_600(struct tux3_node *node)
{
	struct tux3_stat stat = { .mode = 0600 };

	return tux3_setattr(node, NULL, &stat, TUX3_SET_MODE);
}

/* Attributes alone that are lost make no file stuck. */
static void test_attributes_are_lost(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	bad_begin(&bed);
	node = bed_find(&bed, "/pieces");
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_ATTR, 0));
	assert_ok(chmod_600(node));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	be_bad(&bed, 0);
	assert_ok(bad_write(node, 0, 1));
	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
	bad_end(&bed);
}

/* Without a name it is not cut off later, but it may get one. */
static void test_nameless_gets_a_name(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u32 i;

	bad_begin(&bed);
	assert_ok(tux3_tmpfile(bed.root, NULL, 0644, &node));
	for (i = 0; i < BAD_PIECES; i++)
		assert_ok(bad_write(node, 2 * i, 1));
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_ok(tux3_link(node, NULL, bed.root, "linked"));
	bad_sync(&bed);
	tux3_node_put(node, 1);
	tux3_abandon(bed.volume);
	assert_true(bad_open(&bed));
	bad_end(&bed);
}

/* An fsync of a file of which something was punched goes by a commit, and so does not look at all of it. */
static void test_fsync_reads_little(void **state)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD };
	struct tux3_node *node;
	u32 i, reads;

	bad_begin(&bed);
	node = bed_find(&bed, "/other");
	for (i = 0; i < 3; i++) {
		assert_ok(bad_write(node, 4, 1));
		assert_ok(tux3_fsync(node, false));
	}
	tux3_node_put(node, 1);
	node = bed_find(&bed, "/pieces");
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK));
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * BLOCK, BLOCK));
	cache_shrink(tux3_core(bed.volume), U64_MAX);
	reads = bad_device(bed.dev)->reads;
	assert_ok(tux3_fsync(node, false));
	reads = bad_device(bed.dev)->reads - reads;
	assert_true(reads < 5);
	tux3_node_put(node, 1);
	bad_end(&bed);
}

/* A disk may try for many seconds to read a bad block: it is asked as few times as can be. */
static void test_bad_leaf_is_read_seldom(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u32 i, failed;

	bad_begin(&bed);
	node = bed_find(&bed, "/pieces");
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	for (i = 500; i < 700; i += 2)
		assert_ok(bad_write(node, i, 1));
	failed = bad_device(bed.dev)->failed;
	assert_int_equal(tux3_fsync(node, false), -EIO);
	failed = bad_device(bed.dev)->failed - failed;
	assert_true(failed < 10);
	tux3_node_put(node, 1);
	bad_end(&bed);
}

static void test_bad_leaf_is_read_once(void **state)
{
	struct tree_key key, first, found;
	struct bed bed = {};
	struct tux3_node *node;
	u32 failed;

	bad_begin(&bed);
	node = bed_find(&bed, "/xattrs");
	first = tree_key(node->inode.ino, TUX3_ITEM_XATTR, 0);
	key = tree_key(node->inode.ino, TUX3_ITEM_XATTR, U64_MAX / 2);
	bad_item(&bed, key);
	failed = bad_device(bed.dev)->failed;
	assert_int_equal(tree_lookup(tux3_core(bed.volume), &key, NULL, 0), -EIO);
	assert_int_equal(bad_device(bed.dev)->failed - failed, 1);
	assert_int_equal(tree_lookup_before(tux3_core(bed.volume), &key, &first, &found, NULL, 0), -EIO);
	assert_int_equal(bad_device(bed.dev)->failed - failed, 2);
	tux3_node_put(node, 1);
	bad_end(&bed);
}

/*
 * When a commit looks the leaf of the attributes is in memory, though bad on the device; and when they are set memory has been
 * reclaimed.
 */
static void test_memory_is_reclaimed_in_a_commit(void **state)
{
	struct bed bed = {};
	struct disk_attr attr;
	struct tux3_node *node;
	struct tree_key key;
	u64 bad;
	u32 i;

	bad_begin(&bed);
	node = bed_find(&bed, "/pieces");
	key = tree_key(node->inode.ino, TUX3_ITEM_ATTR, 0);
	bad_item(&bed, key);
	for (i = BAD_PIECES; i < 2 * BAD_PIECES; i += 2)
		assert_ok(bad_write(node, i, 1));
	bad = bad_device(bed.dev)->bad[0];
	be_bad(&bed, 0);
	assert_int_equal(tree_lookup(tux3_core(bed.volume), &key, &attr, sizeof(attr)), sizeof(attr));
	be_bad(&bed, bad);
	bad_device(bed.dev)->reclaim = tux3_core(bed.volume);
	assert_ok(tux3_fsync(node, false));
	bad_device(bed.dev)->reclaim = NULL;
	tux3_node_put(node, 1);
	bad_end(&bed);
}

/* What was inline goes with all that is behind it, or not at all: its extents were in the leaf of the next inode, too. */
static void test_inline_is_cut(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char name[32];
	u32 i;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	for (i = 0; i < 11; i++) {	/* so that leaves are not merged */
		snprintf(name, sizeof(name), "user.attr%u", i);
		assert_ok(tux3_setxattr(node, NULL, name, bad_data, 300, 0));
	}
	tux3_node_put(bad_new_pieces(&bed, "/dir/behind"), 1);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(tux3_write(node, bad_data, 10, 0), 10);
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 2 * BAD_PIECES - 1));
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	tux3_node_put(node, 1);
	bad_sync(&bed);
	be_bad(&bed, 0);
	bed_check(&bed);
	node = bed_find(&bed, "/dir/pieces");
	assert_int_equal(tux3_read(node, name, 1, 0), 1);
	tux3_node_put(node, 1);
	bad_end(&bed);
}

/* A stuck file can be removed, and when its leaf can be read again nothing of it is left.  So can one be put in its place. */
static void stuck_is_removed(bool held, bool replaced)
{
	struct bed bed = {};
	struct tux3_node *node;

	bad_begin(&bed);
	node = bad_new_pieces(&bed, "/dir/pieces");
	bad_item(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	assert_ok(tux3_truncate(node, 0));
	assert_ok(bad_write(node, 0, 3));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_int_equal(bad_write(node, 0, 1), -EIO);
	if (!held)
		tux3_node_put(node, 1);
	if (replaced)
		assert_ok(tux3_path_rename(bed.volume, NULL, "/dir/file", "/dir/pieces", 0));
	else
		assert_ok(bad_unlink(&bed, "/dir/pieces"));
	bad_sync(&bed);
	if (held)
		tux3_node_put(node, 1);
	bad_sync(&bed);
	bad_end(&bed);
}

static void test_stuck_is_removed(void **state)
{
	u32 i;

	for (i = 0; i < 4; i++)
		stuck_is_removed(i & 1, i & 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_is_told_once),
		cmocka_unit_test(test_fsync_does_not_go_ahead),
		cmocka_unit_test(test_what_went_ahead_is_committed),
		cmocka_unit_test(test_leaf_before_stays),
		cmocka_unit_test(test_usage_stays),
		cmocka_unit_test(test_fsync_looks_at_usage),
		cmocka_unit_test(test_old_usage_stays),
		cmocka_unit_test(test_leaf_of_new_file_stays),
		cmocka_unit_test(test_loss_ends_where_the_leaf_does),
		cmocka_unit_test(test_cut_does_not_come_back),
		cmocka_unit_test(test_fsync_before_a_cut),
		cmocka_unit_test(test_growth_is_lost),
		cmocka_unit_test(test_growth_is_lost_in_use),
		cmocka_unit_test(test_growth_is_lost_without_orphans),
		cmocka_unit_test(test_small_growth_is_lost),
		cmocka_unit_test(test_inline_is_cut_behind),
		cmocka_unit_test(test_growth_is_lost_before_a_cut),
		cmocka_unit_test(test_bad_map),
		cmocka_unit_test(test_map_stays),
		cmocka_unit_test(test_map_comes_back),
		cmocka_unit_test(test_map_of_nodes_is_bad),
		cmocka_unit_test(test_nameless_is_written),
		cmocka_unit_test(test_bad_leaf_is_read_once),
		cmocka_unit_test(test_memory_is_reclaimed_in_a_commit),
		cmocka_unit_test(test_inline_is_cut),
		cmocka_unit_test(test_stuck_is_removed),
		cmocka_unit_test(test_cut_is_left),
		cmocka_unit_test(test_size_of_stuck_file),
		cmocka_unit_test(test_attributes_are_lost),
		cmocka_unit_test(test_nameless_gets_a_name),
		cmocka_unit_test(test_fsync_reads_little),
		cmocka_unit_test(test_bad_leaf_is_read_seldom),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
