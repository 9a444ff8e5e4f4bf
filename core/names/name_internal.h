/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What name.c, name_list.c and name_change.c share: the entries of a directory in memory.
 *
 * Invariants
 *  1. If an entry exists it is the current truth.  If the directory is complete, no entry means no name.
 *  2. An entry with a change, or pinned by a preparation, is never dropped.
 *  3. tree_ino is what the tree says; written when the entry is made and by the back end.
 *  4. Names whose hashes collide, so that they share an item, are in memory together or not at all.
 *  5. A name absent from memory is in the tree as the tree says: changes stay in memory until applied.
 */
#ifndef TUX3_NAME_INTERNAL_H
#define TUX3_NAME_INTERNAL_H

#include "core/volume.h"

#define NAME_BATCH	256u	/* entries brought into memory, or listed, at a time */

#define NAME_HOLDERS	2u
#define NAME_ABSENT	3u	/* none of them */

/* Of a change of a name that may lead to two files in a delta, or is not the only one by which a file got or lost a name. */
struct name_ties {
	struct tux3_inode *other;	/* the second holder */
	struct name_tie tie[NAME_HOLDERS];
};

/*
 * Holders are who had the name when the delta began, or got it in the delta: those whom a crash can bring back by it
 * are among them, unless there are too many.
 */
struct name_change {
	struct list_head link;		/* name_dir.changed[] */
	struct name_entry *entry;
	struct tux3_inode *dir;
	u64 ino;			/* 0: absent */
	struct tux3_inode *holder;	/* the first one */
	struct name_ties *ties;		/* or NULL */
	u32 said;			/* the newest intent of this delta that says what the name leads to, or need not */
	u8 type;
	u8 tied : 2;			/* bits: the holder knows of it, by a tie; else that was made with the name, born_entry */
	u8 began : 2;			/* which of them had it when the delta began, or NAME_ABSENT */
	u8 told : 2;			/* if was_told: whom the newest durable intent names, or NAME_ABSENT */
	u8 many : 1;			/* there was no room for another one */
	u8 flying : 1;			/* an intent of this delta says what it led to, and the newest is not known to be durable */
	u8 was_told : 1;		/* one of them is */
	u8 since : 1;			/* it was changed again since the intent of number said */
	u8 durable : 1;			/* an intent that is durable says so, or need not: not counted in dir->open[] */
};

struct name_entry {
	union {
		struct rb_node node;
		struct list_head loading;	/* not in dir->entries yet */
	};
	u64 hash;
	u64 ino;			/* dir->lock: now; 0: absent */
	u64 tree_ino;
	struct name_change *changes[2];	/* dir->lock */
	u32 pins;			/* dir->lock */
	u8 type, tree_type;
	u8 len;
	char name[];
};

struct name_dir {
	spinlock_t lock;
	struct rb_root entries;		/* by hash, then name */
	u64 count;
	u64 evictions;			/* entries dropped that the tree has */
	u64 shrink_from;		/* lock: the hash at which dropping them goes on */
	bool complete;
	u32 pins;			/* lock: of all entries; counted only with CONFIG_PROVE_LOCKING */
	struct list_head changed[2];	/* name_change, by delta & 1 */
	u32 open[2];			/* lock: of these so many are not durable ahead of their delta */
	u64 looked_delta;		/* the directory's attributes were looked at for it (name_look.c); no lock */
	struct list_head link;		/* name_cache.dirs */
};

/* The directory's part of the inode.  Another thread may just try to make it, too. */
static inline struct name_dir *name_dir_of(struct tux3_inode *inode)
{
	return smp_load_acquire(&inode->dir);	/* pairs with name_dir_get(): who sees it sees its lock */
}

/* The same, made when first needed.  NULL: no memory. */
struct name_dir *name_dir_get(struct tux3_inode *inode);

/* ---- entries; dir->lock held ---- */

static inline struct name_entry *name_entry_next(struct name_entry *entry)
{
	struct rb_node *next = rb_next(&entry->node);

	return next ? rb_entry(next, struct name_entry, node) : NULL;
}

static inline bool name_entry_is_clean(const struct name_entry *entry)
{
	return !entry->changes[0] && !entry->changes[1] && !entry->pins;
}

static inline struct tux3_inode *name_holder(const struct name_change *change, u32 which)
{
	return !which ? change->holder : change->ties ? change->ties->other : NULL;
}

/* Which of its holders has this number; NAME_ABSENT: none. */
static inline u32 name_holder_index(const struct name_change *change, u64 ino)
{
	u32 i;

	for (i = 0; i < NAME_HOLDERS; i++)
		if (name_holder(change, i) && name_holder(change, i)->ino == ino)
			return i;
	return NAME_ABSENT;
}

/* An intent of this number says what the name leads to; and it is durable: that was this inode, 0: none. */
void name_change_said(struct name_change *change, u32 said);
void name_change_told(struct name_dir *dir, struct name_change *change, u32 slot, u32 said, u64 ino);

/* The first entry with this hash or a higher one. */
struct name_entry *name_entry_from(struct name_dir *dir, u64 hash);
void name_entry_drop(struct volume *vol, struct name_dir *dir, struct name_entry *entry);

/* ---- from the tree into memory; dir->lock not held ---- */

/*
 * The entry for the name, brought into memory if need be; dir->lock held on success.  ERR_PTR.  make: have one also for
 * a name that is absent; without, that may be -ENOENT.
 */
struct name_entry *name_entry_get(struct tux3_inode *inode, const char *name, unsigned int len, bool make);
/*
 * Bring entries into memory from hash `from` on, about max of them.  *last: all names with hashes from
 * `from` to *last are in memory, unless dir->evictions has moved since.
 */
int name_load(struct tux3_inode *inode, struct name_dir *dir, u64 from, u64 to, u32 max, u64 *last);
/* Drop clean entries of any directory if there are too many. */
void name_limit(struct volume *vol);

#endif
