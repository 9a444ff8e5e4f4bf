/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Pages of a mapped file that somebody has pinned, to bring something into them: process_vm_writev(2), which a userfaultfd holds up
 * for as long as it is to take, and the mapping goes meanwhile.  In the virtual machine, on a new volume:
 *
 *	pinned ahead DIR		an fsync comes before it is brought, and syncfs(2) after that
 *	pinned twice DIR		the same, and another fsync in its place; then the volume is stopped
 *	pinned beside DIR DELAY		a commit comes before it is brought.  Then two fsyncs of the file come at a time, the second
 *					so many microseconds later; when that one has returned the volume is stopped
 *	pinned check DIR		what was brought is there
 */
#include <err.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define IOC_SHUTDOWN	_IOR('X', 125, uint32_t)
#define AT_ONCE		2u
#define PAGE		4096u
#define PAGES		1024u		/* as many as the kernel pins at once */
#define AHEAD_PAGES	256u		/* they go ahead, and may stay where that has put them */

static const char *dir;
static int folder, file;
static unsigned int pages = AHEAD_PAGES;
static char *target, *source, *brought;

static char *memory(size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		err(1, "mmap");
	madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

static int open_file(void)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/file", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		err(1, "%s", path);
	return fd;
}

static void commit(void)
{
	if (syncfs(folder))
		err(1, "syncfs");
}

static void sync_file(int fd)
{
	if (fsync(fd))
		err(1, "fsync");
}

static void stop(void)
{
	uint32_t how = AT_ONCE;

	if (ioctl(folder, IOC_SHUTDOWN, &how))
		err(1, "stopping the volume");
}

static void write_old(void)
{
	char page[PAGE];
	unsigned int i;

	memset(page, 'o', PAGE);
	for (i = 0; i < pages; i++)
		if (pwrite(file, page, PAGE, i * PAGE) != PAGE)
			err(1, "writing");
}

static void *bring(void *unused)
{
	size_t bytes = (size_t)pages * PAGE;
	struct iovec from = { source, bytes }, to = { target, bytes };

	if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != (ssize_t)bytes)
		err(1, "process_vm_writev");
	return NULL;
}

/* All pages are pinned, and nobody has the file mapped any more: what waits for the first page of the source. */
static int pin(pthread_t *thread)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register first = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffd_msg msg;
	int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	size_t bytes = (size_t)pages * PAGE;

	target = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (target == MAP_FAILED)
		err(1, "mmap");
	source = memory(bytes);
	brought = memory(PAGE);
	memset(source + PAGE, 'n', bytes - PAGE);
	memset(brought, 'n', PAGE);
	first.range.start = (uintptr_t)source;
	first.range.len = PAGE;
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &first))
		err(1, "userfaultfd");
	if (pthread_create(thread, NULL, bring, NULL))
		errx(1, "no thread");
	if (read(faults, &msg, sizeof(msg)) != sizeof(msg))
		err(1, "userfaultfd");
	munmap(target, bytes);
	return faults;
}

static void let_go(int faults, pthread_t thread)
{
	struct uffdio_copy copy = { .dst = (uintptr_t)source, .src = (uintptr_t)brought, .len = PAGE };

	if (ioctl(faults, UFFDIO_COPY, &copy))
		err(1, "UFFDIO_COPY");
	pthread_join(thread, NULL);
}

static void ahead(int twice)
{
	pthread_t thread;
	int faults, i;

	for (i = 0; i < 3; i++) {	/* the first time there may be no area yet, or a small one */
		write_old();
		sync_file(file);
		commit();
	}
	write_old();
	faults = pin(&thread);
	sync_file(file);
	let_go(faults, thread);
	if (twice) {
		sync_file(file);
		stop();
	} else {
		commit();
	}
}

static atomic_bool begun;

static void *sync_first(void *unused)
{
	atomic_store(&begun, 1);
	fsync(file);			/* it may fail: the volume may be stopped by then */
	return NULL;
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void beside(double delay)
{
	pthread_t thread;
	int faults, second = open_file();
	double began;

	pages = PAGES;
	write_old();
	faults = pin(&thread);
	commit();
	let_go(faults, thread);
	if (pthread_create(&thread, NULL, sync_first, NULL))
		errx(1, "no thread");
	while (!atomic_load(&begun))
		;
	for (began = now_us(); now_us() - began < delay;)
		;
	sync_file(second);
	stop();
	pthread_join(thread, NULL);
}

static void check(void)
{
	unsigned int i, old = 0;
	ssize_t got;
	char byte;

	for (i = 0; (got = pread(file, &byte, 1, i * PAGE)) == 1; i++)
		old += byte != 'n';
	if (got < 0 || i < AHEAD_PAGES)
		errx(1, "the file cannot be read");
	if (old)
		errx(1, "%u pages have what they had before", old);
}

int main(int argc, char **argv)
{
	dir = argc > 2 ? argv[2] : "";
	folder = open(dir, O_RDONLY);
	file = open_file();
	if (argc == 3 && !strcmp(argv[1], "ahead"))
		ahead(0);
	else if (argc == 3 && !strcmp(argv[1], "twice"))
		ahead(1);
	else if (argc == 4 && !strcmp(argv[1], "beside"))
		beside(atof(argv[3]));
	else if (argc == 3 && !strcmp(argv[1], "check"))
		check();
	else
		errx(2, "usage: pinned ahead DIR | pinned twice DIR | pinned beside DIR DELAY | pinned check DIR");
	return 0;
}
