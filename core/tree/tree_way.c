// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Ways through the tree that are kept from edit to edit.
 *
 * A commit goes through inodes one after the other, and what belongs together lies together: its next item is mostly in
 * the leaf of the one before it, or of the one before that (an entry of the directory, then items of the new inode).  So
 * the last few ways from the root down to a leaf are kept, with the range of keys that lead there and with
 * the place in the leaf; a key in that range needs no descent.  Where it leads elsewhere, one of the ways mostly has the node
 * above the leaf, as when names of a directory are set in any order: then it goes on from there.
 *
 * Invariants
 *  1. A way that is kept is what path_descend() would find: same nodes, same branches, and no narrower range can be told.
 *  2. Only edits change what ways lead over, and each edit sees to the ways when it is over (edit_close): one that
 *     redirected nodes has brought its own way up to date and drops the others; one that split, merged or dropped nodes
 *     drops all.  Keys of first branches that are lowered belong to no range.
 *  3. The nodes of a way are referenced, hence not evicted.  They may become FLUSHING or CLEAN meanwhile: edits ask for that.
 *
 * Used by who edits, with tree->sem for writing (dropping, and looking where they lead: by the back end, or when nobody else is
 * there: only it edits).  Ways live on
 * while sem is given to readers, and until tree_edit_leave(), at the end of a commit.
 */
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

static bool way_kept(const struct tree_path *way)
{
	return !way->bottom;
}

static inline bool way_leads(const struct tree_path *way, const struct node_key *key)
{
	return way_kept(way) && path_leads(way, key);
}

static void way_forget(struct tree_path *way)
{
	way->top = 0;
	way->bottom = 1;
}

void tree_ways_init(struct tree *tree)
{
	u32 i;

	for (i = 0; i < TREE_WAYS; i++)
		way_forget(&tree->ways[i]);
	tree->way_last = tree->way_before = tree->way_victim = 0;
}

void tree_ways_drop(struct volume *vol, const struct tree_path *but)
{
	struct tree *tree = &vol->tree;
	u32 i;

	for (i = 0; i < TREE_WAYS; i++) {
		struct tree_path *way = &tree->ways[i];

		if (way == but || !way_kept(way))
			continue;
		tree_path_put(vol, way);
		way_forget(way);
	}
}

void tree_edit_leave(struct volume *vol)
{
	tree_ways_drop(vol, NULL);
	cache_keep_no_more(vol);
}

static void way_use(struct tree *tree, u32 i)
{
	tree->way_before = tree->way_last;
	tree->way_last = i;
}

/* Round about, but not the one that was just used: it may be wanted in turns with the new one. */
static struct tree_path *way_victim(struct tree *tree)
{
	u32 i;

	for (i = 0; i < TREE_WAYS; i++) {
		if (!way_kept(&tree->ways[i]))
			break;
	}
	if (i == TREE_WAYS) {
		if (tree->way_victim == tree->way_last)
			tree->way_victim = (tree->way_victim + 1) % TREE_WAYS;
		i = tree->way_victim;
		tree->way_victim = (i + 1) % TREE_WAYS;
	}
	way_use(tree, i);
	return &tree->ways[i];
}

/*
 * The branch to key in the node above the leaf of a way: true if it is known to lead there, and the range of the branch is that
 * of the leaf.  Of the first and the last branch it is not: their ranges end where those of the node do.
 */
static bool way_branch(const struct tree_path *way, const struct node_key *key, u32 *at)
{
	const struct disk_node *node;
	struct node_key first, last;
	u32 count;

	if (!way_kept(way) || !way->top)
		return false;
	node = path_node(way, 1);
	count = node_count(node);
	if (count < 3)
		return false;
	first = inner_key(node, 1);
	last = inner_key(node, count - 1);
	if (node_key_less(key, &first) || !node_key_less(key, &last))
		return false;
	*at = inner_find(node, key);
	return true;
}

/* The upper nodes of a way that is not kept become those of another. */
static void way_share(struct tree_path *way, const struct tree_path *other)
{
	u32 level;

	way->top = other->top;
	for (level = 1; level <= other->top; level++) {
		way->node[level] = other->node[level];
		way->index[level] = other->index[level];
		atomic_inc(&way->node[level]->refs);
	}
	way->bottom = 1;
}

/* Go to the leaf of key from the node above it, where another way has gone; false: from the root. */
static bool way_branch_off(struct volume *vol, struct tree_path *way, const struct node_key *key)
{
	struct tree *tree = &vol->tree;
	const struct tree_path *other;
	const struct disk_node *node;
	struct node_buffer *leaf;
	struct node_key low, high;
	struct node_link link;
	u32 i, at;

	/* Mostly its own last one. */
	other = way;
	for (i = 0; !way_branch(other, key, &at); other = &tree->ways[i++])
		if (i == TREE_WAYS)
			return false;
	node = path_node(other, 1);
	link = inner_link(node, at);
	low = inner_key(node, at);
	high = inner_key(node, at + 1);
	leaf = cache_peek(vol, &link);
	if (!leaf)
		return false;
	if (!node_in_range(leaf->data, &low, &high)) {
		cache_put(vol, leaf);
		return false;
	}
	if (way_kept(way) && way->top && way->node[1] == other->node[1]) {
		cache_put(vol, way->node[0]);
	} else {
		if (way_kept(way))
			tree_path_put(vol, way);
		way_share(way, other);
	}
	way->node[0] = leaf;
	way->bottom = 0;
	way->index[0] = 0;
	way->index[1] = at;
	way->low = low;
	way->high = high;
	way->has_low = way->has_high = true;
	return true;
}

struct tree_path *tree_way(struct volume *vol, const struct node_key *key, bool read, int *err)
{
	struct tree *tree = &vol->tree;
	struct tree_path *way = &tree->ways[tree->way_last];
	u32 i;

	lockdep_assert_held_write(&tree->sem);
	*err = 0;
	if (likely(way_leads(way, key)))
		return way;
	/* Mostly two are used in turns. */
	way = &tree->ways[tree->way_before];
	if (way_leads(way, key)) {
		swap(tree->way_last, tree->way_before);
		return way;
	}
	for (i = 0; i < TREE_WAYS; i++) {
		way = &tree->ways[i];
		if (way_leads(way, key)) {
			way_use(tree, i);
			return way;
		}
	}
	way = way_victim(tree);
	if (way_branch_off(vol, way, key))
		return way;
	if (way_kept(way))
		tree_path_put(vol, way);
	*err = path_descend(vol, way, key, read);
	if (*err) {
		way_forget(way);
		return NULL;
	}
	way->index[0] = 0;
	return way;
}

bool tree_edit_reach(struct volume *vol, const struct tree_key *key)
{
	struct node_key packed = node_key_pack(key);
	int err;

	lockdep_assert_held_write(&vol->tree.sem);
	return tree_way(vol, &packed, false, &err);
}

/* Of the two ways where edits went last, the one whose leaf has both keys; or NULL.  An edit is to find it there later, too. */
static const struct tree_path *way_near(struct volume *vol, const struct node_key *first, const struct node_key *last)
{
	const struct tree_path *way = &vol->tree.ways[vol->tree.way_last];
	u32 level;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!way_leads(way, first))
		way = &vol->tree.ways[vol->tree.way_before];
	if (!way_leads(way, first) || !path_leads(way, last))
		return NULL;
	for (level = 0; level <= way->top; level++)
		cache_keep_node(vol, way->node[level]);
	return way;
}

bool tree_edit_is_near(struct volume *vol, const struct tree_key *from, const struct tree_key *to)
{
	struct node_key first = node_key_pack(from), last = node_key_pack(to);

	return way_near(vol, &first, &last);
}

bool tree_edit_has_all(struct volume *vol, const struct tree_key *from, const struct tree_key *to)
{
	struct node_key first = node_key_pack(from), last = node_key_pack(to);
	const struct tree_path *way = way_near(vol, &first, &last);
	bool found;

	/* There is something before first in the leaf, so that it does not get empty. */
	return way && leaf_find(path_node(way, 0), &first, &found);
}

void tree_edit_begin_at(struct volume *vol, const struct tree_key *key)
{
	tree_edit_begin(vol);
	if (likely(tree_edit_reach(vol, key)))
		return;
	tree_edit_end(vol);
	tree_prefetch(vol, key);
	tree_edit_begin(vol);
}

u32 way_find(struct tree_path *way, const struct node_key *key, bool *found)
{
	const struct disk_node *leaf = path_node(way, 0);
	u32 count = node_count(leaf), pos = way->index[0], turn;

	/* There, or right behind it: the item before it is below the key, it is not. */
	for (turn = 0; turn < 2 && pos <= count; turn++, pos++) {
		struct node_key here;

		if (pos) {
			here = leaf_key(leaf, pos - 1);
			if (!node_key_less(&here, key))
				break;
		}
		*found = false;
		if (pos < count) {
			here = leaf_key(leaf, pos);
			*found = node_key_equal(&here, key);
		}
		if (*found || pos == count || node_key_less(key, &here)) {
			way->index[0] = pos;
			return pos;
		}
	}
	way->index[0] = leaf_find(leaf, key, found);
	return way->index[0];
}
