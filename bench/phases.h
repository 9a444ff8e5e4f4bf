/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Phases of a benchmark in which one thread calls libtux3 and the volume's own thread commits.  The time of each ends when all
 * of it is durable.
 *
 * A line for each: name, operations, seconds, then for the whole phase CPU seconds of the front and of the back end (the
 * process's other threads), then by how much each counter of phase_counters[] rose.
 */
#ifndef TUX3_BENCH_PHASES_H
#define TUX3_BENCH_PHASES_H

#include <pthread.h>
#include <stdbool.h>

#include "bench.h"

#define VOLUME_BYTES (16ull << 30)	/* sparse; space is never tight */
#define PHASE_COUNTERS 8

/* Of who includes this. */
static struct tux3 *volume;
static const char *const phase_counters[PHASE_COUNTERS];

struct moment {
	uint64_t ns, front_ns, all_ns, count[PHASE_COUNTERS];
};

static struct moment moment_now(void)
{
	struct moment now;

	for (int i = 0; i < PHASE_COUNTERS; i++)
		now.count[i] = counter(volume, phase_counters[i]);
	now.front_ns = thread_cpu_ns();
	now.all_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	now.ns = now_ns();
	return now;
}

static void *sync_thread(void *unused)
{
	must(tux3_sync(volume), "sync");
	return unused;
}

/* Who asks for a commit may be the one that makes it: not the front end's thread. */
static void sync_elsewhere(void)
{
	pthread_t thread;

	must(-pthread_create(&thread, NULL, sync_thread, NULL), "thread");
	pthread_join(thread, NULL);
}

/* Everything before is durable: now the phase begins. */
static struct moment begin(void)
{
	sync_elsewhere();
	return moment_now();
}

static void end(const char *name, uint64_t operations, const struct moment *from)
{
	struct moment to;
	uint64_t front;

	sync_elsewhere();
	to = moment_now();
	front = to.front_ns - from->front_ns;
	printf("%s %llu %.6f %.6f %.6f", name, (unsigned long long)operations, (to.ns - from->ns) / 1e9, front / 1e9,
	       (to.all_ns - from->all_ns - front) / 1e9);
	for (int i = 0; i < PHASE_COUNTERS; i++)
		printf(" %llu", (unsigned long long)(to.count[i] - from->count[i]));
	putchar('\n');
	fflush(stdout);
}

/* Of the root; made if it is not there. */
static struct tux3_node *directory(const char *name)
{
	struct tux3_node *root = tux3_root(volume), *dir;
	int err;

	err = tux3_lookup(root, NULL, name, &dir);
	if (err == -ENOENT)
		err = tux3_mknod(root, NULL, name, S_IFDIR | 0755, 0, 0, &dir);
	must(err, "directory");
	tux3_node_put(root, 1);
	return dir;
}

/* A phase: empty files are made, or go again, in one directory after the other. */
static void create_or_unlink(const char *what, uint64_t files, uint64_t directories, bool create)
{
	struct moment from = begin();
	struct tux3_node *dir = NULL;
	uint64_t last = UINT64_MAX;

	for (uint64_t i = 0; i < files; i++) {
		uint64_t number = i * directories / files;
		char name[32];

		if (number != last) {
			if (dir)
				tux3_node_put(dir, 1);
			snprintf(name, sizeof(name), "dir%llu", (unsigned long long)number);
			dir = directory(name);
			last = number;
		}
		snprintf(name, sizeof(name), "file%llu", (unsigned long long)i);
		if (create)
			must(tux3_mknod(dir, NULL, name, S_IFREG | 0644, 0, 0, NULL), "create");
		else
			must(tux3_unlink(dir, NULL, name), "unlink");
	}
	if (dir)
		tux3_node_put(dir, 1);
	end(what, files, &from);
}

#endif
