/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A commit goes through its inodes by number, in whatever order they became dirty: as its records in the log say. */
#include "support_lib.h"
#include "user/lib/lib.h"
#include "core/log/log_read.h"

#define FILES 700u	/* not a power of two: runs of many lengths are merged */

static struct tux3_node *files[FILES];

static void make_files(struct bed *bed)
{
	char path[16];
	u32 i;

	for (i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "/f%u", i);
		files[i] = bed_file(bed, path);
	}
	assert_ok(tux3_sync(bed->volume));
}

static void put_files(void)
{
	u32 i;

	for (i = 0; i < FILES; i++)
		tux3_node_put(files[i], 1);
}

/* The numbers of the newest commit's ATTR_SET records, in their order; how many there are. */
static u32 committed_inodes(struct volume *vol, u64 *ino)
{
	struct log_stream stream = {};
	struct log_chain chain = {};
	struct disk_record *record;
	u32 count = 0;

	assert_ok(log_chain_read(&chain, vol));
	assert_true(chain.count > 0);
	assert_ok(log_stream_open(&stream, &chain.reader, &chain.commits[chain.count - 1]));
	while (log_stream_next(&stream, &record) > 0) {
		if (le16_to_cpu(record->type) != TUX3_RECORD_ATTR_SET)
			continue;
		assert_true(count < FILES);
		ino[count++] = le64_to_cpu(((const struct record_attr *)(record + 1))->ino);
	}
	log_stream_close(&stream);
	log_chain_exit(&chain);
	return count;
}

/* Change these files, one after the other, in one delta: they are committed by number, each once. */
static void expect_order(struct bed *bed, const u32 *which, u32 count)
{
	static u32 mode = 0100;
	bool dirty[FILES] = {};
	u64 ino[FILES];
	u32 i, n = 0;

	mode ^= 0010;
	for (i = 0; i < count; i++) {
		struct tux3_stat stat = { .mode = mode };

		assert_ok(tux3_setattr(files[which[i]], NULL, &stat, TUX3_SET_MODE));
		dirty[which[i]] = true;
	}
	assert_ok(tux3_sync(bed->volume));
	assert_int_equal(committed_inodes(bed->volume->vol, ino), count);
	for (i = 0; i < FILES; i++)
		if (dirty[i])
			assert_int_equal(ino[n++], tux3_node_ino(files[i]));
	assert_int_equal(n, count);
}

static void swap_two(u32 *which, u32 a, u32 b)
{
	u32 one = which[a];

	which[a] = which[b];
	which[b] = one;
}

static void test_commit_order(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	u32 which[FILES], steps[] = { 2, 3, 7, 64, 333 }, i, n, at, round;
	u64 random = 1;

	bed_make(&bed, 64 << 20, 4096);
	make_files(&bed);
	for (i = 1; i < FILES; i++)
		assert_true(tux3_node_ino(files[i]) > tux3_node_ino(files[i - 1]));
	for (i = 0; i < FILES; i++)
		which[i] = i;
	expect_order(&bed, which, FILES);			/* ascending */
	expect_order(&bed, which, 1);
	for (i = 0; i < FILES; i++)
		which[i] = FILES - 1 - i;
	expect_order(&bed, which, FILES);			/* descending */
	expect_order(&bed, which, 2);
	for (round = 0; round < ARRAY_SIZE(steps); round++) {	/* many runs in order, then in the other */
		for (n = i = 0; i < steps[round]; i++)
			for (at = i; at < FILES; at += steps[round])
				which[n++] = at;
		expect_order(&bed, which, FILES);
		for (i = 0; i < FILES / 2; i++)
			swap_two(which, i, FILES - 1 - i);
		expect_order(&bed, which, FILES);
	}
	for (i = 0; i < FILES; i++)
		which[i] = i;
	for (round = 0; round < 8; round++) {			/* random; fewer and fewer of them */
		for (i = 0; i < FILES; i++)
			swap_two(which, i, bed_random(&random) % FILES);
		expect_order(&bed, which, FILES >> round);
	}
	put_files();
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_commit_order),
	};

	return cmocka_run_group_tests_name("commit order", tests, NULL, NULL);
}
