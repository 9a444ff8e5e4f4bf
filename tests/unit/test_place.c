// SPDX-License-Identifier: GPL-2.0-or-later
/* Where files lie that are filled out of order: beside their neighbours, as if they had been written in order. */
#include <linux/falloc.h>
#include "support_check.h"
#include "support_lib.h"
#include "user/lib/lib.h"
#include "core/data/data.h"
#include "core/device/device.h"

#define BLOCK 4096u

struct layout {
	u64 pieces;		/* runs that lie in a row, in the file and on the disk */
	u64 blocks;
	u64 low, high;		/* disk blocks */
	u64 end;
};

static void layout_add(struct layout *layout, const struct data_extent *extent)
{
	layout->pieces += extent->addr != layout->end;
	layout->end = extent->addr + extent->count;
	layout->blocks += extent->count;
	layout->low = min(layout->low, extent->addr);
	layout->high = max(layout->high, layout->end);
}

static struct layout layout_of(struct tux3_node *node, u64 blocks)
{
	struct layout layout = { .low = U64_MAX };
	struct data_extent extent = {};

	while (extent.block < blocks) {
		extent.count = blocks - extent.block;
		assert_ok(data_map_tree(&node->inode, &extent, NULL, 0));
		if (extent.kind == DATA_MAPPED)
			layout_add(&layout, &extent);
		else
			layout.end = 0;
		extent.block += extent.count;
	}
	return layout;
}

/* The blocks of a file in random order. */
static u64 *shuffled(u64 blocks, u64 *random)
{
	u64 *order = calloc(blocks, sizeof(*order)), i;

	for (i = 0; i < blocks; i++)
		order[i] = i;
	for (i = blocks; i > 1; i--) {
		u64 other = bed_random(random) % i;

		swap(order[i - 1], order[other]);
	}
	return order;
}

static void put(struct tux3_node *node, u64 block)
{
	static char data[BLOCK];

	memcpy(data, &block, sizeof(block));
	assert_int_equal(tux3_write(node, data, BLOCK, block * BLOCK), BLOCK);
}

static void fill(struct bed *bed, struct tux3_node *const *nodes, u32 count, u64 blocks, u32 deltas)
{
	u64 random = 7, i, n;
	u64 *order = shuffled(blocks, &random);

	for (n = 0; n < count; n++)
		assert_ok(tux3_truncate(nodes[n], blocks * BLOCK));
	for (i = 0; i < blocks; i++) {
		for (n = 0; n < count; n++)
			put(nodes[n], order[(i + n * 77) % blocks]);
		if (i % (blocks / deltas) == 0)
			assert_ok(tux3_sync(bed->volume));
	}
	assert_ok(tux3_sync(bed->volume));
	free(order);
}

static void test_filled_out_of_order(void **state)
{
	static const u64 sizes[] = { 20, 500, 16384 };
	struct bed bed = {};
	struct tux3_node *nodes[3];
	char name[16];
	u32 i, count;

	bed_make(&bed, 512 << 20, BLOCK);
	for (count = 1; count <= 3; count += 2) {
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			u32 n;

			for (n = 0; n < count; n++) {
				snprintf(name, sizeof(name), "/f%u.%u.%u", count, i, n);
				nodes[n] = bed_file(&bed, name);
			}
			fill(&bed, nodes, count, sizes[i], 20);
			for (n = 0; n < count; n++) {
				struct layout layout = layout_of(nodes[n], sizes[i]);

				print_message("  %u of %u files of %llu blocks: %llu pieces\n", n + 1, count,
					      (unsigned long long)sizes[i], (unsigned long long)layout.pieces);
				assert_int_equal(layout.blocks, sizes[i]);
				/* In order: 1.  The first block has a small window: nobody knows how much will come. */
				assert_true(layout.pieces <= 32);
				tux3_node_put(nodes[n], 1);
			}
		}
	}
	bed_free(&bed);
}

/* Blocks that are preallocated lie in a row, also where they are written before that is durable; half of them by writes before. */
static void test_preallocated_and_written_at_once(void **state)
{
	const u64 blocks = 16384;
	struct bed bed = {};
	struct tux3_node *node;
	struct layout layout;
	u64 random = 11, i, k;
	u64 *order = shuffled(blocks, &random);

	bed_make(&bed, 512 << 20, BLOCK);
	for (k = 0; k < 2; k++) {
		node = bed_file(&bed, k ? "/before" : "/after");
		for (i = 0; k && i < blocks / 8; i++)
			put(node, order[i]);
		assert_ok(tux3_fallocate(node, 0, 0, blocks * BLOCK));
		for (i = 0; i < blocks / 4; i++)
			put(node, order[i]);
		assert_ok(tux3_sync(bed.volume));
		for (; i < blocks; i++)
			put(node, order[i]);
		assert_ok(tux3_sync(bed.volume));
		layout = layout_of(node, blocks);
		print_message("  %llu pieces\n", (unsigned long long)layout.pieces);
		assert_int_equal(layout.blocks, blocks);
		assert_true(layout.pieces <= 4);
		tux3_node_put(node, 1);
	}
	free(order);
	bed_free(&bed);
}

/* A few blocks of a large file do not cut the volume's free space into pieces. */
static void test_few_blocks_of_much(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	struct layout layout;
	u64 i;

	bed_make(&bed, 512 << 20, BLOCK);
	node = bed_file(&bed, "/few");
	assert_ok(tux3_truncate(node, 1ULL << 40));
	for (i = 0; i < 200; i++) {
		put(node, i * 1000003 % (1 << 28));
		if (i % 10 == 0)
			assert_ok(tux3_sync(bed.volume));
	}
	assert_ok(tux3_sync(bed.volume));
	layout = layout_of(node, 1 << 28);
	assert_int_equal(layout.blocks, 200);
	print_message("  200 blocks of 1 TiB within %llu\n", (unsigned long long)(layout.high - layout.low));
	assert_true(layout.high - layout.low <= 2 * 200);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A file written in order lies in order, and goes on where it was after a remount. */
static void test_appended_after_remount(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u64 i;
	int round;

	bed_make(&bed, 512 << 20, BLOCK);
	for (round = 0; round < 10; round++) {
		node = bed_file(&bed, "/log");
		for (i = 0; i < 100; i++)
			put(node, round * 100 + i);
		assert_ok(tux3_sync(bed.volume));
		tux3_node_put(node, 1);
		bed_reopen(&bed);
	}
	node = bed_file(&bed, "/log");
	assert_true(layout_of(node, 1000).pieces <= 2);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* What is punched out of the middle and written again, when its blocks are free again, is where it was. */
static void test_hole_filled_again(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u64 i;

	bed_make(&bed, 512 << 20, BLOCK);
	node = bed_file(&bed, "/holes");
	for (i = 0; i < 1000; i++)
		put(node, i);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(layout_of(node, 1000).pieces, 1);
	for (i = 100; i < 900; i += 50)
		assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * BLOCK, 10 * BLOCK));
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	bed_reopen(&bed);
	node = bed_file(&bed, "/holes");
	for (i = 100; i < 900; i += 50) {
		u64 k;

		for (k = 0; k < 10; k++)
			put(node, i + k);
	}
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(layout_of(node, 1000).pieces, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Many sparse files with a block each: they do not spread over the volume. */
static void test_few_blocks_of_many(void **state)
{
	struct bed bed = {};
	u64 low = U64_MAX, high = 0, i;
	char name[16];

	bed_make(&bed, 2048ULL << 20, BLOCK);
	for (i = 0; i < 2000; i++) {
		struct tux3_node *node;

		snprintf(name, sizeof(name), "/few%u", (u32)i);
		node = bed_file(&bed, name);
		assert_ok(tux3_truncate(node, 256 * BLOCK));
		put(node, i % 256);
		tux3_node_put(node, 1);
	}
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < 2000; i++) {
		struct tux3_node *node;
		struct layout layout;

		snprintf(name, sizeof(name), "/few%u", (u32)i);
		node = bed_find(&bed, name);
		layout = layout_of(node, 256);
		low = min(low, layout.low);
		high = max(high, layout.high);
		tux3_node_put(node, 1);
	}
	print_message("  2000 blocks of 2000 files within %llu\n", (unsigned long long)(high - low));
	/* A commit that came meanwhile may have put the areas of intents among them. */
	assert_true(high - low <= 2 * 2000 + bed.volume->vol->intent.place.blocks + bed.volume->vol->intent.far.blocks);
	bed_free(&bed);
}

/* Files that grow with holes in them: they go on where they are, with room for what is missing. */
static void test_grows_with_holes(void **state)
{
	struct bed bed = {};
	struct tux3_node *nodes[2];
	u64 i, n;

	bed_make(&bed, 2048ULL << 20, BLOCK);
	nodes[0] = bed_file(&bed, "/grows");
	nodes[1] = bed_file(&bed, "/grows too");
	for (i = 0; i < 8192; i += 2) {
		put(nodes[0], i);
		put(nodes[1], i);
		if (i % 100 == 0)
			assert_ok(tux3_sync(bed.volume));
	}
	for (i = 1; i < 8192; i += 2) {
		put(nodes[0], i);
		put(nodes[1], i);
		if (i % 100 == 1)
			assert_ok(tux3_sync(bed.volume));
	}
	assert_ok(tux3_sync(bed.volume));
	for (n = 0; n < 2; n++) {
		struct layout layout = layout_of(nodes[n], 8192);

		print_message("  8192 blocks that came as every second: %llu pieces\n", (unsigned long long)layout.pieces);
		assert_true(layout.pieces <= 64);
		tux3_node_put(nodes[n], 1);
	}
	bed_free(&bed);
}

static u64 reads_to_write_over(struct bed *bed, const char *name, u64 blocks)
{
	struct tux3_node *node;
	u64 reads, i;

	bed_reopen(bed);
	node = bed_file(bed, name);
	reads = atomic64_read(&bed->volume->vol->dev->reads);
	for (i = 0; i < 16; i++)
		put(node, i * (blocks / 16) + 17);
	assert_ok(tux3_sync(bed->volume));
	tux3_node_put(node, 1);
	return atomic64_read(&bed->volume->vol->dev->reads) - reads;
}

/* A hole in a file of many pieces: blocks elsewhere are written over with no more of the tree than without it. */
static void test_hole_among_pieces(void **state)
{
	const u64 blocks = 16384;
	struct bed bed = {};
	struct tux3_node *node;
	u64 random = 7, i, without, with;
	u64 *order = shuffled(blocks, &random);

	bed_make(&bed, 512 << 20, BLOCK);
	node = bed_file(&bed, "/pieces");
	for (i = 0; i < blocks; i++)
		put(node, i);
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < blocks; i++) {
		put(node, order[i]);
		if (i % 1024 == 1023)
			assert_ok(tux3_sync(bed.volume));
	}
	tux3_node_put(node, 1);
	without = reads_to_write_over(&bed, "/pieces", blocks);
	node = bed_file(&bed, "/pieces");
	assert_ok(tux3_truncate(node, (blocks + 1) * BLOCK));
	tux3_node_put(node, 1);
	with = reads_to_write_over(&bed, "/pieces", blocks);
	print_message("  16 blocks written over: %llu reads, with a hole %llu\n", (unsigned long long)without,
		      (unsigned long long)with);
	assert_true(with <= 2 * without + 8);
	free(order);
	bed_free(&bed);
}

/* ---- searching ---- */

#define SEARCH_FILES 300u
#define SEARCH_BLOCKS 16u

static s64 searched_runs(struct bed *bed)
{
	return atomic64_read(&tux3_core(bed->volume)->counters[TUX3_COUNT_SEARCHED_RUNS]);
}

/*
 * Three quarters of the volume have a free block behind each that is in use.  Files use up the rest; what is free of it in the end
 * is held by stretches, so for each piece of a file a run of some blocks might be there, and is not.  That is found out once, not
 * each time.
 */
static void test_single_blocks_are_not_searched_again_and_again(void **state)
{
	static u8 data[64 * BLOCK];
	u64 bytes = 256 << 20, end, at, i, round, random = 1;
	struct bed bed = { .opts = { .manual = true } };
	struct tux3_node *comb, *other, *file;
	s64 runs, most = 0;
	char path[40];

	bed_make(&bed, bytes, BLOCK);
	comb = bed_file(&bed, "/comb");
	other = bed_file(&bed, "/other");
	for (end = 0; end < bytes / 4 * 3; end += sizeof(data))
		assert_int_equal(tux3_write(comb, data, sizeof(data), end), sizeof(data));
	assert_ok(tux3_sync(bed.volume));
	for (at = 0; at < end; at += 2 * BLOCK)
		assert_ok(tux3_fallocate(comb, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, BLOCK));
	assert_ok(tux3_sync(bed.volume));
	for (round = 0; round < 5; round++) {
		runs = searched_runs(&bed);
		for (i = 0; i < SEARCH_FILES; i++) {
			u64 where = bed_random(&random) % 4000;

			snprintf(path, sizeof(path), "/%llu-%llu", (unsigned long long)round, (unsigned long long)i);
			file = bed_file(&bed, path);
			assert_int_equal(tux3_write(file, data, SEARCH_BLOCKS * BLOCK, 0), SEARCH_BLOCKS * BLOCK);
			tux3_node_put(file, 1);
			assert_int_equal(tux3_write(other, data, BLOCK, where * BLOCK), BLOCK);
			if (i % 3 == 0)
				assert_ok(tux3_sync(bed.volume));
		}
		assert_ok(tux3_sync(bed.volume));
		runs = (searched_runs(&bed) - runs) / SEARCH_FILES;
		most = max(most, runs);
	}
	print_message("  a file of %u blocks: %lld runs looked at\n", SEARCH_BLOCKS, most);
	assert_in_range(most, 1, 8000);
	tux3_node_put(comb, 1);
	tux3_node_put(other, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(test_single_blocks_are_not_searched_again_and_again),
	};
	const struct CMUnitTest beside[] = {
		cmocka_unit_test(test_filled_out_of_order),
		cmocka_unit_test(test_preallocated_and_written_at_once),
		cmocka_unit_test(test_few_blocks_of_much),
		cmocka_unit_test(test_appended_after_remount),
		cmocka_unit_test(test_hole_filled_again),
		cmocka_unit_test(test_few_blocks_of_many),
		cmocka_unit_test(test_grows_with_holes),
		cmocka_unit_test(test_hole_among_pieces),
	};

	return run_alone_and_beside(alone, beside);
}
