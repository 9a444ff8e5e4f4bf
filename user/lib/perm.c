/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * May these credentials do this?  Owner, group, others and POSIX ACLs, as acl(5) says.
 * No credentials, or such without checks: everything is allowed that the inode's flags allow.
 */
#include "lib.h"

#include <unistd.h>

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
	if (mask & MAY_WRITE && attr.flags & TUX3_ATTR_IMMUTABLE)
		return -EPERM;
	if (!cred_checks(cred))
		return 0;
	err = check_bits(node, &attr, cred, mask);
	if (err != -EACCES || !cred->capable)
		return err;
	/* Who overrides permissions may search any directory, but run only what somebody may run. */
	if (mask & MAY_EXEC && !S_ISDIR(attr.mode) && !(attr.mode & 0111))
		return -EACCES;
	return 0;
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
