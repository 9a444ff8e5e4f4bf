// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * All inodes of a volume by ioctl_xfs_bulkstat(2), which XFS and Tux3 have.  bench/run bulkstat and names run it.
 *
 *	bulkstat DIRECTORY WANTED	all inodes, so many with each call
 *
 * Prints nanoseconds, those of CPU time, the number of inodes, of calls, and the sum of all sizes.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bench.h"

struct header {
	uint64_t ino;
	uint32_t flags, wanted, count, agno;
	uint64_t reserved[5];
};

struct record {
	uint64_t ino, size, others[22];
};

struct request {
	struct header header;
	struct record record[];
};

#define BULKSTAT _IOR('X', 127, struct request)

static void walk(const char *top, uint32_t wanted)
{
	struct request *request = calloc(1, sizeof(*request) + wanted * sizeof(struct record));
	uint64_t inodes = 0, calls = 0, bytes = 0, begun = now_ns(), cpu_begun = thread_cpu_ns();
	int fd = open(top, O_RDONLY | O_DIRECTORY);

	must_errno(fd, top);
	do {
		request->header.wanted = wanted;
		must_errno(ioctl(fd, BULKSTAT, request), "bulkstat");
		for (uint32_t i = 0; i < request->header.count; i++)
			bytes += request->record[i].size;
		inodes += request->header.count;
		calls++;
	} while (request->header.count);
	printf("%llu %llu %llu %llu %llu\n", (unsigned long long)(now_ns() - begun), (unsigned long long)(thread_cpu_ns() - cpu_begun),
	       (unsigned long long)inodes, (unsigned long long)calls, (unsigned long long)bytes);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		die("Usage: bulkstat DIRECTORY WANTED");
	walk(argv[1], strtoul(argv[2], NULL, 10));
	return 0;
}
