/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a mounted filesystem asks of the core besides its operations: to hold still (freeze), to become read-only or
 * writable, to trim free space, to give back memory.
 */
#include "support_lib.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>
#include "core/check/check.h"
#include "core/data/data.h"
#include "core/data/delete.h"
#include "core/open.h"
#include "user/lib/lib.h"

#define BLOCK 4096u

/* ---- a device that scribbles over what is discarded ---- */

static struct tux3_device_ops scribble_ops;
static atomic64_t discards, discarded;
static atomic_t discard_us;

static int scribble_discard(struct tux3_device *dev, u64 addr, u64 count)
{
	if (atomic_read(&discard_us))
		usleep(atomic_read(&discard_us));
	memset((u8 *)device_memory_bytes(dev) + addr * dev->block_size, 0xd1, count * dev->block_size);
	atomic64_inc(&discards);
	atomic64_add(count, &discarded);
	return 0;
}

static void scribble(struct bed *bed)
{
	scribble_ops = *bed->dev->ops;
	scribble_ops.discard = scribble_discard;
	bed->dev->ops = &scribble_ops;
	atomic64_set(&discards, 0);
	atomic64_set(&discarded, 0);
	atomic_set(&discard_us, 0);
}

/* ---- helpers ---- */

static struct volume *core(struct bed *bed)
{
	return tux3_core(bed->volume);
}

static u64 writes(struct bed *bed)
{
	return atomic64_read(&bed->dev->writes);
}

static void fill_block(u8 *data, u64 seed)
{
	u32 i;

	for (i = 0; i < BLOCK; i += sizeof(u64)) {
		u64 x = bed_random(&seed);

		memcpy(data + i, &x, sizeof(x));
	}
}

static int write_block(struct tux3_node *node, u64 block, u64 seed)
{
	u8 data[BLOCK];
	ssize_t n;

	fill_block(data, seed);
	n = tux3_write(node, data, BLOCK, block * BLOCK);
	return n < 0 ? n : 0;
}

static void expect_block(struct tux3_node *node, u64 block, u64 seed)
{
	u8 data[BLOCK], found[BLOCK];

	fill_block(data, seed);
	assert_int_equal(tux3_read(node, found, BLOCK, block * BLOCK), BLOCK);
	assert_memory_equal(data, found, BLOCK);
}

/* A file with every second block, each an extent of its own. */
static void write_comb(struct tux3_node *node, u32 blocks)
{
	u32 i;

	for (i = 0; i < blocks; i++)
		assert_ok(write_block(node, 2 * i, i));
}

/* A truncate that does not wait until it is over, as the library's does. */
static void cut_file(struct bed *bed, struct tux3_node *node, u64 blocks)
{
	struct tux3_inode *inode = tux3_node_core(node);
	struct delta_op op;

	assert_ok(delta_enter(core(bed), &op, space_cost_items(core(bed), 4), DELTA_FREES));
	assert_ok(data_remove(&op, inode, blocks, DATA_END));
	inode_change_begin(&op, inode)->size = blocks * BLOCK;
	inode_change_end(inode);
	delta_leave(&op);
}

/* ---- holding still ---- */

static void test_pause(void **state)
{
	struct bed bed = { .opts = { .age_ms = 5 } };
	struct tux3_node *node;
	u64 before, trimmed;
	int i, err = 0;

	bed_make(&bed, 16 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	write_comb(node, 20);
	assert_ok(delta_pause(core(&bed)));
	assert_true(core(&bed)->log.length == 0);
	before = writes(&bed);
	write_comb(node, 10);
	tux3_node_put(bed_file(&bed, "/other"), 1);
	assert_ok(tux3_sync(bed.volume));
	usleep(100000);
	assert_int_equal(delta_commit_unify(core(&bed)), -EBUSY);
	assert_int_equal(volume_trim(core(&bed), 0, U64_MAX, 1, &trimmed), -EBUSY);
	for (i = 0; i < 16 << 20 >> 12 && !err; i++)	/* who cannot go on without a commit does not wait */
		err = write_block(node, 100 + i, i);
	assert_int_equal(err, -EBUSY);
	assert_int_equal(writes(&bed), before);

	delta_resume(core(&bed));
	assert_ok(tux3_sync(bed.volume));
	assert_true(writes(&bed) > before);
	assert_ok(delta_pause(core(&bed)));
	tux3_node_put(node, 1);
	bed_free(&bed);		/* closing needs no resume */
}

/* What was committed before the pause is on the device, with nothing to replay. */
static void test_pause_is_whole(void **state)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	struct bed bed = { .opts = { .manual = true, .slice_extents = 1 } };
	struct check_result result = {};
	struct check_options check = {};
	struct tux3_node *node;
	char why[256] = "";
	struct volume *vol;

	bed_make(&bed, 16 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	write_comb(node, 40);
	assert_ok(tux3_sync(bed.volume));
	cut_file(&bed, node, 0);		/* goes in slices: not over when paused */
	assert_ok(delta_pause(core(&bed)));
	assert_true(delta_has_changes(core(&bed)));
	assert_int_equal(data_cut_wait(tux3_node_core(node)), -EBUSY);
	bed.dev->read_only = true;
	assert_ok(volume_open(bed.dev, NULL, &opts, &vol, why, sizeof(why)));
	assert_ok(volume_check(vol, &check, &result));
	assert_int_equal(result.problems, 0);
	volume_close(vol);
	bed.dev->read_only = false;
	delta_resume(core(&bed));
	assert_ok(data_cut_wait(tux3_node_core(node)));
	assert_ok(write_block(node, 0, 1));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Cut and removed in one delta, and deleted in slices: until that is over its attributes and its extents agree. */
static void test_cut_and_removed(void **state)
{
	struct bed bed = { .opts = { .manual = true, .slice_extents = 1 } };
	struct volume_options opts = { .read_only = true };
	struct check_result result = {};
	struct check_options check = {};
	struct tux3_node *node;
	char why[256] = "", name[16];
	struct volume *vol;
	u32 i;

	bed_make(&bed, 16 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	write_comb(node, 4);			/* few blocks: the cut needs no slices */
	for (i = 0; i < 40; i++) {		/* many attributes: the deletion does */
		snprintf(name, sizeof(name), "user.%u", i);
		assert_ok(tux3_setxattr(node, NULL, name, "v", 1, 0));
	}
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_truncate(node, 0));
	assert_ok(tux3_unlink(bed.root, NULL, "file"));
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed.volume));
	assert_true(delete_under_way(core(&bed)));
	tux3_abandon(bed.volume);
	bed.dev->read_only = true;
	assert_ok(volume_open(bed.dev, NULL, &opts, &vol, why, sizeof(why)));
	assert_ok(volume_check(vol, &check, &result));
	assert_int_equal(result.problems, 0);
	volume_close(vol);
	bed.dev->read_only = false;
	bed_open(&bed);
	bed_free(&bed);
}

struct presser {
	struct bed *bed;
	pthread_t thread;
	unsigned int number;
	atomic_t stop;
};

/* Makes files in many directories, so that it has to wait until a recovery would take less time. */
static void *press(void *arg)
{
	struct presser *presser = arg;
	struct tux3_node *node;
	char path[64];
	u32 i;
	int err;

	for (i = 0; !atomic_read(&presser->stop); i++) {
		snprintf(path, sizeof(path), "/d%u-%u/f%u", presser->number, i % 200, i % 4000);
		err = tux3_path(presser->bed->volume, NULL, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node);
		if (!err)
			tux3_node_put(node, 1);
		assert_true(!err || err == -EBUSY);	/* no commit for it now */
	}
	return NULL;
}

/* Whoever waits for the back end when it is paused does not wait for its end. */
static void test_pause_lets_writers_go(void **state)
{
	struct bed bed = { .opts = { .replay_nodes = 48, .dirty_nodes = 1000 } };
	struct presser pressers[2] = {};
	u32 i, turn;

	bed_make(&bed, 64 << 20, BLOCK);
	for (i = 0; i < ARRAY_SIZE(pressers); i++) {
		pressers[i].bed = &bed;
		pressers[i].number = i;
		assert_ok(-pthread_create(&pressers[i].thread, NULL, press, &pressers[i]));
	}
	for (turn = 0; turn < 30; turn++) {
		usleep(3000);
		assert_ok(delta_pause(core(&bed)));
		while (atomic_read(&core(&bed)->delta.pressed))
			usleep(100);
		delta_resume(core(&bed));
	}
	for (i = 0; i < ARRAY_SIZE(pressers); i++) {
		atomic_set(&pressers[i].stop, 1);
		pthread_join(pressers[i].thread, NULL);
	}
	bed_free(&bed);
}

/* ---- who leaves commits to the thread ---- */

static struct {
	const struct tux3_host_ops *inner;
	struct tux3_host_ops host;
	struct bed *bed;
	struct tux3_inode *file;
	sem_t waits, may_go;
	u32 stops;		/* commits of the file that have been stopped */
} left_to;

static bool nobody_has_time(struct volume *vol)
{
	return true;
}

/* In the first commit of the file, and in the first one in which a delete goes on. */
static int next_waits(struct tux3_inode *inode, u64 delta, u64 from, u64 *block, u64 *count)
{
	if (inode == left_to.file && left_to.stops < 2 && left_to.stops == delete_under_way(inode->vol)) {
		left_to.stops++;
		sem_post(&left_to.waits);
		sem_wait(&left_to.may_go);
	}
	return left_to.inner->data_next(inode, delta, from, block, count);
}

static void *sync_all(void *unused)
{
	assert_ok(tux3_sync(left_to.bed->volume));
	return NULL;
}

/* As umount does. */
static void *settle(void *unused)
{
	assert_ok(delta_commit_surely(core(left_to.bed)));
	return NULL;
}

static void set_host(struct bed *bed, const struct tux3_host_ops *host)
{
	delta_lock(core(bed));
	core(bed)->host = host;
	delta_unlock(core(bed));
}

static bool ends_soon(pthread_t thread)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	return !pthread_timedjoin_np(thread, NULL, &until);
}

/* The front delta has no changes, and what goes on with each commit ends with the one before: nobody commits it. */
static void last_slice_is_before(void *(*waits)(void *unused))
{
	struct bed bed = { .opts = { .slice_extents = 1, .age_ms = 1000000 } };
	struct tux3_node *node, *gone;
	u8 data[16 * BLOCK] = {};
	pthread_t first, second;

	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "file");
	gone = bed_file(&bed, "gone");
	assert_int_equal(tux3_write(gone, data, sizeof(data), 0), sizeof(data));
	assert_int_equal(tux3_write(gone, data, sizeof(data), 2 * sizeof(data)), sizeof(data));
	tux3_node_put(gone, 1);
	assert_ok(tux3_sync(bed.volume));
	left_to.bed = &bed;
	left_to.file = &node->inode;
	left_to.inner = core(&bed)->host;
	left_to.host = *left_to.inner;
	left_to.host.data_next = next_waits;
	left_to.host.lacks_time = nobody_has_time;
	left_to.stops = 0;
	sem_init(&left_to.waits, 0, 0);
	sem_init(&left_to.may_go, 0, 0);
	set_host(&bed, &left_to.host);
	/* Two extents: one goes with this commit. */
	assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "gone"));
	assert_ok(-pthread_create(&first, NULL, sync_all, NULL));
	sem_wait(&left_to.waits);
	assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
	sem_post(&left_to.may_go);
	/* The other with the next one. */
	sem_wait(&left_to.waits);
	assert_ok(-pthread_create(&second, NULL, waits, NULL));
	usleep(50000);		/* he waits */
	sem_post(&left_to.may_go);
	assert_true(ends_soon(second));
	assert_true(ends_soon(first));
	assert_false(delete_under_way(core(&bed)));
	set_host(&bed, left_to.inner);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void test_the_last_slice_is_in_the_commit_before(void **state)
{
	last_slice_is_before(sync_all);
	last_slice_is_before(settle);
}

/* ---- who makes no commit ---- */

static struct {
	const struct tux3_device_ops *inner;
	struct tux3_device_ops ops;
	pthread_t caller;
	atomic_t own;
} by_whom;

static void count_own(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		      struct io_wait *wait)
{
	if (pthread_equal(pthread_self(), by_whom.caller))
		atomic_inc(&by_whom.own);
	by_whom.inner->write(dev, addr, vec, vecs, flags, wait);
}

/* Who may come while the thread is frozen, when a system hibernates, writes nothing himself. */
static void test_by_the_thread(void **state)
{
	struct bed bed = { .opts = { .age_ms = 1000000 } };
	struct tux3_node *node;
	u8 data[BLOCK] = {};
	u32 i;

	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "file");
	by_whom.inner = bed.dev->ops;
	by_whom.ops = *by_whom.inner;
	by_whom.ops.write = count_own;
	by_whom.caller = pthread_self();
	atomic_set(&by_whom.own, 0);
	bed.dev->ops = &by_whom.ops;
	for (i = 0; i < 20; i++) {
		u64 front = READ_ONCE(core(&bed)->delta.front);

		assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
		assert_ok(delta_commit_by_thread(core(&bed)));
		assert_true(READ_ONCE(core(&bed)->delta.committed) >= front);
	}
	assert_int_equal(atomic_read(&by_whom.own), 0);
	assert_ok(delta_commit_by_thread(core(&bed)));		/* there is nothing to commit, and nobody is waited for */
	assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
	assert_ok(delta_commit(core(&bed)));
	assert_true(atomic_read(&by_whom.own));
	bed.dev->ops = by_whom.inner;
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- who lacks time, and calls fsync ---- */

#define STARVED 4u

static struct {
	const struct tux3_host_ops *host;
	const struct tux3_device_ops *inner;
	struct tux3_device_ops ops;
	struct tux3_node *file[STARVED + 1];	/* the last one is of somebody who has time */
	sem_t may_go;
	atomic_t done;
} starved;

static __thread bool lacks_time;

static bool i_lack_time(struct volume *vol)
{
	return lacks_time;
}

/* He is to write, and the CPU has others to do. */
static void starved_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
			  struct io_wait *wait)
{
	if (lacks_time)
		sem_wait(&starved.may_go);
	starved.inner->write(dev, addr, vec, vecs, flags, wait);
}

static void *sync_starved(void *file)
{
	lacks_time = true;
	assert_ok(tux3_fsync(file, false));
	atomic_inc(&starved.done);
	return NULL;
}

static void *sync_at_once(void *file)
{
	assert_ok(tux3_fsync(file, false));
	return NULL;
}

static void starved_begin(struct bed *bed, struct tux3_host_ops *host)
{
	char name[20];
	u32 i;

	bed_make(bed, 64 << 20, BLOCK);
	tux3_node_put(bed_file(bed, "first"), 1);
	assert_ok(tux3_sync(bed->volume));		/* makes the area */
	for (i = 0; i <= STARVED; i++) {
		snprintf(name, sizeof(name), "file%u", i);
		starved.file[i] = bed_file(bed, name);
		assert_int_equal(tux3_write(starved.file[i], name, sizeof(name), 0), sizeof(name));
	}
	sem_init(&starved.may_go, 0, 0);
	atomic_set(&starved.done, 0);
	starved.inner = bed->dev->ops;
	starved.ops = *starved.inner;
	starved.ops.write = starved_write;
	bed->dev->ops = &starved.ops;
	starved.host = core(bed)->host;
	*host = *starved.host;
	host->lacks_time = i_lack_time;
	set_host(bed, host);
}

/* What he and others wait for is written by somebody who gets a CPU, ahead of the delta. */
static void test_who_lacks_time_writes_no_intents(void **state)
{
	struct bed bed = { .opts = { .fsync = TUX3_FSYNC_AHEAD, .age_ms = 1000000 } };
	pthread_t slow[STARVED], other;
	struct tux3_host_ops host;
	bool ended;
	u32 i;

	starved_begin(&bed, &host);
	for (i = 0; i < STARVED; i++)
		assert_ok(-pthread_create(&slow[i], NULL, sync_starved, starved.file[i]));
	usleep(50000);		/* one of them would write */
	assert_ok(-pthread_create(&other, NULL, sync_at_once, starved.file[STARVED]));
	ended = ends_soon(other);
	for (i = 0; ended && i < 2000 && atomic_read(&starved.done) < (int)STARVED; i++)
		usleep(10000);
	assert_true(ended);
	assert_int_equal(atomic_read(&starved.done), STARVED);
	for (i = 0; i < STARVED; i++)
		pthread_join(slow[i], NULL);
	assert_int_equal(delta_counter(core(&bed), TUX3_COUNT_FSYNCS_AHEAD), STARVED + 1);
	set_host(&bed, starved.host);
	bed.dev->ops = starved.inner;
	for (i = 0; i <= STARVED; i++)
		tux3_node_put(starved.file[i], 1);
	bed_free(&bed);
}

/* ---- read-only and back ---- */

static void set_read_only(struct bed *bed, bool read_only)
{
	char why[256] = "";
	int err;

	if (!read_only)
		bed->dev->read_only = false;
	err = volume_set_read_only(core(bed), read_only, why, sizeof(why));
	if (err)
		fail_msg("%d: %s", err, why);
	bed->dev->read_only = read_only;
}

/* A limit that nobody reaches must not become one that everybody is above. */
static void test_dirty_limits_do_not_overflow(void **state)
{
	static const u64 bytes[] = { 1, 64 << 20, S64_MAX / 8, 1ULL << 60, 1ULL << 61, U64_MAX };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bytes); i++) {
		struct volume_options opts = {};

		volume_set_dirty_bytes(&opts, bytes[i], 0);
		assert_true((s64)opts.dirty_bytes > 0 && (s64)opts.dirty_limit_bytes > 0);
		assert_true(opts.dirty_limit_bytes >= opts.dirty_bytes);
		assert_true(opts.dirty_bytes == bytes[i] || opts.dirty_limit_bytes >= 1ULL << 62);
		volume_set_dirty_bytes(&opts, bytes[i], 5);
		assert_int_equal(opts.dirty_limit_bytes, 5);
	}
}

static void test_read_only(void **state)
{
	struct bed bed = { .opts = { .age_ms = 5, .manual = *state } };
	struct tux3_node *node;
	u64 before;

	bed_make(&bed, 16 << 20, BLOCK);
	node = bed_file(&bed, "/file");
	assert_ok(write_block(node, 0, 1));
	set_read_only(&bed, true);
	before = writes(&bed);
	assert_int_equal(core(&bed)->log.length, 0);
	assert_int_equal(write_block(node, 1, 2), -EROFS);
	assert_ok(tux3_sync(bed.volume));
	usleep(20000);
	expect_block(node, 0, 1);
	assert_int_equal(writes(&bed), before);
	set_read_only(&bed, true);
	set_read_only(&bed, false);
	assert_ok(write_block(node, 1, 2));
	assert_ok(tux3_sync(bed.volume));
	assert_true(writes(&bed) > before);
	set_read_only(&bed, true);
	set_read_only(&bed, false);
	expect_block(node, 1, 2);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/file"));		/* in use: an orphan */
	assert_ok(tux3_sync(bed.volume));
	set_read_only(&bed, true);
	set_read_only(&bed, false);
	expect_block(node, 1, 2);
	assert_ok(write_block(node, 1, 3));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Opened read-only after a crash, with inodes in memory that the end of recovery changes. */
static void test_writable_after_crash(void **state)
{
	struct bed bed = { .opts = { .manual = true, .slice_extents = 1 } };
	struct tux3_node *cut, *kept;
	struct tux3_stat stat;

	bed_make(&bed, 16 << 20, BLOCK);
	cut = bed_file(&bed, "/cut");
	kept = bed_file(&bed, "/kept");
	write_comb(cut, 40);
	assert_ok(write_block(kept, 0, 7));
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(bed_file(&bed, "/orphan"), 1);
	cut_file(&bed, cut, 2);
	assert_ok(tux3_sync(bed.volume));
	assert_true(delete_cuts_left(core(&bed)));
	tux3_node_put(cut, 1);
	tux3_node_put(kept, 1);
	tux3_abandon(bed.volume);

	bed.opts.read_only = bed.dev->read_only = true;
	bed_open(&bed);
	cut = bed_file(&bed, "/cut");
	kept = bed_file(&bed, "/kept");
	assert_ok(tux3_stat_node(cut, &stat));
	assert_int_equal(stat.size, 2 * BLOCK);
	expect_block(cut, 0, 0);
	set_read_only(&bed, false);
	bed.opts.read_only = false;
	assert_false(delete_cuts_left(core(&bed)));
	assert_ok(write_block(cut, 1, 1));
	assert_ok(write_block(cut, 30, 30));
	expect_block(kept, 0, 7);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_stat_node(cut, &stat));
	assert_int_equal(stat.blocks_512, 3 * BLOCK / 512);
	tux3_node_put(cut, 1);
	tux3_node_put(kept, 1);
	bed_free(&bed);
}

static void test_stays_read_only(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	char why[256] = "";

	bed_make(&bed, 16 << 20, BLOCK);
	tux3_node_put(bed_file(&bed, "/file"), 1);
	assert_ok(tux3_sync(bed.volume));
	tux3_abandon(bed.volume);
	bed.opts.read_only = bed.opts.no_recovery = true;
	bed_open(&bed);
	assert_int_equal(volume_set_read_only(core(&bed), false, why, sizeof(why)), -EROFS);
	assert_non_null(strstr(why, "without recovery"));
	bed_close(&bed);
	bed.opts.no_recovery = false;
	bed.dev->read_only = true;
	bed_open(&bed);
	assert_int_equal(volume_set_read_only(core(&bed), false, why, sizeof(why)), -EROFS);
	assert_non_null(strstr(why, "device is read-only"));
	assert_true(core(&bed)->read_only);
	set_read_only(&bed, false);
	bed.opts.read_only = false;
	tux3_node_put(bed_file(&bed, "/more"), 1);
	bed_free(&bed);
}

/* ---- trim ---- */

static void make_files(struct bed *bed, u32 count, u32 blocks)
{
	char path[32];
	u32 i, b;

	for (i = 0; i < count; i++) {
		struct tux3_node *node;

		snprintf(path, sizeof(path), "/f%u", i);
		node = bed_file(bed, path);
		for (b = 0; b < blocks; b++)
			assert_ok(write_block(node, b, i * 1000 + b));
		tux3_node_put(node, 1);
	}
	assert_ok(tux3_sync(bed->volume));
}

static void expect_files(struct bed *bed, u32 from, u32 count, u32 step, u32 blocks)
{
	char path[32];
	u32 i, b;

	for (i = from; i < count; i += step) {
		struct tux3_node *node;

		snprintf(path, sizeof(path), "/f%u", i);
		node = bed_file(bed, path);
		for (b = 0; b < blocks; b++)
			expect_block(node, b, i * 1000 + b);
		tux3_node_put(node, 1);
	}
}

static void unlink_files(struct bed *bed, u32 from, u32 count, u32 step)
{
	char path[32];
	u32 i;

	for (i = from; i < count; i += step) {
		snprintf(path, sizeof(path), "/f%u", i);
		assert_ok(tux3_path_unlink(bed->volume, NULL, path));
	}
}

static void test_trim(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u64 free, trimmed, part;

	bed_make(&bed, 300 << 20, BLOCK);	/* three groups */
	scribble(&bed);
	make_files(&bed, 40, 30);
	unlink_files(&bed, 0, 40, 2);
	assert_ok(tux3_sync(bed.volume));
	free = atomic64_read(&core(&bed)->balloc.free_blocks);
	assert_ok(volume_trim(core(&bed), 0, U64_MAX, 1, &trimmed));
	/* Those promised to tree nodes too. */
	assert_int_equal(trimmed, free + atomic64_read(&core(&bed)->balloc.promised));
	assert_int_equal(atomic64_read(&discarded), trimmed);
	assert_int_equal(atomic64_read(&core(&bed)->balloc.free_blocks), free);
	assert_int_equal(core(&bed)->balloc.trimming, 0);
	expect_files(&bed, 1, 40, 2, 30);
	assert_ok(volume_trim(core(&bed), 0, U64_MAX, 1000, &trimmed));
	assert_true(trimmed < free && trimmed > free / 2);
	assert_ok(volume_trim(core(&bed), 0, 40000, 1, &part));
	assert_ok(volume_trim(core(&bed), 40000, U64_MAX, 1, &trimmed));
	assert_int_equal(part + trimmed, free + atomic64_read(&core(&bed)->balloc.promised));
	assert_ok(volume_trim(core(&bed), U64_MAX, U64_MAX, 1, &trimmed));
	assert_int_equal(trimmed, 0);
	make_files(&bed, 40, 30);
	bed_check(&bed);
	expect_files(&bed, 0, 40, 1, 30);
	bed_free(&bed);
}

struct trimmer {
	struct bed *bed;
	atomic_t stop;
	int err;
};

static void *trim_always(void *arg)
{
	struct trimmer *trimmer = arg;
	u64 trimmed;

	while (!atomic_read(&trimmer->stop) && !trimmer->err)
		trimmer->err = volume_trim(core(trimmer->bed), 0, U64_MAX, 1, &trimmed);
	return NULL;
}

/* Whatever is being trimmed is neither used nor missed. */
static void test_trim_beside_writers(void **state)
{
	struct bed bed = { .opts = { .age_ms = 3 } };
	struct trimmer trimmers[2] = { { .bed = &bed }, { .bed = &bed } };
	struct tux3_node *node;
	pthread_t threads[2];
	u64 blocks[2] = {};
	int turn, err, i;

	bed_make(&bed, 8 << 20, BLOCK);
	scribble(&bed);
	for (turn = 0; turn < 2; turn++) {		/* the second time with trimmers */
		for (i = 0; i < 2 && turn; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, trim_always, &trimmers[i]), 0);
		atomic_set(&discard_us, turn ? 200 : 0);
		while (turn && !atomic64_read(&discards))	/* they are at it */
			usleep(100);
		make_files(&bed, 20, 10);
		node = bed_file(&bed, "/large");
		for (err = 0; !err; blocks[turn]++)
			err = write_block(node, blocks[turn], blocks[turn]);
		assert_int_equal(err, -ENOSPC);
		expect_block(node, blocks[turn] / 2, blocks[turn] / 2);
		tux3_node_put(node, 1);
		assert_ok(tux3_path_unlink(bed.volume, NULL, "/large"));
		expect_files(&bed, 0, 20, 1, 10);
		unlink_files(&bed, 0, 20, 1);
		assert_ok(tux3_sync(bed.volume));
	}
	atomic_set(&discard_us, 0);
	for (i = 0; i < 2; i++) {
		atomic_set(&trimmers[i].stop, 1);
		pthread_join(threads[i], NULL);
		assert_int_equal(trimmers[i].err, 0);
	}
	/* As much fits as without them, but for what the tree happens to need. */
	assert_in_range(blocks[1], blocks[0] - 20, blocks[0] + 200);
	bed_free(&bed);
}

static void test_discard_option(void **state)
{
	struct bed bed = { .opts = { .manual = *state, .age_ms = 3, .discard = true } };
	int i;

	bed_make(&bed, 32 << 20, BLOCK);
	scribble(&bed);
	make_files(&bed, 40, 20);
	unlink_files(&bed, 0, 40, 2);
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < 2000 && atomic64_read(&discarded) < 400; i++) {
		usleep(1000);
		assert_ok(tux3_sync(bed.volume));
		make_files(&bed, 1, 1);
	}
	assert_true(atomic64_read(&discarded) >= 400);
	assert_true(delta_counter(core(&bed), TUX3_COUNT_DISCARDED) >= 400);
	expect_files(&bed, 1, 40, 2, 20);
	bed_check(&bed);
	expect_files(&bed, 1, 40, 2, 20);
	bed_free(&bed);
}

/* ---- memory ---- */

static void test_reclaim(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u64 nodes, names;

	bed_make(&bed, 64 << 20, BLOCK);
	make_files(&bed, 500, 1);
	assert_ok(delta_commit_unify(core(&bed)));
	nodes = cache_reclaimable(core(&bed));
	names = name_reclaimable(core(&bed));
	assert_true(nodes >= 20 * BLOCK && names >= 500);
	assert_int_equal(cache_shrink(core(&bed), 5 * BLOCK), 5 * BLOCK);
	assert_int_equal(cache_reclaimable(core(&bed)), nodes - 5 * BLOCK);
	assert_int_equal(name_shrink(core(&bed), 100), 100);
	assert_int_equal(name_reclaimable(core(&bed)), names - 100);
	make_files(&bed, 50, 1);
	tux3_node_put(bed_file(&bed, "/new"), 1);
	assert_true(name_shrink(core(&bed), U64_MAX) > 0);
	/* What the commit of new names needs stays until then. */
	assert_true(cache_shrink(core(&bed), U64_MAX) > 0);
	assert_true(cache_reclaimable(core(&bed)) > 0);
	assert_ok(delta_commit_unify(core(&bed)));
	assert_true(cache_shrink(core(&bed), U64_MAX) > 0);
	assert_int_equal(cache_reclaimable(core(&bed)), 0);
	expect_files(&bed, 0, 500, 1, 1);
	bed_free(&bed);
}

int main(void)
{
	static bool yes = true;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pause),
		cmocka_unit_test(test_pause_is_whole),
		cmocka_unit_test(test_cut_and_removed),
		cmocka_unit_test(test_pause_lets_writers_go),
		cmocka_unit_test(test_the_last_slice_is_in_the_commit_before),
		cmocka_unit_test(test_by_the_thread),
		cmocka_unit_test(test_who_lacks_time_writes_no_intents),
		{ "test_read_only_thread", test_read_only, NULL, NULL, NULL },
		{ "test_read_only_manual", test_read_only, NULL, NULL, &yes },
		cmocka_unit_test(test_writable_after_crash),
		cmocka_unit_test(test_stays_read_only),
		cmocka_unit_test(test_dirty_limits_do_not_overflow),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_trim_beside_writers),
		{ "test_discard_option_thread", test_discard_option, NULL, NULL, NULL },
		{ "test_discard_option_manual", test_discard_option, NULL, NULL, &yes },
		cmocka_unit_test(test_reclaim),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
