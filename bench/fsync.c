// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What fsync costs a program: mostly 4 KiB written and fsynced, again and again.  bench/run fsync runs it.
 *
 *	fsync DIRECTORY new COUNT PROCESSES		each time a new file: open, write, fsync, close
 *	fsync DIRECTORY labelled COUNT PROCESSES	the same, with an xattr of 40 bytes, such as SELinux gives each file
 *	fsync DIRECTORY large-1M COUNT PROCESSES	a new file of 1 MiB, written in one piece; the one before it is removed
 *	fsync DIRECTORY large-8M COUNT PROCESSES	the same of 8 MiB
 *	fsync DIRECTORY rewritten COUNT PROCESSES	the same with O_TRUNC, over one of the files made for that
 *	fsync DIRECTORY saved COUNT PROCESSES		the same under another name, renamed over one of those; then the directory
 *	fsync DIRECTORY overwrite COUNT PROCESSES	each time another block of a file, which has all its blocks
 *	fsync DIRECTORY prepare-KIND COUNT PROCESSES	makes the files for the last three
 *	fsync DIRECTORY KIND COUNT PROCESSES LOAD SECONDS
 *
 * COUNT is for each of the processes, which work at the same time and have a file each.  With a LOAD one more process is at
 * work, and syncs nothing: first alone, for SECONDS that do not count and SECONDS that are measured, then until the others
 * are done, which stop after 5 * SECONDS if they have not made COUNT by then.
 *
 *	stream		writes a file of 600 MiB again and again, in pieces of 1 MiB
 *	create		makes empty files in one directory
 *	chmod		changes the mode of one of 1,000 files
 *
 * Prints of these operations the mean, the longest time, the median and the 99th percentile, in nanoseconds, and their number;
 * and what the load did in a second, alone and beside them, in pieces of 1 MiB, files or changes.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "bench.h"

#define BLOCK_BYTES 4096
#define FILE_BLOCKS 256
#define FILES 1000
#define PROCESSES_MAX 1024

#define STREAM_PIECE (1u << 20)
#define STREAM_PIECES 600
#define CHMOD_FILES 1000
#define SECONDS_FACTOR 5	/* so many times SECONDS at most */

/* Of one process.  In memory that all share. */
struct result {
	uint64_t count, ns[];
};

static char block[BLOCK_BYTES];
static uint64_t end_ns = UINT64_MAX;

static void write_block(int fd, off_t offset)
{
	/* Never the same contents. */
	block[offset / BLOCK_BYTES % BLOCK_BYTES]++;
	if (pwrite(fd, block, BLOCK_BYTES, offset) != BLOCK_BYTES)
		die("write: %s", strerror(errno));
}

static void add_time(struct result *result, uint64_t begun_ns)
{
	result->ns[result->count++] = now_ns() - begun_ns;
}

static void write_files(unsigned int process, unsigned int count, struct result *result, int flags, int labelled)
{
	static const char label[40] = "system_u:object_r:unlabeled_t:s0";
	char name[64];

	for (unsigned int n = 0; n < count && now_ns() < end_ns; n++) {
		uint64_t begun_ns = now_ns();
		int fd;

		snprintf(name, sizeof(name), "file-%u-%u", process, flags & O_TRUNC ? n * 97 % FILES : n);
		fd = open(name, O_WRONLY | flags, 0644);
		must_errno(fd, name);
		if (labelled)
			must_errno(fsetxattr(fd, "security.label", label, sizeof(label), 0), "fsetxattr");
		write_block(fd, 0);
		must_errno(fsync(fd), "fsync");
		must_errno(close(fd), "close");
		add_time(result, begun_ns);
	}
}

static void create_files(unsigned int process, unsigned int count, struct result *result)
{
	write_files(process, count, result, O_CREAT | O_EXCL, 0);
}

static void create_labelled(unsigned int process, unsigned int count, struct result *result)
{
	write_files(process, count, result, O_CREAT | O_EXCL, 1);
}

static void rewrite_files(unsigned int process, unsigned int count, struct result *result)
{
	write_files(process, count, result, O_TRUNC, 0);
}

static void create_large(unsigned int process, unsigned int count, struct result *result, size_t bytes)
{
	char *data = malloc(bytes), name[64], before[64] = "";
	int fd;

	if (!data)
		die("no memory");
	memset(data, 'x', bytes);
	for (unsigned int n = 0; n < count && now_ns() < end_ns; n++) {
		uint64_t begun_ns = now_ns();

		snprintf(name, sizeof(name), "file-%u-%u", process, n);
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
		must_errno(fd, name);
		if (write(fd, data, bytes) != (ssize_t)bytes)
			die("write: %s", strerror(errno));
		must_errno(fsync(fd), "fsync");
		must_errno(close(fd), "close");
		add_time(result, begun_ns);
		if (*before)
			must_errno(unlink(before), before);
		strcpy(before, name);
	}
	free(data);
}

static void create_1m(unsigned int process, unsigned int count, struct result *result)
{
	create_large(process, count, result, 1 << 20);
}

static void create_8m(unsigned int process, unsigned int count, struct result *result)
{
	create_large(process, count, result, 8 << 20);
}

static void save_files(unsigned int process, unsigned int count, struct result *result)
{
	int dir = open(".", O_RDONLY | O_DIRECTORY), fd;
	char name[64], temporary[64];

	must_errno(dir, "the directory");
	snprintf(temporary, sizeof(temporary), "temporary-%u", process);
	for (unsigned int n = 0; n < count && now_ns() < end_ns; n++) {
		uint64_t begun_ns = now_ns();

		snprintf(name, sizeof(name), "file-%u-%u", process, n * 97 % FILES);
		fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0644);
		must_errno(fd, temporary);
		write_block(fd, 0);
		must_errno(fsync(fd), "fsync");
		must_errno(close(fd), "close");
		must_errno(rename(temporary, name), name);
		must_errno(fsync(dir), "fsync of the directory");
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

static void prepare_files(unsigned int process, unsigned int count, struct result *result)
{
	char name[64];
	int fd;

	for (unsigned int n = 0; n < FILES; n++) {
		snprintf(name, sizeof(name), "file-%u-%u", process, n);
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
		must_errno(fd, name);
		write_block(fd, 0);
		must_errno(close(fd), "close");
	}
	sync();
}

static void overwrite(unsigned int process, unsigned int count, struct result *result)
{
	int fd = open_file(process, 0);

	for (unsigned int n = 0; n < count && now_ns() < end_ns; n++) {
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
} kinds[] = {
	{ "new", create_files }, { "labelled", create_labelled }, { "rewritten", rewrite_files }, { "saved", save_files },
	{ "overwrite", overwrite }, { "large-1M", create_1m }, { "large-8M", create_8m },
	{ "prepare-rewritten", prepare_files }, { "prepare-saved", prepare_files }, { "prepare-overwrite", prepare },
};

static const struct kind *find_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!strcmp(name, kinds[i].name))
			return &kinds[i];
	}
	return NULL;
}

/* ---- the load beside them ---- */

static void stream(_Atomic uint64_t *done)
{
	int fd = open("stream", O_WRONLY | O_CREAT, 0644);
	char *piece = calloc(1, STREAM_PIECE);

	must_errno(fd, "stream");
	if (!piece)
		die("no memory");
	for (;; (*done)++)
		must_errno(pwrite(fd, piece, STREAM_PIECE, (off_t)(*done % STREAM_PIECES) * STREAM_PIECE), "stream");
}

static int load_file(uint64_t number)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "load/%llu", (unsigned long long)number);
	fd = open(name, O_WRONLY | O_CREAT, 0644);
	must_errno(fd, name);
	return fd;
}

static void create(_Atomic uint64_t *done)
{
	must_errno(mkdir("load", 0755), "load");
	for (;; (*done)++)
		close(load_file(*done));
}

static void change_modes(_Atomic uint64_t *done)
{
	char name[64];

	must_errno(mkdir("load", 0755), "load");
	for (unsigned int n = 0; n < CHMOD_FILES; n++)
		close(load_file(n));
	for (;; (*done)++) {
		/* Not in a sequence, and never the mode it has. */
		snprintf(name, sizeof(name), "load/%llu", (unsigned long long)(*done * 7919 % CHMOD_FILES));
		must_errno(chmod(name, *done / CHMOD_FILES % 2 ? 0644 : 0600), name);
	}
}

static const struct load {
	const char *name;
	void (*work)(_Atomic uint64_t *done);
} loads[] = { { "stream", stream }, { "create", create }, { "chmod", change_modes } };

static const struct load *find_load(const char *name)
{
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		if (!strcmp(name, loads[i].name))
			return &loads[i];
	}
	return NULL;
}

static void *shared_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("no memory");
	return memory;
}

/* What it does in a second, from one moment to the other. */
struct pace {
	_Atomic uint64_t *done;
	uint64_t from, from_ns;
};

static void pace_begin(struct pace *pace)
{
	pace->from = *pace->done;
	pace->from_ns = now_ns();
}

static double pace_end(const struct pace *pace)
{
	return (*pace->done - pace->from) * 1e9 / (now_ns() - pace->from_ns);
}

static pid_t begin_load(const struct load *load, struct pace *pace, unsigned int seconds, double *alone)
{
	pid_t pid;

	pace->done = shared_memory(sizeof(*pace->done));
	pid = fork();
	must_errno(pid, "fork");
	if (!pid)
		load->work(pace->done);
	while (!*pace->done)		/* it may have to make files first */
		usleep(1000);
	sleep(seconds);
	pace_begin(pace);
	sleep(seconds);
	*alone = pace_end(pace);
	end_ns = now_ns() + seconds * SECONDS_FACTOR * 1000000000ULL;
	return pid;
}

/* ---- all together ---- */

static void wait_for(pid_t pid)
{
	int status;

	must_errno(waitpid(pid, &status, 0), "wait");
	if (status)
		die("a process failed");
}

static void work(const struct kind *kind, unsigned int count, unsigned int processes, struct result **results)
{
	pid_t pids[PROCESSES_MAX];

	for (unsigned int i = 0; i < processes; i++) {
		results[i] = shared_memory(sizeof(**results) + count * sizeof(results[i]->ns[0]));
		pids[i] = fork();
		must_errno(pids[i], "fork");
		if (!pids[i]) {
			kind->work(i, count, results[i]);
			_exit(0);
		}
	}
	for (unsigned int i = 0; i < processes; i++)
		wait_for(pids[i]);
}

static int order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void print_results(struct result **results, unsigned int processes, unsigned int count)
{
	uint64_t *all = calloc((size_t)processes * count, sizeof(*all)), n = 0, total = 0;

	if (!all)
		die("no memory");
	for (unsigned int i = 0; i < processes; i++) {
		for (uint64_t j = 0; j < results[i]->count; j++)
			total += all[n++] = results[i]->ns[j];
	}
	if (!n)
		die("not a single operation came to its end");
	qsort(all, n, sizeof(*all), order);
	printf("%llu %llu %llu %llu %llu", (unsigned long long)(total / n), (unsigned long long)all[n - 1],
	       (unsigned long long)all[n / 2], (unsigned long long)all[n * 99 / 100], (unsigned long long)n);
}

int main(int argc, char **argv)
{
	unsigned int count = argc >= 5 ? atoi(argv[3]) : 0, processes = argc >= 5 ? atoi(argv[4]) : 0;
	unsigned int seconds = argc == 7 ? atoi(argv[6]) : 0;
	const struct kind *kind = argc >= 5 ? find_kind(argv[2]) : NULL;
	const struct load *load = argc == 7 ? find_load(argv[5]) : NULL;
	struct result *results[PROCESSES_MAX];
	double alone = 0, beside = 0;
	struct pace pace;
	pid_t loader = 0;

	if (!kind || !count || !processes || processes > PROCESSES_MAX || (argc != 5 && (!load || !seconds)))
		die("usage: fsync DIRECTORY new|labelled|[prepare-]rewritten|[prepare-]saved|[prepare-]overwrite COUNT PROCESSES "
		    "[stream|create|chmod SECONDS]");
	must_errno(chdir(argv[1]), argv[1]);
	if (load) {
		loader = begin_load(load, &pace, seconds, &alone);
		pace_begin(&pace);
	}
	work(kind, count, processes, results);
	if (load) {
		beside = pace_end(&pace);
		must_errno(kill(loader, SIGKILL), "kill");
		must_errno(waitpid(loader, NULL, 0), "wait");
	}
	if (!strncmp(kind->name, "prepare", 7))
		return 0;
	print_results(results, processes, count);
	printf(" %.1f %.1f\n", alone, beside);
	return 0;
}
