/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Telling the device which blocks hold nothing of value: all free ones of a range (fstrim), or those that a commit
 * has freed (the option discard).
 *
 * Only blocks that can be allocated are trimmed: no state that a crash could bring back needs them.  A run of them
 * is marked busy while the device discards it, so that nobody gets it, and then given back.  In the books of space it
 * counts as free all the time: so nothing is refused for want of it.  An allocation that finds nothing else
 * waits until a run is given back (balloc_alloc).
 *
 * What commits free is free at once.  With the option discard it is also noted, and later, in the background,
 * trimmed as far as it is still free.  If too much is noted, or there is no memory for it, it is forgotten: fstrim
 * finds it.
 *
 * Locking: balloc->lock while runs are taken and given back, none while they are discarded.  commit_mutex for
 * trim->freed; trim->work is the back-end thread's (without a thread: commit_mutex).
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/device/device.h"
#include "core/blocks/balloc.h"
#include "core/blocks/freemap.h"
#include "core/blocks/trim.h"

#define TRIM_NOTED_MAX	65536u	/* ranges */
#define TRIM_TURN	16u	/* ranges trimmed before the thread looks for other work */

/* Mark the next run in [*at, end) of at least min free blocks as busy: 1, *at behind it.  0: there is none.  -errno. */
static int trim_take(struct volume *vol, u64 *at, u64 end, u64 min, struct block_range *run)
{
	struct balloc *balloc = &vol->balloc;
	u64 index = *at / vol->group_blocks;
	u32 from = *at % vol->group_blocks, to = group_length(vol, index), stop;
	struct balloc_group *group;
	int err = group_get(vol, index, &group);

	to = min_t(u64, to, end - balloc_group_start(vol, index));
	*at = balloc_group_start(vol, index) + to;
	if (err)		/* -EIO: told, and nothing is allocated there either */
		return err == -EIO ? 0 : err;
	for (; from < to; from = stop) {
		from = find_next_zero_bit(group->busy, to, from);
		stop = find_next_bit(group->busy, to, from);
		if (from >= to || stop - from < min)
			continue;
		group_mark_busy(group, from, stop - from);
		group->extra += stop - from;
		group_place(balloc, group);
		run->addr = group->start + from;
		run->len = stop - from;
		balloc->trimming += run->len;
		*at = run->addr + run->len;
		return 1;
	}
	return 0;
}

static void trim_give_back(struct volume *vol, const struct block_range *run)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group;

	mutex_lock(&balloc->lock);
	/* In memory, since it has busy blocks that its map has not. */
	if (!WARN_ON_ONCE(group_get(vol, run->addr / vol->group_blocks, &group))) {
		group->extra -= run->len;
		group_unmark_busy(group, run->addr - group->start, run->len);
		group_place(balloc, group);
	}
	balloc->trimming -= run->len;
	WRITE_ONCE(balloc->trims, balloc->trims + 1);
	mutex_unlock(&balloc->lock);
	wake_up_all(&balloc->trim_queue);
}

/* May we write to the device now?  With balloc->lock held it stays so until that is dropped: see trim_wait(). */
static int trim_allowed(struct volume *vol)
{
	if (volume_error(vol))
		return volume_error(vol);
	if (READ_ONCE(vol->read_only))
		return -EROFS;
	return READ_ONCE(vol->delta.paused) ? -EBUSY : 0;
}

int volume_trim(struct volume *vol, u64 start, u64 count, u64 min_blocks, u64 *trimmed)
{
	u64 at = start, end = start + min(count, vol->total_blocks - min(start, vol->total_blocks));
	struct block_range run = {};
	int found, err = 0;

	*trimmed = 0;
	while (!err && at < end) {
		mutex_lock(&vol->balloc.lock);
		err = trim_allowed(vol);
		found = err ? err : trim_take(vol, &at, end, max_t(u64, min_blocks, 1), &run);
		mutex_unlock(&vol->balloc.lock);
		if (found > 0) {
			err = device_discard(vol->dev, run.addr, run.len);
			trim_give_back(vol, &run);
			if (!err)
				*trimmed += run.len;
		}
		if (!err)
			err = fatal_signal_pending(current) ? -EINTR : min(found, 0);
		cond_resched();
	}
	count_add(vol, TUX3_COUNT_DISCARDED, *trimmed);
	return err;
}

/* Who took a run before trim_allowed() began to say no gives it back. */
void trim_wait(struct volume *vol)
{
	struct balloc *balloc = &vol->balloc;
	u64 trims;

	mutex_lock(&balloc->lock);
	while (balloc->trimming) {
		trims = balloc->trims;
		mutex_unlock(&balloc->lock);
		wait_event(balloc->trim_queue, READ_ONCE(balloc->trims) != trims);
		mutex_lock(&balloc->lock);
	}
	mutex_unlock(&balloc->lock);
}

/* ---- in the background ---- */

void trim_init(struct volume *vol)
{
	range_list_init(&vol->trim.freed);
	range_list_init(&vol->trim.work);
	vol->trim.at = 0;
}

void trim_exit(struct volume *vol)
{
	range_list_exit(&vol->trim.freed);
	range_list_exit(&vol->trim.work);
	vol->trim.at = 0;
}

void trim_note(struct volume *vol, const struct range_list *freed)
{
	struct range_list *list = &vol->trim.freed;
	u32 i;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!READ_ONCE(vol->opts.discard) || !vol->dev->ops->discard)
		return;
	for (i = 0; i < freed->count && list->count < TRIM_NOTED_MAX; i++)
		if (range_list_add(list, freed->ranges[i].addr, freed->ranges[i].len))
			break;
}

bool trim_pending(struct volume *vol)
{
	return vol->trim.freed.count || vol->trim.work.count;
}

void trim_collect(struct volume *vol)
{
	struct trim *trim = &vol->trim;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (trim->work.count || !trim->freed.count)
		return;
	range_list_move(&trim->work, &trim->freed);
	/* A range may be there twice, when it was used again meanwhile. */
	trim->work.count = block_ranges_unite(trim->work.ranges, trim->work.count);
	trim->at = 0;
}

void trim_background(struct volume *vol)
{
	struct trim *trim = &vol->trim;
	u64 trimmed;
	u32 n;
	int err = 0;

	for (n = 0; n < TRIM_TURN && trim->at < trim->work.count && !err; n++) {
		struct block_range *range = &trim->work.ranges[trim->at++];

		err = volume_trim(vol, range->addr, range->len, 1, &trimmed);
	}
	if (err && !trim_allowed(vol) && err != -EINTR) {
		volume_warn(vol, "discarding freed blocks failed (%s) and is not tried any more", error_text(err));
		WRITE_ONCE(vol->opts.discard, false);
	}
	if (err || trim->at == trim->work.count)
		range_list_exit(&trim->work);
}
