/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Several front-end threads and a real back end.  Each thread works in a directory of its own, t0, t1 ...,
 * beside an oracle of its own that keeps the state after each of its operations.  After a cut, at any write:
 *
 *  1. each directory is as its thread left it after some operation (a prefix of what it did);
 *  2. not older than anybody's last sync of the volume, nor than the last change of what was fsynced;
 *  3. all of them together are one moment: if an operation is there, so are all that had returned, in
 *     any thread, before it began.
 *
 * Where fsyncs may go ahead of their delta, nobody can tell from outside which did.  Then a file that was fsynced does not tell
 * how old its directory may be, but is itself as it was then, on top of the prefix.
 *
 * Real threads: a failure shows again only with luck.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <linux/falloc.h>
#include "clock.h"
#include "sim.h"

#define THREADS_MAX	64u
#define THREAD_OPS	60u
#define THREAD_CUTS	12u

struct step {			/* one operation, when it had returned */
	struct m_state *state;
	u32 seen[THREADS_MAX];	/* operations of others that had returned before it began */
	u32 acked;		/* a successful sync or fsync: so many of the thread's operations are durable since; else 0 */
	u64 at;			/* event */
	u32 ahead;		/* an fsync that may have gone ahead of its delta: the inode; else M_NONE */
	u32 changed;		/* if so: by the operation of this number, last */
};

struct crew;

struct member {
	struct crew *crew;
	pthread_t thread;
	u32 number, done;	/* done: atomic */
	struct sim_run run;
	struct sim_totals totals;
	struct step *steps;	/* steps[n]: after n operations */
	u32 low, high;		/* of the cut being looked at: it holds so many */
	struct sim_op last;
};

struct crew {
	const struct sim_config *config;
	struct sim_params params;
	struct sim_disk disk;
	u32 count, ops;
	u32 first_cut;		/* by this write and event the directories are there */
	u64 first_at;
	struct member members[THREADS_MAX];
};

static bool in_own_directory(const struct member *member, const char *path)
{
	char own[16];

	snprintf(own, sizeof(own), "t%u/", member->number);
	return *path == '@' || !strncmp(path, own, strlen(own));
}

/* What was given another name, or its directory, is often synced. */
static bool sync_names(const struct member *member, struct rng *rng, struct sim_op *op)
{
	const struct sim_op *last = &member->last;

	if ((last->kind != SIM_RENAME && last->kind != SIM_LINK && last->kind != SIM_UNLINK) || rng_one_in(rng, 3))
		return false;
	memset(op, 0, sizeof(*op));
	op->kind = SIM_FSYNC;
	if (last->kind == SIM_UNLINK || rng_one_in(rng, 2))
		snprintf(op->a, sizeof(op->a), "t%u", member->number);
	else
		snprintf(op->a, sizeof(op->a), "%s", last->b);
	return true;
}

static void member_op(struct member *member, struct rng *rng, struct sim_op *op)
{
	u32 tries;

	if (sync_names(member, rng, op))
		return;
	for (tries = 0; tries < 500; tries++) {
		generate_op(&member->crew->params, member->run.state, rng, op);
		if (op->kind == SIM_SYNC || op->kind == SIM_CLOSE)
			return;
		if (op->kind == SIM_COMPARE || !in_own_directory(member, op->a))
			continue;
		if (op->kind == SIM_FALLOCATE && !(op->mode & FALLOC_FL_PUNCH_HOLE))
			continue;	/* may be several deltas */
		if ((op->kind == SIM_LINK || op->kind == SIM_RENAME || op->kind == SIM_EXCHANGE) &&
		    !in_own_directory(member, op->b))
			continue;
		return;
	}
	memset(op, 0, sizeof(*op));
	op->kind = SIM_CREATE;
	snprintf(op->a, sizeof(op->a), "t%u/x", member->number);
}

/* The operation after which the inode that the nth one has fsynced was as it is now. */
static u32 last_change(const struct member *member, u32 n, const char *path)
{
	int err;
	u32 id = model_lookup(member->steps[n].state, path, &err);
	const struct m_inode *inode = member->steps[n].state->inodes[id];

	/* Whoever changes an inode gives the state a new copy of it. */
	while (n && id < member->steps[n - 1].state->count && member->steps[n - 1].state->inodes[id] == inode)
		n--;
	return n;
}

static void note_acknowledged(const struct member *member, u32 n, const struct sim_op *op)
{
	const struct m_state *state = member->steps[n].state;
	struct step *step = &member->steps[n];
	int err;
	u32 id;

	step->ahead = M_NONE;
	if (member->run.result)
		return;
	if (op->kind == SIM_SYNC)
		step->acked = n;
	if (op->kind != SIM_FSYNC && op->kind != SIM_FDATASYNC)
		return;
	step->changed = last_change(member, n, op->a);
	id = model_lookup(state, op->a, &err);
	if (member->crew->params.options.fsync != TUX3_FSYNC_FULL &&
	    (S_ISREG(state->inodes[id]->mode) || S_ISDIR(state->inodes[id]->mode)))
		step->ahead = id;
	else
		step->acked = step->changed;
}

static void *member_main(void *arg)
{
	struct member *member = arg;
	struct crew *crew = member->crew;
	struct rng rng = { rng_hash(crew->params.seed, 100 + member->number) };
	struct sim_op op;
	u32 i, n;

	for (n = 1; n <= crew->ops && !member->run.failed; n++) {
		struct step *step = &member->steps[n];

		for (i = 0; i < crew->count; i++)
			step->seen[i] = __atomic_load_n(&crew->members[i].done, __ATOMIC_ACQUIRE);
		member_op(member, &rng, &op);
		member->last = op;
		run_op(&member->run, &op);
		step->state = model_snapshot(member->run.state);
		note_acknowledged(member, n, &op);
		step->at = disk_now(&crew->disk);
		__atomic_store_n(&member->done, n, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* What each member's directory must at least hold. */
static void find_floors(struct crew *crew, u64 at)
{
	u32 i, k, n;

	for (i = 0; i < crew->count; i++)
		crew->members[i].low = 0;
	for (i = 0; i < crew->count; i++) {
		struct member *member = &crew->members[i];

		for (n = 1; n <= member->done; n++) {
			u32 acked = member->steps[n].acked;

			if (!acked || member->steps[n].at > at)
				continue;
			member->low = max(member->low, acked);
			for (k = 0; k < crew->count; k++)
				crew->members[k].low = max(crew->members[k].low, member->steps[acked].seen[k]);
		}
	}
}

/*
 * What was fsynced later than after the nth operation, on the state after that.  Those that had returned by event `at`, and with
 * one_more the next one.  False: there is none, or it cannot go on top of that.
 */
static bool put_aheads(const struct member *member, u32 n, u64 at, bool one_more, struct m_state *state)
{
	u32 i;

	for (i = n + 1; i <= member->done; i++) {
		const struct step *step = &member->steps[i];

		if (step->ahead == M_NONE || step->changed <= n)
			continue;
		if (step->at > at && !one_more)
			return true;
		if (model_put_ahead(state, step->state, step->ahead, NULL))
			return false;
		if (step->at > at)
			return true;
	}
	return !one_more;
}

/* Is the member's directory as after its nth operation, with what was fsynced after that? */
static bool is_like(struct member *member, struct sim_run *again, u32 n, u64 at, bool one_more, struct difference *diff)
{
	struct m_state *state = model_snapshot(member->steps[n].state);
	bool fits = put_aheads(member, n, at, one_more, state);
	char path[16];
	int err;
	u32 id;

	if (fits) {
		snprintf(path, sizeof(path), "t%u", member->number);
		id = model_lookup(state, path, &err);
		model_forget_open(state);
		diff->count = diff->used = 0;
		compare_below(again->volume, state, id, path, again->buffer, diff);
		fits = !diff->count;
	}
	model_put(state);
	return fits;
}

static bool is_prefix(struct member *member, struct sim_run *again, u32 n, u64 at, struct difference *diff)
{
	return is_like(member, again, n, at, false, diff) || is_like(member, again, n, at, true, diff);
}

/*
 * How many operations of a member are on the volume: one of low .. high (what those between changed cannot be seen, or is again
 * as it was, like an xattr that was set and removed, in a file that was fsynced later).
 */
static bool find_prefix(struct member *member, struct sim_run *again, u64 at)
{
	struct difference diff = { 0 }, oldest = { 0 };
	u32 n, floor = member->low;

	for (n = floor; n <= member->done && !is_prefix(member, again, n, at, &diff); n++)
		if (n == floor)
			oldest = diff;
	if (n > member->done) {
		sim_fail(again, "t%u is like after none of the operations %u to %u of its thread; compared with "
			 "operation %u:\n%swith the last:\n%s", member->number, floor, member->done, floor,
			 oldest.text, diff.text);
		return false;
	}
	member->low = member->high = n;
	for (n++; n <= member->done; n++)
		if (is_prefix(member, again, n, at, &diff))
			member->high = n;
	return true;
}

static void check_together(struct crew *crew, struct sim_run *again)
{
	u32 i, k;

	for (i = 0; i < crew->count; i++) {
		const struct member *member = &crew->members[i];
		const struct step *step = &member->steps[member->low];

		for (k = 0; k < crew->count; k++)
			if (crew->members[k].high < step->seen[k])
				sim_fail(again, "t%u holds operation %u, but t%u has only the first %u, of which %u had "
					 "returned before it began", member->number, member->low, k,
					 crew->members[k].high, step->seen[k]);
	}
}

static void verify_crew(struct crew *crew, struct sim_totals *totals, struct sim_disk *image, u64 at, const char *where)
{
	struct sim_run again;
	u32 i;

	run_init(&again, crew->config, totals, &crew->params, image);
	again.where = where;
	sim_log_clear();
	jobs_watchdog();
	if (!run_open(&again, true)) {
		find_floors(crew, at);
		for (i = 0; i < crew->count && !again.failed; i++)
			find_prefix(&crew->members[i], &again, at);
		if (!again.failed)
			check_together(crew, &again);
		run_check(&again);
	}
	totals->images++;
	crew->members[0].run.failed |= again.failed;
	run_exit(&again);
}

static void cut_crew(struct crew *crew, struct sim_totals *totals)
{
	struct rng rng = { rng_hash(crew->params.seed, 3) };
	struct sim_disk image;
	struct disk_cut cut;
	char where[80];
	u32 i;

	for (i = 0; i < THREAD_CUTS && !crew->members[0].run.failed; i++) {
		cut.issued = crew->disk.write_count;
		if (i)
			cut.issued = crew->first_cut + rng_below(&rng, cut.issued - crew->first_cut + 1);
		cut.at = i && cut.issued ? crew->disk.writes[cut.issued - 1].issued : crew->disk.now;
		cut.at = max(cut.at, crew->first_at);
		snprintf(where, sizeof(where), "cut after write %u of %u", cut.issued, crew->disk.write_count);
		totals->cuts++;
		disk_init_image(&image, &crew->disk, &crew->params.disk, &cut, i % 4 ? &rng : NULL, i % 4 == 3);
		verify_crew(crew, totals, &image, cut.at, where);
		disk_exit(&image);
	}
}

/* Directories, one for each member, synced. */
static bool prepare_crew(struct crew *crew, struct sim_run *main)
{
	struct sim_op op = { .kind = SIM_MKDIR, .mode = 0755 };
	u32 i;

	if (run_format(main) || run_open(main, false))
		return false;
	main->threaded = true;
	for (i = 0; i < crew->count; i++) {
		snprintf(op.a, sizeof(op.a), "t%u", i);
		run_op(main, &op);
	}
	op.kind = SIM_SYNC;
	run_op(main, &op);
	pthread_mutex_lock(&crew->disk.mutex);
	crew->first_cut = crew->disk.write_count;
	crew->first_at = crew->disk.now;
	pthread_mutex_unlock(&crew->disk.mutex);
	for (i = 0; i < crew->count; i++) {
		struct member *member = &crew->members[i];

		member->crew = crew;
		member->number = i;
		run_init(&member->run, crew->config, &member->totals, &crew->params, &crew->disk);
		member->run.threaded = true;
		member->run.volume = main->volume;
		member->run.state = model_copy_all(main->state);
		member->run.clock = main->clock;
		member->steps = calloc(crew->ops + 1, sizeof(*member->steps));
		if (!member->steps)
			abort();
		member->steps[0].state = model_snapshot(member->run.state);
		member->steps[0].ahead = M_NONE;
	}
	return !main->failed;
}

static void free_crew(struct crew *crew, struct sim_totals *totals)
{
	u32 i, n;

	for (i = 0; i < crew->count; i++) {
		struct member *member = &crew->members[i];

		if (!member->crew)
			continue;
		for (n = 0; n <= crew->ops; n++)
			model_put(member->steps[n].state);
		free(member->steps);
		member->run.volume = NULL;
		run_exit(&member->run);
#define X(name) totals->name += member->totals.name;
		SIM_TOTALS(X)
#undef X
	}
}

static void crew_params(struct crew *crew, const struct sim_config *config, u64 seed)
{
	struct sim_params *params = &crew->params;
	struct rng rng = { rng_hash(seed, 4) };

	params_draw(params, config, seed);
	params->weights[SIM_QUOTA] = 0;		/* limits are the volume's, and each member has an oracle of its own */
	params->volume_bytes = params->disk.size_bytes = 64 << 20;
	params->block_size = 4096;
	params->tight = false;
	params->options.manual = false;
	if (params->options.fsync == TUX3_FSYNC_FULL && !config->fsync && rng_hash(seed, 8) % 2)
		params->options.fsync = TUX3_FSYNC_AUTO;
	params->options.age_ms = 1 + rng_below(&rng, 10);
	params->disk.defer = false;
	crew->config = config;
	crew->count = min_t(u32, config->threads, THREADS_MAX);
	crew->ops = config->ops ? config->ops : THREAD_OPS;
}

bool threads_unit(const struct sim_config *config, struct sim_totals *totals, u64 seed)
{
	struct crew *crew = calloc(1, sizeof(*crew));
	struct sim_run main;
	bool passed = false;
	u32 i;

	if (!crew)
		abort();
	sim_log_clear();
	env_set_random_seed(seed | 1ULL << 63);
	crew_params(crew, config, seed);
	disk_init(&crew->disk, &crew->params.disk);
	run_init(&main, config, totals, &crew->params, &crew->disk);
	if (prepare_crew(crew, &main)) {
		for (i = 0; i < crew->count; i++)
			pthread_create(&crew->members[i].thread, NULL, member_main, &crew->members[i]);
		for (i = 0; i < crew->count; i++) {
			pthread_join(crew->members[i].thread, NULL);
			main.failed |= crew->members[i].run.failed;
			run_put_slots(&crew->members[i].run);
		}
		totals->ahead += run_fsyncs_ahead(&main);
		run_abandon(&main);
		totals->writes += crew->disk.write_count;
		if (!main.failed)
			cut_crew(crew, totals);
		main.failed |= crew->members[0].run.failed;
	}
	passed = !main.failed;
	free_crew(crew, totals);
	run_exit(&main);
	disk_exit(&crew->disk);
	free(crew);
	return passed;
}
