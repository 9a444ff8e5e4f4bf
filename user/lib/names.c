/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names: looking them up, making and removing them, listing directories.
 *
 * A directory's lock is held exclusively around a change and shared around a look.  Whoever removes a
 * directory holds its lock too (both taken by inode number, rename.c), so that nothing is made in
 * it meanwhile; one that was removed has a link count of 0.  Link counts of other inodes
 * change with link_lock held.
 */
#include "lib.h"
#include "core/names/name_list.h"
#include "core/inode/ialloc.h"
#include "core/inode/inode_quota.h"
#include "core/inode/path.h"
#include "core/names/ops.h"

#include <stdlib.h>

#define LIST_BYTES	32768	/* of names copied from a directory at once */

bool name_is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

int name_check(const char *name, unsigned int *len)
{
	size_t size = strlen(name);

	if (!size)
		return -ENOENT;
	if (size > TUX3_NAME_MAX)
		return -ENAMETOOLONG;
	if (memchr(name, '/', size))
		return -EINVAL;
	*len = size;
	return 0;
}

/* ---- lookup ---- */

int names_lookup_locked(struct tux3_node *dir, const char *name, unsigned int len, struct tux3_node **node)
{
	u64 ino;
	u8 type;
	int err = name_lookup(&dir->inode, name, len, &ino, &type);

	if (err)
		return err;
	err = icache_get(dir->volume, ino, node);
	if (err == -ESTALE) {
		inode_warn(dir->volume->vol, "directory", dir->inode.ino, ": \"%s\" leads to inode %llu, which does not exist", name,
			   (unsigned long long)ino);
		err = -EIO;
	}
	return err;
}

static u64 parent_of(struct tux3_node *dir)
{
	u64 parent;

	spin_lock(&dir->inode.lock);
	parent = dir->inode.parent;
	spin_unlock(&dir->inode.lock);
	return parent;
}

static int lookup_dots(struct tux3_node *dir, const char *name, struct tux3_node **node)
{
	int err;

	if (!name[1]) {
		tux3_node_ref(dir, 1);
		*node = dir;
		return 0;
	}
	err = icache_get(dir->volume, parent_of(dir), node);
	return err == -ESTALE ? -ENOENT : err;
}

int tux3_lookup(struct tux3_node *dir, const struct tux3_cred *cred, const char *name, struct tux3_node **node)
{
	unsigned int len;
	int err;

	if (!S_ISDIR(node_type(dir)))
		return -ENOTDIR;
	err = name_check(name, &len);
	if (err)
		return err;
	down_read(&dir->lock);
	err = perm_check(dir, cred, MAY_EXEC);
	if (!err && name_is_dots(name))
		err = lookup_dots(dir, name, node);
	else if (!err)
		err = names_lookup_locked(dir, name, len, node);
	up_read(&dir->lock);
	return err;
}

/* ---- what is allowed; with dir->lock ---- */

int names_may_add(struct tux3_node *dir, const struct tux3_cred *cred)
{
	if (dir->volume->vol->read_only)
		return -EROFS;
	if (!node_nlink(dir))
		return -ENOENT;
	return perm_check(dir, cred, MAY_WRITE | MAY_EXEC);
}

int names_may_remove(struct tux3_node *dir, const struct tux3_cred *cred, struct tux3_node *victim)
{
	struct tux3_attr attr, victim_attr;
	int err;

	if (dir->volume->vol->read_only)
		return -EROFS;
	err = perm_check(dir, cred, MAY_WRITE | MAY_EXEC);
	if (err)
		return err;
	inode_get_attr(&dir->inode, &attr);
	inode_get_attr(&victim->inode, &victim_attr);
	err = perm_check_flags(&attr, USE_REMOVE_FROM);
	if (!err)
		err = perm_check_flags(&victim_attr, USE_NAME);
	if (err)
		return err;
	if (attr.mode & S_ISVTX && !cred_owns(cred, &attr) && !cred_owns(cred, &victim_attr))
		return -EPERM;
	return 0;
}

/* ---- making ---- */

static int store_acl(struct tux3_node *node, const char *name, const struct acl *acl)
{
	void *value = kmalloc(acl_size(acl), GFP_KERNEL);
	int err;

	if (!value)
		return -ENOMEM;
	acl_store(acl, value);
	err = xattr_set(&node->inode, name, value, acl_size(acl), 0, NULL);
	kfree(value);
	return err;
}

/*
 * What the directory's default ACL means for the new file.  The attributes are set before the file gets its
 * name: should a commit come between, it is an orphan, and no crash can show it without its ACL.
 */
static int inherit_acls(struct tux3_node *node, const struct acl *from)
{
	struct acl *acl = kmemdup(from, sizeof(*from) + from->count * sizeof(from->entries[0]), GFP_KERNEL);
	int err = 0;

	if (!acl)
		return -ENOMEM;
	if (!acl_inherit(acl, &node->inode.attr.mode))
		err = store_acl(node, ACL_ACCESS_NAME, acl);
	if (!err && S_ISDIR(node_type(node)))
		err = store_acl(node, ACL_DEFAULT_NAME, from);
	kfree(acl);
	return err;
}

/* Owner, group and mode of a new file, umask aside. */
static void init_owner(struct tux3_node *dir, const struct tux3_cred *cred, struct tux3_attr *attr)
{
	struct tux3_attr above;

	inode_get_attr(&dir->inode, &above);
	attr->uid = cred ? cred->uid : 0;
	attr->gid = cred ? cred->gid : 0;
	attr_inherit(attr, &dir->inode);
	if (above.mode & S_ISGID) {
		attr->gid = above.gid;
		if (S_ISDIR(attr->mode))
			attr->mode |= S_ISGID;
		else if ((attr->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && cred_checks(cred) &&
			 !cred->capable && !cred_in_group(cred, above.gid))
			attr->mode &= ~S_ISGID;
	}
}

static int new_node(struct tux3_node *dir, u32 mode, struct tux3_node **nodep)
{
	struct volume *vol = dir->volume->vol;
	u64 ino;
	int err = ialloc_new(&dir->inode, S_ISDIR(mode), &ino);

	if (err)
		return err;
	err = icache_new(dir->volume, ino, nodep);
	if (err) {
		ialloc_free(vol, ino);
		return err;
	}
	(*nodep)->inode.attr.mode = mode;
	(*nodep)->type = mode & S_IFMT;
	return 0;
}

/* With dir->lock.  The caller gives it a name, then calls icache_new_done; or names_make_failed. */
int names_make(struct tux3_node *dir, const struct tux3_cred *cred, u32 mode, u32 rdev_major, u32 rdev_minor,
	       struct tux3_node **nodep)
{
	struct acl *acl = NULL;
	struct tux3_node *node;
	int err;

	if (cred && (cred->uid == ID_NONE || cred->gid == ID_NONE))
		return -EINVAL;
	err = new_node(dir, mode, &node);
	if (err)
		return err;
	init_owner(dir, cred, &node->inode.attr);
	node->inode.attr.rdev_major = rdev_major;
	node->inode.attr.rdev_minor = rdev_minor;
	if (!S_ISLNK(mode))
		err = acl_get(dir, ACL_DEFAULT_NAME, &acl);
	if (acl) {
		err = inherit_acls(node, acl);
		kfree(acl);
	} else if (!S_ISLNK(mode) && cred) {
		node->inode.attr.mode &= ~(cred->umask & 0777);
	}
	if (err)
		names_make_failed(node);
	else
		*nodep = node;
	return err;
}

void names_make_failed(struct tux3_node *node)
{
	struct volume *vol = node->volume->vol;
	u64 ino = node->inode.ino;
	struct tux3_attr attr;

	inode_get_attr(&node->inode, &attr);
	if (attr.change) {	/* also if that delta is committed by now, and nothing pins the node */
		/* A delta knows it already, by its ACL: it is deleted like any file without a name. */
		inode_quota_unused(&node->inode);
		icache_links_changed(node);
		icache_new_done(node);
		tux3_node_put(node, 1);
		return;
	}
	icache_new_failed(node);
	ialloc_free(vol, ino);
}

static int create(struct tux3_node *dir, const struct tux3_cred *cred, const char *name, u32 mode,
		  u32 rdev_major, u32 rdev_minor, const char *target, struct tux3_node **nodep)
{
	struct tux3_node *node;
	unsigned int len;
	u64 ino;
	u8 type;
	int err;

	if (!S_ISDIR(node_type(dir)))
		return -ENOTDIR;
	err = name_is_dots(name) ? -EEXIST : name_check(name, &len);
	if (err)
		return err;
	down_write(&dir->lock);
	err = names_may_add(dir, cred);
	if (err) {
		/* That it is there already is the better answer, for who may know. */
		if (err != -ENOENT && !perm_check(dir, cred, MAY_EXEC) && !name_lookup(&dir->inode, name, len, &ino, &type))
			err = -EEXIST;
		goto out;
	}
	err = names_make(dir, cred, mode, rdev_major, rdev_minor, &node);
	if (err)
		goto out;
	err = op_create(&dir->inode, name, len, &node->inode, target, target ? strlen(target) : 0);
	if (err)
		names_make_failed(node);
	else
		icache_new_done(node);
out:
	up_write(&dir->lock);
	if (err)
		return err;
	if (nodep)
		*nodep = node;
	else
		tux3_node_put(node, 1);
	return 0;
}

int tux3_mknod(struct tux3_node *dir, const struct tux3_cred *cred, const char *name, uint32_t mode,
	       uint32_t rdev_major, uint32_t rdev_minor, struct tux3_node **node)
{
	if (!(mode & S_IFMT))
		mode |= S_IFREG;
	mode &= S_IFMT | 07777;
	switch (mode & S_IFMT) {
	case S_IFCHR:
	case S_IFBLK:
		if (cred_checks(cred) && !cred->capable && !(S_ISCHR(mode) && !rdev_major && !rdev_minor))
			return -EPERM;
		break;
	case S_IFREG:
	case S_IFDIR:
	case S_IFIFO:
	case S_IFSOCK:
		rdev_major = rdev_minor = 0;
		break;
	default:
		return -EINVAL;
	}
	return create(dir, cred, name, mode, rdev_major, rdev_minor, NULL, node);
}

int tux3_symlink(struct tux3_node *dir, const struct tux3_cred *cred, const char *name, const char *target,
		 struct tux3_node **node)
{
	return target ? create(dir, cred, name, S_IFLNK | 0777, 0, 0, target, node) : -EINVAL;
}

int tux3_tmpfile(struct tux3_node *dir, const struct tux3_cred *cred, uint32_t mode, struct tux3_node **nodep)
{
	struct tux3_node *node;
	int err;

	if (!S_ISDIR(node_type(dir)))
		return -ENOTDIR;
	down_read(&dir->lock);
	err = names_may_add(dir, cred);
	if (!err)
		err = names_make(dir, cred, S_IFREG | (mode & 07777), 0, 0, &node);
	if (!err) {
		err = op_tmpfile(&node->inode);
		if (err)
			names_make_failed(node);
	}
	if (!err) {
		node->linkable = true;
		icache_links_changed(node);
		icache_new_done(node);
		*nodep = node;
	}
	up_read(&dir->lock);
	return err;
}

int tux3_readlink(struct tux3_node *node, char *target, size_t size)
{
	int len;

	if (!S_ISLNK(node_type(node)))
		return -EINVAL;
	len = symlink_read(&node->inode, target, min_t(size_t, size, UINT32_MAX));
	if (len < 0)
		return len;
	if (!len)		/* symlink(2) makes none: it is damaged */
		return -EIO;
	node_touch_atime(node);
	return min_t(size_t, len, size);
}

int tux3_link(struct tux3_node *node, const struct tux3_cred *cred, struct tux3_node *dir, const char *name)
{
	struct tux3_attr attr;
	unsigned int len;
	int err;

	if (!S_ISDIR(node_type(dir)))
		return -ENOTDIR;
	if (node->volume != dir->volume)
		return -EXDEV;
	err = name_is_dots(name) ? -EEXIST : name_check(name, &len);
	if (!err && S_ISDIR(node_type(node)))
		err = -EPERM;
	if (err)
		return err;
	down_write(&dir->lock);
	mutex_lock(&node->link_lock);
	err = names_may_add(dir, cred);
	inode_get_attr(&node->inode, &attr);
	if (!err)
		err = perm_check_flags(&attr, USE_NAME);
	if (!err && !attr.nlink && !node->linkable)
		err = -ENOENT;
	if (!err)
		err = op_link(&dir->inode, name, len, &node->inode);
	if (!err) {
		node->linkable = false;
		icache_links_changed(node);
	}
	mutex_unlock(&node->link_lock);
	up_write(&dir->lock);
	return err;
}

/* ---- removing files; directories: rename.c ---- */

int tux3_unlink(struct tux3_node *dir, const struct tux3_cred *cred, const char *name)
{
	struct tux3_node *node = NULL;
	unsigned int len;
	int err;

	if (!S_ISDIR(node_type(dir)))
		return -ENOTDIR;
	err = name_is_dots(name) ? -EISDIR : name_check(name, &len);
	if (err)
		return err;
	down_write(&dir->lock);
	err = perm_check(dir, cred, MAY_EXEC);
	if (!err)
		err = names_lookup_locked(dir, name, len, &node);
	if (!err) {
		err = names_may_remove(dir, cred, node);
		if (!err && S_ISDIR(node_type(node)))
			err = -EISDIR;
		if (!err) {
			mutex_lock(&node->link_lock);
			err = op_unlink(&dir->inode, name, len, &node->inode);
			if (!err)
				icache_links_changed(node);
			mutex_unlock(&node->link_lock);
		}
	}
	up_write(&dir->lock);
	if (node)
		tux3_node_put(node, 1);
	return err;
}

/* ---- listing ---- */

/*
 * Entries are copied while the directory is locked and handed to the caller's function afterwards,
 * so that this may look up what it is told about.  Cookies: 0 ".", 1 "..", then those of the core, plus 2.
 */
#define COOKIE_FIRST 2

struct list_entry {
	u64 ino, next;
	u8 type, len;
	char name[];
};

struct list_buffer {
	u32 used;
	_Alignas(8) char bytes[LIST_BYTES];
};

static u32 entry_bytes(u32 len)
{
	return round_up(sizeof(struct list_entry) + len + 1, 8);
}

static int list_one(void *ctx, const struct name_found *found)
{
	struct list_buffer *buffer = ctx;
	struct list_entry *entry = (void *)(buffer->bytes + buffer->used);

	if (buffer->used + entry_bytes(found->len) > LIST_BYTES)
		return 1;
	entry->ino = found->ino;
	entry->next = found->next;
	entry->type = found->type;
	entry->len = found->len;
	memcpy(entry->name, found->name, found->len);
	entry->name[found->len] = 0;
	buffer->used += entry_bytes(found->len);
	return 0;
}

static int tell(tux3_dirent_fn fn, void *ctx, uint64_t *cookie, u64 ino, u64 next, const char *name, u8 type)
{
	struct tux3_dirent dirent = { .ino = ino, .next = next, .name = name, .type = type };
	int result = fn(ctx, &dirent);

	if (!result || result == 2)
		*cookie = next;
	return result;
}

static int tell_buffer(struct list_buffer *buffer, tux3_dirent_fn fn, void *ctx, uint64_t *cookie)
{
	u32 at, result;

	for (at = 0; at < buffer->used;) {
		struct list_entry *entry = (void *)(buffer->bytes + at);

		result = tell(fn, ctx, cookie, entry->ino, entry->next + COOKIE_FIRST, entry->name, entry->type);
		if (result)
			return result;
		at += entry_bytes(entry->len);
	}
	return 0;
}

static int tell_dots(struct tux3_node *dir, tux3_dirent_fn fn, void *ctx, uint64_t *cookie)
{
	int result = 0;

	if (*cookie == 0)
		result = tell(fn, ctx, cookie, dir->inode.ino, 1, ".", S_IFDIR >> 12);
	if (!result && *cookie == 1)
		result = tell(fn, ctx, cookie, parent_of(dir), COOKIE_FIRST, "..", S_IFDIR >> 12);
	return result;
}

int tux3_readdir(struct tux3_node *dir, uint64_t *cookie, tux3_dirent_fn fn, void *ctx)
{
	struct list_buffer *buffer;
	int result, more = 1;

	if (!S_ISDIR(node_type(dir)))
		return -ENOTDIR;
	result = tell_dots(dir, fn, ctx, cookie);
	if (result)
		return result;
	buffer = malloc(sizeof(*buffer));
	if (!buffer)
		return -ENOMEM;
	while (!result && more) {
		u64 from = *cookie - COOKIE_FIRST;

		buffer->used = 0;
		down_read(&dir->lock);
		more = name_iterate(&dir->inode, &from, list_one, buffer);
		up_read(&dir->lock);
		result = more < 0 ? more : tell_buffer(buffer, fn, ctx, cookie);
	}
	free(buffer);
	if (result >= 0)
		node_touch_atime(dir);
	return result;
}
