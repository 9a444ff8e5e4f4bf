/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Quotas switched on and off: usage is right, the volume can be used with them, and whatever write of it is the last one before a
 * power cut, the volume has them with all usage, or has none, and is as it was.
 */
#include "support_lib.h"
#include "support_check.h"
#include "core/check/check.h"
#include "core/data/data.h"
#include "core/open.h"
#include "core/quota_switch.h"
#include "user/lib/lib.h"

#include <string.h>

#define BYTES	(32u << 20)
#define FILES	700u
#define OWNERS	350u
#define FIRST	1000u		/* user id */
#define MANY	3000u		/* files of as many owners, whose items take more than a full volume has left */

static u32 owner(u32 n)
{
	return FIRST + n % OWNERS;
}

static void fill(struct bed *bed)
{
	static const u8 data[9000] = { 1 };
	struct tux3_node *node;
	char path[40];
	u32 n;

	for (n = 0; n < FILES; n++) {
		struct tux3_stat stat = { .uid = owner(n), .gid = n % 3 };

		sprintf(path, "/d%u/file-%u", n % 5, n);
		node = bed_file(bed, path);
		assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_UID | TUX3_SET_GID));
		assert_int_equal(tux3_write(node, data, 1 + n % sizeof(data), 0), 1 + n % sizeof(data));
		tux3_node_put(node, 1);
		if (n == FILES / 2)
			assert_ok(delta_commit_unify(tux3_core(bed->volume)));
	}
	assert_ok(tux3_sync(bed->volume));
}

static int tell_problem(void *ctx, const struct check_problem *problem)
{
	print_error("%s\n", problem->text);
	return 0;
}

/* Without problems; does it count usage? */
static bool looks_good(struct bed *bed, u32 files)
{
	struct volume_options opts = { .read_only = true };
	struct check_options check_opts = { .problem = tell_problem };
	struct check_result result = {};
	struct volume *vol;
	char why[300];
	bool quota;

	if (volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)))
		fail_msg("open: %s", why);
	assert_ok(volume_check(vol, &check_opts, &result));
	assert_int_equal(result.problems, 0);
	assert_int_equal(result.files, files);
	/* Else the next edit takes nodes of the anchor for some that no anchor has. */
	assert_true(le64_to_cpu(vol->anchor.root_birth) <= le64_to_cpu(vol->anchor.delta));
	quota = vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA;
	assert_ok(volume_close(vol));
	return quota;
}

/* 0, or what went wrong; then nothing more is written. */
static int run_switch(struct bed *bed, bool on, char *why, size_t why_size)
{
	struct quota_switch to = { .on = on };
	struct volume_options opts = { .manual = true };
	struct tux3 *volume;
	int err;

	why[0] = 0;
	if (tux3_open_device(bed->dev, false, &opts, 0, &volume, why, why_size))
		return -EIO;
	err = volume_switch_quota(tux3_core(volume), &to, why, why_size);
	if (!err)
		return tux3_close(volume);
	tux3_abandon(volume);
	return err;
}

/* ---- power cuts ---- */

static void switch_with_cuts(struct bed *bed, bool on)
{
	struct bed_saved *before = bed_save(bed);
	u32 writes, cut, changed = 0;
	char why[300];
	u64 start;

	start = atomic64_read(&bed->dev->writes);
	assert_ok(run_switch(bed, on, why, sizeof(why)));
	writes = atomic64_read(&bed->dev->writes) - start;
	assert_int_equal(looks_good(bed, FILES), on);
	for (cut = 0; cut < writes; cut++) {
		bed_restore(bed, before);
		bed_cut_after(bed, cut);
		run_switch(bed, on, why, sizeof(why));
		bed_cut_over(bed);
		changed += looks_good(bed, FILES) == on;
		/* Then it can be done again. */
		assert_ok(run_switch(bed, on, why, sizeof(why)));
		assert_int_equal(looks_good(bed, FILES), on);
	}
	/* The last writes are the second copy of the anchor. */
	assert_in_range(changed, 1, writes / 2);
	bed_saved_free(before);
}

static u64 bed_ino(struct bed *bed, const char *path)
{
	struct tux3_node *node = bed_find(bed, path);
	u64 ino = node->inode.ino;

	tux3_node_put(node, 1);
	return ino;
}

static void check_usage(struct bed *bed)
{
	struct tux3_quota used;
	u32 id, n;

	for (n = 0; n < OWNERS; n++) {
		u64 bytes = 0;
		u32 file;

		for (file = n; file < FILES; file += OWNERS) {
			u32 size = 1 + file % 9000;

			bytes += size <= data_inline_max(4096) ? 0 : (size + 4095) & ~4095u;
		}
		id = owner(n);
		assert_ok(tux3_quota_next(bed->volume, TUX3_QUOTA_USER, &id, &used));
		assert_int_equal(id, owner(n));
		assert_int_equal(used.inodes, FILES / OWNERS);
		assert_int_equal(used.bytes, bytes);
	}
}

/* Limits hold right away. */
static void use(struct bed *bed)
{
	struct tux3_cred cred = { .uid = owner(3), .gid = 7 };
	struct tux3_quota limit = { .inodes_hard = FILES / OWNERS };
	struct tux3_stat stat = { .mode = 0777 };
	struct tux3_node *node;

	assert_ok(tux3_setattr(bed->root, NULL, &stat, TUX3_SET_MODE));
	assert_ok(tux3_quota_set(bed->volume, TUX3_QUOTA_USER, owner(3), &limit, TUX3_QUOTA_INODES_HARD));
	assert_int_equal(tux3_mknod(bed->root, &cred, "more", S_IFREG | 0644, 0, 0, &node), -EDQUOT);
}

static void test_switch(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct tux3_quota used;
	char why[300];
	u32 id = 0;

	bed_make(&bed, BYTES, 4096);
	fill(&bed);
	bed_crash(&bed);		/* a log is to be replayed */
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	assert_false(looks_good(&bed, FILES));
	switch_with_cuts(&bed, true);
	bed_open(&bed);
	check_usage(&bed);
	use(&bed);
	bed_close(&bed);
	assert_ok(run_switch(&bed, true, why, sizeof(why)));
	assert_true(looks_good(&bed, FILES));
	switch_with_cuts(&bed, false);
	bed_open(&bed);
	assert_int_equal(tux3_quota_next(bed.volume, TUX3_QUOTA_USER, &id, &used), -EOPNOTSUPP);
	bed_close(&bed);
	assert_false(looks_good(&bed, FILES));
	bed.dev->ops->close(bed.dev);
}

/* Many owners, and no room for their items: nothing is changed then, and it can be done when there is room. */
static void test_full(void **state)
{
	static const u8 data[1 << 20] = { 1 };
	struct bed bed = { .opts.manual = true };
	struct tux3_node *node;
	char path[40], why[300];
	u64 at = 0, len;
	u32 n;

	bed_make(&bed, BYTES, 4096);
	for (n = 0; n < MANY; n++) {
		struct tux3_stat stat = { .uid = 10000 + n, .gid = 20000 + n };

		sprintf(path, "/d%u/file-%u", n % 5, n);
		node = bed_file(&bed, path);
		assert_ok(tux3_setattr(node, NULL, &stat, TUX3_SET_UID | TUX3_SET_GID));
		tux3_node_put(node, 1);
	}
	node = bed_file(&bed, "/large");
	for (len = sizeof(data); len >= 4096; len /= 2)
		while (tux3_write(node, data, len, at) == (ssize_t)len)
			at += len;
	tux3_node_put(node, 1);
	bed_close(&bed);
	assert_int_equal(run_switch(&bed, true, why, sizeof(why)), -ENOSPC);
	assert_non_null(strstr(why, "no room for "));
	assert_false(looks_good(&bed, MANY + 1));
	bed_open(&bed);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/large"));
	tux3_node_put(bed_file(&bed, "/small"), 1);
	bed_close(&bed);
	assert_ok(run_switch(&bed, true, why, sizeof(why)));
	assert_true(looks_good(&bed, MANY + 1));
	bed.dev->ops->close(bed.dev);
}

/* The checker has something to say: it is told, and nothing is switched. */
static void test_problem(void **state)
{
	struct bed bed = { .opts.manual = true };
	struct disk_attr attr;
	struct tree_key key;
	struct volume *vol;
	char why[300];
	u64 ino;

	bed_make(&bed, BYTES, 4096);
	fill(&bed);
	vol = tux3_core(bed.volume);
	ino = bed_ino(&bed, "/d1/file-1");
	key = tree_key(ino, TUX3_ITEM_ATTR, 0);
	assert_ok(delta_commit_unify(vol));
	assert_int_equal(tree_lookup(vol, &key, &attr, sizeof(attr)), sizeof(attr));
	attr.nlink = cpu_to_le32(7);
	delta_lock(vol);
	vol->delta.applying = vol->delta.committed + 1;
	tree_edit_begin(vol);
	assert_ok(tree_set(vol, &key, &attr, sizeof(attr)));
	tree_edit_end(vol);
	vol->delta.applying = vol->delta.committed;
	delta_unlock(vol);
	bed_close(&bed);
	assert_int_equal(run_switch(&bed, true, why, sizeof(why)), -EUCLEAN);
	assert_non_null(strstr(why, "repaired first: Inode "));
	bed_open(&bed);
	assert_false(tux3_core(bed.volume)->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA);
	bed_close(&bed);
	bed.dev->ops->close(bed.dev);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_switch),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_problem),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
