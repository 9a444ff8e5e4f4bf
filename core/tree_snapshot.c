/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The life of DIRTY nodes: a snapshot takes them, they are written, and become CLEAN.  See tree.h.
 *
 * Locking: tree_snapshot() needs tree->sem for writing.  tree_snapshot_done() does not: an edit that
 * redirects a FLUSHING node at the same time and the end of its write agree by the cache shard's lock on who
 * lets go of the buffer.
 */
#include "tree_internal.h"

void tree_snapshot(struct volume *vol, struct list_head *list, u64 *count)
{
	struct tree *tree = &vol->tree;
	struct node_buffer *buffer;

	*count = tree->dirty_count;
	list_splice_tail_init(&tree->dirty, list);
	WRITE_ONCE(tree->dirty_count, 0);
	tree->snapshot_delta = vol->delta.applying;
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

int tree_create(struct volume *vol, u64 addr)
{
	struct node_link link = { addr, vol->delta.applying, 0 };
	struct node_buffer *buffer = cache_alloc(vol);

	if (!buffer)
		return -ENOMEM;
	cache_add_dirty(vol, buffer, &link);
	tree_set_root(vol, link.addr, link.birth, link.level);
	return 0;
}

void tree_discard(struct volume *vol)
{
	struct node_buffer *buffer, *next;

	list_for_each_entry_safe(buffer, next, &vol->tree.dirty, lru_link)
		cache_drop(vol, buffer);
	list_for_each_entry_safe(buffer, next, &vol->tree.failed, lru_link) {
		cache_drop(vol, buffer);
		cache_make_clean(vol, buffer);	/* DEAD: frees it */
	}
}
