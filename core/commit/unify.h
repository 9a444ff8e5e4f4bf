/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Unify: write the dirty tree nodes and free maps, then move the anchor, so that the log may start
 * afresh.  Commits go on meanwhile.
 *
 *	IDLE --unify_start: snapshot after a durable commit--> WRITING nodes and maps
 *	WRITING --all I/O completed--> WRITTEN
 *	WRITTEN --a flush (the next commit's, or our own), the anchor is submitted--> ANCHORING
 *	ANCHORING --completed--> ANCHORED --a flush--> IDLE (space released)
 *
 * It is what others call a checkpoint.  All of it runs in the back end (commit_mutex held); unify_poll() makes
 * whatever transition is possible without waiting.
 */
#ifndef TUX3_UNIFY_H
#define TUX3_UNIFY_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/device/device.h"
#include "core/blocks/balloc.h"

struct volume;

enum unify_phase { UNIFY_IDLE, UNIFY_WRITING, UNIFY_WRITTEN, UNIFY_ANCHORING, UNIFY_ANCHORED };

struct unify {
	enum unify_phase phase;
	u64 flushes_seen;		/* device flushes completed when the phase was entered */
	struct io_wait wait;
	struct list_head nodes;		/* node_buffer.lru_link, by address */
	struct list_head *next;		/* of these: the first that is not submitted yet; &nodes: all are */
	u64 node_count;
	atomic64_t pending;		/* the same, from the snapshot until the anchor is durable; else 0 */
	struct list_head maps;		/* struct map_write */
	struct range_list node_frees;	/* blocks that the present anchor still needs */
	struct disk_anchor anchor;	/* the one being made */
	unsigned int slot;		/* 0 or 1: its copies go to slot and slot + 2 */
	void *anchor_block[2];
	u64 flushes;			/* completed by the back end */
	u64 since_delta;		/* delta of the last snapshot */
	bool follows;			/* the commit being made is the last before a snapshot: it places the nodes */
};

void unify_init(struct volume *vol);
void unify_exit(struct volume *vol);
bool unify_wanted(struct volume *vol);		/* by log length, dirty nodes, groups to replay */
int unify_start(struct volume *vol);		/* phase must be IDLE */
int unify_poll(struct volume *vol);		/* 0 or error */
int unify_finish(struct volume *vol);		/* wait until IDLE */
/* Before anything else is written: the power failed before the newest anchor had its second copy.  It gets it, durably. */
int unify_complete_anchor(struct volume *vol);
/*
 * After a commit or a unify, with volume_options.verify: is everything as it is to be then, and was all that the commit looked
 * at?  If not, the volume stops.
 */
int unify_verify(struct volume *vol);
/* What an anchor counts, when it is read as when it is written: 0, or -EIO and a sentence. */
int unify_check_counts(const struct disk_anchor *anchor, char *why, size_t why_size);
/* The back end flushed the device: whatever had completed before is durable. */
void unify_flushed(struct volume *vol);

#endif
