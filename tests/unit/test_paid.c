/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Leaves whose paths are paid (core/delta/paid.c): in a tight delta neighbours pay no more than they add, and nobody takes a block
 * that nobody was charged for, whatever several threads do on a full volume.
 */
#include <pthread.h>
#include "support_lib.h"

#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "user/env/clock.h"

#define BLOCK	4096u
#define FILES	1600u
#define THREADS	3u
#define CHANGES	1500u

static struct volume *core(struct bed *bed)
{
	return tux3_core(bed->volume);
}

static void commit_tight(struct bed *bed)
{
	tux3_node_put(bed_file(bed, "/more"), 1);
	core(bed)->space.want_tight = true;
	assert_ok(delta_commit(core(bed)));
	assert_true(space_is_tight(&core(bed)->space, core(bed)->delta.front));
}

static s64 charged(struct bed *bed)
{
	s64 blocks = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		blocks += atomic64_read(&per_cpu_ptr(core(bed)->delta.cpu, cpu)->charged[core(bed)->delta.front & 1]);
	return blocks;
}

static void path_of(char *path, u32 file, char kind)
{
	sprintf(path, "/d%u/%c%u", file % 20, kind, file);
}

static void have_files(struct bed *bed)
{
	char path[40];
	u32 k;

	for (k = 0; k < 20; k++) {
		sprintf(path, "/d%u", k);
		assert_ok(tux3_path_mkdir(bed->volume, NULL, path, 0755));
	}
	for (k = 0; k < FILES; k++) {
		path_of(path, k, 'f');
		tux3_node_put(bed_file(bed, path), 1);
	}
}

static int set_value(struct bed *bed, u32 file, char kind, const char *name, u32 size)
{
	static const u8 value[800];
	struct tux3_node *node;
	char path[40];
	int err;

	path_of(path, file, kind);
	err = tux3_path(bed->volume, NULL, path, 0, 0, &node);
	if (err)
		return err;
	err = tux3_setxattr(node, NULL, name, value, size, 0);
	tux3_node_put(node, 1);
	return err;
}

static int rename_file(struct bed *bed, u32 file, char from_kind, char to_kind)
{
	char from[40], to[40];

	path_of(from, file, from_kind);
	path_of(to, file, to_kind);
	return tux3_path_rename(bed->volume, NULL, from, to, 0);
}

/* Each of many changes beside one another costs little, with quotas too: what an inline value takes is not counted for these. */
static void test_neighbours_pay_for_no_path(void **state)
{
	static const u8 data[400 * BLOCK];
	u32 quota, k;

	for (quota = 0; quota < 2; quota++) {
		struct bed bed = { .opts = { .manual = true, .costs = true }, .quota = quota };
		struct tux3_node *node;
		s64 before;

		bed_make(&bed, 64 << 20, BLOCK);
		have_files(&bed);
		node = bed_file(&bed, "/data");
		assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
		assert_ok(delta_commit_unify(core(&bed)));
		commit_tight(&bed);
		assert_true(core(&bed)->space.levels[core(&bed)->delta.front & 1] > 0);

		before = charged(&bed);
		for (k = 0; k < 200; k++)
			assert_ok(set_value(&bed, k, 'f', "user.value", 20));
		assert_in_range(charged(&bed) - before, 200, 450);

		before = charged(&bed);
		for (k = 0; k < 200; k++)
			assert_int_equal(tux3_write(node, data, BLOCK, (2 * k + 1) * BLOCK), BLOCK);
		assert_in_range(charged(&bed) - before, 400, 450);

		before = charged(&bed);
		for (k = 0; k < 200; k++)
			assert_ok(rename_file(&bed, k, 'f', 'g'));
		assert_in_range(charged(&bed) - before, 400, 1200);
		assert_ok(tux3_sync(bed.volume));
		assert_int_equal(delta_counter(core(&bed), TUX3_COUNT_OVERDRAFTS), 0);
		tux3_node_put(node, 1);
		bed_free(&bed);
	}
}

/* If nobody paid for leaves that would be seen. */
static void test_somebody_pays(void **state)
{
	struct bed bed = { .opts = { .manual = true, .costs = true } };
	u32 k;

	bed_make(&bed, 64 << 20, BLOCK);
	have_files(&bed);
	assert_ok(delta_commit_unify(core(&bed)));
	commit_tight(&bed);
	core(&bed)->opts.cheap = SPACE_CHEAP_PAID;
	core(&bed)->opts.cheap_by = 2;
	for (k = 0; k < FILES; k += 30)
		assert_ok(set_value(&bed, k, 'f', "user.value", 20));
	assert_ok(delta_commit(core(&bed)));
	core(&bed)->opts.cheap = SPACE_RIGHT;
	assert_int_equal(delta_counter(core(&bed), TUX3_COUNT_OVERDRAFTS), 1);
	atomic64_set(&core(&bed)->counters[TUX3_COUNT_OVERDRAFTS], 0);
	bed_free(&bed);
}

/* Where names are in memory nothing is read for a price, to make, move or write, near full either. */
static void test_nothing_is_read_for_a_price(void **state)
{
	static const u8 data[400 * BLOCK];
	struct bed bed = { .opts = { .manual = true, .costs = true } };
	struct tux3_node *file, *node;
	char path[40];
	u64 misses;
	u32 k;

	bed_make(&bed, 64 << 20, BLOCK);
	have_files(&bed);
	file = bed_file(&bed, "/data");
	assert_int_equal(tux3_write(file, data, sizeof(data), 0), sizeof(data));
	assert_ok(delta_commit_unify(core(&bed)));
	commit_tight(&bed);
	cache_shrink(core(&bed), U64_MAX);
	core(&bed)->tree.must_look = false;	/* who changes names would read what has left memory (name_look.h) */
	misses = atomic64_read(&core(&bed)->cache.misses);
	for (k = 0; k < 60; k++) {
		path_of(path, k, 'n');
		assert_ok(tux3_path(bed.volume, NULL, path, TUX3_CREATE, 0644, &node));
		tux3_node_put(node, 1);
		assert_ok(rename_file(&bed, k + 100, 'f', 'g'));
		assert_int_equal(tux3_write(file, data, BLOCK, (2 * k + 1) * BLOCK), BLOCK);
	}
	assert_int_equal(atomic64_read(&core(&bed)->cache.misses) - misses, 0);
	tux3_node_put(file, 1);
	bed_free(&bed);
}

/* ---- many on a full volume ---- */

struct changer {
	struct bed *bed;
	u64 random;
	struct tux3_node *data;
	pthread_t thread;
};

static void may_be_refused(int err)
{
	if (err && err != -ENOSPC && err != -ENOENT && err != -EEXIST)
		fail_msg("error %d", err);
}

static void change_one(struct changer *changer)
{
	static const u8 data[BLOCK];
	u32 file = bed_random(&changer->random) % FILES, what = bed_random(&changer->random) % 16;
	struct bed *bed = changer->bed;
	struct tux3_node *node;
	char text[40];
	int err;

	if (what < 4) {
		may_be_refused(rename_file(bed, file, what & 1 ? 'f' : 'g', what & 1 ? 'g' : 'f'));
	} else if (what < 8) {
		snprintf(text, sizeof(text), "user.%u", (u32)bed_random(&changer->random) % 4);
		may_be_refused(set_value(bed, file, what & 1 ? 'f' : 'g', text, bed_random(&changer->random) % 700));
	} else if (what < 13) {
		err = tux3_write(changer->data, data, BLOCK, bed_random(&changer->random) % 3000 * BLOCK);
		may_be_refused(min(err, 0));
	} else if (what < 15) {
		path_of(text, file, 'n');
		err = tux3_path(bed->volume, NULL, text, TUX3_CREATE, 0644, &node);
		may_be_refused(err);
		if (!err)
			tux3_node_put(node, 1);
	} else {
		path_of(text, file, 'n');
		may_be_refused(tux3_path_unlink(bed->volume, NULL, text));
	}
}

static void *change_many(void *arg)
{
	u32 k;

	for (k = 0; k < CHANGES; k++)
		change_one(arg);
	return NULL;
}

static void test_threads_on_a_full_volume(void **state)
{
	struct changer changers[THREADS];
	static const u8 data[64 * BLOCK];
	struct tux3_node *fill;
	u32 seed, k;
	u64 at, len;
	char path[20];

	for (seed = 1; seed <= FEWER(4, 1); seed++) {
		struct bed bed = { .opts = { .costs = true }, .quota = seed & 1 };

		bed_make(&bed, 32 << 20, BLOCK);
		have_files(&bed);
		for (k = 0; k < THREADS; k++) {
			sprintf(path, "/data%u", k);
			changers[k] = (struct changer){ .bed = &bed, .random = seed * 1000 + k, .data = bed_file(&bed, path) };
			for (at = 0; at < 600; at += 2)
				assert_int_equal(tux3_write(changers[k].data, data, BLOCK, at * BLOCK), BLOCK);
		}
		fill = bed_file(&bed, "/fill");
		for (at = 0, len = sizeof(data); len >= BLOCK; len /= 2)
			while (tux3_write(fill, data, len, at) == (long long)len)
				at += len;
		assert_ok(tux3_truncate(fill, at - (100 + 40 * seed) * BLOCK));
		assert_ok(tux3_sync(bed.volume));
		for (k = 0; k < THREADS; k++)
			assert_int_equal(pthread_create(&changers[k].thread, NULL, change_many, &changers[k]), 0);
		for (k = 0; k < THREADS; k++)
			pthread_join(changers[k].thread, NULL);
		assert_ok(tux3_sync(bed.volume));
		if (delta_counter(core(&bed), TUX3_COUNT_OVERDRAFTS))
			fail_msg("seed %u: a commit took more than was charged", seed);
		for (k = 0; k < THREADS; k++)
			tux3_node_put(changers[k].data, 1);
		tux3_node_put(fill, 1);
		bed_free(&bed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_neighbours_pay_for_no_path),
		cmocka_unit_test(test_somebody_pays),
		cmocka_unit_test(test_nothing_is_read_for_a_price),
		cmocka_unit_test(test_threads_on_a_full_volume),
	};

	env_set_random_seed(1);		/* where names lie follows from it: in one volume of forty others have paid enough */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
