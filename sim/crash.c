/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cutting the power.  A run is over and its disk has recorded every write and flush.  A cut after
 * write k leaves what was durable at the moment when k was issued, and of the rest:
 *
 *	image 0		everything, in order
 *	image 1, 3 ..	a random subset
 *	image 2, 4 ..	the same with one write torn at 512 bytes
 *
 * The volume found there must be in a state that its delta may have, not older than the last sync that had
 * returned by then, with the fsyncs on top of it that went ahead of newer deltas; the checker must find nothing; and it
 * must be good for further use, through another cut (second level).  Such use may be no more than recovery, to the end of
 * its first unify: whatever a cut leaves of that must still be the state that was found.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "sim.h"

#define IMAGES		4u	/* of each cut, if nobody says */
#define SECOND_RATE	12u	/* one of so many images is used, if nobody says */
#define SECOND_CUTS	6u	/* tried of each run at the second level */
#define SECOND_IMAGES	2u
#define SECOND_OPS	6u	/* operations made before it, at most */

static const struct ack *last_ack(const struct sim_run *run, u64 at)
{
	u32 i = run->ack_count;

	while (i > 0)
		if (run->acks[--i].at <= at)
			return &run->acks[i];
	return NULL;
}

static struct boundary *find_boundary(struct sim_run *run, u64 delta)
{
	u64 index = delta - run->first_delta;

	if (delta < run->first_delta)
		return NULL;
	if (index < run->boundary_count)
		return &run->boundaries[index];
	return run->closed ? &run->boundaries[run->boundary_count - 1] : NULL;
}

/* The size of the file that the operation was about; -1: there is none. */
static s64 size_on_volume(struct sim_run *again, const struct sim_op *op)
{
	struct tux3_node *node;
	struct tux3_stat stat;
	s64 size = -1;

	if (*op->a == '@' || node_walk(again->volume, op->a, &node))
		return -1;
	if (!tux3_stat_node(node, &stat))
		size = stat.size;
	tux3_node_put(node, 1);
	return size;
}

/* What is being looked at: a run, and what was left of it. */
struct look {
	struct sim_run *run, *again;
	u64 delta;		/* of the volume: that of its newest intent */
	u64 acked_at;		/* event */
	u64 base;		/* the delta on the disk */
	u32 intents;		/* carried out on top of it */
	const struct ack *ack;
	struct ahead_range range;	/* what they may be */
	struct difference diff[2];	/* from the states tried first and last */
	u32 tried;
	const char *why;	/* the intents do not fit there; NULL: they do */
};

/*
 * Is the volume as in this state with the intents on top of it?  id, size: and this file so long?  M_NONE, below 0: any.
 * That state, or NULL.
 */
static struct m_state *try_state(struct look *look, const struct m_state *base, u32 id, s64 size)
{
	struct sim_run *run = look->run;
	struct difference *diff = &look->diff[look->tried > 0];
	const char *why;
	u32 way;

	for (way = 0; way < aheads_ways(&look->range); way++) {
		struct m_state *state = model_snapshot(base);
		u64 delta = look->delta;
		bool fits = aheads_put(run, &look->range, look->intents, way, state, &delta, &why) &&
			    delta == look->delta;

		if (why)
			look->why = why;
		if (fits && id != M_NONE)	/* comparing takes longer than asking */
			fits = size < 0 || size == (s64)state->inodes[id]->size;
		model_forget_open(state);
		run->totals->compares += fits;
		if (fits && registers_settle(run, look->again, state, look->acked_at, diff) &&
		    !compare_tree(look->again->volume, state, look->again->buffer, diff))
			return state;
		look->tried += fits;
		model_put(state);
	}
	return NULL;
}

/* The batches of one call: a delta may end between two. */
static struct m_state *find_partial(struct look *look, const struct boundary *boundary)
{
	const struct sim_op *op = &boundary->op;
	const struct m_state *before = boundary->states[0];
	u64 step = look->run->params->block_size, offset = op->offset, at;
	s64 size = size_on_volume(look->again, op);
	struct m_state *found = NULL;
	int err;
	u32 id = model_lookup(before, op->a, &err);

	if (id == M_NONE)
		return NULL;
	if (op->kind == SIM_APPEND)
		offset = before->inodes[id]->size;
	for (at = offset; at < offset + op->len && !found; at = round_down(at, step) + step) {
		struct m_state *state = model_snapshot(before);

		model_apply_part(state, op, at - offset, boundary->now);
		found = try_state(look, state, id, size);
		model_put(state);
	}
	return found;
}

/* Which intents come in question, and were there enough of them?  False: told. */
static bool find_intents(struct look *look, u64 acked_at, bool only_ack)
{
	const struct ack *ack = look->ack;
	u64 above = look->base;

	if (only_ack)
		above = ack->exact ? ~0ULL : max(above, ack->delta);
	aheads_find(look->run, above, acked_at, &look->range);
	if (look->intents >= look->range.due && look->intents <= look->range.issued)
		return true;
	sim_fail(look->again, "delta %llu and %u intents: of the fsyncs that went ahead of newer deltas %u had returned, %u "
		 "were made", look->base, look->intents, look->range.due, look->range.issued);
	return false;
}

static void tell_state(struct look *look, bool only_ack)
{
	if (look->why && !look->tried) {
		sim_fail(look->again, "delta %llu and %u intents cannot be: %s", look->base, look->intents, look->why);
		return;
	}
	sim_fail(look->again, "delta %llu and %u intents, together %llu, is not as it must be%s (acknowledged: %llu)\n%s%s%s",
		 look->base, look->intents, look->delta, only_ack ? ": older than what was acknowledged" : "",
		 look->ack ? look->ack->delta : 0, look->diff[0].text,
		 look->tried > 1 ? "  nor as the last other state allowed:\n" : "", look->tried > 1 ? look->diff[1].text : "");
}

/* Which of the states that are allowed is it?  NULL: none, told. */
static struct m_state *find_state(struct look *look, u64 acked_at)
{
	const struct ack *ack = look->ack;
	struct boundary *boundary = find_boundary(look->run, look->base);
	bool only_ack = ack && (ack->exact || look->base < ack->delta);
	struct m_state *state;
	u32 i;

	if (!only_ack && !boundary) {
		sim_fail(look->again, "is at delta %llu, which was never committed", look->base);
		return NULL;
	}
	if (!find_intents(look, acked_at, only_ack))
		return NULL;
	for (i = 0; i < 2; i++) {
		state = only_ack ? ack->states[i] : i < boundary->count ? boundary->states[i] : NULL;
		state = state ? try_state(look, state, M_NONE, -1) : NULL;
		if (state)
			return state;
	}
	if (only_ack)
		boundary = find_boundary(look->run, ack->delta);
	state = boundary && boundary->partial ? find_partial(look, boundary) : NULL;
	if (!state)
		tell_state(look, only_ack);
	return state;
}

/* What the volume says of itself. */
static void look_at(struct look *look, struct sim_run *run, struct sim_run *again, u64 acked_at)
{
	const struct intent *intent = &tux3_core(again->volume)->intent;

	memset(look, 0, sizeof(*look));
	look->run = run;
	look->again = again;
	look->acked_at = acked_at;
	look->ack = last_ack(run, acked_at);
	look->delta = look->base = tux3_committed(again->volume);
	/*
	 * The run began with a recovery.  What that made durable is one delta; the disk may still have it in the parts that were
	 * recovered.
	 */
	if (intent->recovered && !(intent->base < run->first_delta && look->delta == run->first_delta)) {
		look->base = intent->base;
		look->intents = intent->recovered - intent->recovered_beside;
	}
}

/* Open read-only, compare with what is allowed, check.  The state found, or NULL; *delta: its number. */
static struct m_state *verify_once(struct sim_run *run, struct sim_run *again, u64 acked_at, u64 *delta)
{
	struct m_state *state;
	struct look look;

	if (run_open(again, true))
		return NULL;
	look_at(&look, run, again, acked_at);
	*delta = look.delta;
	/* What is lost shows in the files that it was of: the rest of it must be right. */
	state = run->lost_delta && look.base >= run->lost_delta ? NULL : find_state(&look, acked_at);
	run_check(again);
	run_abandon(again);
	if (state && again->failed) {
		model_put(state);
		return NULL;
	}
	return state;
}

/* Recovery, from the open that replays to the unify of a close, and cut the power in that. */
static void recover(struct sim_run *again, struct m_state *state, u64 delta, struct rng *rng, u32 depth)
{
	if (again->config->canary == CANARY_LOSE_RECOVERY)
		again->disk->settings.lose_write = 1 + rng_below(rng, 4);
	if (run_open(again, false))
		return;
	run_begin(again, state, delta);
	run_close(again);
	again->recovering = true;
	if (!again->failed)
		crash_all(again, depth + 1);
}

/* Use the volume, close it or not, and cut the power in that. */
static void write_on(struct sim_run *again, struct m_state *state, u64 delta, struct rng *rng, u32 depth)
{
	u32 ops = rng_below(rng, SECOND_OPS + 1);
	struct sim_op op;

	if (run_open(again, false))
		return;
	run_begin(again, state, delta);
	run_compare(again, again->state, "opened for writing");
	if (again->params->ahead && rng_one_in(rng, 2))
		run_first_ahead(again);
	while (ops-- && !again->failed)
		run_random_op(again, rng);
	if (!rng_one_in(rng, 3)) {
		memset(&op, 0, sizeof(op));
		op.kind = SIM_SYNC;
		run_op(again, &op);
	}
	if (again->failed || rng_one_in(rng, 2))
		run_abandon(again);
	else
		run_close(again);
	if (!again->failed)
		crash_all(again, depth + 1);
}

void crash_verify(struct sim_run *run, struct sim_disk *image, u64 acked_at, u64 seed, u32 depth, bool on,
		  const char *where)
{
	struct rng rng = { seed };
	struct sim_run again;
	struct m_state *state;
	u64 delta = 0;

	run_init(&again, run->config, run->totals, run->params, image);
	again.where = where;
	again.clock = run->clock;
	again.op_index = run->op_index;
	again.life = run->life;
	sim_log_clear();
	env_set_random_seed(rng_next(&rng) | 1);
	state = verify_once(run, &again, acked_at, &delta);
	if (state && on && !again.failed) {
		if (rng_one_in(&rng, 2))
			recover(&again, state, delta, &rng, depth);
		else
			write_on(&again, state, delta, &rng, depth);
	}
	model_put(state);
	reach_merge(&run->reach, &again.reach);
	run->failed |= again.failed;
	run_exit(&again);
}

struct cut_images {
	struct disk_cut cut;
	u32 k, depth;
	u64 digests[64];	/* of the images tried; 0: everything is there, that is number 0 */
};

static bool image_was_tried(const struct cut_images *images, u32 i)
{
	u32 j;

	for (j = 0; j < i; j++)
		if (images->digests[j] == images->digests[i])
			return true;
	return false;
}

static struct disk_settings image_settings(const struct sim_run *run)
{
	struct disk_settings settings = run->disk->settings;

	settings.lose_write = 0;
	settings.forget_magic = run->config->canary == CANARY_FORGET_LOG ? TUX3_LOG_MAGIC :
				run->config->canary == CANARY_LOSE_AHEAD ? TUX3_INTENT_MAGIC : 0;
	return settings;
}

/* After its first k writes; k one beyond the last stands for the end of the trace. */
static struct disk_cut cut_after(const struct sim_disk *disk, u32 k)
{
	struct disk_cut cut = { .issued = min_t(u32, k, disk->write_count) };

	cut.at = k > disk->write_count ? disk->now : k ? disk->writes[k - 1].issued :
		 disk->write_count ? disk->writes[0].issued - 1 : disk->now;
	return cut;
}

/* What the command line says comes first, then what the workload says. */
static u32 run_second_rate(const struct sim_run *run)
{
	if (run->config->second_rate != SIM_ANY)
		return run->config->second_rate;
	return run->params->recoveries ? run->params->recoveries : SECOND_RATE;
}

static u32 run_images(const struct sim_run *run, u32 depth)
{
	if (depth > 1)
		return SECOND_IMAGES;
	if (run->config->images)
		return run->config->images;
	return run->params->images ? run->params->images : IMAGES;
}

/* At most, 0: all. */
static u32 run_cuts(const struct sim_run *run, u32 depth)
{
	if (depth > 1)
		return SECOND_CUTS;
	return run->config->cuts ? run->config->cuts : run->params->cuts;
}

static void crash_image(struct sim_run *run, struct cut_images *images, u32 i)
{
	const struct disk_cut *cut = &images->cut;
	u64 seed = rng_hash(run->params->seed ^ run->op_index,
			    ((u64)images->depth << 40) + ((u64)images->k << 8) + i);
	struct disk_settings settings = image_settings(run);
	struct rng rng = { seed };
	struct sim_disk image;
	u64 acked_at = cut->at;
	char where[160];
	bool again;

	settings.seed = rng_next(&rng);
	if (i == 0)
		acked_at = cut->issued < run->disk->write_count ? run->disk->writes[cut->issued].issued - 1 :
								  run->disk->now;
	snprintf(where, sizeof(where), "%s%scut after write %u of %u, image %u", run->where ? run->where : "",
		 run->where ? ", then " : "", images->k, run->disk->write_count, i);
	images->digests[i] = disk_init_image(&image, run->disk, &settings, cut, i ? &rng : NULL,
					     i && i % 2 == 0);
	if (i == 0 || !image_was_tried(images, i)) {
		again = images->depth < 2 && run_second_rate(run) && rng_one_in(&rng, run_second_rate(run));
		run->totals->images++;
		run->totals->second_images += images->depth > 1;
		crash_verify(run, &image, acked_at, rng_next(&rng), images->depth, again, where);
	}
	disk_exit(&image);
}

static void crash_cut(struct sim_run *run, u32 k, u32 depth)
{
	const struct sim_config *config = run->config;
	struct sim_disk *disk = run->disk;
	struct cut_images images = { .cut = cut_after(disk, k), .k = k, .depth = depth };
	u32 count = run_images(run, depth), i;

	if (!disk_count_unflushed(disk, &images.cut))
		count = 1;
	run->totals->cuts++;
	run->totals->recovery_cuts += run->recovering;
	for (i = 0; i < min_t(u32, count, ARRAY_SIZE(images.digests)) && !run->failed; i++) {
		if (depth == 1 && config->only_image >= 0 && config->only_image != i) {
			images.digests[i] = i ? ~(u64)i : 0;
			continue;
		}
		if (depth == 1) {
			jobs_at(k, i);
			jobs_watchdog();
		}
		crash_image(run, &images, i);
	}
}

void crash_all(struct sim_run *run, u32 depth)
{
	const struct sim_config *config = run->config;
	u32 cuts = run->disk->write_count + 2, limit = run_cuts(run, depth), k;
	struct rng rng = { rng_hash(run->params->seed, run->op_index + depth) };

	run->totals->writes += depth == 1 ? run->disk->write_count : 0;
	for (k = 0; k < cuts && !run->failed; k++) {
		if (depth == 1 && config->only_cut >= 0 && config->only_cut != k)
			continue;
		/* The end of a life is always one of them: there the log is as long as the life has made it. */
		if (limit && cuts > limit && rng_below(&rng, cuts) >= limit && !(depth == 1 && k + 1 == cuts))
			continue;
		crash_cut(run, k, depth);
	}
}

void crash_go_on(struct sim_run *run, struct sim_disk *next, struct rng *rng)
{
	struct sim_disk *disk = run->disk;
	u32 back = rng_one_in(rng, 2) ? rng_below(rng, disk->write_count / 8 + 1) : 0;
	struct disk_cut cut = cut_after(disk, disk->write_count + 1 - back);
	struct disk_settings settings = image_settings(run);
	struct m_state *state;
	struct sim_run again;
	u64 delta = 0;

	settings.seed = rng_next(rng);
	disk_init_image(next, disk, &settings, &cut, rng, rng_one_in(rng, 2));
	run_init(&again, run->config, run->totals, run->params, next);
	again.where = "going on after the cut";
	again.clock = run->clock;
	again.life = run->life;
	sim_log_clear();
	state = verify_once(run, &again, cut.at, &delta);
	reach_merge(&run->reach, &again.reach);
	run->failed |= again.failed;
	run_exit(&again);
	run->disk = next;
	if (state && !run_open(run, false))
		run_begin(run, state, delta);
	model_put(state);
}
