/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inode numbers.
 *
 * Volatile bitmaps of windows of 4096 numbers, each filled from the tree (any item counts) when it is
 * needed; those not used for long go.  Any thread, with no tree lock held, where nothing else is said.
 */
#ifndef TUX3_IALLOC_H
#define TUX3_IALLOC_H

#include "core/env.h"

struct volume;
struct tux3_inode;

#define IALLOC_WINDOWS_MAX	1024u
#define IALLOC_SETTLE_BATCH	64u
#define IALLOC_WINDOW_NUMBERS	4096u

struct ialloc {
	struct mutex lock;
	struct rb_root windows;		/* lock */
	struct list_head lru;		/* lock: windows, least recently used first */
	u64 next_dir;			/* lock: where the next directory goes */
	u64 next_file;			/* lock: where a file goes that finds no number near its directory; 0: not known yet */
	u64 count;			/* lock: windows in memory */
	u64 windows_max;		/* that many, beside those of which the tree does not know all */
	u64 held_total;			/* lock: numbers held, of all windows */
	bool unread;			/* only becomes true: a leaf was met that cannot be read */
	u64 settled[IALLOC_SETTLE_BATCH];	/* back end: numbers to be settled */
	u32 settled_count;
};

void ialloc_init(struct volume *vol);
void ialloc_exit(struct volume *vol);
/*
 * A free number for a child of dir.  Files: the next after dir, or after the last file of dir, unless that is far; then one
 * where there is room.  From the second file on dir takes some numbers at once: those of its next files cost no lock that
 * others take.  Directories: the start of a free stretch of 32, so that their files get numbers next to them.  Numbers whose
 * leaf cannot be read are passed over.  -ENOSPC when all 2^56 are used; -EIO: all but such; -ENOMEM.
 */
int ialloc_new(struct tux3_inode *dir, bool is_dir, u64 *ino);
/* What is left of these may be used again: nobody uses dir any more. */
void ialloc_give_back(struct tux3_inode *dir);
/* The number may be used again.  When it was in the tree: it has been held since before its items went from there. */
void ialloc_free(struct volume *vol, u64 ino);
/*
 * Back end.  settle: a number that was handed out is in the tree now; settle_all: at the end of a commit.  hold: it is about
 * to go from the tree, and stays in use until it is freed; tree.sem may be held.  -ENOMEM.
 */
void ialloc_settle(struct volume *vol, u64 ino);
void ialloc_settle_all(struct volume *vol);
int ialloc_hold(struct volume *vol, u64 ino);
/* For replay and check: mark as used / is it (loads the window). */
int ialloc_mark(struct volume *vol, u64 ino);
int ialloc_test(struct volume *vol, u64 ino);
/*
 * Numbers of inodes that the tree need not have, but may: what is held, but for what directories hold for their next files.
 * From `from` on as far as returned; bit n is set for number *first + n.
 */
u64 ialloc_held(struct volume *vol, u64 from, u64 *first, unsigned long *bits);

#endif
