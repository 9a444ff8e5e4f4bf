/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Keeping the tree's shape: splitting full nodes, merging underfull ones, a higher or lower root.
 *
 * But for tree_merge(), called in the second part of an edit, with the nodes concerned DIRTY and the new ones reserved:
 * nothing there can fail.  Branch 0 of a node may have a higher key than the branch that leads to the node: what
 * is between them is nobody's but leads there.
 *
 * Merging: a node less than a third full takes in a neighbour under the same parent if both together
 * leave a quarter free, so that neither the next deletion nor the next insertion undoes it.  Only
 * neighbours in memory are considered: it is never worth a read with the tree locked, and who deletes
 * much has them there.  What is in memory is not the same when the log is replayed, but the tree must come out the
 * same, since no more blocks may be needed than there were: so an edit only takes a note of underfull nodes, and
 * whoever logs the edits asks for the merges (tree_next_merge) and logs them too.
 *
 * Locking: tree->sem for writing.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

/* ---- splitting ---- */

static bool inner_full(const struct tree_edit *edit, u32 level)
{
	return node_count(path_node(edit->path, level)) >= inner_max(edit->vol->block_size);
}

int edit_split_cost(struct tree_edit *edit, u32 level)
{
	u32 top = edit->path->top;
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

	node_move_tail(path_node(edit->path, 0), right->data, edit->vol->block_size, pos);
	node_need(right, edit->path->node[0]->needed);
	tree_count(&edit->vol->tree.splits);
	return right;
}

/*
 * The key of the branch to what was split off.  Where that begins with another inode, all that this one will get lies there,
 * also what comes before the item that was the first to come.
 */
static struct node_key split_key(const struct tree_edit *edit, u32 level, const struct node_buffer *right)
{
	struct node_key key = node_first_key(right->data), before;

	if (!level) {
		before = node_last_key(path_node(edit->path, 0));
		if (before.high >> 8 < key.high >> 8)
			key = (struct node_key){ key.high & ~0xffULL, 0 };
	}
	return key;
}

static void edit_grow_root(struct tree_edit *edit, struct node_buffer *right)
{
	struct node_buffer *left = edit->path->node[edit->path->top];
	struct node_buffer *root = edit_take(edit, left->level + 1);
	struct node_key key = node_first_key(left->data);

	inner_insert(root->data, 0, &key, left);
	key = split_key(edit, left->level, right);
	inner_insert(root->data, 1, &key, right);
	node_need(root, left->needed);
	tree_set_root_buffer(edit->vol, root);
}

/*
 * Insert a branch to a full node.  Where the new one comes last, as when inodes are created one after
 * the other, the left node stays nearly full.
 */
static struct node_buffer *edit_split_inner(struct tree_edit *edit, u32 level, u32 pos,
					    const struct node_key *key, const struct node_buffer *child)
{
	struct disk_node *node = path_node(edit->path, level);
	struct node_buffer *right = edit_take(edit, level);
	u32 count = node_count(node), cut = pos == count ? count - count / 16 : count / 2;

	node_move_tail(node, right->data, edit->vol->block_size, cut);
	node_need(right, edit->path->node[level]->needed);
	if (pos <= cut)
		inner_insert(node, pos, key, child);
	else
		inner_insert(right->data, pos - cut, key, child);
	tree_count(&edit->vol->tree.splits);
	return right;
}

void edit_link_right(struct tree_edit *edit, u32 level, struct node_buffer *right)
{
	struct tree_path *path = edit->path;

	edit->reshaped = true;
	while (++level <= path->top) {
		struct node_key key = split_key(edit, level - 1, right);
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

/*
 * The neighbour of path->node[level] on this side.  read: from the disk if need be; else NULL if it is not in memory.
 * An error if there is none, or it is not as it should be.
 */
static struct node_buffer *path_neighbour(struct volume *vol, const struct tree_path *path, u32 level, bool right,
					  bool read)
{
	struct disk_node *parent = level < path->top ? path_node(path, level + 1) : NULL;
	struct node_key low, high;
	struct node_buffer *buffer;
	char why[NODE_WHY_MAX];
	struct node_link link;
	u32 pos;

	if (!parent)
		return ERR_PTR(-EIO);
	pos = path->index[level + 1];
	if (right ? pos + 1 >= node_count(parent) : !pos)
		return ERR_PTR(-EIO);
	pos += right ? 1 : -1;
	link = inner_link(parent, pos);
	low = inner_key(parent, pos);
	buffer = read ? cache_get(vol, &link, why, sizeof(why)) : cache_peek(vol, &link);
	if (IS_ERR(buffer))
		volume_warn(vol, "cannot read the tree node at block %llu (level %u): %s",
			    (unsigned long long)link.addr, link.level, why);
	if (IS_ERR_OR_NULL(buffer))
		return buffer;
	if (node_in_range(buffer->data, &low, branch_high(path, level + 1, pos, &high) ? &high : NULL))
		return buffer;
	cache_put(vol, buffer);
	return ERR_PTR(-EIO);
}

static u32 merged_size(struct volume *vol, const struct node_buffer *node, const struct node_buffer *with)
{
	return node_used(node->data, vol->block_size) + node_used(with->data, vol->block_size);
}

static bool node_underfull(struct volume *vol, const struct disk_node *node)
{
	return node_used(node, vol->block_size) < node_room(vol->block_size) / 3;
}

void edit_note_underfull(struct tree_edit *edit, u32 level)
{
	struct tree *tree = &edit->vol->tree;
	const struct node_buffer *node = edit->path->node[level];
	u32 i;

	if (edit->vol->log.replaying || level >= edit->path->top || !node_underfull(edit->vol, node->data))
		return;
	for (i = 0; i < tree->underfull_count; i++)
		if (tree->underfull[i].addr == node->addr)
			break;
	if (i == TREE_UNDERFULL)	/* a merge more or less: the oldest is forgotten */
		memmove(tree->underfull, tree->underfull + 1, --i * sizeof(tree->underfull[0]));
	tree->underfull[i].key = node_key_unpack(&edit->key);
	tree->underfull[i].addr = node->addr;
	tree->underfull[i].level = level;
	tree->underfull_count = max(tree->underfull_count, i + 1);
}

/* Is there a neighbour on this side to merge with? */
static bool path_mergeable(struct volume *vol, const struct tree_path *path, u32 level, bool right)
{
	struct node_buffer *with = path_neighbour(vol, path, level, right, false);
	bool fits;

	if (IS_ERR_OR_NULL(with))
		return false;
	fits = merged_size(vol, path->node[level], with) <= node_room(vol->block_size) / 4 * 3;
	cache_put(vol, with);
	return fits;
}

bool tree_next_merge(struct volume *vol, struct tree_merge *merge)
{
	struct tree *tree = &vol->tree;
	const struct tree_path *path;
	struct node_buffer *node;
	struct node_key key;
	bool found = false;
	int err;

	lockdep_assert_held_write(&vol->tree.sem);
	while (!found && tree->underfull_count) {
		u32 i = --tree->underfull_count;

		merge->key = tree->underfull[i].key;
		merge->level = tree->underfull[i].level;
		key = node_key_pack(&merge->key);
		path = tree_way(vol, &key, false, &err);
		if (!path)
			continue;
		node = merge->level < path->top ? path->node[merge->level] : NULL;
		/* Not the node of the note any more, or written since: then it would have to be redirected. */
		if (node && node->addr == tree->underfull[i].addr && test_bit(NODE_DIRTY, &node->state) &&
		    node_underfull(vol, node->data)) {
			merge->right = path_mergeable(vol, path, merge->level, true);
			found = merge->right || path_mergeable(vol, path, merge->level, false);
		}
	}
	return found;
}

/* What was beside the leaf that was taken in is beside the other one now. */
static void edit_need_beside_merged(struct tree_edit *edit)
{
	struct tree_path path;

	if (path_descend(edit->vol, &path, &edit->key, false))
		return;
	edit_need_beside(edit->vol, &path);
	tree_path_put(edit->vol, &path);
}

static int edit_merge(struct tree_edit *edit, const struct tree_merge *merge)
{
	u32 level = merge->level, block_size = edit->vol->block_size, pos;
	struct volume *vol = edit->vol;
	struct disk_node *parent;
	struct node_buffer *with;
	int err;

	if (level >= edit->path->top)
		return -EIO;
	with = path_neighbour(vol, edit->path, level, merge->right, true);
	if (IS_ERR(with))
		return PTR_ERR(with);
	err = merged_size(vol, edit->path->node[level], with) <= node_room(block_size) ? 0 : -EIO;
	if (!err)
		err = edit_reserve(edit, edit_redirect_cost(edit, level));
	if (err) {
		cache_put(vol, with);
		return err;
	}
	edit->reshaped = true;
	edit_redirect(edit, level);
	node_need(edit->path->node[level], with->needed);
	parent = path_node(edit->path, level + 1);
	pos = edit->path->index[level + 1];
	if (merge->right) {
		node_append(path_node(edit->path, level), with->data, block_size);
		inner_delete(parent, pos + 1);
	} else {
		node_prepend(path_node(edit->path, level), with->data, block_size);
		inner_set_child(parent, pos - 1, edit->path->node[level]);
		inner_delete(parent, pos);
	}
	edit_discard(edit, with);
	cache_put(vol, with);
	edit_note_underfull(edit, level + 1);
	edit_shrink_root(edit, level);
	if (!level)
		edit_need_beside_merged(edit);
	tree_count(&vol->tree.merges);
	return 0;
}

int tree_merge(struct volume *vol, const struct tree_merge *merge)
{
	struct node_key key = node_key_pack(&merge->key);
	struct tree_edit edit;
	int err = edit_open(&edit, vol, &key);

	return err ? err : edit_close(&edit, edit_merge(&edit, merge));
}

/* A child that is not of the path stays root even if it has one branch: the next edit here sees to it. */
void edit_shrink_root(struct tree_edit *edit, u32 level)
{
	struct tree_path *path = edit->path;
	u32 top;

	for (top = path->top; top && top >= level && node_count(path_node(path, top)) == 1; top--) {
		struct node_link link = inner_link(path_node(path, top), 0);

		tree_set_root(edit->vol, link.addr, link.birth, link.level);
		edit_discard(edit, path->node[top]);
	}
}
