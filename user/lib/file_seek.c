/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SEEK_DATA and SEEK_HOLE.  Where data is, is core/data/data_look.c's.  Preallocated blocks that were not written yet are
 * holes.  Blocks that were written count as data whatever is in them.
 */
#include "lib.h"

#include <unistd.h>

int64_t tux3_seek(struct tux3_node *node, uint64_t offset, int whence)
{
	int64_t found;

	if (!S_ISREG(node_type(node)) || (whence != SEEK_DATA && whence != SEEK_HOLE))
		return -EINVAL;
	down_read(&node->lock);
	found = data_seek(&node->inode, node->inode.attr.size, offset, whence == SEEK_HOLE);
	up_read(&node->lock);
	return found;
}
