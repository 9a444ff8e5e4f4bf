/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tux3-fuse as a helper of mount(8) and umount(8): helper.c. */
#ifndef TUX3_FUSE_HELPER_H
#define TUX3_FUSE_HELPER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/ioctl.h>

/* Exit codes, as mount(8). */
#define EXIT_USAGE 1
#define EXIT_FAILED 32

struct mount_entry {
	char source[PATH_MAX], target[PATH_MAX], type[64], options[256], device[32];	/* device: MAJOR:MINOR */
};

/* What is mounted on target, uppermost; or, with by_source, whose source is target. */
bool mount_entry_find(const char *target, bool by_source, struct mount_entry *entry);
/* What is mounted of a device (MAJOR:MINOR), by whatever name now, if nothing else is mounted over it. */
bool mount_entry_find_device(const char *device, struct mount_entry *entry);
/* A type of filesystem that it can mount. */
bool kernel_has(const char *type);

/*
 * A remount of a FUSE mount, asked of its daemon through any directory of it, by root.  The answer is 0, or 1 and why:
 * a sentence without a full stop.
 */
struct remount_request {
	char options[4096], why[512];
};
#define TUX3_FUSE_IOC_REMOUNT _IOWR('t', 0x73, struct remount_request)

/* argv[0] is mount.tux3, mount.fuse.tux3, umount.tux3 ...: does it, *status is the exit status.  False: it is not. */
bool helper_run(int argc, char **argv, int *status);

/*
 * Our mount has a helper for umount(8), if that is installed.  Of a FUSE mount umount(8) does not look at the type, unless
 * libmount's table (/run/mount/utab) has something about it.
 */
void helper_register(const char *source, const char *target);

/*
 * auto_unmount (fusermount3's own asks too early whether the daemon is dead, and forbids devices and setuid programs).
 * Before any thread is started; then, when it is mounted.
 */
int helper_watch(const char *target);
void helper_watch_begins(const char *target);

/* main.c: mount by FUSE, in the background; options are those after -o, or NULL.  The exit status. */
int mount_volume(const char *image, const char *mountpoint, const char *list, bool sloppy);
void help(void);

#endif
