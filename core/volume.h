/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One open volume: its geometry, and the state of each part of the core.  Every source of the core includes this for that
 * shape; what the parts offer is in their own headers, which a source that calls it includes.
 *
 * Lock order, outermost first (a lock to the left is never taken with one to the right held):
 *
 *	host's directory and file locks
 *	  > inside a delta (delta_enter .. delta_leave: never wait for a commit here)
 *	delta.commit_mutex (the back end's role; host locks must not be wanted by its holder)
 *	  > tree.sem > inode->xattr_mutex, inode->lock > dir->lock, a quota's lock > ialloc.lock > balloc.lock > cache shard lock
 */
#ifndef TUX3_VOLUME_H
#define TUX3_VOLUME_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/device/device.h"
#include "core/host.h"
#include "core/counters.h"
#include "core/tree/tree.h"
#include "core/quota/quota.h"
#include "core/blocks/balloc.h"
#include "core/blocks/held.h"
#include "core/inode/ialloc.h"
#include "core/log/log.h"
#include "core/delta/space.h"
#include "core/delta/pace.h"
#include "core/delta/delta.h"
#include "core/commit/checksums.h"
#include "core/commit/unify.h"
#include "core/intent/intent.h"
#include "core/blocks/trim.h"
#include "core/blocks/block_reads.h"
#include "core/names/name.h"
#include "core/names/parent.h"

struct volume;

/* For repair (repair.h): what does not fit together while a volume is opened does not end it. */
struct volume_mend {
	/* No anchor is whole: make one up; or NULL.  0, or -errno and why. */
	int (*anchor)(struct volume_mend *mend, struct tux3_device *dev, struct disk_anchor *anchor, char *why, size_t why_size);
	/* Before the log is replayed: make the tree of the anchor one that can be used. */
	int (*tree)(struct volume_mend *mend, struct volume *vol);
	/* Something of the log was left out: a sentence. */
	void (*left_out)(struct volume_mend *mend, const char *text);
	/* Nothing of the log is missing, but no mount could replay it as it is: why, a sentence. */
	void (*log_odd)(struct volume_mend *mend, const char *text);
	/* The log deletes a name, by its hash: who had it when the log began may still say so.  0, -ENOMEM. */
	int (*name_gone)(struct volume_mend *mend, u64 dir, u64 hash);
};

struct volume_options {
	bool read_only;
	bool no_recovery;	/* with read_only: the state of the anchor, the log is not replayed */
	const struct disk_anchor *anchor;	/* with both: what is held (core/scrub/hold.h) is opened; NULL once that is done */
	bool accept_last;	/* the last commit counts though not all of its data is there (log_end.c) */
	bool cut_log;		/* a damaged log is cut where the damage is, and what follows is lost */
	bool manual;		/* no back-end thread: commits happen in the calls that need one, and in
				   delta_commit(); for the simulator and single-threaded embedders */
	u32 age_ms;		/* commit a delta at most this long after its first change; 0: 5000 */
	u32 delta_ms;		/* and keep deltas so small that writing one takes no longer (pace.c); 0: 1000;
				   U32_MAX: it may take as long as it takes */
	u64 dirty_bytes;	/* commit when the front delta holds this much file data; 0: 64 MiB */
	u64 dirty_limit_bytes;	/* writers wait when the front delta holds this much; 0: 8 x dirty_bytes */
	u64 overlay_entries;	/* commit when it holds this many changed names and inodes; 0: 100,000 */
	u64 log_blocks;		/* unify when the log is this long; 0: 16 MiB */
	u64 dirty_nodes;	/* unify when this many tree nodes are dirty; 0: half of replay_nodes, or of the cache if
				   that is less */
	u64 replay_nodes;	/* writers wait when a mount after a crash would read so many nodes; 0: 8192 */
	u64 cache_bytes;	/* limit for clean tree nodes; 0: 128 MiB */
	u64 names_cached;	/* limit for clean directory entries in memory; 0: 1,000,000 */
	u32 intent_near_bytes;	/* data of an fsync's intent that is written to the intent area itself at most; 0: 256 KiB */
	u32 slice_extents;	/* long deletes and truncates free so many extents (xattrs) in a slice; 0: 2048 */
	u64 remap_bytes;	/* what one exchange, collapse or insert may take of the log; 0: 8 MiB */
	u32 groups_kept;	/* tests: so many free maps stay in memory as they are, at least 4; 0: 8 MiB of them */
	bool verify;		/* after each commit and unify, see whether the state in memory can be right */
	u32 fsync;		/* enum tux3_fsync: may an fsync put its file ahead of the delta? */
	u64 name_hash_mask;	/* tests: and-ed to name hashes to force collisions; 0: none */
	bool no_quota;		/* limits of quotas are not enforced; usage is kept all the same */
	bool discard;		/* tell the device of blocks that commits have freed, in the background */
	bool costs;		/* after each commit, compare what it took with what was charged, kind by kind (space.c) */
	struct volume_mend *mend;	/* with read_only and cut_log; else NULL */
	bool drop_flush;	/* canary for the simulator: the commit leaves out its flush */
	bool keep_changed;	/* canary: it takes what an fsync has written for what there is, also if that has changed since */
	u32 cheap, cheap_by;	/* canary: enum space_formula, and how much less than is right that formula says */
};

struct volume {
	struct tux3_device *dev;
	const struct tux3_host_ops *host;
	void *host_data;		/* the host's; set by it, right after volume_open() */
	struct volume_options opts;

	/* Geometry and identity: constant while open. */
	u32 block_shift, block_size;
	u32 group_blocks;
	u64 total_blocks, group_count;
	u64 id;
	u64 feature_compat, feature_ro_compat, feature_incompat;
	siphash_key_t hash_key;
	u8 uuid[16];
	u8 label[TUX3_LABEL_MAX];	/* label_lock; written with commit_mutex, too: volume_set_label() */
	spinlock_t label_lock;
	u64 created_ns;
	bool read_only;			/* volume_set_read_only() */
	bool of_hold;			/* opened with opts.anchor, while another has it and writes; constant */
	u32 blocks_epoch;		/* moves when tux3_inode.blocks may be out of date; commit_mutex */

	atomic_t error;			/* first fatal error (-errno): nothing is committed any more */

	struct disk_anchor anchor;	/* the durable one; unify (commit_mutex) */
	unsigned int anchor_slot;

	struct node_cache cache;
	struct tree tree;
	struct quota_table quota;
	struct balloc balloc;
	struct ialloc ialloc;
	struct log log;
	struct space space;
	struct pace pace;
	struct delta_state delta;
	struct unify unify;
	struct checksums checksums;
	struct held held;
	struct intent intent;
	struct trim trim;
	struct block_reads reads;
	struct name_cache names;
	struct parents parents;

	struct prefetch *ahead;		/* for the back end, may be NULL; commit_mutex */
	bool orphans_queued;		/* delete_orphans() was called; commit_mutex, or at open */
	struct percpu_counter inodes;	/* in use, as the front end sees it */
	u64 tree_inodes;		/* in the tree; commit_mutex */
	atomic64_t counters[TUX3_COUNTER_COUNT];	/* delta_counter(): those of operations are counted by CPU */
};

#define INODES_BATCH	(1 << 20)	/* only sums are asked for */

/* 1 or -1. */
static inline void volume_count_inodes(struct volume *vol, s64 n)
{
	percpu_counter_add_batch(&vol->inodes, n, INODES_BATCH);
}

static inline void count_add(struct volume *vol, enum tux3_counter which, u64 n)
{
	atomic64_add(n, &vol->counters[which]);
}

/* A message about this volume, one sentence: "tux3 <device>: ...". */
__printf(2, 3) void volume_warn(struct volume *vol, const char *format, ...);
/* The same of what is lost, or put off: who reads what is damaged again and again does not keep that from being told. */
__printf(2, 3) void volume_tell(struct volume *vol, const char *format, ...);
/* With opts.mend an error that is not for want of memory is told there, and passed over: 0.  Else it is returned. */
__printf(3, 4) int volume_leave_out(struct volume *vol, int err, const char *format, ...);
/* Fatal: print, remember err, make the volume read-only, wake every waiter. what: what failed. */
void volume_abort(struct volume *vol, int err, const char *what);
/* With volume_options.verify: the state in memory cannot be right, and what of it.  Stops the volume, returns -EIO. */
__printf(2, 3) int volume_inconsistent(struct volume *vol, const char *format, ...);
/*
 * What the tree says cannot be.  That is so on damaged or forged volumes, and no reason to stop: it is counted, and told once,
 * *told.
 */
__printf(3, 4) void volume_odd(struct volume *vol, bool *told, const char *format, ...);
static inline int volume_error(struct volume *vol)
{
	return atomic_read(&vol->error);
}

#endif
