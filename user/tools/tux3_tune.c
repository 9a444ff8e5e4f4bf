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
#include "tux3_features.h"
#include "core/format/label.h"
#include "core/quota_switch.h"
#include "user/lib/internal.h"

const char tune_help[] =
"tux3 tune IMAGE|DEVICE [--label LABEL] [--quota on|off] [--json]\n"
"tux3 tune MOUNTPOINT [--label LABEL] [--json]\n"
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

static int print(const struct tune *tune, const u8 *label, bool quota)
{
	char text[64 + 6 * TUX3_LABEL_MAX];	/* each byte of it as \u00.. */
	struct show_buffer out;

	show_init(&out, text, sizeof(text), tune->json);
	show_begin(&out, NULL);
	show_bytes(&out, "label", label, label_length(label));
	show_bool(&out, "quota", quota);
	show_end(&out);
	printf("%s\n", text);
	if (!fflush(stdout) && !ferror(stdout))
		return EXIT_CLEAN;
	tool_error("The output could not be written: %s.", strerror(errno));
	return EXIT_FAILED;
}

/* ---- mounted ---- */

static int tune_label(const struct tune *tune, int fd, bool quota)
{
	char label[FSLABEL_MAX] = "";

	if (tune->label) {
		memcpy(label, tune->label, strlen(tune->label));
		if (ioctl(fd, FS_IOC_SETFSLABEL, label))
			return failed(tune, "the label cannot be changed", -errno);
	}
	if (ioctl(fd, FS_IOC_GETFSLABEL, label))
		return failed(tune, "the label cannot be read", -errno);
	return print(tune, (const u8 *)label, quota);
}

/* Other filesystems have labels that the same ioctls change: so it has to be one of ours. */
static int tune_mounted(const struct tune *tune)
{
	u64 features[TUX3_FEATURE_WORDS];
	int fd, status = features_of_mounted(tune->path, features);

	if (status)
		return status;
	if (tune->quota) {
		tool_error("%s is mounted, and quotas are switched on or off while it is not, since all inodes are counted: unmount it, "
			   "and name the device or image.", tune->path);
		return EXIT_FAILED;
	}
	fd = open(tune->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return failed(tune, "cannot be opened", -errno);
	status = tune_label(tune, fd, features[TUX3_RO_COMPAT] & TUX3_FEATURE_RO_COMPAT_QUOTA);
	close(fd);
	return status;
}

/* ---- not mounted ---- */

typedef int (*change_fn)(struct tune *tune, struct tux3 *volume, char *why, size_t why_size);

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

static int set_label(struct tune *tune, struct tux3 *volume, char *why, size_t why_size)
{
	return tux3_set_label(volume, tune->label);
}

static int change(struct tune *tune, const char *what, change_fn fn)
{
	struct tux3_options options = { .manual = true };
	struct tux3 *volume;
	char why[512] = "";
	int err;

	if (tux3_open(tune->path, &options, &volume, why, sizeof(why))) {
		tool_error("%s", why);
		return EXIT_FAILED;
	}
	err = fn(tune, volume, why, sizeof(why));
	if (err)
		tux3_abandon(volume);
	else
		err = tux3_close(volume);
	if (!err)
		return EXIT_CLEAN;
	tool_error("%s: %s cannot be changed: %s", tune->path, what, why[0] ? why : strerror(-err));
	return EXIT_FAILED;
}

/* Quotas first: what may be refused.  Each has the volume for itself, since nothing may be changed where quotas were switched. */
static int tune_offline(struct tune *tune)
{
	int status = tune->quota ? change(tune, "quotas", set_quota) : EXIT_CLEAN;

	return status || !tune->label ? status : change(tune, "the label", set_label);
}

static int print_offline(const struct tune *tune)
{
	struct tool_volume tool;
	int status = command_open(tune->path, &tool);

	if (!status)
		status = print(tune, tool.vol->label, volume_has_feature(tool.vol, TUX3_RO_COMPAT, TUX3_FEATURE_RO_COMPAT_QUOTA));
	tool_close(&tool);
	return status;
}

static int run(struct tune *tune)
{
	struct stat st;
	int status;

	if (!stat(tune->path, &st) && S_ISDIR(st.st_mode))
		return tune_mounted(tune);
	status = tune_offline(tune);
	return status ? status : print_offline(tune);
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
