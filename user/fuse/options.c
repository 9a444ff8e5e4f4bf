/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mount options of tux3-fuse: one table, from which they are parsed, explained, and compared by a remount.
 *
 * Options of every kind come here: ours, those of the VFS, those for mount(8) and fstab, those of the module.  What needs
 * nothing done is accepted.  What nobody knows is refused.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include "core/options.h"
#include "options.h"

#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif
#define THREADS_MAX 64
#define LIST_MAX 4096

enum where { BOTH, FUSE_ONLY };		/* is it an option of the module too? */
enum remount { CHANGES, STAYS, VFS };	/* by a remount; VFS: mount(2) does it */

/*	X(name, kind, field of struct mount_options, who knows it, on remount, "what the value is", "how it is written", "help") */
#define FUSE_OPTIONS(X) \
	X(ro, OPTION_FLAG, volume.read_only, BOTH, VFS, NULL, "ro", "read only") \
	X(norecovery, OPTION_FLAG, volume.no_recovery, BOTH, STAYS, NULL, "norecovery", \
	  "with ro: do not look at the log, show the volume as its anchor has it") \
	X(acceptlast, OPTION_FLAG, volume.accept_last, BOTH, STAYS, NULL, "acceptlast", \
	  "keep the newest commit though data of it is missing or damaged: reads of that give errors") \
	X(cutlog, OPTION_FLAG, volume.cut_log, BOTH, STAYS, NULL, "cutlog", \
	  "the log is damaged in its middle: lose what comes after, instead of not mounting") \
	X(age, OPTION_SECONDS, volume.age_ms, BOTH, CHANGES, OPTION_VALUE_AGE, "age=SECONDS", \
	  "commit changes at most this long after they were made (5; fractions work)") \
	X(dirty, OPTION_SIZE, volume.dirty_bytes, BOTH, CHANGES, OPTION_VALUE_DIRTY, "dirty=SIZE", \
	  "commit when this much file data waits (64M)") \
	X(cache, OPTION_SIZE, volume.cache_bytes, BOTH, CHANGES, OPTION_VALUE_CACHE, "cache=SIZE", \
	  "clean metadata kept in memory (128M)") \
	X(data_cache, OPTION_SIZE, volume.data_cache_bytes, FUSE_ONLY, CHANGES, "a size, as in data_cache=32M", "data_cache=SIZE", \
	  "clean file data kept in memory, besides the kernel's cache (32M)") \
	X(names, OPTION_NUMBER, volume.names_cached, BOTH, CHANGES, OPTION_VALUE_NAMES, "names=NUMBER", \
	  "clean directory entries kept in memory (1000000)") \
	X(fsync, OPTION_FSYNC, volume.fsync, BOTH, CHANGES, OPTION_VALUE_FSYNC, "fsync=HOW", \
	  "auto: an fsync beside much that waits makes its file durable ahead of the rest;\n" \
	  "full: every fsync makes all durable that was changed before it; ahead: for tests") \
	X(quota, OPTION_SWITCH_OFF, volume.no_quota, BOTH, STAYS, NULL, "noquota", \
	  "limits of quotas are not enforced; what is used is counted all the same") \
	X(costs, OPTION_FLAG, volume.costs, BOTH, STAYS, NULL, "costs", \
	  "for tests: compare what each commit took with what was charged for it, kind by\n" \
	  "kind; a commit that took more is a warning, and counted as an overdraft") \
	X(writeback, OPTION_SWITCH, writeback, FUSE_ONLY, STAYS, NULL, "writeback", \
	  "let the kernel gather writes: large files are written faster, but data then\n" \
	  "reaches the volume later than names do, and errors (no space) come later") \
	X(readdirplus, OPTION_SWITCH, readdirplus, FUSE_ONLY, STAYS, NULL, "noreaddirplus", \
	  "do not give attributes together with names when a directory is read") \
	X(io_uring, OPTION_WORD, ring, FUSE_ONLY, STAYS, "auto, on or off", "io_uring=WHEN", \
	  "how requests come from the kernel.  auto: by io_uring, which is faster, if the kernel\n" \
	  "has it (Linux 6.14) and it is switched on: /sys/module/fuse/parameters/enable_uring\n" \
	  "is Y; else by /dev/fuse.  on: fail if not.  off: by /dev/fuse") \
	X(threads, OPTION_NUMBER, threads, FUSE_ONLY, STAYS, "a number from 1 to 64", "threads=NUMBER", \
	  "worker threads at most (16); with io_uring each CPU may have its share of them,\n" \
	  "or 8 if that is more") \
	X(allow_other, OPTION_SWITCH, allow_other, FUSE_ONLY, STAYS, NULL, "allow_other", \
	  "other users may use the mount; default when root mounts.  noallow_other: only\n" \
	  "the user who mounted") \
	X(log, OPTION_WORD, log, FUSE_ONLY, STAYS, "the name of a file", "log=FILE", \
	  "append messages to FILE; else they go to syslog once we are in the background") \
	X(auto_unmount, OPTION_FLAG, auto_unmount, FUSE_ONLY, STAYS, NULL, "auto_unmount", \
	  "unmount when the daemon dies, however it does")

static const struct row {
	const char *name;
	enum option_kind kind;
	size_t offset, size;
	enum where where;
	enum remount remount;
	const char *value, *written, *help;
} rows[] = {
#define X(name, kind, field, where, remount, value, written, help)							\
	{ #name, kind, offsetof(struct mount_options, field), sizeof(((struct mount_options *)0)->field), where, remount,	\
	  value, written, help },
	FUSE_OPTIONS(X)
#undef X
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))
_Static_assert(ROWS <= 64, "bits of mount_options.given");

/* ---- options that need nothing done ---- */

static bool is_one_of(const char *option, const char *const *names)
{
	for (; *names; names++) {
		size_t len = strlen(*names);

		/* A name with "=" or "-" at its end stands for all that begin so. */
		if ((*names)[len - 1] == '=' || (*names)[len - 1] == '-' ? !strncmp(option, *names, len) : !strcmp(option, *names))
			return true;
	}
	return false;
}

static bool means_nothing(const char *option)
{
	static const char *const names[] = {
		/* for mount(8) and fstab */
		"defaults", "auto", "noauto", "user", "user=", "nouser", "users", "nousers", "owner", "noowner", "group",
		"nogroup", "nofail", "_netdev", "x-", "X-", "comment=", "uhelper=", "helper=", "loop", "loop=", "remount",
		/* of the VFS, where FUSE does the same in any case */
		"loud", "silent", "atime", "diratime", "nodiratime", "relatime", "norelatime", "strictatime",
		"nostrictatime", "lazytime", "nolazytime", "mand", "nomand", "iversion", "noiversion", "symfollow",
		/* of the module, and those that are true of every Tux3 volume */
		"discard", "nodiscard", "snapshot=", "acl", "noacl", "user_xattr", "errors=remount-ro", "usrquota", "grpquota",
		"prjquota",
		/* of other filesystems through FUSE; here in any case */
		"default_permissions", NULL
	};

	return is_one_of(option, names);
}

/* What /proc/mounts shows of a FUSE mount, and mount(8) gives back in a remount. */
static bool is_shown_by_kernel(const char *option)
{
	static const char *const names[] = {
		"user_id=", "group_id=", "rootmode=", "fd=", "max_read=", "blksize=", "default_permissions", "seclabel", NULL
	};

	return is_one_of(option, names);
}

/* ---- flags of the VFS ---- */

unsigned long mount_flags_parse(const char *list)
{
	static const struct {
		const char *name;
		unsigned long flag;
	} flags[] = {
		{ "ro", MS_RDONLY }, { "nosuid", MS_NOSUID }, { "nodev", MS_NODEV }, { "noexec", MS_NOEXEC },
		{ "sync", MS_SYNCHRONOUS }, { "dirsync", MS_DIRSYNC }, { "noatime", MS_NOATIME },
		{ "nodiratime", MS_NODIRATIME }, { "relatime", MS_RELATIME }, { "strictatime", MS_STRICTATIME },
		{ "lazytime", MS_LAZYTIME }, { "nosymfollow", MS_NOSYMFOLLOW },
	};
	static const struct {
		const char *name;
		unsigned long flag;
	} cleared[] = {
		{ "rw", MS_RDONLY }, { "suid", MS_NOSUID }, { "dev", MS_NODEV }, { "exec", MS_NOEXEC },
		{ "async", MS_SYNCHRONOUS }, { "atime", MS_NOATIME }, { "diratime", MS_NODIRATIME },
		{ "symfollow", MS_NOSYMFOLLOW },
	};
	char copy[LIST_MAX], *rest = copy, *option;
	unsigned long result = 0;

	snprintf(copy, sizeof(copy), "%s", list);
	while ((option = strsep(&rest, ","))) {
		for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
			if (!strcmp(option, flags[i].name))
				result |= flags[i].flag;
		for (size_t i = 0; i < sizeof(cleared) / sizeof(cleared[0]); i++)
			if (!strcmp(option, cleared[i].name))
				result &= ~cleared[i].flag;
	}
	return result;
}

/* Known to libfuse. */
static bool is_flag(const char *option)
{
	static const char *const known[] = {
		"rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "async", "sync", "dirsync", "noatime", NULL
	};

	return is_one_of(option, known);
}

static bool set_flag(struct mount_options *options, const char *name)
{
	size_t used = strlen(options->kernel);

	if (!strcmp(name, "nosymfollow")) {
		options->set_flags = true;
	} else if (is_flag(name)) {
		if ((size_t)snprintf(options->kernel + used, sizeof(options->kernel) - used, ",%s", name) >=
		    sizeof(options->kernel) - used)
			return false;
		/* Devices and setuid programs work as on any file system that root mounts, unless switched off. */
		if (!strcmp(name, "nosuid"))
			options->permit_suid = false;
		if (!strcmp(name, "nodev"))
			options->permit_dev = false;
		if (!strcmp(name, "rw"))
			options->volume.read_only = false;
	} else {
		return false;
	}
	options->flags |= mount_flags_parse(name);
	return true;
}

/* ---- parsing ---- */

static int __attribute__((format(printf, 2, 3))) refuse(struct mount_options *options, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(options->why, sizeof(options->why), format, args);
	va_end(args);
	return -EINVAL;
}

void options_init(struct mount_options *options)
{
	memset(options, 0, sizeof(*options));
	options->readdirplus = options->permit_suid = options->permit_dev = true;
	options->threads = 16;
	/* The kernel caches what is read: little is asked for twice.  A small cache is one whose memory is warm. */
	options->volume.data_cache_bytes = 32 << 20;
}

static bool parse_word(struct mount_options *options, const struct row *row, const char *text)
{
	static const char *const uses[] = { [RING_AUTO] = "auto", [RING_ON] = "on", [RING_OFF] = "off" };

	if (!strcmp(row->name, "log"))
		return *text && snprintf(options->log, sizeof(options->log), "%s", text) < (int)sizeof(options->log);
	for (unsigned int i = 0; i < 3; i++) {
		if (!strcmp(text, uses[i])) {
			options->ring = i;
			return true;
		}
	}
	return false;
}

static bool set_value(struct mount_options *options, const struct row *row, const char *text)
{
	if (row->kind == OPTION_WORD)
		return parse_word(options, row, text);
	return option_parse_value(row->kind, text, (char *)options + row->offset) && options->threads <= THREADS_MAX;
}

/* The row of this name, or of what "no" before it switches off. */
static const struct row *find_row(const char *name, bool *off)
{
	for (size_t i = 0; i < ROWS; i++) {
		*off = OPTION_HAS_NO(rows[i].kind) && !strncmp(name, "no", 2) && !strcmp(name + 2, rows[i].name);
		if (*off || !strcmp(name, rows[i].name))
			return &rows[i];
	}
	return NULL;
}

static int parse_own(struct mount_options *options, const struct row *row, bool off, const char *name, const char *value)
{
	if (!OPTION_HAS_VALUE(row->kind) && value)
		return refuse(options, OPTION_TAKES_NO_VALUE, name);
	if (OPTION_HAS_VALUE(row->kind) && !value)
		return refuse(options, OPTION_NEEDS_VALUE, name, row->value);
	if (!value)
		*(bool *)((char *)options + row->offset) = off == (row->kind == OPTION_SWITCH_OFF);
	else if (!set_value(options, row, value))
		return refuse(options, OPTION_BAD_VALUE, name, value, row->value);
	options->given |= 1ULL << (row - rows);
	return 0;
}

static int parse_one(struct mount_options *options, char *option, bool remount)
{
	const struct row *row;
	char *value;
	bool off;

	if (!*option || means_nothing(option) || (remount && is_shown_by_kernel(option)))
		return 0;
	value = strchr(option, '=');
	if (value)
		*value++ = '\0';
	row = find_row(option, &off);
	if (row)
		return parse_own(options, row, off, option, value);
	if (value && (is_flag(option) || means_nothing(option) || !strcmp(option, "nosymfollow")))
		return refuse(options, OPTION_TAKES_NO_VALUE, option);
	if (value && !strcmp(option, "errors"))
		return refuse(options, OPTION_ALWAYS_SO, option, value, "remount-ro");
	if (value ? options->sloppy : set_flag(options, option) || options->sloppy)
		return 0;
	return refuse(options, "unknown mount option '%s%s%s'", option, value ? "=" : "", value ? value : "");
}

static int parse_list(struct mount_options *options, const char *list, bool remount)
{
	char copy[LIST_MAX], *rest = copy, *option;
	int err = 0;

	if ((size_t)snprintf(copy, sizeof(copy), "%s", list) >= sizeof(copy))
		return refuse(options, "the mount options are longer than %d bytes", LIST_MAX);
	while (!err && (option = strsep(&rest, ",")))
		err = parse_one(options, option, remount);
	return err;
}

/* The kernel leaves atime to the daemon, whatever flags it shows. */
static uint32_t atime_of(const char *list)
{
	unsigned long flags = mount_flags_parse(list);

	return flags & MS_NOATIME ? 3 : flags & MS_NODIRATIME ? 2 : 1;
}

/* So it is with sync and dirsync, but for what is written: after a write the kernel calls fsync. */
static uint32_t sync_of(const char *list)
{
	unsigned long flags = mount_flags_parse(list);

	return flags & MS_SYNCHRONOUS ? SYNC_ALL : flags & MS_DIRSYNC ? SYNC_NAMES : SYNC_NOTHING;
}

int options_parse(struct mount_options *options, const char *list)
{
	uint32_t atime = atime_of(list), sync = sync_of(list);

	if (atime > options->volume.atime)	/* -o may be given several times */
		options->volume.atime = atime;
	if (sync > options->sync)
		options->sync = sync;
	return parse_list(options, list, false);
}

/* ---- remount ---- */

int options_remount(struct mount_options *now, const char *list, struct tux3_options *changed)
{
	struct mount_options new = *now;
	int err;

	new.given = 0;
	memset(changed, 0, sizeof(*changed));
	err = parse_list(&new, list, true);
	for (size_t i = 0; i < ROWS && !err; i++)
		if (rows[i].remount == STAYS && memcmp((char *)&new + rows[i].offset, (char *)now + rows[i].offset, rows[i].size))
			err = refuse(&new, OPTION_CANNOT_CHANGE, rows[i].name);
	if (err) {
		memcpy(now->why, new.why, sizeof(now->why));
		return err;
	}
	for (size_t i = 0; i < ROWS; i++) {
		size_t offset = rows[i].offset - offsetof(struct mount_options, volume);

		if (rows[i].remount != CHANGES || !(new.given >> i & 1))
			continue;
		memcpy((char *)changed + offset, (char *)&new + rows[i].offset, rows[i].size);
		memcpy((char *)now + rows[i].offset, (char *)&new + rows[i].offset, rows[i].size);
	}
	now->volume.atime = changed->atime = atime_of(list);
	now->sync = sync_of(list);
	return 0;
}

/* ---- asking ---- */

bool option_given(const struct mount_options *options, const char *name)
{
	bool off;
	const struct row *row = find_row(name, &off);

	return row && options->given >> (row - rows) & 1;
}

bool option_is_for_fuse(const char *option)
{
	char name[64];
	const struct row *row;
	bool off;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(option, "="), option);
	row = find_row(name, &off);
	return row && row->where == FUSE_ONLY;
}

bool options_have(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
		if (!strncmp(at, name, len) && (!at[len] || at[len] == ','))
			return true;
	return false;
}

void options_help(void)
{
	for (size_t i = 0; i < ROWS; i++) {
		const char *line = rows[i].help, *first = rows[i].written;

		for (; *line; line += strcspn(line, "\n"), line += *line == '\n', first = "")
			printf("       %-16s %.*s\n", first, (int)strcspn(line, "\n"), line);
	}
}
