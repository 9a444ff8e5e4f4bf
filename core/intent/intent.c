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
	intent->wanted = intent->far.wanted = true;	/* the first fsync is to find them */
	pace_await(vol, vol->opts.fsync != TUX3_FSYNC_FULL);
	return 0;
}

void intent_exit(struct volume *vol)
{
	range_list_exit(&vol->intent.leaving);
}

/* ---- rings ---- */

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

bool intent_ring_add(struct volume *vol, u64 delta, u32 blocks, u32 far_blocks, struct intent_batch *place)
{
	struct intent *intent = &vol->intent;
	struct intent_far *far = &intent->far;
	u32 offset, far_offset = 0;

	lockdep_assert_held(&intent->lock);
	if ((!firsts_have(&intent->first, delta) && intent->first.count == INTENT_DELTAS) ||
	    !ring_find(&intent->first, intent->place.offset, intent->place.blocks, blocks, &offset) ||
	    (far_blocks && !ring_find(&far->first, far->offset, far->blocks, far_blocks, &far_offset)))
		return false;
	*place = (struct intent_batch){ .delta = delta, .seq = intent->place.seq++, .offset = offset, .far = far_offset };
	firsts_add(&intent->first, delta, place->seq, offset);
	intent->place.offset = offset + blocks;
	if (far_blocks) {
		firsts_add(&far->first, delta, place->seq, far_offset);
		far->offset = far_offset + far_blocks;
	}
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

static int far_release(struct volume *vol, u64 addr, u32 blocks)
{
	int err;

	if (!addr)
		return 0;
	intent_wait(vol);	/* as in area_release() */
	err = range_list_add(&vol->intent.leaving, addr, blocks);
	return err ? 0 : balloc_release(vol, &vol->intent.leaving);
}

/*
 * Its blocks were free and not busy in the newest durable state, and are in that which is being committed: so it can be used at
 * once.  Where free blocks were scattered it may have become a small one: then there is to be one twice as large, as soon as
 * nothing in the old one counts.
 */
static int far_begin(struct volume *vol, u64 delta, s64 *charged)
{
	u64 want = min_t(u64, FAR_BYTES >> vol->block_shift, vol->total_blocks / FAR_SHARE), addr;
	u32 least = INTENT_FAR_SHARE * ((vol->opts.intent_near_bytes >> vol->block_shift) + 1), blocks;	/* for one file */
	struct intent *intent = &vol->intent;
	struct block_range old;

	if (!READ_ONCE(intent->far.wanted) || (!intent->place.addr && !intent->fresh.addr))
		return 0;
	blocks = area_allocate(vol, delta, &intent->far.wanted, max(least, 2 * intent->far.blocks), want, charged, &addr);
	if (!blocks)
		return 0;
	spin_lock(&intent->lock);
	old = (struct block_range){ intent->far.addr, intent->far.blocks };
	if (intent->far.first.count) {
		old = (struct block_range){ addr, blocks };
	} else {
		intent->far = (struct intent_far){ .addr = addr };
		WRITE_ONCE(intent->far.blocks, blocks);
	}
	spin_unlock(&intent->lock);
	return far_release(vol, old.addr, old.len);
}

/* Where little is left the far area goes first, as soon as nothing in it counts: that needs no commit. */
static int far_give_back(struct volume *vol)
{
	struct intent *intent = &vol->intent;
	s64 balance = space_balance(vol);
	struct block_range range = {};

	spin_lock(&intent->lock);
	if (!intent->far.first.count && balance < (s64)intent->far.blocks) {
		range = (struct block_range){ intent->far.addr, intent->far.blocks };
		memset(&intent->far, 0, sizeof(intent->far));
	}
	spin_unlock(&intent->lock);
	return far_release(vol, range.addr, range.len);
}

int intent_begin_commit(struct volume *vol, u64 delta, s64 *charged)
{
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
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
		intent->returning_far = (struct block_range){ intent->far.addr, intent->far.blocks };
		memset(&intent->place, 0, sizeof(intent->place));
		memset(&intent->far, 0, sizeof(intent->far));
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

	if (!intent->returning.addr)
		return 0;
	intent_wait(vol);	/* a batch that was superseded while it was being written */
	err = range_list_add(&intent->leaving, intent->returning.addr, intent->returning.len);
	if (!err && intent->returning_far.addr)
		err = range_list_add(&intent->leaving, intent->returning_far.addr, intent->returning_far.len);
	memset(&intent->returning, 0, sizeof(intent->returning));
	memset(&intent->returning_far, 0, sizeof(intent->returning_far));
	/* Without memory it stays busy, until the next mount. */
	return err ? 0 : balloc_release(vol, &intent->leaving);
}

void intent_retire(struct volume *vol, u64 delta)
{
	struct intent *intent = &vol->intent;

	lockdep_assert_held(&vol->delta.commit_mutex);
	mutex_lock(&intent->capture);
	intent->retired = delta;
	mutex_unlock(&intent->capture);
	/* Before vol->delta.committed.  A delta without a commit is not what a crash leads to. */
	if (intent->naming_delta == delta)
		WRITE_ONCE(intent->durable, delta);
}

int intent_committed(struct volume *vol, bool written)
{
	struct intent *intent = &vol->intent;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!written)
		return 0;
	spin_lock(&intent->lock);
	firsts_drop(&intent->first, intent->sealed);
	firsts_drop(&intent->far.first, intent->sealed);
	if (intent->broken && intent->broken <= intent->sealed)
		intent->broken = 0;
	intent->named = intent->naming;
	if (intent->fresh.addr && intent->named.addr == intent->fresh.addr) {
		intent->place = intent->fresh;
		WRITE_ONCE(intent->ready, true);
		memset(&intent->fresh, 0, sizeof(intent->fresh));
	}
	spin_unlock(&intent->lock);
	return area_release(vol);
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
	memset(&intent->far, 0, sizeof(intent->far));
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
