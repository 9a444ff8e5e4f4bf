// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where a file has data, as SEEK_DATA, SEEK_HOLE, FIEMAP and fallocate want to know it: the newest state, cached data
 * that is not committed included.  Both hosts ask here, so that the order in which things are looked at is one:
 *
 *	1. what is dirty in the host's cache
 *	2. ranges removed and preallocated in the deltas that are not committed, and the inline flag: under one lock
 *	3. the tree; or the remap, which overrides 2 and 3
 *
 * Each of these passes what it had on to the next ones before it forgets it: a commit brings data to the tree, then
 * its ranges leave their slots, then its blocks turn clean.  So what an earlier one does not have any more, a later
 * one has already.  (Asked in the other order, the tree does not have it yet and the cache does not have it any more:
 * data looks like a hole, and who copies sparsely loses it.)
 *
 * Within 2 the newer delta comes first: what it removed is gone, whatever the older one preallocated.  Preallocated
 * ranges fill only what is a hole.
 *
 * The caller holds the file's lock, shared at least, for the whole walk: then only the back end changes things, and a
 * block that was found dirty or clean stays what it was found to be: data remains data, and what is clean is not moved.
 * So the walk asks for each part of the file once, and never starts again from the beginning.
 *
 * A walk that ends early (seek) should not have looked for dirty blocks through all of a large cache.  So the cache is
 * asked about a window, which grows as the walk goes on.
 */
#include "core/volume.h"
#include "core/inode/file_range.h"
#include "core/data/data.h"
#include "core/data/remap.h"

#define LOOK_WINDOW	512u	/* blocks of which the cache is asked at first */
#define LOOK_GROWTH	8u

void data_look_begin(struct data_look *look, struct tux3_inode *inode, u64 block, u64 end)
{
	memset(look, 0, sizeof(*look));
	look->inode = inode;
	look->next = block;
	look->end = end;
	look->window = LOOK_WINDOW;
	look->known = block;
	look->dirty = look->dirty_end = block;
}

/* Makes sure that for look->next it is known whether it is dirty. */
static void look_cache(struct data_look *look)
{
	u64 count;

	if (look->next < look->known)
		return;
	look->known = look->end - look->next > look->window ? look->next + look->window : look->end;
	if (look->window <= DATA_END / LOOK_GROWTH)
		look->window *= LOOK_GROWTH;
	if (look->inode->vol->host->data_dirty(look->inode, look->next, look->known, &look->dirty, &count)) {
		look->dirty_end = look->dirty + count;
		look->known = look->dirty_end;
	} else {
		look->dirty = look->dirty_end = look->known;
	}
}

/* What deltas that are not committed did to this block besides writing to it, for up to look->count blocks. */
static void look_slots(struct data_look *look, bool *removed, bool *prealloc, bool *is_inline)
{
	struct tux3_inode *inode = look->inode;
	/*
	 * If it moves now, then one of the slots is empty: a delta becomes the back one when the one before it has gone,
	 * and who holds the file's lock keeps the next one from changing the file.
	 */
	unsigned int front = READ_ONCE(inode->vol->delta.front), i;
	u64 here;

	*removed = *prealloc = false;
	spin_lock(&inode->lock);
	for (i = 0; i < 2 && !*removed; i++) {
		struct inode_slot *slot = &inode->slot[(front + i) & 1];

		*prealloc |= file_ranges_find(&slot->prealloc, look->block, &here);
		look->count = min(look->count, here);
		*removed = file_ranges_find(&slot->removed, look->block, &here);
		look->count = min(look->count, here);
	}
	*is_inline = !*removed && inode->attr.flags & TUX3_ATTR_INLINE;
	spin_unlock(&inode->lock);
}

static int look_tree(struct data_look *look)
{
	struct data_extent extent = { .block = look->block, .count = look->count };
	int err = data_map_tree(look->inode, &extent, NULL, 0);

	look->kind = extent.kind;
	look->addr = extent.kind == DATA_HOLE ? 0 : extent.addr;
	look->count = extent.count;
	return err;
}

/* Who gets the lock of the file while it has a remap comes after a commit that failed: the remap is what its ranges have. */
static bool look_remap(struct data_look *look)
{
	struct data_extent extent = { .block = look->block, .count = look->count };
	bool found = data_remap_look(look->inode, &extent, NULL, 0);

	look->count = extent.count;
	if (!found)
		return false;
	look->kind = extent.kind;
	look->addr = extent.addr;
	return true;
}

static int look_clean(struct data_look *look)
{
	bool removed, prealloc, is_inline;
	int err = 0;

	if (unlikely(READ_ONCE(look->inode->remap)) && look_remap(look))
		return 0;
	look->kind = DATA_HOLE;
	look_slots(look, &removed, &prealloc, &is_inline);
	if (is_inline && !look->block) {
		look->kind = DATA_INLINE;
		look->count = 1;
	} else if (!removed && !is_inline) {
		err = look_tree(look);
	}
	if (look->kind == DATA_HOLE && prealloc) {
		look->kind = DATA_UNWRITTEN;
		look->delayed = true;
	}
	return err;
}

int data_look_next(struct data_look *look)
{
	int err = 0;

	if (look->next >= look->end)
		return 0;
	look_cache(look);
	look->block = look->next;
	look->addr = 0;
	look->delayed = look->block >= look->dirty && look->block < look->dirty_end;
	if (look->delayed) {
		look->kind = DATA_MAPPED;
		look->count = look->dirty_end - look->block;
	} else {
		look->count = (look->block < look->dirty ? look->dirty : look->known) - look->block;
		err = look_clean(look);
	}
	look->next = look->block + look->count;
	return err ? err : 1;
}

/* What is preallocated and was never written is a hole. */
static bool look_is_data(const struct data_look *look)
{
	return look->kind == DATA_MAPPED || look->kind == DATA_INLINE;
}

s64 data_seek(struct tux3_inode *inode, u64 size, u64 offset, bool hole)
{
	u32 shift = inode->vol->block_shift;
	struct data_look look;
	int got;

	if (offset >= size)
		return -ENXIO;
	data_look_begin(&look, inode, offset >> shift, ((size - 1) >> shift) + 1);
	while ((got = data_look_next(&look)) > 0) {
		if (look_is_data(&look) != hole)
			return max(offset, look.block << shift);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	if (got < 0)
		return got;
	return hole ? (s64)size : -ENXIO;
}

int data_look_count(struct tux3_inode *inode, u64 block, u64 count, struct data_count *counts)
{
	struct data_look look;
	int got;

	memset(counts, 0, sizeof(*counts));
	data_look_begin(&look, inode, block, block + count);
	while ((got = data_look_next(&look)) > 0) {
		if (look.kind == DATA_HOLE)
			counts->holes += look.count;
		else if (look.kind == DATA_UNWRITTEN)
			counts->unwritten += look.count;
		else if (look.delayed)
			counts->dirty += look.count;
		counts->promised += look.kind == DATA_UNWRITTEN && look.delayed ? look.count : 0;
		cond_resched();
	}
	return got;
}
