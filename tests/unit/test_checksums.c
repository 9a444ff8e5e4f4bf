/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Checksums of a commit's data that several CPUs compute are those that one would, whatever the pieces and whoever comes late; and
 * others do help.
 */
#include "support_lib.h"
#include "user/lib/lib.h"
#include "core/commit/checksums.h"
#include "core/log/log.h"

#define BLOCK	4096u
#define ROUNDS	FEWER(400, 60)
#define BLOCKS	LOG_EXTENT_BLOCKS

static u8 data[BLOCKS * BLOCK];
static __le32 sums[BLOCKS];

static u64 helped(struct bed *bed)
{
	return delta_counter(bed->volume->vol, TUX3_COUNT_CHECKSUMS_HELPED);
}

static void fill(u64 *seed)
{
	u64 *word = (u64 *)data;
	size_t i;

	for (i = 0; i < sizeof(data) / sizeof(*word); i++)
		word[i] = bed_random(seed);
}

/* From the last one on, which somebody may still be at. */
static void assert_sums(u32 blocks)
{
	u32 i = blocks;

	while (i--)
		assert_int_equal(le32_to_cpu(sums[i]), crc32c(~0u, data + (size_t)i * BLOCK, BLOCK));
}

/* Runs of all lengths, in pieces of all lengths. */
static void test_are_those_of_one_cpu(void **state)
{
	struct bed bed = {};
	u64 seed = 1;
	u32 round;

	bed_make(&bed, 16 << 20, BLOCK);
	fill(&seed);
	for (round = 0; round < ROUNDS; round++) {
		u32 blocks = bed_random(&seed) % (round % 3 ? BLOCKS : 40) + 1, longest = bed_random(&seed) % 100 + 1, at, n;

		memset(sums, 0, sizeof(sums));
		delta_lock(bed.volume->vol);
		for (at = 0; at < blocks; at += n) {
			n = min(blocks - at, (u32)(bed_random(&seed) % longest) + 1);
			checksums_add(bed.volume->vol, data + (size_t)at * BLOCK, n, sums + at);
		}
		checksums_finish(bed.volume->vol);
		delta_unlock(bed.volume->vol);
		assert_sums(blocks);
	}
	bed_free(&bed);
}

/* On a busy machine a helper may come late for any one commit, but not for all. */
static void test_others_help_with_a_large_file(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u64 seed = 2;
	u32 round;

	if (num_possible_cpus() == 1)
		skip();
	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "/large");
	for (round = 0; round < 1000 && !helped(&bed); round++) {
		fill(&seed);
		assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
		assert_ok(tux3_sync(bed.volume));
	}
	assert_true(helped(&bed) > 0);
	tux3_node_put(node, 1);
	bed_reopen(&bed);
	node = bed_find(&bed, "/large");
	memset(sums, 0, sizeof(sums));
	assert_int_equal(tux3_read(node, data, sizeof(data), 0), sizeof(data));		/* verified */
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Little is not worth a wakeup, and who wants no threads gets none. */
static void test_nobody_is_called(void **state)
{
	struct bed bed = {}, quiet = { .opts.manual = true };
	struct tux3_node *node;
	u32 i;

	bed_make(&bed, 16 << 20, BLOCK);
	bed_make(&quiet, 16 << 20, BLOCK);
	for (i = 0; i < 100; i++) {
		node = bed_file(&bed, "/small");
		assert_int_equal(tux3_write(node, data + i, 16 * BLOCK, 0), 16 * BLOCK);
		assert_ok(tux3_sync(bed.volume));
		tux3_node_put(node, 1);
	}
	assert_int_equal(helped(&bed), 0);
	node = bed_file(&quiet, "/large");
	assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
	assert_ok(tux3_sync(quiet.volume));
	tux3_node_put(node, 1);
	assert_int_equal(helped(&quiet), 0);
	bed_free(&bed);
	bed_free(&quiet);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_are_those_of_one_cpu),
		cmocka_unit_test(test_others_help_with_a_large_file),
		cmocka_unit_test(test_nobody_is_called),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
