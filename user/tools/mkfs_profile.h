/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Profiles: which features a volume may have that a certain kernel's module is to understand.  See mkfs_profile.c. */
#ifndef TUX3_TOOLS_MKFS_PROFILE_H
#define TUX3_TOOLS_MKFS_PROFILE_H

#include "common.h"

struct profile {
	char path[4096];	/* of its file */
	u64 format;		/* the highest version of the format */
	u64 may[TUX3_FEATURE_WORDS];	/* features that a volume may have: bits by word */
};

/* By its name, or by the path of a file, which has a slash in it.  0, or an exit code: it was said why. */
int profile_load(const char *name, struct profile *profile);

#endif
