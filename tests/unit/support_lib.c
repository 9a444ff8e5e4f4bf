/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Volumes in memory for tests of libtux3: see support_lib.h. */
#include "support_image.h"
#include "support_lib.h"
#include "user/env/fault.h"
#include "core/check/check.h"
#include "core/mkfs.h"
#include "core/open.h"
#include "core/tree/tree.h"

void bed_assert_ok(long long result, const char *call, const char *file, int line)
{
	if (result < 0) {
		print_error("%s: %lld\n", call, result);
		_fail(file, line);
	}
}

void bed_open(struct bed *bed)
{
	char why[256] = "";

	if (tux3_open_device(bed->dev, false, &bed->opts, bed->data_cache_bytes, &bed->volume, why, sizeof(why)))
		fail_msg("open: %s", why);
	bed->root = tux3_root(bed->volume);
}

void bed_make(struct bed *bed, u64 bytes, u32 block_size)
{
	struct format_options format = { .block_size = block_size, .quota = bed->quota, .no_data_csum = bed->no_data_csum };
	char why[256] = "";

	bed->dev = device_memory_create(bytes);
	assert_non_null(bed->dev);
	if (volume_format(bed->dev, &format, why, sizeof(why)))
		fail_msg("format: %s", why);
	bed_open(bed);
}

static void expect_paid(struct bed *bed)
{
	assert_int_equal(delta_counter(tux3_core(bed->volume), TUX3_COUNT_OVERDRAFTS), 0);
}

void bed_close(struct bed *bed)
{
	expect_paid(bed);
	tux3_node_put(bed->root, 1);
	assert_ok(tux3_close(bed->volume));
	bed->volume = NULL;
}

void bed_reopen(struct bed *bed)
{
	bed_close(bed);
	bed_open(bed);
}

void bed_crash(struct bed *bed)
{
	expect_paid(bed);
	tux3_abandon(bed->volume);
	bed_open(bed);
}

long bed_crash_peak(struct bed *bed)
{
	long peak;

	expect_paid(bed);
	tux3_abandon(bed->volume);
	env_memory_count(true);		/* not what the crash gives back */
	bed_open(bed);
	peak = env_memory_peak();
	env_memory_count(false);
	return peak;
}

static int tell_problem(void *ctx, const struct check_problem *problem)
{
	print_error("check: %s: %s\n", problem->name, problem->text);
	return 0;
}

void bed_check(struct bed *bed)
{
	struct volume_options opts = { .read_only = true, .name_hash_mask = bed->opts.name_hash_mask };
	struct check_options check = { .data = true, .problem = tell_problem };
	struct check_result result = {};
	struct volume *vol;
	char why[256] = "";

	bed_close(bed);
	if (volume_open(bed->dev, NULL, &opts, &vol, why, sizeof(why)))
		fail_msg("open for check: %s", why);
	assert_ok(volume_check(vol, &check, &result));
	assert_int_equal(result.problems, 0);
	volume_close(vol);
	bed_open(bed);
}

void bed_free(struct bed *bed)
{
	bed_check(bed);
	bed_close(bed);
	bed->dev->ops->close(bed->dev);
}

/* ---- the same volume again and again ---- */

struct bed_saved {
	u32 count, *number;
	u8 (*block)[4096];
};

struct bed_saved *bed_save(struct bed *bed)
{
	struct bed_saved *saved = calloc(1, sizeof(*saved));
	static const u8 zeros[4096];
	u8 (*bytes)[4096] = device_memory_bytes(bed->dev);
	u32 i, room = 0;

	assert_non_null(saved);
	for (i = 0; i < bed->dev->size_bytes / 4096; i++) {
		if (!memcmp(bytes[i], zeros, 4096))
			continue;
		if (saved->count == room) {
			room = room ? 2 * room : 1024;
			saved->number = realloc(saved->number, room * sizeof(*saved->number));
			saved->block = realloc(saved->block, room * sizeof(*saved->block));
			assert_non_null(saved->number);
			assert_non_null(saved->block);
		}
		saved->number[saved->count] = i;
		memcpy(saved->block[saved->count++], bytes[i], 4096);
	}
	return saved;
}

void bed_restore(struct bed *bed, const struct bed_saved *saved)
{
	u8 (*bytes)[4096] = device_memory_bytes(bed->dev);
	u32 i;

	assert_ok(bed->dev->ops->discard(bed->dev, 0, bed->dev->size_bytes / bed->dev->block_size));
	for (i = 0; i < saved->count; i++)
		memcpy(bytes[saved->number[i]], saved->block[i], 4096);
}

void bed_saved_free(struct bed_saved *saved)
{
	free(saved->number);
	free(saved->block);
	free(saved);
}

/* ---- power cuts ---- */

static struct tux3_device_ops cut_ops;
static const struct tux3_device_ops *whole_ops;
static u32 writes_left;

static void cut_write(struct tux3_device *dev, u64 addr, const struct kvec *vec, u32 vecs, unsigned int flags, struct io_wait *wait)
{
	if (writes_left) {
		writes_left--;
		whole_ops->write(dev, addr, vec, vecs, flags, wait);
		return;
	}
	io_wait_begin(wait);
	io_wait_end(wait, -EIO);
}

void bed_cut_after(struct bed *bed, u32 writes)
{
	whole_ops = bed->dev->ops;
	cut_ops = *whole_ops;
	cut_ops.write = cut_write;
	writes_left = writes;
	bed->dev->ops = &cut_ops;
}

void bed_cut_over(struct bed *bed)
{
	bed->dev->ops = whole_ops;
}

void bed_inherit_acl(struct bed *bed, const char *path)
{
	static const __le32 acl[] = {
		cpu_to_le32(2), cpu_to_le32(0x70001), cpu_to_le32(~0u), cpu_to_le32(0x70002), cpu_to_le32(5),
		cpu_to_le32(0x50004), cpu_to_le32(~0u), cpu_to_le32(0x70010), cpu_to_le32(~0u), cpu_to_le32(0x50020),
		cpu_to_le32(~0u),
	};
	struct tux3_node *node = bed_find(bed, path);

	assert_ok(tux3_setxattr(node, NULL, "system.posix_acl_default", acl, sizeof(acl), 0));
	tux3_node_put(node, 1);
}

struct tux3_node *bed_file(struct bed *bed, const char *path)
{
	struct tux3_node *node = NULL;

	assert_ok(tux3_path(bed->volume, NULL, path, TUX3_CREATE | TUX3_PARENTS, 0644, &node));
	return node;
}

u64 bed_file_ino(struct bed *bed, const char *path)
{
	struct tux3_node *node = bed_file(bed, path);
	u64 ino = tux3_node_ino(node);

	tux3_node_put(node, 1);
	return ino;
}

struct volume *bed_edit(struct bed *bed)
{
	struct image image = { .dev = bed->dev };
	struct volume *vol = image_edit_begin(&image);

	assert_non_null(vol);
	return vol;
}

void edit_get_attr(struct volume *vol, u64 ino, struct disk_attr *attr)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);

	assert_int_equal(tree_edit_lookup(vol, &key, attr, sizeof(*attr)), sizeof(*attr));
}

void edit_set_attr(struct volume *vol, u64 ino, const struct disk_attr *attr)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);

	assert_ok(tree_set(vol, &key, attr, sizeof(*attr)));
}

struct tux3_node *bed_find(struct bed *bed, const char *path)
{
	struct tux3_node *node;

	return tux3_path(bed->volume, NULL, path, 0, 0, &node) ? NULL : node;
}

u64 bed_random(u64 *state)
{
	u64 z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}
