/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the log means at open: replay, or only a look at it. */
#ifndef TUX3_REPLAY_H
#define TUX3_REPLAY_H

#include "core/env.h"
#include "core/format/format.h"

struct volume;

/* At open, with the tree of the anchor set up.  Takes the state to the last complete commit. */
int replay_log(struct volume *vol, char *why, size_t why_size);
/*
 * Walk the log from the anchor on, without changing anything: for tux3 show.  Each complete commit in
 * order; payload is its record stream.  torn: the last one, whose records or data are not complete.
 */
struct log_commit {
	const struct disk_log *first;	/* header of its first block */
	const struct disk_commit *commit;
	const void *records;
	const u64 *blocks;		/* addresses of its log blocks */
	u32 block_count;
	bool torn;
};
typedef int (*log_commit_fn)(void *ctx, const struct log_commit *commit);
int log_walk(struct volume *vol, log_commit_fn fn, void *ctx);
/* balloc_note_in_log() for all groups that the log names, which is not replayed. */
int log_note_groups(struct volume *vol);

#endif
