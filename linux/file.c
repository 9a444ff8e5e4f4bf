// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Regular files as the VFS calls them: the tables, and what is not reading, writing, mapping or resizing: open,
 * fsync, seek, fiemap.
 *
 * Where data is, for seek and fiemap, is what the tree has together with the blocks that are dirty in the cache.
 * Preallocated blocks that were not written yet are holes.  Blocks that were written count as data whatever is in them.
 *
 * Locking: i_rwsem is held shared while we look, so that only the back end changes things: a block that was dirty may
 * have become mapped since, but none disappears, if the cache is looked at first.
 */
#include <linux/fiemap.h>
#include <linux/splice.h>
#include "linux/folio.h"

static int file_open(struct inode *inode, struct file *file)
{
	/* O_DIRECT is accepted and goes through the page cache; reads from there need not wait. */
	file->f_mode |= FMODE_CAN_ODIRECT | FMODE_NOWAIT;
	return generic_file_open(inode, file);
}

/*
 * Pages that are written to through a mapping are dirty in a delta from the fault on; those that a device wrote to behind
 * our back are looked for.
 */
int file_fsync(struct file *file, loff_t start, loff_t end, int datasync)
{
	struct tux3_node *node = node_of(file_inode(file));
	int err = 0, seen;

	if (unlikely(test_bit(NODE_STRAYS, &node->flags)))
		err = file_redirty_strays(node);
	if (!err)
		err = delta_commit_inode(&node->core);
	seen = file_check_and_advance_wb_err(file);
	return err ? err : seen;
}

/* ---- seeking ---- */

/* The first block at or after this one with data, in the tree or in the cache. */
static int next_data(struct tux3_node *node, u64 block, u64 *found)
{
	u64 dirty = folio_seek_dirty(node, block, true);
	int err = data_seek(&node->core, block, false, found);

	if (!err)
		*found = min(*found, dirty);
	return err;
}

/* A hole in both; end: it need not be looked for there. */
static int next_hole(struct tux3_node *node, u64 block, u64 end, u64 *found)
{
	int err;

	for (;;) {
		u64 clean = folio_seek_dirty(node, block, false);

		err = data_seek(&node->core, block, true, found);
		if (err || *found >= end)
			return err;
		if (*found == block && clean == block)
			return 0;
		block = max(*found, clean);
		if (block >= end) {
			*found = block;
			return 0;
		}
	}
}

static loff_t seek_data_or_hole(struct tux3_node *node, u64 offset, int whence)
{
	u32 shift = node->core.vol->block_shift;
	u64 size = i_size_read(&node->vfs), found, last;
	int err;

	if (offset >= size)
		return -ENXIO;
	last = (size - 1) >> shift;
	if (whence == SEEK_DATA)
		err = next_data(node, offset >> shift, &found);
	else
		err = next_hole(node, offset >> shift, last + 1, &found);
	if (err)
		return err;
	if (found > last)
		return whence == SEEK_DATA ? -ENXIO : (loff_t)size;
	return max(offset, found << shift);
}

static loff_t file_llseek(struct file *file, loff_t offset, int whence)
{
	struct inode *inode = file->f_mapping->host;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return generic_file_llseek(file, offset, whence);
	if (offset < 0)
		return -ENXIO;
	inode_lock_shared(inode);
	offset = seek_data_or_hole(node_of(inode), offset, whence);
	inode_unlock_shared(inode);
	return offset < 0 ? offset : vfs_setpos(file, offset, inode->i_sb->s_maxbytes);
}

/* ---- fiemap ---- */

struct fiemap_walk {
	struct tux3_node *node;
	struct fiemap_extent_info *info;
	u64 block, count, addr;		/* an extent found, but not told: it may go on, or be the last. count 0: none */
	u32 flags;			/* FIEMAP_EXTENT_... */
	u64 dirty;			/* the first one at or after the current block, when last asked */
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

static int fiemap_found(struct fiemap_walk *walk, u64 block, u64 count, u64 addr, u32 flags)
{
	int err;

	if (walk->count && walk->flags == flags && walk->block + walk->count == block &&
	    (!addr || walk->addr + walk->count == addr)) {
		walk->count += count;
		return 0;
	}
	err = fiemap_tell(walk, 0);
	walk->block = block;
	walk->count = count;
	walk->addr = addr;
	walk->flags = flags;
	return err;
}

/* What is at this block: dirty in the cache, where the address is going to change, or as the tree says. */
static int fiemap_step(struct fiemap_walk *walk, u64 block, u64 end, u64 *count)
{
	static const u32 flags[] = {
		[DATA_UNWRITTEN] = FIEMAP_EXTENT_UNWRITTEN,
		[DATA_MAPPED] = 0,
		[DATA_INLINE] = FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED,
	};
	struct data_extent extent;
	int err;

	if (walk->dirty < block || !block)
		walk->dirty = folio_seek_dirty(walk->node, block, true);
	if (walk->dirty == block) {
		*count = min(folio_seek_dirty(walk->node, block, false), end) - block;
		/* Or it has just been committed: the tree has it now. */
		if (*count)
			return fiemap_found(walk, block, *count, 0, FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN);
	}
	err = data_map(&walk->node->core, block, end - block, &extent, NULL, 0);
	if (err)
		return err;
	*count = min(extent.count, end - block);
	if (walk->dirty > block)
		*count = min(*count, walk->dirty - block);
	if (extent.kind == DATA_HOLE)
		return 0;
	return fiemap_found(walk, block, *count, extent.addr, flags[extent.kind]);
}

/* Does anything follow? */
static int fiemap_goes_on(struct tux3_node *node, u64 block, u64 end, bool *goes_on)
{
	struct data_extent extent;
	int err = 0;

	*goes_on = folio_seek_dirty(node, block, true) != DATA_END;
	for (; !err && !*goes_on && block < end; block += extent.count) {
		err = data_map(&node->core, block, end - block, &extent, NULL, 0);
		*goes_on = extent.kind != DATA_HOLE;
	}
	return err;
}

static int fiemap_walk(struct fiemap_walk *walk, u64 block, u64 end, u64 stop)
{
	bool goes_on;
	u64 count;
	int err;

	for (; block < stop; block += count) {
		err = fiemap_step(walk, block, stop, &count);
		if (err)
			return min(err, 0);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
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
	.update_time = node_update_time,
	.listxattr = node_listxattr,
	.get_inode_acl = node_get_acl,
	.set_acl = node_set_acl,
	.fileattr_get = node_fileattr_get,
	.fileattr_set = node_fileattr_set,
	.fiemap = file_fiemap,
};

const struct file_operations file_file_ops = {
	.owner = THIS_MODULE,
	.fop_flags = FOP_BUFFER_RASYNC,
	.open = file_open,
	.llseek = file_llseek,
	.read_iter = file_read_iter,
	.write_iter = file_write_iter,
	.splice_read = filemap_splice_read,
	.splice_write = iter_file_splice_write,
	.mmap = file_mmap,
	.fsync = file_fsync,
	.fallocate = file_fallocate,
	.unlocked_ioctl = node_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
