/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For tests with random cases: a check that also prints the command which runs its case again.
 */
#ifndef TUX3_SUPPORT_CHECK_H
#define TUX3_SUPPORT_CHECK_H

#include "core/env.h"

/* What the case is. */
extern u64 test_seed;
extern const char *test_name;
extern __thread bool test_in_thread;	/* not cmocka's own: a failure ends the program */

void check_failed(const char *what, const char *file, int line);
#define check(condition) do { \
	if (!(condition)) \
		check_failed(#condition, __FILE__, __LINE__); \
} while (0)

/* The case begins: its seed is the one of TUX3_TEST_SEED, else this. */
void check_begin(const char *name, u64 seed);
double now_s(void);

/*
 * For main(): tests that start no thread, and those that do.  ThreadSanitizer, which takes twenty times as long, has nothing to see
 * in the former: all other variants run them.
 */
#ifdef __SANITIZE_THREAD__
#define RUN_ALONE false
#else
#define RUN_ALONE true
#endif
#define run_alone_and_beside(alone, beside) \
	((RUN_ALONE ? cmocka_run_group_tests(alone, NULL, NULL) : 0) + cmocka_run_group_tests(beside, NULL, NULL))

#endif
