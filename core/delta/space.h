/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Space: nothing is accepted that cannot be committed.  The essay is in space.c.
 */
#ifndef TUX3_SPACE_H
#define TUX3_SPACE_H

#include "core/env.h"

struct volume;
struct delta_op;

/*
 * A cost: in the low 32 bits the blocks that an operation is always charged, in the high 32 bits those it
 * is charged on top of that in a delta that is tight.  Costs may be added, blocks (up to 2^31) too.
 */
static inline u64 space_cost(u64 always, u64 when_tight)
{
	return always + (when_tight << 32);
}

struct space {
	atomic64_t balance;	/* blocks that may still be charged; below 0 only with DELTA_ flags */
	s64 available;		/* what balance was derived from; commit_mutex */
	/* How far below 0 the balance may go, by DELTA_ flags; written with commit_mutex. */
	u64 keeps;		/* for operations that keep the same in the end */
	u64 reserve;		/* keeps, and more for those that free */
	u64 aside;		/* on top of reserve: for writing what is preallocated */
	atomic64_t deleting;	/* blocks that long deletes under way have still to free; for statfs */
	s64 unwritten;		/* preallocated blocks in the tree that were not written yet; commit_mutex */
	bool tight[2];		/* by delta & 1; set before the delta takes operations */
	s64 standing[2];	/* by delta & 1: charged for the delta as a whole; commit_mutex */
	bool want_tight;	/* the next delta is to be tight; commit_mutex */
	atomic64_t freed;	/* generation: moves whenever balance grows */
	atomic64_t full_at;	/* generation at which full_cost blocks were refused; 0: none */
	atomic64_t full_cost;
};

/* Worst-case cost of changing items tree items of up to 300 bytes each, and of their records. */
u64 space_cost_items(struct volume *vol, u32 items);
/* Of making blocks adjacent file blocks dirty (new blocks: of these, how many need space), with the attributes. */
u64 space_cost_data(struct volume *vol, u64 blocks, u64 new_blocks);
/* Of preallocating blocks: with what writing to them may cost later. */
u64 space_cost_prealloc(struct volume *vol, u64 blocks);
/* What a cost amounts to in this delta, in blocks; and in a tight one. */
u64 space_price(struct volume *vol, u64 delta, u64 cost);
u64 space_full_price(u64 cost);

void space_init(struct volume *vol);
/* Try to charge blocks; false: not enough. */
bool space_charge(struct volume *vol, u64 blocks, unsigned int flags);
void space_uncharge(struct volume *vol, u64 blocks);
/* A caller was refused: bring back what can be (commit, unify).  0: try again, or -ENOSPC, -EIO. */
int space_wait(struct volume *vol, u64 blocks, unsigned int flags, unsigned int attempt);
/* Back end: this delta is about to take operations. */
void space_open_delta(struct volume *vol, u64 delta);
/* Back end, after a commit that was charged so much (space_close_delta), or an anchor: move the balance. */
void space_settle(struct volume *vol, s64 charged);
/*
 * Back end: charge a slice of a long delete to the delta being committed.  first: of this commit; such a one may go below
 * zero, as far as nobody else may.
 */
bool space_charge_slice(struct volume *vol, bool first, s64 *charged);
/*
 * Back end, after a commit: did it take more than it was charged for (and may of its own accord)?  taken: balloc.taken
 * before it.
 */
void space_check_commit(struct volume *vol, s64 charged, s64 taken);
/* Back end: what was charged for the delta as a whole, to be added to what its operations were. */
s64 space_close_delta(struct volume *vol, u64 delta);
/* For statfs. blocks. */
void space_stat(struct volume *vol, u64 *total, u64 *free, u64 *available);

#endif
