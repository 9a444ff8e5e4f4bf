/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What intent.c and intent_fsync.c share. */
#ifndef TUX3_INTENT_INTERNAL_H
#define TUX3_INTENT_INTERNAL_H

#include "core/volume.h"

/* Room for a batch in the ring, which from now on counts as written; intent->lock held.  false: there is none. */
bool intent_ring_add(struct volume *vol, u64 delta, u32 blocks, struct intent_batch *batch);

/* Blocks of an intent at most: a file with more goes the long way. */
#define INTENT_DATA_BYTES	(256u << 10)
#define INTENT_RUNS_MAX		64u

/* Bytes of a run with its checksums. */
static inline u64 intent_run_bytes(u32 count)
{
	return round_up(sizeof(struct disk_intent_run) + (u64)count * sizeof(__le32), 8);
}

static inline u32 intent_header_room(const struct volume *vol)
{
	return vol->block_size - sizeof(struct disk_intents);
}

#endif
