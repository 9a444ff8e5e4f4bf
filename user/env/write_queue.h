/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Asynchronous writes of device_file.c. */
#ifndef TUX3_WRITE_QUEUE_H
#define TUX3_WRITE_QUEUE_H

#include "core/device/device.h"

struct write_queue;

enum write_queue_kind {
	WRITE_QUEUE_ANY,	/* io_uring if it is to be had, else threads */
	WRITE_QUEUE_THREADS,
	WRITE_QUEUE_ALONE,	/* no thread at all, unless a rate is set */
};

/* -errno, or 0 and a queue for this file.  The first write that fails is told of with this name, unless that is NULL. */
int write_queue_open(int fd, enum write_queue_kind kind, const char *name, struct write_queue **queue);
void write_queue_close(struct write_queue *queue);	/* after all writes have ended */

/* For wait io_wait_begin() was called; io_wait_end() comes when it is done, perhaps before this returns. */
void write_queue_submit(struct write_queue *queue, u64 offset, const struct kvec *vec, u32 vecs,
			struct io_wait *wait);
int write_queue_set_rate(struct write_queue *queue, u64 bytes_per_second);
const char *write_queue_method(struct write_queue *queue);

#endif
