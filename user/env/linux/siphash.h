/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_SIPHASH_H
#define TUX3_ENV_SIPHASH_H

#include <linux/types.h>

typedef struct {
	u64 key[2];
} siphash_key_t;

/* SipHash-2-4. */
u64 siphash(const void *data, size_t bytes, const siphash_key_t *key);

#endif
