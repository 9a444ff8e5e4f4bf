/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What bench/full.c does, on a mounted filesystem or through libtux3: the same operations, by paths relative to the root.  Each
 * returns 0 or more, or -errno.
 */
#ifndef BENCH_FULL_FS_H
#define BENCH_FULL_FS_H

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "bench.h"

struct space_now {
	uint64_t total, free, available;	/* bytes */
};

struct fs {
	int64_t (*open)(const char *path);	/* a file, made if need be */
	void (*close)(int64_t file);
	int64_t (*write)(int64_t file, const void *data, uint64_t len, uint64_t offset);
	int (*truncate)(int64_t file, uint64_t size);
	int (*fallocate)(int64_t file, int mode, uint64_t offset, uint64_t len);
	int (*chmod)(int64_t file, uint32_t mode);
	int (*utime)(int64_t file);
	int (*set_value)(int64_t file, const char *name, const void *value, uint64_t len);
	int (*remove_value)(int64_t file, const char *name);
	int (*mkdir)(const char *path);
	int (*link)(const char *from, const char *to);
	int (*rename)(const char *from, const char *to);
	int (*unlink)(const char *path);
	int (*rmdir)(const char *path);
	int (*sync)(void);
	int (*space)(struct space_now *now);
	int (*end)(void);
};

static int result(int64_t ret)
{
	return ret < 0 ? -errno : 0;
}

/* ---- a directory ---- */

static int at;

static int64_t mounted_open(const char *path)
{
	int fd = openat(at, path, O_RDWR | O_CREAT, 0644);

	return fd < 0 ? -errno : fd;
}

static void mounted_close(int64_t file)
{
	close(file);
}

static int64_t mounted_write(int64_t file, const void *data, uint64_t len, uint64_t offset)
{
	ssize_t written = pwrite(file, data, len, offset);

	return written < 0 ? -errno : written;
}

static int mounted_truncate(int64_t file, uint64_t size) { return result(ftruncate(file, size)); }

static int mounted_fallocate(int64_t file, int mode, uint64_t offset, uint64_t len)
{
	return result(fallocate(file, mode, offset, len));
}

static int mounted_chmod(int64_t file, uint32_t mode) { return result(fchmod(file, mode)); }
static int mounted_utime(int64_t file) { return result(futimens(file, NULL)); }

static int mounted_set_value(int64_t file, const char *name, const void *value, uint64_t len)
{
	return result(fsetxattr(file, name, value, len, 0));
}

static int mounted_remove_value(int64_t file, const char *name) { return result(fremovexattr(file, name)); }
static int mounted_mkdir(const char *path) { return result(mkdirat(at, path, 0755)); }
static int mounted_link(const char *from, const char *to) { return result(linkat(at, from, at, to, 0)); }
static int mounted_rename(const char *from, const char *to) { return result(renameat(at, from, at, to)); }
static int mounted_unlink(const char *path) { return result(unlinkat(at, path, 0)); }
static int mounted_rmdir(const char *path) { return result(unlinkat(at, path, AT_REMOVEDIR)); }
static int mounted_sync(void) { return result(syncfs(at)); }

static int mounted_space(struct space_now *now)
{
	struct statvfs stat;

	if (fstatvfs(at, &stat))
		return -errno;
	*now = (struct space_now){ stat.f_blocks * stat.f_frsize, stat.f_bfree * stat.f_frsize, stat.f_bavail * stat.f_frsize };
	return 0;
}

static int mounted_end(void) { return result(close(at)); }

static const struct fs mounted = {
	mounted_open, mounted_close, mounted_write, mounted_truncate, mounted_fallocate, mounted_chmod, mounted_utime,
	mounted_set_value, mounted_remove_value, mounted_mkdir, mounted_link, mounted_rename, mounted_unlink, mounted_rmdir,
	mounted_sync, mounted_space, mounted_end,
};

/* ---- libtux3 ---- */

static struct tux3 *volume;

static struct tux3_node *node_of(int64_t file) { return (struct tux3_node *)(intptr_t)file; }

static int64_t library_open(const char *path)
{
	struct tux3_node *node;
	int err = tux3_path(volume, NULL, path, TUX3_CREATE, 0644, &node);

	return err ? err : (intptr_t)node;
}

static void library_close(int64_t file) { tux3_node_put(node_of(file), 1); }

static int64_t library_write(int64_t file, const void *data, uint64_t len, uint64_t offset)
{
	return tux3_write(node_of(file), data, len, offset);
}

static int library_truncate(int64_t file, uint64_t size) { return tux3_truncate(node_of(file), size); }

static int library_fallocate(int64_t file, int mode, uint64_t offset, uint64_t len)
{
	return tux3_fallocate(node_of(file), mode, offset, len);
}

static int library_chmod(int64_t file, uint32_t mode)
{
	return tux3_setattr(node_of(file), NULL, &(struct tux3_stat){ .mode = mode }, TUX3_SET_MODE);
}

static int library_utime(int64_t file)
{
	struct tux3_stat stat = { 0 };

	clock_gettime(CLOCK_REALTIME, &stat.mtime);
	stat.atime = stat.mtime;
	return tux3_setattr(node_of(file), NULL, &stat, TUX3_SET_ATIME | TUX3_SET_MTIME);
}

static int library_set_value(int64_t file, const char *name, const void *value, uint64_t len)
{
	return tux3_setxattr(node_of(file), NULL, name, value, len, 0);
}

static int library_remove_value(int64_t file, const char *name) { return tux3_removexattr(node_of(file), NULL, name); }
static int library_mkdir(const char *path) { return tux3_path_mkdir(volume, NULL, path, 0755); }

static int library_link(const char *from, const char *to)
{
	struct tux3_node *node, *root = tux3_root(volume);
	int err = tux3_path(volume, NULL, from, 0, 0, &node);

	if (!err) {
		err = tux3_link(node, NULL, root, to);
		tux3_node_put(node, 1);
	}
	tux3_node_put(root, 1);
	return err;
}

static int library_rename(const char *from, const char *to) { return tux3_path_rename(volume, NULL, from, to, 0); }
static int library_unlink(const char *path) { return tux3_path_unlink(volume, NULL, path); }

static int library_rmdir(const char *path)
{
	struct tux3_node *root = tux3_root(volume);
	int err = tux3_rmdir(root, NULL, path);

	tux3_node_put(root, 1);
	return err;
}

static int library_sync(void) { return tux3_sync(volume); }

static int library_space(struct space_now *now)
{
	struct tux3_statfs stat;
	int err = tux3_statfs(volume, &stat);

	if (!err)
		*now = (struct space_now){ stat.blocks * stat.block_size, stat.free_blocks * stat.block_size,
					   stat.available_blocks * stat.block_size };
	return err;
}

static int library_end(void) { return tux3_close(volume); }

static const struct fs library = {
	library_open, library_close, library_write, library_truncate, library_fallocate, library_chmod, library_utime,
	library_set_value, library_remove_value, library_mkdir, library_link, library_rename, library_unlink, library_rmdir,
	library_sync, library_space, library_end,
};

/* A directory, or a volume in a file that is there already. */
static const struct fs *fs_begin(const char *path)
{
	struct stat stat_of;

	if (stat(path, &stat_of))
		die("%s: %s", path, strerror(errno));
	if (S_ISDIR(stat_of.st_mode)) {
		at = must(open(path, O_RDONLY | O_DIRECTORY), path);
		return &mounted;
	}
	volume = must_open(path, NULL);
	return &library;
}

#endif
