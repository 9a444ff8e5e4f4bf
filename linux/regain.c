// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory that fails takes along what was stored to it since the last commit.  An fsync may have made a part of that durable ahead
 * of its delta (core/intent/intent.h); but when the delta is committed its intents do not count any more.  So what they say of a
 * lost block is read, and written to the file once more, in the front delta: what was durable is there after the failure, as it
 * would be where an fsync writes to the file's own blocks.  What has been stored since is lost.
 *
 * The folio is locked here, and a write wants the file's lock first, and then folios: so a worker writes it.  An fsync waits for
 * that.
 */
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/uio.h>
#include <linux/wait_bit.h>
#include "core/intent/intent.h"
#include "linux/folio.h"

struct regained {
	struct work_struct work;
	struct tux3_node *node;
	u64 block;
	u8 data[];
};

static void regain_done(struct regained *regained)
{
	struct tux3_node *node = regained->node;

	kvfree(regained);
	if (atomic_dec_and_test(&node->regaining))
		wake_up_var(&node->regaining);
	node_put_later(node);
}

static void regain_write(struct work_struct *work)
{
	struct regained *regained = container_of(work, struct regained, work);
	struct tux3_node *node = regained->node;
	struct inode *inode = &node->vfs;
	u32 shift = node->core.vol->block_shift;
	u64 pos = regained->block << shift;
	struct kvec vec = { .iov_base = regained->data };
	struct iov_iter iter;

	sb_start_write(inode->i_sb);
	inode_lock(inode);
	/* Whoever has written there since has found what was there before the fsync. */
	if (pos < i_size_read(inode) && !folio_block_dirty(node, regained->block)) {
		vec.iov_len = min_t(u64, 1u << shift, i_size_read(inode) - pos);
		iov_iter_kvec(&iter, ITER_SOURCE, &vec, 1, vec.iov_len);
		write_kernel(node, &iter, pos);		/* if it fails: the failure of the memory is told of anyhow */
	}
	inode_unlock(inode);
	sb_end_write(inode->i_sb);
	regain_done(regained);
}

/* The folio is locked. */
static struct regained *regain_read(struct tux3_node *node, u64 block)
{
	unsigned int nofs = memalloc_nofs_save();
	struct regained *regained = kvmalloc(sizeof(*regained) + node->core.vol->block_size, GFP_KERNEL);

	if (regained && intent_promised(&node->core, block, regained->data) <= 0) {
		kvfree(regained);
		regained = NULL;
	}
	memalloc_nofs_restore(nofs);
	return regained;
}

static void regain(struct tux3_node *node, u64 block)
{
	struct regained *regained = regain_read(node, block);

	if (!regained)
		return;
	if (!node_grab_living(node)) {
		kvfree(regained);
		return;
	}
	regained->node = node;
	regained->block = block;
	INIT_WORK(&regained->work, regain_write);
	atomic_inc(&node->regaining);
	queue_work(sb_of(node->vfs.i_sb)->workqueue, &regained->work);
}

int file_memory_failed(struct address_space *mapping, struct folio *folio)
{
	struct tux3_node *node = node_of(mapping->host);
	u64 lost = folio_front_mask(node, folio), first = folio_block(node, folio);
	int err = generic_error_remove_folio(mapping, folio);

	for (; !err && lost; lost &= lost - 1)
		regain(node, first + __ffs64(lost));
	return err;
}

void file_regain_wait(struct tux3_node *node)
{
	if (unlikely(atomic_read(&node->regaining)))
		wait_var_event(&node->regaining, !atomic_read(&node->regaining));
}
