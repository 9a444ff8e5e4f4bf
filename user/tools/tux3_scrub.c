/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 scrub: read all that a volume has on its device, and verify it, portion by portion.
 *
 * An image is opened here; of a mounted volume the module, or tux3-fuse, is asked by an ioctl.  Between two portions the tool
 * sleeps, as the rate asks for, tells how far it is, and saves where it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "commands.h"
#include "tux3_scrub.h"
#include "tux3.h"
#include "core/options.h"
#include "core/scrub/scrub.h"

const char scrub_help[] =
"tux3 scrub IMAGE|DEVICE|MOUNTPOINT [OPTION]...\n"
"\n"
"Reads the anchors, the log, all free maps, all tree nodes and all data of a volume from its device and\n"
"verifies them: checksums, addresses, order.  A mounted volume stays in use meanwhile; nothing is\n"
"written.  What is damaged is told with its path.  Of a mounted volume then names, links, counts, quotas and\n"
"free maps are compared, as they all are at one moment; of an image that is done by fsck.tux3.\n"
"\n"
"  --rate SIZE              read no more than so much in a second: 100M\n"
"  --state FILE             save there how far it came; if it is there, go on from there\n"
"      --no-check           do not compare names, links, counts\n"
"  -C, --progress           show progress even if stderr is not a terminal\n"
"  -j, --json               the result as JSON\n"
"\n"
"Examples:\n"
"  tux3 scrub /mnt\n"
"  tux3 scrub /mnt --rate 50M --state /var/lib/tux3-scrub.mnt\n"
"  tux3 scrub disk.img --json | jq '.problems[].path'\n"
"\n"
"Exit code 0: clean; 4: problems found; 8: could not do it; 16: wrong use; 32: interrupted (4, 8 and 32\n"
"are added).\n";

#define PORTION_BYTES	(8u << 20)
#define PORTION_LEAST	(64u << 10)
#define SAVE_EVERY_NS	10000000000ull

/* What is kept in the state file. */
struct totals {
	u64 nodes, maps, log_blocks, blocks, bytes_read, bytes_done, problems;
};

struct run {
	const char *path, *state_path;
	u64 rate;
	bool json, resumed;
	int fd;				/* of a mount point, or -1 */
	struct tool_volume tool;	/* of an image */
	struct tux3_ioc_scrub *scrub;
	struct totals totals;
	u64 told;			/* problems, by this process */
	bool no_check;
	struct scrub_check check;
	u64 started_ns, started_bytes, saved_ns;
	struct progress progress;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
	interrupted = 1;
}

static void catch_interrupts(void)
{
	struct sigaction action = { .sa_handler = on_interrupt };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

/* ---- the state file: lines of a name and a value ---- */

#define TOTALS(X) X(nodes) X(maps) X(log_blocks) X(blocks) X(bytes_read) X(bytes_done) X(problems)

static bool load_cursor(struct run *run, const char *text)
{
	unsigned int i, value;

	if (strspn(text, "0123456789abcdef") != 2 * TUX3_SCRUB_CURSOR || text[2 * TUX3_SCRUB_CURSOR])
		return false;
	for (i = 0; i < TUX3_SCRUB_CURSOR && sscanf(text + 2 * i, "%2x", &value) == 1; i++)
		run->scrub->cursor[i] = value;
	return i == TUX3_SCRUB_CURSOR;
}

/* 0: go on from there, or there is none; else an exit code. */
static int load_state(struct run *run)
{
	FILE *file = run->state_path ? fopen(run->state_path, "re") : NULL;
	char line[128], value[96], name[24];
	bool cursor = false;

	if (!file && run->state_path && errno != ENOENT) {
		tool_error("%s cannot be read: %s.", run->state_path, strerror(errno));
		return EXIT_OPERATION;
	}
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%23s %95s", name, value) != 2)
			break;
		if (!strcmp(name, "cursor"))
			cursor = load_cursor(run, value);
#define X(field) else if (!strcmp(name, #field)) run->totals.field = strtoull(value, NULL, 10);
		TOTALS(X)
#undef X
	}
	fclose(file);
	run->resumed = cursor;
	if (cursor)
		return 0;
	tool_error("%s is not what tux3 scrub has saved: remove it, or name another file.", run->state_path);
	return EXIT_OPERATION;
}

static bool write_state(const struct run *run, FILE *file)
{
	unsigned int i;

	fprintf(file, "cursor ");
	for (i = 0; i < TUX3_SCRUB_CURSOR; i++)
		fprintf(file, "%02x", run->scrub->cursor[i]);
	fprintf(file, "\n");
#define X(field) fprintf(file, #field " %llu\n", (unsigned long long)run->totals.field);
	TOTALS(X)
#undef X
	return !fflush(file) && !ferror(file) && !fsync(fileno(file));
}

/* To a new file beside it, which is path then; mode: of fopen(3).  false: errno. */
static bool write_beside(const struct run *run, const char *mode, char *path, size_t size)
{
	FILE *file;
	bool good;

	snprintf(path, size, "%.4090s.new", run->state_path);
	file = fopen(path, mode);
	good = file && write_state(run, file);
	if (file && fclose(file))
		good = false;
	return good;
}

/* 0, or an exit code: it was said why. */
static int save_state(struct run *run)
{
	char path[4096];

	if (!run->state_path)
		return 0;
	run->saved_ns = ktime_get_ns();
	if (write_beside(run, "we", path, sizeof(path)) && !rename(path, run->state_path))
		return 0;
	tool_error("%s cannot be written: %s.", run->state_path, strerror(errno));
	return EXIT_OPERATION;
}

/* Before hours of work: can it be saved?  What is there is left as it is.  0, or an exit code. */
static int try_state(const struct run *run)
{
	const char *why = NULL;
	char path[4096];
	struct stat st;

	if (!run->state_path)
		return 0;
	if (!stat(run->state_path, &st) && !S_ISREG(st.st_mode)) {
		why = "it is no regular file";
	} else if (write_beside(run, "wxe", path, sizeof(path))) {
		unlink(path);
	} else if (errno != EEXIST) {
		why = strerror(errno);
		unlink(path);
	} else if (access(path, W_OK)) {		/* of a run that was killed: saving writes over it */
		why = strerror(errno);
	}
	if (!why)
		return 0;
	tool_error("%s cannot be written: %s. Nothing was verified.", run->state_path, why);
	return EXIT_OPERATION;
}

/* ---- opening ---- */

static int open_mounted(struct run *run)
{
	run->fd = open(run->path, O_RDONLY | O_CLOEXEC);
	if (run->fd >= 0)
		return 0;
	tool_error("%s cannot be opened: %s.", run->path, strerror(errno));
	return EXIT_OPERATION;
}

static int open_source(struct run *run)
{
	struct volume_options opts = { };
	struct stat st;

	run->fd = -1;
	if (!stat(run->path, &st) && S_ISDIR(st.st_mode))
		return open_mounted(run);
	if (!tool_open(run->path, &opts, &run->tool, NULL))
		return 0;
	tool_error("%s.", run->tool.why);
	return EXIT_OPERATION;
}

static int next_portion(struct run *run)
{
	if (run->fd < 0)
		return volume_scrub(run->tool.vol, run->scrub);
	return ioctl(run->fd, TUX3_IOC_SCRUB, run->scrub) ? -errno : 0;
}

/* ---- problems ---- */

static const char *kind_of(u32 kind, bool words)
{
	switch (kind) {
#define X(number, NAME, name, what) case number: return words ? what : name;
	TUX3_SCRUB_KINDS(X)
#undef X
	}
	return "something that this program does not know";
}

/* Where it is in what it is of. */
static void print_place(const struct tux3_ioc_scrub_problem *problem)
{
	char shown[4 * TUX3_SCRUB_PATH + 8];
	struct show_buffer out;

	if (problem->path[0]) {
		show_init(&out, shown, sizeof(shown), false);
		show_bytes(&out, NULL, problem->path, strlen(problem->path));
		printf(" of %s", shown);
	}
	if (problem->kind == TUX3_SCRUB_NODE && problem->ino != problem->ino_last)
		printf(" of level %llu, with inodes from %llu to %llu", (unsigned long long)problem->offset,
		       (unsigned long long)problem->ino, (unsigned long long)problem->ino_last);
	else if (problem->ino)
		printf(" (inode %llu)", (unsigned long long)problem->ino);
	if (problem->kind == TUX3_SCRUB_DATA)
		printf(" at byte %llu", (unsigned long long)problem->offset);
	else if (problem->kind == TUX3_SCRUB_MAP)
		printf(" of group %llu", (unsigned long long)problem->offset);
	printf(", %llu block%s at block %llu: ", (unsigned long long)problem->count, problem->count == 1 ? "" : "s",
	       (unsigned long long)problem->addr);
}

static void print_json_problem(const struct run *run, const struct tux3_ioc_scrub_problem *problem)
{
	char text[8192];
	struct show_buffer out;

	show_init(&out, text, sizeof(text), true);
	show_begin(&out, NULL);
	show_string(&out, "kind", kind_of(problem->kind, false));
	show_bool(&out, "unreadable", problem->flags & TUX3_SCRUB_UNREADABLE);
	show_u64(&out, "inode", problem->ino);
	if (problem->kind == TUX3_SCRUB_NODE) {
		show_u64(&out, "last_inode", problem->ino_last);
		show_u64(&out, "level", problem->offset);
	} else if (problem->kind == TUX3_SCRUB_MAP) {
		show_u64(&out, "group", problem->offset);
	} else if (problem->kind == TUX3_SCRUB_DATA) {
		show_u64(&out, "offset", problem->offset);
	}
	show_u64(&out, "block", problem->addr);
	show_u64(&out, "blocks", problem->count);
	if (problem->path[0])
		show_bytes(&out, "path", problem->path, strlen(problem->path));
	show_string(&out, "text", problem->why);
	show_end(&out);
	printf("%s\n    %s", run->told ? "," : "", text);
}

static void tell_problems(struct run *run)
{
	u32 i;

	if (run->scrub->problem_count)
		progress_end(&run->progress);
	for (i = 0; i < min_t(u32, run->scrub->problem_count, TUX3_SCRUB_PROBLEMS); i++, run->told++) {
		struct tux3_ioc_scrub_problem *problem = &run->scrub->problem[i];

		problem->why[sizeof(problem->why) - 1] = problem->path[sizeof(problem->path) - 1] = 0;
		if (run->json) {
			print_json_problem(run, problem);
			continue;
		}
		printf("%s: %s", run->path, kind_of(problem->kind, true));
		print_place(problem);
		printf("%s\n", problem->why);
	}
	fflush(stdout);
}

static void tell_checked_json(const struct run *run, const struct held_problem *held)
{
	const struct check_problem *problem = &held->problem;
	char text[6 * 4096 + 1024];	/* a path, each byte of it as \\u00.. */
	struct show_buffer out;

	show_init(&out, text, sizeof(text), true);
	show_begin(&out, NULL);
	show_string(&out, "kind", "check");
	show_u64(&out, "code", problem->code);
	show_string(&out, "name", problem->name);
	show_u64(&out, "inode", problem->ino);
	show_u64(&out, "block", problem->addr);
	if (held->path)
		show_bytes(&out, "path", held->path, strlen(held->path));
	show_string(&out, "text", problem->text);
	show_end(&out);
	printf("%s\n    %s", run->told ? "," : "", text);
}

static void tell_checked(struct run *run)
{
	const struct held_check *held = &run->check.held;
	char shown[4 * 4096 + 8];
	struct show_buffer out;
	u32 i;

	for (i = 0; i < held->count; i++, run->told++) {
		const struct check_problem *problem = &held->problems[i].problem;

		if (run->json) {
			tell_checked_json(run, &held->problems[i]);
			continue;
		}
		printf("%s: %s (%u): %s", run->path, problem->name, problem->code, problem->text);
		if (held->problems[i].path) {
			show_init(&out, shown, sizeof(shown), false);
			show_bytes(&out, NULL, held->problems[i].path, strlen(held->problems[i].path));
			printf(" Path: %s.", shown);
		}
		putchar('\n');
	}
	if (!run->json && held->result.problems > held->count)
		printf("%s: %llu more problems are not shown\n", run->path, held->result.problems - held->count);
	run->told += held->result.problems - held->count;
	run->totals.problems += held->result.problems;
}

/* ---- the end ---- */

static void tell_end(const struct run *run, bool over, int code)
{
	const struct totals *totals = &run->totals;
	const struct check_result *checked = &run->check.held.result;
	char size[FORMAT_MAX], text[6 * 4096 + 1024], compared[120] = "";	/* a path, each byte of it as \\u00.. */
	struct show_buffer out;

	if (run->check.done)
		snprintf(compared, sizeof(compared), "; %llu inodes compared with %llu names", checked->inodes, checked->names);
	if (run->check.done && checked->groups_changed)
		snprintf(compared + strlen(compared), sizeof(compared) - strlen(compared), " (%llu free maps had changed)",
			 checked->groups_changed);
	if (!run->json) {
		format_size(size, sizeof(size), totals->bytes_read);
		printf("%s: %s: %s read; %llu nodes and anchors, %llu free maps, %llu blocks of log, %llu of data%s; %llu problem%s%s\n",
		       run->path, over ? totals->problems ? "damaged" : "clean" : "not finished", size, totals->nodes, totals->maps,
		       totals->log_blocks, totals->blocks, compared,
		       totals->problems, totals->problems == 1 ? "" : "s",
		       totals->problems > run->told ? ", some of them told before" : "");
		return;
	}
	show_init(&out, text, sizeof(text), true);
	show_begin(&out, NULL);
	show_string(&out, "volume", run->path);
	show_bool(&out, "finished", over);
	show_bool(&out, "resumed", run->resumed);
	show_bool(&out, "clean", over && !totals->problems);
	show_u64(&out, "exit", code);
	show_bool(&out, "compared", run->check.done);
	if (run->check.done) {
		show_u64(&out, "inodes", checked->inodes);
		show_u64(&out, "names", checked->names);
		show_u64(&out, "maps_changed", checked->groups_changed);
	}
#define X(field) show_u64(&out, #field, totals->field);
	TOTALS(X)
#undef X
	show_end(&out);
	printf("%s], \"summary\": %s}\n", run->told ? "\n  " : "", text);
}

static void tell_failure(const struct run *run, int err)
{
	switch (err) {
	case -EINVAL:
		if (run->resumed) {
			tool_error("%s is not what tux3 scrub has saved: remove it, or name another file.", run->state_path);
			break;
		}
		fallthrough;
	case -ENOTTY:
		tool_error("%s is not on a mounted Tux3 volume that knows how to scrub.", run->path);
		break;
	case -ESTALE:
		tool_error("%s is of another volume than %s.", run->state_path, run->path);
		break;
	case -EPERM:
		tool_error("%s: only root may do that, or who mounted it with tux3-fuse.", run->path);
		break;
	case -EIO:
		tool_error("%s has stopped because of an error, or cannot be asked: see the messages of the kernel, or of tux3-fuse.",
			   run->path);
		break;
	default:
		tool_error("%s could not be read: %s.", run->path, strerror(-err));
	}
}

/* ---- going on ---- */

static void add_portion(struct run *run)
{
	const struct tux3_ioc_scrub *scrub = run->scrub;
	struct totals *totals = &run->totals;

	totals->nodes += scrub->nodes;
	totals->maps += scrub->maps;
	totals->log_blocks += scrub->log_blocks;
	totals->blocks += scrub->blocks;
	totals->bytes_read += scrub->bytes_read;
	totals->bytes_done += scrub->bytes_done;
	totals->problems += scrub->problem_count;
}

static u64 portion_bytes(const struct run *run)
{
	return run->rate ? clamp_t(u64, run->rate / 8, PORTION_LEAST, PORTION_BYTES) : PORTION_BYTES;
}

/* *over: all was read.  0, or an exit code. */
static int scrub_all(struct run *run, bool *over)
{
	int err;

	run->started_ns = run->saved_ns = ktime_get_ns();
	run->started_bytes = run->totals.bytes_read;
	while (!*over && !interrupted) {
		run->scrub->budget_bytes = portion_bytes(run);
		run->scrub->flags = 0;
		err = next_portion(run);
		if (err == -EINTR)
			continue;
		if (err) {
			progress_end(&run->progress);
			tell_failure(run, err);
			return EXIT_OPERATION;
		}
		add_portion(run);
		tell_problems(run);
		*over = run->scrub->flags & TUX3_SCRUB_OVER;
		progress_tell(&run->progress, "Verifying", *over ? 1 : run->totals.bytes_done, *over ? 1 : run->scrub->bytes_all);
		if (ktime_get_ns() - run->saved_ns > SAVE_EVERY_NS && save_state(run))
			return EXIT_OPERATION;
		if (run->rate && !*over)
			scrub_keep_rate(run->rate, run->totals.bytes_read - run->started_bytes, run->started_ns, &interrupted);
	}
	progress_end(&run->progress);
	return interrupted && !*over ? EXIT_CANCELED : 0;
}

/* Names, links and counts, of what is mounted.  An exit code. */
static int compare(struct run *run)
{
	struct scrub_check *check = &run->check;
	int code;

	check->path = run->path;
	check->fd = run->fd;
	check->rate = run->rate;
	check->progress = &run->progress;
	check->held.stop = &interrupted;
	check->held.wait = true;
	code = scrub_check(check);
	if (check->done)
		tell_checked(run);
	held_check_free(&check->held);
	return code;
}

static int run_scrub(struct run *run)
{
	bool over = false;
	int code, compared = 0;

	if (run->json)
		printf("{\"problems\": [");
	code = scrub_all(run, &over);
	if (over && run->fd >= 0 && !run->no_check)
		compared = compare(run);
	over = over && !(compared & (EXIT_CANCELED | EXIT_OPERATION));
	code |= compared;
	if (over && run->state_path)
		unlink(run->state_path);
	else if ((compared || !(code & EXIT_OPERATION)) && save_state(run))
		code |= EXIT_OPERATION;
	if (run->totals.problems)
		code |= EXIT_PROBLEMS;
	tell_end(run, over, code);
	return code;
}

static int scrub_command(struct run *run)
{
	int code;

	run->scrub = calloc(1, sizeof(*run->scrub));
	if (!run->scrub) {
		tool_error("Out of memory.");
		return EXIT_OPERATION;
	}
	code = try_state(run);
	if (!code)
		code = load_state(run);
	if (!code)
		code = open_source(run);
	if (!code) {
		catch_interrupts();
		code = run_scrub(run);
	}
	if (run->fd >= 0)
		close(run->fd);
	tool_close(&run->tool);
	free(run->scrub);
	if (fflush(stdout) || ferror(stdout)) {
		tool_error("The report could not be written: %s.", strerror(errno));
		return EXIT_OPERATION;
	}
	return code;
}

int command_scrub(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rate", required_argument, NULL, 'r' },
		{ "state", required_argument, NULL, 's' },
		{ "no-check", no_argument, NULL, 'n' },
		{ "progress", no_argument, NULL, 'C' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	struct run run = { .fd = -1 };
	int option;

	while ((option = getopt_long(argc, argv, "Cjh", options, NULL)) != -1) {
		switch (option) {
		case 'h':
			return tool_tell(scrub_help, EXIT_OPERATION);
		case 'r':
			if (size_parse(optarg, &run.rate) || !run.rate)
				return tool_usage("\"%s\" is no rate.", optarg);
			break;
		case 's':
			run.state_path = optarg;
			break;
		case 'n':
			run.no_check = true;
			break;
		case 'C':
			run.progress.always = true;
			break;
		case 'j':
			run.json = true;
			break;
		default:
			return tool_usage("See tux3 help scrub.");
		}
	}
	if (argc - optind != 1)
		return tool_usage("Which image or mount point?");
	run.path = argv[optind];
	tool_log(false);
	return scrub_command(&run);
}
