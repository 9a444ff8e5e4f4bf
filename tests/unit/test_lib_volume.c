/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Volumes in files: making, refusing to overwrite, opening, options, what they say about themselves.
 */
#include "support_lib.h"
#include "core/error.h"
#include "user/env/fault.h"
#include "user/env/signatures.h"
#include "user/lib/statistics.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <sys/stat.h>

static char path[] = "/tmp/tux3-test-XXXXXX";

static void make_file(u64 bytes)
{
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	close(fd);
}

static void test_format(void **state)
{
	struct tux3_format_options opts = { .label = "a label" };
	struct tux3_statfs stat;
	struct tux3 *volume;
	char why[256] = "", label[80];

	make_file(16 << 20);
	assert_ok(tux3_format(path, &opts, why, sizeof(why)));
	assert_int_equal(tux3_format(path, &opts, why, sizeof(why)), -EEXIST);
	assert_non_null(strstr(why, "Tux3"));
	memset(label, 'x', sizeof(label));
	label[65] = 0;
	opts.label = label;
	opts.force = true;
	assert_int_equal(tux3_format(path, &opts, why, sizeof(why)), -EINVAL);
	label[64] = 0;
	opts.block_size = 8192;
	opts.size_bytes = 32 << 20;	/* the file grows */
	assert_ok(tux3_format(path, &opts, why, sizeof(why)));
	assert_ok(tux3_open(path, NULL, &volume, why, sizeof(why)));
	assert_ok(tux3_statfs(volume, &stat));
	assert_string_equal(stat.label, label);
	assert_int_equal(stat.block_size, 8192);
	assert_int_equal(stat.blocks, 4096);
	assert_true(stat.available_blocks > 3700 && stat.available_blocks <= stat.free_blocks);
	/* Nobody else may have it meanwhile. */
	assert_true(tux3_format(path, &opts, why, sizeof(why)) < 0);
	assert_ok(tux3_close(volume));
	unlink(path);
	assert_int_equal(tux3_open(path, NULL, &volume, why, sizeof(why)), -ENOENT);
}

static int count_signatures(void)
{
	struct signature *found = NULL;
	int fd = open(path, O_RDONLY), count = signatures_find(fd, &found);

	free(found);
	close(fd);
	return count;
}

/* What other programs would miss is told, and nothing of it is left when it is overwritten. */
static void test_force(void **state)
{
	static const struct {
		off_t at;
		const char *bytes;
		int len;
		const char *what;
	} signs[] = {
		{ 4086, "SWAPSPACE2", 10, "swap" },
		{ 510, "\x55\xaa", 2, "partition table" },
		{ (16 << 20) - (1 << 20) + 24, "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", 16,
		  "bcachefs" },
	};
	struct tux3_format_options opts = { .size_bytes = 8 << 20 };
	char why[256];
	size_t i;
	int fd;

	make_file(16 << 20);
	fd = open(path, O_RDWR);
	for (i = 0; i < ARRAY_SIZE(signs); i++)
		assert_int_equal(pwrite(fd, signs[i].bytes, signs[i].len, signs[i].at), signs[i].len);
	/* A partition, and what else a swap header has. */
	assert_int_equal(pwrite(fd, "\x80\x01\x01\x00\x83\xfe\xff\xff\x01\x00\x00\x00\x00\x10\x00\x00", 16, 446), 16);
	assert_int_equal(pwrite(fd, "\1\0\0\0\xff\0\0\0", 8, 1024), 8);
	close(fd);
	assert_true(count_signatures() >= 3);
	assert_int_equal(tux3_format(path, &opts, why, sizeof(why)), -EEXIST);
	for (i = 0; i < ARRAY_SIZE(signs); i++)
		assert_non_null(strstr(why, signs[i].what));
	opts.force = true;
	assert_ok(tux3_format(path, &opts, why, sizeof(why)));
	assert_int_equal(count_signatures(), 0);
	unlink(path);
}

static bool opens_without(long nth)
{
	struct tux3_options opts = { .read_only = true };
	struct tux3 *volume;
	char why[256];
	int err;

	memset(why, '?', sizeof(why));
	env_fail_alloc_at(nth);
	err = tux3_open(path, &opts, &volume, why, sizeof(why));
	env_fail_alloc_at(0);
	if (!err)
		tux3_abandon(volume);
	else
		assert_true(err == -ENOMEM && (strstr(why, "memory") || strstr(why, error_text(err))));
	return !err;
}

static void formats_not_without(long nth)
{
	struct tux3_format_options opts = { .quota = true };
	char why[256];
	int err;

	memset(why, '?', sizeof(why));
	env_fail_alloc_at(nth);
	err = tux3_format(path, &opts, why, sizeof(why));
	env_fail_alloc_at(0);
	assert_true(err == -EEXIST || (err == -ENOMEM && strstr(why, "memory")));
}

/* Anchors that were not looked at, for want of memory: that is what is told, and it is as if they were there. */
static void test_no_memory(void **state)
{
	struct tux3_format_options opts = {};
	char why[256];
	long nth;

	make_file(16 << 20);
	assert_ok(tux3_format(path, &opts, why, sizeof(why)));
	for (nth = 1; !opens_without(-nth); nth++)
		;
	assert_true(nth > 20);
	for (nth = 1; nth < 20; nth++) {
		opens_without(nth);
		formats_not_without(nth);
		formats_not_without(-nth);
	}
	unlink(path);
}

/* A write that fails, here and there: what was in the place is there again, and a new file is gone. */
static void test_format_fails(void **state)
{
	struct tux3_format_options opts = { .size_bytes = 16 << 20, .force = true };
	struct rlimit before, limit;
	char *old = malloc(9 << 20), *now = malloc(9 << 20), why[256];
	struct stat st;
	int fd, i;

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	for (i = 0; i < 9 << 20; i++)
		old[i] = 3 * i + (i >> 8);
	for (i = 0; i < 3; i++) {
		static const u64 limits[] = { 100 << 10, 200 << 10, 9 << 20 };

		make_file(9 << 20);
		fd = open(path, O_RDWR);
		assert_int_equal(pwrite(fd, old, 9 << 20, 0), 9 << 20);
		close(fd);
		opts.size_bytes = i == 2 ? 16 << 20 : 0;
		limit = (struct rlimit){ .rlim_cur = limits[i], .rlim_max = before.rlim_max };
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		assert_int_equal(tux3_format(path, &opts, why, sizeof(why)), -EFBIG);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
		fd = open(path, O_RDONLY);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, 9 << 20);
		assert_int_equal(pread(fd, now, 9 << 20, 0), 9 << 20);
		assert_memory_equal(old, now, 9 << 20);
		close(fd);
		unlink(path);
		opts.size_bytes = 16 << 20;
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		assert_int_equal(tux3_format(path, &opts, why, sizeof(why)), -EFBIG);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
		assert_int_equal(access(path, F_OK), -1);
	}
	free(old);
	free(now);
}

/* In a child that is ended after so long, or not for 0.  Was it ended? */
static bool format_for_usecs(const struct tux3_format_options *opts, u64 usecs)
{
	struct itimerval after = { .it_value = { usecs / 1000000, usecs % 1000000 } };
	pid_t child = fork();
	char why[256];
	int status;

	if (!child) {
		signal(SIGALRM, SIG_DFL);
		setitimer(ITIMER_REAL, &after, NULL);
		_exit(tux3_format(path, opts, why, sizeof(why)) != 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) || !status);
	return WIFSIGNALED(status);
}

/* Who is ended in the middle leaves the volume that there was, or the new one. */
static void test_format_is_ended(void **state)
{
	struct tux3_format_options opts = { .label = "old", .force = true };
	u32 i, tries = FEWER(400, 100), ended = 0;
	struct tux3 *volume;
	char why[256];
	u64 usecs;

	make_file(1ULL << 30);
	assert_ok(tux3_format(path, &opts, why, sizeof(why)));
	opts.label = "new";
	usecs = ktime_get_ns();
	assert_false(format_for_usecs(&opts, 0));
	usecs = (ktime_get_ns() - usecs) / 1000;
	for (i = 1; i <= tries; i++) {
		ended += format_for_usecs(&opts, 1 + 2 * usecs * i / tries);
		assert_ok(tux3_open(path, NULL, &volume, why, sizeof(why)));
		assert_ok(tux3_close(volume));
	}
	assert_in_range(ended, 1, tries - 1);
	unlink(path);
}

static void test_read_only(void **state)
{
	struct tux3_options opts = { .read_only = true };
	struct tux3_node *node, *root;
	struct tux3_stat stat = {};
	struct tux3 *volume;
	char why[256], text[8];

	make_file(16 << 20);
	assert_ok(tux3_format(path, NULL, why, sizeof(why)));
	assert_ok(tux3_open(path, NULL, &volume, why, sizeof(why)));
	assert_ok(tux3_path(volume, NULL, "/dir/file", TUX3_CREATE | TUX3_PARENTS, 0644, &node));
	assert_int_equal(tux3_write(node, "text", 4, 0), 4);
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(volume));
	tux3_abandon(volume);		/* so that there is a log to replay in memory */
	assert_ok(tux3_open(path, &opts, &volume, why, sizeof(why)));
	root = tux3_root(volume);
	assert_ok(tux3_path(volume, NULL, "/dir/file", 0, 0, &node));
	assert_int_equal(tux3_read(node, text, 8, 0), 4);
	assert_memory_equal(text, "text", 4);
	assert_int_equal(tux3_write(node, "x", 1, 0), -EROFS);
	assert_int_equal(tux3_truncate(node, 0), -EROFS);
	assert_int_equal(tux3_fallocate(node, 0, 0, 10), -EROFS);
	assert_int_equal(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE), -EROFS);
	assert_int_equal(tux3_setxattr(node, NULL, "user.x", "", 0, 0), -EROFS);
	assert_int_equal(tux3_mknod(root, NULL, "new", 0644, 0, 0, NULL), -EROFS);
	assert_int_equal(tux3_mknod(root, NULL, "dir", 0644, 0, 0, NULL), -EEXIST);
	assert_int_equal(tux3_link(node, NULL, root, "new"), -EROFS);
	assert_int_equal(tux3_path_unlink(volume, NULL, "/dir/file"), -EROFS);
	assert_int_equal(tux3_path_unlink(volume, NULL, "/dir"), -EROFS);
	assert_int_equal(tux3_path_rename(volume, NULL, "/dir", "/d", 0), -EROFS);
	assert_int_equal(tux3_tmpfile(root, NULL, 0644, &node), -EROFS);
	assert_ok(tux3_path(volume, NULL, "/dir/file", 0, 0, &node));
	tux3_node_put(node, 2);
	tux3_node_put(root, 1);
	assert_ok(tux3_close(volume));
	unlink(path);
}

static void test_counters(void **state)
{
	struct tux3_counter_info counter;
	struct bed bed = {};
	unsigned int i;
	u64 before;

	bed_make(&bed, 16 << 20, 4096);
	before = tux3_committed(bed.volume);
	tux3_node_put(bed_file(&bed, "/f"), 1);
	assert_ok(tux3_sync(bed.volume));
	assert_true(tux3_committed(bed.volume) > before);
	for (i = 0; !tux3_counter(bed.volume, i, &counter); i++) {
		assert_non_null(counter.name);
		if (!strcmp(counter.name, "deltas"))
			assert_true(counter.value >= 1);
	}
	assert_int_equal(i, TUX3_COUNTER_COUNT);
	bed_free(&bed);
}

/* Who renames a volume may give it the names that who makes it may. */
static void test_label(void **state)
{
	static const char *const bad[] = {
		"two\nlines", "\033[31m", "\177",
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef!",
	};
	static const char *const good[] = { "new", "", "\303\244 b", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" };
	struct tux3_statfs stat;
	struct bed bed = {};
	unsigned int i;

	bed_make(&bed, 16 << 20, 4096);
	for (i = 0; i < ARRAY_SIZE(good); i++) {
		assert_ok(tux3_set_label(bed.volume, good[i]));
		assert_ok(tux3_statfs(bed.volume, &stat));
		assert_string_equal(stat.label, good[i]);
	}
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(tux3_set_label(bed.volume, bad[i]), -EINVAL);
	assert_ok(tux3_statfs(bed.volume, &stat));
	assert_string_equal(stat.label, good[3]);
	bed_free(&bed);
}

/* The unused nodes that are kept are few enough, and all can be found again. */
/* What the kernel module shows in sysfs is told as a daemon tells it. */
static void test_folder_statistics(void **state)
{
	char folder[] = "/tmp/tux3-test-XXXXXX", file[64], text[TUX3_STATISTICS_MAX + 1] = "";
	FILE *to;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(folder_statistics_text(folder, text, TUX3_STATISTICS_MAX), -ENOENT);
	snprintf(file, sizeof(file), "%s/inodes", folder);
	to = fopen(file, "w");
	assert_non_null(to);
	fprintf(to, "17\n");
	fclose(to);
	assert_true(folder_statistics_text(folder, text, TUX3_STATISTICS_MAX) > 0);
	assert_string_equal(text, "inodes 17 inodes in use\n");
	unlink(file);
	rmdir(folder);
}

static void test_many_nodes(void **state)
{
	struct bed bed = {};
	struct tux3_node *dir, *node;
	char name[24];
	int i;

	bed_make(&bed, 512 << 20, 4096);
	assert_ok(tux3_mknod(bed.root, NULL, "dir", S_IFDIR | 0755, 0, 0, &dir));
	for (i = 0; i < 130000; i++) {
		snprintf(name, sizeof(name), "file-%d", i);
		assert_ok(tux3_mknod(dir, NULL, name, 0644, 0, 0, NULL));
	}
	assert_ok(tux3_sync(bed.volume));
	for (i = 0; i < 130000; i += 7) {
		snprintf(name, sizeof(name), "file-%d", i);
		assert_ok(tux3_lookup(dir, NULL, name, &node));
		tux3_node_put(node, 1);
	}
	tux3_node_put(dir, 1);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_force),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_format_fails),
		cmocka_unit_test(test_format_is_ended),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_label),
		cmocka_unit_test(test_folder_statistics),
		cmocka_unit_test(test_many_nodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
