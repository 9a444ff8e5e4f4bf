/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 quota: what users, groups and projects use and may use, of an image or of a mounted volume; and limits for them.
 *
 * An image is opened with libtux3.  Of a mounted volume the module is asked by quotactl(2), tux3-fuse by an ioctl.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <linux/dqblk_xfs.h>
#include <linux/magic.h>
#include <linux/quota.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include "commands.h"
#include "core/format/format.h"
#include "core/options.h"
#include "user/lib/quota_request.h"

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif

const char quota_help[] =
"tux3 quota IMAGE|DEVICE|MOUNTPOINT [--json]\n"
"tux3 quota IMAGE|DEVICE|MOUNTPOINT user|group|project NAME|ID LIMIT...\n"
"tux3 quota IMAGE|DEVICE|MOUNTPOINT user|group|project --grace SECONDS\n"
"\n"
"Prints who uses how much of a volume, and the limits; or sets limits.  0 is no limit.\n"
"Of a volume that tux3-fuse has mounted users see their own, and that of their groups; all else is for root.\n"
"\n"
"  --soft SIZE              space that may be exceeded for a while (the grace)\n"
"  --hard SIZE              space that may never be exceeded; rounded up to blocks\n"
"  --inodes-soft NUMBER     the same for inodes: files, directories ...\n"
"  --inodes-hard NUMBER\n"
"  --grace SECONDS          how long soft limits of all of this type may be exceeded (604800)\n"
"  --json                   [{\"type\": \"user\", \"id\": 1000, \"bytes\": 4096, ...}, ...]\n"
"\n"
"Examples:\n"
"  tux3 quota ./mnt\n"
"  tux3 quota /mnt user alice --soft 9G --hard 10G\n"
"  tux3 quota disk.img project 42 --hard 500M --inodes-hard 10000\n"
"\n"
"Exit code 0: done; 1: could not; 16: wrong use.\n";

static const char *const type_names[] = { "user", "group", "project" };

/* A volume, by any of the three ways. */
struct source {
	const char *path;
	struct tux3 *volume;	/* an image */
	int fd;			/* of a mount point */
	bool module;
};

/* ---- the module ---- */

static int module_call(struct source *source, int command, int type, u32 id, void *data)
{
	return syscall(SYS_quotactl_fd, source->fd, QCMD(command, type), id, data) ? -errno : 0;
}

/* Later than 2038, too. */
static s64 grace_time(const struct fs_disk_quota *found, s32 low, s8 high)
{
	return found->d_fieldmask & FS_DQ_BIGTIME ? (s64)((u64)(u8)high << 32 | (u32)low) : low;
}

/* As XFS asks: Q_GETNEXTQUOTA takes the kernel for a change, which it refuses read-only and puts off while the volume is frozen. */
static int module_next(struct source *source, int type, u32 *id, struct tux3_quota *quota)
{
	struct fs_disk_quota found = { 0 };
	struct if_dqinfo info = { 0 };
	int err = module_call(source, Q_XGETNEXTQUOTA, type, *id, &found);

	if (!err && !found.d_id)
		err = module_call(source, Q_GETINFO, type, 0, &info);
	if (err)
		return err;
	*id = found.d_id;
	*quota = (struct tux3_quota){
		.bytes = (u64)found.d_bcount << 9, .inodes = found.d_icount,
		.bytes_soft = found.d_blk_softlimit << 9, .bytes_hard = found.d_blk_hardlimit << 9,
		.inodes_soft = found.d_ino_softlimit, .inodes_hard = found.d_ino_hardlimit,
		.bytes_time = *id ? grace_time(&found, found.d_btimer, found.d_btimer_hi) : info.dqi_bgrace,
		.inodes_time = *id ? grace_time(&found, found.d_itimer, found.d_itimer_hi) : info.dqi_igrace,
	};
	return 0;
}

#define SET_TIMES	(TUX3_QUOTA_BYTES_TIME | TUX3_QUOTA_INODES_TIME)

/* quotactl(2) sets both limits of a kind at once. */
static int module_set(struct source *source, int type, u32 id, const struct tux3_quota *quota, u32 set)
{
	struct if_dqinfo info = { .dqi_bgrace = quota->bytes_time, .dqi_igrace = quota->inodes_time,
				  .dqi_valid = IIF_BGRACE | IIF_IGRACE };
	struct if_dqblk block = { 0 };
	int err;

	if (!id)
		return set & ~SET_TIMES ? -EINVAL : module_call(source, Q_SETINFO, type, 0, &info);
	err = module_call(source, Q_GETQUOTA, type, id, &block);
	if (err)
		return err;
	if (set & TUX3_QUOTA_BYTES_SOFT)
		block.dqb_bsoftlimit = (quota->bytes_soft + 1023) >> 10;
	if (set & TUX3_QUOTA_BYTES_HARD)
		block.dqb_bhardlimit = (quota->bytes_hard + 1023) >> 10;
	if (set & TUX3_QUOTA_INODES_SOFT)
		block.dqb_isoftlimit = quota->inodes_soft;
	if (set & TUX3_QUOTA_INODES_HARD)
		block.dqb_ihardlimit = quota->inodes_hard;
	block.dqb_valid = QIF_LIMITS;
	return module_call(source, Q_SETQUOTA, type, id, &block);
}

/* ---- any ---- */

static int daemon_call(struct source *source, int type, u32 *id, struct tux3_quota *quota, u32 set)
{
	struct tux3_quota_request request = { .type = type, .id = *id, .set = set, .quota = *quota };

	if (ioctl(source->fd, TUX3_FUSE_IOC_QUOTA, &request))
		return -errno;
	*id = request.id;
	*quota = request.quota;
	return 0;
}

static int source_next(struct source *source, int type, u32 *id, struct tux3_quota *quota)
{
	if (source->volume)
		return tux3_quota_next(source->volume, type, id, quota);
	return source->module ? module_next(source, type, id, quota) : daemon_call(source, type, id, quota, 0);
}

static int source_set(struct source *source, int type, u32 id, struct tux3_quota *quota, u32 set)
{
	if (source->volume)
		return tux3_quota_set(source->volume, type, id, quota, set);
	return source->module ? module_set(source, type, id, quota, set) : daemon_call(source, type, &id, quota, set);
}

/*
 * Is it Tux3, of the module or of a daemon?  Others have quotactl(2), too, and their quotas are none of our business.  What was
 * changed is committed, for usage that is exact.
 */
static bool source_mounted(struct source *source)
{
	struct tux3_quota quota = { 0 };
	struct statfs fs;
	u32 id = 0;

	if (fstatfs(source->fd, &fs))
		return false;
	source->module = fs.f_type == TUX3_SUPER_MAGIC;
	if (source->module) {
		module_call(source, Q_SYNC, USRQUOTA, 0, NULL);
		return true;
	}
	if (fs.f_type != FUSE_SUPER_MAGIC || daemon_call(source, TUX3_QUOTA_USER, &id, &quota, 0) == -ENOTTY)
		return false;
	fsync(source->fd);
	return true;
}

/* 0, or it was said why. */
static int source_open(struct source *source, const char *path, bool change)
{
	struct tux3_options options = { .read_only = !change, .manual = true };
	char why[512];
	struct stat st;

	source->path = path;
	source->fd = -1;
	if (stat(path, &st) || !S_ISDIR(st.st_mode)) {
		if (!tux3_open(path, &options, &source->volume, why, sizeof(why)))
			return 0;
		tool_error("%s", why);
		return -1;
	}
	source->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (source->fd < 0) {
		tool_error("%s cannot be opened: %s.", path, strerror(errno));
		return -1;
	}
	if (source_mounted(source))
		return 0;
	tool_error("%s is not on a mounted Tux3 volume.", path);
	close(source->fd);
	return -1;
}

static int source_close(struct source *source)
{
	int err = source->volume ? tux3_close(source->volume) : 0;

	if (source->fd >= 0)
		close(source->fd);
	if (err)
		tool_error("%s could not be written: %s.", source->path, strerror(-err));
	return err;
}

static int source_failed(const struct source *source, int err)
{
	if (err == -EOPNOTSUPP || err == -ENOSYS || err == -ESRCH)
		tool_error("%s has no quotas: those are made by mkfs.tux3 -O quota, or tux3 tune --quota on.", source->path);
	else if (err == -EINVAL)
		tool_error("Id 0 has no limits: it is the superuser, and what belongs to no project.");
	else if (err == -EPERM)
		tool_error("%s: only root may set limits%s: try it with sudo.", source->path,
			   source->module ? ", or see here what others use (quota(1) tells what you use)" : "");
	else
		tool_error("%s: %s.", source->path, strerror(-err));
	return EXIT_FAILED;
}

/* ---- report ---- */

static const char *grace_text(char *text, size_t size, s64 time_s, s64 now)
{
	s64 left = time_s - now;

	if (!time_s)
		return "";
	if (left <= 0)
		return "over";
	if (left >= 2 * 24 * 3600)
		snprintf(text, size, "%lld days", (long long)(left / (24 * 3600)));
	else
		snprintf(text, size, "%02lld:%02lld:%02lld", (long long)(left / 3600), (long long)(left / 60 % 60), (long long)(left % 60));
	return text;
}

static const char *limit_text(char *text, size_t size, u64 bytes)
{
	return bytes ? format_size(text, size, bytes) : "-";
}

static void print_line(int type, u32 id, const struct tux3_quota *quota, bool first)
{
	char used[FORMAT_MAX], soft[FORMAT_MAX], hard[FORMAT_MAX], grace[2][FORMAT_MAX];
	s64 now = id ? time(NULL) : 0;

	if (first)
		printf("%-8s %10s %12s %12s %12s %-9s %10s %10s %10s %s\n", "type", "id", "space", "soft", "hard", "grace", "inodes",
		       "soft", "hard", "grace");
	printf("%-8s %10u %12s %12s %12s %-9s %10llu %10llu %10llu%s%s\n", type_names[type], id,
	       format_size(used, sizeof(used), quota->bytes), limit_text(soft, sizeof(soft), quota->bytes_soft),
	       limit_text(hard, sizeof(hard), quota->bytes_hard), id ? grace_text(grace[0], FORMAT_MAX, quota->bytes_time, now) : "",
	       (unsigned long long)quota->inodes, (unsigned long long)quota->inodes_soft, (unsigned long long)quota->inodes_hard,
	       id && quota->inodes_time ? " " : "", id ? grace_text(grace[1], FORMAT_MAX, quota->inodes_time, now) : "");
}

static void print_object(struct stream *stream, int type, u32 id, const struct tux3_quota *quota)
{
	struct show_buffer *out = stream_begin(stream);

	show_begin(out, NULL);
	show_string(out, "type", type_names[type]);
	show_u64(out, "id", id);
	show_u64(out, "bytes", quota->bytes);
	show_u64(out, "bytes_soft", quota->bytes_soft);
	show_u64(out, "bytes_hard", quota->bytes_hard);
	show_s64(out, id ? "bytes_time" : "bytes_grace", quota->bytes_time);
	show_u64(out, "inodes", quota->inodes);
	show_u64(out, "inodes_soft", quota->inodes_soft);
	show_u64(out, "inodes_hard", quota->inodes_hard);
	show_s64(out, id ? "inodes_time" : "inodes_grace", quota->inodes_time);
	show_end(out);
	stream_end(stream);
}

static int report(struct source *source, bool json)
{
	struct tux3_quota quota = { 0 };
	struct stream stream;
	int type, lines = 0, err = 0;
	u32 id;

	if (!stream_init(&stream, json))
		return EXIT_FAILED;
	for (type = TUX3_QUOTA_USER; type <= TUX3_QUOTA_PROJECT; type++) {
		for (id = 0; !(err = source_next(source, type, &id, &quota)); id++) {
			if (json)
				print_object(&stream, type, id, &quota);
			else
				print_line(type, id, &quota, !lines++);
			if (id == U32_MAX)
				break;
		}
		if (err != -ENOENT && err)
			break;
		err = 0;
	}
	type = stream_exit(&stream);
	return err ? source_failed(source, err) : type;
}

/* ---- setting ---- */

struct change {
	int type;
	u32 id, set;
	struct tux3_quota quota;
};

static bool parse_id(struct change *change, const char *text)
{
	struct passwd *user = change->type == TUX3_QUOTA_USER ? getpwnam(text) : NULL;
	struct group *group = change->type == TUX3_QUOTA_GROUP ? getgrnam(text) : NULL;
	u64 id;

	if (user)
		id = user->pw_uid;
	else if (group)
		id = group->gr_gid;
	else if (!parse_number(text, &id))
		return false;
	change->id = id;
	return id < U32_MAX;
}

static bool parse_limit(struct change *change, int option, const char *text)
{
	u64 value;
	bool size = option == 's' || option == 'l';

	if (size ? size_parse(text, &value) || value >> 62 : !parse_number(text, &value) || value >> 62)
		return false;
	switch (option) {
	case 's':
		change->quota.bytes_soft = value;
		change->set |= TUX3_QUOTA_BYTES_SOFT;
		return true;
	case 'l':
		change->quota.bytes_hard = value;
		change->set |= TUX3_QUOTA_BYTES_HARD;
		return true;
	case 'S':
		change->quota.inodes_soft = value;
		change->set |= TUX3_QUOTA_INODES_SOFT;
		return true;
	case 'H':
		change->quota.inodes_hard = value;
		change->set |= TUX3_QUOTA_INODES_HARD;
		return true;
	default:
		change->quota.bytes_time = change->quota.inodes_time = value;
		change->set |= TUX3_QUOTA_BYTES_TIME | TUX3_QUOTA_INODES_TIME;
		return value <= U32_MAX;
	}
}

/* What stands after the volume.  0, or an exit code. */
static int parse_change(struct change *change, int count, char **args)
{
	bool grace = change->set & TUX3_QUOTA_BYTES_TIME;

	for (change->type = TUX3_QUOTA_USER; strcmp(args[0], type_names[change->type]); change->type++)
		if (change->type == TUX3_QUOTA_PROJECT)
			return tool_usage("\"%s\" is neither user, group nor project.", args[0]);
	if (!change->set)
		return tool_usage("Which limit?");
	if (grace ? count != 1 || change->set & ~SET_TIMES : count != 2)
		return tool_usage(grace ? "--grace is for all of a type, and goes with nothing else." : "Limits for whom, by name or number?");
	if (!grace && !parse_id(change, args[1]))
		return tool_usage("There is no %s \"%s\".", type_names[change->type], args[1]);
	return 0;
}

/* With what is not changed as it is: a soft limit above the hard one would never count.  0, or it was said. */
static int limits_fit(struct source *source, const struct change *change)
{
	const struct tux3_quota *new = &change->quota;
	struct tux3_quota quota = { 0 };
	u32 id = change->id;

	if (source_next(source, change->type, &id, &quota) || id != change->id)
		memset(&quota, 0, sizeof(quota));
	if (change->set & TUX3_QUOTA_BYTES_SOFT)
		quota.bytes_soft = new->bytes_soft;
	if (change->set & TUX3_QUOTA_BYTES_HARD)
		quota.bytes_hard = new->bytes_hard;
	if (change->set & TUX3_QUOTA_INODES_SOFT)
		quota.inodes_soft = new->inodes_soft;
	if (change->set & TUX3_QUOTA_INODES_HARD)
		quota.inodes_hard = new->inodes_hard;
	if (quota.bytes_hard && quota.bytes_soft > quota.bytes_hard)
		return tool_usage("A soft limit of %llu bytes would never count: the hard one is %llu.",
				  (unsigned long long)quota.bytes_soft, (unsigned long long)quota.bytes_hard);
	if (quota.inodes_hard && quota.inodes_soft > quota.inodes_hard)
		return tool_usage("A soft limit of %llu inodes would never count: the hard one is %llu.",
				  (unsigned long long)quota.inodes_soft, (unsigned long long)quota.inodes_hard);
	return 0;
}

static int set_limits(struct source *source, struct change *change)
{
	bool limits = change->set & ~SET_TIMES;
	int status = limits ? limits_fit(source, change) : 0, err;

	if (status)
		return status;
	err = source_set(source, change->type, change->id, &change->quota, change->set);
	return err ? source_failed(source, err) : EXIT_CLEAN;
}

static int run(const char *path, struct change *change, bool json)
{
	struct source source = { 0 };
	int status;

	if (source_open(&source, path, change->set))
		return EXIT_FAILED;
	status = change->set ? set_limits(&source, change) : report(&source, json);
	return source_close(&source) ? EXIT_FAILED : status;
}

int command_quota(int argc, char **argv)
{
	static const struct option options[] = {
		{ "soft", required_argument, NULL, 's' },
		{ "hard", required_argument, NULL, 'l' },
		{ "inodes-soft", required_argument, NULL, 'S' },
		{ "inodes-hard", required_argument, NULL, 'H' },
		{ "grace", required_argument, NULL, 'g' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	struct change change = { 0 };
	bool json = false;
	int option, status;

	while ((option = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(quota_help, EXIT_FAILED);
		if (option == '?')
			return tool_usage("See tux3 help quota.");
		if (option == 'j')
			json = true;
		else if (!parse_limit(&change, option, optarg))
			return tool_usage(option == 'g' ? "\"%s\" is no number of seconds." : "\"%s\" is no limit.", optarg);
	}
	if (optind == argc)
		return tool_usage("Which image or mount point?");
	if (argc - optind == 1 && change.set)
		return tool_usage("Limits for whom: user, group or project?");
	if (argc - optind > 1) {
		status = parse_change(&change, argc - optind - 1, argv + optind + 1);
		if (status)
			return status;
	}
	return run(argv[optind], &change, json);
}
