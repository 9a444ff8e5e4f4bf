/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Attributes that no inode can have, with right checksums: who reads them is told, and nothing is computed with them.  What can be,
 * but is wrong, is used; what is written then can be, too.  Repair puts all of it right.  VARIANT=asan finds sums that overflow.
 */
#include "support_image.h"
#include "support_lib.h"
#include "core/open.h"
#include "core/repair/repair.h"
#include "core/tree/tree.h"

#include <errno.h>
#include <string.h>

#define NONE	0x5555ull	/* that field stays */

static void repair(struct bed *bed)
{
	struct repair_options opts = {};
	struct repair_result result;
	char why[300] = "";

	assert_ok(volume_repair(bed->dev, &opts, &result, why, sizeof(why)));
	assert_int_equal(result.notes[REPAIR_LEFT], 0);
	assert_int_equal(result.check.problems, 0);
}

/* /file has 3 blocks, /dir has /dir/sub and /dir/file. */
static void make(struct bed *bed, u64 *file, u64 *dir)
{
	struct tux3_node *node;
	char data[3 * 4096];

	bed_make(bed, IMAGE_BYTES, 4096);
	memset(data, 'x', sizeof(data));
	node = bed_file(bed, "/file");
	*file = tux3_node_ino(node);
	assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
	tux3_node_put(node, 1);
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/dir", 0755));
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/dir/sub", 0755));
	tux3_node_put(bed_file(bed, "/dir/file"), 1);
	node = bed_find(bed, "/dir");
	*dir = tux3_node_ino(node);
	tux3_node_put(node, 1);
	bed_close(bed);
}

/* ---- that cannot be ---- */

static void refused(bool quota, bool of_dir, u64 blocks, u32 nlink, u64 size)
{
	struct bed bed = { .opts.manual = true, .quota = quota };
	const char *path = of_dir ? "/dir" : "/file";
	struct tux3_node *node;
	struct disk_attr attr;
	struct volume *vol;
	u64 ino[2];

	make(&bed, &ino[0], &ino[1]);
	vol = bed_edit(&bed);
	edit_get_attr(vol, ino[of_dir], &attr);
	if (blocks != NONE)
		attr.blocks = cpu_to_le64(blocks);
	if (nlink != NONE)
		attr.nlink = cpu_to_le32(nlink);
	if (size != NONE)
		attr.size = cpu_to_le64(size);
	edit_set_attr(vol, ino[of_dir], &attr);
	assert_ok(image_edit_end(vol));
	bed_open(&bed);
	assert_int_equal(tux3_path(bed.volume, NULL, path, 0, 0, &node), -EIO);
	assert_int_equal(tux3_node_get(bed.volume, ino[of_dir], 0, &node), -EIO);
	tux3_node_put(bed_file(&bed, "/other"), 1);
	bed_close(&bed);
	repair(&bed);
	bed_open(&bed);
	node = bed_find(&bed, path);
	assert_non_null(node);
	if (!of_dir)
		assert_ok(tux3_truncate(node, 0));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void test_impossible_attributes_are_refused(void **state)
{
	static const u64 blocks[] = { IMAGE_BYTES / 4096 + 1, S64_MAX, 1ull << 63, U64_MAX };
	u32 i, quota;

	for (quota = 0; quota < 2; quota++)
		for (i = 0; i < ARRAY_SIZE(blocks); i++)
			refused(quota, false, blocks[i], NONE, NONE);
	refused(false, false, NONE, U32_MAX, NONE);
	refused(false, false, NONE, 1u << 31, NONE);
	refused(false, true, NONE, U32_MAX, NONE);
	refused(false, true, NONE, 1, NONE);
	refused(false, true, NONE, NONE, U64_MAX);
	refused(false, false, NONE, NONE, 1ull << 63);
}

/* ---- an inode that nobody opens ---- */

/* A delete goes on at mount: what the inode used is taken off the usage of its owner. */
static void test_deleted_inode_with_impossible_blocks(void **state)
{
	struct disk_orphan orphan = { .kind = cpu_to_le32(TUX3_ORPHAN_DELETE) };
	static const u64 blocks[] = { IMAGE_BYTES / 4096 + 1, S64_MAX, 1ull << 63, U64_MAX };
	struct tux3_node *node;
	struct disk_attr attr;
	struct tree_key key;
	struct volume *vol;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(blocks); i++) {
		struct bed bed = { .opts.manual = true, .quota = true };
		u64 file, dir;

		make(&bed, &file, &dir);
		vol = bed_edit(&bed);
		edit_get_attr(vol, file, &attr);
		attr.blocks = cpu_to_le64(blocks[i]);
		attr.nlink = 0;
		edit_set_attr(vol, file, &attr);
		key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, file);
		assert_ok(tree_set(vol, &key, &orphan, sizeof(orphan)));
		assert_ok(image_edit_end(vol));
		bed_open(&bed);		/* it is deleted */
		assert_ok(tux3_sync(bed.volume));
		assert_int_equal(tux3_node_get(bed.volume, file, 0, &node), -ESTALE);
		bed_close(&bed);
		repair(&bed);
		bed_open(&bed);
		bed_free(&bed);
	}
}

/* ---- that can be, but are wrong ---- */

/* Less blocks than there are, or more: what is left after a truncate is a number of blocks. */
static void test_wrong_blocks_stay_possible(void **state)
{
	static const u64 blocks[] = { 0, 1, IMAGE_BYTES / 4096 };
	char data[5 * 4096] = "more";
	struct tux3_node *node;
	struct disk_attr attr;
	struct volume *vol;
	u32 i, grow;

	for (i = 0; i < ARRAY_SIZE(blocks) * 2; i++) {
		struct bed bed = { .opts.manual = true };
		u64 file, dir;

		grow = i & 1;
		make(&bed, &file, &dir);
		vol = bed_edit(&bed);
		edit_get_attr(vol, file, &attr);
		attr.blocks = cpu_to_le64(blocks[i / 2]);
		edit_set_attr(vol, file, &attr);
		assert_ok(image_edit_end(vol));
		bed_open(&bed);
		node = bed_find(&bed, "/file");
		assert_non_null(node);
		if (grow)
			assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
		else
			assert_ok(tux3_truncate(node, 4096));
		tux3_node_put(node, 1);
		assert_ok(tux3_sync(bed.volume));
		bed_reopen(&bed);
		node = bed_find(&bed, "/file");		/* as it was written */
		assert_non_null(node);
		tux3_node_put(node, 1);
		bed_close(&bed);
		repair(&bed);
		bed_open(&bed);
		bed_free(&bed);
	}
}

/* A directory that counts too few: it is not removed along with what is in it, and can be read. */
static void test_wrong_counts_of_a_directory_stay_possible(void **state)
{
	static const struct {
		u32 nlink;
		u64 size;
	} cases[] = { { 2, 0 }, { 2, 2 }, { 3, 1 }, { S32_MAX, S64_MAX }, { 7, 7 } };
	struct tux3_node *node, *sub;
	struct disk_attr attr;
	struct volume *vol;
	u32 i, grow;

	for (i = 0; i < ARRAY_SIZE(cases) * 2; i++) {
		struct bed bed = { .opts.manual = true };
		u64 file, dir;

		grow = i & 1;
		make(&bed, &file, &dir);
		vol = bed_edit(&bed);
		edit_get_attr(vol, dir, &attr);
		attr.nlink = cpu_to_le32(cases[i / 2].nlink);
		attr.size = cpu_to_le64(cases[i / 2].size);
		edit_set_attr(vol, dir, &attr);
		assert_ok(image_edit_end(vol));
		bed_open(&bed);
		if (grow) {
			assert_ok(tux3_path_mkdir(bed.volume, NULL, "/dir/second", 0755));
			assert_ok(tux3_path_mkdir(bed.volume, NULL, "/dir/third", 0755));
		} else {
			node = bed_find(&bed, "/dir");
			assert_non_null(node);
			assert_ok(tux3_rmdir(node, NULL, "sub"));
			tux3_node_put(node, 1);
		}
		assert_ok(tux3_sync(bed.volume));
		bed_reopen(&bed);
		node = bed_find(&bed, "/dir");
		assert_non_null(node);
		sub = bed_find(&bed, "/dir/file");
		assert_non_null(sub);
		tux3_node_put(sub, 1);
		tux3_node_put(node, 1);
		bed_close(&bed);
		repair(&bed);
		bed_open(&bed);
		bed_free(&bed);
	}
}

/* It is empty, whatever it counts: once it has no name it is gone. */
static void test_directory_with_too_many_links_is_removed(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct disk_attr attr;
	struct volume *vol;
	struct tux3_node *node;
	u64 file, dir, sub;

	make(&bed, &file, &dir);
	bed_open(&bed);
	node = bed_find(&bed, "/dir/sub");
	sub = tux3_node_ino(node);
	tux3_node_put(node, 1);
	bed_close(&bed);
	vol = bed_edit(&bed);
	edit_get_attr(vol, sub, &attr);
	attr.nlink = cpu_to_le32(5);
	edit_set_attr(vol, sub, &attr);
	assert_ok(image_edit_end(vol));
	bed_open(&bed);
	node = bed_find(&bed, "/dir");
	assert_ok(tux3_rmdir(node, NULL, "sub"));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Times are compared, and no more than that. */
static void test_times_long_ago(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct disk_attr attr;
	struct volume *vol;
	struct tux3_node *node;
	u64 file, dir;
	char byte;
	u32 i;

	for (i = 0; i < 2; i++) {
		make(&bed, &file, &dir);
		vol = bed_edit(&bed);
		edit_get_attr(vol, file, &attr);
		attr.mtime_sec = attr.ctime_sec = cpu_to_le64(i ? S64_MAX - 1 : 1ull << 63);
		attr.atime_sec = cpu_to_le64(i ? S64_MAX : (1ull << 63) + 1);
		edit_set_attr(vol, file, &attr);
		assert_ok(image_edit_end(vol));
		bed_open(&bed);
		node = bed_find(&bed, "/file");
		assert_int_equal(tux3_read(node, &byte, 1, 0), 1);
		tux3_node_put(node, 1);
		bed_free(&bed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_impossible_attributes_are_refused),
		cmocka_unit_test(test_deleted_inode_with_impossible_blocks),
		cmocka_unit_test(test_wrong_blocks_stay_possible),
		cmocka_unit_test(test_wrong_counts_of_a_directory_stay_possible),
		cmocka_unit_test(test_directory_with_too_many_links_is_removed),
		cmocka_unit_test(test_times_long_ago),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
