/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * A wait queue is a count of waiters and a futex word that every wake-up changes.
 *
 *	waiter: waiters++, barrier; then again and again: read seq, test the condition, sleep while
 *		the word is still that seq
 *	waker:	make the condition true, wake_up(): barrier, done if there are no waiters; else
 *		change seq and wake all
 *
 * Either the waker sees the waiter or the waiter sees the condition, and a change of seq after the
 * waiter read it keeps it from sleeping: no wake-up is lost.  The condition is tested without any
 * lock held, so it may take locks; it must read what it reads atomically.  Every waiter is woken, by
 * wake_up() too: in the kernel that is so for all waits but exclusive ones, which the core does not
 * use.  As in the kernel the queue must outlive wake_up(), not only the condition.
 */
#ifndef TUX3_ENV_WAIT_H
#define TUX3_ENV_WAIT_H

#include <linux/atomic.h>
#include <linux/compiler.h>
#include <linux/jiffies.h>
#include <linux/types.h>

typedef struct wait_queue_head {
	u32 seq;
	u32 waiters;
} wait_queue_head_t;

#define __WAIT_QUEUE_HEAD_INITIALIZER(name) { 0, 0 }
#define DECLARE_WAIT_QUEUE_HEAD(name) wait_queue_head_t name = __WAIT_QUEUE_HEAD_INITIALIZER(name)

static inline void init_waitqueue_head(wait_queue_head_t *wq)
{
	wq->seq = wq->waiters = 0;
}

void env_wait_begin(wait_queue_head_t *wq);
void env_wait_end(wait_queue_head_t *wq);
/* Sleep while wq->seq is seq; until deadline_ns (CLOCK_MONOTONIC), 0: for ever.  False: it is past. */
bool env_wait_sleep(wait_queue_head_t *wq, u32 seq, u64 deadline_ns);
u64 env_deadline_ns(long timeout);
long env_remaining_jiffies(u64 deadline_ns);
void env_wake(wait_queue_head_t *wq);

static inline bool wq_has_sleeper(wait_queue_head_t *wq)
{
	smp_mb();
	return __atomic_load_n(&wq->waiters, __ATOMIC_RELAXED) != 0;
}

static inline bool waitqueue_active(wait_queue_head_t *wq)
{
	return __atomic_load_n(&wq->waiters, __ATOMIC_RELAXED) != 0;
}

static inline void wake_up_all(wait_queue_head_t *wq)
{
	if (wq_has_sleeper(wq))
		env_wake(wq);
}

static inline void wake_up(wait_queue_head_t *wq)
{
	wake_up_all(wq);
}

#define env_wait_until(wq, condition, deadline_ns) do {			\
	env_wait_begin(wq);						\
	for (;;) {							\
		u32 env_seq = smp_load_acquire(&(wq)->seq);		\
									\
		smp_mb();						\
		if (condition)						\
			break;						\
		if (!env_wait_sleep(wq, env_seq, deadline_ns))		\
			break;						\
	}								\
	env_wait_end(wq);						\
} while (0)

#define wait_event(wq, condition) do {					\
	if (!(condition))						\
		env_wait_until(&(wq), condition, 0);			\
} while (0)

/* In the kernel: -ERESTARTSYS when the task is killed first.  A killed program does not ask. */
#define wait_event_killable(wq, condition) __extension__ ({ wait_event(wq, condition); 0; })

/* In the kernel: not counted as load, and does not keep the machine from being suspended. */
#define wait_event_freezable(wq, condition) wait_event(wq, condition)
#define wait_event_freezable_timeout(wq, condition, timeout) wait_event_timeout(wq, condition, timeout)

/* 0: the time is over and the condition still false.  Otherwise the jiffies left, at least 1. */
#define wait_event_timeout(wq, condition, timeout) __extension__ ({	\
	long env_timeout = (timeout);					\
	bool env_met = !!(condition);					\
									\
	if (!env_met) {							\
		u64 env_deadline = env_deadline_ns(env_timeout);	\
									\
		env_wait_until(&(wq), (env_met = !!(condition)), env_deadline);	\
		if (!env_met)						\
			env_met = !!(condition);			\
		env_timeout = env_remaining_jiffies(env_deadline);	\
	}								\
	env_met ? (env_timeout > 0 ? env_timeout : 1) : 0; })

#endif
