/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Bulkstat: all inodes with a name, by number, once each, with a state that they had; while others come, go and change.
 */
#include "support_lib.h"
#include "core/host.h"
#include "core/inode/inode_walk.h"
#include "core/ioctl.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#define FILES 600u

struct told {
	u64 ino[4 * FILES];
	struct tux3_stat stat[4 * FILES];
	u32 count;
};

/* All of it, so many with each call. */
static u32 walk_from(struct bed *bed, uint64_t ino, u32 portion, struct told *told)
{
	struct tux3_stat stats[64];
	int n, i;

	told->count = 0;
	while ((n = tux3_bulkstat(bed->volume, &ino, stats, portion)) > 0) {
		assert_true(n <= (int)portion);
		for (i = 0; i < n; i++) {
			assert_true(told->count < ARRAY_SIZE(told->ino));
			/* Numbers rise, so none comes twice; and none comes that the cursor has not passed. */
			assert_true(!told->count || stats[i].ino > told->ino[told->count - 1]);
			assert_true(stats[i].ino < ino && stats[i].nlink);
			told->stat[told->count] = stats[i];
			told->ino[told->count++] = stats[i].ino;
		}
	}
	assert_int_equal(n, 0);
	return told->count;
}

static u32 walk(struct bed *bed, u32 portion, struct told *told)
{
	return walk_from(bed, 0, portion, told);
}

static const struct tux3_stat *told_of(const struct told *told, u64 ino)
{
	u32 i;

	for (i = 0; i < told->count; i++)
		if (told->ino[i] == ino)
			return &told->stat[i];
	return NULL;
}

static void expect_same(struct told *told, struct tux3_node *node)
{
	const struct tux3_stat *found;
	struct tux3_stat stat;

	assert_ok(tux3_stat_node(node, &stat));
	found = told_of(told, stat.ino);
	assert_non_null(found);
	if (memcmp(found, &stat, sizeof(stat)))
		fail_msg("inode %llu: size %llu, blocks %llu, mode %o, links %u instead of %llu, %llu, %o, %u",
			 (unsigned long long)stat.ino, (unsigned long long)found->size, (unsigned long long)found->blocks_512,
			 found->mode, found->nlink, (unsigned long long)stat.size, (unsigned long long)stat.blocks_512,
			 stat.mode, stat.nlink);
}

static void name_of(char *text, u32 i)
{
	snprintf(text, 32, "/d%u/file%u", i % 7, i);
}

static void make_files(struct bed *bed, u32 from, u32 to)
{
	struct tux3_node *node;
	char name[32];
	u32 i;

	for (i = from; i < to; i++) {
		name_of(name, i);
		assert_ok(tux3_path(bed->volume, NULL, name, TUX3_CREATE | TUX3_PARENTS, 0644, &node));
		if (i % 3)
			assert_int_equal(tux3_write(node, name, sizeof(name), i % 5 ? 0 : 70000), sizeof(name));
		tux3_node_put(node, 1);
	}
}

static void expect_all(struct bed *bed, struct told *told, u32 portion, u32 from, u32 to)
{
	struct tux3_node *node;
	char name[32];
	u32 i;

	/* The root and seven directories besides. */
	assert_int_equal(walk(bed, portion, told), to - from + 8);
	for (i = from; i < to; i++) {
		name_of(name, i);
		assert_ok(tux3_path(bed->volume, NULL, name, 0, 0, &node));
		expect_same(told, node);
		tux3_node_put(node, 1);
	}
	expect_same(told, bed->root);
}

/* What is committed, what is not, and what is a little of both; with objects in memory and without. */
static void states(u32 block_size)
{
	static const u32 portions[] = { 1, 7, 64 };
	struct told *told = test_malloc(sizeof(*told));
	struct bed bed = { .opts.manual = true };	/* no commit of an idle volume either, which confirms the last one */
	struct tux3_node *node, *held;
	struct tux3_stat stat = { .mode = 0600 };
	u64 committed;
	char name[32];
	u32 i, p;

	bed_make(&bed, 64 << 20, block_size);
	assert_ok(tux3_sync(bed.volume));
	make_files(&bed, 0, FILES);
	committed = tux3_committed(bed.volume);
	for (p = 0; p < ARRAY_SIZE(portions); p++)
		expect_all(&bed, told, portions[p], 0, FILES);
	/* It commits nothing. */
	assert_int_equal(tux3_committed(bed.volume), committed);
	assert_ok(tux3_sync(bed.volume));
	expect_all(&bed, told, 7, 0, FILES);
	bed_reopen(&bed);
	expect_all(&bed, told, 7, 0, FILES);
	bed_reopen(&bed);
	/* Some are changed, some go, some come; the others are in the tree only. */
	for (i = 0; i < FILES; i += 10) {
		name_of(name, i);
		assert_ok(tux3_path(bed.volume, NULL, name, 0, 0, &node));
		assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
		tux3_node_put(node, 1);
	}
	for (i = 0; i < FILES / 2; i++) {
		name_of(name, i);
		assert_ok(tux3_path_unlink(bed.volume, NULL, name));
	}
	make_files(&bed, FILES, FILES + 50);
	for (p = 0; p < ARRAY_SIZE(portions); p++)
		expect_all(&bed, told, portions[p], FILES / 2, FILES + 50);
	/* From anywhere; and beyond the last there is nothing. */
	i = told->count - 5;
	assert_int_equal(walk_from(&bed, told->ino[i], 2, told), 5);
	assert_int_equal(walk_from(&bed, told->ino[4] + 1, 2, told), 0);
	assert_int_equal(walk_from(&bed, UINT64_MAX, 2, told), 0);
	/* A file without a name is none, whether it ever had one or not. */
	assert_ok(tux3_tmpfile(bed.root, NULL, 0644, &held));
	name_of(name, FILES);
	assert_ok(tux3_path(bed.volume, NULL, name, 0, 0, &node));
	assert_ok(tux3_path_unlink(bed.volume, NULL, name));
	assert_int_equal(walk(&bed, 64, told), FILES / 2 + 50 - 1 + 8);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(walk(&bed, 64, told), FILES / 2 + 50 - 1 + 8);
	tux3_node_put(held, 1);
	tux3_node_put(node, 1);
	test_free(told);
	bed_free(&bed);
}

static void test_states(void **state)
{
	states(4096);
	states(65536);
}

/* An inode with many items in the middle, which are passed over. */
static void test_large(void **state)
{
	struct told *told = test_malloc(sizeof(*told));
	struct tux3_node *node;
	struct bed bed = { };
	u32 i, reads;
	char byte = 1;

	bed_make(&bed, 256 << 20, 4096);
	make_files(&bed, 0, 20);
	assert_ok(tux3_path(bed.volume, NULL, "/large", TUX3_CREATE, 0644, &node));
	for (i = 0; i < FEWER(8000, 2000); i++)
		assert_int_equal(tux3_write(node, &byte, 1, (u64)i * 8192), 1);
	tux3_node_put(node, 1);
	make_files(&bed, 20, 40);
	bed_reopen(&bed);
	reads = atomic64_read(&tux3_core(bed.volume)->cache.misses);
	assert_int_equal(walk(&bed, 64, told), 40 + 1 + 8);
	reads = atomic64_read(&tux3_core(bed.volume)->cache.misses) - reads;
	/* Its extents fill a hundred leaves. */
	if (reads > 20)
		fail_msg("%u nodes were read for 49 inodes", reads);
	test_free(told);
	bed_free(&bed);
}

static struct tux3_host_ops counting;
static const struct tux3_host_ops *host;
static atomic_t peeks;

static bool count_peek(struct volume *vol, u64 ino, struct tux3_attr *attr, u64 *blocks)
{
	atomic_inc(&peeks);
	return host->inode_peek(vol, ino, attr, blocks);
}

/* Objects and nodes of the tree are looked for because of inodes that there are, not of numbers that directories hold. */
static void expect_looks(struct bed *bed, struct told *told, u32 inodes)
{
	struct volume *vol = tux3_core(bed->volume);
	u64 nodes = cache_hits(vol);

	host = vol->host;
	counting = *host;
	counting.inode_peek = count_peek;
	vol->host = &counting;
	atomic_set(&peeks, 0);
	assert_int_equal(walk(bed, 64, told), inodes);
	vol->host = host;
	nodes = cache_hits(vol) - nodes;
	/* The last one that a call looks at may have no room any more. */
	if ((u32)atomic_read(&peeks) > inodes + inodes / 64 || nodes > 2 * inodes)
		fail_msg("%u inodes: %u objects and %llu nodes of the tree were looked for", inodes, atomic_read(&peeks),
			 (unsigned long long)nodes);
}

/* Directories in memory that hold numbers for their next files. */
static void test_looks(void **state)
{
	struct told *told = test_malloc(sizeof(*told));
	struct bed bed = { .opts.age_ms = 1000000 };
	struct tux3_node *node;
	char name[32];
	u32 i, dirs = 250;

	bed_make(&bed, 64 << 20, 4096);
	for (i = 0; i < 3 * dirs; i++) {
		snprintf(name, sizeof(name), "/d%u/file%u", i / 3, i % 3);
		assert_ok(tux3_path(bed.volume, NULL, name, TUX3_CREATE | TUX3_PARENTS, 0644, &node));
		tux3_node_put(node, 1);
	}
	/* Before they are in the tree, and then. */
	expect_looks(&bed, told, 4 * dirs + 1);
	assert_ok(tux3_sync(bed.volume));
	assert_true(tux3_core(bed.volume)->ialloc.held_total >= 10 * dirs);
	expect_looks(&bed, told, 4 * dirs + 1);
	/* What a directory has taken of these numbers since is told. */
	for (i = 0; i < dirs; i += 50) {
		snprintf(name, sizeof(name), "/d%u/new", i);
		assert_ok(tux3_path(bed.volume, NULL, name, TUX3_CREATE, 0644, &node));
		tux3_node_put(node, 1);
	}
	expect_looks(&bed, told, 4 * dirs + 6);
	test_free(told);
	bed_free(&bed);
}

/* Who is killed gets what was found until then, and what follows with the next call. */
static void test_killed(void **state)
{
	struct told *told = test_malloc(sizeof(*told));
	struct bed bed = { .opts.manual = true };
	struct inode_seen seen[64];
	u32 count = 0, calls = 0;
	u64 ino = 0;
	int n, i;

	bed_make(&bed, 64 << 20, 4096);
	make_files(&bed, 0, FILES);
	assert_ok(tux3_sync(bed.volume));
	walk(&bed, 64, told);
	env_killed = true;
	/* Not a leaf more than the one that it is at: not even so many as fit; of one without attributes it is -EINTR. */
	while ((n = inode_walk(tux3_core(bed.volume), &ino, seen, ARRAY_SIZE(seen))) != 0 && calls++ < FILES) {
		assert_true(n == -EINTR || (n > 0 && n < (int)ARRAY_SIZE(seen)));
		for (i = 0; i < n; i++)
			assert_int_equal(seen[i].ino, told->ino[count++]);
	}
	env_killed = false;
	assert_int_equal(n, 0);
	assert_int_equal(count, told->count);
	test_free(told);
	bed_free(&bed);
}

/* ---- beside others ---- */

struct worker {
	struct bed *bed;
	atomic_t stop;
	atomic_t rounds;
	u32 number;
};

/* Files come and go, in numbers that are used again. */
static void *churn(void *ctx)
{
	struct worker *worker = ctx;
	char name[64];
	u32 i;

	while (!atomic_read(&worker->stop)) {
		for (i = 0; i < 40; i++) {
			struct tux3_node *node;

			snprintf(name, sizeof(name), "/churn%u/file%u", worker->number, i);
			assert_ok(tux3_path(worker->bed->volume, NULL, name, TUX3_CREATE, 0600, &node));
			tux3_node_put(node, 1);
		}
		for (i = 0; i < 40; i++) {
			snprintf(name, sizeof(name), "/churn%u/file%u", worker->number, i);
			assert_ok(tux3_path_unlink(worker->bed->volume, NULL, name));
		}
		if (atomic_read(&worker->rounds) % 8 == 0)
			assert_ok(tux3_sync(worker->bed->volume));
		atomic_inc(&worker->rounds);
	}
	return NULL;
}

/* The size of these only rises; each time uid and gid are the same. */
static void *grow(void *ctx)
{
	struct worker *worker = ctx;
	struct tux3_stat stat = { };
	struct tux3_node *node;
	char name[32];
	u32 i;

	while (!atomic_read(&worker->stop)) {
		for (i = 0; i < 50; i++) {
			snprintf(name, sizeof(name), "/grow/file%u", i);
			assert_ok(tux3_path(worker->bed->volume, NULL, name, 0, 0, &node));
			stat.uid = stat.gid = atomic_read(&worker->rounds) + 1;
			assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_UID | TUX3_SET_GID));
			tux3_node_put(node, 1);
		}
		atomic_inc(&worker->rounds);
	}
	return NULL;
}

static void beside(u32 rounds, u32 portion)
{
	struct told *told = test_malloc(sizeof(*told));
	struct bed bed = { .opts.age_ms = 20 };
	struct worker workers[3] = { };
	u32 i, round, all = 0, uids[50] = { }, min_rounds;
	pthread_t threads[3];
	u64 stay[50];
	char name[32];

	bed_make(&bed, 64 << 20, 4096);
	for (i = 0; i < 50; i++) {
		struct tux3_node *node;

		snprintf(name, sizeof(name), "/grow/file%u", i);
		assert_ok(tux3_path(bed.volume, NULL, name, TUX3_CREATE | TUX3_PARENTS, 0644, &node));
		stay[i] = tux3_node_ino(node);
		tux3_node_put(node, 1);
	}
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "/churn0", 0755));
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "/churn1", 0755));
	for (i = 0; i < 3; i++) {
		workers[i].bed = &bed;
		workers[i].number = i;
		assert_ok(pthread_create(&threads[i], NULL, i < 2 ? churn : grow, &workers[i]));
	}
	for (round = 0, min_rounds = 0; round < rounds || min_rounds < 3 || all <= round * 54; round++) {
		u32 low = atomic_read(&workers[2].rounds);

		walk(&bed, portion, told);
		all += told->count;
		for (i = 0; i < 50; i++) {
			const struct tux3_stat *stat = told_of(told, stay[i]);

			if (!stat)
				fail_msg("round %u: inode %llu was not told", round, (unsigned long long)stay[i]);
			/* A state that it had, and not before the walk began. */
			assert_int_equal(stat->uid, stat->gid);
			assert_true(stat->uid >= low && stat->uid >= uids[i]);
			assert_true(stat->uid <= (u32)atomic_read(&workers[2].rounds) + 1);
			uids[i] = stat->uid;
		}
		for (i = 0, min_rounds = ~0u; i < 3; i++)
			min_rounds = min(min_rounds, (u32)atomic_read(&workers[i].rounds));
	}
	for (i = 0; i < 3; i++)
		atomic_set(&workers[i].stop, 1);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(walk(&bed, portion, told), 50 + 3 + 1);
	test_free(told);
	bed_free(&bed);
}

static void test_beside(void **state)
{
	beside(FEWER(100, 30), 64);
	beside(FEWER(30, 10), 3);
}

/* ---- what ioctls ask for ---- */

static int ask(struct tux3_ioc_inodes_header header, u32 expected, u64 expected_ino)
{
	u32 wanted = 0;
	int err = inode_walk_request(&header, &wanted);

	if (!err) {
		assert_int_equal(wanted, expected);
		assert_int_equal(header.ino, expected_ino);
		assert_int_equal(header.count, 0);
	}
	return err;
}

static void test_requests(void **state)
{
	struct tux3_ioc_inodes_header plain = { .ino = 100, .wanted = 7, .count = 5 }, header;

	assert_int_equal(ask(plain, 7, 100), 0);
	header = plain;
	header.flags = TUX3_INODES_EXTENTS_64 | TUX3_INODES_METADIR;
	assert_int_equal(ask(header, 7, 100), 0);
	header.flags = TUX3_INODES_AGNO;
	assert_int_equal(ask(header, 0, 0), -EINVAL);
	header.flags = TUX3_INODES_SPECIAL;
	assert_int_equal(ask(header, 0, 0), -EINVAL);
	/* The special one alone. */
	header.ino = TUX3_INODES_SPECIAL_ROOT;
	assert_int_equal(ask(header, 1, TUX3_INO_ROOT), 0);
	header = plain;
	header.agno = 1;
	assert_int_equal(ask(header, 0, 0), -EINVAL);
	header = plain;
	header.wanted = 0;
	assert_int_equal(ask(header, 0, 0), -EINVAL);
	header = plain;
	header.reserved[4] = 1;
	assert_int_equal(ask(header, 0, 0), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_looks),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_beside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
