/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Direct reads and writes (O_DIRECT).  In the virtual machine:
 *
 *	direct rules DIR
 *		what they see: data, holes, ends of files, what is not committed; at which alignment; and that neither leaves
 *		anything in the page cache
 *	direct damaged FILE BLOCK
 *		a direct read of this block fails, and one of the others does not
 *	direct race DIR MILLISECONDS [CGROUP]
 *		files that are read directly while they are written, punched and cut, and others get the blocks that these lose.
 *		In the readers' memory must never be anything of another file, not even while a read is under way: a thread looks
 *		there all the time.  The readers join the cgroup, whose limit makes their reads take long
 *	direct slow DIR CGROUP
 *		reads of a file of which the cgroup's limit lets few come: what is freed in other files meanwhile can be used again
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE	4096u
#define MIB	(1u << 20)
#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000u
#endif

static const char *dir;
static uint32_t block;		/* of the volume */
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

static void *memory(size_t size)
{
	void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (data == MAP_FAILED)
		err(1, "memory");
	return data;
}

/* ---- what a block holds: in each 512 bytes, of which file it is, and which block ---- */

struct stamp {
	uint64_t magic, file, block, count;
};

#define MAGIC 0x9d1c7ec7f11e5a3dull

static void fill(char *data, uint64_t file, uint64_t at, size_t len, uint64_t count)
{
	size_t i;

	for (i = 0; i < len; i += 512) {
		struct stamp stamp = { MAGIC, file, (at + i) / PAGE, count };

		memset(data + i, (int)(file + count), 512);
		memcpy(data + i, &stamp, sizeof(stamp));
	}
}

static bool is_filled(const char *data, uint64_t file, uint64_t at, size_t len, uint64_t count)
{
	char *want = malloc(len);
	bool same;

	fill(want, file, at, len, count);
	same = !memcmp(data, want, len);
	free(want);
	return same;
}

static bool is_zero(const char *data, size_t len)
{
	return !len || (!data[0] && !memcmp(data, data + 1, len - 1));
}

/* ---- rules ---- */

static size_t resident(int fd, size_t size)
{
	size_t pages = (size + PAGE - 1) / PAGE, i, count = 0;
	unsigned char *in = malloc(pages);
	void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED || mincore(map, size, in))
		err(1, "mincore");
	for (i = 0; i < pages; i++)
		count += in[i] & 1;
	munmap(map, size);
	free(in);
	return count;
}

static void forget(int fd)
{
	if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		err(1, "fadvise");
}

/* A file with data, a hole, something preallocated, and an end within a block. */
#define DATA	(4u * MIB)
#define HOLE	(2u * MIB)
#define TAIL	1234u

static int make_file(const char *name)
{
	int fd = open_in(name, O_RDWR | O_CREAT | O_TRUNC);
	char *data = memory(DATA);

	fill(data, 1, 0, DATA, 1);
	expect(pwrite(fd, data, DATA, 0) == DATA);
	expect(!fallocate(fd, 0, DATA, MIB));
	expect(pwrite(fd, data, TAIL, DATA + HOLE) == TAIL);
	munmap(data, DATA);
	forget(fd);
	return fd;
}

static void reads_of_all(int cached)
{
	size_t size = DATA + HOLE + TAIL, room = DATA + HOLE + MIB;
	int fd = open_in("file", O_RDONLY | O_DIRECT);
	char *data = memory(room);

	memset(data, 7, room);
	expect(pread(fd, data, room, 0) == (ssize_t)size);
	expect(is_filled(data, 1, 0, DATA, 1));
	expect(is_zero(data + DATA, HOLE));
	expect(is_filled(data + DATA + HOLE, 1, 0, 1024, 1));
	/* What the last block has behind the end is nobody's business. */
	expect(is_zero(data + size, block - TAIL % block) || data[size] == 7);
	expect(pread(fd, data, block, DATA + HOLE + block) == 0);
	expect(pread(fd, data, block, 100ull * MIB) == 0);
	expect(pread(fd, data, block, DATA + HOLE) == TAIL);
	/* That there is nothing is known without waiting. */
	struct iovec vec = { data, block };
	expect(preadv2(fd, &vec, 1, DATA + HOLE + block, RWF_NOWAIT) == 0);
	if (!cached)
		expect(!resident(fd, size));
	munmap(data, room);
	close(fd);
}

/* Who must not wait gets what is known at once, as io_uring asks first: else each of its reads would cost a worker. */
static void nowait(void)
{
	int fd = open_in("file", O_RDONLY | O_DIRECT);
	struct iovec vec = { memory(MIB), block };
	unsigned int i;

	for (i = 0; i < DATA / block; i += 7) {
		expect(pread(fd, vec.iov_base, block, (off_t)i * block) == block);	/* now it is known where that is */
		memset(vec.iov_base, 7, block);
		expect(preadv2(fd, &vec, 1, (off_t)i * block, RWF_NOWAIT) == block);
		expect(is_filled(vec.iov_base, 1, i * block, block, 1));
	}
	/* The end of what there is, and a hole: not in one extent. */
	vec.iov_len = 2 * block;
	expect(preadv2(fd, &vec, 1, DATA - block, RWF_NOWAIT) == -1 && errno == EAGAIN);
	expect(!resident(fd, DATA));
	munmap(vec.iov_base, MIB);
	close(fd);
}

static void alignments(void)
{
	int fd = open_in("file", O_RDONLY | O_DIRECT);
	char *data = memory(DATA), *want = memory(DATA);
	struct iovec vec[5] = {
		{ data, 512 }, { data + 8192, block }, { data + 3 * MIB, 1024 }, { data + MIB, 3 * block - 1536 },
		{ data + 2 * MIB, block },
	};
	size_t at = 0;
	unsigned int i;

	fill(want, 1, 0, DATA, 1);
	expect(pread(fd, data, 100, 1) == 100 && !memcmp(data, want + 1, 100));
	expect(pread(fd, data + 3, 5000, 777) == 5000 && !memcmp(data + 3, want + 777, 5000));
	expect(pread(fd, data + 5, block, block) == block && !memcmp(data + 5, want + block, block));
	expect(pread(fd, data, 512, 512) == 512 && !memcmp(data, want + 512, 512));
	forget(fd);
	expect(preadv(fd, vec, 5, 2 * block) == 5 * block);
	for (i = 0; i < 5; at += vec[i++].iov_len)
		expect(!memcmp(vec[i].iov_base, want + 2 * block + at, vec[i].iov_len));
	expect(pread(fd, NULL, block, 0) == -1 && errno == EFAULT);
	munmap(data, DATA);
	munmap(want, DATA);
	close(fd);
}

static void told(void)
{
	struct statx stx;
	char path[300];

	snprintf(path, sizeof(path), "%s/file", dir);
	expect(!statx(AT_FDCWD, path, 0, STATX_DIOALIGN, &stx));
	expect(stx.stx_mask & STATX_DIOALIGN);
	/* stx_dio_mem_align, stx_dio_offset_align: two numbers of 32 bits behind stx_mnt_id, which older headers do not know. */
	uint32_t *align = (uint32_t *)((char *)&stx + 0x98);
	expect(align[0] >= 4 && align[0] <= PAGE && align[1] == block);
}

static void small_and_new(void)
{
	int fd = open_in("small", O_RDWR | O_CREAT | O_TRUNC), direct = open_in("small", O_RDWR | O_DIRECT);
	char *data = memory(MIB), *want = memory(MIB);

	expect(pread(direct, data, block, 0) == 0);
	expect(pwrite(fd, "hello", 5, 0) == 5);
	expect(pread(direct, data, block, 0) == 5 && !memcmp(data, "hello", 5));
	forget(fd);					/* inline */
	expect(pread(direct, data, block, 0) == 5 && !memcmp(data, "hello", 5));
	/* What is not committed yet, over what is. */
	fill(want, 2, 0, MIB, 1);
	expect(pwrite(fd, want, MIB, 0) == MIB);
	expect(pread(direct, data, MIB, 0) == MIB && !memcmp(data, want, MIB));
	forget(fd);
	fill(want + 5 * block, 2, 5 * block, block, 2);
	expect(pwrite(fd, want + 5 * block, block, 5 * block) == block);
	expect(pread(direct, data, MIB, 0) == MIB && !memcmp(data, want, MIB));
	expect(pread(direct, data, block, 4 * block) == block && !memcmp(data, want + 4 * block, block));
	expect(pread(direct, data, block, 5 * block) == block && !memcmp(data, want + 5 * block, block));
	forget(fd);
	expect(pread(direct, data, MIB, 0) == MIB && !memcmp(data, want, MIB));
	/* Written through a mapping. */
	char *map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fill(map + 9 * block, 2, 9 * block, block, 3);
	fill(want + 9 * block, 2, 9 * block, block, 3);
	expect(pread(direct, data, MIB, 0) == MIB && !memcmp(data, want, MIB));
	munmap(map, MIB);
	/* Cut and grown again: zeros. */
	forget(fd);
	expect(!ftruncate(fd, 3 * block + 100) && !ftruncate(fd, 10 * block));
	expect(pread(direct, data, MIB, 0) == 10 * block);
	expect(!memcmp(data, want, 3 * block + 100) && is_zero(data + 3 * block + 100, 7 * block - 100));
	forget(fd);
	expect(pread(direct, data, MIB, 0) == 10 * block);
	expect(!memcmp(data, want, 3 * block + 100) && is_zero(data + 3 * block + 100, 7 * block - 100));
	/* Into memory that is a mapping of a file here, not there yet. */
	map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, open_in("other", O_RDWR | O_CREAT | O_TRUNC), 0);
	int other = open_in("other", O_RDWR);
	expect(!ftruncate(other, MIB));
	expect(pread(direct, map, 3 * block, 0) == 3 * block && !memcmp(map, want, 3 * block));
	munmap(map, MIB);
	fsync(other);
	expect(pread(other, data, 3 * block, 0) == 3 * block && !memcmp(data, want, 3 * block));
	munmap(data, MIB);
	munmap(want, MIB);
	close(fd);
	close(direct);
	close(other);
}

static void writes_leave(void)
{
	int fd = open_in("written", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT);
	char *data = memory(DATA), *got = memory(DATA);
	unsigned int i;

	fill(data, 3, 0, DATA, 1);
	for (i = 0; i < DATA / MIB; i++)
		expect(pwrite(fd, data + i * MIB, MIB, i * MIB) == MIB);
	expect(pread(fd, got, DATA, 0) == DATA && !memcmp(data, got, DATA));
	expect(!ftruncate(fd, 0) && !fsync(fd));
	for (i = 0; i < DATA / MIB; i++)
		expect(pwrite(fd, data + i * MIB, MIB, i * MIB) == MIB);
	expect(!fsync(fd));
	/* The last few may be in a CPU's list of pages that are new to the cache. */
	size_t left = resident(fd, DATA);
	if (left > 64 * (block / PAGE))
		complain("%zu of %u pages that were written directly stay in the cache", left, DATA / PAGE);
	expect(pread(fd, got, DATA, 0) == DATA && !memcmp(data, got, DATA));
	munmap(data, DATA);
	munmap(got, DATA);
	close(fd);
}

#define DEPTH 32u

static void asynchronous(void)
{
	int fd = open_in("file", O_RDONLY | O_DIRECT);
	char *data = memory(DEPTH * PAGE * 16);
	struct iocb cb[DEPTH] = {}, *list[DEPTH];
	struct io_event event[DEPTH];
	aio_context_t context = 0;
	unsigned int round, i, len = block > 4 * PAGE ? block : 4 * PAGE;

	forget(fd);
	expect(!syscall(SYS_io_setup, DEPTH, &context));
	for (round = 0; round < 20; round++) {
		for (i = 0; i < DEPTH; i++) {
			cb[i] = (struct iocb){
				.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd, .aio_nbytes = len,
				.aio_buf = (uintptr_t)(data + i * 16 * PAGE), .aio_offset = random() % (DATA / len) * len,
			};
			list[i] = &cb[i];
		}
		expect(syscall(SYS_io_submit, context, DEPTH, list) == DEPTH);
		expect(syscall(SYS_io_getevents, context, DEPTH, DEPTH, event, NULL) == DEPTH);
		for (i = 0; i < DEPTH; i++)
			expect(event[i].res == (int)len);
		for (i = 0; i < DEPTH; i++)
			expect(is_filled(data + i * 16 * PAGE, 1, cb[i].aio_offset, len, 1));
	}
	expect(!resident(fd, DATA));
	syscall(SYS_io_destroy, context);
	munmap(data, DEPTH * PAGE * 16);
	close(fd);
}

/* The kernel's side of an io_uring of one request, whose caller waits by polling the device. */
struct poll_ring {
	int fd;
	char *rings;
	struct io_uring_sqe *sqe;
	struct io_uring_params params;
};

static bool poll_ring_open(struct poll_ring *ring)
{
	*ring = (struct poll_ring){ .params.flags = IORING_SETUP_IOPOLL };
	ring->fd = (int)syscall(SYS_io_uring_setup, 1, &ring->params);
	if (ring->fd < 0)
		return false;
	ring->rings = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
	ring->sqe = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQES);
	return ring->rings != MAP_FAILED && ring->sqe != MAP_FAILED;
}

/* What is done at offset 0, or -errno. */
static int poll_ring_do(struct poll_ring *ring, uint8_t opcode, int fd, void *data, uint32_t len)
{
	atomic_uint *tail = (atomic_uint *)(ring->rings + ring->params.sq_off.tail);
	atomic_uint *head = (atomic_uint *)(ring->rings + ring->params.cq_off.head);
	atomic_uint *done = (atomic_uint *)(ring->rings + ring->params.cq_off.tail);
	struct io_uring_cqe *cqe = (struct io_uring_cqe *)(ring->rings + ring->params.cq_off.cqes);
	uint32_t *order = (uint32_t *)(ring->rings + ring->params.sq_off.array);
	uint32_t seen = atomic_load(head);
	int result;

	*ring->sqe = (struct io_uring_sqe){ .opcode = opcode, .fd = fd, .addr = (uintptr_t)data, .len = len };
	order[0] = 0;
	atomic_fetch_add(tail, 1);
	if (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		return -errno;
	/* The kernel stops polling when the CPU is wanted by others. */
	while (atomic_load(done) == seen)
		if (syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
			return -errno;
	result = cqe[seen & (ring->params.cq_entries - 1)].res;
	atomic_store(head, seen + 1);
	return result;
}

/* Who polls is served by every device, also by one that cannot be polled. */
static void polled(void)
{
	unsigned int len = block > 4 * PAGE ? block : 4 * PAGE;
	int fd = open_in("polled", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT), got;
	char *data = memory(len);
	struct poll_ring ring;

	if (!poll_ring_open(&ring))
		err(1, "io_uring");
	fill(data, 4, 0, len, 1);
	got = poll_ring_do(&ring, IORING_OP_WRITE, fd, data, len);
	if (got != (int)len)
		complain("a write that is polled for: %d", got);
	expect(!fsync(fd));
	forget(fd);
	memset(data, 0, len);
	got = poll_ring_do(&ring, IORING_OP_READ, fd, data, len);
	if (got != (int)len)
		complain("a read that is polled for: %d", got);
	expect(is_filled(data, 4, 0, len, 1));
	expect(!resident(fd, len));
	munmap(data, len);
	munmap(ring.rings, PAGE);
	munmap(ring.sqe, PAGE);
	close(ring.fd);
	close(fd);
}

static int rules(void)
{
	close(make_file("file"));
	reads_of_all(false);
	told();
	nowait();
	asynchronous();
	polled();
	alignments();
	reads_of_all(true);
	small_and_new();
	writes_leave();
	return failures != 0;
}

static int damaged(const char *path, uint64_t number)
{
	int fd = open(path, O_RDONLY | O_DIRECT);
	char *data = memory(DATA);

	if (fd < 0)
		err(1, "%s", path);
	expect(pread(fd, data, block, number * block) == -1 && errno == EIO);
	expect(pread(fd, data, block, (number + 1) * block) == block);
	expect(pread(fd, data, DATA, 0) < (ssize_t)DATA);
	return failures != 0;
}

/* ---- races ---- */

#define FILES	3u
#define BLOCKS	64u
#define RACE	(BLOCKS * block)

static atomic_ulong reads_done, looks;

struct reader {
	uint64_t file;
	char *data;
	uint32_t len;
};

static void *watch(void *arg)
{
	struct reader *reader = arg;
	volatile struct stamp *stamp;
	uint32_t at;

	while (!stop) {
		for (at = 0; at < reader->len; at += 512) {
			stamp = (volatile struct stamp *)(reader->data + at);
			/* Torn while it comes is no harm: the file is only asked for when the magic is there before and after. */
			uint64_t file = stamp->file;

			if (stamp->magic == MAGIC && file && file != reader->file && stamp->file == file && stamp->magic == MAGIC) {
				complain("in a reader of file %lu is file %lu, block %lu", reader->file, file, stamp->block);
				stop = true;
				return NULL;
			}
		}
		looks++;
	}
	return NULL;
}

static bool is_or_zero(uint64_t found, uint64_t wanted)
{
	return !found || found == wanted;
}

static void check_read(struct reader *reader, uint64_t at, ssize_t got)
{
	uint32_t i;

	if (got < 0) {
		complain("direct read of file %lu at %lu: %s", reader->file, at, strerror(errno));
		stop = true;
	}
	for (i = 0; (ssize_t)i + 512 <= got; i += 512) {
		struct stamp stamp;

		memcpy(&stamp, reader->data + i, sizeof(stamp));
		/* What is just being written to the page cache may be zeros at first, and that ends at any word. */
		if (!is_or_zero(stamp.magic, MAGIC) || !is_or_zero(stamp.file, reader->file) ||
		    !is_or_zero(stamp.block, (at + i) / PAGE)) {
			complain("file %lu, at %lu: there is file %lu, block %lu", reader->file, at + i, stamp.file, stamp.block);
			stop = true;
			return;
		}
	}
}

static void *read_all(void *arg)
{
	struct reader *reader = arg;
	char name[20];
	unsigned int seed = reader->file;
	int fd;

	snprintf(name, sizeof(name), "race%lu", reader->file);
	fd = open_in(name, O_RDONLY | O_DIRECT);
	while (!stop) {
		uint64_t first = rand_r(&seed) % BLOCKS, count = 1 + rand_r(&seed) % 16;

		count = first + count > BLOCKS ? BLOCKS - first : count;
		memset(reader->data, 0, reader->len);
		check_read(reader, first * block, pread(fd, reader->data, count * block, first * block));
		reads_done++;
	}
	close(fd);
	return NULL;
}

/* All the time as much as possible is written anew: what one file loses another gets. */
static void *write_all(void *arg)
{
	uint64_t file = ((struct reader *)arg)->file, count = 1;
	unsigned int seed = 100 + file;
	char *data = memory(16 * block), name[20];
	int fd, direct;

	snprintf(name, sizeof(name), "race%lu", file);
	fd = open_in(name, O_RDWR | O_CREAT);
	direct = open_in(name, O_RDWR | O_DIRECT);
	for (; !stop; count++) {
		uint64_t first = rand_r(&seed) % BLOCKS, blocks = 1 + rand_r(&seed) % 16, what = rand_r(&seed) % 20;

		blocks = first + blocks > BLOCKS ? BLOCKS - first : blocks;
		fill(data, file, first * block, blocks * block, count);
		if (what == 0)
			expect(!ftruncate(fd, first * block));
		else if (what == 1)
			expect(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, first * block, blocks * block));
		else
			expect(pwrite(what & 1 ? direct : fd, data, blocks * block, first * block) == (ssize_t)(blocks * block));
		if (what < 4)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (what == 5)
			expect(!fsync(fd));
	}
	close(fd);
	close(direct);
	return NULL;
}

static void run_threads(void *(*run)(void *), void *(*beside)(void *), unsigned int milliseconds)
{
	struct reader reader[FILES];
	pthread_t threads[2 * FILES];
	unsigned int i;

	for (i = 0; i < FILES; i++) {
		reader[i] = (struct reader){ .file = i + 1, .data = memory(16 * block), .len = 16 * block };
		pthread_create(&threads[i], NULL, run, &reader[i]);
		if (beside)
			pthread_create(&threads[FILES + i], NULL, beside, &reader[i]);
	}
	for (; milliseconds && !stop; milliseconds -= milliseconds > 100 ? 100 : milliseconds)
		usleep(100000);
	stop = true;
	for (i = 0; i < (beside ? 2 : 1) * FILES; i++)
		pthread_join(threads[i], NULL);
}

static void join(const char *cgroup)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	file = fopen(path, "w");
	if (!file || fprintf(file, "%d", getpid()) < 0 || fclose(file))
		err(1, "%s", path);
}

static int race(unsigned int milliseconds, const char *cgroup)
{
	unsigned int i;
	int status;
	pid_t pid;

	for (i = 0; i < FILES; i++) {
		char name[20];

		snprintf(name, sizeof(name), "race%u", i + 1);
		close(open_in(name, O_RDWR | O_CREAT | O_TRUNC));
	}
	pid = fork();
	if (!pid) {
		run_threads(write_all, NULL, milliseconds + 200);
		exit(failures != 0);
	}
	if (cgroup)
		join(cgroup);
	run_threads(read_all, watch, milliseconds);
	expect(waitpid(pid, &status, 0) == pid && !status);
	printf("%lu reads, looked at %lu times\n", reads_done, looks);
	expect(reads_done > 100);
	return failures != 0;
}

/* ---- reads that take long ---- */

#define SLOW_READS	128u
#define SLOW_BYTES	(64u << 10)
#define SLOW_ALL	(SLOW_READS * SLOW_BYTES)

static void read_slowly(int pipe_fd, const char *cgroup)
{
	int fd = open_in("slow", O_RDONLY | O_DIRECT);
	struct iocb cb[SLOW_READS] = {}, *list[SLOW_READS];
	char *data = memory(SLOW_ALL);
	aio_context_t context = 0;
	unsigned int i;

	join(cgroup);
	for (i = 0; i < SLOW_READS; i++) {
		cb[i] = (struct iocb){
			.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd, .aio_nbytes = SLOW_BYTES,
			.aio_buf = (uintptr_t)(data + i * SLOW_BYTES), .aio_offset = i * SLOW_BYTES,
		};
		list[i] = &cb[i];
	}
	if (syscall(SYS_io_setup, SLOW_READS, &context) || syscall(SYS_io_submit, context, SLOW_READS, list) != SLOW_READS)
		err(1, "io_submit");
	if (write(pipe_fd, "r", 1) != 1)
		err(1, "pipe");
	struct io_event event[SLOW_READS];
	expect(syscall(SYS_io_getevents, context, SLOW_READS, SLOW_READS, event, NULL) == SLOW_READS);
	for (i = 0; i < SLOW_READS; i++)
		expect(is_filled(data + i * SLOW_BYTES, 1, i * SLOW_BYTES, SLOW_BYTES, 1));
	exit(failures != 0);
}

static int slow(const char *cgroup)
{
	int fd = open_in("slow", O_RDWR | O_CREAT | O_TRUNC), other = open_in("other", O_RDWR | O_CREAT | O_TRUNC);
	char *data = memory(SLOW_ALL), begun;
	int ends[2], status;
	unsigned int i;
	pid_t pid;

	fill(data, 1, 0, SLOW_ALL, 1);
	expect(pwrite(fd, data, SLOW_ALL, 0) == SLOW_ALL);
	forget(fd);
	expect(!pipe(ends));
	pid = fork();
	if (!pid)
		read_slowly(ends[1], cgroup);
	expect(read(ends[0], &begun, 1) == 1);
	for (i = 0; i < 20 && !failures; i++)
		expect(pwrite(other, data, SLOW_ALL / 4, 0) == SLOW_ALL / 4 && !fsync(other));
	expect(waitpid(pid, &status, WNOHANG) == 0);	/* else they were not slow */
	/* What they are still reading itself. */
	fill(data, 2, 0, SLOW_ALL, 1);
	expect(!ftruncate(fd, 0) && !fsync(fd));
	for (i = 0; i < 10 && !failures; i++)
		expect(pwrite(other, data, SLOW_ALL / 4, 0) == SLOW_ALL / 4 && !fsync(other));
	expect(waitpid(pid, &status, 0) == pid && !status);
	return failures != 0;
}

int main(int argc, char **argv)
{
	struct stat st;

	if (argc < 3)
		errx(2, "usage: direct rules DIR | damaged FILE BLOCK | race DIR MILLISECONDS [CGROUP] | slow DIR CGROUP");
	dir = argv[2];
	if (stat(dir, &st))
		err(1, "%s", dir);
	block = st.st_blksize;
	if (!strcmp(argv[1], "rules"))
		return rules();
	if (!strcmp(argv[1], "damaged") && argc == 4)
		return damaged(argv[2], strtoul(argv[3], NULL, 10));
	if (!strcmp(argv[1], "race") && argc >= 4)
		return race(strtoul(argv[3], NULL, 10), argv[4]);
	if (!strcmp(argv[1], "slow") && argc == 4)
		return slow(argv[3]);
	errx(2, "direct: what is \"%s\"?", argv[1]);
}
