/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes that are made all or not at all: a device that keeps them in memory until they are applied to the one
 * below, and that puts the old bytes back if one of them fails.  For mkfs: a few dozens of small writes.
 */
#ifndef TUX3_DEVICE_PLAN_H
#define TUX3_DEVICE_PLAN_H

#include "core/device/device.h"

/* On target, which is not touched yet and may become size_bytes large before the plan is applied.  NULL: no memory. */
struct tux3_device *device_plan_create(struct tux3_device *target, u64 size_bytes);

/* Zeros over any range of bytes, after everything that was planned before. */
int device_plan_zero(struct tux3_device *plan, u64 offset, u32 bytes);

/* All writes and flushes in their order.  On an error the target holds what it held, as far as it takes writes. */
int device_plan_apply(struct tux3_device *plan);

/* After device_plan_apply(): what no write of the plan touched, of the first size_bytes, holds nothing of value. */
void device_plan_discard_rest(struct tux3_device *plan, u64 size_bytes);

#endif
