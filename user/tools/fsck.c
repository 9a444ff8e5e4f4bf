/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fsck.tux3: check a volume.
 *
 * Read-only: the log is replayed in memory, the image is not touched.  Exit codes are those of
 * fsck(8).  What it cannot look at, it does not call clean.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "common.h"
#include "core/check/check.h"
#include "core/format/anchor.h"
#include "user/env/streams.h"
#include "tux3.h"

#define PROBLEMS_TOLD 1000u

static const char help[] =
"fsck.tux3 [OPTION]... DEVICE|FILE\n"
"\n"
"Checks a Tux3 volume that is not mounted: tree, names, links, parent pointers, extents, free maps,\n"
"quota.  Nothing is written: the log is replayed in memory.  (Repair is not there yet.)\n"
"\n"
"  -n, --no                 change nothing (always so)\n"
"  -p, -a                   the same, for boot scripts: only check\n"
"  -y, --yes                repair: not there yet, so only check\n"
"  -f, --force              also read the free maps of groups that nothing says were ever used\n"
"      --data               also read all file data and verify its checksums\n"
"      --json               the result as JSON\n"
"  -C, --progress           show progress even if stderr is not a terminal\n"
"  -l, --limit NUMBER       print at most so many problems (1000); all are counted\n"
"  -v, --verbose            totals, the anchors, and what the core has to say\n"
"  -V, --version            print the version\n"
"  -h, --help               this text\n"
"\n"
"Examples:\n"
"  fsck.tux3 disk.img\n"
"  fsck.tux3 --data -C /dev/sdb1\n"
"  fsck.tux3 --json disk.img | jq .problems\n"
"\n"
"Exit code 0: clean; 4: problems left; 8: could not check; 16: wrong use; 32: canceled.\n";

enum { OPTION_DATA = 256, OPTION_JSON };

static const struct option options[] = {
	{ "no", no_argument, NULL, 'n' },
	{ "yes", no_argument, NULL, 'y' },
	{ "force", no_argument, NULL, 'f' },
	{ "data", no_argument, NULL, OPTION_DATA },
	{ "json", no_argument, NULL, OPTION_JSON },
	{ "progress", no_argument, NULL, 'C' },
	{ "limit", required_argument, NULL, 'l' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "version", no_argument, NULL, 'V' },
	{ "help", no_argument, NULL, 'h' },
	{ }
};

struct fsck {
	const char *path;
	bool data, force, json, verbose, repair;
	u64 limit, told;
	struct progress progress;
	struct tool_volume tool;
	struct check_result result;
	u64 log_problems;	/* the volume could only be opened without its log */
};

static void json_problem(struct fsck *fsck, const struct check_problem *problem)
{
	char text[4096];
	struct show_buffer out;

	show_init(&out, text, sizeof(text), true);
	show_begin(&out, NULL);
	show_u64(&out, "code", problem->code);
	show_string(&out, "name", problem->name);
	show_u64(&out, "inode", problem->ino);
	show_u64(&out, "block", problem->addr);
	show_string(&out, "text", problem->text);
	show_end(&out);
	printf("%s\n    %s", fsck->told ? "," : "", text);
}

static int on_problem(void *ctx, const struct check_problem *problem)
{
	struct fsck *fsck = ctx;

	progress_end(&fsck->progress);
	if (fsck->told < fsck->limit) {
		if (fsck->json)
			json_problem(fsck, problem);
		else
			printf("%s: %s (%u): %s\n", fsck->path, problem->name, problem->code, problem->text);
	}
	fsck->told++;
	return 0;
}

static void on_progress(void *ctx, enum check_pass pass, u64 done, u64 total)
{
	static const char *const names[CHECK_PASSES] = {
		[CHECK_TREE] = "Reading inodes",
		[CHECK_INODES] = "Comparing names and inodes",
		[CHECK_NAMES] = "Following directories",
		[CHECK_SPACE] = "Reading free maps",
		[CHECK_DATA] = "Reading data",
	};
	struct fsck *fsck = ctx;

	progress_tell(&fsck->progress, names[pass], done, total);
}

/* Nothing was changed, so there is nothing to undo. */
static void on_cancel(int signal)
{
	static const char text[] = "\nfsck.tux3: canceled; nothing was changed.\n";
	ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)ignored;
	_exit(EXIT_CANCELED);
}

/* ---- what is printed besides problems ---- */

static u64 replayed(const struct fsck *fsck)
{
	return atomic64_read(&fsck->tool.vol->counters[TUX3_COUNT_REPLAYED]);
}

static void tell_anchors(const struct fsck *fsck)
{
	struct disk_anchor anchor;
	char why[256];
	unsigned int n;

	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++) {
		if (volume_read_anchor_slot(fsck->tool.dev, n, &anchor, why, sizeof(why)))
			printf("%s: anchor slot %u: %s\n", fsck->path, n, why);
		else
			printf("%s: anchor slot %u: generation %llu, delta %llu%s\n", fsck->path, n,
			       (unsigned long long)le64_to_cpu(anchor.generation),
			       (unsigned long long)le64_to_cpu(anchor.delta),
			       n == fsck->tool.vol->anchor_slot ? ", in use" : "");
	}
}

static void tell_start(const struct fsck *fsck)
{
	u64 deltas = replayed(fsck);

	if (fsck->json)
		return;
	if (fsck->repair)
		printf("%s: repair is not there yet: this only checks\n", fsck->path);
	if (deltas)
		printf("%s: the log holds %llu delta%s since the last unify, replayed in memory; a mount does it on disk\n",
		       fsck->path, (unsigned long long)deltas, deltas == 1 ? "" : "s");
	if (fsck->verbose)
		tell_anchors(fsck);
}

static void tell_totals(const struct fsck *fsck)
{
	const struct check_result *r = &fsck->result;

	printf("%s: %llu inodes: %llu files, %llu directories, %llu symlinks, %llu others; %llu names, %llu orphans, %llu xattrs\n",
	       fsck->path, r->inodes, r->files, r->directories, r->symlinks, r->others, r->names, r->orphans, r->xattrs);
	printf("%s: tree of height %u: %llu nodes, %llu items, %llu extents; %llu data blocks, %llu log blocks, %llu free maps read\n",
	       fsck->path, r->tree_height, r->nodes, r->items, r->extents, r->data_blocks, r->log_blocks,
	       r->groups_read);
}

static void tell_end(const struct fsck *fsck)
{
	const struct check_result *r = &fsck->result;
	u64 problems = r->problems + fsck->log_problems;

	if (fsck->verbose)
		tell_totals(fsck);
	if (fsck->told > fsck->limit)
		printf("%s: %llu more problems are not shown (--limit)\n", fsck->path, fsck->told - fsck->limit);
	if (problems)
		printf("%s: %llu problem%s found; nothing was changed\n", fsck->path, problems,
		       problems == 1 ? "" : "s");
	else
		printf("%s: clean: %llu inode%s, %llu of %llu blocks in use%s\n", fsck->path, r->inodes,
		       r->inodes == 1 ? "" : "s", r->used_blocks, fsck->tool.vol->total_blocks,
		       fsck->data ? ", all data has the right checksums" : "");
}

static void json_end(const struct fsck *fsck, int code, const char *failure)
{
	const struct check_result *r = &fsck->result;
	char text[4096];
	struct show_buffer out;

	show_init(&out, text, sizeof(text), true);
	show_begin(&out, NULL);
	show_string(&out, "image", fsck->path);
	show_bool(&out, "clean", code == EXIT_CLEAN);
	show_u64(&out, "exit", code);
	if (failure)
		show_string(&out, "failure", failure);
	if (fsck->tool.vol) {
		show_u64(&out, "replayed_deltas", replayed(fsck));
		show_u64(&out, "delta", fsck->tool.vol->delta.committed);
		show_u64(&out, "block_size", fsck->tool.vol->block_size);
		show_u64(&out, "total_blocks", fsck->tool.vol->total_blocks);
	}
	show_u64(&out, "problem_count", r->problems + fsck->log_problems);
#define FIELD(name) show_u64(&out, #name, r->name)
	FIELD(inodes); FIELD(files); FIELD(directories); FIELD(symlinks); FIELD(others);
	FIELD(names); FIELD(orphans); FIELD(xattrs);
	FIELD(nodes); FIELD(items); FIELD(extents);
	FIELD(data_blocks); FIELD(unwritten_blocks); FIELD(used_blocks); FIELD(free_blocks); FIELD(log_blocks);
	FIELD(groups_read); FIELD(tree_height);
#undef FIELD
	show_end(&out);
	printf("%s], \"summary\": %s}\n", fsck->told ? "\n  " : "", text);
}

/* ---- the check ---- */

static int fail(struct fsck *fsck, int code, const char *why)
{
	if (fsck->json)
		json_end(fsck, code, why);
	tool_error("%s", why);
	return code;
}

/*
 * A volume that cannot be opened because of what it holds has a problem; one that cannot be opened for other
 * reasons was not checked.
 */
static int open_failed(struct fsck *fsck, int err, bool device)
{
	struct volume_options opts = { .no_recovery = true };
	char why[sizeof(fsck->tool.why)], text[sizeof(why) + 64];
	bool damaged = err == -EIO || err == -EUCLEAN || err == -EILSEQ;

	if (device || !damaged)
		return fail(fsck, EXIT_OPERATION, fsck->tool.why);
	memcpy(why, fsck->tool.why, sizeof(why));
	tool_close(&fsck->tool);
	if (tool_open(fsck->path, &opts, &fsck->tool, NULL))
		return fail(fsck, EXIT_PROBLEMS, why);
	fsck->log_problems = 1;
	snprintf(text, sizeof(text), "%s; the state before the log is checked instead", why);
	if (!fsck->json)
		printf("%s.\n", text);
	else
		tool_error("%s", text);
	return 0;
}

static int run(struct fsck *fsck)
{
	struct check_options opts = {
		.data = fsck->data, .all_groups = fsck->force,
		.problem = on_problem, .progress = on_progress, .ctx = fsck,
	};
	struct volume_options open_opts = { };
	char why[200];
	bool device;
	int err, code;

	if (fsck->json)
		printf("{\"problems\": [");
	err = tool_open(fsck->path, &open_opts, &fsck->tool, &device);
	code = err ? open_failed(fsck, err, device) : 0;
	if (code)
		return code;
	tell_start(fsck);
	err = volume_check(fsck->tool.vol, &opts, &fsck->result);
	progress_end(&fsck->progress);
	if (err) {
		snprintf(why, sizeof(why), "%.100s: the check could not be finished: %s.", fsck->path, strerror(-err));
		code = fail(fsck, EXIT_OPERATION | (fsck->result.problems ? EXIT_PROBLEMS : 0), why);
	} else {
		code = fsck->result.problems || fsck->log_problems ? EXIT_PROBLEMS : EXIT_CLEAN;
		if (fsck->json)
			json_end(fsck, code, NULL);
		else
			tell_end(fsck);
	}
	tool_close(&fsck->tool);
	return code;
}

/* 0, or an exit code. */
static int parse_option(struct fsck *fsck, int option, const char *value)
{
	switch (option) {
	case 'n':
	case 'p':
	case 'a':
		return 0;
	case 'y':
		fsck->repair = true;
		return 0;
	case 'f':
		fsck->force = true;
		return 0;
	case OPTION_DATA:
		fsck->data = true;
		return 0;
	case OPTION_JSON:
		fsck->json = true;
		return 0;
	case 'C':
		fsck->progress.always = true;
		return 0;
	case 'v':
		fsck->verbose = true;
		return 0;
	case 'l':
		if (parse_number(value, &fsck->limit))
			return 0;
		return tool_usage("\"%s\" is no number.", value);
	}
	fprintf(stderr, "Try 'fsck.tux3 --help'.\n");
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct fsck fsck = { .limit = PROBLEMS_TOLD };
	int option, ret;

	hold_standard_streams();
	tool_name = "fsck.tux3";
	while ((option = getopt_long(argc, argv, "npayfC::l:vVh", options, NULL)) != -1) {
		if (option == 'h') {
			fputs(help, stdout);
			return 0;
		}
		if (option == 'V') {
			printf("fsck.tux3 %s\n", tux3_version());
			return 0;
		}
		ret = parse_option(&fsck, option, optarg);
		if (ret)
			return ret;
	}
	if (optind == argc)
		return tool_usage("Which device or file?");
	if (optind + 1 < argc)
		return tool_usage("\"%s\" is one argument too many: one volume at a time.", argv[optind + 1]);
	fsck.path = argv[optind];
	signal(SIGINT, on_cancel);
	signal(SIGTERM, on_cancel);
	tool_log(fsck.verbose);
	ret = run(&fsck);
	if (fflush(stdout) || ferror(stdout)) {
		tool_error("The report could not be written: %s.", strerror(errno));
		return EXIT_OPERATION;
	}
	return ret;
}
