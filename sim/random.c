/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The random workload: one seed, and its operations. */
#include <stdio.h>
#include <string.h>
#include "sim.h"

static void prepare_op(struct sim_run *run, enum sim_op_kind kind, const char *path, u64 len)
{
	struct sim_op op = { .kind = kind, .len = len, .seed = len };

	if (run->failed)
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

static void random_live(struct sim_run *run, struct rng *rng)
{
	struct sim_op op;
	u32 i;

	run_prepare(run);
	for (i = 0; i < run->params->ops && !run->failed; i++) {
		generate_op(run->params, run->state, rng, &op);
		run_op(run, &op);
	}
}

const struct workload random_workload = { .params = params_draw, .live = random_live };
