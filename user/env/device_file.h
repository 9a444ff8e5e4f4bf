/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A file or block device as the device of core/device/device.h.  Close it with dev->ops->close(dev). */
#ifndef TUX3_DEVICE_FILE_H
#define TUX3_DEVICE_FILE_H

#include "core/device/device.h"

#define DEVICE_OPEN_WRITE	(1u << 0)	/* else the device is read_only */
#define DEVICE_OPEN_SYNC_IO	(1u << 1)	/* pwritev(2) in threads, not io_uring */
#define DEVICE_OPEN_FORMAT	(1u << 2)	/* all of it is overwritten: a loop device must not even be attached to it */

#define DEVICE_OPEN_BESIDE	(1u << 3)	/* for reading only, whoever else has it and writes: for device_read_media() */
#define DEVICE_OPEN_ALONE	(1u << 4)	/* pwritev(2) in the calls that write: no threads */

/*
 * Writers lock out everybody, readers lock out writers, until the device is closed; under its other names too: see
 * device_use.h.  0 or -errno: then
 * `why` is a sentence (without a full stop) for the user.  Starts threads, unless they are not wanted: not before a fork().
 */
int device_open_file(const char *path, unsigned int flags, struct tux3_device **dev,
		     char *why, size_t why_size);

/*
 * A block device that was opened for writing is claimed, so that the kernel lets nobody mount it.  This gives up the
 * claim, for a mount of our own (fuseblk) that is to have it.
 */
void device_file_unclaim(struct tux3_device *dev);

/* Of a block device: what a mount must ask for (blksize=) so that the kernel's cache of it stays as it is.  0: a file. */
int device_file_soft_block_size(struct tux3_device *dev);

/* Writes complete no faster than this from now on; 0: as fast as they can.  -errno if it cannot be. */
int device_file_set_rate(struct tux3_device *dev, u64 bytes_per_second);

/* How large writes get done: "io_uring", "threads", or "none" if the device is read-only or has no threads. */
const char *device_file_method(struct tux3_device *dev);

#endif
