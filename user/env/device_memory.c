/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A device in memory: a private mapping that takes pages as they are written.  Writes complete before
 * they return.
 *
 * Locking: none.  Whoever reads and writes a block at once has a race, and a race detector says so.
 */
#include <sys/mman.h>
#include "device_memory.h"

struct device_memory {
	struct tux3_device dev;
	char *bytes;
};

static char *memory_at(struct tux3_device *dev, u64 addr)
{
	return container_of(dev, struct device_memory, dev)->bytes + addr * dev->block_size;
}

void *device_memory_bytes(struct tux3_device *dev)
{
	return memory_at(dev, 0);
}

static int memory_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	memcpy(data, memory_at(dev, addr), (size_t)count * dev->block_size);
	return 0;
}

static void memory_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
			 unsigned int flags, struct io_wait *wait)
{
	char *at = memory_at(dev, addr);
	u32 i;

	io_wait_begin(wait);
	for (i = 0; i < vecs; i++) {
		memcpy(at, vec[i].iov_base, vec[i].iov_len);
		at += vec[i].iov_len;
	}
	io_wait_end(wait, 0);
}

static int memory_flush(struct tux3_device *dev)
{
	return 0;
}

/* Reads as zeros afterwards where whole pages are covered, as it was before elsewhere. */
static int memory_discard(struct tux3_device *dev, u64 addr, u64 count)
{
	madvise(memory_at(dev, addr), count * dev->block_size, MADV_DONTNEED);
	return 0;
}

static void memory_close(struct tux3_device *dev)
{
	munmap(device_memory_bytes(dev), dev->size_bytes);
	kfree(container_of(dev, struct device_memory, dev));
}

static const struct tux3_device_ops memory_ops = {
	.read = memory_read,
	.write = memory_write,
	.flush = memory_flush,
	.discard = memory_discard,
	.close = memory_close,
};

struct tux3_device *device_memory_create(u64 size_bytes)
{
	struct device_memory *memory = kzalloc(sizeof(*memory), GFP_KERNEL);
	void *bytes;

	if (!memory)
		return NULL;
	bytes = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bytes == MAP_FAILED) {
		kfree(memory);
		return NULL;
	}
	memory->bytes = bytes;
	memory->dev = (struct tux3_device){
		.ops = &memory_ops,
		.size_bytes = size_bytes,
		.block_size = 4096,
		.volatile_cache = true,
		.name = "memory",
	};
	return &memory->dev;
}
