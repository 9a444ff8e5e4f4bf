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
 * Locking: the host holds the directory's lock (shared for lookup and iterate, exclusive for changes);
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
	atomic64_t entries;		/* clean or not, of all directories */
};

void name_cache_init(struct volume *vol);
/*
 * Give back up to count clean entries of directories; returns how many.  It and the other, which estimates how many there
 * are, are for memory reclaim too: spinlocks only.
 */
u64 name_reclaimable(struct volume *vol);
u64 name_shrink(struct volume *vol, u64 count);

/* -ENOENT: no such name. -ENAMETOOLONG.  "." and ".." are the host's. */
int name_lookup(struct tux3_inode *dir, const char *name, unsigned int len, u64 *ino, u8 *type);

/*
 * Entries in cookie order from *cookie on (0: the start; "." and ".." are the host's).  fn gets the
 * cookie to go on after this entry (at most 2^63 - 1), returns 0 to go on, 1 when it has no more room (the
 * entry is then not taken), or -errno.  *cookie is left where to go on.  Returns 0 at the end of the directory, 1 if fn
 * stopped, or -errno.  Entries that are there during the whole listing are listed once.
 */
struct name_found {
	u64 ino;
	u64 next;		/* cookie after this entry */
	const char *name;
	u8 len, type;
};
typedef int (*name_fn)(void *ctx, const struct name_found *found);
int name_iterate(struct tux3_inode *dir, u64 *cookie, name_fn fn, void *ctx);

/* Number of entries (attr.size of a directory). */
bool name_is_empty(struct tux3_inode *dir);

/*
 * Changes, for ops.c.  prepare, outside a delta: find the entry, get memory for a change.  Then inside:
 * name_change sets it (ino 0: absent) and consumes the preparation.
 */
struct name_entry;
struct name_prepared {
	struct name_entry *entry;
	struct name_change *change;
	u64 ino;		/* what the name leads to now; 0: absent */
	u8 type;
};
int name_prepare(struct tux3_inode *dir, const char *name, unsigned int len, struct name_prepared *prep);
void name_cancel(struct tux3_inode *dir, struct name_prepared *prep);
void name_change(struct delta_op *op, struct tux3_inode *dir, struct name_prepared *prep, u64 ino, u8 type);

/* Back end: log the names of dir that changed in delta; tree edit lock not held (taken inside, in batches). */
int name_commit(struct tux3_inode *dir, u64 delta);
/* Delta is durable or given up: forget its changes. */
void name_done(struct tux3_inode *dir, u64 delta);
int name_dir_new(struct tux3_inode *inode);	/* a directory being made: known to be empty */
void name_dir_free(struct tux3_inode *inode);	/* by inode_exit */

#endif
