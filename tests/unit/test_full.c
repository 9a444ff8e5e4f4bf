/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Full volumes: what the live run could commit can be replayed, what was accepted can be committed, and nobody took
 * a block that nobody was charged for.
 */
#include "support_check.h"
#include "support_lib.h"
#include "user/env/clock.h"

#include <linux/falloc.h>
#include <pthread.h>

#include "core/check/check.h"

#define BLOCK 4096u

static struct volume *core(struct bed *bed)
{
	return tux3_core(bed->volume);
}

static u64 counter(struct bed *bed, enum tux3_counter which)
{
	return delta_counter(core(bed), which);
}

static void path_of(char *path, size_t size, u32 i)
{
	snprintf(path, size, "/d%02u/file-%u", i % 16, i);
}

static int write_file(struct bed *bed, u32 i)
{
	static u8 data[BLOCK];
	struct tux3_node *node;
	char path[40];
	int err;

	path_of(path, sizeof(path), i);
	err = tux3_path(bed->volume, NULL, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node);
	if (err)
		return err;
	memset(data, 1 + i % 250, sizeof(data));
	err = min_t(long long, tux3_write(node, data, sizeof(data), 0), 0);
	tux3_node_put(node, 1);
	return err;
}

/* What df shows. */
static u64 available(struct bed *bed)
{
	struct tux3_statfs stat;

	assert_ok(tux3_statfs(bed->volume, &stat));
	return stat.available_blocks;
}

/* As many files as fit; their number. */
static u32 fill(struct bed *bed)
{
	u32 count = 0;
	int err;

	do {
		err = write_file(bed, count);
		count += !err;
	} while (!err);
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(available(bed), 0);
	return count;
}

static int count_node(void *ctx, const struct tree_visit *visit)
{
	assert_non_null(visit->data);
	++*(u64 *)ctx;
	return 0;
}

static u64 tree_nodes(struct bed *bed)
{
	u64 nodes = 0;

	assert_ok(tree_walk(core(bed), count_node, &nodes));
	return nodes;
}

/* The power is cut: what is on the device is all there is.  Replay must come to the very tree. */
static void crash(struct bed *bed)
{
	u64 nodes = tree_nodes(bed), free = atomic64_read(&core(bed)->balloc.free_blocks);

	bed_crash(bed);
	assert_int_equal(tree_nodes(bed), nodes);
	assert_true(atomic64_read(&core(bed)->balloc.free_blocks) >= (s64)free);
}

/*
 * Replay of a log that deletes: every leaf is redirected, while what the log frees serves for that in the live run,
 * from the next commit on.
 */
static void test_deletes_in_a_full_volume_are_replayed(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u32 count, i, deleted = 0;
	char path[40];

	bed_make(&bed, 64 << 20, BLOCK);
	count = fill(&bed);
	bed_reopen(&bed);
	for (i = 0; i < count; i += 2) {
		path_of(path, sizeof(path), i);
		assert_ok(tux3_path_unlink(bed.volume, NULL, path));
		if (++deleted % 200 == 0)
			assert_ok(tux3_sync(bed.volume));
	}
	assert_ok(tux3_sync(bed.volume));
	crash(&bed);
	bed_free(&bed);
}

/* Delete, rename or write anew one of the files, or give it an attribute.  A full volume may refuse. */
static int change(struct bed *bed, u64 *random, u32 files)
{
	u32 i = bed_random(random) % files;
	char path[40], to[48], value[200];
	struct tux3_node *node;
	int err;

	path_of(path, sizeof(path), i);
	switch (bed_random(random) % 8) {
	case 0:
		return write_file(bed, i);
	case 1:
		snprintf(to, sizeof(to), "/d%02u/renamed-%u", i % 7, i);
		return tux3_path_rename(bed->volume, NULL, path, to, 0);
	case 2:
		err = tux3_path(bed->volume, NULL, path, 0, 0, &node);
		if (err)
			return err;
		memset(value, i, sizeof(value));
		err = tux3_setxattr(node, NULL, "user.test", value, 1 + bed_random(random) % sizeof(value), 0);
		tux3_node_put(node, 1);
		return err;
	default:
		return tux3_path_unlink(bed->volume, NULL, path);
	}
}

/* With a cache of 32 nodes, so that what the live run finds in memory is not what replay does. */
static void crash_run(u64 seed)
{
	struct bed bed = { .opts = { .manual = true, .cache_bytes = 32 * BLOCK, .dirty_nodes = 1 + seed % 3 * 500 } };
	u32 count, i;
	int err;

	bed_make(&bed, 24 << 20, BLOCK);
	count = fill(&bed);
	bed_reopen(&bed);
	for (i = 0; i < count; i++) {
		err = change(&bed, &seed, count);
		assert_true(!err || err == -ENOENT || err == -ENOSPC);
		if (!(bed_random(&seed) % 50))
			assert_ok(tux3_sync(bed.volume));
		if (!(bed_random(&seed) % 1000)) {
			assert_ok(tux3_sync(bed.volume));
			crash(&bed);
		}
	}
	assert_ok(tux3_sync(bed.volume));
	crash(&bed);
	assert_true(atomic64_read(&core(&bed)->tree.edits) > 0);
	bed_free(&bed);
}

static void test_a_full_volume_is_mounted_after_a_crash(void **state)
{
	u64 seed;

	for (seed = 1; seed <= FEWER(6, 3); seed++)	/* each with another number of dirty nodes */
		crash_run(seed);
}

/* All of its groups are in one commit: their names in the log are paid for too. */
static void test_a_file_in_many_groups_is_punched(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u64 bytes = 128ULL << 30, step = bytes / 2, at = 0;
	struct tux3_node *node;
	int err;

	bed_make(&bed, bytes, BLOCK);
	node = bed_file(&bed, "/large");
	while (step >= BLOCK) {
		err = tux3_fallocate(node, 0, at, step);
		assert_true(!err || err == -ENOSPC);
		if (err)
			step /= 2;
		else
			at += step;
	}
	assert_true(at > bytes / 10 * 9);
	fill(&bed);
	assert_ok(delta_commit_unify(core(&bed)));
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, at));
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	crash(&bed);
	/* The maps were read many at once, though more than stay in memory; some leaves of the file were not. */
	assert_true(core(&bed)->group_count > 1000 && counter(&bed, TUX3_COUNT_READS_LOCKED) < 100);
	bed_close(&bed);
	bed.dev->ops->close(bed.dev);
}

/* With each block size: files fit, can be renamed, cut and deleted, and then fit again. */
static void test_the_smallest_volume_holds_files(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	struct tux3_node *node;
	char path[40];
	u32 block_size, count, turn, i;

	for (block_size = 4096; block_size <= FEWER(65536, 16384); block_size *= FEWER(2, 4)) {
		bed_make(&bed, max(4u << 20, 512 * block_size), block_size);
		for (turn = 0; turn < 2; turn++) {
			count = fill(&bed);
			assert_in_range(count, 5, 8000);
			for (i = 0; i < count; i++) {
				path_of(path, sizeof(path), i);
				node = bed_file(&bed, path);
				assert_ok(tux3_truncate(node, BLOCK));	/* the size it has */
				tux3_node_put(node, 1);
			}
			for (i = 0; i < count; i++) {
				path_of(path, sizeof(path), i);
				assert_ok(tux3_path_unlink(bed.volume, NULL, path));
			}
			assert_ok(tux3_sync(bed.volume));
			assert_ok(write_file(&bed, 0));
			path_of(path, sizeof(path), 0);
			assert_ok(tux3_path_rename(bed.volume, NULL, path, "/renamed", 0));
			assert_ok(tux3_path_unlink(bed.volume, NULL, "/renamed"));
		}
		bed_free(&bed);
	}
}

static u64 free_blocks(struct bed *bed)
{
	struct tux3_statfs stat;

	assert_ok(tux3_statfs(bed->volume, &stat));
	return stat.free_blocks;
}

/* Changes that need no room, one after the other, until the volume is empty: none of them is refused. */
static void empty_volume(struct bed *bed, u32 count)
{
	char path[40], to[40];
	struct tux3_node *node;
	u32 i;

	for (i = 0; i < count; i++) {
		path_of(path, sizeof(path), i);
		if (i % 20 == 0) {
			snprintf(to, sizeof(to), "/d%02u/FILE-%u", (i + 1) % 16, i);
			assert_ok(tux3_path_rename(bed->volume, NULL, path, to, 0));
			assert_ok(tux3_path_rename(bed->volume, NULL, to, path, 0));
			node = bed_file(bed, path);
			assert_ok(tux3_setattr(node, NULL, &(struct tux3_stat){ .mode = 0600 }, TUX3_SET_MODE));
			assert_ok(tux3_truncate(node, 100 * BLOCK));
			assert_ok(tux3_truncate(node, 100));
			tux3_node_put(node, 1);
		}
		assert_ok(tux3_path_unlink(bed->volume, NULL, path));
	}
	assert_ok(tux3_sync(bed->volume));
}

/* What is kept on a full volume is little, and is computed from what its tree is like: so also where that is about to change. */
static void test_little_is_kept(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u32 size, count;

	for (size = 0; size < 12; size += FEWER(1, 4)) {
		bed_make(&bed, (4u << 20) + size * (384u << 10), BLOCK);
		count = fill(&bed);
		assert_in_range(free_blocks(&bed), 20, 160);
		empty_volume(&bed, count);
		bed_free(&bed);
	}
	bed_make(&bed, 64 << 20, BLOCK);
	assert_in_range(fill(&bed), 14500, 15000);
	assert_in_range(free_blocks(&bed), 20, 170);
	bed_free(&bed);
}

/* One file has few nodes. */
static void test_less_is_kept_beside_a_large_file(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	static u8 data[64 * BLOCK];
	struct tux3_node *node;
	u32 mib, len;
	u64 at;

	for (mib = 4; mib <= 64; mib *= 4) {
		bed_make(&bed, (u64)mib << 20, BLOCK);
		node = bed_file(&bed, "/large");
		for (at = 0, len = sizeof(data); len >= BLOCK; len /= 2) {
			while (tux3_write(node, data, len, at) == len)
				at += len;
		}
		assert_in_range(free_blocks(&bed), 10, mib == 4 ? 60 : 100);
		assert_int_equal(available(&bed), 0);
		assert_ok(tux3_truncate(node, 1));
		tux3_node_put(node, 1);
		bed_free(&bed);
	}
}

#define PREALLOC_BLOCKS 16u

/* Extent n of a file: a block, or some preallocated ones, which need no memory in the device. */
static int add_extent(struct tux3_node *node, u64 n, bool prealloc)
{
	static u8 data[BLOCK];

	if (prealloc)
		return tux3_fallocate(node, 0, n * PREALLOC_BLOCKS * BLOCK, PREALLOC_BLOCKS * BLOCK);
	return min_t(long long, tux3_write(node, data, BLOCK, n * BLOCK), 0);
}

/* What df shows as available can be had, by whoever asks next, and where nothing can be had it shows nothing. */
static u32 take_what_is_available(struct bed *bed)
{
	u32 count = fill(bed), i, had = 0;
	char path[40];

	assert_true(count > 5);
	for (i = 0; i < count; i++) {
		path_of(path, sizeof(path), i);
		assert_ok(tux3_path_unlink(bed->volume, NULL, path));
		if (available(bed)) {
			assert_ok(write_file(bed, i));
			assert_ok(tux3_path_unlink(bed->volume, NULL, path));
			had++;
		}
	}
	assert_ok(delta_commit_unify(core(bed)));
	assert_true(available(bed) > core(bed)->total_blocks / 8);
	return had;
}

/* Hard links with the longest names, of which none is charged less than what df keeps for the next operation. */
static void fill_with_links(struct bed *bed)
{
	struct tux3_node *node = bed_find(bed, "/d00/file-0");
	char name[256];
	int err = 0;
	u32 i;

	for (i = 0; !err; i++) {
		snprintf(name, sizeof(name), "%0255u", i);
		err = tux3_link(node, NULL, bed->root, name);
	}
	assert_int_equal(err, -ENOSPC);
	tux3_node_put(node, 1);
}

/*
 * Who is refused was not refused too early: the delta that was open has no more to pay for as a whole than the next one.  So df
 * shows nothing.  Seeds with which the last commit has split leaves.
 */
static void test_a_refusal_is_right(void **state)
{
	static const u64 seeds[] = { 3, 7, 10, 12, 15, 20 };
	struct bed bed = { .opts = { .manual = true } };
	s64 balance;
	u32 i, links;

	for (i = 0; i < ARRAY_SIZE(seeds); i++) {
		for (links = 0; links < 2; links++) {
			env_set_random_seed(seeds[i]);
			bed_make(&bed, 16 << 20, BLOCK);
			env_set_random_seed(0);
			fill(&bed);
			if (links)
				fill_with_links(&bed);
			assert_int_equal(available(&bed), 0);
			balance = space_balance(core(&bed));
			assert_ok(delta_commit_space(core(&bed), 0, 0));	/* empty */
			assert_int_equal(space_balance(core(&bed)), balance);
			bed_free(&bed);
		}
	}
}

/* What the log takes comes back before anybody is refused. */
static void test_df_counts_the_log_as_free(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u64 before;
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	for (i = 0; i < 400; i++) {
		assert_ok(write_file(&bed, i));
		assert_ok(tux3_sync(bed.volume));
	}
	assert_true(core(&bed)->log.length > 100);
	before = available(&bed);
	assert_ok(delta_commit_unify(core(&bed)));
	assert_in_range(available(&bed), before, before + 4);
	bed_free(&bed);
}

/* Nor is what the tree grows by with changes that are pending promised to others: it is a guess, of small files. */
static void test_df_counts_nodes_of_pending_changes(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u64 before;
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	for (i = 0; i < 3000; i++)
		assert_ok(write_file(&bed, i));
	before = available(&bed);
	assert_ok(delta_commit_unify(core(&bed)));
	assert_in_range(available(&bed), before - 10, before + 150);
	bed_free(&bed);
}

static void test_df_shows_what_can_be_had(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u32 block_size, had = 0;

	for (block_size = 4096; block_size <= FEWER(65536, 16384); block_size *= 4) {
		bed_make(&bed, max(16u << 20, 512 * block_size), block_size);
		had += take_what_is_available(&bed);
		bed_free(&bed);
	}
	assert_true(had > 0);
}

/*
 * When the root gets so many branches that the level below it is no longer paid for as a whole, more is kept.  A volume
 * that is full at that moment does not have it, and who frees does not need it yet.  Seeds with which it is full then.
 */
static void test_full_when_more_is_to_be_kept(void **state)
{
	static const u64 seeds[] = { 32, 52, 70, 145 };
	struct bed bed = { .opts = { .manual = true } };
	u32 i, block_size;

	for (i = 0; i < FEWER(ARRAY_SIZE(seeds), 2); i++) {
		for (block_size = 4096; block_size <= 16384; block_size *= 4) {
			env_set_random_seed(seeds[i]);
			bed_make(&bed, 16 << 20, block_size);
			env_set_random_seed(0);
			take_what_is_available(&bed);
			bed_free(&bed);
		}
	}
}

/* A file of so many extents that are not neighbours. */
static struct tux3_node *make_comb(struct bed *bed, u32 i, u32 extents, bool prealloc)
{
	struct tux3_node *node;
	char path[40];
	u32 n;

	snprintf(path, sizeof(path), "/comb-%u", i);
	node = bed_file(bed, path);
	for (n = 0; n < extents; n++)
		assert_ok(add_extent(node, 2ull * n, prealloc));
	return node;
}

static void fill_with_one(struct bed *bed, bool prealloc)
{
	struct tux3_node *node = bed_file(bed, "/large");
	u64 n = 0;

	while (!add_extent(node, n, prealloc))
		n++;
	tux3_node_put(node, 1);
}

static bool has_changes(struct bed *bed)
{
	bool changes;

	delta_lock(core(bed));
	changes = delta_has_changes(core(bed));
	delta_unlock(core(bed));
	return changes;
}

struct orphans {
	u32 mib;
	u32 slice_extents, files, extents;
	bool cut;		/* every second one is truncated first */
	bool early;		/* closed before the commit that unlinks them */
	bool block;		/* the volume is filled with one large file */
	bool prealloc;		/* with blocks that are never written, as the files to be removed are */
	bool thread;
	u64 crash;		/* the power is cut after so many commits, and the mount goes on; 0: never */
};

/*
 * Many long files are removed from a full volume while they are in use, then all are closed: deletes that go on for
 * hundreds of commits, each of which redirects nodes for what it frees.
 */
static void test_long_deletes_in_a_full_volume(void **state)
{
	const struct orphans *orphans = *state;
	struct bed bed = { .opts = { .manual = !orphans->thread, .slice_extents = orphans->slice_extents } };
	struct tux3_node *nodes[300];
	u64 commits = 0;
	char path[40];
	u32 i;

	assert_true(orphans->files <= ARRAY_SIZE(nodes));
	bed_make(&bed, (u64)orphans->mib << 20, BLOCK);
	for (i = 0; i < orphans->files; i++)
		nodes[i] = make_comb(&bed, i, orphans->extents, orphans->prealloc);
	if (orphans->block)
		fill_with_one(&bed, orphans->prealloc);
	else
		fill(&bed);
	for (i = 0; i < orphans->files; i++) {
		snprintf(path, sizeof(path), "/comb-%u", i);
		assert_ok(tux3_path_unlink(bed.volume, NULL, path));
	}
	if (!orphans->early)
		assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < orphans->files; i++) {
		if (orphans->cut && i % 2)
			assert_ok(tux3_truncate(nodes[i], 3 * BLOCK));
		tux3_node_put(nodes[i], 1);
	}
	while (has_changes(&bed)) {
		assert_ok(delta_commit(core(&bed)));
		assert_int_equal(counter(&bed, TUX3_COUNT_OVERDRAFTS), 0);
		if (++commits == orphans->crash)
			bed_crash(&bed);
		assert_true(commits < 10u * orphans->files * orphans->extents);
	}
	assert_ok(delta_commit_unify(core(&bed)));
	assert_true(atomic64_read(&core(&bed)->balloc.free_blocks) > orphans->files * orphans->extents);
	assert_true(fill(&bed) > 0);
	bed_free(&bed);
}

/* ---- what CPUs take for operations to come ---- */

/* None of it is missing where all is needed, and nobody has it twice. */
static void test_credit(void **state)
{
	struct bed bed = {};
	struct volume *vol;
	s64 before, all;
	int cpu;

	bed_make(&bed, 64 << 20, BLOCK);
	vol = core(&bed);
	before = space_balance(vol);
	for_each_possible_cpu(cpu)
		assert_true(space_charge(vol, per_cpu_ptr(vol->delta.cpu, cpu), 3, 0));
	all = space_balance(vol);
	assert_int_equal(all, before - 3 * (s64)num_possible_cpus());
	if (all / (64 * (s64)num_possible_cpus()) >= 32)	/* so little is not worth it */
		assert_true(atomic64_read(&vol->space.balance) < all);
	for_each_possible_cpu(cpu) {
		assert_false(space_charge(vol, per_cpu_ptr(vol->delta.cpu, cpu), all + 1, 0));
		assert_true(space_charge(vol, per_cpu_ptr(vol->delta.cpu, cpu), all, 0));
		assert_int_equal(space_balance(vol), 0);
		assert_false(space_charge(vol, per_cpu_ptr(vol->delta.cpu, cpu), 1, 0));
		space_uncharge(vol, per_cpu_ptr(vol->delta.cpu, cpu), all);
		assert_int_equal(space_balance(vol), all);
	}
	for_each_possible_cpu(cpu)
		space_uncharge(vol, per_cpu_ptr(vol->delta.cpu, cpu), 3);
	bed_free(&bed);
}

/* Whoever comes with a large operation, an exchange of many extents for one, leaves a CPU no more credit than others do. */
static void test_credit_of_large_operations(void **state)
{
	struct bed bed = {};
	struct delta_cpu *cpu;
	struct volume *vol;
	s64 credit, all;

	bed_make(&bed, (u64)num_possible_cpus() << 28, BLOCK);
	vol = core(&bed);
	cpu = per_cpu_ptr(vol->delta.cpu, 0);
	all = space_balance(vol);
	assert_int_equal(atomic64_read(&cpu->credit), 0);
	assert_true(space_charge(vol, cpu, 1025, 0));
	assert_int_equal(atomic64_read(&cpu->credit), 0);
	space_uncharge(vol, cpu, 1025);
	assert_int_equal(atomic64_read(&cpu->credit), 0);
	assert_true(space_charge(vol, cpu, 3, 0));
	credit = atomic64_read(&cpu->credit);
	assert_in_range(credit, 1, 1024);
	/* What is given back does not all become the credit of one. */
	assert_true(space_charge(vol, cpu, 40000, 0));
	space_uncharge(vol, cpu, 40000);
	assert_int_equal(atomic64_read(&cpu->credit), credit);
	space_uncharge(vol, cpu, 3);
	assert_int_equal(atomic64_read(&cpu->credit), credit + 3);
	assert_int_equal(space_balance(vol), all);
	bed_free(&bed);
}

/* A slice of a delete gets it, too, when nothing else is left. */
static void test_slices_get_credit(void **state)
{
	struct bed bed = {};
	s64 rest, credit, charged = 0;
	struct volume *vol;
	int cpu;

	bed_make(&bed, (u64)num_possible_cpus() << 28, BLOCK);
	vol = core(&bed);
	mutex_lock(&vol->delta.commit_mutex);
	for_each_possible_cpu(cpu)
		assert_true(space_charge(vol, per_cpu_ptr(vol->delta.cpu, cpu), 3, 0));
	rest = atomic64_xchg(&vol->space.balance, 0);
	credit = space_balance(vol);
	assert_true(space_charge_slice(vol, false, &charged));
	assert_true(charged > 0);
	assert_int_equal(space_balance(vol), credit - charged);
	/* Not what is not there. */
	atomic64_set(&vol->space.balance, charged - 1);
	credit = charged;
	assert_false(space_charge_slice(vol, false, &charged));
	assert_int_equal(charged, credit);
	assert_int_equal(space_balance(vol), charged - 1);
	atomic64_set(&vol->space.balance, rest);
	for_each_possible_cpu(cpu) {
		atomic64_set(&per_cpu_ptr(vol->delta.cpu, cpu)->credit, 0);
		space_uncharge(vol, per_cpu_ptr(vol->delta.cpu, cpu), 3);
	}
	mutex_unlock(&vol->delta.commit_mutex);
	bed_free(&bed);
}

/* ---- an answer does not wait for what others do ---- */

static struct {
	struct tux3_device_ops ops;
	struct tux3_node *node;
	u32 changes;
} busy;

/* Somebody changes something while each commit waits for the device. */
static int busy_flush(struct tux3_device *dev)
{
	struct tux3_stat stat = { .mode = 0600 | (busy.changes & 7) };

	/* It must not wait for space itself: that is who makes the commit. */
	if (space_balance(tux3_core(tux3_node_volume(busy.node))) < 100)
		return 0;
	busy.changes++;
	return tux3_setattr(busy.node, NULL, &stat, TUX3_SET_MODE);
}

static void busy_begin(struct bed *bed)
{
	busy.ops = *bed->dev->ops;
	busy.ops.flush = busy_flush;
	busy.changes = 0;
	bed->dev->ops = &busy.ops;
	bed->dev->volatile_cache = true;
}

static void busy_end(struct bed *bed, const struct tux3_device_ops *ops)
{
	bed->dev->ops = ops;
	bed->dev->volatile_cache = false;
	tux3_node_put(busy.node, 1);
}

static void test_a_label_does_not_wait_for_changes_of_others(void **state)
{
	struct bed bed = { .opts.manual = true };
	const struct tux3_device_ops *ops;

	bed_make(&bed, 16 << 20, BLOCK);
	busy.node = bed_file(&bed, "/busy");
	assert_ok(tux3_sync(bed.volume));
	ops = bed.dev->ops;
	busy_begin(&bed);
	assert_ok(tux3_setattr(busy.node, NULL, &(struct tux3_stat){ .mode = 0640 }, TUX3_SET_MODE));
	assert_ok(tux3_set_label(bed.volume, "while others write"));
	assert_in_range(busy.changes, 1, 20);
	busy_end(&bed, ops);
	bed_free(&bed);
}

static void test_a_refusal_does_not_wait_for_changes_of_others(void **state)
{
	struct bed bed = { .opts.manual = true };
	const struct tux3_device_ops *ops;
	static u8 data[16 * BLOCK];
	struct tux3_node *node;
	u64 at = 0;

	bed_make(&bed, 16 << 20, BLOCK);
	busy.node = bed_file(&bed, "/busy");
	node = bed_file(&bed, "/large");
	while (tux3_write(node, data, sizeof(data), at) > 0)
		at += sizeof(data);
	assert_ok(tux3_truncate(node, at - 14 * sizeof(data)));	/* room for the changes, not for what is asked for */
	assert_ok(tux3_sync(bed.volume));
	ops = bed.dev->ops;
	busy_begin(&bed);
	assert_int_equal(tux3_fallocate(node, FALLOC_FL_KEEP_SIZE, 100 << 20, 1 << 20), -ENOSPC);
	assert_in_range(busy.changes, 2, 200);
	busy_end(&bed, ops);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Who must not wait for space gets no more of it than who waits: what is kept for changes in place, or for preallocated blocks. */
static void test_who_does_not_wait_takes_no_reserve(void **state)
{
	struct bed bed = { .opts.manual = true };
	static u8 data[BLOCK];
	struct tux3_node *node;
	struct delta_op op;
	s64 balance;
	u64 at = 0, cost;

	bed_make(&bed, 16 << 20, BLOCK);
	node = bed_file(&bed, "/large");
	while (tux3_write(node, data, sizeof(data), at) > 0)
		at += sizeof(data);
	assert_ok(delta_commit_unify(core(&bed)));
	while (tux3_write(node, data, sizeof(data), at) > 0)
		at += sizeof(data);
	assert_ok(tux3_sync(bed.volume));
	cost = space_cost_data(core(&bed), 1, 1);
	assert_int_equal(delta_enter(core(&bed), &op, cost, 0), -ENOSPC);
	balance = space_balance(core(&bed));
	assert_int_equal(delta_enter(core(&bed), &op, cost, DELTA_NOWAIT), -EAGAIN);
	assert_int_equal(space_balance(core(&bed)), balance);
	/* It is for these. */
	assert_ok(delta_enter(core(&bed), &op, space_cost_items(core(&bed), 1), DELTA_NOWAIT | DELTA_KEEPS));
	delta_leave(&op);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- a refusal is remembered ---- */

static struct tux3_node *refused_dir, *refused_file;

/* A new name each time. */
static const char *refused_name(void)
{
	static char name[32];
	static u32 serial;

	snprintf(name, sizeof(name), "name-%u", serial++);
	return name;
}

static int refuse_node(u32 mode)
{
	return tux3_mknod(refused_dir, NULL, refused_name(), mode, 0, 0, NULL);
}

static int refuse_create(struct bed *bed) { return refuse_node(S_IFREG | 0644); }
static int refuse_mkdir(struct bed *bed) { return refuse_node(S_IFDIR | 0755); }
static int refuse_link(struct bed *bed) { return tux3_link(refused_file, NULL, refused_dir, refused_name()); }

static int refuse_symlink(struct bed *bed)
{
	struct tux3_node *node;
	int err = tux3_symlink(refused_dir, NULL, refused_name(), "to", &node);

	if (!err)
		tux3_node_put(node, 1);
	return err;
}

static int refuse_tmpfile(struct bed *bed)
{
	struct tux3_node *node;
	int err = tux3_tmpfile(refused_dir, NULL, 0600, &node);

	if (!err)
		tux3_node_put(node, 1);
	return err;
}

/* Blocks that the file does not have. */
static int refuse_blocks(u32 blocks)
{
	static u8 data[300 * BLOCK];
	static u64 at = 1000 * BLOCK;

	at += 2 * blocks * BLOCK;
	return min_t(long long, tux3_write(refused_file, data, blocks * BLOCK, at), 0);
}

static int refuse_write(struct bed *bed) { return refuse_blocks(1); }
static int refuse_large_write(struct bed *bed) { return refuse_blocks(300); }

static int refuse_value(struct bed *bed)
{
	char name[40];

	snprintf(name, sizeof(name), "user.%s", refused_name());
	return tux3_setxattr(refused_file, NULL, name, "1", 1, 0);
}

static int refuse_allocate(struct bed *bed) { return tux3_fallocate(refused_file, 0, 0, 12 << 20); }

static const struct refusal {
	const char *what;
	int (*try)(struct bed *bed);
} refusals[] = {
	{ "create", refuse_create }, { "mkdir", refuse_mkdir }, { "symlink", refuse_symlink }, { "link", refuse_link },
	{ "tmpfile", refuse_tmpfile }, { "write", refuse_write }, { "large write", refuse_large_write },
	{ "setxattr", refuse_value }, { "fallocate", refuse_allocate },
};

struct work_done {
	s64 deltas, unifies, reads, edits;
};

static struct work_done work_done(struct bed *bed)
{
	return (struct work_done){
		core(bed)->delta.front, counter(bed, TUX3_COUNT_UNIFIES), atomic64_read(&core(bed)->cache.misses),
		atomic64_read(&core(bed)->tree.edits),
	};
}

static void try_again(struct bed *bed, const struct refusal *refusal, s64 deltas, s64 unifies, u32 times)
{
	struct work_done before = work_done(bed), after;
	u32 i;

	for (i = 0; i < times; i++)
		assert_int_equal(refusal->try(bed), -ENOSPC);
	after = work_done(bed);
	if (after.deltas > before.deltas + deltas || after.unifies > before.unifies + unifies || after.reads > before.reads ||
	    after.edits > before.edits)
		fail_msg("%s, refused %u times: %lld deltas, %lld unifies, %lld reads, %lld edits", refusal->what, times,
			 after.deltas - before.deltas, after.unifies - before.unifies, after.reads - before.reads,
			 after.edits - before.edits);
}

/*
 * Who is refused where nothing was freed since the last refusal costs the back end nothing.  The first one looks what can be
 * brought back.
 */
static void test_a_refusal_is_remembered(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u32 i, n;

	bed_make(&bed, 16 << 20, BLOCK);
	refused_file = bed_file(&bed, "/file");
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "/dir", 0755));
	assert_ok(tux3_path(bed.volume, NULL, "/dir", 0, 0, &refused_dir));
	fill(&bed);
	for (n = 0; n < 2; n++) {
		/* Those that need little may still find it. */
		for (i = 0; i < ARRAY_SIZE(refusals); i++) {
			while (refusals[i].try != refuse_tmpfile && !refusals[i].try(&bed))
				;
		}
		assert_ok(tux3_sync(bed.volume));
		for (i = 0; i < ARRAY_SIZE(refusals); i++)
			refusals[i].try(&bed);
		for (i = 0; i < ARRAY_SIZE(refusals); i++)
			try_again(&bed, &refusals[i], 0, 0, 50);
	}
	tux3_node_put(refused_dir, 1);
	tux3_node_put(refused_file, 1);
	bed_free(&bed);
}

/* What cannot be had in smaller parts is asked for once. */
static void test_one_block_is_refused_once(void **state)
{
	static u8 data[BLOCK];
	struct bed bed = { .opts = { .manual = true } };
	s64 refused, fsyncs;
	u64 at = 0;

	bed_make(&bed, 16 << 20, BLOCK);
	refused_file = bed_file(&bed, "/file");
	while (tux3_write(refused_file, data, sizeof(data), at) > 0)
		at += BLOCK;
	refused = counter(&bed, TUX3_COUNT_ENOSPC);
	assert_int_equal(tux3_write(refused_file, data, sizeof(data), at), -ENOSPC);
	assert_int_equal(counter(&bed, TUX3_COUNT_ENOSPC) - refused, 1);
	/* It is remembered, or not: the volume may have become less full. */
	assert_ok(tux3_sync(bed.volume));
	for (fsyncs = 0; fsyncs < 3; fsyncs++) {
		refused = counter(&bed, TUX3_COUNT_ENOSPC);
		while (tux3_write(refused_file, data, 1, at) > 0)
			at += BLOCK;
		assert_int_equal(counter(&bed, TUX3_COUNT_ENOSPC) - refused, 1);
		assert_ok(tux3_sync(bed.volume));
	}
	tux3_node_put(refused_file, 1);
	bed_free(&bed);
}

/* ---- what keeps what there is ---- */

/* An access ACL with so many named users. */
static void set_acl(struct tux3_node *node, u32 users)
{
	static struct {
		__le32 version;
		struct {
			__le16 tag, perm;
			__le32 id;
		} entry[TUX3_XATTR_SIZE_MAX / 8 - 1];
	} acl;
	u32 n = 0, i;

	acl.version = cpu_to_le32(2);
#define ENTRY(t, i) do { \
		acl.entry[n].tag = cpu_to_le16(t); \
		acl.entry[n].perm = cpu_to_le16(6); \
		acl.entry[n++].id = cpu_to_le32(i); \
	} while (0)
	ENTRY(0x01, ~0u);
	for (i = 1; i <= users; i++)
		ENTRY(0x02, i);
	ENTRY(0x04, ~0u);
	ENTRY(0x10, ~0u);
	ENTRY(0x20, ~0u);
#undef ENTRY
	assert_ok(tux3_setxattr(node, NULL, "system.posix_acl_access", &acl, 4 + 8 * n, 0));
}

/* A mode that is changed changes the ACL, too, in place: whatever its size. */
static void test_the_mode_of_a_file_with_an_acl(void **state)
{
	static const u32 users[] = { 1, 27, 28, 500, 1100, 8187 };
	struct tux3_node *node[ARRAY_SIZE(users)];
	char path[20];
	u32 quota, i, n;

	for (quota = 0; quota < 2; quota++) {
		struct bed bed = { .opts = { .manual = true }, .quota = quota };

		bed_make(&bed, 16 << 20, BLOCK);
		for (i = 0; i < ARRAY_SIZE(users); i++) {
			snprintf(path, sizeof(path), "/acl%u", i);
			node[i] = bed_file(&bed, path);
			set_acl(node[i], users[i]);
		}
		fill(&bed);
		for (n = 0; n < 200; n++)
			for (i = 0; i < ARRAY_SIZE(users); i++) {
				struct tux3_stat stat = { .mode = 0600 | (n + 1) % 8 << 3 };
				int err = tux3_setattr(node[i], NULL, &stat, TUX3_SET_MODE);

				if (err)
					fail_msg("%u users, quota %u: round %u: %d", users[i], quota, n, err);
			}
		assert_ok(tux3_sync(bed.volume));
		for (i = 0; i < ARRAY_SIZE(users); i++) {
			snprintf(path, sizeof(path), "/acl%u", i);
			tux3_node_put(node[i], 1);
			assert_ok(tux3_path_unlink(bed.volume, NULL, path));
		}
		bed_free(&bed);
	}
}

/* ---- how many commits it takes to work on a volume that is nearly full ---- */

static int near_create(struct bed *bed, u32 i)
{
	struct tux3_node *node;
	char path[40];
	int err;

	snprintf(path, sizeof(path), "/near%u/%u", i / 500, i);
	err = tux3_path(bed->volume, NULL, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node);
	if (!err)
		tux3_node_put(node, 1);
	return err;
}

static int near_create_and_write(struct bed *bed, u32 i)
{
	return write_file(bed, 100000 + i);
}

static int near_rename(struct bed *bed, u32 i)
{
	char path[40], to[40];

	path_of(path, sizeof(path), i);
	snprintf(to, sizeof(to), "/d%02u/name-%u", i % 16, i);
	return tux3_path_rename(bed->volume, NULL, path, to, 0);
}

static int near_truncate(struct bed *bed, u32 i)
{
	struct tux3_node *node;
	char path[40];
	int err;

	path_of(path, sizeof(path), 5000 + i);
	err = tux3_path(bed->volume, NULL, path, 0, 0, &node);
	if (err)
		return err;
	err = tux3_setattr(node, NULL, &(struct tux3_stat){ .mode = 0600 }, TUX3_SET_MODE);
	if (!err)
		err = tux3_truncate(node, 1000);
	tux3_node_put(node, 1);
	return err;
}

/* What is counted for quotas is paid once in a delta, so they make no difference. */
static void commits_near_full(bool quota)
{
	static const struct {
		const char *what;
		int (*each)(struct bed *bed, u32 i);
		u32 times;		/* at most */
		u32 most;		/* commits for 1,000 of them */
	} loads[] = {
		{ "empty files", near_create, 100000, 140 },
		{ "files with a block", near_create_and_write, 100000, 430 },
		{ "renames", near_rename, 500, 700 },
		{ "chmod and truncate", near_truncate, 500, 450 },
	};
	struct bed bed = { .opts = { .manual = true }, .quota = quota };
	u32 n, i, count, removed;
	char path[40];

	bed_make(&bed, 64 << 20, BLOCK);
	count = removed = fill(&bed);
	for (n = 0; n < ARRAY_SIZE(loads); n++) {
		s64 commits;
		int err = 0;

		for (i = 0; i < 200 && n < 2; i++) {	/* 1 % of the volume */
			path_of(path, sizeof(path), --removed);
			assert_ok(tux3_path_unlink(bed.volume, NULL, path));
		}
		assert_ok(delta_commit_unify(core(&bed)));
		commits = counter(&bed, TUX3_COUNT_DELTAS);
		for (i = 0; i < loads[n].times && !err; i++)
			err = loads[n].each(&bed, i);
		assert_true(!err || (err == -ENOSPC && loads[n].times == 100000));
		commits = counter(&bed, TUX3_COUNT_DELTAS) - commits;
		printf("%s, %s quotas: %lld commits for %u operations\n", loads[n].what, quota ? "with" : "without", commits, i);
		if (commits * 1000 > (s64)loads[n].most * i)
			fail_msg("%s, %s quotas: %lld commits for %u operations near full, more than %u for 1,000", loads[n].what,
				 quota ? "with" : "without", commits, i, loads[n].most);
	}
	assert_true(removed < count);
	bed_free(&bed);
}

static void test_few_commits_near_full(void **state)
{
	commits_near_full(false);
	commits_near_full(true);
}

/* ---- room that comes while somebody is being refused ---- */

#define PUNCHED 500u

static struct {
	struct tux3_node *node;
	u32 flushes, at;
} punched;

static int punching_flush(struct tux3_device *dev)
{
	return ++punched.flushes == punched.at ?
	       tux3_fallocate(punched.node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PUNCHED * BLOCK) : 0;
}

/*
 * Somebody makes room while the at-th flush goes on that who is refused has made.  The refusal may stand, but must not be
 * remembered.  false: it took fewer flushes.
 */
static bool refuse_while_room_comes(u32 at)
{
	struct bed bed = { .opts.manual = true };
	const struct tux3_device_ops *own;
	static u8 data[16 * BLOCK];
	struct tux3_device_ops ops;
	struct tux3_node *node;
	u64 pos = 0, want;

	bed_make(&bed, 16 << 20, BLOCK);
	node = bed_file(&bed, "/large");
	punched.node = bed_file(&bed, "/punched");
	for (pos = 0; pos < PUNCHED * BLOCK; pos += sizeof(data))
		assert_int_equal(tux3_write(punched.node, data, sizeof(data), pos), sizeof(data));
	for (pos = 0; pos < 2000 * BLOCK; pos += sizeof(data))
		assert_int_equal(tux3_write(node, data, sizeof(data), pos), sizeof(data));
	assert_ok(tux3_sync(bed.volume));
	want = available(&bed) + PUNCHED / 2;
	own = bed.dev->ops;
	ops = *own;
	ops.flush = punching_flush;
	bed.dev->ops = &ops;
	bed.dev->volatile_cache = true;
	punched.flushes = 0;
	punched.at = at;
	if (tux3_fallocate(node, FALLOC_FL_KEEP_SIZE, pos, want * BLOCK) == -ENOSPC && punched.flushes >= at)
		assert_ok(tux3_fallocate(node, FALLOC_FL_KEEP_SIZE, pos, want * BLOCK));
	bed.dev->ops = own;
	bed.dev->volatile_cache = false;
	tux3_node_put(node, 1);
	tux3_node_put(punched.node, 1);
	bed_free(&bed);
	return punched.flushes >= at;
}

static void test_room_that_comes_meanwhile_is_found(void **state)
{
	u32 at = 1;

	while (refuse_while_room_comes(at))
		at++;
	assert_true(at > 1);
}

static int freeing_flush(struct tux3_device *dev)
{
	punched.flushes++;
	return tux3_fallocate(punched.node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK);
}

/* While somebody punches with each flush, mostly where nothing is: who is refused looks once what comes back. */
static void test_a_refusal_while_others_free_takes_a_commit(void **state)
{
	struct bed bed = { .opts.manual = true };
	const struct tux3_device_ops *own;
	static u8 data[16 * BLOCK];
	struct tux3_device_ops ops;
	u64 pos, at = 0;
	s64 commits;
	u32 i;

	bed_make(&bed, 16 << 20, BLOCK);
	refused_file = bed_file(&bed, "/large");
	punched.node = bed_file(&bed, "/punched");
	punched.flushes = 0;
	for (pos = 0; pos < PUNCHED * BLOCK; pos += sizeof(data))
		assert_int_equal(tux3_write(punched.node, data, sizeof(data), pos), sizeof(data));
	own = bed.dev->ops;
	ops = *own;
	ops.flush = freeing_flush;
	for (i = 0; i < 20; i++) {
		do
			for (; tux3_write(refused_file, data, BLOCK, at) > 0; at += BLOCK)
				;
		while (!tux3_sync(bed.volume) && tux3_write(refused_file, data, BLOCK, at) > 0);
		bed.dev->ops = &ops;
		bed.dev->volatile_cache = true;
		assert_ok(freeing_flush(bed.dev));
		commits = counter(&bed, TUX3_COUNT_DELTAS);
		assert_int_equal(tux3_setxattr(refused_file, NULL, "user.value", data, sizeof(data), 0), -ENOSPC);
		commits = counter(&bed, TUX3_COUNT_DELTAS) - commits;
		bed.dev->ops = own;
		bed.dev->volatile_cache = false;
		if (commits > 1)
			fail_msg("refusal %u took %lld commits", i, commits);
	}
	tux3_node_put(refused_file, 1);
	tux3_node_put(punched.node, 1);
	bed_free(&bed);
}

/* ---- leaves that were full and are split ---- */

struct split {
	struct bed bed;
	struct tux3_node *large;
	u64 size, random;	/* size: of that one */
	u32 files;
};

static void split_path(char *path, u32 i)
{
	sprintf(path, "/file-with-a-name-that-is-not-short-%u", i);
}

static void split_make(struct split *split, u32 block_size, u64 seed)
{
	char path[60];
	u32 i;

	*split = (struct split){ .bed = { .opts = { .manual = true, .costs = true } }, .random = seed, .files = seed * 150 };
	env_set_random_seed(seed);
	bed_make(&split->bed, 1024 * block_size, block_size);
	for (i = 0; i < split->files; i++) {
		split_path(path, i);
		tux3_node_put(bed_file(&split->bed, path), 1);
	}
	assert_ok(tux3_sync(split->bed.volume));
	split->large = bed_file(&split->bed, "/large");
}

/* Until it is full, but for a few blocks. */
static void split_fill(struct split *split)
{
	static u8 data[65536];
	u32 block = core(&split->bed)->block_size;

	while (tux3_write(split->large, data, block, split->size) == block)
		split->size += block;
	split->size -= bed_random(&split->random) % 5 * block;
	assert_ok(tux3_truncate(split->large, split->size));
	assert_ok(delta_commit_unify(core(&split->bed)));
}

/* Here and there, while there is room. */
static void split_leaves(struct split *split)
{
	u32 count = 1 + bed_random(&split->random) % 12;
	static u8 value[900];
	struct tux3_node *node;
	char path[60], name[20];
	int err = 0;

	while (count-- && !err) {
		split_path(path, bed_random(&split->random) % split->files);
		node = bed_file(&split->bed, path);
		snprintf(name, sizeof(name), "user.%u", (u32)(bed_random(&split->random) % 1000));
		err = tux3_setxattr(node, NULL, name, value, bed_random(&split->random) % sizeof(value), 0);
		tux3_node_put(node, 1);
		if (err)
			assert_int_equal(err, -ENOSPC);
	}
	assert_ok(delta_commit_unify(core(&split->bed)));
}

/* By more than what frees may go below zero. */
static bool split_is_below(struct split *split)
{
	struct volume *vol = core(&split->bed);

	return space_balance(vol) <= -(s64)vol->space.frees;
}

/*
 * A leaf that is split makes the standing charge of a full volume larger than there is room for, when none is left but for what is
 * kept.  Files can be changed in place and removed all the same, and at last all of them.
 */
static void test_leaves_that_split_do_not_shut_a_full_volume(void **state)
{
	u32 seed, round, i, below = 0;
	struct split split;
	struct tux3_node *node;
	char path[60];

	for (seed = 6; seed <= FEWER(15, 9); seed += 3) {
		split_make(&split, 65536, seed);
		for (round = 0; round < 60 && !split_is_below(&split); round++) {
			split_fill(&split);
			split_leaves(&split);
			split_path(path, bed_random(&split.random) % split.files);
			node = bed_file(&split.bed, path);
			assert_ok(tux3_setattr(node, NULL, &(struct tux3_stat){ .mode = 0600 }, TUX3_SET_MODE));
			tux3_node_put(node, 1);
		}
		below += split_is_below(&split);
		tux3_node_put(split.large, 1);
		bed_crash(&split.bed);
		for (i = 0; i < split.files; i++) {
			split_path(path, i);
			if (i % 16 == 0)
				assert_ok(tux3_sync(split.bed.volume));
			assert_ok(tux3_path_unlink(split.bed.volume, NULL, path));
		}
		assert_int_equal(counter(&split.bed, TUX3_COUNT_OVERDRAFTS), 0);
		bed_free(&split.bed);
	}
	env_set_random_seed(0);
	assert_int_equal(below, FEWER(4, 2));
}

/* ---- many at a time ---- */

#define CROWD		64u
#define CROWD_FILES	40u	/* of each */
#define CROWD_ROOM	16u	/* blocks */

static struct {
	struct bed bed;
	pthread_barrier_t begin;
	u32 refused;
} crowd;

static struct tux3_node *crowd_file(u32 i)
{
	char path[60];

	split_path(path, i);
	return bed_file(&crowd.bed, path);
}

static void *crowd_main(void *arg)
{
	u32 first = (u32)(uintptr_t)arg * CROWD_FILES, i;
	struct tux3_node *node;
	int err;

	pthread_barrier_wait(&crowd.begin);
	for (i = first; i < first + CROWD_FILES; i++) {
		node = crowd_file(i);
		err = tux3_setattr(node, NULL, &(struct tux3_stat){ .mode = 0600 }, TUX3_SET_MODE);
		if (!err)
			err = tux3_setxattr(node, NULL, "user.value", "9876543210", 10, 0);
		if (err)
			__atomic_add_fetch(&crowd.refused, 1, __ATOMIC_RELAXED);
		tux3_node_put(node, 1);
	}
	return NULL;
}

/*
 * There is room for what all of them change, and for what a few of them are charged at a time: who is not quick enough to get it is
 * not told that there is none.
 */
static void test_who_is_overtaken_is_not_refused(void **state)
{
	static u8 data[65536];
	pthread_t threads[CROWD];
	struct tux3_node *large, *node;
	u64 size = 0;
	u32 i;

	crowd.bed = (struct bed){ .opts = { .costs = true } };
	crowd.refused = 0;
	bed_make(&crowd.bed, 96 << 20, sizeof(data));
	for (i = 0; i < CROWD * CROWD_FILES; i++) {
		node = crowd_file(i);
		assert_ok(tux3_setxattr(node, NULL, "user.value", "0123456789", 10, 0));
		tux3_node_put(node, 1);
	}
	assert_ok(tux3_sync(crowd.bed.volume));
	large = bed_file(&crowd.bed, "/large");
	while (tux3_write(large, data, sizeof(data), size) == sizeof(data))
		size += sizeof(data);
	assert_ok(tux3_truncate(large, size - CROWD_ROOM * sizeof(data)));
	assert_ok(tux3_sync(crowd.bed.volume));
	assert_int_equal(pthread_barrier_init(&crowd.begin, NULL, CROWD), 0);
	for (i = 0; i < CROWD; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, crowd_main, (void *)(uintptr_t)i), 0);
	for (i = 0; i < CROWD; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	pthread_barrier_destroy(&crowd.begin);
	assert_int_equal(crowd.refused, 0);
	assert_int_equal(counter(&crowd.bed, TUX3_COUNT_OVERDRAFTS), 0);
	tux3_node_put(large, 1);
	bed_free(&crowd.bed);
}

int main(void)
{
	static struct orphans orphans[] = {
		{ .mib = 32, .slice_extents = 1, .files = 100, .extents = 60 },
		{ .mib = 96, .slice_extents = 1, .files = 300, .extents = 60, .block = true, .thread = true },
		{ .mib = 96, .slice_extents = 1, .files = 300, .extents = 60, .cut = true, .crash = 40 },
		{ .mib = 32, .slice_extents = 2, .files = 100, .extents = 60, .early = true },
		{ .mib = 32, .slice_extents = 3, .files = 100, .extents = 60, .block = true, .cut = true },
		{ .mib = 32, .slice_extents = 64, .files = 5, .extents = 1100, .crash = 3 },
		{ .mib = 288, .files = 2, .extents = 2100, .block = true, .prealloc = true },
	};
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(test_deletes_in_a_full_volume_are_replayed),
		cmocka_unit_test(test_a_full_volume_is_mounted_after_a_crash),
		cmocka_unit_test(test_a_file_in_many_groups_is_punched),
		cmocka_unit_test(test_the_smallest_volume_holds_files),
		cmocka_unit_test(test_a_refusal_is_remembered),
		cmocka_unit_test(test_one_block_is_refused_once),
		cmocka_unit_test(test_room_that_comes_meanwhile_is_found),
		cmocka_unit_test(test_a_refusal_while_others_free_takes_a_commit),
		cmocka_unit_test(test_the_mode_of_a_file_with_an_acl),
		cmocka_unit_test(test_few_commits_near_full),
		cmocka_unit_test(test_leaves_that_split_do_not_shut_a_full_volume),
		cmocka_unit_test(test_little_is_kept),
		cmocka_unit_test(test_less_is_kept_beside_a_large_file),
		cmocka_unit_test(test_df_counts_the_log_as_free),
		cmocka_unit_test(test_df_counts_nodes_of_pending_changes),
		cmocka_unit_test(test_df_shows_what_can_be_had),
		cmocka_unit_test(test_a_refusal_is_right),
		cmocka_unit_test(test_full_when_more_is_to_be_kept),
		cmocka_unit_test(test_a_refusal_does_not_wait_for_changes_of_others),
		cmocka_unit_test(test_a_label_does_not_wait_for_changes_of_others),
		cmocka_unit_test(test_who_does_not_wait_takes_no_reserve),
		cmocka_unit_test_prestate(test_long_deletes_in_a_full_volume, &orphans[0]),
		cmocka_unit_test_prestate(test_long_deletes_in_a_full_volume, &orphans[2]),
		cmocka_unit_test_prestate(test_long_deletes_in_a_full_volume, &orphans[3]),
		cmocka_unit_test_prestate(test_long_deletes_in_a_full_volume, &orphans[4]),
		cmocka_unit_test_prestate(test_long_deletes_in_a_full_volume, &orphans[5]),
		cmocka_unit_test_prestate(test_long_deletes_in_a_full_volume, &orphans[6]),
	};
	const struct CMUnitTest beside[] = {
		cmocka_unit_test(test_credit),
		cmocka_unit_test(test_credit_of_large_operations),
		cmocka_unit_test(test_slices_get_credit),
		cmocka_unit_test(test_who_is_overtaken_is_not_refused),
		cmocka_unit_test_prestate(test_long_deletes_in_a_full_volume, &orphans[1]),
	};

	return run_alone_and_beside(alone, beside);
}
