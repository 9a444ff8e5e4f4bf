/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of repair share: repair.c (the driver), repair_tree.c (nodes that cannot be used, and the search for leaves),
 * repair_space.c (blocks in use, free maps, writing it all), repair_inode.c (the items of one inode), repair_names.c
 * (names, parents, lost+found), repair_blocks.c (blocks that two claim), repair_lost.c (what is lost of files),
 * repair_anchor.c (a volume without anchors).
 *
 * All of it belongs to one call of volume_repair(): no locking, but for tree->sem, which edits ask for.
 */
#ifndef TUX3_REPAIR_INTERNAL_H
#define TUX3_REPAIR_INTERNAL_H

#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/repair/repair.h"

/* A growing array. */
struct repair_table {
	void *entries;
	u64 count, capacity;
};

/* One bit for each block, by group; groups come into being when a bit is set. */
struct block_set {
	unsigned long **groups;
	u64 group_count;
};

/* A problem that the checker told, and that is to be put right. */
struct repair_problem {
	u64 args[4];
	u64 name;		/* where its name is, in repair->names */
	u16 code;
	u8 name_len;
};

struct repair {
	struct volume_mend mend;
	struct volume *vol;
	const struct repair_options *opts;
	struct repair_result *result;
	struct block_set used;		/* blocks of nodes and data */
	struct block_set once, twice, taken;	/* repair_blocks.c: claimed by somebody, by two; those that have an owner */
	struct repair_table claims, seen, losses;	/* of those in twice */
	u64 data_total, unwritten_total, inode_total;	/* counted along with used */
	struct repair_table problems;	/* struct repair_problem: of this round */
	struct repair_table names;	/* u8: of these problems */
	u32 round;			/* of the checker, from 0 on */
	u64 changes;			/* edits so far, and free maps set right */
	int err;			/* of a look into the tree: nothing is changed after it */
	struct repair_table promises;	/* repair_space.c: struct promise */
	struct repair_table made;	/* struct made: inodes that got new attributes */
	u64 parts;			/* that extents were cut into, where others are in their place */
	u64 surveyed;			/* the inode that repair_inode() was last called for in this round */
	struct repair_table lost_leaves;	/* struct key_range: of each leaf that is lost; what is found of it is older */
	struct repair_table lost_keys;	/* the same, and what was below lost inner nodes and in no leaf that was found */
	bool leaf_missing;		/* some of lost_keys beside lost_leaves was in a leaf, and not only between leaves */
	struct repair_table lost_names;	/* struct lost_names: directories that count more names than they have */
	struct repair_table lost_blocks;	/* the same, of extents that could not stay: exactly what was in them */
	struct repair_table gone_names;	/* struct gone_name: deleted in the log */
	bool gone_sorted;
	bool root_unnamed;		/* names of the root directory were looked for, in this round */
	u64 named;			/* a directory that has a name, while only names and pointers are looked at; or 0 */
	u64 unclaimed;			/* blocks that were in use, of which nobody knows any more what for */
	u64 lost_found;			/* inode number, once there is one */
	u64 anchor_copy;		/* the block of a copy of the anchor that is damaged, or 0 */
	u8 *item;			/* two of the largest there can be, for who edits one */
	u8 *chain;
};

/* repair.c */
void *repair_add(struct repair_table *table, size_t size);	/* zeroed; NULL: no memory */
__printf(4, 5) void repair_note(struct repair *repair, enum repair_kind kind, u64 ino, const char *format, ...);
/*
 * Note an error of a look into the tree, so that what could not be read is not taken for what is not there: every change that
 * follows fails with it.  Returns it.
 */
int repair_looked(struct repair *repair, int ret);
/*
 * One item: its data into buffer (TUX3_ITEM_MAX bytes at least), returns its length or -ENOENT, -EIO.  set, delete: 0 or -errno;
 * counted as changes.  A delete of what is not there is none.
 */
int repair_get(struct repair *repair, u64 ino, u8 type, u64 offset, void *buffer);
int repair_set(struct repair *repair, u64 ino, u8 type, u64 offset, const void *data, u32 len);
int repair_delete(struct repair *repair, u64 ino, u8 type, u64 offset);
/* Items of one type, from this offset to that, both included: lost, and why. */
int repair_drop(struct repair *repair, u64 ino, u8 type, u64 from, u64 to, const char *why);
int repair_get_attr(struct repair *repair, u64 ino, struct disk_attr *attr);	/* 0, -ENOENT, ... */
int repair_set_attr(struct repair *repair, u64 ino, const struct disk_attr *attr);
/* Attributes of an inode that has none, of a kind that mode says. */
void repair_default_attr(struct repair *repair, u32 mode, struct disk_attr *attr);

/* repair_anchor.c */
int repair_search(struct volume_mend *mend, struct tux3_device *dev, struct disk_anchor *anchor, char *why, size_t why_size);

/* repair_tree.c */
int repair_tree(struct volume_mend *mend, struct volume *vol);

/* repair_space.c */
int block_set_init(struct block_set *set, struct volume *vol);
void block_set_exit(struct block_set *set);
int block_set_add(struct block_set *set, struct volume *vol, u64 addr, u64 len);
/* How many blocks from addr on, at most len, are in it, or are not: as *in says. */
u64 block_set_run(const struct block_set *set, struct volume *vol, u64 addr, u64 len, bool *in);
bool block_set_has(const struct block_set *set, struct volume *vol, u64 addr);
/* The blocks of an item, as far as they are the volume's: fn for each run. */
typedef int (*block_run_fn)(struct repair *repair, const struct tree_key *key, const void *data, u64 addr, u32 len);
int repair_item_blocks(struct repair *repair, const struct tree_key *key, const void *data, u32 len, block_run_fn fn);
int repair_count_used(struct repair *repair);			/* anew, from the tree in memory */
/* Preallocated blocks are given back where a volume is so full of them that nothing could be changed any more, not even removed. */
int repair_make_room(struct repair *repair);
int repair_set_maps(struct repair *repair, bool forget, bool tell);
/* Of the anchor, before replay; cut: part of the tree is gone. */
void repair_check_totals(struct repair *repair, bool cut);
int repair_write(struct repair *repair, char *why, size_t why_size);
int repair_write_anchor(struct repair *repair, char *why, size_t why_size);	/* the copy that is damaged, and nothing else */

/* repair_inode.c: everything that can be judged within an inode. */
int repair_inode(struct repair *repair, u64 ino);
/* A symlink, says a name of an inode that got new attributes: if it can be one, it is.  1: it is now; 0, -errno. */
int repair_take_kind(struct repair *repair, u64 ino, u32 kind);
/* It got new attributes, is a file now, and may have been a symlink: what it holds is text, and no name is left that tells. */
bool repair_kind_unknown(struct repair *repair, u64 ino);

bool repair_wants_csum(struct repair *repair, u32 flags);	/* of an extent: is it to have checksums? */

/* repair_names.c */
int repair_name_gone(struct volume_mend *mend, u64 dir, u64 hash);
int repair_name_problem(struct repair *repair, const struct repair_problem *problem);
int repair_connect(struct repair *repair, u64 ino);		/* a name in lost+found, if it has no parent pointer */

/* repair_blocks.c */
/* The part of an extent from skip on becomes an item of its own; from is not in repair->chain. */
int repair_store_part(struct repair *repair, const struct tree_key *key, const struct disk_extent *from, u32 skip, u32 count);
int repair_shared(struct repair *repair);

#endif
