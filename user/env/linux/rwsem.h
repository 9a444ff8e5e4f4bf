/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * As in the kernel a waiting writer goes before new readers, so a reader must not take it twice.
 */
#ifndef TUX3_ENV_RWSEM_H
#define TUX3_ENV_RWSEM_H

#include <pthread.h>
#include <linux/futex_lock.h>
#include <linux/types.h>

struct rw_semaphore {
	pthread_rwlock_t lock;
#ifdef TUX3_LOCKDEP
	unsigned long owner;	/* env_lock_self() of who writes */
	u32 readers;
#endif
};

#ifdef TUX3_LOCKDEP
#define sem_note_readers(sem, n) ((void)__atomic_add_fetch(&(sem)->readers, n, __ATOMIC_RELAXED))
#define sem_set_owner(sem, who) __atomic_store_n(&(sem)->owner, who, __ATOMIC_RELAXED)
#define sem_is_written(sem) (__atomic_load_n(&(sem)->owner, __ATOMIC_RELAXED) == env_lock_self())
#else
#define sem_note_readers(sem, n) ((void)(sem))
#define sem_set_owner(sem, who) ((void)(sem))
#endif

void init_rwsem(struct rw_semaphore *sem);
/* Somebody has it. */
void rwsem_read_slow(struct rw_semaphore *sem);
void rwsem_write_slow(struct rw_semaphore *sem);

static inline void down_read(struct rw_semaphore *sem)
{
	if (pthread_rwlock_tryrdlock(&sem->lock))
		rwsem_read_slow(sem);
	sem_note_readers(sem, 1);
}

static inline bool down_read_trylock(struct rw_semaphore *sem)
{
	if (pthread_rwlock_tryrdlock(&sem->lock))
		return false;
	sem_note_readers(sem, 1);
	return true;
}

static inline void up_read(struct rw_semaphore *sem)
{
	sem_note_readers(sem, -1);
	pthread_rwlock_unlock(&sem->lock);
}

static inline void down_write(struct rw_semaphore *sem)
{
	if (pthread_rwlock_trywrlock(&sem->lock))
		rwsem_write_slow(sem);
	sem_set_owner(sem, env_lock_self());
}

static inline bool down_write_trylock(struct rw_semaphore *sem)
{
	if (pthread_rwlock_trywrlock(&sem->lock))
		return false;
	sem_set_owner(sem, env_lock_self());
	return true;
}

static inline void up_write(struct rw_semaphore *sem)
{
	sem_set_owner(sem, 0);
	pthread_rwlock_unlock(&sem->lock);
}

#endif
