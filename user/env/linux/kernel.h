/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.  Adds to the system's own.
 *
 * min(), max() and clamp() accept what the kernel's accept: two unsigned or two signed operands, or a
 * constant that is not negative with anything.
 */
#ifndef TUX3_ENV_KERNEL_H
#define TUX3_ENV_KERNEL_H

#include_next <linux/kernel.h>
#include <stdarg.h>
#include <stdio.h>
#include <linux/build_bug.h>
#include <linux/compiler.h>
#include <linux/printk.h>
#include <linux/types.h>

#define U8_MAX	((u8)~0U)
#define S8_MAX	((s8)(U8_MAX >> 1))
#define S8_MIN	((s8)(-S8_MAX - 1))
#define U16_MAX	((u16)~0U)
#define S16_MAX	((s16)(U16_MAX >> 1))
#define S16_MIN	((s16)(-S16_MAX - 1))
#define U32_MAX	((u32)~0U)
#define S32_MAX	((s32)(U32_MAX >> 1))
#define S32_MIN	((s32)(-S32_MAX - 1))
#define U64_MAX	((u64)~0ULL)
#define S64_MAX	((s64)(U64_MAX >> 1))
#define S64_MIN	((s64)(-S64_MAX - 1))

#undef ARRAY_SIZE
#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))
#undef BIT_ULL
#define BIT_ULL(n)		(1ULL << (n))
#undef BIT
#define BIT(n)			(1UL << (n))

#undef DIV_ROUND_UP
#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))
/* To a power of two. */
#undef round_up
#define round_up(x, y)		((((x) - 1) | ((__typeof__(x))((y) - 1))) + 1)
#undef round_down
#define round_down(x, y)	((x) & ~((__typeof__(x))((y) - 1)))
#undef ALIGN
#define ALIGN(x, a)		round_up((x), (a))
#undef IS_ALIGNED
#define IS_ALIGNED(x, a)	(((x) & ((__typeof__(x))(a) - 1)) == 0)
/* To any number. */
#undef roundup
#define roundup(x, y)		((((x) + (y) - 1) / (y)) * (y))
#undef rounddown
#define rounddown(x, y)		((x) - (x) % (y))

#define env_is_signed(x)	((__typeof__((x) + 0))-1 < (__typeof__((x) + 0))1)
#define env_is_positive(x)	(__builtin_choose_expr(__builtin_constant_p(x), (x), -1) > \
				 (__typeof__(__builtin_choose_expr(__builtin_constant_p(x), (x), -1)))-1 || \
				 !env_is_signed(__builtin_choose_expr(__builtin_constant_p(x), (x), -1)))
#define env_compare(a, op, b) __extension__ ({				\
	_Static_assert(env_is_signed(a) == env_is_signed(b) ||		\
		       env_is_positive(a) || env_is_positive(b),	\
		       "signed compared with unsigned: use min_t() or max_t()"); \
	__auto_type env_a = (a);					\
	__auto_type env_b = (b);					\
	env_a op env_b ? env_a : env_b; })

#undef min
#define min(a, b)		env_compare(a, <, b)
#undef max
#define max(a, b)		env_compare(a, >, b)
#undef min_t
#define min_t(type, a, b) __extension__ ({				\
	type env_ta = (a); type env_tb = (b); env_ta < env_tb ? env_ta : env_tb; })
#undef max_t
#define max_t(type, a, b) __extension__ ({				\
	type env_ta = (a); type env_tb = (b); env_ta > env_tb ? env_ta : env_tb; })
#undef min3
#define min3(a, b, c)		min(min(a, b), c)
#undef max3
#define max3(a, b, c)		max(max(a, b), c)
#undef clamp
#define clamp(value, low, high)	min(max(value, low), high)
#undef clamp_t
#define clamp_t(type, value, low, high) min_t(type, max_t(type, value, low), high)

#undef swap
#define swap(a, b) do {							\
	__typeof__(a) env_swap = (a); (a) = (b); (b) = env_swap;	\
} while (0)

/* By way of integers, so that the container of a list head may be computed without being there. */
#undef container_of
#define container_of(ptr, type, member) __extension__ ({		\
	_Static_assert(__builtin_types_compatible_p(__typeof__(*(ptr)), __typeof__(((type *)0)->member)) || \
		       __builtin_types_compatible_p(__typeof__(*(ptr)), void), \
		       "pointer is not to this member");		\
	(type *)((uintptr_t)(ptr) - offsetof(type, member)); })

/* As snprintf(), but returns what was written, not what there was to write. */
int scnprintf(char *buf, size_t size, const char *fmt, ...) __printf(3, 4);
int vscnprintf(char *buf, size_t size, const char *fmt, va_list args) __printf(3, 0);

#endif
