/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Free maps of very many groups: one delta may change all of them, and so may a log.  What that takes in memory, in the live
 * run and in a mount after a crash, is counted, not measured.
 */
#include "support_lib.h"

#include <linux/falloc.h>

#include "core/blocks/balloc.h"
#include "core/check/check.h"
#include "core/commit/unify.h"
#include "user/env/fault.h"

#define BLOCK 4096u
#define GROUP_BYTES ((u64)(BLOCK - 64) * 8 * BLOCK)
#define GROUPS 1500u
#define FILLED 1300u	/* by the file; the rest is kept for the tree that writing to it takes */
#define KEPT 32u

static struct balloc *balloc(struct bed *bed)
{
	return &tux3_core(bed->volume)->balloc;
}

static u64 unpacked(struct bed *bed)
{
	return balloc(bed)->loaded - balloc(bed)->packed;
}

static u64 counter(struct bed *bed, enum tux3_counter which)
{
	return delta_counter(tux3_core(bed->volume), which);
}

static void check_volume(struct bed *bed)
{
	struct check_options opts = {};
	struct check_result result = {};

	assert_ok(volume_check(tux3_core(bed->volume), &opts, &result));
	assert_int_equal(result.problems, 0);
}

/* One file with blocks in each group, preallocated. */
static struct tux3_node *make_large(struct bed *bed)
{
	struct tux3_node *node;

	assert_ok(tux3_path(bed->volume, NULL, "/large", TUX3_CREATE, 0644, &node));
	assert_ok(tux3_fallocate(node, 0, 0, FILLED * GROUP_BYTES));
	return node;
}

/* The delta of a fallocate, then that of a punch, each of which changes all groups; the crash is before any unify. */
static void test_one_delta_that_changes_all_groups(void **state)
{
	struct bed bed = { .opts = { .manual = true, .groups_kept = KEPT, .replay_nodes = 100000, .dirty_nodes = 50000 } };
	struct tux3_node *node;
	long clean, after;

	bed_make(&bed, GROUPS * GROUP_BYTES, BLOCK);
	clean = bed_crash_peak(&bed);
	node = make_large(&bed);
	assert_ok(tux3_sync(bed.volume));
	assert_true(balloc_recovery_groups(tux3_core(bed.volume)) >= FILLED);
	assert_true(unpacked(&bed) <= KEPT + 2);
	tux3_node_put(node, 1);
	after = bed_crash_peak(&bed);
	assert_true(balloc_recovery_groups(tux3_core(bed.volume)) >= FILLED);
	assert_true(unpacked(&bed) <= KEPT + 2);
	/* Unpacked they would take 10 MiB. */
	print_message("  a mount takes %ld KiB more than a clean one\n", (after - clean) >> 10);
	assert_true(after > clean && after < clean + (2 << 20) + (long)KEPT * 2 * BLOCK);
	check_volume(&bed);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	assert_int_equal(balloc(&bed)->packed_bytes, 0);

	assert_ok(tux3_path(bed.volume, NULL, "/large", 0, 0, &node));
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, GROUPS * GROUP_BYTES));
	assert_ok(tux3_sync(bed.volume));
	assert_true(unpacked(&bed) <= KEPT + 2);
	tux3_node_put(node, 1);
	after = bed_crash_peak(&bed);
	assert_true(unpacked(&bed) <= KEPT + 2);
	print_message("  a mount takes %ld KiB more than a clean one\n", (after - clean) >> 10);
	assert_true(after > clean && after < clean + (2 << 20) + (long)KEPT * 2 * BLOCK);
	check_volume(&bed);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	assert_int_equal(balloc(&bed)->packed_bytes, 0);
	check_volume(&bed);
	bed_free(&bed);
}

/* The blocks of a snapshot are made a part at a time. */
static void test_a_unify_of_all_groups_goes_in_parts(void **state)
{
	struct bed bed = { .opts = { .manual = true, .groups_kept = KEPT, .replay_nodes = 100000, .dirty_nodes = 50000 } };
	struct tux3_node *node;
	u64 maps;

	bed_make(&bed, GROUPS * GROUP_BYTES, BLOCK);
	node = make_large(&bed);
	assert_ok(tux3_sync(bed.volume));
	maps = counter(&bed, TUX3_COUNT_MAP_BLOCKS);
	env_memory_count(true);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	/* Each group has two blocks to be written: 10 MiB. */
	assert_true(counter(&bed, TUX3_COUNT_MAP_BLOCKS) - maps >= 2 * FILLED);
	assert_true(env_memory_peak() < 2 << 20);
	env_memory_count(false);
	tux3_node_put(node, 1);
	bed_reopen(&bed);
	check_volume(&bed);
	bed_free(&bed);
}

/* Deltas that change some groups each: a unify comes before the log names too many. */
static void test_a_log_names_a_bounded_number_of_groups(void **state)
{
	enum { LIMIT = 64 };
	struct bed bed = { .opts = { .manual = true, .groups_kept = KEPT, .replay_nodes = 2 * LIMIT, .dirty_nodes = 50000 } };
	struct tux3_node *node;
	u64 unifies, most = 0;
	u32 i;

	bed_make(&bed, GROUPS * GROUP_BYTES, BLOCK);
	node = make_large(&bed);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	unifies = counter(&bed, TUX3_COUNT_UNIFIES);
	for (i = 0; i < 400; i++) {
		assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * GROUP_BYTES, GROUP_BYTES / 2));
		assert_ok(tux3_sync(bed.volume));
		most = max(most, balloc_recovery_groups(tux3_core(bed.volume)));
	}
	assert_true(most <= LIMIT + 4);
	assert_true(counter(&bed, TUX3_COUNT_UNIFIES) - unifies >= 400 / LIMIT);
	assert_true(counter(&bed, TUX3_COUNT_UNIFIES) - unifies <= 30);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_true(balloc_recovery_groups(tux3_core(bed.volume)) <= LIMIT + 4);
	check_volume(&bed);
	bed_free(&bed);
}

/* A punch in some groups, with all but one of them packed; the nth allocation from the end of its commit fails. */
static bool punch_with_too_little_memory(int (*commit)(struct volume *vol), long from_end, long *allocations, s64 *gain)
{
	enum { FEW = 12 };
	struct bed bed = { .opts = { .manual = true, .groups_kept = 1, .replay_nodes = 100000, .dirty_nodes = 50000 } };
	struct tux3_node *node;
	bool left_out, stopped;
	s64 free, gained;
	long count;
	int err;

	bed_make(&bed, 2 * FEW * GROUP_BYTES, BLOCK);
	assert_ok(tux3_path(bed.volume, NULL, "/large", TUX3_CREATE, 0644, &node));
	assert_ok(tux3_fallocate(node, 0, 0, FEW * GROUP_BYTES));
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, FEW * GROUP_BYTES));
	free = atomic64_read(&balloc(&bed)->free_blocks);
	count = env_alloc_count();
	env_fail_alloc_at(from_end ? *allocations - from_end + 1 : 0);
	err = commit(tux3_core(bed.volume));
	env_fail_alloc_at(0);
	if (!from_end)
		*allocations = env_alloc_count() - count;
	/* Whoever waited for it hears that it is durable, unless it is not.  (A unify may be put off.) */
	stopped = volume_error(tux3_core(bed.volume));
	assert_true(err || !stopped);
	assert_true(!err || stopped || commit != delta_commit);
	gained = atomic64_read(&balloc(&bed)->free_blocks) - free;
	if (!from_end)
		*gain = gained;
	left_out = !err && gained < *gain;
	tux3_node_put(node, 1);
	bed_crash(&bed);
	check_volume(&bed);
	/* Nothing is missing for longer than that. */
	if (!stopped)
		assert_true(atomic64_read(&balloc(&bed)->free_blocks) - free >= *gain - 64);
	bed_free(&bed);
	return left_out;
}

static u32 run_out_of_memory(int (*commit)(struct volume *vol))
{
	long allocations = 0, from_end;
	u32 left_out = 0;
	s64 gain;

	assert_false(punch_with_too_little_memory(commit, 0, &allocations, &gain));
	for (from_end = 1; from_end <= min(allocations, 40L); from_end++)
		left_out += punch_with_too_little_memory(commit, from_end, &allocations, &gain);
	print_message("  %u times blocks were left out\n", left_out);
	return left_out;
}

static void test_memory_is_missing_to_free_blocks(void **state)
{
	assert_true(run_out_of_memory(delta_commit) > 3);
	assert_true(run_out_of_memory(delta_commit_unify) > 0);
}

/* What somebody needs stays; and when nobody does it is the next to go, but not while it is looked at. */
static void test_needed_maps_stay(void **state)
{
	struct bed bed = { .opts = { .manual = true, .groups_kept = KEPT, .replay_nodes = 100000, .dirty_nodes = 50000 } };
	struct tux3_node *node;
	struct volume *vol;
	u64 i;

	bed_make(&bed, GROUPS * GROUP_BYTES, BLOCK);
	vol = tux3_core(bed.volume);
	node = make_large(&bed);
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < FILLED / 2; i++)
		assert_ok(balloc_need(vol, i * vol->group_blocks + 100, 1, vol->delta.front + 1));
	assert_ok(delta_commit_unify(vol));
	assert_true(balloc(&bed)->loaded >= FILLED / 2);
	assert_true(unpacked(&bed) <= 2 * KEPT);
	for (i = 0; i < 2; i++) {
		assert_ok(tux3_truncate(node, FILLED * GROUP_BYTES + 1 + i));
		assert_ok(delta_commit(vol));
	}
	for (i = FILLED / 2; i-- > FILLED / 4;)
		assert_int_equal(balloc_test(vol, i * vol->group_blocks + 100, 1), 1);
	assert_true(balloc(&bed)->loaded < FILLED / 2);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_delta_that_changes_all_groups),
		cmocka_unit_test(test_a_unify_of_all_groups_goes_in_parts),
		cmocka_unit_test(test_a_log_names_a_bounded_number_of_groups),
		cmocka_unit_test(test_memory_is_missing_to_free_blocks),
		cmocka_unit_test(test_needed_maps_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
