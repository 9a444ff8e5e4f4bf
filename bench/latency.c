// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Is the front end held up by the back end?  Latencies of small operations while a large delta commits to a
 * slow device, beside those of the same operations while nothing commits.
 *
 *	latency IMAGE DATA_MIB RATE_MB_S	IMAGE is made anew
 *
 * The main thread does one operation of each kind every PACE_NS, in both phases: it sleeps between, so that it
 * measures the file system and not its own hunger for CPU time.  Prints, for bench/latency.py:
 *
 *	commit SECONDS DELTAS
 *	PHASE OPERATION SAMPLES P50 P99 P999 MAX	(in ns)
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "bench.h"

#define PACE_NS 1000000
#define IDLE_SECONDS 10
#define SAMPLES_MAX 200000
#define CHUNK (1u << 20)
#define NAMES 64		/* files that are there all the time, to write to */
#define VOLUME_BYTES (16ull << 30)	/* sparse; so large that space is never tight */

enum operation { CREATE, WRITE, RENAME, UNLINK, OPERATIONS };
static const char *const operation_names[] = { "create", "write", "rename", "unlink" };

static struct tux3 *volume;
static struct tux3_node *dir, *targets[NAMES];
static uint64_t data_bytes;

static struct {
	uint32_t *ns[OPERATIONS];
	unsigned int count;
} samples;

static atomic_bool writing = true, committing, committed;
static double commit_seconds;

/* The other thread: fills one delta, then has it committed. */
static void *write_and_commit(void *ctx)
{
	struct tux3_node *node;
	char *chunk = malloc(CHUNK);
	uint64_t begun;

	if (!chunk)
		die("Out of memory.");
	for (unsigned int i = 0; i < CHUNK; i++)
		chunk[i] = i * 31;
	must(tux3_path(volume, NULL, "/large", TUX3_CREATE, 0644, &node), "create");
	for (uint64_t offset = 0; offset < data_bytes; offset += CHUNK)
		must(tux3_write(node, chunk, CHUNK, offset), "write");
	tux3_node_put(node, 1);
	free(chunk);
	writing = false;
	begun = now_ns();
	committing = true;
	must(tux3_sync(volume), "sync");
	commit_seconds = seconds_since(begun);
	committed = true;
	return NULL;
}

static uint64_t timed(uint64_t begun)
{
	return now_ns() - begun;
}

/* One of each.  The file made here is gone at the end. */
static void sample(unsigned int turn)
{
	static char data[4096];
	struct tux3_node *node;
	uint64_t begun;
	char name[32], other[32];

	if (samples.count == SAMPLES_MAX)
		die("More samples than expected.");
	snprintf(name, sizeof(name), "new%u", turn);
	snprintf(other, sizeof(other), "renamed%u", turn);
	begun = now_ns();
	must(tux3_mknod(dir, NULL, name, S_IFREG | 0644, 0, 0, &node), "create");
	samples.ns[CREATE][samples.count] = timed(begun);
	tux3_node_put(node, 1);

	memset(data, turn, sizeof(data));
	begun = now_ns();
	must(tux3_write(targets[turn % NAMES], data, sizeof(data), 4096 * (turn / NAMES % 16)), "write");
	samples.ns[WRITE][samples.count] = timed(begun);

	begun = now_ns();
	must(tux3_rename(dir, name, dir, other, 0, NULL), "rename");
	samples.ns[RENAME][samples.count] = timed(begun);

	begun = now_ns();
	must(tux3_unlink(dir, NULL, other), "unlink");
	samples.ns[UNLINK][samples.count] = timed(begun);
	samples.count++;
}

static void pace(uint64_t *next)
{
	struct timespec time;

	*next += PACE_NS;
	if (*next < now_ns())
		*next = now_ns();
	time.tv_sec = *next / 1000000000;
	time.tv_nsec = *next % 1000000000;
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void report(const char *phase)
{
	for (int op = 0; op < OPERATIONS; op++) {
		uint32_t *ns = samples.ns[op];
		unsigned int n = samples.count;

		qsort(ns, n, sizeof(*ns), compare);
		printf("%s %s %u %u %u %u %u\n", phase, operation_names[op], n, ns[n / 2], ns[n * 99ull / 100],
		       ns[n * 999ull / 1000], ns[n - 1]);
	}
	samples.count = 0;
}

static void measure_idle(unsigned int *turn)
{
	uint64_t begun = now_ns(), next = begun;

	while (seconds_since(begun) < IDLE_SECONDS) {
		sample((*turn)++);
		pace(&next);
	}
	report("idle");
}

static void measure_commit(unsigned int *turn)
{
	uint64_t next, before;
	pthread_t thread;

	if (pthread_create(&thread, NULL, write_and_commit, NULL))
		die("No thread.");
	while (!committing)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	before = tux3_committed(volume);
	next = now_ns();
	while (!committed) {
		sample((*turn)++);
		pace(&next);
	}
	pthread_join(thread, NULL);
	printf("commit %.3f %llu\n", commit_seconds, (unsigned long long)(tux3_committed(volume) - before));
	report("committing");
}

int main(int argc, char **argv)
{
	struct tux3_options options = { .age_ms = 3600000 };
	unsigned int turn = 0;
	char name[32];

	if (argc != 4)
		die("Usage: latency IMAGE DATA_MIB RATE_MB_S");
	data_bytes = strtoull(argv[2], NULL, 10) << 20;
	options.write_rate = strtoull(argv[3], NULL, 10) * 1000000;
	options.dirty_bytes = 2 * data_bytes + (64 << 20);	/* one delta holds it all */
	options.dirty_limit_bytes = 2 * options.dirty_bytes;
	options.delta_ms = UINT32_MAX;		/* however slow the device is */
	must_format(argv[1], VOLUME_BYTES);
	volume = must_open(argv[1], &options);
	for (int op = 0; op < OPERATIONS; op++) {
		samples.ns[op] = calloc(SAMPLES_MAX, sizeof(uint32_t));
		if (!samples.ns[op])
			die("Out of memory.");
	}
	must(tux3_path(volume, NULL, "/dir/x", TUX3_CREATE | TUX3_PARENTS, 0644, &targets[0]), "create");
	tux3_node_put(targets[0], 1);
	must(tux3_path(volume, NULL, "/dir", 0, 0, &dir), "lookup");
	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "target%d", i);
		must(tux3_mknod(dir, NULL, name, S_IFREG | 0644, 0, 0, &targets[i]), "create");
	}
	must(tux3_sync(volume), "sync");
	measure_idle(&turn);
	measure_commit(&turn);
	for (int i = 0; i < NAMES; i++)
		tux3_node_put(targets[i], 1);
	tux3_node_put(dir, 1);
	must(tux3_close(volume), "close");
	return 0;
}
