/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A device as slow as a disk, by a clock that is only reckoned: for tests of how many reads wait for each other. */
#ifndef TUX3_DEVICE_SLOW_H
#define TUX3_DEVICE_SLOW_H

#include "core/device/device.h"

/*
 * Over another device, which it closes when it is closed.  Each read takes latency_ns of the clock, and those made at
 * once, up to depth of them, take that together.  Nobody really waits.  NULL: out of memory.
 */
struct tux3_device *device_slow_create(struct tux3_device *below, u64 latency_ns, u32 depth);
u64 device_slow_clock_ns(struct tux3_device *dev);	/* spent reading so far */
u32 device_slow_max_batch(struct tux3_device *dev);	/* the most reads that were in flight at once */
/* Reads of this block fail from now on; U64_MAX: of none. */
void device_slow_fail(struct tux3_device *dev, u64 addr);

#endif
