// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Looking whether a change of names can be committed: name_look.h.
 *
 * A leaf that loses its last item leaves its range to one beside it, so that must be readable, too.
 */
#include "core/volume.h"
#include "core/format/name_hash.h"
#include "core/tree/tree.h"
#include "core/delta/delta.h"
#include "core/inode/inode.h"
#include "core/inode/inode_quota.h"
#include "core/names/name_internal.h"
#include "core/names/name_look.h"

void name_look_begin(struct volume *vol, struct name_looked *looked)
{
	looked->delta = tree_look_begin(vol);
}

bool name_look_holds(const struct delta_op *op, const struct name_looked *looked)
{
	return tree_look_holds(op->vol, looked->delta, op->delta);
}

static int look(const struct name_looked *looked, struct volume *vol, const struct tree_key *first, const struct tree_key *last,
		bool goes)
{
	return tree_look_for(vol, first, last, &(struct tree_look){ .delta = looked->delta, .goes = goes });
}

static int look_mark(const struct name_looked *looked, struct tux3_inode *inode)
{
	struct tree_key mark = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, inode->ino);

	return look(looked, inode->vol, &mark, &mark, true);
}

/* The attributes of a directory are looked at with each name: once in a delta is enough. */
static int look_dir(const struct name_looked *looked, struct tux3_inode *inode)
{
	struct tree_key attr = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	struct name_dir *dir = name_dir_of(inode);
	int err;

	if (likely(dir && READ_ONCE(dir->looked_delta) == looked->delta))
		return 0;
	err = look(looked, inode->vol, &attr, &attr, false);
	if (!err && dir)
		WRITE_ONCE(dir->looked_delta, looked->delta);
	return err;
}

int name_look_entry(const struct name_looked *looked, struct tux3_inode *dir, u64 hash, bool goes)
{
	struct tree_key entry = tree_key(dir->ino, TUX3_ITEM_DIRENT, hash);
	int err;

	if (likely(!looked->delta))
		return 0;
	err = look(looked, dir->vol, &entry, &entry, goes);
	if (!err)
		err = look_dir(looked, dir);
	return err ? err : inode_quota_look(dir, looked->delta);
}

int name_look_inode(const struct name_looked *looked, struct tux3_inode *inode, bool mark)
{
	struct tree_key attr = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	int err;

	if (likely(!looked->delta))
		return 0;
	err = look(looked, inode->vol, &attr, &attr, false);
	if (!err)
		err = inode_quota_look(inode, looked->delta);
	return err || !mark ? err : look_mark(looked, inode);
}

/* apply.c looks whether there is any. */
int name_look_parent(const struct name_looked *looked, struct tux3_inode *inode, u64 dir, const char *name, u32 len, bool goes)
{
	struct tree_key first = tree_key(inode->ino, TUX3_ITEM_PARENT, 0), parent = first;

	if (likely(!looked->delta))
		return 0;
	parent.offset = name_hash(inode->vol, dir, TUX3_ITEM_PARENT, name, len);
	return look(looked, inode->vol, &first, &parent, goes);
}

/* Mostly others have, in the same delta: then nobody goes down the tree. */
static bool all_looked_at(const struct name_looked *looked, struct tux3_inode *dir, u64 hash, struct tux3_inode *inode,
			  const struct name_taken *taken)
{
	struct tree_span spans[3];
	struct name_dir *names = name_dir_of(dir);

	if (!names || READ_ONCE(names->looked_delta) != looked->delta)
		return false;
	spans[0].first = spans[0].last = tree_key(dir->ino, TUX3_ITEM_DIRENT, hash);
	spans[1].first = spans[1].last = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	if (taken->name)
		spans[1].last = tree_key(inode->ino, TUX3_ITEM_PARENT, ~0ULL);
	spans[2].first = spans[2].last = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, inode->ino);
	return tree_looked_at(dir->vol, spans, taken->mark ? 3 : 2, looked->delta);
}

int name_look_all(const struct name_looked *looked, struct tux3_inode *dir, u64 hash, struct tux3_inode *inode,
		  const struct name_taken *taken)
{
	int err;

	if (likely(!looked->delta))
		return 0;
	if (likely(all_looked_at(looked, dir, hash, inode, taken))) {
		err = inode_quota_look(dir, looked->delta);
		return err ? err : inode_quota_look(inode, looked->delta);
	}
	err = name_look_entry(looked, dir, hash, taken->goes);
	if (!err)
		err = name_look_inode(looked, inode, taken->mark);
	if (err || !taken->name)
		return err;
	return name_look_parent(looked, inode, dir->ino, taken->name, taken->len, taken->goes);
}
