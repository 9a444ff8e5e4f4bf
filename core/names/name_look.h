/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Can what a change of names takes be read?  A commit that finds out that it cannot stops the volume, since names and link counts
 * cannot be left out one without another.  So who is about to make the change sees to it that all of that is in memory, and stays
 * there until the change is committed:
 *
 *	as long as no node of the tree has left memory since the volume was opened
 *			he counts on what was read before
 *	from then on	he looks, outside the delta, and what he has looked at stays
 *
 *	do {
 *		name_look_begin(vol, &looked);
 *		err = ...name_look_entry(&looked, ...), others;
 *		if (!err)
 *			err = delta_enter(...);
 *	} while (!err && !name_look_holds(&op, &looked));		(else he leaves first)
 */
#ifndef TUX3_NAME_LOOK_H
#define TUX3_NAME_LOOK_H

#include "core/env.h"

struct delta_op;
struct tux3_inode;
struct volume;

struct name_looked {
	u64 delta;		/* the change is to be made in it; 0: nothing was looked at */
};

void name_look_begin(struct volume *vol, struct name_looked *looked);
/* Inside.  false: what was found out does not hold, nothing may be changed. */
bool name_look_holds(const struct delta_op *op, const struct name_looked *looked);

/*
 * 0, -EIO, -ENOMEM; 0 at once where nothing has to be looked at.
 *
 * entry: the directory's entries with this hash, and its attributes.  goes: it may be removed.
 * inode: that gets or loses a name, or is new: its attributes.  mark: it may lose its last name, or get its first.
 * parent: besides, its pointer to this name in dir.
 */
int name_look_entry(const struct name_looked *looked, struct tux3_inode *dir, u64 hash, bool goes);
int name_look_inode(const struct name_looked *looked, struct tux3_inode *inode, bool mark);
int name_look_parent(const struct name_looked *looked, struct tux3_inode *inode, u64 dir, const char *name, u32 len, bool goes);

/* All that a name of this hash in dir takes that an inode gets or loses. */
struct name_taken {
	const char *name;	/* NULL: the inode is new, so there is no place of its pointer yet */
	u32 len;
	bool goes, mark;
};
int name_look_all(const struct name_looked *looked, struct tux3_inode *dir, u64 hash, struct tux3_inode *inode,
		  const struct name_taken *taken);

#endif
