/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * linux/workqueue.h on threads.
 *
 * Locking: queue->lock for all of it.
 */
#include "core/env.h"

#define WORKERS_MAX 8

struct workqueue_struct {
	struct mutex lock;
	wait_queue_head_t wait;
	struct list_head works;
	struct task_struct *workers[WORKERS_MAX];
	int worker_count, max, idle;
	char name[16];
};

/* The first that nobody is doing, or NULL.  With the lock. */
static struct work_struct *work_next(struct workqueue_struct *queue)
{
	struct work_struct *work;

	list_for_each_entry(work, &queue->works, entry)
		if (!work->running)
			return work;
	return NULL;
}

/* With the lock, which is dropped meanwhile. */
static void work_do(struct workqueue_struct *queue, struct work_struct *work)
{
	list_del_init(&work->entry);
	work->pending = false;
	work->running = true;
	mutex_unlock(&queue->lock);
	work->func(work);
	mutex_lock(&queue->lock);
	work->running = false;
}

static bool work_is_there(struct workqueue_struct *queue)
{
	bool there;

	mutex_lock(&queue->lock);
	there = work_next(queue);
	mutex_unlock(&queue->lock);
	return there;
}

static int worker(void *data)
{
	struct workqueue_struct *queue = data;
	struct work_struct *work;

	mutex_lock(&queue->lock);
	for (;;) {
		work = work_next(queue);
		if (work) {
			work_do(queue, work);
			continue;
		}
		if (kthread_should_stop())
			break;
		queue->idle++;
		mutex_unlock(&queue->lock);
		wait_event(queue->wait, work_is_there(queue) || kthread_should_stop());
		mutex_lock(&queue->lock);
		queue->idle--;
	}
	mutex_unlock(&queue->lock);
	return 0;
}

struct workqueue_struct *alloc_workqueue(const char *fmt, unsigned int flags, int max_active, ...)
{
	struct workqueue_struct *queue = kzalloc(sizeof(*queue), GFP_KERNEL);
	va_list args;

	if (!queue)
		return NULL;
	mutex_init(&queue->lock);
	init_waitqueue_head(&queue->wait);
	INIT_LIST_HEAD(&queue->works);
	queue->max = clamp(max_active, 1, WORKERS_MAX);
	va_start(args, max_active);
	vscnprintf(queue->name, sizeof(queue->name), fmt, args);
	va_end(args);
	return queue;
}

/* With the lock. */
static void add_worker(struct workqueue_struct *queue)
{
	struct task_struct *task = kthread_run(worker, queue, "%s", queue->name);

	if (!IS_ERR(task))
		queue->workers[queue->worker_count++] = task;
}

/* What somebody does just now and is queued again, he does: as here, he looks again afterwards.  With the lock. */
static void do_without_workers(struct workqueue_struct *queue)
{
	struct work_struct *work;

	while (!queue->worker_count && (work = work_next(queue)))
		work_do(queue, work);
}

bool queue_work(struct workqueue_struct *queue, struct work_struct *work)
{
	struct work_struct *each;
	int waiting = 0;

	mutex_lock(&queue->lock);
	if (work->pending) {
		mutex_unlock(&queue->lock);
		return false;
	}
	work->pending = true;
	list_add_tail(&work->entry, &queue->works);
	list_for_each_entry(each, &queue->works, entry)
		waiting++;
	if (waiting > queue->idle && queue->worker_count < queue->max)
		add_worker(queue);
	do_without_workers(queue);
	mutex_unlock(&queue->lock);
	wake_up(&queue->wait);
	return true;
}

void destroy_workqueue(struct workqueue_struct *queue)
{
	while (queue->worker_count)
		kthread_stop(queue->workers[--queue->worker_count]);
	WARN_ON_ONCE(!list_empty(&queue->works));
	kfree(queue);
}
