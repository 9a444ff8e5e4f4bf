/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A device in memory, for tests. */
#ifndef TUX3_DEVICE_MEMORY_H
#define TUX3_DEVICE_MEMORY_H

#include "core/device/device.h"

/*
 * All zeros, and memory only for what was written.  NULL: out of memory.  volatile_cache is true: set it
 * to false to have no flushes.  Close it with dev->ops->close(dev).
 */
struct tux3_device *device_memory_create(u64 size_bytes);

/* The bytes themselves, for tests that damage them. */
void *device_memory_bytes(struct tux3_device *dev);

#endif
