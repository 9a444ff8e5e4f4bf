/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of inodes that are in use, when a leaf of the tree that their commit needs has got bad after it was read: what cannot be
 * committed is refused, and the volume goes on; whether somebody has met the leaf before or not.  What was not refused is
 * committed, also if the leaf gets bad in between.
 *
 * TUX3_TEST_OP=name runs only that operation.
 */
#include "support_bad.h"
#include "user/env/log.h"

#include <errno.h>
#include <string.h>

struct nodes {
	struct tux3_node *big, *dir, *empty, *file, *xattrs, *f100;
	struct tux3_node *nameless;	/* made by the operation */
};

static int do_create(struct bed *bed, struct nodes *in)
{
	struct tux3_node *node;
	int err = tux3_path(bed->volume, NULL, "/big/new", TUX3_CREATE, 0644, &node);

	if (!err)
		tux3_node_put(node, 1);
	return err;
}

static int do_mkdir(struct bed *bed, struct nodes *in)
{
	return tux3_path_mkdir(bed->volume, NULL, "/big/newdir", 0755);
}

static int do_unlink(struct bed *bed, struct nodes *in)
{
	return tux3_unlink(in->big, NULL, "f100");
}

static int unlink_link(struct bed *bed, u32 number)
{
	char name[200];

	snprintf(name, sizeof(name), "link%u-%0100u", number, number);
	return tux3_unlink(bed->root, NULL, name);
}

static int do_unlink_link(struct bed *bed, struct nodes *in)
{
	return unlink_link(bed, 60);
}

static int do_rmdir(struct bed *bed, struct nodes *in)
{
	return tux3_rmdir(bed->root, NULL, "empty");
}

static int do_rename(struct bed *bed, struct nodes *in)
{
	return tux3_rename(in->big, "f100", in->big, "moved", 0, NULL);
}

static int do_rename_away(struct bed *bed, struct nodes *in)
{
	return tux3_rename(in->big, "f100", in->dir, "moved", 0, NULL);
}

static int do_rename_over(struct bed *bed, struct nodes *in)
{
	return tux3_rename(in->dir, "file", in->big, "f100", 0, NULL);
}

static int do_rename_dir(struct bed *bed, struct nodes *in)
{
	return tux3_rename(bed->root, "dir", in->big, "dir", 0, NULL);
}

static int do_exchange(struct bed *bed, struct nodes *in)
{
	return tux3_rename(in->dir, "file", in->big, "f100", TUX3_RENAME_EXCHANGE, NULL);
}

static int do_link(struct bed *bed, struct nodes *in)
{
	return tux3_link(in->f100, NULL, in->dir, "linked");
}

static int do_tmpfile(struct bed *bed, struct nodes *in)
{
	return tux3_tmpfile(in->big, NULL, 0644, &in->nameless);
}

static int do_link_nameless(struct bed *bed, struct nodes *in)
{
	int err = do_tmpfile(bed, in);

	return err ? err : tux3_link(in->nameless, NULL, in->dir, "linked");
}

/* One delta: the size of the file and the number of its names are in one item. */
static int do_write_and_link(struct bed *bed, struct nodes *in)
{
	int err = tux3_link(in->f100, NULL, in->dir, "linked");

	return err ? err : bad_write(in->f100, 0, 2);
}

static const struct operation {
	const char *name;
	int (*fn)(struct bed *bed, struct nodes *in);
} operations[] = {
	{ "create", do_create },
	{ "mkdir", do_mkdir },
	{ "unlink", do_unlink },
	{ "unlink_link", do_unlink_link },
	{ "rmdir", do_rmdir },
	{ "rename", do_rename },
	{ "rename_away", do_rename_away },
	{ "rename_over", do_rename_over },
	{ "rename_dir", do_rename_dir },
	{ "exchange", do_exchange },
	{ "link", do_link },
	{ "link_nameless", do_link_nameless },
	{ "tmpfile", do_tmpfile },
	{ "write_and_link", do_write_and_link },
};

static void open_all(struct bed *bed, struct nodes *in)
{
	char name[200];

	bed_open(bed);
	in->big = bed_find(bed, "/big");
	in->dir = bed_find(bed, "/dir");
	in->empty = bed_find(bed, "/empty");
	in->file = bed_find(bed, "/dir/file");
	in->xattrs = bed_find(bed, "/xattrs");
	in->f100 = bed_find(bed, "/big/f100");
	snprintf(name, sizeof(name), "/link%u-%0100u", 60, 60);
	tux3_node_put(bed_find(bed, name), 1);
	assert_null(bed_find(bed, "/big/new"));
	assert_null(bed_find(bed, "/big/newdir"));
	assert_null(bed_find(bed, "/big/moved"));
	assert_null(bed_find(bed, "/dir/moved"));
	assert_null(bed_find(bed, "/dir/linked"));
	assert_null(bed_find(bed, "/big/dir"));
}

static void put_all(struct nodes *in)
{
	if (in->nameless)
		tux3_node_put(in->nameless, 1);
	tux3_node_put(in->big, 1);
	tux3_node_put(in->dir, 1);
	tux3_node_put(in->empty, 1);
	tux3_node_put(in->file, 1);
	tux3_node_put(in->xattrs, 1);
	tux3_node_put(in->f100, 1);
}

static int see_nothing(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	return 0;
}

static void see_problem(void *ctx, const struct tux3_scrub_problem *problem)
{
}

static void meet_by_scrub(struct bed *bed)
{
	struct tux3_scrub scrub = { .budget_bytes = BAD_BYTES };

	do {
		assert_ok(tux3_scrub(bed->volume, &scrub, see_problem, NULL));
	} while (!scrub.over);
}

/* From leaf to leaf. */
static void meet_by_reads(struct bed *bed)
{
	struct volume *vol = tux3_core(bed->volume);
	struct tree_key next = tree_key(0, 0, 0), last = tree_key(TUX3_INO_MAX, U8_MAX, U64_MAX);
	bool more = true;
	int err;

	while (more) {
		err = tree_scan_leaf(vol, &next, &last, see_nothing, NULL, &more, &next);
		assert_true(!err || err == -EIO);
	}
}

/* What may be, is not in memory any more. */
static void forget_nodes(struct bed *bed)
{
	while (cache_shrink(tux3_core(bed->volume), U64_MAX))
		;
}

/* When the leaf gets bad, and who meets it before the operation. */
struct story {
	void (*meet)(struct bed *bed);	/* NULL: nobody */
	bool late;			/* it gets bad between the operation and its commit */
	bool early;			/* and nodes have left memory before the operation, too */
	bool quota;
	bool after;			/* others have changed names beside it in the same delta */
};

/* Where that cannot be read they are refused. */
static void change_others(struct bed *bed, struct nodes *in)
{
	static const char *const names[] = { "f99", "f101", "f98" };
	struct tux3_node *node;
	u32 i;
	int err;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		err = tux3_unlink(in->big, NULL, names[i]);
		assert_true(!err || err == -EIO);
		err = tux3_path(bed->volume, NULL, i ? "/big/other" : "/dir/other", TUX3_CREATE, 0644, &node);
		assert_true(!err || err == -EIO);
		if (!err)
			tux3_node_put(node, 1);
	}
	err = tux3_link(in->file, NULL, in->big, "another");
	assert_true(!err || err == -EIO);
	err = unlink_link(bed, 10);
	assert_true(!err || err == -EIO);
}

/* Returns whether it was refused. */
static bool gets_bad(struct bed *bed, const struct operation *operation, u64 bad, const struct story *story)
{
	struct nodes in = {};
	int err;

	open_all(bed, &in);
	if (!story->late || story->early)
		forget_nodes(bed);
	if (!story->late)
		be_bad(bed, bad);
	if (story->meet) {
		story->meet(bed);
		forget_nodes(bed);
	}
	if (story->after)
		change_others(bed, &in);
	err = operation->fn(bed, &in);
	assert_true(!err || (err == -EIO && !story->late));
	forget_nodes(bed);
	be_bad(bed, bad);
	assert_ok(tux3_sync(bed->volume));
	put_all(&in);
	bad_sync(bed);
	bed_close(bed);
	be_bad(bed, 0);
	bed_open(bed);
	bed_check(bed);
	bed_close(bed);
	return err;
}

static void each_node(const struct story *story)
{
	const char *only = getenv("TUX3_TEST_OP");
	struct bed bed = { .quota = story->quota };
	struct bad_nodes nodes = {};
	u8 *bytes = bad_make(&bed, &nodes);
	u32 i, k, refused;

	env_set_log(bad_message);
	for (i = 0; i < ARRAY_SIZE(operations); i++) {
		if (only && strcmp(only, operations[i].name))
			continue;
		for (refused = 0, k = i % EACH_NODE; k < nodes.count; k += EACH_NODE) {
			if (getenv("TUX3_TEST_VERBOSE"))
				print_error("%s: node %u\n", operations[i].name, k);
			bad_anew(&bed, bytes, 0);
			refused += gets_bad(&bed, &operations[i], nodes.addr[k], story);
		}
		if (getenv("TUX3_TEST_VERBOSE"))
			print_error("%s: %u of %u refused\n", operations[i].name, refused, nodes.count);
		assert_true(refused < nodes.count / 4);
	}
	env_set_log(NULL);
	bed.dev->ops->close(bed.dev);
	free(bytes);
}

static void test_met_by_reads(void **state)
{
	each_node(&(struct story){ .meet = meet_by_reads });
}

static void test_met_by_scrub(void **state)
{
	each_node(&(struct story){ .meet = meet_by_scrub });
}

static void test_met_by_nobody(void **state)
{
	each_node(&(struct story){ .meet = NULL });
}

static void test_met_by_nobody_with_quotas(void **state)
{
	each_node(&(struct story){ .quota = true });
}

static void test_before_the_commit(void **state)
{
	each_node(&(struct story){ .late = true });
}

static void test_before_the_commit_after_others(void **state)
{
	each_node(&(struct story){ .late = true, .early = true });
}

static void test_before_the_commit_with_quotas(void **state)
{
	each_node(&(struct story){ .late = true, .early = true, .quota = true });
}

static void test_met_by_nobody_after_other_changes(void **state)
{
	each_node(&(struct story){ .after = true });
}

static void test_before_the_commit_after_other_changes(void **state)
{
	each_node(&(struct story){ .late = true, .early = true, .after = true });
}

static u64 leaf_of(struct bed *bed, struct tree_key key)
{
	struct bad_leaf leaf = { .key = key };

	assert_ok(tree_walk(tux3_core(bed->volume), bad_see_leaf, &leaf));
	assert_true(leaf.addr);
	return leaf.addr;
}

static u64 leaf_of_file(struct bed *bed, const char *path)
{
	return leaf_of(bed, tree_key(bed_file_ino(bed, path), TUX3_ITEM_ATTR, 0));
}

/* What one change of names has looked at is there for others in the same delta, which need not look; and for none in later ones. */
static void test_looked_at_for_one_delta(void **state)
{
	struct bed bed = {};
	struct tux3_node *big;
	char name[20];
	u64 leaf;
	u32 i;

	bad_begin(&bed);
	big = bed_find(&bed, "/big");
	forget_nodes(&bed);
	assert_true(tux3_core(bed.volume)->tree.must_look);
	leaf = leaf_of_file(&bed, "/big/f101");
	assert_int_equal(leaf_of_file(&bed, "/big/f100"), leaf);
	assert_int_equal(leaf_of_file(&bed, "/big/f102"), leaf);
	assert_ok(tux3_unlink(big, NULL, "f100"));
	forget_nodes(&bed);
	be_bad(&bed, leaf);
	assert_ok(tux3_unlink(big, NULL, "f101"));
	assert_ok(tux3_sync(bed.volume));
	/* It is written elsewhere. */
	be_bad(&bed, 0);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	tux3_node_put(bed_find(&bed, "/big/f102"), 1);
	leaf = leaf_of_file(&bed, "/big/f102");
	forget_nodes(&bed);
	be_bad(&bed, leaf);
	assert_int_equal(tux3_unlink(big, NULL, "f102"), -EIO);
	assert_ok(tux3_sync(bed.volume));
	/* Likewise what is looked at once in a delta for each directory. */
	be_bad(&bed, 0);
	tux3_node_put(bed_file(&bed, "/more"), 1);
	assert_ok(delta_commit_unify(tux3_core(bed.volume)));
	for (i = 120; i < BAD_FILES; i++) {
		snprintf(name, sizeof(name), "/big/f%u", i);
		tux3_node_put(bed_find(&bed, name), 1);
	}
	leaf = leaf_of(&bed, tree_key(tux3_node_ino(big), TUX3_ITEM_ATTR, 0));
	forget_nodes(&bed);
	be_bad(&bed, leaf);
	for (i = 120; i < BAD_FILES; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(tux3_unlink(big, NULL, name), -EIO);
	}
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(big, 1);
	bad_end(&bed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_met_by_reads),
		cmocka_unit_test(test_met_by_scrub),
		cmocka_unit_test(test_met_by_nobody),
		cmocka_unit_test(test_met_by_nobody_with_quotas),
		cmocka_unit_test(test_before_the_commit),
		cmocka_unit_test(test_before_the_commit_after_others),
		cmocka_unit_test(test_before_the_commit_with_quotas),
		cmocka_unit_test(test_met_by_nobody_after_other_changes),
		cmocka_unit_test(test_before_the_commit_after_other_changes),
		cmocka_unit_test(test_looked_at_for_one_delta),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
