/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A volume on a modelled disk beside the oracle: opening, closing, which states each delta may have,
 * what was acknowledged, and messages.
 *
 * The volume runs in manual mode, so that commits happen inside library calls, in this thread.  When a
 * call commits a delta, the operation's own changes may be in it or not (it entered before or
 * after): both states are allowed for that delta.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/falloc.h>
#include "core/check/check.h"
#include "core/scrub/scrub.h"
#include "core/mkfs.h"
#include "clock.h"
#include "fault.h"
#include "log.h"
#include "sim.h"

__thread u64 sim_now;

/* ---- messages ---- */

#define LOG_LINES 24

static struct {
	pthread_mutex_t mutex;
	char lines[LOG_LINES][240];
	u32 count;
	bool inconsistent, verbose;
} sim_log = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static void sim_log_line(int level, const char *message)
{
	pthread_mutex_lock(&sim_log.mutex);
	snprintf(sim_log.lines[sim_log.count++ % LOG_LINES], sizeof(sim_log.lines[0]), "%s", message);
	if (strstr(message, "internal inconsistency"))
		sim_log.inconsistent = true;
	if (sim_log.verbose)
		printf("    volume: %s\n", message);
	pthread_mutex_unlock(&sim_log.mutex);
}

static u64 sim_clock(void)
{
	return sim_now;
}

void sim_log_init(const struct sim_config *config)
{
	sim_log.verbose = config->verbose;
	env_set_log(sim_log_line);
	env_set_clock(sim_clock);
}

void sim_log_clear(void)
{
	sim_log.count = 0;
	sim_log.inconsistent = false;
}

bool sim_log_inconsistent(void)
{
	return sim_log.inconsistent;
}

void sim_fail(struct sim_run *run, const char *format, ...)
{
	const char *family = family_name(run->params->family);
	char text[3072];
	va_list args;
	u32 i;

	run->failed = true;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	printf("FAILED %s%sseed %llu%s%s, life %u, operation %u: %s\n", family ? family : "", family ? ", " : "",
	       run->params->seed, run->where ? ", " : "", run->where ? run->where : "", run->life, run->op_index, text);
	i = sim_log.count > LOG_LINES ? sim_log.count - LOG_LINES : 0;
	for (; i < sim_log.count && !sim_log.verbose; i++)
		printf("    volume: %s\n", sim_log.lines[i % LOG_LINES]);
	if (run->config->show_trace && run->disk)
		disk_print_trace(run->disk, 0);
	sim_log_clear();
	fflush(stdout);
}

/* ---- life of a run ---- */

void run_init(struct sim_run *run, const struct sim_config *config, struct sim_totals *totals,
	      const struct sim_params *params, struct sim_disk *disk)
{
	memset(run, 0, sizeof(*run));
	run->config = config;
	run->totals = totals;
	run->params = params;
	run->disk = disk;
	run->clock = SIM_EPOCH_NS;
	run->buffer = malloc(SIM_BUFFER);
	if (!run->buffer)
		abort();
}

static void run_forget_deltas(struct sim_run *run)
{
	u32 i, j;

	for (i = 0; i < run->boundary_count; i++)
		for (j = 0; j < run->boundaries[i].count; j++)
			model_put(run->boundaries[i].states[j]);
	for (i = 0; i < run->ack_count; i++)
		for (j = 0; j < 2; j++)
			model_put(run->acks[i].states[j]);
	run->boundary_count = 0;
	run->ack_count = 0;
	run_forget_aheads(run);
}

void run_exit(struct sim_run *run)
{
	run_abandon(run);
	registers_end(run);
	run_forget_deltas(run);
	free(run->boundaries);
	free(run->acks);
	free(run->aheads);
	free(run->buffer);
	model_put(run->state);
}

int run_format(struct sim_run *run)
{
	const struct sim_params *params = run->params;
	struct format_options opts = {
		.size_bytes = params->volume_bytes,
		.block_size = params->block_size,
		.no_data_csum = params->no_csum,
		.quota = params->quota,
		.root_mode = 0750,
	};
	char why[256] = "";
	int err;

	sim_now = run->clock;
	err = volume_format(&run->disk->dev, &opts, why, sizeof(why));
	if (err) {
		if (!run->faulty)
			sim_fail(run, "format: %s (%s)", why, strerror(-err));
		return err;
	}
	run->state = model_new(0750, run->clock);
	run->state->block_size = run->params->block_size;
	return 0;
}

static struct boundary *run_new_boundary(struct sim_run *run, u64 delta)
{
	struct boundary *boundary;

	if (!run->boundary_count)
		run->first_delta = delta;
	run->boundaries = realloc(run->boundaries, (run->boundary_count + 1) * sizeof(*boundary));
	if (!run->boundaries)
		abort();
	boundary = &run->boundaries[run->boundary_count++];
	memset(boundary, 0, sizeof(*boundary));
	boundary->delta = delta;
	return boundary;
}

static void boundary_add(struct boundary *boundary, struct m_state *state)
{
	boundary->states[boundary->count++] = model_snapshot(state);
}

/* In batches, so that a commit may come in between. */
static bool op_is_batched(const struct sim_op *op)
{
	if (!op || (op->kind == SIM_WRITE && op->flags & SIM_ATOMIC))
		return false;
	return op->kind == SIM_FALLOCATE || ((op->kind == SIM_WRITE || op->kind == SIM_APPEND) && op->len > 1);
}

void run_note_deltas(struct sim_run *run, u64 old, struct m_state *before, const struct sim_op *op)
{
	u64 new = tux3_committed(run->volume), delta;

	for (delta = old + 1; delta <= new; delta++) {
		struct boundary *boundary;

		run->totals->commits++;
		if (run->boundary_count && delta < run->first_delta + run->boundary_count)
			continue;		/* it was under way */
		boundary = run_new_boundary(run, delta);
		boundary_add(boundary, before);
		if (before->version != run->state->version)
			boundary_add(boundary, run->state);
		boundary->partial = op_is_batched(op);
		if (boundary->partial)
			boundary->op = *op;
		boundary->now = run->clock;
	}
}

void run_note_in_flight(struct sim_run *run, struct m_state *before, struct m_state *after, const struct sim_op *op)
{
	struct boundary *boundary = run_new_boundary(run, tux3_committed(run->volume) + 1);

	boundary_add(boundary, before);
	boundary_add(boundary, after);
	boundary->partial = op_is_batched(op);
	if (op)
		boundary->op = *op;
	boundary->now = run->clock;
	run->broken = true;
}

static void run_new_ack(struct sim_run *run, const struct boundary *boundary)
{
	struct ack *ack;
	u32 i;

	run->acks = realloc(run->acks, (run->ack_count + 1) * sizeof(*run->acks));
	if (!run->acks)
		abort();
	ack = &run->acks[run->ack_count++];
	memset(ack, 0, sizeof(*ack));
	ack->at = run->disk->now;
	ack->delta = boundary->delta;
	for (i = 0; i < boundary->count; i++)
		ack->states[i] = model_snapshot(boundary->states[i]);
}

static void boundary_keep(struct boundary *boundary, u32 which)
{
	struct m_state *state = boundary->states[which];

	if (boundary->count == 2)
		model_put(boundary->states[!which]);
	boundary->states[0] = state;
	boundary->count = 1;
	boundary->partial = false;
}

void run_note_ack(struct sim_run *run)
{
	struct boundary *boundary = &run->boundaries[run->boundary_count - 1];

	/* The newest delta was closed in an earlier call perhaps: now we know which of its states it had. */
	boundary_keep(boundary, 0);
	model_put(boundary->states[0]);
	boundary->states[0] = model_snapshot(run->state);
	run_new_ack(run, boundary);
}

void run_note_beside(struct sim_run *run, u64 delta)
{
	boundary_add(run_new_boundary(run, delta), run->state);
}

void run_note_beside_over(struct sim_run *run, u64 delta)
{
	run_new_ack(run, &run->boundaries[delta - run->first_delta]);
}

void run_note_fsync(struct sim_run *run, const struct sim_op *op)
{
	struct boundary *boundary = &run->boundaries[run->boundary_count - 1 - !!run_beside_delta(run)];
	int err;
	u32 id = model_lookup(run->state, op->a, &err), i, count = 0, which = 0;

	if (id == M_NONE || registers_lossy(run, id))
		return;
	for (i = 0; i < boundary->count; i++) {
		const struct m_state *state = boundary->states[i];

		/* States share an inode that did not change between them. */
		if (id < state->count && state->inodes[id] == run->state->inodes[id]) {
			which = i;
			count++;
		}
	}
	if (!count && run_was_ahead(run, id))
		return;
	/* What went ahead may be all that is new in it: then nothing says which of its states the delta had. */
	if (count < boundary->count && run_dir_is_ahead(run, id, boundary))
		return;
	if (!count) {
		sim_fail(run, "fsync of \"%s\" returned, but delta %llu, the newest on the disk, does not have its "
			 "latest change", op->a, boundary->delta);
		return;
	}
	if (count < boundary->count)
		boundary_keep(boundary, which);
	run_new_ack(run, boundary);
}

int run_open(struct sim_run *run, bool read_only)
{
	struct volume_options opts = run->params->options;
	char why[256] = "";
	int err;

	opts.read_only = read_only;
	sim_now = run->clock;
	run->disk->dev.read_only = read_only;
	run->disk->dev.block_size = 4096;
	run->disk->read_passes = 0;
	env_memory_count(true);
	err = tux3_open_device(&run->disk->dev, false, &opts, run->params->data_cache_bytes, &run->volume, why,
			       sizeof(why));
	if (err) {
		run->volume = NULL;
		if (!run->faulty)
			sim_fail(run, "cannot open: %s (%s)", why, strerror(-err));
	} else {
		run->holding = false;
		reach_note_mount(run);
	}
	env_memory_count(false);
	return err;
}

void run_begin(struct sim_run *run, struct m_state *state, u64 delta)
{
	struct m_state *begin = model_snapshot(state);
	struct boundary *boundary;

	model_forget_open(begin);
	run_forget_deltas(run);
	run->closed = false;
	model_put(run->state);
	run->state = begin;
	boundary = run_new_boundary(run, delta);
	boundary_add(boundary, begin);
	run_new_ack(run, boundary);
	run->acks[0].at = 0;
	if (run->volume)
		run_note_deltas(run, delta, begin, NULL);
	else
		run->closed = true;
}

/* Deltas that were committed since then without an operation of ours: reading changes atimes. */
static void run_note_idle_deltas(struct sim_run *run, u64 committed)
{
	if (!run->threaded && run->boundary_count && !run->broken)
		run_note_deltas(run, committed, run->state, NULL);
}

/* Putting the last reference is a change, and one that comes too late for a delta may commit it. */
void run_put_slots(struct sim_run *run)
{
	u64 committed = tux3_committed(run->volume);
	struct m_state *before = model_snapshot(run->state);
	u32 i;

	sim_now = run->clock;
	for (i = 0; i < SIM_SLOTS; i++) {
		if (run->slots[i])
			tux3_node_put(run->slots[i], 1);
		run->slots[i] = NULL;
	}
	registers_close(run);
	model_forget_open(run->state);
	run_note_idle_deltas(run, committed);
	if (run->faulty && run->boundary_count && !run->broken && volume_error(tux3_core(run->volume)))
		run_note_in_flight(run, before, run->state, NULL);
	model_put(before);
}

static void run_after_close(struct sim_run *run)
{
	run->volume = NULL;
	if (run->disk->complaint[0])
		sim_fail(run, "towards the device: %s", run->disk->complaint);
	if (sim_log_inconsistent())
		sim_fail(run, "the volume found itself inconsistent");
}

void run_close(struct sim_run *run)
{
	u64 old;
	int err;

	run_beside_end(run);
	registers_closing(run);
	run_put_slots(run);
	reach_check_counters(run);
	old = tux3_committed(run->volume);
	err = registers_tell(run, tux3_close(run->volume));
	if (err && !run->faulty)
		sim_fail(run, "close failed: %s", strerror(-err));
	if (!err && run->broken)
		sim_fail(run, "close does not tell that the volume had failed");
	/* How many deltas closing took nobody can ask any more; all of them hold what there is. */
	if (!run->broken) {
		boundary_add(run_new_boundary(run, old + 1), run->state);
		run->closed = true;
	}
	if (!err) {
		run_note_ack(run);
		run->acks[run->ack_count - 1].delta = old;
		run->acks[run->ack_count - 1].exact = true;
	}
	run_after_close(run);
}

void run_abandon(struct sim_run *run)
{
	if (!run->volume)
		return;
	run_beside_end(run);
	if (run->state)
		run_put_slots(run);
	reach_check_counters(run);
	tux3_abandon(run->volume);
	run_after_close(run);
}

/* ---- looking at it ---- */

/* Whatever state it is in, what is on the disk is as the volume in use believes. */
static bool run_scrub(struct sim_run *run, const char *what)
{
	static const u64 budgets[] = { 1, 20000, 300000, U64_MAX };
	struct tux3_ioc_scrub *scrub = calloc(1, sizeof(*scrub));
	u64 budget = budgets[rng_hash(run->clock, run->totals->compares) % ARRAY_SIZE(budgets)];
	u64 passes = disk_read_passes(run->disk);
	int err = 0;
	u32 i;

	if (!scrub)
		abort();
	while (!err && !run->failed && !(scrub->flags & TUX3_SCRUB_OVER)) {
		scrub->flags = 0;
		scrub->budget_bytes = budget;
		err = volume_scrub(tux3_core(run->volume), scrub);
		for (i = 0; !err && i < scrub->problem_count && !run->failed; i++)
			sim_fail(run, "%s: a scrub tells of kind %u at block %llu of inode %llu: %s", what,
				 scrub->problem[i].kind, (unsigned long long)scrub->problem[i].addr,
				 (unsigned long long)scrub->problem[i].ino, scrub->problem[i].why);
	}
	free(scrub);
	run->disk->read_passes = passes;	/* what the workload itself reads is measured */
	if (err)
		sim_fail(run, "%s: a scrub fails: %d", what, err);
	return !run->failed;
}

bool run_compare(struct sim_run *run, const struct m_state *state, const char *what)
{
	struct m_state *compared = model_snapshot(state);
	u64 committed = tux3_committed(run->volume);
	struct difference diff;
	u32 count;

	sim_now = run->clock;
	run->totals->compares++;
	registers_loosen(run, compared);
	count = compare_tree(run->volume, compared, run->buffer, &diff);
	if (!count && run->registers) {
		registers_compare(run, &diff);
		count = diff.count;
	}
	model_put(compared);
	run_note_idle_deltas(run, committed);
	if (!count)
		return run->faulty || run->disk->bad_count || volume_error(tux3_core(run->volume)) || run_scrub(run, what);
	sim_fail(run, "%s: %u differences\n%s", what, diff.count, diff.text);
	return false;
}

void run_check(struct sim_run *run)
{
	struct difference problems = { .count = 0 };
	struct check_options opts = { .data = true, .problem = note_problem, .ctx = &problems };
	struct check_result result;
	int err;

	memset(&result, 0, sizeof(result));
	run->totals->checks++;
	err = volume_check(tux3_core(run->volume), &opts, &result);
	if (err)
		sim_fail(run, "the checker gave up: %s", strerror(-err));
	else if (result.problems)
		sim_fail(run, "the checker found %llu problems\n%s", result.problems, problems.text);
}
