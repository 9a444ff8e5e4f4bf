/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lock behind spinlock_t and struct mutex: four bytes, since every inode has several.
 *
 * 0 free, 1 taken, 2 taken and somebody may sleep for it.  A pthread mutex would do the same in 40 bytes.
 */
#ifndef TUX3_ENV_FUTEX_LOCK_H
#define TUX3_ENV_FUTEX_LOCK_H

#include <linux/types.h>

struct futex_lock {
	u32 state;
};

void futex_lock_slow(struct futex_lock *lock);
void futex_unlock_slow(struct futex_lock *lock);

static inline bool futex_trylock(struct futex_lock *lock)
{
	u32 free = 0;

	return __atomic_compare_exchange_n(&lock->state, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void futex_lock(struct futex_lock *lock)
{
	if (!futex_trylock(lock))
		futex_lock_slow(lock);
}

static inline void futex_unlock(struct futex_lock *lock)
{
	if (__atomic_exchange_n(&lock->state, 0, __ATOMIC_RELEASE) == 2)
		futex_unlock_slow(lock);
}

#endif
