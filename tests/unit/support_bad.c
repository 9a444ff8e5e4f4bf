/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A volume on a device of which one block cannot be read: see support_bad.h. */
#include "support_bad.h"
#include "user/env/log.h"

#include <string.h>

char bad_data[BLOCK * 3];

struct bad_device *bad_device(struct tux3_device *dev)
{
	return container_of(dev, struct bad_device, dev);
}

static int bad_device_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct bad_device *bad = bad_device(dev);
	u32 i;

	bad->below->block_size = dev->block_size;
	bad->reads++;
	for (i = 0; i < BAD_AT_ONCE; i++) {
		if (bad->bad[i] && addr <= bad->bad[i] && bad->bad[i] < addr + count) {
			bad->failed++;
			return -EIO;
		}
	}
	return device_read(bad->below, addr, count, data);
}

static void bad_device_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		      struct io_wait *wait)
{
	struct bad_device *bad = bad_device(dev);
	u64 at = addr * dev->block_size / BLOCK;
	u32 i, blocks = 0;

	for (i = 0; i < vecs; i++)
		blocks += vec[i].iov_len / dev->block_size;
	for (i = 0; i < BAD_AT_ONCE; i++)
		if (addr <= bad->bad[i] && bad->bad[i] < addr + blocks)	/* as disks do, it puts another sector there */
			bad->bad[i] = 0;
	for (; at * BLOCK < (addr + blocks) * dev->block_size; at++)
		bad->written[at] = true;
	bad->below->block_size = dev->block_size;
	device_writev(bad->below, addr, vec, vecs, flags, wait);
	if (bad->reclaim)
		cache_shrink(bad->reclaim, U64_MAX);
	if (bad->beside) {
		void (*beside)(void *ctx) = bad->beside;

		bad->beside = NULL;
		beside(bad->ctx);
	}
}

static int bad_device_flush(struct tux3_device *dev)
{
	return device_flush(bad_device(dev)->below);
}

static void bad_device_kick(struct tux3_device *dev)
{
	device_kick(bad_device(dev)->below);
}

static void bad_device_close(struct tux3_device *dev)
{
	bad_device(dev)->below->ops->close(bad_device(dev)->below);
	free(bad_device(dev)->written);
	free(bad_device(dev));
}

static const struct tux3_device_ops bad_ops = {
	.read = bad_device_read, .write = bad_device_write, .flush = bad_device_flush, .kick = bad_device_kick,
	.close = bad_device_close,
};

void be_bad(struct bed *bed, u64 addr)
{
	bad_device(bed->dev)->bad[0] = addr;
	bad_device(bed->dev)->bad[1] = 0;
}

/* A file in many pieces. */
void bad_make_pieces(struct bed *bed, const char *path, u32 pieces)
{
	struct tux3_node *node = bed_file(bed, path);
	u32 i;

	for (i = 0; i < pieces; i++)
		assert_int_equal(tux3_write(node, bad_data, BLOCK, (u64)i * 2 * BLOCK), BLOCK);
	tux3_node_put(node, 1);
}

static void make_names_and_attributes(struct bed *bed)
{
	struct tux3_node *node = bed_file(bed, "/xattrs");
	char name[200];
	u32 i;

	for (i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "user.attr%u", i);
		assert_ok(tux3_setxattr(node, NULL, name, bad_data, i % 10 ? 300 : 9000, 0));
	}
	for (i = 0; i < 120; i++) {
		snprintf(name, sizeof(name), "link%u-%0100u", i, i);
		assert_ok(tux3_link(node, NULL, bed->root, name));
	}
	tux3_node_put(node, 1);
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/big", 0755));
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/dir", 0755));
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/empty", 0755));
	for (i = 0; i < BAD_FILES; i++) {
		snprintf(name, sizeof(name), "/big/f%u", i);
		node = bed_file(bed, name);
		assert_int_equal(tux3_write(node, bad_data, i % 5 * 30, 0), i % 5 * 30);
		tux3_node_put(node, 1);
	}
	tux3_node_put(bed_file(bed, "/dir/file"), 1);
	tux3_node_put(bed_file(bed, "/file"), 1);
}

int bad_see_node(void *ctx, const struct tree_visit *visit)
{
	struct bad_nodes *nodes = ctx;

	assert_non_null(visit->data);
	assert_true(nodes->count < BAD_NODES);
	nodes->addr[nodes->count++] = visit->addr;
	return 0;
}

void bad_wrap(struct bed *bed)
{
	struct bad_device *bad = calloc(1, sizeof(*bad));

	assert_non_null(bad);
	bad->written = calloc(bed->dev->size_bytes / BLOCK, sizeof(*bad->written));
	assert_non_null(bad->written);
	bad->dev = *bed->dev;
	bad->dev.ops = &bad_ops;
	bad->below = bed->dev;
	bed->dev = &bad->dev;
}

u8 *bad_save(struct bed *bed)
{
	u8 *bytes = malloc(BAD_BYTES);

	assert_non_null(bytes);
	bed_close(bed);
	memcpy(bytes, device_memory_bytes(bed->dev), BAD_BYTES);
	bad_wrap(bed);
	return bytes;
}

/* Thousands of times, so only what was written is copied. */
void bad_anew(struct bed *bed, const u8 *saved, u64 addr)
{
	struct bad_device *bad = bad_device(bed->dev);
	u8 *bytes = device_memory_bytes(bad->below);
	u32 i;

	for (i = 0; i < BAD_BYTES / BLOCK; i++) {
		if (bad->written[i])
			memcpy(bytes + i * BLOCK, saved + i * BLOCK, BLOCK);
		bad->written[i] = false;
	}
	be_bad(bed, addr);
}

u8 *bad_make(struct bed *bed, struct bad_nodes *nodes)
{
	memset(bad_data, 'x', sizeof(bad_data));
	bed->opts.manual = true;
	bed_make(bed, BAD_BYTES, BLOCK);
	bad_make_pieces(bed, "/pieces", BAD_PIECES);
	bad_make_pieces(bed, "/other", BAD_PIECES / 2);
	make_names_and_attributes(bed);
	bed_reopen(bed);
	assert_ok(tree_walk(tux3_core(bed->volume), bad_see_node, nodes));
	assert_true(nodes->count > 20);
	return bad_save(bed);
}

bool bad_open(struct bed *bed)
{
	char why[300] = "";

	if (tux3_open_device(bed->dev, false, &bed->opts, 0, &bed->volume, why, sizeof(why)))
		return false;
	bed->root = tux3_root(bed->volume);
	if (!bed->root)
		tux3_abandon(bed->volume);
	return bed->root;
}

/* What a write says, or the fsync after it: what cannot be committed is lost, and that is told. */
int bad_write(struct tux3_node *node, u64 block, u32 blocks)
{
	ssize_t len = tux3_write(node, bad_data, blocks * BLOCK, block * BLOCK);

	return len < 0 ? len : len != blocks * BLOCK ? -EIO : 0;
}

void bad_message(int level, const char *message)
{
	if (getenv("TUX3_TEST_VERBOSE"))
		print_error("%s\n", message);
	assert_null(strstr(message, "not valid"));	/* all is, but cannot be read */
}

int bad_see_leaf(void *ctx, const struct tree_visit *visit)
{
	struct bad_leaf *leaf = ctx;

	/* In the order of keys; what is before all goes to the first. */
	if (!visit->level && !leaf->addr && (!visit->has_high || tree_key_compare(&leaf->key, &visit->high) < 0))
		leaf->addr = visit->addr;
	return 0;
}

void bad_begin(struct bed *bed)
{
	struct bad_nodes nodes = {};

	free(bad_make(bed, &nodes));
	env_set_log(bad_message);
	bed_open(bed);
}

/* Of a volume in use: the checker finds nothing, also when a mount has done what was put off. */
void bad_sync(struct bed *bed)
{
	int err = tux3_sync(bed->volume);

	assert_true(!err || err == -EIO);
	assert_ok(tux3_sync(bed->volume));
}

void bad_end(struct bed *bed)
{
	bad_sync(bed);
	be_bad(bed, 0);
	bed_check(bed);
	bed_check(bed);
	bed_close(bed);
	env_set_log(NULL);
	bed->dev->ops->close(bed->dev);
}

static u64 leaf_of(struct bed *bed, struct tree_key key)
{
	struct volume *vol = tux3_core(bed->volume);
	struct bad_leaf leaf = { .key = key };

	assert_ok(delta_commit_unify(vol));
	assert_ok(tree_walk(vol, bad_see_leaf, &leaf));
	assert_true(leaf.addr);
	cache_shrink(vol, U64_MAX);
	return leaf.addr;
}

void bad_item(struct bed *bed, struct tree_key key)
{
	be_bad(bed, leaf_of(bed, key));
}

void bad_items(struct bed *bed, struct tree_key key, struct tree_key other)
{
	u64 addr = leaf_of(bed, other);

	bad_item(bed, key);
	bad_device(bed->dev)->bad[1] = addr;
}

/* Of a file made in this mount nobody looks before it is cut off. */
struct tux3_node *bad_new_pieces(struct bed *bed, const char *path)
{
	bad_make_pieces(bed, path, BAD_PIECES);
	return bed_find(bed, path);
}

int bad_unlink(struct bed *bed, const char *path)
{
	return tux3_path_unlink(bed->volume, NULL, path);
}

int bad_chown(struct tux3_node *node, u32 uid)
{
	struct tux3_stat stat = { .uid = uid };

	return tux3_setattr(node, NULL, &stat, TUX3_SET_UID);
}

void bad_forget_nodes(struct bed *bed)
{
	u32 i;

	for (i = 0; i < 3; i++)
		cache_shrink(tux3_core(bed->volume), U64_MAX);
}
