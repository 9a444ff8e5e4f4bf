/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.  A killed program does not ask: only tests say that a thread is.
 * current tells threads apart, and nothing more.
 */
#ifndef TUX3_ENV_SCHED_SIGNAL_H
#define TUX3_ENV_SCHED_SIGNAL_H

#include <linux/compiler.h>
#include <linux/types.h>

struct task_struct;

extern __thread char env_thread_mark;
extern __thread bool env_killed;

static inline struct task_struct *get_current(void)
{
	return (struct task_struct *)&env_thread_mark;
}

#define current get_current()

static inline bool fatal_signal_pending(struct task_struct *task)
{
	return env_killed;
}

#endif
