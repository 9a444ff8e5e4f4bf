// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Listing directories.
 *
 * The position in the file is the core's cookie: a 63-bit hash, of which it leaves the lowest to us, for "." and "..".
 * It is good for ever, also after the directory was closed or the machine restarted.  One value behind all hashes says
 * that the end was seen, so that the call that finds no more entries is done with at once.
 *
 * The VFS holds i_rwsem shared, and the file's position lock.
 */
#include <linux/filelock.h>

#include "linux/vfs.h"
#include "core/names/name_list.h"

#define DIR_END ((loff_t)S64_MAX - 1)

/* dir_emit() tells each entry together with ctx->pos as its own cookie: where the one before it ends. */
struct listing {
	struct dir_context *dir;
	u64 next;
};

static int emit(void *ctx, const struct name_found *found)
{
	struct listing *listing = ctx;

	listing->dir->pos = listing->next;
	if (!dir_emit(listing->dir, found->name, found->len, found->ino, found->type))
		return 1;
	listing->next = found->next;
	return 0;
}

static int dir_iterate(struct file *file, struct dir_context *dir)
{
	struct listing listing = { .dir = dir };
	u64 cookie;
	int more;

	if (dir->pos == DIR_END || !dir_emit_dots(file, dir))
		return 0;
	cookie = listing.next = dir->pos;
	more = name_iterate(core_of(file_inode(file)), &cookie, emit, &listing);
	if (more < 0)
		cookie = listing.next;
	dir->pos = more ? cookie : DIR_END;
	return min(more, 0);
}

static loff_t dir_llseek(struct file *file, loff_t offset, int whence)
{
	return generic_file_llseek_size(file, offset, whence, S64_MAX, DIR_END);
}

const struct file_operations dir_file_ops = {
	.llseek		= dir_llseek,
	.read		= generic_read_dir,
	.iterate_shared	= dir_iterate,
	.fsync		= file_fsync,
	.setlease	= generic_setlease,
	.unlocked_ioctl	= node_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};
