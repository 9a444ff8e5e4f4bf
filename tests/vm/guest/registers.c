// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * registers.h on whatever is mounted: the module, tux3-fuse, another filesystem to compare with.
 *
 *	registers DIR MILLISECONDS SEED [moves] [memory] [moved] [stores] [pieces] [names]
 *
 * Writers write by calls and with O_DIRECT, readers read so and through mappings; a thread of its own syncs, and lets the page
 * cache go.  Space is not to be short.  What is just being copied is seen in part, so a block is not seen as a whole; each of
 * its bytes is right.
 *
 * moves	COLLAPSE_RANGE and exchanges of ranges, too
 * memory	the caches of the machine are dropped now and then (root)
 * moved	the kernel moves pages elsewhere, splits large folios, and takes what is mapped for unused (root, debugfs)
 * stores	writers write through mappings, too; with FUSE SEEK_DATA does not know of these
 * pieces	what is written makes the file longer step by step, as with most filesystems
 * names	for the most part names are changed, looked up and listed
 */
#include <err.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include "core/ioctl.h"

struct reg_held {
	int file[2], direct[2], dir[2];
	char *map[2];
};
#define FAIL(...) do {			\
	fprintf(stderr, __VA_ARGS__);	\
	fputc('\n', stderr);		\
	_exit(1);			\
} while (0)
#define REG_TORN
#include "tests/registers.h"

#define READERS		3u
#define ALL		((size_t)REG_BLOCKS * REG_BLOCK)

static void must(bool right, const char *what)
{
	if (!right)
		FAIL("%s: %s", what, strerror(errno));
}

static bool drop_memory, move_pages, stores;

/* ---- what registers.h asks for ---- */

static size_t reg_do_write(struct owned *own, uint32_t f, const void *data, size_t size, uint64_t pos, uint64_t way)
{
	/* Nobody else changes the size, so what is within it is mapped. */
	if (stores && way % 4 == 0 && pos + size <= reg_do_size(own, f)) {
		memcpy(own->held.map[f] + pos, data, size);
		return size;
	}
	if (way % 4 == 1 && size % REG_BLOCK == 0)
		must(pwrite(own->held.direct[f], data, size, pos) == (ssize_t)size, "a direct write");
	else
		must(pwrite(own->held.file[f], data, size, pos) == (ssize_t)size, "a write");
	return size;
}

static __thread sigjmp_buf beyond;

static void beyond_end(int number)
{
	siglongjmp(beyond, 1);
}

/* By blocks, from the first one on: up to one that is behind the end. */
static ssize_t read_mapped(const char *map, void *data, size_t size)
{
	volatile size_t done = 0;

	if (sigsetjmp(beyond, 1))
		return done;
	for (; done < size; done += REG_BLOCK)
		memcpy((char *)data + done, map + done, REG_BLOCK);
	return done;
}

static ssize_t reg_do_read(const struct owned *own, uint32_t f, void *data, size_t size, uint64_t pos, uint64_t way)
{
	ssize_t got;

	if (way % 4 == 0)
		return read_mapped(own->held.map[f] + pos, data, size);
	got = pread(way % 4 == 1 ? own->held.direct[f] : own->held.file[f], data, size, pos);
	must(got >= 0, "a read");
	return got;
}

static void reg_do_truncate(struct owned *own, uint32_t f, uint64_t size)
{
	must(!ftruncate(own->held.file[f], size), "ftruncate");
}

static bool reg_do_fallocate(struct owned *own, uint32_t f, int mode, uint64_t pos, uint64_t size)
{
	must(!fallocate(own->held.file[f], mode, pos, size), "fallocate");
	return true;
}

static bool reg_do_exchange(struct owned *own, uint64_t pos, uint64_t size)
{
	struct tux3_ioc_exchange range = { .file1 = own->held.file[0], .offset1 = pos, .offset2 = pos, .length = size };

	must(!ioctl(own->held.file[1], TUX3_IOC_EXCHANGE_RANGE, &range), "exchange");
	return true;
}

static void reg_do_fsync(struct owned *own, uint32_t f, bool data_only)
{
	must(!(data_only ? fdatasync : fsync)(own->held.file[f]), "fsync");
}

static int64_t reg_do_seek_data(const struct owned *own, uint32_t f, uint64_t pos)
{
	int64_t found = lseek(own->held.file[f], pos, SEEK_DATA);

	must(found >= 0 || errno == ENXIO, "lseek");
	return found;
}

static uint64_t reg_do_size(const struct owned *own, uint32_t f)
{
	struct stat st;

	must(!fstat(own->held.file[f], &st), "fstat");
	return st.st_size;
}

static bool reg_do_set_xattr(struct owned *own, uint32_t f, const char *name, const void *value, size_t size)
{
	if (value)
		must(!fsetxattr(own->held.file[f], name, value, size, 0), "fsetxattr");
	else
		must(!fremovexattr(own->held.file[f], name), "fremovexattr");
	return true;
}

static ssize_t reg_do_get_xattr(const struct owned *own, uint32_t f, const char *name, void *value, size_t size)
{
	ssize_t got = fgetxattr(own->held.file[f], name, value, size);

	must(got >= 16 || errno == ENODATA, "fgetxattr");
	return got;
}

static uint64_t reg_do_create(struct owned *own, uint32_t d, const char *name)
{
	int fd = openat(own->held.dir[d], name, O_CREAT | O_EXCL | O_WRONLY, 0600);
	struct stat st;

	must(fd >= 0 && !fstat(fd, &st), "a new file");
	close(fd);
	return st.st_ino;
}

static void reg_do_unlink(struct owned *own, uint32_t d, const char *name)
{
	must(!unlinkat(own->held.dir[d], name, 0), "unlink");
}

static void reg_do_rename(struct owned *own, uint32_t d, const char *name, uint32_t to, const char *new_name, bool exchange)
{
	must(!renameat2(own->held.dir[d], name, own->held.dir[to], new_name, exchange ? RENAME_EXCHANGE : 0), "rename");
}

static uint64_t reg_do_look_up(const struct owned *own, uint32_t d, const char *name)
{
	struct stat st;

	if (!fstatat(own->held.dir[d], name, &st, 0))
		return st.st_ino;
	must(errno == ENOENT, "fstatat");
	return 0;
}

static void reg_do_list(const struct owned *own, uint32_t d, void (*fn)(void *ctx, const char *name, uint64_t ino), void *ctx)
{
	int fd = openat(own->held.dir[d], ".", O_RDONLY | O_DIRECTORY);
	DIR *dir = fdopendir(fd);
	struct dirent *entry;

	must(dir != NULL, "opendir");
	while ((entry = readdir(dir)))
		fn(ctx, entry->d_name, entry->d_ino);
	closedir(dir);
}

/* ---- running ---- */

static char top[2048];		/* what all is in: a new directory */

static int open_at(const char *kind, uint32_t number, uint32_t i, int flags)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s-%u-%u", top, kind, number, i);
	if (flags & O_DIRECTORY)
		mkdir(path, 0755);
	fd = open(path, flags, 0600);
	must(fd >= 0, path);
	return fd;
}

static void hold(struct owned *own, uint32_t number)
{
	struct reg_held *held = &own->held;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		held->file[i] = open_at("file", number, i, O_CREAT | O_RDWR | O_TRUNC);
		held->direct[i] = open_at("file", number, i, O_RDWR | O_DIRECT);
		held->dir[i] = open_at("dir", number, i, O_RDONLY | O_DIRECTORY);
		held->map[i] = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_SHARED, held->file[i], 0);
		must(held->map[i] != MAP_FAILED, "mmap");
	}
}

static void tell(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	must(fd >= 0 && write(fd, text, strlen(text)) >= 0, path);
	close(fd);
}

/* Of a file by its name, and by numbers of pages. */
static void split_folios(struct owned *own, uint32_t i)
{
	char text[sizeof(top) + 64];

	snprintf(text, sizeof(text), "%s/file-%u-%u,0x0,%#zx", top, (uint32_t)(own - owned), i, ALL / (size_t)getpagesize());
	tell("/sys/kernel/debug/split_huge_pages", text);
}

static void move(struct owned *own, uint64_t way)
{
	static const int advice[] = { MADV_PAGEOUT, MADV_COLD };

	if (way % 16 == 0)
		tell("/proc/sys/vm/compact_memory", "1");
	else if (way % 2)
		split_folios(own, way / 2 % 2);
	else
		must(!madvise(own->held.map[way / 2 % 2], ALL, advice[way / 4 % 2]), "madvise");
}

/* Nothing stays in memory for long. */
static void *forgetter(void *arg)
{
	uint64_t seed = 7;

	while (!__atomic_load_n(&reg_stop, __ATOMIC_RELAXED)) {
		struct owned *own = &owned[reg_random(&seed) % REG_WRITERS];

		usleep(reg_random(&seed) % 20000);
		if (reg_random(&seed) % 4 == 0)
			must(!syncfs(own->held.file[0]), "syncfs");
		must(!posix_fadvise(own->held.file[reg_random(&seed) % REG_FILES], 0, 0, POSIX_FADV_DONTNEED), "fadvise");
		if (drop_memory && reg_random(&seed) % 8 == 0)
			tell("/proc/sys/vm/drop_caches", "3");
		if (move_pages)
			move(own, reg_random(&seed));
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = beyond_end, .sa_flags = SA_NODEFER };
	pthread_t threads[REG_WRITERS + READERS + 1];
	uint64_t seed;
	uint32_t i;

	if (argc < 4)
		errx(2, "usage: registers DIR MILLISECONDS SEED [moves] [memory] [moved] [stores] [pieces] [names]");
	must(snprintf(top, sizeof(top), "%s/registers-XXXXXX", argv[1]) < (int)sizeof(top) && mkdtemp(top), argv[1]);
	seed = strtoull(argv[3], NULL, 0);
	for (i = 4; i < (uint32_t)argc; i++) {
		reg_moves |= !strcmp(argv[i], "moves");
		drop_memory |= !strcmp(argv[i], "memory");
		move_pages |= !strcmp(argv[i], "moved");
		stores |= !strcmp(argv[i], "stores");
		reg_pieces |= !strcmp(argv[i], "pieces");
		reg_names |= !strcmp(argv[i], "names");
	}
	sigaction(SIGBUS, &action, NULL);
	for (i = 0; i < (uint32_t)argc; i++)
		printf("%s%c", argv[i], i + 1 < (uint32_t)argc ? ' ' : '\n');
	fflush(stdout);
	for (i = 0; i < REG_WRITERS; i++) {
		owned_begin(&owned[i], seed * REG_WRITERS + i, i + 1);
		hold(&owned[i], i);
	}
	for (i = 0; i < REG_WRITERS; i++)
		must(!pthread_create(&threads[i], NULL, reg_writer, &owned[i]), "a thread");
	for (; i < REG_WRITERS + READERS; i++)
		must(!pthread_create(&threads[i], NULL, reg_reader, (void *)(uintptr_t)(seed * 100 + i)), "a thread");
	must(!pthread_create(&threads[i], NULL, forgetter, NULL), "a thread");
	usleep(strtoul(argv[2], NULL, 0) * 1000);
	__atomic_store_n(&reg_stop, true, __ATOMIC_RELAXED);
	for (i = 0; i <= REG_WRITERS + READERS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
