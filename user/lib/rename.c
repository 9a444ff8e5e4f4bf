/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Operations that lock several directories: rename and rmdir.
 *
 * All directories whose entries or link counts change are locked exclusively, by inode number.  Which ones
 * these are is known only after looking the names up; so: look up, lock, look up again, and start over
 * if the names lead elsewhere by then.
 *
 * A directory must not be moved below itself.  Whether it would be is a question about all directories
 * above the target, which only moves of directories between directories change: these hold rename_mutex.
 */
#include "lib.h"
#include "core/names/ops.h"

#include <unistd.h>

#define LOCKS_MAX 4

struct locks {
	struct tux3_node *nodes[LOCKS_MAX];	/* by number, each once */
	u32 count;
};

static void locks_add(struct locks *locks, struct tux3_node *node)
{
	u32 i, at;

	for (at = 0; at < locks->count && locks->nodes[at]->inode.ino <= node->inode.ino; at++)
		if (locks->nodes[at] == node)
			return;
	for (i = locks->count++; i > at; i--)
		locks->nodes[i] = locks->nodes[i - 1];
	locks->nodes[at] = node;
}

static bool is_dir(struct tux3_node *node)
{
	return node && S_ISDIR(node_type(node));
}

/* Directories first, all of them, then the others: the order in lib.h. */
static void locks_take(struct locks *locks)
{
	u32 i;

	for (i = 0; i < locks->count; i++)
		if (is_dir(locks->nodes[i]))
			down_write(&locks->nodes[i]->lock);
	for (i = 0; i < locks->count; i++)
		if (!is_dir(locks->nodes[i]))
			mutex_lock(&locks->nodes[i]->link_lock);
}

static void locks_drop(struct locks *locks)
{
	u32 i;

	for (i = 0; i < locks->count; i++) {
		if (is_dir(locks->nodes[i]))
			up_write(&locks->nodes[i]->lock);
		else
			mutex_unlock(&locks->nodes[i]->link_lock);
	}
}

/* Without the directory's lock, or with it.  *node NULL: no such name. */
static int look(struct tux3_node *dir, const char *name, unsigned int len, struct tux3_node **node, bool locked)
{
	int err;

	*node = NULL;
	if (!locked)
		down_read(&dir->lock);
	err = names_lookup_locked(dir, name, len, node);
	if (!locked)
		up_read(&dir->lock);
	return err == -ENOENT ? 0 : err;
}

static void put(struct tux3_node *node)
{
	if (node)
		tux3_node_put(node, 1);
}

/* With locks: does the name still lead there?  1, 0, -errno. */
static int still(struct tux3_node *dir, const char *name, unsigned int len, struct tux3_node *node)
{
	u64 ino = 0;
	u8 type;
	int err = name_lookup(&dir->inode, name, len, &ino, &type);

	if (err && err != -ENOENT)
		return err;
	return ino == (node ? node->inode.ino : 0);
}

/* ---- rmdir ---- */

/* -EAGAIN: the name leads elsewhere by now. */
static int rmdir_try(struct tux3_node *dir, const struct tux3_cred *cred, const char *name, unsigned int len)
{
	struct locks locks = {};
	struct tux3_node *node;
	int err = look(dir, name, len, &node, false);

	if (err)
		return err;
	locks_add(&locks, dir);
	if (node)
		locks_add(&locks, node);
	locks_take(&locks);
	err = still(dir, name, len, node);
	if (err == 1)
		err = perm_check(dir, cred, MAY_EXEC);
	else if (!err)
		err = -EAGAIN;
	if (!err)
		err = node ? names_may_remove(dir, cred, node) : -ENOENT;
	if (!err && !is_dir(node))
		err = -ENOTDIR;
	if (!err)
		err = op_rmdir(&dir->inode, name, len, &node->inode);
	if (!err)
		icache_links_changed(node);
	locks_drop(&locks);
	put(node);
	return err;
}

int tux3_rmdir(struct tux3_node *dir, const struct tux3_cred *cred, const char *name)
{
	unsigned int len;
	int err;

	if (!S_ISDIR(node_type(dir)))
		return -ENOTDIR;
	if (name_is_dots(name))
		return name[1] ? -ENOTEMPTY : -EINVAL;
	err = name_check(name, &len);
	if (err)
		return err;
	do {
		err = rmdir_try(dir, cred, name, len);
	} while (err == -EAGAIN);
	return err;
}

/* ---- rename ---- */

struct rename {
	struct tux3_node *old_dir, *new_dir;
	const char *old_name, *new_name;
	unsigned int old_len, new_len, flags;
	const struct tux3_cred *cred;
	struct tux3_node *node, *target;	/* what the names lead to */
};

/*
 * Is dir at or below above?  With rename_mutex.  1, 0, -errno.  On a damaged volume the way up may be a circle: then it
 * comes again to the number noted last, after twice the circle's length at most.
 */
static int is_below(struct tux3_node *dir, struct tux3_node *above)
{
	u64 ino = dir->inode.ino, parent, noted = ino, steps = 0, note_at = 1;
	struct tux3 *volume = dir->volume;
	struct tux3_node *node;
	int err;

	while (ino != above->inode.ino) {
		if (ino == TUX3_INO_ROOT)
			return 0;
		err = icache_get(volume, ino, &node);
		if (err)
			return err == -ESTALE ? -ENOENT : err;
		spin_lock(&node->inode.lock);
		parent = node->inode.parent;
		spin_unlock(&node->inode.lock);
		tux3_node_put(node, 1);
		if (parent == noted) {
			volume_warn(volume->vol, "directory %llu is above itself; fsck.tux3 tells more",
				    (unsigned long long)parent);
			return -EIO;
		}
		ino = parent;
		if (++steps == note_at) {
			noted = ino;
			note_at *= 2;
		}
	}
	return 1;
}

static int check_loops(struct rename *rename)
{
	int below;

	if (rename->target && rename->flags & TUX3_RENAME_NOREPLACE)
		return -EEXIST;
	if (is_dir(rename->node)) {
		below = is_below(rename->new_dir, rename->node);
		if (below)
			return below < 0 ? below : -EINVAL;
	}
	if (is_dir(rename->target)) {
		below = is_below(rename->old_dir, rename->target);
		if (below < 0)
			return below;
		if (below)	/* it is not empty, then */
			return rename->flags & TUX3_RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
	}
	return 0;
}

/* Moving a directory elsewhere changes its "..", which asks for the right to write to it. */
static int may_move(struct rename *rename, struct tux3_node *node)
{
	if (!is_dir(node) || rename->old_dir == rename->new_dir)
		return 0;
	return perm_check(node, rename->cred, MAY_WRITE);
}

static int rename_allowed(struct rename *rename)
{
	bool exchange = rename->flags & TUX3_RENAME_EXCHANGE;
	int err;

	if (!rename->node)
		return -ENOENT;
	err = names_may_remove(rename->old_dir, rename->cred, rename->node);
	if (err)
		return err;
	if (rename->target && rename->flags & TUX3_RENAME_NOREPLACE)
		return -EEXIST;
	if (rename->target)
		err = names_may_remove(rename->new_dir, rename->cred, rename->target);
	else
		err = exchange ? -ENOENT : names_may_add(rename->new_dir, rename->cred);
	if (!err)
		err = may_move(rename, rename->node);
	if (!err && exchange)
		err = may_move(rename, rename->target);
	return err;
}

/* All locks held, everything allowed. */
static int rename_enact(struct rename *rename)
{
	struct op_rename args = {
		.old_dir = &rename->old_dir->inode, .new_dir = &rename->new_dir->inode,
		.old_name = rename->old_name, .new_name = rename->new_name,
		.old_len = rename->old_len, .new_len = rename->new_len,
		.inode = &rename->node->inode,
		.target = rename->target ? &rename->target->inode : NULL,
		.flags = rename->flags,
	};
	struct tux3_node *whiteout = NULL;
	int err = 0;

	if (rename->flags & TUX3_RENAME_WHITEOUT) {
		err = names_make(rename->old_dir, rename->cred, S_IFCHR, 0, 0, &whiteout);
		if (!err)
			args.whiteout = &whiteout->inode;
	}
	if (!err)
		err = op_rename(&args);
	if (!whiteout)
		goto out;
	if (err || !node_nlink(whiteout)) {	/* or nothing was to be done */
		names_make_failed(whiteout);
	} else {
		icache_new_done(whiteout);
		tux3_node_put(whiteout, 1);
	}
out:
	if (!err && rename->target && !(rename->flags & TUX3_RENAME_EXCHANGE))
		icache_links_changed(rename->target);
	return err;
}

static int rename_locked(struct rename *rename)
{
	int same = still(rename->old_dir, rename->old_name, rename->old_len, rename->node);

	if (same == 1)
		same = still(rename->new_dir, rename->new_name, rename->new_len, rename->target);
	if (same < 1)
		return same ? same : -EAGAIN;
	same = rename_allowed(rename);
	return same ? same : rename_enact(rename);
}

static int rename_try(struct rename *rename)
{
	struct tux3 *volume = rename->old_dir->volume;
	struct locks locks = {};
	bool moves_dir;
	int err;

	rename->target = NULL;
	err = look(rename->old_dir, rename->old_name, rename->old_len, &rename->node, false);
	if (!err && !rename->node)
		err = -ENOENT;
	if (!err)
		err = look(rename->new_dir, rename->new_name, rename->new_len, &rename->target, false);
	if (err)
		goto out;
	moves_dir = rename->old_dir != rename->new_dir && (is_dir(rename->node) || is_dir(rename->target));
	if (moves_dir) {
		mutex_lock(&volume->rename_mutex);
		err = check_loops(rename);
	}
	if (!err) {
		locks_add(&locks, rename->old_dir);
		locks_add(&locks, rename->new_dir);
		locks_add(&locks, rename->node);
		if (rename->target)
			locks_add(&locks, rename->target);
		locks_take(&locks);
		err = rename_locked(rename);
		locks_drop(&locks);
	}
	if (moves_dir)
		mutex_unlock(&volume->rename_mutex);
out:
	put(rename->node);
	put(rename->target);
	return err;
}

/* Before any name is looked up: what is found decides what is told.  Changes ask again, with the locks. */
static int may_search(const struct rename *rename)
{
	int err;

	if (!cred_checks(rename->cred))
		return 0;
	err = tux3_access(rename->old_dir, rename->cred, X_OK);
	return err ? err : tux3_access(rename->new_dir, rename->cred, X_OK);
}

int tux3_rename(struct tux3_node *old_dir, const char *old_name, struct tux3_node *new_dir,
		const char *new_name, unsigned int flags, const struct tux3_cred *cred)
{
	struct rename rename = {
		.old_dir = old_dir, .new_dir = new_dir, .old_name = old_name, .new_name = new_name,
		.flags = flags, .cred = cred,
	};
	int err;

	if (flags & ~(TUX3_RENAME_NOREPLACE | TUX3_RENAME_EXCHANGE | TUX3_RENAME_WHITEOUT) ||
	    (flags & TUX3_RENAME_EXCHANGE && flags & (TUX3_RENAME_NOREPLACE | TUX3_RENAME_WHITEOUT)))
		return -EINVAL;
	if (!S_ISDIR(node_type(old_dir)) || !S_ISDIR(node_type(new_dir)))
		return -ENOTDIR;
	if (old_dir->volume != new_dir->volume)
		return -EXDEV;
	if (name_is_dots(old_name) || name_is_dots(new_name))
		return -EBUSY;
	err = name_check(old_name, &rename.old_len);
	if (!err)
		err = name_check(new_name, &rename.new_len);
	if (!err)
		err = may_search(&rename);
	if (err)
		return err;
	do {
		err = rename_try(&rename);
	} while (err == -EAGAIN);
	return err;
}
