// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory that fails takes along what was stored to it since the last commit.  An fsync may have made a part of that durable ahead
 * of its delta (core/intent/intent.h); but when the delta is committed its intents do not count any more.  So a dirty block gets
 * other memory, in the same place of the page cache and of the same deltas, with the newest contents that are anywhere else: what
 * the intents of the front delta say; else what the back end has taken of it; else what older intents say, or the tree.  What was
 * durable is there after the failure, as it would be where an fsync writes to the file's own blocks; and nothing else is found in
 * between, by a reader, by who writes a part of the block, by a commit, or after a crash.
 *
 * An intent may be older than a truncate that took the block away, and than the block that is there now: what it said of the one
 * before is no promise any more.  A block that is removed loses its state.  So what counts is not older than the state.
 *
 * The folio is locked meanwhile.  So a commit that has yet to take it waits, and what was promised is not superseded while we read.
 * Who copies into the folio at this very moment (write(2), which has no lock of it) copies into memory that has failed.
 *
 * A large folio does not come here while it is dirty: the kernel splits it before, which a dirty one does not let it do.
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include "core/intent/intent.h"
#include "linux/folio.h"

/* More than that a state does not change while its folio is locked. */
#define REGAIN_TRIES	8u

/* What decides which contents are the newest. */
struct regain_view {
	u64 front;
	bool dirty[2];		/* in the back delta, in the front one */
	bool taken;		/* by the back end */
};

/* data_lock held. */
static struct regain_view view_of(struct tux3_node *node, const struct folio_state *state)
{
	u64 front = READ_ONCE(node->core.vol->delta.front);

	return (struct regain_view){
		.front = front,
		.dirty = { state->dirty[~front & 1], state->dirty[front & 1] },
		.taken = state->dirty[~front & 1] && !folio_state_pending(state, ~front & 1),
	};
}

static bool views_equal(const struct regain_view *a, const struct regain_view *b)
{
	return a->front == b->front && a->dirty[0] == b->dirty[0] && a->dirty[1] == b->dirty[1] && a->taken == b->taken;
}

/* What the back end has taken, if that is in memory of its own.  data_lock held. */
static bool copy_taken(const struct folio_state *state, void *data, u32 len)
{
	struct folio *folio = state->copies ? state->copies->data : state->snapshot;

	if (folio)
		memcpy(data, folio_address(folio), len);
	return folio;
}

/* 0: it has the contents now. */
static int regain_read(struct tux3_node *node, struct folio_state *state, const struct regain_view *view, struct folio *folio)
{
	bool pending = view->dirty[0] && !view->taken, copied = false;
	/* What a delta that is being committed has said is in the block that it takes, with what came later. */
	int got = intent_promised(&node->core, folio_block(node, folio), pending ? 0 : view->front, state->since,
				  folio_address(folio));

	if (got)
		return min(got, 0);
	if (view->taken) {
		spin_lock(&node->data_lock);
		copied = copy_taken(state, folio_address(folio), folio_size(folio));
		spin_unlock(&node->data_lock);
	}
	return copied ? 0 : folio_fill(node, folio, 0);
}

/* As it was when the contents were read?  Then the state is of both folios, until the new one is in the page cache. */
static bool state_share(struct tux3_node *node, struct folio_state *state, const struct regain_view *view, struct folio *folio)
{
	struct regain_view now;
	bool same;

	spin_lock(&node->data_lock);
	now = view_of(node, state);
	same = views_equal(&now, view);
	if (same)
		folio_attach_private(folio, state);
	spin_unlock(&node->data_lock);
	return same;
}

static void state_move(struct tux3_node *node, struct folio_state *state, struct folio *old, struct folio *folio)
{
	bool busy;

	spin_lock(&node->data_lock);
	folio_detach_private(old);
	busy = folio_state_busy(state);
	if (busy) {
		folio_get(folio);
		state->folio = folio;
	}
	spin_unlock(&node->data_lock);
	if (!busy)
		return;
	folio_put(old);
	filemap_dirty_folio(node->vfs.i_mapping, folio);
}

/* Both locked. */
static void folio_replace(struct tux3_node *node, struct folio_state *state, struct folio *old, struct folio *folio)
{
	folio_mark_uptodate(folio);
	folio_cancel_dirty(old);	/* the tag of the page cache stays */
	replace_page_cache_folio(old, folio);
	state_move(node, state, old, folio);
	inode_note_all(&node->core);
}

static int regain_into(struct tux3_node *node, struct folio *old, struct folio *folio)
{
	struct folio_state *state = folio_get_private(old);	/* it stays: it is busy, and the folio is locked */
	struct regain_view view;
	u32 tries;
	int err = -EAGAIN;

	for (tries = 0; tries < REGAIN_TRIES; tries++) {
		spin_lock(&node->data_lock);
		view = view_of(node, state);
		spin_unlock(&node->data_lock);
		if (!view.dirty[0] && !view.dirty[1])
			return -ESTALE;
		err = regain_read(node, state, &view, folio);
		if (err)
			return err;
		if (state_share(node, state, &view, folio)) {
			folio_replace(node, state, old, folio);
			return 0;
		}
	}
	return -EAGAIN;
}

/*
 * A locked folio that is in no page cache, but charged to a memory cgroup, and on a list of pages to reclaim.  The old one is not
 * any more, so that replace_page_cache_folio() would not charge ours (and Linux 7 would look for its list for ever).  What modules
 * may call charges only what gets into a page cache: so it does, for a moment, where no file ends.
 */
static struct folio *folio_charged(struct address_space *mapping, pgoff_t index)
{
	struct folio *folio = filemap_alloc_folio(mapping_gfp_mask(mapping), 0, NULL);
	int err;

	if (!folio)
		return NULL;
	err = filemap_add_folio(mapping, folio, ~index, mapping_gfp_mask(mapping));
	if (!err && generic_error_remove_folio(mapping, folio)) {
		folio_unlock(folio);
		err = -EIO;
	}
	if (err) {
		folio_put(folio);
		return NULL;
	}
	folio->index = index;
	return folio;
}

/* The folio is locked, and not mapped any more.  0: it has left the page cache, and another one is there for it. */
static int regain(struct tux3_node *node, struct folio *old)
{
	unsigned int nofs;
	struct folio *folio;
	int err = -ENOMEM;

	if (folio_test_large(old) || folio_mapped(old) || folio_test_writeback(old) || !folio_get_private(old))
		return -EINVAL;
	nofs = memalloc_nofs_save();
	folio = folio_charged(node->vfs.i_mapping, old->index);
	if (folio) {
		err = regain_into(node, old, folio);
		folio_unlock(folio);
		folio_put(folio);
	}
	memalloc_nofs_restore(nofs);
	return err;
}

int file_memory_failed(struct address_space *mapping, struct folio *folio)
{
	return regain(node_of(mapping->host), folio) ? generic_error_remove_folio(mapping, folio) : 0;
}
