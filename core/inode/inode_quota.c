// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Charging quotas, described in inode_quota.h.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/inode/inode.h"
#include "core/inode/inode_quota.h"
#include "core/quota/quota.h"

#define QUOTA_TRIES		4u	/* commits that one operation makes at most for one quota; one is enough, but for races */
#define QUOTA_DELETE_TRIES	10000u	/* while a long delete goes on */

/* ---- owners ---- */

static void ids_of(const struct tux3_attr *attr, u32 *id)
{
	id[QUOTA_USER] = attr->uid;
	id[QUOTA_GROUP] = attr->gid;
	id[QUOTA_PROJECT] = attr->projid;
}

/* The directory's owner, if it is the same: nothing is looked for then. */
static struct quota_owner *owner_shared(struct tux3_inode *dir, const u32 *id)
{
	struct quota_owner *owner;

	spin_lock(&dir->lock);
	owner = dir->owner;
	if (owner && !memcmp(owner->id, id, sizeof(owner->id)))
		atomic_inc(&owner->refs);
	else
		owner = NULL;
	spin_unlock(&dir->lock);
	return owner;
}

int inode_quota_attach(struct tux3_inode *inode, struct tux3_inode *dir)
{
	struct quota_owner *owner = NULL;
	u32 id[QUOTA_KINDS];

	if (likely(!quota_kept(&inode->vol->quota)) || inode->owner)
		return 0;
	ids_of(&inode->attr, id);
	if (dir)
		owner = owner_shared(dir, id);
	if (!owner)
		owner = quota_owner_get(inode->vol, id);
	inode->owner = owner;
	return owner ? 0 : -ENOMEM;
}

void inode_quota_detach(struct tux3_inode *inode)
{
	quota_owner_put(inode->vol, inode->owner);
	inode->owner = NULL;
}

/* A reference to its owner; NULL: no quotas. */
static struct quota_owner *owner_grab(struct tux3_inode *inode)
{
	struct quota_owner *owner;

	spin_lock(&inode->lock);
	owner = inode->owner;
	if (owner)
		atomic_inc(&owner->refs);
	spin_unlock(&inode->lock);
	return owner;
}

int inode_quota_read(struct tux3_inode *inode)
{
	struct quota_owner *owner;
	int i, err = 0;

	if (likely(!READ_ONCE(inode->owner)))
		return 0;
	owner = owner_grab(inode);
	for (i = 0; owner && i < QUOTA_KINDS && !err; i++)
		if (READ_ONCE(owner->quota[i]->mode) == QUOTA_UNKNOWN)
			err = quota_load(inode->vol, owner->quota[i]);
	quota_owner_put(inode->vol, owner);
	return err;
}

static int owner_look(struct volume *vol, struct quota_owner *owner, u64 delta)
{
	int err;

	if (READ_ONCE(owner->looked_delta) >= delta)
		return 0;
	err = quota_look(vol, owner->id, delta);
	if (!err)
		WRITE_ONCE(owner->looked_delta, delta);
	return err;
}

int inode_quota_look(struct tux3_inode *inode, u64 delta)
{
	struct quota_owner *owner;
	int err;

	if (likely(!READ_ONCE(inode->owner)))
		return 0;
	owner = owner_grab(inode);
	err = owner ? owner_look(inode->vol, owner, delta) : 0;
	quota_owner_put(inode->vol, owner);
	return err;
}

/* ---- charging ---- */

static void charge_undo(struct quota_charge *charge, u64 delta, const struct quota_amount *amount)
{
	int i;

	for (i = 0; i < QUOTA_KINDS; i++)
		if (charge->charged[i])
			quota_unreserve(charge->charged[i], delta, amount);
}

/* What a charge needs to know besides. */
struct charging {
	struct delta_op *op;
	u64 now;			/* seconds; 0: not asked for yet */
	bool force;
	unsigned int tries;
	struct quota *refused;		/* with a reference */
	struct quota *waits[QUOTA_KINDS];	/* likewise: and counted there */
};

static struct charging charging_of(struct volume *vol, struct delta_op *op)
{
	return (struct charging){ .op = op, .force = READ_ONCE(vol->opts.no_quota) };
}

/*
 * Of owner's quotas those that are not kept's are charged.  0, -EDQUOT, or -EAGAIN: one is to be read; nothing was charged then.
 * exact: whoever can look first has to, even where there is no limit.
 */
static int charge_owner(struct charging *charging, const struct quota_owner *owner, const struct quota_owner *kept,
			struct quota_charge *charge, bool exact)
{
	struct quota *refused = NULL;
	int i, err = 0;

	if (unlikely(exact) && charge->look && charge->amount.unsure) {
		refused = owner->quota[QUOTA_USER];
		err = -EDQUOT;
	}
	memset(charge->charged, 0, sizeof(charge->charged));
	for (i = 0; i < QUOTA_KINDS && !err; i++) {
		struct quota *quota = owner->quota[i];
		u32 mode = smp_load_acquire(&quota->mode);

		if (likely(mode == QUOTA_FREE) || (kept && kept->quota[i] == quota))
			continue;
		if (!charging->now)
			charging->now = inode_now(charging->op->vol).sec;
		if (mode == QUOTA_UNKNOWN)
			err = -EAGAIN;
		else if (charge->look && charge->amount.unsure && unlikely(atomic_read(&quota->waiting)))
			err = -EDQUOT;		/* look first, also who is above all limits */
		charge->charged[i] = refused = quota;
	}
	if (!err && refused)
		err = quota_reserve(charging->op->vol, charge->charged, charging->op->delta, &charge->amount, charging->now,
				    charging->force, &refused);
	if (err) {
		atomic_inc(&refused->refs);
		charging->refused = refused;
		memset(charge->charged, 0, sizeof(charge->charged));
	}
	return err;
}

/* Inside a delta; on success with inode->lock held. */
static int charge_locked(struct charging *charging, struct tux3_inode *inode, struct quota_charge *charge)
{
	int err;

	spin_lock(&inode->lock);
	err = charge_owner(charging, inode->owner, charge->kept, charge, inode->moving);
	if (!err)
		inode_slot_of(inode, charging->op->delta)->charged += charge->amount.blocks;
	else
		spin_unlock(&inode->lock);
	return err;
}

static void charge_refused(struct volume *vol, struct quota *quota, const struct quota_amount *amount)
{
	bool inodes, hard;

	count_add(vol, TUX3_COUNT_EDQUOT, 1);
	if (!vol->host->quota_told)
		return;
	quota_why(quota, amount, &inodes, &hard);
	vol->host->quota_told(vol, quota->type, quota->id, inodes, hard ? QUOTA_REFUSED_HARD : QUOTA_REFUSED_GRACE);
}

static void charge_waits_end(struct charging *charging, struct quota **waits)
{
	if (!*waits)
		return;
	atomic_dec(&(*waits)->waiting);
	quota_put(charging->op->vol, *waits);
	*waits = NULL;
}

static void charging_end(struct charging *charging)
{
	int i;

	for (i = 0; i < QUOTA_KINDS; i++)
		charge_waits_end(charging, &charging->waits[i]);
}

/*
 * What others are charged from now on is exact, until this one has got what it wants or gives up: of all that have refused it, or
 * while it waits for one others would take what it has waited for of another.
 */
static void charge_waits(struct charging *charging, struct quota *quota)
{
	struct quota **waits = &charging->waits[quota->type];

	if (*waits == quota)
		return;
	charge_waits_end(charging, waits);
	atomic_inc(&quota->refs);
	atomic_inc(&quota->waiting);
	*waits = quota;
	charging->tries = 0;
}

/* Outside: it was refused all that it needs.  0: once more, it may be granted now. */
static int charge_commit(struct charging *charging, struct quota *quota, const struct quota_amount *amount)
{
	struct volume *vol = charging->op->vol;
	enum quota_outlook outlook = quota_outlook(vol, quota, amount, charging->now);

	if (outlook == QUOTA_HOPELESS || charging->tries++ >= (outlook == QUOTA_SHRINKS ? QUOTA_DELETE_TRIES : QUOTA_TRIES))
		return -EDQUOT;
	if (fatal_signal_pending(current))
		return -EINTR;
	charge_waits(charging, quota);
	if (outlook == QUOTA_FITS)
		return 0;
	if (vol->host->settle_unused)
		vol->host->settle_unused(vol);
	return delta_commit_charges(vol);
}

/* Outside: it was refused.  0: once more. */
static int charge_wait(struct charging *charging, struct quota_charge *charge, int err, unsigned int flags)
{
	struct volume *vol = charging->op->vol;
	struct quota *quota = charging->refused;

	if (flags & DELTA_NOWAIT) {
		err = -EAGAIN;
	} else if (err == -EAGAIN) {
		err = quota_load(vol, quota);
	} else if (!charging->force && vol->host->quota_exempt && vol->host->quota_exempt(vol)) {
		charging->force = true;
		err = 0;
	} else if (charge->look) {
		err = charge->look(charge);
		charge->look = NULL;
		charge->amount.unsure = false;
	} else {
		err = charge_commit(charging, quota, &charge->amount);
		if (err == -EDQUOT)
			charge_refused(vol, quota, &charge->amount);
	}
	quota_put(vol, quota);
	charging->refused = NULL;
	return err;
}

int inode_quota_charge(struct tux3_inode *inode, struct delta_op *op, u64 *charged, u64 cost, unsigned int flags,
		       struct quota_charge *charge)
{
	struct charging charging = charging_of(inode->vol, op);
	int err;

	do {
		memset(charge->charged, 0, sizeof(charge->charged));
		if (!charge->amount.blocks && !charge->amount.inodes)
			break;
		err = charge_locked(&charging, inode, charge);
		if (!err) {
			spin_unlock(&inode->lock);
			break;
		}
		delta_refund(op, *charged, 0);
		delta_leave(op);
		*charged = cost;
		err = charge_wait(&charging, charge, err, flags);
		if (!err)
			err = delta_enter(inode->vol, op, cost, flags);
	} while (!err);
	charging_end(&charging);
	return err;
}

bool inode_quota_is_paid(struct tux3_inode *inode, u64 delta)
{
	bool paid;

	if (likely(!READ_ONCE(inode->owner)))
		return false;
	spin_lock(&inode->lock);
	paid = inode->owner && READ_ONCE(inode->owner->paid_delta) == delta;
	spin_unlock(&inode->lock);
	return paid;
}

void inode_quota_pay(struct tux3_inode *inode, u64 delta, u64 cost)
{
	if (likely(!READ_ONCE(inode->owner)) || !space_is_tight(&inode->vol->space, delta) || !space_cost_counts(cost))
		return;
	spin_lock(&inode->lock);
	if (inode->owner)
		WRITE_ONCE(inode->owner->paid_delta, delta);
	spin_unlock(&inode->lock);
}

void inode_quota_give_up(struct tux3_inode *inode, struct delta_op *op, struct quota_charge *charge)
{
	spin_lock(&inode->lock);
	inode_slot_of(inode, op->delta)->charged -= charge->amount.blocks;
	spin_unlock(&inode->lock);
	charge_undo(charge, op->delta, &charge->amount);
}

void inode_quota_give_back(struct tux3_inode *inode, struct delta_op *op, struct quota_charge *charge, s64 blocks)
{
	struct quota_amount back = { .blocks = charge->amount.blocks - blocks, .unsure = charge->amount.unsure };

	spin_lock(&inode->lock);
	inode_slot_of(inode, op->delta)->charged -= back.blocks;
	spin_unlock(&inode->lock);
	charge_undo(charge, op->delta, &back);
	charge->amount.blocks = blocks;
}

void inode_quota_frees_locked(struct delta_op *op, struct tux3_inode *inode, bool goes)
{
	bool blocks = inode->blocks || inode->slot[0].charged || inode->slot[1].charged;
	int i;

	lockdep_assert_held(&inode->lock);
	for (i = 0; inode->owner && i < QUOTA_KINDS; i++)
		quota_note_frees(op->vol, inode->owner->quota[i], op->delta, blocks, goes);
}

void inode_quota_carry_locked(struct tux3_inode *inode, u64 delta)
{
	struct inode_slot *slot = inode_slot_of(inode, delta), *front = inode_slot_of(inode, delta + 1);
	int i;

	for (i = 0; inode->owner && slot->charged > 0 && i < QUOTA_KINDS; i++)
		quota_carry(inode->vol, inode->owner->quota[i], slot->charged);
	if (front->dirty)	/* and so a new owner is charged for it */
		front->charged += slot->charged;
}

void inode_quota_unused_slow(struct tux3_inode *inode)
{
	u64 delta = READ_ONCE(inode->vol->delta.front);
	int i;

	spin_lock(&inode->lock);
	for (i = 0; inode->owner && i < QUOTA_KINDS; i++)
		quota_note_unused(inode->owner->quota[i], delta);
	spin_unlock(&inode->lock);
}

bool inode_quota_counts(struct tux3_inode *inode)
{
	bool counts = false;
	int i;

	spin_lock(&inode->lock);
	for (i = 0; inode->owner && i < QUOTA_KINDS; i++)
		counts |= READ_ONCE(inode->owner->quota[i]->mode) != QUOTA_FREE;
	spin_unlock(&inode->lock);
	return counts;
}

struct quota_owner *inode_quota_delete(struct tux3_inode *inode)
{
	struct quota_owner *owner = owner_grab(inode);

	quota_owner_deletes(owner, 1);
	return owner;
}

/* ---- other owners ---- */

/* Inside: what the inode has, and what it was charged in deltas that are not committed.  On success with inode->lock held. */
static int move_locked(struct charging *charging, struct tux3_inode *inode, struct quota_owner **owner, struct quota_charge *charge)
{
	struct inode_slot *slots[2];
	struct quota_owner *was;
	int err;

	spin_lock(&inode->lock);
	slots[0] = inode_slot_of(inode, 0);
	slots[1] = inode_slot_of(inode, 1);
	inode->moving = false;
	charge->amount.inodes = 1;
	charge->amount.blocks = inode->blocks + slots[0]->charged + slots[1]->charged;
	/* An operation that is under way may give back what it was charged, before anything of the inode is dirty. */
	charge->amount.unsure = (slots[0]->dirty | slots[1]->dirty) & (INODE_DIRTY_DATA | INODE_DIRTY_XATTRS) ||
				slots[0]->charged || slots[1]->charged;
	err = charge_owner(charging, *owner, inode->owner, charge, false);
	if (err) {
		inode->moving = err == -EDQUOT;		/* or each store would be counted as a hole, and that is moved, too */
		spin_unlock(&inode->lock);
		return err;
	}
	inode_quota_frees_locked(charging->op, inode, true);
	was = inode->owner;
	WRITE_ONCE(inode->owner, *owner);	/* page faults look without the lock whether there is any */
	*owner = was;
	inode_dirty_locked(charging->op, inode, INODE_DIRTY_ATTR);
	return 0;
}

/*
 * The commit takes away from who had it what the new one gets.  If it has to do with names, too, it cannot leave that out: so the
 * usage of both can be read, and stays in memory.
 */
static int move_enter(struct tux3_inode *inode, struct quota_owner *owner, struct delta_op *op, u64 cost, unsigned int flags)
{
	struct volume *vol = inode->vol;
	u64 looked;
	int err;

	for (;;) {
		looked = tree_look_begin(vol);
		err = looked ? owner_look(vol, owner, looked) : 0;
		if (!err && looked)
			err = inode_quota_look(inode, looked);
		if (!err)
			err = delta_enter(vol, op, cost, flags);
		if (err || tree_look_holds(vol, looked, op->delta))
			return err;
		delta_refund(op, cost, 0);
		delta_leave(op);
	}
}

int inode_quota_move(struct tux3_inode *inode, const u32 *id, struct delta_op *op, u64 cost, unsigned int flags)
{
	struct charging charging = charging_of(inode->vol, op);
	struct quota_owner *owner = quota_owner_get(inode->vol, id);
	struct quota_charge charge = {};
	int err = owner ? inode_refresh_blocks(inode) : -ENOMEM;

	while (!err) {
		err = move_enter(inode, owner, op, cost, flags);
		if (err)
			break;
		err = move_locked(&charging, inode, &owner, &charge);
		if (!err)
			break;
		delta_refund(op, cost, 0);
		delta_leave(op);
		err = charge_wait(&charging, &charge, err, flags);
	}
	charging_end(&charging);
	if (err && owner) {
		spin_lock(&inode->lock);
		inode->moving = false;
		spin_unlock(&inode->lock);
	}
	quota_owner_put(inode->vol, owner);	/* of success, the old one */
	return err;
}

/* ---- for hosts ---- */

static void quota_state_of(struct quota *quota, struct quota_state *state)
{
	spin_lock(&quota->lock);
	state->limits = quota->limits;
	state->blocks = max_t(s64, quota->blocks, 0);
	state->inodes = max_t(s64, quota->inodes, 0);
	spin_unlock(&quota->lock);
	if (!quota->id) {
		state->limits.blocks_time = state->limits.blocks_time ? state->limits.blocks_time : QUOTA_GRACE;
		state->limits.inodes_time = state->limits.inodes_time ? state->limits.inodes_time : QUOTA_GRACE;
	}
}

/* With a reference, and known. */
static int quota_open(struct volume *vol, u32 type, u32 id, struct quota **quota)
{
	int err;

	if (!quota_kept(&vol->quota) || type >= QUOTA_KINDS)
		return -ENOENT;
	*quota = quota_hold(vol, type, id);
	if (!*quota)
		return -ENOMEM;
	err = quota_load(vol, *quota);
	if (err)
		quota_put(vol, *quota);
	return err;
}

static u64 left_of(u64 limit, s64 used)
{
	return limit - min(limit, (u64)max(used, (s64)0));
}

/* Of two, of which 0 is none. */
static u64 lower_limit(u64 soft, u64 hard)
{
	return soft && (!hard || soft < hard) ? soft : hard;
}

bool inode_quota_room(struct tux3_inode *inode, struct quota_room *room)
{
	struct quota_limits limits;
	struct tux3_attr attr;
	struct quota *quota;
	s64 blocks, inodes;

	if (READ_ONCE(inode->vol->opts.no_quota))
		return false;
	inode_get_attr(inode, &attr);
	if (!(attr.flags & TUX3_ATTR_PROJINHERIT) || !attr.projid || quota_open(inode->vol, QUOTA_PROJECT, attr.projid, &quota))
		return false;
	quota_granted(quota, &blocks, &inodes, &limits);
	quota_put(inode->vol, quota);
	room->blocks = lower_limit(limits.blocks_soft, limits.blocks_hard);
	room->inodes = lower_limit(limits.inodes_soft, limits.inodes_hard);
	room->blocks_left = left_of(room->blocks, blocks);
	room->inodes_left = left_of(room->inodes, inodes);
	return room->blocks || room->inodes;
}

int volume_quota_get(struct volume *vol, u32 type, u32 id, struct quota_state *state)
{
	struct quota *quota;
	int err = quota_open(vol, type, id, &quota);

	if (err)
		return err;
	quota_state_of(quota, state);
	quota_put(vol, quota);
	return 0;
}

int volume_quota_next(struct volume *vol, u32 type, u32 *id, struct quota_state *state)
{
	int err;

	if (!quota_kept(&vol->quota) || type >= QUOTA_KINDS)
		return -ENOENT;
	err = quota_next(vol, type, id);
	return err ? err : volume_quota_get(vol, type, *id, state);
}

static bool limits_are_none(const struct quota_limits *limits, u32 set)
{
	return !(set & QUOTA_SET_BLOCKS_SOFT && limits->blocks_soft) && !(set & QUOTA_SET_BLOCKS_HARD && limits->blocks_hard) &&
	       !(set & QUOTA_SET_INODES_SOFT && limits->inodes_soft) && !(set & QUOTA_SET_INODES_HARD && limits->inodes_hard);
}

/* All that is set can be told again: sizes in bytes, by programs that know signed numbers, and times of 32 bits. */
static int limits_check(struct volume *vol, u32 id, const struct quota_limits *limits, u32 set)
{
	u64 most = S64_MAX >> vol->block_shift;

	if (!id && !limits_are_none(limits, set))
		return -EINVAL;
	if ((set & QUOTA_SET_BLOCKS_SOFT && limits->blocks_soft > most) ||
	    (set & QUOTA_SET_BLOCKS_HARD && limits->blocks_hard > most))
		return -ERANGE;
	if (!id && ((set & QUOTA_SET_BLOCKS_TIME && limits->blocks_time > U32_MAX) ||
		    (set & QUOTA_SET_INODES_TIME && limits->inodes_time > U32_MAX)))
		return -ERANGE;
	return 0;
}

/* A commit cannot leave out limits.  -EAGAIN: the item has to be looked at, or anew. */
static int limits_enter(struct volume *vol, struct delta_op *op, u32 type, u32 id)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER + type, id);
	struct tree_look look = { .delta = tree_look_begin(vol), .goes = true };
	u64 cost = space_cost_items(vol, 1);
	int err = look.delta ? tree_look_for(vol, &key, &key, &look) : 0;

	if (!err)
		err = delta_enter(vol, op, cost, DELTA_KEEPS);
	if (err || tree_look_holds(vol, look.delta, op->delta))
		return err;
	delta_refund(op, cost, 0);
	delta_leave(op);
	return -EAGAIN;
}

int volume_quota_set(struct volume *vol, u32 type, u32 id, const struct quota_limits *limits, u32 set)
{
	struct delta_op op;
	struct quota *quota;
	bool first = false;
	int err = quota_open(vol, type, id, &quota);

	if (err)
		return err;
	err = limits_check(vol, id, limits, set);
	if (!err)
		do {
			err = limits_enter(vol, &op, type, id);
		} while (err == -EAGAIN);
	if (!err) {
		first = quota_change(vol, quota, op.delta, limits, set, inode_now(vol).sec);
		delta_note_other(&op);
		delta_leave(&op);
	}
	quota_put(vol, quota);
	return err || !first ? err : delta_commit(vol);
}
