/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Copies of volumes for bug reports in which names and contents are hidden (tux3_scramble.c). */
#ifndef TUX3_TOOLS_SCRAMBLE_H
#define TUX3_TOOLS_SCRAMBLE_H

#include "core/volume.h"

/* Make a scrambled copy of the metadata of vol in an empty file.  An exit code; messages are printed. */
int scramble_volume(struct volume *vol, int fd, const char *path);

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
