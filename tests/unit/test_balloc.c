// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Free space: allocation and freeing, where, how fast, on full volumes.  Free maps on disk are in test_freemap.c.
 *
 * The random tests keep an array with the state of each block beside the volume, and compare everything
 * that core/blocks/freemap.h shows of it.  TUX3_TEST_SEED=n runs them with that seed, an argument runs only the tests
 * so named (with * and ?); a failing check prints the line that does both.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "support_balloc.h"
#include "user/env/fault.h"
#include "user/env/log.h"

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
	check(model->vol != NULL);
	model->state = calloc(model->vol->total_blocks, 1);
	for (addr = 0; addr < model->vol->total_blocks; addr++) {
		if (!balloc_is_fixed(model->vol, addr))
			continue;
		model->state[addr] = FIXED;
		fixed++;
	}
	check(fixed == balloc_fixed_blocks(model->vol));
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
		check(model->state[addr] == from);
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

	if (packed) {
		mutex_lock(&vol->balloc.lock);
		check(group_unpack(vol, group) == 0);
		mutex_unlock(&vol->balloc.lock);
	}
	for (i = 0; i < vol->group_blocks; i++) {
		bool busy = i >= length || state_busy(state[i]);
		bool disk = i >= length || state_disk(state[i]);

		free += !busy;
		extra += busy && !disk;
		run = busy ? 0 : run + 1;
		longest = max(longest, run);
		if (!group)
			continue;
		check(test_bit(i, group->busy) == busy);
		check(test_bit(i, group->disk) == disk);
		if (run && run >= group->memo_len && group->memo_len)
			check(i + 1 - run >= group->memo_from);
		if (run && run >= group->memo_len && group->memo_len)
			check(i + 1 - group->memo_len < group->memo_to);
	}
	check(info->free == free);
	check(info->longest >= longest);
	if (!group) {
		check(!extra);
		return;
	}
	check(group->extra == extra);
	check(group->chunk->longest >= min(info->longest, info->free));
	check(group->on == (group->changed ? GROUP_ON_CHANGED :
			    extra || group->writing || !list_empty(&group->unlogged_link) ? GROUP_ON_PINNED : GROUP_ON_CLEAN));
	check(list_empty(&group->hot_link) == (group->on == GROUP_ON_CLEAN));
	if (packed) {
		mutex_lock(&vol->balloc.lock);
		group_pack_cold(vol, vol->opts.groups_kept);
		mutex_unlock(&vol->balloc.lock);
	}
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
	check(free_blocks(vol) == vol->total_blocks - busy);
	check(disk_used(vol) == disk);
	check((u64)atomic64_read(&vol->balloc.data_used) == data);
	for (index = 0; index < vol->group_count; index++) {
		struct balloc_chunk *chunk = vol->balloc.chunks[index / CHUNK_GROUPS];
		struct balloc_info *info = chunk ? &chunk->info[index % CHUNK_GROUPS] : NULL;

		if (info && info->state == GROUP_KNOWN)
			verify_group(model, index, info);
		else
			unknown++;
	}
	check(vol->balloc.unknown_groups == unknown);
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
		check(err == -ENOSPC);
		check(model_longest(model) < min);
		return;
	}
	check(len >= min && len <= want);
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

		check(balloc_free_node(vol, addr, 1, was_in_snapshot) == 0);
		model_set(model, addr, 1, NODE, was_in_snapshot ? DEFERRED : FREE);
	} else if (random_below(2)) {
		check(balloc_defer(vol, extent->kind, addr, part, &model->deferred) == 0);
		model_set(model, addr, part, kind_state[extent->kind], DEFERRED);
	} else {
		check(balloc_free(vol, extent->kind, addr, part) == 0);
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
	check(blocks == list->blocks);
	check(balloc_release(model->vol, list) == 0);
	check(!list->count && !list->blocks);
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
		check(balloc_free(vol, kind, addr, len) == -EIO);
		check(balloc_defer(vol, kind, addr, len, &model->deferred) == -EIO);
	}
	if (!all_unused)
		check(balloc_take(vol, addr, len) == -EIO);
}

/* Unify; some are cut off by a power failure after which the newest state comes back by replay. */
static void step_unify(struct model *model)
{
	struct volume *vol = model->vol;
	u64 groups[8];
	LIST_HEAD(writes);

	while (touched_groups(vol, groups, ARRAY_SIZE(groups)))
		;
	check(balloc_snapshot(vol, ++model->delta, &writes) == 0);
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
			check(range_list_add(&log, model->extents[i].addr, model->extents[i].len) == 0);
		} else {
			model_set(model, model->extents[i].addr, model->extents[i].len, LOG, FREE);
			model->extents[i--] = model->extents[--model->count];
		}
	}
	check(balloc_settle(vol, &log) == 0);
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
			check(range_list_add(&log, extent->addr, extent->len) == 0);
		} else {
			model_set(model, extent->addr, extent->len, LOG, FREE);
			model->extents[i--] = model->extents[--model->count];
		}
	}
	for (i = 0; i < model->deferred.count; i++)
		model_set(model, model->deferred.ranges[i].addr, model->deferred.ranges[i].len, DEFERRED, FREE);
	range_list_exit(&model->deferred);
	check(balloc_settle(vol, &log) == 0);
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
	check(balloc_take(vol, addr, len) == 0);
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
			check(balloc_free(vol, BALLOC_DATA, at, 1) == 0);
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
	check(!keep || vol->balloc.packed);
	model_drop(model);
}

static void run_random(u64 bytes, u32 block_size, u32 steps, u32 fragments)
{
	run_random_packed(bytes, block_size, steps, fragments, 0);
}

/* Groups that cannot be dropped are packed, and come back as they were. */
static void test_random_packed(void **unused)
{
	random_begin("test_random_packed", 9);
	run_random_packed(10 * 126 * MIB, 4096, 1500, 0, 4);
	run_random_packed(10 * 126 * MIB, 4096, 1000, 3, 4);
	run_random_packed(10 * 126 * MIB, 4096, 1000, 40, 4);
}

static void test_random_fragmented(void **unused)
{
	u32 i;

	random_begin("test_random_fragmented", 8);
	for (i = 0; i < 12; i++)
		run_random(i % 3 ? 60 * MIB : 140 * MIB, 4096, 2000, 3 + 3 * i);
}

static void test_random(void **unused)
{
	u64 group = (4096 - 64) * 8 * 4096ULL, large = (65536 - 64) * 8 * 65536ULL;
	static const u32 rest_kib[] = { 64, 128, 192, 6400 };
	u32 i;

	random_begin("test_random", 1);
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

	random_begin("test_geometry", 0);
	for (i = 0; i < 2; i++) {
		u32 unit = 65536 / sizes[i];

		for (rest = 0; rest < 6; rest++) {
			u64 addr, fixed = 0, total;

			volume_geometry(vol, 2 * (sizes[i] - 64) * 8ULL * sizes[i] + rest * 65536ULL, sizes[i]);
			total = vol->total_blocks;
			for (addr = 0; addr < total; addr++) {
				bool expect = addr < 3 * unit + 2 || addr >= total - 2 * unit ||
					      (addr >= vol->group_blocks && addr % vol->group_blocks < 2);

				check(balloc_is_fixed(vol, addr) == expect);
				fixed += expect;
			}
			check(balloc_is_fixed(vol, total));
			check(balloc_fixed_blocks(vol) == fixed);
		}
		check(balloc_slot_addr(vol, 0, 1) == 196608 / sizes[i] + 1);
		check(balloc_slot_addr(vol, 2, 1) == 2 * vol->group_blocks + 1);
	}
	volume_geometry(vol, 1000 * TIB, 4096);
	check(balloc_fixed_blocks(vol) == 50 + 2 * (vol->group_count - 1) + 32);
	vol->total_blocks = 1ULL << 52;
	check(balloc_init(vol, 100) == -EFBIG);
	vol->total_blocks = 100;
	check(balloc_init(vol, 50) == -EINVAL);
	free(vol);
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

		check(balloc_alloc(vol, BALLOC_DATA, file->end, 1, want, &addr, &len) == 0);
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
	check(most <= allowed);
	volume_drop(vol);
}

static void test_growing_files(void **unused)
{
	random_begin("test_growing_files", 0);
	grow_files(1, 16, 4000, 4);
	grow_files(2, 1, 20000, 16);
	grow_files(2, 16, 4000, 20);
	grow_files(2, 1000, 200, 40);
	grow_files(8, 16, 4000, 30);
	grow_files(25, 4, 4000, 30);
}

/* A volume on which files of all sizes came and went: half of it is free, in runs of 8 to 2048 blocks. */
static struct volume *volume_aged(u64 bytes)
{
	struct volume *vol = volume_make(bytes, 4096);
	u64 addr, end, run;
	u32 len;

	while (balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0)
		;
	for (addr = 0; addr < vol->total_blocks; addr = end) {
		end = min(addr + 8 + random_below(1u << (3 + random_below(9))), vol->total_blocks);
		if (random64() % 2)
			continue;
		for (; addr < end; addr = run + 1) {
			for (run = addr; run < end && !balloc_is_fixed(vol, run); run++)
				;
			if (run > addr)
				check(balloc_free(vol, BALLOC_DATA, addr, run - addr) == 0);
		}
	}
	return vol;
}

/* Large files go where long runs are left, also in parts, and beside each other: in extents no shorter than so. */
static void test_aged(void **unused)
{
	struct volume *vol;
	struct file files[2] = {}, whole = {};
	u64 left, addr;
	u32 i, len;

	random_begin("test_aged", 11);
	vol = volume_aged(16 * GIB);
	for (left = 20000; left; left -= len) {
		check(balloc_alloc_part(vol, whole.end, left, min_t(u64, left, 977), &addr, &len) == 0);
		whole.extents += addr != whole.end;
		whole.end = addr + len;
	}
	print_message("  a file of 20000 blocks: %u extents\n", whole.extents);
	check(whole.extents <= 7);
	for (i = 0; i < 40; i++)
		file_append(vol, &files[i % 2], 977);
	print_message("  two files growing in turn by 977 blocks, 20 times: %u and %u extents\n", files[0].extents, files[1].extents);
	check(files[0].extents + files[1].extents <= 15);
	/* Not at any price: where there are runs of what is placed at once, no map is read to find a longer one. */
	unify(vol, 1);
	volume_remount(vol, 1, disk_used(vol));
	for (i = 0; i < 40; i++)
		check(balloc_alloc_part(vol, 0, 1 << 20, 977, &addr, &len) == 0);
	print_message("  40 large files begun after a mount: %llu groups loaded\n",
		      (unsigned long long)atomic64_read(&vol->balloc.group_loads));
	check(atomic64_read(&vol->balloc.group_loads) <= 10);
	volume_drop(vol);
}

/* New files are packed, whatever else goes on: growing files, nodes, log. */
static void test_small_files(void **unused)
{
	struct volume *vol = volume_make(2 * GIB, 4096);
	struct file grower = {};
	u64 addr, last = 0, low = U64_MAX, high = 0, sum = 0, jumps = 0;
	u32 i, len;

	random_begin("test_small_files", 3);
	for (i = 0; i < 10000; i++) {
		u32 want = 1 + random_below(8);

		check(balloc_alloc(vol, BALLOC_DATA, 0, 1, want, &addr, &len) == 0);
		check(len == want);
		jumps += addr != last;
		last = addr + len;
		low = min(low, addr);
		high = max(high, last);
		sum += len;
		check(balloc_alloc(vol, BALLOC_NODE, 0, 1, 1, &addr, &len) == 0);
		if (i % 4 == 0)
			check(balloc_alloc(vol, BALLOC_LOG, 0, 1, 1, &addr, &len) == 0);
		if (i % 8 == 0)
			file_append(vol, &grower, 16);
	}
	print_message("  10000 small files: %llu blocks within %llu, %llu jumps; a file growing at the same time: %u extents of %llu blocks in all\n",
	       (unsigned long long)sum, (unsigned long long)(high - low), (unsigned long long)jumps, grower.extents,
	       (unsigned long long)grower.blocks);
	check(jumps <= 40);
	check(grower.extents <= 12);
	volume_drop(vol);
}

/* ---- limits ---- */

static void test_full(void **unused)
{
	static const u32 sizes[] = { 4096, 65536 };
	u32 i;

	random_begin("test_full", 4);
	for (i = 0; i < 2; i++) {
		struct volume *vol = volume_make(i ? 64 * MIB : 300 * MIB, sizes[i]);
		u64 room = vol->total_blocks - balloc_fixed_blocks(vol), sum = 0, addr, some = 0;
		u32 len;
		int err;

		check(free_blocks(vol) == room);
		for (;;) {
			enum balloc_kind kind = random_below(3);

			err = balloc_alloc(vol, kind, random_below(2) ? 0 : addr, 1, 1 + random_below(100), &addr, &len);
			if (err)
				break;
			sum += len;
			if (kind == BALLOC_DATA && len > 2)
				some = addr;
		}
		check(err == -ENOSPC && sum == room && free_blocks(vol) == 0);
		check(balloc_alloc(vol, BALLOC_LOG, 0, 1, 1, &addr, &len) == -ENOSPC);
		check(balloc_free(vol, BALLOC_DATA, some, 1) == 0);
		check(balloc_free(vol, BALLOC_DATA, some + 2, 1) == 0);
		check(balloc_alloc(vol, BALLOC_DATA, 0, 2, 2, &addr, &len) == -ENOSPC);
		check(balloc_free(vol, BALLOC_DATA, some + 1, 1) == 0);
		check(balloc_alloc(vol, BALLOC_DATA, 0, 3, 300, &addr, &len) == 0 && addr == some && len == 3);
		check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 1, &addr, &len) == -ENOSPC);
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

	random_begin("test_last_block", 0);
	while (balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0)
		;
	check(balloc_free(vol, BALLOC_DATA, only, 1) == 0);
	check(vol->balloc.loaded == vol->group_count);
	unify(vol, 1);
	/* Clean groups are given back. */
	check(vol->balloc.loaded <= kept);
	check(balloc_test(vol, only, 1) == 0);
	check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 1, &addr, &len) == 0 && addr == only);
	check(balloc_free(vol, BALLOC_DATA, only, 1) == 0);
	unify(vol, 2);
	volume_remount(vol, 2, disk_used(vol));
	check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 1, &addr, &len) == 0 && addr == only);
	check(vol->balloc.loaded <= kept);
	check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 1, &addr, &len) == -ENOSPC);
	check(vol->balloc.loaded <= kept);
	loads = atomic64_read(&vol->balloc.group_loads);
	check(balloc_alloc(vol, BALLOC_NODE, 0, 1, 1, &addr, &len) == -ENOSPC);
	check((u64)atomic64_read(&vol->balloc.group_loads) == loads);
	check(balloc_test(vol, 100 * (u64)vol->group_blocks, vol->group_blocks) == 1);
	volume_drop(vol);
}

static void test_huge(void **unused)
{
	struct volume *vol = volume_make(10 * TIB, 4096);
	struct file files[2] = {};
	u64 addr, sum = 0;
	u32 i, len;
	double begun;

	random_begin("test_huge", 5);
	if (!vol)
		skip();
	check(vol->group_count > 80000);
	for (i = 0; i < 2000; i++) {
		file_append(vol, &files[i & 1], 1000);
		check(balloc_alloc(vol, BALLOC_NODE, 0, 1, 1, &addr, &len) == 0);
	}
	/* 7.8 GiB in all: about 64 groups. */
	check(atomic64_read(&vol->balloc.group_loads) < 100);
	check(alloc_exactly(vol, BALLOC_LOG, vol->total_blocks - 10000, 5) == vol->total_blocks - 10000);
	volume_drop(vol);

	vol = volume_make(10 * TIB, 65536);
	check(vol->group_count > 300);
	for (i = 0; i < 100; i++) {
		check(balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0);
		check(len > 500000);
		sum += len;
	}
	begun = now_s();
	unify(vol, 1);
	print_message("  snapshot of %llu maps of 64 KiB: %.1f ms\n", (unsigned long long)vol->balloc.loaded, (now_s() - begun) * 1e3);
	check(vol->balloc.loaded <= 101);
	check(free_blocks(vol) == vol->total_blocks - balloc_fixed_blocks(vol) - sum);
	volume_drop(vol);
}

/* Short holes in one group behind a longer one, and a long run in the group before: what is small goes where it spoils nothing. */
static void test_long_runs_are_kept(void **unused)
{
	struct volume *vol = volume_make(3 * 126 * MIB, 4096);
	u64 start = balloc_group_start(vol, 1), addr, i;
	u32 len, holes = 100, hole = 8, run = 5000;

	while (balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0)
		;
	check(balloc_free(vol, BALLOC_DATA, 10000, run) == 0);
	check(balloc_free(vol, BALLOC_DATA, start + 10, 2 * hole) == 0);
	for (i = 0; i < holes; i++)
		check(balloc_free(vol, BALLOC_DATA, start + 100 + i * 100, hole) == 0);
	for (i = 0; i < holes; i++) {
		check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 1 + i % hole, &addr, &len) == 0);
		check(len == 1 + i % hole);
		check(addr >= start + 100 && addr < start + vol->group_blocks);
	}
	check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 2 * hole, &addr, &len) == 0);
	check(addr == start + 10 && len == 2 * hole);
	check(balloc_alloc(vol, BALLOC_DATA, 0, 1, run, &addr, &len) == 0);
	check(addr == 10000 && len == run);
	volume_drop(vol);
}

/* ---- speed ---- */

#ifdef __SANITIZE_THREAD__
#define SLOWNESS 8u
#else
#define SLOWNESS 1u
#endif

/* Returns how many groups searches looked at for each, besides those near the goal. */
static u64 time_allocs(struct volume *vol, const char *what, u32 count, u32 most)
{
	u64 groups = atomic64_read(&vol->counters[TUX3_COUNT_SEARCHED_GROUPS]);
	struct extent *live = calloc(1000, sizeof(*live));
	double begun = now_s(), longest = 0, each;
	u64 blocks = 0;
	u32 i;

	count /= SLOWNESS;
	for (i = 0; i < count; i++) {
		struct extent *extent = &live[random_below(1000)];
		double start = now_s();

		if (extent->len)
			check(balloc_free(vol, BALLOC_DATA, extent->addr, extent->len) == 0);
		check(balloc_alloc(vol, BALLOC_DATA, random_below(2) ? 0 : live[0].addr, 1, 1 + random_below(most),
				   &extent->addr, &extent->len) == 0);
		blocks += extent->len;
		longest = max(longest, now_s() - start);
	}
	each = (now_s() - begun) / count;
	groups = (atomic64_read(&vol->counters[TUX3_COUNT_SEARCHED_GROUPS]) - groups) / count;
	print_message("  %-50s %7.2f us for freeing and allocating, longest %.1f ms, %.1f blocks each, %llu groups looked at\n", what,
		      each * 1e6, longest * 1e3, (double)blocks / count, (unsigned long long)groups);
	check(each < 2e-3);
	free(live);
	return groups;
}

static void test_speed(void **unused)
{
	struct volume *vol = volume_make(TIB / SLOWNESS, 4096);
	u64 addr, i, loads;
	u32 len;
	double begun = now_s();

	random_begin("test_speed", 6);
	if (!vol)
		skip();
	time_allocs(vol, "empty, up to 16 blocks", 100000, 16);
	while (balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0)
		;
	check(free_blocks(vol) == 0);
	/* 1 % free, in runs of up to 8 blocks. */
	for (i = 0; i < vol->total_blocks / 400; i++) {
		addr = random_below(vol->total_blocks - 8);
		len = 1 + random_below(8);
		if (balloc_test(vol, addr, len) == 1 && !balloc_is_fixed(vol, addr) && !balloc_is_fixed(vol, addr + len - 1) &&
		    addr % vol->group_blocks + len < vol->group_blocks)
			check(balloc_free(vol, BALLOC_DATA, addr, len) == 0);
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
	check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 16, &addr, &len) == 0);
	loads = atomic64_read(&vol->balloc.group_loads);
	print_message("  mount and first allocation: %.2f ms, %llu groups loaded\n", (now_s() - begun) * 1e3, (unsigned long long)loads);
	check(loads <= 20);
	time_allocs(vol, "mounted anew, 99 % full, up to 16 blocks", 100000, 16);
	while (free_blocks(vol) > 3000 && balloc_alloc(vol, BALLOC_DATA, 0, 1, 8, &addr, &len) == 0)
		;
	check(time_allocs(vol, "3000 blocks free, up to 3 blocks", 20000, 3) <= 512);
	volume_drop(vol);
}

/* Every other block of 30 groups free: the worst for a bitmap. */
static void test_speed_comb(void **unused)
{
	struct volume *vol = volume_make(30 * 126 * MIB, 4096);
	u64 addr;
	u32 len;

	random_begin("test_speed_comb", 7);
	while (balloc_alloc(vol, BALLOC_DATA, 0, 1, U32_MAX, &addr, &len) == 0)
		;
	for (addr = 0; addr < vol->total_blocks; addr += 2)
		if (!balloc_is_fixed(vol, addr))
			check(balloc_free(vol, BALLOC_DATA, addr, 1) == 0);
	time_allocs(vol, "comb, up to 2 blocks", 100000, 2);
	time_allocs(vol, "comb, up to 1000 blocks", 100000, 1000);
	for (addr = 1; addr < vol->total_blocks; addr += 64)
		if (balloc_test(vol, addr, 1) == 1 && !balloc_is_fixed(vol, addr))
			check(balloc_free(vol, BALLOC_DATA, addr, 1) == 0);
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

	random_begin("test_memory_faults", 0);
	for (n = 1; n < 400; n++) {
		struct volume *vol = volume_make(1 * GIB, 4096);
		u64 used = disk_used(vol);
		struct range_list list;
		int err;

		range_list_init(&list);
		env_fail_alloc_at(n);
		err = fault_steps(vol, &list, &used);
		env_fail_alloc_at(0);
		check(err == 0 || err == -ENOMEM);
		failed += err != 0;
		check(disk_used(vol) == used);
		check(free_blocks(vol) == vol->total_blocks - used - list.blocks);
		check(balloc_release(vol, &list) == 0);
		unify(vol, 2);
		range_list_exit(&list);
		volume_drop(vol);
	}
	check(failed > 20 && failed < 400);
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

	random_begin("test_threads", 0);
	check(pthread_create(&thread, NULL, ask_always, vol) == 0);
	for (i = 0; i < 10000; i++)
		check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 10, &addr, &len) == 0);
	check(pthread_join(thread, &result) == 0 && result);
	volume_drop(vol);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest alone[] = {
		cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_random_fragmented),
		cmocka_unit_test(test_random_packed),
		cmocka_unit_test(test_growing_files),
		cmocka_unit_test(test_aged),
		cmocka_unit_test(test_small_files),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_last_block),
		cmocka_unit_test(test_huge),
		cmocka_unit_test(test_long_runs_are_kept),
		cmocka_unit_test(test_speed),
		cmocka_unit_test(test_speed_comb),
		cmocka_unit_test(test_memory_faults),
	};
	const struct CMUnitTest beside[] = {
		cmocka_unit_test(test_threads),
	};

	env_set_log(keep_quiet);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return run_alone_and_beside(alone, beside);
}
