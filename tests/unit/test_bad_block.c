/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One node of the tree that cannot be read costs what is in it, and no more.  Each node in turn, and each kind of operation: what
 * cannot be done is refused, or put off, and all else is committed; the volume is opened for writing again, with the bad block; and
 * once that can be read, what was put off is done, and the checker finds nothing.
 *
 * TUX3_TEST_OP=name runs only that operation, TUX3_TEST_VERBOSE=1 shows what the code under test prints.
 */
#include "support_lib.h"
#include "core/blocks/balloc.h"
#include "core/data/data.h"
#include "core/open.h"
#include "core/repair/repair.h"
#include "core/tree/tree.h"
#include "user/env/log.h"
#include "user/lib/lib.h"

#include <errno.h>
#include <string.h>
#include <linux/falloc.h>

#define BLOCK	4096u
#define BYTES	(16u << 20)
#define PIECES	400u
#define FILES	150u
#define NODES	200u

/* ---- a device of which a block is bad ---- */

struct bad_device {
	struct tux3_device dev;
	struct tux3_device *below;
	u64 bad;		/* until it is written; 0: none is */
	u32 reads, failed;
};

static struct bad_device *bad_device(struct tux3_device *dev)
{
	return container_of(dev, struct bad_device, dev);
}

static int bad_read(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct bad_device *bad = bad_device(dev);

	bad->below->block_size = dev->block_size;
	bad->reads++;
	if (bad->bad && addr <= bad->bad && bad->bad < addr + count) {
		bad->failed++;
		return -EIO;
	}
	return device_read(bad->below, addr, count, data);
}

static void bad_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
		      struct io_wait *wait)
{
	struct bad_device *bad = bad_device(dev);
	u32 i, blocks = 0;

	for (i = 0; i < vecs; i++)
		blocks += vec[i].iov_len / dev->block_size;
	if (addr <= bad->bad && bad->bad < addr + blocks)	/* as disks do, it puts another sector there */
		bad->bad = 0;
	bad->below->block_size = dev->block_size;
	device_writev(bad->below, addr, vec, vecs, flags, wait);
}

static int bad_flush(struct tux3_device *dev)
{
	return device_flush(bad_device(dev)->below);
}

static void bad_kick(struct tux3_device *dev)
{
	device_kick(bad_device(dev)->below);
}

static void bad_close(struct tux3_device *dev)
{
	bad_device(dev)->below->ops->close(bad_device(dev)->below);
	free(bad_device(dev));
}

static const struct tux3_device_ops bad_ops = {
	.read = bad_read, .write = bad_write, .flush = bad_flush, .kick = bad_kick, .close = bad_close,
};

static void be_bad(struct bed *bed, u64 addr)
{
	bad_device(bed->dev)->bad = addr;
}

/* ---- the volume ---- */

static char data[BLOCK * 3];

/* A file in many pieces. */
static void make_pieces(struct bed *bed, const char *path, u32 pieces)
{
	struct tux3_node *node = bed_file(bed, path);
	u32 i;

	for (i = 0; i < pieces; i++)
		assert_int_equal(tux3_write(node, data, BLOCK, (u64)i * 2 * BLOCK), BLOCK);
	tux3_node_put(node, 1);
}

static void make_names_and_attributes(struct bed *bed)
{
	struct tux3_node *node = bed_file(bed, "/xattrs");
	char name[200];
	u32 i;

	for (i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "user.attr%u", i);
		assert_ok(tux3_setxattr(node, NULL, name, data, i % 10 ? 300 : 9000, 0));
	}
	for (i = 0; i < 120; i++) {
		snprintf(name, sizeof(name), "link%u-%0100u", i, i);
		assert_ok(tux3_link(node, NULL, bed->root, name));
	}
	tux3_node_put(node, 1);
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/big", 0755));
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/dir", 0755));
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/empty", 0755));
	for (i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "/big/f%u", i);
		node = bed_file(bed, name);
		assert_int_equal(tux3_write(node, data, i % 5 * 30, 0), i % 5 * 30);
		tux3_node_put(node, 1);
	}
	tux3_node_put(bed_file(bed, "/dir/file"), 1);
	tux3_node_put(bed_file(bed, "/file"), 1);
}

struct nodes {
	u64 addr[NODES];
	u32 count;
};

static int see_node(void *ctx, const struct tree_visit *visit)
{
	struct nodes *nodes = ctx;

	assert_non_null(visit->data);
	assert_true(nodes->count < NODES);
	nodes->addr[nodes->count++] = visit->addr;
	return 0;
}

/* Returns its bytes, to begin anew with, on a device of which a block may get bad. */
static u8 *close_and_save(struct bed *bed)
{
	struct bad_device *bad = calloc(1, sizeof(*bad));
	u8 *bytes = malloc(BYTES);

	assert_non_null(bad);
	assert_non_null(bytes);
	bed_close(bed);
	memcpy(bytes, device_memory_bytes(bed->dev), BYTES);
	bad->dev = *bed->dev;
	bad->dev.ops = &bad_ops;
	bad->below = bed->dev;
	bed->dev = &bad->dev;
	return bytes;
}

static u8 *make(struct bed *bed, struct nodes *nodes)
{
	memset(data, 'x', sizeof(data));
	bed->opts.manual = true;
	bed_make(bed, BYTES, BLOCK);
	make_pieces(bed, "/pieces", PIECES);
	make_pieces(bed, "/other", PIECES / 2);
	make_names_and_attributes(bed);
	bed_reopen(bed);
	assert_ok(tree_walk(tux3_core(bed->volume), see_node, nodes));
	assert_true(nodes->count > 20);
	return close_and_save(bed);
}

/* false: it cannot be. */
static bool try_open(struct bed *bed)
{
	char why[300] = "";

	if (tux3_open_device(bed->dev, false, &bed->opts, 0, &bed->volume, why, sizeof(why)))
		return false;
	bed->root = tux3_root(bed->volume);
	if (!bed->root)
		tux3_abandon(bed->volume);
	return bed->root;
}

/* ---- what is done to it ---- */

typedef int (*node_fn)(struct bed *bed, struct tux3_node *node);

static int with(struct bed *bed, const char *path, node_fn fn)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, path, 0, 0, &node);

	if (err)
		return err;
	err = fn(bed, node);
	tux3_node_put(node, 1);
	return err;
}

static int node_truncate(struct bed *bed, struct tux3_node *node)
{
	return tux3_truncate(node, 0);
}

static int node_truncate_half(struct bed *bed, struct tux3_node *node)
{
	return tux3_truncate(node, PIECES * BLOCK + 1);
}

/* If that failed nobody finds what was cut off, and if it did not the file is usable. */
static int node_truncate_grow(struct bed *bed, struct tux3_node *node)
{
	char byte = 1;
	int err = tux3_truncate(node, 0);

	if (!err)
		err = tux3_sync(bed->volume);
	if (!err)
		err = tux3_truncate(node, PIECES * BLOCK);
	if (!err && tux3_read(node, &byte, 1, 200 * BLOCK) == 1)
		assert_int_equal(byte, 0);
	return err;
}

static int node_punch(struct bed *bed, struct tux3_node *node)
{
	return tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100 * BLOCK, 600 * BLOCK);
}

static int node_zero(struct bed *bed, struct tux3_node *node)
{
	return tux3_fallocate(node, FALLOC_FL_ZERO_RANGE, 100 * BLOCK, 600 * BLOCK);
}

static int node_fallocate(struct bed *bed, struct tux3_node *node)
{
	return tux3_fallocate(node, 0, 100 * BLOCK, 600 * BLOCK);
}

static int node_collapse(struct bed *bed, struct tux3_node *node)
{
	return tux3_fallocate(node, FALLOC_FL_COLLAPSE_RANGE, 100 * BLOCK, 100 * BLOCK);
}

static int node_insert(struct bed *bed, struct tux3_node *node)
{
	return tux3_fallocate(node, FALLOC_FL_INSERT_RANGE, 100 * BLOCK, 100 * BLOCK);
}

static int node_exchange(struct bed *bed, struct tux3_node *node)
{
	struct tux3_node *other;
	int err = tux3_path(bed->volume, NULL, "/other", 0, 0, &other);

	if (err)
		return err;
	err = tux3_exchange_range(node, 0, other, 0, 200 * BLOCK, 0, NULL);
	tux3_node_put(other, 1);
	return err;
}

static int node_chmod(struct bed *bed, struct tux3_node *node)
{
	struct tux3_stat stat = { .mode = 0600 };

	return tux3_setattr(node, NULL, &stat, TUX3_SET_MODE);
}

static int node_link(struct bed *bed, struct tux3_node *node)
{
	return tux3_link(node, NULL, bed->root, "another");
}

static int node_set_xattr(struct bed *bed, struct tux3_node *node)
{
	return tux3_setxattr(node, NULL, "user.attr20", data, 5000, 0);
}

static int node_new_xattr(struct bed *bed, struct tux3_node *node)
{
	return tux3_setxattr(node, NULL, "user.new", data, 200, 0);
}

static int node_remove_xattr(struct bed *bed, struct tux3_node *node)
{
	return tux3_removexattr(node, NULL, "user.attr10");
}

/* What a write says, or the fsync after it: what cannot be committed is lost, and that is told. */
static int write_at(struct tux3_node *node, u64 block, u32 blocks)
{
	ssize_t len = tux3_write(node, data, blocks * BLOCK, block * BLOCK);

	return len < 0 ? len : len != blocks * BLOCK ? -EIO : 0;
}

/* Whole blocks here and there, which need not be read. */
static int node_overwrite(struct bed *bed, struct tux3_node *node)
{
	int err = 0, one;
	u32 i;

	for (i = 0; i < 2 * PIECES; i += 26) {
		one = write_at(node, i, 1);
		err = one ? one : err;
	}
	one = tux3_fsync(node, false);
	return one ? one : err;
}

/* All of it, holes and blocks. */
static int node_overwrite_all(struct bed *bed, struct tux3_node *node)
{
	int err = 0;
	u32 i;

	for (i = 0; i < 2 * PIECES && !err; i += 2)
		err = write_at(node, i, 2);
	return err ? err : tux3_fsync(node, false);
}

static int node_append(struct bed *bed, struct tux3_node *node)
{
	int err = write_at(node, 2 * PIECES - 1, 3);

	return err ? err : tux3_fsync(node, false);
}

/* Far behind its end, and then one block after the other, so that there is more than one commit. */
static int node_append_often(struct bed *bed, struct tux3_node *node)
{
	int err = 0;
	u32 i;

	for (i = 0; i < 6 && !err; i++) {
		err = write_at(node, 4 * PIECES + i, 1);
		if (!err)
			err = tux3_sync(bed->volume);
	}
	return err ? err : tux3_fsync(node, false);
}

static int node_fallocate_fsync(struct bed *bed, struct tux3_node *node)
{
	int err = node_fallocate(bed, node);

	if (!err)
		err = write_at(node, 101, 1);	/* of what it preallocated, and of what was there */
	if (!err)
		err = write_at(node, 700, 2);
	return err ? err : tux3_fsync(node, false);
}

/* Emptied and written again, in one delta. */
static int node_rewrite(struct bed *bed, struct tux3_node *node)
{
	int err = tux3_truncate(node, 0);

	if (!err)
		err = write_at(node, 0, 2);
	return err ? err : tux3_fsync(node, false);
}

static int node_rewrite_inline(struct bed *bed, struct tux3_node *node)
{
	int err = tux3_truncate(node, 0);

	if (!err)
		err = min_t(ssize_t, tux3_write(node, data, 10, 0), 0);
	return err ? err : tux3_fsync(node, false);
}

static int node_punch_and_write(struct bed *bed, struct tux3_node *node)
{
	int err = node_punch(bed, node);

	if (!err)
		err = write_at(node, 300, 2);
	return err ? err : tux3_fsync(node, false);
}

static int do_nothing(struct bed *bed)
{
	return 0;
}

static int do_unlink_link(struct bed *bed)
{
	char name[200];

	snprintf(name, sizeof(name), "/link%u-%0100u", 60, 60);
	return tux3_path_unlink(bed->volume, NULL, name);
}

static int do_unlink_all(struct bed *bed)
{
	char name[200];
	int err = 0, one;
	u32 i;

	for (i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "/big/f%u", i);
		one = tux3_path_unlink(bed->volume, NULL, name);
		err = one ? one : err;
	}
	return err;
}

/* Numbers of removed files are given away again. */
static int do_unlink_and_create(struct bed *bed)
{
	struct tux3_node *node;
	char name[200];
	int err = do_unlink_all(bed);
	u32 i;

	assert_ok(tux3_sync(bed->volume));
	for (i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "/big/new%u", i);
		if (!tux3_path(bed->volume, NULL, name, TUX3_CREATE, 0644, &node))
			tux3_node_put(node, 1);
	}
	return err;
}

/* Small ones, which stay inline, grow, or get a block; they lie here and there in the tree. */
static int do_write_all(struct bed *bed)
{
	struct tux3_node *node;
	char name[200];
	int err = 0, one;
	u32 i;

	for (i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "/big/f%u", i);
		one = tux3_path(bed->volume, NULL, name, 0, 0, &node);
		if (!one) {
			one = min_t(ssize_t, tux3_write(node, data, i % 3 ? 200 : BLOCK, i % 3 == 1 ? 50 : 0), 0);
			if (!one)
				one = tux3_fsync(node, false);
			tux3_node_put(node, 1);
		}
		err = one ? one : err;
	}
	return err;
}

static int do_rename_over(struct bed *bed)
{
	return tux3_path_rename(bed->volume, NULL, "/file", "/pieces", 0);
}

static int do_rename(struct bed *bed)
{
	return tux3_path_rename(bed->volume, NULL, "/xattrs", "/dir/moved", 0);
}

static int do_rename_in_big(struct bed *bed)
{
	return tux3_path_rename(bed->volume, NULL, "/big/f101", "/big/moved", 0);
}

static int do_rename_dir(struct bed *bed)
{
	return tux3_path_rename(bed->volume, NULL, "/dir", "/big/dir", 0);
}

static int do_rmdir(struct bed *bed)
{
	return tux3_rmdir(bed->root, NULL, "empty");
}

static int do_unlink(struct bed *bed, const char *path)
{
	return tux3_path_unlink(bed->volume, NULL, path);
}

/* In use when the power fails: the mount goes on with it. */
static int do_orphan(struct bed *bed)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, "/pieces", 0, 0, &node);

	if (err)
		return err;
	err = do_unlink(bed, "/pieces");
	assert_ok(tux3_sync(bed->volume));
	tux3_abandon(bed->volume);	/* with what is in use */
	assert_true(try_open(bed));
	return err;
}

/* What has no name is not cut off in slices. */
static int unlink_and_truncate(struct bed *bed, u64 size)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, "/pieces", 0, 0, &node);

	if (err)
		return err;
	err = do_unlink(bed, "/pieces");
	if (!err)
		err = tux3_truncate(node, size);
	assert_ok(tux3_sync(bed->volume));
	tux3_node_put(node, 1);
	return err;
}

static int do_truncate_nameless(struct bed *bed)
{
	return unlink_and_truncate(bed, 0);
}

static int do_truncate_half_nameless(struct bed *bed)
{
	return unlink_and_truncate(bed, PIECES * BLOCK + 1);
}

static const struct operation {
	const char *name;
	int (*fn)(struct bed *bed);
	const char *path;	/* of what node_fn is for, or what is unlinked */
	node_fn node_fn;
	bool in_use;		/* it changes nothing but the file */
} operations[] = {
	{ "nothing", .fn = do_nothing },
	{ "truncate", .path = "/pieces", .node_fn = node_truncate, .in_use = true },
	{ "truncate_half", .path = "/pieces", .node_fn = node_truncate_half, .in_use = true },
	{ "truncate_grow", .path = "/pieces", .node_fn = node_truncate_grow, .in_use = true },
	{ "punch", .path = "/pieces", .node_fn = node_punch, .in_use = true },
	{ "zero", .path = "/pieces", .node_fn = node_zero, .in_use = true },
	{ "fallocate", .path = "/pieces", .node_fn = node_fallocate, .in_use = true },
	{ "collapse", .path = "/pieces", .node_fn = node_collapse, .in_use = true },
	{ "insert", .path = "/pieces", .node_fn = node_insert, .in_use = true },
	{ "exchange", .path = "/pieces", .node_fn = node_exchange, .in_use = true },
	{ "overwrite", .path = "/pieces", .node_fn = node_overwrite, .in_use = true },
	{ "overwrite_all", .path = "/pieces", .node_fn = node_overwrite_all, .in_use = true },
	{ "append", .path = "/pieces", .node_fn = node_append, .in_use = true },
	{ "append_often", .path = "/pieces", .node_fn = node_append_often, .in_use = true },
	{ "fallocate_fsync", .path = "/pieces", .node_fn = node_fallocate_fsync, .in_use = true },
	{ "rewrite", .path = "/pieces", .node_fn = node_rewrite, .in_use = true },
	{ "rewrite_inline", .path = "/pieces", .node_fn = node_rewrite_inline, .in_use = true },
	{ "punch_and_write", .path = "/pieces", .node_fn = node_punch_and_write, .in_use = true },
	{ "write_all", .fn = do_write_all },
	{ "chmod", .path = "/pieces", .node_fn = node_chmod, .in_use = true },
	{ "link", .path = "/xattrs", .node_fn = node_link },
	{ "set_xattr", .path = "/xattrs", .node_fn = node_set_xattr },
	{ "new_xattr", .path = "/xattrs", .node_fn = node_new_xattr },
	{ "remove_xattr", .path = "/xattrs", .node_fn = node_remove_xattr },
	{ "unlink", .path = "/pieces" },
	{ "unlink_one_of_many", .path = "/xattrs" },
	{ "unlink_link", .fn = do_unlink_link },
	{ "unlink_in_big", .path = "/big/f100" },
	{ "unlink_all", .fn = do_unlink_all },
	{ "unlink_and_create", .fn = do_unlink_and_create },
	{ "rename", .fn = do_rename },
	{ "rename_over", .fn = do_rename_over },
	{ "rename_in_big", .fn = do_rename_in_big },
	{ "rename_dir", .fn = do_rename_dir },
	{ "rmdir", .fn = do_rmdir },
	{ "orphan", .fn = do_orphan },
	{ "truncate_nameless", .fn = do_truncate_nameless },
	{ "truncate_half_nameless", .fn = do_truncate_half_nameless },
};

static int operate(struct bed *bed, const struct operation *operation)
{
	if (operation->fn)
		return operation->fn(bed);
	if (operation->node_fn)
		return with(bed, operation->path, operation->node_fn);
	return do_unlink(bed, operation->path);
}

/* ---- and what comes of it ---- */

static int create(struct bed *bed, const char *path)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, path, TUX3_CREATE, 0644, &node);

	if (err)
		return err;
	assert_int_equal(tux3_write(node, data, BLOCK, 0), BLOCK);
	tux3_node_put(node, 1);
	return 0;
}

/* Something else is changed and committed; if its directory can be read. */
static bool goes_on(struct bed *bed, const char *path)
{
	int err = create(bed, path);

	assert_true(!err || err == -EIO || err == -ENOENT);	/* it may have been moved */
	assert_ok(tux3_sync(bed->volume));
	return !err;
}

/* How a volume with a bad block is treated. */
struct treatment {
	u32 slice_extents;	/* how much goes at a time when files are deleted or cut off; 0: all of these */
	u32 fsync;		/* TUX3_FSYNC_... */
	bool crash;		/* the power fails after the operation */
	bool writes;		/* only operations that change a file's data */
};

/* Returns whether the volume could be opened. */
static bool one_bad_node(struct bed *bed, const struct operation *operation, const struct treatment *treatment)
{
	struct tux3_node *node;
	bool made;
	int err;

	if (!try_open(bed))
		return false;
	err = operate(bed, operation);
	assert_true(!err || err == -EIO);
	made = goes_on(bed, "/dir/new");
	if (treatment->crash) {
		tux3_abandon(bed->volume);
		assert_true(try_open(bed));
	} else {
		bed_reopen(bed);
	}
	goes_on(bed, "/dir/newer");
	bed_close(bed);
	be_bad(bed, 0);
	bed_open(bed);
	node = bed_find(bed, "/dir/new");
	if (!node)
		node = bed_find(bed, "/big/dir/new");
	assert_true(!made || node);
	if (node)
		tux3_node_put(node, 1);
	bed_check(bed);
	bed_close(bed);
	return true;
}

static void see_message(int level, const char *message)
{
	if (getenv("TUX3_TEST_VERBOSE"))
		print_error("%s\n", message);
	assert_null(strstr(message, "not valid"));	/* all is, but cannot be read */
}

static void each_node(const struct treatment *treatment)
{
	struct bed bed = { .opts = { .slice_extents = treatment->slice_extents, .fsync = treatment->fsync } };
	const char *only = getenv("TUX3_TEST_OP");
	struct nodes nodes = {};
	u8 *bytes = make(&bed, &nodes);
	u32 i, k, opened;

	env_set_log(see_message);
	for (i = 0; i < ARRAY_SIZE(operations); i++) {
		if ((only && strcmp(only, operations[i].name)) || (treatment->writes && !operations[i].in_use))
			continue;
		for (k = opened = 0; k < nodes.count; k++) {
			if (getenv("TUX3_TEST_VERBOSE"))
				print_error("%s: node %u\n", operations[i].name, k);
			memcpy(device_memory_bytes(bad_device(bed.dev)->below), bytes, BYTES);
			be_bad(&bed, nodes.addr[k]);
			opened += one_bad_node(&bed, &operations[i], treatment);
		}
		assert_true(opened >= nodes.count - 2);		/* but without the root, and the leaf of the root directory */
	}
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

static void test_one_bad_node(void **state)
{
	each_node(&(struct treatment){});
}

static void test_one_bad_node_in_slices(void **state)
{
	each_node(&(struct treatment){ .slice_extents = 20 });
}

static void test_one_bad_node_and_a_crash(void **state)
{
	each_node(&(struct treatment){ .crash = true, .writes = true, .fsync = TUX3_FSYNC_AHEAD });
}

/* A file is in use, and all nodes have left memory, when one of them gets bad.  Of what else is in that leaf nothing is changed. */
static void gets_bad(struct bed *bed, const struct operation *operation, u64 bad)
{
	struct tux3_node *node, *other;
	int err;

	bed_open(bed);
	node = bed_find(bed, operation->path);
	other = bed_find(bed, "/other");
	cache_shrink(tux3_core(bed->volume), U64_MAX);
	be_bad(bed, bad);
	err = operation->node_fn(bed, node);
	assert_true(!err || err == -EIO);
	assert_ok(tux3_sync(bed->volume));
	assert_int_equal(tux3_write(other, data, BLOCK, 0), BLOCK);
	assert_ok(tux3_sync(bed->volume));
	err = node_chmod(bed, node);
	assert_true(!err || err == -EIO);
	err = tux3_fsync(node, false);
	assert_true(!err || err == -EIO);
	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_close(bed);
	be_bad(bed, 0);
	bed_open(bed);
	bed_check(bed);
	bed_close(bed);
}

static void test_node_that_gets_bad(void **state)
{
	const char *only = getenv("TUX3_TEST_OP");
	struct nodes nodes = {};
	struct bed bed = {};
	u8 *bytes = make(&bed, &nodes);
	u32 i, k;

	env_set_log(see_message);
	for (i = 0; i < ARRAY_SIZE(operations); i++) {
		if (!operations[i].in_use || (only && strcmp(only, operations[i].name)))
			continue;
		for (k = 0; k < nodes.count; k++) {
			if (getenv("TUX3_TEST_VERBOSE"))
				print_error("%s: node %u\n", operations[i].name, k);
			memcpy(device_memory_bytes(bad_device(bed.dev)->below), bytes, BYTES);
			be_bad(&bed, 0);
			gets_bad(&bed, &operations[i], nodes.addr[k]);
		}
	}
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

/* Of what was removed nothing is left, and it does not come back. */
static void test_repair_frees_what_was_put_off(void **state)
{
	struct repair_options opts = {};
	struct repair_result result;
	struct nodes nodes = {};
	struct bed bed = {};
	u8 *bytes = make(&bed, &nodes);
	char why[300];
	u32 k;

	env_set_log(see_message);
	for (k = 0; k < nodes.count; k++) {
		memcpy(device_memory_bytes(bad_device(bed.dev)->below), bytes, BYTES);
		be_bad(&bed, nodes.addr[k]);
		if (!try_open(&bed))
			continue;
		if (do_unlink(&bed, "/pieces")) {
			bed_close(&bed);
			continue;
		}
		bed_close(&bed);
		assert_ok(volume_repair(bed.dev, &opts, &result, why, sizeof(why)));
		assert_int_equal(result.notes[REPAIR_LEFT], 0);
		assert_int_equal(result.check.problems, 0);
		bed_open(&bed);
		assert_null(bed_find(&bed, "/pieces"));
		assert_true(goes_on(&bed, "/new"));
		bed_close(&bed);
	}
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

/* What is free, when everything is committed and what can be given back was. */
static u64 free_blocks(struct bed *bed)
{
	struct tux3_statfs statfs;

	assert_ok(tux3_sync(bed->volume));
	tux3_statfs(bed->volume, &statfs);
	return statfs.free_blocks;
}

struct leaf {
	struct tree_key key;
	u64 addr;
};

static int see_leaf(void *ctx, const struct tree_visit *visit)
{
	struct leaf *leaf = ctx;

	if (!visit->level && tree_key_compare(&visit->low, &leaf->key) <= 0 &&
	    (!visit->has_high || tree_key_compare(&leaf->key, &visit->high) < 0))
		leaf->addr = visit->addr;
	return 0;
}

/* The one that has the extent of this block. */
static u64 leaf_of_pieces(struct bed *bed, u64 block)
{
	struct leaf leaf = {};

	bed_open(bed);
	leaf.key = tree_key(bed_file_ino(bed, "/pieces"), TUX3_ITEM_EXTENT, block);
	assert_ok(tree_walk(tux3_core(bed->volume), see_leaf, &leaf));
	assert_true(leaf.addr);
	bed_close(bed);
	return leaf.addr;
}

/* What is lost of a write is told once; the rest of it, and of the delta, is there; and nothing is used for it. */
static void test_write_is_told_once(void **state)
{
	struct tux3_node *node, *other;
	struct nodes nodes = {};
	struct bed bed = {};
	u8 *bytes = make(&bed, &nodes);
	u64 leaf = leaf_of_pieces(&bed, 600), left;
	char byte;

	env_set_log(see_message);
	be_bad(&bed, leaf);
	bed_open(&bed);
	node = bed_find(&bed, "/pieces");
	other = bed_find(&bed, "/other");
	left = free_blocks(&bed);
	memset(data, 'n', sizeof(data));
	assert_ok(write_at(node, 0, 1));		/* in another leaf */
	assert_ok(write_at(node, 600, 3));
	assert_ok(write_at(other, 4, 1));
	assert_int_equal(free_blocks(&bed), left);
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_ok(tux3_fsync(node, false));
	assert_ok(tux3_fsync(other, false));
	/* In the cache it is still, as after a write that failed elsewhere; but no longer. */
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), 1);
	assert_int_equal(byte, 'n');
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "/pieces");
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), -EIO);
	assert_int_equal(tux3_read(node, &byte, 1, 0), 1);
	assert_int_equal(byte, 'n');
	tux3_node_put(node, 1);
	bed_close(&bed);
	be_bad(&bed, 0);
	bed_open(&bed);
	node = bed_find(&bed, "/pieces");
	assert_int_equal(tux3_read(node, &byte, 1, 600 * BLOCK), 1);
	assert_int_equal(byte, 'x');
	assert_int_equal(tux3_read(node, &byte, 1, 601 * BLOCK), 1);
	assert_int_equal(byte, 0);
	tux3_node_put(node, 1);
	bed_check(&bed);
	bed_close(&bed);
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

static u64 went_ahead(struct bed *bed)
{
	return delta_counter(tux3_core(bed->volume), TUX3_COUNT_FSYNCS_AHEAD);
}

/* An fsync that writes an intent says that all is well: so it does not, where a commit would leave something out. */
static void test_fsync_does_not_go_ahead(void **state)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD };
	struct tux3_node *node, *other;
	struct nodes nodes = {};
	u8 *bytes = make(&bed, &nodes);
	u64 leaf = leaf_of_pieces(&bed, 600), ahead;
	u32 i;

	env_set_log(see_message);
	be_bad(&bed, leaf);
	bed_open(&bed);
	node = bed_find(&bed, "/pieces");
	other = bed_find(&bed, "/other");
	for (i = 0; i < 3; i++) {	/* the first one makes the area */
		assert_ok(write_at(other, 4, 1));
		assert_ok(tux3_fsync(other, false));
	}
	ahead = went_ahead(&bed);
	assert_true(ahead);
	assert_ok(write_at(node, 0, 1));
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(went_ahead(&bed), ++ahead);
	assert_ok(write_at(node, 600, 1));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_int_equal(went_ahead(&bed), ahead);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	tux3_abandon(bed.volume);
	assert_true(try_open(&bed));
	bed_close(&bed);
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

#define USERS	300u

static int chown_to(struct tux3_node *node, u32 uid)
{
	struct tux3_stat stat = { .uid = uid };

	return tux3_setattr(node, NULL, &stat, TUX3_SET_UID);
}

/* Each user has a file of a block; so usage is in several leaves. */
static void make_users(struct bed *bed)
{
	struct tux3_node *node;
	char name[32];
	u32 i;

	bed_make(bed, BYTES, BLOCK);
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/dir", 0755));
	for (i = 0; i < USERS; i++) {
		snprintf(name, sizeof(name), "/dir/u%u", i);
		node = bed_file(bed, name);
		assert_ok(chown_to(node, 1000 + i));
		assert_int_equal(tux3_write(node, data, BLOCK, 0), BLOCK);
		tux3_node_put(node, 1);
	}
}

static int user_write(struct bed *bed, struct tux3_node *node)
{
	return write_at(node, 0, 2);
}

static int user_punch(struct bed *bed, struct tux3_node *node)
{
	return tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK);
}

static int user_set_xattr(struct bed *bed, struct tux3_node *node)
{
	return tux3_setxattr(node, NULL, "user.large", data, 2 * BLOCK, 0);
}

static int user_chown_away(struct bed *bed, struct tux3_node *node)
{
	return chown_to(node, 0);
}

static int user_chown_here(struct bed *bed, struct tux3_node *node)
{
	struct tux3_node *new = bed_file(bed, "/new");
	int err = chown_to(new, 1000 + USERS / 2);

	tux3_node_put(new, 1);
	return err;
}

/* Which goes when it is out of use, but cannot be freed. */
static int user_unlink(struct bed *bed, struct tux3_node *node)
{
	char name[32];

	snprintf(name, sizeof(name), "/dir/u%u", USERS / 2);
	return do_unlink(bed, name);
}

static const struct {
	node_fn fn;
	int err;
} user_operations[] = {
	{ user_write, -EIO },
	{ user_punch, -EIO },
	{ user_set_xattr, -EIO },
	{ user_chown_away, -EIO },
	{ user_chown_here, -EIO },
	{ node_truncate, -EIO },
	{ node_fallocate, -EIO },
	{ node_chmod, 0 },
	{ user_unlink, 0 },
};

static void user_operation(struct bed *bed, u32 which)
{
	struct tux3_node *node, *other;
	char name[32];

	assert_true(try_open(bed));
	snprintf(name, sizeof(name), "/dir/u%u", USERS / 2);
	node = bed_find(bed, name);
	other = bed_find(bed, "/dir/u0");
	assert_int_equal(user_operations[which].fn(bed, node), user_operations[which].err);
	assert_ok(write_at(other, 0, 3));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	assert_ok(tux3_sync(bed->volume));
	tux3_abandon(bed->volume);
	assert_true(try_open(bed));
	bed_close(bed);
	be_bad(bed, 0);
	bed_open(bed);
	bed_check(bed);
	bed_close(bed);
}

/* Where usage cannot be read nothing is changed that it depends on. */
static void test_bad_usage(void **state)
{
	struct leaf leaf = { .key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 1000 + USERS / 2) };
	struct bed bed = { .opts.manual = true, .quota = true };
	u8 *bytes;
	u32 i;

	make_users(&bed);
	bed_reopen(&bed);
	assert_ok(tree_walk(tux3_core(bed.volume), see_leaf, &leaf));
	bytes = close_and_save(&bed);
	env_set_log(see_message);
	for (i = 0; i < ARRAY_SIZE(user_operations); i++) {
		memcpy(device_memory_bytes(bad_device(bed.dev)->below), bytes, BYTES);
		be_bad(&bed, leaf.addr);
		user_operation(&bed, i);
	}
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

#define GROUPS_BYTES	(512u << 20)	/* a group has 127 MiB */

/* Of the group that has the file's first block.  What else is changed in this test is elsewhere. */
static u64 map_of(struct bed *bed, const char *path, unsigned int slot)
{
	struct volume *vol = tux3_core(bed->volume);
	struct tux3_node *node = bed_find(bed, path);
	struct data_extent extent;

	assert_ok(data_map(&node->inode, 0, 1, &extent, NULL, 0));
	assert_int_equal(extent.kind, DATA_MAPPED);
	tux3_node_put(node, 1);
	assert_true(extent.addr / vol->group_blocks);
	return balloc_slot_addr(vol, extent.addr / vol->group_blocks, slot);
}

/* What is written over frees blocks: if their free map cannot be read, it is lost, too. */
static void bad_map(unsigned int slot)
{
	struct bad_device *bad = calloc(1, sizeof(*bad));
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node, *other;

	assert_non_null(bad);
	bed_make(&bed, GROUPS_BYTES, BLOCK);
	node = bed_file(&bed, "/large");
	assert_ok(tux3_fallocate(node, 0, 0, 300u << 20));
	tux3_node_put(node, 1);
	make_pieces(&bed, "/pieces", 50);
	bed_reopen(&bed);
	bad->bad = map_of(&bed, "/pieces", slot);
	bed_close(&bed);
	bad->dev = *bed.dev;
	bad->dev.ops = &bad_ops;
	bad->below = bed.dev;
	bed.dev = &bad->dev;
	env_set_log(see_message);
	assert_true(try_open(&bed));
	node = bed_find(&bed, "/pieces");
	other = bed_find(&bed, "/large");
	assert_ok(write_at(node, 0, 1));
	assert_ok(write_at(other, 0, 1));
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_ok(tux3_fsync(node, false));
	assert_ok(tux3_fsync(other, false));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	tux3_abandon(bed.volume);
	assert_true(try_open(&bed));
	bed_close(&bed);
	bad->bad = 0;
	bed_open(&bed);
	bed_check(&bed);
	bed_free(&bed);
	env_set_log(NULL);
}

static void test_bad_map(void **state)
{
	bad_map(0);		/* either: which of the two is newer cannot be told then */
	bad_map(1);
}

static void begin_bad(struct bed *bed)
{
	struct nodes nodes = {};

	free(make(bed, &nodes));
	env_set_log(see_message);
	bed_open(bed);
}

/* Of a volume in use: the checker finds nothing, also when a mount has done what was put off. */
static void end_bad(struct bed *bed)
{
	be_bad(bed, 0);
	bed_check(bed);
	bed_check(bed);
	bed_close(bed);
	env_set_log(NULL);
	bed->dev->ops->close(bed->dev);
}

/* The leaf that has this item of a volume in use gets bad, after all nodes have left memory. */
static void item_gets_bad(struct bed *bed, struct tree_key key)
{
	struct volume *vol = tux3_core(bed->volume);
	struct leaf leaf = { .key = key };

	assert_ok(delta_commit_unify(vol));
	assert_ok(tree_walk(vol, see_leaf, &leaf));
	assert_true(leaf.addr);
	cache_shrink(vol, U64_MAX);
	be_bad(bed, leaf.addr);
}

/* Of a file made in this mount nobody looks before it is cut off. */
static struct tux3_node *new_pieces(struct bed *bed, const char *path)
{
	make_pieces(bed, path, PIECES);
	return bed_find(bed, path);
}

/* A file without a name, which the tree knows, is written to. */
static void test_nameless_is_written(void **state)
{
	struct bed bed = {};
	struct tux3_node *node, *other;

	begin_bad(&bed);
	node = bed_find(&bed, "/pieces");
	other = bed_find(&bed, "/other");
	assert_ok(do_unlink(&bed, "/pieces"));
	assert_ok(tux3_sync(bed.volume));
	item_gets_bad(&bed, tree_key(node->inode.ino, TUX3_ITEM_ATTR, 0));
	assert_ok(write_at(node, 0, 1));
	assert_ok(write_at(other, 4, 1));
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_ok(tux3_fsync(other, false));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	assert_ok(tux3_sync(bed.volume));
	end_bad(&bed);
}

/* What could not be cut off is behind the end of the file, whatever was written since. */
static void cut_is_left(bool writes)
{
	struct bed bed = {};
	struct tux3_node *node;
	char byte = 0;

	begin_bad(&bed);
	node = new_pieces(&bed, "/dir/pieces");
	item_gets_bad(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	assert_ok(tux3_truncate(node, 0));
	if (writes)
		assert_ok(write_at(node, 0, 2));
	else
		assert_ok(tux3_truncate(node, PIECES * BLOCK));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	tux3_node_put(node, 1);
	tux3_abandon(bed.volume);
	assert_true(try_open(&bed));
	node = bed_find(&bed, "/dir/pieces");
	if (tux3_read(node, &byte, 1, 0) == 1)
		assert_int_equal(byte, 0);
	tux3_node_put(node, 1);
	end_bad(&bed);
}

static void test_cut_is_left(void **state)
{
	cut_is_left(true);
	cut_is_left(false);
}

/* What cannot be committed of a file that is stuck is told, its size, too. */
static void test_size_of_stuck_file(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	struct tux3_stat stat;
	int err;

	begin_bad(&bed);
	node = bed_find(&bed, "/pieces");
	item_gets_bad(&bed, tree_key(node->inode.ino, TUX3_ITEM_ATTR, 0));
	assert_ok(write_at(node, 0, 1));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	be_bad(&bed, 0);
	err = tux3_truncate(node, 4 * PIECES * BLOCK);
	if (!err)
		err = tux3_fsync(node, false);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	node = bed_find(&bed, "/pieces");
	assert_ok(tux3_stat_node(node, &stat));
	assert_true(err == -EIO || stat.size == 4 * PIECES * BLOCK);
	tux3_node_put(node, 1);
	end_bad(&bed);
}

/* Attributes alone that are lost make no file stuck. */
static void test_attributes_are_lost(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	begin_bad(&bed);
	node = bed_find(&bed, "/pieces");
	item_gets_bad(&bed, tree_key(node->inode.ino, TUX3_ITEM_ATTR, 0));
	assert_ok(node_chmod(&bed, node));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	be_bad(&bed, 0);
	assert_ok(write_at(node, 0, 1));
	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
	end_bad(&bed);
}

/* Without a name it is not cut off later, but it may get one. */
static void test_nameless_gets_a_name(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u32 i;

	begin_bad(&bed);
	assert_ok(tux3_tmpfile(bed.root, NULL, 0644, &node));
	for (i = 0; i < PIECES; i++)
		assert_ok(write_at(node, 2 * i, 1));
	item_gets_bad(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_ok(tux3_link(node, NULL, bed.root, "linked"));
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	tux3_abandon(bed.volume);
	assert_true(try_open(&bed));
	end_bad(&bed);
}

/* An fsync of a file of which something was punched goes by a commit, and so does not look at all of it. */
static void test_fsync_reads_little(void **state)
{
	struct bed bed = { .opts.fsync = TUX3_FSYNC_AHEAD };
	struct tux3_node *node;
	u32 i, reads;

	begin_bad(&bed);
	node = bed_find(&bed, "/other");
	for (i = 0; i < 3; i++) {
		assert_ok(write_at(node, 4, 1));
		assert_ok(tux3_fsync(node, false));
	}
	tux3_node_put(node, 1);
	node = bed_find(&bed, "/pieces");
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK));
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * BLOCK, BLOCK));
	cache_shrink(tux3_core(bed.volume), U64_MAX);
	reads = bad_device(bed.dev)->reads;
	assert_ok(tux3_fsync(node, false));
	reads = bad_device(bed.dev)->reads - reads;
	assert_true(reads < 5);
	tux3_node_put(node, 1);
	end_bad(&bed);
}

/* A disk may try for many seconds to read a bad block: it is asked as few times as can be. */
static void test_bad_leaf_is_read_seldom(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	u32 i, failed;

	begin_bad(&bed);
	node = bed_find(&bed, "/pieces");
	item_gets_bad(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	for (i = 500; i < 700; i += 2)
		assert_ok(write_at(node, i, 1));
	failed = bad_device(bed.dev)->failed;
	assert_int_equal(tux3_fsync(node, false), -EIO);
	failed = bad_device(bed.dev)->failed - failed;
	assert_true(failed < 10);
	tux3_node_put(node, 1);
	end_bad(&bed);
}

/* The node number which of those of a volume in use gets bad, when all have left memory.  false: there are no more. */
static bool node_gets_bad(struct bed *bed, u32 which)
{
	struct volume *vol = tux3_core(bed->volume);
	struct nodes nodes = {};

	assert_ok(delta_commit_unify(vol));
	assert_ok(tree_walk(vol, see_node, &nodes));
	cache_shrink(vol, U64_MAX);
	be_bad(bed, which < nodes.count ? nodes.addr[which] : 0);
	return which < nodes.count;
}

/* In how many ways a file that was made in this mount, or has no name, is changed when a node gets bad. */
enum { WAY_NAMED, WAY_NAMELESS, WAY_TMPFILE, WAYS };

static bool new_file_gets_bad(struct bed *bed, const struct operation *operation, u32 way, u32 which)
{
	struct tux3_node *node, *other;
	bool more;
	u32 i;
	int err;

	bed_open(bed);
	other = bed_find(bed, "/other");
	if (way == WAY_TMPFILE)
		assert_ok(tux3_tmpfile(bed->root, NULL, 0644, &node));
	else
		node = bed_file(bed, "/dir/pieces");
	for (i = 0; i < PIECES; i++)
		assert_ok(write_at(node, 2 * i, 1));
	if (way == WAY_NAMELESS)
		assert_ok(do_unlink(bed, "/dir/pieces"));
	more = node_gets_bad(bed, which);
	err = operation->node_fn(bed, node);
	assert_true(!err || err == -EIO);
	assert_ok(tux3_sync(bed->volume));
	err = operation->node_fn(bed, node);		/* of one that is stuck, perhaps */
	assert_true(!err || err == -EIO);
	assert_ok(tux3_sync(bed->volume));
	err = tux3_fsync(node, false);
	assert_true(!err || err == -EIO);
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(tux3_write(other, data, BLOCK, 0), BLOCK);
	assert_ok(tux3_sync(bed->volume));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	assert_ok(tux3_sync(bed->volume));
	be_bad(bed, 0);
	bed_check(bed);
	bed_close(bed);
	return more;
}

static void each_new_file(u32 slice_extents, u32 ways)
{
	struct bed bed = { .opts.slice_extents = slice_extents };
	const char *only = getenv("TUX3_TEST_OP");
	struct nodes nodes = {};
	u8 *bytes = make(&bed, &nodes);
	u32 way, i, k;
	bool more;

	env_set_log(see_message);
	for (way = 0; way < ways; way++) {
		for (i = 0; i < ARRAY_SIZE(operations); i++) {
			if (!operations[i].in_use || (only && strcmp(only, operations[i].name)))
				continue;
			for (k = 0, more = true; more; k++) {
				if (getenv("TUX3_TEST_VERBOSE"))
					print_error("%s: way %u, node %u\n", operations[i].name, way, k);
				memcpy(device_memory_bytes(bad_device(bed.dev)->below), bytes, BYTES);
				be_bad(&bed, 0);
				more = new_file_gets_bad(&bed, &operations[i], way, k);
			}
		}
	}
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

static void test_new_file_that_gets_bad(void **state)
{
	each_new_file(0, WAYS);
	each_new_file(20, WAY_NAMED + 1);		/* what has no name is not cut off in slices */
}

/* What was inline goes with all that is behind it, or not at all: its extents were in the leaf of the next inode, too. */
static void test_inline_is_cut(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char name[32];
	u32 i;

	begin_bad(&bed);
	node = new_pieces(&bed, "/dir/pieces");
	for (i = 0; i < 11; i++) {	/* so that leaves are not merged */
		snprintf(name, sizeof(name), "user.attr%u", i);
		assert_ok(tux3_setxattr(node, NULL, name, data, 300, 0));
	}
	tux3_node_put(new_pieces(&bed, "/dir/behind"), 1);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(tux3_write(node, data, 10, 0), 10);
	item_gets_bad(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 2 * PIECES - 1));
	assert_ok(tux3_truncate(node, 0));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	tux3_node_put(node, 1);
	be_bad(&bed, 0);
	bed_check(&bed);
	node = bed_find(&bed, "/dir/pieces");
	assert_int_equal(tux3_read(node, name, 1, 0), 1);
	tux3_node_put(node, 1);
	end_bad(&bed);
}

/* A stuck file can be removed, and when its leaf can be read again nothing of it is left.  So can one be put in its place. */
static void stuck_is_removed(bool held, bool replaced)
{
	struct bed bed = {};
	struct tux3_node *node;

	begin_bad(&bed);
	node = new_pieces(&bed, "/dir/pieces");
	item_gets_bad(&bed, tree_key(node->inode.ino, TUX3_ITEM_EXTENT, 600));
	assert_ok(tux3_truncate(node, 0));
	assert_ok(write_at(node, 0, 3));
	assert_int_equal(tux3_fsync(node, false), -EIO);
	assert_int_equal(write_at(node, 0, 1), -EIO);
	if (!held)
		tux3_node_put(node, 1);
	if (replaced)
		assert_ok(tux3_path_rename(bed.volume, NULL, "/dir/file", "/dir/pieces", 0));
	else
		assert_ok(do_unlink(&bed, "/dir/pieces"));
	assert_ok(tux3_sync(bed.volume));
	if (held)
		tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed.volume));
	end_bad(&bed);
}

static void test_stuck_is_removed(void **state)
{
	u32 i;

	for (i = 0; i < 4; i++)
		stuck_is_removed(i & 1, i & 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_bad_node),
		cmocka_unit_test(test_one_bad_node_in_slices),
		cmocka_unit_test(test_one_bad_node_and_a_crash),
		cmocka_unit_test(test_node_that_gets_bad),
		cmocka_unit_test(test_write_is_told_once),
		cmocka_unit_test(test_fsync_does_not_go_ahead),
		cmocka_unit_test(test_bad_usage),
		cmocka_unit_test(test_bad_map),
		cmocka_unit_test(test_repair_frees_what_was_put_off),
		cmocka_unit_test(test_nameless_is_written),
		cmocka_unit_test(test_inline_is_cut),
		cmocka_unit_test(test_stuck_is_removed),
		cmocka_unit_test(test_new_file_that_gets_bad),
		cmocka_unit_test(test_cut_is_left),
		cmocka_unit_test(test_size_of_stuck_file),
		cmocka_unit_test(test_attributes_are_lost),
		cmocka_unit_test(test_nameless_gets_a_name),
		cmocka_unit_test(test_fsync_reads_little),
		cmocka_unit_test(test_bad_leaf_is_read_seldom),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
