/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Differences between kernel versions, all in one place.  The code is written for the newest version it is built for; what
 * an older one (6.12 at least) calls differently is given the new name here.
 */
#ifndef TUX3_LINUX_COMPAT_H
#define TUX3_LINUX_COMPAT_H

#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#error "tux3 needs Linux 6.12 or newer"
#endif

#endif
