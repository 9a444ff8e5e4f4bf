/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Quotas: who has a limit of N blocks can have N blocks and never more, whatever he does, and what he owns is counted exactly.
 */
#include "support_lib.h"
#include "user/lib/lib.h"
#include "user/env/clock.h"
#include "core/delta/delta.h"
#include "core/tree/tree.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <linux/stat.h>

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE	0x01
#define FALLOC_FL_PUNCH_HOLE	0x02
#endif

#define BLOCK 4096u
#define USER 1000u
#define LIMIT 100u

static const struct tux3_cred user = { .uid = USER, .gid = 500, .no_permission_checks = true };
static u8 bytes[512 * BLOCK];

static void make(struct bed *bed)
{
	*bed = (struct bed){ .quota = true };
	bed_make(bed, 64 << 20, BLOCK);
}

static void limit(struct bed *bed, enum tux3_quota_type type, u32 id, u64 blocks, u64 inodes)
{
	struct tux3_quota quota = { .bytes_hard = blocks * BLOCK, .inodes_hard = inodes };

	assert_ok(tux3_quota_set(bed->volume, type, id, &quota, TUX3_QUOTA_BYTES_HARD | TUX3_QUOTA_INODES_HARD));
}

static struct tux3_node *create(struct bed *bed, const char *name)
{
	struct tux3_node *node = NULL;

	assert_ok(tux3_mknod(bed->root, &user, name, S_IFREG | 0644, 0, 0, &node));
	return node;
}

static ssize_t put(struct tux3_node *node, u64 block, u32 count)
{
	ssize_t done = tux3_write(node, bytes, count * BLOCK, block * BLOCK);

	return done > 0 ? done / BLOCK : done;
}

static u64 used(struct bed *bed, enum tux3_quota_type type, u32 id, u64 *inodes)
{
	struct tux3_quota quota;

	assert_ok(tux3_sync(bed->volume));
	assert_ok(tux3_quota_get(bed->volume, type, id, &quota));
	if (inodes)
		*inodes = quota.inodes;
	return quota.bytes / BLOCK;
}

static u64 blocks(struct bed *bed)
{
	return used(bed, TUX3_QUOTA_USER, USER, NULL);
}

static u64 counter(struct bed *bed, enum tux3_counter which)
{
	return delta_counter(tux3_core(bed->volume), which);
}

#define TOLD_INODES 16u		/* of inodes, not of blocks */

static struct {
	u32 of[32], count;	/* enum quota_event, TOLD_INODES */
} tells;

static void note_told(struct volume *vol, u32 type, u32 id, bool inodes, enum quota_event event)
{
	assert_int_equal(type, QUOTA_USER);
	assert_int_equal(id, USER);
	assert_true(tells.count < ARRAY_SIZE(tells.of));
	tells.of[tells.count++] = event | (inodes ? TOLD_INODES : 0);
}

/* Since the last time this was told, once everything is committed, and nothing else. */
static void assert_told(struct bed *bed, u32 count, const u32 *of)
{
	u32 i;

	assert_ok(tux3_sync(bed->volume));
	assert_int_equal(tells.count, count);
	for (i = 0; i < count; i++)
		assert_int_equal(tells.of[i], of[i]);
	tells.count = 0;
}

#define ASSERT_TOLD(bed, ...) assert_told(bed, ARRAY_SIZE(((u32[]){ __VA_ARGS__ })), (u32[]){ __VA_ARGS__ })

/* Who has a quota learns when a limit is crossed, once, and not of what stays on one side of it. */
static void test_told(void **state)
{
	struct tux3_quota quota = {
		.bytes_soft = 10 * BLOCK, .bytes_hard = 20 * BLOCK, .inodes_soft = 3, .inodes_hard = 5,
	};
	struct tux3_host_ops host;
	struct tux3_node *node[5], *refused;
	struct volume *vol;
	struct bed bed;
	u32 i;

	make(&bed);
	vol = tux3_core(bed.volume);
	host = *vol->host;
	host.quota_told = note_told;
	vol->host = &host;
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, TUX3_QUOTA_BYTES_SOFT | TUX3_QUOTA_BYTES_HARD |
				 TUX3_QUOTA_INODES_SOFT | TUX3_QUOTA_INODES_HARD));
	node[0] = create(&bed, "0");
	assert_int_equal(put(node[0], 0, 10), 10);
	assert_told(&bed, 0, NULL);
	assert_int_equal(put(node[0], 10, 2), 2);
	ASSERT_TOLD(&bed, QUOTA_ABOVE_SOFT);
	assert_int_equal(put(node[0], 4, 4), 4);
	assert_int_equal(put(node[0], 12, 1), 1);
	assert_told(&bed, 0, NULL);
	assert_int_equal(put(node[0], 13, 7), 7);
	assert_told(&bed, 0, NULL);
	assert_int_equal(put(node[0], 20, 1), -EDQUOT);
	ASSERT_TOLD(&bed, QUOTA_REFUSED_HARD);
	assert_ok(tux3_truncate(node[0], 15 * BLOCK));
	ASSERT_TOLD(&bed, QUOTA_BELOW_HARD);
	assert_ok(tux3_truncate(node[0], 5 * BLOCK));
	ASSERT_TOLD(&bed, QUOTA_BELOW_SOFT);
	/* Both at once, and there and back in one delta. */
	assert_int_equal(put(node[0], 0, 20), 20);
	ASSERT_TOLD(&bed, QUOTA_ABOVE_SOFT);
	assert_ok(tux3_truncate(node[0], 0));
	ASSERT_TOLD(&bed, QUOTA_BELOW_SOFT, QUOTA_BELOW_HARD);
	assert_int_equal(put(node[0], 0, 12), 12);
	assert_ok(tux3_truncate(node[0], 0));
	assert_told(&bed, 0, NULL);
	for (i = 1; i < 5; i++) {
		char name[2] = { '0' + i };

		node[i] = create(&bed, name);
	}
	ASSERT_TOLD(&bed, QUOTA_ABOVE_SOFT | TOLD_INODES);
	assert_int_equal(tux3_mknod(bed.root, &user, "5", S_IFREG | 0644, 0, 0, &refused), -EDQUOT);
	ASSERT_TOLD(&bed, QUOTA_REFUSED_HARD | TOLD_INODES);
	/* Limits that change are known to who changes them. */
	quota.inodes_soft = 2;
	quota.inodes_hard = 7;
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, TUX3_QUOTA_INODES_SOFT | TUX3_QUOTA_INODES_HARD));
	assert_told(&bed, 0, NULL);
	for (i = 0; i < 5; i++) {
		char name[2] = { '0' + i };

		tux3_node_put(node[i], 1);
		assert_ok(tux3_unlink(bed.root, &user, name));
	}
	ASSERT_TOLD(&bed, QUOTA_BELOW_SOFT | TOLD_INODES);
	bed_free(&bed);
}

/* Up to the limit, one by one and as a whole; what is there is written over at the limit; and refusals cost no commit. */
static void test_hard(void **state)
{
	struct tux3_node *one, *two;
	struct bed bed;
	u64 deltas;
	u32 i;

	make(&bed);
	limit(&bed, TUX3_QUOTA_USER, USER, LIMIT, 0);
	one = create(&bed, "one");
	two = create(&bed, "two");
	for (i = 0; i < LIMIT / 2; i++)
		assert_int_equal(put(one, 2 * i, 1), 1);
	assert_int_equal(put(two, 7, 300), LIMIT / 2);	/* as much as may be */
	assert_int_equal(put(two, 0, 1), -EDQUOT);
	assert_int_equal(blocks(&bed), LIMIT);
	deltas = counter(&bed, TUX3_COUNT_DELTAS);
	for (i = 0; i < 1000; i++) {
		assert_int_equal(put(one, 2 * i + 1, 1), -EDQUOT);
		assert_int_equal(put(one, 2 * (i % (LIMIT / 2)), 1), 1);
	}
	assert_int_equal(counter(&bed, TUX3_COUNT_DELTAS), deltas);
	assert_true(counter(&bed, TUX3_COUNT_EDQUOT) >= 1000);
	assert_int_equal(tux3_write_atomic(one, bytes, 2 * BLOCK, 0), -EDQUOT);
	assert_int_equal(tux3_fallocate(one, 0, 0, LIMIT * BLOCK), -EDQUOT);
	assert_int_equal(blocks(&bed), LIMIT);
	/* What is removed can be had again at once. */
	assert_ok(tux3_truncate(two, 0));
	assert_int_equal(put(two, 0, LIMIT), LIMIT / 2);
	tux3_node_put(two, 1);
	assert_ok(tux3_unlink(bed.root, &user, "two"));
	assert_int_equal(put(one, 1000, LIMIT), LIMIT / 2);
	assert_ok(tux3_fallocate(one, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1000 * BLOCK, 10 * BLOCK));
	assert_ok(tux3_fallocate(one, FALLOC_FL_KEEP_SIZE, 2000 * BLOCK, 10 * BLOCK));
	assert_int_equal(put(one, 2000, 10), 10);
	assert_int_equal(put(one, 2010, 1), -EDQUOT);
	assert_int_equal(blocks(&bed), LIMIT);
	tux3_node_put(one, 1);
	bed_crash(&bed);
	assert_int_equal(blocks(&bed), LIMIT);
	one = bed_find(&bed, "/one");
	assert_int_equal(put(one, 2010, 1), -EDQUOT);
	assert_true(tux3_quota_exempt(true) == false);
	assert_int_equal(put(one, 2010, 1), 1);
	assert_true(tux3_quota_exempt(false) == true);
	assert_int_equal(blocks(&bed), LIMIT + 1);
	limit(&bed, TUX3_QUOTA_USER, USER, 0, 0);
	assert_int_equal(put(one, 3000, 100), 100);
	tux3_node_put(one, 1);
	bed_free(&bed);
}

/* Who had no limit before, and something that is not committed. */
static void test_first_limit(void **state)
{
	struct tux3_node *node;
	struct bed bed;

	make(&bed);
	node = create(&bed, "file");
	assert_int_equal(put(node, 0, LIMIT - 10), LIMIT - 10);
	limit(&bed, TUX3_QUOTA_USER, USER, LIMIT, 0);
	assert_int_equal(put(node, 200, 20), 10);
	assert_int_equal(blocks(&bed), LIMIT);
	limit(&bed, TUX3_QUOTA_USER, USER, LIMIT / 2, 0);	/* below what there is */
	assert_int_equal(put(node, 0, LIMIT - 10), LIMIT - 10);
	assert_int_equal(put(node, 300, 1), -EDQUOT);
	limit(&bed, TUX3_QUOTA_USER, USER, LIMIT + 1, 0);
	assert_int_equal(put(node, 300, 2), 1);
	assert_int_equal(blocks(&bed), LIMIT + 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/* What is stored inline takes no block, until it is not. */
static void test_inline(void **state)
{
	struct tux3_node *node, *small[8];
	struct bed bed;
	char name[8];
	u32 i;

	make(&bed);
	limit(&bed, TUX3_QUOTA_USER, USER, 2, 0);
	node = create(&bed, "file");
	assert_int_equal(put(node, 0, 1), 1);
	for (i = 0; i < ARRAY_SIZE(small); i++) {
		snprintf(name, sizeof(name), "s%u", i);
		small[i] = create(&bed, name);
		assert_int_equal(tux3_write(small[i], bytes, 100, 0), 100);
	}
	assert_int_equal(blocks(&bed), 1);
	for (i = 0; i < ARRAY_SIZE(small); i++) {
		assert_int_equal(tux3_write(small[i], bytes, 200, 50), 200);
		if (i % 2)
			assert_ok(tux3_sync(bed.volume));
	}
	/* In one delta: inline first, uncharged since the rest is taken, and a block then. */
	assert_int_equal(put(node, 1, 1), 1);
	assert_int_equal(tux3_write(small[0], bytes, 300, 0), 300);
	assert_int_equal(tux3_write(small[0], bytes, BLOCK / 2, 300), -EDQUOT);
	assert_int_equal(tux3_truncate(small[1], BLOCK), -EDQUOT);
	assert_int_equal(tux3_fallocate(small[2], FALLOC_FL_KEEP_SIZE, 0, 2 * BLOCK), -EDQUOT);
	assert_int_equal(blocks(&bed), 2);
	assert_ok(tux3_truncate(node, BLOCK));
	assert_int_equal(tux3_write(small[3], bytes, 300, 0), 300);
	assert_int_equal(tux3_write(small[3], bytes, BLOCK / 2, 300), BLOCK / 2);
	assert_int_equal(tux3_write(small[4], bytes, BLOCK / 2, 300), -EDQUOT);
	/* It has paid, though the tree has it inline still. */
	assert_int_equal(tux3_write(small[3], bytes, 100, 300), 100);
	assert_ok(tux3_truncate(small[3], 1000));
	assert_int_equal(blocks(&bed), 2);
	for (i = 0; i < ARRAY_SIZE(small); i++)
		tux3_node_put(small[i], 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

static void test_inodes(void **state)
{
	struct tux3_node *node;
	struct bed bed;
	char name[8];
	u64 inodes;
	u32 i;

	make(&bed);
	limit(&bed, TUX3_QUOTA_GROUP, 500, 0, 10);
	for (i = 0; i < 7; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		tux3_node_put(create(&bed, name), 1);
	}
	assert_ok(tux3_mknod(bed.root, &user, "dir", S_IFDIR | 0755, 0, 0, NULL));
	assert_ok(tux3_symlink(bed.root, &user, "link", "f1", NULL));
	assert_ok(tux3_tmpfile(bed.root, &user, 0600, &node));
	assert_int_equal(tux3_mknod(bed.root, &user, "more", S_IFREG | 0644, 0, 0, NULL), -EDQUOT);
	assert_int_equal(tux3_symlink(bed.root, &user, "more", "f1", NULL), -EDQUOT);
	assert_int_equal(tux3_mknod(bed.root, &user, "dir", S_IFDIR | 0755, 0, 0, NULL), -EEXIST);
	assert_ok(tux3_link(node, NULL, bed.root, "linked"));
	tux3_node_put(node, 1);
	assert_int_equal(used(&bed, TUX3_QUOTA_GROUP, 500, &inodes), 0);
	assert_int_equal(inodes, 10);
	/* One goes, one comes, within a delta. */
	for (i = 0; i < 20; i++) {
		assert_ok(tux3_unlink(bed.root, &user, "linked"));
		tux3_node_put(create(&bed, "linked"), 1);
	}
	assert_int_equal(tux3_rename(bed.root, "f1", bed.root, "f0", TUX3_RENAME_WHITEOUT, NULL), 0);	/* a whiteout of 0:0 */
	tux3_node_put(create(&bed, "last"), 1);
	assert_int_equal(tux3_mknod(bed.root, &user, "more", S_IFREG | 0644, 0, 0, NULL), -EDQUOT);
	bed_free(&bed);
}

/* An inode that gets its ACL before its name counts once, whatever is committed between them. */
static void test_inodes_with_acls(void **state)
{
	struct tux3_node *dir, *node;
	struct bed bed;
	u64 inodes;
	u32 i;

	make(&bed);
	assert_ok(tux3_mknod(bed.root, NULL, "dir", S_IFDIR | 0777, 0, 0, &dir));
	bed_inherit_acl(&bed, "/dir");
	limit(&bed, TUX3_QUOTA_USER, USER, 0, 2);
	assert_ok(tux3_mknod(dir, &user, "first", S_IFDIR | 0755, 0, 0, NULL));
	for (i = 0; i < 20; i++) {	/* refused at first, until the last one is gone for good */
		assert_ok(tux3_mknod(dir, &user, "second", S_IFREG | 0644, 0, 0, &node));
		tux3_node_put(node, 1);
		assert_int_equal(tux3_mknod(dir, &user, "third", S_IFREG | 0644, 0, 0, NULL), -EDQUOT);
		assert_int_equal(tux3_tmpfile(dir, &user, 0600, &node), -EDQUOT);
		assert_int_equal(used(&bed, TUX3_QUOTA_USER, USER, &inodes), 0);
		assert_int_equal(inodes, 2);
		assert_ok(tux3_unlink(dir, &user, "second"));
	}
	assert_ok(tux3_tmpfile(dir, &user, 0600, &node));
	assert_int_equal(tux3_mknod(dir, &user, "third", S_IFREG | 0644, 0, 0, NULL), -EDQUOT);
	assert_ok(tux3_link(node, NULL, dir, "second"));
	assert_ok(tux3_sync(bed.volume));
	tux3_node_put(node, 1);
	tux3_node_put(dir, 1);
	bed_crash(&bed);
	assert_int_equal(used(&bed, TUX3_QUOTA_USER, USER, &inodes), 0);
	assert_int_equal(inodes, 2);
	bed_free(&bed);
}

static int chown_to(struct tux3_node *node, u32 uid, u32 projid)
{
	struct tux3_stat stat = { .uid = uid, .projid = projid };

	return tux3_setattr(node, NULL, &stat, TUX3_SET_UID | TUX3_SET_PROJID);
}

/* Who gets a file must be allowed to have it, with all that is not committed. */
static void test_owner(void **state)
{
	struct tux3_node *node, *other;
	struct bed bed;
	u64 inodes;

	make(&bed);
	limit(&bed, TUX3_QUOTA_USER, 1001, 50, 1);
	limit(&bed, TUX3_QUOTA_PROJECT, 7, 30, 0);
	node = create(&bed, "file");
	other = create(&bed, "other");
	assert_int_equal(put(node, 0, 20), 20);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(put(node, 20, 31), 31);
	assert_int_equal(chown_to(node, 1001, 0), -EDQUOT);
	assert_ok(tux3_truncate(node, 50 * BLOCK));
	assert_ok(chown_to(node, 1001, 0));
	assert_int_equal(put(node, 50, 1), -EDQUOT);
	assert_int_equal(chown_to(other, 1001, 0), -EDQUOT);
	assert_int_equal(chown_to(node, 1001, 7), -EDQUOT);
	assert_int_equal(used(&bed, TUX3_QUOTA_USER, 1001, &inodes), 50);
	assert_int_equal(inodes, 1);
	assert_int_equal(blocks(&bed), 0);
	/* Away and back in one delta. */
	assert_ok(chown_to(node, USER, 0));
	assert_ok(chown_to(node, 1001, 0));
	assert_int_equal(used(&bed, TUX3_QUOTA_USER, 1001, &inodes), 50);
	assert_ok(tux3_truncate(node, 30 * BLOCK));
	assert_ok(chown_to(node, 1001, 7));
	assert_int_equal(put(node, 30, 1), -EDQUOT);
	assert_int_equal(used(&bed, TUX3_QUOTA_PROJECT, 7, NULL), 30);
	tux3_node_put(node, 1);
	tux3_node_put(other, 1);
	bed_free(&bed);
}

static void test_xattr(void **state)
{
	struct tux3_node *node;
	struct bed bed;

	make(&bed);
	limit(&bed, TUX3_QUOTA_USER, USER, 4, 0);
	node = create(&bed, "file");
	assert_ok(tux3_setxattr(node, NULL, "user.big", bytes, 3 * BLOCK, 0));
	assert_ok(tux3_setxattr(node, NULL, "user.big", bytes, 4 * BLOCK, 0));
	assert_int_equal(tux3_setxattr(node, NULL, "user.big", bytes, 5 * BLOCK, 0), -EDQUOT);
	assert_int_equal(put(node, 0, 1), -EDQUOT);
	assert_ok(tux3_setxattr(node, NULL, "user.big", bytes, 4 * BLOCK, 0));
	assert_int_equal(blocks(&bed), 4);
	assert_ok(tux3_removexattr(node, NULL, "user.big"));
	assert_int_equal(put(node, 0, 5), 4);
	assert_int_equal(blocks(&bed), 4);
	tux3_node_put(node, 1);
	bed_free(&bed);
}

/*
 * Anything, at the limit: what is used is never more, a block that is not there is refused only if there is no room, and one that
 * is there never.
 */
#define FILES 3u
#define SPAN 60u

static void random_step(struct bed *bed, struct tux3_node **node, u64 *seed)
{
	struct tux3_node *file = node[bed_random(seed) % FILES];
	u64 at = bed_random(seed) % SPAN, count = 1 + bed_random(seed) % 12;
	int keep = bed_random(seed) % 2 ? FALLOC_FL_KEEP_SIZE : 0;
	ssize_t err = 0;

	switch (bed_random(seed) % 8) {
	case 0:
		err = tux3_truncate(file, at * BLOCK + bed_random(seed) % 2 * (bed_random(seed) % 500));
		break;
	case 1:
		err = tux3_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at * BLOCK, count * BLOCK);
		break;
	case 2:
		err = tux3_fallocate(file, keep, at * BLOCK, count * BLOCK);
		break;
	case 3:
		err = tux3_write(file, bytes, 1 + bed_random(seed) % 300, bed_random(seed) % 400);
		break;
	case 4:
		err = bed_random(seed) % 3 ? 0 : tux3_sync(bed->volume);
		break;
	default:
		err = put(file, at, count);
	}
	if (err < 0)
		assert_int_equal(err, -EDQUOT);
}

static void test_random(void **state)
{
	struct tux3_node *node[FILES];
	u32 round, i, full = 0;
	struct bed bed;
	u64 seed = 5;

	make(&bed);
	limit(&bed, TUX3_QUOTA_USER, USER, 40, 0);
	for (i = 0; i < FILES; i++)
		node[i] = create(&bed, (char[]){ 'a' + i, 0 });
	for (round = 0; round < 300; round++) {
		u64 now;

		for (i = 0; i < 12; i++)
			random_step(&bed, node, &seed);
		now = blocks(&bed);
		assert_true(now <= 40);
		full += now == 40;
		assert_int_equal(put(node[0], SPAN + 20, 1), now < 40 ? 1 : -EDQUOT);
		assert_int_equal(blocks(&bed), min_t(u64, now + 1, 40));
		if (now < 40)
			assert_int_equal(put(node[0], SPAN + 20, 1), 1);
		assert_ok(tux3_fallocate(node[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (SPAN + 20) * BLOCK, BLOCK));
	}
	assert_true(full > 10);
	for (i = 0; i < FILES; i++)
		tux3_node_put(node[i], 1);
	bed_free(&bed);
}

struct writer {
	pthread_t thread;
	struct tux3_node *node;
	u32 got;
};

static void *write_until_refused(void *arg)
{
	struct writer *writer = arg;
	ssize_t done;

	while ((done = put(writer->node, 3 * writer->got, 1)) == 1)
		writer->got++;
	return (void *)done;
}

/* Several at once have what there is, and no more. */
static void test_threads(void **state)
{
	struct writer writers[4];
	struct bed bed;
	void *result;
	u32 i, all = 0;

	make(&bed);
	limit(&bed, TUX3_QUOTA_USER, USER, 400, 0);
	limit(&bed, TUX3_QUOTA_GROUP, 500, 1000, 10);
	for (i = 0; i < ARRAY_SIZE(writers); i++) {
		writers[i].node = create(&bed, (char[]){ 'a' + i, 0 });
		writers[i].got = 0;
		assert_int_equal(pthread_create(&writers[i].thread, NULL, write_until_refused, &writers[i]), 0);
	}
	for (i = 0; i < ARRAY_SIZE(writers); i++) {
		pthread_join(writers[i].thread, &result);
		assert_int_equal((long)result, -EDQUOT);
		all += writers[i].got;
		tux3_node_put(writers[i].node, 1);
	}
	assert_int_equal(all, 400);
	assert_int_equal(blocks(&bed), 400);
	bed_free(&bed);
}

static u64 now_s;

static u64 clock_ns(void)
{
	return now_s * 1000000000;
}

static struct tux3_quota state_of(struct bed *bed)
{
	struct tux3_quota quota;

	assert_ok(tux3_quota_get(bed->volume, TUX3_QUOTA_USER, USER, &quota));
	return quota;
}

/* Above the soft limit for as long as the grace is, over a crash; below it all begins anew. */
static void test_grace(void **state)
{
	struct tux3_quota quota = { .bytes_soft = 10 * BLOCK, .bytes_hard = 20 * BLOCK, .inodes_soft = 2, .bytes_time = 100 };
	struct tux3_node *node;
	struct bed bed;

	now_s = 1000000;
	env_set_clock(clock_ns);
	make(&bed);
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &quota, TUX3_QUOTA_BYTES_TIME));
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, 15));
	node = create(&bed, "file");
	assert_int_equal(put(node, 0, 10), 10);
	assert_int_equal(blocks(&bed), 10);
	assert_int_equal(state_of(&bed).bytes_time, 0);
	now_s += 5;
	assert_int_equal(put(node, 10, 1), 1);
	assert_int_equal(blocks(&bed), 11);
	assert_int_equal(state_of(&bed).bytes_time, 1000105);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	assert_int_equal(state_of(&bed).bytes_time, 1000105);
	node = bed_find(&bed, "/file");
	now_s += 99;
	assert_int_equal(put(node, 11, 1), 1);
	now_s += 1;
	assert_int_equal(put(node, 12, 1), -EDQUOT);
	assert_int_equal(put(node, 0, 12), 12);
	assert_int_equal(blocks(&bed), 12);
	assert_int_equal(state_of(&bed).bytes_time, 1000105);
	assert_ok(tux3_truncate(node, 9 * BLOCK));
	assert_int_equal(put(node, 9, 1), 1);
	assert_int_equal(blocks(&bed), 10);
	assert_int_equal(state_of(&bed).bytes_time, 0);
	now_s += 1000;
	assert_int_equal(put(node, 10, 20), 10);
	assert_int_equal(blocks(&bed), 20);
	assert_int_equal(state_of(&bed).bytes_time, now_s + 100);
	/* A limit below what there is: from now on. */
	assert_int_equal(state_of(&bed).inodes_time, 0);
	tux3_node_put(create(&bed, "two"), 1);
	tux3_node_put(create(&bed, "three"), 1);
	assert_ok(tux3_sync(bed.volume));
	assert_int_equal(state_of(&bed).inodes_time, now_s + 7 * 24 * 60 * 60);
	now_s += 7 * 24 * 60 * 60;
	assert_int_equal(tux3_mknod(bed.root, &user, "four", S_IFREG | 0644, 0, 0, NULL), -EDQUOT);
	quota.inodes_time = now_s + 50;
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, TUX3_QUOTA_INODES_TIME));
	tux3_node_put(create(&bed, "four"), 1);
	tux3_node_put(node, 1);
	bed_free(&bed);
	env_set_clock(NULL);
}

/* Who sets other limits does not begin it anew: it counts what is not committed, too. */
static void test_grace_goes_on(void **state)
{
	struct tux3_quota quota = { .bytes_soft = 10 * BLOCK, .inodes_soft = 1, .bytes_time = 100, .inodes_time = 100 };
	struct tux3_node *node;
	struct bed bed;

	now_s = 1000000;
	env_set_clock(clock_ns);
	make(&bed);
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &quota, TUX3_QUOTA_BYTES_TIME | TUX3_QUOTA_INODES_TIME));
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, 15));
	node = create(&bed, "file");
	assert_int_equal(put(node, 0, 9), 9);
	assert_ok(tux3_sync(bed.volume));
	assert_ok(tux3_fallocate(node, 0, 9 * BLOCK, 5 * BLOCK));
	tux3_node_put(create(&bed, "two"), 1);
	tux3_node_put(create(&bed, "three"), 1);
	now_s += 101;
	quota.bytes_soft += 2 * BLOCK;
	quota.inodes_soft++;
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, 15));
	assert_int_equal(tux3_fallocate(node, 0, 14 * BLOCK, BLOCK), -EDQUOT);
	assert_int_equal(tux3_mknod(bed.root, &user, "four", S_IFREG | 0644, 0, 0, NULL), -EDQUOT);
	assert_int_equal(blocks(&bed), 14);
	assert_int_equal(state_of(&bed).bytes_time, 1000100);
	assert_int_equal(state_of(&bed).inodes_time, 1000100);
	tux3_node_put(node, 1);
	bed_free(&bed);
	env_set_clock(NULL);
}

/* Limits are durable with a delta, of whoever; those of id 0 are times; and all can be listed. */
static void test_limits(void **state)
{
	struct tux3_quota quota = { .bytes_soft = 1, .bytes_hard = 10 * BLOCK + 1, .inodes_soft = 3, .inodes_hard = 4 };
	struct bed bed;
	u32 id = 1, n;

	make(&bed);
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_PROJECT, 0xfffffffe, &quota, 15));
	assert_int_equal(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &quota, 15), -EINVAL);
	assert_int_equal(tux3_quota_set(bed.volume, 3, 1, &quota, 15), -EINVAL);
	assert_int_equal(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 1, &quota, 64), -EINVAL);
	assert_ok(tux3_quota_get(bed.volume, TUX3_QUOTA_USER, 0, &quota));
	assert_int_equal(quota.bytes_time, 7 * 24 * 60 * 60);
	assert_int_equal(quota.inodes, 1);
	quota.bytes_time = 3600;
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &quota, TUX3_QUOTA_BYTES_TIME));
	assert_ok(tux3_sync(bed.volume));
	bed_crash(&bed);
	assert_ok(tux3_quota_next(bed.volume, TUX3_QUOTA_PROJECT, &id, &quota));
	assert_int_equal(id, 0xfffffffe);
	assert_int_equal(quota.bytes_soft, BLOCK);
	assert_int_equal(quota.bytes_hard, 11 * BLOCK);
	assert_int_equal(quota.inodes_soft, 3);
	assert_int_equal(quota.inodes_hard, 4);
	id++;
	assert_int_equal(tux3_quota_next(bed.volume, TUX3_QUOTA_PROJECT, &id, &quota), -ENOENT);
	assert_ok(tux3_quota_get(bed.volume, TUX3_QUOTA_USER, 0, &quota));
	assert_int_equal(quota.bytes_time, 3600);
	assert_int_equal(quota.inodes_time, 7 * 24 * 60 * 60);
	/* A limit that is taken away leaves nothing. */
	quota = (struct tux3_quota){};
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_PROJECT, 0xfffffffe, &quota, 15));
	assert_ok(tux3_sync(bed.volume));
	id = 1;
	assert_int_equal(tux3_quota_next(bed.volume, TUX3_QUOTA_PROJECT, &id, &quota), -ENOENT);
	for (id = 0, n = 0; !tux3_quota_next(bed.volume, TUX3_QUOTA_USER, &id, &quota); id++)
		n++;
	assert_int_equal(n, 1);
	bed_free(&bed);
	bed = (struct bed){};
	bed_make(&bed, 64 << 20, BLOCK);
	assert_int_equal(tux3_quota_get(bed.volume, TUX3_QUOTA_USER, 1, &quota), -EOPNOTSUPP);
	bed_free(&bed);
}

/* What is set is told again: there is no number that becomes "no limit", or a grace that is over before it begins. */
static void test_limits_beyond_all_numbers(void **state)
{
	static const u64 too_many[] = { U64_MAX, U64_MAX - 1, 1ULL << 63, (u64)S64_MAX, (u64)S64_MAX - BLOCK + 2 };
	struct tux3_quota quota;
	struct bed bed;
	u32 i;

	make(&bed);
	for (i = 0; i < ARRAY_SIZE(too_many); i++) {
		quota = (struct tux3_quota){ .bytes_soft = too_many[i], .bytes_hard = too_many[i] };
		assert_int_equal(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, TUX3_QUOTA_BYTES_SOFT), -ERANGE);
		assert_int_equal(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, TUX3_QUOTA_BYTES_HARD), -ERANGE);
		assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, TUX3_QUOTA_INODES_HARD));
	}
	quota = (struct tux3_quota){ .bytes_hard = S64_MAX - BLOCK + 1, .bytes_soft = S64_MAX - BLOCK, .inodes_hard = U64_MAX };
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, 15));
	assert_int_equal(state_of(&bed).bytes_hard, S64_MAX - BLOCK + 1);
	assert_int_equal(state_of(&bed).bytes_soft, S64_MAX - BLOCK + 1);
	assert_int_equal(state_of(&bed).inodes_hard, U64_MAX);
	quota.bytes_time = quota.inodes_time = 1LL << 32;
	assert_int_equal(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &quota, TUX3_QUOTA_BYTES_TIME), -ERANGE);
	assert_int_equal(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &quota, TUX3_QUOTA_INODES_TIME), -ERANGE);
	quota.bytes_time = U32_MAX;
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &quota, TUX3_QUOTA_BYTES_TIME));
	bed_free(&bed);
}

/* Only what is to be set counts: the rest need not even be filled in. */
static void test_what_is_not_set_does_not_count(void **state)
{
	static const u32 times[] = { TUX3_QUOTA_BYTES_TIME, TUX3_QUOTA_INODES_TIME };
	struct tux3_quota quota, negative;
	struct bed bed;
	u32 i;

	make(&bed);
	memset(&negative, 0xa5, sizeof(negative));
	for (i = 0; i < ARRAY_SIZE(times); i++)
		assert_int_equal(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &negative, times[i]), -EINVAL);
	quota = negative;
	quota.bytes_hard = 10 * BLOCK;
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, USER, &quota, TUX3_QUOTA_BYTES_HARD));
	quota = negative;
	quota.bytes_hard = 0;
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &quota, TUX3_QUOTA_BYTES_HARD));
	assert_int_equal(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &negative, TUX3_QUOTA_INODES_SOFT), -EINVAL);
	quota = negative;
	quota.inodes_time = 60;
	assert_ok(tux3_quota_set(bed.volume, TUX3_QUOTA_USER, 0, &quota, TUX3_QUOTA_INODES_TIME));
	assert_int_equal(state_of(&bed).bytes_hard, 10 * BLOCK);
	assert_int_equal(state_of(&bed).inodes_hard, 0);
	assert_int_equal(state_of(&bed).bytes_time, 0);
	bed_free(&bed);
}

/* A file that gets longer without getting data takes nothing, though it may have been inline. */
static void test_longer_holes(void **state)
{
	struct tux3_node *full, *hole;
	struct bed bed;

	make(&bed);
	limit(&bed, TUX3_QUOTA_USER, USER, 2, 0);
	full = create(&bed, "full");
	assert_int_equal(put(full, 0, 2), 2);
	assert_int_equal(blocks(&bed), 2);
	hole = create(&bed, "hole");
	assert_ok(tux3_truncate(hole, 100));
	assert_ok(tux3_truncate(hole, 1 << 30));
	assert_ok(tux3_truncate(full, BLOCK));
	assert_int_equal(put(hole, 10, 1), 1);
	assert_int_equal(blocks(&bed), 2);
	tux3_node_put(hole, 1);
	hole = create(&bed, "other");
	assert_ok(tux3_truncate(full, 0));
	assert_ok(tux3_truncate(hole, 100));
	assert_int_equal(put(hole, 10, 1), 1);
	assert_int_equal(blocks(&bed), 2);
	tux3_node_put(hole, 1);
	tux3_node_put(full, 1);
	bed_free(&bed);
}

/* An item that says that more is used than there can be: the limit holds, and nothing is computed wrongly. */
static void test_usage_beyond_all_numbers(void **state)
{
	static const u64 usages[] = { S64_MAX, S64_MAX - 1, 1ULL << 63, U64_MAX };
	struct tux3_node *node;
	struct bed bed;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(usages); i++) {
		struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, USER);
		struct disk_quota item = { .blocks = cpu_to_le64(usages[i]), .inodes = cpu_to_le64(1),
					   .blocks_hard = cpu_to_le64(LIMIT) };
		struct volume *vol;

		make(&bed);
		node = create(&bed, "file");
		tux3_node_put(node, 1);
		bed_reopen(&bed);
		vol = tux3_core(bed.volume);
		delta_lock(vol);
		tree_edit_begin(vol);
		assert_ok(tree_set(vol, &key, &item, sizeof(item)));
		tree_edit_end(vol);
		delta_unlock(vol);
		node = bed_file(&bed, "file");
		assert_int_equal(put(node, 0, 1), -EDQUOT);
		tux3_node_put(node, 1);
		bed_crash(&bed);	/* as it was */
		bed_free(&bed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_longer_holes),
		cmocka_unit_test(test_usage_beyond_all_numbers),
		cmocka_unit_test(test_limits_beyond_all_numbers),
		cmocka_unit_test(test_what_is_not_set_does_not_count),
		cmocka_unit_test(test_told),
		cmocka_unit_test(test_hard),
		cmocka_unit_test(test_first_limit),
		cmocka_unit_test(test_inline),
		cmocka_unit_test(test_inodes),
		cmocka_unit_test(test_inodes_with_acls),
		cmocka_unit_test(test_owner),
		cmocka_unit_test(test_xattr),
		cmocka_unit_test(test_grace),
		cmocka_unit_test(test_grace_goes_on),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
