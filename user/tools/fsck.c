/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fsck.tux3: check a volume, and repair it (fsck_repair.c).
 *
 * The check is read-only: the log is replayed in memory, the image is not touched.  Only if it finds something, and if
 * that is wanted, the volume is opened for writing.  Exit codes are those of fsck(8).  What it cannot look at, it does not
 * call clean.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fsck.h"
#include "core/format/anchor.h"
#include "core/inode/path.h"
#include "user/env/streams.h"
#include "tux3.h"

#define PROBLEMS_TOLD 1000u
#define PATH_SHOWN	4096u		/* longer ones are not */
#define JSON_END_MAX	(16 * PATH_SHOWN)	/* two paths and a sentence, each byte of them six at worst, and numbers */

static const char help[] =
"fsck.tux3 [OPTION]... DEVICE|FILE\n"
"\n"
"Checks a Tux3 volume that is not mounted: tree, names, links, parent pointers, extents, free maps,\n"
"quota; and repairs it.  A volume that is clean is not written to: its log is replayed in memory.\n"
"\n"
"  -n, --no                 change nothing: so it is without an option, too\n"
"  -p, -a                   for boot scripts: repair if nothing is lost by it, else change nothing\n"
"  -y, --yes                repair all that can be; what has no place goes to lost+found\n"
"      --undo FILE          with -y or -p: save what is overwritten; tux3 undo FILE puts it back\n"
"      --search             with -y: where no anchor is left, search the whole device for the volume\n"
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
"  fsck.tux3 -y --undo before.undo disk.img\n"
"\n"
"Exit code 0: clean; 1: repaired; 4: problems left; 8: could not do it; 16: wrong use; 32: canceled;\n"
"5, 9 and 12 are sums.\n";

enum { OPTION_DATA = 256, OPTION_JSON, OPTION_UNDO, OPTION_SEARCH };

static const struct option options[] = {
	{ "no", no_argument, NULL, 'n' },
	{ "yes", no_argument, NULL, 'y' },
	{ "undo", required_argument, NULL, OPTION_UNDO },
	{ "search", no_argument, NULL, OPTION_SEARCH },
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

/* The end of a report as JSON if the repair is canceled, where nobody comes to an end any more. */
static char cancel_text[16 * PATH_SHOWN];
static volatile size_t cancel_len;

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

/* Where the report would be ended by whoever cancels: nothing of it is half there then. */
static void json_problem_whole(struct fsck *fsck, const struct check_problem *problem)
{
	fsck_block_signals(true);
	json_problem(fsck, problem);
	if (cancel_len)
		fflush(stdout);
	fsck_block_signals(false);
}

void fsck_on_problem(void *ctx, const struct check_problem *problem)
{
	struct fsck *fsck = ctx;

	progress_end(&fsck->progress);
	if (fsck->told < fsck->limit) {
		if (fsck->json)
			json_problem_whole(fsck, problem);
		else
			printf("%s: %s (%u): %s\n", fsck->path, problem->name, problem->code, problem->text);
	}
	fsck->told++;
}

static int on_problem(void *ctx, const struct check_problem *problem)
{
	fsck_on_problem(ctx, problem);
	return 0;
}

void fsck_on_progress(void *ctx, enum check_pass pass, u64 done, u64 total)
{
	struct fsck *fsck = ctx;

	progress_check(&fsck->progress, pass, done, total);
}

/* A report as JSON comes to an end: the check sees that it is to stop.  Who asks twice does not want that. */
static volatile sig_atomic_t ends_report, interrupted;

bool fsck_is_interrupted(void *ctx)
{
	return interrupted;
}

static void on_cancel(int signal)
{
	int state = fsck_repair_cancel();
	const char *text = state < 0 ? "\nfsck.tux3: the repair is being written, and is finished first.\n" :
			   state ? "\nfsck.tux3: canceled; the repair was written.\n" : "\nfsck.tux3: canceled; nothing was changed.\n";
	bool waits = (ends_report || state > 0) && !interrupted;	/* also to tell what the repair did */
	ssize_t ignored = write(STDERR_FILENO, text, strlen(text));

	(void)ignored;
	interrupted = 1;
	if (!state && !waits && cancel_len)
		ignored = write(STDOUT_FILENO, cancel_text, cancel_len);
	if (state >= 0 && !waits)
		_exit(EXIT_CANCELED | (state ? EXIT_CORRECTED : 0));
}

/* ---- what is printed besides problems ---- */

static u64 replayed(const struct fsck *fsck)
{
	return delta_counter(fsck->tool.vol, TUX3_COUNT_REPLAYED);
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

static void tell_clean(const struct fsck *fsck)
{
	const struct check_result *r = &fsck->result;

	if (r->anchor_copies == 1)
		printf("%s: the newest anchor has only one copy: the power failed before the other was written. The next mount writes it\n",
		       fsck->path);
	if (r->older_anchors_bad)
		printf("%s: the anchor before the newest is damaged, in %llu of its 2 copies: nobody needs it, and the next is written there\n",
		       fsck->path, r->older_anchors_bad);
	printf("%s: clean: %llu inode%s, %llu of %llu blocks in use%s\n", fsck->path, r->inodes,
	       r->inodes == 1 ? "" : "s", r->used_blocks, fsck->tool.vol->total_blocks,
	       fsck->data ? ", all data has the right checksums" : "");
}

/* Where what the note is of is now; NULL: nowhere. */
static const char *note_path(const struct fsck *fsck, const struct fsck_note *note, char *text, size_t size)
{
	return note->ino && fsck->tool.vol ? path_first(fsck->tool.vol, note->ino, text, size) : NULL;
}

static void tell_note(const struct fsck *fsck, const struct fsck_note *note, bool done)
{
	static const char *const words[REPAIR_KINDS] = { "put right", "brought back", "lost", "left" };
	char text[PATH_SHOWN], shown[4 * PATH_SHOWN + 8];
	const char *path = note_path(fsck, note, text, sizeof(text));
	struct show_buffer out;

	printf("%s: %s%s: %s", fsck->path, done ? "" : "would be ", words[note->kind], note->text);
	if (path) {
		show_init(&out, shown, sizeof(shown), false);
		show_bytes(&out, NULL, path, strlen(path));
		printf(" Path: %s.", shown);
	}
	putchar('\n');
}

/* done: it was carried out; else only what would be lost matters. */
static void tell_notes(const struct fsck *fsck, bool done)
{
	u64 i;

	for (i = 0; i < fsck->note_count; i++)
		if (done || fsck->notes[i].kind == REPAIR_LOST)
			tell_note(fsck, &fsck->notes[i], done);
	if (fsck->notes_missing)
		printf("%s: there was no memory to keep all that is to be said\n", fsck->path);
}

/* Also if something failed after it: what was lost is told in any case. */
static void tell_done(const struct fsck *fsck)
{
	const u64 *notes = fsck->repair.notes;
	char text[FORMAT_MAX];

	tell_notes(fsck, true);
	printf("%s: repaired: %llu put right, %llu brought back, %llu lost\n", fsck->path,
	       notes[REPAIR_MENDED], notes[REPAIR_FOUND], notes[REPAIR_LOST]);
	if (fsck->undo_path)
		printf("%s: tux3 undo %s%s %s puts back what was there before\n", fsck->path, fsck->undo_ended ? "" : "-f ",
		       fsck->undo_path, fsck->path);
	if (fsck->undo_unreadable_bytes)
		printf("%s: of that the device could not read %s: zeros come back for it\n", fsck->path,
		       format_size(text, sizeof(text), fsck->undo_unreadable_bytes));
}

static void tell_repair(const struct fsck *fsck, int code)
{
	if (fsck->repair.written)
		tell_done(fsck);
	else if (code == EXIT_PROBLEMS)
		tell_notes(fsck, false);
	if (fsck->left)
		printf("%s: %llu problem%s left%s\n", fsck->path, fsck->left, fsck->left == 1 ? " is" : "s are",
		       fsck->repair.written ? "" : "; nothing was changed");
	else
		tell_clean(fsck);
}

static void tell_end(const struct fsck *fsck, int code)
{
	if (fsck->tool.vol && fsck->verbose)
		tell_totals(fsck);
	if (fsck->told > fsck->limit)
		printf("%s: %llu more problems are not shown (--limit)\n", fsck->path, fsck->told - fsck->limit);
	if (fsck->tried)
		tell_repair(fsck, code);
	else if (fsck->problems)
		printf("%s: %llu problem%s found; nothing was changed; fsck.tux3 -y repairs\n", fsck->path, fsck->problems,
		       fsck->problems == 1 ? "" : "s");
	else
		tell_clean(fsck);
}

static void json_notes(const struct fsck *fsck)
{
	static const char *const kinds[REPAIR_KINDS] = { "mended", "found", "lost", "left" };
	char text[8 * PATH_SHOWN], name[PATH_SHOWN];
	struct show_buffer out;
	const char *path;
	u64 i;

	printf("], \"notes\": [");
	for (i = 0; i < fsck->note_count; i++) {
		path = note_path(fsck, &fsck->notes[i], name, sizeof(name));
		show_init(&out, text, sizeof(text), true);
		show_begin(&out, NULL);
		show_string(&out, "kind", kinds[fsck->notes[i].kind]);
		show_u64(&out, "inode", fsck->notes[i].ino);
		show_string(&out, "text", fsck->notes[i].text);
		if (path)
			show_bytes(&out, "path", path, strlen(path));
		show_end(&out);
		printf("%s\n    %s", i ? "," : "", text);
	}
	printf("%s", fsck->note_count ? "\n  " : "");
}

static void json_repair(const struct fsck *fsck, struct show_buffer *out)
{
	show_bool(out, "written", fsck->repair.written);
	show_u64(out, "left", fsck->left);
	show_u64(out, "mended", fsck->repair.notes[REPAIR_MENDED]);
	show_u64(out, "found", fsck->repair.notes[REPAIR_FOUND]);
	show_u64(out, "lost", fsck->repair.notes[REPAIR_LOST]);
	show_u64(out, "leaves_found", fsck->repair.leaves);
	if (!fsck->undo_path || !fsck->repair.written)
		return;
	show_string(out, "undo_file", fsck->undo_path);
	show_u64(out, "undo_unreadable_bytes", fsck->undo_unreadable_bytes);
}

static void json_end(const struct fsck *fsck, int code, const char *failure)
{
	const struct check_result *r = &fsck->result;
	char text[JSON_END_MAX];
	struct show_buffer out;

	show_init(&out, text, sizeof(text), true);
	show_begin(&out, NULL);
	show_string(&out, "image", fsck->path);
	show_bool(&out, "clean", code == EXIT_CLEAN || code == EXIT_CORRECTED);
	show_u64(&out, "exit", code);
	show_bool(&out, "interrupted", code & EXIT_CANCELED);
	if (failure)
		show_string(&out, "failure", failure);
	if (fsck->tool.vol) {
		show_u64(&out, "replayed_deltas", replayed(fsck));
		show_u64(&out, "delta", fsck->tool.vol->delta.committed);
		show_u64(&out, "block_size", fsck->tool.vol->block_size);
		show_u64(&out, "total_blocks", fsck->tool.vol->total_blocks);
	}
	show_u64(&out, "problem_count", max(fsck->problems, fsck->told));
	if (fsck->mode != FSCK_CHECK)
		json_repair(fsck, &out);
#define FIELD(name) show_u64(&out, #name, r->name)
	FIELD(inodes); FIELD(files); FIELD(directories); FIELD(symlinks); FIELD(others);
	FIELD(names); FIELD(orphans); FIELD(xattrs);
	FIELD(nodes); FIELD(items); FIELD(extents);
	FIELD(data_blocks); FIELD(unwritten_blocks); FIELD(used_blocks); FIELD(free_blocks); FIELD(log_blocks);
	FIELD(groups_read); FIELD(tree_height); FIELD(anchor_copies); FIELD(older_anchors_bad);
#undef FIELD
	show_end(&out);
	printf("%s", min(fsck->told, fsck->limit) ? "\n  " : "");
	if (fsck->mode != FSCK_CHECK)
		json_notes(fsck);
	printf("], \"summary\": %s}\n", text);
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
 * reasons was not checked.  0: it is open without its log; else an exit code, and a sentence in why.
 */
static int open_failed(struct fsck *fsck, int err, bool device, char *why, size_t why_size)
{
	struct volume_options opts = { .no_recovery = true };
	bool damaged = err == -EIO || err == -EUCLEAN || err == -EILSEQ || (fsck->search && err == -EINVAL);
	char text[sizeof(fsck->tool.why) + 64];

	snprintf(why, why_size, "%s", fsck->tool.why);
	if (!device && err == -EINVAL && !fsck->search) {	/* no anchor, or no volume at all */
		size_t len = strlen(why);

		snprintf(why + len, why_size - len, "; if there was one, fsck.tux3 -y --search looks for what is left of it");
	}
	if (device || !damaged)
		return EXIT_OPERATION;
	fsck_tell_cut(fsck->path, why, why_size);
	fsck->problems = 1;
	tool_close(&fsck->tool);
	if (tool_open(fsck->path, &opts, &fsck->tool, NULL))
		return EXIT_PROBLEMS;
	snprintf(text, sizeof(text), "%.511s; the state before the log is checked instead", why);
	if (!fsck->json)
		printf("%s.\n", text);
	else
		tool_error("%s", text);
	return 0;
}

/* An exit code.  With EXIT_OPERATION, and if it cannot be opened, a sentence in why; else that is empty. */
static int check(struct fsck *fsck, char *why, size_t why_size)
{
	struct check_options opts = {
		.data = fsck->data, .all_groups = fsck->force,
		.problem = on_problem, .progress = fsck_on_progress, .stopped = fsck_is_interrupted, .ctx = fsck,
	};
	struct volume_options open_opts = { };
	bool device;
	int err, code;

	err = tool_open(fsck->path, &open_opts, &fsck->tool, &device);
	code = err ? open_failed(fsck, err, device, why, why_size) : 0;
	if (code)
		return code;
	why[0] = 0;
	tell_start(fsck);
	err = volume_check(fsck->tool.vol, &opts, &fsck->result);
	progress_end(&fsck->progress);
	fsck->problems += fsck->result.problems;
	code = fsck->problems ? EXIT_PROBLEMS : EXIT_CLEAN;
	if (err == -ECANCELED) {
		snprintf(why, why_size, "%.100s: the check was interrupted.", fsck->path);
		return code | EXIT_CANCELED;
	}
	if (err)
		snprintf(why, why_size, "%.100s: the check could not be finished: %s.", fsck->path, strerror(-err));
	return err ? code | EXIT_OPERATION : code;
}

/* Of a repair that is canceled before it is written. */
static void json_prepare_cancel(const struct fsck *fsck)
{
	struct show_buffer out;
	size_t len;

	fflush(stdout);
	len = scnprintf(cancel_text, sizeof(cancel_text), "\n  ], \"notes\": [], \"summary\": ");
	show_init(&out, cancel_text + len, sizeof(cancel_text) - len - 3, true);
	show_begin(&out, NULL);
	show_string(&out, "image", fsck->path);
	show_bool(&out, "clean", false);
	show_u64(&out, "exit", EXIT_CANCELED);
	show_bool(&out, "interrupted", true);
	show_string(&out, "failure", "the repair was canceled; nothing was changed");
	show_u64(&out, "problem_count", max(fsck->problems, fsck->told));
	show_bool(&out, "written", false);
	show_u64(&out, "left", fsck->problems);
	show_end(&out);
	strcat(cancel_text, "}\n");
	cancel_len = strlen(cancel_text);
}

/* After the check.  It may have been interrupted where nobody asked any more. */
static int repair(struct fsck *fsck, char *why, size_t why_size)
{
	int code;

	tool_close(&fsck->tool);
	if (fsck->json)
		json_prepare_cancel(fsck);
	ends_report = false;
	if (!interrupted) {
		code = fsck_repair(fsck, why, why_size);
		ends_report = fsck->json;
		cancel_len = 0;
		return code;
	}
	cancel_len = 0;
	snprintf(why, why_size, "%.100s: the repair was not begun", fsck->path);
	return EXIT_PROBLEMS | EXIT_CANCELED;
}

/* Can it be made?  Better told now than after the check, which may take hours. */
static int try_undo(const struct fsck *fsck, char *why, size_t why_size)
{
	int fd;

	if (!fsck->undo_path)
		return 0;
	fd = open(fsck->undo_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		snprintf(why, why_size, "the undo file %s cannot be made: %s; nothing was checked", fsck->undo_path, strerror(errno));
		return EXIT_OPERATION;
	}
	close(fd);
	unlink(fsck->undo_path);
	return 0;
}

static int run(struct fsck *fsck)
{
	char why[1024] = "";
	int code;

	ends_report = fsck->json;
	if (fsck->json)
		printf("{\"problems\": [");
	code = try_undo(fsck, why, sizeof(why));
	if (!code)
		code = check(fsck, why, sizeof(why));
	if (code == EXIT_PROBLEMS && fsck->mode != FSCK_CHECK) {
		if (why[0] && !fsck->json)
			printf("%s.\n", why);
		why[0] = 0;
		code = repair(fsck, why, sizeof(why));
	}
	if (code & (EXIT_OPERATION | EXIT_CANCELED) || (why[0] && !fsck->tried)) {
		if (fsck->repair.written && !fsck->json)
			tell_done(fsck);
		fail(fsck, code, why);
	} else {
		if (fsck->json)
			json_end(fsck, code, why[0] ? why : NULL);
		else
			tell_end(fsck, code);
		if (why[0])
			tool_error("%s: %s; fsck.tux3 -y repairs all the same", fsck->path, why);
	}
	tool_close(&fsck->tool);
	fsck_repair_free(fsck);
	return code;
}

/* One of -n, -p and -y. */
static int set_mode(struct fsck *fsck, int option)
{
	enum fsck_mode mode = option == 'n' ? FSCK_CHECK : option == 'y' ? FSCK_ALL : FSCK_SAFE;

	if (fsck->mode_given && mode != fsck->mode)
		return tool_usage("Of -n, -p (or -a) and -y there can be only one.");
	fsck->mode = mode;
	fsck->mode_given = true;
	return 0;
}

/* 0, or an exit code. */
static int parse_option(struct fsck *fsck, int option, const char *value)
{
	switch (option) {
	case 'n':
	case 'p':
	case 'a':
	case 'y':
		return set_mode(fsck, option);
	case OPTION_UNDO:
		fsck->undo_path = value;
		return 0;
	case OPTION_SEARCH:
		fsck->search = true;
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

static int check_undo_path(const struct fsck *fsck)
{
	int ret;

	if (!fsck->undo_path)
		return 0;
	if (fsck->mode == FSCK_CHECK)
		return tool_usage("--undo goes with -y or -p: nothing is changed without them.");
	ret = tool_check_output(fsck->undo_path, fsck->path, true);
	if (ret)
		return ret == EXIT_USAGE ? ret : EXIT_OPERATION;
	if (!access(fsck->undo_path, F_OK))
		return tool_usage("%s exists already: choose another name for the undo file.", fsck->undo_path);
	return 0;
}

int main(int argc, char **argv)
{
	struct fsck fsck = { .limit = PROBLEMS_TOLD };
	int option, ret;

	hold_standard_streams();
	tool_name = "fsck.tux3";
	while ((option = getopt_long(argc, argv, "npayfC::l:vVh", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(help, EXIT_OPERATION);
		if (option == 'V') {
			printf("fsck.tux3 %s\n", tux3_version());
			return tool_tell("", EXIT_OPERATION);
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
	if (fsck.search && fsck.mode != FSCK_ALL)
		return tool_usage("--search goes with -y: what it finds is not all that there was.");
	ret = check_undo_path(&fsck);
	if (ret)
		return ret;
	signal(SIGINT, on_cancel);
	signal(SIGTERM, on_cancel);
	if (signal(SIGHUP, on_cancel) == SIG_IGN)
		signal(SIGHUP, SIG_IGN);
	if (fsck.mode != FSCK_CHECK)	/* who reads the report has no say in what becomes of the volume */
		signal(SIGPIPE, SIG_IGN);
	tool_log(fsck.verbose);
	ret = run(&fsck);
	if (fflush(stdout) || ferror(stdout)) {
		tool_error("The report could not be written: %s.", strerror(errno));
		ret |= EXIT_OPERATION;
	}
	return ret;
}
