/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the checker share: check.c (the driver, problems, tables, the walk over all nodes),
 * check_items.c (items, inode by inode), check_chains.c (items in which entries are chained),
 * check_names.c (names and links), check_space.c (blocks and free maps), check_anchor.c, check_quota.c, check_data.c.
 *
 * One walk over the tree sees each item once, in key order, so that all items of an inode come
 * together, attributes first.  What can be judged within an inode is judged there; the rest is
 * kept in the tables below.  All of it belongs to one call of volume_check(): no locking.
 */
#ifndef TUX3_CHECK_INTERNAL_H
#define TUX3_CHECK_INTERNAL_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/check/check.h"
#include "core/inode/inode.h"
#include "core/tree/tree.h"

#define CHECK_NONE U32_MAX

/* A growing array. */
struct check_table {
	void *entries;
	u64 count, capacity;
	u32 size;		/* of an entry */
};

enum {
	INODE_HAS_ATTR = 1,
	INODE_SUSPECT = 2,	/* names and parent pointers do not match: look closer */
	INODE_TO_DELETE = 4,	/* has an orphan item that says so */
	INODE_WALKED = 8,	/* on the way up that is being followed now */
	INODE_REACHED = 16,	/* below the root, or told to be not */
};

/* In order of ino. */
struct check_inode {
	u64 ino;
	u64 sum;		/* mixes of all names that lead here, minus those of all parent pointers */
	u32 nlink;
	u32 names;
	u32 parents;
	u32 up;			/* directories: index of the one that names it first, or CHECK_NONE */
	u16 mode;		/* its type bits */
	u16 flags;		/* INODE_... */
};

struct check_link {
	u64 ino_type;		/* inode number << 8 | type in the entry */
	u64 mix;
	u32 dir;		/* index */
};

struct check_orphan {
	u64 ino;
	u64 block;
	u32 kind;
	bool seen;
};

struct check_quota {
	struct rb_node node;
	u8 type;
	u32 id;
	bool listed;		/* has an item in the tree */
	u64 blocks, inodes;	/* as the item says */
	u64 used_blocks, used_inodes;
};

/* The inode whose items the walk is at. */
struct check_current {
	u64 ino;		/* 0: none */
	u32 index;		/* CHECK_NONE: it cannot exist, its items are only counted */
	bool has_attr;
	struct disk_attr attr;
	u32 mode, nlink, flags;
	u64 size;
	u64 entries, subdirs;
	u64 blocks;
	u64 extent_end;		/* file block after the last extent */
	u64 truncate_from;	/* extents from this file block on may be beyond the end */
	u64 inline_len;
	bool has_inline, has_extents, has_unwritten, has_xattrs;
	bool inline_zero;	/* a byte of a target is */
	bool overlap_told;
	u32 wrong_types;	/* bit n: told that items of type n are not for this kind */
};

/* One bit for each block, by group; groups come into being when a bit is set. */
struct check_bitmap {
	u8 **groups;
	u64 group_count;
	u64 set;
};

struct check {
	struct volume *vol;
	const struct check_options *opts;
	struct check_result *result;
	int stop;		/* -errno: no more problems are wanted, or no memory */
	bool damaged;		/* part of the tree is lost: what is missing elsewhere follows from it */
	bool names_differ;	/* some inodes are suspect, or names dangle */
	struct check_table inodes, links, orphans;
	u64 orphan_next;
	struct check_bitmap used;
	struct check_bitmap maps;	/* of a hold: read at the beginning */
	struct rb_root quota;
	struct check_current now;
	u64 ticks;		/* since progress was last told */
	void *buffer;
	u64 data_read;		/* blocks */
	const u8 *name;		/* for the next problems, see check_problem.raw_name */
	u32 name_len;
};

/* check.c.  All that return int: 0, or -errno to stop; also in check->stop. */
int check_report(struct check *check, enum check_code code, u64 ino, u64 addr, const char *detail,
		 const u64 args[4]);
/* args: the numbers of the sentence, in order.  detail: appended to it, may be NULL. */
#define check_problem(check, NAME, ino, addr, detail, ...) \
	check_report(check, CHECK_##NAME, ino, addr, detail, (const u64[4]){ __VA_ARGS__ })
/* The same, of a name. */
#define check_name_problem(check, NAME, ino, raw, len, detail, ...) ({ \
	(check)->name = (raw); \
	(check)->name_len = (len); \
	check_problem(check, NAME, ino, 0, detail, __VA_ARGS__); \
	(check)->name = NULL; \
	(check)->name_len = 0; \
})
void check_progress(struct check *check, enum check_pass pass, u64 done, u64 total);
int check_fail(struct check *check, int err);		/* remember that err stops it all; returns it */
void *check_table_add(struct check *check, struct check_table *table);	/* zeroed; NULL: stopped */
struct check_inode *check_inode_at(struct check *check, u64 index);
struct check_inode *check_inode_find(struct check *check, u64 ino);	/* NULL: none */
void check_name_text(char *text, size_t size, const void *name, u32 len);	/* quoted, for detail */

/* check_items.c */
int check_item(struct check *check, const struct tree_key *key, const void *data, u32 len, u64 addr);
int check_inode_finish(struct check *check);

/*
 * check_chains.c: items in which several entries are chained.  This iterator is not that of core/format/chain.h, on
 * purpose: what the two make of the same bytes are two opinions.  It also takes entries with empty names.
 */
struct check_chain {
	const u8 *data;
	u32 len;
	u32 at, size;		/* the entry that was returned last */
	bool bad;		/* after the end: there is no whole entry at `at`, or nothing at all */
};
const struct disk_dirent *check_next_dirent(struct check_chain *chain);
const struct disk_parent *check_next_parent(struct check_chain *chain);
const struct disk_xattr *check_next_xattr(struct check_chain *chain);
bool check_name_valid(const u8 *name, u32 len);	/* can a file have it? */
int check_dirents(struct check *check, const struct tree_key *key, const void *data, u32 len);
int check_parents(struct check *check, const struct tree_key *key, const void *data, u32 len);
int check_xattrs(struct check *check, const struct tree_key *key, const void *data, u32 len);

/* check_names.c */
int check_links(struct check *check);
int check_reachable(struct check *check);
u64 check_name_mix(u64 dir, u64 hash, const void *name, u32 len);

/* check_space.c */
int check_bitmap_init(struct check *check, struct check_bitmap *map);
void check_bitmap_exit(struct check_bitmap *map);
/* Set these bits; *shared: how many were set already, *first: the first of them. */
int check_bitmap_set(struct check *check, struct check_bitmap *map, u64 addr, u64 len, u64 *shared, u64 *first);
/* A run of blocks is in use by ino (0: the tree); tells if by something else too. */
int check_use_blocks(struct check *check, u64 ino, u64 addr, u64 len);
/* Within the volume? */
bool check_range_inside(struct check *check, u64 addr, u64 len);
int check_maps(struct check *check);
int check_read_maps(struct check *check);	/* of a hold: before all else, for they are being written over */

/* check_anchor.c */
int check_anchor(struct check *check);		/* of a hold: early, for it is written over */

/* check_quota.c */
int check_quota_item(struct check *check, const struct tree_key *key, const void *data, u32 len);
int check_quota_count(struct check *check, const struct disk_attr *attr);
int check_quotas(struct check *check);
void check_quota_exit(struct check *check);

/* check_data.c */
int check_data(struct check *check);

#endif
