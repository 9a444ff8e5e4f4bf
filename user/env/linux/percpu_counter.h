/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * A count that many CPUs change: each keeps up to batch of it to itself.  read is off by as much for each CPU; sum counts all, and
 * is exact if nobody adds meanwhile.
 */
#ifndef TUX3_ENV_PERCPU_COUNTER_H
#define TUX3_ENV_PERCPU_COUNTER_H

#include <linux/atomic.h>
#include <linux/percpu.h>

struct percpu_counter {
	atomic64_t count;
	atomic64_t __percpu *part;
};

int env_percpu_counter_init(struct percpu_counter *counter, s64 amount);
#define percpu_counter_init(counter, amount, gfp) ((void)(gfp), env_percpu_counter_init(counter, amount))
void percpu_counter_destroy(struct percpu_counter *counter);
void percpu_counter_add_batch(struct percpu_counter *counter, s64 amount, s32 batch);
s64 percpu_counter_sum(struct percpu_counter *counter);
void percpu_counter_set(struct percpu_counter *counter, s64 amount);	/* nobody adds meanwhile */

static inline s64 percpu_counter_read(struct percpu_counter *counter)
{
	return atomic64_read(&counter->count);
}

#endif
