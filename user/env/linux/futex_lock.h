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
#ifdef TUX3_LOCKDEP
	unsigned long owner;	/* env_lock_self() of who has it */
#endif
};

extern __thread char env_thread_mark;

#ifdef TUX3_LOCKDEP
/* A number for the thread, not 0. */
static inline unsigned long env_lock_self(void)
{
	return (unsigned long)&env_thread_mark;
}

/* Of another's lock the answer is old at once; of one's own it is not. */
static inline bool futex_is_held(const struct futex_lock *lock)
{
	return __atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == env_lock_self();
}

/* Taking what one has would never end, and giving back what one has not is as bad. */
void futex_owner_failed(const char *how) __attribute__((noreturn));

static inline void futex_owner_is_me(const struct futex_lock *lock, bool mine)
{
	if (futex_is_held(lock) != mine)
		futex_owner_failed(mine ? "is given back, but is not held" : "is taken, but is held already");
}

#define futex_set_owner(lock, who) __atomic_store_n(&(lock)->owner, who, __ATOMIC_RELAXED)
#else
#define futex_owner_is_me(lock, mine) ((void)(lock))
#define futex_set_owner(lock, who) ((void)(lock))
#endif

void futex_lock_slow(struct futex_lock *lock);
void futex_unlock_slow(struct futex_lock *lock);

static inline void futex_lock_init(struct futex_lock *lock)
{
	lock->state = 0;
	futex_set_owner(lock, 0);
}

static inline bool futex_trylock(struct futex_lock *lock)
{
	u32 free = 0;

	if (!__atomic_compare_exchange_n(&lock->state, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return false;
	futex_set_owner(lock, env_lock_self());
	return true;
}

static inline void futex_lock(struct futex_lock *lock)
{
	if (futex_trylock(lock))
		return;
	futex_owner_is_me(lock, false);
	futex_lock_slow(lock);
	futex_set_owner(lock, env_lock_self());
}

static inline void futex_unlock(struct futex_lock *lock)
{
	futex_owner_is_me(lock, true);
	futex_set_owner(lock, 0);
	if (__atomic_exchange_n(&lock->state, 0, __ATOMIC_RELEASE) == 2)
		futex_unlock_slow(lock);
}

#endif
