/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * The owner of a user-space lock can be preempted, so these spin for a moment and then sleep.
 */
#ifndef TUX3_ENV_SPINLOCK_H
#define TUX3_ENV_SPINLOCK_H

#include <pthread.h>
#include <linux/types.h>

typedef struct spinlock {
	pthread_mutex_t mutex;
} spinlock_t;

#define __SPIN_LOCK_UNLOCKED(name)	{ PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP }
#define DEFINE_SPINLOCK(name)		spinlock_t name = __SPIN_LOCK_UNLOCKED(name)

void spin_lock_init(spinlock_t *lock);

static inline void spin_lock(spinlock_t *lock)
{
	pthread_mutex_lock(&lock->mutex);
}

static inline void spin_unlock(spinlock_t *lock)
{
	pthread_mutex_unlock(&lock->mutex);
}

static inline bool spin_trylock(spinlock_t *lock)
{
	return !pthread_mutex_trylock(&lock->mutex);
}

#ifndef lockdep_assert_held
#define lockdep_assert_held(lock) ((void)(lock))
#endif

#endif
