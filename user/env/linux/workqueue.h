/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * Threads are made when there is more queued than there are threads waiting for it, up to max_active, and end with the queue.
 * If not even the first one can be made, who queues work does it himself, and what others queue meanwhile: so he must hold no lock
 * that any of it takes.
 * As in the kernel, work that is queued and was not begun is not queued a second time, one item is never done by two at
 * once, and its memory must outlive the queue.
 */
#ifndef TUX3_ENV_WORKQUEUE_H
#define TUX3_ENV_WORKQUEUE_H

#include <linux/list.h>
#include <linux/types.h>

struct work_struct;
struct workqueue_struct;
typedef void (*work_func_t)(struct work_struct *work);

struct work_struct {
	work_func_t func;
	struct list_head entry;		/* of the queue; the queue's lock */
	bool pending, running;		/* likewise */
};

#define INIT_WORK(work, function) do {		\
	(work)->func = (function);		\
	INIT_LIST_HEAD(&(work)->entry);		\
	(work)->pending = (work)->running = false;	\
} while (0)

#define WQ_UNBOUND	2u		/* they always are */
#define WQ_MEM_RECLAIM	8u		/* without a thread for it, who asks does the work */
#define WQ_HIGHPRI	16u		/* not asked for: a program's threads have its own priority */

/* NULL: no memory. */
struct workqueue_struct *alloc_workqueue(const char *fmt, unsigned int flags, int max_active, ...) __printf(1, 4);
/* False: it was queued already. */
bool queue_work(struct workqueue_struct *queue, struct work_struct *work);
/* What is queued is done first. */
void destroy_workqueue(struct workqueue_struct *queue);

#endif
