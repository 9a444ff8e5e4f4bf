// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Buffered writes.
 *
 * A write of up to DATA_BATCH_MAX blocks is one delta: after a crash all of it is there, or nothing.  A longer one is
 * several.  Where this is promised, nothing makes two of it: see "untorn writes" below.
 *
 * A batch is made of parts: the folios that it changes, in the order of the file.  Before them come the *extras*,
 * blocks that must get dirty with it though it does not write to them: the edges of its plan (core's data_change.h).  A
 * folio of a part is either
 *
 *	up to date	found in the page cache, or read since the write covers none of its blocks as a whole.  Not
 *			locked: i_rwsem and its dirty blocks keep it in the cache.  (If it has left before they are dirty:
 *			-ESTALE, from the beginning.)  The data is copied into it inside the delta.
 *	fresh		not up to date, locked by us until it is.  Nobody looks into it, so what the write leaves of it
 *			is filled and the data copied before the delta is entered.  Inside it becomes up to date.
 *
 * Copies are made with page faults disabled; user memory is only faulted in when a copy comes out short.  Then what
 * was copied into folios that are up to date is written, and the rest tried again; a fresh folio that was not filled,
 * or comes after such a gap, is given up: it is neither up to date nor dirty, and so as good as not there.
 *
 * Untorn writes hold the user's memory before anything else: so no copy from it comes out short.  What cannot be held (it is
 * in several pieces, or not memory) is copied twice.  That is for who asks (RWF_ATOMIC: then it is all or nothing), and for
 * what databases do without asking: direct writes of whole blocks, and pages of several blocks written over.
 *
 * Who must not wait (IOCB_NOWAIT) gets as many batches as can be written at once: of folios that are up to date or written to as
 * a whole, with memory that is free, in a delta that can be entered; and -EAGAIN if there is none.  Then he comes again as one
 * who can wait.
 *
 * IOCB_DONTCACHE, IOCB_DIRECT: folios that a write brings into the cache leave it when they are durable (writeback.c).
 *
 * Locking: i_rwsem is held exclusively.  Locks of fresh folios are taken in the order of the file, and with them held
 * we wait for writeback of other folios, for space and for the back end: it wants no lock of a folio that is not
 * dirty.
 */
#include <linux/backing-dev.h>
#include <linux/highmem.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/uio.h>
#include <linux/writeback.h>
#include "core/data/data_change.h"
#include "linux/folio.h"

#define FEW_PARTS	18u
#define PARTS_MAX	(DATA_BATCH_MAX + 2)
#define WRITE_COMMITS_MAX 4u		/* for want of memory, before a batch */
#define WRITE_FAULTS_MAX 4u		/* of all that a batch wants to copy */
#define GROWN_BYTES	(64u << 10)	/* folios for small writes at the end of a file are at most so large */
#define PAGES_BYTES_MAX	(64u << 10)	/* what databases write at once */

/* How a batch is written. */
#define WRITE_MUST_GO	1u		/* as many folios as can be had will do */
#define WRITE_NOWAIT	2u		/* -EAGAIN, or -ENOMEM, rather than wait for anything */
#define WRITE_DONTCACHE	4u		/* new folios are to leave the cache soon */
#define WRITE_ATOMIC	8u		/* all of it in one delta, or nothing */

struct write_batch {
	struct tux3_node *node;
	struct address_space *mapping;
	u32 shift;			/* of blocks */
	struct data_change change;	/* the plan; extras are its edges */
	gfp_t gfp;			/* for folios */
	unsigned int mode;		/* WRITE_... */
	u64 pos, end;			/* bytes */
	u32 extras, count, room;	/* parts */
	struct folio_part *parts;
	unsigned long fresh[BITS_TO_LONGS(PARTS_MAX)];
	struct folio_part few[FEW_PARTS];
};

/* ---- folios ---- */

static unsigned int write_order(struct write_batch *batch, u64 at)
{
	u64 want = batch->end - round_down(at, PAGE_SIZE);

	/* The file grows: there is nothing behind to be read, and more is to come if it came in small pieces so far. */
	if (at >= batch->change.size)
		want = max(want + want / 4, min_t(u64, batch->change.size / 4, GROWN_BYTES));
	return want > PAGE_SIZE ? ilog2(want) - PAGE_SHIFT : 0;
}

/*
 * A new folio for the byte at, locked.  Large ones only if they come easily: memory, and room in the memory cgroup.
 * For the smallest gfp says how hard to try.  zeroed: its memory is.  -EEXIST: there is one now.
 */
static struct folio *write_new_folio(struct address_space *mapping, u64 at, unsigned int order, gfp_t gfp,
				     unsigned int mode, bool *zeroed)
{
	unsigned int min = mapping_min_folio_order(mapping);
	pgoff_t index = round_down(at >> PAGE_SHIFT, 1UL << min);
	gfp_t with;
	struct folio *folio;
	int err;

	order = clamp(order, min, mapping_max_folio_order(mapping));
	if (index)
		order = min_t(unsigned int, order, __ffs(index));
	for (;; order--) {
		with = order > min ? (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NORETRY | __GFP_NOWARN : gfp;
		folio = filemap_alloc_folio(with, order, NULL);
		if (!folio) {
			if (order == min)
				return ERR_PTR(-ENOMEM);
			continue;
		}
		if (mode & WRITE_DONTCACHE)
			__folio_set_dropbehind(folio);
		err = filemap_add_folio(mapping, folio, index, with);
		if (!err) {
			*zeroed = want_init_on_alloc(with);
			return folio;
		}
		folio_put(folio);
		if ((err != -EEXIST && err != -ENOMEM) || order == min)
			return ERR_PTR(err);
	}
}

/* The folio for the byte at, with a reference: up to date and not locked, or not up to date and locked. */
static struct folio *write_get_folio(struct address_space *mapping, u64 at, unsigned int order, gfp_t gfp,
				     unsigned int mode, bool *zeroed)
{
	fgf_t lookup = mode & WRITE_DONTCACHE ? FGP_DONTCACHE : 0;	/* else it is to stay from now on */
	struct folio *folio;

	*zeroed = false;
	for (;;) {
		folio = __filemap_get_folio(mapping, at >> PAGE_SHIFT, lookup, 0);
		if (IS_ERR(folio)) {
			folio = write_new_folio(mapping, at, order, gfp | __GFP_WRITE, mode, zeroed);
			if (folio == ERR_PTR(-EEXIST))
				continue;
			return folio;
		}
		if (likely(folio_test_uptodate(folio)))
			return folio;
		if (!(mode & WRITE_NOWAIT)) {
			folio_lock(folio);
		} else if (!folio_trylock(folio)) {
			folio_put(folio);
			return ERR_PTR(-EAGAIN);
		}
		if (folio->mapping == mapping) {
			if (folio_test_uptodate(folio))
				folio_unlock(folio);
			return folio;
		}
		folio_unlock(folio);
		folio_put(folio);
	}
}

struct folio *file_get_block(struct tux3_node *node, u64 block, bool even_hole)
{
	u64 pos = block << node->core.vol->block_shift;
	struct data_count counts;
	struct folio *folio;
	bool zeroed;
	int err;

	/*
	 * Is there anything in it that a reader of the disk could see?  (A fault asks with invalidate_lock only: then it
	 * may get dirty meanwhile, but nothing is removed.)
	 */
	if (!even_hole) {
		err = data_look_count(&node->core, block, 1, &counts);
		if (err || counts.holes || counts.unwritten)
			return ERR_PTR(err);
	}
	folio = write_get_folio(node->vfs.i_mapping, pos, 0, mapping_gfp_mask(node->vfs.i_mapping), 0, &zeroed);
	if (IS_ERR(folio) || folio_test_uptodate(folio))
		return folio;
	err = folio_fill(node, folio, 0);
	folio_unlock(folio);
	if (!err)
		return folio;
	folio_put(folio);
	return ERR_PTR(err);
}

/* ---- a batch ---- */

/* How hard memory is tried to get.  Without WRITE_MUST_GO, or where nobody may wait, failing is no news. */
static gfp_t batch_gfp(struct address_space *mapping, unsigned int mode)
{
	gfp_t gfp = mapping_gfp_mask(mapping);

	if (mode & WRITE_NOWAIT)
		return (gfp & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN;
	return mode & WRITE_MUST_GO ? gfp : gfp | __GFP_RETRY_MAYFAIL | __GFP_NOWARN;
}

static void batch_init(struct write_batch *batch, struct tux3_node *node, u64 pos, u64 end, unsigned int mode)
{
	batch->node = node;
	batch->mapping = node->vfs.i_mapping;
	batch->mode = mode;
	batch->gfp = batch_gfp(batch->mapping, mode);
	batch->shift = node->core.vol->block_shift;
	data_change_init(&batch->change, &node->core, NULL);
	batch->pos = pos;
	batch->end = end;
	batch->extras = batch->count = 0;
	batch->parts = batch->few;
	batch->room = FEW_PARTS;
	memset(batch->fresh, 0, sizeof(batch->fresh));
}

/* Parts from here on are not part of it any more. */
static void batch_cut(struct write_batch *batch, u32 first)
{
	while (batch->count > first) {
		struct folio *folio = batch->parts[--batch->count].folio;

		folio_change_cancel(&batch->parts[batch->count]);
		if (test_bit(batch->count, batch->fresh))
			folio_unlock(folio);
		__clear_bit(batch->count, batch->fresh);
		folio_put(folio);
	}
}

static void batch_exit(struct write_batch *batch)
{
	batch_cut(batch, 0);
	if (batch->parts != batch->few)
		kfree(batch->parts);
}

/* For what is not the file's memory. */
static gfp_t small_gfp(const struct write_batch *batch)
{
	return batch->mode & WRITE_NOWAIT ? GFP_NOWAIT | __GFP_NOWARN : GFP_KERNEL;
}

static struct folio_part *batch_new_part(struct write_batch *batch)
{
	struct folio_part *part;

	if (batch->count == batch->room) {
		struct folio_part *many = kmalloc_array(PARTS_MAX, sizeof(*many), small_gfp(batch));

		if (!many || batch->room == PARTS_MAX) {
			kfree(many);
			return NULL;
		}
		memcpy(many, batch->parts, batch->count * sizeof(*many));
		batch->parts = many;
		batch->room = PARTS_MAX;
	}
	part = &batch->parts[batch->count];
	part->state = NULL;
	part->spare = NULL;
	return part;
}

static int get_extra(struct data_change *change, u32 i)
{
	struct write_batch *batch = container_of(change, struct write_batch, change);
	struct folio *folio = file_get_block(batch->node, change->edge[i].block, change->edge[i].even_hole);
	struct folio_part *part;
	u64 bit;

	if (IS_ERR_OR_NULL(folio))
		return PTR_ERR_OR_ZERO(folio);
	bit = folio_mask(change->edge[i].block - folio_block(batch->node, folio), 1);
	if (batch->extras && batch->parts[0].folio == folio) {
		batch->parts[0].mask |= bit;
		folio_put(folio);
		return 1;
	}
	part = batch_new_part(batch);
	part->folio = folio;
	part->mask = bit;
	batch->extras = ++batch->count;
	return 1;
}

/*
 * What the write leaves of a fresh folio: read, or zeroed.  1: it is up to date now, as the write covers no block as
 * a whole.
 */
static int fill_around(struct write_batch *batch, struct folio *folio, bool zeroed)
{
	u64 start = folio_pos(folio), stop = start + folio_size(folio), skip = 0;
	u64 from = max(batch->pos, start), to = min(batch->end, stop);
	u64 first = DIV_ROUND_UP_ULL(from, 1u << batch->shift), last = to >> batch->shift;
	bool keep_before = start < from && start < batch->change.size, keep_after = to < stop && to < batch->change.size;
	int err;

	if (!keep_before && !keep_after) {
		if (!zeroed)
			folio_zero_segments(folio, 0, from - start, to - start, stop - start);
		return 0;
	}
	if (batch->mode & WRITE_NOWAIT)
		return -EAGAIN;
	if (last > first)
		skip = folio_mask(first - (start >> batch->shift), last - first);
	err = folio_fill(batch->node, folio, skip);
	return err ? err : !skip;
}

/* The folio for the byte at, and what of it the write changes. */
static int add_part(struct write_batch *batch, u64 at)
{
	struct folio_part *part = batch_new_part(batch);
	struct folio *folio;
	bool zeroed;
	u64 first;
	int err;

	if (!part)
		return -ENOMEM;
	folio = write_get_folio(batch->mapping, at, write_order(batch, at), batch->gfp, batch->mode, &zeroed);
	if (IS_ERR(folio))
		return PTR_ERR(folio);
	if (!folio_test_uptodate(folio)) {
		err = fill_around(batch, folio, zeroed);
		if (err)
			folio_unlock(folio);
		if (err < 0) {
			folio_put(folio);
			return err;
		}
		if (!err)
			__set_bit(batch->count, batch->fresh);
	}
	first = folio_block(batch->node, folio);
	part->folio = folio;
	part->mask = folio_mask((at >> batch->shift) - first,
				((min_t(u64, batch->end, folio_pos(folio) + folio_size(folio)) - 1) >> batch->shift) -
				(at >> batch->shift) + 1);
	batch->count++;
	return 0;
}

/* All folios; or if it must go on, and may be cut, as many as can be had, at least one. */
static int add_parts(struct write_batch *batch)
{
	u64 at = batch->pos;
	int err;

	while (at < batch->end) {
		struct folio *folio;

		err = add_part(batch, at);
		if (err) {
			if (batch->count == batch->extras || batch->mode & WRITE_ATOMIC ||
			    (err == -ENOMEM && !(batch->mode & WRITE_MUST_GO)))
				return err;
			batch->end = at;
			return 0;
		}
		folio = batch->parts[batch->count - 1].folio;
		at = folio_pos(folio) + folio_size(folio);
	}
	return 0;
}

/* Copies into the fresh folios, or into the others, as far as it gets: returns where it stopped, *part: in which. */
static u64 copy_data(struct write_batch *batch, const struct iov_iter *from, bool fresh, u32 *part)
{
	struct iov_iter iter = *from;
	u64 at = batch->pos;
	u32 i;

	for (i = batch->extras; i < batch->count; i++) {
		struct folio *folio = batch->parts[i].folio;
		u64 start = folio_pos(folio);
		size_t len = min_t(u64, batch->end, start + folio_size(folio)) - at, got;

		*part = i;
		if (test_bit(i, batch->fresh) == fresh) {
			got = copy_folio_from_iter_atomic(folio, at - start, len, &iter);
			flush_dcache_folio(folio);
			if (unlikely(got < len))
				return at + got;
		} else {
			iov_iter_advance(&iter, len);
		}
		at += len;
	}
	return at;
}

/* false: nothing could be copied. */
static bool copy_into_fresh(struct write_batch *batch, const struct iov_iter *from)
{
	u32 part;

	if (bitmap_empty(batch->fresh, PARTS_MAX) || copy_data(batch, from, true, &part) == batch->end)
		return true;
	if (part > batch->extras)
		batch->end = folio_pos(batch->parts[part].folio);
	batch_cut(batch, part);
	return part > batch->extras;
}

/*
 * Is all there that is to be copied inside the delta?  Where a copy stops, the write falls into two parts: after this only if
 * memory is taken away at that very moment.
 */
static bool can_copy_rest(struct write_batch *batch, const struct iov_iter *from)
{
	size_t missing;

	if (!user_backed_iter(from) || bitmap_weight(batch->fresh, PARTS_MAX) == batch->count - batch->extras)
		return true;
	pagefault_disable();
	missing = fault_in_iov_iter_readable(from, batch->end - batch->pos);
	pagefault_enable();
	return !missing;
}

/* What folio_change_prepare() would do is seldom needed for a folio that has a state: folio_change_begin() tells. */
static int batch_prepare(struct write_batch *batch, bool thoroughly)
{
	int err = 0;
	u32 i;

	for (i = 0; i < batch->count && !err; i++) {
		struct folio_part *part = &batch->parts[i];

		part->state = folio_get_private(part->folio);
		if (thoroughly || !part->state)
			err = folio_change_prepare(batch->node, part, test_bit(i, batch->fresh), small_gfp(batch));
	}
	return err;
}

/* Enter a delta with all parts dirty.  Returns how many blocks were not dirty before. */
static int batch_enter(struct write_batch *batch, struct delta_op *op)
{
	struct tux3_node *node = batch->node;
	bool thoroughly = false;
	int got;

	for (;;) {
		got = batch_prepare(batch, thoroughly);
		if (!got)
			got = data_change_enter(&batch->change, op);
		if (got)
			return got;
		got = folio_change_begin(op, node, batch->parts, batch->count, false);
		if (likely(got >= 0))
			return got;
		data_change_undone(&batch->change, op);
		if (got != -EAGAIN || (thoroughly && batch->mode & WRITE_NOWAIT))
			return got;
		thoroughly = true;
	}
}

/* The file grows beyond the block its end is in: what a mapping may have left there must not become part of it. */
static void zero_old_tail(struct write_batch *batch)
{
	u64 size = batch->change.size, stop = min_t(u64, batch->pos, round_up(size, 1u << batch->shift));
	u32 i;

	if (likely(batch->pos <= size || stop <= size))
		return;
	for (i = 0; i <= batch->extras && i < batch->count; i++) {
		struct folio *folio = batch->parts[i].folio;

		if (folio_pos(folio) <= size && size < folio_pos(folio) + folio_size(folio)) {
			folio_zero_segment(folio, size - folio_pos(folio), stop - folio_pos(folio));
			return;
		}
	}
}

/*
 * The copy ended in part i.  Fresh folios after it are not written, not dirty, not up to date; and what would have
 * become part of the file is not dirty either.
 */
static void batch_shorten(struct write_batch *batch, struct delta_op *op, u32 i, u64 reached)
{
	u64 size = max(batch->change.size, reached), first = DIV_ROUND_UP_ULL(size, 1u << batch->shift);

	while (++i < batch->count) {
		struct folio_part *part = &batch->parts[i];

		if (!test_bit(i, batch->fresh))
			continue;
		folio_forget_dirty(op, batch->node, folio_block(batch->node, part->folio),
				   folio_blocks(batch->node, part->folio));
		folio_unlock(part->folio);
		__clear_bit(i, batch->fresh);
		part->mask = 0;
	}
	if (batch->end > first << batch->shift)
		folio_forget_dirty(op, batch->node, first, ((batch->end - 1) >> batch->shift) + 1 - first);
	inode_quota_frees(op, &batch->node->core, false);
	batch->change.count = 0;	/* no run that the next write may go on with */
}

static void batch_times(struct write_batch *batch, struct delta_op *op, u64 end)
{
	struct tux3_attr *attr = inode_change_begin(op, &batch->node->core);

	attr->mtime = attr->ctime = inode_now(op->vol);
	attr->size = max(batch->change.size, end);
	node_show_change(batch->node, attr);
	inode_change_end(&batch->node->core);
}

/* Returns how many bytes were written. */
static ssize_t batch_commit(struct write_batch *batch, const struct iov_iter *from)
{
	struct delta_op op;
	u64 reached;
	int newly;
	u32 i;

	newly = batch_enter(batch, &op);
	if (newly < 0)
		return newly;
	zero_old_tail(batch);
	reached = copy_data(batch, from, false, &i);
	if (unlikely(reached < batch->end))
		batch_shorten(batch, &op, i, reached);
	if (reached > batch->pos)
		batch_times(batch, &op, reached);
	for_each_set_bit(i, batch->fresh, batch->count)
		folio_end_read(batch->parts[i].folio, true);
	memset(batch->fresh, 0, sizeof(batch->fresh));
	if (likely(reached == batch->end)) {
		folio_change_end(batch->node, batch->parts, batch->count);
	} else {
		for (i = 0; i < batch->count; i++)
			if (batch->parts[i].mask)
				folio_change_end(batch->node, &batch->parts[i], 1);
	}
	data_settle_write(&batch->change, &op, newly);
	delta_leave(&op);
	return reached - batch->pos;
}

static int batch_price(struct write_batch *batch)
{
	int err;

	/* What is preallocated the tree knows, which may have to be read: like this it costs what new blocks do. */
	if (batch->mode & WRITE_NOWAIT)
		batch->change.flags &= ~TUX3_ATTR_PREALLOC;
	err = data_price_write(&batch->change, batch->pos, batch->end);
	if (batch->mode & WRITE_NOWAIT)
		batch->change.enter |= DELTA_NOWAIT;
	return err;
}

/* One delta.  Returns how many bytes of [pos, end) were written; 0: user memory must be faulted in; -ESTALE: once more. */
static ssize_t write_batch(struct tux3_node *node, const struct iov_iter *from, u64 pos, u64 end, unsigned int mode)
{
	struct write_batch batch;
	ssize_t done;

	batch_init(&batch, node, pos, end, mode);
	data_plan_write(&batch.change, pos, end);
	if (mode & WRITE_NOWAIT)
		done = batch.change.edges ? -EAGAIN : 0;
	else
		done = data_change_edges(&batch.change, get_extra);
	if (!done)
		done = add_parts(&batch);
	if (!done && copy_into_fresh(&batch, from) && can_copy_rest(&batch, from)) {
		done = batch_price(&batch);
		if (!done)
			done = batch_commit(&batch, from);
	}
	batch_exit(&batch);
	return done;
}

/*
 * Where memory is short, most of all that of the caller's cgroup, it is our dirty pages that fill it, and reclaim cannot
 * write single ones: after a commit it can drop them.  Only when that was of no use the caller competes for memory like
 * anybody, and may meet the OOM killer.
 */
static ssize_t write_locked(struct tux3_node *node, struct iov_iter *from, u64 offset, unsigned int mode)
{
	struct address_space *mapping = node->vfs.i_mapping;
	u64 pos = offset, end = offset + iov_iter_count(from), stop;
	u64 readable = 0;	/* user memory was faulted in up to there, and nothing written since */
	u32 max = DATA_BATCH_MAX;
	u32 commits = 0, faults = 0;
	ssize_t done = 0;

	while (pos < end) {
		data_note_writing(&node->core, end - pos);
		done = balance_dirty_pages_ratelimited_flags(mapping, mode & WRITE_NOWAIT ? BDP_ASYNC : 0);
		if (done)
			break;
		stop = data_batch_end(node->core.vol, pos, end, max);
		/*
		 * Not beyond what can be read: a fresh folio would be given up for what is missing, now and whenever it is
		 * tried again.  The memory may go away again after it was faulted in: after some tries a page at a time.
		 */
		if (unlikely(readable))
			stop = min3(stop, readable, faults < WRITE_FAULTS_MAX ? stop : round_down(pos, PAGE_SIZE) + PAGE_SIZE);
		done = write_batch(node, from, pos, stop, mode | (commits == WRITE_COMMITS_MAX ? WRITE_MUST_GO : 0));
		if (unlikely(done <= 0 && mode & WRITE_NOWAIT)) {
			done = !done || done == -ENOMEM || done == -ENOSPC || done == -ESTALE ? -EAGAIN : done;
			break;
		} else if (unlikely(done == -ESTALE)) {
			continue;
		} else if (unlikely(!done)) {
			faults++;
			data_note_writing(&node->core, U64_MAX);	/* an fsync that comes now does not wait for that */
			readable = stop - fault_in_iov_iter_readable(from, stop - pos);
			if (readable == pos) {
				done = -EFAULT;
				break;
			}
		} else if (done == -ENOMEM && commits < WRITE_COMMITS_MAX && !fatal_signal_pending(current)) {
			commits++;
			done = delta_commit(node->core.vol);
			if (done)
				break;
			continue;
		} else if (!(mode & WRITE_ATOMIC) && data_batch_smaller(node->core.vol, &max, pos, stop, done)) {
			continue;
		} else if (done < 0) {
			break;
		} else {
			iov_iter_advance(from, done);
			pos += done;
			readable = 0;
			commits = faults = 0;
		}
		if (pos < end && fatal_signal_pending(current)) {
			done = -EINTR;
			break;
		}
		cond_resched();
	}
	data_note_writing(&node->core, 0);
	return pos > offset ? (ssize_t)(pos - offset) : done;
}

/* ---- the ways in ---- */

static int lock_for_write(struct kiocb *iocb, struct inode *inode)
{
	if (!(iocb->ki_flags & IOCB_NOWAIT)) {
		inode_lock(inode);
		return 0;
	}
	/* Durable at once, or privileges to be taken away: that takes its time. */
	return !iocb_is_dsync(iocb) && IS_NOSEC(inode) && inode_trylock(inode) ? 0 : -EAGAIN;
}

static unsigned int write_mode(const struct kiocb *iocb)
{
	return (iocb->ki_flags & IOCB_NOWAIT ? WRITE_NOWAIT : 0) |
	       (iocb->ki_flags & (IOCB_DONTCACHE | IOCB_DIRECT) ? WRITE_DONTCACHE : 0) |
	       (iocb->ki_flags & IOCB_ATOMIC ? WRITE_ATOMIC : 0);
}

/* generic_write_checks() for RWF_ATOMIC: what it takes for a part is refused. */
static ssize_t atomic_checks(struct kiocb *iocb, struct iov_iter *from)
{
	size_t len = iov_iter_count(from);
	ssize_t left = generic_write_checks(iocb, from);

	if (left <= 0)
		return left;
	if (!data_atomic_fits(vol_of(file_inode(iocb->ki_filp)), iocb->ki_pos, len))
		return -EINVAL;
	return left < len ? -EFBIG : left;
}

/*
 * An fsync waits for who writes little (core/intent/).  It is not to wait for the memory that this comes from, which may be
 * anybody's: a file that a FUSE server has, or what a userfaultfd brings.  So that is there before the lock is taken.
 */
static void bring_memory(struct kiocb *iocb, struct iov_iter *from)
{
	size_t len = iov_iter_count(from);

	if (user_backed_iter(from) && !(iocb->ki_flags & IOCB_NOWAIT) &&
	    len <= vol_of(file_inode(iocb->ki_filp))->opts.intent_near_bytes)
		fault_in_iov_iter_readable(from, len);		/* what is missing write_locked() finds out */
}

static ssize_t write_from(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	ssize_t done;

	bring_memory(iocb, from);
	done = lock_for_write(iocb, inode);
	if (done)
		return done;
	done = iocb->ki_flags & IOCB_ATOMIC ? atomic_checks(iocb, from) : generic_write_checks(iocb, from);
	if (done > 0) {
		int err = node_remove_privs(iocb->ki_filp);

		done = err ? err : write_locked(node_of(inode), from, iocb->ki_pos, write_mode(iocb));
		err = node_remove_privs_end(inode);
		if (err && done < 0)
			done = err;
	}
	inode_unlock(inode);
	if (done <= 0)
		return done;
	iocb->ki_pos += done;
	/* What generic_write_sync() does for IOCB_DONTCACHE would make a commit of each write. */
	return iocb_is_dsync(iocb) ? generic_write_sync(iocb, done) : done;
}

/* ---- untorn writes ---- */

/*
 * Who asked for it, or a database that takes it for granted: direct writes of whole blocks, and pages of several blocks that are
 * written over.
 */
static bool wants_untorn(struct kiocb *iocb, const struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	struct volume *vol = vol_of(inode);
	size_t len = iov_iter_count(from);

	if (!len || !user_backed_iter(from))	/* nobody takes the kernel's memory away */
		return false;
	if (iocb->ki_flags & IOCB_ATOMIC)
		return true;
	if (len > data_atomic_max(vol) || (iocb->ki_pos | len) & (vol->block_size - 1))
		return false;
	return iocb->ki_flags & IOCB_DIRECT ||
	       (len > vol->block_size && len <= PAGES_BYTES_MAX && iocb->ki_pos < i_size_read(inode));
}

static gfp_t untorn_gfp(const struct kiocb *iocb)
{
	return iocb->ki_flags & IOCB_NOWAIT ? GFP_NOWAIT | __GFP_NOWARN : GFP_KERNEL;
}

/* One piece of user memory, with a reference to each of its pages: they stay while we copy, whatever becomes of the mapping. */
struct held_memory {
	u32 count;
	struct page **pages;
	struct bio_vec vecs[];
};

static void let_user(struct held_memory *held)
{
	while (held->count)
		put_page(held->pages[--held->count]);
	kvfree(held);
}

/* NULL: it has to be copied. */
static struct held_memory *hold_user(const struct kiocb *iocb, const struct iov_iter *from)
{
	unsigned long addr = (unsigned long)from->ubuf + from->iov_offset;
	u32 at = offset_in_page(addr), left = iov_iter_count(from), wanted = DIV_ROUND_UP(at + left, PAGE_SIZE), i;
	struct held_memory *held;
	int got;

	if (!iter_is_ubuf(from))
		return NULL;
	held = kvmalloc(struct_size(held, vecs, wanted) + wanted * sizeof(*held->pages), untorn_gfp(iocb));
	if (!held)
		return NULL;
	held->pages = (struct page **)(held->vecs + wanted);
	if (iocb->ki_flags & IOCB_NOWAIT)
		got = get_user_pages_fast_only(addr - at, wanted, 0, held->pages);
	else
		got = get_user_pages_fast(addr - at, wanted, 0, held->pages);
	held->count = max(got, 0);
	if (held->count < wanted) {
		let_user(held);
		return NULL;
	}
	for (i = 0; i < wanted; i++, at = 0) {
		bvec_set_page(&held->vecs[i], held->pages[i], min(left, PAGE_SIZE - at), at);
		left -= held->vecs[i].bv_len;
	}
	return held;
}

/* The user's memory as it is now, in memory of ours; or NULL and *err.  No lock is held. */
static void *copy_user(const struct kiocb *iocb, const struct iov_iter *from, int *err)
{
	bool nowait = iocb->ki_flags & IOCB_NOWAIT;
	size_t len = iov_iter_count(from), got;
	struct iov_iter iter = *from;
	void *data = kvmalloc(len, untorn_gfp(iocb));

	*err = nowait ? -EAGAIN : -ENOMEM;
	if (!data)
		return NULL;
	if (nowait)
		pagefault_disable();
	got = copy_from_iter(data, len, &iter);
	if (nowait)
		pagefault_enable();
	if (got == len)
		return data;
	*err = nowait ? -EAGAIN : -EFAULT;
	kvfree(data);
	return NULL;
}

/* Who did not ask gets written what can be read. */
static ssize_t write_untorn(struct kiocb *iocb, struct iov_iter *from)
{
	struct held_memory *held = hold_user(iocb, from);
	size_t len = iov_iter_count(from);
	struct kvec copy = {};
	struct iov_iter iter;
	ssize_t done;
	int err;

	if (held) {
		iov_iter_bvec(&iter, ITER_SOURCE, held->vecs, held->count, len);
	} else {
		copy.iov_base = copy_user(iocb, from, &err);
		copy.iov_len = len;
		if (!copy.iov_base)
			return iocb->ki_flags & IOCB_ATOMIC ? err : write_from(iocb, from);
		iov_iter_kvec(&iter, ITER_SOURCE, &copy, 1, len);
	}
	done = write_from(iocb, &iter);
	if (done > 0)
		iov_iter_advance(from, done);
	if (held)
		let_user(held);
	kvfree(copy.iov_base);
	return done;
}

ssize_t file_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	size_t len = iov_iter_count(from);

	/* Where it begins is known later, if it appends.  One piece of memory, as statx() tells. */
	if (iocb->ki_flags & IOCB_ATOMIC && len &&
	    (!data_atomic_fits(vol_of(file_inode(iocb->ki_filp)), 0, len) || iter_is_iovec(from)))
		return -EINVAL;
	return wants_untorn(iocb, from) ? write_untorn(iocb, from) : write_from(iocb, from);
}
