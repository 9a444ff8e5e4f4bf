/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The disk fails, or memory runs out, at the nth call: for every n of a short workload.
 *
 * Whatever happens, nothing crashes; a call that failed has done its work or nothing of it; what was
 * acknowledged stays; and with a healthy disk the volume mounts and is clean.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "clock.h"
#include "fault.h"
#include "sim.h"

#define FAULT_OPS	10u	/* in a workload */
#define FAULT_CUTS	4u	/* of what is left */

enum fault_kind { FAULT_NONE, FAULT_READ, FAULT_WRITE, FAULT_FLUSH, FAULT_ALLOC };

struct fault {
	enum fault_kind kind;
	u64 nth;
	bool sticky;		/* and all that follow */
};

struct fault_counts {
	u64 reads, writes, flushes, allocs;
};

static void fault_params(struct sim_params *params, const struct sim_config *config, u64 seed)
{
	params_draw(params, config, seed);
	params->ops = config->ops ? config->ops : FAULT_OPS;
	params->tight = false;
	params->weights[SIM_COMPARE] = 0;
	/* Small caches, so that there is something to read. */
	params->options.cache_bytes = 4096;
	params->options.names_cached = 1;
	params->data_cache_bytes = 4096;
}

static void fault_begin(struct sim_disk *disk, const struct fault *fault)
{
	struct disk_faults faults = { .sticky = fault->sticky };

	switch (fault->kind) {
	case FAULT_READ:
		faults.read_at = fault->nth;
		break;
	case FAULT_WRITE:
		faults.write_at = fault->nth;
		break;
	case FAULT_FLUSH:
		faults.flush_at = fault->nth;
		break;
	case FAULT_ALLOC:
		env_fail_alloc_at(fault->sticky ? -(long)fault->nth : (long)fault->nth);
		break;
	case FAULT_NONE:
		break;
	}
	disk_set_faults(disk, &faults);
}

void fault_end(struct sim_disk *disk)
{
	env_fail_alloc_at(0);
	disk_set_faults(disk, NULL);
}

void fault_pause(struct sim_run *run, bool on)
{
	if (run->faulty) {
		disk_pause_faults(run->disk, on);
		env_fail_alloc_pause(on);
	}
}

/* The operations, until the volume has given up. */
static void fault_ops(struct sim_run *run, u64 seed)
{
	struct rng rng = { rng_hash(seed, 2) };
	u32 i;

	run_first_ahead(run);
	for (i = 0; i < run->params->ops && !run->failed && !run->broken && !run->lost_delta; i++)
		run_random_op(run, &rng);
}

/*
 * Before the fault: half of the time there is something on the disk, of which a part is in the log only, so that
 * mounting has to read and replay.  Returns its delta, 0: an empty volume.
 */
static u64 fault_prepare(struct sim_run *run, u64 seed)
{
	struct sim_op sync = { .kind = SIM_SYNC };
	struct rng rng = { rng_hash(seed, 5) };
	struct sim_op op;
	u64 delta;
	u32 i;

	if (rng_one_in(&rng, 2) || run_open(run, false))
		return 0;
	run_begin(run, run->state, tux3_committed(run->volume));
	run_prepare(run);
	for (i = 0; i < FAULT_OPS && !run->failed; i++) {
		generate_op(run->params, run->state, &rng, &op);
		run_op(run, &op);
	}
	if (!run->failed)
		run_op(run, &sync);
	run_abandon(run);
	/* Deltas without a change are not on the disk: ask what is. */
	if (run->failed || run_open(run, true))
		return 0;
	delta = tux3_committed(run->volume);
	run_abandon(run);
	return delta;
}

/* One workload with one fault.  counts: how often it could have been. */
static bool fault_run(const struct sim_config *config, struct sim_totals *totals, u64 seed, const struct fault *fault,
		      struct fault_counts *counts)
{
	static const char *const names[] = { "no", "read", "write", "flush", "allocation" };
	struct sim_config cuts = *config;
	struct sim_params params;
	struct sim_disk disk;
	struct sim_run run;
	long allocs;
	u64 delta;
	bool passed;
	char where[80];

	snprintf(where, sizeof(where), "%s error at %llu%s", names[fault->kind], fault->nth,
		 fault->sticky ? " and from there on" : "");
	sim_log_clear();
	env_set_random_seed(seed | 1ULL << 63);
	fault_params(&params, config, seed);
	cuts.cuts = FAULT_CUTS;
	cuts.only_cut = cuts.only_image = -1;
	disk_init(&disk, &params.disk);
	run_init(&run, &cuts, totals, &params, &disk);
	run.where = where;
	if (run_format(&run))
		goto out;
	delta = fault_prepare(&run, seed);
	disk_begin_trace(&disk);
	if (run.failed)
		goto out;
	run.faulty = fault->kind != FAULT_NONE;
	fault_begin(&disk, fault);
	allocs = env_alloc_count();
	if (!run_open(&run, false)) {
		run_begin(&run, run.state, delta ? delta : tux3_committed(run.volume));
		fault_ops(&run, seed);
		if (run.failed || !params.close_at_end)
			run_abandon(&run);
		else
			run_close(&run);
	} else {
		run_begin(&run, run.state, 0);
	}
	if (counts)
		*counts = (struct fault_counts){ disk.reads_seen, disk.writes_seen, disk.flushes_seen,
						 env_alloc_count() - allocs };
	fault_end(&disk);
	run.faulty = false;
	if (!run.failed)
		crash_all(&run, 1);
out:
	totals->faults += fault->kind != FAULT_NONE;
	passed = !run.failed;
	fault_end(&disk);
	run_exit(&run);
	disk_exit(&disk);
	return passed;
}

/* No fault, to count; then one at each of the n places, alone or with all that follow. */
static bool fault_series(const struct sim_config *config, struct sim_totals *totals, u64 seed, enum fault_kind kind,
			 u64 count, u64 *nth)
{
	struct fault fault = { .kind = kind };
	u64 i;

	for (i = 1; i <= count; i++, ++*nth) {
		if (config->only_nth >= 0 && config->only_nth != *nth)
			continue;
		jobs_at_nth(*nth);
		jobs_watchdog();
		fault.nth = i;
		fault.sticky = rng_hash(seed, *nth) % 4 == 0;
		if (!fault_run(config, totals, seed, &fault, NULL))
			return false;
	}
	return true;
}

bool io_errors_unit(const struct sim_config *config, struct sim_totals *totals, u64 seed)
{
	const struct fault none = { .kind = FAULT_NONE };
	struct fault_counts counts = { 0 };
	u64 nth = 1;

	return fault_run(config, totals, seed, &none, &counts) &&
	       fault_series(config, totals, seed, FAULT_READ, counts.reads, &nth) &&
	       fault_series(config, totals, seed, FAULT_WRITE, counts.writes, &nth) &&
	       fault_series(config, totals, seed, FAULT_FLUSH, counts.flushes, &nth);
}

bool alloc_errors_unit(const struct sim_config *config, struct sim_totals *totals, u64 seed)
{
	const struct fault none = { .kind = FAULT_NONE };
	struct fault_counts counts = { 0 };
	u64 nth = 1;

	return fault_run(config, totals, seed, &none, &counts) &&
	       fault_series(config, totals, seed, FAULT_ALLOC, counts.allocs, &nth);
}
