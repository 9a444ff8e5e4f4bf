/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Copies of volumes for bug reports in which names and contents are hidden (tux3_scramble.c). */
#ifndef TUX3_TOOLS_SCRAMBLE_H
#define TUX3_TOOLS_SCRAMBLE_H

#include <limits.h>
#include "core/volume.h"

/* A file that is made; it gets its name when it is whole. */
struct tool_output {
	const char *path;	/* that */
	char made[PATH_MAX];	/* until then */
	bool force;		/* over what has the name */
	int fd;
};

/* Under its name, when all of it is durable.  0, or an exit code; messages are printed. */
int output_done(struct tool_output *output);

/* Make a scrambled copy of the metadata of vol in a new file.  An exit code; messages are printed. */
int scramble_volume(struct volume *vol, struct tool_output *output);

/*
 * Another name of the same length: never the same for two names, and the same for the same name while the
 * program runs.  Not "." or "..", no '/' or 0; names of portable characters stay such.
 */
void scramble_name(u8 *name, u32 len);
/* Other text of the same length. */
void scramble_text(u8 *text, u32 len);
/* A symlink target: name by name. */
void scramble_path(u8 *path, u32 len);

#endif
