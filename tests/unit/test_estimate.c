/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How much more operations are charged than their commits take: far from full, and on a volume that is full to some hundred blocks.
 * TUX3_TEST_VERBOSE=1 prints the table of DESIGN 9.
 */
#include "support_lib.h"
#include "user/env/clock.h"
#include "user/lib/lib.h"
#include "core/data/data_change.h"

#include <linux/falloc.h>

#define BLOCK	4096u
#define BYTES	(64u << 20)
#define FILES	2000u
#define TIMES	1000u
#define ROOM	400u		/* blocks, of the volume that is nearly full */
#define LARGE	2944u		/* blocks of /large */

static u8 data[64 * BLOCK];

/* What the deltas were charged, and what their commits took. */
struct meter {
	struct volume *vol;
	u64 delta;
	s64 charged, standing;		/* of deltas that are over */
	s64 of_front, standing_of_front;
	s64 taken;
	u32 commits;
};

static s64 taken(struct volume *vol)
{
	return vol->balloc.taken[BALLOC_DATA] + vol->balloc.taken[BALLOC_LOG] + vol->balloc.taken[BALLOC_NODE];
}

/* After each operation: who is refused makes the commit before he is charged. */
static void meter_look(struct meter *meter)
{
	struct volume *vol = meter->vol;
	u64 front = vol->delta.front;
	int cpu;

	if (front != meter->delta) {
		meter->charged += meter->of_front;
		meter->standing += meter->standing_of_front;
		meter->commits++;
	}
	meter->delta = front;
	meter->standing_of_front = vol->space.standing[front & 1];
	meter->of_front = 0;
	for_each_possible_cpu(cpu)
		meter->of_front += atomic64_read(&per_cpu_ptr(vol->delta.cpu, cpu)->charged[front & 1]);
}

static void meter_begin(struct meter *meter, struct bed *bed)
{
	assert_ok(tux3_sync(bed->volume));
	*meter = (struct meter){ .vol = tux3_core(bed->volume), .delta = tux3_core(bed->volume)->delta.front };
	meter->taken = taken(meter->vol);
	meter_look(meter);
}

static void meter_end(struct meter *meter, struct bed *bed)
{
	meter_look(meter);
	assert_ok(tux3_sync(bed->volume));
	meter_look(meter);
	meter->taken = taken(meter->vol) - meter->taken;
}

/* ---- operations: number i of them ---- */

static struct tux3_node *large;

static void file_path(char *path, size_t size, u32 i)
{
	snprintf(path, size, "/d%02u/file-%u", i % 16, i);
}

static int make_file(struct bed *bed, const char *path, u32 bytes)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, path, TUX3_CREATE, 0644, &node);

	if (err)
		return err;
	err = bytes ? min_t(long long, tux3_write(node, data, bytes, 0), 0) : 0;
	tux3_node_put(node, 1);
	return err;
}

static int new_file(struct bed *bed, u32 i, u32 bytes)
{
	char path[60];

	snprintf(path, sizeof(path), "/d%02u/new-%u", i % 16, i);
	return make_file(bed, path, bytes);
}

static int do_create(struct bed *bed, u32 i)
{
	return new_file(bed, i, 0);
}

static int do_small_file(struct bed *bed, u32 i)
{
	return new_file(bed, i, BLOCK);
}

static int do_append(struct bed *bed, u32 i)
{
	return min_t(long long, tux3_append(large, data, sizeof(data)), 0);
}

static int do_overwrite(struct bed *bed, u32 i)
{
	return min_t(long long, tux3_write(large, data, BLOCK, (u64)(i % LARGE) * BLOCK), 0);
}

static int do_random(struct bed *bed, u32 i)
{
	return do_overwrite(bed, i * 7919);
}

static int do_sparse(struct bed *bed, u32 i)
{
	return min_t(long long, tux3_write(large, data, BLOCK, (u64)(LARGE + 2 * (i * 7919 % 4096)) * BLOCK), 0);
}

/* A store through a mapping, to a hole: what a host does in the fault (data_change.h).  libtux3 itself has no mappings. */
static int no_edge(struct data_change *change, u32 i)
{
	return 0;
}

static int do_store(struct bed *bed, u32 i)
{
	u64 block = LARGE + 2 * (i * 7919 % 4096), fresh;
	struct file_change change = {};
	struct delta_op op;
	void *buffer;
	bool hole;
	u32 newly;
	int err;

	file_reserve_init(&change.reserve, large);
	data_plan_store(&change.plan, &large->inode);
	assert_ok(file_fill_block(large, block, change.plan.size, true, &hole));
	assert_ok(file_reserve_blocks(&change.reserve, block, 1));
	assert_ok(data_change_edges(&change.plan, no_edge));
	assert_ok(data_price_store(&change.plan, block, 1, false));
	err = data_change_enter(&change.plan, &op);
	if (!err) {
		newly = file_cache_dirty(&change.reserve, op.delta, block, 1, ~0ULL, &buffer, &fresh);
		memset(buffer, 1, BLOCK);
		file_change_dirtied(&change, &op, newly);
		data_settle_store(&change.plan, &op, newly);
		delta_leave(&op);
	}
	file_reserve_exit(&change.reserve);
	return err;
}

static int do_mkdir(struct bed *bed, u32 i)
{
	char path[60];

	snprintf(path, sizeof(path), "/d%02u/sub-%u", i % 16, i);
	return tux3_path_mkdir(bed->volume, NULL, path, 0755);
}

static int do_symlink(struct bed *bed, u32 i)
{
	struct tux3_node *dir, *node;
	char name[60];
	int err;

	snprintf(name, sizeof(name), "/d%02u", i % 16);
	dir = bed_find(bed, name);
	snprintf(name, sizeof(name), "symlink-%u", i);
	err = tux3_symlink(dir, NULL, name, "to/somewhere/else", &node);
	if (!err)
		tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	return err;
}

static int do_link(struct bed *bed, u32 i)
{
	struct tux3_node *node, *dir;
	char path[60];
	int err;

	file_path(path, sizeof(path), i);
	node = bed_find(bed, path);
	snprintf(path, sizeof(path), "/d%02u", i % 16);
	dir = bed_find(bed, path);
	snprintf(path, sizeof(path), "link-%u", i);
	err = tux3_link(node, NULL, dir, path);
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	return err;
}

static int do_rename(struct bed *bed, u32 i)
{
	char from[60], to[60];

	file_path(from, sizeof(from), i);
	snprintf(to, sizeof(to), "/d%02u/renamed-%u", i % 16, i);
	return tux3_path_rename(bed->volume, NULL, from, to, 0);
}

static int do_unlink(struct bed *bed, u32 i)
{
	char path[60];

	file_path(path, sizeof(path), i);
	return tux3_path_unlink(bed->volume, NULL, path);
}

static int of_file(struct bed *bed, u32 i, int (*change)(struct tux3_node *node))
{
	struct tux3_node *node;
	char path[60];
	int err;

	file_path(path, sizeof(path), i);
	node = bed_find(bed, path);
	err = change(node);
	tux3_node_put(node, 1);
	return err;
}

static int xattr(struct tux3_node *node)
{
	return tux3_setxattr(node, NULL, "user.attribute", data, 50, 0);
}

static int do_xattr(struct bed *bed, u32 i)
{
	return of_file(bed, i, xattr);
}

static int truncate_to_nothing(struct tux3_node *node)
{
	return tux3_truncate(node, 0);
}

static int do_truncate(struct bed *bed, u32 i)
{
	return of_file(bed, i, truncate_to_nothing);
}

static int do_punch(struct bed *bed, u32 i)
{
	return tux3_fallocate(large, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (u64)(i * 7919 % LARGE) * BLOCK, BLOCK);
}

static int chmod_file(struct tux3_node *node)
{
	return tux3_setattr(node, NULL, &(struct tux3_stat){ .mode = 0600 }, TUX3_SET_MODE);
}

static int do_mode(struct bed *bed, u32 i)
{
	return of_file(bed, i, chmod_file);
}

/* What an operation may be charged, on average, in hundredths of a block: far from full, and near. */
static const struct kind {
	const char *name;
	int (*run)(struct bed *bed, u32 i);
	u32 far, near;
} kinds[] = {
	{ "append of 64 KiB", do_append, 7100, 7100 },
	{ "overwrite in order", do_overwrite, 200, 215 },
	{ "overwrite at random", do_random, 200, 270 },
	{ "new block of a sparse file", do_sparse, 200, 290 },
	{ "store to a hole", do_store, 200, 850 },
	{ "file of 4 KiB", do_small_file, 400, 1100 },
	{ "empty file", do_create, 200, 450 },
	{ "mkdir", do_mkdir, 200, 860 },
	{ "symlink", do_symlink, 200, 950 },
	{ "link", do_link, 200, 1210 },
	{ "rename", do_rename, 200, 640 },
	{ "chmod", do_mode, 100, 320 },
	{ "setxattr of 50 bytes", do_xattr, 100, 220 },
	{ "unlink", do_unlink, 300, 1870 },
	{ "truncate to 0", do_truncate, 200, 840 },
	{ "punch of a block", do_punch, 105, 530 },
};

static void make(struct bed *bed)
{
	char path[60];
	u32 i;

	*bed = (struct bed){ .opts = { .manual = true } };
	env_set_random_seed(1);
	bed_make(bed, BYTES, BLOCK);
	env_set_random_seed(0);
	for (i = 0; i < 16; i++) {
		snprintf(path, sizeof(path), "/d%02u", i);
		assert_ok(tux3_path_mkdir(bed->volume, NULL, path, 0755));
	}
	for (i = 0; i < FILES; i++) {
		file_path(path, sizeof(path), i);
		assert_ok(make_file(bed, path, i % 2 ? BLOCK : 3));
	}
	large = bed_file(bed, "/large");
	assert_ok(tux3_truncate(large, 0));
	for (i = 0; i < LARGE / 64; i++)
		assert_ok(do_append(bed, i));
	assert_ok(tux3_truncate(large, (LARGE + 8192ull) * BLOCK));
	assert_ok(tux3_sync(bed->volume));
}

/* But for so many blocks. */
static void fill_but(struct bed *bed, u32 room)
{
	struct tux3_node *node = bed_file(bed, "/filler");
	u64 at = 0;

	while (tux3_write(node, data, 64 * BLOCK, at) == 64 * BLOCK)
		at += 64 * BLOCK;
	assert_ok(tux3_truncate(node, at - room * BLOCK));
	assert_ok(delta_commit_unify(tux3_core(bed->volume)));
	tux3_node_put(node, 1);
}

static void measure(const struct kind *kind, u32 room, struct meter *meter, u32 *count)
{
	struct bed bed;

	make(&bed);
	if (room)
		fill_but(&bed, room);
	meter_begin(meter, &bed);
	for (*count = 0; *count < TIMES && !kind->run(&bed, *count); ++*count)
		meter_look(meter);
	meter_end(meter, &bed);
	assert_int_equal(delta_counter(meter->vol, TUX3_COUNT_OVERDRAFTS), 0);
	tux3_node_put(large, 1);
	bed_close(&bed);
	bed.dev->ops->close(bed.dev);
}

static void test_what_operations_are_charged(void **state)
{
	u32 k, near, count, each;
	struct meter meter;

	for (k = 0; k < ARRAY_SIZE(kinds); k++) {
		for (near = 0; near < 2; near++) {
			measure(&kinds[k], near ? ROOM : 0, &meter, &count);
			assert_true(count);
			each = meter.charged * 100 / count;
			if (getenv("TUX3_TEST_VERBOSE"))
				print_message("%-27s %s %5u, charged %6lld, and %4lld for the tree, took %6lld; commits: %u\n", kinds[k].name,
					      near ? "near" : "far ", count, meter.charged, meter.standing, meter.taken, meter.commits);
			if (each > (near ? kinds[k].near : kinds[k].far))
				fail_msg("%s, %s full: charged %u hundredths of a block", kinds[k].name, near ? "nearly" : "not", each);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_operations_are_charged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
