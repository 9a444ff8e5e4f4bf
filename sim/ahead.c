/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fsyncs that went ahead of their delta (core/intent/intent.h), as the oracle sees them.
 *
 * Each is noted with the state at that moment, and what it stands for is the one inode as it is there.  After a crash the
 * volume holds a delta, the base, and on top of it the first so many of those that came in newer deltas: at least all that
 * had returned by then.  A delta that was committed contains those of its number and of smaller ones: they do not
 * count any more.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "sim.h"

#define UNSURE_MAX 5u	/* of those that failed, so many may be there or not */

u64 run_fsyncs_ahead(struct sim_run *run)
{
	return delta_counter(tux3_core(run->volume), TUX3_COUNT_FSYNCS_AHEAD);
}

void run_forget_aheads(struct sim_run *run)
{
	u32 i;

	for (i = 0; i < run->ahead_count; i++) {
		model_put(run->aheads[i].state);
		free(run->aheads[i].closure);
	}
	run->ahead_count = 0;
}

/*
 * Those that a crash can leave now: on the newest delta on the disk, and on the one under way, with all that went ahead.  The last
 * one of these may have been under way when the one that we ask for was captured.
 */
static u32 find_bases(const struct sim_run *run, struct m_state **bases)
{
	u32 beside = !!run_beside_delta(run), from = run->boundary_count - 1 - beside, count = 0, i, k, less;

	for (i = from; i < run->boundary_count; i++) {
		const struct boundary *boundary = &run->boundaries[i];
		struct ahead_range range;
		const char *why;
		u64 delta;

		aheads_find(run, boundary->delta, U64_MAX, &range);
		for (k = 0; k < boundary->count; k++) {
			for (less = 0; less <= (run->flew && range.issued); less++) {
				bases[count] = model_snapshot(boundary->states[k]);
				if (aheads_put(run, &range, range.issued - less, 0, bases[count], &delta, &why))
					count++;
				else
					model_put(bases[count]);
			}
		}
	}
	return count;
}

static struct m_closure *find_closure(const struct sim_run *run, u32 id)
{
	struct m_closure *closure = calloc(1, sizeof(*closure));
	struct m_state *bases[M_BASES];
	u32 count = find_bases(run, bases), i;

	if (!closure)
		abort();
	if (count)
		model_find_closure(bases, count, run->state, id, closure);
	for (i = 0; i < count; i++)
		model_put(bases[i]);
	return closure;
}

/* Of what is an fsync ahead?  M_NONE, told: of nothing that can be. */
static u32 find_subject(struct sim_run *run, const struct sim_op *op, bool sure)
{
	int err;
	u32 id = model_lookup(run->state, op->a, &err);

	if (id != M_NONE && (S_ISREG(run->state->inodes[id]->mode) || S_ISDIR(run->state->inodes[id]->mode)))
		return id;
	if (sure)
		sim_fail(run, "fsync of \"%s\", which is no regular file or directory, went ahead of its delta", op->a);
	return M_NONE;
}

static void add_ahead(struct sim_run *run, const struct ahead *ahead)
{
	run->totals->ahead += ahead->sure;
	run->aheads = realloc(run->aheads, (run->ahead_count + 1) * sizeof(*ahead));
	if (!run->aheads)
		abort();
	run->aheads[run->ahead_count] = *ahead;
	run->aheads[run->ahead_count++].at = run->disk->now;
}

static bool make_ahead(struct sim_run *run, const struct sim_op *op, u64 delta, bool sure, struct ahead *ahead)
{
	u32 id = find_subject(run, op, sure);

	if (id == M_NONE)
		return false;
	*ahead = (struct ahead){ .delta = delta, .id = id, .sure = sure, .state = model_snapshot(run->state) };
	if (sure && (run_beside_delta(run) || run->flew))
		ahead->closure = find_closure(run, id);
	return true;
}

void run_note_ahead(struct sim_run *run, const struct sim_op *op, u64 delta, bool sure)
{
	struct ahead ahead;

	if (make_ahead(run, op, delta, sure, &ahead))
		add_ahead(run, &ahead);
}

void run_hold_ahead(struct sim_run *run, const struct sim_op *op, u64 delta)
{
	if (!make_ahead(run, op, delta, true, &run->held_ahead))
		run->held_ahead.state = NULL;
}

void run_note_held_ahead(struct sim_run *run)
{
	if (run->held_ahead.state)
		add_ahead(run, &run->held_ahead);
	run->held_ahead.state = NULL;
}

bool run_was_ahead(const struct sim_run *run, u32 id)
{
	u32 i = run->ahead_count;

	while (i-- > 0)
		if (run->aheads[i].id == id && run->aheads[i].sure)
			return run->aheads[i].state->inodes[id] == run->state->inodes[id];
	return false;
}

/* Would a crash now leave the directory as it is, by what went ahead on top of the newest delta on the disk? */
bool run_dir_is_ahead(const struct sim_run *run, u32 id, const struct boundary *boundary)
{
	struct ahead_range range;
	bool same = true;
	u32 i;

	if (!S_ISDIR(run->state->inodes[id]->mode))
		return false;
	aheads_find(run, boundary->delta, U64_MAX, &range);
	for (i = 0; i < boundary->count && same; i++) {
		struct m_state *state = model_snapshot(boundary->states[i]);
		const char *why;
		u64 delta;

		same = aheads_put(run, &range, range.issued, 0, state, &delta, &why) && model_same_dir(state, run->state, id);
		model_put(state);
	}
	return same;
}

void aheads_find(const struct sim_run *run, u64 above, u64 acked_at, struct ahead_range *range)
{
	u32 i;

	memset(range, 0, sizeof(*range));
	range->first = run->ahead_count;
	for (i = 0; i < run->ahead_count; i++) {
		const struct ahead *ahead = &run->aheads[i];

		if (ahead->delta <= above)
			continue;
		range->first = min(range->first, i);
		range->issued++;
		range->unsure += !ahead->sure;
		range->due += ahead->sure && ahead->at <= acked_at;
	}
}

u32 aheads_ways(const struct ahead_range *range)
{
	return 1u << min(range->unsure, UNSURE_MAX);
}

bool aheads_put(const struct sim_run *run, const struct ahead_range *range, u32 count, u32 way, struct m_state *state,
		u64 *delta, const char **why)
{
	u32 unsure = 0, i;

	*why = NULL;
	for (i = range->first; i < range->first + range->issued && count; i++) {
		const struct ahead *ahead = &run->aheads[i];

		if (!ahead->sure && way & 1u << min(unsure++, UNSURE_MAX))
			continue;
		*why = model_put_ahead(state, ahead->state, ahead->id, ahead->closure);
		if (*why)
			return false;
		*delta = ahead->delta;
		count--;
	}
	if (count)
		*why = "there are not so many";
	return !count;
}
