/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The oracle: a file system in plain memory that says what a volume must look like.
 *
 * A struct m_state is the whole of it at one moment.  States share their inodes: an inode with more
 * than one reference is copied before it is changed (model.c), so that every boundary of a delta can
 * be kept.  Contents of files and xattrs are not stored, only which bytes came from which pattern (rng.h).
 *
 * model_apply() makes one operation on a state and returns what the file system must return.
 */
#ifndef TUX3_SIM_MODEL_H
#define TUX3_SIM_MODEL_H

#include <sys/types.h>
#include <linux/types.h>

#define M_NONE		(~0u)		/* no inode */
#define M_ROOT		0u
#define SIM_SLOTS	4u		/* open files: "@0" .. "@3" as the first part of a path */
#define SIM_PATH_MAX	64u
#define SIM_LONG_NAME	'~'		/* a name that ends with this stands for one of 255 bytes */

/* Bytes [start, end) are those of the pattern `seed`, from start - moved on. */
struct m_extent {
	u64 start, end, seed, moved;
};

struct m_xattr {
	char name[24];
	u32 len;
	u64 seed;
};

struct m_entry {
	char name[SIM_PATH_MAX];
	u32 id;
	u64 got;		/* another number each time that somebody gets the name */
};

struct m_inode {
	u32 refs;
	u32 id;			/* index in the state */
	u64 ino;		/* as the volume said; 0: not known */
	u32 mode, uid, gid, nlink, rdev_major, rdev_minor;
	u64 size;		/* not of directories: those have entry_count */
	u64 mtime, ctime, btime, atime;	/* ns */
	/* If mtime is still mtime_high, the volume may have any from mtime_low on; 0: not.  So for ctime. */
	u64 mtime_low, mtime_high, ctime_low, ctime_high;
	u32 parent;		/* directories */
	bool loose;		/* compared elsewhere: contents, size, times, xattrs */
	bool tmpfile;		/* may be linked though nlink is 0 */
	char target[SIM_PATH_MAX];
	struct m_entry *entries;
	u32 entry_count;
	struct m_extent *extents;	/* sorted, disjoint */
	u32 extent_count;
	struct m_xattr *xattrs;
	u32 xattr_count;
};

/* Limits of users and groups, by type and id; those of id 0 are not used. */
#define SIM_QUOTA_TYPES	2u
#define SIM_QUOTA_IDS	4u

struct m_limits {
	u64 soft, hard, inodes;		/* in blocks; 0: none */
};

struct m_state {
	u32 refs;
	u32 block_size;
	u32 count;
	struct m_inode **inodes;	/* by id; NULL: gone */
	u32 slots[SIM_SLOTS];		/* open files: ids or M_NONE */
	struct m_limits limits[SIM_QUOTA_TYPES][SIM_QUOTA_IDS];
	u64 version;			/* changes with every successful change */
};

/* One operation of a workload.  Paths are relative to the root: "A/foo", "@1", "" for the root itself. */
#define SIM_OPS(X) \
	X(CREATE, "create") X(MKDIR, "mkdir") X(MKNOD, "mknod") X(SYMLINK, "symlink") X(LINK, "link") \
	X(UNLINK, "unlink") X(RMDIR, "rmdir") X(RENAME, "rename") X(WRITE, "write") X(APPEND, "append") \
	X(TRUNCATE, "truncate") X(FALLOCATE, "fallocate") X(SETATTR, "setattr") X(SETXATTR, "setxattr") \
	X(REMOVEXATTR, "removexattr") X(OPEN, "open") X(CLOSE, "close") X(TMPFILE, "tmpfile") \
	X(FSYNC, "fsync") X(FDATASYNC, "fdatasync") X(SYNC, "sync") X(COMPARE, "compare") X(NONE, "none") X(QUOTA, "quota") \
	X(EXCHANGE, "exchange") X(COLLAPSE, "collapse") X(INSERT, "insert")

enum sim_op_kind {
#define X(NAME, name) SIM_##NAME,
	SIM_OPS(X)
#undef X
	SIM_OP_KINDS
};

#define SIM_ATOMIC	1u		/* tux3_write_atomic() */

struct sim_op {
	enum sim_op_kind kind;
	char a[SIM_PATH_MAX], b[SIM_PATH_MAX];	/* b: new name, symlink target, xattr name; the second file of an exchange */
	u64 offset2;		/* in that one */
	u64 offset, len;	/* len: also size of truncate, length of an xattr value */
	u64 seed;		/* what is written */
	u32 mode;		/* permission bits, or type and permissions (mknod), fallocate's mode, slot */
	u32 flags;		/* exchange, rename, setxattr, TUX3_SET_... of setattr, SIM_ATOMIC of write, type of a quota */
	struct m_limits limits;	/* of a quota, for uid */
	u32 uid, gid, major, minor;
	u64 mtime;
};

const char *sim_op_name(enum sim_op_kind kind);
void sim_op_print(const struct sim_op *op, char *text, size_t size);

struct m_closure;

struct m_state *model_new(u32 root_mode, u64 now);
struct m_state *model_snapshot(const struct m_state *state);	/* to keep or to change */
struct m_state *model_copy_all(const struct m_state *state);	/* shares nothing: for another thread */
void model_put(struct m_state *state);		/* NULL allowed */

/*
 * The operation at time now.  0 or the -errno that is expected, and then nothing changed.  write, append: as
 * if op->len bytes were written.
 */
int model_apply(struct m_state *state, const struct sim_op *op, u64 now);
/*
 * A write or fallocate of which only the batches up to byte offset + bytes were done.  Zeroing first makes the
 * whole range a hole and then allocates it.
 */
int model_apply_part(struct m_state *state, const struct sim_op *op, u64 bytes, u64 now);
/* The inode that the operation made, if it did: to note its number. */
u32 model_created(const struct m_state *state, const struct sim_op *op);
void model_set_ino(struct m_state *state, u32 id, u64 ino);
/* Is there another inode in use with this number? */
bool model_ino_taken(const struct m_state *state, u64 ino, u32 but);
/*
 * An fsync has put inode id, as it is in state then, on top of this older state: attributes and contents, and its names, with
 * what became of whom they led to, and where those are now; of a directory the names in it, and what follows from them.  New
 * directories are made, as far as any of that is in them.
 * NULL, or why that cannot be; what is left of the state then is of no use.
 */
const char *model_put_ahead(struct m_state *state, const struct m_state *then, u32 id, const struct m_closure *closure);
/*
 * Which names the intent of such an fsync says: all that one of these states, on which it must hold, has otherwise.  closure of
 * model_put_ahead() NULL: as if there were that one only.
 */
#define M_CLOSURE 64u
#define M_BASES 8u
struct m_closure {
	u32 count;
	struct {
		u32 dir;
		char name[SIM_PATH_MAX];
	} names[M_CLOSURE];
};
void model_find_closure(struct m_state *const *bases, u32 count, const struct m_state *then, u32 id, struct m_closure *closure);
/* The same names, attributes and xattrs, but for the times of access and birth. */
bool model_same_dir(const struct m_state *a, const struct m_state *b, u32 id);
/* Is this not its time? */
bool model_mtime_differs(const struct m_inode *inode, u64 mtime);
bool model_ctime_differs(const struct m_inode *inode, u64 ctime);
/* The volume was closed or crashed: nothing is open, what has no name is gone. */
void model_forget_open(struct m_state *state);

/* Lookup. path may be a slot.  Returns the id, or M_NONE and *err. */
u32 model_lookup(const struct m_state *state, const char *path, int *err);
/* The directory and last component of a path. */
u32 model_parent(const struct m_state *state, const char *path, const char **name, int *err);
struct m_entry *model_entry(const struct m_inode *dir, const char *name);
struct m_xattr *model_xattr(const struct m_inode *inode, const char *name);
/* A path to the inode, for messages and workloads; false if it has none. */
bool model_path(const struct m_state *state, u32 id, char *path, size_t size);

/* model_ops.c uses these of model.c: */
struct m_inode *model_change(struct m_state *state, u32 id);	/* for writing */
struct m_inode *model_add_inode(struct m_state *state, u32 mode, u64 now);
void model_add_entry(struct m_state *state, u32 dir, const char *name, u32 id);
void model_remove_entry(struct m_state *state, u32 dir, const char *name);
void model_drop_if_unused(struct m_state *state, u32 id);
void model_punch(struct m_inode *inode, u64 start, u64 end);
void model_put_extent(struct m_inode *inode, u64 start, u64 end, u64 seed);
/* Bytes [from, from + len) come to another place of this inode, or to another inode, where nothing is. */
void model_copy_range(struct m_inode *to, u64 at, const struct m_inode *from, u64 start, u64 len);

#endif
