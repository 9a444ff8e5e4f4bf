/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3-fuse: mount a Tux3 volume through FUSE.
 *
 * Order of things: options, fork, open the volume, mount, start the workers, tell the parent.  The parent
 * prints nothing and leaves with our status, so a mount that fails is an error of the command, on its terminal.
 * The end comes from the kernel (unmounted: the connection is closed) or by a signal (we unmount).  Then
 * the volume is closed, which commits what is left.
 *
 * A volume on a block device is mounted as fuseblk if we may: then the kernel has the device, and its unmount waits for us
 * to close the volume (close_before_answer()), so that the device is complete when umount(2) returns.  For files it
 * does not: see helper.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "helper.h"
#include "ring.h"
#include "tux3_fuse.h"
#include "user/env/device_wait.h"
#include "user/env/log.h"
#include "user/lib/internal.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

/* A file in use keeps us from unmounting after a signal: wait this long for it. */
#define BUSY_WAIT_MS 5000
#define READAHEAD_KB 1024
/* So often it is looked whether the volume has stopped after an error. */
#define WATCH_MS 1000
#define DEFAULT_AGE_MS 5000	/* the library's */

struct mount_state mount_state = {
	.readdirplus = true,
	.threads_max = 16,
};

static struct {
	struct tux3_options volume;
	char image[PATH_MAX], mountpoint[PATH_MAX];
	const char *log;
	int log_fd;
	bool foreground;
	bool allow_other, allow_other_given, permit_suid, permit_dev, auto_unmount;
	unsigned long flags;		/* MS_... */
	bool set_flags;			/* libfuse does not set them all */
	enum { RING_AUTO, RING_ON, RING_OFF } ring;
	char kernel[1024];		/* options that are not ours, comma-separated */
} options = {
	.permit_suid = true, .permit_dev = true, .log_fd = -1,
	/* The kernel caches what is read: little is asked for twice.  A small cache is one whose memory is warm. */
	.volume.data_cache_bytes = 32 << 20,
};

/* ---- messages: on stderr, or in syslog once nobody waits for us at the terminal ---- */

const char *message_prefix = "tux3-fuse";
static atomic_bool to_syslog;

void complain(const char *format, ...)
{
	char text[2 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (to_syslog)
		syslog(LOG_ERR, "%s", text);
	else
		fprintf(stderr, "%s: %s\n", message_prefix, text);
}

static void log_of_library(int level, const char *message)
{
	syslog(level, "%s", message);
}

static void log_of_libfuse(enum fuse_log_level level, const char *format, va_list args)
{
	vsyslog((int)level, format, args);
}

static void begin_syslog(void)
{
	openlog("tux3-fuse", LOG_PID | LOG_NDELAY, LOG_DAEMON);
	env_set_log(log_of_library);
	fuse_set_log_func(log_of_libfuse);
	to_syslog = true;
}

void help(void)
{
	puts("Usage: tux3-fuse [options] IMAGE MOUNTPOINT\n"
	     "Mount the Tux3 volume in IMAGE, a file or block device, on the directory MOUNTPOINT.\n"
	     "\n"
	     "  -f                  stay in the foreground, messages on the terminal\n"
	     "  -o OPTION[,...]     mount options:\n"
	     "       ro             read only\n"
	     "       norecovery     with ro: do not look at the log, show the volume as its anchor has it\n"
	     "       acceptlast     keep the newest commit though data of it is missing or damaged: reads of that give errors\n"
	     "       cutlog         the log is damaged in its middle: lose what comes after, instead of not mounting\n"
	     "       age=SECONDS    commit changes at most this long after they were made (5; fractions work)\n"
	     "       dirty=SIZE     commit when this much file data waits (64M)\n"
	     "       cache=SIZE     clean metadata kept in memory (128M)\n"
	     "       data_cache=SIZE  clean file data kept in memory, besides the kernel's cache (32M)\n"
	     "       names=NUMBER   clean directory entries kept in memory (1000000)\n"
	     "       writeback      let the kernel gather writes: large files are written faster, but data then\n"
	     "                      reaches the volume later than names do, and errors (no space) come later\n"
	     "       io_uring=WHEN  how requests come from the kernel.  auto: by io_uring, which is faster, if the kernel\n"
	     "                      has it (Linux 6.14) and it is switched on: /sys/module/fuse/parameters/enable_uring\n"
	     "                      is Y; else by /dev/fuse.  on: fail if not.  off: by /dev/fuse\n"
	     "       threads=NUMBER worker threads at most (16); with io_uring each CPU may have its share of them,\n"
	     "                      or 8 if that is more\n"
	     "       allow_other    other users may use the mount; default when root mounts\n"
	     "       noallow_other  only the user who mounted may use it\n"
	     "       log=FILE       append messages to FILE; else they go to syslog once we are in the background\n"
	     "       auto_unmount   unmount when the daemon dies, however it does\n"
	     "       nosuid, nodev, noexec, noatime ... as for mount(8)\n"
	     "  -h, --help          this text\n"
	     "  -V, --version       version\n"
	     "\n"
	     "Sizes take K, M, G.  The end: umount MOUNTPOINT, or fusermount3 -u MOUNTPOINT, or a\n"
	     "SIGTERM to the daemon; each commits everything and closes the volume.  What was synced with\n"
	     "fsync is safe at once, everything else after age seconds.\n"
	     "\n"
	     "Examples:\n"
	     "  mkfs.tux3 tux3.img 1G && mkdir -p mnt && tux3-fuse tux3.img mnt\n"
	     "  tux3-fuse -o ro,norecovery damaged.img /mnt\n"
	     "  tux3-fuse -f -o age=0.5,data_cache=1G /dev/sdb1 /srv\n"
	     "  umount mnt\n"
	     "\n"
	     "Exit status: 0 mounted (with -f: unmounted, all committed), 1 wrong usage, 32 failure.");
}

/* ---- options ---- */

static bool parse_number(const char *text, uint64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoull(text, &end, 10);
	return !errno && end != text && !*end && text[0] != '-';
}

static bool parse_size(const char *text, uint64_t *size)
{
	static const char units[] = "KMGT";
	const char *unit;
	unsigned int shift = 0;
	char *end;

	errno = 0;
	*size = strtoull(text, &end, 10);
	if (errno || end == text || text[0] == '-')
		return false;
	if (*end) {
		unit = strchr(units, *end & ~0x20);
		if (!unit || !*unit || end[1])
			return false;
		shift = 10 * (unit - units + 1);
	}
	if (*size >> (63 - shift))
		return false;
	*size <<= shift;
	return *size > 0;
}

static bool parse_age(const char *text)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= 0.001 && seconds <= 3600))
		return false;
	options.volume.age_ms = seconds * 1000;
	return true;
}

static bool parse_ring(const char *text)
{
	static const char *const names[] = { [RING_AUTO] = "auto", [RING_ON] = "on", [RING_OFF] = "off" };

	for (unsigned int i = 0; i < 3; i++) {
		if (!strcmp(text, names[i])) {
			options.ring = i;
			return true;
		}
	}
	return false;
}

/* Options with a value. */
static int set_value(const char *name, const char *value)
{
	uint64_t number;
	bool ok;

	if (!strcmp(name, "age")) {
		ok = parse_age(value);
	} else if (!strcmp(name, "dirty")) {
		ok = parse_size(value, &options.volume.dirty_bytes);
	} else if (!strcmp(name, "cache")) {
		ok = parse_size(value, &options.volume.cache_bytes);
	} else if (!strcmp(name, "data_cache")) {
		ok = parse_size(value, &options.volume.data_cache_bytes);
	} else if (!strcmp(name, "names")) {
		ok = parse_number(value, &options.volume.names_cached);
	} else if (!strcmp(name, "threads")) {
		ok = parse_number(value, &number) && number >= 1 && number <= 64;
		mount_state.threads_max = ok ? number : 1;
	} else if (!strcmp(name, "io_uring")) {
		ok = parse_ring(value);
	} else if (!strcmp(name, "log")) {
		options.log = value;
		ok = *value;
	} else {
		complain("unknown mount option '%s'; see tux3-fuse --help.", name);
		return -EINVAL;
	}
	if (!ok) {
		complain("mount option '%s': '%s' is not a value it can take; see tux3-fuse --help.", name, value);
		return -EINVAL;
	}
	return 0;
}

static bool pass_on(const char *name)
{
	/* Known to libfuse or the kernel. */
	static const char *const known[] = {
		"rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "async", "sync", "dirsync",
		"noatime", "auto_unmount", NULL
	};
	size_t used = strlen(options.kernel);

	for (const char *const *k = known; *k; k++) {
		if (strcmp(*k, name))
			continue;
		return (size_t)snprintf(options.kernel + used, sizeof(options.kernel) - used, ",%s", name) <
			sizeof(options.kernel) - used;
	}
	return false;
}

static int set_option(char *option)
{
	char *value = strchr(option, '=');

	if (!*option || option_means_nothing(option))
		return 0;
	if (value) {
		*value++ = '\0';
		return set_value(option, value);
	}
	if (!strcmp(option, "ro")) {
		options.volume.read_only = true;
	} else if (!strcmp(option, "norecovery")) {
		options.volume.no_recovery = true;
	} else if (!strcmp(option, "acceptlast")) {
		options.volume.accept_last = true;
	} else if (!strcmp(option, "cutlog")) {
		options.volume.cut_log = true;
	} else if (!strcmp(option, "allow_other") || !strcmp(option, "noallow_other")) {
		options.allow_other = option[0] == 'a';
		options.allow_other_given = true;
	} else if (!strcmp(option, "writeback") || !strcmp(option, "nowriteback")) {
		mount_state.writeback = option[0] == 'w';
	} else if (!strcmp(option, "readdirplus") || !strcmp(option, "noreaddirplus")) {
		mount_state.readdirplus = option[0] == 'r';
	} else if (pass_on(option)) {
		/* Devices and setuid programs work as on any file system that root mounts, unless switched off. */
		if (!strcmp(option, "nosuid"))
			options.permit_suid = false;
		if (!strcmp(option, "nodev"))
			options.permit_dev = false;
		options.auto_unmount |= !strcmp(option, "auto_unmount");
		options.flags |= mount_flags_parse(option);
	} else if (!strcmp(option, "nosymfollow")) {
		options.flags |= mount_flags_parse(option);
		options.set_flags = true;
	} else {
		complain("unknown mount option '%s'; see tux3-fuse --help.", option);
		return -EINVAL;
	}
	return 0;
}

static int set_options(char *list)
{
	char *option;
	int err = 0;

	while (!err && (option = strsep(&list, ",")))
		err = set_option(option);
	return err;
}

/* 0, or the exit status plus 1. */
static int parse_arguments(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "fo:hV", long_options, NULL)) != -1) {
		switch (c) {
		case 'f':
			options.foreground = true;
			break;
		case 'o':
			if (set_options(optarg))
				return EXIT_USAGE + 1;
			break;
		case 'h':
			help();
			return 1;
		case 'V':
			printf("tux3-fuse %s, libfuse %s\n", tux3_version(), fuse_pkgversion());
			return 1;
		default:
			complain("see tux3-fuse --help.");
			return EXIT_USAGE + 1;
		}
	}
	if (argc - optind != 2) {
		complain("expected an image and a mount point; see tux3-fuse --help.");
		return EXIT_USAGE + 1;
	}
	return 0;
}

static int find_paths(const char *image, const char *mountpoint)
{
	struct stat stat_buf;

	if (options.volume.no_recovery && !options.volume.read_only) {
		complain("norecovery needs ro: changes on top of a log that was not replayed would destroy data.");
		return -EINVAL;
	}
	if (!realpath(image, options.image)) {
		complain("cannot open %s: %s.", image, strerror(errno));
		return -errno;
	}
	if (!realpath(mountpoint, options.mountpoint) || stat(options.mountpoint, &stat_buf)) {
		complain("cannot mount on %s: %s.", mountpoint, strerror(errno));
		return -errno;
	}
	if (!S_ISDIR(stat_buf.st_mode)) {
		complain("cannot mount on %s: it is not a directory.", mountpoint);
		return -ENOTDIR;
	}
	if (options.log) {
		options.log_fd = open(options.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		if (options.log_fd < 0) {
			complain("cannot write messages to %s: %s.", options.log, strerror(errno));
			return -EIO;
		}
	}
	mount_state.image = image;
	mount_state.read_only = options.volume.read_only;
	mount_state.settle_s = 2e-3 * (options.volume.age_ms ? options.volume.age_ms : DEFAULT_AGE_MS) + 1;
	if (!options.allow_other_given)
		options.allow_other = geteuid() == 0;
	return 0;
}

/* ---- mounting ---- */

/* Commas and backslashes separate options. */
static void append_escaped(char *to, size_t size, const char *from)
{
	size_t used = strlen(to);

	for (; *from && used + 3 < size; from++) {
		if (*from == ',' || *from == '\\')
			to[used++] = '\\';
		to[used++] = *from;
	}
	to[used] = '\0';
}

#define RING_PARAMETER "/sys/module/fuse/parameters/enable_uring"

/* After mounting: the module is loaded then. */
static int prepare_ring(void)
{
	char value = 0;
	int fd, err;

	if (options.ring == RING_OFF)
		return 0;
	fd = open(RING_PARAMETER, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		(void)!read(fd, &value, 1);
		close(fd);
	}
	err = value == 'Y' ? ring_prepare(mount_state.threads_max) : -EOPNOTSUPP;
	if (!err || options.ring == RING_AUTO)
		return 0;
	if (!value)
		complain("io_uring=on: this kernel has no FUSE over io_uring, which came with Linux 6.14.");
	else if (value != 'Y')
		complain("io_uring=on: it is switched off in the kernel; echo Y > %s switches it on.", RING_PARAMETER);
	else
		complain("io_uring=on: io_uring cannot be used here: %s.", strerror(-err));
	return err;
}

/* Not in a container: root there may not. */
static bool is_real_root(void)
{
	unsigned int inside = 1, outside = 1, count = 0;
	FILE *map;
	bool all;

	if (geteuid() != 0)
		return false;
	map = fopen("/proc/self/uid_map", "re");
	if (!map)
		return true;	/* a kernel without user namespaces */
	all = fscanf(map, "%u %u %u", &inside, &outside, &count) == 3 && !inside && !outside && count == UINT_MAX;
	fclose(map);
	return all;
}

/* Read-only it may be mounted more than once, but only one of them can have the device. */
static bool can_be_claimed(void)
{
	int fd = open(options.image, O_RDONLY | O_EXCL | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Options for the kernel, if it is to have the device. */
static void append_device_options(char *list, size_t size)
{
	int block_size;

	if (!is_real_root() || !kernel_has("fuseblk") || (options.volume.read_only && !can_be_claimed()))
		return;
	block_size = tux3_let_mount(mount_state.volume);
	if (!block_size)
		return;
	mount_state.has_device = true;
	snprintf(list + strlen(list), size - strlen(list), ",blkdev,blksize=%d", block_size);
}

/*
 * Somebody else may have mounted the device in the moment in which we let go of it, in the same way: then that mount is
 * what we see, and our descriptor belongs to none.
 */
static bool is_connected(void)
{
	struct pollfd fd = { .fd = fuse_session_fd(mount_state.session) };

	return !mount_state.has_device || (poll(&fd, 1, 0) >= 0 && !(fd.revents & POLLERR));
}

static int mount_session(void)
{
	static const struct fuse_custom_io io = { .writev = loop_writev, .read = loop_read };
	char list[2 * PATH_MAX + 2048] = "subtype=tux3,default_permissions,fsname=";
	char *argv[] = { "tux3-fuse", "-o", list, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	size_t used;
	int err = -EIO;

	append_escaped(list, 2 * PATH_MAX, options.image);
	used = strlen(list);
	snprintf(list + used, sizeof(list) - used, "%s%s%s%s%s", options.allow_other ? ",allow_other" : "",
		 options.volume.read_only ? ",ro" : "",
		 geteuid() == 0 && options.permit_suid ? ",suid" : "",
		 geteuid() == 0 && options.permit_dev ? ",dev" : "", options.kernel);
	append_device_options(list, sizeof(list));
	mount_state.session = fuse_session_new(&args, &fuse_ops, sizeof(fuse_ops), NULL);
	fuse_opt_free_args(&args);
	if (!mount_state.session)
		return err;
	/* libfuse prints what is wrong. */
	if (fuse_session_mount(mount_state.session, options.mountpoint)) {
		complain("cannot mount %s on %s.", options.image, options.mountpoint);
		goto out_destroy;
	}
	if (!is_connected()) {
		complain("%s was mounted by another program just now.", options.image);
		goto out_unmount;
	}
	err = prepare_ring();
	if (err)
		goto out_unmount;
	err = fuse_session_custom_io(mount_state.session, &io, fuse_session_fd(mount_state.session));
	if (!err)
		err = loop_start(fuse_session_fd(mount_state.session));
	if (!err)
		return 0;
	complain("cannot serve %s: %s.", options.mountpoint, strerror(-err));
out_unmount:
	fuse_session_unmount(mount_state.session);
out_destroy:
	fuse_session_destroy(mount_state.session);
	ring_free();
	return err;
}

static void write_setting(const char *dir, const char *name, const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!write(fd, value, strlen(value));
	close(fd);
}

/*
 * The kernel treats FUSE mounts as slow and untrusted: 128 KiB of readahead and one percent of the memory
 * that others may have dirty.  Root's own mount deserves better; where we may not, it stays as it is.
 */
static void tune_kernel(void)
{
	struct statx stat_buf;
	char dir[64], value[16];

	/* Without a request, for whose answer we would keep the mount busy: it may be unmounted already. */
	if (geteuid() != 0 || statx(AT_FDCWD, options.mountpoint, AT_STATX_DONT_SYNC, STATX_INO, &stat_buf))
		return;
	snprintf(dir, sizeof(dir), "/sys/class/bdi/%u:%u%s", stat_buf.stx_dev_major, stat_buf.stx_dev_minor,
		 mount_state.has_device ? "-fuseblk" : "");
	snprintf(value, sizeof(value), "%d", READAHEAD_KB);
	write_setting(dir, "read_ahead_kb", value);
	write_setting(dir, "max_ratio", "50");
	write_setting(dir, "strict_limit", "0");
}

/* fusermount3, which auto_unmount needs, forbids devices and setuid programs; libfuse does not know all flags. */
static void set_mount_flags(void)
{
	unsigned long flags = options.flags | (options.volume.read_only ? MS_RDONLY : 0);

	if (geteuid() == 0 && (options.set_flags || options.auto_unmount) &&
	    mount(NULL, options.mountpoint, NULL, MS_REMOUNT | MS_BIND | flags, NULL))
		complain("cannot set all mount options of %s: %s.", options.mountpoint, strerror(errno));
}

/* ---- unmounting ---- */

static bool run_fusermount(const char *how)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execlp("fusermount3", "fusermount3", how, "--", options.mountpoint, (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

static bool unmounted;		/* by us */

static bool unmount(int flags)
{
	if (geteuid() == 0)
		unmounted = umount2(options.mountpoint, flags | UMOUNT_NOFOLLOW) == 0;
	else
		unmounted = run_fusermount(flags & MNT_DETACH ? "-uz" : "-u");
	return unmounted;
}

void give_up(void)
{
	static atomic_flag begun = ATOMIC_FLAG_INIT;

	/* Twice would unmount what is below. */
	while (atomic_flag_test_and_set(&begun))
		pause();
	/* By force: of a device the kernel would wait for our answer. */
	unmount(MNT_DETACH | (mount_state.has_device ? MNT_FORCE : 0));
	_exit(EXIT_FAILED);
}

static bool wait_done(int timeout_ms)
{
	struct pollfd done = { .fd = loop_done_fd(), .events = POLLIN };

	return poll(&done, 1, timeout_ms) == 1;
}

/*
 * While the workers serve: the kernel sends what it still has in its cache.  A mount in use is only
 * detached, then served until its last user is gone or we lose patience.
 */
static void unmount_by_signal(void)
{
	int fd;

	if (unmount(0))
		return;
	fd = open(options.mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		syncfs(fd);
		close(fd);
	}
	if (unmount(MNT_DETACH) && !wait_done(BUSY_WAIT_MS))
		complain("%s: files are still open after %d seconds; closing the volume without waiting for them.",
			 options.mountpoint, BUSY_WAIT_MS / 1000);
}

/* The volume refuses changes: who looks at the mount is to see that. */
static void show_stopped(void)
{
	struct mount_entry *entry = malloc(sizeof(*entry));

	if (entry && geteuid() == 0 && mount_entry_find(options.mountpoint, false, entry))
		mount(NULL, options.mountpoint, NULL, MS_REMOUNT | MS_RDONLY | mount_flags_parse(entry->options), NULL);
	free(entry);
}

/* ---- the end of the volume ---- */

static struct {
	pthread_mutex_t lock;
	bool closed;
	int err;
} end = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* By whoever comes first.  What became of it: 0 or -errno. */
static int close_volume(void)
{
	int err;

	pthread_mutex_lock(&end.lock);
	if (!end.closed) {
		/* The kernel does not forget what it knew when it unmounts. */
		tux3_put_all(mount_state.volume);
		end.err = tux3_close(mount_state.volume);
		end.closed = true;
	}
	err = end.err;
	pthread_mutex_unlock(&end.lock);
	return err;
}

void close_before_answer(void)
{
	loop_stop_others();
	close_volume();
}

static bool volume_has_stopped(void)
{
	bool stopped;

	pthread_mutex_lock(&end.lock);
	stopped = !end.closed && volume_error(tux3_core(mount_state.volume));
	pthread_mutex_unlock(&end.lock);
	return stopped;
}

static void serve(int signals)
{
	struct pollfd fds[2] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = loop_done_fd(), .events = POLLIN },
	};
	bool stopped = false;
	int ready;

	do {
		ready = poll(fds, 2, stopped ? -1 : WATCH_MS);
		if (ready == 0 && !stopped && volume_has_stopped()) {
			stopped = true;
			show_stopped();
		}
	} while (ready == 0 || (ready < 0 && errno == EINTR));
	if (!(fds[1].revents & POLLIN))
		unmount_by_signal();
	loop_stop();
}

/* ---- the daemon ---- */

static int block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Where messages go once nobody waits for us at the terminal. */
static void leave_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (!options.foreground && null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
	}
	if (options.log_fd >= 0) {
		dup2(options.log_fd, STDERR_FILENO);
		close(options.log_fd);
	} else if (!options.foreground) {
		begin_syslog();
	}
	if (null >= 0)
		close(null);
}

/* What the library says, with the image in it and a full stop after it. */
static void complain_why(const char *why)
{
	size_t len = strlen(why);
	bool named = strstr(why, options.image);

	complain("%s%s%s%s", named ? "" : options.image, named ? "" : ": ", why, len && why[len - 1] == '.' ? "" : ".");
}

/* ready_fd: where to write that the mount stands, or -1. */
static int run(int ready_fd)
{
	int signals = block_signals();
	char why[512] = "";
	int err;

	/* Memory for us is what the kernel needs to get rid of our own dirty pages. */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	umask(0);
	device_wait_closed(options.image, !options.volume.read_only);
	err = tux3_open(options.image, &options.volume, &mount_state.volume, why, sizeof(why));
	if (err) {
		complain_why(why[0] ? why : strerror(-err));
		return EXIT_FAILED;
	}
	mount_state.root = tux3_root(mount_state.volume);
	err = mount_session();
	if (err) {
		tux3_put_all(mount_state.volume);
		tux3_close(mount_state.volume);
		return EXIT_FAILED;
	}
	tune_kernel();
	set_mount_flags();
	if (!mount_state.has_device)
		helper_register(options.image, options.mountpoint);
	leave_terminal();
	if (!options.foreground && chdir("/"))
		complain("cannot leave the working directory: %s.", strerror(errno));
	if (ready_fd >= 0) {
		(void)!write(ready_fd, "", 1);
		close(ready_fd);
	}

	if (to_syslog)
		syslog(LOG_INFO, "%s mounted on %s%s", options.image, options.mountpoint,
		       options.volume.read_only ? " read-only" : "");
	serve(signals);

	/* Once more would unmount what is below. */
	if (!unmounted && !end.closed)
		fuse_session_unmount(mount_state.session);
	/* Only now: it closes the connection. */
	fuse_session_destroy(mount_state.session);
	err = close_volume();
	if (err) {
		complain("%s: not everything could be committed: %s.", options.image, strerror(-err));
		return EXIT_FAILED;
	}
	if (to_syslog)
		syslog(LOG_INFO, "%s unmounted", options.image);
	return 0;
}

/* The parent waits until the mount stands or the child has failed and said why. */
static int run_daemon(void)
{
	int ready[2], status;
	char byte;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) || (pid = fork()) < 0) {
		complain("cannot start the daemon: %s.", strerror(errno));
		return EXIT_FAILED;
	}
	if (pid == 0) {
		close(ready[0]);
		setsid();
		return run(ready[1]);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) == 1)
		return 0;
	if (waitpid(pid, &status, 0) == pid && WIFEXITED(status))
		return WEXITSTATUS(status);
	complain("the daemon died before the mount was ready.");
	return EXIT_FAILED;
}

int mount_volume(const char *image, const char *mountpoint, char *list)
{
	if (set_options(list))
		return EXIT_USAGE;
	if (find_paths(image, mountpoint))
		return EXIT_FAILED;
	return run_daemon();
}

int main(int argc, char **argv)
{
	int status, err;

	if (helper_run(argc, argv, &status))
		return status;
	status = parse_arguments(argc, argv);
	if (status)
		return status - 1;
	err = find_paths(argv[optind], argv[optind + 1]);
	if (err)
		return err == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
	return options.foreground ? run(-1) : run_daemon();
}
