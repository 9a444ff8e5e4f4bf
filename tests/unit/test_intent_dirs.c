// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fsync ahead of the delta, in directories that are new: they go with what is in them.  Each case is looked at after a crash, and
 * checked; likewise on either base where a commit is under way.
 */
#include <pthread.h>
#include "support_intent.h"
#include "user/lib/lib.h"

static void make_dir(struct bed *bed, const char *path)
{
	assert_ok(tux3_path_mkdir(bed->volume, NULL, path, 0750));
}

static void remove_dir(struct bed *bed, const char *path)
{
	char dir[40];
	struct tux3_node *node;
	const char *name = strrchr(path, '/') + 1;

	snprintf(dir, sizeof(dir), "%.*s", (int)(name - 1 - path), path);
	node = bed_find(bed, dir);
	assert_ok(tux3_rmdir(node, NULL, name));
	tux3_node_put(node, 1);
}

static void link_to(struct bed *bed, const char *path, const char *dir_path, const char *name)
{
	struct tux3_node *node = bed_find(bed, path), *dir = bed_find(bed, dir_path);

	assert_ok(tux3_link(node, NULL, dir, name));
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
}

static void set_mode(struct tux3_node *node, u32 mode)
{
	struct tux3_stat stat = { .mode = mode };

	assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE));
}

static void set_mtime(struct tux3_node *node, s64 sec)
{
	struct tux3_stat stat = { .mtime.tv_sec = sec };

	assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_MTIME));
}

static void stat_path(struct bed *bed, const char *path, struct tux3_stat *stat)
{
	struct tux3_node *node = bed_find(bed, path);

	if (!node)
		fail_msg("%s is not there", path);
	assert_ok(tux3_stat_node(node, stat));
	tux3_node_put(node, 1);
}

static void assert_dir(struct bed *bed, const char *path, u32 mode, u32 entries, u32 links)
{
	struct tux3_stat stat;

	stat_path(bed, path, &stat);
	assert_int_equal(stat.mode, S_IFDIR | mode);
	assert_int_equal(stat.size, entries);
	assert_int_equal(stat.nlink, links);
}

/* An fsync has nothing to do. */
static void assert_durable(struct bed *bed, const char *path)
{
	u64 ahead = counted(bed, TUX3_COUNT_FSYNCS_AHEAD), committed = tux3_committed(bed->volume);
	struct tux3_node *node = bed_find(bed, path);

	assert_ok(tux3_fsync(node, false));
	tux3_node_put(node, 1);
	assert_int_equal(counted(bed, TUX3_COUNT_FSYNCS_AHEAD), ahead);
	assert_int_equal(tux3_committed(bed->volume), committed);
}

static void assert_no(struct bed *bed, const char *path)
{
	assert_null(bed_find(bed, path));
}

static void assert_mtime_kept(struct bed *bed, const char *path, const struct tux3_stat *before)
{
	struct tux3_stat after;

	stat_path(bed, path, &after);
	assert_int_equal(after.mtime.tv_sec, before->mtime.tv_sec);
	assert_int_equal(after.mtime.tv_nsec, before->mtime.tv_nsec);
	assert_int_equal(after.ctime.tv_nsec, before->ctime.tv_nsec);
}

/* ---- alone ---- */

static void test_a_file_in_a_new_directory(void **state)
{
	struct tux3_stat dir, sub;
	struct tux3_node *node;
	struct bed bed = {};

	begin(&bed);
	make_dir(&bed, "dir/sub");
	node = bed_find(&bed, "dir/sub");
	assert_ok(tux3_setxattr(node, NULL, "user.color", "blue", 4, 0));
	tux3_node_put(node, 1);
	new_and_gone(&bed, "dir/sub/x", 10, true);
	stat_path(&bed, "dir", &dir);
	stat_path(&bed, "dir/sub", &sub);
	new_and_gone(&bed, "dir/sub/unsynced", 11, false);
	new_and_gone(&bed, "dir/unsynced", 12, false);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 2);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered_beside, 1);
	assert_file(&bed, "dir/sub/x", 10, 1);
	assert_no(&bed, "dir/sub/unsynced");
	assert_no(&bed, "dir/unsynced");
	assert_dir(&bed, "dir", 0777, 3, 3);
	assert_dir(&bed, "dir/sub", 0750, 1, 2);
	assert_mtime_kept(&bed, "dir", &dir);
	assert_mtime_kept(&bed, "dir/sub", &sub);
	node = bed_find(&bed, "dir/sub");
	assert_int_equal(tux3_getxattr(node, "user.color", NULL, 0), 4);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* One in the other; each is said once, however many files are synced. */
static void test_a_path_of_new_directories(void **state)
{
	struct bed bed = {};
	char path[40];
	u32 i;

	begin(&bed);
	make_dir(&bed, "dir/1");
	make_dir(&bed, "dir/1/2");
	make_dir(&bed, "dir/1/2/3");
	make_dir(&bed, "dir/1/2/3/4");
	new_and_gone(&bed, "dir/1/2/3/4/x", 10, true);
	for (i = 0; i < 5; i++) {
		snprintf(path, sizeof(path), "dir/1/2/3/4/y%u", i);
		new_and_gone(&bed, path, 11, true);
	}
	make_dir(&bed, "dir/1/2/more");
	new_and_gone(&bed, "dir/1/2/more/z", 12, true);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 5 + 5 + 2);
	assert_file(&bed, "dir/1/2/3/4/x", 10, 1);
	assert_file(&bed, "dir/1/2/3/4/y4", 11, 1);
	assert_file(&bed, "dir/1/2/more/z", 12, 1);
	assert_dir(&bed, "dir/1/2", 0750, 2, 4);
	assert_dir(&bed, "dir/1/2/3/4", 0750, 6, 2);
	/* Deeper than an intent has room for beside it. */
	make_dir(&bed, "1");
	make_dir(&bed, "1/2");
	make_dir(&bed, "1/2/3");
	make_dir(&bed, "1/2/3/4");
	make_dir(&bed, "1/2/3/4/5");
	assert_false(path_ahead(&bed, "1/2/3/4/5"));
	bed_free(&bed);
}

/* mkdir, and an fsync of the directory above; or of the new one. */
static void test_a_new_directory_itself(void **state)
{
	struct bed bed = {};

	begin(&bed);
	make_dir(&bed, "dir/one");
	make_dir(&bed, "dir/two");
	assert_true(path_ahead(&bed, "dir"));
	assert_durable(&bed, "dir");
	assert_durable(&bed, "dir/one");
	make_dir(&bed, "dir/three");
	new_and_gone(&bed, "dir/three/x", 10, true);
	new_and_gone(&bed, "dir/three/y", 11, false);
	new_and_gone(&bed, "dir/three/z", 12, true);
	make_dir(&bed, "dir/three/sub");
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/three/z"));
	assert_durable(&bed, "dir");
	assert_true(path_ahead(&bed, "dir/three"));	/* with y, which was never synced */
	make_dir(&bed, "other/four");
	make_dir(&bed, "other/four/sub");
	assert_true(path_ahead(&bed, "other/four"));
	assert_durable(&bed, "other");
	bed_crash(&bed);
	assert_dir(&bed, "dir", 0777, 5, 5);
	assert_dir(&bed, "dir/one", 0750, 0, 2);
	assert_dir(&bed, "dir/two", 0750, 0, 2);
	assert_dir(&bed, "dir/three", 0750, 3, 3);
	assert_dir(&bed, "dir/three/sub", 0750, 0, 2);
	assert_file(&bed, "dir/three/x", 10, 1);
	assert_file(&bed, "dir/three/y", 11, 1);
	assert_dir(&bed, "other/four", 0750, 1, 3);
	assert_dir(&bed, "other/four/sub", 0750, 0, 2);
	bed_free(&bed);
}

/* Files that come from elsewhere, go elsewhere, or are there by more than one name. */
static void test_files_move_in_and_out(void **state)
{
	struct bed bed = {};

	begin(&bed);
	make_dir(&bed, "dir/sub");
	rename_path(&bed, "dir/a", "dir/sub/a", 0);
	assert_true(path_ahead(&bed, "dir/sub/a"));
	new_and_gone(&bed, "dir/sub/x", 10, true);
	rename_path(&bed, "dir/sub/x", "dir/x", 0);
	assert_true(path_ahead(&bed, "dir/x"));
	link_to(&bed, "dir/b", "dir/sub", "b");
	assert_true(path_ahead(&bed, "dir/b"));
	make_dir(&bed, "other/sub");
	new_and_gone(&bed, "other/sub/tmp", 11, false);
	rename_path(&bed, "other/sub/tmp", "other/sub/saved", 0);
	assert_true(path_ahead(&bed, "other/sub/saved"));
	/* All that is in it goes, and so does it: of that a crash knows nothing. */
	make_dir(&bed, "other/gone");
	new_and_gone(&bed, "other/gone/y", 12, true);
	rename_path(&bed, "other/gone/y", "other/y", 0);
	remove_dir(&bed, "other/gone");
	assert_true(path_ahead(&bed, "other/y"));
	bed_crash(&bed);
	assert_file(&bed, "dir/sub/a", 1, 1);
	assert_no(&bed, "dir/a");
	assert_file(&bed, "dir/x", 10, 1);
	assert_no(&bed, "dir/sub/x");
	assert_file(&bed, "dir/sub/b", 2, 2);
	assert_file(&bed, "dir/b", 2, 2);
	assert_file(&bed, "other/sub/saved", 11, 1);
	assert_file(&bed, "other/y", 12, 1);
	assert_dir(&bed, "other/gone", 0750, 0, 2);
	bed_free(&bed);
}

/* What is another directory by the name of one that has gone; and one that has moved. */
static void test_what_takes_a_commit(void **state)
{
	struct bed bed = {};

	begin(&bed);
	make_dir(&bed, "dir/sub");
	assert_true(path_ahead(&bed, "dir"));
	remove_dir(&bed, "dir/sub");
	assert_false(path_ahead(&bed, "dir"));
	assert_no(&bed, "dir/sub");
	make_dir(&bed, "dir/sub");
	new_and_gone(&bed, "dir/sub/x", 10, true);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/sub/x"));
	remove_dir(&bed, "dir/sub");
	make_dir(&bed, "dir/sub");
	new_and_gone(&bed, "dir/sub/y", 11, false);
	assert_false(path_ahead(&bed, "dir/sub/y"));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "dir/sub/y"));
	remove_dir(&bed, "dir/sub");
	new_and_gone(&bed, "dir/sub", 12, false);
	assert_false(path_ahead(&bed, "dir/sub"));
	make_dir(&bed, "dir/one");
	assert_true(path_ahead(&bed, "dir/one"));
	rename_path(&bed, "dir/one", "dir/two", 0);
	assert_false(path_ahead(&bed, "dir/two"));
	bed_crash(&bed);
	assert_file(&bed, "dir/sub", 12, 1);
	assert_dir(&bed, "dir/two", 0750, 0, 2);
	assert_no(&bed, "dir/one");
	bed_free(&bed);
}

/* Its own attributes are those of the fsync, or it takes a commit. */
static void test_changed_after_it_was_made(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};

	begin(&bed);
	make_dir(&bed, "dir/sub");
	node = bed_find(&bed, "dir/sub");
	set_mode(node, 0700);
	new_and_gone(&bed, "dir/sub/x", 10, true);
	assert_durable(&bed, "dir/sub");
	set_mode(node, 0711);
	assert_ok(tux3_fsync(node, false));		/* a commit */
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 0);
	assert_dir(&bed, "dir/sub", 0711, 1, 2);
	bed_free(&bed);
}

/* ---- beside a commit ---- */

static void look_at_new(struct bed *bed)
{
	assert_file(bed, "dir/sub/x", 10, 1);
	assert_file(bed, "dir/sub/deep/y", 11, 1);
	assert_file(bed, "dir/front/z", 12, 1);
	assert_dir(bed, "dir/front", 0750, 1, 2);
	assert_dir(bed, "dir/sub/deep", 0750, 1, 2);
}

static void look_before(struct bed *bed)
{
	look_at_new(bed);
	assert_no(bed, "dir/sub/old");
	assert_dir(bed, "dir", 0777, 4, 4);
	assert_dir(bed, "dir/sub", 0750, 2, 3);
}

static void look_after(struct bed *bed)
{
	look_at_new(bed);
	assert_file(bed, "dir/sub/old", 9, 1);
	assert_dir(bed, "dir", 0777, 5, 5);
	assert_dir(bed, "dir/sub", 0750, 3, 3);
}

/* Made in the delta that is being committed, with or without an intent of that; and on top of that in the next one. */
static void test_beside_the_commit_that_makes_it(void **state)
{
	struct bed bed = {};
	pthread_t thread;
	u32 went;

	for (went = 0; went < 2; went++) {
		begin(&bed);
		make_dir(&bed, "dir/sub");
		make_dir(&bed, "dir/beside");
		new_and_gone(&bed, "dir/sub/old", 9, false);
		if (went)
			new_and_gone(&bed, "dir/sub/x", 10, true);
		hold_commit(&bed, &thread);
		make_dir(&bed, "dir/front");
		if (!went)
			new_and_gone(&bed, "dir/sub/x", 10, true);
		make_dir(&bed, "dir/sub/deep");
		new_and_gone(&bed, "dir/sub/deep/y", 11, true);
		new_and_gone(&bed, "dir/front/z", 12, true);
		assert_image(&bed, 6, look_before);
		let_commit(&bed, thread, NULL);
		assert_image(&bed, went ? 4 : 6, look_after);
		bed_crash(&bed);
		look_after(&bed);
		bed_free(&bed);
		memset(&bed, 0, sizeof(bed));
	}
}

static void look_at_listing(struct bed *bed)
{
	assert_dir(bed, "dir", 0777, 4, 4);
	assert_dir(bed, "dir/one", 0750, 0, 2);
	assert_dir(bed, "dir/two", 0750, 0, 2);
}

/* The same by an fsync of the directory above. */
static void test_a_listing_beside_the_commit(void **state)
{
	struct bed bed = {};
	pthread_t thread;

	begin(&bed);
	make_dir(&bed, "dir/one");
	hold_commit(&bed, &thread);
	make_dir(&bed, "dir/two");
	assert_true(path_ahead(&bed, "dir"));
	assert_image(&bed, 3, look_at_listing);
	let_commit(&bed, thread, NULL);
	assert_image(&bed, 3, look_at_listing);
	bed_crash(&bed);
	look_at_listing(&bed);
	bed_free(&bed);
}

/* It has been changed in the next delta: so where the commit is there, it is not as its fsync is to leave it. */
static void test_changed_beside_the_commit_that_makes_it(void **state)
{
	pthread_t thread, fsync;
	struct tux3_node *node;
	struct bed bed = {};

	begin(&bed);
	make_dir(&bed, "dir/sub");
	hold_commit(&bed, &thread);
	node = bed_find(&bed, "dir/sub");
	set_mode(node, 0700);
	assert_int_equal(pthread_create(&fsync, NULL, fsync_path, node), 0);
	let_others_wait();			/* it waits for the commit */
	let_commit(&bed, thread, &fsync);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_dir(&bed, "dir/sub", 0700, 0, 2);
	bed_free(&bed);
}

/* Likewise where an intent has made it, as it was then, for a file in it. */
static void test_changed_and_made_beside_the_commit(void **state)
{
	pthread_t thread, fsync;
	struct tux3_node *node;
	struct bed bed = {};

	begin(&bed);
	make_dir(&bed, "dir/sub");
	hold_commit(&bed, &thread);
	node = bed_find(&bed, "dir/sub");
	set_mode(node, 0700);
	new_and_gone(&bed, "dir/sub/x", 10, true);
	assert_int_equal(pthread_create(&fsync, NULL, fsync_path, node), 0);
	let_others_wait();			/* it waits for the commit */
	let_commit(&bed, thread, &fsync);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_dir(&bed, "dir/sub", 0700, 1, 2);
	assert_file(&bed, "dir/sub/x", 10, 1);
	bed_free(&bed);
}

/* In the next delta it is gone: on one base it is there, and on the other it is not. */
static void test_gone_beside_the_commit_that_makes_it(void **state)
{
	pthread_t thread, fsync;
	struct tux3_node *node;
	struct bed bed = {};
	u32 went;

	for (went = 0; went < 2; went++) {
		begin(&bed);
		make_dir(&bed, "dir/sub");
		new_and_gone(&bed, "dir/sub/x", 10, went);
		hold_commit(&bed, &thread);
		rename_path(&bed, "dir/sub/x", "dir/x", 0);
		remove_dir(&bed, "dir/sub");
		node = bed_find(&bed, "dir/x");
		assert_int_equal(pthread_create(&fsync, NULL, fsync_path, node), 0);
		let_others_wait();			/* it goes ahead, or waits for the commit */
		let_commit(&bed, thread, &fsync);
		tux3_node_put(node, 1);
		bed_crash(&bed);
		assert_file(&bed, "dir/x", 10, 1);
		assert_no(&bed, "dir/sub/x");
		bed_free(&bed);
		memset(&bed, 0, sizeof(bed));
	}
}

/* Two at once: neither intent is durable when the other is captured. */
static void test_two_in_one_batch(void **state)
{
	struct tux3_node *one, *two;
	pthread_t first, second;
	struct bed bed = {};
	struct intent *intent;

	begin(&bed);
	intent = &bed.volume->vol->intent;
	make_dir(&bed, "dir/sub");
	one = new_file(&bed, "dir/sub/x", 10);
	two = new_file(&bed, "dir/sub/y", 11);
	mutex_lock(&intent->write);
	assert_int_equal(pthread_create(&first, NULL, fsync_path, one), 0);
	assert_int_equal(pthread_create(&second, NULL, fsync_path, two), 0);
	let_others_wait();
	mutex_unlock(&intent->write);
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	tux3_node_put(one, 1);
	tux3_node_put(two, 1);
	assert_int_equal(counted(&bed, TUX3_COUNT_FSYNCS_AHEAD), 2);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 4);
	assert_file(&bed, "dir/sub/x", 10, 1);
	assert_file(&bed, "dir/sub/y", 11, 1);
	assert_dir(&bed, "dir", 0777, 3, 3);
	assert_dir(&bed, "dir/sub", 0750, 2, 2);
	bed_free(&bed);
}

/* Changed while the intent that makes it is being written: that one does not have it, and another would change nothing. */
static void test_changed_while_it_is_written(void **state)
{
	struct tux3_node *dir;
	pthread_t first, second;
	struct bed bed = {};
	struct intent *intent;

	begin(&bed);
	intent = &bed.volume->vol->intent;
	make_dir(&bed, "dir/sub");
	dir = bed_find(&bed, "dir/sub");
	mutex_lock(&intent->write);
	assert_int_equal(pthread_create(&first, NULL, fsync_path, dir), 0);
	let_others_wait();
	set_mode(dir, 0700);
	assert_int_equal(pthread_create(&second, NULL, fsync_path, dir), 0);
	let_others_wait();
	mutex_unlock(&intent->write);
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	tux3_node_put(dir, 1);
	bed_crash(&bed);
	assert_dir(&bed, "dir/sub", 0700, 0, 2);
	bed_free(&bed);
}

/* Its times were set back after something was made in it: what is said of that sets them forward. */
static void test_times_set_back(void **state)
{
	struct tux3_node *dir;
	struct tux3_stat stat;
	struct bed bed = {};
	u32 listed;

	for (listed = 0; listed < 2; listed++) {
		begin(&bed);
		make_dir(&bed, "dir/sub");
		if (listed)
			make_dir(&bed, "dir/sub/deep");
		else
			new_and_gone(&bed, "dir/sub/x", 10, false);
		dir = bed_find(&bed, "dir/sub");
		set_mtime(dir, 1000000);
		if (!listed)
			path_ahead(&bed, "dir/sub/x");
		assert_ok(tux3_fsync(dir, false));
		tux3_node_put(dir, 1);
		bed_crash(&bed);
		stat_path(&bed, "dir/sub", &stat);
		assert_int_equal(stat.mtime.tv_sec, 1000000);
		bed_free(&bed);
		memset(&bed, 0, sizeof(bed));
	}
}

/* An fsync after the move of what it is in. */
static void test_its_parent_has_moved(void **state)
{
	struct tux3_node *dir;
	struct bed bed = {};

	begin(&bed);
	make_dir(&bed, "dir/sub");
	make_dir(&bed, "dir/sub/deep");
	assert_true(path_ahead(&bed, "dir/sub/deep"));
	rename_path(&bed, "dir/sub", "dir/moved", 0);
	dir = bed_find(&bed, "dir/moved/deep");
	assert_ok(tux3_fsync(dir, false));
	tux3_node_put(dir, 1);
	bed_crash(&bed);
	assert_dir(&bed, "dir/moved/deep", 0750, 0, 2);
	assert_no(&bed, "dir/sub");
	bed_free(&bed);
}

/* ---- what others do between two steps ---- */

static struct {
	const struct tux3_host_ops *inner;
	struct tux3_host_ops host;
	struct bed *bed;
	u32 calls;
} between;

static void begin_between(struct bed *bed)
{
	between.bed = bed;
	between.inner = bed->volume->vol->host;
	between.host = *between.inner;
	between.calls = 0;
	bed->volume->vol->host = &between.host;
}

static void end_between(struct bed *bed)
{
	bed->volume->vol->host = between.inner;
}

/*
 * Who syncs a file waits for its lock, or for what has to be read.  Meanwhile the directory is moved, and then the file in that: by
 * the old path of one and the new name of the other nobody has ever found it.
 */
static void moves_meanwhile(struct bed *bed)
{
	rename_path(bed, "dir", "moved", 0);
	rename_path(bed, "moved/a", "moved/new", 0);
}

static bool hold_after_moves(struct tux3_inode *inode, bool wait)
{
	if (!between.calls++)
		moves_meanwhile(between.bed);
	return between.inner->data_hold(inode, wait);
}

static void test_its_directory_moves_meanwhile(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};

	begin(&bed);
	node = bed_find(&bed, "dir/a");
	fill(node, 0, 5000, 10);
	begin_between(&bed);
	between.host.data_hold = hold_after_moves;
	assert_false(synced_ahead(&bed, node));
	assert_true(between.calls);
	end_between(&bed);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_file(&bed, "moved/new", 10, 1);
	assert_no(&bed, "dir");
	bed_free(&bed);
}

/* A commit comes between its ACL and its name. */
static void now_commit(struct volume *vol, struct timespec64 *now)
{
	if (++between.calls == 2)
		assert_ok(tux3_sync(between.bed->volume));
	ktime_get_coarse_real_ts64(now);
}

/* So the tree has it, without a name. */
static void make_between(struct bed *bed, const char *path, bool is_dir)
{
	begin_between(bed);
	between.host.now = now_commit;
	if (is_dir)
		make_dir(bed, path);
	else
		tux3_node_put(bed_file(bed, path), 1);
	end_between(bed);
	assert_true(between.calls >= 2);
}

static void test_made_after_a_commit_has_it(void **state)
{
	struct bed bed = {};

	begin(&bed);
	bed_inherit_acl(&bed, "dir");
	make_between(&bed, "dir/sub", true);
	new_and_gone(&bed, "dir/sub/x", 10, true);
	bed_crash(&bed);
	assert_file(&bed, "dir/sub/x", 10, 1);
	assert_dir(&bed, "dir/sub", 0750, 1, 2);
	assert_dir(&bed, "dir", 0777, 3, 3);
	bed_free(&bed);
	memset(&bed, 0, sizeof(bed));
	begin(&bed);
	bed_inherit_acl(&bed, "dir");
	make_between(&bed, "dir/y", false);
	new_and_gone(&bed, "dir/y", 11, true);
	bed_crash(&bed);
	assert_file(&bed, "dir/y", 11, 1);
	assert_dir(&bed, "dir", 0777, 3, 2);
	bed_free(&bed);
}

/* So long that it has a block of its own. */
static void inherit_long_acl(struct bed *bed, const char *path)
{
	__le32 acl[100] = { cpu_to_le32(2), cpu_to_le32(0x70001), cpu_to_le32(~0u) };
	struct tux3_node *node = bed_find(bed, path);
	u32 at = 3, i;

	for (i = 1; i <= 40; i++) {
		acl[at++] = cpu_to_le32(0x70002);
		acl[at++] = cpu_to_le32(i);
	}
	for (i = 0x50004; i <= 0x50020; i = i == 0x50004 ? 0x50010 : i + 0x10) {
		acl[at++] = cpu_to_le32(i);
		acl[at++] = cpu_to_le32(~0u);
	}
	assert_ok(tux3_setxattr(node, NULL, "system.posix_acl_default", acl, at * sizeof(*acl), 0));
	tux3_node_put(node, 1);
}

/* What the tree has of it has a block, and then the intent takes that away. */
static void test_its_acl_goes_after_a_commit_has_it(void **state)
{
	struct tux3_stat stat;
	struct tux3_node *node;
	struct bed bed = {};

	begin(&bed);
	inherit_long_acl(&bed, "dir");
	make_between(&bed, "dir/sub", true);
	node = bed_find(&bed, "dir/sub");
	assert_ok(tux3_removexattr(node, NULL, "system.posix_acl_access"));
	assert_ok(tux3_removexattr(node, NULL, "system.posix_acl_default"));
	tux3_node_put(node, 1);
	new_and_gone(&bed, "dir/sub/x", 10, true);
	bed_crash(&bed);
	assert_int_equal(tux3_core(bed.volume)->intent.recovered, 2);
	assert_file(&bed, "dir/sub/x", 10, 1);
	stat_path(&bed, "dir/sub", &stat);
	assert_int_equal(stat.blocks_512, 0);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_file_in_a_new_directory),
		cmocka_unit_test(test_a_path_of_new_directories),
		cmocka_unit_test(test_a_new_directory_itself),
		cmocka_unit_test(test_files_move_in_and_out),
		cmocka_unit_test(test_what_takes_a_commit),
		cmocka_unit_test(test_changed_after_it_was_made),
		cmocka_unit_test(test_beside_the_commit_that_makes_it),
		cmocka_unit_test(test_a_listing_beside_the_commit),
		cmocka_unit_test(test_changed_beside_the_commit_that_makes_it),
		cmocka_unit_test(test_changed_and_made_beside_the_commit),
		cmocka_unit_test(test_gone_beside_the_commit_that_makes_it),
		cmocka_unit_test(test_two_in_one_batch),
		cmocka_unit_test(test_changed_while_it_is_written),
		cmocka_unit_test(test_times_set_back),
		cmocka_unit_test(test_its_parent_has_moved),
		cmocka_unit_test(test_its_directory_moves_meanwhile),
		cmocka_unit_test(test_made_after_a_commit_has_it),
		cmocka_unit_test(test_its_acl_goes_after_a_commit_has_it),
	};

	return cmocka_run_group_tests_name("intent dirs", tests, NULL, NULL);
}
