/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Attributes as they are on the disk. */
#ifndef TUX3_ATTR_H
#define TUX3_ATTR_H

#include "core/env.h"
#include "core/format/format.h"

#define ATTR_LINKS_MAX	((u32)S32_MAX)

/* Can any inode have these, on a volume of so many blocks?  By themselves: what they count may still be wrong. */
bool attr_possible(const struct disk_attr *attr, u64 total_blocks);
bool attr_mode_possible(u32 mode);	/* of these the mode: one of the file types, permissions, and no more */

#endif
