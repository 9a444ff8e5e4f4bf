/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The simulator's own parts: a disk that loses the right writes, and an oracle that does what POSIX says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/stat.h>
#include "sim/rng.c"
#include "sim/disk.c"
#include "sim/model.c"
#include "sim/model_ops.c"

static const struct disk_settings plain = { .size_bytes = 1 << 20, .volatile_cache = true, .seed = 1 };
static u8 block[4096];

static int write_block(struct sim_disk *disk, u64 addr, u8 value, u32 flags)
{
	struct io_wait wait;

	memset(block, value, sizeof(block));
	io_wait_init(&wait);
	device_write(&disk->dev, addr, block, 1, flags, &wait);
	device_kick(&disk->dev);
	return io_wait_finish(&wait);
}

static u8 read_byte(struct sim_disk *disk, u64 addr, u32 at)
{
	u8 data[4096];

	assert_int_equal(device_read(&disk->dev, addr, 1, data), 0);
	return data[at];
}

static void test_prefix_has_the_first_writes(void **state)
{
	struct sim_disk disk, image;
	struct disk_cut cut = { .issued = 2, .at = 2 };

	disk_init(&disk, &plain);
	assert_int_equal(write_block(&disk, 5, 'a', 0), 0);
	assert_int_equal(write_block(&disk, 6, 'b', 0), 0);
	assert_int_equal(write_block(&disk, 5, 'c', 0), 0);
	assert_int_equal(read_byte(&disk, 5, 0), 'c');
	disk_init_image(&image, &disk, &plain, &cut, NULL, false);
	assert_int_equal(read_byte(&image, 5, 100), 'a');
	assert_int_equal(read_byte(&image, 6, 0), 'b');
	assert_int_equal(read_byte(&image, 7, 0), 0);
	disk_exit(&image);
	disk_exit(&disk);
}

/* Over many images every subset of what was not flushed is met, and nothing flushed is ever lost. */
static void test_only_unflushed_writes_are_lost(void **state)
{
	u32 seen[8] = { 0 }, i;
	struct sim_disk disk, image;
	struct disk_cut cut;

	disk_init(&disk, &plain);
	write_block(&disk, 1, 'a', 0);
	assert_int_equal(device_flush(&disk.dev), 0);
	write_block(&disk, 2, 'b', 0);
	write_block(&disk, 3, 'c', 0);
	write_block(&disk, 4, 'd', 0);
	cut = (struct disk_cut){ .issued = 4, .at = disk.now };
	assert_int_equal(disk_count_unflushed(&disk, &cut), 3);
	for (i = 0; i < 400; i++) {
		struct rng rng = { i };

		disk_init_image(&image, &disk, &plain, &cut, &rng, false);
		assert_int_equal(read_byte(&image, 1, 0), 'a');
		seen[!!read_byte(&image, 2, 0) + 2 * !!read_byte(&image, 3, 0) + 4 * !!read_byte(&image, 4, 0)]++;
		disk_exit(&image);
	}
	for (i = 0; i < 8; i++)
		assert_true(seen[i] > 0);
	disk_exit(&disk);
}

static void test_flush_counts_at_its_moment(void **state)
{
	struct disk_cut before = { .issued = 1, .at = 1 }, after = { .issued = 1, .at = 2 };
	struct sim_disk disk;

	disk_init(&disk, &plain);
	write_block(&disk, 1, 'a', 0);
	device_flush(&disk.dev);
	assert_int_equal(disk_count_unflushed(&disk, &before), 1);
	assert_int_equal(disk_count_unflushed(&disk, &after), 0);
	disk_exit(&disk);
}

static void test_fua_is_durable_alone(void **state)
{
	struct disk_settings settings = plain;
	struct sim_disk disk;
	struct disk_cut cut;

	settings.has_fua = true;
	disk_init(&disk, &settings);
	write_block(&disk, 1, 'a', 0);
	write_block(&disk, 2, 'b', DEVICE_FUA);
	cut = (struct disk_cut){ .issued = 2, .at = disk.now };
	assert_int_equal(disk_count_unflushed(&disk, &cut), 1);
	assert_int_equal(disk.writes[0].durable, DISK_NEVER);
	disk_exit(&disk);
}

static void test_torn_write_keeps_sectors_whole(void **state)
{
	u32 torn = 0, i, at;
	struct sim_disk disk, image;
	struct disk_cut cut;

	disk_init(&disk, &plain);
	write_block(&disk, 1, 'a', 0);
	device_flush(&disk.dev);
	write_block(&disk, 1, 'b', 0);
	cut = (struct disk_cut){ .issued = 2, .at = disk.now };
	for (i = 0; i < 100; i++) {
		struct rng rng = { i };
		u32 old = 0, new = 0;

		disk_init_image(&image, &disk, &plain, &cut, &rng, true);
		for (at = 0; at < 4096; at += DISK_SECTOR) {
			assert_int_equal(read_byte(&image, 1, at), read_byte(&image, 1, at + DISK_SECTOR - 1));
			old += read_byte(&image, 1, at) == 'a';
			new += read_byte(&image, 1, at) == 'b';
		}
		assert_int_equal(old + new, 8);
		torn += old && new;
		disk_exit(&image);
	}
	assert_true(torn > 50);
	disk_exit(&disk);
}

static void test_a_flush_does_not_cover_what_is_in_flight(void **state)
{
	struct disk_settings settings = plain;
	struct sim_disk disk;
	struct io_wait wait;
	u32 i, missed = 0;
	int err;

	settings.defer = true;
	for (i = 0; i < 50; i++) {
		settings.seed = i;
		disk_init(&disk, &settings);
		io_wait_init(&wait);
		device_write(&disk.dev, 1, block, 1, 0, &wait);
		if (!io_wait_done(&wait, &err)) {
			device_flush(&disk.dev);
			missed += disk.writes[0].durable == DISK_NEVER;
		}
		device_kick(&disk.dev);
		assert_int_equal(io_wait_finish(&wait), 0);
		disk_exit(&disk);
	}
	assert_true(missed > 10);
}

static void test_bytes_must_not_change_in_flight(void **state)
{
	struct disk_settings settings = plain;
	struct sim_disk disk;
	struct io_wait wait;

	settings.defer = true;
	disk_init(&disk, &settings);
	io_wait_init(&wait);
	memset(block, 'a', sizeof(block));
	device_write(&disk.dev, 1, block, 1, 0, &wait);
	if (!disk.writes[0].completed) {
		block[17] = 'b';
		device_kick(&disk.dev);
		assert_true(disk.complaint[0]);
	}
	device_kick(&disk.dev);
	io_wait_finish(&wait);
	disk_exit(&disk);
}

/* Mostly empty, so its tables are; an image has what its parent had and keeps it. */
static void test_a_large_disk_with_little_on_it(void **state)
{
	static const struct disk_settings large = { .size_bytes = 1ULL << 44, .volatile_cache = true, .seed = 1 };
	u64 far = (large.size_bytes >> 12) - 1;
	struct disk_cut cut = { .issued = 2, .at = 2 };
	struct sim_disk disk, image;

	disk_init(&disk, &large);
	write_block(&disk, 5, 'a', 0);
	disk_begin_trace(&disk);
	write_block(&disk, far, 'b', 0);
	write_block(&disk, far - 100000, 'c', 0);
	disk_init_image(&image, &disk, &large, &cut, NULL, false);
	write_block(&disk, far, 'd', 0);
	assert_int_equal(read_byte(&image, 5, 0), 'a');
	assert_int_equal(read_byte(&image, far, 4095), 'b');
	assert_int_equal(read_byte(&image, far - 100000, 0), 'c');
	assert_int_equal(read_byte(&image, far / 2, 0), 0);
	assert_int_equal(read_byte(&disk, far, 0), 'd');
	disk_exit(&image);
	disk_exit(&disk);
}

/* The canaries' defects: they must be there for anybody to find them. */
static void test_canaries_lose_writes(void **state)
{
	struct disk_settings losing = plain, forgetting = plain;
	struct disk_cut cut = { .issued = 3 };
	struct sim_disk disk, image;

	losing.lose_write = 2;
	disk_init(&disk, &losing);
	write_block(&disk, 1, 'a', 0);
	assert_int_equal(write_block(&disk, 2, 'b', 0), 0);
	write_block(&disk, 3, 'a', 0);
	device_flush(&disk.dev);
	cut.at = disk.now;
	assert_int_equal(read_byte(&disk, 1, 0), 'a');
	assert_int_equal(read_byte(&disk, 2, 0), 0);
	disk_init_image(&image, &disk, &plain, &cut, NULL, false);
	assert_int_equal(read_byte(&image, 2, 0), 0);
	assert_int_equal(read_byte(&image, 3, 0), 'a');
	disk_exit(&image);
	memset(&forgetting.forget_magic, 'a', sizeof(forgetting.forget_magic));
	disk_init_image(&image, &disk, &forgetting, &cut, NULL, false);
	assert_int_equal(read_byte(&image, 1, 0), 'a');
	assert_int_equal(read_byte(&image, 3, 0), 0);
	disk_exit(&image);
	disk_exit(&disk);
}

/* A flush that an fsync ahead of its delta leaves out is made up for by the next one of anybody. */
static void test_a_canary_leaves_out_a_flush(void **state)
{
	struct disk_settings leaving_out = plain;
	struct disk_cut cut = { .issued = 2 };
	struct sim_disk disk;

	memset(&leaving_out.unflushed_magic, 'b', sizeof(leaving_out.unflushed_magic));
	disk_init(&disk, &leaving_out);
	write_block(&disk, 1, 'a', 0);
	device_flush(&disk.dev);
	write_block(&disk, 2, 'b', 0);
	device_flush(&disk.dev);
	cut.at = disk.now;
	assert_int_equal(disk_count_unflushed(&disk, &cut), 1);
	write_block(&disk, 3, 'a', 0);
	device_flush(&disk.dev);
	cut.at = disk.now;
	assert_int_equal(disk_count_unflushed(&disk, &cut), 0);
	disk_exit(&disk);
}

static void test_the_nth_call_fails(void **state)
{
	struct disk_faults faults = { .write_at = 2, .flush_at = 1 };
	struct sim_disk disk;
	struct disk_cut cut;

	disk_init(&disk, &plain);
	disk_set_faults(&disk, &faults);
	assert_int_equal(write_block(&disk, 1, 'a', 0), 0);
	assert_int_equal(write_block(&disk, 2, 'b', 0), -EIO);
	assert_int_equal(write_block(&disk, 3, 'c', 0), 0);
	assert_int_equal(device_flush(&disk.dev), -EIO);
	assert_int_equal(device_flush(&disk.dev), 0);
	/* What was in the cache when a flush failed does not become durable by the next. */
	cut = (struct disk_cut){ .issued = 3, .at = disk.now };
	assert_int_equal(disk_count_unflushed(&disk, &cut), 3);
	disk_exit(&disk);
}

/* ---- the oracle ---- */

static int apply(struct m_state *state, enum sim_op_kind kind, const char *a, const char *b, u64 offset, u64 len,
		 u32 flags)
{
	struct sim_op op = { .kind = kind, .offset = offset, .len = len, .seed = len, .flags = flags, .mode = 0644 };

	if (a)
		snprintf(op.a, sizeof(op.a), "%s", a);
	if (b)
		snprintf(op.b, sizeof(op.b), "%s", b);
	return model_apply(state, &op, 5);
}

static const struct m_inode *at(const struct m_state *state, const char *path)
{
	int err;
	u32 id = model_lookup(state, path, &err);

	return id == M_NONE ? NULL : state->inodes[id];
}

static void test_model_names(void **state)
{
	struct m_state *m = model_new(0755, 1);

	assert_int_equal(apply(m, SIM_MKDIR, "A", NULL, 0, 0, 0), 0);
	assert_int_equal(apply(m, SIM_MKDIR, "A/B", NULL, 0, 0, 0), 0);
	assert_int_equal(apply(m, SIM_CREATE, "A/f", NULL, 0, 0, 0), 0);
	assert_int_equal(apply(m, SIM_CREATE, "A/f", NULL, 0, 0, 0), -EEXIST);
	assert_int_equal(apply(m, SIM_CREATE, "A/f/g", NULL, 0, 0, 0), -ENOTDIR);
	assert_int_equal(apply(m, SIM_CREATE, "X/g", NULL, 0, 0, 0), -ENOENT);
	assert_int_equal(at(m, "A")->nlink, 3);
	assert_int_equal(apply(m, SIM_RMDIR, "A", NULL, 0, 0, 0), -ENOTEMPTY);
	assert_int_equal(apply(m, SIM_UNLINK, "A/B", NULL, 0, 0, 0), -EISDIR);
	assert_int_equal(apply(m, SIM_LINK, "A/f", "g", 0, 0, 0), 0);
	assert_int_equal(at(m, "g")->nlink, 2);
	assert_int_equal(apply(m, SIM_RENAME, "A", "A/B/C", 0, 0, 0), -EINVAL);
	assert_int_equal(apply(m, SIM_RENAME, "A/B", "A", 0, 0, 0), -ENOTEMPTY);
	assert_int_equal(apply(m, SIM_RENAME, "A/f", "g", 0, 0, 0), 0);	/* the same inode: nothing */
	assert_non_null(at(m, "A/f"));
	assert_int_equal(apply(m, SIM_RENAME, "A/B", "B", 0, 0, 0), 0);
	assert_int_equal(at(m, "A")->nlink, 2);
	assert_int_equal(apply(m, SIM_RENAME, "B", "g", 0, 0, TUX3_RENAME_EXCHANGE), 0);
	assert_true(S_ISDIR(at(m, "g")->mode));
	assert_int_equal(at(m, "")->nlink, 4);
	assert_int_equal(apply(m, SIM_RENAME, "B", "A/h", 0, 0, TUX3_RENAME_WHITEOUT), 0);
	assert_true(S_ISCHR(at(m, "B")->mode));
	model_put(m);
}

static void test_model_keeps_snapshots(void **state)
{
	struct m_state *m = model_new(0755, 1), *old;

	apply(m, SIM_CREATE, "f", NULL, 0, 0, 0);
	apply(m, SIM_WRITE, "f", NULL, 0, 100, 0);
	old = model_snapshot(m);
	apply(m, SIM_WRITE, "f", NULL, 50, 100, 0);
	apply(m, SIM_SETXATTR, "f", "user.x", 0, 10, 0);
	apply(m, SIM_RENAME, "f", "g", 0, 0, 0);
	assert_int_equal(at(old, "f")->size, 100);
	assert_int_equal(at(old, "f")->xattr_count, 0);
	assert_null(at(old, "g"));
	assert_int_equal(at(m, "g")->size, 150);
	assert_int_equal(at(m, "g")->extent_count, 2);
	model_put(old);
	model_put(m);
}

static u32 id_of(const struct m_state *state, const char *path)
{
	return at(state, path)->id;
}

/* An fsync ahead of its delta, on the state of an older one. */
static void test_model_puts_an_inode_ahead(void **state)
{
	struct m_state *m = model_new(0755, 1), *old;

	apply(m, SIM_CREATE, "f", NULL, 0, 0, 0);
	apply(m, SIM_WRITE, "f", NULL, 0, 100, 0);
	apply(m, SIM_CREATE, "g", NULL, 0, 0, 0);
	apply(m, SIM_MKDIR, "A", NULL, 0, 0, 0);
	old = model_snapshot(m);
	apply(m, SIM_WRITE, "f", NULL, 50, 200, 0);
	apply(m, SIM_WRITE, "g", NULL, 0, 10, 0);
	apply(m, SIM_CREATE, "A/new", NULL, 0, 0, 0);
	apply(m, SIM_APPEND, "A/new", NULL, 0, 30, 0);
	assert_null(model_put_ahead(old, m, id_of(m, "f"), NULL));
	assert_int_equal(at(old, "f")->size, 250);
	assert_int_equal(at(old, "f")->extent_count, 2);
	assert_int_equal(at(old, "g")->size, 0);
	assert_null(model_put_ahead(old, m, id_of(m, "A/new"), NULL));
	assert_int_equal(at(old, "A/new")->size, 30);
	assert_int_equal(at(old, "A")->mtime, 5);
	apply(m, SIM_WRITE, "A/new", NULL, 30, 10, 0);
	assert_null(model_put_ahead(old, m, id_of(m, "A/new"), NULL));
	assert_int_equal(at(old, "A/new")->size, 40);
	assert_int_equal(at(old, "A")->entry_count, 1);
	/* With its xattrs, and without what was cut off. */
	apply(m, SIM_SETXATTR, "g", "user.x", 0, 10, 0);
	assert_null(model_put_ahead(old, m, id_of(m, "g"), NULL));
	assert_int_equal(at(old, "g")->xattr_count, 1);
	apply(m, SIM_REMOVEXATTR, "g", "user.x", 0, 0, 0);
	apply(m, SIM_TRUNCATE, "g", NULL, 0, 3, 0);
	assert_null(model_put_ahead(old, m, id_of(m, "g"), NULL));
	assert_int_equal(at(old, "g")->xattr_count, 0);
	assert_int_equal(at(old, "g")->size, 3);
	apply(m, SIM_CREATE, "labelled", NULL, 0, 0, 0);
	apply(m, SIM_SETXATTR, "labelled", "user.x", 0, 10, 0);
	assert_null(model_put_ahead(old, m, id_of(m, "labelled"), NULL));
	assert_int_equal(at(old, "labelled")->xattr_count, 1);
	model_put(old);
	model_put(m);
}

/* Names go with an inode, and so do those whose they were; but what would be lost with them must be there. */
static void test_model_puts_names_ahead(void **state)
{
	struct m_state *m = model_new(0755, 1), *old, *put;

	apply(m, SIM_CREATE, "f", NULL, 0, 0, 0);
	apply(m, SIM_CREATE, "g", NULL, 0, 0, 0);
	apply(m, SIM_MKDIR, "A", NULL, 0, 0, 0);
	old = model_snapshot(m);
	apply(m, SIM_RENAME, "f", "f2", 0, 0, 0);
	apply(m, SIM_CREATE, "f", NULL, 0, 0, 0);
	apply(m, SIM_LINK, "f", "A/f", 0, 0, 0);
	apply(m, SIM_UNLINK, "g", NULL, 0, 0, 0);
	put = model_snapshot(old);
	assert_null(model_put_ahead(put, m, id_of(m, "f"), NULL));
	assert_int_equal(at(put, "f2")->id, id_of(old, "f"));
	assert_int_equal(at(put, "f")->nlink, 2);
	assert_int_equal(id_of(put, "A/f"), id_of(m, "f"));
	assert_int_equal(at(put, "g")->nlink, 1);		/* not of those */
	model_put(put);
	put = model_snapshot(old);
	assert_non_null(model_put_ahead(put, m, id_of(m, ""), NULL));	/* the new f was never synced */
	model_put(put);
	apply(m, SIM_UNLINK, "f", NULL, 0, 0, 0);
	apply(m, SIM_UNLINK, "A/f", NULL, 0, 0, 0);
	put = model_snapshot(old);
	assert_null(model_put_ahead(put, m, id_of(m, ""), NULL));
	assert_true(model_same_dir(put, m, id_of(m, "")));
	model_put(put);
	apply(m, SIM_RENAME, "A", "g", 0, 0, 0);
	put = model_snapshot(old);
	assert_non_null(model_put_ahead(put, m, id_of(m, ""), NULL));	/* a directory */
	model_put(put);
	model_put(old);
	model_put(m);
}

/* Who has lost a name and got it again has what he had by then; and what one base has otherwise is said on the other, too. */
static void test_model_names_got_again(void **state)
{
	struct m_state *m = model_new(0755, 1), *old, *newer, *put, *bases[2];
	struct m_closure closure;

	apply(m, SIM_MKDIR, "A", NULL, 0, 0, 0);
	apply(m, SIM_CREATE, "A/f", NULL, 0, 0, 0);
	old = model_snapshot(m);
	apply(m, SIM_WRITE, "A/f", NULL, 0, 10, 1);
	put = model_snapshot(old);
	assert_null(model_put_ahead(put, m, id_of(m, "A"), NULL));
	assert_int_equal(at(put, "A/f")->size, 0);
	model_put(put);
	apply(m, SIM_RENAME, "A/f", "f", 0, 0, 0);
	apply(m, SIM_RENAME, "f", "A/f", 0, 0, 0);
	newer = model_snapshot(m);
	put = model_snapshot(old);
	assert_null(model_put_ahead(put, m, id_of(m, "A"), NULL));
	assert_int_equal(at(put, "A/f")->size, 10);
	model_put(put);

	apply(m, SIM_WRITE, "A/f", NULL, 0, 20, 1);
	put = model_snapshot(newer);
	assert_null(model_put_ahead(put, m, id_of(m, "A"), NULL));
	assert_int_equal(at(put, "A/f")->size, 10);
	model_put(put);
	bases[0] = old;
	bases[1] = newer;
	model_find_closure(bases, 2, m, id_of(m, "A"), &closure);
	assert_int_equal(closure.count, 1);
	put = model_snapshot(newer);
	assert_null(model_put_ahead(put, m, id_of(m, "A"), &closure));
	assert_int_equal(at(put, "A/f")->size, 20);
	model_put(put);
	model_put(newer);
	model_put(old);
	model_put(m);
}

static void test_model_open_files_live_on(void **state)
{
	struct m_state *m = model_new(0755, 1);

	apply(m, SIM_CREATE, "f", NULL, 0, 0, 0);
	assert_int_equal(apply(m, SIM_OPEN, "f", NULL, 0, 0, 1), 0);
	assert_int_equal(apply(m, SIM_UNLINK, "f", NULL, 0, 0, 0), 0);
	assert_int_equal(apply(m, SIM_WRITE, "@1", NULL, 0, 10, 0), 0);
	assert_int_equal(at(m, "@1")->size, 10);
	assert_int_equal(apply(m, SIM_LINK, "@1", "g", 0, 0, 0), -ENOENT);
	model_forget_open(m);
	assert_null(m->inodes[1]);
	model_put(m);
}

static void test_model_holes(void **state)
{
	struct m_state *m = model_new(0755, 1);
	struct sim_op punch = { .kind = SIM_FALLOCATE, .a = "f", .offset = 20, .len = 10,
				.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE };

	apply(m, SIM_CREATE, "f", NULL, 0, 0, 0);
	apply(m, SIM_WRITE, "f", NULL, 0, 100, 0);
	model_apply(m, &punch, 6);
	assert_int_equal(at(m, "f")->extent_count, 2);
	assert_int_equal(at(m, "f")->extents[1].start, 30);
	apply(m, SIM_TRUNCATE, "f", NULL, 0, 25, 0);
	apply(m, SIM_TRUNCATE, "f", NULL, 0, 80, 0);
	assert_int_equal(at(m, "f")->extent_count, 1);
	assert_int_equal(at(m, "f")->extents[0].end, 20);
	assert_int_equal(at(m, "f")->size, 80);
	model_put(m);
}

static void test_patterns(void **state)
{
	u8 data[100];

	pattern_fill(data, 7, 3, sizeof(data));
	assert_int_equal(pattern_compare(data, 7, 3, sizeof(data)), sizeof(data));
	assert_int_equal(pattern_compare(data + 10, 7, 13, 60), 60);
	data[41] ^= 1;
	assert_int_equal(pattern_compare(data, 7, 3, sizeof(data)), 41);
	memset(data, 0, sizeof(data));
	assert_int_equal(zero_compare(data, sizeof(data)), sizeof(data));
	data[99] = 1;
	assert_int_equal(zero_compare(data, sizeof(data)), 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prefix_has_the_first_writes),
		cmocka_unit_test(test_only_unflushed_writes_are_lost),
		cmocka_unit_test(test_flush_counts_at_its_moment),
		cmocka_unit_test(test_fua_is_durable_alone),
		cmocka_unit_test(test_torn_write_keeps_sectors_whole),
		cmocka_unit_test(test_a_flush_does_not_cover_what_is_in_flight),
		cmocka_unit_test(test_bytes_must_not_change_in_flight),
		cmocka_unit_test(test_a_large_disk_with_little_on_it),
		cmocka_unit_test(test_canaries_lose_writes),
		cmocka_unit_test(test_a_canary_leaves_out_a_flush),
		cmocka_unit_test(test_the_nth_call_fails),
		cmocka_unit_test(test_model_names),
		cmocka_unit_test(test_model_keeps_snapshots),
		cmocka_unit_test(test_model_puts_an_inode_ahead),
		cmocka_unit_test(test_model_puts_names_ahead),
		cmocka_unit_test(test_model_names_got_again),
		cmocka_unit_test(test_model_open_files_live_on),
		cmocka_unit_test(test_model_holes),
		cmocka_unit_test(test_patterns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
