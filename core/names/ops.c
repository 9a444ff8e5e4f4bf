// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Operations on names and attributes: each is one delta.  Described in ops.h.
 *
 * The pattern: everything that may fail or wait (finding entries, memory) first; then enter, change
 * memory, leave, without a failure.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/delta/delta.h"
#include "core/delta/paid.h"
#include "core/delta/space.h"
#include "core/inode/inode.h"
#include "core/inode/inode_quota.h"
#include "core/inode/path.h"
#include "core/names/name.h"
#include "core/names/name_change.h"
#include "core/names/name_look.h"
#include "core/names/ops.h"
#include "core/names/parent.h"

/*
 * A directory gained or lost entries and subdirectories.  If that sets its times back, as after touch with a time to come, what
 * new files say of it is not enough: they only set it forward.
 */
static void dir_changed(struct delta_op *op, struct tux3_inode *dir, int entries, int subdirs,
			const struct tux3_time *now)
{
	struct tux3_attr *attr;
	bool back;

	spin_lock(&dir->lock);
	attr = inode_attr(dir);
	back = unlikely(time_is_before(now, &attr->mtime) || time_is_before(now, &attr->ctime));
	inode_dirty_locked(op, dir, INODE_DIRTY_LISTING | (back ? INODE_DIRTY_ATTR : 0));
	attr->size = attr_entries_after(attr->size, entries);
	if (subdirs)	/* never 0 while it has a name: what is wrong with a damaged one is not to take away all that is in it */
		WRITE_ONCE(attr->nlink, clamp_t(s64, (s64)attr->nlink + subdirs, 2, ATTR_LINKS_MAX));
	attr->mtime = attr->ctime = *now;
	inode_change_end(dir);
}

/* It has lost and got names.  Whoever finds it so, before the operation is over, finds these prepared. */
static void link_changed(struct delta_op *op, struct tux3_inode *inode, int links, const struct tux3_time *now,
			 const struct name_prepared *lost, const struct name_prepared *got)
{
	struct tux3_attr *attr = inode_named_begin(op, inode);

	/* A directory goes once it is empty, however many it counts. */
	WRITE_ONCE(attr->nlink, links < 0 && S_ISDIR(attr->mode) ? 0 : attr->nlink + links);
	if (!attr->nlink)		/* and out of use soon, or already */
		inode_quota_frees_locked(op, inode, true);
	if (attr->nlink > 2)
		WRITE_ONCE(inode->many_names, true);
	inode->names_delta = op->delta;
	inode->names_seq++;
	if (lost)
		name_tie_lost(op, inode, lost);
	if (got)
		name_tie_got(op, inode, got);
	attr->ctime = *now;
	inode_change_end(inode);
}

static bool is_dir(const struct tux3_inode *inode)
{
	return S_ISDIR(READ_ONCE(inode->attr.mode));
}

static bool is_only_name(const struct tux3_inode *inode)
{
	return is_dir(inode) || READ_ONCE(inode->attr.nlink) == 1;
}

static void inode_born(struct delta_op *op, struct tux3_inode *inode, u32 nlink, const struct tux3_time *now)
{
	struct tux3_attr *attr = inode_change_begin(op, inode);

	attr->nlink = nlink;
	attr->atime = attr->mtime = attr->ctime = attr->btime = *now;
	attr->generation = get_random_u32();
	inode->born_delta = inode->names_delta = op->delta;
	inode_change_end(inode);
	if (nlink)	/* one without a name counts from its first one on */
		volume_count_inodes(inode->vol, 1);
}

/* It was made with this name. */
static void inode_note_name(struct delta_op *op, struct tux3_inode *inode, struct tux3_inode *dir, struct name_entry *entry,
			    const struct name_prepared *prep)
{
	spin_lock(&inode->lock);
	if (prep->fresh) {
		inode->born_dir = dir;
		inode->born_entry = entry;
	} else {
		name_tie_got(op, inode, prep);
	}
	spin_unlock(&inode->lock);
}

static void inode_note_whiteout(struct delta_op *op, struct tux3_inode *inode, const struct name_prepared *prep)
{
	spin_lock(&inode->lock);
	name_tie_got(op, inode, prep);
	spin_unlock(&inode->lock);
}

static int set_target(struct tux3_inode *inode, const char *target, unsigned int len)
{
	if (!target)
		return 0;
	if (!len || len > TUX3_SYMLINK_MAX)
		return len ? -ENAMETOOLONG : -ENOENT;
	inode->target = kzalloc(len + 1, GFP_NOFS);
	if (!inode->target)
		return -ENOMEM;
	memcpy(inode->target, target, len);
	inode->attr.size = len;
	return 0;
}

/* ---- what others have paid ---- */

/*
 * What an operation of this cost has to pay in the delta.  While there is room an item is little, and nobody looks.
 * Outside it is a guess, for the delta that is open; inside it gets no more, whatever others do.
 */
static u64 attr_due(u64 delta, u64 cost, const struct tux3_inode *inode, const struct tux3_inode *other)
{
	struct volume *vol = inode->vol;

	if (likely(!space_is_tight(&vol->space, delta)))
		return cost;
	return cost - space_cost_items(vol, inode_attr_is_paid(inode, delta) + (other ? inode_attr_is_paid(other, delta) : 0));
}

/* Items of an operation on names that need no path, since others have paid it in the delta: as seen outside. */
struct name_look {
	struct paid_look leaves;
	u32 entries, parents;
	bool attr;			/* of what is moved */
};

static void look_begin(struct volume *vol, struct name_look *look)
{
	paid_begin(vol, &look->leaves);
	look->entries = look->parents = 0;
	look->attr = false;
}

/* A directory that is new in the delta is left out: its entries pay for no path. */
static void look_at_entry(struct name_look *look, const struct tux3_inode *dir, const struct name_prepared *prep)
{
	struct tree_key key = tree_key(dir->ino, TUX3_ITEM_DIRENT, name_prepared_hash(prep));

	if (unlikely(look->leaves.delta) && !inode_is_new(dir, look->leaves.delta))
		look->entries += paid_items(dir->vol, &look->leaves, &key, &key, 1);
}

/*
 * What is made in a delta beside what was made in it: their numbers are neighbours, so between their items the tree has nothing.
 * All of these go into one gap, that is into two leaves at most, whose paths the first of them has paid; more leaves are growth.
 *
 * The directory's run_end is the number behind that of the newest in it; a new one begins with its own.
 */
static u64 create_due(u64 delta, u64 cost, const struct tux3_inode *dir, struct tux3_inode *inode,
		      const struct name_look *look)
{
	struct volume *vol = dir->vol;
	u32 beside, paid;

	if (likely(!space_is_tight(&vol->space, delta)))
		return cost;
	/* The entry; attributes and parent pointer of the new one. */
	beside = inode_is_new(dir, delta) || (paid_holds(&look->leaves, delta) && look->entries);
	if (READ_ONCE(dir->slot[delta & 1].run_end) == inode->ino)
		beside += 2;
	paid = inode_attr_is_paid(dir, delta);
	/* What its owner uses is counted elsewhere: who pays that first keeps an item for it. */
	if (inode_quota_is_paid(inode, delta))
		cost = space_cost_uncounted(cost);
	else if (unlikely(inode->owner) && paid + beside == SPACE_ITEMS_CREATE)
		beside--;
	return cost - space_cost_items(vol, paid + beside) + space_cost_beside(beside);
}

static void note_create(const struct delta_op *op, struct tux3_inode *dir, struct tux3_inode *inode, const struct name_look *look)
{
	if (likely(!space_is_tight(&op->vol->space, op->delta)))
		return;
	paid_keep(op, &look->leaves);
	WRITE_ONCE(dir->slot[op->delta & 1].run_end, inode->ino + 1);
	if (is_dir(inode))
		WRITE_ONCE(inode->slot[op->delta & 1].run_end, inode->ino + 1);
}

/* Entered for this cost: may the change be made?  Else it was left: -EAGAIN. */
static int enter_looked(struct delta_op *op, u64 cost, const struct name_looked *looked)
{
	if (likely(name_look_holds(op, looked)))
		return 0;
	delta_refund(op, cost, 0);
	delta_leave(op);
	return -EAGAIN;
}

/*
 * delta_enter() for an operation that changes attributes of one or two inodes.  Where these are paid it needs less.  looked: of one
 * that changes names: -EAGAIN as enter_looked() says.
 */
static int enter_attr(struct delta_op *op, u64 cost, unsigned int flags, const struct tux3_inode *inode,
		      const struct tux3_inode *other, const struct name_looked *looked)
{
	struct volume *vol = inode->vol;
	u64 due = attr_due(READ_ONCE(vol->delta.front), cost, inode, other);
	int err;

	for (;;) {
		err = delta_enter(vol, op, due, flags);
		if (!err && looked)
			err = enter_looked(op, due, looked);
		if (err || delta_settle(op, due, attr_due(op->delta, cost, inode, other)))
			return err;
		due = cost;
	}
}

/* ---- making and linking ---- */

/* Attributes of both, the name twice; more items: a target, or the mark of a nameless file.  A long target is in others. */
static u64 create_cost(struct volume *vol, unsigned int len, u32 more, unsigned int target_len)
{
	u64 cost = space_cost_items(vol, SPACE_ITEMS_CREATE + more) + space_cost_name(len);

	if (likely(target_len <= TUX3_NAME_MAX))
		return cost + space_cost_text(target_len);
	return cost + space_cost_bytes(target_len);
}

/* Who has limits may be refused inside: then he enters again, and pays all before. */
static int create_charge(struct delta_op *op, u64 cost, u64 due, const struct tux3_inode *dir, struct tux3_inode *inode,
			 const struct name_look *look, const struct name_looked *looked)
{
	struct quota_charge charge = { .amount.inodes = inode_is_unknown(inode) };
	u64 charged = due;
	int err = inode_quota_charge(inode, op, &charged, cost, 0, &charge);

	if (err)
		return err;
	if (charged != due) {
		if (unlikely(!name_look_holds(op, looked))) {
			inode_quota_give_up(inode, op, &charge);
			return enter_looked(op, cost, looked);
		}
		due = create_due(op->delta, cost, dir, inode, look);
		delta_refund(op, cost, due);
	}
	inode_quota_pay(inode, op->delta, due);
	return 0;
}

static int create_enter(struct delta_op *op, u64 cost, const struct tux3_inode *dir, struct tux3_inode *inode,
			const struct name_look *look, const struct name_looked *looked)
{
	u64 charged = create_due(READ_ONCE(dir->vol->delta.front), cost, dir, inode, look), due;
	int err;

	for (;;) {
		err = delta_enter(dir->vol, op, charged, 0);
		if (!err)
			err = enter_looked(op, charged, looked);
		if (err)
			return err;
		due = create_due(op->delta, cost, dir, inode, look);
		if (delta_settle(op, charged, due))
			return likely(!inode->owner) ? 0 : create_charge(op, cost, due, dir, inode, look, looked);
		charged = cost;
	}
}

static int create_look(struct name_looked *looked, struct tux3_inode *dir, const struct name_prepared *prep,
		       struct tux3_inode *inode)
{
	struct name_taken taken = {};

	name_look_begin(dir->vol, looked);
	return name_look_all(looked, dir, name_prepared_hash(prep), inode, &taken);
}

int op_create(struct tux3_inode *dir, const char *name, unsigned int len, struct tux3_inode *inode,
	      const char *target, unsigned int target_len)
{
	struct volume *vol = dir->vol;
	struct tux3_time now = inode_now(vol);
	struct name_prepared prep;
	struct name_looked looked;
	struct name_look look;
	struct name_entry *entry;
	struct delta_op op;
	u64 cost = create_cost(vol, len, target ? SPACE_ITEMS_LINK - SPACE_ITEMS_CREATE : 0, target_len);
	int err = set_target(inode, target, target_len);

	if (!err)
		err = inode_quota_attach(inode, dir);
	if (!err && is_dir(inode))
		err = name_dir_new(inode);
	if (!err)
		err = name_prepare(dir, name, len, NAME_IS_MADE, &prep);
	if (err)
		return err;
	look_begin(vol, &look);
	if (!prep.ino)
		look_at_entry(&look, dir, &prep);
	err = prep.ino ? -EEXIST : -EAGAIN;
	while (err == -EAGAIN) {
		err = create_look(&looked, dir, &prep, inode);
		if (!err)
			err = create_enter(&op, cost, dir, inode, &look, &looked);
	}
	if (err) {
		name_release(dir, &prep);
		return err;
	}
	note_create(&op, dir, inode, &look);
	inode->parent = dir->ino;
	entry = prep.entry;
	inode_born(&op, inode, is_dir(inode) ? 2 : 1, &now);
	name_change(&op, dir, &prep, NULL, inode);
	inode_note_name(&op, inode, dir, entry, &prep);
	dir_changed(&op, dir, 1, is_dir(inode), &now);
	name_release(dir, &prep);
	delta_leave(&op);
	return 0;
}

/* inode_quota_enter() for a new inode; -EAGAIN as enter_looked() says. */
static int enter_new(struct delta_op *op, struct tux3_inode *inode, u64 cost, unsigned int flags, const struct name_looked *looked)
{
	struct quota_charge charge = { .amount.inodes = inode_is_unknown(inode) };
	int err = inode_quota_enter(inode, op, cost, flags, &charge);

	if (err || likely(name_look_holds(op, looked)))
		return err;
	if (inode->owner)
		inode_quota_give_up(inode, op, &charge);
	return enter_looked(op, cost, looked);
}

int op_tmpfile(struct tux3_inode *inode)
{
	struct volume *vol = inode->vol;
	struct tux3_time now = inode_now(vol);
	struct name_looked looked;
	struct delta_op op;
	int err = inode_quota_attach(inode, NULL);

	if (err)
		return err;
	do {
		name_look_begin(vol, &looked);
		err = name_look_inode(&looked, inode, true);
		if (!err)
			err = enter_new(&op, inode, space_cost_items(vol, SPACE_ITEMS_TMPFILE), 0, &looked);
	} while (err == -EAGAIN);
	if (err)
		return err;
	inode_born(&op, inode, 0, &now);
	delta_leave(&op);
	return 0;
}

/*
 * Nothing comes by its name alone into a directory that is for one project, and is then counted for another: who moves it has to
 * copy it.  The host's locks keep the projects as they are.
 */
static bool project_fits(const struct tux3_inode *dir, const struct tux3_inode *inode)
{
	return !(READ_ONCE(dir->attr.flags) & TUX3_ATTR_PROJINHERIT) ||
	       READ_ONCE(dir->attr.projid) == READ_ONCE(inode->attr.projid);
}

/* goes: the name, else it comes. */
static int link_look(struct name_looked *looked, struct tux3_inode *dir, const struct name_prepared *prep, const char *name,
		     u32 len, struct tux3_inode *inode, bool goes)
{
	struct name_taken taken = {
		.name = name, .len = len, .goes = goes,
		.mark = goes ? is_only_name(inode) : !READ_ONCE(inode->attr.nlink),
	};

	name_look_begin(dir->vol, looked);
	return name_look_all(looked, dir, name_prepared_hash(prep), inode, &taken);
}

int op_link(struct tux3_inode *dir, const char *name, unsigned int len, struct tux3_inode *inode)
{
	struct volume *vol = dir->vol;
	struct tux3_time now = inode_now(vol);
	struct name_prepared prep;
	struct name_looked looked;
	struct delta_op op;
	u64 cost = space_cost_uncounted(create_cost(vol, len, SPACE_ITEMS_LINK - SPACE_ITEMS_CREATE, 0));
	int err;

	if (is_dir(inode))
		return -EPERM;
	if (READ_ONCE(inode->attr.nlink) >= ATTR_LINKS_MAX)
		return -EMLINK;
	err = name_prepare(dir, name, len, NAME_CHANGES, &prep);
	if (err)
		return err;
	err = prep.ino ? -EEXIST : parent_room(inode, dir->ino, name, len);
	if (!err)
		err = project_fits(dir, inode) ? -EAGAIN : -EXDEV;
	while (err == -EAGAIN) {
		err = link_look(&looked, dir, &prep, name, len, inode, false);
		if (!err)
			err = enter_attr(&op, cost, 0, dir, inode, &looked);
	}
	if (err) {
		name_release(dir, &prep);
		return err;
	}
	name_change(&op, dir, &prep, NULL, inode);
	link_changed(&op, inode, 1, &now, NULL, &prep);
	if (inode->attr.nlink == 1)
		volume_count_inodes(vol, 1);
	parent_add(&op, inode, dir->ino, name, len);
	dir_changed(&op, dir, 1, 0, &now);
	name_release(dir, &prep);
	delta_leave(&op);
	return 0;
}

static int remove_name(struct tux3_inode *dir, const char *name, unsigned int len, struct tux3_inode *inode,
		       int links, int subdirs)
{
	struct volume *vol = dir->vol;
	struct tux3_time now = inode_now(vol);
	struct name_prepared prep;
	struct name_looked looked;
	struct delta_op op;
	u64 cost = space_cost_items(vol, SPACE_ITEMS_UNLINK) + space_cost_text(len);
	int err = name_prepare(dir, name, len, is_only_name(inode) ? NAME_GOES : NAME_CHANGES, &prep);

	if (err)
		return err;
	err = prep.ino ? 0 : -ENOENT;
	if (!err && prep.ino != inode->ino)
		err = -ESTALE;
	if (!err)
		err = parent_look(inode, dir->ino, name, len);
	if (!err)
		err = -EAGAIN;
	while (err == -EAGAIN) {
		err = link_look(&looked, dir, &prep, name, len, inode, true);
		if (!err)
			err = enter_attr(&op, cost, DELTA_FREES, dir, inode, &looked);
	}
	if (err) {
		name_release(dir, &prep);
		return err;
	}
	name_change(&op, dir, &prep, inode, NULL);
	dir_changed(&op, dir, -1, subdirs, &now);
	link_changed(&op, inode, links, &now, &prep, NULL);
	if (!inode->attr.nlink)
		volume_count_inodes(vol, -1);
	name_release(dir, &prep);
	delta_leave(&op);
	return 0;
}

int op_unlink(struct tux3_inode *dir, const char *name, unsigned int len, struct tux3_inode *inode)
{
	return is_dir(inode) ? -EISDIR : remove_name(dir, name, len, inode, -1, 0);
}

int op_rmdir(struct tux3_inode *dir, const char *name, unsigned int len, struct tux3_inode *inode)
{
	if (!is_dir(inode))
		return -ENOTDIR;
	if (!name_is_empty(inode))
		return -ENOTEMPTY;
	return remove_name(dir, name, len, inode, -2, -1);
}

/* ---- rename ---- */

static int rename_check(const struct op_rename *args, const struct name_prepared *old, const struct name_prepared *new)
{
	if (!old->ino || (args->flags & OP_RENAME_EXCHANGE && !new->ino))
		return -ENOENT;
	if (old->ino != args->inode->ino || new->ino != (args->target ? args->target->ino : 0))
		return -ESTALE;
	if (args->flags & OP_RENAME_NOREPLACE && new->ino)
		return -EEXIST;
	if (args->old_dir != args->new_dir &&
	    (!project_fits(args->new_dir, args->inode) ||
	     (args->flags & OP_RENAME_EXCHANGE && !project_fits(args->old_dir, args->target))))
		return -EXDEV;
	if (!args->target || args->flags & OP_RENAME_EXCHANGE)
		return 0;
	if (is_dir(args->inode) && !is_dir(args->target))
		return -ENOTDIR;
	if (!is_dir(args->inode) && is_dir(args->target))
		return -EISDIR;
	return is_dir(args->target) && !name_is_empty(args->target) ? -ENOTEMPTY : 0;
}

static void set_parent(struct tux3_inode *inode, u64 parent)
{
	spin_lock(&inode->lock);
	inode->parent = parent;
	spin_unlock(&inode->lock);
}

/* The target loses its name, or in an exchange takes the old one. */
static void rename_target(struct delta_op *op, const struct op_rename *args, const struct tux3_time *now,
			  struct name_prepared *old, struct name_prepared *new)
{
	if (args->flags & OP_RENAME_EXCHANGE) {
		link_changed(op, args->target, 0, now, new, old);
		if (is_dir(args->target))
			set_parent(args->target, args->old_dir->ino);
		return;
	}
	link_changed(op, args->target, is_dir(args->target) ? -2 : -1, now, new, NULL);
	if (!args->target->attr.nlink)
		volume_count_inodes(op->vol, -1);
}

static void rename_enact(struct delta_op *op, const struct op_rename *args, struct name_prepared *old,
			 struct name_prepared *new)
{
	struct tux3_time now = inode_now(op->vol);
	bool exchange = args->flags & OP_RENAME_EXCHANGE, moved_dir = is_dir(args->inode);
	bool target_dir = args->target && is_dir(args->target);
	struct tux3_inode *left = exchange ? args->target : args->whiteout;
	int old_subdirs = (exchange && target_dir) - moved_dir, new_subdirs = moved_dir - target_dir;

	if (args->whiteout && !exchange)
		inode_born(op, args->whiteout, 1, &now);
	name_change(op, args->old_dir, old, args->inode, left);
	name_change(op, args->new_dir, new, args->target, args->inode);
	parent_add(op, args->inode, args->new_dir->ino, args->new_name, args->new_len);
	if (exchange)
		parent_add(op, args->target, args->old_dir->ino, args->old_name, args->old_len);
	dir_changed(op, args->old_dir, left ? 0 : -1, old_subdirs, &now);
	dir_changed(op, args->new_dir, args->target ? 0 : 1, new_subdirs, &now);
	link_changed(op, args->inode, 0, &now, old, new);
	if (moved_dir)
		set_parent(args->inode, args->new_dir->ino);
	if (moved_dir || (exchange && target_dir))
		WRITE_ONCE(op->vol->delta.dirs_moved[op->delta & 1], op->delta);
	if (args->target)
		rename_target(op, args, &now, old, new);
	if (args->whiteout && !exchange)
		inode_note_whiteout(op, args->whiteout, old);
	name_release(args->old_dir, old);
	name_release(args->new_dir, new);
}

static int rename_room(const struct op_rename *args)
{
	int err = parent_room(args->inode, args->new_dir->ino, args->new_name, args->new_len);

	if (!err)
		err = parent_look(args->inode, args->old_dir->ino, args->old_name, args->old_len);
	if (!err && args->target)
		err = parent_look(args->target, args->new_dir->ino, args->new_name, args->new_len);
	if (!err && args->flags & OP_RENAME_EXCHANGE)
		err = parent_room(args->target, args->old_dir->ino, args->old_name, args->old_len);
	return err;
}

/*
 * Two entries, two parent pointers, attributes of the directories and of what is moved; and of what is replaced as much.  For
 * quotas it counts if an inode comes, or may go.
 */
static u64 rename_cost(const struct op_rename *args)
{
	struct volume *vol = args->old_dir->vol;
	u64 cost;

	if (args->target || args->whiteout)
		cost = space_cost_replace(vol, args->old_len, args->new_len);
	else
		cost = space_cost_items(vol, SPACE_ITEMS_RENAME - (args->old_dir == args->new_dir)) +
		       space_cost_name(args->old_len) + space_cost_name(args->new_len);
	if (args->whiteout || (args->target && !(args->flags & OP_RENAME_EXCHANGE)))
		return cost;
	return space_cost_uncounted(cost);
}

/* Of a plain one, both entries, and both parent pointers. */
static void look_at_rename(const struct op_rename *args, const struct name_prepared *old, const struct name_prepared *new,
			   struct name_look *look)
{
	struct volume *vol = args->old_dir->vol;
	struct tree_key from = tree_key(args->inode->ino, TUX3_ITEM_PARENT, 0);
	struct tree_key to = tree_key(args->inode->ino, TUX3_ITEM_PARENT, ~0ULL);

	look_begin(vol, look);
	if (args->target || args->whiteout)
		look->leaves.delta = 0;
	if (likely(!look->leaves.delta))
		return;
	look_at_entry(look, args->old_dir, old);
	look_at_entry(look, args->new_dir, new);
	look->parents = paid_items(vol, &look->leaves, &from, &to, 2);
	look->attr = paid_attr(vol, &look->leaves, args->inode->ino);
}

static u64 rename_due(u64 delta, u64 cost, const struct op_rename *args, const struct name_look *look)
{
	struct volume *vol = args->old_dir->vol;
	u32 paid, beside = 0;

	if (likely(!space_is_tight(&vol->space, delta)))
		return cost;
	paid = inode_attr_is_paid(args->old_dir, delta) + inode_attr_is_paid(args->inode, delta);
	if (args->old_dir != args->new_dir)
		paid += inode_attr_is_paid(args->new_dir, delta);
	if (args->target)
		paid += inode_attr_is_paid(args->target, delta);
	if (paid_holds(&look->leaves, delta))
		beside = look->entries + look->parents + (look->attr && !inode_attr_is_paid(args->inode, delta));
	return cost - space_cost_items(vol, paid + beside) + space_cost_beside(beside);
}

/* A whiteout is a new inode. */
static struct tux3_inode *whiteout_of(const struct op_rename *args)
{
	return args->flags & OP_RENAME_EXCHANGE ? NULL : args->whiteout;
}

static int rename_enter_once(const struct op_rename *args, struct delta_op *op, u64 cost, const struct name_looked *looked)
{
	unsigned int flags = args->target ? DELTA_FREES : DELTA_KEEPS;
	int err;

	if (whiteout_of(args))
		return enter_new(op, args->whiteout, cost, flags, looked);
	err = delta_enter(args->old_dir->vol, op, cost, flags);
	return err ? err : enter_looked(op, cost, looked);
}

static int rename_enter(const struct op_rename *args, struct delta_op *op, const struct name_look *look,
			const struct name_looked *looked)
{
	u64 cost = rename_cost(args);
	u64 due = args->whiteout ? cost : rename_due(READ_ONCE(args->old_dir->vol->delta.front), cost, args, look);
	int err;

	for (;;) {
		err = rename_enter_once(args, op, due, looked);
		if (err || delta_settle(op, due, rename_due(op->delta, cost, args, look)))
			return err;
		due = cost;
	}
}

/* The one that is moved: it keeps as many names as it has. */
static int rename_look_moved(const struct name_looked *looked, const struct op_rename *args, struct tux3_inode *inode)
{
	bool from_old = inode == args->inode;
	u64 old = args->old_dir->ino, new = args->new_dir->ino;
	int err = name_look_inode(looked, inode, false);

	if (!err)
		err = name_look_parent(looked, inode, old, args->old_name, args->old_len, from_old);
	return err ? err : name_look_parent(looked, inode, new, args->new_name, args->new_len, !from_old);
}

static int rename_look_target(const struct name_looked *looked, const struct op_rename *args)
{
	int err;

	if (args->flags & OP_RENAME_EXCHANGE)
		return rename_look_moved(looked, args, args->target);
	err = name_look_inode(looked, args->target, is_only_name(args->target));
	return err ? err : name_look_parent(looked, args->target, args->new_dir->ino, args->new_name, args->new_len, true);
}

static int rename_look(struct name_looked *looked, const struct op_rename *args, const struct name_prepared *old,
		       const struct name_prepared *new)
{
	int err;

	name_look_begin(args->old_dir->vol, looked);
	if (likely(!looked->delta))
		return 0;
	err = name_look_entry(looked, args->old_dir, name_prepared_hash(old), true);
	if (!err)
		err = name_look_entry(looked, args->new_dir, name_prepared_hash(new), false);
	if (!err)
		err = rename_look_moved(looked, args, args->inode);
	if (!err && args->target)
		err = rename_look_target(looked, args);
	return err || !whiteout_of(args) ? err : name_look_inode(looked, args->whiteout, false);
}

int op_rename(const struct op_rename *args)
{
	bool goes = is_only_name(args->inode) && !args->whiteout && !(args->flags & OP_RENAME_EXCHANGE);
	struct name_prepared old, new;
	struct name_looked looked;
	struct name_look look;
	struct delta_op op;
	int err;

	if (args->inode == args->target ||
	    (args->old_dir == args->new_dir && args->old_len == args->new_len &&
	     !memcmp(args->old_name, args->new_name, args->old_len)))
		return args->flags & OP_RENAME_NOREPLACE ? -EEXIST : 0;
	err = name_prepare(args->old_dir, args->old_name, args->old_len, goes ? NAME_GOES : NAME_CHANGES, &old);
	if (err)
		return err;
	err = name_prepare(args->new_dir, args->new_name, args->new_len, NAME_CHANGES, &new);
	if (err) {
		name_release(args->old_dir, &old);
		return err;
	}
	err = rename_check(args, &old, &new);
	if (!err)
		err = rename_room(args);
	if (!err && whiteout_of(args))
		err = inode_quota_attach(args->whiteout, args->old_dir);
	if (!err) {
		look_at_rename(args, &old, &new, &look);
		err = -EAGAIN;
	}
	while (err == -EAGAIN) {
		err = rename_look(&looked, args, &old, &new);
		if (!err)
			err = rename_enter(args, &op, &look, &looked);
	}
	if (err) {
		name_release(args->old_dir, &old);
		name_release(args->new_dir, &new);
		return err;
	}
	paid_keep(&op, &look.leaves);
	rename_enact(&op, args, &old, &new);
	delta_leave(&op);
	return 0;
}

/* ---- attributes ---- */

void attr_apply(struct tux3_attr *attr, const struct tux3_attr *new, u32 mask)
{
	if (mask & OP_ATTR_MODE)
		WRITE_ONCE(attr->mode, (attr->mode & S_IFMT) | (new->mode & ~S_IFMT));
	if (mask & OP_ATTR_UID)
		attr->uid = new->uid;
	if (mask & OP_ATTR_GID)
		attr->gid = new->gid;
	if (mask & OP_ATTR_ATIME)
		attr->atime = new->atime;
	if (mask & OP_ATTR_MTIME)
		attr->mtime = new->mtime;
	if (mask & OP_ATTR_CTIME)
		attr->ctime = new->ctime;
	if (mask & OP_ATTR_BTIME)
		attr->btime = new->btime;
	if (mask & OP_ATTR_FLAGS) {
		attr->flags = (attr->flags & TUX3_ATTR_STORED) | (new->flags & TUX3_ATTR_SETTABLE);
		/* Tools set it on all of a tree, with the project: of a file it is no error, but it has none, as on XFS. */
		if (!S_ISDIR(attr->mode))
			attr->flags &= ~TUX3_ATTR_PROJINHERIT;
	}
	if (mask & OP_ATTR_PROJID)
		attr->projid = new->projid;
}

u64 attr_apply_cost(struct volume *vol, u32 mask)
{
	return mask ? space_cost_items(vol, SPACE_ITEMS_SETATTR) : 0;
}

/* Who owns it then must be allowed to. */
static int setattr_owner(struct tux3_inode *inode, const struct tux3_attr *new, u32 mask)
{
	struct volume *vol = inode->vol;
	struct tux3_time now = inode_now(vol);
	u32 id[QUOTA_KINDS] = {
		[QUOTA_USER] = mask & OP_ATTR_UID ? new->uid : inode->attr.uid,
		[QUOTA_GROUP] = mask & OP_ATTR_GID ? new->gid : inode->attr.gid,
		[QUOTA_PROJECT] = mask & OP_ATTR_PROJID ? new->projid : inode->attr.projid,
	};
	struct delta_op op;
	int err = inode_quota_read(inode);

	if (!err)
		err = inode_quota_move(inode, id, &op, attr_apply_cost(vol, ~0u), DELTA_KEEPS);
	if (err)
		return err;
	inode_attr(inode)->ctime = now;
	attr_apply(inode_attr(inode), new, mask);
	inode_change_end(inode);
	delta_leave(&op);
	return 0;
}

int op_setattr(struct tux3_inode *inode, const struct tux3_attr *new, u32 mask)
{
	struct volume *vol = inode->vol;
	struct tux3_time now = inode_now(vol);
	struct tux3_attr *attr;
	struct delta_op op;
	int err;

	if (unlikely(inode->owner) && mask & OP_ATTR_OWNER)
		return setattr_owner(inode, new, mask);
	err = enter_attr(&op, space_cost_uncounted(attr_apply_cost(vol, ~0u)), DELTA_KEEPS, inode, NULL, NULL);
	if (err)
		return err;
	attr = inode_change_begin(&op, inode);
	attr->ctime = now;
	attr_apply(attr, new, mask);
	inode_change_end(inode);
	delta_leave(&op);
	return 0;
}

/* ---- symlinks ---- */

struct target {
	char *text;
	u32 size, len;
};

static int target_piece(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct target *target = ctx;

	if (key->offset != target->len || len > target->size - target->len)
		return -EIO;
	memcpy(target->text + target->len, data, len);
	target->len += len;
	return 0;
}

static int target_load(struct tux3_inode *inode)
{
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_INLINE, 0);
	struct tree_key to = tree_key(inode->ino, TUX3_ITEM_INLINE, U64_MAX);
	struct target target = { .size = TUX3_SYMLINK_MAX };
	int err;

	target.text = kzalloc(TUX3_SYMLINK_MAX + 1, GFP_NOFS);
	if (!target.text)
		return -ENOMEM;
	err = tree_scan(inode->vol, &from, &to, target_piece, &target);
	if (!err && target.len != inode->attr.size)
		err = -EIO;
	if (err) {
		if (err == -EIO)
			inode_warn(inode->vol, "the target of symlink", inode->ino, " has %u bytes, its size is %llu", target.len,
				   (unsigned long long)inode->attr.size);
		kfree(target.text);
		return err;
	}
	if (cmpxchg(&inode->target, NULL, target.text))
		kfree(target.text);
	return 0;
}

int symlink_read(struct tux3_inode *inode, char *text, unsigned int size)
{
	int err = READ_ONCE(inode->target) ? 0 : target_load(inode);

	if (err)
		return err;
	memcpy(text, inode->target, min_t(u64, size, inode->attr.size));
	return inode->attr.size;
}
