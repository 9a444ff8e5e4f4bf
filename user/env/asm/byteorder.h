/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h.  The system's own, without underscores. */
#ifndef TUX3_ENV_BYTEORDER_H
#define TUX3_ENV_BYTEORDER_H

#include_next <asm/byteorder.h>
#include <linux/types.h>

#define cpu_to_le16(x)	__cpu_to_le16(x)
#define cpu_to_le32(x)	__cpu_to_le32(x)
#define cpu_to_le64(x)	__cpu_to_le64(x)
#define le16_to_cpu(x)	__le16_to_cpu(x)
#define le32_to_cpu(x)	__le32_to_cpu(x)
#define le64_to_cpu(x)	__le64_to_cpu(x)

static inline void le16_add_cpu(__le16 *p, u16 add)
{
	*p = cpu_to_le16(le16_to_cpu(*p) + add);
}

static inline void le32_add_cpu(__le32 *p, u32 add)
{
	*p = cpu_to_le32(le32_to_cpu(*p) + add);
}

static inline void le64_add_cpu(__le64 *p, u64 add)
{
	*p = cpu_to_le64(le64_to_cpu(*p) + add);
}

#endif
