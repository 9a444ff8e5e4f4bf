/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker: is everything on this volume as FORMAT says and consistent with everything else?
 *
 * Runs on a volume opened read_only (the log replayed in memory), or on a live one between commits
 * (with delta.commit_mutex held).  It changes nothing.  Memory: a bitmap for each allocation group in
 * use, 40 bytes for each inode and 24 for each name.
 */
#ifndef TUX3_CHECK_H
#define TUX3_CHECK_H

#include "core/env.h"
#include "core/format/format.h"

struct volume;

/*
 * What can be wrong.  The numbers are permanent.
 *	X(number, NAME, "short-name", "sentence, %llu for its numbers")
 */
#define TUX3_PROBLEMS(X) \
	X(101, NODE_BAD, "node-bad", "The tree node at block %llu, level %llu, cannot be used, and what it led to is lost") \
	X(102, NODE_FIXED, "node-fixed", "The tree node at block %llu is on a block that belongs to anchors or free maps") \
	X(103, ITEM_TYPE, "item-type", "Inode %llu has an item of type %llu, which does not exist") \
	X(104, ITEM_INO, "item-inode", "There is an item of type %llu for inode %llu, which cannot have it") \
	X(105, ITEM_OFFSET, "item-offset", "Inode %llu has an item of type %llu at offset %llu, where none can be") \
	\
	X(201, ATTR_MISSING, "attr-missing", "Inode %llu has items, but no attributes") \
	X(202, ATTR_LENGTH, "attr-length", "The attributes of inode %llu are %llu bytes long, not %llu") \
	X(203, ATTR_MODE, "attr-mode", "Inode %llu has mode 0%llo, which it cannot have") \
	X(204, ATTR_TIME, "attr-time", "A time of inode %llu has %llu nanoseconds") \
	X(205, ATTR_FLAGS, "attr-flags", "Inode %llu has flags 0x%llx, which do not exist or do not go together") \
	X(206, ATTR_SIZE, "attr-size", "Inode %llu has a size of %llu bytes, which is too large") \
	X(207, ATTR_BLOCKS, "attr-blocks", "Inode %llu counts %llu blocks, but has %llu") \
	X(208, ATTR_SPARE, "attr-spare", "Spare bytes in the attributes of inode %llu are not zero") \
	X(209, INLINE_MISSING, "inline-missing", "Inode %llu should have its %llu bytes of data inline, but has none there") \
	X(210, INLINE_UNEXPECTED, "inline-unexpected", "Inode %llu has inline data, but its flags say that it has none") \
	X(211, INLINE_LENGTH, "inline-length", "Inode %llu has %llu bytes of inline data, but a size of %llu bytes") \
	X(212, INLINE_EXTENTS, "inline-extents", "Inode %llu has its data inline, and extents too") \
	X(213, XATTR_FLAG, "xattr-flag", "Inode %llu has extended attributes, but its flags say that it has none") \
	X(214, PREALLOC_FLAG, "prealloc-flag", "Inode %llu has unwritten extents, but its flags say that it has none") \
	X(215, TYPE_ITEMS, "type-items", "Inode %llu with mode 0%llo has items of type %llu, which is not for its kind") \
	X(216, ROOT_MISSING, "root-missing", "There is no root directory (inode %llu)") \
	X(217, SYMLINK_EMPTY, "symlink-empty", "The symlink with inode number %llu has no target, or none that there can be") \
	\
	X(301, DIRENT_BAD, "name-bad", "The entries of directory %llu under hash 0x%llx are cut short or empty") \
	X(302, DIRENT_HASH, "name-hash", "Directory %llu has a name under hash 0x%llx that belongs under 0x%llx") \
	X(303, DIRENT_DUPLICATE, "name-duplicate", "Directory %llu has a name twice") \
	X(304, DIRENT_NAME, "name-invalid", "Directory %llu has a name that no file can have") \
	X(305, DIRENT_DANGLING, "name-dangling", "A name in directory %llu leads to inode %llu, which does not exist") \
	X(306, DIRENT_TYPE, "name-type", "A name in directory %llu says that inode %llu is of type %llu, but it is of type %llu") \
	X(307, DIR_SIZE, "dir-size", "Directory %llu counts %llu entries, but has %llu") \
	X(308, DIR_NLINK, "dir-links", "Directory %llu has a link count of %llu, which should be %llu") \
	X(309, DIR_NAMES, "dir-names", "Directory %llu has %llu names, and should have one") \
	X(310, DIR_LOOP, "dir-loop", "Directory %llu is inside of itself") \
	X(311, NLINK, "links", "Inode %llu has a link count of %llu, but %llu names") \
	X(312, ROOT_NAMED, "root-named", "A directory has a name for the root directory (inode %llu)") \
	X(313, INODE_NAMELESS, "inode-lost", "Inode %llu has a link count of %llu, but no name leads to it") \
	X(314, PARENT_BAD, "parent-bad", "The parent pointers of inode %llu under hash 0x%llx are cut short or empty") \
	X(315, PARENT_HASH, "parent-hash", "Inode %llu has a parent pointer under hash 0x%llx that belongs under 0x%llx") \
	X(316, PARENT_DUPLICATE, "parent-duplicate", "Inode %llu has a parent pointer to directory %llu twice") \
	X(317, PARENT_MISSING, "parent-missing", "Inode %llu has no parent pointer for its name in directory %llu") \
	X(318, PARENT_DANGLING, "parent-dangling", "Inode %llu has a parent pointer to directory %llu, where it has no such name") \
	\
	X(401, ORPHAN_BAD, "orphan-bad", "The orphan item of inode %llu makes no sense") \
	X(402, ORPHAN_DANGLING, "orphan-dangling", "There is an orphan item for inode %llu, which does not exist") \
	X(403, ORPHAN_LINKED, "orphan-linked", "Inode %llu is to be deleted, but has a link count of %llu") \
	X(404, ORPHAN_UNMARKED, "orphan-unmarked", "Inode %llu has a link count of 0, but is not marked for deletion") \
	X(405, ORPHAN_KIND, "orphan-kind", "Inode %llu is to be truncated, but is not a regular file") \
	\
	X(501, EXTENT_LENGTH, "extent-length", "An extent of inode %llu at file block %llu has %llu blocks and an item of %llu bytes") \
	X(502, EXTENT_FLAGS, "extent-flags", "An extent of inode %llu at file block %llu has flags 0x%llx, of which some do not exist") \
	X(503, EXTENT_PLACE, "extent-place", "An extent of inode %llu at file block %llu is outside of the volume: block %llu, length %llu") \
	X(504, EXTENT_FIXED, "extent-fixed", "An extent of inode %llu at file block %llu lies on block %llu, which belongs to anchors or free maps") \
	X(505, EXTENT_OVERLAP, "extent-overlap", "Two extents of inode %llu overlap at file block %llu") \
	X(506, BLOCK_SHARED, "block-shared", "%llu blocks of inode %llu, the first of them block %llu, are also used by something else") \
	X(507, EXTENT_NO_CSUM, "extent-no-checksum", "An extent of inode %llu at file block %llu has no checksums") \
	X(508, EXTENT_CSUM, "extent-checksum", "An extent of inode %llu at file block %llu has checksums, which it must not have") \
	X(509, EXTENT_BEYOND_END, "extent-beyond-end", "An extent of inode %llu at file block %llu is beyond the end of the file at %llu bytes") \
	X(510, EXTENT_OFFSET, "extent-offset", "An extent of inode %llu is at file block %llu, where no file can have data") \
	X(511, EXTENT_BIRTH, "extent-birth", "An extent of inode %llu at file block %llu was written by delta %llu, but the newest is %llu") \
	\
	X(601, XATTR_BAD, "xattr-bad", "The extended attributes of inode %llu under hash 0x%llx are cut short or empty") \
	X(602, XATTR_HASH, "xattr-hash", "Inode %llu has an extended attribute under hash 0x%llx that belongs under 0x%llx") \
	X(603, XATTR_DUPLICATE, "xattr-duplicate", "Inode %llu has an extended attribute twice") \
	X(604, XATTR_VALUE, "xattr-value", "The value of an extended attribute of inode %llu has checksum 0x%llx instead of 0x%llx") \
	X(605, XATTR_LENGTH, "xattr-length", "An extended attribute of inode %llu has a value of %llu bytes in %llu blocks") \
	X(606, XATTR_PLACE, "xattr-place", "The value of an extended attribute of inode %llu is where it cannot be: block %llu, length %llu") \
	\
	X(701, QUOTA_BAD, "quota-bad", "The quota item of type %llu for id %llu is %llu bytes long or its id too large") \
	X(702, QUOTA_USAGE, "quota-usage", "The quota item of type %llu for id %llu does not count what is in use") \
	X(703, QUOTA_MISSING, "quota-missing", "There is no quota item of type %llu for id %llu, which uses %llu blocks and %llu inodes") \
	X(704, QUOTA_UNEXPECTED, "quota-unexpected", "There is a quota item of type %llu for id %llu, but the volume does not count usage") \
	\
	X(801, MAP_FREE, "map-free", "%llu blocks from block %llu on are in use, but free in the free map of group %llu") \
	X(802, MAP_LEAK, "map-leak", "%llu blocks from block %llu on are not used by anything, but marked in the free map of group %llu") \
	X(803, USED_TOTAL, "used-total", "The volume counts %llu blocks in use, but they are %llu") \
	X(804, INODE_TOTAL, "inode-total", "The volume counts %llu inodes, but they are %llu") \
	X(805, MAP_BAD, "map-bad", "The free map of group %llu cannot be used") \
	X(806, LOG_SHARED, "log-shared", "Block %llu of the log is also used by something else") \
	X(807, DATA_TOTAL, "data-total", "The volume counts %llu data blocks, but they are %llu") \
	X(808, UNWRITTEN_TOTAL, "unwritten-total", "The volume counts %llu blocks that are preallocated and not written, but they are %llu") \
	\
	X(901, DATA_READ, "data-read", "File block %llu of inode %llu, at block %llu, cannot be read") \
	X(902, DATA_CSUM, "data-checksum", "File block %llu of inode %llu has checksum 0x%llx instead of 0x%llx") \
	\
	X(1001, ANCHOR_COPY, "anchor-copy", "The second copy of the newest anchor, at block %llu, cannot be used: if the other one is damaged as well, the volume is lost") \
	X(1002, COMMIT_MISSING, "commit-missing", "Delta %llu was durable, but only delta %llu is there: what was synced on top of it is lost, too")

enum check_code {
#define X(number, NAME, name, sentence) CHECK_##NAME = number,
	TUX3_PROBLEMS(X)
#undef X
};

struct check_problem {
	unsigned int code;	/* CHECK_... */
	const char *name;
	u64 ino;		/* 0: none */
	u64 addr;		/* disk block, 0: none */
	u64 args[4];		/* the numbers of the sentence, in order; for quota also what is used: blocks and inodes */
	const u8 *raw_name;	/* of a directory entry or a parent pointer that does not match, or NULL */
	u32 name_len;
	char text[512];		/* one sentence */
};

/*
 * Passes.  TREE: every node and item, inode by inode (units: inodes).  INODES: names lead to inodes
 * and back (names).  NAMES: is every directory below the root (inodes).  SPACE: the free maps (groups).
 * DATA: checksums (blocks).
 */
enum check_pass { CHECK_TREE, CHECK_INODES, CHECK_NAMES, CHECK_SPACE, CHECK_DATA, CHECK_PASSES };

struct check_options {
	bool data;		/* also read all file data and verify its checksums */
	/*
	 * Also read the free maps of groups in which nothing is in use.  Otherwise, on volumes of more than
	 * CHECK_GROUPS_ALL groups, they are only read if the total of blocks in use says that something is there.
	 */
	bool all_groups;
	/* Called for each problem; return other than 0 to stop.  Must not read the tree. */
	int (*problem)(void *ctx, const struct check_problem *problem);
	/* Called now and then; done of total units of the pass.  May be NULL. */
	void (*progress)(void *ctx, enum check_pass pass, u64 done, u64 total);
	/* Is it to end, with -ECANCELED?  Asked more often than progress() is told.  May be NULL. */
	bool (*stopped)(void *ctx);
	void *ctx;
};

#define CHECK_GROUPS_ALL 8192u

struct check_result {
	u64 problems;
	u64 inodes, directories, files, symlinks, others, names, orphans, xattrs;
	u64 nodes, items, extents, data_blocks, unwritten_blocks, used_blocks, free_blocks, log_blocks;
	u64 groups_read;
	u64 groups_changed;	/* of a hold: their maps were written over since, and are not compared */
	u64 older_anchors_bad;	/* copies of the one before that are damaged: no problem */
	u64 anchor_copies;	/* of the newest one: 2; 1: or the power failed before the other was written, or that is damaged */
	u32 tree_height;
};

/* 0: ran to the end (look at result->problems); -ECANCELED: problem() stopped it; -errno: could not. */
int volume_check(struct volume *vol, const struct check_options *opts, struct check_result *result);

const char *check_problem_name(unsigned int code);	/* "?" if unknown */

#endif
