/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What each operation does to a state of the oracle, and what it returns.
 *
 * The order of checks is that of the Linux VFS.  Times: a change of contents or names moves mtime and ctime, of
 * attributes and link counts ctime.
 */
#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include "model.h"
#include "user/lib/tux3.h"

#ifndef RENAME_WHITEOUT
#define RENAME_WHITEOUT 4
#endif

const char *sim_op_name(enum sim_op_kind kind)
{
	static const char *const names[] = {
#define X(NAME, name) name,
		SIM_OPS(X)
#undef X
	};

	return kind < SIM_OP_KINDS ? names[kind] : "?";
}

void sim_op_print(const struct sim_op *op, char *text, size_t size)
{
	if (op->kind == SIM_QUOTA) {
		snprintf(text, size, "quota of type %u, id %u: soft %llu, hard %llu blocks, %llu inodes", op->flags, op->uid,
			 (unsigned long long)op->limits.soft, (unsigned long long)op->limits.hard,
			 (unsigned long long)op->limits.inodes);
		return;
	}
	if (op->kind == SIM_EXCHANGE) {
		snprintf(text, size, "exchange \"%s\" %llu \"%s\" %llu len %llu flags %#x", op->a, (unsigned long long)op->offset, op->b,
			 (unsigned long long)op->offset2, (unsigned long long)op->len, op->flags);
		return;
	}
	snprintf(text, size, "%s \"%s\" \"%s\" offset %llu len %llu mode %#o flags %#x", sim_op_name(op->kind),
		 op->a, op->b, (unsigned long long)op->offset, (unsigned long long)op->len, op->mode, op->flags);
}

static void touch(struct m_state *state, u32 id, u64 now)
{
	struct m_inode *inode = model_change(state, id);

	inode->mtime = inode->ctime = now;
}

/* The parent directory of a name that must not be there yet. */
static u32 absent_name(struct m_state *state, const char *path, const char **name, int *err)
{
	u32 dir = model_parent(state, path, name, err);

	if (dir == M_NONE)
		return dir;
	if (model_entry(state->inodes[dir], *name)) {
		*err = -EEXIST;
		return M_NONE;
	}
	return dir;
}

static int apply_make(struct m_state *state, const struct sim_op *op, u64 now)
{
	struct m_inode *inode;
	const char *name;
	u32 mode = op->mode, dir;
	int err;

	dir = absent_name(state, op->a, &name, &err);
	if (dir == M_NONE)
		return err;
	if (op->kind == SIM_CREATE)
		mode |= S_IFREG;
	if (op->kind == SIM_MKDIR)
		mode |= S_IFDIR;
	if (op->kind == SIM_SYMLINK)
		mode = S_IFLNK | 0777;
	inode = model_add_inode(state, mode, now);
	inode->nlink = 1;
	if (op->kind == SIM_MKNOD) {
		inode->rdev_major = op->major;
		inode->rdev_minor = op->minor;
	}
	if (op->kind == SIM_SYMLINK) {
		snprintf(inode->target, sizeof(inode->target), "%s", op->b);
		inode->size = strlen(inode->target);
	}
	if (op->kind == SIM_MKDIR) {
		inode->nlink = 2;
		inode->parent = dir;
		model_change(state, dir)->nlink++;
	}
	model_add_entry(state, dir, name, inode->id);
	touch(state, dir, now);
	return 0;
}

static int apply_tmpfile(struct m_state *state, const struct sim_op *op, u64 now)
{
	struct m_inode *inode;
	u32 old = state->slots[op->flags];
	int err;
	u32 dir = model_lookup(state, op->a, &err);

	if (dir == M_NONE)
		return err;
	if (!S_ISDIR(state->inodes[dir]->mode))
		return -ENOTDIR;
	inode = model_add_inode(state, S_IFREG | op->mode, now);
	inode->tmpfile = true;
	state->slots[op->flags] = inode->id;
	if (old != M_NONE)
		model_drop_if_unused(state, old);
	return 0;
}

static int apply_open(struct m_state *state, const struct sim_op *op)
{
	int err;
	u32 id = model_lookup(state, op->a, &err), old = state->slots[op->flags];

	if (op->kind == SIM_OPEN && id == M_NONE)
		return err;
	state->slots[op->flags] = op->kind == SIM_OPEN ? id : M_NONE;
	if (old != M_NONE)
		model_drop_if_unused(state, old);
	return 0;
}

static int apply_link(struct m_state *state, const struct sim_op *op, u64 now)
{
	struct m_inode *inode;
	const char *name;
	int err;
	u32 id = model_lookup(state, op->a, &err), dir;

	if (id == M_NONE)
		return err;
	dir = absent_name(state, op->b, &name, &err);
	if (dir == M_NONE)
		return err;
	if (S_ISDIR(state->inodes[id]->mode))
		return -EPERM;
	if (!state->inodes[id]->nlink && !state->inodes[id]->tmpfile)
		return -ENOENT;
	inode = model_change(state, id);
	inode->nlink++;
	inode->ctime = now;
	inode->tmpfile = false;
	model_add_entry(state, dir, name, id);
	touch(state, dir, now);
	return 0;
}

/* A name of the inode went: the link count follows. */
static void drop_link(struct m_state *state, u32 id, u64 now)
{
	struct m_inode *inode = model_change(state, id);

	inode->ctime = now;
	inode->nlink -= S_ISDIR(inode->mode) ? 2 : 1;
	if (S_ISDIR(inode->mode))
		model_change(state, inode->parent)->nlink--;
	model_drop_if_unused(state, id);
}

static int apply_unlink(struct m_state *state, const struct sim_op *op, u64 now)
{
	const struct m_inode *inode;
	const char *name;
	int err;
	u32 dir = model_parent(state, op->a, &name, &err), id;

	if (dir == M_NONE)
		return err;
	id = model_lookup(state, op->a, &err);
	if (id == M_NONE)
		return err;
	inode = state->inodes[id];
	if (op->kind == SIM_UNLINK && S_ISDIR(inode->mode))
		return -EISDIR;
	if (op->kind == SIM_RMDIR && !S_ISDIR(inode->mode))
		return -ENOTDIR;
	if (op->kind == SIM_RMDIR && inode->entry_count)
		return -ENOTEMPTY;
	model_remove_entry(state, dir, name);
	touch(state, dir, now);
	drop_link(state, id, now);
	return 0;
}

/* Is `above` the directory `id` or one that leads to it? */
static bool is_ancestor(const struct m_state *state, u32 above, u32 id)
{
	for (;;) {
		if (id == above)
			return true;
		if (id == M_ROOT)
			return false;
		id = state->inodes[id]->parent;
	}
}

static int rename_check(const struct m_state *state, u32 flags, u32 old_dir, u32 old, u32 new_dir, u32 new)
{
	bool exchange = flags & TUX3_RENAME_EXCHANGE;
	bool is_dir = S_ISDIR(state->inodes[old]->mode);

	if (new != M_NONE && flags & TUX3_RENAME_NOREPLACE)
		return -EEXIST;
	if (new == M_NONE && exchange)
		return -ENOENT;
	if (is_dir && is_ancestor(state, old, new_dir))
		return -EINVAL;
	if (new != M_NONE && S_ISDIR(state->inodes[new]->mode) && is_ancestor(state, new, old_dir))
		return exchange ? -EINVAL : -ENOTEMPTY;
	if (new == M_NONE || exchange || new == old)
		return 0;
	if (is_dir && !S_ISDIR(state->inodes[new]->mode))
		return -ENOTDIR;
	if (!is_dir && S_ISDIR(state->inodes[new]->mode))
		return -EISDIR;
	return state->inodes[new]->entry_count && is_dir ? -ENOTEMPTY : 0;
}

/* The inode is now a child of dir. */
static void move_parent(struct m_state *state, u32 id, u32 dir, u64 now)
{
	struct m_inode *inode = model_change(state, id);

	inode->ctime = now;
	if (!S_ISDIR(inode->mode))
		return;
	model_change(state, inode->parent)->nlink--;
	model_change(state, dir)->nlink++;
	inode->parent = dir;
}

static int apply_rename(struct m_state *state, const struct sim_op *op, u64 now)
{
	const char *old_name, *new_name;
	int err;
	u32 old_dir = model_parent(state, op->a, &old_name, &err), new_dir, old, new;

	if (op->flags & TUX3_RENAME_EXCHANGE && op->flags & ~TUX3_RENAME_EXCHANGE)
		return -EINVAL;
	if (old_dir == M_NONE)
		return err;
	new_dir = model_parent(state, op->b, &new_name, &err);
	if (new_dir == M_NONE)
		return err;
	old = model_lookup(state, op->a, &err);
	if (old == M_NONE)
		return err;
	new = model_lookup(state, op->b, &err);
	err = rename_check(state, op->flags, old_dir, old, new_dir, new);
	if (err || new == old)
		return err;
	model_remove_entry(state, old_dir, old_name);
	if (op->flags & TUX3_RENAME_EXCHANGE) {
		model_add_entry(state, old_dir, old_name, new);
		move_parent(state, new, old_dir, now);
	} else if (new != M_NONE) {
		model_remove_entry(state, new_dir, new_name);
		drop_link(state, new, now);
	}
	model_add_entry(state, new_dir, new_name, old);
	move_parent(state, old, new_dir, now);
	if (op->flags & TUX3_RENAME_WHITEOUT) {
		struct m_inode *inode = model_add_inode(state, S_IFCHR, now);

		inode->nlink = 1;
		model_add_entry(state, old_dir, old_name, inode->id);
	}
	touch(state, old_dir, now);
	touch(state, new_dir, now);
	return 0;
}

static int apply_write(struct m_state *state, const struct sim_op *op, u32 id, u64 now)
{
	struct m_inode *inode = state->inodes[id];
	u64 offset = op->kind == SIM_APPEND ? inode->size : op->offset;

	if (S_ISDIR(inode->mode))
		return -EISDIR;
	if (!S_ISREG(inode->mode))
		return -EINVAL;
	if (!op->len)
		return 0;
	inode = model_change(state, id);
	model_put_extent(inode, offset, offset + op->len, op->seed);
	if (offset + op->len > inode->size)
		inode->size = offset + op->len;
	inode->mtime = inode->ctime = now;
	return 0;
}

static int apply_truncate(struct m_state *state, const struct sim_op *op, u32 id, u64 now)
{
	struct m_inode *inode = state->inodes[id];

	if (S_ISDIR(inode->mode))
		return -EISDIR;
	if (!S_ISREG(inode->mode))
		return -EINVAL;
	inode = model_change(state, id);
	model_punch(inode, op->len, ~0ULL);
	inode->size = op->len;
	inode->mtime = inode->ctime = now;
	return 0;
}

static int apply_fallocate(struct m_state *state, const struct sim_op *op, u32 id, u64 now)
{
	struct m_inode *inode = state->inodes[id];

	if (S_ISDIR(inode->mode))
		return -EISDIR;
	if (!S_ISREG(inode->mode))
		return -ENODEV;
	inode = model_change(state, id);
	if (op->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		model_punch(inode, op->offset, op->offset + op->len);
	if (!(op->mode & FALLOC_FL_KEEP_SIZE) && op->offset + op->len > inode->size)
		inode->size = op->offset + op->len;
	inode->mtime = inode->ctime = now;
	return 0;
}

/* As two files of which only the ranges are; they may be one file. */
static void swap_ranges(struct m_state *state, const u32 *id, const u64 *offset, const u64 *len)
{
	struct m_inode *inode[2] = { model_change(state, id[0]), model_change(state, id[1]) }, part[2];
	u32 i;

	for (i = 0; i < 2; i++) {
		part[i] = (struct m_inode){};
		model_copy_range(&part[i], 0, inode[i], offset[i], len[i]);
	}
	for (i = 0; i < 2; i++)
		model_punch(inode[i], offset[i], offset[i] + len[i]);
	for (i = 0; i < 2; i++) {
		model_copy_range(inode[i], offset[i], &part[!i], 0, len[!i]);
		free(part[!i].extents);
	}
}

static int apply_exchange(struct m_state *state, const struct sim_op *op, u32 first, u64 now)
{
	u64 offset[2] = { op->offset, op->offset2 }, len[2] = { op->len, op->len }, size[2], block = state->block_size;
	u32 id[2] = { first, M_NONE }, i;
	int err;

	id[1] = model_lookup(state, op->b, &err);
	if (id[1] == M_NONE)
		return err;
	for (i = 0; i < 2; i++) {
		if (!S_ISREG(state->inodes[id[i]]->mode))
			return S_ISDIR(state->inodes[id[i]]->mode) ? -EISDIR : -EINVAL;
		size[i] = state->inodes[id[i]]->size;
	}
	if (offset[0] % block || offset[1] % block || (id[0] == id[1] && op->flags & TUX3_EXCHANGE_TO_EOF))
		return -EINVAL;
	for (i = 0; i < 2; i++) {
		if (op->flags & TUX3_EXCHANGE_TO_EOF ? offset[i] > size[i] : offset[i] + len[i] > size[i])
			return -EINVAL;
		if (op->flags & TUX3_EXCHANGE_TO_EOF)
			len[i] = size[i] - offset[i];
	}
	if (!(op->flags & TUX3_EXCHANGE_TO_EOF) && op->len % block &&
	    (offset[0] + op->len != size[0] || offset[1] + op->len != size[1]))
		return -EINVAL;
	if (id[0] == id[1] && offset[0] < offset[1] + (op->len + block - 1) / block * block &&
	    offset[1] < offset[0] + (op->len + block - 1) / block * block)
		return -EINVAL;
	if (op->flags & TUX3_EXCHANGE_DRY_RUN || (!len[0] && !len[1]))
		return 0;
	swap_ranges(state, id, offset, len);
	for (i = 0; i < 2; i++) {
		struct m_inode *inode = model_change(state, id[i]);

		inode->size = offset[i] + len[!i] + size[i] - (offset[i] + len[i]);
		inode->mtime = inode->ctime = now;
	}
	return 0;
}

static int apply_shift(struct m_state *state, const struct sim_op *op, u32 id, u64 now)
{
	struct m_inode *inode = state->inodes[id], tail = {};
	u64 from = op->kind == SIM_COLLAPSE ? op->offset + op->len : op->offset;
	u64 to = op->kind == SIM_COLLAPSE ? op->offset : op->offset + op->len, size = inode->size;

	if (!S_ISREG(inode->mode))
		return S_ISDIR(inode->mode) ? -EISDIR : -ENODEV;
	if (!op->len || op->offset % state->block_size || op->len % state->block_size || op->offset >= size ||
	    (op->kind == SIM_COLLAPSE && op->len >= size - op->offset))
		return -EINVAL;
	inode = model_change(state, id);
	model_copy_range(&tail, to, inode, from, size - from);
	model_punch(inode, op->offset, ~0ULL);
	model_copy_range(inode, to, &tail, to, size - from);
	free(tail.extents);
	inode->size = size - from + to;
	inode->mtime = inode->ctime = now;
	return 0;
}

static int apply_setattr(struct m_state *state, const struct sim_op *op, u32 id, u64 now)
{
	struct m_inode *inode = state->inodes[id];

	if (op->flags & TUX3_SET_MODE && S_ISLNK(inode->mode))
		return -EOPNOTSUPP;
	inode = model_change(state, id);
	if (op->flags & TUX3_SET_MODE)
		inode->mode = (inode->mode & S_IFMT) | (op->mode & 07777);
	if (op->flags & TUX3_SET_UID)
		inode->uid = op->uid;
	if (op->flags & TUX3_SET_GID)
		inode->gid = op->gid;
	if (op->flags & TUX3_SET_MTIME)
		inode->mtime = op->mtime;
	inode->ctime = now;
	return 0;
}

static int apply_xattr(struct m_state *state, const struct sim_op *op, u32 id, u64 now)
{
	struct m_inode *inode = state->inodes[id];
	struct m_xattr *xattr = model_xattr(inode, op->b);
	u32 at = xattr ? xattr - inode->xattrs : inode->xattr_count;

	if (!strncmp(op->b, "user.", 5) && !S_ISREG(inode->mode) && !S_ISDIR(inode->mode))
		return -EPERM;
	if (!xattr && (op->kind == SIM_REMOVEXATTR || op->flags & XATTR_REPLACE))
		return -ENODATA;
	if (xattr && op->flags & XATTR_CREATE)
		return -EEXIST;
	inode = model_change(state, id);
	inode->ctime = now;
	if (op->kind == SIM_REMOVEXATTR) {
		inode->xattrs[at] = inode->xattrs[--inode->xattr_count];
		return 0;
	}
	if (!xattr) {
		inode->xattrs = realloc(inode->xattrs, (at + 1) * sizeof(*xattr));
		if (!inode->xattrs)
			abort();
		memset(&inode->xattrs[at], 0, sizeof(*xattr));
		snprintf(inode->xattrs[at].name, sizeof(xattr->name), "%.*s", (int)sizeof(xattr->name) - 1, op->b);
		inode->xattr_count++;
	}
	inode->xattrs[at].len = op->len;
	inode->xattrs[at].seed = op->seed;
	return 0;
}

/* Operations on one existing inode. */
static int apply_to_inode(struct m_state *state, const struct sim_op *op, u64 now)
{
	int err;
	u32 id = model_lookup(state, op->a, &err);

	if (id == M_NONE)
		return err;
	switch (op->kind) {
	case SIM_WRITE:
	case SIM_APPEND:
		return apply_write(state, op, id, now);
	case SIM_TRUNCATE:
		return apply_truncate(state, op, id, now);
	case SIM_FALLOCATE:
		return apply_fallocate(state, op, id, now);
	case SIM_EXCHANGE:
		return apply_exchange(state, op, id, now);
	case SIM_COLLAPSE:
	case SIM_INSERT:
		return apply_shift(state, op, id, now);
	case SIM_SETATTR:
		return apply_setattr(state, op, id, now);
	case SIM_SETXATTR:
	case SIM_REMOVEXATTR:
		return apply_xattr(state, op, id, now);
	default:
		return 0;
	}
}

int model_apply(struct m_state *state, const struct sim_op *op, u64 now)
{
	switch (op->kind) {
	case SIM_CREATE:
	case SIM_MKDIR:
	case SIM_MKNOD:
	case SIM_SYMLINK:
		return apply_make(state, op, now);
	case SIM_TMPFILE:
		return apply_tmpfile(state, op, now);
	case SIM_LINK:
		return apply_link(state, op, now);
	case SIM_UNLINK:
	case SIM_RMDIR:
		return apply_unlink(state, op, now);
	case SIM_RENAME:
		return apply_rename(state, op, now);
	case SIM_OPEN:
	case SIM_CLOSE:
		return apply_open(state, op);
	case SIM_QUOTA:
		state->limits[op->flags][op->uid] = op->limits;
		state->version++;
		return 0;
	case SIM_SYNC:
	case SIM_COMPARE:
	case SIM_NONE:
		return 0;
	default:
		return apply_to_inode(state, op, now);
	}
}

int model_apply_part(struct m_state *state, const struct sim_op *op, u64 bytes, u64 now)
{
	struct sim_op part = *op;
	int err = 0;

	if (op->kind == SIM_FALLOCATE && op->mode & FALLOC_FL_ZERO_RANGE) {
		part.mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
		err = model_apply(state, &part, now);
		part.mode = op->mode & FALLOC_FL_KEEP_SIZE;
	}
	part.len = bytes;
	return err || !bytes ? err : model_apply(state, &part, now);
}

u32 model_created(const struct m_state *state, const struct sim_op *op)
{
	int err;

	switch (op->kind) {
	case SIM_CREATE:
	case SIM_MKDIR:
	case SIM_MKNOD:
	case SIM_SYMLINK:
		return model_lookup(state, op->a, &err);
	case SIM_TMPFILE:
		return state->slots[op->flags];
	default:
		return M_NONE;
	}
}
