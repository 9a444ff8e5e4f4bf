/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listing directories.  Locking: as in name.h, the host holds the directory's lock at least shared.
 */
#ifndef TUX3_NAME_LIST_H
#define TUX3_NAME_LIST_H

#include "core/env.h"
#include "core/inode/inode.h"

/*
 * Entries in cookie order from *cookie on (0: the start; "." and ".." are the host's).  fn gets the
 * cookie to go on after this entry (at most 2^63 - 1), returns 0 to go on, 1 when it has no more room (the
 * entry is then not taken), or -errno.  *cookie is left where to go on.  Returns 0 at the end of the directory, 1 if fn
 * stopped, or -errno.  Entries that are there during the whole listing are listed once.
 */
struct name_found {
	u64 ino;
	u64 next;		/* cookie after this entry */
	const char *name;
	u8 len, type;
};
typedef int (*name_fn)(void *ctx, const struct name_found *found);
int name_iterate(struct tux3_inode *dir, u64 *cookie, name_fn fn, void *ctx);

#endif
