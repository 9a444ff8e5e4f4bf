/* SPDX-License-Identifier: GPL-2.0-or-later */
/* mkfs.tux3: make an empty volume in a file or on a block device. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common.h"
#include "core/format/label.h"
#include "core/options.h"
#include "mkfs_profile.h"
#include "user/env/device_wait.h"
#include "user/env/streams.h"
#include "tux3.h"

static const char help[] =
"mkfs.tux3 [OPTION]... DEVICE|FILE [SIZE]\n"
"\n"
"Makes an empty Tux3 volume.  A file that does not exist is made if a size is given.\n"
"\n"
"  -L, --label LABEL        name of the volume: up to 64 bytes, no control characters\n"
"  -U, --uuid UUID          its UUID; \"random\" (as without this option) for a new one\n"
"  -s, --size SIZE          bytes, or with K, M, G, T; without it: all of the device or file\n"
"  -b, --block-size SIZE    4096 (the default), 8192, 16384, 32768 or 65536\n"
"  -O, --features LIST      switch features on, or off with ^, separated by commas:\n"
"                             data-csum  a checksum for each block of file data (on)\n"
"                             quota      keep usage by user, group and project (off)\n"
"      --profile NAME       only features that this kernel's module understands: lts-6.12, linux-7, all;\n"
"                           or the path of a file with a slash in it\n"
"  -f, --force              overwrite another filesystem, a partition table and the like: all their\n"
"                           signatures are wiped, at both ends\n"
"  -K, --no-discard         do not discard what was there, which takes some disks long\n"
"  -q, --quiet              say nothing unless something is wrong\n"
"  -V, --version            print the version\n"
"  -h, --help               this text\n"
"\n"
"Examples:\n"
"  mkfs.tux3 /dev/sdb1\n"
"  mkfs.tux3 -L backup disk.img 10G\n"
"  mkfs.tux3 -O quota,^data-csum -s 512M /dev/vdb\n"
"  mkfs.tux3 --profile lts-6.12 -O quota /dev/sdb1\n"
"\n"
"Exit code 0: made; 1: not made; 16: wrong use.\n";

static const struct option options[] = {
	{ "label", required_argument, NULL, 'L' },
	{ "uuid", required_argument, NULL, 'U' },
	{ "size", required_argument, NULL, 's' },
	{ "block-size", required_argument, NULL, 'b' },
	{ "features", required_argument, NULL, 'O' },
	{ "profile", required_argument, NULL, 'p' },
	{ "force", no_argument, NULL, 'f' },
	{ "no-discard", no_argument, NULL, 'K' },
	{ "quiet", no_argument, NULL, 'q' },
	{ "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },
	{ }
};

struct mkfs {
	struct tux3_format_options format;
	const char *path, *profile;
	u64 on[TUX3_FEATURE_WORDS];	/* features: bits by word */
	u64 asked[TUX3_FEATURE_WORDS];	/* those of them that -O names */
	bool quiet;
};

static void set_feature(struct mkfs *mkfs, const struct feature_row *row, bool on, bool asked)
{
	mkfs->on[row->word] &= ~(u64)row->bit;
	mkfs->asked[row->word] &= ~(u64)row->bit;
	if (on)
		mkfs->on[row->word] |= row->bit;
	if (on && asked)
		mkfs->asked[row->word] |= row->bit;
}

static void default_features(struct mkfs *mkfs)
{
	const struct feature_row *row;
	unsigned int i;

	for (i = 0; (row = feature_row(i)); i++)
		set_feature(mkfs, row, row->on, false);
}

static int parse_features(struct mkfs *mkfs, char *list)
{
#define X(WORD, bit, NAME, name, ...) " " name
	const struct feature_row *row;
	char *state, *name;
	unsigned int i;

	for (name = strtok_r(list, ",", &state); name; name = strtok_r(NULL, ",", &state)) {
		bool on = *name != '^';

		for (i = 0; (row = feature_row(i)) && strcmp(row->name, name + !on); i++)
			;
		if (!row)
			return tool_usage("There is no feature \"%s\"; there are:" TUX3_FEATURES(X) ".", name);
		set_feature(mkfs, row, on, true);
	}
	return 0;
#undef X
}

/* What the profile does not have is off; or an error, if it was asked for. */
static int fit_profile(struct mkfs *mkfs)
{
	const struct feature_row *row;
	struct profile profile;
	unsigned int i;
	int ret;

	if (!mkfs->profile)
		return 0;
	ret = profile_load(mkfs->profile, &profile);
	for (i = 0; !ret && (row = feature_row(i)); i++) {
		if (profile.may[row->word] & row->bit)
			continue;
		if (mkfs->asked[row->word] & row->bit)
			ret = tool_usage("Profile \"%s\" has no feature \"%s\": make the volume without it, or without the profile (%s).",
					 mkfs->profile, row->name, profile.path);
		set_feature(mkfs, row, false, false);
	}
	return ret;
}

static int parse_geometry(struct mkfs *mkfs, int option, const char *text)
{
	u64 value;
	int err = size_parse(text, &value);

	if (err == -ERANGE)
		return tool_usage("\"%s\" is too large: a volume has less than 8E bytes.", text);
	if (err || !value)
		return tool_usage("\"%s\" is no size; examples: 4096, 512M, 10G.", text);
	if (option == 's') {
		if (mkfs->format.size_bytes && mkfs->format.size_bytes != value)
			return tool_usage("There are two sizes, %llu and %llu bytes: which is meant?",
					  (unsigned long long)mkfs->format.size_bytes, (unsigned long long)value);
		mkfs->format.size_bytes = value;
		return 0;
	}
	if (value < 1u << TUX3_MIN_BLOCK_SHIFT || value > 1u << TUX3_MAX_BLOCK_SHIFT || !is_power_of_2(value))
		return tool_usage("A block size of %llu is not possible: 4096, 8192, 16384, 32768 or 65536.",
				  (unsigned long long)value);
	if (mkfs->format.block_size && mkfs->format.block_size != value)
		return tool_usage("There are two block sizes, %u and %llu bytes: which is meant?", mkfs->format.block_size,
				  (unsigned long long)value);
	mkfs->format.block_size = value;
	return 0;
}

static int parse_option(struct mkfs *mkfs, int option, char *value)
{
	char why[128];

	switch (option) {
	case 'L':
		if (label_check(value, strlen(value), why, sizeof(why)))
			return tool_usage("%s", why);
		mkfs->format.label = value;
		return 0;
	case 'U':
		memset(mkfs->format.uuid, 0, sizeof(mkfs->format.uuid));
		if (!strcmp(value, "random"))
			return 0;
		if (!parse_uuid(value, mkfs->format.uuid))
			return tool_usage("\"%s\" is no UUID.", value);
		if (!memchr_inv(mkfs->format.uuid, 0, sizeof(mkfs->format.uuid)))
			return tool_usage("The UUID of zeros means that there is none: \"random\" makes one.");
		return 0;
	case 's':
	case 'b':
		return parse_geometry(mkfs, option, value);
	case 'O':
		return parse_features(mkfs, value);
	case 'p':
		mkfs->profile = value;
		return 0;
	case 'f':
		mkfs->format.force = true;
		return 0;
	case 'K':
		mkfs->format.no_discard = true;
		return 0;
	case 'q':
		mkfs->quiet = true;
		return 0;
	}
	fprintf(stderr, "Try 'mkfs.tux3 --help'.\n");
	return EXIT_USAGE;
}

static int tell(const struct mkfs *mkfs)
{
	char text[FORMAT_MAX], uuid[FORMAT_MAX];
	struct tool_volume tool;
	struct volume_options opts = { };

	if (tool_open(mkfs->path, &opts, &tool, NULL)) {
		tool_error("The volume was made, but cannot be opened: %s", tool.why);
		tool_close(&tool);
		return EXIT_FAILED;
	}
	printf("%s: a Tux3 volume of %s, %llu blocks of %u bytes\n", mkfs->path,
	       format_size(text, sizeof(text), tool.vol->total_blocks << tool.vol->block_shift),
	       (unsigned long long)tool.vol->total_blocks, tool.vol->block_size);
	printf("UUID %s, label \"%.*s\", features", format_uuid(uuid, sizeof(uuid), tool.vol->uuid),
	       (int)label_length(tool.vol->label), (const char *)tool.vol->label);
#define X(WORD, bit, NAME, name, ...) \
	if (volume_has_feature(tool.vol, TUX3_##WORD, TUX3_FEATURE_##WORD##_##NAME)) \
		printf(" " name);
	TUX3_FEATURES(X)
#undef X
	printf("%s\n", tool.vol->feature_incompat || tool.vol->feature_ro_compat ? "" : " none");
	tool_close(&tool);
	return EXIT_CLEAN;
}

/* What is left after the options: where, and maybe how large. */
static int parse_place(struct mkfs *mkfs, int argc, char **argv)
{
	struct stat st;
	u64 size;
	int ret;

	if (optind == argc)
		return tool_usage("On which device, or in which file?");
	mkfs->path = argv[optind++];
	if (optind < argc) {
		ret = parse_geometry(mkfs, 's', argv[optind++]);
		if (ret)
			return ret;
	}
	if (optind < argc)
		return tool_usage("\"%s\" is one argument too many.", argv[optind]);
	if (!*mkfs->path)
		return tool_usage("The name of the file, or device, is empty.");
	if (!stat(mkfs->path, &st) || errno != ENOENT || mkfs->format.size_bytes)
		return 0;
	if (!size_parse(mkfs->path, &size))
		return tool_usage("%s is a size: on which device, or in which file?", mkfs->path);
	if (!strncmp(mkfs->path, "/dev/", 5))
		return tool_usage("There is no device %s.", mkfs->path);
	return tool_usage("%s does not exist; give a size to make it.", mkfs->path);
}

/* For the signal handler: a file that there was not.  What is half made is no volume, but takes its name. */
static const char *volatile new_file;

static void on_cancel(int number)
{
	if (new_file)
		unlink(new_file);
	signal(number, SIG_DFL);
	raise(number);
}

static void catch_cancel(const char *path)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	unsigned int i;

	if (!access(path, F_OK) || errno != ENOENT)
		return;
	new_file = path;
	for (i = 0; i < ARRAY_SIZE(signals); i++)
		if (signal(signals[i], on_cancel) == SIG_IGN)
			signal(signals[i], SIG_IGN);
}

static int make(struct mkfs *mkfs)
{
	char why[1024] = "";
	int err;

	mkfs->format.no_data_csum = !(mkfs->on[TUX3_INCOMPAT] & TUX3_FEATURE_INCOMPAT_DATA_CSUM);
	mkfs->format.quota = mkfs->on[TUX3_RO_COMPAT] & TUX3_FEATURE_RO_COMPAT_QUOTA;
	signal(SIGXFSZ, SIG_IGN);	/* a file size limit is an error like others */
	device_wait_closed(mkfs->path, true);
	catch_cancel(mkfs->path);
	err = tux3_format(mkfs->path, &mkfs->format, why, sizeof(why));
	new_file = NULL;
	if (!err)
		return mkfs->quiet ? EXIT_CLEAN : tell(mkfs);
	if (err == -EEXIST && !mkfs->format.force)
		tool_error("%s; use -f to overwrite it", why);
	else
		tool_error("%s%s%s", strstr(why, mkfs->path) ? "" : mkfs->path, strstr(why, mkfs->path) ? "" : ": ",
			   why[0] ? why : strerror(-err));
	return EXIT_FAILED;
}

int main(int argc, char **argv)
{
	/* Who makes a volume of his own is to be able to use it. */
	struct mkfs mkfs = { .format = { .root_uid = geteuid(), .root_gid = geteuid() ? getegid() : 0 } };
	int option, ret;

	hold_standard_streams();
	tool_name = "mkfs.tux3";
	default_features(&mkfs);
	while ((option = getopt_long(argc, argv, "L:U:s:b:O:fFKqVh", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(help, EXIT_FAILED);
		if (option == 'V') {
			printf("mkfs.tux3 %s\n", tux3_version());
			return tool_tell("", EXIT_FAILED);
		}
		ret = parse_option(&mkfs, option == 'F' ? 'f' : option, optarg);
		if (ret)
			return ret;
	}
	ret = parse_place(&mkfs, argc, argv) ?: fit_profile(&mkfs);
	return ret ? ret : make(&mkfs);
}
