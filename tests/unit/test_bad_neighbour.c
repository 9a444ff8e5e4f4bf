/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A leaf that goes leaves its range to the one before.  If that cannot be read, nothing goes; and a new inode whose number was
 * found free in the leaf gets its place.
 */
#include "support_lib.h"
#include "core/open.h"
#include "core/tree/tree.h"
#include "user/lib/lib.h"

#include <errno.h>
#include <string.h>
#include <linux/falloc.h>

#define BLOCK	4096u
#define BYTES	(16u << 20)

/* The leaf of a key, and the one before it. */
struct leaves {
	struct tree_key key, low;
	u64 before;
};

static int see_leaf(void *ctx, const struct tree_visit *visit)
{
	struct leaves *leaves = ctx;

	if (visit->level)
		return 0;
	if (tree_key_compare(&visit->low, &leaves->key) > 0)
		return 1;
	leaves->before = visit->has_high && tree_key_compare(&visit->high, &leaves->key) <= 0 ? visit->addr : leaves->before;
	leaves->low = visit->low;
	return 0;
}

/* A file in many pieces, and behind it a small one: in whose leaf there is nothing else, once the end of the large one is gone. */
static void make_files(struct bed *bed, struct leaves *leaves)
{
	struct tux3_node *large, *small;
	static char data[BLOCK];
	u32 i;

	large = bed_file(bed, "/large");
	small = bed_file(bed, "/small");
	for (i = 0; i < 400; i++)
		assert_int_equal(tux3_write(large, data, BLOCK, (u64)i * 2 * BLOCK), BLOCK);
	assert_ok(tux3_sync(bed->volume));
	*leaves = (struct leaves){ .key = tree_key(small->inode.ino, TUX3_ITEM_ATTR, 0) };
	assert_ok(tree_walk(tux3_core(bed->volume), see_leaf, leaves));
	assert_int_equal(leaves->low.ino, large->inode.ino);
	assert_int_equal(leaves->low.type, TUX3_ITEM_EXTENT);
	assert_ok(tux3_truncate(large, leaves->low.offset * BLOCK));
	tux3_node_put(large, 1);
	tux3_node_put(small, 1);
	bed_reopen(bed);
	assert_ok(tree_walk(tux3_core(bed->volume), see_leaf, leaves));
	bed_reopen(bed);
}

static void test_new_file_beside_one_that_goes(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct leaves leaves;
	u8 *block, saved[BLOCK];

	bed_make(&bed, BYTES, BLOCK);
	make_files(&bed, &leaves);
	assert_true(leaves.before);
	tux3_node_put(bed_file(&bed, "/new"), 1);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/small"));
	block = (u8 *)device_memory_bytes(bed.dev) + leaves.before * BLOCK;
	memcpy(saved, block, BLOCK);
	memset(block, 0xee, BLOCK);
	assert_ok(tux3_sync(bed.volume));
	memcpy(block, saved, BLOCK);
	bed_check(&bed);
	tux3_node_put(bed_find(&bed, "/new"), 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new_file_beside_one_that_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
