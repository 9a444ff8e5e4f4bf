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
 * A cost is what an operation may take, by kind; what that amounts to in blocks depends on the delta (space_price).  Costs may
 * be added, and numbers of data blocks are costs: each field stays below 2^16, for one operation has few of anything.
 */
enum { SPACE_DATA_SHIFT = 0, SPACE_EXTENTS_SHIFT = 16, SPACE_PROMISED_SHIFT = 32, SPACE_ITEMS_SHIFT = 48 };
#define SPACE_FIELD_MAX U16_MAX
#define SPACE_EXTENT_BYTES 104u		/* that one block's extent can add to leaves, half full: 2 x (24 + 24 + 4) */
#define SPACE_EXTENT_RECORD 56u		/* and to the log: 8 + 40 + 4, and padding to 8 */

/*
 * What was charged and what was taken, by who pays (DESIGN 9).  Kept, and compared after each commit, only where locks
 * know their owner (CONFIG_PROVE_LOCKING): the total is compared everywhere.
 */
#define SPACE_KINDS(X) \
	X(DATA,  "for data")					/* blocks of files, values of xattrs */ \
	X(LOG,	 "for the log") \
	X(NODES, "for tree nodes")				/* growth, redirects, splits */ \
	X(ASIDE, "to be set aside for preallocated blocks")
#define X(name, text) SPACE_##name,
enum space_kind { SPACE_KINDS(X) SPACE_KIND_COUNT };
#undef X

/* What is charged by kind, for one delta. */
struct space_charges {
	atomic64_t data, extents, promised, items;	/* the fields of all costs */
	atomic64_t paths;	/* blocks, of items in a delta that is tight, and of slices */
	atomic64_t log;		/* blocks, by the back end */
};

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
	struct space_charges charges[2];	/* by delta & 1; only with CONFIG_PROVE_LOCKING */
	s64 closed;		/* standing of the delta that is committed; commit_mutex */
	s64 taken[SPACE_KIND_COUNT];	/* before the commit under way: space_taken(); commit_mutex */
	atomic64_t freed;	/* generation: moves whenever balance grows */
	atomic64_t full_at;	/* generation at which full_cost blocks were refused; 0: none */
	atomic64_t full_cost;
};

/* Worst-case cost of changing items tree items of up to 300 bytes each, and of their records. */
static inline u64 space_cost_items(struct volume *vol, u32 items)
{
	return (u64)items << SPACE_ITEMS_SHIFT;
}

/* Of what bytes in adjacent items add to that, where there are more than such an item has: as so many extents. */
static inline u64 space_cost_bytes(u32 bytes)
{
	return (u64)DIV_ROUND_UP(bytes, SPACE_EXTENT_BYTES / 3) << SPACE_EXTENTS_SHIFT;	/* large ones leave leaves a third full */
}

/* Of what records of so many bytes in all add. */
static inline u64 space_cost_records(u32 bytes)
{
	return (u64)DIV_ROUND_UP(bytes, SPACE_EXTENT_RECORD) << SPACE_EXTENTS_SHIFT;
}

/*
 * Of making blocks adjacent file blocks dirty (new blocks: of these, how many need space), with the attributes.  At worst each
 * block becomes an extent of its own.  These items are neighbours, so only the ends of their run cost a path.
 */
static inline u64 space_cost_data(struct volume *vol, u64 blocks, u64 new_blocks)
{
	return (new_blocks << SPACE_DATA_SHIFT) + (blocks << SPACE_EXTENTS_SHIFT) + space_cost_items(vol, 4);
}

/* Of preallocating blocks: with what writing to them may cost later. */
static inline u64 space_cost_prealloc(struct volume *vol, u64 blocks)
{
	return space_cost_data(vol, blocks, blocks) + (blocks << SPACE_PROMISED_SHIFT);
}

/* Blocks of data that it is about; other large payloads count as such. */
u32 space_cost_extents(u64 cost);
/* What a cost amounts to in this delta, in blocks; and in a tight one. */
u64 space_price(struct volume *vol, u64 delta, u64 cost);
u64 space_full_price(struct volume *vol, u64 cost);

void space_init(struct volume *vol);
/* Try to charge blocks; false: not enough. */
bool space_charge(struct volume *vol, u64 blocks, unsigned int flags);
void space_uncharge(struct volume *vol, u64 blocks);
/* This cost was charged to the delta; or so much of it came back (times -1). */
void space_note_kinds(struct volume *vol, u64 delta, u64 cost, s64 times);
static inline void space_note(struct volume *vol, u64 delta, u64 cost, s64 times)
{
	if (IS_ENABLED(CONFIG_PROVE_LOCKING))
		space_note_kinds(vol, delta, cost, times);
}
/* Back end: the delta was charged these blocks for its log. */
void space_note_log(struct volume *vol, u64 delta, u64 blocks);
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
/* Back end, after the commit of delta: did it take more than it was charged for (and may of its own accord)? */
void space_check_commit(struct volume *vol, u64 delta, s64 charged);
/* Back end, before anything is taken for it: what was charged for the delta as a whole, to be added to what its operations were. */
s64 space_close_delta(struct volume *vol, u64 delta);
/* For statfs. blocks. */
void space_stat(struct volume *vol, u64 *total, u64 *free, u64 *available);

#endif
