/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Checking what a hold keeps: see check.h. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "lib.h"
#include "check.h"
#include "core/error.h"
#include "core/format/anchor.h"
#include "core/inode/path.h"
#include "core/open.h"
#include "core/scrub/hold.h"
#include "user/env/device_view.h"

#define HELD_TRIES	4u
#define HELD_RENEW_S	(TUX3_HOLD_S / 4)
#define HELD_PATH	4096u
#define HELD_CACHE_BYTES (32u << 20)

struct held_run {
	struct held_check *check;
	struct tux3_ioc_hold hold;
	bool lost, out_of_memory;
	/* Renews the hold, whatever the check is waiting for. */
	pthread_t renewer;
	pthread_mutex_t lock;
	pthread_cond_t ends;
	bool over;		/* lock */
};

static int ask(struct held_run *run, u32 op)
{
	run->hold.op = op;
	return run->check->hold(run->check->ctx, &run->hold);
}

static void *renew(void *ctx)
{
	struct held_run *run = ctx;
	struct tux3_ioc_hold hold = { .op = TUX3_HOLD_RENEW, .cookie = run->hold.cookie };
	struct timespec until;

	pthread_mutex_lock(&run->lock);
	while (!run->over && !run->lost) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += HELD_RENEW_S;
		if (pthread_cond_timedwait(&run->ends, &run->lock, &until) == ETIMEDOUT && run->check->hold(run->check->ctx, &hold))
			WRITE_ONCE(run->lost, true);
	}
	pthread_mutex_unlock(&run->lock);
	return NULL;
}

static void renewer_stop(struct held_run *run)
{
	pthread_mutex_lock(&run->lock);
	run->over = true;
	pthread_cond_signal(&run->ends);
	pthread_mutex_unlock(&run->lock);
	pthread_join(run->renewer, NULL);
}

static bool stopped(const struct held_run *run)
{
	return READ_ONCE(run->lost) || run->out_of_memory || (run->check->stop && *run->check->stop);
}

static bool on_stopped(void *ctx)
{
	return stopped(ctx);
}

static int on_problem(void *ctx, const struct check_problem *problem)
{
	struct held_run *run = ctx;
	struct held_check *check = run->check;
	struct held_problem *problems = check->problems;

	if (check->count < HELD_PROBLEMS_MAX && !(check->count & (check->count + 1))) {
		problems = realloc(check->problems, 2 * (check->count + 1) * sizeof(*problems));
		run->out_of_memory = !problems;
	}
	if (problems && check->count < HELD_PROBLEMS_MAX) {
		check->problems = problems;
		problems += check->count++;
		*problems = (struct held_problem){ .problem = *problem };
		problems->problem.raw_name = NULL;
	}
	return stopped(run);
}

static void on_progress(void *ctx, enum check_pass pass, u64 done, u64 total)
{
	struct held_run *run = ctx;

	if (run->check->progress)
		run->check->progress(run->check->ctx, pass, done, total);
}

static void find_paths(struct held_run *run, struct volume *vol)
{
	struct held_check *check = run->check;
	char *text = malloc(HELD_PATH);
	const char *path;
	u32 i;

	for (i = 0; text && i < check->count && !stopped(run); i++) {
		struct held_problem *problem = &check->problems[i];

		path = problem->problem.ino ? path_first(vol, problem->problem.ino, text, HELD_PATH) : NULL;
		if (path)
			problem->path = strdup(path);
	}
	free(text);
}

static int check_view(struct held_run *run, struct tux3_device *view)
{
	struct volume_options opts = {
		.read_only = true, .no_recovery = true, .manual = true, .cache_bytes = HELD_CACHE_BYTES,
		.anchor = (const struct disk_anchor *)run->hold.anchor,
	};
	struct held_check *check = run->check;
	struct check_options options = { .problem = on_problem, .progress = on_progress, .stopped = on_stopped, .ctx = run };
	struct volume *vol;
	int err = volume_open(view, NULL, &opts, &vol, check->why, sizeof(check->why));

	if (err)
		return err;
	check->why[0] = 0;
	err = volume_check(vol, &options, &check->result);
	if (err)
		snprintf(check->why, sizeof(check->why), "the check could not be finished (%s)", error_text(err));
	else
		find_paths(run, vol);
	volume_close(vol);
	return err;
}

/* Who else has one renews it, or it ends: then it is our turn, or that of another. */
static int take(struct held_run *run)
{
	u64 until = ktime_get_ns() + (TUX3_HOLD_S + 5) * 1000000000ull;
	struct timespec pause = { 0, 100000000 };
	int err;

	for (;;) {
		err = ask(run, TUX3_HOLD_TAKE);
		if (err != -EBUSY || !run->check->wait || ktime_get_ns() > until || stopped(run))
			return err;
		nanosleep(&pause, NULL);
	}
}

/* Is it the right one, by its anchors?  (Not those of a mounted device: a cache may have older ones.) */
static int find_device(struct held_check *check, const struct disk_anchor *anchor, struct tux3_device *dev)
{
	struct disk_anchor found;
	int err;

	dev->block_size = 1u << TUX3_MIN_BLOCK_SHIFT;
	err = check->image ? volume_read_anchor(dev, &found, NULL, check->why, sizeof(check->why)) : 0;
	if (err)
		return err;
	if (check->image && (found.volume_id != anchor->volume_id ||
			     le64_to_cpu(found.generation) < le64_to_cpu(anchor->generation))) {
		snprintf(check->why, sizeof(check->why), "what has that name now is another volume, or a copy of it");
		return -ENODEV;
	}
	if (le32_to_cpu(anchor->block_shift) <= TUX3_MAX_BLOCK_SHIFT)
		dev->block_size = 1u << le32_to_cpu(anchor->block_shift);
	return 0;
}

/* One try.  What it has found counts if the hold is still there at its end; so does that it failed. */
static int check_once(struct held_run *run, struct tux3_device *below)
{
	struct held_check *check = run->check;
	struct tux3_device *view;
	struct disk_anchor anchor;
	int err, held;

	held_check_free(check);
	run->lost = run->over = false;
	memset(&run->hold, 0, sizeof(run->hold));
	err = take(run);
	if (err) {
		snprintf(check->why, sizeof(check->why), "its state cannot be held (%s)", error_text(err));
		return err;
	}
	memcpy(&anchor, run->hold.anchor, sizeof(anchor));
	err = check->own_device ? find_device(check, &anchor, below) : 0;
	if (!err && pthread_create(&run->renewer, NULL, renew, run))
		err = -ENOMEM;
	if (err) {
		ask(run, TUX3_HOLD_RELEASE);
		return err;
	}
	view = device_view_create(below);
	err = view ? check_view(run, view) : -ENOMEM;
	if (view)
		view->ops->close(view);
	renewer_stop(run);
	held = run->lost ? -ESTALE : ask(run, TUX3_HOLD_RENEW);
	ask(run, TUX3_HOLD_RELEASE);
	if (check->stop && *check->stop)
		return -ECANCELED;
	if (held == -ESTALE)
		snprintf(check->why, sizeof(check->why), "what is checked was overwritten meanwhile, because space is short or it took too long");
	if (held)
		return held;
	return run->out_of_memory ? -ENOMEM : err;
}

int held_check(struct held_check *check, struct tux3_device *below)
{
	struct held_run run = { .check = check, .lock = PTHREAD_MUTEX_INITIALIZER, .ends = PTHREAD_COND_INITIALIZER };
	int err = -ESTALE;
	u32 tries;

	for (tries = 0; err == -ESTALE && tries < HELD_TRIES; tries++)
		err = check_once(&run, below);
	if (err)
		held_check_free(check);
	return err;
}

void held_check_free(struct held_check *check)
{
	u32 i;

	for (i = 0; i < check->count; i++)
		free(check->problems[i].path);
	free(check->problems);
	check->problems = NULL;
	check->count = 0;
}

/* ---- for programs that have tux3.h ---- */

static int hold_here(void *ctx, struct tux3_ioc_hold *hold)
{
	return volume_hold(((struct tux3 *)ctx)->vol, hold);
}

int tux3_check(struct tux3 *volume, tux3_check_fn fn, void *ctx)
{
	struct held_check check = { .hold = hold_here, .ctx = volume };
	int err = volume && fn ? held_check(&check, volume->vol->dev) : -EINVAL;
	u32 i;

	for (i = 0; !err && i < check.count; i++) {
		const struct check_problem *from = &check.problems[i].problem;
		struct tux3_check_problem problem = {
			.code = from->code, .name = from->name, .text = from->text, .path = check.problems[i].path,
			.ino = from->ino, .block = from->addr,
		};

		fn(ctx, &problem);
	}
	held_check_free(&check);
	return err;
}
