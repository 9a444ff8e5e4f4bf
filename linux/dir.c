// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Listing directories.
 *
 * The position in the file is the core's cookie: a 63-bit hash, of which it leaves the lowest to us, for "." and "..".
 * It is good for ever, also after the directory was closed or the machine restarted.  One value behind all hashes says
 * that the end was seen, so that the call that finds no more entries is done with at once.
 *
 * Who knows 31 bits of a position only (programs of 32 bits, version 2 of NFS) is told the upper ones of the cookie.  Where the
 * last listing has really stopped is kept with the open file: so it goes on behind names that are alike in these bits.  Who comes
 * to such a position otherwise may see some of them again.
 *
 * The VFS holds i_rwsem shared, and the file's position lock.
 */
#include <linux/compat.h>
#include <linux/filelock.h>
#include <linux/slab.h>

#include "linux/vfs.h"
#include "core/names/name_list.h"

#define DIR_END ((loff_t)S64_MAX - 1)
#define DIR_START 2u		/* behind "." and ".." */

/* The same for short positions. */
#define SHORT_END ((loff_t)S32_MAX)
#define SHORT_FIRST 3u		/* of all cookies that are too low for a position of their own */
#define SHORT_SHIFT 32

/* Of an open directory that is listed with short positions: where `pos` really is. */
struct dir_place {
	loff_t pos;
	u64 cookie;
};

static bool positions_are_short(const struct file *file)
{
	return file->f_mode & FMODE_32BITHASH || (!(file->f_mode & FMODE_64BITHASH) && in_compat_syscall());
}

static loff_t short_from_cookie(u64 cookie)
{
	return cookie <= DIR_START ? cookie : clamp_t(u64, cookie >> SHORT_SHIFT, SHORT_FIRST, SHORT_END - 1);
}

/* What is no short position is left by somebody who had the file open before. */
static u64 short_to_cookie(const struct dir_place *place, loff_t pos)
{
	if (pos == place->pos)
		return place->cookie;
	return pos <= SHORT_FIRST ? DIR_START : pos > SHORT_END ? pos : (u64)pos << SHORT_SHIFT;
}

/* dir_emit() tells each entry together with ctx->pos as its own cookie: where the one before it ends. */
struct listing {
	struct dir_context *dir;
	u64 next;
	bool is_short;
};

static int emit(void *ctx, const struct name_found *found)
{
	struct listing *listing = ctx;

	listing->dir->pos = listing->is_short ? short_from_cookie(listing->next) : listing->next;
	if (!dir_emit(listing->dir, found->name, found->len, found->ino, found->type))
		return 1;
	listing->next = found->next;
	return 0;
}

static struct dir_place *place_of(struct file *file)
{
	if (!file->private_data)
		file->private_data = kzalloc(sizeof(struct dir_place), GFP_KERNEL);
	return file->private_data;
}

static int dir_iterate(struct file *file, struct dir_context *dir)
{
	struct listing listing = { .dir = dir, .is_short = positions_are_short(file) };
	struct dir_place *place = listing.is_short ? place_of(file) : NULL;
	const loff_t end = place ? SHORT_END : DIR_END;
	u64 cookie;
	int more;

	if (listing.is_short && !place)
		return -ENOMEM;
	if (dir->pos == end || !dir_emit_dots(file, dir))
		return 0;
	cookie = listing.next = place ? short_to_cookie(place, dir->pos) : dir->pos;
	more = name_iterate(core_of(file_inode(file)), &cookie, emit, &listing);
	if (more < 0)
		cookie = listing.next;
	dir->pos = !more ? end : place ? short_from_cookie(cookie) : cookie;
	if (place)
		*place = (struct dir_place){ .pos = dir->pos, .cookie = cookie };
	return min(more, 0);
}

static loff_t dir_llseek(struct file *file, loff_t offset, int whence)
{
	bool is_short = positions_are_short(file);

	return generic_file_llseek_size(file, offset, whence, is_short ? SHORT_END : S64_MAX, is_short ? SHORT_END : DIR_END);
}

static int dir_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

const struct file_operations dir_file_ops = {
	.release	= dir_release,
	.llseek		= dir_llseek,
	.read		= generic_read_dir,
	.iterate_shared	= dir_iterate,
	.fsync		= file_fsync,
	.setlease	= generic_setlease,
	.unlocked_ioctl	= node_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};
