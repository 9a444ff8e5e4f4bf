// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ioctls that ask for parents and paths of inodes, for who may administer the volume.  The structures are in core/ioctl.h.
 *
 * Answers are gathered in memory of ours and copied out with no lock held.
 */
#include <linux/statfs.h>
#include "linux/vfs.h"
#include "core/ioctl.h"
#include "core/names/parent_list.h"

static_assert(sizeof(struct tux3_ioc_handle) == 24 && sizeof(struct tux3_ioc_parents) == 40 &&
	      sizeof(struct tux3_ioc_parents_by_handle) == 64 && sizeof(struct tux3_ioc_parent) == 32);
static_assert(sizeof(struct parent_cursor) == sizeof_field(struct tux3_ioc_parents, cursor) &&
	      sizeof(struct parent_cursor) == sizeof_field(struct tux3_ioc_path, cursor));
static_assert(TUX3_FID_LEN == sizeof(struct tux3_ioc_handle) - offsetofend(struct tux3_ioc_handle, fid_len));

#define PARENTS_BYTES_MAX 65536u	/* as XFS has it */

/* ---- parent pointers ---- */

struct parents_answer {
	__u32 fsid[2];
	u8 *records;
	u32 size, used;
	struct tux3_ioc_parent *last;
};

static u32 parent_bytes(u32 name_len)
{
	return round_up(sizeof(struct tux3_ioc_parent) + name_len + 1, sizeof(u64));
}

static int add_parent(void *ctx, const struct parent_found *found)
{
	struct parents_answer *answer = ctx;
	struct tux3_ioc_parent *record = (void *)(answer->records + answer->used);
	u32 bytes = parent_bytes(found->len);

	if (bytes > answer->size - answer->used)
		return 1;
	record->dir.fsid[0] = answer->fsid[0];
	record->dir.fsid[1] = answer->fsid[1];
	record->dir.fid_len = TUX3_FID_LEN;
	record->dir.generation = found->generation;
	record->dir.ino = found->dir;
	record->bytes = bytes;
	memcpy(record->name, found->name, found->len);
	answer->used += bytes;
	answer->last = record;
	return 0;
}

/* The last record reaches to the end of the caller's buffer; without any there is one with an empty name. */
static void end_parents(struct parents_answer *answer, u32 buffer_bytes)
{
	struct tux3_ioc_parent *last = answer->last ? answer->last : (void *)answer->records;

	last->bytes = buffer_bytes - ((u8 *)last - answer->records);
}

static int answer_parents(struct inode *inode, struct tux3_ioc_parents *request, struct parents_answer *answer)
{
	struct parent_cursor cursor;
	int ret;

	memcpy(&cursor, request->cursor, sizeof(cursor));
	ret = parent_iterate(core_of(inode), &cursor, add_parent, answer);
	if (ret < 0)
		return ret;
	if (ret && !answer->used)
		return -EMSGSIZE;
	end_parents(answer, request->bytes);
	memcpy(request->cursor, &cursor, sizeof(cursor));
	request->oflags = (core_of(inode)->ino == TUX3_INO_ROOT ? TUX3_PARENTS_ROOT : 0) | (ret ? 0 : TUX3_PARENTS_DONE);
	/* Large buffers are for who has many: as with XFS, no more of them is touched than is filled. */
	return copy_to_user(u64_to_user_ptr(request->buffer), answer->records, max(answer->used, parent_bytes(0))) ? -EFAULT : 0;
}

static void volume_fsid(struct super_block *sb, __u32 *fsid)
{
	__kernel_fsid_t id = uuid_to_fsid(sb_of(sb)->vol->uuid);

	fsid[0] = id.val[0];
	fsid[1] = id.val[1];
}

static int get_parents(struct inode *inode, struct tux3_ioc_parents *request)
{
	struct parents_answer answer = { };
	int err;

	if (request->bytes > PARENTS_BYTES_MAX)
		return -ENOMEM;
	if (request->bytes < parent_bytes(1) || request->iflags || request->reserved)
		return -EINVAL;
	volume_fsid(inode->i_sb, answer.fsid);
	answer.size = round_down(request->bytes, sizeof(u64));
	answer.records = kvzalloc(answer.size, GFP_KERNEL);
	if (!answer.records)
		return -ENOMEM;
	err = answer_parents(inode, request, &answer);
	kvfree(answer.records);
	return err;
}

static long ioctl_getparents(struct file *file, struct tux3_ioc_parents __user *arg)
{
	struct tux3_ioc_parents request;
	int err;

	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	err = get_parents(file_inode(file), &request);
	return err ? err : copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : 0;
}

static long ioctl_getparents_by_handle(struct file *file, struct tux3_ioc_parents_by_handle __user *arg)
{
	struct super_block *sb = file_inode(file)->i_sb;
	struct tux3_ioc_parents_by_handle request;
	struct inode *inode;
	__u32 fsid[2];
	int err;

	if (!S_ISDIR(file_inode(file)->i_mode))
		return -ENOTDIR;
	if (copy_from_user(&request, arg, sizeof(request)))
		return -EFAULT;
	if (request.handle.fid_len != TUX3_FID_LEN || request.handle.fid_pad)
		return -EINVAL;
	volume_fsid(sb, fsid);
	if (memcmp(fsid, request.handle.fsid, sizeof(fsid)))
		return -ESTALE;
	inode = node_get_handle(sb, request.handle.ino, request.handle.generation);
	if (IS_ERR(inode))
		return PTR_ERR(inode);
	err = get_parents(inode, &request.request);
	iput(inode);
	return err ? err : copy_to_user(arg, &request, sizeof(request)) ? -EFAULT : 0;
}

/* ---- paths ---- */

static long ioctl_path(struct super_block *sb, struct tux3_ioc_path __user *arg)
{
	struct tux3_ioc_path *request = memdup_user(arg, sizeof(*request));
	struct parent_cursor cursor;
	int ret;

	if (IS_ERR(request))
		return PTR_ERR(request);
	memcpy(&cursor, request->cursor, sizeof(cursor));
	memset(request->path, 0, sizeof(request->path));
	ret = -EINVAL;
	if (!request->spare[0] && !request->spare[1])
		ret = parent_path(sb_of(sb)->vol, request->ino, request->generation, &cursor, request->path,
				  sizeof(request->path));
	if (ret >= 0) {
		request->len = ret;
		memcpy(request->cursor, &cursor, sizeof(cursor));
		ret = copy_to_user(arg, request, sizeof(*request)) ? -EFAULT : 0;
	}
	kfree(request);
	return ret;
}

long node_ioctl_parents(struct file *file, unsigned int cmd, void __user *arg)
{
	switch (cmd) {
	case TUX3_IOC_GETPARENTS:
	case TUX3_IOC_GETPARENTS_BY_HANDLE:
	case TUX3_IOC_PATH:
		break;
	default:
		return -ENOTTY;
	}
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (cmd == TUX3_IOC_PATH)
		return ioctl_path(file_inode(file)->i_sb, arg);
	return cmd == TUX3_IOC_GETPARENTS ? ioctl_getparents(file, arg) : ioctl_getparents_by_handle(file, arg);
}
