// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What log records do to the tree: the same code when a delta is committed and when its log is
 * replayed, so that replay cannot differ.
 *
 * Between tree_edit_begin and tree_edit_end, commit_mutex held (or at open).  Records are absolute:
 * applying one twice changes nothing.  During replay the blocks that a record names are taken in the
 * free maps; in a commit they were allocated before, but for those that a remap moves (log.moving).
 *
 * A record from the disk may say anything: every field is checked before it is used.
 */
#include "core/volume.h"
#include "core/format/attr.h"
#include "core/format/name_hash.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/quota/quota.h"
#include "core/format/chain.h"
#include "core/log/apply.h"

static int apply_bad(struct volume *vol, enum tux3_record_type type, const char *what)
{
	volume_warn(vol, "log record of type %u is not valid: %s", (unsigned int)type, what);
	return -EIO;
}

/*
 * What is in the tree is none that can be.  Nobody could look before whether it is, and that is no reason to stop: who meets it
 * goes on as if there were nothing.  Always 0.
 */
static int apply_odd(struct volume *vol, u64 ino, const char *what)
{
	volume_odd(vol, &vol->log.odd, "inode %llu has %s that is none, and is changed without it", (unsigned long long)ino, what);
	return 0;
}

bool apply_blocks_valid(struct volume *vol, u64 addr, u64 count)
{
	return count && addr < vol->total_blocks && count <= vol->total_blocks - addr &&
	       !balloc_is_fixed(vol, addr) && (count == 1 || !balloc_is_fixed(vol, addr + count - 1));
}

/* ---- chains (core/format/chain.h) ---- */

static bool same_name(const u8 *a, u32 a_len, const u8 *b, u32 b_len)
{
	return a_len == b_len && !memcmp(a, b, a_len);
}

/* Remove the entry that the chain is at from these bytes, which are its own; how many are left. */
static u32 chain_cut(const struct chain *chain, u8 *bytes)
{
	memmove(bytes + chain->at, bytes + chain->at + chain->size, chain->len - chain->at - chain->size);
	return chain->len - chain->size;
}

static int chain_store(struct volume *vol, struct tree_spot *spot, const u8 *chain, u32 len)
{
	if (!len)
		return tree_spot_delete(vol, spot);
	return tree_spot_set(vol, spot, chain, len);
}

/* Read a chain into buffer number n; its length, 0 if there is none.  Until chain_store() nothing else is looked for. */
static int chain_load(struct volume *vol, const struct tree_key *key, struct tree_spot *spot, unsigned int n)
{
	int err = tree_edit_find(vol, key, spot);

	if (err)
		return err;
	if (spot->len)
		memcpy(vol->log.item[n], spot->data, min(spot->len, TUX3_ITEM_MAX(vol->block_size)));
	return spot->len;
}

/* ---- parent pointers ---- */

static bool parent_find(struct chain *chain, u64 dir, const u8 *name, u32 name_len)
{
	const struct disk_parent *entry;

	while ((entry = chain_next_parent(chain)))
		if (le64_to_cpu(entry->dir) == dir && same_name(entry->name, entry->len, name, name_len))
			return true;
	return false;
}

/*
 * Of an inode that was deleted just before, all parent pointers have gone with it.  Mostly by the last record: then where they were
 * may be in a leaf by now that nobody has read, or can read.
 */
static bool parents_gone(struct volume *vol, u64 ino)
{
	struct tree_key first = tree_key(ino, TUX3_ITEM_PARENT, 0), last = tree_key(ino, TUX3_ITEM_PARENT, U64_MAX);
	struct tree_spot spot;

	if (ino == vol->log.deleted)
		return true;
	return !tree_edit_find(vol, &first, &spot) && !spot.found && tree_spot_none_to(&spot, &last);
}

static int parent_edit(struct volume *vol, u64 ino, u64 dir, const u8 *name, u32 name_len, bool add)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_PARENT, 0);
	u8 *bytes = vol->log.item[1];
	struct disk_parent *entry;
	struct tree_spot spot;
	struct chain chain;
	bool found;
	int len;

	if (!add && parents_gone(vol, ino))
		return 0;
	if (add && ino == vol->log.deleted)
		vol->log.deleted = 0;
	key.offset = name_hash(vol, dir, TUX3_ITEM_PARENT, (const char *)name, name_len);
	len = chain_load(vol, &key, &spot, 1);
	if (len < 0)
		return len;
	chain = chain_of(bytes, len);
	found = parent_find(&chain, dir, name, name_len);
	if (chain.bad) {
		apply_odd(vol, ino, "a parent pointer");
		if (!add)
			return tree_spot_delete(vol, &spot);
		len = 0;
	}
	if (found == add)
		return 0;
	if (!add)
		return chain_store(vol, &spot, bytes, chain_cut(&chain, bytes));
	if (len + sizeof(*entry) + name_len > TUX3_ITEM_MAX(vol->block_size))
		return -ENOSPC;
	entry = (void *)(bytes + len);
	entry->dir = cpu_to_le64(dir);
	entry->len = name_len;
	memcpy(entry->name, name, name_len);
	return tree_spot_set(vol, &spot, bytes, len + sizeof(*entry) + name_len);
}

/* ---- directory entries ---- */

static const struct disk_dirent *dirent_find(struct chain *chain, const u8 *name, u32 name_len)
{
	const struct disk_dirent *entry;

	while ((entry = chain_next_dirent(chain)))
		if (same_name(entry->name, entry->len, name, name_len))
			break;
	return entry;
}

static int apply_dirent(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	const struct record_dirent *record = payload;
	const struct disk_dirent *entry = &record->entry, *old;
	bool set = type == TUX3_RECORD_DIRENT_SET;
	u64 dir = le64_to_cpu(record->dir), ino = le64_to_cpu(entry->ino), old_ino = 0;
	u32 room = TUX3_ITEM_MAX(vol->block_size), need = sizeof(*entry) + entry->len;
	struct tree_key key = tree_key(dir, TUX3_ITEM_DIRENT, le64_to_cpu(record->hash));
	u8 *bytes = vol->log.item[0];
	struct tree_spot spot;
	struct chain chain;
	int total, err = 0;

	if (len != offsetof(struct record_dirent, entry) + need || !entry->len ||
	    dir > TUX3_INO_MAX || ino > TUX3_INO_MAX || dir < TUX3_INO_ROOT || (set && ino < TUX3_INO_ROOT))
		return apply_bad(vol, type, "directory entry");
	total = chain_load(vol, &key, &spot, 0);
	if (total < 0)
		return total;
	chain = chain_of(bytes, total);
	old = dirent_find(&chain, entry->name, entry->len);
	if (chain.bad)
		return apply_bad(vol, type, "chain in the tree");
	/*
	 * Whose it was before the log, if that was lost, no record says, even if it was given anew in the log: repair sees to the
	 * parent pointer.
	 */
	if (!set && unlikely(vol->opts.mend))
		err = vol->opts.mend->name_gone(vol->opts.mend, dir, key.offset);
	if (err || (!old && !set))
		return err;
	if (old) {
		old_ino = le64_to_cpu(old->ino);
		total = chain_cut(&chain, bytes);
	}
	if (set) {
		if (total + need > room)
			return -ENOSPC;
		memcpy(bytes + total, entry, need);
		total += need;
	}
	err = chain_store(vol, &spot, bytes, total);
	if (!err && old_ino && old_ino != ino)
		err = parent_edit(vol, old_ino, dir, entry->name, entry->len, false);
	if (!err && ino)
		err = parent_edit(vol, ino, dir, entry->name, entry->len, set);
	return err;
}

/* ---- extended attributes ---- */

static int xattr_pieces(struct volume *vol, const struct disk_xattr *entry, bool add)
{
	const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);
	int i, err = 0;

	for (i = 0; i < entry->pieces && !err; i++, piece++) {
		u64 addr = get_unaligned_le64(&piece->addr);
		u32 count = get_unaligned_le32(&piece->len);

		if (!apply_blocks_valid(vol, addr, count)) {
			if (add)
				return apply_bad(vol, TUX3_RECORD_XATTR_SET, "value blocks");
			continue;	/* none of these are given back */
		}
		if (!add)
			err = balloc_defer_data(vol, addr, count, &vol->log.freed);
		else if (vol->log.replaying)
			err = balloc_take(vol, addr, count);
		vol->log.blocks_delta += add ? (s64)count : -(s64)count;
	}
	return err;
}

static int apply_xattr(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	const struct record_xattr *record = payload;
	const struct disk_xattr *entry = &record->entry, *old;
	u32 need = xattr_size(entry, len - offsetof(struct record_xattr, entry));
	struct tree_key key = tree_key(le64_to_cpu(record->ino), TUX3_ITEM_XATTR, le64_to_cpu(record->hash));
	u8 *bytes = vol->log.item[0];
	struct tree_spot spot;
	struct chain chain;
	int total, err = 0;

	if (!need || need != len - offsetof(struct record_xattr, entry) || key.ino > TUX3_INO_MAX)
		return apply_bad(vol, type, "attribute");
	total = chain_load(vol, &key, &spot, 0);
	if (total < 0)
		return total;
	chain = chain_of(bytes, total);
	while ((old = chain_next_xattr(&chain)) && !same_name(old->name, old->len, entry->name, entry->len))
		;
	if (chain.bad)
		return apply_bad(vol, type, "chain in the tree");
	if (old) {
		if (chain.size == need && type == TUX3_RECORD_XATTR_SET && !memcmp(old, entry, need))
			return 0;
		err = xattr_pieces(vol, old, false);
		if (err)
			return err;
		total = chain_cut(&chain, bytes);
	}
	if (type == TUX3_RECORD_XATTR_SET) {
		if (total + need > TUX3_ITEM_MAX(vol->block_size))
			return -ENOSPC;
		memcpy(bytes + total, entry, need);
		total += need;
		err = xattr_pieces(vol, entry, true);
	} else if (!old) {
		return 0;
	}
	return err ? err : chain_store(vol, &spot, bytes, total);
}

/* ---- attributes, and the usage that follows from them ---- */

static int quota_adjust(struct volume *vol, u8 type, u32 id, s64 blocks, s64 inodes)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, type, id);
	struct disk_quota quota = {};
	int len = tree_edit_lookup(vol, &key, &quota, sizeof(quota));

	if (len < 0 && len != -ENOENT)
		return len;
	if (len != -ENOENT && len != sizeof(quota)) {	/* it stays as it is */
		volume_odd(vol, &vol->log.odd, "quota item of type %u, id %u has %d bytes instead of %zu, and does not count", type, id,
			   len, sizeof(quota));
		return 0;
	}
	quota.blocks = cpu_to_le64(le64_to_cpu(quota.blocks) + blocks);
	quota.inodes = cpu_to_le64(le64_to_cpu(quota.inodes) + inodes);
	quota_item_settle(id, &quota);
	quota_applied(vol, type, id, &quota);
	if (!memchr_inv(&quota, 0, sizeof(quota)))	/* nothing used, no limits */
		return len == -ENOENT ? 0 : tree_delete(vol, &key);
	return tree_set(vol, &key, &quota, sizeof(quota));
}

static void quota_ids(const struct disk_attr *attr, u32 *id)
{
	id[QUOTA_USER] = le32_to_cpu(attr->uid);
	id[QUOTA_GROUP] = le32_to_cpu(attr->gid);
	id[QUOTA_PROJECT] = le32_to_cpu(attr->projid);
}

/*
 * An inode had these attributes, and has those; NULL: it was not there, or is gone.  Of who keeps it only the difference moves: so
 * his usage is never less for a moment, and his grace goes on.
 */
static int quota_account(struct volume *vol, const struct disk_attr *old, const struct disk_attr *new)
{
	s64 was = old ? min(le64_to_cpu(old->blocks), vol->total_blocks) : 0;	/* of a damaged inode they may be anything */
	s64 is = new ? min(le64_to_cpu(new->blocks), vol->total_blocks) : 0;
	u32 from[QUOTA_KINDS], to[QUOTA_KINDS];
	int i, err = 0;

	if (!(vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA))
		return 0;
	if (old)
		quota_ids(old, from);
	if (new)
		quota_ids(new, to);
	for (i = 0; i < QUOTA_KINDS && !err; i++) {
		u8 type = TUX3_ITEM_QUOTA_USER + i;

		if (old && new && from[i] == to[i]) {
			err = is != was ? quota_adjust(vol, type, to[i], is - was, 0) : 0;
			continue;
		}
		if (old)
			err = quota_adjust(vol, type, from[i], -was, -1);
		if (!err && new)
			err = quota_adjust(vol, type, to[i], is, 1);
	}
	return err;
}

static bool quota_same(const struct disk_attr *a, const struct disk_attr *b)
{
	return a->uid == b->uid && a->gid == b->gid && a->projid == b->projid && a->blocks == b->blocks;
}

/* The attributes at this place are about to change: what is used counts for others. */
static int quota_move(struct volume *vol, const struct tree_key *key, struct tree_spot *spot, const struct disk_attr *attr)
{
	struct disk_attr old;
	int err;

	if (spot->found) {
		memcpy(&old, spot->data, sizeof(old));
		if (quota_same(&old, attr))
			return 0;
	}
	err = quota_account(vol, spot->found ? &old : NULL, attr);
	return err ? err : tree_edit_find(vol, key, spot);
}

/*
 * What is on the disk already and was impossible before may be logged again, as by a delete that goes on.  Repair takes it: the
 * rest of it is right.
 */
static bool attr_refused(struct volume *vol, const struct disk_attr *attr, const struct tree_spot *spot)
{
	struct disk_attr old;

	if (likely(!vol->log.replaying) || attr_possible(attr, vol->total_blocks))
		return false;
	if (spot->found)
		memcpy(&old, spot->data, sizeof(old));
	if (spot->found && !attr_possible(&old, vol->total_blocks))
		return false;
	if (!vol->opts.mend)
		return true;
	/* What follows may put it right.  But a mount would stop here. */
	vol->opts.mend->log_odd(vol->opts.mend, "The log, which gives an inode attributes that none can have, was begun anew");
	return false;
}

static int apply_attr(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	const struct record_attr *record = payload;
	struct tree_key key = tree_key(le64_to_cpu(record->ino), TUX3_ITEM_ATTR, 0);
	struct tree_spot spot;
	int err;

	if (key.ino > TUX3_INO_MAX || key.ino < TUX3_INO_ROOT)
		return apply_bad(vol, type, "inode number");
	err = tree_edit_find(vol, &key, &spot);
	if (err)
		return err;
	if (spot.found && spot.len != sizeof(record->attr))
		return apply_bad(vol, type, "attributes in the tree");
	if (attr_refused(vol, &record->attr, &spot))
		return apply_bad(vol, type, "no inode can have these attributes");
	if (!spot.found)
		vol->tree_inodes++;
	if (vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA)
		err = quota_move(vol, &key, &spot, &record->attr);
	return err ? err : tree_spot_set(vol, &spot, &record->attr, sizeof(record->attr));
}

/* ---- extents ---- */

struct punch {
	struct volume *vol;
	u64 keep_block, keep_addr;	/* the block at keep_block + n is not freed if it is keep_addr + n */
	bool keep;
	u64 kept;
	int err;
};

static int punch_free(struct punch *punch, u64 block, u64 addr, u64 count)
{
	struct volume *vol = punch->vol;

	if (!apply_blocks_valid(vol, addr, count))
		return apply_bad(vol, TUX3_RECORD_EXTENT_PUNCH, "extent in the tree");
	vol->log.blocks_delta -= count;
	if (punch->keep && block >= punch->keep_block &&
	    addr == punch->keep_addr + (block - punch->keep_block)) {
		punch->kept += count;
		return 0;
	}
	return balloc_defer_data(vol, addr, count, vol->log.moving ? NULL : &vol->log.freed);
}

static bool apply_extent_flags_valid(u32 flags)
{
	return !(flags & ~TUX3_EXTENT_KNOWN) && (!(flags & TUX3_EXTENT_UNCHECKED) || flags == TUX3_EXTENT_UNCHECKED);
}

int extent_check(struct volume *vol, const void *data, u32 len)
{
	struct disk_extent extent = {};
	u32 count, flags;

	memcpy(&extent, data, min_t(u32, len, sizeof(extent)));		/* items are not aligned */
	count = len >= sizeof(extent) ? le32_to_cpu(extent.len) : 0;
	flags = le32_to_cpu(extent.flags);
	if (!count || !apply_extent_flags_valid(flags) || count > TUX3_EXTENT_MAX ||
	    !apply_blocks_valid(vol, le64_to_cpu(extent.addr), count))
		return -EIO;
	if (flags & TUX3_EXTENT_CSUM ? (count > TUX3_EXTENT_CSUM_MAX(vol->block_size) ||
					len != sizeof(extent) + count * sizeof(__le32)) : len != sizeof(extent))
		return -EIO;
	return 0;
}

static int punch_whole(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct punch *punch = ctx;
	struct disk_extent extent;

	if (extent_check(punch->vol, data, len))
		return apply_odd(punch->vol, key->ino, "an extent");
	memcpy(&extent, data, sizeof(extent));
	if (le32_to_cpu(extent.flags) & TUX3_EXTENT_UNWRITTEN)
		punch->vol->space.unwritten -= le32_to_cpu(extent.len);
	return punch_free(punch, key->offset, le64_to_cpu(extent.addr), le32_to_cpu(extent.len));
}

/* Store the part [skip, skip + count) of the extent in item[0] as an item of its own. */
static int extent_store_part(struct volume *vol, u64 ino, u64 block, u32 skip, u32 count)
{
	const struct disk_extent *from = vol->log.item[0];
	struct disk_extent *part = vol->log.item[1];
	struct tree_key key = tree_key(ino, TUX3_ITEM_EXTENT, block + skip);
	u32 len = sizeof(*part);

	*part = *from;
	part->addr = cpu_to_le64(le64_to_cpu(from->addr) + skip);
	part->len = cpu_to_le32(count);
	if (le32_to_cpu(from->flags) & TUX3_EXTENT_CSUM) {
		memcpy(part->csum, from->csum + skip, count * sizeof(__le32));
		len += count * sizeof(__le32);
	}
	return tree_set(vol, &key, part, len);
}

/*
 * Of an extent that has been read, what is behind so many of its blocks goes, for another begins there; but not its blocks, which
 * may be that one's, too.
 */
static int extent_shorten(struct volume *vol, u64 ino, u64 block, u32 left)
{
	const struct disk_extent *extent = vol->log.item[0];
	u32 gone = le32_to_cpu(extent->len) - left;

	apply_odd(vol, ino, "an extent");
	vol->log.blocks_delta -= gone;
	if (le32_to_cpu(extent->flags) & TUX3_EXTENT_UNWRITTEN)
		vol->space.unwritten -= gone;
	return extent_store_part(vol, ino, block, 0, left);
}

/* If an extent covers both sides of `at`, or lies across it: cut it there into two items. */
static int extent_split(struct volume *vol, u64 ino, u64 at)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_EXTENT, 0), found;
	struct tree_key key = tree_key(ino, TUX3_ITEM_EXTENT, at - 1);
	struct disk_extent *extent = vol->log.item[0];
	struct tree_spot spot;
	u64 left, len;
	int size, err;

	if (!at)
		return 0;
	size = tree_edit_lookup_before(vol, &key, &from, &found, extent, TUX3_ITEM_MAX(vol->block_size));
	if (size == -ENOENT)
		return 0;
	if (size < 0)
		return size;
	if (extent_check(vol, extent, size))
		return 0;	/* it cannot be cut, and whoever reads it is told */
	len = le32_to_cpu(extent->len);
	left = at - found.offset;
	if (left >= len)
		return 0;
	key.offset = at;
	err = tree_edit_find(vol, &key, &spot);
	if (unlikely(!err && spot.found))
		return extent_shorten(vol, ino, found.offset, left);
	if (!err)
		err = extent_store_part(vol, ino, found.offset, left, len - left);
	return err ? err : extent_store_part(vol, ino, found.offset, 0, left);
}

static int punch_range(struct punch *punch, u64 ino, u64 block, u64 count)
{
	struct volume *vol = punch->vol;
	u64 end = count > DATA_END - block ? DATA_END : block + count;
	struct tree_key from = tree_key(ino, TUX3_ITEM_EXTENT, block);
	struct tree_key to = tree_key(ino, TUX3_ITEM_EXTENT, end == DATA_END ? DATA_END : end - 1), next = from;
	int err = extent_split(vol, ino, block), n;

	if (!err && end != DATA_END)
		err = extent_split(vol, ino, end);
	if (err)
		return err;
	do {
		n = tree_delete_range(vol, &from, &to, 4096, punch_whole, punch, &next);
		from = next;
	} while (n == 4096);
	return n < 0 ? n : 0;
}

/* Does the extent before `block` end where this one begins, in the file and on the disk?  Then join them. */
static int extent_join(struct volume *vol, u64 ino, u64 block, u64 addr, u32 count, u32 flags,
		       const __le32 *csum)
{
	struct tree_key first = tree_key(ino, TUX3_ITEM_EXTENT, 0), found;
	struct tree_key at = tree_key(ino, TUX3_ITEM_EXTENT, block - 1);
	struct disk_extent *extent = vol->log.item[0];
	u32 limit = flags & TUX3_EXTENT_CSUM ? TUX3_EXTENT_CSUM_MAX(vol->block_size) : TUX3_EXTENT_MAX, len;
	int size;

	if (!block)
		return -ENOENT;
	size = tree_edit_lookup_before(vol, &at, &first, &found, extent, TUX3_ITEM_MAX(vol->block_size));
	if (size < 0)
		return size;
	if (extent_check(vol, extent, size))
		return -ENOENT;
	len = le32_to_cpu(extent->len);
	if (found.offset + len != block || le64_to_cpu(extent->addr) + len != addr ||
	    le32_to_cpu(extent->flags) != flags || len + count > limit)
		return -ENOENT;
	if (csum)
		memcpy(extent->csum + len, csum, count * sizeof(__le32));
	extent->len = cpu_to_le32(len + count);
	extent->birth = cpu_to_le64(vol->delta.applying);
	return tree_set(vol, &found, extent, csum ? size + count * sizeof(__le32) : size);
}

static int extent_insert(struct volume *vol, u64 ino, const struct record_extent *record)
{
	u64 block = le64_to_cpu(record->block), addr = le64_to_cpu(record->addr), left = le64_to_cpu(record->count);
	u32 flags = le32_to_cpu(record->flags);
	const __le32 *csum = flags & TUX3_EXTENT_CSUM ? record->csum : NULL;
	struct disk_extent *extent = vol->log.item[0];
	u32 limit = csum ? TUX3_EXTENT_CSUM_MAX(vol->block_size) : TUX3_EXTENT_MAX;
	int err;

	while (left) {
		struct tree_key key = tree_key(ino, TUX3_ITEM_EXTENT, block);
		u32 count = min_t(u64, left, limit), len = sizeof(*extent);

		err = extent_join(vol, ino, block, addr, count, flags, csum);
		if (err == -ENOENT) {
			extent->addr = cpu_to_le64(addr);
			extent->birth = cpu_to_le64(vol->delta.applying);
			extent->len = cpu_to_le32(count);
			extent->flags = cpu_to_le32(flags);
			if (csum) {
				memcpy(extent->csum, csum, count * sizeof(__le32));
				len += count * sizeof(__le32);
			}
			err = tree_set(vol, &key, extent, len);
		}
		if (err)
			return err;
		block += count;
		addr += count;
		left -= count;
		if (csum)
			csum += count;
	}
	return 0;
}

/*
 * What most writes do: replace blocks that lie in one extent, or fill a hole, and neither touches its neighbours.  One look
 * at the leaf tells.  Else, and where it cannot tell, -EAGAIN: nothing was changed.
 */
struct map_place {
	struct tree_spot spot;		/* of the extent that begins at the record's block */
	u64 block, count, addr;
	u64 start, len;			/* the extent that has all of them, which is in item[0]; len 0: they are a hole */
};

/* The extent before the place, if there is one in this leaf: 1.  0: there is none.  Else -EAGAIN. */
static int map_look_before(struct volume *vol, const struct map_place *place, u64 ino, struct disk_extent *extent, u64 *start)
{
	struct tree_key key;
	const void *data;
	u32 len;

	if (!tree_spot_before(&place->spot, &key, &data, &len))
		return place->block ? -EAGAIN : 0;
	if (key.ino != ino || key.type != TUX3_ITEM_EXTENT)
		return 0;
	if (extent_check(vol, data, len))
		return -EAGAIN;
	memcpy(extent, data, sizeof(*extent));
	*start = key.offset;
	return 1;
}

static int map_look(struct volume *vol, u64 ino, struct map_place *place)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_EXTENT, place->block), last = key;
	struct disk_extent *old = vol->log.item[0], before;
	u64 start = 0, len = 0;
	const void *data;
	u32 bytes;
	int err = tree_edit_find(vol, &key, &place->spot);

	if (!err)
		err = map_look_before(vol, place, ino, &before, &start);
	if (err < 0)
		return err;
	if (err) {
		len = le32_to_cpu(before.len);
		/* It may go on into what is written; or that goes on where it ends. */
		if (start + len == place->block && le64_to_cpu(before.addr) + len == place->addr)
			return -EAGAIN;
	}
	if (place->spot.found) {
		if (extent_check(vol, place->spot.data, place->spot.len))
			return -EAGAIN;
		memcpy(old, place->spot.data, place->spot.len);
		start = place->block;
		len = le32_to_cpu(old->len);
	} else if (start + len > place->block) {
		tree_spot_before(&place->spot, &key, &data, &bytes);
		memcpy(old, data, bytes);
	} else {
		last.offset += place->count - 1;
		place->len = 0;
		return tree_spot_none_to(&place->spot, &last) ? 0 : -EAGAIN;
	}
	place->start = start;
	place->len = len;
	if (place->block + place->count > start + len || le32_to_cpu(old->flags) & TUX3_EXTENT_UNWRITTEN ||
	    le64_to_cpu(old->addr) + (place->block - start) == place->addr)
		return -EAGAIN;
	return 0;
}

static int map_simply(struct volume *vol, u64 ino, const struct record_extent *record)
{
	struct map_place place = {
		.block = le64_to_cpu(record->block), .count = le64_to_cpu(record->count), .addr = le64_to_cpu(record->addr),
	};
	u32 flags = le32_to_cpu(record->flags), bytes = sizeof(struct disk_extent), left, right;
	struct disk_extent *old = vol->log.item[0], *extent = vol->log.item[1];
	struct tree_key key = tree_key(ino, TUX3_ITEM_EXTENT, place.block);
	struct punch punch = { .vol = vol };
	int err;

	if (place.count > (flags & TUX3_EXTENT_CSUM ? TUX3_EXTENT_CSUM_MAX(vol->block_size) : TUX3_EXTENT_MAX))
		return -EAGAIN;
	err = map_look(vol, ino, &place);
	if (err)
		return err;
	left = right = 0;
	if (place.len) {
		left = place.block - place.start;
		right = place.len - left - place.count;
		err = punch_free(&punch, place.block, le64_to_cpu(old->addr) + left, place.count);
		/* The later one first: should there be no memory for what follows, no block that stays is missing in the tree. */
		if (!err && right)
			err = extent_store_part(vol, ino, place.start, left + place.count, right);
		if (!err && left)
			err = extent_store_part(vol, ino, place.start, 0, left);
	}
	if (err)
		return err;
	extent->addr = record->addr;
	extent->birth = cpu_to_le64(vol->delta.applying);
	extent->len = cpu_to_le32(place.count);
	extent->flags = record->flags;
	if (flags & TUX3_EXTENT_CSUM) {
		memcpy(extent->csum, record->csum, place.count * sizeof(__le32));
		bytes += place.count * sizeof(__le32);
	}
	return left || right ? tree_set(vol, &key, extent, bytes) : tree_spot_set(vol, &place.spot, extent, bytes);
}

static int apply_map(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	const struct record_extent *record = payload;
	u64 ino = le64_to_cpu(record->ino), block = le64_to_cpu(record->block), count = le64_to_cpu(record->count);
	u64 addr = le64_to_cpu(record->addr), want = sizeof(*record);
	u32 flags = le32_to_cpu(record->flags);
	struct punch punch = { .vol = vol, .keep_block = block, .keep_addr = addr, .keep = true };
	bool simple;
	int err;

	if (ino > TUX3_INO_MAX || !apply_extent_flags_valid(flags) || !apply_blocks_valid(vol, addr, count) ||
	    block > (TUX3_SIZE_MAX >> vol->block_shift) || count > TUX3_EXTENT_MAX)
		return apply_bad(vol, type, "extent");
	if (flags & TUX3_EXTENT_CSUM)
		want += count * sizeof(__le32);
	if (len != want)
		return apply_bad(vol, type, "length");
	err = map_simply(vol, ino, record);
	simple = err != -EAGAIN;
	if (!simple)
		err = punch_range(&punch, ino, block, count);
	if (err)
		return err;
	if ((vol->log.replaying || vol->log.moving) && punch.kept != count) {
		if (punch.kept && punch.kept < count)
			return apply_bad(vol, type, "some of its blocks are there already");
		err = punch.kept ? apply_odd(vol, ino, "an extent") : balloc_take(vol, addr, count);
		if (err)
			return err;
	}
	vol->log.blocks_delta += count;
	if (flags & TUX3_EXTENT_UNWRITTEN)
		vol->space.unwritten += count;
	return simple ? 0 : extent_insert(vol, ino, record);
}

static int apply_punch(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	const struct record_extent *record = payload;
	struct punch punch = { .vol = vol };

	if (le64_to_cpu(record->ino) > TUX3_INO_MAX || len != sizeof(*record) || !record->count)
		return apply_bad(vol, type, "range");
	return punch_range(&punch, le64_to_cpu(record->ino), le64_to_cpu(record->block), le64_to_cpu(record->count));
}

/* ---- whole inodes, other items ---- */

static int delete_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	const struct disk_xattr *entry;
	struct punch *punch = ctx;
	int err = 0;

	if (key->type == TUX3_ITEM_EXTENT)
		return punch_whole(ctx, key, data, len);
	if (key->type != TUX3_ITEM_XATTR)
		return 0;
	while (!err && (entry = chain_next_xattr(&chain)))
		err = xattr_pieces(punch->vol, entry, false);
	return err || !chain.bad ? err : apply_odd(punch->vol, key->ino, "an attribute");
}

static int apply_inode_delete(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	u64 ino = le64_to_cpu(((const struct record_inode *)payload)->ino);
	struct tree_key from = tree_key(ino, 0, 0), to = tree_key(ino, U8_MAX, U64_MAX), next = from;
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);
	struct punch punch = { .vol = vol };
	struct tree_spot spot;
	struct disk_attr attr;
	int n;

	if (ino > TUX3_INO_MAX || ino <= TUX3_INO_ROOT)
		return apply_bad(vol, type, "inode number");
	n = tree_edit_find(vol, &key, &spot);
	if (n)
		return n;
	if (spot.found) {
		if (spot.len != sizeof(attr))
			return apply_bad(vol, type, "attributes in the tree");
		memcpy(&attr, spot.data, sizeof(attr));
		n = quota_account(vol, &attr, NULL);
		if (n)
			return n;
		vol->tree_inodes--;
	}
	do {
		n = tree_delete_range(vol, &from, &to, 4096, delete_item, &punch, &next);
		from = next;
	} while (n == 4096);
	if (n >= 0)
		vol->log.deleted = ino;
	return n < 0 ? n : 0;
}

static int apply_xattr_punch(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	const struct record_hashes *record = payload;
	u64 ino = le64_to_cpu(record->ino);
	struct tree_key from = tree_key(ino, TUX3_ITEM_XATTR, le64_to_cpu(record->first)), next;
	struct tree_key to = tree_key(ino, TUX3_ITEM_XATTR, le64_to_cpu(record->last));
	struct punch punch = { .vol = vol };
	int n;

	if (ino > TUX3_INO_MAX || ino < TUX3_INO_ROOT || len != sizeof(*record) || from.offset > to.offset)
		return apply_bad(vol, type, "range");
	do {
		n = tree_delete_range(vol, &from, &to, 4096, delete_item, &punch, &next);
		from = next;
	} while (n == 4096);
	return n < 0 ? n : 0;
}

static int apply_item(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	const struct record_item *record = payload;
	struct tree_key key = tree_key_from_disk(&record->key);
	u32 data_len = len - sizeof(*record);
	struct disk_quota quota = {};
	int err;

	if (key.type != TUX3_ITEM_INLINE && (key.ino != TUX3_INO_VOLUME || key.type < TUX3_ITEM_QUOTA_USER ||
					     key.type > TUX3_ITEM_ORPHAN))
		return apply_bad(vol, type, "key");
	if (data_len > TUX3_ITEM_MAX(vol->block_size))
		return apply_bad(vol, type, "length");
	if (key.type >= TUX3_ITEM_QUOTA_USER && key.type <= TUX3_ITEM_QUOTA_PROJECT) {
		if (key.offset > U32_MAX || (type == TUX3_RECORD_ITEM_SET && data_len != sizeof(quota)))
			return apply_bad(vol, type, "quota");
		memcpy(&quota, record->data, data_len);
		quota_applied(vol, key.type, key.offset, &quota);
	}
	if (type == TUX3_RECORD_ITEM_SET)
		return tree_set(vol, &key, record->data, data_len);
	err = tree_delete(vol, &key);
	return err == -ENOENT ? 0 : err;
}

int log_for_groups(const void *payload, u32 len, int (*fn)(void *ctx, u64 group), void *ctx)
{
	const struct record_group *record = payload;
	u64 first, words, bits, i, n;
	int err = 0;

	if (len < sizeof(*record))
		return 0;
	first = le64_to_cpu(record->group);
	words = (len - sizeof(*record)) / sizeof(__le64);
	for (i = 0; i < words && !err; i++) {
		for (bits = le64_to_cpu(record->bits[i]), n = 0; bits && !err; bits >>= 1, n++)
			if (bits & 1)
				err = fn(ctx, first + 64 * i + n);
	}
	return err;
}

static int touch_group(void *ctx, u64 group)
{
	return balloc_touch(ctx, group);
}

static int apply_group(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	u64 first = le64_to_cpu(((const struct record_group *)payload)->group);

	if (first >= vol->group_count || first % 64 || (len - sizeof(struct record_group)) % sizeof(__le64))
		return apply_bad(vol, type, "groups");
	return vol->log.replaying ? log_for_groups(payload, len, touch_group, vol) : 0;
}

static int apply_merge(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	const struct record_merge *record = payload;
	struct tree_merge merge = {
		.key = tree_key_from_disk(&record->key),
		.level = le32_to_cpu(record->level), .right = le32_to_cpu(record->right),
	};
	int err = tree_merge(vol, &merge);

	return err == -EIO ? apply_bad(vol, type, "these nodes cannot be merged") : err;
}

/* Not sizeof: that has padding after the packed entry. */
#define DIRENT_MIN (offsetof(struct record_dirent, entry) + sizeof(struct disk_dirent))
#define XATTR_MIN (offsetof(struct record_xattr, entry) + sizeof(struct disk_xattr))

static const struct {
	u32 min_len;
	int (*apply)(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len);
} apply_table[] = {
	[TUX3_RECORD_ITEM_SET] = { sizeof(struct record_item), apply_item },
	[TUX3_RECORD_ITEM_DELETE] = { sizeof(struct record_item), apply_item },
	[TUX3_RECORD_ATTR_SET] = { sizeof(struct record_attr), apply_attr },
	[TUX3_RECORD_INODE_DELETE] = { sizeof(struct record_inode), apply_inode_delete },
	[TUX3_RECORD_DIRENT_SET] = { DIRENT_MIN, apply_dirent },
	[TUX3_RECORD_DIRENT_DELETE] = { DIRENT_MIN, apply_dirent },
	[TUX3_RECORD_XATTR_SET] = { XATTR_MIN, apply_xattr },
	[TUX3_RECORD_XATTR_DELETE] = { XATTR_MIN, apply_xattr },
	[TUX3_RECORD_EXTENT_MAP] = { sizeof(struct record_extent), apply_map },
	[TUX3_RECORD_EXTENT_PUNCH] = { sizeof(struct record_extent), apply_punch },
	[TUX3_RECORD_GROUP_TOUCHED] = { sizeof(struct record_group), apply_group },
	[TUX3_RECORD_TREE_MERGE] = { sizeof(struct record_merge), apply_merge },
	[TUX3_RECORD_XATTR_PUNCH] = { sizeof(struct record_hashes), apply_xattr_punch },
};

/* Above all that is in use replay finds other counts than the commit did, for nodes have no place there yet: so that is noted. */
void apply_settle_counts(struct volume *vol)
{
	s64 counted = atomic64_read(&vol->balloc.data_used);
	s64 data = clamp(counted, (s64)0, (s64)atomic64_read(&vol->balloc.disk_used));
	s64 unwritten = clamp(vol->space.unwritten, (s64)0, data);

	/* With verify it is a fault, and stops the volume. */
	if (likely(data == counted && unwritten == vol->space.unwritten) || vol->opts.verify)
		return;
	volume_warn(vol, "of %lld blocks in use %lld cannot be data, and %lld of these not written: fsck.tux3 -y counts them anew",
		    (s64)atomic64_read(&vol->balloc.disk_used), counted, vol->space.unwritten);
	atomic64_add(data - counted, &vol->balloc.data_used);
	vol->space.unwritten = unwritten;
	vol->balloc.foreign |= data != counted;
}

bool apply_record_possible(u32 type, u32 len)
{
	return type < ARRAY_SIZE(apply_table) && apply_table[type].apply && len >= apply_table[type].min_len;
}

int apply_record(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	if (type != TUX3_RECORD_GROUP_TOUCHED)		/* which is nothing of the tree */
		lockdep_assert_held_write(&vol->tree.sem);
	if (type >= ARRAY_SIZE(apply_table) || !apply_table[type].apply)
		return apply_bad(vol, type, "unknown type");
	if (len < apply_table[type].min_len)
		return apply_bad(vol, type, "too short");
	return apply_table[type].apply(vol, type, payload, len);
}

int log_next_record(const void *records, u32 bytes, u32 *at, const struct disk_record **record)
{
	const struct disk_record *head = (const void *)((const u8 *)records + *at);
	u64 size;

	if (*at == bytes)
		return 0;
	if (*at > bytes || bytes - *at < sizeof(*head))
		return -EIO;
	size = sizeof(*head) + round_up((u64)le32_to_cpu(head->len), 8);
	if (size > bytes - *at)
		return -EIO;
	*at += size;
	*record = head;
	return 1;
}
