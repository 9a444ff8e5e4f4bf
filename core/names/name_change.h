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
 * For ops.c.  prepare, outside a delta: find the entry, get memory for a change.  Then inside:
 * name_change sets it (ino 0: absent) and consumes the preparation.
 */
struct name_entry;
struct name_prepared {
	struct name_entry *entry;
	struct name_change *change;
	u64 ino;		/* what the name leads to now; 0: absent */
	u8 type;
	bool fresh;		/* set by name_change: no crash can bring back another inode by this name */
};
int name_prepare(struct tux3_inode *dir, const char *name, unsigned int len, struct name_prepared *prep);
u64 name_prepared_hash(const struct name_prepared *prep);	/* where its item is */
void name_cancel(struct tux3_inode *dir, struct name_prepared *prep);
void name_change(struct delta_op *op, struct tux3_inode *dir, struct name_prepared *prep, u64 ino, u8 type);

/*
 * For intents: the name (TUX3_NAME_MAX bytes) of an entry that was fresh when the inode got it in born, a delta whose slots
 * are not released yet, and its length.  0: it leads elsewhere now.
 */
unsigned int name_go_ahead(struct tux3_inode *dir, struct name_entry *entry, u64 ino, u64 born, char *name);
/* The same, when that intent is durable. */
void name_went_ahead(struct tux3_inode *dir, struct name_entry *entry, u64 ino, u64 born);
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
