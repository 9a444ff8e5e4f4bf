/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What make_golden.py wants of a volume beyond tux3.h: commits only when it says so, deletes in small slices, and a file that is
 * written to by others.  It is linked with libtux3 into a library of its own, which only the maker of images loads.
 */
#include <fcntl.h>
#include "user/lib/internal.h"
#include "user/lib/lib.h"
#include "user/env/device_file.h"
#include "core/data/data.h"
#include "core/data/data_change.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"

TUX3_API int golden_open(const char *path, unsigned int slice_extents, unsigned int fsync_how, bool cut_log, struct tux3 **volume,
			 char *why, size_t why_size);
TUX3_API int golden_uncheck(struct tux3_node *node, uint64_t blocks);

int golden_open(const char *path, unsigned int slice_extents, unsigned int fsync_how, bool cut_log, struct tux3 **volume,
		char *why, size_t why_size)
{
	struct volume_options opts = { .manual = true, .slice_extents = slice_extents, .fsync = fsync_how, .cut_log = cut_log };
	struct tux3_device *dev;
	int err = device_open_file(path, DEVICE_OPEN_WRITE, &dev, why, why_size);

	if (err)
		return err;
	err = tux3_open_device(dev, true, &opts, 0, volume, why, why_size);
	if (err)
		dev->ops->close(dev);
	return err;
}

/* As swapon does it: all of the file is on the disk; each extent goes in a delta of its own. */
int golden_uncheck(struct tux3_node *node, uint64_t blocks)
{
	struct volume *vol = node->inode.vol;
	struct data_extent extent;
	struct delta_op op;
	uint64_t block;
	int err = 0;

	for (block = 0; !err && block < blocks; block += extent.count) {
		err = data_map(&node->inode, block, blocks - block, &extent, NULL, 0);
		if (err || !extent.has_csum)
			continue;
		err = delta_enter(vol, &op, space_cost_items(vol, DATA_UNCHECK_ITEMS), 0);
		if (err)
			continue;
		data_uncheck(&op, &node->inode, block, extent.count);
		delta_leave(&op);
	}
	return err;
}
