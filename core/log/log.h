/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing the log (log_write.c).  What its records do to the tree: apply.h; reading it back: log_read.h, replay.h.
 */
#ifndef TUX3_LOG_H
#define TUX3_LOG_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/blocks/balloc.h"
#include "core/device/device.h"

struct volume;
struct tree_key;

#define LOG_BYTES_MAX		(32u << 20)	/* writers wait when the log is longer */
#define LOG_SKIP		(1u << 21)	/* more than the log ever has blocks */
#define LOG_SKIP_CUT		(1u << 26)	/* more than it ever has with what mounts have skipped */
#define LOG_LATER_MAX		(1ULL << 33)	/* a block whose number is higher by more is not of this log: skip has 32 bits */
#define LOG_MERGE_BYTES	round_up(sizeof(struct disk_record) + sizeof(struct record_merge), 8)
#define LOG_EXTENT_BLOCKS 1024u	/* blocks in one EXTENT_MAP record */

struct log_chunk;		/* log_write.c: a piece of the record stream, one block's payload */

struct log {
	u64 next_addr;		/* where the next log block goes; busy in balloc */
	u64 after_addr;		/* where the one behind it goes, likewise; 0: not chosen yet, after a mount with a detour */
	u64 next_seq;
	u64 skip;		/* numbers that nobody gets after the next commit: blocks behind the end may have them */
	struct range_list blocks;	/* log blocks since the snapshot that the next anchor will stand for */
	struct range_list old_blocks;	/* those before: free when that anchor is durable */
	u64 length;		/* blocks in both */
	struct range_list freed;	/* data blocks freed by the delta being committed */
	bool moving;		/* blocks that extents lose now are mapped again before the commit is over: remaps */
	bool moved;		/* the commit being built has such */
	bool replaying;		/* records come from the disk: their blocks are not allocated yet */
	bool unconfirmed;	/* the last commit has records, and nothing was written after its flush */
	u64 commit_ns;		/* ktime_get_ns() when it was written */
	bool must_write;	/* the next commit is written even without records: it overwrites a torn one,
				   or names groups that replay touched */
	bool after_snapshot;	/* a snapshot was taken since the last commit */
	struct disk_intent_place intent;	/* for the header of the commit being written; after replay, from the newest one */
	u64 deleted;		/* the inode that a record deleted last, if it has got no name since; else 0 */
	bool odd;		/* items were met that no volume can have, which was told */
	s64 blocks_delta;	/* data blocks that records applied so far gave to (or took from) an inode */

	/* The stream of the commit being built; commit_mutex. */
	struct list_head chunks;
	struct list_head buffers;	/* struct log_buffer */
	u32 chunk_count;
	u64 bytes;		/* of records */
	u32 records;
	u32 merges;		/* of these, records of merges: LOG_MERGE_BYTES each */
	u32 inlined;		/* files whose block 0 went into it and into the tree, instead of among the data ... */
	u64 inlined_bytes;	/* ... and what they have */
	u32 crc;
	u32 shift[8][16];	/* what 4 bits of a checksum become when a payload of zeros follows; constant */
	void *record;		/* one record put together, log_record_max() bytes */
	struct record_extent *extent;	/* for data_commit.c, with room for LOG_EXTENT_BLOCKS checksums */
	void *item[2];		/* apply.c: two items being edited, TUX3_ITEM_MAX bytes each */
};

int log_init(struct volume *vol);
void log_exit(struct volume *vol);

/*
 * Log one record and apply it to the tree (between tree_edit_begin and _end).  payload is the record
 * struct, tail what follows its fixed part.  0 or -errno: then the commit must be aborted.
 */
int log_record(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len,
	       const void *tail, u32 tail_len);
/* The same, with the path to key brought into the cache first and the edit lock taken for it. */
int log_record_at(struct volume *vol, const struct tree_key *key, enum tux3_record_type type,
		  const void *payload, u32 len, const void *tail, u32 tail_len);
/* A commit: begin, log_record()s, write (submits its blocks; wait: the caller's, also used for data), end (after I/O). */
void log_begin_commit(struct volume *vol);
int log_write_commit(struct volume *vol, u64 delta, u32 flags, struct io_wait *wait);
void log_end_commit(struct volume *vol);
/* Zeroed memory that lives until log_end_commit: for what is written with the commit. */
void *log_commit_buffer(struct volume *vol, u32 size);

#endif
