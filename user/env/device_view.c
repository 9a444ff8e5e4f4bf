/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading beside a writer: see device_view.h.
 *
 * Locking: nothing changes after it was made.
 */
#include "device_view.h"

struct device_view {
	struct tux3_device dev;
	struct tux3_device *below;
};

static void view_read_many(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	struct tux3_device *below = container_of(dev, struct device_view, dev)->below;
	u32 i;

	if (below->block_size == dev->block_size) {
		device_read_media(below, reads, count);
		return;
	}
	for (i = 0; i < count; i++)
		reads[i].err = -EINVAL;
}

static int view_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct device_io read = { .addr = addr, .count = count, .data = data };

	view_read_many(dev, &read, 1);
	return read.err;
}

static void view_close(struct tux3_device *dev)
{
	kfree(container_of(dev, struct device_view, dev));
}

static const struct tux3_device_ops view_ops = {
	.read = view_read,
	.read_many = view_read_many,
	.close = view_close,
};

struct tux3_device *device_view_create(struct tux3_device *below)
{
	struct device_view *view = kzalloc(sizeof(*view), GFP_KERNEL);

	if (!view)
		return NULL;
	view->below = below;
	view->dev.ops = &view_ops;
	view->dev.size_bytes = below->size_bytes;
	view->dev.block_size = below->block_size;
	view->dev.read_only = true;
	view->dev.name = below->name;
	return &view->dev;
}
