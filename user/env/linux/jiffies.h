/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_JIFFIES_H
#define TUX3_ENV_JIFFIES_H

#include <linux/ktime.h>
#include <linux/types.h>

#undef HZ
#define HZ 1000
#define jiffies ((unsigned long)(ktime_get_ns() / (1000000000u / HZ)))

#define time_after(a, b)	((long)((b) - (a)) < 0)
#define time_before(a, b)	time_after(b, a)
#define time_after_eq(a, b)	((long)((a) - (b)) >= 0)
#define time_before_eq(a, b)	time_after_eq(b, a)

static inline unsigned long msecs_to_jiffies(unsigned int ms)
{
	return ms;
}

static inline unsigned int jiffies_to_msecs(unsigned long j)
{
	return j;
}

#endif
