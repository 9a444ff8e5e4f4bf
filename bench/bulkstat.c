// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * All inodes of a volume by ioctl_xfs_bulkstat(2), which XFS and Tux3 have.  bench/run bulkstat runs it.
 *
 *	bulkstat DIRECTORY make FILES DIRECTORIES BYTES		so many files, of so many bytes each
 *	bulkstat DIRECTORY walk WANTED				all inodes, so many with each call
 *
 * walk prints nanoseconds, the number of inodes, of calls, and the sum of all sizes.
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

static void must_errno(int64_t ret, const char *what)
{
	if (ret < 0)
		die("%s: %s", what, strerror(errno));
}

static void make(const char *top, uint64_t files, uint64_t directories, uint64_t bytes)
{
	char *data = calloc(1, bytes + 1), path[4096];

	for (uint64_t i = 0; i < directories; i++) {
		snprintf(path, sizeof(path), "%s/dir%llu", top, (unsigned long long)i);
		must_errno(mkdir(path, 0755), path);
	}
	for (uint64_t i = 0; i < files; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/dir%llu/file%llu", top, (unsigned long long)(i * directories / files),
			 (unsigned long long)i);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
		must_errno(fd, path);
		if (write(fd, data, bytes) != (ssize_t)bytes)
			die("%s: %s", path, strerror(errno));
		must_errno(close(fd), path);
	}
	free(data);
}

static void walk(const char *top, uint32_t wanted)
{
	struct request *request = calloc(1, sizeof(*request) + wanted * sizeof(struct record));
	uint64_t inodes = 0, calls = 0, bytes = 0, begun = now_ns();
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
	printf("%llu %llu %llu %llu\n", (unsigned long long)(now_ns() - begun), (unsigned long long)inodes, (unsigned long long)calls,
	       (unsigned long long)bytes);
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[2], "make"))
		make(argv[1], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
	else if (argc == 4 && !strcmp(argv[2], "walk"))
		walk(argv[1], strtoul(argv[3], NULL, 10));
	else
		die("Usage: bulkstat DIRECTORY make FILES DIRECTORIES BYTES | bulkstat DIRECTORY walk WANTED");
	return 0;
}
