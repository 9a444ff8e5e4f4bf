/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Holds (core/scrub/hold.h) in the life of a volume: taken, looked at and let go between any two operations of some runs.  What
 * is held is whole, and what it was when the hold was taken; and the volume is what it would be without.
 */
#include <stdlib.h>
#include <string.h>
#include "core/check/check.h"
#include "core/open.h"
#include "core/scrub/hold.h"
#include "device_view.h"
#include "sim.h"

#define HOLD_TAKES	24u	/* between so many operations one is taken */
#define HOLD_LOOKS	12u
#define HOLD_ENDS	40u

/* What is held, by the checker.  false: it failed. */
static bool hold_look(struct sim_run *run, struct check_result *result)
{
	struct volume_options opts = run->params->options;
	struct difference problems = { .count = 0 };
	struct check_options check = { .problem = note_problem, .ctx = &problems };
	struct tux3_device *view = device_view_create(&run->disk->dev);
	u64 passes = run->disk->read_passes;
	struct volume *vol;
	char why[256] = "";
	int err;

	if (!view)
		abort();
	memset(result, 0, sizeof(*result));
	opts.read_only = opts.no_recovery = opts.manual = true;
	opts.anchor = (const struct disk_anchor *)run->hold.anchor;
	err = volume_open(view, NULL, &opts, &vol, why, sizeof(why));
	if (!err) {
		err = volume_check(vol, &check, result);
		volume_close(vol);
	}
	view->ops->close(view);
	run->disk->read_passes = passes;
	run->totals->checks++;
	if (err)
		sim_fail(run, "what is held cannot be checked: %s %d", why, err);
	else if (result->problems)
		sim_fail(run, "the checker found %llu problems in what is held\n%s", result->problems, problems.text);
	return !run->failed;
}

static int hold_call(struct sim_run *run, u32 op)
{
	run->hold.op = op;
	return volume_hold(tux3_core(run->volume), &run->hold);
}

static void hold_take(struct sim_run *run)
{
	u64 committed = tux3_committed(run->volume);
	int err;

	memset(&run->hold, 0, sizeof(run->hold));
	err = hold_call(run, TUX3_HOLD_TAKE);
	run_note_deltas(run, committed, run->state, NULL);
	if (err)
		sim_fail(run, "nothing can be held: %d", err);
	else if (hold_look(run, &run->held))
		run->holding = true;
}

static void hold_check(struct sim_run *run)
{
	struct check_result now;

	if (hold_call(run, TUX3_HOLD_RENEW)) {		/* want of space */
		run->holding = false;
		return;
	}
	if (hold_look(run, &now) && (now.inodes != run->held.inodes || now.names != run->held.names ||
				     now.nodes != run->held.nodes || now.items != run->held.items))
		sim_fail(run, "%llu inodes, %llu names, %llu nodes and %llu items are held, and there were %llu, %llu, %llu and %llu",
			 now.inodes, now.names, now.nodes, now.items, run->held.inodes, run->held.names, run->held.nodes,
			 run->held.items);
}

/* If it was over before, that does no harm. */
static void hold_release(struct sim_run *run)
{
	hold_call(run, TUX3_HOLD_RELEASE);
	run->holding = false;
}

void run_hold(struct sim_run *run)
{
	u64 chance = rng_hash(rng_hash(run->params->seed, run->life), run->op_index);

	if (run->threaded || run->faulty || run->broken || run->failed || run->config->canary != CANARY_NONE ||
	    !run->boundary_count || !run->params->holds || volume_error(tux3_core(run->volume)) ||
	    tux3_core(run->volume)->read_only)
		return;
	if (!run->holding && chance % HOLD_TAKES == 0)
		hold_take(run);
	else if (run->holding && chance % HOLD_LOOKS == 0)
		hold_check(run);
	else if (run->holding && chance % HOLD_ENDS == 1)
		hold_release(run);
}
