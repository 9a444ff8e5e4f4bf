// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads past the host's cache, counted: described in block_reads.h.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/blocks/trim.h"
#include "core/blocks/block_reads.h"

#define READS_WAIT	(HZ / 2)	/* for blocks that are missed; then who misses them has to do without */
#define READS_FREED_MAX	(1u << 16)	/* ranges that wait for a turn: from then on commits take their time */

int block_reads_init(struct block_reads *reads)
{
	reads->slot = 0;
	atomic_set(&reads->awaited, 0);
	init_waitqueue_head(&reads->queue);
	range_list_init(&reads->kept);
	reads->cpu = alloc_percpu(struct block_reads_cpu);
	return reads->cpu ? 0 : -ENOMEM;
}

void block_reads_exit(struct block_reads *reads)
{
	free_percpu(reads->cpu);
	range_list_exit(&reads->kept);
}

unsigned int block_reads_begin(struct volume *vol)
{
	struct block_reads *reads = &vol->reads;
	struct block_reads_cpu *cpu = raw_cpu_ptr(reads->cpu);
	unsigned int slot;

	for (;;) {
		slot = READ_ONCE(reads->slot);
		atomic64_inc(&cpu->began[slot]);
		smp_mb();	/* pairs with reads_turn(): it sees us, or we see its slot and what was freed before */
		if (likely(READ_ONCE(reads->slot) == slot))
			return slot;
		block_reads_end(vol, slot);
	}
}

void block_reads_end(struct volume *vol, unsigned int slot)
{
	struct block_reads *reads = &vol->reads;

	smp_mb();		/* the read is over before it counts as that */
	atomic64_inc(&raw_cpu_ptr(reads->cpu)->ended[slot]);
	smp_mb();		/* pairs with reads_wait(): it sees our count, or we see that it waits */
	if (unlikely(atomic_read(&reads->awaited)))
		wake_up(&reads->queue);
}

/* ended[] is summed first: each that is seen has its began[] seen, too. */
static bool reads_over(struct block_reads *reads, unsigned int slot)
{
	s64 ended = 0, began = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		ended += atomic64_read(&per_cpu_ptr(reads->cpu, cpu)->ended[slot]);
	smp_mb();
	for_each_possible_cpu(cpu)
		began += atomic64_read(&per_cpu_ptr(reads->cpu, cpu)->began[slot]);
	return ended == began;
}

/* Those who come use the other slot, in which nobody is. */
static void reads_turn(struct block_reads *reads)
{
	smp_mb();
	WRITE_ONCE(reads->slot, !reads->slot);
	smp_mb();		/* pairs with block_reads_begin() */
}

static void reads_wait(struct block_reads *reads)
{
	atomic_set(&reads->awaited, 1);
	smp_mb();		/* pairs with block_reads_end() */
	reads->overdue = !wait_event_timeout(reads->queue, reads_over(reads, !reads->slot), READS_WAIT);
	atomic_set(&reads->awaited, 0);
}

static int reads_give_back(struct volume *vol, struct range_list *list)
{
	trim_note(vol, list);
	return balloc_release(vol, list);
}

/* What is kept, if nobody reads it any more. */
static int reads_give_kept(struct volume *vol)
{
	struct block_reads *reads = &vol->reads;

	return reads->kept.count && reads_over(reads, !reads->slot) ? reads_give_back(vol, &reads->kept) : 0;
}

/* As far as it goes without waiting. */
static int reads_advance(struct volume *vol)
{
	struct block_reads *reads = &vol->reads;
	int err = reads_give_kept(vol);

	if (err || reads->kept.count || !vol->log.freed.count)
		return err;
	reads_turn(reads);
	reads->overdue = false;
	swap(reads->kept, vol->log.freed);
	return reads_give_kept(vol);
}

bool block_reads_keep(struct volume *vol)
{
	return READ_ONCE(vol->reads.kept.count);
}

int block_reads_settle(struct volume *vol)
{
	struct block_reads *reads = &vol->reads;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (likely(!reads->kept.count) || reads->overdue)
		return 0;
	reads_wait(reads);
	return reads_advance(vol);
}

int block_reads_release(struct volume *vol)
{
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	err = reads_advance(vol);
	if (!err && unlikely(vol->log.freed.count > READS_FREED_MAX)) {
		reads_wait(&vol->reads);
		err = reads_advance(vol);
	}
	return err;
}
