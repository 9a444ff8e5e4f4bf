/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The state and the counters of a volume as text, for `tux3 stat`.
 *
 * One line each: name, value, unit, what it means; separated by single spaces, the last of several words.
 * A mounted volume is asked for them with getxattr(root of the mount, TUX3_STATISTICS_XATTR): the name is
 * not in any inode, and not listed.  ("system.": trusted attributes are only for root, and
 * the kernel passes this on to the daemon as it is.)
 */
#ifndef TUX3_STATISTICS_H
#define TUX3_STATISTICS_H

#include "tux3.h"

struct volume;		/* core/volume.h */

#define TUX3_STATISTICS_XATTR "system.tux3.statistics"
#define TUX3_STATISTICS_MAX 16384	/* bytes that always suffice */

/* The length of the text; copied if size is not 0, -ERANGE if it is too small.  As getxattr(2). */
ssize_t tux3_statistics_text(struct tux3 *volume, char *text, size_t size);
/* The same for a core volume.  counters: also what was counted since it was opened. */
ssize_t volume_statistics_text(struct volume *vol, bool counters, char *text, size_t size);
/* The same from a folder with one number in each file: /sys/fs/tux3/DEVICE, for a volume that the module has mounted. */
ssize_t folder_statistics_text(const char *folder, char *text, size_t size);
/* What there is, in the order in which it is told; false: no more. */
bool statistics_name(unsigned int i, const char **name, const char **unit, const char **what);

#endif
