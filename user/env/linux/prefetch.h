/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Bring a cache line in while something else is done. */
#ifndef TUX3_ENV_PREFETCH_H
#define TUX3_ENV_PREFETCH_H

static inline void prefetch(const void *at)
{
	__builtin_prefetch(at);
}

#endif
