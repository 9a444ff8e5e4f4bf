/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What goes with a changed name, for intents (core/intent/intent.h).
 *
 * An intent must leave each file with as many names as its link count says, on whichever base it is carried out.  So
 * it may not say that a name leads to a file without saying what became of whom it led to before, and where the
 * file's other names are: and so on.  A closure is such a set: names, and the inodes that have them now, or may have
 * them by the newest durable delta, the one under way, or an intent.  From name to inode and back it is found by ties
 * (struct name_tie).  Mostly it is small: a file that was moved away and the one that came in its place; the old file
 * and the new one after a save.
 *
 * Of what belongs to it all is as at one moment: operations keep the names that they change pinned until they are
 * over, and what was seen is looked at again at the end.
 */
#ifndef TUX3_NAME_CLOSURE_H
#define TUX3_NAME_CLOSURE_H

#include "core/env.h"
#include "core/inode/inode.h"

#define CLOSURE_NAMES	8u
#define CLOSURE_INODES	8u	/* without directories */
#define CLOSURE_BESIDE	2u	/* files */
#define CLOSURE_DIRS	4u	/* that are new, and written beside, too */
/* Of records, at most. */
#define CLOSURE_BYTES	(CLOSURE_NAMES * (48 + TUX3_NAME_MAX) + (CLOSURE_INODES + CLOSURE_NAMES + 1) * 48)

struct name_closure {
	struct volume *vol;
	u64 delta, retired, durable;	/* the front delta; the newest whose inodes are let go; and that is durable */
	u64 subject;			/* the inode that the intent is of */
	struct tux3_inode *listing;	/* it, if it is a directory; or NULL */
	bool idle;			/* of that: there are changed names that need not be said */
	u32 said;			/* its number */
	u32 names, inodes;
	struct closure_name {
		struct tux3_inode *dir;
		struct name_entry *entry;
		u64 ino;		/* 0: absent */
		u8 type;
		bool front;		/* it was changed in the front delta, not only in the one before */
		bool again;		/* whoever has it lost it and got it again, and no crash leaves it to another */
	} name[CLOSURE_NAMES];
	struct closure_inode {
		struct tux3_inode *inode;
		u32 nlink, seq;
		struct tux3_time ctime;
		bool told;		/* but for its names it is as a crash leaves it */
	} inode[CLOSURE_INODES];
	/*
	 * Files whose intents are written before this one, together with it, and have all up to that of their changes; and their
	 * links as they were by that change of their names.
	 */
	u32 besides;
	struct {
		u64 ino;
		u32 changes, names_seq;
	} beside[CLOSURE_BESIDE];
	/* Likewise what is new, with the name that it was made with, and there by this; so many of them are directories. */
	u32 made_count, dirs;
	struct tux3_inode *made[CLOSURE_DIRS + CLOSURE_BESIDE];
	/* NULL, or with -EAGAIN one whose intent is to be among them; as long as intent.capture is held. */
	struct tux3_inode *lacks;
};

/*
 * Inside the front delta, with what keeps others from being retired (intent.capture).  Of a file, or of what has
 * changed in a directory; subject is it.  0; -EAGAIN: it is too large, a directory is part of it, it is being changed
 * just now, or what is of it may not be there after a crash.  Of a file whose names are as a crash leaves them there are no names,
 * but it: so it is after a save, when it is synced again.  Of a directory that is so, too, but its times are said.  What was
 * made in it, a directory or a file that was never synced, has none of its names: that has an intent of its own, which says so.
 */
int closure_of_file(struct name_closure *closure, struct tux3_inode *inode, u64 delta, u64 retired, u32 said);
int closure_of_dir(struct name_closure *closure, struct tux3_inode *dir, u64 delta, u64 retired, u32 said);
/* Before: one is written beside. */
void closure_add_beside(struct name_closure *closure, u64 ino, u32 changes, u32 names_seq);
/* The same for what is new. */
void closure_add_made(struct name_closure *closure, struct tux3_inode *inode);
bool closure_makes(const struct name_closure *closure, const struct tux3_inode *inode);
/* That, or it was there before. */
bool closure_has(const struct name_closure *closure, const struct tux3_inode *inode);
/* Are all of these in it?  What has become of the names of one that is not, nothing says. */
bool closure_has_beside(const struct name_closure *closure);
/* Its records, at most CLOSURE_BYTES; returns how many bytes. */
u32 closure_records(const struct name_closure *closure, u8 *at);
/* Its intent is durable, and the same keeps others from being retired again. */
void closure_is_durable(const struct name_closure *closure, u64 retired);
/* Of the file that it is of, no name has changed since.  inode->lock held. */
bool closure_fits(const struct name_closure *closure, const struct tux3_inode *inode);

#endif
