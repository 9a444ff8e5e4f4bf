/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Operations on names.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tux3_fuse.h"

/* An entry of node, whose reference goes if it fails; err: there is no node.  false: the error was told. */
static bool take_entry(fuse_req_t req, struct fuse_entry_param *entry, struct tux3_node *node, int err)
{
	if (!err) {
		err = fill_entry(entry, node);
		if (err)
			tux3_node_put(node, 1);
	}
	if (err)
		fuse_reply_err(req, -err);
	return !err;
}

/* *node was made in a directory, or not.  If that cannot be made durable, it is let go. */
static int new_durable(fuse_ino_t parent, const char *name, mode_t mode, struct tux3_node **node, int err)
{
	bool made = !err;

	err = name_made_durable(parent, name, made && S_ISREG(mode) ? *node : NULL, err);
	if (made && err)
		tux3_node_put(*node, 1);
	return err;
}

/* Tell the kernel about node, whose reference it gets; err: there is none. */
static void reply_node(fuse_req_t req, struct tux3_node *node, int err)
{
	struct fuse_entry_param entry;

	if (!take_entry(req, &entry, node, err))
		return;
	/* A request the kernel gave up on gets no node id, so no "forget" would come.  None comes for the root. */
	if (fuse_reply_entry(req, &entry) || node == mount_state.root)
		tux3_node_put(node, 1);
}

/*
 * From a file handle: of any inode number, from another mount perhaps, of any type.  The kernel compares the generation.
 * It has no such inode in use, or it would not ask, so one without a name is going to be deleted.
 */
static int lookup_number(fuse_ino_t ino, struct tux3_node **node)
{
	struct tux3_stat stat;
	int err = tux3_node_get(mount_state.volume, ino, 0, node);

	if (err)
		return err;
	err = tux3_stat_node(*node, &stat);
	if (!err && !stat.nlink)
		err = -ESTALE;
	if (err)
		tux3_node_put(*node, 1);
	return err;
}

void serve_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	static const struct fuse_entry_param absent = { .entry_timeout = CACHE_FOREVER_S };
	struct tux3_node *node, *dir;
	int err = -ESTALE;

	if (!strcmp(name, ".") && parent != FUSE_ROOT_ID) {
		err = lookup_number(parent, &node);
		reply_node(req, node, err);
		return;
	}
	dir = node_of(parent);
	if (dir)
		err = tux3_lookup(dir, NULL, name, &node);
	if (err == -ENOENT)
		fuse_reply_entry(req, &absent);
	else
		reply_node(req, node, err);
}

static void forget(fuse_ino_t ino, uint64_t count)
{
	struct tux3_node *node = ino == FUSE_ROOT_ID ? NULL : node_of(ino);

	if (node)
		tux3_node_put(node, count);
}

void serve_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	forget(ino, count);
	fuse_reply_none(req);
}

void serve_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *list)
{
	for (size_t i = 0; i < count; i++)
		forget(list[i].ino, list[i].nlookup);
	fuse_reply_none(req);
}

void serve_readlink(fuse_req_t req, fuse_ino_t ino)
{
	char target[PATH_MAX];
	int len = tux3_readlink(node_of(ino), target, sizeof(target) - 1);

	if (len < 0) {
		fuse_reply_err(req, -len);
		return;
	}
	target[len] = '\0';
	fuse_reply_readlink(req, target);
}

void serve_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct tux3_node *node = NULL;
	struct tux3_cred cred;
	int err;

	request_cred(req, &cred);
	err = tux3_mknod(node_of(parent), &cred, name, mode, major(rdev), minor(rdev), &node);
	err = new_durable(parent, name, mode, &node, err);
	reply_node(req, node, err);
}

/* The kernel has the directory's lock, and has looked: an existing file comes by open. */
void serve_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct fuse_entry_param entry;
	struct tux3_node *node;
	struct tux3_cred cred;
	int err;

	request_cred(req, &cred);
	err = tux3_mknod(node_of(parent), &cred, name, S_IFREG | (mode & ~S_IFMT), 0, 0, &node);
	err = new_durable(parent, name, S_IFREG, &node, err);
	if (!take_entry(req, &entry, node, err))
		return;
	fill_open(node, fi);
	if (fuse_reply_create(req, &entry, fi))
		tux3_node_put(node, 1);
}

void serve_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	serve_mknod(req, parent, name, S_IFDIR | (mode & ~S_IFMT), 0);
}

void serve_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct tux3_node *node = NULL;
	struct tux3_cred cred;
	int err;

	request_cred(req, &cred);
	err = tux3_symlink(node_of(parent), &cred, name, target, &node);
	err = new_durable(parent, name, S_IFLNK, &node, err);
	reply_node(req, node, err);
}

void serve_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_dir, const char *new_name)
{
	struct tux3_node *node = node_of(ino);
	struct tux3_cred cred;
	int err;

	request_cred(req, &cred);
	err = node ? tux3_link(node, &cred, node_of(new_dir), new_name) : -ESTALE;
	err = name_made_durable(new_dir, new_name, NULL, err);
	if (!err)
		tux3_node_ref(node, 1);
	reply_node(req, node, err);
}

void serve_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct tux3_cred cred;

	request_cred(req, &cred);
	fuse_reply_err(req, -name_made_durable(parent, name, NULL, tux3_unlink(node_of(parent), &cred, name)));
}

void serve_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct tux3_cred cred;

	request_cred(req, &cred);
	fuse_reply_err(req, -name_made_durable(parent, name, NULL, tux3_rmdir(node_of(parent), &cred, name)));
}

_Static_assert(TUX3_RENAME_NOREPLACE == RENAME_NOREPLACE && TUX3_RENAME_EXCHANGE == RENAME_EXCHANGE &&
	       TUX3_RENAME_WHITEOUT == 4, "renameat2 flags are passed on as they are");

void serve_rename(fuse_req_t req, fuse_ino_t old_dir, const char *old_name, fuse_ino_t new_dir, const char *new_name,
	       unsigned int flags)
{
	struct tux3_node *to = node_of(new_dir);
	struct tux3_cred cred;
	int err = -ESTALE, durable;

	request_cred(req, &cred);
	if (to)
		err = tux3_rename(node_of(old_dir), old_name, to, new_name, flags, &cred);
	durable = name_made_durable(new_dir, new_name, NULL, err);	/* as both are: it is one operation */
	if (durable && !err)
		stale_name(old_dir, old_name);
	fuse_reply_err(req, -durable);
}
