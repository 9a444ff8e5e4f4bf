/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Damaged volumes, repaired: whatever was done to the structure of a volume, after repair it is whole, and of use to the last file.
 *
 * From each seed follow a volume (volumes.c) and damage to it (damage.c).  What is demanded then, each within a limit of CPU time:
 *
 *	check		comes to an end, and writes nothing
 *	abuse		every other one is mounted as it is, read, changed and committed: with errors at worst; and the mount takes
 *			little memory, and reads no more than a few times what there is
 *	repair		succeeds; the safe one loses nothing, or else has written nothing
 *	check		finds nothing, but contents of files that are damaged; a second repair has nothing to do
 *	use		it can be mounted; each file has a path, and can be read, or has an error there; files are changed and made,
 *			and all is committed, or left as a crash leaves it; and then the check finds nothing
 *	empty it	each file can be deleted; and then there is nothing, and nothing is wrong, with data too
 *
 * A volume of which no anchor is left is given up: to search for it is for users to ask for.
 *
 * Each seed is a process of its own, which its parent waits for: one that dies or does not end is reported with the command that
 * repeats it, as is one that does not get what is demanded.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "damage.h"
#include "support_fuzz.h"
#include "volumes.h"
#include "core/check/check.h"
#include "core/delta/delta.h"
#include "core/format/anchor.h"
#include "core/open.h"
#include "core/repair/repair.h"
#include "user/env/clock.h"
#include "user/env/fault.h"
#include "user/env/log.h"

/* A step takes a second or two; it took minutes where one was quadratic. */
#ifdef __SANITIZE_ADDRESS__
#define STEP_SECONDS	60u		/* of CPU */
#else
#define STEP_SECONDS	20u
#endif
#define WAIT_SECONDS	600u		/* a seed that waits for ever uses no CPU */
#define DEPTH_MAX	60u
#define PIECES_MAX	200u		/* of a file that are read */
#define NEW_FILES	20u
#define PROBLEMS_SHOWN	20u
#define ABUSED_MAX	300u		/* names */
#define MEMORY_MAX	(256l << 20)	/* of a mount */
#define READS_MAX	4u		/* times the device, likewise */

enum { SEED_PASSED, SEED_FAILED, SEED_GIVEN_UP };	/* exit status of its process */

/* What the process of a seed is at: its parent sees it, too. */
static const char *volatile *current_step;

static void step(const char *name)
{
	struct itimerval limit = { .it_value.tv_sec = STEP_SECONDS };

	*current_step = name;
	setitimer(ITIMER_PROF, &limit, NULL);
}

static void __printf(2, 3) demand(bool holds, const char *form, ...)
{
	va_list arguments;

	if (holds)
		return;
	printf("%s: ", *current_step);
	va_start(arguments, form);
	vprintf(form, arguments);
	va_end(arguments);
	printf("\n");
	_exit(SEED_FAILED);
}

/* ---- check and repair ---- */

static int tell_problem(void *ctx, const struct check_problem *problem)
{
	trial_say(ctx, "problem: %s\n", problem->text);
	return 0;
}

static int count_problem(void *ctx, const struct check_problem *problem)
{
	printf("%s\n", problem->text);
	return ++*(u32 *)ctx > PROBLEMS_SHOWN;
}

/* Contents that are damaged stay so. */
static int count_but_contents(void *ctx, const struct check_problem *problem)
{
	if (problem->code == CHECK_DATA_CSUM || problem->code == CHECK_DATA_READ || problem->code == CHECK_XATTR_VALUE)
		return 0;
	return count_problem(ctx, problem);
}

static void demand_silence(struct trial *trial, const char *when, struct check_result *result,
			   int (*problem)(void *ctx, const struct check_problem *problem))
{
	struct volume_options opts = { .manual = true, .read_only = true };
	u32 problems = 0;
	struct check_options check = { .data = true, .all_groups = true, .problem = problem, .ctx = &problems };
	struct volume *vol;
	char why[512];
	int err;

	step(when);
	err = volume_open(trial->bed.dev, NULL, &opts, &vol, why, sizeof(why));
	demand(!err, "it cannot be opened: %d, %s", err, why);
	err = volume_check(vol, &check, result);
	demand(!err && !problems, "%u problems, %d", problems, err);
	volume_close(vol);
}

/* One that is where it belongs: both copies of it may have changed places. */
static bool has_anchor(struct trial *trial)
{
	const u64 offsets[] = { TUX3_ANCHOR_STRIDE, 2 * TUX3_ANCHOR_STRIDE, trial->bytes - 2 * TUX3_ANCHOR_STRIDE,
				trial->bytes - TUX3_ANCHOR_STRIDE };
	char why[512];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(offsets); i++)
		if (!anchor_check((const void *)(trial_block(trial, 0) + offsets[i]), offsets[i], why, sizeof(why)))
			return true;
	return false;
}

/* As fsck.tux3 -n.  false: there is no volume any more. */
static bool check_damaged(struct trial *trial)
{
	struct volume_options opts = { .manual = true, .read_only = true };
	struct check_options check = { .problem = tell_problem, .ctx = trial };
	struct check_result result;
	struct volume *vol;
	char why[512];
	int err = volume_open(trial->bed.dev, NULL, &opts, &vol, why, sizeof(why));

	if (!err) {
		err = volume_check(vol, &check, &result);
		demand(!err, "the check could not: %d", err);
		volume_close(vol);
		return true;
	}
	trial_say(trial, "open: %d, %s\n", err, why);
	if (err == -EINVAL || err == -EOPNOTSUPP || !has_anchor(trial))
		return false;
	demand(err == -EIO || err == -EUCLEAN || err == -EILSEQ, "fsck.tux3 would not go on: %d, %s", err, why);
	opts.no_recovery = true;
	if (!volume_open(trial->bed.dev, NULL, &opts, &vol, why, sizeof(why))) {
		volume_check(vol, &check, &result);
		volume_close(vol);
	}
	return true;
}

static bool first_check(struct trial *trial)
{
	u8 *before = trial_copy(trial);
	bool volume;

	step("check");
	volume = check_damaged(trial);
	demand(!memcmp(before, trial_block(trial, 0), trial->bytes), "the check wrote");
	free(before);
	return volume;
}

static void tell_note(void *ctx, const struct repair_note *note)
{
	static const char *const kinds[REPAIR_KINDS] = { "mended", "found", "lost", "left" };

	trial_say(ctx, "%s: %s\n", kinds[note->kind], note->text);
}

static void repair_safely(struct trial *trial)
{
	struct repair_options opts = { .safe = true, .note = tell_note, .ctx = trial };
	struct repair_result result = {};
	u8 *before = trial_copy(trial);
	char why[512];
	int err;

	step("safe repair");
	err = volume_repair(trial->bed.dev, &opts, &result, why, sizeof(why));
	demand(err || !result.notes[REPAIR_LOST], "something was lost");
	demand(!err || !memcmp(before, trial_block(trial, 0), trial->bytes), "it failed with %d, but wrote", err);
	free(before);
}

static void repair(struct trial *trial)
{
	struct repair_options opts = { .note = tell_note, .ctx = trial };
	struct repair_result result = {};
	struct check_result check;
	char why[512] = "";
	int err;

	step("repair");
	err = volume_repair(trial->bed.dev, &opts, &result, why, sizeof(why));
	demand(!err, "it could not: %d, %s", err, why);
	demand(!result.notes[REPAIR_LEFT], "problems are left");
	demand_silence(trial, "check after repair", &check, count_but_contents);
	step("second repair");
	err = volume_repair(trial->bed.dev, &opts, &result, why, sizeof(why));
	demand(!err && !result.written, "it wrote, or %d, %s", err, why);
}

/* ---- use ---- */

struct names {
	char (*name)[256];
	u32 count, room;
};

static int take_name(void *ctx, const struct tux3_dirent *entry)
{
	struct names *names = ctx;

	if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
		return 0;
	if (names->count == names->room) {
		names->room = names->room ? 2 * names->room : 64;
		names->name = realloc(names->name, names->room * sizeof(*names->name));
		assert_non_null(names->name);
	}
	strcpy(names->name[names->count++], entry->name);
	return 0;
}

static void read_data(struct trial *trial, struct tux3_node *node, u64 size)
{
	static u8 data[1u << 20];
	u64 offset = 0;
	ssize_t len;
	int64_t at;
	u32 i;

	for (i = 0; i < PIECES_MAX && offset < size; i++) {
		at = tux3_seek(node, offset, SEEK_DATA);
		if (at < 0) {
			demand(at == -ENXIO, "seek of inode %llu: %lld", (unsigned long long)tux3_node_ino(node), (long long)at);
			return;
		}
		len = tux3_read(node, data, sizeof(data), at);
		demand(len > 0 || len == -EIO, "read of inode %llu: %zd", (unsigned long long)tux3_node_ino(node), len);
		offset = len < 0 ? at + trial->block_size : at + len;
	}
}

static void read_node(struct trial *trial, struct tux3_node *dir, const char *name, struct tux3_node *node)
{
	static char text[65536], value[65536];
	struct tux3_parent_cursor cursor = {};
	struct tux3_stat stat;
	ssize_t len, at;
	int err = tux3_stat_node(node, &stat);

	demand(!err, "stat of %s: %d", name, err);
	err = tux3_path_of(trial->bed.volume, stat.ino, 0, &cursor, text, sizeof(text));
	demand(err > 0, "path of inode %llu: %d", (unsigned long long)stat.ino, err);
	if (S_ISREG(stat.mode))
		read_data(trial, node, stat.size);
	else if (S_ISLNK(stat.mode))
		tux3_readlink(node, text, sizeof(text));
	len = tux3_listxattr(node, text, sizeof(text));
	for (at = 0; at < len; at += strlen(text + at) + 1)
		tux3_getxattr(node, text + at, value, sizeof(value));
}

static void change_node(struct trial *trial, struct tux3_node *dir, const char *name, struct tux3_node *node)
{
	u32 how = below(trial, 4), blocks = 1 + below(trial, 10);
	int err = 0;

	if (!S_ISREG(tux3_node_mode(node)) || one_in(trial, 3))
		return;
	switch (how) {
	case 0:
		err = tux3_write(node, "xyz", 3, below(trial, 20000));
		break;
	case 1:
		err = tux3_truncate(node, below(trial, 100000));
		break;
	case 2:
		err = tux3_setxattr(node, NULL, "user.new", "v", 1, 0);
		break;
	default:
		err = tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (u64)below(trial, 10) * trial->block_size,
				     (u64)blocks * trial->block_size);
	}
	/* Full, lost, of a size that leaves no room, immutable, of a user at his limit. */
	demand(err >= 0 || err == -ENOSPC || err == -EIO || err == -EFBIG || err == -EPERM || err == -EDQUOT,
	       "change %u of %s, inode %llu: %d", how, name, (unsigned long long)tux3_node_ino(node), err);
}

/* So that nothing keeps it. */
static void clear_flags(struct tux3_node *node)
{
	struct tux3_stat stat = {};

	tux3_setattr(node, NULL, &stat, TUX3_SET_FLAGS);
}

/* The root stays: what has been forged for it takes blocks, too. */
static void remove_xattrs(struct tux3_node *node)
{
	static char list[65536];
	ssize_t size = tux3_listxattr(node, list, sizeof(list));
	const char *name;
	int err;

	demand(size >= 0, "its extended attributes cannot be listed: %zd", size);
	for (name = list; name < list + size; name += strlen(name) + 1) {
		err = tux3_removexattr(node, NULL, name);
		demand(!err, "removal of %s: %d", name, err);
	}
}

static int remove_name(struct tux3_node *dir, const char *name, bool is_dir)
{
	return is_dir ? tux3_rmdir(dir, NULL, name) : tux3_unlink(dir, NULL, name);
}

typedef void (*visit_fn)(struct trial *trial, struct tux3_node *dir, const char *name, struct tux3_node *node);

/* fn for each name below a directory, parents first; or, NULL: each is removed. */
static void walk(struct trial *trial, struct tux3_node *dir, u32 depth, visit_fn fn)
{
	struct names names = {};
	struct tux3_node *node;
	uint64_t cookie = 0;
	int err = tux3_readdir(dir, &cookie, take_name, &names);
	u32 i;

	demand(!err, "readdir of inode %llu: %d", (unsigned long long)tux3_node_ino(dir), err);
	demand(depth <= DEPTH_MAX, "directories are in each other");
	for (i = 0; i < names.count; i++) {
		const char *name = names.name[i];
		bool is_dir;

		err = tux3_lookup(dir, NULL, name, &node);
		demand(!err, "lookup of %s in inode %llu: %d", name, (unsigned long long)tux3_node_ino(dir), err);
		is_dir = S_ISDIR(tux3_node_mode(node));
		if (fn)
			fn(trial, dir, name, node);
		else
			clear_flags(node);
		if (is_dir)
			walk(trial, node, depth + 1, fn);
		tux3_node_put(node, 1);
		if (fn)
			continue;
		err = remove_name(dir, name, is_dir);
		if (err == -ENOSPC && !tux3_sync(trial->bed.volume))
			err = remove_name(dir, name, is_dir);
		demand(!err, "removal of %s from inode %llu: %d", name, (unsigned long long)tux3_node_ino(dir), err);
	}
	free(names.name);
}

static void bulkstat(struct trial *trial)
{
	static struct tux3_stat stats[64];
	uint64_t ino = 0;
	int got;

	do
		got = tux3_bulkstat(trial->bed.volume, &ino, stats, ARRAY_SIZE(stats));
	while (got > 0);
	demand(!got, "bulkstat: %d", got);
}

static void make_files(struct trial *trial)
{
	struct tux3_node *node;
	char path[40];
	u32 i;
	int err;

	for (i = 0; i < NEW_FILES; i++) {
		snprintf(path, sizeof(path), "/new dir/file %u", i);
		err = tux3_path(trial->bed.volume, NULL, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node);
		demand(!err || err == -ENOSPC, "a new file: %d", err);
		if (err)
			continue;
		trial_write(trial, node, 1 + below(trial, 20000), 0);
		tux3_node_put(node, 1);
	}
}

static void sync_volume(struct trial *trial)
{
	int err = tux3_sync(trial->bed.volume);

	demand(!err, "sync: %d", err);
}

static void use(struct trial *trial)
{
	struct bed *bed = &trial->bed;
	struct check_result check;

	bed->opts = (struct volume_options){ .manual = true, .verify = true };
	bed->data_cache_bytes = 4u << 20;
	step("mount and read");
	bed_open(bed);
	walk(trial, bed->root, 0, read_node);
	bulkstat(trial);
	step("change");
	walk(trial, bed->root, 0, change_node);
	clear_flags(bed->root);
	make_files(trial);
	sync_volume(trial);
	if (one_in(trial, 3))
		delta_commit_unify(tux3_core(bed->volume));
	if (one_in(trial, 2))
		tux3_abandon(bed->volume);
	else
		bed_close(bed);
	demand_silence(trial, "check after use", &check, count_but_contents);
}

static void empty(struct trial *trial)
{
	struct bed *bed = &trial->bed;
	struct check_result check;

	step("mount and remove");
	bed_open(bed);
	clear_flags(bed->root);
	remove_xattrs(bed->root);
	walk(trial, bed->root, 0, NULL);
	sync_volume(trial);
	bed_close(bed);
	demand_silence(trial, "check of nothing", &check, count_problem);
	demand(check.inodes == 1 && !check.data_blocks, "empty, it has %llu inodes, %llu blocks of data",
	       (unsigned long long)check.inodes, (unsigned long long)check.data_blocks);
}

/* ---- use of what is not repaired ---- */

/* All that users do, with each of up to so many names; whatever comes back. */
static void abuse_node(struct trial *trial, struct tux3_node *dir, const char *name, struct tux3_node *node)
{
	static char bytes[1u << 18], list[65536];
	struct tux3_parent_cursor cursor = {};
	u64 size = (u64)trial->block_size * (1 + below(trial, 12)), at = (u64)below(trial, 1000) * 1000;
	const char *attr;
	ssize_t len;

	tux3_path_of(trial->bed.volume, tux3_node_ino(node), 0, &cursor, list, sizeof(list));
	tux3_read(node, bytes, sizeof(bytes), one_in(trial, 2) ? 0 : at);
	tux3_readlink(node, bytes, sizeof(bytes));
	len = tux3_listxattr(node, list, sizeof(list));
	for (attr = list; len > 0 && attr < list + len; attr += strlen(attr) + 1)
		if (tux3_getxattr(node, attr, bytes, sizeof(bytes)) >= 0 && one_in(trial, 3))
			tux3_removexattr(node, NULL, attr);
	switch (below(trial, 9)) {
	case 0:
		tux3_write(node, bytes, min_t(u64, size, sizeof(bytes)), one_in(trial, 2) ? 0 : at);
		break;
	case 1:
		tux3_truncate(node, at);
		break;
	case 2:
		tux3_setxattr(node, NULL, "user.abuse", bytes, below(trial, 20000), 0);
		break;
	case 3:
		tux3_fallocate(node, below(trial, 4) & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE), at, size);
		break;
	case 4:
		tux3_rename(dir, name, trial->bed.root, "renamed", 0, NULL);
		break;
	case 5:
		tux3_link(node, NULL, trial->bed.root, "linked");
		break;
	case 6:
		tux3_fsync(node, false);
		break;
	default:
		clear_flags(node);
		remove_name(dir, name, S_ISDIR(tux3_node_mode(node)));
	}
}

static void abuse_below(struct trial *trial, struct tux3_node *dir, u32 depth, u32 *left)
{
	struct names names = {};
	struct tux3_node *node;
	uint64_t cookie = 0;
	u32 i;

	tux3_readdir(dir, &cookie, take_name, &names);
	for (i = 0; i < names.count && *left; i++) {
		if (tux3_lookup(dir, NULL, names.name[i], &node))
			continue;
		--*left;
		if (S_ISDIR(tux3_node_mode(node)) && depth < DEPTH_MAX)
			abuse_below(trial, node, depth + 1, left);
		abuse_node(trial, dir, names.name[i], node);
		tux3_node_put(node, 1);
	}
	free(names.name);
}

/* Somebody mounts it as it is, and goes on. */
static void abuse(struct trial *trial)
{
	struct volume_options opts = { .manual = true, .fsync = one_in(trial, 2) ? TUX3_FSYNC_AHEAD : TUX3_FSYNC_FULL };
	u64 bytes = atomic64_read(&trial->bed.dev->read_bytes);
	u32 left = ABUSED_MAX, turns = 1 + below(trial, 3), i;
	struct bed *bed = &trial->bed;
	char why[512];
	int err;

	step("mount what is damaged");
	opts.accept_last = one_in(trial, 4);
	opts.cut_log = one_in(trial, 4);
	env_memory_count(true);
	err = tux3_open_device(bed->dev, false, &opts, 4u << 20, &bed->volume, why, sizeof(why));
	demand(env_memory_peak() < MEMORY_MAX, "it took %ld bytes of memory", env_memory_peak());
	env_memory_count(false);
	bytes = atomic64_read(&trial->bed.dev->read_bytes) - bytes;
	demand(bytes < READS_MAX * trial->bytes, "it read %llu bytes of %llu", (unsigned long long)bytes,
	       (unsigned long long)trial->bytes);
	if (err)
		return;
	step("use what is damaged");
	bed->root = tux3_root(bed->volume);
	for (i = 0; i < turns; i++) {
		abuse_below(trial, bed->root, 0, &left);
		tux3_sync(bed->volume);
		if (one_in(trial, 2))
			delta_commit_unify(tux3_core(bed->volume));
	}
	tux3_node_put(bed->root, 1);
	if (one_in(trial, 2))
		tux3_abandon(bed->volume);
	else
		tux3_close(bed->volume);
	step("check after that");
	check_damaged(trial);
}

/* ---- a seed ---- */

static int run_seed(u64 seed, bool verbose)
{
	struct trial trial = { .seed = seed, .random = seed, .verbose = verbose };
	bool volume;
	u32 i;

	env_set_clock(fixed_time);
	env_set_random_seed(seed + 1);
	if (!verbose)
		env_set_log(log_nothing);
	step("making the volume");
	volumes_make(&trial);
	step("damaging it");
	damage_volume(&trial);
	for (i = 0; i < STAGES; i++)
		free(trial.stage[i]);
	volume = first_check(&trial);
	if (volume && one_in(&trial, 2))
		abuse(&trial);
	if (volume) {
		if (one_in(&trial, 3))
			repair_safely(&trial);
		repair(&trial);
		use(&trial);
		empty(&trial);
	}
	trial.bed.dev->ops->close(trial.bed.dev);
	return volume ? SEED_PASSED : SEED_GIVEN_UP;
}

/* In a process of its own.  Its status, as wait() tells it. */
static int try_seed(u64 seed, bool verbose)
{
	pid_t child = fork();
	int status = -1;

	if (!child) {
		alarm(WAIT_SECONDS);
		exit(run_seed(seed, verbose));
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return status;
}

/* What ended it, if that was not demand(). */
static void tell_failure(const char *program, u64 seed, int status)
{
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
		printf("%s: more than %u seconds of CPU\n", *current_step, STEP_SECONDS);
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		printf("%s: not done after %u seconds\n", *current_step, WAIT_SECONDS);
	else if (!WIFEXITED(status) || WEXITSTATUS(status) != SEED_FAILED)
		printf("%s: %s\n", *current_step, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "it has ended");
	printf("FAILED: repeat with %s --seed %llu --seeds 1 --verbose\n", program, (unsigned long long)seed);
}

static int usage(const char *program)
{
	printf("%s [--seconds N] [--seed S] [--seeds N] [--verbose]\n"
	       "\n"
	       "Repairs damaged volumes, and uses them.  Without options, for 10 seconds from a seed that changes.\n"
	       "\n"
	       "  %s --seconds 300\n"
	       "  %s --seed 4711 --seeds 1 --verbose    repeat one seed, with messages\n", program, program, program);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "seed", required_argument, NULL, 'S' },
		{ "seeds", required_argument, NULL, 'n' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	u64 seconds = 0, first = time(NULL) * 1000000ull, seeds = 0, seed, failed = 0, given_up = 0, begun;
	bool verbose = false;
	int option, status;

	while ((option = getopt_long(argc, argv, "s:S:n:vh", options, NULL)) != -1) {
		if (option == 'h' || option == '?')
			return usage(argv[0]);
		if (option == 'v')
			verbose = true;
		else
			*(option == 's' ? &seconds : option == 'S' ? &first : &seeds) = strtoull(optarg, NULL, 0);
	}
	if (!seconds && !seeds)
		seconds = 10;
	setvbuf(stdout, NULL, _IOLBF, 0);
	current_step = mmap(NULL, sizeof(*current_step), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (current_step == MAP_FAILED) {
		printf("there is no memory\n");
		return 1;
	}
	printf("volumes damaged and repaired, from seed %llu on\n", (unsigned long long)first);
	begun = seconds_now();
	for (seed = first; (!seeds || seed - first < seeds) && (!seconds || seconds_now() - begun < seconds); seed++) {
		status = try_seed(seed, verbose);
		if (WIFEXITED(status) && WEXITSTATUS(status) == SEED_GIVEN_UP) {
			given_up++;
		} else if (status) {
			failed++;
			tell_failure(argv[0], seed, status);
		}
	}
	printf("%llu passed, %llu failed in %llu s; %llu had no anchor any more\n", (unsigned long long)(seed - first - failed),
	       (unsigned long long)failed, (unsigned long long)(seconds_now() - begun), (unsigned long long)given_up);
	return failed ? 1 : 0;
}
