/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading the tree: paths from the root to a leaf, lookups and scans.
 *
 * path_descend() is the one way down, for readers and edits alike; it checks that the keys of each node
 * lie where its parent says.  A reader (struct tree_read) goes down with sem held for reading; where a
 * node is not in memory it lets go of sem, reads the node into the cache and starts again at the root.
 * What it reads without sem may be a block that an edit has meanwhile freed, so a failure means something
 * only if the next start comes to the same link: no other node ever has it.  The READ_ATTEMPTS-th start reads
 * with sem held, which ends any race with evictions or edits.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

/* More than enough to bring in every node of a path one by one. */
#define READ_ATTEMPTS (2 * (TUX3_MAX_LEVEL + 1))

void tree_forget_appends(struct volume *vol)
{
	memset(vol->tree.appends, 0, sizeof(vol->tree.appends));
	vol->tree.append_next = 0;
}

void tree_init(struct volume *vol)
{
	struct tree *tree = &vol->tree;

	init_rwsem(&tree->sem);
	tree->root_addr = tree->root_birth = 0;
	tree->root_level = 0;
	INIT_LIST_HEAD(&tree->dirty);
	tree->dirty_count = 0;
	tree->unplaced = 0;
	tree->serial = 0;
	INIT_LIST_HEAD(&tree->failed);
	tree->snapshot_delta = 0;
	tree_ahead_init(tree);
	tree_forget_appends(vol);
	tree->underfull_count = 0;
	tree->must_look = false;
	atomic64_set(&tree->trusted, 0);
	tree_ways_init(tree);
	atomic64_set(&tree->edits, 0);
	atomic64_set(&tree->redirects, 0);
	atomic64_set(&tree->splits, 0);
	atomic64_set(&tree->merges, 0);
}

void tree_set_root(struct volume *vol, u64 addr, u64 birth, u32 level)
{
	vol->tree.root_addr = addr;
	vol->tree.root_birth = birth;
	WRITE_ONCE(vol->tree.root_level, level);	/* space.c reads it without the lock */
}

struct node_link tree_root_link(const struct tree *tree)
{
	return (struct node_link){ tree->root_addr, tree->root_birth, tree->root_level };
}

u32 tree_root_branches(struct volume *vol, bool read)
{
	struct node_buffer *root;
	struct node_link link;
	char why[NODE_WHY_MAX];
	u32 branches = 0;

	down_read(&vol->tree.sem);
	link = tree_root_link(&vol->tree);
	root = cache_peek(vol, &link);
	if (root)
		branches = node_count(root->data);
	up_read(&vol->tree.sem);
	if (!root && read) {
		root = cache_get(vol, &link, why, sizeof(why));
		if (IS_ERR(root))	/* who needs it will say so */
			return 0;
		branches = node_count(root->data);
	}
	if (root)
		cache_put(vol, root);
	return link.level ? branches : 0;
}

/* ---- paths ---- */

bool node_in_range(const struct disk_node *node, const struct node_key *low, const struct node_key *high)
{
	struct node_key first, last;

	if (!node_count(node))
		return false;
	first = node_first_key(node);
	if (node_key_less(&first, low))
		return false;
	if (!high)
		return true;
	last = node_last_key(node);
	return node_key_less(&last, high);
}

void tree_path_put(struct volume *vol, struct tree_path *path)
{
	for (; path->bottom <= path->top; path->bottom++)
		cache_put(vol, path->node[path->bottom]);
}

static void tell_unreadable(struct volume *vol, const struct node_link *link, const char *why)
{
	volume_warn(vol, "cannot read the tree node at block %llu (level %u): %s", link->addr, link->level, why);
	WRITE_ONCE(vol->tree.must_look, true);
}

/* Bring the node into path->node[link->level]. */
static int path_load(struct volume *vol, struct tree_path *path, const struct node_link *link, bool read)
{
	struct node_buffer *buffer = cache_peek(vol, link);
	char why[NODE_WHY_MAX];

	if (!buffer) {
		if (!read) {
			path->miss = *link;
			return PATH_MISS;
		}
		count_add(vol, TUX3_COUNT_READS_LOCKED, 1);
		buffer = cache_get(vol, link, why, sizeof(why));
		if (IS_ERR(buffer)) {
			tell_unreadable(vol, link, why);
			return PTR_ERR(buffer);
		}
	}
	if (unlikely(READ_ONCE(vol->cache.keeping)))
		cache_keep_node(vol, buffer);
	path->node[link->level] = buffer;
	path->bottom = link->level;
	return 0;
}

/* Down to this level; of the node there no branch is chosen. */
int path_descend_to(struct volume *vol, struct tree_path *path, const struct node_key *key, u32 level, bool read)
{
	struct node_link link = tree_root_link(&vol->tree);
	struct node_key low = { 0, 0 };
	const struct disk_node *node;
	u32 at;
	int err;

	lockdep_assert_held(&vol->tree.sem);
	path->top = link.level;
	path->bottom = link.level + 1;
	path->has_low = path->has_high = false;
	path->low = low;
	path->high = NODE_KEY_MAX;
	if (link.level > TUX3_MAX_LEVEL) {
		volume_warn(vol, "the root of the tree, block %llu, cannot have level %u",
			    link.addr, link.level);
		return -EIO;
	}
	for (;;) {
		err = path_load(vol, path, &link, read);
		if (err)
			break;
		node = path_node(path, link.level);
		if (link.level < path->top && !node_in_range(node, &low, path->has_high ? &path->high : NULL)) {
			volume_warn(vol, "the tree node at block %llu (level %u) has keys outside of the range that its parent at block %llu gives it",
				    link.addr, link.level, path->node[link.level + 1]->addr);
			err = -EIO;
			break;
		}
		if (link.level == level)
			return 0;
		at = inner_find(node, key);
		path->index[link.level] = at;
		low = inner_key(node, at);
		if (at) {
			path->low = low;
			path->has_low = true;
		}
		if (at + 1 < node_count(node)) {
			path->high = inner_key(node, at + 1);
			path->has_high = true;
		}
		link = inner_link(node, at);
	}
	tree_path_put(vol, path);
	return err;
}

int path_descend(struct volume *vol, struct tree_path *path, const struct node_key *key, bool read)
{
	return path_descend_to(vol, path, key, 0, read);
}

/* ---- one reading operation ---- */

struct tree_read {
	struct volume *vol;
	bool edit;			/* the caller holds sem for writing */
	struct node_key to;		/* it goes on up to there, */
	u32 window;			/* and what is missing is read so many nodes at a time */
	u32 attempts;
	u64 needed;			/* the nodes of the way stay until this delta is committed; 0: they need not */
	struct node_buffer *fetched;	/* keeps the node just read in the cache */
	bool failed;			/* that was what could not be read last: */
	struct node_link bad;
	char why[NODE_WHY_MAX];
	struct tree_path path;
};

static void read_begin(struct tree_read *read, struct volume *vol, bool edit)
{
	read->vol = vol;
	read->edit = edit;
	read->window = 1;
	read->attempts = 0;
	read->needed = 0;
	read->fetched = NULL;
	read->failed = false;
}

static void read_end(struct tree_read *read)
{
	if (read->fetched)
		cache_put(read->vol, read->fetched);
	read->fetched = NULL;
}

static void tree_read_lock(struct tree_read *read)
{
	if (!read->edit)
		down_read(&read->vol->tree.sem);
}

static void tree_read_unlock(struct tree_read *read)
{
	if (!read->edit)
		up_read(&read->vol->tree.sem);
}

/* Has the way led again to what could not be read?  A disk may try that for seconds: it is not asked twice. */
static bool read_is_bad(const struct tree_read *read)
{
	return read->failed && read->path.miss.addr == read->bad.addr && read->path.miss.birth == read->bad.birth &&
	       read->path.miss.level == read->bad.level;
}

static void path_need(struct tree_path *path, u64 delta)
{
	u32 level;

	for (level = path->bottom; level <= path->top; level++)
		node_need(path->node[level], delta);
}

bool path_need_leaf(struct volume *vol, const struct node_key *key, u64 delta)
{
	struct tree_path path;

	if (path_descend(vol, &path, key, false))
		return false;
	path_need(&path, delta);
	tree_path_put(vol, &path);
	return true;
}

/* With read_lock.  0, PATH_MISS (then read_fetch), -errno. */
static int read_descend(struct tree_read *read, const struct node_key *key)
{
	int err = path_descend(read->vol, &read->path, key, read->edit || read->attempts >= READ_ATTEMPTS);

	if (!err && read->needed)
		path_need(&read->path, read->needed);
	if (err != PATH_MISS || likely(!read_is_bad(read)))
		return err;
	tell_unreadable(read->vol, &read->bad, read->why);
	return -EIO;
}

/* Without lock: read what was missing, and what is likely to be missed next. */
static int read_fetch(struct tree_read *read)
{
	int err;

	read_end(read);
	read->attempts++;
	read->fetched = ahead_get(read->vol, &read->path, &read->to, &read->window, read->why, sizeof(read->why));
	if (!IS_ERR(read->fetched))
		return 0;
	err = PTR_ERR(read->fetched);
	read->fetched = NULL;
	read->failed = err == -EIO;
	read->bad = read->path.miss;
	if (err != -EIO)
		read->attempts = READ_ATTEMPTS;
	return err;
}

/* Go down to key's leaf and return 0 with read_lock held, or an error without. */
static int read_leaf(struct tree_read *read, const struct node_key *key)
{
	int err;

	for (;;) {
		tree_read_lock(read);
		err = read_descend(read, key);
		if (!err)
			return 0;
		tree_read_unlock(read);
		if (err != PATH_MISS)
			return err;
		read_fetch(read);
	}
}

static void read_leaf_done(struct tree_read *read)
{
	tree_path_put(read->vol, &read->path);
	tree_read_unlock(read);
	read_end(read);
}

/* ---- lookups ---- */

static int leaf_copy_out(const struct disk_node *leaf, u32 pos, void *data, u32 size)
{
	u32 len = leaf_len(leaf, pos);

	if (size && len)
		memcpy(data, leaf_data(leaf, pos), min(size, len));
	return len;
}

static int lookup(struct volume *vol, const struct tree_key *key, void *data, u32 size, const struct tree_key *to, bool *one_leaf)
{
	struct node_key packed = node_key_pack(key), last;
	struct tree_read read;
	bool found;
	u32 pos;
	int ret;

	read_begin(&read, vol, false);
	ret = read_leaf(&read, &packed);
	if (ret) {
		read_end(&read);
		return ret;
	}
	pos = leaf_find(path_node(&read.path, 0), &packed, &found);
	ret = found ? leaf_copy_out(path_node(&read.path, 0), pos, data, size) : -ENOENT;
	if (to) {
		last = node_key_pack(to);
		*one_leaf = path_leads(&read.path, &last);
	}
	read_leaf_done(&read);
	return ret;
}

int tree_lookup(struct volume *vol, const struct tree_key *key, void *data, u32 size)
{
	return lookup(vol, key, data, size, NULL, NULL);
}

int tree_lookup_first(struct volume *vol, const struct tree_key *key, void *data, u32 size, const struct tree_key *to,
		      bool *one_leaf)
{
	*one_leaf = false;
	return lookup(vol, key, data, size, to, one_leaf);
}

int tree_edit_lookup(struct volume *vol, const struct tree_key *key, void *data, u32 size)
{
	struct node_key packed = node_key_pack(key);
	struct tree_path *way;
	bool found;
	u32 pos;
	int err;

	lockdep_assert_held_write(&vol->tree.sem);
	way = tree_way(vol, &packed, true, &err);
	if (!way)
		return err;
	pos = way_find(way, &packed, &found);
	return found ? leaf_copy_out(path_node(way, 0), pos, data, size) : -ENOENT;
}

/*
 * With read_lock.  The item before at is in the leaf that at leads to, or else the last one of the leaf
 * before that: no other way leads to keys below path.low.  A length, PATH_MISS, -errno.
 */
static int find_before(struct tree_read *read, const struct node_key *at, const struct node_key *from,
		       struct node_key *found, void *data, u32 size, int *len)
{
	const struct disk_node *leaf;
	struct node_key key = *at;
	u32 turn, pos;
	bool exact;
	int err;

	for (turn = 0; turn < 2; turn++) {
		err = read_descend(read, &key);
		if (err)
			return err;
		leaf = path_node(&read->path, 0);
		pos = leaf_find(leaf, &key, &exact) + exact;
		if (pos) {
			*found = leaf_key(leaf, pos - 1);
			err = -ENOENT;
			if (!node_key_less(found, from)) {
				*len = leaf_copy_out(leaf, pos - 1, data, size);
				err = 0;
			}
			tree_path_put(read->vol, &read->path);
			return err;
		}
		tree_path_put(read->vol, &read->path);
		if (!read->path.has_low)
			break;
		key = read->path.low;
		if (!node_key_step_down(&key) || node_key_less(&key, from))
			break;
	}
	return -ENOENT;
}

int tree_lookup_before(struct volume *vol, const struct tree_key *at, const struct tree_key *from,
		       struct tree_key *found, void *data, u32 size)
{
	struct node_key high = node_key_pack(at), low = node_key_pack(from), key = high;
	struct tree_read read;
	int err, len = 0;

	read_begin(&read, vol, false);
	for (;;) {
		tree_read_lock(&read);
		err = find_before(&read, &high, &low, &key, data, size, &len);
		tree_read_unlock(&read);
		if (err != PATH_MISS)
			break;
		read_fetch(&read);
	}
	read_end(&read);
	if (err)
		return err;
	*found = node_key_unpack(&key);
	return len;
}

int tree_look(struct volume *vol, const struct tree_key *key)
{
	int len = tree_lookup(vol, key, NULL, 0);

	return len == -ENOENT ? 0 : min(len, 0);
}

int tree_look_before(struct volume *vol, const struct tree_key *at)
{
	struct tree_key first = tree_key(0, 0, 0), found;
	int len = tree_lookup_before(vol, at, &first, &found, NULL, 0);

	return len == -ENOENT ? 0 : min(len, 0);
}

static struct node_buffer *peek_needed(struct tree_read *read, const struct disk_node *parent, u32 pos)
{
	struct node_link link = inner_link(parent, pos);
	struct node_buffer *buffer = cache_peek(read->vol, &link);

	if (buffer)
		node_need(buffer, read->needed);
	return buffer;
}

/* With read_lock: the leaf behind this one, or before it, stays, too, if it is in memory; or there is none. */
static bool neighbour_stays(struct tree_read *read, bool behind)
{
	struct tree_path *path = &read->path;
	struct node_key key = behind ? path->high : path->low;
	struct node_buffer *buffer;
	u32 pos;

	if (behind ? !path->has_high : !path->has_low || !node_key_step_down(&key))
		return true;
	pos = path->index[1];
	if (behind ? pos + 1 == node_count(path_node(path, 1)) : !pos)		/* below another node */
		return path_need_leaf(read->vol, &key, read->needed);
	buffer = peek_needed(read, path_node(path, 1), behind ? pos + 1 : pos - 1);
	if (buffer)
		cache_put(read->vol, buffer);
	return buffer;
}

#define LOOK_AHEAD 8u		/* leaves */

/*
 * With read_lock, for who goes from leaf to leaf; this one and those beside it stay.  So do those that come next, as far as they
 * are in memory.  *high: where the last one ends that has the next one stay, too.
 */
static void look_ahead(struct tree_read *read, struct node_key *high)
{
	const struct disk_node *parent = path_node(&read->path, 1);
	u32 pos = read->path.index[1] + 1, end = min(pos + LOOK_AHEAD, node_count(parent));
	struct node_buffer *buffer = pos < end ? peek_needed(read, parent, pos) : NULL, *next;

	for (; buffer; buffer = next, pos++) {
		next = pos + 1 < end ? peek_needed(read, parent, pos + 1) : NULL;
		if (next) {
			struct node_key low = *high, after = inner_key(parent, pos + 1);

			if (node_in_range(buffer->data, &low, &after)) {
				*high = after;
			} else {
				cache_put(read->vol, next);
				next = NULL;
			}
		}
		cache_put(read->vol, buffer);
	}
}

static bool was_looked_before(struct tree_read *read)
{
	struct node_key before = read->path.low;

	return read->path.has_low && node_key_step_down(&before) && looked_has(read->vol, read->needed, &before);
}

static int look_at(struct volume *vol, const struct node_key *key, u64 delta)
{
	struct tree_read read;
	int err;

	read_begin(&read, vol, false);
	read.needed = delta;
	err = read_leaf(&read, key);
	if (err)
		read_end(&read);
	else
		read_leaf_done(&read);
	return err;
}

/*
 * The leaf of first, and those beside it, where they are in memory.  *both: last is in the same leaf.  An item that goes takes the
 * leaf along if it is the only one; so if there is none before it the leaf is read that gets the range then: the one before, but
 * behind the first one below a node the next one (inner_find()).  The root directory's attributes do not go: in a small tree all
 * that is of the volume is before them, in the same leaf.
 */
static int look_leaf(struct volume *vol, const struct node_key *first, const struct node_key *last, const struct tree_look *look,
		     bool *both)
{
	bool before_stays, behind_stays, found, only = false, is_first;
	struct node_key root = node_key_pack(&(struct tree_key){ TUX3_INO_ROOT, TUX3_ITEM_ATTR, 0 });
	const struct tree_path *path;
	struct node_key key, high;
	struct tree_read read;
	int err;

	read_begin(&read, vol, false);
	read.needed = look->delta;
	err = read_leaf(&read, first);
	if (err) {
		read_end(&read);
		return err;
	}
	path = &read.path;
	*both = path_leads(path, last);
	before_stays = neighbour_stays(&read, false);
	behind_stays = neighbour_stays(&read, true);
	if (look->goes && !(before_stays && behind_stays))
		only = !leaf_find(path_node(path, 0), first, &found) && !path_leads(path, &root);
	is_first = path->top && !path->index[1];
	high = path->high;
	if (before_stays && behind_stays && was_looked_before(&read))
		look_ahead(&read, &high);
	read_leaf_done(&read);		/* the ends of its range are still there */
	key = path->low;
	if (!before_stays && only && node_key_step_down(&key)) {
		err = look_at(vol, &key, look->delta);
		before_stays = !err;
	}
	if (!err && !behind_stays && only && is_first) {
		err = look_at(vol, &path->high, look->delta);
		behind_stays = !err;
	}
	/* Who looks for the next delta, too, as an fsync does, would have others forget what they know of this one. */
	if (before_stays && behind_stays && look->delta <= READ_ONCE(vol->delta.front))
		looked_add(vol, look->delta, &path->low, &high);
	return err;
}

int tree_look_for(struct volume *vol, const struct tree_key *first, const struct tree_key *last, const struct tree_look *look)
{
	struct node_key from = node_key_pack(first), to = node_key_pack(last);
	bool both = node_key_equal(&from, &to);
	int err = 0;

	if (!looked_has(vol, look->delta, &from))
		err = look_leaf(vol, &from, &to, look, &both);
	if (!err && !both && !looked_has(vol, look->delta, &to))
		err = look_leaf(vol, &to, &to, look, &both);
	return err;
}

u64 tree_look_begin(struct volume *vol)
{
	return unlikely(READ_ONCE(vol->tree.must_look)) ? READ_ONCE(vol->delta.front) : 0;
}

bool tree_look_holds(struct volume *vol, u64 looked, u64 delta)
{
	atomic64_t *trusted = &vol->tree.trusted;
	u64 old;

	if (looked)
		return looked == delta;
	while ((old = atomic64_read(trusted)) < delta)
		atomic64_cmpxchg(trusted, old, delta);
	smp_mb();	/* pairs with cache_may_evict(): it sees this, or we see that nodes leave */
	return !READ_ONCE(vol->tree.must_look);
}

int tree_lookup_before_now(struct volume *vol, const struct tree_key *at, const struct tree_key *from,
			   struct tree_key *found, void *data, u32 size)
{
	struct node_key high = node_key_pack(at), low = node_key_pack(from), key = high;
	struct tree_read read;
	int err, len = 0;

	if (!down_read_trylock(&vol->tree.sem))
		return -EAGAIN;
	read_begin(&read, vol, false);
	err = find_before(&read, &high, &low, &key, data, size, &len);
	up_read(&vol->tree.sem);
	if (err)
		return err == PATH_MISS ? -EAGAIN : err;
	*found = node_key_unpack(&key);
	return len;
}

/* See find_before(). */
int tree_edit_lookup_before(struct volume *vol, const struct tree_key *at, const struct tree_key *from,
			    struct tree_key *found, void *data, u32 size)
{
	struct node_key key = node_key_pack(at), low = node_key_pack(from), here;
	struct tree_path *way;
	u32 turn, pos;
	bool exact;
	int err;

	lockdep_assert_held_write(&vol->tree.sem);
	for (turn = 0; turn < 2; turn++) {
		way = tree_way(vol, &key, true, &err);
		if (!way)
			return err;
		pos = way_find(way, &key, &exact) + exact;
		if (pos) {
			here = leaf_key(path_node(way, 0), pos - 1);
			if (node_key_less(&here, &low))
				return -ENOENT;
			*found = node_key_unpack(&here);
			return leaf_copy_out(path_node(way, 0), pos - 1, data, size);
		}
		if (!way->has_low)
			break;
		key = way->low;
		if (!node_key_step_down(&key) || node_key_less(&key, &low))
			break;
	}
	return -ENOENT;
}

/* ---- scans ---- */

/* Call fn for the items of one leaf that are in the range. */
static int scan_leaf(const struct disk_node *leaf, const struct node_key *from, const struct node_key *to,
		     tree_item_fn fn, void *ctx)
{
	u32 count = node_count(leaf), pos;
	bool exact;
	int ret;

	for (pos = leaf_find(leaf, from, &exact); pos < count; pos++) {
		struct node_key here = leaf_key(leaf, pos);
		struct tree_key key = node_key_unpack(&here);

		if (node_key_less(to, &here))
			break;
		ret = fn(ctx, &key, leaf_data(leaf, pos), leaf_len(leaf, pos));
		if (ret)
			return ret;
	}
	return 0;
}

/* Each turn of the loop goes on behind another leaf, none of which is empty. */
static int scan(struct volume *vol, const struct tree_key *from, const struct tree_key *to,
		tree_item_fn fn, void *ctx, bool edit)
{
	struct node_key next = node_key_pack(from), last = node_key_pack(to);
	struct tree_read read = { .window = 1 };
	bool more = true;
	int ret = 0;

	while (more && !ret && !node_key_less(&last, &next)) {
		u32 window = read.window;

		read_begin(&read, vol, edit);
		read.to = last;
		read.window = window;
		ret = read_leaf(&read, &next);
		if (ret) {
			read_end(&read);
			break;
		}
		ret = scan_leaf(path_node(&read.path, 0), &next, &last, fn, ctx);
		more = read.path.has_high;
		next = read.path.high;
		read_leaf_done(&read);
		cond_resched();
	}
	return ret;
}

int tree_scan(struct volume *vol, const struct tree_key *from, const struct tree_key *to,
	      tree_item_fn fn, void *ctx)
{
	return scan(vol, from, to, fn, ctx, false);
}

int tree_edit_scan(struct volume *vol, const struct tree_key *from, const struct tree_key *to,
		   tree_item_fn fn, void *ctx)
{
	lockdep_assert_held_write(&vol->tree.sem);
	return scan(vol, from, to, fn, ctx, true);
}

bool tree_leaf_of(struct volume *vol, const struct tree_key *from, const struct tree_key *to, struct node_key *low)
{
	struct node_key first = node_key_pack(from), last = node_key_pack(to);
	struct tree_path path;
	bool found, one = false;

	down_read(&vol->tree.sem);
	if (!path_descend(vol, &path, &first, false)) {
		*low = path.low;
		one = path_leads(&path, &last) &&
		      (from->type != TUX3_ITEM_EXTENT || leaf_find(path_node(&path, 0), &first, &found));
		tree_path_put(vol, &path);
	}
	up_read(&vol->tree.sem);
	return one;
}

bool tree_need(struct volume *vol, const struct tree_key *first, const struct tree_key *last, u64 delta)
{
	struct node_key key = node_key_pack(first), end = node_key_pack(last);
	struct tree_path path;
	bool there, more, found;
	u32 leaves = 0;

	down_read(&vol->tree.sem);
	there = !path_descend(vol, &path, &key, false);
	if (there) {	/* what is before may be in another leaf though the range of this one begins earlier */
		if (path.has_low && !leaf_find(path_node(&path, 0), &key, &found))
			key = path.low;
		tree_path_put(vol, &path);
	}
	node_key_step_down(&key);
	do {
		there = !path_descend(vol, &path, &key, false);
		more = there && path.has_high && !node_key_less(&end, &path.high);
		key = path.high;
		if (there) {
			path_need(&path, delta);
			tree_path_put(vol, &path);
		}
	} while (more && ++leaves < TREE_NEED_MAX);
	up_read(&vol->tree.sem);
	return there && !more;
}

int tree_scan_leaf(struct volume *vol, const struct tree_key *from, const struct tree_key *to, tree_item_fn fn, void *ctx,
		   bool *more, struct tree_key *next)
{
	struct node_key first = node_key_pack(from), last = node_key_pack(to);
	struct tree_read read;
	int ret;

	read_begin(&read, vol, false);
	ret = read_leaf(&read, &first);
	*more = read.path.has_high;
	*next = node_key_unpack(&read.path.high);
	if (ret) {
		read_end(&read);
		return ret;
	}
	if (fn)
		ret = scan_leaf(path_node(&read.path, 0), &first, &last, fn, ctx);
	read_leaf_done(&read);
	cond_resched();
	return ret;
}

static int skip_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct tree_skip *skip = ctx;

	if (!skip->left) {
		skip->next = key->offset;
		return 1;
	}
	skip->left--;
	return 0;
}

int tree_skip(struct volume *vol, const struct tree_key *from, const struct tree_key *to, struct tree_skip *skip)
{
	return scan(vol, from, to, skip_item, skip, false);
}

void tree_prefetch(struct volume *vol, const struct tree_key *key)
{
	struct node_key packed = node_key_pack(key);
	struct tree_read read;
	int err;

	read_begin(&read, vol, false);
	do {
		tree_read_lock(&read);
		err = path_descend(vol, &read.path, &packed, false);
		if (!err)
			tree_path_put(vol, &read.path);
		tree_read_unlock(&read);
	} while (err == PATH_MISS && read.attempts < READ_ATTEMPTS && !read_fetch(&read));
	read_end(&read);
}
