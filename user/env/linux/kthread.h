/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * As in the kernel kthread_stop() makes kthread_should_stop() true in the thread, wakes it if it sleeps in
 * a wait_event() on any queue (so a condition with kthread_should_stop() in it needs no other
 * wake-up), waits until it has returned, and returns what it returned.  Every thread must be stopped once,
 * even if it has returned by itself: that frees it.
 */
#ifndef TUX3_ENV_KTHREAD_H
#define TUX3_ENV_KTHREAD_H

#include <linux/compiler.h>
#include <linux/types.h>

struct task_struct;

/* Returns ERR_PTR(-errno) on failure. */
struct task_struct *kthread_run(int (*fn)(void *data), void *data, const char *fmt, ...) __printf(3, 4);
int kthread_stop(struct task_struct *task);
bool kthread_should_stop(void);

#endif
