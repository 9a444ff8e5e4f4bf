/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * File data in libtux3: whatever is done to a file, and whenever commits come, it reads as a plain array
 * of bytes would, before and after it is opened again.
 */
#include "support_lib.h"
#include "user/lib/lib.h"

#include <fcntl.h>
#include <unistd.h>
#include <linux/stat.h>

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE	0x01
#define FALLOC_FL_PUNCH_HOLE	0x02
#define FALLOC_FL_ZERO_RANGE	0x10
#endif

#define MODEL_MAX (3u << 20)

struct model {
	u8 *bytes;
	u64 size;
};

static void compare(struct tux3_node *node, const struct model *model)
{
	u8 *bytes = malloc(MODEL_MAX + 1);
	struct tux3_stat stat;
	u64 i;

	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.size, model->size);
	assert_int_equal(tux3_read(node, bytes, MODEL_MAX + 1, 0), model->size);
	/* A sanitizer looks at each access of a loop. */
	if (memcmp(bytes, model->bytes, model->size)) {
		for (i = 0; bytes[i] == model->bytes[i]; i++)
			;
		fail_msg("byte %llu is %02x instead of %02x", i, bytes[i], model->bytes[i]);
	}
	free(bytes);
}

static void test_read_write(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char text[32] = {};
	struct tux3_stat stat;

	bed_make(&bed, 64 << 20, 4096);
	node = bed_file(&bed, "/a/b/file");
	assert_int_equal(tux3_write(node, "hello", 5, 0), 5);
	assert_int_equal(tux3_append(node, " world", 6), 6);
	assert_int_equal(tux3_read(node, text, sizeof(text), 0), 11);
	assert_string_equal(text, "hello world");
	assert_int_equal(tux3_read(node, text, sizeof(text), 11), 0);
	assert_int_equal(tux3_read(bed.root, text, 1, 0), -EISDIR);
	assert_ok(tux3_fsync(node, false));
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.size, 11);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_ok(tux3_path(bed.volume, NULL, "/a/b/file", 0, 0, &node));
	memset(text, 0, sizeof(text));
	assert_int_equal(tux3_read(node, text, sizeof(text), 0), 11);
	assert_string_equal(text, "hello world");
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void test_sparse(void **state)
{
	static const u64 at[] = { 0, 1ULL << 20, (1ULL << 40) + 123, (1ULL << 45) - 3, (1ULL << 62) + 5 };
	struct bed bed = {};
	struct tux3_node *node;
	char text[16];
	size_t i;
	int round;

	bed_make(&bed, 64 << 20, 4096);
	node = bed_file(&bed, "/sparse");
	for (i = 0; i < ARRAY_SIZE(at); i++)
		assert_int_equal(tux3_write(node, "twelve bytes", 12, at[i]), 12);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < ARRAY_SIZE(at); i++) {
			u64 next = i + 1 < ARRAY_SIZE(at) ? at[i + 1] & ~4095ULL : 0;
			u64 end = (at[i] + 12 + 4095) & ~4095ULL;

			memset(text, 0, sizeof(text));
			assert_int_equal(tux3_read(node, text, 12, at[i]), 12);
			assert_memory_equal(text, "twelve bytes", 12);
			assert_int_equal(tux3_seek(node, at[i], SEEK_DATA), at[i]);
			if (next && next > end) {
				assert_int_equal(tux3_seek(node, at[i], SEEK_HOLE), end);
				assert_int_equal(tux3_seek(node, end, SEEK_DATA), next);
				assert_int_equal(tux3_read(node, text, 8, end + 4096), 8);
				assert_memory_equal(text, "\0\0\0\0\0\0\0\0", 8);
			}
		}
		assert_int_equal(tux3_seek(node, at[4], SEEK_HOLE), at[4] + 12);
		assert_int_equal(tux3_seek(node, at[4] + 12, SEEK_DATA), -ENXIO);
		assert_int_equal(tux3_write(node, "x", 1, INT64_MAX), -EFBIG);
		tux3_node_put(node, 1);
		bed_reopen(&bed);
		assert_ok(tux3_path(bed.volume, NULL, "/sparse", 0, 0, &node));
	}
	assert_ok(tux3_truncate(node, 1ULL << 41));
	assert_int_equal(tux3_seek(node, (1ULL << 40) + 8192, SEEK_DATA), -ENXIO);
	assert_ok(tux3_truncate(node, 0));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- random operations against an array of bytes ---- */

static void model_write(struct tux3_node *node, struct model *model, u64 *seed, u64 pos, u64 len)
{
	u64 i, bytes;

	len = min(len, MODEL_MAX - pos);
	for (i = 0; i < len; i += sizeof(bytes)) {
		bytes = bed_random(seed) | 0x0101010101010101;	/* none of them is 0 */
		memcpy(model->bytes + pos + i, &bytes, min_t(u64, len - i, sizeof(bytes)));
	}
	if (len)
		model->size = max(model->size, pos + len);
	assert_int_equal(tux3_write(node, model->bytes + pos, len, pos), len);
}

static void model_truncate(struct tux3_node *node, struct model *model, u64 size)
{
	if (size < model->size)
		memset(model->bytes + size, 0, MODEL_MAX - size);
	model->size = size;
	assert_ok(tux3_truncate(node, size));
}

static void model_zero(struct tux3_node *node, struct model *model, int mode, u64 pos, u64 len)
{
	len = min(len, MODEL_MAX - pos);
	if (!len)
		return;
	if (mode & (FALLOC_FL_ZERO_RANGE | FALLOC_FL_PUNCH_HOLE))
		memset(model->bytes + pos, 0, len);
	if (!(mode & FALLOC_FL_KEEP_SIZE))
		model->size = max(model->size, pos + len);
	assert_ok(tux3_fallocate(node, mode, pos, len));
}

/* Sizes from bytes to many blocks, the small and the aligned ones often. */
static u64 random_size(u64 *seed, u64 most)
{
	u64 n = bed_random(seed), size = bed_random(seed);

	switch (n % 4) {
	case 0:
		size %= 600;
		break;
	case 1:
		size %= 20000;
		break;
	case 2:
		size = (size % (most / 4096 + 1)) * 4096;
		break;
	default:
		size %= most;
	}
	return min(size, most);
}

static void random_op(struct tux3_node *node, struct model *model, u64 *seed)
{
	static const int modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	};
	u64 pos = random_size(seed, bed_random(seed) % 3 ? 100000 : MODEL_MAX), n = bed_random(seed) % 16;

	if (n < 8)
		model_write(node, model, seed, pos, random_size(seed, bed_random(seed) % 8 ? 30000 : MODEL_MAX));
	else if (n < 11)
		model_truncate(node, model, pos);
	else
		model_zero(node, model, modes[bed_random(seed) % ARRAY_SIZE(modes)], pos,
			   random_size(seed, 200000) + 1);
}

static void run_model(u64 seed, u32 block_size, bool manual, u64 cache, int ops)
{
	struct bed bed = { .opts = { .manual = manual, .dirty_bytes = 1 << 20, .age_ms = 1 }, .data_cache_bytes = cache };
	struct model model = { .bytes = calloc(1, MODEL_MAX) };
	struct tux3_node *node;
	u64 state = seed;
	int i;

	bed_make(&bed, 256 << 20, block_size);
	node = bed_file(&bed, "/model");
	for (i = 0; i < ops; i++) {
		u64 n = bed_random(&state) % 64;

		random_op(node, &model, &state);
		if (n < 6) {
			assert_ok(tux3_sync(bed.volume));
		} else if (n < 8) {
			tux3_node_put(node, 1);
			bed_reopen(&bed);
			node = bed_file(&bed, "/model");
		} else if (n == 8) {
			assert_ok(tux3_fsync(node, false));
			tux3_node_put(node, 1);
			bed_crash(&bed);
			node = bed_file(&bed, "/model");
		}
		if (n < 20)
			compare(node, &model);
	}
	compare(node, &model);
	tux3_node_put(node, 1);
	bed_free(&bed);
	free(model.bytes);
}

static void test_model(void **state)
{
	u64 seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 1;
	int runs = getenv("RUNS") ? atoi(getenv("RUNS")) : FEWER(3, 1), i;

	for (i = 0; i < runs; i++, seed++) {
		print_message("seed %llu\n", (unsigned long long)seed);
		run_model(seed, 4096, true, 0, 300);
		run_model(seed, 4096, false, 65536, 300);
		run_model(seed, 65536, false, 0, 100);
	}
}

/* ---- private copies: a pair of blocks is always of one delta ---- */

struct pair {
	struct tux3_node *node;
	atomic_t stop;
	u64 written;
};

static const struct tux3_device_ops *memory_ops;

/* The writer gets a turn in the middle of commits, also where it has one CPU together with them. */
static void yielding_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
			   struct io_wait *wait)
{
	usleep(50);
	memory_ops->write(dev, addr, vec, vecs, flags, wait);
}

static void *pair_writer(void *arg)
{
	struct pair *pair = arg;
	u64 *blocks = calloc(2, 4096), n;

	for (n = 1; !atomic_read(&pair->stop); n++) {
		blocks[0] = blocks[4096 / 8] = n;
		assert_int_equal(tux3_write(pair->node, blocks, 8192, 4096 * 7), 8192);
		WRITE_ONCE(pair->written, n);
	}
	free(blocks);
	return NULL;
}

static void test_private_copies(void **state)
{
	struct bed bed = { .opts = { .age_ms = 1 } };
	u64 value[2] = {}, last = 0, copies = 0;
	struct tux3_device_ops yielding_ops;
	struct pair pair = {};
	pthread_t thread;
	int round, i;

	bed_make(&bed, 64 << 20, 4096);
	bed_close(&bed);
	memory_ops = bed.dev->ops;
	yielding_ops = *memory_ops;
	yielding_ops.write = yielding_write;
	bed.dev->ops = &yielding_ops;
	bed_open(&bed);
	for (round = 0; round < 20; round++) {
		pair.node = bed_file(&bed, "/pair");
		atomic_set(&pair.stop, 0);
		pair.written = 0;
		assert_int_equal(pthread_create(&thread, NULL, pair_writer, &pair), 0);
		for (i = 0; i < 20; i++) {
			while (READ_ONCE(pair.written) <= last)
				sched_yield();
			last = READ_ONCE(pair.written);
			assert_ok(tux3_sync(bed.volume));
		}
		atomic_set(&pair.stop, 1);
		pthread_join(thread, NULL);
		copies += delta_counter(tux3_core(bed.volume), TUX3_COUNT_PRIVATE_COPIES);
		bed_crash(&bed);
		pair.node = bed_file(&bed, "/pair");
		assert_int_equal(tux3_read(pair.node, &value[0], 8, 4096 * 7), 8);
		assert_int_equal(tux3_read(pair.node, &value[1], 8, 4096 * 8), 8);
		assert_int_equal(value[0], value[1]);
		assert_true(value[0] >= last);
		last = 0;
		tux3_node_put(pair.node, 1);
	}
	assert_true(copies > 0);
	bed_close(&bed);
	bed.dev->ops = memory_ops;
	bed_open(&bed);
	bed_free(&bed);
}

/* ---- the cache is bounded, and what does not fit is read again ---- */

/* ---- reads beside commits: blocks that get clean and leave the cache right behind a lookup ---- */

#define BESIDE_BLOCKS 320u

/* All of the file while what was written behind its first block, which is not dirty, is committed. */
static void read_until_committed(struct bed *bed, struct tux3_node *node, u64 *bytes, u64 first, u64 round)
{
	struct delta_state *state = &tux3_core(bed->volume)->delta;
	u64 delta = READ_ONCE(state->front), i;
	bool done;

	do {
		done = READ_ONCE(state->committed) >= delta;
		assert_int_equal(tux3_read(node, bytes, (BESIDE_BLOCKS + 1) * 4096, 0), (BESIDE_BLOCKS + 1) * 4096);
		assert_int_equal(bytes[0], first);
		for (i = 1; i <= BESIDE_BLOCKS; i++)
			if (bytes[i * 512] != round)
				fail_msg("block %llu has %llu instead of %llu", i, bytes[i * 512], round);
	} while (!done);
}

/*
 * first: what is in the file's first block, on the disk; or 0, and it is a hole.  Those behind it were the same before they are
 * written.  On one CPU the back end often goes on where a reader gives back the tree's lock, and has committed all when the
 * reader gets the CPU again.
 */
static void read_beside_commit(struct bed *bed, u64 *bytes, u64 first, u64 round)
{
	struct tux3_node *node = bed_file(bed, "/file");
	u64 i;

	if (first) {
		bytes[0] = first;
		assert_int_equal(tux3_write(node, bytes, (BESIDE_BLOCKS + 1) * 4096, 0), (BESIDE_BLOCKS + 1) * 4096);
		assert_ok(tux3_sync(bed->volume));
	}
	for (i = 1; i <= BESIDE_BLOCKS; i++)
		bytes[i * 512] = round;
	assert_int_equal(tux3_write(node, bytes + 512, BESIDE_BLOCKS * 4096, 4096), BESIDE_BLOCKS * 4096);
	read_until_committed(bed, node, bytes, first, round);
	tux3_node_put(node, 1);
	assert_ok(tux3_unlink(bed->root, NULL, "file"));
}

static void test_reads_beside_commits(void **state)
{
	struct bed bed = { .data_cache_bytes = 65536, .opts = { .age_ms = 1 } };
	u64 *bytes = calloc(BESIDE_BLOCKS + 1, 4096), round;
	cpu_set_t one, before;

	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	bed_make(&bed, 64 << 20, 4096);
	for (round = 1; round <= FEWER(200, 40); round++) {
		read_beside_commit(&bed, bytes, 0, round);
		read_beside_commit(&bed, bytes, ~0ULL, round);
	}
	bed_free(&bed);
	free(bytes);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void test_eviction(void **state)
{
	struct bed bed = { .data_cache_bytes = 1 << 20 };
	u8 *bytes = malloc(256 << 10);
	struct tux3_node *node;
	int file, round, i;
	char name[16];

	bed_make(&bed, 128 << 20, 4096);
	for (round = 0; round < 3; round++) {
		for (file = 0; file < 100; file++) {
			snprintf(name, sizeof(name), "/f%d", file);
			node = bed_file(&bed, name);
			if (round) {
				assert_int_equal(tux3_read(node, bytes, 256 << 10, 0), 256 << 10);
				for (i = 0; i < 256 << 10; i += 1000)
					assert_int_equal(bytes[i], (u8)(file + i));
			}
			for (i = 0; i < 256 << 10; i++)
				bytes[i] = file + i;
			assert_int_equal(tux3_write(node, bytes, 256 << 10, 0), 256 << 10);
			tux3_node_put(node, 1);
		}
		assert_ok(tux3_sync(bed.volume));
	}
	free(bytes);
	bed_free(&bed);
}

/* ---- damage ---- */

static void test_damaged_block(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u8 bytes[4096 * 3], *disk;
	u64 i;

	bed_make(&bed, 16 << 20, 4096);
	node = bed_file(&bed, "/file");
	for (i = 0; i < 3; i++)
		memset(bytes + 4096 * i, 0xa1 + i, 4096);
	assert_int_equal(tux3_write(node, bytes, sizeof(bytes), 0), sizeof(bytes));
	tux3_node_put(node, 1);
	bed_close(&bed);
	disk = device_memory_bytes(bed.dev);
	for (i = 0; i < 16 << 20; i += 4096)
		if (disk[i] == 0xa2 && disk[i + 4095] == 0xa2)
			disk[i + 77] ^= 1;
	bed_open(&bed);
	node = bed_file(&bed, "/file");
	assert_int_equal(tux3_read(node, bytes, sizeof(bytes), 0), 4096);
	assert_int_equal(tux3_read(node, bytes, 10, 4096), -EIO);
	assert_int_equal(tux3_read(node, bytes, 10, 8192), 10);
	assert_int_equal(bytes[0], 0xa3);
	assert_int_equal(tux3_write(node, "x", 1, 5000), -EIO);
	memset(bytes, 0x55, 4096);
	assert_int_equal(tux3_write(node, bytes, 4096, 4096), 4096);
	assert_int_equal(tux3_read(node, bytes, 10, 4096), 10);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- blocks that others write to ---- */

/* As swapon does it: each extent in a delta of its own, then a commit. */
static void uncheck(struct bed *bed, struct tux3_node *node, u64 blocks)
{
	struct volume *vol = node->inode.vol;
	struct data_extent extent;
	struct delta_op op;
	u64 block;

	assert_ok(tux3_sync(bed->volume));
	for (block = 0; block < blocks; block += extent.count) {
		assert_ok(data_map(&node->inode, block, blocks - block, &extent, NULL, 0));
		if (!extent.has_csum)
			continue;
		assert_ok(delta_enter(vol, &op, space_cost_items(vol, DATA_UNCHECK_ITEMS), 0));
		data_uncheck(&op, &node->inode, block, extent.count);
		delta_leave(&op);
	}
	assert_ok(tux3_sync(bed->volume));
}

/* Every block is where it was, and no written one has a checksum. */
static void expect_unchecked(struct tux3_node *node, const u64 *addrs, u64 blocks, bool has_csum)
{
	struct data_extent extent;
	u64 block;

	for (block = 0; block < blocks; block++) {
		assert_ok(data_map(&node->inode, block, 1, &extent, NULL, 0));
		assert_int_equal(extent.addr, addrs[block]);
		if (extent.kind == DATA_MAPPED)
			assert_int_equal(extent.has_csum, has_csum);
	}
}

#define UNCHECKED_BLOCKS 700u
#define UNCHECKED_WRITTEN 600u	/* the others are preallocated */

static void write_behind(struct bed *bed, const u64 *addrs, int fill)
{
	u8 *disk = device_memory_bytes(bed->dev);
	u32 i;

	for (i = 0; i < UNCHECKED_BLOCKS; i++)
		memset(disk + 4096 * addrs[i], fill, 4096);
}

/*
 * What swapon makes of a file: after that others may write to its blocks at any time, and neither a recovery, nor reading,
 * nor the checker finds fault with it.
 */
static void test_unchecked(void **state)
{
	static u8 bytes[4096 * UNCHECKED_WRITTEN], got[4096];
	u64 addrs[UNCHECKED_BLOCKS];
	struct data_extent extent;
	struct bed bed = {};
	struct tux3_node *node;
	u32 i;

	bed_make(&bed, 32 << 20, 4096);
	node = bed_file(&bed, "/swap");
	memset(bytes, 1, sizeof(bytes));
	assert_int_equal(tux3_write(node, bytes, sizeof(bytes), 0), sizeof(bytes));
	assert_ok(tux3_fallocate(node, 0, 0, 4096 * UNCHECKED_BLOCKS));
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < UNCHECKED_BLOCKS; i++) {
		assert_ok(data_map(&node->inode, i, 1, &extent, NULL, 0));
		addrs[i] = extent.addr;
	}
	expect_unchecked(node, addrs, UNCHECKED_BLOCKS, true);
	uncheck(&bed, node, UNCHECKED_BLOCKS);
	expect_unchecked(node, addrs, UNCHECKED_BLOCKS, false);
	uncheck(&bed, node, UNCHECKED_BLOCKS);	/* again: nothing to do */
	write_behind(&bed, addrs, 2);
	tux3_node_put(node, 1);
	bed_crash(&bed);			/* from the log */
	node = bed_file(&bed, "/swap");
	expect_unchecked(node, addrs, UNCHECKED_BLOCKS, false);
	write_behind(&bed, addrs, 3);
	tux3_node_put(node, 1);
	bed_check(&bed);			/* from the tree */
	node = bed_file(&bed, "/swap");
	for (i = 0; i < UNCHECKED_BLOCKS; i += 23) {
		assert_int_equal(tux3_read(node, got, sizeof(got), 4096ull * i), sizeof(got));
		assert_int_equal(got[i % 4096], i < UNCHECKED_WRITTEN ? 3 : 0);
	}
	/* Written again, it is a file like any other. */
	assert_int_equal(tux3_write(node, bytes, 4096 * 10, 4096 * 100), 4096 * 10);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(data_map(&node->inode, 105, 1, &extent, NULL, 0));
	assert_true(extent.has_csum && extent.addr != addrs[105]);
	assert_ok(data_map(&node->inode, 110, 1, &extent, NULL, 0));
	assert_true(!extent.has_csum && extent.addr == addrs[110]);
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096 * 200, 4096 * 50));
	tux3_node_put(node, 1);
	bed_check(&bed);
	node = bed_file(&bed, "/swap");
	assert_int_equal(tux3_read(node, got, sizeof(got), 4096 * 199), sizeof(got));
	assert_int_equal(got[0], 3);
	tux3_node_put(node, 1);
	assert_ok(tux3_unlink(bed.root, NULL, "swap"));
	bed_free(&bed);
}

/* ---- full volumes ---- */

/* ---- what a commit preallocates comes between two looks at the tree ---- */

struct mapper {
	struct tux3_node *node;
	u64 looks, none;
	int stop;
};

static void *map_on(void *arg)
{
	struct mapper *mapper = arg;

	while (!__atomic_load_n(&mapper->stop, __ATOMIC_RELAXED)) {
		struct data_extent extent;

		down_read(&mapper->node->lock);
		if (data_map(&mapper->node->inode, 1, 8, &extent, NULL, 0) || !extent.count)
			mapper->none++;
		up_read(&mapper->node->lock);
		mapper->looks++;
	}
	return NULL;
}

/* Whoever asks is told of some blocks, never of none: he took what he had memory for as filled then, whatever was in it. */
static void test_map_beside_commits(void **state)
{
	struct mapper mapper = {};
	pthread_t thread;
	struct bed bed = { .opts = { .age_ms = 60000 } };
	int turn;

	bed_make(&bed, 32 << 20, 4096);
	mapper.node = bed_file(&bed, "/file");
	assert_int_equal(tux3_write(mapper.node, "x", 1, 20 * 4096), 1);
	assert_int_equal(pthread_create(&thread, NULL, map_on, &mapper), 0);
	for (turn = 0; turn < FEWER(3000, 300) && !__atomic_load_n(&mapper.none, __ATOMIC_RELAXED); turn++) {
		assert_ok(tux3_fallocate(mapper.node, FALLOC_FL_KEEP_SIZE, 4096, 3 * 4096));
		assert_ok(tux3_sync(bed.volume));
		assert_ok(tux3_fallocate(mapper.node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 3 * 4096));
		assert_ok(tux3_sync(bed.volume));
	}
	__atomic_store_n(&mapper.stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	print_message("%d turns, %llu looks\n", turn, mapper.looks);
	assert_int_equal(mapper.none, 0);
	tux3_node_put(mapper.node, 1);
	bed_free(&bed);
}

static void test_full(void **state)
{
	struct bed bed = {};
	struct tux3_node *node, *other;
	struct tux3_statfs fs;
	u8 *bytes = calloc(1, 1 << 20);
	u64 size = 0;
	ssize_t got;
	int i;

	bed_make(&bed, 16 << 20, 4096);
	node = bed_file(&bed, "/fill");
	while ((got = tux3_append(node, bytes, 1 << 20)) > 0)
		size += got;
	assert_int_equal(got, -ENOSPC);
	assert_ok(tux3_statfs(bed.volume, &fs));
	print_message("filled with %llu KiB of 16384; %llu blocks left\n", (unsigned long long)size >> 10,
		      (unsigned long long)fs.available_blocks);
	assert_true(size > 14 << 20);
	other = bed_file(&bed, "/fill");
	for (i = 0; i < 8; i++)
		assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * 5000 + 100, 4096 * 3));
	assert_ok(tux3_truncate(node, 3 << 20));
	assert_ok(tux3_truncate(node, (1 << 20) + 11));
	assert_int_equal(tux3_write(other, bytes, 4096, 2 << 20), 4096);
	assert_int_equal(tux3_fallocate(node, 0, 0, 1 << 30), -ENOSPC);
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(tux3_write(other, bytes, 1 << 20, 0), 1 << 20);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	free(bytes);
	bed_free(&bed);
}

static u64 operations(struct bed *bed)
{
	return delta_counter(bed->volume->vol, TUX3_COUNT_OPS);
}

/* Whoever changes a setuid file takes the bit away in the same delta: so no crash can come between. */
static void test_changes_take_setuid_at_once(void **state)
{
	static const u64 sizes[] = { 3 * 4096, 0, 100, 5 * 4096 + 1, 5 * 4096 };
	struct tux3_cred cred = { .uid = 1000, .gid = 1000 };
	struct tux3_stat stat = { .mode = 06777 };
	struct tux3_node *node;
	struct bed bed = {};
	u64 before;
	u32 i;

	bed_make(&bed, 64 << 20, 4096);
	node = bed_file(&bed, "/file");
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		stat.mode = 06777;
		assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
		assert_ok(tux3_sync(bed.volume));
		before = operations(&bed);
		stat.size = sizes[i];
		assert_ok(tux3_setattr(node, &cred, &stat, TUX3_SET_SIZE | TUX3_SET_KILL));
		assert_int_equal(operations(&bed) - before, 1);
		assert_ok(tux3_stat_node(node, &stat));
		assert_int_equal(stat.mode & 07777, 0777);
		assert_int_equal(stat.size, sizes[i]);
	}
	for (i = 0; i < 4; i++) {
		struct file_kill kill = { .cred = &cred };

		stat.mode = 06777;
		assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
		assert_ok(tux3_sync(bed.volume));
		before = operations(&bed);
		if (i == 0)
			assert_int_equal(tux3_write_killing(node, "text", 4, 5000, &kill), 4);
		else if (i == 1)	/* all of it is allocated already */
			assert_ok(tux3_fallocate_killing(node, 0, 0, 4096, &kill));
		else if (i == 2)
			assert_ok(tux3_fallocate_killing(node, 0, 0, 1 << 20, &kill));
		else
			assert_ok(tux3_fallocate_killing(node, 3, 0, 8192, &kill));
		assert_int_equal(operations(&bed) - before, 1);
		assert_true(kill.killed);
		assert_ok(tux3_stat_node(node, &stat));
		assert_int_equal(stat.mode & 07777, 0777);
		assert_true(S_ISREG(stat.mode));
	}
	/* One who may keep it; and a mode that is set together with the size. */
	stat.mode = 06755;
	assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
	cred.capable = true;
	assert_ok(tux3_setattr(node, &cred, &stat, TUX3_SET_SIZE | TUX3_SET_KILL));
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.mode & 07777, 06755);
	stat.mode = 0600;
	stat.size = 1;
	before = operations(&bed);
	assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_SIZE | TUX3_SET_MODE));
	assert_int_equal(operations(&bed) - before, 1);
	tux3_node_put(node, 1);
	tux3_node_put(bed.root, 1);
	assert_ok(tux3_close(bed.volume));
	bed_open(&bed);
	node = bed_file(&bed, "/file");
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.mode & 07777, 0600);
	assert_int_equal(stat.size, 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* What can be told without waiting is what data_map() says; the rest is not told. */
static void test_map_now(void **state)
{
	struct data_extent extent, now;
	__le32 csum[10], csum_now[10];
	static u8 first[40960];
	struct bed bed = {};
	struct tux3_node *node;
	char path[20];
	u32 i;

	bed_make(&bed, 32 << 20, 4096);
	for (i = 0; i < 1000; i++) {		/* so that the tree is more than its root */
		snprintf(path, sizeof(path), "/f%u", i);
		tux3_node_put(bed_file(&bed, path), 1);
	}
	memset(first, 5, sizeof(first));
	node = bed_file(&bed, "/file");
	assert_int_equal(tux3_write(node, first, 40960, 0), 40960);
	assert_int_equal(tux3_write(node, first, 4096, 81920), 4096);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	cache_shrink(tux3_core(bed.volume), U64_MAX);
	cache_shrink(tux3_core(bed.volume), U64_MAX);	/* what was used lately was left */

	assert_int_equal(data_map_now(&node->inode, 3, 20, &now, csum_now, 10), -EAGAIN);
	assert_ok(data_map(&node->inode, 3, 20, &extent, csum, 10));
	memset(csum_now, 0, sizeof(csum_now));
	assert_ok(data_map_now(&node->inode, 3, 20, &now, csum_now, 10));
	assert_memory_equal(&now, &extent, sizeof(now));
	assert_int_equal(now.count, 7);
	assert_true(now.has_csum);
	assert_memory_equal(csum_now, csum, 7 * sizeof(csum[0]));

	assert_int_equal(data_map_now(&node->inode, 12, 1, &now, NULL, 0), -EAGAIN);	/* a hole */
	tree_edit_begin(tux3_core(bed.volume));
	assert_int_equal(data_map_now(&node->inode, 3, 1, &now, NULL, 0), -EAGAIN);
	tree_edit_end(tux3_core(bed.volume));

	/* Removed, and not committed: that needs no tree. */
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192));
	tree_edit_begin(tux3_core(bed.volume));
	assert_ok(data_map_now(&node->inode, 1, 20, &now, NULL, 0));
	tree_edit_end(tux3_core(bed.volume));
	assert_true(now.kind == DATA_HOLE && now.count == 2);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_changes_take_setuid_at_once),
		cmocka_unit_test(test_read_write),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_private_copies),
		cmocka_unit_test(test_reads_beside_commits),
		cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_damaged_block),
		cmocka_unit_test(test_unchecked),
		cmocka_unit_test(test_map_now),
		cmocka_unit_test(test_map_beside_commits),
		cmocka_unit_test(test_full),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
