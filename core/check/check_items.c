/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker, inode by inode: attributes, inline data and extents, and whether they agree.
 *
 * Items come in key order: check_item() opens an inode when the first of its items comes, and closes
 * the one before.
 */
#include "core/volume.h"
#include "core/format/attr.h"
#include "core/format/format.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/data/data.h"
#include "core/check/check_internal.h"

#define NSEC_IN_SEC 1000000000u
#define TYPE_BIT(type) (1u << (type))

/* ---- one inode ---- */

static bool ino_valid(u64 ino)
{
	return ino == TUX3_INO_ROOT || (ino >= TUX3_INO_FIRST && ino <= TUX3_INO_MAX);
}

static int inode_start(struct check *check, u64 ino)
{
	struct check_current *now = &check->now;
	struct check_inode *inode;

	memset(now, 0, sizeof(*now));
	now->ino = ino;
	now->index = CHECK_NONE;
	now->truncate_from = U64_MAX;
	check_progress(check, CHECK_TREE, check->result->inodes, check->vol->tree_inodes);
	if (!ino_valid(ino))
		return 0;
	inode = check_table_add(check, &check->inodes);
	if (!inode)
		return check->stop;
	inode->ino = ino;
	inode->up = CHECK_NONE;
	now->index = check->inodes.count - 1;
	return 0;
}

/* File blocks up to its end. */
static u64 size_blocks(const struct check *check)
{
	const struct volume *vol = check->vol;

	return (check->now.size >> vol->block_shift) + !!(check->now.size & (vol->block_size - 1));
}

/* The orphan item of the present inode: both come in order of inode numbers. */
static struct check_orphan *orphan_match(struct check *check, u64 ino)
{
	struct check_orphan *orphans = check->orphans.entries;

	while (check->orphan_next < check->orphans.count && orphans[check->orphan_next].ino < ino)
		check->orphan_next++;
	if (check->orphan_next == check->orphans.count || orphans[check->orphan_next].ino != ino)
		return NULL;
	orphans[check->orphan_next].seen = true;
	return &orphans[check->orphan_next];
}

static void inode_check_orphan(struct check *check, struct check_inode *inode)
{
	struct check_current *now = &check->now;
	struct check_orphan *orphan = orphan_match(check, now->ino);

	if (orphan) {
		check->result->orphans++;
		now->truncate_from = orphan->block;
		if (orphan->kind == TUX3_ORPHAN_DELETE) {
			inode->flags |= INODE_TO_DELETE;
			if (now->nlink)
				check_problem(check, ORPHAN_LINKED, now->ino, 0, NULL, now->ino, now->nlink);
			return;
		}
		if (!S_ISREG(now->mode))
			check_problem(check, ORPHAN_KIND, now->ino, 0, NULL, now->ino);
		else if (orphan->block < size_blocks(check))
			check_problem(check, ORPHAN_BAD, now->ino, 0, "what is to go is before the end of the file", now->ino);
	}
	if (!now->nlink)
		check_problem(check, ORPHAN_UNMARKED, now->ino, 0, NULL, now->ino);
}

static void inode_count_kind(struct check_result *result, u32 mode)
{
	result->inodes++;
	if (S_ISDIR(mode))
		result->directories++;
	else if (S_ISREG(mode))
		result->files++;
	else if (S_ISLNK(mode))
		result->symlinks++;
	else
		result->others++;
}

static void inode_check_times(struct check *check)
{
	const struct disk_attr *attr = &check->now.attr;
	const __le32 nsec[] = { attr->atime_nsec, attr->mtime_nsec, attr->ctime_nsec, attr->btime_nsec };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(nsec); i++) {
		if (le32_to_cpu(nsec[i]) >= NSEC_IN_SEC) {
			check_problem(check, ATTR_TIME, check->now.ino, 0, NULL, check->now.ino,
				      le32_to_cpu(nsec[i]));
			break;
		}
	}
}

static int check_attr(struct check *check, const struct tree_key *key, const void *data, u32 len)
{
	struct check_current *now = &check->now;
	struct check_inode *inode;

	now->has_attr = true;
	inode = check_inode_at(check, now->index);
	inode->flags |= INODE_HAS_ATTR;
	if (len != sizeof(now->attr))
		check_problem(check, ATTR_LENGTH, now->ino, 0, NULL, now->ino, len, sizeof(now->attr));
	memcpy(&now->attr, data, min_t(size_t, len, sizeof(now->attr)));
	now->mode = le32_to_cpu(now->attr.mode);
	now->nlink = le32_to_cpu(now->attr.nlink);
	now->flags = le32_to_cpu(now->attr.flags);
	now->size = le64_to_cpu(now->attr.size);
	inode->mode = now->mode & S_IFMT;
	inode->nlink = now->nlink;
	inode_count_kind(check->result, now->mode);
	if (!attr_mode_possible(now->mode) || (now->ino == TUX3_INO_ROOT && !S_ISDIR(now->mode)))
		check_problem(check, ATTR_MODE, now->ino, 0, NULL, now->ino, now->mode);
	if (now->flags & ~TUX3_ATTR_KNOWN)
		check_problem(check, ATTR_FLAGS, now->ino, 0, NULL, now->ino, now->flags);
	if (now->size > TUX3_SIZE_MAX)
		check_problem(check, ATTR_SIZE, now->ino, 0, NULL, now->ino, now->size);
	if (now->attr.spare)
		check_problem(check, ATTR_SPARE, now->ino, 0, NULL, now->ino);
	inode_check_times(check);
	inode_check_orphan(check, inode);
	if (!check->stop)
		check_quota_count(check, &now->attr);
	return check->stop;
}

static void inode_check_inline(struct check *check)
{
	struct check_current *now = &check->now;
	bool is_symlink = S_ISLNK(now->mode);
	bool wanted = is_symlink || now->flags & TUX3_ATTR_INLINE;

	if (is_symlink && (!now->size || now->size > TUX3_SYMLINK_MAX || now->inline_zero))
		check_problem(check, SYMLINK_EMPTY, now->ino, 0, !now->size ? NULL : now->inline_zero ? "there is a zero in it" :
			      "it is too long", now->ino);
	if (now->has_inline && !wanted)
		check_problem(check, INLINE_UNEXPECTED, now->ino, 0, NULL, now->ino);
	else if (now->has_inline && now->inline_len != now->size)
		check_problem(check, INLINE_LENGTH, now->ino, 0, NULL, now->ino, now->inline_len, now->size);
	else if (!now->has_inline && wanted && (now->size || !is_symlink))	/* an empty file has none, and no flag */
		check_problem(check, INLINE_MISSING, now->ino, 0, NULL, now->ino, now->size);
	if (now->has_extents && wanted)
		check_problem(check, INLINE_EXTENTS, now->ino, 0, NULL, now->ino);
}

static void inode_check_dir(struct check *check)
{
	struct check_current *now = &check->now;

	if (now->size != now->entries)
		check_problem(check, DIR_SIZE, now->ino, 0, NULL, now->ino, now->size, now->entries);
	/* A removed directory has a link count of 0, and is empty.  The root is none. */
	if (now->nlink != 2 + now->subdirs && (now->nlink || now->entries || now->ino == TUX3_INO_ROOT))
		check_problem(check, DIR_NLINK, now->ino, 0, NULL, now->ino, now->nlink, 2 + now->subdirs);
}

int check_inode_finish(struct check *check)
{
	struct check_current *now = &check->now;

	if (now->index == CHECK_NONE || !now->ino || check->stop)
		return check->stop;
	if (!now->has_attr) {
		/* What the attributes would have to agree with cannot be told. */
		return check->damaged ? 0 : check_problem(check, ATTR_MISSING, now->ino, 0, NULL, now->ino);
	}
	if (now->has_xattrs && !(now->flags & TUX3_ATTR_XATTRS))
		check_problem(check, XATTR_FLAG, now->ino, 0, NULL, now->ino);
	if (now->has_unwritten && !(now->flags & TUX3_ATTR_PREALLOC))
		check_problem(check, PREALLOC_FLAG, now->ino, 0, NULL, now->ino);
	if (check->damaged)
		return check->stop;
	if (le64_to_cpu(now->attr.blocks) != now->blocks)
		check_problem(check, ATTR_BLOCKS, now->ino, 0, NULL, now->ino, le64_to_cpu(now->attr.blocks),
			      now->blocks);
	if (S_ISDIR(now->mode))
		inode_check_dir(check);
	else
		inode_check_inline(check);
	return check->stop;
}

/* ---- items of an inode ---- */

static int check_inline(struct check *check, const struct tree_key *key, const void *data, u32 len)
{
	struct check_current *now = &check->now;
	int err = 0;

	/* A symlink may have several, one after the other. */
	if (key->offset != now->inline_len || (now->has_inline && !S_ISLNK(now->mode)))
		err = check_problem(check, ITEM_OFFSET, now->ino, 0, NULL, now->ino, key->type, key->offset);
	now->has_inline = true;
	now->inline_zero |= S_ISLNK(now->mode) && memchr(data, 0, len);
	now->inline_len += len;
	return err;
}

static void extent_check_csum(struct check *check, u64 block, u32 flags)
{
	bool wanted = check->vol->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM &&
		      !(flags & (TUX3_EXTENT_UNWRITTEN | TUX3_EXTENT_UNCHECKED));
	u64 ino = check->now.ino;

	if (wanted && !(flags & TUX3_EXTENT_CSUM))
		check_problem(check, EXTENT_NO_CSUM, ino, 0, NULL, ino, block);
	else if (!wanted && flags & TUX3_EXTENT_CSUM)
		check_problem(check, EXTENT_CSUM, ino, 0, NULL, ino, block);
}

/* Where the extent is in the file. */
static void extent_check_offset(struct check *check, u64 block, u32 count, u32 flags)
{
	struct check_current *now = &check->now;
	u64 end_blocks = size_blocks(check);
	u64 max_blocks = (TUX3_SIZE_MAX >> check->vol->block_shift) + 1;

	if (block >= max_blocks || count > max_blocks - block) {
		check_problem(check, EXTENT_OFFSET, now->ino, 0, NULL, now->ino, block);
		return;
	}
	if (block < now->extent_end && !now->overlap_told) {
		now->overlap_told = true;
		check_problem(check, EXTENT_OVERLAP, now->ino, 0, NULL, now->ino, block);
	}
	now->extent_end = max(now->extent_end, block + count);
	if (now->has_attr && block + count > end_blocks && block + count > now->truncate_from)
		return;
	if (now->has_attr && block + count > end_blocks && !(flags & TUX3_EXTENT_UNWRITTEN))
		check_problem(check, EXTENT_BEYOND_END, now->ino, 0, NULL, now->ino, block, now->size);
}

/* Where it is on the disk. */
static void extent_check_place(struct check *check, u64 block, u64 addr, u32 count)
{
	u64 ino = check->now.ino, fixed;

	if (!check_range_inside(check, addr, count)) {
		check_problem(check, EXTENT_PLACE, ino, addr, NULL, ino, block, addr, count);
		return;
	}
	if (balloc_first_fixed(check->vol, addr, count, &fixed))
		check_problem(check, EXTENT_FIXED, ino, fixed, NULL, ino, block, fixed);
	else
		check_use_blocks(check, ino, addr, count);
}

static int check_extent(struct check *check, const struct tree_key *key, const void *data, u32 len)
{
	struct check_current *now = &check->now;
	u32 block_size = check->vol->block_size, count, flags, limit, want;
	struct disk_extent extent = { };

	now->has_extents = true;
	memcpy(&extent, data, min_t(size_t, len, sizeof(extent)));
	count = le32_to_cpu(extent.len);
	flags = le32_to_cpu(extent.flags);
	limit = flags & TUX3_EXTENT_CSUM ? TUX3_EXTENT_CSUM_MAX(block_size) : TUX3_EXTENT_MAX;
	want = flags & TUX3_EXTENT_CSUM ? sizeof(extent) + count * sizeof(__le32) : sizeof(extent);
	if (len < sizeof(extent) || !count || count > limit || len != want)
		return check_problem(check, EXTENT_LENGTH, now->ino, 0, NULL, now->ino, key->offset, count, len);
	check->result->extents++;
	check->result->data_blocks += count;
	now->blocks += count;
	if (flags & TUX3_EXTENT_UNWRITTEN) {
		now->has_unwritten = true;
		check->result->unwritten_blocks += count;
	}
	if (flags & ~TUX3_EXTENT_KNOWN || (flags & TUX3_EXTENT_UNCHECKED && flags != TUX3_EXTENT_UNCHECKED))
		check_problem(check, EXTENT_FLAGS, now->ino, 0, NULL, now->ino, key->offset, flags);
	else
		extent_check_csum(check, key->offset, flags);
	if (le64_to_cpu(extent.birth) > check->vol->delta.committed)
		check_problem(check, EXTENT_BIRTH, now->ino, 0, NULL, now->ino, key->offset,
			      le64_to_cpu(extent.birth), check->vol->delta.committed);
	extent_check_offset(check, key->offset, count, flags);
	extent_check_place(check, key->offset, le64_to_cpu(extent.addr), count);
	return check->stop;
}

/* ---- items of the volume ---- */

static int check_orphan(struct check *check, const struct tree_key *key, const void *data, u32 len)
{
	struct check_orphan *orphan;
	struct disk_orphan disk;
	u32 kind;

	if (len != sizeof(disk))
		return check_problem(check, ORPHAN_BAD, key->offset, 0, NULL, key->offset);
	memcpy(&disk, data, sizeof(disk));
	kind = le32_to_cpu(disk.kind);
	if ((kind != TUX3_ORPHAN_DELETE && kind != TUX3_ORPHAN_TRUNCATE) || disk.spare || key->offset == TUX3_INO_ROOT)
		check_problem(check, ORPHAN_BAD, key->offset, 0, NULL, key->offset);
	orphan = check_table_add(check, &check->orphans);
	if (!orphan)
		return check->stop;
	orphan->ino = key->offset;
	orphan->kind = kind;
	orphan->block = kind == TUX3_ORPHAN_TRUNCATE ? le64_to_cpu(disk.block) : 0;	/* it may have been cut off before */
	return check->stop;
}

/* ---- any item ---- */

/* What each type may be an item of, by file type (mode >> 12), and how to check it. */
#define KIND(mode) (1u << ((mode) >> 12))
#define KIND_ANY U16_MAX

static const struct {
	int (*check)(struct check *check, const struct tree_key *key, const void *data, u32 len);
	u32 kinds;
	bool of_volume;		/* of TUX3_INO_VOLUME, no other */
	bool at_zero;		/* offset must be 0 */
} item_kinds[] = {
	[TUX3_ITEM_ATTR] = { check_attr, KIND_ANY, false, true },
	[TUX3_ITEM_PARENT] = { check_parents, KIND_ANY, false, false },
	[TUX3_ITEM_INLINE] = { check_inline, KIND(S_IFREG) | KIND(S_IFLNK), false, false },
	[TUX3_ITEM_XATTR] = { check_xattrs, KIND_ANY, false, false },
	[TUX3_ITEM_DIRENT] = { check_dirents, KIND(S_IFDIR), false, false },
	[TUX3_ITEM_EXTENT] = { check_extent, KIND(S_IFREG), false, false },
	[TUX3_ITEM_QUOTA_USER] = { check_quota_item, 0, true, false },
	[TUX3_ITEM_QUOTA_GROUP] = { check_quota_item, 0, true, false },
	[TUX3_ITEM_QUOTA_PROJECT] = { check_quota_item, 0, true, false },
	[TUX3_ITEM_ORPHAN] = { check_orphan, 0, true, false },
};

int check_item(struct check *check, const struct tree_key *key, const void *data, u32 len, u64 addr)
{
	struct check_current *now = &check->now;
	int err;

	check->result->items++;
	if (key->ino != now->ino) {
		err = check_inode_finish(check);
		if (!err)
			err = inode_start(check, key->ino);
		if (err)
			return err;
	}
	if (key->type >= ARRAY_SIZE(item_kinds) || !item_kinds[key->type].check) {
		/* A compatible feature of a later version may have brought it. */
		if (check->vol->feature_compat & ~tux3_features_known(TUX3_COMPAT))
			return 0;
		return check_problem(check, ITEM_TYPE, key->ino, addr, NULL, key->ino, key->type);
	}
	if (item_kinds[key->type].of_volume ? key->ino != TUX3_INO_VOLUME : now->index == CHECK_NONE)
		return check_problem(check, ITEM_INO, key->ino, addr, NULL, key->type, key->ino);
	if (item_kinds[key->type].at_zero && key->offset)
		return check_problem(check, ITEM_OFFSET, key->ino, addr, NULL, key->ino, key->type, key->offset);
	if (now->has_attr && attr_mode_possible(now->mode) && !(item_kinds[key->type].kinds & KIND(now->mode & S_IFMT)) &&
	    !(now->wrong_types & TYPE_BIT(key->type))) {
		now->wrong_types |= TYPE_BIT(key->type);
		check_problem(check, TYPE_ITEMS, key->ino, addr, NULL, key->ino, now->mode, key->type);
	}
	if (check->stop)
		return check->stop;
	return item_kinds[key->type].check(check, key, data, len);
}
