/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A device to read from beside who writes it: each read goes past all caches of the one below (device_read_media()). */
#ifndef TUX3_DEVICE_VIEW_H
#define TUX3_DEVICE_VIEW_H

#include "core/device/device.h"

/*
 * The one below is there until this is closed, and then stays open.  Its block size is the same as soon as the volume on it is
 * open.  NULL: no memory.
 */
struct tux3_device *device_view_create(struct tux3_device *below);

#endif
