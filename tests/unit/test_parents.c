/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who the parents of a node are, and its paths: of what is committed and of what is not, with names that come and go, with hashes
 * that collide.
 */
#include "support_lib.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#define LINKS 200u

struct listed {
	u32 count;
	u32 stop;		/* after so many in one call; 0: never */
	u32 now;
	char names[2 * LINKS][32];	/* "directory:generation:name" */
};

static int list_one(void *ctx, const struct tux3_parent *parent)
{
	struct listed *listed = ctx;

	assert_true(listed->count < ARRAY_SIZE(listed->names));
	if (listed->stop && listed->now == listed->stop)
		return 1;
	listed->now++;
	snprintf(listed->names[listed->count++], sizeof(listed->names[0]), "%llu:%u:%s", (unsigned long long)parent->dir,
		 parent->generation, parent->name);
	return 0;
}

static u32 list_all(struct tux3_node *node, struct listed *listed)
{
	struct tux3_parent_cursor cursor = { };

	listed->count = listed->now = listed->stop = 0;
	assert_ok(tux3_parents(node, &cursor, list_one, listed));
	/* And behind the end there is nothing. */
	assert_ok(tux3_parents(node, &cursor, list_one, listed));
	return listed->count;
}

static u32 how_often(const struct listed *listed, struct tux3_node *dir, const char *name)
{
	struct tux3_stat stat;
	u32 i, count = 0;
	char text[64];

	assert_ok(tux3_stat_node(dir, &stat));
	snprintf(text, sizeof(text), "%llu:%u:%s", (unsigned long long)stat.ino, stat.generation, name);
	for (i = 0; i < listed->count; i++)
		count += !strcmp(listed->names[i], text);
	return count;
}

static struct tux3_node *make_dir(struct tux3_node *dir, const char *name)
{
	struct tux3_node *node;

	assert_ok(tux3_mknod(dir, NULL, name, S_IFDIR | 0755, 0, 0, &node));
	return node;
}

/* The nth path of it, "" if there are not so many. */
static const char *path_of(struct bed *bed, u64 ino, u32 n)
{
	struct tux3_parent_cursor cursor = { };
	static char text[4096];
	int len;

	do {
		len = tux3_path_of(bed->volume, ino, 0, &cursor, text, sizeof(text));
		assert_ok(len < 0 ? len : 0);
		assert_int_equal(len ? strlen(text) : 0, len);
	} while (len && n--);
	return len ? text : "";
}

static void test_names(void **state)
{
	struct listed *listed = test_malloc(sizeof(*listed));
	struct tux3_node *a, *b, *node;
	struct bed bed = { };
	u64 commits;

	bed_make(&bed, 32 << 20, 4096);
	a = make_dir(bed.root, "a");
	b = make_dir(a, "b");
	assert_ok(tux3_mknod(a, NULL, "x", S_IFREG | 0644, 0, 0, &node));
	assert_int_equal(list_all(node, listed), 1);
	assert_int_equal(how_often(listed, a, "x"), 1);
	/* Nothing of it has changed: nothing is committed for it. */
	commits = tux3_committed(bed.volume);
	assert_int_equal(list_all(node, listed), 1);
	assert_int_equal(tux3_committed(bed.volume), commits);
	assert_ok(tux3_link(node, NULL, b, "y"));
	assert_ok(tux3_link(node, NULL, b, "z"));
	assert_int_equal(list_all(node, listed), 3);
	assert_int_equal(how_often(listed, a, "x") + how_often(listed, b, "y") + how_often(listed, b, "z"), 3);
	assert_ok(tux3_rename(a, "x", bed.root, "new", 0, NULL));
	assert_ok(tux3_unlink(b, NULL, "z"));
	assert_int_equal(list_all(node, listed), 2);
	assert_int_equal(how_often(listed, bed.root, "new") + how_often(listed, b, "y"), 2);
	/* A directory has one. */
	assert_int_equal(list_all(b, listed), 1);
	assert_int_equal(how_often(listed, a, "b"), 1);
	assert_ok(tux3_rename(a, "b", bed.root, "c", 0, NULL));
	assert_int_equal(list_all(b, listed), 1);
	assert_int_equal(how_often(listed, bed.root, "c"), 1);
	assert_int_equal(list_all(bed.root, listed), 0);
	assert_ok(tux3_unlink(b, NULL, "y"));
	assert_ok(tux3_unlink(bed.root, NULL, "new"));
	assert_int_equal(list_all(node, listed), 0);
	tux3_node_put(node, 1);
	tux3_node_put(a, 1);
	tux3_node_put(b, 1);
	test_free(listed);
	bed_free(&bed);
}

/* Names that stay are listed once, however the listing is cut and whatever comes and goes; with and without shared items. */
static void many(u64 mask)
{
	struct listed *listed = test_malloc(sizeof(*listed));
	struct tux3_parent_cursor cursor = { };
	struct bed bed = { .opts.name_hash_mask = mask };
	struct tux3_node *dir, *node;
	u32 i, turn = 0;
	char name[16];
	int ret;

	bed_make(&bed, 64 << 20, 4096);
	dir = make_dir(bed.root, "d");
	assert_ok(tux3_mknod(dir, NULL, "stays0", S_IFREG | 0644, 0, 0, &node));
	for (i = 1; i < LINKS / 2; i++) {
		snprintf(name, sizeof(name), "stays%u", i);
		assert_ok(tux3_link(node, NULL, dir, name));
		snprintf(name, sizeof(name), "goes%u", i);
		assert_ok(tux3_link(node, NULL, dir, name));
	}
	listed->count = 0;
	listed->stop = 3;
	do {
		listed->now = 0;
		ret = tux3_parents(node, &cursor, list_one, listed);
		assert_ok(ret < 0 ? ret : 0);
		if (++turn < LINKS / 2) {
			snprintf(name, sizeof(name), "goes%u", turn);
			assert_ok(tux3_unlink(dir, NULL, name));
			snprintf(name, sizeof(name), "comes%u", turn);
			assert_ok(tux3_link(node, NULL, dir, name));
		}
	} while (ret);
	for (i = 0; i < LINKS / 2; i++) {
		snprintf(name, sizeof(name), "stays%u", i);
		assert_int_equal(how_often(listed, dir, name), 1);
		snprintf(name, sizeof(name), "goes%u", i);
		assert_true(how_often(listed, dir, name) <= 1);
		snprintf(name, sizeof(name), "comes%u", i);
		assert_true(how_often(listed, dir, name) <= 1);
	}
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	test_free(listed);
	bed_free(&bed);
}

static void test_many(void **state)
{
	many(0);
	many(0x1f);
}

static void test_paths(void **state)
{
	struct tux3_parent_cursor cursor = { };
	struct tux3_node *dir, *node;
	struct bed bed = { };
	struct tux3_stat stat;
	char text[4096];
	u64 ino;

	bed_make(&bed, 32 << 20, 4096);
	assert_string_equal(path_of(&bed, TUX3_INO_ROOT, 0), "/");
	assert_string_equal(path_of(&bed, TUX3_INO_ROOT, 1), "");
	assert_ok(tux3_path(bed.volume, NULL, "/a/b/c/file", TUX3_CREATE | TUX3_PARENTS, 0644, &node));
	assert_ok(tux3_stat_node(node, &stat));
	ino = stat.ino;
	assert_string_equal(path_of(&bed, ino, 0), "/a/b/c/file");
	assert_string_equal(path_of(&bed, ino, 1), "");
	assert_ok(tux3_path_rename(bed.volume, NULL, "/a/b", "/new", 0));
	assert_string_equal(path_of(&bed, ino, 0), "/new/c/file");
	assert_ok(tux3_path(bed.volume, NULL, "/a", 0, 0, &dir));
	assert_ok(tux3_link(node, NULL, dir, "second"));
	assert_true(!strcmp(path_of(&bed, ino, 0), "/a/second") != !strcmp(path_of(&bed, ino, 1), "/a/second"));
	assert_true(!strcmp(path_of(&bed, ino, 0), "/new/c/file") != !strcmp(path_of(&bed, ino, 1), "/new/c/file"));
	assert_string_equal(path_of(&bed, ino, 2), "");
	assert_int_equal(tux3_path_of(bed.volume, ino, stat.generation, &cursor, text, 5), -ENAMETOOLONG);
	/* With a larger buffer it is told: both are. */
	assert_true(tux3_path_of(bed.volume, ino, stat.generation, &cursor, text, sizeof(text)) > 0);
	assert_true(tux3_path_of(bed.volume, ino, stat.generation, &cursor, text, sizeof(text)) > 0);
	cursor = (struct tux3_parent_cursor){ };
	assert_int_equal(tux3_path_of(bed.volume, ino, stat.generation + 1, &cursor, text, sizeof(text)), -ESTALE);
	assert_int_equal(tux3_path_of(bed.volume, ino + 1, 0, &cursor, text, sizeof(text)), -ESTALE);
	assert_ok(tux3_unlink(dir, NULL, "second"));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/new/c/file"));
	assert_int_equal(tux3_path_of(bed.volume, ino, 0, &cursor, text, sizeof(text)), -ESTALE);
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

/* ---- beside others ---- */

struct mover {
	struct bed *bed;
	atomic_t stop;
	atomic_t rounds;
};

/* There is never a directory e below p. */
static void *move(void *ctx)
{
	struct mover *mover = ctx;
	struct tux3 *volume = mover->bed->volume;

	while (!atomic_read(&mover->stop)) {
		assert_ok(tux3_path_rename(volume, NULL, "/p", "/q", 0));
		assert_ok(tux3_path_rename(volume, NULL, "/q/d", "/q/e", 0));
		assert_ok(tux3_path_rename(volume, NULL, "/q/e/f", "/q/g", 0));
		assert_ok(tux3_path_rename(volume, NULL, "/q/g", "/q/e/f", 0));
		assert_ok(tux3_path_rename(volume, NULL, "/q/e", "/q/d", 0));
		assert_ok(tux3_path_rename(volume, NULL, "/q", "/p", 0));
		atomic_inc(&mover->rounds);
	}
	return NULL;
}

static void test_moving(void **state)
{
	static const char *const possible[] = { "/p/d/f", "/q/d/f", "/q/e/f", "/q/g" };
	struct listed *listed = test_malloc(sizeof(*listed));
	struct bed bed = { };
	struct mover mover = { .bed = &bed };
	struct tux3_node *node, *dir;
	pthread_t thread;
	u32 i, n;

	bed_make(&bed, 64 << 20, 4096);
	assert_ok(tux3_path(bed.volume, NULL, "/p/d/f", TUX3_CREATE | TUX3_PARENTS, 0644, &node));
	assert_ok(tux3_path(bed.volume, NULL, "/p", 0, 0, &dir));
	atomic_set(&mover.stop, 0);
	atomic_set(&mover.rounds, 0);
	assert_ok(pthread_create(&thread, NULL, move, &mover));
	for (i = 0; i < 300 || atomic_read(&mover.rounds) < 50; i++) {
		const char *path = path_of(&bed, tux3_node_ino(node), 0);

		for (n = 0; n < ARRAY_SIZE(possible) && strcmp(path, possible[n]); n++)
			;
		if (n == ARRAY_SIZE(possible))
			fail_msg("round %u: \"%s\" never was its path", i, path);
		/* Each has one name all the time. */
		assert_int_equal(list_all(node, listed), 1);
		assert_int_equal(list_all(dir, listed), 1);
	}
	atomic_set(&mover.stop, 1);
	pthread_join(thread, NULL);
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	test_free(listed);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_moving),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
