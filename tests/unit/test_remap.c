/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Contents that swap, parts of files that are taken out or put in: what the data are then, what is refused, and that nothing is
 * done if something is refused.  The simulator cuts the power.
 */
#include "support_lib.h"
#include "core/data/remap.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "user/lib/lib.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE	0x01
#define FALLOC_FL_COLLAPSE_RANGE 0x08
#define FALLOC_FL_INSERT_RANGE	0x20
#endif

#define BLOCK 4096u
#define MAX_BLOCKS 512u

/* What a file holds: a letter for each block, '.' for zeros; and its size. */
static void expect(struct tux3_node *node, const char *letters, u64 size)
{
	struct tux3_stat stat;
	u8 block[BLOCK];
	u64 i, k, at;

	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.size, size);
	for (i = 0, at = 0; at < size; i++, at += BLOCK) {
		u64 len = min_t(u64, BLOCK, size - at);

		assert_int_equal(tux3_read(node, block, BLOCK, at), len);
		for (k = 0; k < len; k++)
			if (block[k] != (letters[i] == '.' ? 0 : letters[i]))
				fail_msg("byte %llu is %#x, not of \"%s\"", (unsigned long long)(at + k), block[k], letters);
	}
	assert_int_equal(strlen(letters), i);
}

static void put(struct tux3_node *node, u64 at, const char *letters, u64 size)
{
	u8 block[BLOCK];
	u64 i;

	for (i = 0; i * BLOCK < size; i++) {
		memset(block, letters[i], BLOCK);
		if (letters[i] != '.')
			assert_int_equal(tux3_write(node, block, min_t(u64, BLOCK, size - i * BLOCK), (at + i) * BLOCK),
					 min_t(u64, BLOCK, size - i * BLOCK));
	}
}

static struct tux3_node *file(struct bed *bed, const char *path, const char *letters, u64 size)
{
	struct tux3_node *node = bed_file(bed, path);

	put(node, 0, letters, size);
	assert_ok(tux3_truncate(node, size));
	return node;
}

static struct bed start(void)
{
	struct bed bed = { .opts = { .manual = true, .costs = true, .verify = true } };

	bed_make(&bed, 16 << 20, BLOCK);
	return bed;
}

static int swap_files(struct tux3_node *a, u64 at, struct tux3_node *b, u64 to, u64 count, u64 flags)
{
	return tux3_exchange_range(a, at * BLOCK, b, to * BLOCK, count * BLOCK, flags, NULL);
}

static void end(struct bed *bed, struct tux3_node *a, struct tux3_node *b)
{
	assert_int_equal(delta_counter(tux3_core(bed->volume), TUX3_COUNT_OVERDRAFTS), 0);
	tux3_node_put(a, 1);
	if (b)
		tux3_node_put(b, 1);
	bed_free(bed);
}

/* ---- exchange ---- */

static void test_ranges(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abcd.fgh", 8 * BLOCK), *b = file(&bed, "/b", "ABCDE..H", 8 * BLOCK);
	u64 committed;

	assert_ok(tux3_sync(bed.volume));
	assert_ok(swap_files(a, 1, b, 4, 3, 0));
	expect(a, "aE...fgh", 8 * BLOCK);
	expect(b, "ABCDbcdH", 8 * BLOCK);
	/* Durable. */
	committed = tux3_committed(bed.volume);
	assert_ok(swap_files(a, 0, b, 0, 8, TUX3_EXCHANGE_DSYNC));
	assert_true(tux3_committed(bed.volume) > committed);
	tux3_node_put(a, 1);
	tux3_node_put(b, 1);
	bed_crash(&bed);
	a = bed_find(&bed, "/a");
	b = bed_find(&bed, "/b");
	expect(b, "aE...fgh", 8 * BLOCK);
	expect(a, "ABCDbcdH", 8 * BLOCK);
	/* Within one file. */
	assert_ok(swap_files(a, 0, a, 5, 3, 0));
	expect(a, "cdHDbABC", 8 * BLOCK);
	end(&bed, a, b);
}

static void test_dirty_data_take_part(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abc", 2 * BLOCK + 100), *b = file(&bed, "/b", "A", 10);

	/* Never committed, one of them inline. */
	assert_ok(swap_files(a, 0, b, 0, 0, TUX3_EXCHANGE_TO_EOF));
	expect(a, "A", 10);
	expect(b, "abc", 2 * BLOCK + 100);
	put(a, 0, "xyz", 3 * BLOCK);
	put(b, 1, "q", 5);
	assert_ok(swap_files(a, 1, b, 1, 0, TUX3_EXCHANGE_TO_EOF));
	assert_int_equal(tux3_truncate(b, 2 * BLOCK), 0);
	expect(b, "ay", 2 * BLOCK);
	/* Nothing behind the end comes back when the file grows. */
	assert_ok(swap_files(a, 0, b, 0, 0, TUX3_EXCHANGE_TO_EOF));
	assert_ok(tux3_truncate(a, 2 * BLOCK + 50));
	expect(a, "ay.", 2 * BLOCK + 50);
	end(&bed, a, b);
}

static void test_ends_of_files(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abc", 2 * BLOCK + 7), *b = file(&bed, "/b", "ABCDE", 4 * BLOCK + 7);

	/* Both ranges end where the files do. */
	assert_ok(tux3_exchange_range(a, BLOCK, b, 3 * BLOCK, BLOCK + 7, 0, NULL));
	expect(a, "aDE", 2 * BLOCK + 7);
	expect(b, "ABCbc", 4 * BLOCK + 7);
	/* Only one does. */
	assert_int_equal(tux3_exchange_range(a, BLOCK, b, BLOCK, BLOCK + 7, 0, NULL), -EINVAL);
	assert_int_equal(tux3_exchange_range(a, BLOCK, b, BLOCK, BLOCK + 8, 0, NULL), -EINVAL);
	/* A tail for nothing. */
	assert_ok(swap_files(a, 1, b, 4, 0, TUX3_EXCHANGE_TO_EOF));
	expect(a, "ac", BLOCK + 7);
	expect(b, "ABCbDE", 5 * BLOCK + 7);
	assert_ok(tux3_truncate(a, BLOCK));
	assert_ok(swap_files(a, 1, b, 2, 0, TUX3_EXCHANGE_TO_EOF));
	expect(a, "aCbDE", 4 * BLOCK + 7);
	expect(b, "AB", 2 * BLOCK);
	end(&bed, a, b);
}

static void test_what_was_written_of_file_1(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "a..d..gh", 8 * BLOCK), *b = file(&bed, "/b", "ABCDEFGH", 8 * BLOCK);

	assert_ok(tux3_fallocate(a, 0, 4 * BLOCK, 2 * BLOCK));
	assert_ok(swap_files(a, 0, b, 0, 8, TUX3_EXCHANGE_FILE1_WRITTEN));
	expect(a, "A..D..GH", 8 * BLOCK);
	expect(b, "aBCdEFgh", 8 * BLOCK);
	/* The ends of files are exchanged whatever is there. */
	assert_ok(tux3_truncate(a, 7 * BLOCK));
	assert_ok(tux3_truncate(a, 8 * BLOCK));
	assert_ok(tux3_truncate(b, 6 * BLOCK + 5));
	assert_ok(swap_files(a, 0, b, 0, 0, TUX3_EXCHANGE_FILE1_WRITTEN | TUX3_EXCHANGE_TO_EOF));
	expect(a, "a..d..g", 6 * BLOCK + 5);
	expect(b, "ABCDEFG.", 8 * BLOCK);
	end(&bed, a, b);
}

static void test_preallocated_blocks_move(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "a", BLOCK), *b = file(&bed, "/b", "ABCD", 4 * BLOCK);
	struct tux3_stat before, after;

	assert_ok(tux3_fallocate(a, FALLOC_FL_KEEP_SIZE, 0, 8 * BLOCK));
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_stat_node(a, &before));
	assert_ok(swap_files(a, 0, b, 0, 0, TUX3_EXCHANGE_TO_EOF));
	expect(a, "ABCD", 4 * BLOCK);
	expect(b, "a", BLOCK);
	assert_ok(tux3_stat_node(a, &after));
	assert_int_equal(after.blocks_512, before.blocks_512);	/* 4 that were exchanged, 4 that stayed */
	put(b, 1, "xyz", 3 * BLOCK);
	expect(b, "axyz", 4 * BLOCK);
	end(&bed, a, b);
}

/* When it came there, not when it was written: so repair knows the newer one of two claims on a block. */
static u64 birth_of(struct bed *bed, struct tux3_node *node, u64 block)
{
	struct tree_key key = tree_key(tux3_node_ino(node), TUX3_ITEM_EXTENT, block);
	struct disk_extent extent;

	assert_true(tree_lookup(tux3_core(bed->volume), &key, &extent, sizeof(extent)) > 0);
	return le64_to_cpu(extent.birth);
}

static void test_births(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abcd", 4 * BLOCK), *b = file(&bed, "/b", "ABCD", 4 * BLOCK);
	u64 written;

	assert_ok(tux3_sync(bed.volume));
	written = tux3_committed(bed.volume);
	assert_int_equal(birth_of(&bed, a, 0), written);
	assert_ok(swap_files(a, 1, b, 2, 1, 0));
	assert_true(tux3_committed(bed.volume) > written);
	assert_int_equal(birth_of(&bed, a, 0), written);
	assert_int_equal(birth_of(&bed, a, 1), tux3_committed(bed.volume));
	assert_int_equal(birth_of(&bed, b, 2), tux3_committed(bed.volume));
	assert_ok(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, 2 * BLOCK, BLOCK));
	assert_int_equal(birth_of(&bed, a, 1), tux3_committed(bed.volume) - 1);
	assert_int_equal(birth_of(&bed, a, 2), tux3_committed(bed.volume));
	end(&bed, a, b);
}

static void test_times_and_change(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "a", BLOCK), *b = file(&bed, "/b", "A", BLOCK);
	const struct tux3_stat old = { .mtime.tv_sec = 1000 };
	struct tux3_stat before, after;

	assert_ok(tux3_setattr(a, NULL, &old, TUX3_SET_MTIME));
	assert_ok(tux3_setattr(b, NULL, &old, TUX3_SET_MTIME));
	assert_ok(tux3_stat_node(b, &before));
	assert_ok(swap_files(a, 0, b, 0, 1, TUX3_EXCHANGE_DRY_RUN));
	assert_ok(tux3_stat_node(b, &after));
	assert_int_equal(after.change, before.change);
	assert_ok(swap_files(a, 0, b, 0, 1, 0));
	assert_ok(tux3_stat_node(b, &after));
	assert_true(after.change > before.change && after.mtime.tv_sec > 1000);
	assert_ok(tux3_stat_node(a, &after));
	assert_true(after.mtime.tv_sec > 1000);
	end(&bed, a, b);
}

static void test_refusals(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abcd", 4 * BLOCK), *b = file(&bed, "/b", "ABCD", 4 * BLOCK);
	const struct tux3_stat immutable = { .flags = TUX3_ATTR_IMMUTABLE }, append = { .flags = TUX3_ATTR_APPEND }, none = {};
	struct bed other = start();
	struct tux3_node *far = file(&other, "/a", "abcd", 4 * BLOCK);

	assert_int_equal(swap_files(a, 0, far, 0, 1, 0), -EXDEV);
	assert_int_equal(swap_files(a, 0, b, 0, 1, 16), -EINVAL);
	assert_int_equal(swap_files(a, 0, bed.root, 0, 1, 0), -EISDIR);
	assert_int_equal(swap_files(a, 3, b, 0, 2, 0), -EINVAL);
	assert_int_equal(swap_files(a, 0, b, 3, 2, 0), -EINVAL);
	assert_int_equal(swap_files(a, 5, b, 0, 0, TUX3_EXCHANGE_TO_EOF), -EINVAL);
	assert_int_equal(swap_files(a, 0, a, 1, 2, 0), -EINVAL);
	assert_int_equal(swap_files(a, 1, a, 1, 1, 0), -EINVAL);
	assert_int_equal(swap_files(a, 1, a, 3, 0, TUX3_EXCHANGE_TO_EOF), -EINVAL);
	assert_int_equal(tux3_exchange_range(a, 1, b, 0, BLOCK, 0, NULL), -EINVAL);
	assert_int_equal(tux3_exchange_range(a, 0, b, 0, ~0ULL - 5, 0, NULL), -EINVAL);
	assert_int_equal(tux3_exchange_range(a, ~0ULL << 12, b, 0, BLOCK, 0, NULL), -EINVAL);
	assert_ok(tux3_setattr(b, NULL, &immutable, TUX3_SET_FLAGS));
	assert_int_equal(swap_files(a, 0, b, 0, 1, 0), -EPERM);
	assert_int_equal(swap_files(b, 0, a, 0, 1, 0), -EPERM);
	assert_ok(tux3_setattr(b, NULL, &append, TUX3_SET_FLAGS));
	assert_int_equal(swap_files(a, 0, b, 0, 1, 0), -EPERM);
	assert_int_equal(tux3_fallocate(b, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK), -EPERM);
	assert_ok(tux3_setattr(b, NULL, &none, TUX3_SET_FLAGS));
	expect(a, "abcd", 4 * BLOCK);
	expect(b, "ABCD", 4 * BLOCK);
	end(&other, far, NULL);
	end(&bed, a, b);
}

static void test_freshness(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abcd", 4 * BLOCK), *b = file(&bed, "/b", "ABCD", 4 * BLOCK);
	struct tux3_freshness fresh, fresh_a;

	assert_ok(tux3_start_commit(b, &fresh));
	assert_ok(tux3_start_commit(a, &fresh_a));
	assert_int_equal(tux3_exchange_range(a, 0, b, 0, BLOCK, 0, &fresh_a), -EBUSY);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_exchange_range(a, 0, b, 0, BLOCK, 0, &fresh));
	expect(b, "aBCD", 4 * BLOCK);
	assert_int_equal(tux3_exchange_range(a, 0, b, 0, BLOCK, 0, &fresh), -EBUSY);
	assert_ok(tux3_start_commit(b, &fresh));
	put(b, 3, "x", 1);
	assert_int_equal(tux3_exchange_range(a, 0, b, 0, BLOCK, 0, &fresh), -EBUSY);
	expect(a, "Abcd", 4 * BLOCK);
	end(&bed, a, b);
}

static struct tux3_node *stores_into;

static int apart(struct tux3_inode *inode)
{
	return file_set_apart(node_of(inode));
}

static void store(struct tux3_inode *a, struct tux3_inode *b)
{
	if (stores_into)
		put(stores_into, 0, "s", 100);
	stores_into = NULL;
}

/* A store into a small file with a block of its own, just before the last commit of a START_COMMIT: it is not made inline. */
static void test_freshness_beside_a_store(void **state)
{
	static const struct data_remap_ops ops = { .apart = apart, .lock = store };
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abcd", 4 * BLOCK), *b = file(&bed, "/b", "A", BLOCK);
	const struct tux3_stat small = { .size = 100 };
	struct tux3_freshness fresh;

	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_setattr(b, NULL, &small, TUX3_SET_SIZE));
	assert_ok(tux3_sync(bed.volume));
	assert_false(b->inode.attr.flags & TUX3_ATTR_INLINE);
	stores_into = b;
	assert_ok(data_start_commit(&b->inode, &ops, (u64 *)fresh.word));
	assert_null(stores_into);
	assert_ok(tux3_exchange_range(a, 0, b, 0, 0, EXCHANGE_TO_EOF, &fresh));
	expect(a, "s", 100);
	expect(b, "abcd", 4 * BLOCK);
	end(&bed, a, b);
}

/* Who is killed has changed nothing. */
static void test_killed(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abcd", 4 * BLOCK), *b = file(&bed, "/b", "ABCD", 4 * BLOCK);

	assert_ok(tux3_sync(bed.volume));
	env_killed = true;
	assert_int_equal(swap_files(a, 0, b, 0, 4, 0), -EINTR);
	assert_int_equal(swap_files(a, 0, b, 0, 4, TUX3_EXCHANGE_FILE1_WRITTEN), -EINTR);
	assert_int_equal(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK), -EINTR);
	env_killed = false;
	expect(a, "abcd", 4 * BLOCK);
	expect(b, "ABCD", 4 * BLOCK);
	assert_ok(swap_files(a, 0, b, 0, 4, 0));
	end(&bed, a, b);
}

/* Every second block: so many extents that it is too much log. */
static void test_too_large(void **state)
{
	struct bed bed = { .opts = { .manual = true, .costs = true, .remap_bytes = 6000 } };
	struct tux3_node *a, *b;
	u32 i;

	bed_make(&bed, 16 << 20, BLOCK);
	a = file(&bed, "/a", "a", BLOCK);
	b = file(&bed, "/b", "A", BLOCK);
	for (i = 2; i < 150; i += 2)
		put(a, i, "a", BLOCK);
	assert_ok(tux3_truncate(b, 150 * BLOCK));
	assert_ok(tux3_truncate(a, 150 * BLOCK));
	assert_ok(swap_files(a, 0, b, 0, 150, 0));
	put(a, 0, "x", BLOCK);
	for (i = 1; i < 150; i += 2)
		put(a, i, "x", BLOCK);
	assert_int_equal(swap_files(a, 0, b, 0, 150, 0), -EFBIG);
	assert_int_equal(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK), 0);
	for (i = 150; i < 300; i += 2)
		put(a, i, "x", BLOCK);
	assert_int_equal(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK), -EFBIG);
	assert_ok(swap_files(a, 0, b, 0, 70, 0));
	end(&bed, a, b);
}

/* More than a cost has room for: charged several times. */
static void test_many_extents(void **state)
{
	struct bed bed = { .opts = { .manual = true, .costs = true, .verify = true } };
	struct tux3_node *a, *b;
	u32 i;

	bed_make(&bed, 256 << 20, BLOCK);
	a = file(&bed, "/a", "a", BLOCK);
	b = file(&bed, "/b", "A", BLOCK);
	for (i = 0; i < 2000; i++)
		put(a, 2 * i, "a", BLOCK);
	assert_ok(tux3_fallocate(b, 0, 0, 4000 * BLOCK));
	assert_ok(tux3_truncate(a, 4000 * BLOCK));
	for (i = 0; i < 4; i++)
		assert_ok(swap_files(a, 0, b, 0, 4000, i & 1 ? TUX3_EXCHANGE_FILE1_WRITTEN : 0));
	end(&bed, a, b);
}

/*
 * What is charged: with less than is right for items, or for checksums, the commit takes more than was paid, and that is found.
 * dense: a few long extents, which are mostly checksums; else many short ones.
 */
static u64 overdrafts(bool dense, u32 cheap)
{
	struct bed bed = { .opts = { .manual = true, .costs = true, .cheap = cheap, .cheap_by = U16_MAX } };
	static u8 data[256 * BLOCK];
	struct tux3_node *a, *b;
	u64 found;
	u32 i;

	bed_make(&bed, 256 << 20, BLOCK);
	a = bed_file(&bed, "/a");
	b = file(&bed, "/b", "A", BLOCK);
	for (i = 0; i < 20000; i += dense ? 256 : 10)
		assert_true(tux3_write(a, data, dense ? sizeof(data) : BLOCK, (u64)i * BLOCK) > 0);
	assert_ok(tux3_sync(bed.volume));
	found = atomic64_read(&tux3_core(bed.volume)->counters[TUX3_COUNT_OVERDRAFTS]);
	assert_ok(swap_files(a, 0, b, 0, 0, TUX3_EXCHANGE_TO_EOF));
	found = atomic64_read(&tux3_core(bed.volume)->counters[TUX3_COUNT_OVERDRAFTS]) - found;
	atomic64_set(&tux3_core(bed.volume)->counters[TUX3_COUNT_OVERDRAFTS], 0);	/* or bed_free() fails */
	tux3_node_put(a, 1);
	tux3_node_put(b, 1);
	bed_free(&bed);
	return found;
}

static void test_costs(void **state)
{
	assert_int_equal(overdrafts(true, SPACE_RIGHT), 0);
	assert_true(overdrafts(true, SPACE_CHEAP_EXTENTS) > 0);
	assert_int_equal(overdrafts(false, SPACE_RIGHT), 0);
	assert_true(overdrafts(false, SPACE_CHEAP_ITEMS) > 0);
}

/* ---- limits ---- */

static void test_full_volume(void **state)
{
	struct bed bed = { .opts = { .manual = true, .costs = true, .verify = true } };
	struct tux3_node *a, *b, *rest;
	char block[BLOCK] = "";
	bool is_long;
	u64 at;
	u32 i;
	int err;

	bed_make(&bed, 4 << 20, BLOCK);
	a = file(&bed, "/a", "abcd.f.h", 8 * BLOCK);
	b = file(&bed, "/b", "A", BLOCK);
	rest = bed_file(&bed, "/rest");
	for (at = 0; tux3_write(rest, block, BLOCK, at * BLOCK) == BLOCK; at++)
		;
	for (i = 0; i < 20; i++) {
		err = swap_files(a, 0, b, 0, 0, TUX3_EXCHANGE_TO_EOF);
		assert_true(!err || err == -ENOSPC);
		is_long = err ? !(i % 2) : i % 2;
		expect(a, is_long ? "abcd.f.h" : "A", is_long ? 8 * BLOCK : BLOCK);
		if (err)
			break;
	}
	/* Space comes back: and it can be done. */
	assert_ok(tux3_truncate(rest, (at - 60) * BLOCK));
	for (i = 0; i < 20; i++)
		assert_ok(swap_files(a, 0, b, 0, 0, TUX3_EXCHANGE_TO_EOF));
	tux3_node_put(rest, 1);
	end(&bed, a, b);
}

static void limit(struct bed *bed, u32 id, u64 blocks)
{
	struct tux3_quota quota = { .bytes_hard = blocks * BLOCK };

	assert_ok(tux3_quota_set(bed->volume, TUX3_QUOTA_USER, id, &quota, TUX3_QUOTA_BYTES_HARD));
}

static u64 used(struct bed *bed, u32 id)
{
	struct tux3_quota quota;

	assert_ok(tux3_quota_get(bed->volume, TUX3_QUOTA_USER, id, &quota));
	return quota.bytes / BLOCK;
}

static void test_quota(void **state)
{
	struct bed bed = { .quota = true, .opts = { .manual = true, .costs = true, .verify = true } };
	struct tux3_stat one = { .uid = 1000, .gid = 1 }, two = { .uid = 1001, .gid = 1 };
	struct tux3_node *a, *b, *c;

	bed_make(&bed, 16 << 20, BLOCK);
	a = file(&bed, "/a", "abcdef", 6 * BLOCK);
	b = file(&bed, "/b", "A", BLOCK);
	c = file(&bed, "/c", "x", BLOCK);
	assert_ok(tux3_setattr(a, NULL, &one, TUX3_SET_UID | TUX3_SET_GID));
	assert_ok(tux3_setattr(b, NULL, &two, TUX3_SET_UID | TUX3_SET_GID));
	assert_ok(tux3_setattr(c, NULL, &one, TUX3_SET_UID));
	limit(&bed, 1001, 5);
	assert_int_equal(swap_files(a, 0, b, 0, 0, TUX3_EXCHANGE_TO_EOF), -EDQUOT);
	expect(a, "abcdef", 6 * BLOCK);
	limit(&bed, 1001, 6);
	assert_ok(swap_files(a, 0, b, 0, 0, TUX3_EXCHANGE_TO_EOF));
	assert_int_equal(used(&bed, 1001), 6);
	assert_int_equal(used(&bed, 1000), 2);
	/* Both are of one who is at his limit: though their groups differ. */
	limit(&bed, 1000, 8);
	assert_ok(tux3_setattr(b, NULL, &(struct tux3_stat){ .uid = 1000 }, TUX3_SET_UID));
	assert_ok(swap_files(c, 0, b, 0, 0, TUX3_EXCHANGE_TO_EOF));
	expect(c, "abcdef", 6 * BLOCK);
	assert_int_equal(used(&bed, 1000), 8);
	tux3_node_put(c, 1);
	end(&bed, a, b);
}

/* ---- parts taken out, or put in ---- */

static void test_collapse(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abc.efgh", 7 * BLOCK + 9);

	assert_int_equal(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, 1, BLOCK), -EINVAL);
	assert_int_equal(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK + 1), -EINVAL);
	assert_int_equal(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, 7 * BLOCK, BLOCK), -EINVAL);
	assert_int_equal(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_KEEP_SIZE, 0, BLOCK), -EOPNOTSUPP);
	assert_int_equal(tux3_fallocate(bed.root, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK), -EISDIR);
	assert_ok(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, BLOCK, 2 * BLOCK));
	expect(a, "a.efgh", 5 * BLOCK + 9);
	assert_ok(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, 0, 4 * BLOCK));
	expect(a, "gh", BLOCK + 9);
	assert_ok(tux3_fallocate(a, FALLOC_FL_KEEP_SIZE, 4 * BLOCK, BLOCK));
	assert_ok(tux3_fallocate(a, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK));
	expect(a, "h", 9);
	end(&bed, a, NULL);
}

static void test_insert(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "ab", BLOCK + 9), *b = file(&bed, "/b", "x", 20);

	assert_int_equal(tux3_fallocate(a, FALLOC_FL_INSERT_RANGE, 1, BLOCK), -EINVAL);
	assert_int_equal(tux3_fallocate(a, FALLOC_FL_INSERT_RANGE, 2 * BLOCK, BLOCK), -EINVAL);
	assert_int_equal(tux3_fallocate(a, FALLOC_FL_INSERT_RANGE, 0, TUX3_SIZE_MAX & ~(u64)(BLOCK - 1)), -EFBIG);
	/* Nor does what was preallocated behind the end go beyond the largest block. */
	assert_ok(tux3_fallocate(b, FALLOC_FL_KEEP_SIZE, (TUX3_SIZE_MAX & ~(u64)(BLOCK - 1)) - BLOCK, BLOCK));
	assert_int_equal(tux3_fallocate(b, FALLOC_FL_INSERT_RANGE, 0, 2 * BLOCK), -EFBIG);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_fallocate(b, FALLOC_FL_INSERT_RANGE, 0, BLOCK));
	assert_ok(tux3_fallocate(b, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK));
	expect(b, "x", 20);
	tux3_node_put(b, 1);
	b = file(&bed, "/c", "x", 20);
	assert_ok(tux3_fallocate(a, FALLOC_FL_INSERT_RANGE, BLOCK, 2 * BLOCK));
	expect(a, "a..b", 3 * BLOCK + 9);
	put(a, 1, "x", BLOCK);
	assert_ok(tux3_fallocate(a, FALLOC_FL_INSERT_RANGE, 0, BLOCK));
	expect(a, ".ax.b", 4 * BLOCK + 9);
	assert_ok(tux3_fallocate(b, FALLOC_FL_INSERT_RANGE, 0, 3 * BLOCK));
	expect(b, "...x", 3 * BLOCK + 20);
	end(&bed, a, b);
}

/* ---- a commit fails ---- */

static void test_the_remap_covers_the_tree(void **state)
{
	struct bed bed = start();
	struct tux3_node *a = file(&bed, "/a", "abcd.fgh", 8 * BLOCK);
	struct remap_run runs[] = { { .block = 2, .addr = 1000, .count = 2 }, { .block = 5, .addr = 2000, .count = 1 } };
	struct remap_range ranges[] = { { .block = 2, .count = 4 }, { .block = 7, .count = DATA_END - 7 } };
	struct data_remap remap = {
		.sides = 1,
		.side[0] = { .inode = &a->inode, .ranges = ranges, .range_count = 2, .runs = runs, .run_count = 2 },
	};
	static const struct {
		u64 block, count, addr;
		enum data_kind kind;
	} cases[] = {
		{ 0, 2, 0, DATA_MAPPED }, { 2, 2, 1000, DATA_MAPPED }, { 3, 1, 1001, DATA_MAPPED }, { 4, 1, 0, DATA_HOLE },
		{ 5, 1, 2000, DATA_MAPPED }, { 6, 1, 0, DATA_MAPPED }, { 7, 93, 0, DATA_HOLE },
	};
	struct data_look look;
	u32 i;

	assert_ok(tux3_sync(bed.volume));
	a->inode.remap = &remap;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct data_extent extent;

		assert_ok(data_map(&a->inode, cases[i].block, 100 - cases[i].block, &extent, NULL, 0));
		assert_int_equal(extent.kind, cases[i].kind);
		assert_int_equal(extent.count, cases[i].count);
		if (cases[i].addr)
			assert_int_equal(extent.addr, cases[i].addr);
		data_look_begin(&look, &a->inode, cases[i].block, 100);
		assert_int_equal(data_look_next(&look), 1);
		assert_int_equal(look.kind, cases[i].kind);
		assert_int_equal(look.count, cases[i].count);
		if (cases[i].addr || cases[i].kind == DATA_HOLE)
			assert_int_equal(look.addr, cases[i].addr);
	}
	assert_int_equal(data_seek(&a->inode, 8 * BLOCK, 0, true), 4 * BLOCK);
	assert_int_equal(data_seek(&a->inode, 8 * BLOCK, 7 * BLOCK, false), -ENXIO);
	a->inode.remap = NULL;
	end(&bed, a, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_dirty_data_take_part),
		cmocka_unit_test(test_ends_of_files),
		cmocka_unit_test(test_what_was_written_of_file_1),
		cmocka_unit_test(test_preallocated_blocks_move),
		cmocka_unit_test(test_births),
		cmocka_unit_test(test_times_and_change),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_freshness),
		cmocka_unit_test(test_freshness_beside_a_store),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_many_extents),
		cmocka_unit_test(test_costs),
		cmocka_unit_test(test_full_volume),
		cmocka_unit_test(test_quota),
		cmocka_unit_test(test_collapse),
		cmocka_unit_test(test_insert),
		cmocka_unit_test(test_the_remap_covers_the_tree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
