/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * An object for each CPU, on cache lines of its own.  raw_cpu_ptr() is a good guess, no more: the
 * thread may be moved or preempted at once, so per-CPU objects need atomics or a lock, in the kernel
 * too.
 */
#ifndef TUX3_ENV_PERCPU_H
#define TUX3_ENV_PERCPU_H

#include <sched.h>
#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/types.h>

#define ENV_PERCPU_ALIGN	64
#define env_percpu_stride(ptr)	round_up(sizeof(*(ptr)), (size_t)ENV_PERCPU_ALIGN)

extern unsigned int env_cpus;	/* constant after start-up */

static inline unsigned int raw_smp_processor_id(void)
{
	unsigned int cpu = sched_getcpu();

	return likely(cpu < env_cpus) ? cpu : 0;
}

void *env_alloc_percpu(size_t stride);
void free_percpu(void __percpu *ptr);

#define alloc_percpu(type)	((type *)env_alloc_percpu(env_percpu_stride((type *)0)))
#define per_cpu_ptr(ptr, cpu) \
	((__typeof__(*(ptr)) *)((char *)(ptr) + (cpu) * env_percpu_stride(ptr)))
#define raw_cpu_ptr(ptr)	per_cpu_ptr(ptr, raw_smp_processor_id())
#define for_each_possible_cpu(cpu) for ((cpu) = 0; (cpu) < env_cpus; (cpu)++)
#define num_possible_cpus()	(env_cpus)
#define nr_cpu_ids		(env_cpus)

#endif
