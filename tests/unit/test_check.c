/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker finds each problem of its table, and nothing else: a good volume is damaged in one
 * place, with all checksums right, and checked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <cmocka.h>

#include "support_image.h"
#include "user/env/device_memory.h"
#include "core/format/anchor.h"
#include "core/format/name_hash.h"
#include "core/open.h"
#include "core/repair/repair.h"

#define FOUND_MAX 32u

static struct image plain, counted;	/* without and with quota */

/* What a damage is done to: the volume being edited, or the bytes of the image. */
static struct volume *vol;
static struct image *image;
static struct image_inodes ino;
static u8 item[8192];

/* ---- items ---- */

static int get(u64 number, u8 type, u64 offset)
{
	struct tree_key key = tree_key(number, type, offset);
	int len = tree_edit_lookup(vol, &key, item, sizeof(item));

	assert_true(len >= 0);
	return len;
}

static void set(u64 number, u8 type, u64 offset, u32 len)
{
	struct tree_key key = tree_key(number, type, offset);

	assert_int_equal(tree_set(vol, &key, item, len), 0);
}

static void del(u64 number, u8 type, u64 offset)
{
	struct tree_key key = tree_key(number, type, offset);

	assert_int_equal(tree_delete(vol, &key), 0);
}

static void move(u64 number, u8 type, u64 from, u64 to)
{
	int len = get(number, type, from);

	del(number, type, from);
	set(number, type, to, len);
}

static struct disk_attr *attr_get(u64 number)
{
	assert_int_equal(get(number, TUX3_ITEM_ATTR, 0), sizeof(struct disk_attr));
	return (struct disk_attr *)item;
}

static void attr_set(u64 number)
{
	set(number, TUX3_ITEM_ATTR, 0, sizeof(struct disk_attr));
}

static void attr_add(u64 number, int size, int nlink)
{
	struct disk_attr *attr = attr_get(number);

	attr->size = cpu_to_le64(le64_to_cpu(attr->size) + size);
	attr->nlink = cpu_to_le32(le32_to_cpu(attr->nlink) + nlink);
	attr_set(number);
}

static void le64_add(__le64 *value, u64 n)
{
	*value = cpu_to_le64(le64_to_cpu(*value) + n);
}

static u64 hash(u64 dir, const char *name)
{
	return name_hash(vol, dir, TUX3_ITEM_DIRENT, name, strlen(name));
}

static u64 attr_hash(u64 number, const char *name)
{
	return name_hash(vol, number, TUX3_ITEM_XATTR, name, strlen(name));
}

static u64 up_hash(u64 dir, const char *name)
{
	return name_hash(vol, dir, TUX3_ITEM_PARENT, name, strlen(name));
}

static u32 put_dirent(u8 *at, const char *name, u64 number, u32 mode)
{
	struct disk_dirent *entry = (void *)at;

	entry->ino = cpu_to_le64(number);
	entry->type = mode >> 12;
	entry->len = strlen(name);
	memcpy(entry->name, name, strlen(name));
	return sizeof(*entry) + strlen(name);
}

static void add_dirent(u64 dir, const char *name, u64 number, u32 mode)
{
	set(dir, TUX3_ITEM_DIRENT, hash(dir, name), put_dirent(item, name, number, mode));
	attr_add(dir, 1, S_ISDIR(mode) ? 1 : 0);
}

static void remove_dirent(u64 dir, const char *name, u32 mode)
{
	del(dir, TUX3_ITEM_DIRENT, hash(dir, name));
	attr_add(dir, -1, S_ISDIR(mode) ? -1 : 0);
}

static void add_parent(u64 number, u64 dir, const char *name)
{
	struct disk_parent *entry = (void *)item;

	entry->dir = cpu_to_le64(dir);
	entry->len = strlen(name);
	memcpy(entry->name, name, strlen(name));
	set(number, TUX3_ITEM_PARENT, up_hash(dir, name), sizeof(*entry) + strlen(name));
}

static void remove_parent(u64 number, u64 dir, const char *name)
{
	del(number, TUX3_ITEM_PARENT, up_hash(dir, name));
}

/* Bytes that are no entry, at the end of a chain. */
static void append_garbage(u64 number, u8 type, u64 offset)
{
	int len = get(number, type, offset);

	memset(item + len, 0xff, 3);
	set(number, type, offset, len + 3);
}

static void append_twice(u64 number, u8 type, u64 offset)
{
	int len = get(number, type, offset);

	memcpy(item + len, item, len);
	set(number, type, offset, 2 * len);
}

static struct disk_extent *extent_get(u64 number, u64 block, int *len)
{
	*len = get(number, TUX3_ITEM_EXTENT, block);
	return (struct disk_extent *)item;
}

/* ---- damages: items ---- */

static void item_type(void)
{
	set(ino.small, 9, 0, 0);
}

static void item_ino(void)
{
	attr_get(ino.small);
	set(5, TUX3_ITEM_ATTR, 0, sizeof(struct disk_attr));
}

/* Before anything else in the tree. */
static void item_ino_zero(void)
{
	memset(item, 1, 20);
	set(0, TUX3_ITEM_PARENT, 7, 20);
}

static void item_offset(void)
{
	attr_get(ino.small);
	set(ino.small, TUX3_ITEM_ATTR, 7, sizeof(struct disk_attr));
}

static void attr_missing(void)
{
	del(ino.small, TUX3_ITEM_ATTR, 0);
	vol->tree_inodes--;
}

static void attr_length(void)
{
	attr_get(ino.small);
	set(ino.small, TUX3_ITEM_ATTR, 0, sizeof(struct disk_attr) - 8);
}

static void attr_mode(void)
{
	attr_get(ino.small)->mode = cpu_to_le32(0644);
	attr_set(ino.small);
}

static void attr_time(void)
{
	attr_get(ino.small)->mtime_nsec = cpu_to_le32(1000000000);
	attr_set(ino.small);
}

static void attr_flags(void)
{
	attr_get(ino.big)->flags |= cpu_to_le32(1u << 20);
	attr_set(ino.big);
}

static void attr_size(void)
{
	attr_get(ino.big)->size = cpu_to_le64(1ull << 63);
	attr_set(ino.big);
}

static void attr_blocks(void)
{
	attr_get(ino.big)->blocks = cpu_to_le64(21 + 2);
	attr_set(ino.big);
}

static void attr_spare(void)
{
	attr_get(ino.big)->spare = cpu_to_le32(1);
	attr_set(ino.big);
}

static void inline_missing(void)
{
	del(ino.small, TUX3_ITEM_INLINE, 0);
}

static void inline_unexpected(void)
{
	attr_get(ino.small)->flags &= ~cpu_to_le32(TUX3_ATTR_INLINE);
	attr_set(ino.small);
}

static void inline_length(void)
{
	attr_add(ino.small, 1, 0);
}

static void inline_extents(void)
{
	attr_get(ino.one)->flags |= cpu_to_le32(TUX3_ATTR_INLINE);
	attr_set(ino.one);
	set(ino.one, TUX3_ITEM_INLINE, 0, 600);
}

static void xattr_flag(void)
{
	attr_get(ino.small)->flags &= ~cpu_to_le32(TUX3_ATTR_XATTRS);
	attr_set(ino.small);
}

static void prealloc_flag(void)
{
	attr_get(ino.prealloc)->flags &= ~cpu_to_le32(TUX3_ATTR_PREALLOC);
	attr_set(ino.prealloc);
}

static void type_items(void)
{
	set(ino.two, TUX3_ITEM_INLINE, 0, 10);
}

static void root_missing(void)
{
	struct tree_key from = tree_key(TUX3_INO_ROOT, 0, 0), to = tree_key(TUX3_INO_ROOT, U8_MAX, U64_MAX), next;

	assert_true(tree_delete_range(vol, &from, &to, 1000, NULL, NULL, &next) > 0);
}

static void symlink_empty(void)
{
	attr_get(ino.link)->size = 0;
	attr_set(ino.link);
	del(ino.link, TUX3_ITEM_INLINE, 0);
}

/* ---- damages: names ---- */

static void dirent_bad(void)
{
	append_garbage(TUX3_INO_ROOT, TUX3_ITEM_DIRENT, hash(TUX3_INO_ROOT, "small"));
}

static void dirent_hash(void)
{
	move(TUX3_INO_ROOT, TUX3_ITEM_DIRENT, hash(TUX3_INO_ROOT, "small"), hash(TUX3_INO_ROOT, "small") + 1);
}

static void dirent_duplicate(void)
{
	append_twice(TUX3_INO_ROOT, TUX3_ITEM_DIRENT, hash(TUX3_INO_ROOT, "one"));
	attr_add(TUX3_INO_ROOT, 1, 0);
	attr_add(ino.one, 0, 1);
}

static void dirent_name(void)
{
	remove_dirent(TUX3_INO_ROOT, "one", S_IFREG);
	remove_parent(ino.one, TUX3_INO_ROOT, "one");
	add_dirent(TUX3_INO_ROOT, "o/e", ino.one, S_IFREG);
	add_parent(ino.one, TUX3_INO_ROOT, "o/e");
}

static void dirent_dangling(void)
{
	add_dirent(TUX3_INO_ROOT, "nowhere", 99999, S_IFREG);
}

static void dirent_type(void)
{
	set(TUX3_INO_ROOT, TUX3_ITEM_DIRENT, hash(TUX3_INO_ROOT, "one"), put_dirent(item, "one", ino.one, S_IFIFO));
}

static void dir_size(void)
{
	attr_add(ino.two, 1, 0);
}

static void dir_nlink(void)
{
	attr_add(ino.two, 0, 1);
}

static void dir_names(void)
{
	add_dirent(ino.two, "again", ino.sub, S_IFDIR);
	add_parent(ino.sub, ino.two, "again");
}

static void dir_loop(void)
{
	remove_dirent(TUX3_INO_ROOT, "dir", S_IFDIR);
	remove_parent(ino.dir, TUX3_INO_ROOT, "dir");
	add_dirent(ino.sub, "loop", ino.dir, S_IFDIR);
	add_parent(ino.dir, ino.sub, "loop");
}

static void nlink_wrong(void)
{
	attr_add(ino.small, 0, 3);
}

static void root_named(void)
{
	add_dirent(ino.two, "up", TUX3_INO_ROOT, S_IFDIR);
	add_parent(TUX3_INO_ROOT, ino.two, "up");
}

static void inode_nameless(void)
{
	remove_dirent(TUX3_INO_ROOT, "one", S_IFREG);
	remove_parent(ino.one, TUX3_INO_ROOT, "one");
}

static void parent_bad(void)
{
	append_garbage(ino.small, TUX3_ITEM_PARENT, up_hash(ino.two, "hard"));
}

static void parent_hash_wrong(void)
{
	move(ino.small, TUX3_ITEM_PARENT, up_hash(ino.two, "hard"), up_hash(ino.two, "hard") + 1);
}

static void parent_duplicate(void)
{
	append_twice(ino.small, TUX3_ITEM_PARENT, up_hash(ino.two, "hard"));
}

static void parent_missing(void)
{
	remove_parent(ino.small, ino.two, "hard");
}

static void parent_dangling(void)
{
	add_parent(ino.small, ino.two, "ghost");
}

/* ---- damages: orphans ---- */

static void put_orphan(u64 number, u32 kind, u32 len)
{
	struct disk_orphan orphan = { .kind = cpu_to_le32(kind) };

	memcpy(item, &orphan, sizeof(orphan));
	set(TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, number, len);
}

static void orphan_bad(void)
{
	put_orphan(ino.small, TUX3_ORPHAN_DELETE, 3);
}

static void orphan_dangling(void)
{
	put_orphan(99999, TUX3_ORPHAN_DELETE, sizeof(struct disk_orphan));
}

static void orphan_linked(void)
{
	put_orphan(ino.small, TUX3_ORPHAN_DELETE, sizeof(struct disk_orphan));
}

static void orphan_unmarked(void)
{
	inode_nameless();
	attr_add(ino.one, 0, -1);
}

static void orphan_kind(void)
{
	put_orphan(ino.two, TUX3_ORPHAN_TRUNCATE, sizeof(struct disk_orphan));
}

/* ---- damages: extents ---- */

static void extent_length(void)
{
	int len;

	extent_get(ino.one, 0, &len);
	set(ino.one, TUX3_ITEM_EXTENT, 0, len - 2);
}

static void extent_flags_wrong(void)
{
	int len;

	extent_get(ino.one, 0, &len)->flags |= cpu_to_le32(0x10);
	set(ino.one, TUX3_ITEM_EXTENT, 0, len);
}

static void extent_place(void)
{
	int len;

	extent_get(ino.one, 0, &len)->addr = cpu_to_le64(vol->total_blocks);
	set(ino.one, TUX3_ITEM_EXTENT, 0, len);
}

static void extent_fixed(void)
{
	int len;

	extent_get(ino.one, 0, &len)->addr = 0;
	set(ino.one, TUX3_ITEM_EXTENT, 0, len);
}

/* Cut the extent of /big in two; the second begins a block too early. */
static void extent_overlap(void)
{
	struct disk_extent *extent;
	__le32 csum[8];
	u64 addr;
	int len;

	extent = extent_get(ino.big, 0, &len);
	addr = le64_to_cpu(extent->addr);
	memcpy(csum, extent->csum + 12, sizeof(csum));
	extent->len = cpu_to_le32(12);
	set(ino.big, TUX3_ITEM_EXTENT, 0, sizeof(*extent) + 12 * sizeof(__le32));
	extent->addr = cpu_to_le64(addr + 12);
	extent->len = cpu_to_le32(8);
	memcpy(extent->csum, csum, sizeof(csum));
	set(ino.big, TUX3_ITEM_EXTENT, 11, sizeof(*extent) + sizeof(csum));
}

static void block_shared(void)
{
	__le64 addr;
	int len;

	addr = extent_get(ino.sparse, 0, &len)->addr;
	extent_get(ino.sparse, 10, &len)->addr = addr;
	set(ino.sparse, TUX3_ITEM_EXTENT, 10, len);
}

static void extent_no_csum(void)
{
	int len;

	extent_get(ino.one, 0, &len)->flags = 0;
	set(ino.one, TUX3_ITEM_EXTENT, 0, sizeof(struct disk_extent));
}

static void extent_csum(void)
{
	int len;

	extent_get(ino.prealloc, 0, &len)->flags |= cpu_to_le32(TUX3_EXTENT_CSUM);
	set(ino.prealloc, TUX3_ITEM_EXTENT, 0, sizeof(struct disk_extent) + 16 * sizeof(__le32));
}

/* Without checksums because others write to it: no problem, unless it has them. */
static void extent_unchecked(void)
{
	int len;

	extent_get(ino.one, 0, &len)->flags |= cpu_to_le32(TUX3_EXTENT_UNCHECKED);
	set(ino.one, TUX3_ITEM_EXTENT, 0, len);
}

static void extent_beyond_end(void)
{
	attr_get(ino.big)->size = cpu_to_le64(4096);
	attr_set(ino.big);
}

static void extent_offset(void)
{
	move(ino.sparse, TUX3_ITEM_EXTENT, 10, 1ull << 62);
}

static void extent_birth(void)
{
	int len;

	extent_get(ino.one, 0, &len)->birth = cpu_to_le64(1ull << 40);
	set(ino.one, TUX3_ITEM_EXTENT, 0, len);
}

/* ---- damages: extended attributes ---- */

static void xattr_bad(void)
{
	append_garbage(ino.small, TUX3_ITEM_XATTR, attr_hash(ino.small, "user.one"));
}

static void xattr_hash(void)
{
	move(ino.small, TUX3_ITEM_XATTR, attr_hash(ino.small, "user.one"), attr_hash(ino.small, "user.one") + 1);
}

static void xattr_duplicate(void)
{
	append_twice(ino.small, TUX3_ITEM_XATTR, attr_hash(ino.small, "user.one"));
}

static void xattr_value(void)
{
	int len = get(ino.small, TUX3_ITEM_XATTR, attr_hash(ino.small, "user.one"));

	item[len - 1] ^= 1;
	set(ino.small, TUX3_ITEM_XATTR, attr_hash(ino.small, "user.one"), len);
}

static void xattr_length(void)
{
	int len = get(ino.big, TUX3_ITEM_XATTR, attr_hash(ino.big, "user.large"));

	((struct disk_xattr *)item)->value_len = cpu_to_le32(9000);
	set(ino.big, TUX3_ITEM_XATTR, attr_hash(ino.big, "user.large"), len);
}

static void xattr_place(void)
{
	int len = get(ino.big, TUX3_ITEM_XATTR, attr_hash(ino.big, "user.large"));

	put_unaligned_le64(vol->total_blocks, item + sizeof(struct disk_xattr) + strlen("user.large"));
	set(ino.big, TUX3_ITEM_XATTR, attr_hash(ino.big, "user.large"), len);
}

/* ---- damages: quota ---- */

static void quota_bad(void)
{
	set(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 77, 3);
}

static void quota_usage(void)
{
	get(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 0);
	le64_add(&((struct disk_quota *)item)->blocks, 1);
	set(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 0, sizeof(struct disk_quota));
}

static void quota_missing(void)
{
	del(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_GROUP, 0);
}

static void quota_unexpected(void)
{
	memset(item, 0, sizeof(struct disk_quota));
	set(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 0, sizeof(struct disk_quota));
}

/* ---- damages: bytes of the image ---- */

static u64 root_addr(void)
{
	return le64_to_cpu(image_anchor(image)->root_addr);
}

static void node_bad(void)
{
	*(u8 *)image_block(image, root_addr()) ^= 1;
}

/* The root moves to a block before the anchors. */
static void node_fixed(void)
{
	struct disk_anchor *anchor = image_anchor(image);
	struct disk_node *node = image_block(image, 1);

	memcpy(node, image_block(image, root_addr()), 4096);
	node->addr = cpu_to_le64(1);
	node->crc = 0;
	node->crc = cpu_to_le32(crc32c(~0u, node, 4096));
	anchor->root_addr = cpu_to_le64(1);
	anchor_seal(anchor);
}

/* The free map that counts: of the two slots of group 0, the newer one. */
static u64 map_addr(void)
{
	u64 first = (192 << 10) / 4096;
	struct disk_map *a = image_block(image, first), *b = image_block(image, first + 1);

	return le64_to_cpu(b->delta) > le64_to_cpu(a->delta) ? first + 1 : first;
}

static void map_flip(u64 block, int used)
{
	struct disk_map *map = image_block(image, map_addr());

	map->bits[block / 8] ^= 1 << block % 8;
	map->free = cpu_to_le32(le32_to_cpu(map->free) - used);
	image_seal_map(image, map_addr());
}

static void map_free(void)
{
	map_flip(root_addr(), -1);
}

static void map_leak(void)
{
	struct disk_map *map = image_block(image, map_addr());
	u64 block = 3000;

	while (map->bits[block / 8] & 1 << block % 8)
		block++;
	map_flip(block, 1);
}

static void map_bad(void)
{
	struct disk_map *map = image_block(image, map_addr());

	map->free = cpu_to_le32(le32_to_cpu(map->free) + 1);
	image_seal_map(image, map_addr());
}

/* In the slot that counts, and in the other one. */
static void map_rot(void)
{
	((u8 *)image_block(image, map_addr()))[2000] ^= 1;
}

static void map_rot_other(void)
{
	u64 first = (192 << 10) / 4096;

	((u8 *)image_block(image, map_addr() == first ? first + 1 : first))[2000] ^= 1;
}

static void anchor_copy(void)
{
	u64 slot = le64_to_cpu(image_anchor(image)->slot_offset) / TUX3_ANCHOR_STRIDE - 1;	/* the first copy is found first */

	assert_in_range(slot, 0, 1);
	((u8 *)image_block(image, anchor_slot_offset(IMAGE_BYTES, slot + 2) / 4096))[300] ^= 1;
}

/* A number of the anchor in use. */
static void anchor_put(__le64 *field, u64 value, struct disk_anchor *anchor)
{
	*field = cpu_to_le64(value);
	anchor_seal(anchor);
}

static void used_total(void)
{
	struct disk_anchor *anchor = image_anchor(image);

	anchor_put(&anchor->used_blocks, le64_to_cpu(anchor->used_blocks) + 1, anchor);
}

static void inode_total(void)
{
	struct disk_anchor *anchor = image_anchor(image);

	anchor_put(&anchor->inodes, le64_to_cpu(anchor->inodes) + 1, anchor);
}

static void data_total(void)
{
	struct disk_anchor *anchor = image_anchor(image);

	anchor_put(&anchor->data_blocks, le64_to_cpu(anchor->data_blocks) + 1, anchor);
}

static void unwritten_total(void)
{
	struct disk_anchor *anchor = image_anchor(image);

	anchor_put(&anchor->unwritten_blocks, le64_to_cpu(anchor->unwritten_blocks) + 1, anchor);
}

/* What was synced counts on a commit that is not there. */
static void commit_missing(void)
{
	struct disk_anchor *anchor = image_anchor(image);
	u64 addr = IMAGE_BYTES / 4096 - 64;
	struct disk_intents *head = (void *)image_block(image, addr);

	anchor->intent = (struct disk_intent_place){
		.addr = cpu_to_le64(addr), .life = cpu_to_le64(1), .seq = cpu_to_le64(1), .blocks = cpu_to_le32(4),
	};
	anchor_seal(anchor);
	memset(head, 0, 4096);
	*head = (struct disk_intents){
		.magic = cpu_to_le32(TUX3_INTENT_MAGIC), .volume_id = anchor->volume_id, .addr = cpu_to_le64(addr),
		.life = anchor->intent.life, .seq = anchor->intent.seq, .blocks = cpu_to_le32(1),
		.base = cpu_to_le64(le64_to_cpu(anchor->delta) + 1),
	};
	head->crc = cpu_to_le32(crc32c(~0u, head, 4096));
}

static void log_shared(void)
{
	struct disk_anchor *anchor = image_anchor(image);

	anchor_put(&anchor->log_addr, root_addr(), anchor);
}

/* The first block of /one, which begins with its bytes. */
static u64 data_block(void)
{
	u64 block;

	for (block = 0; block < IMAGE_BYTES / 4096; block++)
		if (!memcmp(image_block(image, block), "abcdefgh", 8))
			return block;
	fail();
	return 0;
}

static void data_csum(void)
{
	((u8 *)image_block(image, data_block()))[100] ^= 1;
}

static struct tux3_device_ops failing_ops;
static const struct tux3_device_ops *good_ops;
static u64 failing_block;

static int failing_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	if (dev->block_size == 4096 && failing_block - addr < count)
		return -EIO;
	return good_ops->read(dev, addr, count, data);
}

static void data_read(void)
{
	good_ops = image->dev->ops;
	failing_ops = *good_ops;
	failing_ops.read = failing_read;
	failing_block = data_block();
	image->dev->ops = &failing_ops;
}

/* ---- the table ---- */

#define ON_QUOTA	1u	/* of the volume that counts usage */
#define ON_BYTES	2u	/* the image is not open */
#define AND_MORE	4u	/* other problems follow from it */

static const struct damage {
	unsigned int code;
	void (*make)(void);
	unsigned int flags;
} damages[] = {
	{ CHECK_NODE_BAD, node_bad, ON_BYTES },
	{ CHECK_NODE_FIXED, node_fixed, ON_BYTES | AND_MORE },
	{ CHECK_ITEM_TYPE, item_type, 0 },
	{ CHECK_ITEM_INO, item_ino, 0 },
	{ CHECK_ITEM_INO, item_ino_zero, 0 },
	{ CHECK_ITEM_OFFSET, item_offset, 0 },
	{ CHECK_ATTR_MISSING, attr_missing, 0 },
	{ CHECK_ATTR_LENGTH, attr_length, 0 },
	{ CHECK_ATTR_MODE, attr_mode, AND_MORE },
	{ CHECK_ATTR_TIME, attr_time, 0 },
	{ CHECK_ATTR_FLAGS, attr_flags, 0 },
	{ CHECK_ATTR_SIZE, attr_size, 0 },
	{ CHECK_ATTR_BLOCKS, attr_blocks, 0 },
	{ CHECK_ATTR_SPARE, attr_spare, 0 },
	{ CHECK_INLINE_MISSING, inline_missing, 0 },
	{ CHECK_INLINE_UNEXPECTED, inline_unexpected, 0 },
	{ CHECK_INLINE_LENGTH, inline_length, 0 },
	{ CHECK_INLINE_EXTENTS, inline_extents, 0 },
	{ CHECK_XATTR_FLAG, xattr_flag, 0 },
	{ CHECK_PREALLOC_FLAG, prealloc_flag, 0 },
	{ CHECK_TYPE_ITEMS, type_items, 0 },
	{ CHECK_ROOT_MISSING, root_missing, AND_MORE },
	{ CHECK_SYMLINK_EMPTY, symlink_empty, 0 },
	{ CHECK_DIRENT_BAD, dirent_bad, 0 },
	{ CHECK_DIRENT_HASH, dirent_hash, 0 },
	{ CHECK_DIRENT_DUPLICATE, dirent_duplicate, 0 },
	{ CHECK_DIRENT_NAME, dirent_name, 0 },
	{ CHECK_DIRENT_DANGLING, dirent_dangling, 0 },
	{ CHECK_DIRENT_TYPE, dirent_type, 0 },
	{ CHECK_DIR_SIZE, dir_size, 0 },
	{ CHECK_DIR_NLINK, dir_nlink, 0 },
	{ CHECK_DIR_NAMES, dir_names, 0 },
	{ CHECK_DIR_LOOP, dir_loop, 0 },
	{ CHECK_NLINK, nlink_wrong, 0 },
	{ CHECK_ROOT_NAMED, root_named, 0 },
	{ CHECK_INODE_NAMELESS, inode_nameless, 0 },
	{ CHECK_PARENT_BAD, parent_bad, 0 },
	{ CHECK_PARENT_HASH, parent_hash_wrong, 0 },
	{ CHECK_PARENT_DUPLICATE, parent_duplicate, 0 },
	{ CHECK_PARENT_MISSING, parent_missing, 0 },
	{ CHECK_PARENT_DANGLING, parent_dangling, 0 },
	{ CHECK_ORPHAN_BAD, orphan_bad, 0 },
	{ CHECK_ORPHAN_DANGLING, orphan_dangling, 0 },
	{ CHECK_ORPHAN_LINKED, orphan_linked, 0 },
	{ CHECK_ORPHAN_UNMARKED, orphan_unmarked, 0 },
	{ CHECK_ORPHAN_KIND, orphan_kind, 0 },
	{ CHECK_EXTENT_LENGTH, extent_length, AND_MORE },
	{ CHECK_EXTENT_FLAGS, extent_flags_wrong, 0 },
	{ CHECK_EXTENT_FLAGS, extent_unchecked, 0 },
	{ CHECK_EXTENT_PLACE, extent_place, AND_MORE },
	{ CHECK_EXTENT_FIXED, extent_fixed, AND_MORE },
	{ CHECK_EXTENT_OVERLAP, extent_overlap, 0 },
	{ CHECK_BLOCK_SHARED, block_shared, AND_MORE },
	{ CHECK_EXTENT_NO_CSUM, extent_no_csum, 0 },
	{ CHECK_EXTENT_CSUM, extent_csum, 0 },
	{ CHECK_EXTENT_BEYOND_END, extent_beyond_end, 0 },
	{ CHECK_EXTENT_OFFSET, extent_offset, 0 },
	{ CHECK_EXTENT_BIRTH, extent_birth, 0 },
	{ CHECK_XATTR_BAD, xattr_bad, 0 },
	{ CHECK_XATTR_HASH, xattr_hash, 0 },
	{ CHECK_XATTR_DUPLICATE, xattr_duplicate, 0 },
	{ CHECK_XATTR_VALUE, xattr_value, 0 },
	{ CHECK_XATTR_LENGTH, xattr_length, 0 },
	{ CHECK_XATTR_PLACE, xattr_place, AND_MORE },
	{ CHECK_QUOTA_BAD, quota_bad, ON_QUOTA },
	{ CHECK_QUOTA_USAGE, quota_usage, ON_QUOTA },
	{ CHECK_QUOTA_MISSING, quota_missing, ON_QUOTA },
	{ CHECK_QUOTA_UNEXPECTED, quota_unexpected, 0 },
	{ CHECK_MAP_FREE, map_free, ON_BYTES },
	{ CHECK_MAP_LEAK, map_leak, ON_BYTES },
	{ CHECK_USED_TOTAL, used_total, ON_BYTES },
	{ CHECK_INODE_TOTAL, inode_total, ON_BYTES },
	{ CHECK_MAP_BAD, map_bad, ON_BYTES },
	{ CHECK_MAP_BAD, map_rot, ON_BYTES },
	{ CHECK_MAP_BAD, map_rot_other, ON_BYTES },
	{ CHECK_LOG_SHARED, log_shared, ON_BYTES },
	{ CHECK_DATA_TOTAL, data_total, ON_BYTES },
	{ CHECK_UNWRITTEN_TOTAL, unwritten_total, ON_BYTES },
	{ CHECK_DATA_READ, data_read, ON_BYTES },
	{ CHECK_DATA_CSUM, data_csum, ON_BYTES },
	{ CHECK_ANCHOR_COPY, anchor_copy, ON_BYTES },
	{ CHECK_COMMIT_MISSING, commit_missing, ON_BYTES },
};

/* ---- tests ---- */

static void test_good(void **state)
{
	unsigned int codes[FOUND_MAX];

	assert_int_equal(image_check(&plain, true, codes, FOUND_MAX, true), 0);
	assert_int_equal(image_check(&counted, true, codes, FOUND_MAX, true), 0);
}

/* An edit without damage leaves a good volume: what the other tests find is their damage. */
static void test_edit_alone(void **state)
{
	unsigned int codes[FOUND_MAX];
	struct image copy;

	assert_int_equal(image_copy(&copy, &plain), 0);
	vol = image_edit_begin(&copy);
	assert_non_null(vol);
	attr_get(plain.ino.small);
	attr_set(plain.ino.small);
	assert_int_equal(image_edit_end(vol), 0);
	assert_int_equal(image_check(&copy, true, codes, FOUND_MAX, true), 0);
	image_close(&copy);
}

static void damage_make(struct image *copy, const struct damage *damage)
{
	assert_int_equal(image_copy(copy, damage->flags & ON_QUOTA ? &counted : &plain), 0);
	image = copy;
	ino = copy->ino;
	memset(item, 0, sizeof(item));
	if (!(damage->flags & ON_BYTES)) {
		vol = image_edit_begin(copy);
		assert_non_null(vol);
	}
	damage->make();
	if (!(damage->flags & ON_BYTES))
		assert_int_equal(image_edit_end(vol), 0);
}

/* For tests/golden/make_golden.py, which names a folder: the bytes as a file there. */
static void keep(const struct image *kept, const char *name, unsigned int number)
{
	const char *folder = getenv("TUX3_KEEP_DAMAGED");
	char path[512];
	FILE *file;

	if (!folder)
		return;
	snprintf(path, sizeof(path), "%s/%s-%u.img", folder, name, number);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(device_memory_bytes(kept->dev), IMAGE_BYTES, 1, file), 1);
	assert_int_equal(fclose(file), 0);
}

static bool damage_found(const struct damage *damage)
{
	unsigned int codes[FOUND_MAX], i;
	struct image copy;
	bool found = false;
	int count;

	damage_make(&copy, damage);
	keep(&copy, check_problem_name(damage->code), (unsigned int)(damage - damages));
	count = image_check(&copy, damage->code >= 900, codes, FOUND_MAX, false);
	for (i = 0; (int)i < count; i++)
		found |= codes[i] == damage->code;
	if (!found || (count != 1 && !(damage->flags & AND_MORE))) {
		fprintf(stderr, "%s (%u) should be found alone, but (%d):\n", check_problem_name(damage->code),
			damage->code, count);
		image_check(&copy, damage->code >= 900, codes, FOUND_MAX, true);
		found = false;
	}
	image_close(&copy);
	return found;
}

static void test_damages(void **state)
{
	unsigned int i, failed = 0;

	keep(&plain, "good", 0);
	keep(&counted, "good", 1);
	for (i = 0; i < ARRAY_SIZE(damages); i++)
		failed += !damage_found(&damages[i]);
	assert_int_equal(failed, 0);
}

/* ---- repair ---- */

struct notes {
	char text[4000];
	size_t used;
};

static void on_note(void *ctx, const struct repair_note *note)
{
	static const char *const kinds[REPAIR_KINDS] = { "mended", "found", "lost", "left" };
	struct notes *notes = ctx;

	notes->used += scnprintf(notes->text + notes->used, sizeof(notes->text) - notes->used, "  %s: %s\n", kinds[note->kind], note->text);
}

/* What is damaged for good is told by each check that reads data. */
static bool stays(unsigned int code)
{
	return code == CHECK_DATA_READ || code == CHECK_DATA_CSUM;
}

static bool damage_repaired(const struct damage *damage)
{
	struct notes notes = {}, again_notes = {};
	struct repair_options opts = { .note = on_note, .ctx = &notes }, again_opts = { .note = on_note, .ctx = &again_notes };
	struct repair_result result, again;
	unsigned int codes[FOUND_MAX];
	struct image copy;
	char why[300];
	int err, count = -1;
	bool good;

	damage_make(&copy, damage);
	err = volume_repair(copy.dev, &opts, &result, why, sizeof(why));
	if (!err)
		count = image_check(&copy, !stays(damage->code), codes, FOUND_MAX, true);
	/* Of what is lost reading is an error. */
	if (count == 1 && codes[0] == CHECK_DATA_CSUM && result.notes[REPAIR_LOST])
		count = 0;
	good = !err && !count && !result.notes[REPAIR_LEFT] && (result.written != stays(damage->code));
	if (good) {
		err = volume_repair(copy.dev, &again_opts, &again, why, sizeof(why));
		good = !err && !again.written && !again_notes.used;
	}
	if (!good)
		fprintf(stderr, "%s (%u): repair returned %d (%s), %swritten; %d problems afterwards\n%s%s", check_problem_name(damage->code),
			damage->code, err, err ? why : "", result.written ? "" : "not ", count, notes.text, again_notes.text);
	image_close(&copy);
	return good;
}

/* Each damage of the table is repaired: the checker is silent then, and a second repair finds nothing to do. */
static void test_repaired(void **state)
{
	unsigned int i, failed = 0;

	for (i = 0; i < ARRAY_SIZE(damages); i++)
		failed += !damage_repaired(&damages[i]);
	assert_int_equal(failed, 0);
}

/* No problem of the table is without a damage. */
static void test_all_covered(void **state)
{
	static const unsigned int codes[] = {
#define X(number, NAME, name, sentence) number,
		TUX3_PROBLEMS(X)
#undef X
	};
	unsigned int i, j;

	for (i = 0; i < ARRAY_SIZE(codes); i++) {
		for (j = 0; j < ARRAY_SIZE(damages) && damages[j].code != codes[i]; j++)
			;
		if (j == ARRAY_SIZE(damages))
			fprintf(stderr, "no test damages a volume so that %s (%u) is found\n",
				check_problem_name(codes[i]), codes[i]);
		assert_true(j < ARRAY_SIZE(damages));
		for (j = 0; j < i; j++)
			assert_int_not_equal(codes[i], codes[j]);
	}
}

static int stop_at_first(void *ctx, const struct check_problem *problem)
{
	++*(unsigned int *)ctx;
	return 1;
}

static void test_stop(void **state)
{
	unsigned int told = 0;
	struct check_options opts = { .problem = stop_at_first, .ctx = &told };
	struct volume_options open_opts = { .read_only = true, .manual = true };
	struct check_result result;
	struct image copy;
	struct volume *opened;
	char why[200];

	assert_int_equal(image_copy(&copy, &plain), 0);
	image = &copy;
	ino = copy.ino;
	vol = image_edit_begin(&copy);
	attr_time();
	dir_size();
	dir_loop();
	assert_int_equal(image_edit_end(vol), 0);
	assert_int_equal(volume_open(copy.dev, NULL, &open_opts, &opened, why, sizeof(why)), 0);
	assert_int_equal(volume_check(opened, &opts, &result), -ECANCELED);
	assert_int_equal(told, 1);
	volume_close(opened);
	image_close(&copy);
}

static int build(void **state)
{
	return image_build(&plain, false) || image_build(&counted, true);
}

static int tear_down(void **state)
{
	image_close(&plain);
	image_close(&counted);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_edit_alone),
		cmocka_unit_test(test_damages),
		cmocka_unit_test(test_repaired),
		cmocka_unit_test(test_all_covered),
		cmocka_unit_test(test_stop),
	};

	return cmocka_run_group_tests(tests, build, tear_down);
}
