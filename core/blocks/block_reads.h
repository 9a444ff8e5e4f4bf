/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reads of file data past the host's cache, straight into memory that others look at.
 *
 * A block that data_map() tells of may be freed at any time, and hold somebody else's data when the device reads it.  Who
 * reads into a cache finds out by its checksum before anybody sees it.  Where that is too late a read is *counted*, from before
 * data_map() until the device is done, and no block is given back for use before those reads are over that began before the
 * commit that freed it:
 *
 *	in use --freed--> log.freed --turn--> kept --the reads before the turn are over--> free
 *
 * Counting is done as in the delta machine (delta.h): each CPU counts, by slot, who began and who ended.  A turn lets those who
 * come use the other slot; there is none while anybody is left in that.
 *
 * Who knows the blocks says so (block_read_start()), and counts no more: from then on it keeps these, and no others.  For a read
 * may take as long as a limit of I/O (a cgroup's) makes it, and there may always be some: then all that is freed meanwhile would be
 * missed.  So when the lookups are over,
 *
 *	kept --of a read that is under way--> busy --it is over--> free
 *
 * Commits do not wait for reads, but where the blocks are missed.  On the disk, and for df, they are free from the start.
 */
#ifndef TUX3_BLOCK_READS_H
#define TUX3_BLOCK_READS_H

#include "core/env.h"
#include "core/blocks/balloc.h"

struct volume;

struct block_reads_cpu {
	atomic64_t began[2], ended[2];	/* only rise */
	spinlock_t lock;		/* inside all others; interrupts take it */
	struct list_head reading;	/* lock: struct block_read.link */
	u32 count;			/* lock: of them */
};

/* A read that is under way. */
struct block_read {
	struct list_head link;
	struct block_reads_cpu *cpu;	/* whose list it is on */
	u64 addr;
	u32 count;
};

struct block_reads {
	struct block_reads_cpu __percpu *cpu;
	unsigned int slot;		/* of those that begin now; written with commit_mutex */
	struct range_list kept;		/* commit_mutex: for those of the other slot */
	struct range_list busy;		/* commit_mutex: for reads that are under way; in order */
	bool keeps;			/* is there anything in these?  Written with commit_mutex; true before there is */
	bool overdue;			/* commit_mutex: they were waited for long enough */
	atomic_t awaited;		/* somebody waits for them */
	wait_queue_head_t queue;
};

int block_reads_init(struct block_reads *reads);	/* -ENOMEM */
void block_reads_exit(struct block_reads *reads);

/*
 * Until block_reads_end(), with what this returns, no block is used again that data_map() tells of in between.  In between nothing
 * may be waited for that may wait for a commit: memory is asked for before, or with GFP_NOFS, and no user memory is touched.
 */
unsigned int block_reads_begin(struct volume *vol);
void block_reads_end(struct volume *vol, unsigned int slot);	/* any context, any CPU */
/* As block_reads_end(), but read->count blocks from read->addr on are kept until block_read_over(). */
void block_read_start(struct volume *vol, unsigned int slot, struct block_read *read);
void block_read_over(struct volume *vol, struct block_read *read);	/* any context, any CPU */

/* A commit, when what it has freed is no longer told of: it can be used again, or is kept.  An error stops the volume. */
int block_reads_release(struct volume *vol);
/* Does anything wait for reads?  It is free, and nobody is told when it can be used. */
bool block_reads_keep(struct volume *vol);
/* commit_mutex held, for want of space: what is kept comes back soon, or after some reads that take too long. */
int block_reads_settle(struct volume *vol);

#endif
