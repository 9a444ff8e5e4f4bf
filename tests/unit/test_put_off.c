/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores through mappings that an fsync of others leaves to the next delta (core/commit/put_off.h), under the smallest host that
 * has some: each file has one block, which may be dirty in either delta.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "core/volume.h"
#include "core/data/data.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/check/check.h"
#include "core/inode/ialloc.h"
#include "core/names/ops.h"
#include "core/mkfs.h"
#include "core/open.h"
#include "user/env/device_memory.h"

#define BLOCK 5u
#define BLOCK_SIZE 4096u

struct node {
	struct tux3_inode inode;
	bool dirty[2];		/* the block is, in the delta of this slot */
	bool stays;		/* the host cannot put it off */
	bool unknown;		/* there may be stores that nobody announced */
	bool waits;		/* somebody begins to wait for it while the host looks for such */
	int pins;
};

static struct node *node_of(struct tux3_inode *inode)
{
	return container_of(inode, struct node, inode);
}

/* ---- host ---- */

static void host_grab(struct tux3_inode *inode)
{
	__atomic_add_fetch(&node_of(inode)->pins, 1, __ATOMIC_SEQ_CST);
}

static void host_release(struct tux3_inode *inode)
{
	assert_true(__atomic_fetch_sub(&node_of(inode)->pins, 1, __ATOMIC_SEQ_CST) > 0);
}

static int host_next(struct tux3_inode *inode, u64 delta, u64 from, u64 *block, u64 *count)
{
	*block = BLOCK;
	*count = 1;
	return node_of(inode)->dirty[delta & 1] && from <= BLOCK ? 0 : -ENOENT;
}

static int host_write(struct tux3_inode *inode, u64 delta, u64 block, u64 addr, u32 count, __le32 *csum, struct io_wait *wait)
{
	static const u8 zeros[BLOCK_SIZE];

	*csum = cpu_to_le32(crc32c(~0u, zeros, sizeof(zeros)));
	device_write(inode->vol->dev, addr, zeros, 1, 0, wait);
	return 0;
}

static int host_copy(struct tux3_inode *inode, u64 delta, u64 block, void *data, u32 len)
{
	return -EIO;
}

static void host_done(struct tux3_inode *inode, u64 delta, int err)
{
	node_of(inode)->dirty[delta & 1] = false;
}

static int host_put_off(struct tux3_inode *inode, u64 delta, u32 max)
{
	struct node *node = node_of(inode);
	int count = node->dirty[delta & 1];

	lockdep_assert_held(&inode->lock);
	assert_false(node->dirty[~delta & 1]);
	if (READ_ONCE(node->stays))
		return -EAGAIN;
	node->dirty[~delta & 1] = count;
	node->dirty[delta & 1] = false;
	return count;
}

static bool host_stores_known(struct tux3_inode *inode, u64 delta, u32 max)
{
	struct node *node = node_of(inode);

	if (READ_ONCE(node->waits)) {
		spin_lock(&inode->lock);	/* so nobody has it: a host may sleep here */
		inode->slot[delta & 1].awaited = true;
		spin_unlock(&inode->lock);
	}
	return !READ_ONCE(node->unknown);
}

static bool host_kill(struct tux3_inode *inode)
{
	return false;
}

static bool host_dirty(struct tux3_inode *inode, u64 from, u64 end, u64 *block, u64 *count)
{
	return false;
}

static u64 host_dirty_blocks(struct tux3_inode *inode)
{
	return 0;
}

static const struct tux3_host_ops host = {
	.inode_grab = host_grab,
	.inode_release = host_release,
	.inode_kill = host_kill,
	.data_next = host_next,
	.data_write = host_write,
	.data_copy = host_copy,
	.data_done = host_done,
	.data_put_off = host_put_off,
	.data_stores_known = host_stores_known,
	.data_dirty = host_dirty,
	.data_dirty_blocks = host_dirty_blocks,
};

/* ---- fixture ---- */

struct bed {
	struct tux3_device *dev;
	struct volume *vol;
	struct volume_options opts;
	struct node *root, *memory, *log;	/* two files */
	bool over;				/* who stores has done so often enough */
};

static struct node *node_alloc(struct bed *bed, u64 ino)
{
	struct node *node = calloc(1, sizeof(*node));

	inode_setup(bed->vol, &node->inode, ino);
	return node;
}

static void node_free(struct node *node)
{
	assert_int_equal(node->pins, 0);
	inode_exit(&node->inode);
	free(node);
}

static struct node *make(struct bed *bed, const char *name)
{
	struct tux3_inode *root = &bed->root->inode;
	struct node *node;
	u64 ino;

	assert_int_equal(ialloc_new(root, false, &ino), 0);
	node = node_alloc(bed, ino);
	node->inode.attr.mode = S_IFREG | 0644;
	node->inode.attr.size = (BLOCK + 1) * BLOCK_SIZE;
	assert_int_equal(op_create(root, name, strlen(name), &node->inode, NULL, 0), 0);
	return node;
}

static void bed_open(struct bed *bed)
{
	char why[256] = "";

	if (volume_open(bed->dev, &host, &bed->opts, &bed->vol, why, sizeof(why)))
		fail_msg("open: %s", why);
	bed->root = node_alloc(bed, TUX3_INO_ROOT);
	assert_int_equal(inode_read(&bed->root->inode), 0);
	bed->memory = make(bed, "memory");
	bed->log = make(bed, "log");
	assert_int_equal(delta_commit(bed->vol), 0);
}

static void bed_close(struct bed *bed)
{
	struct check_options opts = {};
	struct check_result result = {};

	assert_int_equal(delta_commit_unify(bed->vol), 0);
	assert_int_equal(volume_check(bed->vol, &opts, &result), 0);
	assert_int_equal(result.problems, 0);
	assert_int_equal(delta_counter(bed->vol, TUX3_COUNT_OVERDRAFTS), 0);
	/* Whatever was charged has come back. */
	assert_int_equal(space_balance(bed->vol),
			 bed->vol->space.available - bed->vol->space.standing[bed->vol->delta.front & 1]);
	node_free(bed->log);
	node_free(bed->memory);
	node_free(bed->root);
	assert_int_equal(volume_close(bed->vol), 0);
}

static int setup(void **state)
{
	struct bed *bed = calloc(1, sizeof(*bed));
	struct format_options opts = {};
	char why[256] = "";

	bed->dev = device_memory_create(16 << 20);
	bed->opts.manual = true;
	bed->opts.verify = true;
	bed->opts.age_ms = 60 * 1000;
	assert_int_equal(volume_format(bed->dev, &opts, why, sizeof(why)), 0);
	*state = bed;
	return 0;
}

static int teardown(void **state)
{
	struct bed *bed = *state;

	bed->dev->ops->close(bed->dev);
	free(bed);
	return 0;
}

/* ---- what is done to a file ---- */

static void change_block(struct bed *bed, struct node *node, bool stored)
{
	struct delta_op op;
	struct tux3_attr *attr;
	bool newly;

	assert_int_equal(delta_enter(bed->vol, &op, space_cost_data(bed->vol, 1, 1) + space_cost_items(bed->vol, 1), 0), 0);
	attr = stored ? inode_stored_begin(&op, &node->inode) : inode_change_begin(&op, &node->inode);
	attr->mtime.sec++;
	newly = !node->dirty[op.delta & 1];
	node->dirty[op.delta & 1] = true;
	inode_change_end(&node->inode);
	if (stored)
		data_stored(&op, &node->inode);
	else
		data_dirty(&op, &node->inode);
	delta_add_dirty_bytes(&op, newly ? BLOCK_SIZE : 0);
	delta_leave(&op);
}

static void store(struct bed *bed, struct node *node)
{
	change_block(bed, node, true);
}

static void write_block(struct bed *bed, struct node *node)
{
	change_block(bed, node, false);
}

static void sync_file(struct node *node)
{
	assert_int_equal(fsync_inode(&node->inode, true), 0);
}

static bool is_dirty(struct node *node)
{
	return node->inode.slot[0].dirty || node->inode.slot[1].dirty;
}

static u64 counter(struct bed *bed, enum tux3_counter which)
{
	return delta_counter(bed->vol, which);
}

/* In the tree, where commits bring it. */
static u64 change_in_tree(struct node *node)
{
	struct tree_key key = tree_key(node->inode.ino, TUX3_ITEM_ATTR, 0);
	struct disk_attr disk;

	assert_int_equal(tree_lookup(node->inode.vol, &key, &disk, sizeof(disk)), sizeof(disk));
	return le64_to_cpu(disk.change);
}

/* The log is written and synced: is the memory still dirty then? */
static bool is_put_off(struct bed *bed)
{
	u64 before = counter(bed, TUX3_COUNT_INODES_PUT_OFF);
	bool dirty;

	write_block(bed, bed->log);
	sync_file(bed->log);
	assert_false(is_dirty(bed->log));
	dirty = is_dirty(bed->memory);
	assert_int_equal(counter(bed, TUX3_COUNT_INODES_PUT_OFF) - before, dirty);
	return dirty;
}

/* ---- tests ---- */

static void fsync_of_others_leaves_stores(void **state)
{
	struct bed *bed = *state;
	u64 change, inodes, blocks, i;

	bed_open(bed);
	change = change_in_tree(bed->memory);
	store(bed, bed->memory);
	inodes = counter(bed, TUX3_COUNT_INODES_COMMITTED);
	blocks = counter(bed, TUX3_COUNT_DATA_BLOCKS);
	for (i = 1; i <= 10; i++) {
		assert_true(is_put_off(bed));
		assert_int_equal(counter(bed, TUX3_COUNT_INODES_COMMITTED), inodes + i);
		assert_int_equal(counter(bed, TUX3_COUNT_DATA_BLOCKS), blocks + i);
		assert_int_equal(bed->memory->pins, 1);
		assert_int_equal(delta_dirty_bytes_sum(&bed->vol->delta, bed->vol->delta.front & 1), BLOCK_SIZE);
		if (i & 1)
			store(bed, bed->memory);
	}
	assert_int_equal(change_in_tree(bed->memory), change);
	sync_file(bed->memory);
	assert_false(is_dirty(bed->memory));
	assert_int_equal(change_in_tree(bed->memory), bed->memory->inode.attr.change);
	bed_close(bed);
}

static void whoever_wants_all_gets_it(void **state)
{
	struct bed *bed = *state;

	bed_open(bed);
	store(bed, bed->memory);
	assert_int_equal(delta_commit(bed->vol), 0);
	assert_false(is_dirty(bed->memory));
	store(bed, bed->memory);
	assert_true(is_put_off(bed));
	assert_int_equal(delta_commit(bed->vol), 0);
	assert_false(is_dirty(bed->memory));
	store(bed, bed->memory);
	assert_true(is_put_off(bed));
	assert_int_equal(delta_pause(bed->vol), 0);
	assert_false(is_dirty(bed->memory));
	delta_resume(bed->vol);
	/* Somebody waits for all of it, but we make the commit. */
	store(bed, bed->memory);
	atomic_inc(&bed->vol->delta.wholes);
	assert_false(is_put_off(bed));
	atomic_dec(&bed->vol->delta.wholes);
	bed_close(bed);
}

static void other_changes_are_not_put_off(void **state)
{
	struct tux3_attr attr = { .mode = S_IFREG | 0600 };
	struct bed *bed = *state;
	struct tux3_inode *memory;

	bed_open(bed);
	memory = &bed->memory->inode;
	store(bed, bed->memory);
	write_block(bed, bed->memory);
	assert_false(is_put_off(bed));
	write_block(bed, bed->memory);
	store(bed, bed->memory);
	assert_false(is_put_off(bed));
	store(bed, bed->memory);
	assert_true(is_put_off(bed));
	assert_int_equal(op_setattr(memory, &attr, OP_ATTR_MODE), 0);
	assert_false(is_put_off(bed));
	store(bed, bed->memory);
	assert_int_equal(op_link(&bed->root->inode, "second", 6, memory), 0);
	assert_false(is_put_off(bed));
	store(bed, bed->memory);
	assert_int_equal(op_unlink(&bed->root->inode, "second", 6, memory), 0);
	assert_false(is_put_off(bed));
	store(bed, bed->memory);
	assert_true(is_put_off(bed));
	bed_close(bed);
}

static void becomes_older(struct bed *bed, s64 seconds)
{
	atomic64_sub(seconds * (s64)NSEC_PER_SEC, &bed->vol->delta.first_change_ns[bed->vol->delta.front & 1]);
}

static void it_has_an_age(void **state)
{
	struct bed *bed = *state;

	bed->opts.age_ms = 20 * 1000;
	bed_open(bed);
	store(bed, bed->memory);
	assert_true(is_put_off(bed));
	becomes_older(bed, 4);
	assert_true(is_put_off(bed));
	becomes_older(bed, 17);
	assert_false(is_put_off(bed));
	store(bed, bed->memory);
	assert_true(is_put_off(bed));
	bed_close(bed);
}

static void what_does_not_fit_stays(void **state)
{
	struct bed *bed = *state;
	struct node *nodes[64];
	char name[8];
	u32 i;
	s64 balance;

	bed_open(bed);
	bed->memory->stays = true;
	store(bed, bed->memory);
	assert_false(is_put_off(bed));
	bed->memory->stays = false;
	bed->memory->unknown = true;
	store(bed, bed->memory);
	assert_false(is_put_off(bed));
	bed->memory->unknown = false;
	bed->memory->waits = true;
	store(bed, bed->memory);
	assert_false(is_put_off(bed));
	bed->memory->waits = false;
	bed->vol->opts.fsync = TUX3_FSYNC_FULL;
	store(bed, bed->memory);
	assert_false(is_put_off(bed));
	bed->vol->opts.fsync = TUX3_FSYNC_AUTO;
	/* Without space. */
	store(bed, bed->memory);
	write_block(bed, bed->log);
	balance = space_balance(bed->vol);
	assert_true(space_charge(bed->vol, raw_cpu_ptr(bed->vol->delta.cpu), balance, 0));
	sync_file(bed->log);
	assert_false(is_dirty(bed->memory));
	space_uncharge(bed->vol, raw_cpu_ptr(bed->vol->delta.cpu), balance);
	/* Inline, perhaps. */
	store(bed, bed->memory);
	bed->memory->inode.attr.size = 100;
	assert_false(is_put_off(bed));
	bed->memory->inode.attr.size = (BLOCK + 1) * BLOCK_SIZE;
	/* In a large delta. */
	for (i = 0; i < ARRAY_SIZE(nodes); i++) {
		snprintf(name, sizeof(name), "%u", i);
		nodes[i] = make(bed, name);
	}
	store(bed, bed->memory);
	assert_false(is_put_off(bed));
	for (i = 0; i < ARRAY_SIZE(nodes); i++)
		node_free(nodes[i]);
	bed_close(bed);
}

/* ---- with threads ---- */

#define ROUNDS 1500u

static u64 change_now(struct node *node)
{
	struct tux3_attr attr;

	inode_get_attr(&node->inode, &attr);
	return attr.change;
}

static void *store_and_sync(void *arg)
{
	struct bed *bed = arg;
	u64 change;
	u32 i;

	for (i = 0; i < ROUNDS || !counter(bed, TUX3_COUNT_INODES_PUT_OFF); i++) {
		store(bed, bed->memory);
		change = change_now(bed->memory);
		if (i % 3)
			continue;
		if (i % 2)
			sync_file(bed->memory);
		else
			assert_int_equal(delta_commit(bed->vol), 0);
		assert_true(change_in_tree(bed->memory) >= change);
	}
	WRITE_ONCE(bed->over, true);
	return NULL;
}

static void *write_and_sync(void *arg)
{
	struct bed *bed = arg;
	u64 change;

	while (!READ_ONCE(bed->over)) {
		write_block(bed, bed->log);
		change = change_now(bed->log);
		sync_file(bed->log);
		assert_true(change_in_tree(bed->log) >= change);
	}
	return NULL;
}

static void who_syncs_finds_it_durable(void **state)
{
	struct bed *bed = *state;
	pthread_t threads[2];

	bed->opts.manual = false;
	bed->opts.age_ms = 200;
	bed_open(bed);
	assert_int_equal(pthread_create(&threads[0], NULL, store_and_sync, bed), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, write_and_sync, bed), 0);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	assert_int_equal(volume_error(bed->vol), 0);
	bed_close(bed);
}

static void *sync_log(void *arg)
{
	sync_file(((struct bed *)arg)->log);
	return NULL;
}

static void *sync_memory(void *arg)
{
	struct bed *bed = arg;
	u64 change = change_now(bed->memory);

	sync_file(bed->memory);
	assert_true(change_in_tree(bed->memory) >= change);
	return NULL;
}

/* The delta has ended already, and what it is to put off is not chosen yet: for that an operation has to leave first. */
static void fsync_during_the_transition(void **state)
{
	struct bed *bed = *state;
	pthread_t threads[2];
	struct delta_op op;
	u64 front;

	bed->opts.manual = false;
	bed_open(bed);
	store(bed, bed->memory);
	write_block(bed, bed->log);
	assert_int_equal(delta_enter(bed->vol, &op, 0, 0), 0);
	front = op.delta;
	assert_int_equal(pthread_create(&threads[0], NULL, sync_log, bed), 0);
	while (READ_ONCE(bed->vol->delta.front) == front)
		usleep(1000);
	assert_int_equal(pthread_create(&threads[1], NULL, sync_memory, bed), 0);
	usleep(50 * 1000);
	delta_leave(&op);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	assert_int_equal(counter(bed, TUX3_COUNT_INODES_PUT_OFF), 0);
	bed_close(bed);
}

/* The thread was asleep when what was put off came to the front delta. */
static void the_thread_commits_it(void **state)
{
	struct bed *bed = *state;
	u32 i;

	bed->opts.manual = false;
	bed->opts.age_ms = 100;
	bed_open(bed);
	for (i = 0; i < 5; i++) {
		u32 waits = 0;

		store(bed, bed->memory);
		write_block(bed, bed->log);
		sync_file(bed->log);
		while (change_in_tree(bed->memory) < bed->memory->inode.attr.change && waits++ < 500)
			usleep((10) * 1000);
		assert_true(waits < 500);
		usleep((i * 30) * 1000);
	}
	bed_close(bed);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(fsync_of_others_leaves_stores),
		TEST(whoever_wants_all_gets_it),
		TEST(other_changes_are_not_put_off),
		TEST(it_has_an_age),
		TEST(what_does_not_fit_stays),
		TEST(who_syncs_finds_it_durable),
		TEST(fsync_during_the_transition),
		TEST(the_thread_commits_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
