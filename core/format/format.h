/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The Tux3 disk format: every byte that a volume holds.
 *
 * A volume is an array of blocks of 4096 bytes (or a larger power of two up to 65536), cut into
 * allocation groups.  All integers are little-endian.  Spare room is zero and must be.  All
 * checksums are CRC32C (Castagnoli, initial value ~0, no final inversion: crc32c(~0, p, n)), taken
 * over the whole object with its own crc field as zero.
 *
 *	byte 0		 64 KiB nobody uses (boot loaders, old labels)
 *	byte 64 KiB	 anchor slot 0		byte 128 KiB	anchor slot 1
 *	size - 128 KiB	 anchor slot 2		size - 64 KiB	anchor slot 3
 *			 (size: that of the volume, a multiple of 64 KiB)
 *	byte 192 KiB	 the two free-map slots of group 0, a block each
 *	every group > 0	 begins with its two free-map slots, a block each
 *
 * Everything else is allocated: tree nodes, log blocks, file data and large xattr values.
 *
 * An *anchor* names the root of the tree and the place where the log starts.  Each is written twice,
 * by turns to slots 0 and 2 and to slots 1 and 3; the valid one with the highest generation counts.  The *tree* is one
 * B-tree of items with the key (inode number, item type, offset or hash).  Neither is ever
 * overwritten in place.  The *log* is a chain of log blocks from anchor.log_addr on: each block
 * names the next, and the chain ends at the first block that is not the expected one (volume,
 * own address, sequence number, checksum).  One or more log blocks with consecutive sequence
 * numbers form a *commit*: a stream of records that takes the tree from delta N - 1 to delta N.
 * The state of the volume is the tree of the anchor plus all complete commits of its log.
 *
 * The *free map* of a group has two slots.  A group whose blocks were never used has neither, and only
 * its fixed blocks are in use.  The first map of a group is written to both slots, each later one to the
 * slot that does not count: the valid slot with the highest delta not above the anchor's does.  A slot that is
 * not valid, or has a higher delta, is damage, unless the log names the group (GROUP_TOUCHED): then it was being
 * written when the power failed.  Log blocks are never marked in free maps: whoever follows the log knows them.
 */
#ifndef TUX3_FORMAT_H
#define TUX3_FORMAT_H

#include "core/env.h"

#define TUX3_ANCHOR_MAGIC	0x31434e4133585554ULL	/* "TUX3ANC1" read as bytes */
#define TUX3_NODE_MAGIC		0x444e3354u		/* "T3ND" */
#define TUX3_LOG_MAGIC		0x474c3354u		/* "T3LG" */
#define TUX3_MAP_MAGIC		0x504d3354u		/* "T3MP" */
#define TUX3_INTENT_MAGIC	0x4e493354u		/* "T3IN" */
#define TUX3_SUPER_MAGIC	0x54555833	/* "TUX3", what statfs(2) tells of a mount by the module */
#define TUX3_FORMAT_VERSION	1

#define TUX3_MIN_BLOCK_SHIFT	12
#define TUX3_MAX_BLOCK_SHIFT	16
#define TUX3_ANCHOR_SLOTS	4
#define TUX3_ANCHOR_STRIDE	65536u		/* bytes; also the unit of the volume size */
#define TUX3_ANCHOR_BYTES	512u
#define TUX3_MIN_VOLUME_BYTES	(4u << 20)
#define TUX3_NAME_MAX		255
#define TUX3_XATTR_SIZE_MAX	65536u
#define TUX3_XATTR_INLINE_MAX	256u		/* a longer value gets blocks of its own */
#define TUX3_SYMLINK_MAX	4095u
#define TUX3_SYMLINK_PIECE	1024u		/* bytes of a target in an item but the last */
#define TUX3_MAX_LEVEL		12		/* of a tree node; leaves are level 0 */
#define TUX3_LABEL_MAX		64		/* bytes, zero padded, not necessarily terminated */

/* Inode numbers are 56 bits.  Below TUX3_INO_FIRST they belong to the volume. */
#define TUX3_INO_VOLUME		1		/* holder of quota and orphan items */
#define TUX3_INO_ROOT		2
#define TUX3_INO_FIRST		16
#define TUX3_INO_MAX		((1ULL << 56) - 1)

/* The largest file. */
#define TUX3_SIZE_MAX		((u64)S64_MAX)
#define TUX3_COUNT_MAX		(1ULL << 62)	/* generations and deltas on a disk are below: nobody has counted so far */

/*
 * Features.  Unknown compat bits: ignore.  Unknown ro_compat bits: mount read-only.  Unknown
 * incompat bits: do not mount.  The numbers are permanent.
 *	X(which word, bit, NAME, "name", format version and module that know it first, on unless said otherwise, what it means)
 */
#define TUX3_FEATURES(X) \
	X(RO_COMPAT, 0, QUOTA,	    "quota",	 1, "0.1.0", false, "user, group and project usage is kept in quota items") \
	X(INCOMPAT,  0, DATA_CSUM,  "data-csum", 1, "0.1.0", true,  "extents carry a checksum for each block")

enum tux3_feature_word { TUX3_COMPAT, TUX3_RO_COMPAT, TUX3_INCOMPAT, TUX3_FEATURE_WORDS };

enum tux3_feature {
#define X(WORD, bit, NAME, ...) TUX3_FEATURE_##WORD##_##NAME = 1u << (bit),
	TUX3_FEATURES(X)
#undef X
};

static inline u64 tux3_features_known(enum tux3_feature_word word)
{
#define X(WORD, bit, NAME, ...) | (word == TUX3_##WORD ? TUX3_FEATURE_##WORD##_##NAME : 0)
	return 0 TUX3_FEATURES(X);
#undef X
}

/*
 * Where intents are, see struct disk_intent.  The batch with this number is at offset in the area, or where it would not
 * have fitted in there, at its beginning.
 */
struct disk_intent_place {
	__le64 addr;		/* the intent area: so many blocks from this one on; 0: there is none */
	__le64 life;		/* random, for each area */
	__le64 seq;		/* of the next batch */
	__le32 blocks;
	__le32 offset;		/* blocks */
};

/* Anchor: what others call a superblock.  The first 512 bytes of its slot.  The rest of the block is zero. */
struct disk_anchor {
	__le64 magic;
	__le32 crc;
	__le32 version;
	__le64 volume_id;	/* random at each mkfs; in every other object too */
	__le64 slot_offset;	/* own byte address */
	__le64 generation;	/* one higher with each anchor written */
	__u8 uuid[16];
	__u8 label[TUX3_LABEL_MAX];
	__le64 feature_compat;
	__le64 feature_ro_compat;
	__le64 feature_incompat;
	__le32 block_shift;
	__le32 group_blocks;	/* (block size - 64) * 8 */
	__le64 total_blocks;
	__u8 hash_seed[16];	/* SipHash key for names */
	__le64 created_ns;	/* Unix time, ns */

	__le64 delta;		/* the tree holds every delta up to this one */
	__le64 root_addr;
	__le64 root_birth;
	__le32 root_level;
	__le32 flags;		/* none yet */
	__le64 log_addr;	/* where the first log block after this anchor is or will be */
	__le64 log_seq;		/* its sequence number */
	__le64 used_blocks;	/* marked in free maps: fixed, tree and data blocks, without the log */
	__le64 inodes;		/* inodes in the tree */
	__le64 written_ns;
	__le64 data_blocks;	/* of used_blocks, those with file data and large xattr values */
	__le64 log_after;	/* as disk_log.after */
	__le64 unwritten_blocks;	/* of data_blocks, those of extents that are preallocated and not written yet */
	struct disk_intent_place intent;	/* as disk_commit.intent, of the commit of delta */
	__u8 spare[200];
};

/*
 * Tree node: header, then in a leaf (level 0) an array of disk_item growing up and their data
 * growing down from the end of the block, in key order, without gaps; in an inner node an array of
 * disk_branch.  Branch i leads to the keys from its key up to, not including, that of branch i + 1;
 * the key of branch 0 is not above any key below it.  Only a root leaf may be empty.
 */
struct disk_node {
	__le32 magic;
	__le32 crc;
	__le64 volume_id;
	__le64 addr;		/* own block */
	__le64 birth;		/* the delta that put it here */
	__le16 level;
	__le16 count;
	__le32 data_start;	/* leaf: offset of the lowest item data; inner: 0 */
	__u8 spare[24];
};

struct disk_key {
	__le64 ino_type;	/* inode number << 8 | item type */
	__le64 offset;
};

struct disk_item {
	struct disk_key key;
	__le16 at;		/* offset of the data in the block */
	__le16 len;
	__le32 spare;
};

struct disk_branch {
	struct disk_key key;
	__le64 addr;
	__le64 birth;		/* of the child: a child with another one is stale */
};

/* Item data is at most this long: so a leaf always has room for three. */
#define TUX3_ITEM_MAX(block_size) ((block_size) / 4 + 64)

/*
 * Item types, in key order within an inode.  The numbers are permanent.
 *	X(number, NAME, "name", "what the key's offset is: what the data is")
 */
#define TUX3_ITEMS(X) \
	X(1,  ATTR,	     "attr",	      "offset 0: struct disk_attr") \
	X(2,  PARENT,	     "parent",	      "hash of (directory, name): chain of struct disk_parent") \
	X(3,  INLINE,	     "inline",	      "byte offset: file data (one item, 0), or a piece of a symlink target") \
	X(4,  XATTR,	     "xattr",	      "hash of (inode, name): chain of struct disk_xattr") \
	X(5,  DIRENT,	     "dirent",	      "hash of (directory, name): chain of struct disk_dirent") \
	X(6,  EXTENT,	     "extent",	      "file block: struct disk_extent and its checksums") \
	X(16, QUOTA_USER,    "quota-user",    "user id: struct disk_quota (volume inode only)") \
	X(17, QUOTA_GROUP,   "quota-group",   "group id: struct disk_quota (volume inode only)") \
	X(18, QUOTA_PROJECT, "quota-project", "project id: struct disk_quota (volume inode only)") \
	X(19, ORPHAN,	     "orphan",	      "inode number: struct disk_orphan (volume inode only)")

enum tux3_item_type {
#define X(number, NAME, name, what) TUX3_ITEM_##NAME = number,
	TUX3_ITEMS(X)
#undef X
};

struct disk_attr {
	__le32 mode;		/* type and permissions as in stat(2) */
	__le32 uid;
	__le32 gid;
	__le32 nlink;		/* directories: 2 + subdirectories */
	__le64 size;		/* bytes; directories: number of entries */
	__le64 blocks;		/* data blocks in extents and xattr values, in volume blocks */
	__le64 atime_sec, mtime_sec, ctime_sec, btime_sec;	/* signed */
	__le32 atime_nsec, mtime_nsec, ctime_nsec, btime_nsec;
	__le32 rdev_major, rdev_minor;
	__le32 flags;		/* TUX3_ATTR_... */
	__le32 generation;	/* random at creation: for file handles */
	__le32 projid;
	__le32 spare;
	__le64 change;		/* one higher with each delta that changed the inode */
};

#define TUX3_ATTR_XATTRS	(1u << 0)	/* may have xattrs; without it there are none */
#define TUX3_ATTR_PREALLOC	(1u << 1)	/* may have unwritten extents */
#define TUX3_ATTR_INLINE	(1u << 2)	/* the data is in the INLINE item, there are no extents */
#define TUX3_ATTR_IMMUTABLE	(1u << 8)
#define TUX3_ATTR_APPEND	(1u << 9)
#define TUX3_ATTR_NODUMP	(1u << 10)
#define TUX3_ATTR_NOATIME	(1u << 11)
#define TUX3_ATTR_PROJINHERIT	(1u << 12)	/* of a directory: what is made in it belongs to its project */
#define TUX3_ATTR_STORED	(TUX3_ATTR_XATTRS | TUX3_ATTR_PREALLOC | TUX3_ATTR_INLINE)	/* how: not for callers to set */
#define TUX3_ATTR_SETTABLE	(TUX3_ATTR_IMMUTABLE | TUX3_ATTR_APPEND | TUX3_ATTR_NODUMP | TUX3_ATTR_NOATIME | \
				 TUX3_ATTR_PROJINHERIT)
#define TUX3_ATTR_KNOWN		(TUX3_ATTR_STORED | TUX3_ATTR_SETTABLE)

/* Chained in one item where hashes collide; unaligned; names are not terminated. */
struct disk_dirent {
	__le64 ino;
	__u8 type;		/* S_IFMT bits of the mode >> 12 (as DT_*) */
	__u8 len;
	__u8 name[];
} __packed;

struct disk_parent {
	__le64 dir;
	__u8 len;
	__u8 name[];
} __packed;

struct disk_xattr {
	__u8 len;		/* of the name, with its prefix ("user.") */
	__u8 pieces;		/* 0: value is inline after the name; else that many disk_xattr_piece */
	__le32 value_len;
	__le32 value_crc;	/* crc32c of the value */
	__u8 name[];
} __packed;

struct disk_xattr_piece {
	__le64 addr;
	__le32 len;		/* blocks */
} __packed;

struct disk_extent {
	__le64 addr;
	__le64 birth;		/* delta that wrote it */
	__le32 len;		/* blocks, > 0 */
	__le32 flags;
	__le32 csum[];		/* one for each block if TUX3_EXTENT_CSUM */
};

#define TUX3_EXTENT_UNWRITTEN	(1u << 0)	/* allocated, reads as zeros */
#define TUX3_EXTENT_CSUM	(1u << 1)
#define TUX3_EXTENT_UNCHECKED	(1u << 2)	/* written to by others, as swap: no checksum although the volume has them */
#define TUX3_EXTENT_KNOWN	7u
/* Longest extent with checksums, and without, in blocks. */
#define TUX3_EXTENT_CSUM_MAX(block_size) ((block_size) / 16)
#define TUX3_EXTENT_MAX		(1u << 20)

struct disk_quota {
	__le64 blocks, inodes;			/* used */
	__le64 blocks_soft, blocks_hard;	/* limits, 0: none */
	__le64 inodes_soft, inodes_hard;
	__le64 blocks_time, inodes_time;	/* when the grace period ends, Unix seconds, 0: not begun */
};

struct disk_orphan {
	__le32 kind;		/* TUX3_ORPHAN_... */
	__le32 spare;
	__le64 block;		/* TRUNCATE: free all extents from this file block on */
};

#define TUX3_ORPHAN_DELETE	1	/* no name left: delete the inode at mount */
#define TUX3_ORPHAN_TRUNCATE	2	/* a long truncate was under way */

/* Free-map slot: header, then a bit for each block of the group, set: in use. Bits past the end of the volume are set. */
struct disk_map {
	__le32 magic;
	__le32 crc;
	__le64 volume_id;
	__le64 addr;		/* own block */
	__le64 group;
	__le64 delta;		/* of the anchor that it was written for */
	__le32 free;		/* clear bits */
	__u8 spare[20];
	__u8 bits[];		/* bit n of the group: bits[n / 8] & 1 << n % 8 */
};

/* Log block: header, then payload, used bytes from the start on, rest zero. */
struct disk_log {
	__le32 magic;
	__le32 crc;
	__le64 volume_id;
	__le64 addr;		/* own block */
	__le64 seq;		/* one higher with each log block */
	__le64 delta;
	__le64 next;		/* address of the block with the next number */
	__le64 after;		/* of the one behind it; or of that one, if next could not be used */
	__le32 index;		/* of this block in its commit */
	__le32 blocks;		/* of the commit */
	__le32 used;		/* payload bytes */
	__le32 skip;		/* the next number is seq + 1 + skip */
};

/* The payload of a commit, its blocks put together: this header, then records, each aligned to 8. */
struct disk_commit {
	__le64 delta;
	__le64 time_ns;		/* Unix time */
	__le32 bytes;		/* of the records */
	__le32 crc;		/* crc32c of the records */
	__le32 records;
	__le32 flags;		/* TUX3_COMMIT_... */
	__le64 used_blocks;	/* after this commit, without log and tree: data blocks only */
	__le64 inodes;		/* after this commit */
	struct disk_intent_place intent;	/* the first batch that counts on top of this commit is, or will be, there */
};

#define TUX3_COMMIT_DATA_FLUSHED (1u << 0)	/* its data was durable before its log was written */
#define TUX3_COMMIT_SNAPSHOT	 (1u << 1)	/* a unify's snapshot was taken since the commit before */

#define TUX3_INTENTS_FAR	(1u << 31)	/* in disk_intents.data_blocks: the data is elsewhere */
#define TUX3_INTENTS_COPY	(1u << 30)	/* in a copy of the metadata: it is not here, and was there */

/*
 * A batch of intents: header blocks, each with a part of the intents as its payload; behind them, in the area, the data
 * blocks of all intents in order.  Or these are elsewhere, where the first 8 bytes of the payload say.  An intent is what one inode
 * becomes, ahead of its delta, by an fsync.  It counts if no commit of that delta or a newer one does; a batch counts if all of its
 * blocks are whole, and all before it do.
 */
struct disk_intents {
	__le32 magic;
	__le32 crc;
	__le64 volume_id;
	__le64 addr;		/* own block */
	__le64 life;		/* as in the place that names the area */
	__le64 seq;		/* one higher with each batch */
	__le32 index;		/* of this header block in its batch */
	__le32 blocks;		/* header blocks in the batch */
	__le32 data_blocks;	/* blocks with data behind them, and TUX3_INTENTS_... */
	__le32 used;		/* payload bytes */
	__le64 base;		/* the newest durable commit when it was written: it counts on top of that or a newer one */
};

/* Followed by a struct disk_intent_run for each run, its checksums behind it, then the name; each run and intent aligned to 8. */
struct disk_intent {
	__le64 delta;
	__le64 ino;
	__le32 len;		/* bytes of the intent, with all that follows it, without padding */
	__le32 runs;
	__le64 dir;		/* the inode is new, and its only name is in this directory; 0: in the tree, or named by records */
	__u8 name_len;
	__u8 beside;		/* 1: it was written for names of the next one that has 0, and is no fsync of its own */
	__u8 spare[2];
	__le32 records;		/* bytes of records behind the runs: what else has changed, before the runs are mapped */
	struct disk_attr attr;	/* blocks, and the flags that say how the file is stored, are as the tree has them */
};

/* Adjacent file blocks. */
struct disk_intent_run {
	__le64 block;
	__le32 count;
	__le32 spare;
	__le32 csum[];		/* crc32c of each whole block */
};

/*
 * Log records.  Absolute: replaying one twice is harmless.  The numbers are permanent.
 *	X(number, NAME, "name", struct, payload)
 * What follows from a record is not logged: DIRENT_SET also sets the parent pointer of the inode,
 * EXTENT_MAP also frees what it replaces, ATTR_SET also moves quota usage.
 */
#define TUX3_RECORDS(X) \
	X(1,  ITEM_SET,	     "item-set",      record_item,   "key, then the data: orphans, quota limits, inline data") \
	X(2,  ITEM_DELETE,   "item-delete",   record_item,   "key") \
	X(3,  ATTR_SET,	     "attr-set",      record_attr,   "the inode exists and has these attributes") \
	X(4,  INODE_DELETE,  "inode-delete",  record_inode,  "all its items are gone, its blocks free") \
	X(5,  DIRENT_SET,    "dirent-set",    record_dirent, "the name leads to this inode") \
	X(6,  DIRENT_DELETE, "dirent-delete", record_dirent, "the name is gone") \
	X(7,  XATTR_SET,     "xattr-set",     record_xattr,  "hash, then struct disk_xattr and what follows it") \
	X(8,  XATTR_DELETE,  "xattr-delete",  record_xattr,  "hash, then struct disk_xattr, value_len 0") \
	X(9,  EXTENT_MAP,    "extent-map",    record_extent, "these file blocks are there; checksums follow") \
	X(10, EXTENT_PUNCH,  "extent-punch",  record_extent, "these file blocks are a hole") \
	X(11, GROUP_TOUCHED, "group-touched", record_group,  "the free maps of these groups will change") \
	X(12, TREE_MERGE,    "tree-merge",    record_merge,  "two nodes of the tree become one") \
	X(13, XATTR_PUNCH,   "xattr-punch",   record_hashes, "all xattrs with hashes in this range are gone, their blocks free")

enum tux3_record_type {
#define X(number, NAME, name, type, what) TUX3_RECORD_##NAME = number,
	TUX3_RECORDS(X)
#undef X
};

struct disk_record {
	__le16 type;
	__le16 spare;
	__le32 len;		/* of the payload that follows, without padding to 8 */
};

struct record_item {
	struct disk_key key;
	__u8 data[];
};

struct record_attr {
	__le64 ino;
	struct disk_attr attr;
};

struct record_inode {
	__le64 ino;
};

struct record_dirent {
	__le64 dir;
	__le64 hash;
	struct disk_dirent entry;
};

struct record_xattr {
	__le64 ino;
	__le64 hash;
	struct disk_xattr entry;
};

#define DATA_END (~0ULL)	/* a file block behind all others */

struct record_extent {
	__le64 ino;
	__le64 block;		/* file block */
	__le64 count;		/* blocks; for PUNCH up to "everything from here": DATA_END */
	__le64 addr;		/* MAP only */
	__le32 flags;		/* MAP only: TUX3_EXTENT_... */
	__le32 spare;
	__le32 csum[];
};

/* For each group, from this one on (a multiple of 64), a bit: bits[n / 64] & 1 << n % 64. */
struct record_group {
	__le64 group;
	__le64 bits[];
};

/* The node at this level on the way to key takes in the one beside it under the same parent. */
struct record_merge {
	struct disk_key key;
	__le32 level;
	__le32 right;		/* 1: the next one, 0: the one before */
};

struct record_hashes {
	__le64 ino;
	__le64 first, last;	/* hashes, both included */
};

/* In intents only: what an inode is that has got or lost one of the names that the intent sets, or a directory of such a name. */
#define TUX3_INTENT_NAMED 32u

struct intent_named {
	__le64 ino;
	__le64 mtime_sec;	/* of a directory */
	__le64 ctime_sec;
	__le32 mtime_nsec;
	__le32 ctime_nsec;
	__le32 nlink;		/* not of a directory */
	__le32 spare;
};

#define TUX3_ASSERT_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes))
#define TUX3_ASSERT_AT(type, field, at) static_assert(offsetof(struct type, field) == (at))

TUX3_ASSERT_SIZE(intent_named, 40);
TUX3_ASSERT_SIZE(disk_anchor, 512);
TUX3_ASSERT_AT(disk_anchor, crc, 8);
TUX3_ASSERT_AT(disk_anchor, generation, 32);
TUX3_ASSERT_AT(disk_anchor, uuid, 40);
TUX3_ASSERT_AT(disk_anchor, label, 56);
TUX3_ASSERT_AT(disk_anchor, feature_compat, 120);
TUX3_ASSERT_AT(disk_anchor, block_shift, 144);
TUX3_ASSERT_AT(disk_anchor, total_blocks, 152);
TUX3_ASSERT_AT(disk_anchor, delta, 184);
TUX3_ASSERT_AT(disk_anchor, root_addr, 192);
TUX3_ASSERT_AT(disk_anchor, log_addr, 216);
TUX3_ASSERT_AT(disk_anchor, data_blocks, 256);
TUX3_ASSERT_AT(disk_anchor, log_after, 264);
TUX3_ASSERT_AT(disk_anchor, unwritten_blocks, 272);
TUX3_ASSERT_AT(disk_anchor, intent, 280);
TUX3_ASSERT_SIZE(disk_intent_place, 32);
TUX3_ASSERT_SIZE(disk_intents, 64);
TUX3_ASSERT_SIZE(disk_intent, 152);
TUX3_ASSERT_SIZE(disk_intent_run, 16);
TUX3_ASSERT_SIZE(disk_node, 64);
TUX3_ASSERT_AT(disk_node, crc, 4);
TUX3_ASSERT_AT(disk_node, birth, 24);
TUX3_ASSERT_AT(disk_node, data_start, 36);
TUX3_ASSERT_SIZE(disk_key, 16);
TUX3_ASSERT_SIZE(disk_item, 24);
TUX3_ASSERT_AT(disk_item, at, 16);
TUX3_ASSERT_SIZE(disk_branch, 32);
TUX3_ASSERT_SIZE(disk_attr, 112);
TUX3_ASSERT_AT(disk_attr, size, 16);
TUX3_ASSERT_AT(disk_attr, atime_sec, 32);
TUX3_ASSERT_AT(disk_attr, atime_nsec, 64);
TUX3_ASSERT_AT(disk_attr, rdev_major, 80);
TUX3_ASSERT_AT(disk_attr, change, 104);
TUX3_ASSERT_SIZE(disk_dirent, 10);
TUX3_ASSERT_SIZE(disk_parent, 9);
TUX3_ASSERT_SIZE(disk_xattr, 10);
TUX3_ASSERT_SIZE(disk_xattr_piece, 12);
TUX3_ASSERT_SIZE(disk_extent, 24);
TUX3_ASSERT_AT(disk_extent, csum, 24);
TUX3_ASSERT_SIZE(disk_quota, 64);
TUX3_ASSERT_SIZE(disk_orphan, 16);
TUX3_ASSERT_SIZE(disk_map, 64);
TUX3_ASSERT_AT(disk_map, delta, 32);
TUX3_ASSERT_SIZE(disk_log, 72);
TUX3_ASSERT_AT(disk_log, next, 40);
TUX3_ASSERT_SIZE(disk_commit, 80);
TUX3_ASSERT_SIZE(disk_record, 8);
TUX3_ASSERT_SIZE(record_attr, 120);
TUX3_ASSERT_SIZE(record_extent, 40);
TUX3_ASSERT_SIZE(record_hashes, 24);
TUX3_ASSERT_SIZE(record_merge, 24);

#endif
