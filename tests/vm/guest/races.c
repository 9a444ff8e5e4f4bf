/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Races between system calls, page faults, the flusher and the end of inodes.  In the virtual machine:
 *
 *	races dying DIR SOURCE SECONDS	O_DIRECT reads from SOURCE into mappings of files that have no name any more: a
 *					device dirties pages of inodes that are about to be evicted, while the flusher looks
 *					at them.  The kernel must survive it.
 *	races handles DIR SECONDS	files lose their names and are closed while others open them by handle, write to them
 *					through that and close them, the caches are dropped all the time, and their inode
 *					numbers are used again.  Who gets in finds the file that the handle was made
 *					of, or nothing.  In the end no inode is left.
 *	races punch DIR SECONDS		stores through a mapping while another thread punches the same pages: no store may
 *					get SIGBUS, for the file is never shorter.
 *
 * With RACES_NO_MEMORY in the environment a system call may fail for want of memory: it is tried again, or left.
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
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#define BYTES	(64u << 10)
#define THREADS	4

#define HANDLES	64u	/* the last ones of each thread */
#define SETTLES	200u	/* commits until all that has no name must be gone */

static const char *dir, *source;
static double end;
static atomic_ulong rounds, faults;
static bool no_memory;

/* A system call failed: may it? */
static bool excused(void)
{
	return no_memory && errno == ENOMEM;
}

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
		if (fd < 0 && excused())
			continue;
		if (fd < 0 || (ftruncate(fd, BYTES) && !excused()))
			err(1, "%s", path);
		memory = map(fd);
		if (unlink(path) && !excused())
			err(1, "%s", path);
		close(fd);
		if (pread(from, memory, BYTES, 0) != BYTES && !no_memory)
			err(1, "%s", source);
		munmap(memory, BYTES);
		rounds++;
	}
	close(from);
	return NULL;
}

/* ---- handles ---- */

struct kept {
	pthread_mutex_t lock;
	struct file_handle handle;
	unsigned char bytes[MAX_HANDLE_SZ];
	uint64_t tag;		/* the first bytes of the file; 0: none */
};

static struct kept kept[THREADS][HANDLES];
static atomic_ulong opened;

static bool make_unnamed(const char *path, int thread, uint64_t tag)
{
	struct kept *slot = &kept[thread][tag % HANDLES];
	struct kept made = { .handle.handle_bytes = MAX_HANDLE_SZ, .tag = tag };
	static const char zeros[BYTES];
	int fd = open(path, O_RDWR | O_CREAT, 0600), mount;
	bool ok;

	if (fd < 0)
		return false;
	ok = pwrite(fd, &tag, sizeof(tag), 0) == sizeof(tag) && (tag % 16 || pwrite(fd, zeros, BYTES, 4096) == BYTES) &&
	     !name_to_handle_at(fd, "", &made.handle, &mount, AT_EMPTY_PATH);
	if (ok) {
		pthread_mutex_lock(&slot->lock);
		slot->handle = made.handle;
		memcpy(slot->bytes, made.bytes, sizeof(made.bytes));
		slot->tag = tag;
		pthread_mutex_unlock(&slot->lock);
	}
	ok = !unlink(path) && ok;
	close(fd);
	return ok;
}

static void *make_thread(void *number)
{
	uint64_t tag = (uint64_t)number << 32;
	char path[4096];

	snprintf(path, sizeof(path), "%s/unnamed-%ld", dir, (long)number);
	while (now() < end) {
		if (!make_unnamed(path, (long)number, ++tag) && !excused())
			err(1, "%s", path);
		rounds++;
	}
	unlink(path);
	return NULL;
}

static void open_kept(int mount, struct kept *slot)
{
	uint64_t tag = 0;
	int fd = open_by_handle_at(mount, &slot->handle, O_RDWR);

	if (fd < 0) {
		/* ENOMEM: its number is being used again at this moment, and this is what the VFS makes of it. */
		if (errno != ESTALE && errno != ENOMEM)
			err(1, "opening by handle");
		return;
	}
	if ((pread(fd, &tag, sizeof(tag), 0) != sizeof(tag) && !excused()) || (tag != slot->tag && !no_memory))
		errx(1, "a handle of file %jx led to %jx", (uintmax_t)slot->tag, (uintmax_t)tag);
	if (pwrite(fd, "x", 1, 100) != 1 && !excused())
		err(1, "writing by handle");
	close(fd);
	opened++;
}

static void *open_thread(void *number)
{
	int mount = open(dir, O_RDONLY);
	unsigned int at = 0;

	if (mount < 0)
		err(1, "%s", dir);
	while (now() < end) {
		struct kept *slot = &kept[(long)number][at++ % HANDLES];

		pthread_mutex_lock(&slot->lock);
		if (slot->tag)
			open_kept(mount, slot);
		pthread_mutex_unlock(&slot->lock);
	}
	close(mount);
	return NULL;
}

static void *drop_thread(void *unused)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (fd < 0 || pwrite(fd, "4", 1, 0) != 1)	/* say nothing */
		err(1, "drop_caches");
	while (now() < end) {
		if (pwrite(fd, "3", 1, 0) != 1)
			err(1, "drop_caches");
		usleep(1000);
	}
	close(fd);
	return NULL;
}

static unsigned long inodes_used(void)
{
	struct statfs stat;

	if (statfs(dir, &stat))
		err(1, "%s", dir);
	return stat.f_files - stat.f_ffree;
}

static void handles(void)
{
	pthread_t threads[2 * THREADS + 1];
	unsigned long before = inodes_used(), after, i;
	int mount = open(dir, O_RDONLY);

	for (i = 0; i < THREADS * HANDLES; i++)
		pthread_mutex_init(&kept[i / HANDLES][i % HANDLES].lock, NULL);
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[2 * i], NULL, make_thread, (void *)i) ||
		    pthread_create(&threads[2 * i + 1], NULL, open_thread, (void *)i))
			errx(1, "no thread");
	if (pthread_create(&threads[2 * THREADS], NULL, drop_thread, NULL))
		errx(1, "no thread");
	for (i = 0; i < 2 * THREADS + 1; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; (after = inodes_used()) != before && i < SETTLES; i++)
		if (syncfs(mount) || usleep(20000))
			err(1, "%s", dir);
	close(mount);
	printf("%lu opened by handle\n", opened);
	if (after != before)
		errx(1, "%lu inodes without a name are left", after - before);
}

/* ---- stores and punches ---- */

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
	no_memory = getenv("RACES_NO_MEMORY");
	if (argc == 5 && !strcmp(argv[1], "dying")) {
		dir = argv[2];
		source = argv[3];
		end = now() + atof(argv[4]);
		dying();
	} else if (argc == 4 && !strcmp(argv[1], "handles")) {
		dir = argv[2];
		end = now() + atof(argv[3]);
		handles();
	} else if (argc == 4 && !strcmp(argv[1], "punch")) {
		dir = argv[2];
		end = now() + atof(argv[3]);
		punch();
	} else {
		errx(2, "usage: races dying DIR SOURCE SECONDS | races handles|punch DIR SECONDS");
	}
	printf("%lu rounds, %lu times SIGBUS\n", rounds, faults);
	return !rounds || faults;
}
