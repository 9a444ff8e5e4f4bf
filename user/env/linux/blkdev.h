/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Plugging: in the kernel, writes that a task submits are held back for a moment so that neighbours can be joined.  Here the
 * devices (write_queue.c) do that on their own.
 */
#ifndef _LINUX_BLKDEV_H
#define _LINUX_BLKDEV_H

struct blk_plug {
	char unused;
};

static inline void blk_start_plug(struct blk_plug *plug)
{
}

static inline void blk_finish_plug(struct blk_plug *plug)
{
}

#endif
