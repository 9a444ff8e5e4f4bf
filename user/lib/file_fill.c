/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading blocks from the volume into the cache.
 *
 * The caller holds node->lock, shared or not, so no block changes its state but that the back end
 * makes dirty ones clean and the evictor removes clean ones.  An absent block is therefore clean, and
 * stays where the tree says it is until we are done.  Present blocks are never read again: the address
 * of one that is dirty may be freed and used anew at any time.  So first it is seen which are absent, then
 * where they are: one that is dirty during the lookup may be committed and evicted right after it.
 *
 * volume->fill_lock[], by file and stretch of FILL_BLOCKS, keeps two readers from reading the same.
 */
#include "lib.h"

#include <linux/hash.h>

#define FILL_BLOCKS	256u		/* read at most so many at once, and none beyond a multiple of it */
#define READAHEAD_BYTES	(1u << 20)

static struct mutex *fill_lock_of(struct tux3_node *node, u64 block)
{
	return &node->volume->fill_lock[hash_64((node->inode.ino << 20) + block / FILL_BLOCKS, 32) % FILL_LOCKS];
}

/* Cached blocks have zeros beyond the end of the file; on the disk a truncate may have left something. */
static void zero_tail(struct tux3_node *node, u64 block, void *data, u64 size)
{
	u64 start = block << node->volume->shift;
	u32 block_size = node->volume->block_size;

	if (size >= start + block_size)
		return;
	if (size <= start)
		memset(data, 0, block_size);
	else
		memset((char *)data + (size - start), 0, block_size - (size - start));
}

static int add_one(struct tux3_node *node, u64 block, void *data)
{
	return file_cache_add(node, block, &data, 1);
}

/*
 * What was inline a moment ago still is, unlike in the kernel (linux/read.c): any change that moves it makes block 0 dirty
 * or removes it (data_change.c), so that would not be absent, or be a hole, and nobody changes it while we have the node's lock.
 */
static int fill_inline(struct tux3_node *node, u64 size)
{
	struct tux3 *volume = node->volume;
	void *buffer;
	u32 got;
	int len;

	buffer = buffers_get_run(volume, 1, &got);
	if (!buffer)
		return -ENOMEM;
	len = data_read_inline(&node->inode, buffer, volume->block_size);
	if (len < 0) {
		buffers_put(volume, &buffer, 1);
		return len;
	}
	if (len < (int)volume->block_size)
		memset((char *)buffer + len, 0, volume->block_size - len);
	zero_tail(node, 0, buffer, size);
	return add_one(node, 0, buffer);
}

static int fill_zero(struct tux3_node *node, u64 block)
{
	void *buffer;
	u32 got;

	buffer = buffers_get_run(node->volume, 1, &got);
	if (!buffer)
		return -ENOMEM;
	memset(buffer, 0, node->volume->block_size);
	return add_one(node, block, buffer);
}

/* Read count blocks at addr, which follow each other in file and memory.  *good: how many are right. */
static int read_and_verify(struct tux3_node *node, const struct data_extent *extent, const __le32 *csum,
			   u32 count, void *run, u64 size, u32 *good)
{
	struct tux3 *volume = node->volume;
	int err = device_read(volume->dev, extent->addr, count, run);
	u32 i;

	*good = 0;
	for (i = 0; !err && i < count; i++) {
		char *data = (char *)run + (size_t)i * volume->block_size;

		if (extent->has_csum)
			err = data_verify(&node->inode, extent->block + i, extent->addr + i, data, csum[i]);
		if (err)
			break;
		zero_tail(node, extent->block + i, data, size);
		++*good;
	}
	return err;
}

/* Returns how many of these absent blocks were filled, at least 1, or -errno. */
static int fill_mapped(struct tux3_node *node, const struct data_extent *extent, const __le32 *csum,
		       u32 count, u64 size)
{
	struct tux3 *volume = node->volume;
	void *buffers[FILL_BLOCKS], *run;
	u32 i, good = 0;
	int err;

	run = buffers_get_run(volume, count, &count);
	if (!run)
		return -ENOMEM;
	err = read_and_verify(node, extent, csum, count, run, size, &good);
	if (err && !good && count > 1)	/* the one that was asked for may be readable */
		err = read_and_verify(node, extent, csum, 1, run, size, &good);
	for (i = 0; i < count; i++)
		buffers[i] = (char *)run + (size_t)i * volume->block_size;
	buffers_put(volume, buffers + good, count - good);
	if (!good)
		return err;
	err = file_cache_add(node, extent->block, buffers, good);
	return err ? err : (int)good;
}

static int fill_locked(struct tux3_node *node, u64 block, u64 want, u64 size, u64 *hole)
{
	struct data_extent extent;
	__le32 csum[FILL_BLOCKS];
	u64 at = block, end = block + want;
	int got, err;

	while (at < end) {
		u32 absent = file_cache_absent(node, at, end - at);

		if (!absent) {		/* somebody was faster */
			at++;
			continue;
		}
		err = data_map(&node->inode, at, absent, &extent, csum, FILL_BLOCKS);
		if (err)
			return at == block ? err : 0;
		switch (extent.kind) {
		case DATA_INLINE:
			return at == 0 ? fill_inline(node, size) : 0;
		case DATA_MAPPED:
			got = fill_mapped(node, &extent, csum, extent.count, size);
			if (got < 0)
				return at == block ? got : 0;
			at += got;
			break;
		default:
			if (at == block)
				*hole = extent.count;
			return 0;
		}
	}
	return 0;
}

int file_fill(struct tux3_node *node, u64 block, u64 want, u64 size, u64 *hole)
{
	struct mutex *lock = fill_lock_of(node, block);
	int err = 0;

	*hole = 0;
	want = min_t(u64, want, FILL_BLOCKS - block % FILL_BLOCKS);
	/* Not more than fits; and room is made before, so that what comes first is still there at the end. */
	want = min(want, max(READ_ONCE(node->volume->clean_limit) / 2, 1ULL));
	file_cache_trim(node->volume, want);
	mutex_lock(lock);
	if (!file_cache_present(node, block))
		err = fill_locked(node, block, want, size, hole);
	mutex_unlock(lock);
	return err;
}

int file_fill_block(struct tux3_node *node, u64 block, u64 size, bool zero, bool *hole)
{
	u64 holes;
	int err;

	*hole = false;
	if (file_cache_present(node, block))
		return 0;
	err = file_fill(node, block, 1, size, &holes);
	if (err || !holes)
		return err;
	*hole = true;
	return zero ? fill_zero(node, block) : 0;
}

/*
 * A read of count blocks missed at block.  Reading on where the last one ended doubles the window,
 * anything else closes it.  The hints are shared by all readers of the file; being wrong costs little.
 */
u64 file_readahead(struct tux3_node *node, u64 block, u64 count)
{
	struct file_cache *cache = &node->file;
	u32 most = READAHEAD_BYTES >> node->volume->shift;
	u32 window = READ_ONCE(cache->window);

	if (block == 0 || block == READ_ONCE(cache->next_read))
		window = min(most, max_t(u32, 2 * window, 4));
	else
		window = 0;
	count = max_t(u64, count, window);
	count = min_t(u64, count, FILL_BLOCKS - block % FILL_BLOCKS);
	WRITE_ONCE(cache->window, window);
	WRITE_ONCE(cache->next_read, block + count);
	return count;
}
