/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Everything a volume counts, since it was opened.  Shown by `tux3 stat`, /sys/fs/tux3 and tests.
 *	X(NAME, "name", "unit", "what")
 */
#ifndef TUX3_COUNTERS_H
#define TUX3_COUNTERS_H

#include "core/env.h"

#define TUX3_COUNTERS(X) \
	X(OPS,		  "ops",	    "operations",   "front-end operations entered") \
	X(ENTER_WAITS,	  "enter_waits",    "operations",   "of these, had to wait for space or for the back end") \
	X(ENOSPC,	  "enospc",	    "operations",   "refused for want of space") \
	X(EDQUOT,	  "edquot",	    "operations",   "refused for a quota") \
	X(ODD_ITEMS,	  "odd_items",	    "items",	    "that cannot be were met by commits, or blocks given back that were free: should be 0") \
	X(OVERDRAFTS,	  "overdrafts",	    "deltas",	    "took more blocks than they were charged for: should be 0") \
	X(DELTAS,	  "deltas",	    "deltas",	    "committed") \
	X(DELTAS_EMPTY,	  "deltas_empty",   "deltas",	    "had no net change and cost no write") \
	X(DATA_BLOCKS,	  "data_blocks",    "blocks",	    "file data and xattr values written") \
	X(EARLY_BLOCKS,	  "early_blocks",   "blocks",	    "file data that stayed where an fsync had written it") \
	X(LOG_BLOCKS,	  "log_blocks",	    "blocks",	    "log blocks written") \
	X(LOG_BYTES,	  "log_bytes",	    "bytes",	    "records logged") \
	X(RECORDS,	  "records",	    "records",	    "records logged") \
	X(FLUSHES,	  "flushes",	    "flushes",	    "flushes asked of the device") \
	X(UNIFIES,	  "unifies",	    "unifies",	    "anchors moved") \
	X(NODE_BLOCKS,	  "node_blocks",    "blocks",	    "tree nodes written by unify") \
	X(MAP_BLOCKS,	  "map_blocks",	    "blocks",	    "free-map slots written by unify") \
	X(ANCHOR_BLOCKS,  "anchor_blocks",  "blocks",	    "anchors written") \
	X(INODES_COMMITTED, "inodes_committed", "inodes",   "inodes whose changes a delta committed") \
	X(INODES_PUT_OFF, "inodes_put_off", "inodes",	    "only stored to through mappings, that an fsync of others left to the next delta") \
	X(INODES_LOST,	  "inodes_lost",    "inodes",	    "of which a delta could not commit something, since metadata cannot be read") \
	X(INODES_DELETED, "inodes_deleted", "inodes",	    "deleted from the tree") \
	X(INODES_VANISHED, "inodes_vanished", "inodes",	    "made and removed within a delta: no tree or log work") \
	X(NAMES_VANISHED, "names_vanished", "names",	    "added and removed within a delta: no tree or log work") \
	X(PRIVATE_COPIES, "private_copies", "blocks",	    "file blocks copied because the back delta still needed them") \
	X(SNAPSHOT_BLOCKS, "snapshot_blocks", "blocks",	    "memory that commits took for copies of what they write (module)") \
	X(CHECKSUMS_HELPED, "checksums_helped", "blocks",   "checksums of data that other CPUs than the back end's computed for a commit") \
	X(WRITE_WAITS,	  "write_waits",    "blocks",	    "file block changes that waited for I/O in flight") \
	X(DIRTY_LOOKS,	  "dirty_looks",    "pieces",	    "of cached data (folios; with libtux3 64 blocks) looked at to find what of a file is dirty") \
	X(READS_LOCKED,	  "reads_locked",   "reads",	    "of tree nodes and free maps, made while the tree was locked") \
	X(REPLAYED,	  "replayed",	    "deltas",	    "replayed at mount") \
	X(CSUM_ERRORS,	  "csum_errors",    "blocks",	    "data blocks read with a wrong checksum") \
	X(SCRUBBED_BLOCKS, "scrubbed_blocks", "blocks",	    "read by scrubs and verified") \
	X(SCRUB_PROBLEMS, "scrub_problems", "problems",	    "that scrubs found") \
	X(FSYNCS_AHEAD,	  "fsyncs_ahead",   "fsyncs",	    "made one file durable ahead of its delta, or names in a directory") \
	X(FSYNCS_NAMES,	  "fsyncs_names",   "fsyncs",	    "of these, with names that files lost, or got besides their first") \
	X(FSYNCS_DIRS,	  "fsyncs_dirs",    "directories",  "that were new, and went ahead with what was synced in them") \
	X(INTENT_BLOCKS,  "intent_blocks",  "blocks",	    "written for them") \
	X(INTENTS_RECOVERED, "intents_recovered", "inodes", "brought by them at mount to what no delta had yet") \
	X(COMMIT_NS,	  "commit_ns",	    "ns",	    "time from transition to durable, summed") \
	X(DRAIN_NS,	  "drain_ns",	    "ns",	    "of that, waiting for operations to leave") \
	X(DEVICE_NS,	  "device_ns",	    "ns",	    "of that, waiting for the device") \
	X(SEARCHED_GROUPS, "searched_groups", "groups",	    "looked at, of those known, to find one that has room") \
	X(SEARCHED_RUNS,  "searched_runs",  "runs",	    "of free blocks that searches for space passed") \
	X(DISCARDED,	  "discarded",	    "blocks",	    "free blocks that the device was told of (trim)")

enum tux3_counter {
#define X(NAME, name, unit, what) TUX3_COUNT_##NAME,
	TUX3_COUNTERS(X)
#undef X
	TUX3_COUNTER_COUNT
};

#endif
