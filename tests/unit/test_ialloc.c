/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inode numbers: against the tree, locality, speed of filling a window, several threads.
 *
 * TUX3_TEST_SEED=n runs the random tests with that seed, an argument runs only the tests so named.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "support_tree.h"
#include "user/env/device_memory.h"
#include "user/env/fault.h"
#include "user/env/log.h"
#include "core/inode/ialloc.h"

#define BLOCKS		32000u
#define CACHE_BYTES	(64u << 20)
#define WINDOW		4096u

static u64 rng;

static void begin(const char *name, u64 seed)
{
	check_begin(name, seed);
	rng = test_seed * 0x9e3779b97f4a7c15ULL + 1;
}

static struct tree_fixture *open_volume(void)
{
	struct tree_fixture *fixture = fixture_open(4096, BLOCKS, CACHE_BYTES);

	ialloc_init(&fixture->vol);
	return fixture;
}

static void close_volume(struct tree_fixture *fixture)
{
	ialloc_exit(&fixture->vol);
	fixture_close(fixture);
}

/* As a mount: only the tree knows. */
static void forget(struct volume *vol)
{
	ialloc_exit(vol);
	ialloc_init(vol);
}

static void set_items(struct volume *vol, u64 ino, u8 type, u32 count)
{
	u8 data[112] = {};
	u32 i;

	for (i = 0; i < count; i++) {
		struct tree_key key = tree_key(ino, type, i * 1000);

		tree_edit_begin(vol);
		check(!tree_set(vol, &key, data, type == TUX3_ITEM_ATTR ? 112 : 30));
		tree_edit_end(vol);
	}
}

static void remove_inode(struct volume *vol, u64 ino)
{
	struct tree_key from = tree_key(ino, 0, 0), to = tree_key(ino, U8_MAX, U64_MAX), next;

	tree_edit_begin(vol);
	check(tree_delete_range(vol, &from, &to, U32_MAX, NULL, NULL, &next) >= 0);
	tree_edit_end(vol);
}

/* hint: the number of the last file of parent, or 0.  Nothing is kept for the next one. */
static int number_for(struct volume *vol, u64 parent, u64 hint, bool is_dir, u64 *ino)
{
	struct tux3_inode dir = { .vol = vol, .ino = parent, .child.counter = hint };
	int err = ialloc_new(&dir, is_dir, ino);

	ialloc_give_back(&dir);
	return err;
}

static u64 new_number(struct volume *vol, u64 parent, u64 hint, bool is_dir)
{
	u64 ino;

	check(!number_for(vol, parent, hint, is_dir, &ino));
	check(ino >= TUX3_INO_FIRST && ino <= TUX3_INO_MAX);
	check(ialloc_test(vol, ino) == 1);
	return ino;
}

/* ---- what is handed out ---- */

static void test_first(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	u64 ino, i;

	begin("test_first", 0);
	for (i = 1; i < TUX3_INO_FIRST; i++)
		check(ialloc_test(vol, i) == 1);
	check(ialloc_test(vol, TUX3_INO_FIRST) == 0);
	for (i = 0; i < 10000; i++) {
		ino = new_number(vol, TUX3_INO_ROOT, 0, false);
		check(ino == TUX3_INO_FIRST + i);
	}
	check(ialloc_mark(vol, 20000) == 0 && ialloc_test(vol, 20000) == 1 && ialloc_test(vol, 20001) == 0);
	ialloc_free(vol, 777);
	check(ialloc_test(vol, 777) == 0);
	check(new_number(vol, 700, 0, false) == 777);
	check(ialloc_mark(vol, 0) == -EIO && ialloc_mark(vol, TUX3_INO_MAX + 1) == -EIO);
	check(ialloc_test(vol, 0) == 0 && ialloc_test(vol, U64_MAX) == 0);
	close_volume(fixture);
}

/* At the end of all numbers it goes on from the start. */
static void test_last(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;

	begin("test_last", 0);
	check(new_number(vol, TUX3_INO_MAX - 2, 0, false) == TUX3_INO_MAX - 1);
	check(new_number(vol, TUX3_INO_MAX - 2, 0, false) == TUX3_INO_MAX);
	check(new_number(vol, TUX3_INO_MAX - 2, 0, false) == TUX3_INO_FIRST);
	check(new_number(vol, TUX3_INO_MAX, TUX3_INO_MAX, false) == TUX3_INO_FIRST + 1);
	set_items(vol, TUX3_INO_MAX, TUX3_ITEM_ATTR, 1);
	forget(vol);
	check(ialloc_test(vol, TUX3_INO_MAX) == 1);
	/* The highest number is in use: directories begin anew. */
	check(new_number(vol, TUX3_INO_ROOT, 0, true) % 32 == 0);
	close_volume(fixture);
}

/* Random changes to tree and numbers together, as front and back end make them. */
static void test_random_numbers(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	u64 *live = calloc(3000, sizeof(*live)), i, k;
	u32 count = 0, round;

	begin("test_random_numbers", 1);
	for (round = 0; round < 20000; round++) {
		u32 dice = test_below(&rng, 100);

		if (dice < 55 && count < 3000) {
			u64 parent = count && test_below(&rng, 2) ? live[test_below(&rng, count)] : TUX3_INO_ROOT;
			u64 hint = count && test_below(&rng, 2) ? live[test_below(&rng, count)] : 0;
			u64 ino = new_number(vol, parent, hint, !test_below(&rng, 10));

			for (i = 0; i < count && round % 64 == 0; i++)
				check(live[i] != ino);
			set_items(vol, ino, TUX3_ITEM_ATTR, 1);
			if (!test_below(&rng, 50))
				set_items(vol, ino, TUX3_ITEM_DIRENT, test_below(&rng, 60));
			live[count++] = ino;
		} else if (dice < 98 && count) {
			i = test_below(&rng, count);
			remove_inode(vol, live[i]);
			ialloc_free(vol, live[i]);
			live[i] = live[--count];
		} else if (!test_below(&rng, 20)) {
			forget(vol);
		}
	}
	/* Everything that is there is used, and nothing else, in all windows seen. */
	for (k = 0; k < 2; k++) {
		struct rb_node *node;
		u64 used = 0, windows = 0;

		for (i = 0; i < count; i++)
			check(ialloc_test(vol, live[i]) == 1);
		for (node = rb_first(&vol->ialloc.windows); node; node = rb_next(node))
			windows++;
		check(windows == vol->ialloc.count);
		for (i = 1; i < WINDOW * 4; i++)
			used += ialloc_test(vol, i) == 1;
		for (i = 0; i < count; i++)
			used -= live[i] < WINDOW * 4;
		check(used == TUX3_INO_FIRST - 1);
		forget(vol);
	}
	free(live);
	close_volume(fixture);
}

/* Files lie next to their directory, directories keep room for them; also after a mount. */
static void test_locality(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	u64 dirs[100], last[100], ino, near = 0, total = 0;
	u32 d, f;

	begin("test_locality", 0);
	for (d = 0; d < 100; d++) {
		dirs[d] = last[d] = new_number(vol, TUX3_INO_ROOT, 0, true);
		check(dirs[d] % 32 == 0);
		if (d)
			check(dirs[d] == dirs[d - 1] + 32);
	}
	for (f = 0; f < 31; f++) {
		for (d = 0; d < 100; d++) {
			ino = new_number(vol, dirs[d], last[d], false);
			near += ino > dirs[d] && ino < dirs[d] + 32;
			total++;
			last[d] = ino;
			set_items(vol, ino, TUX3_ITEM_ATTR, 1);
		}
	}
	check(near == total);
	forget(vol);
	/* 3100 files in the tree: the next directory goes behind them, a new file still near its directory. */
	check(new_number(vol, TUX3_INO_ROOT, 0, true) == last[99] + 1);
	ino = last[50];
	remove_inode(vol, ino);
	ialloc_free(vol, ino);
	check(new_number(vol, dirs[50], 0, false) == dirs[50] + 32 - 31 - 1 + 31);
	close_volume(fixture);
}

/* ---- speed ---- */

static void fill_and_time(struct tree_fixture *fixture, u32 inodes, u32 items, u64 first, const char *what)
{
	struct volume *vol = &fixture->vol;
	double begun, best = 1e9;
	u32 i;

	for (i = 0; i < inodes; i++) {
		set_items(vol, first + i, TUX3_ITEM_ATTR, 1);
		if (items > 1)
			set_items(vol, first + i, TUX3_ITEM_DIRENT, items - 1);
	}
	for (i = 0; i < 5; i++) {
		forget(vol);
		begun = now_s();
		check(ialloc_test(vol, first) == 1);
		best = min(best, now_s() - begun);
	}
	for (i = 0; i < inodes; i++)
		check(ialloc_test(vol, first + i) == 1);
	check(inodes == WINDOW || ialloc_test(vol, first + inodes) == 0);
	print_message("  window of %4u inodes with %5u items each (%s): filled in %.0f us\n", inodes, items, what, best * 1e6);
	check(best < 0.2);
}

static void test_fill_speed(void **unused)
{
	struct tree_fixture *fixture = open_volume();

	begin("test_fill_speed", 0);
	fill_and_time(fixture, WINDOW, 5, 10 * WINDOW, "files");
	fill_and_time(fixture, WINDOW, 1, 20 * WINDOW, "empty files");
	fill_and_time(fixture, 1000, 20, 30 * WINDOW, "small directories");
	fill_and_time(fixture, 4, 20000, 40 * WINDOW, "large directories");
	close_volume(fixture);
}

/* A directory that fills many windows: the search for its next number does not walk them all each time. */
static void test_full_windows(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	double begun = now_s(), each;
	u64 i, ino, last = 0;

	begin("test_full_windows", 0);
	for (i = 0; i < 300000; i++) {
		ino = new_number(vol, TUX3_INO_ROOT, 0, false);
		check(ino > last);
		last = ino;
	}
	each = (now_s() - begun) / 300000;
	print_message("  300000 files without a hint: %.2f us each\n", each * 1e6);
	check(each < 100e-6);
	close_volume(fixture);
}

/* How much of the tree is read for a file in a directory behind which that many windows are full: as little for one as for many. */
static u64 windows_for_a_file(u32 full)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	u64 ino, windows;

	for (ino = TUX3_INO_FIRST; ino < (u64)full * WINDOW; ino++)
		set_items(vol, ino, TUX3_ITEM_EXTENT, 1);
	forget(vol);
	ino = new_number(vol, TUX3_INO_ROOT, 0, false);
	check(ino >= (u64)full * WINDOW && ino < (full + 1ull) * WINDOW);
	/* Another one goes on there; one that finds something near takes that. */
	check(new_number(vol, TUX3_INO_ROOT + WINDOW, 0, false) == ino + 1);
	remove_inode(vol, 2 * WINDOW);
	windows = vol->ialloc.count;
	forget(vol);
	check(new_number(vol, TUX3_INO_ROOT, 0, false) == 2 * WINDOW);
	close_volume(fixture);
	return windows;
}

static void test_few_windows_are_read(void **unused)
{
	begin("test_few_windows_are_read", 0);
	check(windows_for_a_file(8) <= 8);
	check(windows_for_a_file(32) <= 8);
}

/* ---- failures and threads ---- */

static void test_memory_faults(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	u64 ino;
	long n;
	int err = -1;

	begin("test_memory_faults", 0);
	set_items(vol, 5000, TUX3_ITEM_ATTR, 1);
	fixture_sync(fixture);
	for (n = 1; err && n < 100; n++) {
		forget(vol);
		fixture_reopen(fixture, CACHE_BYTES);
		env_fail_alloc_at(n);
		err = number_for(vol, 4999, 0, false, &ino);
		env_fail_alloc_at(0);
		check(err == 0 || err == -ENOMEM);
		check(ialloc_test(vol, 5000) == 1);
	}
	check(n > 2 && n < 100 && ino == 5001);
	close_volume(fixture);
}

/* ---- bad blocks ---- */

#define BAD_FIRST	3900u
#define BAD_LAST	8200u

struct nth_node {
	u32 n, count;		/* below the root */
	u64 addr;		/* of the nth */
};

static int see_node(void *ctx, const struct tree_visit *visit)
{
	struct nth_node *nth = ctx;

	check(visit->data);
	if (visit->parent_addr && nth->count++ == nth->n)
		nth->addr = visit->addr;
	return 0;
}

static bool had_items(u64 ino)
{
	return ino % 3 == 0 && ino >= BAD_FIRST && ino <= BAD_LAST;
}

/* Nobody had the number, and who gets it can write his items. */
static void take_numbers(struct volume *vol, u64 parent)
{
	u64 ino;
	u32 i;

	for (i = 0; i < 40; i++) {
		ino = new_number(vol, parent, 0, i % 8 == 0);
		check(!had_items(ino));
		set_items(vol, ino, TUX3_ITEM_ATTR, 1);
		mutex_lock(&vol->delta.commit_mutex);
		ialloc_settle(vol, ino);
		ialloc_settle_all(vol);
		mutex_unlock(&vol->delta.commit_mutex);
	}
}

static void remove_taken(struct volume *vol)
{
	u64 ino;

	for (ino = TUX3_INO_FIRST; ino < 3 * WINDOW; ino++)
		if (!had_items(ino))
			remove_inode(vol, ino);
}

/* Every third number has items, some of them many; each node below the root in turn cannot be read, the last leaf among them. */
static void test_bad_blocks(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	struct nth_node nth = {};
	u8 *byte;
	u64 ino;

	begin("test_bad_blocks", 0);
	env_set_log(count_message);
	for (ino = BAD_FIRST; ino <= BAD_LAST; ino++)
		if (had_items(ino))
			set_items(vol, ino, TUX3_ITEM_ATTR, ino % 100 ? 1 : 60);
	do {
		fixture_sync(fixture);
		nth.count = 0;
		check(!tree_walk(vol, see_node, &nth));
		byte = (u8 *)device_memory_bytes(vol->dev) + nth.addr * vol->block_size + 1000;
		*byte ^= 1;
		forget(vol);
		fixture_reopen(fixture, CACHE_BYTES);
		messages = 0;
		for (ino = BAD_FIRST - 900; ino < BAD_LAST + 900; ino += 1111)
			take_numbers(vol, ino);
		check(messages);
		*byte ^= 1;
		remove_taken(vol);
	} while (++nth.n < nth.count);
	check(nth.count > 30);
	env_set_log(NULL);
	close_volume(fixture);
}

/* While the tree is read to fill a window, somebody else fills it, takes a number, and the window goes again. */
static struct tree_fixture *beside;
static const struct tux3_device_ops *beside_ops;
static u64 beside_ino;
static u32 beside_reads;	/* until that happens */

static int read_beside(struct tux3_device *dev, u64 addr, u32 count, void *data)
{
	struct volume *vol = &beside->vol;

	if (beside_reads && !--beside_reads) {
		check(!number_for(vol, 4999, 0, false, &beside_ino));
		set_items(vol, beside_ino, TUX3_ITEM_ATTR, 1);
		mutex_lock(&vol->delta.commit_mutex);
		ialloc_settle(vol, beside_ino);
		ialloc_settle_all(vol);
		mutex_unlock(&vol->delta.commit_mutex);
	}
	return beside_ops->read(dev, addr, count, data);
}

static void test_window_goes_while_filled(void **unused)
{
	struct tux3_device_ops ops;
	struct tree_fixture *fixture = beside = open_volume();
	struct volume *vol = &fixture->vol;
	u64 ino, i;

	begin("test_window_goes_while_filled", 0);
	for (i = 5001; i < 8000; i++)
		set_items(vol, i, TUX3_ITEM_ATTR, 1);
	fixture_sync(fixture);
	forget(vol);
	fixture_reopen(fixture, CACHE_BYTES);
	vol->ialloc.windows_max = 0;
	beside_ops = vol->dev->ops;
	ops = *beside_ops;
	ops.read = read_beside;
	ops.read_many = NULL;
	vol->dev->ops = &ops;
	beside_reads = 50;
	check(!number_for(vol, 4999, 0, false, &ino));
	vol->dev->ops = beside_ops;
	check(!beside_reads && beside_ino == 5000);
	check(ino == 8000);
	check(ialloc_test(vol, 5000) == 1);
	ialloc_free(vol, ino);
	check(!vol->ialloc.count);
	close_volume(fixture);
}

#define THREADS 3
#define EACH 3000

struct worker {
	struct volume *vol;
	u64 numbers[EACH];
	u64 seed;
};

/* Makes numbers and gives some back, all over a few windows. */
static void *work(void *ctx)
{
	struct worker *worker = ctx;
	u64 random = worker->seed;
	u32 i;

	test_in_thread = true;
	for (i = 0; i < EACH; i++) {
		u64 parent = TUX3_INO_FIRST + test_below(&random, 20 * WINDOW);

		check(!number_for(worker->vol, parent, 0, !test_below(&random, 100), &worker->numbers[i]));
		if (!test_below(&random, 4)) {
			ialloc_free(worker->vol, worker->numbers[i]);
			i--;
		}
	}
	return NULL;
}

static int compare_numbers(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static void test_threads(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	struct worker *workers = calloc(THREADS, sizeof(*workers));
	u64 *all = calloc(THREADS * EACH, sizeof(*all)), i;
	pthread_t threads[THREADS];

	begin("test_threads", 1);
	for (i = 0; i < 20 * WINDOW; i += 7)
		set_items(vol, TUX3_INO_FIRST + i, TUX3_ITEM_ATTR, 1);
	for (i = 0; i < THREADS; i++) {
		workers[i].vol = vol;
		workers[i].seed = test_seed + i * 1000;
		check(!pthread_create(&threads[i], NULL, work, &workers[i]));
	}
	/* The back end deletes inodes meanwhile. */
	for (i = 0; i < 20 * WINDOW; i += 7 * 5) {
		mutex_lock(&vol->delta.commit_mutex);
		check(!ialloc_hold(vol, TUX3_INO_FIRST + i));
		mutex_unlock(&vol->delta.commit_mutex);
		remove_inode(vol, TUX3_INO_FIRST + i);
		ialloc_free(vol, TUX3_INO_FIRST + i);
	}
	for (i = 0; i < THREADS; i++) {
		check(!pthread_join(threads[i], NULL));
		memcpy(all + i * EACH, workers[i].numbers, sizeof(workers[i].numbers));
	}
	qsort(all, THREADS * EACH, sizeof(*all), compare_numbers);
	for (i = 0; i + 1 < THREADS * EACH; i++)
		check(all[i] != all[i + 1]);
	/* What was deleted is free again, unless somebody took it. */
	for (i = 0; i < 20 * WINDOW; i += 7) {
		u64 ino = TUX3_INO_FIRST + i;
		bool taken = bsearch(&ino, all, THREADS * EACH, sizeof(*all), compare_numbers);

		check(ialloc_test(vol, ino) == (taken || i % 35 ? 1 : 0));
	}
	free(workers);
	free(all);
	close_volume(fixture);
}

/* ---- what a directory holds for its files ---- */

static u64 new_child(struct tux3_inode *dir)
{
	u64 ino;

	check(!ialloc_new(dir, false, &ino));
	check(ialloc_test(dir->vol, ino) == 1);
	return ino;
}

static void test_children(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	struct tux3_inode dir = { .vol = vol, .ino = 5000 }, other = { .vol = vol, .ino = 5000 };
	u64 i;

	begin("test_children", 1);
	check(new_child(&dir) == 5001);		/* it may stay the only one */
	check(!ialloc_test(vol, 5002));
	check(new_child(&dir) == 5002);
	check(ialloc_test(vol, 5003) == 1 && ialloc_test(vol, 5017) == 1 && !ialloc_test(vol, 5018));
	check(new_child(&other) == 5018);	/* behind those */
	for (i = 5003; i <= 5017; i++)
		check(new_child(&dir) == i);
	check(new_child(&dir) == 5019);
	check(new_child(&dir) == 5020);
	ialloc_give_back(&dir);
	check(ialloc_test(vol, 5020) == 1 && !ialloc_test(vol, 5021));
	check(new_child(&other) == 5021);
	/* None that the tree has. */
	set_items(vol, 5040, TUX3_ITEM_ATTR, 1);
	ialloc_give_back(&other);
	forget(vol);
	dir = (struct tux3_inode){ .vol = vol, .ino = 5030 };
	for (i = 5031; i < 5040; i++)
		check(new_child(&dir) == i);
	check(new_child(&dir) == 5041);
	ialloc_give_back(&dir);
	ialloc_give_back(&dir);			/* has none */
	close_volume(fixture);
}

/* Which numbers from `from` on have inodes that the tree need not have: as a text of so many. */
static const char *held_text(struct volume *vol, u64 from, u32 count, u64 *to)
{
	unsigned long bits[IALLOC_WINDOW_NUMBERS / BITS_PER_LONG];
	static char text[64];
	u64 first;
	u32 i;

	*to = ialloc_held(vol, from, &first, bits);
	for (i = 0; i < count; i++)
		text[i] = from + i >= first && from + i < first + IALLOC_WINDOW_NUMBERS && test_bit(from + i - first, bits) ?
			  '#' : '.';
	text[count] = 0;
	return text;
}

static void held(struct volume *vol, u64 from, const char *text, u64 to)
{
	u64 found;

	check(!strcmp(held_text(vol, from, strlen(text), &found), text));
	check(found == to);
}

/* What a directory holds for its next files is no inode's, until it gives it to one. */
static void test_held(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	struct tux3_inode dir = { .vol = vol, .ino = 5000 }, far = { .vol = vol, .ino = 40 * 4096 - 10 };
	u64 i;

	begin("test_held", 1);
	held(vol, 1, "...", TUX3_INO_MAX);
	new_child(&dir);
	held(vol, 5000, ".#.", 8191);
	held(vol, 1, "...", 8191);
	new_child(&dir);
	held(vol, 5000, ".##.................", 8191);
	new_child(&dir);
	held(vol, 5000, ".###................", 8191);
	for (i = 5004; i <= 5017; i++)
		new_child(&dir);
	held(vol, 5000, ".#################..", 8191);
	/* Now it takes others, from another window, as this one is full. */
	for (i = 5018; i < 8192; i++)
		check(!ialloc_mark(vol, i));
	check(new_child(&dir) == 8192);
	check(new_child(&dir) == 8193);
	held(vol, 8192, "##..", 12287);
	held(vol, 8190, "##", 8191);
	ialloc_free(vol, 8191);
	held(vol, 8190, "#.", 8191);
	/* Windows of which only directories hold numbers are passed over. */
	new_child(&far);
	ialloc_free(vol, far.ino + 1);
	held(vol, 12288, "...", TUX3_INO_MAX);
	new_child(&far);
	new_child(&far);
	held(vol, 40 * 4096 - 10, "..##.", 40 * 4096 - 1);
	held(vol, 12288, "...", 40 * 4096 - 1);
	ialloc_give_back(&dir);
	held(vol, 8192, "##..", 12287);
	ialloc_give_back(&far);
	/* The window goes, and those that were in its list do not mind. */
	for (i = 5001; i < 8191; i++)
		ialloc_free(vol, i);
	dir = (struct tux3_inode){ .vol = vol, .ino = 20 * 4096 };
	for (i = 0; i < 17; i++)
		new_child(&dir);
	vol->ialloc.windows_max = 0;
	for (i = 1; i < 18; i++)
		ialloc_free(vol, 20 * 4096 + i);
	check(new_child(&dir) == 20 * 4096 + 18);
	new_child(&dir);
	ialloc_exit(vol);
	ialloc_give_back(&dir);
	ialloc_init(vol);
	close_volume(fixture);
}

struct children {
	struct tux3_inode *dir;
	u64 numbers[EACH];
};

static void *make_children(void *ctx)
{
	struct children *children = ctx;
	u32 i;

	test_in_thread = true;
	for (i = 0; i < EACH; i++)
		check(!ialloc_new(children->dir, false, &children->numbers[i]));
	return NULL;
}

/* O_TMPFILE takes no lock of the directory. */
static void test_children_of_one(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	struct tux3_inode dir = { .vol = vol, .ino = TUX3_INO_FIRST };
	struct children *children = calloc(THREADS, sizeof(*children));
	u64 *all = calloc(THREADS * EACH, sizeof(*all)), i;
	pthread_t threads[THREADS];

	begin("test_children_of_one", 1);
	for (i = 0; i < THREADS; i++) {
		children[i].dir = &dir;
		check(!pthread_create(&threads[i], NULL, make_children, &children[i]));
	}
	for (i = 0; i < THREADS; i++) {
		check(!pthread_join(threads[i], NULL));
		memcpy(all + i * EACH, children[i].numbers, sizeof(children[i].numbers));
	}
	ialloc_give_back(&dir);
	qsort(all, THREADS * EACH, sizeof(*all), compare_numbers);
	for (i = 0; i + 1 < THREADS * EACH; i++)
		check(all[i] != all[i + 1]);
	/* Nothing else is held: the others are free. */
	for (i = TUX3_INO_FIRST + 1; i < all[THREADS * EACH - 1] + 100; i++)
		check(ialloc_test(vol, i) == !!bsearch(&i, all, THREADS * EACH, sizeof(*all), compare_numbers));
	for (i = 0; i < THREADS * EACH; i++)
		ialloc_free(vol, all[i]);
	free(children);
	free(all);
	close_volume(fixture);
}

struct race {
	struct volume *vol;
	u64 ino;
	u32 *ready;
};

static void race_start(u32 *ready)
{
	__atomic_add_fetch(ready, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(ready, __ATOMIC_ACQUIRE) < 3)
		sched_yield();
}

static void *fill_window(void *ctx)
{
	struct race *race = ctx;

	test_in_thread = true;
	race_start(race->ready);
	check(ialloc_test(race->vol, race->ino) >= 0);
	return NULL;
}

/* A number is given back while two threads fill its window: it must be free, and the window be there once. */
static void test_free_while_filling(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	pthread_t threads[2];
	u32 i, t;

	begin("test_free_while_filling", 2);
	set_items(vol, 10 * WINDOW, TUX3_ITEM_ATTR, 1);
	for (i = 0; i < WINDOW; i++)
		set_items(vol, 10 * WINDOW + i, TUX3_ITEM_ATTR, 1);
	for (i = 0; i < 1000; i++) {
		u64 ino = 10 * WINDOW + test_below(&rng, WINDOW);
		u32 ready = 0, pause = test_below(&rng, 3000);
		struct race race = { vol, ino, &ready };

		forget(vol);
		for (t = 0; t < 2; t++)
			check(!pthread_create(&threads[t], NULL, fill_window, &race));
		race_start(&ready);
		while (pause--)
			__asm__ volatile("" ::: "memory");
		remove_inode(vol, ino);
		ialloc_free(vol, ino);
		for (t = 0; t < 2; t++)
			check(!pthread_join(threads[t], NULL));
		check(ialloc_test(vol, ino) == 0);
		check(vol->ialloc.count == 1);
		set_items(vol, ino, TUX3_ITEM_ATTR, 1);
	}
	close_volume(fixture);
}

/* ---- how many windows there are ---- */

/* Directories made and removed, over and over: what is in memory does not grow, and no number is given out twice. */
static void test_windows_go(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	u64 kept[64], i, k, count = 0, most = 0;

	begin("test_windows_go", 3);
	vol->ialloc.windows_max = 8;
	for (i = 0; i < 40000; i++) {
		u64 ino = new_number(vol, TUX3_INO_ROOT, 0, true);

		most = max(most, vol->ialloc.count);
		for (k = 0; k < count; k++)
			check(kept[k] != ino);
		if (i % 1000 < 990 || count == ARRAY_SIZE(kept)) {	/* it vanishes */
			ialloc_free(vol, ino);
			continue;
		}
		set_items(vol, ino, TUX3_ITEM_ATTR, 1);
		mutex_lock(&vol->delta.commit_mutex);
		ialloc_settle(vol, ino);
		ialloc_settle_all(vol);
		mutex_unlock(&vol->delta.commit_mutex);
		kept[count++] = ino;
	}
	check(kept[count - 1] > 40 * WINDOW);
	check(most <= 10 && vol->ialloc.count <= 8);
	for (k = 0; k < count; k++)
		check(ialloc_test(vol, kept[k]) == 1);
	check(vol->ialloc.count <= 9);
	close_volume(fixture);
}

/* Of a window with a number that is not in the tree the tree does not know all: it stays. */
static void test_windows_stay(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	u64 first, ino, i;

	begin("test_windows_stay", 0);
	vol->ialloc.windows_max = 4;
	first = new_number(vol, TUX3_INO_ROOT, 0, true);
	for (i = 0; i < 5000; i++) {
		ino = new_number(vol, TUX3_INO_ROOT, 0, true);
		check(ino != first);
		ialloc_free(vol, ino);
	}
	check(ialloc_test(vol, first) == 1);
	check(new_number(vol, first - 1, 0, false) == first + 1);
	close_volume(fixture);
}

/* A number whose items have gone from the tree is in use until it is given back, also if its window comes only then. */
static void test_dying_numbers(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	u64 ino = 20 * WINDOW + 5;
	u32 round;

	begin("test_dying_numbers", 0);
	for (round = 0; round < 3; round++) {
		set_items(vol, ino, TUX3_ITEM_ATTR, 1);
		forget(vol);
		if (round == 1)
			check(ialloc_test(vol, ino + 1) == 0);	/* the window is in memory */
		mutex_lock(&vol->delta.commit_mutex);
		check(!ialloc_hold(vol, ino));
		mutex_unlock(&vol->delta.commit_mutex);
		remove_inode(vol, ino);
		if (round < 2)
			check(new_number(vol, ino - 1, 0, false) == ino + 1);
		ialloc_free(vol, ino);
		check(vol->ialloc.count == (round < 2 ? 1 : 0));
		check(ialloc_test(vol, ino) == 0);
		check(new_number(vol, ino - 1, 0, false) == ino);
	}
	close_volume(fixture);
}

/* Behind the last number directories begin anew, and pass over what is in use. */
static void test_directories_wrap(void **unused)
{
	struct tree_fixture *fixture = open_volume();
	struct volume *vol = &fixture->vol;
	u64 i;

	begin("test_directories_wrap", 0);
	set_items(vol, TUX3_INO_FIRST + 20, TUX3_ITEM_ATTR, 1);
	set_items(vol, 64, TUX3_ITEM_ATTR, 1);
	set_items(vol, TUX3_INO_MAX - 100, TUX3_ITEM_ATTR, 1);
	for (i = 0; i < 3; i++)
		check(new_number(vol, TUX3_INO_ROOT, 0, true) == TUX3_INO_MAX + 1 - 96 + 32 * i);
	check(new_number(vol, TUX3_INO_ROOT, 0, true) == 96);
	check(new_number(vol, TUX3_INO_ROOT, 0, true) == 128);
	close_volume(fixture);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first),
		cmocka_unit_test(test_last),
		cmocka_unit_test(test_random_numbers),
		cmocka_unit_test(test_locality),
		cmocka_unit_test(test_fill_speed),
		cmocka_unit_test(test_full_windows),
		cmocka_unit_test(test_few_windows_are_read),
		cmocka_unit_test(test_memory_faults),
		cmocka_unit_test(test_bad_blocks),
		cmocka_unit_test(test_window_goes_while_filled),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_children),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_children_of_one),
		cmocka_unit_test(test_free_while_filling),
		cmocka_unit_test(test_windows_go),
		cmocka_unit_test(test_windows_stay),
		cmocka_unit_test(test_dying_numbers),
		cmocka_unit_test(test_directories_wrap),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
