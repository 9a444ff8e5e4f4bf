/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 defrag: files in many pieces are written anew, portion by portion, into a file without a name, and the contents swapped.
 *
 * The kernel swaps only if the file has not changed since it was read (COMMIT_RANGE), so nothing that others write is lost; after
 * a crash the file is as before or as after.  A large file goes in portions.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <libgen.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "commands.h"
#include "core/ioctl.h"

const char defrag_help[] =
"tux3 defrag [-n] [-v] FILE|DIR...\n"
"\n"
"Writes files that are in many pieces anew, so that they lie in fewer, on a volume that the module has\n"
"mounted.  Of a directory: all files in it and below, on the same volume.  What somebody changes\n"
"meanwhile is left as it is.  Times of change become now.  Needs room for a copy of 1 GiB of a file.\n"
"\n"
"  -n, --dry-run            only tell how many pieces there are\n"
"  -v, --verbose            tell of files that are left as they are, too\n"
"\n"
"Examples:\n"
"  tux3 defrag /mnt/database\n"
"  tux3 defrag -n -v /mnt | sort -t: -k2 -n\n"
"\n"
"Exit code 0: done; 1: not all could be looked at or written; 16: wrong use.\n";

#define PORTION		(1ULL << 30)	/* of a file, written and swapped at once */
#define PIECES		65536u		/* or so many of its pieces: what a swap may take of the log is limited (-EFBIG) */
#define LONG_EXTENT	(64ULL << 20)	/* pieces as long as that are not worth it */
#define COPY_BYTES	(1u << 20)

/* nftw() has no context. */
static struct {
	bool dry_run, verbose, failed;
	u64 files, changed, before, after;
	char *buffer;
} run;

struct target {
	const char *path;
	int fd, temp;
	u64 size, block_size;
};

static int failed(const char *path, const char *what)
{
	tool_error("%s: cannot %s (%s).", path, what, strerror(errno));
	run.failed = true;
	return -1;
}

/* Extents in this part, or -1. */
static s64 count_extents(int fd, u64 offset, u64 len)
{
	struct fiemap map = { .fm_start = offset, .fm_length = len, .fm_flags = FIEMAP_FLAG_SYNC };

	return ioctl(fd, FS_IOC_FIEMAP, &map) ? -1 : (s64)map.fm_mapped_extents;
}

/* The next part within [*from, end) that has data, in whole blocks: false: there is none. */
static bool next_data(const struct target *target, u64 *from, u64 end, u64 *stop)
{
	s64 data = lseek(target->fd, *from, SEEK_DATA), hole;

	if (data < 0 || (u64)data >= end)
		return false;
	hole = lseek(target->fd, data, SEEK_HOLE);
	*from = round_down((u64)data, target->block_size);
	*stop = hole < 0 ? end : min_t(u64, round_up((u64)hole, target->block_size), end);
	return *stop > *from;
}

static int reserve(const struct target *target, u64 from, u64 end)
{
	u64 stop;

	for (; next_data(target, &from, end, &stop); from = stop)
		if (fallocate(target->temp, FALLOC_FL_KEEP_SIZE, from, stop - from))
			return failed(target->path, "find room for a copy");
	return 0;
}

/* 1: it has become shorter. */
static int copy(const struct target *target, u64 from, u64 end)
{
	u64 stop;

	for (; next_data(target, &from, end, &stop); from = stop) {
		u64 at = from;

		while (at < stop) {
			ssize_t got = pread(target->fd, run.buffer, min_t(u64, COPY_BYTES, stop - at), at);

			if (got < 0)
				return failed(target->path, "read it");
			if (!got)
				return 1;
			if (pwrite(target->temp, run.buffer, got, at) != got)
				return failed(target->path, "write the copy");
			at += got;
		}
	}
	return 0;
}

static int swap_contents(const struct target *target, struct tux3_ioc_commit *commit, u64 from, u64 end)
{
	commit->exchange = (struct tux3_ioc_exchange){
		.file1 = target->temp, .offset1 = from, .offset2 = from, .length = end - from,
		.flags = TUX3_IOC_EXCHANGE_FILE1_WRITTEN,
	};
	if (!ioctl(target->fd, TUX3_IOC_COMMIT_RANGE, commit))
		return 0;
	if (errno != EBUSY && errno != EINVAL)		/* EINVAL: it has become shorter */
		return failed(target->path, "swap the contents");
	if (run.verbose)
		printf("%s: changed meanwhile\n", target->path);
	return 1;
}

/* 0: done or not worth it, 1: leave the file, -1: failed. */
static int defrag_portion(struct target *target, u64 from, u64 end)
{
	s64 before = count_extents(target->fd, from, end - from), after;
	struct tux3_ioc_commit commit;
	int err;

	if (before < 0)
		return failed(target->path, "ask where it lies");
	if ((u64)before <= 1 + (end - from) / LONG_EXTENT)
		return 0;
	if (ioctl(target->fd, TUX3_IOC_START_COMMIT, &commit))
		return failed(target->path, "begin to swap its contents");
	err = reserve(target, from, end);
	if (!err)
		err = copy(target, from, end);
	if (err)
		return err;
	after = count_extents(target->temp, from, end - from);
	if (after < 0)
		return failed(target->path, "ask where the copy lies");
	return after < before ? swap_contents(target, &commit, from, end) : 0;
}

static int open_temp(const char *path)
{
	char *copy = strdup(path);
	int fd = copy ? open(dirname(copy), O_TMPFILE | O_RDWR, 0600) : -1;

	free(copy);
	return fd;
}

static u64 portion_end(const struct target *target, u64 from)
{
	u64 len = PORTION;

	while (len > target->block_size && count_extents(target->fd, from, len) > PIECES)
		len /= 2;
	return min(target->size, from + len);
}

static int defrag_open(struct target *target)
{
	u64 at, end;
	int err = 0;

	/* From data to data: of a sparse file there may be very much more than that. */
	for (at = 0; !err && next_data(target, &at, target->size, &end); at = end) {
		end = portion_end(target, at);
		target->temp = open_temp(target->path);
		if (target->temp < 0 || ftruncate(target->temp, target->size))
			err = failed(target->path, "make a temporary file beside it");
		else
			err = defrag_portion(target, at, end);
		if (target->temp >= 0)
			close(target->temp);
	}
	return err;
}

static void defrag_file(const char *path)
{
	struct target target = { .path = path, .fd = open(path, (run.dry_run ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_CLOEXEC) };
	s64 before = -1, after;
	struct stat stat;

	if (target.fd < 0 || fstat(target.fd, &stat)) {
		failed(path, "open it");
		goto out;
	}
	target.size = stat.st_size;
	target.block_size = stat.st_blksize;
	before = after = count_extents(target.fd, 0, FIEMAP_MAX_OFFSET);
	if (before < 0) {
		failed(path, "ask where it lies");
		goto out;
	}
	if (!run.dry_run && before > 1) {
		defrag_open(&target);
		after = count_extents(target.fd, 0, FIEMAP_MAX_OFFSET);
	}
	run.files++;
	run.changed += after < before;
	run.before += before;
	run.after += max(after, 0);
	if (after < before)
		printf("%s: %lld pieces, now %lld\n", path, before, after);
	else if (run.verbose)
		printf("%s: %lld %s\n", path, before, before == 1 ? "piece" : "pieces");
out:
	if (target.fd >= 0)
		close(target.fd);
}

static int visit(const char *path, const struct stat *stat, int type, struct FTW *where)
{
	(void)where;
	if (type == FTW_F && S_ISREG(stat->st_mode) && stat->st_size)
		defrag_file(path);
	else if (type == FTW_DNR || type == FTW_NS)
		failed(path, "look at it");
	return 0;
}

/* Nowhere else contents can be swapped: one sentence, not one for each file. */
static bool is_of_module(const char *path)
{
	struct statfs stat;

	if (statfs(path, &stat)) {
		failed(path, "look at it");
		return false;
	}
	if ((u32)stat.f_type == TUX3_SUPER_MAGIC)
		return true;
	tool_error("%s is not on a Tux3 volume that the kernel's module has mounted: only there contents can be swapped.", path);
	run.failed = true;
	return false;
}

int command_defrag(int argc, char **argv)
{
	static const struct option options[] = {
		{ "dry-run", no_argument, NULL, 'n' }, { "verbose", no_argument, NULL, 'v' }, { "help", no_argument, NULL, 'h' }, {}
	};
	int option;

	while ((option = getopt_long(argc, argv, "nvh", options, NULL)) >= 0) {
		if (option == 'h')
			return tool_tell(defrag_help, EXIT_FAILED);
		if (option == '?')
			return tool_usage("See tux3 help defrag.");
		run.dry_run |= option == 'n';
		run.verbose |= option == 'v';
	}
	if (optind == argc)
		return tool_usage("Files or directories are wanted; see tux3 help defrag.");
	run.buffer = malloc(COPY_BYTES);
	if (!run.buffer) {
		tool_error("There is no memory.");
		return EXIT_FAILED;
	}
	for (; optind < argc; optind++)
		if (is_of_module(argv[optind]) && nftw(argv[optind], visit, 64, FTW_PHYS | FTW_MOUNT))
			failed(argv[optind], "look at it");
	printf("%llu files, %llu of them written anew; %llu pieces before, %llu now\n", run.files, run.changed, run.before, run.after);
	free(run.buffer);
	return run.failed ? EXIT_FAILED : EXIT_CLEAN;
}
