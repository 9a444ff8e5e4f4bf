/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Attributes: stat and its changes, extended attributes, the attribute ioctls, statfs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "helper.h"
#include "tux3_fuse.h"
#include "core/inode/inode.h"
#include "core/ioctl.h"
#include "core/scrub/hold.h"
#include "core/scrub/scrub.h"
#include "user/lib/inodes.h"
#include "user/lib/internal.h"
#include "user/lib/quota_request.h"
#include "user/lib/statistics.h"

#define XATTR_ACL_ACCESS "system.posix_acl_access"
#define XATTR_TRUSTED "trusted."

static void reply_stat(fuse_req_t req, struct tux3_node *node)
{
	struct tux3_stat stat;
	struct stat reply;
	int err = tux3_stat_node(node, &stat);

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	fill_stat(&reply, &stat);
	fuse_reply_attr(req, &reply, attr_timeout(node));
}

void serve_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)fi;
	reply_stat(req, node_of(ino));
}

static uint32_t setattr_mask(int valid)
{
	static const struct {
		int fuse;
		uint32_t tux3;
	} map[] = {
		{ FUSE_SET_ATTR_MODE,		TUX3_SET_MODE },
		{ FUSE_SET_ATTR_UID,		TUX3_SET_UID },
		{ FUSE_SET_ATTR_GID,		TUX3_SET_GID },
		{ FUSE_SET_ATTR_SIZE,		TUX3_SET_SIZE },
		{ FUSE_SET_ATTR_ATIME,		TUX3_SET_ATIME },
		{ FUSE_SET_ATTR_MTIME,		TUX3_SET_MTIME },
		{ FUSE_SET_ATTR_CTIME,		TUX3_SET_CTIME },
		{ FUSE_SET_ATTR_ATIME_NOW,	TUX3_SET_ATIME_NOW },
		{ FUSE_SET_ATTR_MTIME_NOW,	TUX3_SET_MTIME_NOW },
	};
	uint32_t set = 0;

	for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (valid & map[i].fuse)
			set |= map[i].tux3;
	/* The kernel sets both: the time it sends with "now" is its own and no better. */
	if (set & TUX3_SET_ATIME_NOW)
		set &= ~TUX3_SET_ATIME;
	if (set & TUX3_SET_MTIME_NOW)
		set &= ~TUX3_SET_MTIME;
	return set;
}

void serve_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int valid, struct fuse_file_info *fi)
{
	struct tux3_node *node = node_of(ino);
	uint32_t set = setattr_mask(valid);
	struct tux3_stat stat = {
		.mode = attr->st_mode,
		.uid = attr->st_uid,
		.gid = attr->st_gid,
		.size = attr->st_size,
		.atime = attr->st_atim,
		.mtime = attr->st_mtim,
		.ctime = attr->st_ctim,
	};
	struct tux3_cred cred;
	int err = 0;

	(void)fi;
	if (set & (TUX3_SET_UID | TUX3_SET_GID))
		err = kill_privileges(req, node);
	else if (set & TUX3_SET_SIZE)
		set |= TUX3_SET_KILL;
	request_changer(req, node, &cred);
	if (err >= 0 && set)
		err = tux3_setattr(node, &cred, &stat, set);
	err = err < 0 ? err : made_durable(node, 0);
	if (err < 0)
		fuse_reply_err(req, -err);
	else
		reply_stat(req, node);
}

void serve_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct tux3_statfs stat;
	struct statvfs reply;
	int err = tux3_statfs_node(node_of(ino), &stat);

	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	reply = (struct statvfs) {
		.f_bsize = stat.block_size,
		.f_frsize = stat.block_size,
		.f_blocks = stat.blocks,
		.f_bfree = stat.free_blocks,
		.f_bavail = stat.available_blocks,
		.f_files = stat.inodes + stat.free_inodes,
		.f_ffree = stat.free_inodes,
		.f_favail = stat.free_inodes,
		.f_fsid = stat.volume_id,
		.f_namemax = 255,
	};
	fuse_reply_statfs(req, &reply);
}

/* ---- extended attributes ---- */

void serve_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	struct tux3_node *node = node_of(ino);
	struct tux3_cred cred;
	int err;

	if (!strcmp(name, XATTR_ACL_ACCESS))
		request_changer(req, node, &cred);	/* it is a chmod: setgid is for those in the group */
	else
		request_cred(req, &cred);
	err = tux3_setxattr(node, &cred, name, value, size, flags);
	fuse_reply_err(req, -made_durable(node, err));
}

void serve_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	char *value = worker_buffer();
	ssize_t len;

	if (size > REQUEST_MAX)
		size = REQUEST_MAX;
	if (ino == FUSE_ROOT_ID && !strcmp(name, TUX3_STATISTICS_XATTR))
		len = tux3_statistics_text(tux3_node_volume(node_of(ino)), value, size);
	else
		len = tux3_getxattr(node_of(ino), name, value, size);
	if (len < 0)
		fuse_reply_err(req, -len);
	else if (size)
		fuse_reply_buf(req, value, len);
	else
		fuse_reply_xattr(req, len);
}

/* Names of trusted attributes are for those who may read them. */
static size_t hide_trusted(char *list, size_t len)
{
	size_t kept = 0, entry;

	for (size_t at = 0; at < len; at += entry) {
		entry = strlen(list + at) + 1;
		if (!strncmp(list + at, XATTR_TRUSTED, strlen(XATTR_TRUSTED)))
			continue;
		memmove(list + kept, list + at, entry);
		kept += entry;
	}
	return kept;
}

void serve_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	char *list = worker_buffer();
	ssize_t len = tux3_listxattr(node_of(ino), list, REQUEST_MAX);

	if (len < 0) {
		fuse_reply_err(req, -len);
		return;
	}
	if (fuse_req_ctx(req)->uid != 0)
		len = hide_trusted(list, len);
	if (!size)
		fuse_reply_xattr(req, len);
	else if ((size_t)len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, list, len);
}

void serve_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct tux3_cred cred;

	request_cred(req, &cred);
	fuse_reply_err(req, -made_durable(node_of(ino), tux3_removexattr(node_of(ino), &cred, name)));
}

/*
 * ---- chattr, lsattr, project ids ----
 *
 * The kernel compares what is asked for with what we say is there, and refuses immutable and append-only to who has not
 * CAP_LINUX_IMMUTABLE.  It asks for struct fsxattr to compare, also where the flags come by FS_IOC_SETFLAGS.
 */

static const struct {
	uint32_t flag, xflag;
} xflags[] = {
	{ FS_IMMUTABLE_FL,	FS_XFLAG_IMMUTABLE },
	{ FS_APPEND_FL,		FS_XFLAG_APPEND },
	{ FS_NODUMP_FL,		FS_XFLAG_NODUMP },
	{ FS_NOATIME_FL,	FS_XFLAG_NOATIME },
	{ FS_PROJINHERIT_FL,	FS_XFLAG_PROJINHERIT },
};

static uint32_t flags_to_xflags(uint32_t flags)
{
	uint32_t result = 0;

	for (size_t i = 0; i < sizeof(xflags) / sizeof(xflags[0]); i++)
		if (flags & xflags[i].flag)
			result |= xflags[i].xflag;
	return result;
}

static uint32_t flags_from_xflags(uint32_t bits)
{
	uint32_t result = 0;

	for (size_t i = 0; i < sizeof(xflags) / sizeof(xflags[0]); i++)
		if (bits & xflags[i].xflag)
			result |= xflags[i].flag;
	return result;
}

/* flags as FS_IOC_SETFLAGS has them.  Nothing that we do not keep is dropped in silence, but what only directories have. */
static int set_flags(fuse_req_t req, struct tux3_node *node, const struct tux3_stat *old, uint32_t flags, uint32_t projid)
{
	struct tux3_stat stat = { .projid = projid };
	struct tux3_cred cred;
	uint32_t set = 0;
	int err;

	if (!attr_flags_from_ioctl(flags, &stat.flags))
		return -EOPNOTSUPP;
	if (flags != attr_flags_to_ioctl(old->flags))
		set |= TUX3_SET_FLAGS;
	if (projid != old->projid)
		set |= TUX3_SET_PROJID;
	if (!set)
		return 0;
	request_cred(req, &cred);
	err = tux3_setattr(node, &cred, &stat, set);
	if (!err)
		attributes_changed(ino_of(node));
	return made_durable(node, err);
}

static int set_fsxattr(fuse_req_t req, struct tux3_node *node, const struct tux3_stat *old, const struct fsxattr *fsx)
{
	uint32_t flags = flags_from_xflags(fsx->fsx_xflags);

	/* Extent size hints we do not have. */
	if (fsx->fsx_extsize || fsx->fsx_cowextsize || fsx->fsx_xflags != flags_to_xflags(flags))
		return -EOPNOTSUPP;
	return set_flags(req, node, old, flags, fsx->fsx_projid);
}

static void serve_remount(fuse_req_t req, const void *in)
{
	struct remount_request *request;

	if (fuse_req_ctx(req)->uid != 0) {
		fuse_reply_err(req, EPERM);
		return;
	}
	request = malloc(sizeof(*request));
	if (!request) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	memcpy(request, in, sizeof(*request));
	request->options[sizeof(request->options) - 1] = '\0';
	fuse_reply_ioctl(req, remount_options(request->options, request->why, sizeof(request->why)) ? 1 : 0, request,
			 sizeof(*request));
	free(request);
}

static void reply_changed(fuse_req_t req, int err)
{
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_ioctl(req, 0, NULL, 0);
}

/* The name of the volume.  0, -errno. */
static int set_label(fuse_req_t req, struct tux3 *volume, const void *in)
{
	char label[FSLABEL_MAX + 1] = "";
	struct tux3_cred cred;

	request_cred(req, &cred);
	if (!cred.capable)
		return -EPERM;
	memcpy(label, in, FSLABEL_MAX);
	return tux3_set_label(volume, label);
}

#define GROUPS_SEEN 256

/* The next from *id on of those that anybody may see: himself, and the groups that he is in. */
static int own_quota_next(fuse_req_t req, struct tux3 *volume, uint32_t type, uint32_t *id, struct tux3_quota *quota)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	uint32_t next = UINT32_MAX;
	gid_t own[GROUPS_SEEN + 1];
	int count = 0, i;

	if (type == TUX3_QUOTA_GROUP)
		count = fuse_req_getgroups(req, GROUPS_SEEN, own);
	count = count < 0 ? 0 : count < GROUPS_SEEN ? count : GROUPS_SEEN;
	if (type <= TUX3_QUOTA_GROUP)
		own[count++] = type == TUX3_QUOTA_USER ? ctx->uid : ctx->gid;
	for (i = 0; i < count; i++)
		if (own[i] >= *id && own[i] < next)
			next = own[i];
	if (next == UINT32_MAX)
		return -ENOENT;
	*id = next;
	return tux3_quota_get(volume, type, next, quota);
}

/* tux3 quota. */
static void serve_quota(fuse_req_t req, struct tux3 *volume, const void *in)
{
	struct tux3_quota_request request;
	int err = -EPERM;

	memcpy(&request, in, sizeof(request));
	if (fuse_req_ctx(req)->uid != 0 && !request.set)
		err = own_quota_next(req, volume, request.type, &request.id, &request.quota);
	else if (fuse_req_ctx(req)->uid == 0)
		err = request.set ? tux3_quota_set(volume, request.type, request.id, &request.quota, request.set) :
				    tux3_quota_next(volume, request.type, &request.id, &request.quota);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_ioctl(req, 0, &request, sizeof(request));
}

/* tux3 path. */
static void serve_path(fuse_req_t req, struct tux3 *volume, const void *in)
{
	struct tux3_ioc_path *request = malloc(sizeof(*request));
	struct tux3_parent_cursor cursor;
	int ret = -ENOMEM;

	if (request) {
		memcpy(request, in, sizeof(*request));
		memcpy(&cursor, request->cursor, sizeof(cursor));
		memset(request->path, 0, sizeof(request->path));
		ret = fuse_req_ctx(req)->uid ? -EPERM : request->spare[0] || request->spare[1] ? -EINVAL : 0;
	}
	if (!ret)
		ret = tux3_path_of(volume, request->ino, request->generation, &cursor, request->path, sizeof(request->path));
	if (ret < 0) {
		fuse_reply_err(req, -ret);
	} else {
		request->len = ret;
		memcpy(request->cursor, &cursor, sizeof(cursor));
		fuse_reply_ioctl(req, 0, request, sizeof(*request));
	}
	free(request);
}

/* tux3 scrub, by root or by who mounted. */
static void serve_scrub(fuse_req_t req, struct tux3 *volume, const void *in)
{
	uid_t uid = fuse_req_ctx(req)->uid;
	struct tux3_ioc_scrub *scrub = malloc(sizeof(*scrub));
	int err = scrub ? -EPERM : -ENOMEM;

	if (scrub && (uid == 0 || uid == getuid())) {
		memcpy(scrub, in, sizeof(*scrub));
		err = volume_scrub(tux3_core(volume), scrub);
	}
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_ioctl(req, 0, scrub, sizeof(*scrub));
	free(scrub);
}

static void serve_hold(fuse_req_t req, struct tux3 *volume, const void *in)
{
	uid_t uid = fuse_req_ctx(req)->uid;
	struct tux3_ioc_hold hold;
	int err = -EPERM;

	memcpy(&hold, in, sizeof(hold));
	if (uid == 0 || uid == getuid())
		err = volume_hold(tux3_core(volume), &hold);
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_ioctl(req, 0, &hold, sizeof(hold));
}

/* tux3 ls-inodes. */
static void serve_inodes(fuse_req_t req, struct tux3 *volume, const void *in)
{
	struct tux3_ioc_inodes *request = malloc(sizeof(*request));
	int err = -ENOMEM;

	if (request) {
		memcpy(request, in, sizeof(*request));
		err = fuse_req_ctx(req)->uid ? -EPERM : tux3_answer_inodes(volume, request);
	}
	if (err)
		fuse_reply_err(req, -err);
	else
		fuse_reply_ioctl(req, 0, request, sizeof(*request));
	free(request);
}

/* What is asked of the volume through any of its files.  false: something else. */
static bool volume_ioctl(fuse_req_t req, struct tux3 *volume, unsigned int cmd, const void *in, size_t in_size, size_t out_size)
{
	char label[FSLABEL_MAX] = "";
	struct tux3_statfs stat;

	if (cmd == (unsigned int)FS_IOC_GETFSLABEL && out_size >= sizeof(label)) {
		tux3_statfs(volume, &stat);
		memcpy(label, stat.label, sizeof(stat.label));
		fuse_reply_ioctl(req, 0, label, sizeof(label));
	} else if (cmd == (unsigned int)FS_IOC_SETFSLABEL && in_size >= FSLABEL_MAX) {
		reply_changed(req, set_label(req, volume, in));
	} else if (cmd == (unsigned int)TUX3_FUSE_IOC_QUOTA && in_size >= sizeof(struct tux3_quota_request)) {
		serve_quota(req, volume, in);
	} else if (cmd == (unsigned int)TUX3_IOC_PATH && in_size >= sizeof(struct tux3_ioc_path)) {
		serve_path(req, volume, in);
	} else if (cmd == (unsigned int)TUX3_IOC_INODES && in_size >= sizeof(struct tux3_ioc_inodes)) {
		serve_inodes(req, volume, in);
	} else if (cmd == (unsigned int)TUX3_IOC_SCRUB && in_size >= sizeof(struct tux3_ioc_scrub)) {
		serve_scrub(req, volume, in);
	} else if (cmd == (unsigned int)TUX3_IOC_HOLD && in_size >= sizeof(struct tux3_ioc_hold)) {
		serve_hold(req, volume, in);
	} else {
		return false;
	}
	return true;
}

void serve_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
	      unsigned int flags, const void *in, size_t in_size, size_t out_size)
{
	struct tux3_node *node = node_of(ino);
	struct fsxattr fsx = { 0 };
	struct tux3_stat stat;
	unsigned int inode_flags;
	int err = tux3_stat_node(node, &stat);

	(void)arg;
	(void)fi;
	(void)flags;
	if (volume_ioctl(req, tux3_node_volume(node), cmd, in, in_size, out_size))
		return;
	if (err) {
		fuse_reply_err(req, -err);
	} else if (cmd == (unsigned int)FS_IOC_GETFLAGS && out_size >= sizeof(inode_flags)) {
		inode_flags = attr_flags_to_ioctl(stat.flags);
		fuse_reply_ioctl(req, 0, &inode_flags, sizeof(inode_flags));
	} else if (cmd == (unsigned int)FS_IOC_SETFLAGS && in_size >= sizeof(inode_flags)) {
		memcpy(&inode_flags, in, sizeof(inode_flags));
		reply_changed(req, set_flags(req, node, &stat, inode_flags, stat.projid));
	} else if (cmd == (unsigned int)FS_IOC_FSGETXATTR && out_size >= sizeof(fsx)) {
		fsx.fsx_xflags = flags_to_xflags(attr_flags_to_ioctl(stat.flags));
		fsx.fsx_projid = stat.projid;
		fuse_reply_ioctl(req, 0, &fsx, sizeof(fsx));
	} else if (cmd == (unsigned int)FS_IOC_FSSETXATTR && in_size >= sizeof(fsx)) {
		memcpy(&fsx, in, sizeof(fsx));
		reply_changed(req, set_fsxattr(req, node, &stat, &fsx));
	} else if (cmd == (unsigned int)TUX3_FUSE_IOC_REMOUNT && in_size >= sizeof(struct remount_request)) {
		serve_remount(req, in);
	} else {
		fuse_reply_err(req, ENOTTY);
	}
}
