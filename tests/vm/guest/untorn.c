/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes that are not torn: RWF_ATOMIC, direct writes, and pages of databases.  In the virtual machine:
 *
 *	untorn rules DIR		what statx() tells, what is refused, and that what fails has done nothing
 *	untorn full DIR			writes until the volume is full: each is done as a whole or not at all
 *	untorn run DIR MILLISECONDS	a thread for each kind of file of the table below writes its pages in turn; then the
 *					volume is shut down (0: they go on until the machine is killed).  Prints "acked KIND N"
 *					when the first N writes of a file are durable (fsync)
 *	untorn check DIR ACKED		after the next mount: each file must be what some number of its writes left, at
 *					least as many as ACKED, the output of run, says
 *
 * The source of each write is memory that is taken away again and again: so the kernel's copy comes to places where nothing
 * is, which is seldom otherwise.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RWF_ATOMIC
#define RWF_ATOMIC 0x40
#endif
#define IOC_SHUTDOWN	_IOR('X', 125, uint32_t)
#define WRITE_ATOMIC	0x10000u	/* STATX_..., and STATX_ATTR_... 0x400000 */
#define ATTR_ATOMIC	0x400000u
#define MIB		(1u << 20)
#define PAGE		4096u

static const char *dir;
static uint32_t block;
static int failures;
static atomic_bool stop;

#define complain(...) (warnx(__VA_ARGS__), failures++)
#define expect(what) ((what) ? 0 : complain("line %d: not %s (%s)", __LINE__, #what, strerror(errno)))

static int open_in(const char *name, int flags)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, flags, 0644);
	if (fd < 0)
		err(1, "%s", path);
	return fd;
}

static void stamp(uint8_t *data, size_t size, uint64_t value)
{
	size_t i;

	for (i = 0; i < size; i++)
		data[i] = value >> (i & 7) * 8;
}

static bool stamped(const uint8_t *data, size_t size, uint64_t value)
{
	size_t i;

	for (i = 0; i < size && data[i] == (uint8_t)(value >> (i & 7) * 8); i++)
		;
	return i == size;
}

static ssize_t put(int fd, const void *data, size_t size, off_t at, int flags)
{
	struct iovec iov = { (void *)data, size };

	return pwritev2(fd, &iov, 1, at, flags);
}

/* Memory whose contents come back when it was taken away. */
static uint8_t *source_memory(size_t size)
{
	int fd = memfd_create("source", 0);
	uint8_t *data;

	if (fd < 0 || ftruncate(fd, size))
		err(1, "memfd");
	data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		err(1, "mmap");
	close(fd);
	return data;
}

/* ---- rules ---- */

static uint32_t field(const uint8_t *reply, int offset)
{
	uint32_t value;

	memcpy(&value, reply + offset, 4);
	return value;
}

static void told(const char *name, bool is_file)
{
	uint8_t reply[256] = { 0 };
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	expect(!syscall(SYS_statx, AT_FDCWD, path, 0, WRITE_ATOMIC, reply));
	expect(!!(field(reply, 0) & WRITE_ATOMIC) == is_file);
	expect(!!(field(reply, 8) & ATTR_ATOMIC) == is_file);
	expect(field(reply, 168) == (is_file ? block : 0));
	expect(field(reply, 172) == (is_file ? MIB : 0));
	expect(field(reply, 176) == is_file);
}

static void refused(int fd, const void *data, size_t size, off_t at, int error)
{
	ssize_t got = put(fd, data, size, at, RWF_ATOMIC);

	if (got != -1 || errno != error)
		complain("%zu bytes at %lld: %zd (%s), not %s", size, (long long)at, got, got < 0 ? strerror(errno) : "done",
			 strerror(error));
}

/* The file of a MiB and a half, all of it this value. */
static void unchanged(int fd, uint64_t value)
{
	static uint8_t data[2 * MIB];

	expect(pread(fd, data, sizeof(data), 0) == MIB + MIB / 2);
	expect(stamped(data, MIB + MIB / 2, value));
}

static void rules_of(int fd, uint8_t *data)
{
	struct iovec two[2] = { { data, block }, { data + block, block } };
	struct rlimit limit, before;
	uint8_t *hole;

	stamp(data, 2 * MIB, 1);
	expect(pwrite(fd, data, MIB + MIB / 2, 0) == MIB + MIB / 2);
	stamp(data, 2 * MIB, 2);
	refused(fd, data, block, 512, EINVAL);
	refused(fd, data, 2 * block, block, EINVAL);
	refused(fd, data, 3 * block, 0, EINVAL);
	refused(fd, data, block / 2, 0, EINVAL);
	refused(fd, data, 2 * MIB, 0, EINVAL);
	expect(pwritev2(fd, two, 2, 0, RWF_ATOMIC) == -1 && errno == EINVAL);
	expect(preadv2(fd, two, 1, 0, RWF_ATOMIC) == -1 && errno == EOPNOTSUPP);
	/* A part of the memory is not there: neither are those bytes, nor any others. */
	hole = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stamp(hole, MIB, 3);
	expect(!munmap(hole + MIB / 2, PAGE));
	refused(fd, hole, MIB, 0, EFAULT);
	refused(fd, hole, MIB, MIB, EFAULT);
	refused(fd, hole + MIB / 2 - 4 * PAGE, 16 * PAGE, MIB, EFAULT);
	/* A limit in the middle. */
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	limit = (struct rlimit){ MIB + 3 * PAGE, before.rlim_max };
	setrlimit(RLIMIT_FSIZE, &limit);
	refused(fd, data, MIB, MIB, EFBIG);
	setrlimit(RLIMIT_FSIZE, &before);
	unchanged(fd, 1);
	/* Of memory that was never touched. */
	expect(!madvise(data + PAGE, 2 * MIB - PAGE, MADV_DONTNEED));
	expect(put(fd, data, MIB, 0, RWF_ATOMIC) == MIB);
	expect(put(fd, data, MIB / 2, MIB, RWF_ATOMIC | RWF_DSYNC) == MIB / 2);
	unchanged(fd, 2);
	expect(put(fd, data, 0, 7, RWF_ATOMIC) == 0);
	munmap(hole, MIB / 2);
	munmap(hole + MIB / 2 + PAGE, MIB / 2 - PAGE);
}

/* Nobody asks, but these are pages of a database: memory in several pieces, and memory of which the second half is missing. */
static void kinds_of_memory(int flags, uint8_t *data)
{
	struct iovec pieces[3] = { { data + 1, 100 }, { data + MIB + 7, 2 * block - 300 }, { data + 5 * PAGE + 16, 200 } };
	uint8_t *found = malloc(MIB), *half = mmap(NULL, 4 * block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open_in("pages", flags | O_CREAT | O_TRUNC), i;

	stamp(data, 2 * MIB, 5);
	expect(write(fd, data, 8 * block) == 8 * block);
	for (i = 0; i < 3; i++)
		stamp(pieces[i].iov_base, pieces[i].iov_len, 6 + i);
	expect(pwritev(fd, pieces, 3, 2 * block) == 2 * block);
	expect(pread(fd, found, MIB, 0) == 8 * block);
	expect(stamped(found, 2 * block, 5) && stamped(found + 2 * block, 100, 6) &&
	       stamped(found + 2 * block + 100, 2 * block - 300, 7) && stamped(found + 4 * block - 200, 200, 8) &&
	       stamped(found + 4 * block, 4 * block, 5));
	stamp(half, 4 * block, 9);
	expect(!munmap(half + 2 * block, 2 * block));
	expect(pwrite(fd, half, 4 * block, 0) == 2 * block);
	expect(pwrite(fd, half + 2 * block, 4 * block, 0) == -1 && errno == EFAULT);
	expect(pread(fd, found, MIB, 0) == 8 * block && stamped(found, 2 * block, 9) && stamped(found + 2 * block, 100, 6) &&
	       stamped(found + 4 * block, 4 * block, 5));
	munmap(half, 2 * block);
	free(found);
	close(fd);
}

/* Files that are inline, preallocated, sparse. */
static void kinds_of_files(int flags, uint8_t *data)
{
	uint8_t *found = malloc(2 * MIB);
	int fd = open_in("small", flags | O_CREAT | O_TRUNC);

	stamp(data, 2 * MIB, 4);
	expect(write(fd, data, 100) == 100);
	expect(!fsync(fd));
	expect(put(fd, data, 2 * block, 2 * block, RWF_ATOMIC) == 2 * block);
	expect(pread(fd, found, MIB, 0) == 4 * block && stamped(found, 100, 4) && stamped(found + 100, 2 * block - 100, 0) &&
	       stamped(found + 2 * block, 2 * block, 4));
	expect(!ftruncate(fd, 50) && !fsync(fd));
	expect(put(fd, data, block, 0, RWF_ATOMIC) == block);
	expect(pread(fd, found, MIB, 0) == block && stamped(found, block, 4));
	expect(!ftruncate(fd, 0) && !fallocate(fd, 0, 0, MIB) && !fsync(fd));
	expect(put(fd, data, MIB / 2, MIB / 2, RWF_ATOMIC) == MIB / 2);
	expect(pread(fd, found, 2 * MIB, 0) == MIB && stamped(found, MIB / 2, 0) && stamped(found + MIB / 2, MIB / 2, 4));
	expect(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB));
	expect(put(fd, data, 2 * block, 2 * block, RWF_ATOMIC) == 2 * block);
	expect(pread(fd, found, 2 * MIB, 0) == MIB && stamped(found, 2 * block, 0) && stamped(found + 2 * block, 2 * block, 4));
	close(fd);
	/* At the end, wherever that is then: it must be right for that. */
	fd = open_in("small", flags | O_APPEND);
	expect(put(fd, data, MIB, 0, RWF_ATOMIC) == MIB);
	expect(put(fd, data, 4 * block, 0, RWF_ATOMIC) == 4 * block);
	refused(fd, data, MIB, 0, EINVAL);
	close(fd);
	free(found);
}

static int rules(void)
{
	static const int flags[] = { O_RDWR, O_RDWR | O_DIRECT };
	uint8_t *data = source_memory(2 * MIB);
	int fd, i;

	for (i = 0; i < 2; i++) {
		fd = open_in("rules", flags[i] | O_CREAT | O_TRUNC);
		rules_of(fd, data);
		close(fd);
		kinds_of_files(flags[i], data);
		kinds_of_memory(flags[i], data);
	}
	told("rules", true);
	told(".", false);
	return failures != 0;
}

/* Nothing of what there is no room for. */
static int full(void)
{
	uint8_t *data = source_memory(MIB);
	int fd = open_in("full", O_RDWR | O_CREAT | O_TRUNC);
	struct stat st;
	off_t at = 0;
	ssize_t got;
	size_t size;

	for (size = MIB; size >= block; size /= 2) {
		while ((got = put(fd, data, size, at, RWF_ATOMIC)) == (ssize_t)size)
			at += size;
		expect(got == -1 && errno == ENOSPC);
		expect(!fstat(fd, &st) && st.st_size == at);
	}
	printf("%lld bytes\n", (long long)at);
	return failures != 0;
}

/* ---- in pieces or not ---- */

static const struct kind {
	const char *name;
	uint32_t bytes, pages;
	int flags, rwf;
	bool sized, preallocated;
} kinds[] = {
	{ .name = "atomic", .bytes = 16384, .pages = 64, .rwf = RWF_ATOMIC },
	{ .name = "atomic-direct", .bytes = 16384, .pages = 64, .flags = O_DIRECT, .rwf = RWF_ATOMIC },
	{ .name = "atomic-block", .bytes = 4096, .pages = 100, .rwf = RWF_ATOMIC },
	{ .name = "atomic-large", .bytes = MIB, .pages = 3, .rwf = RWF_ATOMIC },
	{ .name = "atomic-preallocated", .bytes = 65536, .pages = 32, .rwf = RWF_ATOMIC, .preallocated = true },
	{ .name = "direct", .bytes = 16384, .pages = 64, .flags = O_DIRECT },
	{ .name = "direct-large", .bytes = MIB, .pages = 3, .flags = O_DIRECT },
	{ .name = "pages", .bytes = 8192, .pages = 128, .sized = true },
	{ .name = "pages-large", .bytes = 65536, .pages = 16, .sized = true },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static uint8_t *sources[KINDS];

static uint32_t bytes_of(const struct kind *kind)
{
	/* A plain write of one block may be of two halves where memory goes. */
	uint32_t least = kind->rwf || kind->flags ? block : 2 * block;

	return kind->bytes > least ? kind->bytes : least;
}

/* Takes the memory away under everybody's copies. */
static void *take_away(void *arg)
{
	uint32_t rng = 1, i;

	while (!stop) {
		for (i = 0; i < KINDS; i++) {
			uint32_t bytes = bytes_of(&kinds[i]);

			rng = rng * 1664525 + 1013904223;
			madvise(sources[i] + (rng >> 8) % (bytes / PAGE) * PAGE, PAGE, MADV_DONTNEED);
		}
		usleep(50);
	}
	return NULL;
}

static void *writer(void *arg)
{
	const struct kind *kind = arg;
	uint32_t bytes = bytes_of(kind);
	uint8_t *data = sources[kind - kinds];
	int fd = open_in(kind->name, O_RDWR | O_CREAT | O_TRUNC | kind->flags);
	uint64_t n;

	if (kind->sized && ftruncate(fd, (off_t)bytes * kind->pages))
		err(1, "ftruncate");
	if (kind->preallocated && fallocate(fd, 0, 0, (off_t)bytes * kind->pages))
		err(1, "fallocate");
	for (n = 1; !stop; n++) {
		ssize_t got;

		stamp(data, bytes, n);
		madvise(data + bytes / 2, bytes / 2, MADV_DONTNEED);
		got = put(fd, data, bytes, (off_t)(n % kind->pages) * bytes, kind->rwf);
		if (got != (ssize_t)bytes) {
			if (!stop)
				complain("%s: write %llu: %zd (%s)", kind->name, (unsigned long long)n, got, strerror(errno));
			break;
		}
		if (n % 37 == 0 && !fsync(fd)) {
			printf("acked %s %llu\n", kind->name, (unsigned long long)n);
			fflush(stdout);
		}
	}
	close(fd);
	return NULL;
}

static int run(int milliseconds)
{
	pthread_t threads[KINDS + 1];
	uint32_t at_once = 2, i;
	int fd = open(dir, O_RDONLY);

	for (i = 0; i < KINDS; i++)
		sources[i] = source_memory(bytes_of(&kinds[i]));
	for (i = 0; i < KINDS; i++)
		pthread_create(&threads[i], NULL, writer, (void *)&kinds[i]);
	pthread_create(&threads[KINDS], NULL, take_away, NULL);
	if (!milliseconds)
		pause();
	usleep(milliseconds * 1000);
	stop = true;
	if (ioctl(fd, IOC_SHUTDOWN, &at_once))
		complain("shutdown: %s", strerror(errno));
	for (i = 0; i <= KINDS; i++)
		pthread_join(threads[i], NULL);
	return failures != 0;
}

static uint64_t acked(FILE *list, const char *name)
{
	unsigned long long n, last = 0;
	char line[200], found[100];

	rewind(list);
	while (fgets(line, sizeof(line), list))
		if (sscanf(line, "acked %99s %llu", found, &n) == 2 && !strcmp(found, name))
			last = n;
	return last;
}

/* What the page's last write among the first `newest` was; 0: none. */
static uint64_t last_of_page(uint64_t newest, uint32_t pages, uint32_t page)
{
	uint64_t back = (newest + pages - page) % pages;

	return newest > back ? newest - back : 0;
}

static void check_kind(const struct kind *kind, uint64_t known)
{
	uint32_t bytes = bytes_of(kind), page;
	size_t size = (size_t)bytes * kind->pages;
	uint8_t *data = calloc(1, size);
	uint64_t newest = 0, value;
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, kind->name);
	fd = open(path, O_RDONLY);
	if (fd >= 0 && pread(fd, data, size, 0) < 0)
		complain("%s: %s", kind->name, strerror(errno));
	for (page = 0; page < kind->pages; page++) {
		memcpy(&value, data + (size_t)page * bytes, sizeof(value));
		newest = value > newest ? value : newest;
	}
	if (newest < known)
		complain("%s: %llu writes, of %llu that were durable", kind->name, (unsigned long long)newest,
			 (unsigned long long)known);
	for (page = 0; page < kind->pages; page++)
		if (!stamped(data + (size_t)page * bytes, bytes, last_of_page(newest, kind->pages, page)))
			complain("%s: page %u is not as write %llu left it, but the file has write %llu", kind->name, page,
				 (unsigned long long)last_of_page(newest, kind->pages, page), (unsigned long long)newest);
	printf("%s:%llu ", kind->name, (unsigned long long)newest);
	close(fd);
	free(data);
}

static int check(const char *list_name)
{
	FILE *list = fopen(list_name, "r");
	uint32_t i;

	if (!list)
		err(1, "%s", list_name);
	for (i = 0; i < KINDS; i++)
		check_kind(&kinds[i], acked(list, kinds[i].name));
	printf("\n");
	return failures != 0;
}

int main(int argc, char **argv)
{
	struct statfs st;

	dir = argc > 2 ? argv[2] : "";
	memset(&st, 0, sizeof(st));
	if (argc > 2 && statfs(dir, &st))
		err(1, "%s", dir);
	block = st.f_bsize;
	if (argc == 3 && !strcmp(argv[1], "rules"))
		return rules();
	if (argc == 3 && !strcmp(argv[1], "full"))
		return full();
	if (argc == 4 && !strcmp(argv[1], "run"))
		return run(atoi(argv[3]));
	if (argc == 4 && !strcmp(argv[1], "check"))
		return check(argv[3]);
	fprintf(stderr, "usage: untorn rules|full|run|check DIR ...\n");
	return 1;
}
