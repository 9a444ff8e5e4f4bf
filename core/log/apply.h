/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The effect of the log's records on the tree, for commit and replay; and small pieces of it that the reading side
 * shares: is what the tree says about blocks possible?
 */
#ifndef TUX3_APPLY_H
#define TUX3_APPLY_H

#include "core/env.h"
#include "core/format/format.h"

struct volume;

/*
 * Apply one record to the tree; the same code for commit and replay.  Checks every field against
 * the record's length and the volume: -EIO with a message for nonsense.
 */
int apply_record(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len);

/*
 * At a unify's snapshot, and there in replay.  On a damaged or forged volume files may give back more than was counted: blocks of
 * the tree that they said were data, data that they said was never written.  The volume does not stop for that; repair counts anew.
 */
void apply_settle_counts(struct volume *vol);

/* Call fn for each group that a GROUP_TOUCHED record names, until it returns an error. */
int log_for_groups(const void *payload, u32 len, int (*fn)(void *ctx, u64 group), void *ctx);

/* Bytes of a record with so long a payload. */
static inline u32 log_record_size(u32 len)
{
	return sizeof(struct disk_record) + round_up(len, 8);
}

/* Such a record in memory: returns where its payload goes. */
static inline void *log_begin_record(void *at, enum tux3_record_type type, u32 len)
{
	struct disk_record *head = at;

	memset((u8 *)at + log_record_size(len) - 8, 0, 8);	/* the padding */
	*head = (struct disk_record){ .type = cpu_to_le16(type), .len = cpu_to_le32(len) };
	return head + 1;
}

/* One record after another: *at is the offset, 0 at first.  1: *record is valid, 0: end, -EIO. */
int log_next_record(const void *records, u32 bytes, u32 *at, const struct disk_record **record);

/* Is there such a record? */
bool apply_record_possible(u32 type, u32 len);
/* A run of blocks within the volume, its ends not on fixed blocks. */
bool apply_blocks_valid(struct volume *vol, u64 addr, u64 count);
/* An extent item of len bytes: 0 or -EIO. */
int extent_check(struct volume *vol, const void *data, u32 len);

#endif
