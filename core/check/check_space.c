/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker: which blocks are in use, and do the free maps say the same?
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/blocks/freemap.h"
#include "core/log/replay.h"
#include "core/check/check_internal.h"

#define RUNS_TOLD 16u		/* of each group */

/* ---- a bit for each block ---- */

int check_bitmap_init(struct check *check, struct check_bitmap *map)
{
	map->group_count = DIV_ROUND_UP(check->vol->total_blocks, check->vol->group_blocks);
	map->groups = kvzalloc(map->group_count * sizeof(*map->groups), GFP_KERNEL);
	return map->groups ? 0 : -ENOMEM;
}

void check_bitmap_exit(struct check_bitmap *map)
{
	u64 i;

	for (i = 0; map->groups && i < map->group_count; i++)
		kvfree(map->groups[i]);
	kvfree(map->groups);
}

static inline bool bit_get(const u8 *bits, u32 n)
{
	return bits[n / 8] & 1u << n % 8;
}

static inline void bit_set(u8 *bits, u32 n)
{
	bits[n / 8] |= 1u << n % 8;
}

/* Set len bits; how many were set before. */
static u32 bits_set(u8 *bits, u32 from, u32 len, u32 *first)
{
	u32 end = from + len, shared = 0, n;
	u64 word;

	while (from < end) {
		word = from % 64 == 0 && end - from >= 64 ? get_unaligned_le64(bits + from / 8) : 1;
		if (word == 0 || word == U64_MAX) {	/* as most are */
			if (word && !shared)
				*first = from;
			shared += word ? 64 : 0;
			put_unaligned_le64(U64_MAX, bits + from / 8);
			from += 64;
			continue;
		}
		for (n = min(64 - from % 64, end - from); n; n--, from++) {
			if (!bit_get(bits, from))
				bit_set(bits, from);
			else if (!shared++)
				*first = from;
		}
	}
	return shared;
}

int check_bitmap_set(struct check *check, struct check_bitmap *map, u64 addr, u64 len, u64 *shared, u64 *first)
{
	u32 group_blocks = check->vol->group_blocks;

	*shared = 0;
	while (len) {
		u64 index = addr / group_blocks;
		u32 from = addr % group_blocks, count = min_t(u64, len, group_blocks - from), n, at = 0;

		if (!map->groups[index])
			map->groups[index] = kvzalloc(group_blocks / 8, GFP_KERNEL);
		if (!map->groups[index])
			return check_fail(check, -ENOMEM);
		n = bits_set(map->groups[index], from, count, &at);
		if (n && !*shared)
			*first = index * group_blocks + at;
		*shared += n;
		map->set += count - n;
		addr += count;
		len -= count;
	}
	return 0;
}

bool check_range_inside(struct check *check, u64 addr, u64 len)
{
	u64 total = check->vol->total_blocks;

	return len && addr < total && len <= total - addr;
}

int check_use_blocks(struct check *check, u64 ino, u64 addr, u64 len)
{
	u64 shared, first = 0;
	int err = check_bitmap_set(check, &check->used, addr, len, &shared, &first);

	if (!err && shared)
		err = check_problem(check, BLOCK_SHARED, ino, first, NULL, shared, ino, first);
	return err;
}

/* ---- free maps ---- */

/* The bits that the free map of a group should have. */
static void map_expect(struct check *check, u64 index, u8 *bits)
{
	struct volume *vol = check->vol;
	u32 length = group_length(vol, index), fixed = group_fixed_blocks(vol, index, 0, length), i;
	u64 start = index * vol->group_blocks;

	if (check->used.groups[index])
		memcpy(bits, check->used.groups[index], vol->group_blocks / 8);
	else
		memset(bits, 0, vol->group_blocks / 8);
	for (i = 0; fixed && i < length; i++) {
		if (balloc_is_fixed(vol, start + i)) {
			bit_set(bits, i);
			fixed--;
		}
	}
	for (i = length; i % 8; i++)
		bit_set(bits, i);
	memset(bits + i / 8, 0xff, (vol->group_blocks - i) / 8);
}

/* One kind of difference: where has and has_not have different bits in this order. */
static void map_tell_runs(struct check *check, u64 index, const u8 *has, const u8 *has_not, bool leak)
{
	u32 length = group_length(check->vol, index), i = 0, told = 0, run;
	u64 start = index * check->vol->group_blocks;

	while (i < length && told < RUNS_TOLD && !check->stop) {
		if (!(i % 8) && has[i / 8] == has_not[i / 8]) {
			i += 8;
			continue;
		}
		for (run = 0; i + run < length && bit_get(has, i + run) && !bit_get(has_not, i + run); run++)
			;
		if (run && leak)
			check_problem(check, MAP_LEAK, 0, start + i, NULL, run, start + i, index);
		else if (run)
			check_problem(check, MAP_FREE, 0, start + i, NULL, run, start + i, index);
		told += !!run;
		i += run ? run : 1;
	}
}

static void map_compare(struct check *check, u64 index, const u8 *expect, const u8 *bits)
{
	if (!memcmp(expect, bits, check->vol->group_blocks / 8))
		return;
	map_tell_runs(check, index, expect, bits, false);
	if (!check->damaged)
		map_tell_runs(check, index, bits, expect, true);
}

/* Of a hold: what was read of it at the beginning, or what is there now. */
static int map_of_hold(struct check *check, u64 index, u8 *bits)
{
	const u8 *early = check->maps.groups[index];

	if (!early)
		return balloc_read_held(check->vol, index, bits);
	memcpy(bits, early, check->vol->group_blocks / 8);
	return 0;
}

/* All maps, or of a very large volume the first. */
int check_read_maps(struct check *check)
{
	struct volume *vol = check->vol;
	u64 index;
	int err;

	if (!vol->of_hold)
		return 0;
	err = check_bitmap_init(check, &check->maps);
	for (index = 0; !err && index < min_t(u64, check->maps.group_count, CHECK_GROUPS_ALL); index++) {
		u8 *bits = kvmalloc(vol->group_blocks / 8, GFP_KERNEL);

		if (!bits)
			return check_fail(check, -ENOMEM);
		if (balloc_read_held(vol, index, bits))	/* once more when its turn comes */
			kvfree(bits);
		else
			check->maps.groups[index] = bits;
		check_progress(check, CHECK_SPACE, index, check->maps.group_count);
		err = check->stop;
	}
	return err ? check_fail(check, err) : 0;
}

/* *marked: bits set in the map, but for those beyond the end. */
static int map_check_group(struct check *check, u64 index, u64 *marked)
{
	struct volume *vol = check->vol;
	u8 *expect = check->buffer, *bits = expect + vol->block_size;
	u32 i, length = group_length(vol, index);
	int err = vol->of_hold ? map_of_hold(check, index, bits) : balloc_copy_group(vol, index, bits);

	if (err == -ESTALE) {
		check->result->groups_changed++;
		return 0;
	}
	if (err == -EIO)
		return check_problem(check, MAP_BAD, 0, balloc_slot_addr(vol, index, 0), NULL, index);
	if (err)
		return check_fail(check, err);
	check->result->groups_read++;
	map_expect(check, index, expect);
	map_compare(check, index, expect, bits);
	for (i = 0; i < length; i++) {
		if (!(i % 8) && !bits[i / 8])
			i += 7;
		else
			*marked += bit_get(bits, i);
	}
	return check->stop;
}

/*
 * On a large volume, the maps of groups in which nothing was found are left alone as long as the volume's
 * own total says that they are empty.
 */
static int check_groups(struct check *check, bool in_use, bool others, u64 *marked)
{
	struct volume *vol = check->vol;
	u64 index, start = check->result->groups_read;
	int err = 0;

	for (index = 0; index < check->used.group_count && !err; index++) {
		check_progress(check, CHECK_SPACE, start + index, check->used.group_count);
		if (check->stop)
			return check->stop;
		if (check->used.groups[index] ? in_use : others)
			err = map_check_group(check, index, marked);
		else if (in_use)
			*marked += group_fixed_blocks(vol, index, 0, group_length(vol, index));
	}
	return err;
}

/* ---- the log is nobody else's ---- */

static void check_log_block(struct check *check, u64 addr)
{
	u32 group_blocks = check->vol->group_blocks;
	u8 *bits = addr < check->vol->total_blocks ? check->used.groups[addr / group_blocks] : NULL;

	if (bits && bit_get(bits, addr % group_blocks))
		check_problem(check, LOG_SHARED, 0, addr, NULL, addr);
}

static void check_log_list(struct check *check, const struct range_list *list)
{
	u32 i;
	u64 n;

	for (i = 0; i < list->count; i++)
		for (n = 0; n < list->ranges[i].len && !check->stop; n++)
			check_log_block(check, list->ranges[i].addr + n);
}

/* The blocks of the log, and the one where it will go on. */
static void check_log(struct check *check)
{
	struct log *log = &check->vol->log;

	check_log_list(check, &log->blocks);
	check_log_list(check, &log->old_blocks);
	if (!check->stop)
		check_log_block(check, log->next_addr);
	if (!check->stop && log->after_addr)
		check_log_block(check, log->after_addr);
}

/* Without replay, damage to a free map is found only if it is known which maps the log names. */
static void check_log_names(struct check *check)
{
	struct volume *vol = check->vol;

	if (vol->opts.no_recovery && vol->read_only && !vol->of_hold && !log_note_groups(vol))
		balloc_note_log_unread(vol, false);
}

int check_maps(struct check *check)
{
	struct volume *vol = check->vol;
	bool all = check->opts->all_groups || check->used.group_count <= CHECK_GROUPS_ALL;
	u64 marked = 0, rest = 0, counted = atomic64_read(&vol->balloc.disk_used);
	u64 used = check->used.set + balloc_fixed_blocks(vol);
	int err;

	check->buffer = kvmalloc(2 * (size_t)vol->block_size, GFP_KERNEL);
	if (!check->buffer)
		return check_fail(check, -ENOMEM);
	check_log_names(check);
	err = check_groups(check, true, all, &marked);
	if (!err && !all && (used != counted || (marked != counted && !check->result->groups_changed)))
		err = check_groups(check, false, true, &rest);
	check_progress(check, CHECK_SPACE, check->used.group_count, check->used.group_count);
	kvfree(check->buffer);
	check->buffer = NULL;
	if (err)
		return err;
	check_log(check);
	if (!check->stop && !check->damaged && used != counted)
		check_problem(check, USED_TOTAL, 0, 0, NULL, counted, used);
	return check->stop;
}
