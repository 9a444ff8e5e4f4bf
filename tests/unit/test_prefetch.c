/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reading ahead: many reads in flight, nothing left to read for who comes after, errors left to him. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "core/log/prefetch.h"
#include "support_tree.h"
#include "user/env/device_slow.h"

#define KEYS		20000u
#define LATENCY_NS	8000000ULL

static struct tree_key key_of(u32 i)
{
	return tree_key(TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 0);
}

/* A tree of a few hundred leaves, none of it in memory, on a slow disk. */
static struct tree_fixture *cold_tree(void)
{
	struct tree_fixture *fixture = fixture_open(4096, 32000, 0);
	u32 i;

	for (i = 0; i < KEYS; i++) {
		struct tree_key key = key_of(i);

		check(!fixture_set(fixture, &key, 112));
	}
	fixture_sync(fixture);
	fixture_reopen(fixture, 0);
	fixture->vol.dev = device_slow_create(fixture->vol.dev, LATENCY_NS, DEVICE_READS_MAX);
	check(fixture->vol.dev);
	return fixture;
}

static void prefetch_every(struct volume *vol, u32 step)
{
	struct prefetch *prefetch = prefetch_create(vol);
	u32 i;

	check(prefetch);
	for (i = 0; i < KEYS; i += step) {
		struct tree_key key = key_of((i * 7919ULL) % KEYS);	/* in no order */

		prefetch_add_key(prefetch, &key);
		if (prefetch_full(prefetch))
			prefetch_run(prefetch);
	}
	prefetch_run(prefetch);
	prefetch_free(prefetch);
}

static void leaves_come_many_at_once(void **state)
{
	struct tree_fixture *fixture = cold_tree();
	struct volume *vol = &fixture->vol;
	u64 reads, clock;
	u8 data[112];
	u32 i;

	prefetch_every(vol, 40);
	reads = atomic64_read(&vol->dev->reads);
	clock = device_slow_clock_ns(vol->dev);
	check(reads > 100);
	check(device_slow_max_batch(vol->dev) == DEVICE_READS_MAX);
	/* Level by level, each read once; but for the last of each level all batches are full. */
	check(clock <= (reads / DEVICE_READS_MAX + vol->tree.root_level + 1) * LATENCY_NS);
	for (i = 0; i < KEYS; i += 40) {
		struct tree_key key = key_of((i * 7919ULL) % KEYS);

		check(tree_lookup(vol, &key, data, sizeof(data)) == 112);
	}
	check(atomic64_read(&vol->dev->reads) == reads);
	check(device_slow_clock_ns(vol->dev) == clock);
	fixture_close(fixture);
}

static void a_bad_block_is_left_to_who_needs_it(void **state)
{
	struct tree_fixture *fixture = cold_tree();
	struct volume *vol = &fixture->vol;
	u32 i, failed = 0;
	u8 data[112];

	device_slow_fail(vol->dev, vol->tree.root_addr + 2);
	prefetch_every(vol, 1);
	for (i = 0; i < KEYS; i++) {
		struct tree_key key = key_of(i);
		int len = tree_lookup(vol, &key, data, sizeof(data));

		check(len == 112 || len == -EIO);
		failed += len == -EIO;
	}
	check(failed < 100);
	device_slow_fail(vol->dev, vol->tree.root_addr);
	cache_shrink(vol, U64_MAX);
	prefetch_every(vol, 5000);
	for (i = 0; i < KEYS; i += 5000) {
		struct tree_key key = key_of(i);

		check(tree_lookup(vol, &key, data, sizeof(data)) == -EIO);
	}
	fixture_close(fixture);
}

/* A small cache: what does not fit is not read for nothing. */
static void a_small_cache_keeps_what_was_read(void **state)
{
	struct tree_fixture *fixture = cold_tree();
	struct volume *vol = &fixture->vol;
	struct prefetch *prefetch;
	u64 reads;
	u8 data[112];
	u32 i, n;

	fixture_reopen(fixture, 100 * 4096);
	prefetch = prefetch_create(vol);
	for (n = 0; !prefetch_full(prefetch); n++) {
		struct tree_key key = key_of(n * 100);

		prefetch_add_key(prefetch, &key);
	}
	check(n == 25);
	prefetch_run(prefetch);
	reads = atomic64_read(&vol->dev->reads);
	for (i = 0; i < n; i++) {
		struct tree_key key = key_of(i * 100);

		check(tree_lookup(vol, &key, data, sizeof(data)) == 112);
	}
	check(atomic64_read(&vol->dev->reads) == reads);
	prefetch_free(prefetch);
	fixture_close(fixture);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaves_come_many_at_once),
		cmocka_unit_test(a_bad_block_is_left_to_who_needs_it),
		cmocka_unit_test(a_small_cache_keeps_what_was_read),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
