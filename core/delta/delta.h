/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The delta machine: what separates the front end from the back end.
 *
 * Front end: delta_enter() - change memory - delta_leave().  All that happens in between becomes
 * durable as part of one delta, or not at all.  Inside, never wait for I/O, for a commit, or for a
 * lock whose holder may do so.  Allocate memory before entering where that can fail; inside, whatever is allocated
 * is allocated without calling back into filesystems (memalloc_nofs).
 *
 *	delta.front = N		operations enter N
 *	  -- transition (back end): front = N + 1, wait until all that entered N have left, let others in -->
 *	N is the back delta	its changes are frozen: the front end only writes the slots of N + 1
 *	  -- commit: place data, log, apply to the tree, one flush -->
 *	delta.committed = N	durable; overlay slots of N are free for N + 2
 *
 * delta & 1 chooses the slot: of the per-CPU counts, of an inode's attributes and ranges, of a name.
 * Who holds commit_mutex is the back end: the volume's thread, or a caller who needs a commit now.
 *
 * While the last operations of N leave, those that come wait for them (they are memory operations: microseconds).  So no
 * operation of N runs beside one of N + 1: on one inode, in whatever locks, changes of N come before those of N + 1,
 * and copying the attributes when N + 1 first changes them catches all of N.
 *
 * The counts follow the scheme of SRCU: an operation adds to entered[slot] of its CPU and then looks
 * at front again; the back end changes front and then sums left[] before entered[] over all CPUs.
 */
#ifndef TUX3_DELTA_H
#define TUX3_DELTA_H

#include "core/env.h"
#include "core/counters.h"
#include "core/delta/pace.h"

struct volume;
struct tux3_inode;

/*
 * What the operations of a CPU write, so that they need not write what those of others write: bench/run lines counts that.  An
 * operation that moves to another CPU goes on with where it began.
 */
struct delta_cpu {
	atomic64_t entered[2];
	atomic64_t left[2];
	atomic64_t charged[2];	/* blocks, see space.h */
	atomic64_t credit;	/* blocks taken from the balance for operations to come; space.c */
	atomic64_t frees;	/* operations that free space; part of space_freed() */
	atomic64_t ops;		/* for TUX3_COUNT_OPS */
	struct llist_head dirty[2];	/* inodes changed in the delta, by dirty_node[] */
	u64 leaf_hint;		/* ino >> DELTA_LEAF_SHIFT of the last inode that became dirty here */
};

/* Of one task: with how many bytes it has gone on though the delta was full; when it called fsync. */
struct delta_pass {
	u64 delta;
	const void *task;
	u32 used;
	u64 synced_ns;		/* 0: never */
};

#define DELTA_PASS_BITS	4
#define DELTA_PASS_WAYS	4	/* so many tasks of the same hash */
#define DELTA_PASS_BYTES	(8u << 20)	/* of data that a task may add to a delta that is full: delta_may_pass() ... */
#define DELTA_PASSES	24u	/* ... or so many other changes */

struct delta_op {
	struct volume *vol;
	struct delta_cpu *cpu;	/* where this operation was counted */
	u64 delta;
	u32 times;		/* DELTA_TIMES() */
	unsigned int nofs;	/* memalloc_nofs_save() */
};

/* Not a lock, but lockdep looks at it as one: who is inside a delta must not wait for what the back end has. */
struct delta_inside {
	struct lockdep_map dep_map;
};

struct delta_state {
	u64 front;		/* written with commit_mutex held, read anywhere */
	u64 committed;		/* likewise; the newest durable delta */
	u64 applying;		/* delta whose records go to the tree now; commit_mutex */
	u64 committing;		/* a hint: what the commit under way writes, in bytes, by a guess; 0: there is none */
	u64 heavy_ns;		/* a hint: ktime_get_ns() at the end of the last with DELTA_HEAVY_BYTES that no fsync awaited */
	u64 awaited;		/* blocks of data in the commit under way of files that are being synced; commit_mutex */
	struct delta_cpu __percpu *cpu;
	struct mutex commit_mutex;	/* by delta_lock() */
	unsigned int nofs;	/* memalloc_nofs_save() of who holds it */
	bool paused;		/* commit_mutex: nothing is written until delta_resume() */
	bool may_put_off;	/* commit_mutex: the next commit is for an fsync, and may leave stores to the one after it */
	atomic_t wholes;	/* so many wait for all that was changed before they came: then it may not */
	struct llist_head remaps[2];	/* struct data_remap: see core/data/remap.h */
	bool others[2];			/* set inside: something that is no inode was changed in the delta: limits of quotas */
	struct llist_head dirty[2];	/* as those of the CPUs: put off by the delta before, or left by an aborted commit */
	/*
	 * Counted by CPU.  A single one keeps less than so much to itself, so that percpu_counter_read() is off by a 16th of what
	 * makes a commit due, at most.
	 */
	s32 bytes_batch, changes_batch, leaves_batch;
	struct percpu_counter dirty_bytes[2];	/* file data, values of xattrs: as told by delta_add_dirty_bytes */
	struct percpu_counter changes[2];	/* dirty inodes; changed names, xattrs and ranges of files */
	struct percpu_counter leaves[2];	/* leaves that the delta touches, guessed: delta_guess_leaf() */
	atomic64_t value_bytes[2];	/* of the dirty bytes, values of xattrs that get blocks of their own: see xattr.c */
	atomic64_t extra[2];		/* blocks, the sum of inode_slot.extra - paid: for statfs */
	bool cuts_failed;		/* only becomes true: there are, or were, cuts_put_off */
	u64 look_mask;			/* constant: at which numbers of a CPU's operations the length of a recovery is guessed */
	atomic_t pressed;		/* writers who wait until a recovery would take less time */
	u64 dirs_moved[2];		/* by delta & 1: the newest such delta in which a directory got another name; no lock */
	atomic64_t first_change_ns[2];	/* ktime_get_ns() of the first dirty inode; 0: none */
	/* commit_mutex: struct delete_work, long deletes and truncates that go on; those that the commit under way ends. */
	struct list_head deletes, cuts, deletes_done;
	spinlock_t forgotten_lock;	/* innermost */
	struct list_head cuts_put_off;	/* forgotten_lock: struct delete_work, truncates that met what cannot be read */
	struct list_head forgotten;	/* forgotten_lock: struct delta_forgotten; empty unless vol->read_only */
	u32 starved;			/* commits in a row for which no slice could be charged; commit_mutex */
	wait_queue_head_t commit_queue;	/* woken when committed or error move, and when commit_mutex is free */
	wait_queue_head_t drain_queue;	/* the back end, waiting for the last operation to leave */
	spinlock_t pass_lock;		/* of the next three */
	struct delta_pass passes[1u << DELTA_PASS_BITS][DELTA_PASS_WAYS];	/* by hash of the task */
	u64 passed_delta, passed_bytes[2];	/* what all have added to that delta when it was full; 1: those that call fsync */
	wait_queue_head_t gate_queue;	/* operations that came meanwhile; writers who have outrun the device (pace.c) */
	atomic_t draining;
	wait_queue_head_t thread_queue;
	struct task_struct *thread;	/* NULL: manual */
	atomic_t wanted;		/* somebody wants a commit soon */
	atomic_t sleeping;		/* the thread sleeps without a timeout: wake it on the first change */
	atomic_t stopping;
	struct delta_inside inside;	/* read by operations, from delta_enter() to delta_leave() */
};

#define DELTA_HEAVY_BYTES	(256u << 10)	/* to commit: with no more than that an fsync commits all of it */
#define DELTA_LEAF_SHIFT	4	/* so many inodes with numbers next to each other share a leaf, more or less */
#define DELTA_LARGE_DIR		4096u	/* entries: names changed in a larger one are each in another leaf */
/* Inside: an inode became dirty, or a name in a directory of so many entries changed. */
void delta_guess_leaf(struct delta_op *op, u64 ino, bool first, u64 entries);

/* What the operation does to space in the end, and so how far below zero it may bring the balance (space.c). */
#define DELTA_FREES	1u	/* frees */
#define DELTA_KEEPS	2u	/* takes no more than it gives back, or little */
#define DELTA_PAID	4u	/* writes to preallocated blocks only: paid for by who preallocated them */
/* And, with DELTA_FREES, for an operation that nobody would make a second time: a caller who was killed waits, too. */
#define DELTA_MUST	8u
/* For who must not wait: -EAGAIN then, and a commit is asked for if that would help. */
#define DELTA_NOWAIT	16u
/* With that one: it makes nothing dirty, so it does not matter how full the delta is; and a transition is waited for. */
#define DELTA_ADDS_NOTHING	32u
/* For operations that cost more than a cost can say: so many times the cost, to be or-ed to the others. */
#define DELTA_TIMES_SHIFT	16
#define DELTA_TIMES_MAX		(1u << DELTA_TIMES_SHIFT)
#define DELTA_TIMES(n)		(((n) - 1u) << DELTA_TIMES_SHIFT)

/*
 * Enter the front delta; may first wait (for space, or because writers outran the device).
 * cost: from space.h.  0, -ENOSPC, -EROFS, -EINTR (the caller was killed while it waited), -EAGAIN (DELTA_NOWAIT), or the
 * volume's error.
 */
int delta_enter(struct volume *vol, struct delta_op *op, u64 cost, unsigned int flags);
void delta_leave(struct delta_op *op);
/*
 * Would an operation of this cost have to wait, or make others wait soon?  For what can be left out: a read does not wait for
 * its atime.  A guess: it may have to all the same.
 */
bool delta_would_wait(struct volume *vol, u64 cost);
/*
 * For volume_options.verify, between commits: the slot of the delta that is durable is empty, the one behind it is the front
 * one.  0, or -EIO and a sentence.
 */
int delta_verify(struct volume *vol, char *why, size_t why_size);
/* Would a mount after a crash have to hold so much of the free maps that writers wait?  share: of a half of that, 2. */
bool delta_groups_are_many(struct volume *vol, unsigned int share);
/* Inside: the operation was charged for cost, but now turns out. */
void delta_refund(struct delta_op *op, u64 cost, u64 now);
/* The same, inside, where it was charged what was thought to be due.  false: more is, in this delta, and it was left. */
bool delta_settle(struct delta_op *op, u64 cost, u64 due);
/* Inside: the delta is to be committed though no inode was changed in it. */
void delta_note_other(struct delta_op *op);
/* Inside: this inode, which it was not yet, is dirty in op->delta. */
void delta_add_inode(struct delta_op *op, struct tux3_inode *inode);
/* The back end moves so many changes from one slot's counts to the other's. */
void delta_move_counts(struct volume *vol, unsigned int from, s64 bytes, s64 inodes);
void delta_clear_counts(struct volume *vol, unsigned int slot);
/* What operations counted here and there: a guess, and what is right if none is under way. */
static inline s64 delta_dirty_bytes(struct delta_state *delta, unsigned int slot)
{
	return percpu_counter_read(&delta->dirty_bytes[slot]);
}

static inline s64 delta_changes(struct delta_state *delta, unsigned int slot)
{
	return percpu_counter_read(&delta->changes[slot]);
}

static inline s64 delta_dirty_bytes_sum(struct delta_state *delta, unsigned int slot)
{
	return percpu_counter_sum(&delta->dirty_bytes[slot]);
}

static inline s64 delta_changes_sum(struct delta_state *delta, unsigned int slot)
{
	return percpu_counter_sum(&delta->changes[slot]);
}

/* What committing the delta of this slot takes, in bytes, by a guess. */
static inline s64 delta_load(struct delta_state *delta, unsigned int slot)
{
	return delta_dirty_bytes_sum(delta, slot) + delta_changes_sum(delta, slot) * PACE_CHANGE_BYTES;
}

/* A counter of the volume: that of operations is a sum over the CPUs. */
u64 delta_counter(struct volume *vol, enum tux3_counter which);

/* Inside: memory was filled in op->delta that stays until it is durable.  Negative: replaced in the same delta. */
void delta_add_dirty_bytes(struct delta_op *op, s64 bytes);
/* The same, and it means a record more for the commit. */
void delta_add_change(struct delta_op *op, s64 bytes);

#define SURELY_TURN_MS	5000u	/* so often a wait that nothing ends shows the kernel that it is not stuck */

/* Wait on a queue for a condition, which may also be that an error makes waiting senseless.  -EINTR: the caller was killed. */
#define delta_wait(queue, condition, surely) __extension__ ({						\
	int wait_err = 0;										\
													\
	if (surely)											\
		while (!wait_event_timeout(queue, condition, msecs_to_jiffies(SURELY_TURN_MS)))		\
			;										\
	else												\
		wait_err = wait_event_killable(queue, condition) ? -EINTR : 0;				\
	wait_err; })

/*
 * Everything changed before the call is durable on return 0.  Not inside a delta.  -EINTR: the caller was killed; it will
 * be committed all the same.
 */
int delta_commit(struct volume *vol);
/* The same for those who cannot go on without: nothing ends the wait. */
int delta_commit_surely(struct volume *vol);
/*
 * The same, but the caller makes no commit, if there is a thread that can: for who may come when that is frozen, and with it all
 * that is not to reach the device any more.
 */
int delta_commit_by_thread(struct volume *vol);
/* The same, and charges of operations that were under way, and perhaps had changed nothing yet, are settled. */
int delta_commit_charges(struct volume *vol);
/* Of the caller's operations, those up to this delta.  For who must not go on before: nothing ends the wait but an error. */
int delta_commit_through(struct volume *vol, u64 delta);
/* The same for what was changed of one inode; names: of a directory those in it. */
int delta_commit_inode(struct tux3_inode *inode);
int delta_commit_mostly(struct tux3_inode *inode);	/* and that is most of the delta */
/*
 * A hint: is most of what is to be committed, and much, data of this file?  An fsync of it waits for little that others have
 * made, and would not be faster with small deltas.
 */
bool delta_is_mostly_of(struct tux3_inode *inode);
/* The caller has waited for what it changed: it may change as much again though a delta is full. */
void delta_pass_again(struct volume *vol);
/* The caller calls fsync, and not of what is most of the delta: nor is he to wait long for others before he can go on. */
void delta_note_fsync(struct volume *vol);
/* Ask for a commit soon, do not wait. */
void delta_request(struct volume *vol);
/* For space.c: a commit; from the second attempt on a unify, before which there is a commit only if it is needed. */
int delta_commit_space(struct volume *vol, unsigned int flags, unsigned int attempt);
/* Commit, then unify until the anchor holds everything. */
int delta_commit_unify(struct volume *vol);

/*
 * For freezing: everything is committed and unified, and until delta_resume() nothing is written to the device, not by
 * the back end either.  The host lets no operations begin that somebody could wait for: delta_commit() then finds
 * nothing to do and returns 0.  What is changed nevertheless (a file without a name goes out of use) stays in memory;
 * it gets -EBUSY if it would need a commit to get space.  No lock is held between pause and resume.
 */
int delta_pause(struct volume *vol);
void delta_resume(struct volume *vol);

/* Become the back end: takes commit_mutex; what is allocated meanwhile is allocated without calling back into us. */
void delta_lock(struct volume *vol);
int delta_lock_killable(struct volume *vol);	/* 0, or -EINTR */
void delta_unlock(struct volume *vol);

int delta_start(struct volume *vol);	/* state at open: delta.committed is known; starts the thread */
void delta_stop(struct volume *vol);	/* stops the thread */
int delta_init(struct volume *vol);
void delta_exit(struct volume *vol);

/* Commit all there is, and unify; commit_mutex held. */
int delta_unify_all(struct volume *vol);
/* Unify what is committed; commit_mutex held. */
int delta_unify_committed(struct volume *vol);

/* The front delta becomes the back delta; waits until its operations have left.  commit_mutex held. */
u64 delta_transition(struct volume *vol, s64 *charged);
bool delta_has_changes(struct volume *vol);	/* the front delta, or long deletes */

/*
 * An inode without a name that nobody uses any more, while the volume is read-only: its orphan item stands, and says nothing
 * of whether it is in use.  Deleted when the volume becomes writable; without memory for it here, by the next mount.
 */
struct delta_forgotten {
	struct list_head link;
	u64 ino;
};

void delta_forget_later(struct volume *vol, u64 ino);
void delta_take_forgotten(struct volume *vol, struct list_head *list);	/* the caller frees them */
/* It is writable from now on.  Those that came since delete_begin_later() are left to the next mount. */
void delta_set_writable(struct volume *vol);

#endif
