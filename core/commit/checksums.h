/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Checksums of the data that a commit writes, by several CPUs.  The idea is told in checksums.c.
 */
#ifndef TUX3_CHECKSUMS_H
#define TUX3_CHECKSUMS_H

#include "core/env.h"

#define CHECKSUM_HELPERS	3u	/* CPUs besides that of the back end: so many read as fast as memory is */

struct volume;
struct checksum_piece;

struct checksum_helper {
	struct work_struct work;
	struct volume *vol;
};

struct checksums {
	struct workqueue_struct *queue;	/* NULL: the back end does all itself, each piece when it is added */
	struct checksum_helper helpers[CHECKSUM_HELPERS];
	u32 helper_count;		/* there may be so many */
	u32 block_size;
	struct checksum_piece *pieces;	/* [0, count) */
	u32 count;			/* commit_mutex; so are the next two */
	u32 helping;			/* helpers that were called */
	u32 unshared_blocks;		/* of the pieces from shared on */
	spinlock_t lock;		/* for the rest */
	u32 shared;			/* [0, shared) may be taken by helpers, and stay as they are until all are done */
	u32 next;			/* the first that nobody has taken */
	u32 done;			/* so many are computed */
	wait_queue_head_t done_queue;
};

int checksums_init(struct volume *vol);
void checksums_exit(struct volume *vol);
/*
 * For hosts, within data_write(): csum[] of whole blocks that lie one after the other in memory and stay as they are.  They are
 * there after checksums_finish().  At most LOG_EXTENT_BLOCKS blocks between two of these.  commit_mutex held.
 */
void checksums_add(struct volume *vol, const void *data, u32 blocks, __le32 *csum);
void checksums_finish(struct volume *vol);

#endif
