// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names and inodes that go ahead together.  Described in name_closure.h.
 *
 * Who can have a name after a crash?  By the newest durable delta who had it when the delta under way began, by that
 * one who had it in the end, and by an intent any of whom it says so.  Names that a file can not have then, as that
 * which it was made with and lost before an fsync, are no part of it.
 */
#include "core/volume.h"
#include "core/log/apply.h"
#include "core/inode/inode.h"
#include "core/names/name_change.h"
#include "core/names/name_closure.h"
#include "core/names/name_internal.h"

#define CHANGES_LOOKED_AT (16 * CLOSURE_NAMES)	/* of a directory, that are not durable; of a file */
#define CHANGES_PASSED 4096u			/* of a directory, that are: a commit would go through all of them, too */
#define DIRENT_HEAD (offsetof(struct record_dirent, entry) + sizeof(struct disk_dirent))

static_assert(CLOSURE_BYTES >= CLOSURE_NAMES * (sizeof(struct disk_record) + DIRENT_HEAD + TUX3_NAME_MAX + 7) +
	      (CLOSURE_INODES + CLOSURE_NAMES + 1) * (sizeof(struct disk_record) + sizeof(struct intent_named)));

void closure_add_beside(struct name_closure *closure, u64 ino, u32 changes, u32 names_seq)
{
	closure->beside[closure->besides].ino = ino;
	closure->beside[closure->besides].names_seq = names_seq;
	closure->beside[closure->besides++].changes = changes;
}

void closure_add_made(struct name_closure *closure, struct tux3_inode *inode)
{
	closure->made[closure->made_count++] = inode;
	closure->dirs += S_ISDIR(READ_ONCE(inode->attr.mode));
}

bool closure_makes(const struct name_closure *closure, const struct tux3_inode *inode)
{
	u32 i;

	for (i = 0; i < closure->made_count; i++)
		if (closure->made[i] == inode)
			return true;
	return false;
}

bool closure_has(const struct name_closure *closure, const struct tux3_inode *inode)
{
	return closure_makes(closure, inode) || inode_is_there(inode);
}

static void closure_begin(struct name_closure *closure, struct tux3_inode *subject, u64 delta, u64 retired, u32 said)
{
	memset(closure, 0, offsetof(struct name_closure, name));
	closure->vol = subject->vol;
	closure->subject = subject->ino;
	closure->delta = delta;
	closure->retired = retired;
	closure->said = said;
	closure->durable = READ_ONCE(subject->vol->delta.committed);
}

/* Nothing of what the slot is of can be freed: it is that of the front delta, or of one whose inodes are all there. */
static bool slot_is_held(const struct name_closure *closure, u32 slot)
{
	return slot == (closure->delta & 1) || closure->delta - 1 > closure->retired;
}

/* ---- who has a name, now and after a crash ---- */

struct holders {
	struct tux3_inode *who[2 * NAME_HOLDERS];
	u32 count;
	bool differs;		/* a crash can leave the name to somebody else than who has it now, or to none */
	bool unknown;		/* not all of them are here */
};

static void add_holder(struct holders *holders, struct tux3_inode *inode)
{
	u32 i;

	for (i = 0; i < holders->count; i++)
		if (holders->who[i] == inode)
			return;
	holders->who[holders->count++] = inode;
}

/* One that a crash can leave it to, by its number in the change; NAME_ABSENT: to none. */
static void may_hold(struct holders *holders, const struct name_entry *entry, const struct name_change *change, u32 which)
{
	struct tux3_inode *inode = which == NAME_ABSENT ? NULL : name_holder(change, which);

	if ((inode ? inode->ino : 0) == entry->ino)
		return;
	holders->differs = true;
	if (inode)
		add_holder(holders, inode);
}

/* The one that the delta leaves it to, who may be none of those that the change knows. */
static void may_be_left_to(struct holders *holders, const struct name_entry *entry, const struct name_change *change)
{
	u32 which = name_holder_index(change, change->ino);

	if (change->ino == entry->ino)
		return;
	holders->differs = true;
	if (which != NAME_ABSENT)
		add_holder(holders, name_holder(change, which));
}

/* All of them: it is not known which. */
static void any_may_hold(struct holders *holders, const struct name_change *change)
{
	u32 i;

	holders->differs = true;
	for (i = 0; i < NAME_HOLDERS; i++)
		if (name_holder(change, i))
			add_holder(holders, name_holder(change, i));
}

/*
 * What an intent of the front delta says counts on any base.  What one of the delta before says counts on the base
 * before that; else there is what the delta has made of the name.
 */
static void find_holders(const struct name_closure *closure, const struct name_entry *entry, struct holders *holders)
{
	const struct name_change *front = entry->changes[closure->delta & 1];
	const struct name_change *back = slot_is_held(closure, ~closure->delta & 1) ? entry->changes[~closure->delta & 1] : NULL;
	const struct name_change *newest = front ? front : back;
	u32 now = name_holder_index(newest, entry->ino);

	holders->count = 0;
	holders->differs = false;
	holders->unknown = newest->many || (back && back->many) || (entry->ino && now == NAME_ABSENT);
	if (front && front->was_told && !front->flying) {
		may_hold(holders, entry, front, front->told);
	} else if ((front && front->flying) || (back && back->flying)) {
		if (front)
			any_may_hold(holders, front);
		if (back)
			any_may_hold(holders, back);
	} else if (back) {
		may_hold(holders, entry, back, back->was_told ? back->told : back->began);
		may_be_left_to(holders, entry, back);
	} else {
		may_hold(holders, entry, front, front->began);
	}
	if (now != NAME_ABSENT)
		add_holder(holders, name_holder(newest, now));
}

static bool is_holder(const struct holders *holders, const struct tux3_inode *inode)
{
	u32 i;

	for (i = 0; i < holders->count; i++)
		if (holders->who[i] == inode)
			return true;
	return false;
}

/* ---- putting it together ---- */

/*
 * Is the directory there on whichever base?  0, or -EAGAIN, as for one that was removed in the delta before, after what was in it
 * was moved out.
 */
static int look_at_dir(struct name_closure *closure, struct tux3_inode *dir)
{
	if (!closure_has(closure, dir)) {
		closure->lacks = dir;
		return -EAGAIN;
	}
	return READ_ONCE(dir->attr.nlink) || READ_ONCE(dir->names_delta) == closure->delta ? 0 : -EAGAIN;
}

static int put_name(struct name_closure *closure, struct tux3_inode *dir, struct name_entry *entry, bool again)
{
	u32 i;
	int err;

	for (i = 0; i < closure->names; i++)
		if (closure->name[i].entry == entry)
			return 0;
	err = closure->names == CLOSURE_NAMES ? -EAGAIN : look_at_dir(closure, dir);
	if (err)
		return err;
	closure->name[closure->names++] = (struct closure_name){ .dir = dir, .entry = entry, .again = again };
	return 0;
}

/* If that is to be said: a crash can leave the name as it is not now; and holder is one of it.  The lock of the names held. */
static int add_name(struct name_closure *closure, struct tux3_inode *dir, struct name_entry *entry, const struct tux3_inode *holder)
{
	struct holders holders;

	find_holders(closure, entry, &holders);
	if (!holders.differs || (!holders.unknown && !is_holder(&holders, holder)))
		return 0;
	return put_name(closure, dir, entry, false);
}

static int add_inode(struct name_closure *closure, struct tux3_inode *inode)
{
	u32 i;

	for (i = 0; i < closure->inodes; i++)
		if (closure->inode[i].inode == inode)
			return 0;
	if (closure->inodes == CLOSURE_INODES || S_ISDIR(READ_ONCE(inode->attr.mode)))
		return -EAGAIN;
	closure->inode[closure->inodes++] = (struct closure_inode){ .inode = inode };
	return 0;
}

static int look_at_tie(struct name_closure *closure, struct tux3_inode *dir, struct name_entry *entry,
		       const struct tux3_inode *inode)
{
	struct name_dir *names = name_dir_of(dir);
	int err;

	spin_lock(&names->lock);
	err = add_name(closure, dir, entry, inode);
	spin_unlock(&names->lock);
	return err;
}

static int look_at_slot(struct name_closure *closure, struct tux3_inode *inode, const struct inode_slot *slot)
{
	struct name_tie *tie;
	int err = slot->untied ? -EAGAIN : 0;
	u32 n = 0;

	if (!err && slot->tie)
		err = look_at_tie(closure, slot->tie->dir, slot->tie->entry, inode);
	for (tie = slot->ties; tie && !err; tie = tie->next) {
		if (n++ == CHANGES_LOOKED_AT)		/* it is not to take long */
			err = -EAGAIN;
		else
			err = look_at_tie(closure, tie->change->dir, tie->change->entry, inode);
	}
	return err;
}

static int look_at_ties(struct name_closure *closure, struct tux3_inode *inode)
{
	int err = 0;
	u32 slot;

	lockdep_assert_held(&inode->lock);
	if (inode->born_dir && inode->born_delta > closure->retired)
		err = look_at_tie(closure, inode->born_dir, inode->born_entry, inode);
	for (slot = 0; slot < 2 && !err; slot++)
		if (slot_is_held(closure, slot))
			err = look_at_slot(closure, inode, &inode->slot[slot]);
	return err;
}

/* A file that may not be there after a crash would be lost, and what it has replaced, too. */
static bool inode_is_sure(const struct name_closure *closure, const struct tux3_inode *inode)
{
	return inode->ino == closure->subject || inode->born_delta <= closure->durable || inode->born_ahead || !inode->attr.nlink;
}

/*
 * But for its names: is it as a crash leaves it, with the intent and those that are written before it?  Where the names that are
 * said of it do not change by that, it has the links that its own intent says: so these must be those of now.
 */
static bool inode_is_told(const struct name_closure *closure, const struct tux3_inode *inode)
{
	u32 i;

	for (i = 0; i < closure->besides; i++)
		if (closure->beside[i].ino == inode->ino)
			return closure->beside[i].changes == inode->changes &&
			       closure->beside[i].names_seq == inode->names_seq;
	return inode->ino == closure->subject || inode_is_as_told(inode, closure->durable);
}

static int look_at_inode(struct name_closure *closure, struct closure_inode *seen)
{
	struct tux3_inode *inode = seen->inode;
	int err;

	spin_lock(&inode->lock);
	seen->nlink = inode->attr.nlink;
	seen->ctime = inode->attr.ctime;
	seen->seq = inode->names_seq;
	seen->told = inode_is_told(closure, inode);
	err = inode_is_sure(closure, inode) ? look_at_ties(closure, inode) : -EAGAIN;
	spin_unlock(&inode->lock);
	return err;
}

static int look_at_name(struct name_closure *closure, struct closure_name *seen)
{
	struct name_dir *dir = name_dir_of(seen->dir);
	struct name_entry *entry = seen->entry;
	struct holders holders;
	u32 i;
	int err;

	spin_lock(&dir->lock);
	seen->ino = entry->ino;
	seen->type = entry->type;
	seen->front = entry->changes[closure->delta & 1];
	find_holders(closure, entry, &holders);
	err = entry->pins || holders.unknown ? -EAGAIN : 0;
	spin_unlock(&dir->lock);
	for (i = 0; i < holders.count && !err; i++)
		err = add_inode(closure, holders.who[i]);
	return err;
}

/* Until nothing comes that has not been looked at. */
static int look_at_all(struct name_closure *closure)
{
	u32 names = 0, inodes = 0;
	int err = 0;

	while (!err && (names < closure->names || inodes < closure->inodes)) {
		if (inodes < closure->inodes)
			err = look_at_inode(closure, &closure->inode[inodes++]);
		else
			err = look_at_name(closure, &closure->name[names++]);
	}
	return err;
}

/* ---- is it as it was seen? ---- */

static bool name_is_same(struct name_closure *closure, const struct closure_name *seen)
{
	struct name_dir *dir = name_dir_of(seen->dir);
	struct name_entry *entry = seen->entry;
	bool same;

	spin_lock(&dir->lock);
	same = !entry->pins && entry->ino == seen->ino;
	if (same)
		name_change_said(entry->changes[(closure->delta & 1) ^ !seen->front], closure->said);
	spin_unlock(&dir->lock);
	return same;
}

static bool inode_is_same(const struct closure_inode *seen)
{
	struct tux3_inode *inode = seen->inode;
	bool same;

	spin_lock(&inode->lock);
	same = inode->names_seq == seen->seq;
	spin_unlock(&inode->lock);
	return same;
}

static bool name_is_filled(struct name_closure *closure, const struct closure_name *seen)
{
	u32 i;

	for (i = 0; i < closure->inodes; i++) {
		if (closure->inode[i].inode->ino != seen->ino)
			continue;
		closure->lacks = closure->inode[i].told || seen->again ? NULL : closure->inode[i].inode;
		return closure->inode[i].told;
	}
	return !seen->ino;
}

/*
 * What was changed of a file before it got a name comes before that: or who saves a file, and syncs no more than its
 * directory, would find the old one replaced by half of the new one.
 */
static bool names_are_filled(struct name_closure *closure)
{
	u32 i;

	for (i = 0; i < closure->names; i++)
		if (!name_is_filled(closure, &closure->name[i]))
			return false;
	return true;
}

/* All was looked at once before this, so what is the same now was so together. */
static int closure_check(struct name_closure *closure)
{
	bool same = names_are_filled(closure);
	u32 i;

	for (i = 0; i < closure->names && same; i++)
		same = name_is_same(closure, &closure->name[i]);
	for (i = 0; i < closure->inodes && same; i++)
		same = inode_is_same(&closure->inode[i]);
	return same ? 0 : -EAGAIN;
}

int closure_of_file(struct name_closure *closure, struct tux3_inode *inode, u64 delta, u64 retired, u32 said)
{
	int err;

	closure_begin(closure, inode, delta, retired, said);
	err = add_inode(closure, inode);
	if (!err)
		err = look_at_all(closure);
	return err ? err : closure_check(closure);
}

/* Nothing is to be said of the name, but that the directory has changed. */
static int note_idle(struct name_closure *closure, struct name_change *change)
{
	change->said = closure->said;
	change->since = false;
	closure->idle = true;
	return 0;
}

/* Whoever has the name, if he was made with it; or NULL. */
static struct tux3_inode *made_with(const struct name_change *change)
{
	u32 which = name_holder_index(change, change->entry->ino);
	struct tux3_inode *inode = which == NAME_ABSENT ? NULL : name_holder(change, which);

	return inode && change->ino == inode->ino && READ_ONCE(inode->born_entry) == change->entry ? inode : NULL;
}

/* A directory has the name: 0 if it was made with it, and is there. */
static int look_at_subdir(struct name_closure *closure, struct name_change *change)
{
	struct tux3_inode *dir = made_with(change);
	int err = dir ? look_at_dir(closure, dir) : -EAGAIN;

	return err ? err : note_idle(closure, change);
}

/*
 * A file that was made with the name in this delta, so that no base has it, and was never synced, goes along: by an intent that
 * makes it.  0: that is so; 1: it is none.
 */
static int look_at_new_file(struct name_closure *closure, struct name_change *change)
{
	struct tux3_inode *file = change->entry->type == S_IFREG >> 12 ? made_with(change) : NULL;

	if (!file || READ_ONCE(file->born_delta) != closure->delta)
		return 1;
	if (closure_makes(closure, file))
		return note_idle(closure, change);
	if (inode_is_there(file))
		return 1;
	closure->lacks = file;
	return -EAGAIN;
}

/*
 * One that is not durable.  Where a crash leaves the name as it is there is nothing to be said of it: of one that was made and
 * removed again, the change is idle.  But who has lost a name and got it again may have been changed in between, and that comes
 * before it: so it is of the closure, and must be what he is after a crash.
 */
static int look_at_change(struct name_closure *closure, struct tux3_inode *inode, struct name_change *change)
{
	struct name_entry *entry = change->entry;
	struct holders holders;
	int is_new;

	if (entry->pins)
		return -EAGAIN;
	if (entry->ino && entry->type == S_IFDIR >> 12)
		return look_at_subdir(closure, change);
	is_new = entry->ino ? look_at_new_file(closure, change) : 1;
	if (is_new <= 0)
		return is_new;
	find_holders(closure, entry, &holders);
	if (holders.differs || entry->ino)
		return put_name(closure, inode, entry, !holders.differs);
	return note_idle(closure, change);
}

/* Changes of a directory that are not durable, from the newest on: mostly the others are older.  dir->lock held. */
struct open_walk {
	struct list_head *list, *pos;
	u32 open, looked, passed;	/* so many are left; have been */
};

static struct open_walk open_walk(struct name_dir *dir, u32 slot)
{
	lockdep_assert_held(&dir->lock);
	return (struct open_walk){ .list = &dir->changed[slot], .pos = &dir->changed[slot], .open = dir->open[slot] };
}

/* NULL: there is none left, or it would take long. */
static struct name_change *open_next(struct open_walk *walk)
{
	struct name_change *change;

	while (walk->open && walk->looked < CHANGES_LOOKED_AT && walk->passed < CHANGES_PASSED && walk->pos->prev != walk->list) {
		walk->pos = walk->pos->prev;
		change = list_entry(walk->pos, struct name_change, link);
		if (!change->durable) {
			walk->open--;
			walk->looked++;
			return change;
		}
		walk->passed++;
	}
	return NULL;
}

static int look_at_changes(struct name_closure *closure, struct tux3_inode *inode, struct name_dir *dir, u32 slot)
{
	struct open_walk walk = open_walk(dir, slot);
	struct name_change *change;
	int err = 0;

	while (!err && (change = open_next(&walk)))
		err = look_at_change(closure, inode, change);
	return !err && walk.open ? -EAGAIN : err;
}

int closure_of_dir(struct name_closure *closure, struct tux3_inode *inode, u64 delta, u64 retired, u32 said)
{
	struct name_dir *dir = name_dir_of(inode);
	int err = dir ? 0 : -EAGAIN;
	u32 slot;

	closure_begin(closure, inode, delta, retired, said);
	closure->listing = inode;
	for (slot = 0; slot < 2 && !err; slot++) {
		spin_lock(&dir->lock);
		if (slot_is_held(closure, slot))
			err = look_at_changes(closure, inode, dir, slot);
		spin_unlock(&dir->lock);
	}
	if (!err)
		err = look_at_all(closure);
	return err ? err : closure_check(closure);
}

static bool has_inode(const struct name_closure *closure, u64 ino)
{
	u32 i;

	for (i = 0; i < closure->inodes; i++)
		if (closure->inode[i].inode->ino == ino)
			return true;
	return false;
}

bool closure_has_beside(const struct name_closure *closure)
{
	u32 i;

	for (i = 0; i < closure->besides; i++)
		if (!has_inode(closure, closure->beside[i].ino))
			return false;
	return true;
}

/* ---- the intent ---- */

static u32 record_name(const struct closure_name *seen, u8 *at)
{
	u32 len = DIRENT_HEAD + seen->entry->len;
	struct record_dirent *record = log_begin_record(at, seen->ino ? TUX3_RECORD_DIRENT_SET : TUX3_RECORD_DIRENT_DELETE, len);

	record->dir = cpu_to_le64(seen->dir->ino);
	record->hash = cpu_to_le64(seen->entry->hash);
	record->entry.ino = cpu_to_le64(seen->ino);
	record->entry.type = seen->type;
	record->entry.len = seen->entry->len;
	memcpy((u8 *)record + DIRENT_HEAD, seen->entry->name, seen->entry->len);
	return log_record_size(len);
}

static u32 record_inode(const struct closure_inode *seen, u8 *at)
{
	struct intent_named *record = log_begin_record(at, TUX3_INTENT_NAMED, sizeof(*record));

	*record = (struct intent_named){
		.ino = cpu_to_le64(seen->inode->ino), .nlink = cpu_to_le32(seen->nlink),
		.ctime_sec = cpu_to_le64(seen->ctime.sec), .ctime_nsec = cpu_to_le32(seen->ctime.nsec),
	};
	return log_record_size(sizeof(*record));
}

/* Of operations on other names its times may be later: they are set forward only. */
static u32 record_dir(struct tux3_inode *dir, u8 *at)
{
	struct intent_named *record = log_begin_record(at, TUX3_INTENT_NAMED, sizeof(*record));
	struct tux3_attr attr;

	inode_get_attr(dir, &attr);
	*record = (struct intent_named){
		.ino = cpu_to_le64(dir->ino),
		.mtime_sec = cpu_to_le64(attr.mtime.sec), .mtime_nsec = cpu_to_le32(attr.mtime.nsec),
		.ctime_sec = cpu_to_le64(attr.ctime.sec), .ctime_nsec = cpu_to_le32(attr.ctime.nsec),
	};
	return log_record_size(sizeof(*record));
}

/* Has a name before this one the same directory, or is the intent of that? */
static bool dir_was_before(const struct name_closure *closure, u32 name)
{
	u32 i;

	for (i = 0; i < name; i++)
		if (closure->name[i].dir == closure->name[name].dir)
			return true;
	return closure->name[name].dir == closure->listing;
}

u32 closure_records(const struct name_closure *closure, u8 *at)
{
	u8 *begin = at;
	u32 i;

	for (i = 0; i < closure->names; i++)
		at += record_name(&closure->name[i], at);
	for (i = 0; i < closure->inodes; i++)
		if (closure->inode[i].inode->ino != closure->subject)
			at += record_inode(&closure->inode[i], at);
	for (i = 0; i < closure->names; i++)
		if (!dir_was_before(closure, i))
			at += record_dir(closure->name[i].dir, at);
	if (closure->listing)
		at += record_dir(closure->listing, at);
	return at - begin;
}

bool closure_fits(const struct name_closure *closure, const struct tux3_inode *inode)
{
	lockdep_assert_held(&inode->lock);
	return closure->inode[0].inode == inode && closure->inode[0].seq == inode->names_seq;
}

/* ---- durable ---- */

static void name_is_durable(const struct name_closure *closure, const struct closure_name *seen, u64 retired)
{
	u32 front = closure->delta & 1, newest = seen->front ? front : !front;
	struct name_change *change, *back;
	struct name_dir *dir;

	/* With a change in the front delta of then the entry is there as long as that.  Else as long as the one before. */
	if (!seen->front && closure->delta - 1 <= retired)
		return;
	dir = name_dir_of(seen->dir);
	spin_lock(&dir->lock);
	change = seen->entry->changes[newest];
	name_change_told(dir, change, newest, closure->said, seen->ino);
	/* An older change is not waited for any more, either. */
	back = seen->front && closure->delta - 1 > retired ? seen->entry->changes[!front] : NULL;
	if (back && change->durable && !back->durable) {
		back->durable = true;
		dir->open[!front]--;
	}
	spin_unlock(&dir->lock);
}

/* The times that came with what is said of the directory are those after these changes. */
static void idle_are_durable(const struct name_closure *closure, struct name_dir *dir, u32 slot)
{
	struct open_walk walk = open_walk(dir, slot);
	struct name_change *change;

	while ((change = open_next(&walk))) {
		if (change->said == closure->said && !change->since) {
			change->durable = true;
			dir->open[slot]--;
		}
	}
}

void closure_is_durable(const struct name_closure *closure, u64 retired)
{
	struct name_dir *dir;
	u32 i, slot;

	for (i = 0; i < closure->names && closure->delta > retired; i++)
		name_is_durable(closure, &closure->name[i], retired);
	if (!closure->idle || closure->delta <= retired)
		return;
	dir = name_dir_of(closure->listing);
	spin_lock(&dir->lock);
	for (slot = 0; slot < 2; slot++)
		if (slot == (closure->delta & 1) || closure->delta - 1 > retired)
			idle_are_durable(closure, dir, slot);
	spin_unlock(&dir->lock);
}
