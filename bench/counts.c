// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What operations cost in writes, by the volume's counters: what a delta takes back costs nothing.
 *
 * Each case runs some operations, commits them as one delta (the volume has no thread of its own, so nothing
 * else commits) and looks at what the commit wrote.  A line for each; exit status 1 if one is not as it must be.
 *
 *	counts IMAGE		IMAGE is made anew
 */
#include <stdbool.h>
#include <unistd.h>

#include "bench.h"

#define FILES 1000
#define FILE_BYTES 8192		/* too long to be kept inline */
#define FILE_BLOCKS 2
#define DELTA_FLUSHES 2		/* at most: one, and one more when much data goes first */
#define VOLUME_BYTES (8ull << 30)	/* sparse; so large that no delta is closed because space is tight */

static const char *const names[] = {
	"deltas", "deltas_empty", "data_blocks", "log_blocks", "records", "node_blocks", "map_blocks", "anchor_blocks",
	"flushes", "inodes_committed", "inodes_vanished", "names_vanished",
};

enum { DELTAS, DELTAS_EMPTY, DATA_BLOCKS, LOG_BLOCKS, RECORDS, NODE_BLOCKS, MAP_BLOCKS, ANCHOR_BLOCKS, FLUSHES,
       INODES_COMMITTED, INODES_VANISHED, NAMES_VANISHED, COUNTERS };

struct counts {
	uint64_t of[COUNTERS];
};

static struct tux3 *volume;
static struct tux3_node *root;
static unsigned int passed, failed;

static struct counts counts_now(void)
{
	struct counts counts;

	for (int i = 0; i < COUNTERS; i++)
		counts.of[i] = counter(volume, names[i]);
	return counts;
}

static uint64_t blocks_written(const struct counts *counts)
{
	return counts->of[DATA_BLOCKS] + counts->of[LOG_BLOCKS] + counts->of[NODE_BLOCKS] + counts->of[MAP_BLOCKS] +
		counts->of[ANCHOR_BLOCKS];
}

/* What action and its commit added to the counters. */
static struct counts cost_of(void (*action)(struct tux3_node *dir), struct tux3_node *dir)
{
	struct counts before, after;

	must(tux3_sync(volume), "sync");
	before = counts_now();
	action(dir);
	must(tux3_sync(volume), "sync");
	after = counts_now();
	for (int i = 0; i < COUNTERS; i++)
		after.of[i] -= before.of[i];
	return after;
}

static void check(bool good, const char *what, const struct counts *cost)
{
	printf("%-6s %s: data %llu, log %llu, nodes %llu, maps %llu, anchors %llu blocks; %llu flushes, %llu records\n",
	       good ? "ok" : "FAILED", what, (unsigned long long)cost->of[DATA_BLOCKS],
	       (unsigned long long)cost->of[LOG_BLOCKS], (unsigned long long)cost->of[NODE_BLOCKS],
	       (unsigned long long)cost->of[MAP_BLOCKS], (unsigned long long)cost->of[ANCHOR_BLOCKS],
	       (unsigned long long)cost->of[FLUSHES], (unsigned long long)cost->of[RECORDS]);
	if (good)
		passed++;
	else
		failed++;
}

/* ---- actions ---- */

static void nothing(struct tux3_node *dir)
{
}

static void make_files(struct tux3_node *dir)
{
	static char data[FILE_BYTES];
	struct tux3_node *node;
	char name[32];

	memset(data, 'x', sizeof(data));
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "file%d", i);
		must(tux3_mknod(dir, NULL, name, S_IFREG | 0644, 0, 0, &node), "create");
		must(tux3_write(node, data, sizeof(data), 0), "write");
		tux3_node_put(node, 1);
	}
}

static void remove_files(struct tux3_node *dir)
{
	char name[32];

	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "file%d", i);
		must(tux3_unlink(dir, NULL, name), "unlink");
	}
}

static void make_and_remove_files(struct tux3_node *dir)
{
	make_files(dir);
	remove_files(dir);
}

static void make_and_remove_one(struct tux3_node *dir)
{
	struct tux3_node *node;

	must(tux3_mknod(dir, NULL, "one", S_IFREG | 0644, 0, 0, &node), "create");
	tux3_node_put(node, 1);
	must(tux3_unlink(dir, NULL, "one"), "unlink");
}

static void rename_around(struct tux3_node *dir)
{
	make_files(dir);
	for (int i = 0; i < FILES; i++) {
		char from[32], to[32];

		snprintf(from, sizeof(from), "file%d", i);
		snprintf(to, sizeof(to), "other%d", i);
		must(tux3_rename(dir, from, dir, to, 0, NULL), "rename");
		must(tux3_rename(dir, to, dir, from, 0, NULL), "rename");
	}
	remove_files(dir);
}

static void make_and_remove_tree(struct tux3_node *dir)
{
	struct tux3_node *sub;

	must(tux3_mknod(dir, NULL, "sub", S_IFDIR | 0755, 0, 0, &sub), "mkdir");
	make_and_remove_files(sub);
	tux3_node_put(sub, 1);
	must(tux3_rmdir(dir, NULL, "sub"), "rmdir");
}

static void unnamed_file(struct tux3_node *dir)
{
	static char data[1 << 20];
	struct tux3_node *node;

	must(tux3_tmpfile(dir, NULL, 0600, &node), "tmpfile");
	must(tux3_write(node, data, sizeof(data), 0), "write");
	tux3_node_put(node, 1);
}

static void overwrite_often(struct tux3_node *dir)
{
	struct tux3_node *node;
	char data[4096];

	must(tux3_lookup(dir, NULL, "file0", &node), "lookup");
	for (int i = 0; i < 100; i++) {
		memset(data, 'a' + i % 26, sizeof(data));
		must(tux3_write(node, data, sizeof(data), 0), "write");
	}
	tux3_node_put(node, 1);
}

static int take_entry(void *ctx, const struct tux3_dirent *entry)
{
	return 0;
}

static void read_everything(struct tux3_node *dir)
{
	struct tux3_node *node;
	struct tux3_stat stat;
	uint64_t cookie = 0;
	char data[4096], name[32];

	must(tux3_readdir(dir, &cookie, take_entry, NULL), "readdir");
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "file%d", i);
		must(tux3_lookup(dir, NULL, name, &node), "lookup");
		must(tux3_stat_node(node, &stat), "stat");
		must(tux3_read(node, data, sizeof(data), 0), "read");
		tux3_node_put(node, 1);
		if (tux3_lookup(dir, NULL, "absent", &node) != -ENOENT)
			die("A file was found that is not there.");
	}
}

/* ---- cases ---- */

/* The times of the directory did change: that is one inode in one log block, however many files came and went. */
static bool only_the_directory(const struct counts *cost)
{
	return blocks_written(cost) == cost->of[LOG_BLOCKS] && cost->of[LOG_BLOCKS] <= 1 &&
		cost->of[INODES_COMMITTED] <= 1 && cost->of[FLUSHES] <= 1;
}

static void check_idle(struct tux3_node *dir)
{
	struct counts cost = cost_of(nothing, dir);

	check(!blocks_written(&cost) && !cost.of[FLUSHES], "sync of nothing: no write, no flush", &cost);
}

static void check_vanished(struct tux3_node *dir)
{
	struct counts one, many, cost;

	one = cost_of(make_and_remove_one, dir);
	check(only_the_directory(&one) && one.of[INODES_VANISHED] == 1,
	      "1 file made and removed in one delta: only the directory's times", &one);
	many = cost_of(make_and_remove_files, dir);
	check(only_the_directory(&many) && many.of[INODES_VANISHED] == FILES && many.of[NAMES_VANISHED] == FILES,
	      "1000 files of 8 KiB made and removed in one delta: only the directory's times", &many);
	check(blocks_written(&one) == blocks_written(&many) && one.of[RECORDS] == many.of[RECORDS] &&
	      one.of[FLUSHES] == many.of[FLUSHES], "so each of them cost no write, no record, no flush", &many);
	cost = cost_of(rename_around, dir);
	check(only_the_directory(&cost) && cost.of[INODES_VANISHED] == FILES,
	      "the same, and each renamed twice between: the same", &cost);
	cost = cost_of(make_and_remove_tree, dir);
	check(only_the_directory(&cost) && cost.of[INODES_VANISHED] == FILES + 1 && cost.of[NAMES_VANISHED] == FILES + 1,
	      "the same in a directory that is made and removed with them: the same", &cost);
	cost = cost_of(unnamed_file, dir);
	check(!blocks_written(&cost) && !cost.of[FLUSHES] && cost.of[INODES_VANISHED] == 1,
	      "a file of 1 MiB that never had a name: no write, no flush", &cost);
}

static void check_kept(struct tux3_node *dir)
{
	struct counts cost = cost_of(make_files, dir);

	check(cost.of[DATA_BLOCKS] == FILES * FILE_BLOCKS && !cost.of[NODE_BLOCKS] && !cost.of[MAP_BLOCKS] &&
	      !cost.of[ANCHOR_BLOCKS] && cost.of[FLUSHES] <= DELTA_FLUSHES && cost.of[INODES_VANISHED] == 0,
	      "1000 files of 8 KiB kept: their data and log, no tree node, map or anchor", &cost);
	cost = cost_of(overwrite_often, dir);
	check(cost.of[DATA_BLOCKS] == 1 && cost.of[LOG_BLOCKS] == 1 && blocks_written(&cost) == 2 && cost.of[FLUSHES] == 1,
	      "a block written 100 times in one delta: 1 data block, 1 log block, 1 flush", &cost);
	/* Times are as coarse as the kernel's tick: what is read in that of its last change is read "for the first time" twice. */
	usleep(20000);
	cost = cost_of(read_everything, dir);
	check(blocks_written(&cost) == cost.of[LOG_BLOCKS] && cost.of[RECORDS] <= FILES + 1,
	      "listing and reading them all for the first time: the log of their access times", &cost);
	cost = cost_of(read_everything, dir);
	check(!blocks_written(&cost) && !cost.of[FLUSHES], "listing and reading them again: no write, no flush", &cost);
	cost = cost_of(remove_files, dir);
	check(!cost.of[DATA_BLOCKS] && !cost.of[NODE_BLOCKS] && !cost.of[MAP_BLOCKS] && !cost.of[ANCHOR_BLOCKS] &&
	      cost.of[INODES_VANISHED] == 0, "removing them in a later delta: only log", &cost);
}

int main(int argc, char **argv)
{
	struct tux3_options options = { .manual = true, .age_ms = 3600000, .log_blocks = 1000000 };
	struct tux3_node *dir;

	if (argc != 2)
		die("Usage: counts IMAGE");
	must_format(argv[1], VOLUME_BYTES);
	volume = must_open(argv[1], &options);
	root = tux3_root(volume);
	must(tux3_mknod(root, NULL, "dir", S_IFDIR | 0755, 0, 0, &dir), "mkdir");
	check_idle(dir);
	check_vanished(dir);
	check_kept(dir);
	check_vanished(dir);
	check_idle(dir);
	tux3_node_put(dir, 1);
	tux3_node_put(root, 1);
	must(tux3_close(volume), "close");
	printf("%u passed, %u failed\n", passed, failed);
	return failed ? 1 : 0;
}
