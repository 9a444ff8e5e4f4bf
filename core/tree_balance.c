/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Keeping the tree's shape: splitting full nodes, merging underfull ones, a higher or lower root.
 *
 * Called in the second part of an edit, with the nodes concerned DIRTY and the new ones reserved: nothing
 * here can fail.  Branch 0 of a node may have a higher key than the branch that leads to the node: what
 * is between them is nobody's but leads there.
 *
 * Merging: a node less than a third full takes in a neighbour under the same parent if both together
 * leave a quarter free, so that neither the next deletion nor the next insertion undoes it.  Only
 * neighbours in memory are considered: it is never worth a read with the tree locked, and who deletes
 * much has them there.
 *
 * Locking: tree->sem for writing.
 */
#include "tree_internal.h"

/* ---- splitting ---- */

static bool inner_full(const struct tree_edit *edit, u32 level)
{
	return node_count(path_node(&edit->path, level)) >= inner_max(edit->vol->block_size);
}

int edit_split_cost(struct tree_edit *edit, u32 level)
{
	u32 top = edit->path.top;
	int nodes = 1;

	while (++level <= top && inner_full(edit, level))
		nodes++;
	if (level <= top)
		return nodes;
	if (top == TUX3_MAX_LEVEL) {
		volume_warn(edit->vol, "the tree cannot grow beyond %u levels", TUX3_MAX_LEVEL + 1);
		return -EIO;
	}
	return nodes + 1;
}

struct node_buffer *edit_split_leaf(struct tree_edit *edit, u32 pos)
{
	struct node_buffer *right = edit_take(edit, 0);

	node_move_tail(path_node(&edit->path, 0), right->data, edit->vol->block_size, pos);
	atomic64_inc(&edit->vol->tree.splits);
	return right;
}

static void edit_grow_root(struct tree_edit *edit, struct node_buffer *right)
{
	struct node_buffer *left = edit->path.node[edit->path.top];
	struct node_buffer *root = edit_take(edit, left->level + 1);
	struct node_key key = node_first_key(left->data);

	inner_insert(root->data, 0, &key, left);
	key = node_first_key(right->data);
	inner_insert(root->data, 1, &key, right);
	tree_set_root_buffer(edit->vol, root);
}

/*
 * Insert a branch to a full node.  Where the new one comes last, as when inodes are created one after
 * the other, the left node stays nearly full.
 */
static struct node_buffer *edit_split_inner(struct tree_edit *edit, u32 level, u32 pos,
					    const struct node_key *key, const struct node_buffer *child)
{
	struct disk_node *node = path_node(&edit->path, level);
	struct node_buffer *right = edit_take(edit, level);
	u32 count = node_count(node), cut = pos == count ? count - count / 16 : count / 2;

	node_move_tail(node, right->data, edit->vol->block_size, cut);
	if (pos <= cut)
		inner_insert(node, pos, key, child);
	else
		inner_insert(right->data, pos - cut, key, child);
	atomic64_inc(&edit->vol->tree.splits);
	return right;
}

void edit_link_right(struct tree_edit *edit, u32 level, struct node_buffer *right)
{
	struct tree_path *path = &edit->path;

	while (++level <= path->top) {
		struct node_key key = node_first_key(right->data);
		u32 pos = path->index[level] + 1;

		if (!inner_full(edit, level)) {
			inner_insert(path_node(path, level), pos, &key, right);
			return;
		}
		right = edit_split_inner(edit, level, pos, &key, right);
	}
	edit_grow_root(edit, right);
}

/* ---- merging ---- */

/* Where the keys of branch pos of path->node[level] end; false: nowhere. */
static bool branch_high(const struct tree_path *path, u32 level, u32 pos, struct node_key *high)
{
	for (; level <= path->top; level++) {
		const struct disk_node *node = path_node(path, level);

		if (pos + 1 < node_count(node)) {
			*high = inner_key(node, pos + 1);
			return true;
		}
		if (level < path->top)
			pos = path->index[level + 1];
	}
	return false;
}

/* The child at branch pos of path->node[level], if it is in memory and as it should be. */
static struct node_buffer *edit_neighbour(struct tree_edit *edit, u32 level, u32 pos)
{
	const struct disk_node *parent = path_node(&edit->path, level);
	struct node_key low = inner_key(parent, pos), high;
	struct node_link link = inner_link(parent, pos);
	struct node_buffer *buffer = cache_peek(edit->vol, &link);

	if (!buffer)
		return NULL;
	if (node_in_range(buffer->data, &low, branch_high(&edit->path, level, pos, &high) ? &high : NULL))
		return buffer;
	cache_put(edit->vol, buffer);
	return NULL;
}

static bool edit_mergeable(struct tree_edit *edit, u32 level, const struct node_buffer *with)
{
	u32 block_size = edit->vol->block_size;

	return node_used(path_node(&edit->path, level), block_size) + node_used(with->data, block_size) <=
	       node_room(block_size) / 4 * 3;
}

/* Merge path->node[level] with a neighbour, if it should be.  The parent has a branch less then. */
static bool edit_merge(struct tree_edit *edit, u32 level)
{
	struct disk_node *node = path_node(&edit->path, level), *parent = path_node(&edit->path, level + 1);
	u32 pos = edit->path.index[level + 1], block_size = edit->vol->block_size;
	struct node_buffer *with;

	if (node_used(node, block_size) >= node_room(block_size) / 3)
		return false;
	with = pos + 1 < node_count(parent) ? edit_neighbour(edit, level + 1, pos + 1) : NULL;
	if (with && edit_mergeable(edit, level, with)) {
		node_append(node, with->data, block_size);
		inner_delete(parent, pos + 1);
		goto merged;
	}
	if (with)
		cache_put(edit->vol, with);
	with = pos ? edit_neighbour(edit, level + 1, pos - 1) : NULL;
	if (with && edit_mergeable(edit, level, with)) {
		node_prepend(node, with->data, block_size);
		inner_set_child(parent, pos - 1, edit->path.node[level]);
		inner_delete(parent, pos);
		goto merged;
	}
	if (with)
		cache_put(edit->vol, with);
	return false;
merged:
	edit_discard(edit, with);
	cache_put(edit->vol, with);
	atomic64_inc(&edit->vol->tree.merges);
	return true;
}

/* A root with one branch hands over to what is below it. */
static void edit_shrink_root(struct tree_edit *edit)
{
	struct tree *tree = &edit->vol->tree;

	while (tree->root_level) {
		struct node_link link = tree_root_link(tree);
		struct node_buffer *root = cache_peek(edit->vol, &link);

		if (!root)
			return;
		if (node_count(root->data) > 1) {
			cache_put(edit->vol, root);
			return;
		}
		link = inner_link(root->data, 0);
		tree_set_root(edit->vol, link.addr, link.birth, link.level);
		edit_discard(edit, root);
		cache_put(edit->vol, root);
	}
}

void edit_rebalance(struct tree_edit *edit, u32 level)
{
	u32 from = level;

	while (level < edit->path.top && edit_merge(edit, level))
		level++;
	if (level > from || from)
		edit_shrink_root(edit);
}
