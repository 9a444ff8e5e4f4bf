/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inodes in memory: the part that the core keeps in each of the host's inode objects.
 *
 * attr is the live state, as the front end sees it.  When an inode that is dirty in the back delta is
 * changed in the front delta, and the back end has not taken its attributes yet, they are first
 * copied to frozen.  So the back end reads that if its slot says so, else attr; both under lock.
 */
#ifndef TUX3_INODE_H
#define TUX3_INODE_H

#include "core/env.h"
#include "core/format/attr.h"
#include "core/format/format.h"
#include "core/delta/delta.h"
#include "core/inode/file_range.h"

struct volume;
struct data_remap;
struct name_change;
struct name_dir;
struct name_entry;
struct quota_owner;

struct tux3_time {
	s64 sec;
	u32 nsec;
};

struct tux3_attr {
	u32 mode, uid, gid, nlink;
	u64 size;
	struct tux3_time atime, mtime, ctime, btime;
	u32 rdev_major, rdev_minor;
	u32 flags;		/* TUX3_ATTR_... */
	u32 generation;
	u32 projid;
	u64 change;		/* rises with each change of whatever, but for atime that was only read */
};

/* A change of a name by which an inode has lost or got it, in a list of them: a part of that change, and gone with it. */
struct name_tie {
	struct name_change *change;
	struct name_tie *next;
};

struct inode_slot {
	bool frozen;		/* inode->frozen holds the attributes at the end of the delta */
	bool taken;		/* the back end has read the attributes of the delta */
	bool awaited;		/* an fsync of this inode waits for the commit of the delta */
	bool stored;		/* only stores through mappings have changed it, and nobody waits for them: see put_off.h */
	u32 dirty;		/* INODE_DIRTY_... in the delta; READ_ONCE() without the lock is a guess, but inside the delta */
	struct rb_root removed;	/* file_range: blocks removed in the delta, whatever the tree says */
	u64 cut;		/* DATA_END, or a long truncate from this block on: nothing at or after it is dirty */
	struct rb_root prealloc;	/* file_range: holes in these become unwritten extents */
	/*
	 * The host's lock of the inode.  Before this block writes made some dirty: data_settle_write(); of a
	 * directory: of what was made in it the newest has the number before this: create_due() in ops.c.  0:
	 * none.  Outside the delta it is a guess.
	 */
	u64 run_end;
	u64 unchecked, unchecked_end;	/* extents in these blocks lose their checksums; end 0: none */
	/* For stat and statfs, in blocks: */
	s64 extra;		/* what the delta will take (or give back) besides its dirty blocks */
	u64 paid;		/* dirty blocks that take nothing: they were preallocated */
	s64 charged;		/* blocks, to quotas; see inode_quota.h */
	u64 promised;		/* blocks that were charged to be preallocated */
	bool lost;		/* back end: something of it could not be committed */
	/* Names that it got or lost in the delta, but for born_entry: one, others, are there more?  Until the delta is released. */
	struct name_change *tie;
	struct name_tie *ties;
	bool untied;
};

#define INODE_DIRTY_ATTR	1u
#define INODE_DIRTY_DATA	2u	/* ask the host for dirty blocks */
#define INODE_DIRTY_NAMES	4u
#define INODE_DIRTY_XATTRS	8u
#define INODE_DIRTY_DELETE	16u	/* no name and out of use */
#define INODE_DIRTY_LISTING	64u	/* a directory's size, times and links, as its names have changed */
#define INODE_DIRTY_REMAP	128u	/* ranges of its data go elsewhere, or come from elsewhere: remap.h */
#define INODE_DIRTY_ATIME	32u	/* alone: it was read; that is no change for who caches what it holds */

struct tux3_inode {
	struct volume *vol;
	u64 ino;
	spinlock_t lock;		/* attr, slots, blocks, parent */
	struct tux3_attr attr;
	struct tux3_attr frozen;	/* of the back delta, if its slot says so */
	/*
	 * As committed, in volume blocks; set by the back end.  Read from the tree while vol->blocks_epoch was that: it
	 * moves when a volume becomes writable and a cut goes on, which does not know of the inode object.
	 */
	u64 blocks;
	u64 tree_size;			/* as committed, too; its object is new: 0 */
	u32 blocks_epoch;
	u32 synced_s;			/* ktime_get_ns() of the last fsync, in seconds; 0: never; a hint */
	u64 parent;			/* directories: the inode number of .. */
	struct inode_slot slot[2];
	struct data_remap *remap;	/* lock; what overrides the tree in some ranges until it is committed, or NULL */
	struct quota_owner *owner;	/* lock, and the host's of the inode; NULL: the volume has no quotas */
	struct llist_node dirty_node[2];
	/* For intents (core/intent/), under lock.  Of an inode read from the tree all are 0. */
	u64 born_delta;			/* in which it was made */
	u64 names_delta;		/* the newest in which it got or lost a name, or one was moved */
	u64 stored_delta;		/* the newest whose commit changed whether its data is inline */
	u64 changed_delta;		/* the newest in which it was changed otherwise than by its names, or names in it */
	u32 changes;			/* moves with each such change */
	u32 changes_told;		/* what it is up to this one, an intent that is durable has all of */
	u32 changes_made;		/* of a directory: up to this one the first intent that makes it; 0: there was none */
	/* Its first name, until born_delta is released.  NULL: none, or a crash could bring back somebody else by it. */
	struct tux3_inode *born_dir;
	struct name_entry *born_entry;
	u32 names_seq;			/* moves when it gets or loses a name */
	bool born_ahead;		/* an intent by which it is there, with a name, is durable; also read without the lock */
	/*
	 * An intent, this one, and those before it have all of its data but for blocks [fresh, fresh_end), which have changed
	 * since; told 0: none has.  It is durable, or not known to be.
	 */
	u64 told, fresh, fresh_end;
	bool told_durable;
	/*
	 * Where intents that are durable have put runs of its data: those of a delta may stay there when that is committed
	 * (early.h), unless told is 0, or they are in [fresh, fresh_end).
	 */
	struct early_run *early;
	bool in_tree;			/* has an ATTR item in the tree; back end */
	bool orphan_in_tree;		/* has an ORPHAN item; back end */
	bool given_back;		/* data_give_back() was called, and no commit since */
	bool cutting;			/* set by data_remove, cleared by the back end: a long truncate is under way */
	bool moving;			/* its owner is to be another, who has been refused: charges are to be exact; lock */
	bool number_returned;		/* back end: its number may be used again */
	bool deleted;			/* the back end has deleted it, or found that it never was in the tree */
	bool stuck;			/* set by the back end: the tree could not be made to say what attr says: data_commit.c */
	bool scattered;			/* when it was read it had items in several leaves: some may be where nothing can be read */
	bool many_names;		/* more than two at once, at some time since the object is in memory; host's link lock */
	u32 writing;			/* so many blocks are still to be written by who has it for that: data_note_writing() */
	u32 unsynced;			/* so many blocks commits have written that no fsync has asked for since; a hint */
	u64 goal;			/* back end: disk block after the file's last extent; 0: none */
	atomic64_t child;		/* directories: the numbers of its next files; ialloc.c */
	struct hlist_node child_link;	/* ialloc.lock: of the window that has them */
	struct name_dir *dir;		/* directories: names in memory (name.c) */
	char *target;			/* symlinks: set once, by op_create or the first symlink_read */
	struct mutex xattr_mutex;
	struct rb_root xattrs;		/* struct xattr_change (xattr.c); xattr_mutex */
	u64 xattrs_done;		/* moves when changes have been applied and go; xattr_mutex */
};

/*
 * The live attributes, and the slot of a delta, for who has inode->lock.  A single field of them is also read without it, by
 * READ_ONCE(), where others may change it.
 */
static inline struct tux3_attr *inode_attr(struct tux3_inode *inode)
{
	lockdep_assert_held(&inode->lock);
	return &inode->attr;
}

static inline struct inode_slot *inode_slot_of(struct tux3_inode *inode, u64 delta)
{
	lockdep_assert_held(&inode->lock);
	return &inode->slot[delta & 1];
}

/* For the host: the object is new, zeroed.  inode_exit before it is freed: nothing may be dirty. */
void inode_setup(struct volume *vol, struct tux3_inode *inode, u64 ino);
void inode_exit(struct tux3_inode *inode);
/* The slot as it is while the inode is not dirty in a delta: inode->lock held, or nobody knows the inode yet. */
void inode_slot_reset(struct inode_slot *slot);
/*
 * Back end, for volume_options.verify, before the delta lets the inode go: is its slot like that, and does nothing else of the
 * inode belong to the delta?  If not, the volume stops.
 */
void inode_verify_done(struct tux3_inode *inode, u64 delta);
/* Fill attr, blocks, parent from the tree.  -ENOENT: no such inode.  -EIO. */
int inode_read(struct tux3_inode *inode);
/* Outside tree edits: if the volume became writable with this object in memory, blocks becomes what the tree says. */
int inode_refresh_blocks(struct tux3_inode *inode);
void inode_add_blocks(struct tux3_inode *inode, s64 more);	/* by a commit */

/*
 * For intents: inside a delta, with the lock of the file, these blocks are about to be changed, but not removed.  The next intent
 * need not have the others, if the last one had them.
 */
void inode_note_change(struct tux3_inode *inode, u64 block, u64 count);
/*
 * The same of whatever may be changed, now or later, also without the lock of the file: the next intent has to have all that is
 * dirty.  Who comes while one begins is heard by it, or by the one after it.
 */
void inode_forget_told(struct tux3_inode *inode);
static inline void inode_note_all(struct tux3_inode *inode)
{
	if (unlikely(READ_ONCE(inode->told)))
		inode_forget_told(inode);
}

/* Was it made in this delta, with a name?  Then the tree has nothing of it yet, and its place there is paid. */
static inline bool inode_is_new(const struct tux3_inode *inode, u64 delta)
{
	return inode->born_delta == delta && inode->born_dir;
}

/* Is it being made, with nothing that a delta knows of?  Then nobody else has it, and it is not counted in quotas yet. */
static inline bool inode_is_unknown(const struct tux3_inode *inode)
{
	return !READ_ONCE(inode->in_tree) && !READ_ONCE(inode->attr.change);
}

/*
 * Have its attributes been changed in this delta?  They are logged and set once in it, however many operations change them, and
 * the first one pays for that.  Outside the delta it is a guess.
 */
static inline bool inode_attr_is_paid(const struct tux3_inode *inode, u64 delta)
{
	return READ_ONCE(inode->slot[delta & 1].dirty) & (INODE_DIRTY_ATTR | INODE_DIRTY_LISTING);
}

void inode_get_attr(struct tux3_inode *inode, struct tux3_attr *attr);	/* a consistent copy */

/*
 * Inside a delta: change attributes.  begin returns the live attributes with inode->lock held; the
 * caller edits them at once and calls end.  Marks the inode dirty in op->delta.
 */
struct tux3_attr *inode_change_begin(struct delta_op *op, struct tux3_inode *inode);
struct tux3_attr *inode_atime_begin(struct delta_op *op, struct tux3_inode *inode);	/* for a read: atime only */
struct tux3_attr *inode_stored_begin(struct delta_op *op, struct tux3_inode *inode);	/* for a store through a mapping */
struct tux3_attr *inode_named_begin(struct delta_op *op, struct tux3_inode *inode);	/* for a name that it got or lost */
void inode_change_end(struct tux3_inode *inode);
/*
 * For intents, inode->lock held.  Is it, but for its names, as a crash leaves it, if that is the newest durable delta or a later
 * one, with the intents that are durable?
 */
bool inode_is_as_told(const struct tux3_inode *inode, u64 durable);
bool inode_is_there(const struct tux3_inode *inode);	/* likewise, as something or other: without the lock */
void inode_told(struct tux3_inode *inode, u32 changes);	/* an intent of what it was at that change is durable */
/* The same with inode->lock held already. */
void inode_dirty_locked(struct delta_op *op, struct tux3_inode *inode, u32 dirty);
/* Inside a delta: dirty bits without an attribute change. */
void inode_mark_dirty(struct delta_op *op, struct tux3_inode *inode, u32 dirty);
void inode_mark_stored(struct delta_op *op, struct tux3_inode *inode);	/* INODE_DIRTY_DATA, by a store through a mapping */

struct tux3_time inode_now(struct volume *vol);

static inline bool time_is_before(const struct tux3_time *a, const struct tux3_time *b)
{
	return a->sec != b->sec ? a->sec < b->sec : a->nsec < b->nsec;
}

/* The flags of chattr(1), as FS_IOC_GETFLAGS numbers them.  To an attribute: false if there are some that we do not have. */
u32 attr_flags_to_ioctl(u32 attr_flags);
bool attr_flags_from_ioctl(u32 flags, u32 *attr_flags);
u32 attr_flags_to_xflags(u32 attr_flags);		/* as FS_IOC_FSGETXATTR has them */

/* What a new inode, whose mode is set, takes over from its directory: NODUMP, NOATIME, and the project, if that one says so. */
void attr_inherit(struct tux3_attr *attr, struct tux3_inode *dir);

/* What is inline has no block, but had one until its commit: so that du says the same then, and after a remount. */
static inline u64 attr_least_blocks(const struct tux3_attr *attr)
{
	return attr->flags & TUX3_ATTR_INLINE && attr->size;
}

void attr_to_disk(struct disk_attr *disk, const struct tux3_attr *attr, u64 blocks);
/* -EIO: no inode can have these. */
int attr_from_disk(const struct volume *vol, struct tux3_attr *attr, u64 *blocks, const struct disk_attr *disk);

/*
 * What is counted, after a change.  Where damage has made it wrong, it may come to less than nothing, or to more than there can be:
 * then it stops there, so that what is written can be read again.
 */
u64 attr_blocks_after(const struct volume *vol, u64 blocks, s64 more);
u64 attr_entries_after(u64 entries, int more);	/* of a directory */

#endif
