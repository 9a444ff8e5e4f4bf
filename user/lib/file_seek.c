/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SEEK_DATA and SEEK_HOLE.  Where data is, is core/data/data_look.c's.  Preallocated blocks that were not written yet are
 * holes.  Blocks that were written count as data whatever is in them.
 */
#include "lib.h"

#include <unistd.h>

int64_t tux3_seek(struct tux3_node *node, uint64_t offset, int whence)
{
	u32 shift = node->volume->shift;
	struct data_look look;
	struct tux3_attr attr;
	u64 found;
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
	data_look_begin(&look, &node->inode, offset >> shift, ((attr.size - 1) >> shift) + 1);
	err = data_look_seek(&look, whence == SEEK_HOLE, &found);
	if (err)
		result = err;
	else if (found == DATA_END)
		result = whence == SEEK_DATA ? -ENXIO : (int64_t)attr.size;
	else
		result = max(offset, found << shift);
	up_read(&node->lock);
	return result;
}
