/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Time and chance on a string, for tests that must repeat exactly. */
#ifndef TUX3_ENV_CLOCK_H
#define TUX3_ENV_CLOCK_H

#include <linux/types.h>

/* Where ktime_get_real_ts64() and its coarse sister take the time from; NULL: the real clock. */
void env_set_clock(u64 (*real_ns)(void));

/* ktime_get_ns() jumps ahead, as if so much time had passed: for devices whose slowness is only reckoned. */
void env_pass_time(u64 ns);
u64 env_passed_ns(void);		/* all jumps together */

/* Random numbers follow from the seed; 0: real ones again. */
void env_set_random_seed(u64 seed);

#endif
