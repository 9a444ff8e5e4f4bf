/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A device whose old content is kept: before a range of it is written for the first time, what is there goes to an undo
 * file, and is durable there.  For repairs.
 */
#ifndef TUX3_DEVICE_UNDO_H
#define TUX3_DEVICE_UNDO_H

#include "core/device/device.h"

struct undo_file;

/*
 * Over another device and an undo file that was just created for it: neither is closed with it, and the file is not to be used
 * meanwhile.  A write whose old content cannot be saved fails, and so does each one after it; what the device cannot read is
 * saved as zeros.  Discards are not passed on: what is free need not be saved then.  Starts a thread.  NULL: out of memory.
 */
struct tux3_device *device_undo_create(struct tux3_device *below, struct undo_file *file);

/*
 * What undo_file_open() found is written to where it was, newest first, and is durable on return 0.  Else -errno; then the
 * device holds some of it, and this can be done again.  progress may be NULL.
 */
int device_undo_put_back(struct tux3_device *dev, struct undo_file *file,
			 void (*progress)(void *ctx, u64 done, u64 total), void *ctx);

#endif
