// SPDX-License-Identifier: GPL-2.0-or-later
/* See support_check.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>
#include "support_check.h"

u64 test_seed;
const char *test_name = "";
__thread bool test_in_thread;

void check_failed(const char *what, const char *file, int line)
{
	print_error("%s:%d: not true: %s\nTo run this case again: TUX3_TEST_SEED=%llu %s '*%s*'\n", file, line, what,
		    (unsigned long long)test_seed, program_invocation_name, test_name);
	if (test_in_thread)
		abort();
	fail();
}

void check_begin(const char *name, u64 seed)
{
	const char *chosen = getenv("TUX3_TEST_SEED");

	test_name = name;
	test_seed = chosen ? strtoull(chosen, NULL, 0) : seed;
}

double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}
