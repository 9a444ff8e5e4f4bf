// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The intent area, as a ring of batches, and what commits have to do with it.  The picture is in intent.h.
 *
 * Invariants, at any moment at which the power may fail
 *  1. The newest durable commit (or, without one behind it, the anchor) names the place of the first batch that counts on top
 *     of it.  From there on all batches can be found one after the other.
 *  2. A batch whose delta is not durable is not overwritten, nor its data, and their areas are not given back: that happens only
 *     when a commit is durable that names a place behind it, or no area.
 *  3. Before a commit chooses the place that it names it seals its delta: no batch of that delta is begun any more.
 *  4. Batches are written one at a time, each durable before the next is begun.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/delta/delta.h"
#include "core/delta/pace.h"
#include "core/delta/space.h"
#include "core/intent/intent.h"
#include "core/intent/intent_internal.h"

#define AREA_BYTES	(16u << 20)	/* at most: some 2,000 fsyncs of a block, while one commit is under way */
#define LOAD_FADES	8u	/* one of so many parts of it, with each commit */
#define AREA_BLOCKS	64u	/* at least, where blocks are large */
#define AREA_SHARE	64u	/* of a small volume it takes no more than one part of so many ... */
#define AREA_FREE_SHARE	8u	/* ... and of what is free no more than one of so many */
#define AREA_MIN	8u	/* blocks: with less it is not worth it */
#define FAR_BYTES	(128u << 20)	/* at most: 16 fsyncs of 8 MiB, likewise */
#define FAR_SHARE	16u	/* of the volume no more than one part of so many */

int intent_init(struct volume *vol)
{
	struct intent *intent = &vol->intent;

	mutex_init(&intent->capture);
	mutex_init(&intent->write);
	spin_lock_init(&intent->lock);
	INIT_LIST_HEAD(&intent->queue);
	range_list_init(&intent->leaving);
	range_list_init(&intent->kept);
	intent->wanted = intent->far.wanted = true;	/* the first fsync is to find them */
	pace_await(vol, vol->opts.fsync != TUX3_FSYNC_FULL);
	INIT_WORK(&intent->work, intent_write_batch);
	if (vol->opts.manual)
		return 0;
	intent->writer = alloc_workqueue("tux3-intents", WQ_UNBOUND | WQ_HIGHPRI | WQ_MEM_RECLAIM, 1);
	return intent->writer ? 0 : -ENOMEM;
}

void intent_exit(struct volume *vol)
{
	if (vol->intent.writer)		/* who has written for others may still be about to see that there are no more */
		destroy_workqueue(vol->intent.writer);
	vol->intent.writer = NULL;
	range_list_exit(&vol->intent.leaving);
	range_list_exit(&vol->intent.kept);
}

/* ---- the ring, and the far area ---- */

/*
 * Where do so many blocks go, the last ones having ended at head?  Those that count begin with the first one's place, perhaps
 * around the end.
 */
static bool ring_find(const struct intent_firsts *first, u32 head, u32 end, u32 blocks, u32 *offset)
{
	u32 tail;

	if (!first->count) {
		*offset = head + blocks <= end ? head : 0;
		return blocks <= end;
	}
	tail = first->batch[0].offset;
	*offset = head;
	if (head <= tail)
		return head < tail && blocks < tail - head;
	if (head + blocks <= end)
		return true;
	*offset = 0;
	return blocks < tail;
}

static bool firsts_have(const struct intent_firsts *first, u64 delta)
{
	return first->count && first->batch[first->count - 1].delta >= delta;
}

static void firsts_add(struct intent_firsts *first, u64 delta, u64 seq, u32 offset)
{
	if (!firsts_have(first, delta))
		first->batch[first->count++] = (struct intent_batch){ .delta = delta, .seq = seq, .offset = offset };
}

static void firsts_drop(struct intent_firsts *first, u64 sealed)
{
	u32 over = 0;

	while (over < first->count && first->batch[over].delta <= sealed)
		over++;
	first->count -= over;
	memmove(first->batch, first->batch + over, first->count * sizeof(*first->batch));
}

static u32 far_left(const struct intent_far *far)
{
	return far->blocks - far->offset;
}

/* The part that data of the delta goes on with, or a new one; NULL: there is no room. */
static struct intent_far_part *far_find(struct intent_far *far, u64 delta, u32 blocks)
{
	struct intent_far_part *last = far->parts ? &far->part[far->parts - 1] : NULL;

	if (blocks > far_left(far))
		return NULL;
	if (last && last->delta == delta && last->addr + last->blocks == far->addr + far->offset)
		return last;
	return far->parts < ARRAY_SIZE(far->part) ? &far->part[far->parts] : NULL;
}

/* Where the data goes. */
static u64 far_add(struct intent_far *far, struct intent_far_part *part, u64 delta, u32 blocks)
{
	u64 addr = far->addr + far->offset;

	if (part == &far->part[far->parts]) {
		*part = (struct intent_far_part){ .delta = delta, .addr = addr };
		far->parts++;
	}
	part->blocks += blocks;
	far->offset += blocks;
	if (far_left(far) < far->blocks - far->blocks / 4)	/* much may come beside a commit */
		WRITE_ONCE(far->wanted, true);
	return addr;
}

/* Those of deltas up to this one are over: how many there are. */
static u32 far_drop(struct intent_far *far, u64 delta, struct intent_far_part *over)
{
	u32 count = 0;

	while (count < far->parts && far->part[count].delta <= delta)
		count++;
	memcpy(over, far->part, count * sizeof(*over));
	far->parts -= count;
	memmove(far->part, far->part + count, far->parts * sizeof(*over));
	return count;
}

/* What nobody has used of it is nobody's any more. */
static struct block_range far_take_rest(struct intent_far *far)
{
	struct block_range rest = { far->addr + far->offset, far_left(far) };

	far->addr = 0;
	far->offset = 0;
	WRITE_ONCE(far->blocks, 0);
	return rest;
}

bool intent_ring_add(struct volume *vol, u64 delta, u32 blocks, u32 far_blocks, struct intent_batch *place)
{
	struct intent *intent = &vol->intent;
	struct intent_far_part *part = NULL;
	u32 offset;

	lockdep_assert_held(&intent->lock);
	if (far_blocks)
		part = far_find(&intent->far, delta, far_blocks);
	if ((!firsts_have(&intent->first, delta) && intent->first.count == INTENT_DELTAS) || (far_blocks && !part) ||
	    !ring_find(&intent->first, intent->place.offset, intent->place.blocks, blocks, &offset))
		return false;
	*place = (struct intent_batch){ .delta = delta, .seq = intent->place.seq++, .offset = offset };
	WRITE_ONCE(intent->batches, intent->batches + 1);
	firsts_add(&intent->first, delta, place->seq, offset);
	intent->place.offset = offset + blocks;
	if (part)
		place->far = far_add(&intent->far, part, delta, far_blocks);
	return true;
}

static bool ring_has_newer(struct intent *intent, u64 delta)
{
	lockdep_assert_held(&intent->lock);
	return firsts_have(&intent->first, delta + 1);
}

/* ---- for commits ---- */

/*
 * A run of blocks for an area, as many as are wanted and can be spared, but no fewer than min: how many there are, or 0.  It is
 * *wanted until there is room for it.
 */
static u32 area_allocate(struct volume *vol, u64 delta, bool *wanted, u32 min, u64 want, s64 *charged, u64 *addr)
{
	u32 got;

	lockdep_assert_held(&vol->delta.commit_mutex);
	want = min_t(u64, want, max_t(s64, space_balance(vol), 0) / AREA_FREE_SHARE);
	if (want < min)
		return 0;
	WRITE_ONCE(*wanted, false);
	if (vol->space.tight[~delta & 1] || !space_charge(vol, raw_cpu_ptr(vol->delta.cpu), want, 0))
		return 0;
	*charged += want;
	space_note_log(vol, delta, want);
	return balloc_alloc(vol, BALLOC_LOG, 0, min, want, addr, &got) ? 0 : got;
}

static void area_begin(struct volume *vol, u64 delta, s64 *charged)
{
	u64 want = min(max_t(u64, AREA_BYTES >> vol->block_shift, AREA_BLOCKS), vol->total_blocks / AREA_SHARE), addr;
	struct intent *intent = &vol->intent;
	u32 blocks;

	if (!READ_ONCE(intent->wanted) || intent->place.addr || intent->fresh.addr)
		return;
	blocks = area_allocate(vol, delta, &intent->wanted, AREA_MIN, want, charged, &addr);
	if (blocks)
		intent->fresh = (struct intent_place){ .addr = addr, .life = get_random_u64(), .seq = 1, .blocks = blocks };
}

/* Without memory for it they stay busy, until the next mount. */
static int far_release(struct volume *vol, const struct block_range *rest)
{
	int err = rest->len ? range_list_add(&vol->intent.leaving, rest->addr, rest->len) : 0;

	return err ? 0 : balloc_release(vol, &vol->intent.leaving);
}

/*
 * Its blocks were free and not busy in the newest durable state, and are in that which is being committed: so it can be used at
 * once.  It is to be a third larger than what is left of the one before, which may have become a small one where free blocks were
 * scattered.
 */
static int far_begin(struct volume *vol, u64 delta, s64 *charged)
{
	u64 want = min_t(u64, FAR_BYTES >> vol->block_shift, vol->total_blocks / FAR_SHARE), addr;
	u32 least = INTENT_FAR_SHARE * ((vol->opts.intent_near_bytes >> vol->block_shift) + 1), left, blocks;	/* for one file */
	struct intent *intent = &vol->intent;
	struct block_range rest;

	if (!READ_ONCE(intent->far.wanted) || (!intent->place.addr && !intent->fresh.addr))
		return 0;
	spin_lock(&intent->lock);
	left = far_left(&intent->far);
	spin_unlock(&intent->lock);
	blocks = area_allocate(vol, delta, &intent->far.wanted, max(least, left + left / 3), want, charged, &addr);
	if (!blocks)
		return 0;
	spin_lock(&intent->lock);
	rest = far_take_rest(&intent->far);
	intent->far.addr = addr;
	WRITE_ONCE(intent->far.blocks, blocks);
	spin_unlock(&intent->lock);
	return far_release(vol, &rest);
}

/* Where little is left the far area goes first: that needs no commit. */
static int far_give_back(struct volume *vol)
{
	struct intent *intent = &vol->intent;
	s64 balance = space_balance(vol);
	struct block_range rest = {};

	spin_lock(&intent->lock);
	if (balance < (s64)far_left(&intent->far))
		rest = far_take_rest(&intent->far);
	spin_unlock(&intent->lock);
	return far_release(vol, &rest);
}

/* Of what batches of deltas that are durable have had there: what has not become data of files. */
static int far_leave(struct volume *vol, const struct intent_far_part *part, u32 parts)
{
	struct range_list *kept = &vol->intent.kept, *leaving = &vol->intent.leaving;
	u64 count = block_ranges_unite(kept->ranges, kept->count), j;
	int err = 0;
	u32 i;

	for (i = 0; i < parts; i++) {
		u64 at = part[i].addr, end = at + part[i].blocks;

		for (j = 0; j < count && !err; j++) {
			u64 from = max(kept->ranges[j].addr, at), to = min(kept->ranges[j].addr + kept->ranges[j].len, end);

			if (from >= to)
				continue;
			err = from > at ? range_list_add(leaving, at, from - at) : 0;
			at = to;
		}
		if (!err && at < end)
			err = range_list_add(leaving, at, end - at);
	}
	kept->count = 0;
	kept->blocks = 0;
	return balloc_release(vol, leaving);	/* what there was no memory for stays busy, until the next mount */
}

/* What is of some commits ago counts little. */
static void note_load(struct volume *vol, u64 delta)
{
	struct intent *intent = &vol->intent;

	WRITE_ONCE(intent->committed_load, intent->committed_load - intent->committed_load / LOAD_FADES +
		   intent_load(vol, delta));
	atomic64_sub(atomic64_read(&intent->large_synced) / LOAD_FADES, &intent->large_synced);
}

int intent_begin_commit(struct volume *vol, u64 delta, s64 *charged)
{
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	note_load(vol, delta);
	pace_await(vol, false);		/* this is the first one, whether it makes areas or not */
	err = far_give_back(vol);
	if (err || READ_ONCE(vol->opts.fsync) == TUX3_FSYNC_FULL || vol->intent.shrink)
		return err;
	area_begin(vol, delta, charged);
	return far_begin(vol, delta, charged);
}

bool intent_seal(struct volume *vol, u64 delta)
{
	struct intent *intent = &vol->intent;
	bool write;

	lockdep_assert_held(&vol->delta.commit_mutex);
	spin_lock(&intent->lock);
	intent->sealed = delta;
	write = intent->first.count && intent->first.batch[0].delta <= delta;
	if (intent->shrink && intent->place.addr && !ring_has_newer(intent, delta))
		write = true;
	spin_unlock(&intent->lock);
	return write;
}

static void place_to_disk(struct disk_intent_place *disk, const struct intent_place *place)
{
	disk->addr = cpu_to_le64(place->addr);
	disk->life = cpu_to_le64(place->life);
	disk->seq = cpu_to_le64(place->seq);
	disk->blocks = cpu_to_le32(place->blocks);
	disk->offset = cpu_to_le32(place->offset);
}

/* What the commit of the delta that was sealed last names, intent->lock held. */
static struct intent_place place_to_name(struct volume *vol)
{
	struct intent *intent = &vol->intent;
	struct intent_place place = intent->place;
	u32 i;

	lockdep_assert_held(&vol->intent.lock);
	if (!place.addr)
		return intent->fresh;
	for (i = 0; i < intent->first.count; i++) {
		if (intent->first.batch[i].delta > intent->sealed) {
			place.offset = intent->first.batch[i].offset;
			place.seq = intent->first.batch[i].seq;
			break;
		}
	}
	return place;
}

void intent_name(struct volume *vol, struct disk_intent_place *named)
{
	struct intent *intent = &vol->intent;

	lockdep_assert_held(&vol->delta.commit_mutex);
	spin_lock(&intent->lock);
	if (intent->shrink && !ring_has_newer(intent, intent->sealed)) {
		/* From now on no batch is begun: nobody would find it. */
		intent->returning = (struct block_range){ intent->place.addr, intent->place.blocks };
		intent->returning_far = far_take_rest(&intent->far);
		memset(&intent->place, 0, sizeof(intent->place));
		WRITE_ONCE(intent->ready, false);
		intent->shrink = false;
	}
	intent->naming = place_to_name(vol);
	intent->naming_delta = intent->sealed;
	spin_unlock(&intent->lock);
	place_to_disk(named, &intent->naming);
}

/* No commit names the area any more, and so nothing leads to the other. */
static int area_release(struct volume *vol)
{
	struct intent *intent = &vol->intent;
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!intent->returning.addr)
		return 0;
	intent_wait(vol);	/* a batch that was superseded while it was being written */
	err = range_list_add(&intent->leaving, intent->returning.addr, intent->returning.len);
	if (!err && intent->returning_far.len)
		err = range_list_add(&intent->leaving, intent->returning_far.addr, intent->returning_far.len);
	memset(&intent->returning, 0, sizeof(intent->returning));
	memset(&intent->returning_far, 0, sizeof(intent->returning_far));
	/* Without memory it stays busy, until the next mount. */
	return err ? 0 : balloc_release(vol, &intent->leaving);
}

int intent_keep(struct volume *vol, u64 addr, u32 count)
{
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	err = range_list_reserve(&vol->intent.kept);
	if (!err)
		err = balloc_take(vol, addr, count);
	return err ? err : range_list_add(&vol->intent.kept, addr, count);
}

void intent_retire(struct volume *vol, u64 delta)
{
	struct intent *intent = &vol->intent;
	u64 beside;

	lockdep_assert_held(&vol->delta.commit_mutex);
	mutex_lock(&intent->capture);
	intent->retired = delta;
	beside = intent->ahead_delta > delta ? intent->ahead_blocks : 0;
	mutex_unlock(&intent->capture);
	WRITE_ONCE(intent->beside_blocks, max(beside, intent->beside_blocks - intent->beside_blocks / LOAD_FADES));
	/* Before vol->delta.committed.  A delta without a commit is not what a crash leads to. */
	if (intent->naming_delta == delta)
		WRITE_ONCE(intent->durable, delta);
}

int intent_committed(struct volume *vol, bool written)
{
	struct intent_far_part over[ARRAY_SIZE(vol->intent.far.part)];
	struct intent *intent = &vol->intent;
	bool writing;
	u32 count;
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!written)
		return 0;
	spin_lock(&intent->lock);
	firsts_drop(&intent->first, intent->sealed);
	count = far_drop(&intent->far, intent->sealed, over);
	writing = intent->writing_delta && intent->writing_delta <= intent->sealed;
	if (intent->broken && intent->broken <= intent->sealed)
		intent->broken = 0;
	intent->named = intent->naming;
	if (intent->fresh.addr && intent->named.addr == intent->fresh.addr) {
		intent->place = intent->fresh;
		WRITE_ONCE(intent->beside_blocks, intent->place.blocks / 4);	/* until that is known */
		WRITE_ONCE(intent->ready, true);
		memset(&intent->fresh, 0, sizeof(intent->fresh));
	}
	spin_unlock(&intent->lock);
	if (unlikely(writing))
		intent_wait(vol);
	err = far_leave(vol, over, count);
	return err ? err : area_release(vol);
}

void intent_get_named(struct volume *vol, struct disk_intent_place *place)
{
	lockdep_assert_held(&vol->delta.commit_mutex);
	if (vol->intent.closing)
		memset(place, 0, sizeof(*place));
	else
		place_to_disk(place, &vol->intent.named);
}

void intent_close(struct volume *vol)
{
	struct intent *intent = &vol->intent;

	delta_lock(vol);
	spin_lock(&intent->lock);
	memset(&intent->place, 0, sizeof(intent->place));
	far_take_rest(&intent->far);
	WRITE_ONCE(intent->ready, false);
	spin_unlock(&intent->lock);
	intent->closing = true;
	delta_unlock(vol);
}

bool intent_anchor_stale(struct volume *vol)
{
	return vol->intent.closing && vol->anchor.intent.addr;
}

void intent_shrink(struct volume *vol)
{
	lockdep_assert_held(&vol->delta.commit_mutex);
	spin_lock(&vol->intent.lock);
	vol->intent.shrink = vol->intent.place.addr;
	spin_unlock(&vol->intent.lock);
}

void intent_wait(struct volume *vol)
{
	mutex_lock(&vol->intent.write);
	mutex_unlock(&vol->intent.write);
}
