/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Space: nothing is accepted that cannot be committed.  The essay is in space.c.
 */
#ifndef TUX3_SPACE_H
#define TUX3_SPACE_H

#include "env.h"

struct volume;
struct delta_op;

struct space {
	atomic64_t balance;	/* blocks that may still be charged; below 0 only with DELTA_FREES */
	s64 available;		/* what balance was derived from; commit_mutex */
	u64 reserve;		/* blocks that only operations which free may be charged; commit_mutex */
	atomic64_t freed;	/* generation: moves whenever balance grows, or will when the front delta commits */
	atomic64_t full_at;	/* generation at which a cost of full_cost was refused; 0: none */
	atomic64_t full_cost;
};

/* Worst-case cost in blocks: of changing items tree items, with at most a log block of records. */
u64 space_cost_items(struct volume *vol, u32 items);
/* Of making blocks adjacent file blocks dirty (new blocks: of these, how many need space), with the attributes. */
u64 space_cost_data(struct volume *vol, u64 blocks, u64 new_blocks);

void space_init(struct volume *vol);
/* Try to charge; false: not enough. */
bool space_charge(struct volume *vol, u64 cost, unsigned int flags);
void space_uncharge(struct volume *vol, u64 cost);
/* A caller was refused: bring back what can be (commit, unify).  0: try again, or -ENOSPC, -EIO. */
int space_wait(struct volume *vol, u64 cost, unsigned int flags, unsigned int attempt);
/* Back end, after a commit that was charged so much, or an anchor: move the balance. */
void space_settle(struct volume *vol, s64 charged);
/* For statfs. blocks. */
void space_stat(struct volume *vol, u64 *total, u64 *free, u64 *available);

#endif
