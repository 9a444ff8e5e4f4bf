// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Looking whether a change of names can be committed: name_look.h.
 *
 * A leaf that loses its last item leaves its range to the one before, so that must be readable, too.  Nothing is held from here to
 * the commit: what is in memory now may leave it, so this is a hint.  But what is met here is mostly bad for long.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/inode/inode.h"
#include "core/names/name_look.h"

int name_look_item(struct volume *vol, const struct tree_key *key)
{
	struct tree_key at = *key;
	int err = tree_look(vol, key);

	if (err)
		return err;
	if (!at.offset--)
		at.type--;
	return tree_look_before(vol, &at);
}

int name_look_entry(struct tux3_inode *dir, u64 hash)
{
	struct tree_key attr = tree_key(dir->ino, TUX3_ITEM_ATTR, 0), entry = tree_key(dir->ino, TUX3_ITEM_DIRENT, hash);
	int err = tree_look(dir->vol, &attr);

	return err ? err : name_look_item(dir->vol, &entry);
}

int name_look_inode(struct tux3_inode *inode)
{
	struct tree_key attr = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	struct tree_key orphan = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, inode->ino);
	int err = tree_look(inode->vol, &attr);

	if (err || (READ_ONCE(inode->attr.nlink) > 1 && !S_ISDIR(READ_ONCE(inode->attr.mode))))
		return err;
	return name_look_item(inode->vol, &orphan);
}
