/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Volumes that are full to the last block: what was preallocated can be written, whatever the order, after crashes
 * too; what takes no space in the end works; and the numbers of stat and df are those of the newest state.
 */
#include "support_lib.h"
#include "user/lib/lib.h"
#include "core/names/ops.h"

#include <linux/falloc.h>

#define BLOCK		4096u
#define PROMISED	6144u		/* blocks of a volume of 8,192 */

static u8 page[256 * BLOCK];

static u64 df(struct bed *bed)
{
	u64 total, free, available;

	space_stat(bed->volume->vol, &total, &free, &available);
	return free;
}

static u64 blocks_of(struct tux3_node *node)
{
	struct tux3_stat stat;

	assert_ok(tux3_stat_node(node, &stat));
	return stat.blocks_512 / (BLOCK / 512);
}

/* Until not even one block fits any more; data and names. */
static void fill_up(struct bed *bed)
{
	struct tux3_node *node = bed_file(bed, "/filler"), *made;
	u64 at = 0;
	char path[300];
	int i, err = 0;

	while (tux3_write(node, page, 64 * BLOCK, at) > 0)
		at += 64 * BLOCK;
	while (tux3_append(node, page, BLOCK) > 0)
		;
	for (i = 0; !err; i++) {
		snprintf(path, sizeof(path), "/%0200d", i);
		err = tux3_path(bed->volume, NULL, path, TUX3_CREATE, 0644, &made);
		if (!err)
			tux3_node_put(made, 1);
	}
	assert_int_equal(err, -ENOSPC);
	assert_ok(tux3_sync(bed->volume));
	assert_int_equal(tux3_append(node, page, BLOCK), -ENOSPC);
	tux3_node_put(node, 1);
}

static struct tux3_node *reopen(struct bed *bed, struct tux3_node *node, const char *path, bool crash)
{
	tux3_node_put(node, 1);
	if (crash) {
		tux3_node_put(bed->root, 1);
		bed_crash(bed);
	} else {
		bed_reopen(bed);
	}
	assert_ok(tux3_path(bed->volume, NULL, path, 0, 0, &node));
	return node;
}

static void check_block(struct tux3_node *node, u64 block, bool written)
{
	u64 data[BLOCK / 8];

	assert_int_equal(tux3_read(node, data, BLOCK, block * BLOCK), BLOCK);
	assert_int_equal(data[0], written ? block + 1 : 0);
	assert_int_equal(data[BLOCK / 8 - 1], written ? block + 1 : 0);
}

/* Every block once, in an order that splits extents as much as can be. */
static void write_promised(struct bed *bed, struct tux3_node *node, u32 crash_every)
{
	u64 data[BLOCK / 8], block;
	u32 i, n, failed = 0;

	for (i = 0; i < PROMISED; i++) {
		block = (u64)i * 7919 % PROMISED;
		for (n = 0; n < BLOCK / 8; n++)
			data[n] = block + 1;
		failed += tux3_write(node, data, BLOCK, block * BLOCK) != BLOCK;
		if (i % 997 == 0)
			assert_ok(tux3_sync(bed->volume));
		if (crash_every && i % crash_every == crash_every - 1) {
			assert_ok(tux3_sync(bed->volume));
			node = reopen(bed, node, "/promised", i / crash_every & 1);
		}
	}
	assert_int_equal(failed, 0);
	assert_ok(tux3_sync(bed->volume));
	node = reopen(bed, node, "/promised", true);
	for (i = 0; i < PROMISED; i += 61)
		check_block(node, i, true);
	tux3_node_put(node, 1);
}

static void promise(u32 crash_every, bool commit_first)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;

	bed_make(&bed, 32 << 20, BLOCK);
	node = bed_file(&bed, "/promised");
	assert_ok(tux3_fallocate(node, 0, 0, (u64)PROMISED * BLOCK));
	if (commit_first)
		assert_ok(tux3_sync(bed.volume));
	fill_up(&bed);
	if (crash_every)
		node = reopen(&bed, node, "/promised", true);
	write_promised(&bed, node, crash_every);
	bed_free(&bed);
}

static void test_promise_is_kept(void **state)
{
	promise(0, false);
}

static void test_promise_is_kept_over_crashes(void **state)
{
	promise(900, true);
}

/* A block in several writes, and commits only when space runs out. */
static void test_pieces(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	u64 at;

	bed_make(&bed, 32 << 20, BLOCK);
	node = bed_file(&bed, "/promised");
	assert_ok(tux3_fallocate(node, 0, 0, (u64)PROMISED * BLOCK));
	fill_up(&bed);
	for (at = 0; at < 1000 * BLOCK; at += 1000)
		assert_int_equal(tux3_write(node, page, 1000, at), 1000);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Renames that make names longer take the tree's room, until they are refused; removing works all the same. */
static void test_rename_leaves_room_to_remove(void **state)
{
	struct bed bed = { .opts.manual = true };
	char from[300], to[300];
	int i, err = 0, renamed = 0, files = 3000;
	struct tux3_node *node;

	bed_make(&bed, 16 << 20, BLOCK);
	for (i = 0; i < files; i++) {
		snprintf(from, sizeof(from), "/%d", i);
		node = bed_file(&bed, from);
		tux3_node_put(node, 1);
	}
	fill_up(&bed);
	for (i = 0; i < files && !err; i++) {
		snprintf(from, sizeof(from), "/%d", i);
		snprintf(to, sizeof(to), "/x%0250d", i);
		err = tux3_path_rename(bed.volume, NULL, from, to, 0);
		renamed += !err;
	}
	assert_true(renamed > 10);
	assert_true(!err || err == -ENOSPC);
	for (i = 0; i < files; i++) {
		snprintf(from, sizeof(from), i < renamed ? "/x%0250d" : "/%d", i);
		assert_ok(tux3_path_unlink(bed.volume, NULL, from));
	}
	bed_free(&bed);
}

/* More than there is to promise. */
static void test_refused(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	u64 before, after;

	bed_make(&bed, 16 << 20, BLOCK);
	node = bed_file(&bed, "/promised");
	before = df(&bed);
	assert_int_equal(tux3_fallocate(node, 1, 0, before * BLOCK), -ENOSPC);
	assert_ok(tux3_truncate(node, 1));
	assert_ok(tux3_truncate(node, 0));
	after = df(&bed);
	assert_true(after + 8 >= before);
	assert_ok(tux3_fallocate(node, 0, 0, before * 8 / 10 * BLOCK));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* On a full volume works what takes nothing in the end. */
static void test_full_volume(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_attr attr = { .mode = 0600 };
	struct tux3_node *node;
	char from[32], to[32];
	int i;

	bed_make(&bed, 16 << 20, BLOCK);
	for (i = 0; i < 40; i++) {
		snprintf(from, sizeof(from), "/file%02d", i);
		node = bed_file(&bed, from);
		assert_int_equal(tux3_write(node, page, 20 * BLOCK, 0), 20 * BLOCK);
		tux3_node_put(node, 1);
	}
	fill_up(&bed);
	for (i = 0; i < 40; i++) {
		snprintf(from, sizeof(from), "/file%02d", i);
		snprintf(to, sizeof(to), "/name%02d", i);
		assert_ok(tux3_path_rename(bed.volume, NULL, from, to, 0));
		assert_ok(tux3_path(bed.volume, NULL, to, 0, 0, &node));
		attr.mode = 0600 + i;
		assert_ok(op_setattr(&node->inode, &attr, OP_ATTR_MODE));
		tux3_node_put(node, 1);
	}
	assert_ok(tux3_path(bed.volume, NULL, "/name00", 0, 0, &node));
	assert_ok(tux3_fallocate(node, 3, 4 * BLOCK, 3 * BLOCK));
	assert_ok(tux3_truncate(node, 0));
	tux3_node_put(node, 1);
	for (i = 0; i < 40; i++) {
		snprintf(to, sizeof(to), "/name%02d", i);
		assert_ok(tux3_path_unlink(bed.volume, NULL, to));
	}
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/filler"));
	bed_free(&bed);
}

/* stat and df before a commit say what they say after it. */
static void test_counts(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	u64 empty, now;

	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	assert_ok(tux3_sync(bed.volume));
	empty = df(&bed);

	assert_ok(tux3_fallocate(node, 1, 0, 1280 * BLOCK));
	assert_int_equal(blocks_of(node), 1280);
	assert_true(df(&bed) <= empty - 1280);
	assert_int_equal(tux3_write(node, page, 256 * BLOCK, 0), 256 * BLOCK);
	assert_int_equal(blocks_of(node), 1280);
	now = df(&bed);
	assert_true(now <= empty - 1280 && now >= empty - 1300);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(blocks_of(node), 1280);

	/* Into what is committed and unwritten. */
	assert_int_equal(tux3_write(node, page, 256 * BLOCK, 256 * BLOCK), 256 * BLOCK);
	assert_int_equal(blocks_of(node), 1280);
	now = df(&bed);
	assert_true(now <= empty - 1280 && now >= empty - 1300);
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(blocks_of(node), 0);
	assert_true(df(&bed) + 20 >= empty);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(blocks_of(node), 0);

	assert_int_equal(tux3_write(node, page, 256 * BLOCK, 0), 256 * BLOCK);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(tux3_write(node, page, 256 * BLOCK, 256 * BLOCK), 256 * BLOCK);
	assert_int_equal(blocks_of(node), 512);
	assert_true(df(&bed) <= empty - 512);
	/* A name goes: nothing yet.  The last user goes: all of it is free, at once. */
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/file"));
	assert_true(df(&bed) <= empty - 512);
	tux3_node_put(node, 1);
	assert_true(df(&bed) + 20 >= empty);
	assert_true(df(&bed) <= empty + 20);
	assert_ok(tux3_sync(bed.volume));
	assert_true(df(&bed) + 20 >= empty);
	bed_free(&bed);
}

/* ---- what cannot be had is not begun ---- */

static u64 available(struct bed *bed)
{
	u64 total, free, available;

	space_stat(bed->volume->vol, &total, &free, &available);
	return available;
}

static s64 count_of(struct bed *bed, enum tux3_counter which)
{
	return delta_counter(bed->volume->vol, which);
}

/* Neither the file nor the volume is as before by a block, nor did anybody enter a delta for it, nor wait for one. */
static void refuse(struct bed *bed, struct tux3_node *node, int mode, u64 offset, u64 length)
{
	s64 ops = count_of(bed, TUX3_COUNT_OPS), waits = count_of(bed, TUX3_COUNT_ENTER_WAITS);
	u64 free = df(bed), blocks = blocks_of(node), deltas = tux3_committed(bed->volume);
	struct tux3_stat before, after;

	assert_ok(tux3_stat_node(node, &before));
	assert_int_equal(tux3_fallocate(node, mode, offset, length), -ENOSPC);
	assert_ok(tux3_stat_node(node, &after));
	assert_int_equal(after.size, before.size);
	assert_int_equal(blocks_of(node), blocks);
	assert_int_equal(df(bed), free);
	assert_int_equal(count_of(bed, TUX3_COUNT_OPS), ops);
	assert_int_equal(count_of(bed, TUX3_COUNT_ENTER_WAITS), waits);
	assert_int_equal(tux3_committed(bed->volume), deltas);
}

static void test_what_cannot_be_had_is_not_begun(void **state)
{
	static const int modes[] = { 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE };
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	u64 data[BLOCK / 8];
	u32 i, n;

	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	for (n = 0; n < BLOCK / 8; n++)
		data[n] = 1;
	assert_int_equal(tux3_write(node, data, BLOCK, 0), BLOCK);
	for (n = 0; n < 2; n++) {
		for (i = 0; i < ARRAY_SIZE(modes); i++) {
			refuse(&bed, node, modes[i], 0, 1ULL << 60);
			refuse(&bed, node, modes[i], 0, TUX3_SIZE_MAX);
			refuse(&bed, node, modes[i], 5 * BLOCK, 1ULL << 40);
			refuse(&bed, node, modes[i], 1ULL << 50, 64 << 20);
		}
		check_block(node, 0, true);
		assert_ok(tux3_sync(bed.volume));
	}
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* What is there, for data and for what writing it will take. */
static u64 most_to_allocate(struct bed *bed)
{
	return available(bed) * 94 / 100;
}

/* But what is free as soon as it is committed and unified can be had, and what the file has needs no room. */
static void test_what_can_be_had_is_not_refused(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node, *other;
	u64 blocks;
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	blocks = most_to_allocate(&bed);
	assert_ok(tux3_fallocate(node, 0, 0, blocks * BLOCK));
	assert_ok(tux3_fallocate(node, 0, 0, blocks * BLOCK));
	assert_ok(tux3_truncate(node, 0));
	assert_ok(tux3_fallocate(node, 0, 0, (blocks - 8) * BLOCK));
	/* Half of it again, and half of it where it is already. */
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, blocks / 2 * BLOCK));
	assert_ok(tux3_fallocate(node, 0, 0, (blocks - 8) * BLOCK));
	assert_ok(tux3_truncate(node, 0));
	assert_ok(tux3_sync(bed.volume));
	/* Dirty blocks that replace others look like more than they take. */
	other = bed_file(&bed, "/other");
	for (i = 0; i < 3; i++) {
		assert_int_equal(tux3_write(other, page, sizeof(page), 0), sizeof(page));
		if (!i)
			assert_ok(tux3_sync(bed.volume));
	}
	blocks = most_to_allocate(&bed);
	assert_ok(tux3_fallocate(node, 0, 0, (blocks + 200) * BLOCK));
	tux3_node_put(node, 1);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/file"));
	assert_ok(tux3_fallocate(other, 0, 0, blocks * BLOCK));
	tux3_node_put(other, 1);
	bed_free(&bed);
}

/* A little more than there is: it takes a commit to know, and then it is known. */
static void test_a_little_too_much_is_not_begun_either(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	u64 blocks, deltas;
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	assert_int_equal(tux3_write(node, page, sizeof(page), 0), sizeof(page));
	blocks = df(&bed);
	deltas = tux3_committed(bed.volume);
	assert_int_equal(tux3_fallocate(node, 0, 0, (blocks + 256) * BLOCK), -ENOSPC);
	assert_in_range(tux3_committed(bed.volume), deltas, deltas + 2);
	deltas = tux3_committed(bed.volume);
	for (i = 0; i < 100; i++)
		assert_int_equal(tux3_fallocate(node, 0, 0, (blocks + 256) * BLOCK), -ENOSPC);
	assert_int_equal(tux3_committed(bed.volume), deltas);
	assert_int_equal(blocks_of(node), 256);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A file with a little data has a block for whoever asks, also where the data has gone into the tree. */
static void test_blocks_of_inline_data(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;

	bed_make(&bed, 16 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	assert_int_equal(blocks_of(node), 0);
	assert_int_equal(tux3_write(node, page, 100, 0), 100);
	assert_int_equal(blocks_of(node), 1);
	assert_ok(tux3_sync(bed.volume));
	assert_true(node->inode.attr.flags & TUX3_ATTR_INLINE);
	assert_int_equal(blocks_of(node), 1);
	node = reopen(&bed, node, "/file", false);
	assert_int_equal(blocks_of(node), 1);
	assert_int_equal(tux3_write(node, page, 100, 100), 100);
	assert_int_equal(blocks_of(node), 1);
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(blocks_of(node), 0);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(blocks_of(node), 0);
	assert_int_equal(tux3_write(node, page, 3 * BLOCK, 0), 3 * BLOCK);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(blocks_of(node), 3);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* What df says each time the device is flushed. */
static struct {
	struct tux3_device_ops ops;
	struct bed *bed;
	u64 least, most;
	u32 flushes;
} watch;

static int watch_flush(struct tux3_device *dev)
{
	u64 now = df(watch.bed);

	watch.flushes++;
	watch.least = min(watch.least, now);
	watch.most = max(watch.most, now);
	return 0;
}

/* While a delta is committed df says what it said before, and will say: what is placed already does not count twice. */
static void test_counts_during_a_commit(void **state)
{
	struct bed bed = { .opts.manual = true };
	const struct tux3_device_ops *ops;
	struct tux3_node *node, *gone;
	u64 before;
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	gone = bed_file(&bed, "/gone");
	for (i = 0; i < 8; i++)
		assert_int_equal(tux3_write(gone, page, sizeof(page), i * sizeof(page)), sizeof(page));
	assert_ok(delta_commit_unify(bed.volume->vol));
	ops = bed.dev->ops;
	watch.ops = *ops;
	watch.ops.flush = watch_flush;
	watch.bed = &bed;
	bed.dev->ops = &watch.ops;
	bed.dev->volatile_cache = true;

	node = bed_file(&bed, "/file");
	for (i = 0; i < 12; i++)
		assert_int_equal(tux3_write(node, page, sizeof(page), i * sizeof(page)), sizeof(page));
	assert_ok(tux3_fallocate(node, 0, 16 << 20, 4 << 20));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/gone"));
	tux3_node_put(gone, 1);
	before = watch.least = watch.most = df(&bed);
	assert_ok(tux3_sync(bed.volume));
	assert_true(watch.flushes > 0);
	assert_in_range(watch.least, before - 24, before);
	assert_in_range(watch.most, before, before + 24);
	assert_in_range(df(&bed), before - 24, before + 24);
	tux3_node_put(node, 1);
	bed.dev->ops = ops;
	bed.dev->volatile_cache = false;
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_promise_is_kept),
		cmocka_unit_test(test_promise_is_kept_over_crashes),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_rename_leaves_room_to_remove),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_what_cannot_be_had_is_not_begun),
		cmocka_unit_test(test_what_can_be_had_is_not_refused),
		cmocka_unit_test(test_a_little_too_much_is_not_begun_either),
		cmocka_unit_test(test_full_volume),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_counts_during_a_commit),
		cmocka_unit_test(test_blocks_of_inline_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
