/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: blocks that two claim.
 *
 * A node of the tree is known by its checksum, so a block that is one is nothing else.  Of two files, the one whose checksum the
 * block has keeps it; if that does not tell, the one that was written last.  What the other had there is lost; an extended
 * attribute goes.
 *
 * Items may claim far more blocks than there are, all of them the same.  So they are noted as runs, by item; only where there are
 * checksums each block is looked at, and those are in the item.
 */
#include "core/device/device.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/check/check_internal.h"
#include "core/repair/repair_internal.h"
#include "core/repair/repair_lost.h"

/* A run of blocks of an item, of which something else has some, too. */
struct claim {
	u64 addr;
	u32 len;
	bool has_csum;
	struct tree_key key;
	u64 block;		/* extents: file block */
	u64 birth;
};

/* What its checksum says of a block that two claim. */
struct seen {
	u64 addr;
	u64 claim;		/* its place in their order */
	u32 csum;
};

/* What a claim does not keep. */
struct loss {
	struct tree_key key;
	u64 block, addr;
	u32 count;
};

/* ---- who claims what ---- */

/* At first: blocks that are claimed twice. */
static int note_run(struct repair *repair, const struct tree_key *key, const void *data, u64 addr, u32 len)
{
	u64 at, run;
	int err = 0;
	bool in;

	for (at = 0; at < len && !err; at += run) {
		run = block_set_run(&repair->once, repair->vol, addr + at, len - at, &in);
		err = block_set_add(in ? &repair->twice : &repair->once, repair->vol, addr + at, run);
	}
	return err;
}

/* Then: by whom. */
static int claim_run(struct repair *repair, const struct tree_key *key, const void *data, u64 addr, u32 len)
{
	struct disk_extent extent;
	struct claim *claim;
	bool in;

	if (block_set_run(&repair->twice, repair->vol, addr, len, &in) == len && !in)
		return 0;
	claim = repair_add(&repair->claims, sizeof(*claim));
	if (!claim)
		return -ENOMEM;
	claim->addr = addr;
	claim->len = len;
	claim->key = *key;
	if (key->type != TUX3_ITEM_EXTENT)
		return 0;
	memcpy(&extent, data, sizeof(extent));
	claim->block = key->offset;
	claim->birth = le64_to_cpu(extent.birth);
	claim->has_csum = le32_to_cpu(extent.flags) & TUX3_EXTENT_CSUM;
	return 0;
}

struct claim_walk {
	struct repair *repair;
	bool second;
};

/* Nodes keep what is theirs. */
static int claim_node(struct repair *repair, u64 addr, bool second)
{
	if (!second)
		return note_run(repair, NULL, NULL, addr, 1);
	return block_set_has(&repair->twice, repair->vol, addr) ? block_set_add(&repair->taken, repair->vol, addr, 1) : 0;
}

static int claim_visit(void *ctx, const struct tree_visit *visit)
{
	struct claim_walk *walk = ctx;
	struct repair *repair = walk->repair;
	int err = 0;
	u32 i;

	if (!visit->data)
		return 0;
	if (!node_unplaced(visit->addr))
		err = claim_node(repair, visit->addr, walk->second);
	for (i = 0; !visit->level && i < node_count(visit->data) && !err; i++) {
		struct node_key packed = leaf_key(visit->data, i);
		struct tree_key key = node_key_unpack(&packed);

		err = repair_item_blocks(repair, &key, leaf_data(visit->data, i), leaf_len(visit->data, i), walk->second ?
					 claim_run : note_run);
	}
	return err;
}

/* ---- who keeps it ---- */

/* What was written last comes first. */
static int claim_order(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	int order;

	if (x->birth != y->birth)
		return x->birth > y->birth ? -1 : 1;
	order = tree_key_compare(&x->key, &y->key);
	return order ? order : x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int seen_order(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	return x->claim < y->claim ? -1 : x->claim > y->claim;
}

/* The checksums of a claim, of blocks that two claim and no node has. */
static int see_claim(struct repair *repair, const struct claim *claim, u64 n)
{
	const struct disk_extent *extent = (const void *)repair->item;
	int len = repair_get(repair, claim->key.ino, claim->key.type, claim->key.offset, repair->item);
	struct seen *seen;
	u32 i;

	if (len < (int)(sizeof(*extent) + claim->len * sizeof(__le32)))
		return min(len, 0);
	for (i = 0; i < claim->len; i++) {
		u64 addr = claim->addr + i;

		if (!block_set_has(&repair->twice, repair->vol, addr) || block_set_has(&repair->taken, repair->vol, addr))
			continue;
		seen = repair_add(&repair->seen, sizeof(*seen));
		if (!seen)
			return -ENOMEM;
		*seen = (struct seen){ .addr = addr, .claim = n, .csum = le32_to_cpu(extent->csum[i]) };
	}
	return 0;
}

/* Of these, the first one that each block agrees with keeps it; only those stay. */
static int see_all(struct repair *repair, u8 *block)
{
	struct volume *vol = repair->vol;
	const struct claim *claim = repair->claims.entries;
	struct seen *seen;
	u64 i, kept = 0;
	u32 crc = 0;
	bool found = false;
	int err = 0;

	repair->seen.count = 0;
	for (i = 0; i < repair->claims.count && !err; i++)
		if (claim[i].has_csum)
			err = see_claim(repair, &claim[i], i);
	seen = repair->seen.entries;
	if (!err && repair->seen.count)
		sort(seen, repair->seen.count, sizeof(*seen), seen_order, NULL);
	for (i = 0; i < repair->seen.count && !err; i++) {
		if (!i || seen[i].addr != seen[i - 1].addr) {
			found = device_read(vol->dev, seen[i].addr, 1, block);
			crc = found ? 0 : crc32c(~0, block, vol->block_size);
		}
		if (found || seen[i].csum != crc)
			continue;
		found = true;
		seen[kept++] = seen[i];
		err = block_set_add(&repair->taken, vol, seen[i].addr, 1);
	}
	repair->seen.count = kept;
	return err;
}

/* Is it the one that keeps this block by its checksum? */
static bool seen_has(const struct repair *repair, u64 addr, u64 claim)
{
	const struct seen *seen = repair->seen.entries;
	u64 low = 0, high = repair->seen.count;

	while (low < high) {
		u64 middle = low + (high - low) / 2;

		if (seen[middle].addr < addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low < repair->seen.count && seen[low].addr == addr && seen[low].claim == claim;
}

static int lose(struct repair *repair, const struct claim *claim, u64 at, u64 count)
{
	struct loss *loss = repair->losses.entries;

	if (repair->losses.count) {	/* blocks side by side go together */
		loss += repair->losses.count - 1;
		if (!tree_key_compare(&loss->key, &claim->key) && loss->addr + loss->count == claim->addr + at &&
		    loss->block + loss->count == claim->block + at) {
			loss->count += count;
			return 0;
		}
	}
	loss = repair_add(&repair->losses, sizeof(*loss));
	if (!loss)
		return -ENOMEM;
	*loss = (struct loss){ .key = claim->key, .block = claim->block + at, .addr = claim->addr + at, .count = count };
	return 0;
}

/* What is taken is lost to it, and the rest it takes. */
static int claim_settle(struct repair *repair, u64 n)
{
	const struct claim *claim = (const struct claim *)repair->claims.entries + n;
	u64 at, run;
	bool in;
	int err = 0;

	for (at = 0; at < claim->len && !err; at += run) {
		run = block_set_run(&repair->taken, repair->vol, claim->addr + at, claim->len - at, &in);
		if (!in) {
			err = block_set_add(&repair->taken, repair->vol, claim->addr + at, run);
			continue;
		}
		if (claim->has_csum)
			run = 1;
		if (!claim->has_csum || !seen_has(repair, claim->addr + at, n))
			err = lose(repair, claim, at, run);
	}
	return err;
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

/* These file blocks, as far as they are where it says. */
static int lose_run(struct repair *repair, const struct loss *loss)
{
	struct tree_key at = tree_key(loss->key.ino, TUX3_ITEM_EXTENT, loss->block);
	struct tree_key from = tree_key(loss->key.ino, TUX3_ITEM_EXTENT, 0), key;
	struct disk_extent *extent = (struct disk_extent *)repair->item;
	u32 skip, room = TUX3_ITEM_MAX(repair->vol->block_size), count;
	int err = tree_lookup_before(repair->vol, &at, &from, &key, extent, room);

	if (err < 0)
		return err == -ENOENT ? 0 : err;
	skip = loss->block - key.offset;
	if (skip >= le32_to_cpu(extent->len) || le64_to_cpu(extent->addr) + skip != loss->addr)
		return 0;
	count = min(loss->count, le32_to_cpu(extent->len) - skip);
	repair_note(repair, REPAIR_LOST, loss->key.ino,
		    "%u blocks of inode %llu from file block %llu on: they belong to something else",
		    count, (unsigned long long)loss->key.ino, (unsigned long long)loss->block);
	repair->unclaimed += count;
	err = repair_note_lost(repair, loss->key.ino, loss->block, count);
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

static int lose_xattr(struct repair *repair, const struct loss *loss)
{
	const struct tree_key *key = &loss->key;
	int len = repair_get(repair, key->ino, key->type, key->offset, repair->item);
	struct check_chain chain = { .data = repair->item, .len = max(len, 0) };
	const struct disk_xattr *entry;
	char text[300];
	u32 size;

	while (len > 0 && (entry = check_next_xattr(&chain))) {
		if (!piece_has(entry, loss->addr))
			continue;
		check_name_text(text, sizeof(text), entry->name, entry->len);
		repair_note(repair, REPAIR_LOST, key->ino,
			    "The extended attribute %s of inode %llu: its block %llu belongs to something else",
			    text, (unsigned long long)key->ino, (unsigned long long)loss->addr);
		size = chain.size;
		memmove(repair->item + chain.at, repair->item + chain.at + size, len - chain.at - size);
		len -= size;
		return len ? repair_set(repair, key->ino, key->type, key->offset, repair->item, len) :
			     repair_delete(repair, key->ino, key->type, key->offset);
	}
	return 0;
}

static int loss_order(const void *a, const void *b)
{
	const struct loss *x = a, *y = b;
	int order = tree_key_compare(&x->key, &y->key);

	if (order)
		return order;
	return x->block != y->block ? (x->block < y->block ? -1 : 1) : x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int judge(struct repair *repair, u8 *block)
{
	struct loss *loss;
	u64 i;
	int err;

	sort(repair->claims.entries, repair->claims.count, sizeof(struct claim), claim_order, NULL);
	err = see_all(repair, block);
	repair->losses.count = 0;
	for (i = 0; i < repair->claims.count && !err; i++)
		err = claim_settle(repair, i);
	loss = repair->losses.entries;
	if (!err && repair->losses.count)
		sort(loss, repair->losses.count, sizeof(*loss), loss_order, NULL);
	for (i = 0; i < repair->losses.count && !err; i++)
		err = loss[i].key.type == TUX3_ITEM_EXTENT ? lose_run(repair, &loss[i]) : lose_xattr(repair, &loss[i]);
	return err;
}

int repair_shared(struct repair *repair)
{
	struct claim_walk walk = { .repair = repair };
	struct block_set *sets[] = { &repair->once, &repair->twice, &repair->taken };
	u8 *block = kvmalloc(repair->vol->block_size, GFP_KERNEL);
	int err = block ? 0 : -ENOMEM;
	u32 i;

	repair->claims.count = 0;
	for (i = 0; i < ARRAY_SIZE(sets) && !err; i++)
		err = block_set_init(sets[i], repair->vol);
	if (!err)
		err = tree_walk(repair->vol, claim_visit, &walk);
	walk.second = true;
	if (!err)
		err = tree_walk(repair->vol, claim_visit, &walk);
	if (!err && repair->claims.count)
		err = judge(repair, block);
	for (i = 0; i < ARRAY_SIZE(sets); i++)
		block_set_exit(sets[i]);
	kvfree(block);
	return err;
}
