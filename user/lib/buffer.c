/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory for cached file data.
 *
 * Buffers of a volume block each, aligned to their size up to a page, are cut from regions of 2 MiB
 * which are aligned to their size, so that a buffer leads to its region.  The region's first block
 * is its header.  Runs of neighbouring buffers are handed out where there are any: they can be read
 * and written in one piece.
 *
 * A volume has several pools; a thread uses the one of its number, a buffer goes back to the one it came
 * from.  Each call takes a pool's lock once.
 */
#include "lib.h"

#include <stdlib.h>
#include <sys/mman.h>

#define REGION_BYTES	(2u << 20)
#define REGION_BITS	512		/* most blocks a region can have */
#define EMPTY_MAX	8		/* empty regions a pool keeps */

struct buffer_region {
	struct list_head link;		/* pool->lock: on partial or empty; off both when full */
	struct buffer_pool *pool;
	u32 free;			/* pool->lock */
	unsigned long used[REGION_BITS / BITS_PER_LONG];	/* pool->lock; bit 0 is the header */
};

static atomic_t thread_count;

static struct buffer_pool *this_pool(struct tux3 *volume)
{
	static _Thread_local int number = -1;

	if (number < 0)
		number = atomic_inc_return(&thread_count) & 0xffff;
	return &volume->pools[number % BUFFER_POOLS];
}

static struct buffer_region *region_of(const void *buffer)
{
	return (struct buffer_region *)((uintptr_t)buffer & ~(uintptr_t)(REGION_BYTES - 1));
}

void buffer_pool_init(struct buffer_pool *pool, u32 block_size)
{
	spin_lock_init(&pool->lock);
	INIT_LIST_HEAD(&pool->partial);
	INIT_LIST_HEAD(&pool->empty);
	pool->empty_count = 0;
	pool->block_size = block_size;
	pool->region_blocks = REGION_BYTES / block_size - 1;
}

static void free_regions(struct list_head *regions)
{
	struct buffer_region *region, *next;

	list_for_each_entry_safe(region, next, regions, link)
		free(region);
}

/* Buffers that are still out are lost: there are none. */
void buffer_pool_exit(struct buffer_pool *pool)
{
	WARN_ON_ONCE(!list_empty(&pool->partial));
	free_regions(&pool->empty);
}

/* Without the lock. */
static struct buffer_region *new_region(struct buffer_pool *pool)
{
	struct buffer_region *region = aligned_alloc(REGION_BYTES, REGION_BYTES);

	if (!region)
		return NULL;
	madvise(region, REGION_BYTES, MADV_HUGEPAGE);	/* a page fault for each block costs more than filling it */
	memset(region, 0, sizeof(*region));
	region->pool = pool;
	region->free = pool->region_blocks;
	__set_bit(0, region->used);
	return region;
}

/* A region with free blocks, made if need be: the lock may be dropped for that. */
static struct buffer_region *find_region(struct buffer_pool *pool, bool want_empty)
{
	struct buffer_region *region;

	if (!want_empty && !list_empty(&pool->partial))
		return list_first_entry(&pool->partial, struct buffer_region, link);
	if (!list_empty(&pool->empty)) {
		region = list_first_entry(&pool->empty, struct buffer_region, link);
		pool->empty_count--;
		list_move(&region->link, &pool->partial);
		return region;
	}
	spin_unlock(&pool->lock);
	region = new_region(pool);
	spin_lock(&pool->lock);
	if (region)
		list_add(&region->link, &pool->partial);
	return region;
}

/* Take up to count blocks that lie one after another; count is at least 1 and the region has a free one. */
static void *take_run(struct buffer_region *region, u32 count, u32 *got)
{
	struct buffer_pool *pool = region->pool;
	u32 bits = pool->region_blocks + 1;
	u32 start = find_next_zero_bit(region->used, bits, 0);
	u32 end = find_next_bit(region->used, min(bits, start + count), start);

	bitmap_set(region->used, start, end - start);
	region->free -= end - start;
	if (!region->free)
		list_del_init(&region->link);
	*got = end - start;
	return (char *)region + (size_t)start * pool->block_size;
}

int buffers_get(struct tux3 *volume, void **buffers, u32 count)
{
	struct buffer_pool *pool = this_pool(volume);
	u32 have = 0;

	if (!count)
		return 0;
	spin_lock(&pool->lock);
	while (have < count) {
		struct buffer_region *region = find_region(pool, false);
		u32 i, got;
		char *run;

		if (!region)
			break;
		run = take_run(region, count - have, &got);
		for (i = 0; i < got; i++)
			buffers[have++] = run + (size_t)i * pool->block_size;
	}
	spin_unlock(&pool->lock);
	if (have == count)
		return 0;
	buffers_put(volume, buffers, have);
	return -ENOMEM;
}

/* Long runs come from regions that have them: the first of the partial ones, else an empty one. */
void *buffers_get_run(struct tux3 *volume, u32 count, u32 *got)
{
	struct buffer_pool *pool = this_pool(volume);
	struct buffer_region *region;
	void *run = NULL;

	spin_lock(&pool->lock);
	region = find_region(pool, false);
	if (region && count >= 8) {
		u32 start = find_next_zero_bit(region->used, pool->region_blocks + 1, 0);
		u32 end = find_next_bit(region->used, pool->region_blocks + 1, start);

		if (end - start < min(count, pool->region_blocks) / 2)
			region = find_region(pool, true);
	}
	if (region)
		run = take_run(region, count, got);
	spin_unlock(&pool->lock);
	return run;
}

/* With the pool's lock.  Regions that are not worth keeping go to the list. */
static void put_one(struct buffer_pool *pool, struct buffer_region *region, void *buffer,
		    struct list_head *unused)
{
	u32 bit = ((char *)buffer - (char *)region) / pool->block_size;

	WARN_ON_ONCE(!test_bit(bit, region->used));
	__clear_bit(bit, region->used);
	if (!region->free++)
		list_add(&region->link, &pool->partial);
	if (region->free < pool->region_blocks)
		return;
	if (pool->empty_count < EMPTY_MAX) {
		list_move(&region->link, &pool->empty);
		pool->empty_count++;
	} else {
		list_move(&region->link, unused);
	}
}

void buffers_put(struct tux3 *volume, void *const *buffers, u32 count)
{
	struct buffer_pool *pool = NULL;
	LIST_HEAD(unused);
	u32 i;

	for (i = 0; i < count; i++) {
		struct buffer_region *region = region_of(buffers[i]);

		if (region->pool != pool) {
			if (pool)
				spin_unlock(&pool->lock);
			pool = region->pool;
			spin_lock(&pool->lock);
		}
		put_one(pool, region, buffers[i], &unused);
	}
	if (pool)
		spin_unlock(&pool->lock);
	free_regions(&unused);
}
