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
#include "options.h"
#include "ring.h"
#include "tux3_fuse.h"
#include "user/env/device_use.h"
#include "user/env/device_wait.h"
#include "user/env/log.h"
#include "user/env/streams.h"
#include "user/lib/internal.h"
#include "core/delta/delta.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

/* A file in use keeps us from unmounting after a signal: wait this long for it. */
#define BUSY_WAIT_MS 5000
#define READAHEAD_KB 1024
/* So often it is looked whether the volume has stopped after an error. */
#define WATCH_MS 1000
#define DEFAULT_AGE_MS 5000	/* the library's */

struct mount_state mount_state;

static struct mount_options options;

static struct {
	char image[PATH_MAX], mountpoint[PATH_MAX];
	int log_fd;
	bool foreground;
} place = { .log_fd = -1 };

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
	     "  -o OPTION[,...]     mount options:");
	options_help();
	puts("       nosuid, nodev, noexec, noatime ... as for mount(8)\n"
	     "  -h, --help          this text\n"
	     "  -V, --version       version\n"
	     "\n"
	     "Sizes take K, M, G, T.  The end: umount MOUNTPOINT, or fusermount3 -u MOUNTPOINT, or a\n"
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

static int set_options(const char *list)
{
	int err = options_parse(&options, list);

	if (err)
		complain("%s; see tux3-fuse --help.", options.why);
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
			place.foreground = true;
			break;
		case 'o':
			if (set_options(optarg))
				return EXIT_USAGE + 1;
			break;
		case 'h':
			help();
			return finish_output("tux3-fuse", 0, EXIT_FAILED) + 1;
		case 'V':
			printf("tux3-fuse %s, libfuse %s\n", tux3_version(), fuse_pkgversion());
			return finish_output("tux3-fuse", 0, EXIT_FAILED) + 1;
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

static void set_settle_time(void)
{
	mount_state.settle_s = 2e-3 * (options.volume.age_ms ? options.volume.age_ms : DEFAULT_AGE_MS) + 1;
}

/* Asked for by mount.fuse.tux3, through the mount itself. */
int remount_options(const char *list, char *why, size_t size)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct tux3_options changed;
	int err;

	pthread_mutex_lock(&lock);
	err = options_remount(&options, list, &changed);
	snprintf(why, size, "%s", err ? options.why : "");
	if (!err) {
		tux3_change_options(mount_state.volume, &changed);
		atomic_store(&mount_state.sync, options.sync);
		set_settle_time();
		/* What waits was promised to be committed later than it may be now. */
		if (!mount_state.read_only)
			delta_commit(tux3_core(mount_state.volume));	/* what is lost is told to who asks for it */
	}
	pthread_mutex_unlock(&lock);
	return err;
}

static int find_paths(const char *image, const char *mountpoint)
{
	struct stat stat_buf, image_stat;

	if (options.volume.no_recovery && !options.volume.read_only) {
		complain("norecovery needs ro: changes on top of a log that was not replayed would destroy data.");
		return -EINVAL;
	}
	if (!realpath(image, place.image)) {
		complain("cannot open %s: %s.", image, strerror(errno));
		return -errno;
	}
	if (!realpath(mountpoint, place.mountpoint) || stat(place.mountpoint, &stat_buf)) {
		complain("cannot mount on %s: %s.", mountpoint, strerror(errno));
		return -errno;
	}
	if (!S_ISDIR(stat_buf.st_mode)) {
		complain("cannot mount on %s: it is not a directory.", mountpoint);
		return -ENOTDIR;
	}
	if (options.log[0]) {
		if (!stat(options.log, &stat_buf) && !stat(place.image, &image_stat) && device_same(&stat_buf, &image_stat)) {
			complain("cannot write messages to %s: that is the volume itself.", options.log);
			return -EINVAL;
		}
		place.log_fd = open(options.log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		if (place.log_fd < 0) {
			complain("cannot write messages to %s: %s.", options.log, strerror(errno));
			return -EIO;
		}
	}
	mount_state.image = image;
	mount_state.read_only = options.volume.read_only;
	mount_state.writeback = options.writeback;
	atomic_store(&mount_state.sync, options.sync);
	mount_state.readdirplus = options.readdirplus;
	mount_state.threads_max = options.threads;
	set_settle_time();
	if (!option_given(&options, "allow_other"))
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
	int fd = open(place.image, O_RDONLY | O_EXCL | O_CLOEXEC);

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

/*
 * MAJOR:MINOR of our mount.  Its directory may have another mount by the time we unmount: over ours, or instead of it,
 * if that was moved or lazily unmounted.
 */
static char mount_device[32];

static void remember_mount(void)
{
	struct mount_entry *entry = malloc(sizeof(*entry));

	if (entry && mount_entry_find(place.mountpoint, false, entry))
		snprintf(mount_device, sizeof(mount_device), "%s", entry->device);
	free(entry);
}

static int mount_session(void)
{
	static const struct fuse_custom_io io = { .writev = loop_writev, .read = loop_read };
	char list[2 * PATH_MAX + 2048] = "subtype=tux3,default_permissions,fsname=";
	char *argv[] = { "tux3-fuse", "-o", list, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	size_t used;
	int err = -EIO;

	append_escaped(list, 2 * PATH_MAX, place.image);
	used = strlen(list);
	snprintf(list + used, sizeof(list) - used, "%s%s%s%s%s", options.allow_other ? ",allow_other" : "",
		 options.volume.read_only ? ",ro" : "", geteuid() == 0 && options.permit_suid ? ",suid" : "",
		 geteuid() == 0 && options.permit_dev ? ",dev" : "", options.kernel);
	append_device_options(list, sizeof(list));
	mount_state.session = fuse_session_new(&args, &fuse_ops, sizeof(fuse_ops), NULL);
	fuse_opt_free_args(&args);
	if (!mount_state.session)
		return err;
	/* libfuse prints what is wrong. */
	if (fuse_session_mount(mount_state.session, place.mountpoint)) {
		complain("cannot mount %s on %s.", place.image, place.mountpoint);
		goto out_destroy;
	}
	if (!is_connected()) {
		complain("%s was mounted by another program just now.", place.image);
		goto out_unmount;
	}
	remember_mount();
	err = prepare_ring();
	if (err)
		goto out_unmount;
	err = fuse_session_custom_io(mount_state.session, &io, fuse_session_fd(mount_state.session));
	stale_start();
	if (!err)
		err = loop_start(fuse_session_fd(mount_state.session));
	if (!err)
		return 0;
	complain("cannot serve %s: %s.", place.mountpoint, strerror(-err));
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
	if (geteuid() != 0 || statx(AT_FDCWD, place.mountpoint, AT_STATX_DONT_SYNC, STATX_INO, &stat_buf))
		return;
	snprintf(dir, sizeof(dir), "/sys/class/bdi/%u:%u%s", stat_buf.stx_dev_major, stat_buf.stx_dev_minor,
		 mount_state.has_device ? "-fuseblk" : "");
	snprintf(value, sizeof(value), "%d", READAHEAD_KB);
	write_setting(dir, "read_ahead_kb", value);
	write_setting(dir, "max_ratio", "50");
	write_setting(dir, "strict_limit", "0");
}

/* libfuse does not know all flags. */
static void set_mount_flags(void)
{
	unsigned long flags = options.flags | (options.volume.read_only ? MS_RDONLY : 0);

	if (geteuid() == 0 && options.set_flags &&
	    mount(NULL, place.mountpoint, NULL, MS_REMOUNT | MS_BIND | flags, NULL))
		complain("cannot set all mount options of %s: %s.", place.mountpoint, strerror(errno));
}

/* ---- unmounting ---- */

static bool run_fusermount(const char *how, const char *target)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execlp("fusermount3", "fusermount3", how, "--", target, (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

static bool unmount_one(const char *target, int flags)
{
	if (geteuid() == 0)
		return umount2(target, flags | UMOUNT_NOFOLLOW) == 0;
	return run_fusermount(flags & MNT_DETACH ? "-uz" : "-u", target);
}

static bool unmounted;		/* by us */

/* Wherever it is mounted in this namespace now, but not what somebody else has mounted there. */
static bool unmount(int flags)
{
	struct mount_entry *entry = malloc(sizeof(*entry));
	bool done = false;

	if (!mount_device[0])
		done = unmounted = unmount_one(place.mountpoint, flags);
	while (mount_device[0] && entry && mount_entry_find_device(mount_device, entry)) {
		done = unmount_one(entry->target, flags);
		if (!done)
			break;
		unmounted = true;
	}
	free(entry);
	return done;
}

static bool is_on_top(void)
{
	struct mount_entry *entry = malloc(sizeof(*entry));
	bool found = entry && mount_entry_find(place.mountpoint, false, entry);
	bool ours = !mount_device[0] || (found && !strcmp(entry->device, mount_device));

	free(entry);
	return ours;
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
	fd = open(place.mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		syncfs(fd);
		close(fd);
	}
	if (!unmount(MNT_DETACH))
		complain("%s was not unmounted: something else is mounted over it, or it was unmounted before.", place.mountpoint);
	else if (!wait_done(BUSY_WAIT_MS))
		complain("%s: files are still open after %d seconds; closing the volume without waiting for them.",
			 place.mountpoint, BUSY_WAIT_MS / 1000);
}

/* The volume refuses changes: who looks at the mount is to see that. */
static void show_stopped(void)
{
	struct mount_entry *entry = malloc(sizeof(*entry));

	if (entry && geteuid() == 0 && mount_entry_find_device(mount_device, entry))
		mount(NULL, entry->target, NULL, MS_REMOUNT | MS_RDONLY | mount_flags_parse(entry->options), NULL);
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
	struct pollfd fds[3] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = loop_done_fd(), .events = POLLIN },
		{ .fd = stale_fd(), .events = POLLIN },
	};
	bool stopped = false;
	int ready;

	do {
		ready = poll(fds, 3, stopped ? -1 : WATCH_MS);
		if (ready > 0 && fds[2].revents) {
			stale_forget(true);
			ready -= 1;
		}
		if (ready == 0 && !stopped && volume_has_stopped()) {
			stopped = true;
			show_stopped();
		}
	} while (ready == 0 || (ready < 0 && errno == EINTR));
	if (!(fds[1].revents & POLLIN))
		unmount_by_signal();
	loop_stop();
	stale_forget(false);
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
	signal(SIGXFSZ, SIG_IGN);	/* a limit of file sizes is an error like others: the volume stops, we do not die */
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Where messages go once nobody waits for us at the terminal. */
static void leave_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (!place.foreground && null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
	}
	if (place.log_fd >= 0) {
		dup2(place.log_fd, STDERR_FILENO);
		close(place.log_fd);
	} else if (!place.foreground) {
		begin_syslog();
	}
	if (null >= 0)
		close(null);
}

/* What the library says, with the image in it and a full stop after it. */
static void complain_why(const char *why, int err)
{
	size_t len = strlen(why);
	bool named = strstr(why, place.image);
	const char *end = len && why[len - 1] == '.' ? "" : ".";

	if (err == -EROFS && !options.volume.read_only)
		end = ": mount it with -o ro.";
	complain("%s%s%s%s", named ? "" : place.image, named ? "" : ": ", why, end);
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
	if (options.auto_unmount && helper_watch(place.mountpoint))
		return EXIT_FAILED;
	device_wait_closed(place.image, !options.volume.read_only);
	err = tux3_open(place.image, &options.volume, &mount_state.volume, why, sizeof(why));
	if (err) {
		complain_why(why[0] ? why : strerror(-err), err);
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
	helper_watch_begins(place.mountpoint);
	if (!mount_state.has_device)
		helper_register(place.image, place.mountpoint);
	leave_terminal();
	if (!place.foreground && chdir("/"))
		complain("cannot leave the working directory: %s.", strerror(errno));
	if (ready_fd >= 0) {
		(void)!write(ready_fd, "", 1);
		close(ready_fd);
	}

	if (to_syslog)
		syslog(LOG_INFO, "%s mounted on %s%s", place.image, place.mountpoint,
		       options.volume.read_only ? " read-only" : "");
	serve(signals);

	/* Once more would unmount what is below. */
	if (!unmounted && !end.closed && is_on_top())
		fuse_session_unmount(mount_state.session);
	/* Only now: it closes the connection. */
	fuse_session_destroy(mount_state.session);
	err = close_volume();
	if (err) {
		complain("%s: not everything could be committed: %s.", place.image, strerror(-err));
		return EXIT_FAILED;
	}
	if (to_syslog)
		syslog(LOG_INFO, "%s unmounted", place.image);
	return 0;
}

/*
 * What our caller had open, but for the standard streams and what is ours: here for as long as the volume is mounted, a script's
 * lock would stay taken, and who reads from its pipe would wait for the end.
 */
static void leave_descriptors(int ready_fd)
{
	int last = ready_fd > place.log_fd ? ready_fd : place.log_fd;

	for (int fd = STDERR_FILENO + 1; fd < last; fd++)
		if (fd != ready_fd && fd != place.log_fd)
			close(fd);
	close_range(last + 1, ~0U, 0);
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
		leave_descriptors(ready[1]);
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

int mount_volume(const char *image, const char *mountpoint, const char *list, bool sloppy)
{
	options_init(&options);
	options.sloppy = sloppy;
	if (set_options(list))
		return EXIT_USAGE;
	if (find_paths(image, mountpoint))
		return EXIT_FAILED;
	return run_daemon();
}

int main(int argc, char **argv)
{
	int status, err;

	hold_standard_streams();
	if (helper_run(argc, argv, &status))
		return status;
	options_init(&options);
	status = parse_arguments(argc, argv);
	if (status)
		return status - 1;
	err = find_paths(argv[optind], argv[optind + 1]);
	if (err)
		return err == -EINVAL ? EXIT_USAGE : EXIT_FAILED;
	return place.foreground ? run(-1) : run_daemon();
}
