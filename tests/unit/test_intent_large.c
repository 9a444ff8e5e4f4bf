// SPDX-License-Identifier: GPL-2.0-or-later
/* Large files that are synced ahead of their delta: their data has an area of its own. */
#include "support_intent.h"
#include "core/intent/intent_request.h"
#include "core/data/delete.h"
#include "core/open.h"
#include "user/lib/lib.h"

#define LARGE_VOLUME	(256u << 20)
#define MIB		(1u << 20)

static struct intent *intent_of(struct bed *bed)
{
	return &tux3_core(bed->volume)->intent;
}

static struct tux3_node *file_with(struct bed *bed, const char *path, u32 bytes, u8 value)
{
	struct tux3_node *node = bed_file(bed, path);

	fill(node, 0, bytes, value);
	return node;
}

static void sync_and_put(struct bed *bed, struct tux3_node *node, bool ahead)
{
	assert_int_equal(synced_ahead(bed, node), ahead);
	tux3_node_put(node, 1);
}

static void make_large(struct bed *bed)
{
	make_sized(bed, LARGE_VOLUME, BLOCK);
	assert_true(intent_of(bed)->far.blocks > 4 * MIB / BLOCK);
}

static void assert_has(struct bed *bed, const char *path, u64 offset, u32 bytes, u8 value)
{
	struct tux3_node *node = bed_find(bed, path);

	assert_non_null(node);
	assert_filled(node, offset, bytes, value);
	tux3_node_put(node, 1);
}

static void test_large_files_go_ahead(void **state)
{
	struct bed bed = {};
	struct tux3_node *node;

	make_large(&bed);
	sync_and_put(&bed, file_with(&bed, "large", MIB, 1), true);
	assert_ok(tux3_sync(bed.volume));
	fill(node = bed_file(&bed, "large"), 0, MIB, 2);
	assert_true(synced_ahead(&bed, node));
	sync_and_put(&bed, file_with(&bed, "dir/small", 5000, 3), true);
	sync_and_put(&bed, file_with(&bed, "dir/new", 3 * MIB + 7, 4), true);
	/* Of the first what is new, again. */
	fill(node, 17 * BLOCK, 600 << 10, 5);
	fill(node, 5 * MIB, 10, 6);
	sync_and_put(&bed, node, true);
	tux3_node_put(file_with(&bed, "not synced", MIB, 7), 1);
	bed_crash(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 5);		/* and "dir" */
	assert_has(&bed, "large", 0, 17 * BLOCK, 2);
	assert_has(&bed, "large", 17 * BLOCK, 600 << 10, 5);
	assert_has(&bed, "large", (17 * BLOCK) + (600 << 10), MIB - 17 * BLOCK - (600 << 10), 2);
	assert_has(&bed, "large", MIB, 4 * MIB, 0);
	assert_has(&bed, "large", 5 * MIB, 10, 6);
	assert_has(&bed, "dir/small", 0, 5000, 3);
	assert_has(&bed, "dir/new", 0, 3 * MIB + 7, 4);
	assert_null(bed_find(&bed, "not synced"));
	bed_crash(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 0);
	assert_has(&bed, "dir/new", 0, 3 * MIB + 7, 4);
	bed_free(&bed);
}

/* More than the far area has in all, and never so much at a time; some commits in between, and crashes. */
static void test_one_far_area_after_the_other(void **state)
{
	u64 random = 7, ahead = 0, written = 0;
	struct tux3_node *node;
	struct bed bed = {};
	u32 crash, i;

	make_large(&bed);
	for (crash = 0; crash < 6; crash++) {
		u32 blocks[2] = {}, value[2] = {};

		for (i = 0; i < 25; i++) {
			u32 which = bed_random(&random) & 1;

			blocks[which] = 1 + bed_random(&random) % 700;
			value[which] = crash * 25 + i;
			node = file_with(&bed, which ? "one" : "two", blocks[which] * BLOCK, value[which]);
			ahead += synced_ahead(&bed, node);
			written += blocks[which];
			tux3_node_put(node, 1);
			if (bed_random(&random) % 6 == 0)
				assert_ok(tux3_sync(bed.volume));
		}
		bed_crash(&bed);
		for (i = 0; i < 2; i++)
			assert_has(&bed, i ? "one" : "two", 0, blocks[i] * BLOCK, value[i]);
	}
	assert_true(ahead > 100);
	assert_true(written > 2 * LARGE_VOLUME / 16 / BLOCK);
	bed_free(&bed);
}

/* What does not fit into it is a commit, and asks for none. */
static void test_larger_ones_take_a_commit(void **state)
{
	struct bed bed = {};

	make_large(&bed);
	sync_and_put(&bed, file_with(&bed, "file", 5 * MIB, 1), false);
	sync_and_put(&bed, file_with(&bed, "other", 2 * MIB, 1), true);
	assert_int_equal(atomic64_read(&intent_of(&bed)->large), 0);
	bed_free(&bed);
}

/* A commit under way that is short beside the file itself: to copy that takes longer. */
static void test_beside_little(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	struct volume *vol;

	bed_make(&bed, LARGE_VOLUME, BLOCK);
	vol = tux3_core(bed.volume);
	WRITE_ONCE(vol->delta.committing, MIB);
	assert_true(intent_goes_ahead(vol, 1, 1));
	assert_true(intent_goes_ahead(vol, 2 * MIB / BLOCK, 2 * MIB / BLOCK));
	assert_false(intent_goes_ahead(vol, 8 * MIB / BLOCK, 8 * MIB / BLOCK));
	WRITE_ONCE(vol->delta.committing, 3 * MIB);
	assert_true(intent_goes_ahead(vol, 8 * MIB / BLOCK, 8 * MIB / BLOCK));
	/* Part of that is the file itself; or all of the file is, and most of that. */
	assert_false(intent_goes_ahead(vol, 8 * MIB / BLOCK, 6 * MIB / BLOCK));
	WRITE_ONCE(vol->delta.committing, 15 * MIB);
	assert_false(intent_goes_ahead(vol, 8 * MIB / BLOCK, 0));
	WRITE_ONCE(vol->delta.committing, 17 * MIB);
	assert_true(intent_goes_ahead(vol, 8 * MIB / BLOCK, 0));
	WRITE_ONCE(vol->delta.committing, 0);
	bed_free(&bed);
}

static void make_small(struct bed *bed, u32 number)
{
	char name[20];

	snprintf(name, sizeof(name), "small%u", number);
	tux3_node_put(bed_file(bed, name), 1);
}

/*
 * Several write and sync large files: what others have written waits for its own fsync, and they share commits.  Beside a load that
 * nobody syncs the file goes ahead.
 */
static void test_several_go_together(void **state)
{
	struct bed bed = { .opts = { .manual = true } };
	struct tux3_node *node[2], *load;
	u32 i, k, ahead = 0;

	bed_make(&bed, LARGE_VOLUME, BLOCK);
	load = bed_file(&bed, "load");
	tux3_node_put(file_with(&bed, "first", BLOCK, 1), 1);
	assert_ok(tux3_sync(bed.volume));
	node[0] = file_with(&bed, "file0", MIB, 1);
	for (i = 1; i < 30; i++) {
		char name[20];

		snprintf(name, sizeof(name), "file%u", i);
		node[i & 1] = file_with(&bed, name, MIB / 2, i);
		ahead += synced_ahead(&bed, node[~i & 1]);
		tux3_node_put(node[~i & 1], 1);
		fill(node[i & 1], MIB / 2, MIB / 2, i);
	}
	assert_in_range(ahead, 0, 5);
	for (i = 0, ahead = 0; i < 30; i++) {
		fill(load, (i % 4) * 8 * MIB, 8 * MIB, i);
		fill(node[1], 0, MIB, i);
		ahead += synced_ahead(&bed, node[1]);
	}
	assert_in_range(ahead, 20, 30);
	/* Nor for changes that are many, though they are few bytes. */
	for (i = 0, ahead = 0; i < 30; i++) {
		for (k = 0; k < 1200; k++)
			make_small(&bed, i * 1200 + k);
		fill(node[1], 0, MIB, i);
		ahead += synced_ahead(&bed, node[1]);
	}
	assert_in_range(ahead, 20, 30);
	tux3_node_put(node[1], 1);
	tux3_node_put(load, 1);
	bed_free(&bed);
}

/* Both areas are room that others can have. */
static void test_a_full_volume_takes_both(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	u64 offset = 0, most;

	make_large(&bed);
	most = LARGE_VOLUME / 1000 * 985;
	node = bed_file(&bed, "all");
	while (offset < most) {
		fill(node, offset, 64 << 10, 9);
		offset += 64 << 10;
	}
	assert_false(intent_of(&bed)->far.addr);
	tux3_node_put(node, 1);
	assert_ok(tux3_sync(bed.volume));
	bed_crash(&bed);
	bed_free(&bed);
}

static void unlink_every_other(struct bed *bed, u32 from, u32 files)
{
	char name[20];
	u32 i;

	for (i = from; i < files; i += 2) {
		snprintf(name, sizeof(name), "old%u", i);
		assert_ok(tux3_path_unlink(bed->volume, NULL, name));
	}
	assert_ok(tux3_sync(bed->volume));
}

/* Where no long run of blocks is free the area is a small one; when there is room again it becomes larger, without a mount. */
static void test_a_small_area_grows(void **state)
{
	u32 files = LARGE_VOLUME / MIB / 2 - 2, i, small;
	struct bed bed = { .opts = { .manual = true, .verify = true, .costs = true, .fsync = TUX3_FSYNC_FULL } };
	char name[20];

	bed_make(&bed, LARGE_VOLUME, BLOCK);
	for (i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "old%u", i);
		tux3_node_put(file_with(&bed, name, 2 * MIB, 1), 1);
		assert_ok(tux3_sync(bed.volume));
	}
	unlink_every_other(&bed, 0, files);
	bed.opts.fsync = TUX3_FSYNC_AHEAD;
	bed_reopen(&bed);
	sync_and_put(&bed, file_with(&bed, "file", 10, 1), false);
	small = intent_of(&bed)->far.blocks;
	assert_in_range(small, 300, 4 * MIB / BLOCK - 1);
	sync_and_put(&bed, file_with(&bed, "large", MIB, 1), false);
	assert_int_equal(intent_of(&bed)->far.blocks, small);		/* there is no larger one */
	sync_and_put(&bed, file_with(&bed, "less", 300 << 10, 1), true);
	unlink_every_other(&bed, 1, files);
	sync_and_put(&bed, file_with(&bed, "large", MIB, 2), false);
	assert_true(intent_of(&bed)->far.blocks >= 2 * small);
	sync_and_put(&bed, file_with(&bed, "large", MIB, 3), true);
	bed_crash(&bed);
	assert_has(&bed, "large", 0, MIB, 3);
	assert_has(&bed, "less", 0, 300 << 10, 1);
	bed_free(&bed);
}

/* The first commit of a mount comes soon, since it makes the areas; and others do not, also if there are to be none any more. */
static void test_the_first_commit_alone_comes_soon(void **state)
{
	struct tux3_options full = { .fsync = TUX3_FSYNC_FULL };
	struct bed bed = {};
	u64 soon;
	u32 i;

	for (i = 0; i < 2; i++) {
		bed.opts = (struct volume_options){ .age_ms = 60000 };
		bed_make(&bed, LARGE_VOLUME, BLOCK);
		soon = tux3_core(bed.volume)->pace.commit_bytes;
		if (i)
			tux3_change_options(bed.volume, &full);
		tux3_node_put(file_with(&bed, "file", 10, 1), 1);
		assert_ok(tux3_sync(bed.volume));
		assert_true(tux3_core(bed.volume)->pace.commit_bytes >= 8 * soon);
		bed_free(&bed);
	}
}

/* Where the first commit of a mount finds no room for the area a later one makes it, before an fsync has missed it. */
static void test_room_for_the_area_comes_later(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	u8 *data = calloc(1, 64 << 10);
	u64 offset = 0;

	make_large(&bed);
	node = bed_file(&bed, "all");
	while (tux3_write(node, data, 64 << 10, offset) == 64 << 10)
		offset += 64 << 10;
	while (tux3_write(node, data, BLOCK, offset) == BLOCK)
		offset += BLOCK;
	tux3_node_put(node, 1);
	bed_reopen(&bed);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "first"));
	assert_ok(tux3_sync(bed.volume));
	assert_false(intent_of(&bed)->place.addr);
	assert_ok(tux3_path_unlink(bed.volume, NULL, "all"));
	assert_ok(tux3_sync(bed.volume));
	while (delete_under_way(tux3_core(bed.volume)))
		assert_ok(tux3_sync(bed.volume));
	tux3_node_put(file_with(&bed, "new", 10, 1), 1);
	assert_ok(tux3_sync(bed.volume));
	assert_true(intent_of(&bed)->place.addr);
	free(data);
	bed_free(&bed);
}

/* So much data of large files may be in memory: others wait for the commit, but not those that are small. */
static void test_memory_is_bounded(void **state)
{
	struct bed bed = {};
	atomic64_t *large;

	make_large(&bed);
	large = &intent_of(&bed)->large;
	atomic64_add(31 * MIB / BLOCK, large);
	sync_and_put(&bed, file_with(&bed, "one", 2 * MIB, 1), false);
	sync_and_put(&bed, file_with(&bed, "small", 5000, 2), true);
	sync_and_put(&bed, file_with(&bed, "two", MIB, 3), true);
	assert_int_equal(atomic64_read(large), 31 * MIB / BLOCK);
	atomic64_sub(31 * MIB / BLOCK, large);
	sync_and_put(&bed, file_with(&bed, "three", 2 * MIB, 4), true);
	bed_free(&bed);
}

/* ---- beside a commit ---- */

static void look_beside(struct bed *bed)
{
	assert_has(bed, "dir/a", 0, 5000, 1);
	assert_has(bed, "large", 0, 700 << 10, 8);
}

/* On top of the commit under way as on top of the one before. */
static void test_beside_a_commit(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	pthread_t commit;

	begin(&bed);
	sync_and_put(&bed, file_with(&bed, "large", 700 << 10, 1), true);
	assert_ok(tux3_sync(bed.volume));
	fill(node = bed_file(&bed, "large"), 0, 300 << 10, 5);
	hold_commit(&bed, &commit);
	fill(node, 0, 700 << 10, 8);
	assert_true(synced_ahead(&bed, node));
	assert_image(&bed, 1, look_beside);
	let_commit(&bed, commit, NULL);
	assert_image(&bed, 1, look_beside);
	tux3_node_put(node, 1);
	bed_crash(&bed);
	look_beside(&bed);
	bed_free(&bed);
}

/* What a commit does not supersede is kept when that is durable, and there is room for more. */
static void test_beside_a_commit_and_behind_it(void **state)
{
	struct tux3_node *node;
	struct bed bed = {};
	pthread_t commit;
	u32 i;

	begin(&bed);
	sync_and_put(&bed, file_with(&bed, "before", 700 << 10, 1), true);
	node = file_with(&bed, "beside", 10, 2);
	hold_commit(&bed, &commit);
	fill(node, 0, 700 << 10, 3);
	assert_true(synced_ahead(&bed, node));
	tux3_node_put(node, 1);
	let_commit(&bed, commit, NULL);
	for (i = 0; i < 3; i++)
		sync_and_put(&bed, file_with(&bed, "behind", 700 << 10, 4 + i), true);
	bed_crash(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 4);
	assert_has(&bed, "before", 0, 700 << 10, 1);
	assert_has(&bed, "beside", 0, 700 << 10, 3);
	assert_has(&bed, "behind", 0, 700 << 10, 6);
	bed_free(&bed);
}

/* ---- damage ---- */

/* Two files are synced; then of the second one's batch the header, or a block of its data, is changed. */
struct damage {
	struct disk_intents *head;
	__le64 *addr;		/* of the data */
	u8 *data;
};

static struct damage make_damaged(struct bed *bed)
{
	struct damage damage;
	u8 *bytes;
	u64 at;

	make_large(bed);
	bytes = device_memory_bytes(bed->dev);
	sync_and_put(bed, file_with(bed, "first", MIB, 2), true);
	at = intent_of(bed)->place.addr + intent_of(bed)->place.offset;
	sync_and_put(bed, file_with(bed, "second", MIB, 3), true);
	damage.head = (struct disk_intents *)(bytes + at * BLOCK);
	assert_int_equal(le32_to_cpu(damage.head->data_blocks), TUX3_INTENTS_FAR | MIB / BLOCK);
	damage.addr = (__le64 *)(damage.head + 1);
	damage.data = bytes + le64_to_cpu(*damage.addr) * BLOCK;
	return damage;
}

static void seal(struct damage *damage)
{
	damage->head->crc = 0;
	damage->head->crc = cpu_to_le32(crc32c(~0u, damage->head, BLOCK));
}

/* As if the second fsync had not come to its end. */
static void assert_first_only(struct bed *bed)
{
	bed_crash(bed);
	assert_int_equal(intent_of(bed)->recovered, 1);
	assert_has(bed, "first", 0, MIB, 2);
	assert_null(bed_find(bed, "second"));
	bed_free(bed);
}

static void test_data_that_is_not_whole(void **state)
{
	struct bed bed = {};
	struct damage damage = make_damaged(&bed);

	damage.data[123 * BLOCK + 5] ^= 1;
	assert_first_only(&bed);
}

/* The data of the second is here, it says, and has the checksums of what is. */
static void forge(struct damage *damage, u64 addr, const u8 *bytes)
{
	struct disk_intent *intent = (struct disk_intent *)(damage->addr + 1);
	struct disk_intent_run *run = (struct disk_intent_run *)(intent + 1);
	u32 i;

	assert_int_equal(le32_to_cpu(run->count), MIB / BLOCK);
	*damage->addr = cpu_to_le64(addr);
	for (i = 0; i < MIB / BLOCK && addr + i < LARGE_VOLUME / BLOCK; i++)
		run->csum[i] = cpu_to_le32(crc32c(~0u, bytes + (addr + i) * BLOCK, BLOCK));
	seal(damage);
}

/* No batch says so: it is one that somebody has forged.  Nothing that is in use becomes data of a file. */
static void test_data_where_none_can_be(void **state)
{
	struct bed bed = {};
	struct damage damage = make_damaged(&bed);
	u64 blocks = LARGE_VOLUME / BLOCK, places[] = {
		0, blocks - 1, blocks, U64_MAX, U64_MAX - 3,
		intent_of(&bed)->place.addr, intent_of(&bed)->place.addr - MIB / BLOCK + 1,
		tux3_core(bed.volume)->tree.root_addr, tux3_core(bed.volume)->log.next_addr,
	};
	struct bed_saved *saved = bed_save(&bed);
	u8 *bytes = device_memory_bytes(bed.dev);
	u32 i;

	for (i = 0; i < ARRAY_SIZE(places); i++) {
		bed_restore(&bed, saved);
		forge(&damage, places[i], bytes);
		bed_crash(&bed);
		assert_int_equal(intent_of(&bed)->recovered, 1);
		assert_null(bed_find(&bed, "second"));
		bed_check(&bed);
	}
	bed_restore(&bed, saved);
	bed_saved_free(saved);
	bed_crash(&bed);
	assert_int_equal(intent_of(&bed)->recovered, 2);
	bed_free(&bed);
}

/* Nor what the first one has: which of them it belongs to nobody knows. */
static void test_data_of_two(void **state)
{
	struct bed bed = {};
	struct damage damage = make_damaged(&bed);
	u8 *bytes = device_memory_bytes(bed.dev);
	struct volume *vol;
	char why[256];

	forge(&damage, le64_to_cpu(*damage.addr) - MIB / BLOCK, bytes);
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	assert_int_equal(volume_open(bed.dev, NULL, &bed.opts, &vol, why, sizeof(why)), -EIO);
	bed.dev->ops->close(bed.dev);
}

/* Nor does a mount read as much as a thousand batches say, all of them of the same data. */
static void test_data_of_many(void **state)
{
	struct bed bed = {};
	struct damage damage = make_damaged(&bed);
	struct intent_place *place = &intent_of(&bed)->place;
	u64 addr = le64_to_cpu(damage.head->addr), seq = le64_to_cpu(damage.head->seq), bytes;
	u32 count = place->addr + place->blocks - addr, i;
	u8 one[BLOCK];
	struct volume *vol;
	char why[256];

	assert_true(count > 3 * LARGE_VOLUME / MIB);
	memcpy(one, damage.head, BLOCK);
	for (i = 1; i < count; i++) {
		damage.head = (void *)((u8 *)damage.head + BLOCK);
		memcpy(damage.head, one, BLOCK);
		damage.head->addr = cpu_to_le64(addr + i);
		damage.head->seq = cpu_to_le64(seq + i);
		seal(&damage);
	}
	tux3_node_put(bed.root, 1);
	tux3_abandon(bed.volume);
	bytes = atomic64_read(&bed.dev->read_bytes);
	assert_int_equal(volume_open(bed.dev, NULL, &bed.opts, &vol, why, sizeof(why)), -EIO);
	bytes = atomic64_read(&bed.dev->read_bytes) - bytes;
	assert_true(bytes < LARGE_VOLUME + 16 * MIB);
	bed.dev->ops->close(bed.dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_large_files_go_ahead),
		cmocka_unit_test(test_one_far_area_after_the_other),
		cmocka_unit_test(test_larger_ones_take_a_commit),
		cmocka_unit_test(test_beside_little),
		cmocka_unit_test(test_several_go_together),
		cmocka_unit_test(test_a_full_volume_takes_both),
		cmocka_unit_test(test_a_small_area_grows),
		cmocka_unit_test(test_the_first_commit_alone_comes_soon),
		cmocka_unit_test(test_room_for_the_area_comes_later),
		cmocka_unit_test(test_memory_is_bounded),
		cmocka_unit_test(test_beside_a_commit),
		cmocka_unit_test(test_beside_a_commit_and_behind_it),
		cmocka_unit_test(test_data_that_is_not_whole),
		cmocka_unit_test(test_data_where_none_can_be),
		cmocka_unit_test(test_data_of_two),
		cmocka_unit_test(test_data_of_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
