/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How far a workload got: what was reached is counted, so that a workload that no longer goes there is a failure. */
#include <stdio.h>
#include <string.h>
#include "fault.h"
#include "sim.h"
#include "core/log/replay.h"

#define READ_MS 8u	/* of the modelled disk */
#define MOUNT_KIB_MORE (64u << 10)	/* that a mount after a crash may take, more than a clean one */

static void raise_to(u64 *peak, u64 value)
{
	*peak = max(*peak, value);
}

static u64 should_be_none(struct sim_run *run, enum tux3_counter counter, const char *what)
{
	u64 count = delta_counter(tux3_core(run->volume), counter);

	if (count)
		sim_fail(run, "%llu %s", (unsigned long long)count, what);
	return count;
}

/* That more was spent than charged for space.h promises cannot be; and nothing is forged here. */
void reach_check_counters(struct sim_run *run)
{
	run->totals->overdrafts += should_be_none(run, TUX3_COUNT_OVERDRAFTS,
						  "commits or unifies took more blocks than they had been charged");
	should_be_none(run, TUX3_COUNT_ODD_ITEMS, "items that cannot be, or blocks given back that were free, were met by commits");
}

void reach_note(struct sim_run *run)
{
	struct volume *vol = tux3_core(run->volume);
	struct tux3_statfs stat;

	if (!tux3_statfs(run->volume, &stat) && stat.blocks)
		raise_to(&run->reach.full, (stat.blocks - stat.free_blocks) * 1000 / stat.blocks);
	raise_to(&run->reach.inodes, percpu_counter_sum(&vol->inodes));
	raise_to(&run->reach.log_blocks, vol->log.length);
	/* In no anchor yet: a sync may have begun with the unify of all that its commit made dirty. */
	raise_to(&run->reach.dirty_nodes, vol->tree.dirty_count + atomic64_read(&vol->unify.pending));
	raise_to(&run->reach.names, delta_counter(vol, TUX3_COUNT_FSYNCS_NAMES));
	raise_to(&run->reach.bad, run->disk->bad_hits);
	raise_to(&run->reach.lost, delta_counter(vol, TUX3_COUNT_INODES_LOST));
	raise_to(&run->reach.dirs, delta_counter(vol, TUX3_COUNT_FSYNCS_DIRS));
	raise_to(&run->reach.early, delta_counter(vol, TUX3_COUNT_EARLY_BLOCKS));
	raise_to(&run->reach.groups, vol->balloc.loaded);
	raise_to(&run->reach.reads, disk_read_passes(run->disk));
	run->reach.slices += !list_empty(&vol->delta.deletes);
}

void reach_note_mount(struct sim_run *run)
{
	struct volume *vol = tux3_core(run->volume);
	u64 ms = disk_read_passes(run->disk) * READ_MS;
	bool replayed = delta_counter(vol, TUX3_COUNT_REPLAYED) || vol->intent.recovered;

	raise_to(replayed ? &run->reach.mount_ms : &run->reach.clean_ms, ms);
	raise_to(replayed ? &run->reach.mount_kib : &run->reach.clean_kib, env_memory_peak() >> 10);
	if (!replayed)
		return;
	run->totals->recoveries++;
	run->totals->intents += vol->intent.recovered;
	raise_to(&run->reach.intents, vol->intent.recovered);
	raise_to(&run->reach.replay_log, vol->log.length);
	raise_to(&run->reach.replay_nodes, vol->tree.dirty_count);
}

void reach_merge(struct sim_reach *to, const struct sim_reach *from)
{
#define X(name, what, unit) raise_to(&to->name, from->name);
	SIM_REACH(X)
#undef X
}

void reach_check(struct sim_run *run, const struct sim_goal *goal)
{
	u64 kib = run->reach.clean_kib + MOUNT_KIB_MORE;

#define X(name, what, unit) \
	if (run->reach.name < goal->least.name) \
		sim_fail(run, "the workload does not get where it is to go: " what " %llu, at least %llu " unit, \
			 (unsigned long long)run->reach.name, (unsigned long long)goal->least.name); \
	if (goal->most.name && run->reach.name > goal->most.name) \
		sim_fail(run, "too much: " what " %llu, at most %llu " unit, (unsigned long long)run->reach.name, \
			 (unsigned long long)goal->most.name);
	SIM_REACH(X)
#undef X
	if (run->reach.clean_kib && run->reach.mount_kib > kib)
		sim_fail(run, "a mount after a crash took %llu KiB of memory, at most %llu are allowed",
			 (unsigned long long)run->reach.mount_kib, (unsigned long long)kib);
}

void reach_print(const char *name, const struct sim_reach *reach)
{
	printf("%s:", name);
#define X(name, what, unit) \
	if (reach->name) \
		printf(" " what " %llu " unit ";", (unsigned long long)reach->name);
	SIM_REACH(X)
#undef X
	printf("\n");
}
