/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ioctls that the module, tux3-fuse and the tools share: numbers and structures.
 *
 * All sizes are the same for 32 and 64 bit callers, and below 16 KiB, so that FUSE passes them on.  Numbers of our own have
 * type 0x98, which Documentation/userspace-api/ioctl/ioctl-number.rst gives to nobody.
 */
#ifndef TUX3_IOCTL_H
#define TUX3_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TUX3_IOC_TYPE 0x98

/* ---- parents: the paths of an inode by its number (core/names/parent_list.h) ---- */

#define TUX3_IOC_PATH_MAX 4096

struct tux3_ioc_path {
	__u64 ino;
	__u32 generation;	/* 0: any */
	__u32 len;		/* out: of the path; 0: there are no more */
	__u64 cursor[2];	/* zeros to begin, then as it came back */
	__u64 spare[2];		/* 0 */
	char path[TUX3_IOC_PATH_MAX];	/* out: from the root of the volume, "/" first; terminated */
};

#define TUX3_IOC_PATH _IOWR(TUX3_IOC_TYPE, 2, struct tux3_ioc_path)

/*
 * The parent pointers of a file, with the numbers and structures that programs for XFS have: XFS_IOC_GETPARENTS,
 * of the open file, and XFS_IOC_GETPARENTS_BY_HANDLE, asked of any directory (ioctl_xfs_getparents(2)).  Of the module only.
 */
struct tux3_ioc_handle {
	__u32 fsid[2];		/* f_fsid of statfs(2) */
	__u16 fid_len;		/* bytes behind it: TUX3_FID_LEN */
	__u16 fid_pad;		/* 0 */
	__u32 generation;
	__u64 ino;
};

#define TUX3_FID_LEN 14

struct tux3_ioc_parents {
	__u32 cursor[4];	/* zeros to begin, then as it came back */
	__u16 iflags;		/* in: 0 */
	__u16 oflags;		/* out: TUX3_PARENTS_... */
	__u32 bytes;		/* of the buffer */
	__u64 reserved;		/* 0 */
	__u64 buffer;		/* address of struct tux3_ioc_parent, one behind the other */
};

#define TUX3_PARENTS_ROOT	1u	/* it is the root directory */
#define TUX3_PARENTS_DONE	2u	/* there are no more */

struct tux3_ioc_parents_by_handle {
	struct tux3_ioc_handle handle;
	struct tux3_ioc_parents request;
};

struct tux3_ioc_parent {
	struct tux3_ioc_handle dir;
	__u32 bytes;		/* to the next one; of the last, to the end of the buffer */
	__u32 reserved;		/* 0 */
	char name[];		/* terminated; empty: there was none.  What is behind the last one is left as it was */
};

#define TUX3_IOC_GETPARENTS		_IOWR('X', 62, struct tux3_ioc_parents)
#define TUX3_IOC_GETPARENTS_BY_HANDLE	_IOWR('X', 63, struct tux3_ioc_parents_by_handle)

/* ---- bulkstat: all inodes of a volume, by number (core/inode/inode_walk.h) ---- */

/*
 * The numbers and structures of ioctl_xfs_bulkstat(2).  Fields that are not named here are 0: Tux3 does not count extents
 * and has no hints of extent sizes.  What has no name is left out.
 */
struct tux3_ioc_inodes_header {
	__u64 ino;		/* the first one that is wanted, 0: from the start; out: the next one */
	__u32 flags;		/* TUX3_INODES_... */
	__u32 wanted;		/* so many */
	__u32 count;		/* out: so many there are; 0: there are no more */
	__u32 agno;		/* 0 */
	__u64 reserved[5];	/* 0 */
};

#define TUX3_INODES_AGNO	1u	/* not here: there are no allocation groups */
#define TUX3_INODES_SPECIAL	2u	/* ino is TUX3_INODES_SPECIAL_ROOT: only the root directory */
#define TUX3_INODES_EXTENTS_64	4u	/* says where the number of extents goes */
#define TUX3_INODES_METADIR	8u	/* also what belongs to the file system: nothing here */
#define TUX3_INODES_SPECIAL_ROOT 1u
#define TUX3_INODES_VERSION	5u

struct tux3_ioc_inode {
	__u64 ino;
	__u64 size;
	__u64 blocks;		/* of the volume */
	__u64 xflags;		/* FS_XFLAG_... */
	__s64 atime, mtime, ctime, btime;
	__u32 generation;
	__u32 uid, gid, projid;
	__u32 atime_nsec, mtime_nsec, ctime_nsec, btime_nsec;
	__u32 block_size;
	__u32 rdev;		/* minor | major << 18, as XFS has it, whose minor numbers are below 1 << 18 */
	__u32 cow_extent_hint, extent_hint;
	__u32 nlink;
	__u32 extents, xattr_extents;
	__u16 version;		/* TUX3_INODES_VERSION */
	__u16 fork_offset;
	__u16 sick, checked;
	__u16 mode;
	__u16 pad;
	__u64 extents_64;
	__u32 rdev_major, rdev_minor;	/* whole: 0 in XFS */
	__u64 spare[5];
};

struct tux3_ioc_bulkstat {
	struct tux3_ioc_inodes_header header;
	struct tux3_ioc_inode inode[];
};

#define TUX3_IOC_BULKSTAT _IOR('X', 127, struct tux3_ioc_bulkstat)	/* of the module only */

/* The same, of a size that FUSE passes on. */
#define TUX3_IOC_INODES_MAX 64u

struct tux3_ioc_inodes {
	struct tux3_ioc_inodes_header header;
	struct tux3_ioc_inode inode[TUX3_IOC_INODES_MAX];
};

#define TUX3_IOC_INODES _IOWR(TUX3_IOC_TYPE, 3, struct tux3_ioc_inodes)

/* ---- scrub: read a portion of a volume that is in use, and verify it (core/scrub/scrub.h) ---- */

/*
 * What can be wrong.  The numbers are permanent.
 *	X(number, NAME, "name", "what of the volume")
 */
#define TUX3_SCRUB_KINDS(X) \
	X(1, ANCHOR, "anchor", "a copy of the anchor") \
	X(2, LOG,    "log",    "a block of the log") \
	X(3, MAP,    "map",    "a free map") \
	X(4, NODE,   "node",   "a tree node") \
	X(5, DATA,   "data",   "file data") \
	X(6, XATTR,  "xattr",  "the value of an extended attribute")

enum tux3_scrub_kind {
#define X(number, NAME, name, what) TUX3_SCRUB_##NAME = number,
	TUX3_SCRUB_KINDS(X)
#undef X
};

#define TUX3_SCRUB_PROBLEMS	16
#define TUX3_SCRUB_WHY		120
#define TUX3_SCRUB_PATH		760

#define TUX3_SCRUB_UNREADABLE	1u	/* of a problem: the device cannot read it */

struct tux3_ioc_scrub_problem {
	__u32 kind;		/* enum tux3_scrub_kind */
	__u32 flags;
	__u64 ino;		/* DATA, XATTR: of this inode; NODE: the first that may have items there; else 0 */
	__u64 ino_last;		/* NODE: the last one */
	__u64 offset;		/* DATA: in the file, bytes; NODE: its level; MAP: the group */
	__u64 addr;		/* block of the volume */
	__u64 count;		/* blocks in a row that are alike */
	char why[TUX3_SCRUB_WHY];	/* a sentence without its end */
	char path[TUX3_SCRUB_PATH];	/* of the inode, if it has one that fits; else empty */
};

#define TUX3_SCRUB_CURSOR	32
#define TUX3_SCRUB_OVER		1u	/* that was all */

struct tux3_ioc_scrub {
	__u8 cursor[TUX3_SCRUB_CURSOR];	/* in: zeros to begin, then as it came back; -ESTALE: that of another volume */
	__u64 budget_bytes;	/* in: read about so much */
	/* Out, of this portion: what was verified ... */
	__u64 nodes, maps, log_blocks, blocks;	/* anchors are among the nodes; blocks: of data */
	__u64 bytes_read;
	__u64 bytes_done;	/* ... of bytes_all, which is an estimate */
	__u64 bytes_all;
	__u32 flags;		/* in: 0; out: TUX3_SCRUB_OVER */
	__u32 problem_count;
	__u64 spare[4];		/* 0 */
	struct tux3_ioc_scrub_problem problem[TUX3_SCRUB_PROBLEMS];
};

#define TUX3_IOC_SCRUB _IOWR(TUX3_IOC_TYPE, 1, struct tux3_ioc_scrub)

/* ---- hold: the tree of an anchor stays on the device for a while (core/scrub/hold.h) ---- */

#define TUX3_HOLD_TAKE		1u
#define TUX3_HOLD_RENEW		2u	/* is it still there?  Then so for another TUX3_HOLD_S */
#define TUX3_HOLD_RELEASE	3u
#define TUX3_HOLD_S		30
#define TUX3_HOLD_ANCHOR	512

struct tux3_ioc_hold {
	__u32 op;		/* TUX3_HOLD_... */
	__u32 flags;		/* 0 */
	__u64 cookie;		/* out of TAKE, in of the others */
	__u64 spare[6];		/* 0 */
	__u8 anchor[TUX3_HOLD_ANCHOR];	/* out of TAKE: struct disk_anchor */
};

#define TUX3_IOC_HOLD _IOWR(TUX3_IOC_TYPE, 4, struct tux3_ioc_hold)

/* ---- exchange: the contents of two files swap (core/data/remap.h) ---- */

/*
 * With the numbers, structures and flags that programs for XFS have: XFS_IOC_EXCHANGE_RANGE (ioctl_xfs_exchange_range(2)),
 * XFS_IOC_START_COMMIT and XFS_IOC_COMMIT_RANGE (ioctl_xfs_commit_range(2)).  Of the file that is file 2.  The module only: FUSE
 * does not tell whose descriptor the number of file 1 is.
 */
struct tux3_ioc_exchange {
	__s32 file1;		/* descriptor */
	__u32 pad;		/* 0 */
	__u64 offset1, offset2;
	__u64 length;
	__u64 flags;		/* TUX3_IOC_EXCHANGE_... */
};

#define TUX3_IOC_EXCHANGE_TO_EOF	1u	/* to the ends of both files, and the sizes are exchanged, too */
#define TUX3_IOC_EXCHANGE_DSYNC		2u	/* durable on return: that is so anyway */
#define TUX3_IOC_EXCHANGE_DRY_RUN	4u	/* only see whether the arguments are right */
#define TUX3_IOC_EXCHANGE_FILE1_WRITTEN 8u	/* what was never written of file 1 stays */

struct tux3_ioc_commit {
	struct tux3_ioc_exchange exchange;
	__u64 fresh[6];		/* by START_COMMIT: what file 2 was then */
};

#define TUX3_IOC_EXCHANGE_RANGE		_IOW('X', 129, struct tux3_ioc_exchange)
#define TUX3_IOC_START_COMMIT		_IOR('X', 130, struct tux3_ioc_commit)
#define TUX3_IOC_COMMIT_RANGE		_IOW('X', 131, struct tux3_ioc_commit)

#endif
