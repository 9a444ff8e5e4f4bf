/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the tools share: see common.h. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "common.h"
#include "user/env/device_file.h"
#include "user/env/device_use.h"
#include "user/env/device_wait.h"
#include "user/env/log.h"
#include "user/env/streams.h"
#include "core/format/anchor.h"
#include "core/open.h"

#define PROGRESS_AFTER_NS	2000000000ull
#define PROGRESS_EVERY_NS	200000000ull

const char *tool_name = "tux3";

/* One sentence, with a full stop: what libraries give us has none. */
static void message(const char *format, va_list args)
{
	char text[1024];
	size_t len;

	vsnprintf(text, sizeof(text), format, args);
	len = strlen(text);
	fflush(stdout);
	fprintf(stderr, "%s: %s%s\n", tool_name, text, len && strchr(".?!", text[len - 1]) ? "" : ".");
}

void tool_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	message(format, args);
	va_end(args);
}

int tool_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	message(format, args);
	va_end(args);
	fprintf(stderr, "Try '%s --help'.\n", tool_name);
	return EXIT_USAGE;
}

int tool_tell(const char *text, int failed)
{
	fputs(text, stdout);
	return finish_output(tool_name, EXIT_CLEAN, failed);
}

static void log_nowhere(int level, const char *message)
{
}

void tool_log(bool show)
{
	env_set_log(show ? NULL : log_nowhere);
}

/* ---- numbers ---- */

bool parse_number(const char *text, u64 *value)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*value = strtoull(text, &end, 0);
	return !errno && !*end;
}

bool parse_uuid(const char *text, u8 *uuid)
{
	unsigned int i, value;

	if (strlen(text) != 36)
		return false;
	for (i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			if (*text++ != '-')
				return false;
		if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]) ||
		    sscanf(text, "%2x", &value) != 1)
			return false;
		uuid[i] = value;
		text += 2;
	}
	return true;
}

bool volume_has_feature(const struct volume *vol, enum tux3_feature_word word, enum tux3_feature feature)
{
	const u64 words[] = {
		[TUX3_COMPAT] = vol->feature_compat, [TUX3_RO_COMPAT] = vol->feature_ro_compat,
		[TUX3_INCOMPAT] = vol->feature_incompat,
	};

	return words[word] & feature;
}

const struct feature_row *feature_row(unsigned int i)
{
	static const struct feature_row rows[] = {
#define X(WORD, bit, NAME, ...) { TUX3_##WORD, TUX3_FEATURE_##WORD##_##NAME, __VA_ARGS__ },
		TUX3_FEATURES(X)
#undef X
	};

	return i < ARRAY_SIZE(rows) ? &rows[i] : NULL;
}

const char *format_size(char *text, size_t size, u64 bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned int unit = 0;
	double value = bytes;

	while (value >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
		value /= 1024;
		unit++;
	}
	if (value == (u64)value)
		snprintf(text, size, "%.0f %s", value, units[unit]);
	else
		snprintf(text, size, "%.1f %s", value, units[unit]);
	return text;
}

const char *format_uuid(char *text, size_t size, const u8 *u)
{
	snprintf(text, size, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7],
		 u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
	return text;
}

const char *format_time(char *text, size_t size, u64 ns)
{
	time_t seconds = ns / 1000000000;
	struct tm tm;

	if (!localtime_r(&seconds, &tm) || !strftime(text, size, "%Y-%m-%d %H:%M:%S", &tm))
		snprintf(text, size, "%" PRIu64 " ns", (uint64_t)ns);
	return text;
}

u32 label_length(const u8 *label)
{
	return strnlen((const char *)label, TUX3_LABEL_MAX);
}

/* ---- opening ---- */

int tool_open(const char *path, const struct volume_options *opts, struct tool_volume *tool, bool *device)
{
	struct volume_options options = *opts;
	char why[256] = "";
	int err;

	memset(tool, 0, sizeof(*tool));
	options.read_only = true;
	options.manual = true;
	if (!options.cache_bytes)
		options.cache_bytes = CACHE_BYTES;
	if (device)
		*device = true;
	device_wait_closed(path, false);
	err = device_open_file(path, 0, &tool->dev, tool->why, sizeof(tool->why));
	if (err)
		return err;
	if (device)
		*device = false;
	err = volume_open(tool->dev, NULL, &options, &tool->vol, why, sizeof(why));
	if (!err)
		return 0;
	tool->vol = NULL;
	snprintf(tool->why, sizeof(tool->why), "%.200s: %s", path, why);
	return err;
}

void tool_close(struct tool_volume *tool)
{
	if (tool->vol)
		volume_close(tool->vol);
	if (tool->dev)
		tool->dev->ops->close(tool->dev);
	tool->vol = NULL;
	tool->dev = NULL;
}

int tool_check_output(const char *path, const char *from, bool copy)
{
	struct disk_anchor anchor;
	struct stat out, in;
	struct tux3_device *dev;
	char why[512];
	int err;

	if (stat(path, &out))
		return 0;
	if (!stat(from, &in) && device_same(&out, &in))
		return tool_usage("%s is the volume itself: choose another name for the %s.", path, copy ? "copy" : "picture");
	if (S_ISBLK(out.st_mode) || (copy && !S_ISREG(out.st_mode))) {
		tool_error("%s is not a regular file.", path);
		return EXIT_FAILED;
	}
	if (!S_ISREG(out.st_mode))
		return 0;
	/* As for a format: all of it goes. */
	if (device_open_file(path, DEVICE_OPEN_WRITE | DEVICE_OPEN_SYNC_IO | DEVICE_OPEN_FORMAT, &dev, why, sizeof(why))) {
		tool_error("%s.", why);
		return EXIT_FAILED;
	}
	/* A copy has to be told to take the place of something.  Nobody wants a picture there. */
	err = copy ? -EINVAL : volume_read_anchor(dev, &anchor, NULL, why, sizeof(why));
	dev->ops->close(dev);
	if (err && err != -EOPNOTSUPP)
		return 0;
	tool_error("%s is a Tux3 volume: choose another name for the picture.", path);
	return EXIT_FAILED;
}

/* ---- progress ---- */

static void progress_line(struct progress *progress, u64 now, u64 done, u64 total)
{
	double share = total ? (double)min(done, total) / total : 1;
	double passed = (now - progress->started_ns) / 1e9;
	char left[40] = "";

	if (share > 0.02 && share < 1)
		snprintf(left, sizeof(left), ", about %.0f s left", passed / share - passed);
	fprintf(stderr, "\r%s: %5.1f %% after %.0f s%s\033[K", progress->name, 100 * share, passed, left);
	fflush(stderr);
	progress->shown = true;
}

void progress_tell(struct progress *progress, const char *name, u64 done, u64 total)
{
	u64 now = ktime_get_ns();

	if (progress->never || (!progress->always && !isatty(STDERR_FILENO)))
		return;
	if (progress->name != name) {
		progress_end(progress);
		progress->name = name;
		progress->started_ns = now;
		progress->told_ns = 0;
	}
	if (now - progress->told_ns < PROGRESS_EVERY_NS && done < total)
		return;
	if (!progress->always && now - progress->started_ns < PROGRESS_AFTER_NS)
		return;
	progress->told_ns = now;
	progress_line(progress, now, done, total);
}

void progress_check(struct progress *progress, enum check_pass pass, u64 done, u64 total)
{
	static const char *const names[CHECK_PASSES] = {
		[CHECK_TREE] = "Reading inodes",
		[CHECK_INODES] = "Comparing names and inodes",
		[CHECK_NAMES] = "Following directories",
		[CHECK_SPACE] = "Reading free maps",
		[CHECK_DATA] = "Reading data",
	};

	progress_tell(progress, names[pass], done, total);
}

void progress_end(struct progress *progress)
{
	if (progress->shown)
		fputc('\n', stderr);
	progress->shown = false;
	progress->name = NULL;
}
