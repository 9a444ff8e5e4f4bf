/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The layout of a tree node: checking, searching and changing one block.
 *
 * No I/O, no locks, no state but the volume's geometry.  The changing functions rely on node_check()
 * having passed when the node came from disk and on the caller for room; what they leave passes again.
 * Bytes between the items and their data are anything in memory and zero on disk (node_seal).
 */
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

int tree_key_compare(const struct tree_key *a, const struct tree_key *b)
{
	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return 0;
}

struct tree_key tree_key_from_disk(const struct disk_key *disk)
{
	struct node_key key = node_key_load(disk);

	return node_key_unpack(&key);
}

void tree_key_to_disk(struct disk_key *disk, const struct tree_key *key)
{
	struct node_key packed = node_key_pack(key);

	node_key_store(disk, &packed);
}

/* ---- reading ---- */

/* Where the data of item pos ends: items lie one below the other. */
static u32 leaf_end(const struct disk_node *node, u32 block_size, u32 pos)
{
	return pos ? leaf_at(node, pos - 1) : block_size;
}

u32 node_used(const struct disk_node *node, u32 block_size)
{
	u32 count = node_count(node);

	if (node_level(node))
		return count * sizeof(struct disk_branch);
	return count * sizeof(struct disk_item) + block_size - le32_to_cpu(node->data_start);
}

struct node_key node_first_key(const struct disk_node *node)
{
	return node_level(node) ? inner_key(node, 0) : leaf_key(node, 0);
}

struct node_key node_last_key(const struct disk_node *node)
{
	u32 last = node_count(node) - 1;

	return node_level(node) ? inner_key(node, last) : leaf_key(node, last);
}

u32 leaf_find(const struct disk_node *node, const struct node_key *key, bool *found)
{
	u32 low = 0, high = node_count(node);

	*found = false;
	while (low < high) {
		u32 middle = (low + high) / 2;
		struct node_key here = leaf_key(node, middle);

		if (node_key_less(&here, key)) {
			low = middle + 1;
		} else {
			high = middle;
			if (node_key_equal(&here, key)) {
				*found = true;
				return middle;
			}
		}
	}
	return low;
}

u32 inner_find(const struct disk_node *node, const struct node_key *key)
{
	u32 low = 0, high = node_count(node);

	/* Branches up to low are not above key, those from high on are.  Branch 0 takes all that is lower. */
	while (high - low > 1) {
		u32 middle = (low + high) / 2;
		struct node_key here = inner_key(node, middle);

		if (node_key_less(key, &here))
			high = middle;
		else
			low = middle;
	}
	return low;
}

struct node_link inner_link(const struct disk_node *node, u32 pos)
{
	const struct disk_branch *branch = &inner_branches_const(node)[pos];

	return (struct node_link){
		.addr = le64_to_cpu(branch->addr),
		.birth = le64_to_cpu(branch->birth),
		.level = node_level(node) - 1,
	};
}

/* ---- checking ---- */

u32 node_checksum(const struct disk_node *node, u32 block_size)
{
	const u32 after = offsetof(struct disk_node, crc) + sizeof(node->crc);
	const __le32 zero = 0;
	u32 crc;

	crc = crc32c(~0u, node, offsetof(struct disk_node, crc));
	crc = crc32c(crc, &zero, sizeof(zero));
	return crc32c(crc, (const u8 *)node + after, block_size - after);
}

static bool item_in_order(const struct disk_item *first, const struct disk_item *item)
{
	struct node_key here = node_key_load(&item->key), before;

	if (item == first)
		return true;
	before = node_key_load(&item[-1].key);
	return node_key_less(&before, &here);
}

/* The item that is wrong, at most count; end: where its data should end.  Each node that is written comes through here. */
static u32 leaf_first_wrong(struct volume *vol, const struct disk_node *node, u32 count, u32 *end)
{
	const struct disk_item *first = leaf_items_const(node), *item = first, *stop = first + count;
	const u32 max = TUX3_ITEM_MAX(vol->block_size);
	u32 at = vol->block_size;
	u64 before = 0;

	for (; item < stop; item++) {
		u64 place = get_unaligned_le64(&item->at), len = place >> 16;	/* and spare, which is 0 */
		u64 high = le64_to_cpu(item->key.ino_type);

		if (unlikely(high <= before) && !item_in_order(first, item))
			break;
		before = high;
		at -= len;
		/* Data at 65536 is said to be at 0 (leaf_at). */
		if (unlikely(len > max || (u16)at != (u16)place)) {
			at += len;
			break;
		}
	}
	*end = at;
	return item - first;
}

static int leaf_check(struct volume *vol, const struct disk_node *node, char *why, size_t why_size)
{
	u32 count = node_count(node), start = le32_to_cpu(node->data_start), end, i;
	u32 items_end = sizeof(*node) + count * sizeof(struct disk_item);

	if (count > node_room(vol->block_size) / sizeof(struct disk_item) || start < items_end || start > vol->block_size) {
		snprintf(why, why_size, "%u items with data from byte %u on do not fit in it", count, start);
		return -EIO;
	}
	i = leaf_first_wrong(vol, node, count, &end);
	if (i < count) {
		if (!item_in_order(leaf_items_const(node), leaf_items_const(node) + i))
			snprintf(why, why_size, "item %u is not above the one before it", i);
		else
			snprintf(why, why_size, "item %u has its %u bytes at %u, not below %u", i, leaf_len(node, i),
				 leaf_at(node, i), end);
		return -EIO;
	}
	if (end != start) {
		snprintf(why, why_size, "its data begins at byte %u, not %u", end, start);
		return -EIO;
	}
	return 0;
}

static int inner_check(struct volume *vol, const struct disk_node *node, char *why, size_t why_size)
{
	const struct disk_branch *branch = inner_branches_const(node);
	u32 count = node_count(node), i;
	struct node_key key, before = { 0, 0 };

	if (!count || count > inner_max(vol->block_size) || node->data_start) {
		snprintf(why, why_size, "%u branches, data from byte %u on", count,
			 le32_to_cpu(node->data_start));
		return -EIO;
	}
	for (i = 0; i < count; i++, branch++) {
		u64 addr = le64_to_cpu(branch->addr);

		key = node_key_load(&branch->key);
		if (i && !node_key_less(&before, &key)) {
			snprintf(why, why_size, "branch %u is not above the one before it", i);
			return -EIO;
		}
		before = key;
		if (addr >= vol->total_blocks || balloc_is_fixed(vol, addr) || !branch->birth) {
			snprintf(why, why_size, "branch %u leads to block %llu born in delta %llu", i,
				 addr, le64_to_cpu(branch->birth));
			return -EIO;
		}
	}
	return 0;
}

/* The bytes that belong to no item or branch; of a leaf they lie before the data of its items. */
static void node_unused(struct volume *vol, const struct disk_node *node, u32 *from, u32 *to)
{
	bool leaf = !node_level(node);

	*from = sizeof(*node) + node_count(node) * (leaf ? sizeof(struct disk_item) : sizeof(struct disk_branch));
	*to = leaf ? le32_to_cpu(node->data_start) : vol->block_size;
}

static int seal_check(struct volume *vol, const struct disk_node *node, char *why, size_t why_size)
{
	u32 crc;

	if (le32_to_cpu(node->magic) != TUX3_NODE_MAGIC) {
		snprintf(why, why_size, "it is not a tree node (magic %08x)", le32_to_cpu(node->magic));
		return -EIO;
	}
	crc = node_checksum(node, vol->block_size);
	if (le32_to_cpu(node->crc) != crc) {
		snprintf(why, why_size, "checksum %08x, expected %08x", crc, le32_to_cpu(node->crc));
		return -EIO;
	}
	return 0;
}

static int header_check(struct volume *vol, const struct disk_node *node, u64 addr, u64 birth, int level,
			char *why, size_t why_size)
{
	if (le64_to_cpu(node->volume_id) != vol->id) {
		snprintf(why, why_size, "it belongs to volume %016llx", le64_to_cpu(node->volume_id));
		return -EIO;
	}
	if (le64_to_cpu(node->addr) != addr) {
		snprintf(why, why_size, "it was written for block %llu", le64_to_cpu(node->addr));
		return -EIO;
	}
	if (birth && le64_to_cpu(node->birth) != birth) {
		snprintf(why, why_size, "born in delta %llu, expected %llu", le64_to_cpu(node->birth), birth);
		return -EIO;
	}
	if (node_level(node) > TUX3_MAX_LEVEL || (level >= 0 && node_level(node) != (u32)level)) {
		snprintf(why, why_size, "its level is %u", node_level(node));
		return -EIO;
	}
	if (memchr_inv(node->spare, 0, sizeof(node->spare))) {
		snprintf(why, why_size, "spare bytes in its header are not zero");
		return -EIO;
	}
	return 0;
}

/* All but magic, checksum, and that unused bytes are zero. */
static int node_check_unsealed(struct volume *vol, const struct disk_node *node, u64 addr, u64 birth, int level, char *why,
			       size_t why_size)
{
	int err = header_check(vol, node, addr, birth, level, why, why_size);

	if (err)
		return err;
	return node_level(node) ? inner_check(vol, node, why, why_size) : leaf_check(vol, node, why, why_size);
}

/* Item types are not judged here: a later version may add some as a compatible feature. */
int node_check(struct volume *vol, const void *data, u64 addr, u64 birth, int level,
	       char *why, size_t why_size)
{
	const struct disk_node *node = data;
	int err = seal_check(vol, node, why, why_size);
	u32 from, to;

	if (!err)
		err = node_check_unsealed(vol, node, addr, birth, level, why, why_size);
	if (err)
		return err;
	node_unused(vol, node, &from, &to);
	if (memchr_inv((const u8 *)node + from, 0, to - from)) {
		snprintf(why, why_size, "its unused bytes are not zero");
		return -EIO;
	}
	return 0;
}

/* Bytes that are anything in memory.  A node whose header cannot be true keeps them. */
static void node_clear_unused(struct volume *vol, struct disk_node *node)
{
	u32 from, to;

	node_unused(vol, node, &from, &to);
	if (from < to && to <= vol->block_size)
		memset((u8 *)node + from, 0, to - from);
}

void node_seal(struct volume *vol, void *data)
{
	struct disk_node *node = data;

	node_clear_unused(vol, node);
	node->crc = cpu_to_le32(node_checksum(node, vol->block_size));
}

int node_seal_checked(struct volume *vol, const struct node_buffer *buffer)
{
	struct disk_node *node = buffer->data;
	char why[NODE_WHY_MAX] = "it is not a tree node";
	int err = -EIO;

	node_clear_unused(vol, node);
	if (le32_to_cpu(node->magic) == TUX3_NODE_MAGIC)
		err = node_check_unsealed(vol, node, buffer->addr, buffer->birth, buffer->level, why, sizeof(why));
	if (err)
		volume_warn(vol, "the tree node for block %llu is not as it must be: %s; it is not written",
			    (unsigned long long)buffer->addr, why);
	else
		node->crc = cpu_to_le32(node_checksum(node, vol->block_size));
	return err;
}

void node_set_addr(void *data, u64 addr)
{
	struct disk_node *node = data;

	node->addr = cpu_to_le64(addr);
}

void node_init(struct volume *vol, void *data, u64 addr, u64 birth, u32 level)
{
	struct disk_node *node = data;

	memset(node, 0, sizeof(*node));
	node->magic = cpu_to_le32(TUX3_NODE_MAGIC);
	node->volume_id = cpu_to_le64(vol->id);
	node->addr = cpu_to_le64(addr);
	node->birth = cpu_to_le64(birth);
	node->level = cpu_to_le16(level);
	node->data_start = cpu_to_le32(level ? 0 : vol->block_size);
}

/* ---- changing a leaf ---- */

static void node_set_count(struct disk_node *node, u32 count)
{
	node->count = cpu_to_le16(count);
}

static void item_shift(struct disk_item *item, int down)
{
	item->at = cpu_to_le16((u16)(le16_to_cpu(item->at) - down));	/* 0 stands for 65536 (leaf_at) and so needs no care */
}

/* Note that the data of these items was moved down by this many bytes (up, if negative).  Each edit comes through here. */
static void leaf_shift_items(struct disk_node *node, u32 from, u32 to, int down)
{
	struct disk_item *item = leaf_items(node) + from, *end = leaf_items(node) + to;

	for (; end - item >= 4; item += 4) {
		item_shift(item, down);
		item_shift(item + 1, down);
		item_shift(item + 2, down);
		item_shift(item + 3, down);
	}
	for (; item < end; item++)
		item_shift(item, down);
}

/* Move the data of all items from pos on, which makes or closes a gap above it. */
static void leaf_shift_data(struct disk_node *node, u32 block_size, u32 pos, int down)
{
	u32 start = le32_to_cpu(node->data_start);

	if (!down)
		return;
	memmove((u8 *)node + start - down, (u8 *)node + start, leaf_end(node, block_size, pos) - start);
	leaf_shift_items(node, pos, node_count(node), down);
	node->data_start = cpu_to_le32(start - down);
}

void leaf_insert(struct disk_node *node, u32 block_size, u32 pos, const struct node_key *key,
		 const void *data, u32 len)
{
	struct disk_item *items = leaf_items(node);
	u32 count = node_count(node), at = leaf_end(node, block_size, pos) - len;

	leaf_shift_data(node, block_size, pos, len);
	memmove(items + pos + 1, items + pos, (count - pos) * sizeof(*items));
	node_key_store(&items[pos].key, key);
	items[pos].at = cpu_to_le16((u16)at);
	items[pos].len = cpu_to_le16(len);
	items[pos].spare = 0;
	if (len)
		memcpy((u8 *)node + at, data, len);
	node_set_count(node, count + 1);
}

void leaf_replace(struct disk_node *node, u32 block_size, u32 pos, const void *data, u32 len)
{
	struct disk_item *item = &leaf_items(node)[pos];
	u32 at = leaf_end(node, block_size, pos) - len;

	leaf_shift_data(node, block_size, pos + 1, (int)len - (int)leaf_len(node, pos));
	item->at = cpu_to_le16((u16)at);
	item->len = cpu_to_le16(len);
	if (len)
		memcpy((u8 *)node + at, data, len);
}

void leaf_delete(struct disk_node *node, u32 block_size, u32 from, u32 to)
{
	struct disk_item *items = leaf_items(node);
	u32 count = node_count(node);
	u32 bytes = leaf_end(node, block_size, from) - leaf_at(node, to - 1);

	leaf_shift_data(node, block_size, to, -(int)bytes);
	memmove(items + from, items + to, (count - to) * sizeof(*items));
	node_set_count(node, count - (to - from));
}

/* ---- changing an inner node ---- */

void inner_set_child(struct disk_node *node, u32 pos, const struct node_buffer *child)
{
	struct disk_branch *branch = &inner_branches(node)[pos];

	branch->addr = cpu_to_le64(child->addr);
	branch->birth = cpu_to_le64(child->birth);
}

void inner_insert(struct disk_node *node, u32 pos, const struct node_key *key,
		  const struct node_buffer *child)
{
	struct disk_branch *branches = inner_branches(node);
	u32 count = node_count(node);

	memmove(branches + pos + 1, branches + pos, (count - pos) * sizeof(*branches));
	node_key_store(&branches[pos].key, key);
	inner_set_child(node, pos, child);
	node_set_count(node, count + 1);
}

void inner_delete(struct disk_node *node, u32 pos)
{
	struct disk_branch *branches = inner_branches(node);
	u32 count = node_count(node);

	memmove(branches + pos, branches + pos + 1, (count - pos - 1) * sizeof(*branches));
	node_set_count(node, count - 1);
}

/* ---- changing either ---- */

static void leaf_copy_data(struct disk_node *to, u32 to_start, const struct disk_node *from, u32 from_start,
			   u32 bytes)
{
	memcpy((u8 *)to + to_start, (const u8 *)from + from_start, bytes);
}

void node_copy(struct disk_node *to, const struct disk_node *from, u32 block_size)
{
	u32 count = node_count(from), start = le32_to_cpu(from->data_start);

	if (node_level(from)) {
		memcpy(inner_branches(to), inner_branches_const(from), count * sizeof(struct disk_branch));
	} else {
		memcpy(leaf_items(to), leaf_items_const(from), count * sizeof(struct disk_item));
		leaf_copy_data(to, start, from, start, block_size - start);
	}
	to->count = from->count;
	to->data_start = from->data_start;
}

void node_move_tail(struct disk_node *node, struct disk_node *right, u32 block_size, u32 pos)
{
	u32 moved = node_count(node) - pos;

	if (node_level(node)) {
		memcpy(inner_branches(right), inner_branches(node) + pos, moved * sizeof(struct disk_branch));
	} else {
		u32 end = leaf_end(node, block_size, pos), start = le32_to_cpu(node->data_start);

		memcpy(leaf_items(right), leaf_items(node) + pos, moved * sizeof(struct disk_item));
		leaf_copy_data(right, block_size - (end - start), node, start, end - start);
		leaf_shift_items(right, 0, moved, (int)end - (int)block_size);
		right->data_start = cpu_to_le32(block_size - (end - start));
		node->data_start = cpu_to_le32(end);
	}
	node_set_count(right, moved);
	node_set_count(node, pos);
}

void node_append(struct disk_node *node, const struct disk_node *right, u32 block_size)
{
	u32 count = node_count(node), more = node_count(right);

	if (node_level(node)) {
		memcpy(inner_branches(node) + count, inner_branches_const(right),
		       more * sizeof(struct disk_branch));
	} else {
		u32 start = le32_to_cpu(node->data_start), from = le32_to_cpu(right->data_start);
		u32 bytes = block_size - from;

		memcpy(leaf_items(node) + count, leaf_items_const(right), more * sizeof(struct disk_item));
		leaf_copy_data(node, start - bytes, right, from, bytes);
		leaf_shift_items(node, count, count + more, block_size - start);
		node->data_start = cpu_to_le32(start - bytes);
	}
	node_set_count(node, count + more);
}

void node_prepend(struct disk_node *node, const struct disk_node *left, u32 block_size)
{
	u32 count = node_count(node), more = node_count(left);

	if (node_level(node)) {
		memmove(inner_branches(node) + more, inner_branches(node), count * sizeof(struct disk_branch));
		memcpy(inner_branches(node), inner_branches_const(left), more * sizeof(struct disk_branch));
	} else {
		u32 from = le32_to_cpu(left->data_start);

		leaf_shift_data(node, block_size, 0, block_size - from);
		memmove(leaf_items(node) + more, leaf_items(node), count * sizeof(struct disk_item));
		memcpy(leaf_items(node), leaf_items_const(left), more * sizeof(struct disk_item));
		leaf_copy_data(node, from, left, from, block_size - from);
	}
	node_set_count(node, count + more);
}
