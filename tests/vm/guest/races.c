/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Races between system calls, page faults, the flusher and the end of inodes.  In the virtual machine:
 *
 *	races dying DIR SOURCE SECONDS	O_DIRECT reads from SOURCE into mappings of files that have no name any more: a
 *					device dirties pages of inodes that are about to be evicted, while the flusher looks
 *					at them.  The kernel must survive it.
 *	races punch DIR SECONDS		stores through a mapping while another thread punches the same pages: no store may
 *					get SIGBUS, for the file is never shorter.
 *
 * Exit status 0: all went well.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BYTES	(64u << 10)
#define THREADS	4

static const char *dir, *source;
static double end;
static atomic_ulong rounds, faults;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static void *map(int fd)
{
	void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		err(1, "mmap");
	return memory;
}

static void *dying_thread(void *number)
{
	int from = open(source, O_RDONLY | O_DIRECT), fd;
	char path[4096];
	void *memory;

	if (from < 0)
		err(1, "%s", source);
	snprintf(path, sizeof(path), "%s/dying-%ld", dir, (long)number);
	while (now() < end) {
		fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
		if (fd < 0 || ftruncate(fd, BYTES))
			err(1, "%s", path);
		memory = map(fd);
		if (unlink(path))
			err(1, "%s", path);
		close(fd);
		if (pread(from, memory, BYTES, 0) != BYTES)
			err(1, "%s", source);
		munmap(memory, BYTES);
		rounds++;
	}
	close(from);
	return NULL;
}

static _Thread_local sigjmp_buf again;

static void on_sigbus(int sig)
{
	faults++;
	siglongjmp(again, 1);
}

static volatile char *stored;

static void *store_thread(void *unused)
{
	sigsetjmp(again, 1);
	while (now() < end) {
		for (unsigned int at = 0; at < BYTES; at += 4096)
			stored[at]++;
		rounds++;
	}
	return NULL;
}

static void punch(void)
{
	struct sigaction action = { .sa_handler = on_sigbus };
	char path[4096];
	pthread_t thread;
	int fd;

	sigaction(SIGBUS, &action, NULL);
	snprintf(path, sizeof(path), "%s/punched", dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, BYTES))
		err(1, "%s", path);
	stored = map(fd);
	if (pthread_create(&thread, NULL, store_thread, NULL))
		errx(1, "no thread");
	while (now() < end)
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES))
			err(1, "punching %s", path);
	pthread_join(thread, NULL);
	close(fd);
	unlink(path);
}

static void dying(void)
{
	pthread_t threads[THREADS];

	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, dying_thread, (void *)i))
			errx(1, "no thread");
	for (long i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "dying")) {
		dir = argv[2];
		source = argv[3];
		end = now() + atof(argv[4]);
		dying();
	} else if (argc == 4 && !strcmp(argv[1], "punch")) {
		dir = argv[2];
		end = now() + atof(argv[3]);
		punch();
	} else {
		errx(2, "usage: races dying DIR SOURCE SECONDS | races punch DIR SECONDS");
	}
	printf("%lu rounds, %lu times SIGBUS\n", rounds, faults);
	return !rounds || faults;
}
