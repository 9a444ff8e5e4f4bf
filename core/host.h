/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the core asks of its host (libtux3 or the VFS binding): the upper half of the host interface.
 *
 * The host owns the inode objects (each embeds a struct tux3_inode) and the cached file data; the
 * core places, maps and accounts for it.  "Dirty in delta N" is a property of each cached file
 * block, kept by the host: a block changed inside an operation of delta N is dirty in N until
 * data_done(N).  When the front delta wants to change a block that is dirty in the back delta, the host
 * keeps the old bytes for the back end: in a private copy, or the block goes on in another buffer.
 * Where they are just being written from the cache itself, it waits for that I/O, outside its delta.
 *
 * The back end calls these, from its own thread or from one that needs a commit, with
 * delta.commit_mutex held.  They must not enter a delta, and must not take locks that are held by a
 * caller who is inside a delta and sleeps for the back end.
 */
#ifndef TUX3_HOST_H
#define TUX3_HOST_H

#include "core/env.h"

struct tux3_inode;
struct tux3_attr;
struct volume;
struct io_wait;

/* What is told of a quota: an operation was refused, or a commit brought what is used above or below a limit. */
enum quota_event {
	QUOTA_REFUSED_HARD,
	QUOTA_REFUSED_GRACE,	/* above the soft limit, and grace is over */
	QUOTA_ABOVE_SOFT,	/* grace has begun */
	QUOTA_BELOW_SOFT,
	QUOTA_BELOW_HARD,	/* it was all used */
};

struct tux3_host_ops {
	/* A delta pins the inode / lets it go; the last reference may be dropped here, freeing the object. */
	void (*inode_grab)(struct tux3_inode *inode);
	void (*inode_release)(struct tux3_inode *inode);

	/* The first run of blocks dirty in delta at or after file block from.  0 and *block, *count; or -ENOENT. */
	int (*data_next)(struct tux3_inode *inode, u64 delta, u64 from, u64 *block, u64 *count);
	/*
	 * Write those blocks (all dirty in delta) to count disk blocks at addr: compute csum[] (crc32c(~0) of
	 * each whole block; csum NULL: not wanted), submit with device_writev, return.  Bytes beyond the
	 * end of the file are written as zeros.
	 */
	int (*data_write)(struct tux3_inode *inode, u64 delta, u64 block, u64 addr, u32 count,
			  __le32 *csum, struct io_wait *wait);
	/* Copy the first len bytes of a block dirty in delta: for data that goes inline into the tree. */
	int (*data_copy)(struct tux3_inode *inode, u64 delta, u64 block, void *data, u32 len);
	/*
	 * After an error, with all I/O ended: what is dirty in delta will never be written.  It stays in the cache as it
	 * is until data_done(), when the volume is closed: the tree may hold neither it nor what was there before.  May
	 * be NULL.
	 */
	void (*data_aborted)(struct tux3_inode *inode, u64 delta, int err);
	/*
	 * Some of what was changed cannot be committed, since metadata of the inode cannot be read: each who has it open is to
	 * hear -EIO once from fsync.  That data is dropped: data_done() comes for it as for the rest.  Before the commit is over.
	 */
	void (*data_lost)(struct tux3_inode *inode);
	/* Delta is durable (err 0), or the volume is closed without: blocks dirty in it are clean, its private copies go. */
	void (*data_done)(struct tux3_inode *inode, u64 delta, int err);

	/*
	 * Delta has ended, nobody is inside the next one yet, and nothing of the inode is dirty in that: all its blocks that
	 * are dirty in delta become so in the next one instead.  inode->lock held.  Returns how many; -EAGAIN: that would be more
	 * than max, or cannot be, and nothing was done.  NULL: the host knows no stores through mappings (core/commit/put_off.h).
	 */
	int (*data_put_off)(struct tux3_inode *inode, u64 delta, u32 max);
	/*
	 * Asked before, without inode->lock: are all stores to these blocks known?  Need not look further when they are more than
	 * max.  NULL: they always are.
	 */
	bool (*data_stores_known)(struct tux3_inode *inode, u64 delta, u32 max);

	/*
	 * The inode had no name (nlink 0) a moment ago: is it also out of use, but for the pins of deltas?  If so, and it has no
	 * name then, mark it dead, so that no lookup by number finds it, and return true.  Its cached data may go.  (Whoever used
	 * it may have given it a name in that moment: linkat of an O_TMPFILE.)
	 */
	bool (*inode_kill)(struct tux3_inode *inode);

	/*
	 * The front end calls this one too, with the file's lock: the first run of cached blocks in [from, end)
	 * that are dirty in any delta.  true and *block, *count (it may go on behind); false: there is none.
	 */
	bool (*data_dirty)(struct tux3_inode *inode, u64 from, u64 end, u64 *block, u64 *count);

	/* How many are, as a hint. */
	u64 (*data_dirty_blocks)(struct tux3_inode *inode);

	/*
	 * For intents, the first three or none.  Keep others from changing data and size, but for stores into mappings: false if
	 * that would take waiting, which is done if wait is set, until the caller is killed.  Let them again.  In between: copy a
	 * whole block as it is now, zeros beyond the end of the file; false: it is not in memory.
	 */
	bool (*data_hold)(struct tux3_inode *inode, bool wait);
	void (*data_let)(struct tux3_inode *inode);
	bool (*data_peek)(struct tux3_inode *inode, u64 block, void *data);
	/* In between, too: may blocks be changing through a mapping, as nobody is told by data_change_enter()?  NULL: never. */
	bool (*data_mapped)(struct tux3_inode *inode);
	/*
	 * In between, and inside the delta: what is stored from here on into these blocks, which are dirty, is in this delta or a
	 * later one, but not in the one before, which may have them, too.  false: not now.  NULL: it always is.  Which a device may
	 * go on changing without a word, for those it calls inode_note_all().
	 */
	bool (*data_settle)(struct tux3_inode *inode, u64 delta, u64 block, u32 count);

	/*
	 * Outside a delta: what is out of use already, but was left to somebody else to let go of, is let go of (data_forget())
	 * before this returns.  NULL: nothing ever is.
	 */
	void (*settle_unused)(struct volume *vol);

	/*
	 * With tree.sem held shared: is there an object of this inode, which nobody is just reading or making?  true, and its
	 * attributes now and blocks as stat(2) has them; where these would have to be read, *blocks stays as it is.  NULL: there
	 * never is one.
	 */
	bool (*inode_peek)(struct volume *vol, u64 ino, struct tux3_attr *attr, u64 *blocks);

	/*
	 * Outside a delta: may the caller have to wait long for a CPU?  Then the back end's thread makes the commits that he wants,
	 * and a worker writes his intents, for others wait for them, too.  NULL: nobody has to.
	 */
	bool (*lacks_time)(struct volume *vol);

	/* Outside a delta: may the caller exceed quotas?  NULL: nobody may. */
	bool (*quota_exempt)(struct volume *vol);
	/* Who has this quota, and others, may want to know; of inodes or of blocks.  May be NULL. */
	void (*quota_told)(struct volume *vol, u32 type, u32 id, bool inodes, enum quota_event event);

	/* Nothing is written any more, after this error, the first one.  Once for a volume; must not sleep.  May be NULL. */
	void (*stopped)(struct volume *vol, int err);

	/* The clock of inode_now(), if it is another than the coarse one.  May be NULL. */
	void (*now)(struct volume *vol, struct timespec64 *now);
};

#endif
