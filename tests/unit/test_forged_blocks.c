/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Forged volumes on which a file says that blocks are its own which are not, or has items that none can have.  That is its own
 * matter, whatever is done with it: all else is committed, is there after a crash, and repair puts right what is left.
 */
#include "support_image.h"
#include "support_lib.h"
#include "core/open.h"
#include "core/format/anchor.h"
#include "core/format/name_hash.h"
#include "core/repair/repair.h"
#include "core/tree/tree.h"

#include <errno.h>
#include <linux/falloc.h>
#include <string.h>

#define BYTES		(16u << 20)
#define BLOCK		4096u
#define FILE_BLOCKS	16u

enum forgery { FREE, LOG, OTHER, FIXED, ACROSS_END, NO_LENGTH, FLAGS, FORGERIES, OTHERS_END };
enum deed { REMOVE, TRUNCATE, EMPTY, PUNCH, OVERWRITE, COLLAPSE, EXCHANGE, DEEDS };

static char data[FILE_BLOCKS * BLOCK], got[sizeof(data)];

static int see_extent(void *ctx, const struct tree_key *key, const void *bytes, u32 len)
{
	memcpy(ctx, bytes, sizeof(struct disk_extent));
	return 1;
}

/* The first block that the file has. */
static u64 first_block(struct bed *bed, u64 ino)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_EXTENT, 0), to = tree_key(ino, TUX3_ITEM_EXTENT, U64_MAX);
	struct disk_extent extent;

	assert_int_equal(tree_scan(tux3_core(bed->volume), &from, &to, see_extent, &extent), 1);
	return le64_to_cpu(extent.addr);
}

/* Where the forged extent is to be. */
static u64 find_block(struct bed *bed, enum forgery forgery, u64 other)
{
	struct tree_key from = tree_key(other, TUX3_ITEM_EXTENT, 0), to = tree_key(other, TUX3_ITEM_EXTENT, U64_MAX);
	struct volume_options opts = { .read_only = true };
	struct disk_extent extent = {};
	struct volume *vol;
	char why[256];
	u64 at;

	assert_ok(volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)));
	at = vol->total_blocks / 2;
	if (forgery == LOG)
		at = vol->log.next_addr;
	if (forgery == FIXED)
		at = 3;
	if (forgery == ACROSS_END)
		at = vol->total_blocks - 1;
	if (forgery == OTHER || forgery == OTHERS_END) {
		assert_int_equal(tree_scan(vol, &from, &to, see_extent, &extent), 1);
		at = le64_to_cpu(extent.addr) + (forgery == OTHERS_END ? FILE_BLOCKS - 4 : 0);
	}
	volume_close(vol);
	return at;
}

static void forge(struct bed *bed, enum forgery forgery, enum deed deed, u32 flags)
{
	bool first = deed == REMOVE || deed == EMPTY || deed == OVERWRITE || deed == EXCHANGE;
	struct disk_extent extent = { .birth = cpu_to_le64(1) };
	struct tree_key key = { .type = TUX3_ITEM_EXTENT, .offset = !first };
	struct tux3_node *node;
	struct disk_attr attr;
	struct volume *vol;
	u64 other;
	u32 len = forgery == NO_LENGTH ? 0 : forgery == LOG ? 1 : 8;

	bed_make(bed, BYTES, BLOCK);
	key.ino = bed_file_ino(bed, "/forged");
	node = bed_file(bed, "/other");
	other = tux3_node_ino(node);
	assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
	tux3_node_put(node, 1);
	bed_close(bed);
	extent.addr = cpu_to_le64(find_block(bed, forgery, other));
	extent.len = cpu_to_le32(len);
	extent.flags = cpu_to_le32(forgery == FLAGS ? 0x8000 : flags);
	vol = bed_edit(bed);
	assert_ok(tree_set(vol, &key, &extent, sizeof(extent)));
	edit_get_attr(vol, key.ino, &attr);
	attr.size = cpu_to_le64(sizeof(data));
	attr.blocks = cpu_to_le64(len);
	if (flags & TUX3_EXTENT_UNWRITTEN)
		attr.flags |= cpu_to_le32(TUX3_ATTR_PREALLOC);
	edit_set_attr(vol, key.ino, &attr);
	assert_ok(image_edit_end(vol));
}

/* It may fail: it is the file's own matter. */
static void do_deed(struct bed *bed, enum deed deed, struct tux3_node *node, struct tux3_node *new)
{
	switch (deed) {
	case REMOVE:
		assert_ok(tux3_path_unlink(bed->volume, NULL, "/forged"));
		break;
	case TRUNCATE:
		tux3_truncate(node, BLOCK);
		break;
	case EMPTY:
		tux3_truncate(node, 0);
		break;
	case PUNCH:
		tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BLOCK, 2 * BLOCK);
		break;
	case OVERWRITE:
		tux3_write(node, data, 3 * BLOCK, BLOCK);
		break;
	case COLLAPSE:
		tux3_fallocate(node, FALLOC_FL_COLLAPSE_RANGE, BLOCK, 2 * BLOCK);
		break;
	default:
		assert_int_equal(tux3_write(new, data, 4 * BLOCK, 0), 4 * BLOCK);
		tux3_exchange_range(node, 0, new, 0, 4 * BLOCK, 0, NULL);
	}
}

static void assert_whole(struct bed *bed, const char *path)
{
	struct tux3_node *node = bed_find(bed, path);

	assert_non_null(node);
	memset(got, 0, sizeof(got));
	assert_int_equal(tux3_read(node, got, sizeof(got), 0), sizeof(got));
	assert_memory_equal(got, data, sizeof(got));
	tux3_node_put(node, 1);
}

/* It is done twice, after a clean end and after a crash, and others go on. */
static void do_deeds(struct bed *bed, enum deed deed)
{
	struct tux3_node *node, *new;
	u32 turn;
	char path[20];

	for (turn = 0; turn < 4; turn++) {
		bed_open(bed);
		node = bed_find(bed, "/forged");
		sprintf(path, "/new%u", turn);
		new = bed_file(bed, path);
		if (node) {
			do_deed(bed, deed, node, new);
			tux3_node_put(node, 1);
		}
		tux3_sync(bed->volume);
		assert_int_equal(tux3_write(new, data, sizeof(data), 0), sizeof(data));
		assert_ok(tux3_fsync(new, false));
		tux3_node_put(new, 1);
		tux3_node_put(bed->root, 1);
		if (turn & 1)
			tux3_abandon(bed->volume);
		else
			tux3_close(bed->volume);
	}
}

static void repair(struct bed *bed)
{
	struct repair_options opts = {};
	struct repair_result result;
	char why[300] = "";

	if (volume_repair(bed->dev, &opts, &result, why, sizeof(why)))
		fail_msg("repair: %s", why);
	assert_int_equal(result.notes[REPAIR_LEFT], 0);
	assert_int_equal(result.check.problems, 0);
}

static void forged_extent(enum forgery forgery, enum deed deed, u32 flags)
{
	struct bed bed = { .opts.manual = true };
	char path[20];
	u32 turn;

	forge(&bed, forgery, deed, flags);
	do_deeds(&bed, deed);
	repair(&bed);
	bed_open(&bed);
	for (turn = 0; turn < 4; turn++) {
		sprintf(path, "/new%u", turn);
		if (forgery != OTHER)
			assert_whole(&bed, path);
	}
	if (forgery != OTHER)
		assert_whole(&bed, "/other");
	tux3_path_unlink(bed.volume, NULL, "/forged");
	tux3_path_unlink(bed.volume, NULL, "/other");
	bed_free(&bed);
}

static void test_forged_extents(void **state)
{
	enum forgery forgery;
	enum deed deed;

	memset(data, 'd', sizeof(data));
	for (forgery = 0; forgery < FORGERIES; forgery++)
		for (deed = 0; deed < DEEDS; deed++) {
			forged_extent(forgery, deed, 0);
			forged_extent(forgery, deed, TUX3_EXTENT_UNWRITTEN);
		}
}

/* Blocks that a file has twice, or of the log, are not moved, and that stops nothing. */
static void test_moved(void **state)
{
	static const enum forgery forgeries[] = { FREE, OTHER, LOG };
	struct disk_extent extent = { .birth = cpu_to_le64(1), .len = cpu_to_le32(7) };
	struct tree_key key = { .type = TUX3_ITEM_EXTENT, .offset = 9 };
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node, *new;
	struct volume *vol;
	u32 turn;

	for (turn = 0; turn < 3 * ARRAY_SIZE(forgeries); turn++) {
		enum deed deed = turn % 3 ? EXCHANGE : COLLAPSE;

		forge(&bed, forgeries[turn / 3], deed, 0);
		bed_open(&bed);
		key.ino = bed_file_ino(&bed, "/forged");
		extent.addr = cpu_to_le64(first_block(&bed, key.ino));
		bed_close(&bed);
		vol = bed_edit(&bed);
		assert_ok(tree_set(vol, &key, &extent, sizeof(extent)));
		assert_ok(image_edit_end(vol));
		bed_open(&bed);
		node = bed_find(&bed, "/forged");
		new = bed_file(&bed, "/new");
		assert_int_equal(tux3_write(new, data, sizeof(data), 0), sizeof(data));
		if (deed == COLLAPSE)
			assert_int_equal(tux3_fallocate(node, FALLOC_FL_COLLAPSE_RANGE, 0, BLOCK), -EIO);
		else if (turn % 3 == 1)
			assert_int_equal(tux3_exchange_range(node, 0, new, 0, sizeof(data), 0, NULL), -EIO);
		else
			assert_int_equal(tux3_exchange_range(node, 0, node, 9 * BLOCK, 7 * BLOCK, 0, NULL), -EIO);
		tux3_node_put(node, 1);
		tux3_node_put(new, 1);
		assert_ok(tux3_sync(bed.volume));
		bed_crash(&bed);
		assert_whole(&bed, "/new");
		bed_close(&bed);
		repair(&bed);
		bed_open(&bed);
		assert_ok(tux3_path_unlink(bed.volume, NULL, "/forged"));
		assert_ok(tux3_path_unlink(bed.volume, NULL, "/other"));
		bed_free(&bed);
		bed.opts.manual = true;
	}
}

/* Where nothing is forged that is a fault of ours: the simulator looks whether it was. */
static void test_it_is_counted(void **state)
{
	struct bed bed = { .opts.manual = true };

	forge(&bed, FREE, REMOVE, 0);
	bed_open(&bed);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/forged"));
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(atomic64_read(&tux3_core(bed.volume)->counters[TUX3_COUNT_ODD_ITEMS]), 1);
	bed_free(&bed);
}

/* What begins with blocks of another file, and goes on with free ones, is not its own to be written in place, in no part. */
static void test_preallocated_in_part(void **state)
{
	struct bed bed = { .opts.manual = true };
	static char others[4 * BLOCK];
	struct tux3_node *node;

	memset(others, 'f', sizeof(others));
	forge(&bed, OTHERS_END, OVERWRITE, TUX3_EXTENT_UNWRITTEN);
	bed_open(&bed);
	node = bed_find(&bed, "/forged");
	assert_int_equal(tux3_write(node, others, sizeof(others), 0), sizeof(others));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_whole(&bed, "/other");
	bed_close(&bed);
	repair(&bed);
	bed_open(&bed);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/forged"));
	bed_free(&bed);
}

/* Builds with sanitizers open all volumes so, and take a count that cannot be for a fault of ours: see test_verify.c. */
static void skip_with_verify(void)
{
	if (IS_ENABLED(CONFIG_PROVE_LOCKING))
		skip();
}

/* Fewer blocks are counted as data than a file then gives back: the next unify sets that right, and so does replay. */
static void test_counted_too_few(void **state)
{
	struct bed bed = { .opts = { .manual = true, .log_blocks = 1 } };
	struct disk_anchor *anchor;
	struct tux3_node *new;
	struct image image;

	skip_with_verify();
	forge(&bed, FREE, REMOVE, 0);
	image.dev = bed.dev;
	anchor = image_anchor(&image);
	anchor->data_blocks = 0;
	anchor_seal(anchor);
	bed_open(&bed);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/other"));
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(tux3_core(bed.volume)->unify.phase, UNIFY_WRITING);
	new = bed_file(&bed, "/new");
	bed_cut_after(&bed, 1);		/* the log; the anchor is not written */
	tux3_sync(bed.volume);
	bed_cut_over(&bed);
	tux3_node_put(new, 1);
	bed_crash(&bed);
	assert_int_equal(atomic64_read(&tux3_core(bed.volume)->counters[TUX3_COUNT_REPLAYED]), 2);
	new = bed_find(&bed, "/new");
	assert_non_null(new);
	tux3_node_put(new, 1);
	bed_close(&bed);
	repair(&bed);
	bed_open(&bed);
	bed_free(&bed);
}

/* Preallocated extents one over the other, of the same blocks or of others.  Replay finds what the commit did. */
static void test_overlap(void **state)
{
	struct disk_extent extent = { .birth = cpu_to_le64(1), .flags = cpu_to_le32(TUX3_EXTENT_UNWRITTEN) };
	static const struct { u32 addr, len, block, count; } cases[] = { { 9, 6, 3, 6 }, { 3, 2, 0, 8 } };
	struct tree_key key = { .type = TUX3_ITEM_EXTENT, .offset = 3 };
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct volume *vol;
	u32 turn, bytes;

	skip_with_verify();
	for (turn = 0; turn < ARRAY_SIZE(cases); turn++) {
		forge(&bed, OTHER, OVERWRITE, TUX3_EXTENT_UNWRITTEN);
		bed_open(&bed);
		key.ino = bed_file_ino(&bed, "/forged");
		extent.addr = cpu_to_le64(first_block(&bed, key.ino) + cases[turn].addr);
		extent.len = cpu_to_le32(cases[turn].len);
		bed_close(&bed);
		vol = bed_edit(&bed);
		assert_ok(tree_set(vol, &key, &extent, sizeof(extent)));
		assert_ok(image_edit_end(vol));
		bed_open(&bed);
		node = bed_find(&bed, "/forged");
		bytes = cases[turn].count * BLOCK;
		assert_int_equal(tux3_write(node, data, bytes, cases[turn].block * BLOCK), bytes);
		tux3_node_put(node, 1);
		assert_ok(tux3_sync(bed.volume));
		bed_crash(&bed);
		bed_close(&bed);
		repair(&bed);
		bed_open(&bed);
		assert_ok(tux3_path_unlink(bed.volume, NULL, "/forged"));
		assert_ok(tux3_path_unlink(bed.volume, NULL, "/other"));
		bed_free(&bed);
		bed.opts.manual = true;
	}
}

/* ---- other items ---- */

static void forge_item(struct bed *bed, const struct tree_key *key)
{
	struct volume *vol = bed_edit(bed);
	char junk[40];

	memset(junk, 0xee, sizeof(junk));
	assert_ok(tree_set(vol, key, junk, sizeof(junk)));
	assert_ok(image_edit_end(vol));
}

static void use_it(struct bed *bed)
{
	assert_ok(tux3_sync(bed->volume));
	bed_crash(bed);
	bed_close(bed);
	repair(bed);
	bed_open(bed);
	bed_free(bed);
}

/* Nobody reads a parent pointer before the commit that takes it away. */
static void test_parent_pointers(void **state)
{
	static const char *const to[] = { "/there/file", "/name" };
	struct bed bed = { .opts.manual = true };
	struct tree_key key = { .type = TUX3_ITEM_PARENT };
	struct volume *vol;
	u32 turn;

	for (turn = 0; turn < 3; turn++) {
		bed_make(&bed, BYTES, BLOCK);
		assert_ok(tux3_path_mkdir(bed.volume, NULL, "/there", 0755));
		key.ino = bed_file_ino(&bed, "/file");
		vol = tux3_core(bed.volume);
		key.offset = name_hash(vol, TUX3_INO_ROOT, TUX3_ITEM_PARENT, "file", 4);
		bed_close(&bed);
		forge_item(&bed, &key);
		bed_open(&bed);
		if (turn < 2)
			assert_ok(tux3_path_rename(bed.volume, NULL, "/file", to[turn], 0));
		else
			assert_ok(tux3_path_unlink(bed.volume, NULL, "/file"));
		use_it(&bed);
		bed.opts.manual = true;
	}
}

/* Who is counted there can give back what he has. */
static void test_quota_item(void **state)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 0);
	struct bed bed = { .opts.manual = true, .quota = true };

	bed_make(&bed, BYTES, BLOCK);
	tux3_node_put(bed_file(&bed, "/file"), 1);
	bed_close(&bed);
	forge_item(&bed, &key);
	bed_open(&bed);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/file"));
	use_it(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forged_extents),
		cmocka_unit_test(test_moved),
		cmocka_unit_test(test_it_is_counted),
		cmocka_unit_test(test_preallocated_in_part),
		cmocka_unit_test(test_counted_too_few),
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_parent_pointers),
		cmocka_unit_test(test_quota_item),
	};

	return cmocka_run_group_tests_name("forged_blocks", tests, NULL, NULL);
}
