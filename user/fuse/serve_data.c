/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * File data.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "tux3_fuse.h"
#include "user/lib/internal.h"

/* No file handles: all that is kept of an open file is in its inode. */
void fill_open(struct fuse_file_info *fi)
{
	fi->fh = 0;
	fi->keep_cache = 1;
	fi->noflush = 1;
}

/*
 * The kernel has checked modes and ACLs.  What it does not know is that a file is immutable or append-only: without being
 * asked for each open, it would let anybody have pages of such a file to write to.
 */
void serve_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct tux3_cred cred;
	int err;

	request_cred(req, &cred);
	err = tux3_may_open(node_of(ino), &cred, fi->flags);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	fill_open(fi);
	fuse_reply_open(req, fi);
}

void serve_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	fuse_reply_err(req, 0);
}

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
	struct file_kill kill = {}, *killing = NULL;
	struct tux3_cred cred;
	ssize_t len;

	/* What leaves the kernel's cache got in there by a write that was looked at, or by a mapping. */
	if (!fi->writepage || request_extra.kill_suidgid)
		killing = kill_with(req, node, &cred, &kill);
	/* Out of the kernel's cache: with writeback its time was taken when it got in there, and comes by setattr. */
	if (fi->writepage)
		len = tux3_write_cached(node, data, size, off, mount_state.writeback, killing);
	else
		len = tux3_write_killing(node, data, size, off, killing);
	if (kill.killed)
		attributes_changed(ino);
	if (len < 0)
		fuse_reply_err(req, -len);
	else
		fuse_reply_write(req, len);
}

void serve_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	int err = tux3_fsync(node_of(ino), data_only);

	(void)fi;
	/* The count of blocks is known now. */
	if (!err)
		attributes_changed(ino);
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
	struct tux3_node *node = node_of(ino);
	struct file_kill kill = {}, *killing;
	struct tux3_cred cred;
	int err;

	(void)fi;
	killing = kill_with(req, node, &cred, &kill);
	err = tux3_fallocate_killing(node, mode, off, length, killing);
	if (kill.killed)
		attributes_changed(ino);
	fuse_reply_err(req, -err);
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
