/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who goes through leaves that are not in memory has them read many at a time, whatever his order; who looks here and there
 * in a large tree, or has little memory, does not pay for that; and what cannot be read concerns only who needs it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/tree/tree_internal.h"
#include "support_tree.h"
#include "user/env/device_slow.h"

#define BLOCK	1024u		/* 7 items in a leaf, 25 leaves under a node */
#define KEYS	60000u
#define LEN	112u
#define FEW	7000u		/* the leaves of these lie under some 40 nodes */

static struct tree_key key_of(u32 i)
{
	return tree_key(TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 0);
}

/* None of it in memory.  The clock of its disk counts how often somebody waits. */
static struct tree_fixture *cold_tree(u64 cache_bytes)
{
	struct tree_fixture *fixture = fixture_open(BLOCK, 64000, 0);
	u32 i;

	for (i = 0; i < KEYS; i++) {
		struct tree_key key = key_of(i);

		check(!fixture_set(fixture, &key, LEN));
	}
	fixture_sync(fixture);
	fixture_reopen(fixture, cache_bytes);
	fixture->vol.dev = device_slow_create(fixture->vol.dev, 1, DEVICE_READS_MAX);
	check(fixture->vol.dev);
	return fixture;
}

static int look_up(struct tree_fixture *fixture, u32 i)
{
	struct tree_key key = key_of(i);
	u8 data[LEN];

	return tree_lookup(&fixture->vol, &key, data, sizeof(data));
}

static u64 reads_of(struct tree_fixture *fixture)
{
	return atomic64_read(&fixture->vol.dev->reads);
}

static u64 waits_of(struct tree_fixture *fixture)
{
	return device_slow_clock_ns(fixture->vol.dev);
}

static int count_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	u32 *left = ctx;

	return !--*left;
}

/* From key i on, as many keys as there are before the end, or fewer. */
static int scan(struct tree_fixture *fixture, u32 i, u32 end, u32 count)
{
	struct tree_key from = key_of(i), to = key_of(end - 1);

	return tree_scan(&fixture->vol, &from, &to, count_item, &count);
}

static u32 forward(u32 n)
{
	return n;
}

static u32 backward(u32 n)
{
	return FEW - 1 - n;
}

static u32 in_no_order(u32 n)
{
	return n * 4001u % FEW;
}

static void inodes_one_by_one(void **state)
{
	static u32 (*const orders[])(u32 n) = { forward, backward, in_no_order };
	struct tree_fixture *fixture = cold_tree(0);
	u32 order, n;

	for (order = 0; order < ARRAY_SIZE(orders); order++) {
		u64 reads, waits;

		cache_shrink(&fixture->vol, U64_MAX);
		tree_ahead_init(&fixture->vol.tree);
		reads = reads_of(fixture);
		waits = waits_of(fixture);
		for (n = 0; n < FEW; n++)
			check(look_up(fixture, orders[order](n)) == LEN);
		reads = reads_of(fixture) - reads;
		waits = waits_of(fixture) - waits;
		check(reads >= FEW / 7 && reads < FEW / 7 * 5 / 4);
		/* One leaf, one more, two, four ... of 25 under each node, unless they come in order. */
		check(waits <= (orders[order] == in_no_order ? reads / 3 : reads / 12));
	}
	fixture_close(fixture);
}

/* It reads 32 at a time, and nothing behind its end; where it ends in the leaf in which it began it has read just that. */
static void scans_know_their_end(void **state)
{
	struct tree_fixture *fixture = cold_tree(0);
	u32 levels = fixture->vol.tree.root_level + 1;
	u64 reads, waits;

	check(scan(fixture, 0, FEW, 1) == 1);
	check(reads_of(fixture) == levels);
	reads = reads_of(fixture);
	waits = waits_of(fixture);
	check(!scan(fixture, FEW, 2 * FEW, FEW + 1));
	reads = reads_of(fixture) - reads;
	waits = waits_of(fixture) - waits;
	check(reads >= FEW / 7 && reads < FEW / 7 * 8 / 7);
	check(waits <= reads / 12);
	reads = reads_of(fixture);
	check(!scan(fixture, 5 * FEW, 5 * FEW + 21, 22));
	reads = reads_of(fixture) - reads;
	check(reads >= 3 && reads <= 4 + levels);
	fixture_close(fixture);
}

/* Their leaves, the 340 nodes above them, and little besides: seldom is something else under the same one of these read soon. */
static void here_and_there_in_a_large_tree(void **state)
{
	struct tree_fixture *fixture = cold_tree(0);
	u64 random = 1;
	u32 n;

	for (n = 0; n < 400; n++) {
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		check(look_up(fixture, (random >> 33) % KEYS) == LEN);
	}
	check(reads_of(fixture) <= 400 + 340 + 100);
	fixture_close(fixture);
}

/* Room for a tenth of what is looked for again and again: hardly anything is read that goes before it is used. */
static void little_memory(void **state)
{
	struct tree_fixture *fixture = cold_tree(100 * BLOCK);
	u64 random = 1;
	u32 n;

	for (n = 0; n < 20000; n++) {
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		check(look_up(fixture, (random >> 33) % FEW) == LEN);
	}
	/* Nine of ten leaves, and some of the nodes above them; one in ten besides. */
	check(reads_of(fixture) <= 25000);
	check((u64)atomic64_read(&fixture->vol.cache.bytes) <= 130 * BLOCK);
	fixture_close(fixture);
}

/* Where the leaf of this key is. */
static u64 leaf_of(struct tree_fixture *fixture, u32 i)
{
	struct tree_key key = key_of(i);
	struct node_key packed = node_key_pack(&key);
	struct tree_path path;
	u64 addr;

	check(look_up(fixture, i) == LEN);
	down_read(&fixture->vol.tree.sem);
	check(!path_descend(&fixture->vol, &path, &packed, false));
	addr = path.node[0]->addr;
	tree_path_put(&fixture->vol, &path);
	up_read(&fixture->vol.tree.sem);
	return addr;
}

static void what_is_bad_concerns_who_needs_it(void **state)
{
	struct tree_fixture *fixture = cold_tree(0);
	u64 bad = leaf_of(fixture, FEW / 2);
	u32 n, failed = 0;

	cache_shrink(&fixture->vol, U64_MAX);
	fixture->vol.tree.must_look = false;	/* what was evicted is one reason for it; we look for the other */
	device_slow_fail(fixture->vol.dev, bad);
	check(scan(fixture, 0, FEW, FEW / 2 - 10) == 1);
	for (n = 0; n < FEW / 2 - 10; n++)
		check(look_up(fixture, n) == LEN);
	for (n = FEW / 2 + 10; n < FEW; n++)
		check(look_up(fixture, n) == LEN);
	check(!fixture->vol.tree.must_look);
	check(scan(fixture, 0, FEW, FEW + 1) == -EIO);
	check(fixture->vol.tree.must_look);
	for (n = 0; n < FEW; n++)
		failed += look_up(fixture, n) == -EIO;
	check(failed >= 3 && failed <= 7);
	/* It can be read again. */
	device_slow_fail(fixture->vol.dev, U64_MAX);
	check(!scan(fixture, 0, FEW, FEW + 1));
	fixture_close(fixture);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inodes_one_by_one),
		cmocka_unit_test(scans_know_their_end),
		cmocka_unit_test(here_and_there_in_a_large_tree),
		cmocka_unit_test(little_memory),
		cmocka_unit_test(what_is_bad_concerns_who_needs_it),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
