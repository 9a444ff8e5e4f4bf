/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Damage that follows from a seed: mostly to what the volume means, under right checksums. */
#ifndef TUX3_FUZZ_DAMAGE_H
#define TUX3_FUZZ_DAMAGE_H

#include "volumes.h"

/* Of one to ten kinds.  The volume is not open. */
void damage_volume(struct trial *trial);

#endif
