/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Devices: the front in core/device/device.c, files by both ways of writing, and memory.  Most tests run on each of
 * three devices: a file through io_uring, a file through threads, memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/device/device.h"
#include "user/env/device_file.h"
#include "user/env/device_memory.h"
#include "user/env/fault.h"
#include "user/env/log.h"

#define BLOCKS	8192u
#define BLOCK	4096u
#define THREADS	4

enum kind { RING, THREAD_POOL, MEMORY, KINDS };

static char path[] = "/tmp/tux3-test-device-XXXXXX";
static char why[200];
static char last_message[300];

static void keep_message(int level, const char *message)
{
	strscpy(last_message, message, sizeof(last_message));
}

/* In the place of that of the C library: the first so many end as by a signal. */
static int interruptions;

int fdatasync(int fd)
{
	if (interruptions) {
		interruptions--;
		errno = EINTR;
		return -1;
	}
	return fsync(fd);
}

static struct tux3_device *open_device(enum kind kind)
{
	struct tux3_device *dev;
	int err;

	if (kind == MEMORY) {
		dev = device_memory_create((u64)BLOCKS * BLOCK);
		assert_non_null(dev);
		return dev;
	}
	why[0] = 0;
	err = device_open_file(path, DEVICE_OPEN_WRITE | (kind == RING ? 0 : DEVICE_OPEN_SYNC_IO),
			       &dev, why, sizeof(why));
	if (err)
		fail_msg("%s", why);
	return dev;
}

static void fill(u8 *data, size_t bytes, u32 seed)
{
	size_t i;

	for (i = 0; i < bytes; i += sizeof(u32))
		*(u32 *)(data + i) = seed + i;
}

static int write_sync(struct tux3_device *dev, u64 addr, u32 count, const void *data)
{
	struct io_wait wait;

	io_wait_init(&wait);
	device_write(dev, addr, data, count, 0, &wait);
	device_kick(dev);
	return io_wait_finish(&wait);
}

static void write_and_read(struct tux3_device *dev, u32 blocks, u32 pieces)
{
	size_t bytes = (size_t)blocks * BLOCK;
	u8 *data = malloc(bytes), *back = malloc(bytes);
	struct kvec *vec = malloc(pieces * sizeof(*vec));
	struct io_wait wait;
	size_t at = 0;
	u32 i;

	fill(data, bytes, blocks * 100 + pieces);
	for (i = 0; i < pieces; i++) {	/* unequal, unaligned pieces, an empty one now and then */
		size_t some = i == pieces - 1 ? bytes - at : i % 7 == 3 ? 0 :
			min((size_t)(bytes / pieces + i % 5), bytes - at);

		vec[i] = (struct kvec){ data + at, some };
		at += some;
	}
	io_wait_init(&wait);
	device_writev(dev, 3, vec, pieces, 0, &wait);
	memset(vec, 0xff, pieces * sizeof(*vec));	/* need not stay */
	assert_int_equal(io_wait_finish(&wait), 0);
	memset(back, 0, bytes);
	assert_int_equal(device_read(dev, 3, blocks, back), 0);
	assert_memory_equal(data, back, bytes);
	free(vec);
	free(data);
	free(back);
}

static void test_what_was_written_is_read(void **state)
{
	static const u32 sizes[] = { 1, 2, 64, 65, 256, 1000 };
	enum kind kind;
	u32 i;

	for (kind = 0; kind < KINDS; kind++) {
		struct tux3_device *dev = open_device(kind);

		assert_int_equal(dev->size_bytes, (u64)BLOCKS * BLOCK);
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			write_and_read(dev, sizes[i], 1);
			write_and_read(dev, sizes[i], 3);
			write_and_read(dev, sizes[i], 100);
			write_and_read(dev, sizes[i], 1500);	/* above IOV_MAX */
		}
		assert_int_equal(device_flush(dev), 0);
		assert_int_equal(atomic64_read(&dev->writes), 4 * ARRAY_SIZE(sizes));
		assert_int_equal(atomic64_read(&dev->reads), 4 * ARRAY_SIZE(sizes));
		assert_int_equal(atomic64_read(&dev->write_bytes), 4 * 1388 * BLOCK);
		assert_int_equal(atomic64_read(&dev->read_bytes), 4 * 1388 * BLOCK);
		assert_int_equal(atomic64_read(&dev->flushes), 1);
		dev->volatile_cache = false;
		assert_int_equal(device_flush(dev), 0);
		assert_int_equal(atomic64_read(&dev->flushes), 1);
		dev->ops->close(dev);
	}
}

/* A signal is no error of the device. */
static void test_a_flush_that_is_interrupted(void **state)
{
	struct tux3_device *dev = open_device(THREAD_POOL);

	interruptions = 3;
	assert_int_equal(device_flush(dev), 0);
	assert_int_equal(interruptions, 0);
	dev->ops->close(dev);
}

static void test_methods(void **state)
{
	struct tux3_device *dev = open_device(RING);
	const char *method = device_file_method(dev);

	/* Where io_uring is forbidden, the threads take its place. */
	assert_true(!strcmp(method, "io_uring") || !strcmp(method, "threads"));
	print_message("large writes: %s\n", method);
	dev->ops->close(dev);
	dev = open_device(THREAD_POOL);
	assert_string_equal(device_file_method(dev), "threads");
	dev->ops->close(dev);
}

/* Many large writes at once, more than the queue takes, from several threads. */

static struct tux3_device *shared;
static atomic_t turn;

static int write_many(void *data)
{
	u32 mine = atomic_inc_return(&turn) - 1, i, k;
	u32 first = mine * (BLOCKS / THREADS);
	size_t bytes = 100 * BLOCK;
	u8 *buf = malloc(bytes);
	int err = 0;

	fill(buf, bytes, mine);
	for (k = 0; k < 5 && !err; k++) {
		struct io_wait wait;

		io_wait_init(&wait);
		for (i = 0; i < 20; i++) {
			device_write(shared, first + i * 100, buf, i % 2 ? 100 : 3, 0, &wait);
			if (i == 10)
				device_kick(shared);
		}
		err = io_wait_finish(&wait);
		if (!err)
			err = device_flush(shared);
	}
	for (i = 1; i < 20 && !err; i += 2) {
		u8 *back = malloc(bytes);

		err = device_read(shared, first + i * 100, 100, back);
		if (!err && memcmp(buf, back, bytes))
			err = -EIO;
		free(back);
	}
	free(buf);
	return err;
}

static void test_concurrent_writers(void **state)
{
	enum kind kind;
	int i;

	for (kind = 0; kind < KINDS; kind++) {
		struct task_struct *task[THREADS];

		shared = open_device(kind);
		atomic_set(&turn, 0);
		for (i = 0; i < THREADS; i++)
			task[i] = kthread_run(write_many, NULL, "writer%d", i);
		for (i = 0; i < THREADS; i++)
			assert_int_equal(kthread_stop(task[i]), 0);
		shared->ops->close(shared);
	}
}

static void test_more_writes_than_the_queue_takes(void **state)
{
	u8 *buf = malloc(100 * BLOCK);
	enum kind kind;
	u32 i;
	int err;

	fill(buf, 100 * BLOCK, 1);
	for (kind = 0; kind < KINDS; kind++) {
		struct tux3_device *dev = open_device(kind);
		struct io_wait wait;

		io_wait_init(&wait);
		assert_true(io_wait_done(&wait, &err));
		for (i = 0; i < 400; i++)
			device_write(dev, i % 80 * 100, buf, 100, 0, &wait);
		while (!io_wait_done(&wait, &err))
			cond_resched();
		assert_int_equal(err, 0);
		dev->ops->close(dev);
	}
	free(buf);
}

/* The older half is waited for, while what was submitted last is still under way; errors come with the half that had them. */
static void test_a_window(void **state)
{
	struct io_window window;
	struct io_wait *first, *second;

	io_window_init(&window);
	first = io_window_wait(&window);
	io_wait_begin(first);
	assert_false(io_window_add(&window, 40, 100));
	assert_true(io_window_add(&window, 10, 100));
	assert_int_equal(io_window_turn(&window), 0);		/* nothing was in the other one */
	second = io_window_wait(&window);
	assert_ptr_not_equal(first, second);
	io_wait_begin(second);
	assert_true(io_window_add(&window, 50, 100));
	io_wait_end(first, -EIO);
	assert_int_equal(io_window_turn(&window), -EIO);
	assert_ptr_equal(io_window_wait(&window), first);
	io_wait_begin(first);
	io_wait_end(first, 0);
	io_wait_end(second, -ENOSPC);
	assert_int_equal(io_window_finish(&window), -ENOSPC);
	assert_int_equal(io_window_finish(&window), 0);
}

/* Bounds, and devices that cannot. */

static void test_bounds(void **state)
{
	u8 *buf = calloc(2, BLOCK);
	enum kind kind;

	env_set_log(keep_message);
	for (kind = 0; kind < KINDS; kind++) {
		struct tux3_device *dev = open_device(kind);

		assert_int_equal(write_sync(dev, BLOCKS - 1, 1, buf), 0);
		assert_int_equal(device_read(dev, BLOCKS - 1, 1, buf), 0);
		last_message[0] = 0;
		assert_int_equal(write_sync(dev, BLOCKS - 1, 2, buf), -EIO);
		assert_non_null(strstr(last_message, "outside the device"));
		assert_int_equal(device_read(dev, BLOCKS, 1, buf), -EIO);
		assert_int_equal(device_read(dev, U64_MAX, 2, buf), -EIO);
		assert_int_equal(write_sync(dev, U64_MAX - 1, 2, buf), -EIO);
		assert_int_equal(device_discard(dev, 1, BLOCKS), -EIO);
		assert_int_equal(atomic64_read(&dev->writes), 1);
		dev->ops->close(dev);
	}
	env_set_log(NULL);
	free(buf);
}

static void test_discard(void **state)
{
	u8 *buf = malloc(64 * BLOCK), *back = malloc(64 * BLOCK);
	enum kind kind;

	fill(buf, 64 * BLOCK, 5);
	for (kind = 0; kind < KINDS; kind++) {
		struct tux3_device *dev = open_device(kind);

		assert_int_equal(write_sync(dev, 100, 64, buf), 0);
		assert_int_equal(device_discard(dev, 110, 10), 0);
		assert_int_equal(device_read(dev, 100, 64, back), 0);
		assert_memory_equal(buf, back, 10 * BLOCK);
		assert_memory_equal(buf + 20 * BLOCK, back + 20 * BLOCK, 44 * BLOCK);
		dev->ops->close(dev);
	}
	free(buf);
	free(back);
}

static void test_read_only(void **state)
{
	u8 *buf = calloc(1, BLOCK);
	struct tux3_device *dev, *second;

	env_set_log(keep_message);
	assert_int_equal(device_open_file(path, 0, &dev, why, sizeof(why)), 0);
	assert_true(dev->read_only);
	assert_int_equal(device_read(dev, 0, 1, buf), 0);
	assert_int_equal(write_sync(dev, 0, 1, buf), -EROFS);
	assert_int_equal(device_discard(dev, 0, 1), -EROFS);
	assert_int_equal(atomic64_read(&dev->writes), 0);

	/* Readers go together, a writer not. */
	assert_int_equal(device_open_file(path, 0, &second, why, sizeof(why)), 0);
	second->ops->close(second);
	assert_int_equal(device_open_file(path, DEVICE_OPEN_WRITE, &second, why, sizeof(why)), -EBUSY);
	dev->ops->close(dev);
	env_set_log(NULL);
	free(buf);
}

static void test_a_volume_has_one_writer(void **state)
{
	struct tux3_device *dev = open_device(RING), *second;

	assert_int_equal(device_open_file(path, DEVICE_OPEN_WRITE, &second, why, sizeof(why)), -EBUSY);
	assert_non_null(strstr(why, "is in use: mounted, or another program has it"));
	assert_int_equal(device_open_file(path, 0, &second, why, sizeof(why)), -EBUSY);
	dev->ops->close(dev);
	dev = open_device(RING);
	dev->ops->close(dev);
}

static void *let_go(void *holder)
{
	struct tux3_device *dev = holder;

	usleep(60 * 1000);
	dev->ops->close(dev);
	return NULL;
}

/* A program that was killed is gone, but for a moment the kernel still holds the file for its io_uring. */
static void test_started_again(void **state)
{
	static const unsigned int flags[] = { 0, DEVICE_OPEN_WRITE | DEVICE_OPEN_SYNC_IO };
	struct tux3_device *dev;
	pthread_t holder;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		assert_int_equal(pthread_create(&holder, NULL, let_go, open_device(RING)), 0);
		assert_int_equal(device_open_file(path, flags[i], &dev, why, sizeof(why)), 0);
		assert_int_equal(pthread_join(holder, NULL), 0);
		dev->ops->close(dev);
	}
}

static void check_refusal(const char *where, unsigned int flags, int expected, const char *words)
{
	struct tux3_device *dev;

	why[0] = 0;
	assert_int_equal(device_open_file(where, flags, &dev, why, sizeof(why)), expected);
	if (!strstr(why, words))
		fail_msg("\"%s\" does not contain \"%s\"", why, words);
}

static void test_refusals_are_explained(void **state)
{
	struct tux3_device *dev;
	char name[sizeof(path) + 8];
	long n, failed = 0;

	check_refusal("/tmp/there-is-no-such-file", 0, -ENOENT, "does not exist");
	check_refusal("/tmp", DEVICE_OPEN_WRITE, -EISDIR, "is a directory");
	check_refusal("/dev/null", DEVICE_OPEN_WRITE, -ENOTBLK, "neither a file nor a block device");
	scnprintf(name, sizeof(name), "%s.fifo", path);
	assert_int_equal(mkfifo(name, 0600), 0);
	check_refusal(name, 0, -ENOTBLK, "neither a file nor a block device");
	unlink(name);
	if (geteuid()) {
		chmod(path, 0400);
		check_refusal(path, DEVICE_OPEN_WRITE, -EACCES, "no permission");
		chmod(path, 0600);
	}
	/* Out of memory at each place. */
	for (n = 1; n < 20; n++) {
		int err;

		env_fail_alloc_at(n);
		err = device_open_file(path, DEVICE_OPEN_WRITE, &dev, why, sizeof(why));
		env_fail_alloc_at(0);
		if (!err)
			dev->ops->close(dev);
		else
			assert_int_equal(err, -ENOMEM);
		failed += !!err;
	}
	assert_true(failed >= 3 && failed < 15);
}

static void test_a_file_that_became_shorter(void **state)
{
	struct tux3_device *dev = open_device(RING);
	u8 *buf = malloc(4 * BLOCK);

	env_set_log(keep_message);
	assert_int_equal(truncate(path, 100 * BLOCK), 0);
	assert_int_equal(device_read(dev, 98, 4, buf), -EIO);
	assert_non_null(strstr(last_message, "has become shorter"));
	assert_int_equal(truncate(path, (off_t)BLOCKS * BLOCK), 0);
	assert_int_equal(device_read(dev, 98, 4, buf), 0);
	env_set_log(NULL);
	dev->ops->close(dev);
	free(buf);
}

/* Calls of read(2) and its like by this process so far. */
static u64 read_calls(void)
{
	FILE *file = fopen("/proc/self/io", "re");
	char line[100];
	unsigned long long calls = 0;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "syscr: %llu", &calls);
	fclose(file);
	return calls;
}

#define FIVE 5u

/* Three adjacent ones, out of five, with buffers anywhere; of those that the file does not have any more, only those fail. */
static void test_adjacent_reads(void **state)
{
	static const u32 addr[FIVE] = { 200, 201, 204, 500, 100 }, blocks[FIVE] = { 1, 3, 2, 1, 1 };
	void (*const ways[2])(struct tux3_device *, struct device_io *, u32) = { device_read_many, device_read_media };
	u8 *data = malloc((size_t)1000 * BLOCK), *back = malloc((size_t)FIVE * 4 * BLOCK);
	struct device_io reads[FIVE];
	struct tux3_device *dev;
	u32 way, size, i;
	u64 before, own;

	fill(data, (size_t)1000 * BLOCK, 5);
	for (way = 0; way < 2; way++) {
		for (size = 1000; size >= 199; size = size == 1000 ? 203 : size - 1) {
			dev = open_device(RING);
			assert_int_equal(write_sync(dev, 0, 1000, data), 0);
			for (i = 0; i < FIVE; i++)
				reads[i] = (struct device_io){ .addr = addr[i], .count = blocks[i], .err = 77,
							       .data = back + (FIVE - 1 - i) * 4 * BLOCK + 8 * (i == 1) };
			assert_int_equal(truncate(path, size == 1000 ? (off_t)BLOCKS * BLOCK : (off_t)size * BLOCK), 0);
			own = read_calls();
			before = read_calls();
			own = before - own;
			ways[way](dev, reads, FIVE);
			if (size == 1000)
				assert_int_equal(read_calls() - before - own, 3);
			for (i = 0; i < FIVE; i++) {
				bool there = addr[i] + blocks[i] <= size;

				assert_int_equal(reads[i].err, there ? 0 : -EIO);
				if (there)
					assert_memory_equal(reads[i].data, data + (size_t)addr[i] * BLOCK, blocks[i] * BLOCK);
			}
			assert_int_equal(truncate(path, (off_t)BLOCKS * BLOCK), 0);
			dev->ops->close(dev);
		}
	}
	free(data);
	free(back);
}

static void test_write_without_memory_for_the_queue(void **state)
{
	u8 *buf = calloc(100, BLOCK);
	enum kind kind;

	for (kind = 0; kind < MEMORY; kind++) {
		struct tux3_device *dev = open_device(kind);

		env_fail_alloc_at(-1);
		assert_int_equal(write_sync(dev, 0, 100, buf), 0);
		env_fail_alloc_at(0);
		dev->ops->close(dev);
	}
	free(buf);
}

static void test_a_rate(void **state)
{
	u8 *buf = calloc(128, BLOCK);
	enum kind kind;
	u32 i;

	for (kind = 0; kind < MEMORY; kind++) {
		struct tux3_device *dev = open_device(kind);
		u64 begun, submitted, done;
		struct io_wait wait;

		assert_int_equal(device_file_set_rate(dev, 5 << 20), 0);
		io_wait_init(&wait);
		begun = ktime_get_ns();
		for (i = 0; i < 4; i++)
			device_write(dev, i * 128, buf, 128, 0, &wait);	/* 2 MiB in all: 400 ms */
		for (i = 0; i < 64; i++)
			device_write(dev, i, buf, 1, 0, &wait);		/* 256 KiB: 50 ms */
		submitted = ktime_get_ns() - begun;
		assert_int_equal(io_wait_finish(&wait), 0);
		done = ktime_get_ns() - begun;
		assert_true(done > 440 * NSEC_PER_MSEC);	/* how much longer is up to the machine */
		assert_true(submitted < done / 2);

		assert_int_equal(device_file_set_rate(dev, 256 << 10), 0);	/* would take 2 s */
		assert_int_equal(device_file_set_rate(dev, 0), 0);
		begun = ktime_get_ns();
		assert_int_equal(write_sync(dev, 0, 128, buf), 0);
		assert_true(ktime_get_ns() - begun < 1900 * NSEC_PER_MSEC);
		dev->ops->close(dev);
	}
	free(buf);
}

/* The waiter's io_wait is gone the moment it returns: threads that end writes must not touch it then. */

static struct {
	struct io_wait *wait;
	wait_queue_head_t queue;
} ending;

static int end_writes(void *data)
{
	for (;;) {
		struct io_wait *wait;

		wait_event(ending.queue, (wait = xchg(&ending.wait, NULL)) || kthread_should_stop());
		if (!wait)
			return 0;
		io_wait_end(wait, -ENOSPC);
	}
}

static void test_io_wait_may_be_freed_at_once(void **state)
{
	struct task_struct *task;
	int i, err;

	init_waitqueue_head(&ending.queue);
	task = kthread_run(end_writes, NULL, "ender");
	for (i = 0; i < 20000; i++) {
		struct io_wait *wait = malloc(sizeof(*wait));

		io_wait_init(wait);
		io_wait_begin(wait);
		smp_store_release(&ending.wait, wait);
		wake_up(&ending.queue);
		if (i % 5) {
			err = io_wait_finish(wait);
		} else {
			while (!io_wait_done(wait, &err))
				cond_resched();
		}
		assert_int_equal(err, -ENOSPC);
		free(wait);
	}
	kthread_stop(task);
}

static int make_file(void **state)
{
	int fd = mkstemp(path);

	if (fd < 0 || ftruncate(fd, (off_t)BLOCKS * BLOCK))
		return -1;
	return close(fd);
}

static int remove_file(void **state)
{
	return unlink(path);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_was_written_is_read),
		cmocka_unit_test(test_methods),
		cmocka_unit_test(test_a_flush_that_is_interrupted),
		cmocka_unit_test(test_concurrent_writers),
		cmocka_unit_test(test_more_writes_than_the_queue_takes),
		cmocka_unit_test(test_a_window),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_discard),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_a_volume_has_one_writer),
		cmocka_unit_test(test_started_again),
		cmocka_unit_test(test_refusals_are_explained),
		cmocka_unit_test(test_a_file_that_became_shorter),
		cmocka_unit_test(test_adjacent_reads),
		cmocka_unit_test(test_write_without_memory_for_the_queue),
		cmocka_unit_test(test_a_rate),
		cmocka_unit_test(test_io_wait_may_be_freed_at_once),
	};

	alarm(300);	/* a write that never ends */
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
