/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: the items of one inode, brought into agreement with each other.
 *
 * First all are looked at: what there is, and which cannot stay as they are.  Then these are changed one by one, and the
 * attributes are made to say what is there.  What an item says counts more than what the attributes say about it, but for
 * the size: a file may well end with a hole.
 */
#include "core/device/device.h"
#include "core/format/attr.h"
#include "core/format/name_hash.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/log/apply.h"
#include "core/data/data.h"
#include "core/check/check_internal.h"
#include "core/repair/repair_internal.h"
#include "core/repair/repair_lost.h"

#define NAME_TEXT 300u
#define NSEC_IN_SEC 1000000000u
#define PARTS_MAX (1u << 18)	/* that extents are cut into: more is no damage, and takes time with the square of it */

/* What there is. */
struct survey {
	struct repair *repair;
	u64 ino;
	u32 types;			/* bit n: items of type n */
	struct repair_table odd;	/* struct tree_key: items that cannot stay as they are */
	bool has_attr, attr_odd, no_memory;
	bool kind_unknown;		/* a file or a symlink */
	struct disk_attr attr;
	u32 mode;
	u64 inline_len;
	u32 inline_first;		/* bytes of the piece at offset 0 */
	bool target_lost;		/* of a symlink, which is a file now */
	bool inline_gap, inline_more;	/* pieces are missing; there are others than that one */
	bool inline_zero;		/* a byte that no target can have */
	u64 extent_end, written_end;	/* file blocks behind the last extent, and the last that is not unwritten */
	u64 blocks, entries, subdirs;
	bool has_unwritten;
	struct disk_extent last;	/* the extent before */
	u64 last_block;
};

static void survey_odd(struct survey *survey, const struct tree_key *key)
{
	struct tree_key *odd = repair_add(&survey->odd, sizeof(*odd));

	if (odd)
		*odd = *key;
	else
		survey->no_memory = true;
}

/* ---- chains ---- */

/* The next entry of any chain; *hash: where it belongs; *bad: it cannot stay; NULL at the end. */
struct entry_view {
	u64 ino;
	const u8 *name;
	u32 name_len, size;
	u64 hash;
	bool bad;
};

static bool xattr_possible(struct repair *repair, const struct disk_xattr *entry)
{
	const u8 *value = entry->name + entry->len;
	u32 len = get_unaligned_le32(&entry->value_len), i;
	const struct disk_xattr_piece *piece = (const void *)value;
	u64 blocks = 0;

	if (!entry->len)
		return false;
	if (!entry->pieces)
		return len <= TUX3_XATTR_INLINE_MAX && crc32c(~0, value, len) == get_unaligned_le32(&entry->value_crc);
	for (i = 0; i < entry->pieces; i++, piece++) {
		if (!apply_blocks_valid(repair->vol, get_unaligned_le64(&piece->addr), get_unaligned_le32(&piece->len)))
			return false;
		blocks += get_unaligned_le32(&piece->len);
	}
	return blocks == DIV_ROUND_UP(len, repair->vol->block_size);
}

static const void *next_entry(struct repair *repair, const struct tree_key *key, struct check_chain *chain, struct entry_view *view)
{
	const struct disk_dirent *dirent;
	const struct disk_parent *parent;
	const struct disk_xattr *xattr;
	const void *entry;
	u64 ino = key->ino;

	switch (key->type) {
	case TUX3_ITEM_DIRENT:
		entry = dirent = check_next_dirent(chain);
		view->name = dirent ? dirent->name : NULL;
		view->name_len = dirent ? dirent->len : 0;
		view->bad = dirent && !check_name_valid(dirent->name, dirent->len);
		break;
	case TUX3_ITEM_PARENT:
		entry = parent = check_next_parent(chain);
		view->name = parent ? parent->name : NULL;
		view->name_len = parent ? parent->len : 0;
		view->bad = parent && !check_name_valid(parent->name, parent->len);
		ino = parent ? get_unaligned_le64(&parent->dir) : 0;
		break;
	default:
		entry = xattr = check_next_xattr(chain);
		view->name = xattr ? xattr->name : NULL;
		view->name_len = xattr ? xattr->len : 0;
		view->bad = xattr && !xattr_possible(repair, xattr);
		break;
	}
	view->ino = ino;
	view->size = chain->size;
	if (entry)
		view->hash = name_hash(repair->vol, ino, key->type, (const char *)view->name, view->name_len);
	return entry;
}

/* Is there an entry before this one in the chain with the same name (and directory)? */
static bool entry_twice(struct repair *repair, const struct tree_key *key, const struct check_chain *chain,
			const struct entry_view *view)
{
	struct check_chain before = { .data = chain->data, .len = chain->at };
	struct entry_view other;

	while (next_entry(repair, key, &before, &other))
		if (other.ino == view->ino && other.name_len == view->name_len && !memcmp(other.name, view->name, view->name_len))
			return true;
	return false;
}

static void survey_chain(struct survey *survey, const struct tree_key *key, const void *data, u32 len)
{
	struct check_chain chain = { .data = data, .len = len };
	struct repair *repair = survey->repair;
	struct entry_view view;
	const void *entry;
	bool odd = false;

	while ((entry = next_entry(repair, key, &chain, &view))) {
		odd |= view.bad || view.hash != key->offset || entry_twice(repair, key, &chain, &view);
		if (key->type == TUX3_ITEM_DIRENT) {
			survey->entries++;
			survey->subdirs += ((const struct disk_dirent *)entry)->type == S_IFDIR >> 12;
		}
		if (key->type == TUX3_ITEM_XATTR) {
			const struct disk_xattr *xattr = entry;
			const struct disk_xattr_piece *piece = (const void *)(xattr->name + xattr->len);
			u32 i;

			for (i = 0; i < xattr->pieces; i++, piece++)
				survey->blocks += get_unaligned_le32(&piece->len);
		}
	}
	if (odd || chain.bad)
		survey_odd(survey, key);
}

static void tell_entry(struct repair *repair, const struct tree_key *key, const struct entry_view *view, const char *why)
{
	static const char *const what[] = {
		[TUX3_ITEM_DIRENT] = "name", [TUX3_ITEM_PARENT] = "parent pointer", [TUX3_ITEM_XATTR] = "extended attribute",
	};
	char text[NAME_TEXT];

	check_name_text(text, sizeof(text), view->name, view->name_len);
	repair_note(repair, REPAIR_LOST, key->ino, "The %s %s of inode %llu: %s", what[key->type], text,
		    (unsigned long long)key->ino, why);
}

/* An entry goes to where it belongs. */
static int entry_move(struct repair *repair, const struct tree_key *key, const struct entry_view *view, const void *entry)
{
	struct tree_key to = tree_key(key->ino, key->type, view->hash);
	int len = repair_get(repair, to.ino, to.type, to.offset, repair->chain);
	struct check_chain chain = { .data = repair->chain, .len = max(len, 0) };
	struct entry_view other;

	len = max(len, 0);
	while (len && next_entry(repair, &to, &chain, &other)) {
		if (other.ino == view->ino && other.name_len == view->name_len && !memcmp(other.name, view->name, view->name_len)) {
			tell_entry(repair, key, view, "there is another one");
			return 0;
		}
	}
	if (chain.bad && len)
		len = chain.at;
	if (len + view->size > TUX3_ITEM_MAX(repair->vol->block_size)) {
		tell_entry(repair, key, view, "there is no room for it where it belongs");
		return 0;
	}
	memcpy(repair->chain + len, entry, view->size);
	return repair_set(repair, to.ino, to.type, to.offset, repair->chain, len + view->size);
}

static int mend_chain(struct repair *repair, const struct tree_key *key)
{
	u32 room = TUX3_ITEM_MAX(repair->vol->block_size), keep = 0;
	u8 *kept = kvmalloc(room, GFP_KERNEL), *data = kvmalloc(room, GFP_KERNEL);
	struct check_chain chain;
	struct entry_view view;
	const void *entry;
	int err = kept && data ? 0 : -ENOMEM, len = 0;

	if (!err)
		len = repair_get(repair, key->ino, key->type, key->offset, data);
	chain = (struct check_chain){ .data = data, .len = max(len, 0) };
	while (!err && len > 0 && (entry = next_entry(repair, key, &chain, &view))) {
		if (view.bad)
			tell_entry(repair, key, &view, key->type == TUX3_ITEM_XATTR ? "its value is not what it was" :
				   "no file can have it");
		else if (entry_twice(repair, key, &chain, &view))
			tell_entry(repair, key, &view, "it is there twice");
		else if (view.hash != key->offset)
			err = entry_move(repair, key, &view, entry);
		else {
			memcpy(kept + keep, entry, view.size);
			keep += view.size;
		}
	}
	if (!err && len > 0 && chain.bad)
		repair_note(repair, REPAIR_LOST, key->ino, "The rest of an item of inode %llu with %s: it is cut short",
			    (unsigned long long)key->ino,
			    key->type == TUX3_ITEM_DIRENT ? "names" : key->type == TUX3_ITEM_PARENT ? "parent pointers" :
				"extended attributes");
	if (!err)
		err = keep ? repair_set(repair, key->ino, key->type, key->offset, kept, keep) :
			     repair_delete(repair, key->ino, key->type, key->offset);
	kvfree(kept);
	kvfree(data);
	return err;
}

/* ---- extents ---- */

bool repair_wants_csum(struct repair *repair, u32 flags)
{
	return repair->vol->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM &&
		!(flags & (TUX3_EXTENT_UNWRITTEN | TUX3_EXTENT_UNCHECKED));
}

/* Of its length, and of where it is in the file and on the disk: can it be used at all? */
static bool extent_possible(struct repair *repair, u64 block, const struct disk_extent *extent, u32 len)
{
	struct volume *vol = repair->vol;
	u32 count = le32_to_cpu(extent->len), flags = le32_to_cpu(extent->flags);
	u64 max_blocks = (TUX3_SIZE_MAX >> vol->block_shift) + 1, addr = le64_to_cpu(extent->addr), fixed;

	if (len < sizeof(*extent) || !count || count > (flags & TUX3_EXTENT_CSUM ? TUX3_EXTENT_CSUM_MAX(vol->block_size) :
							TUX3_EXTENT_MAX))
		return false;
	if (len != sizeof(*extent) + (flags & TUX3_EXTENT_CSUM ? count * sizeof(__le32) : 0))
		return false;
	if (block >= max_blocks || count > max_blocks - block || !apply_blocks_valid(vol, addr, count))
		return false;
	return !balloc_first_fixed(vol, addr, count, &fixed);
}

static bool extent_fits(struct survey *survey, u64 block, const struct disk_extent *extent)
{
	u32 flags = le32_to_cpu(extent->flags);

	return !(flags & ~TUX3_EXTENT_KNOWN) && !(flags & TUX3_EXTENT_UNCHECKED && flags != TUX3_EXTENT_UNCHECKED) &&
	       repair_wants_csum(survey->repair, flags) == !!(flags & TUX3_EXTENT_CSUM) &&
	       le64_to_cpu(extent->birth) <= survey->repair->vol->delta.committed && block >= survey->extent_end;
}

static void survey_extent(struct survey *survey, const struct tree_key *key, const void *data, u32 len)
{
	struct disk_extent extent = {};
	u64 end;

	memcpy(&extent, data, min_t(size_t, len, sizeof(extent)));
	if (!extent_possible(survey->repair, key->offset, &extent, len)) {
		survey_odd(survey, key);
		return;
	}
	if (!extent_fits(survey, key->offset, &extent)) {
		survey_odd(survey, key);
		/* Of two that overlap the one that was written first goes. */
		if (key->offset < survey->extent_end &&
		    le64_to_cpu(survey->last.birth) < le64_to_cpu(extent.birth)) {
			struct tree_key before = tree_key(key->ino, key->type, survey->last_block);

			((struct tree_key *)survey->odd.entries)[survey->odd.count - 1] = before;
		}
	}
	end = key->offset + le32_to_cpu(extent.len);
	survey->extent_end = max(survey->extent_end, end);
	survey->blocks += le32_to_cpu(extent.len);
	if (le32_to_cpu(extent.flags) & TUX3_EXTENT_UNWRITTEN)
		survey->has_unwritten = true;
	else
		survey->written_end = max(survey->written_end, end);
	survey->last = extent;
	survey->last_block = key->offset;
}

static int lose_extent(struct repair *repair, const struct tree_key *key, const struct disk_extent *extent, const char *why)
{
	int err = repair_note_lost(repair, key->ino, key->offset, le32_to_cpu(extent->len));

	if (err)
		return err;
	repair_note(repair, REPAIR_LOST, key->ino, "%u blocks of inode %llu from file block %llu on: %s", le32_to_cpu(extent->len),
		    (unsigned long long)key->ino, (unsigned long long)key->offset, why);
	repair->unclaimed += le32_to_cpu(extent->len);
	return repair_delete(repair, key->ino, key->type, key->offset);
}

static int take_first(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	*(u64 *)ctx = key->offset;
	return 1;
}

/* What of count file blocks from this one on, where the extent of key is, no other one has, of those around: from *skip on. */
static u32 extent_alone(struct repair *repair, const struct tree_key *key, u64 block, u32 count, u32 *skip)
{
	struct tree_key from = tree_key(key->ino, key->type, 0), at = tree_key(key->ino, key->type, block), found;
	struct disk_extent other = {};
	u64 next = block + count, end;
	int len = -ENOENT;

	*skip = 0;
	at.offset -= block == key->offset;	/* that is the one */
	if (at.offset <= block)
		len = repair_looked(repair, tree_lookup_before(repair->vol, &at, &from, &found, &other, sizeof(other)));
	if (len >= 0) {
		end = found.offset + (extent_possible(repair, found.offset, &other, len) ? le32_to_cpu(other.len) : 1);
		*skip = end > block ? min_t(u64, end - block, count) : 0;
	}
	/* The first one behind it, at once: there may be as many in it as there are. */
	from.offset = block + 1;
	at.offset = next - 1;
	if (*skip < count && from.offset <= at.offset)
		repair_looked(repair, tree_scan(repair->vol, &from, &at, take_first, &next));
	return next > block + *skip ? next - block - *skip : 0;
}

/* An extent gives up what others have; the rest stays, in as many parts as they leave of it. */
static int cut_extent(struct repair *repair, const struct tree_key *key, const struct disk_extent *extent)
{
	u32 count = le32_to_cpu(extent->len), kept = 0, at = 0, skip, alone;
	int err = repair_note_lost(repair, key->ino, key->offset, count);

	if (!err)
		err = repair_delete(repair, key->ino, key->type, key->offset);
	for (; at < count && !err && repair->parts < PARTS_MAX; at += skip + alone) {
		alone = extent_alone(repair, key, key->offset + at, count - at, &skip);
		if (!skip && !alone)	/* what is there could not be read */
			break;
		repair->parts++;
		err = repair_store_part(repair, key, extent, at + skip, alone);
		kept += alone;
	}
	if (err)
		return err;
	repair_note(repair, REPAIR_LOST, key->ino, "%u of %u blocks of inode %llu from file block %llu on: there are others for the same place",
		    count - kept, count, (unsigned long long)key->ino, (unsigned long long)key->offset);
	repair->unclaimed += count - kept;
	return 0;
}

static int mend_extent(struct repair *repair, const struct tree_key *key)
{
	struct volume *vol = repair->vol;
	struct disk_extent *extent = (struct disk_extent *)repair->item;
	int len = repair_get(repair, key->ino, key->type, key->offset, extent);
	u32 flags, size, skip;

	if (len < 0)
		return len == -ENOENT ? 0 : len;
	if (len < (int)sizeof(*extent))
		memset((u8 *)extent + len, 0, sizeof(*extent) - len);
	if (!extent_possible(repair, key->offset, extent, len))
		return lose_extent(repair, key, extent, "what said where they are makes no sense");
	if (extent_alone(repair, key, key->offset, le32_to_cpu(extent->len), &skip) < le32_to_cpu(extent->len))
		return cut_extent(repair, key, extent);
	flags = le32_to_cpu(extent->flags) & (TUX3_EXTENT_UNWRITTEN | TUX3_EXTENT_CSUM | TUX3_EXTENT_UNCHECKED);
	size = len;
	if (flags & TUX3_EXTENT_CSUM && !(vol->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM)) {
		flags &= ~TUX3_EXTENT_CSUM;
		size = sizeof(*extent);
	} else if (flags & TUX3_EXTENT_CSUM && flags & TUX3_EXTENT_UNWRITTEN) {
		flags = TUX3_EXTENT_UNWRITTEN;
		size = sizeof(*extent);
	} else if (flags & TUX3_EXTENT_CSUM) {
		flags = TUX3_EXTENT_CSUM;
	} else if (flags & TUX3_EXTENT_UNWRITTEN) {
		flags = TUX3_EXTENT_UNWRITTEN;
	} else if (vol->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM) {
		flags = TUX3_EXTENT_UNCHECKED;
	}
	extent->flags = cpu_to_le32(flags);
	extent->birth = cpu_to_le64(min(le64_to_cpu(extent->birth), vol->delta.committed));
	repair_note(repair, REPAIR_MENDED, key->ino, "What an extent of inode %llu at file block %llu says of itself",
		    (unsigned long long)key->ino,
		    (unsigned long long)key->offset);
	return repair_set(repair, key->ino, key->type, key->offset, extent, size);
}

/* ---- the survey ---- */

static int survey_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct survey *survey = ctx;

	if (key->type >= 32 || !(1u << key->type & (1u << TUX3_ITEM_ATTR | 1u << TUX3_ITEM_PARENT | 1u << TUX3_ITEM_INLINE |
						    1u << TUX3_ITEM_XATTR | 1u << TUX3_ITEM_DIRENT | 1u << TUX3_ITEM_EXTENT)))
		return 0;		/* told as an item that cannot be */
	survey->types |= 1u << key->type;
	switch (key->type) {
	case TUX3_ITEM_ATTR:
		if (key->offset)
			break;
		survey->has_attr = true;
		survey->attr_odd = len != sizeof(survey->attr);
		memcpy(&survey->attr, data, min_t(size_t, len, sizeof(survey->attr)));
		break;
	case TUX3_ITEM_INLINE:
		survey->inline_gap |= key->offset != survey->inline_len;
		survey->inline_more |= survey->inline_len || key->offset;
		survey->inline_zero |= !!memchr(data, 0, len);
		survey->inline_len += len;
		if (!key->offset)
			survey->inline_first = len;
		break;
	case TUX3_ITEM_EXTENT:
		survey_extent(survey, key, data, len);
		break;
	default:
		survey_chain(survey, key, data, len);
	}
	return survey->no_memory ? -ENOMEM : 0;
}

static int survey_inode(struct repair *repair, u64 ino, struct survey *survey)
{
	struct tree_key from = tree_key(ino, 0, 0), to = tree_key(ino, 0xff, U64_MAX);

	memset(survey, 0, sizeof(*survey));
	survey->repair = repair;
	survey->ino = ino;
	return tree_scan(repair->vol, &from, &to, survey_item, survey);
}

/* ---- of what kind is it? ---- */

struct kind_search {
	struct repair *repair;
	u64 dir[4];
	u64 hash[4];
	u32 count;
};

static int kind_parent(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct check_chain chain = { .data = data, .len = len };
	const struct disk_parent *entry;
	struct kind_search *search = ctx;

	while ((entry = check_next_parent(&chain)) && search->count < ARRAY_SIZE(search->dir)) {
		u64 dir = get_unaligned_le64(&entry->dir);

		search->dir[search->count] = dir;
		search->hash[search->count++] = name_hash(search->repair->vol, dir, TUX3_ITEM_DIRENT,
							  (const char *)entry->name, entry->len);
	}
	return search->count == ARRAY_SIZE(search->dir);
}

/* What the names that lead to it say, by its parent pointers; 0: nothing. */
static u32 kind_by_names(struct repair *repair, u64 ino)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_PARENT, 0), to = tree_key(ino, TUX3_ITEM_PARENT, U64_MAX);
	struct kind_search search = { .repair = repair };
	const struct disk_dirent *entry;
	u32 i;

	repair_looked(repair, tree_scan(repair->vol, &from, &to, kind_parent, &search));
	for (i = 0; i < search.count; i++) {
		int len = repair_get(repair, search.dir[i], TUX3_ITEM_DIRENT, search.hash[i], repair->chain);
		struct check_chain chain = { .data = repair->chain, .len = max(len, 0) };

		while (len > 0 && (entry = check_next_dirent(&chain)))
			if (get_unaligned_le64(&entry->ino) == ino && entry->type)
				return (u32)entry->type << 12;
	}
	return 0;
}

/* The contents of a small file look like the target of a symlink: one piece of text. */
static bool may_be_target(const struct survey *survey)
{
	return survey->inline_len && !survey->inline_zero && survey->inline_first <= TUX3_SYMLINK_PIECE;
}

/* No file is stored like that. */
static bool must_be_target(const struct survey *survey)
{
	return may_be_target(survey) &&
	       (survey->inline_more || survey->inline_first > data_inline_max(survey->repair->vol->block_size));
}

/* *unknown: it may as well have been a symlink. */
static u32 choose_kind(struct survey *survey, bool *unknown)
{
	u32 kind = kind_by_names(survey->repair, survey->ino);

	*unknown = false;
	if (survey->types & 1u << TUX3_ITEM_DIRENT)
		return S_IFDIR;
	if (survey->types & 1u << TUX3_ITEM_EXTENT)
		return S_IFREG;
	if (survey->types & 1u << TUX3_ITEM_INLINE) {
		if (S_ISLNK(kind) || (!kind && must_be_target(survey)))
			return S_IFLNK;
		*unknown = !kind && may_be_target(survey);
		return S_IFREG;
	}
	return attr_mode_possible(kind) ? kind & S_IFMT : S_IFREG;
}

/* ---- putting right ---- */

static int drop_items(struct repair *repair, u64 ino, u8 type, const char *why)
{
	return repair_drop(repair, ino, type, 0, U64_MAX, why);
}

/* What has no place in an inode of this kind. */
static int drop_wrong_kinds(struct survey *survey)
{
	static const struct {
		u8 type;
		u32 kind, other;
	} only[] = {
		{ TUX3_ITEM_INLINE, S_IFREG, S_IFLNK },
		{ TUX3_ITEM_DIRENT, S_IFDIR, S_IFDIR },
		{ TUX3_ITEM_EXTENT, S_IFREG, S_IFREG },
	};
	u32 kind = survey->mode & S_IFMT, i;
	int err = 0;

	for (i = 0; i < ARRAY_SIZE(only) && !err; i++)
		if (survey->types & 1u << only[i].type && kind != only[i].kind && kind != only[i].other)
			err = drop_items(survey->repair, survey->ino, only[i].type, "an inode of its kind cannot have them");
	return err;
}

static int mend_items(struct survey *survey)
{
	const struct tree_key *odd = survey->odd.entries;
	int err = 0;
	u64 i;

	for (i = 0; i < survey->odd.count && !err; i++)
		err = odd[i].type == TUX3_ITEM_EXTENT ? mend_extent(survey->repair, &odd[i]) : mend_chain(survey->repair, &odd[i]);
	return err;
}

/* Are pieces of a target missing, in the middle or at its end?  All but the last are of one length. */
static bool target_cut(const struct survey *survey)
{
	return survey->inline_gap || (survey->has_attr && survey->inline_len % TUX3_SYMLINK_PIECE == 0 &&
				      survey->inline_len < le64_to_cpu(survey->attr.size));
}

static bool target_odd(const struct survey *survey)
{
	return survey->inline_zero || survey->inline_len > TUX3_SYMLINK_MAX;
}

/* Inline data is that of a small file, or the target of a symlink: whole, or it is of no use. */
static int mend_inline(struct survey *survey)
{
	struct repair *repair = survey->repair;
	bool link = S_ISLNK(survey->mode);
	int err = 0;

	if (survey->inline_len && (link ? target_cut(survey) || target_odd(survey) : survey->types & 1u << TUX3_ITEM_EXTENT)) {
		err = drop_items(repair, survey->ino, TUX3_ITEM_INLINE, !link ? "the file has extents, too" :
				 target_cut(survey) ? "a part of the target is missing" : "no symlink can have such a target");
		survey->inline_len = 0;
	}
	if (!err && !link && survey->inline_more && survey->inline_len) {
		err = repair_drop(repair, survey->ino, TUX3_ITEM_INLINE, 1, U64_MAX, "a file has one, at offset 0");
		survey->inline_len = survey->inline_first;
	}
	if (!err && !survey->inline_len && survey->types & 1u << TUX3_ITEM_INLINE)
		err = drop_items(repair, survey->ino, TUX3_ITEM_INLINE, "there is nothing in them");
	if (!err && link && !survey->inline_len) {
		repair_note(repair, REPAIR_LOST, survey->ino, "The target of symlink %llu: it is a file now",
			    (unsigned long long)survey->ino);
		survey->mode = (survey->mode & ~S_IFMT) | S_IFREG;
		survey->attr.size = 0;
		survey->target_lost = true;
	}
	return err;
}

static void mend_times(struct disk_attr *attr)
{
	__le32 *nsec[] = { &attr->atime_nsec, &attr->mtime_nsec, &attr->ctime_nsec, &attr->btime_nsec };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(nsec); i++)
		if (le32_to_cpu(*nsec[i]) >= NSEC_IN_SEC)
			*nsec[i] = 0;
}

/* From which file block on a truncate, or a delete, is taking away what the file has; U64_MAX: there is none. */
static u64 truncated_from(struct survey *survey)
{
	const struct disk_orphan *orphan = (const void *)survey->repair->item;
	int len = repair_get(survey->repair, TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, survey->ino, survey->repair->item);

	if (len != sizeof(*orphan))
		return U64_MAX;
	if (le32_to_cpu(orphan->kind) == TUX3_ORPHAN_DELETE)
		return 0;
	return le32_to_cpu(orphan->kind) == TUX3_ORPHAN_TRUNCATE ? le64_to_cpu(orphan->block) : U64_MAX;
}

/* The end of a regular file: its inline data's; or not before what was written, unless that is about to be cut off. */
static u64 choose_size(struct survey *survey, u32 *flags)
{
	u64 size = le64_to_cpu(survey->attr.size), shift = survey->repair->vol->block_shift;
	u64 written = min_t(u64, survey->written_end << shift, TUX3_SIZE_MAX), blocks =
		size / (1u << shift) + !!(size & ((1u << shift) - 1));

	if (survey->inline_len) {
		*flags |= TUX3_ATTR_INLINE;
		return survey->inline_len;
	}
	if (*flags & TUX3_ATTR_INLINE && size && !survey->extent_end)
		size = 0;
	*flags &= ~TUX3_ATTR_INLINE;
	if (size > TUX3_SIZE_MAX)
		return written;
	return survey->written_end > blocks && truncated_from(survey) > blocks ? written : size;
}

/* ---- attributes ---- */

/*
 * How long the file was nobody knows any more, or what its few bytes were: it gets one more block, so that reading this place is an
 * error.
 */
static int fill_end(struct survey *survey, const struct disk_attr *was, struct lost_file *file)
{
	struct repair *repair = survey->repair;
	struct volume *vol = repair->vol;
	u64 bytes = survey->has_attr ? le64_to_cpu(was->size) : 0, block = survey->extent_end;
	bool emptied = (survey->target_lost || le32_to_cpu(was->flags) & TUX3_ATTR_INLINE) && bytes && !block;
	int err = 0;

	if (survey->inline_len || (survey->has_attr && !emptied))
		return 0;
	err = repair_fill_end(repair, file, block);
	if (!err && file->end_filled)
		survey->attr.size = cpu_to_le64(emptied ? min_t(u64, bytes, vol->block_size) : (block + 1) << vol->block_shift);
	if (emptied)
		repair_note(repair, REPAIR_LOST, survey->ino, "The %llu bytes of inode %llu: %s", (unsigned long long)bytes,
			    (unsigned long long)survey->ino, file->end_filled ? "reading them is an error" : "the file is empty now");
	return err;
}

/* An inode that got new attributes. */
struct made {
	u64 ino;
	bool kind_unknown;
};

/* Where it is among them, or would be: they are in order. */
static u64 made_find(const struct repair *repair, u64 ino)
{
	const struct made *made = repair->made.entries;
	u64 low = 0, high = repair->made.count;

	while (low < high) {
		u64 middle = low + (high - low) / 2;

		if (made[middle].ino < ino)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static const struct made *made_get(const struct repair *repair, u64 ino)
{
	const struct made *made = repair->made.entries;
	u64 at = made_find(repair, ino);

	return at < repair->made.count && made[at].ino == ino ? &made[at] : NULL;
}

static int note_made(struct repair *repair, u64 ino, bool kind_unknown)
{
	u64 at = made_find(repair, ino);
	struct made *made;

	if (!made_get(repair, ino)) {
		if (!repair_add(&repair->made, sizeof(*made)))
			return -ENOMEM;
		made = repair->made.entries;
		memmove(&made[at + 1], &made[at], (repair->made.count - 1 - at) * sizeof(*made));
	}
	made = repair->made.entries;
	made[at] = (struct made){ ino, kind_unknown };
	return 0;
}

bool repair_kind_unknown(struct repair *repair, u64 ino)
{
	const struct made *made = made_get(repair, ino);

	return made && made->kind_unknown && !kind_by_names(repair, ino);
}

static int mend_attr(struct survey *survey, const struct disk_attr *was)
{
	struct repair *repair = survey->repair;
	struct disk_attr *attr = &survey->attr;
	u32 flags = le32_to_cpu(attr->flags) & TUX3_ATTR_KNOWN;
	u64 lost = le64_to_cpu(attr->blocks) > survey->blocks ? le64_to_cpu(attr->blocks) - survey->blocks : 0;
	struct lost_file file = { .ino = survey->ino };
	struct volume *vol = repair->vol;
	int err = 0;

	attr->mode = cpu_to_le32(survey->mode);
	attr->spare = 0;
	mend_times(attr);
	if (survey->types & 1u << TUX3_ITEM_XATTR)
		flags |= TUX3_ATTR_XATTRS;
	if (survey->has_unwritten)
		flags |= TUX3_ATTR_PREALLOC;
	if (S_ISDIR(survey->mode)) {
		if (survey->has_attr && le64_to_cpu(was->size) > survey->entries)
			err = repair_note_names(repair, survey->ino, le64_to_cpu(was->size));
		attr->size = cpu_to_le64(survey->entries);
		if (attr->nlink || survey->entries || survey->ino == TUX3_INO_ROOT)
			attr->nlink = cpu_to_le32(2 + survey->subdirs);
		flags &= ~TUX3_ATTR_INLINE;
	} else if (S_ISLNK(survey->mode)) {
		attr->size = cpu_to_le64(survey->inline_len);
	} else {
		attr->size = cpu_to_le64(choose_size(survey, &flags));
	}
	if (S_ISREG(survey->mode) && !(flags & TUX3_ATTR_INLINE) && (lost || !survey->has_attr)) {
		file.size_blocks = survey->has_attr ? le64_to_cpu(attr->size) / vol->block_size +
						      !!(le64_to_cpu(attr->size) % vol->block_size) : survey->extent_end;
		file.lost = survey->has_attr ? lost : 0;
		err = repair_fill_lost(repair, &file);
	}
	if (!err && S_ISREG(survey->mode))
		err = fill_end(survey, was, &file);
	if (err)
		return err;
	attr->flags = cpu_to_le32(flags);
	attr->blocks = cpu_to_le64(survey->blocks + file.filled);
	if (survey->has_attr && !survey->attr_odd && !file.filled && !memcmp(was, attr, sizeof(*attr)))
		return 0;
	if (survey->has_attr && lost)
		repair_note(repair, REPAIR_LOST, survey->ino, "%llu blocks of inode %llu: where they were, reading %s%s",
			    (unsigned long long)lost, (unsigned long long)survey->ino,
			    file.filled ? "is an error" : "gives zeros", file.text);
	else if (survey->has_attr)
		repair_note(repair, REPAIR_MENDED, survey->ino, "The attributes of inode %llu say what it has",
			    (unsigned long long)survey->ino);
	else if (note_made(repair, survey->ino, survey->kind_unknown))
		return -ENOMEM;
	else
		repair_note(repair, REPAIR_LOST, survey->ino,
			    "The attributes of inode %llu: owner, permissions, times%s and how long it was exactly; it has new ones%s%s",
			    (unsigned long long)survey->ino,
			    repair_xattrs_lost(repair, survey->ino) ? ", extended attributes if it had any," : "",
			    file.end_filled ? ", and reading its end is an error" : "", file.text);
	return repair_set_attr(repair, survey->ino, attr);
}

static int mend_surveyed(struct survey *survey)
{
	struct repair *repair = survey->repair;
	struct disk_attr was = survey->attr;
	u64 ino = survey->ino;
	u32 mode;
	int err;

	survey->mode = le32_to_cpu(survey->attr.mode) & (S_IFMT | 07777);
	if (!survey->has_attr) {
		repair_default_attr(repair, choose_kind(survey, &survey->kind_unknown), &survey->attr);
		survey->mode = le32_to_cpu(survey->attr.mode);
	} else if (!attr_mode_possible(survey->mode)) {
		survey->mode = (survey->mode & 07777) | choose_kind(survey, &survey->kind_unknown);
	}
	if (ino == TUX3_INO_ROOT)
		survey->mode = (survey->mode & 07777) | S_IFDIR;
	mode = survey->mode;
	err = drop_wrong_kinds(survey);
	if (!err)
		err = mend_items(survey);
	if (!err && (!S_ISDIR(mode)))
		err = mend_inline(survey);
	if (err || !survey->types)
		return err;
	/* What is there now, with the attributes as they are to be. */
	if (survey->odd.count) {
		struct survey now;

		err = survey_inode(repair, ino, &now);
		kvfree(now.odd.entries);
		if (err)
			return err;
		survey->types = now.types;
		survey->inline_len = now.inline_len;
		survey->extent_end = now.extent_end;
		survey->written_end = now.written_end;
		survey->blocks = now.blocks;
		survey->entries = now.entries;
		survey->subdirs = now.subdirs;
		survey->has_unwritten = now.has_unwritten;
	}
	return mend_attr(survey, &was);
}

int repair_inode(struct repair *repair, u64 ino)
{
	struct survey survey;
	int err;

	if (ino != TUX3_INO_ROOT && (ino < TUX3_INO_FIRST || ino > TUX3_INO_MAX))
		return 0;
	err = survey_inode(repair, ino, &survey);
	if (!err)
		err = mend_surveyed(&survey);
	kvfree(survey.odd.entries);
	return err;
}

int repair_take_kind(struct repair *repair, u64 ino, u32 kind)
{
	struct survey survey;
	int err;

	if (!S_ISLNK(kind) || !made_get(repair, ino))
		return 0;
	err = survey_inode(repair, ino, &survey);
	kvfree(survey.odd.entries);
	if (err || !S_ISREG(le32_to_cpu(survey.attr.mode)) || !survey.inline_len || survey.types & 1u << TUX3_ITEM_EXTENT)
		return err;
	repair_default_attr(repair, S_IFLNK, &survey.attr);
	err = repair_set_attr(repair, ino, &survey.attr);
	if (!err)
		err = repair_inode(repair, ino);
	return err ? err : 1;
}
