/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One node of the tree that cannot be read costs what is in it, and no more.  Each node in turn, and each kind of operation: what
 * cannot be done is refused, or put off, and all else is committed; the volume is opened for writing again, with the bad block; and
 * once that can be read, what was put off is done, and the checker finds nothing.
 *
 * TUX3_TEST_OP=name runs only that operation.
 */
#include "support_bad.h"
#include "core/open.h"
#include "core/repair/repair.h"
#include "user/env/log.h"

#include <errno.h>
#include <string.h>
#include <linux/falloc.h>

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
	return tux3_truncate(node, BAD_PIECES * BLOCK + 1);
}

/* If that failed nobody finds what was cut off, and if it did not the file is usable. */
static int node_truncate_grow(struct bed *bed, struct tux3_node *node)
{
	char byte = 1;
	int err = tux3_truncate(node, 0);

	if (!err)
		err = tux3_sync(bed->volume);
	if (!err)
		err = tux3_truncate(node, BAD_PIECES * BLOCK);
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
	return tux3_setxattr(node, NULL, "user.attr20", bad_data, 5000, 0);
}

static int node_new_xattr(struct bed *bed, struct tux3_node *node)
{
	return tux3_setxattr(node, NULL, "user.new", bad_data, 200, 0);
}

static int node_remove_xattr(struct bed *bed, struct tux3_node *node)
{
	return tux3_removexattr(node, NULL, "user.attr10");
}

/* Whole blocks here and there, which need not be read. */
static int node_overwrite(struct bed *bed, struct tux3_node *node)
{
	int err = 0, one;
	u32 i;

	for (i = 0; i < 2 * BAD_PIECES; i += 26) {
		one = bad_write(node, i, 1);
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

	for (i = 0; i < 2 * BAD_PIECES && !err; i += 2)
		err = bad_write(node, i, 2);
	return err ? err : tux3_fsync(node, false);
}

static int node_append(struct bed *bed, struct tux3_node *node)
{
	int err = bad_write(node, 2 * BAD_PIECES - 1, 3);

	return err ? err : tux3_fsync(node, false);
}

/* Far behind its end, and then one block after the other, so that there is more than one commit. */
static int node_append_often(struct bed *bed, struct tux3_node *node)
{
	int err = 0;
	u32 i;

	for (i = 0; i < 6 && !err; i++) {
		err = bad_write(node, 4 * BAD_PIECES + i, 1);
		if (!err)
			err = tux3_sync(bed->volume);
	}
	return err ? err : tux3_fsync(node, false);
}

static int node_fallocate_fsync(struct bed *bed, struct tux3_node *node)
{
	int err = node_fallocate(bed, node);

	if (!err)
		err = bad_write(node, 101, 1);	/* of what it preallocated, and of what was there */
	if (!err)
		err = bad_write(node, 700, 2);
	return err ? err : tux3_fsync(node, false);
}

/* Emptied and written again, in one delta. */
static int node_rewrite(struct bed *bed, struct tux3_node *node)
{
	int err = tux3_truncate(node, 0);

	if (!err)
		err = bad_write(node, 0, 2);
	return err ? err : tux3_fsync(node, false);
}

static int node_rewrite_inline(struct bed *bed, struct tux3_node *node)
{
	int err = tux3_truncate(node, 0);

	if (!err)
		err = min_t(ssize_t, tux3_write(node, bad_data, 10, 0), 0);
	return err ? err : tux3_fsync(node, false);
}

static int node_punch_and_write(struct bed *bed, struct tux3_node *node)
{
	int err = node_punch(bed, node);

	if (!err)
		err = bad_write(node, 300, 2);
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

	for (i = 0; i < BAD_FILES; i++) {
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

	bad_sync(bed);
	for (i = 0; i < BAD_FILES; i++) {
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

	for (i = 0; i < BAD_FILES; i++) {
		snprintf(name, sizeof(name), "/big/f%u", i);
		one = tux3_path(bed->volume, NULL, name, 0, 0, &node);
		if (!one) {
			one = min_t(ssize_t, tux3_write(node, bad_data, i % 3 ? 200 : BLOCK, i % 3 == 1 ? 50 : 0), 0);
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

/* In use when the power fails: the mount goes on with it. */
static int do_orphan(struct bed *bed)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, "/pieces", 0, 0, &node);

	if (err)
		return err;
	err = bad_unlink(bed, "/pieces");
	bad_sync(bed);
	tux3_abandon(bed->volume);	/* with what is in use */
	assert_true(bad_open(bed));
	return err;
}

/* What has no name is not cut off in slices. */
static int unlink_and_truncate(struct bed *bed, u64 size)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, "/pieces", 0, 0, &node);

	if (err)
		return err;
	err = bad_unlink(bed, "/pieces");
	if (!err)
		err = tux3_truncate(node, size);
	bad_sync(bed);
	tux3_node_put(node, 1);
	return err;
}

static int do_truncate_nameless(struct bed *bed)
{
	return unlink_and_truncate(bed, 0);
}

static int do_truncate_half_nameless(struct bed *bed)
{
	return unlink_and_truncate(bed, BAD_PIECES * BLOCK + 1);
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
	return bad_unlink(bed, operation->path);
}

/* ---- and what comes of it ---- */

static int create(struct bed *bed, const char *path)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, path, TUX3_CREATE, 0644, &node);

	if (err)
		return err;
	assert_int_equal(tux3_write(node, bad_data, BLOCK, 0), BLOCK);
	tux3_node_put(node, 1);
	return 0;
}

/* Something else is changed and committed; if its directory can be read. */
static bool goes_on(struct bed *bed, const char *path)
{
	int err = create(bed, path);

	assert_true(!err || err == -EIO || err == -ENOENT);	/* it may have been moved */
	bad_sync(bed);
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

	if (!bad_open(bed))
		return false;
	err = operate(bed, operation);
	assert_true(!err || err == -EIO);
	made = goes_on(bed, "/dir/new");
	if (treatment->crash) {
		tux3_abandon(bed->volume);
		assert_true(bad_open(bed));
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

static void each_node(const struct treatment *treatment)
{
	struct bed bed = { .opts = { .slice_extents = treatment->slice_extents, .fsync = treatment->fsync } };
	const char *only = getenv("TUX3_TEST_OP");
	struct bad_nodes nodes = {};
	u8 *bytes = bad_make(&bed, &nodes);
	u32 i, k, tried, opened;

	env_set_log(bad_message);
	for (i = 0; i < ARRAY_SIZE(operations); i++) {
		if ((only && strcmp(only, operations[i].name)) || (treatment->writes && !operations[i].in_use))
			continue;
		for (k = i % EACH_NODE, tried = opened = 0; k < nodes.count; k += EACH_NODE, tried++) {
			if (getenv("TUX3_TEST_VERBOSE"))
				print_error("%s: node %u\n", operations[i].name, k);
			bad_anew(&bed, bytes, nodes.addr[k]);
			opened += one_bad_node(&bed, &operations[i], treatment);
		}
		assert_true(opened + 2 >= tried);		/* but without the root, and the leaf of the root directory */
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
	bad_sync(bed);
	assert_int_equal(tux3_write(other, bad_data, BLOCK, 0), BLOCK);
	bad_sync(bed);
	err = node_chmod(bed, node);
	assert_true(!err || err == -EIO);
	err = tux3_fsync(node, false);
	assert_true(!err || err == -EIO);
	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bad_sync(bed);
	bed_close(bed);
	be_bad(bed, 0);
	bed_open(bed);
	bed_check(bed);
	bed_close(bed);
}

static void test_node_that_gets_bad(void **state)
{
	const char *only = getenv("TUX3_TEST_OP");
	struct bad_nodes nodes = {};
	struct bed bed = {};
	u8 *bytes = bad_make(&bed, &nodes);
	u32 i, k;

	env_set_log(bad_message);
	for (i = 0; i < ARRAY_SIZE(operations); i++) {
		if (!operations[i].in_use || (only && strcmp(only, operations[i].name)))
			continue;
		for (k = i % EACH_NODE; k < nodes.count; k += EACH_NODE) {
			if (getenv("TUX3_TEST_VERBOSE"))
				print_error("%s: node %u\n", operations[i].name, k);
			bad_anew(&bed, bytes, 0);
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
	struct bad_nodes nodes = {};
	struct bed bed = {};
	u8 *bytes = bad_make(&bed, &nodes);
	char why[300];
	u32 k;

	env_set_log(bad_message);
	for (k = 0; k < nodes.count; k++) {
		bad_anew(&bed, bytes, nodes.addr[k]);
		if (!bad_open(&bed))
			continue;
		if (bad_unlink(&bed, "/pieces")) {
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

#define USERS	300u

/* Each user has a file of a block; so usage is in several leaves. */
static void make_users(struct bed *bed)
{
	struct tux3_node *node;
	char name[32];
	u32 i;

	bed_make(bed, BAD_BYTES, BLOCK);
	assert_ok(tux3_path_mkdir(bed->volume, NULL, "/dir", 0755));
	for (i = 0; i < USERS; i++) {
		snprintf(name, sizeof(name), "/dir/u%u", i);
		node = bed_file(bed, name);
		assert_ok(bad_chown(node, 1000 + i));
		assert_int_equal(tux3_write(node, bad_data, BLOCK, 0), BLOCK);
		tux3_node_put(node, 1);
	}
}

static int user_write(struct bed *bed, struct tux3_node *node)
{
	return bad_write(node, 0, 2);
}

static int user_punch(struct bed *bed, struct tux3_node *node)
{
	return tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK);
}

static int user_set_xattr(struct bed *bed, struct tux3_node *node)
{
	return tux3_setxattr(node, NULL, "user.large", bad_data, 2 * BLOCK, 0);
}

static int user_chown_away(struct bed *bed, struct tux3_node *node)
{
	return bad_chown(node, 0);
}

static int user_chown_here(struct bed *bed, struct tux3_node *node)
{
	struct tux3_node *new = bed_file(bed, "/new");
	int err = bad_chown(new, 1000 + USERS / 2);

	tux3_node_put(new, 1);
	return err;
}

/* Which goes when it is out of use, but cannot be freed. */
static int user_unlink(struct bed *bed, struct tux3_node *node)
{
	char name[32];

	snprintf(name, sizeof(name), "/dir/u%u", USERS / 2);
	return bad_unlink(bed, name);
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

	assert_true(bad_open(bed));
	snprintf(name, sizeof(name), "/dir/u%u", USERS / 2);
	node = bed_find(bed, name);
	other = bed_find(bed, "/dir/u0");
	assert_int_equal(user_operations[which].fn(bed, node), user_operations[which].err);
	assert_ok(bad_write(other, 0, 3));
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bad_sync(bed);
	tux3_abandon(bed->volume);
	assert_true(bad_open(bed));
	bed_close(bed);
	be_bad(bed, 0);
	bed_open(bed);
	bed_check(bed);
	bed_close(bed);
}

/* Where usage cannot be read nothing is changed that it depends on. */
static void test_bad_usage(void **state)
{
	struct bad_leaf leaf = { .key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, 1000 + USERS / 2) };
	struct bed bed = { .opts.manual = true, .quota = true };
	u8 *bytes;
	u32 i;

	make_users(&bed);
	bed_reopen(&bed);
	assert_ok(tree_walk(tux3_core(bed.volume), bad_see_leaf, &leaf));
	bytes = bad_save(&bed);
	env_set_log(bad_message);
	for (i = 0; i < ARRAY_SIZE(user_operations); i++) {
		bad_anew(&bed, bytes, leaf.addr);
		user_operation(&bed, i);
	}
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

/* The node number which of those of a volume in use gets bad, when all have left memory.  false: there are no more. */
static bool node_gets_bad(struct bed *bed, u32 which)
{
	struct volume *vol = tux3_core(bed->volume);
	struct bad_nodes nodes = {};

	assert_ok(delta_commit_unify(vol));
	assert_ok(tree_walk(vol, bad_see_node, &nodes));
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
	for (i = 0; i < BAD_PIECES; i++)
		assert_ok(bad_write(node, 2 * i, 1));
	if (way == WAY_NAMELESS)
		assert_ok(bad_unlink(bed, "/dir/pieces"));
	more = node_gets_bad(bed, which);
	err = operation->node_fn(bed, node);
	assert_true(!err || err == -EIO);
	bad_sync(bed);
	err = operation->node_fn(bed, node);		/* of one that is stuck, perhaps */
	assert_true(!err || err == -EIO);
	bad_sync(bed);
	err = tux3_fsync(node, false);
	assert_true(!err || err == -EIO);
	assert_ok(tux3_fsync(node, false));
	assert_int_equal(tux3_write(other, bad_data, BLOCK, 0), BLOCK);
	bad_sync(bed);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bad_sync(bed);
	be_bad(bed, 0);
	bed_check(bed);
	bed_close(bed);
	return more;
}

static void each_new_file(u32 slice_extents, u32 ways)
{
	struct bed bed = { .opts.slice_extents = slice_extents };
	const char *only = getenv("TUX3_TEST_OP");
	struct bad_nodes nodes = {};
	u8 *bytes = bad_make(&bed, &nodes);
	u32 way, i, k;
	bool more;

	env_set_log(bad_message);
	for (way = 0; way < ways; way++) {
		for (i = 0; i < ARRAY_SIZE(operations); i++) {
			if (!operations[i].in_use || (only && strcmp(only, operations[i].name)))
				continue;
			for (k = i % EACH_NODE, more = true; more; k += EACH_NODE) {
				if (getenv("TUX3_TEST_VERBOSE"))
					print_error("%s: way %u, node %u\n", operations[i].name, way, k);
				bad_anew(&bed, bytes, 0);
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_bad_node),
		cmocka_unit_test(test_one_bad_node_in_slices),
		cmocka_unit_test(test_one_bad_node_and_a_crash),
		cmocka_unit_test(test_node_that_gets_bad),
		cmocka_unit_test(test_bad_usage),
		cmocka_unit_test(test_repair_frees_what_was_put_off),
		cmocka_unit_test(test_new_file_that_gets_bad),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
