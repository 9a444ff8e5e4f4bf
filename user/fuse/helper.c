/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3-fuse under the names by which mount(8) and umount(8) call for help:
 *
 *	mount.tux3		mount -t tux3: by the kernel module if this kernel has it, else by FUSE
 *	mount.fuse.tux3		mount -t fuse.tux3: by FUSE
 *	umount.fuse.tux3, umount.tux3	umount, which then returns when the volume is complete: the kernel does not wait
 *				for a FUSE daemon to write what it has and to close the volume
 *	tux3-auto-unmount	of a daemon's own making: waits for its death, and unmounts
 *
 * They get options of every kind: from fstab, for mount(8) itself, for the module.  What needs nothing done is
 * accepted, as are the options of the other way to mount.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"
#include "options.h"
#include "tux3_fuse.h"
#include "user/env/device_wait.h"
#include "user/env/streams.h"

#define LIST_MAX 4096
#define MODULE "tux3"

/* ---- what is mounted ---- */

/* Spaces and the like are \040 in /proc. */
static void unescape(char *text)
{
	char *to = text;

	for (; *text; text++) {
		unsigned int byte;

		if (*text == '\\' && sscanf(text + 1, "%3o", &byte) == 1) {
			*to++ = byte;
			text += 3;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static bool parse_entry(const char *line, struct mount_entry *entry)
{
	const char *rest = strstr(line, " - ");

	if (!rest || sscanf(line, "%*s %*s %31s %*s %4095s %255s", entry->device, entry->target, entry->options) != 3 ||
	    sscanf(rest, " - %63s %4095s", entry->type, entry->source) != 2)
		return false;
	unescape(entry->target);
	unescape(entry->source);
	return true;
}

enum by { BY_TARGET, BY_SOURCE, BY_DEVICE };

static bool find_entry(enum by by, const char *name, struct mount_entry *entry)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	struct mount_entry *now = malloc(sizeof(*now));
	bool found = false;
	char *line = NULL;
	size_t size = 0;

	while (mounts && now && getline(&line, &size, mounts) > 0) {
		if (!parse_entry(line, now))
			continue;
		if (!strcmp(by == BY_TARGET ? now->target : by == BY_SOURCE ? now->source : now->device, name)) {
			*entry = *now;		/* the last one is on top */
			found = true;
		} else if (by == BY_DEVICE && found && !strcmp(now->target, entry->target)) {
			found = false;		/* covered: by its name the other would be meant */
		}
	}
	free(line);
	free(now);
	if (mounts)
		fclose(mounts);
	return found;
}

bool mount_entry_find(const char *target, bool by_source, struct mount_entry *entry)
{
	return find_entry(by_source ? BY_SOURCE : BY_TARGET, target, entry);
}

bool mount_entry_find_device(const char *device, struct mount_entry *entry)
{
	return find_entry(BY_DEVICE, device, entry);
}

static bool is_fuse(const struct mount_entry *entry)
{
	return !strncmp(entry->type, "fuse", 4);
}

static bool is_ours(const struct mount_entry *entry)
{
	return !strcmp(entry->type, "tux3") || !strcmp(entry->type, "fuse.tux3") || !strcmp(entry->type, "fuseblk.tux3");
}

/* Runs it; its exit status. */
static int run_program(char *const *words)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execvp(words[0], words);
		complain("cannot run %s: %s.", words[0], strerror(errno));
		_exit(EXIT_FAILED);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return EXIT_FAILED;
	return WEXITSTATUS(status);
}

#define UMOUNT_HELPER "/sbin/umount.fuse.tux3"

void helper_register(const char *source, const char *target)
{
	/* It mounts nothing (-f), and writes to the table. */
	char *words[] = { "mount", "-f", "-i", "-c", "-t", "fuse.tux3", "-o", "helper=fuse.tux3", (char *)source,
			  (char *)target, NULL };

	if (geteuid() == 0 && !access(UMOUNT_HELPER, X_OK))
		run_program(words);
}

/* ---- mount ---- */

struct mounting {
	const char *program;		/* mount.tux3 ... */
	const char *source, *target;
	char list[LIST_MAX];		/* options */
	bool fake, sloppy, verbose;
};

/* Is there somebody who writes to it?  Whoever has opened a volume for writing has locked it. */
static bool is_written(const char *source)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	int fd = open(source, O_RDONLY | O_CLOEXEC);
	bool written = fd >= 0 && !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type == F_WRLCK;

	if (fd >= 0)
		close(fd);
	return written;
}

/* By the daemon, which refuses what it does not know or cannot change. */
static int change_options(const char *target, const char *list)
{
	struct remount_request *request = calloc(1, sizeof(*request));
	int fd = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status = EXIT_FAILED, answer;

	if (!request || fd < 0) {
		complain("cannot remount %s: %s.", target, strerror(errno));
	} else if ((size_t)snprintf(request->options, sizeof(request->options), "%s", list) >= sizeof(request->options)) {
		complain("the options are longer than %zu bytes.", sizeof(request->options) - 1);
	} else {
		answer = ioctl(fd, TUX3_FUSE_IOC_REMOUNT, request);
		if (answer < 0 && errno == ENOTTY)
			complain("%s is served by another version of tux3-fuse: unmount it and mount it again.", target);
		else if (answer < 0)
			complain("cannot remount %s: %s.", target, strerror(errno));
		else if (answer)
			complain("%s.", request->why);
		else
			status = 0;
	}
	if (fd >= 0)
		close(fd);
	free(request);
	return status;
}

static int remount(const struct mounting *mounting, const struct mount_entry *entry)
{
	unsigned long flags = mount_flags_parse(mounting->list);
	int fd, status;

	if (!(flags & MS_RDONLY) && !is_written(entry->source)) {
		complain("%s was mounted read-only, and the daemon has opened the volume so: unmount it and mount it again.",
			 entry->target);
		return EXIT_FAILED;
	}
	status = change_options(entry->target, mounting->list);
	if (status)
		return status;
	if (mount(NULL, entry->target, NULL, MS_REMOUNT | flags, NULL)) {
		complain("cannot remount %s: %s.", entry->target, strerror(errno));
		return EXIT_FAILED;
	}
	if (!(flags & MS_RDONLY))
		return 0;
	/* As when any other volume becomes read-only: it is complete. */
	fd = open(entry->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	return 0;
}

bool kernel_has(const char *type)
{
	FILE *types = fopen("/proc/filesystems", "re");
	char line[128], name[64];
	bool found = false;

	while (types && !found && fgets(line, sizeof(line), types)) {
		const char *tab = strchr(line, '\t');

		found = tab && sscanf(tab, "%63s", name) == 1 && !strcmp(name, type);
	}
	if (types)
		fclose(types);
	return found;
}

static bool module_is_there(void)
{
	char *words[] = { "modprobe", "-q", MODULE, NULL };

	if (kernel_has(MODULE))
		return true;
	if (geteuid() != 0 || access("/sbin/modprobe", X_OK))
		return false;
	return !run_program(words) && kernel_has(MODULE);
}

/* mount(8) without its helper. */
static int mount_by_kernel(const struct mounting *mounting)
{
	char list[LIST_MAX + 8] = "", copy[LIST_MAX], *rest = copy, *option;
	char *words[16] = { "mount", "-i", "-t", MODULE, "-o", list };
	unsigned int count = 6;
	struct stat st;

	memcpy(copy, mounting->list, sizeof(copy));
	while ((option = strsep(&rest, ","))) {
		if (!*option || option_is_for_fuse(option))
			continue;
		if (*list)
			strcat(list, ",");
		strcat(list, option);
	}
	if (!options_have(list, "remount") && !stat(mounting->source, &st) && S_ISREG(st.st_mode) && !options_have(list, "loop"))
		strcat(list, *list ? ",loop" : "loop");
	if (!*list)
		strcat(list, "defaults");
	if (mounting->fake)
		words[count++] = "-f";
	if (mounting->verbose)
		words[count++] = "-v";
	words[count++] = (char *)mounting->source;
	words[count++] = (char *)mounting->target;
	return run_program(words);
}

static int help_mount(const char *program)
{
	printf("Usage: mount -t %s [-o options] IMAGE DIRECTORY\n"
	       "%s is how mount(8) mounts a Tux3 volume, in a file or on a block device, %s.\n"
	       "It is called by mount(8), with SOURCE DIRECTORY [-fnsv] [-o options], and accepts all options of mount(8),\n"
	       "of fstab(5), of the kernel module and of tux3-fuse; those that do not apply have no effect.\n"
	       "\n"
	       "Examples:\n"
	       "  mount -t %s -o age=1 /srv/tux3.img /mnt\n"
	       "  mount -o remount,ro /mnt\n"
	       "  in /etc/fstab:  /srv/tux3.img  /mnt  %s  defaults,nofail  0 0\n"
	       "\n"
	       "tux3-fuse takes these options:\n\n", program + 6, program,
	       strcmp(program, "mount.tux3") ? "by FUSE" : "by the kernel module if this kernel has it, else by FUSE",
	       program + 6, program + 6);
	help();
	return finish_output(program, 0, EXIT_FAILED);
}

static int parse_mount(struct mounting *mounting, int argc, char **argv)
{
	size_t used = 0;
	int c;

	while ((c = getopt(argc, argv, "fnsvo:t:N:")) != -1) {
		switch (c) {
		case 'f':
			mounting->fake = true;
			break;
		case 's':
			mounting->sloppy = true;
			break;
		case 'v':
			mounting->verbose = true;
			break;
		case 'o':
			used += snprintf(mounting->list + used, LIST_MAX - used, "%s%s", used ? "," : "", optarg);
			if (used >= LIST_MAX) {
				complain("the options are longer than %d bytes.", LIST_MAX);
				return EXIT_USAGE;
			}
			break;
		case '?':
			complain("see %s --help.", mounting->program);
			return EXIT_USAGE;
		}
	}
	if (argc - optind != 2) {
		complain("expected an image and a directory; see %s --help.", mounting->program);
		return EXIT_USAGE;
	}
	mounting->source = argv[optind];
	mounting->target = argv[optind + 1];
	return 0;
}

static int mount_main(struct mounting *mounting, int argc, char **argv)
{
	struct mount_entry *entry;
	char real[PATH_MAX];
	bool by_fuse;
	int status = parse_mount(mounting, argc, argv);

	if (status)
		return status;
	if (options_have(mounting->list, "remount")) {
		entry = malloc(sizeof(*entry));
		if (!entry || !realpath(mounting->target, real) || !mount_entry_find(real, false, entry)) {
			complain("%s is not mounted.", mounting->target);
			status = EXIT_FAILED;
		} else if (!is_ours(entry)) {
			complain("%s is no Tux3 volume: a %s file system is mounted there.", mounting->target, entry->type);
			status = EXIT_FAILED;
		} else if (!is_fuse(entry)) {
			status = mount_by_kernel(mounting);
		} else {
			status = mounting->fake ? 0 : remount(mounting, entry);
		}
		free(entry);
		return status;
	}
	by_fuse = strcmp(mounting->program, "mount.tux3") || !module_is_there();
	if (!by_fuse)
		return mount_by_kernel(mounting);
	return mounting->fake ? 0 : mount_volume(mounting->source, mounting->target, mounting->list, mounting->sloppy);
}

/* ---- umount ---- */

static int help_umount(const char *program)
{
	printf("Usage: umount DIRECTORY\n"
	       "%s is how umount(8) unmounts a Tux3 volume.  With FUSE the kernel does not wait for the daemon:\n"
	       "this program does, so that the image is complete, and can be copied, when umount returns.\n"
	       "It is called by umount(8), with DIRECTORY [-flnrv].\n", program);
	return finish_output(program, 0, EXIT_FAILED);
}

/*
 * The kernel's name for what is mounted as long as anybody has it mounted, also where we cannot see it, as in another mount
 * namespace, or a file of it open; 0 if there is none.  (The device number alone may soon be another mount's.)
 */
static ino_t superblock_id(const struct mount_entry *entry)
{
	char path[64];
	bool has_device = !strncmp(entry->type, "fuseblk", 7);
	struct stat st;

	snprintf(path, sizeof(path), "/sys/class/bdi/%s%s", entry->device, has_device ? "-fuseblk" : "");
	return stat(path, &st) ? 0 : st.st_ino;
}

/* Everything that was written so far, durably: 0 or errno. */
static int sync_mount(const char *target)
{
	int fd = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err;

	if (fd < 0)
		return errno;
	err = syncfs(fd) || fsync(fd) ? errno : 0;	/* the kernel's cache, and the daemon's */
	close(fd);
	return err;
}

static void tell_elsewhere(const struct mount_entry *entry, int err)
{
	if (err)
		complain("%s is still mounted elsewhere, as in another namespace, and its daemon goes on; what was written could not be synced: %s.",
			 entry->source, strerror(err));
	else
		complain("%s is still mounted elsewhere, as in another namespace, and its daemon goes on: do not copy it yet. What was written until now is synced.",
			 entry->source);
}

static int umount_main(const char *program, int argc, char **argv)
{
	char *words[16] = { "umount", "-i" }, real[PATH_MAX];
	unsigned int count = 2;
	struct mount_entry *entry = malloc(sizeof(*entry));
	bool lazy = false, force = false, wait;
	int c, status, sync_err = 0;
	ino_t id = 0;

	while ((c = getopt(argc, argv, "flnrvt:N:")) != -1) {
		static const struct {
			int letter;
			char *word;
		} passed[] = { { 'f', "-f" }, { 'l', "-l" }, { 'n', "-n" }, { 'r', "-r" }, { 'v', "-v" } };

		lazy |= c == 'l';
		force |= c == 'f';
		for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]) && count < 12; i++)
			if (c == passed[i].letter)
				words[count++] = passed[i].word;
	}
	if (!entry || argc - optind != 1) {
		complain("expected a directory; see %s --help.", program);
		free(entry);
		return EXIT_USAGE;
	}
	if (!realpath(argv[optind], real))
		snprintf(real, sizeof(real), "%s", argv[optind]);
	wait = !lazy && (mount_entry_find(real, false, entry) || mount_entry_find(real, true, entry)) && is_fuse(entry);
	if (wait)
		id = superblock_id(entry);
	/* Whether it is mounted elsewhere, too, is known only when it is too late for that.  By force: the daemon may hang. */
	if (wait && !force)
		sync_err = sync_mount(entry->target);
	words[count++] = argv[optind];
	status = run_program(words);
	if (!status && wait && !(id && superblock_id(entry) == id))
		device_wait_complete(entry->source);
	else if (!status && wait && !force)
		tell_elsewhere(entry, sync_err);
	free(entry);
	return status;
}

/* ---- auto_unmount ---- */

#define WATCHER "tux3-auto-unmount"

static int watch_fd = -1;

/*
 * A process of another name (who kills the daemon by its name means the daemon) that is told what is mounted, then waits for
 * the end of the pipe.  It has that name when this returns.
 */
int helper_watch(const char *target)
{
	char *words[] = { WATCHER, (char *)target, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int fds[2], err;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC)) {
		complain("cannot make a pipe for auto_unmount: %s.", strerror(errno));
		return -EIO;
	}
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, fds[0], STDIN_FILENO);
	posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_RDWR, 0);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
	err = posix_spawn(&pid, "/proc/self/exe", &files, &attr, words, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	close(fds[0]);
	if (err) {
		complain("cannot start a process for auto_unmount: %s.", strerror(err));
		close(fds[1]);
		return -EIO;
	}
	watch_fd = fds[1];
	return 0;
}

void helper_watch_begins(const char *target)
{
	struct mount_entry *entry = watch_fd >= 0 ? malloc(sizeof(*entry)) : NULL;

	if (entry && mount_entry_find(target, false, entry))
		(void)!write(watch_fd, entry->device, strlen(entry->device));
	free(entry);
}

static int watch_main(const char *target)
{
	char *words[] = { "fusermount3", "-u", "-z", "--", (char *)target, NULL };
	struct mount_entry *entry = malloc(sizeof(*entry));
	char device[32] = "", rest[32];
	ssize_t len = read(STDIN_FILENO, device, sizeof(device) - 1);

	prctl(PR_SET_NAME, WATCHER);
	(void)!chdir("/");
	while (len > 0 && read(STDIN_FILENO, rest, sizeof(rest)) > 0)
		;
	if (!entry || len <= 0 || !mount_entry_find(target, false, entry) || !is_fuse(entry) || strcmp(entry->device, device))
		;
	else if (geteuid() != 0)
		run_program(words);
	else	/* by force: a device is not to wait for an answer of the dead */
		umount2(target, MNT_DETACH | MNT_FORCE | UMOUNT_NOFOLLOW);
	free(entry);
	return 0;
}

bool helper_run(int argc, char **argv, int *status)
{
	const char *slash = strrchr(argv[0], '/');
	static struct mounting mounting;
	bool is_mount, wants_help;

	mounting.program = slash ? slash + 1 : argv[0];
	if (!strcmp(mounting.program, WATCHER) && argc == 2) {
		*status = watch_main(argv[1]);
		return true;
	}
	is_mount = !strncmp(mounting.program, "mount.", 6);
	if (!is_mount && strncmp(mounting.program, "umount.", 7))
		return false;
	message_prefix = mounting.program;
	if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) {
		printf("%s %s\n", mounting.program, tux3_version());
		*status = finish_output(mounting.program, 0, EXIT_FAILED);
		return true;
	}
	wants_help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
	if (is_mount)
		*status = wants_help ? help_mount(mounting.program) : mount_main(&mounting, argc, argv);
	else
		*status = wants_help ? help_umount(mounting.program) : umount_main(mounting.program, argc, argv);
	return true;
}
