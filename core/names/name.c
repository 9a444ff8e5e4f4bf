// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names in memory: lookup, listing, and the changes that deltas make.  See name.h for the idea.
 *
 * Invariants
 *  1. If an entry exists it is the current truth.  If the directory is complete, no entry means no name.
 *  2. An entry with a change, or pinned by a preparation, is never dropped.
 *  3. tree_ino is what the tree says; written when the entry is made and by the back end.
 *  4. Names whose hashes collide, so that they share an item, are in memory together or not at all.
 *  5. A name absent from memory is in the tree as the tree says: changes stay in memory until applied.
 *
 * Only name_commit and name_done run in the back end.
 */
#include "core/volume.h"
#include "core/log/prefetch.h"

#define LOAD_MAX	16384u	/* directories with at most so many entries are read as a whole */
#define SHRINK_DIRS	1024u	/* directories looked at by one call of name_shrink() */
#define BATCH		256u	/* entries brought into memory, or listed, at a time */
#define NAMES_AHEAD	64u	/* changes whose leaves are read together */
#define HASH_MIN	16u	/* lower cookies belong to the host */
#define HASH_MAX	((1ULL << 63) - 16)	/* and so do the highest */

struct name_change {
	struct list_head link;		/* name_dir.changed[] */
	struct name_entry *entry;
	u64 ino;			/* 0: absent */
	u8 type;
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
	bool complete;
	struct list_head changed[2];	/* name_change, by delta & 1 */
	struct list_head link;		/* name_cache.dirs */
};

void name_cache_init(struct volume *vol)
{
	spin_lock_init(&vol->names.lock);
	INIT_LIST_HEAD(&vol->names.dirs);
	vol->names.dir_count = 0;
	atomic64_set(&vol->names.entries, 0);
}

/*
 * What readdir publishes, the hashes of entries, says nothing about those of parent pointers and of attributes, nor about
 * those of the same name in another directory: number and type are hashed with the name.
 */
u64 name_hash(struct volume *vol, u64 ino, u8 type, const char *name, unsigned int len)
{
	struct {
		__le64 ino_type;
		char name[TUX3_NAME_MAX];
	} text;
	u64 hash;

	len = min_t(unsigned int, len, TUX3_NAME_MAX);
	text.ino_type = cpu_to_le64(ino << 8 | type);
	memcpy(text.name, name, len);
	hash = siphash(&text, offsetof(typeof(text), name) + len, &vol->hash_key) & S64_MAX;
	if (vol->opts.name_hash_mask)
		hash &= vol->opts.name_hash_mask;
	return hash < HASH_MIN ? hash + HASH_MIN : min_t(u64, hash, HASH_MAX);
}

/* The directory's part of the inode.  Another thread may just try to make it, too. */
static struct name_dir *dir_of(struct tux3_inode *inode)
{
	return READ_ONCE(inode->dir);
}

/* The same, made when first needed. */
static struct name_dir *dir_get(struct tux3_inode *inode)
{
	struct name_dir *dir = dir_of(inode), *old;

	if (likely(dir))
		return dir;
	dir = kzalloc(sizeof(*dir), GFP_NOFS);
	if (!dir)
		return NULL;
	spin_lock_init(&dir->lock);
	dir->entries = RB_ROOT;
	INIT_LIST_HEAD(&dir->changed[0]);
	INIT_LIST_HEAD(&dir->changed[1]);
	INIT_LIST_HEAD(&dir->link);
	old = cmpxchg(&inode->dir, NULL, dir);
	if (old) {
		kfree(dir);
		return old;
	}
	spin_lock(&inode->vol->names.lock);
	list_add_tail(&dir->link, &inode->vol->names.dirs);
	inode->vol->names.dir_count++;
	spin_unlock(&inode->vol->names.lock);
	return dir;
}

int name_dir_new(struct tux3_inode *inode)
{
	struct name_dir *dir = dir_get(inode);

	if (!dir)
		return -ENOMEM;
	dir->complete = true;
	return 0;
}

/* ---- entries; dir->lock held ---- */

static int entry_compare(const struct name_entry *entry, u64 hash, const char *name, u32 len)
{
	int order;

	if (hash != entry->hash)
		return hash < entry->hash ? -1 : 1;
	order = memcmp(name, entry->name, min_t(u32, len, entry->len));
	return order ? order : (int)len - (int)entry->len;
}

static struct name_entry *entry_find(struct name_dir *dir, u64 hash, const char *name, u32 len)
{
	struct rb_node *node = dir->entries.rb_node;

	lockdep_assert_held(&dir->lock);
	while (node) {
		struct name_entry *entry = rb_entry(node, struct name_entry, node);
		int order = entry_compare(entry, hash, name, len);

		if (!order)
			return entry;
		node = order < 0 ? node->rb_left : node->rb_right;
	}
	return NULL;
}

/* The first entry with this hash or a higher one. */
static struct name_entry *entry_from(struct name_dir *dir, u64 hash)
{
	struct rb_node *node = dir->entries.rb_node;
	struct name_entry *found = NULL;

	lockdep_assert_held(&dir->lock);
	while (node) {
		struct name_entry *entry = rb_entry(node, struct name_entry, node);

		if (entry->hash >= hash) {
			found = entry;
			node = node->rb_left;
		} else {
			node = node->rb_right;
		}
	}
	return found;
}

static struct name_entry *entry_next(struct name_entry *entry)
{
	struct rb_node *next = rb_next(&entry->node);

	return next ? rb_entry(next, struct name_entry, node) : NULL;
}

/* Insert it, unless there is one with this name: then that is returned. */
static struct name_entry *entry_insert(struct volume *vol, struct name_dir *dir, struct name_entry *new)
{
	struct rb_node **link = &dir->entries.rb_node, *parent = NULL;

	lockdep_assert_held(&dir->lock);
	while (*link) {
		struct name_entry *entry = rb_entry(*link, struct name_entry, node);
		int order = entry_compare(entry, new->hash, new->name, new->len);

		if (!order)
			return entry;
		parent = *link;
		link = order < 0 ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&new->node, parent, link);
	rb_insert_color(&new->node, &dir->entries);
	dir->count++;
	atomic64_inc(&vol->names.entries);
	return new;
}

static void entry_drop(struct volume *vol, struct name_dir *dir, struct name_entry *entry)
{
	lockdep_assert_held(&dir->lock);
	rb_erase(&entry->node, &dir->entries);
	dir->count--;
	atomic64_dec(&vol->names.entries);
	kfree(entry);
}

static bool entry_is_clean(const struct name_entry *entry)
{
	return !entry->changes[0] && !entry->changes[1] && !entry->pins;
}

static struct name_entry *entry_new(u64 hash, const char *name, u32 len, u64 ino, u8 type)
{
	struct name_entry *entry = kzalloc(sizeof(*entry) + len, GFP_NOFS);

	if (!entry)
		return NULL;
	entry->hash = hash;
	entry->ino = entry->tree_ino = ino;
	entry->type = entry->tree_type = type;
	entry->len = len;
	memcpy(entry->name, name, len);
	return entry;
}

/* ---- from the tree into memory ---- */

struct load {
	struct volume *vol;
	struct name_dir *dir;
	u32 left;		/* stop after the hash with which this gets 0 */
	u64 last;		/* hash of the last item seen */
};

/* The entries of one item come into memory together, as they go together: see chain_has_room(). */
static void load_chain(struct load *load, struct list_head *chain)
{
	struct name_entry *entry, *next;

	spin_lock(&load->dir->lock);
	list_for_each_entry_safe(entry, next, chain, loading) {
		if (entry_insert(load->vol, load->dir, entry) != entry)
			kfree(entry);
		if (load->left)
			load->left--;
	}
	spin_unlock(&load->dir->lock);
}

static int load_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct name_entry *entry, *next;
	struct load *load = ctx;
	LIST_HEAD(chain);
	u32 at, size;
	int err = 0;

	if (!load->left)
		return 1;
	for (at = 0; at < len; at += size) {
		const struct disk_dirent *item = (const void *)((const u8 *)data + at);

		err = -EIO;
		if (len - at < sizeof(*item) || len - at < sizeof(*item) + item->len || !item->len)
			goto failed;
		size = sizeof(*item) + item->len;
		entry = entry_new(key->offset, (const char *)item->name, item->len, le64_to_cpu(item->ino), item->type);
		err = -ENOMEM;
		if (!entry)
			goto failed;
		list_add_tail(&entry->loading, &chain);
	}
	load_chain(load, &chain);
	load->last = key->offset;
	return 0;
failed:
	list_for_each_entry_safe(entry, next, &chain, loading)
		kfree(entry);
	return err;
}

/*
 * Bring entries into memory from hash `from` on, about max of them.  *last: all names with hashes from
 * `from` to *last are in memory, unless dir->evictions has moved since.
 */
static int dir_load(struct tux3_inode *inode, struct name_dir *dir, u64 from, u64 to, u32 max, u64 *last)
{
	struct volume *vol = inode->vol;
	struct tree_key low = tree_key(inode->ino, TUX3_ITEM_DIRENT, from);
	struct tree_key high = tree_key(inode->ino, TUX3_ITEM_DIRENT, to);
	struct load load = { .vol = vol, .dir = dir, .left = max };
	int err = tree_scan(vol, &low, &high, load_item, &load);

	*last = err ? load.last : to;
	if (err == -EIO)
		volume_warn(vol, "directory %llu has an entry that is not valid", (unsigned long long)inode->ino);
	return err < 0 ? err : 0;
}

static int dir_load_all(struct tux3_inode *inode, struct name_dir *dir)
{
	u64 evictions, last;
	int err;

	spin_lock(&dir->lock);
	evictions = dir->evictions;
	spin_unlock(&dir->lock);
	err = dir_load(inode, dir, 0, U64_MAX, U32_MAX, &last);
	if (err)
		return err;
	spin_lock(&dir->lock);
	if (evictions == dir->evictions)
		WRITE_ONCE(dir->complete, true);
	spin_unlock(&dir->lock);
	return 0;
}

static u64 dir_size(struct tux3_inode *inode)
{
	u64 size;

	spin_lock(&inode->lock);
	size = inode->attr.size;
	spin_unlock(&inode->lock);
	return size;
}

/* The entries from this one on that have its hash: *end is the one after them.  May all of them go? */
static bool chain_is_clean(struct name_entry *first, struct name_entry **end)
{
	struct name_entry *entry = first;
	bool clean = true;

	while (entry && entry->hash == first->hash) {
		clean = clean && entry_is_clean(entry);
		entry = entry_next(entry);
	}
	*end = entry;
	return clean;
}

/* Clean entries of one directory go, those of one hash together; names.lock held. */
static u64 dir_shrink(struct volume *vol, struct name_dir *dir, u64 count)
{
	struct name_entry *entry, *next, *end;
	u64 dropped = 0, seen = 0;

	if (!spin_trylock(&dir->lock))
		return 0;
	for (entry = entry_from(dir, 0); entry && dropped < count && seen++ < 4 * count; entry = end) {
		if (!chain_is_clean(entry, &end))
			continue;
		for (; entry != end; entry = next) {
			next = entry_next(entry);
			entry_drop(vol, dir, entry);
			dropped++;
		}
	}
	if (dropped) {
		WRITE_ONCE(dir->complete, false);
		dir->evictions++;
	}
	spin_unlock(&dir->lock);
	return dropped;
}

u64 name_shrink(struct volume *vol, u64 count)
{
	struct name_cache *names = &vol->names;
	u64 dropped = 0, want, got;
	struct name_dir *dir;
	u32 left;

	spin_lock(&names->lock);
	left = min_t(u64, names->dir_count, SHRINK_DIRS);
	while (dropped < count && left) {
		dir = list_first_entry(&names->dirs, struct name_dir, link);
		want = min_t(u64, count - dropped, BATCH);
		got = dir_shrink(vol, dir, want);
		dropped += got;
		if (got < want) {
			list_move_tail(&dir->link, &names->dirs);
			left--;
		}
		spin_unlock(&names->lock);
		cond_resched();
		spin_lock(&names->lock);
		left = min_t(u64, left, names->dir_count);
	}
	spin_unlock(&names->lock);
	return dropped;
}

u64 name_reclaimable(struct volume *vol)
{
	struct delta_state *delta = &vol->delta;

	return max_t(s64, atomic64_read(&vol->names.entries) - atomic64_read(&delta->changes[0]) -
		     atomic64_read(&delta->changes[1]), 0);
}

static void names_limit(struct volume *vol)
{
	s64 over = atomic64_read(&vol->names.entries) - (s64)vol->opts.names_cached;

	if (unlikely(over > 0))
		name_shrink(vol, over + BATCH);
}

/* ---- lookup ---- */

/* The entry for the name, brought into memory if need be; dir->lock held on success.  ERR_PTR. */
static struct name_entry *entry_get(struct tux3_inode *inode, const char *name, unsigned int len, bool make)
{
	struct name_dir *dir;
	struct name_entry *entry, *spare = NULL;
	u64 hash, last, evictions;
	int err;

	if (len > TUX3_NAME_MAX)
		return ERR_PTR(-ENAMETOOLONG);
	dir = dir_get(inode);
	if (!dir)
		return ERR_PTR(-ENOMEM);
	hash = name_hash(inode->vol, inode->ino, TUX3_ITEM_DIRENT, name, len);
	for (;;) {
		spin_lock(&dir->lock);
		entry = entry_find(dir, hash, name, len);
		if (!entry && dir->complete && !make) {
			spin_unlock(&dir->lock);
			entry = ERR_PTR(-ENOENT);
			break;
		}
		if (!entry && dir->complete && spare) {
			entry = entry_insert(inode->vol, dir, spare);
			spare = NULL;
		}
		if (entry)
			break;
		spin_unlock(&dir->lock);
		if (READ_ONCE(dir->complete)) {
			if (!spare)
				spare = entry_new(hash, name, len, 0, 0);
			if (!spare)
				return ERR_PTR(-ENOMEM);
			continue;
		}
		names_limit(inode->vol);
		if (dir_size(inode) <= LOAD_MAX && dir_size(inode) < inode->vol->opts.names_cached) {
			err = dir_load_all(inode, dir);
		} else {
			if (!spare)
				spare = entry_new(hash, name, len, 0, 0);
			if (!spare)
				return ERR_PTR(-ENOMEM);
			spin_lock(&dir->lock);
			evictions = dir->evictions;
			spin_unlock(&dir->lock);
			err = dir_load(inode, dir, hash, hash, U32_MAX, &last);
			spin_lock(&dir->lock);
			/* Not in memory and not dropped since it was loaded: it is absent, remember that. */
			if (!err && evictions == dir->evictions && entry_insert(inode->vol, dir, spare) == spare)
				spare = NULL;
			spin_unlock(&dir->lock);
		}
		if (err) {
			entry = ERR_PTR(err);
			break;
		}
	}
	kfree(spare);
	return entry;
}

int name_lookup(struct tux3_inode *inode, const char *name, unsigned int len, u64 *ino, u8 *type)
{
	struct name_entry *entry = entry_get(inode, name, len, false);

	if (IS_ERR(entry))
		return PTR_ERR(entry);
	*ino = entry->ino;
	*type = entry->type;
	spin_unlock(&dir_of(inode)->lock);
	return *ino ? 0 : -ENOENT;
}

bool name_is_empty(struct tux3_inode *dir)
{
	return !dir_size(dir);
}

/* ---- listing ---- */

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
	struct name_found found[BATCH];
	u64 hashes[BATCH];
	char names[BATCH * 32 + TUX3_NAME_MAX + 1];
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
	struct name_entry *entry = entry_from(dir, from);

	list->count = list->used = 0;
	while (entry && entry->hash <= to) {
		struct name_entry *after = entry_next(entry);
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
			loaded->last = HASH_MAX;
			return 0;
		}
		if (loaded->any && loaded->evictions == dir->evictions && from <= loaded->last)
			return 0;
		spin_unlock(&dir->lock);
		names_limit(inode->vol);
		spin_lock(&dir->lock);
		loaded->evictions = dir->evictions;
		spin_unlock(&dir->lock);
		err = dir_load(inode, dir, from, HASH_MAX, BATCH, &loaded->last);
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

	while (!err && *cookie <= HASH_MAX) {
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
	struct name_dir *dir = dir_get(inode);
	struct small_listing small;

	if (!dir)
		return -ENOMEM;
	listing_init(&small);
	return names_list(inode, dir, &small.list, cookie, fn, ctx);
}

/* ---- changes ---- */

/*
 * Names with one hash share an item: is there room for one more?  Those count that may be there while a delta is applied:
 * also what was removed or not committed yet.  All names with this hash are in memory when one is; dir->lock held.
 */
static bool chain_has_room(struct volume *vol, struct name_dir *dir, struct name_entry *new)
{
	struct name_entry *entry;
	u32 used = 0;

	for (entry = entry_from(dir, new->hash); entry && entry->hash == new->hash; entry = entry_next(entry))
		if (entry == new || entry->ino || !entry_is_clean(entry))
			used += sizeof(struct disk_dirent) + entry->len;
	return used <= TUX3_ITEM_MAX(vol->block_size);
}

int name_prepare(struct tux3_inode *inode, const char *name, unsigned int len, struct name_prepared *prep)
{
	struct name_change *change = kzalloc(sizeof(*change), GFP_NOFS);
	bool committed = false;
	struct name_entry *entry;
	int err = 0;

	if (!change)
		return -ENOMEM;
	for (;;) {
		entry = entry_get(inode, name, len, true);
		if (IS_ERR(entry)) {
			kfree(change);
			return PTR_ERR(entry);
		}
		if (entry->ino || chain_has_room(inode->vol, dir_of(inode), entry))
			break;
		spin_unlock(&dir_of(inode)->lock);
		/* What was removed may make room when it is gone. */
		err = committed ? -ENOSPC : delta_commit(inode->vol);
		if (err) {
			kfree(change);
			return err;
		}
		committed = true;
	}
	entry->pins++;
	prep->entry = entry;
	prep->change = change;
	prep->ino = entry->ino;
	prep->type = entry->type;
	spin_unlock(&dir_of(inode)->lock);
	return 0;
}

void name_cancel(struct tux3_inode *inode, struct name_prepared *prep)
{
	if (!prep->entry)
		return;
	spin_lock(&dir_of(inode)->lock);
	prep->entry->pins--;
	spin_unlock(&dir_of(inode)->lock);
	kfree(prep->change);
	prep->entry = NULL;
	prep->change = NULL;
}

void name_change(struct delta_op *op, struct tux3_inode *inode, struct name_prepared *prep, u64 ino, u8 type)
{
	struct name_dir *dir = dir_of(inode);
	struct name_entry *entry = prep->entry;
	struct name_change **slot = &entry->changes[op->delta & 1];

	inode_mark_dirty(op, inode, INODE_DIRTY_NAMES);
	spin_lock(&dir->lock);
	if (!*slot) {
		*slot = prep->change;
		prep->change = NULL;
		(*slot)->entry = entry;
		list_add_tail(&(*slot)->link, &dir->changed[op->delta & 1]);
		atomic64_inc(&inode->vol->delta.changes[op->delta & 1]);
	}
	(*slot)->ino = ino;
	(*slot)->type = type;
	entry->ino = ino;
	entry->type = type;
	entry->pins--;
	spin_unlock(&dir->lock);
	kfree(prep->change);
	prep->entry = NULL;
	prep->change = NULL;
}

/* ---- back end ---- */

static int name_log_change(struct tux3_inode *inode, struct name_change *change)
{
	struct name_entry *entry = change->entry;
	struct record_dirent record = {
		.dir = cpu_to_le64(inode->ino),
		.hash = cpu_to_le64(entry->hash),
		.entry = { .ino = cpu_to_le64(change->ino), .type = change->type, .len = entry->len },
	};
	int err;

	if (change->ino == entry->tree_ino && change->type == entry->tree_type) {
		if (!change->ino)
			count_add(inode->vol, TUX3_COUNT_NAMES_VANISHED, 1);
		return 0;
	}
	err = log_record(inode->vol, change->ino ? TUX3_RECORD_DIRENT_SET : TUX3_RECORD_DIRENT_DELETE, &record,
			 offsetof(struct record_dirent, entry) + sizeof(record.entry), entry->name, entry->len);
	entry->tree_ino = change->ino;
	entry->tree_type = change->type;
	return err;
}

/* Read what a batch of changes, from this one on, needs: parent pointers and entries.  Returns the end of the batch. */
static struct list_head *name_read_ahead(struct tux3_inode *inode, struct list_head *from, struct list_head *list)
{
	struct prefetch *ahead = inode->vol->ahead;
	struct list_head *end = from, *pos;
	unsigned int n;

	for (n = 0; n < NAMES_AHEAD && end != list; n++, end = end->next) {
		struct name_change *change = list_entry(end, struct name_change, link);
		struct tree_key key = tree_key(change->ino ? change->ino : change->entry->tree_ino, TUX3_ITEM_PARENT, 0);

		if (change->ino || change->entry->tree_ino)
			prefetch_add_key(ahead, &key);
	}
	for (pos = from; pos != end; pos = pos->next) {
		struct name_change *change = list_entry(pos, struct name_change, link);
		struct tree_key key = tree_key(inode->ino, TUX3_ITEM_DIRENT, change->entry->hash);

		if (change->ino || change->entry->tree_ino)
			prefetch_add_key(ahead, &key);
	}
	prefetch_run(ahead);
	return end;
}

int name_commit(struct tux3_inode *inode, u64 delta)
{
	struct name_dir *dir = dir_of(inode);
	struct list_head *list = &dir->changed[delta & 1], *pos = list->next;
	struct volume *vol = inode->vol;
	int err = 0;

	/* Without the edit lock, which then is taken for the batch. */
	while (pos != list && !err) {
		struct list_head *end = name_read_ahead(inode, pos, list);

		tree_edit_begin(vol);
		for (; pos != end && !err; pos = pos->next)
			err = name_log_change(inode, list_entry(pos, struct name_change, link));
		tree_edit_end(vol);
	}
	return err;
}

void name_done(struct tux3_inode *inode, u64 delta)
{
	struct name_dir *dir = dir_of(inode);
	struct list_head *list = &dir->changed[delta & 1];
	unsigned int n = 0;

	spin_lock(&dir->lock);
	while (!list_empty(list)) {
		struct name_change *change = list_first_entry(list, struct name_change, link);
		struct name_entry *entry = change->entry;

		list_del(&change->link);
		entry->changes[delta & 1] = NULL;
		kfree(change);
		if (!entry->ino && entry_is_clean(entry))
			entry_drop(inode->vol, dir, entry);
		if (!(++n % 64)) {		/* let lookups in */
			spin_unlock(&dir->lock);
			cond_resched();
			spin_lock(&dir->lock);
		}
	}
	spin_unlock(&dir->lock);
}

void name_dir_free(struct tux3_inode *inode)
{
	struct name_dir *dir = inode->dir;
	struct name_entry *entry, *next;

	if (!dir)
		return;
	spin_lock(&inode->vol->names.lock);
	list_del(&dir->link);
	inode->vol->names.dir_count--;
	spin_unlock(&inode->vol->names.lock);
	rbtree_postorder_for_each_entry_safe(entry, next, &dir->entries, node) {
		atomic64_dec(&inode->vol->names.entries);
		kfree(entry);
	}
	kfree(dir);
	inode->dir = NULL;
}
