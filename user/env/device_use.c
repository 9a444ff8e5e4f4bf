/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One volume has many names: a file, the loop devices attached to it, loop devices on those.  A lock on one of them
 * says nothing to whoever uses another.  So who opens one takes hold of the others too:
 *
 *	downwards	of a loop device the file behind it is locked, as if that had been opened;
 *	upwards		loop devices attached to it are opened exclusively, which fails if one is mounted, and keeps
 *			it from being mounted.  (Readers only look: two of them would keep each other out.)
 *
 * What the kernel has open without an exclusive claim or a lock (a loop device attached later) cannot be seen.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "device_use.h"
#include "streams.h"

#define DEPTH_MAX	4	/* of loop devices on loop devices */
#define TRIES		50	/* for what others open exclusively for a moment, just to look */
#define TRY_US		10000

struct holding {
	const char *path;
	enum device_purpose purpose;
	struct device_holds *holds;
	char *why;
	size_t why_size;
};

static int __attribute__((format(printf, 2, 3))) refuse(struct holding *holding, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (holding->why_size)
		vsnprintf(holding->why, holding->why_size, format, args);
	va_end(args);
	return -EBUSY;
}

/* ---- what the kernel knows ---- */

static bool same_object(const struct stat *one, const struct stat *two)
{
	if (S_ISBLK(one->st_mode) != S_ISBLK(two->st_mode))
		return false;
	return S_ISBLK(one->st_mode) ? one->st_rdev == two->st_rdev :
		one->st_dev == two->st_dev && one->st_ino == two->st_ino;
}

static bool read_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "re");
	bool got = file && fgets(line, size, file);

	if (file)
		fclose(file);
	if (got)
		line[strcspn(line, "\n")] = 0;
	return got;
}

/* The file or device that a loop device, or a partition of one, is attached to. */
static bool backing_file(dev_t dev, char *path, size_t size)
{
	static const char *const places[] = { "", "/.." };
	char name[96];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "/sys/dev/block/%u:%u%s/loop/backing_file", major(dev), minor(dev), places[i]);
		if (read_line(name, path, size))
			return true;
	}
	return false;
}

/* The disk that a partition is of; a disk itself. */
static dev_t whole_disk(dev_t dev)
{
	char name[96], line[32];
	unsigned int maj, min;

	snprintf(name, sizeof(name), "/sys/dev/block/%u:%u/partition", major(dev), minor(dev));
	if (access(name, F_OK))
		return dev;
	snprintf(name, sizeof(name), "/sys/dev/block/%u:%u/../dev", major(dev), minor(dev));
	return read_line(name, line, sizeof(line)) && sscanf(line, "%u:%u", &maj, &min) == 2 ? makedev(maj, min) : dev;
}

/* Where a block device is mounted.  *read_only: its superblock is. */
static bool find_mount(dev_t dev, char *where, size_t size, bool *read_only)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char line[2 * PATH_MAX], place[PATH_MAX];
	unsigned int maj, min;
	bool found = false;

	while (mounts && !found && fgets(line, sizeof(line), mounts)) {
		char *rest = strstr(line, " - ");

		if (!rest || sscanf(line, "%*d %*d %u:%u %*s %4095s", &maj, &min, place) != 3 || makedev(maj, min) != dev)
			continue;
		found = true;
		snprintf(where, size, "%.*s", (int)size - 1, place);
		*read_only = sscanf(rest, " - %*s %*s %7s", place) == 1 && !strncmp(place, "ro", 2) &&
			     (!place[2] || place[2] == ',');
	}
	if (mounts)
		fclose(mounts);
	return found;
}

static bool is_swap(const struct stat *st)
{
	FILE *swaps = fopen("/proc/swaps", "re");
	char line[PATH_MAX + 64];
	struct stat other;
	bool found = false;

	while (swaps && !found && fgets(line, sizeof(line), swaps)) {
		line[strcspn(line, " \t\n")] = 0;
		found = !stat(line, &other) && same_object(st, &other);
	}
	if (swaps)
		fclose(swaps);
	return found;
}

/* RAID or device mapper on it. */
static bool find_holder(dev_t dev, char *holder, size_t size)
{
	char name[64];
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(name, sizeof(name), "/sys/dev/block/%u:%u/holders", major(dev), minor(dev));
	dir = opendir(name);
	while (dir && !found && (entry = readdir(dir))) {
		found = entry->d_name[0] != '.';
		snprintf(holder, size, "%s", entry->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

const char *device_use_text(const struct stat *st, char *text, size_t size)
{
	char where[256];
	bool read_only;

	if (is_swap(st))
		snprintf(text, size, "swap space");
	else if (device_find_mount(st, true, text, size))
		return text;
	else if (S_ISBLK(st->st_mode) && find_mount(st->st_rdev, where, sizeof(where), &read_only))
		snprintf(text, size, "mounted on %s", where);
	else if (S_ISBLK(st->st_mode) && find_holder(st->st_rdev, where, sizeof(where)))
		snprintf(text, size, "held by %s", where);
	else
		snprintf(text, size, "mounted, or another program has it");
	return text;
}

/* Down to the file or disk that loop devices stand for. */
static void go_down(struct stat *st)
{
	char behind[PATH_MAX];
	struct stat next;
	int depth;

	for (depth = 0; depth < DEPTH_MAX && S_ISBLK(st->st_mode); depth++) {
		if (!backing_file(st->st_rdev, behind, sizeof(behind)) || stat(behind, &next))
			return;
		*st = next;
	}
}

bool device_same(const struct stat *one, const struct stat *two)
{
	struct stat a = *one, b = *two;

	go_down(&a);
	go_down(&b);
	return same_object(&a, &b);
}

/* ---- mounts whose source it is ---- */

#define NAMESPACES_MAX 64	/* that are looked into */

/* In the mount namespace of a process, "self" or its number: where. */
static bool is_source(const struct stat *st, const char *process, char *where, size_t size)
{
	char path[PATH_MAX + 64];
	struct stat source;
	struct mntent *mount;
	bool found = false;
	FILE *mounts;

	snprintf(path, sizeof(path), "/proc/%s/mounts", process);
	mounts = setmntent(path, "re");
	while (mounts && !found && (mount = getmntent(mounts))) {
		if (mount->mnt_fsname[0] != '/')
			continue;
		/* By the names that it has there: a daemon tells the kernel the real path. */
		snprintf(path, sizeof(path), "/proc/%s/root%s", process, mount->mnt_fsname);
		found = !stat(path, &source) && device_same(st, &source);
		if (found)
			snprintf(where, size, "mounted on %s", mount->mnt_dir);
	}
	if (mounts)
		endmntent(mounts);
	return found;
}

/* The number of a process's mount namespace, or 0. */
static ino_t namespace_of(const char *process)
{
	char path[300];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%s/ns/mnt", process);
	return stat(path, &st) ? 0 : st.st_ino;
}

static bool find_elsewhere(const struct stat *st, char *text, size_t size)
{
	ino_t seen[NAMESPACES_MAX] = { namespace_of("self") };
	unsigned int count = 1, i;
	struct dirent *entry;
	bool found = false;
	char where[256];
	DIR *dir = opendir("/proc");

	while (dir && !found && count < NAMESPACES_MAX && (entry = readdir(dir))) {
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		seen[count] = namespace_of(entry->d_name);
		for (i = 0; seen[i] != seen[count]; i++)
			;
		if (i < count || !seen[count])
			continue;
		count++;
		found = is_source(st, entry->d_name, where, sizeof(where));
		if (found)
			snprintf(text, size, "%s in the mount namespace of process %s", where, entry->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

bool device_find_mount(const struct stat *st, bool elsewhere, char *text, size_t size)
{
	return is_source(st, "self", text, size) || (elsewhere && find_elsewhere(st, text, size));
}

/* ---- taking hold ---- */

static int keep(struct holding *holding, int fd)
{
	if (holding->purpose == DEVICE_TO_READ || holding->holds->count == DEVICE_HOLDS_MAX)
		close(fd);
	else
		holding->holds->fds[holding->holds->count++] = fd;
	return 0;
}

/* Somebody who only looks lets go at once; who is mounted stays. */
static int open_exclusively(const char *path, dev_t dev)
{
	char where[8];
	bool read_only;
	int fd, tries;

	for (tries = 0; tries < TRIES; tries++) {
		fd = beyond_standard_streams(open(path, O_RDONLY | O_EXCL | O_CLOEXEC));
		if (fd >= 0 || errno != EBUSY || find_mount(dev, where, sizeof(where), &read_only))
			break;
		usleep(TRY_US);
	}
	return fd < 0 ? -errno : fd;
}

int device_check_unwritten(const char *path, const struct stat *st)
{
	int fd = open_exclusively(path, st->st_rdev);
	bool read_only = false;
	char where[8];

	if (fd >= 0)
		close(fd);
	if (fd == -EBUSY && find_mount(st->st_rdev, where, sizeof(where), &read_only) && read_only)
		return 0;
	return fd == -EBUSY ? fd : 0;	/* another error: whoever opens it for good meets it again */
}

static int hold_loops(struct holding *holding, const struct stat *st, dev_t but, int depth);

static int hold_loop(struct holding *holding, const char *name, dev_t but, int depth)
{
	char path[300], text[300];
	struct stat loop;
	int fd;

	snprintf(path, sizeof(path), "/dev/%s", name);
	if (stat(path, &loop) || !S_ISBLK(loop.st_mode) || loop.st_rdev == but)
		return 0;
	if (holding->purpose == DEVICE_TO_FORMAT)
		return refuse(holding, "%s is in use: it is attached to %s; use that, or detach it with losetup -d %s",
			      holding->path, path, path);
	if (holding->purpose == DEVICE_TO_READ) {
		if (device_check_unwritten(path, &loop))
			fd = -EBUSY;
		else
			return hold_loops(holding, &loop, 0, depth + 1);
	} else {
		fd = open_exclusively(path, loop.st_rdev);
	}
	if (fd == -EBUSY)
		return refuse(holding, "%s is in use: it is attached to %s, which is %s", holding->path, path,
			      device_use_text(&loop, text, sizeof(text)));
	if (fd >= 0)
		keep(holding, fd);
	return hold_loops(holding, &loop, 0, depth + 1);
}

/* The loop devices attached to what st is, but that one. */
static int hold_loops(struct holding *holding, const struct stat *st, dev_t but, int depth)
{
	char name[300], path[PATH_MAX];
	struct dirent *entry;
	struct stat other;
	int err = 0;
	DIR *dir = depth < DEPTH_MAX ? opendir("/sys/block") : NULL;

	while (dir && !err && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, "loop", 4))
			continue;
		snprintf(name, sizeof(name), "/sys/block/%s/loop/backing_file", entry->d_name);
		if (read_line(name, path, sizeof(path)) && !stat(path, &other) && same_object(st, &other))
			err = hold_loop(holding, entry->d_name, but, depth);
	}
	if (dir)
		closedir(dir);
	return err;
}

/* A program that was killed is reaped before the kernel lets go of what its io_uring holds: up to 65 ms were seen. */
#define LOCK_PATIENCE_MS	300u
#define LOCK_TURN_MS		5u

int device_lock(int fd, bool write)
{
	struct flock lock = { .l_type = write ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET };
	u32 waited_ms;

	for (waited_ms = 0; fcntl(fd, F_OFD_SETLK, &lock); waited_ms += LOCK_TURN_MS) {
		if (errno != EAGAIN && errno != EACCES)
			return -errno;
		if (waited_ms >= LOCK_PATIENCE_MS)
			return -EBUSY;
		usleep(LOCK_TURN_MS * 1000);
	}
	return 0;
}

void device_unlock(int fd)
{
	struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	fcntl(fd, F_OFD_SETLK, &lock);
}

/* Locked as whoever opens it by its own name locks it. */
static int lock_backing(struct holding *holding, const char *path, struct stat *st)
{
	bool write = holding->purpose != DEVICE_TO_READ;
	int fd = beyond_standard_streams(open(path, O_CLOEXEC | (write ? O_RDWR : O_RDONLY)));

	if (fd < 0 && write) {
		write = false;
		fd = beyond_standard_streams(open(path, O_CLOEXEC | O_RDONLY));
	}
	if (fd < 0)
		return -errno;
	if (fstat(fd, st)) {
		close(fd);
		return -EIO;
	}
	if (device_lock(fd, write) == -EBUSY) {
		close(fd);
		return refuse(holding, "%s is in use: another program has %s open, which is behind it", holding->path, path);
	}
	if (holding->holds->count == DEVICE_HOLDS_MAX)
		close(fd);
	else
		holding->holds->fds[holding->holds->count++] = fd;
	return 0;
}

int device_hold_others(const char *path, const struct stat *st, enum device_purpose purpose,
		       struct device_holds *holds, char *why, size_t why_size)
{
	struct holding holding = { .path = path, .purpose = purpose, .holds = holds, .why = why, .why_size = why_size };
	char behind[PATH_MAX], text[64];
	struct stat at = *st;
	int depth, err;

	holds->count = 0;
	if (purpose != DEVICE_TO_READ && is_swap(st))
		return refuse(&holding, "%s is in use: it is %s", path, device_use_text(st, text, sizeof(text)));
	err = hold_loops(&holding, st, 0, 0);
	for (depth = 0; !err && depth < DEPTH_MAX && S_ISBLK(at.st_mode) &&
	     backing_file(at.st_rdev, behind, sizeof(behind)); depth++) {
		dev_t above = whole_disk(at.st_rdev);

		err = lock_backing(&holding, behind, &at);
		if (err && err != -EBUSY) {
			err = 0;	/* removed, or in another namespace: nobody finds it there */
			break;
		}
		/* A format of one of two loop devices of a file is as bad as of the file. */
		if (!err)
			err = hold_loops(&holding, &at, above, 0);
	}
	if (err)
		device_release_others(holds);
	return err;
}

void device_unlock_others(const struct device_holds *holds)
{
	int i;

	for (i = 0; i < holds->count; i++)
		device_unlock(holds->fds[i]);
}

void device_release_others(struct device_holds *holds)
{
	while (holds->count)
		close(holds->fds[--holds->count]);
}
