// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fsync: by a commit, or ahead of it by an intent.
 *
 *	capture		inside the front delta: what the inode is now, copied; others go on, but for who changes this file
 *			(intent_capture.c)
 *	queue		in the order of capture
 *	write		the first who comes while nobody does writes all that is queued, as one batch, with one flush; when his own
 *			is written he leaves it to who has waited longest.  Whose is written meanwhile goes.  For who lacks time
 *			(host.h) a worker writes (intent_batch.c)
 */
#include "core/volume.h"
#include "core/delta/delta.h"
#include "core/delta/pace.h"
#include "core/inode/early.h"
#include "core/inode/inode.h"
#include "core/names/name_change.h"
#include "core/names/name_closure.h"
#include "core/intent/intent.h"
#include "core/intent/intent_internal.h"
#include "core/intent/intent_request.h"

#define HEAVY_MEMORY_NS	(100u * 1000 * 1000)	/* after a heavy commit the next one is taken for heavy, too */
#define LONG_US		(10u * 1000)	/* a commit that an fsync need not wait for, though it has to come ... */
#define AHEAD_SHARE	3u		/* ... when what went ahead of it is so many times what it writes */
#define LARGE_SHARE	4u	/* a large file is copied only if others have changed no less than one of so many parts of it */
#define EARLY_SHARE	4u	/* a run of less than one of so many parts of what is near is written again, nearer to its file */
#define LITTLE_BYTES	(32u << 10)	/* of a file: beside heavy commits it is not asked what goes ahead a second time */
#define ALONE_BYTES	(8u << 10)	/* of a file: more is too much to be written twice only for being a single write at first */
#define ASIDE_BYTES	(4u << 10)	/* all else that waits is no more than who saves a file changes beside it */

/* ---- ahead, or by a commit? ---- */

static bool commit_is_heavy(struct volume *vol)
{
	return READ_ONCE(vol->delta.committing) > DELTA_HEAVY_BYTES;
}

/* So was one lately, and so the next one is likely to be. */
static bool commits_were_heavy(struct volume *vol)
{
	u64 heavy_ns = READ_ONCE(vol->delta.heavy_ns);

	return heavy_ns && ktime_get_ns() - heavy_ns < HEAVY_MEMORY_NS;
}

/*
 * Who syncs alone has no one to share a commit with, and a thread that makes it later.  An intent is one write where a commit is
 * two, and it takes less of the CPU.
 */
static bool fsync_is_alone(struct volume *vol)
{
	return vol->delta.thread && atomic_read(&vol->intent.syncing) == 1;
}

static s64 front_load(struct volume *vol)
{
	return delta_load(&vol->delta, READ_ONCE(vol->delta.front) & 1);
}

/* What of so much in the front delta is not durable by intents of who was alone. */
static s64 load_not_durable(const struct volume *vol, s64 load)
{
	const struct intent *intent = &vol->intent;

	return READ_ONCE(intent->alone_delta) == READ_ONCE(vol->delta.front) ? load - (s64)READ_ONCE(intent->alone_bytes) : load;
}

static void note_alone(struct intent *intent, u64 delta, s64 load)
{
	WRITE_ONCE(intent->alone_bytes, load);
	WRITE_ONCE(intent->alone_delta, delta);
}

/* Before the file is looked at. */
static bool fsync_may_go_ahead(struct volume *vol)
{
	u32 mode = READ_ONCE(vol->opts.fsync);
	s64 load;

	if (mode == TUX3_FSYNC_FULL || !vol->host->data_peek || READ_ONCE(vol->read_only))
		return false;
	if (mode == TUX3_FSYNC_AHEAD || commit_is_heavy(vol) || commits_were_heavy(vol))
		return true;
	load = front_load(vol);
	return load > DELTA_HEAVY_BYTES || (fsync_is_alone(vol) && load_not_durable(vol, load) <= ALONE_BYTES + ASIDE_BYTES);
}

/* Were three quarters of what was committed lately, and of what is to be, large files that are synced? */
static bool large_are_synced(struct volume *vol)
{
	s64 load = READ_ONCE(vol->intent.committed_load) + intent_load(vol, READ_ONCE(vol->delta.front));

	return atomic64_read(&vol->intent.large_synced) > load / 4 * 3;
}

static void note_large_synced(struct tux3_inode *inode)
{
	struct volume *vol = inode->vol;
	u64 blocks = READ_ONCE(inode->unsynced) + vol->host->data_dirty_blocks(inode);

	if (unlikely(blocks > vol->opts.intent_near_bytes >> vol->block_shift)) {
		blocks = READ_ONCE(inode->unsynced) + intent_fresh_blocks(inode);
		atomic64_add(blocks << vol->block_shift, &vol->intent.large_synced);
	}
}

/* Of others there is so much in the front delta, and in the commit under way: would that be little to wait for? */
static bool large_goes_with_commit(struct volume *vol, u32 blocks, u32 front, s64 others)
{
	s64 own = (s64)blocks << vol->block_shift, back = (s64)(blocks - front) << vol->block_shift;
	s64 committing = max((s64)READ_ONCE(vol->delta.committing) - back, (s64)0);

	return max(others, (s64)0) + committing < own / LARGE_SHARE || (!front && committing < own);
}

bool intent_goes_ahead(struct volume *vol, u32 blocks, u32 front)
{
	const struct intent *intent = &vol->intent;
	u64 delta = READ_ONCE(vol->delta.front), own = (u64)blocks << vol->block_shift, twice = 1 + blocks;
	s64 others = delta_load(&vol->delta, delta & 1) - ((s64)front << vol->block_shift);
	bool heavy = commits_were_heavy(vol);

	if (READ_ONCE(vol->opts.fsync) == TUX3_FSYNC_AHEAD)
		return true;
	if (own > vol->opts.intent_near_bytes) {
		if (large_are_synced(vol) || large_goes_with_commit(vol, blocks, front, others))
			return false;
		twice -= front;
	}
	if (own <= ALONE_BYTES && fsync_is_alone(vol) && load_not_durable(vol, others) <= ASIDE_BYTES) {
		note_alone(&vol->intent, delta, others + ((s64)front << vol->block_shift));
		return true;
	}
	if (commit_is_heavy(vol) || (heavy && own <= LITTLE_BYTES))
		return true;
	if (READ_ONCE(intent->ahead_delta) == delta)
		twice += READ_ONCE(intent->ahead_blocks);
	if (others > (s64)(twice << vol->block_shift))
		return heavy || others > DELTA_HEAVY_BYTES;
	if (others <= DELTA_HEAVY_BYTES || pace_commit_us(vol, others) <= LONG_US)
		return false;
	if ((s64)(twice << vol->block_shift) / AHEAD_SHARE >= others)
		delta_request(vol);
	return true;
}

/* ---- fsync ---- */

/* The intent is durable.  If another one was begun since, that one counted on nothing. */
static void part_is_durable(const struct intent_part *part)
{
	struct tux3_inode *inode = part->inode;

	if (!part->intent)	/* nothing was to be said */
		return;
	spin_lock(&inode->lock);
	inode_told(inode, part->changes);
	if (part->span.told && READ_ONCE(inode->told) == part->span.told)
		inode->told_durable = true;
	spin_unlock(&inode->lock);
}

/* So is its data, from this block of the far area on, where the commit of its delta may leave it. */
static void part_is_early(const struct intent_part *part, u64 delta, u64 addr)
{
	const struct disk_intent_run *run = (const struct disk_intent_run *)(part->intent + 1);
	u32 runs = part->intent ? le32_to_cpu(part->intent->runs) : 0, shift = part->inode->vol->block_shift, count, i;
	struct early_run *early = NULL;

	for (i = 0; i < runs; i++, run = intent_next_run(run)) {
		count = le32_to_cpu(run->count);
		if ((u64)count << shift >= part->inode->vol->opts.intent_near_bytes / EARLY_SHARE)
			early = early_new(early, delta, le64_to_cpu(run->block), addr, count, run->csum);
		addr += count;
	}
	if (early)
		early_add(part->inode, part->span.told, early);
}

static void parts_are_durable(const struct intent_request *request)
{
	u64 far = request->far;
	u32 i;

	for (i = 0; i < request->parts.count; i++) {
		part_is_durable(&request->parts.part[i]);
		if (!far)
			continue;
		part_is_early(&request->parts.part[i], request->delta, far);
		far += request->parts.part[i].blocks;
	}
}

/* It is there after a crash; and an fsync of its directory need not wait for the name. */
static void part_is_made(const struct intent_part *part, u32 said)
{
	struct tux3_inode *inode = part->inode;

	spin_lock(&inode->lock);
	WRITE_ONCE(inode->born_ahead, true);
	if (part->made && inode->born_delta > inode->vol->intent.retired && inode->born_dir)
		name_went_ahead(inode->born_dir, inode->born_entry, inode->ino, inode->born_delta, said);
	spin_unlock(&inode->lock);
}

/* The intent with its names is durable: likewise. */
static void names_are_durable(struct volume *vol, const struct intent_request *request)
{
	struct intent *intent = &vol->intent;
	u32 i;

	mutex_lock(&intent->capture);
	for (i = 0; i < request->parts.count; i++)
		if (request->parts.part[i].made || !request->parts.part[i].beside)
			part_is_made(&request->parts.part[i], request->said);
	closure_is_durable(&request->closure, intent->retired);
	mutex_unlock(&intent->capture);
}

/*
 * Is nothing left to do for an fsync of a directory?  That is so if what has changed of it are names in it, all of which went
 * ahead.
 */
static bool dir_is_ahead(struct tux3_inode *inode)
{
	return S_ISDIR(READ_ONCE(inode->attr.mode)) && READ_ONCE(inode->vol->opts.fsync) != TUX3_FSYNC_FULL &&
	       intent_dir_fits(inode) && name_all_ahead(inode) && !intent_dirs_have_moved(inode->vol);
}

/* So much data is not synced all the time without waiting for room in the delta, or in the area: both are to come soon. */
static void note_large(const struct intent_request *request)
{
	if (request->large)
		pace_wait(request->vol);
}

/* 0, or as intent_capture(); -ESTALE: a commit came in between; -EINTR: the caller was killed while others wrote. */
static int fsync_try_ahead(struct tux3_inode *inode, bool wait)
{
	struct volume *vol = inode->vol;
	struct intent *intent = &vol->intent;
	struct intent_request *request;
	int err;

	if (!READ_ONCE(intent->ready) && !READ_ONCE(intent->wanted))
		WRITE_ONCE(intent->wanted, true);
	if (!READ_ONCE(intent->ready) || !fsync_may_go_ahead(vol) || intent_dirs_have_moved(vol))
		return -EAGAIN;
	err = intent_capture(inode, wait, &request);
	if (err)
		return err;
	err = intent_request_finish(vol, request);
	if (err)
		return err;
	err = request->err;
	if (!err && request->named)
		names_are_durable(vol, request);
	note_large(request);
	if (!err)
		parts_are_durable(request);
	intent_request_free(request);
	return err;
}

/* Who was overtaken by the commit of the delta would wait for all of it: but beside it, or on top of it, the file can go ahead. */
static int fsync_ahead(struct tux3_inode *inode, bool wait)
{
	int err = fsync_try_ahead(inode, wait);

	if (err == -ESTALE)
		err = fsync_try_ahead(inode, wait);
	return err == -ESTALE ? -EAGAIN : err;
}

static bool inode_is_dirty(struct tux3_inode *inode)
{
	bool dirty;

	spin_lock(&inode->lock);
	dirty = inode->slot[0].dirty || inode->slot[1].dirty;
	spin_unlock(&inode->lock);
	return dirty;
}

/* What is dirty of it goes ahead, or with a commit. */
static int fsync_dirty(struct tux3_inode *inode, bool wait)
{
	struct volume *vol = inode->vol;
	int err;

	if (!delta_is_mostly_of(inode)) {
		pace_sync(vol, false);
		delta_note_fsync(vol);
	}
	err = fsync_ahead(inode, wait);
	if (!err) {
		pace_sync(vol, false);
		delta_pass_again(vol);
	}
	if (err && err != -EINTR)
		err = err == -EMSGSIZE ? delta_commit_mostly(inode) : delta_commit_inode(inode);
	return err;
}

int fsync_inode(struct tux3_inode *inode, bool wait)
{
	struct volume *vol = inode->vol;
	int err;

	WRITE_ONCE(inode->synced_s, ktime_get_ns() / NSEC_PER_SEC);
	if (!volume_error(vol) && dir_is_ahead(inode))
		return 0;
	if (S_ISREG(READ_ONCE(inode->attr.mode)))
		note_large_synced(inode);
	if (!volume_error(vol) && inode_is_dirty(inode)) {
		atomic_inc(&vol->intent.syncing);
		err = fsync_dirty(inode, wait);
		atomic_dec(&vol->intent.syncing);
	} else {
		err = delta_commit_inode(inode);
	}
	if (READ_ONCE(inode->unsynced))
		WRITE_ONCE(inode->unsynced, 0);
	if (likely(!err) || !volume_error(vol))
		return err;
	/* No commit has changed that since: what was being committed when it stopped stays dirty. */
	return inode_is_dirty(inode) ? -EROFS : 0;
}
