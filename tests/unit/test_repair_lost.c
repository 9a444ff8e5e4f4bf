/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: a leaf of the tree is gone, and there is no other one like it.  What was in it must not read as if it never was, nor as
 * it was earlier: an error, or nothing, and it is told; what is next to it is as before.
 */
#include "support_lib.h"
#include "support_check.h"
#include "core/open.h"
#include "core/repair/repair.h"
#include "core/blocks/balloc.h"
#include "core/delta/delta.h"
#include "core/tree/tree_internal.h"

#include <linux/falloc.h>
#include <string.h>

#define BYTES	(64u << 20)
#define BLOCK	4096u
#define EXTENTS	600u
#define EARLIER	64u

struct told {
	u64 ino;	/* what is asked about */
	u32 lost;	/* so often was told that something of it is lost */
	const char *word;	/* in what was told */
	u32 words;
	struct {
		u64 first, last;
	} earlier[EARLIER];	/* inodes that may be of an earlier state, as was told */
	u32 earlier_count;
};

static void told_earlier(struct told *told, const char *text)
{
	unsigned long long first, last, delta;

	if (sscanf(text, "Inodes %llu to %llu may be as they were at delta %llu", &first, &last, &delta) != 3)
		return;
	assert_true(told->earlier_count < EARLIER);
	told->earlier[told->earlier_count].first = first;
	told->earlier[told->earlier_count++].last = last;
}

static bool is_told_earlier(const struct told *told, u64 ino)
{
	u32 i;

	for (i = 0; i < told->earlier_count; i++)
		if (ino >= told->earlier[i].first && ino <= told->earlier[i].last)
			return true;
	return false;
}

static void on_note(void *ctx, const struct repair_note *note)
{
	struct told *told = ctx;

	if (getenv("TUX3_TEST_PRINT"))
		print_message("  %u: %s\n", note->kind, note->text);
	if (note->kind == REPAIR_LOST)
		told_earlier(told, note->text);
	if (note->kind != REPAIR_LOST || note->ino != told->ino)
		return;
	told->lost++;
	told->words += told->word && strstr(note->text, told->word);
}

static void repair(struct bed *bed, struct told *told)
{
	struct repair_options opts = { .note = on_note, .ctx = told }, none = {};
	struct repair_result result;
	char why[300] = "";
	int err = volume_repair(bed->dev, &opts, &result, why, sizeof(why));

	if (err)
		print_error("repair: %d, %s\n", err, why);
	assert_int_equal(err, 0);
	assert_true(result.written);
	assert_int_equal(result.notes[REPAIR_LEFT], 0);
	assert_int_equal(result.check.problems, 0);
	assert_int_equal(volume_repair(bed->dev, &none, &result, why, sizeof(why)), 0);
	assert_false(result.written);
}

static void end(struct bed *bed)
{
	bed_close(bed);
	bed->dev->ops->close(bed->dev);
}

/* ---- losing a leaf ---- */

struct leaf_search {
	struct tree_key key;
	u64 addr;
	struct tree_key low, high;	/* its first key, and the lowest that is in another one again */
};

static int is_leaf(void *ctx, const struct tree_visit *visit)
{
	struct leaf_search *search = ctx;

	if (visit->level || tree_key_compare(&visit->low, &search->key) > 0 ||
	    (visit->has_high && tree_key_compare(&search->key, &visit->high) >= 0))
		return 0;
	search->addr = visit->addr;
	search->low = visit->low;
	search->high = visit->has_high ? visit->high : tree_key(U64_MAX >> 8, 0xff, U64_MAX);
	return 0;
}

/* Wipe the leaf where the item with this key is. */
static struct leaf_search lose_leaf(struct bed *bed, u64 ino, u8 type, u64 offset)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	struct leaf_search search = { .key = tree_key(ino, type, offset) };
	struct volume *vol;
	char why[256];

	assert_int_equal(volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	assert_ok(tree_walk(vol, is_leaf, &search));
	assert_true(search.addr);
	memset((u8 *)device_memory_bytes(bed->dev) + (search.addr << vol->block_shift), 0x77, vol->block_size);
	assert_ok(volume_close(vol));
	return search;
}

static void wipe_root(struct bed *bed)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	struct volume *vol;
	char why[256];

	assert_int_equal(volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	assert_true(le32_to_cpu(vol->anchor.root_level));
	memset((u8 *)device_memory_bytes(bed->dev) + le64_to_cpu(vol->anchor.root_addr) * BLOCK, 0x77, BLOCK);
	assert_ok(volume_close(vol));
}

/* ---- a file with holes ---- */

static void block_bytes(u64 block, u8 *data)
{
	memset(data, 1 + block % 251, BLOCK);
}

/* Blocks at each multiple of step, holes between them. */
static u64 make_sparse(struct bed *bed, const char *path, u64 step)
{
	struct tux3_node *node = bed_file(bed, path);
	u64 ino = tux3_node_ino(node), i;
	u8 data[BLOCK];

	for (i = 0; i < EXTENTS; i++) {
		block_bytes(i * step, data);
		assert_int_equal(tux3_write(node, data, BLOCK, i * step * BLOCK), BLOCK);
	}
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed->volume));
	return ino;
}

/* from <= n < to: block n * step is lost; how many of the holes behind them are errors, too. */
static u32 look_at_sparse(struct tux3_node *node, u64 step, u64 from, u64 to)
{
	u8 want[BLOCK], zeros[BLOCK] = {}, got[BLOCK];
	u32 errors = 0;
	ssize_t done;
	u64 i;

	for (i = 0; i < EXTENTS; i++) {
		done = tux3_read(node, got, BLOCK, i * step * BLOCK);
		if (i >= from && i < to) {
			assert_int_equal(done, -EIO);
		} else {
			assert_int_equal(done, BLOCK);
			block_bytes(i * step, want);
			assert_memory_equal(got, want, BLOCK);
		}
		done = step > 1 && i < EXTENTS - 1 ? tux3_read(node, got, BLOCK, (i * step + 1) * BLOCK) : BLOCK;
		if (done == -EIO) {
			assert_true(i >= from && i < to);
			errors++;
		} else {
			assert_int_equal(done, BLOCK);
			if (step > 1 && i < EXTENTS - 1)
				assert_memory_equal(got, zeros, BLOCK);
		}
	}
	return errors;
}

/* With attributes, which count more blocks than there are; with holes or without. */
static void lose_extents(u64 step)
{
	struct bed bed = { .opts.manual = true };
	struct told told = { .word = "reading" };
	struct leaf_search leaf;
	struct tux3_node *node;
	u64 other;

	bed_make(&bed, BYTES, BLOCK);
	told.ino = make_sparse(&bed, "/file", step);
	other = make_sparse(&bed, "/other", step);
	bed_close(&bed);
	leaf = lose_leaf(&bed, told.ino, TUX3_ITEM_EXTENT, 300 * step);
	assert_int_equal(leaf.low.ino, told.ino);
	assert_int_equal(leaf.low.type, TUX3_ITEM_EXTENT);
	assert_int_equal(leaf.high.ino, told.ino);
	repair(&bed, &told);
	assert_true(told.lost && told.words);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	assert_non_null(node);
	look_at_sparse(node, step, DIV_ROUND_UP(leaf.low.offset, step), DIV_ROUND_UP(leaf.high.offset, step));
	/* What is written there is as good as new. */
	assert_int_equal(tux3_write(node, &bed, sizeof(bed), 300 * step * BLOCK), -EIO);
	assert_ok(tux3_truncate(node, 10));
	tux3_node_put(node, 1);
	node = bed_find(&bed, "/other");
	assert_int_equal(tux3_node_ino(node), other);
	assert_int_equal(look_at_sparse(node, step, 0, 0), 0);
	tux3_node_put(node, 1);
	end(&bed);
}

/* If only an inner node is lost all leaves are found, and holes between them are holes. */
static void test_holes_between_leaves_that_were_found(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct told told = {};

	bed_make(&bed, BYTES, BLOCK);
	told.ino = make_sparse(&bed, "/file", 3);
	bed_close(&bed);
	wipe_root(&bed);
	repair(&bed, &told);
	assert_int_equal(told.lost, 0);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	assert_non_null(node);
	assert_int_equal(look_at_sparse(node, 3, 0, 0), 0);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* As many nodes lead to them again as did before: on a full volume there is no room for others. */
static void test_root_of_a_full_volume(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node = NULL;
	struct told told = {};
	u32 files = 0, found;
	char path[40];
	ssize_t done;

	bed_make(&bed, 8 << 20, BLOCK);
	for (done = 1; done > 0; files += done > 0) {
		sprintf(path, "/file %u", files);
		done = tux3_path(bed.volume, NULL, path, TUX3_CREATE, 0644, &node);
		if (done)
			break;
		done = tux3_write(node, path, sizeof(path), files % 300);
		tux3_node_put(node, 1);
	}
	assert_int_equal(done, -ENOSPC);
	bed_close(&bed);
	wipe_root(&bed);
	repair(&bed, &told);
	assert_int_equal(told.lost, 0);
	bed_open(&bed);
	for (found = 0; found < files; found++) {
		sprintf(path, "/file %u", found);
		assert_ok(tux3_path_unlink(bed.volume, NULL, path));
	}
	bed_free(&bed);
}

static void test_lost_extents_of_a_sparse_file(void **state)
{
	lose_extents(2);
	lose_extents(3);
}

/* Without attributes, too. */
static void test_lost_extents_and_attributes(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct told told = {};
	struct leaf_search leaf;
	struct tux3_node *node;
	char path[40];
	u8 got[BLOCK];
	u64 i, n;

	bed_make(&bed, BYTES, BLOCK);
	for (n = 0; n < 200; n++) {
		sprintf(path, "/before%llu", (unsigned long long)n);
		tux3_node_put(bed_file(&bed, path), 1);
	}
	told.ino = make_sparse(&bed, "/file", 2);
	bed_close(&bed);
	leaf = lose_leaf(&bed, told.ino, TUX3_ITEM_ATTR, 0);
	assert_int_equal(leaf.high.ino, told.ino);
	assert_int_equal(leaf.high.type, TUX3_ITEM_EXTENT);
	assert_true(leaf.high.offset > 2);
	repair(&bed, &told);
	assert_true(told.lost);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	assert_non_null(node);
	for (i = 0; i < EXTENTS; i++) {
		ssize_t done = tux3_read(node, got, BLOCK, 2 * i * BLOCK);

		assert_int_equal(done, 2 * i < leaf.high.offset ? -EIO : (ssize_t)BLOCK);
	}
	tux3_node_put(node, 1);
	end(&bed);
}

/* Where there is no room for so many errors, the first of what is lost is one. */
static void test_lost_extents_far_apart(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct told told = { .word = "reading" };
	struct leaf_search leaf;
	struct tux3_node *node;
	u64 step = 1 << 20;
	u8 got[BLOCK];

	bed_make(&bed, BYTES, BLOCK);
	told.ino = make_sparse(&bed, "/file", step);
	bed_close(&bed);
	leaf = lose_leaf(&bed, told.ino, TUX3_ITEM_EXTENT, 300 * step);
	repair(&bed, &told);
	assert_true(told.lost && told.words);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	assert_non_null(node);
	assert_int_equal(tux3_read(node, got, BLOCK, leaf.low.offset * BLOCK), -EIO);
	assert_int_equal(tux3_read(node, got, BLOCK, (leaf.low.offset - 1) * BLOCK), BLOCK);
	assert_int_equal(tux3_read(node, got, BLOCK, leaf.high.offset * BLOCK), BLOCK);
	tux3_node_put(node, 1);
	tux3_node_put(bed_file(&bed, "/after"), 1);
	end(&bed);
}

/* Errors take no more room than other data may: the volume can be written afterwards, and emptied. */
static void test_errors_leave_room(void **state)
{
	struct bed bed = { .opts.manual = true, .quota = true };
	struct told told = { .word = "reading" };
	struct tux3_node *node;
	char path[40];
	u32 i;

	bed_make(&bed, TUX3_MIN_VOLUME_BYTES, BLOCK);
	for (i = 0; i < 50; i++) {
		sprintf(path, "/small %u", i);
		tux3_node_put(bed_file(&bed, path), 1);
	}
	told.ino = make_sparse(&bed, "/file", 1000);
	bed_close(&bed);
	lose_leaf(&bed, told.ino, TUX3_ITEM_EXTENT, 300 * 1000);
	repair(&bed, &told);
	assert_true(told.lost && told.words);
	bed_open(&bed);
	node = bed_file(&bed, "/after");
	assert_int_equal(tux3_write(node, path, sizeof(path), 0), sizeof(path));
	tux3_node_put(node, 1);
	for (i = 0; i < 50; i++) {
		sprintf(path, "/small %u", i);
		assert_ok(tux3_path_unlink(bed.volume, NULL, path));
	}
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/file"));
	bed_free(&bed);
}

/* All leaves are gone, one after the other: the last branch of the root becomes the root on the way. */
static int wipe_leaf(void *ctx, const struct tree_visit *visit)
{
	struct bed *bed = ctx;

	if (!visit->level)
		memset((u8 *)device_memory_bytes(bed->dev) + visit->addr * BLOCK, 0x77, BLOCK);
	return 0;
}

static void test_all_leaves_are_lost(void **state)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	struct bed bed = { .opts.manual = true };
	struct told told = {};
	struct volume *vol;
	char why[256];

	bed_make(&bed, BYTES, BLOCK);
	make_sparse(&bed, "/file", 2);
	bed_close(&bed);
	assert_int_equal(volume_open(bed.dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	assert_int_equal(le32_to_cpu(vol->anchor.root_level), 1);
	assert_ok(tree_walk(vol, wipe_leaf, &bed));
	assert_ok(volume_close(vol));
	repair(&bed, &told);
	assert_true(told.lost);		/* ino 0: of the volume */
	bed_open(&bed);
	assert_null(bed_find(&bed, "/file"));
	tux3_node_put(bed_file(&bed, "/after"), 1);
	bed_free(&bed);
}

/* The log says which nodes were merged: of a tree that was put together anew that is of no matter, and no loss. */
static void test_merges_in_the_log(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct told told = {};
	char path[100];
	u32 n;

	bed_make(&bed, BYTES, BLOCK);
	for (n = 0; n < 3000; n++) {
		sprintf(path, "/a name that is rather long, so that there are few in a leaf %u", n);
		tux3_node_put(bed_file(&bed, path), 1);
	}
	assert_ok(tux3_sync(bed.volume));
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	for (n = 0; n < 2900; n++) {
		sprintf(path, "/a name that is rather long, so that there are few in a leaf %u", n);
		assert_ok(tux3_path_unlink(bed.volume, NULL, path));
		if (n % 500 == 0)
			assert_ok(tux3_sync(bed.volume));
	}
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	wipe_root(&bed);
	repair(&bed, &told);
	assert_int_equal(told.lost, 0);
	bed_open(&bed);
	for (n = 0; n < 3000; n++) {
		struct tux3_node *node;

		sprintf(path, "/a name that is rather long, so that there are few in a leaf %u", n);
		node = bed_find(&bed, path);
		assert_int_equal(!!node, n >= 2900);
		if (node)
			tux3_node_put(node, 1);
	}
	bed_free(&bed);
}

/* ---- names and extended attributes ---- */

/* A directory counts its names: what no parent pointer brings back is told. */
static void test_lost_names_are_told(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct leaf_search leaf;
	struct told told = { .word = "names" };
	struct tux3_node *node;
	char path[80];
	u32 n;

	bed_make(&bed, BYTES, BLOCK);
	node = bed_file(&bed, "/dir/first");
	tux3_node_put(node, 1);
	node = bed_find(&bed, "/dir");
	told.ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	for (n = 0; n < 400; n++) {
		sprintf(path, "/dir/a name that is rather long, so that there are few in a leaf %u", n);
		tux3_node_put(bed_file(&bed, path), 1);
	}
	bed_close(&bed);
	/* Names in one leaf, their inodes in others: which of the two is lost does not matter, both do. */
	leaf = lose_leaf(&bed, told.ino, TUX3_ITEM_DIRENT, 1ull << 62);
	assert_int_equal(leaf.low.ino, told.ino);
	for (n = 0; n < 400; n += 10)
		lose_leaf(&bed, told.ino + 2 + n, TUX3_ITEM_ATTR, 0);
	repair(&bed, &told);
	assert_int_equal(told.words, 1);
	bed.dev->ops->close(bed.dev);
}

static const char *link_name(char *path, const char *dir, u32 n)
{
	sprintf(path, "%s/a name that is rather long, so that there are few in a leaf %u", dir, n);
	return path;
}

/*
 * Names that were deleted, in the log, after what is lost was written: the parent pointers of their inodes, which have other names,
 * do not bring them back.
 */
static void test_names_deleted_in_the_log(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node, *dir;
	struct told told = {};
	char path[100];
	u32 n, back = 0;

	bed_make(&bed, BYTES, BLOCK);
	tux3_node_put(bed_file(&bed, "/dir/first"), 1);
	tux3_node_put(bed_file(&bed, "/other/first"), 1);
	dir = bed_find(&bed, "/other");
	for (n = 0; n < 400; n++) {
		node = bed_file(&bed, link_name(path, "/dir", n));
		assert_ok(tux3_link(node, NULL, dir, link_name(path, "/other", n) + 7));
		tux3_node_put(node, 1);
	}
	tux3_node_put(dir, 1);
	dir = bed_find(&bed, "/dir");
	told.ino = tux3_node_ino(dir);
	tux3_node_put(dir, 1);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	/* Every other one of them another file gets, before that. */
	for (n = 2; n < 400; n += 4) {
		tux3_node_put(bed_file(&bed, "/other/moved"), 1);
		assert_ok(tux3_path_rename(bed.volume, NULL, "/other/moved", link_name(path, "/dir", n), 0));
	}
	assert_ok(tux3_sync(bed.volume));
	for (n = 0; n < 400; n += 2)
		assert_ok(tux3_path_unlink(bed.volume, NULL, link_name(path, "/dir", n)));
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	for (n = 6; n < 10; n++)
		lose_leaf(&bed, told.ino, TUX3_ITEM_DIRENT, (1ull << 63) / 16 * n);
	repair(&bed, &told);
	bed_open(&bed);
	for (n = 0; n < 400; n++) {
		node = bed_find(&bed, link_name(path, "/dir", n));
		assert_true(!node || n & 1);
		if (!node)
			continue;
		back++;
		tux3_node_put(node, 1);
	}
	assert_int_equal(back, 200);
	bed_free(&bed);
}

static u64 make_xattrs(struct bed *bed)
{
	struct tux3_node *node = bed_file(bed, "/file");
	u64 ino = tux3_node_ino(node);
	char name[40], value[200];
	u32 n;

	memset(value, 'v', sizeof(value));
	for (n = 0; n < 60; n++) {
		sprintf(name, "user.%u", n);
		assert_ok(tux3_setxattr(node, NULL, name, value, sizeof(value), 0));
	}
	tux3_node_put(node, 1);
	return ino;
}

/* Nothing counts them, but that there are some is known.  Also if what leads to the leaf is lost with it. */
static void lose_xattrs(bool leaf, bool root)
{
	struct told told = { .word = "extended attributes" };
	struct bed bed = { .opts.manual = true };
	struct leaf_search lost;

	bed_make(&bed, BYTES, BLOCK);
	told.ino = make_xattrs(&bed);
	bed_close(&bed);
	if (leaf) {
		lost = lose_leaf(&bed, told.ino, TUX3_ITEM_XATTR, 1ull << 62);
		assert_int_equal(lost.low.ino, told.ino);
		assert_int_equal(lost.low.type, TUX3_ITEM_XATTR);
	}
	if (root)
		wipe_root(&bed);
	repair(&bed, &told);
	assert_int_equal(told.words, leaf);
	bed.dev->ops->close(bed.dev);
}

static void test_lost_xattrs_are_told(void **state)
{
	lose_xattrs(true, false);
	lose_xattrs(true, true);
	lose_xattrs(false, true);
}

/* Of owners that have nothing, nobody misses them. */
static void test_lost_limits_are_told(void **state)
{
	struct bed bed = { .opts.manual = true, .quota = true };
	struct tux3_quota quota = { .bytes_hard = 1 << 20 };
	struct told told = { .word = "The limits of users" };
	u32 n;

	bed_make(&bed, BYTES, BLOCK);
	for (n = 0; n < 300; n++)
		assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 1000 + n, &quota, TUX3_QUOTA_BYTES_HARD));
	bed_close(&bed);
	lose_leaf(&bed, TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 1150);
	repair(&bed, &told);
	assert_int_equal(told.words, 1);
	bed.dev->ops->close(bed.dev);
}

/* ---- earlier states ---- */

static void wipe_maps(struct bed *bed)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	struct volume *vol;
	char why[256];
	u32 n;

	assert_int_equal(volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	for (n = 0; n < 2; n++)
		((u8 *)device_memory_bytes(bed->dev))[(balloc_slot_addr(vol, 0, n) << vol->block_shift) + 4000] ^= 1;
	assert_ok(volume_close(vol));
}

/* A file that was changed, each state in leaves of its own; and the newest of these is gone, as the free maps are. */
static u64 lose_newest_state(struct bed *bed)
{
	struct tux3_node *node;
	u64 ino;

	bed_make(bed, BYTES, BLOCK);
	make_sparse(bed, "/before", 2);
	node = bed_file(bed, "/file");
	ino = tux3_node_ino(node);
	assert_int_equal(tux3_write(node, "old", 3, 0), 3);
	assert_ok(tux3_sync(bed->volume));
	assert_ok(delta_commit_unify(tux3_core(bed->volume)));
	assert_int_equal(tux3_write(node, "new", 3, 0), 3);
	assert_ok(tux3_sync(bed->volume));
	assert_ok(delta_commit_unify(tux3_core(bed->volume)));
	tux3_node_put(node, 1);
	bed_close(bed);
	lose_leaf(bed, ino, TUX3_ITEM_INLINE, 0);
	wipe_maps(bed);
	return ino;
}

/* Of a leaf that is gone there may be earlier ones in free blocks.  Without free maps all blocks are looked at. */
static void test_no_earlier_state(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct told told = {};
	struct tux3_node *node;
	char got[10];
	ssize_t done;

	told.ino = lose_newest_state(&bed);
	repair(&bed, &told);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	done = node ? tux3_read(node, got, sizeof(got), 0) : -ENOENT;
	assert_true(done < 0);
	if (node)
		tux3_node_put(node, 1);
	end(&bed);
}

/* If nothing is left either that led to it, an earlier one may be all there is.  That is told. */
static void test_earlier_states_are_told(void **state)
{
	struct told told = { .word = "may be as they were" };
	struct bed bed = { .opts.manual = true };

	lose_newest_state(&bed);
	wipe_root(&bed);
	repair(&bed, &told);
	assert_true(told.words);
	bed.dev->ops->close(bed.dev);
}

/* The map that counts is gone, and the log excuses it: then the other one is read, as of some unify before. */
static void test_maps_of_an_earlier_state(void **state)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	struct told told = { .word = "may be as they were" };
	struct bed bed = { .opts.manual = true };
	const struct disk_map *map[2];
	struct tux3_node *node;
	struct volume *vol;
	char why[256], got[10];
	u64 ino = 0;
	u32 n;

	bed_make(&bed, BYTES, BLOCK);
	make_sparse(&bed, "/before", 2);
	for (n = 0; n < 5; n++) {
		node = bed_file(&bed, "/file");
		ino = tux3_node_ino(node);
		assert_int_equal(tux3_write(node, n < 4 ? "old" : "new", 3, 0), 3);
		tux3_node_put(node, 1);
		make_sparse(&bed, n & 1 ? "/odd" : "/even", 2);
		assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	}
	node = bed_file(&bed, "/logged");
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	lose_leaf(&bed, ino, TUX3_ITEM_INLINE, 0);
	wipe_root(&bed);
	assert_int_equal(volume_open(bed.dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	for (n = 0; n < 2; n++)
		map[n] = (void *)((u8 *)device_memory_bytes(bed.dev) + balloc_slot_addr(vol, 0, n) * BLOCK);
	n = le64_to_cpu(map[1]->delta) > le64_to_cpu(map[0]->delta);
	memset((void *)map[n], 0x77, BLOCK);
	assert_ok(volume_close(vol));
	repair(&bed, &told);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	if (node) {
		assert_true(tux3_read(node, got, 3, 0) != 3 || !memcmp(got, "new", 3) || told.words);
		tux3_node_put(node, 1);
	}
	node = bed_find(&bed, "/odd");
	assert_non_null(node);
	assert_int_equal(look_at_sparse(node, 2, 0, 0), 0);
	tux3_node_put(node, 1);
	end(&bed);
}

static const char *deleted_name(char *path, u32 n)
{
	sprintf(path, "/dir/a name that is rather long %u", n);
	return path;
}

/* All but each seventh name, and block of the file, go little by little. */
static void delete_most(struct bed *bed)
{
	struct tux3_node *node = bed_file(bed, "/file");
	char path[80];
	u32 round, n;

	for (round = 0; round < 4; round++) {
		for (n = 0; n < EXTENTS; n++) {
			if (n % 7 == 0 || n % 4 != round)
				continue;
			assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * n * (u64)BLOCK, BLOCK));
			assert_ok(tux3_path_unlink(bed->volume, NULL, deleted_name(path, n)));
		}
		assert_ok(tux3_sync(bed->volume));
		assert_ok(delta_commit_unify(tux3_core(bed->volume)));
	}
	tux3_node_put(node, 1);
}

/*
 * All leaves of the newest state are found, and earlier ones, too.  What these have between the others was deleted since, and
 * stays so.  One that lies between two of the newest as a whole, or behind them all, as that of the last inode may, cannot be
 * told from theirs: it is put back, and said to be of an earlier state, maybe.
 */
static void test_nothing_deleted_comes_back(void **state)
{
	u8 want[BLOCK], zeros[BLOCK] = {}, got[BLOCK];
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node, *name;
	struct told told = {};
	char path[80];
	u32 n, back = 0;

	bed_make(&bed, BYTES, BLOCK);
	make_sparse(&bed, "/file", 2);
	for (n = 0; n < EXTENTS; n++)
		tux3_node_put(bed_file(&bed, deleted_name(path, n)), 1);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	delete_most(&bed);
	bed_close(&bed);
	wipe_root(&bed);
	wipe_maps(&bed);
	repair(&bed, &told);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	assert_non_null(node);
	for (n = 0; n < EXTENTS; n++) {
		name = bed_find(&bed, deleted_name(path, n));
		assert_true(name || n % 7);
		if (name && n % 7) {
			assert_true(is_told_earlier(&told, tux3_node_ino(name)));
			back++;
		}
		if (name)
			tux3_node_put(name, 1);
		block_bytes(2 * n, want);
		assert_int_equal(tux3_read(node, got, BLOCK, 2 * n * (u64)BLOCK), BLOCK);
		assert_memory_equal(got, n % 7 ? zeros : want, BLOCK);
	}
	tux3_node_put(node, 1);
	assert_true(back <= 2);
	bed_free(&bed);
}

/* What says which blocks are in use is overwritten, too, with nothing that looks like a map. */
static void test_leaves_in_groups_without_a_map(void **state)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct told told = {};
	struct volume *vol;
	char why[256];
	u8 *bytes;
	u32 n;

	bed_make(&bed, BYTES, BLOCK);
	told.ino = make_sparse(&bed, "/file", 2);
	bed_close(&bed);
	bytes = device_memory_bytes(bed.dev);
	assert_int_equal(volume_open(bed.dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	memset(bytes + le64_to_cpu(vol->anchor.root_addr) * BLOCK, 0, BLOCK);
	for (n = 0; n < 2; n++)
		memset(bytes + balloc_slot_addr(vol, 0, n) * BLOCK, 0, BLOCK);
	assert_ok(volume_close(vol));
	repair(&bed, &told);
	assert_int_equal(told.lost, 0);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	assert_non_null(node);
	assert_int_equal(look_at_sparse(node, 2, 0, 0), 0);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lost_extents_of_a_sparse_file),
		cmocka_unit_test(test_holes_between_leaves_that_were_found),
		cmocka_unit_test(test_root_of_a_full_volume),
		cmocka_unit_test(test_lost_extents_and_attributes),
		cmocka_unit_test(test_lost_extents_far_apart),
		cmocka_unit_test(test_errors_leave_room),
		cmocka_unit_test(test_all_leaves_are_lost),
		cmocka_unit_test(test_merges_in_the_log),
		cmocka_unit_test(test_lost_names_are_told),
		cmocka_unit_test(test_names_deleted_in_the_log),
		cmocka_unit_test(test_lost_xattrs_are_told),
		cmocka_unit_test(test_lost_limits_are_told),
		cmocka_unit_test(test_no_earlier_state),
		cmocka_unit_test(test_earlier_states_are_told),
		cmocka_unit_test(test_maps_of_an_earlier_state),
		cmocka_unit_test(test_nothing_deleted_comes_back),
		cmocka_unit_test(test_leaves_in_groups_without_a_map),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
