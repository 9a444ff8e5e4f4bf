// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Direct I/O (O_DIRECT) on one file.  bench/run direct runs it.
 *
 *	direct FILE WAY MIB [COUNT]
 *
 * WAY:
 *
 *	write		makes the file, of so many MiB, by writes of 1 MiB in order; fsync
 *	rewrite		COUNT writes of 4 KiB over it, at random places; fsync
 *	read		reads it in order, 1 MiB at a time
 *	random		COUNT reads of 4 KiB at random places, one after the other
 *	aio		the same, with io_submit(2): 32 are always under way
 *	uring		the same, with io_uring
 *
 * Prints nanoseconds until the last one had returned, until all is durable, and how many pages of the file are in the page cache
 * afterwards.  Each 4 KiB begin with their number in the file, which reads compare.  The places are the same each time (xorshift64,
 * seed 88172645463325252).
 */
#include <fcntl.h>
#include <liburing.h>
#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

#define PAGE_BYTES 4096ul
#define PIECE_BYTES (1ul << 20)
#define DEPTH 32u

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_page(uint64_t pages)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % pages;
}

static void mark(char *data, uint64_t first, uint64_t count)
{
	uint64_t i, number;

	for (i = 0; i < count; i++) {
		number = first + i;
		memcpy(data + i * PAGE_BYTES, &number, sizeof(number));
	}
}

static void compare(const char *data, uint64_t first, uint64_t count)
{
	uint64_t i, number;

	for (i = 0; i < count; i++) {
		memcpy(&number, data + i * PAGE_BYTES, sizeof(number));
		if (number != first + i)
			die("page %llu holds %llu", (unsigned long long)(first + i), (unsigned long long)number);
	}
}

static void in_order(int fd, char *data, uint64_t pages, int writes)
{
	uint64_t piece = PIECE_BYTES / PAGE_BYTES, page;
	ssize_t done;

	for (page = 0; page < pages; page += piece) {
		if (writes)
			mark(data, page, piece);
		done = writes ? pwrite(fd, data, PIECE_BYTES, page * PAGE_BYTES) : pread(fd, data, PIECE_BYTES, page * PAGE_BYTES);
		if (done != (ssize_t)PIECE_BYTES)
			die("page %llu: %zd, %s", (unsigned long long)page, done, strerror(errno));
		if (!writes)
			compare(data, page, piece);
	}
}

static void at_random(int fd, char *data, uint64_t pages, uint32_t count, int writes)
{
	uint64_t page;
	ssize_t done;

	while (count--) {
		page = random_page(pages);
		if (writes)
			mark(data, page, 1);
		done = writes ? pwrite(fd, data, PAGE_BYTES, page * PAGE_BYTES) : pread(fd, data, PAGE_BYTES, page * PAGE_BYTES);
		if (done != (ssize_t)PAGE_BYTES)
			die("page %llu: %zd, %s", (unsigned long long)page, done, strerror(errno));
		if (!writes)
			compare(data, page, 1);
	}
}

static void submit(aio_context_t context, struct iocb *cb, uint64_t page)
{
	cb->aio_offset = page * PAGE_BYTES;
	must_errno(syscall(SYS_io_submit, context, 1, &cb), "io_submit");
}

static void by_aio(int fd, char *data, uint64_t pages, uint32_t count)
{
	struct io_event event[DEPTH];
	struct iocb cb[DEPTH] = {};
	aio_context_t context = 0;
	uint32_t begun = 0, over = 0;
	long got, i;

	must_errno(syscall(SYS_io_setup, DEPTH, &context), "io_setup");
	for (; begun < DEPTH && begun < count; begun++) {
		cb[begun] = (struct iocb){
			.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd, .aio_nbytes = PAGE_BYTES,
			.aio_buf = (uintptr_t)(data + begun * PAGE_BYTES), .aio_data = begun,
		};
		submit(context, &cb[begun], random_page(pages));
	}
	while (over < count) {
		got = syscall(SYS_io_getevents, context, 1, DEPTH, event, NULL);
		must_errno(got, "io_getevents");
		for (i = 0; i < got; i++, over++) {
			struct iocb *this = &cb[event[i].data];

			if (event[i].res != PAGE_BYTES)
				die("page %llu: %lld", this->aio_offset / PAGE_BYTES, event[i].res);
			compare((char *)(uintptr_t)this->aio_buf, this->aio_offset / PAGE_BYTES, 1);
			if (begun < count) {
				submit(context, this, random_page(pages));
				begun++;
			}
		}
	}
	syscall(SYS_io_destroy, context);
}

/* The next one of this place; *page is what it will hold. */
static void prepare(struct io_uring *ring, int fd, char *data, uint32_t place, uint64_t *page, uint64_t pages)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	*page = random_page(pages);
	io_uring_prep_read(sqe, fd, data + place * PAGE_BYTES, PAGE_BYTES, *page * PAGE_BYTES);
	io_uring_sqe_set_data64(sqe, place);
}

static void by_uring(int fd, char *data, uint64_t pages, uint32_t count)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	uint64_t page[DEPTH];
	uint32_t begun = 0, over, place;

	errno = -io_uring_queue_init(DEPTH, &ring, 0);
	must_errno(errno ? -1 : 0, "io_uring_queue_init");
	for (; begun < DEPTH && begun < count; begun++)
		prepare(&ring, fd, data, begun, &page[begun], pages);
	for (over = 0; over < count; over++) {
		errno = -io_uring_submit_and_wait(&ring, 1);
		must_errno(errno > 0 ? -1 : 0, "io_uring_submit_and_wait");
		if (io_uring_peek_cqe(&ring, &cqe))
			die("io_uring_submit_and_wait has waited for nothing");
		place = io_uring_cqe_get_data64(cqe);
		if (cqe->res != (int)PAGE_BYTES)
			die("page %llu: %d", (unsigned long long)page[place], cqe->res);
		io_uring_cqe_seen(&ring, cqe);
		compare(data + place * PAGE_BYTES, page[place], 1);
		if (begun < count) {
			prepare(&ring, fd, data, place, &page[place], pages);
			begun++;
		}
	}
	io_uring_queue_exit(&ring);
}

static uint64_t cached_pages(int fd, uint64_t pages)
{
	unsigned char *in = calloc(pages, 1);
	void *map = mmap(NULL, pages * PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t count = 0, i;

	if (map == MAP_FAILED || mincore(map, pages * PAGE_BYTES, in))
		die("mincore: %s", strerror(errno));
	for (i = 0; i < pages; i++)
		count += in[i] & 1;
	munmap(map, pages * PAGE_BYTES);
	free(in);
	return count;
}

int main(int argc, char **argv)
{
	uint64_t pages = argc > 3 ? strtoull(argv[3], NULL, 0) << (20 - 12) : 0, begun_ns, done_ns;
	uint32_t count = argc > 4 ? strtoul(argv[4], NULL, 0) : 0;
	const char *way = argc > 2 ? argv[2] : "";
	int writes = !strcmp(way, "write"), fd;
	char *data = mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (argc < 4 || data == MAP_FAILED)
		die("usage: direct FILE write|rewrite|read|random|aio|uring MIB [COUNT]");
	fd = open(argv[1], O_RDWR | O_DIRECT | (writes ? O_CREAT | O_EXCL : 0), 0644);
	must_errno(fd, argv[1]);
	begun_ns = now_ns();
	if (writes || !strcmp(way, "read"))
		in_order(fd, data, pages, writes);
	else if (!strcmp(way, "aio"))
		by_aio(fd, data, pages, count);
	else if (!strcmp(way, "uring"))
		by_uring(fd, data, pages, count);
	else if (!strcmp(way, "rewrite") || !strcmp(way, "random"))
		at_random(fd, data, pages, count, !strcmp(way, "rewrite"));
	else
		die("direct: what is \"%s\"?", way);
	done_ns = now_ns();
	must_errno(fsync(fd), "fsync");
	printf("%llu %llu ", (unsigned long long)(done_ns - begun_ns), (unsigned long long)(now_ns() - begun_ns));
	printf("%llu\n", (unsigned long long)cached_pages(fd, pages));
	close(fd);
	return 0;
}
