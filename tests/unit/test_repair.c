/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair of volumes with much in them that were damaged at random places: tree nodes, free maps, the log, anchors, data.
 *
 * What must hold afterwards: the checker is silent, a second repair finds nothing to do, the volume can be used; and no file that
 * has its name has contents that nobody wrote, without an error and without having been told of.  TUX3_TEST_RUNS: so many cases.
 */
#include "support_lib.h"
#include "support_check.h"
#include "core/check/check.h"
#include "core/format/anchor.h"
#include "core/open.h"
#include "core/repair/repair.h"
#include "core/tree/tree_internal.h"
#include "user/env/fault.h"

#include <string.h>

#define BYTES		(64u << 20)
#define FILES		240u
#define DIRECTORIES	12u
#define FILE_MAX	(40u << 10)
#define SEEDS		60u

/* ---- a volume with everything ---- */

static u64 file_seed(u32 n)
{
	return 1000003ULL * (n + 1);
}

static u32 file_size(u32 n)
{
	u64 state = file_seed(n);
	u32 size = bed_random(&state);

	return n % 3 ? size % 3000 : size % FILE_MAX;
}

static void file_bytes(u32 n, u8 *data, u32 size)
{
	u64 state = file_seed(n) ^ 77;
	u32 i;

	for (i = 0; i < size; i++)
		data[i] = bed_random(&state);
}

static void file_path(char *path, u32 n)
{
	sprintf(path, "/d%u/e%u/file-%u", n % DIRECTORIES, n % 3, n);
}

static void fill(struct bed *bed, u32 from, u32 to, bool log)
{
	static u8 data[FILE_MAX];
	struct tux3_node *node, *dir;
	char path[100], name[40];
	u32 n;

	for (n = from; n < to; n++) {
		file_path(path, n);
		node = bed_file(bed, path);
		file_bytes(n, data, file_size(n));
		assert_int_equal(tux3_write(node, data, file_size(n), 0), file_size(n));
		if (n % 5 == 0)
			assert_ok(tux3_setxattr(node, NULL, "user.large", data, 6000, 0));
		if (n % 7 == 0)
			assert_ok(tux3_setxattr(node, NULL, "user.small", data, 20, 0));
		sprintf(name, "link-%u", n);
		if (n % 11 == 0)
			assert_ok(tux3_link(node, NULL, bed->root, name));
		if (n % 13 == 0)
			assert_ok(tux3_fallocate(node, 1, FILE_MAX, 1 << 16));
		tux3_node_put(node, 1);
		sprintf(path, "/d%u", n % DIRECTORIES);
		dir = bed_find(bed, path);
		sprintf(name, "symlink-%u", n);
		if (n % 4 == 0) {
			assert_ok(tux3_symlink(dir, NULL, name, "to/what/ever", &node));
			tux3_node_put(node, 1);
		}
		tux3_node_put(dir, 1);
	}
	assert_ok(tux3_sync(bed->volume));
	if (!log) {
		assert_ok(delta_commit_unify(tux3_core(bed->volume)));
	}
}

/* ---- damage ---- */

struct places {
	u64 addr[4096];
	u32 count;
	u32 shift;		/* of the block size */
};

static int note_place(void *ctx, const struct tree_visit *visit)
{
	struct places *places = ctx;

	if (visit->data && !node_unplaced(visit->addr) && places->count < ARRAY_SIZE(places->addr))
		places->addr[places->count++] = visit->addr;
	return 0;
}

/* All blocks of metadata: nodes, the two slots of the map, the log. */
static void find_places(struct bed *bed, struct places *places)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	struct volume *vol;
	char why[256];
	u64 addr;

	places->count = 0;
	assert_int_equal(volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	places->shift = vol->block_shift;
	assert_ok(tree_walk(vol, note_place, places));
	places->addr[places->count++] = balloc_slot_addr(vol, 0, 0);
	places->addr[places->count++] = balloc_slot_addr(vol, 0, 1);
	for (addr = 1; addr < vol->total_blocks && places->count < ARRAY_SIZE(places->addr); addr++) {
		const struct disk_log *log = (const void *)((u8 *)device_memory_bytes(bed->dev) + (addr << vol->block_shift));

		if (le32_to_cpu(log->magic) == TUX3_LOG_MAGIC && le64_to_cpu(log->addr) == addr &&
		    le64_to_cpu(log->seq) >= le64_to_cpu(vol->anchor.log_seq))
			places->addr[places->count++] = addr;
	}
	assert_ok(volume_close(vol));
}

static void damage(struct bed *bed, const struct places *places, u64 *state, u32 count)
{
	u8 *bytes = device_memory_bytes(bed->dev);
	u32 size = 1u << places->shift, i, k;

	for (i = 0; i < count; i++) {
		u8 *block = bytes + (places->addr[bed_random(state) % places->count] << places->shift);

		switch (bed_random(state) % 3) {
		case 0:
			memset(block, 0, size);
			break;
		case 1:
			for (k = 0; k < size; k++)
				block[k] = bed_random(state);
			break;
		default:
			block[bed_random(state) % size] ^= 1u << bed_random(state) % 8;
		}
	}
	/* One of the four anchors. */
	if (bed_random(state) % 4 == 0)
		memset(bytes + anchor_slot_offset(BYTES, bed_random(state) % 4), 0xee, 512);
}

/* Numbers in nodes that have the right checksum all the same. */
static void damage_inside(struct bed *bed, const struct places *places, u64 *state, u32 count)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	u8 *bytes = device_memory_bytes(bed->dev);
	struct volume *vol;
	char why[256];
	u32 i;

	assert_int_equal(volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	for (i = 0; i < count; i++) {
		struct disk_node *node = (void *)(bytes + (places->addr[bed_random(state) % places->count] << places->shift));
		u32 from, item;

		if (le32_to_cpu(node->magic) != TUX3_NODE_MAGIC || node_level(node) || !node_count(node))
			continue;
		item = bed_random(state) % node_count(node);
		from = leaf_at(node, item);
		if (!leaf_len(node, item))
			continue;
		((u8 *)node)[from + bed_random(state) % leaf_len(node, item)] ^= 1u << bed_random(state) % 8;
		node_seal(vol, node);
	}
	assert_ok(volume_close(vol));
}

/* ---- repair, and what must hold then ---- */

struct told {
	bool lost;
	bool print;
	u8 ino_lost[65536 / 8];
};

static void on_note(void *ctx, const struct repair_note *note)
{
	static const char *const kinds[REPAIR_KINDS] = { "mended", "found", "lost", "left" };
	struct told *told = ctx;

	if (told->print)
		print_error("  %s: %s\n", kinds[note->kind], note->text);
	if (note->kind == REPAIR_LOST && note->ino < 65536)
		told->ino_lost[note->ino / 8] |= 1u << note->ino % 8;
	told->lost |= note->kind == REPAIR_LOST;
}

static int tell_problem(void *ctx, const struct check_problem *problem)
{
	if (problem->code == CHECK_DATA_CSUM || problem->code == CHECK_XATTR_VALUE)
		return 0;
	print_error("check: %s: %s\n", problem->name, problem->text);
	++*(u32 *)ctx;
	return 0;
}

static u32 problems(struct bed *bed)
{
	u32 count = 0;
	struct volume_options opts = { .read_only = true };
	struct check_options check = { .data = true, .problem = tell_problem, .ctx = &count };
	struct check_result result = {};
	struct volume *vol;
	char why[256] = "";

	if (volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why))) {
		print_error("open: %s\n", why);
		return 1;
	}
	assert_ok(volume_check(vol, &check, &result));
	assert_ok(volume_close(vol));
	return count;
}

/* How many files are where they were, with what was written to them. */
static u32 compare(struct bed *bed, const struct told *told, bool contents)
{
	static u8 data[FILE_MAX + 1], want[FILE_MAX];
	struct tux3_node *node;
	struct tux3_stat stat = {};
	char path[100];
	u32 n, whole = 0;
	ssize_t got;

	for (n = 0; n < FILES; n++) {
		file_path(path, n);
		node = bed_find(bed, path);
		if (!node)
			continue;
		tux3_stat_node(node, &stat);
		got = tux3_read(node, data, sizeof(data), 0);
		file_bytes(n, want, file_size(n));
		if (got == file_size(n) && !memcmp(data, want, got)) {
			whole++;
		} else if (contents && got >= 0 && !(told->ino_lost[stat.ino / 8] & 1u << stat.ino % 8)) {
			print_error("%s (inode %llu) has %zd bytes, of %u; that was not told\n", path,
				    (unsigned long long)stat.ino, got, file_size(n));
			check(false);
		}
		tux3_node_put(node, 1);
	}
	return whole;
}

static void use(struct bed *bed)
{
	struct tux3_node *node = bed_file(bed, "/new/and/deep/file");

	assert_int_equal(tux3_write(node, "contents", 8, 123456), 8);
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed->volume));
}

static void repair_one(struct bed *bed, const struct places *places, u64 seed, u64 *whole)
{
	u64 state = seed;
	u32 count = 1 + bed_random(&state) % (seed % 5 ? 4 : places->count / 3), left;
	bool inside = seed % 3 == 0;
	struct told told = { .print = getenv("TUX3_TEST_SEED") }, again_told = { .print = true };
	struct repair_options opts = { .note = on_note, .ctx = &told }, again_opts = { .note = on_note, .ctx = &again_told };
	struct repair_result result, again;
	char why[300];
	int err;

	if (inside)
		damage_inside(bed, places, &state, 4 * count);
	else
		damage(bed, places, &state, count);
	err = volume_repair(bed->dev, &opts, &result, why, sizeof(why));
	if (err)
		print_error("repair: %d, %s\n", err, why);
	check(!err);
	left = problems(bed);
	check(!left);
	check(!result.notes[REPAIR_LEFT]);
	err = volume_repair(bed->dev, &again_opts, &again, why, sizeof(why));
	check(!err && !again.written);
	bed_open(bed);
	/* What was changed inside of a node, with its checksum, may be the very contents of a small file. */
	*whole += compare(bed, &told, !inside);
	use(bed);
	bed_close(bed);
	check(!problems(bed));
}

static void run_seeds(bool log, u32 block_size)
{
	struct bed bed = { .quota = true, .opts.manual = true };
	u32 seeds = getenv("TUX3_TEST_SEED") ? 1 : getenv("TUX3_TEST_RUNS") ? atoi(getenv("TUX3_TEST_RUNS")) : SEEDS, i;
	u64 first = 1, whole = 0;
	struct places places;
	struct bed_saved *saved;

	check_begin(block_size > 4096 ? "large_blocks" : log ? "with_a_log" : "without_log", first);
	first = test_seed;
	bed_make(&bed, BYTES, block_size);
	fill(&bed, 0, log ? FILES - 40 : FILES, false);
	if (log) {
		fill(&bed, FILES - 40, FILES, true);
		bed_crash(&bed);
		tux3_node_put(bed.root, 1);
		tux3_abandon(bed.volume);
	} else {
		bed_close(&bed);
	}
	find_places(&bed, &places);
	saved = bed_save(&bed);
	for (i = 0; i < seeds; i++) {
		test_seed = first + i;
		bed_restore(&bed, saved);
		repair_one(&bed, &places, test_seed, &whole);
	}
	print_message("%u nodes, maps and log blocks; %llu of %u files whole and in their places\n", places.count,
		      (unsigned long long)whole, seeds * FILES);
	bed_saved_free(saved);
	bed.dev->ops->close(bed.dev);
}

/* ---- power cuts ---- */

/* told: what was, by repairs before this one, too. */
static u32 repair_again(struct bed *bed, struct told *told, u64 *whole)
{
	struct repair_options opts = { .note = on_note, .ctx = told };
	struct repair_result result;
	char why[300];
	u32 before = atomic64_read(&bed->dev->writes), writes;

	check(!volume_repair(bed->dev, &opts, &result, why, sizeof(why)));
	writes = atomic64_read(&bed->dev->writes) - before;
	check(!problems(bed));
	bed_open(bed);
	*whole = compare(bed, told, true);
	bed_close(bed);
	return writes;
}

/* Interrupted after any of its writes, and begun again, repair comes to the same end. */
static void test_interrupted(void **state)
{
	struct bed bed = { .quota = true, .opts.manual = true };
	struct repair_options opts = {};
	static struct told told;
	struct repair_result result;
	struct places places;
	u64 random, want, whole;
	u32 writes, cut, round;
	char why[300];
	struct bed_saved *saved;

	check_begin("interrupted", 1);
	bed_make(&bed, BYTES, 4096);
	fill(&bed, 0, FILES - 40, false);
	fill(&bed, FILES - 40, FILES, true);
	bed_crash(&bed);
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	find_places(&bed, &places);
	saved = bed_save(&bed);
	for (round = 0; round < 4; round++) {
		random = test_seed + round;
		bed_restore(&bed, saved);
		damage(&bed, &places, &random, 3 + round);
		memset(&told, 0, sizeof(told));
		writes = repair_again(&bed, &told, &want);
		for (cut = 0; cut < writes; cut++) {
			random = test_seed + round;
			bed_restore(&bed, saved);
			damage(&bed, &places, &random, 3 + round);
			bed_cut_after(&bed, cut);
			check(volume_repair(bed.dev, &opts, &result, why, sizeof(why)));
			bed_cut_over(&bed);
			repair_again(&bed, &told, &whole);
			if (whole != want)
				print_error("cut after %u of %u writes: %llu files instead of %llu\n", cut, writes,
					    (unsigned long long)whole, (unsigned long long)want);
			check(whole == want);
		}
	}
	bed_saved_free(saved);
	bed.dev->ops->close(bed.dev);
}

/* Without any anchor: what was there at the last unify comes back, if one asks for a search. */
static void no_anchors(u32 block_size)
{
	struct bed bed = { .quota = true, .opts.manual = true };
	static struct told told;
	struct repair_options opts = { .note = on_note, .ctx = &told };
	struct repair_result result;
	char why[300];
	u64 whole;
	u32 n;

	memset(&told, 0, sizeof(told));
	told.print = getenv("TUX3_TEST_SEED");
	check_begin("no_anchors", 1);
	bed_make(&bed, BYTES, block_size);
	fill(&bed, 0, FILES, false);
	bed_close(&bed);
	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++)
		memset((u8 *)device_memory_bytes(bed.dev) + anchor_slot_offset(BYTES, n), 0xee, 4096);
	check(volume_repair(bed.dev, &opts, &result, why, sizeof(why)) && !result.written);
	opts.search = true;
	opts.safe = true;
	check(volume_repair(bed.dev, &opts, &result, why, sizeof(why)) == -ENOTRECOVERABLE);
	opts.safe = false;
	if (volume_repair(bed.dev, &opts, &result, why, sizeof(why)))
		fail_msg("%s", why);
	check(!problems(&bed));
	bed_open(&bed);
	whole = compare(&bed, &told, true);
	assert_int_equal(whole, FILES);
	use(&bed);
	bed_close(&bed);
	check(!problems(&bed));
	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++) {
		struct disk_anchor anchor;

		assert_int_equal(volume_read_anchor_slot(bed.dev, n, &anchor, why, sizeof(why)), 0);
	}
	bed.dev->ops->close(bed.dev);
}

static void test_no_anchors(void **state)
{
	no_anchors(4096);
	no_anchors(16384);
}

/*
 * Whichever allocation fails: repair gives up, and what was there is still there, or it comes to the same end.  What could not be
 * read for want of memory is not taken for what is not there.
 */
static void test_little_memory(void **state)
{
	struct bed bed = { .quota = true, .opts.manual = true };
	struct repair_options opts = {};
	static struct told told;
	struct repair_result result;
	struct places places;
	u64 random, want, whole;
	long allocs, nth;
	char why[300];
	struct bed_saved *saved;
	u32 gave_up = 0, n;
	int err;

	check_begin("little_memory", 1);
	bed_make(&bed, BYTES, 4096);
	fill(&bed, 0, FILES, false);
	bed_close(&bed);
	find_places(&bed, &places);
	random = test_seed;
	damage(&bed, &places, &random, 5);
	damage_inside(&bed, &places, &random, 5);
	saved = bed_save(&bed);
	memset(&told, 0, sizeof(told));
	env_fail_alloc_at(0);
	allocs = env_alloc_count();
	assert_ok(volume_repair(bed.dev, &opts, &result, why, sizeof(why)));
	allocs = env_alloc_count() - allocs;
	bed_open(&bed);
	want = compare(&bed, &told, false);
	bed_close(&bed);
	for (n = 0; n < 400u; n++) {
		bed_restore(&bed, saved);
		nth = 1 + (n < 40 ? n : bed_random(&random) % allocs);
		env_fail_alloc_at(nth);
		err = volume_repair(bed.dev, &opts, &result, why, sizeof(why));
		env_fail_alloc_at(0);
		gave_up += !!err;
		check(!err || err == -ENOMEM);
		if (err)
			err = volume_repair(bed.dev, &opts, &result, why, sizeof(why));
		check(!err && !problems(&bed));
		bed_open(&bed);
		whole = compare(&bed, &told, false);
		bed_close(&bed);
		if (whole != want)
			print_error("allocation %ld of %ld failed: %llu files instead of %llu\n", nth, allocs,
				    (unsigned long long)whole, (unsigned long long)want);
		check(whole == want);
	}
	assert_true(gave_up);
	bed_saved_free(saved);
	bed.dev->ops->close(bed.dev);
}

/* A volume that is full to the last block can be repaired, too. */
static void test_full(void **state)
{
	struct bed bed = { .quota = true, .opts.manual = true };
	static u8 data[1 << 20];
	static struct told told;
	struct tux3_node *node;
	struct places places;
	u64 at = 0, random, whole;
	ssize_t done;
	u32 round;
	struct bed_saved *saved;

	check_begin("full", 1);
	bed_make(&bed, BYTES, 4096);
	fill(&bed, 0, FILES, false);
	node = bed_file(&bed, "/filler");
	while ((done = tux3_write(node, data, sizeof(data), at)) > 0)
		at += done;
	assert_int_equal(done, -ENOSPC);
	tux3_node_put(node, 1);
	bed_close(&bed);
	find_places(&bed, &places);
	saved = bed_save(&bed);
	for (round = 0; round < 20; round++) {
		random = test_seed + round;
		bed_restore(&bed, saved);
		damage(&bed, &places, &random, 1 + round);
		memset(&told, 0, sizeof(told));
		repair_again(&bed, &told, &whole);
	}
	bed_saved_free(saved);
	bed.dev->ops->close(bed.dev);
}

static void test_without_log(void **state)
{
	run_seeds(false, 4096);
}

static void test_with_a_log(void **state)
{
	run_seeds(true, 4096);
}

static void test_large_blocks(void **state)
{
	run_seeds(true, 65536);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_log),
		cmocka_unit_test(test_with_a_log),
		cmocka_unit_test(test_large_blocks),
		cmocka_unit_test(test_interrupted),
		cmocka_unit_test(test_little_memory),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_no_anchors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
