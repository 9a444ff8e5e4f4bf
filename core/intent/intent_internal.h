/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the files of this room share. */
#ifndef TUX3_INTENT_INTERNAL_H
#define TUX3_INTENT_INTERNAL_H

#include "core/volume.h"
#include "core/delta/delta.h"

/*
 * Room for a batch in the area, and for far blocks of data in the far one, which from now on count as written; intent->lock held.
 * *place: where, and its number.  false: there is none.
 */
bool intent_ring_add(struct volume *vol, u64 delta, u32 blocks, u32 far, struct intent_batch *place);

/* The next batch, and who is to write then: by the worker. */
void intent_write_batch(struct work_struct *work);

#define INTENT_DATA_BYTES	(8u << 20)	/* of a file at most: one with more goes the long way ... */
#define INTENT_FAR_SHARE	4u		/* ... and with more than this part of the far area */
#define INTENT_RUNS_MAX		64u

/* Bytes of a run with its checksums. */
static inline u64 intent_run_bytes(u32 count)
{
	return round_up(sizeof(struct disk_intent_run) + (u64)count * sizeof(__le32), 8);
}

/* Behind one that is whole; or the records. */
static inline const void *intent_next_run(const struct disk_intent_run *run)
{
	return (const u8 *)run + intent_run_bytes(le32_to_cpu(run->count));
}

/* ---- recovery; carrying out is logging and applying records ---- */

int intent_bad(struct volume *vol, const struct disk_intent *intent, const char *what);	/* -EIO, said */
int intent_log_attr(struct volume *vol, __le64 ino, const struct disk_attr *attr);
int intent_tree_attr(struct volume *vol, __le64 ino, struct disk_attr *attr);	/* 1, 0: there is no such inode, or an error */
/* The file or directory of the intent, which is new, gets its name. */
int intent_recover_name(struct volume *vol, const struct disk_intent *intent);
/*
 * Its records of names, and the other inodes that they are about.  *named: the intent's own inode has got one, which is not looked
 * for in the tree, nor are its attributes changed.
 */
int intent_recover_names(struct volume *vol, const struct disk_intent *intent, const void *records, bool *named);

/*
 * What committing a delta takes, as so many bytes of data: a change that is none takes no less time than a block.  (For pace.h it
 * is less, where it is the disk that counts.)
 */
#define INTENT_CHANGE_BYTES	4096u

static inline s64 intent_load(struct volume *vol, u64 delta)
{
	return delta_dirty_bytes_sum(&vol->delta, delta & 1) + delta_changes_sum(&vol->delta, delta & 1) * INTENT_CHANGE_BYTES;
}

static inline u32 intent_header_room(const struct volume *vol)
{
	return vol->block_size - sizeof(struct disk_intents);
}

#endif
