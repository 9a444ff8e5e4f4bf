/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing the log (log_write.c), the effect of its records on the tree (apply.c), and reading it
 * back (replay.c).
 */
#ifndef TUX3_LOG_H
#define TUX3_LOG_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/space/balloc.h"
#include "core/device/device.h"

struct volume;
struct tree_key;

#define LOG_BYTES_MAX		(32u << 20)	/* writers wait when the log is longer */
#define LOG_SKIP		(1u << 30)	/* more than the log ever has blocks */
#define LOG_EXTENT_BLOCKS 1024u	/* blocks in one EXTENT_MAP record */

struct log_chunk;		/* log_write.c: a piece of the record stream, one block's payload */

struct log {
	u64 next_addr;		/* where the next log block goes; busy in balloc */
	u64 after_addr;		/* where the one behind it goes, likewise; 0: not chosen yet, after a mount with a detour */
	u64 next_seq;
	u32 skip;		/* numbers that nobody gets after the next commit: blocks behind the end may have them */
	struct range_list blocks;	/* log blocks since the snapshot that the next anchor will stand for */
	struct range_list old_blocks;	/* those before: free when that anchor is durable */
	u64 length;		/* blocks in both */
	struct range_list freed;	/* data blocks freed by the delta being committed */
	bool replaying;		/* records come from the disk: their blocks are not allocated yet */
	bool unconfirmed;	/* the last commit has records, and nothing was written after its flush */
	u64 commit_ns;		/* ktime_get_ns() when it was written */
	bool must_write;	/* the next commit is written even without records: it overwrites a torn one,
				   or names groups that replay touched */
	bool after_snapshot;	/* a snapshot was taken since the last commit */
	s64 blocks_delta;	/* data blocks that records applied so far gave to (or took from) an inode */

	/* The stream of the commit being built; commit_mutex. */
	struct list_head chunks;
	struct list_head buffers;	/* struct log_buffer */
	u32 chunk_count;
	u64 bytes;		/* of records */
	u32 records;
	u32 crc;
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

/*
 * Apply one record to the tree; the same code for commit and replay.  Checks every field against
 * the record's length and the volume: -EIO with a message for nonsense.
 */
int apply_record(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len);

/* Call fn for each group that a GROUP_TOUCHED record names, until it returns an error. */
int log_for_groups(const void *payload, u32 len, int (*fn)(void *ctx, u64 group), void *ctx);

/* At open, with the tree of the anchor set up.  Takes the state to the last complete commit. */
int replay_log(struct volume *vol, char *why, size_t why_size);
/*
 * Walk the log from the anchor on, without changing anything: for tux3 show.  Each complete commit in
 * order; payload is its record stream.  torn: the last one, whose records or data are not complete.
 */
struct log_commit {
	const struct disk_log *first;	/* header of its first block */
	const struct disk_commit *commit;
	const void *records;
	const u64 *blocks;		/* addresses of its log blocks */
	u32 block_count;
	bool torn;
};
typedef int (*log_commit_fn)(void *ctx, const struct log_commit *commit);
int log_walk(struct volume *vol, log_commit_fn fn, void *ctx);
/* balloc_note_in_log() for all groups that the log names, which is not replayed. */
int log_note_groups(struct volume *vol);

/* One record after another: *at is the offset, 0 at first.  1: *record is valid, 0: end, -EIO. */
int log_next_record(const void *records, u32 bytes, u32 *at, const struct disk_record **record);

#endif
