// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Quotas are switched on or off.
 *
 * The feature is set in memory, and the checker told to look: what it then says is missing, or not expected, are the quota items,
 * with the usage that it counted.  They are set, or deleted, in the tree in memory without a record in the log, and the feature
 * with them in the anchor of the next unify: until that is durable the old anchor and its log stand for the volume as it was.
 *
 * So the log may have nothing that depends on these edits.  Commits come between: one that makes the delta of the edits durable,
 * since no node may be newer than the anchor that leads to it; and, as before any unify, one that names the groups that nodes were
 * placed in.  They have no other records; merges, which they would log too, are made before.
 *
 * What the edits take is not charged: a DIRTY node is promised a block, or the edit fails with -ENOSPC.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/delta/delta.h"
#include "core/commit/commit.h"
#include "core/check/check.h"
#include "core/quota_switch.h"

struct quota_use {
	u8 type;
	u32 id;
	u64 blocks, inodes;
};

struct quota_count {
	const struct quota_switch *to;
	struct quota_use *uses;
	u64 count, room;
	int err;
	char problem[300];	/* the first other one, as much as is told of it */
};

static int on_problem(void *ctx, const struct check_problem *problem)
{
	struct quota_count *count = ctx;
	u64 room = max_t(u64, 2 * count->room, 64);
	struct quota_use *more;

	if (problem->code != (count->to->on ? CHECK_QUOTA_MISSING : CHECK_QUOTA_UNEXPECTED)) {
		strscpy(count->problem, problem->text, sizeof(count->problem));
		count->err = -EUCLEAN;
		return 1;
	}
	if (count->count == count->room) {
		more = kvmalloc(room * sizeof(*more), GFP_KERNEL);
		if (!more) {
			count->err = -ENOMEM;
			return 1;
		}
		if (count->count)
			memcpy(more, count->uses, count->count * sizeof(*more));
		kvfree(count->uses);
		count->uses = more;
		count->room = room;
	}
	count->uses[count->count++] = (struct quota_use){
		.type = problem->args[0], .id = problem->args[1], .blocks = problem->args[2], .inodes = problem->args[3],
	};
	return 0;
}

static void on_progress(void *ctx, enum check_pass pass, u64 done, u64 total)
{
	const struct quota_switch *to = ((struct quota_count *)ctx)->to;

	if (to->progress)
		to->progress(to->ctx, pass, done, total);
}

static int count_usage(struct volume *vol, struct quota_count *count)
{
	struct check_options opts = { .all_groups = true, .problem = on_problem, .progress = on_progress, .ctx = count };
	struct check_result result;
	int err = volume_check(vol, &opts, &result);

	return count->err ? count->err : err;
}

static int edit_item(struct volume *vol, const struct quota_use *use, bool on)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, use->type, use->id);
	struct disk_quota quota = { .blocks = cpu_to_le64(use->blocks), .inodes = cpu_to_le64(use->inodes) };

	return on ? tree_set(vol, &key, &quota, sizeof(quota)) : tree_delete(vol, &key);
}

static int edit_items(struct volume *vol, const struct quota_count *count)
{
	struct tree_merge merge;
	int err = 0;
	u64 i;

	vol->delta.applying = vol->delta.committed + 1;
	tree_edit_begin(vol);
	for (i = 0; i < count->count && !err; i++) {
		err = edit_item(vol, &count->uses[i], count->to->on);
		while (!err && tree_next_merge(vol, &merge))
			err = tree_merge(vol, &merge);
	}
	tree_edit_end(vol);
	tree_edit_leave(vol);
	vol->delta.applying = vol->delta.committed;
	return err;
}

static int switch_to(struct volume *vol, u64 features, struct quota_count *count)
{
	u64 before = vol->feature_ro_compat;
	int err;

	vol->feature_ro_compat = features;
	err = count_usage(vol, count);
	if (err) {
		vol->feature_ro_compat = before;
		return err;
	}
	delta_lock(vol);
	err = edit_items(vol, count);
	if (!err) {
		vol->log.must_write = true;
		err = commit_delta(vol);
	}
	if (!err) {
		vol->anchor.feature_ro_compat = cpu_to_le64(features);
		err = delta_unify_committed(vol);
	}
	delta_unlock(vol);
	return err;
}

int volume_switch_quota(struct volume *vol, const struct quota_switch *to, char *why, size_t why_size)
{
	u64 features = vol->feature_ro_compat & ~(u64)TUX3_FEATURE_RO_COMPAT_QUOTA;
	struct quota_count count = { .to = to };
	int err;

	if (to->on)
		features |= TUX3_FEATURE_RO_COMPAT_QUOTA;
	if (features == vol->feature_ro_compat)
		return 0;
	if (vol->read_only) {
		snprintf(why, why_size, "the volume is read-only");
		return -EROFS;
	}
	/* What is committed from here on was changed by nobody. */
	err = delta_commit_unify(vol);
	if (!err)
		err = switch_to(vol, features, &count);
	kvfree(count.uses);
	if (err == -EUCLEAN)
		snprintf(why, why_size, "the volume has problems, which have to be repaired first: %s", count.problem);
	else if (err == -ENOSPC)
		snprintf(why, why_size, "there is no room for %llu quota items", (unsigned long long)count.count);
	else if (err)
		snprintf(why, why_size, "%s", error_text(err));
	return err;
}
