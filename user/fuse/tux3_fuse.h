/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3-fuse: what its files share.
 *
 *	main.c		mounting, daemon, signals, unmounting
 *	options.c	mount options
 *	helper.c	as a helper of mount(8) and umount(8)
 *	loop.c		worker threads that read requests from the kernel
 *	ring.c		the same by io_uring, where the kernel has that
 *	wire.c		requests that libfuse 3.14 does not know: answered here byte by byte
 *	ops.c		the table of operations, the handshake with the kernel (init)
 *	serve_name.c	lookup, create, link, rename, unlink ...
 *	serve_dir.c	readdir
 *	serve_attr.c	stat, setattr, extended attributes, ioctl, statfs
 *	serve_data.c	read, write, fallocate, seek, fsync
 *	stale.c		names that the kernel is to ask for again
 *
 * A FUSE node id is the inode number (1: the root), so that a file handle made of it is good as long as the file is.
 * Each reply that tells the kernel a node id gives it one reference; the kernel returns them with "forget".  The root has
 * ours.  A file handle is a number and nothing else (serve_data.c): we are only asked whether a file may be opened, and
 * directories are opened without that.
 *
 * The mount is the only writer of the volume, so nothing the kernel has cached ever goes stale by itself.
 */
#ifndef TUX3_FUSE_H
#define TUX3_FUSE_H

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 14)
#include <fuse_lowlevel.h>
#include <sched.h>
#include <stdatomic.h>

#include "user/lib/tux3.h"

/* The kernel may keep what we say for this many seconds: as good as forever. */
#define CACHE_FOREVER_S 1e9
/* Largest read and write; the kernel's limit (256 pages) unless an administrator raises it. */
#define REQUEST_MAX (1u << 20)
/* What a request's headers can take beyond its data. */
#define REQUEST_HEADER_MAX 4096u
/* Wakes a worker, here or in a ring, that waits for a request when all must end: nothing else uses it. */
#define SIGNAL_STOP SIGUSR2

struct mount_state {
	struct tux3 *volume;
	struct tux3_node *root;
	struct fuse_session *session;
	const char *image;		/* as the user named it, for messages */
	bool has_device;		/* the kernel: mounted as fuseblk */
	bool read_only;
	bool writeback;			/* the kernel keeps dirty pages, and times and sizes with them */
	bool readdirplus;
	atomic_uint sync;		/* enum mount_sync; a remount changes it */
	double settle_s;		/* by then a change is committed for sure */
	unsigned int threads_max;
};
extern struct mount_state mount_state;

/* A message: a sentence.  Begins with who says it. */
extern const char *message_prefix;
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A remount's options, from mount.fuse.tux3.  0, or -errno and why. */
int remount_options(const char *list, char *why, size_t size);

/*
 * The kernel has unmounted, and waits for our answer (FUSE_DESTROY, for block devices): the volume is closed in a worker,
 * when the others have ended.
 */
void close_before_answer(void);

/* Unmount and end at once, as in a crash: for when the kernel would wait for us in vain.  The message was printed. */
void give_up(void) __attribute__((noreturn));

/*
 * The end of an operation, with its result: with -o sync what was changed of node is durable, with -o dirsync the name in dir
 * is, or the regular file that was made there, with its name; else NULL.  If not, the kernel forgets what it
 * knew before.  0, -errno.
 */
int made_durable(struct tux3_node *node, int err);
int name_made_durable(fuse_ino_t dir, const char *name, struct tux3_node *made, int err);

/* What wire.c saw in the raw request.  One per worker, valid during an operation. */
struct request_extra {
	bool kill_suidgid;		/* write, truncate: the caller may not keep setuid and setgid bits */
	fuse_ino_t ino;			/* the request's first node id, or 0 */
	struct tux3_node *node;		/* that one */
};
extern __thread struct request_extra request_extra;

/* Memory for one operation at a time: what it reads from the volume before it is sent. */
void *worker_buffer(void);		/* REQUEST_MAX bytes of this thread */
/* The same, from where answers are sent without being copied.  Overwrites the request's name or data. */
void *worker_reply_buffer(void);

/* ---- loop.c ---- */
int loop_start(int fd);
int loop_done_fd(void);			/* readable when the kernel has ended the connection */
bool loop_is_worker(void);
void loop_stop_others(void);		/* in a worker: ends all but this one */
void loop_stop(void);			/* ends the workers whatever the kernel does; waits for operations to finish */
ssize_t loop_writev(int fd, struct iovec *iov, int count, void *userdata);
ssize_t loop_read(int fd, void *buf, size_t size, void *userdata);

/* ---- stale.c ---- */
void stale_start(void);
int stale_fd(void);			/* readable when there are some */
void stale_name(fuse_ino_t dir, const char *name);
void stale_forget(bool tell);		/* of the main thread: the kernel forgets them, or there is none any more */

/* ---- wire.c ---- */
/* Look at a request before libfuse does.  True: it is answered already. */
bool wire_request(int fd, const void *request, size_t size);
/* Look at an answer of libfuse before the kernel does. */
bool wire_answer(struct iovec *iov, int count);	/* true: with this one, the kernel will use the rings */

/* ---- ops.c ---- */
extern const struct fuse_lowlevel_ops fuse_ops;

/* NULL: the kernel has no reference to such a node; then it asks by a file handle. */
struct tux3_node *node_of(fuse_ino_t ino);
fuse_ino_t ino_of(struct tux3_node *node);

/* ---- shared by the operations ---- */
void fill_cred(struct tux3_cred *cred, uint32_t uid, uint32_t gid, uint32_t umask);
void request_cred(fuse_req_t req, struct tux3_cred *cred);
void request_changer(fuse_req_t req, struct tux3_node *node, struct tux3_cred *cred);
int kill_privileges(fuse_req_t req, struct tux3_node *node);
/* The same in the operation's own delta: fills cred and kill, and returns kill. */
struct file_kill *kill_with(fuse_req_t req, struct tux3_node *node, struct tux3_cred *cred, struct file_kill *kill);
void fill_stat(struct stat *to, const struct tux3_stat *from);
double attr_timeout(struct tux3_node *node);
int fill_entry(struct fuse_entry_param *entry, struct tux3_node *node);
/* We changed attributes that the kernel has in its cache, by a request after which it does not ask for them. */
void attributes_changed(fuse_ino_t ino);

void serve_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void serve_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count);
void serve_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *list);
void serve_readlink(fuse_req_t req, fuse_ino_t ino);
void serve_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void serve_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
void serve_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void serve_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void serve_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void serve_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void serve_rename(fuse_req_t req, fuse_ino_t old_dir, const char *old_name, fuse_ino_t new_dir, const char *new_name,
		  unsigned int flags);
void serve_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_dir, const char *new_name);

void serve_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void serve_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);

void serve_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void serve_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid, struct fuse_file_info *fi);
void serve_statfs(fuse_req_t req, fuse_ino_t ino);
void serve_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
void serve_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void serve_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void serve_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);
void serve_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
		 unsigned int flags, const void *in, size_t in_size, size_t out_size);

void fill_open(struct tux3_node *node, struct fuse_file_info *fi);
void serve_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void serve_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void serve_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void serve_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off, struct fuse_file_info *fi);
void serve_fsync(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);
void serve_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi);
void serve_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t length, struct fuse_file_info *fi);
void serve_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);

#endif
