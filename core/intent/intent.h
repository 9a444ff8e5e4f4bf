/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The intent log: how an fsync makes one file durable ahead of the delta that it belongs to.
 *
 * Beside a heavy load the front delta holds much that an fsync need not wait for.  So it writes what the file would
 * become: its attributes, its dirty blocks, that it was emptied before, the extended attributes that were changed,
 * and its names, as one *intent*; or of a directory, what names in it have changed.  Nothing moves in memory: the
 * file stays dirty, and its delta commits it as if nothing had been; from then on the intent does not count.  If the
 * power fails before, recovery carries the intent out on top of the last delta, as a commit of its own.
 *
 *	state after a crash = the newest durable delta + the intents of later deltas, in the order they were written
 *
 * An intent is absolute: the newest state of one inode, with those before it.  (What the last one has said of a file's blocks
 * is left out if it still is so, and that one is durable: programs that sync often would have all of a file written each
 * time.)  So it may be written while an older delta is being committed, and holds on top of that delta or the one before.  With
 * a name that others had go those, with all names of theirs that have changed (core/names/name_closure.h).  An inode for which
 * that would not do goes the long way, by a commit: one with ranges preallocated, a part removed, or xattrs with blocks of
 * their own (intent_capture.c).  So does every one from the move of a directory until that is durable: the path by which it was
 * synced might lead elsewhere after a crash.  A directory that is new has an intent that makes it, before those of what is in it.
 *
 * Intents that wait together are written together, as a *batch*: blocks next to each other in the *intent area*, a run of
 * blocks that is used as a ring; then one flush.  The area is busy, but not in free maps, like log blocks.  The first commit of
 * a mount allocates it; short of space it is given back, and after an fsync that missed it a commit allocates another.  The
 * header of each commit names the area and the place in it where the first batch is, or will be, that counts on top of this
 * commit.  Data of large files goes to a second run of blocks, the *far area*, which nothing names but batches: a mount reads of it
 * what they have.  What has not changed since stays there: the commit of its delta maps it instead of writing it again (early.h).
 *
 *	intent.c		the area, as a ring; what commits have to do with it
 *	intent_fsync.c		front end, no commit_mutex: by a commit, or ahead of it
 *	intent_capture.c	from inode to request
 *	intent_batch.c		from there to the disk
 *	intent_recover.c	at open, after the log was replayed; intent_recover_names.c: of names
 */
#ifndef TUX3_INTENT_H
#define TUX3_INTENT_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/blocks/balloc.h"

struct volume;
struct tux3_inode;

enum tux3_fsync {
	TUX3_FSYNC_DEFAULT,	/* auto */
	TUX3_FSYNC_AUTO,	/* ahead, where that is less to wait for than the delta, or than the commit under way */
	TUX3_FSYNC_FULL,	/* every fsync is the end of a delta */
	TUX3_FSYNC_AHEAD,	/* ahead, wherever it can be: for tests */
};

#define INTENT_DELTAS	4u	/* with batches that count: the one being committed, and the front delta; and a few to spare */

/* struct disk_intent_place, see format.h. */
struct intent_place {
	u64 addr, life, seq;
	u32 blocks, offset;
};

/* Where the first batch of a delta is: of one whose newest intent is of this delta. */
struct intent_batch {
	u64 delta;
	u64 seq;
	u32 offset;		/* in the area */
	u64 far;		/* the first block of its data, if that is in the far area */
};

/* Of each delta with batches that are not superseded the first, the oldest delta first. */
struct intent_firsts {
	struct intent_batch batch[INTENT_DELTAS];
	u32 count;
};

/* What batches of a delta have taken of it, next to each other. */
struct intent_far_part {
	u64 delta, addr;
	u32 blocks;
};

/*
 * For the data of batches with large files, used from front to back.  No commit names it; in no free map either.  When a delta
 * is durable some of what its batches took is data of files by then, and the rest is free.
 */
struct intent_far {
	u64 addr;		/* 0: there is none */
	u32 blocks, offset;	/* offset: where the next data goes */
	struct intent_far_part part[2 * INTENT_DELTAS];	/* the oldest first, also of areas before */
	u32 parts;
	bool wanted;		/* a hint for who has no lock: there is to be one, or a larger one, or another one soon */
};

struct intent {
	/* One at a time: the intents of an inode are queued in the order in which its states were. */
	struct mutex capture;
	u64 retired;			/* capture: the newest delta whose inodes are being let go, or were */
	atomic64_t captures;		/* their numbers: inode->told */
	u32 said;			/* capture: likewise, for names */
	atomic64_t large;		/* blocks of data of large requests that are not written yet, or are about to be captured */
	atomic_t syncing;		/* so many are in fsync with something to write */
	/* Hints, which fade with each commit: bytes of large files that fsyncs were called for; and intent_load() of commits. */
	atomic64_t large_synced;
	u64 committed_load;		/* set with commit_mutex */
	u64 alone_delta, alone_bytes;	/* of this delta so much was there, nearly all of it durable by intents: a hint */
	u64 ahead_delta;		/* what intents of the front delta, this one, have written: a hint, set with capture ... */
	u64 ahead_blocks, ahead_far;	/* ... in the area, and in the far one */
	u64 beside_blocks;		/* the same of the area, while a commit was made: the most lately.  Set with commit_mutex */
	struct mutex write;		/* a batch is being written */
	struct workqueue_struct *writer;	/* NULL: the volume has no thread of its own */
	struct work_struct work;	/* of that: a batch, for who lacks time */
	spinlock_t lock;		/* what follows */
	u64 writing_delta;		/* what is being written is of this delta, to the far area, too; or 0 */
	struct list_head queue;		/* struct intent_request */
	bool writing;			/* somebody writes what is queued, for all, or is about to */
	struct intent_place place;	/* the area and where the next batch goes; addr 0: there is none */
	u64 batches;			/* as many as were given room; read without the lock, too */
	struct intent_firsts first;
	struct intent_far far;
	u64 sealed;			/* the newest delta whose commit has chosen what it names: its intents come too late */
	u64 broken;			/* a batch of this delta could not be written: those behind it would not be found */
	bool ready;			/* there is an area; a hint for who has no lock */
	bool wanted;			/* there is to be one: at first, and when an fsync would have used it; likewise */
	bool shrink;			/* space is short: the next commit gives the area back */
	u64 durable;			/* the newest durable commit, not a delta that had none; 0: none since the open */
	/* commit_mutex: */
	struct intent_place named;	/* by the newest durable commit or anchor */
	struct intent_place naming;	/* by the commit that is being written */
	u64 naming_delta;		/* of that */
	struct intent_place fresh;	/* a new area, to be used as soon as a commit that names it is durable; addr 0: none */
	struct block_range returning;	/* one that the commit being written does not name any more; addr 0: none */
	struct block_range returning_far;	/* likewise, with it: what of the far area was not used */
	struct range_list leaving;	/* the same when that is durable, and the rest of the far area's; empty between commits */
	struct range_list kept;		/* of the far area: data that the commit being made leaves there */
	bool closing;			/* no batch comes any more */
	u64 base;			/* at open: the newest delta of the log */
	u64 missing;			/* at open: a delta that was durable, as an intent says, but is newer than base; 0: none */
	u32 recovered;			/* at open: so many intents were carried out on top of it */
	u32 recovered_beside;		/* so many of them were written for others' names */
};

int intent_init(struct volume *vol);
void intent_exit(struct volume *vol);

/*
 * For fsync: what was changed of this inode before the call is durable on return 0, and of a directory the names in it.  Not
 * inside a delta.  wait: the caller has no lock of the inode, and is to wait for who writes to it.  -EINTR: the caller was killed.
 * After the volume has stopped 0 if nothing of the inode was lost, else -EROFS.
 */
int fsync_inode(struct tux3_inode *inode, bool wait);

/*
 * Of a block that is lost before the commit of its delta, since its memory has failed: what the last fsync that went ahead has
 * said of it, if that was in this delta or a later one, and since intent_now() said so much.  1: data has it; 0: none has said
 * anything, or that it is not there; -errno.  Reads all of the area.
 */
int intent_promised(struct tux3_inode *inode, u64 block, u64 delta, u64 since, void *data);
u64 intent_now(struct volume *vol);

/* ---- the back end, commit_mutex held ---- */

/* A commit begins: allocate what areas are wanted, or give one back.  *charged: plus what they take. */
int intent_begin_commit(struct volume *vol, u64 delta, s64 *charged);
/*
 * Intents of this delta are not written any more from now on.  true: its commit must be written even if it has no records,
 * since there are some that it supersedes.
 */
bool intent_seal(struct volume *vol, u64 delta);
/* What that commit names; for its header. */
void intent_name(struct volume *vol, struct disk_intent_place *place);
/* It is durable, and its inodes are about to be let go: no capture looks at them by way of others any more. */
void intent_retire(struct volume *vol, u64 delta);
/* The delta is durable: what it supersedes is free.  written: with a commit, whose header names the place. */
int intent_committed(struct volume *vol, bool written);
/* For an anchor that stands for the newest durable delta: none if it is the last one. */
void intent_get_named(struct volume *vol, struct disk_intent_place *place);
/*
 * The volume is being closed, and nobody calls fsync any more.  The last anchor names no area, so the next mount has
 * none to read; and since the area is in no free map, that gives it back.
 */
void intent_close(struct volume *vol);
bool intent_anchor_stale(struct volume *vol);	/* that anchor is still to be written */
/* Space is short: give the area back with the next commit that can. */
void intent_shrink(struct volume *vol);
/* Nothing is being written when this returns.  The caller sees to it that nothing begins. */
void intent_wait(struct volume *vol);

/* The commit leaves data there, in the far area, where a batch of its delta has put it: it is in use now.  -ENOMEM: not so. */
int intent_keep(struct volume *vol, u64 addr, u32 count);

/* ---- open ---- */

/*
 * After the log was replayed: carry out what is at vol->log.intent, which its last commit, or else the anchor, names.  The
 * area is busy (replay.c).  0, -EIO with a message, -ENOMEM.
 */
int intent_recover(struct volume *vol);
/* The volume becomes writable: what was carried out becomes a commit, and the area is given back. */
int intent_commit_recovered(struct volume *vol);

#endif
