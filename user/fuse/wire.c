/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The requests and flags that the kernel knows and libfuse 3.14 does not.
 *
 *	INIT	  the answer gets FUSE_HANDLE_KILLPRIV_V2 added: without it the kernel asks for
 *		  security.capability before each single write, and cannot tell who may keep setuid bits;
 *		  and FUSE_OVER_IO_URING if ring.c is ready for it
 *	WRITE, SETATTR	the flag that belongs to it
 *	TMPFILE	  open(O_TMPFILE)
 *	STATX	  the time of birth
 *	INTERRUPT	not answered, as is allowed
 *	SYNCFS	  sent for block devices only, as yet
 *
 * The layouts are the kernel's user interface, <linux/fuse.h>; what Debian 12's copy lacks is here.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/fuse.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring.h"
#include "tux3_fuse.h"
#include "core/format/format.h"
#include "user/lib/internal.h"

#define OPCODE_STATX 52u
#define FLAGS2_OVER_IO_URING (1u << (41 - 32))

struct wire_time {
	int64_t sec;
	uint32_t nsec;
	int32_t reserved;
};

struct wire_statx {
	uint32_t mask, block_size;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, spare0;
	uint64_t ino, size, blocks_512, attributes_mask;
	struct wire_time atime, btime, ctime, mtime;
	uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
	uint64_t spare[14];
};

struct wire_statx_out {
	uint64_t attr_valid;
	uint32_t attr_valid_nsec, flags;
	uint64_t spare[2];
	struct wire_statx stat;
};
_Static_assert(sizeof(struct wire_statx) == 256 && sizeof(struct wire_statx_out) == 288,
	       "FUSE_STATX, protocol 7.39");

__thread struct request_extra request_extra;

/* Set once, while the first request is answered. */
static atomic_uint kernel_flags, kernel_flags2;
static atomic_uint_least64_t init_unique;

static void answer(int fd, uint64_t unique, int err, const void *body, size_t size)
{
	struct fuse_out_header head = { .len = sizeof(head) + size, .error = err, .unique = unique };
	struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)body, size } };

	/* An error says that nobody waits any more. */
	(void)loop_writev(fd, iov, size ? 2 : 1, NULL);
}

static void wire_attr(struct fuse_attr *attr, const struct tux3_stat *stat)
{
	struct stat st;

	fill_stat(&st, stat);
	*attr = (struct fuse_attr) {
		.ino = st.st_ino, .size = st.st_size, .blocks = st.st_blocks,
		.atime = st.st_atim.tv_sec, .mtime = st.st_mtim.tv_sec, .ctime = st.st_ctim.tv_sec,
		.atimensec = st.st_atim.tv_nsec, .mtimensec = st.st_mtim.tv_nsec,
		.ctimensec = st.st_ctim.tv_nsec,
		.mode = st.st_mode, .nlink = st.st_nlink, .uid = st.st_uid, .gid = st.st_gid,
		.rdev = st.st_rdev, .blksize = st.st_blksize,
	};
}

static void wire_tmpfile(int fd, const struct fuse_in_header *head, const struct fuse_create_in *in)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out = { .open.open_flags = FOPEN_KEEP_CACHE | FOPEN_NOFLUSH };
	struct tux3_node *node;
	struct tux3_cred cred;
	struct tux3_stat stat;
	int err;

	fill_cred(&cred, head->uid, head->gid, in->umask);
	err = tux3_tmpfile(node_of(head->nodeid), &cred, in->mode, &node);
	if (err) {
		answer(fd, head->unique, err, NULL, 0);
		return;
	}
	err = tux3_stat_node(node, &stat);
	if (err) {
		tux3_node_put(node, 1);
		answer(fd, head->unique, err, NULL, 0);
		return;
	}
	out.entry.nodeid = ino_of(node);
	out.entry.generation = stat.generation;
	out.entry.entry_valid = CACHE_FOREVER_S;
	out.entry.attr_valid = attr_timeout(node);
	wire_attr(&out.entry.attr, &stat);
	answer(fd, head->unique, 0, &out, sizeof(out));
}

static struct wire_time wire_time(struct timespec time)
{
	return (struct wire_time) { .sec = time.tv_sec, .nsec = time.tv_nsec };
}

static uint64_t statx_attributes(uint32_t flags)
{
	return (flags & TUX3_ATTR_IMMUTABLE ? STATX_ATTR_IMMUTABLE : 0) |
	       (flags & TUX3_ATTR_APPEND ? STATX_ATTR_APPEND : 0) | (flags & TUX3_ATTR_NODUMP ? STATX_ATTR_NODUMP : 0);
}

/* Linux does not pass on the attributes, as of 6.18. */
static void wire_statx(int fd, const struct fuse_in_header *head)
{
	struct tux3_node *node = node_of(head->nodeid);
	struct wire_statx_out out = { 0 };
	struct tux3_stat stat;
	int err = tux3_stat_node(node, &stat);

	if (err) {
		answer(fd, head->unique, err, NULL, 0);
		return;
	}
	out.attr_valid = attr_timeout(node);
	out.stat = (struct wire_statx) {
		.mask = STATX_BASIC_STATS | STATX_BTIME,
		.block_size = stat.block_size,
		.attributes = statx_attributes(stat.flags), .attributes_mask = statx_attributes(~0u),
		.nlink = stat.nlink, .uid = stat.uid, .gid = stat.gid, .mode = stat.mode,
		.ino = stat.ino, .size = stat.size, .blocks_512 = stat.blocks_512,
		.atime = wire_time(stat.atime), .btime = wire_time(stat.btime),
		.ctime = wire_time(stat.ctime), .mtime = wire_time(stat.mtime),
		.rdev_major = stat.rdev_major, .rdev_minor = stat.rdev_minor,
	};
	answer(fd, head->unique, 0, &out, sizeof(out));
}

/*
 * The node of the request, for node_of().  False: the kernel has no reference to it, which is right only where it
 * returns some, and in a lookup by file handle.
 */
static bool find_node(const struct fuse_in_header *head)
{
	request_extra.ino = 0;
	if (!head->nodeid || head->nodeid == FUSE_ROOT_ID)
		return true;
	request_extra.node = tux3_node_held(mount_state.volume, head->nodeid);
	request_extra.ino = head->nodeid;
	return request_extra.node || head->opcode == FUSE_FORGET || head->opcode == FUSE_LOOKUP;
}

bool wire_request(int fd, const void *request, size_t size)
{
	const struct fuse_in_header *head = request;
	const void *body = head + 1;
	size_t body_size = size - sizeof(*head);

	request_extra.kill_suidgid = false;
	if (size < sizeof(*head))
		return false;
	if (!find_node(head)) {
		answer(fd, head->unique, -ESTALE, NULL, 0);
		return true;
	}
	switch (head->opcode) {
	case FUSE_INIT:
		if (body_size >= offsetof(struct fuse_init_in, flags2))
			kernel_flags = ((const struct fuse_init_in *)body)->flags;
		if (body_size >= offsetof(struct fuse_init_in, unused) && (kernel_flags & FUSE_INIT_EXT))
			kernel_flags2 = ((const struct fuse_init_in *)body)->flags2;
		init_unique = head->unique;
		return false;
	case FUSE_WRITE:
		if (body_size >= sizeof(struct fuse_write_in))
			request_extra.kill_suidgid =
				((const struct fuse_write_in *)body)->write_flags & FUSE_WRITE_KILL_SUIDGID;
		return false;
	case FUSE_SETATTR:
		if (body_size >= sizeof(struct fuse_setattr_in))
			request_extra.kill_suidgid =
				((const struct fuse_setattr_in *)body)->valid & FATTR_KILL_SUIDGID;
		return false;
	case FUSE_INTERRUPT:
		/* Nothing of ours waits for long that could give up; libfuse would keep it for a request long answered. */
		return true;
	case FUSE_TMPFILE:
		if (body_size < sizeof(struct fuse_create_in))
			return false;
		wire_tmpfile(fd, head, body);
		return true;
	case OPCODE_STATX:
		wire_statx(fd, head);
		return true;
	case FUSE_SYNCFS:
		answer(fd, head->unique, tux3_sync(mount_state.volume), NULL, 0);
		return true;
	}
	return false;
}

bool wire_answer(struct iovec *iov, int count)
{
	const struct fuse_out_header *head = iov[0].iov_base;
	struct fuse_init_out *init;

	if (!init_unique || head->unique != init_unique)
		return false;
	init_unique = 0;
	if (count < 2 || head->error || iov[1].iov_len < sizeof(*init))
		return false;
	init = iov[1].iov_base;
	init->flags |= kernel_flags & FUSE_HANDLE_KILLPRIV_V2;
	if (!(kernel_flags2 & FLAGS2_OVER_IO_URING) || !ring_prepared())
		return false;
	init->flags |= FUSE_INIT_EXT;
	init->flags2 |= FLAGS2_OVER_IO_URING;
	return true;
}
