/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Damaged images: whatever a volume holds, opening, reading, checking and changing it gives an error at
 * worst, and comes to an end.
 *
 * A few small good volumes are the seeds.  Each run changes some bytes of the metadata of one, mostly makes
 * the checksums right again, and then does to it what users do.  Built with sanitizers:
 *
 *	gcc|clang ... -fsanitize=address,undefined		a program of its own (main below)
 *	clang ... -DTUX3_LIBFUZZER -fsanitize=fuzzer,address,undefined	a libFuzzer target
 *
 * The program runs in a child, which its parent watches: a run that kills the child or does not end is
 * reported with the command that repeats it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support_fuzz.h"
#include "tests/unit/support_image.h"
#include "core/show/show.h"
#include "core/tree/tree_internal.h"
#include "core/format/anchor.h"
#include "core/format/name_hash.h"
#include "core/log/apply.h"
#include "core/log/replay.h"
#include "core/open.h"
#include "core/repair/repair.h"
#include "user/lib/internal.h"
#include "user/env/clock.h"
#include "user/env/device_memory.h"
#include "user/env/log.h"

#define BLOCK		4096u
#define BLOCKS		(IMAGE_BYTES / BLOCK)
#define BASES		5u
#define WITH_INTENTS	4u	/* this one */
#define INPUT_MAX	512u	/* bytes that decide about one run */
#define HANG_SECONDS	30u
#define NODES_MAX	60u	/* looked at in a walk through the directories */
#define DEPTH_MAX	6u

/* ---- the seeds ---- */

struct base {
	u8 *bytes;
	u32 used[BLOCKS], used_count;		/* blocks that are not zero */
	u32 meta[BLOCKS], meta_count;		/* of these, metadata */
	struct image_inodes ino;
	siphash_key_t hash_key;
};

static struct base bases[BASES];
static siphash_key_t hash_key;		/* of the one at hand */

static void base_scan(struct base *base)
{
	u32 i;

	for (i = 0; i < BLOCKS; i++) {
		const u8 *block = base->bytes + (size_t)i * BLOCK;

		if (!memchr_inv(block, 0, BLOCK))
			continue;
		base->used[base->used_count++] = i;
		if (block_is_meta(block))
			base->meta[base->meta_count++] = i;
	}
}

/* So many files that the tree has several leaves. */
static int add_files(struct image *image)
{
	struct volume_options opts = { .manual = true };
	struct tux3_node *node;
	struct tux3 *tux3;
	char why[256], name[100];
	int err = tux3_open_device(image->dev, false, &opts, 1 << 20, &tux3, why, sizeof(why)), i, closed;

	if (err)
		return err;
	for (i = 0; i < 40 && !err; i++) {
		snprintf(name, sizeof(name), "/two/a file with a longer name, number %d", i);
		err = tux3_path(tux3, NULL, name, TUX3_CREATE, 0600, &node);
		if (err)
			break;
		if (tux3_write(node, name, sizeof(name), i % 10 * 100) < 0)
			err = -EIO;
		tux3_node_put(node, 1);
	}
	closed = tux3_close(tux3);
	return err ? err : closed;
}

/* Changes that stay in the log: the volume is left as a crash leaves it. */
static int leave_log(struct image *image)
{
	struct volume_options opts = { .manual = true };
	struct tux3 *tux3;
	struct tux3_node *node = NULL;
	char why[256], name[40];
	int err = tux3_open_device(image->dev, false, &opts, 1 << 20, &tux3, why, sizeof(why)), i;

	for (i = 0; i < 5 && !err; i++) {
		snprintf(name, sizeof(name), "/dir/sub/new%d", i);
		err = tux3_path(tux3, NULL, name, TUX3_CREATE, 0600, &node);
		if (err)
			return err;
		if (tux3_write(node, name, sizeof(name), i * 5000) < 0)
			err = -EIO;
		if (!err)
			err = tux3_setxattr(node, NULL, "user.log", name, sizeof(name), 0);
		tux3_node_put(node, 1);
		if (!err && i == 2)
			err = tux3_path_unlink(tux3, NULL, "/one");
		if (!err && i == 3)
			err = tux3_path_rename(tux3, NULL, "/big", "/two/big", 0);
		if (!err)
			err = tux3_sync(tux3);
	}
	if (!err)
		tux3_abandon(tux3);
	return err;
}

static int sync_file(struct tux3 *tux3, const char *name, u32 len, bool anew, const char *xattr)
{
	struct tux3_node *node;
	u8 bytes[3 * BLOCK] = { len };
	int err = tux3_path(tux3, NULL, name, TUX3_CREATE, 0600, &node);

	if (err)
		return err;
	if (anew)
		err = tux3_truncate(node, 0);
	if (!err && tux3_write(node, bytes, len, 0) < 0)
		err = -EIO;
	if (!err && xattr)
		err = tux3_setxattr(node, NULL, xattr, bytes, 1 + len % 200, 0);
	if (!err)
		err = tux3_fsync(node, false);
	tux3_node_put(node, 1);
	return err;
}

/* A file is moved away and made anew, another one gets another name, and a third loses it. */
static int sync_names(struct tux3 *tux3)
{
	struct tux3_node *dir;
	int err = tux3_path_rename(tux3, NULL, "/one", "/dir/was one", 0);

	if (!err)
		err = sync_file(tux3, "/one", 5, false, NULL);
	if (!err)
		err = tux3_path_rename(tux3, NULL, "/dir/first", "/dir/new", 0);
	if (!err)
		err = tux3_path(tux3, NULL, "/dir", 0, 0, &dir);
	if (!err) {
		err = tux3_fsync(dir, false);
		tux3_node_put(dir, 1);
	}
	return err;
}

/* Fsyncs that went ahead of their delta, with all that an intent can say. */
static int leave_intents(struct image *image)
{
	struct volume_options opts = { .manual = true, .fsync = TUX3_FSYNC_AHEAD };
	struct tux3 *tux3;
	char why[256];
	int err = tux3_open_device(image->dev, false, &opts, 1 << 20, &tux3, why, sizeof(why));

	if (!err)
		err = sync_file(tux3, "/dir/first", 1, false, NULL);
	if (!err)
		err = sync_file(tux3, "/big", 3 * BLOCK, true, "user.intent");
	if (!err)
		err = sync_file(tux3, "/dir/new", 3 * BLOCK, false, "security.label");
	if (!err)
		err = sync_file(tux3, "/dir/new", 2 * BLOCK, true, NULL);
	if (!err)
		err = sync_file(tux3, "/one", 10, true, "user.one");
	if (!err)
		err = sync_names(tux3);
	if (!err && delta_counter(tux3_core(tux3), TUX3_COUNT_FSYNCS_AHEAD) != 6)
		err = -EPROTO;
	if (!err)
		tux3_abandon(tux3);
	return err;
}

static int bases_build(void)
{
	const struct disk_anchor *anchor;
	struct image image;
	unsigned int i;
	int err = 0;

	for (i = 0; i < BASES && !err; i++) {
		env_set_random_seed(i + 1);
		err = image_build(&image, i & 1);
		if (!err)
			err = add_files(&image);
		if (!err && i & 2)
			err = leave_log(&image);
		if (!err && i == WITH_INTENTS)
			err = leave_intents(&image);
		if (err)
			break;
		bases[i].ino = image.ino;
		bases[i].bytes = malloc(IMAGE_BYTES);
		if (!bases[i].bytes)
			return -ENOMEM;
		memcpy(bases[i].bytes, device_memory_bytes(image.dev), IMAGE_BYTES);
		base_scan(&bases[i]);
		anchor = (const void *)(bases[i].bytes + anchor_slot_offset(IMAGE_BYTES, 0));
		bases[i].hash_key.key[0] = get_unaligned_le64(anchor->hash_seed);
		bases[i].hash_key.key[1] = get_unaligned_le64(anchor->hash_seed + 8);
		image_close(&image);
	}
	return err;
}

/* ---- the input: numbers until it is used up ---- */

struct input {
	const u8 *data;
	size_t size, at;
};

static bool input_left(const struct input *input)
{
	return input->at < input->size;
}

static u32 input_take(struct input *input, u32 bytes)
{
	u32 value = 0;

	while (bytes-- && input_left(input))
		value = value << 8 | input->data[input->at++];
	return value;
}

static u64 input_number(struct input *input, u32 limit)
{
	return limit ? input_take(input, 2) % limit : 0;
}

/* Values that programs trip over. */
static u64 input_value(struct input *input, const struct base *base)
{
	static const u64 edges[] = {
		0, 1, 2, 3, 15, 16, 17, 63, 64, 255, 256, 257, 4032, 4095, 4096, 4097, 65535, 65536, 0x7fffffff,
		0x80000000, 0xffffffff, 1ull << 32, 1ull << 52, 1ull << 56, (1ull << 56) - 1, S64_MAX, 1ull << 63,
		U64_MAX - 1, U64_MAX, BLOCKS - 1, BLOCKS, BLOCKS + 1,
	};
	u32 kind = input_take(input, 1);

	if (kind < 96)
		return edges[input_number(input, ARRAY_SIZE(edges))];
	if (kind < 128)
		return ((const u64 *)&base->ino)[input_number(input, sizeof(base->ino) / sizeof(u64))];
	if (kind < 192)
		return base->used[input_number(input, base->used_count)];
	return input_take(input, 4);
}

/* ---- changing an image ---- */

/* A field of an item's head or data, or of the header. */
static void mutate_leaf(struct input *input, const struct base *base, u8 *block)
{
	struct disk_node *node = (void *)block;
	u32 count = le16_to_cpu(node->count), size = 1u << input_number(input, 4), at;

	if (!count || count > 100 || node->level) {
		at = input_number(input, 256);
	} else {
		struct disk_item *item = (struct disk_item *)(node + 1) + input_number(input, count);
		u32 data = le16_to_cpu(item->at), len = le16_to_cpu(item->len);

		if (input_take(input, 1) & 1 || data >= BLOCK)
			at = (u8 *)item - block + input_number(input, sizeof(*item));
		else
			at = data + input_number(input, len ? len : 1);
	}
	if (at + size <= BLOCK)
		put_value(block + at, input_value(input, base), size);
}

/*
 * Names, parent pointers and mappings that are whole, but lead elsewhere: circles, a directory with two names, blocks with
 * two owners.  The number or address is the first field of what these items hold.
 */
static void mutate_link(struct input *input, const struct base *base, u8 *block)
{
	struct disk_node *node = (void *)block;
	u32 count = le16_to_cpu(node->count), start = input_number(input, 100), i;

	if (le32_to_cpu(node->magic) != TUX3_NODE_MAGIC || node->level || count > 100)
		return;
	for (i = 0; i < count; i++) {
		struct disk_item *item = (struct disk_item *)(node + 1) + (start + i) % count;
		u32 type = le64_to_cpu(item->key.ino_type) & 0xff, at = le16_to_cpu(item->at);

		if (at + 8 > BLOCK || (type != TUX3_ITEM_PARENT && type != TUX3_ITEM_DIRENT && type != TUX3_ITEM_EXTENT &&
				       type != TUX3_ITEM_ORPHAN))
			continue;
		put_value(block + at, input_value(input, base), type == TUX3_ITEM_ORPHAN ? 4 : 8);
		return;
	}
}

/* A field of a record, or its head. */
static void mutate_record(struct input *input, const struct base *base, u8 *block)
{
	struct disk_log *log = (void *)block;
	u32 skip = input_number(input, 40), at = sizeof(*log) + sizeof(struct disk_commit), size, len;
	u32 end = sizeof(*log) + le32_to_cpu(log->used);

	if (le32_to_cpu(log->magic) != TUX3_LOG_MAGIC || log->index || end > BLOCK)
		return;
	for (;;) {
		len = at + sizeof(struct disk_record) <= end ? get_unaligned_le32(block + at + 4) : 0;
		size = sizeof(struct disk_record) + round_up(len, 8);
		if (!skip-- || !len || len > BLOCK || at + size + sizeof(struct disk_record) > end)
			break;
		at += size;
	}
	if (!len || len > BLOCK || at + size > end)
		return;
	switch (input_take(input, 1) % 8) {
	case 0:
		put_value(block + at, 1 + input_number(input, 14), 2);
		break;
	case 1:
		put_value(block + at + 4, input_value(input, base), 4);
		break;
	default:
		at += sizeof(struct disk_record) + (input_number(input, len) & (input_take(input, 1) & 1 ? ~7u : ~0u));
		put_value(block + at, input_value(input, base), at + 8 > end ? 1 : 8);
	}
}

/* Where the log goes on, and how long its commits are. */
static void mutate_log(struct input *input, const struct base *base, u8 *block)
{
	static const struct { u16 at, size; } fields[] = {
		{ offsetof(struct disk_log, seq), 8 }, { offsetof(struct disk_log, delta), 8 },
		{ offsetof(struct disk_log, next), 8 }, { offsetof(struct disk_log, index), 4 },
		{ offsetof(struct disk_log, blocks), 4 }, { offsetof(struct disk_log, used), 4 },
		{ offsetof(struct disk_log, after), 8 }, { offsetof(struct disk_log, skip), 4 },
	};
	u32 i = input_number(input, ARRAY_SIZE(fields));

	if (get_unaligned_le32(block) == TUX3_LOG_MAGIC)
		put_value(block + fields[i].at, input_value(input, base), fields[i].size);
}

/* A field of a batch or of an intent, or what follows it. */
static void mutate_intent(struct input *input, const struct base *base, u8 *block)
{
	u32 skip = input_number(input, 4), used = get_unaligned_le32(block + offsetof(struct disk_intents, used)), at, size;
	u32 end = sizeof(struct disk_intents) + used, begin = sizeof(struct disk_intents);

	if (get_unaligned_le32(block) != TUX3_INTENT_MAGIC || used > BLOCK - sizeof(struct disk_intents))
		return;
	if (get_unaligned_le32(block + offsetof(struct disk_intents, data_blocks)) & TUX3_INTENTS_FAR)
		begin += sizeof(__le64);
	for (at = begin; at + sizeof(struct disk_intent) <= end; at += size) {
		size = round_up(get_unaligned_le32(block + at + offsetof(struct disk_intent, len)), 8);
		if (!skip-- || !size || size > end - at - sizeof(struct disk_intent))
			break;
	}
	switch (input_take(input, 1) % 4) {
	case 0:		/* of the batch */
		at = input_number(input, begin) & ~3u;
		break;
	case 1:		/* of the intent, but for the attributes */
		at += input_number(input, offsetof(struct disk_intent, attr)) & ~3u;
		break;
	default:
		at += input_number(input, end - at) & (input_take(input, 1) & 1 ? ~7u : ~0u);
	}
	size = 1u << input_number(input, 4);
	if (at + size <= BLOCK)
		put_value(block + at, input_value(input, base), size);
}

static void mutate_bytes(struct input *input, const struct base *base, u8 *block)
{
	u32 at = input_number(input, BLOCK), len = input_number(input, 64), to = input_number(input, BLOCK);

	switch (input_take(input, 1) % 4) {
	case 0:
		block[at] ^= 1 << input_number(input, 8);
		break;
	case 1:
		block[at] = input_take(input, 1);
		break;
	case 2:
		if (at + len <= BLOCK && to + len <= BLOCK)
			memmove(block + to, block + at, len);
		break;
	case 3:
		at &= ~7u;
		put_value(block + at, input_value(input, base), 8);
		break;
	}
}

/* In the header, where most fields are that matter. */
static void mutate_header(struct input *input, const struct base *base, u8 *block)
{
	u32 at = input_number(input, 300) & ~3u, size = input_take(input, 1) & 1 ? 8 : 4;

	put_value(block + at, input_value(input, base), size);
}

static void reseal(struct input *input, u8 *block)
{
	block_seal(block, BLOCK, get_unaligned_le32(block) == TUX3_LOG_MAGIC && input_take(input, 1) & 7);
}

/* The same field of all anchors: else a good copy counts. */
static void mutate_anchors(struct input *input, const struct base *base, u8 *bytes)
{
	u32 at = input_number(input, offsetof(struct disk_anchor, spare)) & ~3u, size = at % 8 ? 4 : 8, slot;
	u64 value = input_value(input, base);

	for (slot = 0; slot < TUX3_ANCHOR_SLOTS; slot++) {
		u8 *anchor = bytes + anchor_slot_offset(IMAGE_BYTES, slot);

		if (get_unaligned_le64(anchor) != TUX3_ANCHOR_MAGIC || at < offsetof(struct disk_anchor, version))
			continue;
		put_value(anchor + at, value, size);
		anchor_seal((void *)anchor);
	}
}

/* A block of this kind where there is one: there are few. */
static u32 choose_block(struct input *input, const struct base *base, const u8 *bytes, u32 magic)
{
	u32 start = input_number(input, base->meta_count), i;

	for (i = 0; i < base->meta_count; i++) {
		u32 block = base->meta[(start + i) % base->meta_count];

		if (get_unaligned_le32(bytes + (size_t)block * BLOCK) == magic)
			return block;
	}
	return base->meta[start];
}

static void mutate_items(struct input *input, const struct base *base, u8 *block);

static void mutate(struct input *input, const struct base *base, u8 *bytes)
{
	static void (*const kinds[])(struct input *input, const struct base *base, u8 *block) = {
		mutate_leaf, mutate_leaf, mutate_leaf, mutate_header, mutate_bytes, mutate_link, mutate_link, mutate_record,
		mutate_record, mutate_log, mutate_intent, mutate_intent, mutate_items, mutate_items, mutate_items, mutate_items,
	};
	u32 kind = input_take(input, 1) % (ARRAY_SIZE(kinds) + 1), block;
	u8 *at;

	if (kind == ARRAY_SIZE(kinds)) {
		mutate_anchors(input, base, bytes);
		return;
	}
	if (kinds[kind] == mutate_record || kinds[kind] == mutate_log)
		block = choose_block(input, base, bytes, TUX3_LOG_MAGIC);
	else if (kinds[kind] == mutate_items)
		block = choose_block(input, base, bytes, TUX3_NODE_MAGIC);
	else if (kinds[kind] == mutate_intent)
		block = choose_block(input, base, bytes, TUX3_INTENT_MAGIC);
	else
		block = base->meta[input_number(input, base->meta_count)];
	at = bytes + (size_t)block * BLOCK;
	kinds[kind](input, base, at);
	if (input_take(input, 1) % 16)
		reseal(input, at);
}

/* ---- forging: items that nothing but their meaning is wrong with ---- */

#define ITEMS_MAX	120u

struct forged {
	struct tree_key key;
	u32 len;
	u8 data[TUX3_ITEM_MAX(BLOCK)] __attribute__((aligned(8)));
};

/* A leaf, taken apart. */
static struct forged items[ITEMS_MAX];

static u32 leaf_take(const u8 *block)
{
	const struct disk_node *node = (const void *)block;
	u32 count = le16_to_cpu(node->count), i;

	if (le32_to_cpu(node->magic) != TUX3_NODE_MAGIC || node->level || count > ITEMS_MAX - 1)
		return 0;
	for (i = 0; i < count; i++) {
		const struct disk_item *item = (const struct disk_item *)(node + 1) + i;
		u32 at = le16_to_cpu(item->at), len = le16_to_cpu(item->len);

		if (len > sizeof(items[i].data) || at + len > BLOCK)
			return 0;
		items[i].key = tree_key_from_disk(&item->key);
		items[i].len = len;
		memcpy(items[i].data, block + at, len);
	}
	return count;
}

static int items_order(const void *a, const void *b)
{
	return tree_key_compare(&((const struct forged *)a)->key, &((const struct forged *)b)->key);
}

/* In the order of their keys, each once, as far as there is room. */
static void leaf_put(u8 *block, u32 count)
{
	struct disk_node *node = (void *)block;
	struct disk_item *item = (void *)(node + 1);
	u32 end = BLOCK, done = 0, i;

	qsort(items, count, sizeof(items[0]), items_order);
	memset(item, 0, BLOCK - sizeof(*node));
	for (i = 0; i < count; i++) {
		if (done && i && !items_order(&items[i - 1], &items[i]))
			continue;
		if (sizeof(*node) + (done + 1) * sizeof(*item) + items[i].len > end)
			break;
		end -= items[i].len;
		memcpy(block + end, items[i].data, items[i].len);
		tree_key_to_disk(&item[done].key, &items[i].key);
		item[done].at = cpu_to_le16(end);
		item[done++].len = cpu_to_le16(items[i].len);
	}
	node->count = cpu_to_le16(done);
	node->data_start = cpu_to_le32(end);
}

static u64 forge_inode(struct input *input, const struct base *base)
{
	static const u64 others[] = { 0, 1, 2, 3, 15, TUX3_INO_MAX, TUX3_INO_MAX - 1 };
	u32 which = input_take(input, 1);

	return which < 40 ? others[which % ARRAY_SIZE(others)] :
	       which < 60 ? 16 + which : ((const u64 *)&base->ino)[which % (sizeof(base->ino) / sizeof(u64))];
}

/* The name of an entry, and where it belongs; sometimes elsewhere. */
static u32 forge_name(struct input *input, struct forged *item, u64 number, u8 *name)
{
	static const char *const names[] = { "a", "one", "big", "dir", "lost+found", "user.one", "user.large", "#17", ".", "a/b", "zz" };
	const char *text = names[input_take(input, 1) % ARRAY_SIZE(names)];
	static struct volume vol;

	memcpy(name, text, strlen(text));
	vol.hash_key = hash_key;
	item->key.offset = name_hash(&vol, number, item->key.type, text, strlen(text));
	if (!(input_take(input, 1) % 16))
		item->key.offset += 1;
	return strlen(text);
}

static void forge_chain(struct input *input, const struct base *base, struct forged *item)
{
	u64 other = forge_inode(input, base);
	u32 head = item->key.type == TUX3_ITEM_PARENT ? sizeof(struct disk_parent) : sizeof(struct disk_dirent), len;

	len = forge_name(input, item, item->key.type == TUX3_ITEM_PARENT ? other : item->key.ino, item->data + head);
	item->len = head + len;
	if (item->key.type == TUX3_ITEM_XATTR) {
		struct disk_xattr *xattr = (void *)item->data;
		u32 pieces = input_take(input, 1) % 4, bytes = pieces ? input_number(input, 20000) : input_take(input, 1) % 64;

		xattr->len = len;
		xattr->pieces = pieces;
		put_unaligned_le32(bytes, &xattr->value_len);
		memset(xattr->name + len, 'v', 64);
		put_unaligned_le32(crc32c(~0u, xattr->name + len, bytes), &xattr->value_crc);
		item->len += pieces ? pieces * sizeof(struct disk_xattr_piece) : bytes;
		while (pieces--) {
			put_value(xattr->name + len + 12 * pieces, base->used[input_number(input, base->used_count)], 8);
			put_value(xattr->name + len + 12 * pieces + 8, 1 + input_take(input, 1) % 4, 4);
		}
		return;
	}
	put_value(item->data, other, 8);
	item->data[head - 1] = len;
	if (item->key.type == TUX3_ITEM_DIRENT)
		item->data[8] = input_take(input, 1) & 1 ? S_IFDIR >> 12 : S_IFREG >> 12;
}

static void forge_extent(struct input *input, const struct base *base, struct forged *item)
{
	static const u32 lens[] = { 1, 2, 3, 16, 64, 256, 1000, TUX3_EXTENT_MAX };
	struct disk_extent *extent = (void *)item->data;
	u32 len = lens[input_take(input, 1) % ARRAY_SIZE(lens)], flags = input_take(input, 1) % 10;

	extent->addr = cpu_to_le64(base->used[input_number(input, base->used_count)] + input_take(input, 1) % 3);
	extent->birth = cpu_to_le64(input_take(input, 1) % 8);
	extent->len = cpu_to_le32(len);
	extent->flags = cpu_to_le32(flags < 4 ? TUX3_EXTENT_CSUM : flags < 8 ? TUX3_EXTENT_UNWRITTEN : flags - 7);
	item->len = sizeof(*extent);
	if (extent->flags & cpu_to_le32(TUX3_EXTENT_CSUM) && len <= TUX3_EXTENT_CSUM_MAX(BLOCK))
		item->len += len * sizeof(__le32);
}

static void forge_attr(struct input *input, const struct base *base, struct forged *item, u32 count)
{
	static const u32 modes[] = { S_IFREG, S_IFDIR, S_IFLNK, S_IFCHR, S_IFSOCK };
	struct disk_attr *attr = (void *)item->data;
	u32 i, start = input_take(input, 1);

	for (i = 0; i < count && items[(start + i) % count].key.type != TUX3_ITEM_ATTR; i++)
		;
	*attr = (struct disk_attr){ .mode = cpu_to_le32(modes[start % ARRAY_SIZE(modes)] | 0644), .nlink = cpu_to_le32(1) };
	if (i < count && start & 1)
		memcpy(attr, items[(start + i) % count].data, sizeof(*attr));
	item->len = sizeof(*attr);
	item->key.offset = 0;
	switch (input_take(input, 1) % 6) {
	case 0:
		attr->nlink = cpu_to_le32(input_take(input, 1) % 4);
		break;
	case 1:
		attr->size = cpu_to_le64(input_value(input, base));
		break;
	case 2:
		attr->flags ^= cpu_to_le32(1u << input_take(input, 1) % 13);
		break;
	case 3:
		attr->blocks = cpu_to_le64(input_value(input, base));
		break;
	}
}

/* One item more, or another in place of one. */
static void mutate_items(struct input *input, const struct base *base, u8 *block)
{
	static const u8 types[] = {
		TUX3_ITEM_ATTR, TUX3_ITEM_PARENT, TUX3_ITEM_INLINE, TUX3_ITEM_XATTR, TUX3_ITEM_DIRENT, TUX3_ITEM_EXTENT,
		TUX3_ITEM_EXTENT, TUX3_ITEM_QUOTA_USER, TUX3_ITEM_ORPHAN, TUX3_ITEM_ORPHAN,
	};
	u32 count = leaf_take(block), which = count ? input_number(input, count) : 0;
	struct forged *item = &items[count];

	if (!count)
		return;
	memset(item, 0, sizeof(*item));
	item->key.type = types[input_take(input, 1) % ARRAY_SIZE(types)];
	item->key.ino = item->key.type >= TUX3_ITEM_QUOTA_USER ? TUX3_INO_VOLUME :
			input_take(input, 1) & 1 ? items[which].key.ino : forge_inode(input, base);
	switch (item->key.type) {
	case TUX3_ITEM_ATTR:
		forge_attr(input, base, item, count);
		break;
	case TUX3_ITEM_INLINE:
		item->len = input_number(input, sizeof(item->data));
		item->key.offset = input_take(input, 1) % 4 ? 0 : input_take(input, 1) * 256;
		memset(item->data, 't', item->len);
		break;
	case TUX3_ITEM_EXTENT:
		item->key.offset = input_take(input, 1) % 8 ? input_take(input, 1) % 24 : input_value(input, base);
		forge_extent(input, base, item);
		break;
	case TUX3_ITEM_QUOTA_USER:
		item->key.type += input_take(input, 1) % 3;
		item->key.offset = input_take(input, 1) % 4;
		item->len = sizeof(struct disk_quota);
		put_value(item->data + input_take(input, 1) % 8 * 8, input_value(input, base), 8);
		break;
	case TUX3_ITEM_ORPHAN:
		item->key.offset = forge_inode(input, base);
		item->len = sizeof(struct disk_orphan);
		put_value(item->data, 1 + input_take(input, 1) % 2, 4);
		put_value(item->data + 8, input_value(input, base), 8);
		break;
	default:
		forge_chain(input, base, item);
	}
	if (input_take(input, 1) % 4)
		count++;
	else
		items[which] = *item;
	leaf_put(block, count);
}

/* ---- using it ---- */

struct walk {
	struct tux3 *tux3;
	u32 nodes, depth;
	struct tux3_node *dir;
	bool change;
	char names[16][256];		/* some names of the root */
	u32 name_count;
};

static void use_xattrs(struct tux3_node *node)
{
	static char list[65536], value[65536];
	ssize_t len = tux3_listxattr(node, list, sizeof(list)), at;

	for (at = 0; at < len; at += strlen(list + at) + 1)
		tux3_getxattr(node, list + at, value, sizeof(value));
}

static void use_file(struct walk *walk, struct tux3_node *node, const struct tux3_stat *stat)
{
	static char data[65536];
	int64_t offset = 0;
	u32 i;

	tux3_read(node, data, sizeof(data), 0);
	if (stat->size > sizeof(data))
		tux3_read(node, data, sizeof(data), stat->size - 1000);
	for (i = 0; i < 10 && offset >= 0; i++)
		offset = tux3_seek(node, offset, i & 1 ? SEEK_HOLE : SEEK_DATA);
	if (!walk->change)
		return;
	tux3_write(node, "changed", 7, 100);
	tux3_write(node, "changed", 7, stat->size);
	if (walk->nodes & 1)
		tux3_truncate(node, stat->size / 2);
	if (walk->nodes & 2)
		tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192);
}

static void use_node(struct walk *walk, struct tux3_node *node);

static int use_entry(void *ctx, const struct tux3_dirent *entry)
{
	struct walk *walk = ctx;
	struct tux3_node *node;

	if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
		return 0;
	if (walk->depth == 1 && walk->name_count < ARRAY_SIZE(walk->names))
		strcpy(walk->names[walk->name_count++], entry->name);
	if (walk->nodes >= NODES_MAX || walk->depth >= DEPTH_MAX)
		return 2;
	/* By number: a name would lock the directory that is being listed. */
	if (!tux3_node_get(walk->tux3, entry->ino, 0, &node)) {
		use_node(walk, node);
		tux3_node_put(node, 1);
	}
	return 0;
}

static void use_node(struct walk *walk, struct tux3_node *node)
{
	struct tux3_stat stat;
	char target[4096];
	uint64_t cookie = 0;

	walk->nodes++;
	if (tux3_stat_node(node, &stat))
		return;
	use_xattrs(node);
	if (S_ISREG(stat.mode))
		use_file(walk, node, &stat);
	else if (S_ISLNK(stat.mode))
		tux3_readlink(node, target, sizeof(target));
	if (!S_ISDIR(stat.mode))
		return;
	walk->depth++;
	tux3_readdir(node, &cookie, use_entry, walk);
	walk->depth--;
}

static void use_names(struct walk *walk, struct tux3_node *root)
{
	struct tux3_node *node;
	char path[300];
	u32 i;

	for (i = 0; i < walk->name_count; i++) {
		if (!tux3_lookup(root, NULL, walk->names[i], &node))
			tux3_node_put(node, 1);
		if (!walk->change)
			continue;
		snprintf(path, sizeof(path), "/%s", walk->names[i]);
		if (i % 3 == 0)
			tux3_path_rename(walk->tux3, NULL, path, "/renamed", 0);
		else if (i % 3 == 1)
			tux3_path_unlink(walk->tux3, NULL, path);
	}
	tux3_lookup(root, NULL, "absent", &node);
	if (!walk->change)
		return;
	/* Directories into directories, some of which are their own: the way up must end. */
	tux3_path_rename(walk->tux3, NULL, "/two", "/dir/sub/two", 0);
	tux3_path_rename(walk->tux3, NULL, "/dir", "/dir/sub/two/dir", 0);
	tux3_path_rename(walk->tux3, NULL, "/dir/sub", "/fresh", 0);
	tux3_path_rename(walk->tux3, NULL, "/small", "/big", TUX3_RENAME_EXCHANGE);
	if (!tux3_path(walk->tux3, NULL, "/dir/sub/../../small", 0, 0, &node)) {
		for (i = 0; i < 8; i++) {
			snprintf(path, sizeof(path), "link%u", i);
			tux3_link(node, NULL, root, path);
		}
		tux3_removexattr(node, NULL, "user.one");
		tux3_setxattr(node, NULL, "user.large", walk, sizeof(*walk), 0);
		tux3_node_put(node, 1);
	}
	tux3_path_unlink(walk->tux3, NULL, "/big");
	tux3_path_unlink(walk->tux3, NULL, "/dir/prealloc");
	tux3_path_unlink(walk->tux3, NULL, "/dir/sub/two");
	tux3_path_mkdir(walk->tux3, NULL, "/fresh", 0755);
	if (!tux3_path(walk->tux3, NULL, "/fresh/file", TUX3_CREATE, 0644, &node)) {
		tux3_write(node, walk, sizeof(*walk), 0);
		tux3_setxattr(node, NULL, "user.x", path, sizeof(path), 0);
		tux3_node_put(node, 1);
	}
}

static void use_volume(struct tux3_device *dev, bool change)
{
	struct volume_options opts = { .manual = true, .read_only = !change };
	struct walk walk = { .change = change };
	struct tux3_node *root;
	char why[512];

	if (tux3_open_device(dev, false, &opts, 4 << 20, &walk.tux3, why, sizeof(why)))
		return;
	root = tux3_root(walk.tux3);
	use_node(&walk, root);
	use_names(&walk, root);
	tux3_node_put(root, 1);
	if (change) {
		tux3_sync(walk.tux3);
		if (walk.nodes & 4) {
			tux3_abandon(walk.tux3);
			return;
		}
	}
	if (tux3_close(walk.tux3) == -EBUSY)
		abort();	/* a reference was lost */
}

/* ---- looking at it ---- */

static int show_visit(void *ctx, const struct tree_visit *visit)
{
	static char text[65536];
	struct show_buffer out;
	u32 i;

	if (!visit->data)
		return 0;
	show_init(&out, text, sizeof(text), true);
	show_node(&out, visit->data);
	for (i = 0; !visit->level && i < node_count(visit->data); i++) {
		struct node_key packed = leaf_key(visit->data, i);
		struct tree_key key = node_key_unpack(&packed);

		show_init(&out, text, sizeof(text), i & 1);
		show_item(&out, &key, leaf_data(visit->data, i), leaf_len(visit->data, i));
	}
	return 0;
}

static int show_log(void *ctx, const struct log_commit *commit)
{
	static char text[65536];
	const struct disk_record *record;
	struct show_buffer out;
	u32 at = 0;

	while (log_next_record(commit->records, le32_to_cpu(commit->commit->bytes), &at, &record) > 0) {
		show_init(&out, text, sizeof(text), true);
		show_record(&out, record);
	}
	return 0;
}

static int count_problem(void *ctx, const struct check_problem *problem)
{
	return ++*(u32 *)ctx > 5000;
}

static void look_at_volume(struct tux3_device *dev, bool no_recovery)
{
	struct volume_options opts = { .manual = true, .read_only = true, .no_recovery = no_recovery };
	u32 problems = 0;
	struct check_options check = { .data = true, .problem = count_problem, .ctx = &problems };
	struct check_result result;
	struct volume *vol;
	char why[512];

	if (volume_open(dev, NULL, &opts, &vol, why, sizeof(why)))
		return;
	volume_check(vol, &check, &result);
	tree_walk(vol, show_visit, NULL);
	log_walk(vol, show_log, NULL);
	volume_close(vol);
}

/* ---- repair ---- */

static int note_problem(void *ctx, const struct check_problem *problem)
{
	/* Contents that are damaged stay so. */
	if (problem->code == CHECK_DATA_CSUM || problem->code == CHECK_DATA_READ || problem->code == CHECK_XATTR_VALUE)
		return 0;
	printf("after repair: %s\n", problem->text);
	return ++*(u32 *)ctx > 20;
}

static void print_note(void *ctx, const struct repair_note *note)
{
	static const char *const kinds[REPAIR_KINDS] = { "mended", "found", "lost", "left" };

	if (ctx)
		printf("%s: %s\n", kinds[note->kind], note->text);
}

/* Nothing is wrong with it. */
static void insist(struct tux3_device *dev, const char *when)
{
	struct volume_options opts = { .manual = true, .read_only = true };
	u32 problems = 0;
	struct check_options check = { .data = true, .all_groups = true, .problem = note_problem, .ctx = &problems };
	struct check_result result;
	struct volume *vol;
	char why[512];

	if (volume_open(dev, NULL, &opts, &vol, why, sizeof(why))) {
		printf("%s: %s\n", when, why);
		abort();
	}
	volume_check(vol, &check, &result);
	volume_close(vol);
	if (problems) {
		printf("%s: %u problems\n", when, problems);
		abort();
	}
}

/* Whatever it was: if repair says that it is done, the checker is silent, and so is a second repair; then it can be used. */
static void repair_volume(const u8 *bytes)
{
	struct tux3_device *dev = device_memory_create(IMAGE_BYTES);
	struct repair_options opts = { .note = print_note, .ctx = getenv("FUZZ_VERBOSE") };
	struct repair_result result;
	char why[512];

	if (!dev)
		return;
	memcpy(device_memory_bytes(dev), bytes, IMAGE_BYTES);
	if (!volume_repair(dev, &opts, &result, why, sizeof(why))) {
		if (result.notes[REPAIR_LEFT])
			abort();
		insist(dev, "after repair");
		if (volume_repair(dev, &opts, &result, why, sizeof(why)) || result.written)
			abort();
		use_volume(dev, true);
		insist(dev, "after use");
	}
	dev->ops->close(dev);
}

static int prepare(void)
{
	if (bases[0].bytes)
		return 0;
	env_set_clock(fixed_time);
	if (!getenv("FUZZ_VERBOSE"))
		env_set_log(log_nothing);
	return bases_build();
}

static void run_input(const u8 *data, size_t size)
{
	struct input input = { .data = data, .size = size };
	const struct base *base = &bases[input_take(&input, 1) % BASES];
	struct tux3_device *dev = device_memory_create(IMAGE_BYTES);
	u8 *bytes;
	u32 i;

	if (!dev)
		return;
	bytes = device_memory_bytes(dev);
	for (i = 0; i < base->used_count; i++)
		memcpy(bytes + (size_t)base->used[i] * BLOCK, base->bytes + (size_t)base->used[i] * BLOCK, BLOCK);
	hash_key = base->hash_key;
	while (input_left(&input))
		mutate(&input, base, bytes);
	env_set_random_seed(1);
	look_at_volume(dev, true);
	look_at_volume(dev, false);
	repair_volume(bytes);
	use_volume(dev, false);
	use_volume(dev, true);
	look_at_volume(dev, false);
	use_volume(dev, true);
	dev->ops->close(dev);
}

#ifdef TUX3_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (prepare())
		abort();
	if (size <= INPUT_MAX)
		run_input(data, size);
	return 0;
}

#else

/* ---- a program of its own ---- */

static void run_seed(u64 seed)
{
	u8 data[INPUT_MAX];
	u64 state = seed * 0x9e3779b97f4a7c15ull + 1;
	u32 i, size;

	for (i = 0; i < sizeof(data); i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		data[i] = state >> 24;
	}
	/* Mostly few changes: one is about 10 bytes. */
	size = 1 + (data[0] & 3 ? 12 * (1 + data[1] % 4) : data[1] + data[2]);
	run_input(data + 3, min(size, INPUT_MAX - 3));
}

struct shared {
	volatile u64 seed;	/* the run under way */
	volatile bool done;
};

static void child_runs(struct shared *shared, u64 last, u64 until)
{
	while (shared->seed <= last && (!until || seconds_now() < until)) {
		run_seed(shared->seed);
		shared->seed++;
	}
	shared->done = true;
	exit(0);
}

/* Watch the child.  0: it has finished; 1: the run under way failed. */
static int watch(pid_t child, struct shared *shared)
{
	u64 seed = shared->seed, since = seconds_now();
	int status;

	for (;;) {
		if (waitpid(child, &status, WNOHANG) == child)
			return !(WIFEXITED(status) && !WEXITSTATUS(status) && shared->done);
		if (seed != shared->seed) {
			seed = shared->seed;
			since = seconds_now();
		} else if (seconds_now() - since > HANG_SECONDS) {
			printf("seed %llu does not end\n", (unsigned long long)seed);
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			return 1;
		}
		usleep(20000);
	}
}

static int usage(const char *program)
{
	printf("%s [--seconds N] [--seed S] [--runs N]\n"
	       "\n"
	       "Opens damaged images.  Without options, for 10 seconds from a seed that changes.\n"
	       "\n"
	       "  %s --seconds 300\n"
	       "  %s --seed 4711 --runs 1    repeat one run, with messages\n", program, program, program);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "seed", required_argument, NULL, 'S' },
		{ "runs", required_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	u64 seconds = 0, first = time(NULL) * 1000000ull, runs = 0, failed = 0, until, begun;
	struct shared *shared;
	int option;

	while ((option = getopt_long(argc, argv, "s:S:n:h", options, NULL)) != -1) {
		if (option == 'h' || option == '?')
			return usage(argv[0]);
		*(option == 's' ? &seconds : option == 'S' ? &first : &runs) = strtoull(optarg, NULL, 0);
	}
	if (!seconds && !runs)
		seconds = 10;
	setvbuf(stdout, NULL, _IOLBF, 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || prepare()) {
		printf("the images to damage cannot be made\n");
		return 1;
	}
	printf("images damaged at random, from seed %llu on\n", (unsigned long long)first);
	begun = seconds_now();
	until = seconds ? begun + seconds : 0;
	shared->seed = first;
	for (;;) {
		pid_t child = fork();

		if (!child)
			child_runs(shared, runs ? first + runs - 1 : U64_MAX, until);
		if (child < 0 || !watch(child, shared))
			break;
		failed++;
		printf("FAILED: repeat with %s --seed %llu --runs 1\n", argv[0], (unsigned long long)shared->seed);
		shared->seed++;
	}
	printf("%llu passed, %llu failed in %llu s\n", (unsigned long long)(shared->seed - first - failed),
	       (unsigned long long)failed, (unsigned long long)(seconds_now() - begun));
	return failed ? 1 : 0;
}

#endif
