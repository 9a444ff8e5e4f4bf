/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The threads that serve the kernel.
 *
 * A worker reads a request, has it answered, and reads again.  Each has its own descriptor of the
 * connection, so that requests under way are kept on lists of their own in the kernel.  When the last one
 * that was waiting for a request gets one, another is woken or made, because any operation may sleep (for
 * the device, for space); when too many wait, the surplus is parked.
 *
 * Where the kernel has io_uring for FUSE, ring.c takes over after the handshake, and what is left for a worker
 * here is "forget".
 *
 * Invariant: as long as the loop runs, one worker waits for requests, or threads_max are busy.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "ring.h"
#include "tux3_fuse.h"

/* As many wait for a request; more are parked. */
#define IDLE_MAX 2
#define WORKERS_LIMIT 64
/* With rings only "forget" comes to us: a crowd of them if we wait so long for it. */
#define FORGET_PAUSE_NS (1000 * 1000)
#define REQUEST_SIZE (REQUEST_MAX + REQUEST_HEADER_MAX)

struct worker {
	pthread_t thread;
	int fd;				/* the connection; closed by the worker if it is not loop.fd */
	char *request, *buffer;
};

static struct {
	int fd, done_fd;
	atomic_int idle;		/* workers waiting for a request, or about to */
	atomic_bool stop;
	pthread_mutex_t lock;		/* for all below */
	pthread_cond_t wake;
	unsigned int parked, wakeups, count, running;
	struct worker *workers[WORKERS_LIMIT];
} loop = { .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER };

static __thread struct worker *self;

void *worker_buffer(void)
{
	return ring_is_self() ? ring_buffer() : self->buffer;
}

void *worker_reply_buffer(void)
{
	return ring_is_self() ? ring_reply_buffer() : self->buffer;
}

ssize_t loop_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	const struct fuse_out_header *head = iov[0].iov_base;
	bool rings = wire_answer(iov, count);
	ssize_t len;

	(void)userdata;
	if (ring_answers(head->unique))
		return ring_answer(iov, count);
	len = writev(self ? self->fd : fd, iov, count);
	if (rings && len > 0)
		ring_start(loop.fd, loop.done_fd);
	return len;
}

/* Only there because libfuse wants one: the workers read for themselves. */
ssize_t loop_read(int fd, void *buf, size_t size, void *userdata)
{
	(void)userdata;
	return read(fd, buf, size);
}

static void *worker_run(void *arg);

/* loop.lock held.  Not being able to is no error: there is at least one already. */
static int worker_start(void)
{
	struct worker *worker;
	size_t size = REQUEST_SIZE + REQUEST_MAX;
	int err;

	if (loop.count >= mount_state.threads_max || loop.count >= WORKERS_LIMIT)
		return -EAGAIN;
	worker = calloc(1, sizeof(*worker));
	if (!worker)
		return -ENOMEM;
	/* Pages that no request is long enough to reach are never there. */
	worker->request = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (worker->request == MAP_FAILED) {
		free(worker);
		return -ENOMEM;
	}
	worker->buffer = worker->request + REQUEST_SIZE;
	worker->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (worker->fd >= 0 && ioctl(worker->fd, FUSE_DEV_IOC_CLONE, &loop.fd) < 0) {
		close(worker->fd);
		worker->fd = -1;
	}
	if (worker->fd < 0)
		worker->fd = loop.fd;
	err = pthread_create(&worker->thread, NULL, worker_run, worker);
	if (err) {
		if (worker->fd != loop.fd)
			close(worker->fd);
		munmap(worker->request, size);
		free(worker);
		return -err;
	}
	loop.workers[loop.count++] = worker;
	loop.running++;
	return 0;
}

/* Nobody waits for requests any more. */
static void want_worker(void)
{
	pthread_mutex_lock(&loop.lock);
	if (loop.parked > loop.wakeups) {
		loop.wakeups++;
		pthread_cond_signal(&loop.wake);
	} else {
		worker_start();
	}
	pthread_mutex_unlock(&loop.lock);
}

static void park(void)
{
	pthread_mutex_lock(&loop.lock);
	loop.parked++;
	while (!loop.wakeups && !loop.stop)
		pthread_cond_wait(&loop.wake, &loop.lock);
	if (loop.wakeups)
		loop.wakeups--;
	loop.parked--;
	pthread_mutex_unlock(&loop.lock);
}

/* The size of the next request, or 0 when there will be none. */
static size_t next_request(void)
{
	ssize_t len;

	while (!loop.stop) {
		len = read(self->fd, self->request, REQUEST_SIZE);
		if (len > 0)
			return len;
		if (len == 0 || errno == ENODEV)
			break;
		/* ENOENT: the request was taken back. */
		if (errno != EINTR && errno != EAGAIN && errno != ENOENT) {
			complain("%s: cannot read requests from the kernel: %s.", mount_state.image, strerror(errno));
			break;
		}
	}
	return 0;
}

static void worker_serve(size_t size)
{
	struct fuse_buf buf = { .mem = self->request, .size = size, .fd = -1 };

	if (!wire_request(self->fd, self->request, size))
		fuse_session_process_buf(mount_state.session, &buf);
}

/* With rings there is no hurry, and nothing that may sleep: one is enough. */
static bool too_many_wait(void)
{
	return atomic_load(&loop.idle) >= (ring_running() ? 1 : IDLE_MAX);
}

static void *worker_run(void *arg)
{
	const struct timespec pause = { .tv_nsec = FORGET_PAUSE_NS };
	const uint64_t one = 1;
	size_t size;

	self = arg;
	while (!loop.stop) {
		if (too_many_wait())
			park();
		atomic_fetch_add(&loop.idle, 1);
		if (ring_running())
			nanosleep(&pause, NULL);
		size = next_request();
		if (!size)
			break;
		if (atomic_fetch_sub(&loop.idle, 1) == 1 && !ring_running())
			want_worker();
		worker_serve(size);
	}
	pthread_mutex_lock(&loop.lock);
	loop.stop = true;
	loop.running--;
	pthread_cond_broadcast(&loop.wake);
	pthread_mutex_unlock(&loop.lock);
	(void)!write(loop.done_fd, &one, sizeof(one));
	return NULL;
}

static void woken(int signal)
{
	(void)signal;
}

int loop_start(int fd)
{
	struct sigaction action = { .sa_handler = woken };
	int err;

	loop.fd = fd;
	loop.done_fd = eventfd(0, EFD_CLOEXEC);
	if (loop.done_fd < 0)
		return -errno;
	/* Without SA_RESTART: the read ends. */
	sigaction(SIGNAL_STOP, &action, NULL);
	pthread_mutex_lock(&loop.lock);
	err = worker_start();
	pthread_mutex_unlock(&loop.lock);
	return err;
}

int loop_done_fd(void)
{
	return loop.done_fd;
}

bool loop_is_worker(void)
{
	return self || ring_is_self();
}

/* Until so many are left. */
static void stop_but(unsigned int left)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	unsigned int running;

	loop.stop = true;
	for (;;) {
		running = ring_stop_begun();
		pthread_mutex_lock(&loop.lock);
		running += loop.running;
		pthread_cond_broadcast(&loop.wake);
		/* Again and again: a signal just before the read is lost. */
		for (unsigned int i = 0; i < loop.count && loop.running; i++)
			if (loop.workers[i] != self)
				pthread_kill(loop.workers[i]->thread, SIGNAL_STOP);
		pthread_mutex_unlock(&loop.lock);
		if (running <= left)
			return;
		nanosleep(&pause, NULL);
	}
}

void loop_stop_others(void)
{
	stop_but(1);
}

void loop_stop(void)
{
	stop_but(0);
	for (unsigned int i = 0; i < loop.count; i++) {
		struct worker *worker = loop.workers[i];

		pthread_join(worker->thread, NULL);
		if (worker->fd != loop.fd)
			close(worker->fd);
		munmap(worker->request, REQUEST_SIZE + REQUEST_MAX);
		free(worker);
	}
	ring_free();
	close(loop.done_fd);
}
