/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * File data.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "tux3_fuse.h"
#include "user/lib/internal.h"

void serve_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	char *data = worker_reply_buffer();
	ssize_t len;

	(void)fi;
	if (size > REQUEST_MAX)
		size = REQUEST_MAX;
	len = tux3_read(node_of(ino), data, size, off);
	if (len < 0)
		fuse_reply_err(req, -len);
	else
		fuse_reply_buf(req, data, len);
}

void serve_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct tux3_node *node = node_of(ino);
	ssize_t len;
	int err = 0;

	if (request_extra.kill_suidgid)
		err = tux3_kill_privileges(node);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	/* The kernel was told of the write before, and sends its time after: this is only when it lets go of it. */
	if (mount_state.writeback && fi->writepage)
		len = tux3_write_keep_times(node, data, size, off);
	else
		len = tux3_write(node, data, size, off);
	if (len < 0)
		fuse_reply_err(req, -len);
	else
		fuse_reply_write(req, len);
}

void serve_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	int err = tux3_fsync(node_of(ino), data_only);

	(void)fi;
	/* The count of blocks is known now: -1 is attributes only. */
	if (!err)
		fuse_lowlevel_notify_inval_inode(mount_state.session, ino, -1, 0);
	fuse_reply_err(req, -err);
}

void serve_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	(void)fi;
	/* There is no syncfs for FUSE: fsync of the root stands in for it. */
	fuse_reply_err(req, -(ino == FUSE_ROOT_ID ? tux3_sync(mount_state.volume) :
			      tux3_fsync(node_of(ino), data_only)));
}

void serve_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t length, struct fuse_file_info *fi)
{
	(void)fi;
	fuse_reply_err(req, -tux3_fallocate(node_of(ino), mode, off, length));
}

void serve_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	int64_t found = tux3_seek(node_of(ino), off, whence);

	(void)fi;
	if (found < 0)
		fuse_reply_err(req, -found);
	else
		fuse_reply_lseek(req, found);
}
