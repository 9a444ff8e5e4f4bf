/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How long a mount after a crash takes, on a disk that takes 8 ms for a read and has 32 in flight: by a clock that is only
 * reckoned.  And how much memory it takes beyond a clean mount.
 */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include "support_check.h"
#include "support_lib.h"
#include "user/env/device_slow.h"
#include "user/lib/lib.h"

#define LATENCY_NS	8000000ULL
#define DIRS		100u

static struct tux3_node *open_path(struct bed *bed, const char *format, u32 a, u32 b)
{
	struct tux3_node *node;
	char path[40];

	snprintf(path, sizeof(path), format, a, b);
	assert_ok(tux3_path(bed->volume, NULL, path, 0, 0, &node));
	return node;
}

static void make_files(struct bed *bed, u32 files)
{
	char path[40];
	u32 i;

	for (i = 0; i < files; i++) {
		snprintf(path, sizeof(path), "dir%u/file%u", i % DIRS, i / DIRS);
		tux3_node_put(bed_file(bed, path), 1);
	}
	assert_ok(tux3_sync(bed->volume));
}

static size_t memory_used(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

struct cost {
	u64 ns, reads;
	size_t bytes;
};

/* Open it and see what that takes. */
static struct cost mount_cost(struct bed *bed)
{
	struct cost cost = { .ns = device_slow_clock_ns(bed->dev), .reads = atomic64_read(&bed->dev->reads),
			     .bytes = memory_used() };

	bed_open(bed);
	cost.ns = device_slow_clock_ns(bed->dev) - cost.ns;
	cost.reads = atomic64_read(&bed->dev->reads) - cost.reads;
	cost.bytes = memory_used() - cost.bytes;
	return cost;
}

static void change_at_random(struct bed *bed, u32 files, u32 changes, u64 *random)
{
	struct tux3_stat stat = {};
	u32 i;

	for (i = 0; i < changes; i++) {
		u32 n = bed_random(random) % files;
		struct tux3_node *node = open_path(bed, "dir%u/file%u", n % DIRS, n / DIRS);

		stat.mode = 0600 + i % 64;
		assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
		tux3_node_put(node, 1);
	}
}

/* Writers wait before a recovery would take too long, and it takes no longer. */
static void recovery_takes_seconds(void **state)
{
	const char *chosen = getenv("TUX3_TEST_FILES");
	u32 files = chosen ? atoi(chosen) : 30000, round;
	struct bed bed = { .opts = { .manual = true } };
	struct cost clean, crashed;
	u64 random = 1, dirty;

	bed_make(&bed, 2ULL << 30, 4096);
	bed_close(&bed);
	bed.dev = device_slow_create(bed.dev, LATENCY_NS, DEVICE_READS_MAX);
	assert_non_null(bed.dev);
	bed_open(&bed);
	make_files(&bed, files);
	bed_close(&bed);
	/* The same limits as by default, in proportion to the files that there are in this test. */
	bed.opts.replay_nodes = 8192ULL * min(files, 200000u) / 200000;
	bed.opts.log_blocks = 4096ULL * min(files, 200000u) / 200000;
	clean = mount_cost(&bed);
	for (round = 0; round < 10; round++) {
		change_at_random(&bed, files, files / 10, &random);
		assert_ok(tux3_sync(bed.volume));
		dirty = bed.volume->vol->tree.dirty_count;
		assert_in_range(dirty, 0, bed.opts.replay_nodes + bed.opts.replay_nodes / 4);
		assert_in_range(bed.volume->vol->log.length, 0, (32 << 20) / 4096);
	}
	while (bed.volume->vol->tree.dirty_count < bed.opts.replay_nodes / 3) {	/* crash at a bad moment */
		change_at_random(&bed, files, files / 100, &random);
		assert_ok(tux3_sync(bed.volume));
	}
	dirty = bed.volume->vol->tree.dirty_count;
	tux3_abandon(bed.volume);
	crashed = mount_cost(&bed);
	print_message("%u files, %llu dirty nodes: clean mount %llu ms, %llu reads; after the crash %llu ms, %llu reads, %lld KiB more\n",
		      files, dirty, clean.ns / 1000000, clean.reads, crashed.ns / 1000000, crashed.reads,
		      ((long long)crashed.bytes - (long long)clean.bytes) / 1024);
	assert_true(crashed.reads > dirty / 2);		/* or else nothing was tested */
	assert_true(crashed.ns < (dirty / DEVICE_READS_MAX + 60) * LATENCY_NS);
	assert_true(crashed.ns < 5000000000ULL);
	assert_true(crashed.bytes < clean.bytes + dirty * 6 * 1024 + (4 << 20));
	bed_free(&bed);
}

/* ---- several writers and a real back end ---- */

#define WRITERS		4u
#define FILES		4000u
#define CHANGES		2000u

struct writer {
	struct bed *bed;
	u64 random;
	bool may_fail;
	u64 highest;
};

static void *writer_run(void *data)
{
	struct writer *writer = data;
	struct volume *vol = writer->bed->volume->vol;
	struct tux3_stat stat = {};
	u32 i;

	for (i = 0; i < CHANGES; i++) {
		u32 n = bed_random(&writer->random) % FILES;
		struct tux3_node *node = NULL;
		char path[40];

		snprintf(path, sizeof(path), "dir%u/file%u", n % DIRS, n / DIRS);
		stat.mode = 0600 + i % 64;
		if (tux3_path(writer->bed->volume, NULL, path, 0, 0, &node) ||
		    tux3_setattr(node, NULL, &stat, TUX3_SET_MODE)) {
			if (!writer->may_fail)
				abort();
			if (node)
				tux3_node_put(node, 1);
			break;
		}
		tux3_node_put(node, 1);
		writer->highest = max(writer->highest, READ_ONCE(vol->tree.dirty_count));
	}
	return NULL;
}

static void run_writers(bool error)
{
	struct bed bed = { .opts = { .replay_nodes = 64, .dirty_nodes = 16, .age_ms = 3600000 } };
	struct writer writers[WRITERS];
	pthread_t threads[WRITERS];
	u64 waits, unifies;
	u32 i;

	bed_make(&bed, 256 << 20, 4096);
	make_files(&bed, FILES);
	bed_reopen(&bed);
	for (i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){ &bed, i + 1, error, 0 };
		assert_int_equal(pthread_create(&threads[i], NULL, writer_run, &writers[i]), 0);
	}
	if (error) {	/* it ends all waits */
		while (!delta_counter(bed.volume->vol, TUX3_COUNT_ENTER_WAITS))
			sched_yield();
		volume_abort(bed.volume->vol, -EIO, "the test wants it so");
	}
	for (i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	waits = delta_counter(bed.volume->vol, TUX3_COUNT_ENTER_WAITS);
	unifies = delta_counter(bed.volume->vol, TUX3_COUNT_UNIFIES);
	assert_true(waits);
	if (error) {
		tux3_abandon(bed.volume);
		bed_open(&bed);
	} else {
		assert_true(unifies > 10);
		for (i = 0; i < WRITERS; i++)	/* the limit, the ways to the leaves, and what was under way */
			assert_in_range(writers[i].highest, 0, 3 * 64);
	}
	bed_free(&bed);
}

static void writers_wait_and_go_on(void **state)
{
	run_writers(false);
}

static void an_error_ends_the_wait(void **state)
{
	run_writers(true);
}

/* ---- reads that a commit makes ---- */

#define LARGE_FILES	1200u
#define LARGE_BYTES	(120ULL << 20)	/* nearly a group */

/* Remove files, each of which has its blocks in another group, with nothing in memory.  Reads with the tree locked. */
static u64 unlink_reads(void)
{
	struct bed bed = { .opts = { .manual = true } };
	struct volume *vol;
	char path[40];
	u64 reads;
	u32 i;

	bed_make(&bed, 160ULL << 30, 4096);
	for (i = 0; i < LARGE_FILES; i++) {
		struct tux3_node *node;

		snprintf(path, sizeof(path), "file%u", i);
		node = bed_file(&bed, path);
		assert_ok(tux3_fallocate(node, 0, 0, LARGE_BYTES));
		tux3_node_put(node, 1);
	}
	bed_reopen(&bed);
	vol = bed.volume->vol;
	for (i = 0; i < LARGE_FILES; i++) {
		snprintf(path, sizeof(path), "file%u", i);
		assert_ok(tux3_unlink(bed.root, NULL, path));
	}
	assert_ok(tux3_sync(bed.volume));
	reads = delta_counter(vol, TUX3_COUNT_READS_LOCKED);
	bed_free(&bed);
	return reads;
}

static void unlinks_read_nothing_locked(void **state)
{
	/* What is not read ahead is read by who looks whether it can be deleted, before the tree is locked. */
	assert_int_equal(unlink_reads(), 0);
}

/* The last commit of a damaged volume may say that there are more data blocks than blocks in use: writers do not wait. */
static void wrong_counts_hold_up_nobody(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	struct volume *vol;
	u64 unifies, wrong;
	u32 i;

	bed_make(&bed, 64 << 20, 4096);
	vol = bed.volume->vol;
	wrong = atomic64_read(&vol->balloc.disk_used) + 1000;
	atomic64_add(wrong, &vol->balloc.data_used);
	unifies = delta_counter(vol, TUX3_COUNT_UNIFIES);
	for (i = 0; i < 10; i++) {
		char path[20];

		snprintf(path, sizeof(path), "file%u", i);
		tux3_node_put(bed_file(&bed, path), 1);
	}
	assert_int_equal(delta_counter(vol, TUX3_COUNT_ENTER_WAITS), 0);
	assert_int_equal(delta_counter(vol, TUX3_COUNT_UNIFIES), unifies);
	atomic64_sub(wrong, &vol->balloc.data_used);
	bed_free(&bed);
}

/* Nor does what the anchor counts give anybody space that there is not: nodes of the tree may be less than none. */
static void wrong_counts_give_nobody_space(void **state)
{
	static const s64 wrong[] = { 1000, -1000, 1LL << 40, -(1LL << 40) };
	struct bed bed = { .opts = { .manual = true } };
	struct volume *vol;
	char path[20];
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		bed_make(&bed, 16 << 20, 4096);
		vol = bed.volume->vol;
		atomic64_add(wrong[i], &vol->balloc.data_used);
		assert_ok(delta_commit_unify(vol));	/* a transition looks at it */
		for (n = 0; n < 5; n++) {
			snprintf(path, sizeof(path), "file%u", n);
			tux3_node_put(bed_file(&bed, path), 1);
			assert_ok(delta_commit(vol));
			assert_true(space_balance(vol) <= (s64)vol->total_blocks);
			assert_true(vol->space.standing[0] >= 0 && vol->space.standing[1] >= 0);
		}
		atomic64_sub(wrong[i], &vol->balloc.data_used);
		bed_free(&bed);
	}
}

/* What a commit says of the state after it is compared with what replay has come to. */
static void a_commit_that_counts_wrongly_is_not_replayed(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	static const char text[4000] = "a file";
	struct disk_log *block;
	struct disk_commit *commit;
	struct tux3_node *node;
	struct tux3 *volume;
	char why[256] = "";
	u64 used;
	u32 i;

	bed_make(&bed, 16 << 20, 4096);
	assert_ok(delta_commit_unify(bed.volume->vol));
	node = bed_file(&bed, "/file");
	assert_int_equal(tux3_append(node, text, sizeof(text)), sizeof(text));
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed.volume));
	block = device_memory_bytes(bed.dev) + (bed.volume->vol->log.blocks.ranges[0].addr << 12);
	commit = (struct disk_commit *)(block + 1);
	tux3_abandon(bed.volume);
	used = le64_to_cpu(commit->used_blocks);
	for (i = 0; i < 2; i++) {
		commit->used_blocks = cpu_to_le64(used + !i);
		block->crc = 0;
		block->crc = cpu_to_le32(crc32c(~0u, block, 4096));
		if (!i)
			assert_int_equal(tux3_open_device(bed.dev, false, &bed.opts, 0, &volume, why, sizeof(why)), -EIO);
	}
	bed_open(&bed);
	bed_free(&bed);
}

/* The log is bounded in bytes, whatever the size of a block, and though each commit takes a block. */
static void the_log_stays_short(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	u64 longest = 0;
	u32 i;

	bed_make(&bed, 4ULL << 30, 65536);
	node = bed_file(&bed, "/file");
	for (i = 0; i < 600; i++) {
		assert_int_equal(tux3_append(node, "x", 1), 1);
		assert_ok(tux3_sync(bed.volume));
		longest = max(longest, bed.volume->vol->log.length << 16);
	}
	tux3_node_put(node, 1);
	assert_true(longest > 0 && longest <= LOG_BYTES_MAX);
	bed_free(&bed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(wrong_counts_hold_up_nobody),
		cmocka_unit_test(wrong_counts_give_nobody_space),
		cmocka_unit_test(a_commit_that_counts_wrongly_is_not_replayed),
		cmocka_unit_test(recovery_takes_seconds),
		cmocka_unit_test(unlinks_read_nothing_locked),
		cmocka_unit_test(the_log_stays_short),
	};
	const struct CMUnitTest beside[] = {
		cmocka_unit_test(writers_wait_and_go_on),
		cmocka_unit_test(an_error_ends_the_wait),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return run_alone_and_beside(alone, beside);
}
