/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The B-tree of all metadata and the block cache that holds its nodes.
 *
 * Anybody reads (tree_lookup, tree_scan, ...); only the back end edits, with tree->sem held for
 * writing (tree_edit_begin/end).  Readers hold sem for reading only while they look at nodes in
 * memory: on a cache miss they drop it, read the block, and start again.  What a reader wanted may
 * be gone by then, so only a read with sem held counts as failed: a reader falls back to that after
 * an error or after too many starts.  The back end calls tree_prefetch() before tree_edit_begin(), so
 * that it rarely reads with sem held.
 *
 * Nodes are in the cache in disk format.  An edit never touches a node that is on the disk or on
 * its way there: it first copies it ("redirect"), and so its parents up to the root.  A copied or new node is
 * DIRTY until a unify takes it, and until then it has no block: what stands for its address, in the cache and in
 * its parent, is a number that no block has (node_unplaced()), and of the free blocks one is promised to it
 * (balloc_promise).  Which one is decided when it is about to be written (tree_place).
 *
 *	CLEAN --redirect--> (new buffer) DIRTY --tree_place, tree_snapshot--> FLUSHING --tree_snapshot_done--> CLEAN
 *
 * A FLUSHING node is treated like a clean one by edits: redirected, never changed.  So the bytes
 * being written stay as they are.  The block a redirected or emptied node leaves behind is freed
 * with balloc_free_node(): at once if that node was never part of a snapshot, else when the next
 * anchor is durable.
 *
 * Invariants
 *  1. The parents of a DIRTY node are DIRTY.
 *  2. Every node below tree->root_* has an address marked in use, or is DIRTY and has none; no two share one.
 *  3. A node that enters the cache from disk has been checked: checksum, magic, volume id, own
 *     address, level, birth (against its parent's branch), bounds of all items, key order.  That its
 *     keys lie where its parent says is checked whenever somebody steps from parent to child, so
 *     that no block is ever reached by two ways.
 *  4. DIRTY and FLUSHING nodes are never evicted.
 *  5. (addr, birth) never comes back with other contents once it was in a snapshot: after
 *     tree_snapshot() the next edit has a higher delta.applying.
 *
 * Errors: -ENOENT (not there), -EIO (bad block, message printed), -ENOMEM, -ENOSPC (allocation for
 * a redirect or split failed: must not happen, see space.h; the commit is then aborted).
 */
#ifndef TUX3_TREE_H
#define TUX3_TREE_H

#include "core/env.h"
#include "core/format/format.h"

struct volume;

struct tree_key {
	u64 ino;
	u64 offset;
	u8 type;
};

static inline struct tree_key tree_key(u64 ino, u8 type, u64 offset)
{
	return (struct tree_key){ .ino = ino, .offset = offset, .type = type };
}

int tree_key_compare(const struct tree_key *a, const struct tree_key *b);	/* <0, 0, >0 */
struct tree_key tree_key_from_disk(const struct disk_key *key);
void tree_key_to_disk(struct disk_key *disk, const struct tree_key *key);

/* ---- block cache (cache.c) ---- */

/* What a branch, or the anchor, says of a node. */
struct node_link {
	u64 addr, birth;
	u32 level;
};

/* What a node without a block has for an address: this bit and a serial number. */
#define NODE_UNPLACED (1ULL << 63)

static inline bool node_unplaced(u64 addr)
{
	return addr & NODE_UNPLACED;
}

struct node_buffer {
	struct hlist_node hash_link;	/* by addr; shard lock */
	/* CLEAN: shard's lru (shard lock); DIRTY: tree->dirty (sem for writing); FLUSHING: the list of
	   who took the snapshot */
	struct list_head lru_link;
	u64 addr, birth;		/* what a link to it says; constant once in the cache, but for cache_place() */
	u32 level;
	u32 kept;			/* see cache_keep(); by the back end, who has a reference */
	u64 needed;			/* stays until this delta is committed; written by who has a reference */
	atomic_t refs;			/* one is the cache's own; a first other one is taken under the shard lock */
	unsigned long state;		/* NODE_* bits, changed atomically */
	void *data;			/* block_size bytes: a struct disk_node.  DIRTY: sem; else constant */
};

static inline struct node_link node_buffer_link(const struct node_buffer *buffer)
{
	return (struct node_link){ buffer->addr, buffer->birth, buffer->level };
}

/*
 * DIRTY, FLUSHING: see above; neither: CLEAN.  DEAD: not in the cache any more, freed with the last
 * reference.  USED: looked up since the eviction came by last.  AHEAD: not since it was read for who has not come yet.
 */
enum { NODE_DIRTY, NODE_FLUSHING, NODE_DEAD, NODE_USED, NODE_AHEAD };

#define CACHE_SHARDS 64
#define CACHE_DEFAULT_BYTES (128ULL << 20)

struct cache_shard {
	spinlock_t lock;
	struct hlist_head *buckets;
	u32 bucket_mask;
	u32 count;			/* buffers in the shard */
	struct list_head lru;		/* CLEAN nodes; evicted from the front, unless referenced or USED */
	u64 hits;
};

struct node_cache {
	struct cache_shard shards[CACHE_SHARDS];
	u64 limit_bytes;		/* clean nodes beyond this are evicted */
	atomic64_t bytes;		/* of all nodes in memory */
	atomic64_t clean_bytes;		/* of the CLEAN ones */
	atomic64_t misses;		/* blocks read */
	atomic64_t ahead, wasted;	/* nodes that came AHEAD; that were evicted while they were */
	atomic_t hand;			/* shard that cache_shrink() came to */
	u32 keep;			/* nodes that were kept when it was that are not evicted; by the back end */
	bool keeping;			/* by the back end: nodes are, also those that others look up meanwhile */
	struct tree_looked __percpu *looked;	/* tree_looked.c */
};

int cache_init(struct volume *vol, u64 limit_bytes);	/* 0: CACHE_DEFAULT_BYTES */
void cache_exit(struct volume *vol);		/* no references may be left */
/*
 * From cache or disk, checked.  ERR_PTR(-EIO, -ENOMEM), prints nothing, a sentence in why.
 * cache_put() when done.
 */
struct node_buffer *cache_get(struct volume *vol, const struct node_link *link, char *why, size_t why_size);
/*
 * Read these nodes, many at once, into the cache.  What cannot be read, or is not what its link says, is left out: who
 * needs it hears of it from cache_get().
 */
void cache_fetch(struct volume *vol, const struct node_link *links, u32 count);
/* As cache_get() of links[wanted]; the others, at most DEVICE_READS_MAX in all, come with it as by cache_fetch(). */
struct node_buffer *cache_get_among(struct volume *vol, const struct node_link *links, u32 count, u32 wanted,
				    char *why, size_t why_size);
bool cache_has(struct volume *vol, const struct node_link *link);	/* exactly this node; that is not to use it */
/* From the cache only, NULL if exactly this node is not there. */
struct node_buffer *cache_peek(struct volume *vol, const struct node_link *link);
void cache_put(struct volume *vol, struct node_buffer *buffer);
/*
 * For who edits: between cache_keep(true) and (false) he looks whether nodes can be read.  Those that are looked up then, and those
 * of the ways where he finds himself, stay in memory until cache_keep_no_more(): so that the edit finds them, too.
 */
void cache_keep(struct volume *vol, bool on);
void cache_keep_node(struct volume *vol, struct node_buffer *buffer);
void cache_keep_no_more(struct volume *vol);
/* A buffer outside the cache, NULL without memory; and free it again. */
struct node_buffer *cache_alloc(struct volume *vol);
void cache_free(struct volume *vol, struct node_buffer *buffer);
/*
 * With sem for writing.  add_dirty: make it an empty DIRTY node that has no block yet.  place: now it has this
 * one; a stale clean node there is dropped.  Cannot fail if cache_busy() said no.  drop: the node goes.
 */
void cache_add_dirty(struct volume *vol, struct node_buffer *buffer, const struct node_link *link);
void cache_place(struct volume *vol, struct node_buffer *buffer, u64 addr);
bool cache_busy(struct volume *vol, u64 addr);		/* a DIRTY or FLUSHING node has this block */
void cache_drop(struct volume *vol, struct node_buffer *buffer);
/* FLUSHING to CLEAN, and into the lru. */
void cache_make_clean(struct volume *vol, struct node_buffer *buffer);
void cache_set_limit(struct volume *vol, u64 limit_bytes);
/*
 * For memory reclaim, which may come from any allocation of ours: take spinlocks only, under which nobody allocates.
 * reclaimable: bytes of clean nodes, an estimate.  shrink: give back up to bytes of them; returns bytes freed.
 */
u64 cache_reclaimable(struct volume *vol);
u64 cache_shrink(struct volume *vol, u64 bytes);
u64 cache_hits(struct volume *vol);

/* ---- node layout (node.c): no I/O, no volume state but geometry; also used by check and show ---- */

#define NODE_WHY_MAX 128	/* a buffer this long holds any sentence of node_check and cache_get */

/*
 * Is this block a valid node?  Checks everything that invariant 3 says.  birth 0: any; level < 0: any.
 * On failure writes a sentence ("checksum 0x.. expected 0x..", "item 3 beyond the block") to why and
 * returns -EIO.
 */
int node_check(struct volume *vol, const void *data, u64 addr, u64 birth, int level,
	       char *why, size_t why_size);
void node_seal(struct volume *vol, void *data);		/* set the checksum before writing */
/* The same if the node passes the checks that reading it will make; else -EIO, told. */
int node_seal_checked(struct volume *vol, const struct node_buffer *buffer);
void node_set_addr(void *data, u64 addr);
/* Init an empty node in data (block_size bytes). */
void node_init(struct volume *vol, void *data, u64 addr, u64 birth, u32 level);

/* ---- reading (tree.c) ---- */

#define TREE_APPENDS 8
#define TREE_UNDERFULL 16

/* A node that takes in its neighbour on one side: the one at this level on the way to key. */
struct tree_merge {
	struct tree_key key;
	u32 level;
	bool right;
};

/* Keys as they are compared: two numbers. */
struct node_key {
	u64 high;		/* inode number << 8 | item type */
	u64 low;		/* offset */
};

static inline bool node_key_equal(const struct node_key *a, const struct node_key *b)
{
	return a->high == b->high && a->low == b->low;
}

/*
 * From the root down to a leaf; each node is referenced.  index[n]: the branch taken in node[n];
 * index[0] is for the user.
 */
struct tree_path {
	u32 top;				/* level of the root */
	u32 bottom;				/* node[bottom .. top] are there */
	struct node_buffer *node[TUX3_MAX_LEVEL + 1];
	u32 index[TUX3_MAX_LEVEL + 1];
	/* Of this way, not only of the node reached: any key in [low, high) leads to node[0].  Without has_low it is 0. */
	struct node_key low, high;
	bool has_low, has_high;
	struct node_link miss;			/* with PATH_MISS: what to read */
};

#define TREE_WAYS 4

/* Where nodes were read one after the other (tree_ahead.c). */
#define TREE_STREAMS 64
struct tree_stream {
	struct node_key low, high;	/* keys of their parent; without the first, or last, bound: 0, or NODE_KEY_MAX */
	struct node_key from, to;	/* and of those that were read last */
	u32 level;			/* theirs */
	u32 window;			/* so many were; 0: unused */
};

struct tree {
	struct rw_semaphore sem;
	u64 root_addr, root_birth;	/* sem */
	u32 root_level;			/* sem; height - 1 */
	bool editing;			/* sem is held for writing; written with it, read as a hint */
	bool must_look;			/* a node could not be read, or nodes leave memory; it only becomes true */
	atomic64_t trusted;		/* the newest delta in which somebody counts on what was read at some time */
	struct list_head dirty;		/* NODE_DIRTY buffers; sem for writing */
	u64 dirty_count;		/* sem for writing; read anywhere as a hint */
	u64 unplaced;			/* of these, nodes without a block; sem for writing */
	u64 serial;			/* of the last node without a block; sem for writing */
	struct list_head failed;	/* FLUSHING nodes whose write failed; back end */
	u64 snapshot_delta;		/* delta.applying at the last snapshot; sem for writing */
	struct node_key appends[TREE_APPENDS];	/* items added or grown lately: where appending goes on; sem for writing */
	u32 append_next;
	/* Nodes that edits left underfull, since tree_next_merge() came by; sem for writing. */
	struct {
		struct tree_key key;
		u64 addr;
		u32 level;
	} underfull[TREE_UNDERFULL];
	u32 underfull_count;
	atomic64_t edits, redirects, splits, merges;	/* counters */
	/* Where edits went lately (tree_way.c); back end. */
	struct tree_path ways[TREE_WAYS];
	u32 way_last, way_before, way_victim;
	spinlock_t stream_lock;		/* inside sem */
	struct tree_stream streams[TREE_STREAMS];	/* stream_lock */
	u32 stream_victim;		/* stream_lock */
	s64 stream_ahead, stream_wasted;	/* stream_lock: those of the cache, when they were looked at last */
	u32 stream_pause;		/* stream_lock: nodes to be missed before anything is read ahead again */
};

void tree_init(struct volume *vol);
void tree_set_root(struct volume *vol, u64 addr, u64 birth, u32 level);
/* How many branches the root has; 0: it is a leaf, or it is not known (read: or cannot be read). */
u32 tree_root_branches(struct volume *vol, bool read);

/* Copy the data of exactly this item (up to size bytes); returns its full length or -ENOENT, -EIO. */
int tree_lookup(struct volume *vol, const struct tree_key *key, void *data, u32 size);
/* The same; one_leaf: all that there is up to the key to, which is behind it, is in the same leaf. */
int tree_lookup_first(struct volume *vol, const struct tree_key *key, void *data, u32 size, const struct tree_key *to,
		      bool *one_leaf);

/*
 * Call fn for each item with from <= key <= to in order, in batches under the read lock: fn must not
 * sleep, read the tree or take locks that are held around tree edits.  data is valid during the call
 * and has no particular alignment.  fn returns 0 to go on; anything else stops the scan and is returned.
 */
typedef int (*tree_item_fn)(void *ctx, const struct tree_key *key, const void *data, u32 len);
int tree_scan(struct volume *vol, const struct tree_key *from, const struct tree_key *to,
	      tree_item_fn fn, void *ctx);

/*
 * Are from, to, and what is before an extent at from, in one leaf?  Then *low is where its keys begin.  Nothing is read: also
 * false if that cannot be told from what is in memory.
 */
bool tree_leaf_of(struct volume *vol, const struct tree_key *from, const struct tree_key *to, struct node_key *low);
/*
 * What an edit of items from first to last meets, the leaf before them, too, is in memory, and stays there until this delta is
 * committed.  Nothing is read: false if it is not, or is more than TREE_NEED_MAX leaves.
 */
#define TREE_NEED_MAX 64u
bool tree_need(struct volume *vol, const struct tree_key *first, const struct tree_key *last, u64 delta);
/*
 * The same within one leaf, that of from: returns what fn did, or 0.  more: there are leaves behind it, and what is there begins
 * at next or behind it; also with -EIO, behind what cannot be read.  fn NULL: can it be read?
 */
int tree_scan_leaf(struct volume *vol, const struct tree_key *from, const struct tree_key *to, tree_item_fn fn, void *ctx,
		   bool *more, struct tree_key *next);
/* ---- reading ahead (tree_ahead.c) ---- */

#define TREE_AHEAD 32u		/* nodes at a time */
/*
 * For who scans for items of this type with offset 0, and skips the others: read leaves that have such items, from the one of
 * `from` on, together.  At most max of those that are not in memory, or more where this goes on and on.  At upto it is time for
 * the next call.
 */
void tree_read_ahead(struct volume *vol, const struct tree_key *from, u8 type, u32 max, struct tree_key *upto);

/*
 * Items of one kind in parts: pass over as many of the range as skip->left says.  1: there are more, the next one is at
 * offset skip->next.  0: there are none, and skip->left is what was left to pass over.  -errno as tree_scan().
 */
struct tree_skip {
	u64 left;
	u64 next;
};
int tree_skip(struct volume *vol, const struct tree_key *from, const struct tree_key *to, struct tree_skip *skip);

/* Can the leaf be read where this key is, or would be?  That of the last item up to it?  0, -EIO, -ENOMEM. */
int tree_look(struct volume *vol, const struct tree_key *key);
int tree_look_before(struct volume *vol, const struct tree_key *at);
/*
 * For who makes a change that the commit cannot leave out, outside the delta in which he makes it.  As long as no node has left
 * memory since the volume was opened, what was read at some time is there, and he counts on that.  Else he looks, and what he has
 * looked at is in memory until the delta is committed.
 *
 * tree_look_begin: the delta for which to look; 0: there is no need to.  tree_look_holds: inside, in this delta.  false: nothing
 * may be changed, he has to leave it and to look.  After true he changes something.
 */
u64 tree_look_begin(struct volume *vol);
bool tree_look_holds(struct volume *vol, u64 looked, u64 delta);
/* Can the leaves of these keys be read?  0, -EIO, -ENOMEM. */
struct tree_look {
	u64 delta;
	bool goes;		/* an item may be deleted: one beside it gets the range of a leaf that loses its last */
};
int tree_look_for(struct volume *vol, const struct tree_key *first, const struct tree_key *last, const struct tree_look *look);
/* Was all from first to last of each span looked at for this delta, by whomever?  false also if that is not known here. */
struct tree_span {
	struct tree_key first, last;
};
bool tree_looked_at(struct volume *vol, const struct tree_span *spans, u32 count, u64 delta);

/*
 * The last item with from <= key <= at: its key and data (up to size bytes).  Returns its length,
 * -ENOENT, -EIO.
 */
int tree_lookup_before(struct volume *vol, const struct tree_key *at, const struct tree_key *from,
		       struct tree_key *found, void *data, u32 size);
/* The same for who must not wait: -EAGAIN while an edit is under way, or if a node would have to be read. */
int tree_lookup_before_now(struct volume *vol, const struct tree_key *at, const struct tree_key *from,
			   struct tree_key *found, void *data, u32 size);

/*
 * Visit every node in depth-first key order, for check, show and graph.  Holds sem for reading for
 * the whole walk (so use it on volumes without a running back end, or accept the stall).  Where a
 * node cannot be read or is bad, fn gets data NULL and why; its branch is then skipped.  fn returns
 * 0, or >0 to skip what is below this node, or -errno to stop.  -ENOMEM also if there is no memory to read a node.
 */
struct tree_visit {
	u64 addr, birth;		/* as the parent says */
	u32 level;
	u64 parent_addr;		/* 0 for the root */
	struct tree_key low, high;	/* keys k with low <= k < high are allowed here ... */
	bool has_high;			/* ... no upper bound if false */
	bool dirty;			/* only in memory so far */
	const struct disk_node *data;
	const char *why;
};
typedef int (*tree_node_fn)(void *ctx, const struct tree_visit *visit);
int tree_walk(struct volume *vol, tree_node_fn fn, void *ctx);

/* ---- editing (tree_edit.c): back end only ---- */

void tree_edit_begin(struct volume *vol);	/* down_write */
void tree_edit_end(struct volume *vol);
/* Bring the path to key into the cache, without the edit lock.  Errors are left for the edit to find. */
void tree_prefetch(struct volume *vol, const struct tree_key *key);

/* All of these: between tree_edit_begin and tree_edit_end. */

/* Insert the item or replace its data.  len <= TUX3_ITEM_MAX, else -EINVAL.  What is there already costs nothing. */
int tree_set(struct volume *vol, const struct tree_key *key, const void *data, u32 len);
int tree_delete(struct volume *vol, const struct tree_key *key);	/* -ENOENT if it is not there */
/*
 * The same for who looks at the item first: its place, which holds until something else is looked for or changed between
 * tree_edit_begin and tree_edit_end.  find: 0 or -errno; with spot->found the item is there, len bytes at data.
 */
struct tree_spot {
	struct node_key key;
	struct tree_path *way;
	const void *data;
	u32 len;
	u32 pos;
	bool found;
};
int tree_edit_find(struct volume *vol, const struct tree_key *key, struct tree_spot *spot);
int tree_spot_set(struct volume *vol, struct tree_spot *spot, const void *data, u32 len);
int tree_spot_delete(struct volume *vol, struct tree_spot *spot);
/* The item before it, if that is in the same leaf; else false. */
bool tree_spot_before(const struct tree_spot *spot, struct tree_key *key, const void **data, u32 *len);
/* Is there no item from there (it is not found) up to this key?  false also if that cannot be told from this leaf. */
bool tree_spot_none_to(const struct tree_spot *spot, const struct tree_key *to);
/*
 * Delete up to max items with from <= key <= to, calling fn (may be NULL) for each before it goes.
 * Whole leaves in the range are dropped without redirecting them first.  *next (may be NULL): where
 * to go on if the limit was reached.  Returns the number deleted (max: there may be more) or what went
 * wrong: -errno, or what fn returned other than 0, after which the items of that leaf are still there.
 */
int tree_delete_range(struct volume *vol, const struct tree_key *from, const struct tree_key *to,
		      u32 max, tree_item_fn fn, void *ctx, struct tree_key *next);
/*
 * For repair: the node that the branch to key in the node at this level (> 0) leads to cannot be used, and goes with all
 * below it, which is not looked at; nor is a block of these freed.
 */
int tree_cut(struct volume *vol, const struct tree_key *key, u32 level);
/*
 * With sem for writing.  Go to the leaf of key, for the edit that comes next; false: something on the way would have to be read.
 */
bool tree_edit_reach(struct volume *vol, const struct tree_key *key);
/* Without sem, by who holds commit_mutex: are these keys in one leaf, one of the two where edits went last, which are in memory? */
bool tree_edit_is_near(struct volume *vol, const struct tree_key *from, const struct tree_key *to);
/* The same, and there is an item before from in that leaf: whatever is set or deleted there, no other one is needed. */
bool tree_edit_has_all(struct volume *vol, const struct tree_key *from, const struct tree_key *to);
/* tree_edit_begin() at the leaf of key, which is read before if need be. */
void tree_edit_begin_at(struct volume *vol, const struct tree_key *key);
/* The back end is done for now: nodes that it kept for the next edit may be evicted again. */
void tree_edit_leave(struct volume *vol);
/*
 * Merging.  Edits leave nodes underfull and only take a note of them.  next_merge: what should be merged with a
 * neighbour that is in memory now; false: nothing more.  merge: do it; the neighbour is read if need be; -EIO if there
 * is none or both do not fit one node.  So who depends on the cache is next_merge, not merge: the log has a record of
 * each merge, and replay comes to the same nodes.
 */
bool tree_next_merge(struct volume *vol, struct tree_merge *merge);
int tree_merge(struct volume *vol, const struct tree_merge *merge);
/* Like tree_lookup, lookup_before and scan, for use between edit_begin and edit_end (reads with sem held). */
int tree_edit_lookup(struct volume *vol, const struct tree_key *key, void *data, u32 size);
int tree_edit_lookup_before(struct volume *vol, const struct tree_key *at, const struct tree_key *from,
			    struct tree_key *found, void *data, u32 size);
int tree_edit_scan(struct volume *vol, const struct tree_key *from, const struct tree_key *to,
		   tree_item_fn fn, void *ctx);

/*
 * Unify: give each DIRTY node its block, in key order, so that they are written in one sweep.  Without sem, by the
 * back end.  -ENOMEM, -ENOSPC, -EIO: no node was given one.  The groups that this changes must be in the log
 * (balloc_touched) before the snapshot; what is edited until then may need another call.
 */
int tree_place(struct volume *vol);
/*
 * Take all DIRTY nodes as they are now.  They are moved to list (linked by lru_link) and become
 * FLUSHING.  The caller has sem for writing (or no back end is running), later seals each (node_seal), writes its
 * data to addr, and calls done when all I/O is over, with or without sem (ok: they are on the
 * disk, false: error, the volume goes read-only, and the nodes stay pinned in memory as FLUSHING until
 * tree_discard).  One snapshot at a time.  An edit may have moved a node since: its buffer is DEAD
 * but stays in list.
 */
void tree_snapshot(struct volume *vol, struct list_head *list, u64 *count);
/*
 * How leaves are split depends on what was added lately: from the snapshot on, so that who replays from there on splits
 * them alike.  For replay, where the log says that there was a snapshot.
 */
void tree_forget_appends(struct volume *vol);
void tree_snapshot_done(struct volume *vol, struct list_head *list, bool ok);

/* mkfs: an empty DIRTY leaf as root; birth: delta.applying. */
int tree_create(struct volume *vol);
/*
 * Free all DIRTY nodes, and FLUSHING ones whose write failed, without writing: at the end of a mount
 * that failed or is read-only.  The tree is unusable afterwards.
 */
void tree_discard(struct volume *vol);

#endif
