/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The front of the block device: counts what is asked of it, refuses what lies outside it, and
 * keeps the books of who waits for which writes.  core/device/device.h says what the calls mean.
 *
 * An io_wait may be on its owner's stack, so whoever ends a write must not touch it once
 * the owner may return.  pending counts the writes under way and one for the owner:
 *
 *	n > 1	n - 1 writes are under way
 *	1	none is: io_wait_done() is true, and the last io_wait_end() has let go of it
 *	0	the owner gave up his one in io_wait_finish() and all have ended: who brought it to 0 completes
 *		done (which says when it may go), unless it was the owner
 *
 * Locking: none; atomics only.  io_wait_end() may be called in interrupt context.
 */
#include "core/device/device.h"

#define FINISH_TURN_MS	5000u

void io_wait_init(struct io_wait *wait)
{
	atomic_set(&wait->pending, 1);
	atomic_set(&wait->error, 0);
	init_completion(&wait->done);
	wait->busy = NULL;
}

u64 io_busy_ns(const struct io_busy *busy)
{
	return busy->before_ns + (busy->ended_ns - busy->begun_ns);
}

void io_wait_begin(struct io_wait *wait)
{
	struct io_busy *busy = wait->busy;

	atomic_inc(&wait->pending);
	if (!busy || atomic_inc_return(&busy->flying) != 1)
		return;
	/* Nothing was in flight since ended_ns. */
	busy->before_ns = io_busy_ns(busy);
	busy->begun_ns = ktime_get_ns();
	WRITE_ONCE(busy->ended_ns, busy->begun_ns);
}

void io_wait_end(struct io_wait *wait, int err)
{
	if (err)
		atomic_cmpxchg(&wait->error, 0, err);
	if (wait->busy) {
		WRITE_ONCE(wait->busy->ended_ns, ktime_get_ns());
		(void)atomic_dec_and_test(&wait->busy->flying);	/* ordered: who begins the next one finds when this ended */
	}
	if (atomic_dec_and_test(&wait->pending))
		complete(&wait->done);
}

bool io_wait_done(struct io_wait *wait, int *err)
{
	if (atomic_read_acquire(&wait->pending) != 1)
		return false;
	*err = atomic_read(&wait->error);
	return true;
}

int io_wait_finish(struct io_wait *wait)
{
	/* A device may be so slow that this takes minutes: each turn of the loop shows the kernel that we are not stuck. */
	if (!atomic_dec_and_test(&wait->pending))
		while (!wait_for_completion_io_timeout(&wait->done, msecs_to_jiffies(FINISH_TURN_MS)))
			;
	return atomic_read(&wait->error);
}

static void io_window_begin(struct io_window *window, u32 half)
{
	io_wait_init(&window->half[half]);
	window->half[half].busy = &window->busy;
}

void io_window_init(struct io_window *window)
{
	window->busy = (struct io_busy){};
	window->bytes = 0;
	window->now = 0;
	io_window_begin(window, 0);
	io_window_begin(window, 1);
}

struct io_wait *io_window_wait(struct io_window *window)
{
	return &window->half[window->now];
}

bool io_window_add(struct io_window *window, u64 bytes, u64 max)
{
	window->bytes += bytes;
	return window->bytes >= max / 2;
}

int io_window_turn(struct io_window *window)
{
	int err;

	window->now = !window->now;
	window->bytes = 0;
	err = io_wait_finish(io_window_wait(window));
	io_window_begin(window, window->now);
	return err;
}

int io_window_finish(struct io_window *window)
{
	int err = io_window_turn(window), other = io_window_turn(window);

	return err ? err : other;
}

/* Is this a range of the device's blocks? */
static int device_check_range(struct tux3_device *dev, const char *what, u64 addr, u64 count)
{
	u64 blocks = dev->size_bytes / dev->block_size;

	if (addr <= blocks && count <= blocks - addr)
		return 0;
	pr_err_ratelimited("%s: %s of %llu blocks at block %llu is outside the device, which has %llu blocks; refused\n",
	       dev->name, what, (unsigned long long)count, (unsigned long long)addr,
	       (unsigned long long)blocks);
	return -EIO;
}

int device_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	int err = device_check_range(dev, "read", addr, count);

	if (err)
		return err;
	atomic64_inc(&dev->reads);
	atomic64_add((u64)count * dev->block_size, &dev->read_bytes);
	return dev->ops->read(dev, addr, count, data);
}

/* All go down together, or one after the other if one does not lie within the device: no copy of them on the stack. */
static void device_read_batch(struct tux3_device *dev, struct device_io *reads, u32 count, bool media)
{
	bool valid = true;
	u32 i;

	for (i = 0; i < count; i++) {
		reads[i].err = device_check_range(dev, "read", reads[i].addr, reads[i].count);
		if (reads[i].err) {
			valid = false;
			continue;
		}
		atomic64_inc(&dev->reads);
		atomic64_add((u64)reads[i].count * dev->block_size, &dev->read_bytes);
	}
	if (valid && media && dev->ops->read_media) {
		dev->ops->read_media(dev, reads, count);
		return;
	}
	if (valid && dev->ops->read_many && count > 1) {
		dev->ops->read_many(dev, reads, count);
		return;
	}
	for (i = 0; i < count; i++)
		if (!reads[i].err)
			reads[i].err = dev->ops->read(dev, reads[i].addr, reads[i].count, reads[i].data);
}

static void device_read_all(struct tux3_device *dev, struct device_io *reads, u32 count, bool media)
{
	u32 done, n;

	for (done = 0; done < count; done += n) {
		n = min(count - done, DEVICE_READS_MAX);
		device_read_batch(dev, reads + done, n, media);
	}
}

void device_read_many(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	device_read_all(dev, reads, count, false);
}

void device_read_media(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	device_read_all(dev, reads, count, true);
}

static int device_check_write(struct tux3_device *dev, u64 addr, u64 bytes, unsigned int flags)
{
	if (dev->read_only) {
		pr_err_ratelimited("%s: write at block %llu to a device that is open for reading only; refused\n",
		       dev->name, (unsigned long long)addr);
		return -EROFS;
	}
	if (WARN_ON_ONCE(!bytes || bytes % dev->block_size))
		return -EINVAL;
	if (WARN_ON_ONCE(flags & DEVICE_FUA && !dev->has_fua))
		return -EINVAL;
	return device_check_range(dev, "write", addr, bytes / dev->block_size);
}

void device_writev(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
		   unsigned int flags, struct io_wait *wait)
{
	u64 bytes = 0;
	u32 i;
	int err;

	for (i = 0; i < vecs; i++)
		bytes += vec[i].iov_len;
	err = device_check_write(dev, addr, bytes, flags);
	if (err) {
		io_wait_begin(wait);
		io_wait_end(wait, err);
		return;
	}
	atomic64_inc(&dev->writes);
	atomic64_add(bytes, &dev->write_bytes);
	dev->ops->write(dev, addr, vec, vecs, flags, wait);
}

void device_write(struct tux3_device *dev, u64 addr, const void *data, u32 count,
		  unsigned int flags, struct io_wait *wait)
{
	struct kvec vec = {
		.iov_base = (void *)data,
		.iov_len = (size_t)count * dev->block_size,
	};

	device_writev(dev, addr, &vec, 1, flags, wait);
}

int device_flush(struct tux3_device *dev)
{
	if (!dev->volatile_cache)
		return 0;
	atomic64_inc(&dev->flushes);
	return dev->ops->flush(dev);
}

void device_kick(struct tux3_device *dev)
{
	if (dev->ops->kick)
		dev->ops->kick(dev);
}

int device_discard(struct tux3_device *dev, u64 addr, u64 count)
{
	int err = device_check_range(dev, "discard", addr, count);

	if (err)
		return err;
	if (dev->read_only)
		return -EROFS;
	return dev->ops->discard && count ? dev->ops->discard(dev, addr, count) : 0;
}
