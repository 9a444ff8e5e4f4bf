/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: what nobody knows any more, and what becomes of it.
 *
 * Of a leaf that is lost the range of its keys is known.  A hole in a file may have been one before, or have lost its extents
 * there.  If the attributes count as many blocks as there are, none is missing, and all holes stay.  Else the holes that a lost
 * leaf, or an extent that could not stay, may have filled get blocks with wrong checksums: reading them is an error, not zeros that
 * nobody wrote.  That takes blocks, so where such a hole is very large only its beginning gets some; and it takes checksums.
 */
#ifndef TUX3_REPAIR_LOST_H
#define TUX3_REPAIR_LOST_H

#include "core/env.h"

struct repair;

#define LOST_TEXT 100u

struct lost_file {
	u64 ino;
	u64 size_blocks;		/* so far holes matter */
	u64 lost;			/* so many blocks its attributes count too many; 0: they are lost, too */
	u64 filled;			/* out: blocks that it got */
	bool end_filled;		/* out: one of them by repair_fill_end() */
	char text[LOST_TEXT];		/* out: from which file block on; for the end of a sentence */
};

/* These file blocks were in an extent that cannot stay. */
int repair_note_lost(struct repair *repair, u64 ino, u64 block, u64 count);
/* No room is no error: 0, -ENOMEM, or of a look into the tree. */
int repair_fill_lost(struct repair *repair, struct lost_file *file);
int repair_fill_end(struct repair *repair, struct lost_file *file, u64 block);	/* one block, behind all others */

/* It counts so many names, and has less.  They may come back from parent pointers.  0 or -ENOMEM. */
int repair_note_names(struct repair *repair, u64 dir, u64 names);
/* Were extended attributes of it, if it had any, in a part of the tree that is lost? */
bool repair_xattrs_lost(struct repair *repair, u64 ino);
/* At the end: what is lost besides: names that did not come back, extended attributes, limits of quotas. */
void repair_tell_lost(struct repair *repair);

#endif
