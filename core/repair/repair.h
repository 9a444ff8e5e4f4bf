/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: a volume that the checker has complaints about becomes one that it has none about.
 *
 * For tools only, on a device that nobody else uses.  What the core may rely on, best first: nodes of the tree with a right
 * checksum, the log, parent pointers and directory entries, data checksums.  All is done in memory, with the means of
 * the back end (dirty nodes, free maps); then it becomes durable as a whole, by one unify: nodes go to blocks that were
 * free before, and the anchor is written last.  So if it is interrupted, what was there is still there, and repair can be
 * begun again.
 *
 *	the tree	A node that cannot be used is cut off.  The device is searched for the leaves that it led to
 *			(repair_tree.c): blocks in use that nothing leads to, the newest ones first.
 *	the free maps	are made anew from what the tree has in use (repair_space.c).
 *	the log		is replayed on top; a record that does not fit is left out, and told.
 *	all else	The checker says what is wrong, and that object is put right (repair_inode.c, repair_names.c,
 *			repair_blocks.c), until the checker is silent or nothing changes any more.
 *
 * What has no place is given a name in lost+found, in the root directory.  Nothing is dropped without being told.
 */
#ifndef TUX3_REPAIR_H
#define TUX3_REPAIR_H

#include "core/env.h"
#include "core/check/check.h"

struct tux3_device;

enum repair_kind {
	REPAIR_MENDED,		/* put right, and nothing is missing */
	REPAIR_FOUND,		/* came back: leaves that were searched for, files in lost+found, directories made anew */
	REPAIR_LOST,		/* is gone: a name, an item, blocks of a file */
	REPAIR_LEFT,		/* a problem that is still there */
	REPAIR_KINDS
};

struct repair_note {
	enum repair_kind kind;
	u64 ino;		/* 0: none */
	const char *text;	/* a sentence */
};

struct repair_options {
	/*
	 * Write only if nothing is lost by it (no note is REPAIR_LOST); else -ENOTRECOVERABLE, and the device is as it was.
	 */
	bool safe;
	/*
	 * Where there is no anchor: search the device for a volume.  Only if the user says so: what is there may be of an older
	 * volume, which another filesystem has overwritten in part.
	 */
	bool search;
	void (*note)(void *ctx, const struct repair_note *note);
	/* Called for each problem that the first check tells, before anything is changed.  May be NULL. */
	void (*problem)(void *ctx, const struct check_problem *problem);
	void (*progress)(void *ctx, enum check_pass pass, u64 done, u64 total);	/* may be NULL */
	void *ctx;
};

struct repair_result {
	u64 notes[REPAIR_KINDS];
	u64 leaves;		/* that were found by searching */
	bool written;		/* something was changed on the device */
	struct check_result check;	/* after it */
};

/*
 * dev: writable, and nobody else's.  0: it ran to its end; look at result->notes[REPAIR_LEFT].  -ENOTRECOVERABLE: see safe.  Other
 * -errno, and a sentence in why: could not (no anchor, no memory, no space for the new nodes, I/O).
 */
int volume_repair(struct tux3_device *dev, const struct repair_options *opts, struct repair_result *result,
		  char *why, size_t why_size);

#endif
