/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * As in the kernel, a completion may be freed as soon as wait_for_completion() has returned:
 * complete() reads and changes it in one atomic step and then knows no more than its address.
 */
#ifndef TUX3_ENV_COMPLETION_H
#define TUX3_ENV_COMPLETION_H

#include <linux/types.h>

struct completion {
	u32 state;		/* low half: completions not yet waited for; high half: waiters */
};

static inline void init_completion(struct completion *done)
{
	__atomic_store_n(&done->state, 0, __ATOMIC_RELAXED);
}

static inline void reinit_completion(struct completion *done)
{
	init_completion(done);
}

void complete(struct completion *done);
void complete_all(struct completion *done);
void wait_for_completion(struct completion *done);
/* In the kernel the time counts as waiting for I/O. */
#define wait_for_completion_io(done) wait_for_completion(done)
/* There nobody watches how long a task sleeps: the time is never over. */
#define wait_for_completion_io_timeout(done, timeout) ((void)(timeout), wait_for_completion(done), 1ul)
/* A killed program does not ask. */
#define wait_for_completion_killable(done) (wait_for_completion(done), 0)
bool completion_done(struct completion *done);

#endif
