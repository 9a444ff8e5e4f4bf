// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Extended attributes: the namespaces user., trusted. and security.  The core keeps them under their whole names.
 * ACLs are attributes too, but the VFS brings them to acl.c.  The VFS has checked who may do what.
 *
 * A long value has blocks of its own, which are freed when it is replaced: nobody may be reading it then.  The VFS
 * holds i_rwsem for setting, but getting happens with it and without it.  So there are locks of our own for this, a few
 * for all inodes of a volume (tux3_sb.xattr_locks), below i_rwsem and around everything of the core; nobody holds two.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/posix_acl_xattr.h>
#include <linux/security.h>
#include <linux/xattr.h>

#include "linux/vfs.h"

static_assert(XATTR_OP_CREATE == XATTR_CREATE && XATTR_OP_REPLACE == XATTR_REPLACE);

static struct rw_semaphore *xattr_lock(struct inode *inode)
{
	struct tux3_sb *sbi = sb_of(inode->i_sb);

	return &sbi->xattr_locks[hash_ptr(inode, ilog2(ARRAY_SIZE(sbi->xattr_locks)))];
}

static bool has_xattrs(struct inode *inode)
{
	return READ_ONCE(core_of(inode)->attr.flags) & TUX3_ATTR_XATTRS;
}

int node_xattr_get(struct inode *inode, const char *name, void *value, size_t size)
{
	int len;

	if (!has_xattrs(inode))
		return -ENODATA;
	down_read(xattr_lock(inode));
	len = xattr_get(core_of(inode), name, value, size);
	up_read(xattr_lock(inode));
	return len > 0 && size && len > size ? -ERANGE : len;
}

int node_xattr_set(struct inode *inode, const char *name, const void *value, size_t size, unsigned int flags,
		   const u32 *new_mode)
{
	int err;

	down_write(xattr_lock(inode));
	err = xattr_set(core_of(inode), name, value, size, flags, new_mode);
	up_write(xattr_lock(inode));
	return err;
}

/* ---- what the VFS calls: names without their prefix ---- */

static int handler_get(const struct xattr_handler *handler, struct dentry *dentry, struct inode *inode,
		       const char *name, void *value, size_t size)
{
	return node_xattr_get(inode, xattr_full_name(handler, name), value, size);
}

static int handler_set(const struct xattr_handler *handler, struct mnt_idmap *idmap, struct dentry *dentry,
		       struct inode *inode, const char *name, const void *value, size_t size, int flags)
{
	int err = node_xattr_set(inode, xattr_full_name(handler, name), value, size, flags, NULL);

	if (err)
		return err;
	node_pull(inode);
	return node_synced(inode);
}

static const struct xattr_handler user_handler = {
	.prefix = XATTR_USER_PREFIX,
	.get = handler_get,
	.set = handler_set,
};

static const struct xattr_handler trusted_handler = {
	.prefix = XATTR_TRUSTED_PREFIX,
	.get = handler_get,
	.set = handler_set,
};

static const struct xattr_handler security_handler = {
	.prefix = XATTR_SECURITY_PREFIX,
	.get = handler_get,
	.set = handler_set,
};

const struct xattr_handler * const xattr_handlers[] = {
	&user_handler,
	&trusted_handler,
	&security_handler,
	NULL,
};

/* ---- listing ---- */

struct name_list {
	struct inode *inode;
	char *list;
	size_t size, used;
	bool trusted;		/* the caller may see these */
};

static bool has_prefix(const char *name, unsigned int len, const char *prefix)
{
	return len > strlen(prefix) && !memcmp(name, prefix, strlen(prefix));
}

static bool is_listed(const struct name_list *names, const char *name, unsigned int len)
{
	if (has_prefix(name, len, XATTR_TRUSTED_PREFIX))
		return names->trusted;
	if (has_prefix(name, len, XATTR_SYSTEM_PREFIX))
		return IS_POSIXACL(names->inode);
	return has_prefix(name, len, XATTR_USER_PREFIX) || has_prefix(name, len, XATTR_SECURITY_PREFIX);
}

static int list_name(void *ctx, const char *name, unsigned int len)
{
	struct name_list *names = ctx;

	if (!is_listed(names, name, len))
		return 0;
	if (names->size) {
		if (names->used + len + 1 > names->size)
			return -ERANGE;
		memcpy(names->list + names->used, name, len);
		names->list[names->used + len] = 0;
	}
	names->used += len + 1;
	return 0;
}

ssize_t node_listxattr(struct dentry *dentry, char *list, size_t size)
{
	struct inode *inode = d_inode(dentry);
	struct name_list names = { .inode = inode, .list = list, .size = size };
	int err;

	if (!has_xattrs(inode))
		return 0;
	names.trusted = ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
	down_read(xattr_lock(inode));
	err = xattr_list(core_of(inode), list_name, &names);
	up_read(xattr_lock(inode));
	return err ? err : (ssize_t)names.used;
}

/* ---- security labels of new files ---- */

static int init_labels(struct inode *inode, const struct xattr *labels, void *ctx)
{
	const struct xattr *label;
	int err = 0;

	for (label = labels; label->name && !err; label++) {
		char *name = kasprintf(GFP_NOFS, XATTR_SECURITY_PREFIX "%s", label->name);

		if (!name)
			return -ENOMEM;
		err = node_xattr_set(inode, name, label->value, label->value_len, 0, NULL);
		kfree(name);
	}
	return err;
}

int node_init_security(struct inode *inode, struct inode *dir, const struct qstr *name)
{
	return security_inode_init_security(inode, dir, name, init_labels, NULL);
}
