/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * POSIX ACLs (1003.1e draft 17), kept as the extended attributes system.posix_acl_access and
 * system.posix_acl_default in the form that Linux programs know: a version, then entries of tag,
 * permissions and id, sorted by tag.
 */
#include "lib.h"

#define ACL_VERSION	2u

#define ACL_USER_OBJ	0x01
#define ACL_USER	0x02
#define ACL_GROUP_OBJ	0x04
#define ACL_GROUP	0x08
#define ACL_MASK	0x10
#define ACL_OTHER	0x20
#define ACL_NO_ID	0xffffffffu

/* Anywhere in memory: FUSE hands out a value right behind its name. */
struct acl_value_entry {
	__le16 tag, perm;
	__le32 id;
} __packed;

/* One of each class entry, in this order, named ones between, a mask if there are named ones. */
static bool acl_valid(const struct acl *acl)
{
	u32 seen = 0, last = 0, i;

	for (i = 0; i < acl->count; i++) {
		const struct acl_entry *entry = &acl->entries[i];
		bool named = entry->tag == ACL_USER || entry->tag == ACL_GROUP;

		if (entry->perm & ~7u || entry->tag & (entry->tag - 1) || !entry->tag || entry->tag > ACL_OTHER)
			return false;
		if (entry->tag < last || (seen & entry->tag && !named))
			return false;
		if (named && entry->id == ACL_NO_ID)
			return false;
		seen |= entry->tag;
		last = entry->tag;
	}
	if ((seen & (ACL_USER_OBJ | ACL_GROUP_OBJ | ACL_OTHER)) != (ACL_USER_OBJ | ACL_GROUP_OBJ | ACL_OTHER))
		return false;
	return !(seen & (ACL_USER | ACL_GROUP)) || seen & ACL_MASK;
}

int acl_parse(const void *value, size_t size, struct acl **aclp)
{
	const struct acl_value_entry *from = (const void *)((const char *)value + sizeof(__le32));
	struct acl *acl;
	u32 count, i;

	if (size < sizeof(__le32) || (size - sizeof(__le32)) % sizeof(*from) || size > TUX3_XATTR_SIZE_MAX)
		return -EINVAL;
	if (get_unaligned_le32(value) != ACL_VERSION)
		return -EOPNOTSUPP;
	count = (size - sizeof(__le32)) / sizeof(*from);
	acl = kmalloc(sizeof(*acl) + count * sizeof(acl->entries[0]), GFP_KERNEL);
	if (!acl)
		return -ENOMEM;
	acl->count = count;
	for (i = 0; i < count; i++) {
		acl->entries[i].tag = get_unaligned_le16(&from[i].tag);
		acl->entries[i].perm = get_unaligned_le16(&from[i].perm);
		acl->entries[i].id = get_unaligned_le32(&from[i].id);
	}
	if (!acl_valid(acl)) {
		kfree(acl);
		return -EINVAL;
	}
	*aclp = acl;
	return 0;
}

size_t acl_size(const struct acl *acl)
{
	return sizeof(__le32) + acl->count * sizeof(struct acl_value_entry);
}

void acl_store(const struct acl *acl, void *value)
{
	struct acl_value_entry *to = (void *)((char *)value + sizeof(__le32));
	u32 i;

	put_unaligned_le32(ACL_VERSION, value);
	for (i = 0; i < acl->count; i++) {
		const struct acl_entry *entry = &acl->entries[i];
		bool named = entry->tag == ACL_USER || entry->tag == ACL_GROUP;

		put_unaligned_le16(entry->tag, &to[i].tag);
		put_unaligned_le16(entry->perm, &to[i].perm);
		put_unaligned_le32(named ? entry->id : ACL_NO_ID, &to[i].id);
	}
}

int acl_get(struct tux3_node *node, const char *name, struct acl **aclp)
{
	size_t size;
	void *value;
	int err;

	*aclp = NULL;
	err = xattr_get_alloc(node, name, &value, &size);
	if (err || !value)
		return err;
	err = acl_parse(value, size, aclp);
	kfree(value);
	return err ? -EIO : 0;
}

static const struct acl_entry *acl_find(const struct acl *acl, u16 tag)
{
	u32 i;

	for (i = 0; i < acl->count; i++)
		if (acl->entries[i].tag == tag)
			return &acl->entries[i];
	return NULL;
}

/*
 * The owner was dealt with by the caller.  A named user's entry, within the mask, decides; else any
 * entry of a group the caller is in must grant it, within the mask; in no group: others.
 */
int acl_check(const struct acl *acl, const struct tux3_attr *attr, const struct tux3_cred *cred, int mask)
{
	const struct acl_entry *limit = acl_find(acl, ACL_MASK), *other = acl_find(acl, ACL_OTHER);
	u32 most = limit ? limit->perm : 7, i;
	bool in_group = false;

	for (i = 0; i < acl->count; i++) {
		const struct acl_entry *entry = &acl->entries[i];

		if (entry->tag == ACL_USER && entry->id == cred->uid)
			return mask & ~(entry->perm & most) ? -EACCES : 0;
		if ((entry->tag == ACL_GROUP_OBJ && cred_in_group(cred, attr->gid)) ||
		    (entry->tag == ACL_GROUP && cred_in_group(cred, entry->id))) {
			in_group = true;
			if (!(mask & ~(entry->perm & most)))
				return 0;
		}
	}
	return in_group || mask & ~other->perm ? -EACCES : 0;
}

bool acl_to_mode(const struct acl *acl, u32 *mode)
{
	const struct acl_entry *limit = acl_find(acl, ACL_MASK);
	const struct acl_entry *group = limit ? limit : acl_find(acl, ACL_GROUP_OBJ);

	*mode = (*mode & ~0777u) | acl_find(acl, ACL_USER_OBJ)->perm << 6 | group->perm << 3 |
		acl_find(acl, ACL_OTHER)->perm;
	return acl->count == 3;
}

static void acl_set(struct acl *acl, u16 tag, u16 perm)
{
	u32 i;

	for (i = 0; i < acl->count; i++)
		if (acl->entries[i].tag == tag)
			acl->entries[i].perm = perm;
}

static u16 acl_group_class(const struct acl *acl)
{
	return acl_find(acl, ACL_MASK) ? ACL_MASK : ACL_GROUP_OBJ;
}

void acl_apply_mode(struct acl *acl, u32 mode)
{
	acl_set(acl, ACL_USER_OBJ, mode >> 6 & 7);
	acl_set(acl, acl_group_class(acl), mode >> 3 & 7);
	acl_set(acl, ACL_OTHER, mode & 7);
}

/* The new file gets what both the ACL and the creator's mode allow. */
bool acl_inherit(struct acl *acl, u32 *mode)
{
	u16 group = acl_group_class(acl);

	acl_set(acl, ACL_USER_OBJ, acl_find(acl, ACL_USER_OBJ)->perm & *mode >> 6);
	acl_set(acl, group, acl_find(acl, group)->perm & *mode >> 3);
	acl_set(acl, ACL_OTHER, acl_find(acl, ACL_OTHER)->perm & *mode);
	return acl_to_mode(acl, mode);
}
