/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One operation on the volume and on the oracle: both must return the same. */
#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "sim.h"
#include "core/quota/quota.h"

#define OP_SECONDS 1000000001ULL	/* the clock's step between operations, in ns */

struct result {
	s64 err;		/* or, of a write, bytes */
	u64 ino;		/* of what was made */
};

/* The node a path leads to, with a reference. */
static int exec_get(struct sim_run *run, const char *path, struct tux3_node **node)
{
	if (*path != '@')
		return node_walk(run->volume, path, node);
	*node = run->slots[(path[1] - '0') % SIM_SLOTS];
	if (!*node)
		return -EBADF;
	tux3_node_ref(*node, 1);
	return 0;
}

/* The directory of a path, with a reference, and the last component. */
static int exec_parent(struct sim_run *run, const char *path, struct tux3_node **dir, char *name)
{
	const char *slash = strrchr(path, '/');
	char above[SIM_PATH_MAX];

	snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - path) : 0, path);
	name_expand(slash ? slash + 1 : path, name);
	return node_walk(run->volume, above, dir);
}

static int exec_make(struct sim_run *run, const struct sim_op *op, struct result *result)
{
	char name[TUX3_NAME_MAX + 1];
	struct tux3_node *dir, *node = NULL;
	u32 mode = op->mode;
	int err = exec_parent(run, op->a, &dir, name);

	if (err)
		return err;
	if (op->kind == SIM_CREATE)
		mode |= S_IFREG;
	if (op->kind == SIM_MKDIR)
		mode |= S_IFDIR;
	if (op->kind == SIM_SYMLINK)
		err = tux3_symlink(dir, NULL, name, op->b, &node);
	else
		err = tux3_mknod(dir, NULL, name, mode, op->kind == SIM_MKNOD ? op->major : 0,
				 op->kind == SIM_MKNOD ? op->minor : 0, &node);
	if (!err) {
		result->ino = tux3_node_ino(node);
		tux3_node_put(node, 1);
	}
	tux3_node_put(dir, 1);
	return err;
}

static int exec_slot(struct sim_run *run, const struct sim_op *op, struct result *result)
{
	struct tux3_node *node = NULL, *dir, *old = run->slots[op->flags];
	int err = 0;

	if (op->kind == SIM_OPEN)
		err = exec_get(run, op->a, &node);
	if (op->kind == SIM_TMPFILE) {
		err = exec_get(run, op->a, &dir);
		if (!err) {
			err = tux3_tmpfile(dir, NULL, S_IFREG | op->mode, &node);
			tux3_node_put(dir, 1);
		}
		if (!err)
			result->ino = tux3_node_ino(node);
	}
	if (err)
		return err;
	run->slots[op->flags] = node;
	if (old)
		tux3_node_put(old, 1);
	return 0;
}

static int exec_link(struct sim_run *run, const struct sim_op *op)
{
	char name[TUX3_NAME_MAX + 1];
	struct tux3_node *node, *dir;
	int err = exec_get(run, op->a, &node);

	if (err)
		return err;
	err = exec_parent(run, op->b, &dir, name);
	if (!err) {
		err = tux3_link(node, NULL, dir, name);
		tux3_node_put(dir, 1);
	}
	tux3_node_put(node, 1);
	return err;
}

static int exec_unlink(struct sim_run *run, const struct sim_op *op)
{
	char name[TUX3_NAME_MAX + 1];
	struct tux3_node *dir;
	int err = exec_parent(run, op->a, &dir, name);

	if (err)
		return err;
	err = op->kind == SIM_RMDIR ? tux3_rmdir(dir, NULL, name) : tux3_unlink(dir, NULL, name);
	tux3_node_put(dir, 1);
	return err;
}

static int exec_rename(struct sim_run *run, const struct sim_op *op, struct result *result)
{
	char old_name[TUX3_NAME_MAX + 1], new_name[TUX3_NAME_MAX + 1];
	struct tux3_node *old_dir, *new_dir, *node;
	int err = exec_parent(run, op->a, &old_dir, old_name);

	if (err)
		return err;
	err = exec_parent(run, op->b, &new_dir, new_name);
	if (!err) {
		err = tux3_rename(old_dir, old_name, new_dir, new_name, op->flags, NULL);
		tux3_node_put(new_dir, 1);
	}
	if (!err && op->flags & TUX3_RENAME_WHITEOUT && !tux3_lookup(old_dir, NULL, old_name, &node)) {
		result->ino = tux3_node_ino(node);
		tux3_node_put(node, 1);
	}
	tux3_node_put(old_dir, 1);
	return err;
}

static s64 exec_write(struct sim_run *run, const struct sim_op *op, struct tux3_node *node)
{
	u64 offset = op->offset;
	struct tux3_stat stat;

	if (op->kind == SIM_APPEND) {
		int err = tux3_stat_node(node, &stat);

		if (err)
			return err;
		offset = S_ISREG(stat.mode) ? stat.size : 0;
	}
	pattern_fill(run->buffer, op->seed, offset, op->len);
	if (op->kind == SIM_APPEND)
		return tux3_append(node, run->buffer, op->len);
	if (op->flags & SIM_ATOMIC)
		return tux3_write_atomic(node, run->buffer, op->len, offset);
	return tux3_write(node, run->buffer, op->len, offset);
}

static int exec_exchange(struct sim_run *run, const struct sim_op *op, struct tux3_node *node)
{
	struct tux3_node *other;
	int err = exec_get(run, op->b, &other);

	if (err)
		return err;
	err = tux3_exchange_range(node, op->offset, other, op->offset2, op->len, op->flags, NULL);
	tux3_node_put(other, 1);
	return err;
}

static int exec_setattr(const struct sim_op *op, struct tux3_node *node)
{
	struct tux3_stat stat = {
		.mode = op->mode,
		.uid = op->uid,
		.gid = op->gid,
		.mtime = { .tv_sec = op->mtime / 1000000000, .tv_nsec = op->mtime % 1000000000 },
	};

	return tux3_setattr(node, NULL, &stat, op->flags);
}

/* Operations on one node. */
static s64 exec_on_node(struct sim_run *run, const struct sim_op *op, struct tux3_node *node)
{
	switch (op->kind) {
	case SIM_WRITE:
	case SIM_APPEND:
		return exec_write(run, op, node);
	case SIM_TRUNCATE:
		return tux3_truncate(node, op->len);
	case SIM_FALLOCATE:
		return tux3_fallocate(node, op->mode, op->offset, op->len);
	case SIM_EXCHANGE:
		return exec_exchange(run, op, node);
	case SIM_COLLAPSE:
		return tux3_fallocate(node, FALLOC_FL_COLLAPSE_RANGE, op->offset, op->len);
	case SIM_INSERT:
		return tux3_fallocate(node, FALLOC_FL_INSERT_RANGE, op->offset, op->len);
	case SIM_SETATTR:
		return exec_setattr(op, node);
	case SIM_SETXATTR:
		pattern_fill(run->buffer, op->seed, 0, op->len);
		return tux3_setxattr(node, NULL, op->b, run->buffer, op->len, op->flags);
	case SIM_REMOVEXATTR:
		return tux3_removexattr(node, NULL, op->b);
	case SIM_FSYNC:
	case SIM_FDATASYNC:
		return tux3_fsync(node, op->kind == SIM_FDATASYNC);
	default:
		return 0;
	}
}

static int exec_quota(struct sim_run *run, const struct sim_op *op)
{
	struct tux3_quota quota = {
		.bytes_soft = op->limits.soft * run->params->block_size, .bytes_hard = op->limits.hard * run->params->block_size,
		.inodes_hard = op->limits.inodes,
	};

	return tux3_quota_set(run->volume, op->flags, op->uid, &quota,
			      TUX3_QUOTA_BYTES_SOFT | TUX3_QUOTA_BYTES_HARD | TUX3_QUOTA_INODES_HARD);
}

static void exec_op(struct sim_run *run, const struct sim_op *op, struct result *result)
{
	struct tux3_node *node;

	switch (op->kind) {
	case SIM_CREATE:
	case SIM_MKDIR:
	case SIM_MKNOD:
	case SIM_SYMLINK:
		result->err = exec_make(run, op, result);
		return;
	case SIM_OPEN:
	case SIM_CLOSE:
	case SIM_TMPFILE:
		result->err = exec_slot(run, op, result);
		return;
	case SIM_LINK:
		result->err = exec_link(run, op);
		return;
	case SIM_UNLINK:
	case SIM_RMDIR:
		result->err = exec_unlink(run, op);
		return;
	case SIM_RENAME:
		result->err = exec_rename(run, op, result);
		return;
	case SIM_SYNC:
		result->err = registers_tell(run, tux3_sync(run->volume));
		return;
	case SIM_QUOTA:
		result->err = exec_quota(run, op);
		return;
	case SIM_COMPARE:
	case SIM_NONE:
		return;
	default:
		result->err = exec_get(run, op->a, &node);
		if (result->err)
			return;
		result->err = exec_on_node(run, op, node);
		tux3_node_put(node, 1);
	}
}

/* May the volume say that it has no room for this? */
static bool may_be_full(const struct sim_op *op, const struct m_state *before)
{
	u32 id;
	int err;

	switch (op->kind) {
	case SIM_UNLINK:
	case SIM_RMDIR:
	case SIM_SYNC:
	case SIM_FSYNC:
	case SIM_FDATASYNC:
	case SIM_OPEN:
	case SIM_CLOSE:
	case SIM_COMPARE:
		return false;
	case SIM_TRUNCATE:
		id = model_lookup(before, op->a, &err);
		return id == M_NONE || op->len >= before->inodes[id]->size;
	default:
		return true;
	}
}

/* What changes in place is never refused for want of space. */
static bool is_in_place(const struct sim_op *op)
{
	return op->kind == SIM_SETATTR || op->kind == SIM_REMOVEXATTR || op->kind == SIM_RENAME;
}

static void check_full(struct sim_run *run, const struct sim_op *op, const struct m_state *before,
		       const char *text)
{
	struct tux3_statfs stat;

	run->totals->enospc++;
	if (!may_be_full(op, before) || is_in_place(op))
		sim_fail(run, "%s: refused for want of space", text);
	else if (!tux3_statfs(run->volume, &stat) && stat.available_blocks > stat.blocks / 2 &&
		 op->len < stat.blocks / 8 * stat.block_size)
		sim_fail(run, "%s: ENOSPC with %llu of %llu blocks available", text,
			 (unsigned long long)stat.available_blocks, (unsigned long long)stat.blocks);
}

/* A quota may only be what refuses if there are limits. */
static void check_quota_refusal(struct sim_run *run, const struct sim_op *op, const struct m_state *before, const char *text)
{
	static const struct m_limits none;
	u32 type, id;

	for (type = 0; type < SIM_QUOTA_TYPES; type++)
		for (id = 1; id < SIM_QUOTA_IDS; id++)
			if (memcmp(&before->limits[type][id], &none, sizeof(none)) && may_be_full(op, before))
				return;
	sim_fail(run, "%s: refused for a quota", text);
}

/* What was granted to each user and group: 0 to who has no limits. */
struct granted {
	s64 blocks[SIM_QUOTA_TYPES][SIM_QUOTA_IDS], inodes[SIM_QUOTA_TYPES][SIM_QUOTA_IDS];
};

static struct quota *limited_quota(struct sim_run *run, u32 type, u32 id)
{
	struct volume *vol = tux3_core(run->volume);
	struct quota *quota = quota_hold(vol, type, id);

	if (quota && !quota_load(vol, quota) && READ_ONCE(quota->mode) == QUOTA_LIMITED)
		return quota;
	quota_put(vol, quota);
	return NULL;
}

static bool is_above(s64 now, s64 before, u64 limit)
{
	return limit && now > max_t(s64, before, limit);
}

static void tell_above(struct sim_run *run, const struct sim_op *op, u32 type, u32 id, s64 blocks, s64 inodes,
		       const struct quota_limits *limits)
{
	sim_fail(run, "%s: quota of type %u, id %u: %lld blocks, %lld inodes, above the limits %llu, %llu", sim_op_name(op->kind), type,
		 id, blocks, inodes, limits->blocks_hard, limits->inodes_hard);
}

/* after: nobody got more than he had, or may have. */
static void note_granted(struct sim_run *run, struct granted *granted, const struct sim_op *after)
{
	u32 type, id;

	if (!run->params->weights[SIM_QUOTA] || run->faulty)
		return;
	for (type = 0; type < SIM_QUOTA_TYPES; type++) {
		for (id = 1; id < SIM_QUOTA_IDS; id++) {
			s64 *blocks = &granted->blocks[type][id], *inodes = &granted->inodes[type][id];
			s64 had_blocks = *blocks, had_inodes = *inodes;
			struct quota *quota = limited_quota(run, type, id);
			struct quota_limits limits;

			*blocks = *inodes = 0;
			if (!quota)
				continue;
			quota_granted(quota, blocks, inodes, &limits);
			quota_put(tux3_core(run->volume), quota);
			if (after && (is_above(*blocks, had_blocks, limits.blocks_hard) ||
				      is_above(*inodes, had_inodes, limits.inodes_hard)))
				tell_above(run, after, type, id, *blocks, *inodes, &limits);
		}
	}
}

/* The state with the first part of a fallocate done, as far as size and contents of the file tell; or NULL. */
static struct m_state *find_part_done(struct sim_run *run, const struct sim_op *op, const struct m_state *before,
				      struct tux3_node *node, u32 id)
{
	u64 step = run->params->block_size, end = op->offset + op->len, at;
	struct difference diff = { 0 };
	struct tux3_stat stat;

	if (tux3_stat_node(node, &stat) ||
	    stat.ctime.tv_sec * 1000000000ULL + stat.ctime.tv_nsec != run->clock)
		return NULL;
	for (at = op->offset; at < end; at = round_down(at, step) + step) {
		struct m_state *state = model_snapshot(before);

		model_apply_part(state, op, at - op->offset, run->clock);
		diff.count = diff.used = 0;
		if (state->version != before->version && state->inodes[id]->size == stat.size &&
		    !compare_data(node, state->inodes[id], 0, ~0ULL, run->buffer, &diff, op->a))
			return state;
		model_put(state);
	}
	return NULL;
}

/* A fallocate works in batches: where it failed, some may be done. */
static void note_failed_batches(struct sim_run *run, const struct sim_op *op, struct m_state *before)
{
	struct m_state *state;
	struct tux3_node *node;
	int err;
	u32 id = model_lookup(run->state, op->a, &err);

	if (op->kind != SIM_FALLOCATE || id == M_NONE || exec_get(run, op->a, &node))
		return;
	state = find_part_done(run, op, before, node, id);
	if (state) {
		model_put(run->state);
		run->state = state;
	}
	tux3_node_put(node, 1);
}

/* The end of a file that could not be cut off is behind its end, and goes later. */
static void note_cut_later(struct sim_run *run, const struct sim_op *op, struct m_state *before)
{
	struct tux3_node *node;
	struct tux3_stat stat;
	int err;
	u32 id = model_lookup(before, op->a, &err);

	if (op->kind != SIM_TRUNCATE || id == M_NONE || exec_get(run, op->a, &node))
		return;
	if (!tux3_stat_node(node, &stat) && stat.size == op->len && before->inodes[id]->size != op->len)
		model_apply(run->state, op, run->clock);
	tux3_node_put(node, 1);
}

/* Where everything is allocated already a fallocate may leave the times as they are. */
static void note_idle_fallocate(struct sim_run *run, const struct sim_op *op, struct m_state *before)
{
	struct tux3_node *node;
	struct tux3_stat stat;
	int err;
	u32 id = model_lookup(before, op->a, &err);

	if (op->mode & ~FALLOC_FL_KEEP_SIZE || exec_get(run, op->a, &node))
		return;
	if (!tux3_stat_node(node, &stat) && stat.size == before->inodes[id]->size &&
	    stat.ctime.tv_sec * 1000000000ULL + stat.ctime.tv_nsec == before->inodes[id]->ctime) {
		model_put(run->state);
		run->state = model_snapshot(before);
	}
	tux3_node_put(node, 1);
}

/*
 * An operation failed for want of memory or because of the disk.  It must be as if it had not happened, or
 * as if it had succeeded.
 */
static void settle_failed(struct sim_run *run, const struct sim_op *op, struct m_state *before)
{
	struct m_state *after = model_snapshot(before);
	struct difference diff, diff_after;
	char text[256];

	fault_end(run->disk);
	model_apply(after, op, run->clock);
	note_failed_batches(run, op, before);
	if (compare_tree(run->volume, run->state, run->buffer, &diff)) {
		if (compare_tree(run->volume, after, run->buffer, &diff_after)) {
			sim_op_print(op, text, sizeof(text));
			sim_fail(run, "%s failed, but the volume is not as before:\n%snor as after it:\n%s", text,
				 diff.text, diff_after.text);
		}
		model_put(run->state);
		run->state = model_snapshot(after);
	}
	model_put(after);
}

/* The call returned what; expected is what the oracle says and has done. */
static void check_result(struct sim_run *run, const struct sim_op *op, struct m_state *before, int expected,
			 struct result *result)
{
	bool is_write = op->kind == SIM_WRITE || op->kind == SIM_APPEND;
	s64 good = is_write ? (s64)op->len : 0;
	char text[256];

	sim_op_print(op, text, sizeof(text));
	if (result->err == (expected ? expected : good)) {
		if (!result->err && op->kind == SIM_FALLOCATE)
			note_idle_fallocate(run, op, before);
		return;
	}
	/* Where a call is wrong in two ways, either may be told. */
	if ((op->kind == SIM_RENAME || op->kind == SIM_LINK) && expected &&
	    (result->err == -EINVAL || result->err == -ENOTEMPTY || result->err == -ENOENT))
		return;
	if (is_write && !(op->flags & SIM_ATOMIC) && !expected && result->err > 0 && result->err < good) {
		struct sim_op part = *op;

		model_put(run->state);
		run->state = model_snapshot(before);
		part.len = result->err;
		model_apply(run->state, &part, run->clock);
		run->totals->enospc++;
		return;
	}
	if (!expected) {	/* it failed: nothing happened */
		model_put(run->state);
		run->state = model_snapshot(before);
	}
	if (result->err == -ENOSPC) {
		check_full(run, op, before, text);
		note_failed_batches(run, op, before);
		return;
	}
	if (result->err == -EDQUOT) {
		check_quota_refusal(run, op, before, text);
		run->totals->edquot++;
		run->reach.refused++;
		note_failed_batches(run, op, before);
		return;
	}
	if (result->err == -EIO && registers_may_fail(run, op)) {
		note_cut_later(run, op, before);
		return;
	}
	if (run->faulty && (result->err == -EIO || result->err == -ENOMEM || result->err == -EROFS)) {
		settle_failed(run, op, before);
		return;
	}
	sim_fail(run, "%s: returned %lld (%s), expected %lld (%s)", text, result->err,
		 result->err < 0 ? strerror(-result->err) : "no error", expected ? (s64)expected : good,
		 expected ? strerror(-expected) : "no error");
}

static void note_created(struct sim_run *run, const struct sim_op *op, u64 ino)
{
	u32 id;
	int err;

	if (!ino)
		return;
	id = op->kind == SIM_RENAME ? model_lookup(run->state, op->a, &err) : model_created(run->state, op);
	if (id == M_NONE || run->state->inodes[id]->ino)
		return;
	if (model_ino_taken(run->state, ino, id))
		sim_fail(run, "%s: new inode has number %llu, which is in use", op->a, ino);
	model_set_ino(run->state, id, ino);
}

static bool is_fsync(const struct sim_op *op)
{
	return op->kind == SIM_FSYNC || op->kind == SIM_FDATASYNC;
}

/* Durable when it comes back, with all before it. */
static bool is_remap(const struct sim_op *op)
{
	return (op->kind == SIM_EXCHANGE && !(op->flags & TUX3_EXCHANGE_DRY_RUN)) || op->kind == SIM_COLLAPSE ||
	       op->kind == SIM_INSERT;
}

/* Before an operation. */
struct counted {
	u64 committed, front, ahead;
};

static void note_sync(struct sim_run *run, const struct sim_op *op, s64 err, const struct counted *before)
{
	bool went_ahead = run_fsyncs_ahead(run) - run->flew != before->ahead;
	bool new_delta = tux3_committed(run->volume) >= before->front;	/* not only one that was under way */

	if (is_remap(op) && !err && new_delta) {
		run->reach.remaps++;
		run_note_ack(run);
	}
	if (op->kind != SIM_SYNC && !is_fsync(op))
		return;
	/* Where something failed, it may have been tried, and have got to the disk. */
	if (is_fsync(op) && (went_ahead || (run->faulty && (err || new_delta))))
		run_note_ahead(run, op, before->front, went_ahead && !err);
	if (err)
		return;
	if (op->kind == SIM_SYNC || new_delta)
		run_note_ack(run);
	else if (!went_ahead)
		run_note_fsync(run, op);
}

void run_op(struct sim_run *run, const struct sim_op *op)
{
	const struct counted counted = { tux3_committed(run->volume), READ_ONCE(tux3_core(run->volume)->delta.front),
					 run_fsyncs_ahead(run) };
	struct m_state *before = model_snapshot(run->state), *after = NULL;
	struct result result = { 0 };
	struct granted granted = { };
	int expected;

	run->op_index++;
	run->totals->ops++;
	run->clock += OP_SECONDS;
	sim_now = run->clock;
	if (run->config->verbose) {
		char text[256];

		sim_op_print(op, text, sizeof(text));
		printf("  %u: %s (delta %llu, front %llu, write %u)\n", run->op_index, text,
		       counted.committed, counted.front, run->disk->write_count);
	}
	registers_before(run, op);
	expected = model_apply(run->state, op, run->clock);
	if (run->faulty)
		after = model_snapshot(run->state);
	note_granted(run, &granted, NULL);
	run_beside_op(run, true);
	exec_op(run, op, &result);
	run_beside_op(run, false);
	if (op->kind != SIM_QUOTA)
		note_granted(run, &granted, op);
	fault_pause(run, true);
	if (run->faulty && !run->lost_delta && delta_counter(tux3_core(run->volume), TUX3_COUNT_INODES_LOST))
		run->lost_delta = counted.committed + 1;
	check_result(run, op, before, expected, &result);
	if (!result.err)
		note_created(run, op, result.ino);
	registers_after(run, op, result.err);
	if (!run->faulty && volume_error(tux3_core(run->volume)))
		sim_fail(run, "the volume has stopped");
	if (!run->threaded) {
		run_note_deltas(run, counted.committed, before, op);
		note_sync(run, op, result.err, &counted);
		if (run->faulty && volume_error(tux3_core(run->volume)))
			run_note_in_flight(run, before, after, op);
	}
	run->result = result.err;
	if (run->config->verbose)
		printf("      = %lld (delta %llu, ahead %llu, write %u)\n", (long long)result.err, (unsigned long long)tux3_committed(run->volume),
		       (unsigned long long)run_fsyncs_ahead(run) - counted.ahead, run->disk->write_count);
	if (!run->threaded)
		reach_note(run);
	if (op->kind == SIM_COMPARE && !run->broken)
		run_compare(run, run->state, "while running");
	run_hold(run);
	fault_pause(run, false);
	model_put(before);
	model_put(after);
}
