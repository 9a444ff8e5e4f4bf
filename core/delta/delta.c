// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Entering and leaving deltas, who commits them and when.  The picture is in delta.h.
 *
 * Triggers of a commit: the age of the front delta, its dirty data, its number of changes, somebody who
 * needs one (sync, space), and long deletes that go on.  Of a unify: log length, dirty nodes, changed groups, idle
 * time, somebody who needs space.  The volume's thread looks at them; without it (manual) the
 * operation that finds one does the work before it enters.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/blocks/trim.h"
#include "core/blocks/block_reads.h"
#include "core/tree/tree.h"
#include "core/delta/delta.h"
#include "core/delta/pace.h"
#include "core/delta/space.h"
#include "core/data/delete.h"
#include "core/commit/commit.h"
#include "core/commit/put_off.h"
#include "core/commit/unify.h"
#include "core/intent/intent.h"

#define CONFIRM_BLOCKS 2	/* charged for it: a log block, and some slack */
#define IDLE_UNIFY_MS	15000u	/* nothing happened for so long: unify, so that the next mount has no log */
#define POLL_MS		10u	/* while a unify has I/O in flight */
#define BYTES_BATCH_MAX	(1u << 20)	/* a CPU counts so much by itself, at most */
#define CHANGES_BATCH_MAX 64u

static struct lock_class_key delta_inside_key;

static void delta_free_counts(struct delta_state *delta)
{
	int i;

	for (i = 0; i < 2; i++) {
		percpu_counter_destroy(&delta->dirty_bytes[i]);
		percpu_counter_destroy(&delta->changes[i]);
		percpu_counter_destroy(&delta->leaves[i]);
	}
	free_percpu(delta->cpu);
	delta->cpu = NULL;
}

int delta_init(struct volume *vol)
{
	struct delta_state *delta = &vol->delta;
	int i, err;

	mutex_init(&delta->commit_mutex);
	lockdep_init_map(&delta->inside.dep_map, "tux3_delta", &delta_inside_key, 0);
	atomic_set(&delta->wholes, 0);
	init_waitqueue_head(&delta->commit_queue);
	init_waitqueue_head(&delta->drain_queue);
	init_waitqueue_head(&delta->gate_queue);
	init_waitqueue_head(&delta->thread_queue);
	INIT_LIST_HEAD(&delta->deletes);
	INIT_LIST_HEAD(&delta->cuts);
	INIT_LIST_HEAD(&delta->deletes_done);
	INIT_LIST_HEAD(&delta->cuts_put_off);
	spin_lock_init(&delta->forgotten_lock);
	spin_lock_init(&delta->pass_lock);
	INIT_LIST_HEAD(&delta->forgotten);
	delta->bytes_batch = delta->changes_batch = delta->leaves_batch = 1;
	delta->cpu = alloc_percpu(struct delta_cpu);	/* zeroed, as the kernel's is */
	err = delta->cpu ? 0 : -ENOMEM;
	for (i = 0; i < 2; i++) {
		init_llist_head(&delta->dirty[i]);
		init_llist_head(&delta->remaps[i]);
		atomic64_set(&delta->value_bytes[i], 0);
		atomic64_set(&delta->extra[i], 0);
		atomic64_set(&delta->first_change_ns[i], 0);
		if (!err)
			err = percpu_counter_init(&delta->dirty_bytes[i], 0, GFP_KERNEL);
		if (!err)
			err = percpu_counter_init(&delta->changes[i], 0, GFP_KERNEL);
		if (!err)
			err = percpu_counter_init(&delta->leaves[i], 0, GFP_KERNEL);
	}
	if (err)
		delta_free_counts(delta);
	return err;
}

void delta_forget_later(struct volume *vol, u64 ino)
{
	struct delta_state *delta = &vol->delta;
	struct delta_forgotten *forgotten = kzalloc(sizeof(*forgotten), GFP_NOFS | __GFP_NOWARN);

	if (!forgotten)
		return;
	forgotten->ino = ino;
	spin_lock(&delta->forgotten_lock);
	if (vol->read_only) {
		list_add_tail(&forgotten->link, &delta->forgotten);
		forgotten = NULL;
	}
	spin_unlock(&delta->forgotten_lock);
	kfree(forgotten);
}

void delta_take_forgotten(struct volume *vol, struct list_head *list)
{
	spin_lock(&vol->delta.forgotten_lock);
	list_splice_init(&vol->delta.forgotten, list);
	spin_unlock(&vol->delta.forgotten_lock);
}

static void drop_forgotten(struct volume *vol)
{
	struct delta_forgotten *forgotten, *next;
	struct list_head list;

	INIT_LIST_HEAD(&list);
	delta_take_forgotten(vol, &list);
	list_for_each_entry_safe(forgotten, next, &list, link)
		kfree(forgotten);
}

void delta_set_writable(struct volume *vol)
{
	spin_lock(&vol->delta.forgotten_lock);
	WRITE_ONCE(vol->read_only, false);
	spin_unlock(&vol->delta.forgotten_lock);
	drop_forgotten(vol);
}

void delta_exit(struct volume *vol)
{
	drop_forgotten(vol);
	delta_free_counts(&vol->delta);
}

void delta_lock(struct volume *vol)
{
	lockdep_assert_not_held(&vol->delta.inside);
	mutex_lock(&vol->delta.commit_mutex);
	vol->delta.nofs = memalloc_nofs_save();
}

int delta_lock_killable(struct volume *vol)
{
	lockdep_assert_not_held(&vol->delta.inside);
	if (mutex_lock_killable(&vol->delta.commit_mutex))
		return -EINTR;
	vol->delta.nofs = memalloc_nofs_save();
	return 0;
}

void delta_unlock(struct volume *vol)
{
	unsigned int nofs = vol->delta.nofs;

	mutex_unlock(&vol->delta.commit_mutex);
	wake_up_all(&vol->delta.commit_queue);
	memalloc_nofs_restore(nofs);
}

static void delta_wake_thread(struct volume *vol)
{
	if (vol->delta.thread)
		wake_up(&vol->delta.thread_queue);
}

void delta_request(struct volume *vol)
{
	if (!atomic_read(&vol->delta.wanted)) {
		atomic_set(&vol->delta.wanted, 1);
		delta_wake_thread(vol);
	}
}

#define OVERLAY_LIMIT_FACTOR 8	/* writers wait when the front delta has so many times what makes a commit due */

/* What writing the delta of this slot takes, in bytes, where that counts. */
static s64 delta_slot_bytes(struct volume *vol, unsigned int slot, s64 changes)
{
	return delta_dirty_bytes(&vol->delta, slot) + changes * READ_ONCE(vol->pace.change_bytes);
}

/* A commit is due. */
static bool delta_slot_due(struct volume *vol, unsigned int slot)
{
	s64 changes = delta_changes(&vol->delta, slot);

	return changes >= (s64)vol->opts.overlay_entries ||
	       delta_slot_bytes(vol, slot, changes) >= (s64)READ_ONCE(vol->pace.commit_bytes);
}

/* Writers wait. */
static bool delta_slot_full(struct volume *vol, unsigned int slot)
{
	s64 changes = delta_changes(&vol->delta, slot);

	return changes >= (s64)(vol->opts.overlay_entries * OVERLAY_LIMIT_FACTOR) ||
	       delta_slot_bytes(vol, slot, changes) >= (s64)READ_ONCE(vol->pace.limit_bytes);
}

#define COMMIT_SURELY	1u	/* nothing ends the wait */
#define COMMIT_PUT_OFF	2u	/* if we commit it, stores through mappings may stay for the one after it */
#define COMMIT_EMPTY	4u	/* also if nothing was changed yet: operations may be under way */
#define COMMIT_THREAD	8u	/* the thread is to make it */

#define LARGE_BYTES (4u << 20)

/*
 * Is it the front delta, and better committed by the thread?  A large one is, for who makes a commit cannot be killed (surely: nor
 * while he waits for one).  So is any that is wanted by who may be kept from the CPU in the middle of it, and all others with him.
 */
static bool delta_is_for_thread(struct volume *vol, u64 target, unsigned int flags)
{
	struct delta_state *delta = &vol->delta;

	if (!delta->thread || READ_ONCE(delta->front) != target || READ_ONCE(delta->paused))
		return false;
	if (!(flags & COMMIT_SURELY) && delta_dirty_bytes_sum(delta, target & 1) >= LARGE_BYTES)
		return true;
	return (flags & COMMIT_THREAD || (vol->host->lacks_time && vol->host->lacks_time(vol))) && delta_has_changes(vol);
}

/*
 * Is there still something that the thread will commit?  What was changed in the front delta stays until it is committed; but a
 * delete that goes on may end with the commit before, and then nobody commits this one.
 */
static bool delta_awaits_thread(struct volume *vol, u64 target)
{
	struct delta_state *delta = &vol->delta;

	if (READ_ONCE(delta->committed) >= target || volume_error(vol) || READ_ONCE(delta->paused))
		return false;
	if (READ_ONCE(delta->front) != target)		/* it is being committed */
		return true;
	if (!delta_has_changes(vol))
		return false;
	delta_request(vol);
	return true;
}

/*
 * Become the back end, unless target becomes durable before: 0 then, or when the volume had an error; else 1.  Who waits
 * for a commit that somebody else makes so never waits for the one after it.  -EINTR: the caller was killed.
 */
static int delta_lock_for(struct volume *vol, u64 target, unsigned int flags)
{
	struct delta_state *delta = &vol->delta;
	bool locked = false, surely = flags & COMMIT_SURELY;
	int err = 0;

	if (delta_is_for_thread(vol, target, flags))
		err = delta_wait(delta->commit_queue, !delta_awaits_thread(vol, target), surely);
	if (!err)
		err = delta_wait(delta->commit_queue, READ_ONCE(delta->committed) >= target || volume_error(vol) ||
						      (locked = mutex_trylock(&delta->commit_mutex)), surely);
	if (locked)
		delta->nofs = memalloc_nofs_save();
	return err ? err : locked;
}

/* ---- how long would a recovery take? ---- */

#define RECOVERY_GROUP_BYTES (16u << 20)	/* for packed groups */
#define RECOVERY_LOOKS 256u	/* so often at least on the way to the limit */

/*
 * A mount after a crash reads the log, and each leaf that it changes.  Both are bounded: writers wait before they get
 * longer than what is replayed in a few seconds on a slow disk (replay_nodes), and a unify is due at half of that.
 *
 * What the front delta will touch is only guessed.  Inodes with neighbouring numbers share leaves, new ones are neighbours;
 * names in large directories, being sorted by hash, share none.  No more leaves can be touched than there are.
 */
void delta_guess_leaf(struct delta_op *op, u64 ino, bool first, u64 entries)
{
	struct delta_state *delta = &op->vol->delta;
	s64 leaves = entries > DELTA_LARGE_DIR;

	if (first && READ_ONCE(op->cpu->leaf_hint) != ino >> DELTA_LEAF_SHIFT) {
		WRITE_ONCE(op->cpu->leaf_hint, ino >> DELTA_LEAF_SHIFT);
		leaves++;
	}
	if (leaves)
		percpu_counter_add_batch(&delta->leaves[op->delta & 1], leaves, READ_ONCE(delta->leaves_batch));
}

struct delta_recovery {
	u64 nodes, blocks;	/* tree nodes and log blocks that a mount would read */
};

static struct delta_recovery delta_guess_front(struct volume *vol, unsigned int slot)
{
	struct delta_state *delta = &vol->delta;
	u64 changes = max_t(s64, delta_changes(delta, slot), 0);
	s64 nodes = atomic64_read(&vol->balloc.disk_used) - atomic64_read(&vol->balloc.data_used);
	s64 leaves = percpu_counter_read(&delta->leaves[slot]) + (delta_dirty_bytes(delta, slot) >> (vol->block_shift + 4));

	/* On a damaged volume the counts may be anything: a guess below 0 would be the largest of all. */
	leaves = clamp_t(s64, leaves, 0, max_t(s64, nodes, 0));
	return (struct delta_recovery){ leaves + changes / 16, changes << 8 >> vol->block_shift };
}

/*
 * The same for the free maps of groups that the log names: each is read, and those that are not used for long are packed, but
 * stay in memory (group_pack.c).  How many of them a delta will touch is not guessed: one file, of preallocated blocks, may have
 * some in each group of the volume.  Packed, these take little.
 */
bool delta_groups_are_many(struct volume *vol, unsigned int share)
{
	return balloc_recovery_groups(vol) >= vol->opts.replay_nodes / 2 / share ||
	       balloc_recovery_bytes(vol) >= RECOVERY_GROUP_BYTES / share;
}

/* Is so much of the limit reached?  share 1: all, 4: a quarter. */
static bool recovery_is_long(struct volume *vol, const struct delta_recovery *recovery, unsigned int share)
{
	u64 blocks_max = max_t(u64, LOG_BYTES_MAX >> vol->block_shift, 2 * vol->opts.log_blocks);

	return recovery->nodes >= vol->opts.replay_nodes / share || recovery->blocks >= blocks_max / share;
}

static bool delta_recovery_long(struct volume *vol, const struct delta_recovery *front)
{
	struct delta_recovery all = {
		front->nodes + READ_ONCE(vol->tree.dirty_count) + atomic64_read(&vol->unify.pending),
		front->blocks + READ_ONCE(vol->log.length),
	};

	return recovery_is_long(vol, &all, 1) || delta_groups_are_many(vol, 1);
}

static bool delta_may_go_on(struct volume *vol)
{
	struct delta_recovery front = delta_guess_front(vol, READ_ONCE(vol->delta.front) & 1);

	return !delta_recovery_long(vol, &front) || volume_error(vol) || READ_ONCE(vol->delta.paused) ||
	       READ_ONCE(vol->read_only);
}

/* A commit and a unify; the back end holds no lock that a waiting writer could have. */
static int delta_relieve(struct volume *vol, bool surely)
{
	struct delta_state *delta = &vol->delta;
	int err;

	if (delta_may_go_on(vol))
		return volume_error(vol);
	if (!delta->thread)
		return delta_commit_unify(vol);
	count_add(vol, TUX3_COUNT_ENTER_WAITS, 1);
	atomic_inc(&delta->pressed);
	delta_request(vol);
	err = delta_wait(delta->gate_queue, delta_may_go_on(vol), surely);
	atomic_dec(&delta->pressed);
	if (!err)
		err = volume_error(vol);
	trace_tux3_enter(vol, READ_ONCE(delta->front), 0, 0, err);
	return err;
}

/*
 * The guess is a sum over counters that others write: while they are far from any limit, only some operations make it.
 * What single changes add is small beside the limits.
 */
static bool delta_look_at_recovery(struct volume *vol, unsigned int slot)
{
	struct delta_state *delta = &vol->delta;

	return !delta->thread || atomic_read(&delta->pressed) ||
	       !(atomic64_read(&raw_cpu_ptr(delta->cpu)->ops) & delta->look_mask) ||
	       delta_dirty_bytes(delta, slot) >= (s64)READ_ONCE(vol->opts.dirty_bytes) / 2;
}

/*
 * It is few who outrun the device, and the others need not wait for them: each task may add so much to a delta that is full, in
 * data or in other changes.  Who saves a document while somebody copies a disk has done before he would have to wait.  Who calls
 * fsync may add as much again whenever one of his did not wait for that delta; of the others, of whom a stream may be one, nobody
 * may add more than an eighth of the limit.  What either of them add is bounded, whatever the number of tasks; not how full the
 * delta is: when fsyncs come the limit sinks below what it holds already.
 */
#define PASS_ALL_BYTES	(64u << 20)	/* all who do not call fsync, and never more than half of the limit */
#define PASS_SYNCS_BYTES (128u << 20)	/* all who do: what the far area has room for */
#define FSYNC_MEMORY_NS	(2ULL * NSEC_PER_SEC)	/* who has called it so lately will call it again */

static bool delta_pass_syncs(const struct delta_pass *pass)
{
	return pass->synced_ns && ktime_get_ns() - pass->synced_ns < FSYNC_MEMORY_NS;
}

/* What would be forgotten, if another task had this place: a stream is not to go on for having the hash of another one. */
static u64 delta_pass_worth(struct delta_state *delta, const struct delta_pass *pass)
{
	return (pass->delta == READ_ONCE(delta->front) ? pass->used : 0) + (delta_pass_syncs(pass) ? DELTA_PASS_BYTES : 0);
}

static struct delta_pass *delta_pass_of_task(struct delta_state *delta)
{
	struct delta_pass *set = delta->passes[hash_64((uintptr_t)current, DELTA_PASS_BITS)], *least = set;
	unsigned int way;

	lockdep_assert_held(&delta->pass_lock);
	for (way = 0; way < DELTA_PASS_WAYS; way++)
		if (set[way].task == current)
			return &set[way];
	for (way = 1; way < DELTA_PASS_WAYS; way++)
		if (delta_pass_worth(delta, &set[way]) < delta_pass_worth(delta, least))
			least = &set[way];
	*least = (struct delta_pass){ .task = current };
	return least;
}

static bool delta_may_pass(struct volume *vol, u64 front, u64 cost)
{
	u64 data = (u64)space_cost_extents(cost) << vol->block_shift, bytes = data + PACE_CHANGE_BYTES;
	u64 limit = READ_ONCE(vol->pace.limit_bytes), most = DELTA_PASS_BYTES, all;
	s64 changes = delta_changes(&vol->delta, front & 1);
	struct delta_state *delta = &vol->delta;
	struct delta_pass *pass;
	bool may, syncs;

	if (changes >= (s64)vol->opts.overlay_entries * (OVERLAY_LIMIT_FACTOR + 1))
		return false;
	spin_lock(&delta->pass_lock);
	pass = delta_pass_of_task(delta);
	if (pass->delta != front) {
		pass->delta = front;
		pass->used = 0;
	}
	if (delta->passed_delta != front) {
		delta->passed_delta = front;
		delta->passed_bytes[0] = delta->passed_bytes[1] = 0;
	}
	syncs = delta_pass_syncs(pass);
	if (syncs) {
		all = min_t(u64, PASS_SYNCS_BYTES, READ_ONCE(vol->opts.dirty_limit_bytes) / 2);
	} else {
		all = min_t(u64, PASS_ALL_BYTES, limit / 2);
		most = min(most, limit / 8);
	}
	may = pass->used < most && delta->passed_bytes[syncs] + bytes <= all;
	pass->used += may ? (data ? data : most / DELTA_PASSES) : 0;
	delta->passed_bytes[syncs] += may ? bytes : 0;
	spin_unlock(&delta->pass_lock);
	return may;
}

void delta_pass_again(struct volume *vol)
{
	spin_lock(&vol->delta.pass_lock);
	delta_pass_of_task(&vol->delta)->used = 0;
	spin_unlock(&vol->delta.pass_lock);
}

void delta_note_fsync(struct volume *vol)
{
	spin_lock(&vol->delta.pass_lock);
	delta_pass_of_task(&vol->delta)->synced_ns = ktime_get_ns();
	spin_unlock(&vol->delta.pass_lock);
}

static bool delta_task_syncs(struct volume *vol)
{
	bool syncs;

	spin_lock(&vol->delta.pass_lock);
	syncs = delta_pass_syncs(delta_pass_of_task(&vol->delta));
	spin_unlock(&vol->delta.pass_lock);
	return syncs;
}

/* Writers that outrun the device wait here, for the delta that is too large to be taken over. */
static int delta_throttle(struct volume *vol, u64 cost, unsigned int flags)
{
	struct delta_state *delta = &vol->delta;
	u64 front = READ_ONCE(delta->front), start;
	int err;

	if (flags & DELTA_ADDS_NOTHING)
		return 0;
	if (unlikely(delta_look_at_recovery(vol, front & 1))) {
		struct delta_recovery guess = delta_guess_front(vol, front & 1);

		if (unlikely(recovery_is_long(vol, &guess, 4)) && delta->thread)
			delta_request(vol);
		if (unlikely(delta_recovery_long(vol, &guess))) {
			if (flags & DELTA_NOWAIT)
				return -EAGAIN;
			err = delta_relieve(vol, flags & DELTA_MUST);
			if (err)
				return err;
			front = READ_ONCE(delta->front);
		}
	}
	if (likely(!delta_slot_due(vol, front & 1)))
		return 0;
	if (!delta->thread)
		return flags & DELTA_NOWAIT ? -EAGAIN : delta_commit(vol);
	delta_request(vol);
	if (!delta_slot_full(vol, front & 1) || delta_may_pass(vol, front, cost))
		return 0;
	if (flags & DELTA_NOWAIT)
		return -EAGAIN;
	if (delta_task_syncs(vol))
		pace_wait(vol);
	count_add(vol, TUX3_COUNT_ENTER_WAITS, 1);
	start = ktime_get_ns();
	err = delta_wait(delta->gate_queue, READ_ONCE(delta->front) != front || volume_error(vol), flags & DELTA_MUST);
	if (!err)
		err = volume_error(vol);
	trace_tux3_enter(vol, front, 0, ktime_get_ns() - start, err);
	return err;
}

bool delta_would_wait(struct volume *vol, u64 cost)
{
	u64 front = READ_ONCE(vol->delta.front);
	s64 price = space_price(vol, front, cost) * 4;

	return (atomic64_read(&vol->space.balance) < price && space_balance(vol) < price) || delta_slot_due(vol, front & 1) ||
	       !delta_may_go_on(vol);
}

static void delta_wake_drain(struct delta_state *delta)
{
	smp_mb();		/* pairs with delta_transition(): it sees our count, or we see that it waits */
	if (unlikely(atomic_read(&delta->draining)))
		wake_up(&delta->drain_queue);
}

/* Become one of the operations of the front delta.  0, -EINTR, or -EAGAIN: who must not wait would have to. */
static int delta_count_in(struct volume *vol, struct delta_op *op, unsigned int flags)
{
	struct delta_state *delta = &vol->delta;
	int err;

	op->cpu = raw_cpu_ptr(delta->cpu);
	for (;;) {
		op->delta = READ_ONCE(delta->front);
		atomic64_inc(&op->cpu->entered[op->delta & 1]);
		smp_mb();	/* pairs with delta_transition(): it sees us, or we see its new front */
		if (likely(READ_ONCE(delta->front) == op->delta && !atomic_read(&delta->draining)))
			return 0;
		atomic64_inc(&op->cpu->left[op->delta & 1]);
		delta_wake_drain(delta);
		if ((flags & (DELTA_NOWAIT | DELTA_ADDS_NOTHING)) == DELTA_NOWAIT)
			return -EAGAIN;
		err = delta_wait(delta->gate_queue, !atomic_read(&delta->draining), flags & (DELTA_MUST | DELTA_ADDS_NOTHING));
		if (err)
			return err;
	}
}

static void delta_count_out(struct delta_op *op)
{
	smp_mb();		/* our changes are visible before we count as gone */
	atomic64_inc(&op->cpu->left[op->delta & 1]);
	delta_wake_drain(&op->vol->delta);
}

/* What went wrong is told to who waits for a commit.  Changes are refused as on any volume that cannot be changed. */
static int delta_enter_error(struct volume *vol, int err)
{
	return volume_error(vol) ? -EROFS : err;
}

int delta_enter(struct volume *vol, struct delta_op *op, u64 cost, unsigned int flags)
{
	struct space_try try = {};
	int err = volume_error(vol);
	u64 blocks, start;

	op->times = (flags >> DELTA_TIMES_SHIFT) + 1;
	flags &= DELTA_TIMES_MAX - 1;
	if (!err)
		err = READ_ONCE(vol->read_only) ? -EROFS : delta_throttle(vol, cost, flags);
	op->vol = vol;
	lockdep_assert_not_held(&vol->delta.inside);
	while (!err) {
		err = delta_count_in(vol, op, flags);
		if (unlikely(err))
			break;
		if (unlikely(READ_ONCE(vol->read_only))) {	/* now that volume_set_read_only() sees us */
			delta_count_out(op);
			return -EROFS;
		}
		blocks = space_price(vol, op->delta, cost) * op->times;
		if (likely(space_charge(vol, op->cpu, blocks, flags))) {
			atomic64_add(blocks, &op->cpu->charged[op->delta & 1]);
			if (unlikely(vol->opts.costs))
				space_note(vol, op->delta, cost, op->times);
			if (flags & DELTA_FREES)	/* that the volume is full is to be found out anew */
				atomic64_inc(&op->cpu->frees);
			atomic64_inc(&op->cpu->ops);
			op->nofs = memalloc_nofs_save();
			rwsem_acquire_read(&vol->delta.inside.dep_map, 0, 0, _THIS_IP_);
			return 0;
		}
		delta_count_out(op);
		if (flags & DELTA_NOWAIT) {
			err = -EAGAIN;
			break;
		}
		start = ktime_get_ns();
		err = space_wait(vol, blocks, flags, &try);
		trace_tux3_enter(vol, op->delta, blocks, ktime_get_ns() - start, err);
	}
	return delta_enter_error(vol, err);
}

void delta_leave(struct delta_op *op)
{
	struct delta_state *delta = &op->vol->delta;

	rwsem_release(&delta->inside.dep_map, _THIS_IP_);
	memalloc_nofs_restore(op->nofs);
	delta_count_out(op);
	if (unlikely(delta_slot_due(op->vol, op->delta & 1)))
		delta_request(op->vol);
	else if (unlikely(atomic_read(&delta->sleeping)) && atomic_cmpxchg(&delta->sleeping, 1, 0) == 1)
		delta_wake_thread(op->vol);
}

void delta_refund(struct delta_op *op, u64 cost, u64 now)
{
	u64 was = space_price(op->vol, op->delta, cost), is = space_price(op->vol, op->delta, now);
	u64 blocks = was > is ? (was - is) * op->times : 0;

	if (unlikely(op->vol->opts.costs)) {
		space_note(op->vol, op->delta, cost, -(s64)op->times);
		space_note(op->vol, op->delta, now, op->times);
	}
	atomic64_sub(blocks, &op->cpu->charged[op->delta & 1]);
	space_uncharge(op->vol, op->cpu, blocks);
}

bool delta_settle(struct delta_op *op, u64 cost, u64 due)
{
	if (likely(cost == due))
		return true;
	if (space_price(op->vol, op->delta, due) > space_price(op->vol, op->delta, cost)) {
		delta_refund(op, cost, 0);
		delta_leave(op);
		return false;
	}
	delta_refund(op, cost, due);
	return true;
}

void delta_note_other(struct delta_op *op)
{
	struct delta_state *delta = &op->vol->delta;
	unsigned int n = op->delta & 1;

	WRITE_ONCE(delta->others[n], true);
	if (!atomic64_read(&delta->first_change_ns[n]))
		atomic64_set(&delta->first_change_ns[n], ktime_get_ns());
}

void delta_add_dirty_bytes(struct delta_op *op, s64 bytes)
{
	struct delta_state *delta = &op->vol->delta;

	if (bytes)
		percpu_counter_add_batch(&delta->dirty_bytes[op->delta & 1], bytes, READ_ONCE(delta->bytes_batch));
}

static void delta_count_change(struct delta_op *op)
{
	struct delta_state *delta = &op->vol->delta;

	percpu_counter_add_batch(&delta->changes[op->delta & 1], 1, READ_ONCE(delta->changes_batch));
}

void delta_add_change(struct delta_op *op, s64 bytes)
{
	delta_count_change(op);
	delta_add_dirty_bytes(op, bytes);
}

void delta_add_inode(struct delta_op *op, struct tux3_inode *inode)
{
	struct delta_state *delta = &op->vol->delta;
	unsigned int n = op->delta & 1;

	llist_add(&inode->dirty_node[n], &op->cpu->dirty[n]);
	delta_count_change(op);
	if (!atomic64_read(&delta->first_change_ns[n]))
		atomic64_set(&delta->first_change_ns[n], ktime_get_ns());
}

void delta_move_counts(struct volume *vol, unsigned int from, s64 bytes, s64 inodes)
{
	struct delta_state *delta = &vol->delta;

	lockdep_assert_held(&vol->delta.commit_mutex);
	percpu_counter_add_batch(&delta->dirty_bytes[!from], bytes, 1);
	percpu_counter_add_batch(&delta->dirty_bytes[from], -bytes, 1);
	percpu_counter_add_batch(&delta->changes[!from], inodes, 1);
	percpu_counter_add_batch(&delta->changes[from], -inodes, 1);
	percpu_counter_add_batch(&delta->leaves[!from], inodes, 1);
}

/* Nobody is inside, and what the next operations of this slot count comes later. */
void delta_clear_counts(struct volume *vol, unsigned int slot)
{
	struct delta_state *delta = &vol->delta;

	lockdep_assert_held(&vol->delta.commit_mutex);
	percpu_counter_set(&delta->dirty_bytes[slot], 0);
	percpu_counter_set(&delta->changes[slot], 0);
	percpu_counter_set(&delta->leaves[slot], 0);
	atomic64_set(&delta->value_bytes[slot], 0);
	atomic64_set(&delta->first_change_ns[slot], 0);
	WRITE_ONCE(delta->others[slot], false);
}

u64 delta_counter(struct volume *vol, enum tux3_counter which)
{
	u64 count = atomic64_read(&vol->counters[which]);
	int cpu;

	if (which == TUX3_COUNT_OPS)
		for_each_possible_cpu(cpu)
			count += atomic64_read(&per_cpu_ptr(vol->delta.cpu, cpu)->ops);
	return count;
}

/* By how much the counts may be off: by little beside what they are compared with.  Without a thread they are exact. */
static void delta_set_batches(struct volume *vol)
{
	struct delta_state *delta = &vol->delta;
	u64 share = 16 * (u64)num_possible_cpus();
	u64 bytes = READ_ONCE(vol->pace.commit_bytes) / share;
	u64 changes = min_t(u64, vol->opts.overlay_entries / share, bytes / max_t(u64, READ_ONCE(vol->pace.change_bytes), 1));

	if (vol->opts.manual)
		bytes = changes = 1;
	WRITE_ONCE(delta->bytes_batch, clamp_t(u64, bytes, 1, BYTES_BATCH_MAX));
	WRITE_ONCE(delta->changes_batch, clamp_t(u64, changes, 1, CHANGES_BATCH_MAX));
	WRITE_ONCE(delta->leaves_batch, clamp_t(u64, min(changes, vol->opts.replay_nodes / 4 / share), 1, CHANGES_BATCH_MAX));
}

/* Has everybody who entered the delta of this slot left?  left[] is summed first: see delta.h. */
static bool delta_drained(struct delta_state *delta, unsigned int slot)
{
	s64 left = 0, entered = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		left += atomic64_read(&per_cpu_ptr(delta->cpu, cpu)->left[slot]);
	smp_mb();
	for_each_possible_cpu(cpu)
		entered += atomic64_read(&per_cpu_ptr(delta->cpu, cpu)->entered[slot]);
	return left == entered;
}

/* The front delta becomes the back delta; returns its number and what it was charged. */
u64 delta_transition(struct volume *vol, s64 *charged)
{
	struct delta_state *delta = &vol->delta;
	u64 back = delta->front, start = ktime_get_ns(), ns;
	int cpu;

	lockdep_assert_held(&vol->delta.commit_mutex);
	delta_set_batches(vol);
	space_open_delta(vol, back + 1);
	atomic_set(&delta->draining, 1);
	smp_mb();		/* who sees the new front also sees that the old one is being drained */
	WRITE_ONCE(delta->front, back + 1);
	smp_mb();		/* pairs with delta_count_in() and delta_wake_drain() */
	rwsem_acquire(&delta->inside.dep_map, 0, 0, _THIS_IP_);		/* this waits for who is inside */
	rwsem_release(&delta->inside.dep_map, _THIS_IP_);
	wait_event(delta->drain_queue, delta_drained(delta, back & 1));
	/* Nobody is inside.  As after a change, the thread must not sleep without end. */
	if (delta->may_put_off && put_off_stored(vol, back) && atomic_cmpxchg(&delta->sleeping, 1, 0) == 1)
		delta_wake_thread(vol);
	atomic_set(&delta->draining, 0);
	wake_up_all(&delta->gate_queue);
	ns = ktime_get_ns() - start;
	count_add(vol, TUX3_COUNT_DRAIN_NS, ns);
	*charged = space_close_delta(vol, back);
	for_each_possible_cpu(cpu)
		*charged += atomic64_xchg(&per_cpu_ptr(delta->cpu, cpu)->charged[back & 1], 0);
	trace_tux3_transition(vol, back, *charged, ns);
	return back;
}

static bool delta_has_inodes(struct delta_state *delta, unsigned int slot)
{
	bool empty = llist_empty(&delta->dirty[slot]);
	int cpu;

	for_each_possible_cpu(cpu)
		empty = empty && llist_empty(&per_cpu_ptr(delta->cpu, cpu)->dirty[slot]);
	return !empty;
}

int delta_verify(struct volume *vol, char *why, size_t why_size)
{
	struct delta_state *delta = &vol->delta;
	unsigned int slot = delta->committed & 1;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (delta->front != delta->committed + 1 || delta->applying > delta->committed)
		snprintf(why, why_size, "delta %llu is the newest durable one, %llu is open, %llu is being applied",
			 (unsigned long long)delta->committed, (unsigned long long)delta->front,
			 (unsigned long long)delta->applying);
	else if (delta_has_inodes(delta, slot) || delta->others[slot] || delta_changes_sum(delta, slot) ||
		 delta_dirty_bytes_sum(delta, slot) || atomic64_read(&delta->extra[slot]) || vol->space.standing[slot])
		snprintf(why, why_size, "delta %llu is durable, but counts %lld changes, %lld bytes, %lld blocks charged for the tree",
			 (unsigned long long)delta->committed, delta_changes_sum(delta, slot),
			 delta_dirty_bytes_sum(delta, slot), vol->space.standing[slot]);
	else
		return 0;
	return -EIO;
}

static bool delta_has_dirty(struct delta_state *delta)
{
	unsigned int n = READ_ONCE(delta->front) & 1;

	return delta_has_inodes(delta, n) || READ_ONCE(delta->others[n]);
}

bool delta_has_changes(struct volume *vol)
{
	return delta_has_dirty(&vol->delta) || delete_under_way(vol);
}

/*
 * The log must name every group whose free map a unify writes: after a replay, or with the nodes now placed in others,
 * it may not yet.
 */
static int delta_unify_start(struct volume *vol)
{
	int err = tree_place(vol);

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (err == -EIO || err == -ENOSPC)
		volume_abort(vol, err, "the free maps have no blocks for tree nodes");
	if (!err && !list_empty(&vol->balloc.unlogged)) {
		vol->log.must_write = true;
		vol->unify.follows = true;
		err = commit_delta(vol);
		vol->unify.follows = false;
	}
	return err ? err : unify_start(vol);
}

/* In manual mode nobody else looks after the unify. */
static int delta_unify_inline(struct volume *vol)
{
	int err = unify_poll(vol);

	if (!err && vol->unify.phase == UNIFY_IDLE && unify_wanted(vol))
		err = delta_unify_start(vol);
	return err;
}

/* All deltas up to this one, the front one or older, are durable on return 0.  -EINTR: the caller was killed. */
static int delta_commit_to(struct volume *vol, u64 target, unsigned int flags)
{
	struct delta_state *delta = &vol->delta;
	int err = 0, got;

	lockdep_assert_not_held(&vol->delta.inside);
	if (READ_ONCE(vol->read_only))
		return volume_error(vol);
	got = delta_lock_for(vol, target, flags);
	if (got <= 0)
		return got ? got : volume_error(vol);
	if (volume_error(vol))
		err = volume_error(vol);
	else if (!delta->paused && delta->front == target && (flags & COMMIT_EMPTY || delta_has_changes(vol))) {
		delta->may_put_off = flags & COMMIT_PUT_OFF;
		err = commit_delta(vol);
		delta->may_put_off = false;
	}
	if (!err && !delta->paused && !delta->thread) {
		err = delta_unify_inline(vol);
		trim_collect(vol);
		trim_background(vol);
	}
	delta_unlock(vol);
	if (delta->thread && unify_wanted(vol))
		delta_request(vol);
	return err;
}

/*
 * Whoever makes the commit that we wait for puts nothing off: he sees that we wait when he has moved front, or else we see the
 * new front.
 */
static int delta_commit_all(struct volume *vol, unsigned int flags)
{
	int err;

	atomic_inc(&vol->delta.wholes);
	smp_mb();		/* pairs with delta_transition() */
	err = delta_commit_to(vol, READ_ONCE(vol->delta.front), flags);
	atomic_dec(&vol->delta.wholes);
	return err;
}

int delta_commit(struct volume *vol)
{
	return delta_commit_all(vol, 0);
}

int delta_commit_surely(struct volume *vol)
{
	return delta_commit_all(vol, COMMIT_SURELY);
}

int delta_commit_by_thread(struct volume *vol)
{
	return delta_commit_all(vol, COMMIT_THREAD);
}

int delta_commit_charges(struct volume *vol)
{
	return delta_commit_all(vol, COMMIT_EMPTY);
}

int delta_commit_through(struct volume *vol, u64 delta)
{
	int err = delta_commit_surely(vol);

	/* Paused, or being made read-only: somebody else does it, later. */
	if (!err && READ_ONCE(vol->delta.committed) < delta) {
		err = delta_wait(vol->delta.commit_queue, READ_ONCE(vol->delta.committed) >= delta || volume_error(vol), true);
		if (!err)
			err = volume_error(vol);
	}
	return READ_ONCE(vol->delta.committed) >= delta ? 0 : err;
}

bool delta_is_mostly_of(struct tux3_inode *inode)
{
	struct volume *vol = inode->vol;
	s64 load, own;

	if (!S_ISREG(READ_ONCE(inode->attr.mode)))
		return false;
	own = vol->host->data_dirty_blocks(inode) << vol->block_shift;
	if (likely(own <= DELTA_HEAVY_BYTES / 2))	/* it is not much, or not most: no sums over the CPUs for a small fsync */
		return false;
	load = delta_load(&vol->delta, READ_ONCE(vol->delta.front) & 1) + READ_ONCE(vol->delta.committing);
	return load > DELTA_HEAVY_BYTES && own > load - own;
}

/* whole: what others have changed is not less than what is of the inode. */
static int commit_inode(struct tux3_inode *inode, bool whole)
{
	struct volume *vol = inode->vol;
	bool in_front, in_back, own = delta_is_mostly_of(inode);
	u64 front;
	int err;

	/* What was changed before the call is in this front delta or an older one, even if front moves on. */
	spin_lock(&inode->lock);
	front = READ_ONCE(vol->delta.front);
	in_front = inode->slot[front & 1].dirty;
	in_back = inode->slot[~front & 1].dirty;
	if (in_front)
		WRITE_ONCE(inode->slot[front & 1].awaited, true);
	/* Nothing of it is put off from now on, neither to the front delta nor from it. */
	inode->slot[0].stored = inode->slot[1].stored = false;
	spin_unlock(&inode->lock);
	if (!in_front && !in_back)
		return volume_error(vol);
	if (!in_front)
		front--;
	whole = whole && delta_load(&vol->delta, front & 1) > DELTA_HEAVY_BYTES;
	if (!own)
		pace_sync(vol, whole);
	err = delta_commit_to(vol, front, READ_ONCE(vol->opts.fsync) == TUX3_FSYNC_FULL ? 0 : COMMIT_PUT_OFF);
	/* It was dirty: so volume_make_read_only() is just committing it, or is about to. */
	if (!err && unlikely(READ_ONCE(vol->read_only))) {
		err = delta_wait(vol->delta.commit_queue, READ_ONCE(vol->delta.committed) >= front || volume_error(vol), false);
		if (!err)
			err = volume_error(vol);
	}
	if (!own)
		pace_sync(vol, whole);		/* however long that took, it was waited for until now */
	return err;
}

int delta_commit_inode(struct tux3_inode *inode)
{
	return commit_inode(inode, true);
}

int delta_commit_mostly(struct tux3_inode *inode)
{
	return commit_inode(inode, false);
}

int delta_unify_committed(struct volume *vol)
{
	int err = unify_finish(vol);		/* one that was under way */

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!err && (vol->tree.dirty_count || vol->log.length || intent_anchor_stale(vol) ||
		     memcmp(vol->label, vol->anchor.label, sizeof(vol->label)))) {
		err = delta_unify_start(vol);
		if (!err)
			err = unify_finish(vol);
		if (!err)
			err = unify_verify(vol);
	}
	return err;
}

int delta_unify_all(struct volume *vol)
{
	int err = volume_error(vol);

	lockdep_assert_held(&vol->delta.commit_mutex);
	while (!err && delta_has_changes(vol))
		err = commit_delta(vol);
	return err ? err : delta_unify_committed(vol);
}

/*
 * The same while others go on: of what they change, only that of the present front delta.  On a slow device they have
 * always changed more by the time it is committed, and each commit takes blocks for its log.  Then the front delta is tight.
 */
static int delta_unify_present(struct volume *vol)
{
	u64 front = vol->delta.front;
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	while (!err && (vol->delta.front == front ? delta_has_changes(vol) || !space_is_tight(&vol->space, front) :
			delete_under_way(vol))) {
		vol->space.want_tight = true;
		err = commit_delta(vol);
	}
	/* An empty one: what the last commit has split is nothing to the delta after it. */
	if (!err && !delta_has_changes(vol) && space_opens_cheaper(vol)) {
		vol->space.want_tight = true;
		err = commit_delta(vol);
	}
	return err ? err : delta_unify_committed(vol);
}

int delta_commit_unify(struct volume *vol)
{
	int err;

	if (READ_ONCE(vol->read_only))
		return volume_error(vol);
	delta_lock(vol);
	err = vol->delta.paused ? -EBUSY : delta_unify_all(vol);
	delta_unlock(vol);
	return err;
}

int delta_commit_space(struct volume *vol, unsigned int flags, unsigned int attempt)
{
	int err = 0;

	if (flags & DELTA_MUST)
		delta_lock(vol);
	else
		err = delta_lock_killable(vol);
	if (err)
		return err;
	err = volume_error(vol);
	if (!err && vol->delta.paused)
		err = -EBUSY;
	intent_shrink(vol);
	if (!err)
		space_end_hold(vol);
	if (!err)
		err = block_reads_settle(vol);
	/* Even without changes: the next delta may be opened with another standing charge. */
	if (!err)
		err = attempt ? delta_unify_present(vol) : commit_delta(vol);
	delta_unlock(vol);
	return err;
}

/* Deletes that are under way go on after the pause: each commit leaves the volume whole. */
int delta_pause(struct volume *vol)
{
	int err;

	if (READ_ONCE(vol->read_only))
		return volume_error(vol);
	err = delta_lock_killable(vol);
	if (err)
		return err;
	err = volume_error(vol);
	if (!err && delta_has_dirty(&vol->delta))
		err = commit_delta(vol);
	if (!err)
		err = delta_unify_committed(vol);
	if (!err)
		WRITE_ONCE(vol->delta.paused, true);
	delta_unlock(vol);
	intent_wait(vol);
	wake_up_all(&vol->delta.gate_queue);	/* nothing is left to recover, and the thread wakes nobody now */
	if (!err)
		trim_wait(vol);
	return err;
}

void delta_resume(struct volume *vol)
{
	delta_lock(vol);
	WRITE_ONCE(vol->delta.paused, false);
	delta_unlock(vol);
	delta_request(vol);
}

/* ---- the back-end thread ---- */

/* How long after the last commit: one second of the five that a change waits by default. */
static u64 delta_confirm_ms(struct volume *vol)
{
	return READ_ONCE(vol->opts.age_ms) / 5 + 1;
}

/*
 * Nothing follows the last commit, it seems.  A commit without records confirms it: its flush is over.  So damage to it can
 * be told from its not having been complete (log_end.c).  Only where a block can be spared, and once.
 */
static void delta_confirm(struct volume *vol)
{
	struct delta_state *delta = &vol->delta;
	u64 age = ktime_get_ns() - vol->log.commit_ns;

	if (READ_ONCE(vol->read_only) || !vol->log.length)	/* nothing is written any more, or the anchor holds it all */
		vol->log.unconfirmed = false;
	if (!vol->log.unconfirmed || age < delta_confirm_ms(vol) * 1000000ULL || volume_error(vol) || delta_has_changes(vol))
		return;
	vol->log.unconfirmed = false;
	if (!space_charge(vol, raw_cpu_ptr(delta->cpu), CONFIRM_BLOCKS, 0))
		return;
	atomic64_add(CONFIRM_BLOCKS, &raw_cpu_ptr(delta->cpu)->charged[delta->front & 1]);
	space_note_log(vol, delta->front, CONFIRM_BLOCKS);
	vol->log.must_write = true;
	commit_delta(vol);
}

static u64 delta_age_ns(struct volume *vol)
{
	u64 first = atomic64_read(&vol->delta.first_change_ns[vol->delta.front & 1]);
	u64 now = ktime_get_ns();

	return first && now > first ? now - first : 0;
}

/* What the thread does when it wakes up. */
static void delta_work(struct volume *vol, u64 *idle_since)
{
	struct delta_state *delta = &vol->delta;
	bool wanted = atomic_xchg(&delta->wanted, 0), pressed = atomic_read(&delta->pressed), idle = false;

	delta_lock(vol);
	if (delta->paused) {
		delta_unlock(vol);
		return;
	}
	if (!volume_error(vol) && delta_has_changes(vol)) {
		*idle_since = ktime_get_ns();
		if (wanted || pressed || delete_under_way(vol) ||
		    delta_age_ns(vol) >= READ_ONCE(vol->opts.age_ms) * 1000000ULL)
			commit_delta(vol);
	} else if (ktime_get_ns() - *idle_since > IDLE_UNIFY_MS * 1000000ULL) {
		idle = true;
	}
	if (!volume_error(vol) && !unify_poll(vol)) {
		if (vol->unify.phase == UNIFY_WRITTEN || vol->unify.phase == UNIFY_ANCHORED) {
			if (!delta_has_changes(vol) || idle)
				unify_finish(vol);	/* no commit will flush for us soon */
		} else if (vol->unify.phase == UNIFY_IDLE &&
			   (unify_wanted(vol) || (idle && (vol->tree.dirty_count || vol->log.length)))) {
			int err = delta_unify_start(vol);

			if (err)
				volume_warn(vol, "unify put off (%s)", error_text(err));
		}
	}
	if (pressed) {
		if (!delta_may_go_on(vol))
			delta_unify_committed(vol);
		wake_up_all(&delta->gate_queue);
	}
	delta_confirm(vol);
	trim_collect(vol);
	delta_unlock(vol);
	trim_background(vol);
}

/* How long the thread may sleep, in ms; 0: until woken. */
static u64 delta_sleep_ms(struct volume *vol)
{
	struct delta_state *delta = &vol->delta;

	if (volume_error(vol) || delta->paused)
		return 0;
	if (vol->unify.phase != UNIFY_IDLE)
		return POLL_MS;
	if (delete_under_way(vol) || trim_pending(vol))
		return 1;
	if (delta_has_dirty(delta)) {
		u64 age_ms = delta_age_ns(vol) / 1000000, limit_ms = READ_ONCE(vol->opts.age_ms);

		/* Who syncs does not wake us, but leaves a commit to be confirmed. */
		return age_ms < limit_ms ? min(limit_ms - age_ms + 1, delta_confirm_ms(vol)) : 1;
	}
	if (vol->log.unconfirmed)
		return delta_confirm_ms(vol) / 2 + 1;
	return vol->log.length || vol->tree.dirty_count ? IDLE_UNIFY_MS / 4 : 0;
}

static bool delta_thread_must_wake(struct volume *vol)
{
	struct delta_state *delta = &vol->delta;

	return atomic_read(&delta->stopping) || atomic_read(&delta->wanted) || atomic_read(&delta->pressed) ||
	       kthread_should_stop();
}

static bool delta_thread_has_news(struct volume *vol)
{
	return delta_thread_must_wake(vol) || !atomic_read(&vol->delta.sleeping) ||
	       (!volume_error(vol) && !READ_ONCE(vol->delta.paused) && delta_has_dirty(&vol->delta));
}

static int delta_thread(void *data)
{
	struct volume *vol = data;
	struct delta_state *delta = &vol->delta;
	u64 idle_since = ktime_get_ns();

	set_freezable();
	while (!kthread_should_stop()) {
		u64 ms;

		try_to_freeze();
		delta_work(vol, &idle_since);
		delta_lock(vol);
		ms = delta_sleep_ms(vol);
		delta_unlock(vol);
		if (ms && (volume_error(vol) || delta_has_dirty(delta))) {
			wait_event_freezable_timeout(delta->thread_queue, delta_thread_must_wake(vol),
						     msecs_to_jiffies(ms));
			continue;
		}
		/* Nothing has changed: the first change wakes us, so that its age counts from then on. */
		atomic_set(&delta->sleeping, 1);
		smp_mb();	/* a change made before this is seen by the condition, one after it wakes us */
		if (ms)
			wait_event_freezable_timeout(delta->thread_queue, delta_thread_has_news(vol),
						     msecs_to_jiffies(ms));
		else
			wait_event_freezable(delta->thread_queue, delta_thread_has_news(vol));
		atomic_set(&delta->sleeping, 0);
	}
	return 0;
}

int delta_start(struct volume *vol)
{
	struct delta_state *delta = &vol->delta;

	delta->front = delta->committed + 1;
	delta->look_mask = rounddown_pow_of_two(max_t(u64, vol->opts.replay_nodes / RECOVERY_LOOKS / num_possible_cpus(), 1)) - 1;
	if (vol->opts.read_only || vol->opts.manual)
		return 0;
	atomic_set(&delta->stopping, 0);
	delta_set_batches(vol);
	delta->thread = kthread_run(delta_thread, vol, "tux3-back");
	if (IS_ERR(delta->thread)) {
		int err = PTR_ERR(delta->thread);

		delta->thread = NULL;
		return err;
	}
	return 0;
}

void delta_stop(struct volume *vol)
{
	struct delta_state *delta = &vol->delta;

	if (!delta->thread)
		return;
	/* What it is writing may take long, and kthread_stop() sleeps in one piece. */
	delta_wait(delta->commit_queue, !mutex_is_locked(&delta->commit_mutex), true);
	atomic_set(&delta->stopping, 1);
	wake_up(&delta->thread_queue);
	kthread_stop(delta->thread);
	delta->thread = NULL;
}
