/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names: directories as the front end sees them.
 *
 * Each directory in use keeps entries in memory (struct name_entry, ordered by hash, then name): the
 * current truth for that name, which may be "absent".  A change of the front delta makes a struct
 * name_change for (entry, delta), which the back end turns into records.  An entry with changes is
 * pinned.  When dir->complete, a name without an entry does not exist, and neither lookup nor readdir
 * reads the tree.
 *
 * This header: what is in memory, and lookup.  Listing is in name_list.h, changes are in name_change.h.
 *
 * Locking: the host holds the directory's lock (shared for lookup and listing, exclusive for changes);
 * dir->lock protects the entries against the back end and other readers.
 */
#ifndef TUX3_NAME_H
#define TUX3_NAME_H

#include "core/env.h"
#include "core/inode/inode.h"

struct name_cache {
	spinlock_t lock;
	struct list_head dirs;		/* lock: directories with entries, least recently used first */
	u64 dir_count;			/* lock */
	struct percpu_counter entries;	/* clean or not, of all directories */
	s32 batch;			/* constant: of these, a CPU counts fewer by itself */
};

/*
 * The offset of the item for a name: type DIRENT, PARENT (then ino is the directory, not the owner of the item) or XATTR.
 */
u64 name_hash(struct volume *vol, u64 ino, u8 type, const char *name, unsigned int len);

int name_cache_init(struct volume *vol);	/* -ENOMEM */
void name_cache_exit(struct volume *vol);
/*
 * How many clean entries of directories there are, about; give back up to count of them, returns how many.  Both are for
 * memory reclaim too: spinlocks only.
 */
u64 name_reclaimable(struct volume *vol);
u64 name_shrink(struct volume *vol, u64 count);

/* 0 and what the name leads to.  -ENOENT: no such name. -ENAMETOOLONG.  "." and ".." are the host's. */
int name_lookup(struct tux3_inode *dir, const char *name, unsigned int len, u64 *ino, u8 *type);

bool name_is_empty(struct tux3_inode *dir);

int name_dir_new(struct tux3_inode *inode);	/* a directory being made: known to be empty */
void name_dir_free(struct tux3_inode *inode);	/* by inode_exit */

/* Are there changes of names of the delta in memory? */
bool name_has_changes(struct tux3_inode *inode, u64 delta);

#endif
