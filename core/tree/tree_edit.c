/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Editing the tree: items set and deleted, nodes redirected.
 *
 * Each change goes down to its leaf, plans, reserves buffers and a number of blocks for all nodes that it will make
 * (edit_reserve), and only then changes anything.  So a change that fails for want of memory, space or a
 * readable node has not happened.  One thing can go wrong later: the list of blocks to free may need
 * memory; then the change is made, its error is returned, and the block stays in use in memory.
 *
 * An error here means that the commit is aborted; readers go on with a sound tree.
 *
 * Locking: tree->sem for writing, from tree_edit_begin() to tree_edit_end().
 */
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

void tree_edit_begin(struct volume *vol)
{
	down_write(&vol->tree.sem);
	WRITE_ONCE(vol->tree.editing, true);
}

void tree_edit_end(struct volume *vol)
{
	lockdep_assert_held_write(&vol->tree.sem);
	WRITE_ONCE(vol->tree.editing, false);
	up_write(&vol->tree.sem);
}

/* ---- the parts of a change ---- */

static void edit_verify(struct volume *vol)
{
	lockdep_assert_held_write(&vol->tree.sem);
	WARN_ON_ONCE(vol->tree.snapshot_delta && vol->delta.applying <= vol->tree.snapshot_delta);
}

static void edit_start(struct tree_edit *edit, struct volume *vol, const struct node_key *key, struct tree_path *path)
{
	edit_verify(vol);
	edit->vol = vol;
	edit->key = *key;
	edit->moved = edit->reshaped = false;
	edit->spares = 0;
	edit->err = 0;
	edit->path = path;
}

int edit_open(struct tree_edit *edit, struct volume *vol, const struct node_key *key)
{
	int err;

	edit_start(edit, vol, key, tree_way(vol, key, true, &err));
	return err;
}

static void edit_drop_spares(struct tree_edit *edit)
{
	balloc_unpromise(edit->vol, edit->spares);
	while (edit->spares)
		cache_free(edit->vol, edit->spare[--edit->spares]);
}

int edit_close(struct tree_edit *edit, int err)
{
	if (edit->spares)
		edit_drop_spares(edit);
	if (edit->moved || edit->reshaped)
		tree_ways_drop(edit->vol, edit->reshaped ? NULL : edit->path);
	return err ? err : edit->err;
}

int edit_reserve(struct tree_edit *edit, u32 count)
{
	struct volume *vol = edit->vol;

	if (WARN_ON_ONCE(count > EDIT_SPARES))
		return -EIO;
	while (edit->spares < count) {
		struct node_buffer *buffer = cache_alloc(vol);
		int err = buffer ? balloc_promise(vol, 1) : -ENOMEM;

		if (err) {
			if (buffer)
				cache_free(vol, buffer);
			edit_drop_spares(edit);
			return err;
		}
		edit->spare[edit->spares++] = buffer;
	}
	return 0;
}

struct node_buffer *edit_take(struct tree_edit *edit, u32 level)
{
	struct node_buffer *buffer = edit->spare[--edit->spares];
	struct volume *vol = edit->vol;
	struct node_link link = { NODE_UNPLACED | ++vol->tree.serial, vol->delta.applying, level };

	cache_add_dirty(vol, buffer, &link);
	return buffer;
}

void edit_discard(struct tree_edit *edit, struct node_buffer *buffer)
{
	bool was_in_snapshot = !test_bit(NODE_DIRTY, &buffer->state);
	u64 addr = buffer->addr, birth = buffer->birth;
	int err;

	cache_drop(edit->vol, buffer);
	if (node_unplaced(addr)) {
		balloc_unpromise(edit->vol, 1);
		return;
	}
	err = balloc_free_node(edit->vol, addr, birth, was_in_snapshot);
	if (err && !edit->err)
		edit->err = err;
}

u32 edit_redirect_cost(const struct tree_edit *edit, u32 level)
{
	u32 nodes = 0;

	for (; level <= edit->path->top && !test_bit(NODE_DIRTY, &edit->path->node[level]->state); level++)
		nodes++;
	return nodes;
}

void edit_redirect(struct tree_edit *edit, u32 bottom)
{
	struct tree_path *path = edit->path;
	struct volume *vol = edit->vol;
	u32 level = path->top + 1;

	lockdep_assert_held_write(&edit->vol->tree.sem);
	while (level-- > bottom) {
		struct node_buffer *old = path->node[level], *new;

		if (test_bit(NODE_DIRTY, &old->state))
			continue;
		edit->moved = true;
		new = edit_take(edit, level);
		node_copy(new->data, old->data, vol->block_size);
		node_need(new, old->needed);
		atomic_inc(&new->refs);
		path->node[level] = new;
		if (level == path->top)
			tree_set_root_buffer(vol, new);
		else
			inner_set_child(path_node(path, level + 1), path->index[level + 1], new);
		edit_discard(edit, old);
		cache_put(vol, old);
		tree_count(&vol->tree.redirects);
	}
}

void edit_need_beside(struct volume *vol, const struct tree_path *path)
{
	u64 needed = READ_ONCE(path->node[0]->needed);
	struct node_key key = path->low;

	if (needed <= READ_ONCE(vol->delta.committed))
		return;
	if (path->has_low && node_key_step_down(&key))
		path_need_leaf(vol, &key, needed);
	if (path->has_high)
		path_need_leaf(vol, &path->high, needed);
}

/* ---- setting an item ---- */

struct item_set {
	struct node_key key;
	const void *data;
	u32 len;
	u32 pos;
	bool found;
};

static void leaf_apply(struct disk_node *leaf, u32 block_size, const struct item_set *set, u32 pos)
{
	if (set->found)
		leaf_replace(leaf, block_size, pos, set->data, set->len);
	else
		leaf_insert(leaf, block_size, pos, &set->key, set->data, set->len);
}

/*
 * Does the item follow, or is it, one that was set lately, as when a file or the inode table grows?  With
 * several inodes made in turn, or a name set for each, that is not always the very last one.
 */
static bool split_is_appending(struct tree_edit *edit, const struct disk_node *leaf, const struct item_set *set)
{
	struct node_key before;
	u32 i;

	if (!edit->path->has_high && set->pos + set->found == node_count(leaf))
		return true;
	if (!set->found && !set->pos)
		return false;
	before = leaf_key(leaf, set->found ? set->pos : set->pos - 1);
	for (i = 0; i < TREE_APPENDS; i++) {
		if (node_key_equal(&before, &edit->vol->tree.appends[i]))
			return true;
	}
	return false;
}

static void note_append(struct tree *tree, const struct node_key *key)
{
	tree->appends[tree->append_next] = *key;
	tree->append_next = (tree->append_next + 1) % TREE_APPENDS;
}

/* Of a new inode its later items may have come first: what begins it is not left behind alone. */
static bool split_parts_inode(const struct disk_node *leaf, const struct item_set *set)
{
	u64 ino = set->key.high >> 8;

	return !set->found && set->pos && set->pos < node_count(leaf) && leaf_key(leaf, set->pos).high >> 8 == ino &&
	       leaf_key(leaf, set->pos - 1).high >> 8 != ino;
}

/* What the first n items take, counted as if the one to be set were there.  Their data lies one below the other. */
static u32 split_bytes(const struct disk_node *leaf, u32 block_size, const struct item_set *set, u32 n)
{
	u32 there = n - (!set->found && n > set->pos), bytes = n * sizeof(struct disk_item);

	if (there)
		bytes += block_size - leaf_at(leaf, there - 1);
	if (n > set->pos)
		bytes += set->len - (set->found ? leaf_len(leaf, set->pos) : 0);
	return bytes;
}

/* In the middle by bytes: the larger side is as small as can be. */
static u32 split_middle(const struct disk_node *leaf, u32 block_size, const struct item_set *set, u32 count, u32 total)
{
	u32 low = 1, high = count;

	/* The fewest items that take half of it or more; count: all but the last one take less. */
	while (low < high) {
		u32 middle = (low + high) / 2;

		if (2 * split_bytes(leaf, block_size, set, middle) < total)
			low = middle + 1;
		else
			high = middle;
	}
	if (low > 1 && (low == count || total - split_bytes(leaf, block_size, set, low - 1) <=
					split_bytes(leaf, block_size, set, low)))
		low--;
	return low;
}

/*
 * Where to cut a leaf that has no room for the item: how many items go left, counted as if it were there.
 *
 * Both sides must fit a leaf.  Two leaves are always enough: without the item there is at most one leaf
 * full, so the smaller side has at most half of one, and an item takes less than a third.
 * When appending, the cut is right behind the item, or before it, so that what was there stays dense
 * and what comes next has a leaf nearly empty.  Else cut in the middle by bytes.
 */
static u32 split_choose(struct tree_edit *edit, const struct disk_node *leaf, const struct item_set *set)
{
	u32 block_size = edit->vol->block_size, room = node_room(block_size), count = node_count(leaf) + !set->found;
	u32 total = split_bytes(leaf, block_size, set, count), before, cut;

	if (split_is_appending(edit, leaf, set)) {
		if (set->pos + 1 == count)
			return set->pos;
		before = split_bytes(leaf, block_size, set, set->pos);
		cut = before + sizeof(struct disk_item) + set->len;
		if (cut <= room && total - cut <= room && !split_parts_inode(leaf, set))
			return set->pos + 1;
		if (set->pos && before <= room && total - before <= room)
			return set->pos;
	}
	return split_middle(leaf, block_size, set, count, total);
}

/* The leaf is DIRTY, its split reserved. */
static void edit_split_and_set(struct tree_edit *edit, const struct item_set *set)
{
	u32 block_size = edit->vol->block_size;
	u32 cut = split_choose(edit, path_node(edit->path, 0), set);
	struct node_buffer *right;

	if (cut > set->pos) {
		right = edit_split_leaf(edit, cut - !set->found);
		leaf_apply(path_node(edit->path, 0), block_size, set, set->pos);
	} else {
		right = edit_split_leaf(edit, cut);
		leaf_apply(right->data, block_size, set, set->pos - cut);
	}
	edit_link_right(edit, 0, right);
}

/*
 * The new item, first in its leaf, may be below all that is there: keep branch keys not above any key below them.  Where it
 * is not the first they are below it already.
 */
static void edit_lower_keys(const struct tree_path *path, const struct node_key *key)
{
	u32 level;

	for (level = 1; level <= path->top; level++) {
		struct disk_node *node = path_node(path, level);
		struct node_key first;

		if (path->index[level])
			continue;
		first = inner_key(node, 0);
		if (node_key_less(key, &first))
			node_key_store(&inner_branches(node)[0].key, key);
	}
}

/* The leaf is DIRTY, and has room. */
static void item_set_here(struct volume *vol, const struct tree_path *path, const struct item_set *set)
{
	if (!set->pos && !set->found)
		edit_lower_keys(path, &set->key);
	leaf_apply(path_node(path, 0), vol->block_size, set, set->pos);
}

static int edit_set(struct tree_edit *edit, struct item_set *set, bool split)
{
	u32 redirects = edit_redirect_cost(edit, 0), cost = redirects;
	int err;

	if (split) {
		err = edit_split_cost(edit, 0);
		if (err < 0)
			return err;
		cost += err;
	}
	err = edit_reserve(edit, cost);
	if (err)
		return err;
	if (redirects)
		edit_redirect(edit, 0);
	if (!split) {
		item_set_here(edit->vol, edit->path, set);
		return 0;
	}
	if (!set->pos && !set->found)
		edit_lower_keys(edit->path, &set->key);
	edit_split_and_set(edit, set);
	return 0;
}

/* Mostly its leaf is DIRTY already and has room: then nothing is needed that could fail. */
static int item_set(struct volume *vol, struct tree_path *path, struct item_set *set)
{
	const struct disk_node *leaf = path_node(path, 0);
	u32 used = node_used(leaf, vol->block_size) + set->len;
	struct tree_edit edit;
	bool grows = true;
	int err = 0;

	if (set->found) {
		u32 len = leaf_len(leaf, set->pos);

		if (len == set->len && (!len || !memcmp(leaf_data(leaf, set->pos), set->data, len)))
			return 0;
		used -= len;
		grows = set->len > len;
	} else {
		used += sizeof(struct disk_item);
	}
	if (likely(used <= node_room(vol->block_size) && test_bit(NODE_DIRTY, &path->node[0]->state))) {
		edit_verify(vol);
		item_set_here(vol, path, set);
	} else {
		edit_start(&edit, vol, &set->key, path);
		err = edit_set(&edit, set, used > node_room(vol->block_size));
		grows &= !err;
		err = edit_close(&edit, err);
	}
	if (grows)
		note_append(&vol->tree, &set->key);
	return err;
}

int tree_edit_find(struct volume *vol, const struct tree_key *key, struct tree_spot *spot)
{
	int err;

	spot->key = node_key_pack(key);
	spot->way = tree_way(vol, &spot->key, true, &err);
	if (err)
		return err;
	spot->pos = way_find(spot->way, &spot->key, &spot->found);
	spot->len = 0;
	if (spot->found) {
		const struct disk_node *leaf = path_node(spot->way, 0);

		spot->len = leaf_len(leaf, spot->pos);
		spot->data = leaf_data(leaf, spot->pos);
	}
	return 0;
}

bool tree_spot_before(const struct tree_spot *spot, struct tree_key *key, const void **data, u32 *len)
{
	const struct disk_node *leaf = path_node(spot->way, 0);
	struct node_key packed;

	if (!spot->pos)
		return false;
	packed = leaf_key(leaf, spot->pos - 1);
	*key = node_key_unpack(&packed);
	*data = leaf_data(leaf, spot->pos - 1);
	*len = leaf_len(leaf, spot->pos - 1);
	return true;
}

bool tree_spot_none_to(const struct tree_spot *spot, const struct tree_key *to)
{
	const struct disk_node *leaf = path_node(spot->way, 0);
	struct node_key last = node_key_pack(to), next;

	if (spot->pos == node_count(leaf))
		return !spot->way->has_high || node_key_less(&last, &spot->way->high);
	next = leaf_key(leaf, spot->pos);
	return node_key_less(&last, &next);
}

int tree_spot_set(struct volume *vol, struct tree_spot *spot, const void *data, u32 len)
{
	struct item_set set = { .key = spot->key, .data = data, .len = len, .pos = spot->pos, .found = spot->found };

	if (len > TUX3_ITEM_MAX(vol->block_size) || spot->key.high >> 8 > TUX3_INO_MAX)
		return -EINVAL;
	tree_count(&vol->tree.edits);
	return item_set(vol, spot->way, &set);
}

int tree_set(struct volume *vol, const struct tree_key *key, const void *data, u32 len)
{
	struct tree_spot spot;
	int err;

	if (key->ino > TUX3_INO_MAX)
		return -EINVAL;
	err = tree_edit_find(vol, key, &spot);
	return err ? err : tree_spot_set(vol, &spot, data, len);
}

/* ---- deleting items ---- */

/* Items [from, to) of the leaf, to be shown to fn and deleted. */
struct item_range {
	u32 from, to;
	bool merge;		/* what remains may be merged: the caller is not about to delete the next leaf */
	tree_item_fn fn;
	void *ctx;
};

static int edit_show_items(struct tree_edit *edit, const struct item_range *range)
{
	const struct disk_node *leaf = path_node(edit->path, 0);
	u32 pos;
	int ret;

	for (pos = range->from; range->fn && pos < range->to; pos++) {
		struct node_key here = leaf_key(leaf, pos);
		struct tree_key key = node_key_unpack(&here);

		ret = range->fn(range->ctx, &key, leaf_data(leaf, pos), leaf_len(leaf, pos));
		if (ret)
			return ret;
	}
	return 0;
}

static int edit_delete_some(struct tree_edit *edit, const struct item_range *range)
{
	u32 redirects = edit_redirect_cost(edit, 0);
	int err = redirects ? edit_reserve(edit, redirects) : 0;

	if (!err && range->fn)
		err = edit_show_items(edit, range);
	if (err)
		return err;
	if (redirects)
		edit_redirect(edit, 0);
	leaf_delete(path_node(edit->path, 0), edit->vol->block_size, range->from, range->to);
	if (range->merge)
		edit_note_underfull(edit, 0);
	return 0;
}

/* Nodes below this level lead to nothing but the leaf that goes, and go with it. */
static u32 edit_lowest_remaining(const struct tree_edit *edit)
{
	u32 level = 1;

	while (level <= edit->path->top && node_count(path_node(edit->path, level)) == 1)
		level++;
	return level;
}

/* The leaf is dropped whole, without redirecting it first. */
static int edit_delete_leaf(struct tree_edit *edit, const struct item_range *range)
{
	struct tree_path *path = edit->path;
	u32 keep = edit_lowest_remaining(edit), level;
	bool last = keep > path->top;
	int err;

	err = edit_reserve(edit, last ? 1 : edit_redirect_cost(edit, keep));
	if (!err)
		err = edit_show_items(edit, range);
	if (err)
		return err;
	edit->reshaped = true;
	edit_need_beside(edit->vol, path);
	if (last) {
		tree_set_root_buffer(edit->vol, edit_take(edit, 0));
	} else {
		edit_redirect(edit, keep);
		inner_delete(path_node(path, keep), path->index[keep]);
	}
	for (level = 0; level < keep; level++)
		edit_discard(edit, path->node[level]);
	if (!last) {
		edit_note_underfull(edit, keep);
		edit_shrink_root(edit, keep);
	}
	return 0;
}

int tree_cut(struct volume *vol, const struct tree_key *key, u32 level)
{
	struct node_key packed = node_key_pack(key);
	struct tree_path path;
	struct tree_edit edit;
	u32 keep = level, below;
	bool last;
	int err;

	if (!level || level > vol->tree.root_level)
		return -EINVAL;
	err = path_descend_to(vol, &path, &packed, level, true);
	if (err)
		return err;
	edit_start(&edit, vol, &packed, &path);
	path.index[level] = inner_find(path_node(&path, level), &packed);
	while (keep <= path.top && node_count(path_node(&path, keep)) == 1)
		keep++;
	last = keep > path.top;
	err = edit_reserve(&edit, last ? 1 : edit_redirect_cost(&edit, keep));
	if (!err) {
		edit.reshaped = true;
		if (last) {
			tree_set_root_buffer(vol, edit_take(&edit, 0));
		} else {
			edit_redirect(&edit, keep);
			inner_delete(path_node(&path, keep), path.index[keep]);
		}
		for (below = level; below < keep; below++)
			edit_discard(&edit, path.node[below]);
		if (!last)
			edit_shrink_root(&edit, keep);
	}
	err = edit_close(&edit, err);
	tree_path_put(vol, &path);
	return err;
}

static int edit_delete(struct tree_edit *edit, const struct item_range *range)
{
	u32 count = node_count(path_node(edit->path, 0));

	if (edit->path->top && !range->from && range->to == count)
		return edit_delete_leaf(edit, range);
	return edit_delete_some(edit, range);
}

int tree_spot_delete(struct volume *vol, struct tree_spot *spot)
{
	struct item_range range = { .from = spot->pos, .to = spot->pos + 1, .merge = true };
	struct tree_edit edit;

	edit_start(&edit, vol, &spot->key, spot->way);
	tree_count(&vol->tree.edits);
	return edit_close(&edit, spot->found ? edit_delete(&edit, &range) : -ENOENT);
}

int tree_delete(struct volume *vol, const struct tree_key *key)
{
	struct tree_spot spot;
	int err = tree_edit_find(vol, key, &spot);

	return err ? err : tree_spot_delete(vol, &spot);
}

/* ---- deleting a range ---- */

struct delete_range {
	struct node_key next, last;	/* what is left to look at */
	bool more;			/* there may be something in it */
	tree_item_fn fn;
	void *ctx;
};

#define RANGE_NEAR 4u

/* Behind the last item that is not above last, from this one on.  Of an inode or a file there are mostly few. */
static u32 leaf_range_end(const struct disk_node *leaf, u32 from, const struct node_key *last)
{
	u32 end = min(from + RANGE_NEAR, node_count(leaf)), pos;
	bool exact;

	for (pos = from; pos < end; pos++) {
		struct node_key here = leaf_key(leaf, pos);

		if (node_key_less(last, &here))
			return pos;
	}
	if (pos == node_count(leaf))
		return pos;
	pos = leaf_find(leaf, last, &exact);
	return pos + exact;
}

/* Delete up to max items in the leaf that next leads to.  The number, or what went wrong. */
static int delete_in_leaf(struct volume *vol, struct delete_range *del, u32 max, u32 *deleted)
{
	struct item_range range = { .fn = del->fn, .ctx = del->ctx };
	const struct disk_node *leaf;
	struct tree_edit edit;
	struct node_key next;
	bool exact;
	int err;

	*deleted = 0;
	err = edit_open(&edit, vol, &del->next);
	if (err)
		return err;
	leaf = path_node(edit.path, 0);
	range.from = way_find(edit.path, &del->next, &exact);
	range.to = leaf_range_end(leaf, range.from, &del->last);
	next = edit.path->high;
	del->more = edit.path->has_high && !node_key_less(&del->last, &next);
	if (range.to - range.from > max) {
		range.to = range.from + max;
		next = leaf_key(leaf, range.to);
		del->more = true;
	}
	/* Do not merge with a leaf that is about to be deleted from. */
	range.merge = !del->more || range.to < node_count(leaf);
	if (range.from < range.to) {
		err = edit_delete(&edit, &range);
		if (!err)
			*deleted = range.to - range.from;
	}
	del->next = next;
	return edit_close(&edit, err);
}

/* Each turn goes on behind another leaf, and none but the first is without items in the range. */
int tree_delete_range(struct volume *vol, const struct tree_key *from, const struct tree_key *to,
		      u32 max, tree_item_fn fn, void *ctx, struct tree_key *next)
{
	struct delete_range del = {
		.next = node_key_pack(from), .last = node_key_pack(to), .fn = fn, .ctx = ctx,
	};
	u32 done = 0, deleted;
	int err;

	lockdep_assert_held_write(&vol->tree.sem);
	max = min_t(u32, max, S32_MAX);
	del.more = !node_key_less(&del.last, &del.next);
	tree_count(&vol->tree.edits);
	while (del.more && done < max) {
		err = delete_in_leaf(vol, &del, max - done, &deleted);
		if (err)
			return err;
		done += deleted;
		cond_resched();
	}
	if (next) {
		/* With nothing more there, any key behind the range will do. */
		if (!del.more) {
			del.next = del.last;
			node_key_step_up(&del.next);
		}
		*next = node_key_unpack(&del.next);
	}
	return done;
}
