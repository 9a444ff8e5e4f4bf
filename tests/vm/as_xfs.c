/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For LD_PRELOAD: xfs_io takes a volume of Tux3 for one of XFS.  Of itself it refuses most commands on other filesystems, before it
 * asks them.  With this they ask the module by XFS's numbers and structures, as whoever made those has them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TUX3_MAGIC	0x54555833
#define XFS_MAGIC	0x58465342
#define XFS_FSGEOMETRY	0x8100587eul
#define XFS_PATH_TO_FSHANDLE 0xc0385868ul
#define XFS_PATH_TO_HANDLE 0xc0385869ul
#define XFS_FD_TO_HANDLE 0xc038586aul
#define GETVERSION	0x80087601ul
#define XFS_HAS		(1u << 24 | 1u << 25)	/* exchange-range and parents */

struct geometry {
	uint32_t block_size, rt_extent, group_blocks, groups, log_blocks, sector_size, inode_size, inodes_percent;
	uint64_t blocks, rt_blocks, rt_extents, log_start;
	uint8_t uuid[16];
	uint32_t stripe_unit, stripe_width, version, flags;
	uint32_t rest[40];
};

_Static_assert(sizeof(struct geometry) == 256, "as XFS_IOC_FSGEOMETRY has it");

/* What libhandle asks for, by which parents are looked up then. */
struct handle_request {
	uint32_t fd;
	const char *path;
	uint32_t flags;
	void *in;
	uint32_t in_len;
	void *out;
	uint32_t *out_len;
};

_Static_assert(sizeof(struct handle_request) == 56, "as XFS_IOC_PATH_TO_FSHANDLE has it");

static int as_xfs(int err, struct statfs *st)
{
	if (!err && st->f_type == TUX3_MAGIC)
		st->f_type = XFS_MAGIC;
	return err;
}

int fstatfs(int fd, struct statfs *st)
{
	return as_xfs(syscall(SYS_fstatfs, fd, st), st);
}

int fstatfs64(int fd, struct statfs64 *st)
{
	return fstatfs(fd, (struct statfs *)st);
}

int statfs(const char *path, struct statfs *st)
{
	return as_xfs(syscall(SYS_statfs, path, st), st);
}

int statfs64(const char *path, struct statfs64 *st)
{
	return statfs(path, (struct statfs *)st);
}

static int tell_geometry(struct geometry *geometry)
{
	*geometry = (struct geometry){
		.block_size = 4096, .rt_extent = 1, .group_blocks = 1u << 27, .groups = 1, .sector_size = 512, .inode_size = 256,
		.blocks = 1u << 27, .version = 4, .flags = XFS_HAS,
	};
	return 0;
}

static int tell_volume(const struct handle_request *request, const char *path)
{
	struct statfs st;
	int err = statfs(path, &st);

	if (!err) {
		memcpy(request->out, &st.f_fsid, sizeof(st.f_fsid));
		*request->out_len = sizeof(st.f_fsid);
	}
	return err;
}

struct handle {
	uint64_t volume;
	uint16_t len, pad;
	uint32_t generation;
	uint64_t ino;
};

static int tell_file(const struct handle_request *request, const char *path)
{
	struct handle handle = { .len = 14 };
	int err = tell_volume(request, path), fd = err ? -1 : open(path, O_RDONLY);
	unsigned long generation = 0;
	struct stat st;

	if (fd < 0)
		return -1;
	err = fstat(fd, &st) || syscall(SYS_ioctl, fd, GETVERSION, &generation);
	close(fd);
	memcpy(&handle.volume, request->out, sizeof(handle.volume));
	handle.generation = generation;
	handle.ino = st.st_ino;
	memcpy(request->out, &handle, sizeof(handle));
	*request->out_len = sizeof(handle);
	return err ? -1 : 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	char path[40];
	va_list list;
	void *arg;

	va_start(list, request);
	arg = va_arg(list, void *);
	va_end(list);
	request = (uint32_t)request;		/* libhandle has it as an int */
	if (request == XFS_FSGEOMETRY)
		return tell_geometry(arg);
	if (request == XFS_PATH_TO_FSHANDLE)
		return tell_volume(arg, ((struct handle_request *)arg)->path);
	if (request == XFS_PATH_TO_HANDLE)
		return tell_file(arg, ((struct handle_request *)arg)->path);
	if (request == XFS_FD_TO_HANDLE) {
		snprintf(path, sizeof(path), "/proc/self/fd/%u", ((struct handle_request *)arg)->fd);
		return tell_file(arg, path);
	}
	return syscall(SYS_ioctl, fd, request, arg);
}
