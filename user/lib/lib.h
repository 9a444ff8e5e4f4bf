/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libtux3 inside: what its files share.
 *
 *	volume.c	open, close, statfs, counters
 *	statistics.c	what a volume counts, as text
 *	format.c	making a volume, or leaving everything as it is
 *	icache.c	inodes in use and lately used, by number
 *	buffer.c	memory for cached file data
 *	file_cache.c	the cached blocks of a file
 *	file_fill.c	reading blocks into the cache, readahead
 *	file_io.c	read, write, append, fsync
 *	file_size.c	truncate, fallocate
 *	file_exchange.c	contents that swap, parts taken out or put in
 *	file_seek.c	SEEK_DATA, SEEK_HOLE
 *	host.c		what the core's back end asks of us
 *	names.c		lookup, creation, removal, readdir
 *	rename.c	rename, and locking several directories
 *	attr.c		stat, setattr, atime
 *	perm.c		may these credentials do this, and do the inode's flags allow it?
 *	acl.c		POSIX ACLs
 *	xattr.c		extended attributes and their namespaces
 *	path.c		paths
 *	parents.c	parents, and paths of inodes
 *	inodes.c	all inodes of a volume
 *	quota.c		limits of users, groups and projects
 *	scrub.c		verifying what is on the device, of a volume in use
 *	check.c		comparing what it has to say about names, links, space and quota
 *
 * Lock order, outermost first:
 *
 *	volume->rename_mutex		moving directories from one directory to another
 *	node->lock of directories	by inode number, exclusive to change names, shared to look
 *	node->lock of another node	exclusive to change data, size, mode or ACL, shared to read; of two by inode number
 *	node->link_lock			by inode number; not directories: changing the link count
 *	volume->fill_lock[]		held while a block is read from the device
 *	  > inside a delta, the locks of the core
 *	file_cache.lock
 *	  > data_lru.lock of a shard
 *	  > icache_shard.lock
 *	  > buffer_pool.lock
 *
 * Callers wait in delta_enter(), and some run a commit there, with the locks above the line held.
 * So the back end takes none but those below it, which are only held for moments: never across
 * entering a delta, a commit or I/O.
 */
#ifndef TUX3_LIB_H
#define TUX3_LIB_H

#include "internal.h"
#include "core/data/data_change.h"
#include "core/inode/xattr.h"
#include <linux/wait.h>
#include <sys/stat.h>

/* ---- buffer.c ---- */

#define BUFFER_POOLS 4

struct buffer_pool {
	spinlock_t lock;
	struct list_head partial;	/* lock: regions with free blocks */
	struct list_head empty;		/* lock: regions with no block in use */
	u32 empty_count;		/* lock */
	u32 block_size, region_blocks;	/* constant; blocks of a region that can be handed out */
};

void buffer_pool_init(struct buffer_pool *pool, u32 block_size);
void buffer_pool_exit(struct buffer_pool *pool);

/* ---- file_cache.c ---- */

#define CHUNK_SHIFT	6
#define CHUNK_BLOCKS	(1u << CHUNK_SHIFT)
#define LRU_SHARDS	8

/* The bits of a chunk's block. */
#define block_bit(block) (1ULL << ((block) & (CHUNK_BLOCKS - 1)))

enum chunk_tree {
	CHUNKS_ALL,
	CHUNKS_DIRTY,			/* in any delta: however much is cached, these are found at once */
};

/* A run of 64 file blocks of which some are in the cache.  All protected by file_cache.lock. */
struct file_chunk {
	struct rb_node rb[2];		/* by enum chunk_tree */
	u64 index;			/* file block / CHUNK_BLOCKS */
	struct file_cache *cache;	/* constant */
	u64 present;			/* data[] is there, and is the file's newest content */
	u64 dirty[2];			/* by delta & 1: dirty in that delta */
	void **back;			/* or NULL: [CHUNK_BLOCKS], see file_cache.c */
	u32 pins;			/* the evictor leaves it alone */
	bool referenced;		/* used since the clock's hand passed */
	bool on_lru;
	struct list_head lru_link;	/* data_lru.lock */
	void *data[CHUNK_BLOCKS];
};

struct file_cache {
	spinlock_t lock;
	struct rb_root chunks[2];	/* lock; by enum chunk_tree, and in each by index */
	struct file_chunk *hint;	/* lock; the last one used, or NULL */
	u64 dirty_blocks;		/* lock; present and dirty in any delta */
	u64 next_read;			/* file block where sequential reading would go on; atomic, a hint */
	u32 window;			/* readahead, in blocks; atomic, a hint */
};

struct data_lru {
	spinlock_t lock;
	struct list_head chunks;	/* lock: chunks with clean blocks, the hand of the clock first */
};

/* What an operation needs to make blocks dirty without allocating anything inside the delta. */
#define RESERVE_BLOCKS	(DATA_BATCH_MAX + 2)
#define RESERVE_CHUNKS	(DATA_BATCH_MAX / CHUNK_BLOCKS + 3)

struct file_reserve {
	struct tux3_node *node;
	u32 chunk_count, array_count, spare_count;
	struct file_chunk *chunks[RESERVE_CHUNKS];	/* pinned */
	void **arrays[RESERVE_CHUNKS];			/* to become file_chunk.back */
	void *spare[RESERVE_BLOCKS];			/* buffers */
};

/* ---- volume, inodes ---- */

#define ICACHE_SHARDS	64
#define ICACHE_BUCKETS	64		/* of a shard, at first */
#define ICACHE_BUCKETS_MAX (1u << 20)
#define ICACHE_MAX	100000		/* unused inodes kept, of all shards */
#define FILL_LOCKS	64

struct icache_shard {
	spinlock_t lock;
	struct hlist_head *buckets;	/* lock */
	u32 mask;			/* lock: of them there are a power of two */
	u32 count;			/* lock: nodes in them; read as a hint */
	struct list_head lru;		/* lock: unused nodes, the oldest first */
	u32 lru_count;			/* lock */
	wait_queue_head_t queue;	/* for nodes being read */
};

struct tux3 {
	struct volume *vol;
	struct tux3_device *dev;
	bool own_device;
	bool closing;			/* set when only the back end is left; atomic */
	u32 shift, block_size;
	struct tux3_node *root;		/* with a reference */
	struct mutex rename_mutex;
	struct icache_shard icache[ICACHE_SHARDS];
	struct buffer_pool pools[BUFFER_POOLS];
	struct data_lru lru[LRU_SHARDS];
	atomic_t lru_hand;
	atomic64_t clean_blocks;	/* cached and clean */
	u64 clean_limit;		/* blocks */
	u32 atime;			/* as in tux3_options; atomic */
	struct mutex fill_lock[FILL_LOCKS];
	atomic64_t losses, losses_told;	/* as a node's, of all nodes: by tux3_sync() */
};

enum node_state {
	ICACHE_READING,			/* being filled from the tree */
	ICACHE_CREATING,			/* has no name yet */
	ICACHE_LIVE,
	ICACHE_BAD,			/* could not be read: see error */
	ICACHE_DEAD,			/* deleted: only pins of deltas keep it */
};

struct tux3_node {
	struct hlist_node hash_link;	/* shard lock; beside the number that is looked for */
	struct tux3_inode inode;
	struct tux3 *volume;
	atomic_t state;			/* enum node_state; written with the shard's lock */
	int error;			/* of ICACHE_BAD */
	u32 type;			/* S_IFMT bits of the mode; constant once it is LIVE */
	struct list_head lru_link;	/* shard lock */
	bool on_lru;			/* shard lock */
	bool hashed;			/* shard lock */
	bool unnamed;			/* shard lock: its link count is 0 */
	bool forgotten;			/* shard lock: data_forget was called, and inode_kill has not answered yet */
	u32 forgetting;			/* shard lock: threads in data_forget for it */
	u64 users;			/* shard lock: references of callers */
	u64 pins;			/* shard lock: references of deltas */
	atomic_t losses;		/* commits that had to leave out something of it */
	atomic_t losses_told;		/* of these tux3_fsync() has told */
	atomic_t lost_told;		/* tux3_fsync() has said that something of it was lost when the volume stopped */
	bool no_capability;		/* lock to set, atomic to read: it is known to have no security.capability */
	bool linkable;			/* link_lock: made by tux3_tmpfile, may get a first name */
	struct rw_semaphore lock;
	struct mutex link_lock;
	struct file_cache file;
};

static inline struct tux3_node *node_of(struct tux3_inode *inode)
{
	return container_of(inode, struct tux3_node, inode);
}

static inline u32 node_type(struct tux3_node *node)
{
	return node->type;
}

extern const struct tux3_host_ops lib_host_ops;		/* host.c */

/* ---- buffer.c ---- */

/* All or nothing: count buffers, neighbours where that is easy.  -ENOMEM. */
int buffers_get(struct tux3 *volume, void **buffers, u32 count);
/* Up to count buffers that lie one after another; *got says how many.  NULL: no memory. */
void *buffers_get_run(struct tux3 *volume, u32 count, u32 *got);
void buffers_put(struct tux3 *volume, void *const *buffers, u32 count);

/* ---- icache.c ---- */

/* quota.c: may the calling thread exceed quotas? */
bool quota_is_exempt(void);

int icache_init(struct tux3 *volume);
void icache_exit(struct tux3 *volume);
int icache_get(struct tux3 *volume, u64 ino, struct tux3_node **nodep);
/* A new inode with the number ino: a reference, state ICACHE_CREATING.  -ENOMEM. */
int icache_new(struct tux3 *volume, u64 ino, struct tux3_node **nodep);
void icache_new_done(struct tux3_node *node);	/* it has a name or may be found by number from now on */
void icache_new_failed(struct tux3_node *node);	/* frees it */
/* Its link count may have become 0 or more than 0.  The caller has a reference, and excludes other changes. */
void icache_links_changed(struct tux3_node *node);
u64 icache_users(struct tux3 *volume);		/* nodes with references of callers */
void icache_drop_unused(struct tux3 *volume);	/* those that nothing pins */
void icache_drop_all(struct tux3 *volume);	/* whatever callers think */
void icache_pin(struct tux3_node *node);
void icache_unpin(struct tux3_node *node);
/* The node with this number, pinned, if it is in memory and known to others than who reads or makes it; or NULL. */
struct tux3_node *icache_peek(struct tux3 *volume, u64 ino);
bool icache_kill(struct tux3_node *node);

/* ---- file_cache.c ---- */

void file_cache_init(struct file_cache *cache);
void file_cache_exit(struct tux3_node *node);	/* frees all, dirty or not */
/* Keep clean data within the limit, making room for blocks more.  Outside all locks of the cache. */
void file_cache_trim(struct tux3 *volume, u64 blocks);

/*
 * Buffers of consecutive present blocks from block on, up to max and the end of the chunk; the chunk
 * is pinned unless 0 is returned.
 */
u32 file_cache_get(struct tux3_node *node, u64 block, u32 max, void **buffers, struct file_chunk **chunk);
void file_cache_unpin(struct tux3_node *node, struct file_chunk *chunk);
/* How many blocks from block on, up to max, are not present. */
u32 file_cache_absent(struct tux3_node *node, u64 block, u32 max);
/* Add clean blocks; buffers of blocks that are present already are freed.  -ENOMEM: all are. */
int file_cache_add(struct tux3_node *node, u64 block, void **buffers, u32 count);
bool file_cache_present(struct tux3_node *node, u64 block);

void file_reserve_init(struct file_reserve *reserve, struct tux3_node *node);
/* Outside a delta: pin the chunks of these blocks and get memory for making them dirty. */
int file_reserve_blocks(struct file_reserve *reserve, u64 block, u32 count);
void file_reserve_exit(struct file_reserve *reserve);
/*
 * Inside the delta: make count blocks of one chunk dirty in delta and return their buffers.  Where
 * keep (a bit for each block of the chunk) is not set the content of the buffer is undefined.
 * fresh: bits of those that were not present (their buffers are undefined in any case).  Returns
 * how many were not dirty in this delta before.
 */
u32 file_cache_dirty(struct file_reserve *reserve, u64 delta, u64 block, u32 count, u64 keep,
		     void **buffers, u64 *fresh);
/* Inside the delta: zero bytes of a block if it is present, without making it dirty. Reserved before. */
void file_cache_zero(struct file_reserve *reserve, u64 delta, u64 block, u32 from, u32 to);
/*
 * Blocks that go, in three steps: memory outside the delta, the change inside (returns how many blocks
 * had been dirty in this delta), and giving the memory back outside again, in any case.
 */
struct file_drop {
	struct list_head chunks;	/* by lru_link: taken out of the cache, to be freed */
	void **arrays;			/* spare file_chunk.back, linked through their first element */
};
void file_drop_init(struct file_drop *drop);
int file_drop_prepare(struct tux3_node *node, u64 block, u64 count, struct file_drop *drop);
u64 file_cache_drop(struct tux3_node *node, u64 delta, u64 block, u64 count, struct file_drop *drop);
void file_drop_finish(struct tux3_node *node, struct file_drop *drop);

/* For host.c.  Blocks dirty in delta. */
int file_cache_next_dirty(struct tux3_node *node, u64 delta, u64 from, u64 *block, u64 *count);
void file_cache_back_buffers(struct tux3_node *node, u64 delta, u64 block, u32 count, void **buffers);
void file_cache_clean(struct tux3_node *node, u64 delta);
/* The first run of blocks in [from, end) that are present, and dirty in any delta; false: none. */
bool file_cache_find_dirty(struct tux3_node *node, u64 from, u64 end, u64 *block, u64 *count);
u64 file_cache_dirty_blocks(struct tux3_node *node);

/* ---- file_fill.c ---- */

/* Bring block, and up to want - 1 more, into the cache; *hole: not done, that many blocks are a hole. */
int file_fill(struct tux3_node *node, u64 block, u64 want, u64 size, u64 *hole);
/* Like that for one block; a hole becomes a block of zeros if zero is set.  *hole as a bool. */
int file_fill_block(struct tux3_node *node, u64 block, u64 size, bool zero, bool *hole);
u64 file_readahead(struct tux3_node *node, u64 block, u64 count);	/* blocks to read, >= count */

/* ---- perm.c: the flags ---- */

/* What is done to an inode, and the flags that forbid it. */
#define USE_NEVER_IMMUTABLE	TUX3_ATTR_IMMUTABLE
#define USE_NEVER_LOCKED	(TUX3_ATTR_IMMUTABLE | TUX3_ATTR_APPEND)
#define INODE_USES(X) \
	X(WRITE,	USE_NEVER_IMMUTABLE,	"asked for with write permission: names are made in it, times become now") \
	X(APPEND,	USE_NEVER_IMMUTABLE,	"data is added at its end, or blocks are preallocated") \
	X(OVERWRITE,	USE_NEVER_LOCKED,	"what it holds is changed, cut off or punched out") \
	X(REMOVE_FROM,	USE_NEVER_LOCKED,	"a name in it goes") \
	X(NAME,		USE_NEVER_LOCKED,	"it gets another name, or loses one") \
	X(ATTRIBUTE,	USE_NEVER_LOCKED,	"its mode, owner, ACLs, extended attributes, or times as given") \
	X(PROJECT,	USE_NEVER_IMMUTABLE,	"its project")

enum inode_use {
#define X(NAME, flags, what) USE_##NAME,
	INODE_USES(X)
#undef X
};

/* The only place that knows what immutable and append-only mean.  0 or -EPERM. */
int perm_check_flags(const struct tux3_attr *attr, enum inode_use use);

/* ---- file_io.c, file_size.c ---- */

/* A change of a file's data, and what it needs to make blocks dirty. */
struct file_change {
	struct data_change plan;
	struct file_reserve reserve;
	void *edge[DATA_EDGES_MAX];	/* buffers of the edges, when they are dirty */
};

int file_change_edge(struct data_change *plan, u32 i);		/* for data_change_edges() */
/* Inside the delta.  Returns how many were not dirty in it. */
u32 file_change_dirty_edges(struct file_change *change, struct delta_op *op);
/* So many were not dirty, edges and others. */
void file_change_dirtied(struct file_change *change, struct delta_op *op, u32 newly);
/* With node->lock held for writing.  set: what else, of attr, goes into the same delta (OP_ATTR_...). */
int file_truncate_locked(struct tux3_node *node, u64 size, const struct tux3_attr *attr, u32 set);
/* For remaps: data_set_apart().  With node->lock held for writing. */
int file_set_apart(struct tux3_node *node);
/* file_exchange.c: a part of the file is taken out, or put in.  Likewise. */
int file_shift(struct tux3_node *node, bool insert, u64 offset, u64 length);
/* -EROFS, or -EPERM because of the inode's flags. */
int file_check_changeable(struct tux3_node *node, const struct tux3_attr *attr, enum inode_use use);

/* ---- names.c, rename.c ---- */

bool name_is_dots(const char *name);
int name_check(const char *name, unsigned int *len);
/* With dir->lock held. */
int names_lookup_locked(struct tux3_node *dir, const char *name, unsigned int len, struct tux3_node **node);
int names_make(struct tux3_node *dir, const struct tux3_cred *cred, u32 mode, u32 rdev_major, u32 rdev_minor,
	       struct tux3_node **nodep);
void names_make_failed(struct tux3_node *node);
int names_may_add(struct tux3_node *dir, const struct tux3_cred *cred);
int names_may_remove(struct tux3_node *dir, const struct tux3_cred *cred, struct tux3_node *victim);

/* ---- attr.c ---- */

static inline u32 node_nlink(struct tux3_node *node)
{
	u32 nlink;

	spin_lock(&node->inode.lock);
	nlink = node->inode.attr.nlink;
	spin_unlock(&node->inode.lock);
	return nlink;
}

void attr_to_stat(struct tux3 *volume, u64 ino, const struct tux3_attr *attr, u64 blocks, struct tux3_stat *stat);
void node_touch_atime(struct tux3_node *node);
/* With node->lock: capabilities go, and *mode is what the caller's delta makes of the file's mode, if that changes. */
int node_kill_begin(struct tux3_node *node, struct file_kill *kill, const u32 **mode);

/* ---- perm.c ---- */

#define MAY_EXEC	1
#define MAY_WRITE	2
#define MAY_READ	4

static inline bool cred_checks(const struct tux3_cred *cred)
{
	return cred && !cred->no_permission_checks;
}

bool cred_in_group(const struct tux3_cred *cred, u32 gid);
bool cred_owns(const struct tux3_cred *cred, const struct tux3_attr *attr);
int perm_check(struct tux3_node *node, const struct tux3_cred *cred, int mask);

/* ---- acl.c ---- */

#define ACL_ACCESS_NAME		"system.posix_acl_access"
#define ACL_DEFAULT_NAME	"system.posix_acl_default"
#define CAPABILITY_NAME		"security.capability"

struct acl_entry {
	u16 tag, perm;
	u32 id;
};

struct acl {
	u32 count;
	struct acl_entry entries[];
};

int acl_parse(const void *value, size_t size, struct acl **aclp);	/* -EINVAL, -EOPNOTSUPP, -ENOMEM */
size_t acl_size(const struct acl *acl);
void acl_store(const struct acl *acl, void *value);
/* The ACL of the node; *aclp NULL: none. */
int acl_get(struct tux3_node *node, const char *name, struct acl **aclp);
int acl_check(const struct acl *acl, const struct tux3_attr *attr, const struct tux3_cred *cred, int mask);
/* The mode's permission bits that the ACL stands for; true: these bits say all that the ACL says. */
bool acl_to_mode(const struct acl *acl, u32 *mode);
void acl_apply_mode(struct acl *acl, u32 mode);		/* chmod */
/* A new file of this mode below a directory with this default ACL: acl becomes its access ACL.  As acl_to_mode. */
bool acl_inherit(struct acl *acl, u32 *mode);

/* ---- xattr.c ---- */

/* The whole value in new memory; NULL and size 0: none. */
int xattr_get_alloc(struct tux3_node *node, const char *name, void **value, size_t *size);

#endif
