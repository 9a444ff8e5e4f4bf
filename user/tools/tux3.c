/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tux3: look at volumes, and a little more.  Each command is in a file of its own. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "commands.h"
#include "tux3.h"
#include "user/env/streams.h"
#include "user/lib/statistics.h"

#define STREAM_BYTES (2u << 20)

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help, *summary;
} commands[] = {
	{ "show", command_show, show_help, "print any object of a volume" },
	{ "path", command_path, path_help, "the path of an inode, by its number" },
	{ "ls-inodes", command_ls_inodes, ls_inodes_help, "all inodes, without reading directories" },
	{ "stat", command_stat, stat_help, "totals, deltas, log; counters of a mounted volume" },
	{ "graph", command_graph, graph_help, "draw the structure of a small volume" },
	{ "image", command_image, image_help, "copy the metadata, for a bug report" },
	{ "quota", command_quota, quota_help, "who uses how much, and limits for that" },
	{ "scrub", command_scrub, scrub_help, "verify all that is on the device, of a volume in use" },
	{ "defrag", command_defrag, defrag_help, "write files that lie in many pieces anew" },
	{ "tune", command_tune, tune_help, "label and quotas, after mkfs.tux3" },
	{ "undo", command_undo, undo_help, "put back what fsck.tux3 --undo saved" },
};

static int usage(FILE *to)
{
	unsigned int i;

	fprintf(to, "tux3 COMMAND [OPTION]... looks at Tux3 volumes.  Only quota, defrag, tune and undo change anything.\n\n");
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(to, "  tux3 %-9s %s\n", commands[i].name, commands[i].summary);
	fprintf(to, "  tux3 %-9s %s\n\n", "help", "explain a command: tux3 help show");
	fprintf(to, "Examples:\n"
		"  tux3 show disk.img\n"
		"  tux3 show disk.img path /etc/passwd\n"
		"  tux3 stat ./mnt\n"
		"  tux3 graph disk.img --svg -o disk.svg\n");
	return to == stdout ? tool_tell("", EXIT_FAILED) : EXIT_USAGE;
}

static int help_counters(void)
{
	const char *name, *unit, *what;
	unsigned int i;

	printf("What tux3 stat tells of a mounted volume, and the module in /sys/fs/tux3/DEVICE:\n\n");
	for (i = 0; statistics_name(i, &name, &unit, &what); i++)
		printf("%-20s %-10s %s\n", name, unit, what);
	return tool_tell("", EXIT_FAILED);
}

static bool asks_for_help(const char *word)
{
	return !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
}

static int help(const char *name)
{
	unsigned int i;

	if (!name || asks_for_help(name))
		return usage(stdout);
	if (!strcmp(name, "counters"))
		return help_counters();
	for (i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(name, commands[i].name))
			return tool_tell(commands[i].help, EXIT_FAILED);
	return tool_usage("There is no command \"%s\".", name);
}

int main(int argc, char **argv)
{
	unsigned int i;

	hold_standard_streams();
	signal(SIGXFSZ, SIG_IGN);	/* a file size limit is an error like others */
	tool_name = "tux3";
	if (argc < 2)
		return usage(stderr);
	if (asks_for_help(argv[1]))
		return help(argv[2]);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("tux3 %s\n", tux3_version());
		return tool_tell("", EXIT_FAILED);
	}
	for (i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[1], commands[i].name))
			continue;
		/* getopt() begins its messages with it. */
		argv[1] = "tux3";
		return commands[i].run(argc - 1, argv + 1);
	}
	return tool_usage("There is no command \"%s\".", argv[1]);
}

/* ---- streams ---- */

bool stream_init(struct stream *stream, bool json)
{
	char *text = malloc(STREAM_BYTES);

	memset(stream, 0, sizeof(*stream));
	if (!text) {
		tool_error("Out of memory.");
		return false;
	}
	show_init(&stream->out, text, STREAM_BYTES, json);
	return true;
}

void stream_flush(struct stream *stream)
{
	fwrite(stream->out.text, 1, stream->out.used, stdout);
	stream->out.used = 0;
	stream->out.text[0] = 0;
}

struct show_buffer *stream_begin(struct stream *stream)
{
	if (!stream->out.json) {
		stream->out.more = false;
		return &stream->out;
	}
	if (!stream->listed)
		show_list_begin(&stream->out, NULL);
	stream->listed = true;
	show_printf(&stream->out, "\n");
	return &stream->out;
}

void stream_end(struct stream *stream)
{
	if (!stream->out.json)
		show_printf(&stream->out, "\n");
	stream_flush(stream);
}

int stream_exit(struct stream *stream)
{
	if (stream->out.json) {
		if (!stream->listed)
			show_list_begin(&stream->out, NULL);
		show_printf(&stream->out, "\n");
		show_list_end(&stream->out);
		show_printf(&stream->out, "\n");
	}
	stream_flush(stream);
	free(stream->out.text);
	if (fflush(stdout) || ferror(stdout)) {
		tool_error("The output could not be written: %s.", strerror(errno));
		return EXIT_FAILED;
	}
	return EXIT_CLEAN;
}

/* ---- opening ---- */

int command_open(const char *path, struct tool_volume *tool)
{
	struct volume_options opts = { };
	char why[sizeof(tool->why)];
	bool device;
	int err = tool_open(path, &opts, tool, &device);

	if (!err)
		return 0;
	memcpy(why, tool->why, sizeof(why));
	if (!device) {
		tool_close(tool);
		opts.no_recovery = true;
		if (!tool_open(path, &opts, tool, &device)) {
			tool_error("%s", why);
			tool_error("What follows is the state before the log.");
			return 0;
		}
	}
	tool_error("%s", why);
	return EXIT_FAILED;
}
