// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Free maps on disk: which of a group's two slots counts after a clean end, a crash, a unify that was cut off, or damage.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "support_balloc.h"
#include "user/env/device_memory.h"
#include "user/env/log.h"

/* ---- maps on disk ---- */

static bool in_use(struct volume *vol, u64 addr)
{
	return balloc_test(vol, addr, 1) == 1;
}

static u64 snapshot_crash(struct volume *vol, u64 delta)
{
	LIST_HEAD(writes);
	u64 addr;

	check(balloc_snapshot(vol, delta, &writes) == 0);
	check(!list_empty(&writes));
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

	random_begin("test_slots", 0);
	a = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	/* Cut off before the first anchor: as if never. */
	check(snapshot_crash(vol, 1) == slot0);
	volume_replay(vol, 0, fixed, 0);
	check(!in_use(vol, a));
	a = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	/* Both left-over slots are overwritten. */
	check(snapshot_crash(vol, 1) == slot0);
	unify(vol, 2);
	check(slot_delta(vol, 0, 0) == 2 && slot_delta(vol, 0, 1) == 2);
	volume_remount(vol, 2, fixed + 1);
	check(in_use(vol, a));
	b = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	check(b != a);
	check(snapshot_crash(vol, 3) == slot1);
	check(slot_delta(vol, 0, 0) == 2 && slot_delta(vol, 0, 1) == 3);
	volume_remount(vol, 2, fixed + 1);
	check(balloc_note_in_log(vol, 0) == 0);
	check(in_use(vol, a) && !in_use(vol, b));
	/* Nothing was changed, but the left-over must not come back to life when anchor 4 overtakes it. */
	check(snapshot_crash(vol, 4) == slot1);
	unify(vol, 4);
	volume_remount(vol, 4, fixed + 1);
	check(in_use(vol, a) && !in_use(vol, b));
	/* The same, where nobody loads the group but for replay. */
	b = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	check(snapshot_crash(vol, 5) == slot0);
	volume_replay(vol, 4, fixed + 1, 0);
	unify(vol, 6);
	volume_remount(vol, 6, fixed + 1);
	check(in_use(vol, a) && !in_use(vol, b));
	check(balloc_touch(vol, vol->group_count) == -EIO);
	/* Touched is enough to be written. */
	check(balloc_touch(vol, 1) == 0);
	check(vol->balloc.changed_count == 1);
	check(snapshot_crash(vol, 7) == balloc_slot_addr(vol, 1, 0));
	volume_drop(vol);
}

/* A slot damaged while it was written, or a left-over: the other one counts. */
static void test_slots_torn(void **unused)
{
	struct volume *vol = volume_make(256 * MIB, 4096);
	u64 fixed = disk_used(vol), a;
	u8 *bytes = device_memory_bytes(vol->dev);

	random_begin("test_slots_torn", 0);
	a = alloc_exactly(vol, BALLOC_NODE, 0, 1);
	unify(vol, 1);
	alloc_exactly(vol, BALLOC_NODE, 0, 1);
	snapshot_crash(vol, 2);
	bytes[balloc_slot_addr(vol, 0, 1) * 4096 + 3000] ^= 4;
	volume_replay(vol, 1, fixed + 1, 0);
	check(in_use(vol, a));
	check(!in_use(vol, a + 1));
	check(vol->balloc.changed_count == 1);
	unify(vol, 3);
	check(slot_delta(vol, 0, 0) == 1 && slot_delta(vol, 0, 1) == 3);
	volume_remount(vol, 3, fixed + 1);
	check(in_use(vol, a));
	/* Written for the first time, both may be torn. */
	a = alloc_exactly(vol, BALLOC_NODE, vol->group_blocks + 10, 1);
	snapshot_crash(vol, 4);
	bytes[balloc_slot_addr(vol, 1, 0) * 4096 + 3000] ^= 4;
	bytes[balloc_slot_addr(vol, 1, 1) * 4096 + 3000] ^= 4;
	volume_replay(vol, 3, fixed + 1, 1);
	check(!in_use(vol, a));
	unify(vol, 5);
	check(slot_delta(vol, 1, 0) == 5 && slot_delta(vol, 1, 1) == 5);
	volume_remount(vol, 5, fixed + 1);
	check(!in_use(vol, a));
	volume_drop(vol);
}

/* Nothing is allocated or freed in this group, and it is said why. */
static void check_group_damaged(struct volume *vol, u64 group, const char *why)
{
	u64 start = balloc_group_start(vol, group), addr;
	struct range_list list;
	u32 len;
	u8 bits[4096];

	check(balloc_copy_group(vol, group, bits) == -EIO);
	check(strstr(last_message, why) && strstr(last_message, "until it is repaired"));
	check(vol->balloc.bad_groups == 1);
	check(balloc_alloc(vol, BALLOC_DATA, start + 1000, 1, 10, &addr, &len) == 0);
	check(addr / vol->group_blocks != group);
	check(balloc_free(vol, BALLOC_DATA, addr, len) == 0);
	range_list_init(&list);
	check(balloc_free(vol, BALLOC_DATA, start + 1000, 1) == -EIO);
	check(balloc_defer(vol, BALLOC_DATA, start + 1000, 1, &list) == -EIO);
	check(balloc_take(vol, start + 1000, 1) == -EIO);
	check(!list.count);
}

/* One slot of a group of a volume that was unified: bad only if the log does not name the group. */
static void check_slot_rot(struct volume *vol, u64 group, unsigned int slot, u64 delta, u64 used)
{
	static const struct { u32 from, len; const char *why; } rots[] = {
		{ 2000, 1, "checksum" }, { 0, 1, "magic" }, { 8, 1, "volume" }, { 0, 4096, "magic" }, { 32, 1, "checksum" },
	};
	u8 *at = (u8 *)device_memory_bytes(vol->dev) + balloc_slot_addr(vol, group, slot) * 4096, saved[4096];
	bool now = slot_delta(vol, group, slot) == delta;
	u32 i, n;

	memcpy(saved, at, 4096);
	for (i = 0; i < ARRAY_SIZE(rots); i++) {
		for (n = 0; n < rots[i].len; n++)
			at[rots[i].from + n] ^= 0x10;
		volume_remount(vol, delta, used);
		check_group_damaged(vol, group, rots[i].why);
		check(balloc_test(vol, balloc_group_start(vol, !group) + 1000, 1) == 1);
		/* One that a unify may have been writing. */
		volume_remount(vol, delta, used);
		check(balloc_note_in_log(vol, group) == 0);
		check(balloc_test(vol, balloc_group_start(vol, group) + 1000, 1) == !now);
		/* Nobody knows, nobody writes. */
		volume_remount(vol, delta, used);
		balloc_note_log_unread(vol, true);
		check(balloc_test(vol, balloc_group_start(vol, group) + 1000, 1) == !now);
		memcpy(at, saved, 4096);
	}
	volume_remount(vol, delta, used);
	check(balloc_test(vol, balloc_group_start(vol, group) + 1000, 1) == 1);
}

static void test_slots_rot(void **unused)
{
	struct volume *vol = volume_make(3 * (4096 - 64) * 8 * 4096ULL, 4096);
	u8 *bytes = device_memory_bytes(vol->dev), *unused_slot = bytes + balloc_slot_addr(vol, 2, 1) * 4096;
	u64 used, group;
	u32 slot, len;
	u64 addr;

	random_begin("test_slots_rot", 0);
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
	check(balloc_test(vol, 1000, 1) == 0 && balloc_test(vol, 500, 1) == 1);
	/* Never written: whatever is there that is not of this volume. */
	memset(unused_slot, 0xa5, 4096);
	memcpy(unused_slot - 4096, bytes + balloc_slot_addr(vol, 1, 0) * 4096, 4096);
	unused_slot[8 - 4096] ^= 1;
	volume_remount(vol, 2, used);
	check(balloc_test(vol, 2 * vol->group_blocks + 1000, 1) == 0);
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
	check(balloc_alloc(vol, BALLOC_DATA, 0, vol->group_blocks - 10, vol->group_blocks, &addr, &len) == -EIO);
	check(balloc_note_in_log(vol, vol->group_count) == 0);
	volume_drop(vol);
}

/* Groups dropped from memory and loaded again while a snapshot is written, and after. */
static void test_slots_evicted(void **unused)
{
	struct volume *vol = volume_make(4 * TIB, 65536);
	u64 group, used, place = 1000;
	LIST_HEAD(writes);
	u64 touched[8];

	random_begin("test_slots_evicted", 0);
	if (!vol)
		skip();
	check(vol->group_count > 120);
	for (group = 0; group < 110; group++)
		alloc_exactly(vol, BALLOC_DATA, group * vol->group_blocks + place, 1);
	unify(vol, 1);
	used = disk_used(vol);
	/* Cut off: groups 0 and 120. */
	alloc_exactly(vol, BALLOC_DATA, place + 1, 1);
	alloc_exactly(vol, BALLOC_DATA, 120 * vol->group_blocks + place, 1);
	snapshot_crash(vol, 2);
	volume_remount(vol, 1, used);
	check(balloc_note_in_log(vol, 0) == 0 && balloc_note_in_log(vol, 120) == 0);
	check(balloc_touch(vol, 0) == 0 && balloc_touch(vol, 120) == 0);
	alloc_exactly(vol, BALLOC_DATA, 1 * vol->group_blocks + place + 1, 1);
	for (group = 0; group < 110; group++)
		check(in_use(vol, group * vol->group_blocks + place));
	while (touched_groups(vol, touched, 8))
		;
	check(balloc_snapshot(vol, 3, &writes) == 0);
	for (group = 0; group < 110; group++)
		check(in_use(vol, group * vol->group_blocks + place));
	check(vol->balloc.loaded < 100);
	write_maps(vol, &writes);
	balloc_snapshot_done(vol, &writes, true);
	for (group = 0; group < 220; group++)
		check(in_use(vol, group % 110 * vol->group_blocks + place));
	check(balloc_test(vol, 120 * vol->group_blocks + place, 1) == 0);
	check(balloc_test(vol, place + 1, 1) == 0);
	check(balloc_test(vol, vol->group_blocks + place + 1, 1) == 1);
	volume_remount(vol, 3, used + 1);
	for (group = 0; group < vol->group_count; group++)
		check(balloc_test(vol, group * vol->group_blocks + place, 1) == (group < 110));
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
		check(balloc_free(vol, BALLOC_DATA, addr, 1) == 0);
	else
		check(balloc_take(vol, addr, 1) == 0);
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
		check(count <= ARRAY_SIZE(groups));
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
			check(balloc_test(vol, group * vol->group_blocks + i, 1) ==
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
			check(balloc_note_in_log(vol, group) == 0);
	for (i = count; i-- > 0;)
		history->data[history->steps[i]] = !history->data[history->steps[i]];
	history_verify(history);
	for (group = 0; group < CUT_GROUPS; group++)
		if (history->in_log[group])
			check(balloc_touch(vol, group) == 0);
	for (i = 0; i < count; i++) {
		u64 addr = history->steps[i];

		check((history->data[addr] ? balloc_free(vol, BALLOC_DATA, addr, 1) : balloc_take(vol, addr, 1)) == 0);
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

	check(list_empty(&vol->balloc.unlogged));
	check(balloc_snapshot(vol, history->delta, &writes) == 0);
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
	check(balloc_test(vol, group * vol->group_blocks + 1000, 1) == -EIO ||
	      !history->written[group] || history->in_log[group]);
	*at ^= bit;
	history_crash(history);
}

static void test_cut_off(void **unused)
{
	struct history *history = calloc(1, sizeof(*history));
	struct volume *vol = volume_make(CUT_GROUPS * (4096 - 64) * 8 * 4096ULL, 4096);
	u32 round, i, step;

	random_begin("test_cut_off", 11);
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

	random_begin("test_snapshot", 0);
	range_list_init(&list);
	check(touched_groups(vol, groups, 4) == 0);
	a = alloc_exactly(vol, BALLOC_DATA, 100, 10);
	check(touched_groups(vol, groups, 4) == 1 && groups[0] == 0);
	b = alloc_exactly(vol, BALLOC_NODE, 200, 10);
	check(touched_groups(vol, groups, 4) == 0);
	check(balloc_snapshot(vol, 7, &writes) == 0);
	check(balloc_snapshot(vol, 8, &none) == -EBUSY && list_empty(&none));
	/* Freed while the snapshot is on its way: in the map, and in the next one not. */
	check(balloc_defer(vol, BALLOC_DATA, a, 10, &list) == 0);
	check(balloc_free(vol, BALLOC_NODE, b, 5) == 0);
	check(touched_groups(vol, groups, 4) == 1);
	write = list_first_entry(&writes, struct map_write, link);
	check(write->group == 0);
	memcpy(bits, (u8 *)write->data + 64, 4096 - 64);
	check(bits[a / 8] & 1 << a % 8 && bits[b / 8] & 1 << b % 8);
	write_maps(vol, &writes);
	balloc_snapshot_done(vol, &writes, true);
	check(list_empty(&writes) && vol->balloc.changed_count == 1);
	check(balloc_copy_group(vol, 0, bits) == 0);
	check(!(bits[a / 8] & 1 << a % 8) && !(bits[b / 8] & 1 << b % 8));
	check(balloc_test(vol, b, 10) == -ERANGE && balloc_test(vol, b + 5, 5) == 1 && balloc_test(vol, b, 5) == 0);
	/* Not for the same delta again, not without a change. */
	check(balloc_snapshot(vol, 7, &writes) == -EINVAL);
	unify(vol, 8);
	check(vol->balloc.changed_count == 0);
	check(balloc_snapshot(vol, 9, &writes) == 0 && list_empty(&writes));
	balloc_snapshot_done(vol, &writes, true);
	check(balloc_release(vol, &list) == 0);
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
	check(map_check(vol, slot, balloc_slot_addr(vol, group, 0), group, why, sizeof(why)) == -EIO);
	check(balloc_copy_group(vol, group, bits) == -EIO);
	check(balloc_free(vol, BALLOC_DATA, group * vol->group_blocks + 1000, 1) == -EIO);
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

	random_begin("test_map_nonsense", 0);
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
	check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 10, &addr, &len) == 0 && addr >= second);
	check(balloc_alloc(vol, BALLOC_NODE, 0, 1, 10, &addr, &len) == 0 && addr >= second);
	check(balloc_alloc(vol, BALLOC_LOG, 100, 1, 10, &addr, &len) == 0 && addr >= second);
	check(balloc_alloc(vol, BALLOC_DATA, 0, 30000, 30000, &addr, &len) == -EIO);
	volume_drop(vol);
}

static void test_corruption(void **unused)
{
	struct volume *vol = volume_make(4 * MIB, 4096);
	u8 *bytes = device_memory_bytes(vol->dev), *slots = bytes + balloc_slot_addr(vol, 0, 0) * 4096;
	u8 *good = malloc(8192), bits[4096];
	u64 addr, used;
	u32 round, i, len;

	random_begin("test_corruption", 2);
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
			check(balloc_alloc(vol, BALLOC_DATA, 0, 1, 50, &addr, &len) == 0);
			check(!balloc_is_fixed(vol, addr));
			check(balloc_free(vol, BALLOC_DATA, addr, len) == 0);
		}
	}
	free(good);
	volume_drop(vol);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_slots_torn),
		cmocka_unit_test(test_slots_rot),
		cmocka_unit_test(test_slots_evicted),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_snapshot),
		cmocka_unit_test(test_map_nonsense),
		cmocka_unit_test(test_corruption),
	};

	env_set_log(keep_quiet);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
