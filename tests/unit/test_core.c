/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The core alone, under the smallest possible host: names, attributes, commit, replay, unify, orphans.
 * File data has its tests with libtux3.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "core/volume.h"
#include "core/data/data.h"
#include "core/inode/xattr.h"
#include "core/check/check.h"
#include "core/names/name_list.h"
#include "core/inode/ialloc.h"
#include "core/names/ops.h"
#include "core/mkfs.h"
#include "core/open.h"
#include "user/env/device_memory.h"

/* ---- host: inodes with counted references, and with one block of zeros as their data ---- */

#define DATA_BLOCK 5u
#define BLOCK_SIZE 4096u

struct node {
	struct tux3_inode inode;
	int pins, users;
	bool dead;
	bool dirty;			/* block DATA_BLOCK is, in the delta to be committed next */
	enum data_kind kind_when_clean;	/* what data_map() says of it from the moment on when it need not be cached */
};

static void host_grab(struct tux3_inode *inode)
{
	container_of(inode, struct node, inode)->pins++;
}

static void host_release(struct tux3_inode *inode)
{
	struct node *node = container_of(inode, struct node, inode);

	assert_true(node->pins > 0);
	if (!--node->pins && !node->users) {
		inode_exit(inode);
		free(node);
	}
}

static int host_next(struct tux3_inode *inode, u64 delta, u64 from, u64 *block, u64 *count)
{
	if (!container_of(inode, struct node, inode)->dirty || from > DATA_BLOCK)
		return -ENOENT;
	*block = DATA_BLOCK;
	*count = 1;
	return 0;
}

static int host_write(struct tux3_inode *inode, u64 delta, u64 block, u64 addr, u32 count, __le32 *csum,
		      struct io_wait *wait)
{
	static const u8 zeros[BLOCK_SIZE];

	*csum = cpu_to_le32(crc32c(~0u, zeros, sizeof(zeros)));
	device_write(inode->vol->dev, addr, zeros, 1, 0, wait);
	return 0;
}

static int host_copy(struct tux3_inode *inode, u64 delta, u64 block, void *data, u32 len)
{
	return -EIO;
}

static void host_done(struct tux3_inode *inode, u64 delta, int err)
{
	struct node *node = container_of(inode, struct node, inode);
	struct data_extent extent;

	assert_int_equal(data_map(inode, DATA_BLOCK, 1, &extent, NULL, 0), 0);
	node->kind_when_clean = extent.kind;
	node->dirty = false;
}

static bool host_kill(struct tux3_inode *inode)
{
	struct node *node = container_of(inode, struct node, inode);

	node->dead = !node->users;
	return node->dead;
}

static bool host_dirty(struct tux3_inode *inode, u64 from, u64 end, u64 *block, u64 *count)
{
	*block = DATA_BLOCK;
	*count = 1;
	return container_of(inode, struct node, inode)->dirty && from <= DATA_BLOCK && DATA_BLOCK < end;
}

static u64 host_dirty_blocks(struct tux3_inode *inode)
{
	return container_of(inode, struct node, inode)->dirty;
}

static const struct tux3_host_ops host = {
	.inode_grab = host_grab,
	.inode_release = host_release,
	.data_next = host_next,
	.data_write = host_write,
	.data_copy = host_copy,
	.data_done = host_done,
	.inode_kill = host_kill,
	.data_dirty = host_dirty,
	.data_dirty_blocks = host_dirty_blocks,
};

static void node_put(struct node *node)
{
	assert_true(node->users > 0);
	node->pins++;		/* data_forget may commit, which may delete */
	if (!--node->users && !node->inode.attr.nlink && !node->dead)
		data_forget(&node->inode, 0);
	host_release(&node->inode);
}

/* ---- fixture ---- */

struct world {
	struct tux3_device *dev;
	struct volume *vol;
	struct node *root;
	struct volume_options opts;
};

static struct node *node_alloc(struct world *w, u64 ino)
{
	struct node *node = calloc(1, sizeof(*node));

	inode_setup(w->vol, &node->inode, ino);
	node->users = 1;
	return node;
}

static struct node *node_read(struct world *w, u64 ino)
{
	struct node *node = node_alloc(w, ino);

	assert_int_equal(inode_read(&node->inode), 0);
	return node;
}

static void world_open(struct world *w)
{
	char why[256] = "";
	int err = volume_open(w->dev, &host, &w->opts, &w->vol, why, sizeof(why));

	if (err)
		fail_msg("open: %d %s", err, why);
	w->root = node_read(w, TUX3_INO_ROOT);
}

static void world_check(struct world *w)
{
	struct check_options opts = {};
	struct check_result result = {};

	assert_int_equal(volume_check(w->vol, &opts, &result), 0);
	assert_int_equal(result.problems, 0);
}

static void world_close(struct world *w, bool crash)
{
	node_put(w->root);
	if (crash)
		volume_abandon(w->vol);
	else
		assert_int_equal(volume_close(w->vol), 0);
}

static int setup_size(void **state, u64 size_bytes)
{
	struct world *w = calloc(1, sizeof(*w));
	struct format_options opts = {};
	char why[256] = "";

	w->dev = device_memory_create(size_bytes);
	w->opts.manual = true;
	assert_int_equal(volume_format(w->dev, &opts, why, sizeof(why)), 0);
	world_open(w);
	*state = w;
	return 0;
}

static int setup(void **state)
{
	return setup_size(state, 16 << 20);
}

static int setup_large(void **state)
{
	return setup_size(state, 256 << 20);
}

static int teardown(void **state)
{
	struct world *w = *state;

	w->dev->ops->close(w->dev);
	free(w);
	return 0;
}

static struct node *make(struct world *w, struct node *dir, const char *name, u32 mode)
{
	struct node *node;
	u64 ino;

	assert_int_equal(ialloc_new(&dir->inode, S_ISDIR(mode), &ino), 0);
	node = node_alloc(w, ino);
	node->inode.attr.mode = mode;
	assert_int_equal(op_create(&dir->inode, name, strlen(name), &node->inode, NULL, 0), 0);
	return node;
}

static u64 lookup(struct node *dir, const char *name)
{
	u64 ino;
	u8 type;
	int err = name_lookup(&dir->inode, name, strlen(name), &ino, &type);

	assert_true(!err || err == -ENOENT);
	return err ? 0 : ino;
}

/* ---- tests ---- */

static void empty_volume_reopens(void **state)
{
	struct world *w = *state;

	world_check(w);
	world_close(w, false);
	world_open(w);
	assert_int_equal(w->root->inode.attr.nlink, 2);
	world_close(w, true);
}

static void committed_names_survive_a_crash(void **state)
{
	struct world *w = *state;
	struct node *dir = make(w, w->root, "dir", S_IFDIR | 0755), *file = make(w, dir, "file", S_IFREG | 0644);
	u64 dir_ino = dir->inode.ino, file_ino = file->inode.ino;

	node_put(file);
	assert_int_equal(delta_commit(w->vol), 0);
	file = make(w, dir, "later", S_IFREG | 0644);
	node_put(file);
	node_put(dir);
	world_close(w, true);
	world_open(w);
	assert_int_equal(lookup(w->root, "dir"), dir_ino);
	dir = node_read(w, dir_ino);
	assert_int_equal(dir->inode.parent, TUX3_INO_ROOT);
	assert_int_equal(lookup(dir, "file"), file_ino);
	assert_int_equal(lookup(dir, "later"), 0);
	assert_int_equal(dir->inode.attr.size, 1);
	node_put(dir);
	world_check(w);
	world_close(w, false);
}

static void many_files_through_unifies(void **state)
{
	struct world *w = *state;
	struct node *node;
	char name[32];
	int i;

	for (i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "file-%d", i);
		node = make(w, w->root, name, S_IFREG | 0644);
		node_put(node);
		if (i % 500 == 499)
			assert_int_equal(i % 1000 == 999 ? delta_commit_unify(w->vol) : delta_commit(w->vol), 0);
	}
	world_check(w);
	world_close(w, true);
	world_open(w);
	assert_int_equal(w->root->inode.attr.size, 5000);
	for (i = 0; i < 5000; i++) {
		u64 ino;

		snprintf(name, sizeof(name), "file-%d", i);
		ino = lookup(w->root, name);
		assert_true(ino);
		if (i % 2)
			continue;
		node = node_read(w, ino);
		assert_int_equal(op_unlink(&w->root->inode, name, strlen(name), &node->inode), 0);
		node_put(node);
	}
	assert_int_equal(delta_commit(w->vol), 0);
	world_check(w);
	world_close(w, false);
	world_open(w);
	assert_int_equal(w->root->inode.attr.size, 2500);
	assert_int_equal(w->vol->tree_inodes, 2501);
	world_check(w);
	world_close(w, false);
}

/* As a truncate or punch and then a write in one delta. */
static void write_block(struct world *w, struct node *node, bool after_removing)
{
	struct delta_op op;

	assert_int_equal(delta_enter(w->vol, &op, space_cost_data(w->vol, 1, 1) + space_cost_items(w->vol, 3), 0), 0);
	if (after_removing)
		assert_int_equal(data_remove(&op, &node->inode, DATA_BLOCK, 1), 0);
	data_dirty(&op, &node->inode);
	inode_change_begin(&op, &node->inode)->size = (DATA_BLOCK + 1) * BLOCK_SIZE;
	inode_change_end(&node->inode);
	delta_leave(&op);
	node->dirty = true;
	assert_int_equal(delta_commit(w->vol), 0);
}

/* The host may drop what is clean, and then what it reads from the disk must be what was written. */
static void clean_data_is_mapped(void **state)
{
	struct world *w = *state;
	struct node *node = make(w, w->root, "file", S_IFREG | 0644);

	write_block(w, node, false);
	assert_int_equal(node->kind_when_clean, DATA_MAPPED);
	write_block(w, node, true);
	assert_int_equal(node->kind_when_clean, DATA_MAPPED);
	node_put(node);
	world_check(w);
	world_close(w, false);
}

static void set_read_only(struct world *w, bool read_only)
{
	char why[256] = "";

	if (volume_set_read_only(w->vol, read_only, why, sizeof(why)))
		fail_msg("%s", why);
}

static u64 orphans(struct world *w)
{
	struct check_options opts = {};
	struct check_result result = {};

	assert_int_equal(volume_check(w->vol, &opts, &result), 0);
	assert_int_equal(result.problems, 0);
	return result.orphans;
}

static struct node *make_orphan(struct world *w, const char *name)
{
	struct node *node = make(w, w->root, name, S_IFREG | 0644);

	write_block(w, node, false);
	assert_int_equal(op_unlink(&w->root->inode, name, strlen(name), &node->inode), 0);
	assert_int_equal(delta_commit(w->vol), 0);
	return node;
}

/* Who closes a file without a name while nothing can be written does not know that it is to be deleted afterwards. */
static void orphans_closed_while_read_only_go(void **state)
{
	struct world *w = *state;
	struct node *closed = make_orphan(w, "closed"), *open = make_orphan(w, "open"), *file;
	u64 inodes = percpu_counter_sum(&w->vol->inodes);

	set_read_only(w, true);
	node_put(closed);
	assert_int_equal(orphans(w), 2);
	set_read_only(w, false);
	assert_int_equal(delta_commit(w->vol), 0);
	assert_int_equal(orphans(w), 1);
	assert_int_equal(percpu_counter_sum(&w->vol->inodes), inodes);	/* less those without a name, always */
	/* Once, whatever gets its number; and who is open stays. */
	file = make(w, w->root, "file", S_IFREG | 0644);
	set_read_only(w, true);
	set_read_only(w, false);
	write_block(w, open, true);
	assert_int_equal(orphans(w), 1);
	assert_int_equal(lookup(w->root, "file"), file->inode.ino);
	node_put(file);
	node_put(open);
	assert_int_equal(delta_commit(w->vol), 0);
	assert_int_equal(orphans(w), 0);
	assert_int_equal(percpu_counter_sum(&w->vol->inodes), inodes + 1);
	world_close(w, false);
}

/* What is closed, and has no orphan item since the last commit deleted it, is not deleted again. */
static void orphan_that_the_last_commit_deleted(void **state)
{
	struct world *w = *state;
	struct node *file = make(w, w->root, "file", S_IFREG | 0644);
	u64 inodes = percpu_counter_sum(&w->vol->inodes);

	assert_int_equal(op_unlink(&w->root->inode, "file", 4, &file->inode), 0);
	WRITE_ONCE(w->vol->read_only, true);	/* as when the remount has just begun */
	node_put(file);
	WRITE_ONCE(w->vol->read_only, false);
	set_read_only(w, true);
	assert_int_equal(orphans(w), 0);
	set_read_only(w, false);
	assert_int_equal(delta_commit(w->vol), 0);
	assert_int_equal(orphans(w), 0);
	assert_int_equal(percpu_counter_sum(&w->vol->inodes), inodes - 1);
	world_close(w, false);
}

/* Who must not wait is let in or refused, at once; nothing is committed for him, and nothing stays charged. */
static void nobody_waits(void **state)
{
	struct world *w = *state;
	s64 balance, full;
	struct delta_op op;
	u64 front;

	assert_int_equal(delta_commit(w->vol), 0);
	front = w->vol->delta.front;
	balance = space_balance(w->vol);
	assert_int_equal(delta_enter(w->vol, &op, space_cost_items(w->vol, 1), DELTA_NOWAIT), 0);
	delta_refund(&op, space_cost_items(w->vol, 1), 0);
	full = w->vol->pace.commit_bytes;
	delta_add_dirty_bytes(&op, full);
	delta_leave(&op);
	assert_int_equal(delta_enter(w->vol, &op, 0, DELTA_NOWAIT), -EAGAIN);	/* the delta is due */
	percpu_counter_add_batch(&w->vol->delta.dirty_bytes[front & 1], -(s64)full, 1);
	assert_int_equal(delta_enter(w->vol, &op, balance * 2, DELTA_NOWAIT), -EAGAIN);	/* so much space there is not */
	atomic_set(&w->vol->delta.draining, 1);
	assert_int_equal(delta_enter(w->vol, &op, 0, DELTA_NOWAIT), -EAGAIN);	/* a transition is under way */
	atomic_set(&w->vol->delta.draining, 0);
	assert_int_equal(delta_enter(w->vol, &op, 0, DELTA_NOWAIT), 0);
	delta_leave(&op);
	assert_int_equal(w->vol->delta.front, front);
	assert_int_equal(space_balance(w->vol), balance);
	world_check(w);
	world_close(w, false);
}

static u64 deltas(struct world *w)
{
	return delta_counter(w->vol, TUX3_COUNT_DELTAS);
}

/* What others changed is no reason for a commit; what was changed of the inode itself is. */
static void fsync_commits_for_its_own_inode_only(void **state)
{
	struct world *w = *state;
	struct node *mine = make(w, w->root, "mine", S_IFREG | 0644), *other = make(w, w->root, "other", S_IFREG | 0644);
	struct tux3_attr attr = { .mode = S_IFREG | 0600 };
	u64 ino = mine->inode.ino, before;

	assert_int_equal(delta_commit_inode(&mine->inode), 0);
	before = deltas(w);
	assert_int_equal(op_setattr(&other->inode, &attr, OP_ATTR_MODE), 0);
	assert_int_equal(delta_commit_inode(&mine->inode), 0);
	assert_int_equal(deltas(w), before);
	assert_int_equal(op_setattr(&mine->inode, &attr, OP_ATTR_MODE), 0);
	assert_int_equal(delta_commit_inode(&mine->inode), 0);
	assert_int_equal(deltas(w), before + 1);
	assert_int_equal(delta_commit_inode(&other->inode), 0);	/* it was in the same delta */
	assert_int_equal(deltas(w), before + 1);
	node_put(mine);
	node_put(other);
	world_close(w, true);
	world_open(w);
	mine = node_read(w, ino);
	assert_int_equal(mine->inode.attr.mode, S_IFREG | 0600);
	node_put(mine);
	world_close(w, false);
}

static void made_and_removed_costs_nothing(void **state)
{
	struct world *w = *state;
	struct node *node;
	u64 records, i;

	node = make(w, w->root, "x", S_IFREG);	/* the directory is dirty anyway */
	node_put(node);
	assert_int_equal(delta_commit(w->vol), 0);
	for (i = 0; i < 2; i++) {
		u64 n, before = delta_counter(w->vol, TUX3_COUNT_RECORDS);

		for (n = 0; n < (i ? 100 : 1); n++) {
			node = make(w, w->root, "temporary", S_IFREG);
			assert_int_equal(op_unlink(&w->root->inode, "temporary", 9, &node->inode), 0);
			node_put(node);
		}
		assert_int_equal(delta_commit(w->vol), 0);
		records = delta_counter(w->vol, TUX3_COUNT_RECORDS) - before;
		assert_true(records <= 2);	/* the directory's times, at most a touched group */
	}
	world_check(w);
	world_close(w, false);
}

static void orphan_goes_at_the_next_mount(void **state)
{
	struct world *w = *state;
	struct node *node = make(w, w->root, "open", S_IFREG);

	assert_int_equal(delta_commit(w->vol), 0);
	assert_int_equal(op_unlink(&w->root->inode, "open", 4, &node->inode), 0);
	assert_int_equal(delta_commit(w->vol), 0);
	assert_int_equal(w->vol->tree_inodes, 2);
	volume_abort(w->vol, -ESHUTDOWN, "the test stops it");
	node_put(node);
	world_close(w, true);
	world_open(w);
	assert_int_equal(w->vol->tree_inodes, 1);
	world_check(w);
	world_close(w, false);
}

static int count_name(void *ctx, const struct name_found *found)
{
	(*(int *)ctx)++;
	return 0;
}

static void colliding_names_live_together(void **state)
{
	struct world *w = *state;
	u64 cookie = 0;
	char name[16];
	int i, count = 0;

	world_close(w, false);
	w->opts.name_hash_mask = 15;
	w->opts.names_cached = 10;
	world_open(w);
	for (i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		node_put(make(w, w->root, name, S_IFREG));
		if (i % 64 == 63)
			assert_int_equal(delta_commit(w->vol), 0);
	}
	assert_int_equal(delta_commit(w->vol), 0);
	world_close(w, true);
	world_open(w);
	for (i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		assert_true(lookup(w->root, name));
	}
	assert_int_equal(name_iterate(&w->root->inode, &cookie, count_name, &count), 0);
	assert_int_equal(count, 200);
	world_close(w, false);
}

/* ---- memory: clean entries go when there are more than names_cached, whoever brings more ---- */

#define NAMES_KEPT 1000u

static void world_with_few_names(struct world *w)
{
	world_close(w, false);
	w->opts.names_cached = NAMES_KEPT;
	world_open(w);
}

/* From this one on, so many: made, with a commit after each `batch`. */
static void make_names(struct world *w, struct node *dir, u32 from, u32 count, u32 batch)
{
	char name[16];
	u32 i;

	for (i = from; i < from + count; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		node_put(make(w, dir, name, S_IFREG));
		if (i % batch == batch - 1)
			assert_int_equal(delta_commit(w->vol), 0);
	}
}

static u64 names_in_memory(struct world *w)
{
	return percpu_counter_sum(&w->vol->names.entries);
}

static void names_that_are_made_leave_memory(void **state)
{
	struct world *w = *state;
	u64 at, most = 0;
	struct node *dir;
	u32 i;

	world_with_few_names(w);
	dir = make(w, w->root, "dir", S_IFDIR);
	for (i = 0; i < 40; i++) {
		make_names(w, dir, i * 500, 500, 500);
		at = names_in_memory(w);
		most = max(most, at);
	}
	/* Those of a batch that has just been committed, and what a CPU counts by itself. */
	assert_true(most <= NAMES_KEPT + 500 + 64 * num_possible_cpus());
	world_check(w);
	node_put(dir);
	world_close(w, false);
}

/* A directory of which others change names all the time: those at its beginning are among them. */
static void names_go_also_behind_those_that_are_changed(void **state)
{
	const u32 count = 12000, changed = 4000;
	struct world *w = *state;
	struct node *dir;
	char name[16];
	u64 ino;
	u32 i;

	world_with_few_names(w);
	dir = make(w, w->root, "dir", S_IFDIR);
	make_names(w, dir, 0, count, 500);
	ino = dir->inode.ino;
	node_put(dir);
	world_close(w, false);
	world_open(w);
	dir = node_read(w, ino);
	make_names(w, dir, count, changed, UINT_MAX);
	for (i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		assert_true(lookup(dir, name));
	}
	assert_true(names_in_memory(w) <= NAMES_KEPT + changed + 64 * num_possible_cpus());
	assert_int_equal(delta_commit(w->vol), 0);
	node_put(dir);
	world_close(w, false);
}

/* ---- chains: items of names whose hashes collide have an end ---- */

static void world_with_collisions(struct world *w)
{
	world_close(w, false);
	w->opts.name_hash_mask = 16;	/* every name has hash 16 */
	w->opts.names_cached = 4;
	world_open(w);
}

/* 255 bytes: four of these fit into an item, with what belongs to them. */
static void long_name(char *name, unsigned int n)
{
	memset(name, 'n', TUX3_NAME_MAX);
	name[TUX3_NAME_MAX] = 0;
	name[snprintf(name, TUX3_NAME_MAX, "user.%u", n)] = 'n';
}

static int add_name(struct node *dir, unsigned int n, struct node *node)
{
	char name[TUX3_NAME_MAX + 1];

	long_name(name, n);
	return op_link(&dir->inode, name, TUX3_NAME_MAX, &node->inode);
}

static int drop_name(struct node *dir, unsigned int n, struct node *node)
{
	char name[TUX3_NAME_MAX + 1];

	long_name(name, n);
	return op_unlink(&dir->inode, name, TUX3_NAME_MAX, &node->inode);
}

static int move_name(struct node *from, unsigned int n, struct node *to, unsigned int m, struct node *node)
{
	char old_name[TUX3_NAME_MAX + 1], new_name[TUX3_NAME_MAX + 1];
	struct op_rename rename = {
		.old_dir = &from->inode, .new_dir = &to->inode, .inode = &node->inode,
		.old_name = old_name, .old_len = TUX3_NAME_MAX, .new_name = new_name, .new_len = TUX3_NAME_MAX,
	};

	long_name(old_name, n);
	long_name(new_name, m);
	return op_rename(&rename);
}

static void a_full_chain_of_entries_is_told_before_the_commit(void **state)
{
	struct world *w = *state;
	char missing[TUX3_NAME_MAX + 1];
	struct node *file, *dir;
	unsigned int round, i;

	world_with_collisions(w);
	long_name(missing, 4);
	for (round = 0; round < 28; round++) {	/* not committed; committed; and going out of memory */
		char name[2] = { 'a' + round };

		dir = make(w, w->root, name, S_IFDIR);
		file = make(w, dir, "x", S_IFREG);
		for (i = 0; i < 3; i++)
			assert_int_equal(add_name(dir, i, file), 0);
		assert_int_equal(move_name(dir, 0, dir, 3, file), 0);
		if (round)
			assert_int_equal(delta_commit(w->vol), 0);
		assert_int_equal(add_name(dir, 0, file), 0);
		if (round > 1)
			assert_int_equal(delta_commit(w->vol), 0);
		assert_int_equal(lookup(dir, missing), 0);	/* in memory from now on, and of no importance */
		for (i = 2; i < round; i++)	/* each time a few entries more, but never a part of a chain */
			name_shrink(w->vol, 1);
		assert_int_equal(add_name(dir, 4, file), -ENOSPC);
		assert_int_equal(drop_name(dir, 1, file), 0);
		assert_int_equal(add_name(dir, 4, file), 0);
		assert_int_equal(move_name(dir, 2, dir, 1, file), -ENOSPC);
		assert_int_equal(delta_commit(w->vol), 0);
		assert_int_equal(volume_error(w->vol), 0);
		node_put(file);
		node_put(dir);
	}
	world_check(w);
	world_close(w, true);
	world_open(w);
	world_check(w);
	world_close(w, false);
}

/* A commit is made of what others change only where it gives room to the name. */
static void a_full_chain_of_entries_makes_no_commit_for_nothing(void **state)
{
	struct world *w = *state;
	struct node *file, *dir;
	unsigned int i;
	u64 commits;

	world_with_collisions(w);
	dir = make(w, w->root, "a", S_IFDIR);
	file = make(w, dir, "x", S_IFREG);
	for (i = 0; i < 4; i++)
		assert_int_equal(add_name(dir, i, file), 0);
	for (i = 0; i < 3; i++) {	/* entries that are not committed, and that are */
		node_put(make(w, w->root, (char []){ 'b' + i, 0 }, S_IFREG));
		commits = deltas(w);
		assert_int_equal(add_name(dir, 4, file), -ENOSPC);
		assert_int_equal(move_name(dir, 0, dir, 5, file), -ENOSPC);
		assert_int_equal(deltas(w), commits);
		assert_int_equal(delta_commit(w->vol), 0);
	}
	/* One that was removed goes with a commit, whether that gives room or not is known before. */
	assert_int_equal(drop_name(dir, 1, file), 0);
	commits = deltas(w);
	assert_int_equal(add_name(dir, 4, file), 0);
	assert_int_equal(deltas(w), commits + 1);
	assert_int_equal(delta_commit(w->vol), 0);
	node_put(file);
	node_put(dir);
	world_close(w, false);
}

static void a_full_chain_of_parents_is_told_before_the_commit(void **state)
{
	struct world *w = *state;
	struct node *dirs[8], *file;
	char name[2] = "a";
	unsigned int i;

	world_with_collisions(w);
	for (i = 0; i < ARRAY_SIZE(dirs); i++, name[0]++)
		dirs[i] = make(w, w->root, name, S_IFDIR);
	/* Each name in a directory of its own: the entries have room, the file's parent pointers have not. */
	file = make(w, dirs[0], "f", S_IFREG);
	for (i = 0; i < 4; i++)
		assert_int_equal(add_name(dirs[i], i, file), 0);
	assert_int_equal(add_name(dirs[4], 4, file), -EMLINK);
	assert_int_equal(delta_commit(w->vol), 0);
	assert_int_equal(add_name(dirs[4], 4, file), -EMLINK);
	assert_int_equal(move_name(dirs[0], 0, dirs[5], 0, file), -EMLINK);
	/* One less, and they can move about, also many times in one delta. */
	assert_int_equal(drop_name(dirs[0], 0, file), 0);
	for (i = 1; i < 50; i++)
		assert_int_equal(move_name(dirs[i % 8], 1, dirs[(i + 1) % 8], 1, file), 0);
	assert_int_equal(add_name(dirs[5], 5, file), 0);
	assert_int_equal(add_name(dirs[6], 6, file), -EMLINK);
	assert_int_equal(delta_commit(w->vol), 0);
	assert_int_equal(volume_error(w->vol), 0);
	node_put(file);
	/* A file that never has more than two names can always be moved. */
	file = make(w, dirs[0], "g", S_IFREG);
	assert_int_equal(add_name(dirs[0], 20, file), 0);
	for (i = 0; i < 100; i++) {
		assert_int_equal(move_name(dirs[i % 3], 20 + i, dirs[(i + 1) % 3], 21 + i, file), 0);
		if (i % 7 == 6)
			assert_int_equal(delta_commit(w->vol), 0);
	}
	node_put(file);
	for (i = 0; i < ARRAY_SIZE(dirs); i++)
		node_put(dirs[i]);
	world_check(w);
	world_close(w, true);
	world_open(w);
	world_check(w);
	world_close(w, false);
}

static int set_value(struct node *node, unsigned int n, const char *value, u32 size)
{
	char name[TUX3_NAME_MAX + 1];

	long_name(name, n);
	return xattr_set(&node->inode, name, value, size, 0, NULL);
}

static void a_full_chain_of_attributes_is_told_before_the_commit(void **state)
{
	struct world *w = *state;
	char value[TUX3_XATTR_INLINE_MAX] = "v";
	struct node *file;
	unsigned int i;

	world_with_collisions(w);
	file = make(w, w->root, "file", S_IFREG);
	for (i = 0; i < 2; i++)
		assert_int_equal(set_value(file, i, value, sizeof(value)), 0);
	assert_int_equal(set_value(file, 2, value, 30), -ENOSPC);
	assert_int_equal(delta_commit(w->vol), 0);
	assert_int_equal(set_value(file, 2, value, 30), -ENOSPC);
	assert_int_equal(set_value(file, 1, value, 0), 0);
	assert_int_equal(set_value(file, 2, value, 30), 0);
	assert_int_equal(set_value(file, 1, value, sizeof(value)), -ENOSPC);
	assert_int_equal(set_value(file, 2, NULL, 0), 0);
	assert_int_equal(set_value(file, 1, value, sizeof(value)), 0);
	for (i = 0; i < 20; i++)	/* again and again: no reason to refuse it */
		assert_int_equal(set_value(file, i % 2, value, sizeof(value) - i), 0);
	assert_int_equal(delta_commit(w->vol), 0);
	assert_int_equal(volume_error(w->vol), 0);
	node_put(file);
	world_check(w);
	world_close(w, false);
}

static void xattrs_of_all_sizes(void **state)
{
	struct world *w = *state;
	static const u32 sizes[] = { 0, 1, 255, 256, 257, 4096, 5000, 65536 };
	struct node *node = make(w, w->root, "f", S_IFREG);
	u8 *value = malloc(65536), *back = malloc(65536);
	u64 ino = node->inode.ino;
	char name[32];
	u32 i, j;

	for (i = 0; i < 65536; i++)
		value[i] = i * 7 + (i >> 8);
	for (j = 0; j < 2; j++) {
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			snprintf(name, sizeof(name), "user.x%u", i);
			assert_int_equal(xattr_set(&node->inode, name, value + j, sizes[i] - (j && sizes[i]), 0, NULL), 0);
		}
		assert_int_equal(delta_commit(w->vol), 0);
	}
	assert_int_equal(xattr_set(&node->inode, "user.x3", NULL, 0, 0, NULL), 0);
	assert_int_equal(xattr_set(&node->inode, "user.x7", NULL, 0, 0, NULL), 0);
	assert_int_equal(xattr_set(&node->inode, "user.x7", NULL, 0, 0, NULL), -ENODATA);
	assert_int_equal(delta_commit(w->vol), 0);
	node_put(node);
	world_check(w);
	world_close(w, true);
	world_open(w);
	node = node_read(w, ino);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		int len;

		snprintf(name, sizeof(name), "user.x%u", i);
		len = xattr_get(&node->inode, name, back, 65536);
		assert_int_equal(len, i == 3 || i == 7 ? -ENODATA : (int)(sizes[i] - !!sizes[i]));
		if (len > 0)
			assert_memory_equal(back, value + 1, len);
	}
	node_put(node);
	world_check(w);
	world_close(w, false);
	free(value);
	free(back);
}

static void no_space_is_exact_and_removal_always_works(void **state)
{
	struct world *w = *state;
	int i, made = 0, err = 0;
	char name[64];

	world_close(w, false);
	world_open(w);
	for (;;) {
		struct node *node;
		u64 ino;

		snprintf(name, sizeof(name), "a-rather-long-name-to-fill-the-volume-sooner-%d", made);
		assert_int_equal(ialloc_new(&w->root->inode, false, &ino), 0);
		node = node_alloc(w, ino);
		node->inode.attr.mode = S_IFREG;
		err = op_create(&w->root->inode, name, strlen(name), &node->inode, NULL, 0);
		if (err) {
			node->inode.attr.nlink = 1;	/* nobody deletes what never was */
			ialloc_free(w->vol, ino);
			node_put(node);
			break;
		}
		node_put(node);
		made++;
	}
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(volume_error(w->vol), 0);
	assert_true(made > 10000);
	world_check(w);
	for (i = 0; i < made; i++) {
		struct node *node;

		snprintf(name, sizeof(name), "a-rather-long-name-to-fill-the-volume-sooner-%d", i);
		node = node_read(w, lookup(w->root, name));
		assert_int_equal(op_unlink(&w->root->inode, name, strlen(name), &node->inode), 0);
		node_put(node);
		if (i % 1000 == 0)
			assert_int_equal(delta_commit(w->vol), 0);
	}
	assert_int_equal(delta_commit_unify(w->vol), 0);
	world_check(w);
	world_close(w, false);
	world_open(w);
	assert_int_equal(w->vol->tree_inodes, 1);
	world_close(w, false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(empty_volume_reopens),
		TEST(committed_names_survive_a_crash),
		TEST(many_files_through_unifies),
		TEST(clean_data_is_mapped),
		TEST(orphans_closed_while_read_only_go),
		TEST(orphan_that_the_last_commit_deleted),
		TEST(nobody_waits),
		TEST(fsync_commits_for_its_own_inode_only),
		TEST(made_and_removed_costs_nothing),
		TEST(orphan_goes_at_the_next_mount),
		TEST(colliding_names_live_together),
		TEST(names_that_are_made_leave_memory),
		cmocka_unit_test_setup_teardown(names_go_also_behind_those_that_are_changed, setup_large, teardown),
		TEST(a_full_chain_of_entries_is_told_before_the_commit),
		TEST(a_full_chain_of_entries_makes_no_commit_for_nothing),
		TEST(a_full_chain_of_parents_is_told_before_the_commit),
		TEST(a_full_chain_of_attributes_is_told_before_the_commit),
		TEST(xattrs_of_all_sizes),
		TEST(no_space_is_exact_and_removal_always_works),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
