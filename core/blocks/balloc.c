/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Allocating and freeing blocks: the state of each block, and the counters that follow it.
 *
 *	disk busy
 *	  0    0	free
 *	  1    1	in use by the tree, by data, or fixed
 *	  0    1	log block, or deferred: free in the newest state, needed by an older one
 *
 *	free --alloc DATA, NODE; place; take--> in use --free--> free
 *	free --alloc LOG; settle--> busy only --free LOG; release--> free
 *	in use --defer--> busy only;  busy only --take--> in use
 *
 * Invariants
 *  1. disk is a subset of busy.  Fixed blocks, and the bits beyond the end of the volume, are in both.
 *  2. info->free is the number of clear busy bits of a known group; extra that of busy bits not in disk.
 *  3. disk_used = used_blocks at init + all disk bits set - all cleared since; free_blocks likewise, with blocks
 *     that are busy only because they are being trimmed counted as free, and those promised to tree nodes not.
 *  4. A call that returns an error has changed nothing.
 *
 * Where to allocate is decided in placement.c; freemap.c loads and writes the bitmaps.
 *
 * Locking: all functions that balloc.h lists take balloc->lock, but for the range_list functions: a list
 * is protected by whoever owns it.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/blocks/freemap.h"
#include "core/blocks/held.h"

/* ---- range lists ---- */

#define RANGE_LIST_START 16u

void range_list_init(struct range_list *list)
{
	memset(list, 0, sizeof(*list));
}

void range_list_exit(struct range_list *list)
{
	kvfree(list->ranges);
	range_list_init(list);
}

int range_list_reserve(struct range_list *list)
{
	struct block_range *ranges;
	u32 capacity;

	if (list->count < list->capacity)
		return 0;
	if (list->capacity > U32_MAX / 2)
		return -ENOMEM;
	capacity = max(2 * list->capacity, RANGE_LIST_START);
	ranges = kvmalloc(capacity * sizeof(*ranges), GFP_COMMIT);
	if (!ranges)
		return -ENOMEM;
	if (list->count)
		memcpy(ranges, list->ranges, list->count * sizeof(*ranges));
	kvfree(list->ranges);
	list->ranges = ranges;
	list->capacity = capacity;
	return 0;
}

int range_list_add(struct range_list *list, u64 addr, u64 len)
{
	struct block_range *last = list->count ? &list->ranges[list->count - 1] : NULL;
	int err;

	if (last && last->addr + last->len == addr) {
		last->len += len;
	} else {
		err = range_list_reserve(list);
		if (err)
			return err;
		list->ranges[list->count++] = (struct block_range){ .addr = addr, .len = len };
	}
	list->blocks += len;
	return 0;
}

void range_list_move(struct range_list *to, struct range_list *from)
{
	WARN_ON_ONCE(to->count);
	kvfree(to->ranges);
	*to = *from;
	range_list_init(from);
}

static int range_order(const void *a, const void *b)
{
	const struct block_range *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

u64 block_ranges_unite(struct block_range *ranges, u64 count)
{
	u64 to = 0, i;

	sort(ranges, count, sizeof(*ranges), range_order, NULL);
	for (i = 1; i < count; i++) {
		struct block_range *last = &ranges[to], *range = &ranges[i];

		if (range->addr <= last->addr + last->len)
			last->len = max(last->addr + last->len, range->addr + range->len) - last->addr;
		else
			ranges[++to] = *range;
	}
	return count ? to + 1 : 0;
}

/* ---- open and close ---- */

static u64 greatest_common_divisor(u64 a, u64 b)
{
	while (b) {
		u64 rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

int balloc_init(struct volume *vol, u64 used_blocks)
{
	struct balloc *balloc = &vol->balloc;
	u64 chunks;

	memset(balloc, 0, sizeof(*balloc));
	mutex_init(&balloc->lock);
	init_waitqueue_head(&balloc->trim_queue);
	INIT_LIST_HEAD(&balloc->changed);
	INIT_LIST_HEAD(&balloc->pinned);
	INIT_LIST_HEAD(&balloc->clean);
	INIT_LIST_HEAD(&balloc->unlogged);
	INIT_LIST_HEAD(&balloc->hot);
	range_list_init(&balloc->node_frees);
	if (vol->total_blocks < TUX3_MIN_VOLUME_BYTES >> vol->block_shift || used_blocks > vol->total_blocks)
		return -EINVAL;
	balloc->group_count = DIV_ROUND_UP(vol->total_blocks, vol->group_blocks);
	balloc->fixed_blocks = balloc_fixed_blocks(vol);
	chunks = DIV_ROUND_UP(balloc->group_count, CHUNK_GROUPS);
	if (chunks > CHUNKS_MAX)
		return -EFBIG;
	balloc->chunks = kvzalloc(chunks * sizeof(*balloc->chunks), GFP_KERNEL);
	if (!balloc->chunks)
		return -ENOMEM;
	balloc->unknown_groups = balloc->group_count;
	balloc->probe_left = balloc->group_count;
	/* Steps of about 0.618 of all groups, which visit each once. */
	balloc->probe_step = balloc->group_count - balloc->group_count / 8 * 3;
	while (greatest_common_divisor(balloc->probe_step, balloc->group_count) != 1)
		balloc->probe_step++;
	balloc->mount_delta = le64_to_cpu(vol->anchor.delta);
	atomic64_set(&balloc->disk_used, used_blocks);
	atomic64_set(&balloc->free_blocks, vol->total_blocks - used_blocks);
	placement_init(vol);
	return 0;
}

static void group_list_destroy(struct balloc *balloc, struct list_head *list)
{
	while (!list_empty(list))
		group_destroy(balloc, list_first_entry(list, struct balloc_group, link));
}

void balloc_exit(struct volume *vol)
{
	struct balloc *balloc = &vol->balloc;
	u64 i;

	if (!balloc->chunks)
		return;
	group_list_destroy(balloc, &balloc->changed);
	group_list_destroy(balloc, &balloc->pinned);
	group_list_destroy(balloc, &balloc->clean);
	for (i = 0; i < DIV_ROUND_UP(balloc->group_count, CHUNK_GROUPS); i++)
		kvfree(balloc->chunks[i]);
	kvfree(balloc->chunks);
	balloc->chunks = NULL;
	kvfree(balloc->scratch);
	balloc->scratch = NULL;
	range_list_exit(&balloc->node_frees);
}

/* ---- bits ---- */

static bool bits_all_set(const unsigned long *bits, u32 from, u32 len)
{
	return find_next_zero_bit(bits, from + len, from) == from + len;
}

static bool bits_all_clear(const unsigned long *bits, u32 from, u32 len)
{
	return find_next_bit(bits, from + len, from) == from + len;
}

/* Set busy where it is clear; returns how many bits were. */
u32 group_mark_busy(struct balloc_group *group, u32 from, u32 len)
{
	u32 end = from + len, count = 0, run;

	while ((from = find_next_zero_bit(group->busy, end, from)) < end) {
		run = find_next_bit(group->busy, end, from) - from;
		bitmap_set(group->busy, from, run);
		from += run;
		count += run;
	}
	group->info->free -= count;
	return count;
}

/* All of these are set. */
void group_unmark_busy(struct balloc_group *group, u32 from, u32 len)
{
	bitmap_clear(group->busy, from, len);
	group->info->free += len;
	placement_freed(group, from, len);
}

static u32 group_set_busy(struct balloc *balloc, struct balloc_group *group, u32 from, u32 len)
{
	u32 count = group_mark_busy(group, from, len);

	lockdep_assert_held(&balloc->lock);
	atomic64_sub(count, &balloc->free_blocks);
	return count;
}

static void group_clear_busy(struct balloc *balloc, struct balloc_group *group, u32 from, u32 len)
{
	lockdep_assert_held(&balloc->lock);
	group_unmark_busy(group, from, len);
	atomic64_add(len, &balloc->free_blocks);
}

/* All of these are clear. */
static void group_set_disk(struct balloc *balloc, struct balloc_group *group, enum balloc_kind kind,
			   u32 from, u32 len)
{
	lockdep_assert_held(&balloc->lock);
	bitmap_set(group->disk, from, len);
	atomic64_add(len, &balloc->disk_used);
	if (kind == BALLOC_DATA)
		atomic64_add(len, &balloc->data_used);
	group_mark_changed(balloc, group);
}

/* All of these are set. */
static void group_clear_disk(struct balloc *balloc, struct balloc_group *group, enum balloc_kind kind,
			     u32 from, u32 len)
{
	lockdep_assert_held(&balloc->lock);
	bitmap_clear(group->disk, from, len);
	atomic64_sub(len, &balloc->disk_used);
	if (kind == BALLOC_DATA)
		atomic64_sub(len, &balloc->data_used);
	group_mark_changed(balloc, group);
}

/* Tell what went wrong with a range.  Always -EIO. */
static int range_error(struct volume *vol, const char *what, u64 addr, u64 len, const char *why)
{
	volume_warn(vol, "cannot %s %llu blocks at block %llu: %s; nothing was changed", what,
		    (unsigned long long)len, (unsigned long long)addr, why);
	return -EIO;
}

/* The group that holds a range of blocks, none of them fixed. */
static int range_locate(struct volume *vol, const char *what, u64 addr, u64 len,
			struct balloc_group **group, u32 *from)
{
	u64 index;

	lockdep_assert_held(&vol->balloc.lock);
	if (!len || addr >= vol->total_blocks || len > vol->total_blocks - addr)
		return range_error(vol, what, addr, len, "they are not blocks of the volume");
	index = addr / vol->group_blocks;
	*from = addr % vol->group_blocks;
	if (len > group_length(vol, index) - *from || group_fixed_blocks(vol, index, *from, len))
		return range_error(vol, what, addr, len, "they belong to anchors or free maps");
	return group_get(vol, index, group);
}

/* ---- allocating ---- */

/* With lock.  What is missing because it is being discarded comes back. */
static int balloc_find(struct volume *vol, enum balloc_kind kind, u64 goal, const struct balloc_want *want,
		       struct placement *place)
{
	struct balloc *balloc = &vol->balloc;
	u64 trims;
	int err;

	lockdep_assert_held(&vol->balloc.lock);
	atomic64_inc(&balloc->allocs);
	for (;;) {
		err = placement_find(vol, kind, goal, want, place);
		if (!balloc->trimming || (err != -ENOSPC && err != -EIO))
			return err;
		trims = balloc->trims;
		mutex_unlock(&balloc->lock);
		wait_event(balloc->trim_queue, READ_ONCE(balloc->trims) != trims);
		mutex_lock(&balloc->lock);
	}
}

/* What was found is in use. */
static void balloc_taken(struct volume *vol, enum balloc_kind kind, u64 goal, const struct placement *place, u64 *addr, u32 *len)
{
	struct balloc *balloc = &vol->balloc;

	group_set_busy(balloc, place->group, place->from, place->len);
	if (kind == BALLOC_LOG)
		place->group->extra += place->len;
	else
		group_set_disk(balloc, place->group, kind, place->from, place->len);
	group_place(balloc, place->group);
	atomic64_inc(&balloc->extents_allocated);
	balloc->taken[kind] += place->len;
	*addr = place->group->start + place->from;
	*len = place->len;
	trace_tux3_balloc(vol, kind, goal, *addr, *len);
}

static int balloc_get(struct volume *vol, enum balloc_kind kind, u64 goal, struct balloc_want *want, u64 *addr, u32 *len)
{
	struct balloc *balloc = &vol->balloc;
	s64 free = atomic64_read(&balloc->free_blocks);
	struct placement place;
	int err;

	want->min = max(want->min, 1u);
	want->most = max(want->most, want->min);
	if (free < want->min)
		return -ENOSPC;
	want->most = min_t(u64, want->most, free);
	want->run = max(want->run, want->most);
	mutex_lock(&balloc->lock);
	err = balloc_find(vol, kind, goal, want, &place);
	if (!err)
		balloc_taken(vol, kind, goal, &place, addr, len);
	mutex_unlock(&balloc->lock);
	return err;
}

int balloc_alloc(struct volume *vol, enum balloc_kind kind, u64 goal, u32 min, u32 want, u64 *addr, u32 *len)
{
	struct balloc_want wanted = { .min = min, .most = want };

	return balloc_get(vol, kind, goal, &wanted, addr, len);
}

int balloc_alloc_part(struct volume *vol, u64 goal, u64 run, u32 most, u64 *addr, u32 *len)
{
	struct balloc_want want = { .most = most, .run = min_t(u64, run, U32_MAX) };

	return balloc_get(vol, BALLOC_DATA, goal, &want, addr, len);
}

int balloc_window_take(struct volume *vol, u64 ino, u64 block, u32 want, u64 *addr, u32 *len)
{
	struct balloc *balloc = &vol->balloc;
	s64 free = atomic64_read(&balloc->free_blocks);
	struct placement place;
	int err;

	if (free < 1)
		return -ENOSPC;
	mutex_lock(&balloc->lock);
	err = placement_in_window(vol, ino, block, min_t(u64, want, free), &place);
	if (!err) {
		atomic64_inc(&balloc->allocs);
		balloc_taken(vol, BALLOC_DATA, place.group->start + place.from, &place, addr, len);
	}
	mutex_unlock(&balloc->lock);
	return err;
}

int balloc_window_open(struct volume *vol, const struct balloc_window *window, u64 hint)
{
	int err;

	mutex_lock(&vol->balloc.lock);
	err = placement_window_open(vol, window, hint);
	mutex_unlock(&vol->balloc.lock);
	return err;
}

int balloc_window_again(struct volume *vol, const struct balloc_window *window, u64 addr, u64 wanted)
{
	int err;

	mutex_lock(&vol->balloc.lock);
	err = placement_window_again(vol, window, addr, wanted);
	mutex_unlock(&vol->balloc.lock);
	return err;
}

/* ---- nodes that have no block yet ---- */

int balloc_promise(struct volume *vol, u64 blocks)
{
	struct balloc *balloc = &vol->balloc;

	if (atomic64_sub_return(blocks, &balloc->free_blocks) < 0 && !vol->log.replaying) {
		atomic64_add(blocks, &balloc->free_blocks);
		return -ENOSPC;
	}
	atomic64_add(blocks, &balloc->promised);
	balloc->taken[BALLOC_NODE] += blocks;
	return 0;
}

void balloc_unpromise(struct volume *vol, u64 blocks)
{
	atomic64_sub(blocks, &vol->balloc.promised);
	atomic64_add(blocks, &vol->balloc.free_blocks);
	vol->balloc.taken[BALLOC_NODE] -= blocks;
}

int balloc_place(struct volume *vol, u32 want, u64 *addr, u32 *len)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_want wanted = { .min = 1, .most = want, .run = want };
	struct placement place;
	int err;

	mutex_lock(&balloc->lock);
	err = balloc_find(vol, BALLOC_NODE, 0, &wanted, &place);
	if (!err) {
		group_mark_busy(place.group, place.from, place.len);
		group_set_disk(balloc, place.group, BALLOC_NODE, place.from, place.len);
		atomic64_sub(place.len, &balloc->promised);
		atomic64_inc(&balloc->extents_allocated);
		*addr = place.group->start + place.from;
		*len = place.len;
		trace_tux3_balloc(vol, BALLOC_NODE, 0, *addr, *len);
	}
	mutex_unlock(&balloc->lock);
	return err;
}

/* The caller frees the blocks, if they may be: then none is missing. */
void balloc_promise_again(struct volume *vol, u64 blocks)
{
	atomic64_sub(blocks, &vol->balloc.free_blocks);
	atomic64_add(blocks, &vol->balloc.promised);
	vol->balloc.taken[BALLOC_NODE] += blocks;
}

/* ---- freeing ---- */

/* Are these in use in the way that kind is? */
static int range_check_used(struct volume *vol, const char *what, enum balloc_kind kind,
			    struct balloc_group *group, u32 from, u32 len)
{
	u64 addr = group->start + from;

	lockdep_assert_held(&vol->balloc.lock);
	if (!bits_all_set(group->busy, from, len))
		return range_error(vol, what, addr, len, "some are free already");
	if (kind == BALLOC_LOG && !bits_all_clear(group->disk, from, len))
		return range_error(vol, what, addr, len, "some are in use by the tree or by data");
	if (kind != BALLOC_LOG && !bits_all_set(group->disk, from, len))
		return range_error(vol, what, addr, len, "some are not in use by the tree or by data");
	return 0;
}

static int range_free(struct volume *vol, enum balloc_kind kind, u64 addr, u64 len)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group;
	u32 from;
	int err;

	lockdep_assert_held(&vol->balloc.lock);
	err = range_locate(vol, "free", addr, len, &group, &from);
	if (!err)
		err = range_check_used(vol, "free", kind, group, from, len);
	if (err)
		return err;
	if (kind == BALLOC_LOG)
		group->extra -= len;
	else
		group_clear_disk(balloc, group, kind, from, len);
	group_clear_busy(balloc, group, from, len);
	group_place(balloc, group);
	return 0;
}

static int range_defer(struct volume *vol, enum balloc_kind kind, u64 addr, u64 len, struct range_list *list)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group;
	u32 from;
	int err;

	lockdep_assert_held(&vol->balloc.lock);
	err = range_locate(vol, "free", addr, len, &group, &from);
	if (!err)
		err = range_check_used(vol, "free", kind, group, from, len);
	if (!err && list)
		err = range_list_add(list, addr, len);
	if (err || kind == BALLOC_LOG)
		return err;
	group_clear_disk(balloc, group, kind, from, len);
	group->extra += len;
	group_place(balloc, group);
	return 0;
}

/* Of [from, to) of a group what is in use: how many blocks that was is added to *used. */
static int group_defer_used(struct volume *vol, struct balloc_group *group, u32 from, u32 to, struct range_list *list, u64 *used)
{
	u32 end;
	int err = 0;

	lockdep_assert_held(&vol->balloc.lock);
	for (from = find_next_bit(group->disk, to, from); from < to && !err; from = find_next_bit(group->disk, to, end)) {
		end = find_next_zero_bit(group->disk, to, from);
		if (list)
			err = range_list_add(list, group->start + from, end - from);
		if (err)
			break;
		group_clear_disk(&vol->balloc, group, BALLOC_DATA, from, end - from);
		group->extra += end - from;
		*used += end - from;
	}
	group_place(&vol->balloc, group);
	return err;
}

int balloc_free(struct volume *vol, enum balloc_kind kind, u64 addr, u64 len)
{
	int err;

	mutex_lock(&vol->balloc.lock);
	err = range_free(vol, kind, addr, len);
	if (!err)
		vol->balloc.taken[kind] -= len;
	mutex_unlock(&vol->balloc.lock);
	return err;
}

int balloc_defer(struct volume *vol, enum balloc_kind kind, u64 addr, u64 len, struct range_list *list)
{
	int err;

	mutex_lock(&vol->balloc.lock);
	err = range_defer(vol, kind, addr, len, list);
	mutex_unlock(&vol->balloc.lock);
	return err;
}

int balloc_defer_data(struct volume *vol, u64 addr, u64 len, struct range_list *list)
{
	u64 at = addr, left = len, used = 0;
	struct balloc_group *group;
	u32 from, part, head, tail;
	int err = 0;

	mutex_lock(&vol->balloc.lock);
	for (; left && !err; at += part, left -= part) {
		from = at % vol->group_blocks;
		part = min_t(u64, left, vol->group_blocks - from);
		group_fixed_bounds(vol, at / vol->group_blocks, &head, &tail);
		err = group_get(vol, at / vol->group_blocks, &group);
		if (!err)
			err = group_defer_used(vol, group, max(from, head), min(from + part, tail), list, &used);
	}
	mutex_unlock(&vol->balloc.lock);
	if (unlikely(!err && used != len))
		volume_odd(vol, &vol->balloc.foreign, "of %llu blocks at block %llu, which a file gives back, %llu are in use",
			   (unsigned long long)len, (unsigned long long)addr, (unsigned long long)used);
	return err;
}

/* Of its group it is known that the map cannot be read: that was told, nothing is freed there, and it is not tried again. */
static bool map_given_up(struct volume *vol, u64 addr)
{
	const struct balloc_info *info = addr < vol->total_blocks ? group_info(vol, addr / vol->group_blocks) : NULL;

	return info && !info->group && info->given_up;
}

/* Nobody could look before whether a commit redirects it.  So a map that cannot be read loses a block, and stops no volume. */
int balloc_free_node(struct volume *vol, u64 addr, u64 birth, bool was_in_snapshot)
{
	int err = 0;

	if (!was_in_snapshot)
		return balloc_free(vol, BALLOC_NODE, addr, 1);
	mutex_lock(&vol->balloc.lock);
	if (likely(!map_given_up(vol, addr)))
		err = range_defer(vol, BALLOC_NODE, addr, 1, held_list(vol, birth));
	if (unlikely(err == -EIO) && map_given_up(vol, addr))
		err = 0;
	mutex_unlock(&vol->balloc.lock);
	return err;
}

/*
 * Ranges that cannot be released are told of and left out; the first error is returned.  Where memory is missing to look at
 * the map of a group that is none: what they belonged to is durable, and all that is lost is their use for now.
 */
int balloc_release(struct volume *vol, struct range_list *list)
{
	int first_err = 0, err;
	u64 kept = 0;
	u32 i;

	mutex_lock(&vol->balloc.lock);
	for (i = 0; i < list->count; i++) {
		err = range_free(vol, BALLOC_LOG, list->ranges[i].addr, list->ranges[i].len);
		if (err == -ENOMEM)
			kept += list->ranges[i].len;
		else if (err && !first_err)
			first_err = err;
	}
	mutex_unlock(&vol->balloc.lock);
	if (kept)
		volume_warn(vol, "out of memory: %llu blocks that were freed stay out of use until the next mount",
			    (unsigned long long)kept);
	list->count = 0;
	list->blocks = 0;
	return first_err;
}

/* ---- replay ---- */

/*
 * Of what replay has found: busy, but in use by neither the tree nor data, nor by anything else of that: nodes of the anchor's tree
 * that the log has freed, its own blocks, where it goes on, intents.  A block that is two of these would be written over.
 */
static int range_reserve(struct volume *vol, u64 addr, u64 len)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group;
	u32 from, count;
	int err;

	lockdep_assert_held(&vol->balloc.lock);
	err = range_locate(vol, "reserve", addr, len, &group, &from);
	if (err)
		return err;
	if (!bits_all_clear(group->disk, from, len))
		return range_error(vol, "reserve", addr, len, "some are in use by the tree or by data");
	count = group_set_busy(balloc, group, from, len);
	group->extra += count;
	group_place(balloc, group);
	return count == len ? 0 : range_error(vol, "reserve", addr, len, "some are kept for something else already");
}

int balloc_take(struct volume *vol, u64 addr, u64 len)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group;
	u32 from;
	int err;

	mutex_lock(&balloc->lock);
	err = range_locate(vol, "take", addr, len, &group, &from);
	if (!err && !bits_all_clear(group->disk, from, len))
		err = range_error(vol, "take", addr, len, "some are in use already");
	if (!err) {
		group->extra -= len - group_set_busy(balloc, group, from, len);
		group_set_disk(balloc, group, BALLOC_DATA, from, len);
	}
	mutex_unlock(&balloc->lock);
	return err;
}

/* busy becomes disk. */
static int group_settle(struct volume *vol, struct balloc_group *group)
{
	struct balloc_info *info = group->info;
	int err;

	lockdep_assert_held(&vol->balloc.lock);
	if (!group->extra)
		return 0;
	err = group_unpack(vol, group);
	if (err)
		return err;
	memcpy(group->busy, group->disk, vol->group_blocks / 8);
	info->free += group->extra;
	atomic64_add(group->extra, &vol->balloc.free_blocks);
	group->extra = 0;
	group->memo_len = group->held_len = 0;
	placement_bound(group, info->free);
	group_evict(vol);
	return 0;
}

/* With repair all that can be: it is to stay until something else was written. */
static int ranges_reserve(struct volume *vol, const struct range_list *list)
{
	int first_err = 0, err;
	u32 i;

	for (i = 0; i < list->count && (!first_err || vol->opts.mend); i++) {
		err = range_reserve(vol, list->ranges[i].addr, list->ranges[i].len);
		first_err = first_err ? first_err : err;
	}
	return first_err;
}

int balloc_settle(struct volume *vol, const struct range_list *log)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group, *next;
	int err = 0;

	mutex_lock(&balloc->lock);
	list_for_each_entry(group, &balloc->changed, link) {
		err = group_settle(vol, group);
		if (err)
			break;
	}
	list_for_each_entry_safe(group, next, &balloc->pinned, link) {
		if (!err)
			err = group_settle(vol, group);
		group_place(balloc, group);
	}
	if (!err)
		err = ranges_reserve(vol, &balloc->node_frees);
	if (!err || vol->opts.mend) {
		int log_err = ranges_reserve(vol, log);

		err = err ? err : log_err;
	}
	mutex_unlock(&balloc->lock);
	return err;
}

/* ---- repair ---- */

static void group_set_bits(struct volume *vol, struct balloc_group *group, const u8 *bits, bool forget, u64 *changed)
{
	struct balloc *balloc = &vol->balloc;
	u32 free = 0, extra = 0, i;

	lockdep_assert_held(&balloc->lock);
	*changed = 0;
	for (i = 0; i < vol->group_blocks / BITS_PER_LONG; i++) {
		unsigned long disk = get_unaligned_le64(bits + i * sizeof(u64)), old = group->disk[i];
		unsigned long other = group->busy[i] & ~old;	/* the log */

		*changed += hweight64(disk ^ old);
		group->disk[i] = disk;
		group->busy[i] = disk | other | (forget ? 0 : old);
		free += BITS_PER_LONG - hweight64(group->busy[i]);
		extra += hweight64(group->busy[i] & ~disk);
	}
	group->info->free = free;
	placement_bound(group, free);
	group->extra = extra;
	group->memo_len = group->held_len = 0;
	if (*changed)
		group_mark_changed(balloc, group);
	group_place(balloc, group);
}

int balloc_set_group(struct volume *vol, u64 index, const u8 *bits, bool forget, u64 *changed)
{
	struct balloc_group *group;
	int err;

	mutex_lock(&vol->balloc.lock);
	err = group_get(vol, index, &group);
	if (err && err != -ENOMEM)
		err = group_renew(vol, index, &group);
	if (!err)
		group_set_bits(vol, group, bits, forget, changed);
	mutex_unlock(&vol->balloc.lock);
	return err;
}

void balloc_recount(struct volume *vol, u64 data)
{
	struct balloc *balloc = &vol->balloc;
	struct list_head *lists[] = { &balloc->changed, &balloc->pinned };
	struct balloc_group *group;
	u64 free = 0, extra = 0, i;

	mutex_lock(&balloc->lock);
	for (i = 0; i < ARRAY_SIZE(lists); i++)
		list_for_each_entry(group, lists[i], link)
			extra += group->extra;
	for (i = 0; i < balloc->group_count; i++)
		free += balloc->chunks[i / CHUNK_GROUPS]->info[i % CHUNK_GROUPS].free;
	atomic64_set(&balloc->disk_used, vol->total_blocks - free - extra);
	atomic64_set(&balloc->data_used, data);
	atomic64_set(&balloc->free_blocks, free - atomic64_read(&balloc->promised));
	mutex_unlock(&balloc->lock);
}

/* ---- invariants ---- */

/* Does a search find the longest run that is free? */
static int bounds_verify(const struct balloc_group *group, char *why, size_t why_size)
{
	u32 part = group->chunk->part_longest[group->index % CHUNK_GROUPS / PART_GROUPS], longest = 0, from, to;
	u32 bound = min(group->info->longest, group->info->free);

	for (from = 0; from < group->blocks; from = to) {
		from = find_next_zero_bit(group->busy, group->blocks, from);
		to = find_next_bit(group->busy, group->blocks, from);
		longest = max(longest, to - from);
	}
	if (longest <= bound && bound <= part && part <= group->chunk->longest)
		return 0;
	snprintf(why, why_size, "group %llu has a run of %u free blocks, and its bound is %u, its part's %u, its chunk's %u",
		 (unsigned long long)group->index, longest, bound, part, group->chunk->longest);
	return -EIO;
}

static int group_verify(struct volume *vol, const struct balloc_group *group, char *why, size_t why_size)
{
	u32 free = 0, extra = 0, wrong = 0, i;

	lockdep_assert_held(&vol->balloc.lock);
	for (i = 0; i < vol->group_blocks / BITS_PER_LONG; i++) {
		free += BITS_PER_LONG - hweight64(group->busy[i]);
		extra += hweight64(group->busy[i] & ~group->disk[i]);
		wrong += hweight64(group->disk[i] & ~group->busy[i]);
	}
	if (free == group->info->free && extra == group->extra && !wrong)
		return bounds_verify(group, why, why_size);
	snprintf(why, why_size, "group %llu counts %u blocks as free and %u as busy for another reason than its map, there are %u and %u; %u are in use and not busy",
		 (unsigned long long)group->index, group->info->free, group->extra, free, extra, wrong);
	return -EIO;
}

int balloc_verify(struct volume *vol, char *why, size_t why_size)
{
	struct balloc *balloc = &vol->balloc;
	struct list_head *lists[] = { &balloc->changed, &balloc->pinned, &balloc->clean };
	struct balloc_group *group;
	s64 used, free, promised, extra = 0;
	int err = 0;
	u32 i;

	mutex_lock(&balloc->lock);
	for (i = 0; i < ARRAY_SIZE(lists); i++) {
		list_for_each_entry(group, lists[i], link) {
			extra += group->extra;
			if (!err && !group->packed)
				err = group_verify(vol, group, why, why_size);
		}
	}
	used = atomic64_read(&balloc->disk_used);
	free = atomic64_read(&balloc->free_blocks) - (s64)balloc->trimming;
	promised = atomic64_read(&balloc->promised);
	mutex_unlock(&balloc->lock);
	if (!err && used + extra + free + promised != (s64)vol->total_blocks) {
		snprintf(why, why_size, "%lld blocks in use, %lld busy, %lld free and %lld promised are not the %llu of the volume",
			 used, extra, free, promised, (unsigned long long)vol->total_blocks);
		err = -EIO;
	}
	return err;
}

/* ---- asking ---- */

/* Are all of these set in the disk bits, or in the busy ones (1), none (0), or some (-ERANGE)?  -EIO */
static int range_test(struct volume *vol, u64 addr, u64 len, bool busy)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group;
	const unsigned long *bits;
	bool set = false, clear = false;
	int err = 0;

	if (!len || addr >= vol->total_blocks || len > vol->total_blocks - addr)
		return -EIO;
	mutex_lock(&balloc->lock);
	while (len && !(set && clear)) {
		u32 from = addr % vol->group_blocks;
		u32 part = min_t(u64, len, vol->group_blocks - from);

		err = group_get(vol, addr / vol->group_blocks, &group);
		if (err)
			break;
		bits = busy ? group->busy : group->disk;
		set |= !bits_all_clear(bits, from, part);
		clear |= !bits_all_set(bits, from, part);
		addr += part;
		len -= part;
	}
	mutex_unlock(&balloc->lock);
	if (err)
		return err;
	return set && clear ? -ERANGE : set;
}

int balloc_test(struct volume *vol, u64 addr, u64 len)
{
	return range_test(vol, addr, len, false);
}

int balloc_is_free(struct volume *vol, u64 addr, u64 len)
{
	int set = range_test(vol, addr, len, true);

	return set == -ERANGE ? 0 : set < 0 ? set : !set;
}

int balloc_may_be_data(struct volume *vol, u64 addr, u64 len)
{
	int used = balloc_test(vol, addr, len);
	u64 fixed;

	if (used == -ERANGE || (used > 0 && balloc_first_fixed(vol, addr, len, &fixed)))
		return 0;
	return used;
}
