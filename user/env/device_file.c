/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Files and block devices as devices, through the page cache: reads by pread(), of adjacent blocks
 * together, writes by write_queue.c, flushes by fdatasync().  A completed write is in the page cache, which is
 * the volatile cache that core/device/device.h speaks of.
 *
 * Two programs must not write one volume.  Open-file-description locks over the whole file say who uses
 * it (not flock(): udev takes that on block devices for a moment at any time); for a block device O_EXCL also
 * keeps mounted filesystems, RAID and the like out, and who only reads looks whether it could be had.  That is a second
 * descriptor, for a FUSE mount of the device gives it up to the kernel, which then holds the device itself.  Other names
 * of the same volume, loop devices and the files behind them, are device_use.c's.
 *
 * Whoever else writes a block device, as the kernel module, goes past the page cache of it: what that holds is dropped
 * when we open it.
 *
 * Locking: nothing here changes after the device was opened, but the claim, which one thread gives up, and
 * direct_fd, which the first who wants it sets.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include "device_file.h"
#include "device_use.h"
#include "streams.h"
#include "write_queue.h"

#define DIRECT_NEVER	(-1)
#define DIRECT_NOT_YET	(-2)
#define DIRECT_ALIGNMENT 4096	/* as much as any device asks for, and a divisor of each block */
#define DIRECT_BYTES	(1u << 20)	/* adjacent reads past the page cache are one, up to so much */
#define SOFT_BLOCK_SIZE 4096	/* the kernel's name for the unit of a block device's page cache */

struct device_file {
	struct tux3_device dev;
	int fd;
	int claim_fd;			/* opened with O_EXCL; -1 if there is none */
	bool block_device;
	int direct_fd;			/* past the page cache; DIRECT_NOT_YET, DIRECT_NEVER; atomic */
	struct device_holds holds;	/* other names of the volume */
	struct write_queue *queue;	/* NULL if read-only */
	pid_t owner;			/* the only process that can use it; 0: a child of fork(2), too */
};

static struct device_file *device_file(struct tux3_device *dev)
{
	return container_of(dev, struct device_file, dev);
}

static int file_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	size_t left = (size_t)count * dev->block_size;
	off_t offset = addr * dev->block_size;
	char *at = data;

	while (left) {
		ssize_t got = pread(device_file(dev)->fd, at, left, offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			int err = got ? errno : EIO;

			pr_err("%s: cannot read %zu bytes at offset %lld: %s\n", dev->name, left,
			       (long long)offset, got ? strerror(err) : "the file has become shorter");
			return -err;
		}
		at += got;
		offset += got;
		left -= got;
	}
	return 0;
}

/* How many of these reads, from the first on, are of blocks that follow each other, so that one call does. */
static u32 adjacent_reads(const struct device_io *reads, u32 count, u32 blocks_max, u32 *blocks)
{
	u32 n;

	*blocks = reads[0].count;
	for (n = 1; n < count && reads[n].addr == reads[n - 1].addr + reads[n - 1].count &&
	     reads[n].count <= blocks_max - min(blocks_max, *blocks); n++)
		*blocks += reads[n].count;
	return n;
}

/* What the one call did not bring is fetched read by read: each has its own error. */
static void read_adjacent(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	struct iovec vec[DEVICE_READS_MAX];
	ssize_t got = 0;
	u32 i;

	for (i = 0; i < count; i++)
		vec[i] = (struct iovec){ reads[i].data, (size_t)reads[i].count * dev->block_size };
	if (count > 1)
		got = preadv(device_file(dev)->fd, vec, count, reads[0].addr * dev->block_size);
	for (i = 0; i < count && got >= (ssize_t)vec[i].iov_len; i++) {
		got -= vec[i].iov_len;
		reads[i].err = 0;
	}
	for (; i < count; i++)
		reads[i].err = file_read(dev, reads[i].addr, reads[i].count, reads[i].data);
}

/* The kernel is asked to bring all of it to the page cache, which it does in the background; then it is fetched. */
static void file_read_many(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	u32 i, n, blocks;

	for (i = 0; i < count; i += n) {
		n = adjacent_reads(reads + i, count - i, U32_MAX, &blocks);
		if (n < count)		/* else nothing goes on in the background */
			posix_fadvise(device_file(dev)->fd, reads[i].addr * dev->block_size,
				      (off_t)blocks * dev->block_size, POSIX_FADV_WILLNEED);
	}
	for (i = 0; i < count; i += n) {
		n = adjacent_reads(reads + i, count - i, U32_MAX, &blocks);
		read_adjacent(dev, reads + i, n);
	}
}

/* The descriptor for reads past the page cache, made when it is first wanted; -1: there are none of this file. */
static int direct_fd(struct device_file *file)
{
	int fd = __atomic_load_n(&file->direct_fd, __ATOMIC_ACQUIRE), none = DIRECT_NOT_YET;
	char path[40];

	if (fd != DIRECT_NOT_YET)
		return fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	fd = beyond_standard_streams(open(path, O_RDONLY | O_CLOEXEC | O_DIRECT));
	fd = fd < 0 ? DIRECT_NEVER : fd;
	if (__atomic_compare_exchange_n(&file->direct_fd, &none, fd, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return fd;
	if (fd >= 0)
		close(fd);
	return none;
}

/* -EINVAL: what is below does not do that.  No message: who asks for it wants to know what cannot be read. */
static int direct_read(int fd, off_t offset, size_t left, char *at)
{
	while (left) {
		ssize_t got = pread(fd, at, left, offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : -EIO;
		at += got;
		offset += got;
		left -= got;
	}
	return 0;
}

/* One read, through a buffer that is aligned; NULL: there is none.  What cannot be read like that is, from the page cache. */
static void read_media_one(struct tux3_device *dev, int fd, struct device_io *read, void *data)
{
	size_t bytes = (size_t)read->count * dev->block_size;

	read->err = data ? direct_read(fd, read->addr * dev->block_size, bytes, data) : -EINVAL;
	if (!read->err)
		memcpy(read->data, data, bytes);
	else if (read->err == -EINVAL)
		read->err = file_read(dev, read->addr, read->count, read->data);
}

/* The same of several, of adjacent blocks; if it fails, one by one: each has its own error. */
static void read_media_adjacent(struct tux3_device *dev, int fd, struct device_io *reads, u32 count, u32 blocks, char *data)
{
	bool whole = data && count > 1 &&
		     !direct_read(fd, reads[0].addr * dev->block_size, (size_t)blocks * dev->block_size, data);
	u32 i;

	for (i = 0; i < count; i++) {
		size_t bytes = (size_t)reads[i].count * dev->block_size;

		if (!whole) {
			read_media_one(dev, fd, &reads[i], data);
			continue;
		}
		reads[i].err = 0;
		memcpy(reads[i].data, data, bytes);
		data += bytes;
	}
}

/* The kernel writes what is dirty of that range in the page cache before it reads. */
static void file_read_media(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	int fd = direct_fd(device_file(dev));
	u32 i, n, blocks, most = 0;
	void *data = NULL;

	for (i = 0; i < count; i += n) {
		n = adjacent_reads(reads + i, count - i, DIRECT_BYTES / dev->block_size, &blocks);
		most = max(most, blocks);
	}
	if (fd < 0 || posix_memalign(&data, DIRECT_ALIGNMENT, (size_t)most * dev->block_size))
		data = NULL;
	for (i = 0; i < count; i += n) {
		n = adjacent_reads(reads + i, count - i, DIRECT_BYTES / dev->block_size, &blocks);
		read_media_adjacent(dev, fd, reads + i, n, blocks, data);
	}
	free(data);
}

static void file_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
		       unsigned int flags, struct io_wait *wait)
{
	io_wait_begin(wait);
	write_queue_submit(device_file(dev)->queue, addr * dev->block_size, vec, vecs, wait);
}

static int file_flush(struct tux3_device *dev)
{
	int err;

	/* Where a file system is on a network or in a program, a signal for ours may end it. */
	if (!TEMP_FAILURE_RETRY(fdatasync(device_file(dev)->fd)))
		return 0;
	err = errno;
	pr_err("%s: cannot make writes durable: %s\n", dev->name, strerror(err));
	return -err;
}

/* A hint: whether it can be taken does not matter. */
static int file_discard(struct tux3_device *dev, u64 addr, u64 count)
{
	struct device_file *file = device_file(dev);
	u64 range[2] = { addr * dev->block_size, count * dev->block_size };

	if (file->block_device)
		ioctl(file->fd, BLKDISCARD, range);
	else
		fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range[0], range[1]);
	return 0;
}

static void file_close(struct tux3_device *dev)
{
	struct device_file *file = device_file(dev);

	if (file->queue)
		write_queue_close(file->queue);
	/* A child of fork(2) has the descriptors, too, and with them the locks: they would stay as long as it lives. */
	if (file->owner == getpid()) {
		device_unlock(file->fd);
		device_unlock_others(&file->holds);
	}
	device_file_unclaim(dev);
	if (file->direct_fd >= 0)
		close(file->direct_fd);
	close(file->fd);
	device_release_others(&file->holds);
	kfree(dev->name);
	kfree(file);
}

static const struct tux3_device_ops file_ops = {
	.read = file_read,
	.read_many = file_read_many,
	.read_media = file_read_media,
	.write = file_write,
	.flush = file_flush,
	.discard = file_discard,
	.close = file_close,
};

int device_file_set_rate(struct tux3_device *dev, u64 bytes_per_second)
{
	struct device_file *file = device_file(dev);

	return file->queue ? write_queue_set_rate(file->queue, bytes_per_second) : 0;
}

void device_file_unclaim(struct tux3_device *dev)
{
	struct device_file *file = device_file(dev);

	if (file->claim_fd >= 0)
		close(file->claim_fd);
	file->claim_fd = -1;
}

int device_file_soft_block_size(struct tux3_device *dev)
{
	struct device_file *file = device_file(dev);
	int size;

	return file->block_device && !ioctl(file->fd, BLKBSZGET, &size) ? size : 0;
}

const char *device_file_method(struct tux3_device *dev)
{
	struct device_file *file = device_file(dev);

	return file->queue ? write_queue_method(file->queue) : "none";
}

struct opening {
	const char *path;
	bool write, format, beside;
	char *why;
	size_t why_size;
};

static int __printf(3, 4) refuse(struct opening *opening, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	if (opening->why_size)
		vsnprintf(opening->why, opening->why_size, fmt, args);
	va_end(args);
	return err;
}

/* open(2) says EACCES both for a read-only disk and for one that is not ours. */
static bool is_read_only_disk(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int read_only = 0;

	if (fd < 0)
		return false;
	if (ioctl(fd, BLKROGET, &read_only))
		read_only = 0;
	close(fd);
	return read_only;
}

/* chattr +i, +a: nobody may write to it, root neither. */
static bool is_immutable(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned int flags = 0;

	if (fd < 0)
		return false;
	if (ioctl(fd, FS_IOC_GETFLAGS, &flags))
		flags = 0;
	close(fd);
	return flags & (FS_IMMUTABLE_FL | FS_APPEND_FL);
}

static int explain_open(struct opening *opening, int err)
{
	const char *path = opening->path;
	char text[300];
	struct stat st;

	switch (err) {
	case ENOENT:
		return refuse(opening, -err, *path ? "%s does not exist" : "the name of the file is empty%s", path);
	case EACCES:
	case EPERM:
		if (opening->write && is_immutable(path))
			return refuse(opening, -err, "%s is immutable or append-only; chattr -ia %s changes that", path, path);
		if (opening->write && is_read_only_disk(path))
			return refuse(opening, -EROFS, "%s is a read-only device", path);
		return refuse(opening, -err, "no permission to open %s for %s", path,
			      opening->write ? "writing" : "reading");
	case EROFS:
		return refuse(opening, -err, "%s is read-only or on a read-only filesystem", path);
	case EBUSY:
		return refuse(opening, -err, "%s is in use: %s", path,
			      stat(path, &st) ? "another program has it" : device_use_text(&st, text, sizeof(text)));
	case ENXIO:
	case ENODEV:
		return refuse(opening, -err, "there is no device behind %s", path);
	}
	return refuse(opening, -err, "cannot open %s: %s", path, strerror(err));
}

static int check_kind(struct opening *opening, mode_t mode)
{
	if (S_ISREG(mode) || S_ISBLK(mode))
		return 0;
	if (S_ISDIR(mode))
		return refuse(opening, -EISDIR, "%s is a directory, not a file or block device",
			      opening->path);
	return refuse(opening, -ENOTBLK, "%s is neither a file nor a block device", opening->path);
}

static int lock_file(struct opening *opening, int fd)
{
	int err = device_lock(fd, opening->write);

	if (err == -EBUSY)
		return explain_open(opening, EBUSY);
	return err ? refuse(opening, err, "cannot lock %s: %s", opening->path, strerror(-err)) : 0;
}

/* Whoever has it under another name, or has mounted it; what is in the page cache may be older than that. */
static int keep_others_out(struct opening *opening, int fd, const struct stat *st, struct device_holds *holds)
{
	enum device_purpose purpose = opening->format ? DEVICE_TO_FORMAT : opening->write ? DEVICE_TO_WRITE : DEVICE_TO_READ;

	if (S_ISBLK(st->st_mode) && !opening->write && device_check_unwritten(opening->path, st))
		return explain_open(opening, EBUSY);
	if (S_ISBLK(st->st_mode))
		ioctl(fd, BLKFLSBUF, 0);
	return device_hold_others(opening->path, st, purpose, holds, opening->why, opening->why_size);
}

/* To change it later, as a mount does that finds another, drops what is in the page cache. */
static void set_soft_block_size(int fd)
{
	int size = SOFT_BLOCK_SIZE;

	ioctl(fd, BLKBSZSET, &size);
}

/* The descriptor, or -errno. */
static int open_claimed(struct opening *opening, struct device_file *file, mode_t mode)
{
	int fd, err;

	if (opening->write && S_ISBLK(mode)) {
		file->claim_fd = beyond_standard_streams(open(opening->path, O_CLOEXEC | O_RDONLY | O_EXCL));
		if (file->claim_fd < 0)
			return explain_open(opening, errno);
		set_soft_block_size(file->claim_fd);
	}
	fd = beyond_standard_streams(open(opening->path, O_CLOEXEC | (opening->write ? O_RDWR : O_RDONLY)));
	if (fd >= 0)
		return fd;
	err = explain_open(opening, errno);
	device_file_unclaim(&file->dev);
	return err;
}

/* Opens, locks and measures.  The descriptor, or -errno. */
static int open_and_lock(struct opening *opening, struct device_file *file)
{
	struct stat st;
	int fd, err;

	/* Before opening: to open a FIFO or tape has consequences. */
	if (stat(opening->path, &st))
		return explain_open(opening, errno);
	err = check_kind(opening, st.st_mode);
	if (err)
		return err;
	fd = open_claimed(opening, file, st.st_mode);
	if (fd < 0)
		return fd;

	err = fstat(fd, &st) ? explain_open(opening, errno) : check_kind(opening, st.st_mode);
	if (!err && !opening->beside)
		err = lock_file(opening, fd);
	if (!err && !opening->beside)
		err = keep_others_out(opening, fd, &st, &file->holds);
	if (err)
		goto fail;
	file->block_device = S_ISBLK(st.st_mode);
	file->dev.size_bytes = st.st_size;
	if (file->block_device && ioctl(fd, BLKGETSIZE64, &file->dev.size_bytes)) {
		err = refuse(opening, -errno, "cannot get the size of %s: %s", opening->path,
			     strerror(errno));
		goto fail;
	}
	if (file->block_device && opening->write && is_read_only_disk(opening->path)) {
		err = refuse(opening, -EROFS, "%s is a read-only device", opening->path);
		goto fail;
	}
	return fd;

fail:
	device_release_others(&file->holds);
	device_file_unclaim(&file->dev);
	close(fd);
	return err;
}

static enum write_queue_kind queue_kind(unsigned int flags)
{
	if (flags & DEVICE_OPEN_ALONE)
		return WRITE_QUEUE_ALONE;
	return flags & DEVICE_OPEN_SYNC_IO ? WRITE_QUEUE_THREADS : WRITE_QUEUE_ANY;
}

int device_open_file(const char *path, unsigned int flags, struct tux3_device **dev,
		     char *why, size_t why_size)
{
	struct opening opening = {
		.path = path,
		.write = flags & DEVICE_OPEN_WRITE,
		.format = flags & DEVICE_OPEN_FORMAT,
		.beside = flags & DEVICE_OPEN_BESIDE,
		.why = why,
		.why_size = why_size,
	};
	struct device_file *file = kzalloc(sizeof(*file), GFP_KERNEL);
	char *name = kmemdup(path, strlen(path) + 1, GFP_KERNEL);
	int err;

	if (!file || !name) {
		err = refuse(&opening, -ENOMEM, "not enough memory to open %s", path);
		goto fail;
	}
	file->claim_fd = -1;
	file->direct_fd = DIRECT_NOT_YET;
	file->fd = open_and_lock(&opening, file);
	if (file->fd < 0) {
		err = file->fd;
		goto fail;
	}
	if (opening.write) {
		err = write_queue_open(file->fd, queue_kind(flags), opening.format ? NULL : name, &file->queue);
		if (err) {
			refuse(&opening, err, "cannot start threads to write %s: %s", path,
			       strerror(-err));
			device_release_others(&file->holds);
			device_file_unclaim(&file->dev);
			close(file->fd);
			goto fail;
		}
		file->owner = flags & DEVICE_OPEN_ALONE ? 0 : getpid();
	}
	file->dev.ops = &file_ops;
	file->dev.name = name;
	file->dev.block_size = 4096;
	file->dev.read_only = !opening.write;
	file->dev.volatile_cache = true;
	*dev = &file->dev;
	return 0;

fail:
	kfree(name);
	kfree(file);
	return err;
}
