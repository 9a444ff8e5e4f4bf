// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How much a delta may hold, from what the device achieves.
 *
 * Who wants a commit now (fsync, sync, umount, reclaim) waits for the rest of the one under way, and for one of what the
 * front delta holds.  So a delta should hold no more than the device writes in opts.delta_ms, about a second: then they
 * wait two at most.  Writers wait when the front delta holds that much (delta_throttle); a commit is due at half of it.
 * The back end then always finds the next delta full when it comes back from a commit, and never waits for a writer.
 *
 * A device that writes as much as the options allow a delta to hold in that time sets no limit at all: there it is
 * the options that count, as if nothing were measured.
 *
 * What is measured.  The bytes of a commit, data and log, over the time during which writes of it were in flight or a
 * flush was under way.  Time in which the device had nothing to do is not in it, so a back end that is short of CPU, or
 * of work, does not make the device look slow; and the flush is in it, so a cache does not make it look fast.
 *
 * What is fixed about a commit (a flush of nothing, a turn of the disk) says nothing of the bandwidth: it is learned from
 * commits that write next to nothing, and taken off.  But never most of the time, since it may be out of date.
 *
 * The average is one over time, not over commits: bandwidth is the sum of bytes over the sum of times, and both sums
 * fade by as much as is added to the time.  So small commits weigh little, one that took long weighs much, a device that
 * becomes slow is noticed by the first commit that shows it, and one that becomes fast in a few seconds of writing.
 *
 * A second is far too long for who waits for all of a delta beside somebody else's load.  So while such fsyncs come, and for
 * a while after, a delta holds no more than is committed in 20 ms, whatever that takes: on a fast device it is the back
 * end's CPU time, and that is measured in the same way, over whole commits.  Load that nobody waits for gets the large
 * deltas, with fewer flushes and fewer nodes written twice.
 *
 * Who fsyncs a file that is most of all that waits is none of them: small deltas would have the file written in many parts, with
 * a flush each.  (Files of 8 MiB, one after the other, on a disk of 100 MB/s: 5 flushes each instead of 2, 52 MB/s instead of 116.)
 *
 * Where fsyncs go ahead of the delta (core/intent/) they do not wait for it: deltas are large.  Files that are removed or written
 * anew in that time are never written, and that is most of what such programs make.  Of who cannot go ahead there may come more:
 * so for a few seconds after the two deltas hold what is committed in 100 ms.  And so they do when who syncs ahead waits all the
 * same: before he may write what he will sync next, for the delta that a stream has filled (delta_throttle).  What an intent writes
 * waits in the device's queue behind what the commit under way, or a unify, has put there: so that is kept short, too; even while
 * nobody calls fsync, for the first who does.
 *
 * The first commit of a mount makes the areas for intents.  So it comes before a load has made it a long one.
 *
 * Without a thread commits are made by the operations themselves, and nobody's fsync waits for another's data.  There
 * is no limit then: deltas end where the options say, every time in the same place.
 */
#include "core/volume.h"
#include "core/delta/pace.h"

#define PACE_AWAITED_BYTES	(1u << 20)	/* a commit that is awaited: enough to see that a file is large */
#define PACE_SMALL_BYTES	(64u << 10)	/* a commit of so little takes what any commit takes */
#define PACE_LEARN_BYTES	(512u << 10)	/* one of so much tells of the bandwidth */
#define PACE_WINDOW_US		(3u * 1000 * 1000)	/* of I/O: over so much the average goes */
#define PACE_BASE_SHARE		8u		/* of a larger time than before goes into base_ns ... */
#define PACE_BASE_GROWTH	8u		/* ... but of no more than so many times base_ns: the disk was suspended */
#define PACE_BYTES_MAX		(1ULL << 36)	/* a commit's, and bytes per us, so that the sums fit */
#define PACE_FASTEST		(1u << 17)
#define PACE_SYNC_MS		20u		/* what a commit takes while fsyncs wait for it ... */
#define PACE_WAITED_MS		100u		/* ... or waited lately, or who calls them waits in between ... */
#define PACE_SYNC_BASES		4u		/* ... or so many times what the smallest takes */
#define PACE_SYNC_FLIGHT_MS	2u		/* what the device does in this time may be in flight then ... */
#define PACE_SYNC_FLIGHT_BYTES	(256u << 10)	/* ... or so much */
#define PACE_FLIGHT_MS		100u		/* and so when there was none lately: for the first one */
#define PACE_FLIGHT_BYTES	(4u << 20)
#define PACE_SYNC_MEMORY_NS	(2ULL * NSEC_PER_SEC)	/* they come, if one came so lately */
#define PACE_WAITED_MEMORY_NS	(5ULL * NSEC_PER_SEC)

/* What the device writes in opts.delta_ms. */
static u64 pace_target(struct volume *vol)
{
	u64 bandwidth = min_t(u64, READ_ONCE(vol->pace.bandwidth), S64_MAX / U32_MAX);

	return max_t(u64, bandwidth * vol->opts.delta_ms / 1000, PACE_MIN_BYTES);
}

static bool pace_lately(u64 ns, u64 memory_ns)
{
	return ns && (s64)(ktime_get_ns() - ns) < (s64)memory_ns;
}

static bool pace_syncing(struct pace *pace)
{
	return pace_lately(READ_ONCE(pace->synced_ns), PACE_SYNC_MEMORY_NS);
}

/* What is committed, by the device and by the CPU, in the time for which an fsync may wait for others' load; U64_MAX: none does. */
static u64 pace_sync_target(struct pace *pace)
{
	u64 base_us = READ_ONCE(pace->base_ns) / 1000, us;

	if (!READ_ONCE(pace->load_rate) || !pace_lately(READ_ONCE(pace->waited_ns), PACE_WAITED_MEMORY_NS))
		return U64_MAX;
	us = (pace_lately(READ_ONCE(pace->whole_ns), PACE_SYNC_MEMORY_NS) ? PACE_SYNC_MS : PACE_WAITED_MS) * 1000;
	us = max_t(u64, us, PACE_SYNC_BASES * base_us);
	return max_t(u64, READ_ONCE(pace->load_rate) / 1000 * min_t(u64, us, PACE_WINDOW_US) / 1000, PACE_SYNC_MIN_BYTES);
}

void pace_update(struct volume *vol)
{
	u64 commit = READ_ONCE(vol->opts.dirty_bytes), limit = READ_ONCE(vol->opts.dirty_limit_bytes);
	struct pace *pace = &vol->pace;
	bool limited = false;

	if (!vol->opts.manual && vol->opts.delta_ms != U32_MAX) {
		u64 target = READ_ONCE(pace->bandwidth) ? pace_target(vol) : 2 * PACE_FIRST_BYTES;
		u64 least = PACE_MIN_BYTES, sync = pace_sync_target(pace);

		if (sync != U64_MAX) {
			target = min(target, sync);
			least = PACE_SYNC_MIN_BYTES / 2;
		}
		limited = target < limit;
		limit = min(limit, target);
		commit = min(commit, max_t(u64, target / 2, least));
	}
	if (!vol->opts.manual && READ_ONCE(pace->awaited))
		commit = min_t(u64, commit, PACE_AWAITED_BYTES);
	WRITE_ONCE(pace->change_bytes, limited ? PACE_CHANGE_BYTES : 0);
	WRITE_ONCE(pace->commit_bytes, commit);
	WRITE_ONCE(pace->limit_bytes, limit);
}

static void pace_learn_base(struct pace *pace, u64 ns)
{
	u64 base = pace->base_ns;

	WRITE_ONCE(pace->base_ns, !base || ns < base ? ns : base + min(ns - base, PACE_BASE_GROWTH * base) / PACE_BASE_SHARE);
}

/* Add to an average over time: what it covers is at most the window, and the rest fades by as much as is added. */
static u64 pace_average(u64 *sum, u64 *sum_us, u64 bytes, u64 ns, u64 base_ns)
{
	u64 us, keep;

	bytes = min(bytes, PACE_BYTES_MAX);
	us = max((ns - min(base_ns, ns / 4 * 3)) / 1000, bytes / PACE_FASTEST) + 1;
	if (us > PACE_WINDOW_US) {		/* one that fills the window, and more, is all there is in it */
		bytes = bytes * PACE_WINDOW_US / us;
		us = PACE_WINDOW_US;
	}
	keep = PACE_WINDOW_US - us;
	*sum = *sum * keep / PACE_WINDOW_US + bytes;
	*sum_us = *sum_us * keep / PACE_WINDOW_US + us;
	return max_t(u64, *sum * 1000000 / *sum_us, 1);
}

void pace_learn(struct volume *vol, u64 bytes, u64 ns, bool alone)
{
	struct pace *pace = &vol->pace;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (bytes && bytes <= PACE_SMALL_BYTES && alone)
		pace_learn_base(pace, ns);
	if (bytes < PACE_LEARN_BYTES)
		return;
	WRITE_ONCE(pace->bandwidth, pace_average(&pace->bytes, &pace->us, bytes, ns, pace->base_ns));
	pace_update(vol);
}

void pace_learn_load(struct volume *vol, u64 bytes, u64 ns)
{
	struct pace *pace = &vol->pace;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (bytes >= PACE_LEARN_BYTES / 2)
		WRITE_ONCE(pace->load_rate, pace_average(&pace->load_bytes, &pace->load_us, bytes, ns, pace->base_ns));
	if (READ_ONCE(pace->waited_ns))
		pace_update(vol);
}

u64 pace_in_flight_max(struct volume *vol)
{
	struct pace *pace = &vol->pace;

	bool syncing = pace_syncing(pace);
	u64 ms = syncing ? PACE_SYNC_FLIGHT_MS : PACE_FLIGHT_MS, least = syncing ? PACE_SYNC_FLIGHT_BYTES : PACE_FLIGHT_BYTES;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (vol->opts.manual || (!syncing && !pace->bandwidth))
		return U64_MAX;
	return max_t(u64, READ_ONCE(pace->bandwidth) / 1000 * ms, least);
}

u64 pace_commit_us(struct volume *vol, u64 bytes)
{
	u64 rate = READ_ONCE(vol->pace.load_rate);

	return rate ? min(bytes, PACE_BYTES_MAX) * 1000000 / rate : 0;
}

void pace_sync(struct volume *vol, bool whole)
{
	struct pace *pace = &vol->pace;
	bool known = pace_lately(READ_ONCE(pace->whole_ns), PACE_SYNC_MEMORY_NS);
	u64 now = ktime_get_ns();

	WRITE_ONCE(pace->synced_ns, now);
	if (!whole)
		return;
	WRITE_ONCE(pace->whole_ns, now);
	WRITE_ONCE(pace->waited_ns, now);
	if (!known)
		pace_update(vol);
}

void pace_await(struct volume *vol, bool awaited)
{
	if (READ_ONCE(vol->pace.awaited) == awaited)
		return;
	WRITE_ONCE(vol->pace.awaited, awaited);
	pace_update(vol);
}

void pace_wait(struct volume *vol)
{
	struct pace *pace = &vol->pace;
	bool known = pace_lately(READ_ONCE(pace->waited_ns), PACE_WAITED_MEMORY_NS);

	WRITE_ONCE(pace->waited_ns, ktime_get_ns());
	if (!known)
		pace_update(vol);
}
