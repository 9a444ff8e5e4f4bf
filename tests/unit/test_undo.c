/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Undo files: nothing is overwritten that is not saved, and all of it can be put back, whatever became of the end of the file. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/device/device.h"
#include "user/env/device_memory.h"
#include "user/env/device_undo.h"
#include "user/env/fault.h"
#include "user/env/log.h"
#include "user/env/undo_file.h"

#define BYTES	(16u << 20)
#define UNITS	(BYTES / UNDO_UNIT)
#define THREADS	4

static char path[64], why[300];
static const u8 uuid[16] = "0123456789abcde";

static u64 next(u64 *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 33;
}

/* ---- a device below, which looks at the file before it writes ---- */

static struct watch {
	struct tux3_device dev;
	struct tux3_device *below;
	struct undo_file *file;		/* of the device above, whose thread we are in */
	const u8 *old;			/* what the device held at first */
	bool look;
	u64 bad;			/* a unit that cannot be read before it is written; 0: none */
	atomic_t late;			/* writes that came before their old content was durable */
	atomic64_t written;
} watch;

static bool is_saved(struct undo_file *file, u64 unit)
{
	u8 *data = malloc(UNDO_RECORD_MAX);
	bool found = false;
	u64 i, at;

	for (i = 0; i < file->count && !found; i++) {
		struct undo_place *place = &file->places[i];

		at = unit * UNDO_UNIT - place->offset;
		if (unit * UNDO_UNIT < place->offset || at >= place->bytes)
			continue;
		assert_int_equal(undo_file_read(file, place, data), 0);
		found = !memcmp(data + at, watch.old + unit * UNDO_UNIT, UNDO_UNIT);
	}
	free(data);
	return found;
}

static int watch_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	u64 first = addr * dev->block_size / UNDO_UNIT, units = (u64)count * dev->block_size / UNDO_UNIT;

	if (watch.bad && watch.bad >= first && watch.bad < first + units)
		return -EIO;
	watch.below->block_size = dev->block_size;
	return device_read(watch.below, addr, count, data);
}

static void watch_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
			unsigned int flags, struct io_wait *wait)
{
	struct undo_file *file;
	u64 unit = addr * dev->block_size / UNDO_UNIT, units = 0;
	u32 i;

	for (i = 0; i < vecs; i++)
		units += vec[i].iov_len;
	atomic64_add(units, &watch.written);
	units /= UNDO_UNIT;
	if (watch.file->durable != watch.file->seq)
		atomic_inc(&watch.late);
	if (watch.look) {
		assert_int_equal(undo_file_open(path, &file, why, sizeof(why)), 0);
		for (; units; units--)
			if (!is_saved(file, unit++))
				atomic_inc(&watch.late);
		undo_file_close(file);
	}
	watch.below->block_size = dev->block_size;
	device_writev(watch.below, addr, vec, vecs, flags, wait);
}

static int watch_flush(struct tux3_device *dev)
{
	return device_flush(watch.below);
}

static int watch_discard(struct tux3_device *dev, u64 addr, u64 count)
{
	fail_msg("a discard came through");
	return 0;
}

static void watch_close(struct tux3_device *dev)
{
}

static const struct tux3_device_ops watch_ops = {
	.read = watch_read, .write = watch_write, .flush = watch_flush, .discard = watch_discard, .close = watch_close,
};

/* ---- the bed ---- */

struct bed {
	struct tux3_device *memory, *dev;
	struct undo_file *file;
	u8 *old;
};

static void bed_make(struct bed *bed, u64 seed)
{
	u8 *bytes;
	u32 i;

	unlink(path);
	bed->memory = device_memory_create(BYTES);
	bytes = device_memory_bytes(bed->memory);
	for (i = 0; i < BYTES; i += 8)
		*(u64 *)(bytes + i) = next(&seed);
	bed->old = malloc(BYTES);
	memcpy(bed->old, bytes, BYTES);
	assert_int_equal(undo_file_create(path, BYTES, uuid, 42, NULL, &bed->file, why, sizeof(why)), 0);
	watch.dev = (struct tux3_device){ .ops = &watch_ops, .size_bytes = BYTES, .block_size = 4096, .volatile_cache = true, .name = "watch" };
	watch.below = bed->memory;
	watch.old = bed->old;
	watch.file = bed->file;
	watch.look = false;
	watch.bad = 0;
	atomic_set(&watch.late, 0);
	atomic64_set(&watch.written, 0);
	bed->dev = device_undo_create(&watch.dev, bed->file);
	assert_non_null(bed->dev);
}

static void bed_end_writing(struct bed *bed)
{
	bed->dev->ops->close(bed->dev);
	assert_int_equal(atomic_read(&watch.late), 0);
}

static void bed_free(struct bed *bed)
{
	undo_file_close(bed->file);
	bed->memory->ops->close(bed->memory);
	free(bed->old);
	unlink(path);
}

/* With other bytes than there are. */
static int write_blocks(struct tux3_device *dev, u64 addr, u32 count, u8 value)
{
	size_t bytes = (size_t)count * dev->block_size;
	u8 *data = malloc(bytes);
	struct io_wait wait;
	int err;

	memset(data, value, bytes);
	io_wait_init(&wait);
	device_write(dev, addr, data, count, 0, &wait);
	device_kick(dev);
	err = io_wait_finish(&wait);
	free(data);
	return err;
}

/* Many in flight at a time: count of them, of up to max blocks. */
static void write_random(struct tux3_device *dev, u32 count, u32 max, u64 *seed)
{
	u8 **data = calloc(count, sizeof(*data));
	struct io_wait wait;
	u32 i, blocks;

	io_wait_init(&wait);
	for (i = 0; i < count; i++) {
		blocks = 1 + next(seed) % max;
		data[i] = malloc((size_t)blocks * dev->block_size);
		memset(data[i], next(seed), (size_t)blocks * dev->block_size);
		device_write(dev, next(seed) % (BYTES / dev->block_size - blocks + 1), data[i], blocks, 0, &wait);
	}
	assert_int_equal(io_wait_finish(&wait), 0);
	for (i = 0; i < count; i++)
		free(data[i]);
	free(data);
}

static void put_back_and_compare(struct bed *bed)
{
	struct undo_file *file;

	bed->memory->block_size = 4096;
	assert_int_equal(undo_file_open(path, &file, why, sizeof(why)), 0);
	assert_int_equal(le64_to_cpu(file->header.device_bytes), BYTES);
	assert_int_equal(le64_to_cpu(file->header.volume_id), 42);
	assert_memory_equal(file->header.uuid, uuid, 16);
	assert_int_equal(device_undo_put_back(bed->memory, file, NULL, NULL), 0);
	assert_memory_equal(device_memory_bytes(bed->memory), bed->old, BYTES);
	undo_file_close(file);
}

/* ---- tests ---- */

static void test_all_comes_back(void **state)
{
	static const u32 block_sizes[] = { 4096, 16384, 65536 };
	struct bed bed;
	u64 seed;
	u32 i;

	for (seed = 1; seed <= 6; seed++) {
		u64 random = seed;

		bed_make(&bed, seed);
		watch.look = seed == 1;
		for (i = 0; i < 12; i++) {
			bed.dev->block_size = watch.dev.block_size = block_sizes[next(&random) % ARRAY_SIZE(block_sizes)];
			write_random(bed.dev, seed == 1 ? 3 : 20, i % 3 ? 4 : BYTES / 65536 / 4, &random);
		}
		assert_int_equal(device_flush(bed.dev), 0);
		assert_memory_not_equal(device_memory_bytes(bed.memory), bed.old, BYTES);
		bed_end_writing(&bed);
		put_back_and_compare(&bed);
		bed_free(&bed);
	}
}

static void test_each_place_is_saved_once(void **state)
{
	struct bed bed;
	u8 back[4096];
	u32 i;

	bed_make(&bed, 7);
	for (i = 0; i < 5; i++)
		assert_int_equal(write_blocks(bed.dev, 10, 3, i), 0);
	assert_int_equal(write_blocks(bed.dev, 8, 8, 9), 0);
	assert_int_equal(device_read(bed.dev, 10, 1, back), 0);
	assert_int_equal(back[0], 9);
	assert_int_equal(device_discard(bed.dev, 0, UNITS), 0);
	/* Across the border of what one record, and one part of the map, can hold. */
	assert_int_equal(write_blocks(bed.dev, 0, 600, 1), 0);
	bed_end_writing(&bed);
	assert_int_equal(bed.file->saved_bytes, 600 * 4096);
	put_back_and_compare(&bed);
	bed_free(&bed);
}

/* Writing is what a disk makes a bad block whole by: then nothing that was there may come back but zeros, and all around it. */
static void test_what_cannot_be_read(void **state)
{
	static const u32 block_sizes[] = { 4096, 16384 };
	struct bed bed;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(block_sizes); i++) {
		bed_make(&bed, 11);
		bed.dev->block_size = watch.dev.block_size = block_sizes[i];
		watch.bad = 20;
		assert_int_equal(write_blocks(bed.dev, 16 * 4096 / block_sizes[i], 8 * 4096 / block_sizes[i], 5), 0);
		watch.bad = 0;
		assert_int_equal(write_blocks(bed.dev, 0, BYTES / block_sizes[i], 6), 0);
		bed_end_writing(&bed);
		assert_int_equal(bed.file->unreadable_bytes, block_sizes[i]);
		memset(bed.old + 20 * 4096, 0, block_sizes[i]);
		put_back_and_compare(&bed);
		bed_free(&bed);
	}
}

static struct bed *shared;

static int write_from_thread(void *data)
{
	u64 seed = (unsigned long)data;
	u32 i;

	for (i = 0; i < 20; i++)
		write_random(shared->dev, 5, 8, &seed);
	return 0;
}

static void test_threads(void **state)
{
	struct task_struct *threads[THREADS];
	struct bed bed;
	unsigned long i;

	bed_make(&bed, 11);
	shared = &bed;
	for (i = 0; i < THREADS; i++)
		threads[i] = kthread_run(write_from_thread, (void *)(i + 1), "writer");
	for (i = 0; i < THREADS; i++)
		kthread_stop(threads[i]);
	bed_end_writing(&bed);
	put_back_and_compare(&bed);
	bed_free(&bed);
}

/* How many records there are, or -errno. */
static int count_records(bool *cut_off, bool *complete)
{
	struct undo_file *file;
	int count = undo_file_open(path, &file, why, sizeof(why));

	if (count)
		return count;
	count = file->count;
	*cut_off = file->cut_off;
	*complete = file->complete;
	undo_file_close(file);
	return count;
}

/* Some writes, each durable before the next one, and an end. */
static void make_records(struct bed *bed, int count)
{
	struct undo_left left = { .generation = cpu_to_le64(5), .delta = cpu_to_le64(6) };
	int i;

	bed_make(bed, 13);
	for (i = 0; i < count; i++)
		assert_int_equal(write_blocks(bed->dev, 10 * i, 1 + i % 3, i), 0);
	bed_end_writing(bed);
	assert_int_equal(undo_file_end(bed->file, &left), 0);
}

static void test_cut_off(void **state)
{
	bool cut_off = false, complete = false;
	struct bed bed;
	u64 size, at;
	int count, last = 5;

	make_records(&bed, 5);
	size = bed.file->end;
	assert_int_equal(count_records(&cut_off, &complete), 5);
	assert_true(complete && !cut_off);
	for (at = size - 1; at > 512; at -= at % 512 == 100 ? 100 : 1 + at % 97) {
		assert_int_equal(truncate(path, at), 0);
		count = count_records(&cut_off, &complete);
		assert_in_range(count, 0, last);
		assert_false(complete);
		last = count;
		if (!cut_off)
			assert_int_equal(at % 512, 0);
	}
	assert_int_equal(last, 0);
	assert_int_equal(truncate(path, 511), 0);
	assert_int_equal(count_records(&cut_off, &complete), -EINVAL);
	bed_free(&bed);
}

static void flip(u64 at)
{
	int fd = open(path, O_RDWR);
	u8 byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void test_damage(void **state)
{
	bool cut_off = false, complete = false;
	struct bed bed;
	u64 last, at;

	make_records(&bed, 4);
	last = bed.file->end - 2 * 512 - 4096;		/* the last one with bytes, and the end */
	for (at = 0; at < 512; at += 37) {
		flip(at);
		assert_true(count_records(&cut_off, &complete) < 0);
		flip(at);
	}
	for (at = 512; at < last; at += 371) {
		flip(at);
		assert_int_equal(count_records(&cut_off, &complete), -EUCLEAN);
		assert_non_null(strstr(why, "damaged"));
		flip(at);
	}
	/* The end says that all before it is durable. */
	flip(last + 600);
	assert_int_equal(count_records(&cut_off, &complete), -EUCLEAN);
	/* Without it nobody knows: so it would look after a crash. */
	assert_int_equal(truncate(path, bed.file->end - 512), 0);
	assert_int_equal(count_records(&cut_off, &complete), 3);
	assert_true(cut_off && !complete);
	flip(last + 600);
	assert_int_equal(count_records(&cut_off, &complete), 4);
	assert_false(cut_off);
	bed_free(&bed);
}

/* Records that were not made durable one by one may be there in any order. */
static void test_a_batch_that_is_there_in_part(void **state)
{
	u8 block[4096] = "old";
	bool cut_off = false, complete = false;
	struct bed bed;
	u64 at;
	int i;

	bed_make(&bed, 17);
	bed_end_writing(&bed);
	assert_int_equal(undo_file_append(bed.file, 0, block, sizeof(block)), 0);
	assert_int_equal(undo_file_sync(bed.file), 0);
	at = bed.file->end;
	for (i = 1; i < 4; i++)
		assert_int_equal(undo_file_append(bed.file, i * 4096, block, sizeof(block)), 0);
	flip(at + 1000);
	assert_int_equal(count_records(&cut_off, &complete), 1);
	assert_true(cut_off);
	bed_free(&bed);
}

static void test_impossible_records(void **state)
{
	u8 block[8192] = "old";
	bool cut_off = false, complete = false;
	struct bed bed;

	bed_make(&bed, 19);
	bed_end_writing(&bed);
	assert_int_equal(undo_file_append(bed.file, BYTES - 4096, block, 8192), 0);
	assert_int_equal(count_records(&cut_off, &complete), 0);
	assert_true(cut_off);
	bed_free(&bed);
}

/* The file may grow to so many bytes: then no write reaches the device whose old content is not in it. */
static void test_full(void **state)
{
	struct rlimit before, limit;
	struct bed bed;
	int i, err = 0;

	bed_make(&bed, 23);
	getrlimit(RLIMIT_FSIZE, &before);
	limit = before;
	limit.rlim_cur = 100000;
	setrlimit(RLIMIT_FSIZE, &limit);
	for (i = 0; i < 40 && !err; i++)
		err = write_blocks(bed.dev, 3 * i, 1, i);
	assert_int_equal(err, -EFBIG);
	assert_in_range(i, 20, 24);
	setrlimit(RLIMIT_FSIZE, &before);
	/* Nor any later one, though there were room. */
	assert_int_equal(write_blocks(bed.dev, 200, 1, 1), -EFBIG);
	assert_int_equal(atomic64_read(&watch.written), (i - 1) * 4096);
	assert_int_equal(bed.file->err, -EFBIG);
	bed_end_writing(&bed);
	put_back_and_compare(&bed);
	bed_free(&bed);
}

static void test_no_memory(void **state)
{
	struct bed bed;
	long nth, failed = 0;
	int err;

	for (nth = 1; nth < 8; nth++) {
		bed_make(&bed, 29);
		env_fail_alloc_at(nth);
		err = write_blocks(bed.dev, 77, 2, 3);
		env_fail_alloc_at(0);
		if (err) {
			failed++;
			assert_int_equal(err, -ENOMEM);
		}
		bed_end_writing(&bed);
		put_back_and_compare(&bed);
		bed_free(&bed);
	}
	assert_true(failed >= 2);
}

static void test_state(void **state)
{
	struct undo_file *file;
	struct bed bed;

	make_records(&bed, 2);
	assert_int_equal(undo_file_open(path, &file, why, sizeof(why)), 0);
	assert_int_equal(le32_to_cpu(file->header.state), UNDO_IS_SAVED);
	assert_int_equal(le64_to_cpu(file->left.generation), 5);
	assert_int_equal(undo_file_set_state(file, UNDO_IS_BEGUN), 0);
	undo_file_close(file);
	assert_int_equal(undo_file_open(path, &file, why, sizeof(why)), 0);
	assert_int_equal(le32_to_cpu(file->header.state), UNDO_IS_BEGUN);
	assert_int_equal(file->count, 2);
	undo_file_close(file);
	/* There is one: it is not overwritten. */
	assert_int_equal(undo_file_create(path, BYTES, uuid, 1, NULL, &file, why, sizeof(why)), -EEXIST);
	assert_int_equal(undo_file_open(path, &file, why, sizeof(why)), 0);
	undo_file_close(file);
	assert_int_equal(undo_file_open("/dev/null", &file, why, sizeof(why)), -EINVAL);
	assert_int_equal(undo_file_open("/no/such/file", &file, why, sizeof(why)), -ENOENT);
	assert_int_equal(undo_file_create("/no/such/file", BYTES, uuid, 1, NULL, &file, why, sizeof(why)), -ENOENT);
	bed_free(&bed);
}

static void silent(int level, const char *message)
{
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_comes_back),
		cmocka_unit_test(test_each_place_is_saved_once),
		cmocka_unit_test(test_what_cannot_be_read),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_a_batch_that_is_there_in_part),
		cmocka_unit_test(test_impossible_records),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_state),
	};

	snprintf(path, sizeof(path), "/tmp/tux3-test-undo-%d", (int)getpid());
	signal(SIGXFSZ, SIG_IGN);
	env_set_log(silent);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
