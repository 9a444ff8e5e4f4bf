/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Making a volume: what is in the way, the place, and the writes, of which all or none are made.
 *
 * Everything that can be refused is refused before the first byte is written.  Then, in this order: signatures of
 * others are wiped, the tree is written, the anchors are written, what is left is discarded.  If that fails (no
 * space, a limit, a broken disk), the old bytes are put back, a file has its old size again, and one that was made
 * for this is removed.
 */
#include "internal.h"
#include "core/format/label.h"
#include "core/format/anchor.h"
#include "core/mkfs.h"
#include "device_file.h"
#include "device_plan.h"
#include "signatures.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/stat.h>

#define fail(why, size, ...) ((void)snprintf(why, size, __VA_ARGS__))

struct format {
	const char *path;
	const struct tux3_format_options *opts;
	struct tux3_device *dev;
	bool created;			/* the file, by us */
	bool regular;			/* a file: it can grow */
	struct signature *signatures;
	int signature_count;
	char *why;
	size_t why_size;
};

static int core_options(struct format *format, struct format_options *core)
{
	const struct tux3_format_options *opts = format->opts;

	if (opts->label && label_check(opts->label, strlen(opts->label), format->why, format->why_size))
		return -EINVAL;
	if (opts->root_uid == ID_NONE || opts->root_gid == ID_NONE) {
		snprintf(format->why, format->why_size, "nobody can have the id %u: it means none", ID_NONE);
		return -EINVAL;
	}
	core->size_bytes = opts->size_bytes;
	core->block_size = opts->block_size;
	core->no_data_csum = opts->no_data_csum;
	core->quota = opts->quota;
	core->root_uid = opts->root_uid;
	core->root_gid = opts->root_gid;
	core->root_mode = opts->root_mode;
	memcpy(core->uuid, opts->uuid, sizeof(core->uuid));
	if (opts->label)
		memcpy(core->label, opts->label, strlen(opts->label));
	return 0;
}

/* If there is nothing at path and there is a size, an empty file is made. */
static int make_file(struct format *format)
{
	const char *path = format->path;
	char first;
	int fd, err;

	if (!format->opts->size_bytes || !access(path, F_OK) || errno != ENOENT)
		return 0;
	if (readlink(path, &first, 1) == 1) {
		fail(format->why, format->why_size, "%s is a symbolic link to something that does not exist", path);
		return -ENOENT;
	}
	/* A misspelt disk would become a file in memory. */
	if (!strncmp(path, "/dev/", 5) && strncmp(path, "/dev/shm/", 9)) {
		fail(format->why, format->why_size, "there is no device %s", path);
		return -ENOENT;
	}
	fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
	if (fd < 0) {
		err = -errno;
		fail(format->why, format->why_size, "%s cannot be made: %s", path, strerror(-err));
		return err;
	}
	close(fd);
	format->created = true;
	return 0;
}

/* Others' signatures are looked for, and without force they and a volume of ours are reason to stop. */
static int look_around(struct format *format)
{
	int fd = open(format->path, O_RDONLY | O_CLOEXEC);
	char ignored[256], text[512];
	struct disk_anchor anchor;
	struct stat st;
	int err;

	if (fd < 0) {
		err = -errno;
		fail(format->why, format->why_size, "%s: %s", format->path, strerror(-err));
		return err;
	}
	format->regular = !fstat(fd, &st) && S_ISREG(st.st_mode);
	format->signature_count = signatures_find(fd, &format->signatures);
	close(fd);
	if (format->signature_count < 0) {
		fail(format->why, format->why_size, "%s cannot be searched for other filesystems: %s", format->path,
		     strerror(-format->signature_count));
		return format->signature_count;
	}
	if (format->opts->force)
		return 0;
	err = -EINVAL;
	if (format->dev->size_bytes >= TUX3_MIN_VOLUME_BYTES)
		err = volume_read_anchor(format->dev, &anchor, NULL, ignored, sizeof(ignored));
	if (!err) {
		fail(format->why, format->why_size, "%s already holds a Tux3 volume", format->path);
		return -EEXIST;
	}
	if (err == -ENOMEM) {
		fail(format->why, format->why_size, "there is not enough memory to see whether %s holds a Tux3 volume", format->path);
		return err;
	}
	if (format->signature_count) {
		fail(format->why, format->why_size, "%s already holds %s", format->path,
		     signatures_text(format->signatures, format->signature_count, text, sizeof(text)));
		return -EEXIST;
	}
	return 0;
}

static int plan_wipe(struct format *format, struct tux3_device *plan)
{
	int i, err = 0;

	for (i = 0; i < format->signature_count && !err; i++)
		err = device_plan_zero(plan, format->signatures[i].offset, format->signatures[i].bytes);
	return err ? err : plan->ops->flush(plan);
}

/* A file that is smaller than asked for grows first, and shrinks again if nothing comes of it. */
static int apply(struct format *format, struct tux3_device *plan)
{
	u64 size = format->dev->size_bytes;
	int err;

	if (plan->size_bytes > size && truncate(format->path, plan->size_bytes)) {
		err = -errno;
		fail(format->why, format->why_size, "%s cannot be made %llu bytes long: %s%s", format->path,
		     (unsigned long long)plan->size_bytes, strerror(-err),
		     err == -EFBIG ? " for the filesystem that it is on, or for ulimit -f" : "");
		return err;
	}
	format->dev->size_bytes = plan->size_bytes;
	err = device_plan_apply(plan);
	if (!err)
		return 0;
	fail(format->why, format->why_size, "%s: the volume cannot be written: %s", format->path, strerror(-err));
	format->dev->size_bytes = size;
	if (plan->size_bytes > size && truncate(format->path, size))
		fail(format->why, format->why_size, "%s: the volume cannot be written (%s), nor the file made as short as it was: %s",
		     format->path, strerror(-err), strerror(errno));
	return err;
}

/* Who is ended by a signal in the middle would leave neither the old bytes nor a volume: it comes when it is one, or was none. */
static int apply_whole(struct format *format, struct tux3_device *plan)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = apply(format, plan);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

static int write_volume(struct format *format, const struct format_options *core)
{
	u64 size = format->dev->size_bytes;
	struct tux3_device *plan;
	int err;

	if (format->regular && core->size_bytes > size)
		size = core->size_bytes;
	plan = device_plan_create(format->dev, size);
	err = plan ? plan_wipe(format, plan) : -ENOMEM;
	if (err)
		fail(format->why, format->why_size, "there is not enough memory");
	else
		err = volume_format(plan, core, format->why, format->why_size);
	if (!err)
		err = apply_whole(format, plan);
	if (!err && !format->opts->no_discard)
		device_plan_discard_rest(plan, core->size_bytes ? core->size_bytes : size);
	if (plan)
		plan->ops->close(plan);
	return err;
}

int tux3_format(const char *path, const struct tux3_format_options *opts, char *why, size_t why_size)
{
	static const struct tux3_format_options defaults;
	struct format format = { .path = path, .opts = opts ? opts : &defaults, .why = why, .why_size = why ? why_size : 0 };
	struct format_options core = {};
	int err;

	why_size = format.why_size;
	if (!path) {
		fail(why, why_size, "the name of a file or device is missing");
		return -EINVAL;
	}
	err = core_options(&format, &core);
	if (!err)
		err = make_file(&format);
	if (!err)
		err = device_open_file(path, DEVICE_OPEN_WRITE | DEVICE_OPEN_SYNC_IO | DEVICE_OPEN_FORMAT,
				       &format.dev, why, why_size);
	if (!err) {
		err = look_around(&format);
		if (!err)
			err = write_volume(&format, &core);
		if (err && format.created)
			unlink(path);
		format.dev->ops->close(format.dev);
	} else if (format.created) {
		unlink(path);
	}
	free(format.signatures);
	return err;
}
