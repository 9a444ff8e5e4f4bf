/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Changing the size and the allocation of a file: truncate, and the modes of fallocate.  What each of them does is said
 * in core's data_change.h; here it is done to cached blocks.
 *
 * Cached blocks hold zeros beyond the end of the file, always.  All with node->lock held for writing.
 */
#include "lib.h"
#include "core/names/ops.h"

#include <fcntl.h>
#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE	0x01
#define FALLOC_FL_PUNCH_HOLE	0x02
#define FALLOC_FL_ZERO_RANGE	0x10
#endif

struct resize {
	struct data_change change;
	struct tux3_attr with_mode;	/* what it sets, by resize_set_mode() */
	struct file_reserve reserve;
	struct file_drop drop;
	void *edge[DATA_EDGES_MAX];	/* buffers of the edges */
};

static struct resize *resize_of(struct data_change *change)
{
	return container_of(change, struct resize, change);
}

static struct tux3_node *node_of_change(struct data_change *change)
{
	return node_of(change->inode);
}

static int resize_get_edge(struct data_change *change, u32 i)
{
	const struct data_edge *edge = &change->edge[i];
	bool hole;
	int err = file_reserve_blocks(&resize_of(change)->reserve, edge->block, 1);

	if (!err)
		err = file_fill_block(node_of_change(change), edge->block, change->size, edge->even_hole, &hole);
	return err ? err : !hole || edge->even_hole;
}

static int resize_open(struct data_change *change)
{
	struct tux3_node *node = node_of_change(change);
	struct resize *resize = resize_of(change);
	int err;

	file_reserve_init(&resize->reserve, node);
	file_drop_init(&resize->drop);
	err = data_change_edges(change, resize_get_edge);
	if (!err && data_change_tail(change))
		err = file_reserve_blocks(&resize->reserve, change->new_size >> node->volume->shift, 1);
	if (!err && change->hole_count)
		err = file_drop_prepare(node, change->hole, change->hole_count, &resize->drop);
	return err;
}

static int resize_begin(struct data_change *change, struct delta_op *op)
{
	struct resize *resize = resize_of(change);
	u32 newly = 0, i;
	u64 fresh;

	for (i = 0; i < change->edges; i++)
		newly += file_cache_dirty(&resize->reserve, op->delta, change->edge[i].block, 1, ~0ULL, &resize->edge[i],
					  &fresh);
	if (newly)
		delta_add_dirty_bytes(op, (u64)newly << op->vol->block_shift);
	if (change->edges)
		data_dirty(op, change->inode);
	return newly;
}

static void resize_apply(struct data_change *change, struct delta_op *op)
{
	struct tux3_node *node = node_of_change(change);
	struct resize *resize = resize_of(change);
	u32 tail = data_change_tail(change), i;
	u64 gone = 0;

	for (i = 0; i < change->edges; i++)
		memset((char *)resize->edge[i] + change->edge[i].from, 0, change->edge[i].to - change->edge[i].from);
	if (tail)
		file_cache_zero(&resize->reserve, op->delta, change->new_size >> node->volume->shift, tail,
				node->volume->block_size);
	if (change->hole_count)
		gone = file_cache_drop(node, op->delta, change->hole, change->hole_count, &resize->drop);
	if (gone)
		delta_add_dirty_bytes(op, -(gone << op->vol->block_shift));
}

static void resize_close(struct data_change *change, int err)
{
	struct resize *resize = resize_of(change);

	file_drop_finish(node_of_change(change), &resize->drop);
	file_reserve_exit(&resize->reserve);
}

static const struct data_change_ops resize_ops = {
	.open = resize_open,
	.begin = resize_begin,
	.apply = resize_apply,
	.close = resize_close,
};

/* NULL: the file keeps its mode. */
static void resize_set_mode(struct resize *resize, const u32 *mode)
{
	if (!mode)
		return;
	resize->with_mode.mode = *mode;
	resize->change.attr = &resize->with_mode;
	resize->change.set = OP_ATTR_MODE;
}

/* ---- truncate ---- */

int file_truncate_locked(struct tux3_node *node, u64 size, const struct tux3_attr *attr, u32 set)
{
	struct resize resize;
	int err;

	if (!S_ISREG(node_type(node)))
		return S_ISDIR(node_type(node)) ? -EISDIR : -EINVAL;
	if (size > TUX3_SIZE_MAX)
		return -EFBIG;
	err = file_check_changeable(node, &node->inode.attr, USE_OVERWRITE);
	if (err)
		return err;
	data_change_init(&resize.change, &node->inode, &resize_ops);
	resize.change.attr = attr;
	resize.change.set = set;
	return data_truncate(&resize.change, size);
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

static int fallocate_locked(struct tux3_node *node, int mode, u64 offset, u64 end, struct file_kill *kill)
{
	unsigned int what = mode & FALLOC_FL_KEEP_SIZE ? DATA_KEEP_SIZE : 0;
	const u32 *new_mode = NULL;
	struct resize resize;
	int err;

	err = file_check_changeable(node, &node->inode.attr,
				    mode & ~FALLOC_FL_KEEP_SIZE ? USE_OVERWRITE : USE_APPEND);
	if (!err && kill)
		err = node_kill_begin(node, kill, &new_mode);
	if (err)
		return err;
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		what |= DATA_PUNCH;
	if (!(mode & FALLOC_FL_PUNCH_HOLE))
		what |= DATA_FILL;
	data_change_init(&resize.change, &node->inode, &resize_ops);
	resize_set_mode(&resize, new_mode);
	return data_fallocate(&resize.change, what, offset, end);
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
