/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fsck.tux3: what checking (fsck.c) and repairing (fsck_repair.c) share. */
#ifndef TUX3_TOOLS_FSCK_H
#define TUX3_TOOLS_FSCK_H

#include "common.h"
#include "core/check/check.h"
#include "core/repair/repair.h"

enum fsck_mode {
	FSCK_CHECK,		/* change nothing */
	FSCK_SAFE,		/* repair if nothing is lost by it */
	FSCK_ALL,		/* repair what can be */
};

/* What the repair did, or would do; kept until it is known which. */
struct fsck_note {
	enum repair_kind kind;
	u64 ino;
	char *text;
};

struct fsck {
	const char *path, *undo_path;
	enum fsck_mode mode;
	bool mode_given;
	bool data, force, json, verbose, search;
	u64 limit, told;
	struct progress progress;
	struct tool_volume tool;
	struct check_result result;	/* of the last check */
	u64 problems;		/* what the first check found */
	/* Of the repair: */
	bool tried;
	struct repair_result repair;
	u64 left;
	struct fsck_note *notes;
	u64 note_count, note_room;
	bool notes_missing;	/* there was no memory for all */
	bool undo_ended;	/* the undo file has its end */
	u64 undo_unreadable_bytes;	/* that it has zeros for */
};

/*
 * After a check that found problems; the volume is closed.  An exit code; on one with EXIT_OPERATION, and if -p would lose
 * something, a sentence in why.  repair.written: what was repaired counts, whatever the code is.
 */
int fsck_repair(struct fsck *fsck, char *why, size_t why_size);
void fsck_repair_free(struct fsck *fsck);
void fsck_tell_cut(const char *path, char *why, size_t why_size);	/* if the volume is larger than its device: what to do */
/* The program is to end (in a signal handler).  0: nothing was changed; -EBUSY: the repair is being written; 1: it was. */
int fsck_repair_cancel(void);
bool fsck_is_interrupted(void *ctx);
void fsck_block_signals(bool block);		/* those that cancel */

/* For repair_options. */
void fsck_on_problem(void *ctx, const struct check_problem *problem);
void fsck_on_progress(void *ctx, enum check_pass pass, u64 done, u64 total);

#endif
