/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tux3_scrub.c (the command) and tux3_scrub_check.c (its last phase). */
#ifndef TUX3_TOOLS_SCRUB_H
#define TUX3_TOOLS_SCRUB_H

#include "common.h"
#include "user/lib/check.h"

struct scrub_check {
	/* In. */
	const char *path;		/* for messages */
	int fd;				/* of the mount point */
	u64 rate;			/* bytes in a second, or 0 */
	struct progress *progress;
	/* Out. */
	bool done;			/* held.result and held.problems count */
	struct held_check held;		/* .stop is in; held_check_free() it */
	/* While it runs. */
	struct tux3_device *dev;
	u64 started_ns;
};

/* 0; EXIT_OPERATION, and it was said why; EXIT_CANCELED. */
int scrub_check(struct scrub_check *check);

/* Wait until as much time has passed as so many bytes take at the rate (bytes in a second; 0: none), or *stop is set. */
void scrub_keep_rate(u64 rate, u64 bytes, u64 started_ns, const volatile int *stop);

#endif
