/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Extended attributes: which namespaces there are and who may do what in them.
 *
 *	user.				regular files and directories, with the file's permissions
 *	trusted.			the privileged
 *	security.			the privileged change them, anybody reads
 *	system.posix_acl_access		the owner; checked, and kept in step with the mode
 *	system.posix_acl_default	likewise, directories only
 *
 * Setting one takes node->lock for writing, since an ACL and the mode are changed as one; getting one takes it for
 * reading, since a long value has blocks of its own that are freed when it is replaced.
 */
#include "lib.h"
#include "core/names/ops.h"

#include <sys/xattr.h>

/* NS_UNNAMED: a prefix, and nothing after it. */
enum namespace { NS_USER, NS_TRUSTED, NS_SECURITY, NS_ACL_ACCESS, NS_ACL_DEFAULT, NS_UNNAMED, NS_NONE };

static enum namespace namespace_of(const char *name)
{
	static const char *const prefixes[] = { [NS_USER] = "user.", [NS_TRUSTED] = "trusted.", [NS_SECURITY] = "security." };

	for (int ns = NS_USER; ns <= NS_SECURITY; ns++) {
		size_t len = strlen(prefixes[ns]);

		if (!strncmp(name, prefixes[ns], len))
			return name[len] ? ns : NS_UNNAMED;
	}
	if (!strcmp(name, ACL_ACCESS_NAME))
		return NS_ACL_ACCESS;
	return strcmp(name, ACL_DEFAULT_NAME) ? NS_NONE : NS_ACL_DEFAULT;
}

/* Can there be attributes of that name?  As the VFS says it, which leaves that to us through FUSE. */
static int namespace_check(enum namespace ns)
{
	if (ns == NS_UNNAMED)
		return -EINVAL;
	return ns == NS_NONE ? -EOPNOTSUPP : 0;
}

/* Does this kind of file have attributes of this kind? */
static int kind_check(struct tux3_node *node, enum namespace ns)
{
	u32 type = node_type(node);
	int err = namespace_check(ns);

	if (err)
		return err;
	switch (ns) {
	case NS_USER:
		return S_ISREG(type) || S_ISDIR(type) ? 0 : -EPERM;
	case NS_ACL_ACCESS:
		return S_ISLNK(type) ? -EOPNOTSUPP : 0;
	case NS_ACL_DEFAULT:
		return S_ISDIR(type) ? 0 : -EACCES;
	default:
		return 0;
	}
}

static int may_change(struct tux3_node *node, const struct tux3_cred *cred, enum namespace ns)
{
	struct tux3_attr attr;

	inode_get_attr(&node->inode, &attr);
	if (perm_check_flags(&attr, USE_ATTRIBUTE))
		return -EPERM;
	if (!cred_checks(cred))
		return 0;
	switch (ns) {
	case NS_USER:
		/* In a sticky directory only the owner may leave notes. */
		if (S_ISDIR(attr.mode) && attr.mode & S_ISVTX && !cred_owns(cred, &attr))
			return -EPERM;
		return perm_check(node, cred, MAY_WRITE);
	case NS_ACL_ACCESS:
	case NS_ACL_DEFAULT:
		return cred_owns(cred, &attr) ? 0 : -EPERM;
	default:
		return cred->capable ? 0 : -EPERM;
	}
}

int xattr_get_alloc(struct tux3_node *node, const char *name, void **value, size_t *size)
{
	struct tux3_attr attr;
	int len;

	*value = NULL;
	*size = 0;
	inode_get_attr(&node->inode, &attr);
	if (!(attr.flags & TUX3_ATTR_XATTRS))
		return 0;
	for (;;) {
		len = xattr_get(&node->inode, name, *value, *size);
		if (len < 0 || (*value && len <= *size))
			break;
		kfree(*value);
		*size = len;
		*value = kmalloc(len + 1, GFP_KERNEL);	/* also if it is empty */
		if (!*value)
			return -ENOMEM;
	}
	if (len >= 0) {
		*size = len;
		return 0;
	}
	kfree(*value);
	*value = NULL;
	*size = 0;
	return len == -ENODATA ? 0 : len;
}

ssize_t tux3_getxattr(struct tux3_node *node, const char *name, void *value, size_t size)
{
	struct tux3_attr attr;
	int len = namespace_check(namespace_of(name));

	if (len)
		return len;
	inode_get_attr(&node->inode, &attr);
	if (!(attr.flags & TUX3_ATTR_XATTRS))
		return -ENODATA;
	down_read(&node->lock);
	len = xattr_get(&node->inode, name, value, size);
	up_read(&node->lock);
	return len > 0 && size && len > size ? -ERANGE : len;
}

/* An ACL that says no more than a mode is not stored: the mode says it. */
static int set_acl(struct tux3_node *node, const struct tux3_cred *cred, const char *name, enum namespace ns,
		   const void *value, size_t size, unsigned int flags)
{
	struct acl *acl = NULL;
	struct tux3_attr attr;
	bool same = false;
	int err = 0;

	if (value && size > sizeof(__le32))
		err = acl_parse(value, size, &acl);
	else if (value && (size < sizeof(__le32) || get_unaligned_le32(value) != 2))
		err = -EINVAL;
	if (err)
		return err;
	inode_get_attr(&node->inode, &attr);
	if (acl && ns == NS_ACL_ACCESS) {
		same = acl_to_mode(acl, &attr.mode);
		if (cred && !cred->capable && !cred_in_group(cred, attr.gid))
			attr.mode &= ~S_ISGID;
	}
	if (acl && !same) {
		err = xattr_set(&node->inode, name, value, size, flags, ns == NS_ACL_ACCESS ? &attr.mode : NULL);
	} else {
		err = xattr_set(&node->inode, name, NULL, 0, 0, same ? &attr.mode : NULL);
		if (err == -ENODATA && same)
			err = op_setattr(&node->inode, &attr, OP_ATTR_MODE);
		else if (err == -ENODATA)
			err = 0;
	}
	kfree(acl);
	return err;
}

static int change_xattr(struct tux3_node *node, const struct tux3_cred *cred, const char *name,
			const void *value, size_t size, unsigned int flags)
{
	enum namespace ns = namespace_of(name);
	int err = node->volume->vol->read_only ? -EROFS : kind_check(node, ns);

	if (err)
		return err;
	down_write(&node->lock);
	err = may_change(node, cred, ns);
	if (!err && (ns == NS_ACL_ACCESS || ns == NS_ACL_DEFAULT))
		err = set_acl(node, cred, name, ns, value, size, flags);
	else if (!err)
		err = xattr_set(&node->inode, name, value, size, flags, NULL);
	if (ns == NS_SECURITY)
		WRITE_ONCE(node->no_capability, false);
	up_write(&node->lock);
	return err;
}

int tux3_setxattr(struct tux3_node *node, const struct tux3_cred *cred, const char *name,
		  const void *value, size_t size, int flags)
{
	unsigned int how = 0;

	if (flags & ~(XATTR_CREATE | XATTR_REPLACE) || (!value && size))
		return -EINVAL;
	if (size > TUX3_XATTR_SIZE_MAX)
		return -E2BIG;
	if (strlen(name) > 255)
		return -ERANGE;
	if (flags & XATTR_CREATE)
		how |= XATTR_OP_CREATE;
	if (flags & XATTR_REPLACE)
		how |= XATTR_OP_REPLACE;
	return change_xattr(node, cred, name, value ? value : "", size, how);
}

int tux3_removexattr(struct tux3_node *node, const struct tux3_cred *cred, const char *name)
{
	return change_xattr(node, cred, name, NULL, 0, 0);
}

struct name_list {
	char *list;
	size_t size, used;
};

static int list_name(void *ctx, const char *name, unsigned int len)
{
	struct name_list *names = ctx;

	if (names->size && names->used + len + 1 > names->size)
		return -ERANGE;
	if (names->size) {
		memcpy(names->list + names->used, name, len);
		names->list[names->used + len] = 0;
	}
	names->used += len + 1;
	return 0;
}

ssize_t tux3_listxattr(struct tux3_node *node, char *list, size_t size)
{
	struct name_list names = { .list = list, .size = size };
	struct tux3_attr attr;
	int err;

	inode_get_attr(&node->inode, &attr);
	if (!(attr.flags & TUX3_ATTR_XATTRS))
		return 0;
	down_read(&node->lock);
	err = xattr_list(&node->inode, list_name, &names);
	up_read(&node->lock);
	return err ? err : (ssize_t)names.used;
}
