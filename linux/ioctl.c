// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ioctls of files and directories, and file attributes as lsattr and chattr know them.
 *
 * The VFS serves FS_IOC_GETFLAGS and its relatives through node_fileattr_get/set, with i_rwsem held for setting.  All
 * arguments are the same for 32 and 64 bit callers.
 */
#include <linux/compat.h>
#include <linux/fileattr.h>
#include <linux/mount.h>
#include "core/blocks/trim.h"
#include "core/ioctl.h"
#include "core/names/ops.h"
#include "core/open.h"
#include "linux/vfs.h"

/* Other filesystems answer to this number too: tools for tests use it. */
#define IOC_SHUTDOWN		_IOR('X', 125, __u32)
#define SHUTDOWN_FREEZE		0u	/* all that was done is committed */
#define SHUTDOWN_COMMIT		1u	/* the same here: our log has everything */
#define SHUTDOWN_AT_ONCE	2u	/* nothing more is written */

/* ---- lsattr, chattr ---- */

int node_fileattr_get(struct dentry *dentry, struct file_kattr *fa)
{
	struct tux3_attr attr;

	inode_get_attr(core_of(d_inode(dentry)), &attr);
	fileattr_fill_flags(fa, attr_flags_to_ioctl(attr.flags));
	fa->fsx_projid = attr.projid;
	return 0;
}

/* The VFS has filled in what the caller did not give, and has checked who may do what. */
int node_fileattr_set(struct mnt_idmap *idmap, struct dentry *dentry, struct file_kattr *fa)
{
	struct inode *inode = d_inode(dentry);
	struct tux3_attr attr;
	u32 mask = 0, flags;
	int err;

	if (fa->fsx_extsize || fa->fsx_cowextsize || (fa->fsx_valid && fa->fsx_xflags & ~FS_XFLAG_COMMON) ||
	    !attr_flags_from_ioctl(fa->flags, &flags))
		return -EOPNOTSUPP;
	inode_get_attr(core_of(inode), &attr);
	if (attr_flags_to_ioctl(attr.flags) != fa->flags)
		mask |= OP_ATTR_FLAGS;
	if (attr.projid != fa->fsx_projid)
		mask |= OP_ATTR_PROJID;
	if (!mask)
		return 0;
	/* As everything else of an immutable inode, unless it stops being one. */
	if (mask & OP_ATTR_PROJID && attr.flags & flags & TUX3_ATTR_IMMUTABLE)
		return -EPERM;
	attr.flags = flags;
	attr.projid = fa->fsx_projid;
	err = op_setattr(core_of(inode), &attr, mask);
	node_pull(inode);
	return err ? err : node_synced(inode);
}

/* ---- ioctls ---- */

static long ioctl_trim(struct super_block *sb, struct fstrim_range __user *arg)
{
	struct volume *vol = sb_of(sb)->vol;
	struct fstrim_range range;
	u64 trimmed = 0, from, to;
	int err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (!bdev_max_discard_sectors(sb->s_bdev))
		return -EOPNOTSUPP;
	if (copy_from_user(&range, arg, sizeof(range)))
		return -EFAULT;
	from = range.start >> vol->block_shift;
	if (from >= vol->total_blocks || range.len < vol->block_size)
		return -EINVAL;
	to = from + min(range.len >> vol->block_shift, vol->total_blocks - from);
	err = volume_trim(vol, from, to - from, max_t(u64, range.minlen >> vol->block_shift, 1), &trimmed);
	range.len = trimmed << vol->block_shift;
	if (!err && copy_to_user(arg, &range, sizeof(range)))
		err = -EFAULT;
	return err;
}

static long ioctl_shutdown(struct super_block *sb, const u32 __user *arg)
{
	struct volume *vol = sb_of(sb)->vol;
	int err = 0;
	u32 how;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (get_user(how, arg))
		return -EFAULT;
	if (how > SHUTDOWN_AT_ONCE)
		return -EINVAL;
	if (how == SHUTDOWN_FREEZE)
		err = bdev_freeze(sb->s_bdev);
	else if (how == SHUTDOWN_COMMIT)
		err = volume_error(vol) ? 0 : delta_commit(vol);
	if (err)
		return err;
	volume_abort(vol, -EIO, "shut down as asked for");
	if (how == SHUTDOWN_FREEZE)
		bdev_thaw(sb->s_bdev);
	return 0;
}

static long ioctl_get_label(struct super_block *sb, char __user *arg)
{
	u8 label[FSLABEL_MAX] = "";

	volume_get_label(sb_of(sb)->vol, label);
	return copy_to_user(arg, label, sizeof(label)) ? -EFAULT : 0;
}

static long ioctl_set_label(struct file *file, const char __user *arg)
{
	struct super_block *sb = file_inode(file)->i_sb;
	u8 label[TUX3_LABEL_MAX + 1] = "";
	int err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (copy_from_user(label, arg, sizeof(label)))
		return -EFAULT;
	err = strnlen((char *)label, sizeof(label));
	if (err > TUX3_LABEL_MAX)
		return -EINVAL;
	memset(label + err, 0, sizeof(label) - err);
	err = mnt_want_write_file(file);
	if (err)
		return err;
	err = volume_set_label(sb_of(sb)->vol, label);
	mnt_drop_write_file(file);
	return err;
}

long node_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct inode *inode = file_inode(file);
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case FITRIM:
		return ioctl_trim(inode->i_sb, user);
	case IOC_SHUTDOWN:
		return ioctl_shutdown(inode->i_sb, user);
	case FS_IOC_GETFSLABEL:
		return ioctl_get_label(inode->i_sb, user);
	case FS_IOC_SETFSLABEL:
		return ioctl_set_label(file, user);
	case TUX3_IOC_SCRUB:
		return ioctl_scrub(inode->i_sb, user);
	case TUX3_IOC_HOLD:
		return ioctl_hold(inode->i_sb, user);
	case FS_IOC_GETVERSION:		/* says long, but is and always was an int */
	case FS_IOC32_GETVERSION:
		return put_user(inode->i_generation, (u32 __user *)user);
	}
	if (cmd == TUX3_IOC_EXCHANGE_RANGE || cmd == TUX3_IOC_START_COMMIT || cmd == TUX3_IOC_COMMIT_RANGE)
		return node_ioctl_exchange(file, cmd, user);
	if (cmd == TUX3_IOC_BULKSTAT || cmd == TUX3_IOC_INODES)
		return node_ioctl_inodes(file, cmd, user);
	return node_ioctl_parents(file, cmd, user);
}
