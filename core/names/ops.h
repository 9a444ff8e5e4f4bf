/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Operations on names and attributes: each is one delta.
 *
 * The host holds the locks of the directories for writing (and of both inodes where names or link
 * counts change), has checked permissions, and calls from outside a delta.  All set the times that
 * POSIX asks for.  -ENOSPC, -EDQUOT, -EROFS, -ENOMEM, -EIO besides those named.
 */
#ifndef TUX3_OPS_H
#define TUX3_OPS_H

#include "core/env.h"
#include "core/inode/inode.h"

/*
 * A new inode with a name.  inode: fresh from inode_setup with ino from ialloc_new, attr.mode, uid, gid,
 * rdev, flags, projid filled in; times, nlink, generation are set here.  symlink: its target
 * (target_len bytes) or NULL.  -EEXIST.  On failure the host gives the number back with ialloc_free.
 */
int op_create(struct tux3_inode *dir, const char *name, unsigned int len, struct tux3_inode *inode,
	      const char *target, unsigned int target_len);
/* The same without a name (O_TMPFILE): an orphan until op_link. */
int op_tmpfile(struct tux3_inode *inode);
/* -EEXIST -EMLINK; -EXDEV: the directory is for one project, the file belongs to another. */
int op_link(struct tux3_inode *dir, const char *name, unsigned int len, struct tux3_inode *inode);
/* inode is what the name leads to, -ESTALE if not; directories must be empty: -ENOTEMPTY. */
int op_unlink(struct tux3_inode *dir, const char *name, unsigned int len, struct tux3_inode *inode);
int op_rmdir(struct tux3_inode *dir, const char *name, unsigned int len, struct tux3_inode *inode);

#define OP_RENAME_NOREPLACE	1u
#define OP_RENAME_EXCHANGE	2u
#define OP_RENAME_WHITEOUT	4u
struct op_rename {
	struct tux3_inode *old_dir, *new_dir;
	const char *old_name, *new_name;
	unsigned int old_len, new_len;
	struct tux3_inode *inode;	/* what old_name leads to */
	struct tux3_inode *target;	/* what new_name leads to, or NULL */
	struct tux3_inode *whiteout;	/* a new inode that takes old_name, or NULL */
	unsigned int flags;
};
/* -EEXIST -ENOENT -ENOTEMPTY -EISDIR -ENOTDIR -EXDEV (as op_link).  That new_dir is not below inode is the host's check. */
int op_rename(const struct op_rename *args);

#define OP_ATTR_MODE	1u
#define OP_ATTR_UID	2u
#define OP_ATTR_GID	4u
#define OP_ATTR_ATIME	8u
#define OP_ATTR_MTIME	16u
#define OP_ATTR_CTIME	32u	/* else ctime becomes now */
#define OP_ATTR_FLAGS	64u
#define OP_ATTR_PROJID	128u
#define OP_ATTR_BTIME	256u
#define OP_ATTR_OWNER	(OP_ATTR_UID | OP_ATTR_GID | OP_ATTR_PROJID)
/* Not the size: that is the host's, with data_remove and inode_change_begin in one delta. */
int op_setattr(struct tux3_inode *inode, const struct tux3_attr *attr, u32 mask);
/*
 * For a host's own operation that sets attributes too (a truncate that takes away setuid), in its delta: between
 * inode_change_begin() and _end().  Times are set only if the mask has them.  It costs attr_apply_cost() more.
 */
void attr_apply(struct tux3_attr *attr, const struct tux3_attr *new, u32 mask);
u64 attr_apply_cost(struct volume *vol, u32 mask);

/* Symlink target: copies up to size bytes, returns its length. */
int symlink_read(struct tux3_inode *inode, char *target, unsigned int size);

#endif
