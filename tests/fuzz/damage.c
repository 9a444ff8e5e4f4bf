/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Damaging a volume: see damage.h.
 *
 * Blocks are wiped, take what they had earlier, or that of others; fields of metadata, branches and free maps are changed under
 * right checksums; and items are forged through the tree, so that nothing but their meaning is wrong.
 *
 * One kind is left out, as it is known not to be mended: preallocated extents that are forged to claim nearly all free blocks.
 * They cannot be told from true ones, so repair keeps them, and nothing can be written any more.  Here they claim PREALLOC_MAX
 * at most.
 */
#include <string.h>
#include <sys/stat.h>

#include "damage.h"
#include "support_fuzz.h"
#include "core/format/name_hash.h"
#include "core/tree/tree_internal.h"
#include "tests/unit/support_image.h"

#define ITEMS_MAX	200000u
#define PREALLOC_MAX	3u

struct damage {
	struct trial *trial;
	u32 *used, used_count;		/* blocks that are not zero */
	u32 *meta, meta_count;		/* of these, metadata */
	struct volume *vol;		/* while items are forged */
	struct tree_key *items;
	u32 item_count;
};

static void scan_blocks(struct damage *damage)
{
	struct trial *trial = damage->trial;
	u64 i;

	damage->used_count = damage->meta_count = 0;
	for (i = 0; i < trial->blocks; i++) {
		const u8 *block = trial_block(trial, i);

		if (!memchr_inv(block, 0, trial->block_size))
			continue;
		damage->used[damage->used_count++] = i;
		if (block_is_meta(block))
			damage->meta[damage->meta_count++] = i;
	}
}

/* ---- choosing ---- */

static u64 any_used(struct damage *damage)
{
	return damage->used[below(damage->trial, damage->used_count)];
}

static u64 any_meta(struct damage *damage)
{
	return damage->meta[below(damage->trial, damage->meta_count)];
}

static u64 any_block(struct damage *damage)
{
	return one_in(damage->trial, 4) ? any_used(damage) : any_meta(damage);
}

/* A block of this kind where there is one: there are few of some. */
static u64 block_of(struct damage *damage, u32 magic)
{
	u32 start = below(damage->trial, damage->meta_count), i;

	for (i = 0; i < damage->meta_count; i++) {
		u64 block = damage->meta[(start + i) % damage->meta_count];

		if (get_unaligned_le32(trial_block(damage->trial, block)) == magic)
			return block;
	}
	return damage->meta[start];
}

/* What programs trip over, and what could be meant. */
static u64 any_value(struct damage *damage)
{
	static const u64 edges[] = {
		0, 1, 2, 3, 15, 16, 17, 63, 64, 255, 4095, 4096, 4097, 65535, 65536, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32,
		1ull << 52, 1ull << 55, 1ull << 56, (1ull << 56) - 1, S64_MAX, 1ull << 62, 1ull << 63, U64_MAX - 1, U64_MAX,
	};
	struct trial *trial = damage->trial;

	switch (below(trial, 5)) {
	case 0:
		return edges[below(trial, ARRAY_SIZE(edges))];
	case 1:
		return any_used(damage);
	case 2:
		return trial->blocks - 2 + below(trial, 4);
	case 3:
		return 1 + below(trial, 200);
	default:
		return bed_random(&trial->random) >> below(trial, 64);
	}
}

/* Somewhere in these bytes a number of 1, 2, 4 or 8 bytes is another one. */
static void change_field(struct damage *damage, u8 *bytes, u32 len, u32 at)
{
	u32 size = 1u << below(damage->trial, 4);

	put_value(bytes + at, any_value(damage), min(size, len - at));
}

/* ---- blocks ---- */

static void seal(struct damage *damage, void *block)
{
	block_seal(block, damage->trial->block_size, below(damage->trial, 8));
}

static void damage_bytes(struct damage *damage)
{
	struct trial *trial = damage->trial;
	u64 block = any_block(damage);
	u8 *at = trial_block(trial, block);
	u32 kind = below(trial, 5), size = trial->block_size, i;

	trial_say(trial, "damage: block %llu, kind %u\n", (unsigned long long)block, kind);
	switch (kind) {
	case 0:
		memset(at, 0, size);
		break;
	case 1:
		for (i = 0; i < size; i += 8)
			put_unaligned_le64(bed_random(&trial->random), at + i);
		break;
	case 2:
		memset(at + size / 2, 0, size / 2);
		break;
	case 3:		/* a sector is older */
		i = below(trial, size / 512) * 512;
		memcpy(at + i, trial->stage[below(trial, STAGES)] + block * size + i, 512);
		break;
	default:
		at[below(trial, size)] ^= 1 << below(trial, 8);
	}
}

static void make_older(struct damage *damage, const u8 *stage, u64 block, u64 count)
{
	struct trial *trial = damage->trial;

	memcpy(trial_block(trial, block), stage + block * trial->block_size, count * trial->block_size);
}

/* One block, some of all, or a region is as it was. */
static void damage_stale(struct damage *damage)
{
	struct trial *trial = damage->trial;
	const u8 *stage = trial->stage[below(trial, STAGES)];
	u32 kind = below(trial, 4), part = 2 + below(trial, 30), i;
	u64 block = kind < 2 ? any_block(damage) : below(trial, trial->blocks);

	trial_say(trial, "damage: older, block %llu, kind %u\n", (unsigned long long)block, kind);
	if (kind < 2) {
		make_older(damage, stage, block, 1);
	} else if (kind == 2) {
		for (i = 0; i < damage->used_count; i++)
			if (one_in(trial, part))
				make_older(damage, stage, damage->used[i], 1);
	} else {
		make_older(damage, stage, block, min_t(u64, trial->blocks - block, 1 + below(trial, trial->blocks / 3)));
	}
}

/* Sometimes it says that it belongs there. */
static void put_elsewhere(struct damage *damage, u64 addr, const u8 *bytes, bool own_addr)
{
	struct trial *trial = damage->trial;
	u8 *block = trial_block(trial, addr);

	memcpy(block, bytes, trial->block_size);
	if (!own_addr || !block_is_meta(block) || get_unaligned_le64(block) == TUX3_ANCHOR_MAGIC)
		return;
	put_unaligned_le64(addr, block + offsetof(struct disk_node, addr));	/* and so in each of the others */
	seal(damage, block);
}

static void damage_swapped(struct damage *damage)
{
	struct trial *trial = damage->trial;
	u64 first = any_block(damage), second = any_block(damage);
	u8 *both = malloc(2 * trial->block_size);
	bool own_addr = one_in(trial, 2);

	assert_non_null(both);
	trial_say(trial, "damage: blocks %llu and %llu\n", (unsigned long long)first, (unsigned long long)second);
	memcpy(both, trial_block(trial, first), trial->block_size);
	memcpy(both + trial->block_size, trial_block(trial, second), trial->block_size);
	put_elsewhere(damage, first, both + trial->block_size, own_addr);
	if (below(trial, 3))
		put_elsewhere(damage, second, both, own_addr);
	free(both);
}

/* In the first bytes most fields are that matter. */
static void damage_field(struct damage *damage)
{
	static const u32 kinds[] = {
		TUX3_NODE_MAGIC, TUX3_NODE_MAGIC, TUX3_NODE_MAGIC, TUX3_NODE_MAGIC, TUX3_LOG_MAGIC, TUX3_MAP_MAGIC,
		TUX3_INTENT_MAGIC,
	};
	struct trial *trial = damage->trial;
	u64 addr = block_of(damage, kinds[below(trial, ARRAY_SIZE(kinds))]);
	u8 *block = trial_block(trial, addr);
	u32 at = below(trial, one_in(trial, 2) ? 256 : trial->block_size);

	trial_say(trial, "damage: block %llu, a field at %u\n", (unsigned long long)addr, at);
	if (one_in(trial, 3))
		block[at] ^= 1 << below(trial, 8);
	else
		change_field(damage, block, trial->block_size, at & ~3u);
	seal(damage, block);
}

static struct disk_node *any_inner(struct damage *damage)
{
	u32 i;

	for (i = 0; i < 50; i++) {
		struct disk_node *node = (void *)trial_block(damage->trial, block_of(damage, TUX3_NODE_MAGIC));

		if (le32_to_cpu(node->magic) == TUX3_NODE_MAGIC && node_level(node) && node_count(node) &&
		    node_count(node) <= inner_max(damage->trial->block_size))
			return node;
	}
	return NULL;
}

static void lead_to(struct disk_branch *branch, __le64 addr, __le64 birth)
{
	branch->addr = addr;
	branch->birth = birth;
}

/* An inner node leads elsewhere. */
static void damage_branch(struct damage *damage)
{
	struct trial *trial = damage->trial;
	struct disk_node *node = any_inner(damage);
	u32 count = node ? node_count(node) : 0, kind = below(trial, 5);
	struct disk_branch *one, *other, was;
	u64 addr;

	if (!node)
		return;
	trial_say(trial, "damage: branches of block %llu, kind %u\n", (unsigned long long)le64_to_cpu(node->addr), kind);
	one = inner_branches(node) + below(trial, count);
	other = inner_branches(node) + below(trial, count);
	was = *one;
	switch (kind) {
	case 0:
		lead_to(one, other->addr, other->birth);
		lead_to(other, was.addr, was.birth);
		break;
	case 1:
		lead_to(one, other->addr, other->birth);
		break;
	case 2:
		addr = block_of(damage, TUX3_NODE_MAGIC);
		lead_to(one, cpu_to_le64(addr), ((struct disk_node *)trial_block(trial, addr))->birth);
		break;
	case 3:
		if (count == 1)
			return;
		node->count = cpu_to_le16(count - 1);
		memset(inner_branches(node) + count - 1, 0, sizeof(*one));
		break;
	default:
		one->key.offset = cpu_to_le64(any_value(damage));
	}
	seal(damage, node);
}

static void damage_map(struct damage *damage)
{
	struct trial *trial = damage->trial;
	struct disk_map *map = (void *)trial_block(trial, block_of(damage, TUX3_MAP_MAGIC));
	u32 size = trial->block_size - sizeof(*map), kind = below(trial, 4), clear = 0, i;

	if (le32_to_cpu(map->magic) != TUX3_MAP_MAGIC)
		return;
	trial_say(trial, "damage: map of block %llu, kind %u\n", (unsigned long long)le64_to_cpu(map->addr), kind);
	if (kind == 0)
		memset(map->bits, 0xff, size);
	if (kind == 1)
		memset(map->bits, 0, size);
	for (i = 0; kind == 2 && i < 200; i++)
		map->bits[below(trial, min_t(u64, (trial->blocks + 7) / 8, size))] ^= 1 << below(trial, 8);
	for (i = 0; i < size * 8; i++)
		clear += !(map->bits[i / 8] >> i % 8 & 1);
	map->free = cpu_to_le32(clear);
	if (kind == 3)
		map->delta = cpu_to_le64(one_in(trial, 2) ? le64_to_cpu(map->delta) + 1 : any_value(damage));
	seal(damage, map);
}

/* ---- items ---- */

static u8 item_data[65536] __aligned(8);	/* of the item at hand */

static int note_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct damage *damage = ctx;

	if (damage->item_count == ITEMS_MAX)
		return 1;
	damage->items[damage->item_count++] = *key;
	return 0;
}

/* Of this type where there is one; 0: of any. */
static struct tree_key any_item(struct damage *damage, u8 type)
{
	u32 start = below(damage->trial, damage->item_count), i;

	for (i = 0; type && i < damage->item_count; i++) {
		struct tree_key *key = &damage->items[(start + i) % damage->item_count];

		if (key->type == type)
			return *key;
	}
	return damage->items[start];
}

static u64 any_inode(struct damage *damage)
{
	static const u64 others[] = { 0, 1, TUX3_INO_ROOT, TUX3_INO_ROOT, 3, 15, TUX3_INO_FIRST, TUX3_INO_MAX, TUX3_INO_MAX - 1 };

	if (one_in(damage->trial, 5))
		return others[below(damage->trial, ARRAY_SIZE(others))];
	return any_item(damage, TUX3_ITEM_ATTR).ino;
}

static u64 any_directory(struct damage *damage)
{
	struct disk_attr attr;
	u32 i;

	for (i = 0; i < 30; i++) {
		u64 ino = any_item(damage, TUX3_ITEM_ATTR).ino;
		struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);

		if (tree_edit_lookup(damage->vol, &key, &attr, sizeof(attr)) == sizeof(attr) && S_ISDIR(le32_to_cpu(attr.mode)))
			return ino;
	}
	return TUX3_INO_ROOT;
}

/* Into item_data; its length, 0 if there is none. */
static u32 take_item(struct damage *damage, const struct tree_key *key)
{
	int len = tree_edit_lookup(damage->vol, key, item_data, sizeof(item_data));

	return max(len, 0);
}

/* Behind what has the same hash. */
static void add_to_chain(struct damage *damage, const struct tree_key *key, const void *head, u32 head_len, const char *name)
{
	u32 at = take_item(damage, key), len = at + head_len + strlen(name);

	if (len > TUX3_ITEM_MAX(damage->trial->block_size))
		return;
	memcpy(item_data + at, head, head_len);
	memcpy(item_data + at + head_len, name, strlen(name));
	tree_set(damage->vol, key, item_data, len);
}

static void add_entry(struct damage *damage, u64 dir, u64 ino, u32 type, const char *name)
{
	struct disk_dirent entry = { .ino = cpu_to_le64(ino), .type = type, .len = strlen(name) };
	u64 hash = name_hash(damage->vol, dir, TUX3_ITEM_DIRENT, name, strlen(name));
	struct tree_key key = tree_key(dir, TUX3_ITEM_DIRENT, hash);

	add_to_chain(damage, &key, &entry, sizeof(entry), name);
}

static void add_parent(struct damage *damage, u64 dir, u64 ino, const char *name)
{
	struct disk_parent parent = { .dir = cpu_to_le64(dir), .len = strlen(name) };
	u64 hash = name_hash(damage->vol, dir, TUX3_ITEM_PARENT, name, strlen(name));
	struct tree_key key = tree_key(ino, TUX3_ITEM_PARENT, hash);

	add_to_chain(damage, &key, &parent, sizeof(parent), name);
}

/* Each of these: an item is forged. */

static void forge_key(struct damage *damage)
{
	struct trial *trial = damage->trial;
	struct tree_key key = any_item(damage, below(trial, 3) ? 0 : 1 + below(trial, 6));
	u32 len = take_item(damage, &key);

	switch (below(trial, 3)) {
	case 0:
		key.ino = any_inode(damage);
		break;
	case 1:
		key.offset = any_value(damage);
		break;
	default:
		key.type = below(trial, 256);
	}
	if (key.ino)
		tree_set(damage->vol, &key, item_data, len);
}

static void forge_contents(struct damage *damage)
{
	struct trial *trial = damage->trial;
	struct tree_key key = any_item(damage, below(trial, 3) ? 0 : 1 + below(trial, 6));
	u32 len = take_item(damage, &key);

	if (!len)
		return;
	if (one_in(trial, 2))
		len = below(trial, len + 1);
	else
		change_field(damage, item_data, len, below(trial, len));
	tree_set(damage->vol, &key, item_data, len);
}

/* Two directories that are each other's parents, or one that has another's name, too. */
static void forge_loop(struct damage *damage)
{
	u64 one = any_directory(damage), other = any_directory(damage);
	struct trial *trial = damage->trial;
	char name[40];

	snprintf(name, sizeof(name), "loop %u", below(trial, 5));
	add_entry(damage, one, other, S_IFDIR >> 12, name);
	if (below(trial, 4))
		add_parent(damage, one, other, name);
	if (one_in(trial, 2))
		return;
	add_entry(damage, other, one, S_IFDIR >> 12, name);
	if (below(trial, 4))
		add_parent(damage, other, one, name);
}

/* An entry, a parent pointer, or both. */
static void forge_name(struct damage *damage)
{
	struct trial *trial = damage->trial;
	u64 dir = one_in(trial, 6) ? any_inode(damage) : any_directory(damage), ino = any_inode(damage);
	u32 which = 1 + below(trial, 3), type = below(trial, 3) ? S_IFREG >> 12 : below(trial, 16);
	char name[40];

	switch (below(trial, 4)) {
	case 0:		/* where repair puts what has none */
		strcpy(name, "lost+found");
		dir = TUX3_INO_ROOT;
		break;
	case 1:
		snprintf(name, sizeof(name), "#%u", below(trial, 100));
		break;
	default:
		snprintf(name, sizeof(name), "other %u", below(trial, 50));
	}
	if (which & 1)
		add_entry(damage, dir, ino, type, name);
	if (which & 2)
		add_parent(damage, dir, ino, name);
}

/* It claims what others have, or is where others are. */
static void forge_extent(struct damage *damage)
{
	struct tree_key key = any_item(damage, TUX3_ITEM_EXTENT);
	struct disk_extent *extent = (void *)item_data;
	struct trial *trial = damage->trial;
	u32 len = take_item(damage, &key);

	if (key.type != TUX3_ITEM_EXTENT || len < sizeof(*extent))
		return;
	if (below(trial, 3))
		key.ino = any_inode(damage);
	if (one_in(trial, 2))
		extent->addr = cpu_to_le64(one_in(trial, 2) ? any_meta(damage) : any_used(damage));
	if (one_in(trial, 3))
		extent->birth = cpu_to_le64(below(trial, 1000));
	if (one_in(trial, 3)) {
		extent->flags = cpu_to_le32(TUX3_EXTENT_UNWRITTEN);
		extent->len = cpu_to_le32(1 + below(trial, PREALLOC_MAX));
		len = sizeof(*extent);
	}
	key.offset = one_in(trial, 2) ? below(trial, 200) : key.offset + below(trial, 10);
	tree_set(damage->vol, &key, item_data, len);
}

static void forge_orphan(struct damage *damage)
{
	struct trial *trial = damage->trial;
	struct disk_orphan orphan = {
		.kind = cpu_to_le32(below(trial, 4)), .block = cpu_to_le64(one_in(trial, 2) ? 0 : any_value(damage)),
	};
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, any_inode(damage));

	tree_set(damage->vol, &key, &orphan, sizeof(orphan));
}

/* Mostly one that means something. */
static u32 any_flag(struct trial *trial)
{
	static const u32 flags[] = { TUX3_ATTR_XATTRS, TUX3_ATTR_PREALLOC, TUX3_ATTR_INLINE, TUX3_ATTR_IMMUTABLE };

	return one_in(trial, 3) ? 1u << below(trial, 14) : flags[below(trial, ARRAY_SIZE(flags))];
}

static void forge_attr(struct damage *damage)
{
	static const u32 modes[] = { S_IFREG, S_IFDIR, S_IFLNK, S_IFCHR, S_IFIFO, 0, 0xf000 };
	struct tree_key key = tree_key(any_inode(damage), TUX3_ITEM_ATTR, 0);
	struct disk_attr *attr = (void *)item_data;
	struct trial *trial = damage->trial;

	if (take_item(damage, &key) != sizeof(*attr))
		return;
	switch (below(trial, 8)) {
	case 0:
		attr->mode = cpu_to_le32(modes[below(trial, ARRAY_SIZE(modes))] | 0755);
		break;
	case 1:
		attr->nlink = cpu_to_le32(one_in(trial, 2) ? 0 : any_value(damage));
		break;
	case 2:
		attr->size = cpu_to_le64(any_value(damage));
		break;
	case 3:
		attr->blocks = cpu_to_le64(any_value(damage));
		break;
	case 4:
		attr->flags ^= cpu_to_le32(any_flag(trial));
		break;
	case 5:
		attr->uid = cpu_to_le32(any_value(damage));
		attr->projid = cpu_to_le32(any_value(damage));
		break;
	case 6:
		attr->change = cpu_to_le64(any_value(damage));
		break;
	default:
		attr->atime_nsec = cpu_to_le32(any_value(damage));
		attr->ctime_sec = cpu_to_le64(any_value(damage));
	}
	tree_set(damage->vol, &key, attr, sizeof(*attr));
}

static void forge_quota(struct damage *damage)
{
	struct trial *trial = damage->trial;
	u64 id = one_in(trial, 2) ? any_value(damage) : below(trial, 5);
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER + below(trial, 3), id);
	u32 i;

	for (i = 0; i < sizeof(struct disk_quota); i += 8)
		put_unaligned_le64(any_value(damage), item_data + i);
	tree_set(damage->vol, &key, item_data, sizeof(struct disk_quota));
}

/* Some in a row, or most of a type. */
static void delete_items(struct damage *damage)
{
	struct trial *trial = damage->trial;
	u32 count = one_in(trial, 3) ? 1 : 1 + below(trial, 40), start = below(trial, damage->item_count), i;
	u8 type = one_in(trial, 4) ? 1 + below(trial, 6) : 0;

	for (i = 0; i < (type ? damage->item_count : count); i++) {
		struct tree_key *key = &damage->items[(start + i) % damage->item_count];

		if (!type || (key->type == type && below(trial, 4)))
			tree_delete(damage->vol, key);
	}
}

static const struct {
	const char *name;
	void (*forge)(struct damage *damage);
} forgeries[] = {
	{ "key", forge_key }, { "key", forge_key }, { "key", forge_key }, { "contents", forge_contents },
	{ "contents", forge_contents }, { "loop", forge_loop }, { "name", forge_name }, { "name", forge_name }, { "name", forge_name },
	{ "extent", forge_extent }, { "extent", forge_extent },
	{ "orphan", forge_orphan }, { "attributes", forge_attr }, { "attributes", forge_attr }, { "attributes", forge_attr },
	{ "attributes", forge_attr }, { "quota", forge_quota }, { "fewer items", delete_items }, { "fewer items", delete_items },
};

static void damage_items(struct damage *damage)
{
	struct tree_key from = tree_key(0, 0, 0), to = tree_key(TUX3_INO_MAX, 0xff, U64_MAX);
	struct trial *trial = damage->trial;
	u32 count = 1 + below(trial, one_in(trial, 4) ? 60 : 6);

	damage->vol = image_edit_damaged(trial->bed.dev);
	if (!damage->vol)
		return;
	damage->item_count = 0;
	tree_edit_scan(damage->vol, &from, &to, note_item, damage);
	while (damage->item_count && count--) {
		u32 kind = below(trial, ARRAY_SIZE(forgeries));

		trial_say(trial, "damage: items, %s\n", forgeries[kind].name);
		forgeries[kind].forge(damage);
	}
	image_edit_end(damage->vol);
	scan_blocks(damage);
}

/* ---- the whole ---- */

static void *array_of(u64 count, size_t size)
{
	void *array = calloc(count, size);

	assert_non_null(array);
	return array;
}

void damage_volume(struct trial *trial)
{
	static void (*const kinds[])(struct damage *damage) = {
		damage_bytes, damage_bytes, damage_stale, damage_swapped, damage_field, damage_field, damage_branch, damage_map,
		damage_items, damage_items,
	};
	struct damage damage = { .trial = trial };
	u32 count = 1 + below(trial, 4);

	damage.used = array_of(trial->blocks, sizeof(u32));
	damage.meta = array_of(trial->blocks, sizeof(u32));
	damage.items = array_of(ITEMS_MAX, sizeof(*damage.items));
	scan_blocks(&damage);
	if (one_in(trial, 2))
		damage_items(&damage);
	while (count-- && damage.meta_count)
		kinds[below(trial, ARRAY_SIZE(kinds))](&damage);
	free(damage.used);
	free(damage.meta);
	free(damage.items);
}
