/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The life of DIRTY nodes: they get their blocks, a snapshot takes them, they are written, and become CLEAN.  See tree.h.
 *
 * Locking: tree_snapshot() needs tree->sem for writing.  tree_snapshot_done() does not: an edit that
 * redirects a FLUSHING node at the same time and the end of its write agree by the cache shard's lock on who
 * lets go of the buffer.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

/* ---- places ---- */

struct place {
	struct volume *vol;
	struct range_list blocks;	/* one for each node */
	u32 range;			/* where the next one comes from */
	u64 used;			/* of that range */
};

static u64 place_next(struct place *place)
{
	const struct block_range *range = &place->blocks.ranges[place->range];
	u64 addr = range->addr + place->used++;

	if (place->used == range->len) {
		place->range++;
		place->used = 0;
	}
	return addr;
}

/* A free map that lies may hand out a block of the very tree. */
static int place_check(struct place *place, u64 addr, u32 len)
{
	for (; len; addr++, len--) {
		if (cache_busy(place->vol, addr)) {
			volume_warn(place->vol, "block %llu is free by the free map but belongs to the tree; it stays in use",
				    (unsigned long long)addr);
			return -EIO;
		}
	}
	return 0;
}

static int place_allocate(struct place *place, u64 count)
{
	struct volume *vol = place->vol;
	u64 addr;
	u32 len, i;
	int err = 0;

	while (!err && place->blocks.blocks < count) {
		err = balloc_place(vol, min_t(u64, count - place->blocks.blocks, U32_MAX), &addr, &len);
		if (err)
			break;
		err = place_check(place, addr, len);
		if (!err)
			err = range_list_add(&place->blocks, addr, len);
		if (err)
			balloc_promise_again(vol, len);
		if (err == -ENOMEM)
			balloc_free(vol, BALLOC_NODE, addr, len);
	}
	for (i = 0; err && i < place->blocks.count; i++) {
		balloc_promise_again(vol, place->blocks.ranges[i].len);
		balloc_free(vol, BALLOC_NODE, place->blocks.ranges[i].addr, place->blocks.ranges[i].len);
	}
	return err;
}

/* The next DIRTY child from branch *index on; NULL: none is left.  No other was born since the last snapshot. */
static struct node_buffer *place_child(struct place *place, const struct node_buffer *parent, u32 *index)
{
	const struct disk_node *node = parent->data;
	struct node_buffer *buffer;

	for (; *index < node_count(node); ++*index) {
		struct node_link link = inner_link(node, *index);

		if (!node_unplaced(link.addr) && link.birth <= place->vol->tree.snapshot_delta)
			continue;
		buffer = cache_peek(place->vol, &link);
		if (buffer && test_bit(NODE_DIRTY, &buffer->state))
			return buffer;
		if (buffer)
			cache_put(place->vol, buffer);
	}
	return NULL;
}

/* With sem for writing.  In key order, what is below a node before the node itself. */
static void place_nodes(struct place *place)
{
	struct volume *vol = place->vol;
	struct node_link root = tree_root_link(&vol->tree);
	struct node_buffer *node[TUX3_MAX_LEVEL + 1], *child;
	u32 index[TUX3_MAX_LEVEL + 1] = {}, level = root.level;

	lockdep_assert_held_write(&place->vol->tree.sem);
	node[level] = cache_peek(vol, &root);
	if (WARN_ON_ONCE(!node[level]))
		return;
	for (;;) {
		child = level ? place_child(place, node[level], &index[level]) : NULL;
		if (child) {
			node[--level] = child;
			index[level] = 0;
			continue;
		}
		if (node_unplaced(node[level]->addr)) {
			cache_place(vol, node[level], place_next(place));
			if (level == root.level)
				tree_set_root_buffer(vol, node[level]);
			else
				inner_set_child(node[level + 1]->data, index[level + 1], node[level]);
		}
		cache_put(vol, node[level]);
		if (level++ == root.level)
			return;
		index[level]++;
	}
}

int tree_place(struct volume *vol)
{
	struct place place = { .vol = vol };
	int err;

	if (!vol->tree.unplaced)
		return 0;
	range_list_init(&place.blocks);
	err = place_allocate(&place, vol->tree.unplaced);
	if (!err) {
		tree_edit_begin(vol);
		place_nodes(&place);
		if (WARN_ON_ONCE(vol->tree.unplaced))
			err = -EIO;
		tree_edit_end(vol);
	}
	range_list_exit(&place.blocks);
	return err;
}

/* ---- snapshots ---- */

void tree_snapshot(struct volume *vol, struct list_head *list, u64 *count)
{
	struct tree *tree = &vol->tree;
	struct node_buffer *buffer;

	lockdep_assert_held_write(&vol->tree.sem);
	WARN_ON_ONCE(tree->unplaced);
	tree_edit_leave(vol);
	*count = tree->dirty_count;
	list_splice_tail_init(&tree->dirty, list);
	WRITE_ONCE(tree->dirty_count, 0);
	tree->snapshot_delta = vol->delta.applying;
	tree_forget_appends(vol);
	list_for_each_entry(buffer, list, lru_link) {
		/* In this order: at no time it looks CLEAN. */
		set_bit(NODE_FLUSHING, &buffer->state);
		clear_bit(NODE_DIRTY, &buffer->state);
	}
}

void tree_snapshot_done(struct volume *vol, struct list_head *list, bool ok)
{
	struct node_buffer *buffer, *next;

	if (!ok) {
		list_splice_tail_init(list, &vol->tree.failed);
		return;
	}
	list_for_each_entry_safe(buffer, next, list, lru_link)
		cache_make_clean(vol, buffer);
}

int tree_create(struct volume *vol)
{
	struct node_link link = { NODE_UNPLACED | ++vol->tree.serial, vol->delta.applying, 0 };
	struct node_buffer *buffer = cache_alloc(vol);
	int err = buffer ? balloc_promise(vol, 1) : -ENOMEM;

	if (err) {
		if (buffer)
			cache_free(vol, buffer);
		return err;
	}
	cache_add_dirty(vol, buffer, &link);
	tree_set_root(vol, link.addr, link.birth, link.level);
	return 0;
}

void tree_discard(struct volume *vol)
{
	struct node_buffer *buffer, *next;

	tree_edit_leave(vol);
	list_for_each_entry_safe(buffer, next, &vol->tree.dirty, lru_link)
		cache_drop(vol, buffer);
	list_for_each_entry_safe(buffer, next, &vol->tree.failed, lru_link) {
		cache_drop(vol, buffer);
		cache_make_clean(vol, buffer);	/* DEAD: frees it */
	}
}
