/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The random workload: one seed, and its operations. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "sim.h"

static void prepare_op(struct sim_run *run, enum sim_op_kind kind, const char *path, u64 len)
{
	struct sim_op op = { .kind = kind, .len = len, .seed = len };

	if (run->failed || run->broken)
		return;
	if (kind == SIM_CREATE || kind == SIM_MKDIR)
		op.mode = 0700;
	snprintf(op.a, sizeof(op.a), "%s", path);
	run_op(run, &op);
}

void run_prepare(struct sim_run *run)
{
	const struct sim_params *params = run->params;
	char path[SIM_PATH_MAX];
	u32 i;

	if (!params->bulk && !params->fill)
		return;
	for (i = 0; i < params->bulk; i++) {
		snprintf(path, sizeof(path), "%s%u-file", i % 3 ? "" : "a-much-longer-name-than-that-of-others-", i);
		prepare_op(run, i % 40 == 39 ? SIM_MKDIR : SIM_CREATE, path, 0);
		if (i % 40 != 39 && i % 4 == 0)
			prepare_op(run, SIM_WRITE, path, 10 + 40 * i);
	}
	for (i = 0; i < params->fill; i += 200) {
		snprintf(path, sizeof(path), "fill-%u", i / 200);
		prepare_op(run, SIM_CREATE, path, 0);
		prepare_op(run, SIM_FALLOCATE, path, 200 << 10);
	}
	prepare_op(run, SIM_SYNC, "", 0);
	if (run->failed)
		return;
	disk_begin_trace(run->disk);
	run_begin(run, run->state, tux3_committed(run->volume));
}

void run_first_ahead(struct sim_run *run)
{
	if (!run->params->ahead)
		return;
	prepare_op(run, SIM_CREATE, "first", 0);
	prepare_op(run, SIM_APPEND, "first", 10);
	prepare_op(run, SIM_FSYNC, "first", 0);
}

/* Was it a change of a regular file? */
static bool changed_file(const struct sim_run *run, const struct sim_op *op)
{
	u32 id;
	int err;

	if (op->kind != SIM_CREATE && op->kind != SIM_WRITE && op->kind != SIM_APPEND && op->kind != SIM_SETATTR &&
	    op->kind != SIM_TRUNCATE)
		return false;
	id = model_lookup(run->state, op->a, &err);
	return id != M_NONE && S_ISREG(run->state->inodes[id]->mode);
}

void run_random_op(struct sim_run *run, struct rng *rng)
{
	struct sim_op op;

	generate_op(run->params, run->state, rng, &op);
	run_op(run, &op);
	if (!run->params->ahead || run->failed || run->broken || !changed_file(run, &op) || rng_one_in(rng, 3))
		return;
	op.kind = rng_one_in(rng, 3) ? SIM_FDATASYNC : SIM_FSYNC;
	run_op(run, &op);
}

static void random_live(struct sim_run *run, struct rng *rng)
{
	u32 i;

	run_prepare(run);
	run_first_ahead(run);
	for (i = 0; i < run->params->ops && !run->failed; i++)
		run_random_op(run, rng);
}

const struct workload random_workload = { .params = params_draw, .live = random_live };
