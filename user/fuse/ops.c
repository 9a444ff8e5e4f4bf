/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The table of operations, and what we agree with the kernel on when the mount starts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "options.h"
#include "tux3_fuse.h"
#include "user/lib/internal.h"

/* Requests the kernel may have under way on its own account (readahead, write-back). */
#define BACKGROUND_MAX 64u

int made_durable(struct tux3_node *node, int err)
{
	if (err || atomic_load(&mount_state.sync) < SYNC_ALL)
		return err;
	err = tux3_fsync(node, false);
	if (err)
		attributes_changed(ino_of(node));
	return err;
}

int name_made_durable(fuse_ino_t dir, const char *name, struct tux3_node *made, int err)
{
	if (err || atomic_load(&mount_state.sync) < SYNC_NAMES)
		return err;
	err = tux3_fsync(made ? made : node_of(dir), false);
	if (err)
		stale_name(dir, name);
	return err;
}

static void want(struct fuse_conn_info *conn, unsigned int cap, bool on)
{
	if (on && (conn->capable & cap))
		conn->want |= cap;
	else
		conn->want &= ~cap;
}

/*
 * The permission checks are the kernel's (default_permissions, ACLs included), so it must know modes and
 * ACLs, and the umask must come to us, because a default ACL overrides it.  The setuid and setgid bits
 * are ours to clear (wire.c), in the second version of that agreement, which libfuse does not know.
 */
static void init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	want(conn, FUSE_CAP_WRITEBACK_CACHE, mount_state.writeback && !mount_state.read_only);
	want(conn, FUSE_CAP_POSIX_ACL, true);
	want(conn, FUSE_CAP_DONT_MASK, true);
	want(conn, FUSE_CAP_CACHE_SYMLINKS, true);
	want(conn, FUSE_CAP_PARALLEL_DIROPS, true);
	want(conn, FUSE_CAP_ASYNC_READ, true);
	/* After an asynchronous direct write the kernel leaves the old pages in its cache (Linux 6.18). */
	want(conn, FUSE_CAP_ASYNC_DIO, false);
	want(conn, FUSE_CAP_IOCTL_DIR, true);
	want(conn, FUSE_CAP_READDIRPLUS, mount_state.readdirplus);
	want(conn, FUSE_CAP_READDIRPLUS_AUTO, mount_state.readdirplus);
	/* O_TRUNC comes as setattr, which knows whose setuid bit stays. */
	want(conn, FUSE_CAP_ATOMIC_O_TRUNC, false);
	/* For file handles and NFS: "." of a node id that we did not tell (serve_lookup), and ".." work. */
	want(conn, FUSE_CAP_EXPORT_SUPPORT, true);
	/* Nobody else changes files: cached pages stay good. */
	want(conn, FUSE_CAP_AUTO_INVAL_DATA, false);
	want(conn, FUSE_CAP_EXPLICIT_INVAL_DATA, true);
	want(conn, FUSE_CAP_HANDLE_KILLPRIV, false);
	/* Locks are between processes of this kernel: it keeps them itself. */
	want(conn, FUSE_CAP_POSIX_LOCKS, false);
	want(conn, FUSE_CAP_FLOCK_LOCKS, false);
	/* Plain copies beat the pipe's page juggling. */
	want(conn, FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE, false);
	conn->max_write = REQUEST_MAX;
	conn->max_background = BACKGROUND_MAX;
	conn->congestion_threshold = BACKGROUND_MAX * 3 / 4;
	conn->time_gran = 1;
}

/* Also called by libfuse itself when the session ends: then there is nobody to answer. */
static void destroy(void *userdata)
{
	(void)userdata;
	if (loop_is_worker())
		close_before_answer();
}

/* "Not implemented" tells the kernel to open directories without asking from now on. */
static void open_without_asking(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	(void)fi;
	fuse_reply_err(req, ENOSYS);
}

/*
 * Left out on purpose: flush, access, poll, bmap, getlk, setlk, flock, copy_file_range (the kernel copies).
 */
const struct fuse_lowlevel_ops fuse_ops = {
	.init		= init,
	.destroy	= destroy,
	.lookup		= serve_lookup,
	.forget		= serve_forget,
	.forget_multi	= serve_forget_multi,
	.getattr	= serve_getattr,
	.setattr	= serve_setattr,
	.readlink	= serve_readlink,
	.mknod		= serve_mknod,
	.mkdir		= serve_mkdir,
	.unlink		= serve_unlink,
	.rmdir		= serve_rmdir,
	.symlink	= serve_symlink,
	.rename		= serve_rename,
	.link		= serve_link,
	.create		= serve_create,
	.open		= serve_open,
	.release	= serve_release,
	.opendir	= open_without_asking,
	.read		= serve_read,
	.write		= serve_write,
	.fsync		= serve_fsync,
	.fsyncdir	= serve_fsyncdir,
	.readdir	= serve_readdir,
	.readdirplus	= serve_readdirplus,
	.statfs		= serve_statfs,
	.setxattr	= serve_setxattr,
	.getxattr	= serve_getxattr,
	.listxattr	= serve_listxattr,
	.removexattr	= serve_removexattr,
	.ioctl		= serve_ioctl,
	.fallocate	= serve_fallocate,
	.lseek		= serve_lseek,
};

/* Mostly it is the one that wire.c has looked up. */
struct tux3_node *node_of(fuse_ino_t ino)
{
	if (ino == FUSE_ROOT_ID)
		return mount_state.root;
	return ino == request_extra.ino ? request_extra.node : tux3_node_held(mount_state.volume, ino);
}

fuse_ino_t ino_of(struct tux3_node *node)
{
	return node == mount_state.root ? FUSE_ROOT_ID : tux3_node_ino(node);
}

void fill_cred(struct tux3_cred *cred, uint32_t uid, uint32_t gid, uint32_t umask)
{
	*cred = (struct tux3_cred) {
		.uid = uid,
		.gid = gid,
		.umask = umask,
		.no_permission_checks = true,
		.capable = uid == 0,
	};
}

void request_cred(fuse_req_t req, struct tux3_cred *cred)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	fill_cred(cred, ctx->uid, ctx->gid, ctx->umask);
	tux3_quota_exempt(ctx->uid == 0);
}

#define GROUPS_MAX 65536	/* the kernel's limit */
_Static_assert(GROUPS_MAX * sizeof(gid_t) <= REQUEST_MAX, "all groups fit the worker's buffer");

/*
 * With the caller's groups, if it depends on them what becomes of setgid: they are not in the request, and reading them
 * from /proc takes longer than all the rest.
 */
void request_changer(fuse_req_t req, struct tux3_node *node, struct tux3_cred *cred)
{
	gid_t *groups = worker_buffer();
	int count;

	request_cred(req, cred);
	/* The kernel has looked for CAP_FSETID where it says so. */
	if (request_extra.kill_suidgid)
		cred->capable = false;
	if (cred->capable || !(tux3_node_mode(node) & S_ISGID))
		return;
	count = fuse_req_getgroups(req, GROUPS_MAX, groups);
	if (count <= 0)
		return;
	cred->groups = groups;
	cred->group_count = count < GROUPS_MAX ? count : GROUPS_MAX;
}

/* The caller is going to change the file's data.  -errno, or not negative. */
int kill_privileges(fuse_req_t req, struct tux3_node *node)
{
	struct tux3_cred cred;
	int killed;

	request_changer(req, node, &cred);
	killed = tux3_kill_privileges(node, &cred);
	if (killed > 0)
		attributes_changed(ino_of(node));
	return killed;
}

struct file_kill *kill_with(fuse_req_t req, struct tux3_node *node, struct tux3_cred *cred, struct file_kill *kill)
{
	request_changer(req, node, cred);
	*kill = (struct file_kill) { .cred = cred };
	return kill;
}

void fill_stat(struct stat *to, const struct tux3_stat *from)
{
	*to = (struct stat) {
		.st_ino = from->ino,
		.st_size = from->size,
		.st_blocks = from->blocks_512,
		.st_blksize = from->block_size,
		.st_mode = from->mode,
		.st_nlink = from->nlink,
		.st_uid = from->uid,
		.st_gid = from->gid,
		.st_rdev = makedev(from->rdev_major, from->rdev_minor),
		.st_atim = from->atime,
		.st_mtim = from->mtime,
		.st_ctim = from->ctime,
	};
}

/*
 * How long the kernel may keep what it was told about node.  As long as it likes; but the count of blocks of a file
 * with changes is a guess until they are committed, so it should ask again after that.
 */
double attr_timeout(struct tux3_node *node)
{
	if (S_ISREG(tux3_node_mode(node)) && tux3_node_pending(node))
		return mount_state.settle_s;
	return CACHE_FOREVER_S;
}

/* The caller's reference to node becomes the kernel's when the entry is sent. */
int fill_entry(struct fuse_entry_param *entry, struct tux3_node *node)
{
	struct tux3_stat stat;
	int err = tux3_stat_node(node, &stat);

	if (err)
		return err;
	*entry = (struct fuse_entry_param) {
		.ino = ino_of(node),
		.generation = node == mount_state.root ? 0 : stat.generation,	/* the kernel's idea of the root */
		.attr_timeout = attr_timeout(node),
		.entry_timeout = CACHE_FOREVER_S,
	};
	fill_stat(&entry->attr, &stat);
	return 0;
}

void attributes_changed(fuse_ino_t ino)
{
	/* An offset of -1: no pages. */
	fuse_lowlevel_notify_inval_inode(mount_state.session, ino, -1, 0);
}
