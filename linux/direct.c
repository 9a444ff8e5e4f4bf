// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Direct reads (O_DIRECT): from the device into the caller's own memory, asynchronously if he wants.
 *
 * What is in the page cache is read from there, as a whole read: it alone has what is not committed.  Else the kernel's iomap
 * does what is the same for all filesystems: it pins the caller's memory, makes a bio for each piece of it that an extent
 * has, fills holes, and counts the bios.  Ours is what a bio reads, and whether that is right:
 *
 *  - The caller sees what comes as it comes, so it must never be what somebody else has in that block by now.  Only when
 *    the memory is pinned, which may take faults and so anything, the read is counted, the blocks are looked up, and the
 *    read is noted as one of these (block_reads.h).  Until it is over they are not used again.  (iomap asked before that how
 *    far the bio may go.)
 *  - Nor must it be what the block had before, for as long as the commit is under way that writes it: then the device may not
 *    have it yet.  The extent's birth tells.  (It was not cached when we looked; but that may be a while ago, and a truncate may
 *    have taken it out of the cache.)
 *  - Checksums are compared in the caller's memory.  What is wrong there, what could not be read, and what was not where it had
 *    been, is read by way of the page cache, which knows all that, and tells of damage.
 *  - Bytes beyond the end of the file are zeros, whatever the disk has.
 *
 * Few blocks are compared where the device's interrupt ends; more, and all that is read again, in a worker.
 *
 * Who must not wait (IOCB_NOWAIT, as io_uring asks first) gets what one extent has, if it is known at once where that is.  Not
 * what two have: the second may have to be waited for when the first is on its way.
 *
 * Who polls (IOCB_HIPRI, as an io_uring with IORING_SETUP_IOPOLL does) ends his bio himself, and waits for what a worker does then.
 *
 * Locking: none, but for what is read by way of the page cache.  As with other reads, a truncate or a write beside it may be seen
 * or not.
 *
 * Writes with O_DIRECT go through the page cache, and leave it when they are durable (write.c): nobody waits for the device, and a
 * read after that is direct again.
 */
#include <linux/blkdev.h>
#include <linux/crc32c.h>
#include <linux/highmem.h>
#include <linux/iomap.h>
#include "core/blocks/block_reads.h"
#include "linux/folio.h"

#define DIRECT_FEW_BYTES	(64u << 10)
/* As much as fits into a bio, however it lies in memory: else bios may end within a block. */
#define DIRECT_BIO_BYTES	(loff_t)(BIO_MAX_VECS / 2 * PAGE_SIZE)

struct direct_bio {
	struct work_struct work;
	struct bio *bio;
	bio_end_io_t *end_io;		/* iomap's, and what it wants to find there */
	void *private;
	struct bvec_iter iter;		/* all of it */
	struct tux3_inode *inode;
	u64 pos, end;			/* in the file */
	u64 size;			/* of the file */
	struct block_read read;		/* once it is known where */
	bool has_csum;
	bool failed;			/* nothing came, or nobody knows what */
	__le32 csum[];
};

/* Not that of read.c: who works here may wait for folios that are unlocked there. */
static struct workqueue_struct *direct_queue;

int direct_init(void)
{
	direct_queue = alloc_workqueue("tux3-direct", WQ_MEM_RECLAIM | WQ_HIGHPRI | COMPAT_WQ_PERCPU, 0);
	return direct_queue ? 0 : -ENOMEM;
}

void direct_exit(void)
{
	destroy_workqueue(direct_queue);
}

/* ---- what has been read ---- */

/* Of the block at pos.  at: where it is in the memory. */
static bool block_is_right(struct direct_bio *direct, u64 pos, struct bvec_iter at)
{
	struct volume *vol = direct->inode->vol;
	struct bvec_iter iter;
	struct bio_vec vec;
	u32 crc = ~0u;
	void *data;

	if (direct->failed || !direct->has_csum)
		return !direct->failed;
	at.bi_size = vol->block_size;
	__bio_for_each_segment(vec, direct->bio, iter, at) {
		data = bvec_kmap_local(&vec);
		crc = crc32c(crc, data, vec.bv_len);
		kunmap_local(data);
	}
	return crc == le32_to_cpu(direct->csum[(pos - direct->pos) >> vol->block_shift]);
}

static bool all_is_right(struct direct_bio *direct)
{
	u32 block_size = direct->inode->vol->block_size;
	struct bvec_iter at = direct->iter;
	u64 pos = direct->pos;

	for (; pos < direct->end && block_is_right(direct, pos, at); pos += block_size)
		bio_advance_iter(direct->bio, &at, block_size);
	return pos >= direct->end;
}

/* A part of a block.  With the lock that keeps the page cache empty where blocks are about to go, or to change their place. */
static int read_cached(struct direct_bio *direct, u64 pos, u32 part, struct bvec_iter at)
{
	struct address_space *mapping = core_node(direct->inode)->vfs.i_mapping;
	struct folio *folio;
	struct bvec_iter iter;
	struct bio_vec vec;
	char *data;

	filemap_invalidate_lock_shared(mapping);
	folio = read_mapping_folio(mapping, pos >> PAGE_SHIFT, NULL);
	filemap_invalidate_unlock_shared(mapping);
	if (IS_ERR(folio))
		return PTR_ERR(folio);
	data = folio_address(folio) + offset_in_folio(folio, pos);
	at.bi_size = part;
	__bio_for_each_segment(vec, direct->bio, iter, at) {
		memcpy_to_bvec(&vec, data);
		data += vec.bv_len;
	}
	folio_put(folio);
	return 0;
}

static void zero_beyond_end(struct direct_bio *direct)
{
	struct bvec_iter at = direct->iter, iter;
	struct bio_vec vec;

	if (direct->size >= direct->end)
		return;
	if (direct->size > direct->pos)
		bio_advance_iter(direct->bio, &at, direct->size - direct->pos);
	__bio_for_each_segment(vec, direct->bio, iter, at)
		memzero_bvec(&vec);
}

/* The inode, and the volume, may go with this. */
static void direct_over(struct direct_bio *direct, int err)
{
	struct bio *bio = direct->bio;

	zero_beyond_end(direct);
	bio->bi_status = errno_to_blk_status(err);
	bio->bi_private = direct->private;
	bio->bi_end_io = direct->end_io;
	kvfree(direct);
	bio->bi_end_io(bio);
}

static void direct_work(struct work_struct *work)
{
	struct direct_bio *direct = container_of(work, struct direct_bio, work);
	u32 block_size = direct->inode->vol->block_size, part;
	struct bvec_iter at = direct->iter;
	u64 pos = direct->pos;
	int err = 0;

	for (; !err && pos < direct->end; pos += part) {
		part = min_t(u64, direct->end - pos, block_size - (pos & (block_size - 1)));
		if (!block_is_right(direct, pos, at))
			err = read_cached(direct, pos, part, at);
		bio_advance_iter(direct->bio, &at, part);
		cond_resched();
	}
	direct_over(direct, err);
}

/* ---- bios ---- */

static void direct_ended(struct direct_bio *direct)
{
	if (direct->iter.bi_size <= DIRECT_FEW_BYTES && all_is_right(direct)) {
		direct_over(direct, 0);
		return;
	}
	INIT_WORK(&direct->work, direct_work);
	queue_work(direct_queue, &direct->work);
}

static void direct_bio_end(struct bio *bio)
{
	struct direct_bio *direct = bio->bi_private;

	direct->failed = bdev_bio_error(bio);
	block_read_over(direct->inode->vol, &direct->read);
	direct_ended(direct);
}

/*
 * The bio goes to where its blocks are now.  false: they are not in one piece any more, or may not be there yet; or it is not of
 * whole blocks, since memory that is not there ended it; or that would have to be waited for.
 */
static bool direct_aim(struct direct_bio *direct, bool nowait)
{
	struct volume *vol = direct->inode->vol;
	typeof(data_map) *map = nowait ? data_map_now : data_map;
	u32 count = direct->iter.bi_size >> vol->block_shift;
	struct data_extent extent;

	if ((direct->pos | direct->end) & (vol->block_size - 1) ||
	    map(direct->inode, direct->pos >> vol->block_shift, count, &extent, direct->csum, count) ||
	    extent.kind != DATA_MAPPED || extent.count < count || extent.birth > READ_ONCE(vol->delta.committed))
		return false;
	direct->has_csum = extent.has_csum;
	direct->read.addr = extent.addr;
	direct->read.count = count;
	direct->bio->bi_iter.bi_sector = bdev_sector(vol->dev, extent.addr);
	return true;
}

/* The kernel refuses bios that are to be polled for where that cannot be: ours come as others then, while the caller polls. */
static bool can_be_polled(const struct volume *vol)
{
	return bdev_get_queue(bdev_device_of(vol->dev)->bdev)->limits.features & BLK_FEAT_POLL;
}

static void direct_submit(const struct iomap_iter *iter, struct bio *bio, loff_t pos)
{
	struct volume *vol = vol_of(iter->inode);
	size_t size = struct_size_t(struct direct_bio, csum, bio->bi_iter.bi_size >> vol->block_shift);
	bool nowait = iter->flags & IOMAP_NOWAIT;
	struct direct_bio *direct = nowait ? kmalloc(size, GFP_NOWAIT | __GFP_NOWARN) : kvmalloc(size, GFP_NOFS);
	unsigned int slot;

	if (!direct) {
		bio->bi_status = nowait ? BLK_STS_AGAIN : BLK_STS_RESOURCE;
		bio_endio(bio);
		return;
	}
	direct->bio = bio;
	direct->end_io = bio->bi_end_io;
	direct->private = bio->bi_private;
	direct->iter = bio->bi_iter;
	direct->inode = core_of(iter->inode);
	direct->pos = pos;
	direct->end = pos + bio->bi_iter.bi_size;
	direct->size = i_size_read(iter->inode);
	bio->bi_private = direct;
	bio->bi_end_io = direct_bio_end;
	if (!can_be_polled(vol))
		bio_clear_polled(bio);
	slot = block_reads_begin(vol);
	if (likely(direct_aim(direct, nowait))) {
		block_read_start(vol, slot, &direct->read);
		bdev_bio_submit(vol->dev, bio);
	} else {
		block_reads_end(vol, slot);
		direct->failed = true;
		direct_ended(direct);
	}
}

/* ---- for iomap ---- */

static int direct_begin(struct inode *inode, loff_t pos, loff_t length, unsigned int flags, struct iomap *iomap,
			struct iomap *srcmap)
{
	struct volume *vol = vol_of(inode);
	u64 block = pos >> vol->block_shift, count = DIV_ROUND_UP_ULL(min(length, DIRECT_BIO_BYTES), vol->block_size);
	u64 end = DIV_ROUND_UP_ULL(i_size_read(inode), vol->block_size);
	struct data_extent extent = { .kind = DATA_HOLE, .count = count };
	bool nowait = flags & IOMAP_NOWAIT;
	int err = 0;

	if (block < end)
		err = (nowait ? data_map_now : data_map)(core_of(inode), block, min(count, end - block), &extent, NULL, 0);
	if (!err && nowait && extent.count << vol->block_shift < length)
		err = -EAGAIN;
	if (err)
		return err;
	if (extent.kind == DATA_INLINE)
		return -ENOTBLK;	/* the rest by way of the cache */
	iomap->bdev = bdev_device_of(vol->dev)->bdev;
	iomap->offset = block << vol->block_shift;
	iomap->length = extent.count << vol->block_shift;
	iomap->flags = 0;
	iomap->type = extent.kind == DATA_MAPPED ? IOMAP_MAPPED : IOMAP_HOLE;
	iomap->addr = extent.kind == DATA_MAPPED ? extent.addr << vol->block_shift : IOMAP_NULL_ADDR;
	return 0;
}

static const struct iomap_ops direct_iomap_ops = {
	.iomap_begin = direct_begin,
};

static const struct iomap_dio_ops direct_dio_ops = {
	.submit_io = direct_submit,
};

/*
 * Whole blocks of the file, of which nothing is cached, to memory that the device can write to; if in several pieces, of whole
 * pages.
 */
bool direct_read_fits(struct kiocb *iocb, const struct iov_iter *to)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct volume *vol = vol_of(inode);
	size_t count = iov_iter_count(to);

	return count && iocb->ki_pos < i_size_read(inode) &&
	       !((iocb->ki_pos | count) & (vol->block_size - 1)) &&
	       !(iov_iter_alignment(to) & ((iter_is_iovec(to) ? PAGE_SIZE : direct_alignment(vol->dev)) - 1)) &&
	       !filemap_range_has_page(inode->i_mapping, iocb->ki_pos, iocb->ki_pos + count - 1);
}

ssize_t direct_read(struct kiocb *iocb, struct iov_iter *to)
{
	file_accessed(iocb->ki_filp);
	return iomap_dio_rw(iocb, to, &direct_iomap_ops, &direct_dio_ops, 0, NULL, 0);
}
