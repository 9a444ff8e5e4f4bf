// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Opening and closing a volume: options, the label, the order in which the parts of the core come to life.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/device/device.h"
#include "core/format/anchor.h"
#include "core/format/format.h"
#include "core/format/label.h"
#include "core/blocks/balloc.h"
#include "core/blocks/trim.h"
#include "core/blocks/block_reads.h"
#include "core/tree/tree.h"
#include "core/quota/quota.h"
#include "core/log/apply.h"
#include "core/log/log.h"
#include "core/log/prefetch.h"
#include "core/log/replay.h"
#include "core/delta/delta.h"
#include "core/delta/pace.h"
#include "core/delta/space.h"
#include "core/inode/ialloc.h"
#include "core/names/name.h"
#include "core/data/remap.h"
#include "core/data/data.h"
#include "core/data/delete.h"
#include "core/commit/checksums.h"
#include "core/commit/commit.h"
#include "core/commit/unify.h"
#include "core/intent/intent.h"
#include "core/open.h"

#define DEFAULT_AGE_MS		5000u
#define DEFAULT_DELTA_MS	1000u
#define DEFAULT_DIRTY_BYTES	(64ULL << 20)
#define DIRTY_LIMIT_FACTOR	8
#define DIRTY_BYTES_MAX		(S64_MAX / DIRTY_LIMIT_FACTOR)	/* both are compared with signed counts */
#define DEFAULT_OVERLAY		100000u
#define DEFAULT_REPLAY_NODES	8192u	/* with 32 reads in flight of 8 ms each: 2 seconds */
#define DEFAULT_SLICE_EXTENTS	2048u
#define DEFAULT_INTENT_NEAR_BYTES	(256u << 10)
#define DEFAULT_NAMES		1000000u

/* ---- the label ---- */

void volume_get_label(struct volume *vol, u8 label[TUX3_LABEL_MAX])
{
	spin_lock(&vol->label_lock);
	memcpy(label, vol->label, TUX3_LABEL_MAX);
	spin_unlock(&vol->label_lock);
}

int volume_set_label(struct volume *vol, const u8 label[TUX3_LABEL_MAX])
{
	int err = label_check(label, strnlen((const char *)label, TUX3_LABEL_MAX), NULL, 0);

	if (err)
		return err;
	delta_lock(vol);
	err = volume_error(vol) || vol->read_only ? -EROFS : vol->delta.paused ? -EBUSY : 0;
	if (!err) {
		spin_lock(&vol->label_lock);
		memcpy(vol->label, label, TUX3_LABEL_MAX);
		spin_unlock(&vol->label_lock);
		err = delta_unify_committed(vol);	/* what others change meanwhile need not be in the anchor */
	}
	delta_unlock(vol);
	return err;
}

/* ---- opening ---- */

/* Do its features and the device let us open it, and write if that is wanted? */
static int volume_check_writable(struct volume *vol, char *why, size_t why_size)
{
	u64 incompat = vol->feature_incompat & ~tux3_features_known(TUX3_INCOMPAT);
	u64 ro_compat = vol->feature_ro_compat & ~tux3_features_known(TUX3_RO_COMPAT);

	if (vol->dev->read_only && !vol->opts.read_only) {
		snprintf(why, why_size, "the device is read-only: open the volume read-only");
		return -EROFS;
	}
	if (incompat) {
		snprintf(why, why_size, "the volume uses features that this program does not know (incompatible feature bits %#llx): a newer version is needed",
			 (unsigned long long)incompat);
		return -EOPNOTSUPP;
	}
	if (ro_compat && !vol->opts.read_only) {
		snprintf(why, why_size, "the volume uses features that this program does not know (feature bits %#llx): it can only be opened read-only",
			 (unsigned long long)ro_compat);
		return -EROFS;
	}
	return 0;
}

static int volume_set_geometry(struct volume *vol, char *why, size_t why_size)
{
	const struct disk_anchor *anchor = &vol->anchor;
	u64 bytes;

	vol->block_shift = le32_to_cpu(anchor->block_shift);
	vol->block_size = 1u << vol->block_shift;
	vol->group_blocks = le32_to_cpu(anchor->group_blocks);
	vol->total_blocks = le64_to_cpu(anchor->total_blocks);
	vol->group_count = DIV_ROUND_UP(vol->total_blocks, vol->group_blocks);
	vol->id = le64_to_cpu(anchor->volume_id);
	vol->feature_compat = le64_to_cpu(anchor->feature_compat);
	vol->feature_ro_compat = le64_to_cpu(anchor->feature_ro_compat);
	vol->feature_incompat = le64_to_cpu(anchor->feature_incompat);
	vol->created_ns = le64_to_cpu(anchor->created_ns);
	vol->hash_key.key[0] = get_unaligned_le64(anchor->hash_seed);
	vol->hash_key.key[1] = get_unaligned_le64(anchor->hash_seed + 8);
	memcpy(vol->uuid, anchor->uuid, sizeof(vol->uuid));
	spin_lock_init(&vol->label_lock);
	memcpy(vol->label, anchor->label, sizeof(vol->label));
	bytes = vol->total_blocks << vol->block_shift;
	if (bytes > vol->dev->size_bytes) {
		snprintf(why, why_size, "the volume has %llu bytes but the device or file only %llu: it was cut short",
			 (unsigned long long)bytes, (unsigned long long)vol->dev->size_bytes);
		return -EIO;
	}
	vol->dev->block_size = vol->block_size;
	return volume_check_writable(vol, why, why_size);
}

void volume_set_dirty_bytes(struct volume_options *opts, u64 bytes, u64 limit)
{
	bytes = min_t(u64, bytes, DIRTY_BYTES_MAX);
	/* The limit first: it is never below what triggers a commit for long. */
	WRITE_ONCE(opts->dirty_limit_bytes, limit ? min_t(u64, limit, S64_MAX) : DIRTY_LIMIT_FACTOR * bytes);
	WRITE_ONCE(opts->dirty_bytes, bytes);
}

static void volume_default_options(struct volume *vol)
{
	struct volume_options *opts = &vol->opts;

	if (IS_ENABLED(CONFIG_PROVE_LOCKING))
		opts->verify = opts->costs = true;
	if (!opts->age_ms)
		opts->age_ms = DEFAULT_AGE_MS;
	if (!opts->fsync)
		opts->fsync = TUX3_FSYNC_AUTO;
	if (!opts->delta_ms)
		opts->delta_ms = DEFAULT_DELTA_MS;
	volume_set_dirty_bytes(opts, opts->dirty_bytes ? opts->dirty_bytes : DEFAULT_DIRTY_BYTES, opts->dirty_limit_bytes);
	pace_update(vol);
	if (!opts->overlay_entries)
		opts->overlay_entries = DEFAULT_OVERLAY;
	if (!opts->replay_nodes)
		opts->replay_nodes = max_t(u64, DEFAULT_REPLAY_NODES, 2 * opts->dirty_nodes);
	if (!opts->cache_bytes)
		opts->cache_bytes = CACHE_DEFAULT_BYTES;
	if (!opts->remap_bytes)
		opts->remap_bytes = REMAP_LOG_MAX;
	if (!opts->intent_near_bytes)
		opts->intent_near_bytes = DEFAULT_INTENT_NEAR_BYTES;
	if (!opts->slice_extents)
		opts->slice_extents = DEFAULT_SLICE_EXTENTS;
	if (!opts->names_cached)
		opts->names_cached = DEFAULT_NAMES;
}

/* Once the geometry is known. */
static int volume_init_parts(struct volume *vol)
{
	struct volume_options *opts = &vol->opts;
	u64 log_max = max_t(u64, vol->total_blocks / 16, 4);
	int err;

	if (!opts->log_blocks)
		opts->log_blocks = LOG_BYTES_MAX / 2 >> vol->block_shift;
	opts->log_blocks = min(opts->log_blocks, log_max);
	if (!opts->dirty_nodes)
		opts->dirty_nodes = min(max_t(u64, opts->cache_bytes / 2 >> vol->block_shift, 64),
					opts->replay_nodes / 2);
	opts->dirty_nodes = min(opts->dirty_nodes, log_max);
	err = cache_init(vol, opts->cache_bytes);
	if (err)
		return err;
	tree_init(vol);
	ialloc_init(vol);
	err = name_cache_init(vol);
	if (!err)
		err = quota_init(vol);
	if (!err)
		err = percpu_counter_init(&vol->inodes, 0, GFP_KERNEL);
	if (err)
		return err;
	err = balloc_init(vol, vol->opts.mend ? min(le64_to_cpu(vol->anchor.used_blocks), vol->total_blocks) :
			       le64_to_cpu(vol->anchor.used_blocks));
	if (!err)
		err = log_init(vol);
	if (!err)
		err = delta_init(vol);
	if (!err)
		err = block_reads_init(&vol->reads);
	if (!err)
		err = intent_init(vol);
	if (!err)
		err = checksums_init(vol);
	unify_init(vol);
	trim_init(vol);
	vol->ahead = prefetch_create(vol);
	return err;
}

void volume_release(struct volume *vol)
{
	if (vol->block_size && vol->delta.cpu) {
		delete_exit(vol);
		unify_exit(vol);
		trim_exit(vol);
		intent_exit(vol);
		delta_exit(vol);
	}
	checksums_exit(vol);
	if (vol->reads.cpu)
		block_reads_exit(&vol->reads);
	if (vol->log.chunks.next)
		log_exit(vol);
	prefetch_free(vol->ahead);
	if (vol->balloc.chunks)
		balloc_exit(vol);
	quota_exit(vol);
	percpu_counter_destroy(&vol->inodes);
	name_cache_exit(vol);
	if (vol->cache.shards[0].buckets) {
		ialloc_exit(vol);
		tree_discard(vol);
		cache_exit(vol);
	}
	vol->dev->block_size = 1u << TUX3_MIN_BLOCK_SHIFT;
	kvfree(vol);
}

/* The state of the anchor, then of the log. */
static int volume_load(struct volume *vol, char *why, size_t why_size)
{
	const struct disk_anchor *anchor = &vol->anchor;
	int err;

	err = vol->opts.mend ? 0 : unify_check_counts(anchor, why, why_size);
	if (err)
		return err;
	tree_set_root(vol, le64_to_cpu(anchor->root_addr), le64_to_cpu(anchor->root_birth),
		      le32_to_cpu(anchor->root_level));
	vol->delta.committed = vol->delta.applying = vol->tree.snapshot_delta = le64_to_cpu(anchor->delta);
	vol->log.next_addr = le64_to_cpu(anchor->log_addr);
	vol->log.after_addr = le64_to_cpu(anchor->log_after);
	vol->log.next_seq = le64_to_cpu(anchor->log_seq);
	vol->log.intent = anchor->intent;
	vol->tree_inodes = le64_to_cpu(anchor->inodes);
	vol->space.unwritten = le64_to_cpu(anchor->unwritten_blocks);
	atomic64_set(&vol->balloc.data_used, le64_to_cpu(anchor->data_blocks));
	if (vol->opts.mend) {
		snprintf(why, why_size, "the tree cannot be put together");
		err = vol->opts.mend->tree(vol->opts.mend, vol);
		if (err)
			return err;
	}
	if (!vol->opts.no_recovery || !vol->opts.read_only) {
		err = replay_log(vol, why, why_size);
		if (err)
			return err;
		err = volume_leave_out(vol, intent_recover(vol), "What was synced last, after delta %llu, cannot be recovered",
				       (unsigned long long)vol->delta.committed);
		if (err) {
			snprintf(why, why_size, "what was synced last cannot be recovered (%s, see the messages); open read-only with norecovery to see the state of the last unify", error_text(err));
			return err;
		}
	} else {
		balloc_note_log_unread(vol, true);
	}
	percpu_counter_set(&vol->inodes, vol->tree_inodes);
	return 0;
}

/* A volume becomes writable: overwrite a torn commit, go on with deletes that a crash interrupted. */
static int volume_start_writing(struct volume *vol)
{
	/* What was replayed may be in the device's cache only; from now on it counts as durable. */
	int err = device_flush(vol->dev), n;

	if (!err)
		err = unify_complete_anchor(vol);
	/* Once: what is found later is of inodes that are in use, but for those that were put off. */
	if (!err)
		err = intent_commit_recovered(vol);
	for (n = 0; n < 2; n++)		/* what that has moved; nobody is inside */
		quota_settle(vol, n);
	delta_lock(vol);
	if (!err)
		err = vol->orphans_queued ? delete_begin_later(vol) : delete_orphans(vol);
	if (!err)
		vol->orphans_queued = true;
	delta_unlock(vol);
	if (!err)
		err = delta_start(vol);
	if (err)
		return err;
	delta_lock(vol);
	/* A cut must be over before anybody can write to the file; without a thread so must all deletes. */
	while (!err && (vol->log.must_write || delete_cuts_left(vol) ||
			(vol->opts.manual && delta_has_changes(vol))))
		err = commit_delta(vol);
	if (!err && delta_has_changes(vol))
		delta_request(vol);
	delta_unlock(vol);
	return err;
}

static int volume_start(struct volume *vol, char *why, size_t why_size)
{
	int err;

	space_init(vol);
	err = vol->read_only ? delta_start(vol) : volume_start_writing(vol);
	if (err)
		snprintf(why, why_size, "the volume cannot be made ready for writing (%s)", error_text(err));
	return err;
}

/* ---- changing between read-only and writable ---- */

/* A hold of before means nothing after it. */
static void volume_end_hold(struct volume *vol)
{
	delta_lock(vol);
	space_end_hold(vol);
	delta_unlock(vol);
}

static int volume_make_writable(struct volume *vol, char *why, size_t why_size)
{
	int err = volume_error(vol);

	if (err) {
		snprintf(why, why_size, "the volume had an error (%s): it can be written again once it is opened anew",
			 error_text(err));
		return err;
	}
	if (vol->opts.no_recovery) {
		snprintf(why, why_size, "the volume was opened without recovery, and stays read-only");
		return -EROFS;
	}
	vol->opts.read_only = false;
	err = volume_check_writable(vol, why, why_size);
	if (!err) {
		/* Cached inodes may be among those that have a cut to be finished: see inode.h. */
		vol->blocks_epoch++;
		err = volume_start_writing(vol);
		if (err)
			snprintf(why, why_size, "the volume cannot be made ready for writing (%s)", error_text(err));
	}
	if (err) {
		volume_end_hold(vol);
		vol->opts.read_only = true;
		delta_stop(vol);
		delete_exit(vol);
		vol->orphans_queued = false;
		percpu_counter_set(&vol->inodes, vol->tree_inodes);
		return err;
	}
	delta_set_writable(vol);
	volume_end_hold(vol);		/* one that was taken while it was neither this nor that */
	return 0;
}

/* From the moment on that read_only is set nobody enters; the transition of a commit waits for those who have. */
static int volume_make_read_only(struct volume *vol)
{
	int err;

	WRITE_ONCE(vol->read_only, true);
	vol->opts.read_only = true;
	smp_mb();		/* pairs with delta_count_in() */
	delta_lock(vol);
	space_end_hold(vol);
	err = volume_error(vol);
	if (!err)
		err = commit_delta(vol);
	if (!err)
		err = delta_unify_all(vol);
	delta_unlock(vol);
	delta_stop(vol);
	intent_wait(vol);
	trim_wait(vol);
	trim_exit(vol);
	return err;
}

int volume_set_read_only(struct volume *vol, bool read_only, char *why, size_t why_size)
{
	int err;

	if (vol->read_only == read_only)
		return 0;
	if (vol->delta.paused) {
		snprintf(why, why_size, "the volume is frozen");
		return -EBUSY;
	}
	if (!read_only)
		return volume_make_writable(vol, why, why_size);
	err = volume_make_read_only(vol);
	if (err)
		snprintf(why, why_size, "the last changes could not be written (%s); the volume is read-only", error_text(err));
	return err;
}

/* That of a hold: its slot on the disk may be another's by now. */
static int volume_take_anchor(struct volume *vol, char *why, size_t why_size)
{
	vol->anchor = *vol->opts.anchor;
	vol->opts.anchor = NULL;
	vol->of_hold = true;
	if (!vol->opts.read_only || !vol->opts.no_recovery) {
		snprintf(why, why_size, "what was held can only be read, and without its log");
		return -EINVAL;
	}
	return anchor_check(&vol->anchor, le64_to_cpu(vol->anchor.slot_offset), why, why_size);
}

int volume_open(struct tux3_device *dev, const struct tux3_host_ops *host,
		const struct volume_options *opts, struct volume **volp, char *why, size_t why_size)
{
	struct volume *vol = kvzalloc(sizeof(*vol), GFP_KERNEL);
	int err;

	if (!vol) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	vol->dev = dev;
	vol->host = host;
	vol->opts = *opts;
	vol->read_only = opts->read_only;
	dev->block_size = 1u << TUX3_MIN_BLOCK_SHIFT;
	volume_default_options(vol);
	if (opts->anchor)
		err = volume_take_anchor(vol, why, why_size);
	else
		err = volume_read_anchor(dev, &vol->anchor, &vol->anchor_slot, why, why_size);
	if (err && err != -EOPNOTSUPP && err != -ENOMEM && opts->mend && opts->mend->anchor)
		err = opts->mend->anchor(opts->mend, dev, &vol->anchor, why, why_size);
	if (!err)
		err = volume_set_geometry(vol, why, why_size);
	if (!err) {
		snprintf(why, why_size, "out of memory");	/* if anything, in what follows */
		err = volume_init_parts(vol);
		if (err && err != -ENOMEM)
			snprintf(why, why_size, "the volume cannot be opened (%s, see the messages)", error_text(err));
	}
	if (!err)
		err = volume_load(vol, why, why_size);
	if (!err)
		err = volume_start(vol, why, why_size);
	if (err) {
		if (vol->delta.cpu)
			delta_stop(vol);
		volume_release(vol);
		return err;
	}
	*volp = vol;
	return 0;
}

int volume_stop(struct volume *vol)
{
	unsigned int n;
	int err;

	delta_stop(vol);
	vol->delta.paused = false;
	intent_close(vol);
	err = vol->read_only ? 0 : delta_commit_unify(vol);
	if (volume_error(vol)) {
		err = volume_error(vol);
		delta_lock(vol);
		for (n = 0; n < 2; n++)		/* what could not be committed */
			commit_give_up(vol, n);
		delta_unlock(vol);
	}
	return err;
}

int volume_close(struct volume *vol)
{
	int err = volume_stop(vol);

	volume_release(vol);
	return err;
}

void volume_abandon(struct volume *vol)
{
	unsigned int n;

	atomic_cmpxchg(&vol->error, 0, -ESHUTDOWN);
	delta_stop(vol);
	delta_lock(vol);
	for (n = 0; n < 2; n++)
		commit_give_up(vol, n);
	delta_unlock(vol);
	volume_release(vol);
}
