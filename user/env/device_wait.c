/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Waiting for the end of a daemon whose file system was unmounted: see device_wait.h. */
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "device_use.h"
#include "device_wait.h"

#define WAIT_MS 30000
#define POLL_MS 10

/* Somebody has a lock on it that keeps us from using it. */
static bool in_use(int fd, bool write)
{
	struct flock lock = { .l_type = write ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET };

	return !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

/* A file system is mounted whose source is path, or a loop device of it, or what is behind one. */
static bool is_mounted(const char *path, const struct stat *st)
{
	struct stat source;
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *mount;
	bool found = false;

	if (!mounts)
		return false;
	while (!found && (mount = getmntent(mounts)))
		found = !strcmp(mount->mnt_fsname, path) ||	/* the daemon tells the kernel the real path */
			(mount->mnt_fsname[0] == '/' && !stat(mount->mnt_fsname, &source) && device_same(st, &source));
	endmntent(mounts);
	return found;
}

static void wait_closed(const char *path, bool write, int limit_ms)
{
	char real[PATH_MAX];
	struct stat st;
	int fd;

	/* To open anything else has consequences. */
	if (!realpath(path, real) || stat(real, &st) || !(S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)))
		return;
	fd = open(real, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	for (int waited = 0; (!limit_ms || waited < limit_ms) && in_use(fd, write) && !is_mounted(real, &st);
	     waited += limit_ms ? POLL_MS : 0)
		usleep(POLL_MS * 1000);
	close(fd);
}

void device_wait_closed(const char *path, bool write)
{
	wait_closed(path, write, WAIT_MS);
}

void device_wait_complete(const char *path)
{
	wait_closed(path, false, 0);
}
