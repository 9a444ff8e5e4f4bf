/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A worker runs where its client does.
 *
 * A request is two switches of tasks: the client sleeps while the worker works.  On one processor that is all
 * it costs.  When they sit on two, each switch is an interrupt to the other processor, which is as good as
 * free if that is awake and idle, and many times the work itself if it sleeps, is shared or virtual.
 * The scheduler does not know that the two never run at once, and spreads them.
 *
 * So every now and then a worker looks where its client ran last, and binds itself to that processor.  Not for
 * large reads and writes: readahead and write-back are done while the client goes on.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tux3_fuse.h"

/* Looking costs about as much as serving a request. */
#define FOLLOW_EVERY 32
#define LARGE_BYTES (64u << 10)
/* Field of /proc/TID/stat: the processor. */
#define STAT_PROCESSOR 39

/* The processor that thread ran on last; -1: not known. */
static int cpu_of(unsigned int tid)
{
	char path[32], stat[1024], *field;
	ssize_t len;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	len = read(fd, stat, sizeof(stat) - 1);
	close(fd);
	if (len <= 0)
		return -1;
	stat[len] = '\0';
	/* The second field may have blanks in it, but ends with the last parenthesis. */
	field = strrchr(stat, ')');
	for (int i = 2; field && i < STAT_PROCESSOR; i++)
		field = strchr(field + 1, ' ');
	return field ? atoi(field) : -1;
}

static bool is_large(const struct fuse_in_header *head, size_t size)
{
	const struct fuse_read_in *read = (const void *)(head + 1);

	if (head->opcode == FUSE_READ && size >= sizeof(*head) + sizeof(*read))
		return read->size >= LARGE_BYTES;
	return size >= LARGE_BYTES;
}

void follow_init(struct follow *follow)
{
	follow->served = 0;
	follow->cpu = -1;
	if (sched_getaffinity(0, sizeof(follow->anywhere), &follow->anywhere))
		CPU_ZERO(&follow->anywhere);
}

/* After a request was served. */
void follow_client(struct follow *follow, const void *request, size_t size)
{
	const struct fuse_in_header *head = request;
	cpu_set_t set;
	int cpu = -1;

	if (!mount_state.follow || ++follow->served % FOLLOW_EVERY || size < sizeof(*head))
		return;
	if (!is_large(head, size) && head->pid)
		cpu = cpu_of(head->pid);
	if (cpu >= CPU_SETSIZE || (cpu >= 0 && !CPU_ISSET(cpu, &follow->anywhere)))
		cpu = -1;
	if (cpu == follow->cpu)
		return;
	CPU_ZERO(&set);
	if (cpu >= 0)
		CPU_SET(cpu, &set);
	if (!sched_setaffinity(0, sizeof(set), cpu >= 0 ? &set : &follow->anywhere))
		follow->cpu = cpu;
}
