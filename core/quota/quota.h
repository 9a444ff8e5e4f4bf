/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Quotas in memory: what users, groups and projects use and may use.  Of volumes with feature QUOTA; of others there is none.
 *
 * The tree has an item for each (FORMAT.md 6.8), whose usage the records' application moves.  Here is what the front end asks:
 *
 *	used		as of the newest committed delta
 *	reserved	what operations of the two living deltas were granted (slot[]): at worst.  When a delta has been committed
 *			used becomes what the tree says, and what was reserved in it goes, both at once
 *
 * So used + reserved is never less than what will be used when all is committed, and an operation that would bring that above a
 * limit is refused before it changes anything.  The back end charges nothing, and never fails for a quota.
 *
 * For most owners there is no limit.  Then nothing is reserved, and nothing shared is written to: who sets the first limit
 * commits what was changed until then.
 *
 * An inode has an owner (struct quota_owner: its user, group and project), which it shares with others.  What inodes are charged,
 * by which operations: core/inode/inode_quota.h.
 *
 * Locking: table.lock, which is taken alone, for the two trees; quota.lock, below inode->lock, for the rest: of an owner's quotas
 * in the order of their kinds.
 */
#ifndef TUX3_QUOTA_H
#define TUX3_QUOTA_H

#include "core/env.h"
#include "core/format/format.h"

struct volume;

enum quota_kind { QUOTA_USER, QUOTA_GROUP, QUOTA_PROJECT, QUOTA_KINDS };

#define QUOTA_GRACE (7u * 24 * 60 * 60)		/* seconds, unless the item of id 0 says otherwise */

/* 0: none.  Times: when the grace ends, in seconds since 1970, 0: it has not begun; of id 0, how long it is. */
struct quota_limits {
	u64 blocks_soft, blocks_hard, inodes_soft, inodes_hard;
	u64 blocks_time, inodes_time;
};

enum quota_mode {
	QUOTA_UNKNOWN,		/* not read from the tree yet */
	QUOTA_FREE,		/* no limits */
	QUOTA_LIMITED,
};

struct quota_slot {
	s64 blocks, inodes;	/* reserved by operations of the delta */
	s64 unsure;		/* blocks of these that may turn out to be none */
	bool set;		/* limits are changed in it, to these */
	bool listed;		/* is on table.changed */
	struct quota_limits limits;
	struct llist_node node;
};

struct quota {
	struct rb_node node;	/* table.lock */
	atomic_t refs;		/* becomes 0 with table.lock only */
	u32 type, id;
	u32 mode;		/* enum quota_mode; written with lock, read anywhere */
	atomic_t deleting;	/* long deletes under way of what it uses */
	atomic_t waiting;	/* operations that were refused and may not be when others' charges are exact */
	spinlock_t lock;
	struct quota_limits limits;	/* as the front delta has them; all from here on: lock */
	s64 blocks, inodes;	/* used */
	u64 frees_blocks, frees_inodes;	/* the newest delta that frees some; read anywhere */
	bool known;		/* tree is what the item is */
	struct disk_quota tree;
	struct quota_slot slot[2];
};

struct quota_owner {
	struct rb_node node;
	atomic_t refs;
	u64 paid_delta;		/* in which somebody has paid that its items change; written inside, read anywhere */
	u64 looked_delta;	/* until that is committed its items stay in memory; read and written anywhere */
	u32 id[QUOTA_KINDS];
	struct quota *quota[QUOTA_KINDS];
};

struct quota_table {
	spinlock_t lock;
	struct rb_root quotas, owners;	/* lock */
	struct llist_head changed[2];	/* by delta & 1: those with something in their slot, each with a reference */
	u64 reached_delta;	/* commit_mutex: quota_reach() found the items of these in it, last */
	u32 reached[QUOTA_KINDS];
	atomic_t unknown;		/* long deletes that go on from before a crash, of whom is not known yet */
	struct quota *zero[QUOTA_KINDS];	/* of id 0, for the times; NULL: the volume has no quotas */
};

int quota_init(struct volume *vol);
void quota_exit(struct volume *vol);
static inline bool quota_kept(const struct quota_table *table)
{
	return table->zero[QUOTA_USER];
}

/* With a reference; NULL: no memory.  Neither reads the disk. */
struct quota *quota_hold(struct volume *vol, u32 type, u32 id);
void quota_put(struct volume *vol, struct quota *quota);
struct quota_owner *quota_owner_get(struct volume *vol, const u32 *id);
/* A long delete of what this owner has begins (1), or is over (-1). */
void quota_owner_deletes(struct quota_owner *owner, int more);
void quota_owner_put(struct volume *vol, struct quota_owner *owner);

/* Outside a delta: its mode becomes known.  0, -EIO. */
int quota_load(struct volume *vol, struct quota *quota);
/* Outside, or back end: can the items of these, one of each kind, be read?  Then they are in memory until delta is committed. */
int quota_look(struct volume *vol, const u32 *id, u64 delta);
/* The first id from *id on that has an item in the tree: 0, -ENOENT, -EIO. */
int quota_next(struct volume *vol, u32 type, u32 *id);

/*
 * Inside a delta: reserve, of one quota with limits of each kind, NULL: none, or -EDQUOT, and who refused it.  All or nothing, in
 * one step: nobody else sees a part of it.  A grace period may begin, but not by what may turn out to be nothing: the commit begins
 * it then.  force: whatever the limits say.
 */
struct quota_amount {
	s64 blocks, inodes;
	bool unsure;		/* it may be fewer blocks */
};
int quota_reserve(struct volume *vol, struct quota *const *quotas, u64 delta, const struct quota_amount *amount, u64 now,
		  bool force, struct quota **refused);
/* So much of it comes back. */
void quota_unreserve(struct quota *quota, u64 delta, const struct quota_amount *amount);
/*
 * Back end: so many blocks that were reserved in the delta being committed are not used, for something of it was lost, but the
 * front delta may use them: they are reserved in that one, too.
 */
void quota_carry(struct volume *vol, struct quota *quota, s64 blocks);
/* Inside: blocks, inodes that it uses are freed by this delta. */
void quota_note_frees(struct volume *vol, struct quota *quota, u64 delta, bool blocks, bool inodes);
/* The same outside, by the commit of this delta; the caller has an inode that uses it. */
void quota_note_unused(struct quota *quota, u64 delta);

/* What may become of a charge that was refused, on the side of yes. */
enum quota_outlook {
	QUOTA_HOPELESS,
	QUOTA_FITS,		/* others gave something back since */
	QUOTA_MAY_SHRINK,	/* a commit may bring something back */
	QUOTA_SHRINKS,		/* each commit does, until a long delete is over */
};
enum quota_outlook quota_outlook(struct volume *vol, struct quota *quota, const struct quota_amount *amount, u64 now);
/* Why it would be refused this: for inodes, or for blocks; by a hard limit, or since the grace is over. */
void quota_why(struct quota *quota, const struct quota_amount *amount, bool *inodes, bool *hard);
/* What may be used until everything is committed: used + reserved. */
void quota_granted(struct quota *quota, s64 *blocks, s64 *inodes, struct quota_limits *limits);

#define QUOTA_SET_BLOCKS_SOFT	1u
#define QUOTA_SET_BLOCKS_HARD	2u
#define QUOTA_SET_INODES_SOFT	4u
#define QUOTA_SET_INODES_HARD	8u
#define QUOTA_SET_BLOCKS_TIME	16u
#define QUOTA_SET_INODES_TIME	32u
#define QUOTA_SET_LIMITS	15u
/* Inside: the limits change.  true: it had none before. */
bool quota_change(struct volume *vol, struct quota *quota, u64 delta, const struct quota_limits *limits, u32 set, u64 now);

/* Back end: the item is this in the tree now; after replay nobody may ask yet.  tree.sem held for writing. */
void quota_applied(struct volume *vol, u8 item_type, u32 id, const struct disk_quota *item);
/* What the item of a quota is to be at the end of this delta, if the tree has *item. */
void quota_item(struct volume *vol, struct quota *quota, u64 delta, u64 now, struct disk_quota *item);
/* Grace that has begun ends where usage is not above the soft limit: also what records do to an item. */
void quota_item_settle(u32 id, struct disk_quota *item);
/* The delta is durable. */
void quota_settle(struct volume *vol, u64 delta);

#endif
