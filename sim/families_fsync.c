/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Families of workloads with fsyncs that go ahead of their delta (core/intent/intent.h); described in families.c. */
#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "families.h"

/* ---- ahead: many fsyncs, hardly any commit ---- */

#define AHEAD_FILES	40u

void ahead_params(struct sim_params *params, struct rng *rng)
{
	params->tight = rng_one_in(rng, 4);
	params->volume_bytes = params->tight ? 12 * MIB : (16 + rng_below(rng, 60)) * MIB;
	params->ahead = true;
	params->options.fsync = TUX3_FSYNC_AHEAD;
	params->options.log_blocks = rng_one_in(rng, 2) ? 0 : 1 + rng_below(rng, 10);
	params->options.cache_bytes = rng_one_in(rng, 2) ? 32 * 4096 : 0;
	params->options.names_cached = rng_one_in(rng, 2) ? 16 : 0;
	params->data_cache_bytes = rng_one_in(rng, 2) ? 8192 : MIB;
	params->quota = rng_one_in(rng, 3);
	params->no_csum = rng_one_in(rng, 4);
	params->lives = 3;
	params->cuts = 14;
	params->images = 3;
	params->recoveries = 3;
	params->close_at_end = rng_one_in(rng, 4);
	params->weights[SIM_FSYNC] = params->weights[SIM_WRITE] = 6;	/* where it goes on after a cut */
	if (rng_one_in(rng, 2))
		params->options.intent_near_bytes = 4096 * rng_log(rng, 5);
}

static void fsync_file(struct life *life, const char *path)
{
	op_on(life, rng_one_in(life->rng, 3) ? SIM_FDATASYNC : SIM_FSYNC, path, 0, 0);
}

static void ahead_file(struct life *life, char *path)
{
	snprintf(path, SIM_PATH_MAX, "d%u/f%u", (u32)rng_below(life->rng, 4), (u32)rng_below(life->rng, AHEAD_FILES / 4));
}

static void ahead_make(struct life *life)
{
	u32 left = 500 + rng_below(life->rng, 500), i, n;
	struct tux3_statfs stat;
	char path[SIM_PATH_MAX];

	make_dirs(life, 4);
	for (i = 0; i < 4; i++) {
		for (n = 0; n < AHEAD_FILES / 4; n++) {
			snprintf(path, sizeof(path), "d%u/f%u", i, n);
			op_on(life, SIM_CREATE, path, 0, 0);
			op_on(life, SIM_WRITE, path, 0, n % 3 ? rng_log(life->rng, 16) : 1 + rng_below(life->rng, 60));
		}
	}
	for (i = 0; life->params->tight && i < 100; i++) {
		if (tux3_statfs(life->run->volume, &stat) || stat.available_blocks < left)
			break;
		snprintf(path, sizeof(path), "fill%u", i);
		op_on(life, SIM_CREATE, path, 0, 0);
		op_on(life, SIM_WRITE, path, 0, 400000);
	}
	sync_all(life);
}

/* Sometimes one with a block of its own. */
static void ahead_xattr(struct life *life, struct sim_op *op)
{
	snprintf(op->b, sizeof(op->b), "user.%c", (char)('x' + rng_below(life->rng, 3)));
	op->kind = rng_one_in(life->rng, 4) ? SIM_REMOVEXATTR : SIM_SETXATTR;
	op->len = rng_below(life->rng, rng_one_in(life->rng, 8) ? 5000 : 257);
	make_op(life, op);
}

static void ahead_punch(struct life *life, struct sim_op *op)
{
	op->kind = SIM_FALLOCATE;
	op->mode = rng_one_in(life->rng, 4) ? 0 : FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	op->offset = rng_below(life->rng, 30000);
	op->len = 1 + rng_below(life->rng, 30000);
	make_op(life, op);
	if (!op->mode && rng_one_in(life->rng, 2))
		op_on(life, SIM_WRITE, op->a, round_down(op->offset, 4096), op->len + op->offset % 4096);
}

/* More than attributes and data; and what an fsync of the file cannot put ahead, or what makes the file another one. */
static void ahead_change(struct life *life, const char *path)
{
	struct sim_op op = {};

	snprintf(op.a, sizeof(op.a), "%s", path);
	switch (rng_below(life->rng, 10)) {
	case 0:
		op.kind = rng_one_in(life->rng, 2) ? SIM_LINK : SIM_RENAME;
		ahead_file(life, op.b);
		make_op(life, &op);
		break;
	case 1:
		op_on(life, SIM_UNLINK, path, 0, 0);
		break;
	case 2:
		op_on(life, SIM_UNLINK, path, 0, 0);	/* the name comes again */
		op_on(life, SIM_CREATE, path, 0, 0);
		break;
	case 3:
	case 4:
		op_on(life, SIM_TRUNCATE, path, 0, rng_one_in(life->rng, 3) ? 0 : rng_log(life->rng, 16));
		break;
	case 5:
	case 6:
		ahead_punch(life, &op);
		break;
	default:
		ahead_xattr(life, &op);
	}
}

/* A new file; sometimes in a directory that is new itself. */
static void ahead_create(struct life *life, u32 number)
{
	char dir[SIM_PATH_MAX], path[SIM_PATH_MAX];

	snprintf(dir, sizeof(dir), "d%u", (u32)rng_below(life->rng, 4));
	if (rng_one_in(life->rng, 12)) {
		snprintf(dir, sizeof(dir), "l%u-e%u", life->run->life, number);
		op_on(life, SIM_MKDIR, dir, 0, 0);
	}
	snprintf(path, sizeof(path), "%.20s/l%u-n%u", dir, life->run->life, number);
	op_on(life, SIM_CREATE, path, 0, 0);
	if (!rng_one_in(life->rng, 4))
		op_on(life, SIM_WRITE, path, 0, rng_log(life->rng, 14));
	if (*dir == 'd' || rng_one_in(life->rng, 4))
		fsync_file(life, path);
	if (!rng_one_in(life->rng, 6))
		return;
	ahead_change(life, path);
	if (rng_one_in(life->rng, 2))
		fsync_file(life, path);
}

static void ahead_step(struct life *life, u32 number)
{
	char path[SIM_PATH_MAX];

	ahead_file(life, path);
	switch (rng_below(life->rng, 12)) {
	case 0:
	case 1:
		ahead_create(life, number);
		return;
	case 2:
	case 3:
		ahead_change(life, path);
		if (rng_one_in(life->rng, 3))
			return;
		break;
	case 4:
		op_on(life, SIM_APPEND, path, 0, 1 + rng_below(life->rng, 100));
		break;
	case 5:
		op_on(life, SIM_APPEND, path, 0, rng_log(life->rng, 15));
		break;
	case 6:
	case 7:
		set_attr(life, path);
		break;
	case 8:
		op_on(life, SIM_WRITE, path, rng_below(life->rng, 200000), rng_log(life->rng, 13));
		break;
	default:
		op_on(life, SIM_WRITE, path, rng_below(life->rng, 30000), rng_log(life->rng, 13));
	}
	if (!rng_one_in(life->rng, 4))
		fsync_file(life, path);
}

void ahead_live(struct life *life)
{
	u32 sync_every = rng_one_in(life->rng, 2) ? NEVER : 40 + rng_below(life->rng, 100), i;

	if (!life->run->life)
		ahead_make(life);
	run_first_ahead(life->run);
	for (i = 0; i < 300; i++) {
		ahead_step(life, i);
		if (i % sync_every == sync_every - 1)
			sync_all(life);
	}
}

/* ---- dirs: new files that are synced, and then their directory ---- */

void dirs_params(struct sim_params *params, struct rng *rng)
{
	ahead_params(params, rng);
	params->tight = false;
	params->lives = 2;
}

/* After which not all that is new in the directory went ahead with a file; mostly. */
static void dirs_change(struct life *life, const char *dir, const char *path)
{
	struct sim_op xattr = { .kind = SIM_SETXATTR, .b = "user.x", .len = rng_below(life->rng, 200) };
	char other[SIM_PATH_MAX];

	snprintf(xattr.a, sizeof(xattr.a), "%s", dir);
	snprintf(other, sizeof(other), "%.20s/other%u", dir, (u32)rng_below(life->rng, 4));
	switch (rng_below(life->rng, 7)) {
	case 0:
		op_on(life, SIM_UNLINK, path, 0, 0);
		break;
	case 1:
		op_on(life, SIM_UNLINK, other, 0, 0);
		break;
	case 2:
		op_on(life, SIM_CREATE, other, 0, 0);
		break;
	case 3:
		op_on(life, SIM_MKDIR, other, 0, 0);
		break;
	case 4:
		set_attr(life, dir);
		break;
	case 5:
		make_op(life, &xattr);
		break;
	default:
		ahead_change(life, path);
	}
}

void dirs_live(struct life *life)
{
	char dir[SIM_PATH_MAX], path[SIM_PATH_MAX];
	u32 i, n;

	if (!life->run->life) {
		make_dirs(life, 4);
		sync_all(life);
	}
	run_first_ahead(life->run);
	for (i = 0; i < 150; i++) {
		snprintf(dir, sizeof(dir), "d%u", (u32)rng_below(life->rng, 4));
		for (n = 1 + rng_below(life->rng, 3); n; n--) {
			snprintf(path, sizeof(path), "%.20s/l%u-n%u-%u", dir, life->run->life, i, n);
			op_on(life, SIM_CREATE, path, 0, 0);
			op_on(life, SIM_WRITE, path, 0, rng_log(life->rng, 14));
			if (!rng_one_in(life->rng, 10))
				fsync_file(life, path);
		}
		if (rng_one_in(life->rng, 3))
			dirs_change(life, dir, path);
		if (!rng_one_in(life->rng, 3))
			fsync_file(life, dir);
	}
}

/* ---- saves: files that take each other's names, and fsyncs of them and of their directories ---- */

#define SAVES_FILES 6u

static void saves_file(struct life *life, char *path)
{
	snprintf(path, SIM_PATH_MAX, "d%u/s%u", (u32)rng_below(life->rng, 2), (u32)rng_below(life->rng, SAVES_FILES));
}

static void saves_two(struct life *life, enum sim_op_kind kind, const char *path, u32 flags)
{
	struct sim_op op = { .kind = kind, .flags = flags };

	snprintf(op.a, sizeof(op.a), "%s", path);
	saves_file(life, op.b);
	make_op(life, &op);
}

/* Written under another name, which it then loses. */
static void saves_by_rename(struct life *life, u32 number)
{
	struct sim_op op = { .kind = SIM_RENAME };
	u64 len = rng_log(life->rng, 14);

	snprintf(op.a, sizeof(op.a), "d%u/l%u-t%u", (u32)rng_below(life->rng, 2), life->run->life, number);
	saves_file(life, op.b);
	op_on(life, SIM_CREATE, op.a, 0, 0);
	op_on(life, SIM_WRITE, op.a, 0, len);
	if (!rng_one_in(life->rng, 4))
		fsync_file(life, op.a);
	make_op(life, &op);
	if (!rng_one_in(life->rng, 3))
		fsync_file(life, rng_one_in(life->rng, 2) ? op.b : op.b[1] == '0' ? "d0" : "d1");
}

/* Moved away, and written anew. */
static void saves_with_backup(struct life *life, const char *path)
{
	saves_two(life, SIM_RENAME, path, 0);
	op_on(life, SIM_CREATE, path, 0, 0);
	op_on(life, SIM_WRITE, path, 0, rng_log(life->rng, 14));
	if (!rng_one_in(life->rng, 4))
		fsync_file(life, path);
}

static void saves_nameless(struct life *life)
{
	struct sim_op op = { .kind = SIM_TMPFILE, .flags = rng_below(life->rng, SIM_SLOTS), .mode = 0600 };
	char path[SIM_PATH_MAX];

	snprintf(op.a, sizeof(op.a), "d%u", (u32)rng_below(life->rng, 2));
	make_op(life, &op);
	snprintf(path, sizeof(path), "@%u", op.flags);
	op_on(life, SIM_WRITE, path, 0, rng_log(life->rng, 13));
	if (rng_one_in(life->rng, 3))
		sync_all(life);
	saves_two(life, SIM_LINK, path, 0);
	op_on(life, SIM_FSYNC, path, 0, 0);
}

static void saves_step(struct life *life, u32 number)
{
	char path[SIM_PATH_MAX];

	saves_file(life, path);
	switch (rng_below(life->rng, 14)) {
	case 0:
	case 1:
	case 2:
		saves_by_rename(life, number);
		return;
	case 3:
	case 4:
		saves_with_backup(life, path);
		return;
	case 5:
		saves_two(life, SIM_LINK, path, 0);
		break;
	case 6:
		saves_two(life, SIM_RENAME, path, rng_one_in(life->rng, 2) ? TUX3_RENAME_EXCHANGE : 0);
		break;
	case 7:
		op_on(life, SIM_UNLINK, path, 0, 0);
		op_on(life, SIM_CREATE, path, 0, 0);
		break;
	case 8:
		op_on(life, SIM_UNLINK, path, 0, 0);
		path[2] = '\0';
		break;
	case 9:
		saves_nameless(life);
		return;
	case 10:
		set_attr(life, path);
		break;
	case 11:
		saves_two(life, SIM_RENAME, path, rng_one_in(life->rng, 3) ? TUX3_RENAME_WHITEOUT : 0);
		path[2] = '\0';
		break;
	case 12:
		op_on(life, SIM_CREATE, path, 0, 0);
		op_on(life, SIM_APPEND, path, 0, rng_log(life->rng, 13));
		break;
	default:
		ahead_change(life, path);
	}
	if (!rng_one_in(life->rng, 4))
		fsync_file(life, path);
}

void saves_live(struct life *life)
{
	u32 sync_every = rng_one_in(life->rng, 3) ? NEVER : 4 + rng_below(life->rng, 30), i;

	if (!life->run->life) {
		make_dirs(life, 4);
		sync_all(life);
	}
	run_first_ahead(life->run);
	for (i = 0; i < 200; i++) {
		saves_step(life, i);
		if (i % sync_every == sync_every - 1)
			sync_all(life);
	}
}

/* ---- beside: as saves, with directories, beside commits that are held while it goes on ---- */

void beside_params(struct sim_params *params, struct rng *rng)
{
	dirs_params(params, rng);
	params->holds = false;
	params->cuts = 40;
}

static void beside_dir(struct life *life, char *path)
{
	u32 dir = rng_below(life->rng, 2), sub = rng_below(life->rng, 6);

	if (sub < 3)
		snprintf(path, SIM_PATH_MAX, "d%u", dir);
	else
		snprintf(path, SIM_PATH_MAX, "d%u/e%u", dir, sub % 3);
}

static void beside_file(struct life *life, char *path)
{
	char dir[SIM_PATH_MAX];

	beside_dir(life, dir);
	snprintf(path, SIM_PATH_MAX, "%.20s/s%u", dir, (u32)rng_below(life->rng, 3));
}

static s64 beside_rename(struct life *life, const char *from, const char *to, u32 flags)
{
	struct sim_op op = { .kind = SIM_RENAME, .flags = flags };

	snprintf(op.a, sizeof(op.a), "%s", from);
	snprintf(op.b, sizeof(op.b), "%s", to);
	return make_op(life, &op);
}

static void beside_link(struct life *life, const char *from, const char *to)
{
	struct sim_op op = { .kind = SIM_LINK };

	snprintf(op.a, sizeof(op.a), "%s", from);
	snprintf(op.b, sizeof(op.b), "%s", to);
	make_op(life, &op);
}

static void beside_change(struct life *life, const char *path)
{
	struct sim_op op = {};

	snprintf(op.a, sizeof(op.a), "%s", path);
	switch (rng_below(life->rng, 6)) {
	case 0:
		set_attr(life, path);
		break;
	case 1:
		ahead_xattr(life, &op);
		break;
	case 2:
		op_on(life, SIM_TRUNCATE, path, 0, rng_one_in(life->rng, 2) ? 0 : rng_log(life->rng, 14));
		break;
	case 3:
		op_on(life, SIM_WRITE, path, rng_below(life->rng, 20000), rng_log(life->rng, 13));
		break;
	default:
		op_on(life, SIM_APPEND, path, 0, rng_log(life->rng, 14));
	}
}

static void beside_make(struct life *life, const char *path)
{
	op_on(life, SIM_CREATE, path, 0, 0);
	if (!rng_one_in(life->rng, 5))
		beside_change(life, path);
}

/*
 * What is captured while an intent is being written may say more than the oracle knows: whoever had a name since the delta began
 * may be one to whom a crash leaves it.  So that one ends before.
 */
static void beside_fsync(struct life *life, const char *path)
{
	if (run_beside_is_ahead(life->run))
		run_beside_end(life->run);
	fsync_file(life, path);
}

/* It is moved away, and comes back. */
static void beside_there_and_back(struct life *life, const char *path)
{
	char other[SIM_PATH_MAX];
	u32 flags = rng_one_in(life->rng, 3) ? TUX3_RENAME_EXCHANGE : 0;

	beside_file(life, other);
	if (beside_rename(life, path, other, flags))
		return;
	if (!rng_one_in(life->rng, 3))
		beside_change(life, other);
	if (rng_one_in(life->rng, 3))
		beside_fsync(life, other);
	if (rng_one_in(life->rng, 4))
		beside_make(life, path);
	beside_rename(life, other, path, flags);
}

/* A sync of all or of one, if there is none, one time in so many. */
static void beside_begin(struct life *life, u32 rarely)
{
	struct sim_run *run = life->run;
	u32 writes = rng_below(life->rng, rng_one_in(life->rng, 4) ? 8 : 2), which = rng_below(life->rng, 4);
	bool begin = rng_one_in(life->rng, rarely);
	char path[SIM_PATH_MAX];

	if (which == 2)
		beside_file(life, path);
	else
		beside_dir(life, path);
	if (begin && !run->beside && !run->failed && !run->broken)
		run_beside_begin(run, which < 2 ? NULL : path, which < 2 ? writes : 0);
}

/* synced: what is of interest afterwards. */
static void beside_dirs(struct life *life, char *synced)
{
	char path[SIM_PATH_MAX], other[SIM_PATH_MAX];
	u32 i;

	beside_dir(life, path);
	beside_dir(life, other);
	switch (rng_below(life->rng, 4)) {
	case 0:
		op_on(life, SIM_MKDIR, path, 0, 0);
		break;
	case 1:
		for (i = 0; i < 3; i++) {
			snprintf(other, sizeof(other), "%.20s/s%u", path, i);
			if (rng_one_in(life->rng, 2))
				op_on(life, SIM_UNLINK, other, 0, 0);
			else
				beside_rename(life, other, synced, 0);
		}
		if (path[2])
			op_on(life, SIM_RMDIR, path, 0, 0);
		beside_begin(life, 2);
		if (rng_one_in(life->rng, 2))
			beside_fsync(life, synced);
		break;
	case 2:
		if (path[2] && other[2])
			beside_rename(life, path, other, rng_one_in(life->rng, 2) ? TUX3_RENAME_EXCHANGE : 0);
		break;
	default:
		op_on(life, SIM_MKDIR, path, 0, 0);
		beside_file(life, other);
		snprintf(path + strlen(path), 8, "/s0");
		beside_rename(life, other, path, 0);
	}
}

static void beside_nameless(struct life *life)
{
	struct sim_op op = { .kind = SIM_TMPFILE, .flags = rng_below(life->rng, SIM_SLOTS), .mode = 0600 };
	char path[SIM_PATH_MAX], other[SIM_PATH_MAX];

	beside_dir(life, op.a);
	make_op(life, &op);
	snprintf(path, sizeof(path), "@%u", op.flags);
	beside_change(life, path);
	if (rng_one_in(life->rng, 3))
		beside_fsync(life, path);
	beside_file(life, other);
	beside_link(life, path, other);
}

static void beside_sync(struct life *life, const char *path)
{
	char dir[SIM_PATH_MAX];
	char *slash;

	switch (rng_below(life->rng, 5)) {
	case 0:
		break;
	case 1:
		beside_dir(life, dir);
		beside_fsync(life, dir);
		break;
	case 2:
	case 3:
		snprintf(dir, sizeof(dir), "%s", path);
		slash = strrchr(dir, '/');
		if (slash)
			*slash = 0;
		beside_fsync(life, dir);
		break;
	default:
		beside_fsync(life, path);
	}
}

static void beside_step(struct life *life, u32 number)
{
	static const u32 flags[] = { 0, 0, 0, TUX3_RENAME_EXCHANGE, TUX3_RENAME_EXCHANGE, TUX3_RENAME_WHITEOUT,
				     TUX3_RENAME_NOREPLACE };
	char path[SIM_PATH_MAX], other[SIM_PATH_MAX];

	beside_file(life, path);
	beside_file(life, other);
	switch (rng_below(life->rng, 12)) {
	case 0:
	case 1:
		beside_change(life, path);
		break;
	case 2:
	case 3:
		beside_rename(life, path, other, flags[rng_below(life->rng, ARRAY_SIZE(flags))]);
		break;
	case 4:
		beside_link(life, path, other);
		break;
	case 5:
		op_on(life, SIM_UNLINK, path, 0, 0);
		if (rng_one_in(life->rng, 2))
			beside_make(life, path);
		break;
	case 6:
	case 7:
		snprintf(other, sizeof(other), "d%u/l%u-t%u", (u32)rng_below(life->rng, 2), life->run->life, number);
		beside_make(life, other);
		if (!rng_one_in(life->rng, 3))
			beside_fsync(life, other);
		beside_rename(life, other, path, 0);
		break;
	case 8:
		beside_there_and_back(life, path);
		break;
	case 9:
		beside_dirs(life, path);
		break;
	case 10:
		beside_nameless(life);
		break;
	default:
		beside_make(life, path);
	}
	beside_begin(life, 6);
	beside_sync(life, path);
}

void beside_live(struct life *life)
{
	struct sim_run *run = life->run;
	u32 i, rarely = 3 + rng_below(life->rng, 20);

	if (!run->life) {
		make_dirs(life, 4);
		op_on(life, SIM_MKDIR, "d0/e0", 0, 0);
		op_on(life, SIM_MKDIR, "d1/e1", 0, 0);
		sync_all(life);
	}
	run_first_ahead(run);
	for (i = 0; i < 150 && !run->failed && !run->broken; i++) {
		beside_begin(life, rarely);
		if (rng_one_in(life->rng, 10))
			run_beside_end(run);
		beside_step(life, i);
	}
	run_beside_end(run);
}

/* ---- trees: directories that are new, one in the other, and what is in them, likewise ---- */

#define TREES_DIRS	12u

/* Where something is made, moved, and synced: those of late, mostly. */
struct trees {
	char dir[TREES_DIRS][SIM_PATH_MAX];
	u32 made;
};

static const char *trees_dir(struct life *life, const struct trees *trees)
{
	u32 known = min(trees->made, TREES_DIRS), back = rng_below(life->rng, 2 + rng_below(life->rng, known + 1));

	if (back >= known)
		return rng_one_in(life->rng, 2) ? "d0" : "d1";
	return trees->dir[(trees->made - 1 - back) % TREES_DIRS];
}

static void trees_file(struct life *life, const struct trees *trees, char *path)
{
	snprintf(path, SIM_PATH_MAX, "%.50s/f%u", trees_dir(life, trees), (u32)rng_below(life->rng, 3));
}

/* Mostly by a name that nobody had. */
static void trees_mkdir(struct life *life, struct trees *trees)
{
	struct sim_op xattr = { .kind = SIM_SETXATTR, .b = "user.x", .len = rng_below(life->rng, 100) };
	char path[SIM_PATH_MAX];

	if (rng_one_in(life->rng, 4))
		snprintf(path, sizeof(path), "%.40s/e%u", trees_dir(life, trees), (u32)rng_below(life->rng, 2));
	else
		snprintf(path, sizeof(path), "%.40s/%u.%u", trees_dir(life, trees), life->run->life, trees->made);
	if (strlen(path) > 36 || op_on(life, SIM_MKDIR, path, 0, 0))
		return;
	snprintf(trees->dir[trees->made++ % TREES_DIRS], SIM_PATH_MAX, "%s", path);
	snprintf(xattr.a, sizeof(xattr.a), "%s", path);
	if (rng_one_in(life->rng, 4))
		make_op(life, &xattr);
	if (rng_one_in(life->rng, 6))
		set_attr(life, path);
}

/* It is emptied first, as far as that is files. */
static void trees_rmdir(struct life *life, struct trees *trees)
{
	char dir[SIM_PATH_MAX], path[SIM_PATH_MAX], other[SIM_PATH_MAX];
	u32 i;

	snprintf(dir, sizeof(dir), "%s", trees_dir(life, trees));
	for (i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%.50s/f%u", dir, i);
		trees_file(life, trees, other);
		if (rng_one_in(life->rng, 2))
			op_on(life, SIM_UNLINK, path, 0, 0);
		else
			beside_rename(life, path, other, 0);
	}
	if (dir[2])
		op_on(life, SIM_RMDIR, dir, 0, 0);
}

/* Its times are set back, or to some that are to come; or its mode. */
static void trees_change(struct life *life, const char *path)
{
	struct sim_op op = { .kind = SIM_SETATTR, .flags = TUX3_SET_MTIME, .mtime = rng_next(life->rng) % (1ULL << 62) };

	snprintf(op.a, sizeof(op.a), "%s", path);
	if (rng_one_in(life->rng, 2))
		make_op(life, &op);
	else
		set_attr(life, path);
}

/* As an archive is unpacked: a directory, what is in it, and its time. */
static void trees_unpack(struct life *life, struct trees *trees)
{
	char dir[SIM_PATH_MAX], path[SIM_PATH_MAX];

	trees_mkdir(life, trees);
	snprintf(dir, sizeof(dir), "%s", trees_dir(life, trees));
	snprintf(path, sizeof(path), "%.50s/f%u", dir, (u32)rng_below(life->rng, 3));
	beside_make(life, path);
	if (dir[2])
		trees_change(life, dir);
	beside_begin(life, 8);
	if (!rng_one_in(life->rng, 3))
		beside_fsync(life, path);
	beside_fsync(life, dir);
}

static void trees_step(struct life *life, struct trees *trees)
{
	char path[SIM_PATH_MAX], other[SIM_PATH_MAX];

	trees_file(life, trees, path);
	trees_file(life, trees, other);
	switch (rng_below(life->rng, 16)) {
	case 0:
	case 1:
	case 2:
		trees_mkdir(life, trees);
		break;
	case 3:
		trees_unpack(life, trees);
		return;
	case 4:
		trees_rmdir(life, trees);
		break;
	case 5:
		beside_rename(life, path, other, 0);
		break;
	case 6:
		beside_link(life, path, other);
		break;
	case 7:
		trees_change(life, trees_dir(life, trees));
		break;
	case 8:
		op_on(life, SIM_UNLINK, path, 0, 0);
		break;
	case 9:
		snprintf(other, sizeof(other), "%s", trees_dir(life, trees));
		if (rng_one_in(life->rng, 4) && other[2])
			beside_rename(life, other, rng_one_in(life->rng, 2) ? "d0/moved" : "d1/moved", 0);
		break;
	case 10:
	case 11:
		beside_change(life, path);
		break;
	default:
		beside_make(life, path);
	}
	beside_begin(life, 8);
	switch (rng_below(life->rng, 5)) {
	case 0:
		break;
	case 1:
		beside_fsync(life, trees_dir(life, trees));
		break;
	default:
		beside_fsync(life, path);
	}
}

void trees_live(struct life *life)
{
	u32 rarely = 3 + rng_below(life->rng, 20), i;
	struct sim_run *run = life->run;
	struct trees trees = {};

	if (!run->life) {
		make_dirs(life, 2);
		sync_all(life);
	}
	run_first_ahead(run);
	for (i = 0; i < 150 && !run->failed && !run->broken; i++) {
		beside_begin(life, rarely);
		if (rng_one_in(life->rng, 10))
			run_beside_end(run);
		trees_step(life, &trees);
	}
	run_beside_end(run);
}

/* ---- pages: a database that writes no page twice to be safe ---- */

#define PAGES_FILES	3u
#define PAGES_BYTES	16384u
#define PAGES_COUNT	40u

void pages_params(struct sim_params *params, struct rng *rng)
{
	ahead_params(params, rng);
	params->block_size = 4096u << rng_below(rng, 3);
	if (params->block_size > 4096)
		params->volume_bytes *= 2;
	params->cuts = 20;
	params->lives = 2;
}

static void pages_write(struct life *life, const char *path)
{
	struct sim_op op = { .kind = SIM_WRITE, .flags = SIM_ATOMIC, .seed = rng_next(life->rng) };

	snprintf(op.a, sizeof(op.a), "%s", path);
	op.len = PAGES_BYTES << (rng_one_in(life->rng, 8) ? rng_below(life->rng, 5) : 0);
	op.offset = rng_below(life->rng, PAGES_COUNT) * PAGES_BYTES / op.len * op.len;
	make_op(life, &op);
}

/* Pages of one file and of another, some of them before an fsync, and what keeps the commit busy. */
void pages_live(struct life *life)
{
	char path[SIM_PATH_MAX];
	u32 i, n;

	for (i = 0; !life->run->life && i < PAGES_FILES; i++) {
		snprintf(path, sizeof(path), "db%u", i);
		op_on(life, SIM_CREATE, path, 0, 0);
		if (i)
			op_on(life, SIM_TRUNCATE, path, 0, i == 1 ? PAGES_BYTES * PAGES_COUNT : 100);
	}
	if (!life->run->life)
		sync_all(life);
	run_first_ahead(life->run);
	for (i = 0; i < 150; i++) {
		snprintf(path, sizeof(path), "db%u", (u32)rng_below(life->rng, PAGES_FILES));
		for (n = rng_below(life->rng, 4); n; n--)
			pages_write(life, path);
		if (!rng_one_in(life->rng, 3))
			fsync_file(life, path);
		else if (rng_one_in(life->rng, 12))
			ahead_change(life, path);
		else if (rng_one_in(life->rng, 20))
			sync_all(life);
		if (rng_one_in(life->rng, 40))
			op_on(life, SIM_CREATE, path, 0, 0);
	}
}

/*
 * ---- early: large files that are synced, changed in all ways, and synced again ----
 *
 * What has not changed since stays where an fsync has put it (core/inode/early.h): so it is written over, cut, punched, moved from
 * file to file; and names come and go, before the commit and beside it.
 */

#define EARLY_FILES	4u
#define EARLY_BYTES	(1u << 20)	/* of a file, mostly */

void early_params(struct sim_params *params, struct rng *rng)
{
	ahead_params(params, rng);
	params->tight = false;
	params->volume_bytes = (64 + rng_below(rng, 64)) * MIB;
	params->holds = params->holds && rng_one_in(rng, 2);
	params->data_cache_bytes = rng_one_in(rng, 2) ? 64 * 4096 : 4 * MIB;
	params->options.intent_near_bytes = 4096 * rng_log(rng, 6);
	params->options.log_blocks = rng_one_in(rng, 2) ? 0 : 1 + rng_below(rng, 60);
	params->cuts = 16;
	params->lives = 2;
}

static void early_name(struct life *life, char *path)
{
	snprintf(path, SIM_PATH_MAX, "d%u/f%u", (u32)rng_below(life->rng, 2), (u32)rng_below(life->rng, EARLY_FILES));
}

/* By its name, or one that is open. */
static void early_file(struct life *life, char *path)
{
	u32 slot = rng_below(life->rng, SIM_SLOTS);

	if (life->run->state->slots[slot] != M_NONE && rng_one_in(life->rng, 4))
		snprintf(path, SIM_PATH_MAX, "@%u", slot);
	else
		early_name(life, path);
}

static u64 early_size(struct life *life, const char *path)
{
	int err;
	u32 id = model_lookup(life->run->state, path, &err);

	return id == M_NONE ? 0 : life->run->state->inodes[id]->size;
}

/* A range in the file, of blocks or of bytes. */
static void early_range(struct life *life, const char *path, u64 *offset, u64 *len, bool blocks)
{
	u64 size = max_t(u64, early_size(life, path), 8192);

	*offset = rng_below(life->rng, min_t(u64, size, 2 * EARLY_BYTES));
	*len = 1 + rng_below(life->rng, rng_one_in(life->rng, 2) ? 100000 : EARLY_BYTES / 2);
	if (blocks) {
		*offset = round_down(*offset, 4096);
		*len = round_up(*len, 4096);
	}
}

static void early_write(struct life *life, const char *path)
{
	u64 offset, len;

	early_range(life, path, &offset, &len, rng_one_in(life->rng, 3));
	switch (rng_below(life->rng, 5)) {
	case 0:
		op_on(life, SIM_WRITE, path, 0, 1 + rng_below(life->rng, EARLY_BYTES - 1));
		break;
	case 1:
		if (early_size(life, path) < 2 * EARLY_BYTES)
			op_on(life, SIM_APPEND, path, 0, len);
		break;
	case 2:
		op_on(life, SIM_WRITE, path, offset, 1 + rng_below(life->rng, 5000));
		break;
	default:
		op_on(life, SIM_WRITE, path, offset, len);
	}
}

static void early_remap(struct life *life, const char *path)
{
	static const enum sim_op_kind kinds[] = { SIM_EXCHANGE, SIM_COLLAPSE, SIM_INSERT };
	struct sim_op op = { .kind = kinds[rng_below(life->rng, 3)] };

	snprintf(op.a, sizeof(op.a), "%s", path);
	early_range(life, path, &op.offset, &op.len, true);
	if (op.kind == SIM_EXCHANGE) {
		early_file(life, op.b);
		op.offset2 = rng_one_in(life->rng, 2) ? op.offset : 0;
		if (rng_one_in(life->rng, 2)) {
			op.offset = op.offset2 = op.len = 0;
			op.flags = TUX3_EXCHANGE_TO_EOF;
		}
	}
	make_op(life, &op);
}

static void early_allocate(struct life *life, const char *path)
{
	static const u32 modes[] = { FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, FALLOC_FL_KEEP_SIZE };
	struct sim_op op = { .kind = SIM_FALLOCATE, .mode = modes[rng_below(life->rng, ARRAY_SIZE(modes))] };

	snprintf(op.a, sizeof(op.a), "%s", path);
	early_range(life, path, &op.offset, &op.len, rng_one_in(life->rng, 2));
	make_op(life, &op);
	if (!(op.mode & ~FALLOC_FL_KEEP_SIZE) && rng_one_in(life->rng, 2))
		op_on(life, SIM_WRITE, path, op.offset, op.len);
}

static void early_names(struct life *life, const char *path, u32 number)
{
	struct sim_op op = { .flags = rng_below(life->rng, SIM_SLOTS) };
	char other[SIM_PATH_MAX];

	snprintf(op.a, sizeof(op.a), "%s", path);
	early_name(life, op.b);
	switch (rng_below(life->rng, 7)) {
	case 0:
		op_on(life, SIM_UNLINK, path, 0, 0);
		break;
	case 1:
		op.kind = SIM_LINK;
		op.flags = 0;
		make_op(life, &op);
		break;
	case 2:
		op.kind = SIM_RENAME;
		op.flags = rng_one_in(life->rng, 3) ? TUX3_RENAME_EXCHANGE : 0;
		make_op(life, &op);
		break;
	case 3:
	case 4:
		op.kind = rng_one_in(life->rng, 3) ? SIM_CLOSE : SIM_OPEN;
		make_op(life, &op);
		break;
	case 5:
		snprintf(other, sizeof(other), "d0/l%u-t%u", life->run->life, number);
		op_on(life, SIM_CREATE, other, 0, 0);
		early_write(life, other);
		if (!rng_one_in(life->rng, 3))
			beside_fsync(life, other);
		beside_rename(life, other, op.b, 0);
		break;
	default:
		op.kind = SIM_TMPFILE;
		op.mode = 0600;
		snprintf(op.a, sizeof(op.a), "d1");
		make_op(life, &op);
		snprintf(op.a, sizeof(op.a), "@%u", op.flags);
		early_write(life, op.a);
		op.kind = SIM_LINK;
		op.flags = 0;
		if (rng_one_in(life->rng, 2))
			make_op(life, &op);
	}
}

static void early_step(struct life *life, u32 number)
{
	char path[SIM_PATH_MAX];

	early_file(life, path);
	switch (rng_below(life->rng, 20)) {
	case 0:
	case 1:
		op_on(life, SIM_TRUNCATE, path, 0, rng_one_in(life->rng, 3) ? 0 : rng_below(life->rng, 2 * EARLY_BYTES));
		break;
	case 2:
	case 3:
	case 4:
		early_allocate(life, path);
		break;
	case 5:
		early_remap(life, path);
		break;
	case 6:
	case 7:
	case 8:
		early_name(life, path);
		early_names(life, path, number);
		break;
	case 9:
		early_name(life, path);
		ahead_change(life, path);
		break;
	case 10:
		early_name(life, path);
		op_on(life, SIM_CREATE, path, 0, 0);
		early_write(life, path);
		break;
	default:
		early_write(life, path);
	}
	if (rng_one_in(life->rng, 3))
		early_file(life, path);
	if (!rng_one_in(life->rng, 3))
		beside_fsync(life, path);
}

void early_live(struct life *life)
{
	u32 sync_every = rng_one_in(life->rng, 3) ? NEVER : 3 + rng_below(life->rng, 30), rarely = 3 + rng_below(life->rng, 20), i;
	bool beside = !life->params->holds && rng_one_in(life->rng, 2);
	struct sim_run *run = life->run;
	char path[SIM_PATH_MAX];

	if (!run->life) {
		make_dirs(life, 2);
		for (i = 0; i < 2 * EARLY_FILES; i++) {
			snprintf(path, sizeof(path), "d%u/f%u", i % 2, i / 2);
			op_on(life, SIM_CREATE, path, 0, 0);
			if (i % 3)
				early_write(life, path);
		}
		sync_all(life);
	}
	run_first_ahead(run);
	for (i = 0; i < 100 && !run->failed && !run->broken; i++) {
		if (beside)
			beside_begin(life, rarely);
		if (rng_one_in(life->rng, 10))
			run_beside_end(run);
		early_step(life, i);
		if (i % sync_every == sync_every - 1)
			sync_all(life);
	}
	run_beside_end(run);
}
