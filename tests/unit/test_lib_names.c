/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names, attributes, permissions, ACLs and paths in libtux3.
 */
#include "support_lib.h"
#include "core/delta/delta.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static const struct tux3_cred alice = { .uid = 1000, .gid = 1000, .umask = 022 };
static const struct tux3_cred bob = { .uid = 1001, .gid = 1001, .umask = 022 };
static const struct tux3_cred root_cred = { .capable = true, .umask = 022 };

static struct tux3_node *get(struct bed *bed, const char *path)
{
	struct tux3_node *node = NULL;

	assert_ok(tux3_path(bed->volume, NULL, path, TUX3_NOFOLLOW, 0, &node));
	return node;
}

static u64 ino_of(struct bed *bed, const char *path)
{
	struct tux3_node *node;
	u64 ino;

	if (tux3_path(bed->volume, NULL, path, TUX3_NOFOLLOW, 0, &node))
		return 0;
	ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	return ino;
}

static struct tux3_stat stat_of(struct bed *bed, const char *path)
{
	struct tux3_node *node = get(bed, path);
	struct tux3_stat stat;

	assert_ok(tux3_stat_node(node, &stat));
	tux3_node_put(node, 1);
	return stat;
}

/* ---- basics ---- */

static void test_make_and_remove(void **state)
{
	struct bed bed = {};
	struct tux3_node *dir, *node;
	char name[300], target[8];
	struct tux3_stat stat;

	bed_make(&bed, 32 << 20, 4096);
	assert_ok(tux3_mknod(bed.root, NULL, "dir", S_IFDIR | 0755, 0, 0, &dir));
	assert_int_equal(tux3_mknod(bed.root, NULL, "dir", S_IFREG | 0644, 0, 0, NULL), -EEXIST);
	assert_ok(tux3_mknod(dir, NULL, "file", 0644, 0, 0, &node));
	assert_int_equal(tux3_mknod(node, NULL, "x", 0644, 0, 0, NULL), -ENOTDIR);
	assert_int_equal(tux3_rmdir(bed.root, NULL, "dir"), -ENOTEMPTY);
	assert_int_equal(tux3_unlink(bed.root, NULL, "dir"), -EISDIR);
	assert_int_equal(tux3_rmdir(dir, NULL, "file"), -ENOTDIR);
	assert_int_equal(tux3_unlink(dir, NULL, "nothing"), -ENOENT);
	assert_int_equal(tux3_mknod(dir, NULL, "a/b", 0644, 0, 0, NULL), -EINVAL);
	assert_int_equal(tux3_mknod(dir, NULL, "..", S_IFDIR, 0, 0, NULL), -EEXIST);
	memset(name, 'n', sizeof(name));
	name[256] = 0;
	assert_int_equal(tux3_mknod(dir, NULL, name, 0644, 0, 0, NULL), -ENAMETOOLONG);
	name[255] = 0;
	assert_ok(tux3_mknod(dir, NULL, name, S_IFBLK | 0600, 8, 1, NULL));
	assert_int_equal(tux3_symlink(dir, NULL, "link", NULL, NULL), -EINVAL);
	assert_int_equal(tux3_symlink(dir, NULL, "link", "", NULL), -ENOENT);
	assert_ok(tux3_symlink(dir, NULL, "link", "to/here", NULL));
	assert_ok(tux3_link(node, NULL, dir, "again"));
	assert_int_equal(tux3_link(dir, NULL, bed.root, "dirlink"), -EPERM);
	assert_int_equal(tux3_link(node, NULL, dir, "link"), -EEXIST);
	assert_ok(tux3_stat_node(dir, &stat));
	assert_int_equal(stat.size, 4);
	assert_int_equal(stat.nlink, 2);
	tux3_node_put(dir, 1);
	tux3_node_put(node, 1);
	bed_check(&bed);
	dir = get(&bed, "/dir");
	node = get(&bed, "/dir/link");
	assert_int_equal(tux3_readlink(node, target, sizeof(target)), 7);
	assert_memory_equal(target, "to/here", 7);
	tux3_node_put(node, 1);
	assert_int_equal(stat_of(&bed, "/dir/again").nlink, 2);
	assert_int_equal(ino_of(&bed, "/dir/again"), ino_of(&bed, "/dir/file"));
	assert_ok(tux3_unlink(dir, NULL, "link"));
	assert_ok(tux3_unlink(dir, NULL, "file"));
	assert_ok(tux3_unlink(dir, NULL, "again"));
	assert_ok(tux3_unlink(dir, NULL, name));
	assert_ok(tux3_rmdir(bed.root, NULL, "dir"));
	assert_int_equal(tux3_mknod(dir, NULL, "late", 0644, 0, 0, NULL), -ENOENT);
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

/* What is made and removed within a delta is counted, with the names in directories that go with it. */
static void test_vanishing_names(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	struct tux3_node *dir, *sub;
	u64 names, inodes;
	atomic64_t *counters;
	char name[16];
	u32 i;

	bed_make(&bed, 32 << 20, 4096);
	assert_ok(tux3_sync(bed.volume));
	counters = tux3_core(bed.volume)->counters;
	names = atomic64_read(&counters[TUX3_COUNT_NAMES_VANISHED]);
	inodes = atomic64_read(&counters[TUX3_COUNT_INODES_VANISHED]);
	assert_ok(tux3_mknod(bed.root, NULL, "dir", S_IFDIR | 0755, 0, 0, &dir));
	assert_ok(tux3_mknod(dir, NULL, "sub", S_IFDIR | 0755, 0, 0, &sub));
	for (i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_ok(tux3_mknod(sub, NULL, name, S_IFREG | 0644, 0, 0, NULL));
		assert_ok(tux3_unlink(sub, NULL, name));
	}
	assert_ok(tux3_rmdir(dir, NULL, "sub"));
	assert_ok(tux3_rmdir(bed.root, NULL, "dir"));
	tux3_node_put(sub, 1);
	tux3_node_put(dir, 1);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(atomic64_read(&counters[TUX3_COUNT_INODES_VANISHED]) - inodes, 12);
	assert_int_equal(atomic64_read(&counters[TUX3_COUNT_NAMES_VANISHED]) - names, 12);
	bed_free(&bed);
}

static void test_unlinked_open(void **state)
{
	struct bed bed = {};
	struct tux3_node *node, *other;
	struct tux3_statfs before, after;
	char text[8] = {};
	u64 ino;
	u32 generation;
	int i;

	bed_make(&bed, 32 << 20, 4096);
	assert_ok(tux3_statfs(bed.volume, &before));
	node = bed_file(&bed, "/gone");
	ino = tux3_node_ino(node);
	generation = tux3_node_core(node)->attr.generation;
	assert_int_equal(tux3_write(node, "still", 5, 100000), 5);
	assert_ok(tux3_unlink(bed.root, NULL, "gone"));
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(tux3_read(node, text, 8, 100000), 5);
	assert_string_equal(text, "still");
	assert_int_equal(tux3_write(node, "STILL", 5, 0), 5);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(tux3_link(node, NULL, bed.root, "back"), -ENOENT);
	assert_ok(tux3_node_get(bed.volume, ino, generation, &other));
	assert_ptr_equal(other, node);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	for (i = 0; i < 3; i++)
		assert_ok(tux3_sync(bed.volume));
	assert_int_equal(tux3_node_get(bed.volume, ino, generation, &other), -ESTALE);
	assert_ok(tux3_statfs(bed.volume, &after));
	assert_int_equal(after.inodes, before.inodes);

	assert_ok(tux3_tmpfile(bed.root, NULL, 0600, &node));
	assert_int_equal(tux3_write(node, "tmp", 3, 0), 3);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_link(node, NULL, bed.root, "named"));
	tux3_node_put(node, 1);
	assert_ok(tux3_tmpfile(bed.root, NULL, 0600, &node));
	tux3_node_put(node, 1);
	bed_check(&bed);
	assert_int_equal(stat_of(&bed, "/named").size, 3);
	assert_int_equal(stat_of(&bed, "/named").nlink, 1);
	/* In use without a name when the power fails: the next mount deletes it. */
	node = get(&bed, "/named");
	assert_ok(tux3_unlink(bed.root, NULL, "named"));
	assert_ok(tux3_sync(bed.volume));
	bed_crash(&bed);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_statfs(bed.volume, &after));
	assert_int_equal(after.inodes, before.inodes);
	bed_free(&bed);
}

/* A file gets its first name, and its last user leaves it, when the back end has found it without one and is about to kill it. */
static struct {
	const struct tux3_host_ops *inner;
	struct bed *bed;
	struct tux3_node *node;
} late;

static bool kill_named(struct tux3_inode *inode)
{
	if (late.node && inode->ino == tux3_node_ino(late.node)) {
		assert_ok(tux3_link(late.node, NULL, late.bed->root, "late"));
		tux3_node_put(late.node, 1);
		late.node = NULL;
	}
	return late.inner->inode_kill(inode);
}

static void test_named_while_killed(void **state)
{
	struct bed bed = {};
	struct tux3_host_ops host;
	struct volume *vol;

	bed_make(&bed, 32 << 20, 4096);
	vol = tux3_core(bed.volume);
	late.inner = vol->host;
	late.bed = &bed;
	host = *late.inner;
	host.inode_kill = kill_named;
	tux3_node_put(bed_file(&bed, "/other"), 1);	/* the directory's names are in memory */
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_tmpfile(bed.root, NULL, 0600, &late.node));
	assert_int_equal(tux3_write(late.node, "tmp", 3, 0), 3);
	delta_lock(vol);
	vol->host = &host;
	delta_unlock(vol);
	assert_ok(tux3_sync(bed.volume));
	assert_null(late.node);
	delta_lock(vol);
	vol->host = late.inner;
	delta_unlock(vol);
	assert_int_equal(stat_of(&bed, "/late").size, 3);
	bed_check(&bed);
	assert_int_equal(stat_of(&bed, "/late").size, 3);
	bed_free(&bed);
}

/* ---- readdir ---- */

struct seen {
	struct bed *bed;
	u32 count, limit;
	u8 names[2000];
	bool lookup;
	struct tux3_node *dir;
};

static int see(void *ctx, const struct tux3_dirent *entry)
{
	struct seen *seen = ctx;
	unsigned int n;

	if (seen->limit && !seen->limit--)
		return 1;
	if (sscanf(entry->name, "f%u", &n) == 1) {
		assert_true(n < 2000);
		seen->names[n]++;
		if (seen->lookup) {
			struct tux3_node *node;

			assert_ok(tux3_lookup(seen->dir, NULL, entry->name, &node));
			assert_int_equal(tux3_node_ino(node), entry->ino);
			tux3_node_put(node, 1);
		}
	} else {
		assert_true(entry->name[0] == '.');
		assert_int_equal(entry->type, DT_DIR);
	}
	seen->count++;
	return 0;
}

static void test_readdir(void **state)
{
	struct bed bed = {};
	struct tux3_node *dir;
	uint64_t cookie = 0;
	struct seen seen = {};
	char name[16];
	int i, round, result;

	bed_make(&bed, 32 << 20, 4096);
	assert_ok(tux3_mknod(bed.root, NULL, "dir", S_IFDIR | 0755, 0, 0, &dir));
	for (i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		assert_ok(tux3_mknod(dir, NULL, name, 0644, 0, 0, NULL));
		if (i == 1000)
			assert_ok(tux3_sync(bed.volume));
	}
	for (round = 0; round < 2; round++) {
		memset(&seen, 0, sizeof(seen));
		seen.dir = dir;
		seen.lookup = round;
		cookie = 0;
		do {
			seen.limit = 37;
			result = tux3_readdir(dir, &cookie, see, &seen);
		} while (result == 1);
		assert_int_equal(result, 0);
		assert_int_equal(seen.count, 2002);
		for (i = 0; i < 2000; i++)
			assert_int_equal(seen.names[i], 1);
		tux3_node_put(dir, 1);
		bed_reopen(&bed);
		dir = get(&bed, "/dir");
	}
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

/* ---- rename ---- */

static void make(struct bed *bed, const char *path, char kind)
{
	if (kind == 'd')
		assert_ok(tux3_path_mkdir(bed->volume, NULL, path, 0755));
	else if (kind == 'D') {
		char below[64];

		assert_ok(tux3_path_mkdir(bed->volume, NULL, path, 0755));
		snprintf(below, sizeof(below), "%s/below", path);
		tux3_node_put(bed_file(bed, below), 1);
	} else if (kind == 'f') {
		tux3_node_put(bed_file(bed, path), 1);
	}
}

/* Old and new: nothing, file, empty directory, full directory; what rename(2) answers. */
static void test_rename_matrix(void **state)
{
	static const char kinds[] = "-fdD";
	static const int expect[4][4] = {
		{ -ENOENT, -ENOENT, -ENOENT, -ENOENT },
		{ 0, 0, -EISDIR, -EISDIR },
		{ 0, -ENOTDIR, 0, -ENOTEMPTY },
		{ 0, -ENOTDIR, 0, -ENOTEMPTY },
	};
	struct bed bed = {};
	int o, n, across, flags, round = 0;

	bed_make(&bed, 64 << 20, 4096);
	for (flags = 0; flags < 3; flags++)
		for (across = 0; across < 2; across++)
			for (o = 0; o < 4; o++)
				for (n = 0; n < 4; n++, round++) {
					char base[16], old[32], new[32];
					u64 old_ino, new_ino;
					int want = expect[o][n], got;

					snprintf(base, sizeof(base), "/r%d", round);
					make(&bed, base, 'd');
					snprintf(new, sizeof(new), "%s/sub", base);
					make(&bed, new, 'd');
					snprintf(old, sizeof(old), "%s/old", base);
					snprintf(new, sizeof(new), across ? "%s/sub/new" : "%s/new", base);
					make(&bed, old, kinds[o]);
					make(&bed, new, kinds[n]);
					old_ino = ino_of(&bed, old);
					new_ino = ino_of(&bed, new);
					if (flags == TUX3_RENAME_NOREPLACE && o && n)
						want = -EEXIST;
					if (flags == TUX3_RENAME_EXCHANGE && o)
						want = n ? 0 : -ENOENT;
					got = tux3_path_rename(bed.volume, NULL, old, new, flags);
					if (got != want)
						fail_msg("%s %c -> %c flags %d: %d, not %d", across ? "across" : "within",
							 kinds[o], kinds[n], flags, got, want);
					assert_int_equal(ino_of(&bed, new), want ? new_ino : old_ino);
					assert_int_equal(ino_of(&bed, old),
							 want ? old_ino : flags == TUX3_RENAME_EXCHANGE ? new_ino : 0);
					if (round % 7 == 0)
						bed_check(&bed);
				}
	bed_free(&bed);
}

static void test_rename_special(void **state)
{
	struct bed bed = {};
	struct tux3_node *node, *a, *b;
	struct tux3_stat stat;

	bed_make(&bed, 32 << 20, 4096);
	make(&bed, "/a", 'd');
	make(&bed, "/a/b", 'd');
	make(&bed, "/a/b/c", 'd');
	make(&bed, "/f", 'f');
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/a", "/a/b/c/d", 0), -EINVAL);
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/a/b/c", "/a", 0), -ENOTEMPTY);
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/a/b/c", "/a", TUX3_RENAME_EXCHANGE), -EINVAL);
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/a/.", "/x", 0), -EBUSY);
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/", "/x", 0), -EBUSY);
	/* Two names of one file: nothing happens. */
	node = get(&bed, "/f");
	assert_ok(tux3_link(node, NULL, bed.root, "g"));
	assert_ok(tux3_path_rename(bed.volume, NULL, "/f", "/g", 0));
	assert_int_equal(ino_of(&bed, "/f"), ino_of(&bed, "/g"));
	tux3_node_put(node, 1);
	assert_ok(tux3_path_rename(bed.volume, NULL, "/f", "/f", 0));
	/* .. follows. */
	make(&bed, "/e", 'd');
	assert_ok(tux3_path_rename(bed.volume, NULL, "/a/b", "/e/b", 0));
	a = get(&bed, "/e/b");
	assert_ok(tux3_lookup(a, NULL, "..", &b));
	assert_int_equal(tux3_node_ino(b), ino_of(&bed, "/e"));
	tux3_node_put(a, 1);
	tux3_node_put(b, 1);
	assert_int_equal(stat_of(&bed, "/a").nlink, 2);
	assert_int_equal(stat_of(&bed, "/e").nlink, 3);
	assert_ok(tux3_path_rename(bed.volume, NULL, "/g", "/a/w", TUX3_RENAME_WHITEOUT));
	stat = stat_of(&bed, "/g");
	assert_true(S_ISCHR(stat.mode) && !stat.rdev_major && !stat.rdev_minor);
	/* An open file that loses its name to another. */
	node = bed_file(&bed, "/victim");
	assert_int_equal(tux3_write(node, "v", 1, 0), 1);
	make(&bed, "/winner", 'f');
	assert_ok(tux3_path_rename(bed.volume, NULL, "/winner", "/victim", 0));
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.nlink, 0);
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* ---- permissions ---- */

/* Who may not search a directory learns of no name in it, whatever he asks. */
static void test_secret_names(void **state)
{
	static const char *const names[] = { "is", "is not" };
	struct tux3_node *secret, *own, *node;
	struct bed bed = {};
	u32 i, flags;

	bed_make(&bed, 32 << 20, 4096);
	assert_ok(tux3_mknod(bed.root, &root_cred, "secret", S_IFDIR | 0700, 0, 0, &secret));
	assert_ok(tux3_mknod(secret, &root_cred, "is", 0644, 0, 0, NULL));
	assert_ok(tux3_mknod(bed.root, NULL, "own", S_IFDIR | 0777, 0, 0, &own));
	assert_ok(tux3_mknod(own, &alice, "file", 0644, 0, 0, &node));
	assert_ok(tux3_mknod(own, &alice, "dir", S_IFDIR | 0755, 0, 0, NULL));
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(tux3_mknod(secret, &alice, names[i], 0644, 0, 0, NULL), -EACCES);
		assert_int_equal(tux3_mknod(secret, &alice, names[i], S_IFDIR | 0755, 0, 0, NULL), -EACCES);
		assert_int_equal(tux3_symlink(secret, &alice, names[i], "target", NULL), -EACCES);
		assert_int_equal(tux3_link(node, &alice, secret, names[i]), -EACCES);
		assert_int_equal(tux3_unlink(secret, &alice, names[i]), -EACCES);
		assert_int_equal(tux3_rmdir(secret, &alice, names[i]), -EACCES);
		for (flags = 0; flags <= TUX3_RENAME_EXCHANGE; flags++) {
			assert_int_equal(tux3_rename(own, "file", secret, names[i], flags, &alice), -EACCES);
			assert_int_equal(tux3_rename(own, "dir", secret, names[i], flags, &alice), -EACCES);
			assert_int_equal(tux3_rename(secret, names[i], own, "file", flags, &alice), -EACCES);
		}
	}
	tux3_node_put(node, 1);
	tux3_node_put(own, 1);
	tux3_node_put(secret, 1);
	/* Nor where nothing can be changed anyway. */
	bed.opts.read_only = true;
	bed_reopen(&bed);
	secret = bed_find(&bed, "/secret");
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(tux3_unlink(secret, &alice, names[i]), -EACCES);
		assert_int_equal(tux3_rmdir(secret, &alice, names[i]), -EACCES);
	}
	tux3_node_put(secret, 1);
	bed_free(&bed);
}

static void test_permissions(void **state)
{
	static const u32 groups[] = { 500, 1000 };
	struct tux3_cred member = { .uid = 1002, .gid = 1002, .groups = groups, .group_count = 2, .umask = 027 };
	struct bed bed = {};
	struct tux3_node *dir, *node;
	struct tux3_stat set = {};

	bed_make(&bed, 32 << 20, 4096);
	assert_int_equal(tux3_mknod(bed.root, &alice, "x", 0644, 0, 0, NULL), -EACCES);
	assert_ok(tux3_mknod(bed.root, &root_cred, "tmp", S_IFDIR | 0777, 0, 0, &dir));
	set.mode = 01777;
	assert_int_equal(tux3_setattr(dir, &alice, &set, TUX3_SET_MODE), -EPERM);
	assert_ok(tux3_setattr(dir, &root_cred, &set, TUX3_SET_MODE));
	assert_ok(tux3_mknod(dir, &alice, "hers", 0666, 0, 0, &node));
	assert_int_equal(tux3_node_mode(node), S_IFREG | 0644);
	assert_int_equal(tux3_access(node, &bob, R_OK), 0);
	assert_int_equal(tux3_access(node, &bob, W_OK), -EACCES);
	assert_int_equal(tux3_access(node, &alice, R_OK | W_OK), 0);
	assert_int_equal(tux3_access(node, &alice, X_OK), -EACCES);
	assert_int_equal(tux3_access(node, &root_cred, R_OK | W_OK), 0);
	assert_int_equal(tux3_access(node, &root_cred, X_OK), -EACCES);
	assert_int_equal(tux3_unlink(dir, &bob, "hers"), -EPERM);
	assert_int_equal(tux3_rename(dir, "hers", dir, "his", 0, &bob), -EPERM);
	set.mode = 0640;
	assert_ok(tux3_setattr(node, &alice, &set, TUX3_SET_MODE));
	assert_int_equal(tux3_access(node, &member, R_OK), 0);
	assert_int_equal(tux3_access(node, &bob, R_OK), -EACCES);
	set.uid = 1001;
	assert_int_equal(tux3_setattr(node, &alice, &set, TUX3_SET_UID), -EPERM);
	set.mode = 06755;
	assert_ok(tux3_setattr(node, &alice, &set, TUX3_SET_MODE));
	assert_int_equal(tux3_node_mode(node) & 07777, 06755);
	set.gid = 1000;
	assert_ok(tux3_setattr(node, &alice, &set, TUX3_SET_GID));
	assert_int_equal(tux3_node_mode(node) & 07777, 0755);
	set.size = 5;
	assert_int_equal(tux3_setattr(node, &bob, &set, TUX3_SET_SIZE), -EACCES);
	assert_ok(tux3_setattr(node, &alice, &set, TUX3_SET_SIZE));
	assert_int_equal(tux3_setattr(node, &bob, &set, TUX3_SET_ATIME_NOW), -EACCES);
	/* Flags. */
	set.flags = TUX3_ATTR_IMMUTABLE;
	assert_int_equal(tux3_setattr(node, &alice, &set, TUX3_SET_FLAGS), -EPERM);
	assert_ok(tux3_setattr(node, &root_cred, &set, TUX3_SET_FLAGS));
	assert_int_equal(tux3_write(node, "x", 1, 0), -EPERM);
	assert_int_equal(tux3_unlink(dir, &root_cred, "hers"), -EPERM);
	set.flags = TUX3_ATTR_APPEND;
	assert_ok(tux3_setattr(node, &root_cred, &set, TUX3_SET_FLAGS));
	assert_int_equal(tux3_write(node, "x", 1, 0), -EPERM);
	assert_int_equal(tux3_append(node, "x", 1), 1);
	assert_int_equal(tux3_truncate(node, 0), -EPERM);
	/* Nothing that we do not keep is dropped in silence. */
	set.flags = ~0u;
	assert_int_equal(tux3_setattr(node, NULL, &set, TUX3_SET_FLAGS), -EOPNOTSUPP);
	set.flags = TUX3_ATTR_KNOWN + 1;
	assert_int_equal(tux3_setattr(node, NULL, &set, TUX3_SET_FLAGS), -EOPNOTSUPP);
	set.flags = 0;
	assert_ok(tux3_setattr(node, &root_cred, &set, TUX3_SET_FLAGS));
	assert_ok(tux3_unlink(dir, &alice, "hers"));
	tux3_node_put(node, 1);
	/* setgid directories pass their group on. */
	assert_ok(tux3_mknod(dir, &root_cred, "proj", S_IFDIR | 0777, 0, 0, &node));
	set.mode = 02777;
	set.gid = 500;
	assert_ok(tux3_setattr(node, &root_cred, &set, TUX3_SET_MODE | TUX3_SET_GID));
	assert_ok(tux3_mknod(node, &alice, "sub", S_IFDIR | 0755, 0, 0, NULL));
	assert_ok(tux3_mknod(node, &alice, "file", 0644, 0, 0, NULL));
	assert_int_equal(stat_of(&bed, "/tmp/proj/sub").gid, 500);
	assert_int_equal(stat_of(&bed, "/tmp/proj/sub").mode, S_IFDIR | 02755);
	assert_int_equal(stat_of(&bed, "/tmp/proj/file").gid, 500);
	assert_int_equal(stat_of(&bed, "/tmp/proj/file").uid, 1000);
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

/* ---- ACLs ---- */

struct acl_text {
	u16 tag, perm;
	u32 id;
};

static size_t make_acl(u8 *value, const struct acl_text *entries, u32 count)
{
	u32 i;

	put_unaligned_le32(2, value);
	for (i = 0; i < count; i++) {
		put_unaligned_le16(entries[i].tag, value + 4 + 8 * i);
		put_unaligned_le16(entries[i].perm, value + 6 + 8 * i);
		put_unaligned_le32(entries[i].id, value + 8 + 8 * i);
	}
	return 4 + 8 * count;
}

#define ACL(value, ...) make_acl(value, (const struct acl_text[]){ __VA_ARGS__ }, \
				 sizeof((const struct acl_text[]){ __VA_ARGS__ }) / sizeof(struct acl_text))
#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

static void test_acls(void **state)
{
	struct bed bed = {};
	struct tux3_node *dir, *node, *sub;
	struct tux3_stat set = {};
	u8 value[256], got[256];
	size_t size;

	bed_make(&bed, 32 << 20, 4096);
	assert_ok(tux3_mknod(bed.root, &root_cred, "dir", S_IFDIR | 0755, 0, 0, &dir));
	assert_ok(tux3_mknod(dir, &root_cred, "file", 0600, 0, 0, &node));
	size = ACL(value, { 1, 6, -1 }, { 2, 6, 1000 }, { 4, 0, -1 }, { 8, 4, 1001 }, { 16, 4, -1 }, { 32, 0, -1 });
	assert_int_equal(tux3_setxattr(node, &alice, ACCESS, value, size, 0), -EPERM);
	assert_ok(tux3_setxattr(node, &root_cred, ACCESS, value, size, 0));
	assert_int_equal(tux3_node_mode(node) & 0777, 0640);
	assert_int_equal(tux3_access(node, &alice, R_OK), 0);
	assert_int_equal(tux3_access(node, &alice, W_OK), -EACCES);	/* the mask */
	assert_int_equal(tux3_access(node, &bob, R_OK), 0);
	assert_int_equal(tux3_access(node, &bob, W_OK), -EACCES);
	set.mode = 0660;
	assert_ok(tux3_setattr(node, &root_cred, &set, TUX3_SET_MODE));
	assert_int_equal(tux3_access(node, &alice, W_OK), 0);
	assert_int_equal(tux3_access(node, &bob, W_OK), -EACCES);
	assert_int_equal(tux3_getxattr(node, ACCESS, got, sizeof(got)), size);
	assert_int_equal(got[4 + 8 * 4 + 2], 6);			/* the mask is what chmod said */
	/* One that is no more than a mode. */
	size = ACL(value, { 1, 7, -1 }, { 4, 5, -1 }, { 32, 1, -1 });
	assert_ok(tux3_setxattr(node, &root_cred, ACCESS, value, size, 0));
	assert_int_equal(tux3_node_mode(node) & 0777, 0751);
	assert_int_equal(tux3_getxattr(node, ACCESS, got, sizeof(got)), -ENODATA);
	/* Nonsense. */
	size = ACL(value, { 1, 7, -1 }, { 32, 1, -1 });
	assert_int_equal(tux3_setxattr(node, &root_cred, ACCESS, value, size, 0), -EINVAL);
	size = ACL(value, { 1, 7, -1 }, { 2, 7, 5 }, { 4, 5, -1 }, { 32, 1, -1 });
	assert_int_equal(tux3_setxattr(node, &root_cred, ACCESS, value, size, 0), -EINVAL);
	assert_int_equal(tux3_setxattr(node, &root_cred, DEFAULT, value, size, 0), -EACCES);
	tux3_node_put(node, 1);
	/* Inheritance: the umask counts for nothing. */
	size = ACL(value, { 1, 7, -1 }, { 2, 7, 1000 }, { 4, 5, -1 }, { 16, 7, -1 }, { 32, 0, -1 });
	assert_ok(tux3_setxattr(dir, &root_cred, DEFAULT, value, size, 0));
	assert_ok(tux3_mknod(dir, &root_cred, "new", 0664, 0, 0, &node));
	assert_int_equal(tux3_node_mode(node) & 0777, 0660);
	assert_int_equal(tux3_access(node, &alice, R_OK | W_OK), 0);
	assert_int_equal(tux3_access(node, &alice, X_OK), -EACCES);
	assert_int_equal(tux3_access(node, &bob, R_OK), -EACCES);
	assert_int_equal(tux3_getxattr(node, DEFAULT, got, sizeof(got)), -ENODATA);
	assert_ok(tux3_mknod(dir, &root_cred, "sub", S_IFDIR | 0777, 0, 0, &sub));
	assert_int_equal(tux3_getxattr(sub, DEFAULT, got, sizeof(got)), size);
	assert_memory_equal(got, value, size);
	assert_ok(tux3_mknod(sub, &alice, "deep", 0666, 0, 0, NULL));
	assert_int_equal(tux3_mknod(sub, &bob, "deep2", 0666, 0, 0, NULL), -EACCES);
	tux3_node_put(sub, 1);
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	bed_check(&bed);
	node = get(&bed, "/dir/sub/deep");
	assert_int_equal(tux3_node_mode(node) & 0777, 0660);
	assert_int_equal(tux3_getxattr(node, ACCESS, got, 0), size);
	assert_int_equal(tux3_getxattr(node, ACCESS, got, 3), -ERANGE);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void test_xattrs(void **state)
{
	struct bed bed = {};
	struct tux3_node *node, *link;
	char list[256], *big = calloc(1, 70000), *back = calloc(1, 70000);
	int i;

	bed_make(&bed, 32 << 20, 4096);
	node = bed_file(&bed, "/file");
	assert_ok(tux3_symlink(bed.root, NULL, "link", "file", &link));
	assert_int_equal(tux3_getxattr(node, "user.a", list, 10), -ENODATA);
	assert_ok(tux3_setxattr(node, NULL, "user.a", "value", 5, 0));
	assert_int_equal(tux3_setxattr(node, NULL, "user.a", "value", 5, XATTR_CREATE), -EEXIST);
	assert_int_equal(tux3_setxattr(node, NULL, "user.b", "value", 5, XATTR_REPLACE), -ENODATA);
	assert_int_equal(tux3_setxattr(node, NULL, "user.", "value", 5, 0), -EINVAL);
	assert_int_equal(tux3_setxattr(node, NULL, "foo.x", "value", 5, 0), -EOPNOTSUPP);
	assert_int_equal(tux3_setxattr(link, NULL, "user.x", "value", 5, 0), -EPERM);
	assert_ok(tux3_setxattr(link, NULL, "trusted.x", "value", 5, 0));
	assert_int_equal(tux3_setxattr(node, &alice, "trusted.x", "value", 5, 0), -EPERM);
	assert_int_equal(tux3_setxattr(node, &alice, "user.x", "value", 5, 0), -EACCES);
	memset(big, 'b', 65536);
	assert_ok(tux3_setxattr(node, NULL, "user.big", big, 65536, 0));
	assert_int_equal(tux3_setxattr(node, NULL, "user.big", big, 65537, 0), -E2BIG);
	assert_int_equal(tux3_setxattr(node, NULL, "user.none", NULL, 5, 0), -EINVAL);
	assert_ok(tux3_setxattr(node, NULL, "user.empty", NULL, 0, 0));
	for (i = 0; i < 2; i++) {
		assert_int_equal(tux3_getxattr(node, "user.a", list, sizeof(list)), 5);
		assert_memory_equal(list, "value", 5);
		assert_int_equal(tux3_getxattr(node, "user.a", list, 4), -ERANGE);
		assert_int_equal(tux3_getxattr(node, "user.big", back, 70000), 65536);
		assert_memory_equal(back, big, 65536);
		assert_int_equal(tux3_getxattr(node, "user.empty", list, sizeof(list)), 0);
		assert_int_equal(tux3_listxattr(node, NULL, 0), 7 + 9 + 11);
		assert_int_equal(tux3_listxattr(node, list, 10), -ERANGE);
		assert_int_equal(tux3_listxattr(node, list, sizeof(list)), 7 + 9 + 11);
		tux3_node_put(node, 1);
		tux3_node_put(link, 1);
		bed_check(&bed);
		node = get(&bed, "/file");
		link = get(&bed, "/link");
	}
	assert_ok(tux3_removexattr(node, NULL, "user.big"));
	assert_int_equal(tux3_removexattr(node, NULL, "user.big"), -ENODATA);
	tux3_node_put(node, 1);
	tux3_node_put(link, 1);
	free(big);
	free(back);
	bed_free(&bed);
}

/* ---- paths ---- */

static void test_paths(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;
	char *text = malloc(5000);

	bed_make(&bed, 32 << 20, 4096);
	assert_ok(tux3_path(bed.volume, NULL, "/a/b/../b//c/file", TUX3_CREATE | TUX3_PARENTS, 0644, &node));
	tux3_node_put(node, 1);
	assert_true(ino_of(&bed, "/a/b/c/file") != 0);
	assert_int_equal(tux3_path(bed.volume, NULL, "/a/b/c/file/x", 0, 0, &node), -ENOTDIR);
	assert_int_equal(tux3_path(bed.volume, NULL, "/a/b/c/file/", 0, 0, &node), -ENOTDIR);
	assert_int_equal(tux3_path(bed.volume, NULL, "/a/b/c/new/", TUX3_CREATE, 0644, &node), -EISDIR);
	assert_int_equal(tux3_path(bed.volume, NULL, "", 0, 0, &node), -ENOENT);
	assert_int_equal(tux3_path(bed.volume, NULL, "/a/b/c/file", TUX3_CREATE | TUX3_EXCL, 0644, &node), -EEXIST);
	assert_ok(tux3_symlink(bed.root, NULL, "abs", "/a/b", NULL));
	assert_ok(tux3_symlink(bed.root, NULL, "rel", "a/./b/../b", NULL));
	assert_ok(tux3_symlink(bed.root, NULL, "dangling", "a/made", NULL));
	assert_ok(tux3_symlink(bed.root, NULL, "loop", "loop", NULL));
	assert_int_equal(ino_of(&bed, "/abs/c/file"), ino_of(&bed, "/a/b/c/file"));
	assert_int_equal(ino_of(&bed, "/rel/c/../c/file"), ino_of(&bed, "/a/b/c/file"));
	assert_int_equal(ino_of(&bed, "/abs/"), ino_of(&bed, "/a/b"));
	assert_true(ino_of(&bed, "/abs") != ino_of(&bed, "/a/b"));
	assert_int_equal(tux3_path(bed.volume, NULL, "/loop", 0, 0, &node), -ELOOP);
	assert_int_equal(tux3_path(bed.volume, NULL, "/loop/x", 0, 0, &node), -ELOOP);
	assert_ok(tux3_path(bed.volume, NULL, "/dangling", TUX3_CREATE, 0644, &node));
	tux3_node_put(node, 1);
	assert_true(ino_of(&bed, "/a/made") != 0);
	memset(text, 'x', 4999);
	text[0] = '/';
	text[4999] = 0;
	assert_int_equal(tux3_path(bed.volume, NULL, text, 0, 0, &node), -ENAMETOOLONG);
	text[300] = 0;
	assert_int_equal(tux3_path(bed.volume, NULL, text, 0, 0, &node), -ENAMETOOLONG);
	assert_int_equal(tux3_path_unlink(bed.volume, NULL, "/"), -EBUSY);
	assert_int_equal(tux3_path_unlink(bed.volume, NULL, "/a"), -ENOTEMPTY);
	/* A slash at the end says that it is a directory, as in rename(2). */
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/a/b/c/file/", "/new", 0), -ENOTDIR);
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/a/b/c/file", "/new/", 0), -ENOTDIR);
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/abs/", "/new", 0), -ENOTDIR);
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/a/b/c", "/a/b/c/file/", TUX3_RENAME_EXCHANGE), -ENOTDIR);
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/a", "/rel/", TUX3_RENAME_EXCHANGE), -ENOTDIR);
	assert_int_equal(tux3_path_rename(bed.volume, NULL, "/none/", "/new", 0), -ENOENT);
	assert_ok(tux3_path_rename(bed.volume, NULL, "/a/b/c/", "/a/b/d/", 0));
	assert_ok(tux3_path_rename(bed.volume, NULL, "/a/b/d", "/a/b/c", 0));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/a/b/c/file"));
	assert_ok(tux3_path_unlink(bed.volume, NULL, "/a/b/c/"));
	assert_int_equal(tux3_path_mkdir(bed.volume, NULL, "/a/b", 0755), -EEXIST);
	assert_ok(tux3_path(bed.volume, NULL, "/", 0, 0, &node));
	tux3_node_put(node, 1);
	free(text);
	bed_free(&bed);
}

static void test_busy_close(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	bed_make(&bed, 32 << 20, 4096);
	node = bed_file(&bed, "/f");
	tux3_node_put(bed.root, 1);
	assert_int_equal(tux3_close(bed.volume), -EBUSY);
	tux3_node_put(node, 1);
	bed.root = tux3_root(bed.volume);
	assert_int_equal(tux3_close(bed.volume), -EBUSY);
	bed_free(&bed);
}

/* Has it moved since?  *change: what it was, and then is. */
static bool moved(struct tux3_node *node, u64 *change)
{
	struct tux3_stat stat;
	u64 before = *change;

	assert_ok(tux3_stat_node(node, &stat));
	*change = stat.change;
	return stat.change > before;
}

/* Who caches a file or directory by its count of changes sees each of them, many in one delta too; but no reading. */
static void test_change_count(void **state)
{
	struct bed bed = { .opts.age_ms = 3600 * 1000 };
	struct tux3_stat mode = { .mode = 0600 }, size = { .size = 100 }, old = { .atime.tv_sec = 1 };
	struct tux3_node *node, *dir;
	u64 change = 0, in_dir = 0;
	char byte;
	int i;

	bed_make(&bed, 32 << 20, 4096);
	assert_ok(tux3_mknod(bed.root, NULL, "dir", S_IFDIR | 0755, 0, 0, &dir));
	assert_ok(tux3_mknod(dir, NULL, "file", 0644, 0, 0, &node));
	moved(dir, &in_dir);
	for (i = 0; i < 2; i++) {
		assert_int_equal(tux3_write(node, "x", 1, 0), 1);
		assert_true(moved(node, &change));
		assert_int_equal(tux3_write(node, "y", 1, 0), 1);
		assert_true(moved(node, &change));
		assert_ok(tux3_setattr(node, NULL, &mode, TUX3_SET_MODE));
		assert_true(moved(node, &change));
		assert_ok(tux3_setattr(node, NULL, &size, TUX3_SET_SIZE));
		assert_true(moved(node, &change));
		assert_ok(tux3_setattr(node, NULL, &old, TUX3_SET_ATIME));
		assert_true(moved(node, &change));
		assert_int_equal(tux3_read(node, &byte, 1, 0), 1);
		assert_int_equal(byte, 'y');
		assert_false(moved(node, &change));
		assert_ok(tux3_setxattr(node, NULL, "user.x", "1", 1, 0));
		assert_true(moved(node, &change));
		assert_false(moved(dir, &in_dir));
		assert_ok(tux3_link(node, NULL, dir, "again"));
		assert_true(moved(node, &change) && moved(dir, &in_dir));
		assert_ok(tux3_rename(dir, "again", dir, "other", 0, NULL));
		assert_true(moved(node, &change) && moved(dir, &in_dir));
		assert_ok(tux3_unlink(dir, NULL, "other"));
		assert_true(moved(node, &change) && moved(dir, &in_dir));
		tux3_node_put(node, 1);
		tux3_node_put(dir, 1);
		bed_reopen(&bed);
		dir = get(&bed, "/dir");
		node = get(&bed, "/dir/file");
		assert_true(stat_of(&bed, "/dir/file").change == change && stat_of(&bed, "/dir").change == in_dir);
	}
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

/* All that belongs to a new file is put into the tree at one place, whatever order it comes in: so leaves get full. */
static void test_new_files_fill_leaves(void **state)
{
	const u32 files = 3000, leaves_for_each_1000 = 90;
	struct bed bed = { .opts = { .manual = true, .dirty_bytes = 1ull << 30 } };
	struct tux3_node *dir, *node;
	static u8 data[4096];
	char name[16];
	u32 i;

	bed_make(&bed, 256 << 20, 4096);
	dir = tux3_root(bed.volume);
	for (i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "file%u", i);
		assert_ok(tux3_mknod(dir, NULL, name, S_IFREG | 0644, 0, 0, &node));
		assert_ok(tux3_write(node, data, sizeof(data), 0));
		tux3_node_put(node, 1);
		if (i % 1000 == 999)
			assert_ok(tux3_sync(bed.volume));
	}
	assert_in_range(tux3_core(bed.volume)->tree.dirty_count, 1, files / 1000 * leaves_for_each_1000);
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

/* What is asked for and not known is refused, so that a later version can give it a meaning. */
static void test_unknown_flags(void **state)
{
	struct tux3_node *file, *other;
	struct tux3_stat stat;
	struct bed bed = {};

	bed_make(&bed, 16 << 20, 4096);
	file = bed_file(&bed, "/f");
	assert_ok(tux3_stat_node(file, &stat));
	stat.mode = 0600;
	assert_int_equal(tux3_setattr(file, NULL, &stat, TUX3_SET_MODE | TUX3_SET_KILL << 1), -EINVAL);
	assert_int_equal(tux3_setattr(file, NULL, &stat, 1u << 31), -EINVAL);
	assert_ok(tux3_stat_node(file, &stat));
	assert_int_equal(stat.mode & 07777, 0644);
	assert_int_equal(tux3_path(bed.volume, NULL, "/f", TUX3_PARENTS << 1, 0, &other), -EINVAL);
	assert_int_equal(tux3_path(bed.volume, NULL, "/g", TUX3_CREATE | 1u << 31, 0644, &other), -EINVAL);
	assert_int_equal(tux3_path(bed.volume, NULL, "/g", 0, 0, &other), -ENOENT);
	tux3_node_put(file, 1);
	bed_free(&bed);
}

/* The kernel takes an id of all ones for none: nobody gets it here either. */
static void test_ids_that_nobody_has(void **state)
{
	const struct tux3_cred creds[] = { { .uid = UINT32_MAX, .capable = true }, { .gid = UINT32_MAX, .capable = true } };
	const struct tux3_stat none = { .uid = UINT32_MAX, .gid = UINT32_MAX, .projid = UINT32_MAX };
	const uint32_t each[] = { TUX3_SET_UID, TUX3_SET_GID, TUX3_SET_PROJID };
	struct tux3_node *file, *other;
	struct tux3_stat stat;
	struct bed bed = {};
	uint32_t i;

	bed_make(&bed, 16 << 20, 4096);
	file = bed_file(&bed, "/f");
	for (i = 0; i < ARRAY_SIZE(each); i++)
		assert_int_equal(tux3_setattr(file, NULL, &none, each[i]), -EINVAL);
	assert_ok(tux3_stat_node(file, &stat));
	assert_int_equal(stat.uid | stat.gid | stat.projid, 0);
	for (i = 0; i < ARRAY_SIZE(creds); i++) {
		assert_int_equal(tux3_path(bed.volume, &creds[i], "/g", TUX3_CREATE, 0644, &other), -EINVAL);
		assert_int_equal(tux3_path_mkdir(bed.volume, &creds[i], "/g", 0755), -EINVAL);
		assert_int_equal(tux3_symlink(bed.root, &creds[i], "g", "f", &other), -EINVAL);
		assert_int_equal(tux3_tmpfile(bed.root, &creds[i], 0644, &other), -EINVAL);
	}
	assert_int_equal(ino_of(&bed, "/g"), 0);
	tux3_node_put(file, 1);
	bed_free(&bed);
}

/* A node of one volume is none of another's. */
static void test_other_volume(void **state)
{
	struct tux3_node *file, *far;
	struct bed bed = {}, other = {};
	struct tux3_stat stat;

	bed_make(&bed, 16 << 20, 4096);
	bed_make(&other, 16 << 20, 4096);
	file = bed_file(&bed, "/f");
	far = bed_file(&other, "/far");
	assert_int_equal(tux3_link(far, NULL, bed.root, "l"), -EXDEV);
	assert_int_equal(tux3_rename(other.root, "far", bed.root, "l", 0, NULL), -EXDEV);
	assert_int_equal(ino_of(&bed, "/l"), 0);
	assert_ok(tux3_stat_node(far, &stat));
	assert_int_equal(stat.nlink, 1);
	tux3_node_put(file, 1);
	tux3_node_put(far, 1);
	bed_free(&bed);
	bed_free(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_make_and_remove),
		cmocka_unit_test(test_vanishing_names),
		cmocka_unit_test(test_unlinked_open),
		cmocka_unit_test(test_named_while_killed),
		cmocka_unit_test(test_readdir),
		cmocka_unit_test(test_rename_matrix),
		cmocka_unit_test(test_rename_special),
		cmocka_unit_test(test_permissions),
		cmocka_unit_test(test_secret_names),
		cmocka_unit_test(test_acls),
		cmocka_unit_test(test_xattrs),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_busy_close),
		cmocka_unit_test(test_change_count),
		cmocka_unit_test(test_unknown_flags),
		cmocka_unit_test(test_ids_that_nobody_has),
		cmocka_unit_test(test_other_volume),
		cmocka_unit_test(test_new_files_fill_leaves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
