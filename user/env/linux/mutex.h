/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's header: see core/env.h. */
#ifndef TUX3_ENV_MUTEX_H
#define TUX3_ENV_MUTEX_H

#include <linux/compiler.h>
#include <linux/futex_lock.h>
#include <linux/types.h>

struct mutex {
	struct futex_lock lock;
};

#define __MUTEX_INITIALIZER(name)	{ { 0 } }
#define DEFINE_MUTEX(name)		struct mutex name = __MUTEX_INITIALIZER(name)

static inline void mutex_init(struct mutex *lock)
{
	futex_lock_init(&lock->lock);
}

#define mutex_destroy(lock) ((void)(lock))

static inline void mutex_lock(struct mutex *lock)
{
	futex_lock(&lock->lock);
}

/* A killed program does not ask. */
static inline int mutex_lock_killable(struct mutex *lock)
{
	futex_lock(&lock->lock);
	return 0;
}

static inline void mutex_unlock(struct mutex *lock)
{
	futex_unlock(&lock->lock);
}

static inline bool mutex_trylock(struct mutex *lock)
{
	return futex_trylock(&lock->lock);
}

static inline bool mutex_is_locked(struct mutex *lock)
{
	return READ_ONCE(lock->lock.state);
}

#endif
