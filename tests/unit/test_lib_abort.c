/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A commit fails.  Until the volume is closed readers see what the front end made of it, and nothing of that gets to the
 * disk: opened again, the volume is as the last commit left it.
 */
#include "support_lib.h"
#include "user/env/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <linux/falloc.h>

#define BLOCK 4096u

/* The device in memory, but that writes from the nth on fail (0: none does). */
struct failing_device {
	struct tux3_device dev;
	struct tux3_device *below;
	u64 fail_at, seen;
};

static struct failing_device *failing(struct tux3_device *dev)
{
	return container_of(dev, struct failing_device, dev);
}

static int failing_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct tux3_device *below = failing(dev)->below;

	below->block_size = dev->block_size;
	return device_read(below, addr, count, data);
}

static void failing_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
			  struct io_wait *wait)
{
	struct failing_device *fail = failing(dev);

	fail->below->block_size = dev->block_size;
	if (fail->fail_at && ++fail->seen >= fail->fail_at) {
		io_wait_begin(wait);
		io_wait_end(wait, -EIO);
	} else {
		device_writev(fail->below, addr, vec, vecs, flags, wait);
	}
}

static int failing_flush(struct tux3_device *dev)
{
	return device_flush(failing(dev)->below);
}

static void failing_kick(struct tux3_device *dev)
{
	device_kick(failing(dev)->below);
}

static void failing_close(struct tux3_device *dev)
{
	failing(dev)->below->ops->close(failing(dev)->below);
	free(failing(dev));
}

static const struct tux3_device_ops failing_ops = {
	.read = failing_read,
	.write = failing_write,
	.flush = failing_flush,
	.kick = failing_kick,
	.close = failing_close,
};

static void make(struct bed *bed)
{
	struct failing_device *fail;

	bed->opts.manual = true;
	bed_make(bed, 16 << 20, BLOCK);
	bed_close(bed);
	fail = calloc(1, sizeof(*fail));
	assert_non_null(fail);
	fail->dev = *bed->dev;
	fail->dev.ops = &failing_ops;
	fail->below = bed->dev;
	bed->dev = &fail->dev;
	bed_open(bed);
}

static void fill(u8 *data, u32 len, u32 seed)
{
	u64 random = seed;
	u32 i;

	for (i = 0; i < len; i++)
		data[i] = bed_random(&random);
}

static void write_file(struct bed *bed, const char *path, u32 len, u32 seed)
{
	struct tux3_node *node = bed_file(bed, path);
	u8 *data = malloc(len);

	fill(data, len, seed);
	assert_int_equal(tux3_write(node, data, len, 0), len);
	free(data);
	tux3_node_put(node, 1);
}

/* Bytes [from, from + len) are those of the seed; 0: zeros. */
static void expect_bytes(struct bed *bed, const char *path, u64 size, u32 from, u32 len, u32 seed)
{
	u8 *data = malloc(from + len), *expected = calloc(1, from + len);
	struct tux3_node *node;
	struct tux3_stat stat;

	if (seed)
		fill(expected, from + len, seed);
	assert_ok(tux3_path(bed->volume, NULL, path, 0, 0, &node));
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.size, size);
	assert_int_equal(tux3_read(node, data + from, len, from), len);
	assert_memory_equal(data + from, expected + from, len);
	tux3_node_put(node, 1);
	free(data);
	free(expected);
}

static bool exists(struct bed *bed, const char *path)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, path, 0, 0, &node);

	if (!err)
		tux3_node_put(node, 1);
	else
		assert_int_equal(err, -ENOENT);
	return !err;
}

static void expect_xattr(struct bed *bed, const char *path, const char *name, u32 len, u32 seed)
{
	u8 data[10000], expected[10000];
	struct tux3_node *node;

	fill(expected, len, seed);
	assert_ok(tux3_path(bed->volume, NULL, path, 0, 0, &node));
	assert_int_equal(tux3_getxattr(node, name, data, sizeof(data)), len ? (int)len : -ENODATA);
	assert_memory_equal(data, expected, len);
	tux3_node_put(node, 1);
}

static void set_xattr(struct bed *bed, const char *path, const char *name, u32 len, u32 seed)
{
	struct tux3_node *node = bed_file(bed, path);
	u8 data[10000];

	fill(data, len, seed);
	assert_ok(tux3_setxattr(node, NULL, name, data, len, 0));
	tux3_node_put(node, 1);
}

static void truncate_file(struct bed *bed, const char *path, u64 size)
{
	struct tux3_node *node = bed_file(bed, path);

	assert_ok(tux3_truncate(node, size));
	tux3_node_put(node, 1);
}

static void change_mode(struct bed *bed, const char *path, u32 mode)
{
	struct tux3_stat stat = { .mode = mode };
	struct tux3_node *node = bed_file(bed, path);

	assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
	tux3_node_put(node, 1);
}

static void expect_mode(struct bed *bed, const char *path, u32 mode)
{
	struct tux3_node *node;
	struct tux3_stat stat;

	assert_ok(tux3_path(bed->volume, NULL, path, 0, 0, &node));
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.mode & 07777, mode);
	tux3_node_put(node, 1);
}

static void fallocate_file(struct bed *bed, const char *path, int mode, u64 offset, u64 len)
{
	struct tux3_node *node = bed_file(bed, path);

	assert_ok(tux3_fallocate(node, mode, offset, len));
	tux3_node_put(node, 1);
}

/* What is there before the commit that fails. */
static void make_before(struct bed *bed)
{
	write_file(bed, "/truncated", 3 * BLOCK, 1);
	write_file(bed, "/punched", 8 * BLOCK, 2);
	write_file(bed, "/rewritten", 4 * BLOCK, 3);
	write_file(bed, "/inline", 100, 4);
	write_file(bed, "/grown", 100, 5);
	write_file(bed, "/removed", 2 * BLOCK, 6);
	write_file(bed, "/dir/moved", 50, 7);
	write_file(bed, "/preallocated", BLOCK, 8);
	set_xattr(bed, "/inline", "user.kept", 40, 20);
	set_xattr(bed, "/inline", "user.removed", 41, 21);
	set_xattr(bed, "/inline", "user.changed", 42, 22);
	assert_ok(tux3_sync(bed->volume));
}

static void change(struct bed *bed)
{
	struct tux3_node *node;

	truncate_file(bed, "/truncated", 0);
	truncate_file(bed, "/truncated", 2 * BLOCK);
	fallocate_file(bed, "/punched", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * BLOCK, 3 * BLOCK);
	write_file(bed, "/rewritten", 2 * BLOCK, 13);
	truncate_file(bed, "/inline", 30);
	write_file(bed, "/grown", 5 * BLOCK, 15);
	assert_ok(tux3_path_unlink(bed->volume, NULL, "/removed"));
	assert_ok(tux3_path_rename(bed->volume, NULL, "/dir/moved", "/moved", 0));
	write_file(bed, "/new", 3 * BLOCK, 16);
	fallocate_file(bed, "/preallocated", 0, 0, 10 * BLOCK);
	change_mode(bed, "/dir", 0700);
	set_xattr(bed, "/inline", "user.new", 5000, 23);
	set_xattr(bed, "/inline", "user.changed", 9000, 24);
	node = bed_file(bed, "/inline");
	assert_ok(tux3_removexattr(node, NULL, "user.removed"));
	tux3_node_put(node, 1);
}

static void expect_before(struct bed *bed)
{
	expect_bytes(bed, "/truncated", 3 * BLOCK, 0, 3 * BLOCK, 1);
	expect_bytes(bed, "/punched", 8 * BLOCK, 0, 8 * BLOCK, 2);
	expect_bytes(bed, "/rewritten", 4 * BLOCK, 0, 4 * BLOCK, 3);
	expect_bytes(bed, "/inline", 100, 0, 100, 4);
	expect_bytes(bed, "/grown", 100, 0, 100, 5);
	expect_bytes(bed, "/removed", 2 * BLOCK, 0, 2 * BLOCK, 6);
	expect_bytes(bed, "/dir/moved", 50, 0, 50, 7);
	expect_bytes(bed, "/preallocated", BLOCK, 0, BLOCK, 8);
	assert_false(exists(bed, "/new"));
	assert_false(exists(bed, "/moved"));
	expect_mode(bed, "/dir", 0777);
	expect_xattr(bed, "/inline", "user.kept", 40, 20);
	expect_xattr(bed, "/inline", "user.removed", 41, 21);
	expect_xattr(bed, "/inline", "user.changed", 42, 22);
	expect_xattr(bed, "/inline", "user.new", 0, 0);
}

static void expect_changed(struct bed *bed)
{
	expect_bytes(bed, "/truncated", 2 * BLOCK, 0, 2 * BLOCK, 0);
	expect_bytes(bed, "/punched", 8 * BLOCK, 0, 2 * BLOCK, 2);
	expect_bytes(bed, "/punched", 8 * BLOCK, 2 * BLOCK, 3 * BLOCK, 0);
	expect_bytes(bed, "/punched", 8 * BLOCK, 5 * BLOCK, 3 * BLOCK, 2);
	expect_bytes(bed, "/rewritten", 4 * BLOCK, 0, 2 * BLOCK, 13);
	expect_bytes(bed, "/rewritten", 4 * BLOCK, 2 * BLOCK, 2 * BLOCK, 3);
	expect_bytes(bed, "/inline", 30, 0, 30, 4);
	expect_bytes(bed, "/grown", 5 * BLOCK, 0, 5 * BLOCK, 15);
	assert_false(exists(bed, "/removed"));
	assert_false(exists(bed, "/dir/moved"));
	expect_bytes(bed, "/moved", 50, 0, 50, 7);
	expect_bytes(bed, "/new", 3 * BLOCK, 0, 3 * BLOCK, 16);
	expect_bytes(bed, "/preallocated", 10 * BLOCK, 0, BLOCK, 8);
	expect_bytes(bed, "/preallocated", 10 * BLOCK, BLOCK, 9 * BLOCK, 0);
	expect_mode(bed, "/dir", 0700);
	expect_xattr(bed, "/inline", "user.kept", 40, 20);
	expect_xattr(bed, "/inline", "user.removed", 0, 0);
	expect_xattr(bed, "/inline", "user.changed", 9000, 24);
	expect_xattr(bed, "/inline", "user.new", 5000, 23);
}

/* How many writes a commit of these changes has. */
static u64 count_writes(void)
{
	struct bed bed = {};
	u64 count;

	make(&bed);
	make_before(&bed);
	change(&bed);
	failing(bed.dev)->fail_at = ~0ULL;
	assert_ok(tux3_sync(bed.volume));
	count = failing(bed.dev)->seen;
	failing(bed.dev)->fail_at = 0;
	bed_free(&bed);
	return count;
}

/* The commit fails at its nth write: some of what it applied is in the tree in memory, and some of it is not. */
static void fail_at(u64 nth)
{
	/* No cached data or names but those that must stay. */
	struct bed bed = { .data_cache_bytes = BLOCK, .opts = { .names_cached = 1, .cache_bytes = BLOCK } };

	make(&bed);
	make_before(&bed);
	change(&bed);
	failing(bed.dev)->fail_at = nth;
	assert_int_equal(tux3_sync(bed.volume), -EIO);
	failing(bed.dev)->fail_at = 0;
	expect_changed(&bed);
	assert_int_equal(tux3_sync(bed.volume), -EIO);
	expect_changed(&bed);		/* what the first look brought into the caches is what is there */
	tux3_node_put(bed.root, 1);
	assert_int_equal(tux3_close(bed.volume), -EIO);
	bed_open(&bed);
	expect_before(&bed);
	bed_free(&bed);
}

static void test_readers_see_the_aborted_delta(void **state)
{
	u64 count = count_writes(), nth;

	assert_true(count > 3);
	for (nth = 1; nth <= count; nth++)
		fail_at(nth);
}

/* Returns whether the sync found memory enough. */
static bool truncate_and_fail_alloc(long nth)
{
	struct bed bed = {};
	int err;

	make(&bed);
	write_file(&bed, "/f", 8192, 1);
	assert_ok(tux3_sync(bed.volume));
	bed_reopen(&bed);		/* nothing is cached */
	truncate_file(&bed, "/f", 0);
	truncate_file(&bed, "/f", 8192);
	env_fail_alloc_at(nth);
	err = tux3_sync(bed.volume);
	env_fail_alloc_at(0);
	assert_true(!err || err == -ENOMEM);
	expect_bytes(&bed, "/f", 8192, 0, 8192, 0);
	tux3_node_put(bed.root, 1);
	assert_int_equal(tux3_close(bed.volume), err);
	bed_open(&bed);
	expect_bytes(&bed, "/f", 8192, 0, 8192, err ? 1 : 0);
	bed_free(&bed);
	return !err;
}

/*
 * The reported case: old bytes came back where a file had been cut off and extended again, and the commit failed before it
 * had told the tree.
 */
static void test_truncated_and_extended_again(void **state)
{
	u32 failed = 0;
	long nth;

	/* Some it can do without. */
	for (nth = 1; nth <= 100; nth++)
		failed += !truncate_and_fail_alloc(nth);
	assert_true(failed);
}

/* Blocks of one extent, every so many of which are written again: the others are in no cache. */
#define CUT_BLOCKS 120u

static void rewrite_blocks(struct bed *bed, u32 every)
{
	struct tux3_node *node = bed_file(bed, "/f");
	u8 data[BLOCK];
	u32 i;

	fill(data, BLOCK, 13);
	for (i = 1; i < CUT_BLOCKS; i += every)
		assert_int_equal(tux3_write(node, data, BLOCK, i * BLOCK), BLOCK);
	tux3_node_put(node, 1);
}

static void expect_rewritten(struct bed *bed, u32 every)
{
	static u8 expected[CUT_BLOCKS * BLOCK], data[CUT_BLOCKS * BLOCK];
	struct tux3_node *node = bed_file(bed, "/f");
	u32 i;

	fill(expected, sizeof(expected), 1);
	for (i = 1; i < CUT_BLOCKS; i += every)
		fill(expected + i * BLOCK, BLOCK, 13);
	assert_int_equal(tux3_read(node, data, sizeof(data), 0), sizeof(data));
	assert_memory_equal(data, expected, sizeof(data));
	tux3_node_put(node, 1);
}

static bool cut_and_fail_alloc(u32 every, long nth)
{
	struct bed bed = {};
	int err;

	make(&bed);
	write_file(&bed, "/f", CUT_BLOCKS * BLOCK, 1);
	assert_ok(tux3_sync(bed.volume));
	bed_reopen(&bed);
	rewrite_blocks(&bed, every);
	env_fail_alloc_at(nth);
	err = tux3_sync(bed.volume);
	env_fail_alloc_at(0);
	assert_true(!err || err == -ENOMEM);
	expect_rewritten(&bed, every);
	tux3_node_put(bed.root, 1);
	assert_int_equal(tux3_close(bed.volume), err);
	bed_open(&bed);
	bed_free(&bed);
	return !err;
}

/* A commit that fails between the parts of an extent that it cuts in three: what is not written anew is still there. */
static void test_extent_cut_in_three(void **state)
{
	u32 every, failed = 0;
	long nth;

	for (every = 2; every < 5; every++) {
		for (nth = 1; nth <= 24; nth++)
			failed += !cut_and_fail_alloc(every, nth);
	}
	assert_true(failed);
}

/* A file without a name goes on for who has it open; and nothing is left of it in memory afterwards. */
static void test_open_file_without_a_name(void **state)
{
	struct tux3_node *open, *gone;
	struct bed bed = {};
	u8 data[BLOCK], expected[BLOCK];

	make(&bed);
	write_file(&bed, "/open", BLOCK, 1);
	write_file(&bed, "/gone", BLOCK, 2);
	assert_ok(tux3_sync(bed.volume));
	open = bed_file(&bed, "/open");
	gone = bed_file(&bed, "/gone");
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/open"));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/gone"));
	tux3_node_put(gone, 1);		/* the commit deletes it */
	failing(bed.dev)->fail_at = 1;
	assert_int_equal(tux3_sync(bed.volume), -EIO);
	failing(bed.dev)->fail_at = 0;
	fill(expected, BLOCK, 1);
	assert_int_equal(tux3_read(open, data, BLOCK, 0), BLOCK);
	assert_memory_equal(data, expected, BLOCK);
	assert_int_equal(tux3_write(open, data, BLOCK, 0), -EROFS);
	tux3_node_put(open, 1);
	assert_false(exists(&bed, "/gone"));
	tux3_node_put(bed.root, 1);
	assert_int_equal(tux3_close(bed.volume), -EIO);
	bed_open(&bed);
	expect_bytes(&bed, "/open", BLOCK, 0, BLOCK, 1);
	expect_bytes(&bed, "/gone", BLOCK, 0, BLOCK, 2);
	bed_free(&bed);
}

/* Who lost something hears of it, once; of what is durable fsync says that. */
static void test_fsync_after_the_stop(void **state)
{
	struct tux3_node *lost, *safe;
	struct bed bed = {};

	make(&bed);
	write_file(&bed, "/safe", BLOCK, 1);
	assert_ok(tux3_sync(bed.volume));
	write_file(&bed, "/lost", BLOCK, 1);
	lost = bed_file(&bed, "/lost");
	safe = bed_file(&bed, "/safe");
	failing(bed.dev)->fail_at = 1;
	assert_int_equal(tux3_fsync(lost, false), -EIO);
	failing(bed.dev)->fail_at = 0;
	assert_int_equal(tux3_fsync(lost, false), -EROFS);
	assert_int_equal(tux3_fsync(lost, true), -EROFS);
	assert_ok(tux3_fsync(safe, false));
	assert_int_equal(tux3_fsync(bed.root, false), -EIO);	/* the name */
	assert_int_equal(tux3_fsync(bed.root, false), -EROFS);
	assert_int_equal(tux3_sync(bed.volume), -EIO);
	assert_int_equal(tux3_sync(bed.volume), -EIO);
	tux3_node_put(lost, 1);
	tux3_node_put(safe, 1);
	tux3_node_put(bed.root, 1);
	assert_int_equal(tux3_close(bed.volume), -EIO);
	bed_open(&bed);
	expect_bytes(&bed, "/safe", BLOCK, 0, BLOCK, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_truncated_and_extended_again),
		cmocka_unit_test(test_readers_see_the_aborted_delta),
		cmocka_unit_test(test_extent_cut_in_three),
		cmocka_unit_test(test_open_file_without_a_name),
		cmocka_unit_test(test_fsync_after_the_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
