/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What was looked at for a delta (tree_look_for(), tree_looked.c) is in memory until that is committed, whatever edits make of it:
 * the commit reads nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/tree/tree_internal.h"
#include "support_tree.h"

#define BLOCK	1024u		/* 7 items in a leaf, 25 leaves under a node */
#define KEYS	1500u
#define LEN	112u

static struct tree_key key_of(u32 i)
{
	return tree_key(TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 0);
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

/* All items of a leaf go, in any order, then one comes again: the leaf that has the range now is there. */
static void all_items_of_each_leaf(bool backward)
{
	struct tree_fixture *fixture = cold_tree();
	struct volume *vol = &fixture->vol;
	struct leaf leaf;
	u32 number, i;

	for (number = 0; find_leaf(fixture, number, &leaf); number++) {
		u64 delta = number + 1, reads;

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

static int setup(void **state)
{
	messages = 0;
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_a_leaf_that_goes_leaves_its_range_to_one_in_memory, setup),
		cmocka_unit_test_setup(test_leaves_beside_it_that_go_leave_it_what_is_beside_them, setup),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
