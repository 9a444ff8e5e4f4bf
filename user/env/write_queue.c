/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes into the page cache of a file, done now or in the background.
 *
 * A write of at most DIRECT_BYTES is done at once by pwritev() in the submitting thread.  Measured
 * (Linux 6.18, ext4, 2 CPUs, microseconds for one write until its waiter runs again):
 *
 *			   4 KiB   64 KiB   128 KiB   256 KiB   1 MiB
 *	pwritev		     1.5      3.0       4.5	 10	 55
 *	io_uring	 8.5..66      9	     10		 20	 66
 *
 * io_uring can only hand a page cache write to a kernel thread, so it costs two thread switches and
 * saves none of the copying; for small writes its submission alone costs what the write does.
 * What it gives is that the submitter of 64 MiB goes on after 0.07 ms, not after 4 ms, while another CPU
 * copies.  So larger writes go to io_uring, each submitted at once (a system call per 256 KiB is
 * nothing), with IOSQE_ASYNC so that the copying is not done in the submission after all.
 * Where the kernel refuses io_uring, WRITERS threads do the same with pwritev().  A queue that is to have no thread
 * does all writes at once.
 *
 * At most QUEUE_MAX writes are under way; submitting one more waits for one to end, which needs
 * nothing of the submitter: the reaper or the writers end it.
 *
 * With a rate set, a write that is done goes on to the pacer thread, which ends it when a disk of this
 * speed would have, one write after the other.
 *
 * Locking: queue.lock protects the lists, `under_way`, the submission side of the ring and the
 * pacing; the completion side belongs to the reaper alone.  Nobody sleeps on I/O while holding it.
 */
#include <errno.h>
#include <limits.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <liburing.h>
#include "core/env.h"
#include "streams.h"
#include "write_queue.h"

#define DIRECT_BYTES	(256u << 10)
#define QUEUE_MAX	64u
#define WRITERS		2

struct write_request {
	struct list_head list;
	struct io_wait *wait;
	u64 offset;
	u64 bytes;
	u64 due_ns;		/* when the pacer is to end it */
	int err;
	bool published;		/* lets the reaper see what the submitter wrote: see ring_submit() */
	u32 vecs;
	struct iovec vec[];
};

struct write_queue {
	int fd;
	const char *name;		/* of the file, for messages; NULL: none */
	atomic_t told;			/* of a write that failed: what follows is its consequence */
	spinlock_t lock;
	u32 under_way;			/* requests given to the ring or the writers */
	wait_queue_head_t space;	/* under_way went down */

	bool alone;			/* no ring and no writers */
	struct list_head work;		/* for the writers */
	wait_queue_head_t more_work;
	struct task_struct *writers[WRITERS];

	bool has_ring;
	struct io_uring ring;
	struct task_struct *reaper;

	u64 rate;			/* bytes per second, or 0 */
	u64 idle_ns;			/* when the modelled disk has done all it was given */
	struct list_head paced;		/* in the order of due_ns */
	wait_queue_head_t more_paced;
	struct task_struct *pacer;	/* started by the first write_queue_set_rate() */
};

static void sleep_until(u64 ns)
{
	struct timespec until = { .tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static void tell_failure(struct write_queue *queue, u64 offset, int err)
{
	if (!err || !queue->name || atomic_xchg(&queue->told, 1))
		return;
	pr_err("%s: cannot write at offset %llu: %s\n", queue->name, (unsigned long long)offset,
	       err == -ENOSPC ? "the filesystem that it is on is full" : strerror(-err));
}

/* Write all of it, however many calls that takes.  vec is used up.  0 or -errno. */
static int write_all(int fd, struct iovec *vec, u32 vecs, u64 offset)
{
	while (vecs) {
		ssize_t done;

		if (!vec->iov_len) {
			vec++;
			vecs--;
			continue;
		}
		done = pwritev(fd, vec, min_t(u32, vecs, IOV_MAX), offset);
		if (done < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (done <= 0)
			return done ? -errno : -EIO;
		offset += done;
		while (vecs && done >= vec->iov_len) {
			done -= vec->iov_len;
			vec++;
			vecs--;
		}
		if (done) {
			vec->iov_base = (char *)vec->iov_base + done;
			vec->iov_len -= done;
		}
	}
	return 0;
}

/* The write is done, or has failed.  May consume the request. */
static void request_finish(struct write_queue *queue, struct write_request *request)
{
	tell_failure(queue, request->offset, request->err);
	spin_lock(&queue->lock);
	if (queue->rate) {
		u64 now = ktime_get_ns();

		queue->idle_ns = max(queue->idle_ns, now) +
			(u64)((double)request->bytes * NSEC_PER_SEC / queue->rate);
		request->due_ns = queue->idle_ns;
		list_add_tail(&request->list, &queue->paced);
		spin_unlock(&queue->lock);
		wake_up(&queue->more_paced);
		return;
	}
	spin_unlock(&queue->lock);
	io_wait_end(request->wait, request->err);
	kfree(request);
}

static struct write_request *request_paced_first(struct write_queue *queue)
{
	struct write_request *request;

	spin_lock(&queue->lock);
	request = list_first_entry_or_null(&queue->paced, struct write_request, list);
	spin_unlock(&queue->lock);
	return request;
}

/* Only the pacer takes requests off the list, so the first one stays the first. */
static int pacer(void *data)
{
	struct write_queue *queue = data;
	struct write_request *request;

	for (;;) {
		wait_event(queue->more_paced,
			   (request = request_paced_first(queue)) || kthread_should_stop());
		if (!request)
			return 0;
		sleep_until(request->due_ns);
		spin_lock(&queue->lock);
		list_del(&request->list);
		spin_unlock(&queue->lock);
		io_wait_end(request->wait, request->err);
		kfree(request);
	}
}

/* May one more be under way?  Then it is. */
static bool queue_enter(struct write_queue *queue)
{
	bool room;

	spin_lock(&queue->lock);
	room = queue->under_way < QUEUE_MAX;
	if (room)
		queue->under_way++;
	spin_unlock(&queue->lock);
	return room;
}

static void queue_leave(struct write_queue *queue)
{
	spin_lock(&queue->lock);
	queue->under_way--;
	spin_unlock(&queue->lock);
	wake_up(&queue->space);
}

static struct write_request *queue_take_work(struct write_queue *queue)
{
	struct write_request *request;

	spin_lock(&queue->lock);
	request = list_first_entry_or_null(&queue->work, struct write_request, list);
	if (request)
		list_del(&request->list);
	spin_unlock(&queue->lock);
	return request;
}

static int writer(void *data)
{
	struct write_queue *queue = data;
	struct write_request *request;

	for (;;) {
		wait_event(queue->more_work,
			   (request = queue_take_work(queue)) || kthread_should_stop());
		if (!request)
			return 0;
		request->err = write_all(queue->fd, request->vec, request->vecs, request->offset);
		queue_leave(queue);
		request_finish(queue, request);
	}
}

/*
 * One entry for the ring; NULL: the one that ends the reaper.  There is always room: the ring has more
 * entries than may be under way.  Failure to submit is shortage of memory, which passes.
 */
static void ring_submit(struct write_queue *queue, struct write_request *request)
{
	struct io_uring_sqe *sqe;

	if (request)
		smp_store_release(&request->published, true);
	spin_lock(&queue->lock);
	sqe = io_uring_get_sqe(&queue->ring);
	if (request) {
		io_uring_prep_writev(sqe, queue->fd, request->vec, request->vecs, request->offset);
		io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
	} else {
		io_uring_prep_nop(sqe);
	}
	io_uring_sqe_set_data(sqe, request);
	while (io_uring_submit(&queue->ring) < 0)
		sleep_until(ktime_get_ns() + NSEC_PER_MSEC);
	spin_unlock(&queue->lock);
}

/* The write itself has not failed.  -ECANCELED: the kernel may not have one more thread, which would have done it. */
static bool ring_gave_up(int err)
{
	return err == -EINTR || err == -EAGAIN || err == -ECANCELED;
}

/* What the ring did of a request; the rest, if it did not do all, is done here. */
static int ring_result(struct write_queue *queue, struct write_request *request, int done)
{
	u32 i;

	if (done == request->bytes)
		return 0;
	if (done < 0 && !ring_gave_up(done))
		return done;
	done = max(done, 0);
	request->offset += done;
	for (i = 0; i < request->vecs && done; i++) {
		struct iovec *vec = &request->vec[i];
		size_t some = min_t(size_t, done, vec->iov_len);

		vec->iov_base = (char *)vec->iov_base + some;
		vec->iov_len -= some;
		done -= some;
	}
	return write_all(queue->fd, request->vec, request->vecs, request->offset);
}

static int reaper(void *data)
{
	struct write_queue *queue = data;

	for (;;) {
		struct write_request *request;
		struct io_uring_cqe *cqe;
		int done;

		if (io_uring_wait_cqe(&queue->ring, &cqe))
			continue;
		request = io_uring_cqe_get_data(cqe);
		done = cqe->res;
		io_uring_cqe_seen(&queue->ring, cqe);
		if (!request)
			return 0;
		/* The way through the kernel is no synchronization that a race detector could see. */
		(void)smp_load_acquire(&request->published);
		request->err = ring_result(queue, request, done);
		queue_leave(queue);
		request_finish(queue, request);
	}
}

static int ring_open(struct write_queue *queue)
{
	int err = io_uring_queue_init(2 * QUEUE_MAX, &queue->ring, 0);

	if (err)
		return err;
	queue->ring.ring_fd = queue->ring.enter_ring_fd = beyond_standard_streams(queue->ring.ring_fd);
	if (queue->ring.ring_fd < 0) {
		io_uring_queue_exit(&queue->ring);
		return -EMFILE;
	}
	queue->reaper = kthread_run(reaper, queue, "tux3-reaper");
	if (IS_ERR(queue->reaper)) {
		io_uring_queue_exit(&queue->ring);
		return PTR_ERR(queue->reaper);
	}
	queue->has_ring = true;
	return 0;
}

static void ring_close(struct write_queue *queue)
{
	ring_submit(queue, NULL);
	kthread_stop(queue->reaper);
	io_uring_queue_exit(&queue->ring);
}

static void stop_writers(struct write_queue *queue)
{
	int i;

	for (i = 0; i < WRITERS && queue->writers[i]; i++)
		kthread_stop(queue->writers[i]);
}

static int start_writers(struct write_queue *queue)
{
	int i;

	for (i = 0; i < WRITERS; i++) {
		struct task_struct *task = kthread_run(writer, queue, "tux3-writer%d", i);

		if (IS_ERR(task)) {
			stop_writers(queue);
			return PTR_ERR(task);
		}
		queue->writers[i] = task;
	}
	return 0;
}

int write_queue_open(int fd, enum write_queue_kind kind, const char *name, struct write_queue **result)
{
	struct write_queue *queue = kzalloc(sizeof(*queue), GFP_KERNEL);
	int err;

	if (!queue)
		return -ENOMEM;
	queue->fd = fd;
	queue->name = name;
	queue->alone = kind == WRITE_QUEUE_ALONE;
	spin_lock_init(&queue->lock);
	INIT_LIST_HEAD(&queue->work);
	INIT_LIST_HEAD(&queue->paced);
	init_waitqueue_head(&queue->space);
	init_waitqueue_head(&queue->more_work);
	init_waitqueue_head(&queue->more_paced);
	if (!queue->alone && (kind == WRITE_QUEUE_THREADS || ring_open(queue))) {
		err = start_writers(queue);
		if (err) {
			kfree(queue);
			return err;
		}
	}
	*result = queue;
	return 0;
}

void write_queue_close(struct write_queue *queue)
{
	if (queue->has_ring)
		ring_close(queue);
	else
		stop_writers(queue);
	if (queue->pacer)
		kthread_stop(queue->pacer);
	kfree(queue);
}

const char *write_queue_method(struct write_queue *queue)
{
	return queue->has_ring ? "io_uring" : queue->alone ? "none" : "threads";
}

int write_queue_set_rate(struct write_queue *queue, u64 bytes_per_second)
{
	if (bytes_per_second && !queue->pacer) {
		struct task_struct *task = kthread_run(pacer, queue, "tux3-pacer");

		if (IS_ERR(task))
			return PTR_ERR(task);
		queue->pacer = task;
	}
	spin_lock(&queue->lock);
	WRITE_ONCE(queue->rate, bytes_per_second);
	spin_unlock(&queue->lock);
	return 0;
}

/* For a write that is not paced and needs no request of its own, or cannot get one. */
static void write_now(struct write_queue *queue, u64 offset, const struct kvec *vec, u32 vecs,
		      struct io_wait *wait)
{
	int err = 0;

	while (vecs && !err) {
		struct iovec some[64];
		u32 i, count = min_t(u32, vecs, ARRAY_SIZE(some));
		u64 bytes = 0;

		for (i = 0; i < count; i++) {
			some[i] = (struct iovec){ vec[i].iov_base, vec[i].iov_len };
			bytes += vec[i].iov_len;
		}
		err = write_all(queue->fd, some, count, offset);
		tell_failure(queue, offset, err);
		offset += bytes;
		vec += count;
		vecs -= count;
	}
	io_wait_end(wait, err);
}

void write_queue_submit(struct write_queue *queue, u64 offset, const struct kvec *vec, u32 vecs,
			struct io_wait *wait)
{
	struct write_request *request;
	u64 bytes = 0;
	bool at_once;
	u32 i;

	for (i = 0; i < vecs; i++)
		bytes += vec[i].iov_len;
	at_once = queue->alone || bytes <= DIRECT_BYTES;
	request = at_once && !READ_ONCE(queue->rate) ? NULL :
		kmalloc(sizeof(*request) + vecs * sizeof(request->vec[0]), GFP_NOFS);
	if (!request) {
		write_now(queue, offset, vec, vecs, wait);
		return;
	}
	*request = (struct write_request){
		.wait = wait,
		.offset = offset,
		.bytes = bytes,
		.vecs = vecs,
	};
	for (i = 0; i < vecs; i++)
		request->vec[i] = (struct iovec){ vec[i].iov_base, vec[i].iov_len };

	if (at_once || vecs > IOV_MAX) {
		request->err = write_all(queue->fd, request->vec, vecs, offset);
		request_finish(queue, request);
		return;
	}
	wait_event(queue->space, queue_enter(queue));
	if (queue->has_ring) {
		ring_submit(queue, request);
		return;
	}
	spin_lock(&queue->lock);
	list_add_tail(&request->list, &queue->work);
	spin_unlock(&queue->lock);
	wake_up(&queue->more_work);
}
