/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes that are in one delta as a whole: which they are, and that what fails has done nothing.  Crashes at every write are the
 * simulator's (family "pages"); here commits come from another thread.
 */
#include <pthread.h>

#include "core/data/data_change.h"
#include "support_lib.h"

#define MIB (1u << 20)

static u8 bytes[2 * MIB];

static u64 operations(struct bed *bed)
{
	return delta_counter(tux3_core(bed->volume), TUX3_COUNT_OPS);
}

/* How many changes it took. */
static u64 write_counted(struct bed *bed, struct tux3_node *node, u64 size, u64 offset, bool atomic)
{
	u64 before = operations(bed);
	ssize_t got = atomic ? tux3_write_atomic(node, bytes, size, offset) : tux3_write(node, bytes, size, offset);

	assert_int_equal(got, size);
	return operations(bed) - before;
}

static void test_up_to_a_mib_is_one_change(void **state)
{
	static const u32 block_sizes[] = { 4096, 16384, 65536 };
	struct tux3_node *node;
	u64 size, at;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(block_sizes); i++) {
		struct bed bed = { .opts.manual = true, .data_cache_bytes = 65536 };

		bed_make(&bed, 256u << 20, block_sizes[i]);
		assert_int_equal(data_atomic_max(tux3_core(bed.volume)), MIB);
		node = bed_file(&bed, "file");
		for (size = block_sizes[i]; size <= MIB; size *= 2) {
			for (at = 0; at < 4 * MIB; at += size < MIB / 4 ? MIB / 4 + size : MIB) {
				assert_int_equal(write_counted(&bed, node, size, at / size * size, true), 1);
				assert_int_equal(write_counted(&bed, node, size, at / size * size, false), 1);
			}
		}
		assert_int_equal(write_counted(&bed, node, 2 * MIB, 0, false), block_sizes[i] == 4096 ? 2 : 1);
		tux3_node_put(node, 1);
		bed_free(&bed);
	}
}

static void test_what_is_refused(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	bed_make(&bed, 64u << 20, 4096);
	node = bed_file(&bed, "file");
	assert_int_equal(tux3_write_atomic(node, bytes, 2048, 0), -EINVAL);
	assert_int_equal(tux3_write_atomic(node, bytes, 3 * 4096, 0), -EINVAL);
	assert_int_equal(tux3_write_atomic(node, bytes, 8192, 4096), -EINVAL);
	assert_int_equal(tux3_write_atomic(node, bytes, 4096, 512), -EINVAL);
	assert_int_equal(tux3_write_atomic(node, bytes, 2 * MIB, 0), -EINVAL);
	assert_int_equal(tux3_write_atomic(node, bytes, 4096, (u64)S64_MAX - 4095), -EFBIG);
	assert_int_equal(tux3_write_atomic(node, bytes, 4096, ~0ULL - 4095), -EFBIG);
	assert_int_equal(tux3_write_atomic(bed.root, bytes, 4096, 0), -EISDIR);
	assert_int_equal(tux3_write_atomic(node, bytes, 0, 5), 0);
	assert_int_equal(tux3_write_atomic(node, bytes, 8192, 8192), 8192);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Where tux3_write() writes what there is room for. */
static void test_no_part_where_space_is_short(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	struct tux3_stat stat;
	u64 size, at = 0;
	ssize_t got;

	bed_make(&bed, 16u << 20, 4096);
	node = bed_file(&bed, "file");
	for (size = MIB; size >= 4096; size /= 2) {
		while ((got = tux3_write_atomic(node, bytes, size, at)) == (ssize_t)size)
			at += size;
		assert_int_equal(got, -ENOSPC);
		assert_ok(tux3_stat_node(node, &stat));
		assert_int_equal(stat.size, at);
	}
	assert_true(at > 13u << 20);
	/* Some room, but not for a MiB. */
	assert_ok(tux3_truncate(node, at - (300u << 10)));
	at = round_up(at, MIB);
	assert_int_equal(tux3_write_atomic(node, bytes, MIB, at), -ENOSPC);
	got = tux3_write(node, bytes, MIB, at);
	assert_true(got > 0 && got < (ssize_t)MIB);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- crashes while another thread commits ---- */

#define PAGE 16384u
#define PAGES 64u

struct committer {
	struct bed *bed;
	atomic_t stop;
};

static void *commit_on(void *arg)
{
	struct committer *committer = arg;

	while (!atomic_read(&committer->stop))
		assert_ok(tux3_sync(committer->bed->volume));
	return NULL;
}

static void put_page(struct tux3_node *node, u64 n)
{
	u64 *page = (u64 *)bytes;
	u32 i;

	for (i = 0; i < PAGE / sizeof(*page); i++)
		page[i] = n;
	assert_int_equal(tux3_write_atomic(node, page, PAGE, n % PAGES * PAGE), PAGE);
}

/* All pages are as some number of writes left them, known at least: returns how many. */
static u64 look_at_pages(struct tux3_node *node, u64 known)
{
	u64 *word = (u64 *)bytes, newest = 0, n;
	u32 i, page;

	memset(bytes, 0, sizeof(bytes));
	assert_ok(tux3_read(node, bytes, PAGE * PAGES, 0));
	for (i = 0; i < PAGE * PAGES / sizeof(*word); i++)
		newest = max(newest, word[i]);
	assert_true(newest >= known);
	for (n = newest; n && newest - n < PAGES; n--)
		for (i = 0, page = n % PAGES; i < PAGE / sizeof(*word); i++)
			assert_int_equal(word[page * (PAGE / sizeof(*word)) + i], n);
	return newest;
}

static void test_crashes(void **state)
{
	/* Commits are due all the time, and there is room for little. */
	struct bed bed = { .opts = { .fsync = TUX3_FSYNC_AHEAD, .age_ms = 5, .dirty_bytes = 65536 }, .data_cache_bytes = 65536 };
	struct committer committer = { .bed = &bed };
	struct tux3_node *node;
	u64 n = 1, known = 0, seed = 1;
	pthread_t thread;
	int round, i;

	bed_make(&bed, 64u << 20, 4096);
	node = bed_file(&bed, "file");
	for (round = 0; round < 12; round++) {
		atomic_set(&committer.stop, 0);
		pthread_create(&thread, NULL, commit_on, &committer);
		for (i = bed_random(&seed) % 100; i >= 0; i--, n++) {
			put_page(node, n);
			if (bed_random(&seed) % 20)
				continue;
			assert_ok(tux3_fsync(node, false));
			known = n;
		}
		atomic_set(&committer.stop, 1);
		pthread_join(thread, NULL);
		/* What came after the last commit is lost. */
		for (i = 0; i < 5; i++, n++)
			put_page(node, n);
		tux3_node_put(node, 1);
		bed_crash(&bed);
		node = bed_file(&bed, "file");
		n = look_at_pages(node, known) + 1;
		known = n - 1;
	}
	tux3_node_put(node, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_up_to_a_mib_is_one_change),
		cmocka_unit_test(test_what_is_refused),
		cmocka_unit_test(test_no_part_where_space_is_short),
		cmocka_unit_test(test_crashes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
