/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random operations that fit the state: mostly such as succeed, on few names, so that they meet.
 */
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include "sim.h"

#define ANY_TYPE	0u
#define MAX_INODES	40u	/* beyond four times that, gone ones included, nothing is made */
#define TIGHT_WRITE	(200u << 10)

struct generator {
	const struct sim_params *params;
	const struct m_state *state;
	struct rng *rng;
	struct sim_op *op;
};

/* A path to an inode of this type. False: there is none. */
static bool pick(struct generator *gen, u32 type, char *path)
{
	const struct m_state *state = gen->state;
	u32 start = rng_below(gen->rng, state->count), i;

	for (i = 0; i < state->count; i++) {
		const struct m_inode *inode = state->inodes[(start + i) % state->count];

		if (!inode || (type && (inode->mode & S_IFMT) != type))
			continue;
		if (type == ANY_TYPE && inode->id == M_ROOT)
			continue;
		if (model_path(state, inode->id, path, SIM_PATH_MAX / 2))
			return true;
	}
	return false;
}

/* An open file's slot, or a path. */
static bool pick_file(struct generator *gen, char *path)
{
	u32 slot = rng_below(gen->rng, SIM_SLOTS), id = gen->state->slots[slot];

	if (id != M_NONE && rng_one_in(gen->rng, 3) && S_ISREG(gen->state->inodes[id]->mode)) {
		snprintf(path, SIM_PATH_MAX, "@%u", slot);
		return true;
	}
	return pick(gen, S_IFREG, path);
}

/* A name that may be there already. */
static void pick_name(struct generator *gen, char *path)
{
	char dir[SIM_PATH_MAX];
	u32 name = rng_below(gen->rng, gen->params->names);

	if (!pick(gen, S_IFDIR, dir) || strlen(dir) > SIM_PATH_MAX / 2 || rng_one_in(gen->rng, 3))
		*dir = 0;
	snprintf(path, SIM_PATH_MAX, "%.40s%s%c%s", dir, *dir ? "/" : "", 'a' + name,
		 name % 4 == 3 ? "~" : name % 3 == 2 ? "-longer-name" : "");
}

static u64 file_size(struct generator *gen, const char *path)
{
	int err;
	u32 id = model_lookup(gen->state, path, &err);

	return id == M_NONE ? 0 : gen->state->inodes[id]->size;
}

static u64 draw_len(struct generator *gen)
{
	if (gen->params->tight && rng_one_in(gen->rng, 2))
		return 1 + rng_below(gen->rng, TIGHT_WRITE);
	switch (rng_below(gen->rng, 6)) {
	case 0:
		return 1 + rng_below(gen->rng, 100);
	case 1:
		return gen->params->block_size * (1 + rng_below(gen->rng, 4));
	case 2:
		return rng_one_in(gen->rng, 4) ? rng_log(gen->rng, 17) : rng_log(gen->rng, 14);
	default:
		return rng_log(gen->rng, 13);
	}
}

static u64 draw_offset(struct generator *gen, u64 size)
{
	switch (rng_below(gen->rng, 7)) {
	case 0:
		return size;
	case 1:
		return size + rng_log(gen->rng, 15);
	case 2:
		return rng_one_in(gen->rng, 3) ? size + rng_log(gen->rng, 42) : 0;
	case 3:
		return rng_below(gen->rng, size + 1) / gen->params->block_size * gen->params->block_size;
	case 4:
		return rng_below(gen->rng, size + 1);
	default:
		return 0;
	}
}

static bool draw_data_op(struct generator *gen)
{
	static const u32 modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
		FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	};
	struct sim_op *op = gen->op;
	u64 size;

	if (!pick_file(gen, op->a))
		return false;
	size = file_size(gen, op->a);
	op->offset = draw_offset(gen, size);
	op->len = draw_len(gen);
	op->seed = rng_next(gen->rng);
	if (op->kind == SIM_WRITE && op->seed % 4 == 0 && op->offset < 1ULL << 40) {
		op->flags = SIM_ATOMIC;
		op->len = gen->params->block_size << op->seed / 4 % 4;
		op->offset -= op->offset % op->len;
	}
	if (op->kind == SIM_TRUNCATE)
		op->len = rng_one_in(gen->rng, 3) ? draw_offset(gen, size) : rng_below(gen->rng, size + 1);
	if (op->kind == SIM_FALLOCATE) {
		op->mode = modes[rng_below(gen->rng, ARRAY_SIZE(modes))];
		if (rng_one_in(gen->rng, 2))
			op->len = gen->params->block_size * (1 + rng_below(gen->rng, 6));
		if (rng_one_in(gen->rng, 2))
			op->offset -= op->offset % gen->params->block_size;
		if (gen->params->tight && !(op->mode & FALLOC_FL_PUNCH_HOLE))
			op->len = 1 + rng_below(gen->rng, 1u << 20);
	}
	return true;
}

/* Mostly such as can be done. */
static bool draw_exchange(struct generator *gen)
{
	u64 block = gen->params->block_size, size, size2;
	struct sim_op *op = gen->op;

	if (!pick_file(gen, op->a) || !pick_file(gen, op->b))
		return false;
	size = file_size(gen, op->a);
	size2 = file_size(gen, op->b);
	op->offset = rng_below(gen->rng, size / block + 1) * block;
	op->offset2 = rng_one_in(gen->rng, 2) ? op->offset : rng_below(gen->rng, size2 / block + 1) * block;
	op->flags = rng_one_in(gen->rng, 2) ? TUX3_EXCHANGE_TO_EOF : 0;
	op->flags |= rng_one_in(gen->rng, 4) ? TUX3_EXCHANGE_DSYNC : 0;
	op->flags |= rng_one_in(gen->rng, 12) ? TUX3_EXCHANGE_DRY_RUN : 0;
	if (rng_one_in(gen->rng, 4))
		op->offset = op->offset2 = 0;
	size = min(size > op->offset ? size - op->offset : 0, size2 > op->offset2 ? size2 - op->offset2 : 0);
	op->len = rng_one_in(gen->rng, 6) ? size : rng_below(gen->rng, size / block + 1) * block;
	return true;
}

static bool draw_shift(struct generator *gen)
{
	u64 block = gen->params->block_size, size;
	struct sim_op *op = gen->op;

	if (!pick_file(gen, op->a))
		return false;
	size = file_size(gen, op->a);
	op->offset = rng_below(gen->rng, size / block + 1) * block;
	op->len = block * (1 + rng_below(gen->rng, op->kind == SIM_INSERT ? 20 : max(1ULL, min(size / block, 100ULL))));
	return true;
}

static bool draw_xattr(struct generator *gen)
{
	static const char *const names[] = { "user.a", "user.bb", "trusted.c", "user.quite-long-one" };
	struct sim_op *op = gen->op;

	if (rng_one_in(gen->rng, 4) ? !pick(gen, S_IFDIR, op->a) : !pick_file(gen, op->a))
		return false;
	strcpy(op->b, names[rng_below(gen->rng, ARRAY_SIZE(names))]);
	op->len = rng_one_in(gen->rng, 8) ? rng_below(gen->rng, TUX3_XATTR_SIZE_MAX + 1) :
		  rng_one_in(gen->rng, 4) ? rng_below(gen->rng, 6000) : rng_below(gen->rng, 300);
	op->seed = rng_next(gen->rng);
	if (op->kind == SIM_SETXATTR && rng_one_in(gen->rng, 4))
		op->flags = rng_one_in(gen->rng, 2) ? XATTR_CREATE : XATTR_REPLACE;
	return true;
}

static bool draw_make(struct generator *gen)
{
	static const u32 types[] = { S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK };
	struct sim_op *op = gen->op;

	if (gen->state->count > gen->params->bulk + 4 * MAX_INODES)
		return false;
	pick_name(gen, op->a);
	op->mode = rng_below(gen->rng, 01000);
	if (op->kind == SIM_MKNOD) {
		op->mode |= types[rng_below(gen->rng, ARRAY_SIZE(types))];
		if (S_ISCHR(op->mode) || S_ISBLK(op->mode)) {
			op->major = rng_below(gen->rng, 4096);
			op->minor = rng_below(gen->rng, 1 << 20);
		}
	}
	if (op->kind == SIM_SYMLINK)
		snprintf(op->b, sizeof(op->b), "%.*s", (int)(1 + rng_below(gen->rng, 50)),
			 "../somewhere/else/that/may/or/may/not/be/there/at/all/x");
	return true;
}

static bool draw_rename(struct generator *gen)
{
	static const u32 flags[] = { 0, 0, 0, TUX3_RENAME_NOREPLACE, TUX3_RENAME_EXCHANGE, TUX3_RENAME_EXCHANGE,
				     TUX3_RENAME_WHITEOUT, TUX3_RENAME_WHITEOUT | TUX3_RENAME_NOREPLACE };
	struct sim_op *op = gen->op;

	op->flags = flags[rng_below(gen->rng, ARRAY_SIZE(flags))];
	if (!pick(gen, ANY_TYPE, op->a))
		return false;
	if (rng_one_in(gen->rng, 2) && pick(gen, ANY_TYPE, op->b))
		return true;
	pick_name(gen, op->b);
	return true;
}

static bool draw_unlink(struct generator *gen)
{
	char *path = gen->op->a;
	int err;
	u32 id;

	if (gen->op->kind == SIM_RMDIR)
		return pick(gen, S_IFDIR, path) && *path;
	if (!pick(gen, ANY_TYPE, path))
		return false;
	id = model_lookup(gen->state, path, &err);
	return !S_ISDIR(gen->state->inodes[id]->mode) || rng_one_in(gen->rng, 8);
}

static bool draw_setattr(struct generator *gen)
{
	struct sim_op *op = gen->op;

	op->flags = 1 + rng_below(gen->rng, TUX3_SET_MODE | TUX3_SET_UID | TUX3_SET_GID);
	if (rng_one_in(gen->rng, 3))
		op->flags |= TUX3_SET_MTIME;
	op->mode = rng_below(gen->rng, 01000);
	op->uid = rng_one_in(gen->rng, 4) ? rng_next(gen->rng) % 0xfffffffe : rng_below(gen->rng, 4);
	op->gid = rng_below(gen->rng, 4);
	if (gen->params->weights[SIM_QUOTA])
		op->uid %= SIM_QUOTA_IDS;
	op->mtime = rng_next(gen->rng) % (1ULL << 62);
	return rng_one_in(gen->rng, 3) ? pick(gen, S_IFDIR, op->a) : pick(gen, ANY_TYPE, op->a);
}

/* Mostly tight. */
static bool draw_quota(struct generator *gen)
{
	struct m_limits *limits = &gen->op->limits;

	gen->op->flags = rng_below(gen->rng, SIM_QUOTA_TYPES);
	gen->op->uid = 1 + rng_below(gen->rng, SIM_QUOTA_IDS - 1);
	*limits = (struct m_limits){};
	if (!rng_one_in(gen->rng, 4))
		limits->hard = rng_log(gen->rng, 7);
	if (rng_one_in(gen->rng, 4))
		limits->soft = rng_log(gen->rng, 5);
	if (rng_one_in(gen->rng, 2))
		limits->inodes = rng_below(gen->rng, 5);
	return true;
}

/* Fill in the operands for the kind; false: it does not fit now. */
static bool draw_operands(struct generator *gen)
{
	struct sim_op *op = gen->op;

	switch (op->kind) {
	case SIM_CREATE:
	case SIM_MKDIR:
	case SIM_MKNOD:
	case SIM_SYMLINK:
		return draw_make(gen);
	case SIM_LINK:
		pick_name(gen, op->b);
		return pick_file(gen, op->a);
	case SIM_UNLINK:
	case SIM_RMDIR:
		return draw_unlink(gen);
	case SIM_RENAME:
		return draw_rename(gen);
	case SIM_SETATTR:
		return draw_setattr(gen);
	case SIM_EXCHANGE:
		return draw_exchange(gen);
	case SIM_COLLAPSE:
	case SIM_INSERT:
		return draw_shift(gen);
	case SIM_SETXATTR:
	case SIM_REMOVEXATTR:
		return draw_xattr(gen);
	case SIM_OPEN:
		op->flags = rng_below(gen->rng, SIM_SLOTS);
		return pick(gen, S_IFREG, op->a);
	case SIM_CLOSE:
		op->flags = rng_below(gen->rng, SIM_SLOTS);
		return true;
	case SIM_TMPFILE:
		op->flags = rng_below(gen->rng, SIM_SLOTS);
		op->mode = rng_below(gen->rng, 01000);
		return pick(gen, S_IFDIR, op->a);
	case SIM_FSYNC:
	case SIM_FDATASYNC:
		return rng_one_in(gen->rng, 4) ? pick(gen, S_IFDIR, op->a) : pick_file(gen, op->a);
	case SIM_SYNC:
	case SIM_QUOTA:
		return draw_quota(gen);
	case SIM_COMPARE:
	case SIM_NONE:
		return true;
	default:
		return draw_data_op(gen);
	}
}

static enum sim_op_kind draw_kind(const struct sim_params *params, struct rng *rng)
{
	u32 total = 0, i, at;

	for (i = 0; i < SIM_OP_KINDS; i++)
		total += params->weights[i];
	at = rng_below(rng, total);
	for (i = 0; i < SIM_OP_KINDS - 1 && at >= params->weights[i]; i++)
		at -= params->weights[i];
	return i;
}

void generate_op(const struct sim_params *params, const struct m_state *state, struct rng *rng, struct sim_op *op)
{
	struct generator gen = { params, state, rng, op };
	u32 tries;

	for (tries = 0; tries < 20; tries++) {
		memset(op, 0, sizeof(*op));
		op->kind = draw_kind(params, rng);
		if (draw_operands(&gen))
			return;
	}
	memset(op, 0, sizeof(*op));
	op->kind = SIM_SYNC;
}
