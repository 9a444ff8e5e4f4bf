/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Who else has a file or block device: mounts, swap, RAID, and the loop devices above and below it. */
#ifndef TUX3_DEVICE_USE_H
#define TUX3_DEVICE_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define DEVICE_HOLDS_MAX 16

/* Descriptors that keep others out as long as they are open. */
struct device_holds {
	int fds[DEVICE_HOLDS_MAX];
	int count;
};

enum device_purpose {
	DEVICE_TO_READ,
	DEVICE_TO_WRITE,
	DEVICE_TO_FORMAT,	/* nor may a loop device be attached to it, used or not */
};

/*
 * For who opens it: of those who write one, who keeps out all others.  0, -errno, or -EBUSY after a moment in which a program that
 * was killed lets go of it: who is started again at once is not refused.
 */
int device_lock(int fd, bool write);
/* Whoever else has the descriptor, after a fork(2), keeps nobody out from now on. */
void device_unlock(int fd);

/*
 * What st is (of path, open and locked) must not be in use under another name: the file behind a loop device is locked
 * too, and a loop device before a file or device is kept from being mounted.  0, or -errno and why.
 */
int device_hold_others(const char *path, const struct stat *st, enum device_purpose purpose,
		       struct device_holds *holds, char *why, size_t why_size);
void device_unlock_others(const struct device_holds *holds);
void device_release_others(struct device_holds *holds);

/*
 * For reading a block device: nobody may be changing it behind our back.  0, or -EBUSY.  Mounted read-only is no
 * obstacle.
 */
int device_check_unwritten(const char *path, const struct stat *st);

/*
 * A file system is mounted whose source is st, or a loop device of it, or what is behind one: "mounted on /mnt".
 * elsewhere: also in the mount namespaces of other processes, as far as we may look: "... in the mount namespace of process 7".
 */
bool device_find_mount(const struct stat *st, bool elsewhere, char *text, size_t size);

/* "mounted on /mnt", "swap space", "held by dm-0", or "another program has it"; returns text. */
const char *device_use_text(const struct stat *st, char *text, size_t size);

/* Do they hold the same bytes: one file or device, under whatever name? */
bool device_same(const struct stat *one, const struct stat *two);

#endif
