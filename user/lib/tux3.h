/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libtux3: a Tux3 volume in your program.
 *
 * A volume lives in a file or on a block device.  After any crash it is exactly as some delta left
 * it: a group of changes, file data included, that is committed as one.  Everything changed before
 * tux3_sync() or tux3_fsync() returned 0 is in it.
 *
 * All calls may be made from many threads at once.  Unless said otherwise they return 0 or a
 * negative errno; flags that are not listed here are -EINVAL, and so is no path, no volume or no target of a symlink.  Reference
 * counts: whatever hands out a struct tux3_node gives you a reference, which tux3_node_put() takes back.
 *
 * Units: bytes for offsets and lengths; times in seconds and nanoseconds since 1970.
 */
#ifndef TUX3_H
#define TUX3_H

#include <sched.h>		/* struct timespec, with -std=c99 too */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUX3_API __attribute__((visibility("default")))

struct tux3;		/* an open volume */
struct tux3_node;	/* a file, directory, symlink ... in use */

/* ---- volumes ---- */

struct tux3_format_options {	/* zero everything you do not care about */
	uint64_t size_bytes;	/* 0: as large as the file or device; a file is made that large */
	uint32_t block_size;	/* 4096 (0), 8192 .. 65536 */
	unsigned char uuid[16];	/* all zero: random */
	const char *label;	/* up to 64 bytes, no control characters; or NULL */
	bool no_data_csum;
	bool quota;
	bool force;		/* also over another filesystem, a partition table and the like: their signatures are wiped */
	bool no_discard;	/* do not tell the device that what the volume does not use yet holds nothing of value */
	uint32_t root_uid, root_gid, root_mode;	/* mode 0: 0755 */
};
/*
 * Make an empty volume; opts NULL: all defaults.  On failure a sentence for the user is in why, and everything is as it
 * was.  -EEXIST: there is something already, and force is not set.
 */
TUX3_API int tux3_format(const char *path, const struct tux3_format_options *opts, char *why, size_t why_size);

struct tux3_options {		/* zero everything you do not care about; 0 means the default */
	bool read_only;
	bool no_recovery;	/* with read_only: do not look at the log */
	bool accept_last;	/* keep the newest commit though data of it is missing or damaged */
	bool cut_log;		/* if the log is damaged in its middle, lose what comes after instead of failing */
	bool manual;		/* no thread of its own: commits happen in the calls that need one, and in tux3_sync() */
	bool sync_io;		/* pread/pwrite even where io_uring works: by threads, or with manual by the calls themselves */
	uint32_t age_ms;	/* commit changes at most this long after they were made; 5000 */
	uint32_t delta_ms;	/* make writers wait before a commit has more to write than the device does in this time; 1000 */
	uint64_t dirty_bytes;	/* commit when this much file data waits; 64 MiB */
	uint64_t dirty_limit_bytes;	/* make writers wait when this much does; 8 x dirty_bytes */
	uint64_t log_blocks;	/* unify when the log is this long; 16 MiB */
	uint64_t cache_bytes;	/* clean metadata kept in memory; 128 MiB */
	uint64_t data_cache_bytes;	/* clean file data kept in memory; 256 MiB */
	uint64_t names_cached;	/* clean directory entries kept in memory; 1,000,000 */
	uint32_t fsync;		/* 1: may put its file ahead of changes made before (the default); 2: never; 3: always, for tests */
	uint32_t atime;		/* 1: reads change it as with mount -o relatime (the default); 2: not of directories; 3: never */
	bool no_quota;		/* limits of quotas are not enforced; usage is kept all the same */
	bool costs;		/* for tests: compare what commits took with what was charged, kind by kind */
	uint64_t write_rate;	/* bytes per second the device is limited to, for experiments; no limit */
};
/*
 * opts NULL: all defaults; -EINVAL: a value that is not listed, or no_recovery without read_only.  Starts threads, so not before a
 * fork(), unless it is read_only, or manual with sync_io and without write_rate.  What a child of fork() has without being able to
 * use it keeps nobody out once the volume is closed; but a block device stays in use until the child ends or calls exec.
 */
TUX3_API int tux3_open(const char *path, const struct tux3_options *opts, struct tux3 **volume,
		       char *why, size_t why_size);
/*
 * Commit everything and close.  All nodes have been put: if not, a message says how many are left, the volume
 * stays open, and the answer is -EBUSY.  Else the first error since the volume was opened, or as tux3_sync(), and it is closed.
 */
TUX3_API int tux3_close(struct tux3 *volume);
/* Close as if the power had failed: nothing more is written; nodes still in use are invalid.  For tests. */
TUX3_API void tux3_abandon(struct tux3 *volume);
/*
 * Everything changed before the call is durable on return of 0.  -EIO, once: something was left out since the last call, because
 * metadata of it cannot be read; tux3_fsync() says of which file.
 */
TUX3_API int tux3_sync(struct tux3 *volume);

struct tux3_statfs {
	uint32_t block_size;
	uint64_t blocks, free_blocks, available_blocks;
	uint64_t inodes, free_inodes;
	unsigned char uuid[16];
	char label[65];
	uint64_t volume_id;
};
TUX3_API int tux3_statfs(struct tux3 *volume, struct tux3_statfs *stat);
/* The same as seen from a node: in a directory for a project with limits these are the size. */
TUX3_API int tux3_statfs_node(struct tux3_node *node, struct tux3_statfs *stat);
/* The name of the volume, up to 64 bytes, no control characters, or -EINVAL.  Durable on return 0. */
TUX3_API int tux3_set_label(struct tux3 *volume, const char *label);

/* Counter i: its name, unit, value and what it means; -ENOENT beyond the last. */
struct tux3_counter_info {
	const char *name, *unit, *what;
	uint64_t value;
};
TUX3_API int tux3_counter(struct tux3 *volume, unsigned int i, struct tux3_counter_info *counter);
/* Newest durable delta. */
TUX3_API uint64_t tux3_committed(struct tux3 *volume);

/* ---- who asks ---- */

/*
 * Credentials.  NULL wherever a pointer to one is taken: no permission checks (the caller did them, or is
 * trusted), and new files belong to 0:0.
 */
struct tux3_cred {
	uint32_t uid, gid;		/* UINT32_MAX is nobody's, here and below: -EINVAL for a new file, and for setattr */
	const uint32_t *groups;		/* supplementary */
	uint32_t group_count;
	uint32_t umask;			/* applied to modes of new files unless the directory has a default ACL */
	/* Ownership of new files, and who keeps setuid and setgid: for FUSE with default_permissions. */
	bool no_permission_checks;
	bool capable;			/* may do what CAP_FOWNER, CAP_DAC_OVERRIDE, CAP_FSETID allow (root) */
};

/* ---- nodes ---- */

struct tux3_stat {
	uint64_t ino, size, blocks_512;		/* blocks_512 counts data not yet placed too */
	uint32_t mode, uid, gid, nlink, rdev_major, rdev_minor, block_size;
	uint32_t flags, generation, projid;
	uint64_t change;			/* rises with each change but for atime; after a crash it may be lower */
	struct timespec atime, mtime, ctime, btime;
};

TUX3_API struct tux3_node *tux3_root(struct tux3 *volume);
/* By number; generation 0: any.  -ESTALE if there is none. */
TUX3_API int tux3_node_get(struct tux3 *volume, uint64_t ino, uint32_t generation, struct tux3_node **node);
TUX3_API void tux3_node_ref(struct tux3_node *node, uint64_t count);
TUX3_API void tux3_node_put(struct tux3_node *node, uint64_t count);
TUX3_API uint64_t tux3_node_ino(const struct tux3_node *node);
TUX3_API uint32_t tux3_node_mode(struct tux3_node *node);	/* S_IFMT bits never change */
TUX3_API struct tux3 *tux3_node_volume(struct tux3_node *node);
TUX3_API int tux3_stat_node(struct tux3_node *node, struct tux3_stat *stat);

#define TUX3_SET_MODE	1u
#define TUX3_SET_UID	2u
#define TUX3_SET_GID	4u
#define TUX3_SET_SIZE	8u
#define TUX3_SET_ATIME	16u
#define TUX3_SET_MTIME	32u
#define TUX3_SET_CTIME	64u	/* else ctime becomes now */
#define TUX3_SET_ATIME_NOW 128u
#define TUX3_SET_MTIME_NOW 256u
#define TUX3_SET_FLAGS	512u	/* -EOPNOTSUPP: there are some that we do not know */
#define TUX3_SET_PROJID	1024u
#define TUX3_SET_KILL	2048u	/* setuid and setgid go, as tux3_kill_privileges() says: in one delta with a new size */
/* chown clears setuid/setgid; chmod updates the access ACL's mask as POSIX.1e says. */
TUX3_API int tux3_setattr(struct tux3_node *node, const struct tux3_cred *cred, const struct tux3_stat *stat, uint32_t set);
/* May cred open a file with these flags of open(2), or do its permissions, or its being immutable or append-only, forbid it? */
TUX3_API int tux3_may_open(struct tux3_node *node, const struct tux3_cred *cred, int flags);
TUX3_API int tux3_access(struct tux3_node *node, const struct tux3_cred *cred, int mask);	/* R_OK W_OK X_OK */

/* ---- names: dir is a directory, name one component ("." and ".." work in lookup) ---- */

TUX3_API int tux3_lookup(struct tux3_node *dir, const struct tux3_cred *cred, const char *name, struct tux3_node **node);
/* Any type: mode as in mknod(2), S_IFDIR too.  node may be NULL.  -EEXIST. */
TUX3_API int tux3_mknod(struct tux3_node *dir, const struct tux3_cred *cred, const char *name, uint32_t mode,
			uint32_t rdev_major, uint32_t rdev_minor, struct tux3_node **node);
TUX3_API int tux3_tmpfile(struct tux3_node *dir, const struct tux3_cred *cred, uint32_t mode, struct tux3_node **node);
TUX3_API int tux3_symlink(struct tux3_node *dir, const struct tux3_cred *cred, const char *name, const char *target,
			  struct tux3_node **node);
TUX3_API int tux3_readlink(struct tux3_node *node, char *target, size_t size);	/* length, not terminated */
TUX3_API int tux3_link(struct tux3_node *node, const struct tux3_cred *cred, struct tux3_node *dir, const char *name);
TUX3_API int tux3_unlink(struct tux3_node *dir, const struct tux3_cred *cred, const char *name);
TUX3_API int tux3_rmdir(struct tux3_node *dir, const struct tux3_cred *cred, const char *name);
#define TUX3_RENAME_NOREPLACE	1u
#define TUX3_RENAME_EXCHANGE	2u
#define TUX3_RENAME_WHITEOUT	4u
TUX3_API int tux3_rename(struct tux3_node *old_dir, const char *old_name, struct tux3_node *new_dir,
			 const char *new_name, unsigned int flags, const struct tux3_cred *cred);

struct tux3_dirent {
	uint64_t ino;
	uint64_t next;		/* cookie to go on after this entry */
	const char *name;	/* terminated */
	unsigned char type;	/* DT_... */
};
/*
 * Entries from *cookie (0: start) on, "." and ".." included.  fn returns 0 to go on, else the listing
 * stops; with 1 the entry counts as not taken, with 2 as taken.  Returns 0 at the end, what fn returned, or -errno.
 */
typedef int (*tux3_dirent_fn)(void *ctx, const struct tux3_dirent *entry);
TUX3_API int tux3_readdir(struct tux3_node *dir, uint64_t *cookie, tux3_dirent_fn fn, void *ctx);

/* ---- parents: who has a node, from the node itself; no directory is read ---- */

struct tux3_parent {
	uint64_t dir;		/* inode number of a directory in which the node has a name */
	uint32_t generation;	/* of the directory: for tux3_node_get() */
	const char *name;	/* terminated */
};
struct tux3_parent_cursor {
	uint64_t at[2];		/* zeros to begin, then as a call has left it */
};
/*
 * The names of a node, from the cursor on.  fn and what is returned: as tux3_readdir().  Names that are there during the whole
 * listing are listed once; a node that is renamed meanwhile is never without a name.  May commit.
 */
typedef int (*tux3_parent_fn)(void *ctx, const struct tux3_parent *parent);
TUX3_API int tux3_parents(struct tux3_node *node, struct tux3_parent_cursor *cursor, tux3_parent_fn fn, void *ctx);
/*
 * The paths of an inode from the root of the volume, one with each call: its length, or 0 when there are no more.  All is as it was
 * at one moment, not before the first call.  generation 0: any.  -ESTALE: there is no such inode; -ENAMETOOLONG: more room is
 * needed for this one; -EUCLEAN: the way up is damaged.  On an error the cursor stays where it was.
 */
TUX3_API int tux3_path_of(struct tux3 *volume, uint64_t ino, uint32_t generation, struct tux3_parent_cursor *cursor,
			  char *path, size_t size);

/* ---- all inodes of a volume ---- */

/*
 * The next inodes that have a name, from number *ino on (0: from the start), at most count of them, with the same as
 * tux3_stat_node() says.  Returns how many, 0: there are no more; *ino is where to go on.  No directory is read, nothing is
 * committed, no node is made.  An inode that has a name during a whole sequence of calls is told exactly once, as it was during
 * the call that told it.
 */
TUX3_API int tux3_bulkstat(struct tux3 *volume, uint64_t *ino, struct tux3_stat *stats, unsigned int count);

/* ---- data ---- */

/*
 * How much was read or written: less than asked for at the end of the file, or where an error came after some data.
 * A write of up to 255 blocks (256 if it begins at a block) is in one delta: after a crash it is there as a
 * whole, or not at all.  A longer one is cut at multiples of 256 blocks, as is one for which space is short.
 */
TUX3_API ssize_t tux3_read(struct tux3_node *node, void *data, size_t size, uint64_t offset);
TUX3_API ssize_t tux3_write(struct tux3_node *node, const void *data, size_t size, uint64_t offset);
TUX3_API ssize_t tux3_append(struct tux3_node *node, const void *data, size_t size);	/* at the end, atomically */
/*
 * All of it in one delta, or an error and nothing done (-ENOSPC where tux3_write() would write a part), as RWF_ATOMIC has it
 * in the kernel: a power of two of bytes, from one block (tux3_stat.block_size) to 1 MiB, at a multiple of that; else -EINVAL.
 * Of 0 bytes it is 0.
 */
TUX3_API ssize_t tux3_write_atomic(struct tux3_node *node, const void *data, size_t size, uint64_t offset);
TUX3_API int tux3_truncate(struct tux3_node *node, uint64_t size);
/*
 * mode: FALLOC_FL_... of fallocate(2): 0, KEEP_SIZE, PUNCH_HOLE|KEEP_SIZE, ZERO_RANGE[|KEEP_SIZE], COLLAPSE_RANGE, INSERT_RANGE.
 * Allocating is done in pieces of 256 blocks; on -ENOSPC those that fit stay allocated.  COLLAPSE_RANGE and INSERT_RANGE are of
 * whole blocks, all of it or nothing, and durable on return of 0; -EFBIG as tux3_exchange_range().
 */
TUX3_API int tux3_fallocate(struct tux3_node *node, int mode, uint64_t offset, uint64_t length);
/*
 * Two ranges swap their contents, without a byte being copied: after a crash both have swapped or neither; durable on return of 0.
 * Offsets are at multiples of a block, and so is the length, unless both ranges end where their files do; else, and where a range
 * is not within its file or the ranges overlap, -EINVAL.  At most 8 MiB of log say what swaps: 4 bytes for each block of both
 * ranges, and 48 for each 1024 in a row on the disk (4 GiB of each file, with blocks of 4 KiB); else -EFBIG.  On an error nothing
 * was changed (but -EIO: the volume has stopped).
 */
#define TUX3_EXCHANGE_TO_EOF	1u	/* to the ends of both files, length does not matter, and the sizes are exchanged, too */
#define TUX3_EXCHANGE_DSYNC	2u	/* durable on return: that is so anyway */
#define TUX3_EXCHANGE_DRY_RUN	4u	/* only see whether the arguments are right */
#define TUX3_EXCHANGE_FILE1_WRITTEN 8u	/* what was never written of file1 stays (but behind the end of the shorter one) */

/* What a file is now: from tux3_start_commit(). */
struct tux3_freshness {
	uint64_t word[6];
};
/* fresh NULL: whatever was changed of file2 meanwhile; else -EBUSY if anything was since it was filled in. */
TUX3_API int tux3_exchange_range(struct tux3_node *file1, uint64_t offset1, struct tux3_node *file2, uint64_t offset2,
				 uint64_t length, uint64_t flags, const struct tux3_freshness *fresh);
TUX3_API int tux3_start_commit(struct tux3_node *file2, struct tux3_freshness *fresh);
/* whence SEEK_DATA or SEEK_HOLE.  -ENXIO.  What is preallocated but was never written is a hole. */
TUX3_API int64_t tux3_seek(struct tux3_node *node, uint64_t offset, int whence);
/*
 * After an error of the device the volume has stopped, and what was not committed is lost.  If that is something of this
 * node: -EIO once, then -EROFS.  If it is not, 0.  Where only metadata of this node cannot be read, what was changed of it is lost,
 * and the volume goes on: -EIO once, too.
 */
TUX3_API int tux3_fsync(struct tux3_node *node, bool data_only);
/*
 * What a change of its data by cred takes from a file: setuid and setgid, unless cred is capable (setgid that is no
 * "run as the group" stays if cred is in the group), and file capabilities in any case.  Call before tux3_write and its
 * like.  1: there was something.
 */
TUX3_API int tux3_kill_privileges(struct tux3_node *node, const struct tux3_cred *cred);

/* ---- extended attributes: names with their prefix ---- */

/* Length of the value; copies it if size is not 0; -ERANGE if it is too long, -ENODATA. */
TUX3_API ssize_t tux3_getxattr(struct tux3_node *node, const char *name, void *value, size_t size);
/* flags: XATTR_CREATE, XATTR_REPLACE.  system.posix_acl_access also sets the mode. */
TUX3_API int tux3_setxattr(struct tux3_node *node, const struct tux3_cred *cred, const char *name,
			   const void *value, size_t size, int flags);
TUX3_API int tux3_removexattr(struct tux3_node *node, const struct tux3_cred *cred, const char *name);
/* Names one after another, each terminated. */
TUX3_API ssize_t tux3_listxattr(struct tux3_node *node, char *list, size_t size);

/* ---- quotas: of volumes made with them (tux3_format_options.quota); -EOPNOTSUPP of others ---- */

/*
 * Each user, group and project may be given limits.  What would go beyond a hard one fails with -EDQUOT and changes
 * nothing (a write or an allocation does as much as may be); beyond a soft one as well, once the grace is over.  Id 0 of each
 * type has no limits.  Space is that of data and of large extended attributes, in whole blocks; what is stored inline takes none.
 */
enum tux3_quota_type { TUX3_QUOTA_USER, TUX3_QUOTA_GROUP, TUX3_QUOTA_PROJECT };

struct tux3_quota {
	uint64_t bytes, inodes;		/* used, as of the newest committed delta: exact after tux3_sync() */
	uint64_t bytes_soft, bytes_hard;	/* limits, 0: none; become whole blocks, rounded up */
	uint64_t inodes_soft, inodes_hard;
	int64_t bytes_time, inodes_time;	/* when the grace ends, in seconds since 1970; 0: not above the soft limit.
						   Of id 0: how long it is, in seconds, for all ids of the type; 604,800 */
};

#define TUX3_QUOTA_BYTES_SOFT	1u
#define TUX3_QUOTA_BYTES_HARD	2u
#define TUX3_QUOTA_INODES_SOFT	4u
#define TUX3_QUOTA_INODES_HARD	8u
#define TUX3_QUOTA_BYTES_TIME	16u
#define TUX3_QUOTA_INODES_TIME	32u

TUX3_API int tux3_quota_get(struct tux3 *volume, enum tux3_quota_type type, uint32_t id, struct tux3_quota *quota);
/* The first id from *id on that has something or has limits: *id, and its quota.  -ENOENT: there is none. */
TUX3_API int tux3_quota_next(struct tux3 *volume, enum tux3_quota_type type, uint32_t *id, struct tux3_quota *quota);
/*
 * set: TUX3_QUOTA_...  Limits hold from now on, and are durable with the next commit.  -EINVAL: limits for id 0; -ERANGE: bytes do
 * not fit into 63 bits, or a grace into 32.
 */
TUX3_API int tux3_quota_set(struct tux3 *volume, enum tux3_quota_type type, uint32_t id, const struct tux3_quota *quota,
			    uint32_t set);
/* May calls of this thread exceed limits from now on, as root may?  Returns what was so before; false at first. */
TUX3_API bool tux3_quota_exempt(bool exempt);

/* ---- scrub: read all that a volume has on its device, and verify it, while it is in use ---- */

struct tux3_scrub {
	unsigned char cursor[32];	/* zeros at first; then as it came back, also if the volume was closed since */
	uint64_t budget_bytes;		/* read about so much */
	/* What this portion has verified: */
	uint64_t nodes, maps, log_blocks, blocks;	/* anchors are among the nodes; blocks: of data */
	uint64_t bytes_read;
	uint64_t bytes_done, bytes_all;	/* for progress: of the second, an estimate, the first was done in this portion */
	uint32_t problems;
	bool over;			/* that was the last portion */
};

struct tux3_scrub_problem {
	const char *kind;		/* "anchor", "log", "map", "node", "data", "xattr" */
	const char *why;		/* a sentence without its end */
	const char *path;		/* of the inode; NULL: none, or a long one */
	bool unreadable;		/* the device cannot read it */
	uint64_t ino, ino_last;		/* data, xattr: of the inode ino; node: those that may have something there */
	uint64_t offset;		/* data: in the file, bytes; node: its level; map: the group */
	uint64_t block, count;		/* where it is, and how many in a row */
};
typedef void (*tux3_scrub_fn)(void *ctx, const struct tux3_scrub_problem *problem);

/*
 * One portion, from any thread; fn is called for each problem, or is NULL.  What changes meanwhile is no problem, and nobody
 * waits for a scrub.  -ESTALE: the cursor is that of another volume; -EINVAL; -ENOMEM; -EIO: the volume has stopped.
 */
TUX3_API int tux3_scrub(struct tux3 *volume, struct tux3_scrub *scrub, tux3_scrub_fn fn, void *ctx);

/* ---- check: names, links, counts, quotas and space against each other, while the volume is in use ---- */

struct tux3_check_problem {
	unsigned int code;		/* as fsck.tux3 tells them */
	const char *name, *text;	/* "links"; a sentence */
	const char *path;		/* of the inode; NULL: it has none that can be told */
	uint64_t ino, block;		/* 0: none */
};
typedef void (*tux3_check_fn)(void *ctx, const struct tux3_check_problem *problem);

/*
 * What fsck.tux3 looks at, of the volume as it is at one moment after the call; others go on.  All of it is read, but for data.
 * fn is called for each problem, up to 1,000; -EINVAL: it is NULL.  -ESTALE: space is too short to keep that state for so long;
 * -EBUSY: somebody else checks; if the volume has stopped, the error that stopped it.
 */
TUX3_API int tux3_check(struct tux3 *volume, tux3_check_fn fn, void *ctx);

/* ---- paths: from the root, symlinks followed unless NOFOLLOW; for programs that embed a volume ---- */

#define TUX3_NOFOLLOW	1u	/* do not follow a symlink in the last component */
#define TUX3_CREATE	2u	/* make a regular file of mode if there is none */
#define TUX3_EXCL	4u
#define TUX3_PARENTS	8u	/* make missing directories */
TUX3_API int tux3_path(struct tux3 *volume, const struct tux3_cred *cred, const char *path, unsigned int flags,
		       uint32_t mode, struct tux3_node **node);
TUX3_API int tux3_path_mkdir(struct tux3 *volume, const struct tux3_cred *cred, const char *path, uint32_t mode);
/* Directories too, if empty. */
TUX3_API int tux3_path_unlink(struct tux3 *volume, const struct tux3_cred *cred, const char *path);
TUX3_API int tux3_path_rename(struct tux3 *volume, const struct tux3_cred *cred, const char *from, const char *to,
			      unsigned int flags);

/* "0.1.0" */
TUX3_API const char *tux3_version(void);

#ifdef __cplusplus
}
#endif

#endif
