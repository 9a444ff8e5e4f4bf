// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fsync ahead of the delta, at the edges of what there can be, and on devices that do not give back what was written.
 */
#include <pthread.h>
#include <unistd.h>
#include "support_lib.h"
#include "core/intent/intent.h"
#include "core/open.h"
#include "core/quota_switch.h"
#include "core/repair/repair.h"

#define BLOCK 4096u
#define BYTES (64u << 20)

/* Reads of these blocks fail. */
static struct {
	const struct tux3_device_ops *ops;	/* what the device does otherwise */
	struct tux3_device_ops failing;
	u64 addr, end;
} bad;

static int bad_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	return addr < bad.end && addr + count > bad.addr ? -EIO : bad.ops->read(dev, addr, count, data);
}

static void reads_fail(struct bed *bed, u64 addr, u32 count)
{
	bad.ops = bed->dev->ops;
	bad.failing = *bad.ops;
	bad.failing.read = bad_read;
	bad.addr = addr;
	bad.end = addr + count;
	bed->dev->ops = &bad.failing;
}

static void reads_work(struct bed *bed)
{
	bed->dev->ops = bad.ops;
}

static struct intent *intent_of(struct bed *bed)
{
	return &tux3_core(bed->volume)->intent;
}

static void write_at(struct tux3_node *node, u64 offset, const char *text)
{
	assert_int_equal(tux3_write(node, text, strlen(text), offset), strlen(text));
}

static void assert_has(struct tux3_node *node, u64 offset, const char *text)
{
	char got[64] = {};

	assert_int_equal(tux3_read(node, got, strlen(text), offset), strlen(text));
	assert_string_equal(got, text);
}

static void sync_ahead(struct bed *bed, struct tux3_node *node)
{
	u64 committed = tux3_committed(bed->volume);

	assert_ok(tux3_fsync(node, false));
	assert_int_equal(tux3_committed(bed->volume), committed);
}

/* A volume with an intent area, and the file "file" that has "durable" at 0 and in a block behind. */
static struct tux3_node *make(struct bed *bed)
{
	struct tux3_node *node;

	bed->opts.manual = true;
	bed->opts.verify = true;
	bed->opts.fsync = TUX3_FSYNC_AHEAD;
	bed_make(bed, BYTES, BLOCK);
	node = bed_file(bed, "file");
	write_at(node, 0, "durable");
	write_at(node, 2 * BLOCK, "durable");
	assert_ok(tux3_fsync(node, false));
	assert_true(intent_of(bed)->place.addr);
	return node;
}

static void test_the_last_block_of_the_largest_file(void **state)
{
	struct bed bed = {};
	struct tux3_node *node = make(&bed);

	write_at(node, TUX3_SIZE_MAX - 4, "last");
	sync_ahead(&bed, node);
	write_at(node, TUX3_SIZE_MAX - 2 * BLOCK, "two");
	write_at(node, TUX3_SIZE_MAX - BLOCK, "one");
	sync_ahead(&bed, node);
	write_at(node, 0, "first");
	sync_ahead(&bed, node);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 3);
	node = bed_find(&bed, "file");
	assert_has(node, TUX3_SIZE_MAX - 4, "last");
	assert_has(node, TUX3_SIZE_MAX - 2 * BLOCK, "two");
	assert_has(node, TUX3_SIZE_MAX - BLOCK, "one");
	assert_has(node, 0, "first");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/*
 * A block that cannot be read, as a sector is that was being written when the power failed: it is none of a batch, as a block of
 * the log is none.
 */
static void test_blocks_that_cannot_be_read(void **state)
{
	struct bed bed = {};
	struct tux3_node *node = make(&bed);
	struct intent_place place;

	write_at(node, 0, "one");
	sync_ahead(&bed, node);
	place = intent_of(&bed)->place;
	write_at(node, 0, "two");
	sync_ahead(&bed, node);
	tux3_node_put(node, 1);
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	/* The second batch, which was perhaps not whole, and what is behind it. */
	reads_fail(&bed, place.addr + place.offset, place.blocks - place.offset);
	bed_open(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 1);
	reads_work(&bed);
	node = bed_find(&bed, "file");
	assert_has(node, 0, "one");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Writes wait until they are let go. */
static struct {
	atomic_t waiting, go, commit_waiting, commit_go;
} held;

static void held_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	atomic_set(&held.waiting, 1);
	while (!atomic_read(&held.go))
		usleep(1000);
	bad.ops->write(dev, addr, vec, vecs, flags, wait);
}

static void *become_read_only(void *ctx)
{
	struct bed *bed = ctx;
	char why[256];

	assert_ok(volume_set_read_only(tux3_core(bed->volume), true, why, sizeof(why)));
	return NULL;
}

/* In *ctx: was it durable when fsync said so? */
static void *sync_file(void *ctx)
{
	struct tux3_node *node = *(struct tux3_node **)ctx;

	assert_ok(tux3_fsync(node, false));
	return atomic_read(&held.go) ? ctx : NULL;
}

/* What was changed is committed on the way to read-only, and fsync waits for that as for any other commit. */
static void test_fsync_while_the_volume_becomes_read_only(void **state)
{
	struct bed bed = {};
	struct tux3_node *node = make(&bed);
	pthread_t reader, syncer;
	void *durable;

	write_at(node, 0, "last");
	bad.ops = bed.dev->ops;
	bad.failing = *bad.ops;
	bad.failing.write = held_write;
	bed.dev->ops = &bad.failing;
	assert_ok(-pthread_create(&reader, NULL, become_read_only, &bed));
	while (!atomic_read(&held.waiting))
		usleep(1000);
	assert_ok(-pthread_create(&syncer, NULL, sync_file, &node));
	usleep(50000);		/* for it to return too early, if it does */
	atomic_set(&held.go, 1);
	pthread_join(syncer, &durable);
	pthread_join(reader, NULL);
	reads_work(&bed);
	assert_non_null(durable);
	tux3_node_put(node, 1);
	bed.opts.read_only = false;
	bed_crash(&bed);
	node = bed_find(&bed, "file");
	assert_has(node, 0, "last");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/*
 * An intent that is not durable yet: the next one of the file has all that is dirty, for the first may come to nothing.  The
 * header and the data of each are counted.
 */
static void test_an_intent_while_the_last_one_is_written(void **state)
{
	struct bed bed = {};
	struct tux3_node *node = make(&bed), *same = bed_find(&bed, "file");
	u64 before = delta_counter(tux3_core(bed.volume), TUX3_COUNT_INTENT_BLOCKS);
	pthread_t first, second;
	void *durable;

	write_at(node, 0, "one");
	write_at(node, 2 * BLOCK, "two");
	atomic_set(&held.waiting, 0);
	atomic_set(&held.go, 0);
	bad.ops = bed.dev->ops;
	bad.failing = *bad.ops;
	bad.failing.write = held_write;
	bed.dev->ops = &bad.failing;
	assert_ok(-pthread_create(&first, NULL, sync_file, &node));
	while (!atomic_read(&held.waiting))
		usleep(1000);
	write_at(node, 4 * BLOCK, "three");
	assert_ok(-pthread_create(&second, NULL, sync_file, &same));
	usleep(50000);
	atomic_set(&held.go, 1);
	pthread_join(first, &durable);
	pthread_join(second, &durable);
	reads_work(&bed);
	assert_int_equal(delta_counter(tux3_core(bed.volume), TUX3_COUNT_INTENT_BLOCKS) - before, 1 + 2 + 1 + 3);
	write_at(node, 4 * BLOCK, "four ");
	sync_ahead(&bed, node);
	assert_int_equal(delta_counter(tux3_core(bed.volume), TUX3_COUNT_INTENT_BLOCKS) - before, 1 + 2 + 1 + 3 + 1 + 1);
	tux3_node_put(node, 1);
	tux3_node_put(same, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "file");
	assert_has(node, 0, "one");
	assert_has(node, 2 * BLOCK, "two");
	assert_has(node, 4 * BLOCK, "four ");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Those of the intent area wait for held.go, all others for held.commit_go. */
static void held_write_of(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
			  struct io_wait *wait)
{
	bool intent = addr >= bad.addr && addr < bad.end;

	atomic_set(intent ? &held.waiting : &held.commit_waiting, 1);
	while (!atomic_read(intent ? &held.go : &held.commit_go))
		usleep(1000);
	bad.ops->write(dev, addr, vec, vecs, flags, wait);
}

static void *sync_volume(void *ctx)
{
	assert_ok(tux3_sync(((struct bed *)ctx)->volume));
	return NULL;
}

/* In *ctx: was the commit still waiting when fsync said that it is durable? */
static void *sync_before_commit(void *ctx)
{
	assert_ok(tux3_fsync(*(struct tux3_node **)ctx, false));
	return atomic_read(&held.commit_go) ? NULL : ctx;
}

/*
 * Who waits for another one's intent, while a commit begins, does not wait for that one, too.  It has no data to write, so it has
 * sealed its delta when it writes.
 */
static void test_overtaken_by_a_commit(void **state)
{
	struct bed bed = {};
	struct tux3_node *node = make(&bed), *other = bed_file(&bed, "other");
	pthread_t first, second, commit;
	char got[4] = "";
	void *ahead;

	assert_ok(tux3_setxattr(node, NULL, "user.a", "one", 3, 0));
	assert_ok(tux3_setxattr(other, NULL, "user.a", "two", 3, 0));
	memset(&held, 0, sizeof(held));
	bad.ops = bed.dev->ops;
	bad.failing = *bad.ops;
	bad.failing.write = held_write_of;
	bad.addr = intent_of(&bed)->place.addr;
	bad.end = bad.addr + intent_of(&bed)->place.blocks;
	bed.dev->ops = &bad.failing;
	assert_ok(-pthread_create(&first, NULL, sync_before_commit, &node));
	while (!atomic_read(&held.waiting))
		usleep(1000);
	assert_ok(-pthread_create(&second, NULL, sync_before_commit, &other));
	usleep(50000);		/* until it waits, too */
	assert_ok(-pthread_create(&commit, NULL, sync_volume, &bed));
	while (!atomic_read(&held.commit_waiting))
		usleep(1000);
	atomic_set(&held.go, 1);
	pthread_join(first, &ahead);
	assert_non_null(ahead);
	usleep(200000);
	atomic_set(&held.commit_go, 1);
	pthread_join(second, &ahead);
	assert_non_null(ahead);
	pthread_join(commit, NULL);
	reads_work(&bed);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_crash(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 1);
	node = bed_find(&bed, "other");
	assert_int_equal(tux3_getxattr(node, "user.a", got, sizeof(got)), 3);
	assert_memory_equal(got, "two", 3);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A delta of which nothing is left has no commit: what goes ahead after it is on top of the commit before. */
static void test_a_delta_without_a_commit_below(void **state)
{
	struct bed bed = {};
	struct tux3_node *node = make(&bed), *unnamed;
	u64 committed = tux3_committed(bed.volume), length = tux3_core(bed.volume)->log.length;

	assert_ok(tux3_tmpfile(bed.root, NULL, 0600, &unnamed));
	tux3_node_put(unnamed, 1);
	assert_ok(tux3_sync(bed.volume));
	assert_true(tux3_committed(bed.volume) > committed);
	assert_int_equal(tux3_core(bed.volume)->log.length, length);
	write_at(node, 0, "ahead");
	sync_ahead(&bed, node);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 1);
	node = bed_find(&bed, "file");
	assert_has(node, 0, "ahead");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static int see_problem(void *ctx, const struct check_problem *problem)
{
	*(unsigned int *)ctx = problem->code;
	return 0;
}

/* What the checker finds, as nobody has mounted the volume yet: one problem. */
static unsigned int check_before_mount(struct bed *bed)
{
	struct volume_options open = { .read_only = true, .manual = true };
	unsigned int code = 0;
	struct check_options opts = { .problem = see_problem, .ctx = &code };
	struct check_result result;
	struct volume *vol;
	char why[256] = "";

	assert_ok(volume_open(bed->dev, NULL, &open, &vol, why, sizeof(why)));
	assert_ok(volume_check(vol, &opts, &result));
	volume_close(vol);
	assert_int_equal(result.problems, 1);
	return code;
}

/*
 * The newest commit is lost, and an intent that was made on top of it holds on no older one.  Who asks before the next mount is
 * told; that mount goes on without it, and then it is so.
 */
static void test_the_commit_below_is_damaged(void **state)
{
	struct repair_options safe = { .safe = true };
	struct repair_result result;
	struct bed bed = {};
	struct tux3_node *node = make(&bed), *other;
	struct volume *vol;
	char why[256] = "";
	u64 addr;

	write_at(node, BLOCK, "ahead");
	sync_ahead(&bed, node);
	assert_ok(tux3_sync(bed.volume));
	addr = tux3_core(bed.volume)->log.next_addr;
	other = bed_file(&bed, "other");
	write_at(node, 0, "newer");
	assert_ok(tux3_sync(bed.volume));
	write_at(node, 2 * BLOCK, "newest");
	sync_ahead(&bed, node);
	write_at(other, 0, "newest");
	sync_ahead(&bed, other);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	((u8 *)device_memory_bytes(bed.dev))[addr * BLOCK + 200] ^= 1;
	assert_int_equal(check_before_mount(&bed), CHECK_COMMIT_MISSING);
	assert_int_equal(volume_repair(bed.dev, &safe, &result, why, sizeof(why)), -ENOTRECOVERABLE);
	assert_int_equal(result.notes[REPAIR_LOST], 1);
	/* Nor is anything refused to who opened it for writing, and was told. */
	assert_ok(volume_open(bed.dev, NULL, &(struct volume_options){ .manual = true }, &vol, why, sizeof(why)));
	assert_int_equal(volume_switch_quota(vol, &(struct quota_switch){ .on = true }, why, sizeof(why)), 0);
	volume_abandon(vol);
	bed_open(&bed);
	assert_null(bed_find(&bed, "other"));
	node = bed_find(&bed, "file");
	assert_has(node, 0, "durable");
	assert_has(node, BLOCK, "ahead");
	assert_has(node, 2 * BLOCK, "durable");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A volume of which the second of three batches is not whole. */
static void make_damaged(struct bed *bed)
{
	struct tux3_node *node = make(bed);
	struct intent_place place;

	write_at(node, 0, "one");
	sync_ahead(bed, node);
	place = intent_of(bed)->place;
	write_at(node, 0, "two");
	sync_ahead(bed, node);
	write_at(node, 0, "three");
	sync_ahead(bed, node);
	tux3_node_put(node, 1);
	tux3_node_put(bed->root, 1);
	tux3_abandon(bed->volume);
	((u8 *)device_memory_bytes(bed->dev))[(place.addr + place.offset) * BLOCK + 2000] ^= 1;
}

/* Batches are written one at a time: behind one that is not whole, and was not the last, much that was acknowledged is missing. */
static void test_a_batch_in_the_middle_is_damaged(void **state)
{
	struct volume *volume;
	struct bed bed = {};
	struct tux3_node *node;
	char why[256] = "";

	make_damaged(&bed);
	assert_int_equal(volume_open(bed.dev, NULL, &bed.opts, &volume, why, sizeof(why)), -EIO);
	bed.opts.cut_log = true;
	bed_open(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 1);
	node = bed_find(&bed, "file");
	assert_has(node, 0, "one");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* After a repair it can be opened, and the loss was told. */
static void test_a_damaged_batch_is_repaired(void **state)
{
	struct repair_options opts = {};
	struct repair_result result;
	struct bed bed = {};
	struct tux3_node *node;
	char why[256] = "";

	make_damaged(&bed);
	assert_ok(volume_repair(bed.dev, &opts, &result, why, sizeof(why)));
	assert_true(result.written);
	assert_int_equal(result.notes[REPAIR_LOST], 1);
	assert_ok(volume_repair(bed.dev, &opts, &result, why, sizeof(why)));
	assert_false(result.written);
	bed_open(&bed);
	node = bed_find(&bed, "file");
	assert_has(node, 0, "one");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* None can be written. */
static void failing_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
			  struct io_wait *wait)
{
	io_wait_begin(wait);
	io_wait_end(wait, -EIO);
}

/* What was carried out cannot be written at first: who tries again is told what to do, and nothing is lost. */
static void test_recovery_cannot_be_written(void **state)
{
	struct bed bed = {};
	struct tux3_node *node = make(&bed);
	const struct tux3_device_ops *ops = bed.dev->ops;
	struct tux3_device_ops failing = *ops;
	char why[256];

	write_at(node, 0, "synced");
	sync_ahead(&bed, node);
	tux3_node_put(node, 1);
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	bed.opts.read_only = true;
	bed_open(&bed);
	failing.write = failing_write;
	bed.dev->ops = &failing;
	assert_int_equal(volume_set_read_only(tux3_core(bed.volume), false, why, sizeof(why)), -EIO);
	bed.dev->ops = ops;
	assert_int_equal(volume_set_read_only(tux3_core(bed.volume), false, why, sizeof(why)), -EIO);
	assert_non_null(strstr(why, "opened anew"));
	bed.opts.read_only = false;
	bed_crash(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 1);
	node = bed_find(&bed, "file");
	assert_has(node, 0, "synced");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_last_block_of_the_largest_file),
		cmocka_unit_test(test_blocks_that_cannot_be_read),
		cmocka_unit_test(test_fsync_while_the_volume_becomes_read_only),
		cmocka_unit_test(test_an_intent_while_the_last_one_is_written),
		cmocka_unit_test(test_overtaken_by_a_commit),
		cmocka_unit_test(test_a_delta_without_a_commit_below),
		cmocka_unit_test(test_the_commit_below_is_damaged),
		cmocka_unit_test(test_a_batch_in_the_middle_is_damaged),
		cmocka_unit_test(test_a_damaged_batch_is_repaired),
		cmocka_unit_test(test_recovery_cannot_be_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
