/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tux3-fuse as a helper of mount(8) and umount(8): helper.c. */
#ifndef TUX3_FUSE_HELPER_H
#define TUX3_FUSE_HELPER_H

#include <limits.h>
#include <stdbool.h>

/* Exit codes, as mount(8). */
#define EXIT_USAGE 1
#define EXIT_FAILED 32

struct mount_entry {
	char source[PATH_MAX], target[PATH_MAX], type[64], options[256], device[32];	/* device: MAJOR:MINOR */
};

/* What is mounted on target, uppermost; or, with by_source, whose source is target. */
bool mount_entry_find(const char *target, bool by_source, struct mount_entry *entry);
/* A type of filesystem that it can mount. */
bool kernel_has(const char *type);
/* The MS_ flags that these options stand for; others do not matter. */
unsigned long mount_flags_parse(const char *list);

/* An option that mount(8) or a kernel's filesystem knows, and that means nothing here. */
bool option_means_nothing(const char *option);

/* argv[0] is mount.tux3, mount.fuse.tux3, umount.tux3 ...: does it, *status is the exit status.  False: it is not. */
bool helper_run(int argc, char **argv, int *status);

/*
 * Our mount has a helper for umount(8), if that is installed.  Of a FUSE mount umount(8) does not look at the type, unless
 * libmount's table (/run/mount/utab) has something about it.
 */
void helper_register(const char *source, const char *target);

/* main.c: mount by FUSE, in the background; options are those after -o, or NULL.  The exit status. */
int mount_volume(const char *image, const char *mountpoint, char *list);
void help(void);

#endif
