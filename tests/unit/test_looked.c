/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What was looked at for a delta (tree_look_for(), tree_looked.c) is in memory until that is committed, whatever edits make of it:
 * the commit reads nothing.  And who looks at the same range of keys again, for that delta, does not go down the tree.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/tree/tree_internal.h"
#include "support_tree.h"
#include "user/env/clock.h"

#define BLOCK	1024u		/* 7 items in a leaf, 25 leaves under a node */
#define KEYS	1500u
#define LEN	112u

#define MARKS	20u		/* so the root directory is not in the first leaf */

static struct tree_key key_of(u32 i)
{
	if (i < MARKS)
		return tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, TUX3_INO_FIRST + i);
	return tree_key(i == MARKS ? TUX3_INO_ROOT : TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 0);
}

static struct tree_fixture *cold_tree(void)
{
	struct tree_fixture *fixture = fixture_open(BLOCK, 8192, 0);
	u32 i;

	for (i = 0; i < KEYS; i++) {
		struct tree_key key = key_of(i);

		check(!fixture_set(fixture, &key, LEN));
	}
	fixture_sync(fixture);
	fixture_reopen(fixture, 0);
	return fixture;
}

static u64 reads_of(struct tree_fixture *fixture)
{
	return atomic64_read(&fixture->vol.dev->reads);
}

static void forget_nodes(struct tree_fixture *fixture)
{
	while (cache_shrink(&fixture->vol, U64_MAX))
		;
}

static void look(struct tree_fixture *fixture, struct tree_key key, u64 delta, bool goes)
{
	check(!tree_look_for(&fixture->vol, &key, &key, &(struct tree_look){ .delta = delta, .goes = goes }));
}

/* The items of the leaf with this number. */
struct leaf {
	u32 number, at;
	u32 count;
	struct tree_key keys[BLOCK / sizeof(struct disk_item)];
};

static int see_leaf(void *ctx, const struct tree_visit *visit)
{
	struct leaf *leaf = ctx;
	u32 i;

	if (visit->level || leaf->at++ != leaf->number)
		return 0;
	leaf->count = node_count(visit->data);
	for (i = 0; i < leaf->count; i++) {
		struct node_key key = leaf_key(visit->data, i);

		leaf->keys[i] = node_key_unpack(&key);
	}
	return 0;
}

static bool find_leaf(struct tree_fixture *fixture, u32 number, struct leaf *leaf)
{
	*leaf = (struct leaf){ .number = number };
	check(!tree_walk(&fixture->vol, see_leaf, leaf));
	return leaf->count;
}

static void delete_items(struct tree_fixture *fixture, const struct leaf *leaf)
{
	u32 i;

	for (i = 0; i < leaf->count; i++)
		check(!fixture_delete(fixture, &leaf->keys[i]));
}

static void set_items(struct tree_fixture *fixture, const struct leaf *leaf)
{
	u32 i;

	for (i = 0; i < leaf->count; i++)
		check(!fixture_set(fixture, &leaf->keys[i], LEN));
}

static bool has_root(const struct leaf *leaf)
{
	u32 i;

	for (i = 0; i < leaf->count && leaf->keys[i].ino != TUX3_INO_ROOT; i++)
		;
	return i < leaf->count;
}

/* The root directory's attributes do not go. */
static void test_the_leaf_of_the_root_directory_stays(void **state)
{
	struct tree_fixture *fixture = cold_tree();
	struct leaf leaf;
	u32 number = 0, i;
	u64 reads;

	while (find_leaf(fixture, number, &leaf) && !has_root(&leaf))
		number++;
	check(leaf.count);
	forget_nodes(fixture);
	tree_prefetch(&fixture->vol, &leaf.keys[0]);
	reads = reads_of(fixture);
	for (i = 0; i < leaf.count; i++)
		look(fixture, leaf.keys[i], 1, true);
	check(reads_of(fixture) == reads);
	fixture_close(fixture);
}

/* All items of a leaf go, in any order, then one comes again: the leaf that has the range now is there. */
static void all_items_of_each_leaf(bool backward)
{
	struct tree_fixture *fixture = cold_tree();
	struct volume *vol = &fixture->vol;
	struct leaf leaf;
	u32 number, i;

	for (number = 0; find_leaf(fixture, number, &leaf); number++) {
		u64 delta = number + 1, reads;

		if (has_root(&leaf))
			continue;
		forget_nodes(fixture);
		for (i = 0; i < leaf.count; i++)
			look(fixture, leaf.keys[backward ? leaf.count - 1 - i : i], delta, true);
		forget_nodes(fixture);
		reads = reads_of(fixture);
		delete_items(fixture, &leaf);
		check(!fixture_set(fixture, &leaf.keys[leaf.count / 2], LEN));
		check(reads_of(fixture) == reads);
		set_items(fixture, &leaf);
		fixture_sync(fixture);
		vol->delta.committed = delta;
	}
	check(number > KEYS / 7);
	fixture_compare(fixture);
	fixture_close(fixture);
}

static void test_a_leaf_that_goes_leaves_its_range_to_one_in_memory(void **state)
{
	all_items_of_each_leaf(false);
	all_items_of_each_leaf(true);
}

/* Likewise when those beside it have gone before, in which nobody has looked: who deletes has what is beside these. */
static void test_leaves_beside_it_that_go_leave_it_what_is_beside_them(void **state)
{
	struct tree_fixture *fixture = cold_tree();
	struct volume *vol = &fixture->vol;
	struct leaf leaves[5];
	u32 number, i;

	for (number = 0; find_leaf(fixture, number + 4, &leaves[4]); number++) {
		u64 delta = number + 1, reads;

		for (i = 0; i < 4; i++)
			check(find_leaf(fixture, number + i, &leaves[i]));
		forget_nodes(fixture);
		tree_prefetch(vol, &leaves[1].keys[0]);
		tree_prefetch(vol, &leaves[3].keys[0]);
		for (i = 0; i < leaves[2].count; i++)
			look(fixture, leaves[2].keys[i], delta, true);
		forget_nodes(fixture);
		tree_prefetch(vol, &leaves[0].keys[0]);
		tree_prefetch(vol, &leaves[4].keys[0]);
		delete_items(fixture, &leaves[1]);
		delete_items(fixture, &leaves[3]);
		forget_nodes(fixture);
		reads = reads_of(fixture);
		delete_items(fixture, &leaves[2]);
		check(!fixture_set(fixture, &leaves[2].keys[0], LEN));
		check(reads_of(fixture) == reads);
		for (i = 1; i < 4; i++)
			set_items(fixture, &leaves[i]);
		fixture_sync(fixture);
		vol->delta.committed = delta;
	}
	check(number > KEYS / 7);
	fixture_compare(fixture);
	fixture_close(fixture);
}

/* This thread stays on one CPU. */
static void stay_here(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(sched_getcpu(), &cpus);
	check(!sched_setaffinity(0, sizeof(cpus), &cpus));
}

static bool is_known(struct tree_fixture *fixture, const struct leaf *leaf, u64 delta)
{
	struct tree_span span = { leaf->keys[0], leaf->keys[leaf->count - 1] };

	return tree_looked_at(&fixture->vol, &span, 1, delta);
}

/*
 * Who goes from leaf to leaf looks at some of those that come next with them, where they are in memory, so that he need not look
 * there again: what is known of these is as true.
 */
static void ahead_run(u64 *random)
{
	struct tree_fixture *fixture = cold_tree();
	struct volume *vol = &fixture->vol;
	struct leaf leaves[13];
	u32 ahead = 0, number, known, i;

	stay_here();
	for (number = 0; find_leaf(fixture, number + 12, &leaves[12]); number += 1 + test_below(random, 8)) {
		u64 delta = number + 1, reads;
		bool all = test_below(random, 2);

		vol->delta.front = delta;
		for (i = 0; i < 12; i++)
			check(find_leaf(fixture, number + i, &leaves[i]));
		forget_nodes(fixture);
		for (i = 0; i < 12; i++)
			if (all || i < 4 || test_below(random, 5))
				check(tree_lookup(vol, &leaves[i].keys[0], NULL, 0) == LEN);
		look(fixture, leaves[1].keys[0], delta, false);
		look(fixture, leaves[2].keys[0], delta, false);
		for (known = 1; known < 12 && is_known(fixture, &leaves[known], delta); known++)
			;
		ahead += known > 3;
		if (known > 1) {
			u32 end = test_below(random, 2) ? known : 2 + test_below(random, known - 1);
			u32 from = test_below(random, 2) ? end - 1 : 1;

			forget_nodes(fixture);
			reads = reads_of(fixture);
			for (i = from; i < end; i++)
				delete_items(fixture, &leaves[i]);
			for (i = from; i < end; i++)
				check(!fixture_set(fixture, &leaves[i].keys[leaves[i].count / 2], LEN));
			check(reads_of(fixture) == reads);
			for (i = from; i < end; i++)
				set_items(fixture, &leaves[i]);
		}
		fixture_sync(fixture);
		vol->delta.committed = delta;
	}
	check(ahead > 5);
	fixture_close(fixture);
}

static void test_who_goes_on_looks_ahead(void **state)
{
	run_seeds("who_goes_on_looks_ahead", 10, ahead_run);
}

static bool looked_key(struct tree_fixture *fixture, u64 delta, u64 low)
{
	return looked_has(&fixture->vol, delta, &(struct node_key){ 1000, low });
}

static bool looked_span(struct tree_fixture *fixture, u64 delta, u64 low, u64 high)
{
	struct tree_span span = { tree_key(3, 1000 & 0xff, low), tree_key(3, 1000 & 0xff, high) };

	return tree_looked_at(&fixture->vol, &span, 1, delta);
}

#define SPACE 1000u

/* Ranges are known, no others, and for no other delta; if there are not too many in pieces, all of them are. */
static void ranges_run(u64 *random)
{
	struct tree_fixture *fixture = fixture_open(BLOCK, 8192, 0);
	u32 turn, most = 1 + test_below(random, 60), i, k;
	bool known[SPACE + 1] = {}, few = true;
	u64 delta = 1;

	stay_here();
	for (turn = 0; turn < 600; turn++) {
		u32 from = test_below(random, SPACE), to = from + 1 + test_below(random, most), pieces = 0;

		if (!test_below(random, 200)) {
			delta++;
			memset(known, 0, sizeof(known));
			few = true;
		}
		to = min(to, SPACE);
		looked_add(&fixture->vol, delta, &(struct node_key){ 1000, from }, &(struct node_key){ 1000, to });
		for (i = from; i < to; i++)
			known[i] = true;
		for (i = 0; i < SPACE; i++)
			pieces += known[i] && !known[i + 1];
		few &= pieces < 100;
		for (k = 0; k < 20; k++) {
			i = test_below(random, SPACE);
			to = min(i + test_below(random, most), SPACE - 1);
			check(!looked_key(fixture, delta - 1, i) && !looked_key(fixture, delta + 1, i));
			check(known[i] || !looked_key(fixture, delta, i));
			check(!few || !known[i] || looked_key(fixture, delta, i));
			for (from = i; from <= to && known[from]; from++)
				;
			check(from > to || !looked_span(fixture, delta, i, to));
			check(from <= to || !few || looked_span(fixture, delta, i, to));
		}
		check(known[SPACE - 1] || !looked_key(fixture, delta, SPACE - 1));
	}
	/* Who comes late with an old one changes nothing. */
	if (delta > 1) {
		looked_add(&fixture->vol, delta - 1, &(struct node_key){ 1000, 0 }, &(struct node_key){ 1000, SPACE });
		check(!looked_key(fixture, delta - 1, SPACE / 2));
		for (i = 0; i < SPACE; i++)
			check(known[i] || !looked_key(fixture, delta, i));
	}
	fixture_close(fixture);
}

static void test_just_what_was_looked_at_is_known(void **state)
{
	run_seeds("just_what_was_looked_at_is_known", 100, ranges_run);
}

/* ---- threads ---- */

#define THREADS 3u

static struct tree_fixture *shared;
static u64 now;			/* the delta; WRITE_ONCE by one thread */
static bool over;

/* In each delta it is every other ten of keys. */
static bool is_looked_at(u64 delta, u64 key)
{
	return (key / 10 + delta) % 2;
}

static void *look_beside(void *ctx)
{
	u64 random = (u64)(uintptr_t)ctx, hits = 0;

	while (!READ_ONCE(over)) {
		u64 delta = READ_ONCE(now), key = test_below(&random, SPACE), low = key / 10 * 10;

		if (looked_key(shared, delta, key)) {
			check(is_looked_at(delta, key));
			hits++;
		} else if (is_looked_at(delta, key)) {
			looked_add(&shared->vol, delta, &(struct node_key){ 1000, low }, &(struct node_key){ 1000, low + 10 });
		}
		if (looked_span(shared, delta, key, key + 3))
			check(is_looked_at(delta, key) && is_looked_at(delta, key + 3));
		if (ctx == (void *)1 && !test_below(&random, 500))
			WRITE_ONCE(now, delta + 1);
	}
	return (void *)(uintptr_t)hits;
}

/* One CPU's ranges, as if threads were moved while they look. */
static void test_what_others_write_meanwhile_is_not_believed(void **state)
{
	unsigned int cpus = env_cpus;
	u64 begun = ktime_get_ns();
	pthread_t threads[THREADS];
	void *hits;
	u32 i;

	shared = fixture_open(BLOCK, 8192, 0);
	env_cpus = 1;
	now = 1;
	for (i = 0; i < THREADS; i++)
		check(!pthread_create(&threads[i], NULL, look_beside, (void *)(uintptr_t)(i + 1)));
	while (ktime_get_ns() - begun < 300000000)
		sched_yield();
	WRITE_ONCE(over, true);
	for (i = 0; i < THREADS; i++) {
		check(!pthread_join(threads[i], &hits));
		check(hits);
	}
	env_cpus = cpus;
	fixture_close(shared);
}

static int setup(void **state)
{
	messages = 0;
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {		/* threads first: later ones stay on one CPU */
		cmocka_unit_test_setup(test_what_others_write_meanwhile_is_not_believed, setup),
		cmocka_unit_test_setup(test_the_leaf_of_the_root_directory_stays, setup),
		cmocka_unit_test_setup(test_a_leaf_that_goes_leaves_its_range_to_one_in_memory, setup),
		cmocka_unit_test_setup(test_leaves_beside_it_that_go_leave_it_what_is_beside_them, setup),
		cmocka_unit_test_setup(test_who_goes_on_looks_ahead, setup),
		cmocka_unit_test_setup(test_just_what_was_looked_at_is_known, setup),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
