/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What node.c, tree.c, tree_walk.c, tree_edit.c and tree_balance.c share: node layout, and paths from
 * the root to a leaf.
 */
#ifndef TUX3_TREE_INTERNAL_H
#define TUX3_TREE_INTERNAL_H

#include "core/volume.h"

/* ---- keys as they are compared: two numbers ---- */

#define NODE_KEY_MAX ((struct node_key){ U64_MAX, U64_MAX })

static inline struct node_key node_key_load(const struct disk_key *key)
{
	return (struct node_key){ le64_to_cpu(key->ino_type), le64_to_cpu(key->offset) };
}

static inline void node_key_store(struct disk_key *disk, const struct node_key *key)
{
	disk->ino_type = cpu_to_le64(key->high);
	disk->offset = cpu_to_le64(key->low);
}

static inline bool node_key_less(const struct node_key *a, const struct node_key *b)
{
	return a->high != b->high ? a->high < b->high : a->low < b->low;
}

/* An inode number that is too high stands for the end of all keys. */
static inline struct node_key node_key_pack(const struct tree_key *key)
{
	if (key->ino > TUX3_INO_MAX)
		return NODE_KEY_MAX;
	return (struct node_key){ key->ino << 8 | key->type, key->offset };
}

static inline struct tree_key node_key_unpack(const struct node_key *key)
{
	return tree_key(key->high >> 8, key->high & 0xff, key->low);
}

/* The next and the previous key there could be; false: there is none. */
static inline bool node_key_step_up(struct node_key *key)
{
	if (key->low == U64_MAX && key->high == U64_MAX)
		return false;
	key->high += !++key->low;
	return true;
}

static inline bool node_key_step_down(struct node_key *key)
{
	if (!key->low && !key->high)
		return false;
	key->high -= !key->low--;
	return true;
}

/* ---- node layout: see struct disk_node ---- */

static inline struct disk_item *leaf_items(struct disk_node *node)
{
	return (struct disk_item *)(node + 1);
}

static inline const struct disk_item *leaf_items_const(const struct disk_node *node)
{
	return (const struct disk_item *)(node + 1);
}

static inline struct disk_branch *inner_branches(struct disk_node *node)
{
	return (struct disk_branch *)(node + 1);
}

static inline const struct disk_branch *inner_branches_const(const struct disk_node *node)
{
	return (const struct disk_branch *)(node + 1);
}

static inline u32 node_count(const struct disk_node *node)
{
	return le16_to_cpu(node->count);
}

static inline u32 node_level(const struct disk_node *node)
{
	return le16_to_cpu(node->level);
}

static inline struct node_key leaf_key(const struct disk_node *node, u32 pos)
{
	return node_key_load(&leaf_items_const(node)[pos].key);
}

static inline struct node_key inner_key(const struct disk_node *node, u32 pos)
{
	return node_key_load(&inner_branches_const(node)[pos].key);
}

static inline u32 leaf_len(const struct disk_node *node, u32 pos)
{
	return le16_to_cpu(leaf_items_const(node)[pos].len);
}

/* Data that would begin at 65536 (empty, first in a block of that size) has at 0. */
static inline u32 leaf_at(const struct disk_node *node, u32 pos)
{
	u32 at = le16_to_cpu(leaf_items_const(node)[pos].at);

	return at ? at : 65536;
}

static inline const void *leaf_data(const struct disk_node *node, u32 pos)
{
	return (const u8 *)node + leaf_at(node, pos);
}

/* What all items or branches of a node may take together, and do take. */
static inline u32 node_room(u32 block_size)
{
	return block_size - sizeof(struct disk_node);
}

static inline u32 inner_max(u32 block_size)
{
	return node_room(block_size) / sizeof(struct disk_branch);
}

u32 node_checksum(const struct disk_node *node, u32 block_size);	/* what its crc should be */
u32 node_used(const struct disk_node *node, u32 block_size);

/* First and last key of a node that is not empty. */
struct node_key node_first_key(const struct disk_node *node);
struct node_key node_last_key(const struct disk_node *node);

/* The first item whose key is not below key; *found: it has that key. */
u32 leaf_find(const struct disk_node *node, const struct node_key *key, bool *found);
/* The branch that leads to key. */
u32 inner_find(const struct disk_node *node, const struct node_key *key);
struct node_link inner_link(const struct disk_node *node, u32 pos);

/* Changes.  The caller has made sure that there is room. */
void node_copy(struct disk_node *to, const struct disk_node *from, u32 block_size);	/* all but identity */
void leaf_insert(struct disk_node *node, u32 block_size, u32 pos, const struct node_key *key,
		 const void *data, u32 len);
void leaf_replace(struct disk_node *node, u32 block_size, u32 pos, const void *data, u32 len);
void leaf_delete(struct disk_node *node, u32 block_size, u32 from, u32 to);	/* items from .. to - 1 */
void inner_set_child(struct disk_node *node, u32 pos, const struct node_buffer *child);
void inner_insert(struct disk_node *node, u32 pos, const struct node_key *key,
		  const struct node_buffer *child);
void inner_delete(struct disk_node *node, u32 pos);
/* Entries from pos on go to the empty node right. */
void node_move_tail(struct disk_node *node, struct disk_node *right, u32 block_size, u32 pos);
/* Copy all entries of another node behind or before those of node. */
void node_append(struct disk_node *node, const struct disk_node *right, u32 block_size);
void node_prepend(struct disk_node *node, const struct disk_node *left, u32 block_size);

/* It is in memory until this delta is committed.  Who calls has a reference. */
static inline void node_need(struct node_buffer *buffer, u64 delta)
{
	if (READ_ONCE(buffer->needed) < delta)
		WRITE_ONCE(buffer->needed, delta);
}

/* ---- paths (tree.c) ---- */

#define PATH_MISS 1

static inline struct disk_node *path_node(const struct tree_path *path, u32 level)
{
	return path->node[level]->data;
}

/*
 * With sem.  read: read what is not in the cache, errors are printed; else PATH_MISS.  Unless 0 is
 * returned nothing is referenced.
 */
int path_descend(struct volume *vol, struct tree_path *path, const struct node_key *key, bool read);
/* The same, no further than this level; index[level] is for the user. */
int path_descend_to(struct volume *vol, struct tree_path *path, const struct node_key *key, u32 level, bool read);
/* With sem: if the leaf of this key is in memory it stays there until this delta is committed. */
bool path_need_leaf(struct volume *vol, const struct node_key *key, u64 delta);
void tree_path_put(struct volume *vol, struct tree_path *path);
/* Does the key lead to the same leaf?  Of a path that was put, the answer may be old. */
static inline bool path_leads(const struct tree_path *path, const struct node_key *key)
{
	return !node_key_less(key, &path->low) && (node_key_less(key, &path->high) || !path->has_high);
}

/* The keys of a node below the root lie in [low, high), and it has some. */
bool node_in_range(const struct disk_node *node, const struct node_key *low, const struct node_key *high);
struct node_link tree_root_link(const struct tree *tree);

static inline void tree_set_root_buffer(struct volume *vol, const struct node_buffer *buffer)
{
	tree_set_root(vol, buffer->addr, buffer->birth, buffer->level);
}

/* ---- reading ahead (tree_ahead.c) ---- */

void tree_ahead_init(struct tree *tree);
/*
 * Without sem, after PATH_MISS: cache_get() of path->miss, and with it what is likely to be missed next.  Up to key `to`, if
 * *window is more than 1, so many nodes; then it grows.
 */
struct node_buffer *ahead_get(struct volume *vol, const struct tree_path *path, const struct node_key *to, u32 *window,
			      char *why, size_t why_size);
/*
 * With sem: read what is missing of the branches of this node, from this one on, at most TREE_AHEAD.  Returns the first that was
 * not looked at.
 */
u32 ahead_fetch(struct volume *vol, const struct disk_node *node, u32 at);

/* ---- leaves that were looked at for a delta (tree_looked.c) ---- */

int looked_init(struct node_cache *cache);	/* -ENOMEM */
void looked_exit(struct node_cache *cache);
/* Has this CPU looked at the leaf of key for the delta? */
bool looked_has(struct volume *vol, u64 delta, const struct node_key *key);
/* The leaf with keys from low on below high, and those beside it, stay until the delta is committed. */
void looked_add(struct volume *vol, u64 delta, const struct node_key *low, const struct node_key *high);

/* ---- ways kept from edit to edit (tree_way.c) ---- */

void tree_ways_init(struct tree *tree);
/*
 * With sem for writing: the way to key's leaf, which stays there until the next call or until ways are dropped.  A node that is
 * not in memory is read; with read false it is PATH_MISS.  NULL with *err.
 */
struct tree_path *tree_way(struct volume *vol, const struct node_key *key, bool read, int *err);
/* Some node that others may lead over has moved, or its branches have: all but this one (NULL: all) are wrong now. */
void tree_ways_drop(struct volume *vol, const struct tree_path *but);
/* leaf_find() in the leaf of a way; it looks first where the last one was found. */
u32 way_find(struct tree_path *way, const struct node_key *key, bool *found);

/* ---- edits (tree_edit.c, tree_balance.c) ---- */

/* Only who has sem for writing counts, and others look: so no other CPU has to be kept out. */
static inline void tree_count(atomic64_t *counter)
{
	atomic64_set(counter, atomic64_read(counter) + 1);
}

/* A change may redirect a whole path, split each node of it and add a root. */
#define EDIT_SPARES (2 * (TUX3_MAX_LEVEL + 1) + 1)

/*
 * One change of the tree.  First everything that may fail: descend, plan, edit_reserve().  Then the
 * change itself, which cannot: it takes new nodes from the spares.
 */
struct tree_edit {
	struct volume *vol;
	struct node_key key;	/* where path leads */
	struct tree_path *path;	/* a way: see tree_way.c */
	bool moved;		/* a node of the path was redirected */
	bool reshaped;		/* nodes were split, merged or dropped */
	struct node_buffer *spare[EDIT_SPARES];	/* a block is promised to each; not yet in the cache */
	u32 spares;
	int err;	/* first failure to free a block: the change is made, the commit must be aborted */
};

/* On success edit_close() must follow; it returns err, or what went wrong meanwhile. */
int edit_open(struct tree_edit *edit, struct volume *vol, const struct node_key *key);
int edit_close(struct tree_edit *edit, int err);
/* With edit->path set.  -ENOMEM, -ENOSPC, -EIO: nothing has changed. */
int edit_reserve(struct tree_edit *edit, u32 count);
/* A spare becomes an empty DIRTY node. */
struct node_buffer *edit_take(struct tree_edit *edit, u32 level);
/* The node has gone from the tree: drop its buffer, free its block. */
void edit_discard(struct tree_edit *edit, struct node_buffer *buffer);

/* How many nodes of the path, from this level up, are not DIRTY: those below a DIRTY one. */
u32 edit_redirect_cost(const struct tree_edit *edit, u32 level);
/* Make the path DIRTY, from the root down to this level. */
void edit_redirect(struct tree_edit *edit, u32 bottom);
/*
 * The leaf goes, or has taken one in.  What is beside it gets its range, or is beside it now: so that is to stay in memory as long
 * as the leaf was to.  Who changes names has seen to that where he has looked; who deletes data has looked only for himself.
 */
void edit_need_beside(struct volume *vol, const struct tree_path *path);

/* How many nodes to reserve so that the full node at this level can be split; -EIO. */
int edit_split_cost(struct tree_edit *edit, u32 level);
/*
 * Everything from level up is DIRTY.  Move the entries from pos on out of the leaf to a new one, and
 * return that; the caller completes both and then calls edit_link_right.
 */
struct node_buffer *edit_split_leaf(struct tree_edit *edit, u32 pos);
/* Link the new node right of path->node[level] into the tree above, splitting what is full there. */
void edit_link_right(struct tree_edit *edit, u32 level, struct node_buffer *right);
/* Something was removed from path->node[level], which is DIRTY: note that it is underfull, if it is. */
void edit_note_underfull(struct tree_edit *edit, u32 level);
/* A root with one branch hands over to what is below it.  The nodes of the path from level up are still there. */
void edit_shrink_root(struct tree_edit *edit, u32 level);

#endif
