/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 tune: what can be changed of a volume after mkfs.tux3.
 *
 * The label is changed by libtux3, or by who has the volume mounted.  Quotas need the volume for themselves (core/quota_switch.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "commands.h"
#include "tux3.h"
#include "core/format/label.h"
#include "core/quota_switch.h"
#include "user/lib/internal.h"
#include "user/lib/statistics.h"

const char tune_help[] =
"tux3 tune IMAGE|DEVICE [--label LABEL] [--quota on|off] [--json]\n"
"tux3 tune MOUNTPOINT --label LABEL\n"
"\n"
"Changes what can be changed of a volume after mkfs.tux3, and prints how it is then.  With --quota what\n"
"each user, group and project uses is counted first, of all inodes: so the volume must not be mounted.\n"
"If that is interrupted, quotas are as they were, or as they are to be.\n"
"\n"
"  -L, --label LABEL        name of the volume: up to 64 bytes, no control characters; \"\" takes it away\n"
"  -q, --quota on|off       usage is counted, and there may be limits; off: limits are forgotten\n"
"  -j, --json               print it as JSON\n"
"\n"
"Examples:\n"
"  tux3 tune /dev/sdb1\n"
"  tux3 tune /dev/sdb1 --quota on\n"
"  tux3 tune /mnt --label backup\n"
"\n"
"Exit code 0: done; 1: could not; 16: wrong use.\n";

struct tune {
	const char *path, *label;	/* label NULL: as it is */
	enum { QUOTA_KEEP, QUOTA_ON, QUOTA_OFF } quota;
	bool json;
	struct progress progress;
};

static int failed(const struct tune *tune, const char *what, int err)
{
	tool_error("%s: %s: %s.", tune->path, what, strerror(-err));
	return EXIT_FAILED;
}

/* ---- mounted ---- */

/* Other filesystems have labels that the same ioctl changes: so it has to be one of ours. */
static int tune_mounted(const struct tune *tune, dev_t dev)
{
	char label[FSLABEL_MAX] = "", statistics[TUX3_STATISTICS_MAX];
	int fd, status = EXIT_CLEAN;

	if (command_ask_mounted(tune->path, dev, statistics, sizeof(statistics)) < 0)
		return EXIT_FAILED;
	if (tune->quota) {
		tool_error("%s is mounted, and quotas are switched on or off while it is not, since all inodes are counted: unmount it, "
			   "and name the device or image.", tune->path);
		return EXIT_FAILED;
	}
	if (!tune->label)
		return tool_usage("Of what is mounted only the label can be changed: which --label? Features: tux3 show features %s", tune->path);
	memcpy(label, tune->label, strlen(tune->label));
	fd = open(tune->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return failed(tune, "cannot be opened", -errno);
	if (ioctl(fd, FS_IOC_SETFSLABEL, label))
		status = failed(tune, "the label cannot be changed", -errno);
	close(fd);
	return status;
}

/* ---- not mounted ---- */

static void on_progress(void *ctx, enum check_pass pass, u64 done, u64 total)
{
	struct tune *tune = ctx;

	progress_check(&tune->progress, pass, done, total);
}

static int set_quota(struct tune *tune, struct tux3 *volume, char *why, size_t why_size)
{
	struct quota_switch to = { .on = tune->quota == QUOTA_ON, .progress = on_progress, .ctx = tune };
	int err = volume_switch_quota(tux3_core(volume), &to, why, why_size);

	progress_end(&tune->progress);
	return err;
}

static int tune_offline(struct tune *tune)
{
	struct tux3_options options = { .manual = true };
	struct tux3 *volume;
	char why[512] = "";
	int err;

	if (tux3_open(tune->path, &options, &volume, why, sizeof(why))) {
		tool_error("%s", why);
		return EXIT_FAILED;
	}
	/* The label first: nothing may be changed after the other. */
	err = tune->label ? tux3_set_label(volume, tune->label) : 0;
	if (!err && tune->quota)
		err = set_quota(tune, volume, why, sizeof(why));
	if (err)
		tux3_abandon(volume);
	else
		err = tux3_close(volume);
	if (!err)
		return EXIT_CLEAN;
	tool_error("%s cannot be changed: %s", tune->path, why[0] ? why : strerror(-err));
	return EXIT_FAILED;
}

static int print(const struct tune *tune)
{
	char text[64 + 6 * TUX3_LABEL_MAX];	/* each byte of it as \u00.. */
	struct tool_volume tool;
	struct show_buffer out;
	int status = command_open(tune->path, &tool);

	if (!status) {
		show_init(&out, text, sizeof(text), tune->json);
		show_begin(&out, NULL);
		show_bytes(&out, "label", tool.vol->label, label_length(tool.vol->label));
		show_bool(&out, "quota", volume_has_feature(tool.vol, TUX3_RO_COMPAT, TUX3_FEATURE_RO_COMPAT_QUOTA));
		show_end(&out);
		printf("%s\n", text);
	}
	tool_close(&tool);
	if (status || (!fflush(stdout) && !ferror(stdout)))
		return status;
	tool_error("The output could not be written: %s.", strerror(errno));
	return EXIT_FAILED;
}

static int run(struct tune *tune)
{
	struct stat st;
	int status = EXIT_CLEAN;

	if (!stat(tune->path, &st) && S_ISDIR(st.st_mode))
		return tune_mounted(tune, st.st_dev);
	if (tune->quota || tune->label)
		status = tune_offline(tune);
	return status ? status : print(tune);
}

int command_tune(int argc, char **argv)
{
	static const struct option options[] = {
		{ "label", required_argument, NULL, 'L' },
		{ "quota", required_argument, NULL, 'q' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	struct tune tune = { };
	char why[256];
	int option;

	while ((option = getopt_long(argc, argv, "L:q:jh", options, NULL)) != -1) {
		switch (option) {
		case 'L':
			if (label_check(optarg, strlen(optarg), why, sizeof(why)))
				return tool_usage("%s", why);
			tune.label = optarg;
			break;
		case 'q':
			if (strcmp(optarg, "on") && strcmp(optarg, "off"))
				return tool_usage("\"%s\" is neither on nor off.", optarg);
			tune.quota = strcmp(optarg, "on") ? QUOTA_OFF : QUOTA_ON;
			break;
		case 'j':
			tune.json = true;
			break;
		case 'h':
			return tool_tell(tune_help, EXIT_FAILED);
		default:
			return tool_usage("See tux3 help tune.");
		}
	}
	if (argc - optind != 1)
		return tool_usage(optind == argc ? "Which image, device or mount point?" : "One volume at a time.");
	tune.path = argv[optind];
	return run(&tune);
}
