/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The random workload: one seed, its operations, and a cut after every write of it. */
#include <string.h>
#include "clock.h"
#include "sim.h"

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
