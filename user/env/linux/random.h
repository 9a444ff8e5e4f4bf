/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h.  user/env/clock.h sets a test seed. */
#ifndef TUX3_ENV_RANDOM_H
#define TUX3_ENV_RANDOM_H

#include <linux/types.h>

void get_random_bytes(void *buf, size_t bytes);
u32 get_random_u32(void);
u64 get_random_u64(void);

#endif
