/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reads past the cache: the blocks that they were told of are not used again while they last, not even when a full volume needs
 * them; afterwards they are.
 */
#include "support_lib.h"
#include "user/lib/lib.h"
#include "core/data/data.h"
#include "core/blocks/block_reads.h"
#include "core/blocks/balloc.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define BYTES	(16u << 20)
#define BLOCK	4096u
#define BLOCKS	32u

static ssize_t try_to_write_all(struct tux3_node *node, u8 what)
{
	u8 data[BLOCKS * BLOCK];

	memset(data, what, sizeof(data));
	return tux3_write(node, data, sizeof(data), 0);
}

static void write_all(struct tux3_node *node, u8 what)
{
	assert_int_equal(try_to_write_all(node, what), BLOCKS * BLOCK);
}

/* Until so many blocks are free. */
static void fill(struct bed *bed, u32 left)
{
	struct tux3_node *node = bed_file(bed, "/large");
	struct tux3_statfs stat;
	u8 data[BLOCK] = { 7 };
	u64 size = 0;

	do {
		assert_int_equal(tux3_write(node, data, BLOCK, size), BLOCK);
		size += BLOCK;
		assert_ok(tux3_statfs(bed->volume, &stat));
	} while (stat.available_blocks > left);
	assert_ok(tux3_sync(bed->volume));
	tux3_node_put(node, 1);
}

/* Where block 0 of the file is, in the tree. */
static u64 where(struct tux3_node *node)
{
	struct data_extent extent;

	assert_ok(data_map(&node->inode, 0, 1, &extent, NULL, 0));
	assert_int_equal(extent.kind, DATA_MAPPED);
	return extent.addr;
}

static u8 on_disk(struct bed *bed, u64 addr)
{
	return ((u8 *)device_memory_bytes(bed->dev))[addr * BLOCK];
}

/* Another file is written again and again, by and by to all free blocks, also to this one?  Or there are no more. */
static bool is_used_again(struct bed *bed, u64 addr, u8 was)
{
	struct tux3_node *node = bed_file(bed, "/others");
	ssize_t done = BLOCKS * BLOCK;
	u32 round;

	for (round = 0; round < 100 && done == BLOCKS * BLOCK && on_disk(bed, addr) == was; round++) {
		done = try_to_write_all(node, 100 + round);
		assert_ok(tux3_sync(bed->volume));
	}
	tux3_node_put(node, 1);
	return on_disk(bed, addr) != was;
}

static void test_blocks_wait_for_reads(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	struct volume *vol;
	unsigned int slot;
	u64 addr;

	bed_make(&bed, BYTES, BLOCK);
	vol = tux3_core(bed.volume);
	node = bed_file(&bed, "/file");
	write_all(node, 1);
	fill(&bed, 250);
	slot = block_reads_begin(vol);
	addr = where(node);
	write_all(node, 2);
	assert_ok(tux3_sync(bed.volume));
	assert_int_not_equal(where(node), addr);
	assert_false(is_used_again(&bed, addr, 1));
	/* Who comes later has nothing to do with it. */
	block_reads_end(vol, slot);
	slot = block_reads_begin(vol);
	assert_true(is_used_again(&bed, addr, 1));
	block_reads_end(vol, slot);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* A read that does not end keeps what it reads, and nothing else that is freed meanwhile. */
static void test_reads_keep_their_blocks_only(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node, *other;
	struct block_read read[3];
	struct volume *vol;
	u32 round, i;
	u64 addr;

	bed_make(&bed, BYTES, BLOCK);
	vol = tux3_core(bed.volume);
	node = bed_file(&bed, "/file");
	other = bed_file(&bed, "/other");
	write_all(node, 1);
	fill(&bed, 250);
	addr = where(node);
	/* In no order, and some blocks twice. */
	for (i = 0; i < 3; i++) {
		unsigned int slot = block_reads_begin(vol);

		read[i].addr = addr + (u32[]){ 20, 3, 4 }[i];
		read[i].count = (u32[]){ 1, 4, 2 }[i];
		block_read_start(vol, slot, &read[i]);
	}
	for (round = 0; round < 100; round++) {
		write_all(round & 1 ? node : other, 2 + round);
		assert_ok(tux3_sync(bed.volume));
	}
	for (i = 0; i < BLOCKS; i++) {
		bool is_read = (i >= 3 && i < 7) || i == 20;

		assert_int_equal(on_disk(&bed, addr + i) == 1, is_read);
	}
	for (i = 0; i < 3; i++)
		block_read_over(vol, &read[i]);
	assert_true(is_used_again(&bed, addr + 3, 1));
	assert_true(is_used_again(&bed, addr + 20, 1));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_free(&bed);
}

struct ending {
	struct volume *vol;
	unsigned int slot;
	struct block_read read;		/* of nothing: it still looks */
};

static void *end_soon(void *arg)
{
	struct ending *ending = arg;

	usleep(300000);
	if (ending->read.count)
		block_read_over(ending->vol, &ending->read);
	else
		block_reads_end(ending->vol, ending->slot);
	return NULL;
}

/* Nobody is refused for want of blocks that a read keeps for a moment. */
static void full_volume_waits(bool looked_up)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node, *other;
	struct ending ending = {};
	pthread_t thread;
	u8 data[BLOCK] = { 7 };
	u64 size = 0, n;
	ssize_t done;

	bed_make(&bed, BYTES, BLOCK);
	other = bed_file(&bed, "/other");
	node = bed_file(&bed, "/large");
	while ((done = tux3_write(node, data, BLOCK, size)) == BLOCK)
		size += BLOCK;
	assert_int_equal(done, -ENOSPC);
	assert_ok(tux3_sync(bed.volume));
	ending.vol = tux3_core(bed.volume);
	ending.slot = block_reads_begin(ending.vol);
	if (looked_up) {
		ending.read.count = BYTES / BLOCK;	/* of all, so of whatever is freed */
		block_read_start(ending.vol, ending.slot, &ending.read);
	}
	assert_int_equal(pthread_create(&thread, NULL, end_soon, &ending), 0);
	assert_ok(tux3_truncate(node, size / 2));
	for (n = 0; n < size / 2 - 64 * BLOCK; n += BLOCK)
		assert_int_equal(tux3_write(other, data, BLOCK, n), BLOCK);
	pthread_join(thread, NULL);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_free(&bed);
}

static void test_full_volume_waits_for_lookups(void **state)
{
	full_volume_waits(false);
}

static void test_full_volume_waits_for_reads(void **state)
{
	full_volume_waits(true);
}

struct reader {
	struct bed *bed;
	struct tux3_node *node;
	bool *stop;
	u64 reads;
};

/* In the blocks that it is told of is what was in the file at some time, all of it the file's. */
static void *read_always(void *arg)
{
	struct reader *reader = arg;
	struct volume *vol = tux3_core(reader->bed->volume);
	struct data_extent extent;
	struct block_read read;
	unsigned int slot;
	bool started;
	u32 i;

	while (!READ_ONCE(*reader->stop)) {
		slot = block_reads_begin(vol);
		assert_ok(data_map(&reader->node->inode, reader->reads % BLOCKS, 1, &extent, NULL, 0));
		started = extent.kind == DATA_MAPPED && reader->reads % 3;
		read = (struct block_read){ .addr = extent.addr, .count = 1 };
		if (started)
			block_read_start(vol, slot, &read);
		for (i = 0; i < 20 && extent.kind == DATA_MAPPED; i++) {
			assert_int_equal(on_disk(reader->bed, extent.addr), 5);
			usleep(reader->reads % 4 * 700);
		}
		if (started)
			block_read_over(vol, &read);
		else
			block_reads_end(vol, slot);
		WRITE_ONCE(reader->reads, reader->reads + 1);
	}
	return NULL;
}

static void test_reads_beside_commits(void **state)
{
	struct bed bed = { .opts.age_ms = 1 };
	struct tux3_node *node, *other;
	struct reader reader[3];
	pthread_t threads[3];
	bool stop = false;
	u32 i;

	bed_make(&bed, BYTES / 4, BLOCK);
	node = bed_file(&bed, "/file");
	other = bed_file(&bed, "/other");
	write_all(node, 5);
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < 3; i++) {
		reader[i] = (struct reader){ .bed = &bed, .node = node, .stop = &stop };
		assert_int_equal(pthread_create(&threads[i], NULL, read_always, &reader[i]), 0);
	}
	for (i = 0; i < FEWER(2000u, 300u); i++) {
		write_all(i & 1 ? node : other, i & 1 ? 5 : 9);
		if (i % 20 == 0)
			assert_ok(tux3_sync(bed.volume));
	}
	for (i = 0; i < 3; i++)		/* each gets its turn */
		while (!READ_ONCE(reader[i].reads))
			usleep(1000);
	WRITE_ONCE(stop, true);
	for (i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
	}
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_wait_for_reads),
		cmocka_unit_test(test_reads_keep_their_blocks_only),
		cmocka_unit_test(test_full_volume_waits_for_lookups),
		cmocka_unit_test(test_full_volume_waits_for_reads),
		cmocka_unit_test(test_reads_beside_commits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
