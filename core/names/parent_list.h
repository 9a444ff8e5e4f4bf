/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who the parents of an inode are: its parent pointers, and its paths.
 *
 * Locking: none of the host's is needed.  Outside a delta; may commit.
 */
#ifndef TUX3_PARENT_LIST_H
#define TUX3_PARENT_LIST_H

#include "core/env.h"

struct volume;
struct tux3_inode;

/* Where to go on: zeros to begin, else as a call has left it. */
struct parent_cursor {
	u64 hash;		/* of an item */
	u64 order;		/* of an entry in it */
};

struct parent_found {
	u64 dir;
	u32 generation;		/* of the directory */
	u32 len;
	const char *name;	/* terminated */
};

/*
 * The names of an inode, from the cursor on.  fn returns 0 to go on; 1 to stop, and the name counts as not taken; 2 to stop
 * behind it; or -errno.  Returns 0 at the end, what fn returned, or -errno.  Names that are there during the whole listing are
 * listed once, whatever comes and goes meanwhile.  What a call tells of an inode with few names is what it had at some moment of
 * the call: so one that is moved all the time is never without a name.
 */
typedef int (*parent_fn)(void *ctx, const struct parent_found *found);
int parent_iterate(struct tux3_inode *inode, struct parent_cursor *cursor, parent_fn fn, void *ctx);

/*
 * The paths of an inode, one with each call, at the beginning of text: as they were at the end of some delta, which is not older
 * than the first call.  Returns the length, 0: there are no more.  generation 0: any.  -ESTALE: there is no such inode;
 * -ENAMETOOLONG, also if the way leads round in a circle; -EUCLEAN: it does not lead to the root.
 */
int parent_path(struct volume *vol, u64 ino, u32 generation, struct parent_cursor *cursor, char *text, size_t size);

#endif
