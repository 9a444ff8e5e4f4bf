/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 undo: put back what an undo file holds.
 *
 * Nothing is written unless all of the undo file is good and belongs to the volume as it is now.  The file is marked before
 * the first write, so that an interrupted run is known as such: then the volume is neither the old nor the new one, and may only
 * not be newer (tool_undo_match()).
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "commands.h"
#include "core/device/device.h"
#include "user/env/device_file.h"
#include "user/env/device_undo.h"
#include "user/env/device_wait.h"
#include "user/env/undo_file.h"

const char undo_help[] =
"tux3 undo UNDOFILE DEVICE|FILE [--json]\n"
"\n"
"Puts back what fsck.tux3 --undo UNDOFILE saved, so that each byte of the volume is what it was before\n"
"the repair.  It must not be mounted, nor have been changed since.  Ctrl-C does not end it in the middle;\n"
"if it is killed there, the volume cannot be used: do it again.\n"
"\n"
"  -f, --force              though the volume was changed since, or nothing says which it is\n"
"      --json               the result as JSON\n"
"\n"
"Examples:\n"
"  fsck.tux3 -y --undo before.undo disk.img\n"
"  tux3 undo before.undo disk.img\n"
"  tux3 undo before.undo /dev/sdb1 --json | jq .as_before\n"
"\n"
"Exit code 0: it is as it was; 1: could not; 16: wrong use.\n";

struct undo {
	const char *path;
	struct undo_file *file;
	struct tux3_device *dev;
	struct progress progress;
	bool force, json, already;
	char why[1024];
};

static void on_progress(void *ctx, u64 done, u64 total)
{
	struct undo *undo = ctx;

	progress_tell(&undo->progress, "Putting back", done, total);
}

static void on_cancel(int signal)
{
	static const char text[] = "\ntux3: what was there is being put back, and that is finished first.\n";
	ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)ignored;
}

/* In the middle of it the volume is of no use to anybody. */
static void finish_first(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(signals); i++)
		if (signal(signals[i], on_cancel) == SIG_IGN)
			signal(signals[i], SIG_IGN);
}

static int put_back(struct undo *undo)
{
	int err;

	finish_first();
	err = undo_file_set_state(undo->file, UNDO_IS_BEGUN);
	if (!err)
		err = device_undo_put_back(undo->dev, undo->file, on_progress, undo);
	progress_end(&undo->progress);
	if (!err)
		err = undo_file_set_state(undo->file, UNDO_IS_DONE);
	if (err)
		snprintf(undo->why, sizeof(undo->why), "%.300s could not be put back (%s): do this again, it cannot be used as it is",
			 undo->path, strerror(-err));
	return err;
}

static int run(struct undo *undo)
{
	bool done = le32_to_cpu(undo->file->header.state) == UNDO_IS_DONE;
	int err;

	device_wait_closed(undo->path, true);
	err = device_open_file(undo->path, DEVICE_OPEN_WRITE | DEVICE_OPEN_SYNC_IO, &undo->dev, undo->why, sizeof(undo->why));
	if (err)
		return err;
	err = tool_undo_match(undo->dev, undo->file, undo->force, undo->path, undo->why, sizeof(undo->why));
	if (err)
		return err;
	err = done ? tool_undo_compare(undo->dev, undo->file, 0) : -ESTALE;
	undo->already = !err;
	if (!err || (err == -ESTALE && (!done || undo->force)))
		return err ? put_back(undo) : 0;
	snprintf(undo->why, sizeof(undo->why), err == -ESTALE ?
		 "%.300s was put back already, and changed after that: nothing is put back without -f" : "%.300s cannot be compared: %s",
		 undo->path, strerror(-err));
	return err;
}

static void print_json(struct undo *undo, int err)
{
	const struct undo_file *file = undo->file;
	struct show_buffer out;
	char text[20 * 4096];		/* two paths and a sentence, each byte of them as \\u00.. */

	show_init(&out, text, sizeof(text), true);
	show_begin(&out, NULL);
	show_string(&out, "image", undo->path);
	show_bool(&out, "as_before", !err);
	show_bool(&out, "was_already", undo->already);
	if (err)
		show_string(&out, "failure", undo->why);
	if (file) {
		show_string(&out, "undo_file", file->path);
		show_u64(&out, "records", file->count);
		show_u64(&out, "bytes", file->saved_bytes);
		show_bool(&out, "complete", file->complete);
		show_bool(&out, "cut_off", file->cut_off);
	}
	show_end(&out);
	printf("%s\n", text);
}

static void print_text(struct undo *undo)
{
	char text[FORMAT_MAX];

	if (undo->file->cut_off)
		printf("%s: the end was not written whole; what it is for was not changed\n", undo->file->path);
	if (undo->already)
		printf("%s: was put back already, nothing is to be done\n", undo->path);
	else
		printf("%s: is as it was: %s put back\n", undo->path, format_size(text, sizeof(text), undo->file->saved_bytes));
}

static int undo_command(struct undo *undo, const char *file)
{
	int err = undo_file_open(file, &undo->file, undo->why, sizeof(undo->why));

	if (!err)
		err = run(undo);
	if (undo->json)
		print_json(undo, err);
	else if (!err)
		print_text(undo);
	if (err)
		tool_error("%s", undo->why);
	if (undo->dev)
		undo->dev->ops->close(undo->dev);
	if (undo->file)
		undo_file_close(undo->file);
	if (fflush(stdout) || ferror(stdout)) {
		tool_error("The output could not be written: %s.", strerror(errno));
		return EXIT_FAILED;
	}
	return err ? EXIT_FAILED : EXIT_CLEAN;
}

int command_undo(int argc, char **argv)
{
	static const struct option options[] = {
		{ "force", no_argument, NULL, 'f' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	struct undo undo = { };
	int option;

	while ((option = getopt_long(argc, argv, "fjh", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(undo_help, EXIT_FAILED);
		if (option == 'f')
			undo.force = true;
		else if (option == 'j')
			undo.json = true;
		else
			return tool_usage("See tux3 help undo.");
	}
	if (argc - optind != 2)
		return tool_usage("An undo file and its volume are wanted; see tux3 help undo.");
	undo.path = argv[optind + 1];
	tool_log(false);	/* all that matters is said here */
	return undo_command(&undo, argv[optind]);
}
