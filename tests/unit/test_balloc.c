/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Free space: allocation, freeing, free maps on disk.
 *
 * The random tests keep an array with the state of each block beside the volume, and compare everything
 * that core/blocks/freemap.h shows of it.  TUX3_TEST_SEED=n runs them with that seed, an argument runs only the tests
 * so named (with * and ?); a failing check prints the line that does both.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>
#include "core/blocks/freemap.h"
#include "core/volume.h"
#include "user/env/device_memory.h"
#include "user/env/fault.h"
#include "user/env/log.h"

#define KIB	1024ULL
#define MIB	(KIB * KIB)
#define GIB	(KIB * MIB)
#define TIB	(KIB * GIB)

static const char *test_name;
static u64 test_seed, rng;

#define CHECK(condition) do {						\
	if (!(condition)) {						\
		print_error("%s:%d: not true: %s\nTo run this case again: TUX3_TEST_SEED=%llu build/tests/test_balloc %s\n", \
			    __FILE__, __LINE__, #condition, (unsigned long long)test_seed, test_name); \
		fail();							\
	}								\
} while (0)

static char last_message[512];

/* Calls that must be refused say so: thousands of times here. */
static void keep_quiet(int level, const char *message)
{
	strscpy(last_message, message, sizeof(last_message));
	if (getenv("TUX3_TEST_VERBOSE"))
		print_message("%s\n", message);
}

static void random_start(const char *name, u64 seed)
{
	const char *chosen = getenv("TUX3_TEST_SEED");

	test_name = name;
	test_seed = rng = chosen ? strtoull(chosen, NULL, 0) : seed;
}

static u64 random64(void)
{
	u64 x = rng += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static u64 random_below(u64 limit)
{
	return random64() % limit;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* ---- volumes ---- */

static void volume_geometry(struct volume *vol, u64 bytes, u32 block_size)
{
	memset(vol, 0, sizeof(*vol));
	vol->block_size = block_size;
	vol->block_shift = ilog2(block_size);
	vol->group_blocks = (block_size - 64) * 8;
	vol->total_blocks = bytes / block_size;
	vol->group_count = DIV_ROUND_UP(vol->total_blocks, vol->group_blocks);
	vol->id = 0x1234567890abcdefULL;
}

static void volume_mount(struct volume *vol, u64 delta, u64 used)
{
	vol->anchor.delta = cpu_to_le64(delta);
	CHECK(balloc_init(vol, used) == 0);
}

static struct volume *volume_make(u64 bytes, u32 block_size)
{
	struct volume *vol = calloc(1, sizeof(*vol));

	volume_geometry(vol, bytes, block_size);
	vol->dev = device_memory_create(bytes);
	if (!vol->dev) {
		free(vol);
		return NULL;
	}
	vol->dev->block_size = block_size;
	volume_mount(vol, 0, balloc_fixed_blocks(vol));
	return vol;
}

static void volume_drop(struct volume *vol)
{
	balloc_exit(vol);
	vol->dev->ops->close(vol->dev);
	free(vol);
}

/* As after a crash, or a clean end: what counts is on the device. */
static void volume_remount(struct volume *vol, u64 delta, u64 used)
{
	balloc_exit(vol);
	volume_mount(vol, delta, used);
}

/* After a crash, where the log names that group. */
static void volume_replay(struct volume *vol, u64 delta, u64 used, u64 group)
{
	volume_remount(vol, delta, used);
	CHECK(balloc_note_in_log(vol, group) == 0);
	CHECK(balloc_touch(vol, group) == 0);
}

static void write_maps(struct volume *vol, struct list_head *writes)
{
	struct map_write *write;
	u32 count = 0, written = 0;
	struct io_wait wait;
	char why[100];

	list_for_each_entry(write, writes, link) {
		CHECK(write->addr == balloc_slot_addr(vol, write->group, write->slot));
		count++;
	}
	do {
		io_wait_init(&wait);
		list_for_each_entry(write, writes, link) {
			if (!write->data)
				continue;
			CHECK(map_check(vol, write->data, write->addr, write->group, why, sizeof(why)) == 0);
			device_write(vol->dev, write->addr, write->data, 1, 0, &wait);
			written++;
		}
		CHECK(io_wait_finish(&wait) == 0);
	} while (balloc_snapshot_more(vol, writes));
	CHECK(written == count);
}

/* How many groups a GROUP_TOUCHED record would name, and up to max of them. */
static u32 touched_groups(struct volume *vol, u64 *groups, u32 max)
{
	u64 bits[TOUCHED_WORDS], first;
	u32 words = balloc_touched(vol, &first, bits), count = 0, i;

	for (i = 0; i < 64 * words; i++) {
		if (bits[i / 64] >> i % 64 & 1) {
			if (count < max)
				groups[count] = first + i;
			count++;
		}
	}
	return count;
}

static void unify(struct volume *vol, u64 delta)
{
	u64 groups[8];
	LIST_HEAD(writes);

	while (touched_groups(vol, groups, ARRAY_SIZE(groups)))
		;
	CHECK(balloc_snapshot(vol, delta, &writes) == 0);
	write_maps(vol, &writes);
	balloc_snapshot_done(vol, &writes, true);
}

static u64 free_blocks(struct volume *vol)
{
	return atomic64_read(&vol->balloc.free_blocks);
}

static u64 disk_used(struct volume *vol)
{
	return atomic64_read(&vol->balloc.disk_used);
}

static u64 alloc_exactly(struct volume *vol, enum balloc_kind kind, u64 goal, u32 want)
{
	u64 addr;
	u32 len;

	CHECK(balloc_alloc(vol, kind, goal, want, want, &addr, &len) == 0);
	CHECK(len == want);
	return addr;
}

/* ---- the model ---- */

enum block_state { FREE, FIXED, DATA, NODE, LOG, DEFERRED };

#define MAX_EXTENTS 4096u

struct extent {
	u64 addr;
	u32 len;
	enum balloc_kind kind;
};

struct model {
	struct volume *vol;
	u8 *state;			/* enum block_state */
	struct extent extents[MAX_EXTENTS];
	u32 count;
	struct range_list deferred;
	u64 delta;
	u64 last_end;
};

static struct model *model_make(u64 bytes, u32 block_size)
{
	struct model *model = calloc(1, sizeof(*model));
	u64 addr, fixed = 0;

	model->vol = volume_make(bytes, block_size);
	CHECK(model->vol != NULL);
	model->state = calloc(model->vol->total_blocks, 1);
	for (addr = 0; addr < model->vol->total_blocks; addr++) {
		if (!balloc_is_fixed(model->vol, addr))
			continue;
		model->state[addr] = FIXED;
		fixed++;
	}
	CHECK(fixed == balloc_fixed_blocks(model->vol));
	return model;
}

static void model_drop(struct model *model)
{
	range_list_exit(&model->deferred);
	volume_drop(model->vol);
	free(model->state);
	free(model);
}

static bool state_busy(u8 state)
{
	return state != FREE;
}

static bool state_disk(u8 state)
{
	return state == FIXED || state == DATA || state == NODE;
}

static u64 model_longest(struct model *model)
{
	u64 addr, run = 0, longest = 0;

	for (addr = 0; addr < model->vol->total_blocks; addr++) {
		run = state_busy(model->state[addr]) ? 0 : run + 1;
		longest = max(longest, run);
	}
	return longest;
}

static void model_set(struct model *model, u64 addr, u64 len, u8 from, u8 to)
{
	for (; len; addr++, len--) {
		CHECK(model->state[addr] == from);
		model->state[addr] = to;
	}
}

static void verify_group(struct model *model, u64 index, struct balloc_info *info)
{
	struct volume *vol = model->vol;
	struct balloc_group *group = info->group;
	bool packed = group && group->packed;
	u8 *state = model->state + index * vol->group_blocks;
	u32 length = group_length(vol, index), i, free = 0, extra = 0, run = 0, longest = 0;

	if (packed)
		CHECK(group_unpack(vol, group) == 0);
	for (i = 0; i < vol->group_blocks; i++) {
		bool busy = i >= length || state_busy(state[i]);
		bool disk = i >= length || state_disk(state[i]);

		free += !busy;
		extra += busy && !disk;
		run = busy ? 0 : run + 1;
		longest = max(longest, run);
		if (!group)
			continue;
		CHECK(test_bit(i, group->busy) == busy);
		CHECK(test_bit(i, group->disk) == disk);
		if (run && run >= group->memo_len && group->memo_len)
			CHECK(i + 1 - run >= group->memo_from);
		if (run && run >= group->memo_len && group->memo_len)
			CHECK(i + 1 - group->memo_len < group->memo_to);
	}
	CHECK(info->free == free);
	CHECK(info->longest >= longest);
	if (!group) {
		CHECK(!extra);
		return;
	}
	CHECK(group->extra == extra);
	CHECK(group->chunk->longest >= min(info->longest, info->free));
	CHECK(group->on == (group->changed ? GROUP_ON_CHANGED :
			    extra || group->writing || !list_empty(&group->untold_link) ? GROUP_ON_PINNED : GROUP_ON_CLEAN));
	CHECK(list_empty(&group->hot_link) == (group->on == GROUP_ON_CLEAN));
	if (packed)
		group_pack_cold(vol, vol->opts.groups_kept);
}

static void verify(struct model *model)
{
	struct volume *vol = model->vol;
	u64 addr, index, busy = 0, disk = 0, data = 0, unknown = 0;

	for (addr = 0; addr < vol->total_blocks; addr++) {
		busy += state_busy(model->state[addr]);
		disk += state_disk(model->state[addr]);
		data += model->state[addr] == DATA;
	}
	CHECK(free_blocks(vol) == vol->total_blocks - busy);
	CHECK(disk_used(vol) == disk);
	CHECK((u64)atomic64_read(&vol->balloc.data_used) == data);
	for (index = 0; index < vol->group_count; index++) {
		struct balloc_chunk *chunk = vol->balloc.chunks[index / CHUNK_GROUPS];
		struct balloc_info *info = chunk ? &chunk->info[index % CHUNK_GROUPS] : NULL;

		if (info && info->state == GROUP_KNOWN)
			verify_group(model, index, info);
		else
			unknown++;
	}
	CHECK(vol->balloc.unknown_groups == unknown);
}

/* ---- random steps ---- */

static const u8 kind_state[] = { [BALLOC_DATA] = DATA, [BALLOC_NODE] = NODE, [BALLOC_LOG] = LOG };

static void step_alloc(struct model *model)
{
	struct volume *vol = model->vol;
	enum balloc_kind kind = random_below(3);
	u32 want = 1 + (random_below(4) ? random_below(20) : random_below(vol->group_blocks / 8 + 2));
	u32 min = random_below(2) ? 1 : 1 + random_below(want);
	u64 goals[] = { 0, 0, model->last_end, random_below(vol->total_blocks + 10) };
	u64 goal = goals[random_below(4)], addr;
	u32 len;
	int err;

	if (model->count == MAX_EXTENTS)
		return;
	err = balloc_alloc(vol, kind, goal, min, want, &addr, &len);
	if (err) {
		CHECK(err == -ENOSPC);
		CHECK(model_longest(model) < min);
		return;
	}
	CHECK(len >= min && len <= want);
	model_set(model, addr, len, FREE, kind_state[kind]);
	model->extents[model->count++] = (struct extent){ addr, len, kind };
	if (kind == BALLOC_DATA)
		model->last_end = addr + len;
}

/* All of an extent, or part of it, at once or deferred. */
static void step_free(struct model *model)
{
	struct volume *vol = model->vol;
	u32 i, part, skip = 0;
	struct extent *extent;
	u64 addr;

	if (!model->count)
		return;
	i = random_below(model->count);
	extent = &model->extents[i];
	part = random_below(2) ? extent->len : 1 + random_below(extent->len);
	if (part < extent->len && random_below(2))
		skip = extent->len - part;
	addr = extent->addr + skip;
	if (extent->kind == BALLOC_NODE && part == 1 && random_below(2)) {
		bool was_in_snapshot = random_below(2);

		CHECK(balloc_free_node(vol, addr, was_in_snapshot) == 0);
		model_set(model, addr, 1, NODE, was_in_snapshot ? DEFERRED : FREE);
	} else if (random_below(2)) {
		CHECK(balloc_defer(vol, extent->kind, addr, part, &model->deferred) == 0);
		model_set(model, addr, part, kind_state[extent->kind], DEFERRED);
	} else {
		CHECK(balloc_free(vol, extent->kind, addr, part) == 0);
		model_set(model, addr, part, kind_state[extent->kind], FREE);
	}
	if (!skip)
		extent->addr += part;
	extent->len -= part;
	if (!extent->len)
		*extent = model->extents[--model->count];
}

static void release(struct model *model, struct range_list *list)
{
	u64 blocks = 0;
	u32 i;

	for (i = 0; i < list->count; i++) {
		model_set(model, list->ranges[i].addr, list->ranges[i].len, DEFERRED, FREE);
		blocks += list->ranges[i].len;
	}
	CHECK(blocks == list->blocks);
	CHECK(balloc_release(model->vol, list) == 0);
	CHECK(!list->count && !list->blocks);
}

/* A call that must be refused and change nothing: some block is not in the state that it asks for. */
static void step_wrong(struct model *model)
{
	struct volume *vol = model->vol;
	enum balloc_kind kind = random_below(3);
	u64 addr = random_below(vol->total_blocks + 5);
	u64 len = random_below(8) ? random_below(5) : random64();
	bool right = len > 0 && addr < vol->total_blocks && len <= vol->total_blocks - addr;
	bool all_unused = right;
	u64 i;

	for (i = 0; (right || all_unused) && i < len; i++) {
		right &= kind == BALLOC_LOG ? model->state[addr + i] == LOG || model->state[addr + i] == DEFERRED :
			 model->state[addr + i] == DATA || model->state[addr + i] == NODE;
		all_unused &= !state_disk(model->state[addr + i]);
	}
	if (!right) {
		CHECK(balloc_free(vol, kind, addr, len) == -EIO);
		CHECK(balloc_defer(vol, kind, addr, len, &model->deferred) == -EIO);
	}
	if (!all_unused)
		CHECK(balloc_take(vol, addr, len) == -EIO);
}

/* Unify; some are cut off by a power failure after which the newest state comes back by replay. */
static void step_unify(struct model *model)
{
	struct volume *vol = model->vol;
	u64 groups[8];
	LIST_HEAD(writes);

	while (touched_groups(vol, groups, ARRAY_SIZE(groups)))
		;
	CHECK(balloc_snapshot(vol, ++model->delta, &writes) == 0);
	write_maps(vol, &writes);
	balloc_snapshot_done(vol, &writes, random_below(4));
}

/* Clean end and mount: only what disk says survives, and busy by settle. */
static void step_remount(struct model *model)
{
	struct volume *vol = model->vol;
	struct range_list log;
	u64 data = atomic64_read(&vol->balloc.data_used), addr;
	u32 i;

	unify(vol, ++model->delta);
	volume_remount(vol, model->delta, disk_used(vol));
	atomic64_set(&vol->balloc.data_used, data);
	range_list_exit(&model->deferred);
	for (addr = 0; addr < vol->total_blocks; addr++)
		if (model->state[addr] == DEFERRED)
			model->state[addr] = FREE;
	range_list_init(&log);
	for (i = 0; i < model->count; i++) {
		if (model->extents[i].kind != BALLOC_LOG)
			continue;
		if (random_below(2)) {
			CHECK(range_list_add(&log, model->extents[i].addr, model->extents[i].len) == 0);
		} else {
			model_set(model, model->extents[i].addr, model->extents[i].len, LOG, FREE);
			model->extents[i--] = model->extents[--model->count];
		}
	}
	CHECK(balloc_settle(vol, &log) == 0);
	range_list_exit(&log);
	verify(model);
}

/* In the middle of it all: nothing is deferred any more, but for node_frees; some log blocks are gone. */
static void step_settle(struct model *model)
{
	struct volume *vol = model->vol;
	struct range_list log;
	u32 i;

	range_list_init(&log);
	for (i = 0; i < model->count; i++) {
		struct extent *extent = &model->extents[i];

		if (extent->kind != BALLOC_LOG)
			continue;
		if (random_below(2)) {
			CHECK(range_list_add(&log, extent->addr, extent->len) == 0);
		} else {
			model_set(model, extent->addr, extent->len, LOG, FREE);
			model->extents[i--] = model->extents[--model->count];
		}
	}
	for (i = 0; i < model->deferred.count; i++)
		model_set(model, model->deferred.ranges[i].addr, model->deferred.ranges[i].len, DEFERRED, FREE);
	range_list_exit(&model->deferred);
	CHECK(balloc_settle(vol, &log) == 0);
	range_list_exit(&log);
}

/* What replay does. */
static void step_take(struct model *model)
{
	struct volume *vol = model->vol;
	u64 addr = random_below(vol->total_blocks);
	u32 len = 0, want = 1 + random_below(20);

	while (len < want && addr + len < vol->total_blocks && model->state[addr + len] == FREE)
		len++;
	if (!len || model->count == MAX_EXTENTS)
		return;
	CHECK(balloc_take(vol, addr, len) == 0);
	model_set(model, addr, len, FREE, DATA);
	model->extents[model->count++] = (struct extent){ addr, len, BALLOC_DATA };
}

/* Everything is in use by one large piece of data, but for short runs all over. */
static void model_fragment(struct model *model, u32 apart, u32 longest)
{
	struct volume *vol = model->vol;
	u64 addr, at;
	u32 len;

	while (balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0)
		model_set(model, addr, len, FREE, DATA);
	for (addr = random_below(apart); addr < vol->total_blocks; addr += 1 + random_below(apart)) {
		len = 1 + random_below(longest);
		for (at = addr; at < addr + len && at < vol->total_blocks && model->state[at] == DATA; at++) {
			CHECK(balloc_free(vol, BALLOC_DATA, at, 1) == 0);
			model->state[at] = FREE;
		}
	}
}

/* keep: only so many groups are not packed; 0: none is. */
static void run_random_packed(u64 bytes, u32 block_size, u32 steps, u32 fragments, u32 keep)
{
	struct model *model = model_make(bytes, block_size);
	struct volume *vol = model->vol;
	u32 i, fill = 50;

	vol->opts.groups_kept = keep;
	if (fragments)
		model_fragment(model, fragments, 3 * fragments / 2);
	verify(model);
	for (i = 0; i < steps; i++) {
		u32 dice = random_below(1000);

		/* Sometimes fill it up, sometimes empty it. */
		if (!random_below(300))
			fill = random_below(100);
		if (dice < 20)
			step_wrong(model);
		else if (dice < 30)
			release(model, &model->deferred);
		else if (dice < 40)
			release(model, &vol->balloc.node_frees);
		else if (dice < 45)
			step_unify(model);
		else if (dice < 47 && !fragments)
			step_remount(model);
		else if (dice < 49)
			step_settle(model);
		else if (dice < 60)
			step_take(model);
		else if (dice % 100 < fill)
			step_alloc(model);
		else
			step_free(model);
		if (!random_below(fragments ? 20 : 100))
			verify(model);
	}
	verify(model);
	CHECK(!keep || vol->balloc.packed);
	model_drop(model);
}

static void run_random(u64 bytes, u32 block_size, u32 steps, u32 fragments)
{
	run_random_packed(bytes, block_size, steps, fragments, 0);
}

/* Groups that cannot be dropped are packed, and come back as they were. */
static void test_random_packed(void **unused)
{
	random_start("test_random_packed", 9);
	run_random_packed(10 * 126 * MIB, 4096, 1500, 0, 4);
	run_random_packed(10 * 126 * MIB, 4096, 1000, 3, 4);
	run_random_packed(10 * 126 * MIB, 4096, 1000, 40, 4);
}

static void test_random_fragmented(void **unused)
{
	u32 i;

	random_start("test_random_fragmented", 8);
	for (i = 0; i < 12; i++)
		run_random(i % 3 ? 60 * MIB : 140 * MIB, 4096, 2000, 3 + 3 * i);
}

static void test_random(void **unused)
{
	u64 group = (4096 - 64) * 8 * 4096ULL, large = (65536 - 64) * 8 * 65536ULL;
	static const u32 rest_kib[] = { 64, 128, 192, 6400 };
	u32 i;

	random_start("test_random", 1);
	for (i = 0; i < 4; i++) {
		run_random(4 * MIB, 4096, 6000, 0);
		run_random(4 * MIB, 65536, 6000, 0);
		run_random(3 * group + rest_kib[i] * KIB, 4096, 3000, 0);
		run_random(large + (i + 1) * 64 * KIB, 65536, 1000, 0);
	}
	run_random(group, 4096, 6000, 0);
	run_random(group + 16 * MIB, 4096, 6000, 0);
}

/* ---- geometry ---- */

static void test_geometry(void **unused)
{
	static const u32 sizes[] = { 4096, 65536 };
	struct volume *vol = calloc(1, sizeof(*vol));
	u32 i, rest;

	random_start("test_geometry", 0);
	for (i = 0; i < 2; i++) {
		u32 unit = 65536 / sizes[i];

		for (rest = 0; rest < 6; rest++) {
			u64 addr, fixed = 0, total;

			volume_geometry(vol, 2 * (sizes[i] - 64) * 8ULL * sizes[i] + rest * 65536ULL, sizes[i]);
			total = vol->total_blocks;
			for (addr = 0; addr < total; addr++) {
				bool expect = addr < 3 * unit + 2 || addr >= total - 2 * unit ||
					      (addr >= vol->group_blocks && addr % vol->group_blocks < 2);

				CHECK(balloc_is_fixed(vol, addr) == expect);
				fixed += expect;
			}
			CHECK(balloc_is_fixed(vol, total));
			CHECK(balloc_fixed_blocks(vol) == fixed);
		}
		CHECK(balloc_slot_addr(vol, 0, 1) == 196608 / sizes[i] + 1);
		CHECK(balloc_slot_addr(vol, 2, 1) == 2 * vol->group_blocks + 1);
	}
	volume_geometry(vol, 1000 * TIB, 4096);
	CHECK(balloc_fixed_blocks(vol) == 50 + 2 * (vol->group_count - 1) + 32);
	vol->total_blocks = 1ULL << 52;
	CHECK(balloc_init(vol, 100) == -EFBIG);
	vol->total_blocks = 100;
	CHECK(balloc_init(vol, 50) == -EINVAL);
	free(vol);
}

/* ---- maps on disk ---- */

static bool in_use(struct volume *vol, u64 addr)
{
	return balloc_test(vol, addr, 1) == 1;
}

static u64 snapshot_crash(struct volume *vol, u64 delta)
{
	LIST_HEAD(writes);
	u64 addr;

	CHECK(balloc_snapshot(vol, delta, &writes) == 0);
	CHECK(!list_empty(&writes));
	addr = list_first_entry(&writes, struct map_write, link)->addr;
	write_maps(vol, &writes);
	balloc_snapshot_done(vol, &writes, false);
	return addr;
}

static u64 slot_delta(struct volume *vol, u64 group, unsigned int slot)
{
	struct disk_map map;

	memcpy(&map, (u8 *)device_memory_bytes(vol->dev) + (balloc_slot_addr(vol, group, slot) << vol->block_shift),
	       sizeof(map));
	return le64_to_cpu(map.delta);
}

static void test_slots(void **unused)
{
	struct volume *vol = volume_make(256 * MIB, 4096);
	u64 fixed = disk_used(vol), a, b, slot0 = balloc_slot_addr(vol, 0, 0), slot1 = slot0 + 1;

	random_start("test_slots", 0);
	a = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	/* Cut off before the first anchor: as if never. */
	CHECK(snapshot_crash(vol, 1) == slot0);
	volume_replay(vol, 0, fixed, 0);
	CHECK(!in_use(vol, a));
	a = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	/* Both left-over slots are overwritten. */
	CHECK(snapshot_crash(vol, 1) == slot0);
	unify(vol, 2);
	CHECK(slot_delta(vol, 0, 0) == 2 && slot_delta(vol, 0, 1) == 2);
	volume_remount(vol, 2, fixed + 1);
	CHECK(in_use(vol, a));
	b = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	CHECK(b != a);
	CHECK(snapshot_crash(vol, 3) == slot1);
	CHECK(slot_delta(vol, 0, 0) == 2 && slot_delta(vol, 0, 1) == 3);
	volume_remount(vol, 2, fixed + 1);
	CHECK(balloc_note_in_log(vol, 0) == 0);
	CHECK(in_use(vol, a) && !in_use(vol, b));
	/* Nothing was changed, but the left-over must not come back to life when anchor 4 overtakes it. */
	CHECK(snapshot_crash(vol, 4) == slot1);
	unify(vol, 4);
	volume_remount(vol, 4, fixed + 1);
	CHECK(in_use(vol, a) && !in_use(vol, b));
	/* The same, where nobody loads the group but for replay. */
	b = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	CHECK(snapshot_crash(vol, 5) == slot0);
	volume_replay(vol, 4, fixed + 1, 0);
	unify(vol, 6);
	volume_remount(vol, 6, fixed + 1);
	CHECK(in_use(vol, a) && !in_use(vol, b));
	CHECK(balloc_touch(vol, vol->group_count) == -EIO);
	/* Touched is enough to be written. */
	CHECK(balloc_touch(vol, 1) == 0);
	CHECK(vol->balloc.changed_count == 1);
	CHECK(snapshot_crash(vol, 7) == balloc_slot_addr(vol, 1, 0));
	volume_drop(vol);
}

/* A slot damaged while it was written, or a left-over: the other one counts. */
static void test_slots_torn(void **unused)
{
	struct volume *vol = volume_make(256 * MIB, 4096);
	u64 fixed = disk_used(vol), a;
	u8 *bytes = device_memory_bytes(vol->dev);

	random_start("test_slots_torn", 0);
	a = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	unify(vol, 1);
	alloc_exactly(vol, BALLOC_NODE, 0, 1);
	snapshot_crash(vol, 2);
	bytes[balloc_slot_addr(vol, 0, 1) * 4096 + 3000] ^= 4;
	volume_replay(vol, 1, fixed + 1, 0);
	CHECK(in_use(vol, a));
	CHECK(!in_use(vol, a + 1));
	CHECK(vol->balloc.changed_count == 1);
	unify(vol, 3);
	CHECK(slot_delta(vol, 0, 0) == 1 && slot_delta(vol, 0, 1) == 3);
	volume_remount(vol, 3, fixed + 1);
	CHECK(in_use(vol, a));
	/* Written for the first time, both may be torn. */
	a = alloc_exactly(vol, BALLOC_NODE, vol->group_blocks + 10, 1);
	snapshot_crash(vol, 4);
	bytes[balloc_slot_addr(vol, 1, 0) * 4096 + 3000] ^= 4;
	bytes[balloc_slot_addr(vol, 1, 1) * 4096 + 3000] ^= 4;
	volume_replay(vol, 3, fixed + 1, 1);
	CHECK(!in_use(vol, a));
	unify(vol, 5);
	CHECK(slot_delta(vol, 1, 0) == 5 && slot_delta(vol, 1, 1) == 5);
	volume_remount(vol, 5, fixed + 1);
	CHECK(!in_use(vol, a));
	volume_drop(vol);
}

/* Nothing is allocated or freed in this group, and it is said why. */
static void check_group_damaged(struct volume *vol, u64 group, const char *why)
{
	u64 start = balloc_group_start(vol, group), addr;
	struct range_list list;
	u32 len;
	u8 bits[4096];

	CHECK(balloc_copy_group(vol, group, bits) == -EIO);
	CHECK(strstr(last_message, why) && strstr(last_message, "until it is repaired"));
	CHECK(vol->balloc.bad_groups == 1);
	CHECK(balloc_alloc(vol, BALLOC_DATA, start + 1000, 1, 10, &addr, &len) == 0);
	CHECK(addr / vol->group_blocks != group);
	CHECK(balloc_free(vol, BALLOC_DATA, addr, len) == 0);
	range_list_init(&list);
	CHECK(balloc_free(vol, BALLOC_DATA, start + 1000, 1) == -EIO);
	CHECK(balloc_defer(vol, BALLOC_DATA, start + 1000, 1, &list) == -EIO);
	CHECK(balloc_take(vol, start + 1000, 1) == -EIO);
	CHECK(!list.count);
}

/* One slot of a group of a volume that was unified: bad only if the log does not name the group. */
static void check_slot_rot(struct volume *vol, u64 group, unsigned int slot, u64 delta, u64 used)
{
	static const struct { u32 from, len; const char *why; } rots[] = {
		{ 2000, 1, "checksum" }, { 0, 1, "magic" }, { 8, 1, "volume" }, { 0, 4096, "magic" }, { 32, 1, "checksum" },
	};
	u8 *at = (u8 *)device_memory_bytes(vol->dev) + balloc_slot_addr(vol, group, slot) * 4096, saved[4096];
	bool current = slot_delta(vol, group, slot) == delta;
	u32 i, n;

	memcpy(saved, at, 4096);
	for (i = 0; i < ARRAY_SIZE(rots); i++) {
		for (n = 0; n < rots[i].len; n++)
			at[rots[i].from + n] ^= 0x10;
		volume_remount(vol, delta, used);
		check_group_damaged(vol, group, rots[i].why);
		CHECK(balloc_test(vol, balloc_group_start(vol, !group) + 1000, 1) == 1);
		/* One that a unify may have been writing. */
		volume_remount(vol, delta, used);
		CHECK(balloc_note_in_log(vol, group) == 0);
		CHECK(balloc_test(vol, balloc_group_start(vol, group) + 1000, 1) == !current);
		/* Nobody knows, nobody writes. */
		volume_remount(vol, delta, used);
		balloc_note_log_unread(vol, true);
		CHECK(balloc_test(vol, balloc_group_start(vol, group) + 1000, 1) == !current);
		memcpy(at, saved, 4096);
	}
	volume_remount(vol, delta, used);
	CHECK(balloc_test(vol, balloc_group_start(vol, group) + 1000, 1) == 1);
}

static void test_slots_rot(void **unused)
{
	struct volume *vol = volume_make(3 * (4096 - 64) * 8 * 4096ULL, 4096);
	u8 *bytes = device_memory_bytes(vol->dev), *unused_slot = bytes + balloc_slot_addr(vol, 2, 1) * 4096;
	u64 used, group;
	u32 slot, len;
	u64 addr;

	random_start("test_slots_rot", 0);
	for (group = 0; group < 2; group++)
		alloc_exactly(vol, BALLOC_DATA, group * vol->group_blocks + 500, 1);
	unify(vol, 1);
	for (group = 0; group < 2; group++)
		alloc_exactly(vol, BALLOC_DATA, group * vol->group_blocks + 1000, 1);
	unify(vol, 2);
	used = disk_used(vol);
	for (group = 0; group < 2; group++)
		for (slot = 0; slot < 2; slot++)
			check_slot_rot(vol, group, slot, 2, used);
	/* Newer than the anchor: only where the log names the group. */
	volume_remount(vol, 1, used - 2);
	check_group_damaged(vol, 0, "newer than the anchor's");
	volume_replay(vol, 1, used - 2, 0);
	CHECK(balloc_test(vol, 1000, 1) == 0 && balloc_test(vol, 500, 1) == 1);
	/* Never written: whatever is there that is not of this volume. */
	memset(unused_slot, 0xa5, 4096);
	memcpy(unused_slot - 4096, bytes + balloc_slot_addr(vol, 1, 0) * 4096, 4096);
	unused_slot[8 - 4096] ^= 1;
	volume_remount(vol, 2, used);
	CHECK(balloc_test(vol, 2 * vol->group_blocks + 1000, 1) == 0);
	/* A map of this volume in the wrong place. */
	unused_slot[8 - 4096] ^= 1;
	volume_remount(vol, 2, used);
	check_group_damaged(vol, 2, "was written for group 1");
	/* Neither can be recognised by its magic, but by its volume. */
	bytes[balloc_slot_addr(vol, 1, 0) * 4096] ^= 1;
	bytes[balloc_slot_addr(vol, 1, 1) * 4096] ^= 1;
	volume_remount(vol, 2, used);
	check_group_damaged(vol, 1, "magic");
	/* If there is nothing else, it is said that there might be. */
	CHECK(balloc_alloc(vol, BALLOC_DATA, 0, vol->group_blocks - 10, vol->group_blocks, &addr, &len) == -EIO);
	CHECK(balloc_note_in_log(vol, vol->group_count) == 0);
	volume_drop(vol);
}

/* Groups dropped from memory and loaded again while a snapshot is written, and after. */
static void test_slots_evicted(void **unused)
{
	struct volume *vol = volume_make(4 * TIB, 65536);
	u64 group, used, place = 1000;
	LIST_HEAD(writes);
	u64 touched[8];

	random_start("test_slots_evicted", 0);
	if (!vol)
		skip();
	CHECK(vol->group_count > 120);
	for (group = 0; group < 110; group++)
		alloc_exactly(vol, BALLOC_DATA, group * vol->group_blocks + place, 1);
	unify(vol, 1);
	used = disk_used(vol);
	/* Cut off: groups 0 and 120. */
	alloc_exactly(vol, BALLOC_DATA, place + 1, 1);
	alloc_exactly(vol, BALLOC_DATA, 120 * vol->group_blocks + place, 1);
	snapshot_crash(vol, 2);
	volume_remount(vol, 1, used);
	CHECK(balloc_note_in_log(vol, 0) == 0 && balloc_note_in_log(vol, 120) == 0);
	CHECK(balloc_touch(vol, 0) == 0 && balloc_touch(vol, 120) == 0);
	alloc_exactly(vol, BALLOC_DATA, 1 * vol->group_blocks + place + 1, 1);
	for (group = 0; group < 110; group++)
		CHECK(in_use(vol, group * vol->group_blocks + place));
	while (touched_groups(vol, touched, 8))
		;
	CHECK(balloc_snapshot(vol, 3, &writes) == 0);
	for (group = 0; group < 110; group++)
		CHECK(in_use(vol, group * vol->group_blocks + place));
	CHECK(vol->balloc.loaded < 100);
	write_maps(vol, &writes);
	balloc_snapshot_done(vol, &writes, true);
	for (group = 0; group < 220; group++)
		CHECK(in_use(vol, group % 110 * vol->group_blocks + place));
	CHECK(balloc_test(vol, 120 * vol->group_blocks + place, 1) == 0);
	CHECK(balloc_test(vol, place + 1, 1) == 0);
	CHECK(balloc_test(vol, vol->group_blocks + place + 1, 1) == 1);
	volume_remount(vol, 3, used + 1);
	for (group = 0; group < vol->group_count; group++)
		CHECK(balloc_test(vol, group * vol->group_blocks + place, 1) == (group < 110));
	volume_drop(vol);
}

/* ---- many unifies, some of them cut off ---- */

#define CUT_GROUPS	4u
#define CUT_STEPS	1000u

/* What a volume does with its log, without a log. */
struct history {
	struct volume *vol;
	bool *data;			/* of each block: holds data now */
	bool in_log[CUT_GROUPS];
	bool written[CUT_GROUPS];	/* at the anchor */
	u64 steps[CUT_STEPS];		/* blocks allocated or freed since the anchor */
	u32 count, logged;
	u64 delta, anchor_delta, anchor_used;
};

static void history_step(struct history *history, u64 group)
{
	struct volume *vol = history->vol;
	u64 addr = group * vol->group_blocks + 1000 + random_below(30);

	if (history->count == CUT_STEPS)
		return;
	if (history->data[addr])
		CHECK(balloc_free(vol, BALLOC_DATA, addr, 1) == 0);
	else
		CHECK(balloc_take(vol, addr, 1) == 0);
	history->data[addr] = !history->data[addr];
	history->steps[history->count++] = addr;
}

/* A commit, if there is anything to log. */
static void history_log(struct history *history)
{
	bool any = history->count > history->logged;
	u64 groups[64];
	u32 count;

	while ((count = touched_groups(history->vol, groups, ARRAY_SIZE(groups)))) {
		CHECK(count <= ARRAY_SIZE(groups));
		while (count)
			any = history->in_log[groups[--count]] = true;
	}
	history->delta += any;
	history->logged = history->count;
}

static void history_verify(struct history *history)
{
	struct volume *vol = history->vol;
	u64 group, i;

	for (group = 0; group < CUT_GROUPS; group++)
		for (i = 990; i < 1040; i++)
			CHECK(balloc_test(vol, group * vol->group_blocks + i, 1) ==
			      history->data[group * vol->group_blocks + i]);
}

static void history_crash(struct history *history)
{
	struct volume *vol = history->vol;
	u32 i, count = history->count;
	u64 group;

	volume_remount(vol, history->anchor_delta, history->anchor_used);
	for (group = 0; group < CUT_GROUPS; group++)
		if (history->in_log[group])
			CHECK(balloc_note_in_log(vol, group) == 0);
	for (i = count; i-- > 0;)
		history->data[history->steps[i]] = !history->data[history->steps[i]];
	history_verify(history);
	for (group = 0; group < CUT_GROUPS; group++)
		if (history->in_log[group])
			CHECK(balloc_touch(vol, group) == 0);
	for (i = 0; i < count; i++) {
		u64 addr = history->steps[i];

		CHECK((history->data[addr] ? balloc_free(vol, BALLOC_DATA, addr, 1) : balloc_take(vol, addr, 1)) == 0);
		history->data[addr] = !history->data[addr];
	}
	history_verify(history);
}

/* Each write is done, not done, or half done. */
static void write_some_maps(struct volume *vol, struct list_head *writes)
{
	struct map_write *write;

	list_for_each_entry(write, writes, link) {
		u8 *at = (u8 *)device_memory_bytes(vol->dev) + write->addr * 4096;
		u32 from = 512 * random_below(8), to = random_below(2) ? 4096 : from + 512;

		if (random_below(2))
			from = 0;
		if (random_below(3))
			memcpy(at + from, (u8 *)write->data + from, to - from);
	}
}

static void history_unify(struct history *history, bool cut)
{
	struct volume *vol = history->vol;
	bool in_log[CUT_GROUPS];
	LIST_HEAD(writes);
	u64 used, group;
	u32 begun;

	CHECK(list_empty(&vol->balloc.untold));
	CHECK(balloc_snapshot(vol, history->delta, &writes) == 0);
	used = disk_used(vol);
	begun = history->count;
	memcpy(in_log, history->in_log, sizeof(in_log));
	if (random_below(2)) {		/* commits go on meanwhile */
		u64 delta = history->delta;

		history_step(history, random_below(CUT_GROUPS));
		memset(history->in_log, 0, sizeof(in_log));
		history_log(history);
		if (!cut) {
			write_maps(vol, &writes);
			balloc_snapshot_done(vol, &writes, true);
			history->anchor_delta = delta;
		}
	} else if (!cut) {
		write_maps(vol, &writes);
		balloc_snapshot_done(vol, &writes, true);
		history->anchor_delta = history->delta;
		memset(history->in_log, 0, sizeof(in_log));
	}
	if (cut) {
		write_some_maps(vol, &writes);
		balloc_snapshot_done(vol, &writes, false);
		for (group = 0; group < CUT_GROUPS; group++)
			history->in_log[group] |= in_log[group];
		history_crash(history);
		return;
	}
	history->anchor_used = used;
	history->count -= begun;
	history->logged = history->count;
	memmove(history->steps, history->steps + begun, history->count * sizeof(u64));
	for (group = 0; group < CUT_GROUPS; group++)
		history->written[group] |= in_log[group];
}

/* One flipped bit in any slot of a group not in the log is found. */
static void history_rot(struct history *history)
{
	struct volume *vol = history->vol;
	u64 group = random_below(CUT_GROUPS), addr = balloc_slot_addr(vol, group, random_below(2));
	u8 *at = (u8 *)device_memory_bytes(vol->dev) + addr * 4096 + random_below(4096), bit = 1 << random_below(8);

	*at ^= bit;
	volume_remount(vol, history->anchor_delta, history->anchor_used);
	CHECK(balloc_test(vol, group * vol->group_blocks + 1000, 1) == -EIO ||
	      !history->written[group] || history->in_log[group]);
	*at ^= bit;
	history_crash(history);
}

static void test_cut_off(void **unused)
{
	struct history *history = calloc(1, sizeof(*history));
	struct volume *vol = volume_make(CUT_GROUPS * (4096 - 64) * 8 * 4096ULL, 4096);
	u32 round, i, step;

	random_start("test_cut_off", 11);
	for (round = 0; round < 200; round++) {
		memset(history, 0, sizeof(*history));
		history->vol = vol;
		history->data = calloc(vol->total_blocks, 1);
		memset((u8 *)device_memory_bytes(vol->dev), 0, 4096 * 100);
		for (i = 1; i < CUT_GROUPS; i++)
			memset((u8 *)device_memory_bytes(vol->dev) + balloc_slot_addr(vol, i, 0) * 4096, 0, 8192);
		volume_remount(vol, 0, balloc_fixed_blocks(vol));
		history->anchor_used = balloc_fixed_blocks(vol);
		for (step = 0; step < 30; step++) {
			for (i = random_below(4); i > 0; i--)
				history_step(history, random_below(CUT_GROUPS));
			history_log(history);
			switch (random_below(6)) {
			case 0: history_unify(history, false); break;
			case 1: case 2: history_unify(history, true); break;
			case 3: history_crash(history); break;
			case 4: history_rot(history); break;
			}
		}
		history_verify(history);
		free(history->data);
	}
	free(history);
	volume_drop(vol);
}

static void test_snapshot(void **unused)
{
	struct volume *vol = volume_make(256 * MIB, 4096);
	struct map_write *write;
	struct range_list list;
	LIST_HEAD(writes);
	LIST_HEAD(none);
	u64 a, b, groups[4];
	u8 *bits = malloc(4096 - 64);

	random_start("test_snapshot", 0);
	range_list_init(&list);
	CHECK(touched_groups(vol, groups, 4) == 0);
	a = alloc_exactly(vol, BALLOC_DATA, 100, 10);
	CHECK(touched_groups(vol, groups, 4) == 1 && groups[0] == 0);
	b = alloc_exactly(vol, BALLOC_NODE, 200, 10);
	CHECK(touched_groups(vol, groups, 4) == 0);
	CHECK(balloc_snapshot(vol, 7, &writes) == 0);
	CHECK(balloc_snapshot(vol, 8, &none) == -EBUSY && list_empty(&none));
	/* Freed while the snapshot is on its way: in the map, and in the next one not. */
	CHECK(balloc_defer(vol, BALLOC_DATA, a, 10, &list) == 0);
	CHECK(balloc_free(vol, BALLOC_NODE, b, 5) == 0);
	CHECK(touched_groups(vol, groups, 4) == 1);
	write = list_first_entry(&writes, struct map_write, link);
	CHECK(write->group == 0);
	memcpy(bits, (u8 *)write->data + 64, 4096 - 64);
	CHECK(bits[a / 8] & 1 << a % 8 && bits[b / 8] & 1 << b % 8);
	write_maps(vol, &writes);
	balloc_snapshot_done(vol, &writes, true);
	CHECK(list_empty(&writes) && vol->balloc.changed_count == 1);
	CHECK(balloc_copy_group(vol, 0, bits) == 0);
	CHECK(!(bits[a / 8] & 1 << a % 8) && !(bits[b / 8] & 1 << b % 8));
	CHECK(balloc_test(vol, b, 10) == -ERANGE && balloc_test(vol, b + 5, 5) == 1 && balloc_test(vol, b, 5) == 0);
	/* Not for the same delta again, not without a change. */
	CHECK(balloc_snapshot(vol, 7, &writes) == -EINVAL);
	unify(vol, 8);
	CHECK(vol->balloc.changed_count == 0);
	CHECK(balloc_snapshot(vol, 9, &writes) == 0 && list_empty(&writes));
	balloc_snapshot_done(vol, &writes, true);
	CHECK(balloc_release(vol, &list) == 0);
	range_list_exit(&list);
	free(bits);
	volume_drop(vol);
}

static u32 map_crc_of(u8 *data, u32 bytes)
{
	struct disk_map *map = (struct disk_map *)data;

	map->crc = 0;
	return crc32c(~0u, data, bytes);
}

static void check_map_refused(struct volume *vol, u64 group, u8 *slot, u32 byte, u8 flip)
{
	struct disk_map *map = (struct disk_map *)slot;
	char why[100];
	u8 bits[4096];

	slot[byte] ^= flip;
	map->crc = cpu_to_le32(map_crc_of(slot, 4096));
	volume_remount(vol, 1, 1000);
	CHECK(map_check(vol, slot, balloc_slot_addr(vol, group, 0), group, why, sizeof(why)) == -EIO);
	CHECK(balloc_copy_group(vol, group, bits) == -EIO);
	CHECK(balloc_free(vol, BALLOC_DATA, group * vol->group_blocks + 1000, 1) == -EIO);
	slot[byte] ^= flip;
	map->crc = cpu_to_le32(map_crc_of(slot, 4096));
}

/* What is sealed but cannot be is refused, and allocation goes elsewhere. */
static void test_map_nonsense(void **unused)
{
	struct volume *vol = volume_make((4096 - 64) * 8 * 4096ULL + 64 * MIB, 4096);
	u64 second = vol->group_blocks;
	u8 *bytes = device_memory_bytes(vol->dev), *slot0 = bytes + balloc_slot_addr(vol, 0, 0) * 4096;
	u8 *slot1 = bytes + second * 4096;
	u64 addr;
	u32 len, length = group_length(vol, 1);

	random_start("test_map_nonsense", 0);
	alloc_exactly(vol, BALLOC_DATA, second + 10, 1);
	alloc_exactly(vol, BALLOC_DATA, 1000, 1);
	unify(vol, 1);
	check_map_refused(vol, 0, slot0, 64 + 49 / 8, 1 << 49 % 8);
	check_map_refused(vol, 1, slot1, 64, 2);
	check_map_refused(vol, 1, slot1, 64 + (length - 1) / 8, 1 << (length - 1) % 8);
	check_map_refused(vol, 1, slot1, 64 + length / 8, 1 << length % 8);
	check_map_refused(vol, 1, slot1, 4095, 0x80);
	check_map_refused(vol, 1, slot1, 64 + 100, 1);		/* the count is wrong then */
	check_map_refused(vol, 1, slot1, 60, 1);		/* spare */
	volume_remount(vol, 1, 1000);
	slot0[64 + 6] ^= 1;
	((struct disk_map *)slot0)->crc = cpu_to_le32(map_crc_of(slot0, 4096));
	CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, 10, &addr, &len) == 0 && addr >= second);
	CHECK(balloc_alloc(vol, BALLOC_NODE, 0, 1, 10, &addr, &len) == 0 && addr >= second);
	CHECK(balloc_alloc(vol, BALLOC_LOG, 100, 1, 10, &addr, &len) == 0 && addr >= second);
	CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 30000, 30000, &addr, &len) == -EIO);
	volume_drop(vol);
}

static void test_corruption(void **unused)
{
	struct volume *vol = volume_make(4 * MIB, 4096);
	u8 *bytes = device_memory_bytes(vol->dev), *slots = bytes + balloc_slot_addr(vol, 0, 0) * 4096;
	u8 *good = malloc(8192), bits[4096];
	u64 addr, used;
	u32 round, i, len;

	random_start("test_corruption", 2);
	alloc_exactly(vol, BALLOC_DATA, 0, 100);
	unify(vol, 1);
	alloc_exactly(vol, BALLOC_DATA, 0, 100);
	unify(vol, 2);
	used = disk_used(vol);
	memcpy(good, slots, 8192);
	for (round = 0; round < 2000; round++) {
		u32 flips = 1 + random_below(4);

		memcpy(slots, good, 8192);
		for (i = 0; i < flips; i++)
			slots[random_below(8192)] ^= 1 << random_below(8);
		volume_remount(vol, 2, used);
		if (balloc_copy_group(vol, 0, bits) == 0) {
			CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, 50, &addr, &len) == 0);
			CHECK(!balloc_is_fixed(vol, addr));
			CHECK(balloc_free(vol, BALLOC_DATA, addr, len) == 0);
		}
	}
	free(good);
	volume_drop(vol);
}

/* ---- policy ---- */

struct file {
	u64 end;		/* where its last allocation ended */
	u32 extents;
	u64 blocks;
};

static void file_append(struct volume *vol, struct file *file, u32 want)
{
	while (want) {
		u64 addr;
		u32 len;

		CHECK(balloc_alloc(vol, BALLOC_DATA, file->end, 1, want, &addr, &len) == 0);
		file->extents += addr != file->end;
		file->end = addr + len;
		file->blocks += len;
		want -= len;
	}
}

static void grow_files(u32 count, u32 want, u32 rounds, u32 allowed)
{
	struct volume *vol = volume_make(16 * GIB, 4096);
	struct file files[32] = {};
	u32 i, round, most = 0;

	for (round = 0; round < rounds; round++)
		for (i = 0; i < count; i++)
			file_append(vol, &files[i], want);
	for (i = 0; i < count; i++)
		most = max(most, files[i].extents);
	print_message("  %2u files growing by %4u blocks %5u times in turn: at most %u extents each\n", count, want, rounds, most);
	CHECK(most <= allowed);
	volume_drop(vol);
}

static void test_growing_files(void **unused)
{
	random_start("test_growing_files", 0);
	grow_files(1, 16, 4000, 4);
	grow_files(2, 1, 20000, 16);
	grow_files(2, 16, 4000, 20);
	grow_files(2, 1000, 200, 40);
	grow_files(8, 16, 4000, 30);
	grow_files(25, 4, 4000, 30);
}

/* New files are packed, whatever else goes on: growing files, nodes, log. */
static void test_small_files(void **unused)
{
	struct volume *vol = volume_make(2 * GIB, 4096);
	struct file grower = {};
	u64 addr, last = 0, low = U64_MAX, high = 0, sum = 0, jumps = 0;
	u32 i, len;

	random_start("test_small_files", 3);
	for (i = 0; i < 10000; i++) {
		u32 want = 1 + random_below(8);

		CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, want, &addr, &len) == 0);
		CHECK(len == want);
		jumps += addr != last;
		last = addr + len;
		low = min(low, addr);
		high = max(high, last);
		sum += len;
		CHECK(balloc_alloc(vol, BALLOC_NODE, 0, 1, 1, &addr, &len) == 0);
		if (i % 4 == 0)
			CHECK(balloc_alloc(vol, BALLOC_LOG, 0, 1, 1, &addr, &len) == 0);
		if (i % 8 == 0)
			file_append(vol, &grower, 16);
	}
	print_message("  10000 small files: %llu blocks within %llu, %llu jumps; a file growing at the same time: %u extents of %llu blocks in all\n",
	       (unsigned long long)sum, (unsigned long long)(high - low), (unsigned long long)jumps, grower.extents,
	       (unsigned long long)grower.blocks);
	CHECK(jumps <= 40);
	CHECK(grower.extents <= 12);
	volume_drop(vol);
}

/* ---- limits ---- */

static void test_full(void **unused)
{
	static const u32 sizes[] = { 4096, 65536 };
	u32 i;

	random_start("test_full", 4);
	for (i = 0; i < 2; i++) {
		struct volume *vol = volume_make(i ? 64 * MIB : 300 * MIB, sizes[i]);
		u64 room = vol->total_blocks - balloc_fixed_blocks(vol), sum = 0, addr, some = 0;
		u32 len;
		int err;

		CHECK(free_blocks(vol) == room);
		for (;;) {
			enum balloc_kind kind = random_below(3);

			err = balloc_alloc(vol, kind, random_below(2) ? 0 : addr, 1, 1 + random_below(100), &addr, &len);
			if (err)
				break;
			sum += len;
			if (kind == BALLOC_DATA && len > 2)
				some = addr;
		}
		CHECK(err == -ENOSPC && sum == room && free_blocks(vol) == 0);
		CHECK(balloc_alloc(vol, BALLOC_LOG, 0, 1, 1, &addr, &len) == -ENOSPC);
		CHECK(balloc_free(vol, BALLOC_DATA, some, 1) == 0);
		CHECK(balloc_free(vol, BALLOC_DATA, some + 2, 1) == 0);
		CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 2, 2, &addr, &len) == -ENOSPC);
		CHECK(balloc_free(vol, BALLOC_DATA, some + 1, 1) == 0);
		CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 3, 300, &addr, &len) == 0 && addr == some && len == 3);
		CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, 1, &addr, &len) == -ENOSPC);
		volume_drop(vol);
	}
}

/* A single free block on a volume of which nothing is loaded is found. */
static void test_last_block(void **unused)
{
	struct volume *vol = volume_make(300 * GIB, 4096);
	u64 kept = GROUPS_KEPT_BYTES / (4096 - 64) / 2 + 1;
	u64 addr, only = 1234 * (u64)vol->group_blocks + 777, loads;
	u32 len;

	random_start("test_last_block", 0);
	while (balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0)
		;
	CHECK(balloc_free(vol, BALLOC_DATA, only, 1) == 0);
	CHECK(vol->balloc.loaded == vol->group_count);
	unify(vol, 1);
	/* Clean groups are given back. */
	CHECK(vol->balloc.loaded <= kept);
	CHECK(balloc_test(vol, only, 1) == 0);
	CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, 1, &addr, &len) == 0 && addr == only);
	CHECK(balloc_free(vol, BALLOC_DATA, only, 1) == 0);
	unify(vol, 2);
	volume_remount(vol, 2, disk_used(vol));
	CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, 1, &addr, &len) == 0 && addr == only);
	CHECK(vol->balloc.loaded <= kept);
	CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, 1, &addr, &len) == -ENOSPC);
	CHECK(vol->balloc.loaded <= kept);
	loads = atomic64_read(&vol->balloc.group_loads);
	CHECK(balloc_alloc(vol, BALLOC_NODE, 0, 1, 1, &addr, &len) == -ENOSPC);
	CHECK((u64)atomic64_read(&vol->balloc.group_loads) == loads);
	CHECK(balloc_test(vol, 100 * (u64)vol->group_blocks, vol->group_blocks) == 1);
	volume_drop(vol);
}

static void test_huge(void **unused)
{
	struct volume *vol = volume_make(10 * TIB, 4096);
	struct file files[2] = {};
	u64 addr, sum = 0;
	u32 i, len;
	double begun;

	random_start("test_huge", 5);
	if (!vol)
		skip();
	CHECK(vol->group_count > 80000);
	for (i = 0; i < 2000; i++) {
		file_append(vol, &files[i & 1], 1000);
		CHECK(balloc_alloc(vol, BALLOC_NODE, 0, 1, 1, &addr, &len) == 0);
	}
	/* 7.8 GiB in all: about 64 groups. */
	CHECK(atomic64_read(&vol->balloc.group_loads) < 100);
	CHECK(alloc_exactly(vol, BALLOC_LOG, vol->total_blocks - 10000, 5) == vol->total_blocks - 10000);
	volume_drop(vol);

	vol = volume_make(10 * TIB, 65536);
	CHECK(vol->group_count > 300);
	for (i = 0; i < 100; i++) {
		CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0);
		CHECK(len > 500000);
		sum += len;
	}
	begun = now_s();
	unify(vol, 1);
	print_message("  snapshot of %llu maps of 64 KiB: %.1f ms\n", (unsigned long long)vol->balloc.loaded, (now_s() - begun) * 1e3);
	CHECK(vol->balloc.loaded <= 101);
	CHECK(free_blocks(vol) == vol->total_blocks - balloc_fixed_blocks(vol) - sum);
	volume_drop(vol);
}

/* ---- speed ---- */

#ifdef __SANITIZE_THREAD__
#define SLOWNESS 10u
#else
#define SLOWNESS 1u
#endif

static void time_allocs(struct volume *vol, const char *what, u32 count, u32 most)
{
	struct extent *live = calloc(1000, sizeof(*live));
	double begun = now_s(), longest = 0, each;
	u64 blocks = 0;
	u32 i;

	count /= SLOWNESS;
	for (i = 0; i < count; i++) {
		struct extent *extent = &live[random_below(1000)];
		double start = now_s();

		if (extent->len)
			CHECK(balloc_free(vol, BALLOC_DATA, extent->addr, extent->len) == 0);
		CHECK(balloc_alloc(vol, BALLOC_DATA, random_below(2) ? 0 : live[0].addr, 1, 1 + random_below(most),
				   &extent->addr, &extent->len) == 0);
		blocks += extent->len;
		longest = max(longest, now_s() - start);
	}
	each = (now_s() - begun) / count;
	print_message("  %-50s %7.2f us for freeing and allocating, longest %.1f ms, %.1f blocks each\n", what, each * 1e6,
	       longest * 1e3, (double)blocks / count);
	CHECK(each < 2e-3);
	free(live);
}

static void test_speed(void **unused)
{
	struct volume *vol = volume_make(1 * TIB, 4096);
	u64 addr, i, loads;
	u32 len;
	double begun = now_s();

	random_start("test_speed", 6);
	if (!vol)
		skip();
	time_allocs(vol, "1 TiB, empty, up to 16 blocks", 100000, 16);
	while (balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0)
		;
	CHECK(free_blocks(vol) == 0);
	/* 1 % free, in runs of up to 8 blocks. */
	for (i = 0; i < vol->total_blocks / 400; i++) {
		addr = random_below(vol->total_blocks - 8);
		len = 1 + random_below(8);
		if (balloc_test(vol, addr, len) == 1 && !balloc_is_fixed(vol, addr) && !balloc_is_fixed(vol, addr + len - 1) &&
		    addr % vol->group_blocks + len < vol->group_blocks)
			CHECK(balloc_free(vol, BALLOC_DATA, addr, len) == 0);
	}
	print_message("  filled in %.1f s, %llu blocks are free\n", now_s() - begun, (unsigned long long)free_blocks(vol));
	time_allocs(vol, "99 % full, up to 4 blocks", 100000, 4);
	time_allocs(vol, "99 % full, up to 16 blocks", 100000, 16);
	time_allocs(vol, "99 % full, up to 2000 blocks", 100000, 2000);
	begun = now_s();
	unify(vol, 1);
	print_message("  snapshot of all %llu groups: %.0f ms\n", (unsigned long long)vol->group_count, (now_s() - begun) * 1e3);
	begun = now_s();
	volume_remount(vol, 1, disk_used(vol));
	CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, 16, &addr, &len) == 0);
	loads = atomic64_read(&vol->balloc.group_loads);
	print_message("  mount and first allocation: %.2f ms, %llu groups loaded\n", (now_s() - begun) * 1e3, (unsigned long long)loads);
	CHECK(loads <= 20);
	time_allocs(vol, "mounted anew, 99 % full, up to 16 blocks", 100000, 16);
	while (free_blocks(vol) > 3000 && balloc_alloc(vol, BALLOC_DATA, 0, 1, 8, &addr, &len) == 0)
		;
	time_allocs(vol, "3000 blocks free, up to 16 blocks", 20000, 3);
	volume_drop(vol);
}

/* Every other block of 30 groups free: the worst for a bitmap. */
static void test_speed_comb(void **unused)
{
	struct volume *vol = volume_make(30 * 126 * MIB, 4096);
	u64 addr;
	u32 len;

	random_start("test_speed_comb", 7);
	while (balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0)
		;
	for (addr = 0; addr < vol->total_blocks; addr += 2)
		if (!balloc_is_fixed(vol, addr))
			CHECK(balloc_free(vol, BALLOC_DATA, addr, 1) == 0);
	time_allocs(vol, "comb, up to 2 blocks", 100000, 2);
	time_allocs(vol, "comb, up to 1000 blocks", 100000, 1000);
	for (addr = 1; addr < vol->total_blocks; addr += 64)
		if (balloc_test(vol, addr, 1) == 1 && !balloc_is_fixed(vol, addr))
			CHECK(balloc_free(vol, BALLOC_DATA, addr, 1) == 0);
	time_allocs(vol, "comb with some gaps of 3, up to 8 blocks", 100000, 8);
	volume_drop(vol);
}

/* ---- memory that runs out, threads ---- */

static int fault_steps(struct volume *vol, struct range_list *list, u64 *used)
{
	LIST_HEAD(writes);
	u64 addr, i;
	u32 len;
	int err = 0;

	for (i = 0; i < 40 && !err; i++) {
		err = balloc_alloc(vol, BALLOC_DATA, i * 20000, 1, 10, &addr, &len);
		if (err)
			break;
		*used += len;
		err = balloc_defer(vol, BALLOC_DATA, addr, 1, list);
		if (!err)
			*used -= 1;
	}
	if (!err)
		err = balloc_snapshot(vol, 1, &writes);
	balloc_snapshot_done(vol, &writes, false);
	return err;
}

static void test_memory_faults(void **unused)
{
	long n, failed = 0;

	random_start("test_memory_faults", 0);
	for (n = 1; n < 400; n++) {
		struct volume *vol = volume_make(1 * GIB, 4096);
		u64 used = disk_used(vol);
		struct range_list list;
		int err;

		range_list_init(&list);
		env_fail_alloc_at(n);
		err = fault_steps(vol, &list, &used);
		env_fail_alloc_at(0);
		CHECK(err == 0 || err == -ENOMEM);
		failed += err != 0;
		CHECK(disk_used(vol) == used);
		CHECK(free_blocks(vol) == vol->total_blocks - used - list.blocks);
		CHECK(balloc_release(vol, &list) == 0);
		unify(vol, 2);
		range_list_exit(&list);
		volume_drop(vol);
	}
	CHECK(failed > 20 && failed < 400);
}

static void *ask_always(void *ctx)
{
	struct volume *vol = ctx;
	u64 n, sum = 0;

	for (n = 0; n < 20000; n++) {
		sum += free_blocks(vol) + disk_used(vol);
		if (n % 16 == 0)
			sum += balloc_test(vol, 1000 + n, 1);
	}
	return (void *)(sum > 0 ? 1UL : 0UL);
}

static void test_threads(void **unused)
{
	struct volume *vol = volume_make(1 * GIB, 4096);
	pthread_t thread;
	void *result;
	u64 addr;
	u32 i, len;

	random_start("test_threads", 0);
	CHECK(pthread_create(&thread, NULL, ask_always, vol) == 0);
	for (i = 0; i < 10000; i++)
		CHECK(balloc_alloc(vol, BALLOC_DATA, 0, 1, 10, &addr, &len) == 0);
	CHECK(pthread_join(thread, &result) == 0 && result);
	volume_drop(vol);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_random_fragmented),
		cmocka_unit_test(test_random_packed),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_slots_torn),
		cmocka_unit_test(test_slots_rot),
		cmocka_unit_test(test_slots_evicted),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_snapshot),
		cmocka_unit_test(test_map_nonsense),
		cmocka_unit_test(test_corruption),
		cmocka_unit_test(test_growing_files),
		cmocka_unit_test(test_small_files),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_last_block),
		cmocka_unit_test(test_huge),
		cmocka_unit_test(test_speed),
		cmocka_unit_test(test_speed_comb),
		cmocka_unit_test(test_memory_faults),
		cmocka_unit_test(test_threads),
	};

	env_set_log(keep_quiet);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
