// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Is what a delta commits what it held?  Files are changed in all ways by several threads while commits follow each
 * other closely.
 *
 *	separation model DIR SECONDS SEED STATE	random changes against a model; what the files must hold goes to STATE
 *	separation verify DIR STATE		after a remount: they do
 *	separation atomic DIR SECONDS SEED	changes whose halves must never be seen apart; a shutdown in the end
 *	separation check DIR			after a remount: each file is in a state between two changes
 *
 * Exit status 0, or 1 after a message.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KB 1024u
#define OWN_FILES 4
#define SHARERS 3
#define MOST (1024 * KB)		/* size of a file of the model */
#define STRIPE 3000u			/* bytes of the shared file that belong to one thread, then to the next */
#define IOC_SHUTDOWN _IOR('X', 125, uint32_t)

static const char *dir;
static volatile bool stop;
static pthread_mutex_t say_lock = PTHREAD_MUTEX_INITIALIZER;
static int failures;

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&say_lock);
	if (failures++ < 20) {
		va_start(args, format);
		vprintf(format, args);
		va_end(args);
		printf("\n");
		fflush(stdout);
	}
	pthread_mutex_unlock(&say_lock);
	stop = true;
}

static int open_file(const char *name, int number, int flags)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s%d", dir, name, number);
	fd = open(path, flags, 0644);
	if (fd < 0) {
		perror(path);
		exit(1);
	}
	return fd;
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state >> 11;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void write_all(int fd, const void *data, size_t size, off_t at)
{
	ssize_t done = pwrite(fd, data, size, at);

	if (done != (ssize_t)size && !stop)
		complain("pwrite of %zu bytes at %lld: %zd, %s", size, (long long)at, done, strerror(errno));
}

static void set_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd >= 0) {
		if (write(fd, text, strlen(text)) < 0)
			errno = 0;
		close(fd);
	}
}

/*
 * Commits, and all that takes folios from the page cache or, if wanted, moves them: what moves is user memory too,
 * and a write whose memory is not there at the moment becomes two.
 */
static bool may_move;

static void *disturb(void *arg)
{
	uint64_t rng = (uintptr_t)arg | 1;
	int fd = open(dir, O_RDONLY);

	while (!stop) {
		switch (random_next(&rng) % 8) {
		case 0:
			set_file("/proc/sys/vm/drop_caches", "1");
			break;
		case 1:
			if (may_move)
				set_file("/proc/sys/vm/compact_memory", "1");
			break;
		case 2:
			sync();
			break;
		default:
			syncfs(fd);
		}
		usleep(random_next(&rng) % 20000);
	}
	close(fd);
	return NULL;
}

/* ---- the model ---- */

struct file {
	char *name;
	int number, fd;
	uint64_t rng, size;
	uint8_t *data;			/* what it holds; zero beyond size */
	uint8_t *map;			/* of MOST bytes */
	uint32_t owner, owners;		/* of a shared file: this thread's stripes */
	uint64_t steps;
};

static void fill(uint8_t *data, size_t size, uint64_t *rng)
{
	uint64_t value = random_next(rng);
	size_t i;

	for (i = 0; i < size; i++)
		data[i] = (value >> (i & 7) * 7) + (i >> 3);
}

static void pick(struct file *file, uint64_t most, uint64_t *at, uint64_t *len)
{
	static const uint32_t lengths[] = { 100, 700, 4096, 9000, 40000, 300000 };

	*at = random_next(&file->rng) % most;
	if (!(random_next(&file->rng) & 3))
		*at &= ~4095ull;
	*len = 1 + random_next(&file->rng) % lengths[random_next(&file->rng) % 6];
	if (*len > most - *at)
		*len = most - *at;
}

static void check_bytes(struct file *file, const char *how, const uint8_t *got, uint64_t at, uint64_t len)
{
	uint64_t i;

	if (!memcmp(got, file->data + at, len))
		return;
	for (i = 0; got[i] == file->data[at + i]; i++)
		;
	complain("%s%d, step %llu: by %s byte %llu (of %llu at %llu; size %llu) is %02x, not %02x",
		 file->name, file->number,
		 (unsigned long long)file->steps, how, (unsigned long long)(at + i), (unsigned long long)len,
		 (unsigned long long)at, (unsigned long long)file->size, got[i], file->data[at + i]);
}

static void model_write(struct file *file, uint64_t at, uint64_t len)
{
	fill(file->data + at, len, &file->rng);
	write_all(file->fd, file->data + at, len, at);
	if (at + len > file->size)
		file->size = at + len;
}

static void model_store(struct file *file, uint64_t at, uint64_t len)
{
	fill(file->data + at, len, &file->rng);
	memcpy(file->map + at, file->data + at, len);
}

static void model_read(struct file *file, uint64_t at, uint64_t len)
{
	uint8_t *got = malloc(len);
	ssize_t done = pread(file->fd, got, len, at);

	if (done != (ssize_t)len)
		complain("%s%d: pread of %llu at %llu: %zd", file->name, file->number, (unsigned long long)len,
			 (unsigned long long)at, done);
	else
		check_bytes(file, "read", got, at, len);
	free(got);
}

static void model_truncate(struct file *file)
{
	uint64_t size = random_next(&file->rng) % (random_next(&file->rng) & 3 ? MOST : 1500);

	if (!(random_next(&file->rng) & 3))
		size &= ~4095ull;
	/* What a mapping leaves beyond the end must be gone when the end moves on. */
	if (file->size & 4095 && random_next(&file->rng) & 1)
		file->map[file->size] = 0xee;
	if (ftruncate(file->fd, size))
		complain("ftruncate: %s", strerror(errno));
	if (size < file->size)
		memset(file->data + size, 0, file->size - size);
	file->size = size;
}

static void model_fallocate(struct file *file, uint64_t at, uint64_t len)
{
	static const int modes[] = { FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE, 0, FALLOC_FL_KEEP_SIZE };
	int mode = modes[random_next(&file->rng) % 5];
	uint64_t stop = at + len < file->size ? at + len : file->size;

	if (fallocate(file->fd, mode, at, len))
		complain("fallocate mode %d: %s", mode, strerror(errno));
	if (mode & ~FALLOC_FL_KEEP_SIZE && stop > at)
		memset(file->data + at, 0, stop - at);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && at + len > file->size)
		file->size = at + len;
}

static void model_step(struct file *file)
{
	uint64_t at, len, what = random_next(&file->rng) % 100;
	bool full = file->size > 0;

	pick(file, what < 40 || what >= 90 || !full ? MOST : file->size, &at, &len);
	file->steps++;
	if (what < 40 || !full)
		model_write(file, at, len);
	else if (what < 60)
		model_store(file, at, len);
	else if (what < 72)
		model_read(file, at, len);
	else if (what < 80)
		check_bytes(file, "mapping", file->map + at, at, len);
	else if (what < 84)
		msync(file->map, MOST, MS_SYNC);
	else if (what < 87)
		posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
	else if (what < 90)
		fsync(file->fd);
	else if (what < 95)
		model_truncate(file);
	else
		model_fallocate(file, at, len);
}

static void *own_thread(void *arg)
{
	struct file *file = arg;

	while (!stop)
		model_step(file);
	return NULL;
}

/* A stripe of the shared file, at this place within this thread's. */
static void shared_step(struct file *file)
{
	uint64_t count = MOST / (STRIPE * file->owners), what = random_next(&file->rng) % 10;
	uint64_t at = (random_next(&file->rng) % count * file->owners + file->owner) * STRIPE, len;
	uint64_t skip = random_next(&file->rng) % STRIPE;

	at += skip;
	len = 1 + random_next(&file->rng) % (STRIPE - skip);
	file->steps++;
	if (what < 4)
		model_write(file, at, len);
	else if (what < 8)
		model_store(file, at, len);
	else if (what < 9)
		model_read(file, at, len);
	else
		check_bytes(file, "mapping", file->map + at, at, len);
}

static void *shared_thread(void *arg)
{
	while (!stop) {
		shared_step(arg);
		usleep(50);	/* leave the others some time */
	}
	return NULL;
}

static void file_init(struct file *file, char *name, int number, uint64_t seed, uint8_t *data, int flags)
{
	memset(file, 0, sizeof(*file));
	file->name = name;
	file->number = number;
	file->rng = (seed + 1) * 0x9e3779b97f4a7c15ull;
	file->fd = open_file(name, number, O_RDWR | flags);
	file->data = data;
	file->map = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
}

static int model(int seconds, uint64_t seed, const char *state)
{
	uint8_t *data = calloc(OWN_FILES + 1, MOST);
	struct file own[OWN_FILES], shared[SHARERS];
	pthread_t threads[OWN_FILES + SHARERS + 1];
	uint64_t steps = 0;
	FILE *out;
	int i, n = 0;

	may_move = true;
	for (i = 0; i < OWN_FILES; i++)
		file_init(&own[i], "own", i, seed * 100 + i, data + i * MOST, O_CREAT | O_TRUNC);
	for (i = 0; i < SHARERS; i++) {
		file_init(&shared[i], "shared", 0, seed * 100 + 50 + i, data + OWN_FILES * MOST,
			  i ? 0 : O_CREAT | O_TRUNC);
		shared[i].owner = i;
		shared[i].owners = SHARERS;
		shared[i].size = MOST;
	}
	if (ftruncate(shared[0].fd, MOST))
		perror("ftruncate");
	for (i = 0; i < OWN_FILES; i++)
		pthread_create(&threads[n++], NULL, own_thread, &own[i]);
	for (i = 0; i < SHARERS; i++)
		pthread_create(&threads[n++], NULL, shared_thread, &shared[i]);
	pthread_create(&threads[n++], NULL, disturb, (void *)(uintptr_t)seed);
	for (double end = now() + seconds; now() < end && !stop; )
		usleep(50000);
	stop = true;
	while (n)
		pthread_join(threads[--n], NULL);
	out = fopen(state, "w");
	for (i = 0; i < OWN_FILES; i++) {
		steps += own[i].steps;
		if (own[i].size)
			model_read(&own[i], 0, own[i].size);
		fwrite(&own[i].size, 8, 1, out);
	}
	for (i = 0; i < SHARERS; i++)
		steps += shared[i].steps;
	model_read(&shared[0], 0, MOST);
	fwrite(&shared[0].size, 8, 1, out);
	fwrite(data, MOST, OWN_FILES + 1, out);
	fclose(out);
	printf("%llu steps\n", (unsigned long long)steps);
	return failures != 0;
}

static int verify(const char *state)
{
	FILE *in = fopen(state, "r");
	uint64_t size[OWN_FILES + 1];
	struct file file;
	struct stat st;
	int i;

	if (fread(size, sizeof(size), 1, in) != 1)
		return 1;
	for (i = 0; i <= OWN_FILES; i++) {
		uint8_t *data = malloc(MOST);

		if (fread(data, MOST, 1, in) != 1)
			return 1;
		file_init(&file, i < OWN_FILES ? "own" : "shared", i < OWN_FILES ? i : 0, 1, data, 0);
		file.size = size[i];
		fstat(file.fd, &st);
		if ((uint64_t)st.st_size != size[i])
			complain("%s%d has %llu bytes, not %llu", file.name, i, (unsigned long long)st.st_size,
				 (unsigned long long)size[i]);
		else if (size[i])
			model_read(&file, 0, size[i]);
	}
	return failures != 0;
}

/* ---- halves that must not be seen apart ---- */

enum { WHOLE, ODD, SMALL, RECORDS, PUNCHED, CUT, GROWING, ATOMS };

#define WHOLE_BYTES (256 * 4096u)		/* the largest write that is one delta */
#define ODD_AT 1000
#define ODD_BYTES 300001u
#define SMALL_BYTES 400u
#define RECORD 104u

static void stamp(uint8_t *data, size_t size, uint64_t value)
{
	size_t i;

	for (i = 0; i < size; i++)
		data[i] = value >> (i & 7) * 8;
}

static void atom_step(int kind, int fd, uint8_t *data, uint64_t n, uint64_t *rng)
{
	uint64_t at;

	switch (kind) {
	case WHOLE:
		stamp(data, WHOLE_BYTES, n);
		write_all(fd, data, WHOLE_BYTES, 0);
		break;
	case ODD:
		stamp(data, ODD_BYTES, n);
		write_all(fd, data, ODD_BYTES, ODD_AT);
		break;
	case SMALL:
		stamp(data, SMALL_BYTES, n);
		write_all(fd, data, SMALL_BYTES, 0);
		break;
	case RECORDS:
		stamp(data, RECORD, n);
		write_all(fd, data, RECORD, (n - 1) * RECORD);
		break;
	case PUNCHED:		/* full, a hole */
		stamp(data, WHOLE_BYTES, n);
		write_all(fd, data, WHOLE_BYTES, 0);
		at = random_next(rng) % (WHOLE_BYTES / 2);
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, WHOLE_BYTES / 3) && !stop)
			complain("punch: %s", strerror(errno));
		break;
	case CUT:		/* full, cut, longer again */
		stamp(data, WHOLE_BYTES, n);
		write_all(fd, data, WHOLE_BYTES, 0);
		if (ftruncate(fd, random_next(rng) % WHOLE_BYTES) && !stop)
			complain("ftruncate: %s", strerror(errno));
		if (random_next(rng) & 1 && ftruncate(fd, WHOLE_BYTES + 5000) && !stop)
			complain("ftruncate: %s", strerror(errno));
		break;
	case GROWING:		/* at most so long, then from the beginning */
		stamp(data, 50000, n);
		if (!(n % 20) && ftruncate(fd, 0) && !stop)
			complain("ftruncate: %s", strerror(errno));
		write_all(fd, data, 8 + random_next(rng) % 49993, (n % 20) * 50000);
	}
}

struct atom {
	int kind;
	uint64_t rng;
};

static void *atom_thread(void *arg)
{
	struct atom *atom = arg;
	uint8_t *data = malloc(WHOLE_BYTES);
	int fd = open_file("atom", atom->kind, O_RDWR | O_CREAT | O_TRUNC);
	uint64_t n;

	for (n = 1; !stop; n++)
		atom_step(atom->kind, fd, data, n, &atom->rng);
	free(data);
	close(fd);
	return NULL;
}

static int atomic(int milliseconds, uint64_t seed)
{
	pthread_t threads[ATOMS + 1];
	struct atom atoms[ATOMS];
	uint32_t at_once = 2;
	int fd = open(dir, O_RDONLY), i;

	for (i = 0; i < ATOMS; i++) {
		atoms[i] = (struct atom){ .kind = i, .rng = (seed * 10 + i + 1) * 0x9e3779b97f4a7c15ull };
		pthread_create(&threads[i], NULL, atom_thread, &atoms[i]);
	}
	pthread_create(&threads[i], NULL, disturb, (void *)(uintptr_t)seed);
	usleep(milliseconds * 1000);
	stop = true;
	if (ioctl(fd, IOC_SHUTDOWN, &at_once))
		perror("shutdown");
	for (i = 0; i <= ATOMS; i++)
		pthread_join(threads[i], NULL);
	return failures != 0;
}

/* How many bytes from data on hold the stamp of some value, which is told. */
static size_t stamped(const uint8_t *data, size_t size, uint64_t *value)
{
	size_t i;

	*value = 0;
	for (i = 0; i < 8 && i < size; i++)
		*value |= (uint64_t)data[i] << i * 8;
	for (i = 0; i < size && data[i] == (uint8_t)(*value >> (i & 7) * 8); i++)
		;
	return i;
}

static size_t zeros(const uint8_t *data, size_t size)
{
	size_t i = 0;

	while (i < size && !data[i])
		i++;
	return i;
}

/* Stamped by one value, but for one range of zeros of at most so many bytes. */
static bool one_value_and_hole(const uint8_t *data, size_t size, size_t hole, uint64_t *value)
{
	size_t i, first = size, last = 0;
	uint64_t got;

	*value = 0;
	for (i = 0; i < size; i += 8) {
		got = 0;
		memcpy(&got, data + i, size - i < 8 ? size - i : 8);
		*value = got > *value ? got : *value;
	}
	for (i = 0; i < size; i++) {
		if (data[i] == (uint8_t)(*value >> (i & 7) * 8))
			continue;
		first = first < i ? first : i;
		last = i;
	}
	return first >= size || (last - first < hole && zeros(data + first, last - first + 1) == last - first + 1);
}

static bool atom_good(int kind, const uint8_t *data, size_t size, uint64_t *value)
{
	uint64_t n = 0;
	size_t i;

	*value = 0;
	switch (kind) {
	case WHOLE:
		return !size || (size == WHOLE_BYTES && stamped(data, size, value) == size);
	case ODD:
		return !size || (size == ODD_AT + ODD_BYTES && zeros(data, ODD_AT) == ODD_AT &&
				 stamped(data + ODD_AT, size - ODD_AT, value) == size - ODD_AT);
	case SMALL:
		return !size || (size == SMALL_BYTES && stamped(data, size, value) == size);
	case RECORDS:
		for (i = 0; i < size; i += RECORD)
			if (size - i < RECORD || stamped(data + i, RECORD, value) < RECORD || *value != ++n)
				return false;
		return true;
	case PUNCHED:
		return !size || (size == WHOLE_BYTES && one_value_and_hole(data, size, WHOLE_BYTES / 3, value));
	case CUT:
		return one_value_and_hole(data, size, size, value);
	default:		/* pieces of increasing stamps, zeros between them */
		for (i = 0; i < size; i += 50000) {
			size_t len = size - i < 50000 ? size - i : 50000, got = stamped(data + i, len, value);

			if (*value && *value < n)
				return false;
			n = *value > n ? *value : n;
			if (got < len && zeros(data + i + got, len - got) < len - got)
				return false;
		}
		return true;
	}
}

static int check(void)
{
	static const char *const names[] = { "whole", "odd", "small", "records", "punched", "cut", "growing" };
	uint64_t value;
	struct stat st;
	int i;

	for (i = 0; i < ATOMS; i++) {
		int fd = open_file("atom", i, O_RDWR | O_CREAT);
		uint8_t *data;
		ssize_t got;

		fstat(fd, &st);
		data = malloc(st.st_size + 8);
		got = read(fd, data, st.st_size);
		if (got != st.st_size)
			complain("%s: read %zd of %lld bytes: %s", names[i], got, (long long)st.st_size,
				 strerror(errno));
		else if (!atom_good(i, data, got, &value))
			complain("%s: %zd bytes, %llu: parts of different changes", names[i], got,
				 (unsigned long long)value);
		else
			printf("%s:%llu ", names[i], (unsigned long long)value);
		close(fd);
		free(data);
	}
	printf("\n");
	return failures != 0;
}

int main(int argc, char **argv)
{
	dir = argc > 2 ? argv[2] : "";
	if (argc == 6 && !strcmp(argv[1], "model"))
		return model(atoi(argv[3]), atoi(argv[4]), argv[5]);
	if (argc == 4 && !strcmp(argv[1], "verify"))
		return verify(argv[3]);
	if (argc == 5 && !strcmp(argv[1], "atomic"))
		return atomic(atof(argv[3]) * 1000, atoi(argv[4]));
	if (argc == 3 && !strcmp(argv[1], "check"))
		return check();
	fprintf(stderr, "usage: separation model|verify|atomic|check DIR ...\n");
	return 1;
}
