/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the core's back end asks of us.  Called with delta.commit_mutex held, perhaps by a thread that
 * holds directory and file locks of its own: only the locks at the end of the order in lib.h are
 * taken here, for moments.
 */
#include "lib.h"

#include "core/commit/checksums.h"

static void host_inode_grab(struct tux3_inode *inode)
{
	icache_pin(node_of(inode));
}

static void host_inode_release(struct tux3_inode *inode)
{
	icache_unpin(node_of(inode));
}

static bool host_quota_exempt(struct volume *vol)
{
	return quota_is_exempt();
}

static bool host_inode_kill(struct tux3_inode *inode)
{
	return icache_kill(node_of(inode));
}

static bool host_inode_peek(struct volume *vol, u64 ino, struct tux3_attr *attr, u64 *blocks)
{
	struct tux3_node *node = icache_peek(vol->host_data, ino);

	if (!node)
		return false;
	inode_get_attr(&node->inode, attr);
	if (READ_ONCE(node->inode.blocks_epoch) == READ_ONCE(vol->blocks_epoch))
		*blocks = data_blocks(&node->inode, S_ISREG(attr->mode) ? file_cache_dirty_blocks(node) : 0);
	icache_unpin(node);
	return true;
}

static int host_data_next(struct tux3_inode *inode, u64 delta, u64 from, u64 *block, u64 *count)
{
	return file_cache_next_dirty(node_of(inode), delta, from, block, count);
}

/*
 * The buffers belong to the delta until data_done, so checksums and I/O need no lock.  Beyond the
 * end of the file they hold zeros: see file_cache.c.
 */
static void write_piece(struct tux3_node *node, u64 delta, u64 block, u64 addr, u32 count,
			__le32 *csum, struct io_wait *wait)
{
	u32 block_size = node->volume->block_size, vecs = 0, i;
	struct kvec vec[DATA_BATCH_MAX];
	void *buffers[DATA_BATCH_MAX];

	file_cache_back_buffers(node, delta, block, count, buffers);
	for (i = 0; i < count; i++) {
		if (vecs && (char *)vec[vecs - 1].iov_base + vec[vecs - 1].iov_len == buffers[i])
			vec[vecs - 1].iov_len += block_size;
		else
			vec[vecs++] = (struct kvec){ .iov_base = buffers[i], .iov_len = block_size };
	}
	device_writev(node->volume->dev, addr, vec, vecs, 0, wait);
	for (i = 0; csum && i < vecs; i++) {
		checksums_add(node->inode.vol, vec[i].iov_base, vec[i].iov_len / block_size, csum);
		csum += vec[i].iov_len / block_size;
	}
}

static int host_data_write(struct tux3_inode *inode, u64 delta, u64 block, u64 addr, u32 count,
			   __le32 *csum, struct io_wait *wait)
{
	while (count) {
		u32 piece = min(count, DATA_BATCH_MAX);

		write_piece(node_of(inode), delta, block, addr, piece, csum, wait);
		block += piece;
		addr += piece;
		count -= piece;
		csum = csum ? csum + piece : NULL;
	}
	checksums_finish(inode->vol);
	return 0;
}

static int host_data_copy(struct tux3_inode *inode, u64 delta, u64 block, void *data, u32 len)
{
	void *buffer;

	file_cache_back_buffers(node_of(inode), delta, block, 1, &buffer);
	memcpy(data, buffer, len);
	return 0;
}

static void host_data_done(struct tux3_inode *inode, u64 delta, int err)
{
	file_cache_clean(node_of(inode), delta);
}

static void host_data_lost(struct tux3_inode *inode)
{
	struct tux3_node *node = node_of(inode);

	atomic_inc(&node->losses);
	atomic64_inc(&node->volume->losses);
}

static bool host_data_dirty(struct tux3_inode *inode, u64 from, u64 end, u64 *block, u64 *count)
{
	return file_cache_find_dirty(node_of(inode), from, end, block, count);
}

static u64 host_data_dirty_blocks(struct tux3_inode *inode)
{
	return file_cache_dirty_blocks(node_of(inode));
}

static bool host_data_hold(struct tux3_inode *inode, bool wait)
{
	struct tux3_node *node = node_of(inode);

	if (!wait)
		return down_read_trylock(&node->lock);
	down_read(&node->lock);
	return true;
}

static void host_data_let(struct tux3_inode *inode)
{
	up_read(&node_of(inode)->lock);
}

/* With the node's lock shared buffers of dirty blocks stay where they are, and as they are: see host_data_write(). */
static bool host_data_peek(struct tux3_inode *inode, u64 block, void *data)
{
	struct tux3_node *node = node_of(inode);
	struct file_chunk *chunk;
	void *buffer;

	if (!file_cache_get(node, block, 1, &buffer, &chunk))
		return false;
	memcpy(data, buffer, node->volume->block_size);
	file_cache_unpin(node, chunk);
	return true;
}

const struct tux3_host_ops lib_host_ops = {
	.inode_grab = host_inode_grab,
	.inode_release = host_inode_release,
	.inode_kill = host_inode_kill,
	.inode_peek = host_inode_peek,
	.quota_exempt = host_quota_exempt,
	.data_next = host_data_next,
	.data_write = host_data_write,
	.data_copy = host_data_copy,
	.data_lost = host_data_lost,
	.data_done = host_data_done,
	.data_dirty = host_data_dirty,
	.data_dirty_blocks = host_data_dirty_blocks,
	.data_hold = host_data_hold,
	.data_let = host_data_let,
	.data_peek = host_data_peek,
};
