/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair after random histories and random damage to nodes and free maps at once, compared with what is there now, path by path:
 * right, or missing or an error or of an earlier state, and that is told.  What was deleted does not come back untold.
 * TUX3_TEST_SEED=N runs one seed, and prints what is told; TUX3_TEST_SEEDS=N runs so many.
 */
#include "support_lib.h"
#include "core/mkfs.h"
#include "core/open.h"
#include "core/repair/repair.h"
#include "core/blocks/balloc.h"
#include "core/delta/delta.h"
#include "core/tree/tree_internal.h"
#include "user/env/clock.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIRS	4u
#define PATHS	240u
#define NODES	2048u
#define BYTES	(24u << 20)
#define MAX_SIZE 20000u

struct file {
	u64 ino;
	u32 stamp, size, links;
};

struct world {
	struct bed bed;
	u64 random, seed;
	struct file files[4096];
	u32 count, stamp;
	int path[PATHS];	/* which file, -1: none */
	u64 dir_ino[DIRS];
	u32 told;
	struct {
		u64 first, last;
		bool earlier;
	} lost[8192];		/* inodes of which it is told */
	u32 lost_count;
	u64 node[NODES];
	u32 level[NODES], nodes;
	u32 wrong, right, missing, errors;
};

static u32 below(struct world *world, u32 n)
{
	return bed_random(&world->random) % n;
}

static const char *path_name(u32 path, char *text)
{
	sprintf(text, "/d%u/a name that is rather long, so that leaves are full of them %u", path % DIRS, path);
	return text;
}

static void content(u8 *data, u32 stamp, u32 size)
{
	u32 i;

	for (i = 0; i < size; i++)
		data[i] = stamp >> i % 4 * 8;
}

static void rewrite(struct world *world, int id, struct tux3_node *node)
{
	static u8 data[MAX_SIZE];
	struct file *file = &world->files[id];

	file->stamp = ++world->stamp * 2654435761u;
	file->size = below(world, 3) ? 4 + below(world, 300) : 4 + below(world, MAX_SIZE - 4);
	content(data, file->stamp, file->size);
	assert_int_equal(tux3_write(node, data, file->size, 0), file->size);
	assert_ok(tux3_truncate(node, file->size));
}

static void forget(struct world *world, u32 path)
{
	if (world->path[path] >= 0)
		world->files[world->path[path]].links--;
	world->path[path] = -1;
}

static void step(struct world *world)
{
	u32 what = below(world, 10), path = below(world, PATHS), other = below(world, PATHS);
	struct tux3_node *node, *dir;
	char a[120], b[120], name[120];
	int id = world->path[path];

	path_name(path, a);
	path_name(other, b);
	if (id < 0) {
		if (world->count == ARRAY_SIZE(world->files))
			return;
		world->path[path] = id = world->count++;
		node = bed_file(&world->bed, a);
		world->files[id].ino = tux3_node_ino(node);
		world->files[id].links = 1;
		rewrite(world, id, node);
		tux3_node_put(node, 1);
	} else if (what < 3) {
		assert_ok(tux3_path_unlink(world->bed.volume, NULL, a));
		forget(world, path);
	} else if (what < 5 && path != other) {
		bool same = world->path[other] == id;

		assert_ok(tux3_path_rename(world->bed.volume, NULL, a, b, 0));
		if (same)
			return;
		forget(world, other);
		world->path[other] = id;
		world->path[path] = -1;
	} else if (what < 7 && world->path[other] < 0) {
		node = bed_find(&world->bed, a);
		sprintf(name, "/d%u", other % DIRS);
		dir = bed_find(&world->bed, name);
		assert_ok(tux3_link(node, NULL, dir, strrchr(b, '/') + 1));
		tux3_node_put(node, 1);
		tux3_node_put(dir, 1);
		world->path[other] = id;
		world->files[id].links++;
	} else {
		node = bed_find(&world->bed, a);
		assert_non_null(node);
		rewrite(world, id, node);
		tux3_node_put(node, 1);
	}
}

static void history(struct world *world)
{
	u32 rounds = 2 + below(world, 8), round, n, i;
	struct tux3_node *node;
	char name[20];

	for (i = 0; i < PATHS; i++)
		world->path[i] = -1;
	for (i = 0; i < DIRS; i++) {
		sprintf(name, "/d%u", i);
		assert_ok(tux3_path_mkdir(world->bed.volume, NULL, name, 0755));
		node = bed_find(&world->bed, name);
		world->dir_ino[i] = tux3_node_ino(node);
		tux3_node_put(node, 1);
	}
	for (round = 0; round < rounds; round++) {
		for (n = below(world, round ? 60 : 400); n; n--)
			step(world);
		assert_ok(tux3_sync(world->bed.volume));
		if (below(world, 4) && (round + 1 < rounds || below(world, 2)))
			assert_ok(delta_commit_unify(tux3_core(world->bed.volume)));
	}
	tux3_node_put(world->bed.root, 1);
	tux3_abandon(world->bed.volume);
}

/* ---- damage ---- */

static int note_node(void *ctx, const struct tree_visit *visit)
{
	struct world *world = ctx;

	if (visit->addr && world->nodes < NODES) {
		world->level[world->nodes] = visit->level;
		world->node[world->nodes++] = visit->addr;
	}
	return 0;
}

static void wipe(struct world *world, struct volume *vol, u64 addr, const char *what)
{
	if (getenv("TUX3_TEST_SEED"))
		print_message("wiped: block %llu, %s\n", (unsigned long long)addr, what);
	memset((u8 *)device_memory_bytes(world->bed.dev) + (addr << vol->block_shift), below(world, 2) ? 0x77 : 0, vol->block_size);
}

static void damage(struct world *world)
{
	struct volume_options opts = { .read_only = true, .no_recovery = true };
	u32 maps = below(world, 4), leaves = below(world, 4), i;
	struct volume *vol;
	char why[256];
	u64 group;

	assert_int_equal(volume_open(world->bed.dev, NULL, &opts, &vol, why, sizeof(why)), 0);
	assert_ok(tree_walk(vol, note_node, world));
	for (i = 0; i < world->nodes; i++)
		if (world->level[i] && below(world, 4))
			wipe(world, vol, world->node[i], "inner node");
	for (i = 0; i < leaves && world->nodes; i++)
		wipe(world, vol, world->node[below(world, world->nodes)], "node");
	for (group = 0; group < vol->group_count && maps; group++)
		for (i = 0; i < 2; i++)
			if (maps == 3 || below(world, 2))
				wipe(world, vol, balloc_slot_addr(vol, group, i), "map");
	assert_ok(volume_close(vol));
}

/* ---- comparing ---- */

static void on_note(void *ctx, const struct repair_note *note)
{
	unsigned long long first, last, delta;
	struct world *world = ctx;

	if (getenv("TUX3_TEST_SEED"))
		print_message("  %u: inode %llu: %s\n", note->kind, (unsigned long long)note->ino, note->text);
	if (note->kind != REPAIR_LOST)
		return;
	world->told++;
	assert_true(world->lost_count < ARRAY_SIZE(world->lost));
	if (sscanf(note->text, "Inodes %llu to %llu may be as they were at delta %llu", &first, &last, &delta) == 3)
		world->lost[world->lost_count].earlier = true;
	else
		first = last = note->ino;
	world->lost[world->lost_count].first = first;
	world->lost[world->lost_count++].last = last;
}

static bool is_told(const struct world *world, u64 ino, bool earlier)
{
	u32 i;

	for (i = 0; i < world->lost_count; i++)
		if (world->lost[i].earlier >= earlier && ino >= world->lost[i].first && ino <= world->lost[i].last)
			return true;
	return false;
}

/* earlier: only that an earlier state may be there excuses it, not that something is missing. */
static void wrong(struct world *world, u32 path, const char *what, u64 ino, bool earlier)
{
	char text[120];

	if (is_told(world, ino, earlier) || (earlier && is_told(world, world->dir_ino[path % DIRS], true)))
		return;
	print_error("WRONG: seed %llu: %s: %s, inode %llu\n", (unsigned long long)world->seed, path_name(path, text), what,
		    (unsigned long long)ino);
	world->wrong++;
}

static void compare(struct world *world, u32 path)
{
	static u8 want[MAX_SIZE], got[MAX_SIZE + 1];
	char text[120];
	struct tux3_node *node = bed_find(&world->bed, path_name(path, text));
	const struct file *file;
	ssize_t done;

	if (!node) {
		if (world->path[path] < 0)
			return;
		world->missing++;
		if (!world->told)
			wrong(world, path, "missing, and nothing is told", world->files[world->path[path]].ino, false);
		return;
	}
	if (world->path[path] < 0) {
		wrong(world, path, "came back", tux3_node_ino(node), true);
		tux3_node_put(node, 1);
		return;
	}
	file = &world->files[world->path[path]];
	if (tux3_node_ino(node) != file->ino)
		wrong(world, path, "another inode", tux3_node_ino(node), true);
	content(want, file->stamp, file->size);
	done = tux3_read(node, got, sizeof(got), 0);
	if (done >= 0 && memcmp(want, got, min_t(u32, done, file->size)))
		wrong(world, path, "another content", tux3_node_ino(node), true);
	else if (done != file->size)	/* or an error, which is told as well */
		wrong(world, path, "another length", tux3_node_ino(node), false);
	world->errors += done < 0;
	world->right += done == file->size;
	tux3_node_put(node, 1);
}

static void bed_write_one(struct bed *bed, u32 n)
{
	struct tux3_node *node;
	char path[40];

	sprintf(path, "/new/file %u", n);
	node = bed_file(bed, path);
	assert_int_equal(tux3_write(node, path, sizeof(path), n * 1000), sizeof(path));
	tux3_node_put(node, 1);
}

static void make(struct world *world, u64 uuid)
{
	struct format_options format = { .block_size = 4096 };
	char why[256];

	memcpy(format.uuid, &uuid, sizeof(uuid));
	assert_int_equal(volume_format(world->bed.dev, &format, why, sizeof(why)), 0);
	bed_open(&world->bed);
}

/* What the history made is of an earlier volume; on the same device there is a new one, with the same UUID or another. */
static void earlier_volume(struct world *world)
{
	make(world, world->seed + 1 + !below(world, 3));
	world->count = 0;
	history(world);
}

static void run_seed(u64 seed)
{
	static struct world world;
	struct repair_options opts = { .note = on_note, .ctx = &world }, none = {};
	struct repair_result result;
	char why[300] = "";
	int err;
	u32 i;

	env_set_random_seed(seed);	/* the keys of hashes, by which names are ordered, follow from it */
	world = (struct world){ .bed = { .opts.manual = true }, .random = seed * 7919, .seed = seed };
	world.bed.dev = device_memory_create(BYTES);
	assert_non_null(world.bed.dev);
	make(&world, seed + 1);
	history(&world);
	if (!below(&world, 4))
		earlier_volume(&world);
	damage(&world);
	err = volume_repair(world.bed.dev, &opts, &result, why, sizeof(why));
	if (err)
		fail_msg("repair: %d, %s", err, why);
	assert_int_equal(result.notes[REPAIR_LEFT], 0);
	assert_int_equal(result.check.problems, 0);
	assert_int_equal(volume_repair(world.bed.dev, &none, &result, why, sizeof(why)), 0);
	assert_false(result.written);
	bed_open(&world.bed);
	for (i = 0; i < PATHS; i++)
		compare(&world, i);
	if (getenv("TUX3_TEST_SEED"))
		print_message("right %u, missing %u, errors %u\n", world.right, world.missing, world.errors);
	assert_int_equal(world.wrong, 0);
	/* That it can be written; errors of data that were told stay, so that its data are not checked again. */
	for (i = 0; i < 30; i++)
		bed_write_one(&world.bed, i);
	bed_close(&world.bed);
	assert_int_equal(volume_repair(world.bed.dev, &none, &result, why, sizeof(why)), 0);
	assert_false(result.written);
	world.bed.dev->ops->close(world.bed.dev);
}

static void test_random(void **state)
{
	const char *one = getenv("TUX3_TEST_SEED"), *many = getenv("TUX3_TEST_SEEDS");
	u64 seed = one ? strtoull(one, NULL, 0) : 1, last = one ? seed : many ? strtoull(many, NULL, 0) : 30;
	u32 failed = 0;
	int status;

	for (; seed <= last; seed++) {
		fflush(NULL);
		if (!fork()) {
			alarm(60);
			run_seed(seed);
			_exit(0);
		}
		assert_true(wait(&status) > 0);
		if (status) {
			print_error("failed: TUX3_TEST_SEED=%llu build/tests/test_repair_random\n", (unsigned long long)seed);
			failed++;
		}
	}
	assert_int_equal(failed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
