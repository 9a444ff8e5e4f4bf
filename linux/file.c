// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Regular files as the VFS calls them: the tables, and what is not reading, writing, mapping or resizing: open,
 * fsync, seek, fiemap.
 *
 * Where data is, for seek and fiemap, is core/data/data_look.c's: one order of looking for both hosts.  To seek,
 * preallocated blocks that were not written yet are holes.  Blocks that were written count as data whatever is in them.
 *
 * Locking: i_rwsem is held shared while we look, so that only the back end changes things.
 */
#include <linux/blkdev.h>
#include <linux/fiemap.h>
#include <linux/filelock.h>
#include <linux/splice.h>
#include "core/inode/inode_quota.h"
#include "linux/folio.h"

static int file_open(struct inode *inode, struct file *file)
{
	file->f_mode |= FMODE_CAN_ODIRECT | FMODE_NOWAIT | FMODE_CAN_ATOMIC_WRITE;
	return generic_file_open(inode, file);
}

/* Of a dirty inode nobody hears when its last user goes. */
static int file_release(struct inode *inode, struct file *file)
{
	if (unlikely(!inode->i_nlink))
		inode_quota_unused(core_of(inode));
	return 0;
}

/*
 * Pages that are written to through a mapping are dirty in a delta from the fault on; those that a device wrote to behind
 * our back are looked for.  If it did while the volume is frozen, they are durable when it was thawed.
 *
 * After the volume has stopped: what was not committed is lost.  Each file that was open before is told by -EIO, once,
 * as everywhere in Linux; whoever asks again, or has opened it since, gets -EROFS: it is not durable, and never
 * will be.  A file of which nothing was lost is durable.
 */
int file_fsync(struct file *file, loff_t start, loff_t end, int datasync)
{
	struct tux3_node *node = node_of(file_inode(file));
	int err, seen;

	while ((err = file_redirty_strays(node)) == -EBUSY) {
		sb_start_intwrite(node->vfs.i_sb);	/* the thaw */
		sb_end_intwrite(node->vfs.i_sb);
	}
	if (!err)
		err = fsync_inode(&node->core, true);
	else if (volume_error(node->core.vol))
		err = -EROFS;
	if (unlikely(err == -EROFS))
		node_lost(node);
	seen = file_check_and_advance_wb_err(file);
	return seen ? seen : err;
}

/* ---- seeking ---- */

static loff_t file_llseek(struct file *file, loff_t offset, int whence)
{
	struct inode *inode = file->f_mapping->host;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return generic_file_llseek(file, offset, whence);
	inode_lock_shared(inode);
	offset = data_seek(core_of(inode), i_size_read(inode), offset, whence == SEEK_HOLE);
	inode_unlock_shared(inode);
	return offset < 0 ? offset : vfs_setpos(file, offset, inode->i_sb->s_maxbytes);
}

/* ---- fiemap ---- */

struct fiemap_walk {
	struct tux3_node *node;
	struct fiemap_extent_info *info;
	u64 block, count, addr;		/* an extent found, but not told: it may go on, or be the last. count 0: none */
	u32 flags;			/* FIEMAP_EXTENT_... */
};

/* 0, 1: the user's buffer is full, or -errno. */
static int fiemap_tell(struct fiemap_walk *walk, u32 more_flags)
{
	u32 shift = walk->node->core.vol->block_shift;
	u64 len = walk->count << shift;

	if (!walk->count)
		return 0;
	if (walk->flags & FIEMAP_EXTENT_DATA_INLINE)
		len = min_t(u64, len, i_size_read(&walk->node->vfs));
	return fiemap_fill_next_extent(walk->info, walk->block << shift, walk->addr << shift, len,
				       walk->flags | more_flags);
}

static u32 fiemap_flags(const struct data_look *look)
{
	static const u32 flags[] = {
		[DATA_UNWRITTEN] = FIEMAP_EXTENT_UNWRITTEN,
		[DATA_MAPPED] = 0,
		[DATA_INLINE] = FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED,
	};

	return flags[look->kind] | (look->delayed ? FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN : 0);
}

static int fiemap_found(struct fiemap_walk *walk, const struct data_look *look)
{
	u32 flags = fiemap_flags(look);
	int err;

	if (walk->count && walk->flags == flags && walk->block + walk->count == look->block &&
	    (!look->addr || walk->addr + walk->count == look->addr)) {
		walk->count += look->count;
		return 0;
	}
	err = fiemap_tell(walk, 0);
	walk->block = look->block;
	walk->count = look->count;
	walk->addr = look->addr;
	walk->flags = flags;
	return err;
}

/* Does anything follow? */
static int fiemap_goes_on(struct tux3_node *node, u64 block, u64 end, bool *goes_on)
{
	struct data_look look;
	int got;

	data_look_begin(&look, &node->core, block, end);
	do {
		got = data_look_next(&look);
		cond_resched();
	} while (got > 0 && look.kind == DATA_HOLE && !fatal_signal_pending(current));
	*goes_on = got > 0;
	return min(got, 0);
}

static int fiemap_walk(struct fiemap_walk *walk, u64 block, u64 end, u64 stop)
{
	struct data_look look;
	bool goes_on;
	int err;

	data_look_begin(&look, &walk->node->core, block, stop);
	while ((err = data_look_next(&look)) > 0) {
		err = look.kind == DATA_HOLE ? 0 : fiemap_found(walk, &look);
		if (err)
			return min(err, 0);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	if (!err)
		err = fiemap_goes_on(walk->node, stop, end, &goes_on);
	if (!err)
		err = fiemap_tell(walk, goes_on ? 0 : FIEMAP_EXTENT_LAST);
	return min(err, 0);
}

static int file_fiemap(struct inode *inode, struct fiemap_extent_info *info, u64 start, u64 len)
{
	struct fiemap_walk walk = { .node = node_of(inode), .info = info };
	u32 shift = vol_of(inode)->block_shift;
	int err = fiemap_prep(inode, info, start, &len, 0);

	/* What is dirty was written by that; what is only preallocated has no pages. */
	if (!err && info->fi_flags & FIEMAP_FLAG_SYNC)
		err = delta_commit_inode(core_of(inode));
	if (err)
		return err;
	inode_lock_shared(inode);
	err = fiemap_walk(&walk, start >> shift, (TUX3_SIZE_MAX >> shift) + 1,
			  ((start + len - 1) >> shift) + 1);
	inode_unlock_shared(inode);
	return err;
}

/* ---- the tables ---- */

const struct inode_operations file_inode_ops = {
	.setattr = node_setattr,
	.getattr = node_getattr,
	.update_time = node_update_time_op,
	.listxattr = node_listxattr,
	.get_inode_acl = node_get_acl,
	.set_acl = node_set_acl,
	.fileattr_get = node_fileattr_get,
	.fileattr_set = node_fileattr_set,
	.fiemap = file_fiemap,
};

const struct file_operations file_file_ops = {
	.owner = THIS_MODULE,
	.fop_flags = FOP_BUFFER_RASYNC | FOP_BUFFER_WASYNC | FOP_DONTCACHE,
	.open = file_open,
	.release = file_release,
	.llseek = file_llseek,
	.read_iter = file_read_iter,
	.write_iter = file_write_iter,
	.iopoll = iocb_bio_iopoll,
	.splice_read = filemap_splice_read,
	.splice_write = iter_file_splice_write,
	.mmap = file_mmap,
	.fsync = file_fsync,
	.fallocate = file_fallocate,
	.setlease = generic_setlease,
	.unlocked_ioctl = node_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
