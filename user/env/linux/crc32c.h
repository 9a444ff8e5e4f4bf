/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h.  The code is in user/env/hash.c. */
#ifndef TUX3_ENV_CRC32C_H
#define TUX3_ENV_CRC32C_H

#include <linux/types.h>

/* Castagnoli CRC, no inversions. */
u32 crc32c(u32 crc, const void *data, size_t bytes);

#endif
