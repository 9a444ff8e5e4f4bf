// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Listing directories: entries from memory in the order of their hashes, which are the cookies.
 */
#include "core/format/name_hash.h"
#include "core/names/name_internal.h"
#include "core/names/name_list.h"

/*
 * Entries copied out of memory under the lock, to be told without it.  A small one on the stack does for all
 * directories but those with more names of one hash than fit: these must be listed together.
 */
struct listing {
	u32 count, used;
	u32 max_count, max_used;
	u64 next;		/* hash to go on with */
	struct name_found *found;
	u64 *hashes;		/* of found[] */
	char *names;
};

#define SMALL_BATCH 16u

struct small_listing {
	struct listing list;
	struct name_found found[SMALL_BATCH];
	u64 hashes[SMALL_BATCH];
	char names[SMALL_BATCH * 24 + TUX3_NAME_MAX + 1];
};

struct large_listing {
	struct listing list;
	struct name_found found[NAME_BATCH];
	u64 hashes[NAME_BATCH];
	char names[NAME_BATCH * 32 + TUX3_NAME_MAX + 1];
};

#define listing_init(where) do {							\
	(where)->list.found = (where)->found;						\
	(where)->list.hashes = (where)->hashes;						\
	(where)->list.names = (where)->names;						\
	(where)->list.max_count = ARRAY_SIZE((where)->found);				\
	(where)->list.max_used = sizeof((where)->names);				\
} while (0)

/* Copy entries with hashes in [from, to]; true: there are no more in memory up to `to`. */
static bool listing_fill(struct listing *list, struct name_dir *dir, u64 from, u64 to)
{
	struct name_entry *entry = name_entry_from(dir, from);

	list->count = list->used = 0;
	while (entry && entry->hash <= to) {
		struct name_entry *after = name_entry_next(entry);
		struct name_found *found = &list->found[list->count];

		list->next = entry->hash;
		if (list->count == list->max_count || list->used + entry->len + 1 > list->max_used)
			return false;
		if (entry->ino) {
			list->hashes[list->count] = entry->hash;
			found->ino = entry->ino;
			found->type = entry->type;
			found->len = entry->len;
			found->name = list->names + list->used;
			found->next = after && after->hash == entry->hash ? entry->hash : entry->hash + 1;
			memcpy(list->names + list->used, entry->name, entry->len);
			list->names[list->used + entry->len] = 0;
			list->used += entry->len + 1;
			list->count++;
		}
		entry = after;
	}
	return true;
}

/* Entries whose hash is that of the one that did not fit must come again with it.  False: these are all. */
static bool listing_trim(struct listing *list)
{
	while (list->count > 1 && list->hashes[list->count - 1] == list->next)
		list->count--;
	return list->count && list->hashes[0] != list->next;
}

/* What is in memory of a directory: all names with hashes up to last, as long as no entry is dropped. */
struct loaded {
	u64 last, evictions;
	bool any;
};

/* Have the names from hash `from` on in memory, some at least.  Returns with dir->lock held on success. */
static int names_load(struct tux3_inode *inode, struct name_dir *dir, u64 from, struct loaded *loaded)
{
	int err;

	for (;;) {
		spin_lock(&dir->lock);
		if (dir->complete) {
			loaded->last = NAME_HASH_MAX;
			return 0;
		}
		if (loaded->any && loaded->evictions == dir->evictions && from <= loaded->last)
			return 0;
		spin_unlock(&dir->lock);
		name_limit(inode->vol);
		spin_lock(&dir->lock);
		loaded->evictions = dir->evictions;
		spin_unlock(&dir->lock);
		err = name_load(inode, dir, from, NAME_HASH_MAX, NAME_BATCH, &loaded->last);
		if (err)
			return err;
		loaded->any = true;
	}
}

static int names_list(struct tux3_inode *inode, struct name_dir *dir, struct listing *list, u64 *cookie, name_fn fn,
		      void *ctx)
{
	struct large_listing *large = NULL;
	struct loaded loaded = { };
	int err = 0;
	u32 i;

	while (!err && *cookie <= NAME_HASH_MAX) {
		bool end;

		err = names_load(inode, dir, *cookie, &loaded);
		if (err)
			break;
		end = listing_fill(list, dir, *cookie, loaded.last);
		spin_unlock(&dir->lock);
		if (end) {
			list->next = loaded.last + 1;
		} else if (!listing_trim(list) && !large) {
			large = kvmalloc(sizeof(*large), GFP_NOFS);
			if (!large)
				return -ENOMEM;
			listing_init(large);
			list = &large->list;
			continue;
		}
		for (i = 0; i < list->count && !err; i++) {
			err = fn(ctx, &list->found[i]);
			if (!err)
				*cookie = list->found[i].next;
		}
		if (!err)
			*cookie = list->next;
	}
	kvfree(large);
	return err;
}

int name_iterate(struct tux3_inode *inode, u64 *cookie, name_fn fn, void *ctx)
{
	struct name_dir *dir = name_dir_get(inode);
	struct small_listing small;

	if (!dir)
		return -ENOMEM;
	listing_init(&small);
	return names_list(inode, dir, &small.list, cookie, fn, ctx);
}
