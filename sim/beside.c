/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Operations beside a sync or an fsync, which another thread makes and which is held at one of its writes while the run goes on.
 * Beside a commit a crash can leave either base to what goes ahead meanwhile, the delta that is being committed or the one
 * before, and the cuts find both.  Beside an fsync that goes ahead nobody knows meanwhile whether a crash leaves what it says.
 *
 * An operation that waits for it, as an fsync that does not go ahead, would wait for ever: who holds it sees the run's thread
 * sleep in an operation, and lets it go.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
#include "clock.h"
#include "sim.h"

#define POLL_US		300u
#define SLEEPS		3u	/* it was seen asleep so many times in a row */

struct beside {
	struct sim_run *run;
	pthread_t thread;
	pid_t main;		/* the run's thread */
	u64 delta, committed, clock;	/* committed: when it began */
	u32 left;		/* writes and flushes before it is held; its thread */
	char path[SIM_PATH_MAX];	/* of an fsync; else empty */
	struct tux3_node *node;	/* the same */
	bool ahead;		/* it is that fsync that is held, and it goes ahead */
	pthread_mutex_t mutex;
	pthread_cond_t moved;
	/* mutex: */
	bool held, go, over;
	u32 ops;		/* begun and ended: odd while one is under way */
	int err;
};

/* Does the run's thread sleep? */
static bool main_sleeps(const struct beside *beside)
{
	char path[64], text[256], *state;
	FILE *file;
	size_t len;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", beside->main);
	file = fopen(path, "r");
	if (!file)
		return true;
	len = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[len] = 0;
	state = strrchr(text, ')');
	return state && state[1] == ' ' && state[2] == 'S';
}

static void hold(struct beside *beside)
{
	u32 ops = 0, sleeps = 0;

	pthread_mutex_lock(&beside->mutex);
	beside->held = true;
	pthread_cond_broadcast(&beside->moved);
	while (!beside->go && sleeps < SLEEPS) {
		u32 now = beside->ops;

		pthread_mutex_unlock(&beside->mutex);
		usleep(POLL_US);
		sleeps = now % 2 && now == ops && main_sleeps(beside) ? sleeps + 1 : 0;
		ops = now;
		pthread_mutex_lock(&beside->mutex);
	}
	beside->go = true;
	pthread_mutex_unlock(&beside->mutex);
}

static void before_write(void *ctx)
{
	struct beside *beside = ctx;

	if (!pthread_equal(pthread_self(), beside->thread))
		return;
	if (!beside->left--)
		hold(beside);
}

static void *commit_main(void *arg)
{
	struct beside *beside = arg;
	int err;

	sim_now = beside->clock;
	pthread_mutex_lock(&beside->mutex);	/* who has begun it has noted which thread it is */
	pthread_mutex_unlock(&beside->mutex);
	err = beside->node ? tux3_fsync(beside->node, false) : registers_tell(beside->run, tux3_sync(beside->run->volume));
	pthread_mutex_lock(&beside->mutex);
	beside->err = err;
	beside->over = true;
	pthread_cond_broadcast(&beside->moved);
	pthread_mutex_unlock(&beside->mutex);
	return NULL;
}

static void beside_join(struct sim_run *run)
{
	struct beside *beside = run->beside;
	u64 delta = beside->delta;
	int err;

	pthread_join(beside->thread, NULL);
	if (run->config->verbose)
		printf("  let go (write %u)\n", run->disk->write_count);
	run->disk->before = NULL;
	err = beside->err;
	if (beside->node)
		tux3_node_put(beside->node, 1);
	if (beside->ahead && !err)
		run_note_held_ahead(run);
	pthread_mutex_destroy(&beside->mutex);
	pthread_cond_destroy(&beside->moved);
	run->beside = NULL;
	if (err)
		sim_fail(run, "a sync of \"%s\" beside operations failed: %d", beside->path, err);
	else if (delta && run->boundary_count && delta < run->first_delta + run->boundary_count)
		run_note_beside_over(run, delta);
	free(beside);
}

/* An fsync is over, or its intent is being written. */
static void beside_note_fsync(struct sim_run *run, u64 committed, u64 ahead)
{
	struct sim_op op = { .kind = SIM_FSYNC };
	struct beside *beside = run->beside;
	u64 delta = beside->delta;

	snprintf(op.a, sizeof(op.a), "%s", beside->path);
	beside->delta = 0;
	run->flew = false;
	if (!beside->over) {
		beside->ahead = true;
		run_hold_ahead(run, &op, delta);
		return;
	}
	if (tux3_committed(run->volume) != committed) {
		run_note_deltas(run, committed, run->state, NULL);
		run_note_ack(run);
	} else if (run_fsyncs_ahead(run) != ahead) {
		run_note_ahead(run, &op, delta, true);
	} else {
		run_note_fsync(run, &op);
	}
	beside_join(run);
}

/* It is held, or over. */
static void beside_start(struct sim_run *run, struct beside *beside, u32 writes)
{
	beside->run = run;
	beside->main = syscall(SYS_gettid);
	beside->delta = READ_ONCE(tux3_core(run->volume)->delta.front);
	beside->committed = tux3_committed(run->volume);
	beside->clock = run->clock;
	beside->left = writes;
	pthread_mutex_init(&beside->mutex, NULL);
	pthread_cond_init(&beside->moved, NULL);
	run->beside = beside;
	run->disk->before_ctx = beside;
	run->disk->before = before_write;
	pthread_mutex_lock(&beside->mutex);
	if (pthread_create(&beside->thread, NULL, commit_main, beside))
		abort();
	while (!beside->held && !beside->over)
		pthread_cond_wait(&beside->moved, &beside->mutex);
	pthread_mutex_unlock(&beside->mutex);
}

static void beside_note_sync(struct sim_run *run)
{
	struct beside *beside = run->beside;

	if (beside->over || READ_ONCE(tux3_core(run->volume)->delta.front) == beside->delta) {
		run_beside_end(run);
	} else if (tux3_committed(run->volume) != beside->committed) {
		/* It is durable, and nodes are being written: nothing is beside it, but what goes ahead is on top of it. */
		beside->delta = 0;
		run_note_deltas(run, beside->committed, run->state, NULL);
		run_note_ack(run);
	} else {
		run_note_beside(run, beside->delta);
	}
}

void run_beside_begin(struct sim_run *run, const char *path, u32 writes)
{
	struct beside *beside = calloc(1, sizeof(*beside));
	u64 ahead = run_fsyncs_ahead(run);

	if (!beside)
		abort();
	if (path && node_walk(run->volume, path, &beside->node)) {
		free(beside);
		return;
	}
	if (path)
		snprintf(beside->path, sizeof(beside->path), "%s", path);
	registers_see_bad(run);
	beside_start(run, beside, writes);
	if (!path)
		beside_note_sync(run);
	else if (beside->over || (tux3_committed(run->volume) == beside->committed &&
				  READ_ONCE(tux3_core(run->volume)->delta.front) == beside->delta))
		beside_note_fsync(run, beside->committed, ahead);
	else
		/*
		 * An fsync that became a commit has looked first at whether it could go ahead, and what it had seen by then counts
		 * as being said: what goes ahead beside it may say more than the oracle knows.
		 */
		run_beside_end(run);
	if (run->beside && run->config->verbose)
		printf("  held: %s, delta %llu (write %u)\n", path ? path : "all", (unsigned long long)run->beside->delta,
		       run->disk->write_count);
}

void run_beside_end(struct sim_run *run)
{
	struct beside *beside = run->beside;
	u64 committed;
	bool noted;

	if (!beside)
		return;
	committed = beside->committed;
	noted = !beside->delta || (run->boundary_count && beside->delta < run->first_delta + run->boundary_count);
	pthread_mutex_lock(&beside->mutex);
	beside->go = true;
	pthread_mutex_unlock(&beside->mutex);
	beside_join(run);
	run_note_deltas(run, committed, run->state, NULL);
	if (!noted && !run->failed)
		run_note_ack(run);
}

void run_beside_op(struct sim_run *run, bool begins)
{
	struct beside *beside = run->beside;
	bool go;

	if (begins)
		run->flew = false;
	if (!beside)
		return;
	pthread_mutex_lock(&beside->mutex);
	beside->ops++;
	go = beside->go;
	pthread_mutex_unlock(&beside->mutex);
	if (!begins && go) {
		run->flew = beside->ahead;
		beside_join(run);
	}
}

u64 run_beside_delta(const struct sim_run *run)
{
	return run->beside ? run->beside->delta : 0;
}

bool run_beside_is_ahead(const struct sim_run *run)
{
	return run->beside && run->beside->ahead;
}
