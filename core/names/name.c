// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Names in memory: the entries of directories, bringing them there from the tree, dropping them, lookup.  See name.h for
 * the idea, name_internal.h for the invariants.
 */
#include "core/volume.h"
#include "core/delta/delta.h"
#include "core/format/name_hash.h"
#include "core/tree/tree.h"
#include "core/inode/inode.h"
#include "core/inode/path.h"
#include "core/names/name.h"
#include "core/format/chain.h"
#include "core/names/name_internal.h"

#define LOAD_MAX	16384u	/* directories with at most so many entries are read as a whole */
#define BATCH_MAX	64u	/* names that a CPU counts by itself */
#define SHRINK_DIRS	1024u	/* directories looked at by one call of name_shrink() */
#define SHRINK_LOOKS	4u	/* entries looked at for each that is to go */

int name_cache_init(struct volume *vol)
{
	struct name_cache *names = &vol->names;

	spin_lock_init(&names->lock);
	INIT_LIST_HEAD(&names->dirs);
	names->dir_count = 0;
	names->batch = clamp_t(u64, vol->opts.names_cached / 64 / num_possible_cpus(), 1, BATCH_MAX);
	return percpu_counter_init(&names->entries, 0, GFP_KERNEL);
}

void name_cache_exit(struct volume *vol)
{
	percpu_counter_destroy(&vol->names.entries);
}

struct name_dir *name_dir_get(struct tux3_inode *inode)
{
	struct name_dir *dir = name_dir_of(inode), *old;

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
	struct name_dir *dir = name_dir_get(inode);

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

struct name_entry *name_entry_from(struct name_dir *dir, u64 hash)
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
	percpu_counter_add_batch(&vol->names.entries, 1, vol->names.batch);
	return new;
}

void name_entry_drop(struct volume *vol, struct name_dir *dir, struct name_entry *entry)
{
	lockdep_assert_held(&dir->lock);
	rb_erase(&entry->node, &dir->entries);
	dir->count--;
	percpu_counter_add_batch(&vol->names.entries, -1, vol->names.batch);
	kfree(entry);
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
	bool bad;		/* there is an item that is not as it should be */
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
	struct chain chain = chain_of(data, len);
	const struct disk_dirent *item;
	LIST_HEAD(loaded);

	if (!load->left)
		return 1;
	while ((item = chain_next_dirent(&chain))) {
		entry = entry_new(key->offset, (const char *)item->name, item->len, le64_to_cpu(item->ino), item->type);
		if (!entry)
			break;
		list_add_tail(&entry->loading, &loaded);
	}
	if (!item && !chain.bad) {
		load_chain(load, &loaded);
		load->last = key->offset;
		return 0;
	}
	list_for_each_entry_safe(entry, next, &loaded, loading)
		kfree(entry);
	load->bad = chain.bad;
	return chain.bad ? -EIO : -ENOMEM;
}

int name_load(struct tux3_inode *inode, struct name_dir *dir, u64 from, u64 to, u32 max, u64 *last)
{
	struct volume *vol = inode->vol;
	struct tree_key low = tree_key(inode->ino, TUX3_ITEM_DIRENT, from);
	struct tree_key high = tree_key(inode->ino, TUX3_ITEM_DIRENT, to);
	struct load load = { .vol = vol, .dir = dir, .left = max };
	int err = tree_scan(vol, &low, &high, load_item, &load);

	*last = err ? load.last : to;
	if (load.bad)		/* of what cannot be read the tree has told */
		inode_warn(vol, "directory", inode->ino, " has an entry that is not valid");
	return err < 0 ? err : 0;
}

static int dir_load_all(struct tux3_inode *inode, struct name_dir *dir)
{
	u64 evictions, last;
	int err;

	spin_lock(&dir->lock);
	evictions = dir->evictions;
	spin_unlock(&dir->lock);
	err = name_load(inode, dir, 0, U64_MAX, U32_MAX, &last);
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
	size = inode_attr(inode)->size;
	spin_unlock(&inode->lock);
	return size;
}

/* The entries from this one on that have its hash: *end is the one after them.  May all of them go? */
static bool chain_is_clean(struct name_entry *first, struct name_entry **end)
{
	struct name_entry *entry = first;
	bool clean = true;

	while (entry && entry->hash == first->hash) {
		clean = clean && name_entry_is_clean(entry);
		entry = name_entry_next(entry);
	}
	*end = entry;
	return clean;
}

/*
 * Clean entries of one directory go, those of one hash together; names.lock held.  Where the last call has stopped it goes on: else
 * those that are changed would gather where it begins, and it would get no further.  *looks: less those that were looked at.
 */
static u64 dir_shrink(struct volume *vol, struct name_dir *dir, u64 count, s64 *looks)
{
	struct name_entry *entry, *next, *end;
	u64 dropped = 0, seen = 0;

	lockdep_assert_held(&vol->names.lock);
	if (!spin_trylock(&dir->lock))
		return 0;
	entry = name_entry_from(dir, dir->shrink_from);
	for (; entry && dropped < count && seen++ < SHRINK_LOOKS * count; entry = end) {
		if (!chain_is_clean(entry, &end))
			continue;
		for (; entry != end; entry = next) {
			next = name_entry_next(entry);
			name_entry_drop(vol, dir, entry);
			dropped++;
		}
	}
	*looks -= max_t(u64, seen, 1);
	dir->shrink_from = entry ? entry->hash : 0;
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
	s64 looks = SHRINK_LOOKS * min_t(u64, count, U32_MAX);
	u64 dropped = 0, want, got;
	struct name_dir *dir;
	u32 left;

	spin_lock(&names->lock);
	left = min_t(u64, names->dir_count, SHRINK_DIRS);
	while (dropped < count && left && looks > 0) {
		dir = list_first_entry(&names->dirs, struct name_dir, link);
		want = min_t(u64, count - dropped, NAME_BATCH);
		got = dir_shrink(vol, dir, want, &looks);
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

	return max_t(s64, percpu_counter_sum(&vol->names.entries) - delta_changes_sum(delta, 0) - delta_changes_sum(delta, 1), 0);
}

/* Of those that are too many, changed ones cannot go: looking through them for each name that comes would take long. */
void name_limit(struct volume *vol)
{
	s64 over = percpu_counter_read(&vol->names.entries) - (s64)vol->opts.names_cached;

	if (likely(over <= 0))
		return;
	over -= delta_changes(&vol->delta, 0) + delta_changes(&vol->delta, 1);
	name_shrink(vol, max_t(s64, over, 0) + NAME_BATCH);
}

/* ---- lookup ---- */

/* A name of which memory does not say what it is. */
struct sought {
	struct tux3_inode *inode;
	struct name_dir *dir;
	u64 hash;
	const char *name;
	u32 len;
	bool make;			/* as name_entry_get() was asked */
	struct name_entry *spare;	/* says "absent", for when that is found to be so */
};

static int sought_spare(struct sought *sought)
{
	if (!sought->spare)
		sought->spare = entry_new(sought->hash, sought->name, sought->len, 0, 0);
	return sought->spare ? 0 : -ENOMEM;
}

/* Read the names of this hash, and remember it if this one is not among them. */
static int sought_load_one(struct sought *sought)
{
	struct volume *vol = sought->inode->vol;
	struct name_dir *dir = sought->dir;
	u64 evictions, last;
	int err;

	spin_lock(&dir->lock);
	evictions = dir->evictions;
	spin_unlock(&dir->lock);
	err = name_load(sought->inode, dir, sought->hash, sought->hash, U32_MAX, &last);
	spin_lock(&dir->lock);
	/* Not in memory and not dropped since it was loaded: it is absent. */
	if (!err && evictions == dir->evictions && entry_insert(vol, dir, sought->spare) == sought->spare)
		sought->spare = NULL;
	spin_unlock(&dir->lock);
	return err;
}

/* Have sought_find() know more, unless something is dropped meanwhile. */
static int sought_load(struct sought *sought)
{
	struct volume *vol = sought->inode->vol;
	u64 size;
	int err;

	if (READ_ONCE(sought->dir->complete))
		return sought_spare(sought);
	size = dir_size(sought->inode);
	if (size <= LOAD_MAX && size < vol->opts.names_cached)
		return dir_load_all(sought->inode, sought->dir);
	err = sought_spare(sought);
	return err ? err : sought_load_one(sought);
}

/* The entry, with dir->lock held, or -ENOENT.  NULL: memory does not say. */
static struct name_entry *sought_find(struct sought *sought)
{
	struct name_dir *dir = sought->dir;
	struct name_entry *entry;

	spin_lock(&dir->lock);
	entry = entry_find(dir, sought->hash, sought->name, sought->len);
	if (!entry && dir->complete && !sought->make)
		entry = ERR_PTR(-ENOENT);
	if (!entry && dir->complete && sought->spare) {
		entry = entry_insert(sought->inode->vol, dir, sought->spare);
		sought->spare = NULL;
	}
	if (IS_ERR_OR_NULL(entry))
		spin_unlock(&dir->lock);
	return entry;
}

static struct name_entry *entry_bring(struct sought *sought)
{
	struct name_entry *entry;
	int err;

	name_limit(sought->inode->vol);		/* once: what is brought here has to stay until it is found */
	do {
		err = sought_load(sought);
		entry = err ? ERR_PTR(err) : sought_find(sought);
	} while (!entry);
	kfree(sought->spare);
	return entry;
}

struct name_entry *name_entry_get(struct tux3_inode *inode, const char *name, unsigned int len, bool make)
{
	struct name_entry *entry;
	struct name_dir *dir;
	bool complete;
	u64 hash;

	if (len > TUX3_NAME_MAX)
		return ERR_PTR(-ENAMETOOLONG);
	dir = name_dir_get(inode);
	if (!dir)
		return ERR_PTR(-ENOMEM);
	hash = name_hash(inode->vol, inode->ino, TUX3_ITEM_DIRENT, name, len);
	spin_lock(&dir->lock);
	entry = entry_find(dir, hash, name, len);
	if (likely(entry))
		return entry;
	complete = dir->complete;
	spin_unlock(&dir->lock);
	if (complete && !make)
		return ERR_PTR(-ENOENT);
	return entry_bring(&(struct sought){ .inode = inode, .dir = dir, .hash = hash, .name = name, .len = len, .make = make });
}

int name_lookup(struct tux3_inode *inode, const char *name, unsigned int len, u64 *ino, u8 *type)
{
	struct name_entry *entry = name_entry_get(inode, name, len, false);

	if (IS_ERR(entry))
		return PTR_ERR(entry);
	*ino = entry->ino;
	*type = entry->type;
	spin_unlock(&name_dir_of(inode)->lock);
	return *ino ? 0 : -ENOENT;
}

bool name_is_empty(struct tux3_inode *dir)
{
	return !dir_size(dir);
}

bool name_has_changes(struct tux3_inode *inode, u64 delta)
{
	struct name_dir *dir = name_dir_of(inode);
	bool changed = false;

	if (dir) {
		spin_lock(&dir->lock);
		changed = !list_empty(&dir->changed[delta & 1]);
		spin_unlock(&dir->lock);
	}
	return changed;
}

/* Whoever prepared a change of a name has made it or given it up, and each change is committed or given up. */
static void dir_verify_free(struct tux3_inode *inode)
{
	struct name_entry *entry;
	struct rb_node *node;

	if (likely(!inode->vol->opts.verify))
		return;
	for (node = rb_first(&inode->dir->entries); node; node = rb_next(node)) {
		entry = rb_entry(node, struct name_entry, node);
		if (!name_entry_is_clean(entry))
			volume_inconsistent(inode->vol, "directory %llu goes, but one of its names is %s",
					    (unsigned long long)inode->ino, entry->pins ? "pinned" : "changed");
	}
}

void name_dir_free(struct tux3_inode *inode)
{
	struct name_dir *dir = inode->dir;
	struct name_entry *entry, *next;

	if (!dir)
		return;
	dir_verify_free(inode);
	spin_lock(&inode->vol->names.lock);
	list_del(&dir->link);
	inode->vol->names.dir_count--;
	spin_unlock(&inode->vol->names.lock);
	rbtree_postorder_for_each_entry_safe(entry, next, &dir->entries, node) {
		percpu_counter_add_batch(&inode->vol->names.entries, -1, inode->vol->names.batch);
		kfree(entry);
	}
	kfree(dir);
	inode->dir = NULL;
}
