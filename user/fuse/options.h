/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The mount options of tux3-fuse: options.c. */
#ifndef TUX3_FUSE_OPTIONS_H
#define TUX3_FUSE_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "user/lib/tux3.h"

enum ring_use { RING_AUTO, RING_ON, RING_OFF };
enum mount_sync { SYNC_NOTHING, SYNC_NAMES, SYNC_ALL };	/* what is durable when it returns */

struct mount_options {
	struct tux3_options volume;
	bool writeback;			/* the kernel keeps dirty pages, and times and sizes with them */
	bool readdirplus;
	bool allow_other, auto_unmount;
	uint64_t threads;
	uint32_t ring;			/* enum ring_use */
	uint32_t sync;			/* enum mount_sync */
	char log[PATH_MAX];
	/* Flags of the VFS */
	unsigned long flags;		/* MS_... */
	bool set_flags;			/* libfuse does not set them all */
	bool permit_suid, permit_dev;
	char kernel[1024];		/* for libfuse, each after a comma */
	/* Not options */
	uint64_t given;			/* bits of the table's rows */
	bool sloppy;			/* pass over what nobody knows */
	char why[512];			/* the refusal: a sentence without a full stop */
};

void options_init(struct mount_options *options);
/* Those of list, separated by commas.  0, or -EINVAL and options->why. */
int options_parse(struct mount_options *options, const char *list);
/*
 * What a remount asks for: *now is what is in force, and is changed.  *changed are the values to apply, 0 if not given.
 * -EINVAL and now->why, without a change: some cannot be changed, or are none.
 */
int options_remount(struct mount_options *now, const char *list, struct tux3_options *changed);
bool option_given(const struct mount_options *options, const char *name);
/* A line or more for each. */
void options_help(void);

/* Only tux3-fuse knows it, not the module. */
bool option_is_for_fuse(const char *option);
bool options_have(const char *list, const char *name);
/* The MS_ flags that these options stand for; others do not matter. */
unsigned long mount_flags_parse(const char *list);

#endif
