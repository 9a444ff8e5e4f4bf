// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fsync ahead of the delta: what is there after a crash, what is not, and what goes the long way.  Crashes at every write are
 * the simulator's (family "ahead").
 */
#include <linux/falloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>
#include "support_intent.h"
#include "core/format/anchor.h"
#include "core/inode/inode.h"
#include "core/data/data.h"
#include "user/lib/lib.h"
#include "core/intent/intent.h"
#include "core/open.h"
#include "user/env/clock.h"

static void test_a_file_goes_ahead_of_its_delta(void **state)
{
	struct bed bed = {};
	struct tux3_node *old, *new, *other;
	u32 i;

	make(&bed, BLOCK);
	old = bed_file(&bed, "old");
	fill(old, 0, 3 * BLOCK, 1);
	assert_ok(tux3_sync(bed.volume));
	other = bed_file(&bed, "other");
	fill(other, 0, 1 << 20, 7);
	fill(old, BLOCK, 100, 2);
	fill(old, 9 * BLOCK, 50, 3);
	assert_true(synced_ahead(&bed, old));
	new = bed_file(&bed, "new");
	for (i = 0; i < 5; i++) {
		fill(new, i * 1000, 1000, 10 + i);
		assert_true(synced_ahead(&bed, new));
	}
	fill(new, 0, 10, 99);		/* not synced */
	tux3_node_put(old, 1);
	tux3_node_put(new, 1);
	tux3_node_put(other, 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 6);
	assert_null(bed_find(&bed, "other"));
	old = bed_find(&bed, "old");
	assert_int_equal(size_of(old), 9 * BLOCK + 50);
	assert_filled(old, 0, BLOCK, 1);
	assert_filled(old, BLOCK, 100, 2);
	assert_filled(old, BLOCK + 100, 2 * BLOCK - 100, 1);
	assert_filled(old, 3 * BLOCK, 6 * BLOCK, 0);
	assert_filled(old, 9 * BLOCK, 50, 3);
	new = bed_find(&bed, "new");
	assert_int_equal(size_of(new), 5000);
	for (i = 0; i < 5; i++)
		assert_filled(new, i * 1000, 1000, 10 + i);
	tux3_node_put(old, 1);
	tux3_node_put(new, 1);
	/* What was recovered is a commit now: nothing is recovered again. */
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 0);
	new = bed_find(&bed, "new");
	assert_filled(new, 4000, 1000, 14);
	tux3_node_put(new, 1);
	bed_free(&bed);
}

static void test_a_commit_supersedes_what_went_ahead(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	make(&bed, BLOCK);
	node = bed_file(&bed, "file");
	fill(node, 0, 5000, 1);
	assert_true(synced_ahead(&bed, node));
	assert_ok(tux3_unlink(bed.root, NULL, "file"));
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed.volume));	/* a delta of which nothing is left; but the intent must go */
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 0);
	assert_null(bed_find(&bed, "file"));
	bed_free(&bed);
}

/* Many times around the ring, with commits in between at which some batches count and others do not. */
static void test_the_ring_goes_round(void **state)
{
	struct bed bed = {};
	u64 random = 1, ahead = 0;
	struct tux3_node *node;
	u32 i, crash;

	make(&bed, BLOCK);
	for (crash = 0; crash < 20; crash++) {
		u32 steps = 100 + bed_random(&random) % 60, blocks = 0;

		node = bed_file(&bed, "file");
		for (i = 0; i < steps; i++) {
			blocks = 1 + bed_random(&random) % 40;
			fill(node, 0, blocks * BLOCK, crash + i);
			ahead += synced_ahead(&bed, node);
			if (bed_random(&random) % 9 == 0)
				assert_ok(tux3_sync(bed.volume));
		}
		tux3_node_put(node, 1);
		bed_crash(&bed);
		node = bed_find(&bed, "file");
		assert_filled(node, 0, blocks * BLOCK, (u8)(crash + i - 1));
		tux3_node_put(node, 1);
	}
	assert_true(ahead > 1000);
	bed_free(&bed);
}

#define HUNDREDS 400u

/*
 * The commit of a large delta takes a second or more: each of some hundred saves in that time goes ahead.  What a mount then
 * reads is not all in memory at a time: a piece, and what is said of each file; and the commit that it makes.
 */
static void test_hundreds_in_one_delta(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	long clean, peak;
	u32 i;

	make_sized(&bed, 256u << 20, BLOCK);
	bed_reopen(&bed);
	clean = bed_crash_peak(&bed);		/* there is no area */
	node = bed_file(&bed, "other");
	assert_false(synced_ahead(&bed, node));		/* the area of this mount */
	for (i = 0; i < HUNDREDS; i++) {
		fill(node, (u64)i * BLOCK, BLOCK, i);
		assert_true(synced_ahead(&bed, node));
	}
	tux3_node_put(node, 1);
	peak = bed_crash_peak(&bed);
	print_message("  a mount takes %ld KiB more than one without an area\n", (peak - clean) >> 10);
	assert_true(peak - clean < 3 << 19);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, HUNDREDS);
	node = bed_find(&bed, "other");
	for (i = 0; i < HUNDREDS; i++)
		assert_filled(node, (u64)i * BLOCK, BLOCK, i);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void set_xattr(struct tux3_node *node, const char *name, u32 size, u8 value)
{
	u8 bytes[300];

	memset(bytes, value, sizeof(bytes));
	assert_ok(tux3_setxattr(node, NULL, name, bytes, size, 0));
}

/* Is it so long, and of these bytes?  size below 0: there is none. */
static void assert_xattr(struct tux3_node *node, const char *name, int size, u8 value)
{
	u8 bytes[300], wanted[300];
	int got = tux3_getxattr(node, name, bytes, sizeof(bytes));

	assert_int_equal(got, size < 0 ? -ENODATA : size);
	memset(wanted, value, sizeof(wanted));
	if (got > 0)
		assert_memory_equal(bytes, wanted, got);
}

/* All that was in them, and written there again. */
static void test_what_was_removed_goes_ahead(void **state)
{
	struct bed bed = {};
	struct tux3_node *cut, *holes, *other, *inlined;

	make(&bed, BLOCK);
	cut = bed_file(&bed, "cut");
	fill(cut, 0, 20 * BLOCK, 1);
	holes = bed_file(&bed, "holes");
	fill(holes, 0, 20 * BLOCK, 2);
	inlined = bed_file(&bed, "inlined");
	fill(inlined, 0, 100, 3);
	assert_ok(tux3_sync(bed.volume));
	other = bed_file(&bed, "other");
	fill(other, 0, 1 << 20, 7);
	assert_ok(tux3_truncate(cut, 0));
	assert_true(synced_ahead(&bed, cut));
	fill(cut, 4 * BLOCK, 100, 4);			/* what is before it was there once */
	assert_true(synced_ahead(&bed, cut));
	fill(holes, 3 * BLOCK, 2 * BLOCK, 7);
	assert_true(synced_ahead(&bed, holes));
	assert_ok(tux3_truncate(holes, 0));		/* with what the intent before has */
	fill(holes, 4 * BLOCK, BLOCK, 5);
	assert_true(synced_ahead(&bed, holes));
	assert_ok(tux3_truncate(inlined, 0));
	fill(inlined, 0, 50, 6);
	assert_true(synced_ahead(&bed, inlined));
	tux3_node_put(cut, 1);
	tux3_node_put(holes, 1);
	tux3_node_put(inlined, 1);
	tux3_node_put(other, 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 5);
	assert_null(bed_find(&bed, "other"));
	cut = bed_find(&bed, "cut");
	assert_int_equal(size_of(cut), 4 * BLOCK + 100);
	assert_filled(cut, 0, 4 * BLOCK, 0);
	assert_filled(cut, 4 * BLOCK, 100, 4);
	holes = bed_find(&bed, "holes");
	assert_int_equal(size_of(holes), 5 * BLOCK);
	assert_filled(holes, 0, 4 * BLOCK, 0);
	assert_filled(holes, 4 * BLOCK, BLOCK, 5);
	inlined = bed_find(&bed, "inlined");
	assert_int_equal(size_of(inlined), 50);
	assert_filled(inlined, 0, 50, 6);
	tux3_node_put(cut, 1);
	tux3_node_put(holes, 1);
	tux3_node_put(inlined, 1);
	bed_free(&bed);
}

/* A commit that is durable and waits, before it lets go of the file, until an fsync in the next delta looks at its first block. */
static struct {
	const struct tux3_host_ops *inner;
	struct tux3_host_ops host;
	struct bed *bed;
	struct tux3_inode *file;
	pthread_t thread;
	sem_t waits, may_end;
	bool ended;
} under_way;

static void done_waits(struct tux3_inode *inode, u64 delta, int err)
{
	if (inode != under_way.file) {
		sem_post(&under_way.waits);
		sem_wait(&under_way.may_end);
		sem_post(&under_way.may_end);
	}
	under_way.inner->data_done(inode, delta, err);
}

static void end_commit(void)
{
	if (under_way.ended)
		return;
	under_way.ended = true;
	sem_post(&under_way.may_end);
	pthread_join(under_way.thread, NULL);
}

static bool peek_ends_commit(struct tux3_inode *inode, u64 block, void *data)
{
	bool there = under_way.inner->data_peek(inode, block, data);

	end_commit();
	return there;
}

/* Blocks are dirty when they are counted, and not when they are copied. */
static bool count_ends_commit(struct tux3_inode *inode, u64 from, u64 end, u64 *block, u64 *count)
{
	bool there = under_way.inner->data_dirty(inode, from, end, block, count);

	end_commit();
	return there;
}

static void *commit_under_way(void *unused)
{
	assert_ok(tux3_sync(under_way.bed->volume));
	return NULL;
}

static void begin_commit(struct bed *bed, struct tux3_node *file)
{
	under_way.bed = bed;
	under_way.file = &file->inode;
	under_way.inner = bed->volume->vol->host;
	under_way.host = *under_way.inner;
	under_way.host.data_done = done_waits;
	under_way.host.data_peek = peek_ends_commit;
	under_way.ended = false;
	sem_init(&under_way.waits, 0, 0);
	sem_init(&under_way.may_end, 0, 0);
	bed->volume->vol->host = &under_way.host;
	assert_int_equal(pthread_create(&under_way.thread, NULL, commit_under_way, NULL), 0);
	sem_wait(&under_way.waits);
}

/* What the commit under way has removed and written again is there, also if it ends while the file is looked at. */
static void test_a_commit_ends_during_the_look(void **state)
{
	struct tux3_node *node, *before, *behind;
	struct bed bed = {};

	/* One of the other two is let go before this one, whatever the order is. */
	make(&bed, BLOCK);
	before = bed_file(&bed, "before");
	node = bed_file(&bed, "file");
	fill(node, 0, 20 * BLOCK, 1);
	behind = bed_file(&bed, "behind");
	assert_ok(tux3_sync(bed.volume));
	fill(before, 0, BLOCK, 1);
	assert_ok(tux3_truncate(node, 0));
	fill(node, 0, 2 * BLOCK, 2);
	fill(node, 5 * BLOCK, 2 * BLOCK, 3);
	fill(behind, 0, BLOCK, 1);
	begin_commit(&bed, node);
	fill(node, 30 * BLOCK, 10, 4);
	assert_ok(tux3_fsync(node, false));
	assert_true(under_way.ended);
	bed.volume->vol->host = under_way.inner;
	tux3_node_put(node, 1);
	tux3_node_put(before, 1);
	tux3_node_put(behind, 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 1);
	node = bed_find(&bed, "file");
	assert_filled(node, 0, 2 * BLOCK, 2);
	assert_filled(node, 2 * BLOCK, 3 * BLOCK, 0);
	assert_filled(node, 5 * BLOCK, 2 * BLOCK, 3);
	assert_filled(node, 7 * BLOCK, 23 * BLOCK, 0);
	assert_filled(node, 30 * BLOCK, 10, 4);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static struct {
	const struct tux3_host_ops *inner;
	struct tux3_host_ops host;
	struct bed *bed;
	u32 refusals;			/* so often it is not possible */
	u64 from, end;			/* blocks that were settled last */
} settling;

static bool settle(struct tux3_inode *inode, u64 delta, u64 block, u32 count)
{
	assert_int_equal(delta, settling.bed->volume->vol->delta.front);
	if (settling.refusals) {
		settling.refusals--;
		return false;
	}
	settling.from = block;
	settling.end = block + count;
	return true;
}

static bool peek_settled(struct tux3_inode *inode, u64 block, void *data)
{
	assert_in_range(block, settling.from, settling.end - 1);
	return settling.inner->data_peek(inode, block, data);
}

/* No block is copied before late stores to it are this delta's: where that is not possible twice, a commit is made. */
static void test_blocks_are_settled_before_they_are_copied(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};

	make(&bed, BLOCK);
	node = bed_file(&bed, "file");
	assert_ok(tux3_sync(bed.volume));
	settling.bed = &bed;
	settling.inner = bed.volume->vol->host;
	settling.host = *settling.inner;
	settling.host.data_settle = settle;
	settling.host.data_peek = peek_settled;
	bed.volume->vol->host = &settling.host;
	fill(node, 0, 20 * BLOCK, 1);
	assert_true(synced_ahead(&bed, node));
	fill(node, 5 * BLOCK, 2 * BLOCK, 2);
	settling.refusals = 1;
	assert_true(synced_ahead(&bed, node));
	fill(node, 5 * BLOCK, 2 * BLOCK, 3);
	settling.refusals = 2;
	assert_false(synced_ahead(&bed, node));
	bed.volume->vol->host = settling.inner;
	tux3_node_put(node, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "file");
	assert_filled(node, 0, 5 * BLOCK, 1);
	assert_filled(node, 5 * BLOCK, 2 * BLOCK, 3);
	assert_filled(node, 7 * BLOCK, 13 * BLOCK, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A large file has no data to be said any more: it goes ahead all the same, and so does what comes behind. */
static void test_a_commit_ends_after_the_count(void **state)
{
	struct tux3_node *node, *before, *behind;
	struct bed bed = {};
	struct tux3_stat stat;

	make_sized(&bed, 256u << 20, BLOCK);
	before = bed_file(&bed, "before");
	node = bed_file(&bed, "file");
	behind = bed_file(&bed, "behind");
	assert_ok(tux3_sync(bed.volume));
	fill(before, 0, BLOCK, 1);
	fill(node, 0, 1 << 20, 2);
	fill(behind, 0, BLOCK, 1);
	begin_commit(&bed, node);
	under_way.host.data_peek = under_way.inner->data_peek;
	under_way.host.data_dirty = count_ends_commit;
	stat.mode = 0600;
	assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
	assert_ok(tux3_fsync(node, false));
	assert_true(under_way.ended);
	bed.volume->vol->host = under_way.inner;
	fill(behind, 0, BLOCK, 3);
	assert_true(synced_ahead(&bed, behind));
	tux3_node_put(node, 1);
	tux3_node_put(before, 1);
	tux3_node_put(behind, 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 2);
	node = bed_find(&bed, "file");
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.mode & 0777, 0600);
	assert_filled(node, 0, 1 << 20, 2);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* fsync, ahead; and so many blocks of data it wrote, with a block for the header. */
static void assert_blocks_ahead(struct bed *bed, struct tux3_node *node, u32 blocks)
{
	u64 before = counted(bed, TUX3_COUNT_INTENT_BLOCKS);

	assert_true(synced_ahead(bed, node));
	assert_int_equal(counted(bed, TUX3_COUNT_INTENT_BLOCKS) - before, 1 + blocks);
}

/* What the last intent of the file has is left out of the next one. */
static void test_only_what_has_changed_since(void **state)
{
	struct bed bed = {};
	struct tux3_node *node, *other;
	u32 i;

	make(&bed, BLOCK);
	other = bed_file(&bed, "other");
	node = bed_file(&bed, "file");
	fill(other, 0, 1 << 20, 7);
	fill(node, 0, 40 * BLOCK, 1);
	assert_blocks_ahead(&bed, node, 40);
	fill(node, 7 * BLOCK + 5, 10, 2);
	assert_blocks_ahead(&bed, node, 1);
	assert_ok(tux3_setattr(node, NULL, &(struct tux3_stat){ .mode = 0640 }, TUX3_SET_MODE));
	assert_blocks_ahead(&bed, node, 0);
	fill(node, 40 * BLOCK, 100, 3);
	assert_blocks_ahead(&bed, node, 1);
	fill(node, 50 * BLOCK, 100, 4);			/* and the block in which it ended */
	assert_blocks_ahead(&bed, node, 2);
	/* In the next delta, on top of the intents of this one or of its commit. */
	for (i = 0; i < 2; i++) {
		if (i)
			assert_ok(tux3_sync(bed.volume));
		fill(node, (10 + i) * BLOCK, BLOCK, 5);
		assert_blocks_ahead(&bed, node, 1);
	}
	/* That it was emptied is said again, and so is all else. */
	assert_ok(tux3_truncate(other, 0));
	fill(other, 3 * BLOCK, BLOCK, 6);
	assert_blocks_ahead(&bed, other, 1);
	fill(other, 5 * BLOCK, BLOCK, 6);
	assert_blocks_ahead(&bed, other, 2);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "file");
	assert_int_equal(size_of(node), 50 * BLOCK + 100);
	assert_filled(node, 0, 7 * BLOCK + 5, 1);
	assert_filled(node, 7 * BLOCK + 5, 10, 2);
	assert_filled(node, 8 * BLOCK, 2 * BLOCK, 1);
	assert_filled(node, 10 * BLOCK, 2 * BLOCK, 5);
	assert_filled(node, 12 * BLOCK, 28 * BLOCK, 1);
	assert_filled(node, 40 * BLOCK, 100, 3);
	assert_filled(node, 50 * BLOCK, 100, 4);
	other = bed_find(&bed, "other");
	assert_filled(other, 0, 3 * BLOCK, 0);
	assert_filled(other, 3 * BLOCK, BLOCK, 6);
	assert_filled(other, 4 * BLOCK, BLOCK, 0);
	assert_filled(other, 5 * BLOCK, BLOCK, 6);
	tux3_node_put(other, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A file that may become inline is said as a whole: a commit may find it so, and an intent on top must have all of its data. */
static void test_small_files_are_told_whole(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	make(&bed, BLOCK);
	node = bed_file(&bed, "file");
	fill(node, 0, 100, 1);
	assert_blocks_ahead(&bed, node, 1);
	fill(node, 5 * BLOCK, 100, 2);
	assert_blocks_ahead(&bed, node, 2);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "file");
	assert_filled(node, 0, 100, 1);
	assert_filled(node, 5 * BLOCK, 100, 2);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* As labels and ACLs come with a new file; and those of an old one, of which one had a block of its own. */
static void test_xattrs_go_ahead(void **state)
{
	struct bed bed = {};
	struct tux3_node *old, *new, *other;

	make(&bed, BLOCK);
	old = bed_file(&bed, "old");
	set_xattr(old, "user.kept", 10, 1);
	set_xattr(old, "user.removed", 10, 2);
	set_xattr(old, "user.changed", 10, 3);
	set_xattr(old, "user.large", 300, 4);
	set_xattr(old, "user.large too", 300, 4);
	assert_ok(tux3_sync(bed.volume));
	other = bed_file(&bed, "other");
	fill(other, 0, 1 << 20, 7);
	new = bed_file(&bed, "new");
	set_xattr(new, "security.label", 40, 5);
	fill(new, 0, 5000, 1);
	assert_true(synced_ahead(&bed, new));
	set_xattr(new, "user.empty", 0, 0);
	assert_true(synced_ahead(&bed, new));
	assert_ok(tux3_removexattr(old, NULL, "user.removed"));
	assert_ok(tux3_removexattr(old, NULL, "user.large"));
	set_xattr(old, "user.changed", 256, 6);
	set_xattr(old, "user.large too", 20, 7);
	set_xattr(old, "user.added", 20, 8);
	assert_true(synced_ahead(&bed, old));
	tux3_node_put(old, 1);
	tux3_node_put(new, 1);
	tux3_node_put(other, 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 3);
	assert_null(bed_find(&bed, "other"));
	new = bed_find(&bed, "new");
	assert_filled(new, 0, 5000, 1);
	assert_xattr(new, "security.label", 40, 5);
	assert_xattr(new, "user.empty", 0, 0);
	old = bed_find(&bed, "old");
	assert_xattr(old, "user.kept", 10, 1);
	assert_xattr(old, "user.removed", -1, 0);
	assert_xattr(old, "user.changed", 256, 6);
	assert_xattr(old, "user.large", -1, 0);
	assert_xattr(old, "user.large too", 20, 7);
	assert_xattr(old, "user.added", 20, 8);
	tux3_node_put(old, 1);
	tux3_node_put(new, 1);
	bed_free(&bed);
}

/* What an intent cannot say, or what is not so in the newest durable delta, is a commit. */
static void test_what_goes_the_long_way(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char name[20];
	u32 i;

	make(&bed, BLOCK);
	node = bed_file(&bed, "dir/file");
	fill(node, 0, 3 * BLOCK, 1);
	assert_true(synced_ahead(&bed, node));
	set_xattr(node, "user.large", 257, 1);		/* a block of its own */
	assert_false(synced_ahead(&bed, node));
	assert_ok(tux3_removexattr(node, NULL, "user.large"));
	assert_true(synced_ahead(&bed, node));
	for (i = 0; i < 12; i++) {			/* too many bytes */
		snprintf(name, sizeof(name), "user.%u", i);
		set_xattr(node, name, 200, i);
	}
	assert_false(synced_ahead(&bed, node));
	fill(node, 3 * BLOCK, 20 * BLOCK, 1);
	assert_true(synced_ahead(&bed, node));
	assert_ok(tux3_sync(bed.volume));
	/* Blocks of a part are counted by a commit. */
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * BLOCK, BLOCK));
	assert_false(synced_ahead(&bed, node));
	assert_ok(tux3_truncate(node, 9 * BLOCK));
	assert_false(synced_ahead(&bed, node));
	assert_ok(tux3_fallocate(node, 0, BLOCK, 8 * BLOCK));
	assert_false(synced_ahead(&bed, node));
	fill(node, 2 * BLOCK, BLOCK, 3);		/* preallocated, and that is durable */
	assert_true(synced_ahead(&bed, node));
	fill(node, 4 << 20, 2 << 20, 4);		/* too much for the far area */
	assert_false(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Every other block from this one on, preallocated and written. */
static void allocate_and_fill(struct tux3_node *node, u64 block, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		assert_ok(tux3_fallocate(node, 0, (block + 2 * i) * BLOCK, BLOCK));
		fill(node, (block + 2 * i) * BLOCK, BLOCK, i);
	}
}

/* Blocks that are preallocated and written before the fsync need no commit, unlike those that are not written. */
static void test_what_is_preallocated_and_written(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u32 i;

	make(&bed, BLOCK);
	node = bed_file(&bed, "dir/file");
	fill(node, 0, BLOCK, 1);
	assert_true(synced_ahead(&bed, node));
	assert_ok(tux3_fallocate(node, 0, BLOCK, 8 * BLOCK));
	fill(node, BLOCK, 7 * BLOCK, 2);
	assert_false(synced_ahead(&bed, node));
	assert_ok(tux3_fallocate(node, 0, 9 * BLOCK, 9 * BLOCK));
	fill(node, 9 * BLOCK, 9 * BLOCK, 3);
	assert_true(synced_ahead(&bed, node));
	fill(node, 10 * BLOCK, BLOCK, 4);
	assert_true(synced_ahead(&bed, node));
	assert_ok(tux3_fallocate(node, FALLOC_FL_KEEP_SIZE, 30 * BLOCK, BLOCK));	/* behind the end */
	assert_false(synced_ahead(&bed, node));
	allocate_and_fill(node, 40, 16);
	assert_true(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "dir/file");
	assert_int_equal(size_of(node), 71 * BLOCK);
	assert_filled(node, BLOCK, 7 * BLOCK, 2);
	assert_filled(node, 9 * BLOCK, BLOCK, 3);
	assert_filled(node, 10 * BLOCK, BLOCK, 4);
	assert_filled(node, 11 * BLOCK, 7 * BLOCK, 3);
	for (i = 0; i < 16; i++)
		assert_filled(node, (40 + 2 * i) * BLOCK, BLOCK, i);
	/* One more delta with as many as that is not looked through. */
	allocate_and_fill(node, 100, 40);
	assert_false(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Inline data, written or not since it is inline. */
static void test_small_files(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	make(&bed, BLOCK);
	node = bed_file(&bed, "small");
	fill(node, 0, 40, 1);
	assert_ok(tux3_sync(bed.volume));
	fill(node, 10, 10, 2);
	assert_true(synced_ahead(&bed, node));
	fill(node, 40, 10, 3);
	assert_true(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "small");
	assert_int_equal(size_of(node), 50);
	assert_filled(node, 0, 10, 1);
	assert_filled(node, 10, 10, 2);
	assert_filled(node, 40, 10, 3);
	assert_ok(tux3_sync(bed.volume));
	fill(node, 2 * BLOCK, 10, 4);		/* the first block is in the tree, and stays as it is */
	tux3_fsync(node, false);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "small");
	assert_filled(node, 10, 10, 2);
	assert_filled(node, 2 * BLOCK, 10, 4);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void test_blocks_of_64_kib(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	make(&bed, 65536);
	node = bed_file(&bed, "file");
	fill(node, 0, 100000, 1);
	assert_true(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "file");
	assert_filled(node, 0, 100000, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* The area is room that others can have. */
static void test_a_full_volume_takes_the_area(void **state)
{
	struct bed bed = {}, plain = {};
	struct tux3_node *node;
	u64 filled[2] = {}, offset;
	u32 i;

	make(&bed, BLOCK);
	plain.opts.manual = true;
	plain.opts.fsync = TUX3_FSYNC_FULL;
	bed_make(&plain, BYTES, BLOCK);
	for (i = 0; i < 2; i++) {
		struct bed *this = i ? &plain : &bed;
		u8 *data = calloc(1, BLOCK);
		ssize_t done = BLOCK;

		node = bed_file(this, "large");
		for (offset = 0; done == BLOCK; offset += BLOCK) {
			done = tux3_write(node, data, BLOCK, offset);
			filled[i] += done == BLOCK;
			if (offset % (1 << 20) == 0)
				assert_ok(tux3_fsync(node, false));
		}
		assert_int_equal(done, -ENOSPC);
		assert_ok(tux3_fsync(node, false));
		tux3_node_put(node, 1);
		free(data);
	}
	print_message("  %llu blocks with an area, %llu without\n", filled[0], filled[1]);
	assert_true(filled[0] + 16 >= filled[1]);
	assert_false(tux3_core(bed.volume)->intent.place.addr);
	bed_free(&plain);
	bed_crash(&bed);
	bed_free(&bed);
}

/* Opened read-only it is all there, and nothing is written; then the volume becomes writable. */
static void test_recovery_while_read_only(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u64 writes;
	char why[256];

	make(&bed, BLOCK);
	node = bed_file(&bed, "file");
	fill(node, 0, 5000, 1);
	assert_true(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	bed.opts.read_only = true;
	writes = atomic64_read(&bed.dev->writes);
	bed_open(&bed);
	node = bed_find(&bed, "file");
	assert_filled(node, 0, 5000, 1);
	assert_int_equal(atomic64_read(&bed.dev->writes), writes);
	assert_ok(volume_set_read_only(tux3_core(bed.volume), false, why, sizeof(why)));
	assert_true(atomic64_read(&bed.dev->writes) > writes);
	fill(node, 0, 10, 2);
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	bed.opts.read_only = false;
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 0);
	node = bed_find(&bed, "file");
	assert_filled(node, 0, 10, 2);
	assert_filled(node, 10, 4990, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A commit that was durable is damaged, and dropped: what went ahead on top of it is about a state that is gone. */
static void test_the_base_is_damaged(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	struct data_extent extent = { .count = 1 };
	u8 *data = calloc(1, BLOCK);
	struct io_wait wait;

	make(&bed, BLOCK);
	node = bed_file(&bed, "file");		/* is of the commit that will be damaged */
	fill(node, 0, 2 * BLOCK, 1);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(data_map_tree(&node->inode, &extent, NULL, 0));
	fill(node, BLOCK, BLOCK, 2);
	assert_true(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	io_wait_init(&wait);
	device_write(bed.dev, extent.addr, data, 1, 0, &wait);
	assert_ok(io_wait_finish(&wait));
	free(data);
	bed_open(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 0);
	assert_null(bed_find(&bed, "file"));
	node = bed_find(&bed, "first");
	assert_filled(node, 0, 100, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/*
 * A commit is under way, and has not come to a file that it will store inline; but what there was of that is removed by now.  So on
 * one base it is inline, and the intent has nothing of it to put in its place.
 */
static void test_emptied_before_the_commit_stores_it_inline(void **state)
{
	pthread_t thread, fsync;
	struct tux3_node *node;
	struct bed bed = {};
	u32 i;

	for (i = 0; i < 4; i++) {
		begin(&bed);
		new_and_gone(&bed, "dir/large", 9, false);	/* what is held is the write of this */
		node = bed_file(&bed, "dir/x");
		fill(node, 0, 10, 10);
		if (i & 1)
			assert_true(synced_ahead(&bed, node));
		hold_commit(&bed, &thread);
		assert_ok(tux3_truncate(node, 0));
		if (i & 2)
			fill(node, 2 * BLOCK, 10, 11);
		assert_int_equal(pthread_create(&fsync, NULL, fsync_path, node), 0);
		let_others_wait();			/* it goes ahead, or waits for the commit */
		let_commit(&bed, thread, &fsync);
		tux3_node_put(node, 1);
		bed_crash(&bed);
		node = bed_find(&bed, "dir/x");
		assert_int_equal(size_of(node), i & 2 ? 2 * BLOCK + 10 : 0);
		if (i & 2) {
			assert_filled(node, 0, 2 * BLOCK, 0);
			assert_filled(node, 2 * BLOCK, 10, 11);
		}
		tux3_node_put(node, 1);
		bed_free(&bed);
		memset(&bed, 0, sizeof(bed));
	}
}

/* While one commit is under way a thousand fsyncs go ahead: the ring is not full of them after the first few hundred. */
static void test_many_beside_one_commit(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	pthread_t thread;
	char name[20];
	u32 i;

	make_sized(&bed, 1u << 30, BLOCK);
	new_and_gone(&bed, "dir/held", 1, false);
	hold_commit(&bed, &thread);
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "dir/%u", i);
		node = bed_file(&bed, name);
		fill(node, 0, BLOCK, 2 + i % 200);
		assert_true(synced_ahead(&bed, node));
		tux3_node_put(node, 1);
	}
	let_commit(&bed, thread, NULL);
	bed_crash(&bed);
	assert_in_range(tux3_core(bed.volume)->intent.recovered, 1000, 1001);
	node = bed_find(&bed, "dir/999");
	assert_filled(node, 0, BLOCK, 2 + 999 % 200);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static struct tux3_node *written;

static void *write_long(void *arg)
{
	down_write(&written->lock);
	sem_post(arg);
	usleep(50 * 1000);
	up_write(&written->lock);
	return NULL;
}

/* Of a log one thread writes the end, and another one syncs it: it is mostly being written, and goes ahead all the same. */
static void test_a_file_that_is_being_written(void **state)
{
	struct bed bed = {};
	pthread_t writer;
	sem_t begun;
	u32 i;

	make(&bed, BLOCK);
	written = new_file(&bed, "log", 1);
	sem_init(&begun, 0, 0);
	for (i = 0; i < 3; i++) {
		assert_int_equal(pthread_create(&writer, NULL, write_long, &begun), 0);
		sem_wait(&begun);
		assert_true(synced_ahead(&bed, written));
		pthread_join(writer, NULL);
		fill(written, i * 300 * BLOCK, BLOCK, 2);
	}
	/* But not when it may be too much. */
	fill(written, 0, 100 * BLOCK, 2);
	assert_int_equal(pthread_create(&writer, NULL, write_long, &begun), 0);
	sem_wait(&begun);
	assert_false(synced_ahead(&bed, written));
	pthread_join(writer, NULL);
	sem_destroy(&begun);
	tux3_node_put(written, 1);
	bed_free(&bed);
}

/* A write that makes a commit of each MiB, on a device that takes its time. */
static struct {
	const struct tux3_device_ops *inner;
	struct tux3_device_ops ops;
	sem_t begun;
	bool done;
} much;

static void much_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	sem_post(&much.begun);
	usleep(5000);
	much.inner->write(dev, addr, vec, vecs, flags, wait);
}

static void *write_much(void *unused)
{
	fill(written, 0, 40 << 20, 1);
	WRITE_ONCE(much.done, true);
	return NULL;
}

/* Little of it is dirty at any time; but who waited for the writer would wait for all that he has still to write. */
static void test_a_long_write_is_not_waited_for(void **state)
{
	struct bed bed = { .opts = { .dirty_bytes = 1 << 20, .dirty_limit_bytes = 1 << 20, .intent_near_bytes = 2 << 20 } };
	pthread_t writer;

	make_sized(&bed, 2 * BYTES, BLOCK);
	written = new_file(&bed, "much", 1);
	assert_ok(tux3_sync(bed.volume));
	much.inner = bed.dev->ops;
	much.ops = *much.inner;
	much.ops.write = much_write;
	bed.dev->ops = &much.ops;
	sem_init(&much.begun, 0, 0);
	assert_int_equal(pthread_create(&writer, NULL, write_much, NULL), 0);
	sem_wait(&much.begun);
	assert_ok(tux3_fsync(written, false));
	assert_false(READ_ONCE(much.done));
	pthread_join(writer, NULL);
	sem_destroy(&much.begun);
	bed.dev->ops = much.inner;
	tux3_node_put(written, 1);
	bed_free(&bed);
}

/* ---- directories ---- */

/* fsync of a directory: does it take a commit? */
static bool dir_takes_commit(struct bed *bed, struct tux3_node *dir)
{
	u64 ahead = counted(bed, TUX3_COUNT_FSYNCS_AHEAD), flushes = counted(bed, TUX3_COUNT_FLUSHES);
	u64 committed = tux3_committed(bed->volume);

	assert_ok(tux3_fsync(dir, false));
	assert_int_equal(counted(bed, TUX3_COUNT_FSYNCS_AHEAD), ahead);
	assert_int_equal(counted(bed, TUX3_COUNT_FLUSHES) > flushes, tux3_committed(bed->volume) > committed);
	return tux3_committed(bed->volume) > committed;
}

static void test_a_directory_whose_new_files_went_ahead(void **state)
{
	struct bed bed = {};
	struct tux3_node *dir, *a, *b, *c;

	make(&bed, BLOCK);
	a = new_file(&bed, "dir/a", 1);
	dir = bed_find(&bed, "dir");
	assert_ok(tux3_sync(bed.volume));
	b = new_file(&bed, "dir/b", 2);
	c = new_file(&bed, "dir/c", 3);
	assert_true(synced_ahead(&bed, b));
	assert_true(synced_ahead(&bed, c));
	assert_false(dir_takes_commit(&bed, dir));
	fill(c, 0, 10, 4);		/* its name is durable all the same */
	assert_false(dir_takes_commit(&bed, dir));
	tux3_node_put(dir, 1);
	tux3_node_put(a, 1);
	tux3_node_put(b, 1);
	tux3_node_put(c, 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 2);
	c = bed_find(&bed, "dir/c");
	assert_filled(c, 0, 5000, 3);
	tux3_node_put(c, 1);
	bed_free(&bed);
}

static void test_a_directory_that_changed_otherwise(void **state)
{
	struct tux3_stat stat = { .mode = 0700 };
	struct bed bed = {};
	struct tux3_node *dir, *node, *other;

	make(&bed, BLOCK);
	node = new_file(&bed, "dir/old", 1);
	dir = bed_find(&bed, "dir");
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	node = new_file(&bed, "dir/a", 1);
	other = new_file(&bed, "dir/b", 1);
	assert_true(synced_ahead(&bed, node));
	assert_true(synced_ahead(&bed, dir));		/* with b */
	tux3_node_put(other, 1);
	tux3_node_put(node, 1);
	node = new_file(&bed, "dir/c", 1);
	assert_true(synced_ahead(&bed, node));
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "dir/below", 0755));
	assert_true(synced_ahead(&bed, dir));
	tux3_node_put(node, 1);
	node = new_file(&bed, "dir/f", 1);
	assert_true(synced_ahead(&bed, node));
	assert_ok(tux3_setattr(dir, NULL, &stat, TUX3_SET_MODE));
	assert_true(dir_takes_commit(&bed, dir));
	tux3_node_put(node, 1);
	node = new_file(&bed, "dir/g", 1);
	assert_true(synced_ahead(&bed, node));
	assert_ok(tux3_setxattr(dir, NULL, "user.a", "b", 1, 0));
	assert_true(dir_takes_commit(&bed, dir));
	tux3_node_put(node, 1);
	/* A new file sets the time back, and an intent does not. */
	stat.mtime.tv_sec = 1ll << 33;
	assert_ok(tux3_setattr(dir, NULL, &stat, TUX3_SET_MTIME));
	assert_true(dir_takes_commit(&bed, dir));
	node = new_file(&bed, "dir/h", 1);
	assert_true(synced_ahead(&bed, node));
	assert_true(dir_takes_commit(&bed, dir));
	tux3_node_put(node, 1);
	node = new_file(&bed, "dir/i", 1);
	assert_true(synced_ahead(&bed, node));
	assert_false(dir_takes_commit(&bed, dir));
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	bed_crash(&bed);
	dir = bed_find(&bed, "dir");
	assert_ok(tux3_stat_node(dir, &stat));
	assert_true(stat.mtime.tv_sec < 1ll << 33);
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

static int ignore_entry(void *ctx, const struct tux3_dirent *entry)
{
	return 0;
}

/* It was listed, and that is all: when it was read no fsync of a directory says.  So there is nothing to wait for. */
static void test_a_directory_that_was_read(void **state)
{
	struct bed bed = {};
	struct tux3_node *dir, *node;
	uint64_t cookie = 0;

	make(&bed, BLOCK);
	node = new_file(&bed, "dir/a", 1);
	dir = bed_find(&bed, "dir");
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(new_file(&bed, "other", 2), 1);
	assert_ok(tux3_readdir(dir, &cookie, ignore_entry, NULL));
	assert_int_equal(dir->inode.slot[0].dirty | dir->inode.slot[1].dirty, INODE_DIRTY_ATIME);
	assert_false(dir_takes_commit(&bed, dir));
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

/* ---- fsync=auto: what costs least ---- */

static u64 blocks_written(struct bed *bed)
{
	return counted(bed, TUX3_COUNT_DATA_BLOCKS) + counted(bed, TUX3_COUNT_LOG_BLOCKS) + counted(bed, TUX3_COUNT_INTENT_BLOCKS);
}

#define LOG_WRITES	200u
#define LOG_BYTES	20000u		/* each: 5 or 6 blocks, one of them written before */
#define CHECKPOINT	40u		/* of these one after so many */

/*
 * As a database does it: its log grows and is synced each time; now and then much of its file is overwritten and synced, and the
 * log begins anew.  All of it is what fsync was called for, so nothing needs to go ahead of anything.
 */
static void test_a_log_and_its_checkpoints_are_written_once(void **state)
{
	struct bed bed = { .opts = { .manual = true, .verify = true } };
	struct tux3_node *log, *file;
	u64 random = 1, before, least;
	u32 i, n;

	bed_make(&bed, BYTES, BLOCK);
	log = bed_file(&bed, "log");
	file = bed_file(&bed, "file");
	fill(file, 0, 4 << 20, 1);
	assert_false(synced_ahead(&bed, file));
	assert_true(tux3_core(bed.volume)->intent.place.addr);
	before = blocks_written(&bed);
	for (i = 0; i < LOG_WRITES; i++) {
		if (i % CHECKPOINT == CHECKPOINT - 1) {
			for (n = 0; n < 200; n++)
				fill(file, bed_random(&random) % 1024 * BLOCK, BLOCK, i);
			assert_false(synced_ahead(&bed, file));
		}
		fill(log, i % CHECKPOINT * LOG_BYTES, LOG_BYTES, i);
		assert_false(synced_ahead(&bed, log));
	}
	/* With the block in which the one before ended, and a block of log for each commit. */
	least = LOG_WRITES * (LOG_BYTES / BLOCK + 2) + LOG_WRITES / CHECKPOINT * 200;
	assert_in_range(blocks_written(&bed) - before, least / 2, least + 2 * LOG_WRITES);
	tux3_node_put(log, 1);
	tux3_node_put(file, 1);
	bed_free(&bed);
}

/* Beside what others have changed it goes ahead, until as much was written twice. */
static void test_what_is_written_twice_is_bounded(void **state)
{
	struct bed bed = { .opts = { .manual = true, .verify = true } };
	struct tux3_node *log, *other;
	u32 ahead = 0;
	u64 before;

	bed_make(&bed, BYTES, BLOCK);
	log = bed_file(&bed, "log");
	other = bed_file(&bed, "other");
	assert_ok(tux3_sync(bed.volume));
	fill(other, 0, 96 * BLOCK, 1);
	before = blocks_written(&bed);
	fill(log, 0, 8 * BLOCK, 1);
	while (synced_ahead(&bed, log)) {
		fill(log, ahead % 8 * BLOCK, BLOCK, 2);
		assert_true(++ahead < 96);
	}
	assert_true(ahead > 4);
	/* Once all of it, and what a commit would have written before it had to as much again: that is also what intents have. */
	assert_in_range(blocks_written(&bed) - before, 96 + 8 + 96 / 2, 96 + 8 + 96 + 8 + 4);
	tux3_node_put(log, 1);
	tux3_node_put(other, 1);
	bed_free(&bed);
}

/* When as much was written twice a commit is due.  One that takes long is asked for, and not waited for. */
static void test_a_long_commit_is_not_waited_for(void **state)
{
	struct bed bed = { .opts = { .manual = true, .verify = true } };
	struct tux3_node *log, *other;
	struct volume *vol;
	u32 i;

	bed_make(&bed, 512 << 20, BLOCK);	/* with an area that is large enough for all */
	vol = tux3_core(bed.volume);
	log = bed_file(&bed, "log");
	other = bed_file(&bed, "other");
	assert_ok(tux3_sync(bed.volume));
	assert_true(vol->intent.place.blocks / 4 > 400);
	vol->pace.load_rate = 1 << 20;
	fill(other, 0, 96 * BLOCK, 1);
	/* An fsync writes two blocks: it is asked for when that is three times what the commit writes. */
	for (i = 0; i < 170; i++) {
		fill(log, i % 8 * BLOCK, BLOCK, 2);
		assert_true(synced_ahead(&bed, log));
		if (i == 135)
			assert_false(atomic_read(&vol->delta.wanted));
	}
	assert_true(atomic_read(&vol->delta.wanted));
	assert_ok(tux3_sync(bed.volume));
	/* Of little that others have changed it is short, whatever it was lately. */
	vol->pace.load_rate = 1;
	env_pass_time(NSEC_PER_SEC);
	fill(other, 0, 8 * BLOCK, 1);
	fill(log, 0, BLOCK, 3);
	assert_false(synced_ahead(&bed, log));
	tux3_node_put(log, 1);
	tux3_node_put(other, 1);
	bed_free(&bed);
}

static u64 blocks_until_wanted(struct bed *bed, struct tux3_node *log)
{
	u64 before = counted(bed, TUX3_COUNT_INTENT_BLOCKS);

	while (!atomic_read(&tux3_core(bed->volume)->delta.wanted)) {
		fill(log, 0, BLOCK, 2);
		assert_true(synced_ahead(bed, log));
	}
	return counted(bed, TUX3_COUNT_INTENT_BLOCKS) - before;
}

/*
 * Before the ring is full of the front delta's intents a commit is asked for: beside that there is room for more.  How much that
 * has to be becomes known.
 */
static void test_the_ring_asks_for_a_commit(void **state)
{
	struct bed bed = { .opts = { .manual = true, .fsync = TUX3_FSYNC_AHEAD } };
	struct tux3_node *log;
	struct volume *vol;
	u32 part, i;

	bed_make(&bed, BYTES, BLOCK);
	vol = tux3_core(bed.volume);
	log = bed_file(&bed, "log");
	fill(log, 0, BLOCK, 1);
	assert_ok(tux3_fsync(log, false));	/* it makes the area */
	part = vol->intent.place.blocks / 4;
	assert_true(part > 10);
	assert_in_range(blocks_until_wanted(&bed, log), part - 4, part + 4);
	/* If one is under way, and so it cannot begin at once, deltas are too large. */
	assert_false(vol->pace.waited_ns);
	WRITE_ONCE(vol->delta.committing, 1);
	fill(log, 0, BLOCK, 2);
	assert_true(synced_ahead(&bed, log));
	WRITE_ONCE(vol->delta.committing, 0);
	assert_true(vol->pace.waited_ns);
	/* Nothing comes beside commits. */
	for (i = 0; i < 40; i++) {
		fill(log, 0, BLOCK, 2);
		assert_ok(tux3_sync(bed.volume));
	}
	atomic_set(&vol->delta.wanted, 0);
	assert_in_range(blocks_until_wanted(&bed, log), 2 * part, 3 * part + 4);
	tux3_node_put(log, 1);
	bed_free(&bed);
}

/* What others have changed is known to a few bytes where that matters, though each CPU counts much more by itself. */
static void test_what_cpus_count_by_themselves(void **state)
{
	struct bed bed = { .opts = { .age_ms = 1000000, .verify = true } };
	struct delta_state *delta;
	struct tux3_node *log, *other;

	bed_make(&bed, BYTES, BLOCK);
	log = bed_file(&bed, "log");
	other = bed_file(&bed, "other");
	assert_ok(tux3_sync(bed.volume));
	fill(log, 0, 8 * BLOCK, 1);
	assert_ok(tux3_sync(bed.volume));
	delta = &tux3_core(bed.volume)->delta;
	fill(other, 0, 60 * BLOCK, 1);
	fill(log, 0, BLOCK, 2);
	/* What is dirty of others is not worth it, and then it is. */
	assert_false(synced_ahead(&bed, log));
	delta->bytes_batch = 1 << 20;		/* as with a fast device */
	fill(other, 0, 96 * BLOCK, 1);
	fill(log, 0, BLOCK, 2);
	assert_true(delta_dirty_bytes(delta, delta->front & 1) < 96 * BLOCK);
	assert_true(synced_ahead(&bed, log));
	tux3_node_put(log, 1);
	tux3_node_put(other, 1);
	bed_free(&bed);
}

/* Who syncs alone, with next to nothing else to commit, goes ahead, again and again: a thread makes the commit later. */
static void test_alone(void **state)
{
	struct bed bed = { .opts = { .age_ms = 1000000, .verify = true } };
	struct tux3_node *log, *other, *new;
	struct intent *intent;
	u64 committed;
	u32 i;

	bed_make(&bed, BYTES, BLOCK);
	intent = &tux3_core(bed.volume)->intent;
	log = bed_file(&bed, "log");
	other = bed_file(&bed, "other");
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < 20; i++) {
		fill(log, i % 8 * BLOCK, BLOCK, 2);
		assert_true(synced_ahead(&bed, log));
		assert_ok(tux3_setattr(other, NULL, &(struct tux3_stat){ .mode = 0600 + i % 8 }, TUX3_SET_MODE));
	}
	new = bed_file(&bed, "new");
	fill(new, 0, 2 * BLOCK, 4);
	assert_true(synced_ahead(&bed, new));
	/* Somebody else is in fsync: they share a commit. */
	atomic_inc(&intent->syncing);
	fill(log, 0, BLOCK, 3);
	assert_false(synced_ahead(&bed, log));
	atomic_dec(&intent->syncing);
	fill(log, 0, BLOCK, 4);
	assert_true(synced_ahead(&bed, log));
	/* What others have changed goes to the disk before, if it is little ... */
	fill(other, 0, 2 * BLOCK, 5);
	fill(log, 0, BLOCK, 5);
	committed = tux3_core(bed.volume)->delta.committed;
	assert_false(synced_ahead(&bed, log));
	assert_true(tux3_core(bed.volume)->delta.committed > committed);
	/* ... and then there is nothing else again. */
	fill(log, BLOCK, BLOCK, 6);
	assert_true(synced_ahead(&bed, log));
	fill(log, 0, 9 * BLOCK, 7);		/* too much to be written twice */
	assert_false(synced_ahead(&bed, log));
	fill(log, 0, BLOCK, 8);
	assert_true(synced_ahead(&bed, log));
	tux3_node_put(log, 1);
	tux3_node_put(other, 1);
	tux3_node_put(new, 1);
	bed_crash(&bed);
	log = bed_find(&bed, "log");
	assert_filled(log, 0, BLOCK, 8);
	assert_filled(log, BLOCK, 8 * BLOCK, 7);
	tux3_node_put(log, 1);
	bed_free(&bed);
}

/* ---- who writes ---- */

#define WAITERS 4u

static struct {
	const struct tux3_device_ops *inner;
	struct tux3_device_ops ops;
	sem_t begun, may_go;
} gate;

static void gate_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	sem_post(&gate.begun);
	sem_wait(&gate.may_go);
	gate.inner->write(dev, addr, vec, vecs, flags, wait);
}

static void *fsync_node(void *node)
{
	assert_ok(tux3_fsync(node, false));
	return NULL;
}

static void gate_begin(struct bed *bed)
{
	gate.inner = bed->dev->ops;
	gate.ops = *gate.inner;
	gate.ops.write = gate_write;
	sem_init(&gate.begun, 0, 0);
	sem_init(&gate.may_go, 0, 0);
	bed->dev->ops = &gate.ops;
}

static u32 queue_length(struct intent *intent)
{
	struct list_head *at;
	u32 length = 0;

	spin_lock(&intent->lock);
	list_for_each(at, &intent->queue)
		length++;
	spin_unlock(&intent->lock);
	return length;
}

static void begin_fsync(pthread_t *thread, struct tux3_node *node, struct intent *intent, u32 queued)
{
	assert_int_equal(pthread_create(thread, NULL, fsync_node, node), 0);
	while (queue_length(intent) < queued)
		usleep(1000);
}

/* Who comes while a batch is written is in the next one, which one of them writes; whose is written waits for no more of them. */
static void test_batch_after_batch(void **state)
{
	struct tux3_node *node[WAITERS];
	pthread_t thread[WAITERS];
	struct bed bed = {};
	struct intent *intent;
	char name[20];
	u32 i;

	make(&bed, BLOCK);
	intent = &tux3_core(bed.volume)->intent;
	for (i = 0; i < WAITERS; i++) {
		snprintf(name, sizeof(name), "file%u", i);
		node[i] = bed_file(&bed, name);
		fill(node[i], 0, 5000, 10 + i);
	}
	gate_begin(&bed);
	begin_fsync(&thread[0], node[0], intent, 0);
	sem_wait(&gate.begun);
	begin_fsync(&thread[1], node[1], intent, 1);
	begin_fsync(&thread[2], node[2], intent, 2);
	sem_post(&gate.may_go);
	sem_wait(&gate.begun);			/* the second batch is being written */
	pthread_join(thread[0], NULL);
	assert_int_equal(queue_length(intent), 0);
	begin_fsync(&thread[3], node[3], intent, 1);
	sem_post(&gate.may_go);
	sem_wait(&gate.begun);			/* and the third */
	pthread_join(thread[1], NULL);
	pthread_join(thread[2], NULL);
	sem_post(&gate.may_go);
	pthread_join(thread[3], NULL);
	assert_false(intent->writing);
	bed.dev->ops = gate.inner;
	for (i = 0; i < WAITERS; i++)
		tux3_node_put(node[i], 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, WAITERS);
	bed_free(&bed);
}

/* A large file that comes behind small ones is not written with them: they need not wait for it. */
static void test_small_ones_do_not_wait_for_a_large_one(void **state)
{
	struct tux3_node *node[3];
	pthread_t thread[3];
	struct bed bed = {};
	struct intent *intent;
	char name[20];
	u32 i;

	make_sized(&bed, 256u << 20, BLOCK);
	intent = &tux3_core(bed.volume)->intent;
	for (i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "file%u", i);
		node[i] = bed_file(&bed, name);
		fill(node[i], 0, i == 2 ? 1 << 20 : 5000, 10 + i);
	}
	gate_begin(&bed);
	begin_fsync(&thread[0], node[0], intent, 0);
	sem_wait(&gate.begun);
	begin_fsync(&thread[1], node[1], intent, 1);
	begin_fsync(&thread[2], node[2], intent, 2);
	sem_post(&gate.may_go);
	sem_wait(&gate.begun);
	pthread_join(thread[0], NULL);
	assert_int_equal(queue_length(intent), 1);
	sem_post(&gate.may_go);
	pthread_join(thread[1], NULL);		/* while the large one is held */
	sem_post(&gate.may_go);			/* its headers, and its data */
	sem_post(&gate.may_go);
	pthread_join(thread[2], NULL);
	bed.dev->ops = gate.inner;
	for (i = 0; i < 3; i++)
		tux3_node_put(node[i], 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 3);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_file_goes_ahead_of_its_delta),
		cmocka_unit_test(test_a_commit_supersedes_what_went_ahead),
		cmocka_unit_test(test_the_ring_goes_round),
		cmocka_unit_test(test_hundreds_in_one_delta),
		cmocka_unit_test(test_what_was_removed_goes_ahead),
		cmocka_unit_test(test_a_commit_ends_during_the_look),
		cmocka_unit_test(test_blocks_are_settled_before_they_are_copied),
		cmocka_unit_test(test_a_commit_ends_after_the_count),
		cmocka_unit_test(test_only_what_has_changed_since),
		cmocka_unit_test(test_small_files_are_told_whole),
		cmocka_unit_test(test_xattrs_go_ahead),
		cmocka_unit_test(test_what_goes_the_long_way),
		cmocka_unit_test(test_what_is_preallocated_and_written),
		cmocka_unit_test(test_small_files),
		cmocka_unit_test(test_blocks_of_64_kib),
		cmocka_unit_test(test_a_full_volume_takes_the_area),
		cmocka_unit_test(test_recovery_while_read_only),
		cmocka_unit_test(test_the_base_is_damaged),
		cmocka_unit_test(test_emptied_before_the_commit_stores_it_inline),
		cmocka_unit_test(test_many_beside_one_commit),
		cmocka_unit_test(test_a_file_that_is_being_written),
		cmocka_unit_test(test_a_long_write_is_not_waited_for),
		cmocka_unit_test(test_a_directory_whose_new_files_went_ahead),
		cmocka_unit_test(test_a_directory_that_changed_otherwise),
		cmocka_unit_test(test_a_directory_that_was_read),
		cmocka_unit_test(test_what_cpus_count_by_themselves),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_a_log_and_its_checkpoints_are_written_once),
		cmocka_unit_test(test_what_is_written_twice_is_bounded),
		cmocka_unit_test(test_a_long_commit_is_not_waited_for),
		cmocka_unit_test(test_the_ring_asks_for_a_commit),
		cmocka_unit_test(test_batch_after_batch),
		cmocka_unit_test(test_small_ones_do_not_wait_for_a_large_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
