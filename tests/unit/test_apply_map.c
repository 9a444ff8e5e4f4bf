/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What EXTENT_MAP records do to the extents of a file (core/log/apply.c): a model cuts what was there, inserts the new extent
 * and joins it to the one before it, block by block and in no other way.  However apply.c came to it, the tree must have the
 * same extents afterwards, and the same blocks must have been freed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "support_tree.h"
#include "core/log/apply.h"
#include "core/log/log.h"

#define BLOCK		4096u
#define VOLUME_BLOCKS	16384u
#define AREA		4096u	/* of the volume: extents are from here on */
#define AREA_BLOCKS	8192u
#define INO		100u
#define FILE_BLOCKS	2048u

struct extent {
	u64 block, addr, birth;
	u32 len, flags;
	u32 csum[TUX3_EXTENT_CSUM_MAX(BLOCK)];
};

struct file {
	struct tree_fixture *fixture;
	struct volume *vol;
	struct extent extents[FILE_BLOCKS];	/* in order */
	u32 count, seen;
	bool used[AREA_BLOCKS], freed[AREA_BLOCKS];
	u64 blocks;				/* what the file has */
	u32 csums;				/* for each block another one */
};

/* ---- the model ---- */

static void model_insert(struct file *file, u32 at, const struct extent *extent)
{
	check(file->count < FILE_BLOCKS);
	memmove(file->extents + at + 1, file->extents + at, (file->count - at) * sizeof(*extent));
	file->extents[at] = *extent;
	file->count++;
}

static struct extent extent_part(const struct extent *from, u32 skip, u32 len)
{
	struct extent part = *from;

	part.block += skip;
	part.addr += skip;
	part.len = len;
	memmove(part.csum, part.csum + skip, min_t(u32, len, ARRAY_SIZE(part.csum) - skip) * sizeof(u32));
	return part;
}

/* The blocks [block, end) go; those that stay where they are, as the new extent says, are not freed. */
static void model_punch(struct file *file, u64 block, u64 end, u64 keep_addr)
{
	u32 i, n;

	for (i = 0; i < file->count;) {
		struct extent old = file->extents[i];
		u64 from = max(old.block, block), to = min(old.block + old.len, end);

		if (from >= to) {
			i++;
			continue;
		}
		for (n = from - old.block; n < to - old.block; n++)
			if (!keep_addr || old.addr + n != keep_addr + (old.block + n - block))
				file->freed[old.addr + n - AREA] = true;
		file->blocks -= to - from;
		memmove(file->extents + i, file->extents + i + 1, (file->count - i - 1) * sizeof(old));
		file->count--;
		if (from > old.block) {
			struct extent head = extent_part(&old, 0, from - old.block);

			model_insert(file, i++, &head);
		}
		if (to < old.block + old.len) {
			struct extent tail = extent_part(&old, to - old.block, old.block + old.len - to);

			model_insert(file, i++, &tail);
		}
	}
}

static void model_map(struct file *file, const struct extent *new)
{
	u32 limit = new->flags & TUX3_EXTENT_CSUM ? TUX3_EXTENT_CSUM_MAX(BLOCK) : TUX3_EXTENT_MAX, i;
	struct extent *before;

	model_punch(file, new->block, new->block + new->len, new->addr);
	file->blocks += new->len;
	for (i = 0; i < file->count && file->extents[i].block < new->block; i++)
		;
	before = i ? &file->extents[i - 1] : NULL;
	if (before && before->block + before->len == new->block && before->addr + before->len == new->addr &&
	    before->flags == new->flags && before->len + new->len <= limit) {
		if (new->flags & TUX3_EXTENT_CSUM)
			memcpy(before->csum + before->len, new->csum, new->len * sizeof(u32));
		before->len += new->len;
		before->birth = new->birth;
	} else {
		model_insert(file, i, new);
	}
}

/* ---- the tree ---- */

static int compare_extent(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct file *file = ctx;
	const struct extent *want = &file->extents[file->seen];
	struct disk_extent found;
	u32 csums;

	check(file->seen < file->count);
	file->seen++;
	memcpy(&found, data, sizeof(found));
	csums = want->flags & TUX3_EXTENT_CSUM ? want->len : 0;
	check(key->offset == want->block && le64_to_cpu(found.addr) == want->addr && le32_to_cpu(found.len) == want->len);
	check(le32_to_cpu(found.flags) == want->flags && le64_to_cpu(found.birth) == want->birth);
	check(len == sizeof(found) + csums * sizeof(u32));
	check(!memcmp((const u8 *)data + sizeof(found), want->csum, csums * sizeof(u32)));
	return 0;
}

static void compare_freed(struct file *file)
{
	const struct range_list *list = &file->vol->log.freed;
	u32 i, n;

	for (i = 0; i < list->count; i++) {
		for (n = 0; n < list->ranges[i].len; n++) {
			bool *freed = &file->freed[list->ranges[i].addr + n - AREA];

			check(*freed);		/* once, and no other block */
			*freed = false;
			file->used[freed - file->freed] = false;
		}
	}
	for (i = 0; i < AREA_BLOCKS; i++)
		check(!file->freed[i]);
	check(!balloc_release(file->vol, &file->vol->log.freed));
}

static void compare(struct file *file)
{
	struct tree_key first = tree_key(INO, TUX3_ITEM_EXTENT, 0), last = tree_key(INO, TUX3_ITEM_EXTENT, U64_MAX);

	file->seen = 0;
	check(!tree_scan(file->vol, &first, &last, compare_extent, file));
	check(file->seen == file->count);
	check(file->vol->log.blocks_delta == (s64)file->blocks);
	compare_freed(file);
}

static int apply(struct file *file, enum tux3_record_type type, const struct record_extent *record, u32 len)
{
	struct volume *vol = file->vol;
	struct tree_merge merge;
	int err;

	tree_edit_begin(vol);
	err = apply_record(vol, type, record, len);
	while (!err && tree_next_merge(vol, &merge))
		err = tree_merge(vol, &merge);
	tree_edit_end(vol);
	return err;
}

/* Is this run of the area free?  Then it is no more. */
static bool area_take(struct file *file, u64 addr, u32 len)
{
	u32 i;

	if (addr < AREA || addr + len > AREA + AREA_BLOCKS)
		return false;
	for (i = 0; i < len; i++)
		if (file->used[addr - AREA + i])
			return false;
	memset(file->used + (addr - AREA), true, len);
	check(!balloc_take(file->vol, addr, len));
	return true;
}

/* Blocks of the file are now here.  The addresses were taken, or the file has them already. */
static void map_at(struct file *file, u64 block, u32 len, u64 addr, u32 flags)
{
	static struct {
		struct record_extent head;
		__le32 csum[TUX3_EXTENT_CSUM_MAX(BLOCK)];
	} record;
	static struct extent new;
	u32 csums = flags & TUX3_EXTENT_CSUM ? len : 0, i;

	new = (struct extent){ .block = block, .addr = addr, .birth = file->vol->delta.applying, .len = len, .flags = flags };
	record.head = (struct record_extent){
		.ino = cpu_to_le64(INO), .block = cpu_to_le64(block), .count = cpu_to_le64(len), .addr = cpu_to_le64(addr),
		.flags = cpu_to_le32(flags),
	};
	for (i = 0; i < csums; i++) {
		new.csum[i] = ++file->csums;
		record.csum[i] = cpu_to_le32(new.csum[i]);
	}
	check(!apply(file, TUX3_RECORD_EXTENT_MAP, &record.head, sizeof(record.head) + csums * sizeof(u32)));
	model_map(file, &new);
	compare(file);
	file->vol->delta.applying++;
}

/* The same with blocks from anywhere, none of which continue what is before them but by chance. */
static void map_somewhere(struct file *file, u64 *random, u64 block, u32 len, u32 flags)
{
	u64 addr;

	do {
		addr = AREA + test_below(random, AREA_BLOCKS);
	} while (!area_take(file, addr, len));
	map_at(file, block, len, addr, flags);
}

static void punch_all(struct file *file)
{
	struct record_extent record = { .ino = cpu_to_le64(INO), .count = cpu_to_le64(DATA_END) };

	check(!apply(file, TUX3_RECORD_EXTENT_PUNCH, &record, sizeof(record)));
	model_punch(file, 0, FILE_BLOCKS, 0);
	compare(file);
}

/* With items of other inodes before and behind the file's extents. */
static struct file *file_open(void)
{
	struct file *file = calloc(1, sizeof(*file));
	struct tree_key key = tree_key(INO - 1, TUX3_ITEM_EXTENT, 5);

	check(file);
	file->fixture = fixture_open(BLOCK, VOLUME_BLOCKS, 0);
	file->vol = &file->fixture->vol;
	check(!log_init(file->vol));
	check(!fixture_set(file->fixture, &key, 24));
	key = tree_key(INO, TUX3_ITEM_ATTR, 0);
	check(!fixture_set(file->fixture, &key, 100));
	key = tree_key(INO + 1, TUX3_ITEM_ATTR, 0);
	check(!fixture_set(file->fixture, &key, 100));
	return file;
}

static void file_close(struct file *file)
{
	punch_all(file);
	log_exit(file->vol);
	fixture_close(file->fixture);
	free(file);
}

/* ---- the tests ---- */

static const u32 kinds[] = { 0, TUX3_EXTENT_CSUM, TUX3_EXTENT_UNWRITTEN, TUX3_EXTENT_UNCHECKED };

/* Two neighbours, a hole, one more; each range over that: whole, head, tail, middle, holes, several, from block 0 on. */
static void test_each_range(void **state)
{
	struct file *file = file_open();
	u64 random = 7, block;
	u32 old, new, len;

	for (old = 0; old < ARRAY_SIZE(kinds); old++) {
		for (new = 0; new < ARRAY_SIZE(kinds); new++) {
			for (block = 0; block < 16; block++) {
				for (len = 1; len <= 16 - block; len++) {
					map_somewhere(file, &random, 0, 4, kinds[old]);
					map_somewhere(file, &random, 4, 3, kinds[old]);
					map_somewhere(file, &random, 10, 4, kinds[old]);
					map_somewhere(file, &random, block, len, kinds[new]);
					punch_all(file);
				}
			}
		}
	}
	file_close(file);
}

/* Addresses that go on where the extent before ends, or that lead on into the one behind; the blocks that are there already. */
static void test_joins(void **state)
{
	struct file *file = file_open();
	u64 addr = AREA + 100;
	u32 i, step;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		for (step = 0; step < 3; step++) {
			check(area_take(file, addr, 30));
			map_at(file, 10, 5, addr, kinds[i]);
			map_at(file, 15, 5, addr + 5, kinds[i]);	/* joined */
			map_at(file, 25, 5, addr + 15, kinds[i]);
			map_at(file, 20 + step, 5 - step, addr + 10 + step, kinds[i]);
			map_at(file, 12, 3, addr + 20, kinds[i]);	/* over a middle */
			map_at(file, 15, 3, addr + 23, kinds[i]);	/* on from there */
			map_at(file, 18, 2, addr + 8, kinds[i]);	/* where it is */
			map_at(file, 9, 1, addr + 29, kinds[i]);
			punch_all(file);
			memset(file->used, false, sizeof(file->used));
			addr += 100;
		}
	}
	file_close(file);
}

/* Extents in several leaves: over each block of them, by itself and with what follows, whatever the leaf's first and last is. */
static void test_leaf_borders(void **state)
{
	static const u32 lens[] = { 1, 2, 3, 7 };
	struct file *file = file_open();
	u64 random = 11, block;
	u32 i;

	for (block = 0; block < 700; block += 4)
		map_somewhere(file, &random, block, 3, TUX3_EXTENT_CSUM);
	check(file->vol->tree.root_level);
	for (i = 0; i < ARRAY_SIZE(lens); i++)
		for (block = i; block < 700; block++)
			map_somewhere(file, &random, block, lens[i], TUX3_EXTENT_CSUM);
	punch_all(file);
	for (block = 1400; block >= 3; block -= 3)	/* and holes, from the end on */
		map_somewhere(file, &random, block, 2, 0);
	for (block = 0; block < 1400; block++)
		map_somewhere(file, &random, block, 1, 0);
	file_close(file);
}

static void run_random(u64 *random)
{
	struct file *file = file_open();
	u32 blocks = 50 << test_below(random, 5), longest = 1 + test_below(random, 60), i;

	for (i = 0; i < 400; i++) {
		u32 len = 1 + test_below(random, longest), flags = kinds[test_below(random, 4) % 3];
		u64 block = test_below(random, blocks);
		const struct extent *one = file->count ? &file->extents[test_below(random, file->count)] : NULL;

		if (one && !test_below(random, 3) && area_take(file, one->addr + one->len, len))
			map_at(file, one->block + one->len, len, one->addr + one->len, one->flags);
		else
			map_somewhere(file, random, block, len, flags);
	}
	file_close(file);
}

static void test_random_ranges(void **state)
{
	run_seeds("test_random_ranges", 30, run_random);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_range),
		cmocka_unit_test(test_joins),
		cmocka_unit_test(test_leaf_borders),
		cmocka_unit_test(test_random_ranges),
	};

	return cmocka_run_group_tests_name("apply map", tests, NULL, NULL);
}
