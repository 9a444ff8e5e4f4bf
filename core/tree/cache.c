/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The block cache: tree nodes in memory, by block address.
 *
 * A hash in CACHE_SHARDS parts, each with its own lock, buckets that grow with the load, and its own
 * lru of CLEAN nodes.  Nobody sleeps, reads or allocates under a shard's lock.
 *
 * Invariants
 *  1. At most one buffer for each address is in the hash.
 *  2. The cache itself holds one reference of each buffer in the hash.  From 1 to 2 the count goes only
 *     under the shard's lock, so a buffer seen there with a count of 1 is nobody's and can be freed.
 *     A FLUSHING buffer that is dropped keeps that reference until its write is over.
 *  3. Exactly the CLEAN buffers are in a shard's lru.
 *
 * Eviction gives a second chance: a node looked up since it was last considered (USED) goes round once
 * more, so that a scan over many leaves does not drive out what is used again and again.  Each insertion
 * looks at a bounded number of nodes; while the cache is far over its limit, USED is not regarded.
 *
 * Locking: the functions may be called with or without tree->sem, but for those that tree.h excepts.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/device/device.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

#define CACHE_MIN_BUCKETS	16u
#define CACHE_MAX_BUCKETS	(1u << 20)	/* in one shard */
#define CACHE_EVICT_SCAN	16u		/* nodes looked at in one shard for one insertion */

static struct cache_shard *cache_shard(struct volume *vol, u64 addr)
{
	return &vol->cache.shards[hash_64(addr, 32) / ((1ULL << 32) / CACHE_SHARDS)];
}

static struct hlist_head *shard_bucket(struct cache_shard *shard, u64 addr)
{
	return &shard->buckets[hash_64(addr, 32) & shard->bucket_mask];
}

/* Shard's lock is held, in these too. */
static struct node_buffer *shard_find(struct cache_shard *shard, u64 addr)
{
	struct node_buffer *buffer;

	lockdep_assert_held(&shard->lock);
	hlist_for_each_entry(buffer, shard_bucket(shard, addr), hash_link) {
		if (buffer->addr == addr)
			return buffer;
	}
	return NULL;
}

static bool buffer_is_clean(const struct node_buffer *buffer)
{
	return !test_bit(NODE_DIRTY, &buffer->state) && !test_bit(NODE_FLUSHING, &buffer->state);
}

static bool buffer_is(const struct node_buffer *buffer, const struct node_link *link)
{
	return buffer->addr == link->addr && buffer->birth == link->birth && buffer->level == link->level;
}

static void buffer_identify(struct node_buffer *buffer, const struct node_link *link)
{
	buffer->addr = link->addr;
	buffer->birth = link->birth;
	buffer->level = link->level;
}

static struct node_buffer *buffer_use(struct node_buffer *buffer)
{
	atomic_inc(&buffer->refs);
	if (!test_bit(NODE_USED, &buffer->state))
		set_bit(NODE_USED, &buffer->state);
	if (test_bit(NODE_AHEAD, &buffer->state))
		clear_bit(NODE_AHEAD, &buffer->state);
	return buffer;
}

static void shard_insert(struct cache_shard *shard, struct node_buffer *buffer)
{
	lockdep_assert_held(&shard->lock);
	hlist_add_head(&buffer->hash_link, shard_bucket(shard, buffer->addr));
	shard->count++;
}

static void shard_remove(struct cache_shard *shard, struct node_buffer *buffer)
{
	lockdep_assert_held(&shard->lock);
	hlist_del_init(&buffer->hash_link);
	set_bit(NODE_DEAD, &buffer->state);
	shard->count--;
}

static void shard_remove_clean(struct volume *vol, struct cache_shard *shard, struct node_buffer *buffer)
{
	shard_remove(shard, buffer);
	list_del_init(&buffer->lru_link);
	atomic64_sub(vol->block_size, &vol->cache.clean_bytes);
}

static void shard_add_lru(struct volume *vol, struct cache_shard *shard, struct node_buffer *buffer)
{
	lockdep_assert_held(&shard->lock);
	list_add_tail(&buffer->lru_link, &shard->lru);
	atomic64_add(vol->block_size, &vol->cache.clean_bytes);
}

/* ---- buffers ---- */

static struct node_buffer *buffer_alloc(struct volume *vol, gfp_t gfp)
{
	struct node_buffer *buffer = kzalloc(sizeof(*buffer), gfp);

	if (!buffer)
		return NULL;
	buffer->data = kvmalloc(vol->block_size, gfp);
	if (!buffer->data) {
		kfree(buffer);
		return NULL;
	}
	INIT_HLIST_NODE(&buffer->hash_link);
	INIT_LIST_HEAD(&buffer->lru_link);
	atomic_set(&buffer->refs, 1);
	atomic64_add(vol->block_size, &vol->cache.bytes);
	return buffer;
}

struct node_buffer *cache_alloc(struct volume *vol)
{
	return buffer_alloc(vol, GFP_COMMIT);
}

void cache_free(struct volume *vol, struct node_buffer *buffer)
{
	atomic64_sub(vol->block_size, &vol->cache.bytes);
	kvfree(buffer->data);
	kfree(buffer);
}

void cache_put(struct volume *vol, struct node_buffer *buffer)
{
	if (atomic_dec_and_test(&buffer->refs))
		cache_free(vol, buffer);
}

/* ---- growing and eviction ---- */

/* Twice the buckets when there are two buffers to each; without memory the chains just get longer. */
static void shard_grow(struct cache_shard *shard)
{
	struct hlist_head *buckets, *old;
	struct node_buffer *buffer;
	struct hlist_node *next;
	u32 mask, size, i;

	spin_lock(&shard->lock);
	size = shard->bucket_mask + 1;
	i = shard->count;
	spin_unlock(&shard->lock);
	if (i <= 2 * size || size >= CACHE_MAX_BUCKETS)
		return;
	buckets = kvzalloc(2 * size * sizeof(*buckets), GFP_NOFS | __GFP_NOWARN);
	if (!buckets)
		return;
	spin_lock(&shard->lock);
	old = buckets;
	mask = shard->bucket_mask;
	if (mask + 1 == size) {
		old = shard->buckets;
		shard->buckets = buckets;
		shard->bucket_mask = 2 * size - 1;
		for (i = 0; i <= mask; i++) {
			hlist_for_each_entry_safe(buffer, next, &old[i], hash_link) {
				hlist_del_init(&buffer->hash_link);
				hlist_add_head(&buffer->hash_link, shard_bucket(shard, buffer->addr));
			}
		}
	}
	spin_unlock(&shard->lock);
	kvfree(old);
}

void cache_keep(struct volume *vol, bool on)
{
	lockdep_assert_held(&vol->delta.commit_mutex);
	WRITE_ONCE(vol->cache.keeping, on);
}

void cache_keep_node(struct volume *vol, struct node_buffer *buffer)
{
	u32 keep = READ_ONCE(vol->cache.keep);

	if (READ_ONCE(buffer->kept) != keep)
		WRITE_ONCE(buffer->kept, keep);
}

void cache_keep_no_more(struct volume *vol)
{
	WRITE_ONCE(vol->cache.keep, vol->cache.keep + 1);
}

/* Not even for memory reclaim.  Who keeps or needs it has a reference then: so that is looked at first. */
static bool buffer_is_needed(struct volume *vol, const struct node_buffer *buffer)
{
	if (atomic_read(&buffer->refs) > 1)
		return true;
	smp_rmb();
	return READ_ONCE(buffer->kept) == READ_ONCE(vol->cache.keep) ||
	       READ_ONCE(buffer->needed) > READ_ONCE(vol->delta.committed);
}

/*
 * May any node leave memory?  Who changes names says that he counts on what has been read, until he sees that somebody has asked
 * here; and it is there until what he has changed is committed.  So the first who asks in a mount may have to wait.
 */
static bool cache_may_evict(struct volume *vol)
{
	if (!READ_ONCE(vol->tree.must_look))
		WRITE_ONCE(vol->tree.must_look, true);
	smp_mb();	/* pairs with tree_look_holds() */
	return (u64)atomic64_read(&vol->tree.trusted) <= READ_ONCE(vol->delta.committed) || volume_error(vol);
}

/* Evict up to want bytes from one shard, looking at no more than scan nodes.  Returns the bytes. */
static u64 shard_evict(struct volume *vol, struct cache_shard *shard, u64 want, u32 scan, bool force)
{
	struct node_buffer *buffer, *next, *spared = NULL;
	struct list_head victims;
	u64 freed = 0;

	INIT_LIST_HEAD(&victims);
	spin_lock(&shard->lock);
	for (; scan && freed < want && !list_empty(&shard->lru); scan--) {
		buffer = list_first_entry(&shard->lru, struct node_buffer, lru_link);
		if (buffer == spared)
			break;		/* once round */
		if (buffer_is_needed(vol, buffer) || (test_bit(NODE_USED, &buffer->state) && !force)) {
			clear_bit(NODE_USED, &buffer->state);
			list_move_tail(&buffer->lru_link, &shard->lru);
			if (!spared)
				spared = buffer;
			continue;
		}
		shard_remove_clean(vol, shard, buffer);
		list_add(&buffer->lru_link, &victims);
		if (test_bit(NODE_AHEAD, &buffer->state))
			atomic64_inc(&vol->cache.wasted);
		freed += vol->block_size;
	}
	spin_unlock(&shard->lock);
	list_for_each_entry_safe(buffer, next, &victims, lru_link) {
		list_del_init(&buffer->lru_link);
		cache_put(vol, buffer);
	}
	return freed;
}

/* After a node became CLEAN: back below the limit, beginning with the shard it is in. */
static void cache_trim(struct volume *vol, struct cache_shard *shard)
{
	struct node_cache *cache = &vol->cache;
	u32 first = shard - cache->shards, i;

	for (i = 0; i < CACHE_SHARDS; i++) {
		s64 limit = READ_ONCE(cache->limit_bytes);
		s64 over = atomic64_read(&cache->clean_bytes) - limit;

		if (over <= 0 || !cache_may_evict(vol))
			return;
		shard_evict(vol, &cache->shards[(first + i) % CACHE_SHARDS], over, CACHE_EVICT_SCAN,
			    over > limit / 4);
	}
}

void cache_set_limit(struct volume *vol, u64 limit_bytes)
{
	struct node_cache *cache = &vol->cache;
	s64 over;

	limit_bytes = min_t(u64, limit_bytes, S64_MAX);
	WRITE_ONCE(cache->limit_bytes, limit_bytes);
	over = atomic64_read(&cache->clean_bytes) - (s64)limit_bytes;
	if (over > 0)
		cache_shrink(vol, over);
}

u64 cache_reclaimable(struct volume *vol)
{
	return max_t(s64, atomic64_read(&vol->cache.clean_bytes), 0);
}

/* From where the last call ended, so that all shards give alike.  Nodes in use lately go only if no others do. */
u64 cache_shrink(struct volume *vol, u64 bytes)
{
	struct node_cache *cache = &vol->cache;
	u64 freed = 0, before;
	u32 round = 0, i;

	if (!cache_may_evict(vol))
		return 0;
	do {
		before = freed;
		for (i = 0; i < CACHE_SHARDS && freed < bytes; i++) {
			u32 hand = (u32)atomic_inc_return(&cache->hand) % CACHE_SHARDS;

			freed += shard_evict(vol, &cache->shards[hand], bytes - freed, 4 * CACHE_EVICT_SCAN,
					     round > 0);
		}
	} while (freed < bytes && (freed > before || !round++));
	return freed;
}

/* ---- finding and reading ---- */

struct node_buffer *cache_peek(struct volume *vol, const struct node_link *link)
{
	struct cache_shard *shard = cache_shard(vol, link->addr);
	struct node_buffer *buffer;

	spin_lock(&shard->lock);
	buffer = shard_find(shard, link->addr);
	if (buffer && buffer_is(buffer, link)) {
		buffer_use(buffer);
		shard->hits++;
	} else {
		buffer = NULL;
	}
	spin_unlock(&shard->lock);
	return buffer;
}

bool cache_has(struct volume *vol, const struct node_link *link)
{
	struct cache_shard *shard = cache_shard(vol, link->addr);
	struct node_buffer *buffer;
	bool has;

	spin_lock(&shard->lock);
	buffer = shard_find(shard, link->addr);
	has = buffer && buffer_is(buffer, link);
	spin_unlock(&shard->lock);
	return has;
}

/* What was read for this link: is it that? */
static int cache_check(struct volume *vol, struct node_buffer *buffer, const struct node_link *link,
		       char *why, size_t why_size)
{
	const struct disk_node *node = buffer->data;

	if (node_check(vol, buffer->data, link->addr, link->birth, link->level, why, why_size))
		return -EIO;
	if (le64_to_cpu(node->birth) != link->birth) {	/* node_check takes 0 for any */
		snprintf(why, why_size, "born in delta %llu, not in 0",
			 le64_to_cpu(node->birth));
		return -EIO;
	}
	buffer_identify(buffer, link);
	return 0;
}

/*
 * Two readers may have missed on the same block: the second takes what the first brought.  Another node
 * in the place, if clean, is from before the block was freed and used again.
 */
static struct node_buffer *cache_add_clean(struct volume *vol, struct node_buffer *buffer,
					   const struct node_link *link, char *why, size_t why_size)
{
	struct cache_shard *shard = cache_shard(vol, link->addr);
	struct node_buffer *old, *unused = NULL;

	shard_grow(shard);
	spin_lock(&shard->lock);
	old = shard_find(shard, link->addr);
	if (old && buffer_is(old, link)) {
		unused = buffer;
		buffer = buffer_use(old);
	} else if (old && !buffer_is_clean(old)) {
		unused = buffer;
		buffer = ERR_PTR(-EIO);
	} else {
		if (old) {
			shard_remove_clean(vol, shard, old);
			unused = old;
		}
		atomic_inc(&buffer->refs);
		shard_insert(shard, buffer);
		shard_add_lru(vol, shard, buffer);
	}
	spin_unlock(&shard->lock);
	if (unused)
		cache_put(vol, unused);
	if (IS_ERR(buffer))
		snprintf(why, why_size, "another node, not yet written, has this block");
	else
		cache_trim(vol, shard);
	return buffer;
}

/* What came from the device: into the cache, or why not. */
static struct node_buffer *cache_take(struct volume *vol, struct node_buffer *buffer, const struct node_link *link, int err,
				      char *why, size_t why_size)
{
	if (err)
		snprintf(why, why_size, "the device failed to read it (%s)", error_text(err));
	else
		err = cache_check(vol, buffer, link, why, why_size);
	if (!err)
		return cache_add_clean(vol, buffer, link, why, why_size);
	cache_free(vol, buffer);
	return ERR_PTR(-EIO);
}

static struct node_buffer *cache_read(struct volume *vol, const struct node_link *link, char *why, size_t why_size)
{
	struct node_buffer *buffer;

	lockdep_assert_not_held(&vol->delta.inside);
	if (link->addr >= vol->total_blocks) {
		snprintf(why, why_size, "there is no such block");
		return ERR_PTR(-EIO);
	}
	buffer = cache_alloc(vol);
	if (!buffer) {
		snprintf(why, why_size, "no memory");
		return ERR_PTR(-ENOMEM);
	}
	atomic64_inc(&vol->cache.misses);
	/* Without tree->sem the block may be written anew meanwhile: it is not what link says then, and cache_check() sees that. */
	return cache_take(vol, buffer, link, data_race(device_read(vol->dev, link->addr, 1, buffer->data)), why, why_size);
}

struct node_buffer *cache_get(struct volume *vol, const struct node_link *link, char *why, size_t why_size)
{
	struct node_buffer *buffer = cache_peek(vol, link);

	return buffer ? buffer : cache_read(vol, link, why, why_size);
}

/*
 * What nobody has asked for yet is not worth that others give memory back for it: with what there is.  Returns how many links,
 * from the first on, have a buffer.
 */
static u32 fetch_alloc(struct volume *vol, struct node_buffer **buffers, struct device_io *reads, const struct node_link *links,
		       u32 count)
{
	u32 n;

	for (n = 0; n < count; n++) {
		buffers[n] = buffer_alloc(vol, GFP_NOFS | __GFP_NOWARN | __GFP_NORETRY);
		if (!buffers[n])
			break;
		reads[n] = (struct device_io){ .addr = links[n].addr, .count = 1, .data = buffers[n]->data };
	}
	return n;
}

/* Returns that of links[wanted], if it was among those for which there was memory; else NULL. */
static struct node_buffer *cache_fetch_batch(struct volume *vol, const struct node_link *links, u32 count, u32 wanted,
					     char *why, size_t why_size)
{
	struct node_buffer *buffers[DEVICE_READS_MAX], *found = NULL, *taken;
	struct device_io reads[DEVICE_READS_MAX];
	u32 n = fetch_alloc(vol, buffers, reads, links, count), i;
	char why_not[NODE_WHY_MAX];

	atomic64_add(n, &vol->cache.misses);
	atomic64_add(n, &vol->cache.ahead);
	(void)data_race((device_read_many(vol->dev, reads, n), 0));	/* see cache_read() */
	for (i = 0; i < n; i++) {
		if (i == wanted) {
			found = cache_take(vol, buffers[i], &links[i], reads[i].err, why, why_size);
			continue;
		}
		set_bit(NODE_AHEAD, &buffers[i]->state);
		taken = cache_take(vol, buffers[i], &links[i], reads[i].err, why_not, sizeof(why_not));
		if (!IS_ERR(taken))
			cache_put(vol, taken);
	}
	return found;
}

void cache_fetch(struct volume *vol, const struct node_link *links, u32 count)
{
	u32 done, n;

	lockdep_assert_not_held(&vol->delta.inside);
	for (done = 0; done < count; done += n) {
		n = min(count - done, DEVICE_READS_MAX);
		cache_fetch_batch(vol, links + done, n, U32_MAX, NULL, 0);
	}
}

struct node_buffer *cache_get_among(struct volume *vol, const struct node_link *links, u32 count, u32 wanted,
				    char *why, size_t why_size)
{
	struct node_buffer *buffer = NULL;

	lockdep_assert_not_held(&vol->delta.inside);
	if (count > 1)
		buffer = cache_fetch_batch(vol, links, count, wanted, why, why_size);
	return buffer ? buffer : cache_get(vol, &links[wanted], why, why_size);
}

/* ---- for edits ---- */

bool cache_busy(struct volume *vol, u64 addr)
{
	struct cache_shard *shard = cache_shard(vol, addr);
	struct node_buffer *buffer;
	bool busy;

	spin_lock(&shard->lock);
	buffer = shard_find(shard, addr);
	busy = buffer && !buffer_is_clean(buffer);
	spin_unlock(&shard->lock);
	return busy;
}

void cache_add_dirty(struct volume *vol, struct node_buffer *buffer, const struct node_link *link)
{
	struct cache_shard *shard = cache_shard(vol, link->addr);

	buffer_identify(buffer, link);
	node_init(vol, buffer->data, link->addr, link->birth, link->level);
	set_bit(NODE_DIRTY, &buffer->state);
	list_add_tail(&buffer->lru_link, &vol->tree.dirty);
	WRITE_ONCE(vol->tree.dirty_count, vol->tree.dirty_count + 1);
	vol->tree.unplaced++;
	shard_grow(shard);
	spin_lock(&shard->lock);
	shard_insert(shard, buffer);
	spin_unlock(&shard->lock);
}

/* Nobody looks for it meanwhile: who has a link to a node without a block holds sem. */
void cache_place(struct volume *vol, struct node_buffer *buffer, u64 addr)
{
	struct cache_shard *shard = cache_shard(vol, buffer->addr);
	struct node_buffer *old;

	spin_lock(&shard->lock);
	hlist_del_init(&buffer->hash_link);
	shard->count--;
	spin_unlock(&shard->lock);

	buffer->addr = addr;
	node_set_addr(buffer->data, addr);
	vol->tree.unplaced--;
	shard = cache_shard(vol, addr);
	shard_grow(shard);
	spin_lock(&shard->lock);
	old = shard_find(shard, addr);
	if (old)
		shard_remove_clean(vol, shard, old);
	shard_insert(shard, buffer);
	spin_unlock(&shard->lock);
	if (old)
		cache_put(vol, old);
}

void cache_drop(struct volume *vol, struct node_buffer *buffer)
{
	struct cache_shard *shard = cache_shard(vol, buffer->addr);
	bool put = true;

	spin_lock(&shard->lock);
	if (test_bit(NODE_DEAD, &buffer->state)) {
		put = false;
	} else if (test_bit(NODE_FLUSHING, &buffer->state)) {
		shard_remove(shard, buffer);	/* whoever writes it still needs it */
		put = false;
	} else if (test_bit(NODE_DIRTY, &buffer->state)) {
		shard_remove(shard, buffer);
	} else {
		shard_remove_clean(vol, shard, buffer);
	}
	spin_unlock(&shard->lock);
	if (!put)
		return;
	if (test_bit(NODE_DIRTY, &buffer->state)) {
		list_del_init(&buffer->lru_link);
		WRITE_ONCE(vol->tree.dirty_count, vol->tree.dirty_count - 1);
		vol->tree.unplaced -= node_unplaced(buffer->addr);
	}
	cache_put(vol, buffer);
}

void cache_make_clean(struct volume *vol, struct node_buffer *buffer)
{
	struct cache_shard *shard = cache_shard(vol, buffer->addr);
	bool dead;

	list_del_init(&buffer->lru_link);
	spin_lock(&shard->lock);
	clear_bit(NODE_FLUSHING, &buffer->state);
	dead = test_bit(NODE_DEAD, &buffer->state);
	if (!dead)
		shard_add_lru(vol, shard, buffer);
	spin_unlock(&shard->lock);
	if (dead)
		cache_put(vol, buffer);
	else
		cache_trim(vol, shard);
}

/* ---- life ---- */

static void shard_exit(struct cache_shard *shard)
{
	kvfree(shard->buckets);
	shard->buckets = NULL;
}

int cache_init(struct volume *vol, u64 limit_bytes)
{
	struct node_cache *cache = &vol->cache;
	u32 i;

	cache->limit_bytes = limit_bytes ? min_t(u64, limit_bytes, S64_MAX) : CACHE_DEFAULT_BYTES;
	atomic64_set(&cache->bytes, 0);
	atomic64_set(&cache->clean_bytes, 0);
	atomic64_set(&cache->misses, 0);
	atomic64_set(&cache->ahead, 0);
	atomic64_set(&cache->wasted, 0);
	atomic_set(&cache->hand, 0);
	cache->keep = 1;		/* of a new buffer it is 0 */
	cache->keeping = false;
	for (i = 0; i < CACHE_SHARDS; i++) {
		struct cache_shard *shard = &cache->shards[i];

		spin_lock_init(&shard->lock);
		INIT_LIST_HEAD(&shard->lru);
		shard->count = 0;
		shard->hits = 0;
		shard->bucket_mask = CACHE_MIN_BUCKETS - 1;
		shard->buckets = kvzalloc(CACHE_MIN_BUCKETS * sizeof(*shard->buckets), GFP_KERNEL);
		if (!shard->buckets)
			goto fail;
	}
	if (!looked_init(cache))
		return 0;
fail:
	while (i--)
		shard_exit(&cache->shards[i]);
	return -ENOMEM;
}

/* Nobody uses the cache any more.  A buffer that somebody still refers to is left alone. */
void cache_exit(struct volume *vol)
{
	struct node_cache *cache = &vol->cache;
	u64 referenced = 0, unwritten = 0;
	struct node_buffer *buffer;
	struct hlist_node *next;
	u32 i, j;

	for (i = 0; i < CACHE_SHARDS; i++) {
		struct cache_shard *shard = &cache->shards[i];

		for (j = 0; shard->buckets && j <= shard->bucket_mask; j++) {
			hlist_for_each_entry_safe(buffer, next, &shard->buckets[j], hash_link) {
				hlist_del_init(&buffer->hash_link);
				unwritten += !buffer_is_clean(buffer);
				if (atomic_read(&buffer->refs) > 1)
					referenced++;
				else
					cache_free(vol, buffer);
			}
		}
		shard_exit(shard);
	}
	looked_exit(cache);
	if (WARN_ON_ONCE(referenced || unwritten || atomic64_read(&cache->bytes)))
		volume_warn(vol, "on closing, %llu tree nodes were still in use, %llu not written and %lld bytes of nodes not freed",
			    referenced, unwritten,
			    atomic64_read(&cache->bytes));
}

u64 cache_hits(struct volume *vol)
{
	u64 hits = 0;
	u32 i;

	for (i = 0; i < CACHE_SHARDS; i++) {
		struct cache_shard *shard = &vol->cache.shards[i];

		spin_lock(&shard->lock);
		hits += shard->hits;
		spin_unlock(&shard->lock);
	}
	return hits;
}
