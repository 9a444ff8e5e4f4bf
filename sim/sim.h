/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The simulator's own interfaces: running a workload on a modelled disk beside the oracle (run.c,
 * exec.c, ahead.c, registers.c), what it reached (reach.c), comparing (compare.c), cutting the power (crash.c), the life of
 * a workload (workload.c) and the workloads (random.c with params.c and generate.c, families.c with families_fsync.c and
 * families_bad.c, exhaustive.c), faults (faults.c), threads (threads.c) and the command line (main.c, jobs.c).
 */
#ifndef TUX3_SIM_H
#define TUX3_SIM_H

#include "user/lib/internal.h"
#include "core/check/check.h"
#include "core/delta/space.h"
#include "core/ioctl.h"
#include "disk.h"
#include "model.h"

/* ---- what was asked for, and what was counted ---- */

#define SIM_ANY (~0u)

enum sim_mode { MODE_RANDOM, MODE_FAMILY, MODE_EXHAUSTIVE, MODE_IO_ERRORS, MODE_ALLOC_ERRORS, MODE_THREADS };

/* Defects that must be caught: X(NAME, "name", "what"). */
#define SIM_CANARIES(X) \
	X(DROP_FLUSH,	   "drop-flush",      "a commit leaves out its flush") \
	X(IGNORE_FLUSH,	   "ignore-flush",    "the disk's flush does nothing") \
	X(LOSE_RECOVERY,   "lose-recovery",   "the disk loses a write of a recovery that was flushed") \
	X(FORGET_LOG,	   "forget-log",      "after a crash the newest durable log block is gone") \
	X(LOSE_AHEAD,	   "lose-ahead",      "after a crash the newest durable intents are gone") \
	X(AHEAD_FLUSH,	   "ahead-flush",     "an fsync that goes ahead of its delta leaves out its flush") \
	X(KEEP_CHANGED,	   "keep-changed",    "what has changed since an fsync wrote it stays there as if it had not")

enum sim_canary {
	CANARY_NONE,
#define X(NAME, name, what) CANARY_##NAME,
	SIM_CANARIES(X)
#undef X
	CANARY_CHEAP_COSTS,	/* and from here on: a formula of costs gives less than is right */
#define X(NAME, name, what) CANARY_CHEAP_##NAME,
	SPACE_FORMULAS(X)
#undef X
	CANARIES
};

struct sim_config {
	enum sim_mode mode;
	enum sim_canary canary;
	u32 cheap_by;		/* of a formula of costs: blocks, or whatever it counts */
	u64 seeds, seed;	/* how many, the first */
	u32 ops;		/* 0: drawn from the seed */
	u32 images;		/* for each cut, 0: the workload says */
	u32 cuts;		/* for each run at most, 0: every write */
	u32 length;		/* exhaustive: operations in a sequence */
	u32 family;		/* its number in families[], or family_count(): each in turn */
	u32 threads, jobs;
	u32 second_rate;	/* one of so many images is used and cut again; 0: none; SIM_ANY: the workload says */
	u32 minutes;
	u32 fsync;		/* enum tux3_fsync, of all workloads; TUX3_FSYNC_DEFAULT: they say */
	s64 only_cut, only_image, only_nth;	/* -1: all */
	bool verbose, show_trace;
};

#define SIM_TOTALS(X) \
	X(passed) X(failed) X(ops) X(commits) X(writes) X(cuts) X(images) X(second_images) X(checks) \
	X(compares) X(enospc) X(edquot) X(faults) X(recoveries) X(recovery_cuts) X(overdrafts) \
	X(ahead) X(intents)

/* How far workloads got: of each the largest value seen.  X(name, "what", "unit"). */
#define SIM_REACH(X) \
	X(full,		"fullest volume",		"per mille of all blocks") \
	X(inodes,	"most inodes",			"inodes") \
	X(log_blocks,	"longest log",			"blocks") \
	X(dirty_nodes,	"most dirty nodes",		"nodes") \
	X(replay_log,	"longest log replayed",		"blocks") \
	X(replay_nodes,	"largest replay",		"dirty nodes") \
	X(intents,	"most intents recovered",	"intents") \
	X(names,	"fsyncs ahead with names",	"fsyncs in a mount") \
	X(dirs,		"new directories ahead",	"directories in a mount") \
	X(early,	"data where an fsync has put it", "blocks in a mount") \
	X(groups,	"groups in memory",		"groups") \
	X(reads,	"reads in a life",		"reads") \
	X(slices,	"commits with deletes in progress", "commits") \
	X(refused,	"refused for quotas",		"operations") \
	X(bad,		"reads of what is bad",		"reads in a life") \
	X(lost,		"files of which something was lost", "files in a life") \
	X(remaps,	"exchanges, collapses, inserts", "operations") \
	X(mount_ms,	"slowest mount after a crash",	"ms, at 8 ms for a read") \
	X(clean_ms,	"slowest clean mount",		"ms") \
	X(mount_kib,	"memory of a mount after a crash", "KiB") \
	X(clean_kib,	"of a clean one",		"KiB")

struct sim_reach {
#define X(name, what, unit) u64 name;
	SIM_REACH(X)
#undef X
};

struct sim_goal {
	struct sim_reach least, most;	/* 0: no matter */
};

#define SIM_KINDS 20u	/* of workloads that are counted apart: random ones and the families */

struct sim_totals {
#define X(name) u64 name;
	SIM_TOTALS(X)
#undef X
	struct sim_reach reach[SIM_KINDS];	/* of number 0 and up: families[]; the last one: all else */
};

/* ---- one volume being run beside the oracle ---- */

/* The states that a delta may have: where it was closed within a call, before that or after it. */
struct boundary {
	u64 delta;
	struct m_state *states[2];
	u32 count;
	bool partial;		/* closed within a write or fallocate in batches: a part of it may be in */
	struct sim_op op;	/* if partial: it */
	u64 now;
};

/* A sync came back. */
struct ack {
	u64 at;			/* event */
	u64 delta;		/* what is on the disk is this one or a newer one, or equal to one of states */
	bool exact;		/* nothing came after it: the disk holds states[0] */
	struct m_state *states[2];	/* [1] may be NULL */
};

/* An fsync went ahead of its delta. */
struct ahead {
	u64 at;			/* event */
	u64 delta;		/* when that or a newer one is on the disk, it does not count */
	u32 id;			/* of the inode */
	bool sure;		/* false: it failed, or was made durable by a commit after that: may be there or not */
	struct m_state *state;	/* in which the inode is what was put ahead */
	struct m_closure *closure;	/* names that its intent says; or NULL */
};

struct sim_params {		/* all follow from the seed */
	u64 seed;
	u32 family;		/* number in families[], or SIM_KINDS - 1 */
	u32 lives;		/* from an open to a crash or a close; each but the first goes on from what a cut left */
	u32 cuts, images, recoveries;	/* of a life: see sim_config; 0: as that says.  recoveries: one of so many images */
	struct disk_settings disk;
	u64 volume_bytes;
	u32 block_size;
	bool no_csum, quota, tight;
	bool ahead;		/* many fsyncs go ahead of their delta: a commit comes first, which makes room for that */
	bool holds;		/* some are taken: see hold.c */
	bool close_at_end, abandon_last;	/* does a life end with a close?  Even so, the last one does not */
	struct volume_options options;
	u64 data_cache_bytes;
	u32 ops;
	u32 weights[SIM_OP_KINDS];
	u32 names;		/* different names in use */
	u32 bulk;		/* so many files are there from the start, so that the tree has levels */
	u32 fill;		/* so many KiB are allocated from the start, so that space gets tight */
};

struct sim_run {
	const struct sim_config *config;
	struct sim_totals *totals;
	const struct sim_params *params;
	const char *where;	/* for messages: "after the cut ..." */
	struct sim_disk *disk;
	struct tux3 *volume;	/* NULL: not open */
	struct m_state *state;	/* what the volume must hold now */
	struct tux3_node *slots[SIM_SLOTS];
	u64 first_delta;	/* of boundaries[0] */
	struct boundary *boundaries;
	u32 boundary_count;
	bool closed;		/* properly: the last boundary stands for all later deltas too */
	struct ack *acks;
	u32 ack_count;
	struct ahead *aheads;
	u32 ahead_count;
	u64 clock;		/* ns, of the operation under way */
	u32 op_index;
	bool faulty;		/* operations may fail with EIO, ENOMEM, EROFS */
	bool broken;		/* the volume has given up: nothing more is asked of it */
	u64 lost_delta;		/* 0, or from this one on files lack what a commit could not put where it cannot be read */
	bool failed;
	bool threaded;		/* commits are another thread's: no boundaries, no acks */
	bool recovering;	/* what the trace has is a recovery */
	u32 life;		/* 0: the first */
	struct sim_reach reach;
	struct registers *registers;	/* blocks turn bad; or NULL */
	struct beside *beside;	/* a sync under way in another thread, or NULL */
	bool flew;		/* in the last operation it was over, and was an fsync that went ahead */
	struct ahead held_ahead;	/* that one while it is under way; state NULL: there is none */
	bool holding;
	struct tux3_ioc_hold hold;
	struct check_result held;	/* what it held when it was taken */
	s64 result;		/* of the last operation */
	u8 *buffer;		/* SIM_BUFFER bytes */
};

#define SIM_BUFFER	(1u << 20)
#define SIM_EPOCH_NS	1700000000123456789ULL

extern __thread u64 sim_now;	/* what the volume's clock says in this thread */

/* Print a sentence with the seed; marks the run as failed.  run.c */
__printf(2, 3) void sim_fail(struct sim_run *run, const char *format, ...);
void sim_log_init(const struct sim_config *config);
void sim_log_clear(void);		/* forget messages of the file system */
bool sim_log_inconsistent(void);	/* was one of them an internal inconsistency? */

void run_init(struct sim_run *run, const struct sim_config *config, struct sim_totals *totals,
	      const struct sim_params *params, struct sim_disk *disk);
void run_exit(struct sim_run *run);	/* abandons if open */
int run_format(struct sim_run *run);
int run_open(struct sim_run *run, bool read_only);	/* 0 or -errno, told */
/*
 * The oracle begins anew: the open volume was found in this state, at this delta.  If it is not open: this
 * state is the only one that the disk may hold.
 */
void run_begin(struct sim_run *run, struct m_state *state, u64 delta);
void run_close(struct sim_run *run);	/* with all that closing promises */
void run_abandon(struct sim_run *run);
void run_put_slots(struct sim_run *run);	/* nothing is open any more */
/* Note the deltas committed during a call that went from state before to run->state. op may be NULL. */
void run_note_deltas(struct sim_run *run, u64 old, struct m_state *before, const struct sim_op *op);
void run_note_ack(struct sim_run *run);		/* everything is durable */
/* An fsync returned without a commit, and not ahead of one.  It may, if the inode's latest change is durable already. */
void run_note_fsync(struct sim_run *run, const struct sim_op *op);
/* A commit of what there is begins beside what comes next; and is durable. */
void run_note_beside(struct sim_run *run, u64 delta);
void run_note_beside_over(struct sim_run *run, u64 delta);
/* The volume gave up: the delta under way, with or without the last operation, may be on the disk or not. */
void run_note_in_flight(struct sim_run *run, struct m_state *before, struct m_state *after, const struct sim_op *op);
/* The full check of the open volume. */
void run_check(struct sim_run *run);
/* Does the open volume hold exactly this state, and its disk what the volume believes (a scrub)?  If not, says what differs. */
bool run_compare(struct sim_run *run, const struct m_state *state, const char *what);

/* ---- registers.c ---- */

struct difference;

#define REGISTER_BYTES	(4u << 20)	/* of a file, at most */

/* From now on all files of this directory are such, and those that are made there.  end: none is. */
void registers_begin(struct sim_run *run, const char *dir);
void registers_end(struct sim_run *run);
void registers_closing(struct sim_run *run);	/* the volume: of a loss that comes with that nobody hears */
void registers_close(struct sim_run *run);	/* none is in use any more */
/* An operation comes, or has returned this. */
void registers_before(struct sim_run *run, const struct sim_op *op);
void registers_after(struct sim_run *run, const struct sim_op *op, s64 result);
void registers_see_bad(struct sim_run *run);	/* something may have */
bool registers_may_fail(const struct sim_run *run, const struct sim_op *op);	/* with EIO, and do nothing */
int registers_tell(const struct sim_run *run, int err);	/* of a sync, a close: EIO may tell of a loss, and all else is durable */
bool registers_lossy(const struct sim_run *run, u32 id);	/* something of this file was lost */
u32 registers_list(const struct sim_run *run, struct tux3_node **nodes, u32 *ids, u32 max);	/* files in use; how many */
void registers_compare(struct sim_run *run, struct difference *diff);		/* of the volume in use */
void registers_loosen(const struct sim_run *run, struct m_state *state);	/* else that is compared with this state */
/*
 * After a crash: what the lossy ones hold becomes that of the state.  False: they may not hold that, by what was promised until
 * then.
 */
bool registers_settle(struct sim_run *run, struct sim_run *again, struct m_state *state, u64 acked_at, struct difference *diff);

/* ---- hold.c ---- */

void run_hold(struct sim_run *run);	/* between two operations: in some runs a hold is taken, looked at, or let go */

/* ---- beside.c ---- */

/*
 * A sync, or an fsync of path, begins in another thread, and is held before its write or flush number `writes`, counted from 0.
 * What comes then is beside it, until run_beside_end(); an operation that waits for it ends it, too.
 */
void run_beside_begin(struct sim_run *run, const char *path, u32 writes);
void run_beside_end(struct sim_run *run);	/* if there is one */
void run_beside_op(struct sim_run *run, bool begins);	/* an operation begins, or is over */
bool run_beside_is_ahead(const struct sim_run *run);	/* it is an intent that is being written */
u64 run_beside_delta(const struct sim_run *run);	/* of the one that is held; 0: there is none */

/* ---- ahead.c ---- */

u64 run_fsyncs_ahead(struct sim_run *run);	/* so far */
/* delta: to which the inode's newest change belongs. */
void run_note_ahead(struct sim_run *run, const struct sim_op *op, u64 delta, bool sure);
void run_hold_ahead(struct sim_run *run, const struct sim_op *op, u64 delta);	/* it was captured, and is not durable yet */
void run_note_held_ahead(struct sim_run *run);					/* it is */
void run_forget_aheads(struct sim_run *run);
/* Is the newest change of the inode one that went ahead? */
bool run_dir_is_ahead(const struct sim_run *run, u32 id, const struct boundary *boundary);
bool run_was_ahead(const struct sim_run *run, u32 id);

/* Those that come in question on top of a delta: from run->aheads[first] on. */
struct ahead_range {
	u32 first, issued, due;		/* due: had returned, so they must be there */
	u32 unsure;			/* of issued */
};
void aheads_find(const struct sim_run *run, u64 above, u64 acked_at, struct ahead_range *range);
/* The first count of them on state, where those that are not sure are left out as the number of the way says. */
u32 aheads_ways(const struct ahead_range *range);
/* False: that way cannot be, *why.  *delta: of the last one. */
bool aheads_put(const struct sim_run *run, const struct ahead_range *range, u32 count, u32 way, struct m_state *state,
		u64 *delta, const char **why);

/* exec.c: make one operation on both, compare what they return. */
void run_op(struct sim_run *run, const struct sim_op *op);

/* reach.c: note how far the open volume has got; the same of the mount just made. */
void reach_note(struct sim_run *run);
void reach_note_mount(struct sim_run *run);
void reach_check_counters(struct sim_run *run);	/* before the volume is closed */
void reach_merge(struct sim_reach *to, const struct sim_reach *from);
/* Fails the run if it is not where its goal is. */
void reach_check(struct sim_run *run, const struct sim_goal *goal);
void reach_print(const char *name, const struct sim_reach *reach);

/* ---- compare.c ---- */

struct difference {
	u32 count;
	size_t used;
	char text[2048];
};
/* Compare all that is reachable from the root. Returns the number of differences, 0: equal. */
u32 compare_tree(struct tux3 *volume, const struct m_state *state, u8 *buffer, struct difference *diff);
u32 compare_below(struct tux3 *volume, const struct m_state *state, u32 id, const char *path, u8 *buffer,
		  struct difference *diff);
int compare_data(struct tux3_node *node, const struct m_inode *inode, u64 from, u64 to, u8 *buffer,
		 struct difference *diff, const char *path);
void name_expand(const char *name, char *full);		/* full: 256 bytes */
int node_walk(struct tux3 *volume, const char *path, struct tux3_node **node);
void note_difference(struct difference *diff, const char *format, ...) __printf(2, 3);
int note_problem(void *ctx, const struct check_problem *problem);	/* check_options.problem, ctx: struct difference */

/* ---- crash.c ---- */

/* Cut the power after every write of the run's trace, and see what is left.  The run is over. */
void crash_all(struct sim_run *run, u32 depth);
/*
 * The run is over; the next goes on from what a cut near its end has left, on disk `next`, which borrows from the run's.
 * The volume is open then, unless it failed.
 */
void crash_go_on(struct sim_run *run, struct sim_disk *next, struct rng *rng);
/*
 * The volume on image, after a crash of run: is it one of the allowed states, not older than what was
 * acknowledged until event acked_at?  Check it; with write_on, use it and cut again.
 */
void crash_verify(struct sim_run *run, struct sim_disk *image, u64 acked_at, u64 seed, u32 depth, bool write_on,
		  const char *where);

/* ---- workloads ---- */

void params_fsync(struct sim_params *params, const struct sim_config *config, u64 seed);
void params_canary(struct sim_params *params, const struct sim_config *config);
/* Exchanges and the like: in one of three workloads. */
void params_remaps(struct sim_params *params, const struct sim_config *config, u64 seed);
void params_draw(struct sim_params *params, const struct sim_config *config, u64 seed);
void generate_op(const struct sim_params *params, const struct m_state *state, struct rng *rng, struct sim_op *op);
/* One that fits the state, and if many fsyncs are to go ahead, often one of the file. */
void run_random_op(struct sim_run *run, struct rng *rng);
/* Make the files that params ask for and sync; what comes then is the workload. */
void run_prepare(struct sim_run *run);
/* If many fsyncs are to go ahead: the one that would have liked to be the first of them. */
void run_first_ahead(struct sim_run *run);

/* A kind of workload: what follows from the number of a unit, and what is done with the open volume in each life. */
struct workload {
	void (*params)(struct sim_params *params, const struct sim_config *config, u64 unit);
	void (*live)(struct sim_run *run, struct rng *rng);
	const struct sim_goal *(*goal)(const struct sim_params *params);	/* or NULL */
};
extern const struct workload random_workload, family_workload, exhaustive_workload;
u64 exhaustive_count(u32 length);
u32 family_count(void);
const char *family_name(u32 family);		/* NULL: there is no such number */
u32 family_find(const char *name);		/* family_count() if there is none */
void families_print(void);
/* Of the units of MODE_FAMILY: which family, which seed. */
u32 family_of_unit(const struct sim_config *config, u64 unit, u64 *seed);

/* Run one unit of work: its number is a seed, or an index into the sequences.  True: passed. */
bool workload_unit(const struct sim_config *config, struct sim_totals *totals, u64 unit);
bool io_errors_unit(const struct sim_config *config, struct sim_totals *totals, u64 seed);
bool alloc_errors_unit(const struct sim_config *config, struct sim_totals *totals, u64 seed);
bool threads_unit(const struct sim_config *config, struct sim_totals *totals, u64 seed);

void fault_end(struct sim_disk *disk);	/* faults.c: everything works again */
void fault_pause(struct sim_run *run, bool on);	/* while we look at the volume, in its own thread */

/* jobs.c: all units in config->jobs processes.  Returns the exit status. */
typedef bool (*unit_fn)(const struct sim_config *config, struct sim_totals *totals, u64 unit);
int jobs_run(const struct sim_config *config, unit_fn fn, u64 first, u64 count);
/* For messages after a crash of the simulator itself, and for the replay command. */
void jobs_at(s64 cut, s64 image);
void jobs_at_nth(s64 nth);
void jobs_replay_command(const struct sim_config *config, u64 unit, char *text, size_t size);
extern const char *const canary_names[CANARIES];
void jobs_watchdog(void);	/* the next step must end within a minute */

#endif
