/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inodes in use and lately used, by number.
 *
 * A node has *users* (references of callers: open files, FUSE lookups, operations under way) and
 * *pins* (references of deltas in which it is dirty).
 *
 *	READING --> LIVE			icache_get: filled from the tree
 *	READING --> BAD				not there, or not readable: off the table, freed by its last user
 *	CREATING --> LIVE			icache_new, icache_new_done
 *	LIVE, no users, no pins			on the LRU list; may be freed
 *	LIVE, no users, unnamed --> DEAD	inode_kill, asked by the back end
 *	DEAD, no pins				freed
 *
 * Deleting an inode without a name: whoever takes the last user reference calls data_forget(), which
 * makes the inode dirty in a delta.  When that delta commits, the back end asks icache_kill().  If
 * there are users again by then (a file handle was looked up), or there were and they gave it a name (linkat), the answer is
 * no, and the next last user of one without a name calls data_forget() again.  `forgotten` says that an answer is due, so
 * that data_forget() is called once for each answer.
 *
 * Invariants, all under the shard's lock:
 *  1. users > 0 or pins > 0 or forgetting > 0, or the node is on the LRU list, or a thread is freeing it
 *     and it is off the table.
 *  2. A DEAD node has no users and never gets one.
 *  3. There is at most one node with a number in the table.
 *
 * icache_pin() and icache_kill() are called by the core with inode->lock held: the shard's lock is below
 * that one.
 */
#include "lib.h"
#include "core/names/ops.h"

#include <stdlib.h>
#include <linux/hash.h>

/* The numbers of files made together follow one another: 16 of them have neighbouring buckets, two cache lines, of one shard. */
static u32 hash_of(u64 ino)
{
	return hash_64(ino >> 4, 32);
}

static struct icache_shard *shard_of(struct tux3 *volume, u64 ino)
{
	return &volume->icache[hash_of(ino) % ICACHE_SHARDS];
}

static struct hlist_head *bucket_of(struct icache_shard *shard, u64 ino)
{
	return &shard->buckets[(hash_of(ino) / ICACHE_SHARDS ^ ino % 16) & shard->mask];
}

int icache_init(struct tux3 *volume)
{
	u32 i;

	for (i = 0; i < ICACHE_SHARDS; i++) {
		struct icache_shard *shard = &volume->icache[i];

		spin_lock_init(&shard->lock);
		INIT_LIST_HEAD(&shard->lru);
		init_waitqueue_head(&shard->queue);
		shard->mask = ICACHE_BUCKETS - 1;
		shard->count = 0;
		shard->buckets = kcalloc(ICACHE_BUCKETS, sizeof(*shard->buckets), GFP_KERNEL);
		if (!shard->buckets) {
			icache_exit(volume);
			return -ENOMEM;
		}
	}
	return 0;
}

void icache_exit(struct tux3 *volume)
{
	u32 i;

	for (i = 0; i < ICACHE_SHARDS; i++) {
		kfree(volume->icache[i].buckets);
		volume->icache[i].buckets = NULL;
	}
}

static struct tux3_node *node_alloc(struct tux3 *volume, u64 ino, enum node_state state)
{
	struct tux3_node *node = kzalloc(sizeof(*node), GFP_KERNEL);

	if (!node)
		return NULL;
	inode_setup(volume->vol, &node->inode, ino);
	node->volume = volume;
	node->users = 1;
	atomic_set(&node->state, state);
	INIT_LIST_HEAD(&node->lru_link);
	init_rwsem(&node->lock);
	mutex_init(&node->link_lock);
	file_cache_init(&node->file);
	return node;
}

static void node_free(struct tux3_node *node)
{
	file_cache_exit(node);
	inode_exit(&node->inode);
	pthread_rwlock_destroy(&node->lock.lock);
	kfree(node);
}

/* With the shard's lock, as are all up to the next remark. */
static struct tux3_node *find(struct icache_shard *shard, u64 ino)
{
	struct tux3_node *node;

	hlist_for_each_entry(node, bucket_of(shard, ino), hash_link)
		if (node->inode.ino == ino)
			return node;
	return NULL;
}

static void insert(struct icache_shard *shard, struct tux3_node *node)
{
	hlist_add_head(&node->hash_link, bucket_of(shard, node->inode.ino));
	node->hashed = true;
	WRITE_ONCE(shard->count, shard->count + 1);
}

static void lru_remove(struct icache_shard *shard, struct tux3_node *node)
{
	if (!node->on_lru)
		return;
	list_del_init(&node->lru_link);
	node->on_lru = false;
	shard->lru_count--;
}

static void take_off(struct icache_shard *shard, struct tux3_node *node)
{
	lru_remove(shard, node);
	if (!node->hashed)
		return;
	hlist_del_init(&node->hash_link);
	node->hashed = false;
	WRITE_ONCE(shard->count, shard->count - 1);
}

/*
 * The node may have become unused: returns a node to be freed without the lock, or NULL.  Not
 * always this one: a live node goes to the LRU list, which may push out an older one.
 */
static struct tux3_node *settle(struct icache_shard *shard, struct tux3_node *node)
{
	int state = atomic_read(&node->state);

	if (node->users || node->pins)
		return NULL;
	if (state == ICACHE_DEAD)
		take_off(shard, node);	/* its number may be given away from now on */
	if (node->forgetting)
		return NULL;
	if (state == ICACHE_LIVE && !READ_ONCE(node->volume->closing)) {
		if (!node->on_lru) {
			list_add_tail(&node->lru_link, &shard->lru);
			node->on_lru = true;
			shard->lru_count++;
		}
		if (shard->lru_count <= ICACHE_MAX / ICACHE_SHARDS)
			return NULL;
		node = list_first_entry(&shard->lru, struct tux3_node, lru_link);
	}
	take_off(shard, node);
	return node;
}

/* Without the lock from here on. */

/*
 * Deltas pin as many nodes as they like: four times the buckets when there is a node to each.  Without memory chains get
 * longer.
 */
static void shard_grow(struct icache_shard *shard)
{
	u32 size = READ_ONCE(shard->mask) + 1, i;
	struct hlist_head *buckets, *old;
	struct hlist_node *next;
	struct tux3_node *node;

	if (READ_ONCE(shard->count) <= size || size >= ICACHE_BUCKETS_MAX)
		return;
	buckets = kcalloc(4 * size, sizeof(*buckets), GFP_KERNEL);
	if (!buckets)
		return;
	spin_lock(&shard->lock);
	old = buckets;
	if (shard->mask + 1 == size) {
		old = shard->buckets;
		shard->buckets = buckets;
		WRITE_ONCE(shard->mask, 4 * size - 1);
		for (i = 0; i < size; i++) {
			hlist_for_each_entry_safe(node, next, &old[i], hash_link) {
				hlist_del_init(&node->hash_link);
				hlist_add_head(&node->hash_link, bucket_of(shard, node->inode.ino));
			}
		}
	}
	spin_unlock(&shard->lock);
	kfree(old);
}

static void wait_for_reader(struct icache_shard *shard, struct tux3_node *node)
{
	wait_event(shard->queue, atomic_read_acquire(&node->state) != ICACHE_READING);
}

/* The node was inserted as READING by us. */
static int fill(struct icache_shard *shard, struct tux3_node *node)
{
	int err = inode_read(&node->inode);

	spin_lock(&shard->lock);
	if (err) {
		take_off(shard, node);
		node->error = err == -ENOENT ? -ESTALE : err;
	}
	node->type = node->inode.attr.mode & S_IFMT;
	atomic_set_release(&node->state, err ? ICACHE_BAD : ICACHE_LIVE);
	spin_unlock(&shard->lock);
	wake_up_all(&shard->queue);
	return node->error;
}

static int get_found(struct icache_shard *shard, struct tux3_node *node, struct tux3_node **nodep)
{
	int state = atomic_read(&node->state);
	int err = 0;

	if (state == ICACHE_DEAD || state == ICACHE_CREATING) {
		spin_unlock(&shard->lock);
		return -ESTALE;
	}
	lru_remove(shard, node);
	node->users++;
	spin_unlock(&shard->lock);
	if (state == ICACHE_READING)
		wait_for_reader(shard, node);
	if (atomic_read_acquire(&node->state) == ICACHE_BAD) {
		err = node->error;
		tux3_node_put(node, 1);
		return err;
	}
	*nodep = node;
	return 0;
}

int icache_get(struct tux3 *volume, u64 ino, struct tux3_node **nodep)
{
	struct icache_shard *shard = shard_of(volume, ino);
	struct tux3_node *node, *fresh = NULL;
	int err;

	spin_lock(&shard->lock);
	node = find(shard, ino);
	if (!node) {
		spin_unlock(&shard->lock);
		fresh = node_alloc(volume, ino, ICACHE_READING);
		if (!fresh)
			return -ENOMEM;
		shard_grow(shard);
		spin_lock(&shard->lock);
		node = find(shard, ino);
	}
	if (node) {
		err = get_found(shard, node, nodep);
		if (fresh)
			node_free(fresh);
		return err;
	}
	insert(shard, fresh);
	spin_unlock(&shard->lock);
	err = fill(shard, fresh);
	if (err)
		tux3_node_put(fresh, 1);
	else
		*nodep = fresh;
	return err;
}

/*
 * A node with this number in the table is one that a thread with an old file handle is trying to read
 * (it will not find it), or the dead one whose number was just given back.
 */
int icache_new(struct tux3 *volume, u64 ino, struct tux3_node **nodep)
{
	struct icache_shard *shard = shard_of(volume, ino);
	struct tux3_node *node, *fresh = node_alloc(volume, ino, ICACHE_CREATING);

	if (!fresh)
		return -ENOMEM;
	shard_grow(shard);
	spin_lock(&shard->lock);
	while ((node = find(shard, ino))) {
		if (atomic_read(&node->state) == ICACHE_DEAD) {
			take_off(shard, node);
			continue;
		}
		if (WARN_ON_ONCE(atomic_read(&node->state) != ICACHE_READING)) {
			spin_unlock(&shard->lock);
			node_free(fresh);
			return -EIO;
		}
		node->users++;
		spin_unlock(&shard->lock);
		wait_for_reader(shard, node);
		tux3_node_put(node, 1);
		spin_lock(&shard->lock);
	}
	insert(shard, fresh);
	spin_unlock(&shard->lock);
	*nodep = fresh;
	return 0;
}

void icache_new_done(struct tux3_node *node)
{
	struct icache_shard *shard = shard_of(node->volume, node->inode.ino);

	spin_lock(&shard->lock);
	atomic_set_release(&node->state, ICACHE_LIVE);
	spin_unlock(&shard->lock);
}

void icache_new_failed(struct tux3_node *node)
{
	struct icache_shard *shard = shard_of(node->volume, node->inode.ino);

	spin_lock(&shard->lock);
	take_off(shard, node);
	spin_unlock(&shard->lock);
	node_free(node);
}

void icache_links_changed(struct tux3_node *node)
{
	struct icache_shard *shard = shard_of(node->volume, node->inode.ino);
	bool unnamed = !node_nlink(node);

	spin_lock(&shard->lock);
	/* The back end does not ask about an inode that has a name again. */
	if (!unnamed)
		node->forgotten = false;
	node->unnamed = unnamed;
	spin_unlock(&shard->lock);
}

void tux3_node_ref(struct tux3_node *node, uint64_t count)
{
	struct icache_shard *shard = shard_of(node->volume, node->inode.ino);

	spin_lock(&shard->lock);
	WARN_ON_ONCE(!node->users);
	node->users += count;
	spin_unlock(&shard->lock);
}

void tux3_node_put(struct tux3_node *node, uint64_t count)
{
	struct icache_shard *shard = shard_of(node->volume, node->inode.ino);
	bool forget = false;

	spin_lock(&shard->lock);
	if (WARN_ON_ONCE(node->users < count))
		count = node->users;
	node->users -= count;
	if (!node->users && node->unnamed && !node->forgotten &&
	    atomic_read(&node->state) == ICACHE_LIVE) {
		node->forgotten = true;
		node->forgetting++;
		forget = true;
	}
	node = forget ? node : settle(shard, node);
	spin_unlock(&shard->lock);
	if (forget) {
		data_forget(&node->inode, file_cache_dirty_blocks(node));
		spin_lock(&shard->lock);
		node->forgetting--;
		node = settle(shard, node);
		spin_unlock(&shard->lock);
	}
	if (node)
		node_free(node);
}

void icache_pin(struct tux3_node *node)
{
	struct icache_shard *shard = shard_of(node->volume, node->inode.ino);

	spin_lock(&shard->lock);
	lru_remove(shard, node);
	node->pins++;
	spin_unlock(&shard->lock);
}

struct tux3_node *icache_peek(struct tux3 *volume, u64 ino)
{
	struct icache_shard *shard = shard_of(volume, ino);
	struct tux3_node *node;
	int state;

	spin_lock(&shard->lock);
	node = find(shard, ino);
	state = node ? atomic_read(&node->state) : ICACHE_BAD;
	if (state == ICACHE_LIVE || state == ICACHE_DEAD) {
		lru_remove(shard, node);
		node->pins++;
	} else {
		node = NULL;
	}
	spin_unlock(&shard->lock);
	return node;
}

void icache_unpin(struct tux3_node *node)
{
	struct icache_shard *shard = shard_of(node->volume, node->inode.ino);

	spin_lock(&shard->lock);
	WARN_ON_ONCE(!node->pins);
	node->pins--;
	node = settle(shard, node);
	spin_unlock(&shard->lock);
	if (node)
		node_free(node);
}

bool icache_kill(struct tux3_node *node)
{
	struct icache_shard *shard = shard_of(node->volume, node->inode.ino);
	bool dead;

	spin_lock(&shard->lock);
	/* Who gave it a name since the back end looked had a reference: that is gone, so the name is seen. */
	dead = !node->users && !READ_ONCE(node->inode.attr.nlink);
	node->forgotten = false;
	if (dead)
		atomic_set(&node->state, ICACHE_DEAD);
	spin_unlock(&shard->lock);
	return dead;
}

u64 icache_users(struct tux3 *volume)
{
	u64 count = 0;
	u32 i, b;

	for (i = 0; i < ICACHE_SHARDS; i++) {
		struct icache_shard *shard = &volume->icache[i];
		struct tux3_node *node;

		spin_lock(&shard->lock);
		for (b = 0; b <= shard->mask; b++)
			hlist_for_each_entry(node, &shard->buckets[b], hash_link)
				count += node->users != (node == volume->root);	/* one of the root is ours */
		spin_unlock(&shard->lock);
	}
	return count;
}

bool tux3_node_pending(struct tux3_node *node)
{
	struct icache_shard *shard = shard_of(node->volume, node->inode.ino);
	bool pinned;

	spin_lock(&shard->lock);
	pinned = node->pins != 0;
	spin_unlock(&shard->lock);
	return pinned;
}

struct tux3_node *tux3_node_held(struct tux3 *volume, uint64_t ino)
{
	struct icache_shard *shard = shard_of(volume, ino);
	struct tux3_node *node;

	spin_lock(&shard->lock);
	node = find(shard, ino);
	if (node && !(node->users && atomic_read(&node->state) == ICACHE_LIVE))
		node = NULL;
	spin_unlock(&shard->lock);
	return node;
}

/* A node of the bucket that callers refer to, but for the volume's own reference to the root; and how often. */
static struct tux3_node *find_used(struct tux3 *volume, struct icache_shard *shard, u32 bucket, u64 *count)
{
	struct tux3_node *node, *found = NULL;

	spin_lock(&shard->lock);
	hlist_for_each_entry(node, &shard->buckets[bucket], hash_link) {
		*count = node->users - (node == volume->root);
		if (*count) {
			found = node;
			break;
		}
	}
	spin_unlock(&shard->lock);
	return found;
}

void tux3_put_all(struct tux3 *volume)
{
	struct tux3_node *node;
	u64 count;
	u32 i, b;

	for (i = 0; i < ICACHE_SHARDS; i++)
		for (b = 0; b <= volume->icache[i].mask; b++)
			while ((node = find_used(volume, &volume->icache[i], b, &count)))
				tux3_node_put(node, count);
}

static void drop(struct tux3 *volume, bool all)
{
	u32 i, b;

	for (i = 0; i < ICACHE_SHARDS; i++) {
		struct icache_shard *shard = &volume->icache[i];
		struct hlist_node *next;
		struct tux3_node *node;
		LIST_HEAD(unused);

		spin_lock(&shard->lock);
		for (b = 0; b <= shard->mask; b++) {
			hlist_for_each_entry_safe(node, next, &shard->buckets[b], hash_link) {
				if (all)
					node->users = 0;
				if (node->users || node->pins || node->forgetting)
					continue;
				take_off(shard, node);
				list_add(&node->lru_link, &unused);
			}
		}
		spin_unlock(&shard->lock);
		while (!list_empty(&unused)) {
			node = list_first_entry(&unused, struct tux3_node, lru_link);
			list_del_init(&node->lru_link);
			node_free(node);
		}
	}
}

void icache_drop_unused(struct tux3 *volume)
{
	drop(volume, false);
}

void icache_drop_all(struct tux3 *volume)
{
	drop(volume, true);
}

int tux3_node_get(struct tux3 *volume, uint64_t ino, uint32_t generation, struct tux3_node **node)
{
	int err;

	if (!volume)
		return -EINVAL;
	if (ino != TUX3_INO_ROOT && (ino < TUX3_INO_FIRST || ino > TUX3_INO_MAX))
		return -ESTALE;
	err = icache_get(volume, ino, node);
	if (err || !generation)
		return err;
	if (READ_ONCE((*node)->inode.attr.generation) == generation)
		return 0;
	tux3_node_put(*node, 1);
	return -ESTALE;
}
