// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The block device as the core wants it: its reads, writes, flushes and discards as bios.  See device.h.
 *
 * The core hands over memory by address: from kmalloc, vmalloc, or a folio.  A piece of vmalloc memory is taken page by
 * page, any other as it is, since it is contiguous.  Memory that the device cannot reach as it lies (odd alignment)
 * goes through a copy; what the core allocates never does.
 *
 * No deadlock for want of memory: bios come from our own reserves, each is submitted before the next is asked for, and
 * nothing here waits for anything but the completion of bios.
 */
#include <linux/blk-cgroup.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "core/format/format.h"
#include "linux/device.h"

#define BDEV_BIOS 16u		/* reserve of each of the two sets: what is under way when there is no memory */

/* Those who wait for a commit wait for these: not to be held back for readers or by writeback throttling. */
#define BDEV_WRITE_FLAGS (REQ_OP_WRITE | REQ_META | REQ_SYNC | REQ_IDLE)

/* ---- bios ---- */

/*
 * A commit is everybody's, and may run in the task of anybody who waits for it; a node of the tree may be wanted by
 * others, and by the commit.  So none of that is charged to the cgroup of the task at hand, whose limits of I/O
 * (io.max) would hold up all users of the volume.  What somebody reads of a file is charged to him.
 */
static void bio_for_all(struct bio *bio)
{
	bio_associate_blkg_from_css(bio, blkcg_root_css);
}

struct bio *bdev_bio_alloc(struct tux3_device *dev, u64 addr, unsigned int vecs, blk_opf_t opf)
{
	struct bdev_device *bd = bdev_device_of(dev);
	struct bio_set *set = op_is_write(opf) ? &bd->write_bios : &bd->read_bios;
	struct bio *bio = bio_alloc_bioset(bd->bdev, clamp(vecs, 1u, BIO_MAX_VECS), opf, GFP_NOFS, set);

	bio->bi_iter.bi_sector = bdev_sector(dev, addr);
	if (opf & REQ_META || op_is_write(opf))
		bio_for_all(bio);
	return bio;
}

static bool bdev_bio_valid(struct tux3_device *dev, struct bio *bio)
{
	u64 sectors = dev->size_bytes >> SECTOR_SHIFT;

	return bio->bi_iter.bi_sector <= sectors && bio_sectors(bio) <= sectors - bio->bi_iter.bi_sector;
}

void bdev_bio_submit(struct tux3_device *dev, struct bio *bio)
{
	bool is_write = op_is_write(bio_op(bio));

	if (WARN_ON_ONCE(is_write && dev->read_only) || !bdev_bio_valid(dev, bio)) {
		pr_err_ratelimited("%s: %s at sector %llu of a device with %llu sectors%s; refused\n", dev->name,
				   is_write ? "write" : "read", (u64)bio->bi_iter.bi_sector,
				   dev->size_bytes >> SECTOR_SHIFT, dev->read_only ? ", open for reading only" : "");
		bio_io_error(bio);
		return;
	}
	atomic64_inc(is_write ? &dev->writes : &dev->reads);
	atomic64_add(bio->bi_iter.bi_size, is_write ? &dev->write_bytes : &dev->read_bytes);
	submit_bio(bio);
}

void bdev_bio_start(struct tux3_device *dev, struct bio *bio)
{
	bdev_bio_submit(dev, bio);
	/*
	 * Sends off what is plugged, as any sleep does.  The plug stays: it may be that of our caller's caller.  (Taking it
	 * away for a moment would be wrong: requests in it hold tags, and who waits for one must have sent them off.)
	 */
	if (current->plug)
		io_schedule();
}

/* The caller has commit_mutex, or has kept nothing. */
static struct bio *kept_take(struct bdev_device *bd)
{
	struct bio *bio;

	if (READ_ONCE(bd->keeper) != current)
		return NULL;
	bio = bd->kept;
	bd->kept = NULL;
	WRITE_ONCE(bd->keeper, NULL);
	return bio;
}

void bdev_bio_kick(struct tux3_device *dev)
{
	struct bio *bio = kept_take(bdev_device_of(dev));

	if (bio)
		bdev_bio_submit(dev, bio);
}

void bdev_bio_keep(struct tux3_device *dev, struct bio *bio)
{
	struct bdev_device *bd = bdev_device_of(dev);

	bdev_bio_kick(dev);
	WARN_ON_ONCE(bd->kept);
	bd->kept = bio;
	WRITE_ONCE(bd->keeper, current);
}

struct bio *bdev_bio_continue(struct tux3_device *dev, u64 addr, void *private)
{
	struct bio *bio = kept_take(bdev_device_of(dev));

	if (!bio || (bio->bi_private == private && bio_end_sector(bio) == bdev_sector(dev, addr)))
		return bio;
	bdev_bio_submit(dev, bio);
	return NULL;
}

/* ---- memory to bios ---- */

static void bdev_end_io(struct bio *bio)
{
	struct io_wait *wait = bio->bi_private;
	int err = bdev_bio_error(bio);

	bio_put(bio);
	io_wait_end(wait, err);
}

/* Bios over some memory, as it is put into them piece by piece. */
struct bdev_stream {
	struct tux3_device *dev;
	struct io_wait *wait;
	struct bio *bio;	/* the one being filled, or NULL */
	sector_t sector;	/* where the next piece goes */
	blk_opf_t opf;
	unsigned int vecs;	/* pieces to come, at most */
};

static void stream_submit(struct bdev_stream *stream)
{
	if (stream->bio)
		submit_bio(stream->bio);
	stream->bio = NULL;
}

static void stream_begin(struct bdev_stream *stream)
{
	struct bio *bio = bdev_bio_alloc(stream->dev, 0, stream->vecs, stream->opf);

	bio->bi_iter.bi_sector = stream->sector;
	bio->bi_private = stream->wait;
	bio->bi_end_io = bdev_end_io;
	io_wait_begin(stream->wait);
	stream->bio = bio;
}

static void stream_add(struct bdev_stream *stream, struct page *page, unsigned int len, unsigned int offset)
{
	if (stream->bio && !bio_add_page(stream->bio, page, len, offset))
		stream_submit(stream);		/* full */
	if (!stream->bio) {
		stream_begin(stream);
		__bio_add_page(stream->bio, page, len, offset);
	}
	stream->sector += len >> SECTOR_SHIFT;
	if (stream->vecs > 1)
		stream->vecs--;
}

static void stream_add_memory(struct bdev_stream *stream, const void *data, size_t len)
{
	bool scattered = is_vmalloc_addr(data);

	while (len) {
		unsigned int offset = offset_in_page(data);
		unsigned int piece = min_t(size_t, len, scattered ? PAGE_SIZE - offset : SZ_1G);

		stream_add(stream, scattered ? vmalloc_to_page(data) : virt_to_page(data), piece, offset);
		data += piece;
		len -= piece;
	}
}

static unsigned int memory_pieces(const void *data, size_t len)
{
	return is_vmalloc_addr(data) ? DIV_ROUND_UP(offset_in_page(data) + len, PAGE_SIZE) : 1;
}

static void bdev_submit(struct tux3_device *dev, blk_opf_t opf, u64 addr, const struct kvec *vec, u32 vecs,
			struct io_wait *wait)
{
	struct bdev_stream stream = { .dev = dev, .wait = wait, .sector = bdev_sector(dev, addr), .opf = opf };
	u32 i;

	for (i = 0; i < vecs; i++)
		stream.vecs += memory_pieces(vec[i].iov_base, vec[i].iov_len);
	for (i = 0; i < vecs; i++)
		stream_add_memory(&stream, vec[i].iov_base, vec[i].iov_len);
	stream_submit(&stream);
}

/* Can a bio point to this memory? */
static bool bdev_can_reach(struct tux3_device *dev, const void *data, size_t len)
{
	return !(((unsigned long)data | len) & bdev_device_of(dev)->align_mask);
}

/* ---- what the core calls ---- */

static int bdev_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct kvec vec = { .iov_base = data, .iov_len = (size_t)count * dev->block_size };
	bool copy = !bdev_can_reach(dev, data, vec.iov_len);
	struct io_wait wait;
	int err;

	if (copy) {
		vec.iov_base = kvmalloc(vec.iov_len, GFP_NOFS);
		if (!vec.iov_base)
			return -ENOMEM;
	}
	io_wait_init(&wait);
	bdev_submit(dev, REQ_OP_READ | REQ_META, addr, &vec, 1, &wait);
	err = io_wait_finish(&wait);
	if (is_vmalloc_addr(vec.iov_base))
		invalidate_kernel_vmap_range(vec.iov_base, vec.iov_len);
	if (copy) {
		if (!err)
			memcpy(data, vec.iov_base, vec.iov_len);
		kvfree(vec.iov_base);
	}
	return err;
}

/* Which of several reads failed, one at a time: and what failed in company may well succeed alone. */
static void bdev_read_each(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		reads[i].err = bdev_read(dev, reads[i].addr, reads[i].count, reads[i].data);
}

/*
 * Neighbours become one request; what the device cannot reach as it lies is read by itself.  One io_wait for all, since
 * many would fill a stack on which a filesystem, and reclaim, may lie already.
 */
static void bdev_read_many(struct tux3_device *dev, struct device_io *reads, u32 count)
{
	struct io_wait wait;
	struct blk_plug plug;
	int err;
	u32 i;

	io_wait_init(&wait);
	blk_start_plug(&plug);
	for (i = 0; i < count; i++) {
		struct kvec vec = { .iov_base = reads[i].data, .iov_len = (size_t)reads[i].count * dev->block_size };

		if (bdev_can_reach(dev, vec.iov_base, vec.iov_len))
			bdev_submit(dev, REQ_OP_READ | REQ_META, reads[i].addr, &vec, 1, &wait);
	}
	blk_finish_plug(&plug);
	err = io_wait_finish(&wait);
	if (err) {
		bdev_read_each(dev, reads, count);
		return;
	}
	for (i = 0; i < count; i++) {
		size_t bytes = (size_t)reads[i].count * dev->block_size;

		reads[i].err = 0;
		if (!bdev_can_reach(dev, reads[i].data, bytes))
			bdev_read_each(dev, &reads[i], 1);
		else if (is_vmalloc_addr(reads[i].data))
			invalidate_kernel_vmap_range(reads[i].data, bytes);
	}
}

/* Rare, so there is no need to go on before it is written. */
static void bdev_write_copy(struct tux3_device *dev, blk_opf_t opf, u64 addr, const struct kvec *vec, u32 vecs,
			    size_t bytes, struct io_wait *wait)
{
	struct kvec copy = { .iov_base = kvmalloc(bytes, GFP_NOFS | __GFP_NOFAIL), .iov_len = bytes };
	struct io_wait own;
	size_t at = 0;
	u32 i;

	for (i = 0; i < vecs; i++) {
		memcpy(copy.iov_base + at, vec[i].iov_base, vec[i].iov_len);
		at += vec[i].iov_len;
	}
	io_wait_begin(wait);
	io_wait_init(&own);
	bdev_submit(dev, opf, addr, &copy, 1, &own);
	io_wait_end(wait, io_wait_finish(&own));
	kvfree(copy.iov_base);
}

static void bdev_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs,
		       unsigned int flags, struct io_wait *wait)
{
	bool has_cache = bdev_write_cache(bdev_device_of(dev)->bdev), direct = true;
	blk_opf_t opf = BDEV_WRITE_FLAGS | (flags & DEVICE_FUA ? REQ_FUA : 0);
	size_t bytes = 0;
	u32 i;

	/* An administrator may change it at any time.  The flush comes after the write: so this is in time. */
	if (unlikely(dev->volatile_cache != has_cache))
		WRITE_ONCE(dev->volatile_cache, has_cache);
	for (i = 0; i < vecs; i++) {
		direct &= bdev_can_reach(dev, vec[i].iov_base, vec[i].iov_len);
		bytes += vec[i].iov_len;
		if (is_vmalloc_addr(vec[i].iov_base))
			flush_kernel_vmap_range(vec[i].iov_base, vec[i].iov_len);
	}
	if (likely(direct))
		bdev_submit(dev, opf, addr, vec, vecs, wait);
	else
		bdev_write_copy(dev, opf, addr, vec, vecs, bytes, wait);
}

static int bdev_flush(struct tux3_device *dev)
{
	struct bio bio;

	bio_init(&bio, bdev_device_of(dev)->bdev, NULL, 0, REQ_OP_WRITE | REQ_PREFLUSH);
	bio_for_all(&bio);
	return submit_bio_wait(&bio) ? -EIO : 0;
}

static int bdev_discard(struct tux3_device *dev, u64 addr, u64 count)
{
	struct block_device *bdev = bdev_device_of(dev)->bdev;
	sector_t sectors = bdev_sector(dev, count);
	int err;

	if (!bdev_max_discard_sectors(bdev))
		return 0;
	err = blkdev_issue_discard(bdev, bdev_sector(dev, addr), sectors, GFP_NOFS);
	return err && err != -EOPNOTSUPP ? -EIO : 0;
}

static void bdev_close(struct tux3_device *dev)
{
	struct bdev_device *bd = bdev_device_of(dev);

	/* Tools that read the device through its page cache from now on must find what we have written. */
	WARN_ON_ONCE(bd->kept);
	sync_blockdev(bd->bdev);
	invalidate_bdev(bd->bdev);
	bioset_exit(&bd->write_bios);
	bioset_exit(&bd->read_bios);
	kfree(bd);
}

static const struct tux3_device_ops bdev_device_ops = {
	.read = bdev_read,
	.read_many = bdev_read_many,
	.write = bdev_write,
	.flush = bdev_flush,
	.discard = bdev_discard,
	.kick = bdev_bio_kick,
	.close = bdev_close,
};

/* ---- life ---- */

int bdev_device_set_read_only(struct tux3_device *dev, bool read_only)
{
	if (!read_only && bdev_read_only(bdev_device_of(dev)->bdev))
		return -EROFS;
	dev->read_only = read_only;
	return 0;
}

struct tux3_device *bdev_device_open(struct block_device *bdev, bool read_only, char *why, size_t why_size)
{
	unsigned int sector_bytes = bdev_logical_block_size(bdev);
	struct bdev_device *bd;
	int err;

	if (sector_bytes > 1u << TUX3_MIN_BLOCK_SHIFT) {
		snprintf(why, why_size, "the device has sectors of %u bytes: more than %u are not supported",
			 sector_bytes, 1u << TUX3_MIN_BLOCK_SHIFT);
		return ERR_PTR(-EINVAL);
	}
	snprintf(why, why_size, "out of memory");
	bd = kzalloc(sizeof(*bd), GFP_KERNEL);
	if (!bd)
		return ERR_PTR(-ENOMEM);
	err = bioset_init(&bd->write_bios, BDEV_BIOS, 0, BIOSET_NEED_BVECS);
	if (!err)
		err = bioset_init(&bd->read_bios, BDEV_BIOS, 0, BIOSET_NEED_BVECS);
	if (err) {
		bioset_exit(&bd->write_bios);
		kfree(bd);
		return ERR_PTR(err);
	}
	bd->bdev = bdev;
	bd->align_mask = bdev_dma_alignment(bdev) | (sector_bytes - 1);
	snprintf(bd->name, sizeof(bd->name), "tux3 %pg", bdev);
	bd->dev.ops = &bdev_device_ops;
	bd->dev.name = bd->name;
	bd->dev.size_bytes = bdev_nr_bytes(bdev);
	bd->dev.block_size = 1u << TUX3_MIN_BLOCK_SHIFT;
	bd->dev.read_only = read_only || bdev_read_only(bdev);
	bd->dev.volatile_cache = bdev_write_cache(bdev);
	bd->dev.has_fua = bdev_fua(bdev);
	/* What somebody wrote through the device's page cache, a mkfs perhaps, must be where we read. */
	sync_blockdev(bdev);
	return &bd->dev;
}
