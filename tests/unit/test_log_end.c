/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is at the end of the log, or in its middle: torn, rotten, unreadable.  Files are made in commits of their own, the
 * volume is abandoned, something on its disk is damaged, and it is opened again.
 */
#include "support_lib.h"
#include "user/env/device_slow.h"
#include <unistd.h>
#include "core/data/data.h"
#include "core/log/log_read.h"
#include "user/lib/lib.h"

#define VOLUME_BYTES	(64ULL << 20)
#define BLOCK		4096u
#define FILES		12u
#define FILE_BYTES	8192u

static struct volume *core_of(struct bed *bed)
{
	return bed->volume->vol;
}

static void make_file(struct bed *bed, u32 n)
{
	struct tux3_node *node;
	u8 bytes[FILE_BYTES];
	char path[16];

	snprintf(path, sizeof(path), "file%u", n);
	memset(bytes, 'a' + n, sizeof(bytes));
	node = bed_file(bed, path);
	assert_ok(tux3_write(node, bytes, sizeof(bytes), 0));
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed->volume));
}

/* Files 0 .. count - 1 are there and whole, others are not. */
static void assert_files(struct bed *bed, u32 count)
{
	u8 bytes[FILE_BYTES];
	char path[16];
	u32 n, i;

	for (n = 0; n < FILES + 4; n++) {
		struct tux3_node *node;
		int err;

		snprintf(path, sizeof(path), "file%u", n);
		err = tux3_path(bed->volume, NULL, path, 0, 0, &node);
		assert_int_equal(err, n < count ? 0 : -ENOENT);
		if (err)
			continue;
		assert_int_equal(tux3_read(node, bytes, sizeof(bytes), 0), sizeof(bytes));
		for (i = 0; i < sizeof(bytes); i++)
			assert_int_equal(bytes[i], 'a' + n);
		tux3_node_put(node, 1);
	}
}

static struct bed new_bed(void)
{
	struct bed bed = { .opts = { .manual = true } };

	bed_make(&bed, VOLUME_BYTES, BLOCK);
	bed_close(&bed);
	bed.dev = device_slow_create(bed.dev, 1, DEVICE_READS_MAX);
	assert_non_null(bed.dev);
	bed_open(&bed);
	return bed;
}

/* As a power cut leaves it: FILES commits, each with one file; log[n]: the last log block of file n. */
static struct bed crashed_bed(u64 *log)
{
	struct bed bed = new_bed();
	u32 n;

	for (n = 0; n < FILES; n++) {
		struct range_list *list = &core_of(&bed)->log.blocks;

		make_file(&bed, n);
		log[n] = list->ranges[list->count - 1].addr + list->ranges[list->count - 1].len - 1;
	}
	log[FILES] = core_of(&bed)->log.next_addr;
	tux3_abandon(bed.volume);
	return bed;
}

static void damage(struct bed *bed, u64 addr, u32 blocks)
{
	u8 bytes[BLOCK];
	struct io_wait wait;
	u32 i;

	for (i = 0; i < blocks; i++) {
		bed->dev->block_size = BLOCK;
		assert_ok(device_read(bed->dev, addr + i, 1, bytes));
		bytes[1000] ^= 16;
		io_wait_init(&wait);
		device_write(bed->dev, addr + i, bytes, 1, 0, &wait);
		assert_ok(io_wait_finish(&wait));
	}
}

static void assert_refused(struct bed *bed, u64 addr)
{
	char why[400] = "", where[32];
	struct tux3 *volume;

	assert_int_equal(tux3_open_device(bed->dev, false, &bed->opts, 0, &volume, why, sizeof(why)), -EIO);
	snprintf(where, sizeof(where), "block %llu", (unsigned long long)addr);
	assert_non_null(strstr(why, where));
	assert_non_null(strstr(why, "cutlog"));
}

static void the_end_cannot_be_read(void **state)
{
	u64 log[FILES + 1];
	struct bed bed = crashed_bed(log);
	u32 turn;

	device_slow_fail(bed.dev, log[FILES]);
	bed_open(&bed);
	assert_files(&bed, FILES);
	make_file(&bed, FILES);
	make_file(&bed, FILES + 1);
	for (turn = 0; turn < 3; turn++) {	/* the log goes round the bad block, which may also recover */
		tux3_abandon(bed.volume);
		if (turn)
			device_slow_fail(bed.dev, U64_MAX);
		bed_open(&bed);
		assert_files(&bed, FILES + 2 + turn);
		if (turn < 2)
			make_file(&bed, FILES + 2 + turn);
	}
	bed_free(&bed);
}

/* Where the log begins after a clean end. */
static void the_first_block_cannot_be_read(void **state)
{
	struct bed bed = new_bed();
	u64 addr;

	make_file(&bed, 0);
	bed_reopen(&bed);
	addr = core_of(&bed)->log.next_addr;
	bed_close(&bed);
	device_slow_fail(bed.dev, addr);
	bed_open(&bed);
	assert_files(&bed, 1);
	make_file(&bed, 1);
	tux3_abandon(bed.volume);
	bed_open(&bed);
	assert_files(&bed, 2);
	bed_free(&bed);
}

static u64 data_of(struct bed *bed, u32 n)
{
	struct data_extent extent = { .block = 0, .count = 1 };
	struct tux3_node *node;
	char path[16];

	snprintf(path, sizeof(path), "file%u", n);
	assert_ok(tux3_path(bed->volume, NULL, path, 0, 0, &node));
	assert_ok(data_map_tree(&node->inode, &extent, NULL, 0));
	tux3_node_put(node, 1);
	assert_true(extent.addr);
	return extent.addr;
}

/* The last commit lacks data: nobody knows whether it ever was complete. */
static void data_of_the_last_commit(void **state)
{
	u32 kind;

	for (kind = 0; kind < 4; kind++) {
		bool unreadable = kind & 1, keep = kind & 2;
		struct tux3_node *node;
		struct bed bed = new_bed();
		u8 byte;
		u64 addr;

		make_file(&bed, 0);
		make_file(&bed, 1);
		addr = data_of(&bed, 1);
		tux3_abandon(bed.volume);
		if (unreadable)
			device_slow_fail(bed.dev, addr);
		else
			damage(&bed, addr, 1);
		bed.opts.accept_last = keep;
		bed_open(&bed);
		if (keep) {
			assert_ok(tux3_path(bed.volume, NULL, "file1", 0, 0, &node));
			assert_int_equal(tux3_read(node, &byte, 1, 0), -EIO);
			tux3_node_put(node, 1);
			assert_ok(tux3_unlink(bed.root, NULL, "file1"));
		}
		assert_files(&bed, 1);
		device_slow_fail(bed.dev, U64_MAX);
		bed.opts.accept_last = false;
		bed_free(&bed);
	}
}

/* ---- one read fails, and the next one of the same block does not ---- */

static const struct tux3_device_ops *real_ops;
static u64 fail_once;

static int read_but_once(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	if (fail_once < addr || fail_once >= addr + count)
		return real_ops->read(dev, addr, count, data);
	fail_once = U64_MAX;
	return -EIO;
}

static void data_of_the_last_commit_is_read_again(void **state)
{
	struct bed bed = new_bed();
	struct tux3_device_ops ops;

	make_file(&bed, 0);
	make_file(&bed, 1);
	fail_once = data_of(&bed, 1);
	tux3_abandon(bed.volume);
	real_ops = bed.dev->ops;
	ops = *real_ops;
	ops.read = read_but_once;
	ops.read_many = NULL;
	bed.dev->ops = &ops;
	bed_open(&bed);
	bed.dev->ops = real_ops;
	assert_true(fail_once == U64_MAX);
	assert_files(&bed, 2);
	bed_free(&bed);
}

static bool is_unconfirmed(struct volume *vol)
{
	bool unconfirmed;

	delta_lock(vol);
	unconfirmed = vol->log.unconfirmed;
	delta_unlock(vol);
	return unconfirmed;
}

/* Something was written after it: then it was complete, and is kept whatever became of it. */
static void data_of_a_confirmed_commit(void **state)
{
	struct bed bed = new_bed();
	struct tux3_node *node;
	u64 addr, deltas;
	u8 byte;

	tux3_abandon(bed.volume);
	bed.opts.manual = false;
	bed.opts.age_ms = 500;
	bed_open(&bed);
	make_file(&bed, 0);
	addr = data_of(&bed, 0);
	while (is_unconfirmed(core_of(&bed)))
		usleep(10000);		/* the back end does it, once */
	deltas = delta_counter(core_of(&bed), TUX3_COUNT_DELTAS);
	usleep(300000);
	assert_int_equal(delta_counter(core_of(&bed), TUX3_COUNT_DELTAS), deltas);
	tux3_abandon(bed.volume);
	damage(&bed, addr, 1);
	bed.opts.manual = true;
	bed_open(&bed);
	assert_ok(tux3_path(bed.volume, NULL, "file0", 0, 0, &node));
	assert_int_equal(tux3_read(node, &byte, 1, 0), -EIO);
	tux3_node_put(node, 1);
	assert_ok(tux3_unlink(bed.root, NULL, "file0"));
	bed_free(&bed);
}

/* blocks of the log in a row, from that of file n on; unreadable, or changed. */
static void damage_in_the_middle(u32 n, u32 blocks, bool unreadable)
{
	u64 log[FILES + 1];
	struct bed bed = crashed_bed(log);

	if (unreadable)
		device_slow_fail(bed.dev, log[n]);
	else
		damage(&bed, log[n], blocks);
	assert_refused(&bed, log[n]);
	bed.opts.cut_log = true;
	bed_open(&bed);
	assert_files(&bed, n);
	make_file(&bed, n);
	tux3_abandon(bed.volume);
	bed.opts.cut_log = false;
	bed_open(&bed);
	assert_files(&bed, n + 1);
	make_file(&bed, n + 1);
	device_slow_fail(bed.dev, U64_MAX);
	tux3_abandon(bed.volume);
	bed_open(&bed);
	assert_files(&bed, n + 2);
	bed_free(&bed);
}

static void the_middle_is_damaged(void **state)
{
	u32 n;

	for (n = 0; n + 1 < FILES; n++) {
		damage_in_the_middle(n, 1, false);
		damage_in_the_middle(n, 1, true);
	}
	damage_in_the_middle(2, 2, false);
	damage_in_the_middle(3, 5, false);
}

/* Damage to the newest log block cannot be told from its not having been written. */
static void the_last_log_block_is_damaged(void **state)
{
	u64 log[FILES + 1];
	struct bed bed = crashed_bed(log);

	damage(&bed, log[FILES - 1], 1);
	bed_open(&bed);
	assert_files(&bed, FILES - 1);
	make_file(&bed, FILES - 1);
	tux3_abandon(bed.volume);
	bed_open(&bed);
	assert_files(&bed, FILES);
	bed_free(&bed);
}

/* The numbers jump behind the first commit after a cut: what comes then tells all the same that it was there. */
static void the_first_commit_after_a_cut_is_damaged(void **state)
{
	u64 log[FILES + 1];
	struct bed bed = crashed_bed(log);

	damage(&bed, log[5], 1);
	assert_refused(&bed, log[5]);
	bed.opts.cut_log = true;
	bed_open(&bed);
	bed.opts.cut_log = false;
	make_file(&bed, 5);
	make_file(&bed, 6);
	tux3_abandon(bed.volume);
	damage(&bed, log[6], 1);	/* by a detour; made when the volume was opened */
	assert_refused(&bed, log[5]);
	bed.opts.cut_log = true;
	bed_open(&bed);
	assert_files(&bed, 5);
	bed_free(&bed);
}

/* Again and again at one place: what is written after the last cut is the end of the log, whatever the cuts left behind it. */
static void the_log_is_cut_often(void **state)
{
	u64 log[FILES + 1];
	struct bed bed = crashed_bed(log);
	u32 turn;

	damage(&bed, log[5], 1);
	for (turn = 0; turn < 20; turn++) {
		assert_refused(&bed, log[5]);
		bed.opts.cut_log = true;
		bed_open(&bed);
		bed.opts.cut_log = false;
		make_file(&bed, 5);
		make_file(&bed, 6);
		tux3_abandon(bed.volume);
		bed_open(&bed);		/* not refused */
		assert_files(&bed, 7);
		make_file(&bed, 7);
		tux3_abandon(bed.volume);
		bed_open(&bed);
		assert_files(&bed, 8);
		tux3_abandon(bed.volume);
		damage(&bed, log[6], 1);
	}
	bed.opts.cut_log = true;
	bed_open(&bed);
	bed_free(&bed);
}

#define MANY 300u	/* more log blocks than are looked at behind damage */

/* What a cut leaves out may lie behind an earlier one, far behind the damage: what comes now has higher numbers all the same. */
static void a_cut_is_above_all_that_it_leaves_out(void **state)
{
	struct bed bed = { .opts = { .manual = true, .log_blocks = 8 * MANY } };
	u64 log[MANY], top;
	u32 n;

	bed_make(&bed, VOLUME_BYTES, BLOCK);
	for (n = 0; n < MANY + 5; n++) {
		struct range_list *list = &core_of(&bed)->log.blocks;

		if (n == MANY) {
			tux3_abandon(bed.volume);
			damage(&bed, log[MANY - 3], 1);
			bed.opts.cut_log = true;
			bed_open(&bed);
			bed.opts.cut_log = false;
			list = &core_of(&bed)->log.blocks;
		}
		make_file(&bed, n);
		if (n < MANY)
			log[n] = list->ranges[list->count - 1].addr + list->ranges[list->count - 1].len - 1;
	}
	top = core_of(&bed)->log.next_seq;
	assert_true(top > LOG_SKIP);
	tux3_abandon(bed.volume);
	damage(&bed, log[5], 1);
	damage(&bed, log[6], 1);
	assert_refused(&bed, log[5]);
	bed.opts.cut_log = true;
	bed_open(&bed);
	assert_true(core_of(&bed)->log.next_seq > top);
	assert_files(&bed, 5);
	bed_free(&bed);
}

/* A whole log block whose number is higher by more, somewhere behind the end. */
static void put_forged(struct bed *bed, u64 last, u64 addr, u64 more)
{
	u8 bytes[BLOCK];
	struct disk_log *log = (void *)bytes;
	struct io_wait wait;

	bed->dev->block_size = BLOCK;
	assert_ok(device_read(bed->dev, last, 1, bytes));
	log->seq = cpu_to_le64(le64_to_cpu(log->seq) + 1 + more);
	log->addr = cpu_to_le64(addr);
	log->index = 0;
	log->crc = 0;
	log->crc = cpu_to_le32(crc32c(~0u, bytes, sizeof(bytes)));
	io_wait_init(&wait);
	device_write(bed->dev, addr, bytes, 1, 0, &wait);
	assert_ok(io_wait_finish(&wait));
}

/* It says that a block is missing only if it can be of this log. */
static void a_number_that_is_too_high_is_forged(void **state)
{
	static const u64 more[] = { 1, LOG_SKIP, LOG_LATER_MAX, LOG_LATER_MAX + 1, S64_MAX - LOG_SKIP };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(more); i++) {
		u64 log[FILES + 1];
		struct bed bed = crashed_bed(log);

		put_forged(&bed, log[FILES - 1], log[FILES] + 5, more[i]);
		if (more[i] <= LOG_LATER_MAX) {
			assert_refused(&bed, log[FILES]);
			bed.opts.cut_log = true;
		}
		bed_open(&bed);
		assert_files(&bed, FILES);
		bed.opts.cut_log = false;
		make_file(&bed, FILES);
		make_file(&bed, FILES + 1);
		tux3_abandon(bed.volume);
		bed_open(&bed);
		assert_files(&bed, FILES + 2);
		bed_free(&bed);
	}
}

/* ---- what the last commit may have its data compared for ---- */

#define LARGE_VOLUME	(256u << 20)
#define MIB		(1u << 20)

/* One commit, of a file with so much data, or an xattr.  The first block of its log. */
static struct disk_log *one_commit(struct bed *bed, u32 bytes, u32 xattr_bytes)
{
	struct tux3_node *node;
	u8 *data = calloc(1, max(bytes, xattr_bytes));
	u64 addr;

	*bed = (struct bed){ .opts = { .manual = true } };
	bed_make(bed, LARGE_VOLUME, BLOCK);
	bed_reopen(bed);
	node = bed_file(bed, "file");
	assert_ok(tux3_write(node, data, bytes, 0));
	if (xattr_bytes)
		assert_ok(tux3_setxattr(node, NULL, "user.x", data, xattr_bytes, 0));
	tux3_node_put(node, 1);
	addr = core_of(bed)->log.next_addr;
	assert_ok(tux3_sync(bed->volume));
	free(data);
	tux3_node_put(bed->root, 1);
	tux3_abandon(bed->volume);
	return (struct disk_log *)((u8 *)device_memory_bytes(bed->dev) + addr * BLOCK);
}

/* It is opened, and so much was read at most. */
static void assert_bytes_read(struct bed *bed, struct disk_log *log, u32 most)
{
	struct disk_commit *commit = (struct disk_commit *)(log + 1);
	u64 bytes = atomic64_read(&bed->dev->read_bytes);

	if (le32_to_cpu(log->blocks) == 1)
		commit->crc = cpu_to_le32(crc32c(~0u, commit + 1, le32_to_cpu(commit->bytes)));
	log->crc = 0;
	log->crc = cpu_to_le32(crc32c(~0u, log, BLOCK));
	bed_open(bed);
	bytes = atomic64_read(&bed->dev->read_bytes) - bytes;
	assert_true(bytes < most);
	bed_free(bed);
}

/* A value of 4 GiB, says the log.  There may be thousands, all of the same blocks. */
static void a_forged_value_is_not_read(void **state)
{
	struct bed bed;
	struct disk_log *log = one_commit(&bed, 100, 2 * BLOCK);
	u8 *name = memmem(log, BLOCK, "user.x", 6);
	struct disk_xattr *entry = (struct disk_xattr *)(name - sizeof(*entry));
	struct disk_xattr_piece *piece = (struct disk_xattr_piece *)(name + 6);

	assert_non_null(name);
	assert_int_equal(log->blocks, 1);
	assert_int_equal(entry->pieces, 1);
	put_unaligned_le32(U32_MAX, &entry->value_len);
	put_unaligned_le32(U32_MAX, &piece->len);
	assert_bytes_read(&bed, log, 16 * MIB);
}

/* Whoever writes so much says that it was durable before. */
static void forged_data_is_not_read(void **state)
{
	struct bed bed;
	struct disk_log *log = one_commit(&bed, 48 * MIB, 0);
	struct disk_commit *commit = (struct disk_commit *)(log + 1);

	assert_true(le32_to_cpu(commit->flags) & TUX3_COMMIT_DATA_FLUSHED);
	commit->flags = 0;
	assert_bytes_read(&bed, log, 32 * MIB);
}

#define CHAIN	600u

/* A chain of blocks that lie so far from each other: how many bytes are read to follow it. */
static u64 follow(u32 apart)
{
	struct bed bed = {};
	struct log_reader reader;
	struct log_place place = { .seq = 100 };
	struct disk_log *log;
	u64 addr[CHAIN + 2], at, bytes;
	struct volume *vol;
	int err = 0;
	u32 i;

	bed_make(&bed, (u64)CHAIN * 310 * BLOCK, BLOCK);
	vol = core_of(&bed);
	for (i = 0, at = 1000; i < CHAIN + 2; i++, at += i < CHAIN ? apart : 1) {
		while (balloc_is_fixed(vol, at))
			at++;
		addr[i] = at;
	}
	for (i = 0; i < CHAIN; i++) {
		log = (struct disk_log *)((u8 *)device_memory_bytes(bed.dev) + addr[i] * BLOCK);
		*log = (struct disk_log){
			.magic = cpu_to_le32(TUX3_LOG_MAGIC), .volume_id = cpu_to_le64(vol->id), .addr = cpu_to_le64(addr[i]),
			.seq = cpu_to_le64(100 + i), .next = cpu_to_le64(addr[i + 1]), .after = cpu_to_le64(addr[i + 2]),
			.blocks = cpu_to_le32(1),
		};
		log->crc = cpu_to_le32(crc32c(~0u, log, BLOCK));
	}
	place.addr = addr[0];
	place.after = addr[1];
	bytes = atomic64_read(&bed.dev->read_bytes);
	assert_ok(log_reader_init(&reader, vol));
	for (i = 0; i < CHAIN; i++)
		assert_non_null(log_reader_follow(&reader, &place, &at, &err));
	log_reader_exit(&reader);
	bytes = atomic64_read(&bed.dev->read_bytes) - bytes;
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	bed.dev->ops->close(bed.dev);
	return bytes;
}

/* In single blocks of a volume that is full or forged it is: what is read ahead of each is of no use. */
static void a_scattered_log_costs_what_it_is(void **state)
{
	u64 together = follow(1), near = follow(10), far = follow(300);

	print_message("  %u blocks: %llu KiB in one piece, %llu and %llu scattered\n", CHAIN, (unsigned long long)together >> 10,
		      (unsigned long long)near >> 10, (unsigned long long)far >> 10);
	assert_true(together <= CHAIN * BLOCK + MIB);
	assert_true(near <= 11 * CHAIN * BLOCK + MIB);
	assert_true(far <= 17 * CHAIN * BLOCK + 4 * MIB);
}

/* Nor are values, each of which is as long as it may be. */
static void forged_values_are_not_read(void **state)
{
	struct bed bed = { .opts = { .manual = true, .dirty_bytes = LARGE_VOLUME } };
	static char value[TUX3_XATTR_SIZE_MAX];
	struct tux3_node *node;
	struct disk_log *log;
	char name[20];
	u64 addr;
	u32 i;

	bed_make(&bed, LARGE_VOLUME, BLOCK);
	bed_reopen(&bed);
	node = bed_file(&bed, "file");
	for (i = 0; i < 48 * MIB / sizeof(value); i++) {
		sprintf(name, "user.%u", i);
		assert_ok(tux3_setxattr(node, NULL, name, value, sizeof(value), 0));
	}
	tux3_node_put(node, 1);
	addr = core_of(&bed)->log.next_addr;
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	log = (struct disk_log *)((u8 *)device_memory_bytes(bed.dev) + addr * BLOCK);
	((struct disk_commit *)(log + 1))->flags = 0;
	assert_bytes_read(&bed, log, 32 * MIB);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_that_is_too_high_is_forged),
		cmocka_unit_test(the_first_commit_after_a_cut_is_damaged),
		cmocka_unit_test(the_log_is_cut_often),
		cmocka_unit_test(a_cut_is_above_all_that_it_leaves_out),
		cmocka_unit_test(the_end_cannot_be_read),
		cmocka_unit_test(the_first_block_cannot_be_read),
		cmocka_unit_test(data_of_the_last_commit),
		cmocka_unit_test(data_of_the_last_commit_is_read_again),
		cmocka_unit_test(data_of_a_confirmed_commit),
		cmocka_unit_test(the_middle_is_damaged),
		cmocka_unit_test(the_last_log_block_is_damaged),
		cmocka_unit_test(a_forged_value_is_not_read),
		cmocka_unit_test(forged_data_is_not_read),
		cmocka_unit_test(forged_values_are_not_read),
		cmocka_unit_test(a_scattered_log_costs_what_it_is),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
