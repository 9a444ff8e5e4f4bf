// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Swap files: swapon(2), swapoff(2).
 *
 * Swap writes to a file's blocks by itself, on the block device, with memory short and no delta in sight.  So while it is
 * on, the file's blocks stay where they are; and as nobody will know their checksums, the extents lose theirs first
 * (UNCHECKED, FORMAT.md 6.6).  They stay so after swapoff: what swap wrote can be read, until somebody writes to the file or
 * removes it.  Preallocated blocks stay unwritten, and read as zeros whatever swap wrote there.
 *
 * Order in swapon, with i_rwsem held exclusively:
 *
 *  1. NODE_SWAP is set, with invalidate_lock: faults and strays (mmap.c, writeback.c), which hold that and not i_rwsem,
 *     look for it.  So no block gets dirty any more;
 *  2. a commit, and none is;
 *  3. extents with checksums are unchecked, each in a delta, and these committed.  When that is durable, no recovery
 *     compares what swap writes with a checksum;
 *  4. the VFS is told where the blocks are, and sets S_SWAPFILE, which keeps away writes, truncates and unlinks
 *     (size.c refuses to make the file longer, which may rewrite its last block).
 */
#include <linux/swap.h>
#include "linux/vfs.h"

struct swap_walk {
	struct tux3_node *node;
	struct swap_info_struct *swap;
	u32 shift;		/* from blocks to pages */
	u64 end;		/* blocks */
	int extents;
	u64 lowest, highest;	/* pages on the device, without the one of the header */
};

/* The next extent, all of it or up to the end of what swap uses. */
static int swap_next(struct swap_walk *walk, u64 block, struct data_extent *extent)
{
	struct volume *vol = walk->node->core.vol;
	int err = data_map(&walk->node->core, block, walk->end - block, extent, NULL, 0);

	if (err || extent->kind == DATA_MAPPED || extent->kind == DATA_UNWRITTEN)
		return err;
	volume_warn(vol, "file %llu cannot be used for swap: it has no block of its own at offset %llu; preallocate or write all of it first",
		    (unsigned long long)walk->node->vfs.i_ino, (unsigned long long)block << vol->block_shift);
	return -EINVAL;
}

static int swap_uncheck(struct swap_walk *walk)
{
	struct volume *vol = walk->node->core.vol;
	struct data_extent extent;
	struct delta_op op;
	bool any = false;
	u64 block;
	int err;

	for (block = 0; block < walk->end; block += extent.count) {
		err = swap_next(walk, block, &extent);
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
		if (err)
			return err;
		if (!extent.has_csum)
			continue;
		err = delta_enter(vol, &op, space_cost_items(vol, DATA_UNCHECK_ITEMS), 0);
		if (err)
			return err;
		data_uncheck(&op, &walk->node->core, block, extent.count);
		delta_leave(&op);
		any = true;
		cond_resched();
	}
	return any ? delta_commit(vol) : 0;
}

static int swap_add(struct swap_walk *walk, const struct data_extent *extent)
{
	u64 start = extent->block << walk->shift, count = extent->count << walk->shift;
	u64 place = extent->addr << walk->shift;
	int added;

	if (start >= walk->swap->max)
		return 0;
	count = min(count, walk->swap->max - start);
	added = add_swap_extent(walk->swap, start, count, place);
	if (added < 0)
		return added;
	walk->extents += added;
	if (!start) {
		place++;
		count--;
	}
	if (count) {
		walk->lowest = min(walk->lowest, place);
		walk->highest = max(walk->highest, place + count - 1);
	}
	return 0;
}

static int swap_add_extents(struct swap_walk *walk)
{
	struct data_extent extent;
	u64 block;
	int err = 0;

	for (block = 0; block < walk->end && !err; block += extent.count) {
		err = swap_next(walk, block, &extent);
		if (!err)
			err = swap_add(walk, &extent);
		cond_resched();
	}
	return err;
}

int file_swap_activate(struct swap_info_struct *swap, struct file *file, sector_t *span)
{
	struct tux3_node *node = node_of(file_inode(file));
	struct volume *vol = node->core.vol;
	struct swap_walk walk = {
		.node = node, .swap = swap, .shift = vol->block_shift - PAGE_SHIFT, .lowest = U64_MAX,
	};
	int err;

	/* swapon() lets a file pass that is shorter than a page: a mapping can have stored a header beyond its end. */
	if (i_size_read(&node->vfs) >> PAGE_SHIFT < swap->max) {
		volume_warn(vol, "file %llu cannot be used for swap: it is shorter than its swap header says; run mkswap again",
			    (unsigned long long)node->vfs.i_ino);
		return -EINVAL;
	}
	/* Frozen: nothing can be committed.  Waiting for the thaw with i_rwsem would be the wrong order. */
	if (!sb_start_write_trylock(node->vfs.i_sb))
		return -EBUSY;
	walk.end = DIV_ROUND_UP_ULL(swap->max, 1u << walk.shift);
	filemap_invalidate_lock(node->vfs.i_mapping);
	set_bit(NODE_SWAP, &node->flags);
	filemap_invalidate_unlock(node->vfs.i_mapping);
	err = delta_commit(vol);
	if (!err)
		err = swap_uncheck(&walk);
	if (!err)
		err = swap_add_extents(&walk);
	sb_end_write(node->vfs.i_sb);
	if (err) {
		clear_bit(NODE_SWAP, &node->flags);
		return err;
	}
	*span = walk.highest - min(walk.lowest, walk.highest) + 1;
	return walk.extents;
}

/* After the last I/O.  The page cache does not have what swap wrote. */
void file_swap_deactivate(struct file *file)
{
	struct inode *inode = file_inode(file);

	invalidate_mapping_pages(inode->i_mapping, 0, -1);
	clear_bit(NODE_SWAP, &node_of(inode)->flags);
}
