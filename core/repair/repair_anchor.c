/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: a volume of which no anchor is left.
 *
 * The device is searched for tree nodes.  Each names its volume and its own block, so they tell the block size too; what most of
 * them agree on is the volume.  Its size is that of the device, and what its items have tells which features it has.  The key
 * of the name hashes is gone: there is a new one, and each name goes to where it belongs by that, as one that was in the
 * wrong place would.
 * The root is unknown, so all leaves are searched for, as of any other part of the tree (repair_tree.c).  The log is lost.
 */
#include "core/device/device.h"
#include "core/format/anchor.h"
#include "core/format/format.h"
#include "core/tree/tree_internal.h"
#include "core/repair/repair_internal.h"

#define STEP		(1u << TUX3_MIN_BLOCK_SHIFT)
#define SEARCH_BYTES	(1u << 20)
#define VOLUMES_MAX	32u

struct found {
	u64 id, delta, nodes;
	u32 shift;
	bool csum, quota;
};

struct search {
	struct tux3_device *dev;
	u8 *data, *node;
	struct found found[VOLUMES_MAX];
	u32 count;
};

static struct found *found_volume(struct search *search, u64 id, u32 shift)
{
	u32 i;

	for (i = 0; i < search->count; i++)
		if (search->found[i].id == id && search->found[i].shift == shift)
			return &search->found[i];
	if (i == VOLUMES_MAX)
		return NULL;
	search->count++;
	search->found[i] = (struct found){ .id = id, .shift = shift };
	return &search->found[i];
}

/* What its items tell of the volume.  The node has its checksum, but nobody has looked at what is in it. */
static void found_leaf(struct found *found, const struct disk_node *leaf, u32 size)
{
	u32 count = min_t(u32, node_count(leaf), node_room(size) / sizeof(struct disk_item)), i;
	struct disk_extent extent;

	for (i = 0; i < count && node_level(leaf) == 0; i++) {
		struct node_key packed = leaf_key(leaf, i);
		u8 type = node_key_unpack(&packed).type;

		found->quota |= type >= TUX3_ITEM_QUOTA_USER && type <= TUX3_ITEM_QUOTA_PROJECT;
		if (type != TUX3_ITEM_EXTENT || leaf_at(leaf, i) + sizeof(extent) > size)
			continue;
		memcpy(&extent, leaf_data(leaf, i), sizeof(extent));
		found->csum |= le32_to_cpu(extent.flags) & TUX3_EXTENT_CSUM;
	}
}

static void search_node(struct search *search, u64 offset, const struct disk_node *head)
{
	u64 addr = le64_to_cpu(head->addr);
	struct found *found;
	u32 shift, size;

	for (shift = TUX3_MIN_BLOCK_SHIFT; shift <= TUX3_MAX_BLOCK_SHIFT; shift++)
		if (addr && addr <= U64_MAX >> shift && addr << shift == offset)
			break;
	size = 1u << shift;
	if (shift > TUX3_MAX_BLOCK_SHIFT || offset + size > search->dev->size_bytes ||
	    device_read(search->dev, offset / STEP, size / STEP, search->node))
		return;
	head = (const struct disk_node *)search->node;
	if (node_checksum(head, size) != le32_to_cpu(head->crc))
		return;
	found = found_volume(search, le64_to_cpu(head->volume_id), shift);
	if (!found)
		return;
	found->nodes++;
	if (le64_to_cpu(head->birth) < TUX3_COUNT_MAX)
		found->delta = max(found->delta, le64_to_cpu(head->birth));
	found_leaf(found, head, size);
}

/* A free map that is newer than any node would not count. */
static void search_map(struct search *search, const struct disk_map *map)
{
	u32 i;

	for (i = 0; i < search->count; i++)
		if (search->found[i].id == le64_to_cpu(map->volume_id) && le64_to_cpu(map->delta) < TUX3_COUNT_MAX)
			search->found[i].delta = max(search->found[i].delta, le64_to_cpu(map->delta));
}

static void search_part(struct search *search, u64 offset, u32 bytes, bool maps)
{
	bool whole = !device_read(search->dev, offset / STEP, bytes / STEP, search->data);
	u32 at;

	for (at = 0; at < bytes; at += STEP) {
		const void *block = search->data + (whole ? at : 0);

		if (!whole && device_read(search->dev, (offset + at) / STEP, 1, search->data))
			continue;
		if (!maps && le32_to_cpu(((const struct disk_node *)block)->magic) == TUX3_NODE_MAGIC)
			search_node(search, offset + at, block);
		else if (maps && le32_to_cpu(((const struct disk_map *)block)->magic) == TUX3_MAP_MAGIC)
			search_map(search, block);
	}
}

static void fill_anchor(struct search *search, const struct found *found, struct disk_anchor *anchor)
{
	u64 bytes = round_down(search->dev->size_bytes, (u64)TUX3_ANCHOR_STRIDE);
	struct timespec64 now;

	ktime_get_real_ts64(&now);
	memset(anchor, 0, sizeof(*anchor));
	anchor->magic = cpu_to_le64(TUX3_ANCHOR_MAGIC);
	anchor->version = cpu_to_le32(TUX3_FORMAT_VERSION);
	anchor->volume_id = cpu_to_le64(found->id);
	anchor->generation = cpu_to_le64(1);
	get_random_bytes(anchor->uuid, sizeof(anchor->uuid));
	anchor->uuid[6] = (anchor->uuid[6] & 0x0f) | 0x40;	/* RFC 4122: version 4, random */
	anchor->uuid[8] = (anchor->uuid[8] & 0x3f) | 0x80;
	get_random_bytes(anchor->hash_seed, sizeof(anchor->hash_seed));
	anchor->feature_ro_compat = cpu_to_le64(found->quota ? TUX3_FEATURE_RO_COMPAT_QUOTA : 0);
	anchor->feature_incompat = cpu_to_le64(found->csum ? TUX3_FEATURE_INCOMPAT_DATA_CSUM : 0);
	anchor->block_shift = cpu_to_le32(found->shift);
	anchor->group_blocks = cpu_to_le32(((1u << found->shift) - sizeof(struct disk_map)) * 8);
	anchor->total_blocks = cpu_to_le64(bytes >> found->shift);
	anchor->created_ns = anchor->written_ns = cpu_to_le64(now.tv_sec * 1000000000ULL + now.tv_nsec);
	anchor->delta = cpu_to_le64(found->delta);
}

int repair_search(struct volume_mend *mend, struct tux3_device *dev, struct disk_anchor *anchor, char *why, size_t why_size)
{
	struct repair *repair = container_of(mend, struct repair, mend);
	u64 bytes = round_down(dev->size_bytes, (u64)STEP), offset;
	struct search search = { .dev = dev };
	const struct found *best = search.found;
	int err = -ENOMEM;
	u32 i, pass;

	search.data = kvmalloc(SEARCH_BYTES, GFP_KERNEL);
	search.node = kvmalloc(1u << TUX3_MAX_BLOCK_SHIFT, GFP_KERNEL);
	if (!search.data || !search.node)
		goto out;
	for (pass = 0; pass < 2; pass++) {
		for (offset = 0; offset < bytes; offset += SEARCH_BYTES) {
			if (repair->opts->progress)
				repair->opts->progress(repair->opts->ctx, CHECK_TREE, offset + pass * bytes, 2 * bytes);
			search_part(&search, offset, min_t(u64, SEARCH_BYTES, bytes - offset), pass);
		}
	}
	for (i = 0; i < search.count; i++)
		if (search.found[i].nodes > best->nodes)
			best = &search.found[i];
	err = 0;
	if (!search.count || bytes < TUX3_MIN_VOLUME_BYTES) {
		snprintf(why, why_size, "there is no anchor, and no tree node was found on the device, either");
		err = -EINVAL;
		goto out;
	}
	fill_anchor(&search, best, anchor);
	repair->changes++;
	repair_note(repair, REPAIR_LOST, 0,
		    "All anchors: %llu nodes were found of a volume with blocks of %u bytes; its label, its UUID and its log",
		    (unsigned long long)best->nodes, 1u << best->shift);
out:
	kvfree(search.data);
	kvfree(search.node);
	return err;
}
