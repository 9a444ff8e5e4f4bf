/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Attributes: stat, setattr with its rules, and the time of the last access.
 */
#include "lib.h"
#include "core/names/ops.h"

static struct timespec to_timespec(const struct tux3_time *time)
{
	return (struct timespec){ .tv_sec = time->sec, .tv_nsec = time->nsec };
}

static struct tux3_time from_timespec(const struct timespec *time)
{
	return (struct tux3_time){ .sec = time->tv_sec, .nsec = time->tv_nsec };
}

void attr_to_stat(struct tux3 *volume, u64 ino, const struct tux3_attr *attr, u64 blocks, struct tux3_stat *stat)
{
	*stat = (struct tux3_stat){
		.ino = ino, .size = attr->size, .mode = attr->mode, .uid = attr->uid, .gid = attr->gid,
		.nlink = attr->nlink, .rdev_major = attr->rdev_major, .rdev_minor = attr->rdev_minor,
		.block_size = volume->block_size, .flags = attr->flags, .generation = attr->generation,
		.projid = attr->projid, .change = attr->change,
		.atime = to_timespec(&attr->atime), .mtime = to_timespec(&attr->mtime),
		.ctime = to_timespec(&attr->ctime), .btime = to_timespec(&attr->btime),
	};
	stat->blocks_512 = blocks << (volume->shift - 9);
}

int tux3_stat_node(struct tux3_node *node, struct tux3_stat *stat)
{
	struct tux3_inode *inode = &node->inode;
	struct tux3_attr attr;

	inode_get_attr(inode, &attr);
	attr_to_stat(node->volume, inode->ino, &attr,
		     data_blocks(inode, S_ISREG(attr.mode) ? file_cache_dirty_blocks(node) : 0), stat);
	return 0;
}

uint64_t tux3_node_ino(const struct tux3_node *node)
{
	return node->inode.ino;
}

uint32_t tux3_node_mode(struct tux3_node *node)
{
	u32 mode;

	spin_lock(&node->inode.lock);
	mode = node->inode.attr.mode;
	spin_unlock(&node->inode.lock);
	return mode;
}

struct tux3 *tux3_node_volume(struct tux3_node *node)
{
	return node->volume;
}

/* ---- who may set what ---- */

static int may_set_owner(const struct tux3_cred *cred, const struct tux3_attr *attr,
			 const struct tux3_stat *stat, u32 set)
{
	if (cred->capable)
		return 0;
	if (set & TUX3_SET_UID && (cred->uid != attr->uid || stat->uid != attr->uid))
		return -EPERM;
	if (set & TUX3_SET_GID && stat->gid != attr->gid &&
	    (cred->uid != attr->uid || !cred_in_group(cred, stat->gid)))
		return -EPERM;
	return 0;
}

/* The flags themselves can be changed at any time; what is set with them must be allowed before or after. */
static int flags_allow(const struct tux3_attr *attr, const struct tux3_stat *stat, u32 set)
{
	static const struct {
		u32 set;
		enum inode_use use;
	} uses[] = {
		{ TUX3_SET_MODE | TUX3_SET_UID | TUX3_SET_GID | TUX3_SET_ATIME | TUX3_SET_MTIME, USE_ATTRIBUTE },
		{ TUX3_SET_ATIME_NOW | TUX3_SET_MTIME_NOW | TUX3_SET_CTIME, USE_WRITE },
		{ TUX3_SET_SIZE, USE_OVERWRITE },
		{ TUX3_SET_PROJID, USE_PROJECT },
	};
	struct tux3_attr either = *attr;
	u32 i;

	if (set & TUX3_SET_FLAGS)
		either.flags &= stat->flags;
	for (i = 0; i < ARRAY_SIZE(uses); i++)
		if (set & uses[i].set && perm_check_flags(&either, uses[i].use))
			return -EPERM;
	return 0;
}

static int may_set(struct tux3_node *node, const struct tux3_cred *cred, const struct tux3_attr *attr,
		   const struct tux3_stat *stat, u32 set)
{
	bool owner = cred_owns(cred, attr);
	u32 locked = TUX3_ATTR_IMMUTABLE | TUX3_ATTR_APPEND;
	int err = flags_allow(attr, stat, set);

	if (err || !cred_checks(cred))
		return err;
	if (set & (TUX3_SET_MODE | TUX3_SET_ATIME | TUX3_SET_MTIME | TUX3_SET_CTIME | TUX3_SET_FLAGS |
		   TUX3_SET_PROJID) && !owner)
		return -EPERM;
	if (set & TUX3_SET_FLAGS && (stat->flags ^ attr->flags) & locked && !cred->capable)
		return -EPERM;
	if (set & (TUX3_SET_UID | TUX3_SET_GID))
		err = may_set_owner(cred, attr, stat, set);
	if (!err && (set & TUX3_SET_SIZE || (set & (TUX3_SET_ATIME_NOW | TUX3_SET_MTIME_NOW) && !owner)))
		err = perm_check(node, cred, MAY_WRITE);
	return err;
}

/* ---- setting ---- */

/* The mode without setuid, and without setgid where it means "run as the group" or cred is not in that group. */
static u32 without_privileges(const struct tux3_attr *attr, const struct tux3_cred *cred)
{
	u32 mode = attr->mode & ~S_ISUID;

	if (mode & S_IXGRP || (cred && !cred->capable && !cred_in_group(cred, attr->gid)))
		mode &= ~S_ISGID;
	return mode;
}

/* The mode that results, if it changes: SET_MODE, or what a change of owner takes away. */
static bool new_mode(const struct tux3_cred *cred, const struct tux3_attr *attr, const struct tux3_stat *stat,
		     u32 set, u32 *mode)
{
	u32 gid = set & TUX3_SET_GID ? stat->gid : attr->gid;

	*mode = attr->mode;
	if (set & TUX3_SET_MODE) {
		*mode = (attr->mode & S_IFMT) | (stat->mode & 07777);
		if (cred_checks(cred) && !cred->capable && !cred_in_group(cred, gid))
			*mode &= ~S_ISGID;
	} else if (set & (TUX3_SET_UID | TUX3_SET_GID) && cred && !S_ISDIR(attr->mode)) {
		*mode = without_privileges(attr, cred);
	}
	return set & TUX3_SET_MODE || *mode != attr->mode;
}

/* chmod of a file with an access ACL: both change in one delta.  1: done, 0: it has none. */
static int set_mode_and_acl(struct tux3_node *node, u32 mode)
{
	struct acl *acl;
	void *value;
	int err = acl_get(node, ACL_ACCESS_NAME, &acl);

	if (err || !acl)
		return err;
	acl_apply_mode(acl, mode);
	value = kmalloc(acl_size(acl), GFP_KERNEL);
	if (value) {
		acl_store(acl, value);
		err = xattr_set(&node->inode, ACL_ACCESS_NAME, value, acl_size(acl), 0, &mode);
	} else {
		err = -ENOMEM;
	}
	kfree(value);
	kfree(acl);
	return err ? err : 1;
}

static u32 times_to_set(struct tux3_node *node, const struct tux3_stat *stat, u32 set, struct tux3_attr *attr)
{
	struct tux3_time now = inode_now(node->volume->vol);
	u32 mask = 0;

	if (set & (TUX3_SET_ATIME | TUX3_SET_ATIME_NOW)) {
		attr->atime = set & TUX3_SET_ATIME_NOW ? now : from_timespec(&stat->atime);
		mask |= OP_ATTR_ATIME;
	}
	if (set & (TUX3_SET_MTIME | TUX3_SET_MTIME_NOW)) {
		attr->mtime = set & TUX3_SET_MTIME_NOW ? now : from_timespec(&stat->mtime);
		mask |= OP_ATTR_MTIME;
	}
	if (set & TUX3_SET_CTIME) {
		attr->ctime = from_timespec(&stat->ctime);
		mask |= OP_ATTR_CTIME;
	}
	return mask;
}

static bool time_valid(const struct timespec *time)
{
	return time->tv_nsec >= 0 && time->tv_nsec <= 999999999;
}

static bool has_capability(struct tux3_node *node, const struct tux3_attr *attr)
{
	return attr->flags & TUX3_ATTR_XATTRS && !READ_ONCE(node->no_capability);
}

static bool mode_to_kill(const struct tux3_attr *attr, const struct tux3_cred *cred, u32 *mode)
{
	*mode = attr->mode;
	if (!(cred && cred->capable) && attr->mode & (S_ISUID | S_ISGID))
		*mode = without_privileges(attr, cred);
	return *mode != attr->mode;
}

/* 0, 1: there was one. */
static int kill_capability(struct tux3_node *node, const struct tux3_attr *attr)
{
	int err;

	if (!has_capability(node, attr))
		return 0;
	err = xattr_set(&node->inode, CAPABILITY_NAME, NULL, 0, 0, NULL);
	if (err && err != -ENODATA)
		return err;
	WRITE_ONCE(node->no_capability, true);
	return !err;
}

/* What is to be set besides the size, as a mask for op_setattr(). */
static u32 attr_to_set(struct tux3_node *node, const struct tux3_cred *cred, const struct tux3_stat *stat, u32 set,
		       struct tux3_attr *attr)
{
	u32 mask = times_to_set(node, stat, set, attr), mode;

	if (new_mode(cred, attr, stat, set, &mode) || (set & TUX3_SET_KILL && mode_to_kill(attr, cred, &mode))) {
		attr->mode = mode;
		mask |= OP_ATTR_MODE;
	}
	if (set & TUX3_SET_UID) {
		attr->uid = stat->uid;
		mask |= OP_ATTR_UID;
	}
	if (set & TUX3_SET_GID) {
		attr->gid = stat->gid;
		mask |= OP_ATTR_GID;
	}
	if (set & TUX3_SET_FLAGS) {
		attr->flags = stat->flags;
		mask |= OP_ATTR_FLAGS;
	}
	if (set & TUX3_SET_PROJID) {
		attr->projid = stat->projid;
		mask |= OP_ATTR_PROJID;
	}
	return mask;
}

/*
 * With node->lock.  A truncate is one delta with what comes with it: no crash shows a file that was overwritten and is
 * still setuid.  Taking setuid and setgid away does not touch what an ACL says.
 */
static int setattr_locked(struct tux3_node *node, const struct tux3_cred *cred, const struct tux3_stat *stat,
			  u32 set)
{
	struct tux3_attr attr;
	u32 mask, old;
	int err;

	inode_get_attr(&node->inode, &attr);
	err = may_set(node, cred, &attr, stat, set);
	if (!err && set & TUX3_SET_KILL && S_ISREG(attr.mode))
		err = min(kill_capability(node, &attr), 0);
	if (err)
		return err;
	old = attr.mode;
	mask = attr_to_set(node, cred, stat, set, &attr);
	if (set & TUX3_SET_SIZE) {
		err = file_truncate_locked(node, stat->size, &attr, mask);
		if (err || !((old ^ attr.mode) & 0777))
			return err;
		return min(set_mode_and_acl(node, attr.mode), 0);
	}
	if (!mask)
		return 0;
	if (mask & OP_ATTR_MODE) {
		err = set_mode_and_acl(node, attr.mode);
		if (err < 0)
			return err;
		if (err && mask == OP_ATTR_MODE)
			return 0;
	}
	return op_setattr(&node->inode, &attr, mask);
}

#define SET_KNOWN (2 * TUX3_SET_KILL - 1)	/* the last and all before it */

int tux3_setattr(struct tux3_node *node, const struct tux3_cred *cred, const struct tux3_stat *stat,
		 uint32_t set)
{
	int err;

	if (node->volume->vol->read_only)
		return -EROFS;
	if (set & ~SET_KNOWN)
		return -EINVAL;
	if ((set & TUX3_SET_MODE && S_ISLNK(node_type(node))) || (set & TUX3_SET_FLAGS && stat->flags & ~TUX3_ATTR_KNOWN))
		return -EOPNOTSUPP;
	if ((set & TUX3_SET_ATIME && !time_valid(&stat->atime)) || (set & TUX3_SET_MTIME && !time_valid(&stat->mtime)) ||
	    (set & TUX3_SET_CTIME && !time_valid(&stat->ctime)))
		return -EINVAL;
	if ((set & TUX3_SET_UID && stat->uid == ID_NONE) || (set & TUX3_SET_GID && stat->gid == ID_NONE) ||
	    (set & TUX3_SET_PROJID && stat->projid == ID_NONE))
		return -EINVAL;
	down_write(&node->lock);
	err = setattr_locked(node, cred, stat, set);
	up_write(&node->lock);
	return err;
}

int node_kill_begin(struct tux3_node *node, struct file_kill *kill, const u32 **mode)
{
	struct tux3_attr attr;
	int killed;

	inode_get_attr(&node->inode, &attr);
	killed = kill_capability(node, &attr);
	if (killed < 0)
		return killed;
	if (mode_to_kill(&attr, kill->cred, &kill->mode))
		*mode = &kill->mode;
	kill->killed = killed || *mode;
	return 0;
}

/* With node->lock.  0, 1: there was something to take away. */
static int kill_locked(struct tux3_node *node, const struct tux3_cred *cred)
{
	struct tux3_attr attr;
	int err, killed;
	u32 mode;

	inode_get_attr(&node->inode, &attr);
	err = file_check_changeable(node, &attr, USE_WRITE);
	if (err)
		return err;
	killed = kill_capability(node, &attr);
	if (killed < 0 || !mode_to_kill(&attr, cred, &mode))
		return killed;
	attr.mode = mode;
	err = op_setattr(&node->inode, &attr, OP_ATTR_MODE);
	return err ? err : 1;
}

int tux3_kill_privileges(struct tux3_node *node, const struct tux3_cred *cred)
{
	struct tux3_attr attr;
	int result;
	u32 mode;

	if (!S_ISREG(node_type(node)))
		return 0;
	/* Mostly there is nothing, and no lock to wait for. */
	inode_get_attr(&node->inode, &attr);
	if (!mode_to_kill(&attr, cred, &mode) && !has_capability(node, &attr))
		return 0;
	down_write(&node->lock);
	result = kill_locked(node, cred);
	up_write(&node->lock);
	return result;
}

/* ---- atime ---- */

static bool later_than(const struct tux3_time *a, const struct tux3_time *b)
{
	return a->sec != b->sec ? a->sec > b->sec : a->nsec > b->nsec;
}

/* As with mount -o relatime, if nothing else was asked for: if it is not newer than the last change, or a day old. */
void node_touch_atime(struct tux3_node *node)
{
	struct volume *vol = node->volume->vol;
	u64 cost = space_cost_uncounted(space_cost_items(vol, 1));
	u32 atime = READ_ONCE(node->volume->atime);
	struct tux3_attr attr, *live;
	struct tux3_time now;
	struct delta_op op;

	if (vol->read_only || volume_error(vol) || atime >= 3 || (atime == 2 && S_ISDIR(node_type(node))))
		return;
	inode_get_attr(&node->inode, &attr);
	if (attr.flags & (TUX3_ATTR_NOATIME | TUX3_ATTR_IMMUTABLE))
		return;
	now = inode_now(vol);
	if (later_than(&attr.atime, &attr.mtime) && later_than(&attr.atime, &attr.ctime) &&
	    attr.atime.sec > now.sec - 24 * 60 * 60)
		return;
	if (delta_would_wait(vol, cost) || delta_enter(vol, &op, cost, 0))
		return;
	live = inode_atime_begin(&op, &node->inode);
	live->atime = now;
	inode_change_end(&node->inode);
	delta_leave(&op);
}
