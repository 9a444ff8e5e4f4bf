/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Small pieces of apply.c that the reading side shares: is what the tree says about blocks possible?
 */
#ifndef TUX3_APPLY_H
#define TUX3_APPLY_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/data/data.h"

struct volume;

/* A run of blocks within the volume, its ends not on fixed blocks. */
bool apply_blocks_valid(struct volume *vol, u64 addr, u64 count);
/* An extent item of len bytes: 0 or -EIO. */
int extent_check(struct volume *vol, const void *data, u32 len);
/* Bytes of the xattr entry with what follows it, 0 if it does not fit into left bytes. */
u32 xattr_entry_size(const struct disk_xattr *entry, u32 left);

#endif
