// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Scrub: the data that a leaf leads to.
 *
 * Up to DEVICE_READS_MAX pieces of extents are read together, and then verified in order: so the cursor always stands behind what
 * was verified.  The leaf is a copy.  What does not fit is looked up in the tree, between two commits, when all data that the tree
 * leads to is durable; read again by itself; and looked up once more.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/delta/delta.h"
#include "core/format/chain.h"
#include "core/log/apply.h"
#include "core/scrub/scrub_internal.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

/* A piece of an extent. */
struct piece {
	struct node_key key;	/* of its item */
	u32 skip;		/* where in the extent it begins */
	const u8 *csum;		/* of its blocks; NULL: there are none */
};

struct batch {
	struct device_io reads[DEVICE_READS_MAX];
	struct piece piece[DEVICE_READS_MAX];
	u32 count, blocks;
};

static u64 piece_ino(const struct piece *piece)
{
	return piece->key.high >> 8;
}

/* ---- second looks ---- */

/* Between two commits: whatever the tree says now is on the device.  -EIO: the volume has stopped. */
static int look_end(struct scrub *scrub)
{
	delta_unlock(scrub->vol);
	return volume_error(scrub->vol) ? -EIO : 0;
}

/* Does this file block still lie there, with this checksum?  1, 0, -errno. */
static int extent_is(struct scrub *scrub, u64 ino, u64 block, u64 addr, const u8 *csum)
{
	struct tree_key first = tree_key(ino, TUX3_ITEM_EXTENT, 0), at = tree_key(ino, TUX3_ITEM_EXTENT, block), found;
	u32 size = TUX3_ITEM_MAX(scrub->vol->block_size), flags, skip;
	struct disk_extent *extent = kvmalloc(size, GFP_NOFS);
	int ret;

	if (!extent)
		return -ENOMEM;
	ret = tree_lookup_before(scrub->vol, &at, &first, &found, extent, size);
	/* What cannot be read was told of as a node, or will be. */
	if (ret < 0 || extent_check(scrub->vol, extent, ret)) {
		ret = ret == -ENOMEM ? ret : 0;
		goto out;
	}
	flags = le32_to_cpu(extent->flags);
	skip = block - found.offset;
	ret = block - found.offset < le32_to_cpu(extent->len) && le64_to_cpu(extent->addr) + skip == addr &&
	      !(flags & TUX3_EXTENT_UNWRITTEN) && !(flags & TUX3_EXTENT_CSUM) == !csum;
	if (ret && csum)
		ret = le32_to_cpu(extent->csum[skip]) == get_unaligned_le32(csum);
out:
	kvfree(extent);
	return ret;
}

/* As it is in the tree, with no commit under way. */
static int extent_look(struct scrub *scrub, u64 ino, u64 block, u64 addr, const u8 *csum)
{
	int ret = delta_lock_killable(scrub->vol), err;

	if (ret)
		return ret;
	ret = extent_is(scrub, ino, block, addr, csum);
	err = look_end(scrub);
	return err ? err : ret;
}

static bool data_good(struct scrub *scrub, int err, const void *data, const u8 *csum)
{
	u32 crc;

	if (err) {
		snprintf(scrub->why, sizeof(scrub->why), "the device failed to read it (%s)", error_text(err));
		return false;
	}
	if (!csum)
		return true;
	crc = crc32c(~0u, data, scrub->vol->block_size);
	if (likely(crc == get_unaligned_le32(csum)))
		return true;
	snprintf(scrub->why, sizeof(scrub->why), "checksum %08x instead of %08x", crc, get_unaligned_le32(csum));
	return false;
}

/* One block does not fit.  0: told, if it is a problem; -errno. */
static int data_again(struct scrub *scrub, u64 ino, u64 block, u64 addr, const u8 *csum)
{
	struct tux3_ioc_scrub_problem problem = {
		.kind = TUX3_SCRUB_DATA, .ino = ino, .offset = block << scrub->vol->block_shift, .addr = addr, .count = 1,
	};
	int ret = extent_look(scrub, ino, block, addr, csum), err;

	if (ret <= 0)
		return ret;
	err = scrub_read(scrub, addr, 1, scrub->again);
	if (data_good(scrub, err, scrub->again, csum))
		return 0;
	problem.flags = err ? TUX3_SCRUB_UNREADABLE : 0;
	ret = extent_look(scrub, ino, block, addr, csum);
	if (ret > 0)
		scrub_problem(scrub, &problem);
	return min(ret, 0);
}

/* ---- extents ---- */

/* 1: there is no room for another problem; 0; -errno.  The cursor stands behind what was verified. */
static int piece_verify(struct scrub *scrub, const struct piece *piece, const struct device_io *read)
{
	struct volume *vol = scrub->vol;
	u32 i;

	scrub->at = piece->key;
	for (i = 0; i < read->count; i++) {
		const u8 *data = (const u8 *)read->data + ((size_t)i << vol->block_shift);
		const u8 *csum = piece->csum ? piece->csum + i * sizeof(__le32) : NULL;
		int err = 0;

		scrub->skip = piece->skip + i;
		if (!scrub_has_room(scrub))
			return 1;
		if (!data_good(scrub, read->err, data, csum))
			err = data_again(scrub, piece_ino(piece), piece->key.low + scrub->skip, read->addr + i, csum);
		if (err)
			return err;
		scrub_done(scrub, 1, &scrub->out->blocks);
	}
	scrub->skip = piece->skip + read->count;
	return 0;
}

/* If there are several blocks in a piece that cannot be read, which?  Each is read by itself. */
static int batch_flush(struct scrub *scrub, struct batch *batch)
{
	u32 i;
	int ret = 0;

	if (batch->count)
		scrub_read_many(scrub, batch->reads, batch->count);
	for (i = 0; i < batch->count && !ret; i++)
		ret = piece_verify(scrub, &batch->piece[i], &batch->reads[i]);
	batch->count = batch->blocks = 0;
	return ret;
}

/* How many blocks there is room for, in the batch and in the budget: one at least goes into an empty batch. */
static u32 batch_room(struct scrub *scrub, const struct batch *batch)
{
	u64 left = scrub_left(scrub) >> scrub->vol->block_shift;
	u32 most = min_t(u64, scrub->buffer_blocks, max(left, (u64)1));

	return batch->count == DEVICE_READS_MAX ? 0 : most - min(most, batch->blocks);
}

/* 1: the portion ends; 0; -errno. */
static int extent_add(struct scrub *scrub, struct batch *batch, const struct node_key *key, const u8 *data, u32 len, u32 skip)
{
	struct disk_extent extent;
	u32 count, n;
	bool csums;

	if (extent_check(scrub->vol, data, len))	/* fsck.tux3 says what is wrong with it */
		return 0;
	memcpy(&extent, data, sizeof(extent));
	count = le32_to_cpu(extent.len);
	csums = le32_to_cpu(extent.flags) & TUX3_EXTENT_CSUM;
	if (le32_to_cpu(extent.flags) & TUX3_EXTENT_UNWRITTEN) {
		scrub->out->bytes_done += (u64)count << scrub->vol->block_shift;
		return 0;
	}
	for (; skip < count; skip += n) {
		u32 room = batch_room(scrub, batch);
		int ret;

		if (!room) {
			ret = batch_flush(scrub, batch);
			if (ret || scrub_is_over(scrub))
				return ret ? ret : 1;
			room = batch_room(scrub, batch);
		}
		n = min(room, count - skip);
		batch->reads[batch->count] = (struct device_io){
			.addr = le64_to_cpu(extent.addr) + skip, .count = n,
			.data = scrub->buffer + ((size_t)batch->blocks << scrub->vol->block_shift),
		};
		batch->piece[batch->count++] = (struct piece){
			.key = *key, .skip = skip, .csum = csums ? data + sizeof(extent) + skip * sizeof(__le32) : NULL,
		};
		batch->blocks += n;
	}
	return 0;
}

/* ---- values of xattrs in blocks of their own ---- */

/* Is the value as its entry says?  The first block that cannot be read, or the first of the value, in *addr. */
static bool value_good(struct scrub *scrub, const struct disk_xattr *entry, u64 *addr, u32 *flags)
{
	const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);
	u32 left = get_unaligned_le32(&entry->value_len), want = get_unaligned_le32(&entry->value_crc);
	u32 crc = ~0u, i, done, size = scrub->vol->block_size;

	*addr = get_unaligned_le64(&piece->addr);
	*flags = 0;
	if (left > TUX3_XATTR_SIZE_MAX)		/* fsck.tux3 says so */
		return true;
	for (i = 0; i < entry->pieces; i++, piece++) {
		u64 from = get_unaligned_le64(&piece->addr);
		u32 count = get_unaligned_le32(&piece->len);

		if (!apply_blocks_valid(scrub->vol, from, count))	/* likewise */
			return true;
		for (done = 0; done < count && left; done++) {
			u32 bytes = min(left, size);
			int err = scrub_read(scrub, from + done, 1, scrub->again);

			if (err) {
				*addr = from + done;
				*flags = TUX3_SCRUB_UNREADABLE;
				return data_good(scrub, err, NULL, NULL);
			}
			crc = crc32c(crc, scrub->again, bytes);
			left -= bytes;
		}
	}
	if (left || crc == want)
		return true;
	snprintf(scrub->why, sizeof(scrub->why), "checksum %08x instead of %08x", crc, want);
	return false;
}

struct value_find {
	const struct disk_xattr *entry;
	u32 size;
	bool found;
};

static int value_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct value_find *find = ctx;
	struct chain chain = chain_of(data, len);
	const struct disk_xattr *entry;

	while (!find->found && (entry = chain_next_xattr(&chain)))
		find->found = chain.size == find->size && !memcmp(entry, find->entry, find->size);
	return 0;
}

/* As extent_look(). */
static int value_look(struct scrub *scrub, const struct node_key *key, const struct disk_xattr *entry, u32 size)
{
	struct value_find find = { .entry = entry, .size = size };
	struct tree_key at = node_key_unpack(key);
	int ret = delta_lock_killable(scrub->vol), err;

	if (ret)
		return ret;
	ret = tree_scan(scrub->vol, &at, &at, value_item, &find);
	err = look_end(scrub);
	return err ? err : ret == -ENOMEM ? ret : find.found;
}

static int value_verify(struct scrub *scrub, const struct node_key *key, const struct disk_xattr *entry, u32 size)
{
	struct tux3_ioc_scrub_problem problem = { .kind = TUX3_SCRUB_XATTR, .ino = key->high >> 8, .count = 1 };
	u32 blocks = DIV_ROUND_UP(get_unaligned_le32(&entry->value_len), scrub->vol->block_size);
	int ret;

	if (!value_good(scrub, entry, &problem.addr, &problem.flags)) {
		ret = value_look(scrub, key, entry, size);
		if (ret < 0)
			return ret;
		if (ret && !value_good(scrub, entry, &problem.addr, &problem.flags)) {
			ret = value_look(scrub, key, entry, size);
			if (ret < 0)
				return ret;
			if (ret)
				scrub_problem(scrub, &problem);
		}
	}
	scrub_done(scrub, blocks, &scrub->out->blocks);
	return 0;
}

/* Of this hash, from entry number `skip` on; first: with it the portion begins.  1: the portion ends; 0; -errno. */
static int xattr_verify(struct scrub *scrub, const struct node_key *key, const u8 *data, u32 len, u32 skip, bool first)
{
	struct chain chain = chain_of(data, len);
	const struct disk_xattr *entry;
	u32 n = 0;
	int err;

	while ((entry = chain_next_xattr(&chain))) {
		if (n++ < skip || !entry->pieces)
			continue;
		scrub->at = *key;
		scrub->skip = n - 1;
		if ((scrub_is_over(scrub) && !(first && n - 1 == skip)) || !scrub_has_room(scrub))
			return 1;
		err = value_verify(scrub, key, entry, chain.size);
		if (err)
			return err;
	}
	return 0;
}

/* ---- a leaf ---- */

static int leaf_item_data(struct scrub *scrub, struct batch *batch, u32 pos, const struct node_key *begin, u32 begin_skip)
{
	const struct disk_node *leaf = scrub->node[0].data;
	struct node_key key = leaf_key(leaf, pos);
	bool first = node_key_equal(&key, begin);
	u32 skip = first ? begin_skip : 0;
	int ret;

	switch (key.high & 0xff) {
	case TUX3_ITEM_EXTENT:
		return extent_add(scrub, batch, &key, leaf_data(leaf, pos), leaf_len(leaf, pos), skip);
	case TUX3_ITEM_XATTR:
		/* What comes before is verified first, or the cursor would pass it. */
		ret = batch_flush(scrub, batch);
		return ret ? ret : xattr_verify(scrub, &key, leaf_data(leaf, pos), leaf_len(leaf, pos), skip, first);
	}
	return 0;
}

int scrub_leaf_data(struct scrub *scrub)
{
	const struct disk_node *leaf = scrub->node[0].data;
	struct node_key begin = scrub->at;
	u32 begin_skip = scrub->skip, pos;
	struct batch *batch = kzalloc(sizeof(*batch), GFP_KERNEL);
	bool found;
	int ret = batch ? 0 : -ENOMEM;

	if (batch)
		for (pos = leaf_find(leaf, &begin, &found); pos < node_count(leaf) && !ret; pos++)
			ret = leaf_item_data(scrub, batch, pos, &begin, begin_skip);
	if (!ret)
		ret = batch_flush(scrub, batch);
	kfree(batch);
	return ret;
}
