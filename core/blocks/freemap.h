/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What balloc.c, placement.c and freemap.c share: allocation groups in memory.
 *
 * Of every group a few words are kept for good once it was loaded (struct balloc_info, in chunks that
 * are made when needed).  The bitmaps (struct balloc_group) come and go: a group is in one of
 * three lists,
 *
 *	changed		to be in the next snapshot: disk differs from what the last one took, or a slot
 *			must be overwritten
 *	pinned		disk is what the last snapshot took, but this is not the current slot yet, or busy
 *			has bits that disk has not, or balloc_touched() has still to hand it out
 *	clean		the current slot says all there is to know: may be dropped
 *
 * and group_place() moves it to the right one after each change.  Of those in changed and pinned that are not used for
 * long, the bitmaps are packed (group_pack.c); the others are in the list hot, too.
 *
 * All of it is protected by balloc->lock.
 */
#ifndef TUX3_FREEMAP_H
#define TUX3_FREEMAP_H

#include "core/env.h"
#include "core/blocks/balloc.h"

#define CHUNK_GROUPS	(64 * TOUCHED_WORDS)
#define CHUNK_PARTS	64u
#define PART_GROUPS	(CHUNK_GROUPS / CHUNK_PARTS)
#define CHUNKS_MAX	(1u << 20)	/* 2^32 groups: 512 PiB with blocks of 4096 bytes */
#define GROUPS_KEPT_BYTES (8u << 20)	/* bitmaps of loaded groups, before they are dropped or packed */
#define MAPS_AT_ONCE_BYTES (4u << 20)	/* blocks of a snapshot that are in memory at the same time */
#define GROUPS_KEPT_MIN	16u
#define MAP_SLOTS	2u
#define MAP_NONE	MAP_SLOTS	/* no slot counts: all free, and the next snapshot writes both */

enum group_list { GROUP_ON_NONE, GROUP_ON_CHANGED, GROUP_ON_PINNED, GROUP_ON_CLEAN };

enum group_state {
	GROUP_UNKNOWN,		/* never loaded */
	GROUP_KNOWN,
	GROUP_BAD,		/* could not be loaded: nothing is allocated there */
};

struct group_bits;		/* group_pack.c */

struct balloc_info {
	struct balloc_group *group;	/* NULL: not in memory */
	u32 free;			/* KNOWN: blocks not busy */
	u32 longest;			/* KNOWN: no run of free blocks is longer */
	u8 state;			/* enum group_state */
	u8 slot;			/* KNOWN: the current slot, or MAP_NONE */
	bool given_up;			/* its map could not be read, the last time that was tried */
	bool in_log;			/* named by the log that was replayed: see balloc_note_in_log() */
};

struct balloc_chunk {
	u32 longest;			/* no KNOWN group has a higher one */
	u32 count;
	u32 part_longest[CHUNK_PARTS];	/* nor one of these PART_GROUPS groups */
	struct balloc_info info[];
};

struct balloc_group {
	struct list_head link;		/* in changed, pinned or clean */
	struct list_head unlogged_link;	/* in balloc->unlogged, or empty */
	struct list_head hot_link;	/* in balloc->hot, or empty: clean, or packed */
	struct balloc_info *info;
	struct balloc_chunk *chunk;
	u64 index;
	u64 start;			/* its first block */
	u32 blocks;			/* fewer in the last group */
	u32 extra;			/* blocks busy and not in disk */
	u64 slot_delta;			/* of the current slot */
	u64 needed;			/* stays in memory until this delta is committed */
	u8 on;				/* enum group_list: which list link is in */
	bool changed;			/* to be in the next snapshot */
	bool writing;			/* in a snapshot that is not done */
	bool logged;			/* handed out by balloc_touched() since the last snapshot */
	/*
	 * What searches found out: no run of memo_len free blocks begins before memo_from, and the blocks
	 * from memo_to on, taken by themselves, have none.  memo_len 0: nothing is known.
	 */
	u32 memo_len, memo_from, memo_to;
	/* And when balloc->released was held_at: free runs of held_len blocks are all held by stretches.  0: nothing is known. */
	u32 held_len;
	u64 held_at;
	unsigned long *disk, *busy;	/* bits beyond the end of the volume are set; NULL: packed */
	struct group_bits *packed;
};

/* freemap.c */
u32 group_length(struct volume *vol, u64 index);
struct balloc_info *group_info(struct volume *vol, u64 index);	/* NULL: no memory */
/* The group with its bitmaps, loaded if need be.  -EIO (message printed), -ENOMEM. */
int group_get(struct volume *vol, u64 index, struct balloc_group **group);
/* One whose map cannot be used, as if it had none: both slots are written by the next snapshot. */
int group_renew(struct volume *vol, u64 index, struct balloc_group **group);
void group_place(struct balloc *balloc, struct balloc_group *group);
void group_mark_changed(struct balloc *balloc, struct balloc_group *group);
void group_destroy(struct balloc *balloc, struct balloc_group *group);
void group_evict(struct volume *vol);		/* keep memory within its limit */
/* The blocks of a group below *head and from *tail on are fixed; head <= tail <= its length. */
void group_fixed_bounds(struct volume *vol, u64 index, u32 *head, u32 *tail);
/* How many of these blocks of a group, given by their numbers in it, are fixed? */
u32 group_fixed_blocks(struct volume *vol, u64 index, u32 from, u32 len);

/* group_pack.c */
u32 group_bitmap_bytes(struct volume *vol);
int group_bitmaps_alloc(struct volume *vol, struct balloc_group *group);	/* 0, -ENOMEM */
void group_bitmaps_free(struct balloc *balloc, struct balloc_group *group);
int group_unpack(struct volume *vol, struct balloc_group *group);		/* if it is packed; 0, -ENOMEM */
void group_pack_cold(struct volume *vol, u64 keep);	/* until no more than so many are not packed */
struct group_bits *group_copy_packed(struct volume *vol, const struct balloc_group *group);	/* of disk; kvfree() it; or NULL */
void group_bits_unpack(struct volume *vol, const struct group_bits *packed, unsigned long *bits);
void group_copy_bits(struct volume *vol, const struct balloc_group *group, unsigned long *bits);	/* of disk */

/* balloc.c */
/*
 * Set busy where it is clear; returns how many bits were.  Unmark: all of these are set.  balloc->free_blocks is the
 * caller's: it is read without the lock, so it may not be wrong for a moment either.
 */
u32 group_mark_busy(struct balloc_group *group, u32 from, u32 len);
void group_unmark_busy(struct balloc_group *group, u32 from, u32 len);

/* placement.c */
struct balloc_want {
	u32 min, most;		/* so many blocks */
	u32 run;		/* of a run like that, if there is one: what is to follow them */
};
struct placement {
	struct balloc_group *group;
	u32 from, len;
	u32 run;		/* free from there on */
};
void placement_init(struct volume *vol);
/* Choose a free run, which the caller marks busy at once.  0, -ENOSPC, -EIO, -ENOMEM. */
int placement_find(struct volume *vol, enum balloc_kind kind, u64 goal, const struct balloc_want *want, struct placement *place);
/* For balloc_window_open() and so on. */
int placement_window_open(struct volume *vol, const struct balloc_window *window, u64 hint);
int placement_window_again(struct volume *vol, const struct balloc_window *window, u64 addr, u64 wanted);
int placement_in_window(struct volume *vol, u64 ino, u64 block, u32 want, struct placement *place);
/* No run of free blocks in the group is longer than this. */
void placement_bound(struct balloc_group *group, u32 longest);
/* These blocks are not busy any more. */
void placement_freed(struct balloc_group *group, u32 from, u32 len);

#endif
