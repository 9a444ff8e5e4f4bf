/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 scrub, the last phase: the checker on a mounted volume.
 *
 * What is compared is a state that the volume holds for us (core/scrub/hold.h).  It is read here, from the device that is
 * mounted, beside who writes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include "common.h"
#include "tux3_scrub.h"
#include "user/env/device_file.h"

#define NS_PER_S	1000000000ull

/* Spaces and the like are \040 in /proc. */
static void unescape(char *text)
{
	unsigned int byte;
	char *to = text;

	for (; *text; text++) {
		if (*text == '\\' && strspn(text + 1, "01234567") >= 3 && sscanf(text + 1, "%3o", &byte) == 1) {
			*to++ = byte;
			text += 3;
		} else {
			*to++ = *text;
		}
	}
	*to = 0;
}

/* Where the volume of an open file is: a block device by its number, the image of a daemon by what it was mounted with. */
static bool find_source(int fd, char *source, size_t size)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char line[2 * 4096], name[4096];
	unsigned int maj, min;
	bool found = false;
	struct stat st;

	if (mounts && !fstat(fd, &st)) {
		snprintf(source, size, "/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
		found = major(st.st_dev) && !access(source, F_OK);
	}
	while (mounts && !found && fgets(line, sizeof(line), mounts)) {
		const char *rest = strstr(line, " - ");

		if (!rest || sscanf(line, "%*d %*d %u:%u", &maj, &min) != 2 || makedev(maj, min) != st.st_dev ||
		    sscanf(rest, " - %*s %4095s", name) != 1)
			continue;
		unescape(name);
		found = (size_t)snprintf(source, size, "%s", name) < size && source[0] == '/';
	}
	if (mounts)
		fclose(mounts);
	return found;
}

static int ask(void *ctx, struct tux3_ioc_hold *hold)
{
	struct scrub_check *check = ctx;

	return ioctl(check->fd, TUX3_IOC_HOLD, hold) ? -errno : 0;
}

#define RATE_LOOK_NS	(NS_PER_S / 4)	/* a signal that comes just before it sleeps does not end the sleep */

void scrub_keep_rate(u64 rate, u64 bytes, u64 started_ns, const volatile int *stop)
{
	u64 wanted = rate ? (double)bytes * NS_PER_S / rate : 0;

	while (!*stop) {
		u64 passed = ktime_get_ns() - started_ns;
		struct timespec pause = { };

		if (wanted <= passed)
			return;
		pause.tv_nsec = min_t(u64, wanted - passed, RATE_LOOK_NS);
		nanosleep(&pause, NULL);		/* a signal ends it */
	}
}

static void on_progress(void *ctx, enum check_pass pass, u64 done, u64 total)
{
	struct scrub_check *check = ctx;

	scrub_keep_rate(check->rate, atomic64_read(&check->dev->read_bytes), check->started_ns, check->held.stop);
	progress_check(check->progress, pass, done, total);
}

static void tell_failure(const struct scrub_check *check, int err)
{
	switch (err) {
	case -ENOTTY:
		tool_error("%s: who has mounted it does not know how to hold a state for a check: names, links and counts were not compared.",
			   check->path);
		break;
	case -EBUSY:
		tool_error("%s is being checked by somebody else: names, links and counts were not compared.", check->path);
		break;
	default:
		tool_error("%s: names, links and counts could not be compared: %s.", check->path,
			   check->held.why[0] ? check->held.why : strerror(-err));
	}
}

int scrub_check(struct scrub_check *check)
{
	char source[4096], why[512];
	struct stat st;
	int err;

	if (!find_source(check->fd, source, sizeof(source))) {
		tool_error("%s: nothing tells what device it is on: names, links and counts were not compared.", check->path);
		return EXIT_OPERATION;
	}
	err = device_open_file(source, DEVICE_OPEN_BESIDE, &check->dev, why, sizeof(why));
	if (err) {
		tool_error("%s: names, links and counts were not compared: %s.", check->path, why);
		return EXIT_OPERATION;
	}
	check->started_ns = ktime_get_ns();
	check->held.hold = ask;
	check->held.own_device = true;
	check->held.image = !stat(source, &st) && S_ISREG(st.st_mode);
	check->held.progress = on_progress;
	check->held.ctx = check;
	err = held_check(&check->held, check->dev);
	progress_end(check->progress);
	check->dev->ops->close(check->dev);
	if (err == -ECANCELED)
		return EXIT_CANCELED;
	if (err)
		tell_failure(check, err);
	check->done = !err;
	return err ? EXIT_OPERATION : 0;
}
