/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The block device as the core wants it (core/device/device.h), made of bios.
 *
 * The core reads and writes metadata through the struct tux3_device.  The VFS binding's file data goes around
 * it, in bios of its own that it gets and submits here, so that it can end each folio's writeback itself:
 *
 *	bio = bdev_bio_alloc(dev, addr, vecs, REQ_OP_WRITE | REQ_SYNC);
 *	bio_add_folio(bio, folio, len, offset);		(as long as it returns true)
 *	bio->bi_end_io = ...; bio->bi_private = ...;
 *	io_wait_begin(wait);				(so that the commit waits for it)
 *	bdev_bio_submit(dev, bio);
 *
 * and its bi_end_io (interrupt context) takes wait and err = bdev_bio_error(bio) from the bio, ends the folios'
 * writeback, calls bio_put(bio) and last io_wait_end(wait, err): after that the io_wait, and the device, may be gone.
 *
 * Memory: bdev_bio_alloc() never fails; it may wait for a bio of ours that is under way to complete.  So never hold
 * one that is not submitted while asking for the next.  Reads have their own reserve: a read never waits for writes.
 *
 * Locking: none of our own, but for the bio that the back end keeps: commit_mutex.  All others may be called from several tasks.
 * bdev_bio_alloc() and bdev_bio_submit() may sleep.
 */
#ifndef TUX3_LINUX_DEVICE_H
#define TUX3_LINUX_DEVICE_H

#include <linux/bio.h>
#include <linux/blkdev.h>

#include "core/device/device.h"

struct bdev_device {
	struct tux3_device dev;
	struct block_device *bdev;	/* the caller's: open as long as we are */
	struct super_block *sb;		/* of the mount */
	struct bio_set write_bios, read_bios;
	struct bio *kept;		/* the keeper's alone; see bdev_bio_keep() */
	struct task_struct *keeper;	/* who has commit_mutex and has kept it; NULL: there is none */
	unsigned int align_mask;	/* memory that a bio points to, and its length, must have none of these bits */
	char name[BDEVNAME_SIZE + 8];	/* "tux3 sda1" */
};

static inline struct bdev_device *bdev_device_of(struct tux3_device *dev)
{
	return container_of(dev, struct bdev_device, dev);
}

/*
 * For a block device that the caller has open.  Freed by dev->ops->close(dev), which leaves the block device open.
 * ERR_PTR, and a sentence in why: -ENOMEM, -EINVAL (its sectors are larger than
 * a volume's blocks may be).
 */
struct tux3_device *bdev_device_open(struct block_device *bdev, bool read_only, char *why, size_t why_size);
/* For a mount that becomes writable (or read-only): the same flag as in struct tux3_device. -EROFS: the device is. */
int bdev_device_set_read_only(struct tux3_device *dev, bool read_only);

static inline sector_t bdev_sector(struct tux3_device *dev, u64 addr)
{
	return addr * (dev->block_size >> SECTOR_SHIFT);
}

/*
 * A bio for the device, at volume block addr, with room for vecs pieces (1 .. BIO_MAX_VECS; more are cut to that).
 * opf: REQ_OP_READ or REQ_OP_WRITE and flags.  Never NULL.
 */
struct bio *bdev_bio_alloc(struct tux3_device *dev, u64 addr, unsigned int vecs, blk_opf_t opf);
/* Submit it and count it (dev->reads or writes).  Errors come to bi_end_io. */
void bdev_bio_submit(struct tux3_device *dev, struct bio *bio);

/* The same, and the device begins with it at once, and with all that the caller, or his caller, has plugged (blk_start_plug()). */
void bdev_bio_start(struct tux3_device *dev, struct bio *bio);

/*
 * For the back end's data: a bio that the next piece may go on with is kept instead of submitted; device_kick(),
 * which the core calls before it waits, submits it.  So does who is about to wait for a folio lock: bdev_bio_kick().
 * One at a time.  An fsync ahead of the delta waits, and kicks, while the back end is at work: what is kept is not its.
 */
void bdev_bio_keep(struct tux3_device *dev, struct bio *bio);
/* The kept bio, no longer kept, if what is to be written at addr, with this bi_private, continues it; else NULL. */
struct bio *bdev_bio_continue(struct tux3_device *dev, u64 addr, void *private);
void bdev_bio_kick(struct tux3_device *dev);

/*
 * For bi_end_io: 0 or -EIO.  Other numbers that a device may give have a meaning of their own to us and to programs
 * (ENODATA, ENOSPC); the block layer has told what went wrong.
 */
static inline int bdev_bio_error(struct bio *bio)
{
	return bio->bi_status ? -EIO : 0;
}

#endif
