/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A hold: the tree of one anchor stays readable on the device of a volume in use, so that the checker can look at all of it at
 * one moment: names against parent pointers, link counts, block counts, quotas, and free maps as far as they are still there.
 *
 * Who takes a hold gets an anchor, of a moment that is not before the call.  He opens the device for himself, with
 * volume_options.anchor, and checks (volume_check()).  Blocks of data are used again meanwhile, and those of the log; of the two
 * slots of a free map, the one that goes with the anchor is overwritten by the second unify that changes it, which the checker
 * sees.  At the end he renews the hold.  If that fails, what he has seen means nothing: the hold was over before its time.  It
 * ends when it was not renewed for TUX3_HOLD_S seconds, when the volume changes between read-only and writable or is closed,
 * and at once when what it keeps may be missed: nobody is refused space, or waits for it, because of a hold.
 *
 * What is kept is in core/blocks/held.h.  One hold at a time.
 */
#ifndef TUX3_HOLD_H
#define TUX3_HOLD_H

#include "core/env.h"
#include "core/ioctl.h"

struct volume;

/*
 * TAKE commits and unifies first, unless the volume is read-only or frozen.  0; -EBUSY: somebody else has one; -ESTALE: it is over;
 * -EINVAL; -EINTR: killed; the volume's error.  Not inside a delta, without locks.
 */
int volume_hold(struct volume *vol, struct tux3_ioc_hold *hold);

#endif
