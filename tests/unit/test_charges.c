/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a commit takes is charged to the kind that it takes it for: data, log, tree nodes, what is set aside.  An operation that is
 * charged enough in all, but too little of one kind, is found; and what costs most of each kind is charged for.  Kinds are
 * compared with the option costs.
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

	*bed = (struct bed){ .opts = { .manual = true, .slice_extents = 4, .costs = true } };
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
	return delta_counter(core(bed), TUX3_COUNT_OVERDRAFTS);
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

#define NODES 3200u

/*
 * The items of all these changes: too much for the log; and, in a delta where each pays for its path, for the nodes.  They are
 * in so many leaves that the delta does not pay for these.
 */
static void forget_items(struct bed *bed, struct tux3_node **nodes)
{
	u32 i;

	for (i = 0; i < NODES; i += 16)
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
		{ forget_items, "blocks for the log, and was charged", false },
		{ forget_items, "blocks for tree nodes, and was charged", true },
		{ forget_promise, "blocks to be set aside for preallocated blocks, and was charged 0", false },
	};
	static struct tux3_node *nodes[NODES];
	struct bed bed;
	char path[20];
	u32 i, k;

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

#define NAMES 200u
#define NAME_BYTES 256u

/* Good until the next call. */
static const char *long_name(char c, u32 i)
{
	static char name[NAME_BYTES];

	memset(name, c, NAME_BYTES - 1);
	snprintf(name + NAME_BYTES - 5, 5, "%04u", i);
	return name;
}

static u64 new_dirs = 1;

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
	struct tux3_node *node;
	u32 i;

	for (i = 0; i < NAMES; i++) {
		assert_ok(tux3_mknod(bed->root, NULL, long_name('n', i), S_IFREG | 0644, 0, 0, &node));
		tux3_node_put(node, 1);
	}
}

static void link_names(struct bed *bed)
{
	struct tux3_node *node;
	u32 i;

	for (i = 0; i < NAMES; i++) {
		assert_ok(tux3_lookup(bed->root, NULL, long_name('n', i), &node));
		assert_ok(tux3_link(node, NULL, bed->root, long_name('l', i)));
		tux3_node_put(node, 1);
	}
}

static void rename_from_to(struct bed *bed, char from, char to, u32 further, unsigned int flags)
{
	char name[NAME_BYTES];
	u32 i;

	for (i = 0; i + further < NAMES; i += 1 + further) {
		memcpy(name, long_name(from, i), sizeof(name));
		assert_ok(tux3_rename(bed->root, name, bed->root, long_name(to, i + further), flags, NULL));
	}
}

static void rename_names(struct bed *bed)
{
	rename_from_to(bed, 'l', 'm', 0, 0);
}

/* Each second one, over the one behind it; which is another file, that keeps a name. */
static void rename_over_names(struct bed *bed)
{
	rename_from_to(bed, 'm', 'm', 1, 0);
}

static void exchange_names(struct bed *bed)
{
	rename_from_to(bed, 'n', 'n', 1, TUX3_RENAME_EXCHANGE);
}

static void make_dirs(struct bed *bed)
{
	u32 i;

	for (i = 0; i < NAMES; i++)
		assert_ok(tux3_mknod(bed->root, NULL, long_name('d', i), S_IFDIR | 0755, 0, 0, NULL));
}

/* Each into the first one. */
static void move_dirs(struct bed *bed)
{
	struct tux3_node *first;
	u32 i;

	assert_ok(tux3_lookup(bed->root, NULL, long_name('d', 0), &first));
	for (i = 1; i < NAMES; i++)
		assert_ok(tux3_rename(bed->root, long_name('d', i), first, long_name('d', i), 0, NULL));
	tux3_node_put(first, 1);
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

/* What is all beside each other: files in a directory that is new itself, empty, short and long. */
static void fill_new_dir(struct bed *bed)
{
	static u8 data[3 * BLOCK];
	struct tux3_node *dir, *node;
	char name[NAME_BYTES];
	u32 i, bytes;

	memcpy(name, long_name('D', bed_random(&new_dirs) % 10000), sizeof(name));
	assert_ok(tux3_mknod(bed->root, NULL, name, S_IFDIR | 0755, 0, 0, &dir));
	for (i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "%04u", i);
		assert_ok(tux3_mknod(dir, NULL, i % 5 ? name : long_name('f', i), S_IFREG | 0644, 0, 0, &node));
		bytes = min_t(u32, i % 3 * i * 40, sizeof(data));
		if (bytes)
			assert_int_equal(tux3_write(node, data, bytes, 0), bytes);
		tux3_node_put(node, 1);
	}
	tux3_node_put(dir, 1);
}

/* In one delta those of several directories, beside each other and beside what was there. */
static void fill_new_dirs(struct bed *bed)
{
	u32 i;

	for (i = 0; i < 5; i++)
		fill_new_dir(bed);
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
	char name[20];
	u32 i;

	for (i = 0; i < NAMES; i++)
		assert_ok(tux3_unlink(bed->root, NULL, long_name('n', i)));
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "symlink-%u", i);
		assert_ok(tux3_unlink(bed->root, NULL, name));
	}
}

static void test_what_takes_most_is_charged(void **state)
{
	static void (*const loads[])(struct bed *bed) = {
		make_symlinks, fill_new_dir, make_long_names, fill_new_dirs, link_names, rename_names, rename_over_names,
		exchange_names, make_dirs,
		move_dirs, set_values, write_inline, write_blocks, punch_blocks, allocate_blocks,
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

/* ---- each operation by itself ---- */

/* Two directories, and what is in them; nodes that are in use. */
static struct tux3_node *a, *b, *file, *other;
static char name_of[2][NAME_BYTES];

static const char *first_name(void)
{
	return memcpy(name_of[0], long_name('a', 1), NAME_BYTES);
}

static const char *second_name(void)
{
	return memcpy(name_of[1], long_name('b', 2), NAME_BYTES);
}

static void have(struct tux3_node *dir, const char *name, u32 mode, struct tux3_node **node)
{
	assert_ok(tux3_mknod(dir, NULL, name, mode, 0, 0, node));
}

static void have_file(struct bed *bed) { have(a, first_name(), S_IFREG | 0644, &file); }
static void have_dir(struct bed *bed) { have(a, first_name(), S_IFDIR | 0755, &file); }
static void have_both(struct bed *bed) { have_file(bed); have(b, second_name(), S_IFREG | 0644, &other); }
static void have_both_dirs(struct bed *bed) { have_dir(bed); have(b, second_name(), S_IFDIR | 0755, &other); }
static void have_file_and_dir(struct bed *bed) { have_file(bed); have(b, second_name(), S_IFDIR | 0755, &other); }
static void have_nameless(struct bed *bed) { assert_ok(tux3_tmpfile(a, NULL, 0644, &file)); }

static void put(struct tux3_node **node)
{
	if (*node)
		tux3_node_put(*node, 1);
	*node = NULL;
}

static void have_unused(struct bed *bed) { have_file(bed); put(&file); }
static void have_both_unused(struct bed *bed) { have_both(bed); put(&file); put(&other); }

static void have_links(struct bed *bed)
{
	have_file(bed);
	assert_ok(tux3_link(file, NULL, b, second_name()));
}

static void write_at(u64 block, u32 bytes)
{
	static u8 data[4 * BLOCK];

	assert_int_equal(tux3_write(file, data, bytes, block * BLOCK), bytes);
}

static void have_data(struct bed *bed) { have_file(bed); write_at(0, 4 * BLOCK); }
static void have_value(struct bed *bed) { have_file(bed); assert_ok(tux3_setxattr(file, NULL, "user.x", "y", 1, 0)); }

static void have_allocated(struct bed *bed)
{
	have_file(bed);
	assert_ok(tux3_fallocate(file, 0, 0, 10 * BLOCK));
}

static void rename_to(struct tux3_node *dir, unsigned int flags)
{
	assert_ok(tux3_rename(a, first_name(), dir, second_name(), flags, NULL));
}

static void do_create(struct bed *bed) { have_file(bed); }
static void do_mkdir(struct bed *bed) { have_dir(bed); }
static void do_tmpfile(struct bed *bed) { have_nameless(bed); }
static void do_link(struct bed *bed) { assert_ok(tux3_link(file, NULL, b, second_name())); }
static void do_unlink(struct bed *bed) { assert_ok(tux3_unlink(a, NULL, first_name())); }
static void do_rmdir(struct bed *bed) { assert_ok(tux3_rmdir(a, NULL, first_name())); }
static void do_put(struct bed *bed) { put(&file); }
static void do_rename(struct bed *bed) { rename_to(a, 0); }
static void do_move(struct bed *bed) { rename_to(b, 0); }
static void do_exchange(struct bed *bed) { rename_to(b, TUX3_RENAME_EXCHANGE); }
static void do_whiteout(struct bed *bed) { rename_to(b, TUX3_RENAME_WHITEOUT); }
static void do_set_value(struct bed *bed) { assert_ok(tux3_setxattr(file, NULL, "user.x", "z", 1, 0)); }
static void do_remove_value(struct bed *bed) { assert_ok(tux3_removexattr(file, NULL, "user.x")); }
static void do_write(struct bed *bed) { write_at(0, BLOCK); }
static void do_write_four(struct bed *bed) { write_at(0, 4 * BLOCK); }
static void do_write_inline(struct bed *bed) { write_at(0, 100); }
static void do_truncate(struct bed *bed) { assert_ok(tux3_truncate(file, 0)); }
static void do_grow(struct bed *bed) { assert_ok(tux3_truncate(file, 100 * BLOCK)); }
static void do_allocate(struct bed *bed) { assert_ok(tux3_fallocate(file, 0, 0, 10 * BLOCK)); }

static void do_punch(struct bed *bed)
{
	assert_ok(tux3_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BLOCK, BLOCK));
}

static void do_set_large_value(struct bed *bed)
{
	static u8 value[2 * BLOCK];

	assert_ok(tux3_setxattr(file, NULL, "user.x", value, sizeof(value), 0));
}

static void set(u32 what)
{
	struct tux3_stat stat = { .mode = 0600, .uid = 7, .gid = 8 };

	assert_ok(tux3_setattr(file, NULL, &stat, what));
}

static void do_chmod(struct bed *bed) { set(TUX3_SET_MODE); }
static void do_chown(struct bed *bed) { set(TUX3_SET_UID | TUX3_SET_GID); }

static void do_write_in_pieces(struct bed *bed)
{
	static u8 piece[BLOCK / 4];
	u32 i;

	for (i = 0; i < 16; i++)
		assert_int_equal(tux3_write(file, piece, sizeof(piece), i * sizeof(piece)), sizeof(piece));
}

/* The first of them: what is behind it is no run of one batch any more. */
static void do_write_two_batches(struct bed *bed)
{
	u32 i;

	for (i = 0; i < 2 * DATA_BATCH_MAX; i++)
		write_at(i, BLOCK);
}

static void do_write_backwards(struct bed *bed)
{
	write_at(2, BLOCK);
	write_at(0, BLOCK);
	write_at(0, BLOCK);
}

static void do_write_after_removal(struct bed *bed)
{
	write_at(0, 2 * BLOCK);
	assert_ok(tux3_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLOCK));
	write_at(2, BLOCK);
}

static void do_chmod_and_write(struct bed *bed)
{
	set(TUX3_SET_MODE);
	write_at(0, BLOCK);
}

static void symlink_of(u32 bytes)
{
	char target[TUX3_SYMLINK_MAX + 1];

	memset(target, 't', bytes);
	target[bytes] = 0;
	assert_ok(tux3_symlink(a, NULL, first_name(), target, &file));
}

static void do_symlink(struct bed *bed) { symlink_of(TUX3_NAME_MAX); }
static void do_long_symlink(struct bed *bed) { symlink_of(TUX3_SYMLINK_MAX); }

static void nothing(struct bed *bed) { }

static void have_other_name(struct bed *bed) { have(a, "other", S_IFREG | 0644, &other); }

static void do_rename_and_create(struct bed *bed)
{
	assert_ok(tux3_rename(a, "other", a, "renamed", 0, NULL));
	do_create(bed);
}

static void create_ten(struct tux3_node *dir)
{
	char name[2] = "0";

	for (; name[0] <= '9'; name[0]++)
		have(dir, name, S_IFREG | 0644, NULL);
}

static void do_create_ten(struct bed *bed) { create_ten(a); }

static void do_create_ten_in_new(struct bed *bed)
{
	have(a, first_name(), S_IFDIR | 0755, &other);
	create_ten(other);
}

static void do_create_and_mkdir(struct bed *bed)
{
	do_create(bed);
	have(a, second_name(), S_IFDIR | 0755, &other);
}

static void do_create_and_write(struct bed *bed) { do_create(bed); do_write(bed); }
static void do_create_and_write_two(struct bed *bed) { do_create_and_write(bed); write_at(1, BLOCK); }
static void do_tmpfile_and_write(struct bed *bed) { do_tmpfile(bed); do_write(bed); }
static void do_chmod_twice(struct bed *bed) { do_chmod(bed); do_chown(bed); }

static void do_rename_back(struct bed *bed)
{
	do_rename(bed);
	assert_ok(tux3_rename(a, second_name(), a, first_name(), 0, NULL));
}

static void do_move_back(struct bed *bed)
{
	do_move(bed);
	assert_ok(tux3_rename(b, second_name(), a, first_name(), 0, NULL));
}

static void do_exchange_back(struct bed *bed) { do_exchange(bed); do_exchange(bed); }
static void do_create_and_unlink(struct bed *bed) { do_create(bed); do_unlink(bed); }
static void do_link_and_unlink(struct bed *bed) { do_link(bed); do_unlink(bed); }
static void do_chmod_and_truncate(struct bed *bed) { do_chmod(bed); do_truncate(bed); }

/* What operations were charged, when they have left their deltas. */
struct charge {
	s64 items, extents, data, promised;
};

static struct charge charge_now(struct bed *bed)
{
	struct space_charges *charges = &core(bed)->space.charges[core(bed)->delta.front & 1];

	return (struct charge){
		atomic64_read(&charges->items), atomic64_read(&charges->extents), atomic64_read(&charges->data),
		atomic64_read(&charges->promised),
	};
}

static const struct operation {
	const char *what;
	void (*prepare)(struct bed *bed), (*run)(struct bed *bed);
	struct charge charge;
} operations[] = {
	{ "create", nothing, do_create, { 4, 0, 0, 0 } },
	{ "mkdir", nothing, do_mkdir, { 4, 0, 0, 0 } },
	{ "symlink", nothing, do_symlink, { 5, 0, 0, 0 } },
	{ "long symlink", nothing, do_long_symlink, { 5, 121, 0, 0 } },
	{ "tmpfile", nothing, do_tmpfile, { 2, 0, 0, 0 } },
	{ "link", have_file, do_link, { 5, 0, 0, 0 } },
	{ "link of a nameless file", have_nameless, do_link, { 5, 0, 0, 0 } },
	{ "unlink of one of two names", have_links, do_unlink, { 5, 0, 0, 0 } },
	{ "unlink of a file in use", have_file, do_unlink, { 5, 0, 0, 0 } },
	{ "unlink of the last name", have_unused, do_unlink, { 8, 0, 0, 0 } },
	{ "letting go of a nameless file", have_nameless, do_put, { 3, 0, 0, 0 } },
	{ "rmdir", have_dir, do_rmdir, { 5, 0, 0, 0 } },
	{ "rename", have_file, do_rename, { 6, 0, 0, 0 } },
	{ "rename to another directory", have_file, do_move, { 7, 0, 0, 0 } },
	{ "rename over a file", have_both, do_move, { 12, 0, 0, 0 } },
	{ "rename over an unused file", have_both_unused, do_move, { 15, 0, 0, 0 } },
	{ "rename of one of two names", have_links, do_rename, { 6, 0, 0, 0 } },
	{ "rename of a directory", have_dir, do_rename, { 6, 0, 0, 0 } },
	{ "rename of a directory to another", have_dir, do_move, { 7, 0, 0, 0 } },
	{ "rename of a directory over one", have_both_dirs, do_move, { 12, 0, 0, 0 } },
	{ "exchange", have_both, do_exchange, { 12, 0, 0, 0 } },
	{ "exchange of a file and a directory", have_file_and_dir, do_exchange, { 12, 0, 0, 0 } },
	{ "rename that leaves a whiteout", have_file, do_whiteout, { 12, 0, 0, 0 } },
	{ "chmod", have_file, do_chmod, { 1, 0, 0, 0 } },
	{ "chown", have_file, do_chown, { 1, 0, 0, 0 } },
	{ "new xattr", have_file, do_set_value, { 2, 0, 0, 0 } },
	{ "other value of an xattr", have_value, do_set_value, { 2, 0, 0, 0 } },
	{ "xattr with blocks", have_file, do_set_large_value, { 2, 0, 2, 0 } },
	{ "removal of an xattr", have_value, do_remove_value, { 2, 0, 0, 0 } },
	{ "unlink with xattrs", have_value, do_unlink, { 5, 0, 0, 0 } },
	{ "write inline", have_file, do_write_inline, { 3, 1, 1, 0 } },
	{ "write of a block", have_file, do_write, { 3, 1, 1, 0 } },
	{ "write of four blocks", have_file, do_write_four, { 3, 4, 4, 0 } },
	{ "writes of four blocks in pieces", have_data, do_write_in_pieces, { 3, 4, 4, 0 } },
	{ "writes of two batches", have_data, do_write_two_batches, { 5, 512, 512, 0 } },
	{ "writes that are no run", have_data, do_write_backwards, { 5, 2, 2, 0 } },
	{ "a run with a hole", have_data, do_write_after_removal, { 5, 6, 3, 0 } },
	{ "chmod and a write", have_data, do_chmod_and_write, { 3, 1, 1, 0 } },
	{ "overwrite", have_data, do_write, { 3, 1, 1, 0 } },
	{ "truncate", have_data, do_truncate, { 3, 6, 0, 0 } },
	{ "truncate upwards", have_data, do_grow, { 1, 0, 0, 0 } },
	{ "punch", have_data, do_punch, { 3, 3, 0, 0 } },
	{ "preallocation", have_file, do_allocate, { 4, 10, 10, 10 } },
	{ "write to preallocated blocks", have_allocated, do_write, { 3, 1, 0, 0 } },
	/* Where each item pays for its path: what was paid in the delta is not paid again. */
	{ "tight: create", nothing, do_create, { 4, 0, 0, 0 } },
	{ "tight: create after a rename in the directory", have_other_name, do_rename_and_create, { 6 + 3, 0, 0, 0 } },
	{ "tight: ten files", nothing, do_create_ten, { 4 + 9 * 1, 9 * 2 * 3, 0, 0 } },
	{ "tight: ten files in a new directory", nothing, do_create_ten_in_new, { 4, 10 * 3 * 3, 0, 0 } },
	{ "tight: mkdir after a file", nothing, do_create_and_mkdir, { 4 + 3, 0, 0, 0 } },
	{ "tight: new file with a block", nothing, do_create_and_write, { 4, 1 + 2 * 3, 1, 0 } },
	{ "tight: new file with blocks, one after the other", nothing, do_create_and_write_two, { 4, 2 + 2 * 3, 2, 0 } },
	{ "tight: nameless file with a block", nothing, do_tmpfile_and_write, { 2 + 2, 1, 1, 0 } },
	{ "tight: chmod twice", have_file, do_chmod_twice, { 1, 0, 0, 0 } },
	{ "tight: rename there and back", have_file, do_rename_back, { 6 + 4, 0, 0, 0 } },
	{ "tight: move there and back", have_file, do_move_back, { 7 + 4, 0, 0, 0 } },
	{ "tight: exchange there and back", have_both, do_exchange_back, { 12 + 8, 0, 0, 0 } },
	{ "tight: create and unlink", nothing, do_create_and_unlink, { 4 + 3, 0, 0, 0 } },
	{ "tight: link and unlink", have_file, do_link_and_unlink, { 5 + 4, 0, 0, 0 } },
	{ "tight: chmod and truncate", have_data, do_chmod_and_truncate, { 1 + 2, 6, 0, 0 } },
};

/* With the longest names. */
static void run_operation(const struct operation *operation)
{
	const struct charge *want = &operation->charge;
	bool tight = !strncmp(operation->what, "tight: ", 7);
	struct charge before, after;
	struct bed bed;
	s64 edits;

	begin(&bed, &(struct format_options){});
	have(bed.root, "a", S_IFDIR | 0755, &a);
	have(bed.root, "b", S_IFDIR | 0755, &b);
	operation->prepare(&bed);
	commit(&bed, tight);
	before = charge_now(&bed);
	edits = atomic64_read(&core(&bed)->tree.edits);
	operation->run(&bed);
	after = charge_now(&bed);
	commit(&bed, false);
	edits = atomic64_read(&core(&bed)->tree.edits) - edits;
	if (after.items - before.items != want->items || after.extents - before.extents != want->extents ||
	    after.data - before.data != want->data || after.promised - before.promised != want->promised)
		fail_msg("%s: charged { %lld, %lld, %lld, %lld }, and the table says { %lld, %lld, %lld, %lld }", operation->what,
			 after.items - before.items, after.extents - before.extents, after.data - before.data,
			 after.promised - before.promised, want->items, want->extents, want->data, want->promised);
	/* An item for each edit, or an extent: one that is written to in its middle is cut before, which is an edit more. */
	if (edits > want->items + 2 * want->extents)
		fail_msg("%s: %lld edits of the tree are charged as %lld items and %lld extents", operation->what, edits,
			 want->items, want->extents);
	put(&file);
	put(&other);
	put(&a);
	put(&b);
	env_set_log(NULL);
	bed_free(&bed);
}

/*
 * What each operation is charged, to the item: an item is so much more than most take that a commit does not notice one too few.
 * Who changes what an operation costs changes its row, and says in space.h or ops.c why that is enough.
 */
static void test_each_operation_is_charged_as_the_table_says(void **state)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(operations); i++)
		run_operation(&operations[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_mischarge_by_kind_is_found),
		cmocka_unit_test(test_what_takes_most_is_charged),
		cmocka_unit_test(test_each_operation_is_charged_as_the_table_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
