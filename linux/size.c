// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Changing the size and the allocation of a file: truncate, and the modes of fallocate.
 *
 * Each is one delta (a long preallocation several), made of
 *
 *	edges	single blocks that get dirty, perhaps with some of their bytes zeroed
 *	a hole	blocks that are removed.  Their folios leave the page cache after the delta, for that means waiting.
 *		A large folio that reaches beyond the hole is *kept*: inside the delta its blocks in the hole are
 *		zeroed, without getting dirty, after the back delta has got private copies of those it still needs.
 *		(Generic code would zero such a folio without asking the back end, and drop it when it is clean; but it
 *		may hold what is not in the tree yet.)
 *
 * Cached blocks hold zeros beyond the end of the file, but for what is stored there through a mapping.  On the disk
 * they need not; who moves the end forward makes the block it was in dirty, and zeroes it from the old end on.  That
 * is also what pagecache_isize_extended() is for, so it is not called: blocks are never smaller than pages.
 *
 * Locking: i_rwsem exclusively.  Who makes a hole also holds mapping->invalidate_lock exclusively, from before it
 * looks at the page cache until that is truncated: so nothing is read there or made writable meanwhile.
 */
#include <linux/fs.h>
#include <linux/falloc.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include "linux/folio.h"
#include "core/names/ops.h"

#define EDGES_MAX 4u

struct resize_edge {
	u64 block;
	u32 from, to;		/* bytes to zero */
	u32 part;
};

struct resize_keep {
	struct folio_part part;
	u64 from, to;		/* bytes to zero, in the file */
};

struct resize {
	struct tux3_node *node;
	struct inode *inode;
	u32 shift;
	u32 flags;		/* TUX3_ATTR_... before */
	u64 size;		/* before */
	const struct tux3_attr *attr;	/* what is to be set in the same delta */
	u32 set;		/* OP_ATTR_...: of it */
	u64 cost;
	u64 first, stop;	/* blocks to be removed: [first, stop) */
	u64 lo, hi;		/* of these bytes the folios leave the page cache */
	u32 edges, parts, keeps;
	struct resize_edge edge[EDGES_MAX];
	struct folio_part part[EDGES_MAX];
	struct resize_keep keep[3];
};

static void resize_init(struct resize *resize, struct inode *inode)
{
	resize->node = node_of(inode);
	resize->inode = inode;
	resize->shift = vol_of(inode)->block_shift;
	resize->flags = READ_ONCE(resize->node->core.attr.flags);
	resize->size = i_size_read(inode);
	resize->first = resize->stop = resize->lo = resize->hi = 0;
	resize->edges = resize->parts = resize->keeps = 0;
	resize->attr = NULL;
	resize->set = 0;
}

static void part_exit(struct folio_part *part)
{
	folio_change_cancel(part);
	folio_put(part->folio);
}

static void resize_exit(struct resize *resize)
{
	while (resize->parts)
		part_exit(&resize->part[--resize->parts]);
	while (resize->keeps)
		part_exit(&resize->keep[--resize->keeps].part);
}

/* ---- edges ---- */

/* Takes over the reference. */
static u32 resize_part(struct resize *resize, struct folio *folio, u64 block)
{
	u64 bit = folio_mask(block - folio_block(resize->node, folio), 1);
	struct folio_part *part;
	u32 i;

	for (i = 0; i < resize->parts; i++) {
		if (resize->part[i].folio == folio) {
			resize->part[i].mask |= bit;
			folio_put(folio);
			return i;
		}
	}
	part = &resize->part[resize->parts];
	part->folio = folio;
	part->mask = bit;
	part->state = NULL;
	part->spare = NULL;
	return resize->parts++;
}

/* This block will be dirty, with these bytes zeroed; unless it is a hole and even_hole is not set. */
static int resize_add_edge(struct resize *resize, u64 block, u32 from, u32 to, bool even_hole)
{
	struct resize_edge *edge;
	struct folio *folio;
	u32 i;

	/* Two edges in one block are two ranges to zero; the block is dirty anyway. */
	for (i = 0; i < resize->edges; i++)
		if (resize->edge[i].block == block && from == to)
			return 0;
	folio = file_get_block(resize->node, block, even_hole);
	if (IS_ERR_OR_NULL(folio))
		return PTR_ERR_OR_ZERO(folio);
	edge = &resize->edge[resize->edges++];
	edge->block = block;
	edge->from = from;
	edge->to = to;
	edge->part = resize_part(resize, folio, block);
	return 0;
}

/* What every operation here that changes the data or the size must make dirty. */
static int resize_rules(struct resize *resize, u64 new_size)
{
	u32 mask = (1u << resize->shift) - 1;
	int err = 0;

	/* An empty file has no data to keep: a truncate took it, perhaps in this delta, when the flag still stands. */
	if (new_size && file_maybe_inline(resize->node, &resize->node->core.attr))
		err = resize_add_edge(resize, 0, 0, 0, resize->flags & TUX3_ATTR_INLINE);
	if (!err && new_size > resize->size && resize->size & mask)
		err = resize_add_edge(resize, resize->size >> resize->shift, resize->size & mask, mask + 1, false);
	return err;
}

static u64 edges_cost(struct resize *resize, u32 blocks)
{
	return blocks ? space_cost_data(resize->node->core.vol, blocks, blocks) : 0;
}

/* ---- holes ---- */

/* The folio that has this block, up to date, or NULL.  It stays in the cache; what of it is in the hole is unmapped. */
static struct folio *resize_get_cached(struct resize *resize, u64 block)
{
	struct address_space *mapping = resize->inode->i_mapping;
	struct folio *folio = filemap_lock_folio(mapping, (block << resize->shift) >> PAGE_SHIFT);
	u64 start, stop;

	if (IS_ERR(folio))
		return NULL;
	start = max(folio_block(resize->node, folio), resize->first);
	stop = min(folio_block(resize->node, folio) + folio_blocks(resize->node, folio), resize->stop);
	/* With the folio lock, or a fault that is about to map the page could do so afterwards. */
	if (start < stop)
		unmap_mapping_range(mapping, start << resize->shift, (stop - start) << resize->shift, 0);
	if (!folio_test_uptodate(folio)) {
		folio_unlock(folio);
		folio_put(folio);
		return NULL;
	}
	folio_unlock(folio);
	return folio;
}

static void resize_add_keep(struct resize *resize, struct folio *folio, u64 mask, u64 from, u64 to)
{
	struct resize_keep *keep = &resize->keep[resize->keeps++];

	folio_get(folio);
	keep->part.folio = folio;
	keep->part.mask = mask;
	keep->part.state = NULL;
	keep->part.spare = NULL;
	keep->from = from;
	keep->to = to;
}

/* If the folio of this block, which is in the hole, reaches beyond the hole: keep it. */
static void resize_straddle(struct resize *resize, u64 block)
{
	struct folio *folio = resize_get_cached(resize, block);
	u64 start, stop, from, to;

	if (!folio)
		return;
	start = folio_block(resize->node, folio);
	stop = start + folio_blocks(resize->node, folio);
	if (start < resize->first || stop > resize->stop) {
		from = max(start, resize->first);
		to = min(stop, resize->stop);
		resize_add_keep(resize, folio, folio_mask(from - start, to - from), from << resize->shift,
				to << resize->shift);
		if (start < resize->first)
			resize->lo = stop << resize->shift;
		if (stop > resize->stop)
			resize->hi = start << resize->shift;
	}
	folio_put(folio);
}

/* Blocks [first, stop) are to be removed. */
static void resize_hole(struct resize *resize, u64 first, u64 stop)
{
	if (first >= stop)
		return;
	resize->first = first;
	resize->stop = stop;
	resize->lo = first << resize->shift;
	resize->hi = stop << resize->shift;
	if (first)
		resize_straddle(resize, first);
	if (resize->lo < resize->hi && stop <= TUX3_SIZE_MAX >> resize->shift)
		resize_straddle(resize, stop - 1);
}

/*
 * The bytes of the block with the new end that are beyond it are zeroed.  That does not make it dirty; but a block
 * that is dirty somewhere stays so, for a page that is mapped for writing must be dirty in the front delta or not
 * changed yet by the back end.
 */
static int resize_tail(struct resize *resize, u64 size)
{
	u32 mask = (1u << resize->shift) - 1;
	u64 block = size >> resize->shift;
	struct folio *folio;

	if (!(size & mask))
		return 0;
	if (folio_block_dirty(resize->node, block))
		return resize_add_edge(resize, block, size & mask, mask + 1, false);
	folio = resize_get_cached(resize, block);
	if (!folio)
		return 0;
	resize_add_keep(resize, folio, 0, size, (block + 1) << resize->shift);
	folio_put(folio);
	return 0;
}

/* ---- the delta ---- */

static int resize_prepare(struct resize *resize)
{
	int err = 0;
	u32 i;

	for (i = 0; i < resize->parts && !err; i++)
		err = folio_change_prepare(resize->node, &resize->part[i], false);
	for (i = 0; i < resize->keeps && !err; i++)
		if (resize->keep[i].part.mask)
			err = folio_change_prepare(resize->node, &resize->keep[i].part, false);
	return err;
}

/* Returns how many blocks were not dirty before. */
static int resize_begin(struct resize *resize, struct delta_op *op)
{
	int err = 0;
	u32 i;

	/* Copies alone first: they do no harm if we have to leave again. */
	for (i = 0; i < resize->keeps && !err; i++)
		if (resize->keep[i].part.mask)
			err = folio_keep_old(op, resize->node, &resize->keep[i].part);
	if (err || !resize->parts)
		return err;
	return folio_change_begin(op, resize->node, resize->part, resize->parts);
}

static int resize_enter(struct resize *resize, struct delta_op *op, u64 cost, unsigned int flags)
{
	int got;

	cost += attr_apply_cost(resize->node->core.vol, resize->set);
	resize->cost = cost + edges_cost(resize, resize->edges);
	for (;;) {
		got = resize_prepare(resize);
		if (!got)
			got = delta_enter(resize->node->core.vol, op, resize->cost, flags);
		if (got)
			return got;
		got = resize_begin(resize, op);
		if (got >= 0) {
			if (got < resize->edges)
				delta_refund(op, resize->cost, cost + edges_cost(resize, got));
			return 0;
		}
		delta_refund(op, resize->cost, 0);
		delta_leave(op);
		if (got != -EAGAIN)
			return got;
	}
}

static void resize_zero(struct resize *resize)
{
	u32 i;

	for (i = 0; i < resize->edges; i++) {
		struct resize_edge *edge = &resize->edge[i];
		struct folio *folio = resize->part[edge->part].folio;
		size_t start = (edge->block - folio_block(resize->node, folio)) << resize->shift;

		if (edge->from < edge->to)
			folio_zero_segment(folio, start + edge->from, start + edge->to);
	}
	for (i = 0; i < resize->keeps; i++) {
		struct resize_keep *keep = &resize->keep[i];
		u64 start = folio_pos(keep->part.folio);

		folio_zero_segment(keep->part.folio, keep->from - start, keep->to - start);
	}
}

static void resize_attr(struct resize *resize, struct delta_op *op, u64 size)
{
	struct tux3_inode *inode = &resize->node->core;
	struct tux3_time now = inode_now(inode->vol);
	struct tux3_attr *attr = inode_change_begin(op, inode);

	attr->mtime = attr->ctime = now;
	inode_set_mtime_to_ts(resize->inode, time_to_vfs(now));
	inode_set_ctime_to_ts(resize->inode, time_to_vfs(now));
	attr_apply(attr, resize->attr, resize->set);
	node_set_mode(resize->node, attr);
	attr->size = size;
	i_size_write(resize->inode, size);
	inode_change_end(inode);
}

static void resize_leave(struct resize *resize, struct delta_op *op)
{
	if (resize->parts)
		folio_change_end(resize->node, resize->part, resize->parts);
	delta_leave(op);
}

/* The delta of a truncate or a punch: count blocks from first on go (DATA_END: all). */
static int resize_remove(struct resize *resize, u64 first, u64 count, u64 new_size)
{
	struct tux3_node *node = resize->node;
	struct delta_op op;
	int err = resize_enter(resize, &op, space_cost_items(node->core.vol, 3), DELTA_FREES);

	if (err)
		return err;
	if (count)
		err = data_remove(&op, &node->core, first, count);
	if (!err) {
		resize_attr(resize, &op, new_size);
		resize_zero(resize);
		if (count)
			folio_forget_dirty(&op, node, first, count);
	}
	resize_leave(resize, &op);
	return err;
}

/* ---- truncate ---- */

static int truncate_up(struct resize *resize, u64 size)
{
	struct delta_op op;
	int err = resize_rules(resize, size);

	if (!err)
		err = resize_enter(resize, &op, space_cost_items(resize->node->core.vol, 1), 0);
	if (err)
		return err;
	resize_zero(resize);
	resize_attr(resize, &op, size);
	resize_leave(resize, &op);
	return 0;
}

static int truncate_down(struct resize *resize, u64 size)
{
	struct address_space *mapping = resize->inode->i_mapping;
	u64 first = DIV_ROUND_UP_ULL(size, 1u << resize->shift);
	int err;

	filemap_invalidate_lock(mapping);
	resize_hole(resize, first, (TUX3_SIZE_MAX >> resize->shift) + 1);
	err = resize_tail(resize, size);
	/* To nothing: what is inline goes with all the rest. */
	if (!err && size)
		err = resize_rules(resize, size);
	if (!err)
		err = resize_remove(resize, first, DATA_END, size);
	if (!err) {
		/* Pages of a folio that is kept may have been mapped again until the size changed. */
		if (round_up(size, PAGE_SIZE) != resize->lo)
			unmap_mapping_range(mapping, round_up(size, PAGE_SIZE), 0, 1);
		truncate_pagecache(resize->inode, resize->lo);
	}
	filemap_invalidate_unlock(mapping);
	return err ? err : data_cut_wait(&resize->node->core);
}

int file_truncate(struct inode *inode, loff_t size, const struct tux3_attr *attr, u32 set)
{
	struct resize resize;
	int err;

	/* The VFS refuses to make it shorter; longer, its last block might be written again, elsewhere. */
	if (test_bit(NODE_SWAP, &node_of(inode)->flags))
		return -ETXTBSY;
	resize_init(&resize, inode);
	resize.attr = attr;
	resize.set = set;
	/* To the size it has: what is preallocated behind it goes, as with other file systems. */
	if ((u64)size < resize.size || ((u64)size == resize.size && resize.flags & TUX3_ATTR_PREALLOC))
		err = truncate_down(&resize, size);
	else
		err = truncate_up(&resize, size);
	resize_exit(&resize);
	return err;
}

/* ---- fallocate ---- */

/*
 * One delta: at most DATA_BATCH_MAX blocks.  All of them are named to the core, which fills what is a
 * hole when it commits: that is no more than what was counted, since only this thread changes the file but for faults,
 * which pay for themselves.
 */
static int alloc_batch(struct inode *inode, u64 block, u64 count, u64 new_size)
{
	struct resize resize;
	struct delta_op op;
	struct data_count counts;
	int err;

	resize_init(&resize, inode);
	new_size = max(new_size, resize.size);
	err = data_look_count(&resize.node->core, block, count, &counts);
	if (err || (!counts.holes && new_size == resize.size))
		goto out;
	err = resize_rules(&resize, new_size);
	if (!err)
		err = resize_enter(&resize, &op, space_cost_prealloc(vol_of(inode), counts.holes), 0);
	if (err)
		goto out;
	if (counts.holes)
		err = data_prealloc(&op, &resize.node->core, block, count, counts.holes);
	if (!err) {
		resize_zero(&resize);
		resize_attr(&resize, &op, new_size);
	}
	resize_leave(&resize, &op);
out:
	resize_exit(&resize);
	return err;
}

/* In batches; on ENOSPC in smaller ones.  What was allocated by then stays, as with other file systems. */
static int alloc_range(struct inode *inode, u64 offset, u64 end, bool keep_size)
{
	u32 shift = vol_of(inode)->block_shift, max = DATA_BATCH_MAX;
	u64 block = offset >> shift, last = (end - 1) >> shift, count;
	int err;

	while (block <= last) {
		count = min_t(u64, max, last - block + 1);
		err = alloc_batch(inode, block, count, keep_size ? 0 : min(end, (block + count) << shift));
		if (err == -ENOSPC && max > 1) {
			max /= 2;
			continue;
		}
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
		if (err)
			return err;
		block += count;
		cond_resched();
	}
	return 0;
}

/* Zero what the range has of blocks at its edges, remove the blocks between. */
static int punch(struct resize *resize, u64 offset, u64 end)
{
	u32 shift = resize->shift, mask = (1u << shift) - 1;
	u64 first = offset >> shift, stop = end >> shift;	/* whole blocks: [first, stop) */
	int err = 0;

	if (first == stop) {
		err = resize_add_edge(resize, first, offset & mask, end & mask, false);
	} else {
		/* Inline data is no block that could be removed. */
		if (offset & mask || (!first && file_maybe_inline(resize->node, &resize->node->core.attr)))
			err = resize_add_edge(resize, first++, offset & mask, mask + 1, false);
		if (!err && end & mask)
			err = resize_add_edge(resize, stop, 0, end & mask, false);
	}
	if (!err)
		err = resize_rules(resize, resize->size);
	if (err)
		return err;
	resize_hole(resize, first, stop);
	err = resize_remove(resize, first, stop - first, resize->size);
	if (!err && resize->lo < resize->hi)
		truncate_pagecache_range(resize->inode, resize->lo, resize->hi - 1);
	return err;
}

static int punch_range(struct inode *inode, u64 offset, u64 end)
{
	struct resize resize;
	int err;

	filemap_invalidate_lock(inode->i_mapping);
	resize_init(&resize, inode);
	err = punch(&resize, offset, end);
	resize_exit(&resize);
	filemap_invalidate_unlock(inode->i_mapping);
	return err;
}

static int fallocate_locked(struct inode *inode, int mode, u64 offset, u64 end)
{
	bool keep_size = mode & FALLOC_FL_KEEP_SIZE;
	int err = 0;

	if (!keep_size && end > i_size_read(inode))
		err = inode_newsize_ok(inode, end);
	if (err)
		return err;
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		err = punch_range(inode, offset, end);
	if (err || mode & FALLOC_FL_PUNCH_HOLE)
		return err;
	return alloc_range(inode, offset, end, keep_size);
}

/* The VFS has looked at permissions, and at which modes go together. */
long file_fallocate(struct file *file, int mode, loff_t offset, loff_t len)
{
	struct inode *inode = file_inode(file);
	int err, end;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	inode_lock(inode);
	err = node_remove_privs(file);
	if (!err)
		err = fallocate_locked(inode, mode, offset, (u64)offset + len);
	end = node_remove_privs_end(inode);
	if (!err)
		err = end;
	inode_unlock(inode);
	if (!err && (file->f_flags & O_DSYNC || IS_SYNC(inode)))
		err = file_fsync(file, 0, LLONG_MAX, 0);
	return err;
}
