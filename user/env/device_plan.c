/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A device whose writes are kept and applied later, all or none: see device_plan.h.
 *
 * Reads are those of the target, with zeros beyond its end: whoever plans does not read what he wrote.
 *
 * Locking: none.  One thread plans and applies.
 */
#include <stdlib.h>
#include "device_plan.h"

#define SECTOR 512u

/* A write of bytes at offset, or, if there are none, a flush. */
struct step {
	u64 offset;
	u32 bytes;
	void *new;		/* NULL: zeros */
	void *old;		/* once written: what was in its sectors */
};

struct device_plan {
	struct tux3_device dev;
	struct tux3_device *target;
	struct step *steps;
	u32 count;
};

static struct device_plan *device_plan(struct tux3_device *dev)
{
	return container_of(dev, struct device_plan, dev);
}

static int plan_add(struct device_plan *plan, const struct step *step)
{
	struct step *more = krealloc(plan->steps, (plan->count + 1) * sizeof(*more), GFP_KERNEL);

	if (!more)
		return -ENOMEM;
	more[plan->count++] = *step;
	plan->steps = more;
	return 0;
}

static int plan_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct tux3_device *target = device_plan(dev)->target;
	u64 blocks = target->size_bytes / dev->block_size, there = addr < blocks ? min_t(u64, count, blocks - addr) : 0;
	int err = 0;

	memset(data, 0, (size_t)count * dev->block_size);
	target->block_size = dev->block_size;
	if (there)
		err = device_read(target, addr, there, data);
	target->block_size = 4096;
	return err;
}

static void plan_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
		       unsigned int flags, struct io_wait *wait)
{
	struct step step = { .offset = addr * dev->block_size };
	char *at;
	u32 i;
	int err;

	for (i = 0; i < vecs; i++)
		step.bytes += vec[i].iov_len;
	at = step.new = kmalloc(step.bytes, GFP_KERNEL);
	for (i = 0; at && i < vecs; i++) {
		memcpy(at, vec[i].iov_base, vec[i].iov_len);
		at += vec[i].iov_len;
	}
	err = at ? plan_add(device_plan(dev), &step) : -ENOMEM;
	if (err)
		kfree(step.new);
	io_wait_begin(wait);
	io_wait_end(wait, err);
}

static int plan_flush(struct tux3_device *dev)
{
	return plan_add(device_plan(dev), &(struct step){ });
}

static void plan_close(struct tux3_device *dev)
{
	struct device_plan *plan = device_plan(dev);
	u32 i;

	for (i = 0; i < plan->count; i++) {
		kfree(plan->steps[i].new);
		kfree(plan->steps[i].old);
	}
	kfree(plan->steps);
	kfree(plan);
}

static const struct tux3_device_ops plan_ops = {
	.read = plan_read,
	.write = plan_write,
	.flush = plan_flush,
	.close = plan_close,
};

struct tux3_device *device_plan_create(struct tux3_device *target, u64 size_bytes)
{
	struct device_plan *plan = kzalloc(sizeof(*plan), GFP_KERNEL);

	if (!plan)
		return NULL;
	plan->target = target;
	plan->dev = (struct tux3_device){
		.ops = &plan_ops,
		.size_bytes = size_bytes,
		.block_size = 4096,
		.volatile_cache = true,
		.name = target->name,
	};
	return &plan->dev;
}

int device_plan_zero(struct tux3_device *dev, u64 offset, u32 bytes)
{
	return plan_add(device_plan(dev), &(struct step){ .offset = offset, .bytes = bytes });
}

static int write_sectors(struct tux3_device *target, u64 sector, u32 count, const void *data)
{
	struct io_wait wait;

	io_wait_init(&wait);
	device_write(target, sector, data, count, 0, &wait);
	device_kick(target);
	return io_wait_finish(&wait);
}

static u64 step_sector(const struct step *step, u32 *count)
{
	u64 first = step->offset / SECTOR;

	*count = DIV_ROUND_UP(step->offset + step->bytes, SECTOR) - first;
	return first;
}

/* In whole sectors; a part of one is read first. */
static int step_apply(struct device_plan *plan, struct step *step)
{
	u32 count, at = step->offset % SECTOR;
	u64 sector = step_sector(step, &count);
	char *data;
	int err;

	if (!step->bytes)
		return device_flush(plan->target);
	step->old = kmalloc(2 * count * SECTOR, GFP_KERNEL);
	if (!step->old)
		return -ENOMEM;
	data = (char *)step->old + count * SECTOR;
	err = device_read(plan->target, sector, count, step->old);
	if (err)
		return err;
	memcpy(data, step->old, count * SECTOR);
	if (step->new)
		memcpy(data + at, step->new, step->bytes);
	else
		memset(data + at, 0, step->bytes);
	return write_sectors(plan->target, sector, count, data);
}

int device_plan_apply(struct tux3_device *dev)
{
	struct device_plan *plan = device_plan(dev);
	u32 i, count;
	int err = 0;

	plan->target->block_size = SECTOR;
	for (i = 0; i < plan->count && !err; i++)
		err = step_apply(plan, &plan->steps[i]);
	while (err && i--) {	/* the last one may have been written in part */
		u64 sector = step_sector(&plan->steps[i], &count);

		if (plan->steps[i].old)
			write_sectors(plan->target, sector, count, plan->steps[i].old);
	}
	if (err)
		device_flush(plan->target);
	plan->target->block_size = 4096;
	return err;
}

static int compare_steps(const void *a, const void *b)
{
	const struct step *one = a, *two = b;

	return one->offset < two->offset ? -1 : one->offset > two->offset;
}

void device_plan_discard_rest(struct tux3_device *dev, u64 size_bytes)
{
	struct device_plan *plan = device_plan(dev);
	u32 i, unit = plan->target->block_size;
	u64 at = 0;

	qsort(plan->steps, plan->count, sizeof(plan->steps[0]), compare_steps);
	for (i = 0; i <= plan->count; i++) {
		u64 end = i < plan->count ? min(plan->steps[i].offset, size_bytes) : size_bytes;
		u64 first = DIV_ROUND_UP(at, unit), last = end / unit;

		if (first < last)
			device_discard(plan->target, first, last - first);
		if (i < plan->count)
			at = max(at, plan->steps[i].offset + plan->steps[i].bytes);
	}
}
