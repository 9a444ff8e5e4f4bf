/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Scrub: whatever is damaged on the device under a volume in use is found, and nothing else is; what changes meanwhile is no
 * damage.  And messages about files name their paths.
 */
#include "support_lib.h"
#include "core/blocks/balloc.h"
#include "core/data/data.h"
#include "core/delta/delta.h"
#include "core/format/anchor.h"
#include "core/scrub/scrub.h"
#include "core/tree/tree.h"
#include "user/env/device_slow.h"
#include "user/env/log.h"

#include <pthread.h>
#include <unistd.h>

#define BLOCK 4096u
#define ALL U64_MAX
#define TOLD_MAX 4096u

static const struct tux3_cred cred = { .no_permission_checks = true };
static u8 bytes[64 * BLOCK];

/* ---- a whole scrub ---- */

struct told {
	u32 count;
	u64 portions, nodes, maps, log_blocks, blocks, bytes_read, bytes_done, bytes_all, most;
	struct tux3_ioc_scrub_problem problem[TOLD_MAX];
};

static struct told told;
static atomic_t stop;		/* a scrub, too, ends before its time */

static int scrub_core(struct volume *vol, u64 budget, struct told *into)
{
	struct tux3_ioc_scrub *scrub = calloc(1, sizeof(*scrub));
	int err = 0;
	u32 i;

	assert_non_null(scrub);
	memset(into, 0, offsetof(struct told, problem));
	while (!err && !(scrub->flags & TUX3_SCRUB_OVER) && !atomic_read(&stop)) {
		scrub->budget_bytes = budget;
		err = volume_scrub(vol, scrub);
		for (i = 0; !err && i < scrub->problem_count; i++) {
			assert_true(into->count < TOLD_MAX);
			into->problem[into->count++] = scrub->problem[i];
		}
		into->portions++;
		into->nodes += scrub->nodes;
		into->maps += scrub->maps;
		into->log_blocks += scrub->log_blocks;
		into->blocks += scrub->blocks;
		into->bytes_read += scrub->bytes_read;
		into->bytes_done += scrub->bytes_done;
		into->bytes_all = scrub->bytes_all;
		into->most = max(into->most, scrub->bytes_read);
	}
	free(scrub);
	return err;
}

static void print_told(const struct told *from)
{
	u32 i;

	for (i = 0; i < min(from->count, 20u); i++)
		print_error("told: kind %u flags %u ino %llu-%llu offset %llu block %llu+%llu: %s (%s)\n", from->problem[i].kind,
			    from->problem[i].flags, (unsigned long long)from->problem[i].ino,
			    (unsigned long long)from->problem[i].ino_last, (unsigned long long)from->problem[i].offset,
			    (unsigned long long)from->problem[i].addr, (unsigned long long)from->problem[i].count,
			    from->problem[i].why, from->problem[i].path);
}

static void scrub_expect(struct bed *bed, u64 budget, u32 problems)
{
	assert_ok(scrub_core(tux3_core(bed->volume), budget, &told));
	if (told.count != problems) {
		print_told(&told);
		fail_msg("%u problems instead of %u", told.count, problems);
	}
}

/* ---- a volume with something of everything ---- */

#define MANY 300u

static void fill(struct bed *bed)
{
	struct tux3_node *node;
	u64 state = 5;
	char path[64];
	u32 i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = bed_random(&state);
	for (i = 0; i < MANY; i++) {
		snprintf(path, sizeof(path), "/dir%u/a name that fills leaves, and so makes a tree of it %u", i % 7, i);
		node = bed_file(bed, path);
		if (i % 3)
			assert_int_equal(tux3_write(node, bytes + i, i % 2 ? 300 : 5000, 0), i % 2 ? 300 : 5000);
		tux3_node_put(node, 1);
	}
	node = bed_file(bed, "/big/file");
	assert_int_equal(tux3_write(node, bytes, sizeof(bytes), 0), sizeof(bytes));
	assert_int_equal(tux3_write(node, bytes, 10 * BLOCK, 1000 * BLOCK), 10 * BLOCK);
	assert_ok(tux3_setxattr(node, &cred, "user.long", bytes, 2 * BLOCK, 0));
	assert_ok(tux3_setxattr(node, &cred, "user.longer", bytes, 5 * BLOCK, 0));
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed->volume));
}

static void make(struct bed *bed, u64 size)
{
	*bed = (struct bed){ .opts = { .manual = true } };
	bed_make(bed, size, BLOCK);
	fill(bed);
}

/* All of it gets its place, and the log ends. */
static void settle(struct bed *bed)
{
	assert_ok(delta_commit_unify(tux3_core(bed->volume)));
	assert_int_equal(tux3_core(bed->volume)->tree.dirty_count, 0);
}

static u8 *block_of(struct bed *bed, u64 addr)
{
	return (u8 *)device_memory_bytes(bed->dev) + addr * BLOCK;
}

/* ---- tests ---- */

/* As a whole and in portions of all sizes: the same is read, once, and no more than was asked for. */
static void test_portions(void **state)
{
	static const u64 budgets[] = { 1, BLOCK, 3 * BLOCK, 10000, 100000, 1 << 20 };
	struct bed bed;
	u64 nodes, maps, log_blocks, blocks, height;
	u32 i, round;

	make(&bed, 64 << 20);
	for (round = 0; round < 2; round++) {
		scrub_expect(&bed, ALL, 0);
		height = tux3_core(bed.volume)->tree.root_level + 1;
		assert_true(told.portions == 1 && height >= 2);
		assert_int_equal(told.blocks, atomic64_read(&tux3_core(bed.volume)->balloc.data_used));
		assert_int_equal(told.log_blocks, tux3_core(bed.volume)->log.length);
		assert_true(round ? !told.log_blocks && told.nodes > 5 : told.log_blocks);
		nodes = told.nodes;
		maps = told.maps;
		log_blocks = told.log_blocks;
		blocks = told.blocks;
		assert_int_equal(told.bytes_done, (nodes + maps + log_blocks + blocks) * BLOCK);
		if (round)
			assert_int_equal(told.bytes_done, told.bytes_all);
		for (i = 0; i < ARRAY_SIZE(budgets); i++) {
			scrub_expect(&bed, budgets[i], 0);
			assert_true(told.nodes == nodes && told.maps == maps);
			assert_true(told.log_blocks == log_blocks && told.blocks == blocks);
			assert_true(told.portions > 3 || budgets[i] > 100000);
			/* What it costs to begin, the value of an xattr, which is five blocks, and a block. */
			assert_true(told.most <= budgets[i] + (height + 6) * BLOCK);
		}
		settle(&bed);
	}
	assert_true(atomic64_read(&tux3_core(bed.volume)->counters[TUX3_COUNT_SCRUBBED_BLOCKS]) > blocks * ARRAY_SIZE(budgets));
	assert_int_equal(atomic64_read(&tux3_core(bed.volume)->counters[TUX3_COUNT_SCRUB_PROBLEMS]), 0);
	bed_free(&bed);
}

/* Which kind of block is it, by the books?  0: none that counts. */
static u32 kind_by_books(struct bed *bed, u64 addr)
{
	struct volume *vol = tux3_core(bed->volume);
	u64 group = addr / vol->group_blocks, end;
	u32 i, n;

	for (i = 0; i < TUX3_ANCHOR_SLOTS; i++)
		if (addr == anchor_slot_offset(vol->total_blocks * BLOCK, i) / BLOCK)
			return i % 2 == vol->anchor_slot % 2 ? TUX3_SCRUB_ANCHOR : 0;
	if (addr == balloc_slot_addr(vol, group, 0) || addr == balloc_slot_addr(vol, group, 1))
		return TUX3_SCRUB_MAP;
	for (n = 0; n < vol->log.blocks.count; n++) {
		end = vol->log.blocks.ranges[n].addr + vol->log.blocks.ranges[n].len;
		if (addr >= vol->log.blocks.ranges[n].addr && addr < end)
			return TUX3_SCRUB_LOG;
	}
	return balloc_is_fixed(vol, addr) || balloc_test(vol, addr, 1) != 1 ? 0 : TUX3_SCRUB_DATA;	/* or a node, or a value */
}

/* Each block of a volume, one after the other: what is in use is told of, once, with its place; nothing else is. */
static void test_each_block(void **state)
{
	u32 kinds[8] = { 0 }, kind, expect, i;
	struct bed bed;
	u64 addr, total;

	make(&bed, 16 << 20);
	settle(&bed);
	/* And some log. */
	tux3_node_put(bed_file(&bed, "/big/later"), 1);
	assert_ok(tux3_sync(bed.volume));
	total = tux3_core(bed.volume)->total_blocks;
	for (addr = 0; addr < total; addr += FEWER(1, 5)) {
		u8 *block = block_of(&bed, addr), was;

		expect = kind_by_books(&bed, addr);
		if (!expect && addr % 16)	/* of the free ones some will do */
			continue;
		/* An anchor is not as large as its block. */
		i = expect == TUX3_SCRUB_ANCHOR ? addr % sizeof(struct disk_anchor) : addr * 37 % BLOCK;
		was = block[i];
		block[i] ^= 1 << addr % 8;
		assert_ok(scrub_core(tux3_core(bed.volume), ALL, &told));
		if (told.count != !!expect) {
			print_told(&told);
			fail_msg("block %llu, kind %u: %u problems", (unsigned long long)addr, expect, told.count);
		}
		block[i] = was;
		if (!expect)
			continue;
		kind = told.problem[0].kind;
		kinds[kind]++;
		assert_int_equal(told.problem[0].count, 1);
		if (kind == TUX3_SCRUB_XATTR) {	/* one checksum for all of a value */
			assert_true(addr >= told.problem[0].addr && addr < told.problem[0].addr + 5);
			assert_string_equal(told.problem[0].path, "/big/file");
		} else {
			assert_int_equal(told.problem[0].addr, addr);
		}
		assert_true(kind == expect || (expect == TUX3_SCRUB_DATA && (kind == TUX3_SCRUB_NODE || kind == TUX3_SCRUB_XATTR)));
		assert_true(kind != TUX3_SCRUB_DATA || told.problem[0].path[0] == '/');
		assert_true(told.problem[0].why[0]);
	}
	assert_true(kinds[TUX3_SCRUB_DATA] > 10 && kinds[TUX3_SCRUB_NODE] > 2);
#ifndef __SANITIZE_THREAD__
	assert_true(kinds[TUX3_SCRUB_ANCHOR] == 2 && kinds[TUX3_SCRUB_MAP] >= 2);
	assert_true(kinds[TUX3_SCRUB_XATTR] == 7 && kinds[TUX3_SCRUB_LOG]);
#endif
	scrub_expect(&bed, ALL, 0);
	bed_free(&bed);
}

/* Paths and offsets of what is damaged; blocks in a row are one problem; more than fit into a portion are all told, once. */
static void test_places(void **state)
{
	struct tux3_node *node;
	struct data_extent extent;
	struct bed bed;
	u64 at[3];
	u32 i;

	make(&bed, 64 << 20);
	node = bed_find(&bed, "/big/file");
	assert_ok(data_map(tux3_node_core(node), 0, 64, &extent, NULL, 0));
	assert_true(extent.kind == DATA_MAPPED && extent.count == 64);
	for (i = 5; i < 8; i++)
		block_of(&bed, extent.addr + i)[i] ^= 4;
	scrub_expect(&bed, ALL, 1);
	assert_int_equal(told.problem[0].kind, TUX3_SCRUB_DATA);
	assert_int_equal(told.problem[0].ino, tux3_node_ino(node));
	assert_int_equal(told.problem[0].offset, 5 * BLOCK);
	assert_int_equal(told.problem[0].addr, extent.addr + 5);
	assert_int_equal(told.problem[0].count, 3);
	assert_string_equal(told.problem[0].path, "/big/file");
	assert_true(!told.problem[0].flags);
	/* Every second: 32 problems, two portions of 16 at least. */
	for (i = 5; i < 8; i++)
		block_of(&bed, extent.addr + i)[i] ^= 4;
	for (i = 0; i < 64; i += 2)
		block_of(&bed, extent.addr + i)[7] ^= 1;
	scrub_expect(&bed, ALL, 32);
	for (i = 0; i < 32; i++)
		assert_true(told.problem[i].addr == extent.addr + 2 * i && told.problem[i].count == 1);
	scrub_expect(&bed, 10 * BLOCK, 32);
	assert_int_equal(atomic64_read(&tux3_core(bed.volume)->counters[TUX3_COUNT_SCRUB_PROBLEMS]), 1 + 2 * 32);
	for (i = 0; i < 64; i += 2)
		block_of(&bed, extent.addr + i)[7] ^= 1;
	/* What was written since is elsewhere, and what lies where it was is nobody's. */
	for (i = 0; i < 3; i++) {
		assert_ok(data_map(tux3_node_core(node), 20 + i, 1, &extent, NULL, 0));
		at[i] = extent.addr;
	}
	assert_int_equal(tux3_write(node, bytes, 3 * BLOCK, 20 * BLOCK), 3 * BLOCK);
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < 3; i++)
		block_of(&bed, at[i])[1] ^= 1;
	scrub_expect(&bed, ALL, 0);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* Of a tree in memory all nodes are damaged on the device; then none is in memory any more. */
static void test_nodes(void **state)
{
	struct bed bed;
	u64 addr, total, nodes, blocks, height;
	u8 *saved, *all;

	make(&bed, 16 << 20);
	settle(&bed);
	total = tux3_core(bed.volume)->total_blocks;
	scrub_expect(&bed, ALL, 0);
	nodes = told.nodes - 2;
	blocks = told.blocks;
	height = tux3_core(bed.volume)->tree.root_level + 1;
	all = device_memory_bytes(bed.dev);
	saved = malloc(16 << 20);
	memcpy(saved, all, 16 << 20);
	for (addr = 0; addr < total; addr++)
		if (kind_by_books(&bed, addr) == TUX3_SCRUB_DATA && get_unaligned_le32(all + addr * BLOCK) == TUX3_NODE_MAGIC)
			all[addr * BLOCK + 100] ^= 1;
	scrub_expect(&bed, ALL, nodes);
	assert_int_equal(told.blocks, blocks);		/* those in memory lead on */
	scrub_expect(&bed, 5 * BLOCK, nodes);
	/* Of the root alone is told when nothing leads on, and of all inodes. */
	cache_set_limit(tux3_core(bed.volume), 0);
	scrub_expect(&bed, ALL, 1);
	assert_int_equal(told.problem[0].kind, TUX3_SCRUB_NODE);
	assert_int_equal(told.problem[0].offset, height - 1);
	assert_int_equal(told.problem[0].ino, TUX3_INO_VOLUME);
	assert_int_equal(told.problem[0].ino_last, TUX3_INO_MAX);
	assert_int_equal(told.blocks, 0);
	memcpy(all, saved, 16 << 20);
	free(saved);
	scrub_expect(&bed, ALL, 0);
	bed_free(&bed);
}

/* Sectors that cannot be read. */
static void test_unreadable(void **state)
{
	struct tux3_scrub portion = { .budget_bytes = ALL };
	struct tux3_device *below = NULL;
	struct data_extent extent;
	struct tux3_node *node;
	struct bed bed;
	u64 addr, total;
	u32 n = 0, kinds[8] = { 0 };

	make(&bed, 16 << 20);
	settle(&bed);
	bed_close(&bed);
	below = bed.dev;
	bed.dev = device_slow_create(below, 0, 32);
	assert_non_null(bed.dev);
	bed_open(&bed);
	scrub_expect(&bed, ALL, 0);
	node = bed_find(&bed, "/big/file");
	assert_ok(data_map(tux3_node_core(node), 1003, 1, &extent, NULL, 0));
	device_slow_fail(bed.dev, extent.addr);
	scrub_expect(&bed, ALL, 1);
	assert_ok(tux3_scrub(bed.volume, &portion, NULL, NULL));	/* who only wants to know how many */
	assert_true(portion.over && portion.problems == 1);
	assert_int_equal(told.problem[0].flags, TUX3_SCRUB_UNREADABLE);
	assert_true(told.problem[0].kind == TUX3_SCRUB_DATA && told.problem[0].offset == 1003 * BLOCK);
	assert_true(told.problem[0].addr == extent.addr && told.problem[0].count == 1);
	tux3_node_put(node, 1);
	total = tux3_core(bed.volume)->total_blocks;
	for (addr = 0; addr < total; addr++) {
		u32 expect = kind_by_books(&bed, addr);

		if (!expect || n++ % FEWER(3u, 40u))
			continue;
		device_slow_fail(bed.dev, addr);
		scrub_expect(&bed, ALL, 1);
		assert_int_equal(told.problem[0].addr, addr);
		assert_int_equal(told.problem[0].flags, TUX3_SCRUB_UNREADABLE);
		kinds[told.problem[0].kind]++;
	}
	assert_true(FEWER(kinds[TUX3_SCRUB_DATA] > 10 && kinds[TUX3_SCRUB_NODE] && kinds[TUX3_SCRUB_XATTR], true));
	device_slow_fail(bed.dev, U64_MAX);
	bed_free(&bed);
}

static void tell_nothing(void *ctx, const struct tux3_scrub_problem *problem)
{
	fail_msg("%s: %s", problem->kind, problem->why);
}

/* The library's call; cursors that are none, or of another volume; a volume that has stopped. */
static void test_calls(void **state)
{
	struct tux3_ioc_scrub *scrub = calloc(1, sizeof(*scrub));
	struct tux3_scrub portion = { .budget_bytes = 100000 };
	u64 blocks = 0;
	struct bed bed, other;

	make(&bed, 16 << 20);
	other = (struct bed){ .opts = { .manual = true } };
	bed_make(&other, 16 << 20, BLOCK);
	while (!portion.over) {
		assert_ok(tux3_scrub(bed.volume, &portion, tell_nothing, NULL));
		blocks += portion.blocks;
		if (!portion.over)
			bed_reopen(&bed);
	}
	assert_int_equal(blocks, atomic64_read(&tux3_core(bed.volume)->balloc.data_used));
	assert_int_equal(tux3_scrub(other.volume, &portion, tell_nothing, NULL), -ESTALE);
	assert_ok(tux3_scrub(bed.volume, &portion, tell_nothing, NULL));	/* it is over, and stays so */
	assert_true(portion.over && !portion.bytes_read);
	memset(portion.cursor, 0xff, sizeof(portion.cursor));
	assert_int_equal(tux3_scrub(bed.volume, &portion, tell_nothing, NULL), -EINVAL);
	scrub->budget_bytes = 4096;
	scrub->flags = 2;
	assert_int_equal(volume_scrub(tux3_core(bed.volume), scrub), -EINVAL);
	scrub->flags = 0;
	scrub->spare[3] = 1;
	assert_int_equal(volume_scrub(tux3_core(bed.volume), scrub), -EINVAL);
	scrub->spare[3] = 0;
	volume_abort(tux3_core(bed.volume), -EIO, "a test stops it");
	assert_int_equal(volume_scrub(tux3_core(bed.volume), scrub), -EIO);
	free(scrub);
	bed_crash(&bed);
	bed_free(&bed);
	bed_free(&other);
}

/* ---- messages ---- */

static char said[600];

static void hear(int level, const char *message)
{
	snprintf(said, sizeof(said), "%s", message);
}

/* With all in memory a message tells the path; while the tree is locked, or not in memory, it does not, and waits for nothing. */
static void test_messages(void **state)
{
	struct tux3_node *node;
	struct data_extent extent;
	char want[200];
	struct bed bed;
	u32 cached;

	make(&bed, 16 << 20);
	settle(&bed);
	node = bed_find(&bed, "/big/file");
	assert_ok(data_map(tux3_node_core(node), 3, 1, &extent, NULL, 0));
	block_of(&bed, extent.addr)[9] ^= 1;
	for (cached = 0; cached < 3; cached++) {
		tux3_node_put(node, 1);
		bed_reopen(&bed);
		node = bed_find(&bed, "/big/file");
		assert_ok(data_map(tux3_node_core(node), 3, 1, &extent, NULL, 0));
		if (cached == 1)
			down_write(&tux3_core(bed.volume)->tree.sem);
		if (cached == 2)
			cache_shrink(tux3_core(bed.volume), U64_MAX);
		env_set_log(hear);
		assert_int_equal(data_verify(tux3_node_core(node), 3, extent.addr, block_of(&bed, extent.addr), 0), -EIO);
		env_set_log(NULL);
		if (cached == 1)
			up_write(&tux3_core(bed.volume)->tree.sem);
		snprintf(want, sizeof(want), "file %llu%s, offset %u: block %llu has checksum", (unsigned long long)tux3_node_ino(node),
			 cached ? "" : " (/big/file)", 3 * BLOCK, (unsigned long long)extent.addr);
		if (!strstr(said, want))
			fail_msg("\"%s\" instead of \"%s\"", said, want);
	}
	block_of(&bed, extent.addr)[9] ^= 1;
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- beside others ---- */

/*
 * A device that writes later, in two steps: so who reads a block that is being written sees what was there before, or half of it.
 * And reads of scrubs come late, when what they are for may be gone.
 */
struct late_write {
	struct list_head link;
	struct io_wait *wait;
	u8 *to;
	u32 vecs;
	struct kvec vec[];
};

struct late {
	struct tux3_device dev;
	struct tux3_device *below;
	pthread_mutex_t lock;		/* the bytes, and the queue */
	pthread_cond_t more;
	struct list_head queue;
	bool end;
	pthread_t thread;
	atomic_t count;
};

static struct late *late_of(struct tux3_device *dev)
{
	return container_of(dev, struct late, dev);
}

static int late_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct late *late = late_of(dev);

	pthread_mutex_lock(&late->lock);
	memcpy(data, (u8 *)device_memory_bytes(late->below) + addr * BLOCK, (size_t)count * BLOCK);
	pthread_mutex_unlock(&late->lock);
	return 0;
}

static void late_read_media(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	struct late *late = late_of(dev);
	u32 i, n = atomic_inc_return(&late->count);

	if (n % 16 == 0)
		usleep(n % 128 * 200);
	for (i = 0; i < count; i++)
		reads[i].err = late_read(dev, reads[i].addr, reads[i].count, reads[i].data);
}

static void late_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		       struct io_wait *wait)
{
	struct late *late = late_of(dev);
	struct late_write *write = malloc(sizeof(*write) + vecs * sizeof(*vec));

	io_wait_begin(wait);
	*write = (struct late_write){ .wait = wait, .vecs = vecs, .to = (u8 *)device_memory_bytes(late->below) + addr * BLOCK };
	memcpy(write->vec, vec, vecs * sizeof(*vec));
	pthread_mutex_lock(&late->lock);
	list_add_tail(&write->link, &late->queue);
	pthread_cond_signal(&late->more);
	pthread_mutex_unlock(&late->lock);
}

/* A part of one piece of memory. */
static void late_copy(struct late *late, u8 *to, const u8 *from, size_t len)
{
	pthread_mutex_lock(&late->lock);
	memcpy(to, from, len);
	pthread_mutex_unlock(&late->lock);
}

static void late_carry_out(struct late *late, struct late_write *write)
{
	u32 i, n = atomic_inc_return(&late->count);

	if (n % 16 == 0)
		usleep(n % 32 * 100);
	for (i = 0; i < write->vecs; i++) {
		size_t len = write->vec[i].iov_len, middle = len / 2 + 100;

		late_copy(late, write->to, write->vec[i].iov_base, middle);
		if (n % 16 == 1)
			usleep(300);
		late_copy(late, write->to + middle, (u8 *)write->vec[i].iov_base + middle, len - middle);
		write->to += len;
	}
	io_wait_end(write->wait, 0);
	free(write);
}

static void *late_thread(void *arg)
{
	struct late *late = arg;
	struct late_write *write;

	for (;;) {
		pthread_mutex_lock(&late->lock);
		while (list_empty(&late->queue) && !late->end)
			pthread_cond_wait(&late->more, &late->lock);
		write = list_first_entry_or_null(&late->queue, struct late_write, link);
		if (write)
			list_del(&write->link);
		pthread_mutex_unlock(&late->lock);
		if (!write)
			return NULL;
		late_carry_out(late, write);
	}
}

static int late_flush(struct tux3_device *dev)
{
	return 0;
}

static void late_close(struct tux3_device *dev)
{
	struct late *late = late_of(dev);

	pthread_mutex_lock(&late->lock);
	late->end = true;
	pthread_cond_signal(&late->more);
	pthread_mutex_unlock(&late->lock);
	pthread_join(late->thread, NULL);
	late->below->ops->close(late->below);
	free(late);
}

static const struct tux3_device_ops late_ops = {
	.read = late_read, .read_media = late_read_media, .write = late_write, .flush = late_flush, .close = late_close,
};

static struct tux3_device *late_create(struct tux3_device *below)
{
	struct late *late = calloc(1, sizeof(*late));

	assert_non_null(late);
	late->below = below;
	late->dev = *below;
	late->dev.ops = &late_ops;
	INIT_LIST_HEAD(&late->queue);
	pthread_mutex_init(&late->lock, NULL);
	pthread_cond_init(&late->more, NULL);
	assert_int_equal(pthread_create(&late->thread, NULL, late_thread, late), 0);
	return &late->dev;
}

#define WRITERS 4u

struct beside {
	struct bed *bed;
	u64 seed;
};

static void beside_step(struct beside *beside)
{
	struct tux3 *volume = beside->bed->volume;
	u64 *seed = &beside->seed, pos = bed_random(seed) % 60 * BLOCK, len = bed_random(seed) % (20 * BLOCK);
	struct tux3_node *node;
	char path[40];

	snprintf(path, sizeof(path), "/d%llu/f%llu", bed_random(seed) % 2, bed_random(seed) % 5);
	if (bed_random(seed) % 8 == 0) {
		tux3_path_unlink(volume, NULL, path);
		return;
	}
	if (tux3_path(volume, NULL, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node))
		return;
	switch (bed_random(seed) % 8) {
	case 0:
		tux3_truncate(node, pos);
		break;
	case 1:
		tux3_fallocate(node, 0, pos, len + 1);
		break;
	case 2:
		tux3_fallocate(node, 0x03, pos, len + 1);
		break;
	case 3:
		tux3_setxattr(node, &cred, "user.x", bytes, 1000 + len % 30000, 0);
		break;
	default:
		tux3_write(node, bytes + bed_random(seed) % 100, len, pos);
	}
	if (bed_random(seed) % 32 == 0)
		tux3_fsync(node, false);
	if (bed_random(seed) % 128 == 0)
		delta_commit_unify(tux3_core(volume));
	tux3_node_put(node, 1);
}

static void *beside_thread(void *arg)
{
	struct beside *beside = arg;

	while (!atomic_read(&stop))
		beside_step(beside);
	return NULL;
}

/*
 * Seconds of writes by many threads to a small volume, where blocks are used again at once; and scrubs in all sizes of portions,
 * two at a time.  Not one problem.
 */
static void *scrub_thread(void *arg)
{
	struct beside *beside = arg;
	struct told *mine = malloc(sizeof(*mine));
	u64 blocks = 0;

	while (!atomic_read(&stop)) {
		u64 budget = bed_random(&beside->seed) % 2 ? BLOCK << bed_random(&beside->seed) % 8 : ALL;

		if (scrub_core(tux3_core(beside->bed->volume), budget, mine) || mine->count) {
			print_told(mine);
			fail_msg("%u problems", mine->count);
		}
		blocks += mine->blocks;
	}
	assert_true(blocks > 0);
	free(mine);
	return NULL;
}

static void test_beside(void **state)
{
	struct bed bed = { .opts = { .age_ms = 20, .log_blocks = 64, .dirty_nodes = 24 } };
	pthread_t threads[WRITERS + 2];
	struct beside beside[WRITERS + 2];
	u32 i;

	bed_make(&bed, 12 << 20, BLOCK);
	bed_close(&bed);
	bed.dev = late_create(bed.dev);
	bed_open(&bed);
	fill(&bed);
	for (i = 0; i < WRITERS + 2; i++) {
		beside[i] = (struct beside){ &bed, 100 + i };
		assert_int_equal(pthread_create(&threads[i], NULL, i < WRITERS ? beside_thread : scrub_thread, &beside[i]), 0);
	}
	sleep(FEWER(2, 4));
	atomic_set(&stop, 1);
	for (i = 0; i < WRITERS + 2; i++)
		pthread_join(threads[i], NULL);
	atomic_set(&stop, 0);
	assert_true(atomic64_read(&tux3_core(bed.volume)->counters[TUX3_COUNT_UNIFIES]) > 3);
	scrub_expect(&bed, ALL, 0);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_portions),
		cmocka_unit_test(test_each_block),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_unreadable),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_beside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
