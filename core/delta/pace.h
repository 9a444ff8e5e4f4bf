/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How much a delta may hold: what the device writes in about a second.  The essay is in pace.c.
 */
#ifndef TUX3_PACE_H
#define TUX3_PACE_H

#include "core/env.h"

struct volume;

#define PACE_MIN_BYTES		(4u << 20)	/* a delta may always hold so much */
#define PACE_FIRST_BYTES	(16u << 20)	/* a commit is due at that while nothing is known of the device */
#define PACE_SYNC_MIN_BYTES	(512u << 10)	/* and so much while somebody waits for fsyncs */
#define PACE_CHANGE_BYTES	256u		/* of log: what a change that is not data is taken for */

struct pace {
	/* What commits have written and how long that took, the newer the heavier; commit_mutex. */
	u64 bytes, us;
	u64 base_ns;		/* what a commit takes that has next to nothing to write; written with commit_mutex */
	u64 load_bytes, load_us;	/* the same of all that commits do, CPU time included; commit_mutex */
	u64 load_rate;		/* bytes per second, with changes at PACE_CHANGE_BYTES; 0: not known yet; set with commit_mutex */
	u64 synced_ns;		/* ktime_get_ns() when an fsync last waited; 0: never; a hint */
	u64 whole_ns;		/* likewise, for all of a delta */
	u64 waited_ns;		/* likewise, or when one who calls fsync waited before he could change something */
	bool awaited;		/* the next commit is to come soon */
	/* Derived from these by pace_update(); read anywhere, without a lock. */
	u64 bandwidth;		/* bytes per second; 0: not known yet */
	u64 commit_bytes;	/* a commit is due when the front delta holds so much */
	u64 limit_bytes;	/* writers wait when it holds so much */
	u32 change_bytes;	/* what each of its changes counts for beside its data; 0 if the device sets no limit */
};

/*
 * From the options and what was learned so far: at open, and when options change.  Beside a commit what it sets may be
 * out of date until the next one.
 */
void pace_update(struct volume *vol);
/*
 * Back end, after a commit: it wrote so many bytes, and for so long writes were in flight or a flush under way.
 * alone: nothing else of ours was.
 */
void pace_learn(struct volume *vol, u64 bytes, u64 ns, bool alone);
/* The same: a delta of so many bytes (a change counts PACE_CHANGE_BYTES) took so long from its transition to durable. */
void pace_learn_load(struct volume *vol, u64 bytes, u64 ns);
/*
 * So many bytes of data, or of tree nodes, may be in flight together, so that what an fsync writes need not queue behind all that a
 * delta or a unify holds.  U64_MAX: no limit.
 */
u64 pace_in_flight_max(struct volume *vol);
/* How long a commit of so many bytes (a change counts PACE_CHANGE_BYTES) takes, by those before: us; 0: nobody knows. */
u64 pace_commit_us(struct volume *vol, u64 bytes);
/* Any thread: it is about to wait for an fsync, or has done so.  whole: for all of a delta that holds others' changes, too. */
void pace_sync(struct volume *vol, bool whole);
/* The next commit is to come soon, though nobody waits for it yet. */
void pace_await(struct volume *vol, bool awaited);
/* Any thread, which has called fsync lately: it is about to wait until a delta is taken over that others have filled. */
void pace_wait(struct volume *vol);

#endif
