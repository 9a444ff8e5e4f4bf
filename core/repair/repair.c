/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: the driver.  See repair.h for what is done in which order.
 *
 * Rounds: the checker looks at the whole volume and tells what is wrong; then each object that it named is put right; then
 * it looks again, since what is put right may show what else is wrong (a directory that was made anew has entries missing, a
 * file that lost its name has to get another).  It ends: a round that changes nothing is the last one, and so is the
 * ROUNDS_MAX-th.
 */
#include "core/error.h"
#include "core/open.h"
#include "core/device/device.h"
#include "core/format/format.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/log/log.h"
#include "core/delta/delta.h"
#include "core/check/check.h"
#include "core/repair/repair.h"
#include "core/repair/repair_internal.h"
#include "core/repair/key_ranges.h"
#include "core/repair/repair_lost.h"

#define ROUNDS_MAX	24u
#define TABLE_MIN	64u
#define USAGE_TURN	3u

/* ---- tables, notes ---- */

void *repair_add(struct repair_table *table, size_t size)
{
	u64 capacity = max_t(u64, 2 * table->capacity, TABLE_MIN);
	void *entries;

	if (table->count == table->capacity) {
		entries = kvmalloc(capacity * size, GFP_KERNEL);
		if (!entries)
			return NULL;
		if (table->count)
			memcpy(entries, table->entries, table->count * size);
		kvfree(table->entries);
		table->entries = entries;
		table->capacity = capacity;
	}
	return memset((u8 *)table->entries + table->count++ * size, 0, size);
}

void repair_note(struct repair *repair, enum repair_kind kind, u64 ino, const char *format, ...)
{
	char text[600];
	struct repair_note note = { .kind = kind, .ino = ino, .text = text };
	va_list args;
	int len;

	va_start(args, format);
	len = vscnprintf(text, sizeof(text) - 1, format, args);
	va_end(args);
	if (len && text[len - 1] != '.')
		strscpy(text + len, ".", sizeof(text) - len);
	repair->result->notes[kind]++;
	if (repair->opts->note)
		repair->opts->note(repair->opts->ctx, &note);
}

static void on_left_out(struct volume_mend *mend, const char *text)
{
	struct repair *repair = container_of(mend, struct repair, mend);

	repair->changes++;
	repair_note(repair, REPAIR_LOST, 0, "%s", text);
}

/* Where anything else is changed, too, it goes without saying. */
static void on_log_odd(struct volume_mend *mend, const char *text)
{
	struct repair *repair = container_of(mend, struct repair, mend);

	if (!repair->changes++)
		repair_note(repair, REPAIR_MENDED, 0, "%s", text);
}

/* ---- items ---- */

int repair_looked(struct repair *repair, int ret)
{
	if (ret < 0 && ret != -ENOENT && !repair->err)
		repair->err = ret;
	return ret;
}

int repair_get(struct repair *repair, u64 ino, u8 type, u64 offset, void *buffer)
{
	struct tree_key key = tree_key(ino, type, offset);
	u32 room = TUX3_ITEM_MAX(repair->vol->block_size);
	int len = repair_looked(repair, tree_lookup(repair->vol, &key, buffer, room));

	return min_t(int, len, room);
}

int repair_set(struct repair *repair, u64 ino, u8 type, u64 offset, const void *data, u32 len)
{
	struct tree_key key = tree_key(ino, type, offset);
	int err;

	if (repair->err)
		return repair->err;
	repair->changes++;
	tree_edit_begin(repair->vol);
	err = tree_set(repair->vol, &key, data, len);
	tree_edit_end(repair->vol);
	tree_edit_leave(repair->vol);
	return err;
}

int repair_delete(struct repair *repair, u64 ino, u8 type, u64 offset)
{
	struct tree_key key = tree_key(ino, type, offset);
	int err;

	if (repair->err)
		return repair->err;
	tree_edit_begin(repair->vol);
	err = tree_delete(repair->vol, &key);
	tree_edit_end(repair->vol);
	tree_edit_leave(repair->vol);
	if (!err)
		repair->changes++;
	return err == -ENOENT ? 0 : err;
}

int repair_drop(struct repair *repair, u64 ino, u8 type, u64 from, u64 to, const char *why)
{
	struct tree_key first = tree_key(ino, type, from), last = tree_key(ino, type, to);
	int count;

	if (repair->err)
		return repair->err;
	tree_edit_begin(repair->vol);
	count = tree_delete_range(repair->vol, &first, &last, U32_MAX, NULL, NULL, NULL);
	tree_edit_end(repair->vol);
	tree_edit_leave(repair->vol);
	if (count <= 0)
		return count;
	repair->changes++;
	repair_note(repair, REPAIR_LOST, ino, "%d items of type %u of inode %llu: %s", count, type, (unsigned long long)ino, why);
	return 0;
}

int repair_get_attr(struct repair *repair, u64 ino, struct disk_attr *attr)
{
	int len = repair_get(repair, ino, TUX3_ITEM_ATTR, 0, repair->item);

	if (len < 0)
		return len;
	memset(attr, 0, sizeof(*attr));
	memcpy(attr, repair->item, min_t(size_t, len, sizeof(*attr)));
	return 0;
}

int repair_set_attr(struct repair *repair, u64 ino, const struct disk_attr *attr)
{
	return repair_set(repair, ino, TUX3_ITEM_ATTR, 0, attr, sizeof(*attr));
}

void repair_default_attr(struct repair *repair, u32 mode, struct disk_attr *attr)
{
	struct timespec64 now;

	ktime_get_real_ts64(&now);
	memset(attr, 0, sizeof(*attr));
	attr->mode = cpu_to_le32((mode & S_IFMT) | (S_ISDIR(mode) ? 0700 : S_ISLNK(mode) ? 0777 : 0600));
	attr->nlink = cpu_to_le32(S_ISDIR(mode) ? 2 : 1);
	attr->atime_sec = attr->mtime_sec = attr->ctime_sec = attr->btime_sec = cpu_to_le64(now.tv_sec);
	attr->generation = cpu_to_le32(get_random_u32());
	attr->change = cpu_to_le64(1);
}

/* ---- the checker's problems ---- */

struct look {
	struct repair *repair;
	bool first, last;
	u64 space;		/* problems of the free maps and totals, which are made anew in any case */
	int err;
};

/* What follows from all else. */
static bool of_space(u32 code)
{
	return code >= CHECK_MAP_FREE && code <= CHECK_UNWRITTEN_TOTAL;
}

/* Once is enough: mend() looks at all of the inode, or of the volume, anyhow.  There may be one for each of its items. */
static bool known(const struct repair *repair, const struct check_problem *problem)
{
	const struct repair_problem *last = repair->problems.entries;
	u32 code = problem->code;

	if (!repair->problems.count)
		return false;
	last += repair->problems.count - 1;
	if (last->code != code)
		return false;
	if (code == CHECK_BLOCK_SHARED)
		return true;
	if (last->args[0] != problem->args[0])
		return false;
	return (code >= CHECK_DIRENT_BAD && code <= CHECK_DIRENT_NAME) ||
	       (code >= CHECK_PARENT_BAD && code <= CHECK_PARENT_DUPLICATE) ||
	       (code >= CHECK_EXTENT_LENGTH && code <= CHECK_EXTENT_BIRTH) ||
	       (code >= CHECK_XATTR_BAD && code <= CHECK_XATTR_PLACE);
}

static int add_problem(struct repair *repair, const struct check_problem *problem)
{
	struct repair_problem *mine = repair_add(&repair->problems, sizeof(*mine));
	u32 len = min_t(u32, problem->name_len, TUX3_NAME_MAX), i;

	if (!mine)
		return -ENOMEM;
	mine->code = problem->code;
	memcpy(mine->args, problem->args, sizeof(mine->args));
	mine->name = repair->names.count;
	mine->name_len = len;
	for (i = 0; i < len; i++) {
		u8 *byte = repair_add(&repair->names, 1);

		if (!byte)
			return -ENOMEM;
		*byte = problem->raw_name[i];
	}
	return 0;
}

static int on_problem(void *ctx, const struct check_problem *problem)
{
	struct look *look = ctx;
	struct repair *repair = look->repair;

	if (look->first && repair->opts->problem)
		repair->opts->problem(repair->opts->ctx, problem);
	if (look->last)
		repair_note(repair, REPAIR_LEFT, problem->ino, "%s", problem->text);
	if (of_space(problem->code)) {
		look->space++;
		return 0;
	}
	if (problem->code == CHECK_ANCHOR_COPY) {	/* written with all else, or alone if there is nothing else */
		if (look->first)
			repair_note(repair, REPAIR_MENDED, 0, "The second copy of the anchor is written to block %llu again",
				    (unsigned long long)problem->args[0]);
		repair->anchor_copy = problem->args[0];
		return 0;
	}
	if (!known(repair, problem))
		look->err = add_problem(repair, problem);
	return !!look->err;
}

static void on_progress(void *ctx, enum check_pass pass, u64 done, u64 total)
{
	const struct repair_options *opts = ((struct look *)ctx)->repair->opts;

	if (opts->progress)
		opts->progress(opts->ctx, pass, done, total);
}

static int look(struct repair *repair, struct look *look)
{
	struct check_options opts = {
		.all_groups = true, .problem = on_problem, .progress = on_progress, .ctx = look,
	};
	int err;

	repair->problems.count = repair->names.count = 0;
	err = volume_check(repair->vol, &opts, &repair->result->check);
	return look->err ? look->err : err;
}

/* ---- putting right ---- */

/* Was it in a part of the tree that is gone?  Each owner has one. */
static bool quota_item_lost(struct repair *repair, u8 type, u64 id)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, type, id);
	struct node_key packed = node_key_pack(&key);

	return key_ranges_have(&repair->lost_keys, &packed);
}

/* What is used by each owner, as the checker counted it. */
static int mend_quota(struct repair *repair, const struct repair_problem *problem)
{
	u8 type = problem->args[0];
	u64 id = problem->args[1];
	struct disk_quota quota = {};
	int len;

	if (problem->code == CHECK_QUOTA_BAD || problem->code == CHECK_QUOTA_UNEXPECTED) {
		repair_note(repair, REPAIR_LOST, 0, "The limits in the quota item of type %u for id %llu", type,
			    (unsigned long long)id);
		return repair_delete(repair, TUX3_INO_VOLUME, type, id);
	}
	len = repair_get(repair, TUX3_INO_VOLUME, type, id, repair->item);
	if (len == sizeof(quota))
		memcpy(&quota, repair->item, sizeof(quota));
	quota.blocks = cpu_to_le64(problem->args[2]);
	quota.inodes = cpu_to_le64(problem->args[3]);
	if (len == -ENOENT && quota_item_lost(repair, type, id))
		repair_note(repair, REPAIR_LOST, 0, "The limits of id %llu (quota item type %u), if it had any", (unsigned long long)id, type);
	repair_note(repair, REPAIR_MENDED, 0, "The usage of id %llu (quota item type %u) is %llu blocks and %llu inodes",
		    (unsigned long long)id,
		    type, (unsigned long long)problem->args[2], (unsigned long long)problem->args[3]);
	if (!memchr_inv(&quota, 0, sizeof(quota)))
		return repair_delete(repair, TUX3_INO_VOLUME, type, id);
	return repair_set(repair, TUX3_INO_VOLUME, type, id, &quota, sizeof(quota));
}

static int mend_orphan(struct repair *repair, const struct repair_problem *problem)
{
	u64 ino = problem->args[0];

	repair_note(repair, REPAIR_MENDED, ino,
		    "Inode %llu is not deleted or truncated further: what said so makes no sense", (unsigned long long)ino);
	return repair_delete(repair, TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, ino);
}

/* Once in a round: one may have many problems. */
static int mend_inode(struct repair *repair, u64 ino)
{
	if (repair->surveyed == ino)
		return 0;
	repair->surveyed = ino;
	return repair_inode(repair, ino);
}

static int mend_item(struct repair *repair, const struct repair_problem *problem)
{
	u64 ino = problem->args[problem->code == CHECK_ITEM_INO];
	u8 type = problem->args[problem->code != CHECK_ITEM_INO];
	u64 from = 0, to = U64_MAX;

	/* The rest of an inode that exists is looked at there. */
	if (problem->code == CHECK_ITEM_OFFSET) {
		if (type != TUX3_ITEM_ATTR || !problem->args[2])
			return mend_inode(repair, ino);
		from = to = problem->args[2];
	}
	return repair_drop(repair, ino, type, from, to, "there cannot be such items");
}

static int mend_root(struct repair *repair)
{
	struct disk_attr attr;

	repair_default_attr(repair, S_IFDIR, &attr);
	attr.mode = cpu_to_le32(S_IFDIR | 0755);
	repair_note(repair, REPAIR_FOUND, TUX3_INO_ROOT, "The root directory was made anew");
	return repair_set_attr(repair, TUX3_INO_ROOT, &attr);
}

static int mend(struct repair *repair, const struct repair_problem *problem)
{
	if (problem->code != CHECK_PARENT_MISSING && problem->code != CHECK_PARENT_DANGLING)
		repair->named = 0;
	switch (problem->code) {
	case CHECK_ITEM_TYPE:
	case CHECK_ITEM_INO:
	case CHECK_ITEM_OFFSET:
		return mend_item(repair, problem);
	case CHECK_ROOT_MISSING:
		return mend_root(repair);
	case CHECK_DIRENT_DANGLING:
	case CHECK_DIRENT_TYPE:
	case CHECK_PARENT_MISSING:
	case CHECK_PARENT_DANGLING:
	case CHECK_ROOT_NAMED:
	case CHECK_DIR_NAMES:
	case CHECK_DIR_LOOP:
	case CHECK_NLINK:
	case CHECK_INODE_NAMELESS:
		return repair_name_problem(repair, problem);
	case CHECK_ORPHAN_UNMARKED:
		return repair_connect(repair, problem->args[0]);
	case CHECK_ORPHAN_BAD:
	case CHECK_ORPHAN_DANGLING:
	case CHECK_ORPHAN_LINKED:
	case CHECK_ORPHAN_KIND:
		return mend_orphan(repair, problem);
	case CHECK_BLOCK_SHARED:
		return 0;		/* all at once, at the end of the round */
	case CHECK_QUOTA_BAD:
	case CHECK_QUOTA_USAGE:
	case CHECK_QUOTA_MISSING:
	case CHECK_QUOTA_UNEXPECTED:
		return mend_quota(repair, problem);
	case CHECK_NODE_BAD:
	case CHECK_NODE_FIXED:
	case CHECK_LOG_SHARED:
	case CHECK_DATA_READ:
	case CHECK_DATA_CSUM:
		return 0;
	default:			/* the others have the inode for their first number */
		return mend_inode(repair, problem->args[0]);
	}
}

/* Names first: what they say of an inode that lost its attributes is wanted there.  Usage last: it follows. */
static u32 problem_turn(const struct repair_problem *problem)
{
	if (problem->code >= CHECK_QUOTA_BAD && problem->code <= CHECK_QUOTA_UNEXPECTED)
		return USAGE_TURN;
	return problem->code == CHECK_INODE_NAMELESS || problem->code == CHECK_NLINK || problem->code == CHECK_ORPHAN_UNMARKED ? 2 :
	       problem->code == CHECK_PARENT_DANGLING || problem->code == CHECK_DIRENT_DANGLING ? 1 : 0;
}

static int mend_round(struct repair *repair)
{
	const struct repair_problem *problem = repair->problems.entries;
	bool shared = false, others = false;
	int err = 0;
	u32 turn;
	u64 i;

	repair->surveyed = repair->named = 0;
	repair->root_unnamed = false;
	/* Usage is only right once nothing else is wrong. */
	for (i = 0; i < repair->problems.count; i++)
		others |= problem_turn(&problem[i]) < USAGE_TURN;
	for (turn = 0; turn < (others ? USAGE_TURN : USAGE_TURN + 1); turn++) {
		for (i = 0; i < repair->problems.count && !err; i++) {
			shared |= problem[i].code == CHECK_BLOCK_SHARED;
			if (problem_turn(&problem[i]) == turn)
				err = mend(repair, &problem[i]);
			cond_resched();
		}
	}
	return !err && shared ? repair_shared(repair) : err;
}

static int mend_all(struct repair *repair, u64 *space)
{
	struct look this = { .repair = repair, .first = true };
	u64 before;
	int err = 0;

	for (repair->round = 0; repair->round < ROUNDS_MAX && !err; repair->round++) {
		err = look(repair, &this);
		if (repair->round == 0)
			*space = this.space;
		this.first = false;
		before = repair->changes;
		if (!err && repair->problems.count)
			err = mend_round(repair);
		if (!err && repair->changes == before && (before || *space))
			err = repair_make_room(repair);
		if (repair->changes == before)
			break;
	}
	if (!err)
		repair_tell_lost(repair);
	return err;
}

/* ---- from beginning to end ---- */

static int repair_begin(struct repair *repair, char *why, size_t why_size)
{
	struct volume *vol = repair->vol;
	u64 unknown = (vol->feature_ro_compat & ~tux3_features_known(TUX3_RO_COMPAT)) |
		      (vol->feature_compat & ~tux3_features_known(TUX3_COMPAT));

	if (unknown) {
		snprintf(why, why_size,
			 "the volume uses features that this program does not know (feature bits %#llx): it takes a newer one to repair it",
			 (unsigned long long)unknown);
		return -EOPNOTSUPP;
	}
	/* What intents brought is in the tree; no commit of it is written. */
	delta_lock(vol);
	log_end_commit(vol);
	delta_unlock(vol);
	vol->delta.committed = max(vol->delta.committed, vol->delta.applying) + 1;
	vol->delta.applying = vol->delta.committed;
	vol->log.replaying = true;	/* nodes need not find room now */
	return 0;
}

static int repair_volume(struct repair *repair, char *why, size_t why_size)
{
	u64 space = 0;
	int err = repair_begin(repair, why, why_size);

	if (err)
		return err;
	snprintf(why, why_size, "the repair could not be finished: nothing was changed");
	err = mend_all(repair, &space);
	if (!err)
		err = repair->err;
	if (err)
		return err;
	if (!repair->changes && !space && !repair->anchor_copy)
		return 0;
	if (space && !repair->changes)
		repair_note(repair, REPAIR_MENDED, 0, "The free maps and totals were made anew");
	if (repair->opts->safe && repair->result->notes[REPAIR_LOST]) {
		snprintf(why, why_size, "not all can be repaired without losing something: nothing was changed");
		return -ENOTRECOVERABLE;
	}
	repair->result->written = true;
	return repair->changes || space ? repair_write(repair, why, why_size) : repair_write_anchor(repair, why, why_size);
}

/* As everybody will see it from now on. */
static int check_result(struct repair *repair, struct tux3_device *dev, char *why, size_t why_size)
{
	struct volume_options opts = { .read_only = true, .manual = true };
	struct look this = { .repair = repair, .last = true };
	int err = volume_open(dev, NULL, &opts, &repair->vol, why, why_size);

	if (err)
		return err;
	err = look(repair, &this);
	volume_close(repair->vol);
	return err;
}

static int repair_device(struct repair *repair, struct tux3_device *dev, char *why, size_t why_size)
{
	struct volume_options opts = { .read_only = true, .manual = true, .cut_log = true, .mend = &repair->mend };
	int err = volume_open(dev, NULL, &opts, &repair->vol, why, why_size);

	if (!err) {
		err = repair_volume(repair, why, why_size);
		volume_abandon(repair->vol);
	}
	block_set_exit(&repair->used);
	/* What nothing could be done about is told as well. */
	if (!err && (repair->result->written || repair->problems.count))
		err = check_result(repair, dev, why, why_size);
	return err;
}

int volume_repair(struct tux3_device *dev, const struct repair_options *opts, struct repair_result *result,
		  char *why, size_t why_size)
{
	struct repair repair = { .mend = { .tree = repair_tree, .left_out = on_left_out,
			    .log_odd = on_log_odd, .name_gone = repair_name_gone }, .opts = opts, .result = result };
	u32 room = TUX3_ITEM_MAX(1u << TUX3_MAX_BLOCK_SHIFT);
	int err = -ENOMEM;

	memset(result, 0, sizeof(*result));
	snprintf(why, why_size, "out of memory");
	if (opts->search)
		repair.mend.anchor = repair_search;
	repair.item = kvmalloc(room, GFP_KERNEL);
	repair.chain = kvmalloc(room, GFP_KERNEL);
	if (repair.item && repair.chain)
		err = repair_device(&repair, dev, why, why_size);
	kvfree(repair.problems.entries);
	kvfree(repair.names.entries);
	kvfree(repair.claims.entries);
	kvfree(repair.seen.entries);
	kvfree(repair.losses.entries);
	kvfree(repair.promises.entries);
	kvfree(repair.made.entries);
	kvfree(repair.lost_leaves.entries);
	kvfree(repair.lost_keys.entries);
	kvfree(repair.lost_names.entries);
	kvfree(repair.lost_blocks.entries);
	kvfree(repair.gone_names.entries);
	kvfree(repair.item);
	kvfree(repair.chain);
	return err;
}
