/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Quotas: who may have a block gets it, whatever others do at the same time, and who may not is refused without a commit, unless
 * something that he has had goes with it.
 */
#include "support_lib.h"
#include "user/lib/lib.h"
#include "user/env/clock.h"
#include "core/delta/delta.h"
#include "core/inode/inode_quota.h"
#include "core/open.h"

#include <pthread.h>
#include <unistd.h>
#include <linux/stat.h>

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE	0x01
#define FALLOC_FL_PUNCH_HOLE	0x02
#endif

#define BLOCK 4096u
#define USER 1000u
#define OTHER 1001u

static const struct tux3_cred user = { .uid = USER, .gid = 500, .no_permission_checks = true };
static const struct tux3_cred other = { .uid = OTHER, .gid = 501, .no_permission_checks = true };
static u8 bytes[512 * BLOCK];

static void limit(struct bed *bed, u32 id, u64 blocks, u64 inodes)
{
	struct tux3_quota quota = { .bytes_hard = blocks * BLOCK, .inodes_hard = inodes };

	assert_ok(tux3_quota_set(bed->volume, TUX3_QUOTA_USER, id, &quota, TUX3_QUOTA_BYTES_HARD | TUX3_QUOTA_INODES_HARD));
}

static struct tux3_node *create(struct bed *bed, const struct tux3_cred *who, const char *name)
{
	struct tux3_node *node = NULL;

	assert_ok(tux3_mknod(bed->root, who, name, S_IFREG | 0644, 0, 0, &node));
	return node;
}

static ssize_t put(struct tux3_node *node, u64 block, u32 count)
{
	ssize_t done = tux3_write(node, bytes, count * BLOCK, block * BLOCK);

	return done > 0 ? done / BLOCK : done;
}

/* Every second block, so that each is an extent. */
static void comb(struct tux3_node *node, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		assert_int_equal(put(node, 2 * i, 1), 1);
}

static struct tux3_quota state_of(struct bed *bed)
{
	struct tux3_quota quota;

	assert_ok(tux3_quota_get(bed->volume, TUX3_QUOTA_USER, USER, &quota));
	return quota;
}

static u64 blocks(struct bed *bed)
{
	assert_ok(tux3_sync(bed->volume));
	return state_of(bed).bytes / BLOCK;
}

static u64 deltas(struct bed *bed)
{
	return delta_counter(tux3_core(bed->volume), TUX3_COUNT_DELTAS);
}

/* Nobody has asked for the limits since the volume was opened when the first file goes. */
static void test_freed_first(void **state)
{
	struct bed bed = { .quota = true, .opts.manual = true };
	struct tux3_node *node;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 0, 2);
	tux3_node_put(create(&bed, &user, "one"), 1);
	tux3_node_put(create(&bed, &user, "two"), 1);
	bed_reopen(&bed);
	assert_ok(tux3_unlink(bed.root, &user, "one"));
	tux3_node_put(create(&bed, &user, "three"), 1);
	limit(&bed, USER, 10, 0);
	node = bed_find(&bed, "/two");
	assert_int_equal(put(node, 0, 10), 10);
	tux3_node_put(node, 1);
	bed_reopen(&bed);
	node = bed_find(&bed, "/two");
	assert_ok(tux3_truncate(node, 5 * BLOCK));
	assert_int_equal(put(node, 20, 5), 5);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A delete that takes many commits: its owner has what it gives back, however many these are; others do not wait for it. */
static void test_long_delete(void **state)
{
	struct bed bed = { .quota = true, .opts = { .manual = true, .slice_extents = 1 } };
	struct tux3_node *big, *node, *others;
	u64 before;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 500, 0);
	limit(&bed, OTHER, 1, 0);
	big = create(&bed, &user, "big");
	comb(big, 400);
	tux3_node_put(big, 1);
	node = create(&bed, &user, "node");
	others = create(&bed, &other, "others");
	assert_int_equal(put(node, 0, 100), 100);
	assert_int_equal(put(others, 0, 1), 1);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_unlink(bed.root, &user, "big"));
	assert_ok(delta_commit(tux3_core(bed.volume)));
	assert_true(atomic64_read(&tux3_core(bed.volume)->space.deleting) > 100);
	before = deltas(&bed);
	assert_int_equal(put(others, 1, 1), -EDQUOT);
	assert_int_equal(put(others, 1, 30), -EDQUOT);
	assert_int_equal(deltas(&bed), before);
	assert_int_equal(put(node, 200, 390), 390);
	tux3_node_put(node, 1);
	tux3_node_put(others, 1);
	bed_free(&bed);
}

/* And also if the machine crashed meanwhile. */
static void test_long_delete_crash(void **state)
{
	struct bed bed = { .quota = true, .opts = { .slice_extents = 1 } };
	struct tux3_node *big, *node;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 500, 0);
	big = create(&bed, &user, "big");
	comb(big, 400);
	tux3_node_put(big, 1);
	node = create(&bed, &user, "node");
	assert_int_equal(put(node, 0, 100), 100);
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_unlink(bed.root, &user, "big"));
	assert_ok(delta_commit(tux3_core(bed.volume)));
	bed_crash(&bed);
	node = bed_find(&bed, "/node");
	assert_int_equal(put(node, 200, 390), 390);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* What frees nothing lets nobody hope. */
static void test_nothing_freed(void **state)
{
	struct bed bed = { .quota = true, .opts.manual = true };
	struct tux3_node *node;
	u64 before;
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 10, 0);
	node = create(&bed, &user, "node");
	assert_int_equal(put(node, 0, 10), 10);
	assert_int_equal(put(node, 20, 1), -EDQUOT);
	before = deltas(&bed);
	for (i = 0; i < 100; i++) {
		assert_ok(tux3_setxattr(node, NULL, "user.small", bytes, i % 20, 0));
		assert_int_equal(put(node, 20, 1), -EDQUOT);
	}
	limit(&bed, USER, 10, 1);
	for (i = 0; i < 100; i++) {	/* blocks, perhaps, but no inode */
		assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 50 * BLOCK, 10 * BLOCK));
		assert_int_equal(tux3_mknod(bed.root, &user, "more", S_IFREG | 0644, 0, 0, NULL), -EDQUOT);
	}
	assert_int_equal(deltas(&bed), before);
	assert_ok(tux3_sync(bed.volume));
	before = deltas(&bed);
	for (i = 0; i < 100; i++) {
		assert_ok(tux3_truncate(node, 10 * BLOCK));
		assert_int_equal(put(node, 20, 1), -EDQUOT);
	}
	assert_int_equal(deltas(&bed), before);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* What was cut off while the inode was in memory of a volume that could not be written to is not charged to who gets it. */
static void test_owner_after_recovery(void **state)
{
	struct bed bed = { .quota = true, .opts = { .manual = true, .slice_extents = 1 } };
	struct tux3_node *node;
	struct delta_op op;
	char why[256] = "";

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, OTHER, 50, 0);
	node = create(&bed, &user, "node");
	comb(node, 100);
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	/* As a truncate does, but nobody waits for its end. */
	node = bed_find(&bed, "/node");
	assert_ok(delta_enter(tux3_core(bed.volume), &op, 0, DELTA_MUST));
	assert_ok(data_remove(&op, &node->inode, 20, DATA_END));
	node->inode.attr.size = 20 * BLOCK;
	delta_leave(&op);
	assert_ok(delta_commit(tux3_core(bed.volume)));
	tux3_node_put(node, 1);
	bed.opts.read_only = true;
	bed_crash(&bed);
	node = bed_find(&bed, "/node");
	assert_int_equal(volume_set_read_only(tux3_core(bed.volume), false, why, sizeof(why)), 0);
	assert_ok(tux3_setattr(node, NULL, &(struct tux3_stat){ .uid = OTHER }, TUX3_SET_UID));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

struct rewriter {
	pthread_t thread;
	struct tux3_node *node;
	u32 count, at_once;
	int stop;
};

/* Takes nothing. */
static void *rewrite(void *arg)
{
	struct rewriter *rewriter = arg;
	u32 at = 0;

	while (!READ_ONCE(rewriter->stop)) {
		ssize_t done = put(rewriter->node, at, rewriter->at_once);

		if (done != rewriter->at_once)
			return (void *)(long)(done < 0 ? done : -EIO);
		at = (at + rewriter->at_once) % rewriter->count;
	}
	return NULL;
}

static void rewriters_start(struct rewriter *rewriters, u32 count, void *(*fn)(void *))
{
	u32 i;

	for (i = 0; i < count; i++)
		assert_int_equal(pthread_create(&rewriters[i].thread, NULL, fn, &rewriters[i]), 0);
}

/* And puts their files; none of them was refused. */
static void rewriters_stop(struct rewriter *rewriters, u32 count)
{
	void *result;
	u32 i;

	for (i = 0; i < count; i++) {
		WRITE_ONCE(rewriters[i].stop, 1);
		pthread_join(rewriters[i].thread, &result);
		assert_null(result);
		tux3_node_put(rewriters[i].node, 1);
	}
}

/* Who writes over what there is leaves the others all the rest of the room. */
static void rewriting(u32 at_once, u32 room, bool sync)
{
	struct bed bed = { .quota = true };
	struct rewriter rewriters[3];
	struct tux3_node *node;
	u32 i, n;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 3 * (200 - 200 % at_once) + room, 0);
	for (i = 0; i < ARRAY_SIZE(rewriters); i++) {
		rewriters[i] = (struct rewriter){ .node = create(&bed, &user, (char[]){ 'a' + i, 0 }), .count = 200 - 200 % at_once,
						  .at_once = at_once };
		assert_int_equal(put(rewriters[i].node, 0, rewriters[i].count), rewriters[i].count);
	}
	node = create(&bed, &user, "node");
	assert_ok(tux3_sync(bed.volume));
	rewriters_start(rewriters, ARRAY_SIZE(rewriters), rewrite);
	for (n = 0; n < 300 / room; n++) {
		for (i = 0; i < room; i++) {
			ssize_t done = put(node, 2 * i, 1);

			if (done != 1)
				fail_msg("at once %u, round %u, block %u: %zd", at_once, n, i, done);
			if (sync && !(i % 10))
				assert_ok(tux3_sync(bed.volume));
		}
		assert_int_equal(put(node, 2 * i, 1), -EDQUOT);
		assert_ok(tux3_truncate(node, 0));
	}
	rewriters_stop(rewriters, ARRAY_SIZE(rewriters));
	tux3_node_put(node, 1);
	assert_int_equal(blocks(&bed), 3 * (200 - 200 % at_once));
	bed_free(&bed);
}

static void test_rewriting(void **state)
{
	rewriting(1, 1, false);
	rewriting(1, 2, true);
	rewriting(3, 10, false);
	rewriting(100, 100, true);
}

static const struct tux3_device_ops *memory_ops;

static void late_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	usleep(1000);
	memory_ops->write(dev, addr, vec, vecs, flags, wait);
}

/* A commit takes time, as on a disk: whoever does not wait for it is in the next delta first. */
static void make_late(struct bed *bed, struct tux3_device_ops *ops)
{
	memory_ops = bed->dev->ops;
	*ops = *memory_ops;
	ops->write = late_write;
	bed->dev->ops = ops;
}

/* Each of two limits has its own who write over what there is: while he waits for room in the one he does not lose the other. */
static void test_rewriting_two(void **state)
{
	static const struct tux3_cred who[] = {
		{ .uid = USER, .gid = 700, .no_permission_checks = true },
		{ .uid = USER, .gid = 701, .no_permission_checks = true },
		{ .uid = OTHER, .gid = 700, .no_permission_checks = true },
	};
	struct tux3_quota quota = { .bytes_hard = 20 * BLOCK };
	struct bed bed = { .quota = true };
	struct rewriter rewriters[2];
	struct tux3_device_ops ops;
	struct tux3_node *node;
	u32 i, n;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 20, 0);
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_GROUP, 700, &quota, TUX3_QUOTA_BYTES_HARD));
	for (i = 0; i < ARRAY_SIZE(rewriters); i++) {
		rewriters[i] = (struct rewriter){ .node = create(&bed, &who[1 + i], (char[]){ 'a' + i, 0 }), .count = 10,
						  .at_once = 1 };
		assert_int_equal(put(rewriters[i].node, 0, 10), 10);
	}
	node = create(&bed, &who[0], "node");
	assert_ok(tux3_sync(bed.volume));
	make_late(&bed, &ops);
	rewriters_start(rewriters, ARRAY_SIZE(rewriters), rewrite);
	for (n = 0; n < 10; n++) {
		for (i = 0; i < 10; i++) {
			ssize_t done = tux3_write_atomic(node, bytes, BLOCK, 2 * i * BLOCK);	/* in one piece: tried once */

			if (done != BLOCK)
				fail_msg("round %u, block %u: %zd", n, i, done);
			assert_ok(tux3_sync(bed.volume));
		}
		assert_int_equal(put(node, 2 * i, 1), -EDQUOT);
		assert_ok(tux3_truncate(node, 0));
	}
	rewriters_stop(rewriters, ARRAY_SIZE(rewriters));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void *rewrite_exempt(void *arg)
{
	tux3_quota_exempt(true);
	return rewrite(arg);
}

/* Who is above all limits, and writes over what there is, takes nothing from who waits, either. */
static void test_rewriting_exempt(void **state)
{
	struct bed bed = { .quota = true };
	struct tux3_device_ops ops;
	struct rewriter rewriter;
	struct tux3_node *node;
	u32 i, n;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 20, 0);
	rewriter = (struct rewriter){ .node = create(&bed, &user, "file"), .count = 10, .at_once = 1 };
	assert_int_equal(put(rewriter.node, 0, 10), 10);
	node = create(&bed, &user, "node");
	assert_ok(tux3_sync(bed.volume));
	make_late(&bed, &ops);
	rewriters_start(&rewriter, 1, rewrite_exempt);
	for (n = 0; n < 10; n++) {
		for (i = 0; i < 10; i++) {
			ssize_t done = tux3_write_atomic(node, bytes, BLOCK, 2 * i * BLOCK);

			if (done != BLOCK)
				fail_msg("round %u, block %u: %zd", n, i, done);
			assert_ok(tux3_sync(bed.volume));
		}
		assert_ok(tux3_truncate(node, 0));
	}
	rewriters_stop(&rewriter, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

struct maker {
	pthread_t thread;
	struct tux3_node *dir;
	const struct tux3_cred *cred;
	const char *name;
	int err;
};

static void *make(void *arg)
{
	struct maker *maker = arg;

	maker->err = tux3_mknod(maker->dir, maker->cred, maker->name, S_IFREG | 0644, 0, 0, NULL);
	return NULL;
}

/* Who is refused for his group has taken nothing meanwhile from others of his user. */
static void test_refused_by_second(void **state)
{
	static const struct tux3_cred who = { .uid = USER, .gid = 700, .no_permission_checks = true };
	struct tux3_quota quota = { .inodes_hard = 1 };
	struct maker refused = { .cred = &who, .name = "refused" }, granted = { .cred = &user, .name = "granted" };
	struct bed bed = { .quota = true };
	struct tux3_node *full;
	struct quota *group;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 0, 2);
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_GROUP, 700, &quota, TUX3_QUOTA_INODES_HARD));
	full = create(&bed, &who, "full");
	assert_ok(tux3_mknod(bed.root, &other, "one", S_IFDIR | 0755, 0, 0, &refused.dir));
	assert_ok(tux3_mknod(bed.root, &other, "two", S_IFDIR | 0755, 0, 0, &granted.dir));
	assert_ok(tux3_sync(bed.volume));
	group = full->inode.owner->quota[QUOTA_GROUP];
	spin_lock(&group->lock);	/* so far he gets, and no further */
	assert_int_equal(pthread_create(&refused.thread, NULL, make, &refused), 0);
	usleep(100000);
	assert_int_equal(pthread_create(&granted.thread, NULL, make, &granted), 0);
	usleep(100000);
	spin_unlock(&group->lock);
	pthread_join(refused.thread, NULL);
	pthread_join(granted.thread, NULL);
	assert_int_equal(refused.err, -EDQUOT);
	assert_int_equal(granted.err, 0);
	tux3_node_put(full, 1);
	tux3_node_put(refused.dir, 1);
	tux3_node_put(granted.dir, 1);
	bed_free(&bed);
}

struct holder {
	struct tux3_node *node;
	struct quota *quota;
	int charged;
};

/* Inside its delta with all the room, and nothing changed yet, until somebody waits for it. */
static void *hold_charge(void *arg)
{
	struct holder *holder = arg;
	struct tux3_inode *inode = &holder->node->inode;
	struct quota_charge charge = { .amount = { .blocks = 100, .unsure = true } };
	struct delta_op op;
	int err = inode_quota_enter(inode, &op, 0, DELTA_MUST, &charge);

	WRITE_ONCE(holder->charged, 1);
	if (err)
		return (void *)(long)err;
	while (!atomic_read(&holder->quota->waiting))
		usleep(1000);
	usleep(50000);
	inode_quota_settle(inode, &op, &charge, 0);
	delta_leave(&op);
	return NULL;
}

/* Who was charged for what he will not need, and is not ready to say so: the others wait for him. */
static void test_under_way(void **state)
{
	struct bed bed = { .quota = true };
	struct holder holder = {};
	struct tux3_node *node;
	pthread_t thread;
	void *result;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 100, 0);
	holder.node = create(&bed, &user, "holder");
	node = create(&bed, &user, "node");
	assert_ok(tux3_sync(bed.volume));
	holder.quota = holder.node->inode.owner->quota[QUOTA_USER];
	assert_int_equal(pthread_create(&thread, NULL, hold_charge, &holder), 0);
	while (!READ_ONCE(holder.charged))
		usleep(1000);
	assert_int_equal(put(node, 0, 1), 1);
	pthread_join(thread, &result);
	assert_null(result);
	tux3_node_put(holder.node, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Who gets a file of which an operation under way is charged for what it will not need, and who waits for it. */
static void test_under_way_moved(void **state)
{
	struct bed bed = { .quota = true };
	struct holder holder = {};
	struct tux3_node *node;
	pthread_t thread;
	void *result;
	u32 room;

	for (room = 50; room <= 100; room += 50) {
		bed_make(&bed, 64 << 20, BLOCK);
		limit(&bed, USER, room, 0);
		holder.charged = 0;
		holder.node = create(&bed, &other, "holder");
		node = create(&bed, &user, "node");
		assert_ok(tux3_sync(bed.volume));
		holder.quota = node->inode.owner->quota[QUOTA_USER];
		assert_int_equal(pthread_create(&thread, NULL, hold_charge, &holder), 0);
		while (!READ_ONCE(holder.charged))
			usleep(1000);
		assert_ok(tux3_setattr(holder.node, NULL, &(struct tux3_stat){ .uid = USER }, TUX3_SET_UID));
		assert_int_equal(put(node, 0, 1), 1);
		pthread_join(thread, &result);
		assert_null(result);
		tux3_node_put(holder.node, 1);
		tux3_node_put(node, 1);
		bed_free(&bed);
	}
}

static int look_none(struct quota_charge *charge)
{
	charge->amount.blocks = 0;
	return 0;
}

/* As stores through a mapping do, of blocks that are there: they wait for no host's lock. */
static void *store(void *arg)
{
	struct rewriter *storer = arg;
	struct tux3_inode *inode = &storer->node->inode;

	while (!READ_ONCE(storer->stop)) {
		struct quota_charge charge = { .amount = { .blocks = 1, .unsure = true }, .look = look_none };
		struct delta_op op;
		int err = inode_quota_enter(inode, &op, 0, DELTA_MUST, &charge);

		if (err)
			return (void *)(long)err;
		inode_change_begin(&op, inode);
		inode_change_end(inode);
		delta_leave(&op);
		usleep(100);
	}
	return NULL;
}

/* Who gets a file that is stored to all the time needs room for what it has, and no more. */
static void test_move_while_stored(void **state)
{
	struct bed bed = { .quota = true };
	struct rewriter storer = {};
	struct tux3_device_ops ops;
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	limit(&bed, USER, 100, 0);
	storer.node = create(&bed, &other, "file");
	assert_int_equal(put(storer.node, 0, 100), 100);
	assert_ok(tux3_sync(bed.volume));
	make_late(&bed, &ops);
	rewriters_start(&storer, 1, store);
	for (i = 0; i < 10; i++) {
		usleep(1000);
		assert_ok(tux3_setattr(storer.node, NULL, &(struct tux3_stat){ .uid = USER }, TUX3_SET_UID));
		assert_ok(tux3_setattr(storer.node, NULL, &(struct tux3_stat){ .uid = OTHER }, TUX3_SET_UID));
	}
	rewriters_stop(&storer, 1);
	bed_free(&bed);
}

static u64 now_s;

static u64 clock_ns(void)
{
	return now_s * 1000000000;
}

/* Who writes over what there is, and is never above his soft limit, has no grace that ends. */
static void test_soft(void **state)
{
	struct tux3_quota quota = { .bytes_soft = 20 * BLOCK, .bytes_hard = 100 * BLOCK };
	struct bed bed = { .quota = true, .opts.manual = true };
	struct tux3_node *node;
	u32 i;

	now_s = 1000000;
	env_set_clock(clock_ns);
	bed_make(&bed, 64 << 20, BLOCK);
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, 15));
	node = create(&bed, &user, "node");
	assert_int_equal(put(node, 0, 18), 18);
	assert_int_equal(blocks(&bed), 18);
	for (i = 0; i < 40; i++) {
		now_s += 24 * 60 * 60;
		assert_int_equal(put(node, 0, 10), 10);
		assert_int_equal(state_of(&bed).bytes_time, 0);
		if (i % 2)
			assert_ok(tux3_sync(bed.volume));
	}
	assert_int_equal(put(node, 30, 1), 1);
	assert_int_equal(state_of(&bed).bytes_time, 0);
	tux3_node_put(node, 1);
	bed_free(&bed);
	env_set_clock(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_freed_first),
		cmocka_unit_test(test_long_delete),
		cmocka_unit_test(test_long_delete_crash),
		cmocka_unit_test(test_nothing_freed),
		cmocka_unit_test(test_owner_after_recovery),
		cmocka_unit_test(test_rewriting),
		cmocka_unit_test(test_soft),
		cmocka_unit_test(test_under_way),
		cmocka_unit_test(test_under_way_moved),
		cmocka_unit_test(test_move_while_stored),
		cmocka_unit_test(test_rewriting_two),
		cmocka_unit_test(test_refused_by_second),
		cmocka_unit_test(test_rewriting_exempt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
