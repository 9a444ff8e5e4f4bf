// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Bulkstat: all inodes of a volume, for who may administer it.  The structures are in core/ioctl.h.
 *
 * No inode object is made, and no lock is held while anything is copied to the caller.
 */
#include "linux/vfs.h"
#include "core/inode/inode_walk.h"
#include "core/ioctl.h"

static_assert(sizeof(struct tux3_ioc_inodes_header) == 64 && sizeof(struct tux3_ioc_inode) == 192 &&
	      sizeof(struct tux3_ioc_bulkstat) == 64);
static_assert(offsetof(struct tux3_ioc_inode, generation) == 64 && offsetof(struct tux3_ioc_inode, nlink) == 112 &&
	      offsetof(struct tux3_ioc_inode, mode) == 132 && offsetof(struct tux3_ioc_inode, extents_64) == 136);

#define PORTION 256u

struct portion {
	struct inode_seen seen[PORTION];
	struct tux3_ioc_inode told[PORTION];
};

static int tell_inodes(struct volume *vol, struct tux3_ioc_inodes_header *header, u32 wanted, struct tux3_ioc_inode __user *to,
		       struct portion *portion)
{
	while (header->count < wanted) {
		u64 ino = header->ino;
		int n = inode_walk(vol, &ino, portion->seen, min(wanted - header->count, PORTION)), i;

		if (n < 0 && !header->count)
			return n;
		if (n <= 0)		/* the next call hears of an error */
			break;
		for (i = 0; i < n; i++)
			inode_seen_to_ioctl(vol, &portion->seen[i], &portion->told[i]);
		if (copy_to_user(to + header->count, portion->told, n * sizeof(*to)))
			return -EFAULT;
		header->count += n;
		header->ino = ino;
		if (fatal_signal_pending(current))
			break;
	}
	return 0;
}

long node_ioctl_inodes(struct file *file, unsigned int cmd, void __user *arg)
{
	struct tux3_ioc_bulkstat __user *user = arg;
	struct tux3_ioc_inodes_header header;
	struct portion *portion;
	u32 wanted;
	int err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (copy_from_user(&header, &user->header, sizeof(header)))
		return -EFAULT;
	/* Who owns what is told as it is on the disk. */
	if (file_mnt_idmap(file) != &nop_mnt_idmap)
		return -EINVAL;
	err = inode_walk_request(&header, &wanted);
	if (err)
		return err;
	if (cmd == TUX3_IOC_INODES)
		wanted = min(wanted, TUX3_IOC_INODES_MAX);
	portion = kvmalloc(sizeof(*portion), GFP_KERNEL);
	if (!portion)
		return -ENOMEM;
	err = tell_inodes(sb_of(file_inode(file)->i_sb)->vol, &header, wanted, user->inode, portion);
	kvfree(portion);
	return err ? err : copy_to_user(&user->header, &header, sizeof(header)) ? -EFAULT : 0;
}
