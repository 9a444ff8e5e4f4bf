/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * Ordering as the kernel has it: what returns a value is a full barrier, what returns none (and
 * read and set) orders nothing.  ThreadSanitizer does not know fences, so it gets an atomic
 * operation on a common variable in their place.
 */
#ifndef TUX3_ENV_ATOMIC_H
#define TUX3_ENV_ATOMIC_H

#include <stdatomic.h>
#include <linux/compiler.h>
#include <linux/types.h>

/* C11 has macros of these names with another meaning. */
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_fetch_or
#undef atomic_fetch_and
#undef atomic_fetch_xor

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	s64 counter;
} atomic64_t;

#define ATOMIC_INIT(value)	{ (value) }
#define ATOMIC64_INIT(value)	{ (value) }

#ifdef TUX3_ENV_TSAN
extern int env_fence;
#define smp_mb()	((void)__atomic_fetch_add(&env_fence, 0, __ATOMIC_SEQ_CST))
#define smp_rmb()	smp_mb()
#define smp_wmb()	smp_mb()
#else
#define smp_mb()	__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_rmb()	__atomic_thread_fence(__ATOMIC_ACQUIRE)
#define smp_wmb()	__atomic_thread_fence(__ATOMIC_RELEASE)
#endif
#define smp_mb__before_atomic()	smp_mb()
#define smp_mb__after_atomic()	smp_mb()

#define smp_load_acquire(ptr)		__atomic_load_n((ptr), __ATOMIC_ACQUIRE)
#define smp_store_release(ptr, value)	__atomic_store_n((ptr), (value), __ATOMIC_RELEASE)

#define xchg(ptr, value)		__atomic_exchange_n((ptr), (value), __ATOMIC_SEQ_CST)
#define cmpxchg(ptr, old, new) __extension__ ({				\
	__typeof__(*(ptr)) env_cmpxchg_old = (old);			\
	__atomic_compare_exchange_n((ptr), &env_cmpxchg_old, (new), false, \
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	env_cmpxchg_old; })

#define ENV_ATOMIC_OPS(atomic, atomic_type, type)			\
static inline type atomic##_read(const atomic_type *v)			\
{									\
	return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);		\
}									\
static inline type atomic##_read_acquire(const atomic_type *v)		\
{									\
	return __atomic_load_n(&v->counter, __ATOMIC_ACQUIRE);		\
}									\
static inline void atomic##_set(atomic_type *v, type i)			\
{									\
	__atomic_store_n(&v->counter, i, __ATOMIC_RELAXED);		\
}									\
static inline void atomic##_set_release(atomic_type *v, type i)		\
{									\
	__atomic_store_n(&v->counter, i, __ATOMIC_RELEASE);		\
}									\
static inline void atomic##_add(type i, atomic_type *v)			\
{									\
	__atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED);		\
}									\
static inline void atomic##_sub(type i, atomic_type *v)			\
{									\
	__atomic_fetch_sub(&v->counter, i, __ATOMIC_RELAXED);		\
}									\
static inline void atomic##_inc(atomic_type *v)				\
{									\
	__atomic_fetch_add(&v->counter, 1, __ATOMIC_RELAXED);		\
}									\
static inline void atomic##_dec(atomic_type *v)				\
{									\
	__atomic_fetch_sub(&v->counter, 1, __ATOMIC_RELAXED);		\
}									\
static inline type atomic##_add_return(type i, atomic_type *v)		\
{									\
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST);	\
}									\
static inline type atomic##_sub_return(type i, atomic_type *v)		\
{									\
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST);	\
}									\
static inline type atomic##_inc_return(atomic_type *v)			\
{									\
	return __atomic_add_fetch(&v->counter, 1, __ATOMIC_SEQ_CST);	\
}									\
static inline type atomic##_dec_return(atomic_type *v)			\
{									\
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_SEQ_CST);	\
}									\
static inline bool atomic##_dec_and_test(atomic_type *v)		\
{									\
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_SEQ_CST) == 0; \
}									\
static inline bool atomic##_sub_and_test(type i, atomic_type *v)	\
{									\
	return __atomic_sub_fetch(&v->counter, i, __ATOMIC_SEQ_CST) == 0; \
}									\
static inline type atomic##_fetch_add(type i, atomic_type *v)		\
{									\
	return __atomic_fetch_add(&v->counter, i, __ATOMIC_SEQ_CST);	\
}									\
static inline type atomic##_fetch_sub(type i, atomic_type *v)		\
{									\
	return __atomic_fetch_sub(&v->counter, i, __ATOMIC_SEQ_CST);	\
}									\
static inline type atomic##_fetch_or(type i, atomic_type *v)		\
{									\
	return __atomic_fetch_or(&v->counter, i, __ATOMIC_SEQ_CST);	\
}									\
static inline type atomic##_xchg(atomic_type *v, type i)		\
{									\
	return __atomic_exchange_n(&v->counter, i, __ATOMIC_SEQ_CST);	\
}									\
static inline type atomic##_cmpxchg(atomic_type *v, type old, type i)	\
{									\
	__atomic_compare_exchange_n(&v->counter, &old, i, false,	\
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	return old;							\
}									\
static inline bool atomic##_try_cmpxchg(atomic_type *v, type *old, type i) \
{									\
	return __atomic_compare_exchange_n(&v->counter, old, i, false,	\
					   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
}									\
static inline bool atomic##_add_unless(atomic_type *v, type i, type unless) \
{									\
	type old = atomic##_read(v);					\
									\
	do {								\
		if (old == unless)					\
			return false;					\
	} while (!atomic##_try_cmpxchg(v, &old, old + i));		\
	return true;							\
}									\
static inline bool atomic##_inc_not_zero(atomic_type *v)		\
{									\
	return atomic##_add_unless(v, 1, 0);				\
}

ENV_ATOMIC_OPS(atomic, atomic_t, int)
ENV_ATOMIC_OPS(atomic64, atomic64_t, s64)

#endif
