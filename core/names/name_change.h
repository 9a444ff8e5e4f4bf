/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Changes of names.  Locking: as in name.h, the host holds the directory's lock exclusively; the back end needs none.
 */
#ifndef TUX3_NAME_CHANGE_H
#define TUX3_NAME_CHANGE_H

#include "core/env.h"
#include "core/inode/inode.h"

struct delta_op;

/*
 * For ops.c.  prepare, outside a delta: find the entry, get memory for a change.  Then inside: name_change sets it.  name_release
 * ends the preparation: when all that the operation changes is as it is to be, or nothing is.
 */
struct name_entry;
enum name_will {
	NAME_GOES,		/* it will be absent, and was its inode's only one */
	NAME_IS_MADE,		/* it will be that of an inode that is made with it */
	NAME_CHANGES,		/* anything else */
};

struct name_prepared {
	struct name_entry *entry;
	struct name_change *change;
	struct name_ties *ties;
	enum name_will will;
	u64 ino;		/* what the name leads to now; 0: absent */
	u8 type;
	/* Set by name_change: */
	bool fresh;		/* no crash can bring back another inode by this name */
	struct name_change *changed;
	u32 lost, got;		/* which of its holders has to know that he lost it or got it, for name_tie(); or NAME_NOBODY */
	bool many;		/* who has got it is no holder */
};
#define NAME_NOBODY	4u
int name_prepare(struct tux3_inode *dir, const char *name, unsigned int len, enum name_will will, struct name_prepared *prep);
u64 name_prepared_hash(const struct name_prepared *prep);	/* where its item is */
void name_release(struct tux3_inode *dir, struct name_prepared *prep);
/* From one inode to another; NULL: it was absent, or will be. */
void name_change(struct delta_op *op, struct tux3_inode *dir, struct name_prepared *prep, struct tux3_inode *from,
		 struct tux3_inode *to);
/* The inode has lost it, or got it: inode->lock held. */
void name_tie_lost(const struct delta_op *op, struct tux3_inode *inode, const struct name_prepared *prep);
void name_tie_got(const struct delta_op *op, struct tux3_inode *inode, const struct name_prepared *prep);

/*
 * For the intent of number said: the name (TUX3_NAME_MAX bytes) of an entry that was fresh when the inode got it in born, a delta
 * whose slots are not released yet, and its length.  0: it leads elsewhere now.
 */
unsigned int name_go_ahead(struct tux3_inode *dir, struct name_entry *entry, u64 ino, u64 born, u32 said, char *name);
/* The same, when that intent is durable. */
void name_went_ahead(struct tux3_inode *dir, struct name_entry *entry, u64 ino, u64 born, u32 said);
/* Of all names in dir that have changed since its newest durable delta, is it so? */
bool name_all_ahead(struct tux3_inode *dir);

/*
 * Back end.  The names of dir that changed in delta, one after the other; with the edit lock, which others may have meanwhile.
 * name_commit logs those that are left; with an ino only those at the cursor that are about this inode, if it comes next.
 */
struct name_cursor {
	struct tux3_inode *dir;
	struct list_head *pos, *end;
};
struct name_cursor name_cursor(struct tux3_inode *dir, u64 delta);
/*
 * Is there one left to log?  ino, unless it is 0: one that is about this inode, the first or, as when a name was changed into
 * another, the second.  Without the edit lock, too.
 */
bool name_cursor_is_at(const struct name_cursor *cursor, u64 ino);
int name_commit(struct name_cursor *cursor, u64 ino);
/* The directory was made and removed in delta, and so was every name that was ever in it: counts them. */
void name_vanish(struct tux3_inode *dir, u64 delta);
/* Delta is durable or given up: forget its changes. */
void name_done(struct tux3_inode *dir, u64 delta);

#endif
