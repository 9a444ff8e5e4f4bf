// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Looking whether an edit can be made, before it is logged: reach.h.
 *
 * What an edit of extents meets: the leaves of all that it takes; the item before, which may go on into them, or be joined; and
 * where an extent goes on behind the end, the leaf where its rest will begin.  A leaf that loses its last item leaves its range
 * to the one before: so there must be something before in the same leaf, or that one must be readable, too.
 *
 * By the back end: only it edits, and what it looks at stays in memory until then (cache_keep()).  By others it is a hint.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/inode/inode.h"
#include "core/data/data.h"
#include "core/data/delete.h"
#include "core/data/reach.h"

/* The item before this one, of whatever inode. */
static int reach_before(struct tux3_inode *inode, u8 type, u64 offset)
{
	struct tree_key at = offset ? tree_key(inode->ino, type, offset - 1) : tree_key(inode->ino, type - 1, U64_MAX);

	return tree_look_before(inode->vol, &at);
}

/* The extent that has this block, and begins there or before: 1, and *addr is that of the block.  0: there is none. */
static int extent_of(struct tux3_inode *inode, u64 block, u64 begins, u64 *addr, u64 *count)
{
	struct tree_key first = tree_key(inode->ino, TUX3_ITEM_EXTENT, 0), at = tree_key(inode->ino, TUX3_ITEM_EXTENT, begins);
	struct disk_extent extent;
	struct tree_key found;
	int len = tree_lookup_before(inode->vol, &at, &first, &found, &extent, sizeof(extent));

	if (len < (int)sizeof(extent) || found.offset + le32_to_cpu(extent.len) <= block)
		return len == -ENOENT ? 0 : min(len, 0);
	*addr = le64_to_cpu(extent.addr) + (block - found.offset);
	*count = found.offset + le32_to_cpu(extent.len) - block;
	return 1;
}

/* One that lies across this place: likewise. */
static int extent_across(struct tux3_inode *inode, u64 block, u64 *addr, u64 *count)
{
	return block ? extent_of(inode, block, block - 1, addr, count) : 0;
}

/* If an extent goes on behind end: its rest will be an item there. */
static int reach_rest(struct tux3_inode *inode, u64 end)
{
	struct tree_key at = tree_key(inode->ino, TUX3_ITEM_EXTENT, end);
	u64 addr, count;
	int across = extent_across(inode, end, &addr, &count);

	return across > 0 ? tree_look(inode->vol, &at) : across;
}

int reach_maps(struct tux3_inode *inode, u64 block, u64 count)
{
	u64 end = count > DATA_END - block ? DATA_END : block + count;
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_EXTENT, block), to = tree_key(inode->ino, TUX3_ITEM_EXTENT, end - 1);
	u64 addr, there;
	int err;

	if (balloc_all_loaded(inode->vol))
		return 0;
	err = extent_of(inode, block, block, &addr, &there);
	if (err > 0) {		/* mostly that has all of them */
		err = delete_look_blocks(inode->vol, addr, min(there, end - block));
		if (!err && there >= end - block)
			return 0;
	}
	return err ? err : delete_look_items(inode->vol, &from, &to);
}

int reach_need_maps(struct tux3_inode *inode, u64 block, u64 count, u64 delta)
{
	u64 end = count > DATA_END - block ? DATA_END : block + count;
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_EXTENT, block), to = tree_key(inode->ino, TUX3_ITEM_EXTENT, end - 1);
	u64 addr, there;
	int err;

	if (balloc_all_stay(inode->vol))
		return 0;
	err = extent_across(inode, block, &addr, &there);
	if (err > 0)
		err = balloc_need(inode->vol, addr, min(there, end - block), delta);
	return err ? err : delete_need_maps(inode->vol, &from, &to, delta);
}

static int see_first(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	*(u64 *)ctx = key->offset;
	return 1;
}

/* The leaf before that of block cannot be read.  Who begins behind the first item does not need it: so many blocks do. */
static u64 need_before(struct tux3_inode *inode, u64 block, u64 count)
{
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_EXTENT, block);
	struct tree_key to = tree_key(inode->ino, TUX3_ITEM_EXTENT, block + count - 1), next;
	u64 first = block + count - 1;
	bool more;

	tree_scan_leaf(inode->vol, &from, &to, see_first, &first, &more, &next);
	return first + 1 - block;
}

/* Where the extent across end has its rest cannot be read.  So many blocks are before that extent. */
static u64 before_rest(struct tux3_inode *inode, u64 block, u64 end)
{
	struct tree_key at = tree_key(inode->ino, TUX3_ITEM_EXTENT, end - 1), first = tree_key(inode->ino, TUX3_ITEM_EXTENT, 0);
	struct tree_key found;
	int len = tree_lookup_before(inode->vol, &at, &first, &found, NULL, 0);

	return len > 0 && found.offset > block ? found.offset - block : 0;
}

int reach_blocks(struct tux3_inode *inode, u64 block, u64 *count, u64 *bad_end)
{
	u64 end = *count > DATA_END - block ? DATA_END : block + *count, leaf_end, part;
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_EXTENT, block), to = tree_key(inode->ino, TUX3_ITEM_EXTENT, end - 1);
	struct tree_key next;
	bool more;
	int err = tree_scan_leaf(inode->vol, &from, &to, NULL, NULL, &more, &next);

	leaf_end = more && next.ino == inode->ino && next.type == TUX3_ITEM_EXTENT ? next.offset : DATA_END;
	*bad_end = err == -EIO ? leaf_end : block;
	if (leaf_end < end) {
		end = leaf_end;
		*count = end - block;
	}
	if (!err) {
		err = reach_before(inode, TUX3_ITEM_EXTENT, block);
		if (err == -EIO && end != DATA_END)
			*count = need_before(inode, block, *count);
	}
	if (!err && end != DATA_END) {
		err = reach_rest(inode, end);
		part = err == -EIO ? before_rest(inode, block, end) : 0;
		if (part) {
			*count = part;
			err = 0;
		}
	}
	return err ? err : reach_maps(inode, block, *count);
}

int reach_all(struct tux3_inode *inode, u64 block, u64 count)
{
	u64 end = count > DATA_END - block ? DATA_END : block + count, part, bad_end;
	int err = 0;

	for (; block < end && !err; block += part) {
		part = end - block;
		err = reach_blocks(inode, block, &part, &bad_end);
		cond_resched();
	}
	return err;
}

int reach_item(struct tux3_inode *inode, u8 type)
{
	struct tree_key key = tree_key(inode->ino, type, 0);
	int err = tree_look(inode->vol, &key);

	return err ? err : reach_before(inode, type, 0);
}

int reach_xattr(struct tux3_inode *inode, u64 hash)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_XATTR, hash);
	int err = delete_look_items(inode->vol, &key, &key);

	return err ? err : reach_before(inode, TUX3_ITEM_XATTR, hash);
}
