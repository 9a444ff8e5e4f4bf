/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The tree and its cache: against a sorted array, with snapshots and evictions at any time; without memory;
 * with readers beside an editor.  What it does on images that lie is in test_tree_damage.c.
 *
 * Random cases print the command that runs them again.  TUX3_TEST_SEED=n runs only that one,
 * TUX3_TEST_RUNS=n runs n times as many, TUX3_TEST_VERBOSE=1 shows what the code under test prints.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/tree/tree_internal.h"
#include "support_tree.h"
#include "user/env/device_memory.h"
#include "user/env/fault.h"
#include "user/env/log.h"

#define BLOCKS 8192u

/* ---- random operations ---- */

/* What is kept for the next edit is what going down from the root finds, at both ends of its range. */
static void check_ways(struct random_run *run)
{
	struct volume *vol = &run->fixture->vol;
	u32 i, end, level;

	down_read(&vol->tree.sem);
	for (i = 0; i < TREE_WAYS; i++) {
		const struct tree_path *way = &vol->tree.ways[i];
		struct node_key ends[2] = { { 0, 0 }, NODE_KEY_MAX };

		if (way->bottom)
			continue;
		if (way->has_low)
			ends[0] = way->low;
		if (way->has_high) {
			ends[1] = way->high;
			check(node_key_step_down(&ends[1]));
		}
		for (end = 0; end < 2; end++) {
			struct tree_path path;

			check(!path_descend(vol, &path, &ends[end], false));
			check(path.top == way->top && path.has_low == way->has_low && path.has_high == way->has_high);
			for (level = 0; level <= path.top; level++) {
				check(path.node[level] == way->node[level]);
				check(!level || path.index[level] == way->index[level]);
			}
			tree_path_put(vol, &path);
		}
	}
	up_read(&vol->tree.sem);
}

static void check_lookup(struct random_run *run)
{
	struct volume *vol = &run->fixture->vol;
	struct model *model = &run->fixture->model;
	struct tree_key key = test_below(run->random, 2) ? existing_key(run) : random_key(run);
	u32 size = test_below(run->random, 3) ? TUX3_ITEM_MAX(vol->block_size) : test_below(run->random, 50);
	u8 *data = malloc(size + 1), *expected = malloc(vol->block_size);
	bool edit = test_below(run->random, 2), found;
	u32 pos = model_find(model, &key, &found);
	int len;

	if (edit)
		tree_edit_begin(vol);
	len = edit ? tree_edit_lookup(vol, &key, data, size) : tree_lookup(vol, &key, data, size);
	if (edit)
		tree_edit_end(vol);
	check(len == (found ? (int)model->items[pos].len : -ENOENT));
	if (found) {
		item_fill(expected, &key, model->items[pos].version, len);
		check(!memcmp(data, expected, min_t(u32, size, len)));
	}
	free(data);
	free(expected);
}

static void check_lookup_before(struct random_run *run)
{
	struct volume *vol = &run->fixture->vol;
	struct model *model = &run->fixture->model;
	struct tree_key at = test_below(run->random, 3) ? random_key(run) : existing_key(run), from, found_key;
	bool edit = test_below(run->random, 2), found;
	u32 pos = model_find(model, &at, &found) + found;
	int len, expected = -ENOENT;

	from = test_below(run->random, 2) ? tree_key(0, 0, 0) : random_key(run);
	if (test_below(run->random, 4)) {
		from = at;
		from.offset = 0;
	}
	if (pos && tree_key_compare(&model->items[pos - 1].key, &from) >= 0)
		expected = model->items[pos - 1].len;
	if (edit)
		tree_edit_begin(vol);
	len = edit ? tree_edit_lookup_before(vol, &at, &from, &found_key, NULL, 0) :
		     tree_lookup_before(vol, &at, &from, &found_key, NULL, 0);
	if (edit)
		tree_edit_end(vol);
	check(len == expected);
	check(len < 0 || !tree_key_compare(&found_key, &model->items[pos - 1].key));
}

struct range_scan {
	struct random_run *run;
	u32 pos, end, stop;
};

static int scan_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct range_scan *scan = ctx;
	struct model_item *item = &scan->run->fixture->model.items[scan->pos];

	check(scan->pos < scan->end);
	check(!tree_key_compare(&item->key, key) && item->len == len);
	scan->pos++;
	return scan->pos == scan->stop ? 77 : 0;
}

static void check_scan(struct random_run *run)
{
	struct volume *vol = &run->fixture->vol;
	struct model *model = &run->fixture->model;
	struct tree_key from = existing_key(run), to = random_key(run);
	struct range_scan scan = { .run = run, .stop = U32_MAX };
	bool edit = test_below(run->random, 2), found;
	int ret;

	scan.pos = model_find(model, &from, &found);
	scan.end = max_t(u32, scan.pos, model_find(model, &to, &found) + found);
	if (scan.end > scan.pos && test_below(run->random, 2))
		scan.stop = scan.pos + 1 + test_below(run->random, scan.end - scan.pos);
	if (edit)
		tree_edit_begin(vol);
	ret = edit ? tree_edit_scan(vol, &from, &to, scan_item, &scan) :
		     tree_scan(vol, &from, &to, scan_item, &scan);
	if (edit)
		tree_edit_end(vol);
	check(ret == (scan.stop == U32_MAX ? 0 : 77));
	check(scan.pos == min(scan.end, scan.stop));
}

static void random_snapshot(struct random_run *run, u64 cache_bytes)
{
	struct tree_fixture *fixture = run->fixture;
	u32 what = test_below(run->random, 10);

	if (fixture->flushing && what < 5) {
		fixture_finish(fixture);
	} else if (!fixture->flushing && what < 7) {
		fixture_snapshot(fixture);
	} else if (what == 9) {
		fixture_sync(fixture);
		fixture_reopen(fixture, cache_bytes);
		fixture_compare(fixture);
	}
}

static void random_run(u64 *random)
{
	static const u32 block_sizes[] = { 4096, 4096, 16384, 65536 };
	u32 block_size = block_sizes[test_below(random, ARRAY_SIZE(block_sizes))];
	u64 cache_bytes = (u64)block_size * (test_below(random, 2) ? 1 + test_below(random, 20) : 10000);
	struct random_run run = {
		.random = random,
		.fixture = fixture_open(block_size, max(BLOCKS, (8u << 20) / block_size), cache_bytes),
		.keys = test_below(random, KEY_STYLES), .lens = test_below(random, LEN_STYLES),
		.inodes = 1 + test_below(random, 300), .offsets = 1 + test_below(random, 1000),
	};
	u32 step, steps = 1500, snapshots = 1 + test_below(random, 100);

	for (step = 0; step < steps; step++) {
		if (step % 250 == 0)
			run.growing = test_below(random, 3) ? 55 + test_below(random, 45) : test_below(random, 40);
		random_change(&run);
		check_ways(&run);
		if (!test_below(random, 4))
			check_lookup(&run);
		if (!test_below(random, 4))
			check_lookup_before(&run);
		if (!test_below(random, 50))
			check_scan(&run);
		if (!test_below(random, snapshots))
			random_snapshot(&run, cache_bytes);
		if (step % 50 == 0)
			fixture_check(run.fixture, NULL);
	}
	fixture_check(run.fixture, NULL);
	fixture_compare(run.fixture);
	fixture_close(run.fixture);
}

static void test_holds_what_a_sorted_array_holds(void **state)
{
	run_seeds("sorted_array", 60, random_run);
	check(!messages);
}

/* ---- crashes: what an anchor names is there, whatever was changed after it ---- */

static void crash_run(u64 *random)
{
	u32 block_size = 4096, step;
	struct random_run run = {
		.random = random, .fixture = fixture_open(block_size, 1024, block_size * 8),
		.keys = test_below(random, KEY_STYLES), .lens = test_below(random, LEN_STYLES),
		.inodes = 1 + test_below(random, 50), .offsets = 500, .growing = 60,
	};
	struct tree_fixture *fixture = run.fixture;
	u32 last = 1500 + test_below(random, 500);

	for (step = 0; step < last; step++) {
		fixture->vol.balloc.node_goal = 1;	/* again and again the first free block */
		run.growing = fixture->vol.tree.dirty_count > 200 || fixture->model.count > 300 ? 20 : 65;
		random_change(&run);
		if (!test_below(random, 15)) {
			if (fixture->flushing)
				fixture_finish(fixture);
			else
				fixture_snapshot(fixture);
		}
	}
	if (fixture->flushing) {	/* cut off before its anchor */
		tree_snapshot_done(&fixture->vol, &fixture->nodes, false);
		fixture->flushing = false;
	}
	fixture_reopen(fixture, block_size * 8);
	check(fixture_equals(fixture, &fixture->at_anchor));
	fixture_close(fixture);
}

static void test_the_anchor_leads_to_the_snapshot(void **state)
{
	run_seeds("snapshot", 40, crash_run);
	check(!messages);
}

/* ---- shape ---- */

static void test_ascending_items_fill_leaves(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 0);
	struct shape shape;
	struct tree_key key;
	u64 i;

	for (i = 0; i < 20000; i++) {
		key = tree_key(TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 0);
		check(!fixture_set(fixture, &key, 112));
	}
	fixture_check(fixture, &shape);
	assert_true(shape.leaf_bytes > shape.leaves * 4032 * 95 / 100);
	fixture_compare(fixture);
	fixture_close(fixture);
}

/* Files that grow in turn, each in the middle of the tree. */
static void test_appending_in_the_middle_fills_leaves(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 0);
	struct shape shape;
	struct tree_key key;
	u64 i, ino;

	for (ino = 100; ino < 120; ino++) {
		key = tree_key(ino, TUX3_ITEM_ATTR, 0);
		check(!fixture_set(fixture, &key, 112));
	}
	for (i = 0; i < 4000; i++) {
		key = tree_key(100 + i / 40 % 20, TUX3_ITEM_EXTENT, i);
		check(!fixture_set(fixture, &key, 56));
	}
	fixture_check(fixture, &shape);
	assert_true(shape.leaf_bytes > shape.leaves * 4032 * 75 / 100);
	fixture_close(fixture);
}

static void test_random_items_fill_leaves(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 0);
	struct shape shape;
	struct tree_key key;
	u64 random = 3;
	u32 i;

	for (i = 0; i < 20000; i++) {
		key = tree_key(16, TUX3_ITEM_DIRENT, test_random(&random) >> 1);
		check(!fixture_set(fixture, &key, 20 + i % 20));
	}
	fixture_check(fixture, &shape);
	assert_true(shape.leaf_bytes > shape.leaves * 4032 * 67 / 100);
	/* Most of them go: the rest comes together. */
	while (fixture->model.count > 2000) {
		key = fixture->model.items[test_below(&random, fixture->model.count)].key;
		check(!fixture_delete(fixture, &key));
	}
	fixture_check(fixture, &shape);
	assert_true(shape.leaf_bytes > shape.leaves * 4032 * 35 / 100);
	fixture_compare(fixture);
	fixture_close(fixture);
}

static void delete_in_order(struct tree_fixture *fixture, bool up)
{
	while (fixture->model.count) {
		u32 pos = up ? 0 : fixture->model.count - 1;
		struct tree_key key = fixture->model.items[pos].key;

		check(!fixture_delete(fixture, &key));
	}
}

static void test_an_emptied_tree_is_one_leaf(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 4096);
	struct tree_key from = tree_key(0, 0, 0), to = tree_key(U64_MAX, 0, 0), key;
	struct shape shape;
	int way, i;

	for (way = 0; way < 4; way++) {
		for (i = 0; i < 3000; i++) {
			key = tree_key(16 + i % 7, TUX3_ITEM_DIRENT, i * 0x9e3779b97f4a7c15ULL >> 1);
			check(!fixture_set(fixture, &key, 30));
		}
		fixture_check(fixture, &shape);
		assert_true(shape.height >= 2);
		if (way & 1)
			fixture_sync(fixture);
		if (way < 2)
			delete_in_order(fixture, way);
		else
			check(fixture_delete_range(fixture, &from, &to, U32_MAX) == 3000);
		fixture_check(fixture, &shape);
		assert_int_equal(shape.nodes, 1);
		assert_int_equal(shape.height, 1);
		check(fixture_delete(fixture, &key) == -ENOENT);
		check(fixture_delete_range(fixture, &from, &to, 5) == 0);
		fixture_sync(fixture);
		fixture_reopen(fixture, 4096);
		fixture_compare(fixture);
	}
	assert_int_equal(messages, 0);
	fixture_close(fixture);
}

/* Large items in small leaves, so that inner nodes split and merge too. */
static void test_a_high_tree_grows_and_shrinks(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, 4 * BLOCKS, 0);
	struct shape shape;
	struct tree_key key;
	u64 random = 7;
	int i;

	for (i = 0; i < 20000; i++) {
		key = tree_key(16 + test_below(&random, 1 << 20), TUX3_ITEM_INLINE, 0);
		check(!fixture_set(fixture, &key, 1000));
	}
	fixture_check(fixture, &shape);
	assert_int_equal(shape.height, 3);
	fixture_sync(fixture);
	while (fixture->model.count > 100) {
		key = fixture->model.items[test_below(&random, fixture->model.count)].key;
		check(!fixture_delete(fixture, &key));
		if (fixture->model.count % 5000 == 0) {
			fixture_check(fixture, &shape);
			fixture_sync(fixture);
		}
	}
	fixture_check(fixture, &shape);
	assert_int_equal(shape.height, 2);
	assert_true(shape.leaves < 100);
	assert_true(atomic64_read(&fixture->vol.tree.merges) > 0);
	fixture_compare(fixture);
	fixture_close(fixture);
}

/* Whole leaves in the range go without being written again: only the two at its ends are redirected. */
static void test_deleting_a_range_redirects_little(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 0);
	struct tree_key from = tree_key(1000, 0, 0), to = tree_key(15000, 0, 0), key;
	struct shape shape;
	s64 redirects;
	u64 i;

	for (i = 0; i < 20000; i++) {
		key = tree_key(TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 0);
		check(!fixture_set(fixture, &key, 112));
	}
	fixture_check(fixture, &shape);
	fixture_sync(fixture);
	redirects = atomic64_read(&fixture->vol.tree.redirects);
	check(fixture_delete_range(fixture, &from, &to, U32_MAX) == 14000);
	redirects = atomic64_read(&fixture->vol.tree.redirects) - redirects;
	assert_true(redirects <= shape.nodes - shape.leaves + 3);
	assert_true(atomic64_read(&fixture->vol.balloc.promised) <= redirects);
	fixture_check(fixture, NULL);
	fixture_compare(fixture);
	fixture_close(fixture);
}

/* One leaf as full as it gets, then an item that does not fit: nothing may be written beyond a block. */
static void split_run(u64 *random)
{
	struct tree_fixture *fixture = fixture_open(4096, 1024, 0);
	struct random_run run = { .random = random, .fixture = fixture, .keys = KEYS_DENSE, .inodes = 1 };
	struct tree_key from = tree_key(0, 0, 0), to = tree_key(U64_MAX, 0, 0), key;
	u32 turn, i;

	for (turn = 0; turn < 100; turn++) {
		run.lens = test_below(random, LEN_STYLES);
		run.offsets = 1 + test_below(random, 40);
		i = test_below(random, run.offsets);
		while (!fixture->vol.tree.root_level) {
			key = test_below(random, 2) ? random_key(&run) : tree_key(16, TUX3_ITEM_EXTENT, i++);
			check(!fixture_set(fixture, &key, random_len(&run)));
		}
		fixture_check(fixture, NULL);
		fixture_sync(fixture);		/* checks all nodes */
		fixture_compare(fixture);
		check(fixture_delete_range(fixture, &from, &to, U32_MAX) > 2);
	}
	fixture_close(fixture);
}

static void test_any_split_fits(void **state)
{
	run_seeds("any_split", 30, split_run);
}

static void test_setting_the_same_again_changes_nothing(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 0);
	struct tree_key key = tree_key(16, TUX3_ITEM_ATTR, 0);
	struct volume *vol = &fixture->vol;
	u8 data[112] = { 1, 2, 3 };

	tree_edit_begin(vol);
	check(!tree_set(vol, &key, data, sizeof(data)));
	tree_edit_end(vol);
	fixture_sync(fixture);
	tree_edit_begin(vol);
	check(!tree_set(vol, &key, data, sizeof(data)));
	check(!vol->tree.dirty_count);
	data[5] = 1;
	check(!tree_set(vol, &key, data, sizeof(data)));
	check(vol->tree.dirty_count == 1);
	tree_edit_end(vol);
	fixture_close(fixture);
}

/* ---- the cache ---- */

static void test_the_cache_keeps_its_limit(void **state)
{
	u64 limit = 100 * 4096;
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, limit);
	struct node_cache *cache = &fixture->vol.cache;
	struct tree_key key;
	u64 i, misses;

	for (i = 0; i < 20000; i++) {
		key = tree_key(TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 0);
		check(!fixture_set(fixture, &key, 112));
	}
	fixture_sync(fixture);
	assert_true(atomic64_read(&cache->clean_bytes) <= limit);
	assert_int_equal(atomic64_read(&cache->clean_bytes), atomic64_read(&cache->bytes));
	fixture_compare(fixture);
	assert_true(atomic64_read(&cache->clean_bytes) <= limit);
	/* What is used again and again survives a scan. */
	key = tree_key(TUX3_INO_FIRST + 777, TUX3_ITEM_ATTR, 0);
	for (i = 0; i < 300; i++) {
		struct tree_key other = tree_key(TUX3_INO_FIRST + i * 60, TUX3_ITEM_ATTR, 0);

		check(tree_lookup(&fixture->vol, &other, NULL, 0) == 112);
		misses = atomic64_read(&cache->misses);
		check(tree_lookup(&fixture->vol, &key, NULL, 0) == 112);
		check(!i || atomic64_read(&cache->misses) == misses);
	}
	cache_set_limit(&fixture->vol, 4096 * 10);
	assert_true(atomic64_read(&cache->clean_bytes) <= 4096 * 10);
	assert_true(cache_shrink(&fixture->vol, 3 * 4096) == 3 * 4096);
	cache_shrink(&fixture->vol, U64_MAX);
	assert_int_equal(atomic64_read(&cache->bytes), 0);
	fixture_compare(fixture);
	assert_true(cache_hits(&fixture->vol) > 1000);
	fixture_close(fixture);
}

/* What an edit leaves behind is not found any more, be it clean or on its way to the disk. */
static void test_a_redirected_node_is_forgotten(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 0);
	struct volume *vol = &fixture->vol;
	struct tree_key key = tree_key(16, TUX3_ITEM_ATTR, 0);
	struct node_link link;
	struct node_buffer *buffer;
	int flushing;

	for (flushing = 0; flushing < 2; flushing++) {
		check(!fixture_set(fixture, &key, 10));
		fixture_snapshot(fixture);
		if (!flushing)
			fixture_finish(fixture);
		link = tree_root_link(&vol->tree);
		buffer = cache_peek(vol, &link);
		assert_non_null(buffer);
		check(!fixture_set(fixture, &key, 20));
		assert_true(test_bit(NODE_DEAD, &buffer->state));
		assert_null(cache_peek(vol, &link));
		cache_put(vol, buffer);
		if (flushing)
			fixture_finish(fixture);
		assert_null(cache_peek(vol, &link));
		assert_int_equal(atomic64_read(&vol->cache.bytes), 4096);
	}
	fixture_close(fixture);
}

static void test_exit_tells_of_a_leak(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 0);
	struct node_link link = tree_root_link(&fixture->vol.tree);
	struct node_buffer *buffer = cache_peek(&fixture->vol, &link);
	u64 before = messages;

	assert_non_null(buffer);
	fixture_sync(fixture);
	cache_exit(&fixture->vol);
	assert_true(messages > before);
	cache_put(&fixture->vol, buffer);	/* still there: not freed under our hands */
	cache_put(&fixture->vol, buffer);
	check(!cache_init(&fixture->vol, 0));
	tree_init(&fixture->vol);
	fixture_close(fixture);
}

/* ---- without memory ---- */

/* A change that a fault is to hit: made again and again until it comes through. */
struct change {
	enum { CHANGE_SET, CHANGE_DELETE, CHANGE_RANGE } kind;
	struct tree_key key, to;
	u32 len, version;
};

static int change_try(struct tree_fixture *fixture, const struct change *change)
{
	int ret;

	switch (change->kind) {
	case CHANGE_SET:
		fixture->versions = change->version - 1;
		return fixture_set(fixture, &change->key, change->len);
	case CHANGE_DELETE:
		ret = fixture_delete(fixture, &change->key);
		return ret == -ENOENT ? 0 : ret;
	default:
		ret = fixture_delete_range(fixture, &change->key, &change->to, 100);
		return min(ret, 0);
	}
}

/*
 * The change failed, but the tree is not as it was: the fault hit when it was made already and an old block
 * was to be freed, or behind the first leaf of a range.  The model follows.
 */
static void change_follow(struct tree_fixture *fixture, const struct change *change)
{
	struct model *model = &fixture->model;
	u32 pos, turns = 0;
	bool found;

	if (change->kind == CHANGE_SET)
		model_set(model, &change->key, change->len, change->version);
	while (!fixture_equals(fixture, model)) {
		check(change->kind != CHANGE_SET && turns++ < (change->kind == CHANGE_RANGE ? 100 : 1));
		pos = model_find(model, &change->key, &found);
		check(pos < model->count);
		model_delete(model, pos, pos + 1);
	}
	fixture->leaked = fixture_lost_blocks(fixture);
}

/* Fail each allocation of a change in turn.  Returns how many there were. */
static u32 fault_change(struct random_run *run)
{
	struct tree_fixture *fixture = run->fixture;
	struct change change = {
		.kind = test_below(run->random, 100) < run->growing ? CHANGE_SET :
			test_below(run->random, 10) ? CHANGE_DELETE : CHANGE_RANGE,
		.key = test_below(run->random, 2) ? existing_key(run) : random_key(run),
		.len = random_len(run), .version = fixture->versions + 1,
	};
	u32 nth;
	int err;

	change.to = change.key;
	change.to.ino += test_below(run->random, 10);
	for (nth = 1; ; nth++) {
		u64 lost = fixture->leaked;

		check(nth < 1000);
		env_fail_alloc_at(nth);
		err = change_try(fixture, &change);
		env_fail_alloc_at(0);
		if (!err)
			break;
		check(err == -ENOMEM);
		if (!fixture_equals(fixture, &fixture->model))
			change_follow(fixture, &change);
		fixture_check(fixture, NULL);
		check(fixture->leaked - lost <= TUX3_MAX_LEVEL);
	}
	return nth - 1;
}

static void fault_run(u64 *random)
{
	struct random_run run = {
		.random = random, .fixture = fixture_open(4096, BLOCKS, 4096 * (1 + test_below(random, 50))),
		.keys = test_below(random, KEY_STYLES), .lens = 1 + test_below(random, LEN_STYLES - 1),
		.inodes = 30, .offsets = 30,
	};
	u32 step, faults = 0;

	for (step = 0; step < 400; step++) {
		run.growing = step < 200 ? 80 : 30;
		if (step % 8) {
			random_change(&run);
			continue;
		}
		if (step % 16)
			fixture_sync(run.fixture);
		faults += fault_change(&run);
	}
	check(faults);
	fixture_compare(run.fixture);
	fixture_close(run.fixture);
}

static void test_without_memory_the_tree_stays_whole(void **state)
{
	run_seeds("without_memory", 15, fault_run);
}

static void test_without_space_nothing_happens(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, 1024, 0);
	struct tree_key key;
	struct shape shape;
	int err = 0, turn;
	u64 i;

	for (turn = 0; turn < 2; turn++) {
		for (i = 0; !err; i++) {
			key = tree_key(16 + i, TUX3_ITEM_INLINE, turn);
			err = fixture_set(fixture, &key, 900);
			if (i % 100 == 0 && !err)
				fixture_sync(fixture);
		}
		check(err == -ENOSPC);
		fixture_check(fixture, &shape);
		fixture_compare(fixture);
		err = 0;
		fixture_sync(fixture);
	}
	fixture_close(fixture);
}

/* ---- reads that fail ---- */

static struct tux3_device_ops failing_ops;
static const struct tux3_device_ops *whole_ops;
static u64 failing_addr;

static int failing_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	if (addr == failing_addr || failing_addr == U64_MAX)
		return -EIO;
	return whole_ops->read(dev, addr, count, data);
}

static void test_a_failing_read_is_told_and_harms_nothing(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 0);
	struct volume *vol = &fixture->vol;
	struct tree_key key, from = tree_key(0, 0, 0), to = tree_key(U64_MAX, 0, 0), found;
	u64 i, before;

	for (i = 0; i < 2000; i++) {
		key = tree_key(TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 0);
		check(!fixture_set(fixture, &key, 112));
	}
	fixture_sync(fixture);
	whole_ops = vol->dev->ops;
	failing_ops = *whole_ops;
	failing_ops.read = failing_read;
	vol->dev->ops = &failing_ops;
	key = tree_key(TUX3_INO_FIRST + 1000, TUX3_ITEM_ATTR, 0);

	for (i = 0; i < 2; i++) {
		cache_shrink(vol, U64_MAX);
		failing_addr = i ? U64_MAX : vol->tree.root_addr;
		before = messages;
		assert_int_equal(tree_lookup(vol, &key, NULL, 0), -EIO);
		assert_int_equal(messages, before + 1);
		assert_int_equal(tree_lookup_before(vol, &key, &from, &found, NULL, 0), -EIO);
		assert_int_equal(tree_scan(vol, &from, &to, scan_item, NULL), -EIO);
		before = messages;
		tree_prefetch(vol, &key);
		assert_int_equal(messages, before);
		assert_int_equal(fixture_set(fixture, &key, 5), -EIO);
		assert_int_equal(fixture_delete(fixture, &key), -EIO);
		assert_int_equal(fixture_delete_range(fixture, &from, &to, 100), -EIO);
	}
	failing_addr = 0;
	fixture_compare(fixture);
	fixture_check(fixture, NULL);
	vol->dev->ops = whole_ops;
	fixture_close(fixture);
}

/* A snapshot that cannot be written: the nodes stay, readers go on, closing frees them. */
static void test_a_failed_snapshot_stays_in_memory(void **state)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 4096);
	struct tree_key key;
	u64 i;

	for (i = 0; i < 2000; i++) {
		key = tree_key(TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 0);
		check(!fixture_set(fixture, &key, 112));
	}
	fixture_snapshot(fixture);
	key = tree_key(TUX3_INO_FIRST + 100, TUX3_ITEM_ATTR, 0);
	check(!fixture_delete(fixture, &key));
	failing_addr = U64_MAX;
	whole_ops = fixture->vol.dev->ops;
	fixture->vol.dev->ops = &failing_ops;
	tree_snapshot_done(&fixture->vol, &fixture->nodes, false);
	fixture->flushing = false;
	fixture_compare(fixture);
	fixture->vol.dev->ops = whole_ops;
	fixture_close(fixture);
}

/* ---- readers beside the editor ---- */

#define READERS 3
#define RACE_INODES 400u

struct race {
	struct volume *vol;
	atomic_t stop;
	atomic64_t reads;
};

struct race_reader {
	struct race *race;
	u64 random;
	struct tree_key last;
	u32 permanent;
};

/* Items at offset 0 are permanent: always there, with one of their versions. */
static struct tree_key race_key(u64 *random, bool permanent)
{
	u64 ino = TUX3_INO_FIRST + test_below(random, RACE_INODES);

	return tree_key(ino, TUX3_ITEM_EXTENT, permanent ? 0 : 1 + test_below(random, 20));
}

static int race_scan_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct race_reader *reader = ctx;

	check(tree_key_compare(&reader->last, key) < 0);
	check(item_is_sound(key, data, len));
	reader->permanent += !key->offset;
	reader->last = *key;
	return 0;
}

static void race_read(struct race_reader *reader, u8 *data, u32 size)
{
	struct volume *vol = reader->race->vol;
	struct tree_key key = race_key(&reader->random, true), from, found;
	int len;

	switch (test_below(&reader->random, 4)) {
	case 0:
		len = tree_lookup(vol, &key, data, size);
		check(len >= 0 && item_is_sound(&key, data, len));
		break;
	case 1:
		key = race_key(&reader->random, false);
		len = tree_lookup(vol, &key, data, size);
		check(len == -ENOENT || (len >= 0 && item_is_sound(&key, data, len)));
		break;
	case 2:
		from = tree_key(key.ino, TUX3_ITEM_EXTENT, 0);
		key.offset = U64_MAX;
		len = tree_lookup_before(vol, &key, &from, &found, data, size);
		check(len >= 0 && found.ino == key.ino && item_is_sound(&found, data, len));
		break;
	default:
		key.offset = U64_MAX;
		from = tree_key(key.ino - min_t(u64, key.ino - TUX3_INO_FIRST, 10), TUX3_ITEM_EXTENT, 0);
		reader->last = tree_key(0, 0, 0);
		reader->permanent = 0;
		check(!tree_scan(vol, &from, &key, race_scan_item, reader));
		check(reader->permanent == key.ino - from.ino + 1);
	}
	if (!test_below(&reader->random, 50))
		cache_shrink(vol, 5 * vol->block_size);
	atomic64_inc(&reader->race->reads);
}

static void *race_reader(void *arg)
{
	struct race_reader *reader = arg;
	u8 data[2048];

	test_in_thread = true;
	while (!atomic_read(&reader->race->stop))
		race_read(reader, data, sizeof(data));
	return NULL;
}

static void race_edit(struct tree_fixture *fixture, u64 *random)
{
	struct tree_key key = race_key(random, !test_below(random, 4)), to;
	int err;

	if (!key.offset || test_below(random, 5) < 2) {
		check(!fixture_set(fixture, &key, test_below(random, 200)));
	} else if (test_below(random, 10)) {
		err = fixture_delete(fixture, &key);
		check(!err || err == -ENOENT);
	} else {
		to = tree_key(key.ino, TUX3_ITEM_EXTENT, U64_MAX);
		check(fixture_delete_range(fixture, &key, &to, U32_MAX) >= 0);
	}
	if (!test_below(random, 100)) {
		if (fixture->flushing)
			fixture_finish(fixture);
		else
			fixture_snapshot(fixture);
	}
}

static void race_run(u64 *random)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, 4096 * (5 + test_below(random, 60)));
	struct race race = { .vol = &fixture->vol };
	struct race_reader readers[READERS];
	pthread_t threads[READERS];
	u32 i;

	atomic_set(&race.stop, 0);
	for (i = 0; i < RACE_INODES; i++) {
		struct tree_key key = tree_key(TUX3_INO_FIRST + i, TUX3_ITEM_EXTENT, 0);

		check(!fixture_set(fixture, &key, 100));
	}
	for (i = 0; i < READERS; i++) {
		readers[i] = (struct race_reader){ .race = &race, .random = test_random(random) };
		check(!pthread_create(&threads[i], NULL, race_reader, &readers[i]));
	}
	for (i = 0; i < 4000 || atomic64_read(&race.reads) < 2000; i++)
		race_edit(fixture, random);
	atomic_set(&race.stop, 1);
	for (i = 0; i < READERS; i++)
		check(!pthread_join(threads[i], NULL));
	fixture_check(fixture, NULL);
	fixture_compare(fixture);
	fixture_close(fixture);
}

static void test_readers_run_beside_an_editor(void **state)
{
	run_seeds("readers", 5, race_run);
	assert_int_equal(messages, 0);
}

static int setup(void **state)
{
	test_seed = 0;
	test_name = "";
	messages = 0;
	env_set_log(count_message);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest alone[] = {
		cmocka_unit_test_setup(test_holds_what_a_sorted_array_holds, setup),
		cmocka_unit_test_setup(test_the_anchor_leads_to_the_snapshot, setup),
		cmocka_unit_test_setup(test_ascending_items_fill_leaves, setup),
		cmocka_unit_test_setup(test_appending_in_the_middle_fills_leaves, setup),
		cmocka_unit_test_setup(test_random_items_fill_leaves, setup),
		cmocka_unit_test_setup(test_an_emptied_tree_is_one_leaf, setup),
		cmocka_unit_test_setup(test_a_high_tree_grows_and_shrinks, setup),
		cmocka_unit_test_setup(test_deleting_a_range_redirects_little, setup),
		cmocka_unit_test_setup(test_any_split_fits, setup),
		cmocka_unit_test_setup(test_setting_the_same_again_changes_nothing, setup),
		cmocka_unit_test_setup(test_the_cache_keeps_its_limit, setup),
		cmocka_unit_test_setup(test_a_redirected_node_is_forgotten, setup),
		cmocka_unit_test_setup(test_exit_tells_of_a_leak, setup),
		cmocka_unit_test_setup(test_without_memory_the_tree_stays_whole, setup),
		cmocka_unit_test_setup(test_without_space_nothing_happens, setup),
		cmocka_unit_test_setup(test_a_failing_read_is_told_and_harms_nothing, setup),
		cmocka_unit_test_setup(test_a_failed_snapshot_stays_in_memory, setup),
	};
	const struct CMUnitTest beside[] = {
		cmocka_unit_test_setup(test_readers_run_beside_an_editor, setup),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return run_alone_and_beside(alone, beside);
}
