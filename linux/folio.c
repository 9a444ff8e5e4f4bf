// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which blocks of a folio are dirty in which delta: the front end's side.  What the states are is said in folio.h,
 * what the back end does with them in writeback.c.
 *
 * Invariants, under node->data_lock:
 *
 *  1. A state is attached (folio->private) or detached.  It is attached under the folio lock, to a folio in the page
 *     cache, and is gone from it before the folio leaves the cache: released, which it refuses while busy, or
 *     invalidated.  So who finds part->state attached still, under data_lock, and then makes it busy, knows that the
 *     folio is in the cache and stays there for as long as nobody truncates it (i_rwsem, invalidate_lock).
 *  2. A state is busy while it is on node->dirty[0] or dirty[1]: then it holds a reference to its folio.  It gets on
 *     a list with its first dirty bit there.  A truncate takes bits back, but leaves it on the list: data_done(),
 *     which visits all on the list, thus also finds the folio that is still PG_dirty for nothing.
 *  3. Bits of a delta that is the back delta are only cleared by data_done().  So is membership in its list, from the
 *     moment when the back end has begun with it (node->sorted); that is why it may walk the list without a lock.
 *  4. copies are of blocks pending when they were made: dirty in the back delta, neither sent nor copied.  Nobody
 *     changes a pending block before he has made it copied.
 *
 * Why a change cannot get into the back delta.  An operation of N + 1 begins all its changes with
 * folio_change_begin() or folio_keep_old(), which look at N's bits under data_lock.  Either the block is pending: its
 * contents are copied in the same lock hold, and the back end will use the copy.  Or the back end has taken it
 * (sent): while its I/O is under way the folio is under writeback, which the back end had begun before it set the
 * bit; then we back out and wait.  Else its contents are on the device, or in the log.  Stores through a mapping are
 * no operations; before the back end takes a block it write-protects the page under the folio lock, and the fault
 * that makes it writable again is an operation, under the folio lock.
 *
 * Why a change cannot get lost.  The bit is set before PG_dirty (folio_change_end()), and both before the operation
 * leaves its delta.  The back end clears PG_dirty only after it has seen no bit of the front delta, and looks again
 * afterwards.
 *
 * Locking: data_lock is taken in process context only (and under page table locks: file_dirty_folio()).  The i_pages
 * lock is not taken inside it.
 */
#include <linux/highmem.h>
#include <linux/mm.h>
#include "core/inode/file_range.h"
#include "core/intent/intent.h"
#include "linux/folio.h"

/* ---- states and copies ---- */

void folio_state_free(struct folio_state *state)
{
	kmem_cache_free(tux3_folio_state_cache, state);
}

/*
 * A folio that is larger than the mapping allows.  Kernels that have CONFIG_READ_ONLY_THP_FOR_FS put one in place of clean ones
 * while nobody has the file open for writing (khugepaged, MADV_COLLAPSE), and do not ask.  It goes, and who wants to change it
 * looks anew.
 */
static int drop_huge_folio(struct folio *folio)
{
	int err = WARN_ON_ONCE(folio_test_dirty(folio)) ? -EIO : generic_error_remove_folio(folio->mapping, folio);

	return err ? err : -ESTALE;
}

/* The folio is locked.  0: it has a state now; -ESTALE: it is not in the page cache (any more). */
static int state_attach(struct tux3_node *node, struct folio *folio, gfp_t gfp)
{
	struct folio_state *state;

	if (folio->mapping != node->vfs.i_mapping)
		return -ESTALE;
	if (unlikely(folio_blocks(node, folio) > FOLIO_BLOCKS_MAX))
		return drop_huge_folio(folio);
	state = kmem_cache_zalloc(tux3_folio_state_cache, gfp);
	if (!state)
		return -ENOMEM;
	state->node = node;
	state->folio = folio;
	state->block = folio_block(node, folio);
	state->blocks = folio_blocks(node, folio);
	state->since = intent_now(node->core.vol);
	INIT_LIST_HEAD(&state->link[0]);
	INIT_LIST_HEAD(&state->link[1]);
	spin_lock(&node->data_lock);
	if (!folio_get_private(folio)) {
		/* Somebody dirtied it when there was no state to note that. */
		if (folio_test_dirty(folio))
			state->stray = folio_mask(0, state->blocks);
		folio_attach_private(folio, state);
		state = NULL;
	}
	spin_unlock(&node->data_lock);
	if (state)
		folio_state_free(state);
	return 0;
}

struct folio_copy *folio_copy_alloc(struct tux3_node *node, gfp_t gfp)
{
	struct folio_copy *copy = kmalloc(sizeof(*copy), gfp);

	if (!copy)
		return NULL;
	copy->next = NULL;
	copy->data = folio_alloc(gfp, node->core.vol->block_shift - PAGE_SHIFT);
	if (!copy->data) {
		kfree(copy);
		return NULL;
	}
	return copy;
}

void folio_copies_free(struct folio_copy *copies)
{
	while (copies) {
		struct folio_copy *next = copies->next;

		folio_put(copies->data);
		kfree(copies);
		copies = next;
	}
}

/*
 * What a mapping may have stored beyond the end of the file is not written.  The size now is as good as that at the
 * end of the back delta, if this is the block in which the end is: who moves the end into or out of a block changes
 * the block, and would have made a copy before.
 */
void folio_read_block(struct tux3_node *node, struct folio *folio, u32 index, void *to)
{
	u32 shift = node->core.vol->block_shift;
	size_t block_size = (size_t)1 << shift;
	u64 size = i_size_read(&node->vfs);

	memcpy(to, folio_address(folio) + ((size_t)index << shift), block_size);
	if (size >> shift == folio_block(node, folio) + index && size & (block_size - 1))
		memset(to + (size & (block_size - 1)), 0, block_size - (size & (block_size - 1)));
}

void folio_copies_fill(struct tux3_node *node, struct folio *folio, u64 mask, struct folio_copy *copies)
{
	for (; mask && copies; copies = copies->next) {
		copies->index = __ffs64(mask);
		folio_read_block(node, folio, copies->index, folio_address(copies->data));
		mask &= mask - 1;
	}
}

u64 folio_copies_install(struct folio_state *state, unsigned int slot, u64 mask, struct folio_copy **copies)
{
	u32 count = 0;

	for (; mask && *copies; mask &= mask - 1) {
		struct folio_copy *copy = *copies;

		if (!(folio_state_pending(state, slot) >> copy->index & 1)) {
			copies = &copy->next;		/* the back end or another has been faster */
			continue;
		}
		*copies = copy->next;
		copy->next = state->copies;
		state->copies = copy;
		state->copied |= BIT_ULL(copy->index);
		count++;
	}
	if (count)
		count_add(state->node->core.vol, TUX3_COUNT_PRIVATE_COPIES, count);
	return folio_state_pending(state, slot);
}

/* ---- changing a folio ---- */

static u32 count_spare(const struct folio_part *part)
{
	const struct folio_copy *copy;
	u32 count = 0;

	for (copy = part->spare; copy; copy = copy->next)
		count++;
	return count;
}

static int get_spare(struct tux3_node *node, struct folio_part *part, u32 need, gfp_t gfp)
{
	u32 have = count_spare(part);

	while (have < need) {
		struct folio_copy *copy = folio_copy_alloc(node, gfp);

		if (!copy)
			return -ENOMEM;
		copy->next = part->spare;
		part->spare = copy;
		have++;
	}
	return 0;
}

static int attach_unlocked(struct tux3_node *node, struct folio *folio, gfp_t gfp)
{
	int err;

	if (gfpflags_allow_blocking(gfp))
		folio_lock(folio);
	else if (!folio_trylock(folio))
		return -EAGAIN;
	err = state_attach(node, folio, gfp);
	folio_unlock(folio);
	return err;
}

int folio_change_prepare(struct tux3_node *node, struct folio_part *part, bool locked, gfp_t gfp)
{
	struct folio *folio = part->folio;
	struct folio_state *state;
	u64 wait = 0;
	u32 need = 0;
	int err;

	for (;;) {
		spin_lock(&node->data_lock);
		state = folio_get_private(folio);
		if (state) {
			wait = folio_test_writeback(folio) ? part->mask & state->sent : 0;
			need = hweight64(part->mask & folio_state_pending(state, !node_front_slot(node)));
		}
		spin_unlock(&node->data_lock);
		part->state = state;
		if (unlikely(!state)) {
			err = locked ? state_attach(node, folio, gfp) : attach_unlocked(node, folio, gfp);
			if (err)
				return err;
		} else if (unlikely(wait)) {
			if (locked || !gfpflags_allow_blocking(gfp))
				return -EAGAIN;
			count_add(node->core.vol, TUX3_COUNT_WRITE_WAITS, hweight64(wait));
			if (folio_wait_writeback_killable(folio))
				return -EINTR;
		} else {
			return need ? get_spare(node, part, need, gfp) : 0;
		}
	}
}

void folio_change_cancel(struct folio_part *part)
{
	folio_copies_free(part->spare);
	part->spare = NULL;
}

/* May the blocks of this part be changed now?  back: the slot of the back delta. */
static bool part_ready(const struct folio_part *part, unsigned int back)
{
	struct folio_state *state = part->state;
	u64 need;

	if (!state || unlikely(folio_get_private(part->folio) != state))
		return false;		/* released: perhaps freed */
	if (unlikely(part->mask & state->sent && folio_test_writeback(part->folio)))
		return false;
	need = part->mask & folio_state_pending(state, back);
	return likely(!need) || hweight64(need) <= count_spare(part);
}

/*
 * Takes data_lock when everything may be changed, with what the back end needs copied: 0; or -EAGAIN, without it.
 *
 * Copies are made without the lock, for they may be many.  What is copied does not change meanwhile, if the block is
 * found pending afterwards: who changes it, a page fault perhaps, makes a copy first, and the back end, who takes it
 * as it is, says so; after either it is not pending any more, and never again in this delta.  Then our copy, which
 * may be of anything, stays with the spare ones.  (A store through a mapping that is writable already may go into
 * the copy or not, like any until the back end takes the page.)
 */
static int parts_lock(struct tux3_node *node, struct folio_part *parts, u32 count, unsigned int back)
{
	u64 need;
	u32 i;

	for (i = 0; i < count; i++)
		parts[i].made = 0;
	for (;;) {
		need = 0;
		spin_lock(&node->data_lock);
		for (i = 0; i < count; i++) {
			if (unlikely(!part_ready(&parts[i], back))) {
				spin_unlock(&node->data_lock);
				return -EAGAIN;
			}
			parts[i].need = parts[i].mask & folio_state_pending(parts[i].state, back) & ~parts[i].made;
			need |= parts[i].need;
		}
		if (likely(!need))
			return 0;
		spin_unlock(&node->data_lock);
		for (i = 0; i < count; i++) {
			if (WARN_ON_ONCE(parts[i].need && parts[i].made))
				return -EAGAIN;
			folio_copies_fill(node, parts[i].folio, parts[i].need, parts[i].spare);
			parts[i].made |= parts[i].need;
		}
	}
}

/* Returns how many blocks were not dirty before. */
static u32 part_mark(struct tux3_node *node, struct folio_part *part, unsigned int slot)
{
	struct folio_state *state = part->state;
	u64 fresh = part->mask & ~state->dirty[slot];

	state->stray &= ~part->mask;
	if (!fresh)
		return 0;
	if (list_empty(&state->link[slot])) {
		if (!folio_state_busy(state)) {
			state->folio = part->folio;	/* a clean folio may have been migrated */
			folio_get(part->folio);
		}
		list_add_tail(&state->link[slot], &node->dirty[slot]);
	}
	state->dirty[slot] |= fresh;
	return hweight64(fresh);
}

int folio_change_begin(struct delta_op *op, struct tux3_node *node, struct folio_part *parts, u32 count, bool stored)
{
	unsigned int slot = op->delta & 1;
	u32 newly = 0, i;

	if (unlikely(parts_lock(node, parts, count, !slot)))
		return -EAGAIN;
	for (i = 0; i < count; i++) {
		folio_copies_install(parts[i].state, !slot, parts[i].made, &parts[i].spare);
		newly += part_mark(node, &parts[i], slot);
	}
	node->dirty_blocks[slot] += newly;
	spin_unlock(&node->data_lock);
	if (newly) {		/* else whoever made them dirty has told */
		if (stored)
			data_stored(op, &node->core);
		else
			data_dirty(op, &node->core);
		delta_add_dirty_bytes(op, (u64)newly << op->vol->block_shift);
	}
	return newly;
}

void folio_change_end(struct tux3_node *node, struct folio_part *parts, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		if (!folio_test_dirty(parts[i].folio))
			filemap_dirty_folio(node->vfs.i_mapping, parts[i].folio);
}

int folio_keep_old(struct delta_op *op, struct tux3_node *node, struct folio_part *part)
{
	unsigned int back = ~op->delta & 1;

	if (parts_lock(node, part, 1, back))
		return -EAGAIN;
	folio_copies_install(part->state, back, part->made, &part->spare);
	spin_unlock(&node->data_lock);
	return 0;
}

/* ---- forgetting ---- */

static u32 state_forget(struct tux3_node *node, struct folio_state *state, unsigned int slot, u64 from, u64 end)
{
	u64 gone = state->dirty[slot] & state_range(state, from, end);

	state->dirty[slot] &= ~gone;
	node->dirty_blocks[slot] -= hweight64(gone);
	return hweight64(gone);
}

/* To the end of the file: by the list of what is dirty.  false: it is long, and not all of it was looked at. */
static bool forget_listed(struct tux3_node *node, unsigned int slot, u64 from, u64 *gone)
{
	struct folio_state *state;
	u32 looked = 0;

	spin_lock(&node->data_lock);
	list_for_each_entry(state, &node->dirty[slot], link[slot]) {
		if (++looked > FEW_DIRTY)
			break;
		*gone += state_forget(node, state, slot, from, DATA_END);
	}
	spin_unlock(&node->data_lock);
	count_add(node->core.vol, TUX3_COUNT_DIRTY_LOOKS, looked);
	return looked <= FEW_DIRTY;
}

/* A range: by the page cache, for the list may be long.  What is not in that any more has nothing dirty in the front delta. */
static u64 forget_range(struct tux3_node *node, unsigned int slot, u64 from, u64 end)
{
	u32 shift = node->core.vol->block_shift - PAGE_SHIFT, looked = 0, i;
	pgoff_t index = from << shift, last = ((end - 1) << shift) | ((1UL << shift) - 1);
	struct folio_batch batch;
	u64 gone = 0;

	folio_batch_init(&batch);
	while (filemap_get_folios(node->vfs.i_mapping, &index, last, &batch)) {
		spin_lock(&node->data_lock);
		for (i = 0; i < folio_batch_count(&batch); i++) {
			struct folio_state *state = folio_get_private(batch.folios[i]);

			if (state)
				gone += state_forget(node, state, slot, from, end);
		}
		spin_unlock(&node->data_lock);
		looked += folio_batch_count(&batch);
		folio_batch_release(&batch);
	}
	count_add(node->core.vol, TUX3_COUNT_DIRTY_LOOKS, looked);
	return gone;
}

void folio_forget_dirty(struct delta_op *op, struct tux3_node *node, u64 from, u64 count)
{
	unsigned int slot = op->delta & 1;
	u64 gone = 0;

	if (!count || !READ_ONCE(node->dirty_blocks[slot]))
		return;
	if (count < DATA_END - from || !forget_listed(node, slot, from, &gone))
		gone += forget_range(node, slot, from, count < DATA_END - from ? from + count : DATA_END);
	if (gone)
		delta_add_dirty_bytes(op, -(gone << op->vol->block_shift));
}

/* ---- what is dirty ---- */

u64 folio_dirty_mask(struct tux3_node *node, struct folio *folio, unsigned int slot)
{
	struct folio_state *state;
	u64 mask;

	spin_lock(&node->data_lock);
	state = folio_get_private(folio);
	mask = state ? state->dirty[slot] : 0;
	spin_unlock(&node->data_lock);
	return mask;
}

u64 folio_dirty_blocks(struct tux3_node *node)
{
	return READ_ONCE(node->dirty_blocks[0]) + READ_ONCE(node->dirty_blocks[1]);
}

/* ---- address space operations ---- */

/*
 * The folio leaves the page cache, or a part of it gets zeroed.  What the back delta has there it keeps: parts that
 * get zeroed were copied by folio_keep_old(), and for the whole folio the state goes on, detached.  The front delta's
 * bits are dropped: a truncate has taken them back itself, and others (memory that failed, with nothing to take its
 * place: regain.c) cannot have them written.
 *
 * The front delta may end at this very moment.  Its list is ours all the same while data_lock is held and the back
 * end has not begun with it (node->sorted).  If the back end has begun with a list, it is the other one, and no
 * transition can come until it is done.
 */
void folio_state_invalidate(struct folio *folio, size_t offset, size_t length)
{
	struct folio_state *state = folio_get_private(folio);
	struct tux3_node *node;
	bool was_busy, busy;
	unsigned int front;

	if (!state || offset || length != folio_size(folio))
		return;
	node = state->node;
	spin_lock(&node->data_lock);
	front = node_front_slot(node);
	was_busy = folio_state_busy(state);
	state_forget(node, state, front, 0, DATA_END);
	list_del_init(&state->link[front]);
	busy = folio_state_busy(state);
	state->detached = true;
	folio_detach_private(folio);
	spin_unlock(&node->data_lock);
	if (busy)
		return;
	if (was_busy)
		folio_put(folio);
	folio_state_free(state);
}

bool folio_state_release(struct folio *folio, gfp_t gfp)
{
	struct folio_state *state = folio_get_private(folio);
	struct tux3_node *node;
	bool busy;

	if (!state)
		return true;
	node = state->node;
	spin_lock(&node->data_lock);
	busy = folio_state_busy(state) || state->stray || folio_test_dirty(folio) || folio_test_writeback(folio);
	if (!busy)
		folio_detach_private(folio);
	spin_unlock(&node->data_lock);
	if (!busy)
		folio_state_free(state);
	return !busy;
}

/*
 * Dirtied by others than folio_change_end(): page tables that are taken down, whose stores page_mkwrite has
 * announced; or devices and debuggers that have written to the page, announced too, but perhaps taken by the back end since:
 * it leaves a folio PG_dirty that it has taken a snapshot of, or that the front delta has changed, too.  What is dirty in the front
 * delta will be taken, whatever happened to it in the back one.  If stores may come unannounced (NODE_UNTOLD), any block that the
 * back end will not take as it is now may have got one.
 */
static bool file_dirty_folio(struct address_space *mapping, struct folio *folio)
{
	struct tux3_node *node = node_of(mapping->host);
	bool untold = unlikely(test_bit(NODE_UNTOLD, &node->flags));
	struct folio_state *state;
	unsigned int front;
	u64 told;

	inode_note_all(&node->core);
	if (folio_test_dirty(folio) && !READ_ONCE(node->sorted) && !untold)
		return false;
	spin_lock(&node->data_lock);
	state = folio_get_private(folio);
	front = node_front_slot(node);
	told = state ? state->dirty[front] | folio_state_pending(state, !front) : 0;
	if (!told || untold) {
		if (state)
			state->stray |= folio_mask(0, state->blocks) & ~told;
		set_bit(NODE_STRAYS, &node->flags);
	}
	spin_unlock(&node->data_lock);
	return filemap_dirty_folio(mapping, folio);
}

const struct address_space_operations file_aops = {
	.read_folio = file_read_folio,
	.readahead = file_readahead,
	.writepages = file_writepages,
	.dirty_folio = file_dirty_folio,
	.invalidate_folio = folio_state_invalidate,
	.release_folio = folio_state_release,
	.migrate_folio = filemap_migrate_folio,		/* of clean ones: a busy state's reference stops it */
	.error_remove_folio = file_memory_failed,
	.swap_activate = file_swap_activate,
	.swap_deactivate = file_swap_deactivate,
};
