// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Contents that swap, and ends of files that move: the host's part of the core's remap.h, and the ioctls for it.
 *
 * Locking: i_rwsem of both files exclusively, then, when nothing is dirty any more, their invalidate_lock, until all is durable.
 * So nothing is written, stored through a mapping, or read into the page cache meanwhile.  What was cached of the ranges goes,
 * mapped or not; folios that reach beyond a range, too, for they are clean.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include "core/ioctl.h"
#include "core/data/data_change.h"
#include "core/data/remap.h"
#include "linux/folio.h"

static int remap_settle(struct tux3_inode *inode)
{
	return file_redirty_strays(core_node(inode));
}

static void remap_lock(struct tux3_inode *a, struct tux3_inode *b)
{
	filemap_invalidate_lock_two(vfs_of(a)->i_mapping, b && b != a ? vfs_of(b)->i_mapping : NULL);
}

static void remap_unlock(struct tux3_inode *a, struct tux3_inode *b)
{
	filemap_invalidate_unlock_two(vfs_of(a)->i_mapping, b && b != a ? vfs_of(b)->i_mapping : NULL);
}

static int remap_apart(struct tux3_inode *inode)
{
	return file_set_apart(vfs_of(inode));
}

static int remap_drop(struct tux3_inode *inode, u64 block, u64 count)
{
	u32 more = inode->vol->block_shift - PAGE_SHIFT;
	u64 end = block + count;
	pgoff_t last = end > TUX3_SIZE_MAX >> inode->vol->block_shift ? ULONG_MAX : (end << more) - 1;
	int err;

	if (block > TUX3_SIZE_MAX >> inode->vol->block_shift)
		return 0;
	err = invalidate_inode_pages2_range(vfs_of(inode)->i_mapping, block << more, last);
	return err == -EBUSY ? -EAGAIN : err;
}

static void remap_changed(struct tux3_inode *inode)
{
	node_show_change(core_node(inode), inode_attr(inode));
}

static const struct data_remap_ops remap_ops = {
	.settle = remap_settle,
	.lock = remap_lock,
	.unlock = remap_unlock,
	.apart = remap_apart,
	.drop = remap_drop,
	.changed = remap_changed,
};

int file_shift(struct inode *inode, bool insert, u64 offset, u64 len)
{
	int err = 0;

	if (test_bit(NODE_SWAP, &node_of(inode)->flags))
		return -ETXTBSY;
	if (insert && len <= TUX3_SIZE_MAX - i_size_read(inode))	/* else -EFBIG */
		err = inode_newsize_ok(inode, i_size_read(inode) + len);
	if (err)
		return err;
	err = insert ? data_insert(core_of(inode), &remap_ops, offset, len) :
		       data_collapse(core_of(inode), &remap_ops, offset, len);
	node_pull(inode);
	return err;
}

/* ---- exchange ---- */

static int check_file(struct file *file)
{
	struct inode *inode = file_inode(file);

	if (S_ISDIR(inode->i_mode))
		return -EISDIR;
	if (!S_ISREG(inode->i_mode))
		return -EINVAL;
	if (!(file->f_mode & FMODE_READ) || !(file->f_mode & FMODE_WRITE) || file->f_flags & O_APPEND)
		return -EBADF;
	return 0;
}

/* With i_rwsem. */
static int check_inode(struct inode *inode)
{
	if (IS_IMMUTABLE(inode) || IS_APPEND(inode))
		return -EPERM;
	return test_bit(NODE_SWAP, &node_of(inode)->flags) ? -ETXTBSY : 0;
}

static int check_sizes(const struct data_exchange *exchange)
{
	u32 i;
	int err = 0;

	for (i = 0; i < 2 && !err && exchange->flags & EXCHANGE_TO_EOF; i++) {
		u64 other = i_size_read(vfs_of(exchange->inode[!i])), more = other - min(other, exchange->offset[!i]);

		if (more <= TUX3_SIZE_MAX - min_t(u64, exchange->offset[i], TUX3_SIZE_MAX))
			err = inode_newsize_ok(vfs_of(exchange->inode[i]), exchange->offset[i] + more);
	}
	return err;
}

struct file_exchange {
	struct data_exchange core;
	struct file *file[2];
};

/* Not before it is known that file 2 is what the caller takes it for: this changes its ctime. */
static int remove_privs(const struct data_exchange *exchange)
{
	const struct file_exchange *files = container_of(exchange, struct file_exchange, core);
	int err = node_remove_privs(files->file[0]);

	return err || file_inode(files->file[0]) == file_inode(files->file[1]) ? err : node_remove_privs(files->file[1]);
}

static int exchange_locked(struct file_exchange *files)
{
	struct inode *inode1 = file_inode(files->file[0]), *inode2 = file_inode(files->file[1]);
	int err = check_inode(inode1), end;

	if (!err)
		err = check_inode(inode2);
	if (!err)
		err = check_sizes(&files->core);
	if (!err)
		err = data_exchange(&files->core);
	end = node_remove_privs_end(inode1);
	if (!err)
		err = end;
	end = node_remove_privs_end(inode2);
	if (!err)
		err = end;
	node_pull(inode1);
	node_pull(inode2);
	return err;
}

/* What security modules and those who fill files on demand say of reading and writing this part. */
static int verify_area(struct file *file, u64 offset, const struct tux3_ioc_exchange *args)
{
	u64 size = i_size_read(file_inode(file)), len = args->flags & EXCHANGE_TO_EOF ? size - min(size, offset) : args->length;

	if (offset > LLONG_MAX || len > LLONG_MAX)
		return -EINVAL;
	return remap_verify_area(file, offset, len, true);
}

static int exchange_files(struct file *file1, struct file *file2, const struct tux3_ioc_exchange *args, const u64 *fresh)
{
	struct inode *inode1 = file_inode(file1), *inode2 = file_inode(file2);
	struct file_exchange files = {
		.core = {
			.offset = { args->offset1, args->offset2 }, .len = args->length, .flags = args->flags,
			.ops = &remap_ops, .begins = remove_privs, .fresh = fresh,
		},
		.file = { file1, file2 },
	};
	int err;

	if (file1->f_path.mnt != file2->f_path.mnt || inode1->i_sb != inode2->i_sb)
		return -EXDEV;
	err = check_file(file1);
	if (!err)
		err = check_file(file2);
	if (!err)
		err = verify_area(file1, args->offset1, args);
	if (!err)
		err = verify_area(file2, args->offset2, args);
	if (err)
		return err;
	files.core.inode[0] = core_of(inode1);
	files.core.inode[1] = core_of(inode2);
	err = mnt_want_write_file(file2);
	if (err)
		return err;
	lock_two_nondirectories(inode1, inode2);
	err = exchange_locked(&files);
	unlock_two_nondirectories(inode1, inode2);
	mnt_drop_write_file(file2);
	if (!err && !(files.core.flags & EXCHANGE_DRY_RUN)) {
		fsnotify_modify(file1);
		if (inode1 != inode2)
			fsnotify_modify(file2);
	}
	return err;
}

static int ioctl_exchange(struct file *file2, const struct tux3_ioc_exchange *args, const u64 *fresh)
{
	struct file *file1;
	int err;

	if (args->pad || args->flags & ~(u64)EXCHANGE_KNOWN)
		return -EINVAL;
	file1 = fget(args->file1);
	if (!file1)
		return -EBADF;
	err = exchange_files(file1, file2, args, fresh);
	fput(file1);
	return err;
}

static int ioctl_start_commit(struct file *file, struct tux3_ioc_commit __user *user)
{
	struct inode *inode = file_inode(file);
	u64 words[EXCHANGE_FRESH_WORDS];
	int err = check_file(file);

	if (!err)
		err = mnt_want_write_file(file);	/* it may get blocks for what was inline */
	if (err)
		return err;
	inode_lock(inode);
	err = check_inode(inode);
	if (!err)
		err = data_start_commit(core_of(inode), &remap_ops, words);
	node_pull(inode);
	inode_unlock(inode);
	mnt_drop_write_file(file);
	if (err)
		return err;
	/* The rest is what the caller wants to exchange: he may have said so already. */
	return copy_to_user(user->fresh, words, sizeof(words)) ? -EFAULT : 0;
}

long node_ioctl_exchange(struct file *file, unsigned int cmd, void __user *user)
{
	struct tux3_ioc_commit args = {};
	u64 words[EXCHANGE_FRESH_WORDS];
	u32 i;

	BUILD_BUG_ON(sizeof(args.exchange) != 40 || sizeof(args) != 88 || sizeof(args.fresh) != sizeof(words));
	switch (cmd) {
	case TUX3_IOC_EXCHANGE_RANGE:
		if (copy_from_user(&args.exchange, user, sizeof(args.exchange)))
			return -EFAULT;
		return ioctl_exchange(file, &args.exchange, NULL);
	case TUX3_IOC_START_COMMIT:
		return ioctl_start_commit(file, user);
	case TUX3_IOC_COMMIT_RANGE:
		if (copy_from_user(&args, user, sizeof(args)))
			return -EFAULT;
		for (i = 0; i < EXCHANGE_FRESH_WORDS; i++)
			words[i] = args.fresh[i];
		return ioctl_exchange(file, &args.exchange, words);
	}
	return -ENOTTY;
}
