/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What features there are, and which a volume has: see tux3_features.c. */
#ifndef TUX3_TOOLS_TUX3_FEATURES_H
#define TUX3_TOOLS_TUX3_FEATURES_H

#include "commands.h"

/* set: the feature bits of a volume, by word; NULL: of none, all that this build knows. */
void features_show(struct stream *stream, const u64 *set);

/* Exit codes. */
int features_known(bool json);
int features_mounted(const char *path, bool json);

/* The feature bits of the volume that is mounted there, by word.  0, or an exit code, and it was said why. */
int features_of_mounted(const char *path, u64 *set);

#endif
