/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The random workload: one seed, its operations, and a cut after every write of it. */
#include <stdio.h>
#include <string.h>
#include "clock.h"
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

bool random_unit(const struct sim_config *config, struct sim_totals *totals, u64 seed)
{
	struct sim_params params;
	struct sim_disk disk;
	struct sim_run run;
	struct sim_op op;
	struct rng rng = { rng_hash(seed, 1) };
	bool passed;
	u32 i;

	sim_log_clear();
	env_set_random_seed(seed | 1ULL << 63);
	params_draw(&params, config, seed);
	disk_init(&disk, &params.disk);
	run_init(&run, config, totals, &params, &disk);
	if (run_format(&run))
		goto out;
	disk_begin_trace(&disk);
	if (run_open(&run, false))
		goto out;
	run_begin(&run, run.state, tux3_committed(run.volume));
	run_prepare(&run);
	for (i = 0; i < params.ops && !run.failed; i++) {
		generate_op(&params, run.state, &rng, &op);
		run_op(&run, &op);
	}
	if (!run.failed)
		run_compare(&run, run.state, "at the end");
	if (run.failed || !params.close_at_end)
		run_abandon(&run);
	else
		run_close(&run);
	if (config->show_trace)
		disk_print_trace(&disk, 0);
	if (!run.failed)
		crash_all(&run, 1);
out:
	passed = !run.failed;
	run_exit(&run);
	disk_exit(&disk);
	return passed;
}
