/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A formula of costs that gives too little is found: each of those that the simulator does not find (tests/run has its canaries) is
 * made cheaper here, by the least that is found.  What is less than that is slack by design; DESIGN 9 says why.
 */
#include <linux/falloc.h>
#include "support_lib.h"

#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/inode/inode.h"
#include "log.h"
#include "user/lib/lib.h"

#define BLOCK 4096u
#define FILES 3200u

static char messages[4096];

static void keep_messages(int level, const char *message)
{
	size_t used = strlen(messages);

	snprintf(messages + used, sizeof(messages) - used, "%s\n", message);
}

static struct volume *core(struct bed *bed)
{
	return tux3_core(bed->volume);
}

static s64 overdrafts(struct bed *bed)
{
	return delta_counter(core(bed), TUX3_COUNT_OVERDRAFTS);
}

static void cheapen(struct bed *bed, enum space_formula formula, u32 less)
{
	core(bed)->opts.cheap = formula;
	core(bed)->opts.cheap_by = less;
}

static void commit_tight(struct bed *bed)
{
	core(bed)->space.want_tight = true;
	assert_ok(delta_commit(core(bed)));
}

static void begin(struct bed *bed)
{
	*bed = (struct bed){ .opts = { .manual = true, .costs = true } };
	bed_make(bed, 64 << 20, BLOCK);
	messages[0] = 0;
	env_set_log(keep_messages);
}

static void end(struct bed *bed)
{
	cheapen(bed, SPACE_RIGHT, 0);
	env_set_log(NULL);
	bed_free(bed);
}

/* ---- what is kept ---- */

/* With so much left, is there room for a rename? */
static bool has_room(struct bed *bed, s64 left, unsigned int flags)
{
	struct space *space = &core(bed)->space;
	s64 balance = atomic64_read(&space->balance), charged;
	u64 cost = space_cost_replace(core(bed), TUX3_NAME_MAX, TUX3_NAME_MAX);
	struct delta_op op;
	int err;

	atomic64_set(&space->balance, left);
	err = delta_enter(core(bed), &op, cost, flags | DELTA_NOWAIT);
	assert_true(!err || err == -EAGAIN);
	if (!err) {
		delta_refund(&op, cost, 0);
		delta_leave(&op);
	}
	charged = left - atomic64_read(&space->balance);
	assert_int_equal(charged, 0);
	atomic64_set(&space->balance, balance);
	return !err;
}

/*
 * Who keeps has room for a rename when who takes has taken all; who frees has room for one when those who keep have taken what is
 * kept for them.  For these a block less is too little.  For who keeps four items and a name more are kept than that: see space.c.
 */
static void test_what_is_kept_is_as_much_as_it_takes(void **state)
{
	static const struct {
		enum space_formula formula;
		unsigned int flags;
		u32 spare_items, spare_names;
	} cases[] = {
		{ SPACE_CHEAP_FREES, DELTA_FREES, 0, 0 },
		{ SPACE_CHEAP_KEEPS, DELTA_KEEPS, 4, 1 },
	};
	struct volume *vol;
	struct bed bed;
	char path[20];
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		bool frees = cases[i].flags == DELTA_FREES;
		u64 spare, rename;

		begin(&bed);
		vol = core(&bed);
		for (k = 0; k < FILES; k++) {
			snprintf(path, sizeof(path), "/%u", k);
			tux3_node_put(bed_file(&bed, path), 1);
		}
		assert_ok(delta_commit_unify(vol));
		commit_tight(&bed);
		tux3_node_put(bed_file(&bed, "/more"), 1);
		commit_tight(&bed);
		rename = space_cost_replace(vol, TUX3_NAME_MAX, TUX3_NAME_MAX);
		spare = space_full_price(vol, rename + space_cost_items(vol, cases[i].spare_items) +
					 cases[i].spare_names * space_cost_name(TUX3_NAME_MAX)) - space_full_price(vol, rename);
		assert_true(has_room(&bed, frees ? -(s64)vol->space.keeps : 0, cases[i].flags));
		for (k = 1; k <= spare + 1; k += max_t(u32, spare, 1)) {
			bool room;

			cheapen(&bed, cases[i].formula, k);
			tux3_node_put(bed_file(&bed, k == 1 ? "/one" : "/two"), 1);
			commit_tight(&bed);
			room = has_room(&bed, frees ? -(s64)vol->space.keeps : 0, cases[i].flags);
			assert_int_equal(room, k <= spare);
			cheapen(&bed, SPACE_RIGHT, 0);
		}
		end(&bed);
	}
}

/* ---- what is taken ---- */

static struct tux3_node *file;

static void have_files(struct bed *bed)
{
	char path[20];
	u32 k;

	for (k = 0; k < FILES; k++) {
		snprintf(path, sizeof(path), "/%u", k);
		tux3_node_put(bed_file(bed, path), 1);
	}
}

/* A leaf for each. */
static void change_leaves(struct bed *bed)
{
	struct tux3_node *node;
	char path[20];
	u32 k;

	for (k = 0; k < FILES; k += 40) {
		snprintf(path, sizeof(path), "/%u", k);
		node = bed_file(bed, path);
		assert_ok(tux3_setattr(node, NULL, &(struct tux3_stat){ .mode = 0600 }, TUX3_SET_MODE));
		tux3_node_put(node, 1);
	}
}

/* No two free blocks are neighbours. */
static void have_comb(struct bed *bed)
{
	static u8 data[64 * BLOCK];
	struct tux3_node *node = bed_file(bed, "/comb");
	u64 at, len, end = 0;

	for (len = sizeof(data); len >= BLOCK; len /= 2)
		while (tux3_write(node, data, len, end) == (long long)len)
			end += len;
	assert_ok(tux3_sync(bed->volume));
	for (at = 0; at < 8000 * (u64)BLOCK; at += 2 * BLOCK)
		assert_ok(tux3_fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, BLOCK));
	tux3_node_put(node, 1);
	file = bed_file(bed, "/file");
	assert_ok(tux3_sync(bed->volume));
}

static void write_comb(struct bed *bed)
{
	static u8 data[900 * BLOCK];

	assert_int_equal(tux3_write(file, data, sizeof(data), 0), sizeof(data));
	tux3_node_put(file, 1);
}

static bool is_caught(void (*prepare)(struct bed *bed), void (*run)(struct bed *bed), enum space_formula formula, u32 less)
{
	struct bed bed;
	bool caught;

	begin(&bed);
	prepare(&bed);
	assert_ok(delta_commit_unify(core(&bed)));
	commit_tight(&bed);
	tux3_node_put(bed_file(&bed, "/more"), 1);
	commit_tight(&bed);
	if (overdrafts(&bed))
		fail_msg("before: %s", messages);
	cheapen(&bed, formula, less);
	run(&bed);
	commit_tight(&bed);
	caught = overdrafts(&bed);
	atomic64_set(&core(&bed)->counters[TUX3_COUNT_OVERDRAFTS], 0);
	end(&bed);
	return caught;
}

static void test_a_formula_that_gives_too_little_is_found(void **state)
{
	static const struct {
		enum space_formula formula;
		void (*prepare)(struct bed *bed), (*run)(struct bed *bed);
		u32 less;	/* is found */
	} cases[] = {
		{ SPACE_CHEAP_PATH, have_files, change_leaves, 2 },
		{ SPACE_CHEAP_EXTENTS, have_comb, write_comb, 100 },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_false(is_caught(cases[i].prepare, cases[i].run, SPACE_RIGHT, 0));
		assert_true(is_caught(cases[i].prepare, cases[i].run, cases[i].formula, cases[i].less));
	}
}

/* ---- what quotas take ---- */

#define OWNERS 4000u

static void make_of(struct tux3_node *dir, u32 id, const char *name)
{
	const struct tux3_cred cred = { .uid = id, .gid = id, .capable = true };
	struct tux3_node *node;

	assert_ok(tux3_mknod(dir, &cred, name, S_IFREG | 0644, 0, 0, &node));
	assert_int_equal(tux3_write(node, "some", 4, 0), 4);
	tux3_node_put(node, 1);
}

/*
 * In a tight delta, files in a directory that is new in it take no path: but what their owners use is counted in many leaves, for
 * which somebody has to pay.
 */
static void test_new_files_pay_for_the_quotas_of_their_owners(void **state)
{
	struct bed bed = { .opts = { .manual = true, .costs = true }, .quota = true };
	struct tux3_node *dir;
	char name[20];
	u32 id;

	bed_make(&bed, 64 << 20, BLOCK);
	messages[0] = 0;
	env_set_log(keep_messages);
	for (id = 1; id <= OWNERS; id++) {
		snprintf(name, sizeof(name), "%u", id);
		make_of(bed.root, id, name);
	}
	assert_ok(delta_commit_unify(core(&bed)));
	commit_tight(&bed);
	make_of(bed.root, 1, "more");
	commit_tight(&bed);
	assert_ok(tux3_mknod(bed.root, NULL, "dir", S_IFDIR | 0755, 0, 0, &dir));
	for (id = 1; id <= OWNERS; id += 20) {
		snprintf(name, sizeof(name), "%u", id);
		make_of(dir, id, name);
	}
	assert_ok(delta_commit(core(&bed)));
	if (overdrafts(&bed))
		fail_msg("%s", messages);
	tux3_node_put(dir, 1);
	end(&bed);
}

/* In each tight delta, of each owner, whoever comes first. */
static void test_who_writes_pays_for_the_quotas_of_an_owner_once(void **state)
{
	struct bed bed = { .opts = { .manual = true, .costs = true }, .quota = true };
	static u8 data[BLOCK];
	struct tux3_node *node;
	char name[20];
	u32 id, n, twice;
	s64 balance[3];

	bed_make(&bed, 64 << 20, BLOCK);
	messages[0] = 0;
	env_set_log(keep_messages);
	for (id = 1; id <= OWNERS; id++) {
		snprintf(name, sizeof(name), "%u", id);
		make_of(bed.root, id, name);
	}
	assert_ok(delta_commit_unify(core(&bed)));
	commit_tight(&bed);
	make_of(bed.root, 1, "more");
	commit_tight(&bed);
	for (n = 1; n < 4; n++) {
		assert_true(space_is_tight(&core(&bed)->space, core(&bed)->delta.front));
		for (id = 1; id <= OWNERS; id += 40)
			for (twice = 0; twice < 2; twice++) {
				snprintf(name, sizeof(name), "/%u", id);
				assert_ok(tux3_path(bed.volume, NULL, name, 0, 0, &node));
				balance[twice] = space_balance(core(&bed));
				assert_int_equal(tux3_write(node, data, BLOCK, (u64)(4 * n + 2 * twice) * BLOCK), BLOCK);
				balance[twice + 1] = space_balance(core(&bed));
				tux3_node_put(node, 1);
				if (twice && balance[0] - balance[1] <= balance[1] - balance[2] + 6)
					fail_msg("the first write of an owner was charged %lld blocks, the second one %lld",
						 (long long)(balance[0] - balance[1]), (long long)(balance[1] - balance[2]));
			}
		commit_tight(&bed);
		if (overdrafts(&bed))
			fail_msg("%s", messages);
	}
	end(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_kept_is_as_much_as_it_takes),
		cmocka_unit_test(test_a_formula_that_gives_too_little_is_found),
		cmocka_unit_test(test_new_files_pay_for_the_quotas_of_their_owners),
		cmocka_unit_test(test_who_writes_pays_for_the_quotas_of_an_owner_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
