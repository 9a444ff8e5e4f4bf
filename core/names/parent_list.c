// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Listing the parents of an inode.
 *
 * The tree has the parent pointers as of the newest commit; they are changed with the directories' entries, and no list in
 * memory leads from an inode to those of its names that were changed since.  It knows when the last one was (names_delta).  If that
 * is not committed, the front delta is.  Then the tree is read, and when names_delta is still the same, no name of the
 * inode has come or gone meanwhile: what was read is what it had.  Who is renamed faster than that is read with commit_mutex held:
 * nothing is applied to the tree then, which is what some delta has left.
 *
 * Names that share an item, because their hashes collide, are told in the order of another hash of theirs: so the cursor
 * says which of them have been told though others come and go.
 */
#include "core/volume.h"
#include "core/delta/delta.h"
#include "core/format/chain.h"
#include "core/names/parent_list.h"
#include "core/inode/path.h"
#include "core/tree/tree.h"

#define PARENT_TRIES	4u

struct parent_record {
	u64 hash;
	u64 order;		/* among those of this hash; never 0 */
	u64 dir;		/* 0: it has just gone */
	u32 generation;
	u8 len;
	char name[];		/* terminated */
};

/* Copies of whole items, in the order of their hashes. */
struct parent_batch {
	struct volume *vol;
	u8 *bytes;
	u32 size, used;
	bool more;		/* than fit: go on at the hash next */
	u64 next;
};

static u32 record_size(u32 len)
{
	return round_up(offsetof(struct parent_record, name) + len + 1, sizeof(u64));
}

/* Room for any item: an entry of 10 bytes becomes a record of 32. */
static int batch_init(struct parent_batch *batch, struct volume *vol)
{
	*batch = (struct parent_batch){ .vol = vol, .size = 4 * TUX3_ITEM_MAX(vol->block_size) };
	batch->bytes = kvmalloc(batch->size, GFP_NOFS);
	return batch->bytes ? 0 : -ENOMEM;
}

static void batch_exit(struct parent_batch *batch)
{
	kvfree(batch->bytes);
}

static struct parent_record *batch_at(const struct parent_batch *batch, u32 at)
{
	return (void *)(batch->bytes + at);
}

/* Under the tree's lock. */
static int batch_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct parent_batch *batch = ctx;
	struct chain chain = chain_of(data, len);
	const struct disk_parent *entry;
	u32 used = batch->used;

	while ((entry = chain_next_parent(&chain))) {
		struct parent_record *record = batch_at(batch, used);

		if (batch->size - used < record_size(entry->len)) {
			batch->next = key->offset;
			batch->more = true;
			return 1;
		}
		record->hash = key->offset;
		record->dir = get_unaligned_le64(&entry->dir);
		record->generation = 0;
		record->len = entry->len;
		memcpy(record->name, entry->name, entry->len);
		record->name[entry->len] = 0;
		used += record_size(entry->len);
	}
	if (chain.bad)
		return -EUCLEAN;
	batch->used = used;
	return 0;
}

static int read_attr(struct volume *vol, u64 ino, struct disk_attr *attr)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);
	int len = tree_lookup(vol, &key, attr, sizeof(*attr));

	if (len < 0)
		return len;
	return len == sizeof(*attr) ? 0 : -EUCLEAN;
}

/* What an item does not say. */
static int batch_complete(struct parent_batch *batch)
{
	const size_t from = offsetof(struct parent_record, dir), name = offsetof(struct parent_record, name);
	struct disk_attr attr = { };
	u64 dir = 0;
	u32 at;
	int err;

	for (at = 0; at < batch->used; at += record_size(batch_at(batch, at)->len)) {
		struct parent_record *record = batch_at(batch, at);

		record->order = max_t(u64, siphash(&record->dir, name - from + record->len, &batch->vol->hash_key), 1);
		if (record->dir != dir) {
			err = read_attr(batch->vol, record->dir, &attr);
			if (err && err != -ENOENT)
				return err;
			dir = err ? 0 : record->dir;
		}
		record->dir = dir;
		record->generation = le32_to_cpu(attr.generation);
	}
	return 0;
}

/* As the tree has them, from this hash on. */
static int batch_scan(struct parent_batch *batch, u64 ino, u64 hash)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_PARENT, hash), to = tree_key(ino, TUX3_ITEM_PARENT, U64_MAX);
	int err;

	batch->used = 0;
	batch->more = false;
	err = tree_scan(batch->vol, &from, &to, batch_item, batch);
	if (err >= 0)
		err = batch->more && !batch->used ? -EUCLEAN : batch_complete(batch);
	if (err == -EUCLEAN)
		volume_warn(batch->vol, "inode %llu has a parent pointer that is not valid", (unsigned long long)ino);
	return err;
}

/* The first one of those with this hash that comes behind `order`. */
static struct parent_record *batch_pick(const struct parent_batch *batch, u32 at, u64 hash, u64 order)
{
	struct parent_record *best = NULL, *record;

	for (; at < batch->used; at += record_size(record->len)) {
		record = batch_at(batch, at);
		if (record->hash != hash)
			break;
		if (record->order > order && (!best || record->order < best->order))
			best = record;
	}
	return best;
}

static int batch_tell(const struct parent_batch *batch, struct parent_cursor *cursor, parent_fn fn, void *ctx)
{
	struct parent_record *record;
	u32 at = 0;
	int ret = 0;

	while (at < batch->used) {
		u64 hash = batch_at(batch, at)->hash;

		if (hash != cursor->hash)
			*cursor = (struct parent_cursor){ .hash = hash };
		while ((record = batch_pick(batch, at, hash, cursor->order))) {
			struct parent_found found = { record->dir, record->generation, record->len, record->name };

			if (record->dir)
				ret = fn(ctx, &found);
			if (!ret || ret == 2)
				cursor->order = record->order;
			if (ret)
				return ret;
		}
		while (at < batch->used && batch_at(batch, at)->hash == hash)
			at += record_size(batch_at(batch, at)->len);
	}
	*cursor = (struct parent_cursor){ .hash = batch->more ? batch->next : U64_MAX };
	return 0;
}

/* ---- the names of an inode ---- */

/* Is all of its names in the tree?  *delta: when the last of them was changed. */
static bool names_settled(struct tux3_inode *inode, u64 *delta)
{
	spin_lock(&inode->lock);
	*delta = inode->names_delta;
	spin_unlock(&inode->lock);
	return *delta <= READ_ONCE(inode->vol->delta.committed);
}

static int batch_read(struct parent_batch *batch, struct tux3_inode *inode, u64 hash)
{
	struct volume *vol = batch->vol;
	u64 before, after;
	u32 tries;
	int err;

	for (tries = 0; tries < PARENT_TRIES; tries++) {
		if (!names_settled(inode, &before)) {
			err = delta_commit(vol);
			if (err)
				return err;
			continue;
		}
		err = batch_scan(batch, inode->ino, hash);
		if (err)
			return err;
		names_settled(inode, &after);
		if (after == before)
			return 0;
	}
	err = delta_lock_killable(vol);
	if (!err) {
		err = batch_scan(batch, inode->ino, hash);
		delta_unlock(vol);
	}
	return err;
}

int parent_iterate(struct tux3_inode *inode, struct parent_cursor *cursor, parent_fn fn, void *ctx)
{
	struct parent_batch batch;
	int ret = batch_init(&batch, inode->vol);

	if (ret)
		return ret;
	do {
		ret = batch_read(&batch, inode, cursor->hash);
		if (!ret)
			ret = batch_tell(&batch, cursor, fn, ctx);
	} while (!ret && batch.more);
	batch_exit(&batch);
	return ret;
}

/* ---- paths ---- */

struct path_search {
	struct path_text text;
	u64 dir;
	int err;
};

static int search_take(void *ctx, const struct parent_found *found)
{
	struct path_search *search = ctx;

	search->err = path_prepend(&search->text, found->name, found->len);
	search->dir = found->dir;
	return 2;
}

/* As the tree has it.  1: there is one, and search->text is it. */
static int search_path(struct parent_batch *batch, u64 ino, struct parent_cursor *cursor, struct path_search *search)
{
	int ret;

	if (ino == TUX3_INO_ROOT) {
		if (cursor->hash)
			return 0;
		cursor->hash = U64_MAX;
		ret = path_prepend(&search->text, "", 0);
		return ret ? ret : 1;
	}
	do {
		ret = batch_scan(batch, ino, cursor->hash);
		if (!ret)
			ret = batch_tell(batch, cursor, search_take, search);
	} while (!ret && batch->more);
	if (ret <= 0)
		return ret;
	ret = search->err ? search->err : path_above(batch->vol, &search->text, &search->dir);
	return ret == -ENOENT ? -EUCLEAN : ret ? ret : 1;
}

static int search_inode(struct parent_batch *batch, u64 ino, u32 generation, struct parent_cursor *cursor,
			struct path_search *search)
{
	struct disk_attr attr;
	int err = read_attr(batch->vol, ino, &attr);

	if (err == -ENOENT || (!err && (!attr.nlink || (generation && le32_to_cpu(attr.generation) != generation))))
		return -ESTALE;
	return err ? err : search_path(batch, ino, cursor, search);
}

/* It is looked for twice: the first time to have all in memory, the second while nothing is applied to the tree. */
int parent_path(struct volume *vol, u64 ino, u32 generation, struct parent_cursor *cursor, char *text, size_t size)
{
	struct path_search search = { .text = { text, size - 1 } };
	struct parent_cursor start = *cursor;
	struct parent_batch batch;
	int ret = start.hash || READ_ONCE(vol->read_only) ? 0 : delta_commit(vol), len;

	if (!ret)
		ret = batch_init(&batch, vol);
	if (ret)
		return ret;
	search_inode(&batch, ino, generation, cursor, &search);
	*cursor = start;
	search = (struct path_search){ .text = { text, size - 1 } };
	ret = delta_lock_killable(vol);
	if (!ret) {
		ret = search_inode(&batch, ino, generation, cursor, &search);
		delta_unlock(vol);
	}
	batch_exit(&batch);
	if (ret <= 0)
		return ret;
	len = size - 1 - search.text.at;
	memmove(text, text + search.text.at, len);
	text[len] = 0;
	return len;
}
