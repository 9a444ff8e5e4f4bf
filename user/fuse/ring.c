/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests by io_uring, which Linux 6.14 and newer have if /sys/module/fuse/parameters/enable_uring is Y.
 *
 * The kernel keeps a queue for each CPU, and a request goes to that of the CPU its caller runs on.  So it
 * is served there: waking a thread on another CPU costs more than most operations.  A thread has a ring
 * and an entry of its own: one command at a time, which gives the answer to a request and waits for the
 * next one.  It stays in the queue it was registered for.  When the last entry of a queue that waited
 * gets a request, another thread is started for it, because any operation may sleep.
 *
 * Requests come in two parts: the headers, of fixed place, and the payload.  libfuse wants them as one, so
 * the headers are copied to just before the payload.  The answer takes the same places.
 *
 * "forget" and interrupts still come through /dev/fuse, and what the kernel is told without having asked
 * (invalidations) goes there.
 *
 * Invariant: as long as the rings run, an entry of each queue waits for requests, or entries_max of it are busy.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <liburing.h>

#include "ring.h"
#include "tux3_fuse.h"

/* The kernel's user interface, <linux/fuse.h> of 6.14, protocol 7.42. */
#define WIRE_HEADER_SIZE 128u
#define WIRE_REGISTER 1u
#define WIRE_COMMIT_AND_FETCH 2u

struct wire_ring_header {
	char in_out[WIRE_HEADER_SIZE];	/* struct fuse_in_header, struct fuse_out_header */
	char operation[WIRE_HEADER_SIZE];	/* the request's first structure */
	uint64_t flags, commit_id;
	uint32_t payload_size, spare;
	uint64_t spare2;
};

struct wire_ring_command {
	uint64_t flags, commit_id;
	uint16_t queue;
	uint8_t spare[6];
};
_Static_assert(sizeof(struct wire_ring_header) == 288 && sizeof(struct wire_ring_command) == 24,
	       "FUSE over io_uring, protocol 7.42");

#define QUEUES_MAX 256u
#define ENTRIES_MAX 64u		/* of one queue */
#define ENTRIES_LEAST 8u
#define ALONE_BEFORE_BOUND 2u
/* Before the payload: both headers. */
#define HEADROOM 4096u
#define AREA_SIZE (HEADROOM + REQUEST_MAX + REQUEST_MAX)

struct entry {
	struct queue *queue;
	pthread_t thread;
	struct io_uring ring;
	struct wire_ring_header header;
	struct iovec places[2];
	char *payload, *buffer;		/* REQUEST_MAX bytes each */
	uint64_t unique;		/* the request being served */
	bool answered;
	bool first;			/* of its queue */
	unsigned int alone;		/* requests in a row that came when all others waited */
};

struct queue {
	unsigned int number;
	atomic_uint waiting;		/* entries that wait for a request, or are about to */
	atomic_uint count;		/* rings.lock to change it */
	struct entry *entries[ENTRIES_MAX];
	_Atomic(struct entry *) bound;	/* its thread stays on the queue's CPU; rings.lock to change it */
};

static struct {
	int fd, done_fd;
	unsigned int queue_count, entries_max;	/* of each queue */
	struct queue *queues;
	cpu_set_t cpus;			/* those we may use */
	atomic_bool running, stop, failed;
	pthread_mutex_t lock;		/* for all below, and the queues' entries */
	unsigned int threads;
} rings = { .lock = PTHREAD_MUTEX_INITIALIZER };

static __thread struct entry *self;

bool ring_running(void)
{
	return rings.running;
}

bool ring_is_self(void)
{
	return self;
}

void *ring_buffer(void)
{
	return self->buffer;
}

void *ring_reply_buffer(void)
{
	return self->payload;
}

/* Not so what the kernel did not ask for: that has no number. */
bool ring_answers(uint64_t unique)
{
	return self && self->unique == unique;
}

ssize_t ring_answer(struct iovec *iov, int count)
{
	const struct fuse_out_header *head = iov[0].iov_base;
	size_t size = 0;

	memcpy(self->header.in_out, head, sizeof(*head));
	for (int i = 1; i < count; i++) {
		if (size + iov[i].iov_len > REQUEST_MAX) {
			errno = EINVAL;
			return -1;
		}
		/* Often it is there already: worker_reply_buffer(). */
		if (iov[i].iov_base != self->payload + size)
			memmove(self->payload + size, iov[i].iov_base, iov[i].iov_len);
		size += iov[i].iov_len;
	}
	self->header.payload_size = size;
	self->answered = true;
	return head->len;
}

/* The number of CPUs there can ever be: the kernel has as many queues.  0: it does not count them from 0 to the end. */
static unsigned int possible_cpus(void)
{
	unsigned int first = 0, last = 0;
	char text[64] = "", rest = 0;
	int count;
	FILE *f = fopen("/sys/devices/system/cpu/possible", "re");

	if (!f)
		return 0;
	if (!fgets(text, sizeof(text), f))
		text[0] = '\0';
	fclose(f);
	/* "0" or "0-3". */
	count = sscanf(text, "%u-%u%c", &first, &last, &rest);
	if (count < 1 || first != 0 || (count == 1 && strchr(text, ',')) || rest == ',')
		return 0;
	return last + 1;
}

static void entry_free(struct entry *entry)
{
	io_uring_queue_exit(&entry->ring);
	munmap(entry->payload - HEADROOM, AREA_SIZE);
	free(entry);
}

static struct entry *entry_new(struct queue *queue)
{
	const unsigned int flags = IORING_SETUP_SQE128 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
				   IORING_SETUP_R_DISABLED;
	struct entry *entry = calloc(1, sizeof(*entry));
	char *area;

	if (!entry)
		return NULL;
	/* Pages that no request is long enough to reach are never there. */
	area = mmap(NULL, AREA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		goto out_free;
	if (io_uring_queue_init(1, &entry->ring, flags))
		goto out_unmap;
	entry->queue = queue;
	entry->payload = area + HEADROOM;
	entry->buffer = entry->payload + REQUEST_MAX;
	entry->places[0] = (struct iovec) { &entry->header, sizeof(entry->header) };
	entry->places[1] = (struct iovec) { entry->payload, REQUEST_MAX };
	return entry;
out_unmap:
	munmap(area, AREA_SIZE);
out_free:
	free(entry);
	return NULL;
}

static void command(struct entry *entry, unsigned int code)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&entry->ring);
	struct wire_ring_command *cmd;

	/* The one place is free: the command before has been submitted. */
	if (!sqe)
		abort();
	cmd = (void *)sqe->cmd;
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = rings.fd;
	sqe->cmd_op = code;
	cmd->queue = entry->queue->number;
	if (code == WIRE_REGISTER) {
		sqe->addr = (uintptr_t)entry->places;
		sqe->len = 2;
	} else {
		cmd->commit_id = entry->header.commit_id;
	}
}

/* 0: there is a request.  Else there will be none. */
static int next_request(struct entry *entry)
{
	struct io_uring_cqe *cqe;
	int err;

	do {
		if (rings.stop) {
			/* The answer to the last request, if there is one. */
			io_uring_submit(&entry->ring);
			return -ECANCELED;
		}
		err = io_uring_submit_and_wait(&entry->ring, 1);
	} while (err == -EINTR || err == -EAGAIN || (err >= 0 && io_uring_peek_cqe(&entry->ring, &cqe)));
	if (err < 0)
		return err;
	err = cqe->res;
	io_uring_cqe_seen(&entry->ring, cqe);
	return err;
}

static void serve(struct entry *entry)
{
	const struct fuse_in_header *head = (const void *)entry->header.in_out;
	size_t operation = head->len - sizeof(*head) - entry->header.payload_size;
	char *request = entry->payload - operation - sizeof(*head);
	struct fuse_buf buf = { .mem = request, .size = head->len, .fd = -1 };

	entry->answered = false;
	entry->unique = head->unique;
	if (head->len >= sizeof(*head) + entry->header.payload_size && operation <= WIRE_HEADER_SIZE) {
		memcpy(request, head, sizeof(*head));
		memcpy(request + sizeof(*head), entry->header.operation, operation);
		if (!wire_request(rings.fd, request, buf.size))
			fuse_session_process_buf(mount_state.session, &buf);
	}
	if (!entry->answered) {
		struct fuse_out_header out = { .len = sizeof(out), .error = -EIO, .unique = head->unique };
		struct iovec iov = { &out, sizeof(out) };

		ring_answer(&iov, 1);
	}
	entry->unique = 0;
}

static int thread_start(struct queue *queue, struct entry *entry);

/*
 * The kernel takes the entry first that has waited least, so one entry does all as long as requests come one by one.
 * That one is to run where the caller waits.  The others are for requests that come together (readahead,
 * several callers), and go where a CPU is idle.
 */
static void bind_thread(struct entry *entry)
{
	struct queue *queue = entry->queue;
	cpu_set_t cpu;

	if (queue->number >= CPU_SETSIZE || !CPU_ISSET(queue->number, &rings.cpus))
		return;
	CPU_ZERO(&cpu);
	CPU_SET(queue->number, &cpu);
	pthread_mutex_lock(&rings.lock);
	if (queue->bound)
		pthread_setaffinity_np(queue->bound->thread, sizeof(rings.cpus), &rings.cpus);
	/* It fails for a CPU that is switched off, from which no requests come either. */
	pthread_setaffinity_np(entry->thread, sizeof(cpu), &cpu);
	queue->bound = entry;
	pthread_mutex_unlock(&rings.lock);
}

static void want_thread(struct queue *queue)
{
	struct entry *entry;

	pthread_mutex_lock(&rings.lock);
	if (queue->count < rings.entries_max && !rings.stop) {
		entry = entry_new(queue);
		if (entry && thread_start(queue, entry))
			entry_free(entry);
	}
	pthread_mutex_unlock(&rings.lock);
}

static void begin_request(struct entry *entry)
{
	struct queue *queue = entry->queue;
	unsigned int waiting = atomic_fetch_sub(&queue->waiting, 1) - 1;

	if (!waiting && queue->count < rings.entries_max)
		want_thread(queue);
	if (queue->bound == entry)
		return;
	if (waiting + 1 < queue->count)
		entry->alone = 0;
	else if (++entry->alone >= ALONE_BEFORE_BOUND)
		bind_thread(entry);
}

/* The ring belongs to the thread that does this. */
static int enable(struct entry *entry)
{
	if (syscall(__NR_io_uring_register, entry->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0)
		return -errno;
	return 0;
}

static void *run(void *arg)
{
	const uint64_t one = 1;
	bool served = false;
	int err;

	self = arg;
	pthread_setname_np(pthread_self(), "tux3-ring");
	err = enable(self);
	command(self, WIRE_REGISTER);
	while (!err) {
		err = next_request(self);
		if (err)
			break;
		served = true;
		begin_request(self);
		serve(self);
		atomic_fetch_add(&self->queue->waiting, 1);
		command(self, WIRE_COMMIT_AND_FETCH);
	}
	atomic_fetch_sub(&self->queue->waiting, 1);
	if (err != -ECANCELED && err != -ENOTCONN) {
		if (!atomic_exchange(&rings.failed, true))
			complain("%s: cannot get requests from the kernel: %s.", mount_state.image, strerror(-err));
		/* Without an entry in each queue, whoever uses the mount waits forever. */
		if (!served && self->first)
			give_up();
	}
	pthread_mutex_lock(&rings.lock);
	rings.threads--;
	pthread_mutex_unlock(&rings.lock);
	/* One more entry that could not be had is one less. */
	if (served || self->first)
		(void)!write(rings.done_fd, &one, sizeof(one));
	return NULL;
}

/* rings.lock held. */
static int thread_start(struct queue *queue, struct entry *entry)
{
	pthread_attr_t attr;
	int err;

	entry->first = !queue->count;
	pthread_attr_init(&attr);
	/* Not where the thread that starts us happens to be bound to. */
	pthread_attr_setaffinity_np(&attr, sizeof(rings.cpus), &rings.cpus);
	atomic_fetch_add(&queue->waiting, 1);
	err = pthread_create(&entry->thread, &attr, run, entry);
	pthread_attr_destroy(&attr);
	if (err) {
		atomic_fetch_sub(&queue->waiting, 1);
		return -err;
	}
	queue->entries[queue->count++] = entry;
	rings.threads++;
	return 0;
}

/* The threads of one queue: its share, but some in any case, for one CPU's callers must not all wait for one fsync. */
static unsigned int entries_of_queue(unsigned int threads_max)
{
	unsigned int share = threads_max / rings.queue_count;
	unsigned int least = threads_max < ENTRIES_LEAST ? threads_max : ENTRIES_LEAST;

	return share < least ? least : share < ENTRIES_MAX ? share : ENTRIES_MAX;
}

int ring_prepare(unsigned int threads_max)
{
	struct queue none = { 0 };
	struct entry *probe;

	rings.queue_count = possible_cpus();
	if (!rings.queue_count || rings.queue_count > QUEUES_MAX ||
	    sched_getaffinity(0, sizeof(rings.cpus), &rings.cpus))
		return -EOPNOTSUPP;
	probe = entry_new(&none);
	if (!probe)
		return -EOPNOTSUPP;
	entry_free(probe);
	rings.queues = calloc(rings.queue_count, sizeof(*rings.queues));
	if (!rings.queues)
		return -ENOMEM;
	rings.entries_max = entries_of_queue(threads_max);
	return 0;
}

bool ring_prepared(void)
{
	return rings.queues;
}

void ring_start(int fd, int done_fd)
{
	struct entry *entry;
	int err = 0;

	rings.fd = fd;
	rings.done_fd = done_fd;
	pthread_mutex_lock(&rings.lock);
	rings.running = true;
	for (unsigned int i = 0; i < rings.queue_count && !err && !rings.stop; i++) {
		rings.queues[i].number = i;
		entry = entry_new(&rings.queues[i]);
		err = entry ? thread_start(&rings.queues[i], entry) : -ENOMEM;
	}
	pthread_mutex_unlock(&rings.lock);
	if (!err)
		return;
	complain("%s: cannot start a thread for each CPU: %s.", mount_state.image, strerror(-err));
	give_up();
}

unsigned int ring_stop_begun(void)
{
	unsigned int threads;

	if (!rings.queues)
		return 0;
	rings.stop = true;
	pthread_mutex_lock(&rings.lock);
	threads = rings.threads;
	for (unsigned int i = 0; i < rings.queue_count && threads; i++)
		for (unsigned int j = 0; j < rings.queues[i].count; j++)
			if (rings.queues[i].entries[j] != self)
				pthread_kill(rings.queues[i].entries[j]->thread, SIGNAL_STOP);
	pthread_mutex_unlock(&rings.lock);
	return threads;
}

void ring_free(void)
{
	struct queue *queue = rings.queues;

	if (!queue)
		return;
	for (; queue < rings.queues + rings.queue_count; queue++) {
		for (unsigned int i = 0; i < queue->count; i++) {
			pthread_join(queue->entries[i]->thread, NULL);
			entry_free(queue->entries[i]);
		}
	}
	free(rings.queues);
	rings.queues = NULL;
	rings.running = false;
}
