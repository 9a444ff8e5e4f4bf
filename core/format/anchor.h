/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Finding the anchor of a volume, with nothing but its device. */
#ifndef TUX3_ANCHOR_H
#define TUX3_ANCHOR_H

#include "core/env.h"
#include "core/format/format.h"

struct tux3_device;

/* Find the anchor that counts, without opening: for tools and volume_open.  slot may be NULL. */
int volume_read_anchor(struct tux3_device *dev, struct disk_anchor *anchor, unsigned int *slot,
		       char *why, size_t why_size);
/* One slot as it is on the disk (n < TUX3_ANCHOR_SLOTS): 0 and valid, or -errno and why. */
int volume_read_anchor_slot(struct tux3_device *dev, unsigned int n, struct disk_anchor *anchor,
			    char *why, size_t why_size);
u64 anchor_slot_offset(u64 volume_bytes, unsigned int slot);	/* bytes */
void anchor_seal(struct disk_anchor *anchor);			/* set its checksum */
/* Is it whole, for this place, and possible?  0, or -EINVAL, -EOPNOTSUPP, -EIO and a sentence. */
int anchor_check(const struct disk_anchor *anchor, u64 offset, char *why, size_t why_size);
/*
 * What lies where a copy of the anchor with this generation belongs.  0: that; 1: a later one; -ESTALE: what was there before, so
 * that the power failed before it was written; else damage, and a sentence.
 */
int anchor_check_copy(const struct disk_anchor *copy, u64 offset, u64 volume_id, u64 generation, char *why, size_t why_size);
/* The same anchor at another of its places, which is this block; without a flush.  0 or an error of the device, -ENOMEM. */
int anchor_write_copy(struct tux3_device *dev, const struct disk_anchor *anchor, u64 addr);

#endif
