/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker: are there both copies of the newest anchor?
 *
 * One that is as it was before this anchor was written is no damage: the power failed meanwhile, and a volume goes on from there.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/device/device.h"
#include "core/format/anchor.h"
#include "core/check/check_internal.h"

#define LOOKS 3u	/* of a hold: it may be written over while it is read */

/* As anchor_check_copy(). */
static int look(struct check *check, u64 addr, void *block, char *why, size_t why_size)
{
	struct volume *vol = check->vol;
	u32 looks = vol->of_hold ? LOOKS : 1;
	int err;

	do {
		err = device_read(vol->dev, addr, 1, block);
		if (err)
			snprintf(why, why_size, "the device failed to read it (%s)", error_text(err));
		else
			err = anchor_check_copy(block, addr << vol->block_shift, vol->id, le64_to_cpu(vol->anchor.generation),
						why, why_size);
		if (err == -EINVAL)
			snprintf(why, why_size, "there is no anchor");
	} while (err < 0 && err != -ESTALE && --looks);
	return err;
}

int check_anchor(struct check *check)
{
	struct volume *vol = check->vol;
	u64 bytes = vol->total_blocks << vol->block_shift, addr;
	void *block = kvmalloc(vol->block_size, GFP_KERNEL);
	char why[160];
	u32 slot, n;
	int err = 0;

	if (!block)
		return check_fail(check, -ENOMEM);
	for (slot = 0; slot < 2 && anchor_slot_offset(bytes, slot) != le64_to_cpu(vol->anchor.slot_offset) &&
	     anchor_slot_offset(bytes, slot + 2) != le64_to_cpu(vol->anchor.slot_offset); slot++)
		;
	for (n = 0; slot < 2 && n < TUX3_ANCHOR_SLOTS && !check->stop; n++) {
		bool newest = n % 2 == slot;

		addr = anchor_slot_offset(bytes, n) >> vol->block_shift;
		err = look(check, addr, block, why, sizeof(why));
		check->result->anchor_copies += newest && err >= 0;
		/* Of the older one it is no problem: the next may have been cut off there, and will be written over it. */
		if (err < 0 && err != -ESTALE && newest)
			check_problem(check, ANCHOR_COPY, 0, addr, why, addr);
		else if (err < 0 && err != -ESTALE)
			check->result->older_anchors_bad++;
	}
	kvfree(block);
	return check->stop;
}
