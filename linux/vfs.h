/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The VFS binding: what its parts share.  With core/ it is tux3.ko.
 *
 *	module.c	loading and unloading, slab caches
 *	super.c		mount, remount, umount, statfs, sync, freeze		options.c  mount options
 *	inode.c		inode objects, their life, attributes			sysfs.c	   /sys/fs/tux3
 *	namei.c		names: lookup, create, link, unlink, rename		dir.c	   listing
 *	folio.c		which blocks of a folio are dirty in which delta (folio.h)
 *	dirty.c		where a file is dirty
 *	writeback.c	the back end's view of cached data: host.h's data_ functions; ->writepages
 *	read.c		filling folios from the disk, verified			write.c	   writes
 *	direct.c	direct reads, into the caller's memory
 *	mmap.c		faults that make a page writable			size.c	   truncate, fallocate
 *	swap.c		files that are swapped to
 *	regain.c	other memory for blocks whose memory has failed
 *	file.c		the rest of file operations: fsync, seek, fiemap ...	xattr.c, acl.c
 *	ioctl.c		file attributes, trim, shutdown, label			export.c   NFS handles
 *	ioctl_parents.c	parents, and paths					ioctl_inodes.c  bulkstat
 *	ioctl_scrub.c	verifying what is on the device, in use
 *	ioctl_exchange.c  contents that swap, parts of files that come and go
 *	device.c	the block device as the core wants it (device.h)
 *	compat.h	differences between kernel versions			trace.c	   trace points
 *	quota.c		quotactl, df of a project's directory
 *
 * Two views of an inode.  core.attr is the truth: operations change it, inside a delta.  The VFS's
 * own fields (i_mode, i_size, times, nlink ...) are a copy for the VFS and for generic code, brought up to date by whoever
 * made the change, with node_pull(), before it drops the lock that serializes such changes (i_rwsem; for times core.lock
 * is enough).  The size of a regular file is the one field that is also written by hand (i_size_write), together with attr.size.
 *
 * Life of an inode.  References in i_count are of four kinds: *users* (dentries, and through them open files and mappings; for a
 * moment who looks it up by number, drop_caches, the flusher, a change of its cgroup); *pins* (host->inode_grab: one for each
 * delta in which it is dirty, at most two); and one each of the put worker (NODE_PUT) and the reaper (NODE_REAP).
 *
 *	state	names	users	pins	workers	what it is
 *	NEW	0, 1	1	0-2	0	I_NEW: being made or read.  Lookups by number wait, or get an error while it is made
 *	USED	> 0	> 0	0-2	0
 *	DIRTY	> 0	0	1-2	0	a delta keeps it
 *	CACHED	> 0	0	0	0	on the VFS's LRU list, or kept by its pages
 *	ORPHAN	0	> 0	0-2	0-2	has an orphan item once it is committed
 *	LEFT	0	0	1-4 in all	nobody uses it: to be deleted
 *	DEAD	0	0	0-2	0-2	NODE_IS_DEAD: some commit deletes it, or has.  Never used again; on the hash
 *							until its last pin goes
 *	GOING	any	0	0	0	I_FREEING: being evicted
 *
 *	event				from -> to			guarded by
 *	lookup by number (node_get)	CACHED DIRTY -> USED, LEFT ->	i_lock, in iget_locked().  DEAD is seen after the
 *					ORPHAN; DEAD: -ESTALE; GOING:	reference was taken, which goes again.  A handle of
 *					waits until it is gone		an ORPHAN that nobody has open: -ESTALE
 *	changed (host_inode_grab)	a pin more			the reference of who changes it: so never GOING
 *	last name goes			USED -> ORPHAN			its i_rwsem.  node_unnamed(): maybe to the reaper
 *	last user goes			USED -> DIRTY, CACHED		i_lock, from i_count 0 to node_drop()'s answer.  It gives
 *					ORPHAN -> LEFT			a LEFT one that nothing pins to the put worker
 *	put worker (put_one)		LEFT: data_forget() pins it	i_lock: unused(); NODE_FORGOTTEN: only once
 *	commit asks host_inode_kill	LEFT -> DEAD; ORPHAN stays	i_lock: unused(); clears NODE_FORGOTTEN of an ORPHAN
 *	reaper (reap_kill)		LEFT -> DEAD, if the front	the delta it is in; i_lock: unused()
 *					delta knows it
 *	commit is done (.._release)	a pin less; DIRTY -> CACHED;	i_lock.  Without a name, or not to be cached: the put
 *					LEFT, DEAD: to the put worker	worker drops the reference, for the back end never evicts
 *									(nor does it make a time of lazytime a change)
 *	number used again		DEAD: off the hash		new_number(): a number is free when the deletion is durable
 *	flusher (node_grab_living)	a user for a moment, or not if	i_lock, in igrab(); dropped by node_put_later()
 *					DEAD or GOING
 *	reclaim, drop_caches		CACHED -> GOING			i_lock
 *	last reference of DEAD		DEAD -> GOING			i_lock
 *	evicted				GOING: gone			waits for the flusher (I_SYNC), which never waits for an
 *									eviction; so who evicts must not be the back end
 *	umount (puts_closed)		CACHED LEFT DEAD -> GOING with	s_umount: no flusher; so the back end may evict, too
 *					the last reference
 *	volume stops after an error	LEFT: its orphan item stays	pins go when the volume is closed
 *
 * Who takes a reference for a moment makes a LEFT one look used: unused() errs on that side only.  Then the commit leaves it,
 * and its pin, the last to go, brings it to the put worker again.  Nothing of this waits for memory with a lock held: evicting
 * is done by reclaim, the workers and users; the back end allocates without calling back (memalloc_nofs), so it meets no eviction.
 *
 * The put worker (workqueue) drops references for those who must not.  The reaper (the same worker, 10 ms after the first of a
 * batch) does not wait for the commit with giving back the memory of a removed file: an inode without a name that nobody
 * uses is made DEAD, what it has dirty in the front delta is forgotten, and its page cache truncated.  What the back delta
 * needs of it stays (folio.h).
 *
 * Lock order, outermost first:
 *	sb_start_write, s_vfs_rename_mutex
 *	i_rwsem (parents before children, as the VFS says)
 *	mmap_lock, where a page fault comes in (its own side: sb_start_pagefault)
 *	mapping->invalidate_lock.  Inside it sb_start_intwrite is only tried (strays; a frozen volume is waited for without)
 *	folio lock of a folio that is being filled for the first time: nobody else waits for it inside a delta
 *	>>> delta_enter .. delta_leave: nothing is waited for here: folio locks are only tried <<<
 *	delta.commit_mutex; below it the back end takes folio locks
 *	i_mmap_rwsem and page table locks, where pages are write-protected or unmapped (mmap.c; from mprotect and fork, too)
 *	node->data_lock, core.lock, i_lock, i_pages lock
 *
 * So with a folio lock held of a folio that is dirty in some delta, never call delta_enter() or wait for a commit.  Nor for its
 * writeback, unless it leaves the page cache.  Inside a delta user memory is only touched with page faults disabled.
 */
#ifndef TUX3_LINUX_VFS_H
#define TUX3_LINUX_VFS_H

#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/llist.h>
#include <linux/pagemap.h>
#include <linux/shrinker.h>
#include <linux/workqueue.h>

#include "core/volume.h"
#include "core/data/data.h"
#include "core/inode/xattr.h"
#include "linux/device.h"
#include "linux/compat.h"

/* ---- inodes ---- */

/* The list of the back delta, to be searched. */
struct back_index {
	size_t count, done;		/* so many, and so many of them have been taken from the list, in their order */
	struct folio_state *state[];
};

struct tux3_node {
	struct tux3_inode core;

	/* Cached data of a regular file: folio.c.  data_lock protects the folio states of this file. */
	spinlock_t data_lock;
	struct list_head dirty[2];	/* struct folio_state.link[], by delta & 1 */
	u64 dirty_blocks[2];
	bool sorted;			/* the list of the back delta is in order, and the back end's alone */
	bool sorting;			/* it is just being put in order: nobody may look at it */
	struct back_index *back;	/* then, if it is long; else NULL */
	atomic_t cleaning;		/* so many take PG_dirty from folios that are dirty in no delta */
	atomic_t redirtying;		/* so many make strays dirty that NODE_STRAYS does not tell of any more */
	struct folio_state *cursor;	/* back end: where data_next() or data_write() was */
	struct folio_state *unsettled;	/* back end: from here to the cursor the last data_write() has sent blocks */

	atomic_t pins;			/* references of deltas; grab: core.lock */
	unsigned long flags;		/* NODE_... */
	struct llist_node put_link;	/* tux3_sb.puts */
	struct list_head reap_link;	/* tux3_sb.reap */

	struct inode vfs;
};

enum node_flags {
	NODE_IS_DEAD,		/* being deleted; set under i_lock */
	NODE_PUT,		/* on tux3_sb.puts; owns a reference (inode.c) */
	NODE_FORGOTTEN,		/* data_forget() was called; the back end will ask inode_kill() */
	NODE_REAP,		/* on tux3_sb.reap */
	NODE_SWAP,		/* a swap file: no block is or gets dirty (swap.c); set with i_rwsem and invalidate_lock */
	NODE_STRAYS,		/* has folios that file_redirty_strays() must look at */
	NODE_UNTOLD,		/* stores may come to pages that no fault has announced: see folio_find_strays() */
	NODE_LOST,		/* node_lost() was called */
	NODE_PUTS_OFF_MODE,	/* i_rwsem: node_setattr() is called by node_remove_privs() */
	NODE_MODE_TO_COME,	/* i_rwsem: what it has put off: core.attr.mode is to become i_mode */
};

static inline struct tux3_node *node_of(struct inode *inode)
{
	return container_of(inode, struct tux3_node, vfs);
}

static inline struct tux3_node *core_node(struct tux3_inode *inode)
{
	return container_of(inode, struct tux3_node, core);
}

static inline struct tux3_inode *core_of(struct inode *inode)
{
	return &node_of(inode)->core;
}

static inline struct inode *vfs_of(struct tux3_inode *inode)
{
	return &core_node(inode)->vfs;
}

/* ---- mounts ---- */

struct tux3_options {		/* options.c; numbers as in struct volume_options, 0: its default */
	u32 age_ms;
	u64 dirty_bytes;
	u64 cache_bytes;
	u64 snapshot_bytes;	/* writeback.c */
	u64 names_cached;
	u32 fsync;
	bool norecovery;
	bool acceptlast, cutlog;	/* for this mount: see core/log/log_end.c */
	bool discard;
	bool noacl;
	bool noquota;
	bool costs;
};

struct tux3_sb {
	struct super_block *sb;
	struct volume *vol;
	struct tux3_device *dev;		/* device.h */
	struct tux3_options options;
	bool mounted;				/* successfully: that was told */
	struct shrinker *shrinker;		/* clean tree nodes and directory entries */
	struct kobject kobj;			/* sysfs.c */
	struct completion kobj_gone;

	/* writeback.c, commit_mutex: the commit under way */
	u64 commit_delta;
	u64 commit_bytes;			/* of data that the device could begin with early */
	u64 snapshot_blocks;			/* so many may still be taken by snapshots */
	struct tux3_node *stretch_node;		/* the stretch that unmap_stretch() was last called for */
	pgoff_t stretch;

	/* inode.c */
	struct workqueue_struct *workqueue;
	struct llist_head puts;			/* tux3_node.put_link */
	struct work_struct put_work;
	bool puts_closed;			/* the volume is being unmounted: see node_close_puts() */
	spinlock_t reap_lock;
	struct list_head reap;			/* reap_lock: tux3_node.reap_link */
	unsigned int reap_count;		/* reap_lock */
	struct delayed_work reap_work;

	struct work_struct stopped_work;	/* super.c */
	int stopped_err;

	struct rw_semaphore xattr_locks[16];	/* xattr.c */
};

static inline struct tux3_sb *sb_of(struct super_block *sb)
{
	return sb->s_fs_info;
}

/* All is committed, and nothing is waited for with s_umount held: thawing needs that. */
static inline bool super_is_frozen(struct super_block *sb)
{
	return sb->s_writers.frozen >= SB_FREEZE_FS;
}

static inline struct volume *vol_of(struct inode *inode)
{
	return node_of(inode)->core.vol;
}

/* module.c */
extern struct kmem_cache *tux3_node_cache, *tux3_folio_state_cache;

/* super.c, options.c, sysfs.c */
extern struct file_system_type tux3_fs_type;
bool host_lacks_time(struct volume *vol);
void host_stopped(struct volume *vol, int err);
extern const struct fs_parameter_spec options_spec[];
int options_parse(struct fs_context *fc, struct fs_parameter *param);	/* fc->fs_private: struct tux3_options */
int options_show(struct seq_file *seq, struct dentry *root);
int sysfs_init(void);
void sysfs_exit(void);
int sysfs_add(struct tux3_sb *sbi);
void sysfs_remove(struct tux3_sb *sbi);

/* ---- inode.c ---- */

void vfs_now(struct volume *vol, struct timespec64 *now);	/* inode.c; see COMPAT_NOW */
extern const struct tux3_host_ops vfs_host_ops;		/* inode_ functions from inode.c, data_ from writeback.c */

struct inode *node_alloc(struct super_block *sb);	/* ->alloc_inode */
void node_free(struct inode *inode);			/* ->free_inode */
int node_drop(struct inode *inode);			/* ->drop_inode */
void node_evict(struct inode *inode);			/* ->evict_inode */

/* The inode with this number, read if need be. -ESTALE: there is none (any more). */
struct inode *node_get(struct super_block *sb, u64 ino);
/*
 * A new inode object for a child of dir: its number from ialloc_new, owner and mode as POSIX says; hashed and locked (I_NEW).
 * Then an op_ makes it real, and node_created() goes on; or node_failed().
 */
struct inode *node_new(struct mnt_idmap *idmap, struct inode *dir, umode_t mode, dev_t rdev);
/* Pulls attributes; the caller then calls d_instantiate_new() or unlock_new_inode(). */
void node_created(struct inode *inode);
void node_failed(struct inode *inode);		/* number back, object gone */
void node_pull(struct inode *inode);		/* VFS fields = core.attr */
void node_set_ops(struct inode *inode);		/* i_op, i_fop, a_ops, folio sizes, from i_mode */
/* After an unlink or rename: it may have lost its last name; may queue it for the reaper. */
void node_unnamed(struct inode *inode);

int node_getattr(struct mnt_idmap *idmap, const struct path *path, struct kstat *stat, u32 mask, unsigned int flags);
/* The operation has changed the inode: with -o sync it is durable before its caller goes on. */
int node_synced(struct inode *inode);
int node_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *attr);
/*
 * For who is going to change a file's data, with i_rwsem: file_remove_privs(), but that the mode changes in the delta of
 * the operation: in node_set_mode(), between inode_change_begin() and _end().  The second one does what no
 * delta has done, and always follows.
 */
int node_remove_privs(struct file *file);
int node_remove_privs_end(struct inode *inode);
static inline void node_set_mode(struct tux3_node *node, struct tux3_attr *attr)
{
	if (unlikely(test_bit(NODE_MODE_TO_COME, &node->flags))) {
		WRITE_ONCE(attr->mode, node->vfs.i_mode);
		clear_bit(NODE_MODE_TO_COME, &node->flags);
	}
}
int node_update_time_op(UPDATE_TIME_ARGS);
void node_dirty(struct inode *inode, int flags);	/* ->dirty_inode: for lazytime */

int node_grab_init(struct tux3_sb *sbi);	/* workers */
void node_flush_puts(struct tux3_sb *sbi);	/* all references given to the workers are dropped.  Not with commit_mutex */
/*
 * Before generic_shutdown_super(): what is without a name and use is told to the back end, and from then on the last
 * iput() evicts, whatever it is.  In put_super, after a commit and before volume_close(): node_flush_puts() once more.
 */
void node_close_puts(struct tux3_sb *sbi);
void node_grab_exit(struct tux3_sb *sbi);

/*
 * For those who found an inode without having a reference (the flusher).  grab: take one, if the inode is neither DEAD nor being
 * evicted.  put: drop it; never evicts, since the eviction would wait for the caller.
 */
bool node_grab_living(struct tux3_node *node);
void node_put_later(struct tux3_node *node);

/* Host functions of the inode kind (host.h). */
void host_inode_grab(struct tux3_inode *inode);
void host_inode_release(struct tux3_inode *inode);
bool host_inode_kill(struct tux3_inode *inode);
bool host_inode_peek(struct volume *vol, u64 ino, struct tux3_attr *attr, u64 *blocks);
void host_settle_unused(struct volume *vol);

static inline struct timespec64 time_to_vfs(struct tux3_time time)
{
	return (struct timespec64){ .tv_sec = time.sec, .tv_nsec = time.nsec };
}

static inline struct tux3_time time_from_vfs(struct timespec64 time)
{
	return (struct tux3_time){ .sec = time.tv_sec, .nsec = time.tv_nsec };
}

/* ---- names: namei.c, dir.c, xattr.c, acl.c, export.c ---- */

extern const struct inode_operations dir_inode_ops, symlink_inode_ops, special_inode_ops;
extern const struct file_operations dir_file_ops;
extern const struct xattr_handler * const xattr_handlers[];
extern const struct export_operations export_ops;
/* What an old handle is of; with a reference.  -ESTALE: it is no more, or about to go. */
struct inode *node_get_handle(struct super_block *sb, u64 ino, u32 generation);

ssize_t node_listxattr(struct dentry *dentry, char *buffer, size_t size);
struct posix_acl *node_get_acl(struct inode *inode, int type, bool rcu);
int node_set_acl(struct mnt_idmap *idmap, struct dentry *dentry, struct posix_acl *acl, int type);
/* xattr_get() and xattr_set() of the core, with the lock that keeps a value's blocks while it is read.  Outside a delta. */
int node_xattr_get(struct inode *inode, const char *name, void *value, size_t size);
int node_xattr_set(struct inode *inode, const char *name, const void *value, size_t size, unsigned int flags,
		   const u32 *new_mode);
/* chmod: 1: the mode was set together with the inode's ACL, 0: it has none. */
int node_acl_chmod(struct inode *inode, umode_t mode);
/* A new inode's ACLs and mode from its directory's default ACL, and security labels; before it gets a name. */
int node_init_acl(struct inode *inode, struct inode *dir);
int node_init_security(struct inode *inode, struct inode *dir, const struct qstr *name);

/* ---- data: folio.c and friends; see folio.h ---- */

extern const struct inode_operations file_inode_ops;
extern const struct file_operations file_file_ops;
extern const struct address_space_operations file_aops;

/*
 * size.c: i_rwsem held exclusively.  set: what else, of attr, goes into the delta of the truncate (OP_ATTR_...; node_pull()
 * follows).
 */
int file_truncate(struct inode *inode, loff_t size, const struct tux3_attr *attr, u32 set);
long file_fallocate(struct file *file, int mode, loff_t offset, loff_t len);
int file_set_apart(struct inode *inode);	/* data_set_apart() */
/* ioctl_exchange.c: a part is taken out, or put in.  i_rwsem held exclusively. */
int file_shift(struct inode *inode, bool insert, u64 offset, u64 len);
/* swap.c: a_ops; swapon() holds i_rwsem. */
int file_swap_activate(struct swap_info_struct *swap, struct file *file, sector_t *span);
void file_swap_deactivate(struct file *file);
/* writeback.c: the volume has stopped, and what is not committed of this inode never will be: its wb_err tells, once. */
void node_lost(struct tux3_node *node);
/* file.c */
int file_fsync(struct file *file, loff_t start, loff_t end, int datasync);

/* ---- ioctl.c, ioctl_parents.c, ioctl_inodes.c ---- */

long node_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
long node_ioctl_parents(struct file *file, unsigned int cmd, void __user *arg);	/* ioctl_parents.c; -ENOTTY: not one of these */
long node_ioctl_inodes(struct file *file, unsigned int cmd, void __user *arg);	/* ioctl_inodes.c */
long ioctl_scrub(struct super_block *sb, void __user *user);	/* ioctl_scrub.c */
long ioctl_hold(struct super_block *sb, void __user *user);
long node_ioctl_exchange(struct file *file, unsigned int cmd, void __user *user);	/* ioctl_exchange.c */
int node_fileattr_get(struct dentry *dentry, struct file_kattr *fa);
int node_fileattr_set(struct mnt_idmap *idmap, struct dentry *dentry, struct file_kattr *fa);

/* quota.c */
struct kstatfs;
void super_set_quota(struct tux3_sb *sbi);
void quota_statfs(struct inode *inode, struct kstatfs *stat);
bool host_quota_exempt(struct volume *vol);
void host_quota_told(struct volume *vol, u32 type, u32 id, bool inodes, enum quota_event event);

#endif
