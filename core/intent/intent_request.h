/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An fsync on its way to an intent: what intent_fsync.c, intent_capture.c and intent_batch.c share. */
#ifndef TUX3_INTENT_REQUEST_H
#define TUX3_INTENT_REQUEST_H

#include "core/volume.h"
#include "core/names/name_closure.h"

#define REQUEST_PARTS	(CLOSURE_BESIDE + CLOSURE_DIRS + 1)

/* Blocks that an intent is about, if they are dirty. */
struct span {
	u64 from, end;
	u64 told;			/* of the new intent */
};

/* One inode of a request. */
struct intent_part {
	struct tux3_inode *inode;	/* grabbed, but the last one's */
	bool beside;			/* not the last one */
	bool makes;			/* so, and it is not there yet */
	struct span span;		/* of a file */
	u64 looked;			/* what commits up to this delta need was in memory, and stays there */
	u32 max;			/* blocks of data at most: so many were dirty */
	u32 blocks;			/* of data */
	u32 changes, names_seq;		/* of the inode: the intent has all of its changes, and its links */
	bool first;			/* block 0 is among them */
	bool made;			/* its intent has the name that it was made with */
	struct disk_intent *intent;	/* in the request's; NULL: nothing was to be said */
};

struct intent_parts {
	struct intent_part part[REQUEST_PARTS];
	u32 count;
};

struct intent_request {
	struct volume *vol;
	struct list_head link;		/* intent.queue */
	u64 delta;
	u64 base;			/* the newest durable commit before it was captured, or after */
	struct intent_parts parts;	/* whose inodes: the last one is what is synced */
	u32 len;			/* bytes of the intents, a multiple of 8 */
	u32 blocks;			/* of data */
	u32 large;			/* so many at most, of a large file: for the far area, and in intent.large; or 0 */
	void *data;
	u64 far;			/* where that is in the far area, from when it is written on; 0: not there */
	u32 said;			/* its number, for names */
	bool named;			/* it has a name of the last part's inode, or a closure */
	struct name_closure closure;	/* of names that it has in records; no inodes: nobody asked for them */
	/* intent.lock, and whoever was woken: */
	struct completion wake;		/* it is done, or who waits is to write */
	bool lacks_time;		/* constant: who waits for it is not to write: host->lacks_time */
	bool writes;			/* he is the one who writes */
	bool taken;			/* not in the queue any more, but being written */
	bool left;			/* who waited was killed, while others write it: they free it */
	bool done;			/* err is what came of it */
	int err;
	u8 intents[] __aligned(8);	/* round_up(INTENT_BYTES, 8) for each part, and checksums, which who writes it fills in */
};

/* ---- intent_fsync.c ---- */

/*
 * What an intent writes the commit of its delta writes again.  For little, where commits are heavy by what others do,
 * that is worth it: to wait for one of them, or for a unify, is what an fsync is to be spared.  Else it is for what
 * others have changed, which a commit would write before this file is durable; and as long as that is more than what
 * all intents of the delta will have written twice, this one with so many blocks among them.  Then the commit is due, and
 * waited for if it does not take long.  Of a large file no more is written twice than what is not of the front delta, of which
 * so many blocks are; but all of it is copied: where others have changed little beside it, or little else is being committed, it
 * goes with a commit.  So it does where nearly all that commits write is large files which are synced: each of the others waits for
 * that commit, too, or will, and of a file half of which an earlier one has taken nothing is written twice.
 */
bool intent_goes_ahead(struct volume *vol, u32 blocks, u32 front);

/* ---- intent_capture.c ---- */

/*
 * What the inode is now, captured and queued: 0.  -EAGAIN: it needs a commit; -EMSGSIZE: a commit is less to write.  Not inside a
 * delta.  wait: as for fsync_inode().
 */
int intent_capture(struct tux3_inode *inode, bool wait, struct intent_request **captured);
/* So much of the file is dirty and not in an intent yet, about. */
u64 intent_fresh_blocks(struct tux3_inode *inode);
void intent_request_free(struct intent_request *request);
/*
 * Has nothing of the directory changed but names in it, and what follows from that, but for what a crash leaves as it is?  It is
 * there then, by its name.
 */
bool intent_dir_fits(struct tux3_inode *inode);
/*
 * Was a directory moved, and is that not durable?  Then paths may lead elsewhere after a crash.  Who sees a change that was made
 * after a move sees that.
 */
bool intent_dirs_have_moved(struct volume *vol);

/* ---- intent_batch.c ---- */

/* Until it is done; the caller may write it, and those of others.  -EINTR: he was killed, and it is left to them, or to nobody. */
int intent_request_finish(struct volume *vol, struct intent_request *request);

#endif
