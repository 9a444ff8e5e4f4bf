/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * registers.h in libtux3: deltas are committed every few milliseconds, and caches hold next to nothing.  So what is read comes from
 * memory, from a commit that is under way, or from the disk, and goes from one to the other between any two steps.  On one CPU
 * the back end goes on where others give up a lock; so half of the rounds have but one.
 */
#include "support_lib.h"

#include <sched.h>
#include <sys/stat.h>
#include "core/commit/commit.h"
#include "core/names/name.h"
#include "core/tree/tree.h"

struct reg_held {
	struct tux3 *volume;
	struct tux3_node *file[2], *dir[2];
};
#define FAIL fail_msg
#include "tests/registers.h"

#define READERS 2u

static bool full;		/* space is short */
static atomic_t refused;

/* Is it done?  -ENOSPC is an answer where space is short. */
#define done(call) is_done(call, #call, __LINE__)
static bool is_done(long long result, const char *call, int line)
{
	if (result != -ENOSPC || !full)
		bed_assert_ok(result, call, __FILE__, line);
	else
		atomic_inc(&refused);
	return result >= 0;
}

/* ---- what registers.h asks for ---- */

static size_t reg_do_write(struct owned *own, uint32_t f, const void *data, size_t size, uint64_t pos, uint64_t way)
{
	ssize_t wrote = tux3_write(own->held.file[f], data, size, pos);

	if (!done(wrote))
		return 0;
	assert_true(full || wrote == size);
	return wrote;
}

static ssize_t reg_do_read(const struct owned *own, uint32_t f, void *data, size_t size, uint64_t pos, uint64_t way)
{
	ssize_t got = tux3_read(own->held.file[f], data, size, pos);

	assert_true(got >= 0);
	return got;
}

static void reg_do_truncate(struct owned *own, uint32_t f, uint64_t size)
{
	assert_ok(tux3_truncate(own->held.file[f], size));
}

static bool reg_do_fallocate(struct owned *own, uint32_t f, int mode, uint64_t pos, uint64_t size)
{
	return done(tux3_fallocate(own->held.file[f], mode, pos, size));
}

static bool reg_do_exchange(struct owned *own, uint64_t pos, uint64_t size)
{
	return done(tux3_exchange_range(own->held.file[0], pos, own->held.file[1], pos, size, 0, NULL));
}

static void reg_do_fsync(struct owned *own, uint32_t f, bool data_only)
{
	assert_ok(tux3_fsync(own->held.file[f], data_only));
}

static int64_t reg_do_seek_data(const struct owned *own, uint32_t f, uint64_t pos)
{
	int64_t found = tux3_seek(own->held.file[f], pos, SEEK_DATA);

	assert_true(found >= 0 || found == -ENXIO);
	return found;
}

static uint64_t reg_do_size(const struct owned *own, uint32_t f)
{
	struct tux3_stat stat;

	assert_ok(tux3_stat_node(own->held.file[f], &stat));
	return stat.size;
}

static bool reg_do_set_xattr(struct owned *own, uint32_t f, const char *name, const void *value, size_t size)
{
	if (value)
		return done(tux3_setxattr(own->held.file[f], NULL, name, value, size, 0));
	return done(tux3_removexattr(own->held.file[f], NULL, name));
}

static ssize_t reg_do_get_xattr(const struct owned *own, uint32_t f, const char *name, void *value, size_t size)
{
	ssize_t got = tux3_getxattr(own->held.file[f], name, value, size);

	assert_true(got >= 16 || got == -ENODATA);
	return got;
}

static uint64_t reg_do_create(struct owned *own, uint32_t d, const char *name)
{
	struct tux3_node *node;
	uint64_t ino;

	if (!done(tux3_mknod(own->held.dir[d], NULL, name, 0600, 0, 0, &node)))
		return 0;
	ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	return ino;
}

static void reg_do_unlink(struct owned *own, uint32_t d, const char *name)
{
	assert_ok(tux3_unlink(own->held.dir[d], NULL, name));
}

static void reg_do_rename(struct owned *own, uint32_t d, const char *name, uint32_t to, const char *new_name, bool exchange)
{
	assert_ok(tux3_rename(own->held.dir[d], name, own->held.dir[to], new_name, exchange ? TUX3_RENAME_EXCHANGE : 0, NULL));
}

static uint64_t reg_do_look_up(const struct owned *own, uint32_t d, const char *name)
{
	struct tux3_node *node;
	uint64_t ino;
	int err = tux3_lookup(own->held.dir[d], NULL, name, &node);

	if (err) {
		assert_int_equal(err, -ENOENT);
		return 0;
	}
	ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	return ino;
}

struct lister {
	void (*fn)(void *ctx, const char *name, uint64_t ino);
	void *ctx;
};

static int tell_entry(void *ctx, const struct tux3_dirent *entry)
{
	struct lister *lister = ctx;

	lister->fn(lister->ctx, entry->name, entry->ino);
	return 0;
}

static void reg_do_list(const struct owned *own, uint32_t d, void (*fn)(void *ctx, const char *name, uint64_t ino), void *ctx)
{
	struct lister lister = { fn, ctx };
	uint64_t cookie = 0;

	assert_ok(tux3_readdir(own->held.dir[d], &cookie, tell_entry, &lister));
}

/* ---- the test ---- */

/* Nothing stays in memory for long. */
static void *forgetter(void *arg)
{
	struct bed *bed = arg;
	u64 seed = 7;

	while (!__atomic_load_n(&reg_stop, __ATOMIC_RELAXED)) {
		usleep(bed_random(&seed) % 3000);
		cache_shrink(tux3_core(bed->volume), U64_MAX);
		name_shrink(tux3_core(bed->volume), 1 + bed_random(&seed) % 100);
		if (bed_random(&seed) % 16 == 0)
			assert_ok(tux3_sync(bed->volume));
		if (bed_random(&seed) % 64 == 0)
			assert_ok(delta_commit_unify(tux3_core(bed->volume)));
	}
	return NULL;
}

static void hold(struct owned *own, struct bed *bed, u32 number)
{
	char path[20];
	u32 i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/file-%u-%u", number, i);
		own->held.file[i] = bed_file(bed, path);
		snprintf(path, sizeof(path), "/dir-%u-%u", number, i);
		assert_ok(tux3_path_mkdir(bed->volume, NULL, path, 0755));
		own->held.dir[i] = bed_find(bed, path);
	}
}

static void let_go(struct owned *own)
{
	u32 i;

	for (i = 0; i < 2; i++) {
		tux3_node_put(own->held.file[i], 1);
		tux3_node_put(own->held.dir[i], 1);
	}
}

static void use_one_cpu(const cpu_set_t *before)
{
	cpu_set_t set;
	int cpu = 0;

	while (!CPU_ISSET(cpu, before))
		cpu++;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
}

static void run(struct bed *bed, u64 seed, u32 ms)
{
	pthread_t threads[REG_WRITERS + READERS + 1];
	u32 i;

	__atomic_store_n(&reg_stop, false, __ATOMIC_RELAXED);
	for (i = 0; i < REG_WRITERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, reg_writer, &owned[i]), 0);
	for (; i < REG_WRITERS + READERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, reg_reader, (void *)(uintptr_t)(seed * 100 + i)), 0);
	assert_int_equal(pthread_create(&threads[i], NULL, forgetter, bed), 0);
	usleep(ms * 1000);
	__atomic_store_n(&reg_stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
}

/* What is left is less than what the writers would like to have. */
static void fill(struct bed *bed)
{
	struct tux3_node *node = bed_file(bed, "/large");
	static u8 data[256 * REG_BLOCK];
	u64 pos = 0;
	ssize_t wrote;

	while ((wrote = tux3_write(node, data, sizeof(data), pos)) > 0)
		pos += wrote;
	assert_int_equal(wrote, -ENOSPC);
	assert_ok(tux3_truncate(node, pos - 200 * REG_BLOCK));
	tux3_node_put(node, 1);
}

static void round_of(u64 seed, bool one_cpu, u32 ms)
{
	struct bed bed = {
		.opts = { .age_ms = 3, .log_blocks = 64, .dirty_nodes = 24, .costs = true, .names_cached = reg_names ? 6 : 0 },
		.data_cache_bytes = 24 * REG_BLOCK,
	};
	cpu_set_t before;
	u32 i;

	full = reg_pieces = seed % 4 > 1;
	print_message("seed %llu, %s%s\n", seed, one_cpu ? "one CPU" : "all CPUs", full ? ", full" : "");
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	if (one_cpu)
		use_one_cpu(&before);
	bed.quota = seed & 4;
	bed_make(&bed, full ? 16 << 20 : 64 << 20, REG_BLOCK);
	for (i = 0; i < REG_WRITERS; i++) {
		owned_begin(&owned[i], seed * REG_WRITERS + i, i + 1);
		hold(&owned[i], &bed, i);
	}
	if (full)
		fill(&bed);
	run(&bed, seed, ms);
	if (full)
		assert_in_range(atomic_xchg(&refused, 0), 3, INT_MAX);
	for (i = 0; i < REG_WRITERS; i++)
		let_go(&owned[i]);
	bed_free(&bed);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static u64 number(const char *name, u64 otherwise)
{
	const char *value = getenv(name);

	return value ? strtoull(value, NULL, 0) : otherwise;
}

/* TUX3_TEST_SEED=N, TUX3_TEST_SEEDS=N: from another one on, more of them.  What threads do follows from it only in part. */
static void test_registers(void **state)
{
	u64 first = number("TUX3_TEST_SEED", 1), seeds = number("TUX3_TEST_SEEDS", 4), i;

	reg_moves = true;
	for (i = first; i < first + seeds; i++)
		round_of(i, i % 2, 2000);
}

/* Directories that are not in memory as a whole, and little else than names: one is looked at in each moment of a commit. */
static void test_names(void **state)
{
	u64 first = number("TUX3_TEST_SEED", 1), i;

	reg_moves = reg_names = true;
	for (i = 0; i < 2; i++)
		round_of(first * 4 + i, i % 2, 1000);
	reg_names = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registers),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
