/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Making an empty volume. */
#ifndef TUX3_MKFS_H
#define TUX3_MKFS_H

#include "core/env.h"
#include "core/format/format.h"

struct tux3_device;

struct format_options {
	u64 size_bytes;		/* 0: that of the device; rounded down to 64 KiB */
	u32 block_size;		/* 0: 4096 */
	u8 uuid[16];		/* all zero: random */
	char label[TUX3_LABEL_MAX];
	bool no_data_csum;
	bool quota;
	u32 root_uid, root_gid, root_mode;	/* mode 0: 0755 */
};
/* Writes the root node, one free-map slot and the anchors, flushes. */
int volume_format(struct tux3_device *dev, const struct format_options *opts, char *why, size_t why_size);

#endif
