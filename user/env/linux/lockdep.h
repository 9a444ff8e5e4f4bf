/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * With TUX3_LOCKDEP (the asan and tsan variants) locks know who has them, and an assertion that does not hold ends the
 * process.  Otherwise all of this is nothing.
 */
#ifndef TUX3_ENV_LOCKDEP_H
#define TUX3_ENV_LOCKDEP_H

#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>

/* What a thread is in, that is not a lock: one such thing at a time. */
struct lockdep_map {
	const char *name;
};

struct lock_class_key {
	char unused;
};

static inline void lockdep_init_map(struct lockdep_map *map, const char *name, struct lock_class_key *key, int subclass)
{
	map->name = name;
}

#ifdef TUX3_LOCKDEP
#define CONFIG_PROVE_LOCKING 1
#else
#define CONFIG_PROVE_LOCKING 0
#endif
#define IS_ENABLED(option) (option)

#ifdef TUX3_LOCKDEP

void env_lockdep_failed(const char *file, int line, const char *lock, const char *how) __attribute__((noreturn));

extern __thread const struct lockdep_map *env_map_held;

/* Of something that begins with its map. */
static inline bool env_map_is_held(const void *scope)
{
	return env_map_held == scope;
}

static inline bool env_mutex_is_held(const struct mutex *lock)
{
	return futex_is_held(&lock->lock);
}

static inline bool env_spin_is_held(const spinlock_t *lock)
{
	return futex_is_held(&lock->lock);
}

/* By readers: by anybody. */
static inline bool env_sem_is_held(const struct rw_semaphore *sem)
{
	return sem_is_written(sem) || __atomic_load_n(&sem->readers, __ATOMIC_RELAXED);
}

#define env_is_held(lock) _Generic((lock),						\
	struct mutex *: env_mutex_is_held, const struct mutex *: env_mutex_is_held,	\
	spinlock_t *: env_spin_is_held, const spinlock_t *: env_spin_is_held,		\
	struct rw_semaphore *: env_sem_is_held, const struct rw_semaphore *: env_sem_is_held, \
	default: env_map_is_held)(lock)

#define lockdep_assert_held(lock)	((void)(env_is_held(lock) ? 0 :			\
	(env_lockdep_failed(__FILE__, __LINE__, #lock, "is not held"), 0)))
#define lockdep_assert_not_held(lock)	((void)(!env_is_held(lock) ? 0 :		\
	(env_lockdep_failed(__FILE__, __LINE__, #lock, "is held"), 0)))
#define lockdep_assert_held_write(sem)	((void)(sem_is_written(sem) ? 0 :	\
	(env_lockdep_failed(__FILE__, __LINE__, #sem, "is not held for writing"), 0)))

static inline void rwsem_acquire_read(struct lockdep_map *map, int subclass, int trylock, unsigned long ip)
{
	env_map_held = map;
}

static inline void rwsem_release(struct lockdep_map *map, unsigned long ip)
{
	if (env_map_held == map)
		env_map_held = NULL;
}

#else

#define lockdep_assert_held(lock)	((void)(lock))
#define lockdep_assert_not_held(lock)	((void)(lock))
#define lockdep_assert_held_write(sem)	((void)(sem))
#define rwsem_acquire_read(map, subclass, trylock, ip)	((void)(map))
#define rwsem_release(map, ip)		((void)(map))

#endif

/* Waiting for it is looked at only in the kernel. */
#define rwsem_acquire(map, subclass, trylock, ip)	((void)(map))

#define _THIS_IP_ 0

#endif
