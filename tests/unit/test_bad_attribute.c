/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Attributes and extended attributes of inodes that are in use, when a leaf that their commit needs gets bad: what is lost is told,
 * the rest is there, and the volume goes on.
 *
 * TUX3_TEST_OP=name runs only that operation.
 */
#include "support_bad.h"
#include "user/env/log.h"
#include "user/lib/lib.h"

#include <errno.h>
#include <string.h>

#define VALUE		200u

static int set_mode(struct tux3_node *node)
{
	return tux3_setattr(node, NULL, &(struct tux3_stat){ .mode = 0700 }, TUX3_SET_MODE);
}

static bool has_mode(struct tux3_node *node)
{
	return (node->inode.attr.mode & 0777) == 0700;
}

static int set_owner(struct tux3_node *node)
{
	return tux3_setattr(node, NULL, &(struct tux3_stat){ .uid = 77 }, TUX3_SET_UID);
}

static bool has_owner(struct tux3_node *node)
{
	return node->inode.attr.uid == 77;
}

static ssize_t value_of(struct tux3_node *node, const char *name)
{
	return tux3_getxattr(node, name, NULL, 0);
}

/* It had blocks of its own, as many as it gets. */
static int set_large(struct tux3_node *node)
{
	return tux3_setxattr(node, NULL, "user.attr20", bad_data, 5000, 0);
}

static bool has_large(struct tux3_node *node)
{
	return value_of(node, "user.attr20") == 5000;
}

static int set_new(struct tux3_node *node)
{
	return tux3_setxattr(node, NULL, "user.new", bad_data, VALUE, 0);
}

static bool has_new(struct tux3_node *node)
{
	return value_of(node, "user.new") == VALUE;
}

static int remove_one(struct tux3_node *node)
{
	return tux3_removexattr(node, NULL, "user.attr15");
}

static bool has_one_less(struct tux3_node *node)
{
	return value_of(node, "user.attr15") == -ENODATA;
}

/* Some, with data: what cannot be set takes nothing else along. */
static int set_many(struct tux3_node *node)
{
	char name[32];
	int err = 0;
	u32 i;

	for (i = 0; i < 60 && !err; i += 2) {
		snprintf(name, sizeof(name), "user.attr%u", i);
		err = tux3_setxattr(node, NULL, name, bad_data, VALUE, 0);
	}
	return err ? err : bad_write(node, 3, 1);
}

static bool has_many(struct tux3_node *node)
{
	char name[32];
	u32 i;

	for (i = 0; i < 60; i += 2) {
		snprintf(name, sizeof(name), "user.attr%u", i);
		if (value_of(node, name) != VALUE)
			return false;
	}
	return node->inode.attr.size == 4 * BLOCK;
}

static const struct operation {
	const char *name, *path;
	int (*fn)(struct tux3_node *node);
	bool (*done)(struct tux3_node *node);
} operations[] = {
	{ "chmod", "/pieces", set_mode, has_mode },
	{ "chmod_dir", "/big", set_mode, has_mode },
	{ "chown", "/xattrs", set_owner, has_owner },
	{ "set_large", "/xattrs", set_large, has_large },
	{ "set_new", "/xattrs", set_new, has_new },
	{ "set_first", "/pieces", set_new, has_new },
	{ "set_first_dir", "/big", set_new, has_new },
	{ "remove", "/xattrs", remove_one, has_one_less },
	{ "set_many", "/xattrs", set_many, has_many },
};

/* fsync says whether it will be there after a crash, when all can be read again.  late: the leaf gets bad behind the operation. */
static void gets_bad(struct bed *bed, const struct operation *operation, u64 bad, bool late)
{
	struct tux3_node *node, *other;
	int err, err2, told;

	bed_open(bed);
	node = bed_find(bed, operation->path);
	other = bed_find(bed, "/other");
	cache_shrink(tux3_core(bed->volume), U64_MAX);
	if (!late)
		be_bad(bed, bad);
	err = operation->fn(node);
	assert_true(!err || (err == -EIO && !late));
	if (late) {
		while (cache_shrink(tux3_core(bed->volume), U64_MAX))
			;
		be_bad(bed, bad);
	}
	told = tux3_fsync(node, false);
	assert_true(!told || told == -EIO);
	assert_ok(tux3_fsync(node, false));
	err2 = bad_write(other, 0, 1);
	assert_true(!err2 || (err2 == -EIO && bed->quota));	/* it is charged to the same user */
	bad_sync(bed);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	be_bad(bed, 0);
	bed_crash(bed);
	node = bed_find(bed, operation->path);
	assert_int_equal(operation->done(node), !err && !told);
	tux3_node_put(node, 1);
	bed_check(bed);
	bed_close(bed);
}

static void each_node(u32 fsync, bool quota, bool late)
{
	const char *only = getenv("TUX3_TEST_OP");
	struct bed bed = { .opts.fsync = fsync, .quota = quota };
	struct bad_nodes nodes = {};
	u8 *bytes = bad_make(&bed, &nodes);
	u32 i, k;

	env_set_log(bad_message);
	for (i = 0; i < ARRAY_SIZE(operations); i++) {
		if (only && strcmp(only, operations[i].name))
			continue;
		for (k = i % EACH_NODE; k < nodes.count; k += EACH_NODE) {
			if (getenv("TUX3_TEST_VERBOSE"))
				print_error("%s: node %u\n", operations[i].name, k);
			memcpy(device_memory_bytes(bad_device(bed.dev)->below), bytes, BAD_BYTES);
			be_bad(&bed, 0);
			gets_bad(&bed, &operations[i], nodes.addr[k], late);
		}
	}
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

static void test_in_use(void **state)
{
	each_node(TUX3_FSYNC_FULL, false, false);
}

static void test_in_use_with_intents(void **state)
{
	each_node(TUX3_FSYNC_AHEAD, false, false);
}

static void test_in_use_with_quotas(void **state)
{
	each_node(TUX3_FSYNC_FULL, true, false);
}

/* What usage needs was read when it was charged. */
static void test_before_the_commit_with_quotas(void **state)
{
	each_node(TUX3_FSYNC_FULL, true, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_use),
		cmocka_unit_test(test_in_use_with_intents),
		cmocka_unit_test(test_in_use_with_quotas),
		cmocka_unit_test(test_before_the_commit_with_quotas),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
