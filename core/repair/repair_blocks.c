/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: blocks that two claim.
 *
 * A node of the tree is known by its checksum, so a block that is one is nothing else.  Of two files, the one whose checksum the
 * block has keeps it; if that does not tell, the one that was written last.  What the other had there is lost; an extended
 * attribute goes.
 */
#include "core/device/device.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/check/check_internal.h"
#include "core/repair/repair_internal.h"
#include "core/repair/repair_lost.h"

struct claim {
	u64 addr;
	struct tree_key key;	/* of the item; ino 0: a node of the tree */
	u64 block;		/* extents: file block */
	u64 birth;
	u32 csum;
	bool has_csum, lost;
};

/* ---- who claims what ---- */

static int note_block(struct repair *repair, u64 addr)
{
	u64 seen;
	int err = block_set_add(&repair->once, repair->vol, addr, 1, &seen);

	return err || !seen ? err : block_set_add(&repair->twice, repair->vol, addr, 1, &seen);
}

static int note_run(struct repair *repair, const struct tree_key *key, const void *data, u64 addr, u32 len)
{
	int err = 0;
	u32 i;

	for (i = 0; i < len && !err; i++)
		err = note_block(repair, addr + i);
	return err;
}

static struct claim *claim_add(struct repair *repair, u64 addr)
{
	struct claim *claim = repair_add(&repair->claims, sizeof(*claim));

	if (claim)
		claim->addr = addr;
	return claim;
}

static int claim_run(struct repair *repair, const struct tree_key *key, const void *data, u64 addr, u32 len)
{
	struct disk_extent extent;
	struct claim *claim;
	u32 i;

	for (i = 0; i < len; i++) {
		if (!block_set_has(&repair->twice, repair->vol, addr + i))
			continue;
		claim = claim_add(repair, addr + i);
		if (!claim)
			return -ENOMEM;
		claim->key = *key;
		if (key->type != TUX3_ITEM_EXTENT)
			continue;
		memcpy(&extent, data, sizeof(extent));
		claim->block = key->offset + i;
		claim->birth = le64_to_cpu(extent.birth);
		claim->has_csum = le32_to_cpu(extent.flags) & TUX3_EXTENT_CSUM;
		if (claim->has_csum)
			claim->csum = get_unaligned_le32((const u8 *)data + sizeof(extent) + i * sizeof(__le32));
	}
	return 0;
}

struct claim_walk {
	struct repair *repair;
	bool second;
};

static int claim_visit(void *ctx, const struct tree_visit *visit)
{
	struct claim_walk *walk = ctx;
	struct repair *repair = walk->repair;
	int err = 0;
	u32 i;

	if (!visit->data)
		return 0;
	if (!node_unplaced(visit->addr)) {
		if (!walk->second)
			err = note_block(repair, visit->addr);
		else if (block_set_has(&repair->twice, repair->vol, visit->addr) && !claim_add(repair, visit->addr))
			err = -ENOMEM;
	}
	for (i = 0; !visit->level && i < node_count(visit->data) && !err; i++) {
		struct node_key packed = leaf_key(visit->data, i);
		struct tree_key key = node_key_unpack(&packed);

		err = repair_item_blocks(repair, &key, leaf_data(visit->data, i), leaf_len(visit->data, i), walk->second ?
					 claim_run : note_run);
	}
	return err;
}

/* ---- who keeps it ---- */

static int claim_order(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	/* Of those that may keep it the first one does: nodes, then what was written last. */
	if (!x->key.ino != !y->key.ino)
		return x->key.ino ? 1 : -1;
	if (x->birth != y->birth)
		return x->birth > y->birth ? -1 : 1;
	return tree_key_compare(&x->key, &y->key);
}

static const struct claim *claim_winner(struct repair *repair, const struct claim *claim, u64 count, u8 *block)
{
	struct volume *vol = repair->vol;
	u64 i;
	u32 crc;

	if (!claim->key.ino || device_read(vol->dev, claim->addr, 1, block))
		return claim;
	crc = crc32c(~0, block, vol->block_size);
	for (i = 0; i < count; i++)
		if (claim[i].has_csum && claim[i].csum == crc)
			return &claim[i];
	return claim;
}

int repair_store_part(struct repair *repair, const struct tree_key *key, const struct disk_extent *from, u32 skip, u32 count)
{
	struct disk_extent *part = (struct disk_extent *)repair->chain;
	u32 len = sizeof(*part);

	if (!count)
		return 0;
	*part = *from;
	part->addr = cpu_to_le64(le64_to_cpu(from->addr) + skip);
	part->len = cpu_to_le32(count);
	if (le32_to_cpu(from->flags) & TUX3_EXTENT_CSUM) {
		memcpy(part->csum, from->csum + skip, count * sizeof(__le32));
		len += count * sizeof(__le32);
	}
	return repair_set(repair, key->ino, key->type, key->offset + skip, part, len);
}

/* These file blocks, as far as they are where the claim says. */
static int lose_run(struct repair *repair, const struct claim *claim, u32 count)
{
	struct tree_key at = tree_key(claim->key.ino, TUX3_ITEM_EXTENT, claim->block);
	struct tree_key from = tree_key(claim->key.ino, TUX3_ITEM_EXTENT, 0), key;
	struct disk_extent *extent = (struct disk_extent *)repair->item;
	u32 skip, room = TUX3_ITEM_MAX(repair->vol->block_size);
	int err = tree_lookup_before(repair->vol, &at, &from, &key, extent, room);

	if (err < 0)
		return err == -ENOENT ? 0 : err;
	skip = claim->block - key.offset;
	if (skip >= le32_to_cpu(extent->len) || le64_to_cpu(extent->addr) + skip != claim->addr)
		return 0;
	count = min(count, le32_to_cpu(extent->len) - skip);
	repair_note(repair, REPAIR_LOST, claim->key.ino,
		    "%u blocks of inode %llu from file block %llu on: they belong to something else",
		    count, (unsigned long long)claim->key.ino, (unsigned long long)claim->block);
	repair->unclaimed += count;
	err = repair_note_lost(repair, claim->key.ino, claim->block, count);
	if (!err)
		err = repair_delete(repair, key.ino, key.type, key.offset);
	if (!err)
		err = repair_store_part(repair, &key, extent, 0, skip);
	if (!err)
		err = repair_store_part(repair, &key, extent, skip + count, le32_to_cpu(extent->len) - skip - count);
	return err;
}

static bool piece_has(const struct disk_xattr *entry, u64 addr)
{
	const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);
	u32 i;

	for (i = 0; i < entry->pieces; i++, piece++)
		if (addr - get_unaligned_le64(&piece->addr) < get_unaligned_le32(&piece->len))
			return true;
	return false;
}

static int lose_xattr(struct repair *repair, const struct claim *claim)
{
	const struct tree_key *key = &claim->key;
	int len = repair_get(repair, key->ino, key->type, key->offset, repair->item);
	struct check_chain chain = { .data = repair->item, .len = max(len, 0) };
	const struct disk_xattr *entry;
	char text[300];
	u32 size;

	while (len > 0 && (entry = check_next_xattr(&chain))) {
		if (!piece_has(entry, claim->addr))
			continue;
		check_name_text(text, sizeof(text), entry->name, entry->len);
		repair_note(repair, REPAIR_LOST, key->ino,
			    "The extended attribute %s of inode %llu: its block %llu belongs to something else",
			    text, (unsigned long long)key->ino, (unsigned long long)claim->addr);
		size = chain.size;
		memmove(repair->item + chain.at, repair->item + chain.at + size, len - chain.at - size);
		len -= size;
		return len ? repair_set(repair, key->ino, key->type, key->offset, repair->item, len) :
			     repair_delete(repair, key->ino, key->type, key->offset);
	}
	return 0;
}

/* Blocks of one extent that lie side by side go together. */
static bool loser_follows(const struct claim *claim, const struct claim *next, u64 count)
{
	return next->key.type == TUX3_ITEM_EXTENT && next->lost && !tree_key_compare(&claim->key, &next->key) &&
	       next->block == claim->block + count && next->addr == claim->addr + count;
}

static int loser_order(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	int order = tree_key_compare(&x->key, &y->key);

	if (order)
		return order;
	return x->block != y->block ? (x->block < y->block ? -1 : 1) : x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int judge(struct repair *repair, u8 *block)
{
	struct claim *claim = repair->claims.entries;
	const struct claim *winner;
	u64 count = repair->claims.count, i, n, k;
	int err = 0;

	for (i = 0; i < count; i += n) {
		for (n = 1; i + n < count && claim[i + n].addr == claim[i].addr; n++)
			;
		winner = claim_winner(repair, &claim[i], n, block);
		for (k = i; k < i + n; k++)
			claim[k].lost = &claim[k] != winner && claim[k].key.ino;
	}
	sort(claim, count, sizeof(*claim), loser_order, NULL);
	for (i = 0; i < count && !err; i += n) {
		n = 1;
		if (!claim[i].lost)
			continue;
		if (claim[i].key.type != TUX3_ITEM_EXTENT) {
			err = lose_xattr(repair, &claim[i]);
			continue;
		}
		while (i + n < count && n < U32_MAX && loser_follows(&claim[i], &claim[i + n], n))
			n++;
		err = lose_run(repair, &claim[i], n);
	}
	return err;
}

int repair_shared(struct repair *repair)
{
	struct claim_walk walk = { .repair = repair };
	u8 *block = kvmalloc(repair->vol->block_size, GFP_KERNEL);
	int err = block ? 0 : -ENOMEM;

	repair->claims.count = 0;
	if (!err)
		err = block_set_init(&repair->once, repair->vol);
	if (!err)
		err = block_set_init(&repair->twice, repair->vol);
	if (!err)
		err = tree_walk(repair->vol, claim_visit, &walk);
	walk.second = true;
	if (!err)
		err = tree_walk(repair->vol, claim_visit, &walk);
	if (!err && repair->claims.count) {
		sort(repair->claims.entries, repair->claims.count, sizeof(struct claim), claim_order, NULL);
		err = judge(repair, block);
	}
	block_set_exit(&repair->once);
	block_set_exit(&repair->twice);
	kvfree(block);
	return err;
}
