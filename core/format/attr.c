// SPDX-License-Identifier: GPL-2.0-or-later
/* Attributes as they are on the disk: who reads or replays them asks first whether any inode can have them. */
#include "core/format/attr.h"

#define NSEC_MAX	999999999u

bool attr_mode_possible(u32 mode)
{
	return !(mode & ~(S_IFMT | 07777)) && (S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISCHR(mode) || S_ISBLK(mode) ||
					       S_ISFIFO(mode) || S_ISSOCK(mode));
}

static bool links_possible(u32 mode, u32 nlink)
{
	return nlink <= ATTR_LINKS_MAX && !(S_ISDIR(mode) && nlink == 1);
}

bool attr_possible(const struct disk_attr *attr, u64 total_blocks)
{
	u32 mode = le32_to_cpu(attr->mode);

	return attr_mode_possible(mode) && links_possible(mode, le32_to_cpu(attr->nlink)) &&
	       le64_to_cpu(attr->size) <= TUX3_SIZE_MAX && le64_to_cpu(attr->blocks) <= total_blocks &&
	       !(le32_to_cpu(attr->flags) & ~TUX3_ATTR_KNOWN) &&
	       le32_to_cpu(attr->atime_nsec) <= NSEC_MAX && le32_to_cpu(attr->mtime_nsec) <= NSEC_MAX &&
	       le32_to_cpu(attr->ctime_nsec) <= NSEC_MAX && le32_to_cpu(attr->btime_nsec) <= NSEC_MAX;
}
