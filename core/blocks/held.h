/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Nodes that a hold keeps: the tree of one anchor stays as it is on the device, so that somebody may read it.
 *
 *	in the tree --freed--> freed --snapshot--> leaving --anchor--> kept --held_end()--> free
 *
 * A node that goes waits for the next anchor in any case.  While there is a hold, those that its tree has (they were born no
 * later than its delta) wait in lists of their own, and after that in `kept`.  On the disk, and in all counts but that of blocks
 * that can be allocated, they are free from the start: neither a crash nor df knows of a hold.
 *
 * Who ends a hold: who has it; time; and want of space, at once (space_settle(), delta_commit_space()).  Who asks for one, and
 * what it is good for: core/scrub/hold.h.
 *
 * All of it is the back end's (commit_mutex).
 */
#ifndef TUX3_HELD_H
#define TUX3_HELD_H

#include "core/env.h"
#include "core/blocks/balloc.h"

struct volume;

struct held {
	bool on;
	u64 delta;			/* of the anchor that is held */
	u64 cookie;			/* of the newest hold */
	u64 until_ns;			/* ktime_get_ns() at which it is over */
	struct range_list freed;	/* since the last snapshot; wait for the next anchor */
	struct range_list leaving;	/* of the unify under way: the present anchor still needs them */
	struct range_list kept;		/* no anchor needs them any more */
};

void held_init(struct volume *vol);
void held_exit(struct volume *vol);
/* The tree of vol->anchor is held from now on.  No unify is under way, and nothing was freed since the last one. */
void held_begin(struct volume *vol);
/* What was kept may be allocated; the caller settles the balance.  An error stops the volume. */
void held_end(struct volume *vol);
/* Where the block of a node that was in a snapshot has to wait. */
struct range_list *held_list(struct volume *vol, u64 birth);
/* A unify begins; its anchor is durable. */
void held_snapshot(struct volume *vol);
int held_anchored(struct volume *vol);

#endif
