/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How much a delta may hold follows what the device writes in a second.  Devices are modelled: what passes is not time,
 * but bytes at so many a second.
 */
#include <pthread.h>
#include <unistd.h>
#include "support_lib.h"
#include "user/env/clock.h"
#include "user/lib/lib.h"
#include "core/open.h"

#define BLOCK	4096u
#define MIB	(1ull << 20)
#define SECOND	NSEC_PER_SEC

/* ---- the rule alone ---- */

struct model {
	struct volume *vol;
	u64 bandwidth, fixed_ns;	/* of the device */
};

static void model_make(struct model *model, u64 bandwidth, u64 fixed_ns)
{
	*model = (struct model){ .vol = calloc(1, sizeof(struct volume)), .bandwidth = bandwidth, .fixed_ns = fixed_ns };
	mutex_init(&model->vol->delta.commit_mutex);
	mutex_lock(&model->vol->delta.commit_mutex);	/* who learns is the back end */
	model->vol->opts.delta_ms = 1000;
	volume_set_dirty_bytes(&model->vol->opts, 64 * MIB, 0);
	pace_update(model->vol);
}

static u64 limit(struct model *model)
{
	assert_true(model->vol->pace.commit_bytes <= model->vol->pace.limit_bytes);
	assert_true(model->vol->pace.limit_bytes >= (model->vol->pace.whole_ns ? PACE_SYNC_MIN_BYTES : PACE_MIN_BYTES));
	assert_true(model->vol->pace.commit_bytes <= 64 * MIB);
	return model->vol->pace.limit_bytes;
}

static u64 commit_ns(struct model *model, u64 bytes)
{
	return model->fixed_ns + bytes * SECOND / model->bandwidth;
}

static void commit(struct model *model, u64 bytes)
{
	pace_learn(model->vol, bytes, commit_ns(model, bytes), true);
}

/* Writers who outrun the device, for so much time of it: each delta is as large as it may be. */
static void stream(struct model *model, u64 seconds)
{
	u64 ns = 0, bytes;

	while (ns < seconds * SECOND) {
		bytes = limit(model);
		commit(model, bytes);
		ns += commit_ns(model, bytes);
	}
}

static void assert_near(u64 value, u64 expected)
{
	if (value < expected - expected / 5 || value > expected + expected / 5)
		fail_msg("%llu instead of %llu", (unsigned long long)value, (unsigned long long)expected);
}

static void model_free(struct model *model)
{
	free(model->vol);
}

static void test_slow_devices(void **state)
{
	static const u64 rates[] = { 5 * MIB, 10 * MIB, 20 * MIB, 100 * MIB, 300 * MIB };
	struct model model;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(rates); i++) {
		model_make(&model, rates[i], 20000000);
		assert_true(limit(&model) <= 2 * PACE_FIRST_BYTES);		/* nothing is known yet */
		commit(&model, BLOCK);
		commit(&model, limit(&model));
		assert_near(limit(&model), rates[i]);		/* and after one commit it is */
		stream(&model, 10);
		assert_near(limit(&model), rates[i]);
		assert_int_equal(model.vol->pace.change_bytes, PACE_CHANGE_BYTES);
		model_free(&model);
	}
	/* One that needs ages still gets something. */
	model_make(&model, 100000, 0);
	stream(&model, 100);
	assert_int_equal(limit(&model), PACE_MIN_BYTES);
	model_free(&model);
}

/* It is the options that count, to the byte. */
static void test_fast_devices(void **state)
{
	static const u64 rates[] = { 600 * MIB, 3000 * MIB, 20000 * MIB, 100000000 * MIB };
	struct model model;
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(rates); i++) {
		model_make(&model, rates[i], 1000);
		commit(&model, 8 * MIB);
		for (n = 0; n < 100000; n++)
			commit(&model, limit(&model));
		assert_int_equal(limit(&model), 512 * MIB);
		assert_int_equal(model.vol->pace.commit_bytes, 64 * MIB);
		assert_int_equal(model.vol->pace.change_bytes, 0);
		model_free(&model);
	}
}

static void test_changing_speed(void **state)
{
	struct model model;

	model_make(&model, 3000 * MIB, 1000);
	stream(&model, 5);
	assert_int_equal(limit(&model), 512 * MIB);
	model.bandwidth = 10 * MIB;		/* its cache is full */
	commit(&model, limit(&model));		/* this one takes what it takes */
	assert_near(limit(&model), 10 * MIB);
	model.bandwidth = 200 * MIB;
	stream(&model, 10);
	assert_near(limit(&model), 200 * MIB);
	model_free(&model);
}

/* What fsyncs of a few blocks, each with its flush, write in a second says nothing of the bandwidth. */
static void test_small_commits(void **state)
{
	struct model model;
	u32 i;

	model_make(&model, 100 * MIB, 50000000);
	stream(&model, 5);
	for (i = 0; i < 5000; i++)
		commit(&model, (1 + i % 16) * BLOCK);
	assert_near(limit(&model), 100 * MIB);
	for (i = 0; i < 500; i++) {		/* of larger ones a part is still the flush */
		commit(&model, BLOCK);
		commit(&model, 4 * MIB);
	}
	assert_near(limit(&model), 100 * MIB);
	stream(&model, 5);
	assert_near(limit(&model), 100 * MIB);
	model_free(&model);
}

/* A flush that takes a second must not leave deltas so small that nothing but flushes is done. */
static void test_slow_flush(void **state)
{
	struct model model;

	model_make(&model, 50 * MIB, SECOND);
	commit(&model, 2 * BLOCK);
	stream(&model, 30);
	assert_near(limit(&model), 50 * MIB);
	model_free(&model);
}

/* While fsyncs wait a delta holds what is committed in 20 ms, CPU time included; then 100 ms; and soon after, a second's worth. */
static void test_fsyncs(void **state)
{
	struct model model;
	u32 i;

	model_make(&model, 3000 * MIB, 0);
	stream(&model, 5);
	pace_sync(model.vol, true);
	assert_int_equal(limit(&model), 512 * MIB);		/* what commits take is not known */
	for (i = 0; i < 100; i++)
		pace_learn_load(model.vol, 10 * MIB, SECOND / 10);
	pace_learn_load(model.vol, BLOCK, SECOND);		/* too small to tell anything */
	assert_near(limit(&model), 2 * MIB);
	assert_int_equal(model.vol->pace.change_bytes, PACE_CHANGE_BYTES);
	pace_learn_load(model.vol, 10 * MIB, 3 * SECOND);	/* now it is slow: never less than this, though */
	assert_int_equal(limit(&model), PACE_SYNC_MIN_BYTES);
	assert_true(model.vol->pace.commit_bytes < PACE_SYNC_MIN_BYTES);
	env_pass_time(6 * SECOND);
	pace_learn_load(model.vol, BLOCK, SECOND);
	assert_int_equal(limit(&model), 512 * MIB);
	pace_sync(model.vol, true);
	assert_int_equal(limit(&model), PACE_SYNC_MIN_BYTES);
	model_free(&model);
	/* Who goes ahead of the delta does not wait for it.  Where one had to, the next one may have to. */
	model_make(&model, 3000 * MIB, 0);
	stream(&model, 5);
	pace_sync(model.vol, false);
	for (i = 0; i < 100; i++)
		pace_learn_load(model.vol, 10 * MIB, SECOND / 10);
	assert_int_equal(limit(&model), 512 * MIB);
	pace_sync(model.vol, true);
	assert_near(limit(&model), 2 * MIB);
	env_pass_time(3 * SECOND);
	pace_sync(model.vol, false);
	pace_learn_load(model.vol, 10 * MIB, SECOND / 10);
	assert_near(limit(&model), 10 * MIB);
	env_pass_time(3 * SECOND);
	pace_sync(model.vol, false);
	pace_learn_load(model.vol, 10 * MIB, SECOND / 10);
	assert_int_equal(limit(&model), 512 * MIB);
	model_free(&model);
	/* Where a flush alone takes 100 ms, deltas of 20 would be nothing but flushes. */
	model_make(&model, 20 * MIB, SECOND / 10);
	commit(&model, BLOCK);
	stream(&model, 5);
	for (i = 0; i < 100; i++)
		pace_learn_load(model.vol, 10 * MIB, commit_ns(&model, 10 * MIB));
	pace_sync(model.vol, true);
	assert_near(limit(&model), 8 * MIB);
	model_free(&model);
}

static void write_bytes(struct tux3_node *node, u32 bytes)
{
	char *data = calloc(1, bytes);

	assert_int_equal(tux3_write(node, data, bytes, 0), bytes);
	free(data);
}

/*
 * Which fsyncs are taken for such that wait for all of a delta: not those whose own file is most of it.  One of a large file that
 * nobody else is beside waits for nobody, so nothing is kept small for it.
 */
static void test_who_waits_for_all(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node, *other;
	struct pace *pace;

	bed_make(&bed, 64u << 20, BLOCK);
	pace = &tux3_core(bed.volume)->pace;
	node = bed_file(&bed, "file");
	other = bed_file(&bed, "other");
	assert_ok(tux3_fsync(node, false));		/* it makes the intent area, and nothing waits */
	assert_true(pace->synced_ns && !pace->whole_ns);
	write_bytes(node, 200 << 10);
	write_bytes(other, 100 << 10);
	assert_ok(tux3_fsync(node, false));
	assert_false(pace->whole_ns);
	write_bytes(other, 8 << 20);
	assert_ok(tux3_fsync(node, false));		/* it has not changed */
	assert_false(pace->whole_ns);
	assert_ok(tux3_fallocate(node, 0, 0, 4 << 20));	/* and so it cannot go ahead */
	assert_ok(tux3_fsync(node, false));
	assert_true(pace->whole_ns);
	pace->whole_ns = pace->synced_ns = 0;
	write_bytes(node, 8 << 20);
	write_bytes(other, 7 << 20);
	assert_ok(tux3_fsync(node, false));
	assert_true(!pace->synced_ns && !pace->whole_ns);
	write_bytes(node, 8 << 20);
	write_bytes(other, 9 << 20);
	assert_ok(tux3_fsync(node, false));
	assert_true(pace->synced_ns && pace->whole_ns);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_free(&bed);
}

/* A small commit in which the disk was suspended for a minute; none comes after it, for there is a stream. */
static void test_suspended(void **state)
{
	struct model model;
	u32 i;

	model_make(&model, 100 * MIB, SECOND / 100);
	commit(&model, BLOCK);
	stream(&model, 5);
	pace_learn(model.vol, BLOCK, 60 * SECOND, true);
	for (i = 0; i < 100; i++)
		pace_learn_load(model.vol, 10 * MIB, commit_ns(&model, 10 * MIB));
	pace_sync(model.vol, true);
	assert_in_range(limit(&model), PACE_SYNC_MIN_BYTES, 10 * MIB);		/* 80 ms at most, not 3 s */
	/* If all of them take long, that is what it is now. */
	model.fixed_ns = SECOND;
	for (i = 0; i < 20; i++)
		commit(&model, BLOCK);
	assert_in_range(model.vol->pace.base_ns, SECOND / 2, SECOND + SECOND / 10);
	model_free(&model);
}

static void test_options(void **state)
{
	struct model model;

	model_make(&model, 10 * MIB, 0);
	stream(&model, 5);
	model.vol->opts.delta_ms = 3000;
	pace_update(model.vol);
	assert_near(limit(&model), 30 * MIB);
	model.vol->opts.delta_ms = U32_MAX;
	pace_update(model.vol);
	assert_int_equal(limit(&model), 512 * MIB);
	model.vol->opts.delta_ms = 1000;
	volume_set_dirty_bytes(&model.vol->opts, MIB, 0);	/* less than the device could do */
	pace_update(model.vol);
	assert_int_equal(model.vol->pace.commit_bytes, MIB);
	assert_int_equal(model.vol->pace.limit_bytes, 8 * MIB);
	model.vol->opts.manual = true;
	volume_set_dirty_bytes(&model.vol->opts, 64 * MIB, 0);
	pace_update(model.vol);
	assert_int_equal(model.vol->pace.commit_bytes, 64 * MIB);
	model_free(&model);
}

/* ---- time in flight ---- */

static void test_busy_time(void **state)
{
	struct io_wait *first, *second;
	struct io_window window;
	u32 i;

	io_window_init(&window);
	assert_int_equal(io_busy_ns(&window.busy), 0);
	for (i = 0; i < 3; i++) {		/* two writes that overlap, in either half, then nothing to do for long */
		first = io_window_wait(&window);
		io_wait_begin(first);
		env_pass_time(2 * SECOND);
		if (i)
			assert_int_equal(io_window_turn(&window), 0);
		second = io_window_wait(&window);
		io_wait_begin(second);
		env_pass_time(SECOND);
		io_wait_end(i == 1 ? first : second, 0);
		env_pass_time(SECOND);
		io_wait_end(i == 1 ? second : first, 0);
		env_pass_time(1000 * SECOND);
	}
	assert_int_equal(io_window_finish(&window), 0);
	assert_near(io_busy_ns(&window.busy), 12 * SECOND);
}

/* ---- a volume on a slow device ---- */

static const struct tux3_device_ops *memory_ops;
static u64 rate;

static void slow_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	u64 bytes = 0;
	u32 i;

	for (i = 0; i < vecs; i++)
		bytes += vec[i].iov_len;
	io_wait_begin(wait);
	env_pass_time(bytes * SECOND / READ_ONCE(rate));
	memory_ops->write(dev, addr, vec, vecs, flags, wait);
	io_wait_end(wait, 0);
}

static u64 counter(struct volume *vol, enum tux3_counter which)
{
	return (s64)delta_counter(vol, which);
}

/*
 * Write many times what a delta may hold.  At no time has the front delta more than that, an eighth, which each task may add when
 * it is full, the last write, and what CPUs keep.
 */
static void write_much(struct bed *bed, struct tux3_node *node, u64 mib)
{
	struct volume *vol = tux3_core(bed->volume);
	u8 *data = calloc(1, MIB);
	u64 i;

	for (i = 0; i < mib; i++) {
		s64 kept = (s64)num_possible_cpus() * READ_ONCE(vol->delta.bytes_batch), dirty;

		assert_int_equal(tux3_write(node, data, MIB, i % 40 * MIB), MIB);
		dirty = delta_dirty_bytes_sum(&vol->delta, READ_ONCE(vol->delta.front) & 1);
		assert_true(dirty <= (s64)(2 * PACE_FIRST_BYTES * 9 / 8 + MIB) + kept);
	}
	free(data);
}

static struct volume *slow_make(struct bed *bed, u64 bytes_per_second)
{
	static struct tux3_device_ops slow_ops;

	bed_make(bed, 96 << 20, BLOCK);
	bed_close(bed);
	memory_ops = bed->dev->ops;
	slow_ops = *memory_ops;
	slow_ops.write = slow_write;
	WRITE_ONCE(rate, bytes_per_second);
	bed->dev->ops = &slow_ops;
	bed_open(bed);
	return tux3_core(bed->volume);
}

static void slow_free(struct bed *bed)
{
	bed_close(bed);
	bed->dev->ops = memory_ops;
	bed_open(bed);
	bed_free(bed);
}

static bool stopped;

#define SLOWER 1000u	/* time that really passes, on a busy machine, is nothing beside what is reckoned */

static void test_commits_converge(void **state)
{
	struct bed bed = { .opts = { .age_ms = 24 * 3600 * 1000, .delta_ms = 1000 * SLOWER } };
	u64 deltas, blocks, mean;
	struct volume *vol = slow_make(&bed, 8 * MIB / SLOWER);
	struct tux3_node *node;

	node = bed_file(&bed, "/f");
	write_much(&bed, node, 64);
	assert_ok(tux3_sync(bed.volume));		/* a commit is over, whoever was faster */
	assert_near(READ_ONCE(vol->pace.bandwidth), rate);
	assert_near(READ_ONCE(vol->pace.limit_bytes), 8 * MIB);

	deltas = counter(vol, TUX3_COUNT_DELTAS);
	blocks = counter(vol, TUX3_COUNT_DATA_BLOCKS);
	write_much(&bed, node, 200);
	deltas = counter(vol, TUX3_COUNT_DELTAS) - deltas;
	mean = (counter(vol, TUX3_COUNT_DATA_BLOCKS) - blocks) * BLOCK / deltas;
	assert_true(mean <= 10 * MIB && mean >= PACE_MIN_BYTES / 2);
	assert_near(READ_ONCE(vol->pace.bandwidth), rate);

	WRITE_ONCE(rate, 2 * MIB / SLOWER);		/* it becomes slow: what a delta may hold follows */
	write_much(&bed, node, 64);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(READ_ONCE(vol->pace.limit_bytes), PACE_MIN_BYTES);
	tux3_node_put(node, 1);
	slow_free(&bed);
}

/* Write beside fsyncs of another file, which do not go ahead: whoever waits for one waits for little. */
static void test_fsyncs_beside_a_stream(void **state)
{
	struct bed bed = { .opts = { .age_ms = 24 * 3600 * 1000, .delta_ms = 1000, .fsync = TUX3_FSYNC_FULL } };
	struct volume *vol = slow_make(&bed, 8 * MIB);
	struct tux3_node *stream = bed_file(&bed, "/f"), *small = bed_file(&bed, "/g");
	u8 *data = calloc(1, MIB);
	u32 small_deltas = 0;
	u64 i;

	write_much(&bed, stream, 64);
	assert_ok(tux3_sync(bed.volume));
	assert_true(READ_ONCE(vol->pace.load_rate) > 0);
	for (i = 0; i < 128; i++) {
		assert_int_equal(tux3_write(stream, data, MIB / 2, i % 40 * MIB), MIB / 2);
		if (i % 8)
			continue;
		assert_int_equal(tux3_write(small, data, BLOCK, 0), BLOCK);
		assert_ok(tux3_fsync(small, 0));
		small_deltas += READ_ONCE(vol->pace.limit_bytes) <= MIB;
	}
	/* Not all: this program may have had to wait for its turn for longer than fsyncs are remembered. */
	assert_true(small_deltas >= 8);
	env_pass_time(6 * SECOND);
	write_much(&bed, stream, 64);
	assert_ok(tux3_sync(bed.volume));
	assert_near(READ_ONCE(vol->pace.limit_bytes), 8 * MIB);
	free(data);
	tux3_node_put(stream, 1);
	tux3_node_put(small, 1);
	slow_free(&bed);
}

static void *stream_on(void *node)
{
	u8 *data = calloc(1, MIB);
	u64 i;

	for (i = 0; !READ_ONCE(stopped); i++)
		assert_int_equal(tux3_write(node, data, MIB, i % 40 * MIB), MIB);
	free(data);
	return NULL;
}

/*
 * Beside a stream somebody writes files that are too large to pass, and syncs them ahead.  He waits for no commit in fsync, but
 * for one before he may write the next file: so deltas become small, as they do for who waits in fsync.
 */
static void test_writes_between_fsyncs(void **state)
{
	struct bed bed = { .opts = { .age_ms = 24 * 3600 * 1000, .delta_ms = 1000 } };
	struct volume *vol = slow_make(&bed, 8 * MIB);
	struct tux3_node *stream = bed_file(&bed, "/f"), *file = bed_file(&bed, "/g");
	u8 *data = calloc(1, MIB);
	u32 small_deltas = 0, i;
	pthread_t thread;

	write_much(&bed, stream, 64);
	assert_ok(tux3_sync(bed.volume));
	stopped = false;
	assert_int_equal(pthread_create(&thread, NULL, stream_on, stream), 0);
	for (i = 0; i < 100; i++) {
		assert_int_equal(tux3_write(file, data, MIB / 8, 0), MIB / 8);
		assert_ok(tux3_fsync(file, 0));
		small_deltas += READ_ONCE(vol->pace.limit_bytes) <= 2 * MIB;
	}
	WRITE_ONCE(stopped, true);
	pthread_join(thread, NULL);
	assert_true(small_deltas >= 20);
	free(data);
	tux3_node_put(stream, 1);
	tux3_node_put(file, 1);
	slow_free(&bed);
}

static struct {
	struct bed *bed;
	atomic_t made;
} makes;

/* More than may be made at once, and fsyncs that do not wait in between. */
static void *make_some(void *unused)
{
	struct tux3_node *node;
	char name[32];
	u32 i;

	for (i = 0; i < 2 * DELTA_PASSES; i++) {
		snprintf(name, sizeof(name), "some%u", i);
		assert_ok(tux3_mknod(makes.bed->root, NULL, name, S_IFREG | 0644, 0, 0, &node));
		tux3_node_put(node, 1);
		if (i % 8 == 7)
			delta_pass_again(makes.bed->volume->vol);
		atomic_inc(&makes.made);
	}
	return NULL;
}

/* The front delta holds more than it may now, and no commit comes until delta_unlock(). */
static void fill_delta(struct bed *bed, struct tux3_node *stream)
{
	struct volume *vol = tux3_core(bed->volume);
	u32 i;

	write_much(bed, stream, 64);
	assert_ok(tux3_sync(bed->volume));
	delta_lock(vol);
	for (i = 0; i < 64 && delta_dirty_bytes_sum(&vol->delta, READ_ONCE(vol->delta.front) & 1) < 3 * (s64)MIB; i++)
		write_much(bed, stream, 1);
	pace_sync(vol, true);
	assert_true(READ_ONCE(vol->pace.limit_bytes) < 2 * MIB);
}

#define SAVER_PIECE	(64u << 10)

struct saver {
	struct bed *bed;
	bool syncs;
	atomic_t written;	/* pieces */
};

/* 4 MiB, in pieces. */
static void *save(void *arg)
{
	struct saver *saver = arg;
	struct tux3_node *node = bed_file(saver->bed, saver->syncs ? "/synced" : "/not synced");
	u8 *data = calloc(1, SAVER_PIECE);
	u32 i;

	if (saver->syncs)
		delta_note_fsync(saver->bed->volume->vol);
	for (i = 0; i < 4 * MIB / SAVER_PIECE; i++) {
		assert_int_equal(tux3_write(node, data, SAVER_PIECE, (u64)i * SAVER_PIECE), SAVER_PIECE);
		atomic_inc(&saver->written);
	}
	free(data);
	tux3_node_put(node, 1);
	return NULL;
}

/* The delta is full.  Who calls fsync may add a document to it; of who does not, and may be a stream, an eighth of the limit. */
static void test_who_saves_need_not_wait(void **state)
{
	struct bed bed = { .opts = { .age_ms = 24 * 3600 * 1000, .delta_ms = 1000 } };
	struct volume *vol = slow_make(&bed, 8 * MIB);
	struct tux3_node *stream = bed_file(&bed, "/f");
	struct saver savers[2] = { { .bed = &bed }, { .bed = &bed, .syncs = true } };
	pthread_t thread[2];
	u32 i;

	fill_delta(&bed, stream);
	/* The one who does not comes first: all that tasks may add together the other one may add alone. */
	assert_int_equal(pthread_create(&thread[0], NULL, save, &savers[0]), 0);
	for (i = 0; i < 2000 && !atomic_read(&savers[0].written); i++)
		usleep(5000);
	assert_int_equal(pthread_create(&thread[1], NULL, save, &savers[1]), 0);
	for (i = 0; i < 2000 && atomic_read(&savers[1].written) < (int)(4 * MIB / SAVER_PIECE); i++)
		usleep(5000);
	usleep(100000);
	i = atomic_read(&savers[0].written);
	delta_unlock(vol);
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	assert_in_range(i, 1, 2 * MIB / 8 / SAVER_PIECE + 1);
	tux3_node_put(stream, 1);
	slow_free(&bed);
}

#define STREAMS	(4u << DELTA_PASS_BITS)	/* two of them have the same hash */
#define STREAM_PIECES (4 * MIB / SAVER_PIECE)

static struct {
	struct bed *bed;
	atomic_t hash[STREAMS], turn, written, over;	/* whose turn it is to write a piece: 1 and up; pieces */
} streams;

/* With one other, in turn: each until it has to wait. */
static void *stream_in_turn(void *arg)
{
	u32 i = (uintptr_t)arg;
	u8 *data = calloc(1, SAVER_PIECE);
	struct tux3_node *node;
	char path[32];
	int turn;

	atomic_set(&streams.hash[i], 1 + hash_64((uintptr_t)current, DELTA_PASS_BITS));
	snprintf(path, sizeof(path), "/stream%u", i);
	while ((turn = atomic_read(&streams.turn)) != (int)i + 1 && !atomic_read(&streams.over))
		usleep(1000);
	if (turn == (int)i + 1) {
		node = bed_file(streams.bed, path);
		for (i = 0; i < STREAM_PIECES; i++) {
			while (atomic_read(&streams.turn) != turn && !atomic_read(&streams.over))
				usleep(1000);
			assert_int_equal(tux3_write(node, data, SAVER_PIECE, (u64)i * SAVER_PIECE), SAVER_PIECE);
			atomic_inc(&streams.written);
			if (!atomic_read(&streams.over))
				atomic_set(&streams.turn, 0);
		}
		tux3_node_put(node, 1);
	}
	free(data);
	return NULL;
}

static u32 wait_for_hash(u32 i)
{
	while (!atomic_read(&streams.hash[i]))
		usleep(1000);
	return atomic_read(&streams.hash[i]);
}

/* Two streams of the same hash: what each may add to the full delta is what one may. */
static void test_streams_of_the_same_hash(void **state)
{
	struct bed bed = { .opts = { .age_ms = 24 * 3600 * 1000, .delta_ms = 1000 } };
	struct volume *vol = slow_make(&bed, 8 * MIB);
	struct tux3_node *stream = bed_file(&bed, "/f");
	u32 first = 0, second = 0, count, piece, i;
	u8 *data = calloc(1, MIB);
	pthread_t thread[STREAMS];
	s64 limit;

	streams.bed = &bed;
	for (count = 0; count < STREAMS && first == second; count++) {
		assert_int_equal(pthread_create(&thread[count], NULL, stream_in_turn, (void *)(uintptr_t)count), 0);
		for (i = 0; i < count; i++)
			if (wait_for_hash(i) == wait_for_hash(count)) {
				first = i;
				second = count;
			}
	}
	assert_int_not_equal(first, second);
	write_much(&bed, stream, 64);
	assert_ok(tux3_sync(bed.volume));
	delta_lock(vol);
	limit = READ_ONCE(vol->pace.limit_bytes);
	for (i = 0; i < 64 && delta_dirty_bytes_sum(&vol->delta, READ_ONCE(vol->delta.front) & 1) < limit; i++)
		assert_int_equal(tux3_write(stream, data, MIB, i * MIB), MIB);
	/* Who does not hand on the turn waits for the commit. */
	for (piece = 0; piece < 2 * STREAM_PIECES; piece++) {
		atomic_set(&streams.turn, 1 + (piece % 2 ? second : first));
		for (i = 0; i < 200 && atomic_read(&streams.turn); i++)
			usleep(5000);
		if (atomic_read(&streams.turn))
			break;
	}
	piece = atomic_read(&streams.written);
	atomic_set(&streams.over, 1);
	delta_unlock(vol);
	for (i = 0; i < count; i++)
		pthread_join(thread[i], NULL);
	free(data);
	assert_in_range(piece, 2, 2 * (limit / 8 / SAVER_PIECE + 1));
	tux3_node_put(stream, 1);
	slow_free(&bed);
}

/*
 * With the first fsync the limit sinks below what the front delta holds.  Who makes small changes need not wait for
 * that, and as long as his fsyncs do not wait for it he may go on.
 */
static void test_the_limit_sinks(void **state)
{
	struct bed bed = { .opts = { .age_ms = 24 * 3600 * 1000, .delta_ms = 1000 } };
	struct volume *vol = slow_make(&bed, 8 * MIB);
	struct tux3_node *stream = bed_file(&bed, "/f");
	pthread_t thread;
	u32 i, made;

	fill_delta(&bed, stream);
	makes.bed = &bed;
	atomic_set(&makes.made, 0);
	assert_int_equal(pthread_create(&thread, NULL, make_some, NULL), 0);
	for (i = 0; i < 2000 && atomic_read(&makes.made) < (int)(2 * DELTA_PASSES); i++)
		usleep(5000);
	made = atomic_read(&makes.made);
	delta_unlock(vol);
	pthread_join(thread, NULL);
	assert_int_equal(made, 2 * DELTA_PASSES);
	tux3_node_put(stream, 1);
	slow_free(&bed);
}

/* What is not data counts too: names alone fill a delta. */
static void test_names_count(void **state)
{
	struct bed bed = { .opts = { .age_ms = 3600 * 1000 } };
	struct volume *vol = slow_make(&bed, MIB);
	s64 most = 0, limit = PACE_MIN_BYTES / PACE_CHANGE_BYTES;
	struct tux3_node *node;
	char name[32];
	u32 i;

	node = bed_file(&bed, "/f");
	write_much(&bed, node, 24);
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(READ_ONCE(vol->pace.limit_bytes), PACE_MIN_BYTES);
	for (i = 0; i < 30000; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_ok(tux3_mknod(bed.root, NULL, name, S_IFREG | 0644, 0, 0, &node));
		tux3_node_put(node, 1);
		most = max(most, delta_changes_sum(&vol->delta, READ_ONCE(vol->delta.front) & 1));
	}
	/*
	 * A file is two changes, and a task that meets the limit may pass it by a few files: DELTA_PASSES.  And a CPU
	 * that we were moved from may keep some for itself, which only the sum shows.
	 */
	limit += 2 * (s64)DELTA_PASSES + 8 + (s64)num_possible_cpus() * READ_ONCE(vol->delta.changes_batch);
	assert_true(most > 1000 && most <= limit);
	slow_free(&bed);
}

/* As a remount does. */
static void test_options_of_an_open_volume_change(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	struct tux3_options options = { .dirty_bytes = MIB };
	struct tux3_node *node;
	struct volume *vol;
	u64 i;

	bed_make(&bed, 64 << 20, BLOCK);
	vol = tux3_core(bed.volume);
	node = bed_file(&bed, "/f");
	tux3_change_options(bed.volume, &options);
	for (i = 0; i < 16 * MIB; i += BLOCK) {
		assert_int_equal(tux3_write(node, "data", 4, i), 4);
		assert_true(delta_dirty_bytes_sum(&vol->delta, vol->delta.front & 1) <= (s64)(MIB + BLOCK));
	}
	options.dirty_bytes = 32 * MIB;
	tux3_change_options(bed.volume, &options);
	assert_int_equal(vol->pace.commit_bytes, 32 * MIB);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void *change_options(void *arg)
{
	struct tux3_options options = {};
	u32 i;

	for (i = 0; i < 300; i++) {
		options.dirty_bytes = (1 + i % 8) * MIB;
		options.age_ms = 1 + i % 50;
		tux3_change_options(arg, &options);
		usleep(50);
	}
	return NULL;
}

/* Nothing here but that a race detector sees it. */
static void test_options_change_beside_writers(void **state)
{
	static const u8 value[BLOCK];
	struct bed bed = {};
	struct tux3_node *node;
	pthread_t thread;
	u64 i;

	bed_make(&bed, 64 << 20, BLOCK);
	node = bed_file(&bed, "/f");
	assert_int_equal(pthread_create(&thread, NULL, change_options, bed.volume), 0);
	for (i = 0; i < 3000; i++)
		assert_int_equal(tux3_write(node, "data", 4, i % 4096 * BLOCK), 4);
	for (i = 0; i < 20; i++)
		assert_ok(tux3_setxattr(node, NULL, "user.value", value, sizeof(value), 0));
	assert_int_equal(pthread_join(thread, NULL), 0);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow_devices),
		cmocka_unit_test(test_fast_devices),
		cmocka_unit_test(test_changing_speed),
		cmocka_unit_test(test_small_commits),
		cmocka_unit_test(test_slow_flush),
		cmocka_unit_test(test_fsyncs),
		cmocka_unit_test(test_who_waits_for_all),
		cmocka_unit_test(test_suspended),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_busy_time),
		cmocka_unit_test(test_commits_converge),
		cmocka_unit_test(test_fsyncs_beside_a_stream),
		cmocka_unit_test(test_writes_between_fsyncs),
		cmocka_unit_test(test_who_saves_need_not_wait),
		cmocka_unit_test(test_streams_of_the_same_hash),
		cmocka_unit_test(test_the_limit_sinks),
		cmocka_unit_test(test_names_count),
		cmocka_unit_test(test_options_of_an_open_volume_change),
		cmocka_unit_test(test_options_change_beside_writers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
