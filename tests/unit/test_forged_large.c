/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Forged volumes on which checker and repair must not take more time or memory than their bytes are worth.
 */
#include "support_image.h"
#include "support_lib.h"
#include "core/open.h"
#include "core/format/name_hash.h"
#include "core/repair/repair.h"
#include "core/tree/tree.h"
#include "user/env/fault.h"

#include <string.h>
#include <time.h>

#define BYTES	(512u << 20)
#define NAMES	FEWER(10000u, 3000u)
#define ITEMS	FEWER(30000u, 3000u)
#define LEAVES	FEWER(90000u, 3000u)
#define MEMORY_MAX	(32 << 20)
#define SECONDS_MAX	20	/* a second is much */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LEAVES_SECONDS	SECONDS_MAX
#else
#define LEAVES_SECONDS	3	/* 0.7; with the square of their number it took 6 */
#endif

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void repair(struct bed *bed, bool lost)
{
	struct repair_options opts = {};
	struct repair_result result;
	char why[300] = "";
	double since = seconds();
	long peak;

	env_memory_count(true);
	if (volume_repair(bed->dev, &opts, &result, why, sizeof(why)))
		fail_msg("repair: %s", why);
	peak = env_memory_peak();
	env_memory_count(false);
	assert_true(peak < MEMORY_MAX);
	assert_true(seconds() - since < SECONDS_MAX);
	assert_int_equal(result.notes[REPAIR_LEFT], 0);
	assert_int_equal(!!result.notes[REPAIR_LOST], lost);
	assert_int_equal(volume_repair(bed->dev, &opts, &result, why, sizeof(why)), 0);
	assert_false(result.written);
}

/* Of a file, all where the first one is. */
static void same_blocks(u32 count, u32 len, u32 step, bool use)
{
	struct bed bed = { .opts.manual = true };
	struct disk_extent extent = {};
	struct volume *vol;
	u64 ino;
	u32 i;

	bed_make(&bed, BYTES, 4096);
	ino = bed_file_ino(&bed, "/file");
	bed_close(&bed);
	vol = bed_edit(&bed);
	extent.birth = cpu_to_le64(1);
	extent.len = cpu_to_le32(len);
	extent.flags = cpu_to_le32(TUX3_EXTENT_UNWRITTEN);
	for (i = 0; i < count; i++) {
		struct tree_key key = tree_key(ino, TUX3_ITEM_EXTENT, (u64)i * len);

		extent.addr = cpu_to_le64(vol->group_blocks + 10 + i * step % 2000);
		assert_ok(tree_set(vol, &key, &extent, sizeof(extent)));
	}
	assert_ok(image_edit_end(vol));
	if (use) {	/* it goes, and takes nothing along */
		bed_open(&bed);
		assert_ok(tux3_path_unlink(bed.volume, NULL, "/file"));
		assert_ok(tux3_sync(bed.volume));
		tux3_node_put(bed.root, 1);
		tux3_abandon(bed.volume);
	}
	repair(&bed, !use);
	bed_open(&bed);
	bed_free(&bed);
}

/* A name, and what it leads to. */
static void set_dirent(struct volume *vol, u64 dir, const char *name, u64 ino)
{
	u32 len = strlen(name);
	struct tree_key key = tree_key(dir, TUX3_ITEM_DIRENT, name_hash(vol, dir, TUX3_ITEM_DIRENT, name, len));
	struct disk_dirent head = { .ino = cpu_to_le64(ino), .type = S_IFDIR >> 12, .len = len };
	u8 bytes[300];

	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), name, len);
	assert_ok(tree_set(vol, &key, bytes, sizeof(head) + len));
}

static void set_parent(struct volume *vol, u64 ino, const char *name, u64 dir)
{
	u32 len = strlen(name);
	struct tree_key key = tree_key(ino, TUX3_ITEM_PARENT, name_hash(vol, dir, TUX3_ITEM_PARENT, name, len));
	struct disk_parent head = { .dir = cpu_to_le64(dir), .len = len };
	u8 bytes[300];

	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), name, len);
	assert_ok(tree_set(vol, &key, bytes, sizeof(head) + len));
}

/* Names that lead to the root, and it says that it has others. */
static void test_names_of_the_root(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct volume *vol;
	char name[40];
	u64 dir;
	u32 i;

	bed_make(&bed, BYTES, 4096);
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "/dir", 0755));
	node = bed_find(&bed, "/dir");
	dir = tux3_node_ino(node);
	tux3_node_put(node, 1);
	bed_close(&bed);
	vol = bed_edit(&bed);
	for (i = 0; i < NAMES; i++) {
		sprintf(name, "name%u", i);
		set_dirent(vol, dir, name, TUX3_INO_ROOT);
		set_parent(vol, TUX3_INO_ROOT, name, TUX3_INO_ROOT);
	}
	assert_ok(image_edit_end(vol));
	repair(&bed, true);
	bed_open(&bed);
	bed_free(&bed);
}

/* Of a file, many items that cannot be, each of which is told, and as many that can. */
static void test_items_that_cannot_be(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct disk_extent extent = { .birth = cpu_to_le64(1), .len = cpu_to_le32(1), .flags = cpu_to_le32(TUX3_EXTENT_UNWRITTEN) };
	struct volume *vol;
	struct tree_key key;
	u64 ino;
	u32 i;

	bed_make(&bed, BYTES, 4096);
	ino = bed_file_ino(&bed, "/file");
	bed_close(&bed);
	vol = bed_edit(&bed);
	for (i = 0; i < ITEMS; i++) {
		key = tree_key(ino, TUX3_ITEM_INLINE, i + 1);
		assert_ok(tree_set(vol, &key, "x", 1));
		key = tree_key(ino, TUX3_ITEM_EXTENT, 2 * i);
		extent.addr = cpu_to_le64(vol->group_blocks + 10 + (i & ~1u) + !(i & 1));	/* none is joined with another */
		assert_ok(tree_set(vol, &key, &extent, sizeof(extent)));
	}
	assert_ok(image_edit_end(vol));
	repair(&bed, true);
	bed_open(&bed);
	bed_free(&bed);
}

/* Leaves all over the volume, of as many deltas, each with a key below those of newer ones; and nothing leads to them. */
static void test_leaves_of_many_deltas(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct disk_node *node;
	struct disk_item *item;
	struct volume *vol;
	u64 addr, root, id, groups, n;
	u32 group_blocks;
	char name[40];
	double since;
	u8 *bytes;

	bed_make(&bed, BYTES, 4096);
	for (n = 0; n < 200; n++) {	/* several leaves */
		sprintf(name, "/name%llu", (unsigned long long)n);
		bed_file_ino(&bed, name);
	}
	bed_reopen(&bed);
	vol = tux3_core(bed.volume);
	assert_true(vol->tree.root_level);
	root = vol->tree.root_addr;
	id = vol->id;
	groups = vol->group_count;
	group_blocks = vol->group_blocks;
	bed_close(&bed);
	bytes = device_memory_bytes(bed.dev);
	for (addr = group_blocks + 2, n = 1; n <= LEAVES; addr++) {
		if (addr % group_blocks < 2)
			continue;
		node = (struct disk_node *)(bytes + addr * 4096);
		item = (struct disk_item *)(node + 1);
		*node = (struct disk_node){
			.magic = cpu_to_le32(TUX3_NODE_MAGIC), .volume_id = cpu_to_le64(id), .addr = cpu_to_le64(addr),
			.birth = cpu_to_le64(n), .count = cpu_to_le16(1), .data_start = cpu_to_le32(4095),
		};
		item->key.ino_type = cpu_to_le64(3ull << 8 | TUX3_ITEM_INLINE);
		item->key.offset = cpu_to_le64(n++);
		item->at = cpu_to_le16(4095);
		item->len = cpu_to_le16(1);
		node->crc = cpu_to_le32(crc32c(~0u, node, 4096));
	}
	memset(bytes + root * 4096, 0x55, 4096);
	for (n = 0; n < groups; n++)
		memset(bytes + (n ? n * group_blocks : 48) * 4096, 0x55, 2 * 4096);
	since = seconds();
	repair(&bed, true);
	assert_true(seconds() - since < LEAVES_SECONDS);
	bed_open(&bed);
	bed_close(&bed);
	/* Its data is not checked: an inode whose items were in the lost leaf and in the next one may have lost a block. */
	bed.dev->ops->close(bed.dev);
}

static void test_same_blocks(void **state)
{
	same_blocks(400, 30000, 0, false);
	same_blocks(400, 30000, 7, false);
	/* Over free maps that are in between. */
	same_blocks(100, 40000, 3, false);
	same_blocks(1, 40000, 0, true);
	same_blocks(3, 20000, 1, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_blocks),
		cmocka_unit_test(test_names_of_the_root),
		cmocka_unit_test(test_items_that_cannot_be),
		cmocka_unit_test(test_leaves_of_many_deltas),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("forged, large", tests, NULL, NULL);
}
