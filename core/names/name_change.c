// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Changes of names: made by the front end in a delta, logged and forgotten by the back end.
 *
 * Only name_commit and name_done run in the back end.
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

/*
 * Names with one hash share an item: is there room for one more?  Those count that may be there while a delta is applied:
 * also what was removed or not committed yet.  All names with this hash are in memory when one is; dir->lock held.
 */
static bool chain_has_room(struct volume *vol, struct name_dir *dir, struct name_entry *new)
{
	struct name_entry *entry;
	u32 used = 0;

	for (entry = name_entry_from(dir, new->hash); entry && entry->hash == new->hash; entry = name_entry_next(entry))
		if (entry == new || entry->ino || !name_entry_is_clean(entry))
			used += sizeof(struct disk_dirent) + entry->len;
	return used <= TUX3_ITEM_MAX(vol->block_size);
}

int name_prepare(struct tux3_inode *inode, const char *name, unsigned int len, struct name_prepared *prep)
{
	struct name_change *change = kzalloc(sizeof(*change), GFP_NOFS);
	bool committed = false;
	struct name_entry *entry;
	int err = 0;

	if (!change)
		return -ENOMEM;
	for (;;) {
		entry = name_entry_get(inode, name, len, true);
		if (IS_ERR(entry)) {
			kfree(change);
			return PTR_ERR(entry);
		}
		if (entry->ino || chain_has_room(inode->vol, name_dir_of(inode), entry))
			break;
		spin_unlock(&name_dir_of(inode)->lock);
		/* What was removed may make room when it is gone. */
		err = committed ? -ENOSPC : delta_commit(inode->vol);
		if (err) {
			kfree(change);
			return err;
		}
		committed = true;
	}
	entry->pins++;
	prep->entry = entry;
	prep->change = change;
	prep->ino = entry->ino;
	prep->type = entry->type;
	spin_unlock(&name_dir_of(inode)->lock);
	return 0;
}

void name_cancel(struct tux3_inode *inode, struct name_prepared *prep)
{
	if (!prep->entry)
		return;
	spin_lock(&name_dir_of(inode)->lock);
	prep->entry->pins--;
	spin_unlock(&name_dir_of(inode)->lock);
	kfree(prep->change);
	prep->entry = NULL;
	prep->change = NULL;
}

void name_change(struct delta_op *op, struct tux3_inode *inode, struct name_prepared *prep, u64 ino, u8 type)
{
	struct name_dir *dir = name_dir_of(inode);
	struct name_entry *entry = prep->entry;
	struct name_change **slot = &entry->changes[op->delta & 1];

	inode_mark_dirty(op, inode, INODE_DIRTY_NAMES);
	spin_lock(&dir->lock);
	if (!*slot) {
		*slot = prep->change;
		prep->change = NULL;
		(*slot)->entry = entry;
		list_add_tail(&(*slot)->link, &dir->changed[op->delta & 1]);
		atomic64_inc(&inode->vol->delta.changes[op->delta & 1]);
	}
	(*slot)->ino = ino;
	(*slot)->type = type;
	entry->ino = ino;
	entry->type = type;
	entry->pins--;
	spin_unlock(&dir->lock);
	kfree(prep->change);
	prep->entry = NULL;
	prep->change = NULL;
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

/* Read what a batch of changes, from this one on, needs: parent pointers and entries.  Returns the end of the batch. */
static struct list_head *name_read_ahead(struct tux3_inode *inode, struct list_head *from, struct list_head *list)
{
	struct prefetch *ahead = inode->vol->ahead;
	struct list_head *end = from, *pos;
	unsigned int n;

	for (n = 0; n < NAMES_AHEAD && end != list; n++, end = end->next) {
		struct name_change *change = list_entry(end, struct name_change, link);
		struct tree_key key = tree_key(change->ino ? change->ino : change->entry->tree_ino, TUX3_ITEM_PARENT, 0);

		if (change->ino || change->entry->tree_ino)
			prefetch_add_key(ahead, &key);
	}
	for (pos = from; pos != end; pos = pos->next) {
		struct name_change *change = list_entry(pos, struct name_change, link);
		struct tree_key key = tree_key(inode->ino, TUX3_ITEM_DIRENT, change->entry->hash);

		if (change->ino || change->entry->tree_ino)
			prefetch_add_key(ahead, &key);
	}
	prefetch_run(ahead);
	return end;
}

int name_commit(struct tux3_inode *inode, u64 delta)
{
	struct name_dir *dir = name_dir_of(inode);
	struct list_head *list = &dir->changed[delta & 1], *pos = list->next;
	struct volume *vol = inode->vol;
	int err = 0;

	/* Without the edit lock, which then is taken for the batch. */
	while (pos != list && !err) {
		struct list_head *end = name_read_ahead(inode, pos, list);

		tree_edit_begin(vol);
		for (; pos != end && !err; pos = pos->next)
			err = name_log_change(inode, list_entry(pos, struct name_change, link));
		tree_edit_end(vol);
	}
	return err;
}

void name_done(struct tux3_inode *inode, u64 delta)
{
	struct name_dir *dir = name_dir_of(inode);
	struct list_head *list = &dir->changed[delta & 1];
	unsigned int n = 0;

	spin_lock(&dir->lock);
	while (!list_empty(list)) {
		struct name_change *change = list_first_entry(list, struct name_change, link);
		struct name_entry *entry = change->entry;

		list_del(&change->link);
		entry->changes[delta & 1] = NULL;
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
