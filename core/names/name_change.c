// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Changes of names: made by the front end in a delta, logged and forgotten by the back end.
 *
 * What commits names, and name_done, run in the back end.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/log/log.h"
#include "core/log/prefetch.h"
#include "core/delta/delta.h"
#include "core/inode/inode.h"
#include "core/names/name_change.h"
#include "core/names/name_internal.h"

#define NAMES_AHEAD	64u	/* changes whose leaves are read together */
#define TIES_LOOKED_AT	64u

/*
 * Names with one hash share an item: is there room for one more?  Those count that may be there while a delta is applied:
 * also what was removed or not committed yet.  committed: when what was removed is gone, as after a commit.  All names with this
 * hash are in memory when one is; dir->lock held.
 */
static bool chain_has_room(struct volume *vol, struct name_dir *dir, struct name_entry *new, bool committed)
{
	struct name_entry *entry;
	u32 used = 0;

	for (entry = name_entry_from(dir, new->hash); entry && entry->hash == new->hash; entry = name_entry_next(entry))
		if (entry == new || entry->ino || (!committed && !name_entry_is_clean(entry)))
			used += sizeof(struct disk_dirent) + entry->len;
	return used <= TUX3_ITEM_MAX(vol->block_size);
}

/* A preparation begins or ends. */
static void entry_pin(struct name_dir *dir, struct name_entry *entry, int pins)
{
	lockdep_assert_held(&dir->lock);
	entry->pins += pins;
	if (IS_ENABLED(CONFIG_PROVE_LOCKING))
		dir->pins += pins;
}

/* The host's lock of the directory keeps others out.  So there is no other preparation but that of a rename's first name. */
static void verify_pins(struct tux3_inode *inode)
{
	struct name_dir *dir = name_dir_of(inode);
	u32 pins;

	if (!IS_ENABLED(CONFIG_PROVE_LOCKING) || !dir)
		return;
	spin_lock(&dir->lock);
	pins = dir->pins;
	spin_unlock(&dir->lock);
	if (pins > 1)
		volume_inconsistent(inode->vol, "%u names of directory %llu are pinned between operations", pins,
				    (unsigned long long)inode->ino);
}

static void prep_end(struct name_prepared *prep)
{
	kfree(prep->change);
	kfree(prep->ties);
	prep->entry = NULL;
	prep->change = NULL;
	prep->ties = NULL;
}

void name_release(struct tux3_inode *inode, struct name_prepared *prep)
{
	if (!prep->entry)
		return;
	spin_lock(&name_dir_of(inode)->lock);
	entry_pin(name_dir_of(inode), prep->entry, -1);
	spin_unlock(&name_dir_of(inode)->lock);
	prep_end(prep);
}

int name_prepare(struct tux3_inode *inode, const char *name, unsigned int len, enum name_will will, struct name_prepared *prep)
{
	struct name_change *change = kzalloc(sizeof(*change), GFP_NOFS);
	bool committed = false, helps, ties;
	struct name_entry *entry;
	int err;

	if (!change)
		return -ENOMEM;
	verify_pins(inode);
	for (;;) {
		entry = name_entry_get(inode, name, len, true);
		if (IS_ERR(entry)) {
			kfree(change);
			return PTR_ERR(entry);
		}
		if (entry->ino || chain_has_room(inode->vol, name_dir_of(inode), entry, false))
			break;
		/* What was removed may make room when it is gone. */
		helps = !committed && chain_has_room(inode->vol, name_dir_of(inode), entry, true);
		spin_unlock(&name_dir_of(inode)->lock);
		err = helps ? delta_commit(inode->vol) : -ENOSPC;
		if (err) {
			kfree(change);
			return err;
		}
		committed = true;
	}
	entry_pin(name_dir_of(inode), entry, 1);
	prep->entry = entry;
	prep->change = change;
	prep->ties = NULL;
	prep->will = will;
	prep->ino = entry->ino;
	prep->type = entry->type;
	/* What is made under a name that nobody had is known by that alone.  With a change the back end may write tree_ino. */
	ties = will == NAME_CHANGES || (will == NAME_IS_MADE && (entry->changes[0] || entry->changes[1] || entry->tree_ino));
	spin_unlock(&name_dir_of(inode)->lock);
	if (likely(!ties))
		return 0;
	prep->ties = kzalloc(sizeof(*prep->ties), GFP_NOFS);
	if (prep->ties)
		return 0;
	name_release(inode, prep);
	return -ENOMEM;
}

u64 name_prepared_hash(const struct name_prepared *prep)
{
	return prep->entry->hash;
}

static struct name_change **entry_slot(struct name_dir *dir, struct name_entry *entry, u64 delta)
{
	lockdep_assert_held(&dir->lock);
	return &entry->changes[delta & 1];
}

/* ---- who has a name ---- */

/*
 * A crash can leave the name to him whom the newest durable intent names, or else to who had it when the delta began;
 * and to who has it now.  The room of another holder is for the next one.  While an intent is under way nobody
 * knows.  NAME_NOBODY: there is none, or room enough.
 */
static u32 holder_unneeded(const struct name_change *change, const struct tux3_inode *to)
{
	u32 keep = change->was_told ? change->told : change->began, i;

	if (change->flying)
		return NAME_NOBODY;
	for (i = 0; i < NAME_HOLDERS; i++)
		if (!name_holder(change, i) || name_holder(change, i) == to)
			return NAME_NOBODY;
	return keep ? 0 : 1;
}

static void holder_set(struct name_change *change, u32 which, struct tux3_inode *inode)
{
	if (which)
		change->ties->other = inode;
	else
		change->holder = inode;
}

/* He does not know of it any more.  The ties of one that was in many operations of the delta are not looked through: false. */
static bool tie_remove(struct tux3_inode *inode, u64 delta, struct name_change *change, u32 which)
{
	struct inode_slot *slot;
	struct name_tie **at;
	bool found = true;
	u32 n = 0;

	spin_lock(&inode->lock);
	slot = inode_slot_of(inode, delta);
	if (slot->tie == change) {
		slot->tie = NULL;
	} else if (!slot->untied) {
		for (at = &slot->ties; *at && *at != &change->ties->tie[which] && n < TIES_LOOKED_AT; at = &(*at)->next)
			n++;
		found = *at == &change->ties->tie[which];
		if (found)
			*at = (*at)->next;
	}
	spin_unlock(&inode->lock);
	return found;
}

/*
 * dir->lock held, but not all the time: his own lock is not taken under it.  The entry is prepared, so nobody looks at who has it
 * meanwhile.
 */
static void make_room(struct name_dir *dir, struct name_change *change, u64 delta, const struct tux3_inode *to)
{
	u32 which = to ? holder_unneeded(change, to) : NAME_NOBODY;
	bool gone = true;

	lockdep_assert_held(&dir->lock);
	if (likely(which == NAME_NOBODY))
		return;
	if (change->tied & 1 << which) {
		spin_unlock(&dir->lock);
		gone = tie_remove(name_holder(change, which), delta, change, which);
		spin_lock(&dir->lock);
	}
	if (!gone)
		return;
	change->tied &= ~(1 << which);
	holder_set(change, which, NULL);
}

/* dir->lock held; which of them he is.  NAME_NOBODY: he was one before, or there is no room. */
static u32 holder_add(struct name_change *change, struct name_prepared *prep, struct tux3_inode *inode)
{
	u32 i;

	for (i = 0; i < NAME_HOLDERS; i++)
		if (name_holder(change, i) == inode)
			return NAME_NOBODY;
	for (i = 0; i < NAME_HOLDERS && name_holder(change, i); i++)
		;
	if (i == NAME_HOLDERS || (i && !change->ties && !prep->ties)) {
		change->many = true;
		return NAME_NOBODY;
	}
	holder_set(change, i, inode);
	return i;
}

/* From one inode to another. */
static void change_note_holders(struct name_change *change, struct name_prepared *prep, struct tux3_inode *from,
				struct tux3_inode *to)
{
	prep->lost = prep->got = NAME_NOBODY;
	if (!change->ties) {
		change->ties = prep->ties;
		prep->ties = NULL;
	}
	if (!change->entry) {			/* the first change of the delta */
		change->began = NAME_ABSENT;
		if (from)
			change->began = prep->lost = holder_add(change, prep, from);
	}
	if (to)
		prep->got = holder_add(change, prep, to);
	if (prep->will == NAME_IS_MADE && prep->fresh)
		prep->got = NAME_NOBODY;	/* it has that in born_entry */
	if (prep->lost != NAME_NOBODY)
		change->tied |= 1 << prep->lost;
	if (prep->got != NAME_NOBODY)
		change->tied |= 1 << prep->got;
	prep->many = change->many;
	prep->changed = change;
}

static void tie_inode(const struct delta_op *op, struct tux3_inode *inode, struct name_change *change, u32 which)
{
	struct inode_slot *slot = inode_slot_of(inode, op->delta);
	struct name_tie *tie;

	if (which == NAME_NOBODY)
		return;
	if (!slot->tie) {
		slot->tie = change;
	} else if (change->ties) {
		tie = &change->ties->tie[which];
		tie->change = change;
		tie->next = slot->ties;
		slot->ties = tie;
	} else {
		slot->untied = true;
	}
}

void name_tie_lost(const struct delta_op *op, struct tux3_inode *inode, const struct name_prepared *prep)
{
	tie_inode(op, inode, prep->changed, prep->lost);
}

void name_tie_got(const struct delta_op *op, struct tux3_inode *inode, const struct name_prepared *prep)
{
	tie_inode(op, inode, prep->changed, prep->got);
	if (unlikely(prep->many))
		inode_slot_of(inode, op->delta)->untied = true;
}

void name_change(struct delta_op *op, struct tux3_inode *inode, struct name_prepared *prep, struct tux3_inode *from,
		 struct tux3_inode *to)
{
	struct name_dir *dir = name_dir_of(inode);
	struct name_entry *entry = prep->entry;
	struct name_change **slot, *change;
	bool over;

	inode_mark_dirty(op, inode, INODE_DIRTY_NAMES);
	spin_lock(&dir->lock);
	slot = entry_slot(dir, entry, op->delta);
	if (*slot)
		make_room(dir, *slot, op->delta, to);
	/* With a change in the back delta it is not known here what the durable tree has: the back end writes tree_ino. */
	prep->fresh = !entry->changes[~op->delta & 1] && !entry->tree_ino && !(*slot && ((*slot)->flying || (*slot)->was_told));
	change = *slot ? *slot : prep->change;
	change_note_holders(change, prep, from, to);
	if (!*slot) {
		*slot = change;
		prep->change = NULL;
		change->entry = entry;
		change->dir = inode;
		list_add_tail(&change->link, &dir->changed[op->delta & 1]);
		dir->open[op->delta & 1]++;
		delta_add_change(op, 0);
	}
	if (change->durable) {		/* that was another change, and is looked for among the newest */
		change->durable = false;
		dir->open[op->delta & 1]++;
		list_move_tail(&change->link, &dir->changed[op->delta & 1]);
	}
	change->ino = entry->ino = to ? to->ino : 0;
	change->type = entry->type = to ? (READ_ONCE(to->attr.mode) & S_IFMT) >> 12 : 0;
	change->since = true;
	/* What is new is not looked at by way of its name before it went ahead itself, so this need not wait for the rest. */
	over = prep->will == NAME_IS_MADE && prep->fresh;
	if (over)
		entry_pin(dir, entry, -1);
	spin_unlock(&dir->lock);
	if (over)
		prep_end(prep);
}

/* ---- for intents ---- */

void name_change_said(struct name_change *change, u32 said)
{
	change->said = said;
	change->flying = true;
	change->since = false;
}

void name_change_told(struct name_dir *dir, struct name_change *change, u32 slot, u32 said, u64 ino)
{
	lockdep_assert_held(&dir->lock);
	if (change->said != said)	/* a newer one is under way */
		return;
	change->flying = false;
	change->was_told = true;
	change->told = name_holder_index(change, ino);
	/* Who has lost it since and got it again may have been changed in between. */
	if (change->ino == ino && !change->since && !change->durable) {
		change->durable = true;
		dir->open[slot]--;
	}
}

unsigned int name_go_ahead(struct tux3_inode *inode, struct name_entry *entry, u64 ino, u64 born, u32 said, char *name)
{
	struct name_dir *dir = name_dir_of(inode);
	struct name_change *change;
	unsigned int len = 0;

	spin_lock(&dir->lock);
	change = *entry_slot(dir, entry, born);
	if (entry->ino == ino && change && name_holder_index(change, ino) != NAME_ABSENT) {
		name_change_said(change, said);
		len = entry->len;
		memcpy(name, entry->name, len);
	}
	spin_unlock(&dir->lock);
	return len;
}

void name_went_ahead(struct tux3_inode *inode, struct name_entry *entry, u64 ino, u64 born, u32 said)
{
	struct name_dir *dir = name_dir_of(inode);
	struct name_change *change;

	spin_lock(&dir->lock);
	change = *entry_slot(dir, entry, born);
	if (change)
		name_change_told(dir, change, born & 1, said, ino);
	spin_unlock(&dir->lock);
}

bool name_all_ahead(struct tux3_inode *inode)
{
	struct name_dir *dir = name_dir_of(inode);
	bool all;

	if (!dir)
		return false;
	spin_lock(&dir->lock);
	all = !dir->open[0] && !dir->open[1];
	spin_unlock(&dir->lock);
	return all;
}

/* ---- back end ---- */

static int name_log_change(struct tux3_inode *inode, struct name_change *change)
{
	struct name_entry *entry = change->entry;
	struct record_dirent record = {
		.dir = cpu_to_le64(inode->ino),
		.hash = cpu_to_le64(entry->hash),
		.entry = { .ino = cpu_to_le64(change->ino), .type = change->type, .len = entry->len },
	};
	int err;

	if (change->ino == entry->tree_ino && change->type == entry->tree_type) {
		if (!change->ino)
			count_add(inode->vol, TUX3_COUNT_NAMES_VANISHED, 1);
		return 0;
	}
	err = log_record(inode->vol, change->ino ? TUX3_RECORD_DIRENT_SET : TUX3_RECORD_DIRENT_DELETE, &record,
			 offsetof(struct record_dirent, entry) + sizeof(record.entry), entry->name, entry->len);
	entry->tree_ino = change->ino;
	entry->tree_type = change->type;
	return err;
}

/* The inode that got the name or has lost it; 0: the change is none. */
static u64 name_change_ino(const struct name_change *change)
{
	return change->ino ? change->ino : change->entry->tree_ino;
}

/* The item that the change is about, and the parent pointer's. */
static void name_change_keys(struct tux3_inode *inode, const struct name_change *change, struct tree_key *dirent,
			     struct tree_key *parent)
{
	*dirent = tree_key(inode->ino, TUX3_ITEM_DIRENT, change->entry->hash);
	*parent = tree_key(name_change_ino(change), TUX3_ITEM_PARENT, 0);
}

/* Read what the next changes, from this one on, need: parent pointers and entries. */
static void name_read_ahead(struct tux3_inode *inode, struct list_head *pos, struct list_head *list)
{
	struct prefetch *ahead = inode->vol->ahead;
	struct tree_key dirent, parent;
	unsigned int n;

	for (n = 0; n < NAMES_AHEAD && pos != list; n++, pos = pos->next) {
		struct name_change *change = list_entry(pos, struct name_change, link);

		if (!name_change_ino(change))
			continue;
		name_change_keys(inode, change, &dirent, &parent);
		prefetch_add_key(ahead, &parent);
		prefetch_add_key(ahead, &dirent);
	}
	prefetch_run(ahead);
}

/* With the edit lock: is all in memory that the change needs?  The edits that follow begin where this has gone. */
static bool name_change_reach(struct tux3_inode *inode, const struct name_change *change)
{
	struct tree_key dirent, parent;

	name_change_keys(inode, change, &dirent, &parent);
	return !name_change_ino(change) ||
	       (tree_edit_reach(inode->vol, &parent) && tree_edit_reach(inode->vol, &dirent));
}

struct name_cursor name_cursor(struct tux3_inode *inode, u64 delta)
{
	struct list_head *list = &name_dir_of(inode)->changed[delta & 1];

	return (struct name_cursor){ inode, list->next, list };
}

/*
 * With the edit lock, which others may have meanwhile.  Mostly all is in memory; where something is not, the lock is given away
 * and the next changes are read ahead together.
 */
static int name_commit_next(struct name_cursor *cursor)
{
	struct name_change *change = list_entry(cursor->pos, struct name_change, link);
	struct tux3_inode *inode = cursor->dir;
	struct volume *vol = inode->vol;
	bool there;

	/* What comes next is brought into the CPU's cache meanwhile. */
	prefetch(cursor->pos->next);
	there = name_change_reach(inode, change);
	if (cursor->pos->next != cursor->end)
		prefetch(list_entry(cursor->pos->next, struct name_change, link)->entry);
	if (!there) {
		tree_edit_end(vol);
		name_read_ahead(inode, cursor->pos, cursor->end);
		tree_edit_begin(vol);
	}
	cursor->pos = cursor->pos->next;
	return name_log_change(inode, change);
}

bool name_cursor_is_at(const struct name_cursor *cursor, u64 ino)
{
	struct list_head *pos = cursor->pos;

	if (pos == cursor->end)
		return false;
	if (!ino || name_change_ino(list_entry(pos, struct name_change, link)) == ino)
		return true;
	pos = pos->next;
	return pos != cursor->end && name_change_ino(list_entry(pos, struct name_change, link)) == ino;
}

int name_commit(struct name_cursor *cursor, u64 ino)
{
	struct volume *vol = cursor->dir->vol;
	unsigned int n = 0;
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	lockdep_assert_held_write(&vol->tree.sem);
	while (!err && name_cursor_is_at(cursor, ino)) {
		if (++n % NAMES_AHEAD == 0) {		/* let others read the tree, too */
			tree_edit_end(vol);
			cond_resched();
			tree_edit_begin(vol);
		}
		err = name_commit_next(cursor);
	}
	return err;
}

void name_vanish(struct tux3_inode *inode, u64 delta)
{
	struct name_dir *dir = name_dir_of(inode);
	struct name_change *change;
	u64 count = 0;

	lockdep_assert_held(&inode->vol->delta.commit_mutex);
	if (!dir)
		return;
	list_for_each_entry(change, &dir->changed[delta & 1], link)
		count++;
	count_add(inode->vol, TUX3_COUNT_NAMES_VANISHED, count);
}

void name_done(struct tux3_inode *inode, u64 delta)
{
	struct name_dir *dir = name_dir_of(inode);
	struct list_head *list = &dir->changed[delta & 1];
	unsigned int n = 0;

	lockdep_assert_held(&inode->vol->delta.commit_mutex);
	spin_lock(&dir->lock);
	while (!list_empty(list)) {
		struct name_change *change = list_first_entry(list, struct name_change, link);
		struct name_entry *entry = change->entry;

		list_del(&change->link);
		dir->open[delta & 1] -= !change->durable;
		*entry_slot(dir, entry, delta) = NULL;
		kfree(change->ties);
		kfree(change);
		if (!entry->ino && name_entry_is_clean(entry))
			name_entry_drop(inode->vol, dir, entry);
		if (!(++n % 64)) {		/* let lookups in */
			spin_unlock(&dir->lock);
			cond_resched();
			spin_lock(&dir->lock);
		}
	}
	spin_unlock(&dir->lock);
}
