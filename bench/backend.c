// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How much the back end gets done when the front end never stops: one thread makes changes as fast as it may, the volume's
 * own thread commits them.  The time of each phase ends when all of it is durable.
 *
 *	backend IMAGE FILES DIRECTORIES MIB OVERWRITES		IMAGE is made anew
 *
 * create	FILES empty files in DIRECTORIES directories, one directory after the other
 * unlink	the same files, in the order in which they were made
 * overwrite	OVERWRITES blocks of 4 KiB at random places of a file of MIB MiB, written before that
 *
 * A line for each: name, operations, seconds, then for the whole phase CPU seconds of the front and of the back end (the
 * process's other threads), then the counters of names[].
 */
#include <pthread.h>
#include <stdbool.h>

#include "bench.h"

#define BLOCK 4096u
#define VOLUME_BYTES (16ull << 30)	/* sparse; space is never tight */

static struct tux3 *volume;

enum { ENTER_WAITS, DELTAS, DATA_BLOCKS, LOG_BLOCKS, NODE_BLOCKS, FLUSHES, RECORDS, UNIFIES, COUNTERS };
static const char *const names[COUNTERS] = {
	"enter_waits", "deltas", "data_blocks", "log_blocks", "node_blocks", "flushes", "records", "unifies",
};

struct moment {
	uint64_t ns, front_ns, all_ns, count[COUNTERS];
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static struct moment moment_now(void)
{
	struct moment now;

	for (int i = 0; i < COUNTERS; i++)
		now.count[i] = counter(volume, names[i]);
	now.front_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	now.all_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	now.ns = now_ns();
	return now;
}

static void *sync_thread(void *unused)
{
	must(tux3_sync(volume), "sync");
	return NULL;
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
	for (int i = 0; i < COUNTERS; i++)
		printf(" %llu", (unsigned long long)(to.count[i] - from->count[i]));
	putchar('\n');
	fflush(stdout);
}

static struct tux3_node *directory(uint64_t number)
{
	struct tux3_node *root = tux3_root(volume), *dir;
	char name[32];
	int err;

	snprintf(name, sizeof(name), "dir%llu", (unsigned long long)number);
	err = tux3_lookup(root, NULL, name, &dir);
	if (err == -ENOENT)
		err = tux3_mknod(root, NULL, name, S_IFDIR | 0755, 0, 0, &dir);
	must(err, "directory");
	tux3_node_put(root, 1);
	return dir;
}

static void create_or_unlink(uint64_t files, uint64_t directories, bool create)
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
			dir = directory(number);
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
	end(create ? "create" : "unlink", files, &from);
}

static void overwrite(uint64_t mib, uint64_t operations)
{
	uint64_t blocks = mib << 20 >> 12, random = 1;
	static char data[1 << 20];
	struct tux3_node *node;
	struct moment from;

	must(tux3_path(volume, NULL, "/large", TUX3_CREATE, 0644, &node), "create");
	for (uint64_t i = 0; i < mib; i++) {
		memset(data, (int)i, sizeof(data));
		must(tux3_write(node, data, sizeof(data), i << 20), "write");
	}
	from = begin();
	for (uint64_t i = 0; i < operations; i++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		memcpy(data, &random, sizeof(random));
		must(tux3_write(node, data, BLOCK, (random >> 33) % blocks * BLOCK), "write");
	}
	end("overwrite", operations, &from);
	tux3_node_put(node, 1);
}

int main(int argc, char **argv)
{
	struct tux3_options options = { 0 };

	if (argc != 6)
		die("Usage: backend IMAGE FILES DIRECTORIES MIB OVERWRITES");
	must_format(argv[1], VOLUME_BYTES);
	volume = must_open(argv[1], &options);
	create_or_unlink(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), true);
	create_or_unlink(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), false);
	overwrite(strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
	must(tux3_close(volume), "close");
	return 0;
}
