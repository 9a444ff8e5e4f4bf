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
#include "families.h"

#define WATCH_OPS	64u

struct family {
	const char *name, *what;
	void (*params)(struct sim_params *params, struct rng *rng);
	void (*live)(struct life *life);
	struct sim_goal goal;
};

/* ---- operations ---- */

s64 make_op(struct life *life, const struct sim_op *op)
{
	if (life->run->failed)
		return -ECANCELED;
	if (!(life->ops++ % WATCH_OPS))
		jobs_watchdog();
	run_op(life->run, op);
	return life->run->failed ? -ECANCELED : life->run->result;
}

s64 op_on(struct life *life, enum sim_op_kind kind, const char *path, u64 offset, u64 len)
{
	struct sim_op op = { .kind = kind, .offset = offset, .len = len, .seed = rng_next(life->rng) };

	if (kind == SIM_CREATE || kind == SIM_MKDIR)
		op.mode = 0700 + rng_below(life->rng, 0100);
	snprintf(op.a, sizeof(op.a), "%s", path);
	return make_op(life, &op);
}

void sync_all(struct life *life)
{
	op_on(life, SIM_SYNC, "", 0, 0);
}

void set_attr(struct life *life, const char *path)
{
	struct sim_op op = { .kind = SIM_SETATTR, .flags = TUX3_SET_MODE | TUX3_SET_UID, .uid = rng_below(life->rng, 1000),
			     .mode = rng_below(life->rng, 01000) };

	snprintf(op.a, sizeof(op.a), "%s", path);
	make_op(life, &op);
}

void make_dirs(struct life *life, u32 count)
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

/* ---- coarse: large blocks, so that few leaves have much; what splits them is small beside that ---- */

#define COARSE_LARGE "large"

static void coarse_params(struct sim_params *params, struct rng *rng)
{
	params->block_size = 8192u << rng_below(rng, 4);
	params->volume_bytes = (u64)(1024 + rng_below(rng, 200)) * params->block_size;
	params->no_csum = rng_one_in(rng, 4);
	params->lives = 3;
	params->cuts = 4;
}

static u64 coarse_size(struct life *life)
{
	const struct m_state *state = life->run->state;
	int err;
	u32 id = model_lookup(state, COARSE_LARGE, &err);

	return id == M_NONE ? 0 : state->inodes[id]->size;
}

/* Until nothing is left, and then up to four blocks less. */
static void coarse_fill(struct life *life)
{
	u32 block = life->params->block_size, less = rng_below(life->rng, 5) * block;
	u64 piece = MIB;

	op_on(life, SIM_CREATE, COARSE_LARGE, 0, 0);
	while (piece >= block && !life->run->failed)
		if (op_on(life, SIM_WRITE, COARSE_LARGE, coarse_size(life) / block * block, piece) != (s64)piece)
			piece = piece > block ? block : 0;
	op_on(life, SIM_TRUNCATE, COARSE_LARGE, 0, coarse_size(life) - min_t(u64, coarse_size(life), less));
	sync_all(life);
}

static void coarse_split(struct life *life, const struct files *files)
{
	struct sim_op op = { .kind = SIM_SETXATTR };
	u32 count = 1 + rng_below(life->rng, 12);

	while (count-- && files->count) {
		op.len = rng_below(life->rng, TUX3_XATTR_INLINE_MAX);
		op.seed = rng_next(life->rng);
		snprintf(op.a, sizeof(op.a), "%s", files->path[rng_below(life->rng, files->count)]);
		snprintf(op.b, sizeof(op.b), "user.%u", (u32)rng_below(life->rng, 3));
		if (make_op(life, &op))
			break;
	}
	sync_all(life);
}

static void coarse_live(struct life *life)
{
	u32 count = 300 + rng_below(life->rng, 1500), rounds = 12, i;
	struct files files;

	if (!life->run->life) {
		make_dirs(life, 4);
		for (i = 0; i < count; i++)
			if (!make_file(life, 4, i, 0))
				break;
	}
	files = files_list(life);
	while (rounds-- && !life->run->failed) {
		coarse_fill(life);
		coarse_split(life, &files);
		if (files.count)
			set_attr(life, files.path[rng_below(life->rng, files.count)]);
	}
	if (life->run->life)
		delete_files(life, &files, 0, files.count / 2, 1 + rng_below(life->rng, 100));
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

/* New ones come last: what follows from a seed depends on the place. */
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
	{ "trees", "the same in directories that are new", beside_params, trees_live,
	  { .least.intents = 1, .least.dirs = 1, MOUNT_MS } },
	{ "pages", "pages of databases, written whole or not at all, with fsyncs", pages_params, pages_live,
	  { .least.intents = 2, MOUNT_MS } },
	{ "quota", "users and groups at their limits, which change", quota_params, quota_live, { MOUNT_MS } },
	{ "remap", "contents of files that swap, parts of files taken out and put in", remap_params, remap_live,
	  { .least.remaps = 1, MOUNT_MS } },
	{ "bad", "files of which leaves and data turn bad for reads, for ever or not", bad_params, bad_live,
	  { .least.bad = 1 } },
	{ "early", "large files that are synced, changed in all ways, and synced again", early_params, early_live,
	  { .least.early = 1, MOUNT_MS } },
	{ "coarse", "full volumes of large blocks, whose few leaves split", coarse_params, coarse_live, { .least.full = 850, MOUNT_MS } },
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
