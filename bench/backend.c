// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * How much the back end gets done when the front end never stops: one thread makes changes as fast as it may, the volume's
 * own thread commits them.  The time of each phase ends when all of it is durable.
 *
 *	backend IMAGE FILES DIRECTORIES MIB OVERWRITES		IMAGE is made anew
 *
 * create	FILES empty files in DIRECTORIES directories, one directory after the other
 * unlink	the same files, in the order in which they were made
 * overwrite	OVERWRITES blocks of 4 KiB at random places of a file of MIB MiB, written before that
 *
 * A line for each as phases.h says.
 */
#include "phases.h"

#define BLOCK 4096u

static const char *const phase_counters[PHASE_COUNTERS] = {
	"enter_waits", "deltas", "data_blocks", "log_blocks", "node_blocks", "flushes", "records", "unifies",
};

static void overwrite(uint64_t mib, uint64_t operations)
{
	uint64_t blocks = mib << 20 >> 12, random = 1;
	static char data[1 << 20];
	struct tux3_node *node;
	struct moment from;

	must(tux3_path(volume, NULL, "/large", TUX3_CREATE, 0644, &node), "create");
	for (uint64_t i = 0; i < mib; i++) {
		memset(data, (int)i, sizeof(data));
		must(tux3_write(node, data, sizeof(data), i << 20), "write");
	}
	from = begin();
	for (uint64_t i = 0; i < operations; i++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		memcpy(data, &random, sizeof(random));
		must(tux3_write(node, data, BLOCK, (random >> 33) % blocks * BLOCK), "write");
	}
	end("overwrite", operations, &from);
	tux3_node_put(node, 1);
}

int main(int argc, char **argv)
{
	struct tux3_options options = { 0 };

	if (argc != 6)
		die("Usage: backend IMAGE FILES DIRECTORIES MIB OVERWRITES");
	must_format(argv[1], VOLUME_BYTES);
	volume = must_open(argv[1], &options);
	create_or_unlink("create", strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), true);
	create_or_unlink("unlink", strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), false);
	overwrite(strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
	must(tux3_close(volume), "close");
	return 0;
}
