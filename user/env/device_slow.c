/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A modelled slow disk: see device_slow.h.
 *
 * Locking: atomics only; the clock adds up what all threads spent.
 */
#include "device_slow.h"

struct device_slow {
	struct tux3_device dev;
	struct tux3_device *below;
	u64 latency_ns;
	u32 depth;
	atomic64_t clock_ns;
	atomic64_t bad_addr;
	atomic_t max_batch;
};

static struct device_slow *device_slow(struct tux3_device *dev)
{
	return container_of(dev, struct device_slow, dev);
}

static struct tux3_device *slow_below(struct tux3_device *dev)
{
	struct tux3_device *below = device_slow(dev)->below;

	if (below->block_size != dev->block_size)
		below->block_size = dev->block_size;
	return below;
}

static int slow_read_one(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	u64 bad = atomic64_read(&device_slow(dev)->bad_addr);

	if (bad >= addr && bad - addr < count)
		return -EIO;
	return device_read(slow_below(dev), addr, count, data);
}

static void slow_pass(struct device_slow *slow, u32 reads)
{
	atomic64_add(slow->latency_ns * DIV_ROUND_UP(reads, slow->depth), &slow->clock_ns);
	if ((u32)atomic_read(&slow->max_batch) < reads)
		atomic_set(&slow->max_batch, reads);
}

static int slow_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	slow_pass(device_slow(dev), 1);
	return slow_read_one(dev, addr, count, data);
}

static void slow_read_many(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	u32 i;

	slow_pass(device_slow(dev), count);
	for (i = 0; i < count; i++)
		reads[i].err = slow_read_one(dev, reads[i].addr, reads[i].count, reads[i].data);
}

static void slow_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
		       unsigned int flags, struct io_wait *wait)
{
	device_writev(slow_below(dev), addr, vec, vecs, flags, wait);
}

static int slow_flush(struct tux3_device *dev)
{
	return device_flush(slow_below(dev));
}

static int slow_discard(struct tux3_device *dev, u64 addr, u64 count)
{
	return device_discard(slow_below(dev), addr, count);
}

static void slow_kick(struct tux3_device *dev)
{
	device_kick(slow_below(dev));
}

static void slow_close(struct tux3_device *dev)
{
	struct tux3_device *below = device_slow(dev)->below;

	below->ops->close(below);
	kfree(device_slow(dev));
}

static const struct tux3_device_ops slow_ops = {
	.read = slow_read,
	.read_many = slow_read_many,
	.write = slow_write,
	.flush = slow_flush,
	.discard = slow_discard,
	.kick = slow_kick,
	.close = slow_close,
};

struct tux3_device *device_slow_create(struct tux3_device *below, u64 latency_ns, u32 depth)
{
	struct device_slow *slow = kzalloc(sizeof(*slow), GFP_KERNEL);

	if (!slow)
		return NULL;
	slow->dev.ops = &slow_ops;
	slow->dev.size_bytes = below->size_bytes;
	slow->dev.block_size = below->block_size;
	slow->dev.read_only = below->read_only;
	slow->dev.volatile_cache = below->volatile_cache;
	slow->dev.has_fua = below->has_fua;
	slow->dev.name = below->name;
	slow->below = below;
	slow->latency_ns = latency_ns;
	slow->depth = depth;
	atomic64_set(&slow->bad_addr, U64_MAX);
	return &slow->dev;
}

u64 device_slow_clock_ns(struct tux3_device *dev)
{
	return atomic64_read(&device_slow(dev)->clock_ns);
}

u32 device_slow_max_batch(struct tux3_device *dev)
{
	return atomic_read(&device_slow(dev)->max_batch);
}

void device_slow_fail(struct tux3_device *dev, u64 addr)
{
	atomic64_set(&device_slow(dev)->bad_addr, addr);
}
