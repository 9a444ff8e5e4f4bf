/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Waiting for a program that is just about to close a file or block device. */
#ifndef TUX3_DEVICE_WAIT_H
#define TUX3_DEVICE_WAIT_H

#include <stdbool.h>

/*
 * umount(8) of a FUSE file system returns before its daemon has written the last changes and closed the
 * image.  Returns as soon as path can be opened (write: for writing), and at once if it is mounted;
 * after some seconds in any case.  Whether it may be used is found out by opening it.
 */
void device_wait_closed(const char *path, bool write);
/* Until nobody writes to it any more, however long that takes; or it is mounted again, or still, by somebody. */
void device_wait_complete(const char *path);

#endif
