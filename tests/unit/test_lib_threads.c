/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Many threads on few names: whatever they do to each other, every answer is one that some order of the
 * calls allows, nothing is leaked, and the checker is content.  Made for ThreadSanitizer.
 */
#include "support_lib.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS	6
#define DIRS	4
#define NAMES	6

struct hammer {
	struct bed *bed;
	u64 seed;
	int ops;
};

static atomic64_t lately[64];		/* inode numbers seen, for lookups by number */

static bool one_of(int err, const int *allowed)
{
	if (err >= 0)
		return true;
	for (; *allowed; allowed++)
		if (err == *allowed)
			return true;
	return false;
}

#define ALLOW(call, ...) do {						\
	int result_ = (call);						\
	static const int allowed_[] = { __VA_ARGS__, 0 };		\
	if (!one_of(result_, allowed_))					\
		fail_msg("%s: %d", #call, result_);			\
} while (0)

static void random_path(u64 *seed, char *path, size_t size)
{
	snprintf(path, size, "/d%llu/n%llu", bed_random(seed) % DIRS, bed_random(seed) % NAMES);
}

static struct tux3_node *open_random(struct hammer *hammer, unsigned int flags)
{
	struct tux3_node *node = NULL;
	char path[32];
	int err;

	random_path(&hammer->seed, path, sizeof(path));
	err = tux3_path(hammer->bed->volume, NULL, path, flags | TUX3_NOFOLLOW, 0644, &node);
	if (err)
		return NULL;
	atomic64_set(&lately[bed_random(&hammer->seed) % 64], tux3_node_ino(node));
	return node;
}

static void hammer_data(struct hammer *hammer)
{
	struct tux3_node *node = open_random(hammer, TUX3_CREATE | TUX3_PARENTS);
	u64 pos = bed_random(&hammer->seed) % 300000, len = bed_random(&hammer->seed) % 40000;
	u8 *bytes;
	int i;

	if (!node)
		return;
	if (!S_ISREG(tux3_node_mode(node))) {
		tux3_node_put(node, 1);
		return;
	}
	bytes = malloc(40000);
	memset(bytes, 0x5a, 40000);
	switch (bed_random(&hammer->seed) % 6) {
	case 0:
	case 1:
		ALLOW(tux3_write(node, bytes, len, pos), -ENOSPC);
		break;
	case 2:
		ALLOW(tux3_truncate(node, pos), -ENOSPC);
		break;
	case 3:
		ALLOW(tux3_fallocate(node, 0x03, pos, len + 1), -ENOSPC);
		break;
	case 4:
		ALLOW(tux3_fallocate(node, 0, pos, len + 1), -ENOSPC);
		break;
	default:
		len = tux3_read(node, bytes, 40000, pos);
		for (i = 0; i < (ssize_t)len; i++)
			if (bytes[i] && bytes[i] != 0x5a)
				fail_msg("byte %02x", bytes[i]);
	}
	if (bed_random(&hammer->seed) % 16 == 0)
		ALLOW(tux3_fsync(node, false), -EIO);
	free(bytes);
	tux3_node_put(node, 1);
}

static int count_entry(void *ctx, const struct tux3_dirent *entry)
{
	return 0;
}

static void hammer_dirs(struct hammer *hammer)
{
	struct tux3 *volume = hammer->bed->volume;
	char path[32], other[32];
	struct tux3_node *node, *dir;
	uint64_t cookie = 0;

	random_path(&hammer->seed, path, sizeof(path));
	random_path(&hammer->seed, other, sizeof(other));
	switch (bed_random(&hammer->seed) % 8) {
	case 0:
		ALLOW(tux3_path_mkdir(volume, NULL, path, 0755), -EEXIST, -ENOENT, -ENOTDIR, -ENOSPC);
		break;
	case 1:
	case 2:
		ALLOW(tux3_path_unlink(volume, NULL, path), -ENOENT, -ENOTEMPTY, -ENOTDIR);
		break;
	case 3:
		ALLOW(tux3_path_rename(volume, NULL, path, other, 0), -ENOENT, -EISDIR, -ENOTDIR, -ENOTEMPTY,
		      -EINVAL, -ENOSPC);
		break;
	case 4:
		ALLOW(tux3_path_rename(volume, NULL, path, other, TUX3_RENAME_EXCHANGE), -ENOENT, -EINVAL, -ENOSPC);
		break;
	case 5:		/* directories among each other */
		path[3] = other[3] = 0;
		strcat(other, "/moved");
		ALLOW(tux3_path_rename(volume, NULL, path, other, 0), -ENOENT, -EISDIR, -ENOTDIR, -ENOTEMPTY,
		      -EINVAL, -ENOSPC);
		ALLOW(tux3_path_rename(volume, NULL, other, path, TUX3_RENAME_NOREPLACE), -ENOENT, -EEXIST, -EINVAL,
		      -ENOSPC);
		break;
	case 6:
		path[3] = 0;
		if (!tux3_path(volume, NULL, path, 0, 0, &dir)) {
			ALLOW(tux3_readdir(dir, &cookie, count_entry, NULL), -ENOTDIR);
			tux3_node_put(dir, 1);
		}
		break;
	default:
		node = open_random(hammer, 0);
		other[3] = 0;
		if (node && !tux3_path(volume, NULL, other, 0, 0, &dir)) {
			ALLOW(tux3_link(node, NULL, dir, path + 4), -EEXIST, -EPERM, -ENOENT, -ENOTDIR, -ENOSPC);
			tux3_node_put(dir, 1);
		}
		if (node)
			tux3_node_put(node, 1);
	}
}

static void hammer_numbers(struct hammer *hammer)
{
	struct tux3 *volume = hammer->bed->volume;
	u64 ino = atomic64_read(&lately[bed_random(&hammer->seed) % 64]);
	struct tux3_node *node;
	struct tux3_stat stat = {};
	char value[16];

	if (bed_random(&hammer->seed) % 4 == 0) {
		if (!tux3_tmpfile(hammer->bed->root, NULL, 0600, &node)) {
			tux3_write(node, "tmp", 3, 0);
			tux3_node_put(node, 1);
		}
		return;
	}
	if (!ino || tux3_node_get(volume, ino, 0, &node))
		return;
	assert_ok(tux3_stat_node(node, &stat));
	stat.mode = bed_random(&hammer->seed) & 0777;
	ALLOW(tux3_setattr(node, NULL, &stat, TUX3_SET_MODE | TUX3_SET_MTIME_NOW), -ENOSPC);
	ALLOW(tux3_setxattr(node, NULL, "user.x", "y", 1, 0), -ENOSPC);
	ALLOW(tux3_getxattr(node, "user.x", value, sizeof(value)), -ENODATA);
	tux3_node_put(node, 1);
}

static void *hammer_thread(void *arg)
{
	struct hammer *hammer = arg;
	int i;

	for (i = 0; i < hammer->ops; i++) {
		switch (bed_random(&hammer->seed) % 5) {
		case 0:
		case 1:
			hammer_data(hammer);
			break;
		case 2:
		case 3:
			hammer_dirs(hammer);
			break;
		default:
			hammer_numbers(hammer);
		}
		if (bed_random(&hammer->seed) % 100 == 0)
			ALLOW(tux3_sync(hammer->bed->volume), -EIO);
	}
	return NULL;
}

static void run(u64 seed, u64 bytes, u64 cache)
{
	struct bed bed = { .opts = { .age_ms = 2, .dirty_bytes = 1 << 20 }, .data_cache_bytes = cache };
	struct hammer hammers[THREADS];
	pthread_t threads[THREADS];
	char path[16];
	int i;

	bed_make(&bed, bytes, 4096);
	for (i = 0; i < DIRS; i++) {
		snprintf(path, sizeof(path), "/d%d", i);
		assert_ok(tux3_path_mkdir(bed.volume, NULL, path, 0755));
	}
	for (i = 0; i < THREADS; i++) {
		hammers[i] = (struct hammer){ .bed = &bed, .seed = seed * 100 + i, .ops = 1500 };
		assert_int_equal(pthread_create(&threads[i], NULL, hammer_thread, &hammers[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	bed_check(&bed);
	bed_free(&bed);
}

static void test_hammer(void **state)
{
	u64 seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 1;
	int runs = getenv("RUNS") ? atoi(getenv("RUNS")) : 2, i;

	for (i = 0; i < runs; i++, seed++) {
		print_message("seed %llu\n", (unsigned long long)seed);
		run(seed, 64 << 20, 0);
		run(seed, 64 << 20, 128 << 10);
	}
}

/* The volume is full most of the time. */
static void test_hammer_full(void **state)
{
	run(77, 8 << 20, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hammer),
		cmocka_unit_test(test_hammer_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
