/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Leaves whose paths are paid in a tight delta: the essay is in paid.c.
 */
#ifndef TUX3_PAID_H
#define TUX3_PAID_H

#include "core/env.h"
#include "core/tree/tree.h"

struct volume;
struct delta_op;

#define PAID_LEAVES	512u	/* that are remembered; a power of two */
#define PAID_OWN	4u	/* that one operation can pay for */

struct paid_leaf {
	struct node_key low;	/* where the leaf's keys begin */
	u64 delta;
	u32 times;		/* items whose paths were paid there */
};

/* Of a volume; lock is innermost. */
struct paid_leaves {
	spinlock_t lock;
	struct paid_leaf leaf[PAID_LEAVES];
};

/* Paid by one operation. */
struct paid_own {
	struct node_key low;
	u32 times;
};

/* What an operation has found, outside, for the delta that was open then.  On the stack of those who write. */
struct paid_look {
	u64 delta;		/* 0: it pays for every path itself */
	u32 count;
	struct paid_own own[PAID_OWN];
};

void paid_init(struct volume *vol);
/* Outside: begin a look.  Where the delta that is open is not tight nothing is looked for. */
void paid_begin(struct volume *vol, struct paid_look *look);
/*
 * Outside: of so many items that lie in [from, to], and of those that end where they begin: whose paths are paid?  0, where that is
 * not one leaf, or not in memory: no price is worth reading for.
 */
u32 paid_items(struct volume *vol, struct paid_look *look, const struct tree_key *from, const struct tree_key *to, u32 items);
/*
 * The same of an item, its inode's attributes, that somebody else may have paid when it comes to it: so nobody relies on what this
 * one pays for it.  Behind the others.
 */
bool paid_attr(struct volume *vol, struct paid_look *look, u64 ino);
/* Inside: does what was found hold in this delta? */
static inline bool paid_holds(const struct paid_look *look, u64 delta)
{
	return look->delta && look->delta == delta;
}
/* Inside: the operation keeps what it was charged for the paths of the others, whatever comes. */
void paid_keep(const struct delta_op *op, const struct paid_look *look);

#endif
