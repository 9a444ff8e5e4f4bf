/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All inodes of a volume: what the core says, in the library's words and in an ioctl's.
 */
#include "lib.h"
#include "inodes.h"
#include "core/inode/inode_walk.h"

#define PORTION 64u

int tux3_bulkstat(struct tux3 *volume, uint64_t *ino, struct tux3_stat *stats, unsigned int count)
{
	struct inode_seen seen[PORTION];
	unsigned int told = 0;

	if (!volume)
		return -EINVAL;
	while (told < count) {
		u64 next = *ino;
		int n = inode_walk(volume->vol, &next, seen, min(count - told, PORTION)), i;

		if (n < 0 && !told)
			return n;
		if (n <= 0)		/* the next call hears of an error */
			break;
		for (i = 0; i < n; i++)
			attr_to_stat(volume, seen[i].ino, &seen[i].attr, seen[i].blocks, &stats[told++]);
		*ino = next;
	}
	return told;
}

int tux3_answer_inodes(struct tux3 *volume, struct tux3_ioc_inodes *request)
{
	struct tux3_ioc_inodes_header *header = &request->header;
	struct inode_seen seen[TUX3_IOC_INODES_MAX];
	u32 wanted;
	u64 ino;
	int n, i, err = inode_walk_request(header, &wanted);

	if (err)
		return err;
	ino = header->ino;
	n = inode_walk(volume->vol, &ino, seen, min(wanted, TUX3_IOC_INODES_MAX));
	if (n < 0)
		return n;
	for (i = 0; i < n; i++)
		inode_seen_to_ioctl(volume->vol, &seen[i], &request->inode[i]);
	header->ino = ino;
	header->count = n;
	return 0;
}
