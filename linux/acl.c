// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * POSIX ACLs.  Kept as the extended attributes system.posix_acl_access and system.posix_acl_default, with the values
 * that programs see, in the ids of the initial user namespace.  An access ACL that says no more than a mode is not
 * kept.
 *
 * The ACL and the mode that goes with it change in one delta.  The VFS caches ACLs in the inode, and holds i_rwsem
 * where they are set.
 */
#include <linux/fs.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>

#include "linux/vfs.h"
#include "core/inode/path.h"
#include "core/names/ops.h"

static const char *acl_name(int type)
{
	return type == ACL_TYPE_ACCESS ? XATTR_NAME_POSIX_ACL_ACCESS : XATTR_NAME_POSIX_ACL_DEFAULT;
}

/* The whole value, in new memory.  Its length, or -errno. */
static int acl_load(struct inode *inode, const char *name, void **value)
{
	int len, size = 0;

	*value = NULL;
	for (;;) {
		len = node_xattr_get(inode, name, *value, size);
		if (len >= 0 && *value)
			return len;
		if (len < 0 && !(len == -ERANGE && *value))
			break;
		/* -ERANGE: it has grown since we asked for its length. */
		kvfree(*value);
		*value = NULL;
		size = 0;
		if (len == -ERANGE)
			continue;
		size = max(len, 1);
		*value = kvmalloc(size, GFP_NOFS);
		if (!*value)
			return -ENOMEM;
	}
	kvfree(*value);
	*value = NULL;
	return len;
}

struct posix_acl *node_get_acl(struct inode *inode, int type, bool rcu)
{
	struct posix_acl *acl;
	void *value;
	int len;

	if (rcu)
		return ERR_PTR(-ECHILD);
	len = acl_load(inode, acl_name(type), &value);
	if (len == -ENODATA)
		return NULL;
	if (len < 0)
		return ERR_PTR(len);
	acl = posix_acl_from_xattr(&init_user_ns, value, len);
	kvfree(value);
	if (IS_ERR(acl) && PTR_ERR(acl) != -ENOMEM) {
		inode_warn(vol_of(inode), "inode", inode->i_ino, ": its %s is not valid", acl_name(type));
		return ERR_PTR(-EIO);
	}
	return acl;
}

/* acl NULL: remove it, if there is one. */
static int acl_store(struct inode *inode, int type, const struct posix_acl *acl, const u32 *new_mode)
{
	struct tux3_attr attr;
	size_t size;
	void *value;
	int err;

	if (!acl) {
		err = node_xattr_set(inode, acl_name(type), NULL, 0, 0, new_mode);
		if (err != -ENODATA || !new_mode)
			return err == -ENODATA ? 0 : err;
		attr.mode = *new_mode;
		return op_setattr(core_of(inode), &attr, OP_ATTR_MODE);
	}
	if (posix_acl_xattr_size(acl->a_count) > TUX3_XATTR_SIZE_MAX)
		return -ENOSPC;
	value = posix_acl_to_xattr(&init_user_ns, acl, &size, GFP_NOFS);
	if (IS_ERR_OR_NULL(value))
		return value ? PTR_ERR(value) : -ENOMEM;
	err = node_xattr_set(inode, acl_name(type), value, size, 0, new_mode);
	kvfree(value);
	return err;
}

int node_set_acl(struct mnt_idmap *idmap, struct dentry *dentry, struct posix_acl *acl, int type)
{
	struct inode *inode = d_inode(dentry);
	umode_t mode = inode->i_mode;
	bool with_mode = acl && type == ACL_TYPE_ACCESS;
	int err = with_mode ? posix_acl_update_mode(idmap, inode, &mode, &acl) : 0;
	u32 new_mode = mode;

	if (!err)
		err = acl_store(inode, type, acl, with_mode ? &new_mode : NULL);
	if (err)
		return err;
	set_cached_acl(inode, type, acl);
	node_pull(inode);
	return node_synced(inode);
}

int node_acl_chmod(struct inode *inode, umode_t mode)
{
	struct posix_acl *acl;
	u32 new_mode = mode;
	int err;

	if (!IS_POSIXACL(inode) || S_ISLNK(inode->i_mode))
		return 0;
	acl = get_inode_acl(inode, ACL_TYPE_ACCESS);
	if (IS_ERR_OR_NULL(acl))
		return acl == ERR_PTR(-EOPNOTSUPP) ? 0 : PTR_ERR_OR_ZERO(acl);
	err = __posix_acl_chmod(&acl, GFP_NOFS, mode);	/* a changed copy takes the place of this one */
	if (err)
		return err;
	err = acl_store(inode, ACL_TYPE_ACCESS, acl, &new_mode);
	if (!err)
		set_cached_acl(inode, ACL_TYPE_ACCESS, acl);
	posix_acl_release(acl);
	return err ? err : 1;
}

int node_init_acl(struct inode *inode, struct inode *dir)
{
	struct posix_acl *fallback, *acl;
	int err = posix_acl_create(dir, &inode->i_mode, &fallback, &acl);

	if (err)
		return err;
	core_of(inode)->attr.mode = inode->i_mode;
	if (acl)
		err = acl_store(inode, ACL_TYPE_ACCESS, acl, NULL);
	if (!err && fallback)
		err = acl_store(inode, ACL_TYPE_DEFAULT, fallback, NULL);
	if (!err) {
		set_cached_acl(inode, ACL_TYPE_ACCESS, acl);
		set_cached_acl(inode, ACL_TYPE_DEFAULT, fallback);
	}
	posix_acl_release(acl);
	posix_acl_release(fallback);
	return err;
}
