/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Quotas of a volume that was made without them, and the other way round. */
#ifndef TUX3_QUOTA_SWITCH_H
#define TUX3_QUOTA_SWITCH_H

#include "core/env.h"
#include "core/check/check.h"

struct quota_switch {
	bool on;		/* off: usage is no longer counted, and limits are forgotten */
	/* As that of check_options. */
	void (*progress)(void *ctx, enum check_pass pass, u64 done, u64 total);
	void *ctx;
};

/*
 * For tools, on a volume that was opened for writing (volume_options.manual) and that nobody uses; it has to be closed
 * afterwards, before anything is changed.  All of it becomes durable with one anchor: the volume has quotas with the usage of all
 * inodes, or none.
 * 0: it is durable, or was so already.  -EUCLEAN: the checker has something to say of the volume; -ENOSPC: the quota items do not
 * fit: then nothing was changed on the device but that what was in the log is committed.  Others; after one of writing the next
 * open tells whether the anchor came to be.  A sentence is in why, and the volume is to be abandoned (volume_abandon()).
 */
int volume_switch_quota(struct volume *vol, const struct quota_switch *to, char *why, size_t why_size);

#endif
