// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fsync ahead of the delta, with names: saves, backups, links; and what must not go ahead.  Each is looked at after a crash.  The
 * simulator has more of them (families "saves" and "ahead", threads).
 */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>
#include "support_intent.h"
#include "user/lib/lib.h"
#include "core/names/name_change.h"
#include "core/open.h"

/* ---- what goes ahead ---- */

static void test_a_save_by_rename(void **state)
{
	struct tux3_statfs before, after;
	struct bed bed = {};
	u32 i;

	begin(&bed);
	assert_ok(tux3_statfs(bed.volume, &before));
	for (i = 0; i < 6; i++) {
		new_and_gone(&bed, "dir/tmp", 10 + i, true);
		rename_path(&bed, "dir/tmp", "dir/a", 0);
		assert_true(path_ahead(&bed, i % 2 ? "dir/a" : "dir"));
	}
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 12);
	assert_file(&bed, "dir/a", 15, 1);
	assert_file(&bed, "dir/tmp", 0, 0);
	/* What was replaced is gone, with its blocks. */
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_statfs(bed.volume, &after));
	assert_int_equal(after.inodes, before.inodes);
	assert_in_range(after.free_blocks, before.free_blocks - 20, before.free_blocks + 400);
	bed_free(&bed);
}

/* Names that an intent has made durable, the file's own or its directory's, are not said again when it is synced once more. */
static void test_a_renamed_file_is_synced_again(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	u32 i;

	begin(&bed);
	for (i = 0; i < 4; i++) {
		new_and_gone(&bed, "dir/tmp", 10 + i, true);
		rename_path(&bed, "dir/tmp", i < 3 ? "dir/a" : "dir/a.1", 0);
		assert_true(path_ahead(&bed, i % 2 ? "dir/a" : "dir"));
		node = bed_find(&bed, i < 3 ? "dir/a" : "dir/a.1");
		fill(node, 0, 5000, 20 + i);
		assert_true(synced_ahead(&bed, node));
		fill(node, 0, 5000, 30 + i);
		assert_true(synced_ahead(&bed, node));
		tux3_node_put(node, 1);
	}
	bed_crash(&bed);
	assert_file(&bed, "dir/a", 32, 1);
	assert_file(&bed, "dir/a.1", 33, 1);
	assert_file(&bed, "dir/tmp", 0, 0);
	bed_free(&bed);
}

/* In one delta: the file is moved away, and made anew under its name. */
static void test_a_backup_and_a_new_file(void **state)
{
	struct bed bed = {};

	begin(&bed);
	rename_path(&bed, "dir/a", "other/a.1", 0);
	new_and_gone(&bed, "dir/a", 11, true);
	new_and_gone(&bed, "dir/n", 20, true);
	rename_path(&bed, "dir/n", "dir/n.1", 0);
	new_and_gone(&bed, "dir/n", 21, true);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/b"));
	new_and_gone(&bed, "dir/b", 12, true);
	bed_crash(&bed);
	assert_file(&bed, "other/a.1", 1, 1);
	assert_file(&bed, "dir/a", 11, 1);
	assert_file(&bed, "dir/b", 12, 1);
	assert_file(&bed, "dir/n", 21, 1);
	assert_file(&bed, "dir/n.1", 20, 1);
	bed_free(&bed);
}

static void test_links_and_removals(void **state)
{
	struct bed bed = {};
	struct tux3_node *a;

	begin(&bed);
	a = bed_find(&bed, "dir/a");
	assert_ok(tux3_link(a, NULL, bed.root, "linked"));
	assert_true(synced_ahead(&bed, a));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/a"));
	assert_true(path_ahead(&bed, "dir"));
	tux3_node_put(a, 1);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "other/c"));
	assert_true(path_ahead(&bed, "other"));
	rename_path(&bed, "dir/b", "linked", TUX3_RENAME_EXCHANGE);
	assert_true(path_ahead(&bed, "linked"));
	bed_crash(&bed);
	assert_file(&bed, "dir/a", 0, 0);
	assert_file(&bed, "linked", 2, 1);
	assert_file(&bed, "dir/b", 1, 1);
	assert_file(&bed, "other/c", 0, 0);
	bed_free(&bed);
}

/* Without a name at first; in the durable tree, too, as an orphan. */
static void test_nameless_files_get_names(void **state)
{
	struct tux3_node *dir, *one, *two;
	struct bed bed = {};

	begin(&bed);
	dir = bed_find(&bed, "dir");
	assert_ok(tux3_tmpfile(dir, NULL, 0600, &one));
	fill(one, 0, 5000, 31);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_tmpfile(dir, NULL, 0600, &two));
	fill(two, 0, 5000, 32);
	assert_ok(tux3_link(one, NULL, dir, "one"));
	assert_ok(tux3_link(two, NULL, dir, "two"));
	assert_true(synced_ahead(&bed, one));
	assert_true(synced_ahead(&bed, two));
	tux3_node_put(one, 1);
	tux3_node_put(two, 1);
	tux3_node_put(dir, 1);
	bed_crash(&bed);
	assert_file(&bed, "dir/one", 31, 1);
	assert_file(&bed, "dir/two", 32, 1);
	bed_reopen(&bed);
	assert_file(&bed, "dir/one", 31, 1);
	bed_free(&bed);
}

/* The name that a file was made with, lost and got again: an intent in between says where it is. */
static void test_there_and_back(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	begin(&bed);
	node = new_file(&bed, "dir/x", 40);
	rename_path(&bed, "dir/x", "dir/z", 0);
	assert_true(synced_ahead(&bed, node));
	rename_path(&bed, "dir/z", "dir/x", 0);
	assert_true(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_file(&bed, "dir/x", 40, 1);
	assert_file(&bed, "dir/z", 0, 0);
	bed_free(&bed);
}

/* What went ahead before is left out: however many saves there are in a directory, each says two names. */
static void test_closures_do_not_grow(void **state)
{
	struct bed bed = {};
	char tmp[20], name[20];
	u64 blocks;
	u32 i;

	begin(&bed);
	blocks = counted(&bed, TUX3_COUNT_INTENT_BLOCKS);
	for (i = 0; i < 40; i++) {
		snprintf(tmp, sizeof(tmp), "dir/tmp%u", i);
		snprintf(name, sizeof(name), "dir/%u", i);
		new_and_gone(&bed, tmp, 1 + i, true);
		rename_path(&bed, tmp, name, 0);
		assert_true(path_ahead(&bed, "dir"));
	}
	assert_int_equal(counted(&bed, TUX3_COUNT_INTENT_BLOCKS) - blocks, 40 * (1 + 2 + 1));
	bed_crash(&bed);
	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "dir/%u", i);
		assert_file(&bed, name, 1 + i, 1);
	}
	bed_free(&bed);
}

static struct tux3_stat stat_of(struct bed *bed, const char *path)
{
	struct tux3_node *node = bed_find(bed, path);
	struct tux3_stat stat;

	assert_ok(tux3_stat_node(node, &stat));
	tux3_node_put(node, 1);
	return stat;
}

/* Locks and the like, which a crash cannot bring back: but for its times nothing of the directory has changed. */
static void test_names_made_and_removed(void **state)
{
	struct bed bed = {};
	struct tux3_stat before, after;
	struct tux3_node *dir;
	char name[20];
	u64 ahead;
	u32 i;

	begin(&bed);
	dir = bed_find(&bed, "dir");
	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "dir/lock%u", i);
		new_and_gone(&bed, name, 40, false);
		assert_ok(tux3_path_unlink(bed.volume, NULL, name));
	}
	rename_path(&bed, "dir/a", "dir/lock", 0);
	rename_path(&bed, "dir/lock", "dir/a", 0);
	assert_true(synced_ahead(&bed, dir));
	/* Nothing is left to say, until there is another one. */
	ahead = counted(&bed, TUX3_COUNT_FSYNCS_AHEAD);
	assert_ok(tux3_fsync(dir, false));
	assert_int_equal(counted(&bed, TUX3_COUNT_FSYNCS_AHEAD), ahead);
	new_and_gone(&bed, "dir/lock0", 40, false);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/lock0"));
	assert_true(synced_ahead(&bed, dir));
	before = stat_of(&bed, "dir");
	tux3_node_put(dir, 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 2);
	after = stat_of(&bed, "dir");
	assert_int_equal(after.mtime.tv_sec, before.mtime.tv_sec);
	assert_int_equal(after.mtime.tv_nsec, before.mtime.tv_nsec);
	assert_file(&bed, "dir/lock0", 0, 0);
	assert_file(&bed, "dir/a", 1, 1);
	bed_free(&bed);
}

static void look_at_new_files(struct bed *bed)
{
	assert_file(bed, "dir/new", 21, 1);
	assert_file(bed, "dir/newer", 22, 1);
	assert_file(bed, "dir/a", 0, 0);
	bed_check(bed);
}

/*
 * New files of others, which are still to be synced, go along with their directory: two of them, each as it is then, and with the
 * name that it was made with.
 */
static void test_new_files_go_along(void **state)
{
	struct tux3_node *node, *dir;
	struct bed bed = {};
	pthread_t commit;
	char name[20];
	u32 i;

	begin(&bed);
	node = new_file(&bed, "dir/new", 21);
	new_and_gone(&bed, "dir/newer", 22, false);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/a"));
	assert_true(path_ahead(&bed, "dir"));
	fill(node, 0, 10, 1);			/* what comes then does not count before it is synced */
	assert_image(&bed, 3, look_at_new_files);
	/* Beside the commit of that: on whichever base. */
	hold_commit(&bed, &commit);
	new_and_gone(&bed, "dir/last", 24, false);
	assert_true(path_ahead(&bed, "dir"));
	fill(node, 0, 5000, 31);
	assert_true(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	let_commit(&bed, commit, NULL);
	bed_crash(&bed);
	assert_file(&bed, "dir/new", 31, 1);
	assert_file(&bed, "dir/newer", 22, 1);
	assert_file(&bed, "dir/last", 24, 1);
	/* Three are too many; and one that has got another name, or two, is not said by the first. */
	for (i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "dir/%u", i);
		new_and_gone(&bed, name, 41 + i, false);
	}
	assert_false(path_ahead(&bed, "dir"));
	new_and_gone(&bed, "dir/moved", 44, false);
	rename_path(&bed, "dir/moved", "dir/there", 0);
	assert_false(path_ahead(&bed, "dir"));
	node = new_file(&bed, "dir/linked", 45);
	dir = bed_find(&bed, "dir");
	assert_ok(tux3_link(node, NULL, dir, "twice"));
	assert_false(synced_ahead(&bed, dir));
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	bed_crash(&bed);
	assert_file(&bed, "dir/2", 43, 1);
	assert_file(&bed, "dir/there", 44, 1);
	assert_file(&bed, "dir/twice", 45, 2);
	bed_free(&bed);
}

/* ---- what does not ---- */

/* A crash would lose the old file and the new one. */
static void test_a_new_file_that_was_never_synced(void **state)
{
	struct bed bed = {};

	begin(&bed);
	new_and_gone(&bed, "dir/tmp", 10, false);
	rename_path(&bed, "dir/tmp", "dir/a", 0);
	assert_false(path_ahead(&bed, "dir"));
	new_and_gone(&bed, "dir/tmp", 11, false);
	rename_path(&bed, "dir/tmp", "dir/a", 0);
	rename_path(&bed, "dir/a", "dir/a.1", 0);
	new_and_gone(&bed, "dir/a", 12, true);		/* which the one before never had in the durable tree */
	bed_crash(&bed);
	assert_file(&bed, "dir/a", 12, 1);
	assert_file(&bed, "dir/a.1", 0, 0);
	bed_free(&bed);
}

/* What made the file another one since it was durable. */
static void change_file(struct bed *bed, struct tux3_node *node, u32 how)
{
	struct tux3_stat stat = { .mode = 0600 };

	switch (how) {
	case 0:
		fill(node, 0, 5000, 20);
		break;
	case 1:
		fill(node, 5000, 100, 20);
		break;
	case 2:
		assert_ok(tux3_truncate(node, 100));
		break;
	case 3:
		assert_ok(tux3_setxattr(node, NULL, "user.x", "x", 1, 0));
		break;
	default:
		assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
	}
}

static void assert_changed(struct bed *bed, const char *path, u32 how)
{
	struct tux3_node *node = bed_find(bed, path);
	struct tux3_stat stat;
	char x;

	assert_non_null(node);
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.size, how == 1 ? 5100 : how == 2 ? 100 : 5000);
	if (how < 2)
		assert_filled(node, how ? 5000 : 0, 100, 20);
	if (how == 3)
		assert_int_equal(tux3_getxattr(node, "user.x", &x, 1), 1);
	if (how == 4)
		assert_int_equal(stat.mode & 07777, 0600);
	tux3_node_put(node, 1);
}

/*
 * What was changed before a file got a name comes before that: it goes along, if an intent can say what it was.  Before the
 * change the file was durable by a commit, or by an fsync (way & 1); the old file is replaced, or moved away (way & 2).
 */
static void test_a_file_that_was_changed_gets_a_name(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	u32 how, way;

	for (way = 0; way < 4; way++) {
		for (how = 0; how < 5; how++) {
			begin(&bed);
			new_and_gone(&bed, "dir/tmp", 10, way & 1);
			if (!(way & 1))
				assert_ok(tux3_sync(bed.volume));
			node = bed_find(&bed, "dir/tmp");
			change_file(&bed, node, how);
			if (way & 2)
				rename_path(&bed, "dir/a", "dir/a.1", 0);
			rename_path(&bed, "dir/tmp", "dir/a", 0);
			assert_int_equal(path_ahead(&bed, way & 2 ? "dir/a.1" : "dir"), how != 2);	/* a part removed is a commit */
			tux3_node_put(node, 1);
			bed_crash(&bed);
			assert_changed(&bed, "dir/a", how);
			bed_free(&bed);
			memset(&bed, 0, sizeof(bed));
		}
	}
}

static void write_path(struct bed *bed, const char *path, u8 value)
{
	struct tux3_node *node = bed_find(bed, path);

	fill(node, 0, 5000, value);
	tux3_node_put(node, 1);
}

/* Two of them go along, and all or none of it is there after a crash; three do not. */
static void test_files_that_were_changed_change_places(void **state)
{
	struct bed bed = {};
	u32 files;

	for (files = 1; files < 4; files++) {
		begin(&bed);
		write_path(&bed, "dir/a", 20);
		if (files > 1)
			write_path(&bed, "dir/b", 30);
		if (files > 2)
			write_path(&bed, "other/c", 40);
		rename_path(&bed, "dir/a", "dir/b", TUX3_RENAME_EXCHANGE);
		rename_path(&bed, "dir/b", "other/c", TUX3_RENAME_EXCHANGE);
		assert_int_equal(path_ahead(&bed, "dir"), files < 3);
		bed_crash(&bed);
		assert_int_equal(tux3_core(bed.volume)->intent.recovered, files < 3 ? files + 1 : 0);
		assert_int_equal(tux3_core(bed.volume)->intent.recovered_beside, files < 3 ? files : 0);
		assert_file(&bed, "dir/a", files > 1 ? 30 : 2, 1);
		assert_file(&bed, "other/c", 20, 1);
		assert_file(&bed, "dir/b", files > 2 ? 40 : 3, 1);
		bed_free(&bed);
		memset(&bed, 0, sizeof(bed));
	}
}

/* The same when an fsync comes in between; and who only loses a name may have been changed. */
static void test_a_file_that_was_synced_gets_a_name(void **state)
{
	struct tux3_node *node, *b;
	struct bed bed = {};
	u32 how;

	for (how = 0; how < 5; how++) {
		begin(&bed);
		b = bed_find(&bed, "dir/b");
		assert_ok(tux3_link(b, NULL, bed.root, "b2"));
		assert_ok(tux3_sync(bed.volume));
		new_and_gone(&bed, "dir/tmp", 10, true);
		node = bed_find(&bed, "dir/tmp");
		change_file(&bed, node, how);
		assert_int_equal(synced_ahead(&bed, node), how != 2);
		tux3_node_put(node, 1);
		rename_path(&bed, "dir/tmp", "dir/a", 0);
		fill(b, 0, 5000, 30);
		assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/b"));
		assert_true(path_ahead(&bed, "dir"));
		tux3_node_put(b, 1);
		bed_crash(&bed);
		assert_changed(&bed, "dir/a", how);
		assert_file(&bed, "dir/b", 0, 0);
		assert_file(&bed, "b2", 2, 1);
		bed_free(&bed);
		memset(&bed, 0, sizeof(bed));
	}
}

/*
 * A name that a file has lost and got again in the delta leads to it after any crash, and so no intent says it; but what was
 * written in between comes before it.
 */
static void test_a_name_that_was_lost_and_got_again(void **state)
{
	struct bed bed = {};
	u32 way;

	for (way = 0; way < 4; way++) {
		begin(&bed);
		if (way & 1) {			/* it was synced in the same delta */
			write_path(&bed, "dir/a", 15);
			assert_true(path_ahead(&bed, "dir/a"));
		}
		rename_path(&bed, "dir/a", "other/m", 0);
		write_path(&bed, "other/m", 20);
		rename_path(&bed, "other/m", "dir/a", 0);
		if (way & 2)
			rename_path(&bed, "dir/b", "dir/b.1", 0);
		assert_false(path_ahead(&bed, "dir"));
		bed_crash(&bed);
		assert_file(&bed, "dir/a", 20, 1);
		assert_file(&bed, way & 2 ? "dir/b.1" : "dir/b", 2, 1);
		bed_free(&bed);
		memset(&bed, 0, sizeof(bed));
	}
}

/* It is a symlink, or another that has no data, whose attributes were changed. */
static void test_what_is_no_file_was_changed(void **state)
{
	struct tux3_stat stat = { .uid = 7 };
	struct tux3_node *node, *dir;
	struct bed bed = {};

	begin(&bed);
	dir = bed_find(&bed, "dir");
	assert_ok(tux3_symlink(dir, NULL, "link", "target", &node));
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_UID));
	rename_path(&bed, "dir/link", "dir/moved", 0);
	assert_false(synced_ahead(&bed, dir));
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	bed_crash(&bed);
	bed_free(&bed);
}

static void test_too_many(void **state)
{
	struct bed bed = {};
	struct tux3_node *a;
	char name[20];
	u32 i;

	begin(&bed);
	a = bed_find(&bed, "dir/a");
	for (i = 0; i < 9; i++) {
		snprintf(name, sizeof(name), "link%u", i);
		assert_ok(tux3_link(a, NULL, bed.root, name));
	}
	assert_false(synced_ahead(&bed, a));
	tux3_node_put(a, 1);
	bed_crash(&bed);
	for (i = 0; i < 9; i++) {
		snprintf(name, sizeof(name), "link%u", i);
		assert_file(&bed, name, 1, 10);
	}
	bed_free(&bed);
}

/* Directories that go, or move; and what is moved beside that. */
static void test_directories_take_a_commit(void **state)
{
	struct bed bed = {};

	begin(&bed);
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "dir/sub", 0755));
	rename_path(&bed, "dir/sub", "dir/moved", 0);
	assert_false(path_ahead(&bed, "dir"));
	rename_path(&bed, "dir/moved", "dir/a", TUX3_RENAME_EXCHANGE);
	assert_false(path_ahead(&bed, "dir/moved"));	/* a, by that name */
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/b"));
	rename_path(&bed, "dir", "other/dir", 0);
	assert_false(path_ahead(&bed, "other/dir"));
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "new", 0755));
	assert_ok(tux3_rmdir(bed.root, NULL, "new"));
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "new", 0755));
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_rmdir(bed.root, NULL, "new"));
	rename_path(&bed, "other/c", "c", 0);
	assert_false(synced_ahead(&bed, bed.root));
	bed_crash(&bed);
	assert_file(&bed, "c", 3, 1);
	assert_null(bed_find(&bed, "new"));
	assert_file(&bed, "other/dir/moved", 1, 1);
	assert_file(&bed, "other/dir/b", 0, 0);
	bed_free(&bed);
}

/* What is synced is found by the path that it was synced by: who has moved a directory above it did that before. */
static void test_a_directory_above_was_moved(void **state)
{
	static const struct { const char *to; u32 flags; const char *file; } cases[] = {
		{ "dir/moved", 0, "dir/moved/deep/x" },
		{ "other/moved", 0, "other/moved/deep/x" },
		{ "other/sub", TUX3_RENAME_EXCHANGE, "other/sub/deep/x" },
		{ "other/c", TUX3_RENAME_EXCHANGE, "other/c/deep/x" },
	};
	struct tux3_node *node;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct bed bed = {};

		begin(&bed);
		assert_ok(tux3_path_mkdir(bed.volume, NULL, "dir/sub", 0755));
		assert_ok(tux3_path_mkdir(bed.volume, NULL, "dir/sub/deep", 0755));
		assert_ok(tux3_path_mkdir(bed.volume, NULL, "other/sub", 0755));
		assert_ok(tux3_path_mkdir(bed.volume, NULL, "other/sub/deep", 0755));
		new_and_gone(&bed, "dir/sub/deep/x", 51, false);
		new_and_gone(&bed, "other/sub/deep/x", 61, false);
		assert_ok(tux3_sync(bed.volume));
		/* The other one of an exchange is the directory. */
		if (i == 3)
			rename_path(&bed, cases[i].to, "dir/sub", cases[i].flags);
		else
			rename_path(&bed, "dir/sub", cases[i].to, cases[i].flags);
		node = bed_find(&bed, cases[i].file);
		fill(node, 0, 5000, 52);
		assert_false(synced_ahead(&bed, node));
		fill(node, 0, 5000, 53);
		assert_true(synced_ahead(&bed, node));
		tux3_node_put(node, 1);
		bed_crash(&bed);
		assert_file(&bed, cases[i].file, 53, 1);
		bed_free(&bed);
	}
}

/* ---- beside others ---- */

/* A name that an operation is just changing. */
static void test_a_pinned_name(void **state)
{
	struct name_prepared prep;
	struct tux3_node *dir;
	struct bed bed = {};

	begin(&bed);
	dir = bed_find(&bed, "dir");
	rename_path(&bed, "dir/a", "dir/a.1", 0);
	new_and_gone(&bed, "dir/a", 11, false);
	assert_ok(name_prepare(&dir->inode, "a.1", 3, NAME_GOES, &prep));
	assert_false(path_ahead(&bed, "dir/a"));
	name_release(&dir->inode, &prep);
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

static bool is_queued(struct intent *intent)
{
	bool queued;

	spin_lock(&intent->lock);
	queued = !list_empty(&intent->queue);
	spin_unlock(&intent->lock);
	return queued;
}

/*
 * The first intent, which says whose the name is, is not durable yet when the second one could say that it is another's; with one
 * more in between.
 */
static void test_an_intent_under_way(void **state)
{
	struct tux3_node *one, *two;
	struct bed bed = {};
	struct intent *intent;
	pthread_t first, second;
	u32 between;
	u64 ahead;

	for (between = 0; between < 2; between++) {
		begin(&bed);
		intent = &bed.volume->vol->intent;
		one = new_file(&bed, "dir/x", 50);
		ahead = counted(&bed, TUX3_COUNT_FSYNCS_AHEAD);
		mutex_lock(&intent->write);
		assert_int_equal(pthread_create(&first, NULL, fsync_path, one), 0);
		while (!is_queued(intent))
			usleep(1000);
		rename_path(&bed, "dir/x", "dir/y", 0);
		if (between) {
			new_and_gone(&bed, "dir/x", 52, false);
			rename_path(&bed, "dir/x", "dir/z", 0);
		}
		two = new_file(&bed, "dir/x", 51);
		assert_int_equal(pthread_create(&second, NULL, fsync_path, two), 0);
		let_others_wait();			/* it takes a commit, or waits */
		mutex_unlock(&intent->write);
		pthread_join(first, NULL);
		pthread_join(second, NULL);
		assert_in_range(counted(&bed, TUX3_COUNT_FSYNCS_AHEAD) - ahead, 0, 1);
		tux3_node_put(one, 1);
		tux3_node_put(two, 1);
		bed_crash(&bed);
		assert_file(&bed, "dir/x", 51, 1);
		assert_file(&bed, "dir/y", 50, 1);
		assert_file(&bed, "dir/z", between ? 52 : 0, 1);
		bed_free(&bed);
		memset(&bed, 0, sizeof(bed));
	}
}

/* The same while the intent by which it had the name before is being written. */
static void test_got_again_beside_its_intent(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	struct intent *intent;
	pthread_t first;

	begin(&bed);
	intent = &bed.volume->vol->intent;
	node = new_file(&bed, "dir/x", 50);
	mutex_lock(&intent->write);
	assert_int_equal(pthread_create(&first, NULL, fsync_path, node), 0);
	while (!is_queued(intent))
		usleep(1000);
	rename_path(&bed, "dir/x", "other/m", 0);
	fill(node, 0, 5000, 51);
	rename_path(&bed, "other/m", "dir/x", 0);
	mutex_unlock(&intent->write);
	pthread_join(first, NULL);
	tux3_node_put(node, 1);
	node = bed_find(&bed, "dir");
	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_file(&bed, "dir/x", 51, 1);
	bed_free(&bed);
}

/* ---- a commit under way, that is not durable ---- */

static void look_at_backups(struct bed *bed)
{
	assert_file(bed, "dir/a", 13, 1);
	assert_file(bed, "dir/a.1", 1, 1);
	assert_file(bed, "dir/a.2", 0, 0);
	assert_file(bed, "dir/b", 14, 1);
	assert_file(bed, "other/b.1", 2, 1);
	assert_file(bed, "other/c", 0, 0);
}

/*
 * Names are changed in the delta that is being committed, and again in the next one.  Intents of the next one hold on
 * top of either base, and of either with those before it.
 */
static void test_beside_a_commit(void **state)
{
	struct bed bed = {};
	pthread_t thread;
	u32 went;

	for (went = 0; went < 2; went++) {
		begin(&bed);
		rename_path(&bed, "dir/a", "dir/a.1", 0);
		rename_path(&bed, "dir/b", "dir/b.1", 0);
		if (went) {			/* there is an intent of this delta, too */
			new_and_gone(&bed, "dir/a", 11, true);
			new_and_gone(&bed, "dir/tmp", 12, true);
			rename_path(&bed, "dir/tmp", "dir/a", 0);
		}
		hold_commit(&bed, &thread);
		new_and_gone(&bed, "dir/tmp", 13, true);
		rename_path(&bed, "dir/tmp", "dir/a", 0);
		assert_true(path_ahead(&bed, "dir/a"));
		new_and_gone(&bed, "dir/b", 14, true);
		rename_path(&bed, "dir/b.1", "other/b.1", 0);
		assert_true(path_ahead(&bed, "other/b.1"));
		assert_ok(tux3_path_unlink(bed.volume, NULL, "other/c"));
		assert_true(path_ahead(&bed, "other"));
		assert_image(&bed, 5 + 2 * went, look_at_backups);
		let_commit(&bed, thread, NULL);
		assert_image(&bed, 5, look_at_backups);
		bed_crash(&bed);
		look_at_backups(&bed);
		bed_free(&bed);
		memset(&bed, 0, sizeof(bed));
	}
}

/* A new file of that delta is on one base, and not on the other. */
static void test_a_new_file_of_the_commit(void **state)
{
	pthread_t thread, fsync;
	struct tux3_node *new;
	struct bed bed = {};
	u64 ahead;

	begin(&bed);
	new_and_gone(&bed, "dir/tmp", 21, false);
	rename_path(&bed, "dir/tmp", "dir/a", 0);
	hold_commit(&bed, &thread);
	rename_path(&bed, "dir/a", "dir/a.1", 0);
	new = new_file(&bed, "dir/a", 22);
	ahead = counted(&bed, TUX3_COUNT_FSYNCS_AHEAD);
	assert_int_equal(pthread_create(&fsync, NULL, fsync_path, new), 0);
	let_others_wait();			/* it waits for the commit */
	let_commit(&bed, thread, &fsync);
	assert_int_equal(counted(&bed, TUX3_COUNT_FSYNCS_AHEAD), ahead);
	tux3_node_put(new, 1);
	bed_crash(&bed);
	assert_file(&bed, "dir/a", 22, 1);
	assert_file(&bed, "dir/a.1", 21, 1);
	bed_free(&bed);
}

/* A directory that a file has left goes with the commit: on one base it is there, with that name, and on the other it is not. */
static void test_a_directory_that_goes(void **state)
{
	pthread_t thread, fsync;
	struct tux3_node *node;
	struct bed bed = {};

	begin(&bed);
	new_and_gone(&bed, "gone/x", 31, false);
	assert_ok(tux3_sync(bed.volume));
	rename_path(&bed, "gone/x", "other/x", 0);
	assert_ok(tux3_rmdir(bed.root, NULL, "gone"));
	hold_commit(&bed, &thread);
	node = bed_find(&bed, "other/x");
	assert_int_equal(pthread_create(&fsync, NULL, fsync_path, node), 0);
	let_others_wait();			/* it goes ahead, or waits for the commit */
	let_commit(&bed, thread, &fsync);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_file(&bed, "other/x", 31, 1);
	bed_free(&bed);
}

/*
 * While an intent that says a name is gone is being written, two others get it, one after the other: nobody notes the second one.
 * So it is not known whom the delta leaves it to, and that it is removed in the next one is not passed over.
 */
static void test_a_name_that_many_had_is_removed(void **state)
{
	pthread_t thread, fsync;
	struct tux3_node *node;
	struct bed bed = {};
	struct intent *intent;

	begin(&bed);
	intent = &bed.volume->vol->intent;
	rename_path(&bed, "dir/a", "other/m", 0);
	node = bed_find(&bed, "other/m");
	mutex_lock(&intent->write);
	assert_int_equal(pthread_create(&fsync, NULL, fsync_path, node), 0);
	while (!is_queued(intent))
		usleep(1000);
	new_and_gone(&bed, "dir/a", 41, false);
	rename_path(&bed, "dir/a", "other/n", 0);
	new_and_gone(&bed, "dir/a", 42, false);
	mutex_unlock(&intent->write);
	pthread_join(fsync, NULL);
	tux3_node_put(node, 1);

	hold_commit(&bed, &thread);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/a"));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/b"));
	node = bed_find(&bed, "dir");
	assert_int_equal(pthread_create(&fsync, NULL, fsync_path, node), 0);
	let_others_wait();			/* it goes ahead, or waits for the commit */
	let_commit(&bed, thread, &fsync);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_file(&bed, "dir/a", 0, 0);
	assert_file(&bed, "dir/b", 0, 0);
	assert_file(&bed, "other/m", 1, 1);
	assert_file(&bed, "other/n", 41, 1);
	bed_free(&bed);
}

static struct timespec changed_at(struct bed *bed, const char *path)
{
	struct tux3_node *node = bed_find(bed, path);
	struct tux3_stat stat;

	assert_ok(tux3_stat_node(node, &stat));
	tux3_node_put(node, 1);
	return stat.mtime;
}

/*
 * In the delta under way a name is changed, and in the next one it goes and comes back.  The file's intent says it for the sake of
 * the delta before, so an fsync of the directory has nothing left to do: its times are said, too, where no name changes by that.
 */
static void test_times_where_no_name_changes(void **state)
{
	struct timespec then, now;
	struct tux3_node *node;
	struct bed bed = {};
	pthread_t thread;

	begin(&bed);
	rename_path(&bed, "dir/a", "dir/a.1", 0);
	hold_commit(&bed, &thread);
	usleep(20 * 1000);
	rename_path(&bed, "dir/a.1", "other/m", 0);
	rename_path(&bed, "other/m", "dir/a.1", 0);
	assert_true(path_ahead(&bed, "dir/a.1"));
	node = bed_find(&bed, "dir");
	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
	then = changed_at(&bed, "dir");
	let_commit(&bed, thread, NULL);
	bed_crash(&bed);
	assert_file(&bed, "dir/a.1", 1, 1);
	now = changed_at(&bed, "dir");
	assert_int_equal(now.tv_sec, then.tv_sec);
	assert_int_equal(now.tv_nsec, then.tv_nsec);
	bed_free(&bed);
}

/* While the second file of an intent is looked at the first one, which goes beside, loses a name. */
static struct {
	const struct tux3_host_ops *inner;
	struct tux3_host_ops host;
	struct tux3_inode *first, *second;
	pthread_t thread;
	struct bed *bed;
} looking;

static void *unlink_extra(void *unused)
{
	assert_ok(tux3_path_unlink(looking.bed->volume, NULL, "other/extra"));
	return NULL;
}

static bool peek_and_unlink(struct tux3_inode *inode, u64 block, void *data)
{
	pthread_t thread;

	if (inode == looking.first)
		looking.first = NULL;
	if (!looking.first && inode == looking.second) {
		looking.second = NULL;
		assert_int_equal(pthread_create(&thread, NULL, unlink_extra, NULL), 0);
		pthread_join(thread, NULL);
	}
	return looking.inner->data_peek(inode, block, data);
}

static void look_at_links(struct bed *bed)
{
	assert_file(bed, "dir/a", 22, 1);
	assert_file(bed, "dir/b", 21, 1);
	assert_file(bed, "other/extra", 0, 0);
}

/* Where the names of what goes beside do not change, its links are those that it has when all was looked at. */
static void test_links_of_what_goes_beside(void **state)
{
	struct tux3_node *first, *second, *other;
	pthread_t thread, fsync;
	struct bed bed = {};

	begin(&bed);
	rename_path(&bed, "dir/a", "dir/b", TUX3_RENAME_EXCHANGE);
	hold_commit(&bed, &thread);
	first = bed_find(&bed, "dir/a");
	second = bed_find(&bed, "dir/b");
	fill(first, 0, 5000, 22);
	fill(second, 0, 5000, 21);
	other = bed_find(&bed, "other");
	assert_ok(tux3_link(first, NULL, other, "extra"));
	tux3_node_put(other, 1);
	looking.bed = &bed;
	looking.inner = bed.volume->vol->host;
	looking.host = *looking.inner;
	looking.host.data_peek = peek_and_unlink;
	looking.first = &first->inode;
	looking.second = &second->inode;
	bed.volume->vol->host = &looking.host;
	assert_int_equal(pthread_create(&fsync, NULL, fsync_path, second), 0);
	let_others_wait();			/* it goes ahead, or waits for the commit */
	let_commit(&bed, thread, &fsync);
	assert_null(looking.second);
	bed.volume->vol->host = looking.inner;
	tux3_node_put(first, 1);
	tux3_node_put(second, 1);
	bed_crash(&bed);
	look_at_links(&bed);
	bed_free(&bed);
}

static bool hold_ends_commit(struct tux3_inode *inode, bool wait)
{
	if (inode == looking.first) {
		looking.first = NULL;
		let_commit(looking.bed, looking.thread, NULL);
	}
	return looking.inner->data_hold(inode, wait);
}

/* What was to go beside for the sake of names that are durable by then has names of its own, which nothing says any more. */
static void test_a_commit_ends_before_the_second_look(void **state)
{
	struct tux3_node *first, *second, *other;
	struct bed bed = {};

	begin(&bed);
	rename_path(&bed, "dir/a", "dir/b", TUX3_RENAME_EXCHANGE);
	hold_commit(&bed, &looking.thread);
	first = bed_find(&bed, "dir/a");
	second = bed_find(&bed, "dir/b");
	fill(first, 0, 5000, 22);
	fill(second, 0, 5000, 21);
	other = bed_find(&bed, "other");
	assert_ok(tux3_link(first, NULL, other, "extra"));
	tux3_node_put(other, 1);
	looking.bed = &bed;
	looking.inner = bed.volume->vol->host;
	looking.host = *looking.inner;
	looking.host.data_hold = hold_ends_commit;
	looking.first = &first->inode;
	bed.volume->vol->host = &looking.host;
	assert_ok(tux3_fsync(second, false));
	assert_null(looking.first);
	bed.volume->vol->host = looking.inner;
	tux3_node_put(first, 1);
	tux3_node_put(second, 1);
	bed_crash(&bed);
	assert_file(&bed, "dir/b", 21, 1);
	bed_free(&bed);				/* and all links are right */
}

/* ---- what cannot be carried out ---- */

/* Of a directory's intent a record that is of no name is not passed over: who knows what it says. */
static void test_a_record_that_is_of_no_name(void **state)
{
	struct disk_record *record;
	struct disk_intents *block;
	struct volume *vol;
	struct bed bed = {};
	char why[256];
	u64 addr;

	begin(&bed);
	vol = bed.volume->vol;
	addr = vol->intent.place.addr + vol->intent.place.offset;
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/a"));
	assert_true(path_ahead(&bed, "dir"));
	block = (struct disk_intents *)((u8 *)device_memory_bytes(bed.dev) + addr * BLOCK);
	assert_int_equal(le32_to_cpu(block->magic), TUX3_INTENT_MAGIC);
	record = (struct disk_record *)((u8 *)(block + 1) + sizeof(struct disk_intent));
	assert_int_equal(le16_to_cpu(record->type), TUX3_RECORD_DIRENT_DELETE);
	record->type = cpu_to_le16(TUX3_RECORD_EXTENT_PUNCH);
	block->crc = 0;
	block->crc = cpu_to_le32(crc32c(~0u, block, BLOCK));
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	assert_int_equal(volume_open(bed.dev, NULL, &bed.opts, &vol, why, sizeof(why)), -EIO);
	bed.dev->ops->close(bed.dev);
}

/* A program saves many files under one name before their own: its directory goes ahead each time, however large the delta is. */
static void test_saves_by_one_name(void **state)
{
	struct bed bed = { .opts = { .manual = true, .fsync = TUX3_FSYNC_AHEAD } };
	struct tux3_node *node;
	char name[32];
	u32 i;

	bed_make(&bed, 1u << 30, BLOCK);	/* with an area that is large enough */
	assert_ok(tux3_path_mkdir(bed.volume, NULL, "/dir", 0755));
	for (i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "/dir/f%u", i);
		tux3_node_put(bed_file(&bed, name), 1);
	}
	assert_ok(tux3_fsync(bed.root, false));
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < 300; i++) {
		node = bed_file(&bed, "/dir/temporary");
		fill(node, 0, BLOCK, i);
		assert_true(synced_ahead(&bed, node));
		snprintf(name, sizeof(name), "/dir/f%u", i);
		assert_ok(tux3_path_rename(bed.volume, NULL, "/dir/temporary", name, 0));
		tux3_node_put(node, 1);
		node = bed_find(&bed, "/dir");
		assert_true(synced_ahead(&bed, node));
		tux3_node_put(node, 1);
	}
	bed_crash(&bed);
	assert_null(bed_find(&bed, "/dir/temporary"));
	node = bed_find(&bed, "/dir/f299");
	assert_filled(node, 0, BLOCK, (u8)299);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* An old file is removed, and many new ones are synced after that: the directory has that one name to say. */
static void test_many_are_durable_already(void **state)
{
	struct bed bed = {};
	char name[32];
	u32 i;

	make_sized(&bed, 1u << 30, BLOCK);	/* with an area that is large enough */
	new_and_gone(&bed, "dir/a", 1, false);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/a"));
	for (i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "dir/f%u", i);
		new_and_gone(&bed, name, i, true);
	}
	assert_true(path_ahead(&bed, "dir"));
	bed_crash(&bed);
	assert_file(&bed, "dir/a", 0, 0);
	assert_file(&bed, "dir/f199", 199, 1);
	bed_free(&bed);
}

/* A file whose name is a number that is counted up, and which is synced each time. */
static void test_one_name_after_the_other(void **state)
{
	char name[32], next[32] = "dir/a";
	struct bed bed = {};
	u32 i;

	begin(&bed);
	for (i = 0; i < 100; i++) {
		memcpy(name, next, sizeof(name));
		snprintf(next, sizeof(next), "dir/a.%u", i);
		rename_path(&bed, name, next, 0);
		assert_true(path_ahead(&bed, next));
	}
	bed_crash(&bed);
	assert_file(&bed, name, 0, 0);
	assert_file(&bed, next, 1, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_save_by_rename),
		cmocka_unit_test(test_a_renamed_file_is_synced_again),
		cmocka_unit_test(test_a_backup_and_a_new_file),
		cmocka_unit_test(test_links_and_removals),
		cmocka_unit_test(test_nameless_files_get_names),
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_closures_do_not_grow),
		cmocka_unit_test(test_names_made_and_removed),
		cmocka_unit_test(test_new_files_go_along),
		cmocka_unit_test(test_a_new_file_that_was_never_synced),
		cmocka_unit_test(test_a_file_that_was_changed_gets_a_name),
		cmocka_unit_test(test_a_file_that_was_synced_gets_a_name),
		cmocka_unit_test(test_files_that_were_changed_change_places),
		cmocka_unit_test(test_a_name_that_was_lost_and_got_again),
		cmocka_unit_test(test_what_is_no_file_was_changed),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_directories_take_a_commit),
		cmocka_unit_test(test_a_directory_above_was_moved),
		cmocka_unit_test(test_a_pinned_name),
		cmocka_unit_test(test_an_intent_under_way),
		cmocka_unit_test(test_got_again_beside_its_intent),
		cmocka_unit_test(test_beside_a_commit),
		cmocka_unit_test(test_a_new_file_of_the_commit),
		cmocka_unit_test(test_a_directory_that_goes),
		cmocka_unit_test(test_a_name_that_many_had_is_removed),
		cmocka_unit_test(test_times_where_no_name_changes),
		cmocka_unit_test(test_links_of_what_goes_beside),
		cmocka_unit_test(test_a_commit_ends_before_the_second_look),
		cmocka_unit_test(test_a_record_that_is_of_no_name),
		cmocka_unit_test(test_saves_by_one_name),
		cmocka_unit_test(test_many_are_durable_already),
		cmocka_unit_test(test_one_name_after_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
