/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading ahead what the back end is about to change, many blocks at once and without a lock: the leaves of keys, with
 * the way to them, and free maps.
 *
 * Nothing depends on it: what could not be read, or was evicted again, is read by whoever needs it, and he tells what is
 * wrong with it.
 */
#ifndef TUX3_PREFETCH_H
#define TUX3_PREFETCH_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/tree/tree.h"

#define PREFETCH_KEYS 1024u	/* collected before they are read */

struct volume;

struct prefetch {
	struct volume *vol;
	u32 keys, groups;
	u32 key_limit, group_limit;	/* so many that what is read stays in memory until it is used */
	struct tree_key key[PREFETCH_KEYS];
	u64 group[PREFETCH_KEYS];
};

/* NULL without memory: all others do nothing then. */
struct prefetch *prefetch_create(struct volume *vol);
void prefetch_free(struct prefetch *prefetch);
bool prefetch_full(const struct prefetch *prefetch);	/* what is added from now on is forgotten */
void prefetch_add_key(struct prefetch *prefetch, const struct tree_key *key);
void prefetch_add_group(struct prefetch *prefetch, u64 group);
void prefetch_add_record(struct prefetch *prefetch, const struct disk_record *record);	/* whole, in memory */
void prefetch_add_blocks(struct prefetch *prefetch, u64 addr, u64 count);	/* whose free maps will change */
/*
 * Free maps of the blocks that the xattrs and extents from one key to the other lead to.  Reads these items, one leaf after
 * the other, so tree->sem is not held, and who takes what is there in parts asks for one part at a time.
 */
void prefetch_add_items(struct prefetch *prefetch, const struct tree_key *from, const struct tree_key *to);
/* Read what was added and is not in memory; begin anew.  Keys first: tree->sem must not be held. */
void prefetch_run(struct prefetch *prefetch);

#endif
