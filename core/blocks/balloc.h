/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which blocks are in use.
 *
 * Each allocation group that was touched has two bitmaps in memory:
 *	disk	what the free map says that the next unify writes: in use by fixed structures, by the
 *		tree as it is in memory now, and by data.  Never log blocks.
 *	busy	must not be allocated now: disk, plus log blocks, plus blocks that are free in the newest
 *		state but that an older state still needs, which a crash could bring back (deferred).
 * disk is a subset of busy.  Groups are loaded from their slots when first needed; a group never written
 * has only its fixed blocks in use.  One whose slots were damaged (see freemap.c) is left alone: nothing is
 * allocated there, and freeing is an error.
 *
 * Called by the back end only (delta->commit_mutex), but for the counters.  A mutex of its own
 * protects the group table, so that statfs and the checker may ask at any time.
 *
 * Wrong calls (freeing what is free or fixed, ranges outside the volume or across groups) change
 * nothing, print a sentence and return -EIO.
 */
#ifndef TUX3_BALLOC_H
#define TUX3_BALLOC_H

#include "core/env.h"
#include "core/format/format.h"

struct volume;

struct block_range {
	u64 addr;
	u64 len;
};

/* Ranges that wait for something to become durable. */
struct range_list {
	struct block_range *ranges;
	u32 count, capacity;
	u64 blocks;
};

void range_list_init(struct range_list *list);
void range_list_exit(struct range_list *list);
int range_list_add(struct range_list *list, u64 addr, u64 len);	/* merges with the last; -ENOMEM */
int range_list_reserve(struct range_list *list);	/* after this, one range_list_add() cannot fail */
void range_list_move(struct range_list *to, struct range_list *from);	/* to must be empty */
/* By address, neighbours and what overlaps as one: how many there are then. */
u64 block_ranges_unite(struct block_range *ranges, u64 count);

enum balloc_kind { BALLOC_DATA, BALLOC_NODE, BALLOC_LOG, BALLOC_KINDS };	/* LOG: busy only, not disk */

/* A run of free blocks that allocations for anything else leave alone while there are others: a reservation window. */
struct balloc_stretch {
	u64 next, end;		/* not taken yet; next >= end: none */
	u32 size;		/* blocks it had at first */
	u64 ino, block;		/* a window of this file, for its blocks from there on: next stays.  ino 0: no window */
	u64 used;		/* balloc->clock when last taken from */
};

/* One for each kind (DATA's stays empty), then those of files that grow. */
#define BALLOC_FILE_STRETCHES	3
#define BALLOC_STRETCHES	64

struct balloc_chunk;		/* freemap.h */

struct balloc {
	struct mutex lock;
	struct balloc_chunk **chunks;	/* lock; what is known of each group; NULL: nothing of these */
	u64 group_count;
	u64 fixed_blocks;		/* balloc_fixed_blocks() */
	u64 unknown_groups;		/* lock: never loaded so far */
	u64 bad_groups;			/* lock: could not be loaded: there may be free blocks nobody gets at */
	u64 probe_at, probe_step, probe_left;	/* lock: the order in which unknown groups are tried */
	u64 node_goal, log_goal, data_goal;	/* lock: where the last of that kind ended */
	u64 large_goal;			/* lock: the same for the first blocks of large files */
	struct balloc_stretch stretches[BALLOC_STRETCHES];	/* lock */
	u64 stretched;			/* lock: a bit for each stretch that there may be; the others are none */
	u64 clock;			/* lock: counts use of stretches */
	u64 released;			/* lock: moves when one gives back blocks that it held */
	struct list_head changed;	/* lock: groups whose disk bits changed since the last snapshot */
	struct list_head pinned;	/* lock: other groups that cannot be read again as they are */
	struct list_head clean;		/* lock: the rest, least recently used first */
	struct list_head unlogged;	/* lock: groups that balloc_touched() has to hand out, for the log */
	struct list_head hot;		/* lock: of changed and pinned, those that are not packed, least recently used first */
	u64 changed_count, clean_count;	/* lock: groups in changed, in clean */
	u64 writing_count;		/* lock: groups in a snapshot that is not done */
	u64 packed, packed_bytes;	/* lock: groups whose bitmaps are packed, and what they take (group_pack.c) */
	u8 *scratch;			/* lock: for packing; NULL before the first time */
	u64 mount_delta;		/* anchor.delta at balloc_init(): map slots above it are left-overs */
	bool writing;			/* lock: a snapshot is not done */
	u64 snapshot_delta;		/* its delta; written with the lock, read by who makes the snapshot */
	bool log_unread;		/* lock: any group may be in the log */
	bool log_over;			/* lock: there was an anchor since: none is in the log that was replayed */
	struct range_list node_frees;	/* left by redirects since the last snapshot; wait for the next anchor */
	u64 trimming;			/* lock: blocks marked busy while they are discarded (trim.c) */
	u64 trims;			/* lock; read anywhere: runs given back so far */
	wait_queue_head_t trim_queue;	/* woken when trims moves */
	atomic64_t free_blocks;		/* not busy, or being trimmed; less those promised: can be allocated now */
	s64 taken[BALLOC_KINDS];	/* back end: blocks allocated or promised so far, less those given back at once */
	atomic64_t promised;		/* not in free_blocks: for tree nodes that have no block yet */
	atomic64_t disk_used;		/* bits set in disk, of all groups, loaded or not */
	atomic64_t data_used;		/* of these, data blocks (files and xattr values) */
	u64 loaded;			/* lock: groups in memory */
	bool foreign;			/* back end: what was counted is not what is in use: balloc_defer_data() ... */
	atomic64_t allocs, extents_allocated, group_loads;	/* counters */
};

/* used_blocks: anchor.used_blocks.  The geometry of vol and vol->anchor are set (mkfs: delta, root_addr 0). */
int balloc_init(struct volume *vol, u64 used_blocks);
void balloc_exit(struct volume *vol);

/*
 * Allocate up to want blocks in one run, at least min, near goal (0: the kind's own goal).  For data,
 * goal is where the last allocation for the same file ended: then the file gets a stretch of its own
 * when others are in its way.  The policy is told in placement.c: exactly at goal if free; else the first
 * run of want blocks in the goal's group, then in other groups; else a run at least three quarters as
 * long as the longest there is, if >= min.
 * -ENOSPC if there is no run of min blocks on the volume.  A group whose free map cannot be read is
 * passed over; if nothing is found elsewhere: -EIO.
 */
int balloc_alloc(struct volume *vol, enum balloc_kind kind, u64 goal, u32 min, u32 want, u64 *addr, u32 *len);
/* Data likewise, up to most blocks of a run in which more of the file is to follow: run blocks, if there is such a one. */
int balloc_alloc_part(struct volume *vol, u64 goal, u64 run, u32 most, u64 *addr, u32 *len);

/*
 * Windows, for files that are filled out of order: file blocks from block on have their places in a run of len disk
 * blocks, which others leave alone while there are others.  open: free blocks, at hint if they are free there (0: no
 * hint).  again: at addr, for a window that was forgotten, without what other windows have of it; if the place of wanted
 * is free and others have hardly any of the part that was looked at.  Both: -ENOSPC.  take: data blocks for up to want
 * file blocks, at their places; -ENOENT: the block has no window, -ENOSPC: its place is in use.  Windows have at most
 * balloc_window_max() blocks, a power of 2 or (space is short) 0; the least recently used is forgotten.
 */
struct balloc_window {
	u64 ino, block;
	u32 len;
	u32 blocks;		/* again: of the file blocks [low, high) so many have places */
	u64 low, high;
};
int balloc_window_open(struct volume *vol, const struct balloc_window *window, u64 hint);
int balloc_window_again(struct volume *vol, const struct balloc_window *window, u64 addr, u64 wanted);
int balloc_window_take(struct volume *vol, u64 ino, u64 block, u32 want, u64 *addr, u32 *len);
u32 balloc_window_max(struct volume *vol);

/*
 * Blocks for tree nodes in memory.  promise: so many free blocks are kept for nodes that are not written yet;
 * -ENOSPC.  In replay they need not be there: it is over with no more of them than there were when the log was
 * written.  unpromise: these nodes are gone.  place: up to want of what was promised, now as blocks in use, in one
 * run; at least one; -ENOSPC, -EIO if the free maps do not have them.  promise_again: what place gave is given back.
 */
int balloc_promise(struct volume *vol, u64 blocks);
void balloc_unpromise(struct volume *vol, u64 blocks);
int balloc_place(struct volume *vol, u32 want, u64 *addr, u32 *len);
void balloc_promise_again(struct volume *vol, u64 blocks);

/* Free now, for allocation too: for blocks that no durable state names. */
int balloc_free(struct volume *vol, enum balloc_kind kind, u64 addr, u64 len);
/*
 * Free in the newest state (disk bits cleared), allocatable when the list is released.  list NULL: they come back by balloc_take()
 * before the commit is over.
 */
int balloc_defer(struct volume *vol, enum balloc_kind kind, u64 addr, u64 len, struct range_list *list);
/*
 * The same of data that the tree says a file has had.  On a damaged or forged volume some of it may be free, log or fixed: that is
 * left as it is, told once, and vol->balloc.foreign.  After an error some may be done.
 */
int balloc_defer_data(struct volume *vol, u64 addr, u64 len, struct range_list *list);
/*
 * A node's block: at once if it was never in a snapshot, else via node_frees, or kept for a hold (held.h); where the free map
 * cannot be read it stays in use until that is repaired.
 */
int balloc_free_node(struct volume *vol, u64 addr, u64 birth, bool was_in_snapshot);
/* What waited may be allocated now; empties the list. */
int balloc_release(struct volume *vol, struct range_list *list);

/*
 * Replay, and blocks that move from file to file in a commit.  take: the record says these data blocks are in use: set disk and
 * busy; -EIO with a message if disk says they are in use already.  settle: replay is over: busy becomes disk plus node_frees
 * plus the ranges of log (the log chain).
 */
int balloc_take(struct volume *vol, u64 addr, u64 len);
int balloc_settle(struct volume *vol, const struct range_list *log);
/*
 * Before the first group is loaded, for each GROUP_TOUCHED of the log that will be replayed: the slots of this
 * group may be as a unify left them that was cut off.  In any other group a slot that is not whole, or newer
 * than the anchor, is damage.  This ends with the next anchor (balloc_snapshot_done), which must have all of
 * these groups in it (balloc_touch).  0, -ENOMEM.
 */
int balloc_note_in_log(struct volume *vol, u64 group);
/* unread: take all groups for named by the log, since nobody read it (and nothing will be written). */
void balloc_note_log_unread(struct volume *vol, bool unread);
/* Replay of GROUP_TOUCHED: the next snapshot includes this group, changed or not; see balloc_touched(). */
int balloc_touch(struct volume *vol, u64 group);

/*
 * The back end: bring the maps of these groups into memory, many reads at once and none with balloc->lock held.  Errors
 * are left for who needs the group.  At most balloc_prefetch_limit() groups: so many stay in memory until they are used.
 * The list is changed.
 */
u32 balloc_prefetch_limit(struct volume *vol);
void balloc_prefetch(struct volume *vol, u64 *groups, u32 count);
/* Are the maps of all groups in memory?  Without the lock: an answer of a moment ago. */
bool balloc_all_loaded(struct volume *vol);
/* The maps of these blocks are read, and stay in memory until this delta is committed.  0, -EIO, -ENOMEM; -EAGAIN: too many do. */
int balloc_need(struct volume *vol, u64 addr, u64 len, u64 delta);
/* No map that is in memory ever leaves it: there are not so many. */
bool balloc_all_stay(struct volume *vol);
/*
 * What would a mount after a crash have to hold of groups, as the log that leads here does?  How many it reads, and what those
 * take that it can neither drop nor has just used.  Without the lock.
 */
u64 balloc_recovery_groups(struct volume *vol);
u64 balloc_recovery_bytes(struct volume *vol);
/*
 * For volume_options.verify, with commit_mutex held: is each group in memory counted rightly, and each block of the volume in use,
 * busy, free or promised?  0, or -EIO and a sentence.
 */
int balloc_verify(struct volume *vol, char *why, size_t why_size);

/*
 * Is every block of the range in use in disk (1), none (0), or mixed (-ERANGE)?  -EIO, also for blocks
 * beyond the volume.  The range may span groups.  For check and show.
 */
int balloc_test(struct volume *vol, u64 addr, u64 len);
/* Is none of these blocks in use, nor busy for another reason?  1, 0, or -EIO as above: for recovery. */
int balloc_is_free(struct volume *vol, u64 addr, u64 len);
/* Are all in use, and none fixed?  Of what a file has it is so, unless the volume is damaged or forged.  1, 0, -EIO, -ENOMEM. */
int balloc_may_be_data(struct volume *vol, u64 addr, u64 len);
/* Copy the disk bits of one group as (block_size - 64) bytes: for check and show. */
int balloc_copy_group(struct volume *vol, u64 group, u8 *bits);

/*
 * For repair: what is in use in a group is this (block_size - 64 bytes, as copy_group has them), and what a map said, or
 * whether there is one, does not matter any more.  A block that was in use stays busy until the volume is closed, unless
 * forget says that it may be allocated.  *changed: blocks that are in use now and were not, or the other way round.
 * Promises and blocks of the log are as they were.  0, -ENOMEM.
 */
int balloc_set_group(struct volume *vol, u64 group, const u8 *bits, bool forget, u64 *changed);
/* When that was done for all groups: the volume's counters follow from them. */
void balloc_recount(struct volume *vol, u64 data);	/* so many blocks of data */

/*
 * For scrub.  whole: which slots of a group are whole on the device, a bit for each, unless none of them was ever written
 * (BALLOC_SLOTS_OR_NONE); a slot that a unify is writing, or that one left that was cut off, is not among them.  -ENOMEM.  bad:
 * both were read to buf; which of these are not, and why.
 */
#define BALLOC_SLOTS_OR_NONE 4u
int balloc_slots_whole(struct volume *vol, u64 group, u32 *slots);
u32 balloc_slots_bad(struct volume *vol, u64 group, u32 slots, const void *buf, char *why, size_t why_size);

/*
 * For a volume that is opened with what a hold keeps: the bits that a group had then, as copy_group has them.  -ESTALE: they were
 * written over since, or cannot be told from that; -EIO: the device cannot read them; -ENOMEM.
 */
int balloc_read_held(struct volume *vol, u64 group, u8 *bits);

/* Is this block one of the fixed ones (boot area, anchors, free-map slots)?  Also: beyond the volume. */
bool balloc_is_fixed(struct volume *vol, u64 addr);
/* Is one of these blocks of the volume fixed?  *fixed: the first. */
bool balloc_first_fixed(struct volume *vol, u64 addr, u64 len, u64 *fixed);
u64 balloc_fixed_blocks(struct volume *vol);	/* how many there are */
u64 balloc_group_start(struct volume *vol, u64 group);
u64 balloc_slot_addr(struct volume *vol, u64 group, unsigned int slot);	/* slot 0 or 1 */

/*
 * Groups whose disk bits changed since the last snapshot and that were not handed out by this
 * function since then: for GROUP_TOUCHED records.  Those of one stretch of groups: a bit for each in bits, which has
 * TOUCHED_WORDS words; bit 0 is that of group *first.  Returns how many words there are, 0: nothing more.  A group
 * that changed before a snapshot and was not handed out by then is handed out afterwards.
 *
 * Why the log has to tell: a unify that is cut off leaves slots that are torn, or have a delta above the
 * anchor's.  They do not count now, but the latter would once a later anchor has overtaken them, and the
 * former could not be told from damage.  So before that, at replay, every group that may have such a
 * slot is made part of the next snapshot (balloc_touch), which overwrites it.
 * The record must be durable before the slot is written: nothing may be left to hand out at a snapshot.
 */
#define TOUCHED_WORDS 64u
u32 balloc_touched(struct volume *vol, u64 *first, u64 *bits);
u64 balloc_touched_bytes(struct volume *vol);	/* what all groups take in the log of one commit */

/*
 * Unify.  snapshot: copy the disk bits of all changed groups, as they are now, sealed for delta, into
 * a list of blocks to write, and start collecting changes anew.  A group without a current slot has
 * both of its slots in the list, any other the one that is not current.  The caller writes those that have their
 * data; then calls snapshot_more(), which gives the memory of these to the next, and writes them, until there are none.
 * When the anchor is durable it calls snapshot_done(ok) which makes the written slots the current ones.
 * delta must be above that of every snapshot before (-EINVAL if a changed group has a map for it
 * already: two anchors for one delta could not be told apart by their maps); one snapshot at a time (-EBUSY).
 * Each map is checked as it will be when it is read: -EIO, and told, if one would not pass, or is not as the books say.
 */
struct group_bits;

struct map_write {
	struct list_head link;
	u64 addr;		/* slot to write: the one the current anchor does not use */
	u64 group;
	unsigned int slot;
	void *data;		/* block_size bytes, to be written now; NULL: written, or its turn has not come */
	struct group_bits *packed;	/* what its data will be made of */
};
int balloc_snapshot(struct volume *vol, u64 delta, struct list_head *writes);
int balloc_snapshot_more(struct volume *vol, struct list_head *writes);	/* 1; 0: all are written; -EIO: see snapshot */
void balloc_snapshot_done(struct volume *vol, struct list_head *writes, bool ok);	/* frees them */

/* Check one free-map block; 0, or -EIO and a sentence in why. */
int map_check(struct volume *vol, const void *data, u64 addr, u64 group, char *why, size_t why_size);

#endif
