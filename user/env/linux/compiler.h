/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * READ_ONCE() and WRITE_ONCE() are relaxed atomics: what the kernel means by them, said in a way
 * that ThreadSanitizer understands.
 */
#ifndef TUX3_ENV_COMPILER_H
#define TUX3_ENV_COMPILER_H

#include <sys/cdefs.h>

#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)

#define READ_ONCE(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, value)	__atomic_store_n(&(x), (value), __ATOMIC_RELAXED)

#define barrier()	__asm__ __volatile__("" ::: "memory")

#undef __packed
#define __packed	__attribute__((__packed__))
#undef __aligned
#define __aligned(n)	__attribute__((__aligned__(n)))
#undef __printf
#define __printf(f, a)	__attribute__((__format__(__printf__, f, a)))
#undef __maybe_unused
#define __maybe_unused	__attribute__((__unused__))
#undef __must_check
#define __must_check	__attribute__((__warn_unused_result__))
#undef noinline
#define noinline	__attribute__((__noinline__))
#undef fallthrough
#define fallthrough	__attribute__((__fallthrough__))
#ifndef __always_inline
#define __always_inline	inline __attribute__((__always_inline__))
#endif
#ifndef __user
#define __user
#endif
#ifndef __force
#define __force
#endif
#ifndef __percpu
#define __percpu
#endif

#if defined(__SANITIZE_THREAD__)
#define TUX3_ENV_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TUX3_ENV_TSAN 1
#endif
#endif

/* A race that is meant: what it may have brought is looked at before it counts.  ThreadSanitizer looks away meanwhile. */
#ifdef TUX3_ENV_TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define data_race(expr) ({			\
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);	\
	__auto_type __value = (expr);		\
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);	\
	__value;				\
})
#else
#define data_race(expr) (expr)
#endif

#endif
