/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_MUTEX_H
#define TUX3_ENV_MUTEX_H

#include <pthread.h>
#include <linux/compiler.h>
#include <linux/types.h>

struct mutex {
	pthread_mutex_t mutex;
	bool locked;		/* for mutex_is_locked() alone; written by the owner */
};

#define __MUTEX_INITIALIZER(name)	{ PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, false }
#define DEFINE_MUTEX(name)		struct mutex name = __MUTEX_INITIALIZER(name)

void mutex_init(struct mutex *lock);
#define mutex_destroy(lock) ((void)(lock))

static inline void mutex_lock(struct mutex *lock)
{
	pthread_mutex_lock(&lock->mutex);
	WRITE_ONCE(lock->locked, true);
}

static inline void mutex_unlock(struct mutex *lock)
{
	WRITE_ONCE(lock->locked, false);
	pthread_mutex_unlock(&lock->mutex);
}

static inline bool mutex_trylock(struct mutex *lock)
{
	if (pthread_mutex_trylock(&lock->mutex))
		return false;
	WRITE_ONCE(lock->locked, true);
	return true;
}

static inline bool mutex_is_locked(struct mutex *lock)
{
	return READ_ONCE(lock->locked);
}

#ifndef lockdep_assert_held
#define lockdep_assert_held(lock) ((void)(lock))
#endif

#endif
