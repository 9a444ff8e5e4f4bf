/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Nothing wrong is written: what is damaged in memory between a change and its write is found, the volume stops with a
 * sentence, and the next mount finds all that was acknowledged.
 */
#include "support_lib.h"

#include "core/blocks/freemap.h"
#include "core/check/check.h"
#include "core/commit/unify.h"
#include "core/delta/delta.h"
#include "core/inode/inode.h"
#include "core/names/name_change.h"
#include "core/names/name_internal.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "log.h"
#include "user/lib/lib.h"

#define FILES 300u

static struct volume *vol;
static char messages[4096];

static void keep_messages(int level, const char *message)
{
	size_t used = strlen(messages);

	snprintf(messages + used, sizeof(messages) - used, "%s\n", message);
}

static void make_file(struct bed *bed, u32 i, u32 bytes)
{
	static u8 data[2 * 4096];
	struct tux3_node *node;
	char path[20];

	snprintf(path, sizeof(path), "/file-%u", i);
	assert_ok(tux3_path(bed->volume, NULL, path, TUX3_CREATE, 0644, &node));
	assert_int_equal(tux3_write(node, data, bytes, 0), bytes);
	tux3_node_put(node, 1);
}

static void begin(struct bed *bed)
{
	u32 i;

	*bed = (struct bed){ .opts = { .manual = true, .verify = true } };
	bed_make(bed, 64 << 20, 4096);
	for (i = 0; i < FILES; i++)
		make_file(bed, i, 5000);
	assert_ok(tux3_sync(bed->volume));
	vol = tux3_core(bed->volume);
	messages[0] = 0;
	env_set_log(keep_messages);
}

/* It has stopped, and said why; what was synced is there. */
static void end(struct bed *bed, const char *sentence)
{
	struct check_options opts = { .data = true };
	struct check_result result = {};
	struct tux3_node *node;
	char path[20];
	u32 i;

	env_set_log(NULL);
	if (!strstr(messages, sentence) || !strstr(messages, "nothing more is written"))
		fail_msg("said nothing of \"%s\": %s", sentence, messages);
	assert_true(volume_error(vol) < 0);
	assert_true(tux3_path(bed->volume, NULL, "/later", TUX3_CREATE, 0644, &node) < 0);
	tux3_abandon(bed->volume);
	bed_open(bed);
	assert_ok(volume_check(tux3_core(bed->volume), &opts, &result));
	assert_int_equal(result.problems, 0);
	for (i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "/file-%u", i);
		assert_ok(tux3_path(bed->volume, NULL, path, 0, 0, &node));
		tux3_node_put(node, 1);
	}
	bed_free(bed);
}

/* ---- tree nodes ---- */

static void swap_keys(struct disk_node *node)
{
	struct disk_item *items = (void *)(node + 1);

	swap(items[0].key, items[1].key);
}

static void move_data(struct disk_node *node)
{
	struct disk_item *items = (void *)(node + 1);

	items[1].at = cpu_to_le16(le16_to_cpu(items[1].at) - 8);
}

static void too_many(struct disk_node *node)
{
	node->count = cpu_to_le16(60000);
}

static void wrong_level(struct disk_node *node)
{
	node->level = cpu_to_le16(1);
}

static void wrong_magic(struct disk_node *node)
{
	node->magic = 0;
}

static void wrong_birth(struct disk_node *node)
{
	node->birth = cpu_to_le64(le64_to_cpu(node->birth) + 1);
}

static void wrong_branch(struct disk_node *node)
{
	struct disk_branch *branches = (void *)(node + 1);

	branches[0].addr = cpu_to_le64(vol->total_blocks);
}

static void test_a_damaged_node_is_not_written(void **state)
{
	static const struct {
		void (*damage)(struct disk_node *node);
		u32 level;
		const char *sentence;
	} cases[] = {
		{ swap_keys, 0, "is not above the one before it" },
		{ move_data, 0, "item 1 has its" },
		{ too_many, 0, "do not fit in it" },
		{ wrong_level, 0, "is not as it must be" },
		{ wrong_magic, 0, "it is not a tree node" },
		{ wrong_birth, 0, "born in delta" },
		{ wrong_branch, 1, "leads to block" },
	};
	struct node_buffer *buffer, *found;
	struct bed bed;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(&bed);
		assert_ok(tree_place(vol));	/* what comes now has its place */
		found = NULL;
		list_for_each_entry(buffer, &vol->tree.dirty, lru_link)
			if (buffer->level == cases[i].level)
				found = buffer;
		assert_non_null(found);
		cases[i].damage(found->data);
		assert_int_equal(delta_commit_unify(vol), -EIO);
		end(&bed, cases[i].sentence);
	}
}

/* ---- free maps ---- */

static void free_fixed(struct balloc_group *group)
{
	clear_bit(0, group->disk);
}

static void free_beyond_end(struct balloc_group *group)
{
	clear_bit(vol->group_blocks - 1, group->disk);
}

static void lose_block(struct balloc_group *group)
{
	group->info->free--;
}

static void test_a_damaged_map_is_not_written(void **state)
{
	static const struct {
		void (*damage)(struct balloc_group *group);
		const char *sentence;
	} cases[] = {
		{ free_fixed, "fixed block 0 is marked free" },
		{ free_beyond_end, "beyond the end of the volume is marked free" },
		{ lose_block, "blocks as free, there are" },
	};
	struct bed bed;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(&bed);
		cases[i].damage(list_first_entry(&vol->balloc.changed, struct balloc_group, link));
		assert_int_equal(delta_commit_unify(vol), -EIO);
		end(&bed, cases[i].sentence);
	}
}

/* ---- the anchor ---- */

static void wrong_version(void)
{
	vol->anchor.version = cpu_to_le32(TUX3_FORMAT_VERSION + 1);
}

static void wrong_groups(void)
{
	vol->anchor.group_blocks = cpu_to_le32(vol->group_blocks + 1);
}

static void too_many_unwritten(void)
{
	vol->space.unwritten = atomic64_read(&vol->balloc.data_used) + 1;
}

static void test_a_damaged_anchor_is_not_written(void **state)
{
	static const struct {
		void (*damage)(void);
		const char *sentence;
	} cases[] = {
		{ wrong_version, "newer than this program knows" },
		{ wrong_groups, "describes an impossible volume" },
		{ too_many_unwritten, "more unwritten blocks than data blocks" },
	};
	struct bed bed;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(&bed);
		cases[i].damage();
		assert_int_equal(delta_commit_unify(vol), -EIO);
		end(&bed, cases[i].sentence);
	}
}

/* ---- the log ---- */

struct chunk {		/* as log_write.c has it */
	struct list_head link;
	u64 addr;
	u32 used;
	struct disk_log *block;
};

static struct tux3_device_ops ops;
static const struct tux3_device_ops *real_ops;
static void (*damage_chunk)(struct chunk *chunk);
static u32 chunks_wanted;

/* Data is written in the middle of a commit, when some of its records are logged. */
static void write_and_damage(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags,
			     struct io_wait *wait)
{
	if (damage_chunk && vol->log.chunk_count >= chunks_wanted) {
		struct chunk *chunk = list_first_entry(&vol->log.chunks, struct chunk, link);

		/* Of several the second: it is neither the first nor the last one of the commit. */
		damage_chunk(chunks_wanted > 1 ? list_next_entry(chunk, link) : chunk);
		damage_chunk = NULL;
	}
	real_ops->write(dev, addr, vec, vecs, flags, wait);
}

static struct disk_record *first_record(struct chunk *chunk)
{
	return (void *)((u8 *)(chunk->block + 1) + sizeof(struct disk_commit));
}

static void flip_bit(struct chunk *chunk)
{
	((u8 *)(first_record(chunk) + 1))[3] ^= 1;
}

static void wrong_type(struct chunk *chunk)
{
	first_record(chunk)->type = cpu_to_le16(999);
}

static void wrong_length(struct chunk *chunk)
{
	first_record(chunk)->len = cpu_to_le32(1u << 20);
}

/* Perhaps in a number that any other would do for as well. */
static void flip_last_bit(struct chunk *chunk)
{
	((u8 *)(chunk->block + 1))[chunk->used - 1] ^= 0x80;
}

static void flip_first_bit(struct chunk *chunk)
{
	((u8 *)(chunk->block + 1))[0] ^= 1;
}

static void lose_end(struct chunk *chunk)
{
	chunk->used -= 8;
}

static void test_a_damaged_log_is_not_written(void **state)
{
	static const struct {
		void (*damage)(struct chunk *chunk);
		const char *sentence;
		u32 chunks;
		bool quick;		/* as where not all is verified */
	} cases[] = {
		{ flip_bit, "records are not as they were logged", 1, false },
		{ wrong_type, "a record that nobody can read", 1, false },
		{ wrong_length, "not as many records as were logged", 1, false },
		{ flip_bit, "records are not as they were logged", 1, true },
		{ wrong_type, "a record that nobody can read", 1, true },
		{ wrong_length, "not as many records as were logged", 1, true },
		{ flip_first_bit, "is not as it must be", 3, false },
		{ flip_first_bit, "is not as it must be", 3, true },
		{ flip_last_bit, "is not as it must be", 3, true },
		{ lose_end, "does not hold as much as it has room for", 3, true },
	};
	struct bed bed;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(&bed);
		vol->opts.verify = !cases[i].quick;
		chunks_wanted = cases[i].chunks;
		real_ops = bed.dev->ops;
		ops = *real_ops;
		ops.write = write_and_damage;
		bed.dev->ops = &ops;
		damage_chunk = cases[i].damage;
		for (k = 0; k < (cases[i].chunks > 1 ? 100 : 2); k++)
			make_file(&bed, FILES + k, 5000);
		assert_int_equal(tux3_sync(bed.volume), -EIO);
		assert_null(damage_chunk);
		bed.dev->ops = real_ops;
		end(&bed, cases[i].sentence);
	}
}

/* ---- the books, which are looked at after each commit ---- */

static struct balloc_group *some_group(void)
{
	return list_first_entry(&vol->balloc.changed, struct balloc_group, link);
}

static void count_free(void)
{
	some_group()->info->free++;
}

static void count_busy(void)
{
	some_group()->extra++;
}

/* A block that is in use can be allocated. */
static void lose_busy(void)
{
	struct balloc_group *group = some_group();

	clear_bit(find_next_bit(group->disk, vol->group_blocks, vol->group_blocks / 2), group->busy);
}

static void lose_free_blocks(void)
{
	atomic64_dec(&vol->balloc.free_blocks);
}

static void lose_promise(void)
{
	atomic64_dec(&vol->balloc.promised);
}

static void count_change(void)
{
	atomic64_inc(&vol->delta.extra[vol->delta.committed & 1]);
	vol->space.standing[vol->delta.committed & 1]++;
}

static void count_pending(void)
{
	atomic64_set(&vol->unify.pending, 1);
}

static void count_parent(void)
{
	atomic_set(&vol->parents.bytes[vol->delta.committed & 1][77], 300);
}

static void mark_parents(void)
{
	vol->parents.used[vol->delta.committed & 1] = 1ul << 5;
}

static void test_books_that_are_wrong_stop_the_volume(void **state)
{
	static const struct {
		void (*damage)(void);
		const char *sentence;
	} cases[] = {
		{ count_free, "counts" },
		{ count_busy, "as busy for another reason than its map" },
		{ lose_busy, "are in use and not busy" },
		{ lose_free_blocks, "are not the" },
		{ lose_promise, "are not the" },
		{ count_change, "is durable, but counts" },
		{ count_pending, "unify is in phase 0, and it has something to write" },
		{ count_parent, "parent pointers are counted as given in it" },
		{ mark_parents, "parent pointers are counted as given in it" },
	};
	struct bed bed;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(&bed);
		delta_lock(vol);
		assert_ok(unify_verify(vol));
		cases[i].damage();
		assert_int_equal(unify_verify(vol), -EIO);
		delta_unlock(vol);
		if (!strstr(messages, "internal inconsistency"))
			fail_msg("said: %s", messages);
		end(&bed, cases[i].sentence);
	}
}

/* The same in a commit: it is what looks. */
static void test_a_commit_looks_at_the_books(void **state)
{
	struct bed bed;

	begin(&bed);
	lose_free_blocks();
	make_file(&bed, FILES, 100);
	assert_int_equal(tux3_sync(bed.volume), -EIO);
	end(&bed, "are not the");
}

/* ---- what a delta leaves of an inode ---- */

static struct inode_range range = { .block = 3, .count = 1 };

static void leave_frozen(struct inode_slot *slot) { slot->frozen = true; }
static void leave_taken(struct inode_slot *slot) { slot->taken = true; }
static void leave_dirty(struct inode_slot *slot) { slot->dirty = INODE_DIRTY_ATTR; }
static void leave_removed(struct inode_slot *slot) { file_ranges_add(&slot->removed, 3, 1, &range); }
static void leave_prealloc(struct inode_slot *slot) { file_ranges_add(&slot->prealloc, 3, 1, &range); }
static void leave_cut(struct inode_slot *slot) { slot->cut = 7; }
static void leave_unchecked(struct inode_slot *slot) { slot->unchecked = 7; }
static void leave_unchecked_end(struct inode_slot *slot) { slot->unchecked_end = 8; }
static void leave_extra(struct inode_slot *slot) { slot->extra = -1; }
static void leave_paid(struct inode_slot *slot) { slot->paid = 1; }

static void test_an_inode_that_keeps_something_of_a_delta_stops_the_volume(void **state)
{
	static const struct {
		void (*leave)(struct inode_slot *slot);
		const char *sentence;
	} cases[] = {
		{ leave_frozen, "still has its attributes" },
		{ leave_taken, "still has its attributes" },
		{ leave_dirty, "still has dirty bits" },
		{ leave_removed, "still has ranges" },
		{ leave_prealloc, "still has ranges" },
		{ leave_cut, "still has a truncate" },
		{ leave_unchecked, "still has blocks without checksums" },
		{ leave_unchecked_end, "still has blocks without checksums" },
		{ leave_extra, "still has blocks that it takes" },
		{ leave_paid, "still has blocks that it takes" },
	};
	struct inode_slot *slot;
	struct tux3_inode *inode;
	struct bed bed;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		begin(&bed);
		inode = &bed.root->inode;
		slot = &inode->slot[vol->delta.committed & 1];
		inode_verify_done(inode, vol->delta.committed);
		assert_ok(volume_error(vol));
		cases[i].leave(slot);
		inode_verify_done(inode, vol->delta.committed);
		inode_slot_reset(slot);
		end(&bed, cases[i].sentence);
	}
}

/* It has changes of names, or of extended attributes, of which its dirty bits did not say. */
static void test_changes_that_a_delta_forgets_stop_the_volume(void **state)
{
	struct inode_slot *slot, was;
	struct bed bed;
	u32 i;

	for (i = 0; i < 2; i++) {
		begin(&bed);
		if (i)
			assert_ok(tux3_setxattr(bed.root, NULL, "user.x", "y", 1, 0));
		else
			make_file(&bed, FILES, 100);
		slot = &bed.root->inode.slot[vol->delta.front & 1];
		was = *slot;
		inode_slot_reset(slot);
		inode_verify_done(&bed.root->inode, vol->delta.front);
		*slot = was;
		end(&bed, i ? "still has changed extended attributes" : "still has changed names");
	}
}

/* ---- names that are about to change ---- */

static void prepare(struct bed *bed, const char *name, struct name_prepared *prep)
{
	assert_ok(name_prepare(&bed->root->inode, name, strlen(name), NAME_GOES, prep));
}

/* Where locks know their owner the next operation but one in this directory says so; elsewhere who frees the names. */
static void test_a_name_that_stays_pinned_stops_the_volume(void **state)
{
	struct name_prepared prep;
	struct tux3_node *node;
	struct bed bed;
	u32 i;

	begin(&bed);
	for (i = 0; i < 2; i++) {
		prepare(&bed, "file-7", &prep);
		prep.entry->pins++;
		if (IS_ENABLED(CONFIG_PROVE_LOCKING))
			bed.root->inode.dir->pins++;
		name_release(&bed.root->inode, &prep);
	}
	if (IS_ENABLED(CONFIG_PROVE_LOCKING)) {
		assert_true(tux3_path(bed.volume, NULL, "/new", TUX3_CREATE, 0644, &node) < 0);
		end(&bed, "names of directory 2 are pinned between operations");
		return;
	}
	tux3_abandon(bed.volume);
	env_set_log(NULL);
	if (!strstr(messages, "directory 2 goes, but one of its names is pinned"))
		fail_msg("said: %s", messages);
	bed_open(&bed);
	bed_free(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_damaged_node_is_not_written),
		cmocka_unit_test(test_a_damaged_map_is_not_written),
		cmocka_unit_test(test_a_damaged_anchor_is_not_written),
		cmocka_unit_test(test_a_damaged_log_is_not_written),
		cmocka_unit_test(test_books_that_are_wrong_stop_the_volume),
		cmocka_unit_test(test_a_commit_looks_at_the_books),
		cmocka_unit_test(test_an_inode_that_keeps_something_of_a_delta_stops_the_volume),
		cmocka_unit_test(test_changes_that_a_delta_forgets_stop_the_volume),
		cmocka_unit_test(test_a_name_that_stays_pinned_stops_the_volume),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
