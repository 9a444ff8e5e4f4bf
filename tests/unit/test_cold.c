/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Right after a mount nothing is in memory.  Who removes large files and trees, cuts files off, lists directories and all inodes,
 * or checks a volume, then waits for many blocks at once: counted by a disk that does 32 reads at a time, if they are asked for
 * together.
 */
#include "support_lib.h"
#include "core/check/check.h"
#include "core/open.h"
#include "core/tree/tree.h"
#include "user/env/device_slow.h"

#define FALLOC_KEEP_SIZE	0x01
#define FALLOC_PUNCH_HOLE	0x02

static void cold_make(struct bed *bed)
{
	bed_make(bed, 256 << 20, 4096);
	bed_close(bed);
	bed->dev = device_slow_create(bed->dev, 1, DEVICE_READS_MAX);
	assert_non_null(bed->dev);
	bed_open(bed);
}

struct waits {
	struct bed *bed;
	u64 reads, waits;
};

static struct waits waits_begin(struct bed *bed)
{
	return (struct waits){ bed, atomic64_read(&bed->dev->reads), device_slow_clock_ns(bed->dev) };
}

/* Since then at least so many blocks were read, with at most so many waits. */
static void waits_end(const struct waits *from, const char *what, u64 reads_min, u64 waits_max)
{
	u64 reads = atomic64_read(&from->bed->dev->reads) - from->reads;
	u64 waits = device_slow_clock_ns(from->bed->dev) - from->waits;

	print_message("%s: %llu blocks read, %llu waits\n", what, (unsigned long long)reads, (unsigned long long)waits);
	assert_true(reads >= reads_min);
	if (waits > waits_max)
		fail_msg("%s: %llu waits are more than %llu", what, (unsigned long long)waits, (unsigned long long)waits_max);
}

/* ---- files with many extents ---- */

static void make_pieces(struct bed *bed, const char *path, u32 extents)
{
	struct tux3_node *node = bed_file(bed, path);
	u32 i;

	for (i = 0; i < extents; i++)
		assert_int_equal(tux3_write(node, "x", 1, i * 8192ULL), 1);
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed->volume));
	bed_reopen(bed);
}

/* Both the caller and the back end.  A large file goes in slices, over several commits. */
static void remove_pieces(u32 extents, u32 leaves, u32 waits_max)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_stat stat = { .mode = 0755 };
	struct tux3_node *node;
	struct waits waits;

	cold_make(&bed);
	make_pieces(&bed, "file", extents);
	waits = waits_begin(&bed);
	node = bed_find(&bed, "file");
	assert_ok(tux3_fallocate(node, FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE, 0, extents * 8192ULL));
	assert_ok(tux3_sync(bed.volume));
	waits_end(&waits, "punch", leaves, waits_max);
	tux3_node_put(node, 1);

	make_pieces(&bed, "file", extents);
	waits = waits_begin(&bed);
	node = bed_find(&bed, "file");
	assert_ok(tux3_truncate(node, 8192));
	assert_ok(tux3_sync(bed.volume));
	waits_end(&waits, "truncate", leaves, waits_max);
	tux3_node_put(node, 1);

	make_pieces(&bed, "file", extents);
	waits = waits_begin(&bed);
	assert_ok(tux3_unlink(bed.root, NULL, "file"));
	do {
		assert_ok(tux3_setattr(bed.root, NULL, &stat, TUX3_SET_MODE));
		assert_ok(tux3_sync(bed.volume));
	} while (atomic64_read(&tux3_core(bed.volume)->space.deleting));
	waits_end(&waits, "unlink", leaves, waits_max);
	bed_free(&bed);
}

static void files_in_many_pieces(void **state)
{
	remove_pieces(3000, 38, 6);
}

static void files_in_very_many_pieces(void **state)
{
	remove_pieces(40000, 500, 40);
}

/* ---- trees ---- */

static void trees_are_removed(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *dir;
	struct waits waits;
	char name[40];
	u32 d, i;

	cold_make(&bed);
	for (d = 0; d < 10; d++) {
		for (i = 0; i < 2000; i++) {
			snprintf(name, sizeof(name), "d%u/file%u", d, i);
			tux3_node_put(bed_file(&bed, name), 1);
		}
	}
	assert_ok(tux3_sync(bed.volume));
	bed_reopen(&bed);
	waits = waits_begin(&bed);
	for (d = 0; d < 10; d++) {
		snprintf(name, sizeof(name), "d%u", d);
		dir = bed_find(&bed, name);
		for (i = 0; i < 2000; i++) {
			snprintf(name, sizeof(name), "file%u", i);
			assert_ok(tux3_unlink(dir, NULL, name));
		}
		tux3_node_put(dir, 1);
	}
	assert_ok(tux3_sync(bed.volume));
	waits_end(&waits, "removing ten directories of 2,000 files", 800, 80);
	bed_free(&bed);
}

struct names {
	u32 count, max;
	char (*name)[16];
};

static int see_name(void *ctx, const struct tux3_dirent *entry)
{
	struct names *names = ctx;

	if (entry->name[0] != '.') {
		assert_true(names->count < names->max);
		snprintf(names->name[names->count++], sizeof(names->name[0]), "%s", entry->name);
	}
	return 0;
}

/* In the order in which it lists its names, which is that of their hashes: so inodes come in none. */
static void one_directory(u32 files)
{
	struct names names = { .max = files, .name = test_malloc(files * sizeof(names.name[0])) };
	struct bed bed = { .opts.manual = true };
	struct tux3_node *dir, *node;
	struct waits waits;
	uint64_t cookie = 0;
	char name[40];
	u32 i;

	cold_make(&bed);
	for (i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "d/file%u", i);
		tux3_node_put(bed_file(&bed, name), 1);
	}
	assert_ok(tux3_sync(bed.volume));
	bed_reopen(&bed);
	dir = bed_find(&bed, "d");
	waits = waits_begin(&bed);
	while (tux3_readdir(dir, &cookie, see_name, &names) > 0)
		;
	assert_int_equal(names.count, files);
	waits_end(&waits, "listing a directory", files / 80, files / 1000 + 10);
	waits = waits_begin(&bed);
	for (i = 0; i < files; i++) {
		assert_ok(tux3_lookup(dir, NULL, names.name[i], &node));
		tux3_node_put(node, 1);
	}
	waits_end(&waits, "its inodes", files / 30, files / 200);
	tux3_node_put(dir, 1);
	bed_reopen(&bed);
	dir = bed_find(&bed, "d");
	waits = waits_begin(&bed);
	for (i = 0; i < files; i++)
		assert_ok(tux3_unlink(dir, NULL, names.name[i]));
	assert_ok(tux3_sync(bed.volume));
	waits_end(&waits, "removing it", files / 30, files / 120);
	tux3_node_put(dir, 1);
	bed_free(&bed);
	test_free(names.name);
}

static void directories_in_their_own_order(void **state)
{
	one_directory(15000);
}

/* Its names are not all brought to memory at once. */
static void large_directories_in_their_own_order(void **state)
{
	one_directory(30000);
}

/* ---- all of a volume ---- */

static void all_inodes_and_the_check(void **state)
{
	struct volume_options opts = { .read_only = true };
	struct bed bed = { .opts.manual = true };
	static const u32 portions[] = { 64, 1024 };
	static struct tux3_stat stats[1024];
	struct check_options check = {};
	struct check_result result = {};
	struct waits waits;
	struct volume *vol;
	char name[40], why[256];
	uint64_t ino, told;
	int n;
	u32 i;

	cold_make(&bed);
	for (i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "d%u/file%u", i % 7, i);
		tux3_node_put(bed_file(&bed, name), 1);
	}
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < ARRAY_SIZE(portions); i++) {
		bed_reopen(&bed);
		waits = waits_begin(&bed);
		for (ino = told = 0; (n = tux3_bulkstat(bed.volume, &ino, stats, portions[i])) > 0; told += n)
			;
		assert_int_equal(told, 20000 + 7 + 1);
		waits_end(&waits, "all inodes", 800, 90);
	}
	bed_close(&bed);
	assert_ok(volume_open(bed.dev, NULL, &opts, &vol, why, sizeof(why)));
	waits = waits_begin(&bed);
	assert_ok(volume_check(vol, &check, &result));
	assert_int_equal(result.problems, 0);
	waits_end(&waits, "the check", 1000, 80);
	volume_close(vol);
	bed_open(&bed);
	bed_free(&bed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_in_many_pieces),
		cmocka_unit_test(files_in_very_many_pieces),
		cmocka_unit_test(trees_are_removed),
		cmocka_unit_test(directories_in_their_own_order),
		cmocka_unit_test(large_directories_in_their_own_order),
		cmocka_unit_test(all_inodes_and_the_check),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
