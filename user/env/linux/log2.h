/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_LOG2_H
#define TUX3_ENV_LOG2_H

#include <linux/types.h>

/* Of a constant it is a constant. */
#define ilog2(n)		(63 - __builtin_clzll(n))
#define roundup_pow_of_two(n)	((n) == 1 ? 1UL : 1UL << (ilog2((n) - 1) + 1))
#define rounddown_pow_of_two(n)	(1UL << ilog2(n))

static inline bool is_power_of_2(unsigned long n)
{
	return n && !(n & (n - 1));
}

#endif
