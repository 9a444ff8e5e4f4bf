/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Volumes of all shapes, as they follow from a seed: block sizes, with quotas and without checksums of data, empty and full, closed
 * or as a crash leaves them; with files of all kinds.  For fuzz_repair.c and what damages them.
 */
#ifndef TUX3_FUZZ_VOLUMES_H
#define TUX3_FUZZ_VOLUMES_H

#include "tests/unit/support_lib.h"

#define STAGES		4u
#define UNNAMED_MAX	40u

/* One seed. */
struct trial {
	u64 seed, random;
	bool verbose;
	struct bed bed;
	u32 block_size;
	u64 bytes, blocks;		/* of the device */
	u8 *stage[STAGES];		/* what it had earlier */
	struct tux3_node *unnamed[UNNAMED_MAX];	/* files without a name, while they are open */
	u32 unnamed_count;
};

u32 below(struct trial *trial, u32 limit);		/* 0: 0 */
static inline bool one_in(struct trial *trial, u32 n)
{
	return !below(trial, n);
}

u8 *trial_block(struct trial *trial, u64 block);	/* as the device has it */
u8 *trial_copy(struct trial *trial);			/* of the whole device, to be freed */
void trial_say(struct trial *trial, const char *form, ...) __printf(2, 3);	/* if verbose */

/* So many bytes, of some value.  Returns what tux3_write() does. */
ssize_t trial_write(struct trial *trial, struct tux3_node *node, u32 bytes, u64 offset);

/* trial->seed, verbose are set.  The volume is on the device, and not open. */
void volumes_make(struct trial *trial);

#endif
