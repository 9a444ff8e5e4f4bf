// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Changing the size and the allocation of a file: truncate, and the modes of fallocate.
 *
 * What each of them does, and what it costs, is said in core's data_change.h; here it is done to folios.
 *
 *	edges	blocks that get dirty, perhaps with some of their bytes zeroed: parts, as in folio.h
 *	a hole	blocks that are removed.  Their folios leave the page cache after the delta, for that means waiting.
 *		A large folio that reaches beyond the hole is *kept*: inside the delta its blocks in the hole are
 *		zeroed, without getting dirty, after the back delta has got private copies of those it still needs.
 *		(Generic code would zero such a folio without asking the back end, and drop it when it is clean; but it
 *		may hold what is not in the tree yet.)
 *
 * Cached blocks hold zeros beyond the end of the file, but for what is stored there through a mapping.  So who moves the
 * end forward zeroes the block it was in from the old end on; that is also what pagecache_isize_extended() is for, so it
 * is not called: blocks are never smaller than pages.
 *
 * Locking: i_rwsem exclusively.  Who makes a hole also holds mapping->invalidate_lock exclusively, from before it
 * looks at the page cache until that is truncated: so nothing is read there or made writable meanwhile.
 */
#include <linux/fs.h>
#include <linux/falloc.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include "core/data/data_change.h"
#include "linux/folio.h"
#include "core/names/ops.h"

struct resize_keep {
	struct folio_part part;
	u64 from, to;		/* bytes to zero, in the file */
};

struct resize {
	struct data_change change;
	struct tux3_node *node;
	struct inode *inode;
	u32 shift;
	u64 lo, hi;		/* of these bytes the folios leave the page cache */
	u32 parts, keeps;
	u32 part_of[DATA_EDGES_MAX];	/* edges */
	struct folio_part part[DATA_EDGES_MAX];
	struct resize_keep keep[3];
};

static struct resize *resize_of(struct data_change *change)
{
	return container_of(change, struct resize, change);
}

static void part_exit(struct folio_part *part)
{
	folio_change_cancel(part);
	folio_put(part->folio);
}

static void resize_put(struct resize *resize)
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

static int resize_get_edge(struct data_change *change, u32 i)
{
	struct resize *resize = resize_of(change);
	struct folio *folio = file_get_block(resize->node, change->edge[i].block, change->edge[i].even_hole);

	if (IS_ERR_OR_NULL(folio))
		return PTR_ERR_OR_ZERO(folio);
	resize->part_of[i] = resize_part(resize, folio, change->edge[i].block);
	return 1;
}

/* ---- holes ---- */

/* Where the hole ends: no folio is beyond the largest file. */
static u64 resize_stop(const struct resize *resize)
{
	const struct data_change *change = &resize->change;

	return change->hole_count == DATA_END ? (TUX3_SIZE_MAX >> resize->shift) + 1 : change->hole + change->hole_count;
}

/* The folio that has this block, up to date, or NULL.  It stays in the cache; what of it is in the hole is unmapped. */
static struct folio *resize_get_cached(struct resize *resize, u64 block)
{
	struct address_space *mapping = resize->inode->i_mapping;
	struct folio *folio = filemap_lock_folio(mapping, (block << resize->shift) >> PAGE_SHIFT);
	u64 start, stop;

	if (IS_ERR(folio))
		return NULL;
	start = max(folio_block(resize->node, folio), resize->change.hole);
	stop = min(folio_block(resize->node, folio) + folio_blocks(resize->node, folio), resize_stop(resize));
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
	u64 first = resize->change.hole, end = resize_stop(resize), start, stop, from, to;

	if (!folio)
		return;
	start = folio_block(resize->node, folio);
	stop = start + folio_blocks(resize->node, folio);
	if (start < first || stop > end) {
		from = max(start, first);
		to = min(stop, end);
		resize_add_keep(resize, folio, folio_mask(from - start, to - from), from << resize->shift,
				to << resize->shift);
		if (start < first)
			resize->lo = stop << resize->shift;
		if (stop > end)
			resize->hi = start << resize->shift;
	}
	folio_put(folio);
}

static void resize_hole(struct resize *resize)
{
	u64 first = resize->change.hole, stop = resize_stop(resize);

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
static void resize_tail(struct resize *resize)
{
	u64 size = resize->change.new_size, block = size >> resize->shift;
	u32 tail = data_change_tail(&resize->change);
	struct folio *folio;

	if (!tail)
		return;
	if (folio_block_dirty(resize->node, block)) {
		data_change_add_edge(&resize->change, block, tail, 1u << resize->shift, false);
		return;
	}
	folio = resize_get_cached(resize, block);
	if (!folio)
		return;
	resize_add_keep(resize, folio, 0, size, (block + 1) << resize->shift);
	folio_put(folio);
}

static int resize_open(struct data_change *change)
{
	struct resize *resize = resize_of(change);
	int err;

	resize->parts = resize->keeps = 0;
	resize->lo = resize->hi = 0;
	if (data_change_removes(change))
		filemap_invalidate_lock(resize->inode->i_mapping);
	resize_tail(resize);
	err = data_change_edges(change, resize_get_edge);
	/* After that, for what edges bring into the cache may reach into the hole. */
	if (!err && change->hole_count)
		resize_hole(resize);
	return err;
}

/* ---- the delta ---- */

static int resize_prepare(struct data_change *change)
{
	struct resize *resize = resize_of(change);
	int err = 0;
	u32 i;

	for (i = 0; i < resize->parts && !err; i++)
		err = folio_change_prepare(resize->node, &resize->part[i], false, GFP_KERNEL);
	for (i = 0; i < resize->keeps && !err; i++)
		if (resize->keep[i].part.mask)
			err = folio_change_prepare(resize->node, &resize->keep[i].part, false, GFP_KERNEL);
	return err;
}

static int resize_begin(struct data_change *change, struct delta_op *op)
{
	struct resize *resize = resize_of(change);
	int err = 0;
	u32 i;

	/* Copies alone first: they do no harm if we have to leave again. */
	for (i = 0; i < resize->keeps && !err; i++)
		if (resize->keep[i].part.mask)
			err = folio_keep_old(op, resize->node, &resize->keep[i].part);
	if (err || !resize->parts)
		return err;
	return folio_change_begin(op, resize->node, resize->part, resize->parts, false);
}

static void resize_apply(struct data_change *change, struct delta_op *op)
{
	struct resize *resize = resize_of(change);
	u32 i;

	for (i = 0; i < change->edges; i++) {
		struct data_edge *edge = &change->edge[i];
		struct folio *folio = resize->part[resize->part_of[i]].folio;
		size_t start = (edge->block - folio_block(resize->node, folio)) << resize->shift;

		if (edge->from < edge->to)
			folio_zero_segment(folio, start + edge->from, start + edge->to);
	}
	for (i = 0; i < resize->keeps; i++) {
		struct resize_keep *keep = &resize->keep[i];
		u64 start = folio_pos(keep->part.folio);

		folio_zero_segment(keep->part.folio, keep->from - start, keep->to - start);
	}
	if (change->hole_count)
		folio_forget_dirty(op, resize->node, change->hole, change->hole_count);
}

static void resize_attr(struct data_change *change, struct tux3_attr *attr)
{
	node_show_change(resize_of(change)->node, attr);
}

static void resize_end(struct data_change *change)
{
	struct resize *resize = resize_of(change);

	folio_change_end(resize->node, resize->part, resize->parts);
}

static void resize_close(struct data_change *change, int err)
{
	struct resize *resize = resize_of(change);
	struct inode *inode = resize->inode;
	u64 page = round_up(change->new_size, PAGE_SIZE);

	if (!err && change->hole_count == DATA_END) {
		/* Pages of a folio that is kept may have been mapped again until the size changed. */
		if (page != resize->lo)
			unmap_mapping_range(inode->i_mapping, page, 0, 1);
		truncate_pagecache(inode, resize->lo);
	} else if (!err && resize->lo < resize->hi) {
		truncate_pagecache_range(inode, resize->lo, resize->hi - 1);
	}
	resize_put(resize);
	if (data_change_removes(change))
		filemap_invalidate_unlock(inode->i_mapping);
}

static const struct data_change_ops resize_ops = {
	.open = resize_open,
	.prepare = resize_prepare,
	.begin = resize_begin,
	.apply = resize_apply,
	.attr = resize_attr,
	.end = resize_end,
	.close = resize_close,
};

static void resize_init(struct resize *resize, struct inode *inode)
{
	resize->node = node_of(inode);
	resize->inode = inode;
	resize->shift = vol_of(inode)->block_shift;
	data_change_init(&resize->change, &resize->node->core, &resize_ops);
}

int file_truncate(struct inode *inode, loff_t size, const struct tux3_attr *attr, u32 set)
{
	struct resize resize;
	int err;

	/* The VFS refuses to make it shorter; longer, its last block might be written again, elsewhere. */
	if (test_bit(NODE_SWAP, &node_of(inode)->flags))
		return -ETXTBSY;
	do {
		resize_init(&resize, inode);
		resize.change.attr = attr;
		resize.change.set = set;
		err = data_truncate(&resize.change, size);
	} while (err == -ESTALE);	/* a folio has left the page cache before it was dirty (folio.h) */
	return err;
}

int file_set_apart(struct inode *inode)
{
	struct resize resize;
	int err;

	do {
		resize_init(&resize, inode);
		err = data_set_apart(&resize.change);
	} while (err == -ESTALE);
	return err;
}

/* ---- fallocate ---- */

static int fallocate_locked(struct inode *inode, int mode, u64 offset, u64 end)
{
	unsigned int what = mode & FALLOC_FL_KEEP_SIZE ? DATA_KEEP_SIZE : 0;
	struct resize resize;
	int err;

	if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE))
		return file_shift(inode, mode & FALLOC_FL_INSERT_RANGE, offset, end - offset);
	if (!what && end > i_size_read(inode)) {
		err = inode_newsize_ok(inode, end);
		if (err)
			return err;
	}
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		what |= DATA_PUNCH;
	if (!(mode & FALLOC_FL_PUNCH_HOLE))
		what |= DATA_FILL;
	/* As above; what was done by then is found done. */
	do {
		resize_init(&resize, inode);
		err = data_fallocate(&resize.change, what, offset, end);
	} while (err == -ESTALE);
	return err;
}

/* The VFS has looked at permissions, and at which modes go together. */
long file_fallocate(struct file *file, int mode, loff_t offset, loff_t len)
{
	struct inode *inode = file_inode(file);
	int err, end;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_COLLAPSE_RANGE |
		     FALLOC_FL_INSERT_RANGE))
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
