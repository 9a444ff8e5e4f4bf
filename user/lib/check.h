/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker on a volume that somebody else has open and writes: a hold (core/scrub/hold.h), and volume_check() of what is held.
 * For tux3 scrub and tux3_check().
 */
#ifndef TUX3_LIB_CHECK_H
#define TUX3_LIB_CHECK_H

#include "core/check/check.h"
#include "core/device/device.h"
#include "core/ioctl.h"

#define HELD_PROBLEMS_MAX 1000u		/* more are only counted */

struct held_problem {
	struct check_problem problem;	/* without raw_name */
	char *path;			/* of its inode, or NULL */
};

struct held_check {
	/* In.  Asks the volume: 0 or -errno. */
	int (*hold)(void *ctx, struct tux3_ioc_hold *hold);
	void (*progress)(void *ctx, enum check_pass pass, u64 done, u64 total);		/* or NULL */
	void *ctx;
	volatile int *stop;		/* or NULL: end as soon as this is not 0 */
	bool own_device;		/* nobody else uses `below`: it gets the block size of the volume */
	bool image;			/* with own_device: it was found by a name, which may lead elsewhere by now */
	bool wait;			/* for who has a hold now, also if he is dead: TUX3_HOLD_S seconds */
	/* Out. */
	struct check_result result;
	struct held_problem *problems;
	u32 count;
	char why[256];			/* of an error */
};

/*
 * below: the device, which may be the one that the volume itself uses.  0: what was found is in `problems`, for held_check_free().
 * -ESTALE: the hold was over each time before the check was, and -EBUSY: another check is under way; nothing is known then.
 * -ECANCELED: stop.  Else: it could not be done.
 */
int held_check(struct held_check *check, struct tux3_device *below);
void held_check_free(struct held_check *check);

#endif
