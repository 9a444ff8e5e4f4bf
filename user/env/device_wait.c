/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Waiting for the end of a daemon whose file system was unmounted: see device_wait.h. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "device_use.h"
#include "device_wait.h"

#define WAIT_MS 30000
#define POLL_MS 10
#define LOOK_EVERYWHERE_MS 500

/* Somebody has a lock on it that keeps us from using it. */
static bool in_use(int fd, bool write)
{
	struct flock lock = { .l_type = write ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET };

	return !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

/* Whoever has it mounted in another namespace is not just about to close it.  To look there takes a while: not each time. */
static bool is_mounted(const struct stat *st, long waited_ms)
{
	char where[64];

	return device_find_mount(st, waited_ms % LOOK_EVERYWHERE_MS == 0, where, sizeof(where));
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
	for (long waited = 0; (!limit_ms || waited < limit_ms) && in_use(fd, write) && !is_mounted(&st, waited);
	     waited += POLL_MS)
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
