/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Opening and closing volumes, and what can be changed of an open one. */
#ifndef TUX3_OPEN_H
#define TUX3_OPEN_H

#include "core/env.h"
#include "core/format/format.h"

struct volume;
struct volume_options;
struct tux3_device;
struct tux3_host_ops;

/*
 * Open: read the anchors, replay the log, finish what orphans say, start the back end.  The device is
 * used until volume_close, which does not close it.  host may be NULL for a read_only open by tools.
 * On failure a sentence for the user is in why.
 */
int volume_open(struct tux3_device *dev, const struct tux3_host_ops *host,
		const struct volume_options *opts, struct volume **volp, char *why, size_t why_size);
/*
 * Commit everything, unify, stop the back end, free the volume.  The host has dropped all its
 * inode references before but those pinned by deltas.  Returns the first error of the volume's life.
 */
int volume_close(struct volume *vol);
/*
 * The same in two steps, for a host that drops what deltas pinned only later: stop does all but free the memory, and
 * leaves nothing pinned.  Between them inodes may be given up with inode_exit(), but nothing be changed.
 */
int volume_stop(struct volume *vol);
void volume_release(struct volume *vol);
/* As a crash would leave it: stop, write nothing more, free everything. Dirty inodes are released. */
void volume_abandon(struct volume *vol);

/*
 * For a mount that is changed while it is in use.  To read-only: the host lets nobody begin to write; everything is
 * committed and unified, so that the next open has no log to replay, and nothing is written after.  An error of a write
 * on the way is returned, the volume is read-only all the same.  To writable: does what opening it so would have
 * done; dev->read_only is false by now.  -EROFS: the volume was opened with no_recovery, or has features that do not
 * allow it; it stays read-only, as after any other error.  why: a sentence.
 */
int volume_set_read_only(struct volume *vol, bool read_only, char *why, size_t why_size);

/*
 * The name of the volume, zero padded.  To set it writes an anchor: durable on return 0.  -EINVAL (control
 * characters), -EROFS, -EBUSY (paused), -EIO ...
 */
void volume_get_label(struct volume *vol, u8 label[TUX3_LABEL_MAX]);
int volume_set_label(struct volume *vol, const u8 label[TUX3_LABEL_MAX]);

/* dirty_bytes and, if limit is 0, the limit that goes with it; too much is as much as there can be. */
void volume_set_dirty_bytes(struct volume_options *opts, u64 bytes, u64 limit);

#endif
