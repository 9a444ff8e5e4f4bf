/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the benchmarks in C share: clocks, counters, and an end with a sentence.  Public libtux3 calls only. */
#ifndef TUX3_BENCH_H
#define TUX3_BENCH_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "tux3.h"

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t thread_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline double seconds_since(uint64_t begun_ns)
{
	return (now_ns() - begun_ns) / 1e9;
}

static inline __attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(2);
}

/* ret is what a call returned that must not fail. */
static inline int64_t must(int64_t ret, const char *what)
{
	if (ret < 0)
		die("%s: %s", what, strerror(-ret));
	return ret;
}

/* The same of a system call. */
static inline void must_errno(int64_t ret, const char *what)
{
	if (ret < 0)
		die("%s: %s", what, strerror(errno));
}

static inline struct tux3 *must_open(const char *path, const struct tux3_options *options)
{
	struct tux3 *volume;
	char why[512] = "";

	if (tux3_open(path, options, &volume, why, sizeof(why)))
		die("%s", why[0] ? why : path);
	return volume;
}

static inline void must_format(const char *path, uint64_t size_bytes)
{
	struct tux3_format_options options = { .size_bytes = size_bytes, .force = true };
	char why[512] = "";

	if (tux3_format(path, &options, why, sizeof(why)))
		die("%s", why[0] ? why : path);
}

static inline uint64_t counter(struct tux3 *volume, const char *name)
{
	struct tux3_counter_info info;

	for (unsigned int i = 0; !tux3_counter(volume, i, &info); i++) {
		if (!strcmp(info.name, name))
			return info.value;
	}
	die("There is no counter \"%s\".", name);
}

static inline uint64_t peak_memory_bytes(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)usage.ru_maxrss << 10;
}

#endif
