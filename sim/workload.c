/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The life of a workload, of whatever kind: a volume is made and opened, used, closed or abandoned, and the power cut in
 * what it wrote.  One with several lives goes on from what one of these cuts left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "sim.h"

static const struct workload *workload_of(const struct sim_config *config)
{
	switch (config->mode) {
	case MODE_EXHAUSTIVE:
		return &exhaustive_workload;
	case MODE_FAMILY:
		return &family_workload;
	default:
		return &random_workload;
	}
}

/* With the volume open; it is closed or abandoned afterwards, and the cuts are made. */
static void live(struct sim_run *run, const struct workload *workload, struct rng *rng)
{
	const struct sim_config *config = run->config;
	bool close = run->params->close_at_end && !(run->params->abandon_last && run->life + 1 == run->params->lives);

	workload->live(run, rng);
	if (!run->failed)
		run_compare(run, run->state, "at the end");
	if (run->failed || !close)
		run_abandon(run);
	else
		run_close(run);
	if (config->show_trace)
		disk_print_trace(run->disk, 0);
	if (!run->failed)
		crash_all(run, 1);
}

static void live_on(struct sim_run *run, const struct workload *workload, struct rng *rng, struct sim_disk *disks)
{
	live(run, workload, rng);
	while (!run->failed && run->life + 1 < run->params->lives) {
		run->life++;
		crash_go_on(run, &disks[run->life], rng);
		if (!run->failed)
			live(run, workload, rng);
	}
}

bool workload_unit(const struct sim_config *config, struct sim_totals *totals, u64 unit)
{
	const struct workload *workload = workload_of(config);
	struct sim_params params;
	struct sim_disk *disks;
	struct sim_run run;
	struct rng rng;
	u32 i;

	sim_log_clear();
	memset(&params, 0, sizeof(params));
	workload->params(&params, config, unit);
	env_set_random_seed(params.seed | 1ULL << 63);
	rng.state = rng_hash(params.seed, 1);
	disks = calloc(params.lives, sizeof(*disks));
	if (!disks)
		abort();
	disk_init(&disks[0], &params.disk);
	run_init(&run, config, totals, &params, &disks[0]);
	if (!run_format(&run)) {
		disk_begin_trace(&disks[0]);
		if (!run_open(&run, false)) {
			run_begin(&run, run.state, tux3_committed(run.volume));
			live_on(&run, workload, &rng, disks);
		}
	}
	if (!run.failed)
		jobs_at(-1, -1);
	if (!run.failed && workload->goal && config->only_cut < 0)
		reach_check(&run, workload->goal(&params));
	reach_merge(&totals->reach[params.family], &run.reach);
	run_exit(&run);
	for (i = run.life + 1; i-- > 0;)
		disk_exit(&disks[i]);
	free(disks);
	return !run.failed;
}
