/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Requests by io_uring: ring.c. */
#ifndef TUX3_FUSE_RING_H
#define TUX3_FUSE_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct iovec;

/* Get ready.  -errno: this system has no io_uring for us, and nothing was done. */
int ring_prepare(unsigned int threads_max);
bool ring_prepared(void);

/*
 * The kernel has agreed, and waits until we have registered an entry for each CPU.  fd: the connection.
 * done_fd is told when a thread ends.
 */
void ring_start(int fd, int done_fd);
bool ring_running(void);

/* ---- in a thread of the rings ---- */
bool ring_is_self(void);
bool ring_answers(uint64_t unique);	/* is this the request being served? */
ssize_t ring_answer(struct iovec *iov, int count);
void *ring_buffer(void);		/* as worker_buffer(), worker_reply_buffer() */
void *ring_reply_buffer(void);

/* Tells the threads to end after their operations; none is started any more.  How many are left: to be repeated. */
unsigned int ring_stop_begun(void);
void ring_free(void);

#endif
