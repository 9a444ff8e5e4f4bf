/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_HASH_H
#define TUX3_ENV_HASH_H

#include <linux/types.h>

/* 2^64 divided by the golden ratio, odd: multiplying spreads any run of values over the top bits. */
static inline u32 hash_64(u64 value, unsigned int bits)
{
	return value * 0x9e3779b97f4a7c15ULL >> (64 - bits);
}

#endif
