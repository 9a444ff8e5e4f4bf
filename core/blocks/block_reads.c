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
	int cpu;

	reads->slot = 0;
	atomic_set(&reads->awaited, 0);
	init_waitqueue_head(&reads->queue);
	range_list_init(&reads->kept);
	range_list_init(&reads->busy);
	reads->cpu = alloc_percpu(struct block_reads_cpu);
	if (!reads->cpu)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		spin_lock_init(&per_cpu_ptr(reads->cpu, cpu)->lock);
		INIT_LIST_HEAD(&per_cpu_ptr(reads->cpu, cpu)->reading);
	}
	return 0;
}

void block_reads_exit(struct block_reads *reads)
{
	free_percpu(reads->cpu);
	range_list_exit(&reads->kept);
	range_list_exit(&reads->busy);
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

static void reads_tell(struct block_reads *reads)
{
	smp_mb();		/* pairs with reads_wait(): it sees what we did, or we see that it waits */
	if (unlikely(atomic_read(&reads->awaited)))
		wake_up(&reads->queue);
}

void block_reads_end(struct volume *vol, unsigned int slot)
{
	struct block_reads *reads = &vol->reads;

	smp_mb();		/* the read is over, or on a list, before it counts as that */
	atomic64_inc(&raw_cpu_ptr(reads->cpu)->ended[slot]);
	reads_tell(reads);
}

void block_read_start(struct volume *vol, unsigned int slot, struct block_read *read)
{
	struct block_reads_cpu *cpu = raw_cpu_ptr(vol->reads.cpu);
	unsigned long flags;

	read->cpu = cpu;
	spin_lock_irqsave(&cpu->lock, flags);
	list_add(&read->link, &cpu->reading);
	WRITE_ONCE(cpu->count, cpu->count + 1);		/* reads_under_way() looks without the lock */
	spin_unlock_irqrestore(&cpu->lock, flags);
	block_reads_end(vol, slot);
}

void block_read_over(struct volume *vol, struct block_read *read)
{
	struct block_reads_cpu *cpu = read->cpu;
	unsigned long flags;

	spin_lock_irqsave(&cpu->lock, flags);
	list_del(&read->link);
	WRITE_ONCE(cpu->count, cpu->count - 1);
	spin_unlock_irqrestore(&cpu->lock, flags);
	reads_tell(&vol->reads);
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

/* ---- which blocks ---- */

/* The list is in order. */
static bool range_list_meets(const struct range_list *list, u64 addr, u64 end)
{
	u32 low = 0, high = list->count;

	while (low < high) {
		u32 mid = low + (high - low) / 2;

		if (list->ranges[mid].addr + list->ranges[mid].len <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low < list->count && list->ranges[low].addr < end;
}

/* Is anything of busy still being read? */
static bool reads_meet_busy(struct block_reads *reads)
{
	struct block_read *read;
	unsigned long flags;
	bool meets = false;
	int cpu;

	for_each_possible_cpu(cpu) {
		struct block_reads_cpu *at = per_cpu_ptr(reads->cpu, cpu);

		spin_lock_irqsave(&at->lock, flags);
		list_for_each_entry(read, &at->reading, link)
			meets |= range_list_meets(&reads->busy, read->addr, read->addr + read->count);
		spin_unlock_irqrestore(&at->lock, flags);
	}
	return meets;
}

static u64 reads_under_way(struct block_reads *reads)
{
	u64 count = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		count += READ_ONCE(per_cpu_ptr(reads->cpu, cpu)->count);
	return count;
}

/* What is being read, but not more than room for it: then more than room. */
static u64 reads_copy(struct block_reads *reads, struct block_range *ranges, u64 room)
{
	struct block_read *read;
	unsigned long flags;
	u64 count = 0;
	int cpu;

	for_each_possible_cpu(cpu) {
		struct block_reads_cpu *at = per_cpu_ptr(reads->cpu, cpu);

		spin_lock_irqsave(&at->lock, flags);
		list_for_each_entry(read, &at->reading, link)
			if (count++ < room)
				ranges[count - 1] = (struct block_range){ read->addr, read->count };
		spin_unlock_irqrestore(&at->lock, flags);
	}
	return count;
}

/* NULL: nothing is being read, or there is no memory (*err). */
static struct block_range *reads_collect(struct block_reads *reads, u64 *count, int *err)
{
	struct block_range *ranges;
	u64 room;

	*err = 0;
	*count = 0;
	while ((room = reads_under_way(reads))) {
		room += room / 4 + 16;	/* some may have come */
		ranges = kvmalloc(room * sizeof(*ranges), GFP_COMMIT);
		if (!ranges) {
			*err = -ENOMEM;
			return NULL;
		}
		*count = reads_copy(reads, ranges, room);
		if (*count <= room) {
			*count = block_ranges_unite(ranges, *count);
			return ranges;
		}
		kvfree(ranges);
	}
	return NULL;
}

/* What of list is being read goes to busy, the rest to free.  All are in order. */
static int ranges_divide(const struct range_list *list, const struct block_range *reading, u64 count, struct range_list *busy,
			 struct range_list *free)
{
	u64 at = 0, from, start, end, stop;
	int err = 0;
	u32 i;

	for (i = 0; i < list->count; i++) {
		from = list->ranges[i].addr;
		end = from + list->ranges[i].len;
		while (from < end && !err) {
			while (at < count && reading[at].addr + reading[at].len <= from)
				at++;
			start = at < count ? clamp(reading[at].addr, from, end) : end;
			stop = at < count ? clamp(reading[at].addr + reading[at].len, start, end) : end;
			if (start > from)
				err = range_list_add(free, from, start - from);
			if (!err && stop > start)
				err = range_list_add(busy, start, stop - start);
			from = stop;
		}
	}
	return err;
}

/* ---- giving back ---- */

static void reads_wait(struct block_reads *reads)
{
	atomic_set(&reads->awaited, 1);
	smp_mb();		/* pairs with reads_tell() */
	reads->overdue = !wait_event_timeout(reads->queue, reads_over(reads, !reads->slot) && !reads_meet_busy(reads), READS_WAIT);
	atomic_set(&reads->awaited, 0);
}

static int reads_give_back(struct volume *vol, struct range_list *list)
{
	trim_note(vol, list);
	return balloc_release(vol, list);
}

/* Of busy what is not being read any more. */
static int reads_sift(struct volume *vol)
{
	struct block_reads *reads = &vol->reads;
	struct range_list busy, free;
	struct block_range *reading;
	u64 count;
	int err;

	reading = reads_collect(reads, &count, &err);
	if (err)
		return 0;		/* later, then */
	if (!reading)
		return reads_give_back(vol, &reads->busy);
	range_list_init(&busy);
	range_list_init(&free);
	reads->busy.count = block_ranges_unite(reads->busy.ranges, reads->busy.count);
	if (!ranges_divide(&reads->busy, reading, count, &busy, &free)) {
		swap(reads->busy, busy);
		err = reads_give_back(vol, &free);
	}
	kvfree(reading);
	range_list_exit(&busy);
	range_list_exit(&free);
	return err;
}

/* What is kept, if nobody looks it up any more; and what nobody reads. */
static int reads_give_kept(struct volume *vol)
{
	struct block_reads *reads = &vol->reads;
	struct range_list *kept = &reads->kept;
	int err = 0;

	if (kept->count && reads_over(reads, !reads->slot)) {
		if (likely(!reads_under_way(reads)))
			err = reads_give_back(vol, kept);
		while (kept->count) {
			struct block_range *last = &kept->ranges[kept->count - 1];

			if (range_list_add(&reads->busy, last->addr, last->len))
				break;	/* no memory: later, then */
			kept->blocks -= last->len;
			kept->count--;
		}
	}
	return !err && unlikely(reads->busy.count) ? reads_sift(vol) : err;
}

/* As far as it goes without waiting. */
static int reads_advance(struct volume *vol)
{
	struct block_reads *reads = &vol->reads;
	int err = reads_give_kept(vol);

	if (!err && !reads->kept.count && vol->log.freed.count) {
		reads_turn(reads);
		if (!reads->busy.count)
			reads->overdue = false;
		WRITE_ONCE(reads->keeps, true);
		swap(reads->kept, vol->log.freed);
		err = reads_give_kept(vol);
	}
	WRITE_ONCE(reads->keeps, reads->kept.count || reads->busy.count);
	return err;
}

bool block_reads_keep(struct volume *vol)
{
	return READ_ONCE(vol->reads.keeps);
}

int block_reads_settle(struct volume *vol)
{
	struct block_reads *reads = &vol->reads;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (likely(!block_reads_keep(vol)) || reads->overdue)
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
