// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What fsync costs a program: 4 KiB written and fsynced, again and again.  bench/run fsync runs it.
 *
 *	fsync DIRECTORY new COUNT PROCESSES		each time a new file: open, write, fsync, close
 *	fsync DIRECTORY overwrite COUNT PROCESSES	each time another block of a file, which has all its blocks
 *	fsync DIRECTORY prepare COUNT PROCESSES		makes the files for that
 *
 * COUNT is for each of the processes, which work at the same time and have a file each.  Prints the mean and the
 * longest time of such an operation, in nanoseconds.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define BLOCK_BYTES 4096
#define FILE_BLOCKS 256
#define PROCESSES_MAX 1024

struct result {
	uint64_t total_ns, max_ns;
};

static char block[BLOCK_BYTES];

static void must_errno(int64_t ret, const char *what)
{
	if (ret < 0)
		die("%s: %s", what, strerror(errno));
}

static void write_block(int fd, off_t offset)
{
	/* Never the same contents. */
	block[offset / BLOCK_BYTES % BLOCK_BYTES]++;
	if (pwrite(fd, block, BLOCK_BYTES, offset) != BLOCK_BYTES)
		die("write: %s", strerror(errno));
}

static void add_time(struct result *result, uint64_t begun_ns)
{
	uint64_t ns = now_ns() - begun_ns;

	result->total_ns += ns;
	if (ns > result->max_ns)
		result->max_ns = ns;
}

static void create_files(unsigned int process, unsigned int count, struct result *result)
{
	char name[64];

	for (unsigned int n = 0; n < count; n++) {
		uint64_t begun_ns = now_ns();
		int fd;

		snprintf(name, sizeof(name), "file-%u-%u", process, n);
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
		must_errno(fd, name);
		write_block(fd, 0);
		must_errno(fsync(fd), "fsync");
		must_errno(close(fd), "close");
		add_time(result, begun_ns);
	}
}

static int open_file(unsigned int process, int flags)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "file-%u", process);
	fd = open(name, O_WRONLY | flags, 0644);
	must_errno(fd, name);
	return fd;
}

static void prepare(unsigned int process, unsigned int count, struct result *result)
{
	int fd = open_file(process, O_CREAT | O_EXCL);

	for (unsigned int n = 0; n < FILE_BLOCKS; n++)
		write_block(fd, n * BLOCK_BYTES);
	must_errno(fsync(fd), "fsync");
}

static void overwrite(unsigned int process, unsigned int count, struct result *result)
{
	int fd = open_file(process, 0);

	for (unsigned int n = 0; n < count; n++) {
		uint64_t begun_ns = now_ns();

		/* Not in a sequence. */
		write_block(fd, n * 97 % FILE_BLOCKS * BLOCK_BYTES);
		must_errno(fsync(fd), "fsync");
		add_time(result, begun_ns);
	}
}

static const struct kind {
	const char *name;
	void (*work)(unsigned int process, unsigned int count, struct result *result);
} kinds[] = { { "new", create_files }, { "overwrite", overwrite }, { "prepare", prepare } };

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!strcmp(name, kinds[i].name))
			return &kinds[i];
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned int count = argc == 5 ? atoi(argv[3]) : 0, processes = argc == 5 ? atoi(argv[4]) : 0;
	const struct kind *kind = argc == 5 ? find_kind(argv[2]) : NULL;
	struct result *results, sum = { 0 };
	int status;

	if (!kind || !count || !processes || processes > PROCESSES_MAX)
		die("usage: fsync DIRECTORY new|overwrite|prepare COUNT PROCESSES");
	must_errno(chdir(argv[1]), argv[1]);
	results = mmap(NULL, processes * sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED)
		die("no memory");
	for (unsigned int i = 0; i < processes; i++) {
		pid_t pid = fork();

		must_errno(pid, "fork");
		if (!pid) {
			kind->work(i, count, &results[i]);
			_exit(0);
		}
	}
	while (wait(&status) > 0) {
		if (status)
			die("a process failed");
	}
	for (unsigned int i = 0; i < processes; i++) {
		sum.total_ns += results[i].total_ns;
		if (results[i].max_ns > sum.max_ns)
			sum.max_ns = results[i].max_ns;
	}
	printf("%llu %llu\n", (unsigned long long)(sum.total_ns / ((uint64_t)count * processes)),
	       (unsigned long long)sum.max_ns);
	return 0;
}
