// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The intent area, as a ring of batches, and what commits have to do with it.  The picture is in intent.h.
 *
 * Invariants, at any moment at which the power may fail
 *  1. The newest durable commit (or, without one behind it, the anchor) names the place of the first batch that counts on top
 *     of it.  From there on all batches can be found one after the other.
 *  2. A batch whose delta is not durable is not overwritten, and its area is not given back: that happens only when a commit is
 *     durable that names a place behind it, or no area.
 *  3. Before a commit chooses the place that it names it seals its delta: no batch of that delta is begun any more.
 *  4. Batches are written one at a time, each durable before the next is begun.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/intent/intent.h"
#include "core/intent/intent_internal.h"

#define AREA_BYTES	(16u << 20)	/* at most: some 2,000 fsyncs of a block, while one commit is under way */
#define AREA_BLOCKS	64u	/* at least, where blocks are large */
#define AREA_SHARE	64u	/* of a small volume it takes no more than one part of so many ... */
#define AREA_FREE_SHARE	8u	/* ... and of what is free no more than one of so many */
#define AREA_MIN	8u	/* blocks: with less it is not worth it */

int intent_init(struct volume *vol)
{
	struct intent *intent = &vol->intent;

	mutex_init(&intent->capture);
	mutex_init(&intent->write);
	spin_lock_init(&intent->lock);
	INIT_LIST_HEAD(&intent->queue);
	range_list_init(&intent->leaving);
	intent->wanted = true;		/* the first fsync is to find it */
	return 0;
}

void intent_exit(struct volume *vol)
{
	range_list_exit(&vol->intent.leaving);
}

/* Where do so many blocks go?  Batches count from the first one's place to the next one's, perhaps around the end. */
static bool ring_find(const struct intent *intent, u32 blocks, u32 *offset)
{
	u32 head = intent->place.offset, end = intent->place.blocks, tail;

	if (!intent->deltas) {
		*offset = head + blocks <= end ? head : 0;
		return blocks <= end;
	}
	tail = intent->first[0].offset;
	*offset = head;
	if (head <= tail)
		return head < tail && blocks < tail - head;
	if (head + blocks <= end)
		return true;
	*offset = 0;
	return blocks < tail;
}

bool intent_ring_add(struct volume *vol, u64 delta, u32 blocks, struct intent_batch *place)
{
	struct intent *intent = &vol->intent;
	bool first = !intent->deltas || intent->first[intent->deltas - 1].delta < delta;
	u32 offset;

	lockdep_assert_held(&intent->lock);
	if ((first && intent->deltas == INTENT_DELTAS) || !ring_find(intent, blocks, &offset))
		return false;
	*place = (struct intent_batch){ .delta = delta, .seq = intent->place.seq++, .offset = offset };
	if (first)
		intent->first[intent->deltas++] = *place;
	intent->place.offset = offset + blocks;
	return true;
}

static bool ring_has_newer(struct intent *intent, u64 delta)
{
	lockdep_assert_held(&intent->lock);
	return intent->deltas && intent->first[intent->deltas - 1].delta > delta;
}

/* ---- for commits ---- */

void intent_begin_commit(struct volume *vol, u64 delta, s64 *charged)
{
	struct intent *intent = &vol->intent;
	u64 want = min(max_t(u64, AREA_BYTES >> vol->block_shift, AREA_BLOCKS), vol->total_blocks / AREA_SHARE), addr;
	u32 got;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!READ_ONCE(intent->wanted) || READ_ONCE(vol->opts.fsync) == TUX3_FSYNC_FULL || intent->place.addr ||
	    intent->fresh.addr || intent->shrink)
		return;
	want = min_t(u64, want, max_t(s64, space_balance(vol), 0) / AREA_FREE_SHARE);
	if (want < AREA_MIN)
		return;
	WRITE_ONCE(intent->wanted, false);
	if (vol->space.tight[~delta & 1] || !space_charge(vol, raw_cpu_ptr(vol->delta.cpu), want, 0))
		return;
	*charged += want;
	space_note_log(vol, delta, want);
	if (balloc_alloc(vol, BALLOC_LOG, 0, AREA_MIN, want, &addr, &got))
		return;
	intent->fresh = (struct intent_place){ .addr = addr, .life = get_random_u64(), .seq = 1, .blocks = got };
}

bool intent_seal(struct volume *vol, u64 delta)
{
	struct intent *intent = &vol->intent;
	bool write;

	lockdep_assert_held(&vol->delta.commit_mutex);
	spin_lock(&intent->lock);
	intent->sealed = delta;
	write = intent->deltas && intent->first[0].delta <= delta;
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
	for (i = 0; i < intent->deltas; i++) {
		if (intent->first[i].delta > intent->sealed) {
			place.offset = intent->first[i].offset;
			place.seq = intent->first[i].seq;
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
		memset(&intent->place, 0, sizeof(intent->place));
		WRITE_ONCE(intent->ready, false);
		intent->shrink = false;
	}
	intent->naming = place_to_name(vol);
	intent->naming_delta = intent->sealed;
	spin_unlock(&intent->lock);
	place_to_disk(named, &intent->naming);
}

/* No commit names the area any more. */
static int area_release(struct volume *vol)
{
	struct intent *intent = &vol->intent;
	int err;

	if (!intent->returning.addr)
		return 0;
	intent_wait(vol);	/* a batch that was superseded while it was being written */
	err = range_list_add(&intent->leaving, intent->returning.addr, intent->returning.len);
	memset(&intent->returning, 0, sizeof(intent->returning));
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
	u32 over = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!written)
		return 0;
	spin_lock(&intent->lock);
	while (over < intent->deltas && intent->first[over].delta <= intent->sealed)
		over++;
	intent->deltas -= over;
	memmove(intent->first, intent->first + over, intent->deltas * sizeof(*intent->first));
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
