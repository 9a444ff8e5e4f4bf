/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_UNALIGNED_H
#define TUX3_ENV_UNALIGNED_H

#include <string.h>
#include <asm/byteorder.h>
#include <linux/types.h>

#define ENV_UNALIGNED(bits)						\
static inline u##bits get_unaligned_le##bits(const void *p)		\
{									\
	__le##bits x;							\
									\
	memcpy(&x, p, sizeof(x));					\
	return le##bits##_to_cpu(x);					\
}									\
static inline void put_unaligned_le##bits(u##bits value, void *p)	\
{									\
	__le##bits x = cpu_to_le##bits(value);				\
									\
	memcpy(p, &x, sizeof(x));					\
}

ENV_UNALIGNED(16)
ENV_UNALIGNED(32)
ENV_UNALIGNED(64)

#endif
