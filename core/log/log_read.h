/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading the log: the chain of its blocks, the commits in it, and their records one after the other (log_read.c); and
 * what its end means (log_end.c).
 *
 * Nothing here holds more than a little of each commit in memory, and the blocks that were read ahead.
 */
#ifndef TUX3_LOG_READ_H
#define TUX3_LOG_READ_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/blocks/balloc.h"

struct volume;

#define LOG_NEAR_BYTES		(1u << 20)	/* behind its end later blocks of the log are looked for */
#define LOG_AHEAD_BYTES		(LOG_NEAR_BYTES + (64u << 10))	/* read at once: that, and a short log */
#define LOG_RECORD_BYTES_MAX	(64u << 10)	/* no record is longer, in volumes of any block size */

/* Is it a block of this volume's log, for this place, and not damaged?  seq: with this number; U64_MAX: any. */
bool log_block_whole(struct volume *vol, const struct disk_log *block, u64 addr, u64 seq);

/* Where the chain goes on: the block with sequence number seq is at after, if that holds it, else at addr. */
struct log_place {
	u64 addr, after, seq;
};

struct log_reader {
	struct volume *vol;
	struct {
		u8 *data;
		u64 addr;
		u32 count;
	} ahead[2];		/* of LOG_AHEAD_BYTES: the log's stretch of the volume, and another one that after leads to */
	u32 ahead_max, last;
	u64 read, used;		/* so many blocks so far, and so many of the log found among them */
	u64 end;		/* nothing from this block on is read ahead: of no interest */
};

int log_reader_init(struct log_reader *reader, struct volume *vol);
void log_reader_exit(struct log_reader *reader);
/*
 * The block at addr, if it is a whole log block of this volume (seq: with this number; U64_MAX: any).  NULL: it is not, or
 * *err: it cannot be read.  Valid until the next call.
 */
const struct disk_log *log_reader_block(struct log_reader *reader, u64 addr, u64 seq, int *err);
/*
 * The block at this place, and *at, its address; place is moved on to the next.  NULL: the chain ends here, or *err: it
 * cannot be read, or nothing can be there.
 */
const struct disk_log *log_reader_follow(struct log_reader *reader, struct log_place *place, u64 *at, int *err);

/* One complete commit, as the first pass finds it. */
struct log_found {
	struct log_place place;		/* from where its first block was found */
	u64 addr;			/* of that */
	u64 delta;
	u32 blocks;
	bool damaged;			/* its records do not match their checksum */
	bool torn;			/* the last one: not all of its data is there, it does not count */
	struct disk_commit head;
};

struct log_chain {
	struct log_reader reader;
	struct log_found *commits;
	u32 count, capacity;
	struct log_place end;		/* where the next commit would begin */
	struct log_place stop;		/* the block that was not there; not that of end within a commit that is cut off */
	int stop_err;			/* it could not be read */
	bool stop_torn;			/* it is a log block with that number, but not whole */
	bool goes_on;			/* though the block at stop is not there, later ones are */
	u64 latest;			/* number of the latest of them; stop's, if none */
	char why[300];			/* a sentence, where log_end_judge() refuses the log */
};

/* First pass: find all complete commits, and what is behind them.  -ENOMEM, -EIO. */
int log_chain_read(struct log_chain *chain, struct volume *vol);
void log_chain_exit(struct log_chain *chain);

/* The records of a commit, in order. */
struct log_stream {
	struct log_reader *reader;	/* nobody else uses it meanwhile */
	const struct log_found *commit;
	struct log_place place;
	const struct disk_log *block;
	u32 at;				/* byte of its payload */
	u32 blocks_left, bytes_left;
	u32 crc;
	struct disk_record *record;	/* LOG_RECORD_BYTES_MAX */
	int (*block_fn)(void *ctx, u64 addr);	/* told of each block of the commit, if not NULL */
	void *ctx;
};

int log_stream_open(struct log_stream *stream, struct log_reader *reader, const struct log_found *commit);
void log_stream_close(struct log_stream *stream);
/* 1: *record is valid until the next call; 0: that was the last; -EIO. */
int log_stream_next(struct log_stream *stream, struct disk_record **record);

/*
 * log_end.c: judge how the chain ends.  Says what was found, in messages; marks the last commit torn if it does not count.
 * *must_write: there is something behind the end that must be overwritten first.  -EIO: the log was damaged.
 */
int log_end_judge(struct log_chain *chain, bool *must_write);

#endif
