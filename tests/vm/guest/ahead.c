/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Many threads that write and fsync, beside all that goes on with the same and with other files.  In the virtual machine, on
 * a volume mounted with fsync=ahead:
 *
 *	ahead run DIR SECONDS NOTES	work, then stop the volume in the middle of it; what must be there is noted
 *	ahead check DIR NOTES		mounted again: it is there, and nothing is in a file that was not written to it
 *	ahead again DIR SECONDS COUNTERS one block is written and fsynced, again and again, beside commits one after the other: an
 *					fsync that goes ahead has to write it, unless its delta is durable by then.  COUNTERS: the
 *					volume's folder in /sys/fs/tux3
 *	ahead late DIR COUNTERS		stores through a mapping into a delta that is being committed, behind an fsync that went
 *					ahead beside that; synced once more, then the volume is stopped.  Status 3: the moment was
 *					missed
 *	ahead kept DIR			mounted again: these stores are there
 *
 * Who is at work
 *	owners		each has some files of its own: makes them, overwrites them as a whole or in part (also through a mapping,
 *			which goes on after an fsync), appends, renames, unlinks; then fsync, and notes what it may rely on
 *	savers		write a file under another name, fsync it, rename it over the old one, which they may have moved away,
 *			and fsync it or its directory: in two directories that all of them share
 *	neighbours	write to, cut, punch, preallocate, map and fsync a few files that all of them have open
 *	a maker		makes small files and unlinks them, and syncs nothing: commits have much to do
 *	an evictor	drops the owners' files from the page cache, and reads them
 *	victims		processes that write and fsync, and are killed all the time
 *
 * Each sector says to which file it belongs, its place in it, and with which change it came.
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
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define IOC_SHUTDOWN	_IOR('X', 125, uint32_t)
#define AT_ONCE		2u

#define SECTOR		512u
#define OWNERS		6u
#define FILES		8u		/* of each */
#define NEIGHBOURS	3u
#define SHARED		3u		/* their files */
#define SHARED_BYTES	(1u << 20)
#define BYTES_MAX	(1u << 20)	/* of an owner's file: what many of them write at once stays where an fsync has put it */
#define MAKES		40u
#define SHARED_ID	1000000u
#define VICTIM_ID	2000000u
#define SAVERS		3u
#define SAVES		4u		/* files of each */
#define SAVE_ID		3000000u

struct sector {
	uint64_t file, place, change;
	uint8_t rest[SECTOR - 24];	/* all the same byte, from file and change */
};

#define SECTORS_MAX	(BYTES_MAX / SECTOR)

/* An owner's file. */
struct file {
	uint64_t id;			/* another for each that is made anew; 0: there is none */
	uint64_t change;		/* the newest */
	uint64_t size;			/* in sectors */
	uint64_t synced_size;		/* 0: no fsync yet */
	uint32_t name;			/* it has had so many */
	uint32_t synced_name;
	uint64_t changes[SECTORS_MAX];	/* the newest one of each sector */
	uint64_t synced[SECTORS_MAX];	/* that of the last fsync: none is older */
};

/* A saver's: changes are versions of the whole. */
struct save {
	uint64_t change;
	uint64_t synced;		/* 0: none yet */
};

static const char *dir;
static struct notes {
	struct file files[OWNERS][FILES];
	struct save saves[SAVERS][SAVES];
} notes;
static struct file (*const files)[FILES] = notes.files;
static atomic_bool over;		/* the volume has stopped: errors are no news */
static atomic_ulong syncs, reads;
static atomic_ulong ids = 1;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* Something failed: is it because the volume has stopped?  Then the caller leaves. */
static bool ended(const char *what)
{
	int saved = errno;

	/* Who is first to hear of it may be faster than who has stopped it. */
	for (int i = 0; i < 100 && !over && (saved == EIO || saved == EROFS); i++)
		usleep(10000);
	errno = saved;
	if (!over)
		err(1, "%s", what);
	return true;
}

/* ---- sectors ---- */

static void fill(struct sector *at, uint64_t file, uint64_t place, uint64_t count, uint64_t change)
{
	for (uint64_t i = 0; i < count; i++) {
		at[i].file = file;
		at[i].place = place + i;
		at[i].change = change;
		memset(at[i].rest, (uint8_t)(file * 31 + change), sizeof(at[i].rest));
	}
}

static bool is_zero(const struct sector *at)
{
	static const struct sector zero;

	return !memcmp(at, &zero, sizeof(zero));
}

static bool is_whole(const struct sector *at, uint64_t file, uint64_t place)
{
	uint8_t byte = (uint8_t)(file * 31 + at->change);

	return at->file == file && at->place == place && at->rest[0] == byte &&
	       !memcmp(at->rest, at->rest + 1, sizeof(at->rest) - 1);
}

/* While others write, a sector may be read in the middle of it. */
static bool is_ours(const struct sector *at, uint64_t file, uint64_t place)
{
	return at->file == file && at->place == place;
}

static void tell(const char *path, const struct sector *at, uint64_t file, uint64_t place)
{
	errx(1, "%s: sector %ju of file %ju says sector %ju of file %ju, change %ju, then %02x", path, (uintmax_t)place,
	     (uintmax_t)file, (uintmax_t)at->place, (uintmax_t)at->file, (uintmax_t)at->change, at->rest[0]);
}

/* ---- stores ---- */

static _Thread_local sigjmp_buf cut_short;

static void on_sigbus(int sig)
{
	siglongjmp(cut_short, 1);
}

struct store {
	struct sector *at;
	uint64_t id, from, count, change;
};

/* false: somebody has cut the file, or the volume has stopped. */
static bool try_store(const struct store *store)
{
	if (sigsetjmp(cut_short, 1))
		return false;
	fill(store->at, store->id, store->from, store->count, store->change);
	return true;
}

/* ---- owners ---- */

static void path_of(char *path, unsigned int owner, const struct file *file, uint32_t name)
{
	sprintf(path, "%s/owner-%u/%ju.%u", dir, owner, (uintmax_t)file->id, name);
}

static uint64_t some_size(unsigned int *seed)
{
	static const uint32_t sizes[] = { 1, 5, 8, 9, 40, 128, 256, 600, 1400, BYTES_MAX / SECTOR - 64 };

	return sizes[rand_r(seed) % (sizeof(sizes) / sizeof(sizes[0]))];
}

/* It may be there from now on. */
static uint64_t owner_begin(struct file *file, uint64_t from, uint64_t count)
{
	file->change++;
	if (from + count > file->size)
		file->size = from + count;
	for (uint64_t i = from; i < from + count; i++)
		file->changes[i] = file->change;
	return file->change;
}

static bool owner_write(int fd, struct file *file, uint64_t from, uint64_t count)
{
	static _Thread_local struct sector buffer[SECTORS_MAX];

	fill(buffer, file->id, from, count, owner_begin(file, from, count));
	return pwrite(fd, buffer, count * SECTOR, from * SECTOR) == (ssize_t)(count * SECTOR);
}

static bool owner_sync(int fd, struct file *file)
{
	if (fsync(fd))
		return false;
	memcpy(file->synced, file->changes, file->size * sizeof(*file->synced));
	file->synced_size = file->size;
	file->synced_name = file->name;
	syncs++;
	return true;
}

/* Several times, each synced but for the last one: the second store to a page may come without a fault. */
static bool owner_store(int fd, struct file *file, uint64_t from, uint64_t count, unsigned int times)
{
	struct sector *memory = mmap(NULL, file->size * SECTOR, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bool ok = memory != MAP_FAILED;

	for (unsigned int i = 0; ok && i < times; i++) {
		struct store store = { memory + from, file->id, from, count, 0 };

		ok = !i || owner_sync(fd, file);
		if (!ok)
			break;
		store.change = owner_begin(file, from, count);
		ok = try_store(&store);
		errno = EIO;
	}
	if (memory != MAP_FAILED)
		munmap(memory, file->size * SECTOR);
	return ok;
}

static bool owner_make(unsigned int owner, struct file *file, unsigned int *seed)
{
	char path[4096];
	bool ok;
	int fd;

	*file = (struct file){ .id = ids++, .name = 1 };
	path_of(path, owner, file, 1);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return false;
	ok = owner_write(fd, file, 0, some_size(seed)) && owner_sync(fd, file);
	close(fd);
	return ok;
}

static bool owner_change(unsigned int owner, struct file *file, unsigned int *seed)
{
	unsigned int what = rand_r(seed) % 8;
	char path[4096], other[4096];
	uint64_t from, count;
	bool ok = true;
	int fd;

	path_of(path, owner, file, file->name);
	if (what == 0) {
		uint64_t gone = file->id;

		file->id = 0;
		sprintf(path, "%s/owner-%u/%ju.%u", dir, owner, (uintmax_t)gone, file->name);
		return !unlink(path);
	}
	fd = open(path, O_RDWR);
	if (fd < 0)
		return false;
	if (what == 1) {
		path_of(other, owner, file, file->name + 1);
		ok = !rename(path, other);
		file->name += ok;
	} else if (what <= 3 && file->size + 20 <= BYTES_MAX / SECTOR) {
		ok = owner_write(fd, file, file->size, 1 + rand_r(seed) % 20);
	} else {
		from = rand_r(seed) % 3 ? rand_r(seed) % file->size : 0;
		count = rand_r(seed) % 3 ? 1 + rand_r(seed) % (file->size - from) % 12 : file->size - from;
		ok = what == 4 ? owner_store(fd, file, from, count, 1 + rand_r(seed) % 3) : owner_write(fd, file, from, count);
	}
	ok = ok && owner_sync(fd, file);
	close(fd);
	return ok;
}

static void *owner_thread(void *number)
{
	unsigned int owner = (long)number, seed = owner + 1;

	for (;;) {
		struct file *file = &files[owner][rand_r(&seed) % FILES];

		if (!(file->id ? owner_change(owner, file, &seed) : owner_make(owner, file, &seed)) && ended("an owner"))
			return NULL;
	}
}

/* ---- savers ---- */

static uint64_t save_id(unsigned int saver, unsigned int number)
{
	return SAVE_ID + saver * SAVES + number;
}

static void save_path(char *path, unsigned int saver, unsigned int number, const char *end)
{
	sprintf(path, "%s/save-%u/%u-%u%s", dir, number % 2, saver, number, end);
}

static bool sync_path(const char *path)
{
	int fd = open(path, O_RDONLY);
	bool fine = fd >= 0 && !fsync(fd);

	if (fd >= 0)
		close(fd);
	atomic_fetch_add(&syncs, fine);
	return fine;
}

static bool save_temporary(const char *path, uint64_t id, uint64_t change)
{
	struct sector sectors[4];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ssize_t bytes = (1 + change % 4) * SECTOR;
	bool fine;

	fill(sectors, id, 0, 4, change);
	fine = fd >= 0 && write(fd, sectors, bytes) == bytes && !fsync(fd);
	if (fd >= 0)
		close(fd);
	return fine;
}

static bool save(unsigned int saver, unsigned int number, unsigned int *seed)
{
	struct save *file = &notes.saves[saver][number];
	char temporary[4096], path[4096], backup[4096], folder[4096];

	sprintf(temporary, "%s/save-%u/temporary-%u", dir, rand_r(seed) % 2, saver);
	save_path(path, saver, number, "");
	save_path(backup, saver, number, ".backup");
	sprintf(folder, "%s/save-%u", dir, number % 2);
	file->change++;
	if (!save_temporary(temporary, save_id(saver, number), file->change))
		return false;
	if (!(rand_r(seed) % 3) && rename(path, backup) && errno != ENOENT)
		return false;
	if (rename(temporary, path) || !sync_path(rand_r(seed) % 2 ? folder : path))
		return false;
	file->synced = file->change;
	if (!(rand_r(seed) % 8) && unlink(backup) && errno != ENOENT)
		return false;
	return true;
}

static void *saver_thread(void *number)
{
	unsigned int saver = (uintptr_t)number, seed = 4711 + saver;

	while (save(saver, rand_r(&seed) % SAVES, &seed))
		;
	ended("saving");
	return NULL;
}

/* ---- others ---- */

/* Some sectors, through a mapping: somebody may cut the file meanwhile. */
static void shared_store(int fd, uint64_t id, uint64_t from, uint64_t count, uint64_t change)
{
	struct sector *memory = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct store store = { memory + from, id, from, count, change };

	if (memory == MAP_FAILED)
		err(1, "mmap");
	try_store(&store);
	munmap(memory, SHARED_BYTES);
}

static bool shared_change(int fd, uint64_t id, uint64_t change, unsigned int *seed)
{
	uint64_t from = rand_r(seed) % (SHARED_BYTES / SECTOR - 64), count = 1 + rand_r(seed) % 64;
	struct sector buffer[64];

	switch (rand_r(seed) % 8) {
	case 0:
		return !ftruncate(fd, from * SECTOR);
	case 1:
		return !fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from * SECTOR, count * SECTOR);
	case 2:
		return !fallocate(fd, 0, from * SECTOR, count * SECTOR);
	case 3:
	case 4:
		shared_store(fd, id, from, count, change);
		return true;
	}
	fill(buffer, id, from, count, change);
	return pwrite(fd, buffer, count * SECTOR, from * SECTOR) == (ssize_t)(count * SECTOR);
}

static void *neighbour_thread(void *number)
{
	unsigned int seed = 100 + (long)number;
	uint64_t change = 0, i;
	char path[4096];
	int fds[SHARED];

	for (i = 0; i < SHARED; i++) {
		sprintf(path, "%s/shared-%ju", dir, (uintmax_t)i);
		fds[i] = open(path, O_RDWR | O_CREAT, 0600);
		if (fds[i] < 0 && ended(path))
			return NULL;
	}
	for (;;) {
		i = rand_r(&seed) % SHARED;
		if ((!shared_change(fds[i], SHARED_ID + i, ++change, &seed) || (rand_r(&seed) % 4 == 0 && fsync(fds[i]))) &&
		    ended("a neighbour"))
			return NULL;
		syncs++;
	}
}

static void *maker_thread(void *unused)
{
	static char bytes[6000];
	char path[4096];
	unsigned int i;
	int fd;

	for (;;) {
		for (i = 0; i < MAKES; i++) {
			sprintf(path, "%s/maker/%u", dir, i);
			fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
			if ((fd < 0 || write(fd, bytes, 700 + i * 130) < 0) && ended(path))
				return NULL;
			close(fd);
		}
		usleep(1000);
		for (i = 0; i < MAKES; i += 2) {
			sprintf(path, "%s/maker/%u", dir, i);
			if (unlink(path) && ended(path))
				return NULL;
		}
	}
}

/* Whatever is read, it is of this file. */
static void evict(const char *path, uint64_t id)
{
	static _Thread_local struct sector buffer[BYTES_MAX / SECTOR];
	int fd = open(path, O_RDONLY);
	ssize_t got;

	if (fd < 0)
		return;			/* it has another name by now, or none */
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	got = pread(fd, buffer, sizeof(buffer), 0);
	close(fd);
	for (ssize_t i = 0; i < got / (ssize_t)SECTOR; i++)
		if (!is_ours(&buffer[i], id, i))
			tell(path, &buffer[i], id, i);
	reads++;
}

static void *evictor_thread(void *unused)
{
	unsigned int seed = 200;
	char path[4096];

	while (!over) {
		unsigned int owner = rand_r(&seed) % OWNERS;
		struct file *file = &files[owner][rand_r(&seed) % FILES], copy = *file;

		path_of(path, owner, &copy, copy.name);
		if (copy.id)
			evict(path, copy.id);
	}
	return NULL;
}

/* Never returns; has threads of its own, so that some wait while others write. */
static void *victim_thread(void *number)
{
	static _Thread_local struct sector buffer[64];
	char path[4096];
	int fd;

	sprintf(path, "%s/victim/%ld", dir, (long)number);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	fill(buffer, VICTIM_ID + (long)number, 0, 64, 1);
	while (fd >= 0 && pwrite(fd, buffer, sizeof(buffer), 0) > 0 && !fsync(fd))
		;
	_exit(0);
}

static void victim(void)
{
	pthread_t thread;

	for (long i = 1; i < 4; i++)
		pthread_create(&thread, NULL, victim_thread, (void *)i);
	victim_thread(NULL);
}

static void kill_victims(double end)
{
	unsigned int seed = 300;

	while (now() < end) {
		pid_t child = fork();

		if (child < 0)
			err(1, "fork");
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			victim();
		}
		usleep(20000 + rand_r(&seed) % 60000);
		kill(child, SIGKILL);
		if (waitpid(child, NULL, 0) != child)
			err(1, "waitpid");
	}
}

/* ---- run ---- */

static void make_dir(const char *format, unsigned int number)
{
	char path[4096];

	sprintf(path, format, dir, number);
	if (mkdir(path, 0700) && errno != EEXIST)
		err(1, "%s", path);
}

static void make_dirs(void)
{
	int fd = open(dir, O_RDONLY);

	for (unsigned int i = 0; i < OWNERS; i++)
		make_dir("%s/owner-%u", i);
	for (unsigned int i = 0; i < 2; i++)
		make_dir("%s/save-%u", i);
	make_dir("%s/maker", 0);
	make_dir("%s/victim", 0);
	if (fd < 0 || syncfs(fd))	/* a file in a new directory does not go ahead */
		err(1, "%s", dir);
	close(fd);
}

static void stop(void)
{
	uint32_t at_once = AT_ONCE;
	int fd = open(dir, O_RDONLY);

	if (fd < 0 || ioctl(fd, IOC_SHUTDOWN, &at_once))
		err(1, "stopping %s", dir);
	over = true;
	close(fd);
}

static void start(pthread_t *thread, void *(*run)(void *), long number)
{
	if (pthread_create(thread, NULL, run, (void *)number))
		errx(1, "no thread");
}

static void run(double seconds, const char *path)
{
	pthread_t threads[OWNERS + SAVERS + NEIGHBOURS + 2];
	struct sigaction action = { .sa_handler = on_sigbus };
	unsigned int count = 0, i;
	FILE *out;

	sigaction(SIGBUS, &action, NULL);
	make_dirs();
	for (i = 0; i < OWNERS; i++)
		start(&threads[count++], owner_thread, i);
	for (i = 0; i < SAVERS; i++)
		start(&threads[count++], saver_thread, i);
	for (i = 0; i < NEIGHBOURS; i++)
		start(&threads[count++], neighbour_thread, i);
	start(&threads[count++], maker_thread, 0);
	start(&threads[count++], evictor_thread, 0);
	kill_victims(now() + seconds);
	stop();
	for (i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	out = fopen(path, "w");
	if (!out || fwrite(&notes, sizeof(notes), 1, out) != 1 || fclose(out))
		err(1, "%s", path);
	printf("%lu fsyncs, %lu files read\n", syncs, reads);
	if (!syncs || !reads)
		errx(1, "nothing was done");
}

/* ---- check ---- */

static void check_owner(unsigned int owner, const struct file *file)
{
	static struct sector buffer[SECTORS_MAX + 1];
	char path[4096];
	uint32_t name = file->synced_name;
	ssize_t got;
	int fd;

	if (!file->id || !file->synced_size)
		return;
	for (;; name++) {		/* what was renamed and not synced may be there in time */
		path_of(path, owner, file, name);
		fd = open(path, O_RDONLY);
		if (fd >= 0)
			break;
		if (name >= file->name)
			err(1, "%s, which was synced with name %u", path, file->synced_name);
	}
	got = read(fd, buffer, sizeof(buffer)) / SECTOR;
	close(fd);
	if (got < (ssize_t)file->synced_size || got > (ssize_t)file->size)
		errx(1, "%s has %zd sectors, not %ju to %ju", path, got, (uintmax_t)file->synced_size, (uintmax_t)file->size);
	for (ssize_t i = 0; i < got; i++)
		if (!is_whole(&buffer[i], file->id, i) || buffer[i].change > file->change ||
		    buffer[i].change < (i < (ssize_t)file->synced_size ? file->synced[i] : 1))
			tell(path, &buffer[i], file->id, i);
}

/* The version that is there; 0: none. */
static uint64_t check_version(const char *path, uint64_t id, const struct save *file)
{
	struct sector sectors[5];
	int fd = open(path, O_RDONLY);
	ssize_t got;

	if (fd < 0 && errno == ENOENT)
		return 0;
	got = fd < 0 ? -1 : read(fd, sectors, sizeof(sectors));
	if (got < 0)
		err(1, "%s", path);
	close(fd);
	if (!got || got != (ssize_t)((1 + sectors[0].change % 4) * SECTOR))
		errx(1, "%s has %zd bytes", path, got);
	for (ssize_t i = 0; i < got / (ssize_t)SECTOR; i++)
		if (!is_whole(&sectors[i], id, i) || sectors[i].change != sectors[0].change || sectors[i].change > file->change)
			tell(path, &sectors[i], id, i);
	return sectors[0].change;
}

/* What was saved, or the next one; it may have been moved away for that. */
static bool check_save(unsigned int saver, unsigned int number)
{
	const struct save *file = &notes.saves[saver][number];
	char path[4096], backup[4096];
	uint64_t is, was;

	save_path(path, saver, number, "");
	save_path(backup, saver, number, ".backup");
	is = check_version(path, save_id(saver, number), file);
	was = check_version(backup, save_id(saver, number), file);
	if (is < file->synced && was < file->synced)
		errx(1, "%s is version %ju, and its backup %ju; %ju was synced, of %ju", path, (uintmax_t)is, (uintmax_t)was,
		     (uintmax_t)file->synced, (uintmax_t)file->change);
	if (is && was >= is)
		errx(1, "%s is version %ju, but its backup %ju", path, (uintmax_t)is, (uintmax_t)was);
	return file->synced;
}

static void check_stamped(const char *path, uint64_t id)
{
	static struct sector buffer[SHARED_BYTES / SECTOR];
	int fd = open(path, O_RDONLY);
	ssize_t got = fd < 0 ? 0 : read(fd, buffer, sizeof(buffer));

	if (fd >= 0)
		close(fd);
	for (ssize_t i = 0; i < got / (ssize_t)SECTOR; i++)
		if (!is_zero(&buffer[i]) && !is_whole(&buffer[i], id, i))
			tell(path, &buffer[i], id, i);
}

static void check(const char *from)
{
	FILE *in = fopen(from, "r");
	unsigned int i, j, synced = 0;
	char path[4096];

	if (!in || fread(&notes, sizeof(notes), 1, in) != 1)
		err(1, "%s", from);
	fclose(in);
	for (i = 0; i < SAVERS; i++)
		for (j = 0; j < SAVES; j++)
			synced += check_save(i, j);
	for (i = 0; i < OWNERS; i++)
		for (j = 0; j < FILES; j++) {
			check_owner(i, &files[i][j]);
			synced += files[i][j].id && files[i][j].synced_size;
		}
	for (i = 0; i < SHARED; i++) {
		sprintf(path, "%s/shared-%u", dir, i);
		check_stamped(path, SHARED_ID + i);
	}
	for (i = 0; i < 4; i++) {
		sprintf(path, "%s/victim/%u", dir, i);
		check_stamped(path, VICTIM_ID + i);
	}
	printf("%u files are what was synced\n", synced);
}

/* ---- again ---- */

static unsigned long counter(const char *counters, const char *name)
{
	char path[4096];
	unsigned long value;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", counters, name);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%lu", &value) != 1)
		err(1, "%s", path);
	fclose(file);
	return value;
}

static void *commit_thread(void *unused)
{
	char path[4096] = "";
	unsigned int i;
	int fd;

	for (i = 0; !over; i++) {
		sprintf(path, "%s/other-%u", dir, i % 4);
		fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
		if (fd < 0 || write(fd, path, sizeof(path)) < 0 || syncfs(fd))
			err(1, "%s", path);
		close(fd);
	}
	return NULL;
}

static unsigned long counted_deltas(const char *counters)
{
	return counter(counters, "deltas") + counter(counters, "deltas_empty");
}

/*
 * Returns whether it went ahead.  A delta is durable, and counted, before its blocks turn clean, and that it is committed is said
 * last: an fsync in between goes ahead without blocks, and may.  uncounted: deltas before those that are counted.
 */
static bool write_and_sync(int fd, const char *counters, unsigned long uncounted)
{
	unsigned long front = counter(counters, "front_delta"), ahead = counter(counters, "fsyncs_ahead");
	unsigned long blocks = counter(counters, "intent_blocks");
	static char block[4096];

	block[0]++;
	if (pwrite(fd, block, sizeof(block), 0) != sizeof(block) || fsync(fd))
		err(1, "write and fsync");
	if (counter(counters, "fsyncs_ahead") == ahead)
		return false;
	if (counter(counters, "intent_blocks") < blocks + 2 && uncounted + counted_deltas(counters) < front)
		errx(1, "fsync %lu went ahead of delta %lu or a newer one without the block that was written", ahead + 1, front);
	return true;
}

static void again(double seconds, const char *counters)
{
	unsigned long went = 0, uncounted;
	pthread_t commits;
	char path[4096];
	double end;
	int fd;

	sprintf(path, "%s/again", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		err(1, "%s", path);
	if (syncfs(fd))
		err(1, "syncfs");
	usleep(300000);		/* nothing is changed, so nothing is being committed */
	uncounted = counter(counters, "committed_delta") - counted_deltas(counters);
	start(&commits, commit_thread, 0);
	for (end = now() + seconds; now() < end; )
		went += write_and_sync(fd, counters, uncounted);
	over = true;
	pthread_join(commits, NULL);
	close(fd);
	printf("%lu fsyncs went ahead\n", went);
	if (went < 100)
		errx(1, "that is too few");
}

/* ---- late ---- */

#define LATE_LOAD	(64u << 20)	/* what is committed before the pages */
#define LATE_PAGES	8u
#define PAGE		4096u

static void *syncfs_thread(void *ended)
{
	int fd = open(dir, O_RDONLY);

	if (fd < 0 || syncfs(fd))
		err(1, "syncfs");
	atomic_store((atomic_bool *)ended, true);
	close(fd);
	return NULL;
}

static int late_file(const char *name)
{
	char path[4096];
	int fd;

	sprintf(path, "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		err(1, "%s", path);
	return fd;
}

static void late_write(int fd, size_t bytes)
{
	static char zeros[1u << 20];
	size_t done;

	for (done = 0; done < bytes; done += sizeof(zeros))
		if (pwrite(fd, zeros, bytes < sizeof(zeros) ? bytes : sizeof(zeros), done) < 0)
			err(1, "writing");
}

static void late_store(char *memory, char value)
{
	for (unsigned int i = 0; i < LATE_PAGES; i++)
		memory[i * PAGE] = value;
}

/* Of two files the one that was made first is committed first. */
static bool late(const char *counters)
{
	int load = late_file("load"), fd = late_file("late");
	unsigned long front, ahead;
	atomic_bool ended = false;
	pthread_t thread;
	bool met;
	char *memory;

	late_write(load, PAGE);
	late_write(fd, LATE_PAGES * PAGE);
	if (syncfs(fd))
		err(1, "syncfs");
	memory = mmap(NULL, LATE_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	late_store(memory, 1);
	late_write(load, LATE_LOAD);
	late_store(memory, 1);		/* by now a commit may have been due */
	front = counter(counters, "front_delta");
	ahead = counter(counters, "fsyncs_ahead");
	if (pthread_create(&thread, NULL, syncfs_thread, &ended))
		errx(1, "no thread");
	while (counter(counters, "front_delta") == front)
		;
	if (fsync(fd))
		err(1, "fsync");
	late_store(memory, 2);
	met = counter(counters, "fsyncs_ahead") > ahead && !ended;
	pthread_join(thread, NULL);
	if (fsync(fd))
		err(1, "fsync");
	stop();
	return met;
}

static void kept(void)
{
	int fd = late_file("late");
	char byte = 0;

	for (unsigned int i = 0; i < LATE_PAGES; i++)
		if (pread(fd, &byte, 1, i * PAGE) != 1 || byte != 2)
			errx(1, "page %u has %d, though 2 was synced", i, byte);
}

int main(int argc, char **argv)
{
	dir = argc > 2 ? argv[2] : "";
	if (argc == 5 && !strcmp(argv[1], "run"))
		run(atof(argv[3]), argv[4]);
	else if (argc == 4 && !strcmp(argv[1], "check"))
		check(argv[3]);
	else if (argc == 5 && !strcmp(argv[1], "again"))
		again(atof(argv[3]), argv[4]);
	else if (argc == 4 && !strcmp(argv[1], "late"))
		return late(argv[3]) ? 0 : 3;
	else if (argc == 3 && !strcmp(argv[1], "kept"))
		kept();
	else
		errx(2, "usage: ahead run DIR SECONDS NOTES | ahead check DIR NOTES | ahead again DIR SECONDS COUNTERS | "
		     "ahead late DIR COUNTERS | ahead kept DIR");
	return 0;
}
