/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_KTIME_H
#define TUX3_ENV_KTIME_H

#include <linux/types.h>

#define NSEC_PER_SEC	1000000000L
#define NSEC_PER_MSEC	1000000L
#define NSEC_PER_USEC	1000L

u64 ktime_get_ns(void);

#endif
