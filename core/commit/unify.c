// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Unify: dirty tree nodes and free maps go to disk, the anchor moves, the log starts afresh.
 *
 * The state diagram is in unify.h; unify_step() makes each transition.  Free maps have fixed slots; dirty nodes get
 * their blocks before it starts (tree_place), of those promised to them when they became dirty.
 *
 * Invariants
 *  1. The snapshot is taken right after a commit became durable, so the log on disk holds all that
 *     it holds, and names every group whose free map it writes (GROUP_TOUCHED).  So after a crash
 *     half-way the next unify writes those groups again, and slots left behind here never count.
 *  2. The anchor is written only after everything it leads to is durable.
 *  3. Blocks that only the old anchor needs (node_frees, old log blocks) are released only when the
 *     new one is durable.
 *  4. An anchor is written twice, so that one bad block does not lose it; never over the newest durable one.
 *  5. What is written passes the checks that reading it will make.  If not, memory was damaged, or something here is
 *     wrong: the volume stops, and the anchor on the disk with the log behind it is whole.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/device/device.h"
#include "core/format/anchor.h"
#include "core/blocks/balloc.h"
#include "core/blocks/held.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/log/apply.h"
#include "core/delta/delta.h"
#include "core/delta/pace.h"
#include "core/delta/space.h"
#include "core/names/parent.h"
#include "core/data/data.h"
#include "core/commit/unify.h"
#include "core/intent/intent.h"

void unify_init(struct volume *vol)
{
	struct unify *unify = &vol->unify;

	INIT_LIST_HEAD(&unify->nodes);
	unify->next = &unify->nodes;
	INIT_LIST_HEAD(&unify->maps);
	range_list_init(&unify->node_frees);
	held_init(vol);
	unify->phase = UNIFY_IDLE;
	atomic64_set(&unify->pending, 0);
	unify->since_delta = le64_to_cpu(vol->anchor.delta);
}

void unify_exit(struct volume *vol)
{
	struct unify *unify = &vol->unify;

	if (unify->phase == UNIFY_WRITING || unify->phase == UNIFY_ANCHORING)
		io_wait_finish(&unify->wait);
	if (!list_empty(&unify->nodes))
		tree_snapshot_done(vol, &unify->nodes, false);
	balloc_snapshot_done(vol, &unify->maps, false);
	range_list_exit(&unify->node_frees);
	held_exit(vol);
	kvfree(unify->anchor_block[0]);
	kvfree(unify->anchor_block[1]);
	unify->anchor_block[0] = unify->anchor_block[1] = NULL;
	unify->phase = UNIFY_IDLE;
}

bool unify_wanted(struct volume *vol)
{
	/* A hint for those without commit_mutex. */
	return READ_ONCE(vol->log.length) >= vol->opts.log_blocks ||
	       READ_ONCE(vol->tree.dirty_count) >= vol->opts.dirty_nodes ||
	       delta_groups_are_many(vol, 2);
}

static void unify_fill_anchor(struct volume *vol)
{
	struct unify *unify = &vol->unify;
	struct disk_anchor *anchor = &unify->anchor;
	struct timespec64 now;

	ktime_get_real_ts64(&now);
	*anchor = vol->anchor;
	unify->slot = !(vol->anchor_slot & 1);	/* of the pair that the present anchor is not in */
	anchor->generation = cpu_to_le64(le64_to_cpu(vol->anchor.generation) + 1);
	anchor->delta = cpu_to_le64(vol->delta.committed);
	anchor->root_addr = cpu_to_le64(vol->tree.root_addr);
	anchor->root_birth = cpu_to_le64(vol->tree.root_birth);
	anchor->root_level = cpu_to_le32(vol->tree.root_level);
	anchor->log_addr = cpu_to_le64(vol->log.next_addr);
	anchor->log_after = cpu_to_le64(vol->log.after_addr);
	anchor->log_seq = cpu_to_le64(vol->log.next_seq);
	anchor->used_blocks = cpu_to_le64(atomic64_read(&vol->balloc.disk_used));
	anchor->data_blocks = cpu_to_le64(atomic64_read(&vol->balloc.data_used));
	anchor->unwritten_blocks = cpu_to_le64(vol->space.unwritten);
	anchor->inodes = cpu_to_le64(vol->tree_inodes);
	intent_get_named(vol, &anchor->intent);
	memcpy(anchor->label, vol->label, sizeof(anchor->label));
	anchor->written_ns = cpu_to_le64(now.tv_sec * 1000000000ULL + now.tv_nsec);
}

static int node_order(void *priv, const struct list_head *a, const struct list_head *b)
{
	u64 x = list_entry(a, struct node_buffer, lru_link)->addr;
	u64 y = list_entry(b, struct node_buffer, lru_link)->addr;

	return x < y ? -1 : x > y;
}

/*
 * Submit the next nodes, as many as may be in flight, runs of neighbours as one write.  -EIO: one is not as it must be; it is not
 * written.
 */
static int unify_write_nodes(struct volume *vol)
{
	struct unify *unify = &vol->unify;
	u64 max = pace_in_flight_max(vol) >> vol->block_shift, start = 0;
	struct kvec vec[32];
	u32 count = 0;

	for (; unify->next != &unify->nodes && max; unify->next = unify->next->next, max--) {
		struct node_buffer *node = list_entry(unify->next, struct node_buffer, lru_link);

		if (node_seal_checked(vol, node))
			return -EIO;
		if (count && (count == ARRAY_SIZE(vec) || node->addr != start + count)) {
			device_writev(vol->dev, start, vec, count, 0, &unify->wait);
			count = 0;
		}
		if (!count)
			start = node->addr;
		vec[count].iov_base = node->data;
		vec[count++].iov_len = vol->block_size;
	}
	if (count)
		device_writev(vol->dev, start, vec, count, 0, &unify->wait);
	return 0;
}

/* What may be in flight of them has been written. */
static int unify_write_more_nodes(struct volume *vol)
{
	struct blk_plug plug;
	int err;

	io_wait_init(&vol->unify.wait);
	blk_start_plug(&plug);
	err = unify_write_nodes(vol);
	device_kick(vol->dev);
	blk_finish_plug(&plug);
	return err;
}

/* Those that have their data. */
static void unify_write_maps(struct volume *vol)
{
	struct map_write *map;

	list_for_each_entry(map, &vol->unify.maps, link) {
		if (!map->data)
			continue;
		device_write(vol->dev, map->addr, map->data, 1, 0, &vol->unify.wait);
		count_add(vol, TUX3_COUNT_MAP_BLOCKS, 1);
	}
}

/* Of very many maps, the next part: 1; 0: all are written; -EIO. */
static int unify_write_more(struct volume *vol)
{
	struct blk_plug plug;
	int more = balloc_snapshot_more(vol, &vol->unify.maps);

	if (more <= 0)
		return more;
	io_wait_init(&vol->unify.wait);
	blk_start_plug(&plug);
	unify_write_maps(vol);
	device_kick(vol->dev);
	blk_finish_plug(&plug);
	return 1;
}

int unify_start(struct volume *vol)
{
	struct unify *unify = &vol->unify;
	struct blk_plug plug;
	unsigned int i;
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (WARN_ON_ONCE(unify->phase != UNIFY_IDLE))
		return -EBUSY;
	for (i = 0; i < 2; i++) {
		if (!unify->anchor_block[i])
			unify->anchor_block[i] = kvzalloc(vol->block_size, GFP_NOFS);
		if (!unify->anchor_block[i])
			return -ENOMEM;
	}
	err = balloc_snapshot(vol, vol->delta.committed, &unify->maps);
	if (err) {
		balloc_snapshot_done(vol, &unify->maps, false);
		if (err == -EIO)
			volume_abort(vol, err, "a free map is damaged in memory");
		return err;
	}
	tree_edit_begin(vol);
	tree_snapshot(vol, &unify->nodes, &unify->node_count);
	atomic64_set(&unify->pending, unify->node_count);
	apply_settle_counts(vol);
	unify_fill_anchor(vol);
	vol->log.after_snapshot = true;
	tree_edit_end(vol);
	range_list_move(&unify->node_frees, &vol->balloc.node_frees);
	held_snapshot(vol);
	range_list_move(&vol->log.old_blocks, &vol->log.blocks);
	unify->since_delta = vol->delta.committed;

	list_sort(NULL, &unify->nodes, node_order);
	unify->next = unify->nodes.next;
	io_wait_init(&unify->wait);
	blk_start_plug(&plug);
	err = unify_write_nodes(vol);
	if (!err)
		unify_write_maps(vol);
	device_kick(vol->dev);
	blk_finish_plug(&plug);
	count_add(vol, TUX3_COUNT_NODE_BLOCKS, unify->node_count);
	unify->phase = UNIFY_WRITING;
	trace_tux3_unify_begin(vol, unify->since_delta, unify->node_count, vol->log.length);
	if (err)	/* what was submitted is waited for by unify_exit() */
		volume_abort(vol, err, "a tree node is damaged in memory");
	return err;
}

int unify_check_counts(const struct disk_anchor *anchor, char *why, size_t why_size)
{
	if (le64_to_cpu(anchor->used_blocks) > le64_to_cpu(anchor->total_blocks))
		snprintf(why, why_size, "the anchor counts more blocks in use than there are");
	else if (le64_to_cpu(anchor->data_blocks) > le64_to_cpu(anchor->used_blocks))
		snprintf(why, why_size, "the anchor counts more data blocks than blocks in use");
	else if (le64_to_cpu(anchor->unwritten_blocks) > le64_to_cpu(anchor->data_blocks))
		snprintf(why, why_size, "the anchor counts more unwritten blocks than data blocks");
	else
		return 0;
	return -EIO;
}

static int unify_check_anchor(struct volume *vol, const struct disk_anchor *anchor, u64 offset)
{
	char why[160];
	int err = anchor_check(anchor, offset, why, sizeof(why)) ? -EIO : unify_check_counts(anchor, why, sizeof(why));

	if (!err && (!apply_blocks_valid(vol, le64_to_cpu(anchor->root_addr), 1) ||
		     !apply_blocks_valid(vol, le64_to_cpu(anchor->log_addr), 1))) {
		snprintf(why, sizeof(why), "it leads to block %llu or %llu, which is not one of the tree or of the log",
			 (unsigned long long)le64_to_cpu(anchor->root_addr),
			 (unsigned long long)le64_to_cpu(anchor->log_addr));
		err = -EIO;
	}
	if (err)
		volume_warn(vol, "the anchor for delta %llu is not as it must be: %s; it is not written",
			    (unsigned long long)le64_to_cpu(anchor->delta), why);
	return err;
}

/* Both copies, at the two ends of the volume. */
static int unify_write_anchor(struct volume *vol)
{
	struct unify *unify = &vol->unify;
	unsigned int i;
	int err = 0;

	io_wait_init(&unify->wait);
	for (i = 0; i < 2; i++) {
		u64 offset = anchor_slot_offset(vol->total_blocks << vol->block_shift, unify->slot + 2 * i);

		unify->anchor.slot_offset = cpu_to_le64(offset);
		anchor_seal(&unify->anchor);
		err = unify_check_anchor(vol, &unify->anchor, offset);
		if (err)
			break;
		memcpy(unify->anchor_block[i], &unify->anchor, sizeof(unify->anchor));
		device_write(vol->dev, offset >> vol->block_shift, unify->anchor_block[i], 1,
			     vol->dev->has_fua ? DEVICE_FUA : 0, &unify->wait);
		count_add(vol, TUX3_COUNT_ANCHOR_BLOCKS, 1);
	}
	device_kick(vol->dev);
	unify->phase = UNIFY_ANCHORING;
	return err;
}

/*
 * Else another power cut, of the anchor after the next, would leave the same place empty again, and what never was written and
 * what was lost look alike.  One that is damaged is left to fsck, which tells it.
 */
int unify_complete_anchor(struct volume *vol)
{
	u64 offset = anchor_slot_offset(vol->total_blocks << vol->block_shift, vol->anchor_slot ^ 2);
	u64 addr = offset >> vol->block_shift, generation = le64_to_cpu(vol->anchor.generation);
	void *block = kvmalloc(vol->block_size, GFP_KERNEL);
	char why[160];
	int err;

	if (!block)
		return -ENOMEM;
	err = device_read(vol->dev, addr, 1, block);
	if (!err)
		err = anchor_check_copy(block, offset, vol->id, generation, why, sizeof(why));
	kvfree(block);
	if (err != -ESTALE)
		return 0;
	err = anchor_write_copy(vol->dev, &vol->anchor, addr);
	if (!err)
		return device_flush(vol->dev);
	volume_warn(vol, "the second copy of the anchor, at block %llu, cannot be written (%s)", (unsigned long long)addr, error_text(err));
	return 0;
}

/* What each phase holds; the diagram is in unify.h. */
static int unify_verify_phase(struct volume *vol, char *why, size_t why_size)
{
	const struct unify *unify = &vol->unify;
	bool idle = unify->phase == UNIFY_IDLE, nodes = !list_empty(&unify->nodes);
	const char *what = NULL;

	if (idle && (nodes || !list_empty(&unify->maps) || unify->node_frees.count || vol->held.leaving.count ||
		     vol->log.old_blocks.count || atomic64_read(&unify->pending)))
		what = "it has something to write";
	else if (!idle && unify->phase != UNIFY_WRITING && nodes)
		what = "its nodes are not written";
	else if (!idle && le64_to_cpu(unify->anchor.generation) != le64_to_cpu(vol->anchor.generation) + 1)
		what = "its anchor does not follow the present one";
	else if (!idle && (unify->since_delta > vol->delta.committed ||
			   le64_to_cpu(unify->anchor.delta) != unify->since_delta))
		what = "its anchor is not of a durable delta";
	else if (!idle && (unify->slot & 1) == (vol->anchor_slot & 1))
		what = "its anchor is to overwrite the present one";
	else if (!idle && vol->balloc.writing != !list_empty(&unify->maps))
		what = "its maps are not those of the snapshot";
	if (what)
		snprintf(why, why_size, "unify is in phase %d, and %s", unify->phase, what);
	return what ? -EIO : 0;
}

int unify_verify(struct volume *vol)
{
	char why[300];
	int err;

	if (likely(!vol->opts.verify))
		return 0;
	if (volume_error(vol))
		return volume_error(vol);
	err = balloc_verify(vol, why, sizeof(why));
	if (!err)
		err = delta_verify(vol, why, sizeof(why));
	if (!err)
		err = parent_verify(vol, vol->delta.committed, why, sizeof(why));
	if (!err)
		err = unify_verify_phase(vol, why, sizeof(why));
	return err ? volume_inconsistent(vol, "%s", why) : 0;
}

/* The anchor is durable: what only its predecessor needed may be used again. */
static int unify_anchored(struct volume *vol)
{
	struct unify *unify = &vol->unify;
	int err, nodes_err;

	vol->anchor = unify->anchor;
	vol->anchor_slot = unify->slot;
	balloc_snapshot_done(vol, &unify->maps, true);
	WRITE_ONCE(vol->log.length, vol->log.length - vol->log.old_blocks.blocks);
	err = balloc_release(vol, &vol->log.old_blocks);
	nodes_err = balloc_release(vol, &unify->node_frees);
	if (!err)
		err = nodes_err;
	if (!err)
		err = held_anchored(vol);
	/* The maps of groups in which something is kept stay in memory. */
	if (unlikely(vol->held.kept.blocks) && delta_groups_are_many(vol, 2))
		held_end(vol);
	unify->phase = UNIFY_IDLE;
	atomic64_set(&unify->pending, 0);
	count_add(vol, TUX3_COUNT_UNIFIES, 1);
	space_settle(vol, 0);
	trace_tux3_unify_end(vol, unify->since_delta, err);
	return err;
}

static bool unify_durable(struct volume *vol)
{
	return vol->unify.flushes > vol->unify.flushes_seen || !vol->dev->volatile_cache;
}

/* Is the I/O of this phase over?  Its first error in *err.  wait: block until it is. */
static bool unify_io_over(struct volume *vol, bool wait, int *err)
{
	if (!wait)
		return io_wait_done(&vol->unify.wait, err);
	*err = io_wait_finish(&vol->unify.wait);
	return true;
}

/* One transition if it is possible now (or, with wait, once the I/O under way is over): 1, else 0; or -errno. */
static int unify_step(struct volume *vol, bool wait)
{
	struct unify *unify = &vol->unify;
	int err = 0;

	switch (unify->phase) {
	case UNIFY_IDLE:
		return 0;
	case UNIFY_WRITING:
		if (!unify_io_over(vol, wait, &err))
			return 0;
		if (!err && unify->next != &unify->nodes) {
			err = unify_write_more_nodes(vol);
			return err ? err : 1;
		}
		if (!list_empty(&unify->nodes)) {
			tree_edit_begin(vol);
			tree_snapshot_done(vol, &unify->nodes, !err);
			tree_edit_end(vol);
		}
		if (!err)
			err = unify_write_more(vol);
		if (err > 0)
			return 1;
		unify->phase = UNIFY_WRITTEN;
		unify->flushes_seen = unify->flushes;
		return err ? err : 1;
	case UNIFY_WRITTEN:
		if (!unify_durable(vol))
			return 0;
		err = unify_write_anchor(vol);
		return err ? err : 1;
	case UNIFY_ANCHORING:
		if (!unify_io_over(vol, wait, &err))
			return 0;
		unify->phase = UNIFY_ANCHORED;
		unify->flushes_seen = unify->flushes - !!vol->dev->has_fua;	/* FUA: durable as it is */
		return err ? err : 1;
	case UNIFY_ANCHORED:
		if (!unify_durable(vol))
			return 0;
		err = unify_anchored(vol);
		return err ? err : 1;
	}
	return 0;
}

static int unify_advance(struct volume *vol, bool wait)
{
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	do {
		err = volume_error(vol) ? volume_error(vol) : unify_step(vol, wait);
	} while (err > 0);
	if (err && !volume_error(vol))
		volume_abort(vol, err, "writing tree nodes, free maps or the anchor failed");
	if (err)
		trace_tux3_unify_end(vol, vol->unify.since_delta, err);
	return err;
}

int unify_poll(struct volume *vol)
{
	return unify_advance(vol, false);
}

void unify_flushed(struct volume *vol)
{
	lockdep_assert_held(&vol->delta.commit_mutex);
	vol->unify.flushes++;
}

int unify_finish(struct volume *vol)
{
	struct unify *unify = &vol->unify;
	int err;

	for (;;) {
		err = unify_advance(vol, true);
		if (err || unify->phase == UNIFY_IDLE)
			return err;
		err = device_flush(vol->dev);
		count_add(vol, TUX3_COUNT_FLUSHES, 1);
		if (err) {
			volume_abort(vol, err, "a flush failed");
			return err;
		}
		unify_flushed(vol);
	}
}
