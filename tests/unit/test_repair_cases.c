/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: single damages, each of which was once repaired wrongly.
 */
#include "support_image.h"
#include "support_lib.h"
#include "core/open.h"
#include "core/format/anchor.h"
#include "core/format/name_hash.h"
#include "core/repair/repair.h"
#include "core/tree/tree.h"

#include <string.h>
#include <time.h>

#define BYTES	(32u << 20)
#define TARGET	3000u

struct told {
	u64 ino;	/* of which something is lost */
	u32 lost;
};

static void on_note(void *ctx, const struct repair_note *note)
{
	struct told *told = ctx;

	if (note->kind != REPAIR_LOST)
		return;
	told->lost++;
	if (note->ino)
		told->ino = note->ino;
}

/* It comes to its end, nothing is left, and a second one has nothing to do. */
static void repair(struct bed *bed, struct told *told)
{
	struct repair_options opts = { .note = on_note, .ctx = told }, none = {};
	struct repair_result result;
	char why[300] = "";
	int err;

	memset(told, 0, sizeof(*told));
	err = volume_repair(bed->dev, &opts, &result, why, sizeof(why));
	if (err)
		print_error("repair: %d, %s\n", err, why);
	assert_int_equal(err, 0);
	assert_true(result.written);
	assert_int_equal(result.notes[REPAIR_LEFT], 0);
	assert_int_equal(result.check.problems, 0);
	assert_int_equal(volume_repair(bed->dev, &none, &result, why, sizeof(why)), 0);
	assert_false(result.written);
}

/* ---- a log that must be cut ---- */

/* The block of the log with this place in the order of their numbers, among those of the anchor's log. */
static u8 *log_block(struct bed *bed, u32 place)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	u8 *bytes = device_memory_bytes(bed->dev);
	u64 addr, seq, first;
	struct volume *vol;
	char why[256];

	assert_int_equal(volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	first = le64_to_cpu(vol->anchor.log_seq);
	for (addr = 1; addr < vol->total_blocks; addr++) {
		const struct disk_log *log = (const void *)(bytes + (addr << vol->block_shift));

		seq = le64_to_cpu(log->seq);
		if (le32_to_cpu(log->magic) == TUX3_LOG_MAGIC && le64_to_cpu(log->addr) == addr && seq == first + place)
			break;
	}
	assert_true(addr < vol->total_blocks);
	assert_ok(volume_close(vol));
	return bytes + (addr << 12);
}

/* Where the log was cut is said in the new anchor, with both of its places. */
static void test_log_damaged_in_its_middle(void **state)
{
	struct bed bed = { .opts.manual = true };
	char path[40];
	struct told told;
	u32 place, n;
	struct bed_saved *saved;

	bed_make(&bed, BYTES, 4096);
	for (n = 0; n < 12; n++) {
		sprintf(path, "/file%u", n);
		tux3_node_put(bed_file(&bed, path), 1);
		assert_ok(tux3_sync(bed.volume));
	}
	bed_crash(&bed);
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	saved = bed_save(&bed);
	for (place = 0; place < 8; place++) {
		bed_restore(&bed, saved);
		memset(log_block(&bed, place), 0x55, 4096);
		repair(&bed, &told);
		assert_true(told.lost);
		bed_open(&bed);
		for (n = 0; n < 12; n++) {
			struct tux3_node *node;

			sprintf(path, "/file%u", n);
			node = bed_find(&bed, path);
			assert_int_equal(!!node, n < place);
			if (node)
				tux3_node_put(node, 1);
		}
		tux3_node_put(bed_file(&bed, "/after"), 1);
		bed_check(&bed);
		bed_close(&bed);
	}
	bed_saved_free(saved);
	bed.dev->ops->close(bed.dev);
}

/* ---- a target that lost its end ---- */

static void remove_items(struct bed *bed, u64 ino, u8 type, u64 from, u64 to)
{
	struct image image = { .dev = bed->dev };
	struct volume *vol = image_edit_begin(&image);
	struct tree_key first = tree_key(ino, type, from), last = tree_key(ino, type, to);

	assert_non_null(vol);
	assert_true(tree_delete_range(vol, &first, &last, U32_MAX, NULL, NULL, NULL) > 0);
	assert_ok(image_edit_end(vol));
}

/* A part of a target would lead elsewhere: none is better, and is told. */
static void test_symlink_cut_short(void **state)
{
	struct bed bed = { .opts.manual = true };
	char target[TARGET + 1], got[TARGET + 1];
	u64 from;

	memset(target, 't', TARGET);
	target[TARGET] = 0;
	for (from = 0; from < TARGET; from += TUX3_SYMLINK_PIECE) {
		struct tux3_node *node;
		struct told told;
		u64 ino;

		bed_make(&bed, BYTES, 4096);
		assert_ok(tux3_symlink(bed.root, NULL, "link", target, &node));
		ino = tux3_node_ino(node);
		tux3_node_put(node, 1);
		bed_close(&bed);
		remove_items(&bed, ino, TUX3_ITEM_INLINE, from, TARGET);
		repair(&bed, &told);
		assert_int_equal(told.ino, ino);
		bed_open(&bed);
		assert_ok(tux3_lookup(bed.root, NULL, "link", &node));
		assert_true(tux3_readlink(node, got, sizeof(got)) < 0);
		assert_int_equal(tux3_read(node, got, TARGET, 0), -EIO);
		tux3_node_put(node, 1);
		assert_ok(tux3_unlink(bed.root, NULL, "link"));
		bed_free(&bed);
	}
}

/* ---- inodes of which it is not known what they were ---- */

/* Without attributes and parent pointers, the name says what an inode is. */
static void test_kind_by_its_name(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct tux3_stat stat;
	struct told told;
	char got[64];
	u64 ino;

	bed_make(&bed, BYTES, 4096);
	assert_ok(tux3_symlink(bed.root, NULL, "link", "to/somewhere", &node));
	ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	bed_close(&bed);
	remove_items(&bed, ino, TUX3_ITEM_PARENT, 0, U64_MAX);
	remove_items(&bed, ino, TUX3_ITEM_ATTR, 0, 0);
	repair(&bed, &told);
	assert_int_equal(told.ino, ino);
	bed_open(&bed);
	assert_ok(tux3_lookup(bed.root, NULL, "link", &node));
	assert_ok(tux3_stat_node(node, &stat));
	assert_true(S_ISLNK(stat.mode));
	assert_int_equal(tux3_readlink(node, got, sizeof(got)), 12);
	assert_memory_equal(got, "to/somewhere", 12);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/*
 * Without attributes, and without the name in its directory, a short target looks like the contents of a file.  Where its parent
 * pointer says that it was, there is nothing then, rather than a file in place of a symlink; its bytes are in lost+found.
 */
static void lose_kind(const char *contents, u32 len, bool symlink, bool stays)
{
	char got[TARGET], name[60];
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct tux3_stat stat;
	struct told told;
	u64 ino;

	bed_make(&bed, BYTES, 4096);
	if (symlink) {
		assert_ok(tux3_symlink(bed.root, NULL, "inode", contents, &node));
	} else {
		node = bed_file(&bed, "/inode");
		assert_int_equal(tux3_write(node, contents, len, 0), len);
	}
	ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	bed_close(&bed);
	remove_items(&bed, ino, TUX3_ITEM_ATTR, 0, 0);
	remove_items(&bed, TUX3_INO_ROOT, TUX3_ITEM_DIRENT, 0, U64_MAX);
	repair(&bed, &told);
	assert_int_equal(told.ino, ino);
	bed_open(&bed);
	sprintf(name, "lost+found/#%llu", (unsigned long long)ino);
	assert_int_equal(tux3_lookup(bed.root, NULL, "inode", &node), stays ? 0 : -ENOENT);
	if (!stays)
		node = bed_find(&bed, name);
	assert_non_null(node);
	assert_int_equal(tux3_node_ino(node), ino);
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(S_ISLNK(stat.mode), symlink && stays);
	assert_int_equal(S_ISLNK(stat.mode) ? tux3_readlink(node, got, sizeof(got)) : tux3_read(node, got, sizeof(got), 0), len);
	assert_memory_equal(got, contents, len);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void test_symlink_or_file(void **state)
{
	char target[TARGET];

	lose_kind("to/somewhere", 12, true, false);
	lose_kind("to/somewhere", 12, false, false);
	lose_kind("no target\0", 11, false, true);
	/* Files of this size are not stored so. */
	memset(target, 't', TARGET);
	target[TARGET - 1] = 0;
	lose_kind(target, TARGET - 1, true, true);
	target[600] = 0;
	lose_kind(target, 600, true, true);
}

/* A name in lost+found may be taken, by a repair before this one. */
static void test_lost_and_found_twice(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct told told;
	char name[60];
	u64 ino;

	bed_make(&bed, BYTES, 4096);
	node = bed_file(&bed, "/file");
	ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	sprintf(name, "/lost+found/#%llu", (unsigned long long)ino);
	tux3_node_put(bed_file(&bed, name), 1);
	bed_close(&bed);
	remove_items(&bed, ino, TUX3_ITEM_PARENT, 0, U64_MAX);
	remove_items(&bed, TUX3_INO_ROOT, TUX3_ITEM_DIRENT, 0, U64_MAX);	/* lost+found comes back by its own pointer */
	repair(&bed, &told);
	bed_open(&bed);
	strcat(name, ".2");
	node = bed_find(&bed, name);
	assert_non_null(node);
	assert_int_equal(tux3_node_ino(node), ino);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- files of which it is not known how long they were, or what was in them ---- */

/* What can be read is right, and it does not end without an error. */
static void lose_and_read(u32 bytes, u8 type, u64 readable)
{
	static u8 data[20000], got[40000];
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct tux3_stat stat;
	struct told told;
	u64 ino, at;
	ssize_t done;

	memset(data, 'd', sizeof(data));
	bed_make(&bed, BYTES, 4096);
	node = bed_file(&bed, "/file");
	ino = tux3_node_ino(node);
	assert_int_equal(tux3_write(node, data, bytes, 0), bytes);
	tux3_node_put(node, 1);
	bed_close(&bed);
	remove_items(&bed, ino, type, 0, U64_MAX);
	repair(&bed, &told);
	assert_int_equal(told.ino, ino);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	assert_non_null(node);
	assert_ok(tux3_stat_node(node, &stat));
	assert_true(stat.size);
	for (at = 0; at < readable; at += done) {
		done = tux3_read(node, got + at, readable - at, at);
		assert_true(done > 0);
	}
	assert_memory_equal(got, data, min_t(u64, readable, bytes));
	assert_int_equal(tux3_read(node, got, stat.size - at, at), -EIO);
	assert_ok(tux3_truncate(node, min_t(u64, readable, bytes)));
	assert_int_equal(tux3_write(node, data, bytes, 0), bytes);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void test_what_is_lost_of_a_file_reads_as_an_error(void **state)
{
	lose_and_read(10000, TUX3_ITEM_ATTR, 12288);
	lose_and_read(8192, TUX3_ITEM_ATTR, 8192);
	lose_and_read(100, TUX3_ITEM_INLINE, 0);
	lose_and_read(10000, TUX3_ITEM_EXTENT, 0);
}

/* An inline file without attributes is as long as its data. */
static void test_inline_data_says_how_long_it_is(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node = NULL;
	struct told told;
	char got[100];
	u64 ino;

	bed_make(&bed, BYTES, 4096);
	node = bed_file(&bed, "/file");
	ino = tux3_node_ino(node);
	assert_int_equal(tux3_write(node, "contents", 8, 0), 8);
	tux3_node_put(node, 1);
	bed_close(&bed);
	remove_items(&bed, ino, TUX3_ITEM_ATTR, 0, 0);
	repair(&bed, &told);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	assert_non_null(node);
	assert_int_equal(tux3_read(node, got, sizeof(got), 0), 8);
	assert_memory_equal(got, "contents", 8);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- a directory that is said to be in many places ---- */

#define PLACES		20000u
#define PLACES_CPU_S	15	/* counted for each of them, all of them took twice that */

static void add_parent(struct volume *vol, u64 ino, u64 dir, const char *name)
{
	u8 data[64];
	struct disk_parent *entry = (void *)data;
	u32 len = strlen(name);
	struct tree_key key = tree_key(ino, TUX3_ITEM_PARENT, name_hash(vol, dir, TUX3_ITEM_PARENT, name, len));

	*entry = (struct disk_parent){ .dir = cpu_to_le64(dir), .len = len };
	memcpy(entry->name, name, len);
	assert_ok(tree_set(vol, &key, data, sizeof(*entry) + len));
}

/* It keeps its name, or gets back the first of them, and all else goes in one pass. */
static void test_many_parent_pointers(void **state)
{
	struct bed bed = { .opts.manual = true };
	u64 outer, inner;
	struct tux3_node *node;
	struct told told;
	struct volume *vol;
	char name[32];
	bool named;
	u32 i;

	for (named = false; ; named = true) {
		clock_t begun = clock();

		bed_make(&bed, BYTES, 4096);
		assert_ok(tux3_path_mkdir(bed.volume, NULL, "/outer", 0755));
		assert_ok(tux3_path_mkdir(bed.volume, NULL, "/outer/inner", 0755));
		node = bed_find(&bed, "/outer");
		outer = tux3_node_ino(node);
		tux3_node_put(node, 1);
		node = bed_find(&bed, "/outer/inner");
		inner = tux3_node_ino(node);
		tux3_node_put(node, 1);
		bed_close(&bed);
		if (!named)
			remove_items(&bed, outer, TUX3_ITEM_DIRENT, 0, U64_MAX);
		vol = image_edit_begin(&(struct image){ .dev = bed.dev });
		assert_non_null(vol);
		for (i = 0; i < PLACES; i++) {
			sprintf(name, "place%u", i);
			add_parent(vol, inner, outer, name);
		}
		assert_ok(image_edit_end(vol));
		repair(&bed, &told);
		assert_int_equal(told.lost, 0);
		assert_true((clock() - begun) / CLOCKS_PER_SEC < PLACES_CPU_S);
		bed_open(&bed);
		node = bed_find(&bed, "/outer/inner");
		assert_non_null(node);	/* of all names the shortest one is first */
		assert_int_equal(tux3_node_ino(node), inner);
		tux3_node_put(node, 1);
		bed_check(&bed);
		bed_free(&bed);
		if (named)
			break;
	}
}

/* ---- a tree of which nothing is left ---- */

static void wipe_nodes(u8 *bytes, u32 size)
{
	u32 n;

	for (n = 0; n < size / 4096; n++)
		if (le32_to_cpu(((struct disk_node *)(bytes + n * 4096))->magic) == TUX3_NODE_MAGIC)
			memset(bytes + n * 4096, 0, 4096);
}

static void on_limits(void *ctx, const struct repair_note *note)
{
	*(u32 *)ctx += note->kind == REPAIR_LOST && strstr(note->text, "limits of id 0 ");
}

/* Usage is counted anew, but what somebody may use nobody knows. */
static void test_limits_that_are_lost(void **state)
{
	u32 limits = 0;
	struct repair_options opts = { .note = on_limits, .ctx = &limits };
	struct repair_result result;
	struct image image;
	char why[300];

	assert_int_equal(image_build(&image, true), 0);
	wipe_nodes(device_memory_bytes(image.dev), IMAGE_BYTES);
	assert_int_equal(volume_repair(image.dev, &opts, &result, why, sizeof(why)), 0);
	assert_int_equal(limits, 3);	/* of a user, a group, a project */
	image_close(&image);
}

/* Where no name is left either, only the totals of the anchor tell that there was anything. */
static void test_nothing_is_left(void **state)
{
	struct repair_options safe = { .safe = true };
	struct bed bed = { .opts.manual = true };
	struct repair_result result;
	struct told told;
	char path[40], why[300];
	u8 *copy = malloc(BYTES), *bytes;
	u32 n;

	assert_non_null(copy);
	bed_make(&bed, BYTES, 4096);
	for (n = 0; n < 300; n++) {
		sprintf(path, "/file%u", n);
		tux3_node_put(bed_file(&bed, path), 1);
	}
	bed_close(&bed);
	bytes = device_memory_bytes(bed.dev);
	wipe_nodes(bytes, BYTES);
	memcpy(copy, bytes, BYTES);
	assert_int_equal(volume_repair(bed.dev, &safe, &result, why, sizeof(why)), -ENOTRECOVERABLE);
	assert_memory_equal(bytes, copy, BYTES);
	repair(&bed, &told);
	assert_true(told.lost);
	bed_open(&bed);
	bed_free(&bed);
	free(copy);
}

/* ---- an end before what is there ---- */

/* Its only one, in the root. */
static void remove_name(struct volume *vol, u64 ino, const char *name)
{
	u64 dirent = name_hash(vol, TUX3_INO_ROOT, TUX3_ITEM_DIRENT, name, strlen(name));
	u64 parent = name_hash(vol, TUX3_INO_ROOT, TUX3_ITEM_PARENT, name, strlen(name));
	struct tree_key attr_key = tree_key(ino, TUX3_ITEM_ATTR, 0), key = tree_key(TUX3_INO_ROOT, TUX3_ITEM_DIRENT, dirent);
	struct disk_attr attr;

	assert_ok(tree_delete(vol, &key));
	key = tree_key(ino, TUX3_ITEM_PARENT, parent);
	assert_ok(tree_delete(vol, &key));
	assert_int_equal(tree_edit_lookup(vol, &attr_key, &attr, sizeof(attr)), sizeof(attr));
	attr.nlink = 0;
	assert_ok(tree_set(vol, &attr_key, &attr, sizeof(attr)));
}

/*
 * Only what a truncate is just taking away may be there beyond the end: from the block on that its item says.  Of a file that is
 * to be deleted all goes, and it may have been truncated before.
 */
static void test_blocks_beyond_the_end(void **state)
{
	static const struct { u32 kind, from; u64 size; } cases[] = {
		{ TUX3_ORPHAN_DELETE, 0, 60 },
		{ TUX3_ORPHAN_TRUNCATE, 1, 60 },		/* as it should be */
		{ TUX3_ORPHAN_TRUNCATE, 500, 20 * 4096 },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct disk_orphan orphan = { .kind = cpu_to_le32(cases[i].kind), .block = cpu_to_le64(cases[i].from) };
		struct volume_options look = { .read_only = true };
		struct repair_options none = {};
		struct repair_result result;
		struct tree_key attr_key, key;
		struct disk_attr attr;
		struct image image;
		struct volume *vol;
		char why[300];

		assert_int_equal(image_build(&image, false), 0);
		vol = image_edit_begin(&image);
		assert_non_null(vol);
		attr_key = tree_key(image.ino.big, TUX3_ITEM_ATTR, 0);
		key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, image.ino.big);
		assert_int_equal(tree_edit_lookup(vol, &attr_key, &attr, sizeof(attr)), sizeof(attr));
		attr.size = cpu_to_le64(60);
		assert_ok(tree_set(vol, &attr_key, &attr, sizeof(attr)));
		assert_ok(tree_set(vol, &key, &orphan, sizeof(orphan)));
		if (cases[i].kind == TUX3_ORPHAN_DELETE)
			remove_name(vol, image.ino.big, "big");
		assert_ok(image_edit_end(vol));
		assert_int_equal(volume_repair(image.dev, &none, &result, why, sizeof(why)), 0);
		assert_int_equal(result.check.problems, 0);
		/* Opened for writing, what is there beyond the end would go. */
		assert_ok(volume_open(image.dev, NULL, &look, &vol, why, sizeof(why)));
		assert_int_equal(tree_lookup(vol, &attr_key, &attr, sizeof(attr)), sizeof(attr));
		assert_int_equal(le64_to_cpu(attr.size), cases[i].size);
		assert_ok(volume_close(vol));
		image_close(&image);
	}
}

/* ---- a log that is said to go on where it does not ---- */

/* Nothing keeps these blocks for it: nodes that repair writes may want them. */
static void test_log_goes_on_anywhere(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct told told;
	char path[40];
	struct bed_saved *saved;
	u8 *bytes;
	u64 addr, leaf = 0;
	u32 n;

	bed_make(&bed, BYTES, 4096);
	for (n = 0; n < 300; n++) {
		sprintf(path, "/file%u", n);
		tux3_node_put(bed_file(&bed, path), 1);
	}
	bed_close(&bed);
	bytes = device_memory_bytes(bed.dev);
	for (n = 0; n < BYTES / 4096; n++)
		if (le32_to_cpu(((struct disk_node *)(bytes + n * 4096))->magic) == TUX3_NODE_MAGIC)
			leaf = n;
	memset(bytes + leaf * 4096, 0, 4096);
	saved = bed_save(&bed);
	for (addr = 1; addr < leaf + 100; addr++) {
		bed_restore(&bed, saved);
		for (n = 0; n < TUX3_ANCHOR_SLOTS; n++) {
			struct disk_anchor *anchor = (void *)(bytes + anchor_slot_offset(BYTES, n));

			anchor->log_addr = cpu_to_le64(addr);
			anchor->log_after = cpu_to_le64(1ull << 60);
			anchor_seal(anchor);
		}
		repair(&bed, &told);
	}
	bed_saved_free(saved);
	bed.dev->ops->close(bed.dev);
}

/* ---- a log that cannot be replayed, though nothing of it is missing ---- */

static bool opens(struct bed *bed)
{
	struct volume_options opts = { .read_only = true, .manual = true };
	struct volume *vol;
	char why[256];

	if (volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)))
		return false;
	assert_ok(volume_close(vol));
	return true;
}

/* A volume that was cut off, with /file, whose mode a commit in the log has set to 0640.  The root of the anchor's tree. */
static u64 make_with_log(struct bed *bed)
{
	struct tux3_stat stat = { .mode = 0640 };
	struct tux3_node *node;
	u64 root;

	bed_make(bed, BYTES, 4096);
	tux3_node_put(bed_file(bed, "/file"), 1);
	bed_reopen(bed);
	root = tux3_core(bed->volume)->tree.root_addr;
	node = bed_find(bed, "/file");
	assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed->volume));
	tux3_node_put(bed->root, 1);
	tux3_abandon(bed->volume);
	return root;
}

static void seal_log(struct disk_log *log)
{
	log->crc = 0;
	log->crc = cpu_to_le32(crc32c(~0u, log, 4096));
}

/* The record of the one commit in the log that sets attributes becomes one that merges nodes: not those that there are. */
static void forge_merge(u8 *block)
{
	struct disk_log *log = (void *)block;
	struct disk_commit *commit = (void *)(log + 1);
	u8 *records = (u8 *)(commit + 1);
	u32 bytes = le32_to_cpu(commit->bytes), at = 0;

	while (at < bytes) {
		struct disk_record *record = (void *)(records + at);

		at += sizeof(*record) + round_up(le32_to_cpu(record->len), 8);
		if (le16_to_cpu(record->type) != TUX3_RECORD_ATTR_SET)
			continue;
		record->type = cpu_to_le16(TUX3_RECORD_TREE_MERGE);
		((struct record_merge *)(record + 1))->level = cpu_to_le32(7);
		commit->crc = cpu_to_le32(crc32c(~0u, records, bytes));
		seal_log(log);
		return;
	}
	fail();
}

/* Which nodes were merged matters to none but the log, which is made anew. */
static void test_merge_that_does_not_fit(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct told told;

	make_with_log(&bed);
	forge_merge(log_block(&bed, 0));
	assert_false(opens(&bed));
	repair(&bed, &told);
	assert_int_equal(told.lost, 0);
	assert_true(opens(&bed));
	bed_open(&bed);
	bed_free(&bed);
}

/* The anchor says that the log goes on where a node is, or that intents are there. */
static void test_log_goes_on_in_the_tree(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct told told;
	u32 what, n;

	for (what = 0; what < 3; what++) {
		u8 *bytes;

		bed_make(&bed, BYTES, 4096);
		tux3_node_put(bed_file(&bed, "/file"), 1);
		bed_close(&bed);
		bytes = device_memory_bytes(bed.dev);
		for (n = 0; n < TUX3_ANCHOR_SLOTS; n++) {
			struct disk_anchor *anchor = (void *)(bytes + anchor_slot_offset(BYTES, n));

			*(!what ? &anchor->log_addr : what == 1 ? &anchor->log_after : &anchor->intent.addr) = anchor->root_addr;
			anchor->intent.blocks = cpu_to_le32(what == 2);
			anchor_seal(anchor);
		}
		assert_false(opens(&bed));
		repair(&bed, &told);
		assert_int_equal(told.lost, 0);
		assert_true(opens(&bed));
		bed_open(&bed);
		tux3_node_put(bed_file(&bed, "/after"), 1);
		bed_free(&bed);
	}
}

/*
 * The last block of the log says that it goes on in a node that the log has replaced, which the anchor needs until there is
 * another, or in the log itself: what is committed next would write over that.
 */
static void test_log_goes_on_in_what_is_kept(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct tux3_stat stat;
	struct disk_log *log;
	struct told told;
	u32 what;

	for (what = 0; what < 5; what++) {
		__le64 root = cpu_to_le64(make_with_log(&bed));

		log = (void *)log_block(&bed, 0);
		*(what & 1 ? &log->after : &log->next) = what < 2 ? root : what < 4 ? log->addr : log->after;
		seal_log(log);
		assert_false(opens(&bed));
		repair(&bed, &told);
		assert_int_equal(told.lost, 0);
		bed_open(&bed);
		node = bed_find(&bed, "/file");
		assert_ok(tux3_stat_node(node, &stat));
		assert_int_equal(stat.mode & 07777, 0640);
		tux3_node_put(node, 1);
		bed_free(&bed);
	}
}

/* ---- attributes and items that do not agree ---- */

static void set_item(struct volume *vol, u64 ino, u8 type, const void *data, u32 len)
{
	struct tree_key key = tree_key(ino, type, type == TUX3_ITEM_ORPHAN ? ino : 0);

	if (type == TUX3_ITEM_ORPHAN)
		key.ino = TUX3_INO_VOLUME;
	assert_ok(tree_set(vol, &key, data, len));
}

/* An empty directory that says it was removed, and has a name: with or without the mark that it is to be deleted. */
static void test_named_directory_without_links(void **state)
{
	struct disk_orphan orphan = { .kind = cpu_to_le32(TUX3_ORPHAN_DELETE) };
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct disk_attr attr;
	struct tux3_stat stat;
	struct tree_key key;
	struct volume *vol;
	struct told told;
	bool marked;
	u64 ino;

	for (marked = false; ; marked = true) {
		bed_make(&bed, BYTES, 4096);
		assert_ok(tux3_path_mkdir(bed.volume, NULL, "/dir", 0755));
		node = bed_find(&bed, "/dir");
		ino = tux3_node_ino(node);
		tux3_node_put(node, 1);
		bed_close(&bed);
		vol = image_edit_begin(&(struct image){ .dev = bed.dev });
		assert_non_null(vol);
		key = tree_key(ino, TUX3_ITEM_ATTR, 0);
		assert_int_equal(tree_edit_lookup(vol, &key, &attr, sizeof(attr)), sizeof(attr));
		attr.nlink = 0;
		set_item(vol, ino, TUX3_ITEM_ATTR, &attr, sizeof(attr));
		if (marked)
			set_item(vol, ino, TUX3_ITEM_ORPHAN, &orphan, sizeof(orphan));
		assert_ok(image_edit_end(vol));
		repair(&bed, &told);
		assert_int_equal(told.lost, 0);
		bed_open(&bed);
		node = bed_find(&bed, "/dir");
		assert_non_null(node);
		assert_ok(tux3_stat_node(node, &stat));
		assert_int_equal(stat.nlink, 2);
		tux3_node_put(node, 1);
		bed_free(&bed);
		if (marked)
			break;
	}
}

/* Inline data of no bytes, of a file with extents, of an empty one, and of a symlink. */
static void test_inline_data_of_no_length(void **state)
{
	struct bed bed = { .opts.manual = true };
	char block[4096] = "contents", got[4096];
	struct tux3_node *nodes[3];
	struct volume *vol;
	struct told told;
	u64 ino[3];
	u32 n;

	bed_make(&bed, BYTES, 4096);
	nodes[0] = bed_file(&bed, "/file");
	assert_int_equal(tux3_write(nodes[0], block, sizeof(block), 0), sizeof(block));
	nodes[1] = bed_file(&bed, "/empty");
	assert_ok(tux3_symlink(bed.root, NULL, "link", "target", &nodes[2]));
	for (n = 0; n < 3; n++) {
		ino[n] = tux3_node_ino(nodes[n]);
		tux3_node_put(nodes[n], 1);
	}
	bed_close(&bed);
	vol = image_edit_begin(&(struct image){ .dev = bed.dev });
	assert_non_null(vol);
	for (n = 0; n < 3; n++)
		set_item(vol, ino[n], TUX3_ITEM_INLINE, block, 0);
	assert_ok(image_edit_end(vol));
	repair(&bed, &told);
	bed_open(&bed);
	nodes[0] = bed_find(&bed, "/file");
	assert_int_equal(tux3_read(nodes[0], got, sizeof(got), 0), sizeof(got));
	assert_memory_equal(got, block, sizeof(got));
	nodes[1] = bed_find(&bed, "/empty");
	assert_int_equal(tux3_read(nodes[1], got, sizeof(got), 0), 0);
	for (n = 0; n < 2; n++)
		tux3_node_put(nodes[n], 1);
	assert_ok(tux3_unlink(bed.root, NULL, "link"));		/* its target is lost, which reads as an error */
	bed_free(&bed);
}

/* An empty file of which the flags say that its data is inline: nobody finds it there. */
static void test_empty_file_with_inline_data(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct disk_attr attr;
	struct volume *vol;
	struct told told;
	char got[20];
	u64 ino[2];
	u32 n;

	bed_make(&bed, BYTES, 4096);
	ino[0] = bed_file_ino(&bed, "/write");
	ino[1] = bed_file_ino(&bed, "/truncate");
	bed_close(&bed);
	vol = image_edit_begin(&(struct image){ .dev = bed.dev });
	assert_non_null(vol);
	for (n = 0; n < 2; n++) {
		edit_get_attr(vol, ino[n], &attr);
		attr.flags |= cpu_to_le32(TUX3_ATTR_INLINE);
		edit_set_attr(vol, ino[n], &attr);
	}
	assert_ok(image_edit_end(vol));
	repair(&bed, &told);
	assert_int_equal(told.lost, 0);
	bed_open(&bed);
	node = bed_find(&bed, "/write");
	assert_int_equal(tux3_write(node, "contents", 8, 10), 8);
	tux3_node_put(node, 1);
	node = bed_find(&bed, "/truncate");
	assert_ok(tux3_truncate(node, 10));
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(tux3_read(node, got, sizeof(got), 0), 10);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* An extent without checksums has flags that nobody knows: the blocks are its own, and are not given to what others have lost. */
static void test_extent_with_odd_flags_keeps_its_blocks(void **state)
{
	static u8 data[64 * 4096], got[64 * 4096];
	u8 item[sizeof(struct disk_extent) + 64 * sizeof(__le32)];
	static const u32 size[] = { 16 * 4096, 64 * 4096 };	/* lost is more than is free in front of /odd */
	struct disk_extent *extent = (void *)item;
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct tree_key key;
	struct volume *vol;
	struct told told;
	u64 ino[2];
	u32 n;
	int len;

	memset(data, 'd', sizeof(data));
	bed_make(&bed, BYTES, 4096);
	for (n = 0; n < 2; n++) {
		node = bed_file(&bed, n ? "/lost" : "/odd");
		ino[n] = tux3_node_ino(node);
		assert_int_equal(tux3_write(node, data, size[n], 0), size[n]);
		tux3_node_put(node, 1);
		assert_ok(tux3_sync(bed.volume));
	}
	bed_close(&bed);
	vol = image_edit_begin(&(struct image){ .dev = bed.dev });
	assert_non_null(vol);
	for (n = 0; n < 2; n++) {
		key = tree_key(ino[n], TUX3_ITEM_EXTENT, 0);
		len = tree_edit_lookup(vol, &key, item, sizeof(item));
		assert_true(len > 0);
		if (n) {
			extent->addr = cpu_to_le64(U64_MAX);
		} else {
			extent->flags = cpu_to_le32(TUX3_EXTENT_UNCHECKED | (TUX3_EXTENT_KNOWN + 1));
			len = sizeof(*extent);
		}
		set_item(vol, ino[n], TUX3_ITEM_EXTENT, item, len);
	}
	assert_ok(image_edit_end(vol));
	repair(&bed, &told);
	assert_int_equal(told.ino, ino[1]);
	bed_open(&bed);
	node = bed_find(&bed, "/odd");
	assert_int_equal(tux3_read(node, got, size[0], 0), size[0]);
	assert_memory_equal(got, data, size[0]);
	tux3_node_put(node, 1);
	node = bed_find(&bed, "/lost");
	assert_int_equal(tux3_read(node, got, 4096, 0), -EIO);
	tux3_node_put(node, 1);
	bed_close(&bed);
	bed.dev->ops->close(bed.dev);
}

/* Of a long extent one block is said to be elsewhere, by a newer one: the others are as intact as before, on both sides of it. */
static void test_extent_around_another(void **state)
{
	static u8 data[200 * 4096], got[4096];
	u8 item[sizeof(struct disk_extent) + sizeof(__le32)];
	struct disk_extent *extent = (void *)item;
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct tree_key key;
	struct volume *vol;
	struct told told;
	u64 ino;
	u32 n;

	for (n = 0; n < sizeof(data); n++)
		data[n] = n / 4096 + 1;
	bed_make(&bed, BYTES, 4096);
	node = bed_file(&bed, "/file");
	ino = tux3_node_ino(node);
	assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
	tux3_node_put(node, 1);
	bed_close(&bed);
	vol = image_edit_begin(&(struct image){ .dev = bed.dev });
	assert_non_null(vol);
	*extent = (struct disk_extent){ .addr = cpu_to_le64(7000), .birth = cpu_to_le64(vol->delta.applying), .len = cpu_to_le32(1),
					.flags = cpu_to_le32(TUX3_EXTENT_CSUM) };
	key = tree_key(ino, TUX3_ITEM_EXTENT, 10);
	assert_ok(tree_set(vol, &key, item, sizeof(item)));
	assert_ok(image_edit_end(vol));
	repair(&bed, &told);
	assert_int_equal(told.ino, ino);
	bed_open(&bed);
	node = bed_find(&bed, "/file");
	for (n = 0; n < 200; n++) {
		ssize_t done = tux3_read(node, got, 4096, n * 4096);

		assert_int_equal(done, n == 10 ? -EIO : 4096);
		if (n != 10)
			assert_memory_equal(got, data + n * 4096, 4096);
	}
	tux3_node_put(node, 1);
	bed_close(&bed);
	bed.dev->ops->close(bed.dev);
}

/* ---- extents, each of which reaches over all that follow ---- */

#define EXTENTS		FEWER(20000u, 5000u)
#define EXTENTS_CPU_S	5	/* where what is behind each was looked for one by one it took 17 */

static void test_extents_over_many_others(void **state)
{
	struct disk_extent extent = { .addr = cpu_to_le64(2000), .flags = cpu_to_le32(TUX3_EXTENT_UNWRITTEN) };
	struct bed bed = { .opts.manual = true };
	clock_t begun = clock();
	struct volume *vol;
	struct told told;
	struct tree_key key;
	u64 ino, i;

	bed_make(&bed, 128u << 20, 4096);
	ino = bed_file_ino(&bed, "/file");
	bed_close(&bed);
	vol = image_edit_begin(&(struct image){ .dev = bed.dev });
	assert_non_null(vol);
	vol->delta.applying += EXTENTS;
	for (i = 0; i < EXTENTS; i++) {
		key = tree_key(ino, TUX3_ITEM_EXTENT, i);
		extent.birth = cpu_to_le64(1 + i);
		extent.len = cpu_to_le32(i < EXTENTS / 2 ? EXTENTS : 1);
		assert_ok(tree_set(vol, &key, &extent, sizeof(extent)));
	}
	assert_ok(image_edit_end(vol));
	repair(&bed, &told);
	assert_int_equal(told.ino, ino);
	assert_true((clock() - begun) / CLOCKS_PER_SEC < EXTENTS_CPU_S);
	bed_open(&bed);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log_damaged_in_its_middle),
		cmocka_unit_test(test_symlink_cut_short),
		cmocka_unit_test(test_kind_by_its_name),
		cmocka_unit_test(test_symlink_or_file),
		cmocka_unit_test(test_lost_and_found_twice),
		cmocka_unit_test(test_what_is_lost_of_a_file_reads_as_an_error),
		cmocka_unit_test(test_inline_data_says_how_long_it_is),
		cmocka_unit_test(test_many_parent_pointers),
		cmocka_unit_test(test_nothing_is_left),
		cmocka_unit_test(test_limits_that_are_lost),
		cmocka_unit_test(test_blocks_beyond_the_end),
		cmocka_unit_test(test_log_goes_on_anywhere),
		cmocka_unit_test(test_merge_that_does_not_fit),
		cmocka_unit_test(test_log_goes_on_in_the_tree),
		cmocka_unit_test(test_log_goes_on_in_what_is_kept),
		cmocka_unit_test(test_named_directory_without_links),
		cmocka_unit_test(test_inline_data_of_no_length),
		cmocka_unit_test(test_empty_file_with_inline_data),
		cmocka_unit_test(test_extent_with_odd_flags_keeps_its_blocks),
		cmocka_unit_test(test_extent_around_another),
		cmocka_unit_test(test_extents_over_many_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
