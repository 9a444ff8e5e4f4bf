/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every number that a volume tells: one table, from which `tux3 stat`, /sys/fs/tux3/DEVICE and `tux3 help counters` come.
 * The core's counters (counters.h) follow it.
 *
 * Any thread may ask at any time: what is read without its lock is read once, as a hint.
 */
#ifndef TUX3_STATISTICS_TABLE_H
#define TUX3_STATISTICS_TABLE_H

#include "core/volume.h"

/*
 * Used is what is not free, as df has it: tree nodes that are not on the disk yet count, those that they take the place of do not.
 * balloc's disk_used is what the maps say, of the last unify.
 */
static inline u64 statistics_space(struct volume *vol, unsigned int which)
{
	u64 number[4];

	space_stat(vol, &number[0], &number[1], &number[2]);
	number[3] = number[0] - number[1];
	return number[which];
}

#define STATISTICS_FRONT(vol) (READ_ONCE((vol)->delta.front) & 1)

/*	X(name, u64 of struct volume *vol, unit, what it means) */
#define STATISTICS_OF_VOLUME(X) \
	X(block_size,		vol->block_size, "bytes", "of a block") \
	X(blocks,		statistics_space(vol, 0), "blocks", "of the volume") \
	X(free_blocks,		statistics_space(vol, 1), "blocks", "not in use") \
	X(available_blocks,	statistics_space(vol, 2), "blocks", "that can still be written") \
	X(used_blocks,		statistics_space(vol, 3), "blocks", \
	  "in use by fixed structures, tree and data") \
	X(inodes,		percpu_counter_sum(&vol->inodes), "inodes", "in use") \
	X(features_compat,	vol->feature_compat, "bits", "of compatible features: tux3 show features has their names") \
	X(features_ro_compat,	vol->feature_ro_compat, "bits", "of features that a program has to know to write") \
	X(features_incompat,	vol->feature_incompat, "bits", "of features that a program has to know to read") \
	X(front_delta,		READ_ONCE(vol->delta.front), "number", "of the delta that is open for changes") \
	X(committed_delta,	READ_ONCE(vol->delta.committed), "number", "of the newest durable delta") \
	X(dirty_bytes,		max_t(s64, delta_dirty_bytes_sum(&vol->delta, STATISTICS_FRONT(vol)), 0), "bytes", \
	  "of file data waiting in the front delta") \
	X(dirty_changes,	max_t(s64, delta_changes_sum(&vol->delta, STATISTICS_FRONT(vol)), 0), "changes", \
	  "of inodes and names waiting in the front delta") \
	X(device_bandwidth,	READ_ONCE(vol->pace.bandwidth), "bytes", \
	  "per second that commits were seen to write, 0 if not known yet") \
	X(delta_limit_bytes,	READ_ONCE(vol->pace.limit_bytes), "bytes", \
	  "at which the front delta makes writers wait") \
	X(log_length,		READ_ONCE(vol->log.length), "blocks", "of log that a mount would read") \
	X(anchor_delta,		le64_to_cpu(READ_ONCE(vol->anchor.delta)), "number", "of the delta that the anchor stands for") \
	X(anchor_generation,	le64_to_cpu(READ_ONCE(vol->anchor.generation)), "number", "of the anchor") \
	X(unify_phase,		READ_ONCE(vol->unify.phase), "number", \
	  "0 idle, 1 writing, 2 written, 3 anchoring, 4 anchored") \
	X(error,		-atomic_read(&vol->error), "errno", "that stopped the volume, 0 if all is well")

/* Of a volume that is mounted: what is in memory, and what was counted since it was opened. */
#define STATISTICS_COUNTED(X) \
	X(tree_height,		READ_ONCE(vol->tree.root_level) + 1, "levels", "of the tree") \
	X(dirty_nodes,		READ_ONCE(vol->tree.dirty_count), "nodes", "changed since the last unify") \
	X(node_splits,		atomic64_read(&vol->tree.splits), "nodes", "split") \
	X(node_merges,		atomic64_read(&vol->tree.merges), "nodes", "merged") \
	X(node_redirects,	atomic64_read(&vol->tree.redirects), "nodes", "moved to a new block") \
	X(tree_edits,		atomic64_read(&vol->tree.edits), "items", "set or deleted") \
	X(cache_bytes,		atomic64_read(&vol->cache.bytes), "bytes", "of tree nodes in memory") \
	X(cache_hits,		cache_hits(vol), "nodes", "asked for that were in memory") \
	X(cache_misses,		atomic64_read(&vol->cache.misses), "nodes", "read from the device") \
	X(names_cached,		percpu_counter_sum(&vol->names.entries), "names", "in memory") \
	X(groups_read,		atomic64_read(&vol->balloc.group_loads), "groups", "whose free map was read") \
	X(device_reads,		atomic64_read(&vol->dev->reads), "calls", "to read from the device") \
	X(device_read_bytes,	atomic64_read(&vol->dev->read_bytes), "bytes", "read from the device") \
	X(device_writes,	atomic64_read(&vol->dev->writes), "calls", "to write to the device") \
	X(device_write_bytes,	atomic64_read(&vol->dev->write_bytes), "bytes", "written to the device") \
	X(device_flushes,	atomic64_read(&vol->dev->flushes), "calls", "to flush the device")

#define STATISTICS_NUMBERS(X) STATISTICS_OF_VOLUME(X) STATISTICS_COUNTED(X)

#endif
