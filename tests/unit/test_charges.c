/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a commit takes is charged to the kind that it takes it for: data, log, tree nodes, what is set aside.  An operation that is
 * charged enough in all, but too little of one kind, is found; and what costs most of each kind is charged for.  Kinds are
 * compared where locks know their owner, so in the asan and tsan variants.
 */
#include <linux/falloc.h>
#include "support_lib.h"

#include "core/data/data.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/inode/inode.h"
#include "core/mkfs.h"
#include "log.h"
#include "user/lib/lib.h"

#define BLOCK 4096u

static char messages[4096];

static void keep_messages(int level, const char *message)
{
	size_t used = strlen(messages);

	snprintf(messages + used, sizeof(messages) - used, "%s\n", message);
}

static struct volume *core(struct bed *bed)
{
	return tux3_core(bed->volume);
}

static void begin(struct bed *bed, const struct format_options *format)
{
	char why[256] = "";

	*bed = (struct bed){ .opts = { .manual = true, .slice_extents = 4 } };
	bed->dev = device_memory_create(64 << 20);
	assert_non_null(bed->dev);
	if (volume_format(bed->dev, format, why, sizeof(why)))
		fail_msg("format: %s", why);
	bed_open(bed);
	messages[0] = 0;
	env_set_log(keep_messages);
}

static s64 overdrafts(struct bed *bed)
{
	return atomic64_read(&core(bed)->counters[TUX3_COUNT_OVERDRAFTS]);
}

/* The next delta is to be tight, or not. */
static void commit(struct bed *bed, bool tight)
{
	core(bed)->space.want_tight = tight;
	assert_ok(delta_commit(core(bed)));
	if (messages[0] || overdrafts(bed))
		fail_msg("%lld overdrafts: %s", overdrafts(bed), messages);
}

/* ---- mischarges on purpose ---- */

/* The cost is charged; nothing else of it is right. */
static void change_attr(struct bed *bed, struct tux3_node *node, u64 cost)
{
	struct tux3_attr *attr;
	struct delta_op op;

	assert_ok(delta_enter(core(bed), &op, cost, 0));
	attr = inode_change_begin(&op, &node->inode);
	attr->mtime = inode_now(core(bed));
	inode_change_end(&node->inode);
	delta_leave(&op);
}

/* A value of an extended attribute, but it is not told of its block. */
static void forget_data(struct bed *bed, struct tux3_node **nodes)
{
	static u8 value[BLOCK];
	struct delta_op op;

	assert_ok(tux3_setxattr(nodes[0], NULL, "user.large", value, sizeof(value), 0));
	assert_ok(delta_enter(core(bed), &op, space_cost_items(core(bed), 20), 0));
	delta_refund(&op, 1 + space_cost_items(core(bed), 1), 0);
	delta_leave(&op);
}

static void forget_log(struct bed *bed, struct tux3_node **nodes)
{
	u32 i;

	for (i = 0; i < 200; i++)
		change_attr(bed, nodes[i], 10);
}

/* Many items are not told of in a delta where each pays for its path. */
static void forget_nodes(struct bed *bed, struct tux3_node **nodes)
{
	u32 i;

	for (i = 0; i < 200; i++)
		change_attr(bed, nodes[i], 10);
}

static void forget_promise(struct bed *bed, struct tux3_node **nodes)
{
	struct volume *vol = core(bed);
	struct delta_op op;

	assert_ok(delta_enter(vol, &op, space_cost_data(vol, 100, 100) + space_cost_items(vol, 20), 0));
	assert_ok(data_prealloc(&op, &nodes[0]->inode, 100, 100, 100));
	delta_leave(&op);
}

static void test_a_mischarge_by_kind_is_found(void **state)
{
	static const struct {
		void (*mischarge)(struct bed *bed, struct tux3_node **nodes);
		const char *sentence;
		bool tight;
	} cases[] = {
		{ forget_data, "took 1 blocks for data, and was charged 0", false },
		{ forget_log, "blocks for the log, and was charged", false },
		{ forget_nodes, "blocks for tree nodes, and was charged 0", true },
		{ forget_promise, "blocks to be set aside for preallocated blocks, and was charged 0", false },
	};
	struct tux3_node *nodes[200];
	struct bed bed;
	char path[20];
	u32 i, k;

	if (!IS_ENABLED(CONFIG_PROVE_LOCKING))
		skip();
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(&bed, &(struct format_options){});
		for (k = 0; k < ARRAY_SIZE(nodes); k++) {
			snprintf(path, sizeof(path), "/%u", k);
			nodes[k] = bed_file(&bed, path);
		}
		commit(&bed, false);
		assert_ok(delta_commit_unify(core(&bed)));
		commit(&bed, cases[i].tight);
		change_attr(&bed, nodes[0], space_cost_items(core(&bed), 1));
		commit(&bed, cases[i].tight);
		cases[i].mischarge(&bed, nodes);
		assert_ok(delta_commit(core(&bed)));
		if (!strstr(messages, cases[i].sentence))
			fail_msg("case %u: not said that it %s, but: %s", i, cases[i].sentence, messages);
		assert_int_equal(overdrafts(&bed), 1);
		atomic64_set(&core(&bed)->counters[TUX3_COUNT_OVERDRAFTS], 0);
		for (k = 0; k < ARRAY_SIZE(nodes); k++)
			tux3_node_put(nodes[k], 1);
		env_set_log(NULL);
		bed_free(&bed);
	}
}

/* ---- what takes most ---- */

static void make_symlinks(struct bed *bed)
{
	char target[TUX3_SYMLINK_MAX + 1], name[20];
	struct tux3_node *node;
	u32 i;

	memset(target, 't', TUX3_SYMLINK_MAX);
	target[TUX3_SYMLINK_MAX] = 0;
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "symlink-%u", i);
		assert_ok(tux3_symlink(bed->root, NULL, name, target, &node));
		tux3_node_put(node, 1);
	}
}

static void make_long_names(struct bed *bed)
{
	char path[257];
	u32 i;

	for (i = 0; i < 200; i++) {
		memset(path, 'n', 256);
		path[256] = 0;
		path[0] = '/';
		snprintf(path + 252, 5, "%04u", i);
		tux3_node_put(bed_file(bed, path), 1);
	}
}

static void set_values(struct bed *bed)
{
	static u8 value[TUX3_XATTR_INLINE_MAX];
	struct tux3_node *node;
	char name[257];
	u32 i, k;

	memset(name, 'x', sizeof(name));
	memcpy(name, "user.", 5);
	name[255] = 0;
	for (i = 0; i < 60; i++) {
		snprintf(name + 251, 5, "%04u", i);
		node = bed_file(bed, "/values");
		for (k = 0; k < 3; k++) {
			name[6] = 'a' + k;
			assert_ok(tux3_setxattr(node, NULL, name, value, sizeof(value), 0));
		}
		tux3_node_put(node, 1);
	}
}

static void write_inline(struct bed *bed)
{
	static u8 data[BLOCK / 8];
	struct tux3_node *node;
	char path[20];
	u32 i;

	for (i = 0; i < 200; i++) {
		snprintf(path, sizeof(path), "/inline-%u", i);
		node = bed_file(bed, path);
		assert_int_equal(tux3_write(node, data, sizeof(data), 0), sizeof(data));
		tux3_node_put(node, 1);
	}
}

static void write_blocks(struct bed *bed)
{
	static u8 data[BLOCK];
	struct tux3_node *node = bed_file(bed, "/blocks");
	u32 i;

	for (i = 0; i < 500; i++)
		assert_int_equal(tux3_write(node, data, sizeof(data), i * 2ull * BLOCK), sizeof(data));
	tux3_node_put(node, 1);
}

/* Every second block goes: the file stays as long, in holes. */
static void punch_blocks(struct bed *bed)
{
	struct tux3_node *node = bed_file(bed, "/blocks");
	u32 i;

	for (i = 0; i < 200; i++)
		assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * 2ull * BLOCK, BLOCK));
	assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 400 * BLOCK, 500 * BLOCK));
	tux3_node_put(node, 1);
}

#define COMBS 40u

static void make_combs(struct bed *bed)
{
	static u8 data[BLOCK];
	struct tux3_node *node;
	char path[20];
	u32 i, k;

	for (i = 0; i < COMBS; i++) {
		snprintf(path, sizeof(path), "/comb-%u", i);
		node = bed_file(bed, path);
		for (k = 0; k < 130; k++)
			assert_int_equal(tux3_write(node, data, sizeof(data), k * 2ull * BLOCK), sizeof(data));
		tux3_node_put(node, 1);
	}
}

/* Of many extents one by one: a record for each part. */
static void punch_combs(struct bed *bed)
{
	struct tux3_node *node;
	char path[20];
	u32 i;

	for (i = 0; i < COMBS; i++) {
		snprintf(path, sizeof(path), "/comb-%u", i);
		node = bed_file(bed, path);
		assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BLOCK, 260 * BLOCK));
		tux3_node_put(node, 1);
	}
}

static void allocate_blocks(struct bed *bed)
{
	struct tux3_node *node = bed_file(bed, "/allocated");

	assert_ok(tux3_fallocate(node, 0, 0, 500 * BLOCK));
	tux3_node_put(node, 1);
}

static void write_allocated(struct bed *bed)
{
	static u8 data[BLOCK];
	struct tux3_node *node = bed_file(bed, "/allocated");
	u32 i;

	for (i = 0; i < 500; i += 2)
		assert_int_equal(tux3_write(node, data, sizeof(data), i * (u64)BLOCK), sizeof(data));
	tux3_node_put(node, 1);
}

static void remove_names(struct bed *bed)
{
	char name[256];
	u32 i;

	for (i = 0; i < 200; i++) {
		memset(name, 'n', 255);
		name[255] = 0;
		snprintf(name + 251, 5, "%04u", i);
		assert_ok(tux3_unlink(bed->root, NULL, name));
	}
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "symlink-%u", i);
		assert_ok(tux3_unlink(bed->root, NULL, name));
	}
}

static void test_what_takes_most_is_charged(void **state)
{
	static void (*const loads[])(struct bed *bed) = {
		make_symlinks, make_long_names, set_values, write_inline, write_blocks, punch_blocks, allocate_blocks,
		write_allocated, remove_names, make_combs, punch_combs,
	};
	static const struct format_options formats[] = {
		{}, { .quota = true }, { .block_size = 16384, .no_data_csum = true },
	};
	struct bed bed;
	u32 n, i;

	for (n = 0; n < 2 * ARRAY_SIZE(formats); n++) {
		bool tight = n % 2;

		begin(&bed, &formats[n / 2]);
		for (i = 0; i < ARRAY_SIZE(loads); i++) {
			commit(&bed, tight);
			loads[i](&bed);
			commit(&bed, tight);
			assert_ok(delta_commit_unify(core(&bed)));
		}
		env_set_log(NULL);
		bed_free(&bed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_mischarge_by_kind_is_found),
		cmocka_unit_test(test_what_takes_most_is_charged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
