/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A modelled disk: what it holds, what a power cut would leave of it, and every write it was sent.
 *
 * Contents are pages of 4096 bytes that never change once written, so that a copy of the disk (an
 * image) is a copy of its table of pages.  An image borrows pages of its parent, which must outlive it.
 *
 * Time is counted in events: each write issued and each flush completed is one.  A write is durable
 * from the event on that made it so: a flush that began after the write had completed, or its own
 * completion where it has FUA or the disk has no volatile cache.  A power cut at event T keeps all
 * writes durable by then, and of the others any subset, torn at 512 bytes.
 *
 * Locking: the mutex protects everything; the calls named disk_* below expect that nobody uses the
 * device meanwhile.
 */
#ifndef TUX3_SIM_DISK_H
#define TUX3_SIM_DISK_H

#include <pthread.h>
#include "core/device/device.h"
#include "rng.h"

#define DISK_PAGE	4096u
#define DISK_SECTOR	512u
#define DISK_CHUNK	512u	/* pages */
#define DISK_NEVER	(~0ULL)

struct disk_write {
	u64 offset;		/* bytes */
	u32 len;		/* bytes */
	u32 flags;		/* DEVICE_... */
	u8 *data;
	u64 issued;		/* event */
	u64 durable;		/* event, or DISK_NEVER */
	bool completed;
	bool lost;		/* the canary's: nothing of it is on the disk */
	bool failed;		/* told to be; what is on the disk is anything between old and new */
	struct io_wait *wait;	/* until completed */
	struct kvec *vec;	/* until completed: where the bytes came from */
	u32 vecs;
};

struct disk_faults {		/* the nth from now on fails, counted from 1; 0: none */
	u64 read_at, write_at, flush_at;
	bool sticky;		/* and so do all after it */
};

#define DISK_BAD_MAX	8u	/* bad pages at a time */

struct disk_settings {
	u64 size_bytes;
	bool volatile_cache;
	bool has_fua;
	bool ignore_flush;	/* canary: flush does nothing */
	u32 unflushed_magic;	/* canary: so does one behind a write that begins with this; 0: none */
	u32 lose_write;		/* canary: write number so many of a trace never gets there; 0: none */
	u32 forget_magic;	/* canary: images lack the newest durable write that begins with this; 0: none */
	bool defer;		/* writes complete later, at random; all of them by kick */
	u64 seed;		/* for defer and faults */
};

struct disk_arena {
	struct disk_arena *next;
	size_t used, size;
	u8 data[] __attribute__((aligned(16)));
};

/* A table of pages in chunks, so that a large disk with little on it takes little memory. */
struct disk_pages {
	u8 ***chunks;
	u64 count;
};

struct sim_disk {
	struct tux3_device dev;
	struct disk_settings settings;
	pthread_mutex_t mutex;
	struct disk_pages pages;	/* as a reader sees it; NULL: zeros */
	struct disk_pages base;	/* when the trace began */
	struct disk_write *writes;
	u32 write_count, write_capacity;
	u32 first_pending;	/* writes before it have completed */
	u64 now;		/* events */
	u64 flushes_done;
	struct disk_faults faults;
	u64 reads_seen, writes_seen, flushes_seen;	/* since the faults were set */
	u64 faults_hit;
	bool faults_paused;
	u64 read_passes;	/* reads one after the other: those made at once count once */
	u64 bad[DISK_BAD_MAX];	/* pages that cannot be read, until they are written */
	u32 bad_count;
	u64 bad_hits;		/* reads that failed for that */
	bool frozen;		/* power is off: everything fails, nothing is recorded */
	/* Called for each write and flush before it is done, by its thread, without the mutex; or NULL. */
	void (*before)(void *ctx);
	void *before_ctx;
	struct rng rng;
	struct disk_arena *arena;
	char complaint[160];	/* what the file system did wrong towards the device; empty: nothing */
};

void disk_init(struct sim_disk *disk, const struct disk_settings *settings);
void disk_exit(struct sim_disk *disk);
/* From here on the trace is new; what was written so far is durable. */
void disk_begin_trace(struct sim_disk *disk);
void disk_set_faults(struct sim_disk *disk, const struct disk_faults *faults);	/* NULL: none */
void disk_pause_faults(struct sim_disk *disk, bool on);	/* meanwhile nothing fails, nor counts */
/* This page cannot be read from now on, until it is written: as disks do, it gets another place then.  mend: none is bad. */
void disk_turn_bad(struct sim_disk *disk, u64 page);
void disk_mend(struct sim_disk *disk);

u64 disk_now(struct sim_disk *disk);	/* events so far; any time */
u64 disk_read_passes(struct sim_disk *disk);	/* any time */

/*
 * A new disk: what is left of parent after a power cut at event `at`, after its first `issued` writes.
 * rng NULL: all of them, in order.  Else a random choice of those that were not durable; torn: one of
 * them in part.  Returns a digest of the choice, the same for the same image.
 */
struct disk_cut {
	u32 issued;
	u64 at;
};
u64 disk_init_image(struct sim_disk *image, struct sim_disk *parent, const struct disk_settings *settings,
		    const struct disk_cut *cut, struct rng *rng, bool torn);
/* How many of the first writes of a cut were not durable at that moment. */
u32 disk_count_unflushed(const struct sim_disk *disk, const struct disk_cut *cut);
/* Print the trace from write `from` on. */
void disk_print_trace(const struct sim_disk *disk, u32 from);

#endif
