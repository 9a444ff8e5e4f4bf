/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Each row of SPACE_TABLE is what the worst of its operations needs, and not less.
 *
 * An operation is made alone, in a delta of its own, where it needs most.  What it needs is looked up behind its commit: the
 * items of the tree that are not as they were, what they have grown by, the records in the log, the blocks of data.  What it was
 * charged has to be enough for that, kind by kind; and a row that has one item less, or extent, or block, must not be enough.
 */
#include <linux/falloc.h>
#include "support_lib.h"

#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/log/apply.h"
#include "core/log/replay.h"
#include "core/mkfs.h"
#include "core/tree/tree.h"
#include "user/lib/lib.h"

#define BLOCK 4096u
#define ITEM_HEAD sizeof(struct disk_item)

static struct volume *core(struct bed *bed)
{
	return tux3_core(bed->volume);
}

/* ---- what a commit needed ---- */

struct item {
	struct tree_key key;
	u32 len, crc;
};

struct items {
	struct item *item;
	u32 count, room;
};

static int collect(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct items *items = ctx;

	if (items->count == items->room) {
		items->room = items->room ? 2 * items->room : 1024;
		items->item = realloc(items->item, items->room * sizeof(*items->item));
		assert_non_null(items->item);
	}
	items->item[items->count++] = (struct item){ *key, len, crc32c(~0u, data, len) };
	return 0;
}

static struct items all_items(struct bed *bed)
{
	struct tree_key from = {}, to = { .ino = TUX3_INO_MAX, .type = U8_MAX, .offset = U64_MAX };
	struct items items = {};

	assert_ok(tree_scan(core(bed), &from, &to, collect, &items));
	return items;
}

struct need {
	s64 items;		/* that are not as they were */
	s64 paths;		/* of these, two at most of those beside each other: between its ends a run needs none */
	s64 node_bytes;		/* of leaves, as little full as items of their size leave them */
	s64 log_bytes, data, promised;
};

static int key_order(const struct tree_key *a, const struct tree_key *b)
{
	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* A leaf that is split for such an item has two halves, and for one it was too long. */
static s64 leaf_bytes(u32 item_bytes, u32 bytes)
{
	u32 room = BLOCK - sizeof(struct disk_node);

	return DIV_ROUND_UP(2 * bytes * room, room - item_bytes);
}

static void compare(const struct items *old, const struct items *new, struct need *need)
{
	u32 i = 0, k = 0, run = 0, gone = 0;

	while (i < old->count || k < new->count) {
		const struct item *was = &old->item[i], *is = &new->item[k];
		int order = i == old->count ? 1 : k == new->count ? -1 : key_order(&was->key, &is->key);
		u32 more;

		i += order <= 0;
		k += order >= 0;
		if (!order && was->len == is->len && was->crc == is->crc) {
			run = gone = 0;
			continue;
		}
		need->paths += run++ < 2;
		/* Leaves between the ends of what is gone die, which is for nothing. */
		gone = order < 0 ? gone + 1 : 0;
		need->items += gone <= 2;
		if (order < 0)
			continue;
		more = order ? ITEM_HEAD + is->len : max(is->len, was->len) - was->len;
		need->node_bytes += leaf_bytes(ITEM_HEAD + is->len, more);
	}
}

struct newest {
	u64 bytes;
};

/* But for what others than operations pay. */
static int note_commit(void *ctx, const struct log_commit *commit)
{
	struct newest *newest = ctx;
	const struct disk_record *record;
	u32 at = 0, was = 0;

	newest->bytes = 0;
	while (log_next_record(commit->records, le32_to_cpu(commit->commit->bytes), &at, &record) > 0) {
		u32 type = le16_to_cpu(record->type);

		if (type != TUX3_RECORD_GROUP_TOUCHED && type != TUX3_RECORD_TREE_MERGE)
			newest->bytes += at - was;
		was = at;
	}
	return 0;
}

/* ---- what was charged ---- */

struct charge {
	s64 items, extents, text, data, promised;
};

static struct charge charge_now(struct bed *bed)
{
	struct space_charges *charges = &core(bed)->space.charges[core(bed)->delta.front & 1];

	return (struct charge){
		atomic64_read(&charges->items), atomic64_read(&charges->extents), atomic64_read(&charges->text),
		atomic64_read(&charges->data), atomic64_read(&charges->promised),
	};
}

/* What is left of the charge; negative: it was not enough. */
static struct need spare_of(struct bed *bed, const struct charge *charge, const struct need *need)
{
	struct volume *vol = core(bed);
	s64 inlined = vol->log.inlined, inlined_bytes = vol->log.inlined_bytes;
	struct space_kept kept;

	space_get_kept(vol, &kept);
	return (struct need){
		.items = charge->items + charge->extents - need->items,
		.paths = charge->items - need->paths,
		.node_bytes = charge->items * kept.item_bytes + charge->extents * SPACE_EXTENT_BYTES +
			      charge->text * kept.text_bytes + 2 * inlined_bytes - need->node_bytes,
		.log_bytes = charge->items * kept.item_log_bytes + charge->extents * SPACE_EXTENT_RECORD +
			    charge->text * kept.text_log_bytes + inlined_bytes - need->log_bytes,
		.data = charge->data - inlined - need->data,
		.promised = charge->promised - need->promised,
	};
}

/* ---- the operations ---- */

/* Two directories, and what is in them; nodes that are in use. */
static struct tux3_node *a, *b, *file, *other;

static const char *long_name(u32 which)
{
	static char names[3][TUX3_NAME_MAX + 1];

	memset(names[which], 'a' + which, TUX3_NAME_MAX);
	return names[which];
}

#define FIRST long_name(0)
#define SECOND long_name(1)

static void put(struct tux3_node **node)
{
	if (*node)
		tux3_node_put(*node, 1);
	*node = NULL;
}

static void have(struct tux3_node *dir, const char *name, u32 mode, struct tux3_node **node)
{
	assert_ok(tux3_mknod(dir, NULL, name, mode, 0, 0, node));
}

static void nothing(struct bed *bed) { }
static void have_file(struct bed *bed) { have(a, FIRST, S_IFREG | 0644, &file); }
static void have_dir(struct bed *bed) { have(a, FIRST, S_IFDIR | 0755, &file); }
static void have_unused(struct bed *bed) { have_file(bed); put(&file); }
static void have_both(struct bed *bed) { have_file(bed); have(b, SECOND, S_IFREG | 0644, &other); }
static void have_both_dirs(struct bed *bed) { have_dir(bed); have(b, SECOND, S_IFDIR | 0755, &other); }
static void have_nameless(struct bed *bed) { assert_ok(tux3_tmpfile(a, NULL, 0644, &file)); }

static void set_value(u32 size, u8 byte);

static void have_nameless_with_value(struct bed *bed) { have_nameless(bed); set_value(1, 1); }
static void have_unused_with_value(struct bed *bed) { have_file(bed); set_value(1, 1); put(&file); }

static void have_links(struct bed *bed)
{
	have_file(bed);
	assert_ok(tux3_link(file, NULL, b, SECOND));
}

static void do_link(struct bed *bed) { assert_ok(tux3_link(file, NULL, b, SECOND)); }
static void do_unlink(struct bed *bed) { assert_ok(tux3_unlink(a, NULL, FIRST)); }
static void do_rmdir(struct bed *bed) { assert_ok(tux3_rmdir(a, NULL, FIRST)); }
static void do_put(struct bed *bed) { put(&file); }

static void symlink_of(u32 bytes)
{
	char target[TUX3_SYMLINK_MAX + 1];

	memset(target, 't', bytes);
	target[bytes] = 0;
	assert_ok(tux3_symlink(a, NULL, FIRST, target, &file));
}

static void do_symlink(struct bed *bed) { symlink_of(TUX3_NAME_MAX); }
static void do_long_symlink(struct bed *bed) { symlink_of(TUX3_SYMLINK_MAX); }

static void move(unsigned int flags)
{
	assert_ok(tux3_rename(a, FIRST, b, SECOND, flags, NULL));
}

static void do_move(struct bed *bed) { move(0); }
static void do_rename(struct bed *bed) { assert_ok(tux3_rename(a, FIRST, a, long_name(2), 0, NULL)); }
static void do_exchange(struct bed *bed) { move(TUX3_RENAME_EXCHANGE); }
static void do_whiteout(struct bed *bed) { move(TUX3_RENAME_WHITEOUT); }

static void do_setattr(struct bed *bed)
{
	struct tux3_stat stat = { .mode = 0600, .uid = 7, .gid = 8 };

	assert_ok(tux3_setattr(file, NULL, &stat, TUX3_SET_MODE | TUX3_SET_UID | TUX3_SET_GID));
}

static void set_value(u32 size, u8 byte)
{
	static u8 value[TUX3_XATTR_SIZE_MAX];
	char name[TUX3_NAME_MAX + 1] = "user.";

	memset(name + 5, 'x', TUX3_NAME_MAX - 5);
	memset(value, byte, size);
	assert_ok(tux3_setxattr(file, NULL, name, value, size, 0));
}

static void have_value(struct bed *bed) { have_file(bed); set_value(1, 1); }
static void do_set_value(struct bed *bed) { set_value(TUX3_XATTR_INLINE_MAX, 2); }
static void do_set_large_value(struct bed *bed) { set_value(2 * BLOCK, 3); }

static void write_at(u64 block, u32 blocks)
{
	static u8 data[16 * BLOCK];

	assert_int_equal(tux3_write(file, data, blocks * BLOCK, block * BLOCK), blocks * BLOCK);
}

static void have_data(struct bed *bed) { have_file(bed); write_at(0, 16); }
static void have_inline(struct bed *bed) { have_file(bed); assert_int_equal(tux3_write(file, "short", 5, 0), 5); }
static void do_write(struct bed *bed) { write_at(7, 1); }
static void do_write_first(struct bed *bed) { write_at(0, 1); }

static void have_allocated(struct bed *bed)
{
	have_file(bed);
	assert_ok(tux3_fallocate(file, 0, 0, 16 * BLOCK));
}

static void punch(u64 block, u32 blocks)
{
	assert_ok(tux3_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block * BLOCK, blocks * BLOCK));
}

static void have_hole_in_allocated(struct bed *bed)
{
	have_allocated(bed);
	assert_ok(delta_commit(core(bed)));
	punch(7, 1);
}

static void do_allocate(struct bed *bed) { assert_ok(tux3_fallocate(file, 0, 7 * BLOCK, BLOCK)); }
static void do_grow(struct bed *bed) { assert_ok(tux3_truncate(file, 100 * BLOCK)); }
static void do_punch(struct bed *bed) { punch(7, 1); }
static void do_truncate(struct bed *bed) { assert_ok(tux3_truncate(file, 7 * BLOCK + 1)); }

#define COMB 130u

static void have_comb(struct bed *bed)
{
	u32 i;

	have_file(bed);
	for (i = 0; i < COMB; i++)
		write_at(2 * i, 1);
}

static void do_punch_comb(struct bed *bed) { punch(1, 2 * COMB); }
static void do_create(struct bed *bed) { have_file(bed); }
static void do_mkdir(struct bed *bed) { have_dir(bed); }
static void do_tmpfile(struct bed *bed) { have_nameless(bed); }

/* row: of which it may be the worst. */
static const struct operation {
	const char *row, *what;
	void (*prepare)(struct bed *bed), (*run)(struct bed *bed);
} operations[] = {
	{ "CREATE", "create", nothing, do_create },
	{ "CREATE", "mkdir", nothing, do_mkdir },
	{ "LINK", "symlink", nothing, do_symlink },
	{ "LINK", "link", have_file, do_link },
	{ "LINK", "link of a nameless file", have_nameless, do_link },
	{ "TARGET", "long symlink", nothing, do_long_symlink },
	{ "TMPFILE", "tmpfile", nothing, do_tmpfile },
	{ "UNLINK", "unlink of one of two names", have_links, do_unlink },
	{ "UNLINK", "unlink of a file in use", have_file, do_unlink },
	{ "UNLINK", "rmdir", have_dir, do_rmdir },
	{ "FORGET", "letting go of a nameless file", have_nameless, do_put },
	{ "FORGET", "letting go of a nameless file with xattrs", have_nameless_with_value, do_put },
	{ "UNLINK, FORGET", "unlink of the last name, with xattrs", have_unused_with_value, do_unlink },
	{ "UNLINK, FORGET", "unlink of the last name", have_unused, do_unlink },
	{ "RENAME", "rename", have_file, do_rename },
	{ "RENAME", "rename of one of two names", have_links, do_rename },
	{ "RENAME", "rename to another directory", have_file, do_move },
	{ "RENAME", "rename of a directory to another", have_dir, do_move },
	{ "REPLACE", "rename over a file in use", have_both, do_move },
	{ "REPLACE", "rename of a directory over one", have_both_dirs, do_move },
	{ "REPLACE", "exchange", have_both, do_exchange },
	{ "REPLACE", "exchange of directories", have_both_dirs, do_exchange },
	{ "REPLACE", "whiteout", have_file, do_whiteout },
	{ "REPLACE", "whiteout over a file in use", have_both, do_whiteout },
	{ "SETATTR", "chmod, chown", have_file, do_setattr },
	{ "XATTR", "new xattr", have_file, do_set_value },
	{ "XATTR", "other value of an xattr", have_value, do_set_value },
	{ "XATTR", "xattr with blocks", have_file, do_set_large_value },
	{ "WRITE", "write into the middle", have_data, do_write },
	{ "WRITE", "first block, instead of inline data", have_inline, do_write_first },
	{ "WRITE", "first block", have_file, do_write_first },
	{ "ALLOCATE", "preallocation", have_file, do_allocate },
	{ "ALLOCATE", "preallocation between others", have_hole_in_allocated, do_allocate },
	{ "WRITE_PAID", "write to a preallocated block", have_allocated, do_write },
	{ "GROW", "truncate upwards", have_data, do_grow },
	{ "REMOVE", "punch", have_data, do_punch },
	{ "REMOVE", "truncate", have_data, do_truncate },
	{ "REMOVE", "punch of many extents", have_comb, do_punch_comb },
};

static void begin(struct bed *bed)
{
	*bed = (struct bed){ .opts = { .manual = true, .slice_extents = 4, .costs = true } };
	bed_make(bed, 64 << 20, BLOCK);
	have(bed->root, "a", S_IFDIR | 0755, &a);
	have(bed->root, "b", S_IFDIR | 0755, &b);
}

static void end(struct bed *bed)
{
	put(&file);
	put(&other);
	put(&a);
	put(&b);
	bed_free(bed);
}

/* less: of what that formula counts the operation is charged so many too few. */
static struct need spare_of_operation(const struct operation *operation, enum space_formula cheap, u32 less)
{
	struct items before, after;
	struct newest newest = {};
	struct need need = {}, spare;
	struct charge charge, was;
	struct bed bed;
	s64 unwritten;

	begin(&bed);
	operation->prepare(&bed);
	assert_ok(delta_commit(core(&bed)));
	before = all_items(&bed);
	unwritten = core(&bed)->space.unwritten;
	need.data = -core(&bed)->balloc.taken[BALLOC_DATA];
	was = charge_now(&bed);
	core(&bed)->opts.cheap = cheap;
	core(&bed)->opts.cheap_by = less;
	operation->run(&bed);
	core(&bed)->opts.cheap = SPACE_RIGHT;
	charge = charge_now(&bed);
	charge.items -= was.items;
	charge.extents -= was.extents;
	charge.text -= was.text;
	charge.data -= was.data;
	charge.promised -= was.promised;
	core(&bed)->opts.costs = false;		/* it is looked at here */
	assert_ok(delta_commit(core(&bed)));
	after = all_items(&bed);
	compare(&before, &after, &need);
	need.data += core(&bed)->balloc.taken[BALLOC_DATA];
	need.promised = max(core(&bed)->space.unwritten - unwritten, (s64)0);
	assert_ok(log_walk(core(&bed), note_commit, &newest));
	need.log_bytes = newest.bytes;
	spare = spare_of(&bed, &charge, &need);
	free(before.item);
	free(after.item);
	atomic64_set(&core(&bed)->counters[TUX3_COUNT_OVERDRAFTS], 0);
	end(&bed);
	return spare;
}


static bool is_enough(const struct need *spare)
{
	return spare->items >= 0 && spare->paths >= 0 && spare->node_bytes >= 0 && spare->log_bytes >= 0 && spare->data >= 0 &&
	       spare->promised >= 0;
}

static void test_each_operation_is_charged_what_it_needs(void **state)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(operations); i++) {
		struct need spare = spare_of_operation(&operations[i], SPACE_RIGHT, 0);

		if (!is_enough(&spare))
			fail_msg("%s lacks %lld items, %lld paths, %lld bytes of nodes, %lld of log, %lld blocks, %lld promises",
				 operations[i].what, -spare.items, -spare.paths, -spare.node_bytes, -spare.log_bytes, -spare.data,
				 -spare.promised);
	}
}

/* ---- less is not enough ---- */

/*
 * Of these more than one too few is not seen here, and why that is left so.  0: never.
 *
 *	ALLOCATE	what is between the holes of a batch stays as it is, in up to five leaves; here it is one hole
 *	TARGET		the operation has more items beside the target than need room in leaves
 *	REMOVE		items pay for as much log as new attributes take, and two of these are extents
 *	REMAP		is made of what the ranges have: tests/unit/test_remap.c
 *	SLICE		is the back end's: the simulator's canary cheap-slice
 */
static const struct slack {
	const char *row;
	enum space_formula column;
	u32 found;
} slacks[] = {
	{ "ALLOCATE", SPACE_CHEAP_ITEMS, 3 },
	{ "ALLOCATE", SPACE_CHEAP_EXTENTS, 0 },
	{ "TARGET", SPACE_CHEAP_EXTENTS, 27 },
	{ "REMOVE", SPACE_CHEAP_EXTENTS, 5 },
	{ "REMAP", SPACE_CHEAP_ITEMS, 0 },
	{ "REMAP", SPACE_CHEAP_EXTENTS, 0 },
	{ "SLICE", SPACE_CHEAP_ITEMS, 0 },
};

static u32 least_found(const char *row, enum space_formula column)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(slacks); i++)
		if (!strcmp(slacks[i].row, row) && slacks[i].column == column)
			return slacks[i].found;
	return 1;
}

static bool is_caught(const char *row, enum space_formula column, u32 less)
{
	bool caught = false;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(operations) && !caught; i++) {
		struct need spare;

		if (strcmp(operations[i].row, row))
			continue;
		spare = spare_of_operation(&operations[i], column, less);
		caught = !is_enough(&spare);
	}
	return caught;
}

static void test_each_row_is_not_more_than_the_worst_needs(void **state)
{
	struct space_row row;
	u32 i, k, found, rows = 0;
	struct bed bed;

	for (i = 0;; i++) {
		bool more;

		begin(&bed);
		more = space_table_row(core(&bed), i, &row);
		end(&bed);
		if (!more)
			break;
		for (k = 0; k < 4; k++) {
			const enum space_formula columns[] = {
				SPACE_CHEAP_ITEMS, SPACE_CHEAP_EXTENTS, SPACE_CHEAP_DATA, SPACE_CHEAP_PROMISED,
			};
			const u32 counts[] = { row.items, row.extents, row.data, row.promised };

			found = counts[k] ? least_found(row.name, columns[k]) : 0;
			if (!found)
				continue;
			if (!is_caught(row.name, columns[k], found))
				fail_msg("%s: %u less in column %u is not found", row.name, found, k);
			if (found > 1 && is_caught(row.name, columns[k], found - 1))
				fail_msg("%s: %u less in column %u is found, better than the table says", row.name, found - 1, k);
			rows++;
		}
	}
	assert_in_range(rows, 18, 100);
}

/* ---- what ordinary work is charged, and takes ---- */

#define OPERATIONS 1000u

static const char *short_name(u32 i)
{
	static char name[20];

	snprintf(name, sizeof(name), "file-%u", i);
	return name;
}

static void each_create(struct bed *bed, u32 i)
{
	have(a, short_name(i), S_IFREG | 0644, &file);
	put(&file);
}

static void each_write(struct bed *bed, u32 i)
{
	assert_ok(tux3_lookup(a, NULL, short_name(i), &file));
	write_at(0, 1);
	put(&file);
}

static void each_chmod(struct bed *bed, u32 i)
{
	struct tux3_stat stat = { .mode = 0600 };

	assert_ok(tux3_lookup(a, NULL, short_name(i), &file));
	assert_ok(tux3_setattr(file, NULL, &stat, TUX3_SET_MODE));
	put(&file);
}

static void each_rename(struct bed *bed, u32 i)
{
	char name[20];

	memcpy(name, short_name(i), sizeof(name));
	assert_ok(tux3_rename(a, name, b, name, 0, NULL));
}

static s64 taken_blocks(struct bed *bed)
{
	const s64 *taken = core(bed)->balloc.taken;

	return taken[BALLOC_DATA] + taken[BALLOC_LOG] + taken[BALLOC_NODE];
}

/* While there is room: a price is a block at least, which is what most of them come to. */
static void test_ordinary_work_is_not_charged_much_more(void **state)
{
	static const struct {
		const char *what;
		void (*each)(struct bed *bed, u32 i);
		u32 most;	/* blocks, for one operation */
	} loads[] = {
		{ "create", each_create, 2 }, { "write of 4 KiB", each_write, 2 }, { "chmod", each_chmod, 1 },
		{ "rename", each_rename, 2 },
	};
	struct bed bed;
	u32 n, i;

	begin(&bed);
	for (n = 0; n < ARRAY_SIZE(loads); n++) {
		s64 charged, taken;

		assert_ok(delta_commit_unify(core(&bed)));
		assert_false(core(&bed)->space.tight[core(&bed)->delta.front & 1]);
		charged = atomic64_read(&core(&bed)->space.balance);
		taken = taken_blocks(&bed);
		for (i = 0; i < OPERATIONS; i++)
			loads[n].each(&bed, i);
		charged -= atomic64_read(&core(&bed)->space.balance);
		assert_ok(delta_commit(core(&bed)));
		taken = taken_blocks(&bed) - taken;
		printf("%u times %s: charged %lld blocks, taken %lld\n", OPERATIONS, loads[n].what, charged, taken);
		assert_in_range(charged, taken, loads[n].most * OPERATIONS);
	}
	end(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_operation_is_charged_what_it_needs),
		cmocka_unit_test(test_each_row_is_not_more_than_the_worst_needs),
		cmocka_unit_test(test_ordinary_work_is_not_charged_much_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
