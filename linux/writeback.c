// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The back end's view of cached file data: the functions of host.h that ask what is dirty in a delta, write it, and
 * are told that it is durable; and ->writepages, with which the VFS asks for a commit.
 *
 * Taking.  A state goes through this in a commit, all its blocks of the delta at once, when data_write() meets the
 * first of them:
 *
 *	pending		dirty[back]; the front end copies what it wants to change
 *	  -- state_take(): folio lock; page tables write-protected, PG_dirty cleared unless the front delta has blocks
 *	     here; writeback begins; what is still pending gets sent, in one hold of data_lock -->
 *	taken		sent and left; writeback; held.  Contents are constant, without the folio lock: who wants to
 *			change them waits.  So checksums may be computed while the device writes (core/commit/checksums.h)
 *	  -- bios: left shrinks; written: writes shrinks -->
 *	settled		all submitted, and the core has put the new addresses into the tree: no longer held
 *	  -- writes == 0: writeback ends -->
 *	written		sent: may be changed, and the folio may be dropped (as part of a truncate) and read again
 *	  -- data_done() -->
 *	clean
 *
 * Who rewrites a file while it is committed would wait there for the whole of a commit's checksums and I/O: that was the worst
 * latency of dbench, 30 ms, ten times that of others.  So the first SNAPSHOT_BYTES of a commit are copied when they are taken
 * (take_snapshot()), and the folio is free at once.  A large commit is mostly of data that nobody is about to rewrite, and
 * goes on in place.
 *
 * Copies and detached folios need none of this: nobody changes them.  An inline file's block is copied into the log
 * at once, without writeback; its folio stays PG_dirty until data_done(), as does one whose dirty blocks were taken
 * back.
 *
 * Why writeback is held until the addresses are in the tree: a folio with dirty bits is not reclaimed, but a truncate
 * that cannot split a large one may drop all of it when it is neither dirty nor under writeback, and the part that
 * stays would then be read from where it was before.
 *
 * Deadlocks.  Others hold a folio's lock and wait for its writeback (truncate, migration), which may be held until we
 * have taken and written more folios.  So after a folio is taken we do not want its lock again before its writeback
 * has ended.  Nobody waits for the writeback of one folio with the lock of another dirty one (folio.h).  A folio lock
 * that is not free is not waited for with a bio in hand or kept for the next piece, and data_done() does not wait for
 * any.
 *
 * A page that a device may be writing to (pinned) is never constant: it is copied and goes on as a stray (folio.h).
 *
 * Who frees what: a state on the back delta's list, and its folio, stay until data_done(), which comes after all I/O
 * of the commit has ended.  So the end of a bio may use them.
 *
 * Locking: commit_mutex held, which makes cursor, unsettled, left and held ours; and the list of the back delta, once
 * it is marked as sorted (folio.c).  data_lock for the rest of the states.  The end of a bio (interrupt context)
 * takes no lock.
 */
#include <linux/highmem.h>
#include <linux/list_sort.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/writeback.h>
#include "linux/folio.h"
#include "core/commit/checksums.h"
#include "core/commit/commit.h"

/* A commit takes so much by snapshots, unless the mount says something else; what comes then is taken in place. */
#define SNAPSHOT_BYTES (16u << 20)

/*
 * A commit's first bios are submitted when they have so many bytes, later ones when they have a quarter of what was
 * submitted so before: the device works from early on, and the number of bios grows with the logarithm only.
 */
#define EARLY_BYTES (128ULL << 10)

/* A data_write() under way. */
struct data_run {
	struct tux3_node *node;
	u64 delta;			/* the back delta */
	unsigned int slot;		/* its */
	struct io_wait *wait;
	struct bio *bio;		/* being filled, or NULL */
	u64 addr;			/* where the next block goes */
	u32 count;			/* blocks to come */
	bool goes_on;			/* the bio before was full: there may be many such */
};

/* ---- the list of the back delta ---- */

static int state_order(void *priv, const struct list_head *a, const struct list_head *b)
{
	unsigned int slot = *(unsigned int *)priv;

	return list_entry(a, struct folio_state, link[slot])->block >
	       list_entry(b, struct folio_state, link[slot])->block;
}

/* The list becomes ours, in the order of the file. */
static void list_begin(struct tux3_node *node, unsigned int slot)
{
	struct back_index *back;

	if (node->sorted)
		return;
	spin_lock(&node->data_lock);
	WRITE_ONCE(node->sorted, true);
	node->sorting = true;
	spin_unlock(&node->data_lock);
	list_sort(&slot, &node->dirty[slot], state_order);
	back = back_index_new(node, slot);
	spin_lock(&node->data_lock);
	node->sorting = false;
	node->back = back;
	spin_unlock(&node->data_lock);
}

/* The state that has this block, or the first after it; NULL: none.  Blocks are asked for in order, nearly always. */
static struct folio_state *state_find(struct tux3_node *node, unsigned int slot, u64 block)
{
	struct folio_state *state = node->cursor;

	if (!state || state->block > block)
		state = list_first_entry(&node->dirty[slot], struct folio_state, link[slot]);
	list_for_each_entry_from(state, &node->dirty[slot], link[slot])
		if (block < state->block + state->blocks)
			return state;
	return NULL;
}

static struct folio_state *state_next(struct tux3_node *node, unsigned int slot, struct folio_state *state)
{
	return list_is_last(&state->link[slot], &node->dirty[slot]) ? NULL : list_next_entry(state, link[slot]);
}

/* ---- the end of writeback ---- */

/* count of what writes counts is over. Any context. */
static void state_written(struct folio_state *state, struct folio *folio, unsigned int count)
{
	if (atomic_sub_and_test(count, &state->writes))
		folio_end_writeback_no_dropbehind(folio);
}

/* What the last data_write() sent is in the tree now. */
static void data_settle(struct tux3_node *node, unsigned int slot)
{
	struct folio_state *state = node->unsettled;

	node->unsettled = NULL;
	while (state) {
		if (state->held && !state->left) {
			state->held = false;
			state_written(state, state->folio, 1);
		}
		state = state == node->cursor ? NULL : state_next(node, slot, state);
	}
}

/* Only folios that were under writeback have a state here; detached ones and copies do not. */
static void data_bio_end(struct bio *bio)
{
	struct io_wait *wait = bio->bi_private;
	int err = bdev_bio_error(bio);
	struct folio_iter iter;

	bio_for_each_folio_all(iter, bio) {
		struct folio_state *state = folio_get_private(iter.folio);

		if (state)
			state_written(state, iter.folio, iter.length >> state->node->core.vol->block_shift);
	}
	bio_put(bio);
	io_wait_end(wait, err);
}

/* ---- bios ---- */

static struct tux3_device *run_device(struct data_run *run)
{
	return run->node->core.vol->dev;
}

static void run_submit(struct data_run *run)
{
	if (run->bio)
		bdev_bio_submit(run_device(run), run->bio);
	run->bio = NULL;
}

/* If it is large enough, the device may begin with it while we look for more. */
static void run_submit_early(struct data_run *run)
{
	struct tux3_sb *sbi = sb_of(run->node->vfs.i_sb);
	u32 bytes = run->bio->bi_iter.bi_size;

	if (bytes < max(EARLY_BYTES, sbi->commit_bytes / 4))
		return;
	sbi->commit_bytes += bytes;
	bdev_bio_start(run_device(run), run->bio);
	run->bio = NULL;
}

static void run_begin(struct data_run *run, u32 vecs)
{
	run->bio = bdev_bio_alloc(run_device(run), run->addr, run->goes_on ? BIO_MAX_VECS : vecs,
				  REQ_OP_WRITE | REQ_SYNC | REQ_IDLE);
	run->bio->bi_end_io = data_bio_end;
	run->bio->bi_private = run->wait;
	io_wait_begin(run->wait);
}

/* count blocks from the folio, at offset; and so many blocks a piece are to be expected. */
static void run_add(struct data_run *run, struct folio *folio, size_t offset, u32 count, u32 expected)
{
	u32 shift = run->node->core.vol->block_shift;
	size_t len = (size_t)count << shift;

	if (run->bio && !bio_add_folio(run->bio, folio, len, offset)) {
		run_submit(run);
		run->goes_on = true;
	}
	if (!run->bio) {
		run_begin(run, run->count / expected + 4);
		bio_add_folio_nofail(run->bio, folio, len, offset);
	}
	run->addr += count;
	run->count -= count;
	run_submit_early(run);
}

/* ---- many mapped pages ---- */

/*
 * folio_mkclean() asks all CPUs that run the program to forget about one page, and waits for them: one interrupt for each page,
 * which the program pays for as we do.  Where so many of what one page table maps are to be taken, all from the first to the last
 * of them is unmapped instead, and that is one interrupt.  It is no more than help: a page that is mapped again before it is taken
 * gets its folio_mkclean().  What was unmapped and is not taken costs its next user a fault that finds everything in memory.
 */
#define UNMAP_LEAST	16u
#define UNMAP_MAPPINGS	32u	/* more are not looked at */
#define STRETCH_PAGES	((unsigned long)PTRS_PER_PTE)

/*
 * Pages that a program has locked in memory stay mapped: others could be reclaimed, and it would wait for them.  (Of large folios
 * PG_mlocked does not tell that.)
 */
static bool may_unmap(struct address_space *mapping)
{
	struct rb_node *at;
	bool locked = false;
	u32 count = 0;

	i_mmap_lock_read(mapping);
	for (at = rb_first_cached(&mapping->i_mmap); at && !locked; at = rb_next(at))
		locked = rb_entry(at, struct vm_area_struct, shared.rb)->vm_flags & VM_LOCKED || ++count > UNMAP_MAPPINGS;
	i_mmap_unlock_read(mapping);
	return !locked;
}

/* This state is the next to be taken.  Those after it are, too, and lie behind it. */
static void unmap_stretch(struct tux3_node *node, unsigned int slot, struct folio_state *state)
{
	struct address_space *mapping = node->vfs.i_mapping;
	u32 shift = node->core.vol->block_shift - PAGE_SHIFT;
	struct tux3_sb *sbi = sb_of(node->vfs.i_sb);
	pgoff_t first = state->block << shift, stretch = first / STRETCH_PAGES, last = first;
	unsigned long mapped = 0;

	if (likely(!mapping_writably_mapped(mapping)) || (sbi->stretch_node == node && sbi->stretch == stretch))
		return;
	sbi->stretch_node = node;
	sbi->stretch = stretch;
	for (; state && (state->block << shift) / STRETCH_PAGES == stretch; state = state_next(node, slot, state)) {
		if (!folio_mapped(state->folio))
			continue;
		mapped += (unsigned long)hweight64(state->dirty[slot]) << shift;
		last = ((state->block + state->blocks) << shift) - 1;
	}
	if (mapped >= UNMAP_LEAST && may_unmap(mapping))
		unmap_mapping_pages(mapping, first, last - first + 1, false);
}

/* ---- taking ---- */

/* count of them, or as many as there is memory for. */
static struct folio_copy *get_copies(struct tux3_node *node, u32 count)
{
	struct folio_copy *copies = NULL, *copy;

	while (count-- && (copy = folio_copy_alloc(node, GFP_NOFS))) {
		copy->next = copies;
		copies = copy;
	}
	return copies;
}

/* With the folio locked: what is pending gets copied.  false: not all of it, for want of memory. */
static bool take_by_copy(struct data_run *run, struct folio_state *state)
{
	struct tux3_node *node = run->node;
	struct folio_copy *copies = get_copies(node, hweight64(state->dirty[run->slot]));
	u64 pending;

	spin_lock(&node->data_lock);
	state->stray |= state->dirty[run->slot];
	set_bit(NODE_STRAYS, &node->flags);
	pending = folio_state_pending(state, run->slot);
	spin_unlock(&node->data_lock);
	folio_copies_fill(node, state->folio, pending, copies);
	spin_lock(&node->data_lock);
	pending = folio_copies_install(state, run->slot, pending, &copies);
	spin_unlock(&node->data_lock);
	folio_copies_free(copies);
	return !pending;
}

/* Stores beyond the end of the file, through a mapping, are not written: see folio_read_block() about the size. */
static void zero_beyond_end(struct folio_state *state, u64 size)
{
	u32 block_size = state->node->core.vol->block_size, tail = size & (block_size - 1);
	u64 block = size >> state->node->core.vol->block_shift;

	if (tail && block >= state->block && block < state->block + state->blocks &&
	    state->left >> (block - state->block) & 1)
		folio_zero_range(state->folio, size - folio_pos(state->folio), block_size - tail);
}

/* May this commit take so many blocks by a snapshot? */
static bool may_snapshot(struct data_run *run, u32 blocks)
{
	struct tux3_sb *sbi = sb_of(run->node->vfs.i_sb);

	if (sbi->snapshot_blocks < blocks)
		return false;
	sbi->snapshot_blocks -= blocks;
	return true;
}

/* Memory for blocks [first, last] of a folio, at block 0 of the new one. */
static struct folio *snapshot_alloc(struct data_run *run, u32 first, u32 last)
{
	struct volume *vol = run->node->core.vol;
	u32 order = order_base_2(last - first + 1);
	struct folio *snapshot;

	if (!may_snapshot(run, 1u << order))
		return NULL;
	snapshot = folio_alloc(GFP_NOFS | __GFP_NORETRY | __GFP_NOWARN, order + vol->block_shift - PAGE_SHIFT);
	if (snapshot)
		count_add(vol, TUX3_COUNT_SNAPSHOT_BLOCKS, 1u << order);
	return snapshot;
}

/*
 * With the folio locked: nobody will have to wait for its I/O.  The folio stays PG_dirty until data_done(), which keeps
 * it whole until its blocks' addresses are in the tree.  A folio may have 64 blocks, and an fsync one dirty among them: so what
 * there is memory for (which the kernel clears first) is from the first block that is needed to the last.
 */
static bool take_snapshot(struct data_run *run, struct folio_state *state)
{
	struct tux3_node *node = run->node;
	struct folio *folio = state->folio, *snapshot;
	u32 shift = node->core.vol->block_shift, first;
	u64 pending, rest;

	/* Writers may copy some of it meanwhile, but nothing is added: the delta has ended. */
	spin_lock(&node->data_lock);
	pending = folio_state_pending(state, run->slot);
	spin_unlock(&node->data_lock);
	if (!pending)
		return true;
	first = __ffs64(pending);
	snapshot = snapshot_alloc(run, first, fls64(pending) - 1);
	if (!snapshot)
		return false;
	for (rest = pending; rest; rest &= rest - 1)
		folio_read_block(node, folio, __ffs64(rest),
				 folio_address(snapshot) + ((size_t)(__ffs64(rest) - first) << shift));
	/* What writers have copied meanwhile was perhaps read when they had changed it: their copy is what counts. */
	spin_lock(&node->data_lock);
	state->sent |= folio_state_pending(state, run->slot);
	state->snapshot = snapshot;
	state->snapshot_first = first;
	spin_unlock(&node->data_lock);
	return true;
}

/* With the folio locked and in the cache: see above. */
static void take_in_place(struct data_run *run, struct folio_state *state)
{
	struct tux3_node *node = run->node;
	struct folio *folio = state->folio;
	u64 stays, size;

	spin_lock(&node->data_lock);
	stays = state->dirty[!run->slot] | state->stray;
	spin_unlock(&node->data_lock);
	if (stays)
		folio_mkclean(folio);
	else
		folio_clear_dirty_for_io(folio);
	folio_start_writeback(folio);

	spin_lock(&node->data_lock);
	state->left = folio_state_pending(state, run->slot);
	state->sent |= state->left;
	state->held = true;
	atomic_set(&state->writes, hweight64(state->left) + 1);
	stays = state->dirty[!run->slot] | state->stray;
	size = i_size_read(&node->vfs);
	spin_unlock(&node->data_lock);
	if (stays && !folio_test_dirty(folio))	/* it was dirtied between the two looks */
		filemap_dirty_folio(node->vfs.i_mapping, folio);
	zero_beyond_end(state, size);
}

/* Are all blocks of the delta that are needed from the folio taken?  data_lock held. */
static bool state_is_taken(struct folio_state *state, unsigned int slot)
{
	u64 pending = folio_state_pending(state, slot);

	if (state->detached)
		state->sent |= pending;
	return state->detached || !pending;
}

/* Lock its folio, which is another one when the memory of that has failed meanwhile; NULL: somebody has it locked. */
static struct folio *state_trylock(struct folio_state *state)
{
	struct folio *folio;

	spin_lock(&state->node->data_lock);
	folio = folio_trylock(state->folio) ? state->folio : NULL;
	spin_unlock(&state->node->data_lock);
	return folio;
}

static struct folio *state_lock(struct folio_state *state)
{
	struct folio *folio;
	bool same;

	do {
		spin_lock(&state->node->data_lock);
		folio = state->folio;
		folio_get(folio);
		spin_unlock(&state->node->data_lock);
		folio_lock(folio);
		same = READ_ONCE(state->folio) == folio;
		if (!same)
			folio_unlock(folio);
		folio_put(folio);
	} while (!same);
	return folio;
}

static void state_take(struct data_run *run, struct folio_state *state)
{
	struct tux3_node *node = run->node;
	struct folio *folio;
	bool taken;

	spin_lock(&node->data_lock);
	taken = state_is_taken(state, run->slot);
	spin_unlock(&node->data_lock);
	if (taken)
		return;
	folio = state_trylock(state);
	if (!folio) {
		run_submit(run);
		folio = state_lock(state);
	}
	/* It may have been truncated meanwhile.  With the lock held it stays attached, or detached. */
	spin_lock(&node->data_lock);
	taken = state_is_taken(state, run->slot);
	spin_unlock(&node->data_lock);
	if (!taken) {
		folio_find_strays(node, folio);
		/* First nobody can pin it for stores any more, then who has is asked for: else one could come between the two. */
		if (folio_mapped(folio))
			folio_mkclean(folio);
		if (folio_maybe_dma_pinned(folio))
			taken = take_by_copy(run, state);
		else
			taken = take_snapshot(run, state);
		if (!taken)
			take_in_place(run, state);
	}
	folio_unlock(folio);
}

/* ---- what the core calls ---- */

static u32 run_length(u64 bits, u32 from)
{
	u64 rest = ~(bits >> from);

	return rest ? min_t(u32, __ffs64(rest), 64 - from) : 64;
}

int host_data_next(struct tux3_inode *inode, u64 delta, u64 from, u64 *block, u64 *count)
{
	struct tux3_node *node = core_node(inode);
	unsigned int slot = delta & 1;
	struct folio_state *state;
	u64 bits = 0, end;
	u32 first, n;

	list_begin(node, slot);
	data_settle(node, slot);
	state = state_find(node, slot, from);
	for (; state; state = state_next(node, slot, state)) {
		bits = state->dirty[slot];
		if (from > state->block)
			bits &= ~0ULL << (from - state->block);
		if (bits)
			break;
	}
	if (!state)
		return -ENOENT;
	node->cursor = state;
	first = __ffs64(bits);
	*block = state->block + first;
	for (;;) {
		n = run_length(bits, first);
		end = state->block + first + n;
		if (first + n < state->blocks)
			break;
		state = state_next(node, slot, state);
		if (!state || state->block != end || !(state->dirty[slot] & 1))
			break;
		bits = state->dirty[slot];
		first = 0;
	}
	*count = end - *block;
	return 0;
}

static struct folio_copy *find_copy(struct folio_state *state, u32 index)
{
	struct folio_copy *copy = state->copies;

	while (copy && copy->index != index)
		copy = copy->next;
	return copy;
}

/* Blocks [from, from + count) of a state that is taken.  Its copied and copies do not change any more. */
static void write_state(struct data_run *run, struct folio_state *state, u32 from, u32 count, __le32 *csum)
{
	u32 i = from, end = from + count, n;

	while (i < end) {
		struct folio *folio = state->snapshot ? state->snapshot : state->folio;
		size_t offset = (size_t)(i - (state->snapshot ? state->snapshot_first : 0)) << run->node->core.vol->block_shift;

		if (state->copied >> i & 1) {
			folio = find_copy(state, i)->data;
			offset = 0;
			n = 1;
		} else {
			n = min(end - i, run_length(~state->copied, i));
		}
		if (csum)
			checksums_add(run->node->core.vol, folio_address(folio) + offset, n, csum + (i - from));
		run_add(run, folio, offset, n, state->copied ? 1 : state->blocks);
		i += n;
	}
	state->left &= ~folio_mask(from, count);
}

/* Is this the first data_write() of a commit? */
static void commit_begin(struct tux3_sb *sbi, u64 delta)
{
	if (sbi->commit_delta == delta)
		return;
	sbi->commit_delta = delta;
	sbi->commit_bytes = 0;
	sbi->stretch_node = NULL;
	sbi->snapshot_blocks = (sbi->options.snapshot_bytes ? sbi->options.snapshot_bytes : SNAPSHOT_BYTES) >>
			       sbi->vol->block_shift;
}

int host_data_write(struct tux3_inode *inode, u64 delta, u64 block, u64 addr, u32 count, __le32 *csum,
		    struct io_wait *wait)
{
	struct tux3_node *node = core_node(inode);
	struct data_run run = { .node = node, .delta = delta, .slot = delta & 1, .wait = wait, .addr = addr, .count = count };
	struct folio_state *state;
	u32 from, n;

	commit_begin(sb_of(node->vfs.i_sb), delta);
	list_begin(node, run.slot);
	data_settle(node, run.slot);
	run.bio = bdev_bio_continue(run_device(&run), addr, wait);
	for (state = state_find(node, run.slot, block); count; state = state_next(node, run.slot, state)) {
		from = state ? block - state->block : 0;
		n = state ? min(count, state->blocks - from) : 0;
		if (WARN_ON_ONCE(!state || block < state->block || folio_mask(from, n) & ~state->dirty[run.slot]))
			break;		/* not what data_next() has said */
		node->cursor = state;
		if (!node->unsettled)
			node->unsettled = state;
		unmap_stretch(node, run.slot, state);
		state_take(&run, state);
		write_state(&run, state, from, n, csum);
		block += n;
		count -= n;
		csum = csum ? csum + n : NULL;
	}
	checksums_finish(node->core.vol);
	/* Small files, and pieces of sparse ones, are often placed one after the other. */
	if (run.bio)
		bdev_bio_keep(run_device(&run), run.bio);
	return count ? -EIO : 0;
}

/* Copies from the folio or its copy; sent from then on.  data_lock held. */
static void copy_block(struct folio_state *state, u32 index, void *data, u32 len)
{
	if (state->copied >> index & 1) {
		memcpy(data, folio_address(find_copy(state, index)->data), len);
		return;
	}
	memcpy(data, folio_address(state->folio) + ((size_t)index << state->node->core.vol->block_shift), len);
	state->sent |= BIT_ULL(index);
}

/*
 * The copy is made under data_lock: who changes the block copies it before, or comes after.  Stores through a mapping
 * are kept out by the folio lock and write-protection.
 */
int host_data_copy(struct tux3_inode *inode, u64 delta, u64 block, void *data, u32 len)
{
	struct tux3_node *node = core_node(inode);
	unsigned int slot = delta & 1;
	struct folio_state *state;
	struct folio *folio;
	u32 index;

	list_begin(node, slot);
	data_settle(node, slot);
	state = state_find(node, slot, block);
	if (WARN_ON_ONCE(!state || block < state->block || !(state->dirty[slot] >> (block - state->block) & 1)))
		return -EIO;
	index = block - state->block;
	folio = state_trylock(state);
	if (!folio) {
		bdev_bio_kick(node->core.vol->dev);
		folio = state_lock(state);
	}
	if (folio->mapping)
		folio_mkclean(folio);
	spin_lock(&node->data_lock);
	copy_block(state, index, data, len);
	if (!state->detached && folio_maybe_dma_pinned(folio)) {
		state->stray |= BIT_ULL(index);
		set_bit(NODE_STRAYS, &node->flags);
	}
	spin_unlock(&node->data_lock);
	folio_unlock(folio);
	return 0;
}

/* ---- done ---- */

/* Must a folio that is PG_dirty stay so?  One without a state was dirtied by nobody we know of. */
static bool folio_stays_dirty(struct tux3_node *node, struct folio *folio)
{
	struct folio_state *state;
	bool stays;

	spin_lock(&node->data_lock);
	state = folio_get_private(folio);
	stays = !state || folio_state_busy(state) || state->stray;
	spin_unlock(&node->data_lock);
	return stays;
}

/* The folio is locked.  If nothing of it is dirty, it is not PG_dirty either; a writeback of nothing corrects the tags. */
static void folio_clean(struct tux3_node *node, struct folio *folio)
{
	struct address_space *mapping = node->vfs.i_mapping;

	if (folio->mapping != mapping || !folio_test_dirty(folio) || folio_test_writeback(folio) ||
	    folio_stays_dirty(node, folio))
		return;
	atomic_inc(&node->cleaning);
	smp_mb__after_atomic();		/* pairs with folio_find_dirty() */
	if (!folio_stays_dirty(node, folio)) {
		folio_clear_dirty_for_io(folio);
		folio_start_writeback(folio);
		folio_end_writeback(folio);
		if (folio_stays_dirty(node, folio))	/* since we looked */
			filemap_dirty_folio(mapping, folio);
	}
	smp_mb__before_atomic();
	atomic_dec(&node->cleaning);
}

/* The last bit of a folio is gone, and it is still PG_dirty. */
static void folio_try_clean(struct tux3_node *node, struct folio *folio)
{
	if (!folio_trylock(folio)) {
		set_bit(NODE_STRAYS, &node->flags);	/* some other time */
		return;
	}
	folio_clean(node, folio);
	folio_unlock(folio);
}

static void state_done(struct tux3_node *node, struct folio_state *state, unsigned int slot)
{
	struct folio_copy *copies;
	struct folio *folio, *snapshot;
	bool busy, detached, drop;
	pgoff_t first, last;

	spin_lock(&node->data_lock);
	folio = state->folio;
	snapshot = state->snapshot;
	copies = state->copies;
	node->dirty_blocks[slot] -= hweight64(state->dirty[slot]);
	state->dirty[slot] = state->sent = state->copied = state->left = 0;
	state->copies = NULL;
	state->snapshot = NULL;
	list_del_init(&state->link[slot]);
	if (node->back)
		node->back->done++;
	busy = folio_state_busy(state);
	detached = state->detached;
	spin_unlock(&node->data_lock);
	folio_copies_free(copies);
	if (snapshot)
		folio_put(snapshot);
	if (busy)
		return;
	/* From here on the state is ours only if it is detached; the reference to its folio is. */
	first = folio->index;
	last = first + folio_nr_pages(folio) - 1;
	if (detached)
		folio_state_free(state);
	else if (folio_test_dirty(folio))
		folio_try_clean(node, folio);
	drop = !detached && compat_drops_behind(folio);		/* a write that wants no cache has brought it in, and it is clean */
	folio_put(folio);
	if (unlikely(drop))
		invalidate_mapping_pages(node->vfs.i_mapping, first, last);
}

/* All I/O has ended.  After an error some blocks have not been submitted. */
static void data_release(struct tux3_node *node, unsigned int slot)
{
	struct folio_state *state;

	list_for_each_entry(state, &node->dirty[slot], link[slot]) {
		if (state->held) {
			state->held = false;
			state_written(state, state->folio, hweight64(state->left) + 1);
		}
	}
	node->cursor = node->unsettled = NULL;
}

/*
 * A folio that nobody will ever write is not PG_dirty: else it would count against the limit of dirty memory, and the
 * flusher would come for it again and again.  Its state goes on holding it in the page cache.  One whose lock is taken
 * stays dirty.
 */
static void state_abort(struct folio_state *state)
{
	struct folio *folio;

	if (state->detached)
		return;
	folio = state_trylock(state);
	if (!folio)
		return;
	if (!state->detached && !folio_test_writeback(folio) && folio_clear_dirty_for_io(folio)) {
		folio_start_writeback(folio);
		folio_end_writeback(folio);
	}
	folio_unlock(folio);
}

/* Under a lock, so that nobody finds it told before it is. */
void node_lost(struct tux3_node *node)
{
	spin_lock(&node->data_lock);
	if (!test_bit(NODE_LOST, &node->flags))
		mapping_set_error(node->vfs.i_mapping, -EIO);
	set_bit(NODE_LOST, &node->flags);
	spin_unlock(&node->data_lock);
}

void host_data_aborted(struct tux3_inode *inode, u64 delta, int err)
{
	struct tux3_node *node = core_node(inode);
	unsigned int slot = delta & 1;
	struct folio_state *state;

	data_release(node, slot);
	node_lost(node);
	list_for_each_entry(state, &node->dirty[slot], link[slot]) {
		state_abort(state);
		cond_resched();
	}
}

/* What is dropped was not sent: data_done() makes it clean, as it does after an error. */
static void host_data_lost(struct tux3_inode *inode)
{
	mapping_set_error(core_node(inode)->vfs.i_mapping, -EIO);
}

void host_data_done(struct tux3_inode *inode, u64 delta, int err)
{
	struct tux3_node *node = core_node(inode);
	unsigned int slot = delta & 1;
	struct folio_state *state, *next;
	struct back_index *back;

	data_release(node, slot);
	if (err)
		node_lost(node);
	list_for_each_entry_safe(state, next, &node->dirty[slot], link[slot]) {
		state_done(node, state, slot);
		cond_resched();
	}
	spin_lock(&node->data_lock);
	WRITE_ONCE(node->sorted, false);
	back = node->back;
	node->back = NULL;
	spin_unlock(&node->data_lock);
	kvfree(back);
}

/*
 * What commits are to find (folio_find_strays()) would not be found for as long as its file is put off.  Who takes data_lock after
 * us knows that the delta has ended, and leaves its list alone.
 */
static bool host_data_stores_known(struct tux3_inode *inode, u64 delta, u32 max)
{
	struct tux3_node *node = core_node(inode);
	unsigned int slot = delta & 1;
	struct folio_state *state;
	struct folio *folio;
	u32 count = 0;

	spin_lock(&node->data_lock);
	spin_unlock(&node->data_lock);
	list_for_each_entry(state, &node->dirty[slot], link[slot]) {
		if (test_bit(NODE_UNTOLD, &node->flags) || ++count > max)
			return false;
		folio = state_trylock(state);
		if (!folio)
			return false;
		folio_find_strays(node, folio);
		folio_unlock(folio);
	}
	return !test_bit(NODE_UNTOLD, &node->flags);
}

/*
 * What goes from slot to slot was not taken, sent or copied: for that it had to be of the back delta.  What is detached must not
 * become the front delta's.  Page tables stay as they are, so who goes on storing needs no fault.
 */
static int host_data_put_off(struct tux3_inode *inode, u64 delta, u32 max)
{
	struct tux3_node *node = core_node(inode);
	unsigned int from = delta & 1;
	struct folio_state *state, *next;
	int count = -EAGAIN;

	/* The caller has inode->lock, which others take inside of this one: so it is not waited for. */
	if (!spin_trylock(&node->data_lock))
		return -EAGAIN;
	if (node->sorted || !list_empty(&node->dirty[!from]) || node->dirty_blocks[from] > max)
		goto out;
	count = 0;
	/* One without blocks, for they were truncated, may be on the list, too. */
	list_for_each_entry(state, &node->dirty[from], link[from]) {
		if (state->detached || state->sent || state->copied || ++count > max) {
			count = -EAGAIN;
			goto out;
		}
	}
	count = node->dirty_blocks[from];
	list_for_each_entry_safe(state, next, &node->dirty[from], link[from]) {
		state->dirty[!from] = state->dirty[from];
		state->dirty[from] = 0;
		list_del_init(&state->link[from]);
		list_add_tail(&state->link[!from], &node->dirty[!from]);
	}
	node->dirty_blocks[!from] = count;
	node->dirty_blocks[from] = 0;
out:
	spin_unlock(&node->data_lock);
	return count;
}

static bool host_data_dirty(struct tux3_inode *inode, u64 from, u64 end, u64 *block, u64 *count)
{
	return folio_find_dirty(core_node(inode), from, end, block, count);
}

static u64 host_data_dirty_blocks(struct tux3_inode *inode)
{
	return folio_dirty_blocks(core_node(inode));
}

/* Whoever writes, truncates or punches has it exclusively. */
static bool host_data_hold(struct tux3_inode *inode, bool wait)
{
	struct inode *vfs = &core_node(inode)->vfs;

	return inode_trylock_shared(vfs) || (wait && !down_read_killable(&vfs->i_rwsem));
}

static void host_data_let(struct tux3_inode *inode)
{
	inode_unlock_shared(&core_node(inode)->vfs);
}

/* Or are some just being made dirty, by another one?  Pairs with redirty_strays(). */
static bool has_strays(struct tux3_node *node)
{
	bool some = test_bit(NODE_STRAYS, &node->flags);

	smp_rmb();
	return some || atomic_read_acquire(&node->redirtying);
}

/* By a program, which stores without a fault where it has stored before; or by a device. */
static bool host_data_mapped(struct tux3_inode *inode)
{
	struct tux3_node *node = core_node(inode);

	return mapping_writably_mapped(node->vfs.i_mapping) || has_strays(node) || test_bit(NODE_UNTOLD, &node->flags);
}

/* Does the back delta still need some of [from, end) from the folio, while a program or a device may be storing into it? */
static bool folio_is_unsettled(struct tux3_node *node, struct folio *folio, u64 from, u64 end, unsigned int back)
{
	struct folio_state *state;
	u64 pending = 0;

	/* What is being mapped by a fault is not mapped yet. */
	if (!mapping_writably_mapped(node->vfs.i_mapping) && !folio_maybe_dma_pinned(folio))
		return false;
	spin_lock(&node->data_lock);
	state = folio_get_private(folio);
	if (state)
		pending = folio_state_pending(state, back) &
			  folio_mask(from - state->block, min(end, state->block + state->blocks) - from);
	spin_unlock(&node->data_lock);
	return pending;
}

/* As state_take() does it.  Inside a delta the folio lock is only tried: a fault, for one, may have it. */
static bool folio_settle(struct tux3_node *node, struct folio *folio)
{
	bool settled;

	if (!folio_trylock(folio))
		return false;
	folio_find_strays(node, folio);
	if (folio_mapped(folio))
		folio_mkclean(folio);
	settled = !folio_maybe_dma_pinned(folio);
	folio_unlock(folio);
	return settled;
}

/*
 * Until the back end takes a page what is stored into it belongs to the back delta, without a fault.  That delta becomes durable
 * with it; and the intent, which is of the next one, would then bring back what was there before.  So pages of blocks that are
 * pending are write-protected now, and a store makes its block dirty in the front delta.
 *
 * A device that has pinned a page may go on without a mapping, and who lets go of the page then says nothing if the folio is dirty
 * already (unpin_user_pages_dirty_lock()).  So nothing that comes later may count on what is captured.  Who pins one later needs a
 * fault.
 */
static bool host_data_settle(struct tux3_inode *inode, u64 delta, u64 block, u32 count)
{
	struct tux3_node *node = core_node(inode);
	u64 end = block + count;
	struct folio *folio;
	bool settled = true;

	while (block < end && settled) {
		folio = filemap_get_folio(node->vfs.i_mapping, block << (inode->vol->block_shift - PAGE_SHIFT));
		if (IS_ERR(folio))
			return false;
		if (folio_is_unsettled(node, folio, block, end, ~delta & 1))
			settled = folio_settle(node, folio);
		if (unlikely(folio_maybe_dma_pinned(folio)))
			inode_note_all(inode);
		block = folio_block(node, folio) + folio_blocks(node, folio);
		folio_put(folio);
	}
	return settled;
}

/*
 * Stores into mappings go on meanwhile: as with any copy, those that come now may be in it or not.  The block may have become
 * durable since it was found dirty: then its folio may be another by now, not read yet.
 */
static bool host_data_peek(struct tux3_inode *inode, u64 block, void *data)
{
	struct tux3_node *node = core_node(inode);
	u32 block_size = inode->vol->block_size;
	loff_t pos = (loff_t)block << inode->vol->block_shift, left = i_size_read(&node->vfs) - pos;
	struct folio *folio = filemap_get_folio(node->vfs.i_mapping, pos >> PAGE_SHIFT);

	if (IS_ERR(folio))
		return false;
	if (!folio_test_uptodate(folio)) {
		folio_put(folio);
		return false;
	}
	memcpy(data, folio_address(folio) + offset_in_folio(folio, pos), block_size);
	folio_put(folio);
	left = clamp_t(loff_t, left, 0, block_size);
	memset((u8 *)data + left, 0, block_size - left);
	return true;
}

const struct tux3_host_ops vfs_host_ops = {
	.inode_grab = host_inode_grab,
	.inode_release = host_inode_release,
	.inode_kill = host_inode_kill,
	.inode_peek = host_inode_peek,
	.settle_unused = host_settle_unused,
	.lacks_time = host_lacks_time,
	.quota_exempt = host_quota_exempt,
	.quota_told = host_quota_told,
	.stopped = host_stopped,
	.data_next = host_data_next,
	.data_write = host_data_write,
	.data_copy = host_data_copy,
	.data_aborted = host_data_aborted,
	.data_lost = host_data_lost,
	.data_done = host_data_done,
	.data_put_off = host_data_put_off,
	.data_stores_known = COMPAT_PROTECTS_BATCHES ? host_data_stores_known : NULL,
	.data_dirty = host_data_dirty,
	.data_dirty_blocks = host_data_dirty_blocks,
	.data_hold = host_data_hold,
	.data_let = host_data_let,
	.data_peek = host_data_peek,
	.data_mapped = host_data_mapped,
	.data_settle = host_data_settle,
	.now = COMPAT_NOW,
};

/* ---- strays ---- */

/* Blocks of a PG_dirty folio that are dirty in no delta though they were changed. */
static u64 stray_blocks(struct tux3_node *node, struct folio *folio)
{
	u64 end = DIV_ROUND_UP_ULL(i_size_read(&node->vfs), node->core.vol->block_size);
	u64 first = folio_block(node, folio);
	u32 blocks = folio_blocks(node, folio);
	u64 mask = end > first ? folio_mask(0, min_t(u64, blocks, end - first)) : 0;
	struct folio_state *state;

	spin_lock(&node->data_lock);
	state = folio_get_private(folio);
	if (state) {
		state->stray &= mask;
		mask = state->stray;
	}
	spin_unlock(&node->data_lock);
	return mask;
}

static int redirty_folio(struct tux3_node *node, struct folio *folio)
{
	u64 mask;
	int err;

	folio_lock(folio);
	folio_find_strays(node, folio);
	mask = folio_test_dirty(folio) ? stray_blocks(node, folio) : 0;
	if (mask) {
		folio_unlock(folio);
		if (!sb_start_intwrite_trylock(node->vfs.i_sb))
			return -EBUSY;
		err = folio_make_dirty(node, folio, mask);
		sb_end_intwrite(node->vfs.i_sb);
		if (err)
			return err == -EFAULT ? 0 : err;
	}
	folio_clean(node, folio);
	folio_unlock(folio);
	return 0;
}

/* Known ones, or such that are to be found in what is dirty. */
static bool may_have_strays(struct tux3_node *node)
{
	return has_strays(node) || (COMPAT_PROTECTS_BATCHES && mapping_writably_mapped(node->vfs.i_mapping));
}

/*
 * With a reference: see file_redirty_strays().  Who comes meanwhile does the same: he must not take for durable what is not in a
 * delta yet.
 */
static int redirty_strays(struct tux3_node *node)
{
	struct folio_batch batch;
	pgoff_t index = 0;
	bool wanted;
	int err = 0;
	u32 i;

	folio_batch_init(&batch);
	filemap_invalidate_lock_shared(node->vfs.i_mapping);	/* as a page fault */
	/* While it is a swap file its blocks stay where they are: after that, then. */
	wanted = !test_bit(NODE_SWAP, &node->flags) && may_have_strays(node);
	if (wanted) {
		atomic_inc(&node->redirtying);
		smp_mb__after_atomic();
		clear_bit(NODE_STRAYS, &node->flags);
	}
	while (wanted && !err &&
	       filemap_get_folios_tag(node->vfs.i_mapping, &index, ULONG_MAX, PAGECACHE_TAG_DIRTY, &batch)) {
		for (i = 0; i < folio_batch_count(&batch) && !err; i++)
			err = redirty_folio(node, batch.folios[i]);
		folio_batch_release(&batch);
		cond_resched();
	}
	filemap_invalidate_unlock_shared(node->vfs.i_mapping);
	if (err)
		set_bit(NODE_STRAYS, &node->flags);
	if (wanted) {
		smp_mb__before_atomic();
		atomic_dec(&node->redirtying);
	}
	return err;
}

/*
 * The flusher comes here without a reference, and the inode may be on its way out, waiting for the flusher alone: a
 * delta must not pin it any more.  What is dirty then goes with it.
 *
 * While the volume is frozen strays stay what they are: they came after that.  (Freezing syncs before the level of ours.)
 */
int file_redirty_strays(struct tux3_node *node)
{
	int err;

	if (likely(!may_have_strays(node)) || !node_grab_living(node))
		return 0;
	err = redirty_strays(node);
	node_put_later(node);
	return err;
}

/* ---- the VFS wants pages written ---- */

#define FLUSHER_LEAVES_BYTES (64u << 10)

static s64 front_bytes(struct volume *vol)
{
	return delta_dirty_bytes_sum(&vol->delta, READ_ONCE(vol->delta.front) & 1);
}

/*
 * There is one way to write a file's pages: a commit of everything.  Who waits for them (msync) gets one.  syncfs and umount
 * go on to ->sync_fs, which does it for all files at once; what they only begin before that is tagged.  The flusher, when
 * there is too much dirty memory or it got old, waits for one: so it sees progress, and knows when to stop.  (It makes none:
 * it goes on while the image of a system that hibernates is written, and that must find the disk as it was.)  Others, and
 * sync(2) by way of the flusher, only want it to begin: sync_file_range(2), file by file, before an fsync or none.  For as little
 * as an fsync commits with its file that is not worth a commit, and a flush.  Nor is it worth one for less still when the flusher
 * thinks that there is too much: it looks each time when it has done something else, and a device that wrote little lately may, in
 * its opinion, hold next to nothing.
 */
int file_writepages(struct address_space *mapping, struct writeback_control *wbc)
{
	struct tux3_node *node = node_of(mapping->host);
	struct volume *vol = node->core.vol;
	u64 blocks;
	int err;

	/* Direct reads ask for what they are about to read. */
	if (wbc->sync_mode == WB_SYNC_ALL && !wbc->range_cyclic &&
	    !filemap_range_needs_writeback(mapping, wbc->range_start, wbc->range_end))
		return 0;
	err = file_redirty_strays(node);
	blocks = folio_dirty_blocks(node);
	if (err == -EBUSY)
		err = 0;
	if (err && volume_error(vol))
		node_lost(node);
	else if (err && err != -EINTR)	/* that was a caller who was killed (sync_file_range): nothing is lost */
		mapping_set_error(mapping, err);
	if (err || !blocks || wbc->for_sync || wbc->tagged_writepages)
		return err;
	if (wbc->sync_mode == WB_SYNC_NONE && !wbc->for_background && !wbc->for_kupdate) {
		if (front_bytes(vol) > DELTA_HEAVY_BYTES)
			delta_request(vol);
		return 0;
	}
	if (wbc->for_background && front_bytes(vol) <= FLUSHER_LEAVES_BYTES)
		return 0;
	err = wbc->sync_mode == WB_SYNC_NONE ? delta_commit_by_thread(vol) : delta_commit(vol);
	if (!err)	/* else the flusher would come again at once */
		wbc->nr_to_write -= min_t(u64, blocks << (vol->block_shift - PAGE_SHIFT), LONG_MAX / 2);
	return err;
}
