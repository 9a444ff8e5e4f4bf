/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * File data.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "tux3_fuse.h"
#include "user/lib/internal.h"

/*
 * ---- open files ----
 *
 * All that is kept of one is in its inode.  But each that was open when the volume stopped, or when a commit had to leave out
 * something of the file, is told once of what was lost, as by the module: so each has a number, 0 if it was opened since the volume
 * stopped, and who was told, or opened the file when something had been left out, is written down.
 */

#define THREAD_SHIFT 40

struct told {
	struct told *next;
	u64 handle;
	u32 losses;		/* up to this one: tux3_losses(); TOLD_OF_END: that the volume stopped */
};

#define TOLD_OF_END U32_MAX

static struct told *all_told;
static DEFINE_MUTEX(told_lock);		/* for all_told, and to set any_told */
static atomic_t numbering_threads, any_told;

/* Unique, without anything that threads share. */
static u64 new_handle(void)
{
	static __thread u64 last;

	if (!last)
		last = (u64)atomic_add_return(1, &numbering_threads) << THREAD_SHIFT;
	return ++last;
}

static struct told **find_told(u64 handle)
{
	struct told **link;

	for (link = &all_told; *link && (*link)->handle != handle; link = &(*link)->next)
		;
	return link;
}

/* Something of the file was lost: the first time that this open file asks since so many times? */
static bool tell(u64 handle, u32 losses)
{
	struct told **link, *told;
	bool first;

	mutex_lock(&told_lock);
	link = find_told(handle);
	told = *link;
	if (handle && !told) {
		told = calloc(1, sizeof(*told));
		if (told) {
			told->handle = handle;
			*link = told;
			atomic_set(&any_told, 1);
		}
	}
	first = told && told->losses < losses;
	if (first)
		told->losses = losses;
	mutex_unlock(&told_lock);
	return first;
}

/* What was lost of the file before is not for who opens it now. */
void fill_open(struct tux3_node *node, struct fuse_file_info *fi)
{
	u32 losses = tux3_losses(node);

	fi->fh = volume_error(tux3_core(mount_state.volume)) ? 0 : new_handle();
	fi->keep_cache = 1;
	fi->noflush = 1;
	if (losses && fi->fh)
		tell(fi->fh, losses);
}

static void forget_told(u64 handle)
{
	struct told **link, *told;

	mutex_lock(&told_lock);
	link = find_told(handle);
	told = *link;
	if (told)
		*link = told->next;
	mutex_unlock(&told_lock);
	free(told);
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
	fill_open(node_of(ino), fi);
	fuse_reply_open(req, fi);
}

void serve_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	if (atomic_read(&any_told))
		forget_told(fi->fh);
	fuse_reply_err(req, 0);
}

/*
 * What is missing in a reply is behind the end of the file, the kernel thinks, and fills its pages with zeros.  So what cannot be
 * read makes the whole request an error; the kernel then asks for each page alone.
 */
void serve_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct tux3_node *node = node_of(ino);
	char *data = worker_reply_buffer();
	size_t done = 0;
	ssize_t len;

	(void)fi;
	if (size > REQUEST_MAX)
		size = REQUEST_MAX;
	do {
		len = tux3_read(node, data + done, size - done, off + done);
		if (len > 0)
			done += len;
	} while (len > 0 && done < size);
	if (len < 0)
		fuse_reply_err(req, -len);
	else
		fuse_reply_buf(req, data, done);
}

/*
 * What leaves the kernel's cache.  The kernel does not look at how much of it was written: all of it was, or there is an error,
 * which fsync, msync or close tells.  With writeback the time was taken when it got in there, and comes by setattr.
 */
static ssize_t write_cached(struct tux3_node *node, const char *data, size_t size, off_t off, struct file_kill *killing)
{
	size_t done = 0;
	ssize_t len;

	do {
		len = tux3_write_cached(node, data + done, size - done, off + done, mount_state.writeback, killing);
		if (len < 0)
			return len;
		done += len;
	} while (len && done < size);
	return done;
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
	/* The kernel's flusher is root, and the data is somebody's. */
	if (fi->writepage)
		tux3_quota_exempt(false);
	if (fi->writepage)
		len = write_cached(node, data, size, off, killing);
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
	struct tux3_node *node = node_of(ino);
	int err = tux3_fsync_told(node);
	u32 losses;

	(void)data_only;
	losses = tux3_losses(node);
	if (losses && tell(fi->fh, losses))
		err = -EIO;
	if (err == -EROFS && tell(fi->fh, TOLD_OF_END))
		err = -EIO;
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
	err = made_durable(node, err);
	fuse_reply_err(req, -err);
}

/*
 * With writeback the kernel has what we have not heard of, and asks without giving it to us.  "Not implemented": from now on
 * it takes all of a file for data.
 */
void serve_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	int64_t found = mount_state.writeback ? -ENOSYS : tux3_seek(node_of(ino), off, whence);

	(void)fi;
	if (found < 0)
		fuse_reply_err(req, -found);
	else
		fuse_reply_lseek(req, found);
}
