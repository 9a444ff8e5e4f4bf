/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mount options: what the module and tux3-fuse say alike.  Each has a table of those that it takes (linux/options.c,
 * user/fuse/options.c).
 */
#ifndef TUX3_OPTIONS_H
#define TUX3_OPTIONS_H

#include "core/env.h"

enum option_kind {
	OPTION_SECONDS,		/* u32, milliseconds; with a fraction */
	OPTION_SIZE,		/* u64, bytes; with a unit */
	OPTION_NUMBER,		/* u64 */
	OPTION_FSYNC,		/* u32, enum tux3_fsync */
	OPTION_WORD,		/* the host's own */
	OPTION_FLAG,		/* bool */
	OPTION_SWITCH,		/* bool, off with "no" before it */
	OPTION_SWITCH_OFF,	/* bool that says that the switch is off */
	OPTION_SO_ANYWAY,	/* for entries in fstab that served another filesystem: nothing to set; only this value */
};

#define OPTION_HAS_VALUE(kind) ((kind) <= OPTION_WORD)
#define OPTION_HAS_NO(kind) ((kind) == OPTION_SWITCH || (kind) == OPTION_SWITCH_OFF)

/* What their values are. */
#define OPTION_VALUE_AGE	"seconds from 0.001 to 3600, as in age=0.5"
#define OPTION_VALUE_DIRTY	"a size, as in dirty=64M"
#define OPTION_VALUE_CACHE	"a size, as in cache=128M"
#define OPTION_VALUE_NAMES	"a number above 0, as in names=1000000"
#define OPTION_VALUE_FSYNC	"auto, full or ahead"

/* By enum tux3_fsync. */
extern const char *const option_fsync_words[];

/* Refusals: the name, then for the first two what its value is. */
#define OPTION_NEEDS_VALUE	"mount option %s needs a value: %s"
#define OPTION_BAD_VALUE	"mount option %s: '%s' is not a value it can take: %s"	/* the value between them */
#define OPTION_TAKES_NO_VALUE	"mount option %s takes no value"
#define OPTION_ALWAYS_SO	"mount option %s: '%s' cannot be chosen: it is always %s"
#define OPTION_CANNOT_CHANGE	"mount option %s cannot be changed by a remount: unmount and mount again"

/*
 * A size as people write it: "4096", "64M", "512KiB", "2TB", in powers of 1024.  0; -EINVAL: that is none; -ERANGE: it is
 * 2^63 or more.
 */
int size_parse(const char *text, u64 *bytes);
/* SECONDS, SIZE, NUMBER, FSYNC: to *field.  False: text is none. */
bool option_parse_value(enum option_kind kind, const char *text, void *field);

#endif
