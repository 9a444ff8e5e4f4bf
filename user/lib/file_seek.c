/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SEEK_DATA and SEEK_HOLE: what the tree has, together with the blocks that are dirty in the cache.
 * Preallocated blocks that were not written yet are holes.  Blocks that were written count as data whatever is in them.
 */
#include "lib.h"

#include <unistd.h>

static int seek_data(struct tux3_node *node, u64 block, u64 *found)
{
	int err = data_seek(&node->inode, block, false, found);

	if (!err)
		*found = min(*found, file_cache_seek_dirty(node, block, true));
	return err;
}

/* A hole in both. */
static int seek_hole(struct tux3_node *node, u64 block, u64 end, u64 *found)
{
	int err;

	for (;;) {
		err = data_seek(&node->inode, block, true, found);
		if (err || *found >= end)
			return err;
		block = file_cache_seek_dirty(node, *found, false);
		if (block == *found)
			return 0;
		if (block >= end) {
			*found = block;
			return 0;
		}
	}
}

int64_t tux3_seek(struct tux3_node *node, uint64_t offset, int whence)
{
	u32 shift = node->volume->shift;
	struct tux3_attr attr;
	u64 found = 0;
	int64_t result;
	int err;

	if (!S_ISREG(node_type(node)) || (whence != SEEK_DATA && whence != SEEK_HOLE))
		return -EINVAL;
	down_read(&node->lock);
	inode_get_attr(&node->inode, &attr);
	if (offset >= attr.size) {
		up_read(&node->lock);
		return -ENXIO;
	}
	if (whence == SEEK_DATA)
		err = seek_data(node, offset >> shift, &found);
	else
		err = seek_hole(node, offset >> shift, ((attr.size - 1) >> shift) + 1, &found);
	if (err)
		result = err;
	else if (found > (attr.size - 1) >> shift)
		result = whence == SEEK_DATA ? -ENXIO : (int64_t)attr.size;
	else
		result = max(offset, found << shift);
	up_read(&node->lock);
	return result;
}
