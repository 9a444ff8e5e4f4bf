/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Many units of work (seeds, sequences) in several processes, so that a crash of one unit is a failed unit
 * and no more.  Counters, and where each process is, are in shared memory.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "sim.h"
#include "core/options.h"

#define JOBS_MAX	64u
#define STEP_SECONDS	60u	/* a single image takes at most so long, of CPU time: on a busy machine it waits */
#define STUCK_SECONDS	900u	/* and so long by the clock: it waits for what never comes */
#define FAILURES_MAX	20u	/* after so many, stop */

struct worker {
	struct sim_totals totals;
	pid_t pid;
	u64 unit;
	s64 cut, image, nth;
};

struct shared {
	u64 next, failed;
	bool stop;
	struct worker workers[JOBS_MAX];
};

static struct shared *shared;
static struct worker *this_worker;

void jobs_at(s64 cut, s64 image)
{
	if (!this_worker)
		return;
	this_worker->cut = cut;
	this_worker->image = image;
}

void jobs_at_nth(s64 nth)
{
	if (this_worker)
		this_worker->nth = nth;
}

void jobs_watchdog(void)
{
	struct itimerval cpu = { .it_value.tv_sec = STEP_SECONDS };

	setitimer(ITIMER_PROF, &cpu, NULL);
	alarm(STUCK_SECONDS);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

const char *const canary_names[CANARIES] = {
#define X(NAME, name, what) [CANARY_##NAME] = name,
	SIM_CANARIES(X)
#undef X
	[CANARY_CHEAP_COSTS] = "cheap",
#define X(NAME, name, what) [CANARY_CHEAP_##NAME] = "cheap-" name,
	SPACE_FORMULAS(X)
#undef X
};

void jobs_replay_command(const struct sim_config *config, u64 unit, char *text, size_t size)
{
	size_t used = scnprintf(text, size, "build/tux3-sim");

	if (config->mode == MODE_FAMILY)
		used += scnprintf(text + used, size - used, " --family %s", family_name(family_of_unit(config, unit, &unit)));
	if (config->mode == MODE_EXHAUSTIVE)
		used += scnprintf(text + used, size - used, " --exhaustive %u", config->length);
	if (config->mode == MODE_IO_ERRORS)
		used += scnprintf(text + used, size - used, " --io-errors");
	if (config->mode == MODE_ALLOC_ERRORS)
		used += scnprintf(text + used, size - used, " --alloc-errors");
	if (config->mode == MODE_THREADS)
		used += scnprintf(text + used, size - used, " --threads %u", config->threads);
	if (config->canary)
		used += scnprintf(text + used, size - used, " --canary=%s", canary_names[config->canary]);
	if (config->cheap_by > 1)
		used += scnprintf(text + used, size - used, " --less %u", config->cheap_by);
	if (config->fsync != TUX3_FSYNC_DEFAULT)
		used += scnprintf(text + used, size - used, " --fsync %s", option_fsync_words[config->fsync]);
	if (config->ops)
		used += scnprintf(text + used, size - used, " --ops %u", config->ops);
	used += scnprintf(text + used, size - used, " --seed %llu", unit);
	if (this_worker && this_worker->nth >= 0)
		used += scnprintf(text + used, size - used, " --nth %lld", this_worker->nth);
	else if (this_worker && this_worker->cut >= 0)
		used += scnprintf(text + used, size - used, " --cut %lld --image %lld", this_worker->cut,
				  this_worker->image);
}

static void tell_failure(const struct sim_config *config, u64 unit)
{
	char command[256];

	jobs_replay_command(config, unit, command, sizeof(command));
	printf("replay: %s\n", command);
	fflush(stdout);
	if (__atomic_add_fetch(&shared->failed, 1, __ATOMIC_RELAXED) >= FAILURES_MAX || config->canary)
		shared->stop = true;
}

static void run_units(const struct sim_config *config, unit_fn fn, u64 first, u64 count, double deadline)
{
	struct worker *worker = this_worker;

	while (!shared->stop && (!deadline || seconds() < deadline)) {
		u64 n = __atomic_fetch_add(&shared->next, 1, __ATOMIC_RELAXED);

		if (n >= count)
			return;
		worker->unit = first + n;
		worker->cut = worker->image = worker->nth = -1;
		jobs_watchdog();
		if (fn(config, &worker->totals, first + n)) {
			worker->totals.passed++;
		} else {
			worker->totals.failed++;
			tell_failure(config, first + n);
		}
	}
}

static void start_worker(struct worker *worker, const struct sim_config *config, unit_fn fn, u64 first, u64 count,
			 double deadline)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("tux3-sim: fork");
		exit(2);
	}
	if (pid) {
		worker->pid = pid;
		return;
	}
	this_worker = worker;
	run_units(config, fn, first, count, deadline);
	fflush(stdout);
	_exit(0);
}

/* A worker ended. True: of its own will. */
static bool judge_worker(struct worker *worker, const struct sim_config *config, int status)
{
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return true;
	this_worker = worker;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
		printf("FAILED seed %llu: no progress in %u seconds of CPU time\n", worker->unit, STEP_SECONDS);
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		printf("FAILED seed %llu: no progress for %u seconds\n", worker->unit, STUCK_SECONDS);
	else if (WIFSIGNALED(status))
		printf("FAILED seed %llu: died of signal %d (%s)\n", worker->unit, WTERMSIG(status),
		       strsignal(WTERMSIG(status)));
	else
		printf("FAILED seed %llu: exit status %d\n", worker->unit, WEXITSTATUS(status));
	worker->totals.failed++;
	tell_failure(config, worker->unit);
	this_worker = NULL;
	return false;
}

static void show_progress(u64 count, double begun)
{
	u64 done = min_t(u64, shared->next, count);
	double spent = seconds() - begun;

	fprintf(stderr, "\r%llu of %llu, %.0f per second, about %.0f s left   ", (unsigned long long)done,
		(unsigned long long)count, done / spent, done ? (count - done) * spent / done : 0);
}

static void wait_for_workers(const struct sim_config *config, unit_fn fn, u64 first, u64 count, double begun,
			     double deadline)
{
	u32 running = config->jobs, i;

	for (i = 0; i < config->jobs; i++)
		start_worker(&shared->workers[i], config, fn, first, count, deadline);
	while (running) {
		int status;
		pid_t pid = waitpid(-1, &status, isatty(2) ? WNOHANG : 0);

		if (pid == 0) {
			show_progress(count, begun);
			usleep(500000);
			continue;
		}
		for (i = 0; i < config->jobs && shared->workers[i].pid != pid; i++)
			;
		if (pid < 0 || i == config->jobs)
			continue;
		if (judge_worker(&shared->workers[i], config, status) || shared->stop)
			running--;
		else
			start_worker(&shared->workers[i], config, fn, first, count, deadline);
	}
	if (isatty(2))
		fprintf(stderr, "\r%60s\r", "");
}

static void print_totals(const struct sim_totals *totals, double spent)
{
	printf("%llu operations, %llu commits, %llu writes, %llu cuts, %llu images (%llu of them second-level), "
	       "%llu checks, %llu comparisons, %llu out of space, %llu over quota, %llu faults, %llu recoveries, %llu cuts in recoveries, "
	       "%llu overdrafts, %llu fsyncs ahead, %llu intents recovered; %.1f s\n",
	       totals->ops, totals->commits, totals->writes, totals->cuts, totals->images, totals->second_images,
	       totals->checks, totals->compares, totals->enospc, totals->edquot, totals->faults, totals->recoveries,
	       totals->recovery_cuts, totals->overdrafts, totals->ahead, totals->intents, spent);
	printf("%llu passed, %llu failed\n", totals->passed, totals->failed);
}

static void print_reach(const struct sim_totals *totals)
{
	static const struct sim_reach nothing;
	u32 i;

	for (i = 0; i < SIM_KINDS; i++)
		if (memcmp(&totals->reach[i], &nothing, sizeof(nothing)))
			reach_print(family_name(i) ? family_name(i) : "reached", &totals->reach[i]);
}

int jobs_run(const struct sim_config *config, unit_fn fn, u64 first, u64 count)
{
	double begun = seconds(), deadline = config->minutes ? begun + 60.0 * config->minutes : 0;
	struct sim_totals totals = { 0 };
	u32 i, k;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("tux3-sim: mmap");
		return 2;
	}
	if (count == 1) {	/* in this process, for the debugger */
		this_worker = &shared->workers[0];
		run_units(config, fn, first, count, deadline);
	} else {
		wait_for_workers(config, fn, first, count, begun, deadline);
	}
	for (i = 0; i < JOBS_MAX; i++) {
#define X(name) totals.name += shared->workers[i].totals.name;
		SIM_TOTALS(X)
#undef X
		for (k = 0; k < SIM_KINDS; k++)
			reach_merge(&totals.reach[k], &shared->workers[i].totals.reach[k]);
	}
	print_reach(&totals);
	print_totals(&totals, seconds() - begun);
	if (config->canary) {
		printf(totals.failed ? "canary caught\n" : "the canary was NOT caught: the oracle is blind\n");
		return totals.failed ? 0 : 1;
	}
	return totals.failed || !totals.passed ? 1 : 0;
}
