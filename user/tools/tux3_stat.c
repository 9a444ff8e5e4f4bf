/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tux3 stat: totals of an image; of a mounted volume also what it has counted, as its daemon or the module tells. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "commands.h"
#include "user/lib/statistics.h"

const char stat_help[] =
"tux3 stat IMAGE|DEVICE|MOUNTPOINT [--json] [NAME]...\n"
"\n"
"Prints totals, deltas and the log of a volume.  A mounted one also tells what it has counted\n"
"since it was mounted.  With names: only these.  \"tux3 help counters\" lists them.\n"
"\n"
"  --json                   {\"name\": {\"value\": 1, \"unit\": \"blocks\", \"what\": \"...\"}, ...}\n"
"\n"
"Examples:\n"
"  tux3 stat disk.img\n"
"  tux3 stat ./mnt\n"
"  tux3 stat ./mnt inodes_vanished node_blocks\n"
"\n"
"Exit code 0: printed; 1: could not; 16: wrong use.\n";

/* What the kernel module tells of the volume that it has mounted from this device.  -ENOENT: it has not. */
static ssize_t ask_module(dev_t dev, char *text, size_t size)
{
	char link[64], device[PATH_MAX], folder[PATH_MAX + 16];
	ssize_t len;

	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	len = readlink(link, device, sizeof(device) - 1);
	if (len < 0)
		return -ENOENT;
	device[len] = 0;
	snprintf(folder, sizeof(folder), "/sys/fs/tux3/%s", strrchr(device, '/') ? strrchr(device, '/') + 1 : device);
	return folder_statistics_text(folder, text, size);
}

ssize_t command_ask_mounted(const char *path, dev_t dev, char *text, size_t size)
{
	ssize_t len = ask_module(dev, text, size);

	if (len >= 0)
		return len;
	len = getxattr(path, TUX3_STATISTICS_XATTR, text, size);
	if (len >= 0)
		return len;
	if (errno == ENODATA || errno == EOPNOTSUPP)
		tool_error("%s is not the root of a mounted Tux3 volume.", path);
	else
		tool_error("%s cannot be asked: %s.", path, strerror(errno));
	return -1;
}

static ssize_t ask_image(const char *path, char *text, size_t size)
{
	struct tool_volume tool;
	ssize_t len = -1;

	if (!command_open(path, &tool)) {
		len = volume_statistics_text(tool.vol, false, text, size);
		if (len < 0)
			tool_error("%s: %s.", path, strerror(-len));
	}
	tool_close(&tool);
	return len;
}

static bool wanted(const char *name, char **names, int count)
{
	int i;

	for (i = 0; i < count; i++)
		if (!strcmp(names[i], name))
			return true;
	return !count;
}

/* One line: name value unit what. */
static void print_line(struct show_buffer *out, char *line, char **names, int count)
{
	char *state, *name = strtok_r(line, " ", &state), *value = strtok_r(NULL, " ", &state);
	char *unit = strtok_r(NULL, " ", &state), *what = strtok_r(NULL, "", &state);

	if (!what || !wanted(name, names, count))
		return;
	if (!out->json) {
		printf("%-20s %14s %-10s %s\n", name, value, unit, what);
		return;
	}
	show_printf(out, out->more ? ",\n  " : "\n  ");
	out->more = false;
	show_begin(out, name);
	show_u64(out, "value", strtoull(value, NULL, 10));
	show_string(out, "unit", unit);
	show_string(out, "what", what);
	show_end(out);
}

static bool has_line(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		if (!strncmp(text, name, len) && text[len] == ' ')
			return true;
	return false;
}

static int print_all(char *text, bool json, char **names, int count)
{
	char buffer[4 * TUX3_STATISTICS_MAX], *state, *line;
	struct show_buffer out;
	int status = EXIT_CLEAN, i;

	for (i = 0; i < count; i++) {
		if (has_line(text, names[i]))
			continue;
		tool_error("There is no counter \"%s\" of this; tux3 stat without names shows all.", names[i]);
		status = EXIT_FAILED;
	}
	show_init(&out, buffer, sizeof(buffer), json);
	if (json)
		show_begin(&out, NULL);
	for (line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state))
		print_line(&out, line, names, count);
	if (json) {
		show_printf(&out, "\n");
		show_end(&out);
		puts(buffer);
	}
	if (fflush(stdout) || ferror(stdout)) {
		tool_error("The output could not be written: %s.", strerror(errno));
		return EXIT_FAILED;
	}
	return status;
}

int command_stat(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	char text[TUX3_STATISTICS_MAX + 1];
	const char *path;
	struct stat st;
	bool json = false;
	ssize_t len = -1;
	int option;

	while ((option = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(stat_help, EXIT_FAILED);
		if (option != 'j')
			return tool_usage("See tux3 help stat.");
		json = true;
	}
	if (optind == argc)
		return tool_usage("Which image or mount point?");
	path = argv[optind];
	if (stat(path, &st))
		st.st_mode = 0;
	if (S_ISDIR(st.st_mode))
		len = command_ask_mounted(path, st.st_dev, text, TUX3_STATISTICS_MAX);
	else if (S_ISBLK(st.st_mode))
		len = ask_module(st.st_rdev, text, TUX3_STATISTICS_MAX);
	if (!S_ISDIR(st.st_mode) && len < 0)
		len = ask_image(path, text, TUX3_STATISTICS_MAX);
	if (len < 0)
		return EXIT_FAILED;
	text[len] = 0;
	return print_all(text, json, argv + optind + 1, argc - optind - 1);
}
