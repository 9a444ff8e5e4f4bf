/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Visiting every node of the tree, for check, show and graph.
 *
 * Depth first, without recursion: the stack is the path of referenced nodes.  It ends on any image:
 * levels fall, and a block is entered only if its keys lie in the range of the branch that leads to it,
 * so that it is entered by one way at most.
 *
 * Locking: tree->sem is held for reading from beginning to end.
 */
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

struct tree_walk {
	struct volume *vol;
	tree_node_fn fn;
	void *ctx;
	struct tree_path path;
	u32 ahead[TUX3_MAX_LEVEL + 1];	/* of path->node[n]: all branches before this one have been read, or cannot be */
	struct tree_visit visit;
	bool no_memory;			/* that is nothing that a node can be blamed for */
	char why[NODE_WHY_MAX];
};

/* Where the range of branch path->index[level] of path->node[level] ends; false: nowhere. */
static bool walk_high(const struct tree_path *path, u32 level, struct node_key *high)
{
	for (; level <= path->top; level++) {
		const struct disk_node *node = path_node(path, level);

		if (path->index[level] + 1 < node_count(node)) {
			*high = inner_key(node, path->index[level] + 1);
			return true;
		}
	}
	return false;
}

static struct node_buffer *walk_get(struct tree_walk *walk, const struct node_link *link,
				    const struct node_key *low, const struct node_key *high)
{
	struct node_buffer *buffer;

	if (link->level > TUX3_MAX_LEVEL) {
		snprintf(walk->why, sizeof(walk->why), "a tree cannot have a node of this level");
		return NULL;
	}
	buffer = cache_get(walk->vol, link, walk->why, sizeof(walk->why));
	if (IS_ERR(buffer)) {
		walk->no_memory = PTR_ERR(buffer) == -ENOMEM;
		return NULL;
	}
	if (link->level < walk->path.top && !node_in_range(buffer->data, low, high)) {
		snprintf(walk->why, sizeof(walk->why), "its keys are outside of the range that its parent gives it");
		cache_put(walk->vol, buffer);
		return NULL;
	}
	return buffer;
}

/*
 * Show one node to fn, and keep it as the path's lowest if there is something to visit below it.
 * parent: level of the parent, path.top + 1 for the root.
 */
static int walk_node(struct tree_walk *walk, const struct node_link *link, u32 parent)
{
	struct tree_path *path = &walk->path;
	struct tree_visit *visit = &walk->visit;
	struct node_key low = { 0, 0 }, high = { 0, 0 };
	struct node_buffer *buffer;
	int ret;

	lockdep_assert_held(&walk->vol->tree.sem);
	visit->addr = link->addr;
	visit->birth = link->birth;
	visit->level = link->level;
	visit->parent_addr = 0;
	if (parent <= path->top) {
		visit->parent_addr = path->node[parent]->addr;
		low = inner_key(path_node(path, parent), path->index[parent]);
	}
	visit->has_high = walk_high(path, parent, &high);
	visit->low = node_key_unpack(&low);
	visit->high = node_key_unpack(&high);

	buffer = walk_get(walk, link, &low, visit->has_high ? &high : NULL);
	if (walk->no_memory)
		return -ENOMEM;
	visit->data = buffer ? buffer->data : NULL;
	visit->why = buffer ? NULL : walk->why;
	visit->dirty = buffer && test_bit(NODE_DIRTY, &buffer->state);
	ret = walk->fn(walk->ctx, visit);
	if (ret || !buffer || !link->level) {
		if (buffer)
			cache_put(walk->vol, buffer);
		return min(ret, 0);
	}
	path->node[link->level] = buffer;
	path->index[link->level] = 0;
	walk->ahead[link->level] = 0;
	path->bottom = link->level;
	return 0;
}

/* The next branch of the lowest node, or up if it has no more. */
static int walk_step(struct tree_walk *walk)
{
	struct tree_path *path = &walk->path;
	u32 level = path->bottom;
	struct disk_node *node = path_node(path, level);
	struct node_link link;
	int ret;

	if (path->index[level] >= node_count(node)) {
		cache_put(walk->vol, path->node[level]);
		path->bottom++;
		if (path->bottom <= path->top)
			path->index[path->bottom]++;
		return 0;
	}
	if (path->index[level] == walk->ahead[level])
		walk->ahead[level] = ahead_fetch(walk->vol, node, path->index[level]);
	link = inner_link(node, path->index[level]);
	ret = walk_node(walk, &link, level);
	if (path->bottom == level)
		path->index[level]++;
	return ret;
}

int tree_walk(struct volume *vol, tree_node_fn fn, void *ctx)
{
	struct tree_walk *walk = kzalloc(sizeof(*walk), GFP_NOFS);
	struct node_link root;
	int ret;

	if (!walk)
		return -ENOMEM;
	walk->vol = vol;
	walk->fn = fn;
	walk->ctx = ctx;
	down_read(&vol->tree.sem);
	root = tree_root_link(&vol->tree);
	walk->path.top = min_t(u32, root.level, TUX3_MAX_LEVEL);
	walk->path.bottom = walk->path.top + 1;
	ret = walk_node(walk, &root, walk->path.top + 1);
	while (!ret && walk->path.bottom <= walk->path.top) {
		ret = walk_step(walk);
		cond_resched();
	}
	tree_path_put(vol, &walk->path);
	up_read(&vol->tree.sem);
	kfree(walk);
	return ret;
}
