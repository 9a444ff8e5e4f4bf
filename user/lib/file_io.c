/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading and writing file data.
 *
 * node->lock is held shared for reading, exclusive for writing.  A write of up to DATA_BATCH_MAX blocks is one
 * delta: after a crash all of it is there, or nothing.  A longer one is several; the lock is kept
 * from the first to the last, so readers see all of it or nothing.
 *
 * A batch: reserve memory, read the blocks that change in part; enter; make the blocks dirty, copy;
 * leave.  What else gets dirty with it, and what it costs, is the core's (core/data/data_change.h).
 */
#include "lib.h"

struct write_batch {
	struct file_change change;
	struct tux3_node *node;
	const char *data;
	u64 pos, end;			/* bytes */
	u64 first, last;		/* blocks */
	bool keep_times;		/* the caller sets them */
	const u32 *mode;		/* that the file gets, or NULL */
};

static bool read_only_kind(struct tux3_node *node, int *err)
{
	if (S_ISREG(node_type(node)))
		return false;
	*err = S_ISDIR(node_type(node)) ? -EISDIR : -EINVAL;
	return true;
}

int file_check_changeable(struct tux3_node *node, const struct tux3_attr *attr, enum inode_use use)
{
	return node->volume->vol->read_only ? -EROFS : perm_check_flags(attr, use);
}

/* Wait where no lock is held for the turn of those who write faster than the device. */
static int wait_for_turn(struct tux3 *volume)
{
	struct volume *vol = volume->vol;
	u64 front = READ_ONCE(vol->delta.front);
	struct delta_op op;
	int err;

	if (likely(delta_dirty_bytes(&vol->delta, front & 1) < (s64)READ_ONCE(vol->pace.commit_bytes)))
		return 0;
	err = delta_enter(vol, &op, 0, 0);
	if (!err)
		delta_leave(&op);
	return err;
}

/* ---- reading ---- */

static void copy_out(struct tux3_node *node, void *const *buffers, u32 count, char *data, u64 pos, u64 end)
{
	u32 shift = node->volume->shift, block_size = node->volume->block_size, i;

	for (i = 0; i < count; i++) {
		u32 from = pos & (block_size - 1);
		u32 len = min_t(u64, block_size - from, end - pos);

		/* Neighbours in memory are copied in one go. */
		while (i + 1 < count && pos + len < end && (char *)buffers[i + 1] ==
		       (char *)buffers[i] + block_size && (pos + len) >> shift != end >> shift) {
			u32 more = block_size;

			memcpy(data, (char *)buffers[i] + from, len);
			data += len;
			pos += len;
			from = 0;
			len = more;
			i++;
		}
		memcpy(data, (char *)buffers[i] + from, len);
		data += len;
		pos += len;
	}
}

static ssize_t read_piece(struct tux3_node *node, char *data, u64 pos, u64 end, u64 size)
{
	u32 shift = node->volume->shift, count;
	u64 block = pos >> shift, blocks = ((end - 1) >> shift) - block + 1, holes;
	void *buffers[CHUNK_BLOCKS];
	struct file_chunk *chunk;
	int err;

	count = file_cache_get(node, block, min_t(u64, blocks, CHUNK_BLOCKS), buffers, &chunk);
	if (count) {
		end = min(end, (block + count) << shift);
		copy_out(node, buffers, count, data, pos, end);
		file_cache_unpin(node, chunk);
		return end - pos;
	}
	blocks = min(file_readahead(node, block, blocks), ((size - 1) >> shift) - block + 1);
	err = file_fill(node, block, blocks, size, &holes);
	if (err || !holes)
		return err;
	end = min(end, (block + holes) << shift);
	memset(data, 0, end - pos);
	return end - pos;
}

ssize_t tux3_read(struct tux3_node *node, void *data, size_t size, uint64_t offset)
{
	struct tux3_attr attr;
	u64 pos = offset, end;
	ssize_t got = 0;
	int err;

	if (read_only_kind(node, &err))
		return err;
	down_read(&node->lock);
	inode_get_attr(&node->inode, &attr);
	end = offset + size < offset ? attr.size : min_t(u64, offset + size, attr.size);
	while (pos < end) {
		got = read_piece(node, (char *)data + (pos - offset), pos, end, attr.size);
		if (got < 0)
			break;
		pos += got;	/* 0: it is in the cache now */
	}
	up_read(&node->lock);
	if (pos == offset && got < 0)
		return got;
	if (pos > offset)
		node_touch_atime(node);
	return pos - offset;
}

/* ---- changing ---- */

int file_change_edge(struct data_change *plan, u32 i)
{
	struct file_change *change = container_of(plan, struct file_change, plan);
	const struct data_edge *edge = &plan->edge[i];
	bool hole;
	int err = file_reserve_blocks(&change->reserve, edge->block, 1);

	if (!err)
		err = file_fill_block(node_of(plan->inode), edge->block, plan->size, edge->even_hole, &hole);
	return err ? err : !hole || edge->even_hole;
}

u32 file_change_dirty_edges(struct file_change *change, struct delta_op *op)
{
	u32 newly = 0, i;
	u64 fresh;

	for (i = 0; i < change->plan.edges; i++)
		newly += file_cache_dirty(&change->reserve, op->delta, change->plan.edge[i].block, 1, ~0ULL,
					  &change->edge[i], &fresh);
	return newly;
}

void file_change_dirtied(struct file_change *change, struct delta_op *op, u32 newly)
{
	if (!newly)		/* whoever made them dirty has told */
		return;
	delta_add_dirty_bytes(op, (u64)newly << op->vol->block_shift);
	data_dirty(op, change->plan.inode);
}

/* ---- writing ---- */

static bool block_is_partial(const struct write_batch *batch, u64 block)
{
	u32 shift = batch->node->volume->shift;

	return block << shift < batch->pos || (block + 1) << shift > batch->end;
}

/* Must what is in this block be read, since the write changes only a part of what the file has there? */
static bool needs_old(const struct write_batch *batch, u64 block)
{
	u32 shift = batch->node->volume->shift;
	u64 start = block << shift;

	if (!block_is_partial(batch, block) || start >= batch->change.plan.size)
		return false;
	return start < batch->pos || batch->end < batch->change.plan.size;
}

/* Everything that may fail or wait. */
static int batch_prepare(struct write_batch *batch)
{
	struct data_change *plan = &batch->change.plan;
	struct tux3_node *node = batch->node;
	bool hole;
	int err;

	file_cache_trim(node->volume, 0);
	data_plan_write(plan, batch->pos, batch->end);
	err = file_reserve_blocks(&batch->change.reserve, batch->first, batch->last - batch->first + 1);
	if (!err && needs_old(batch, batch->first))
		err = file_fill_block(node, batch->first, plan->size, false, &hole);
	if (!err && batch->last != batch->first && needs_old(batch, batch->last))
		err = file_fill_block(node, batch->last, plan->size, false, &hole);
	if (!err)
		err = data_change_edges(plan, file_change_edge);
	return err ? err : data_price_write(plan, batch->pos, batch->end);
}

/* Copy what the batch has for this block; around it goes zero if the block was not there. */
static void copy_block(const struct write_batch *batch, u64 block, char *buffer, bool fresh)
{
	u32 block_size = batch->node->volume->block_size;
	u64 start = block << batch->node->volume->shift;
	u32 from = batch->pos > start ? batch->pos - start : 0;
	u32 to = min_t(u64, block_size, batch->end - start);

	if (fresh) {
		memset(buffer, 0, from);
		memset(buffer + to, 0, block_size - to);
	}
	memcpy(buffer + from, batch->data + (start + from - batch->pos), to - from);
}

static u32 dirty_blocks(struct write_batch *batch, struct delta_op *op)
{
	void *buffers[CHUNK_BLOCKS];
	u64 block = batch->first, fresh, keep;
	u32 newly = file_change_dirty_edges(&batch->change, op), count, i;

	while (block <= batch->last) {
		count = min_t(u64, CHUNK_BLOCKS - (block & (CHUNK_BLOCKS - 1)), batch->last - block + 1);
		keep = block_is_partial(batch, block) ? block_bit(block) : 0;
		if (block_is_partial(batch, block + count - 1))
			keep |= block_bit(block + count - 1);
		newly += file_cache_dirty(&batch->change.reserve, op->delta, block, count, keep, buffers, &fresh);
		for (i = 0; i < count; i++, block++)
			copy_block(batch, block, buffers[i], fresh & block_bit(block));
	}
	return newly;
}

static int batch_commit(struct write_batch *batch)
{
	struct data_change *plan = &batch->change.plan;
	struct tux3_inode *inode = plan->inode;
	struct tux3_attr *attr;
	struct delta_op op;
	u32 newly;
	int err = data_change_enter(plan, &op);

	if (err)
		return err;
	newly = dirty_blocks(batch, &op);
	file_change_dirtied(&batch->change, &op, newly);
	data_settle_write(plan, &op, newly);
	attr = inode_change_begin(&op, inode);
	attr->size = max(attr->size, batch->end);
	if (batch->mode)
		WRITE_ONCE(attr->mode, *batch->mode);
	if (!batch->keep_times)
		attr->mtime = attr->ctime = inode_now(inode->vol);
	inode_change_end(inode);
	delta_leave(&op);
	return 0;
}

/* With node->lock: one delta. */
static int write_batch(struct tux3_node *node, const char *data, u64 pos, u64 end, bool keep_times, const u32 *mode)
{
	u32 shift = node->volume->shift;
	struct write_batch batch;
	int err;

	batch.node = node;
	batch.data = data;
	batch.pos = pos;
	batch.end = end;
	batch.first = pos >> shift;
	batch.last = (end - 1) >> shift;
	batch.keep_times = keep_times;
	batch.mode = mode;
	data_change_init(&batch.change.plan, &node->inode, NULL);
	file_reserve_init(&batch.change.reserve, node);
	err = batch_prepare(&batch);
	if (!err)
		err = batch_commit(&batch);
	file_reserve_exit(&batch.change.reserve);
	return err;
}

#define WRITE_APPEND		1u
#define WRITE_KEEP_TIMES	2u
#define WRITE_ALLOWED		4u	/* long ago: flags that were set since do not count */
#define WRITE_ATOMIC		8u	/* it fits into one delta, and goes into one, or nothing is written */

static ssize_t write_locked(struct tux3_node *node, const char *data, size_t size, u64 offset, unsigned int flags,
			    const u32 *mode)
{
	u64 pos = offset, end = offset + size;
	u32 max = DATA_BATCH_MAX;

	while (pos < end) {
		u64 stop = data_batch_end(node->volume->vol, pos, end, max);
		int err;

		data_note_writing(&node->inode, end - pos);
		err = write_batch(node, data + (pos - offset), pos, stop, flags & WRITE_KEEP_TIMES, mode);
		if (!(flags & WRITE_ATOMIC) && data_batch_smaller(node->volume->vol, &max, pos, stop, err))
			continue;
		if (err)
			return pos > offset ? (ssize_t)(pos - offset) : err;
		pos = stop;
	}
	return pos - offset;
}

/* kill: privileges are taken away in the delta of the first part, or NULL. */
static ssize_t file_write(struct tux3_node *node, const void *data, size_t size, u64 offset, unsigned int flags,
			  struct file_kill *kill)
{
	const u32 *mode = NULL;
	struct tux3_attr attr;
	enum inode_use use;
	ssize_t done;
	int err;

	if (read_only_kind(node, &err))
		return err;
	err = wait_for_turn(node->volume);
	if (err)
		return err;
	down_write(&node->lock);
	inode_get_attr(&node->inode, &attr);
	if (flags & WRITE_APPEND)
		offset = attr.size;
	if (flags & WRITE_ALLOWED)
		attr.flags = 0;
	use = offset < attr.size ? USE_OVERWRITE : USE_APPEND;
	err = file_check_changeable(node, &attr, use);
	if (!err && size && offset >= TUX3_SIZE_MAX)
		err = -EFBIG;
	if (!err && kill && size)
		err = node_kill_begin(node, kill, &mode);
	if (err) {
		done = err;
	} else {
		size = min_t(u64, size, TUX3_SIZE_MAX - offset);
		done = write_locked(node, data, min_t(u64, size, SSIZE_MAX), offset, flags, mode);
		data_note_writing(&node->inode, 0);
	}
	up_write(&node->lock);
	return done;
}

ssize_t tux3_write(struct tux3_node *node, const void *data, size_t size, uint64_t offset)
{
	return file_write(node, data, size, offset, 0, NULL);
}

ssize_t tux3_write_atomic(struct tux3_node *node, const void *data, size_t size, uint64_t offset)
{
	if (!size)
		return 0;
	if (!data_atomic_fits(node->volume->vol, offset, size))
		return -EINVAL;
	/* The largest file ends within a block: there is no whole one. */
	if (offset >= TUX3_SIZE_MAX || size > TUX3_SIZE_MAX - offset)
		return -EFBIG;
	return file_write(node, data, size, offset, WRITE_ATOMIC, NULL);
}

ssize_t tux3_write_cached(struct tux3_node *node, const void *data, size_t size, u64 offset, bool keep_times,
			  struct file_kill *kill)
{
	return file_write(node, data, size, offset, WRITE_ALLOWED | (keep_times ? WRITE_KEEP_TIMES : 0), kill);
}

ssize_t tux3_write_killing(struct tux3_node *node, const void *data, size_t size, u64 offset, struct file_kill *kill)
{
	return file_write(node, data, size, offset, 0, kill);
}

ssize_t tux3_append(struct tux3_node *node, const void *data, size_t size)
{
	return file_write(node, data, size, 0, WRITE_APPEND, NULL);
}

int tux3_fsync_told(struct tux3_node *node)
{
	return fsync_inode(&node->inode, true);
}

u32 tux3_losses(struct tux3_node *node)
{
	return atomic_read(&node->losses);
}

int tux3_fsync(struct tux3_node *node, bool data_only)
{
	int err = tux3_fsync_told(node), losses = tux3_losses(node);

	if (unlikely(losses) && atomic_xchg(&node->losses_told, losses) != losses)
		return -EIO;
	return err == -EROFS && !atomic_xchg(&node->lost_told, 1) ? -EIO : err;
}
