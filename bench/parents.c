// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What parent pointers cost: files made and removed, all inodes listed, mail delivered.  One thread calls libtux3, the
 * volume's own thread commits.  The time of each phase ends when all of it is durable.
 *
 *	parents IMAGE FILES DIRECTORIES MAILS		IMAGE is made anew
 *
 * create		FILES empty files in DIRECTORIES directories, one directory after the other
 * bulkstat warm	all inodes of the volume
 * bulkstat cold	the same after the volume was opened anew
 * unlink cold		all files in the order in which they were made, after the volume was opened anew
 * unlink warm		the same, of files that were just made
 * deliver		MAILS files of 16 KiB, made in one directory and written in pieces of 778 bytes, then renamed into another
 * remove		these, the last names of files with contents
 *
 * A line for each as phases.h says.  And "used": blocks of the volume with the empty files, the tree's.
 */
#include "phases.h"

#define MAIL_BYTES (16u << 10)
#define PIECE 778u

static const char *const phase_counters[PHASE_COUNTERS] = {
	"log_bytes", "deltas", "data_blocks", "log_blocks", "node_blocks", "flushes", "records", "unifies",
};

static void bulkstat(const char *what, uint64_t expected)
{
	static struct tux3_stat stats[1024];
	struct moment from = begin();
	uint64_t ino = 0, found = 0;
	int64_t n;

	while ((n = must(tux3_bulkstat(volume, &ino, stats, 1024), "bulkstat")))
		found += n;
	if (found != expected)
		die("bulkstat found %llu inodes instead of %llu.", (unsigned long long)found, (unsigned long long)expected);
	end(what, found, &from);
}

static void deliver(uint64_t mails)
{
	struct tux3_node *tmp = directory("tmp"), *box = directory("new"), *node;
	static char data[PIECE];
	struct moment from;
	char name[32];

	memset(data, 'x', sizeof(data));
	from = begin();
	for (uint64_t i = 0; i < mails; i++) {
		snprintf(name, sizeof(name), "mail%llu", (unsigned long long)i);
		must(tux3_mknod(tmp, NULL, name, S_IFREG | 0600, 0, 0, &node), "create");
		for (uint32_t at = 0; at < MAIL_BYTES; at += PIECE)
			must(tux3_append(node, data, at + PIECE < MAIL_BYTES ? PIECE : MAIL_BYTES - at), "append");
		tux3_node_put(node, 1);
		must(tux3_rename(tmp, name, box, name, 0, NULL), "rename");
	}
	end("deliver", mails, &from);
	from = begin();
	for (uint64_t i = 0; i < mails; i++) {
		snprintf(name, sizeof(name), "mail%llu", (unsigned long long)i);
		must(tux3_unlink(box, NULL, name), "unlink");
	}
	end("remove", mails, &from);
	tux3_node_put(tmp, 1);
	tux3_node_put(box, 1);
}

static void open_anew(const char *image, const struct tux3_options *options)
{
	must(tux3_close(volume), "close");
	volume = must_open(image, options);
}

int main(int argc, char **argv)
{
	struct tux3_options options = { 0 };
	struct tux3_statfs statfs;
	uint64_t files, directories;

	if (argc != 5)
		die("Usage: parents IMAGE FILES DIRECTORIES MAILS");
	files = strtoull(argv[2], NULL, 10);
	directories = strtoull(argv[3], NULL, 10);
	must_format(argv[1], VOLUME_BYTES);
	volume = must_open(argv[1], &options);
	create_or_unlink("create", files, directories, true);
	bulkstat("bulkstat-warm", files + directories + 1);
	open_anew(argv[1], &options);
	must(tux3_statfs(volume, &statfs), "statfs");
	printf("used %llu\n", (unsigned long long)(statfs.blocks - statfs.free_blocks));
	bulkstat("bulkstat-cold", files + directories + 1);
	open_anew(argv[1], &options);
	create_or_unlink("unlink-cold", files, directories, false);
	create_or_unlink("create-again", files, directories, true);
	create_or_unlink("unlink-warm", files, directories, false);
	deliver(strtoull(argv[4], NULL, 10));
	must(tux3_close(volume), "close");
	return 0;
}
