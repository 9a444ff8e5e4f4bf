/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Contents that swap, and ends of files that move: the host's part of the core's remap.h.  The locks of both files are held for
 * writing until it is durable, that of the lower inode number first.
 */
#include "lib.h"
#include "core/data/remap.h"

static int remap_apart(struct tux3_inode *inode)
{
	return file_set_apart(node_of(inode));
}

static int remap_drop(struct tux3_inode *inode, u64 block, u64 count)
{
	struct tux3_node *node = node_of(inode);
	struct file_drop drop;
	int err;

	file_drop_init(&drop);
	err = file_drop_prepare(node, block, count, &drop);
	if (!err)	/* none of them is dirty: whichever delta it is */
		file_cache_drop(node, 0, block, count, &drop);
	file_drop_finish(node, &drop);
	return err;
}

static const struct data_remap_ops remap_ops = {
	.apart = remap_apart,
	.drop = remap_drop,
};

int file_shift(struct tux3_node *node, bool insert, u64 offset, u64 length)
{
	return insert ? data_insert(&node->inode, &remap_ops, offset, length) :
			data_collapse(&node->inode, &remap_ops, offset, length);
}

/* ---- exchange ---- */

static void lock_both(struct tux3_node *a, struct tux3_node *b)
{
	if (data_exchange_first(&a->inode, &b->inode))
		swap(a, b);
	down_write(&a->lock);
	if (a != b)
		down_write(&b->lock);
}

static void unlock_both(struct tux3_node *a, struct tux3_node *b)
{
	up_write(&a->lock);
	if (a != b)
		up_write(&b->lock);
}

static int check_file(struct tux3_node *node)
{
	if (!S_ISREG(node_type(node)))
		return S_ISDIR(node_type(node)) ? -EISDIR : -EINVAL;
	return file_check_changeable(node, &node->inode.attr, USE_OVERWRITE);
}

static int exchange_locked(const struct data_exchange *exchange)
{
	int err = check_file(node_of(exchange->inode[0]));

	if (!err)
		err = check_file(node_of(exchange->inode[1]));
	return err ? err : data_exchange(exchange);
}

int tux3_exchange_range(struct tux3_node *file1, uint64_t offset1, struct tux3_node *file2, uint64_t offset2,
			uint64_t length, uint64_t flags, const struct tux3_freshness *fresh)
{
	const struct data_exchange exchange = {
		.inode = { &file1->inode, &file2->inode }, .offset = { offset1, offset2 }, .len = length,
		.flags = flags, .fresh = fresh ? (const u64 *)fresh->word : NULL, .ops = &remap_ops,
	};
	int err;

	if (file1->volume != file2->volume)
		return -EXDEV;
	if (flags & ~(u64)EXCHANGE_KNOWN)
		return -EINVAL;
	lock_both(file1, file2);
	err = exchange_locked(&exchange);
	unlock_both(file1, file2);
	return err;
}

int tux3_start_commit(struct tux3_node *file2, struct tux3_freshness *fresh)
{
	int err;

	down_write(&file2->lock);
	err = check_file(file2);
	if (!err)
		err = data_start_commit(&file2->inode, &remap_ops, (u64 *)fresh->word);
	up_write(&file2->lock);
	return err;
}
