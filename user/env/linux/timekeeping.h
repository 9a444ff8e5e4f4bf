/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h.  user/env/clock.h sets a test clock. */
#ifndef TUX3_ENV_TIMEKEEPING_H
#define TUX3_ENV_TIMEKEEPING_H

#include <linux/ktime.h>
#include <linux/types.h>

typedef s64 time64_t;

struct timespec64 {
	time64_t tv_sec;
	long tv_nsec;
};

void ktime_get_real_ts64(struct timespec64 *ts);
void ktime_get_coarse_real_ts64(struct timespec64 *ts);	/* of the last tick */

#endif
