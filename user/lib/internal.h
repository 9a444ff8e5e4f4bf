/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libtux3 for the project's own programs (simulator, tools): what the public header does not say.
 */
#ifndef TUX3_LIB_INTERNAL_H
#define TUX3_LIB_INTERNAL_H

#include "core/volume.h"
#include "tux3.h"

/* What chown(2) takes for "as it is": nobody has it, and the kernel lets nobody write to a file that does. */
#define ID_NONE U32_MAX

/* Open on any device, e.g. a modelled one.  The device is closed by tux3_close only if own is set. */
int tux3_open_device(struct tux3_device *dev, bool own, const struct volume_options *opts,
		     u64 data_cache_bytes, struct tux3 **volume, char *why, size_t why_size);
/*
 * Put every reference a caller has, but the volume's own to its root.  For FUSE: the kernel does not give back
 * what it looked up when it unmounts.  No other thread is in the library.
 */
void tux3_put_all(struct tux3 *volume);
struct file_kill;
/*
 * As tux3_write, for what somebody wrote to a cache of the caller's before: whether the file is immutable or append-only
 * by now does not matter.  keep_times: nor is now when it was changed, and mtime and ctime come another way.
 */
ssize_t tux3_write_cached(struct tux3_node *node, const void *data, size_t size, u64 offset, bool keep_times,
			  struct file_kill *kill);
/*
 * As tux3_kill_privileges() and then tux3_write() or tux3_fallocate(); but that setuid and setgid go in the delta of the
 * operation, a long one's first.  kill NULL: there is nothing to take away.
 */
struct file_kill {
	const struct tux3_cred *cred;
	bool killed;		/* the result: something was taken away */
	u32 mode;		/* for node_kill_begin() */
};
ssize_t tux3_write_killing(struct tux3_node *node, const void *data, size_t size, u64 offset, struct file_kill *kill);
int tux3_fallocate_killing(struct tux3_node *node, int mode, u64 offset, u64 length, struct file_kill *kill);
/*
 * The node with this number, without a reference: the caller has one already, under this number.  NULL: nobody has.
 * For FUSE, where the kernel holds references by number.
 */
struct tux3_node *tux3_node_held(struct tux3 *volume, uint64_t ino);
/* As tux3_fsync(), for who tells each of its users himself of what was lost: -EROFS each time, never -EIO for that. */
int tux3_fsync_told(struct tux3_node *node);
/* How many commits had to leave out something of it, since it is in memory: of that he tells them, too. */
u32 tux3_losses(struct tux3_node *node);
/* Some change of it is not durable yet: stat's count of blocks is a guess that the commit puts right. */
bool tux3_node_pending(struct tux3_node *node);
/* A remount: age, dirty, caches, names.  Only what is not 0. */
void tux3_change_options(struct tux3 *volume, const struct tux3_options *options);
/*
 * The volume is going to be mounted by the kernel with us as the server (fuseblk): gives up our claim on the device.
 * The block size to mount it with; 0: it is in a file, and nothing was done.
 */
int tux3_let_mount(struct tux3 *volume);
struct volume *tux3_core(struct tux3 *volume);
struct tux3_inode *tux3_node_core(struct tux3_node *node);

#endif
