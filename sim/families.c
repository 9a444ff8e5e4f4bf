/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Families of workloads, each of which goes where random operations on a few files do not get: a table, and for each
 * family what follows from the seed and what a life of the volume does.  The goals say how far it must get; a run that
 * does not is a failure of the family.
 *
 * The first life makes files, the others change and remove them; after each the power is cut in some places.
 */
#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "sim.h"

#define MIB		(1ULL << 20)
#define GIB		(1ULL << 30)
#define NEVER		1000000u
#define WATCH_OPS	64u

/* One life of one run. */
struct life {
	struct sim_run *run;
	const struct sim_params *params;
	struct rng *rng;
	u32 ops;
};

struct family {
	const char *name, *what;
	void (*params)(struct sim_params *params, struct rng *rng);
	void (*live)(struct life *life);
	struct sim_goal goal;
};

/* ---- operations ---- */

/* Returns what the volume said; an error if the run has failed. */
static s64 make_op(struct life *life, const struct sim_op *op)
{
	if (life->run->failed)
		return -ECANCELED;
	if (!(life->ops++ % WATCH_OPS))
		jobs_watchdog();
	run_op(life->run, op);
	return life->run->failed ? -ECANCELED : life->run->result;
}

static s64 op_on(struct life *life, enum sim_op_kind kind, const char *path, u64 offset, u64 len)
{
	struct sim_op op = { .kind = kind, .offset = offset, .len = len, .seed = rng_next(life->rng) };

	if (kind == SIM_CREATE || kind == SIM_MKDIR)
		op.mode = 0700 + rng_below(life->rng, 0100);
	snprintf(op.a, sizeof(op.a), "%s", path);
	return make_op(life, &op);
}

static void sync_all(struct life *life)
{
	op_on(life, SIM_SYNC, "", 0, 0);
}

static void set_attr(struct life *life, const char *path)
{
	struct sim_op op = { .kind = SIM_SETATTR, .flags = TUX3_SET_MODE | TUX3_SET_UID, .uid = rng_below(life->rng, 1000),
			     .mode = rng_below(life->rng, 01000) };

	snprintf(op.a, sizeof(op.a), "%s", path);
	make_op(life, &op);
}

static void make_dirs(struct life *life, u32 count)
{
	char path[SIM_PATH_MAX];
	u32 i;

	for (i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "d%u", i);
		op_on(life, SIM_MKDIR, path, 0, 0);
	}
}

/* A file of so many bytes (0: only made).  False: there is no room, or the run has failed. */
static bool make_file(struct life *life, u32 dirs, u32 number, u64 bytes)
{
	char path[SIM_PATH_MAX];

	snprintf(path, sizeof(path), "d%u/l%u-f%u", number % dirs, life->run->life, number);
	if (op_on(life, SIM_CREATE, path, 0, 0))
		return false;
	return !bytes || op_on(life, SIM_WRITE, path, 0, bytes) == (s64)bytes;
}

/* The files there are, in random order. */
struct files {
	char (*path)[SIM_PATH_MAX];
	u32 count;
};

static void files_add(struct files *files, const char *dir, const struct m_inode *inode, const struct m_entry *entry)
{
	if (!S_ISREG(inode->mode))
		return;
	if (!(files->count & (files->count - 1)))
		files->path = realloc(files->path, (2 * files->count + 1) * sizeof(*files->path));
	if (!files->path)
		abort();
	snprintf(files->path[files->count++], SIM_PATH_MAX, "%.20s%s%.40s", dir, *dir ? "/" : "", entry->name);
}

static struct files files_list(struct life *life)
{
	const struct m_state *state = life->run->state;
	const struct m_inode *root = state->inodes[M_ROOT];
	struct files files = { 0 };
	char path[SIM_PATH_MAX];
	u32 i, n;

	for (i = 0; i < root->entry_count; i++) {
		const struct m_inode *inode = state->inodes[root->entries[i].id];

		files_add(&files, "", inode, &root->entries[i]);
		for (n = 0; n < inode->entry_count; n++)
			files_add(&files, root->entries[i].name, state->inodes[inode->entries[n].id], &inode->entries[n]);
	}
	for (i = files.count; i > 1; i--) {
		n = rng_below(life->rng, i);
		memcpy(path, files.path[i - 1], SIM_PATH_MAX);
		memcpy(files.path[i - 1], files.path[n], SIM_PATH_MAX);
		memcpy(files.path[n], path, SIM_PATH_MAX);
	}
	return files;
}

static void delete_files(struct life *life, const struct files *files, u32 from, u32 to, u32 sync_every)
{
	u32 i;

	for (i = from; i < to && i < files->count; i++) {
		op_on(life, SIM_UNLINK, files->path[i], 0, 0);
		if ((i - from) % sync_every == sync_every - 1)
			sync_all(life);
	}
}

static void change_attrs(struct life *life, const struct files *files, u32 count, u32 sync_every)
{
	u32 i;

	for (i = 0; i < count && files->count; i++) {
		set_attr(life, files->path[i % files->count]);
		if (i % sync_every == sync_every - 1)
			sync_all(life);
	}
}

/* ---- full: to the last block ---- */

static void full_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = (44 + rng_below(rng, 17)) * MIB;	/* what is kept for emptying it is a small part */
	params->no_csum = rng_one_in(rng, 4);
	params->lives = 3;
	params->cuts = 4;
	/* Only close: then the log begins with the deletes. */
	params->close_at_end = !rng_one_in(rng, 3);
}

/* Most of it with few large files, which cost the oracle little; then small ones until there is room for none. */
static void fill_volume(struct life *life)
{
	u32 sync_every = rng_one_in(life->rng, 2) ? NEVER : 100, small = 500 + rng_below(life->rng, 2500), i;
	bool mixed = rng_one_in(life->rng, 2);
	char path[SIM_PATH_MAX];
	struct tux3_statfs stat;

	for (i = 0; i < 200; i++) {
		if (tux3_statfs(life->run->volume, &stat) || stat.available_blocks < small + 256)
			break;
		snprintf(path, sizeof(path), "d0/l%u-large%u", life->run->life, i);
		/* Not fallocate: room is kept for what writing to it may need. */
		if (op_on(life, SIM_CREATE, path, 0, 0) || op_on(life, SIM_WRITE, path, 0, MIB) != (s64)MIB)
			break;
	}
	for (i = 0; i < 5000; i++) {
		if (!make_file(life, 4, i, mixed ? rng_log(life->rng, 14) : 4096))
			break;
		if (i % sync_every == sync_every - 1)
			sync_all(life);
	}
	sync_all(life);
	for (i = 5000; i < 5100; i++)	/* what fits yet */
		if (!make_file(life, 4, i, 0))
			break;
	sync_all(life);
}

static void full_live(struct life *life)
{
	u32 sync_every = 1 + rng_below(life->rng, 200);
	struct files files;

	if (!life->run->life) {
		make_dirs(life, 4);
		fill_volume(life);
		return;
	}
	files = files_list(life);
	if (life->run->life == 1 || rng_one_in(life->rng, 2))
		delete_files(life, &files, 0, files.count / 2, sync_every);
	if (life->run->life > 1) {
		change_attrs(life, &files, rng_below(life->rng, 500), sync_every);
		fill_volume(life);
	}
	free(files.path);
}

/* ---- files: thousands, in several directories ---- */

static void files_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = 48 * MIB;
	params->lives = 2;
	params->cuts = 4;
	params->recoveries = 6;
	params->options.log_blocks = rng_one_in(rng, 2) ? 0 : 50;
	params->options.names_cached = rng_one_in(rng, 2) ? 500 : 0;
}

static void files_make(struct life *life)
{
	u32 sync_every = 100 + rng_below(life->rng, 1000), dirs = 4 + rng_below(life->rng, 12), i;

	make_dirs(life, dirs);
	for (i = 0; i < 3200; i++) {
		/* Many in the first directory. */
		make_file(life, i % 3 ? dirs : 1, i, rng_one_in(life->rng, 8) ? rng_log(life->rng, 13) : 0);
		if (i % sync_every == sync_every - 1)
			sync_all(life);
	}
}

static void files_live(struct life *life)
{
	struct sim_op op = { .kind = SIM_RENAME };
	struct files files;
	u32 i;

	if (!life->run->life) {
		files_make(life);
		return;
	}
	files = files_list(life);
	for (i = 0; i < 400 && i < files.count; i++) {
		op.kind = i % 2 ? SIM_RENAME : SIM_LINK;
		snprintf(op.a, sizeof(op.a), "%s", files.path[i]);
		snprintf(op.b, sizeof(op.b), "d%u/new%u", (u32)rng_below(life->rng, 4), i);
		make_op(life, &op);
		if (i % 150 == 149)
			sync_all(life);
	}
	delete_files(life, &files, 400, 1200, 300);
	free(files.path);
}

/* ---- log: long ones ---- */

static void log_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = (32 + rng_below(rng, 33)) * MIB;
	params->options.log_blocks = params->options.dirty_nodes = NEVER;	/* no unify before the volume's limit */
	params->cuts = 10;
	params->lives = 2;
	params->recoveries = 3;
}

static void log_live(struct life *life)
{
	u32 dirs = 3, rounds = 450, i, n;
	char path[SIM_PATH_MAX];

	if (!life->run->life)
		make_dirs(life, dirs);
	for (i = 0; i < rounds; i++) {
		for (n = rng_below(life->rng, 3); n + 1; n--) {
			snprintf(path, sizeof(path), "d%u/f%u", i % dirs, (u32)rng_below(life->rng, 200));
			switch (op_on(life, SIM_CREATE, path, 0, 0)) {
			case 0:
				break;
			case -EEXIST:
				op_on(life, rng_one_in(life->rng, 3) ? SIM_UNLINK : SIM_APPEND, path, 0,
				      rng_log(life->rng, 13));
				break;
			default:
				return;
			}
		}
		sync_all(life);
	}
}

/* ---- cache: of 32 nodes ---- */

static void cache_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = 24 * MIB;
	params->options.cache_bytes = 32 * 4096;
	params->options.names_cached = 16;
	params->options.dirty_nodes = 16;
	params->data_cache_bytes = 8192;
	params->lives = 2;
	params->cuts = 5;
}

static void cache_live(struct life *life)
{
	u32 sync_every = 50 + rng_below(life->rng, 100), dirs = 6, i;
	struct files files;

	if (!life->run->life) {
		make_dirs(life, dirs);
		for (i = 0; i < 2000; i++) {
			make_file(life, dirs, i, rng_one_in(life->rng, 3) ? rng_log(life->rng, 13) : 0);
			if (i % sync_every == sync_every - 1)
				sync_all(life);
		}
		return;
	}
	files = files_list(life);
	for (i = 0; i < 1200 && i < files.count; i++) {
		switch (rng_below(life->rng, 4)) {
		case 0:
			op_on(life, SIM_UNLINK, files.path[i], 0, 0);
			break;
		case 1:
			op_on(life, SIM_APPEND, files.path[i], 0, rng_log(life->rng, 13));
			break;
		case 2:
			op_on(life, SIM_TRUNCATE, files.path[i], 0, rng_log(life->rng, 12));
			break;
		default:
			set_attr(life, files.path[i]);
		}
		if (i % sync_every == sync_every - 1)
			sync_all(life);
		if (i % 200 == 199)
			op_on(life, SIM_COMPARE, "", 0, 0);
	}
	free(files.path);
}

/* ---- storm: all leaves change, in no order ---- */

static void storm_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = (16 + rng_below(rng, 17)) * MIB;
	params->options.dirty_nodes = rng_one_in(rng, 2) ? NEVER : 8;
	params->options.log_blocks = rng_one_in(rng, 2) ? NEVER : 0;
	params->options.cache_bytes = rng_one_in(rng, 2) ? 64 * 4096 : 0;
	params->lives = 2;
	params->cuts = 5;
	params->recoveries = 3;
	params->close_at_end = true;
}

static void storm_live(struct life *life)
{
	struct files files;
	u32 i;

	if (!life->run->life) {
		make_dirs(life, 8);
		for (i = 0; i < 3000; i++)
			make_file(life, 8, i, 0);
		return;
	}
	files = files_list(life);
	change_attrs(life, &files, 3000, rng_one_in(life->rng, 2) ? NEVER : 200 + rng_below(life->rng, 800));
	sync_all(life);
	free(files.path);
}

/* ---- slices: long deletes and truncates ---- */

static void slices_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = 24 * MIB;
	params->options.slice_extents = 1 + rng_below(rng, 4);
	params->options.log_blocks = rng_one_in(rng, 2) ? NEVER : 8;
	params->lives = 3;
	params->cuts = 8;
	params->recoveries = 2;
	params->close_at_end = false;
}

/* Every second block is a hole, so that each other one is an extent. */
static void make_sparse_file(struct life *life, const char *path, u32 extents)
{
	u32 i;

	op_on(life, SIM_CREATE, path, 0, 0);
	for (i = 0; i < extents; i++)
		op_on(life, SIM_WRITE, path, 2 * i * 4096, 1 + rng_below(life->rng, 4096));
}

static void slices_live(struct life *life)
{
	u32 count = 5 + rng_below(life->rng, 4), large = 0, i, n;
	char path[SIM_PATH_MAX];
	struct files files;

	if (!life->run->life)
		make_dirs(life, 2);
	for (i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "d%u/l%u-s%u", i % 2, life->run->life, i);
		make_sparse_file(life, path, 100 + rng_below(life->rng, 200));
	}
	sync_all(life);
	files = files_list(life);
	for (i = 0; i < files.count; i++) {
		if (!strstr(files.path[i], "-s"))	/* a small one */
			continue;
		/* A truncate waits until its blocks are free, a delete does not. */
		if (!large++ || rng_one_in(life->rng, 2))
			op_on(life, SIM_UNLINK, files.path[i], 0, 0);
		else
			op_on(life, SIM_TRUNCATE, files.path[i], 0, rng_below(life->rng, 100000));
		for (n = 5 + rng_below(life->rng, 25); n; n--) {	/* each commit frees a slice */
			snprintf(path, sizeof(path), "d0/l%u-n%u-%u", life->run->life, i, n);
			op_on(life, SIM_CREATE, path, 0, 0);
			sync_all(life);
		}
	}
	free(files.path);
}

/* ---- sparse: large volumes, files in many groups ---- */

#define PIECE	(64 * MIB)	/* allocated at once */

static void sparse_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = (12 + rng_below(rng, 20)) * GIB;
	params->lives = 3;
	params->cuts = 6;
	params->no_csum = rng_one_in(rng, 2);
	params->options.discard = rng_one_in(rng, 8);
	params->options.groups_kept = rng_one_in(rng, 2) ? 4 + rng_below(rng, 30) : 0;
}

/* Groups become full, one after the other; a little is left of the last ones. */
static void sparse_fill(struct life *life)
{
	char path[SIM_PATH_MAX];
	u32 i;

	for (i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "d%u/l%u-p%u", i % 3, life->run->life, i);
		if (op_on(life, SIM_CREATE, path, 0, 0) ||
		    op_on(life, SIM_FALLOCATE, path, rng_below(life->rng, 1u << 20) << 12, PIECE))
			break;
		if (rng_one_in(life->rng, 40))
			sync_all(life);
	}
	sync_all(life);
}

static void sparse_punch(struct life *life, const char *path)
{
	struct sim_op op = { .kind = SIM_FALLOCATE, .mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE };
	u32 id;
	int err;

	snprintf(op.a, sizeof(op.a), "%s", path);
	id = model_lookup(life->run->state, path, &err);
	if (id == M_NONE)
		return;
	op.len = life->run->state->inodes[id]->size + 1;
	make_op(life, &op);
}

static void sparse_live(struct life *life)
{
	struct files files;
	u32 i;

	if (!life->run->life) {
		make_dirs(life, 3);
		sparse_fill(life);
		return;
	}
	files = files_list(life);
	for (i = 0; i < 60 && i < files.count; i++) {
		switch (rng_below(life->rng, 4)) {
		case 0:
			op_on(life, SIM_UNLINK, files.path[i], 0, 0);
			break;
		case 1:
			op_on(life, SIM_WRITE, files.path[i], rng_below(life->rng, 1ULL << 34), rng_log(life->rng, 16));
			break;
		default:
			sparse_punch(life, files.path[i]);
		}
		if (rng_one_in(life->rng, 3))
			sync_all(life);
	}
	free(files.path);
	sync_all(life);
}

/* ---- slow: how long a mount takes after a crash, in reads one after the other ---- */

static void slow_params(struct sim_params *params, struct rng *rng)
{
	storm_params(params, rng);
	params->volume_bytes = 64 * MIB;
	params->options.cache_bytes = 0;
	params->options.dirty_nodes = params->options.log_blocks = 0;
	params->cuts = 4;
	params->abandon_last = true;	/* a close would unify all that is to be replayed */
}

/* With long names and xattrs, so that few inodes make a large tree. */
static void slow_make(struct life *life)
{
	static const char *const names[] = { "user.a", "user.b", "user.c" };
	struct sim_op op = { .kind = SIM_SETXATTR, .len = TUX3_XATTR_INLINE_MAX };
	u32 i, n;

	make_dirs(life, 8);
	for (i = 0; i < 1500; i++) {
		snprintf(op.a, sizeof(op.a), "d%u/f%u%c", i % 8, i, SIM_LONG_NAME);
		if (op_on(life, SIM_CREATE, op.a, 0, 0))
			break;
		for (n = 0; n < ARRAY_SIZE(names); n++) {
			op.seed = rng_next(life->rng);
			snprintf(op.b, sizeof(op.b), "%s", names[n]);
			make_op(life, &op);
		}
	}
}

static void slow_live(struct life *life)
{
	struct files files;

	if (!life->run->life) {
		slow_make(life);
		return;
	}
	files = files_list(life);
	change_attrs(life, &files, 1500, rng_one_in(life->rng, 2) ? NEVER : 200 + rng_below(life->rng, 800));
	sync_all(life);
	free(files.path);
}

/* ---- ahead: many fsyncs, hardly any commit ---- */

#define AHEAD_FILES	40u

static void ahead_params(struct sim_params *params, struct rng *rng)
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

static void ahead_live(struct life *life)
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

static void dirs_params(struct sim_params *params, struct rng *rng)
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

static void dirs_live(struct life *life)
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

static void saves_live(struct life *life)
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

static void beside_params(struct sim_params *params, struct rng *rng)
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

static void beside_live(struct life *life)
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

/* ---- pages: a database that writes no page twice to be safe ---- */

#define PAGES_FILES	3u
#define PAGES_BYTES	16384u
#define PAGES_COUNT	40u

static void pages_params(struct sim_params *params, struct rng *rng)
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
static void pages_live(struct life *life)
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

/* ---- quota: users at their limits, which change ---- */

#define QUOTA_FILES 8u

static void quota_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = (8 + rng_below(rng, 9)) * MIB;
	params->quota = true;
	params->lives = 3;
	params->cuts = 8;
	params->options.log_blocks = 1 + rng_below(rng, 60);
	params->options.overlay_entries = rng_one_in(rng, 2) ? 0 : 1 + rng_below(rng, 30);
	params->options.slice_extents = rng_one_in(rng, 2) ? 2 : 0;
	params->weights[SIM_WRITE] = 30;
	params->weights[SIM_QUOTA] = params->weights[SIM_CREATE] = params->weights[SIM_FALLOCATE] = 6;
	params->weights[SIM_SETATTR] = 12;
	params->weights[SIM_TRUNCATE] = params->weights[SIM_APPEND] = params->weights[SIM_UNLINK] = 8;
	params->weights[SIM_SETXATTR] = params->weights[SIM_RENAME] = params->weights[SIM_FSYNC] = params->weights[SIM_SYNC] = 4;
	params->weights[SIM_OPEN] = params->weights[SIM_CLOSE] = params->weights[SIM_TMPFILE] = 2;
}

/* Files that belong to somebody, and hardly any room for more. */
static void quota_make(struct life *life)
{
	char path[SIM_PATH_MAX];
	u32 i;

	for (i = 0; i < QUOTA_FILES; i++) {
		struct sim_op owner = { .kind = SIM_SETATTR, .flags = TUX3_SET_UID | TUX3_SET_GID, .uid = i % SIM_QUOTA_IDS,
					.gid = i / 2 % SIM_QUOTA_IDS };

		snprintf(path, sizeof(path), "q%u", i);
		op_on(life, SIM_CREATE, path, 0, 0);
		snprintf(owner.a, sizeof(owner.a), "%s", path);
		make_op(life, &owner);
		op_on(life, SIM_WRITE, path, rng_below(life->rng, 40000), 1 + rng_below(life->rng, 30000));
	}
	for (i = 1; i < SIM_QUOTA_IDS; i++) {
		struct sim_op limit = { .kind = SIM_QUOTA, .flags = i % SIM_QUOTA_TYPES, .uid = i,
					.limits = { .hard = 5 + rng_below(life->rng, 30) } };

		make_op(life, &limit);
	}
}

static void quota_live(struct life *life)
{
	u32 i;

	if (!life->run->life)
		quota_make(life);
	for (i = 0; i < 160 && !life->run->failed; i++)
		run_random_op(life->run, life->rng);
}

/* A mount that has to finish a truncate takes as long as that; all others have this limit. */
#define MOUNT_MS .most.mount_ms = 5000

/* ---- remap: contents that swap, parts that come and go ---- */

#define REMAP_FILES 8u

static void remap_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = (rng_one_in(rng, 3) ? 8 + rng_below(rng, 4) : 24) * MIB;
	params->no_csum = rng_one_in(rng, 4);
	params->quota = rng_one_in(rng, 4);
	params->lives = 3;
	params->cuts = 8;
	params->options.log_blocks = rng_one_in(rng, 2) ? 1 + rng_below(rng, 60) : NEVER;
	params->options.slice_extents = rng_one_in(rng, 2) ? 2 : 0;
	params->options.cache_bytes = rng_one_in(rng, 2) ? 8 * 4096 : 4 * MIB;
	params->weights[SIM_EXCHANGE] = 20;
	params->weights[SIM_COLLAPSE] = params->weights[SIM_INSERT] = 8;
	params->weights[SIM_WRITE] = 20;
	params->weights[SIM_FALLOCATE] = params->weights[SIM_FSYNC] = params->weights[SIM_LINK] = 4;
	params->weights[SIM_OPEN] = params->weights[SIM_CLOSE] = params->weights[SIM_TMPFILE] = 2;
	params->weights[SIM_QUOTA] = params->quota ? 2 : 0;
}

/* In many pieces, so that what swaps are several leaves. */
static void remap_live(struct life *life)
{
	bool full = rng_one_in(life->rng, 3);
	struct tux3_statfs stat;
	char path[SIM_PATH_MAX];
	u32 i;

	for (i = 0; i < REMAP_FILES && !life->run->life; i++) {
		snprintf(path, sizeof(path), "r%u", i);
		if (i % 2)
			make_sparse_file(life, path, 1 + rng_log(life->rng, 7));
		else
			op_on(life, SIM_CREATE, path, 0, 0);
		op_on(life, SIM_WRITE, path, 0, rng_log(life->rng, 18));
	}
	for (i = 0; full && i < 100 && !tux3_statfs(life->run->volume, &stat) && stat.available_blocks > 10; i++) {
		snprintf(path, sizeof(path), "fill-%u-%u", life->run->life, i);
		op_on(life, SIM_CREATE, path, 0, 0);
		op_on(life, SIM_WRITE, path, 0, min_t(u64, stat.available_blocks * 4096, MIB));
	}
	for (i = 0; i < 80 && !life->run->failed; i++)
		run_random_op(life->run, life->rng);
}

static const struct family families[] = {
	{ "full", "small volumes filled to the last block, deletes with syncs, filled again", full_params, full_live,
	  { .least.full = 950, MOUNT_MS } },
	{ "files", "thousands of files in several directories, renamed, linked and removed", files_params, files_live,
	  { .least.inodes = 3000, MOUNT_MS } },
	{ "log", "hundreds of small syncs without a unify", log_params, log_live, { .least.log_blocks = 400, MOUNT_MS } },
	{ "cache", "a node cache of 32 nodes, hardly any for data and names", cache_params, cache_live,
	  { .least.reads = 800, .least.inodes = 2000, MOUNT_MS } },
	{ "storm", "random changes of attributes all over the tree", storm_params, storm_live,
	  { .least.dirty_nodes = 150, MOUNT_MS } },
	{ "slices", "deletes and truncates that take many commits", slices_params, slices_live, { .least.slices = 20 } },
	{ "sparse", "volumes of many groups, allocated in full, punched and removed", sparse_params, sparse_live,
	  { .least.groups = 90, .least.full = 930, MOUNT_MS } },
	{ "slow", "a large tree, all of it dirty: the time that a mount takes on a disk", slow_params, slow_live,
	  { .least.replay_nodes = 400, MOUNT_MS } },
	{ "ahead", "fsyncs of single files, many of them on top of one commit", ahead_params, ahead_live,
	  { .least.intents = 4, MOUNT_MS } },
	{ "dirs", "new files that are synced, then their directories", dirs_params, dirs_live,
	  { .least.intents = 1, MOUNT_MS } },
	{ "saves", "files that take each other's names, synced, or their directories", dirs_params, saves_live,
	  { .least.intents = 1, .least.names = 4, MOUNT_MS } },
	{ "beside", "the same, and directories, beside commits that are under way", beside_params, beside_live,
	  { .least.intents = 1, MOUNT_MS } },
	{ "pages", "pages of databases, written whole or not at all, with fsyncs", pages_params, pages_live,
	  { .least.intents = 2, MOUNT_MS } },
	{ "quota", "users and groups at their limits, which change", quota_params, quota_live, { MOUNT_MS } },
	{ "remap", "contents of files that swap, parts of files taken out and put in", remap_params, remap_live,
	  { .least.remaps = 1, MOUNT_MS } },
};

/* ---- as a workload ---- */

u32 family_count(void)
{
	BUILD_BUG_ON(ARRAY_SIZE(families) >= SIM_KINDS);
	return ARRAY_SIZE(families);
}

const char *family_name(u32 family)
{
	return family < family_count() ? families[family].name : NULL;
}

u32 family_find(const char *name)
{
	u32 i;

	for (i = 0; i < family_count() && strcmp(families[i].name, name); i++)
		;
	return i;
}

void families_print(void)
{
	u32 i;

	for (i = 0; i < family_count(); i++)
		printf("  %-8s %s\n", families[i].name, families[i].what);
}

u32 family_of_unit(const struct sim_config *config, u64 unit, u64 *seed)
{
	*seed = unit;
	if (config->family < family_count())
		return config->family;
	*seed = config->seed + (unit - config->seed) / family_count();
	return (unit - config->seed) % family_count();
}

static void family_params(struct sim_params *params, const struct sim_config *config, u64 unit)
{
	const struct sim_reach *least;
	struct rng rng;

	params->family = family_of_unit(config, unit, &params->seed);
	least = &families[params->family].goal.least;
	rng.state = rng_hash(params->seed, 100 + params->family);
	params->block_size = 4096;
	/* Each makes an anchor. */
	params->holds = params->seed % 3 == 0 && !least->log_blocks && !least->dirty_nodes && !least->replay_nodes &&
			!least->groups;
	params->data_cache_bytes = MIB;
	params->images = 2;
	params->recoveries = 4;
	params->close_at_end = rng_one_in(&rng, 2);
	params->names = 8;
	params->bulk = NEVER;		/* what goes on after a cut may make as many as it likes */
	params->weights[SIM_CREATE] = params->weights[SIM_UNLINK] = params->weights[SIM_APPEND] = 3;
	params->weights[SIM_SETATTR] = params->weights[SIM_TRUNCATE] = params->weights[SIM_SYNC] = 2;
	params->options.manual = params->options.verify = params->options.costs = true;
	params->options.age_ms = 3600 * 1000;
	params->options.overlay_entries = NEVER;
	params->options.dirty_bytes = 64 * MIB;
	params->disk.volatile_cache = !rng_one_in(&rng, 6);
	params->disk.defer = rng_one_in(&rng, 3);
	params->disk.seed = rng_next(&rng);
	params_fsync(params, config, params->seed);
	families[params->family].params(params, &rng);
	params_remaps(params, config, params->seed);
	params->disk.size_bytes = params->volume_bytes;
	params_canary(params, config);
}

static void family_live(struct sim_run *run, struct rng *rng)
{
	struct life life = { .run = run, .params = run->params, .rng = rng };

	families[run->params->family].live(&life);
}

/* Short of space there may be no area for intents, all the time: how many were recovered is luck. */
static const struct sim_goal tight_goal = { MOUNT_MS };

static const struct sim_goal *family_goal(const struct sim_params *params)
{
	return params->tight ? &tight_goal : &families[params->family].goal;
}

const struct workload family_workload = { .params = family_params, .live = family_live, .goal = family_goal };
