/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * The owner of a user-space lock can be preempted, so these spin for a moment and then sleep.
 */
#ifndef TUX3_ENV_SPINLOCK_H
#define TUX3_ENV_SPINLOCK_H

#include <linux/futex_lock.h>
#include <linux/types.h>

typedef struct spinlock {
	struct futex_lock lock;
} spinlock_t;

#define __SPIN_LOCK_UNLOCKED(name)	{ { 0 } }
#define DEFINE_SPINLOCK(name)		spinlock_t name = __SPIN_LOCK_UNLOCKED(name)

static inline void spin_lock_init(spinlock_t *lock)
{
	futex_lock_init(&lock->lock);
}

static inline void spin_lock(spinlock_t *lock)
{
	futex_lock(&lock->lock);
}

/* No interrupts here. */
#define spin_lock_irqsave(lock, flags)		do { (flags) = 0; spin_lock(lock); } while (0)
#define spin_unlock_irqrestore(lock, flags)	do { (void)(flags); spin_unlock(lock); } while (0)
#define spin_lock_nested(lock, subclass)	spin_lock(lock)

static inline void spin_unlock(spinlock_t *lock)
{
	futex_unlock(&lock->lock);
}

static inline bool spin_trylock(spinlock_t *lock)
{
	return futex_trylock(&lock->lock);
}

#endif
