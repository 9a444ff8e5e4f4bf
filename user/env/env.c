/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What core/env.h promises, on pthreads and futexes: locks, waiting, threads.  Memory, time, chance,
 * messages and strings are in env_misc.c, algorithms in rbtree.c, sort.c, bitmap.c and hash.c.
 *
 * Locking: a kernel thread's task.waiting_on is protected by task.lock, taken inside no other
 * lock and around none.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>
#include "core/env.h"
#include "clock.h"
#include "fault.h"

#ifdef TUX3_ENV_TSAN
int env_fence;
#endif

unsigned int env_cpus = 1;

static void __attribute__((constructor(101))) env_start(void)
{
	env_cpus = max(get_nprocs_conf(), 1);
}

/* Locks.  Adaptive: spin a little, as the kernel's do, before sleeping. */

void init_rwsem(struct rw_semaphore *sem)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&sem->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
}

__thread char env_thread_mark;
__thread bool env_killed;

#ifdef TUX3_LOCKDEP
__thread const struct lockdep_map *env_map_held;

void env_lockdep_failed(const char *file, int line, const char *lock, const char *how)
{
	fprintf(stderr, "%s:%d: %s %s by this thread\n", file, line, lock, how);
	abort();
}

void futex_owner_failed(const char *how)
{
	fprintf(stderr, "a lock %s by this thread\n", how);
	abort();
}
#endif

/* Sleep until somebody wakes this word, but not if it is not (no longer) value. */
/* Until a time of ktime_get_ns(); 0: for ever. */
static bool futex_wait(u32 *word, u32 value, u64 deadline_ns)
{
	u64 real_ns = deadline_ns - min(deadline_ns, env_passed_ns());
	struct timespec until = {
		.tv_sec = real_ns / NSEC_PER_SEC,
		.tv_nsec = real_ns % NSEC_PER_SEC,
	};
	long err = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
			   deadline_ns ? &until : NULL, NULL, FUTEX_BITSET_MATCH_ANY);

	return !(err && errno == ETIMEDOUT);
}

static void futex_wake_all(u32 *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#define LOCK_SPINS 100		/* looks at a taken lock before sleeping: its owner may be about to let go */

void futex_lock_slow(struct futex_lock *lock)
{
	int i;

	for (i = 0; i < LOCK_SPINS; i++) {
		if (!__atomic_load_n(&lock->state, __ATOMIC_RELAXED) && futex_trylock(lock))
			return;
		__builtin_ia32_pause();
	}
	while (__atomic_exchange_n(&lock->state, 2, __ATOMIC_ACQUIRE))
		futex_wait(&lock->state, 2, 0);
}

/*
 * The same for these, which are held longer: for an edit of the tree, or a look into it.  To sleep, and be woken, takes as
 * long as several of those; and two who do that in turns get nothing else done.
 */
#define RWSEM_SPINS 400

static bool rwsem_spin(struct rw_semaphore *sem, int (*try)(pthread_rwlock_t *lock))
{
	int i;

	for (i = 0; i < RWSEM_SPINS; i++) {
		__builtin_ia32_pause();
		if (!try(&sem->lock))
			return true;
	}
	return false;
}

void rwsem_read_slow(struct rw_semaphore *sem)
{
	if (!rwsem_spin(sem, pthread_rwlock_tryrdlock))
		pthread_rwlock_rdlock(&sem->lock);
}

void rwsem_write_slow(struct rw_semaphore *sem)
{
	if (!rwsem_spin(sem, pthread_rwlock_trywrlock))
		pthread_rwlock_wrlock(&sem->lock);
}

void futex_unlock_slow(struct futex_lock *lock)
{
	syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Threads and wait queues: linux/wait.h tells how they work. */

struct task_struct {
	pthread_t thread;
	pthread_mutex_t lock;
	wait_queue_head_t *waiting_on;	/* under lock; what kthread_stop() must wake */
	bool should_stop;
	int (*fn)(void *data);
	void *data;
	int result;
};

static __thread struct task_struct *env_task;	/* NULL in a thread that kthread_run() did not make */

static void task_waits_on(struct task_struct *task, wait_queue_head_t *wq)
{
	if (!task)
		return;
	pthread_mutex_lock(&task->lock);
	task->waiting_on = wq;
	pthread_mutex_unlock(&task->lock);
}

void env_wait_begin(wait_queue_head_t *wq)
{
	task_waits_on(env_task, wq);
	__atomic_fetch_add(&wq->waiters, 1, __ATOMIC_SEQ_CST);
	smp_mb();
}

void env_wait_end(wait_queue_head_t *wq)
{
	task_waits_on(env_task, NULL);
	__atomic_fetch_sub(&wq->waiters, 1, __ATOMIC_SEQ_CST);
}

bool env_wait_sleep(wait_queue_head_t *wq, u32 seq, u64 deadline_ns)
{
	return futex_wait(&wq->seq, seq, deadline_ns);
}

void env_wake(wait_queue_head_t *wq)
{
	__atomic_fetch_add(&wq->seq, 1, __ATOMIC_SEQ_CST);
	futex_wake_all(&wq->seq);
}

u64 env_deadline_ns(long timeout)
{
	u64 now = ktime_get_ns();
	u64 wait_ns;

	if (timeout <= 0)
		return now;
	if (__builtin_mul_overflow((u64)timeout, (u64)(NSEC_PER_SEC / HZ), &wait_ns) ||
	    wait_ns > S64_MAX - now)
		return S64_MAX;
	return now + wait_ns;
}

long env_remaining_jiffies(u64 deadline_ns)
{
	u64 now = ktime_get_ns();

	return deadline_ns > now ? (deadline_ns - now) / (NSEC_PER_SEC / HZ) : 0;
}

static void *kthread_main(void *arg)
{
	struct task_struct *task = arg;

	env_task = task;
	task->result = task->fn(task->data);
	return NULL;
}

static bool no_threads;		/* atomic */

void env_fail_threads(bool on)
{
	__atomic_store_n(&no_threads, on, __ATOMIC_SEQ_CST);
}

/* Threads take no signals: these belong to the program. */
static int kthread_start(struct task_struct *task)
{
	sigset_t all, old;
	int err;

	if (__atomic_load_n(&no_threads, __ATOMIC_RELAXED))
		return -EAGAIN;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&task->thread, NULL, kthread_main, task);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

struct task_struct *kthread_run(int (*fn)(void *data), void *data, const char *fmt, ...)
{
	struct task_struct *task = kzalloc(sizeof(*task), GFP_KERNEL);
	char name[16];
	va_list args;
	int err;

	if (!task)
		return ERR_PTR(-ENOMEM);
	pthread_mutex_init(&task->lock, NULL);
	task->fn = fn;
	task->data = data;
	err = kthread_start(task);
	if (err) {
		kfree(task);
		return ERR_PTR(err);
	}
	va_start(args, fmt);
	vscnprintf(name, sizeof(name), fmt, args);
	va_end(args);
	pthread_setname_np(task->thread, name);
	return task;
}

int kthread_stop(struct task_struct *task)
{
	int result;

	pthread_mutex_lock(&task->lock);
	__atomic_store_n(&task->should_stop, true, __ATOMIC_SEQ_CST);
	if (task->waiting_on)
		env_wake(task->waiting_on);
	pthread_mutex_unlock(&task->lock);
	pthread_join(task->thread, NULL);
	result = task->result;
	kfree(task);
	return result;
}

bool kthread_should_stop(void)
{
	return env_task && __atomic_load_n(&env_task->should_stop, __ATOMIC_SEQ_CST);
}

/* Completions. */

#define DONE_MASK	0xffffu		/* all ones: for ever */
#define ONE_WAITER	0x10000u

static void complete_to(struct completion *done, bool for_ever)
{
	u32 old = __atomic_load_n(&done->state, __ATOMIC_RELAXED);
	u32 new;

	do {
		new = for_ever ? old | DONE_MASK : (old & DONE_MASK) == DONE_MASK ? old : old + 1;
	} while (!__atomic_compare_exchange_n(&done->state, &old, new, false,
					      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	/* From here on the completion may be gone.  Waking its address is harmless. */
	if (old & ~DONE_MASK)
		futex_wake_all(&done->state);
}

void complete(struct completion *done)
{
	complete_to(done, false);
}

void complete_all(struct completion *done)
{
	complete_to(done, true);
}

void wait_for_completion(struct completion *done)
{
	u32 state = __atomic_add_fetch(&done->state, ONE_WAITER, __ATOMIC_SEQ_CST);

	for (;;) {
		u32 count = state & DONE_MASK;

		if (!count) {
			futex_wait(&done->state, state, 0);
			state = __atomic_load_n(&done->state, __ATOMIC_SEQ_CST);
			continue;
		}
		if (__atomic_compare_exchange_n(&done->state, &state,
						state - ONE_WAITER - (count != DONE_MASK), false,
						__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return;
	}
}

bool completion_done(struct completion *done)
{
	return __atomic_load_n(&done->state, __ATOMIC_SEQ_CST) & DONE_MASK;
}
