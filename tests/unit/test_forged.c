/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Volumes that are not damaged but forged: each block is whole, and no accident makes them.  What the checker calls clean, a mount
 * takes, and leaves as it is; what it does not, repair puts right.
 */
#include "support_image.h"
#include "support_lib.h"
#include "core/open.h"
#include "core/format/anchor.h"
#include "core/format/name_hash.h"
#include "core/repair/repair.h"
#include "core/tree/tree.h"

#include <errno.h>
#include <string.h>

#define BYTES	(8u << 20)

static int tell(void *ctx, const struct check_problem *problem)
{
	if (getenv("FORGED_VERBOSE"))
		print_message("%s: %s\n", problem->name, problem->text);
	return 0;
}

static void note(void *ctx, const struct repair_note *note)
{
	if (getenv("FORGED_VERBOSE"))
		print_message("repair %d: %s\n", note->kind, note->text);
}

/* How many problems there are. */
static u64 problems(struct bed *bed)
{
	struct volume_options opts = { .read_only = true };
	struct check_options check = { .problem = tell };
	struct check_result result = {};
	struct volume *vol;
	char why[256] = "";

	if (volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)))
		return 1;
	assert_ok(volume_check(vol, &check, &result));
	volume_close(vol);
	return result.problems;
}

static void repair(struct bed *bed)
{
	struct repair_options opts = { .note = note };
	struct repair_result result;
	char why[300] = "";
	int err = volume_repair(bed->dev, &opts, &result, why, sizeof(why));

	if (err)
		fail_msg("repair: %d, %s", err, why);
	assert_int_equal(result.notes[REPAIR_LEFT], 0);
	assert_int_equal(result.check.problems, 0);
	assert_int_equal(problems(bed), 0);
	assert_ok(volume_repair(bed->dev, &opts, &result, why, sizeof(why)));
	assert_false(result.written);
}

/* All blocks are written once. */
static void fill(struct bed *bed)
{
	static char data[65536];
	struct tux3_node *node;
	u64 at = 0;

	memset(data, 'f', sizeof(data));
	assert_ok(tux3_sync(bed->volume));
	node = bed_file(bed, "/fill");
	while (tux3_write(node, data, sizeof(data), at) == sizeof(data))
		at += sizeof(data);
	assert_true(at > BYTES / 2);
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed->volume));
	assert_ok(tux3_path_unlink(bed->volume, NULL, "/fill"));
	assert_ok(tux3_sync(bed->volume));
}

/* It can be changed, in several ways, and is as it should be. */
static void use(struct bed *bed)
{
	char data[5000], got[5000], path[40];
	struct tux3_node *node;
	u32 i, n;

	memset(data, 'u', sizeof(data));
	for (i = 0; i < 6; i++) {
		bed_open(bed);
		for (n = 0; n < i; n++) {
			sprintf(path, "/new%u/file", n);
			node = bed_find(bed, path);
			assert_non_null(node);
			assert_int_equal(tux3_read(node, got, sizeof(got), 0), sizeof(got));
			assert_memory_equal(got, data, sizeof(got));
			tux3_node_put(node, 1);
		}
		sprintf(path, "/new%u/file", i);
		node = bed_file(bed, path);
		assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
		tux3_node_put(node, 1);
		fill(bed);
		bed_check(bed);
		bed_close(bed);
	}
}

static void set_item(struct volume *vol, u64 ino, u8 type, u64 offset, const void *data, u32 len)
{
	struct tree_key key = tree_key(ino, type, offset);

	assert_ok(tree_set(vol, &key, data, len));
}

static void set_orphan(struct volume *vol, u64 ino, u32 kind, u64 block)
{
	struct disk_orphan orphan = { .kind = cpu_to_le32(kind), .block = cpu_to_le64(block) };

	set_item(vol, TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, ino, &orphan, sizeof(orphan));
}

static void make_empty(struct bed *bed)
{
	*bed = (struct bed){ .opts.manual = true };
	bed_make(bed, BYTES, 4096);
	bed_close(bed);
}

/* ---- the root directory ---- */

static void test_root_that_is_to_be_deleted(void **state)
{
	struct disk_attr attr;
	struct volume *vol;
	struct bed bed;

	make_empty(&bed);
	vol = bed_edit(&bed);
	edit_get_attr(vol, TUX3_INO_ROOT, &attr);
	attr.nlink = 0;
	edit_set_attr(vol, TUX3_INO_ROOT, &attr);
	set_orphan(vol, TUX3_INO_ROOT, TUX3_ORPHAN_DELETE, 0);
	assert_ok(image_edit_end(vol));
	assert_true(problems(&bed));
	repair(&bed);
	use(&bed);
	bed.dev->ops->close(bed.dev);
}

static void test_root_that_is_no_directory(void **state)
{
	static const u32 modes[] = { S_IFREG, S_IFLNK, S_IFCHR, S_IFIFO };
	struct disk_attr attr;
	struct volume *vol;
	struct bed bed;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		make_empty(&bed);
		vol = bed_edit(&bed);
		edit_get_attr(vol, TUX3_INO_ROOT, &attr);
		attr.mode = cpu_to_le32(modes[i] | 0644);
		edit_set_attr(vol, TUX3_INO_ROOT, &attr);
		if (S_ISLNK(modes[i])) {
			attr.size = cpu_to_le64(1);
			edit_set_attr(vol, TUX3_INO_ROOT, &attr);
			set_item(vol, TUX3_INO_ROOT, TUX3_ITEM_INLINE, 0, "x", 1);
		}
		assert_ok(image_edit_end(vol));
		assert_true(problems(&bed));
		repair(&bed);
		use(&bed);
		bed.dev->ops->close(bed.dev);
	}
}

/* ---- orphans ---- */

/* Who opens it for writing cuts off what is behind the end of the file, and nothing else. */
static void test_truncate_of_what_is_in_use(void **state)
{
	static char data[5 * 4096], got[sizeof(data)];
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct volume *vol;
	u64 ino, block;

	memset(data, 'd', sizeof(data));
	for (block = 0; block < 7; block++) {
		bed_make(&bed, BYTES, 4096);
		node = bed_file(&bed, "/file");
		ino = tux3_node_ino(node);
		assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
		tux3_node_put(node, 1);
		bed_close(&bed);
		vol = bed_edit(&bed);
		set_orphan(vol, ino, TUX3_ORPHAN_TRUNCATE, block);
		assert_ok(image_edit_end(vol));
		assert_int_equal(!!problems(&bed), block < 5);
		if (block < 5)
			repair(&bed);
		bed_open(&bed);
		node = bed_find(&bed, "/file");
		assert_int_equal(tux3_read(node, got, sizeof(got), 0), sizeof(got));
		assert_memory_equal(got, data, sizeof(got));
		tux3_node_put(node, 1);
		bed_free(&bed);
		bed.opts.manual = true;
	}
}

/* ---- attributes ---- */

static void test_mode_with_more_bits(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct disk_attr attr;
	struct volume *vol;
	u64 ino;

	bed_make(&bed, BYTES, 4096);
	ino = bed_file_ino(&bed, "/file");
	bed_close(&bed);
	vol = bed_edit(&bed);
	edit_get_attr(vol, ino, &attr);
	attr.mode |= cpu_to_le32(0x50000);
	edit_set_attr(vol, ino, &attr);
	assert_ok(image_edit_end(vol));
	assert_true(problems(&bed));
	repair(&bed);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	assert_non_null(node);
	assert_ok(tux3_link(node, NULL, bed.root, "link"));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- attributes that nobody has, and that come to the tree ---- */

/* All that the block has of these attributes; its checksums are right again. */
static u32 forge_attr_in(u8 *block, u64 ino)
{
	struct disk_log *log = (void *)block;
	struct disk_commit *commit = (void *)(log + 1);
	bool is_log = le32_to_cpu(log->magic) == TUX3_LOG_MAGIC;
	u32 done = 0, at, used;

	for (at = sizeof(*log); at + sizeof(struct disk_attr) + 8 <= 4096; at += 8) {
		struct disk_attr *attr = (void *)(block + at + 8);
		u32 head = is_log ? 0 : offsetof(struct disk_intent, attr) - 8;

		if (at < head || get_unaligned_le64(block + at - head + (is_log ? 0 : offsetof(struct disk_intent, ino))) != ino ||
		    (le32_to_cpu(attr->mode) & S_IFMT) != S_IFREG || le32_to_cpu(attr->nlink) != 1)
			continue;
		attr->ctime_nsec = cpu_to_le32(U32_MAX);
		done++;
	}
	if (is_log) {
		used = le32_to_cpu(log->used) - sizeof(*commit);
		assert_int_equal(log->blocks, 1);
		commit->crc = cpu_to_le32(crc32c(~0u, commit + 1, used));
	}
	put_unaligned_le32(0, block + 4);
	put_unaligned_le32(crc32c(~0u, block, 4096), block + 4);
	return done;
}

static void forged_attr(u32 magic)
{
	struct bed bed = { .opts = { .manual = true, .fsync = magic == TUX3_INTENT_MAGIC ? TUX3_FSYNC_AHEAD : TUX3_FSYNC_FULL } };
	struct tux3_node *node;
	u8 *bytes;
	u32 at, done = 0, i;
	u64 ino;

	bed_make(&bed, BYTES, 4096);
	bed_reopen(&bed);
	node = bed_file(&bed, "/file");
	ino = tux3_node_ino(node);
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < 3; i++) {
		assert_int_equal(tux3_write(node, "12345", 5, 10000 * i), 5);
		assert_ok(tux3_fsync(node, false));
	}
	tux3_node_put(node, 1);
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	bytes = device_memory_bytes(bed.dev);
	for (at = 0; at < BYTES; at += 4096)
		if (get_unaligned_le32(bytes + at) == magic)
			done += forge_attr_in(bytes + at, ino);
	assert_true(done);
	assert_true(problems(&bed));
	repair(&bed);
	use(&bed);
	bed.dev->ops->close(bed.dev);
}

static void test_attributes_in_the_log(void **state)
{
	forged_attr(TUX3_LOG_MAGIC);
}

static void test_attributes_in_an_intent(void **state)
{
	forged_attr(TUX3_INTENT_MAGIC);
}

/* ---- symlinks ---- */

static void forge_target(struct bed *bed, const char *text, u32 len, u32 piece)
{
	struct tux3_node *node;
	struct disk_attr attr;
	struct volume *vol;
	char got[4096];
	u64 ino;
	u32 at;

	*bed = (struct bed){ .opts.manual = true };
	bed_make(bed, BYTES, 4096);
	assert_ok(tux3_symlink(bed->root, NULL, "link", "x", &node));
	ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	bed_close(bed);
	vol = bed_edit(bed);
	for (at = 0; at < len; at += piece)
		set_item(vol, ino, TUX3_ITEM_INLINE, at, text + at, min(piece, len - at));
	edit_get_attr(vol, ino, &attr);
	attr.size = cpu_to_le64(len);
	edit_set_attr(vol, ino, &attr);
	assert_ok(image_edit_end(vol));
	if (problems(bed)) {
		repair(bed);
		bed_open(bed);
		assert_ok(tux3_lookup(bed->root, NULL, "link", &node));
		assert_true(tux3_readlink(node, got, sizeof(got)) < 0);
	} else {
		bed_open(bed);
		assert_ok(tux3_lookup(bed->root, NULL, "link", &node));
		assert_int_equal(tux3_readlink(node, got, sizeof(got)), len);
		assert_memory_equal(got, text, len);
		assert_null(memchr(got, 0, len));
	}
	tux3_node_put(node, 1);
	assert_ok(tux3_unlink(bed->root, NULL, "link"));
	bed_free(bed);
}

static void test_targets(void **state)
{
	char text[8192];
	struct bed bed;

	memset(text, 't', sizeof(text));
	forge_target(&bed, text, 4095, 1024);
	forge_target(&bed, text, 4095, 1000);
	forge_target(&bed, text, 4096, 1024);
	forge_target(&bed, text, 8000, 1024);
	text[10] = 0;
	forge_target(&bed, text, 100, 1024);
}

/* ---- numbers at their end ---- */

static void seal_anchors(struct bed *bed, void (*forge)(struct disk_anchor *anchor))
{
	struct disk_anchor *anchor;
	u32 slot;

	for (slot = 0; slot < TUX3_ANCHOR_SLOTS; slot++) {
		anchor = (void *)((u8 *)device_memory_bytes(bed->dev) + anchor_slot_offset(BYTES, slot));
		if (le64_to_cpu(anchor->magic) != TUX3_ANCHOR_MAGIC)
			continue;
		forge(anchor);
		anchor_seal(anchor);
	}
}

/* What is written next would count for less than what is there, or not at all. */
static void last_generation(struct disk_anchor *anchor)
{
	anchor->generation = cpu_to_le64(U64_MAX);
}

static void last_delta(struct disk_anchor *anchor)
{
	anchor->delta = cpu_to_le64(S64_MAX - 1);
}

static void last_seq(struct disk_anchor *anchor)
{
	anchor->log_seq = cpu_to_le64(U64_MAX);
}

static void forged_anchor(void (*forge)(struct disk_anchor *anchor))
{
	struct repair_options opts = {};
	struct repair_result result;
	struct volume *vol;
	char why[300] = "";
	struct bed bed;

	make_empty(&bed);
	seal_anchors(&bed, forge);
	assert_int_equal(volume_open(bed.dev, NULL, &bed.opts, &vol, why, sizeof(why)), -EIO);
	assert_non_null(strstr(why, "nobody has counted"));
	assert_int_equal(volume_repair(bed.dev, &opts, &result, why, sizeof(why)), -EIO);
	assert_false(result.written);
	bed.dev->ops->close(bed.dev);
}

static void test_last_generation(void **state)
{
	forged_anchor(last_generation);
}

static void test_last_delta(void **state)
{
	forged_anchor(last_delta);
}

static void test_last_log_number(void **state)
{
	forged_anchor(last_seq);
}

static void test_last_inode(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct disk_attr attr;
	struct volume *vol;
	u64 ino;

	bed_make(&bed, BYTES, 4096);
	ino = bed_file_ino(&bed, "/file");
	bed_close(&bed);
	vol = bed_edit(&bed);
	edit_get_attr(vol, ino, &attr);
	edit_set_attr(vol, TUX3_INO_MAX, &attr);
	vol->tree_inodes++;
	assert_ok(image_edit_end(vol));
	assert_true(problems(&bed));
	repair(&bed);
	use(&bed);
	bed.dev->ops->close(bed.dev);
}

/* ---- inline data ---- */

static void test_inline_data_that_is_long(void **state)
{
	static char data[2000], got[sizeof(data)];
	u32 sizes[] = { 512, 513, 600, 1000, 1088 }, i;
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct disk_attr attr;
	struct volume *vol;
	u64 ino;

	memset(data, 'i', sizeof(data));
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		bed_make(&bed, BYTES, 4096);
		node = bed_file(&bed, "/inline");
		ino = tux3_node_ino(node);
		assert_int_equal(tux3_write(node, data, 100, 0), 100);
		tux3_node_put(node, 1);
		bed_close(&bed);
		vol = bed_edit(&bed);
		set_item(vol, ino, TUX3_ITEM_INLINE, 0, data, sizes[i]);
		edit_get_attr(vol, ino, &attr);
		attr.size = cpu_to_le64(sizes[i]);
		edit_set_attr(vol, ino, &attr);
		assert_ok(image_edit_end(vol));
		if (problems(&bed))
			repair(&bed);
		bed_open(&bed);
		node = bed_find(&bed, "/inline");
		assert_int_equal(tux3_read(node, got, sizeof(got), 0), sizes[i]);
		assert_memory_equal(got, data, sizes[i]);
		assert_int_equal(tux3_write(node, data, 10, sizes[i]), 10);
		assert_ok(tux3_sync(bed.volume));
		tux3_node_put(node, 1);
		bed_check(&bed);
		node = bed_find(&bed, "/inline");
		assert_int_equal(tux3_read(node, got, sizeof(got), 0), sizes[i] + 10);
		assert_memory_equal(got, data, sizes[i] + 10);
		tux3_node_put(node, 1);
		bed_free(&bed);
	}
}

/* A flag that says how a file is stored, where there is none. */
static void test_inline_flag_of_others(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct disk_attr attr;
	struct volume *vol;
	u64 ino[3];
	u32 i;

	bed_make(&bed, BYTES, 4096);
	assert_ok(tux3_symlink(bed.root, NULL, "link", "x", &node));
	ino[0] = tux3_node_ino(node);
	tux3_node_put(node, 1);
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "/dir", 0755));
	node = bed_find(&bed, "/dir");
	ino[1] = tux3_node_ino(node);
	tux3_node_put(node, 1);
	ino[2] = bed_file_ino(&bed, "/empty");
	bed_close(&bed);
	vol = bed_edit(&bed);
	for (i = 0; i < 3; i++) {
		edit_get_attr(vol, ino[i], &attr);
		attr.flags |= cpu_to_le32(TUX3_ATTR_INLINE);
		edit_set_attr(vol, ino[i], &attr);
	}
	assert_ok(image_edit_end(vol));
	if (problems(&bed))
		repair(&bed);
	bed_open(&bed);
	node = bed_find(&bed, "/empty");
	assert_int_equal(tux3_write(node, "12345", 5, 0), 5);
	tux3_node_put(node, 1);
	bed_check(&bed);
	node = bed_find(&bed, "/empty");
	assert_int_equal(tux3_write(node, "12345", 5, 10000), 5);
	tux3_node_put(node, 1);
	tux3_node_put(bed_file(&bed, "/dir/file"), 1);
	assert_ok(tux3_unlink(bed.root, NULL, "link"));
	bed_free(&bed);
}

/* ---- preallocated blocks that are not ---- */

/* All that is free, or is of the log, belongs to a file, so it says.  What others have written there stays theirs. */
static void test_preallocated_without_the_map(void **state)
{
	struct disk_extent extent = { .birth = cpu_to_le64(1), .flags = cpu_to_le32(TUX3_EXTENT_UNWRITTEN) };
	struct bed bed = { .opts.manual = true };
	static u8 data[1u << 18], got[1u << 18];
	struct tux3_node *node, *other;
	struct disk_attr attr;
	struct volume *vol;
	u64 ino, at;
	u32 turn;

	bed_make(&bed, BYTES, 4096);
	ino = bed_file_ino(&bed, "/forged");
	bed_close(&bed);
	vol = bed_edit(&bed);
	at = max(vol->log.next_addr, vol->log.after_addr);
	at = at > vol->total_blocks / 2 ? 100 : at - 1;
	extent.addr = cpu_to_le64(at);
	extent.len = cpu_to_le32(vol->total_blocks - 32 - at);
	set_item(vol, ino, TUX3_ITEM_EXTENT, 0, &extent, sizeof(extent));
	edit_get_attr(vol, ino, &attr);
	attr.flags |= cpu_to_le32(TUX3_ATTR_PREALLOC);
	attr.size = cpu_to_le64(BYTES);
	edit_set_attr(vol, ino, &attr);
	assert_ok(image_edit_end(vol));
	assert_true(problems(&bed));
	for (turn = 1; turn < 4; turn++) {
		bed_open(&bed);
		node = bed_file(&bed, "/forged");
		other = bed_file(&bed, "/other");
		if (turn > 1) {
			assert_int_equal(tux3_read(other, got, sizeof(got), 0), sizeof(got));
			assert_memory_equal(got, data, sizeof(got));
		}
		memset(data, 'f', sizeof(data));
		assert_int_equal(tux3_write(node, data, sizeof(data), turn * sizeof(data)), sizeof(data));
		assert_int_equal(tux3_fsync(node, false), -EIO);
		memset(data, turn, sizeof(data));
		assert_int_equal(tux3_write(other, data, sizeof(data), 0), sizeof(data));
		assert_ok(tux3_fsync(other, false));
		tux3_write(node, got, sizeof(got), 0);
		tux3_sync(bed.volume);
		tux3_node_put(node, 1);
		tux3_node_put(other, 1);
		tux3_node_put(bed.root, 1);
		tux3_abandon(bed.volume);
	}
	repair(&bed);
	bed_open(&bed);
	other = bed_file(&bed, "/other");
	assert_int_equal(tux3_read(other, got, sizeof(got), 0), sizeof(got));
	assert_memory_equal(got, data, sizeof(got));
	tux3_node_put(other, 1);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/forged"));
	bed_close(&bed);
	use(&bed);
	bed.dev->ops->close(bed.dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_root_that_is_to_be_deleted),
		cmocka_unit_test(test_root_that_is_no_directory),
		cmocka_unit_test(test_truncate_of_what_is_in_use),
		cmocka_unit_test(test_mode_with_more_bits),
		cmocka_unit_test(test_attributes_in_the_log),
		cmocka_unit_test(test_attributes_in_an_intent),
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_last_generation),
		cmocka_unit_test(test_last_delta),
		cmocka_unit_test(test_last_log_number),
		cmocka_unit_test(test_last_inode),
		cmocka_unit_test(test_inline_data_that_is_long),
		cmocka_unit_test(test_inline_flag_of_others),
		cmocka_unit_test(test_preallocated_without_the_map),
	};

	return cmocka_run_group_tests_name("forged", tests, NULL, NULL);
}
