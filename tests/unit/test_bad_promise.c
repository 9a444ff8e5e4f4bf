/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A commit that cannot read a leaf drops what was to go there.  What the next delta was accepted for, while that commit was under
 * way, counted on it: blocks that were to be preallocated.  Charged it is all the same.
 */
#include "support_bad.h"
#include "core/data/data_change.h"
#include "user/lib/lib.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <linux/falloc.h>

#define PLACE	600u	/* block of /pieces, whose leaf gets bad; of these every second one is a hole */
#define MANY	16u

static const struct tux3_cred user = { .uid = 1000, .gid = 500, .no_permission_checks = true };

/* Files in the order of their numbers: data of /file is submitted before /promised has its turn, and that of /last after it. */
struct promise {
	struct bed bed;
	struct tux3_node *node, *first, *last;
	u64 leaf;
	u32 what;	/* PROMISE_...: beside the commit */
	struct data_change change;
	pthread_t thread;
	sem_t counted, go;
	u32 opened;
};

#define PROMISE_EARLY	1u	/* before the leaf is bad */
#define PROMISE_WRITE	2u
#define PROMISE_FILL	4u
#define PROMISE_PRICE	8u	/* a write is priced, and enters later */
#define PROMISE_WAIT	16u	/* a fill has counted holes, and enters later */
#define PROMISE_XATTR	32u	/* a value of MANY / 2 blocks */

/* Of the user, as committed. */
static u64 used(struct promise *promise)
{
	struct tux3_quota quota;

	assert_ok(tux3_quota_get(promise->bed.volume, TUX3_QUOTA_USER, user.uid, &quota));
	return quota.bytes / BLOCK;
}

static void limit(struct promise *promise, u64 blocks)
{
	struct tux3_quota quota = { .bytes_hard = blocks * BLOCK };

	assert_ok(tux3_quota_set(promise->bed.volume, TUX3_QUOTA_USER, user.uid, &quota, TUX3_QUOTA_BYTES_HARD));
}

static void preallocated(struct promise *promise)
{
	assert_ok(tux3_fallocate(promise->node, 0, PLACE * BLOCK, MANY * BLOCK));
}

static void valued(struct promise *promise)
{
	static char value[MANY / 2 * BLOCK];

	assert_ok(tux3_setxattr(promise->node, &user, "user.value", value, sizeof(value), 0));
}

static void overwritten(struct promise *promise)
{
	u32 i;

	for (i = promise->bed.quota; i < MANY; i += 1 + promise->bed.quota)	/* the holes only, or all */
		assert_ok(bad_write(promise->node, PLACE + i, 1));
}

/* A host with nothing to do but wait. */
static int fill_open(struct data_change *change)
{
	struct promise *promise = container_of(change, struct promise, change);

	if (!promise->opened++) {
		sem_post(&promise->counted);
		sem_wait(&promise->go);
	}
	return 0;
}

static int fill_begin(struct data_change *change, struct delta_op *op)
{
	return 0;
}

static void fill_apply(struct data_change *change, struct delta_op *op)
{
}

static void fill_close(struct data_change *change, int err)
{
}

static void *fill(void *arg)
{
	static const struct data_change_ops ops = {
		.open = fill_open, .begin = fill_begin, .apply = fill_apply, .close = fill_close,
	};
	struct promise *promise = arg;

	data_change_init(&promise->change, &promise->node->inode, &ops);
	assert_ok(data_fallocate(&promise->change, DATA_FILL, PLACE * BLOCK, (PLACE + 2 * MANY) * BLOCK));
	return NULL;
}

static void beside(void *ctx)
{
	struct promise *promise = ctx;

	be_bad(&promise->bed, 0);
	if (promise->what & PROMISE_WRITE)
		overwritten(promise);
	if (promise->what & PROMISE_FILL)
		assert_ok(tux3_fallocate(promise->node, 0, PLACE * BLOCK, 2 * MANY * BLOCK));
	if (promise->what & PROMISE_PRICE) {
		data_change_init(&promise->change, &promise->node->inode, NULL);
		data_plan_write(&promise->change, (PLACE + 1) * BLOCK, (PLACE + 2) * BLOCK);
		assert_ok(data_price_write(&promise->change, (PLACE + 1) * BLOCK, (PLACE + 2) * BLOCK));
	}
	if (promise->what & PROMISE_XATTR)
		valued(promise);
	if (promise->what & PROMISE_WAIT) {
		assert_int_equal(pthread_create(&promise->thread, NULL, fill, promise), 0);
		sem_wait(&promise->counted);
	}
	if (!(promise->what & PROMISE_EARLY))
		return;
	cache_shrink(tux3_core(promise->bed.volume), U64_MAX);
	be_bad(&promise->bed, promise->leaf);
}

/* quota: so many blocks more the user may have. */
static void promise_begin_limited(struct promise *promise, u32 what, u32 quota)
{
	struct bed *bed = &promise->bed;

	*promise = (struct promise){ .what = what, .bed.quota = quota };
	sem_init(&promise->counted, 0, 0);
	sem_init(&promise->go, 0, 0);
	bed->opts.costs = true;
	bed->opts.verify = true;
	bad_begin(bed);
	promise->first = bed_find(bed, "/file");
	assert_ok(tux3_mknod(bed->root, &user, "promised", S_IFREG | 0644, 0, 0, &promise->node));
	promise->last = bed_file(bed, "/last");
	bad_make_pieces(bed, "/promised", BAD_PIECES);
	bad_item(bed, tree_key(promise->node->inode.ino, TUX3_ITEM_EXTENT, PLACE));
	promise->leaf = bad_device(bed->dev)->bad[0];
	be_bad(bed, 0);
	assert_true(promise->first->inode.ino < promise->node->inode.ino && promise->node->inode.ino < promise->last->inode.ino);
	if (quota)
		limit(promise, used(promise) + quota);
}

static void promise_begin(struct promise *promise, u32 what)
{
	promise_begin_limited(promise, what, 0);
	preallocated(promise);
}

/* The delta is committed, and loses what was preallocated in it; and so is the next one. */
static void promise_commit(struct promise *promise)
{
	struct bed *bed = &promise->bed;

	cache_shrink(tux3_core(bed->volume), U64_MAX);
	bad_device(bed->dev)->beside = beside;
	bad_device(bed->dev)->ctx = promise;
	assert_ok(bad_write(promise->what & PROMISE_EARLY ? promise->first : promise->last, 1, 1));
	if (!(promise->what & PROMISE_EARLY))
		be_bad(bed, promise->leaf);
	assert_int_equal(tux3_sync(bed->volume), -EIO);
	assert_null(bad_device(bed->dev)->beside);
	be_bad(bed, 0);
}

static void promise_end(struct promise *promise)
{
	assert_ok(tux3_sync(promise->bed.volume));
	assert_int_equal(delta_counter(tux3_core(promise->bed.volume), TUX3_COUNT_OVERDRAFTS), 0);
	tux3_node_put(promise->node, 1);
	tux3_node_put(promise->first, 1);
	tux3_node_put(promise->last, 1);
	bad_end(&promise->bed);
}

static void lost_and(u32 what)
{
	struct promise promise;

	promise_begin(&promise, what);
	promise_commit(&promise);
	promise_end(&promise);
}

static void test_lost_and_written(void **state)
{
	lost_and(PROMISE_WRITE);
	lost_and(PROMISE_WRITE | PROMISE_EARLY);
}

/* What the delta before has is no hole any more, so it is not charged for. */
static void test_lost_and_filled(void **state)
{
	lost_and(PROMISE_FILL);
	lost_and(PROMISE_FILL | PROMISE_EARLY);
	lost_and(PROMISE_FILL | PROMISE_WRITE);
}

/* Blocks that were to be taken out and preallocated anew stay what they are: who writes there needs others. */
static void test_not_taken_out_and_written(void **state)
{
	u32 what[] = { PROMISE_WRITE, PROMISE_WRITE | PROMISE_EARLY }, i;
	struct promise promise;

	for (i = 0; i < ARRAY_SIZE(what); i++) {
		promise_begin(&promise, what[i]);
		assert_ok(tux3_sync(promise.bed.volume));
		overwritten(&promise);
		assert_ok(tux3_sync(promise.bed.volume));
		bad_item(&promise.bed, tree_key(promise.node->inode.ino, TUX3_ITEM_EXTENT, PLACE));
		promise.leaf = bad_device(promise.bed.dev)->bad[0];
		be_bad(&promise.bed, 0);
		assert_ok(tux3_fallocate(promise.node, FALLOC_FL_ZERO_RANGE, PLACE * BLOCK, MANY * BLOCK));
		promise_commit(&promise);
		promise_end(&promise);
	}
}

/* What was found outside was true for the delta that was open then. */
static void test_priced_and_written_later(void **state)
{
	struct promise promise;
	struct delta_op op;

	promise_begin(&promise, PROMISE_PRICE);
	promise_commit(&promise);
	assert_int_equal(promise.change.new_blocks, 0);
	assert_ok(bad_write(promise.first, 0, 1));
	assert_ok(tux3_sync(promise.bed.volume));
	assert_ok(data_change_enter(&promise.change, &op));
	assert_int_equal(promise.change.new_blocks, 1);
	assert_int_equal(promise.change.unwritten, 0);
	assert_int_equal(promise.change.enter, 0);
	data_change_undone(&promise.change, &op);
	promise_end(&promise);
}

static void test_counted_and_filled_later(void **state)
{
	struct promise promise;

	promise_begin(&promise, PROMISE_WAIT);
	promise_commit(&promise);
	/* Of 2 * MANY blocks half are mapped, and others were promised. */
	assert_int_equal(promise.change.holes, MANY / 2);
	assert_ok(bad_write(promise.first, 0, 1));
	assert_ok(tux3_sync(promise.bed.volume));
	sem_post(&promise.go);
	assert_int_equal(pthread_join(promise.thread, NULL), 0);
	assert_int_equal(promise.opened, 2);
	assert_int_equal(promise.change.holes, MANY);
	promise_end(&promise);
}

/* Likewise if a store has come before it. */
static void test_priced_and_written_by_others(void **state)
{
	struct data_change change;
	struct promise promise;
	struct delta_op op;

	promise_begin(&promise, 0);
	assert_ok(tux3_sync(promise.bed.volume));
	data_change_init(&change, &promise.node->inode, NULL);
	data_plan_write(&change, (PLACE + 1) * BLOCK, (PLACE + 2) * BLOCK);
	assert_ok(data_price_write(&change, (PLACE + 1) * BLOCK, (PLACE + 2) * BLOCK));
	assert_int_equal(change.new_blocks, 0);
	assert_int_equal(change.enter, DELTA_PAID);
	assert_ok(bad_write(promise.node, PLACE + 1, 1));
	assert_ok(tux3_sync(promise.bed.volume));
	assert_ok(data_change_enter(&change, &op));
	assert_int_equal(change.new_blocks, 1);
	assert_int_equal(change.enter, 0);
	data_change_undone(&change, &op);
	promise_end(&promise);
}

/* Nor has the user more than his limit.  What is lost: preallocated blocks, or data or a value that is written again. */
static void limited(void (*change)(struct promise *), u32 what)
{
	struct tux3_node *other;
	struct promise promise;
	u64 most;

	promise_begin_limited(&promise, what, MANY / 2);
	most = used(&promise) + MANY / 2;
	assert_ok(tux3_mknod(promise.bed.root, &user, "mine", S_IFREG | 0644, 0, 0, &other));
	assert_ok(tux3_sync(promise.bed.volume));
	bad_item(&promise.bed, what & PROMISE_XATTR ? tree_key(promise.node->inode.ino, TUX3_ITEM_XATTR, 0) :
		 tree_key(promise.node->inode.ino, TUX3_ITEM_EXTENT, PLACE));
	promise.leaf = bad_device(promise.bed.dev)->bad[0];
	be_bad(&promise.bed, 0);
	change(&promise);
	promise_commit(&promise);
	while (bad_write(other, promise.opened, 1) == 0)
		promise.opened++;
	assert_ok(tux3_sync(promise.bed.volume));
	assert_int_equal(used(&promise), most);
	assert_int_equal(promise.opened, 0);
	tux3_node_put(other, 1);
	promise_end(&promise);
}

static void test_no_more_than_the_limit(void **state)
{
	limited(preallocated, PROMISE_WRITE);
	limited(overwritten, PROMISE_WRITE);
	limited(valued, PROMISE_XATTR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lost_and_written),
		cmocka_unit_test(test_lost_and_filled),
		cmocka_unit_test(test_not_taken_out_and_written),
		cmocka_unit_test(test_priced_and_written_later),
		cmocka_unit_test(test_priced_and_written_by_others),
		cmocka_unit_test(test_counted_and_filled_later),
		cmocka_unit_test(test_no_more_than_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
