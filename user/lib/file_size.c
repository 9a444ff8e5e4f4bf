/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Changing the size and the allocation of a file: truncate, and the modes of fallocate.
 *
 * Cached blocks hold zeros beyond the end of the file, always.  On the disk they need not; who moves
 * the end forward makes the block it was in dirty.  All with node->lock held for writing.
 */
#include "lib.h"
#include "core/names/ops.h"

#include <fcntl.h>
#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE	0x01
#define FALLOC_FL_PUNCH_HOLE	0x02
#define FALLOC_FL_ZERO_RANGE	0x10
#endif

/* An operation that changes a few single blocks, and may remove or preallocate a range. */
struct resize {
	struct tux3_node *node;
	struct tux3_attr attr;		/* before */
	const struct tux3_attr *set_from;	/* what is to be set in the same delta */
	u32 set;			/* OP_ATTR_...: of it */
	struct tux3_attr with_mode;	/* it, by resize_set_mode() */
	struct {
		u64 block;
		u32 from, to;		/* bytes to zero */
	} edge[4];
	u32 edges;			/* blocks to make dirty */
	struct file_reserve reserve;
};

static void resize_init(struct resize *resize, struct tux3_node *node)
{
	resize->node = node;
	resize->edges = 0;
	resize->set_from = NULL;
	resize->set = 0;
	inode_get_attr(&node->inode, &resize->attr);
	file_reserve_init(&resize->reserve, node);
}

/* NULL: the file keeps its mode. */
static void resize_set_mode(struct resize *resize, const u32 *mode)
{
	if (!mode)
		return;
	resize->with_mode.mode = *mode;
	resize->set_from = &resize->with_mode;
	resize->set = OP_ATTR_MODE;
}

static void resize_exit(struct resize *resize)
{
	file_reserve_exit(&resize->reserve);
}

/* This block will be dirty, with these bytes zeroed; unless it is a hole and even_hole is not set. */
static int resize_edge(struct resize *resize, u64 block, u32 from, u32 to, bool even_hole)
{
	bool hole;
	int err;
	u32 i;

	/* Two edges in one block are two ranges to zero; the block is dirty anyway. */
	for (i = 0; i < resize->edges; i++)
		if (resize->edge[i].block == block && from == to)
			return 0;
	err = file_reserve_blocks(&resize->reserve, block, 1);
	if (!err)
		err = file_fill_block(resize->node, block, resize->attr.size, even_hole, &hole);
	if (err || (hole && !even_hole))
		return err;
	resize->edge[resize->edges].block = block;
	resize->edge[resize->edges].from = from;
	resize->edge[resize->edges++].to = to;
	return 0;
}

/* What every operation here that changes the data or the size must make dirty. */
static int resize_rules(struct resize *resize, u64 new_size)
{
	struct tux3 *volume = resize->node->volume;
	u64 size = resize->attr.size;
	int err = 0;

	/* An empty file has no data to keep: a truncate took it, perhaps in this delta, when the flag still stands. */
	if (new_size && file_maybe_inline(resize->node, &resize->attr))
		err = resize_edge(resize, 0, 0, 0, resize->attr.flags & TUX3_ATTR_INLINE);
	if (!err && new_size > size && size & (volume->block_size - 1))
		err = resize_edge(resize, size >> volume->shift, 0, 0, false);
	return err;
}

static u64 resize_cost(struct resize *resize)
{
	struct volume *vol = resize->node->volume->vol;

	return attr_apply_cost(vol, resize->set) +
	       (resize->edges ? space_cost_data(vol, resize->edges, resize->edges) : 0);
}

/* Inside the delta. */
static void resize_edges(struct resize *resize, struct delta_op *op)
{
	u32 newly = 0, i;
	void *buffer;
	u64 fresh;

	for (i = 0; i < resize->edges; i++) {
		newly += file_cache_dirty(&resize->reserve, op->delta, resize->edge[i].block, 1, ~0ULL,
					  &buffer, &fresh);
		memset((char *)buffer + resize->edge[i].from, 0, resize->edge[i].to - resize->edge[i].from);
	}
	if (newly)
		delta_add_dirty_bytes(op, (u64)newly << resize->node->volume->shift);
	if (resize->edges)
		data_dirty(op, &resize->node->inode);
}

static void resize_attr(struct resize *resize, struct delta_op *op, u64 size)
{
	struct tux3_inode *inode = &resize->node->inode;
	struct tux3_attr *attr = inode_change_begin(op, inode);

	attr->size = size;
	attr->mtime = attr->ctime = inode_now(inode->vol);
	attr_apply(attr, resize->set_from, resize->set);
	inode_change_end(inode);
}

static void forget_dirty_bytes(struct tux3_node *node, struct delta_op *op, u64 blocks)
{
	if (blocks)
		delta_add_dirty_bytes(op, -(blocks << node->volume->shift));
}

/* ---- truncate ---- */

static int truncate_up(struct resize *resize, u64 size)
{
	struct volume *vol = resize->node->volume->vol;
	struct delta_op op;
	int err = resize_rules(resize, size);

	if (!err)
		err = delta_enter(vol, &op, space_cost_items(vol, 1) + resize_cost(resize), 0);
	if (err)
		return err;
	resize_edges(resize, &op);
	resize_attr(resize, &op, size);
	delta_leave(&op);
	return 0;
}

static int truncate_down(struct resize *resize, u64 size)
{
	struct tux3_node *node = resize->node;
	struct tux3 *volume = node->volume;
	u64 first = (size + volume->block_size - 1) >> volume->shift, last = size >> volume->shift;
	u32 tail = size & (volume->block_size - 1);
	struct file_drop drop;
	struct delta_op op;
	int err;

	/* To nothing: what is inline goes with all the rest. */
	err = size ? resize_rules(resize, size) : 0;
	if (!err && tail)
		err = file_reserve_blocks(&resize->reserve, last, 1);
	if (!err)
		err = file_drop_prepare(node, first, DATA_END, &drop);
	if (err)
		return err;
	err = delta_enter(volume->vol, &op, space_cost_items(volume->vol, 3) + resize_cost(resize), DELTA_FREES);
	if (!err) {
		err = data_remove(&op, &node->inode, first, DATA_END);
		if (!err) {
			resize_edges(resize, &op);
			if (tail)
				file_cache_zero(&resize->reserve, op.delta, last, tail, volume->block_size);
			forget_dirty_bytes(node, &op, file_cache_drop(node, op.delta, first, DATA_END, &drop));
			resize_attr(resize, &op, size);
		}
		delta_leave(&op);
	}
	file_drop_finish(node, &drop);
	return err ? err : data_cut_wait(&node->inode);
}

int file_truncate_locked(struct tux3_node *node, u64 size, const struct tux3_attr *attr, u32 set)
{
	struct resize resize;
	int err;

	if (!S_ISREG(node_type(node)))
		return S_ISDIR(node_type(node)) ? -EISDIR : -EINVAL;
	if (size > TUX3_SIZE_MAX)
		return -EFBIG;
	resize_init(&resize, node);
	resize.set_from = attr;
	resize.set = set;
	err = file_check_changeable(node, &resize.attr, USE_OVERWRITE);
	/* To the size it has: what is preallocated behind it goes, as with other file systems. */
	if (!err && (size < resize.attr.size || (size == resize.attr.size && resize.attr.flags & TUX3_ATTR_PREALLOC)))
		err = truncate_down(&resize, size);
	else if (!err)
		err = truncate_up(&resize, size);
	resize_exit(&resize);
	return err;
}

int tux3_truncate(struct tux3_node *node, uint64_t size)
{
	int err;

	down_write(&node->lock);
	err = file_truncate_locked(node, size, NULL, 0);
	up_write(&node->lock);
	return err;
}

/* ---- fallocate ---- */

/*
 * One delta: at most DATA_BATCH_MAX blocks.  All of them are named to the core, which fills what is a
 * hole when it commits: that is no more than what was counted, since only this thread changes the file.
 */
static int alloc_batch(struct tux3_node *node, u64 block, u64 count, u64 new_size, const u32 *mode)
{
	struct volume *vol = node->volume->vol;
	struct resize resize;
	struct delta_op op;
	struct data_count counts;
	int err;

	resize_init(&resize, node);
	resize_set_mode(&resize, mode);
	new_size = max(new_size, resize.attr.size);
	err = data_look_count(&node->inode, block, count, &counts);
	if (err || (!counts.holes && new_size == resize.attr.size && !mode))
		goto out;
	err = resize_rules(&resize, new_size);
	if (!err)
		err = delta_enter(vol, &op, space_cost_prealloc(vol, counts.holes) + resize_cost(&resize), 0);
	if (err)
		goto out;
	if (counts.holes)
		err = data_prealloc(&op, &node->inode, block, count, counts.holes);
	if (!err) {
		resize_edges(&resize, &op);
		resize_attr(&resize, &op, new_size);
	}
	delta_leave(&op);
out:
	resize_exit(&resize);
	return err;
}

/* In batches; on ENOSPC in smaller ones.  What was allocated by then stays, as with other file systems. */
static int alloc_range(struct tux3_node *node, u64 offset, u64 end, bool keep_size, const u32 *mode)
{
	u32 shift = node->volume->shift, max = DATA_BATCH_MAX;
	u64 block = offset >> shift, last = (end - 1) >> shift, count;
	int err;

	while (block <= last) {
		count = min_t(u64, max, last - block + 1);
		err = alloc_batch(node, block, count, keep_size ? 0 : min(end, (block + count) << shift), mode);
		if (err == -ENOSPC && max > 1) {
			max /= 2;
			continue;
		}
		if (err)
			return err;
		mode = NULL;
		block += count;
	}
	return 0;
}

/*
 * Zero what the range has of blocks at its edges, remove the blocks between.  The file is kept at its size or
 * gets new_size, all in one delta.
 */
static int punch(struct resize *resize, u64 offset, u64 end, u64 new_size)
{
	struct tux3_node *node = resize->node;
	struct tux3 *volume = node->volume;
	u32 shift = volume->shift, mask = volume->block_size - 1;
	u64 first = offset >> shift, stop = end >> shift;	/* whole blocks: [first, stop) */
	struct file_drop drop;
	struct delta_op op;
	int err = 0;

	if (first == stop) {
		err = resize_edge(resize, first, offset & mask, end & mask, false);
	} else {
		/* Inline data is no block that could be removed. */
		if (offset & mask || (!first && file_maybe_inline(node, &resize->attr)))
			err = resize_edge(resize, first++, offset & mask, volume->block_size, false);
		if (!err && end & mask)
			err = resize_edge(resize, stop, 0, end & mask, false);
	}
	if (!err)
		err = resize_rules(resize, new_size);
	if (!err)
		err = file_drop_prepare(node, first, stop - first, &drop);
	if (err)
		return err;
	err = delta_enter(volume->vol, &op, space_cost_items(volume->vol, 3) + resize_cost(resize), DELTA_FREES);
	if (err)
		goto out;
	if (stop > first)
		err = data_remove(&op, &node->inode, first, stop - first);
	if (!err) {
		resize_edges(resize, &op);
		if (stop > first)
			forget_dirty_bytes(node, &op, file_cache_drop(node, op.delta, first, stop - first, &drop));
		resize_attr(resize, &op, new_size);
	}
	delta_leave(&op);
out:
	file_drop_finish(node, &drop);
	return err;
}

static int punch_range(struct tux3_node *node, u64 offset, u64 end, const u32 *mode)
{
	struct resize resize;
	int err;

	resize_init(&resize, node);
	resize_set_mode(&resize, mode);
	err = punch(&resize, offset, end, resize.attr.size);
	resize_exit(&resize);
	return err;
}

static int fallocate_locked(struct tux3_node *node, int mode, u64 offset, u64 end, struct file_kill *kill)
{
	bool keep_size = mode & FALLOC_FL_KEEP_SIZE;
	const u32 *new_mode = NULL;
	struct tux3_attr attr;
	int err;

	inode_get_attr(&node->inode, &attr);
	err = file_check_changeable(node, &attr, mode & ~FALLOC_FL_KEEP_SIZE ? USE_OVERWRITE : USE_APPEND);
	if (!err && kill)
		err = node_kill_begin(node, kill, &new_mode);
	if (err)
		return err;
	switch (mode & ~FALLOC_FL_KEEP_SIZE) {
	case 0:
		return alloc_range(node, offset, end, keep_size, new_mode);
	case FALLOC_FL_PUNCH_HOLE:
		return punch_range(node, offset, end, new_mode);
	case FALLOC_FL_ZERO_RANGE:
		err = punch_range(node, offset, end, new_mode);
		return err ? err : alloc_range(node, offset, end, keep_size, NULL);
	}
	return -EOPNOTSUPP;
}

int tux3_fallocate_killing(struct tux3_node *node, int mode, u64 offset, u64 length, struct file_kill *kill)
{
	int err;

	if (!S_ISREG(node_type(node)))
		return S_ISDIR(node_type(node)) ? -EISDIR : -ENODEV;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	if ((mode & FALLOC_FL_PUNCH_HOLE && !(mode & FALLOC_FL_KEEP_SIZE)) ||
	    (mode & FALLOC_FL_PUNCH_HOLE && mode & FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	if (!length)
		return -EINVAL;
	if (offset + length < offset || offset + length > TUX3_SIZE_MAX)
		return -EFBIG;
	down_write(&node->lock);
	err = fallocate_locked(node, mode, offset, offset + length, kill);
	up_write(&node->lock);
	return err;
}

int tux3_fallocate(struct tux3_node *node, int mode, uint64_t offset, uint64_t length)
{
	return tux3_fallocate_killing(node, mode, offset, length, NULL);
}
