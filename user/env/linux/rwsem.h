/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * As in the kernel a waiting writer goes before new readers, so a reader must not take it twice.
 */
#ifndef TUX3_ENV_RWSEM_H
#define TUX3_ENV_RWSEM_H

#include <pthread.h>
#include <linux/types.h>

struct rw_semaphore {
	pthread_rwlock_t lock;
};

void init_rwsem(struct rw_semaphore *sem);

static inline void down_read(struct rw_semaphore *sem)
{
	pthread_rwlock_rdlock(&sem->lock);
}

static inline bool down_read_trylock(struct rw_semaphore *sem)
{
	return !pthread_rwlock_tryrdlock(&sem->lock);
}

static inline void up_read(struct rw_semaphore *sem)
{
	pthread_rwlock_unlock(&sem->lock);
}

static inline void down_write(struct rw_semaphore *sem)
{
	pthread_rwlock_wrlock(&sem->lock);
}

static inline bool down_write_trylock(struct rw_semaphore *sem)
{
	return !pthread_rwlock_trywrlock(&sem->lock);
}

static inline void up_write(struct rw_semaphore *sem)
{
	pthread_rwlock_unlock(&sem->lock);
}

#endif
