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
#ifndef FALLOC_FL_COLLAPSE_RANGE
#define FALLOC_FL_COLLAPSE_RANGE 0x08
#define FALLOC_FL_INSERT_RANGE	0x20
#endif
#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE	0x01
#define FALLOC_FL_PUNCH_HOLE	0x02
#define FALLOC_FL_ZERO_RANGE	0x10
#endif

struct resize {
	struct file_change change;
	struct tux3_attr with_mode;	/* what it sets, by resize_set_mode() */
	struct file_drop drop;
};

static struct resize *resize_of(struct data_change *plan)
{
	return container_of(plan, struct resize, change.plan);
}

static int resize_open(struct data_change *plan)
{
	struct tux3_node *node = node_of(plan->inode);
	struct resize *resize = resize_of(plan);
	int err;

	file_reserve_init(&resize->change.reserve, node);
	file_drop_init(&resize->drop);
	err = data_change_edges(plan, file_change_edge);
	if (!err && data_change_tail(plan))
		err = file_reserve_blocks(&resize->change.reserve, plan->new_size >> node->volume->shift, 1);
	if (!err && plan->hole_count)
		err = file_drop_prepare(node, plan->hole, plan->hole_count, &resize->drop);
	return err;
}

static int resize_begin(struct data_change *plan, struct delta_op *op)
{
	struct file_change *change = &resize_of(plan)->change;
	u32 newly = file_change_dirty_edges(change, op);

	file_change_dirtied(change, op, newly);
	return newly;
}

static void resize_apply(struct data_change *plan, struct delta_op *op)
{
	struct tux3_node *node = node_of(plan->inode);
	struct resize *resize = resize_of(plan);
	u32 tail = data_change_tail(plan), i;
	u64 gone = 0;

	for (i = 0; i < plan->edges; i++)
		memset((char *)resize->change.edge[i] + plan->edge[i].from, 0, plan->edge[i].to - plan->edge[i].from);
	if (tail)
		file_cache_zero(&resize->change.reserve, op->delta, plan->new_size >> node->volume->shift, tail,
				node->volume->block_size);
	if (plan->hole_count)
		gone = file_cache_drop(node, op->delta, plan->hole, plan->hole_count, &resize->drop);
	if (gone)
		delta_add_dirty_bytes(op, -(gone << op->vol->block_shift));
}

static void resize_close(struct data_change *plan, int err)
{
	struct resize *resize = resize_of(plan);

	file_drop_finish(node_of(plan->inode), &resize->drop);
	file_reserve_exit(&resize->change.reserve);
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
	resize->change.plan.attr = &resize->with_mode;
	resize->change.plan.set = OP_ATTR_MODE;
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
	data_change_init(&resize.change.plan, &node->inode, &resize_ops);
	resize.change.plan.attr = attr;
	resize.change.plan.set = set;
	return data_truncate(&resize.change.plan, size);
}

int tux3_truncate(struct tux3_node *node, uint64_t size)
{
	int err;

	down_write(&node->lock);
	err = file_truncate_locked(node, size, NULL, 0);
	up_write(&node->lock);
	return err;
}

int file_set_apart(struct tux3_node *node)
{
	struct resize resize;

	data_change_init(&resize.change.plan, &node->inode, &resize_ops);
	return data_set_apart(&resize.change.plan);
}

/* ---- fallocate ---- */

/* Before the contents change, and so in an older delta or the same. */
static int file_set_mode(struct tux3_node *node, u32 mode)
{
	struct tux3_attr attr = { .mode = mode };

	return op_setattr(&node->inode, &attr, OP_ATTR_MODE);
}

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
	if (mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) {
		if (new_mode)
			err = file_set_mode(node, *new_mode);
		return err ? err : file_shift(node, mode & FALLOC_FL_INSERT_RANGE, offset, end - offset);
	}
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		what |= DATA_PUNCH;
	if (!(mode & FALLOC_FL_PUNCH_HOLE))
		what |= DATA_FILL;
	data_change_init(&resize.change.plan, &node->inode, &resize_ops);
	resize_set_mode(&resize, new_mode);
	return data_fallocate(&resize.change.plan, what, offset, end);
}

int tux3_fallocate_killing(struct tux3_node *node, int mode, u64 offset, u64 length, struct file_kill *kill)
{
	int err;

	if (!S_ISREG(node_type(node)))
		return S_ISDIR(node_type(node)) ? -EISDIR : -ENODEV;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) &&
	    mode != FALLOC_FL_COLLAPSE_RANGE && mode != FALLOC_FL_INSERT_RANGE)
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
