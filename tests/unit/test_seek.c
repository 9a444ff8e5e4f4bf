/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where data is, asked while commits go on: SEEK_DATA misses nothing, SEEK_HOLE invents nothing, and what is
 * preallocated is known at once.
 */
#include "support_lib.h"
#include "user/lib/lib.h"

#include <pthread.h>
#include <unistd.h>

#define BLOCK		4096u
#define RACE_BLOCKS	256u	/* every second one gets data, round after round */
#define RACE_ROUNDS	6u

static u8 page[64 * BLOCK];

/* ---- a commit at every moment at which the cache is asked ---- */

static const struct tux3_host_ops *inner;

static bool dirty_between_commits(struct tux3_inode *inode, u64 from, u64 end, u64 *block, u64 *count)
{
	bool found;

	assert_ok(delta_commit(inode->vol));
	found = inner->data_dirty(inode, from, end, block, count);
	assert_ok(delta_commit(inode->vol));
	return found;
}

static bool dirty_before_commit(struct tux3_inode *inode, u64 from, u64 end, u64 *block, u64 *count)
{
	bool found = inner->data_dirty(inode, from, end, block, count);

	assert_ok(delta_commit(inode->vol));
	return found;
}

static void check_islands(struct tux3_node *node)
{
	assert_int_equal(tux3_seek(node, 0, SEEK_DATA), 10 * BLOCK);
	assert_int_equal(tux3_seek(node, 10 * BLOCK, SEEK_HOLE), 13 * BLOCK);
	assert_int_equal(tux3_seek(node, 13 * BLOCK, SEEK_DATA), 700 * BLOCK);
	assert_int_equal(tux3_seek(node, 700 * BLOCK, SEEK_HOLE), 701 * BLOCK);
	assert_int_equal(tux3_seek(node, 701 * BLOCK, SEEK_DATA), 9000 * BLOCK);
	assert_int_equal(tux3_seek(node, 9000 * BLOCK, SEEK_HOLE), 9200 * BLOCK);
	assert_int_equal(tux3_seek(node, 9200 * BLOCK, SEEK_DATA), -ENXIO);
}

static void write_islands(struct tux3_node *node)
{
	u32 i;

	assert_ok(tux3_truncate(node, 0));
	assert_ok(tux3_truncate(node, 10000 * BLOCK));
	assert_int_equal(tux3_write(node, page, 3 * BLOCK, 10 * BLOCK), 3 * BLOCK);
	assert_int_equal(tux3_write(node, page, BLOCK, 700 * BLOCK), BLOCK);
	for (i = 9000; i < 9200; i += 50)
		assert_int_equal(tux3_write(node, page, 50 * BLOCK, (u64)i * BLOCK), 50 * BLOCK);
}

static void test_commit_at_each_step(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_host_ops host;
	struct tux3_node *node;
	int round;

	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	inner = bed.volume->vol->host;
	host = *inner;
	for (round = 0; round < 3; round++) {
		write_islands(node);
		if (!round)
			check_islands(node);
		host.data_dirty = round == 1 ? dirty_before_commit : dirty_between_commits;
		bed.volume->vol->host = &host;
		check_islands(node);
		bed.volume->vol->host = inner;
		check_islands(node);
	}
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- threads ---- */

struct race {
	struct bed bed;
	struct tux3_node *node;
	atomic64_t written;	/* blocks 0, 2, 4 ... before this one have data; no other ever has */
	atomic_t stop;
	atomic64_t asked, wrong;
};

static void *race_sync(void *arg)
{
	struct race *race = arg;

	while (!atomic_read(&race->stop))
		if (tux3_sync(race->bed.volume))
			atomic64_inc(&race->wrong);
	return NULL;
}

/* Asks for what was written last: that is being committed. */
static void *race_seek(void *arg)
{
	struct race *race = arg;
	int64_t data, hole;
	u64 block;

	while (!atomic_read(&race->stop)) {
		s64 written = atomic64_read_acquire(&race->written);

		if (!written)
			continue;
		block = written - 2;
		data = tux3_seek(race->node, block * BLOCK, SEEK_DATA);
		hole = tux3_seek(race->node, block * BLOCK, SEEK_HOLE);
		if (data != (s64)(block * BLOCK) || hole != (s64)((block + 1) * BLOCK))
			atomic64_inc(&race->wrong);
		atomic64_inc(&race->asked);
	}
	return NULL;
}

/* One round: a new file, whose blocks come one by one; each is waited for by the seeker. */
static void race_round(struct race *race, u32 round)
{
	pthread_t sync, seek;
	char path[32];
	u32 block;
	s64 asked;

	snprintf(path, sizeof(path), "/file%u", round);
	race->node = bed_file(&race->bed, path);
	assert_ok(tux3_truncate(race->node, 2 * RACE_BLOCKS * BLOCK));
	atomic64_set(&race->written, 0);
	atomic_set(&race->stop, 0);
	pthread_create(&sync, NULL, race_sync, race);
	pthread_create(&seek, NULL, race_seek, race);
	for (block = 0; block < RACE_BLOCKS; block += 2) {
		assert_int_equal(tux3_write(race->node, page, BLOCK, (u64)block * BLOCK), BLOCK);
		asked = atomic64_read(&race->asked);
		smp_mb();
		atomic64_set(&race->written, block + 2);
		while (atomic64_read(&race->asked) < asked + 3)
			sched_yield();
	}
	atomic_set(&race->stop, 1);
	pthread_join(sync, NULL);
	pthread_join(seek, NULL);
	tux3_node_put(race->node, 1);
}

static void test_threads(void **state)
{
	struct race race = {};
	u32 round;

	bed_make(&race.bed, 64 << 20, BLOCK);
	for (round = 0; round < RACE_ROUNDS; round++)
		race_round(&race, round);
	assert_int_equal(atomic64_read(&race.wrong), 0);
	bed_free(&race.bed);
}

/* ---- preallocation that is not committed ---- */

struct expect {
	u64 count;
	enum data_kind kind;
	bool delayed;
};

#define HOLE(n)		{ .count = n, .kind = DATA_HOLE }
#define UNWRITTEN(n)	{ .count = n, .kind = DATA_UNWRITTEN }
#define MAPPED(n)	{ .count = n, .kind = DATA_MAPPED }
#define PROMISED(n)	{ .count = n, .kind = DATA_UNWRITTEN, .delayed = true }
#define DIRTY(n)	{ .count = n, .kind = DATA_MAPPED, .delayed = true }
#define CHECK_RUNS(node, end, ...) check_runs(node, end, (struct expect[]){ __VA_ARGS__, { .count = 0 } })

static void check_runs(struct tux3_node *node, u64 end, const struct expect *expect)
{
	struct data_look look;
	u64 at = 0;
	int got;

	data_look_begin(&look, &node->inode, 0, end);
	for (; expect->count; at += (expect++)->count) {
		u64 left = expect->count;

		for (; left; left -= look.count) {
			got = data_look_next(&look);
			assert_int_equal(got, 1);
			assert_true(look.count && look.count <= left);
			assert_int_equal(look.block, at + expect->count - left);
			assert_int_equal(look.kind, expect->kind);
			assert_int_equal(look.delayed, expect->delayed);
			assert_int_equal(!!look.addr, expect->kind != DATA_HOLE && !look.delayed);
		}
	}
	assert_int_equal(at, end);
	assert_int_equal(data_look_next(&look), 0);
}

static void test_preallocated(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;

	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	assert_ok(tux3_fallocate(node, 1, 0, 1280 * BLOCK));
	assert_ok(tux3_truncate(node, 1792 * BLOCK));
	CHECK_RUNS(node, 3000, PROMISED(1280), HOLE(1720));
	assert_int_equal(tux3_seek(node, 0, SEEK_DATA), -ENXIO);
	assert_int_equal(tux3_write(node, page, BLOCK, 100 * BLOCK), BLOCK);
	assert_int_equal(tux3_seek(node, 0, SEEK_DATA), 100 * BLOCK);
	assert_int_equal(tux3_seek(node, 100 * BLOCK, SEEK_HOLE), 101 * BLOCK);
	/* Punched in the same delta, and preallocated once more in a part of that. */
	assert_ok(tux3_fallocate(node, 3, 200 * BLOCK, 100 * BLOCK));
	assert_ok(tux3_fallocate(node, 1, 250 * BLOCK, 10 * BLOCK));
	CHECK_RUNS(node, 1280, PROMISED(100), DIRTY(1), PROMISED(99), HOLE(50), PROMISED(10), HOLE(40), PROMISED(980));
	assert_ok(tux3_sync(bed.volume));
	CHECK_RUNS(node, 1280, UNWRITTEN(100), MAPPED(1), UNWRITTEN(99), HOLE(50), UNWRITTEN(10), HOLE(40), UNWRITTEN(980));
	/* What the tree has is gone, though not committed. */
	assert_ok(tux3_fallocate(node, 3, 0, 150 * BLOCK));
	CHECK_RUNS(node, 200, HOLE(150), UNWRITTEN(50));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- what is dirty of a file of which much is cached ---- */

/* How many pieces of the cache are looked at for an fsync and a seek, with the first and the last of so many changed. */
static u64 looks_for_dirty(u32 cached)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	u64 before, last;
	u32 i;

	bed_make(&bed, 256 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	for (i = 0; i < cached; i++)
		assert_int_equal(tux3_write(node, page, BLOCK, (u64)i * CHUNK_BLOCKS * BLOCK), BLOCK);
	assert_ok(tux3_sync(bed.volume));
	last = (u64)(cached - 1) * CHUNK_BLOCKS * BLOCK;
	before = delta_counter(tux3_core(bed.volume), TUX3_COUNT_DIRTY_LOOKS);
	for (i = 0; i < 10; i++) {
		assert_int_equal(tux3_write(node, page, BLOCK, 0), BLOCK);
		assert_int_equal(tux3_write(node, page, BLOCK, last), BLOCK);
		assert_int_equal(tux3_seek(node, BLOCK, SEEK_DATA), CHUNK_BLOCKS * BLOCK);
		assert_ok(i % 2 ? tux3_sync(bed.volume) : tux3_fsync(node, false));
	}
	before = delta_counter(tux3_core(bed.volume), TUX3_COUNT_DIRTY_LOOKS) - before;
	tux3_node_put(node, 1);
	bed_free(&bed);
	return before;
}

static void test_dirty_is_found_at_once(void **state)
{
	assert_in_range(looks_for_dirty(100), 10, 300);
	assert_in_range(looks_for_dirty(3000), 10, 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_commit_at_each_step),
		cmocka_unit_test(test_dirty_is_found_at_once),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_preallocated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
