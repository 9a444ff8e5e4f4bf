/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Time and chance on a string, for tests that must repeat exactly. */
#ifndef TUX3_ENV_CLOCK_H
#define TUX3_ENV_CLOCK_H

#include <linux/types.h>

/* Where ktime_get_real_ts64() and its coarse sister take the time from; NULL: the real clock.  ktime_get_ns() stays real. */
void env_set_clock(u64 (*real_ns)(void));

/* Random numbers follow from the seed; 0: real ones again. */
void env_set_random_seed(u64 seed);

#endif
