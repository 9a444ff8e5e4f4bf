// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A volume with many files through libtux3: how long, and how much memory at the peak.
 *
 *	memory create IMAGE DIRECTORIES FILES_EACH	the volume is there already
 *	memory list IMAGE				walk all of it and stat everything
 *
 * Prints a line: what, files, seconds to open, seconds in all, peak memory in bytes.
 */
#include <stdbool.h>

#include "bench.h"

static struct tux3 *volume;

static void create_in(struct tux3_node *dir, uint64_t count)
{
	struct tux3_node *node;
	char name[32];

	for (uint64_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "file%llu", (unsigned long long)i);
		must(tux3_mknod(dir, NULL, name, S_IFREG | 0644, 0, 0, &node), "create");
		/* A little in each: it goes inline into the tree. */
		must(tux3_write(node, name, strlen(name), 0), "write");
		tux3_node_put(node, 1);
	}
}

static uint64_t create(uint64_t directories, uint64_t files_each)
{
	struct tux3_node *root = tux3_root(volume), *dir;
	char name[32];

	for (uint64_t i = 0; i < directories; i++) {
		snprintf(name, sizeof(name), "dir%llu", (unsigned long long)i);
		must(tux3_mknod(root, NULL, name, S_IFDIR | 0755, 0, 0, &dir), "mkdir");
		create_in(dir, files_each);
		tux3_node_put(dir, 1);
	}
	tux3_node_put(root, 1);
	must(tux3_sync(volume), "sync");
	return directories * files_each;
}

struct listing {
	struct tux3_node *dir;
	uint64_t files;
};

static int list_entry(void *ctx, const struct tux3_dirent *entry);

static void list(struct tux3_node *dir, uint64_t *files)
{
	struct listing listing = { .dir = dir };
	uint64_t cookie = 0;

	must(tux3_readdir(dir, &cookie, list_entry, &listing), "readdir");
	*files += listing.files;
}

static int list_entry(void *ctx, const struct tux3_dirent *entry)
{
	struct listing *listing = ctx;
	struct tux3_node *node;
	struct tux3_stat stat;

	if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
		return 0;
	must(tux3_lookup(listing->dir, NULL, entry->name, &node), "lookup");
	must(tux3_stat_node(node, &stat), "stat");
	if (S_ISDIR(stat.mode))
		list(node, &listing->files);
	else
		listing->files++;
	tux3_node_put(node, 1);
	return 0;
}

int main(int argc, char **argv)
{
	struct tux3_options options = { 0 };
	struct tux3_node *root;
	uint64_t begun = now_ns(), files = 0;
	double open_seconds;

	if (argc < 3)
		die("Usage: memory create IMAGE DIRECTORIES FILES_EACH | memory list IMAGE");
	volume = must_open(argv[2], &options);
	open_seconds = seconds_since(begun);
	if (!strcmp(argv[1], "create") && argc == 5) {
		files = create(strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
	} else {
		root = tux3_root(volume);
		list(root, &files);
		tux3_node_put(root, 1);
	}
	must(tux3_close(volume), "close");
	printf("%s %llu %.3f %.3f %llu\n", argv[1], (unsigned long long)files, open_seconds, seconds_since(begun),
	       (unsigned long long)peak_memory_bytes());
	return 0;
}
