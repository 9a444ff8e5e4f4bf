/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Extended attributes: (name with its prefix, value up to TUX3_XATTR_SIZE_MAX bytes).
 */
#ifndef TUX3_XATTR_H
#define TUX3_XATTR_H

#include "core/env.h"
#include "core/inode/inode.h"

/* Copies up to size bytes, returns the length of the value; -ENODATA: no such attribute; -EIO. */
int xattr_get(struct tux3_inode *inode, const char *name, void *value, size_t size);
#define XATTR_OP_CREATE	 1u	/* -EEXIST if it is there */
#define XATTR_OP_REPLACE 2u	/* -ENODATA if it is not */
/*
 * One delta.  value NULL: remove (-ENODATA).  -E2BIG, -ERANGE (name empty or too long), -ENOSPC.  new_mode: if not
 * NULL, the inode's mode becomes this in the same delta (ACLs).
 */
int xattr_set(struct tux3_inode *inode, const char *name, const void *value, size_t size,
	      unsigned int flags, const u32 *new_mode);
/* Calls fn for each name, in no particular order; its return other than 0 stops and is returned. */
typedef int (*xattr_fn)(void *ctx, const char *name, unsigned int len);
int xattr_list(struct tux3_inode *inode, xattr_fn fn, void *ctx);

/*
 * For intents, with the host's lock of the inode: a record for each attribute that was changed in a delta that is not committed,
 * which makes it what it is now.  Returns their bytes; to NULL: only *cost, what they are charged as, besides.  -EAGAIN: they
 * are more than room, or than a cost has room for, or one has blocks of its own.
 */
int xattr_pending(struct tux3_inode *inode, void *to, u32 room, u64 *cost);

/* Can the attributes with this hash be set and removed?  -EIO: what that takes cannot be read. */
typedef int (*xattr_look_fn)(struct tux3_inode *inode, u64 hash);
/* All that were changed in a delta that is not committed.  Outside a delta. */
int xattr_look(struct tux3_inode *inode, xattr_look_fn look);

/* Back end.  *lost: some cannot be; they are left out. */
int xattr_commit(struct tux3_inode *inode, u64 delta, xattr_look_fn look, struct io_wait *wait, bool *lost);
void xattr_done(struct tux3_inode *inode, u64 delta);
void xattr_free(struct tux3_inode *inode);
/* Are there changes of the delta in memory? */
bool xattr_has_changes(struct tux3_inode *inode, u64 delta);

#endif
