// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A file that is filled through a mapping.  bench/run mmap runs it.
 *
 *	mmap FILE fill WAY MIB		makes the file, of so many MiB, and gives each of its pages contents
 *	mmap FILE read MIB		reads it from its beginning to its end, and checks that
 *
 * WAY:
 *
 *	sparse		a file of holes; a store to each page, in random order; msync
 *	ordered		the same from the first page to the last
 *	allocated	fallocate first, so that no store has to find a block
 *	deltas		as sparse, with an msync after each twentieth part: the file grows over many transactions
 *	pwrite		no mapping: a pwrite of 4 KiB for each page, in random order; fsync
 *
 * The order is the same each time (xorshift64, seed 88172645463325252).  fill prints nanoseconds until the last store, until
 * what was stored is durable, and in how many pieces the file lies on the disk (-1: the file system does not say); read
 * prints nanoseconds.
 */
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

#define PAGE_BYTES 4096ul
#define PARTS 20
#define EXTENTS 512

static void shuffle(uint32_t *order, uint32_t count)
{
	uint64_t random = 88172645463325252ull;
	uint32_t i;

	for (i = count; i > 1; i--) {
		uint32_t other, swapped = order[i - 1];

		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		other = random % i;
		order[i - 1] = order[other];
		order[other] = swapped;
	}
}

/* Runs of blocks that follow each other in the file and on the disk. */
static long count_pieces(int fd)
{
	struct fiemap *map = calloc(1, sizeof(*map) + EXTENTS * sizeof(map->fm_extents[0]));
	uint64_t file_end = UINT64_MAX, disk_end = UINT64_MAX;
	long pieces = 0;
	uint32_t i;

	do {
		map->fm_length = FIEMAP_MAX_OFFSET - map->fm_start;
		map->fm_extent_count = EXTENTS;
		if (ioctl(fd, FS_IOC_FIEMAP, map) < 0) {
			pieces = -1;
			break;
		}
		for (i = 0; i < map->fm_mapped_extents; i++) {
			const struct fiemap_extent *extent = &map->fm_extents[i];

			pieces += extent->fe_logical != file_end || extent->fe_physical != disk_end;
			file_end = extent->fe_logical + extent->fe_length;
			disk_end = extent->fe_physical + extent->fe_length;
			map->fm_start = file_end;
		}
	} while (i && !(map->fm_extents[i - 1].fe_flags & FIEMAP_EXTENT_LAST));
	free(map);
	return pieces;
}

static void fill_mapping(int fd, const uint32_t *order, uint32_t pages, uint32_t msyncs, uint64_t *stored_ns)
{
	uint64_t bytes = pages * PAGE_BYTES;
	char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint32_t i;

	if (map == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	for (i = 0; i < pages; i++) {
		*(uint32_t *)(map + order[i] * PAGE_BYTES) = order[i] + 1;
		if (msyncs && i % (pages / msyncs) == 0)
			must_errno(msync(map, bytes, MS_SYNC), "msync");
	}
	*stored_ns = now_ns();
	must_errno(msync(map, bytes, MS_SYNC), "msync");
	munmap(map, bytes);
}

static void fill_by_pwrite(int fd, const uint32_t *order, uint32_t pages, uint64_t *stored_ns)
{
	char page[PAGE_BYTES] = "";
	uint32_t i;

	for (i = 0; i < pages; i++) {
		uint32_t mark = order[i] + 1;

		memcpy(page, &mark, sizeof(mark));
		if (pwrite(fd, page, PAGE_BYTES, order[i] * PAGE_BYTES) != (ssize_t)PAGE_BYTES)
			die("pwrite: %s", strerror(errno));
	}
	*stored_ns = now_ns();
	must_errno(fsync(fd), "fsync");
}

static void fill(const char *path, const char *way, uint32_t pages)
{
	uint32_t *order = calloc(pages, sizeof(*order)), i;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
	uint64_t begun_ns, stored_ns, bytes = pages * PAGE_BYTES;

	must_errno(fd, path);
	for (i = 0; i < pages; i++)
		order[i] = i;
	if (strcmp(way, "ordered"))
		shuffle(order, pages);
	begun_ns = now_ns();
	must_errno(ftruncate(fd, bytes), "ftruncate");
	if (!strcmp(way, "allocated"))
		must_errno(fallocate(fd, 0, 0, bytes), "fallocate");
	if (!strcmp(way, "pwrite"))
		fill_by_pwrite(fd, order, pages, &stored_ns);
	else
		fill_mapping(fd, order, pages, strcmp(way, "deltas") ? 0 : PARTS, &stored_ns);
	printf("%llu %llu ", (unsigned long long)(stored_ns - begun_ns), (unsigned long long)(now_ns() - begun_ns));
	printf("%ld\n", count_pieces(fd));
	close(fd);
	free(order);
}

static void read_all(const char *path, uint32_t pages)
{
	static char piece[1 << 20];
	int fd = open(path, O_RDONLY);
	uint64_t begun_ns = now_ns();
	uint32_t page = 0, mark;
	ssize_t got;

	must_errno(fd, path);
	while ((got = read(fd, piece, sizeof(piece))) > 0) {
		ssize_t at;

		for (at = 0; at < got; at += PAGE_BYTES) {
			memcpy(&mark, piece + at, sizeof(mark));
			if (mark != ++page)
				die("%s: page %u holds %u", path, page - 1, mark);
		}
	}
	must_errno(got, "read");
	if (page != pages)
		die("%s has %u pages instead of %u", path, page, pages);
	printf("%llu\n", (unsigned long long)(now_ns() - begun_ns));
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[2], "fill"))
		fill(argv[1], argv[3], strtoul(argv[4], NULL, 0) << (20 - 12));
	else if (argc == 4 && !strcmp(argv[2], "read"))
		read_all(argv[1], strtoul(argv[3], NULL, 0) << (20 - 12));
	else
		die("usage: mmap FILE fill sparse|ordered|allocated|deltas|pwrite MIB, or mmap FILE read MIB");
	return 0;
}
