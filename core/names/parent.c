// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Parent pointers: is there room for one more?
 *
 * Names whose hashes collide share an item, which has an end.  A commit must not be the one to find it.  What an item
 * can hold at once while a delta is applied are the pointers from before it and those from after it, in whatever order
 * they come and go.  PARENTS_FIT always fit: so an inode that never had more than two names is not looked at.  For
 * others, to what the tree holds the names are added that were given in the deltas under way: counted by the hash, in
 * a table of the volume.  That two hashes meet there, or that a pointer is counted twice, is no reason to refuse a
 * name: then the deltas are committed, and the tree alone says.
 *
 * The host's lock of the inode (inode.h) keeps others from giving it names meanwhile.
 */
#include "core/volume.h"
#include "core/format/name_hash.h"
#include "core/tree/tree.h"
#include "core/delta/delta.h"
#include "core/names/parent.h"

#define PARENTS_FIT 4u
static_assert(PARENTS_FIT * (sizeof(struct disk_parent) + TUX3_NAME_MAX) <=
	      TUX3_ITEM_MAX(1u << TUX3_MIN_BLOCK_SHIFT));

static u32 parent_bucket(u64 ino, u64 hash)
{
	return hash_64(hash ^ ino << 8, PARENT_BUCKETS_SHIFT);
}

static u32 parent_pending(struct volume *vol, u64 ino, u64 hash)
{
	u32 bucket = parent_bucket(ino, hash);

	return atomic_read(&vol->parents.bytes[0][bucket]) + atomic_read(&vol->parents.bytes[1][bucket]);
}

static u64 parent_name_hash(struct volume *vol, u64 dir, const char *name, u32 len)
{
	return name_hash(vol, dir, TUX3_ITEM_PARENT, name, len);
}

/* Bytes of the item as the tree has it. */
static int parent_chain(struct volume *vol, const struct tree_key *key)
{
	int len = tree_lookup(vol, key, NULL, 0);

	return len == -ENOENT ? 0 : len;
}

/* Where an inode's items are in one leaf, that one was read with the attributes. */
int parent_look(struct tux3_inode *inode, u64 dir, const char *name, u32 len)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_PARENT, 0);
	int err;

	if (likely(!inode->scattered))
		return 0;
	err = parent_chain(inode->vol, &key);		/* apply.c looks whether there is any */
	if (err < 0)
		return err;
	key.offset = parent_name_hash(inode->vol, dir, name, len);
	return min(parent_chain(inode->vol, &key), 0);
}

int parent_room(struct tux3_inode *inode, u64 dir, const char *name, u32 len)
{
	struct volume *vol = inode->vol;
	u32 entry = sizeof(struct disk_parent) + len, pending;
	struct tree_key key;
	int chain, err;
	u64 hash;

	err = parent_look(inode, dir, name, len);
	if (err)
		return err;
	if (S_ISDIR(READ_ONCE(inode->attr.mode)) ||
	    (!READ_ONCE(inode->many_names) && READ_ONCE(inode->attr.nlink) < PARENTS_FIT / 2))
		return 0;
	hash = parent_name_hash(vol, dir, name, len);
	key = tree_key(inode->ino, TUX3_ITEM_PARENT, hash);
	/* First what is pending, then the tree: in between it can only go from here to there.  One is its first name. */
	pending = parent_pending(vol, inode->ino, hash) + sizeof(struct disk_parent) + TUX3_NAME_MAX;
	smp_rmb();		/* pairs with parent_done() */
	chain = parent_chain(vol, &key);
	if (chain < 0)
		return chain;
	if (chain + pending + entry <= TUX3_ITEM_MAX(vol->block_size))
		return 0;
	err = delta_commit(vol);
	if (err)
		return err;
	chain = parent_chain(vol, &key);
	if (chain < 0)
		return chain;
	return chain + entry <= TUX3_ITEM_MAX(vol->block_size) ? 0 : -EMLINK;
}

void parent_add(struct delta_op *op, struct tux3_inode *inode, u64 dir, const char *name, u32 len)
{
	struct parents *parents = &inode->vol->parents;
	unsigned int slot = op->delta & 1;
	u32 bucket;

	if (S_ISDIR(READ_ONCE(inode->attr.mode)))
		return;
	bucket = parent_bucket(inode->ino, parent_name_hash(inode->vol, dir, name, len));
	atomic_add(sizeof(struct disk_parent) + len, &parents->bytes[slot][bucket]);
	if (!test_bit(bucket / PARENT_STRETCH, &parents->used[slot]))
		set_bit(bucket / PARENT_STRETCH, &parents->used[slot]);
}

void parent_done(struct volume *vol, u64 delta)
{
	struct parents *parents = &vol->parents;
	unsigned int slot = delta & 1;
	unsigned long stretch;
	u32 i;

	lockdep_assert_held(&vol->delta.commit_mutex);
	smp_wmb();		/* pairs with parent_room(): they are in the tree */
	for_each_set_bit(stretch, &parents->used[slot], BITS_PER_LONG) {
		for (i = stretch * PARENT_STRETCH; i < (stretch + 1) * PARENT_STRETCH; i++)
			atomic_set(&parents->bytes[slot][i], 0);
	}
	WRITE_ONCE(parents->used[slot], 0);
}

int parent_verify(struct volume *vol, u64 delta, char *why, size_t why_size)
{
	struct parents *parents = &vol->parents;
	unsigned int slot = delta & 1;
	u32 i;

	lockdep_assert_held(&vol->delta.commit_mutex);
	for (i = 0; i < ARRAY_SIZE(parents->bytes[slot]); i++)
		if (atomic_read(&parents->bytes[slot][i]) || READ_ONCE(parents->used[slot]))
			break;
	if (i == ARRAY_SIZE(parents->bytes[slot]))
		return 0;
	snprintf(why, why_size, "delta %llu is durable, but parent pointers are counted as given in it", (unsigned long long)delta);
	return -EIO;
}
