/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Space: nothing is accepted that cannot be committed.  The essay is in space.c.
 */
#ifndef TUX3_SPACE_H
#define TUX3_SPACE_H

#include "core/env.h"
#include "core/delta/paid.h"

struct volume;
struct delta_op;
struct delta_cpu;

/*
 * A cost is what an operation may take, by kind; what that amounts to in blocks depends on the delta (space_price).  Costs may
 * be added, and numbers of data blocks are costs: each field stays below 2^16, text below 2^8 and items below 2^7, for one
 * operation has few of anything.  The highest bit: what is counted for quotas is not paid with it.
 */
enum {
	SPACE_DATA_SHIFT = 0, SPACE_EXTENTS_SHIFT = 16, SPACE_PROMISED_SHIFT = 32, SPACE_TEXT_SHIFT = 48, SPACE_ITEMS_SHIFT = 56,
};
#define SPACE_COST_UNCOUNTED (1ull << 63)	/* space_cost_uncounted() */
#define SPACE_TEXT_BYTES 16u		/* text, which is names and values in items, counts by so many bytes */
#define SPACE_EXTENT_BYTES 104u		/* that one block's extent can add to leaves, half full: 2 x (24 + 24 + 4) */
#define SPACE_ITEM_EXTENTS 3u		/* what an item adds is no more than what so many extents do, but for its path */
#define SPACE_EXTENT_RECORD 56u		/* and to the log: 8 + 40 + 4, and padding to 8 */

/*
 * What was charged and what was taken, by who pays (DESIGN 9).  Kept, and compared after each commit, only with
 * volume_options.costs: the total is compared everywhere.
 */
#define SPACE_KINDS(X) \
	X(DATA,  "for data")					/* blocks of files, values of xattrs */ \
	X(LOG,	 "for the log") \
	X(NODES, "for tree nodes")				/* growth, redirects, splits */ \
	X(ASIDE, "to be set aside for preallocated blocks")
#define X(name, text) SPACE_##name,
enum space_kind { SPACE_KINDS(X) SPACE_KIND_COUNT };
#undef X

/*
 * Formulas of which the simulator can take blocks (or items, or extents) away, to see that this is found: X(NAME, "name", "what").
 * volume_options.cheap; see tests/unit/test_costs.c.
 */
#define SPACE_FORMULAS(X) \
	X(PRICE,	"price",	"of an operation, while there is room") \
	X(TIGHT_PRICE,	"tight-price",	"of an operation, in a tight delta") \
	X(PATH,		"path",		"of an item in a tight delta") \
	X(PAID,		"paid",		"of items whose paths pay for a leaf, in a tight delta") \
	X(STANDING,	"standing",	"of a delta, for the whole tree") \
	X(TOP,		"top",		"of a tight delta, for the top of the tree") \
	X(KEEPS,	"keeps",	"kept for changes in place") \
	X(FREES,	"frees",	"kept for what frees") \
	X(SLICE,	"slice",	"of a slice of a long delete") \
	X(OWN_LOG,	"own-log",	"kept for the log of a commit") \
	X(DATA,		"data",		"blocks of data of an operation") \
	X(EXTENTS,	"extents",	"extents of an operation") \
	X(PROMISED,	"promised",	"preallocated blocks of an operation") \
	X(ITEMS,	"items",	"items of an operation")
enum space_formula {
	SPACE_RIGHT,
#define X(NAME, name, what) SPACE_CHEAP_##NAME,
	SPACE_FORMULAS(X)
#undef X
	SPACE_FORMULA_COUNT
};

/* What is charged by kind, for one delta. */
struct space_charges {
	atomic64_t data, extents, promised, text, items;	/* the fields of all costs */
	atomic64_t paths;	/* blocks, of items in a delta that is tight, and of slices */
	atomic64_t log;		/* blocks, by the back end */
};

struct space {
	atomic64_t balance;	/* blocks that may still be charged, less the CPUs' credit; below 0 only with DELTA_ flags */
	s64 available;		/* what balance was derived from; commit_mutex */
	/* How far below 0 the balance may go, by DELTA_ flags; written with commit_mutex. */
	u64 keeps;		/* for operations that keep the same in the end */
	u64 frees;		/* keeps, and more for those that free */
	u64 aside;		/* on top of frees: for writing what is preallocated */
	s64 ahead;		/* of all these so much is kept for a tree of another shape; the same */
	s64 alone;		/* the balance while nothing is charged to the front delta; S64_MAX: it is moving; the same */
	bool unified;		/* then a unify has nothing to give back; the same */
	u64 reserve;		/* what is kept for keeps and frees, by the price of full_levels; commit_mutex */
	atomic64_t deleting;	/* blocks that long deletes under way have still to free; for statfs */
	/* For statfs, while a delta is committed: what it saw when that began; stat_seq moves when this begins and ends. */
	struct {
		bool committing;
		s64 data, deleting;	/* data blocks in the tree; deleting, above */
		unsigned int slot;	/* of the delta that is committed */
		s64 pending;		/* what that one counted */
	} stat;
	atomic64_t stat_seq;
	s64 unwritten;		/* preallocated blocks in the tree that were not written yet; commit_mutex */
	bool tight[2];		/* by delta & 1; set before the delta takes operations */
	u32 levels[2];		/* of the tree, for which each item pays in such a delta; those above are the delta's */
	s64 splits;		/* of the tree when the front delta was opened; commit_mutex */
	s64 standing[2];	/* by delta & 1: charged for the delta as a whole; commit_mutex */
	u32 root_branches;	/* of the tree, as last seen; commit_mutex */
	u32 full_levels;	/* for which an item may have to pay by the time the volume is full; written with commit_mutex */
	bool want_tight;	/* the next delta is to be tight; commit_mutex */
	struct space_charges charges[2];	/* by delta & 1; only with volume_options.costs */
	s64 closed;		/* standing of the delta that is committed; commit_mutex */
	s64 taken[SPACE_KIND_COUNT];	/* before the commit under way: space_taken(); commit_mutex */
	atomic64_t freed;	/* with the CPUs' frees a generation, space_freed(): moves whenever balance grows or will */
	struct paid_leaves paid;
	spinlock_t full_lock;	/* innermost */
	s64 full_at;		/* full_lock: generation at which full_cost blocks were refused; 0: none */
	u64 full_cost;		/* full_lock */
};

/*
 * What each operation costs, at worst: items of the tree that it changes, and what each block that it is about adds: extents, data
 * blocks, preallocated ones.  Names and values in items come to that, by their length.  How far below zero it may bring the balance
 * is said in space.c.  tux3 show space prints the table with the prices of a volume; tests/unit/test_charges.c has what each
 * operation is charged, and tests/unit/test_rows.c sees that no row is more than the worst of its operations needs.
 */
#define SPACE_TABLE(X) \
	X(CREATE,	4, 0, 0, 0, "takes", "create, mkdir, mknod") \
	X(LINK,		5, 0, 0, 0, "takes", "link, symlink") \
	X(TARGET,	0, 1, 0, 0, "takes", "in addition, for 34 bytes of a target longer than 255") \
	X(TMPFILE,	2, 0, 0, 0, "takes", "a file without a name") \
	X(UNLINK,	5, 0, 0, 0, "frees", "unlink, rmdir") \
	X(FORGET,	3, 0, 0, 0, "frees", "the last use of an inode without a name") \
	X(RENAME,	7, 0, 0, 0, "keeps", "rename to a new name; within a directory an item less") \
	X(REPLACE,	12, 0, 0, 0, "keeps", "exchange, rename with a whiteout; rename over a file: frees") \
	X(SETATTR,	1, 0, 0, 0, "keeps", "chmod, chown, times, flags") \
	X(XATTR,	2, 0, 1, 0, "takes", "setxattr, with a block of a large value; removal: frees; with a new mode: keeps") \
	X(WRITE,	3, 1, 1, 0, "takes", "write, store through a mapping, for each block") \
	X(ALLOCATE,	4, 1, 1, 1, "takes", "fallocate, for each block") \
	X(WRITE_PAID,	3, 1, 0, 0, "paid", "write to a preallocated block") \
	X(REMAP,	24, 64, 0, 0, "takes", "exchange, collapse, insert; and an item for each extent, an extent for 8 checksums") \
	X(GROW,		1, 0, 0, 0, "keeps", "a truncate upwards") \
	X(REMOVE,	3, 28, 0, 0, "frees", "truncate, punch; extents: for the records of 32 parts") \
	X(SLICE,	8, 0, 0, 0, "back end", "a slice of a long delete")
#define X(name, items, ...) SPACE_ITEMS_##name = items,
enum { SPACE_TABLE(X) };
#undef X

/*
 * Worst-case cost of changing items tree items, and of their records; but for names and values in them.  On a volume with quotas
 * it pays for what is counted there, too: the first change of what an inode uses leaves an item, therefore,
 * whatever else is paid already; unless it is space_cost_uncounted().
 */
static inline u64 space_cost_items(struct volume *vol, u32 items)
{
	return (u64)items << SPACE_ITEMS_SHIFT;
}

/*
 * The same without what is counted for quotas: of an operation after which no inode has other blocks or another owner, and none
 * comes or goes; or for whose owner that is paid in the delta (inode_quota_is_paid).  Such costs are not added to others.
 */
static inline u64 space_cost_uncounted(u64 cost)
{
	return cost | SPACE_COST_UNCOUNTED;
}

/* Is what is counted for quotas paid with it? */
static inline bool space_cost_counts(u64 cost)
{
	return !(cost & SPACE_COST_UNCOUNTED) && cost >> SPACE_ITEMS_SHIFT;
}

/* Of a name or a value in an item; bytes in all: below 4,000. */
static inline u64 space_cost_text(u32 bytes)
{
	return (u64)DIV_ROUND_UP(bytes, SPACE_TEXT_BYTES) << SPACE_TEXT_SHIFT;
}

/* Of a name: in an entry of the directory, and in what the inode knows of it. */
static inline u64 space_cost_name(u32 len)
{
	return 2 * space_cost_text(len);
}

/* Of the largest renames.  Where it is an exchange, or leaves a whiteout, both names are set. */
static inline u64 space_cost_replace(struct volume *vol, u32 old_len, u32 new_len)
{
	return space_cost_items(vol, SPACE_ITEMS_REPLACE) + space_cost_name(old_len) + space_cost_name(new_len);
}

/* Of items for whose paths somebody has paid in the delta: as so many extents, which are no less in the tree and in the log. */
static inline u64 space_cost_beside(u32 items)
{
	return (u64)(items * SPACE_ITEM_EXTENTS) << SPACE_EXTENTS_SHIFT;
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
	return (new_blocks << SPACE_DATA_SHIFT) + (blocks << SPACE_EXTENTS_SHIFT) + space_cost_items(vol, SPACE_ITEMS_WRITE);
}

/* Of preallocating blocks: with what writing to them may cost later. */
static inline u64 space_cost_prealloc(struct volume *vol, u64 blocks)
{
	/* What is between the holes stays, so more leaves may be changed than those at the ends: see DATA_BATCH_MAX. */
	return space_cost_data(vol, blocks, blocks) + (blocks << SPACE_PROMISED_SHIFT) +
	       space_cost_items(vol, SPACE_ITEMS_ALLOCATE - SPACE_ITEMS_WRITE);
}

/*
 * Of two operations that are charged as one: true, and *cost is that.  False: a cost has no room for so much.  Text for which
 * there is none counts as extents, which take no less.
 */
bool space_cost_add(u64 *cost, u64 more);

/* Of an xattr with a name and a value so long, which may have blocks of its own. */
u64 space_cost_xattr(struct volume *vol, u32 len, u32 size);
u32 space_value_blocks(struct volume *vol, u32 size);
/* Blocks of data that it is about; other large payloads count as such. */
u32 space_cost_extents(u64 cost);
/* What a cost amounts to in this delta, in blocks; and in a tight one. */
u64 space_price(struct volume *vol, u64 delta, u64 cost);
u64 space_full_price(struct volume *vol, u64 cost);
/* Does each item pay for its path in this delta? */
static inline bool space_is_tight(const struct space *space, u64 delta)
{
	return READ_ONCE(space->tight[delta & 1]);
}

/* For paid.c. */
u32 space_less_paid(struct volume *vol, u32 times);

void space_init(struct volume *vol);
/* Try to charge blocks, on this CPU; false: not enough. */
bool space_charge(struct volume *vol, struct delta_cpu *cpu, u64 blocks, unsigned int flags);
void space_uncharge(struct volume *vol, struct delta_cpu *cpu, u64 blocks);
/* What may still be charged, the CPUs' credit included.  A guess while operations are under way. */
s64 space_balance(struct volume *vol);
/* This cost was charged to the delta; or so much of it came back (times -1).  With volume_options.costs. */
void space_note(struct volume *vol, u64 delta, u64 cost, s64 times);
/* Back end: the delta was charged these blocks for its log. */
void space_note_log(struct volume *vol, u64 delta, u64 blocks);
/* What an operation that was refused has tried; zeroed when it begins. */
struct space_try {
	unsigned int attempts;
	s64 freed;		/* space_freed() as the last attempt left it, but for what others freed meanwhile */
	u64 ops;		/* how many operations had been entered then */
};
/* A caller was refused: bring back what can be (commit, unify).  0: try again, or -ENOSPC, -EIO. */
int space_wait(struct volume *vol, u64 blocks, unsigned int flags, struct space_try *try);
/* Back end: this delta is about to take operations. */
void space_open_delta(struct volume *vol, u64 delta);
/* Back end, after a commit that was charged so much (space_close_delta), or an anchor: move the balance. */
void space_settle(struct volume *vol, s64 charged);
/* Back end: is the front delta charged more as a whole than a tight one would be that is opened now? */
bool space_opens_cheaper(struct volume *vol);
/* Back end: may blocks be missed that wait for somebody who reads them? */
bool space_misses_blocks(struct volume *vol);
/* Back end: if there is a hold (core/blocks/held.h) it is over, and what it has kept is there. */
void space_end_hold(struct volume *vol);
/*
 * Back end: charge a slice of a long delete to the delta being committed.  first: of this commit; such a one may go below
 * zero, as far as nobody else may.
 */
bool space_charge_slice(struct volume *vol, bool first, s64 *charged);
/*
 * Back end: so many blocks that the delta was to preallocate are not, since something could not be read.  What has been accepted
 * for the front delta meanwhile may count on them: charge them to that one, too.
 */
void space_charge_lost(struct volume *vol, u64 blocks);
/* Back end, after the commit of delta: did it take more than it was charged for (and may of its own accord)? */
void space_check_commit(struct volume *vol, u64 delta, s64 charged);
/* Back end, before anything is taken for it: what was charged for the delta as a whole, to be added to what its operations were. */
s64 space_close_delta(struct volume *vol, u64 delta);
/* Can so many data blocks be had as things are, in however many deltas, and promised blocks become preallocated?  Or never? */
bool space_has(struct volume *vol, u64 blocks, u64 promised);
bool space_never_has(struct volume *vol, u64 blocks, u64 promised);
/* The same for who needs all of them: 0, -ENOSPC, -EINTR, or the volume's error.  Where it takes a commit to know, there is one. */
int space_ask(struct volume *vol, u64 blocks, u64 promised);
/* Back end, when nothing of the delta is counted as pending any more. */
void space_commit_over(struct volume *vol);
/* The table, with the prices that rows have now: for one block, in blocks. */
struct space_row {
	const char *name, *how, *what;
	u32 items, extents, data, promised;
	u64 price, tight_price;
};
bool space_table_row(struct volume *vol, u32 i, struct space_row *row);	/* false: there are no more */
/* What a full volume keeps, and for what; blocks, but for levels and bytes. */
#define SPACE_KEPT(X) \
	X(item_bytes,		"an item adds to nodes, three times: see core/delta/space.c") \
	X(item_log_bytes,	"an item adds to the log") \
	X(text_bytes,		"16 bytes of a name or a value add to nodes, three times") \
	X(text_log_bytes,	"and to the log") \
	X(levels,		"of the tree for which an item pays on a full volume, two blocks each") \
	X(standing,		"a delta pays for the rest of the tree then") \
	X(whole_standing,	"and for the whole tree, while there is room") \
	X(keeps,		"kept for changes in place") \
	X(frees,		"kept for what frees") \
	X(slice,		"kept for a slice of a long delete") \
	X(log,			"kept for the log of commits") \
	X(aside,		"kept for writing preallocated blocks") \
	X(ordinary,		"an ordinary operation is refused below that")
struct space_kept {
#define X(name, what) s64 name;
	SPACE_KEPT(X)
#undef X
};
void space_get_kept(struct volume *vol, struct space_kept *kept);
/* For repair: so many blocks are free where files can be removed; all: and a full volume keeps so many for changes of others. */
u64 space_needs(struct volume *vol, u64 unwritten, bool all);
/* For statfs. blocks. */
void space_stat(struct volume *vol, u64 *total, u64 *free, u64 *available);

#endif
