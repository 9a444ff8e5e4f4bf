/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Full volumes: what the live run could commit can be replayed, what was accepted can be committed, and nobody took
 * a block that nobody was charged for.
 */
#include "support_lib.h"

#include "core/check.h"

#define BLOCK 4096u

static struct volume *core(struct bed *bed)
{
	return tux3_core(bed->volume);
}

static void path_of(char *path, size_t size, u32 i)
{
	snprintf(path, size, "/d%02u/file-%u", i % 16, i);
}

static int write_file(struct bed *bed, u32 i)
{
	static u8 data[BLOCK];
	struct tux3_node *node;
	char path[40];
	int err;

	path_of(path, sizeof(path), i);
	err = tux3_path(bed->volume, NULL, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node);
	if (err)
		return err;
	memset(data, 1 + i % 250, sizeof(data));
	err = min_t(long long, tux3_write(node, data, sizeof(data), 0), 0);
	tux3_node_put(node, 1);
	return err;
}

/* As many files as fit; their number. */
static u32 fill(struct bed *bed)
{
	u32 count = 0;
	int err;

	do {
		err = write_file(bed, count);
		count += !err;
	} while (!err);
	assert_int_equal(err, -ENOSPC);
	return count;
}

static int count_node(void *ctx, const struct tree_visit *visit)
{
	assert_non_null(visit->data);
	++*(u64 *)ctx;
	return 0;
}

static u64 tree_nodes(struct bed *bed)
{
	u64 nodes = 0;

	assert_ok(tree_walk(core(bed), count_node, &nodes));
	return nodes;
}

/* The power is cut: what is on the device is all there is.  Replay must come to the very tree. */
static void crash(struct bed *bed)
{
	u64 nodes = tree_nodes(bed), free = atomic64_read(&core(bed)->balloc.free_blocks);

	bed_crash(bed);
	assert_in_range(tree_nodes(bed), nodes - nodes / 16, nodes + nodes / 16);
	assert_true(atomic64_read(&core(bed)->balloc.free_blocks) >= (s64)(free - nodes / 16));
}

/*
 * Replay of a log that deletes: every leaf is redirected, while what the log frees serves for that in the live run,
 * from the next commit on.
 */
static void test_deletes_in_a_full_volume_are_replayed(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u32 count, i, deleted = 0;
	char path[40];

	bed_make(&bed, 64 << 20, BLOCK);
	count = fill(&bed);
	bed_reopen(&bed);
	for (i = 0; i < count; i += 2) {
		path_of(path, sizeof(path), i);
		assert_ok(tux3_path_unlink(bed.volume, NULL, path));
		if (++deleted % 200 == 0)
			assert_ok(tux3_sync(bed.volume));
	}
	assert_ok(tux3_sync(bed.volume));
	crash(&bed);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deletes_in_a_full_volume_are_replayed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
