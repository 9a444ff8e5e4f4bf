/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 image: a copy of the metadata as a sparse file, for a bug report.
 *
 * Copied block by block, damaged ones too: anchors, free maps, the tree as the anchor has it, the log, and
 * intents.  File data stays behind; so that a replay of the copy does not take the last commit for torn, it is
 * marked there as one whose data was durable, and batches of intents as such whose data is not there.
 * --scramble is tux3_scramble.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "commands.h"
#include "scramble.h"
#include "core/format/anchor.h"
#include "core/log/replay.h"

const char image_help[] =
"tux3 image IMAGE OUT [--scramble]\n"
"\n"
"Copies the metadata of a volume that is not mounted to a sparse file, to go with a bug report:\n"
"anchors, free maps, tree, log and intents, damaged ones too, but no file data and no large xattr values.\n"
"Small files and names are in the tree, so they are copied as well, unless:\n"
"\n"
"  --scramble               replace names, symlink targets, small files and xattr values by other text\n"
"                           of the same length.  The tree is built anew for that (names are ordered by\n"
"                           their hashes), with the log applied; so damage to blocks is not copied.\n"
"  -f, --force              overwrite OUT\n"
"\n"
"Examples:\n"
"  tux3 image /dev/sdb1 sdb1.tux3meta && xz sdb1.tux3meta\n"
"  tux3 image disk.img copy.img --scramble && fsck.tux3 copy.img\n"
"\n"
"Exit code 0: copied; 1: could not; 16: wrong use.\n";

#define MADE	".XXXXXX"	/* what mkostemp(3) makes unique */

struct image {
	struct volume *vol;
	struct tool_output out;
	u8 *block;
	u64 copied, unreadable;
	int err;
};

static int image_write(struct image *image, u64 addr, const void *data)
{
	size_t size = image->vol->block_size, done = 0;

	while (done < size) {
		ssize_t n = pwrite(image->out.fd, (const u8 *)data + done, size - done, addr * size + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			image->err = n ? -errno : -EIO;
			tool_error("%s cannot be written: %s.", image->out.path, strerror(-image->err));
			return image->err;
		}
		done += n;
	}
	image->copied++;
	return 0;
}

/* The block is in image->block afterwards.  A block that cannot be read is left out. */
static int image_copy(struct image *image, u64 addr, bool skip_zero)
{
	if (addr >= image->vol->total_blocks)
		return -EINVAL;
	if (device_read(image->vol->dev, addr, 1, image->block)) {
		image->unreadable++;
		return -EIO;
	}
	if (skip_zero && !memchr_inv(image->block, 0, image->vol->block_size))
		return 0;
	return image_write(image, addr, image->block);
}

static int copy_node(void *ctx, const struct tree_visit *visit)
{
	struct image *image = ctx;

	image_copy(image, visit->addr, true);
	return image->err;
}

static void copy_fixed(struct image *image)
{
	struct volume *vol = image->vol;
	u64 group;
	unsigned int n;

	for (n = 0; n < TUX3_ANCHOR_SLOTS && !image->err; n++)
		image_copy(image, anchor_slot_offset(vol->total_blocks << vol->block_shift, n) >> vol->block_shift,
			   true);
	for (group = 0; group < vol->group_count && !image->err; group++)
		for (n = 0; n < 2 && !image->err; n++)
			image_copy(image, balloc_slot_addr(vol, group, n), true);
}

/* ---- intents ---- */

/* A block of the area that was just read: if a batch has, or had, its header there, that is copied, and marked. */
static void mark_batch(struct image *image, u64 addr, __le64 life)
{
	struct disk_intents *head = (void *)image->block;
	__le32 crc = head->crc;
	bool whole;

	if (le32_to_cpu(head->magic) != TUX3_INTENT_MAGIC || le64_to_cpu(head->volume_id) != image->vol->id ||
	    le64_to_cpu(head->addr) != addr || head->life != life)
		return;
	head->crc = 0;
	whole = crc32c(~0u, head, image->vol->block_size) == le32_to_cpu(crc);
	head->crc = crc;
	if (whole) {
		head->data_blocks |= cpu_to_le32(TUX3_INTENTS_COPY);
		head->crc = 0;
		head->crc = cpu_to_le32(crc32c(~0u, head, image->vol->block_size));
	}
	image_write(image, addr, head);
}

/* All of the area that has been a header since it is there: which of them count is for a replay to find out. */
static void copy_intents(struct image *image, const struct disk_intent_place *place)
{
	u64 addr = le64_to_cpu(place->addr), total = image->vol->total_blocks, end;

	if (!addr || addr >= total)
		return;
	for (end = addr + min_t(u64, le32_to_cpu(place->blocks), total - addr); addr < end && !image->err; addr++) {
		if (device_read(image->vol->dev, addr, 1, image->block))
			image->unreadable++;
		else
			mark_batch(image, addr, place->life);
	}
}

/* ---- the log ---- */

/* What its end, as a replay finds it, says. */
struct log_says {
	bool torn;
	struct disk_intent_place intent;	/* as the newest commit that is not torn has it */
};

static int note_commit(void *ctx, const struct log_commit *commit)
{
	struct log_says *says = ctx;

	says->torn = commit->torn;
	if (!commit->torn)
		says->intent = commit->commit->intent;
	return 0;
}

/* Is what was just copied the block of the log that was expected? */
static bool is_log_block(struct image *image, u64 addr, u64 seq)
{
	const struct disk_log *log = (const void *)image->block;

	return le32_to_cpu(log->magic) == TUX3_LOG_MAGIC && le64_to_cpu(log->volume_id) == image->vol->id &&
	       le64_to_cpu(log->addr) == addr && le64_to_cpu(log->seq) == seq;
}

static void mark_flushed(struct image *image, u64 addr)
{
	struct disk_log *log = (void *)image->block;
	struct disk_commit *commit = (void *)(log + 1);

	if (device_read(image->vol->dev, addr, 1, image->block))
		return;
	commit->flags |= cpu_to_le32(TUX3_COMMIT_DATA_FLUSHED);
	log->crc = 0;
	log->crc = cpu_to_le32(crc32c(~0u, log, image->vol->block_size));
	image_write(image, addr, log);
}

/* The next block of the log, at either of its places; its address, or 0. */
static u64 copy_log_block(struct image *image, u64 addr, u64 after, u64 seq)
{
	if (!image_copy(image, after, true) && is_log_block(image, after, seq))
		return after;
	return !image_copy(image, addr, true) && is_log_block(image, addr, seq) ? addr : 0;
}

static void copy_log(struct image *image)
{
	const struct disk_anchor *anchor = &image->vol->anchor;
	const struct disk_log *log = (const void *)image->block;
	u64 next = le64_to_cpu(anchor->log_addr), after = le64_to_cpu(anchor->log_after);
	u64 seq = le64_to_cpu(anchor->log_seq), last = 0, before = 0, left = image->vol->total_blocks, addr;
	struct log_says says = { .intent = anchor->intent };

	log_walk(image->vol, note_commit, &says);
	for (; left && !image->err; left--) {
		addr = copy_log_block(image, next, after, seq);
		if (!addr)
			break;
		if (!le32_to_cpu(log->index)) {
			before = last;
			last = addr;
		}
		next = le64_to_cpu(log->next);
		after = le64_to_cpu(log->after);
		seq += 1 + (u64)le32_to_cpu(log->skip);
	}
	/* Nobody shall look for the data of the newest commit, nor of the one that it confirms. */
	if (before && !image->err)
		mark_flushed(image, before);
	if (last && !says.torn && !image->err)
		mark_flushed(image, last);
	copy_intents(image, &says.intent);
}

/* ---- the command ---- */

static int image_run(struct image *image)
{
	char text[FORMAT_MAX];
	int err;

	image->block = malloc(image->vol->block_size);
	if (!image->block) {
		tool_error("Out of memory.");
		return EXIT_FAILED;
	}
	if (ftruncate(image->out.fd, image->vol->total_blocks << image->vol->block_shift)) {
		tool_error("%s cannot be made as large as the volume: %s.", image->out.path, strerror(errno));
		return EXIT_FAILED;
	}
	copy_fixed(image);
	err = image->err ? image->err : tree_walk(image->vol, copy_node, image);
	if (!err)
		copy_log(image);
	free(image->block);
	if (image->err || err || output_done(&image->out))
		return EXIT_FAILED;
	printf("%s: %s of metadata\n", image->out.path,
	       format_size(text, sizeof(text), image->copied << image->vol->block_shift));
	if (image->unreadable)
		tool_error("%llu blocks cannot be read and are zero in the copy.",
			   (unsigned long long)image->unreadable);
	return EXIT_CLEAN;
}

/*
 * Half a copy would be taken for one, and an older one stays until there is another: so it is made beside, under a name of its own.
 * 0, or an exit code.
 */
static int output_open(struct tool_output *output)
{
	char path[PATH_MAX];

	output->fd = -1;
	if (!output->force && !faccessat(AT_FDCWD, output->path, F_OK, AT_SYMLINK_NOFOLLOW)) {
		tool_error("%s is there already; -f overwrites it.", output->path);
		return EXIT_FAILED;
	}
	/* What a symlink leads to is overwritten, not the link. */
	if (!realpath(output->path, path))
		snprintf(path, sizeof(path), "%.*s", PATH_MAX - 1, output->path);
	if ((size_t)snprintf(output->made, sizeof(output->made), "%.*s" MADE, PATH_MAX - 1, path) >= sizeof(output->made))
		errno = ENAMETOOLONG;
	else
		output->fd = mkostemp(output->made, O_CLOEXEC);
	if (output->fd >= 0)
		return 0;
	tool_error("%s cannot be made: %s.", output->path, strerror(errno));
	return EXIT_FAILED;
}

int output_done(struct tool_output *output)
{
	char path[PATH_MAX];
	int err;

	if (TEMP_FAILURE_RETRY(fsync(output->fd))) {
		tool_error("%s cannot be written: %s.", output->path, strerror(errno));
		return EXIT_FAILED;
	}
	snprintf(path, sizeof(path), "%.*s", (int)(strlen(output->made) - strlen(MADE)), output->made);
	err = renameat2(AT_FDCWD, output->made, AT_FDCWD, path, output->force ? 0 : RENAME_NOREPLACE);
	if (err && errno == EINVAL)	/* not every filesystem knows that */
		err = rename(output->made, path);
	if (!err)
		return 0;
	tool_error("%s cannot be made: %s.", output->path, strerror(errno));
	return EXIT_FAILED;
}

/* The raw copy is of what the anchor has; only a scrambled one needs the log replayed. */
static int open_in(const char *path, bool scrambled, struct tool_volume *tool)
{
	struct volume_options opts = { .no_recovery = true };

	if (scrambled)
		return command_open(path, tool);
	if (!tool_open(path, &opts, tool, NULL))
		return 0;
	tool_error("%s", tool->why);
	return EXIT_FAILED;
}

static int image_command(const char *in, const char *out, bool scrambled, bool force)
{
	struct image image = { .out = { .path = out, .force = force } };
	struct tool_volume tool;
	int ret;

	ret = tool_check_output(out, in, true);
	if (ret)
		return ret;
	ret = open_in(in, scrambled, &tool);
	if (!ret) {
		image.vol = tool.vol;
		ret = output_open(&image.out);
		if (!ret) {
			ret = scrambled ? scramble_volume(tool.vol, &image.out) : image_run(&image);
			close(image.out.fd);
			if (ret)
				unlink(image.out.made);
		}
	}
	tool_close(&tool);
	return ret;
}

int command_image(int argc, char **argv)
{
	static const struct option options[] = {
		{ "scramble", no_argument, NULL, 's' },
		{ "force", no_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	bool scrambled = false, force = false;
	int option;

	while ((option = getopt_long(argc, argv, "sfh", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(image_help, EXIT_FAILED);
		if (option == 's')
			scrambled = true;
		else if (option == 'f')
			force = true;
		else
			return tool_usage("See tux3 help image.");
	}
	if (argc - optind != 2)
		return tool_usage("tux3 image takes two names: IMAGE and OUT.");
	return image_command(argv[optind], argv[optind + 1], scrambled, force);
}
