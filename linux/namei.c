// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names: looking them up, making and removing them.
 *
 * The VFS holds i_rwsem of the directory, shared for a lookup and exclusively for a change, and that of other inodes
 * whose link count changes; it has checked permissions, and that no directory moves below itself.  So here is little
 * more than one op_ of the core for each operation, and pulling the attributes of all inodes that it changed.
 *
 * Names that do not exist stay in the dentry cache (there is no ->d_delete): lookups that fail are as frequent as
 * others.
 *
 * With mount -o dirsync (or sync) an operation ends with an fsync of the directory, or of the file that it made.
 *
 * What a new file inherits (ACLs, security labels) is set before it gets its name: should a commit come between, it is
 * an orphan, and no crash can show it without them.
 */
#include <linux/fs.h>
#include <linux/namei.h>
#include <linux/posix_acl.h>

#include "linux/vfs.h"
#include "core/inode/path.h"
#include "core/intent/intent.h"
#include "core/names/ops.h"

static_assert(OP_RENAME_NOREPLACE == RENAME_NOREPLACE && OP_RENAME_EXCHANGE == RENAME_EXCHANGE &&
	      OP_RENAME_WHITEOUT == RENAME_WHITEOUT);

static struct dentry *dir_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	const struct qstr *name = &dentry->d_name;
	struct inode *inode = NULL;
	u64 ino;
	u8 type;
	int err = name_lookup(core_of(dir), name->name, name->len, &ino, &type);

	if (!err) {
		inode = node_get(dir->i_sb, ino);
		if (inode == ERR_PTR(-ESTALE)) {
			inode_warn(vol_of(dir), "directory", dir->i_ino, ": \"%s\" leads to inode %llu, which does not exist",
				   name->name, (unsigned long long)ino);
			return ERR_PTR(-EIO);
		}
	} else if (err != -ENOENT) {
		return ERR_PTR(err);
	}
	return d_splice_alias(inode, dentry);
}

/*
 * The operation is done.  A file that was made takes its name along, and so may be durable ahead of all else.  Who writes to it
 * already is not waited for: the VFS has the directory's lock.
 */
static int synced(struct inode *dir, struct inode *made)
{
	if (!IS_DIRSYNC(dir))
		return 0;
	return fsync_inode(core_of(made && S_ISREG(made->i_mode) ? made : dir), false);
}

/* ---- making ---- */

static struct inode *new_child(struct mnt_idmap *idmap, struct inode *dir, umode_t mode, dev_t rdev,
			       const struct qstr *name)
{
	struct inode *inode = node_new(idmap, dir, mode, rdev);
	int err;

	if (IS_ERR(inode))
		return inode;
	err = node_init_acl(inode, dir);
	if (!err)
		err = node_init_security(inode, dir, name);
	if (!err)
		return inode;
	node_failed(inode);
	return ERR_PTR(err);
}

static int make(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode, dev_t rdev,
		const char *target)
{
	const struct qstr *name = &dentry->d_name;
	struct inode *inode = new_child(idmap, dir, mode, rdev, name);
	int err;

	if (IS_ERR(inode))
		return PTR_ERR(inode);
	err = op_create(core_of(dir), name->name, name->len, core_of(inode), target, target ? strlen(target) : 0);
	if (err) {
		node_failed(inode);
		return err;
	}
	node_created(inode);
	node_pull(dir);
	d_instantiate_new(dentry, inode);
	return synced(dir, inode);
}

static int dir_create(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode)
{
	return make(idmap, dir, dentry, S_IFREG | mode, 0, NULL);
}
COMPAT_CREATE(dir_create)

static struct dentry *dir_mkdir(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode)
{
	return ERR_PTR(make(idmap, dir, dentry, S_IFDIR | mode, 0, NULL));
}
COMPAT_MKDIR(dir_mkdir)

static int dir_mknod(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, umode_t mode, dev_t rdev)
{
	return make(idmap, dir, dentry, mode, rdev, NULL);
}

static int dir_symlink(struct mnt_idmap *idmap, struct inode *dir, struct dentry *dentry, const char *target)
{
	return make(idmap, dir, dentry, S_IFLNK | 0777, 0, target);
}

static int dir_tmpfile(struct mnt_idmap *idmap, struct inode *dir, struct file *file, umode_t mode)
{
	struct inode *inode = new_child(idmap, dir, mode, 0, NULL);
	int err;

	if (IS_ERR(inode))
		return finish_open_simple(file, PTR_ERR(inode));
	err = op_tmpfile(core_of(inode));
	if (err) {
		node_failed(inode);
		return finish_open_simple(file, err);
	}
	node_created(inode);
	d_mark_tmpfile(file, inode);
	d_instantiate_new(file->f_path.dentry, inode);
	return finish_open_simple(file, 0);
}

static int dir_link(struct dentry *old, struct inode *dir, struct dentry *dentry)
{
	struct inode *inode = d_inode(old);
	int err = op_link(core_of(dir), dentry->d_name.name, dentry->d_name.len, core_of(inode));

	if (err)
		return err;
	node_pull(inode);
	node_pull(dir);
	ihold(inode);
	d_instantiate(dentry, inode);
	return synced(dir, NULL);
}

/* ---- removing ---- */

/*
 * What was removed or renamed is, also if that could not be synced, or who waited for it was killed.  The VFS takes any error for
 * nothing done: so the dentry cache is told here, and that nothing is made any more in a directory that is gone (i_rwsem held).
 */
static void inode_is_gone(struct inode *inode)
{
	if (S_ISDIR(inode->i_mode))
		inode->i_flags |= S_DEAD;
}

static int removed(struct inode *dir, struct dentry *dentry)
{
	struct inode *inode = d_inode(dentry);
	int err;

	node_pull(inode);
	node_pull(dir);
	node_unnamed(inode);
	err = synced(dir, NULL);
	if (unlikely(err)) {
		inode_is_gone(inode);
		d_drop(dentry);
	}
	return err;
}

static int dir_unlink(struct inode *dir, struct dentry *dentry)
{
	int err = op_unlink(core_of(dir), dentry->d_name.name, dentry->d_name.len, core_of(d_inode(dentry)));

	return err ? err : removed(dir, dentry);
}

static int dir_rmdir(struct inode *dir, struct dentry *dentry)
{
	int err = op_rmdir(core_of(dir), dentry->d_name.name, dentry->d_name.len, core_of(d_inode(dentry)));

	return err ? err : removed(dir, dentry);
}

/* ---- rename ---- */

static int renamed(struct inode *old_dir, struct dentry *old, struct inode *new_dir, struct dentry *new, unsigned int flags)
{
	struct inode *target = d_inode(new);
	int err;

	node_pull(old_dir);
	if (new_dir != old_dir)
		node_pull(new_dir);
	node_pull(d_inode(old));
	if (target) {
		node_pull(target);
		node_unnamed(target);
	}
	err = synced(IS_DIRSYNC(new_dir) ? new_dir : old_dir, NULL);
	if (unlikely(err) && flags & RENAME_EXCHANGE) {		/* both are looked up anew: d_exchange() is not for modules */
		d_drop(old);
		d_drop(new);
	} else if (unlikely(err)) {
		if (target)
			inode_is_gone(target);
		d_move(old, new);
	}
	return err;
}

static int dir_rename(struct mnt_idmap *idmap, struct inode *old_dir, struct dentry *old, struct inode *new_dir,
		      struct dentry *new, unsigned int flags)
{
	struct inode *target = d_inode(new), *whiteout = NULL;
	struct op_rename args = {
		.old_dir = core_of(old_dir), .new_dir = core_of(new_dir),
		.old_name = old->d_name.name, .new_name = new->d_name.name,
		.old_len = old->d_name.len, .new_len = new->d_name.len,
		.inode = core_of(d_inode(old)), .target = target ? core_of(target) : NULL, .flags = flags,
	};
	int err;

	if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	if (flags & RENAME_WHITEOUT) {
		whiteout = new_child(idmap, old_dir, S_IFCHR | WHITEOUT_MODE, WHITEOUT_DEV, &old->d_name);
		if (IS_ERR(whiteout))
			return PTR_ERR(whiteout);
		args.whiteout = core_of(whiteout);
	}
	err = op_rename(&args);
	if (whiteout && (err || !READ_ONCE(args.whiteout->attr.nlink))) {	/* or nothing was to be done */
		node_failed(whiteout);
	} else if (whiteout) {
		node_created(whiteout);
		unlock_new_inode(whiteout);
		iput(whiteout);
	}
	return err ? err : renamed(old_dir, old, new_dir, new, flags);
}

/* ---- symlinks ---- */

/* Only until the target is in memory: then the VFS finds it in i_link, which lives as long as the inode does. */
static const char *symlink_get(struct dentry *dentry, struct inode *inode, struct delayed_call *done)
{
	struct tux3_inode *core = core_of(inode);
	int len;

	if (!dentry)
		return ERR_PTR(-ECHILD);
	len = symlink_read(core, NULL, 0);
	if (len < 0)
		return ERR_PTR(len);
	smp_store_release(&inode->i_link, core->target);
	return core->target;
}

const struct inode_operations dir_inode_ops = {
	.lookup		= dir_lookup,
	.create		= dir_create_op,
	.link		= dir_link,
	.unlink		= dir_unlink,
	.symlink	= dir_symlink,
	.mkdir		= dir_mkdir_op,
	.rmdir		= dir_rmdir,
	.mknod		= dir_mknod,
	.rename		= dir_rename,
	.tmpfile	= dir_tmpfile,
	.getattr	= node_getattr,
	.setattr	= node_setattr,
	.update_time	= node_update_time_op,
	.listxattr	= node_listxattr,
	.get_inode_acl	= node_get_acl,
	.set_acl	= node_set_acl,
	.fileattr_get	= node_fileattr_get,
	.fileattr_set	= node_fileattr_set,
};

const struct inode_operations symlink_inode_ops = {
	.get_link	= symlink_get,
	.getattr	= node_getattr,
	.setattr	= node_setattr,
	.update_time	= node_update_time_op,
	.listxattr	= node_listxattr,
};

const struct inode_operations special_inode_ops = {
	.getattr	= node_getattr,
	.setattr	= node_setattr,
	.update_time	= node_update_time_op,
	.listxattr	= node_listxattr,
	.get_inode_acl	= node_get_acl,
	.set_acl	= node_set_acl,
};
