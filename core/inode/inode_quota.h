/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What inodes are charged to the quotas of their user, group and project.  What quotas are: core/quota/quota.h.
 *
 * An operation that may bring its inode more blocks, or makes one, enters its delta by inode_quota_enter() instead of
 * delta_enter().  It is charged at worst, inside the delta and before anything is changed; what it did not need it gives back
 * by inode_quota_settle(), and the rest is settled when the delta has been committed.
 *
 *	writes, stores, fallocate	blocks that get dirty: each as if it were a hole.  Only if that is refused it is found
 *					out which are (quota_charge.look), for what is written over takes nothing
 *	a new inode			one inode: with the first that a delta gets to know of it, its name or an ACL
 *	large values of xattrs		by how much they are larger than what they replace
 *	a change of owner		to the new one: the inode, its blocks, and what it was charged in living deltas
 *
 * Who is refused makes a commit and tries again, if that may bring something back: blocks charged that were no holes, or
 * files removed.  While he does, others look first what they need, and do not take from him what they will give back.  As long as
 * a long delete goes on of what is counted there, each commit brings something.  Else the answer is -EDQUOT at once.
 *
 * Owners are changed under inode->lock, under which charges are made, too: so what a page fault is charged meanwhile moves along.
 */
#ifndef TUX3_INODE_QUOTA_H
#define TUX3_INODE_QUOTA_H

#include "core/env.h"
#include "core/inode/inode.h"
#include "core/quota/quota.h"

struct quota_charge {
	struct quota_amount amount;
	struct quota *charged[QUOTA_KINDS];	/* by whom something was reserved */
	const struct quota_owner *kept;		/* its quotas are not charged: the blocks come from there.  NULL: none */
	/* Outside: the exact amount.  0 or -errno; NULL: it is exact. */
	int (*look)(struct quota_charge *charge);
};

/* The owner of an inode whose attributes are known; before anything of it is charged.  -ENOMEM.  Of a new one: its directory's? */
int inode_quota_attach(struct tux3_inode *inode, struct tux3_inode *dir);
/* It is no inode of the volume any more; may be called twice. */
void inode_quota_detach(struct tux3_inode *inode);

/*
 * Outside: can the usage be read of who has the inode?  Who is charged finds out; this is for those who only give back, since a
 * commit that finds out stops the volume.  What was read once in this mount is not read again.  0, -EIO, -ENOMEM.
 */
int inode_quota_read(struct tux3_inode *inode);
/* The same for who changes names in this delta (core/names/name_look.h): and it stays in memory until that is committed. */
int inode_quota_look(struct tux3_inode *inode, u64 delta);

/* Inside, where it has paid *charged.  Who has to wait enters again, and has paid cost then. */
int inode_quota_charge(struct tux3_inode *inode, struct delta_op *op, u64 *charged, u64 cost, unsigned int flags,
		       struct quota_charge *charge);
/* delta_enter(), and -EDQUOT. */
static inline int inode_quota_enter(struct tux3_inode *inode, struct delta_op *op, u64 cost, unsigned int flags,
				    struct quota_charge *charge)
{
	u64 charged = cost;
	int err = delta_enter(inode->vol, op, cost, flags);

	if (likely(!READ_ONCE(inode->owner)) || err)
		return err;
	return inode_quota_charge(inode, op, &charged, cost, flags, charge);
}

/*
 * In a tight delta the items of an owner are paid once.  Has somebody done that in this one?  Inside, for who keeps the inode's
 * owner as it is: the host's lock, or nobody else knows it.  Outside it is a guess.
 */
bool inode_quota_is_paid(struct tux3_inode *inode, u64 delta);
/* Inside: so much was paid, and is not given back any more, whatever comes. */
void inode_quota_pay(struct tux3_inode *inode, u64 delta, u64 cost);

/* Inside: nothing will be changed. */
void inode_quota_give_up(struct tux3_inode *inode, struct delta_op *op, struct quota_charge *charge);
void inode_quota_give_back(struct tux3_inode *inode, struct delta_op *op, struct quota_charge *charge, s64 blocks);
/* Inside: so many blocks are kept, the rest comes back. */
static inline void inode_quota_settle(struct tux3_inode *inode, struct delta_op *op, struct quota_charge *charge, s64 blocks)
{
	if (unlikely(READ_ONCE(inode->owner)) && charge->amount.blocks > blocks)
		inode_quota_give_back(inode, op, charge, blocks);
}

/* Inside, inode->lock held: it loses blocks, if it has any; or goes. */
void inode_quota_frees_locked(struct delta_op *op, struct tux3_inode *inode, bool goes);
static inline void inode_quota_frees(struct delta_op *op, struct tux3_inode *inode, bool goes)
{
	if (likely(!READ_ONCE(inode->owner)))
		return;
	spin_lock(&inode->lock);
	inode_quota_frees_locked(op, inode, goes);
	spin_unlock(&inode->lock);
}

/*
 * Back end, inode->lock held: something of what the delta has changed of it was lost.  What it was charged for that it may come to
 * use all the same, by the front delta, in which it was no longer charged.
 */
void inode_quota_carry_locked(struct tux3_inode *inode, u64 delta);

/*
 * Outside: somebody lets go of an inode without a name, perhaps the last one.  For hosts that do not hear of it while it is dirty,
 * when its commit finds it out of use.
 */
void inode_quota_unused_slow(struct tux3_inode *inode);
static inline void inode_quota_unused(struct tux3_inode *inode)
{
	if (unlikely(READ_ONCE(inode->owner)))
		inode_quota_unused_slow(inode);
}

/* Is there a limit that its blocks count for, as far as is known? */
bool inode_quota_counts(struct tux3_inode *inode);

/* A reference to the owner, for a long delete; NULL: no quotas. */
struct quota_owner *inode_quota_delete(struct tux3_inode *inode);

/*
 * Enter a delta and give the inode to these ids: with inode->lock held on return 0, and the inode dirty, so that the caller sets
 * its attributes; then inode_change_end().  The host has the inode's own lock.  -EDQUOT ...
 */
int inode_quota_move(struct tux3_inode *inode, const u32 *id, struct delta_op *op, u64 cost, unsigned int flags);

/* ---- what quotas there are, for hosts.  Outside a delta ---- */

/* What a directory for one project has room for, for df.  0: no limit. */
struct quota_room {
	u64 blocks, blocks_left, inodes, inodes_left;
};

/* false: it is no such directory, or its project has no limits, or nobody is held to them. */
bool inode_quota_room(struct tux3_inode *inode, struct quota_room *room);

struct quota_state {
	struct quota_limits limits;	/* of id 0: times are how long the grace is, never 0 */
	u64 blocks, inodes;		/* used, as of the newest commit */
};

/* -ENOENT: the volume has no quotas. */
int volume_quota_get(struct volume *vol, u32 type, u32 id, struct quota_state *state);
/* The first id from *id on that uses something or has limits. */
int volume_quota_next(struct volume *vol, u32 type, u32 *id, struct quota_state *state);
/*
 * set: QUOTA_SET_...  The limits hold when this returns, and are durable with the delta.  The first limit that an id gets makes
 * a commit: from then on it is charged.  -EINVAL: limits for id 0, which has only times; -ERANGE: beyond 2^63 bytes, or a grace of
 * more than 32 bits.
 */
int volume_quota_set(struct volume *vol, u32 type, u32 id, const struct quota_limits *limits, u32 set);

#endif
