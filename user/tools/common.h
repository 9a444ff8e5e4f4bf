/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What mkfs.tux3, fsck.tux3 and tux3 share: opening, messages, numbers, progress.
 */
#ifndef TUX3_TOOLS_COMMON_H
#define TUX3_TOOLS_COMMON_H

#include "core/volume.h"
#include "core/check/check.h"
#include "core/show/show.h"

/* Exit codes, as fsck(8) has them. */
#define EXIT_CLEAN	0
#define EXIT_FAILED	1	/* mkfs.tux3, tux3 */
#define EXIT_CORRECTED	1	/* fsck.tux3 */
#define EXIT_PROBLEMS	4	/* errors left uncorrected */
#define EXIT_OPERATION	8	/* could not do it */
#define EXIT_USAGE	16
#define EXIT_CANCELED	32

#define CACHE_BYTES	(64u << 20)	/* memory for metadata */

extern const char *tool_name;	/* for messages: set first thing in main() */

/* "<tool>: sentence" on stderr. */
__printf(1, 2) void tool_error(const char *format, ...);
/* The same with "Try <tool> --help".  Returns EXIT_USAGE. */
__printf(1, 2) int tool_usage(const char *format, ...);
/* A help text, and what comes of that: EXIT_CLEAN, or failed, with a message, if it cannot be written. */
int tool_tell(const char *text, int failed);
/* What the core says: to stderr (true), or nowhere. */
void tool_log(bool show);

bool parse_number(const char *text, u64 *value);
/* 16 bytes from "xxxxxxxx-xxxx-...". */
bool parse_uuid(const char *text, u8 *uuid);
const char *format_size(char *text, size_t size, u64 bytes);	/* "9.8 GiB"; returns text */
const char *format_uuid(char *text, size_t size, const u8 *uuid);
const char *format_time(char *text, size_t size, u64 ns);
#define FORMAT_MAX 64
bool volume_has_feature(const struct volume *vol, enum tux3_feature_word word, enum tux3_feature feature);

/* A row of TUX3_FEATURES. */
struct feature_row {
	enum tux3_feature_word word;
	enum tux3_feature bit;
	const char *name;
	u32 format;		/* the version that has it first */
	const char *module;	/* likewise */
	bool on;		/* in a new volume, unless said otherwise */
	const char *what;
};
const struct feature_row *feature_row(unsigned int i);	/* NULL: there are no more */

/* A volume opened read-only, with its log replayed in memory. */
struct tool_volume {
	struct tux3_device *dev;
	struct volume *vol;
	char why[512];		/* after a failure: a sentence */
};
/*
 * 0 or -errno, and in any case tool_close().  *device: it is the device that could not be opened; else
 * dev is there even if vol is not.
 */
int tool_open(const char *path, const struct volume_options *opts, struct tool_volume *tool, bool *device);
void tool_close(struct tool_volume *tool);
/*
 * What is about to be overwritten by a tool that reads `from`: not the same under another name, nor in use, nor a device; by a
 * picture (no copy) no volume at all.
 * 0, or an exit code: it was said why.
 */
int tool_check_output(const char *path, const char *from, bool copy);
u32 label_length(const u8 *label);

/* Of a volume that may be damaged, on a device nobody else writes: an undo file for it, and what ends one. */
struct undo_file;
struct undo_left;
int tool_undo_create(const char *path, struct tux3_device *dev, struct undo_file **file, char *why, size_t why_size);
void tool_undo_left(struct tux3_device *dev, struct undo_left *left);
/* Is all in its place already, from its record @first on?  0; -ESTALE: no; or an error. */
int tool_undo_compare(struct tux3_device *dev, struct undo_file *file, u64 first);
/* Is this the volume, as it was left (force: of that size)?  0, or -errno and why; name: of the device. */
int tool_undo_match(struct tux3_device *dev, struct undo_file *file, bool force, const char *name,
		    char *why, size_t why_size);

/*
 * Progress with an estimate, on stderr: from the third second on if that is a terminal, or always.
 * name: of what is being done, changes begin a new line.
 */
struct progress {
	bool always, never;
	const char *name;
	u64 started_ns, told_ns;
	bool shown;
};
void progress_tell(struct progress *progress, const char *name, u64 done, u64 total);
void progress_check(struct progress *progress, enum check_pass pass, u64 done, u64 total);	/* of the checker */
void progress_end(struct progress *progress);

#endif
