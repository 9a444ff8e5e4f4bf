/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_SCHED_H
#define TUX3_ENV_SCHED_H

#include <sched.h>
#include <linux/types.h>

/* Called in tight loops, so it must cost little: sched_yield() is half a microsecond. */
static inline void cond_resched(void)
{
	static __thread unsigned char calls;

	if (++calls % 32 == 0)
		sched_yield();
}

#endif
