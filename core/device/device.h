/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The block device as the core sees it: the lower half of the host interface.
 *
 * Implemented by linux/ (bios), user/env (files and block devices) and sim/ (a modelled disk).
 * All addresses and counts are in volume blocks of struct tux3_device.block_size bytes, which whoever opens the volume
 * sets before anything but anchors is read or written.
 *
 * Semantics: a write that has completed is in the device's volatile cache, no more.  flush() makes
 * every write that completed before it was called durable.  A write with DEVICE_FUA is durable when
 * it completes.  Writes are not ordered among themselves.
 */
#ifndef TUX3_DEVICE_H
#define TUX3_DEVICE_H

#include "core/env.h"

struct tux3_device;

/* For how long at least one of a set of writes was in flight.  As long as the io_waits that point to it, all of one submitter. */
struct io_busy {
	atomic_t flying;	/* so many are */
	u64 begun_ns;		/* submitter: since when there is always one; 0: there was none yet */
	u64 ended_ns;		/* when the last one ended, so far */
	u64 before_ns;		/* submitter: the sum, until begun_ns */
};

/*
 * A set of submitted writes that somebody will wait for.  The submitter owns it, on the stack or
 * in its object, until io_wait_finish() has returned or io_wait_done() has returned true.
 */
struct io_wait {
	atomic_t pending;	/* writes submitted and not completed, plus one held by the submitter */
	atomic_t error;		/* first negative errno, or 0 */
	struct completion done;	/* pending fell to 0 */
	struct io_busy *busy;	/* or NULL */
};

/*
 * Writes that go on and on, of which not too many are to be in flight: in two halves, so that the device still has one
 * to do while the other is waited for.
 */
struct io_window {
	struct io_wait half[2];
	struct io_busy busy;
	u64 bytes;		/* submitted to the half of now since it began */
	u32 now;
};

#define DEVICE_FUA 1u

/* One of several reads that are made at once. */
struct device_io {
	u64 addr;
	u32 count;
	int err;		/* 0 or -errno, when it is over */
	void *data;
};

#define DEVICE_READS_MAX 32u	/* in flight together: as many as a disk with NCQ takes */

struct tux3_device_ops {
	/* Read count blocks at addr into data (any alignment).  0, -EIO or another errno. */
	int (*read)(struct tux3_device *dev, u64 addr, u32 count, void *data);
	/*
	 * Read all of these, at most DEVICE_READS_MAX, in flight together, and return when all are over; err is set in
	 * each.  NULL: one after the other.
	 */
	void (*read_many)(struct tux3_device *dev, struct device_io *reads, u32 count);
	/*
	 * The same, but from the device itself, past what the host has cached of it: what it wrote is written before.  NULL:
	 * reads always come from there.
	 */
	void (*read_media)(struct tux3_device *dev, struct device_io *reads, u32 count);
	/*
	 * Submit one write of the bytes of vec[0..vecs), whose lengths add up to whole blocks, at
	 * addr.  Never fails: errors come through the io_wait, possibly before this returns.  The
	 * bytes must stay as they are until the write has completed; vec itself need not.
	 * May block while the device's queue is full.
	 */
	void (*write)(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
		      unsigned int flags, struct io_wait *wait);
	/* Make all completed writes durable. */
	int (*flush)(struct tux3_device *dev);
	/* The blocks hold nothing of value any more.  May be NULL, may do nothing. */
	int (*discard)(struct tux3_device *dev, u64 addr, u64 count);
	/* Submitted writes get going now (a hint, NULL allowed): call before waiting. */
	void (*kick)(struct tux3_device *dev);
	void (*close)(struct tux3_device *dev);
};

struct tux3_device {
	const struct tux3_device_ops *ops;
	u64 size_bytes;
	u32 block_size;		/* bytes; 4096 until set */
	bool read_only;
	bool volatile_cache;	/* false: flush is not needed and never called */
	bool has_fua;		/* false: DEVICE_FUA must not be passed */
	const char *name;	/* for messages */
	/* What was asked of the device, in calls and bytes; for counters and tests. */
	atomic64_t reads, read_bytes, writes, write_bytes, flushes;
};

/* device.c: what the ops do, counted, with bounds checked. */
int device_read(struct tux3_device *dev, u64 addr, u32 count, void *data);
/* Any number of reads, DEVICE_READS_MAX in flight; returns when all are over, with err set in each. */
void device_read_many(struct tux3_device *dev, struct device_io *reads, u32 count);
void device_read_media(struct tux3_device *dev, struct device_io *reads, u32 count);	/* past the host's caches */
void device_write(struct tux3_device *dev, u64 addr, const void *data, u32 count,
		  unsigned int flags, struct io_wait *wait);
void device_writev(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
		   unsigned int flags, struct io_wait *wait);
int device_flush(struct tux3_device *dev);	/* no-op without a volatile cache */
void device_kick(struct tux3_device *dev);
int device_discard(struct tux3_device *dev, u64 addr, u64 count);

void io_wait_init(struct io_wait *wait);
/* For implementations: one write begins (before submission) / has ended with err (0 or -errno). */
void io_wait_begin(struct io_wait *wait);
void io_wait_end(struct io_wait *wait, int err);
/* All writes completed?  Does not block.  *err gets the first error.  Call at most until true. */
bool io_wait_done(struct io_wait *wait, int *err);
/* Block until all have completed; returns the first error. */
int io_wait_finish(struct io_wait *wait);
u64 io_busy_ns(const struct io_busy *busy);	/* when all have completed */

void io_window_init(struct io_window *window);
struct io_wait *io_window_wait(struct io_window *window);	/* for the next write, with which it may be another one */
/*
 * So many bytes were submitted to it, and no more than max are to be in flight.  true: that half is full, and the caller kicks
 * the device and takes a turn.
 */
bool io_window_add(struct io_window *window, u64 bytes, u64 max);
/* Wait for the older half, which is the next one to fill; returns its first error. */
int io_window_turn(struct io_window *window);
/* Block until all have completed; returns the first error.  The window is as new, but for the time it was busy. */
int io_window_finish(struct io_window *window);

#endif
