/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fsck.tux3 -y, -p: the repair itself is core/repair's; here is the device, the undo file in front of it, and what is told.
 *
 * The repair is worked out in memory, and then written.  Until then whoever cancels changes nothing; after that he waits.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "fsck.h"
#include "core/device/device.h"
#include "core/format/anchor.h"
#include "user/env/device_file.h"
#include "user/env/device_undo.h"
#include "user/env/device_wait.h"
#include "user/env/undo_file.h"

/* For the signal handler.  It runs in this thread: all others were started with these signals blocked. */
static volatile enum {
	NOT_WRITTEN,
	WORKING,
	FINISHING,		/* also while it is told what was done */
	READING_DATA,		/* after it was written: that may take long */
} phase;
static struct tux3_device *volatile device_now;		/* WORKING */
static const char *volatile undo_path_now;		/* an undo file that holds nothing yet */

void fsck_block_signals(bool block)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(block ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

int fsck_repair_cancel(void)
{
	if (phase == READING_DATA)
		return 1;
	if (phase == FINISHING || (phase == WORKING && atomic64_read(&device_now->writes)))
		return -EBUSY;
	if (undo_path_now)
		unlink(undo_path_now);
	return 0;
}

static void on_note(void *ctx, const struct repair_note *note)
{
	struct fsck *fsck = ctx;
	struct fsck_note *more;
	char *text = strdup(note->text);

	if (text && fsck->note_count == fsck->note_room) {
		fsck->note_room = max_t(u64, 2 * fsck->note_room, 64);
		more = realloc(fsck->notes, fsck->note_room * sizeof(*more));
		if (more)
			fsck->notes = more;
		else
			fsck->note_room = fsck->note_count;
	}
	if (!text || fsck->note_count == fsck->note_room) {
		free(text);
		fsck->notes_missing = true;
		return;
	}
	fsck->notes[fsck->note_count++] = (struct fsck_note){ .kind = note->kind, .ino = note->ino, .text = text };
}

/* ---- the undo file ---- */

struct undoing {
	struct tux3_device *below, *dev;	/* dev: what is written to; below, if there is no undo file */
	struct undo_file *file;
};

static int undoing_begin(struct undoing *undoing, const char *path, char *why, size_t why_size)
{
	int err;

	undoing->dev = undoing->below;
	if (!path)
		return 0;
	err = tool_undo_create(path, undoing->below, &undoing->file, why, why_size);
	if (err)
		return err;
	undoing->dev = device_undo_create(undoing->below, undoing->file);
	if (undoing->dev)
		return 0;
	unlink(path);
	undo_file_close(undoing->file);
	snprintf(why, why_size, "not enough memory for an undo file");
	return -ENOMEM;
}

/* ret: of the repair; counts: its anchors are there all the same.  An undo file that holds nothing is removed. */
static int undoing_end(struct undoing *undoing, int ret, bool counts, char *why, size_t why_size)
{
	struct undo_file *file = undoing->file;
	struct undo_left left;
	int err = 0;

	if (!file)
		return ret;
	undoing->dev->ops->close(undoing->dev);
	if (file->err)
		snprintf(why, why_size, "the undo file %.300s cannot be written (%s): the repair was %s", file->path,
			 strerror(-file->err), counts ? "written, but not all copies of its anchor" : "not carried out");
	if (!file->seq) {
		unlink(file->path);
	} else if (!ret && !file->err) {
		tool_undo_left(undoing->below, &left);
		err = undo_file_end(file, &left);
		if (err)
			snprintf(why, why_size, "the repair was written, but the end of the undo file %.300s cannot be (%s)", file->path,
				 strerror(-err));
	}
	undo_file_close(file);
	return ret ? ret : err;
}

/* ---- the repair ---- */

/* 0: there is no anchor. */
static u64 newest_anchor(struct tux3_device *dev)
{
	struct disk_anchor anchor;
	char ignored[256];

	return volume_read_anchor(dev, &anchor, NULL, ignored, sizeof(ignored)) ? 0 : le64_to_cpu(anchor.generation);
}

/* If the volume is larger than its device: what to do. */
static void tell_cut(struct tux3_device *dev, char *why, size_t why_size)
{
	struct disk_anchor anchor;
	size_t len = strlen(why);
	char ignored[256];
	u64 bytes;

	if (volume_read_anchor(dev, &anchor, NULL, ignored, sizeof(ignored)))
		return;
	bytes = le64_to_cpu(anchor.total_blocks) << le32_to_cpu(anchor.block_shift);
	if (bytes > dev->size_bytes)
		snprintf(why + len, why_size - len,
			 "; give it its size again (truncate --size=%llu, or the partition table), then fsck.tux3 -y brings back what is left",
			 (unsigned long long)bytes);
}

void fsck_tell_cut(const char *path, char *why, size_t why_size)
{
	struct tux3_device *dev;
	char ignored[256];

	if (device_open_file(path, 0, &dev, ignored, sizeof(ignored)))
		return;
	tell_cut(dev, why, why_size);
	dev->ops->close(dev);
}

/* The core says why, but not of what, nor what became of it, nor what else there is. */
static void explain(const struct fsck *fsck, struct tux3_device *dev, bool written, char *why, size_t why_size)
{
	struct disk_anchor anchor;
	char reason[512], ignored[256];
	bool lost;
	int err;

	snprintf(reason, sizeof(reason), "%s", why);
	err = fsck->search ? 0 : volume_read_anchor(dev, &anchor, NULL, ignored, sizeof(ignored));
	lost = err && err != -ENOMEM;
	snprintf(why, why_size, "%.300s: the repair %s: %s%s", fsck->path,
		 fsck->repair.written ? "was written, but what had to follow failed" :
		 written ? "failed after something was written" : "failed and nothing was changed", reason, lost ? "; fsck.tux3 -y --search looks for what is left" : "");
	tell_cut(dev, why, why_size);
}

static int repair_device(struct fsck *fsck, struct undoing *undoing, char *why, size_t why_size)
{
	struct repair_options opts = {
		.safe = fsck->mode == FSCK_SAFE, .search = fsck->search, .note = on_note, .progress = fsck_on_progress, .ctx = fsck,
		.problem = fsck->told ? NULL : fsck_on_problem,	/* they were told, unless there could be no check */
	};
	bool written, ended;
	u64 before;
	int err;

	err = undoing_begin(undoing, fsck->undo_path, why, why_size);
	if (err)
		return err;
	undo_path_now = fsck->undo_path;
	before = newest_anchor(undoing->below);
	device_now = undoing->dev;
	phase = WORKING;
	fsck_block_signals(false);
	err = volume_repair(undoing->dev, &opts, &fsck->repair, why, why_size);
	progress_end(&fsck->progress);
	written = atomic64_read(&undoing->dev->writes);
	phase = written ? FINISHING : NOT_WRITTEN;
	/* An anchor makes it count, whatever failed after that. */
	fsck->repair.written &= written && (!err || newest_anchor(undoing->below) != before);
	if (err && err != -ENOTRECOVERABLE)
		explain(fsck, undoing->below, written, why, why_size);
	ended = !err;
	fsck->undo_unreadable_bytes = undoing->file ? undoing->file->unreadable_bytes : 0;
	err = undoing_end(undoing, err, fsck->repair.written, why, why_size);
	fsck->undo_ended = ended && !err;
	undo_path_now = NULL;
	return err;
}

/* As others see it.  --data: the repair did not read the data.  all: nor did it look at what it has done. */
static int look_again(struct fsck *fsck, bool all, char *why, size_t why_size)
{
	struct check_options opts = { .data = fsck->data, .all_groups = fsck->force, .progress = fsck_on_progress,
				      .stopped = fsck_is_interrupted, .ctx = fsck };
	struct volume_options open_opts = { };
	int err = tool_open(fsck->path, &open_opts, &fsck->tool, NULL);

	if (!err && (all || fsck->data)) {
		if (fsck->repair.written)
			phase = READING_DATA;
		err = volume_check(fsck->tool.vol, &opts, &fsck->result);
		if (fsck->repair.written)
			phase = FINISHING;
	}
	progress_end(&fsck->progress);
	if (err)
		snprintf(why, why_size, "%.300s: cannot be checked after the repair: %s", fsck->path,
			 fsck->tool.vol ? strerror(-err) : fsck->tool.why);
	return err;
}

/* It failed when it was there already: what of it is right? */
static int look_at_part(struct fsck *fsck)
{
	int code = EXIT_CORRECTED | EXIT_OPERATION;
	char ignored[512];

	if (look_again(fsck, true, ignored, sizeof(ignored)))
		return code | EXIT_PROBLEMS;
	fsck->left = fsck->result.problems;
	return code | (fsck->left ? EXIT_PROBLEMS : 0);
}

int fsck_repair(struct fsck *fsck, char *why, size_t why_size)
{
	struct undoing undoing = { };
	int err, code;

	fsck->tried = true;
	fsck->left = fsck->problems;
	device_wait_closed(fsck->path, true);
	fsck_block_signals(true);
	err = device_open_file(fsck->path, DEVICE_OPEN_WRITE, &undoing.below, why, why_size);
	if (!err) {
		err = repair_device(fsck, &undoing, why, why_size);
		undoing.below->ops->close(undoing.below);
	}
	fsck_block_signals(false);
	if (err == -ENOTRECOVERABLE)
		return EXIT_PROBLEMS;
	if (err && fsck->repair.written)
		return look_at_part(fsck);
	if (err)	/* if nothing was told, it could not even be checked */
		return (fsck->told ? EXIT_PROBLEMS : 0) | EXIT_OPERATION;
	why[0] = 0;
	code = fsck->repair.written ? EXIT_CORRECTED : 0;
	fsck->result = fsck->repair.check;
	fsck->left = fsck->repair.check.problems;
	err = look_again(fsck, false, why, why_size);
	if (err == -ECANCELED) {
		snprintf(why, why_size, "%.300s: the check after the repair was interrupted", fsck->path);
		return code | EXIT_CANCELED;
	}
	if (err)
		return code | EXIT_PROBLEMS | EXIT_OPERATION;
	fsck->left = fsck->result.problems;
	/* Nothing goes away by itself. */
	if (!fsck->repair.written && !fsck->left)
		fsck->left = fsck->problems;
	return code | (fsck->left ? EXIT_PROBLEMS : 0);
}

void fsck_repair_free(struct fsck *fsck)
{
	while (fsck->note_count)
		free(fsck->notes[--fsck->note_count].text);
	free(fsck->notes);
	fsck->notes = NULL;
}
