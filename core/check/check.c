/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker's driver: passes, problems, progress, tables.  See check_internal.h for the parts.
 *
 * Whatever the volume holds, this ends: the walk visits each block at most once, every item is parsed
 * within its length, and all else is proportional to the number of items.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/data/data.h"
#include "core/show/show.h"
#include "core/check/check.h"
#include "core/check/check_internal.h"

#define PROGRESS_TICKS	1024u
#define TABLE_MIN	1024u

/* ---- problems ---- */

static const struct {
	unsigned int code;
	const char *name, *sentence;
} problems[] = {
#define X(number, NAME, name, sentence) { number, name, sentence },
	TUX3_PROBLEMS(X)
#undef X
};

static unsigned int problem_index(unsigned int code)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(problems); i++)
		if (problems[i].code == code)
			break;
	return i;
}

const char *check_problem_name(unsigned int code)
{
	unsigned int i = problem_index(code);

	return i < ARRAY_SIZE(problems) ? problems[i].name : "?";
}

int check_fail(struct check *check, int err)
{
	if (!check->stop)
		check->stop = err;
	return check->stop;
}

int check_report(struct check *check, enum check_code code, u64 ino, u64 addr, const char *detail,
		 const u64 args[4])
{
	unsigned int i = problem_index(code);
	struct check_problem problem = { .code = code, .name = problems[i].name, .ino = ino, .addr = addr,
					 .raw_name = check->name, .name_len = check->name_len };
	size_t used;

	if (check->stop)
		return check->stop;
	check->result->problems++;
	memcpy(problem.args, args, sizeof(problem.args));
	used = scnprintf(problem.text, sizeof(problem.text), problems[i].sentence, args[0], args[1], args[2],
			 args[3]);
	scnprintf(problem.text + used, sizeof(problem.text) - used, detail ? ": %s." : ".", detail);
	if (check->opts->problem && check->opts->problem(check->opts->ctx, &problem))
		return check_fail(check, -ECANCELED);
	return 0;
}

void check_name_text(char *text, size_t size, const void *name, u32 len)
{
	struct show_buffer out;

	show_init(&out, text, size, false);
	show_bytes(&out, NULL, name, len);
}

void check_progress(struct check *check, enum check_pass pass, u64 done, u64 total)
{
	if (check->opts->stopped && check->opts->stopped(check->opts->ctx))
		check_fail(check, -ECANCELED);
	if (check->ticks++ % PROGRESS_TICKS && done < total)
		return;
	cond_resched();
	if (check->opts->progress)
		check->opts->progress(check->opts->ctx, pass, done, total);
}

/* ---- tables ---- */

static int table_grow(struct check_table *table)
{
	u64 capacity = max_t(u64, table->capacity + table->capacity / 2, TABLE_MIN);
	void *entries;

	if (capacity > U32_MAX)
		return -EFBIG;
	entries = kvmalloc(capacity * table->size, GFP_KERNEL);
	if (!entries)
		return -ENOMEM;
	if (table->count)
		memcpy(entries, table->entries, table->count * table->size);
	kvfree(table->entries);
	table->entries = entries;
	table->capacity = capacity;
	return 0;
}

void *check_table_add(struct check *check, struct check_table *table)
{
	void *entry;
	int err;

	if (table->count == table->capacity) {
		err = table_grow(table);
		if (err) {
			check_fail(check, err);
			return NULL;
		}
	}
	entry = (u8 *)table->entries + table->count++ * table->size;
	memset(entry, 0, table->size);
	return entry;
}

struct check_inode *check_inode_at(struct check *check, u64 index)
{
	return (struct check_inode *)check->inodes.entries + index;
}

struct check_inode *check_inode_find(struct check *check, u64 ino)
{
	u64 low = 0, high = check->inodes.count;

	while (low < high) {
		u64 middle = low + (high - low) / 2;
		struct check_inode *inode = check_inode_at(check, middle);

		if (inode->ino == ino)
			return inode;
		if (inode->ino < ino)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

/* ---- the tree: nodes, and through check_item() what they hold ---- */

static int check_leaf(struct check *check, const struct disk_node *node, u64 addr)
{
	u32 i;
	int err = 0;

	for (i = 0; i < node_count(node) && !err; i++) {
		struct node_key packed = leaf_key(node, i);
		struct tree_key key = node_key_unpack(&packed);

		err = check_item(check, &key, leaf_data(node, i), leaf_len(node, i), addr);
	}
	return err;
}

/* tree_walk() has checked the node itself, and that its keys are where its parent says. */
static int check_node(void *ctx, const struct tree_visit *visit)
{
	struct check *check = ctx;
	const struct disk_node *node = visit->data;
	int err;

	if (check->stop)
		return check->stop;
	if (!node) {
		check->damaged = true;
		return check_problem(check, NODE_BAD, 0, visit->addr, visit->why, visit->addr, visit->level);
	}
	check->result->nodes++;
	if (node_unplaced(visit->addr))		/* in memory only, after replay */
		err = 0;
	else if (balloc_is_fixed(check->vol, visit->addr))
		err = check_problem(check, NODE_FIXED, 0, visit->addr, NULL, visit->addr);
	else
		err = check_use_blocks(check, 0, visit->addr, 1);
	if (!err && !node_level(node))
		err = check_leaf(check, node, visit->addr);
	return err;
}

static int check_tree(struct check *check)
{
	struct check_orphan *orphans;
	int err = tree_walk(check->vol, check_node, check);
	u64 i;

	if (!err)
		err = check_inode_finish(check);
	check_progress(check, CHECK_TREE, check->vol->tree_inodes, check->vol->tree_inodes);
	if (err || check->damaged)
		return err;
	orphans = check->orphans.entries;
	for (i = 0; i < check->orphans.count && !check->stop; i++)
		if (!orphans[i].seen)
			check_problem(check, ORPHAN_DANGLING, orphans[i].ino, 0, NULL, orphans[i].ino);
	if (!check->stop && !check_inode_find(check, TUX3_INO_ROOT))
		check_problem(check, ROOT_MISSING, TUX3_INO_ROOT, 0, NULL, TUX3_INO_ROOT);
	return check->stop;
}

/* ---- the passes ---- */

static int check_totals(struct check *check)
{
	struct check_result *result = check->result;
	struct volume *vol = check->vol;

	result->tree_height = vol->tree.root_level + 1;
	result->used_blocks = check->used.set + balloc_fixed_blocks(vol);
	result->log_blocks = vol->log.length;
	result->free_blocks = vol->total_blocks - min(vol->total_blocks, result->used_blocks + result->log_blocks +
						      atomic64_read(&vol->balloc.promised));
	if (check->damaged)
		return 0;
	if (result->inodes != vol->tree_inodes)
		check_problem(check, INODE_TOTAL, 0, 0, NULL, vol->tree_inodes, result->inodes);
	if (!check->stop && result->data_blocks != atomic64_read(&vol->balloc.data_used))
		check_problem(check, DATA_TOTAL, 0, 0, NULL, atomic64_read(&vol->balloc.data_used),
			      result->data_blocks);
	if (!check->stop && (s64)result->unwritten_blocks != vol->space.unwritten)
		check_problem(check, UNWRITTEN_TOTAL, 0, 0, NULL, vol->space.unwritten, result->unwritten_blocks);
	return check->stop;
}

/* How the log ends was found out when the volume was opened. */
static int check_log_end(struct check *check)
{
	const struct intent *intent = &check->vol->intent;

	return intent->missing ? check_problem(check, COMMIT_MISSING, 0, 0, NULL, intent->missing, intent->base) : 0;
}

static int check_passes(struct check *check)
{
	static int (*const passes[])(struct check *check) = {
		check_read_maps, check_anchor, check_log_end, check_tree, check_links, check_reachable, check_quotas, check_maps,
		check_totals,
	};
	unsigned int i;
	int err = 0;

	for (i = 0; i < ARRAY_SIZE(passes) && !err; i++)
		err = passes[i](check) ? : check->stop;
	if (!err && check->opts->data)
		err = check_data(check);
	return err;
}

int volume_check(struct volume *vol, const struct check_options *opts, struct check_result *result)
{
	struct check *check = kvzalloc(sizeof(*check), GFP_KERNEL);
	int err;

	memset(result, 0, sizeof(*result));
	if (!check)
		return -ENOMEM;
	check->vol = vol;
	check->opts = opts;
	check->result = result;
	check->quota = RB_ROOT;
	check->now.index = CHECK_NONE;
	check->inodes.size = sizeof(struct check_inode);
	check->links.size = sizeof(struct check_link);
	check->orphans.size = sizeof(struct check_orphan);
	err = check_bitmap_init(check, &check->used);
	if (!err)
		err = check_passes(check);
	check_quota_exit(check);
	check_bitmap_exit(&check->used);
	check_bitmap_exit(&check->maps);
	kvfree(check->inodes.entries);
	kvfree(check->links.entries);
	kvfree(check->orphans.entries);
	kvfree(check->buffer);
	kvfree(check);
	return err;
}
