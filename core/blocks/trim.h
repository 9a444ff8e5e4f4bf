/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Discarding free blocks.  The idea is told in trim.c.
 */
#ifndef TUX3_TRIM_H
#define TUX3_TRIM_H

#include "core/env.h"
#include "core/blocks/balloc.h"

struct volume;

struct trim {
	struct range_list freed;	/* commit_mutex: noted by commits */
	struct range_list work;		/* being trimmed, in order */
	u32 at;				/* the next of work */
};

/*
 * Discard the free blocks in [start, start + count), in runs of at least min_blocks.  Any thread, outside a delta;
 * may take long, ends early with -EINTR when the task is killed.  *trimmed: blocks discarded, set on errors too.
 * -EROFS; -EBUSY: the volume is paused; the device's error.
 */
int volume_trim(struct volume *vol, u64 start, u64 count, u64 min_blocks, u64 *trimmed);
/* With delta.paused or read_only set: nothing is discarded after this. */
void trim_wait(struct volume *vol);

void trim_init(struct volume *vol);
void trim_exit(struct volume *vol);
/* Back end.  Commit: these are about to be released.  commit_mutex held. */
void trim_note(struct volume *vol, const struct range_list *freed);
bool trim_pending(struct volume *vol);		/* commit_mutex held */
void trim_collect(struct volume *vol);		/* commit_mutex held; then ... */
void trim_background(struct volume *vol);	/* ... a turn of work, best without it */

#endif
