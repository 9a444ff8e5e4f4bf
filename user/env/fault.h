/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory and threads that run out on purpose, for tests.  Counted are all allocations by the kernel's names, of
 * all threads.  When neither function was ever called it costs one predictable branch.
 */
#ifndef TUX3_ENV_FAULT_H
#define TUX3_ENV_FAULT_H

#include <stdbool.h>

/*
 * The nth allocation from now (1: the next one), and only that one, returns NULL.  -n: so does every
 * one from the nth on.  0: no more of this.  __GFP_NOFAIL means nothing here, and nobody waits: what is
 * done when there is no memory after all is to be tested too.
 */
void env_fail_alloc_at(long nth);

/* What this thread allocates meanwhile neither counts nor fails. */
void env_fail_alloc_pause(bool on);

/* Allocations so far.  Counting begins with the first call of either: use differences. */
long env_alloc_count(void);

/* No thread is made by the kernel's names meanwhile, as where a limit is reached. */
void env_fail_threads(bool on);

/* Count bytes from here on, in allocations by the kernel's names.  peak: the most there were at a time. */
void env_memory_count(bool on);
long env_memory_peak(void);

#endif
