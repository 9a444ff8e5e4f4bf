/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Paths, for programs that embed a volume.  Always from the root; symlinks are followed inside the volume.
 */
#include "lib.h"

#include <limits.h>
#include <stdlib.h>

#define LINKS_MAX	40

struct walk {
	struct tux3 *volume;
	const struct tux3_cred *cred;
	unsigned int flags;
	u32 mode;			/* of directories that PARENTS makes */
	unsigned int links;		/* symlinks followed */
	struct tux3_node *node;		/* where we are; with a reference */
	char *text, *at;		/* the path still to go; malloc'ed */
	char name[TUX3_NAME_MAX + 1];	/* the component at hand */
	bool last;			/* it is the last one */
	bool must_be_dir;		/* a slash follows it */
};

static int walk_begin(struct walk *walk, struct tux3 *volume, const struct tux3_cred *cred, const char *path,
		      unsigned int flags)
{
	memset(walk, 0, sizeof(*walk));
	if (!volume || !path)
		return -EINVAL;
	if (!*path)
		return -ENOENT;
	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	walk->volume = volume;
	walk->cred = cred;
	walk->flags = flags;
	walk->mode = 0777;
	walk->text = walk->at = strdup(path);
	if (!walk->text)
		return -ENOMEM;
	walk->node = tux3_root(volume);
	return 0;
}

static void walk_end(struct walk *walk)
{
	if (walk->node)
		tux3_node_put(walk->node, 1);
	free(walk->text);
}

/* The next component into name; 0: there is none. */
static int walk_next(struct walk *walk)
{
	size_t len;

	walk->at += strspn(walk->at, "/");
	len = strcspn(walk->at, "/");
	if (!len)
		return 0;
	if (len > TUX3_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(walk->name, walk->at, len);
	walk->name[len] = 0;
	walk->at += len;
	walk->must_be_dir = *walk->at == '/';
	walk->last = !walk->at[strspn(walk->at, "/")];
	return 1;
}

/* What the symlink says goes in front of the rest of the path. */
static int walk_symlink(struct walk *walk, struct tux3_node *link)
{
	size_t rest = strlen(walk->at);
	char *text;
	int len;

	if (++walk->links > LINKS_MAX)
		return -ELOOP;
	text = malloc(PATH_MAX + rest + 1);
	if (!text)
		return -ENOMEM;
	len = tux3_readlink(link, text, PATH_MAX);
	if (len <= 0 || len + rest >= PATH_MAX) {
		free(text);
		return len < 0 ? len : len ? -ENAMETOOLONG : -ENOENT;
	}
	memcpy(text + len, walk->at, rest + 1);
	free(walk->text);
	walk->text = walk->at = text;
	if (text[0] == '/') {
		tux3_node_put(walk->node, 1);
		walk->node = tux3_root(walk->volume);
	}
	return 0;
}

static void walk_to(struct walk *walk, struct tux3_node *node)
{
	tux3_node_put(walk->node, 1);
	walk->node = node;
}

static int make_parent(struct walk *walk, struct tux3_node **node)
{
	int err = tux3_mknod(walk->node, walk->cred, walk->name, S_IFDIR | walk->mode, 0, 0, node);

	return err == -EEXIST ? tux3_lookup(walk->node, walk->cred, walk->name, node) : err;
}

/*
 * To the directory that the last component is in, and that component in walk->name.  -EEXIST: the path is
 * that of the root directory.
 */
static int walk_parent(struct walk *walk)
{
	struct tux3_node *node;
	int err;

	for (;;) {
		err = walk_next(walk);
		if (err <= 0)
			return err ? err : -EEXIST;
		if (walk->last)
			return S_ISDIR(node_type(walk->node)) ? 0 : -ENOTDIR;
		err = tux3_lookup(walk->node, walk->cred, walk->name, &node);
		if (err == -ENOENT && walk->flags & TUX3_PARENTS)
			err = make_parent(walk, &node);
		if (err)
			return err;
		if (S_ISLNK(node_type(node))) {
			err = walk_symlink(walk, node);
			tux3_node_put(node, 1);
			if (err)
				return err;
		} else {
			walk_to(walk, node);
		}
	}
}

/* The last component: 0 found in *node, 1 a symlink was put in front of the path. */
static int walk_last(struct walk *walk, u32 mode, struct tux3_node **node)
{
	unsigned int flags = walk->flags;
	int err = tux3_lookup(walk->node, walk->cred, walk->name, node);

	if (err == -ENOENT && flags & TUX3_CREATE && !name_is_dots(walk->name)) {
		if (walk->must_be_dir)
			return -EISDIR;
		err = tux3_mknod(walk->node, walk->cred, walk->name, S_IFREG | (mode & 07777), 0, 0, node);
		if (err != -EEXIST || flags & TUX3_EXCL)
			return err;
		err = tux3_lookup(walk->node, walk->cred, walk->name, node);
	} else if (!err && flags & TUX3_CREATE && flags & TUX3_EXCL) {
		err = -EEXIST;
		tux3_node_put(*node, 1);
	}
	if (err)
		return err;
	if (S_ISLNK(node_type(*node)) && (walk->must_be_dir || !(flags & TUX3_NOFOLLOW)))
		err = 1;
	else if (walk->must_be_dir && !S_ISDIR(node_type(*node)))
		err = -ENOTDIR;
	if (!err)
		return 0;
	if (err == 1)
		err = walk_symlink(walk, *node);
	tux3_node_put(*node, 1);
	return err ? err : 1;
}

int tux3_path(struct tux3 *volume, const struct tux3_cred *cred, const char *path, unsigned int flags,
	      uint32_t mode, struct tux3_node **node)
{
	struct walk walk;
	int err;

	if (!node || flags & ~(TUX3_NOFOLLOW | TUX3_CREATE | TUX3_EXCL | TUX3_PARENTS))
		return -EINVAL;
	err = walk_begin(&walk, volume, cred, path, flags);
	if (err)
		return err;
	do {
		err = walk_parent(&walk);
		if (err == -EEXIST && !(flags & TUX3_CREATE && flags & TUX3_EXCL)) {
			err = 0;
			*node = walk.node;
			walk.node = NULL;
			break;
		}
		if (!err)
			err = walk_last(&walk, mode, node);
	} while (err == 1);
	walk_end(&walk);
	return err;
}

int tux3_path_mkdir(struct tux3 *volume, const struct tux3_cred *cred, const char *path, uint32_t mode)
{
	struct walk walk;
	int err = walk_begin(&walk, volume, cred, path, 0);

	if (err)
		return err;
	err = walk_parent(&walk);
	if (!err)
		err = tux3_mknod(walk.node, cred, walk.name, S_IFDIR | (mode & 07777), 0, 0, NULL);
	walk_end(&walk);
	return err;
}

int tux3_path_unlink(struct tux3 *volume, const struct tux3_cred *cred, const char *path)
{
	struct walk walk;
	int err = walk_begin(&walk, volume, cred, path, 0);

	if (err)
		return err;
	err = walk_parent(&walk);
	if (!err) {
		err = walk.must_be_dir ? -EISDIR : tux3_unlink(walk.node, cred, walk.name);
		if (err == -EISDIR)
			err = tux3_rmdir(walk.node, cred, walk.name);
	} else if (err == -EEXIST) {
		err = -EBUSY;
	}
	walk_end(&walk);
	return err;
}

/* A slash at the end says that it is a directory. */
static int check_slash(struct walk *walk)
{
	struct tux3_node *node;
	int err;

	if (!walk->must_be_dir)
		return 0;
	err = tux3_lookup(walk->node, walk->cred, walk->name, &node);
	if (err)
		return err;
	err = S_ISDIR(node_type(node)) ? 0 : -ENOTDIR;
	tux3_node_put(node, 1);
	return err;
}

int tux3_path_rename(struct tux3 *volume, const struct tux3_cred *cred, const char *from, const char *to,
		     unsigned int flags)
{
	struct walk old, new;
	int err = walk_begin(&old, volume, cred, from, 0);

	if (err)
		return err;
	err = walk_begin(&new, volume, cred, to, 0);
	if (!err) {
		err = walk_parent(&old);
		if (!err)
			err = walk_parent(&new);
		if (err == -EEXIST)
			err = -EBUSY;
		/* What goes to a name with a slash is a directory, and so is what an exchange brings. */
		old.must_be_dir |= !(flags & TUX3_RENAME_EXCHANGE) && new.must_be_dir;
		if (!err)
			err = check_slash(&old);
		if (!err && flags & TUX3_RENAME_EXCHANGE)
			err = check_slash(&new);
		if (!err)
			err = tux3_rename(old.node, old.name, new.node, new.name, flags, cred);
		walk_end(&new);
	}
	walk_end(&old);
	return err;
}
