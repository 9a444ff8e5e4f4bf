/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Paths of inodes, as the newest commit has them: by their parent pointers and those of the directories above them.  No directory
 * is read.
 */
#ifndef TUX3_PATH_H
#define TUX3_PATH_H

#include "core/env.h"

struct volume;

/* A path is made from its end: what is there of it begins at text[at]. */
struct path_text {
	char *text;
	size_t at;
};
int path_prepend(struct path_text *path, const void *name, u32 len);	/* -ENAMETOOLONG */
/*
 * Go on from this directory to the root.  Else *dir is where the way ends: -ENOENT (it has no parent pointer), -EUCLEAN (one that
 * cannot be), -ENAMETOOLONG (also if it leads round in a circle), -EIO.
 */
int path_above(struct volume *vol, struct path_text *path, u64 *dir);
/* One path of an inode, as it is, in text; NULL: it has none that can be told. */
const char *path_first(struct volume *vol, u64 ino, char *text, size_t size);
/* The same at the beginning of text, which is empty else. */
void path_first_copy(struct volume *vol, u64 ino, char *text, size_t size);

/*
 * volume_warn() about an inode: "WHAT 17 (/its/path)", and what follows.  Under whatever locks: the path is left out if it cannot be
 * told without waiting or reading, or is long.
 */
__printf(4, 5) void inode_warn(struct volume *vol, const char *what, u64 ino, const char *format, ...);
void inode_tell(struct volume *vol, const char *what, u64 ino, const char *text);	/* likewise volume_tell() */

#endif
