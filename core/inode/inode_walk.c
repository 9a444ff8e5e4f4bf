// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Walking over the inodes of a volume.  See inode_walk.h.
 *
 * The tree has the inodes as of the newest commit.  What was changed since is in an inode object, which a delta pins: so while
 * tree.sem is held shared (nothing is applied meanwhile) an inode is what its object says, or, if there is none, what
 * the tree says.  The host is asked for the object of each (inode_peek()).
 *
 * What was made and is not in the tree yet is known by its number, which ialloc holds until then.  These numbers are looked at
 * *before* leaves are read: an inode that was there all the time either is in the leaf, or its number was held.  Of one that is
 * not in the leaf, first its object is looked for, then the tree: when it had no object any more, it was in the tree.  Numbers
 * that directories hold for their next files are not among these: in a volume at rest there are none.
 *
 * Locking: see inode_walk.h; objects are looked at with tree.sem held, inode->lock below it.
 */
#include "core/volume.h"
#include "core/inode/ialloc.h"
#include "core/inode/inode.h"
#include "core/inode/inode_walk.h"
#include "core/ioctl.h"
#include "core/tree/tree.h"

#define WALK_AHEAD	64u	/* leaves read together */

struct inode_walk {
	struct volume *vol;
	struct inode_seen *seen;
	u32 count, max;
	u64 next;		/* number to go on with */
	bool full;
	/* Numbers that were held when the call began, or this part of it, and are not told yet: all up to held_to. */
	unsigned long held[IALLOC_WINDOW_NUMBERS / BITS_PER_LONG];
	u64 held_first, held_to;
};

static bool seen_from_disk(const struct volume *vol, struct inode_seen *seen, u64 ino, const void *data, u32 len)
{
	struct disk_attr disk;

	if (len != sizeof(disk))
		return false;
	memcpy(&disk, data, sizeof(disk));
	seen->ino = ino;
	if (attr_from_disk(vol, &seen->attr, &seen->blocks, &disk))
		return false;
	seen->blocks = max(seen->blocks, attr_least_blocks(&seen->attr));
	return true;
}

static bool peek(struct volume *vol, struct inode_seen *seen)
{
	return vol->host && vol->host->inode_peek && vol->host->inode_peek(vol, seen->ino, &seen->attr, &seen->blocks);
}

/* Under the tree's lock. */
static int walk_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct inode_walk *walk = ctx;
	struct inode_seen *seen = &walk->seen[walk->count];

	if (key->type != TUX3_ITEM_ATTR || key->offset)
		return 0;
	if (walk->count == walk->max) {
		walk->full = true;
		walk->next = key->ino;
		return 1;
	}
	if (!seen_from_disk(walk->vol, seen, key->ino, data, len)) {
		walk->full = true;
		walk->next = key->ino;
		return -EUCLEAN;
	}
	peek(walk->vol, seen);
	walk->count += seen->attr.nlink != 0;
	if (key->ino >= walk->held_first && key->ino - walk->held_first < IALLOC_WINDOW_NUMBERS)
		__clear_bit(key->ino - walk->held_first, walk->held);
	return 0;
}

/* One whose number was held, and that was not in the leaf.  0: it is none that has a name; 1, or -errno. */
static int walk_held(struct volume *vol, u64 ino, struct inode_seen *seen)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);
	struct disk_attr disk;
	int len;

	*seen = (struct inode_seen){ .ino = ino };
	if (peek(vol, seen))
		return seen->attr.nlink != 0;
	len = tree_lookup(vol, &key, &disk, sizeof(disk));
	if (len == -ENOENT)
		return 0;
	if (len < 0)
		return len;
	return seen_from_disk(vol, seen, ino, &disk, len) ? seen->attr.nlink != 0 : -EUCLEAN;
}

/* Put it where its number belongs, behind those of `begin`; what has no room any more is the next. */
static void walk_insert(struct inode_walk *walk, u32 begin, const struct inode_seen *seen)
{
	u32 at = walk->count;

	while (at > begin && walk->seen[at - 1].ino > seen->ino)
		at--;
	if (at > begin && walk->seen[at - 1].ino == seen->ino)
		return;
	if (walk->count == walk->max) {
		walk->full = true;
		walk->next = at == walk->max ? seen->ino : walk->seen[walk->max - 1].ino;
		if (at == walk->max)
			return;
		walk->count--;
	}
	memmove(&walk->seen[at + 1], &walk->seen[at], (walk->count - at) * sizeof(*seen));
	walk->seen[at] = *seen;
	walk->count++;
}

/* This one cannot be had: nothing from it on is told. */
static void walk_cut(struct inode_walk *walk, u32 begin, u64 ino)
{
	while (walk->count > begin && walk->seen[walk->count - 1].ino > ino)
		walk->count--;
	walk->next = ino;
	walk->full = true;
}

/* What was made lately, of the numbers from `from` on and before walk->next. */
static int walk_insert_held(struct inode_walk *walk, u32 begin, u64 from)
{
	struct inode_seen seen;
	u32 at = from > walk->held_first ? min_t(u64, from - walk->held_first, IALLOC_WINDOW_NUMBERS) : 0;
	int ret;

	for (;; at++) {
		at = find_next_bit(walk->held, IALLOC_WINDOW_NUMBERS, at);
		if (at == IALLOC_WINDOW_NUMBERS || walk->held_first + at >= walk->next)
			return 0;
		ret = walk_held(walk->vol, walk->held_first + at, &seen);
		if (ret < 0) {
			walk_cut(walk, begin, walk->held_first + at);
			return ret;
		}
		if (ret)
			walk_insert(walk, begin, &seen);
	}
}

/* From walk->next on, as far as one leaf goes. */
static int walk_leaf(struct inode_walk *walk)
{
	struct tree_key low = tree_key(walk->next, TUX3_ITEM_ATTR, 0), high = tree_key(walk->held_to, U8_MAX, U64_MAX), next;
	u64 from = walk->next;
	u32 begin = walk->count;
	bool more;
	int ret = tree_scan_leaf(walk->vol, &low, &high, walk_item, walk, &more, &next), err;

	if (ret < 0 && !walk->full)
		return ret;
	if (!walk->full) {
		walk->next = walk->held_to + 1;
		if (more && next.ino <= walk->held_to)	/* attributes come before all else of an inode */
			walk->next = next.ino + (next.type > TUX3_ITEM_ATTR || (next.type == TUX3_ITEM_ATTR && next.offset));
	}
	err = walk_insert_held(walk, begin, from);
	return ret < 0 ? ret : err;
}

int inode_walk(struct volume *vol, u64 *ino, struct inode_seen *seen, u32 max)
{
	struct inode_walk walk = { .vol = vol, .seen = seen, .max = max, .next = max_t(u64, *ino, TUX3_INO_ROOT) };
	struct tree_key ahead = tree_key(0, 0, 0), from;
	int err = 0;

	while (!err && !walk.full && walk.next <= TUX3_INO_MAX) {
		if (walk.next > walk.held_to)
			walk.held_to = ialloc_held(vol, walk.next, &walk.held_first, walk.held);
		from = tree_key(walk.next, TUX3_ITEM_ATTR, 0);
		if (tree_key_compare(&from, &ahead) >= 0)
			tree_read_ahead(vol, &from, TUX3_ITEM_ATTR, min(max / 8 + 1, WALK_AHEAD), &ahead);
		err = walk_leaf(&walk);
		if (!err && fatal_signal_pending(current))
			err = -EINTR;
	}
	*ino = walk.next;
	if (err == -EUCLEAN && !walk.count)
		volume_warn(vol, "the attributes of inode %llu are not valid", (unsigned long long)walk.next);
	return walk.count ? walk.count : err;
}

int inode_walk_request(struct tux3_ioc_inodes_header *header, u32 *wanted)
{
	const u32 known = TUX3_INODES_SPECIAL | TUX3_INODES_EXTENTS_64 | TUX3_INODES_METADIR;

	if (!header->wanted || header->flags & ~known || header->agno ||
	    memchr_inv(header->reserved, 0, sizeof(header->reserved)))
		return -EINVAL;
	*wanted = header->wanted;
	if (header->flags & TUX3_INODES_SPECIAL) {
		if (header->ino != TUX3_INODES_SPECIAL_ROOT)
			return -EINVAL;
		header->ino = TUX3_INO_ROOT;
		*wanted = 1;
	}
	header->count = 0;
	return 0;
}

void inode_seen_to_ioctl(struct volume *vol, const struct inode_seen *seen, struct tux3_ioc_inode *to)
{
	const struct tux3_attr *attr = &seen->attr;

	*to = (struct tux3_ioc_inode){
		.ino = seen->ino, .size = attr->size, .blocks = seen->blocks,
		.xflags = attr_flags_to_xflags(attr->flags),
		.atime = attr->atime.sec, .mtime = attr->mtime.sec, .ctime = attr->ctime.sec, .btime = attr->btime.sec,
		.generation = attr->generation, .uid = attr->uid, .gid = attr->gid, .projid = attr->projid,
		.atime_nsec = attr->atime.nsec, .mtime_nsec = attr->mtime.nsec,
		.ctime_nsec = attr->ctime.nsec, .btime_nsec = attr->btime.nsec,
		.block_size = vol->block_size,
		.rdev = attr->rdev_minor | attr->rdev_major << 18,
		.rdev_major = attr->rdev_major, .rdev_minor = attr->rdev_minor,
		.nlink = attr->nlink, .version = TUX3_INODES_VERSION, .mode = attr->mode,
	};
}
