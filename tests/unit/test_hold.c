/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Holds: the state of one moment stays readable, whole and unchanged, on the device of a volume that goes on; the checker
 * finds in it what is wrong and nothing else; and nobody misses what a hold keeps.
 */
#include "support_check.h"
#include "support_lib.h"
#include "core/check/check.h"
#include "core/delta/delta.h"
#include "core/inode/path.h"
#include "core/open.h"
#include "core/scrub/hold.h"
#include "core/tree/tree.h"
#include "user/env/clock.h"
#include "user/env/device_view.h"
#include "user/env/log.h"
#include "user/lib/check.h"

#include <pthread.h>
#include <unistd.h>

#define BLOCK 4096u

static const struct tux3_cred cred = { .no_permission_checks = true };
static u8 bytes[16 * BLOCK];

static void nowhere(int level, const char *message)
{
}

/* ---- a life ---- */

static void step(struct tux3 *volume, u64 *seed)
{
	u64 what = bed_random(seed);
	struct tux3_node *node, *dir;
	char path[64], to[64], to_dir[8];

	snprintf(path, sizeof(path), "/d%llu/a name that fills leaves, and so makes a tree %llu", what % 5, what / 8 % 300);
	snprintf(to, sizeof(to), "/d%llu/another that is as good %llu", what / 64 % 5, what / 512 % 300);
	snprintf(to_dir, sizeof(to_dir), "/d%llu", what / 64 % 5);
	if (what % 8 == 7) {
		tux3_path_unlink(volume, NULL, what % 16 == 15 ? to : path);
		return;
	}
	if (tux3_path(volume, NULL, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node))
		return;
	if (what % 8 == 5)
		tux3_setxattr(node, &cred, "user.x", bytes, what % 200, 0);
	else
		tux3_write(node, bytes, 1 + what % (3 * BLOCK), what % 5 * BLOCK);
	if (what % 8 == 6 && !tux3_path(volume, NULL, to_dir, 0, 0, &dir)) {
		tux3_link(node, &cred, dir, strrchr(to, '/') + 1);
		tux3_node_put(dir, 1);
	}
	tux3_node_put(node, 1);
}

static void hammer(struct bed *bed, u32 steps, u64 seed)
{
	u32 i;

	for (i = 0; i < steps; i++) {
		step(bed->volume, &seed);
		if (i % 100 == 99)
			assert_ok(tux3_sync(bed->volume));
	}
}

static u64 unifies(struct bed *bed)
{
	return atomic64_read(&tux3_core(bed->volume)->counters[TUX3_COUNT_UNIFIES]);
}

static void make(struct bed *bed, u64 size)
{
	*bed = (struct bed){ .opts = { .manual = true, .log_blocks = 16, .dirty_nodes = 16, .verify = true, .costs = true } };
	bed_make(bed, size, BLOCK);
	hammer(bed, 2000, 1);
}

/* ---- calls ---- */

static int call(struct bed *bed, u32 op, struct tux3_ioc_hold *hold)
{
	hold->op = op;
	return volume_hold(tux3_core(bed->volume), hold);
}

static void take(struct bed *bed, struct tux3_ioc_hold *hold)
{
	memset(hold, 0, sizeof(*hold));
	assert_ok(call(bed, TUX3_HOLD_TAKE, hold));
}

static int tell(void *ctx, const struct check_problem *problem)
{
	if (ctx)
		print_error("problem %s: %s\n", problem->name, problem->text);
	return 0;
}

/* Problems of what is held; -errno: it cannot be opened or gone through. */
static s64 look(struct bed *bed, struct tux3_ioc_hold *hold, bool print, struct check_result *result, u64 ino, char *path)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true, .manual = true, .anchor = (void *)hold->anchor };
	struct check_options check = { .problem = tell, .ctx = print ? result : NULL };
	struct tux3_device *view = device_view_create(bed->dev);
	struct volume *vol;
	char why[200];
	s64 err = volume_open(view, NULL, &opts, &vol, why, sizeof(why));

	if (!err) {
		err = volume_check(vol, &check, result);
		if (path)
			path_first_copy(vol, ino, path, 100);
		volume_close(vol);
	}
	view->ops->close(view);
	return err ? err : result->problems;
}

/* Thousands of changes and many unifies later all is there as it was, under its names of then. */
static void test_old_state(void **state)
{
	struct check_result before, after;
	struct tux3_ioc_hold hold;
	struct tux3_node *node;
	struct bed bed;
	char path[100];
	u64 ino, kept, first;

	make(&bed, 64 << 20);
	node = bed_file(&bed, "/of then/name");
	ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	take(&bed, &hold);
	assert_int_equal(look(&bed, &hold, true, &before, ino, path), 0);
	assert_string_equal(path, "/of then/name");
	assert_true(before.files > 300 && before.nodes > 20 && !before.groups_changed && before.groups_read);
	assert_ok(tux3_path_rename(bed.volume, NULL, "/of then/name", "/d0/of now", 0));
	first = unifies(&bed);
	for (kept = 0; kept < 5; kept++) {
		hammer(&bed, FEWER(2000, 500), 100 + kept);
		assert_int_equal(look(&bed, &hold, true, &after, ino, path), 0);
		assert_string_equal(path, "/of then/name");
		assert_int_equal(after.inodes, before.inodes);
		assert_int_equal(after.names, before.names);
		assert_int_equal(after.nodes, before.nodes);
		assert_int_equal(after.data_blocks, before.data_blocks);
		assert_ok(call(&bed, TUX3_HOLD_RENEW, &hold));
	}
	assert_true(unifies(&bed) > first + FEWER(20, 5));
	kept = tux3_core(bed.volume)->held.kept.blocks;
	/* Of that tree, and none that came later. */
	assert_true(kept > 10 && kept <= before.nodes);
	assert_ok(call(&bed, TUX3_HOLD_RELEASE, &hold));
	assert_int_equal(tux3_core(bed.volume)->held.kept.blocks, 0);
	assert_int_equal(call(&bed, TUX3_HOLD_RENEW, &hold), -ESTALE);
	bed_free(&bed);
}

/* Canary: what is not kept is overwritten, and that shows. */
static void test_not_kept(void **state)
{
	struct check_result result;
	struct tux3_ioc_hold hold;
	struct bed bed;

	make(&bed, 16 << 20);
	take(&bed, &hold);
	tux3_core(bed.volume)->held.on = false;
	hammer(&bed, 3000, 7);
	env_set_log(nowhere);
	assert_true(look(&bed, &hold, false, &result, 0, NULL) != 0);
	env_set_log(NULL);
	assert_int_equal(call(&bed, TUX3_HOLD_RENEW, &hold), -ESTALE);
	bed_free(&bed);
}

static void test_calls(void **state)
{
	struct tux3_ioc_hold hold, other = {};
	struct check_result result;
	struct bed bed;
	char why[200];

	make(&bed, 64 << 20);
	assert_int_equal(call(&bed, 0, &other), -EINVAL);
	assert_int_equal(call(&bed, 4, &other), -EINVAL);
	other.flags = 1;
	assert_int_equal(call(&bed, TUX3_HOLD_TAKE, &other), -EINVAL);
	other.flags = 0;
	assert_int_equal(call(&bed, TUX3_HOLD_RENEW, &other), -ESTALE);
	take(&bed, &hold);
	assert_int_equal(call(&bed, TUX3_HOLD_TAKE, &other), -EBUSY);
	other.cookie = hold.cookie + 1;
	assert_int_equal(call(&bed, TUX3_HOLD_RENEW, &other), -ESTALE);
	assert_int_equal(call(&bed, TUX3_HOLD_RELEASE, &other), -ESTALE);
	/* It lasts as long as it is renewed. */
	env_pass_time(TUX3_HOLD_S * 900000000ull);
	assert_ok(call(&bed, TUX3_HOLD_RENEW, &hold));
	env_pass_time(TUX3_HOLD_S * 900000000ull);
	assert_ok(call(&bed, TUX3_HOLD_RENEW, &hold));
	hammer(&bed, 500, 9);
	assert_true(tux3_core(bed.volume)->held.kept.blocks);
	env_pass_time(TUX3_HOLD_S * 1100000000ull);
	assert_int_equal(call(&bed, TUX3_HOLD_RENEW, &hold), -ESTALE);
	assert_int_equal(call(&bed, TUX3_HOLD_RELEASE, &hold), -ESTALE);
	/* The next commit gives back what it has kept. */
	hammer(&bed, 100, 10);
	assert_true(!tux3_core(bed.volume)->held.on && !tux3_core(bed.volume)->held.kept.blocks);
	/* Frozen, read-only: as it is. */
	assert_ok(delta_pause(tux3_core(bed.volume)));
	take(&bed, &hold);
	assert_int_equal(look(&bed, &hold, true, &result, 0, NULL), 0);
	delta_resume(tux3_core(bed.volume));
	hammer(&bed, 500, 11);
	assert_int_equal(look(&bed, &hold, true, &result, 0, NULL), 0);
	assert_ok(volume_set_read_only(tux3_core(bed.volume), true, why, sizeof(why)));
	assert_int_equal(call(&bed, TUX3_HOLD_RENEW, &hold), -ESTALE);
	take(&bed, &hold);
	assert_int_equal(look(&bed, &hold, true, &result, 0, NULL), 0);
	assert_ok(volume_set_read_only(tux3_core(bed.volume), false, why, sizeof(why)));
	assert_int_equal(call(&bed, TUX3_HOLD_RENEW, &hold), -ESTALE);
	/* One that is there at the end. */
	take(&bed, &hold);
	hammer(&bed, 500, 12);
	bed_free(&bed);
}

/* A crash, or an end, under a hold: nothing is lost by it. */
static void test_crash(void **state)
{
	struct check_result result;
	struct tux3_ioc_hold hold;
	struct bed bed;
	u32 i;

	make(&bed, 32 << 20);
	for (i = 0; i < FEWER(10, 3); i++) {
		take(&bed, &hold);
		hammer(&bed, 300 + 37 * i, 20 + i);
		assert_true(tux3_core(bed.volume)->held.kept.blocks);
		bed_crash(&bed);
		/* After a crash the tree of the anchor is what there was: the log is not looked at. */
		take(&bed, &hold);
		assert_int_equal(look(&bed, &hold, true, &result, 0, NULL), 0);
		assert_ok(call(&bed, TUX3_HOLD_RELEASE, &hold));
		bed_check(&bed);
	}
	bed_free(&bed);
}

/* ---- want of space ---- */

static u64 fill_up(struct bed *bed, u32 size)
{
	struct tux3_node *node;
	u64 all = 0;
	char path[40];
	u32 i, bad = 0;

	for (i = 0; bad < 20; i++) {
		s64 got = -ENOSPC;

		snprintf(path, sizeof(path), "/full/%u", i);
		if (!tux3_path(bed->volume, NULL, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node)) {
			got = tux3_write(node, bytes, size, 0);
			tux3_node_put(node, 1);
		}
		if (got == size)
			all += size;
		else
			bad++;
		assert_true(got > 0 || got == -ENOSPC);
		assert_true(got == size || !tux3_core(bed->volume)->held.on);
	}
	return all;
}

/* As much fits as without a hold, and nobody is refused while there is one. */
static void test_full(void **state)
{
	static const u32 sizes[] = { 1, BLOCK, 16 * BLOCK };
	struct tux3_ioc_hold hold;
	u64 fit[2], kept;
	struct bed bed;
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (n = 0; n < 2; n++) {
			bed = (struct bed){ .opts = { .manual = true, .log_blocks = 64, .dirty_nodes = 64, .verify = true } };
			bed.opts.costs = true;
			env_set_random_seed(1 + i);	/* names have the same hashes both times */
			bed_make(&bed, 16 << 20, BLOCK);
			hammer(&bed, 300, 1);
			assert_ok(delta_commit_unify(tux3_core(bed.volume)));
			take(&bed, &hold);
			if (!n)
				assert_ok(call(&bed, TUX3_HOLD_RELEASE, &hold));
			/* So that there is something that it keeps. */
			hammer(&bed, 100, 2);
			assert_ok(delta_commit_unify(tux3_core(bed.volume)));
			kept = tux3_core(bed.volume)->held.kept.blocks;
			assert_true(!!kept == n);
			fit[n] = fill_up(&bed, sizes[i]);
			if (n)
				assert_int_equal(call(&bed, TUX3_HOLD_RENEW, &hold), -ESTALE);
			bed_free(&bed);
		}
		/* When deltas get tight differs a little, and what the tree looks like then. */
		if (fit[1] < fit[0] - fit[0] / 100)
			fail_msg("files of %u bytes: %llu bytes fit, under a hold %llu", sizes[i], fit[0], fit[1]);
	}
	env_set_random_seed(0);
}

/* ---- the check ---- */

struct told {
	u32 count;
	char name[8][32], path[8][100];
};

static void on_problem(void *ctx, const struct tux3_check_problem *problem)
{
	struct told *told = ctx;

	if (told->count < 8) {
		snprintf(told->name[told->count], 32, "%s", problem->name);
		snprintf(told->path[told->count], 100, "%s", problem->path ? problem->path : "");
	}
	told->count++;
}

/* A link count that is too high by one, in the tree. */
static void damage(struct bed *bed, u64 ino)
{
	struct volume_options opts = { .manual = true };
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);
	struct disk_attr attr;
	struct volume *vol;
	char why[200];

	bed_close(bed);
	assert_ok(volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)));
	vol->delta.applying = vol->delta.committed + 1;
	tree_edit_begin(vol);
	assert_int_equal(tree_edit_lookup(vol, &key, &attr, sizeof(attr)), sizeof(attr));
	attr.nlink = cpu_to_le32(le32_to_cpu(attr.nlink) + 1);
	assert_ok(tree_set(vol, &key, &attr, sizeof(attr)));
	tree_edit_end(vol);
	vol->delta.committed = vol->delta.applying;
	vol->delta.front = vol->delta.committed + 1;
	assert_ok(volume_close(vol));
	bed_open(bed);
}

struct writer {
	struct bed *bed;
	u64 seed;
};

static atomic_t stop;

static void *writer(void *arg)
{
	struct writer *writer = arg;
	u32 n = 0;

	while (!atomic_read(&stop)) {
		step(writer->bed->volume, &writer->seed);
		if (++n % 64 == 0)
			tux3_sync(writer->bed->volume);
		if (n % 256 == 0)
			delta_commit_unify(tux3_core(writer->bed->volume));
	}
	return NULL;
}

/* As a disk, of which nobody reads half of what is being written into a block. */
struct whole {
	struct tux3_device dev;
	struct tux3_device *below;
	pthread_mutex_t lock;
};

static int whole_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct whole *whole = container_of(dev, struct whole, dev);

	pthread_mutex_lock(&whole->lock);
	memcpy(data, (u8 *)device_memory_bytes(whole->below) + addr * BLOCK, (size_t)count * BLOCK);
	pthread_mutex_unlock(&whole->lock);
	return 0;
}

static void whole_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
			struct io_wait *wait)
{
	struct whole *whole = container_of(dev, struct whole, dev);
	u8 *to = (u8 *)device_memory_bytes(whole->below) + addr * BLOCK;
	u32 i;

	io_wait_begin(wait);
	pthread_mutex_lock(&whole->lock);
	for (i = 0; i < vecs; to += vec[i++].iov_len)
		memcpy(to, vec[i].iov_base, vec[i].iov_len);
	pthread_mutex_unlock(&whole->lock);
	io_wait_end(wait, 0);
}

static int whole_flush(struct tux3_device *dev)
{
	return 0;
}

static void whole_close(struct tux3_device *dev)
{
	struct whole *whole = container_of(dev, struct whole, dev);

	whole->below->ops->close(whole->below);
	free(whole);
}

static const struct tux3_device_ops whole_ops = {
	.read = whole_read, .write = whole_write, .flush = whole_flush, .close = whole_close,
};

static struct tux3_device *whole_create(struct tux3_device *below)
{
	struct whole *whole = calloc(1, sizeof(*whole));

	assert_non_null(whole);
	whole->below = below;
	whole->dev = *below;
	whole->dev.ops = &whole_ops;
	pthread_mutex_init(&whole->lock, NULL);
	return &whole->dev;
}

/* Beside load: nothing, and then exactly what is wrong, with its path. */
static void test_beside(void **state)
{
	struct writer writers[3];
	pthread_t threads[3];
	struct tux3_node *node;
	struct told told;
	struct bed bed = { .opts = { .age_ms = 20, .log_blocks = 64, .dirty_nodes = 24 } };
	u32 i, round, n;
	u64 ino;

	bed_make(&bed, 512 << 20, BLOCK);	/* space never gets short */
	bed_close(&bed);
	bed.dev = whole_create(bed.dev);
	bed_open(&bed);
	hammer(&bed, FEWER(2000, 500), 3);
	node = bed_file(&bed, "/some/where/wrong");
	ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	for (round = 0; round < 2; round++) {
		u64 first;

		if (round)
			damage(&bed, ino);
		first = unifies(&bed);
		atomic_set(&stop, 0);
		for (i = 0; i < 3; i++) {
			writers[i] = (struct writer){ &bed, 50 + 10 * round + i };
			assert_int_equal(pthread_create(&threads[i], NULL, writer, &writers[i]), 0);
		}
		/* Long enough for the nodes that are held to be missed by those who do not know of them. */
		for (n = 0; n < FEWER(20, 3) || unifies(&bed) <= first + 5; n++) {
			told.count = 0;
			assert_ok(tux3_check(bed.volume, on_problem, &told));
			if (told.count != round)
				fail_msg("%u problems in round %u: %s of %s", told.count, round, told.name[0], told.path[0]);
			if (round) {
				assert_string_equal(told.name[0], "links");
				assert_string_equal(told.path[0], "/some/where/wrong");
			}
		}
		atomic_set(&stop, 1);
		for (i = 0; i < 3; i++)
			pthread_join(threads[i], NULL);
	}
	bed_close(&bed);
	bed.dev->ops->close(bed.dev);
}

/* One that cannot come to its end says so: here because the hold is dropped each time. */
static int hold_and_lose(void *ctx, struct tux3_ioc_hold *hold)
{
	struct bed *bed = ctx;
	int err = volume_hold(tux3_core(bed->volume), hold);

	if (hold->op == TUX3_HOLD_TAKE && !err) {
		delta_lock(tux3_core(bed->volume));
		space_end_hold(tux3_core(bed->volume));
		delta_unlock(tux3_core(bed->volume));
	}
	return err;
}

static void test_lost(void **state)
{
	struct held_check check = { .hold = hold_and_lose };
	struct tux3_ioc_hold hold;
	struct told told = {};
	struct bed bed;

	make(&bed, 16 << 20);
	check.ctx = &bed;
	assert_int_equal(held_check(&check, bed.dev), -ESTALE);
	assert_true(strstr(check.why, "overwritten meanwhile"));
	take(&bed, &hold);
	assert_int_equal(tux3_check(bed.volume, on_problem, &told), -EBUSY);
	assert_ok(call(&bed, TUX3_HOLD_RELEASE, &hold));
	assert_ok(tux3_check(bed.volume, on_problem, &told));
	assert_int_equal(told.count, 0);
	assert_int_equal(tux3_check(bed.volume, NULL, NULL), -EINVAL);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(test_old_state),
		cmocka_unit_test(test_not_kept),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_crash),
		cmocka_unit_test(test_full),
	};
	const struct CMUnitTest beside[] = {
		cmocka_unit_test(test_beside),
		cmocka_unit_test(test_lost),
	};

	return run_alone_and_beside(alone, beside);
}
