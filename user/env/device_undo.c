/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Saving what is overwritten: see device_undo.h.
 *
 * Writes are queued.  A thread takes all that are there: it saves the old content of each, makes that durable with one fdatasync()
 * for all of them, and only then submits them below.  So who writes many blocks at once does not wait for each.
 *
 * Invariant: a write reaches the device below only if all its units are marked in `saved`, and a unit is marked there only when its
 * old content is durable in the file.
 *
 * Locking: lock protects the queue and stopping.  The file, `saved` and err belong to the thread.
 */
#include "device_undo.h"
#include "undo_file.h"

#define CHUNK_UNITS 32768u	/* 128 MiB of the device */

/* Which units of a part of the device are saved. */
struct chunk {
	struct rb_node node;
	u64 index;
	unsigned long bits[CHUNK_UNITS / BITS_PER_LONG];
};

struct request {
	struct list_head list;
	struct io_wait *wait;
	u64 addr;		/* blocks of block_size bytes */
	u64 bytes;
	u32 block_size;
	u32 vecs;
	unsigned int flags;
	struct kvec vec[];
};

struct device_undo {
	struct tux3_device dev;
	struct tux3_device *below;
	struct undo_file *file;
	struct task_struct *thread;
	spinlock_t lock;
	struct list_head queue;
	wait_queue_head_t more;
	struct rb_root saved;
	void *buffer;		/* of UNDO_RECORD_MAX */
	int err;		/* of the first write that could not be saved */
};

static struct device_undo *device_undo(struct tux3_device *dev)
{
	return container_of(dev, struct device_undo, dev);
}

static struct tux3_device *undo_below(struct tux3_device *dev)
{
	struct tux3_device *below = device_undo(dev)->below;

	if (below->block_size != dev->block_size)
		below->block_size = dev->block_size;
	return below;
}

/* ---- what is saved ---- */

/* NULL: out of memory. */
static struct chunk *get_chunk(struct device_undo *undo, u64 index)
{
	struct rb_node **link = &undo->saved.rb_node, *parent = NULL;
	struct chunk *chunk;

	while (*link) {
		parent = *link;
		chunk = rb_entry(parent, struct chunk, node);
		if (chunk->index == index)
			return chunk;
		link = index < chunk->index ? &parent->rb_left : &parent->rb_right;
	}
	chunk = kzalloc(sizeof(*chunk), GFP_KERNEL);
	if (!chunk)
		return NULL;
	chunk->index = index;
	rb_link_node(&chunk->node, parent, link);
	rb_insert_color(&chunk->node, &undo->saved);
	return chunk;
}

/* From this unit on up to `end`, within one chunk: how many are alike?  *saved: are they saved?  Or -ENOMEM. */
static int find_run(struct device_undo *undo, u64 first, u64 end, bool *saved)
{
	struct chunk *chunk = get_chunk(undo, first / CHUNK_UNITS);
	u32 from = first % CHUNK_UNITS, to;

	if (!chunk)
		return -ENOMEM;
	*saved = test_bit(from, chunk->bits);
	to = *saved ? find_next_zero_bit(chunk->bits, CHUNK_UNITS, from) : find_next_bit(chunk->bits, CHUNK_UNITS, from);
	return min_t(u64, to - from, end - first);
}

static int append_run(struct device_undo *undo, u64 first, u32 units, const void *data)
{
	int err = undo_file_append(undo->file, first * UNDO_UNIT, data, units * UNDO_UNIT);

	/* Not durable yet; but if it will not be, nothing is written any more. */
	if (!err)
		bitmap_set(get_chunk(undo, first / CHUNK_UNITS)->bits, first % CHUNK_UNITS, units);
	return err;
}

/*
 * What a device cannot read nobody gets back, and writing may be what makes it whole again: so it is no reason to write nothing.
 * It is saved as zeros, for what is written there must not stay when all else is put back.
 */
static int read_piece(struct device_undo *undo, u64 offset, u32 bytes, u32 block_size)
{
	u64 block = offset / block_size;
	int err = device_read(undo->below, block, bytes / block_size, undo->buffer);
	u32 done;

	if (err != -EIO)
		return err;
	for (done = 0; done < bytes; done += block_size, block++) {
		err = device_read(undo->below, block, 1, undo->buffer + done);
		if (err && err != -EIO)
			return err;
		if (!err)
			continue;
		memset(undo->buffer + done, 0, block_size);
		pr_warn("%s: what was at offset %llu cannot be read, and is saved as zeros\n", undo->file->path,
			(unsigned long long)(offset + done));
		undo->file->unreadable_bytes += block_size;
	}
	return 0;
}

/* These blocks, at most UNDO_RECORD_MAX bytes; they are read if there is anything to save. */
static int save_piece(struct device_undo *undo, u64 offset, u32 bytes, u32 block_size)
{
	u64 begin = offset / UNDO_UNIT, end = begin + bytes / UNDO_UNIT, at;
	bool saved, read = false;
	int units, err = 0;

	for (at = begin; at < end && !err; at += units) {
		units = find_run(undo, at, end, &saved);
		if (units < 0)
			return units;
		if (saved)
			continue;
		if (!read)
			err = read_piece(undo, offset, bytes, block_size);
		read = true;
		if (!err)
			err = append_run(undo, at, units, undo->buffer + (at - begin) * UNDO_UNIT);
	}
	return err;
}

static int save_request(struct device_undo *undo, const struct request *request)
{
	u64 offset = request->addr * request->block_size, done;
	u32 bytes;
	int err = 0;

	for (done = 0; done < request->bytes && !err; done += bytes) {
		bytes = min_t(u64, request->bytes - done, UNDO_RECORD_MAX);
		err = save_piece(undo, offset + done, bytes, request->block_size);
	}
	return err;
}

/* ---- the thread ---- */

static void pass_on(struct device_undo *undo, struct list_head *batch)
{
	struct request *request, *next;
	u64 before = undo->file->seq;

	list_for_each_entry(request, batch, list)
		if (!undo->err)
			undo->err = save_request(undo, request);
	if (!undo->err && undo->file->seq != before)
		undo->err = undo_file_sync(undo->file);
	list_for_each_entry_safe(request, next, batch, list) {
		if (!undo->err)
			device_writev(undo->below, request->addr, request->vec, request->vecs, request->flags, request->wait);
		io_wait_end(request->wait, undo->err);
		kfree(request);
	}
	device_kick(undo->below);
}

static bool take_all(struct device_undo *undo, struct list_head *batch)
{
	spin_lock(&undo->lock);
	list_splice_tail_init(&undo->queue, batch);
	spin_unlock(&undo->lock);
	return !list_empty(batch);
}

static int undo_thread(void *data)
{
	struct device_undo *undo = data;
	LIST_HEAD(batch);
	bool any;

	do {
		wait_event(undo->more, (any = take_all(undo, &batch)) || kthread_should_stop());
		if (any) {
			pass_on(undo, &batch);
			INIT_LIST_HEAD(&batch);
		}
	} while (any);
	return 0;
}

/* ---- the device ---- */

static int undo_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	return device_read(undo_below(dev), addr, count, data);
}

static void undo_read_many(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	device_read_many(undo_below(dev), reads, count);
}

static void undo_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
		       unsigned int flags, struct io_wait *wait)
{
	struct device_undo *undo = device_undo(dev);
	struct request *request = kmalloc(sizeof(*request) + vecs * sizeof(*vec), GFP_KERNEL);
	u32 i;

	undo_below(dev);
	io_wait_begin(wait);
	if (!request || WARN_ON_ONCE(dev->block_size % UNDO_UNIT)) {
		kfree(request);
		io_wait_end(wait, request ? -EINVAL : -ENOMEM);
		return;
	}
	*request = (struct request){ .wait = wait, .addr = addr, .block_size = dev->block_size, .vecs = vecs, .flags = flags };
	for (i = 0; i < vecs; i++) {
		request->vec[i] = vec[i];
		request->bytes += vec[i].iov_len;
	}
	spin_lock(&undo->lock);
	list_add_tail(&request->list, &undo->queue);
	spin_unlock(&undo->lock);
	wake_up(&undo->more);
}

static int undo_flush(struct tux3_device *dev)
{
	return device_flush(undo_below(dev));
}

static void undo_close(struct tux3_device *dev)
{
	struct device_undo *undo = device_undo(dev);
	struct chunk *chunk, *next;

	kthread_stop(undo->thread);
	rbtree_postorder_for_each_entry_safe(chunk, next, &undo->saved, node)
		kfree(chunk);
	kvfree(undo->buffer);
	kfree(undo);
}

static const struct tux3_device_ops undo_ops = {
	.read = undo_read,
	.read_many = undo_read_many,
	.write = undo_write,
	.flush = undo_flush,
	.close = undo_close,
};

struct tux3_device *device_undo_create(struct tux3_device *below, struct undo_file *file)
{
	struct device_undo *undo = kzalloc(sizeof(*undo), GFP_KERNEL);

	if (!undo)
		return NULL;
	undo->dev = (struct tux3_device){
		.ops = &undo_ops,
		.size_bytes = below->size_bytes,
		.block_size = below->block_size,
		.read_only = below->read_only,
		.volatile_cache = below->volatile_cache,
		.has_fua = below->has_fua,
		.name = below->name,
	};
	undo->below = below;
	undo->file = file;
	undo->saved = RB_ROOT;
	spin_lock_init(&undo->lock);
	INIT_LIST_HEAD(&undo->queue);
	init_waitqueue_head(&undo->more);
	undo->buffer = kvmalloc(UNDO_RECORD_MAX, GFP_KERNEL);
	if (undo->buffer)
		undo->thread = kthread_run(undo_thread, undo, "tux3-undo");
	if (undo->buffer && !IS_ERR(undo->thread))
		return &undo->dev;
	kvfree(undo->buffer);
	kfree(undo);
	return NULL;
}

/* ---- putting back ---- */

static int put_back_place(struct tux3_device *dev, struct undo_file *file, const struct undo_place *place, void *buffer)
{
	struct io_wait wait;
	int err = undo_file_read(file, place, buffer);

	if (err)
		return err;
	io_wait_init(&wait);
	device_write(dev, place->offset / dev->block_size, buffer, place->bytes / dev->block_size, 0, &wait);
	device_kick(dev);
	return io_wait_finish(&wait);
}

int device_undo_put_back(struct tux3_device *dev, struct undo_file *file,
			 void (*progress)(void *ctx, u64 done, u64 total), void *ctx)
{
	void *buffer = kvmalloc(UNDO_RECORD_MAX, GFP_KERNEL);
	u64 left = file->count;
	int err = buffer ? 0 : -ENOMEM;

	dev->block_size = UNDO_UNIT;
	while (left && !err) {
		err = put_back_place(dev, file, &file->places[--left], buffer);
		if (progress)
			progress(ctx, file->count - left, file->count);
	}
	kvfree(buffer);
	return err ? err : device_flush(dev);
}
