/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * No user takes the volume down: what can be made in large numbers costs little for each, and what waits in memory has
 * an end.  Nothing here measures time: bytes, records, depths and steps are counted.
 */
#include <pthread.h>
#include "support_check.h"
#include "support_lib.h"
#include "support_image.h"

#include <linux/falloc.h>
#include <unistd.h>

#include <linux/log2.h>
#include "core/blocks/balloc.h"
#include "core/data/data.h"
#include "core/inode/file_range.h"
#include "core/inode/xattr.h"
#include "core/format/name_hash.h"
#include "core/data/delete.h"
#include "core/open.h"

#define BLOCK 4096u
#define READ_FILES 64u	/* more than what a task may add to a delta that is full: DELTA_PASSES */

static struct volume *core(struct bed *bed)
{
	return tux3_core(bed->volume);
}

static u64 counter(struct bed *bed, enum tux3_counter which)
{
	return delta_counter(core(bed), which);
}

static u32 depth(const struct rb_node *node)
{
	return node ? 1 + max(depth(node->rb_left), depth(node->rb_right)) : 0;
}

/* A red-black tree is at most twice as deep as the best one: each step costs O(log n). */
static void assert_balanced(const struct rb_root *root, u64 count)
{
	assert_true(depth(root->rb_node) <= 2 * (ilog2(count + 1) + 1));
}

/* ---- ranges of files ---- */

#define MODEL_BLOCKS 400u

static void ranges_match(const struct rb_root *ranges, const bool *model)
{
	u64 before = 0, block, count, n = 0;
	struct inode_range *range;
	bool first = true;

	for (range = file_ranges_first(ranges); range; range = file_ranges_next(range)) {
		assert_true(range->count && (first || range->block > before));	/* in order, and not touching */
		before = range->block + range->count;
		first = false;
		n++;
	}
	assert_balanced(ranges, n);
	for (block = 0; block < MODEL_BLOCKS; block++) {
		bool found = file_ranges_find(ranges, block, &count);

		assert_int_equal(found, model[block]);
		assert_true(count > 0);
		for (n = block; n < MODEL_BLOCKS && n < block + count; n++)
			assert_int_equal(model[n], found);
		if (n < MODEL_BLOCKS)
			assert_int_equal(model[n], !found);
	}
}

static void test_ranges_against_a_model(void **state)
{
	struct rb_root ranges = RB_ROOT;
	bool model[MODEL_BLOCKS] = {};
	u64 random = 7, count;
	u32 i, n;

	for (i = 0; i < 4000; i++) {
		u64 block = bed_random(&random) % MODEL_BLOCKS;
		bool add = bed_random(&random) % 16 < (i % 1000 < 500 ? 11 : 5), to_end = bed_random(&random) % 64 == 0;
		struct inode_range *spare = malloc(sizeof(*spare));

		count = to_end ? DATA_END : 1 + bed_random(&random) % (bed_random(&random) % 8 ? 4 : 60);
		if (!to_end)
			count = min(count, MODEL_BLOCKS - block);
		spare = (add ? file_ranges_add : file_ranges_cut)(&ranges, block, count, spare);
		free(spare);
		for (n = block; n < MODEL_BLOCKS && n - block < count; n++)
			model[n] = add;
		if (i % 8 == 0)
			ranges_match(&ranges, model);
	}
	file_ranges_free(&ranges);
	assert_true(RB_EMPTY_ROOT(&ranges));
}

/* 80,000 holes in one delta, in an order that makes them all separate at first, and one in the end. */
static void test_many_ranges(void **state)
{
	struct rb_root ranges = RB_ROOT;
	u64 i, count;

	for (i = 0; i < 80000; i++)
		assert_null(file_ranges_add(&ranges, i * 48271 % 80000 * 2, 1, malloc(sizeof(struct inode_range))));
	assert_balanced(&ranges, 80000);
	for (i = 0; i < 80000; i++) {
		struct inode_range *spare = malloc(sizeof(*spare));

		assert_ptr_equal(file_ranges_add(&ranges, i * 48271 % 80000 * 2 + 1, 1, spare), spare);
		free(spare);
	}
	assert_true(file_ranges_find(&ranges, 0, &count));
	assert_int_equal(count, 160000);
	assert_int_equal(depth(ranges.rb_node), 1);
	file_ranges_free(&ranges);
}

static void test_punches_make_commits(void **state)
{
	struct bed bed = { .opts = { .manual = true, .overlay_entries = 200 } };
	struct tux3_node *node;
	struct tux3_inode *inode;
	u64 most = 0, before;
	int i;

	bed_make(&bed, 16 << 20, BLOCK);
	node = bed_file(&bed, "/f");
	inode = tux3_node_core(node);
	before = counter(&bed, TUX3_COUNT_DELTAS) + counter(&bed, TUX3_COUNT_DELTAS_EMPTY);
	for (i = 0; i < 4000; i++) {
		struct delta_op op;

		assert_ok(delta_enter(core(&bed), &op, space_cost_items(core(&bed), 4), DELTA_FREES));
		assert_ok(data_remove(&op, inode, 2 * i, 1));
		most = max_t(u64, most, delta_changes_sum(&core(&bed)->delta, op.delta & 1));
		delta_leave(&op);
	}
	assert_true(most <= 202);
	assert_true(counter(&bed, TUX3_COUNT_DELTAS) + counter(&bed, TUX3_COUNT_DELTAS_EMPTY) - before >= 15);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- extended attributes ---- */

static void test_xattr_values_count_as_dirty(void **state)
{
	struct bed bed = { .opts = { .manual = true, .dirty_bytes = 256 << 10 } };
	u8 *value = calloc(1, TUX3_XATTR_SIZE_MAX);
	struct tux3_node *node;
	char name[32];
	u64 most = 0;
	int i;

	bed_make(&bed, 32 << 20, BLOCK);
	node = bed_file(&bed, "/f");
	for (i = 0; i < 200; i++) {
		struct delta_state *delta = &core(&bed)->delta;

		snprintf(name, sizeof(name), "user.%d", i / 2);	/* each is set twice */
		value[0] = i;
		assert_ok(tux3_setxattr(node, NULL, name, value, TUX3_XATTR_SIZE_MAX, 0));
		most = max_t(u64, most, delta_dirty_bytes_sum(delta, 0) + delta_dirty_bytes_sum(delta, 1));
	}
	assert_true(most >= TUX3_XATTR_SIZE_MAX && most <= (256 << 10) + 2 * TUX3_XATTR_SIZE_MAX);
	assert_ok(tux3_sync(bed.volume));
	assert_true(RB_EMPTY_ROOT(&tux3_node_core(node)->xattrs));	/* nothing of it stays in memory */
	assert_int_equal(delta_dirty_bytes_sum(&core(&bed)->delta, 0), 0);
	assert_int_equal(delta_dirty_bytes_sum(&core(&bed)->delta, 1), 0);
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "user.%d", i);
		assert_int_equal(tux3_getxattr(node, name, value, TUX3_XATTR_SIZE_MAX), TUX3_XATTR_SIZE_MAX);
		assert_int_equal(value[0], 2 * i + 1);
	}
	tux3_node_put(node, 1);
	free(value);
	bed_free(&bed);
}

/* A device that takes a while for each write; nothing depends on how long. */
static struct tux3_device_ops slow_ops;
static const struct tux3_device_ops *slowed_ops;

static void slow_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	usleep(500);
	slowed_ops->write(dev, addr, vec, vecs, flags, wait);
}

static void slow_begin(struct bed *bed)
{
	slowed_ops = bed->dev->ops;
	slow_ops = *slowed_ops;
	slow_ops.write = slow_write;
	bed->dev->ops = &slow_ops;
}

/* While the back end writes, who sets values does not fill memory with more of them than it was given. */
static void test_xattr_values_wait_for_the_device(void **state)
{
	u64 limit = 256 << 10, most = 0, total = 0, now;
	struct bed bed = { .opts = { .dirty_bytes = limit, .age_ms = 60000 } };
	u8 *value = calloc(1, TUX3_XATTR_SIZE_MAX);
	struct delta_state *delta;
	struct tux3_node *node;
	char name[32];
	u32 i, size;

	bed_make(&bed, 64 << 20, BLOCK);
	slow_begin(&bed);
	delta = &core(&bed)->delta;
	node = bed_file(&bed, "/f");
	for (i = 0; i < 600; i++, total += size) {
		size = i % 3 ? 1000 : TUX3_XATTR_SIZE_MAX;
		snprintf(name, sizeof(name), "user.%d", i);
		assert_ok(tux3_setxattr(node, NULL, name, value, size, 0));
		now = delta_dirty_bytes_sum(delta, 0) + delta_dirty_bytes_sum(delta, 1);
		most = max(most, now);
	}
	assert_true(total > 30 * limit);
	assert_true(most <= limit + 2 * TUX3_XATTR_SIZE_MAX);
	tux3_node_put(node, 1);
	free(value);
	bed.dev->ops = slowed_ops;
	bed_free(&bed);
}

/* A device that takes no writes for now. */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool closed;
	const struct tux3_device_ops *ops;	/* what it does otherwise */
	struct tux3_device_ops gated;
} gate = { .mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };

static void gate_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	pthread_mutex_lock(&gate.mutex);
	while (gate.closed)
		pthread_cond_wait(&gate.cond, &gate.mutex);
	pthread_mutex_unlock(&gate.mutex);
	gate.ops->write(dev, addr, vec, vecs, flags, wait);
}

static void gate_set(bool closed)
{
	pthread_mutex_lock(&gate.mutex);
	gate.closed = closed;
	pthread_cond_broadcast(&gate.cond);
	pthread_mutex_unlock(&gate.mutex);
}

static void gate_begin(struct bed *bed)
{
	gate.ops = bed->dev->ops;
	gate.gated = *gate.ops;
	gate.gated.write = gate_write;
	bed->dev->ops = &gate.gated;
	gate_set(true);
}

static void *stream(void *ctx)
{
	struct bed *bed = ctx;
	struct tux3_node *node = bed_file(bed, "/stream");
	u8 *data = calloc(1, 1 << 20);
	u32 i;

	for (i = 0; i < 16; i++)
		assert_int_equal(tux3_write(node, data, 1 << 20, (u64)i << 20), 1 << 20);
	free(data);
	tux3_node_put(node, 1);
	return NULL;
}

static atomic_t greedy_made;

static void *make_many(void *ctx)
{
	char name[32];
	u32 i;

	for (i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "/greedy%u", i);
		tux3_node_put(bed_file(ctx, name), 1);
		atomic_inc(&greedy_made);
	}
	return NULL;
}

/* The delta behind the one that cannot be written is full. */
static bool is_stuck(struct delta_state *delta)
{
	u64 front = READ_ONCE(delta->front);

	return READ_ONCE(delta->committed) + 2 == front && delta_dirty_bytes_sum(delta, front & 1) >= 4 << 20;
}

/*
 * Somebody writes faster than the device.  Others with small changes do not wait for him, nor for the device: neither do they
 * if they come one after the other; but who makes many of them waits, too.
 */
static void test_small_changes_pass_a_full_delta(void **state)
{
	struct bed bed = { .opts = { .dirty_bytes = 1 << 20, .dirty_limit_bytes = 4 << 20, .age_ms = 60000 } };
	pthread_t streaming, greedy;
	struct tux3_node *node;
	u8 data[4096] = { 1 };

	bed_make(&bed, 64 << 20, BLOCK);
	gate_begin(&bed);
	alarm(100);		/* who waits here waits for ever */
	assert_int_equal(pthread_create(&streaming, NULL, stream, &bed), 0);
	while (!is_stuck(&core(&bed)->delta))
		usleep(1000);
	node = bed_file(&bed, "/small");
	assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
	tux3_node_put(node, 1);
	assert_int_equal(pthread_create(&greedy, NULL, make_many, &bed), 0);
	while (atomic_read(&greedy_made) < 5)
		usleep(1000);
	usleep(100000);
	assert_true(atomic_read(&greedy_made) < 50);
	alarm(0);
	gate_set(false);
	pthread_join(streaming, NULL);
	pthread_join(greedy, NULL);
	bed_free(&bed);		/* through the gate: the volume's thread may be writing */
}

/* Without data: the delta behind the one that cannot be written is full of changes. */
static bool is_stuck_by_changes(struct volume *vol)
{
	u64 front = READ_ONCE(vol->delta.front);

	return READ_ONCE(vol->delta.committed) + 2 == front &&
	       delta_changes_sum(&vol->delta, front & 1) >= (s64)vol->opts.overlay_entries * 8;
}

/* Nor does who reads, however many files: that they were read can be left out, whatever it is that the delta is full of. */
static void test_reads_do_not_wait_for_a_full_delta(void **state)
{
	struct bed bed = { .opts = { .overlay_entries = 10, .age_ms = 60000 } };
	struct tux3_node *nodes[READ_FILES];
	pthread_t greedy;
	u8 data[10] = { 1 };
	char name[32];
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	for (i = 0; i < READ_FILES; i++) {
		snprintf(name, sizeof(name), "/read%u", i);
		nodes[i] = bed_file(&bed, name);
		assert_int_equal(tux3_write(nodes[i], data, sizeof(data), 0), sizeof(data));
	}
	assert_ok(tux3_sync(bed.volume));
	gate_begin(&bed);
	alarm(100);		/* who waits here waits for ever */
	atomic_set(&greedy_made, 0);
	assert_int_equal(pthread_create(&greedy, NULL, make_many, &bed), 0);
	while (!is_stuck_by_changes(core(&bed)))
		usleep(1000);
	for (i = 0; i < READ_FILES; i++)
		assert_int_equal(tux3_read(nodes[i], data, sizeof(data), 0), sizeof(data));
	alarm(0);
	gate_set(false);
	pthread_join(greedy, NULL);
	for (i = 0; i < READ_FILES; i++)
		tux3_node_put(nodes[i], 1);
	bed_free(&bed);
}

static int count_name(void *ctx, const char *name, unsigned int len)
{
	++*(u32 *)ctx;
	return 0;
}

/* Reads of the device while somebody has the mutex that deltas take. */
static struct tux3_device_ops watching_ops;
static const struct tux3_device_ops *watched_ops;
static struct mutex *watched;
static u64 watched_reads;

static int watching_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	if (watched) {
		assert_false(mutex_is_locked(watched));
		watched_reads++;
	}
	return watched_ops->read(dev, addr, count, data);
}

static void test_many_xattrs_of_one_inode(void **state)
{
	struct bed bed = { .opts = { .manual = true, .cache_bytes = 64 << 10 } };
	struct tux3_inode *inode;
	struct tux3_node *node;
	u32 i, count = 0;
	char name[32];

	bed_make(&bed, 32 << 20, BLOCK);
	watched_ops = bed.dev->ops;
	watching_ops = *watched_ops;
	watching_ops.read = watching_read;
	bed.dev->ops = &watching_ops;
	node = bed_file(&bed, "/f");
	inode = tux3_node_core(node);
	for (i = 0; i < 6000; i++) {
		snprintf(name, sizeof(name), "user.%u", i);
		assert_ok(tux3_setxattr(node, NULL, name, &i, sizeof(i), 0));
	}
	assert_balanced(&inode->xattrs, 6000);
	assert_ok(delta_commit_unify(core(&bed)));
	for (i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "user.%u", i * 17);
		assert_ok(tux3_removexattr(node, NULL, name));
		snprintf(name, sizeof(name), "user.%u", 10000 + i);
		assert_ok(tux3_setxattr(node, NULL, name, &i, sizeof(i), 0));
	}
	watched = &inode->xattr_mutex;
	assert_ok(xattr_list(inode, count_name, &count));
	watched = NULL;
	assert_int_equal(count, 6000);
	assert_true(watched_reads > 0);
	bed.dev->ops = watched_ops;
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static int count_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	++*(u64 *)ctx;
	return 0;
}

static u64 xattrs_in_tree(struct bed *bed, u64 ino)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_XATTR, 0), to = tree_key(ino, TUX3_ITEM_XATTR, U64_MAX);
	u64 count = 0;

	assert_ok(tree_scan(core(bed), &from, &to, count_item, &count));
	return count;
}

/* However many extended attributes an inode has, no commit removes more than a few slices of them. */
static void test_many_xattrs_are_removed_in_slices(void **state)
{
	struct bed bed = { .opts = { .manual = true, .slice_extents = 16 } };
	u64 ino, before, left, now, commits = 0;
	static u8 value[3 * BLOCK];
	struct tux3_node *node;
	char name[32];
	u32 i;

	bed_make(&bed, 32 << 20, BLOCK);
	tux3_node_put(bed_file(&bed, "/other"), 1);
	assert_ok(delta_commit_unify(core(&bed)));
	before = atomic64_read(&core(&bed)->balloc.data_used);
	node = bed_file(&bed, "/f");
	ino = tux3_node_core(node)->ino;
	for (i = 0; i < 1500; i++) {
		snprintf(name, sizeof(name), "user.%u", i);
		assert_ok(tux3_setxattr(node, NULL, name, value, i % 10 ? 5 : sizeof(value), 0));
	}
	for (i = 0; i < 100; i++)
		assert_int_equal(tux3_write(node, value, BLOCK, 2ull * i * BLOCK), BLOCK);
	assert_ok(tux3_sync(bed.volume));
	left = xattrs_in_tree(&bed, ino);
	assert_int_equal(left, 1500);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/f"));
	tux3_node_put(node, 1);
	for (assert_ok(delta_commit(core(&bed))); delta_has_changes(core(&bed)); commits++) {
		now = xattrs_in_tree(&bed, ino);
		assert_true(left - now <= 17 * 16);
		left = now;
		if (commits == 10) {	/* the mount goes on */
			bed_crash(&bed);
			break;
		}
		assert_ok(delta_commit(core(&bed)));
	}
	assert_int_equal(commits, 10);
	while (delta_has_changes(core(&bed)))
		assert_ok(delta_commit(core(&bed)));
	assert_int_equal(xattrs_in_tree(&bed, ino), 0);
	assert_int_equal(atomic64_read(&core(&bed)->balloc.data_used), before);
	bed_free(&bed);
}

/* ---- long deletes ---- */

#define LONG_FILES 120u
#define LONG_EXTENTS 20u	/* each a block; more than 16 slices of one extent: it goes in slices */

static void make_comb(struct bed *bed, const char *path, u32 extents)
{
	struct tux3_node *node = bed_file(bed, path);
	u8 data[BLOCK] = { 1 };
	u32 i;

	for (i = 0; i < extents; i++)
		assert_int_equal(tux3_write(node, data, BLOCK, 2ull * i * BLOCK), BLOCK);
	tux3_node_put(node, 1);
}

/* ---- a truncate while the volume becomes read-only ---- */

#define CUT_EXTENTS 600u

static u64 thread_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void *cut_all(void *ctx)
{
	u64 before = thread_cpu_ns();

	assert_ok(tux3_truncate(ctx, 0));
	return (void *)(thread_cpu_ns() - before);
}

/* Who waits for the end of it takes no CPU from those who make the commits; there may be but one. */
static void test_cut_waits_for_who_makes_it_read_only(void **state)
{
	struct bed bed = { .opts = { .slice_extents = 1, .age_ms = 60000 } };
	struct tux3_node *node;
	struct tux3_attr attr;
	pthread_t cutting;
	char why[200];
	void *cpu_ns;
	u64 start;

	bed_make(&bed, 64 << 20, BLOCK);
	make_comb(&bed, "/cut", CUT_EXTENTS);
	node = bed_file(&bed, "/cut");
	assert_ok(tux3_sync(bed.volume));
	slow_begin(&bed);
	assert_int_equal(pthread_create(&cutting, NULL, cut_all, node), 0);
	while (!delete_cuts_left(core(&bed)))
		usleep(1000);
	inode_get_attr(tux3_node_core(node), &attr);	/* by its lock: he has looked whether he may write */
	start = ktime_get_ns();
	assert_ok(volume_set_read_only(core(&bed), true, why, sizeof(why)));
	start = ktime_get_ns() - start;
	pthread_join(cutting, &cpu_ns);
	assert_false(READ_ONCE(tux3_node_core(node)->cutting));
	assert_true((u64)cpu_ns < start / 8);
	tux3_node_put(node, 1);
	bed.dev->ops = slowed_ops;
	bed_free(&bed);
}

static void test_long_deletes_take_turns(void **state)
{
	struct bed bed = { .opts = { .manual = true, .slice_extents = 1 } };
	u64 records, most = 0, commits = 0, cut_commits = 0;
	struct tux3_node *cut;
	struct delta_op op;
	char path[32];
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	make_comb(&bed, "/cut", LONG_EXTENTS);
	for (i = 0; i < LONG_FILES; i++) {
		snprintf(path, sizeof(path), "/f%u", i);
		make_comb(&bed, path, LONG_EXTENTS);
	}
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < LONG_FILES; i++) {
		snprintf(path, sizeof(path), "/f%u", i);
		assert_ok(tux3_path_unlink(bed.volume, NULL, path));
	}
	assert_ok(tux3_sync(bed.volume));
	/* Behind all of these comes one for which somebody waits. */
	cut = bed_file(&bed, "/cut");
	assert_ok(delta_enter(core(&bed), &op, space_cost_items(core(&bed), 4), DELTA_FREES));
	assert_ok(data_remove(&op, tux3_node_core(cut), 0, DATA_END));
	inode_change_begin(&op, tux3_node_core(cut))->size = 0;
	inode_change_end(tux3_node_core(cut));
	delta_leave(&op);
	assert_ok(delta_commit(core(&bed)));
	while (delta_has_changes(core(&bed))) {
		cut_commits += delete_cuts_left(core(&bed));
		records = counter(&bed, TUX3_COUNT_RECORDS);
		assert_ok(delta_commit(core(&bed)));
		most = max(most, counter(&bed, TUX3_COUNT_RECORDS) - records);
		assert_true(++commits < 10 * LONG_FILES * LONG_EXTENTS);
	}
	assert_true(most <= 16 * 4 + 8);	/* however many there are */
	assert_true(commits >= LONG_FILES * LONG_EXTENTS / 16 / 2);
	assert_true(cut_commits <= 2 * LONG_EXTENTS);
	assert_int_equal(core(&bed)->tree_inodes, 2);
	tux3_node_put(cut, 1);
	bed_free(&bed);
}

/* ---- windows of inode numbers ---- */

static void test_directories_come_and_go(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	struct tux3_node *node, *file;
	u64 most = 0;
	char name[32];
	u32 i, k;

	bed_make(&bed, 16 << 20, BLOCK);
	core(&bed)->ialloc.windows_max = 4;
	for (i = 0; i < 12000; i++) {	/* 94 windows */
		snprintf(name, sizeof(name), "d%u", i);
		assert_ok(tux3_mknod(bed.root, NULL, name, S_IFDIR | 0755, 0, 0, &node));
		tux3_node_put(node, 1);
		if (i % 50 == 0)
			assert_ok(tux3_sync(bed.volume));
		if (i % 400)
			assert_ok(tux3_rmdir(bed.root, NULL, name));
		most = max(most, core(&bed)->ialloc.count);
	}
	assert_true(most <= 8);
	assert_ok(tux3_sync(bed.volume));
	assert_true(core(&bed)->ialloc.count <= 4);
	for (i = 0; i < 12000; i += 400) {	/* those made in windows that went and came again are new ones */
		snprintf(name, sizeof(name), "d%u", i);
		assert_ok(tux3_lookup(bed.root, NULL, name, &node));
		for (k = 0; k < 40; k++) {
			snprintf(name, sizeof(name), "f%u", k);
			assert_ok(tux3_mknod(node, NULL, name, S_IFREG | 0644, 0, 0, &file));
			tux3_node_put(file, 1);
		}
		tux3_node_put(node, 1);
	}
	assert_int_equal(percpu_counter_sum(&core(&bed)->inodes), 1 + 30 * 41);
	bed_free(&bed);
}

/* ---- a damaged volume ---- */

/* /dir is in /dir/sub: the way up from there never comes to the root. */
static void make_circle(struct image *image)
{
	struct volume *vol = image_edit_begin(image);
	u64 dir = image->ino.dir, sub = image->ino.sub;
	struct tree_key old = tree_key(dir, TUX3_ITEM_PARENT, name_hash(vol, TUX3_INO_ROOT, TUX3_ITEM_PARENT, "dir", 3));
	struct tree_key new = tree_key(dir, TUX3_ITEM_PARENT, name_hash(vol, sub, TUX3_ITEM_PARENT, "dir", 3));
	struct {
		struct disk_parent head;
		char name[3];
	} __packed item = { .head = { .dir = cpu_to_le64(sub), .len = 3 }, .name = "dir" };

	assert_ok(tree_delete(vol, &old));
	assert_ok(tree_set(vol, &new, &item, sizeof(item)));
	assert_ok(image_edit_end(vol));
}

static void test_circle_of_parents(void **state)
{
	struct volume_options opts = { .manual = true };
	struct image image;
	struct tux3 *volume;
	char why[256] = "";

	assert_ok(image_build(&image, false));
	make_circle(&image);
	assert_ok(tux3_open_device(image.dev, false, &opts, 1 << 20, &volume, why, sizeof(why)));
	assert_int_equal(tux3_path_rename(volume, NULL, "/two", "/dir/sub/two", 0), -EIO);
	assert_int_equal(tux3_path_rename(volume, NULL, "/dir/sub", "/two/sub", TUX3_RENAME_NOREPLACE), 0);
	assert_ok(tux3_close(volume));
	image_close(&image);
}

/* ---- files of very many extents ---- */

#define COMB FEWER(15000u, 7500u)	/* extents: about 200 leaves, or 100; more than stay in memory */

/* What is punched is read by who punches, too, who looks whether it can be: more than stays in memory is read twice. */
static void assert_read_once(struct bed *bed, const char *what, u64 reads, u64 locked)
{
	reads = atomic64_read(&bed->dev->reads) - reads;
	locked = counter(bed, TUX3_COUNT_READS_LOCKED) - locked;
	if (reads > 3 * COMB / 64 || locked > 4)
		fail_msg("%s: %llu reads, %llu of them with the tree locked", what, (unsigned long long)reads,
			 (unsigned long long)locked);
}

/* Each leaf is read once, whatever the parts in which they go and how few nodes stay in memory, and the tree not locked for it. */
static void test_removing_many_extents(void **state)
{
	static const char *const paths[] = { "/punched", "/orphan", "/cut", "/deleted" };
	struct bed bed = { .opts = { .manual = true, .slice_extents = 250 } };
	struct tux3_node *node;
	u64 reads, locked;
	u32 i, n;

	bed_make(&bed, 1280 << 20, BLOCK);
	for (n = 0; n < ARRAY_SIZE(paths); n++) {
		node = bed_file(&bed, paths[n]);
		for (i = 0; i < COMB; i++)
			assert_int_equal(tux3_write(node, "data", 4, 2ULL * i * BLOCK), 4);
		tux3_node_put(node, 1);
	}
	bed.opts.cache_bytes = 64 * BLOCK;
	bed_reopen(&bed);
	for (n = 0; n < ARRAY_SIZE(paths); n++) {
		node = bed_file(&bed, paths[n]);
		reads = atomic64_read(&bed.dev->reads);
		locked = counter(&bed, TUX3_COUNT_READS_LOCKED);
		if (n % 2)
			assert_ok(tux3_path_unlink(bed.volume, NULL, paths[n]));
		if (n == 0)
			assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2ULL * COMB * BLOCK));
		else if (n < 3)
			assert_ok(tux3_truncate(node, 0));
		if (n == 3)
			tux3_node_put(node, 1);
		do
			assert_ok(delta_commit(core(&bed)));
		while (delta_has_changes(core(&bed)));
		assert_read_once(&bed, paths[n], reads, locked);
		if (n < 3)
			tux3_node_put(node, 1);
	}
	bed_free(&bed);
}

/*
 * What a commit looks at of the tree is for what is dirty in it, not for what else its file has: SQLite's log has a thousand
 * blocks, five of which are written over for each fsync.  Still, the free maps of what they replace are read before the tree is
 * locked.
 */
static void test_writing_over_little_of_a_file(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	struct tux3_node *node, *before;
	u64 hits, locked;
	u32 i;

	bed_make(&bed, 16ULL << 30, BLOCK);
	before = bed_file(&bed, "/before");	/* what is written later comes to groups that the log is not in */
	assert_ok(tux3_fallocate(before, 0, 0, 4ULL << 30));
	assert_ok(tux3_sync(bed.volume));
	node = bed_file(&bed, "/log");
	for (i = 0; i < 1000; i++)
		assert_int_equal(tux3_write(node, "data", 4, 2ULL * i * BLOCK), 4);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_truncate(before, 0));
	tux3_node_put(before, 1);
	tux3_node_put(node, 1);
	bed_reopen(&bed);
	node = bed_file(&bed, "/log");
	assert_true(core(&bed)->group_count > 8 && !balloc_all_loaded(core(&bed)));
	for (i = 0; i < 100; i++) {
		locked = counter(&bed, TUX3_COUNT_READS_LOCKED);
		assert_int_equal(tux3_write(node, "more", 4, 20ULL * i * BLOCK), 4);
		hits = cache_hits(core(&bed));
		assert_ok(tux3_sync(bed.volume));
		hits = cache_hits(core(&bed)) - hits;
		if (hits > 24 || counter(&bed, TUX3_COUNT_READS_LOCKED) != locked)
			fail_msg("write %u: %llu nodes of the tree were looked at, %llu reads with the tree locked", i,
				 (unsigned long long)hits, counter(&bed, TUX3_COUNT_READS_LOCKED) - locked);
	}
	assert_true(!balloc_all_loaded(core(&bed)));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(test_ranges_against_a_model),
		cmocka_unit_test(test_many_ranges),
		cmocka_unit_test(test_punches_make_commits),
		cmocka_unit_test(test_xattr_values_count_as_dirty),
		cmocka_unit_test(test_many_xattrs_of_one_inode),
		cmocka_unit_test(test_many_xattrs_are_removed_in_slices),
		cmocka_unit_test(test_long_deletes_take_turns),
		cmocka_unit_test(test_directories_come_and_go),
		cmocka_unit_test(test_circle_of_parents),
		cmocka_unit_test(test_removing_many_extents),
		cmocka_unit_test(test_writing_over_little_of_a_file),
	};
	const struct CMUnitTest beside[] = {
		cmocka_unit_test(test_xattr_values_wait_for_the_device),
		cmocka_unit_test(test_small_changes_pass_a_full_delta),
		cmocka_unit_test(test_reads_do_not_wait_for_a_full_delta),
		cmocka_unit_test(test_cut_waits_for_who_makes_it_read_only),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return run_alone_and_beside(alone, beside);
}
