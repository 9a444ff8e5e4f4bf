// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Filling folios from the disk, verified.
 *
 * A read request is a run of locked folios that are not up to date, with what is known about each of their blocks:
 * where it is on the disk and its checksum, or that there is nothing to read.  All its bios are submitted at once;
 * when the last one has ended, each block is verified, and each folio ends as up to date or not: as a whole, on its
 * own account.  For readahead that happens in a worker, else in the task that waits.
 *
 * Why the mapping may be believed: a block that is not in the page cache is not dirty in any delta, for dirty folios
 * stay there until their new addresses are in the tree.  So data_map() says where its newest contents are.  But
 * nothing stops a truncate from freeing it while it is being read, and a commit from using it for something else.
 * Then its checksum is wrong.  Hence a block with a wrong checksum is looked up and read again, until it is right, or
 * has been wrong in the same place twice.  A block without a checksum is looked up again after it was read: it must
 * still be there.
 *
 * That is for reads that somebody waits for.  Readahead leaves a folio with which something is wrong as it is, and
 * file_read_folio() finds out, if it is ever wanted.  A large folio that cannot be read becomes several of one block
 * each, so that no more is lost than cannot be read.
 *
 * Bytes beyond the end of the file are zeros in the page cache; on the disk a truncate may have left something.  The
 * size is taken when the request begins.  Who moves the end waits for the folio that it is in (file_get_block()), so
 * a later size would do no harm and an earlier one cannot be.
 *
 * Locking: the folios are locked.  None of our own.
 */
#include <linux/crc32c.h>
#include <linux/highmem.h>
#include "core/error.h"
#include "linux/folio.h"

#define READ_BLOCKS	256u		/* a request ends with the folio that brings it to so many */
#define READ_TRIES	8u		/* places in which a block is looked for, when it moves all the time */

enum read_kind {
	READ_NOTHING,		/* zeroed, or not wanted */
	READ_INLINE,
	READ_PLAIN,
	READ_CSUM,		/* with a checksum */
	READ_FAILED,
};

struct read_request {
	struct work_struct work;
	struct completion done;		/* for who waits */
	bool waits;
	bool failed;			/* a bio: nothing in the folios may be relied on */
	atomic_t pending;		/* bios that have not ended, and one for who submits them */
	struct inode *inode;
	struct volume *vol;
	u64 size;			/* of the file, when the request began */
	u64 block;			/* first file block */
	u64 skip;			/* blocks not wanted, of the first folio */
	u32 count, folios;		/* blocks in all these folios, which follow each other */
	u32 checked;			/* READ_PLAIN blocks before this one were still there after they were read */
	u64 *addr;			/* [count] */
	struct folio **folio;
	__le32 *csum;
	u8 *kind;			/* enum read_kind */
};

static struct workqueue_struct *read_queue;

int read_init(void)
{
	read_queue = alloc_workqueue("tux3-read", WQ_MEM_RECLAIM | WQ_HIGHPRI | COMPAT_WQ_PERCPU, 0);
	return read_queue ? 0 : -ENOMEM;
}

void read_exit(void)
{
	destroy_workqueue(read_queue);
}

static struct read_request *request_alloc(struct inode *inode, u64 block, u32 blocks)
{
	struct read_request *req;
	size_t each = sizeof(*req->addr) + sizeof(*req->folio) + sizeof(*req->csum) + sizeof(*req->kind);

	req = kvmalloc(sizeof(*req) + blocks * each, GFP_NOFS);
	if (!req)
		return NULL;
	req->waits = req->failed = false;
	atomic_set(&req->pending, 1);
	req->inode = inode;
	req->vol = vol_of(inode);
	req->size = i_size_read(inode);
	req->block = block;
	req->skip = 0;
	req->count = req->folios = req->checked = 0;
	req->addr = (u64 *)(req + 1);
	req->folio = (struct folio **)(req->addr + blocks);
	req->csum = (__le32 *)(req->folio + blocks);
	req->kind = (u8 *)(req->csum + blocks);
	return req;
}

static void request_add(struct read_request *req, struct folio *folio)
{
	req->folio[req->folios++] = folio;
	req->count += folio_blocks(node_of(req->inode), folio);
}

static void *block_data(struct read_request *req, struct folio *folio, u32 i)
{
	return folio_address(folio) + (i << req->vol->block_shift);
}

/* ---- where things are ---- */

static bool is_skipped(const struct read_request *req, u32 i)
{
	return i < 64 && req->skip >> i & 1;
}

static void map_extent(struct read_request *req, u32 i, u32 count, const struct data_extent *extent)
{
	u32 n;

	for (n = 0; n < count; n++) {
		req->addr[i + n] = extent->addr + n;
		switch (is_skipped(req, i + n) ? DATA_HOLE : extent->kind) {
		case DATA_MAPPED:
			req->kind[i + n] = extent->has_csum ? READ_CSUM : READ_PLAIN;
			break;
		case DATA_INLINE:
			req->kind[i + n] = READ_INLINE;
			break;
		default:
			req->kind[i + n] = READ_NOTHING;
		}
	}
}

/* Fills kind, addr and csum.  What is beyond the end of the file is nothing, whatever may be allocated there. */
static void request_map(struct read_request *req)
{
	u64 end = DIV_ROUND_UP_ULL(req->size, req->vol->block_size);
	struct data_extent extent;
	u32 i = 0, count;

	while (i < req->count) {
		u64 block = req->block + i;

		if (is_skipped(req, i) || block >= end) {
			req->kind[i++] = READ_NOTHING;
			continue;
		}
		count = min_t(u64, req->count - i, end - block);
		if (data_map(core_of(req->inode), block, count, &extent, req->csum + i, count)) {
			memset(req->kind + i, READ_FAILED, count);	/* and a later read may succeed */
			i += count;
			continue;
		}
		count = min_t(u64, count, extent.count);
		map_extent(req, i, count, &extent);
		i += count;
	}
}

/* Zero what has nothing to be read: runs of blocks at once.  Skipped ones are somebody else's. */
static void request_zero(struct read_request *req)
{
	u32 f, first = 0, n, run, shift = req->vol->block_shift;

	for (f = 0; f < req->folios; f++) {
		struct folio *folio = req->folio[f];
		u32 blocks = folio_blocks(node_of(req->inode), folio);

		for (n = 0; n < blocks; n += max(run, 1u)) {
			for (run = 0; n + run < blocks && req->kind[first + n + run] == READ_NOTHING &&
			     !is_skipped(req, first + n + run); run++)
				;
			if (run)
				folio_zero_range(folio, (size_t)n << shift, (size_t)run << shift);
		}
		first += blocks;
	}
}

/* ---- what has been read ---- */

static int read_inline(struct read_request *req, void *data)
{
	int len = data_read_inline(core_of(req->inode), data, req->vol->block_size);

	if (len >= 0)
		memset(data + len, 0, req->vol->block_size - len);
	return min(len, 0);
}

/* Once more, by itself: see above. */
static int read_again(struct read_request *req, u64 block, void *data)
{
	struct tux3_inode *inode = core_of(req->inode);
	struct volume *vol = req->vol;
	struct data_extent extent;
	u64 was_at = 0;			/* what data was read from */
	__le32 csum;
	u32 tries;
	int err;

	for (tries = 0; tries < READ_TRIES; tries++) {
		err = data_map(inode, block, 1, &extent, &csum, 1);
		if (err)
			return err;
		if (extent.kind == DATA_INLINE) {
			err = read_inline(req, data);
			if (err != -ENOENT)	/* it has just become something else */
				return err;
			continue;
		}
		if (extent.kind != DATA_MAPPED) {
			memset(data, 0, vol->block_size);
			return 0;
		}
		if (extent.addr == was_at)
			return extent.has_csum ? data_verify(inode, block, was_at, data, csum) : 0;
		err = device_read(vol->dev, extent.addr, 1, data);
		if (err) {
			volume_warn(vol, "file %llu, offset %llu: block %llu cannot be read (%s)",
				    (unsigned long long)inode->ino, (unsigned long long)block << vol->block_shift,
				    (unsigned long long)extent.addr, error_text(err));
			return err;
		}
		was_at = extent.addr;
		if (extent.has_csum && crc32c(~0u, data, vol->block_size) == le32_to_cpu(csum))
			return 0;
	}
	return -EIO;
}

/* Is this block still where it was read from?  Looks at all that come after it on the disk too. */
static bool is_still_there(struct read_request *req, u32 i)
{
	struct data_extent extent;
	u32 n;

	if (i < req->checked)
		return true;
	if (data_map(core_of(req->inode), req->block + i, req->count - i, &extent, NULL, 0) ||
	    extent.kind != DATA_MAPPED || extent.addr != req->addr[i])
		return false;
	for (n = 1; i + n < req->count && n < extent.count; n++)
		if (req->kind[i + n] != READ_PLAIN || req->addr[i + n] != extent.addr + n)
			break;
	req->checked = i + n;
	return true;
}

static int block_end(struct read_request *req, u32 i, void *data)
{
	switch ((enum read_kind)req->kind[i]) {
	case READ_NOTHING:
		return 0;
	case READ_INLINE:
		break;
	case READ_CSUM:
		if (likely(crc32c(~0u, data, req->vol->block_size) == le32_to_cpu(req->csum[i])))
			return 0;
		break;
	case READ_PLAIN:
		if (!req->failed && is_still_there(req, i))
			return 0;
		break;
	case READ_FAILED:
		return -EIO;
	}
	if (!req->waits && req->kind[i] != READ_INLINE)
		return -EIO;
	return read_again(req, req->block + i, data);
}

static void zero_beyond_end(struct read_request *req, struct folio *folio)
{
	u64 start = folio_pos(folio), end = start + folio_size(folio);

	/* Whole blocks there are zeroed already, or skipped. */
	end = min_t(u64, end, round_up(req->size, req->vol->block_size));
	if (req->size > start && req->size < end &&
	    !is_skipped(req, (req->size >> req->vol->block_shift) - req->block))
		folio_zero_segment(folio, req->size - start, end - start);
}

/* first: the folio's first block within the request. */
static int folio_end(struct read_request *req, struct folio *folio, u32 first)
{
	u32 blocks = folio_blocks(node_of(req->inode), folio), n;
	int err = 0;

	for (n = 0; n < blocks && !err; n++)
		err = block_end(req, first + n, block_data(req, folio, n));
	if (!err)
		zero_beyond_end(req, folio);
	return err;
}

/* The inode may go with the last folio's lock. */
static void readahead_end(struct read_request *req)
{
	u32 f, first = 0, blocks;
	int err;

	for (f = 0; f < req->folios; f++) {
		blocks = folio_blocks(node_of(req->inode), req->folio[f]);
		err = folio_end(req, req->folio[f], first);
		folio_end_read(req->folio[f], !err);
		first += blocks;
	}
	kvfree(req);
}

static void readahead_work(struct work_struct *work)
{
	unsigned int nofs = memalloc_nofs_save();

	readahead_end(container_of(work, struct read_request, work));
	memalloc_nofs_restore(nofs);
}

/* ---- bios ---- */

static void read_bio_end(struct bio *bio)
{
	struct read_request *req = bio->bi_private;

	if (bdev_bio_error(bio))
		WRITE_ONCE(req->failed, true);
	bio_put(bio);
	if (!atomic_dec_and_test(&req->pending))
		return;
	if (req->waits)
		complete(&req->done);
	else
		queue_work(read_queue, &req->work);
}

static struct bio *read_bio_start(struct read_request *req, u64 addr, u32 vecs)
{
	struct bio *bio = bdev_bio_alloc(req->vol->dev, addr, vecs, REQ_OP_READ | (req->waits ? 0 : REQ_RAHEAD));

	bio->bi_end_io = read_bio_end;
	bio->bi_private = req;
	atomic_inc(&req->pending);
	return bio;
}

static bool must_read(const struct read_request *req, u32 i)
{
	return req->kind[i] == READ_PLAIN || req->kind[i] == READ_CSUM;
}

/* One bio for all that is contiguous on the disk, across folios. */
static void request_submit(struct read_request *req)
{
	u32 f, first = 0, n, run, shift = req->vol->block_shift;
	struct bio *bio = NULL;
	u64 next = 0;

	for (f = 0; f < req->folios; f++) {
		u32 blocks = folio_blocks(node_of(req->inode), req->folio[f]);

		for (n = 0; n < blocks; n += run) {
			u32 i = first + n;

			run = 1;
			if (!must_read(req, i))
				continue;
			while (n + run < blocks && must_read(req, i + run) && req->addr[i + run] == req->addr[i] + run)
				run++;
			if (bio && (req->addr[i] != next ||
				    !bio_add_folio(bio, req->folio[f], run << shift, n << shift))) {
				bdev_bio_submit(req->vol->dev, bio);
				bio = NULL;
			}
			if (!bio) {
				bio = read_bio_start(req, req->addr[i], req->folios - f);
				bio_add_folio_nofail(bio, req->folio[f], run << shift, n << shift);
			}
			next = req->addr[i] + run;
		}
		first += blocks;
	}
	if (bio)
		bdev_bio_submit(req->vol->dev, bio);
}

/* ---- the ways in ---- */

/*
 * A bio's error says nothing about which block it was, and checksums find out; without them each block is read again
 * by itself.
 */
int folio_fill(struct tux3_node *node, struct folio *folio, u64 skip)
{
	struct read_request *req = request_alloc(&node->vfs, folio_block(node, folio), folio_blocks(node, folio));
	int err;

	if (!req)
		return -ENOMEM;
	req->waits = true;
	req->skip = skip;
	init_completion(&req->done);
	request_add(req, folio);
	request_map(req);
	request_zero(req);
	request_submit(req);
	if (!atomic_dec_and_test(&req->pending))
		wait_for_completion_io(&req->done);
	err = folio_end(req, folio, 0);
	kvfree(req);
	if (!err && !skip)
		folio_mark_uptodate(folio);
	return err;
}

/*
 * The folio, locked, is not in the page cache any more; in its place are folios of one block, not up to date.  They
 * are not filled from it, for somebody could write and even commit between the two.
 */
static int folio_scatter(struct address_space *mapping, struct folio *folio)
{
	pgoff_t index = folio->index, stop = index + folio_nr_pages(folio);
	unsigned int order = mapping_min_folio_order(mapping);
	gfp_t gfp = mapping_gfp_constraint(mapping, GFP_NOFS);
	int err = generic_error_remove_folio(mapping, folio);

	for (; !err && index < stop; index += 1UL << order) {
		struct folio *small = filemap_alloc_folio(gfp, order, NULL);

		if (!small)
			break;
		if (!filemap_add_folio(mapping, small, index, gfp))
			folio_unlock(small);
		folio_put(small);
	}
	return err;
}

int file_read_folio(struct file *file, struct folio *folio)
{
	struct address_space *mapping = folio->mapping;
	int err = folio_fill(node_of(mapping->host), folio, 0);

	if (unlikely(err == -EIO) && folio_order(folio) > mapping_min_folio_order(mapping) &&
	    !folio_scatter(mapping, folio))
		err = AOP_TRUNCATED_PAGE;
	folio_unlock(folio);
	return err;
}

/* Folios that we do not take are unlocked by the VFS, and read one by one if somebody wants them. */
void file_readahead(struct readahead_control *rac)
{
	struct inode *inode = rac->mapping->host;
	u32 shift = vol_of(inode)->block_shift;

	while (readahead_count(rac)) {
		struct read_request *req;
		struct folio *folio;
		u32 most = min_t(u64, readahead_length(rac) >> shift, READ_BLOCKS + FOLIO_BLOCKS_MAX);

		folio = readahead_folio(rac);
		if (!folio)
			return;
		req = request_alloc(inode, folio_pos(folio) >> shift, most);
		if (!req) {
			folio_unlock(folio);
			return;
		}
		INIT_WORK(&req->work, readahead_work);
		request_add(req, folio);
		while (req->count < READ_BLOCKS && (folio = readahead_folio(rac)))
			request_add(req, folio);
		request_map(req);
		request_zero(req);
		request_submit(req);
		if (atomic_dec_and_test(&req->pending))
			readahead_end(req);
	}
}

ssize_t file_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	ssize_t done = 0;

	if (iocb->ki_flags & IOCB_DIRECT && direct_read_fits(iocb, to)) {
		done = direct_read(iocb, to);
		if (done < 0 || !iov_iter_count(to) || iocb->ki_pos >= i_size_read(file_inode(iocb->ki_filp)))
			return done;
	}
	return filemap_read(iocb, to, done);
}
