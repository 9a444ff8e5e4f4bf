/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * May these credentials do this?  Owner, group, others and POSIX ACLs, as acl(5) says.
 * No credentials, or such without checks: everything is allowed that the inode's flags allow.
 *
 * What immutable and append-only mean is in one table: the VFS has the same rules, in many places, for the module.
 */
#include "lib.h"

#include <fcntl.h>
#include <unistd.h>

static const u32 use_refused[] = {
#define X(NAME, flags, what) [USE_##NAME] = flags,
	INODE_USES(X)
#undef X
};

int perm_check_flags(const struct tux3_attr *attr, enum inode_use use)
{
	return READ_ONCE(attr->flags) & use_refused[use] ? -EPERM : 0;
}

bool cred_in_group(const struct tux3_cred *cred, u32 gid)
{
	u32 i;

	if (cred->gid == gid)
		return true;
	for (i = 0; i < cred->group_count; i++)
		if (cred->groups[i] == gid)
			return true;
	return false;
}

bool cred_owns(const struct tux3_cred *cred, const struct tux3_attr *attr)
{
	return !cred_checks(cred) || cred->capable || cred->uid == attr->uid;
}

/* By owner, ACL or group, and others: 0 or -EACCES. */
static int check_bits(struct tux3_node *node, const struct tux3_attr *attr, const struct tux3_cred *cred,
		      int mask)
{
	struct acl *acl = NULL;
	u32 bits = attr->mode;
	int err;

	if (cred->uid == attr->uid) {
		bits >>= 6;
	} else {
		/* An ACL's mask is in the group bits: if they are clear only the owner's entry or others' counts. */
		if (attr->flags & TUX3_ATTR_XATTRS && attr->mode & 0070) {
			err = acl_get(node, ACL_ACCESS_NAME, &acl);
			if (err)
				return err;
		}
		if (acl) {
			err = acl_check(acl, attr, cred, mask);
			kfree(acl);
			return err;
		}
		if (cred_in_group(cred, attr->gid))
			bits >>= 3;
	}
	return mask & ~bits & 7 ? -EACCES : 0;
}

/* With node->lock: an ACL may be long, and is read from blocks that go when it is replaced. */
int perm_check(struct tux3_node *node, const struct tux3_cred *cred, int mask)
{
	struct tux3_attr attr;
	int err;

	inode_get_attr(&node->inode, &attr);
	err = mask & MAY_WRITE ? perm_check_flags(&attr, USE_WRITE) : 0;
	if (err || !cred_checks(cred))
		return err;
	err = check_bits(node, &attr, cred, mask);
	if (err != -EACCES || !cred->capable)
		return err;
	/* Who overrides permissions may search any directory, but run only what somebody may run. */
	if (mask & MAY_EXEC && !S_ISDIR(attr.mode) && !(attr.mode & 0111))
		return -EACCES;
	return 0;
}

int tux3_may_open(struct tux3_node *node, const struct tux3_cred *cred, int flags)
{
	static const int masks[] = {
		[O_RDONLY] = MAY_READ, [O_WRONLY] = MAY_WRITE, [O_RDWR] = MAY_READ | MAY_WRITE,
		[O_ACCMODE] = MAY_READ | MAY_WRITE,	/* for ioctls: as open(2) has it */
	};
	int mask = masks[flags & O_ACCMODE] | (flags & O_TRUNC ? MAY_WRITE : 0);
	u32 type = node_type(node);
	struct tux3_attr attr;
	int err;

	/* What is written to a device, fifo or socket is not in the volume. */
	if (mask & MAY_WRITE && (S_ISREG(type) || S_ISDIR(type)) && node->volume->vol->read_only)
		return -EROFS;
	down_read(&node->lock);
	err = perm_check(node, cred, mask);
	up_read(&node->lock);
	if (err || !(mask & MAY_WRITE))
		return err;
	inode_get_attr(&node->inode, &attr);
	return perm_check_flags(&attr, flags & O_APPEND && !(flags & O_TRUNC) ? USE_APPEND : USE_OVERWRITE);
}

int tux3_access(struct tux3_node *node, const struct tux3_cred *cred, int mask)
{
	int err;

	if (mask & ~(R_OK | W_OK | X_OK))
		return -EINVAL;
	if (mask & W_OK && node->volume->vol->read_only)
		return -EROFS;
	down_read(&node->lock);
	err = perm_check(node, cred, mask);
	up_read(&node->lock);
	return err;
}
