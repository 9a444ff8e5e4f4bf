/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cached blocks of a file, and which delta they are dirty in.
 *
 * A block has up to two versions here.  Its *own* one, data[], is the newest: what readers see and
 * what the front delta changes.  The back delta's version is either that same buffer, or, once the
 * front end changed or removed the block, the buffer it had then, in back[].  Which of the two:
 *
 *	present	dirty[front] dirty[back] back[]
 *	  -	     -		 -	   -	not cached
 *	  x	     -		 -	   -	clean
 *	  x	     x		 -	   -	changed in the front delta
 *	  x	     -		 x	   -	changed in the back delta; both versions are data[]
 *	  x	     x		 x	   x	changed in both
 *	  x	     -		 x	   x	zeroed by a truncate since, see file_cache_zero
 *	  -	     -		 x	   x	removed since
 *
 * A buffer the back delta needs is thus never written again, whether its I/O has begun or not: the
 * front end goes on with another buffer and leaves the old one to the back end until data_done.  Nobody else
 * knows where a block's buffer is (no mmap here), so that is allowed, and it never has to wait for I/O.
 *
 * Operations on one file are serialized by node->lock, and enter deltas in that order.  So an operation
 * of delta D finds blocks dirty in D and in D - 1, never in D + 1, and delta & 1 tells them apart.
 *
 * Clean blocks of all files are kept to a limit by a clock: chunks with clean blocks are on a list, a
 * second chance for those used since the hand last came by.  The evictor holds the list's lock and
 * only tries the file's, whose holders may take the list's.
 */
#include "lib.h"

#include <linux/hash.h>

#define CLEAN_BATCH	16	/* chunks per lock hold in the back end's walks */
#define SCAN_BATCH	64
#define RUN_CHUNKS	256	/* longest run reported, in chunks */

static struct data_lru *lru_of(struct tux3_node *node)
{
	return &node->volume->lru[hash_64((uintptr_t)node, 32) % LRU_SHARDS];
}

static struct tux3_node *node_of_chunk(const struct file_chunk *chunk)
{
	return container_of(chunk->cache, struct tux3_node, file);
}

static inline u32 slot_of(u64 block)
{
	return block & (CHUNK_BLOCKS - 1);
}

/* Bits of the blocks [from, from + count) of the chunk with this index. */
static u64 range_mask(u64 index, u64 from, u64 count)
{
	u64 start = index << CHUNK_SHIFT;
	u64 end = from + count < from ? ~0ULL : from + count;
	u64 mask = ~0ULL;

	if (from > start)
		mask &= ~0ULL << (from - start);
	if (end < start + CHUNK_BLOCKS && end - start < CHUNK_BLOCKS)
		mask &= ~(~0ULL << (end - start));
	return mask;
}

void file_cache_init(struct file_cache *cache)
{
	spin_lock_init(&cache->lock);
	cache->chunks[CHUNKS_ALL] = cache->chunks[CHUNKS_DIRTY] = RB_ROOT;
	cache->next_read = ~0ULL;
}

/* ---- chunks; with cache->lock ---- */

static struct file_chunk *chunk_of(struct rb_node *rb, enum chunk_tree tree)
{
	return rb ? container_of(rb - tree, struct file_chunk, rb[0]) : NULL;
}

static struct file_chunk *chunk_next(struct file_chunk *chunk, enum chunk_tree tree)
{
	return chunk_of(rb_next(&chunk->rb[tree]), tree);
}

/* The first chunk of this tree with this index or a higher one. */
static struct file_chunk *chunk_from(struct file_cache *cache, enum chunk_tree tree, u64 index)
{
	struct rb_node *rb = cache->chunks[tree].rb_node;
	struct file_chunk *best = NULL;

	while (rb) {
		struct file_chunk *chunk = chunk_of(rb, tree);

		if (chunk->index == index)
			return chunk;
		if (chunk->index > index) {
			best = chunk;
			rb = rb->rb_left;
		} else {
			rb = rb->rb_right;
		}
	}
	return best;
}

static struct file_chunk *chunk_find(struct file_cache *cache, u64 index)
{
	struct file_chunk *chunk = cache->hint;

	if (chunk && chunk->index == index)
		return chunk;
	if (chunk && chunk->index + 1 == index)
		chunk = chunk_next(chunk, CHUNKS_ALL);
	else
		chunk = chunk_from(cache, CHUNKS_ALL, index);
	if (!chunk || chunk->index != index)
		return NULL;
	cache->hint = chunk;
	return chunk;
}

static void chunk_insert(struct file_cache *cache, enum chunk_tree tree, struct file_chunk *chunk)
{
	struct rb_node **link = &cache->chunks[tree].rb_node, *parent = NULL;

	while (*link) {
		parent = *link;
		if (chunk->index < chunk_of(parent, tree)->index)
			link = &parent->rb_left;
		else
			link = &parent->rb_right;
	}
	rb_link_node(&chunk->rb[tree], parent, link);
	rb_insert_color(&chunk->rb[tree], &cache->chunks[tree]);
}

static bool chunk_is_dirty(const struct file_chunk *chunk)
{
	return chunk->dirty[0] | chunk->dirty[1];
}

static void chunk_set_dirty(struct file_chunk *chunk, u32 parity, u64 bits)
{
	bool was = chunk_is_dirty(chunk);

	chunk->dirty[parity] = bits;
	if (!was && chunk_is_dirty(chunk))
		chunk_insert(chunk->cache, CHUNKS_DIRTY, chunk);
	else if (was && !chunk_is_dirty(chunk))
		rb_erase(&chunk->rb[CHUNKS_DIRTY], &chunk->cache->chunks[CHUNKS_DIRTY]);
}

/* Find or make; takes the lock and returns with it held, NULL or not. */
static struct file_chunk *chunk_get(struct file_cache *cache, u64 index)
{
	struct file_chunk *chunk, *fresh;

	spin_lock(&cache->lock);
	chunk = chunk_find(cache, index);
	if (chunk)
		return chunk;
	spin_unlock(&cache->lock);
	fresh = kzalloc(sizeof(*fresh), GFP_KERNEL);
	spin_lock(&cache->lock);
	chunk = chunk_find(cache, index);
	if (chunk || !fresh) {
		kfree(fresh);
		return chunk;
	}
	fresh->index = index;
	fresh->cache = cache;
	INIT_LIST_HEAD(&fresh->lru_link);
	chunk_insert(cache, CHUNKS_ALL, fresh);
	cache->hint = fresh;
	return fresh;
}

static void chunk_lru_add(struct file_chunk *chunk)
{
	struct data_lru *lru = lru_of(node_of_chunk(chunk));

	chunk->referenced = true;
	if (chunk->on_lru)
		return;
	spin_lock(&lru->lock);
	list_add_tail(&chunk->lru_link, &lru->chunks);
	spin_unlock(&lru->lock);
	chunk->on_lru = true;
}

/* Out of the file's cache: the caller has its memory then. */
static void chunk_detach(struct file_chunk *chunk)
{
	struct file_cache *cache = chunk->cache;

	if (chunk->on_lru) {
		struct data_lru *lru = lru_of(node_of_chunk(chunk));

		spin_lock(&lru->lock);
		list_del_init(&chunk->lru_link);
		spin_unlock(&lru->lock);
		chunk->on_lru = false;
	}
	if (cache->hint == chunk)
		cache->hint = NULL;
	rb_erase(&chunk->rb[CHUNKS_ALL], &cache->chunks[CHUNKS_ALL]);
	if (chunk_is_dirty(chunk))
		rb_erase(&chunk->rb[CHUNKS_DIRTY], &cache->chunks[CHUNKS_DIRTY]);
}

static bool chunk_is_empty(const struct file_chunk *chunk)
{
	return !chunk->pins && !chunk->present && !chunk_is_dirty(chunk);
}

/* Moves the buffers of the blocks in mask to out[], returns how many. */
static u32 take_buffers(void **from, u64 mask, void **out)
{
	u32 count = 0;

	while (mask) {
		u32 slot = __builtin_ctzll(mask);

		mask &= mask - 1;
		if (from[slot])
			out[count++] = from[slot];
		from[slot] = NULL;
	}
	return count;
}

/* Without the lock: free a detached chunk and what it holds. */
static void chunk_free(struct tux3 *volume, struct file_chunk *chunk)
{
	void *buffers[CHUNK_BLOCKS];

	buffers_put(volume, buffers, take_buffers(chunk->data, chunk->present, buffers));
	if (chunk->back)
		buffers_put(volume, buffers, take_buffers(chunk->back, ~0ULL, buffers));
	kfree(chunk->back);
	kfree(chunk);
}

void file_cache_exit(struct tux3_node *node)
{
	struct file_cache *cache = &node->file;
	struct data_lru *lru = lru_of(node);
	struct file_chunk *chunk;
	s64 clean = 0;

	spin_lock(&cache->lock);
	while ((chunk = chunk_from(cache, CHUNKS_ALL, 0))) {
		clean += __builtin_popcountll(chunk->present & ~(chunk->dirty[0] | chunk->dirty[1]));
		chunk_detach(chunk);
		spin_unlock(&cache->lock);
		chunk_free(node->volume, chunk);
		spin_lock(&cache->lock);
	}
	spin_unlock(&cache->lock);
	if (clean)
		atomic64_sub(clean, &node->volume->clean_blocks);
	/* An evictor who found one of our chunks on the list may still be about to unlock our lock. */
	spin_lock(&lru->lock);
	spin_unlock(&lru->lock);
}

/* ---- eviction ---- */

/* With the list's and the file's lock. Buffers to out[], the chunk itself if it is not needed any more. */
static u32 evict_chunk(struct file_chunk *chunk, void **out, struct file_chunk **unused)
{
	u64 clean = chunk->present & ~(chunk->dirty[0] | chunk->dirty[1]);
	u32 count = take_buffers(chunk->data, clean, out);

	chunk->present &= ~clean;
	list_del_init(&chunk->lru_link);
	chunk->on_lru = false;
	if (chunk_is_empty(chunk)) {
		chunk_detach(chunk);
		*unused = chunk;
	}
	return count;
}

/* One step of the clock's hand in one list; false: the list is empty. */
static bool trim_step(struct tux3 *volume, struct data_lru *lru)
{
	struct file_chunk *chunk, *unused = NULL;
	void *buffers[CHUNK_BLOCKS];
	u32 count = 0;

	spin_lock(&lru->lock);
	chunk = list_first_entry_or_null(&lru->chunks, struct file_chunk, lru_link);
	if (!chunk) {
		spin_unlock(&lru->lock);
		return false;
	}
	if (!spin_trylock(&chunk->cache->lock)) {
		list_move_tail(&chunk->lru_link, &lru->chunks);
	} else {
		struct file_cache *cache = chunk->cache;

		if (chunk->pins || chunk->referenced) {
			chunk->referenced = false;
			list_move_tail(&chunk->lru_link, &lru->chunks);
		} else {
			count = evict_chunk(chunk, buffers, &unused);
		}
		spin_unlock(&cache->lock);
	}
	spin_unlock(&lru->lock);
	kfree(unused);
	if (count) {
		atomic64_sub(count, &volume->clean_blocks);
		buffers_put(volume, buffers, count);
	}
	return true;
}

void file_cache_trim(struct tux3 *volume, u64 blocks)
{
	s64 over = atomic64_read(&volume->clean_blocks) + blocks - READ_ONCE(volume->clean_limit);
	u64 steps, empty = 0;

	if (over <= 0)
		return;
	/* Enough to pass each chunk twice when all are in use; bounded, a list can grow meanwhile. */
	steps = 16 + over / 8;
	while (steps-- && empty < LRU_SHARDS &&
	       atomic64_read(&volume->clean_blocks) + (s64)blocks > (s64)READ_ONCE(volume->clean_limit)) {
		u32 hand = (u32)atomic_inc_return(&volume->lru_hand) % LRU_SHARDS;

		if (trim_step(volume, &volume->lru[hand]))
			empty = 0;
		else
			empty++;
	}
}

/* ---- reading ---- */

u32 file_cache_get(struct tux3_node *node, u64 block, u32 max, void **buffers, struct file_chunk **chunkp)
{
	struct file_cache *cache = &node->file;
	u32 slot = slot_of(block), count = 0;
	struct file_chunk *chunk;

	spin_lock(&cache->lock);
	chunk = chunk_find(cache, block >> CHUNK_SHIFT);
	if (chunk) {
		for (; count < max && slot < CHUNK_BLOCKS && chunk->present >> slot & 1; slot++)
			buffers[count++] = chunk->data[slot];
		if (count) {
			chunk->pins++;
			chunk->referenced = true;
			*chunkp = chunk;
		}
	}
	spin_unlock(&cache->lock);
	return count;
}

void file_cache_unpin(struct tux3_node *node, struct file_chunk *chunk)
{
	struct file_cache *cache = &node->file;
	bool empty;

	spin_lock(&cache->lock);
	chunk->pins--;
	empty = chunk_is_empty(chunk);
	if (empty)
		chunk_detach(chunk);
	spin_unlock(&cache->lock);
	if (empty)
		chunk_free(node->volume, chunk);
}

u32 file_cache_absent(struct tux3_node *node, u64 block, u32 max)
{
	struct file_cache *cache = &node->file;
	struct file_chunk *chunk;
	u32 count = 0;

	spin_lock(&cache->lock);
	while (count < max) {
		u64 at = block + count, present;
		u32 room = CHUNK_BLOCKS - slot_of(at);

		chunk = chunk_find(cache, at >> CHUNK_SHIFT);
		present = chunk ? chunk->present >> slot_of(at) : 0;
		if (present) {
			count += __builtin_ctzll(present);
			break;
		}
		count += room;
	}
	spin_unlock(&cache->lock);
	return min(count, max);
}

bool file_cache_present(struct tux3_node *node, u64 block)
{
	return !file_cache_absent(node, block, 1);
}

int file_cache_add(struct tux3_node *node, u64 block, void **buffers, u32 count)
{
	struct file_cache *cache = &node->file;
	void *unused[CHUNK_BLOCKS];
	u32 i = 0, added = 0, unused_count;

	while (i < count) {
		u32 end = min_t(u32, count, i + CHUNK_BLOCKS - slot_of(block + i));
		struct file_chunk *chunk = chunk_get(cache, (block + i) >> CHUNK_SHIFT);

		if (!chunk)
			break;
		for (unused_count = 0; i < end; i++) {
			u32 slot = slot_of(block + i);

			if (chunk->present >> slot & 1) {
				unused[unused_count++] = buffers[i];
				continue;
			}
			chunk->data[slot] = buffers[i];
			chunk->present |= 1ULL << slot;
			if ((chunk->dirty[0] | chunk->dirty[1]) >> slot & 1)
				cache->dirty_blocks++;	/* removed, and the back delta still has to write it */
			else
				added++;
		}
		chunk_lru_add(chunk);
		spin_unlock(&cache->lock);
		buffers_put(node->volume, unused, unused_count);
	}
	if (added)
		atomic64_add(added, &node->volume->clean_blocks);
	if (i == count)
		return 0;
	spin_unlock(&cache->lock);
	buffers_put(node->volume, buffers + i, count - i);
	return -ENOMEM;
}

/* ---- changing ---- */

void file_reserve_init(struct file_reserve *reserve, struct tux3_node *node)
{
	reserve->node = node;
	reserve->chunk_count = reserve->array_count = reserve->spare_count = 0;
}

static struct file_chunk *reserved_chunk(struct file_reserve *reserve, u64 index)
{
	u32 i;

	for (i = 0; i < reserve->chunk_count; i++)
		if (reserve->chunks[i]->index == index)
			return reserve->chunks[i];
	return NULL;
}

/* Buffers that these blocks may need: for those that are absent, or dirty and so perhaps in the back delta. */
static int reserve_chunk(struct file_reserve *reserve, u64 index, u64 mask, u32 *need)
{
	struct file_chunk *chunk = chunk_get(&reserve->node->file, index);
	bool want_array;

	if (chunk) {
		u64 dirty = chunk->dirty[0] | chunk->dirty[1];

		if (!reserved_chunk(reserve, index)) {
			chunk->pins++;
			reserve->chunks[reserve->chunk_count++] = chunk;
		}
		/* Even if it has one: that may be gone when the next delta needs another. */
		want_array = dirty & mask;
		*need += __builtin_popcountll((~chunk->present | dirty) & mask);
	}
	spin_unlock(&reserve->node->file.lock);
	if (!chunk)
		return -ENOMEM;
	if (want_array) {
		void **array = kcalloc(CHUNK_BLOCKS, sizeof(void *), GFP_KERNEL);

		if (!array)
			return -ENOMEM;
		reserve->arrays[reserve->array_count++] = array;
	}
	return 0;
}

int file_reserve_blocks(struct file_reserve *reserve, u64 block, u32 count)
{
	u64 index = block >> CHUNK_SHIFT, last = (block + count - 1) >> CHUNK_SHIFT;
	u32 need = 0;
	int err;

	for (; index <= last; index++) {
		err = reserve_chunk(reserve, index, range_mask(index, block, count), &need);
		if (err)
			return err;
	}
	err = buffers_get(reserve->node->volume, reserve->spare + reserve->spare_count, need);
	if (!err)
		reserve->spare_count += need;
	return err;
}

void file_reserve_exit(struct file_reserve *reserve)
{
	u32 i;

	buffers_put(reserve->node->volume, reserve->spare, reserve->spare_count);
	for (i = 0; i < reserve->array_count; i++)
		kfree(reserve->arrays[i]);
	for (i = 0; i < reserve->chunk_count; i++)
		file_cache_unpin(reserve->node, reserve->chunks[i]);
}

/* The block goes on in another buffer; the old one is the back delta's from now on. */
static void leave_to_back(struct file_reserve *reserve, struct file_chunk *chunk, u32 slot, bool keep)
{
	struct tux3 *volume = reserve->node->volume;
	void *buffer = reserve->spare[--reserve->spare_count];

	if (!chunk->back)
		chunk->back = reserve->arrays[--reserve->array_count];
	if (keep)
		memcpy(buffer, chunk->data[slot], volume->block_size);
	chunk->back[slot] = chunk->data[slot];
	chunk->data[slot] = buffer;
	count_add(volume->vol, TUX3_COUNT_PRIVATE_COPIES, 1);
}

static bool back_needs_own(const struct file_chunk *chunk, u32 back, u32 slot)
{
	return (chunk->dirty[back] >> slot & 1) && !(chunk->back && chunk->back[slot]);
}

u32 file_cache_dirty(struct file_reserve *reserve, u64 delta, u64 block, u32 count, u64 keep,
		     void **buffers, u64 *fresh)
{
	struct file_chunk *chunk = reserved_chunk(reserve, block >> CHUNK_SHIFT);
	struct file_cache *cache = &reserve->node->file;
	u32 front = delta & 1, back = !front, newly = 0, i;
	s64 unclean = 0;

	*fresh = 0;
	spin_lock(&cache->lock);
	for (i = 0; i < count; i++) {
		u32 slot = slot_of(block) + i;
		u64 bit = 1ULL << slot;

		if (!(chunk->present & bit)) {
			chunk->data[slot] = reserve->spare[--reserve->spare_count];
			chunk->present |= bit;
			*fresh |= bit;
			cache->dirty_blocks++;
		} else if (!(chunk->dirty[front] & bit)) {
			if (back_needs_own(chunk, back, slot)) {
				leave_to_back(reserve, chunk, slot, keep & bit);
			} else if (!(chunk->dirty[back] & bit)) {
				unclean++;
				cache->dirty_blocks++;
			}
		}
		newly += !(chunk->dirty[front] & bit);
		chunk_set_dirty(chunk, front, chunk->dirty[front] | bit);
		buffers[i] = chunk->data[slot];
	}
	chunk->referenced = true;
	spin_unlock(&cache->lock);
	if (unclean)
		atomic64_sub(unclean, &reserve->node->volume->clean_blocks);
	return newly;
}

void file_cache_zero(struct file_reserve *reserve, u64 delta, u64 block, u32 from, u32 to)
{
	struct file_chunk *chunk = reserved_chunk(reserve, block >> CHUNK_SHIFT);
	struct file_cache *cache = &reserve->node->file;
	u32 slot = slot_of(block), front = delta & 1;

	spin_lock(&cache->lock);
	if (chunk->present >> slot & 1) {
		if (!(chunk->dirty[front] >> slot & 1) && back_needs_own(chunk, !front, slot))
			leave_to_back(reserve, chunk, slot, true);
		memset((char *)chunk->data[slot] + from, 0, to - from);
	}
	spin_unlock(&cache->lock);
}

/* ---- removing ---- */

static void drop_add_array(struct file_drop *drop, void **array)
{
	array[0] = drop->arrays;
	drop->arrays = array;
}

static void **drop_take_array(struct file_drop *drop)
{
	void **array = drop->arrays;

	drop->arrays = array[0];
	array[0] = NULL;
	return array;
}

void file_drop_init(struct file_drop *drop)
{
	INIT_LIST_HEAD(&drop->chunks);
	drop->arrays = NULL;
}

int file_drop_prepare(struct tux3_node *node, u64 block, u64 count, struct file_drop *drop)
{
	struct file_cache *cache = &node->file;
	struct file_chunk *chunk;
	u64 need = 0;

	spin_lock(&cache->lock);
	chunk = chunk_from(cache, CHUNKS_DIRTY, block >> CHUNK_SHIFT);
	for (; chunk; chunk = chunk_next(chunk, CHUNKS_DIRTY)) {
		if (chunk->index > (block + count - 1) >> CHUNK_SHIFT && block + count > block)
			break;
		need++;
	}
	spin_unlock(&cache->lock);
	while (need--) {
		void **array = kcalloc(CHUNK_BLOCKS, sizeof(void *), GFP_KERNEL);

		if (!array)
			return -ENOMEM;
		drop_add_array(drop, array);
	}
	return 0;
}

/* With the lock.  Returns the buffers nobody needs in out[]. */
static u32 drop_from_chunk(struct file_chunk *chunk, u64 mask, u32 front, struct file_drop *drop,
			   u64 *dirty, s64 *clean, void **out)
{
	u64 own = chunk->present & mask, any = chunk->dirty[0] | chunk->dirty[1];
	u64 bits;

	*dirty += __builtin_popcountll(own & chunk->dirty[front]);
	*clean += __builtin_popcountll(own & ~any);
	chunk->cache->dirty_blocks -= __builtin_popcountll(own & any);
	for (bits = own & chunk->dirty[!front]; bits; bits &= bits - 1) {
		u32 slot = __builtin_ctzll(bits);

		if (!back_needs_own(chunk, !front, slot))
			continue;
		if (!chunk->back)
			chunk->back = drop_take_array(drop);
		chunk->back[slot] = chunk->data[slot];
		chunk->data[slot] = NULL;
	}
	chunk->present &= ~mask;
	chunk_set_dirty(chunk, front, chunk->dirty[front] & ~mask);
	return take_buffers(chunk->data, own, out);
}

u64 file_cache_drop(struct tux3_node *node, u64 delta, u64 block, u64 count, struct file_drop *drop)
{
	struct file_cache *cache = &node->file;
	u64 index = block >> CHUNK_SHIFT, dirty = 0;
	void *buffers[CHUNK_BLOCKS];
	s64 clean = 0;

	for (;;) {
		struct file_chunk *chunk;
		bool empty = false;
		u32 unused = 0;
		u64 mask;

		spin_lock(&cache->lock);
		chunk = chunk_from(cache, CHUNKS_ALL, index);
		mask = chunk ? range_mask(chunk->index, block, count) : 0;
		if (!chunk || (block + count > block && chunk->index << CHUNK_SHIFT >= block + count)) {
			spin_unlock(&cache->lock);
			break;
		}
		index = chunk->index + 1;
		if (mask == ~0ULL && !chunk->pins && !chunk->dirty[!(delta & 1)]) {
			/* The whole chunk goes: its buffers are freed after the delta. */
			dirty += __builtin_popcountll(chunk->dirty[delta & 1]);
			clean += __builtin_popcountll(chunk->present & ~chunk->dirty[delta & 1]);
			cache->dirty_blocks -= __builtin_popcountll(chunk->present & chunk->dirty[delta & 1]);
			chunk_detach(chunk);
			list_add(&chunk->lru_link, &drop->chunks);
		} else {
			unused = drop_from_chunk(chunk, mask, delta & 1, drop, &dirty, &clean, buffers);
			empty = chunk_is_empty(chunk);
			if (empty)
				chunk_detach(chunk);
		}
		spin_unlock(&cache->lock);
		buffers_put(node->volume, buffers, unused);
		if (empty)
			chunk_free(node->volume, chunk);
	}
	if (clean)
		atomic64_sub(clean, &node->volume->clean_blocks);
	return dirty;
}

void file_drop_finish(struct tux3_node *node, struct file_drop *drop)
{
	struct file_chunk *chunk, *next;

	list_for_each_entry_safe(chunk, next, &drop->chunks, lru_link)
		chunk_free(node->volume, chunk);
	while (drop->arrays)
		kfree(drop_take_array(drop));
}

/* ---- the back end's view ---- */

/* One that was met in search of what is dirty. */
static void chunk_looked(const struct file_chunk *chunk)
{
	count_add(node_of_chunk(chunk)->volume->vol, TUX3_COUNT_DIRTY_LOOKS, 1);
}

static u64 run_length(struct file_chunk *chunk, u32 slot, u32 parity)
{
	u64 count = 0;
	u32 chunks = 0;

	for (;;) {
		u64 clear = ~chunk->dirty[parity] >> slot;
		struct file_chunk *next;

		/* The shift brought in zeros, which read as dirty here: hence the bound. */
		if (clear)
			return count + __builtin_ctzll(clear);
		count += CHUNK_BLOCKS - slot;
		next = chunk_next(chunk, CHUNKS_DIRTY);
		if (!next || next->index != chunk->index + 1 || ++chunks == RUN_CHUNKS)
			return count;
		chunk = next;
		slot = 0;
	}
}

int file_cache_next_dirty(struct tux3_node *node, u64 delta, u64 from, u64 *block, u64 *count)
{
	struct file_cache *cache = &node->file;
	u32 parity = delta & 1, scanned;
	struct file_chunk *chunk;
	u64 index;

	spin_lock(&cache->lock);
	index = from >> CHUNK_SHIFT;
	for (;;) {
		chunk = chunk_from(cache, CHUNKS_DIRTY, index);
		for (scanned = 0; chunk && scanned < SCAN_BATCH; scanned++) {
			u64 bits = chunk->dirty[parity];

			chunk_looked(chunk);
			if (chunk->index == from >> CHUNK_SHIFT)
				bits &= ~0ULL << slot_of(from);
			if (bits) {
				u32 slot = __builtin_ctzll(bits);

				*block = (chunk->index << CHUNK_SHIFT) + slot;
				*count = run_length(chunk, slot, parity);
				spin_unlock(&cache->lock);
				return 0;
			}
			index = chunk->index + 1;
			chunk = chunk_next(chunk, CHUNKS_DIRTY);
		}
		spin_unlock(&cache->lock);
		if (!chunk)
			return -ENOENT;
		spin_lock(&cache->lock);
	}
}

/* All of them are dirty in delta, and so neither change nor go before file_cache_clean. */
void file_cache_back_buffers(struct tux3_node *node, u64 delta, u64 block, u32 count, void **buffers)
{
	struct file_cache *cache = &node->file;
	struct file_chunk *chunk = NULL;
	u32 i;

	spin_lock(&cache->lock);
	for (i = 0; i < count; i++) {
		u32 slot = slot_of(block + i);

		if (!chunk || !slot)
			chunk = chunk_from(cache, CHUNKS_ALL, (block + i) >> CHUNK_SHIFT);
		buffers[i] = chunk->back && chunk->back[slot] ? chunk->back[slot] : chunk->data[slot];
	}
	spin_unlock(&cache->lock);
}

/* The delta's versions of a chunk's blocks are not needed any more. */
static u32 clean_chunk(struct file_chunk *chunk, u32 parity, u64 *clean, void **out, void ***array)
{
	u64 was = chunk->present & (chunk->dirty[0] | chunk->dirty[1]), now;
	u32 count = 0;

	if (chunk->back) {
		count = take_buffers(chunk->back, ~0ULL, out);
		*array = chunk->back;
		chunk->back = NULL;
	}
	chunk_set_dirty(chunk, parity, 0);
	now = was & ~chunk->dirty[!parity];
	*clean += __builtin_popcountll(now);
	chunk->cache->dirty_blocks -= __builtin_popcountll(now);
	if (now)
		chunk_lru_add(chunk);
	return count;
}

void file_cache_clean(struct tux3_node *node, u64 delta)
{
	struct file_cache *cache = &node->file;
	u32 parity = delta & 1, batch = 0;
	u64 index = 0, clean = 0;
	struct file_chunk *chunk;

	spin_lock(&cache->lock);
	while ((chunk = chunk_from(cache, CHUNKS_DIRTY, index))) {
		void *buffers[CHUNK_BLOCKS], **array = NULL;
		u32 count = 0;
		bool empty;

		index = chunk->index + 1;
		chunk_looked(chunk);
		if (chunk->dirty[parity])
			count = clean_chunk(chunk, parity, &clean, buffers, &array);
		empty = chunk_is_empty(chunk);
		if (empty)
			chunk_detach(chunk);
		if (!empty && !count && !array && ++batch % CLEAN_BATCH)
			continue;
		spin_unlock(&cache->lock);
		buffers_put(node->volume, buffers, count);
		kfree(array);
		if (empty)
			chunk_free(node->volume, chunk);
		atomic64_add(clean, &node->volume->clean_blocks);
		clean = 0;
		file_cache_trim(node->volume, 0);
		spin_lock(&cache->lock);
	}
	spin_unlock(&cache->lock);
	atomic64_add(clean, &node->volume->clean_blocks);
	file_cache_trim(node->volume, 0);
}

bool file_cache_find_dirty(struct tux3_node *node, u64 from, u64 end, u64 *block, u64 *count)
{
	struct file_cache *cache = &node->file;
	struct file_chunk *chunk;
	u64 stop = 0;
	bool found = false;

	spin_lock(&cache->lock);
	chunk = cache->dirty_blocks ? chunk_from(cache, CHUNKS_DIRTY, from >> CHUNK_SHIFT) : NULL;
	for (; chunk && chunk->index << CHUNK_SHIFT < end; chunk = chunk_next(chunk, CHUNKS_DIRTY)) {
		u64 start = chunk->index << CHUNK_SHIFT;
		u64 bits = chunk->present & (chunk->dirty[0] | chunk->dirty[1]) &
			   range_mask(chunk->index, from, end - from);

		chunk_looked(chunk);
		if (!found && bits) {
			found = true;
			*block = stop = start + __builtin_ctzll(bits);
		}
		if (!found)
			continue;
		if (start > stop)
			break;
		bits = ~(bits >> slot_of(stop));
		stop += bits ? __builtin_ctzll(bits) : CHUNK_BLOCKS;
		if (stop < start + CHUNK_BLOCKS)
			break;
	}
	spin_unlock(&cache->lock);
	if (found)
		*count = stop - *block;
	return found;
}

u64 file_cache_dirty_blocks(struct tux3_node *node)
{
	u64 blocks;

	spin_lock(&node->file.lock);
	blocks = node->file.dirty_blocks;
	spin_unlock(&node->file.lock);
	return blocks;
}
