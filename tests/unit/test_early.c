// SPDX-License-Identifier: GPL-2.0-or-later
/* Data of a large file that an fsync has written ahead of its delta stays where it is when that is committed. */
#include <linux/falloc.h>
#include "support_intent.h"
#include "core/blocks/balloc.h"
#include "user/lib/lib.h"

#define LARGE_VOLUME	(256u << 20)
#define MIB		(1u << 20)
#define NEAR		(64u << 10)
#define LIMIT		(600u << 10)	/* of the file that changes at random */

static void make_large(struct bed *bed)
{
	bed->opts.intent_near_bytes = NEAR;
	make_sized(bed, LARGE_VOLUME, BLOCK);
	assert_true(tux3_core(bed->volume)->intent.far.blocks);
}

/* A commit that leaves so many blocks where they are, and writes so many. */
static void commit_keeps(struct bed *bed, u32 kept, u32 written)
{
	u64 early = counted(bed, TUX3_COUNT_EARLY_BLOCKS), data = counted(bed, TUX3_COUNT_DATA_BLOCKS);

	assert_ok(tux3_sync(bed->volume));
	assert_int_equal(counted(bed, TUX3_COUNT_EARLY_BLOCKS) - early, kept);
	assert_int_equal(counted(bed, TUX3_COUNT_DATA_BLOCKS) - data, written);
}

/* As the device has it. */
static void assert_stored(struct bed *bed, u64 offset, u32 bytes, u8 value)
{
	struct tux3_node *node = bed_find(bed, "file");

	assert_non_null(node);
	assert_filled(node, offset, bytes, value);
	tux3_node_put(node, 1);
}

static void test_it_stays(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};

	make_large(&bed);
	fill(node = bed_file(&bed, "file"), 0, MIB, 1);
	assert_true(synced_ahead(&bed, node));
	commit_keeps(&bed, MIB / BLOCK, 0);
	/* Over what there is, and behind its end. */
	fill(node, MIB / 2, MIB, 2);
	assert_true(synced_ahead(&bed, node));
	fill(node, 3 * MIB / 2, 4 * MIB, 3);
	assert_true(synced_ahead(&bed, node));
	commit_keeps(&bed, 5 * MIB / BLOCK, 0);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 0);
	assert_stored(&bed, 0, MIB / 2, 1);
	assert_stored(&bed, MIB / 2, MIB, 2);
	assert_stored(&bed, 3 * MIB / 2, 4 * MIB, 3);
	bed_free(&bed);
}

/* Only what has changed is written again, with what is too little to stay beside it. */
static void test_what_has_changed_is_written(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};

	make_large(&bed);
	fill(node = bed_file(&bed, "file"), 0, MIB, 1);
	assert_true(synced_ahead(&bed, node));
	fill(node, MIB - 10, 20, 2);
	commit_keeps(&bed, MIB / BLOCK - 1, 2);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_stored(&bed, 0, MIB - 10, 1);
	assert_stored(&bed, MIB - 10, 20, 2);
	bed_free(&bed);
}

/* Blocks that were captured and changed, and captured again. */
static void test_what_was_synced_twice(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};

	make_large(&bed);
	fill(node = bed_file(&bed, "file"), 0, MIB, 1);
	assert_true(synced_ahead(&bed, node));
	fill(node, MIB / 4, MIB / 2, 2);
	assert_true(synced_ahead(&bed, node));
	/* A quarter at the begin, and what is new; the quarter at the end is as near to it. */
	commit_keeps(&bed, 3 * MIB / 4 / BLOCK, MIB / 4 / BLOCK);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_stored(&bed, 0, MIB / 4, 1);
	assert_stored(&bed, MIB / 4, MIB / 2, 2);
	assert_stored(&bed, 3 * MIB / 4, MIB / 4, 1);
	bed_free(&bed);
}

static struct {
	const struct tux3_host_ops *inner;
	struct tux3_host_ops host;
	bool mapped;
} program;

/* Just after the fsync has asked a program maps the file, and stores into it. */
static bool maps_it(struct tux3_inode *inode)
{
	bool mapped = program.mapped;

	program.mapped = true;
	if (!mapped)
		inode_note_all(inode);
	return mapped;
}

/* From then on it stores without a word: nothing may count on what was captured. */
static void test_it_is_mapped_at_that_moment(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};

	make_large(&bed);
	program.inner = bed.volume->vol->host;
	program.host = *program.inner;
	program.host.data_mapped = maps_it;
	bed.volume->vol->host = &program.host;
	fill(node = bed_file(&bed, "file"), 0, MIB, 1);
	assert_true(synced_ahead(&bed, node));
	assert_true(program.mapped);
	commit_keeps(&bed, 0, MIB / BLOCK);
	bed.volume->vol->host = program.inner;
	fill(node, 0, MIB, 2);
	assert_true(synced_ahead(&bed, node));
	commit_keeps(&bed, MIB / BLOCK, 0);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Blocks that are in use by nothing, nor kept for the log, or for what is synced. */
static u64 can_be_taken(struct bed *bed)
{
	return atomic64_read(&tux3_core(bed->volume)->balloc.free_blocks);
}

/* What a delta has synced and not kept is free when it is durable. */
static void test_the_rest_is_free_again(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u64 before = 0;
	u32 i;

	make_large(&bed);
	fill(node = bed_file(&bed, "file"), 0, MIB, 0);
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < 100; i++) {
		if (i == 20)
			before = can_be_taken(&bed);
		fill(node, 0, MIB, i);
		assert_true(synced_ahead(&bed, node));
		fill(node, i * 3000, 200 << 10, i + 1);
		if (i % 3)
			assert_true(synced_ahead(&bed, node));
		assert_ok(tux3_sync(bed.volume));
	}
	tux3_node_put(node, 1);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "file"));
	assert_ok(tux3_sync(bed.volume));
	/* There may be another far area, of which more was used, or less. */
	assert_true(can_be_taken(&bed) + LARGE_VOLUME / 16 / BLOCK >= before);
	bed_crash(&bed);
	bed_free(&bed);
}

/* ---- a write that fails ---- */

static struct {
	const struct tux3_device_ops *inner;
	struct tux3_device_ops ops;
	u64 from, end;		/* the next write there fails */
	u32 failed;
} writes;

static void write_fails_once(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
			     struct io_wait *wait)
{
	if (addr < writes.from || addr >= writes.end || writes.failed) {
		writes.inner->write(dev, addr, vec, vecs, flags, wait);
		return;
	}
	writes.failed++;
	io_wait_begin(wait);
	io_wait_end(wait, -EIO);
}

/* What could not be written ahead the commit writes, and its place there is free again. */
static void test_data_that_could_not_be_written(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	struct intent_far *far;
	u64 free;

	make_large(&bed);
	far = &tux3_core(bed.volume)->intent.far;
	fill(node = bed_file(&bed, "file"), 0, MIB, 1);
	assert_ok(tux3_sync(bed.volume));
	free = can_be_taken(&bed);
	writes.inner = bed.dev->ops;
	writes.ops = *writes.inner;
	writes.ops.write = write_fails_once;
	writes.from = far->addr;
	writes.end = far->addr + far->blocks;
	bed.dev->ops = &writes.ops;
	fill(node, 0, MIB, 2);
	assert_false(synced_ahead(&bed, node));
	bed.dev->ops = writes.inner;
	assert_int_equal(writes.failed, 1);
	assert_int_equal(counted(&bed, TUX3_COUNT_EARLY_BLOCKS), 0);
	assert_int_equal(far->parts, 0);
	/* So much less is kept for others; but there is a log. */
	assert_in_range(can_be_taken(&bed), free + MIB / BLOCK - 10, free + MIB / BLOCK);
	/* And the next one goes ahead again. */
	fill(node, 0, MIB, 3);
	assert_true(synced_ahead(&bed, node));
	commit_keeps(&bed, MIB / BLOCK, 0);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_stored(&bed, 0, MIB, 3);
	bed_free(&bed);
}

/* ---- a mount ---- */

static struct {
	const struct tux3_device_ops *inner;
	struct tux3_device_ops ops;
	u64 addr;
	u32 count;
	u32 seen;		/* reads of these blocks */
} reads;

static int read_counted(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	reads.seen += addr < reads.addr + reads.count && addr + count > reads.addr;
	return reads.inner->read(dev, addr, count, data);
}

/* So much is synced, ahead, and then committed without one block of data being written again. */
static void make_kept(struct bed *bed, u32 bytes)
{
	struct tux3_node *node;

	make_large(bed);
	fill(node = bed_file(bed, "file"), 0, bytes, 1);
	assert_true(synced_ahead(bed, node));
	commit_keeps(bed, bytes / BLOCK, 0);
	tux3_node_put(node, 1);
}

/* Where the first block of the file is. */
static u64 first_block(struct bed *bed)
{
	struct data_extent extent;
	struct tux3_node *node = bed_find(bed, "file");

	assert_non_null(node);
	assert_ok(data_map(&node->inode, 0, 1, &extent, NULL, 0));
	assert_int_equal(extent.kind, DATA_MAPPED);
	tux3_node_put(node, 1);
	return extent.addr;
}

/* Whether the last commit is there can be said without a look at data that was durable before it. */
static void test_a_mount_does_not_read_it(void **state)
{
	struct bed bed = {};

	make_kept(&bed, MIB);
	reads.inner = bed.dev->ops;
	reads.ops = *reads.inner;
	reads.ops.read = read_counted;
	reads.ops.read_many = NULL;
	reads.addr = first_block(&bed);
	reads.count = MIB / BLOCK;
	bed.dev->ops = &reads.ops;
	bed_crash(&bed);
	assert_int_equal(reads.seen, 0);
	assert_stored(&bed, 0, MIB, 1);
	assert_int_not_equal(reads.seen, 0);
	bed.dev->ops = reads.inner;
	bed_free(&bed);
}

/* A block of it that is rotten by then is one that cannot be read, and no reason to take the commit for one that is not there. */
static void test_one_that_is_rotten_is_all_that_is_lost(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	u8 *block;

	make_kept(&bed, MIB);
	block = (u8 *)device_memory_bytes(bed.dev) + first_block(&bed) * BLOCK;
	*block ^= 1;
	bed_crash(&bed);
	assert_stored(&bed, BLOCK, MIB - BLOCK, 1);
	node = bed_find(&bed, "file");
	assert_int_equal(tux3_read(node, &(u8){ 0 }, 1, 0), -EIO);
	tux3_node_put(node, 1);
	*block ^= 1;
	bed_free(&bed);
}

/* ---- at random ---- */

struct model {
	u8 now[LIMIT], durable[LIMIT];
	u64 size, durable_size;
};

static void model_write(struct model *model, struct tux3_node *node, u64 *random)
{
	u32 from = bed_random(random) % LIMIT, bytes = bed_random(random) % (bed_random(random) % 2 ? 6 * BLOCK : LIMIT);
	u8 value = bed_random(random);

	bytes = min(bytes + 1, LIMIT - from);
	memset(model->now + from, value, bytes);
	model->size = max_t(u64, model->size, from + bytes);
	fill(node, from, bytes, value);
}

static void model_truncate(struct model *model, struct tux3_node *node, u64 *random)
{
	u64 size = bed_random(random) % LIMIT;

	if (size < model->size)
		memset(model->now + size, 0, model->size - size);
	model->size = size;
	assert_ok(tux3_truncate(node, size));
}

static void model_punch(struct model *model, struct tux3_node *node, u64 *random)
{
	u32 from = bed_random(random) % LIMIT, bytes = 1 + bed_random(random) % (LIMIT - from);

	memset(model->now + from, 0, bytes);
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, bytes));
}

static void model_note_durable(struct model *model)
{
	memcpy(model->durable, model->now, LIMIT);
	model->durable_size = model->size;
}

static void model_change(struct model *model, struct bed *bed, struct tux3_node *node, u64 *random)
{
	switch (bed_random(random) % 14) {
	case 0:
		model_truncate(model, node, random);
		break;
	case 1:
		model_punch(model, node, random);
		break;
	case 2:
		assert_ok(tux3_sync(bed->volume));
		model_note_durable(model);
		break;
	case 3:
	case 4:
	case 5:
		assert_ok(tux3_fsync(node, false));
		model_note_durable(model);
		break;
	default:
		model_write(model, node, random);
	}
}

static void model_crash(struct model *model, struct bed *bed)
{
	struct tux3_node *node;
	u8 *data = malloc(LIMIT);

	bed_crash(bed);
	node = bed_find(bed, "file");
	assert_non_null(node);
	assert_int_equal(size_of(node), model->durable_size);
	assert_int_equal(tux3_read(node, data, LIMIT, 0), model->durable_size);
	assert_memory_equal(data, model->durable, model->durable_size);
	memcpy(model->now, model->durable, LIMIT);
	model->size = model->durable_size;
	tux3_node_put(node, 1);
	free(data);
}

/* The first commit of a mount does. */
static void make_areas(struct bed *bed, u8 value)
{
	struct tux3_node *node = bed_file(bed, "areas");

	fill(node, 0, 1, value);
	assert_ok(tux3_sync(bed->volume));
	tux3_node_put(node, 1);
}

static void test_a_file_that_changes(void **state)
{
	struct model *model = calloc(1, sizeof(*model));
	struct bed bed = {};
	u64 random = 11, kept = 0;
	struct tux3_node *node;
	u32 crash, i;

	make_large(&bed);
	node = bed_file(&bed, "file");
	assert_ok(tux3_sync(bed.volume));
	for (crash = 0; crash < 300; crash++) {
		u32 steps = 1 + bed_random(&random) % 20;

		for (i = 0; i < steps; i++)
			model_change(model, &bed, node, &random);
		kept += counted(&bed, TUX3_COUNT_EARLY_BLOCKS);
		tux3_node_put(node, 1);
		model_crash(model, &bed);
		node = bed_file(&bed, "file");
		make_areas(&bed, crash);
	}
	assert_true(kept > 1000);
	tux3_node_put(node, 1);
	bed_free(&bed);
	free(model);
}

/* value 0: none. */
static void assert_promised(struct tux3_node *node, u64 block, u8 value)
{
	u8 data[BLOCK], wanted[BLOCK];
	int got = intent_promised(&node->inode, block, 0, 0, data);

	assert_int_equal(got, value != 0);
	memset(wanted, value, BLOCK);
	if (value)
		assert_memory_equal(data, wanted, BLOCK);
}

/* What an fsync has said of a block can be found while its delta is not committed, whatever has become of the block in memory. */
static void test_what_was_promised_is_found(void **state)
{
	struct tux3_node *node, *small;
	struct bed bed = {};
	u8 data[BLOCK];
	u64 now;
	u32 i;

	make_large(&bed);
	small = bed_file(&bed, "small");
	fill(node = bed_file(&bed, "file"), 0, MIB, 1);
	assert_promised(node, 0, 0);
	assert_true(synced_ahead(&bed, node));
	for (i = 0; i < 20; i++) {
		fill(small, 0, 3 * BLOCK, 100 + i);
		assert_true(synced_ahead(&bed, small));
	}
	assert_promised(node, 0, 1);
	assert_promised(node, 255, 1);
	assert_promised(node, 256, 0);
	assert_promised(small, 2, 119);
	now = intent_now(node->inode.vol);
	assert_int_equal(intent_promised(&node->inode, 0, node->inode.vol->delta.front, 0, data), 1);
	assert_int_equal(intent_promised(&node->inode, 0, node->inode.vol->delta.front + 1, 0, data), 0);
	assert_int_equal(intent_promised(&small->inode, 2, 0, now - 1, data), 1);	/* of the newest batch */
	assert_int_equal(intent_promised(&small->inode, 2, 0, now, data), 0);
	/* It has changed, and is gone, but only in memory. */
	fill(node, 10 * BLOCK, 20 * BLOCK, 2);
	fill(small, 0, BLOCK, 2);
	assert_ok(tux3_truncate(small, BLOCK));
	assert_promised(node, 15, 1);
	assert_promised(small, 0, 119);
	assert_promised(small, 1, 119);
	/* The next one says only that. */
	assert_true(synced_ahead(&bed, node));
	assert_promised(node, 15, 2);
	assert_promised(node, 30, 1);
	assert_ok(tux3_truncate(small, 0));
	fill(small, 0, BLOCK, 3);
	assert_true(synced_ahead(&bed, small));
	assert_promised(small, 0, 3);
	assert_promised(small, 1, 0);
	assert_ok(tux3_truncate(node, 0));
	fill(node, BLOCK, BLOCK, 4);
	assert_true(synced_ahead(&bed, node));
	assert_promised(node, 0, 0);
	assert_promised(node, 1, 4);
	assert_promised(node, 15, 0);
	/* A commit has it: the tree has it. */
	assert_ok(tux3_sync(bed.volume));
	assert_promised(node, 1, 0);
	assert_promised(small, 0, 0);
	tux3_node_put(small, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_stays),
		cmocka_unit_test(test_what_has_changed_is_written),
		cmocka_unit_test(test_what_was_synced_twice),
		cmocka_unit_test(test_it_is_mapped_at_that_moment),
		cmocka_unit_test(test_the_rest_is_free_again),
		cmocka_unit_test(test_data_that_could_not_be_written),
		cmocka_unit_test(test_a_mount_does_not_read_it),
		cmocka_unit_test(test_one_that_is_rotten_is_all_that_is_lost),
		cmocka_unit_test(test_a_file_that_changes),
		cmocka_unit_test(test_what_was_promised_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
