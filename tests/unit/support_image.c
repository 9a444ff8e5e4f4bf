/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A small good volume in memory: see support_image.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include "support_image.h"
#include "user/lib/internal.h"
#include "user/env/device_memory.h"
#include "core/format/anchor.h"
#include "core/mkfs.h"
#include "core/open.h"

/* ---- building ---- */

static int make_file(struct tux3 *tux3, const char *path, size_t bytes, u64 offset, u64 *ino)
{
	struct tux3_node *node;
	char *data = malloc(bytes ? bytes : 1);
	int err = data ? tux3_path(tux3, NULL, path, TUX3_CREATE, 0644, &node) : -ENOMEM;
	size_t i;

	if (err) {
		free(data);
		return err;
	}
	for (i = 0; i < bytes; i++)
		data[i] = 'a' + i % 23;
	if (bytes && tux3_write(node, data, bytes, offset) != bytes)
		err = -EIO;
	*ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	free(data);
	return err;
}

static int make_dir(struct tux3 *tux3, const char *path, u64 *ino)
{
	struct tux3_node *node;
	int err = tux3_path_mkdir(tux3, NULL, path, 0755);

	if (!err)
		err = tux3_path(tux3, NULL, path, 0, 0, &node);
	if (err)
		return err;
	*ino = tux3_node_ino(node);
	tux3_node_put(node, 1);
	return 0;
}

static int set_xattr(struct tux3 *tux3, const char *path, const char *name, size_t bytes)
{
	struct tux3_node *node;
	char *value = malloc(bytes);
	int err = value ? tux3_path(tux3, NULL, path, 0, 0, &node) : -ENOMEM;

	if (!err) {
		memset(value, 'v', bytes);
		err = tux3_setxattr(node, NULL, name, value, bytes, 0);
		tux3_node_put(node, 1);
	}
	free(value);
	return err;
}

static int make_links(struct tux3 *tux3, struct image_inodes *ino)
{
	struct tux3_node *root = tux3_root(tux3), *small = NULL, *two = NULL, *node = NULL;
	int err = tux3_path(tux3, NULL, "/small", 0, 0, &small);

	if (!err)
		err = tux3_path(tux3, NULL, "/two", 0, 0, &two);
	if (!err)
		err = tux3_link(small, NULL, two, "hard");
	if (!err)
		err = tux3_symlink(root, NULL, "link", "small", &node);
	if (!err)
		ino->link = tux3_node_ino(node);
	if (small)
		tux3_node_put(small, 1);
	if (two)
		tux3_node_put(two, 1);
	if (node)
		tux3_node_put(node, 1);
	tux3_node_put(root, 1);
	return err;
}

static int preallocate(struct tux3 *tux3, const char *path, u64 bytes)
{
	struct tux3_node *node;
	int err = tux3_path(tux3, NULL, path, 0, 0, &node);

	if (err)
		return err;
	err = tux3_fallocate(node, 0, 0, bytes);
	tux3_node_put(node, 1);
	return err;
}

static int fill(struct tux3 *tux3, struct image_inodes *ino)
{
	int err = make_dir(tux3, "/dir", &ino->dir);

	err = err ?: make_dir(tux3, "/dir/sub", &ino->sub);
	err = err ?: make_dir(tux3, "/two", &ino->two);
	err = err ?: make_file(tux3, "/small", 100, 0, &ino->small);
	err = err ?: make_file(tux3, "/one", 600, 0, &ino->one);
	err = err ?: make_file(tux3, "/big", 20 * 4096, 0, &ino->big);
	err = err ?: make_file(tux3, "/sparse", 4096, 0, &ino->sparse);
	err = err ?: make_file(tux3, "/sparse", 4096, 40960, &ino->sparse);
	err = err ?: make_file(tux3, "/dir/prealloc", 0, 0, &ino->prealloc);
	err = err ?: preallocate(tux3, "/dir/prealloc", 65536);
	err = err ?: make_links(tux3, ino);
	err = err ?: set_xattr(tux3, "/small", "user.one", 5);
	err = err ?: set_xattr(tux3, "/big", "user.large", 5000);
	return err;
}

int image_build(struct image *image, bool quota)
{
	struct format_options format = { .quota = quota, .label = "image" };
	struct volume_options opts = { .manual = true };
	struct tux3 *tux3;
	char why[512] = "";
	int err;

	memset(image, 0, sizeof(*image));
	image->dev = device_memory_create(IMAGE_BYTES);
	if (!image->dev)
		return -ENOMEM;
	err = volume_format(image->dev, &format, why, sizeof(why));
	if (!err)
		err = tux3_open_device(image->dev, false, &opts, 0, &tux3, why, sizeof(why));
	if (!err) {
		int closed;

		err = fill(tux3, &image->ino);
		closed = tux3_close(tux3);
		err = err ? err : closed;
	}
	if (err) {
		fprintf(stderr, "the image cannot be built: error %d, %s\n", err, why);
		image_close(image);
	}
	return err;
}

int image_copy(struct image *to, const struct image *from)
{
	*to = *from;
	to->dev = device_memory_create(IMAGE_BYTES);
	if (!to->dev)
		return -ENOMEM;
	memcpy(device_memory_bytes(to->dev), device_memory_bytes(from->dev), IMAGE_BYTES);
	return 0;
}

void image_close(struct image *image)
{
	if (image->dev)
		image->dev->ops->close(image->dev);
	image->dev = NULL;
}

/* ---- checking ---- */

struct found {
	unsigned int *codes, count, max;
	bool print;
};

static int on_problem(void *ctx, const struct check_problem *problem)
{
	struct found *found = ctx;
	unsigned int i;

	if (found->print)
		fprintf(stderr, "  %s (%u): %s\n", problem->name, problem->code, problem->text);
	for (i = 0; i < found->count; i++)
		if (found->codes[i] == problem->code)
			return 0;
	if (found->count < found->max)
		found->codes[found->count++] = problem->code;
	return 0;
}

int image_check(struct image *image, bool data, unsigned int *codes, unsigned int max, bool print)
{
	struct found found = { .codes = codes, .max = max, .print = print };
	struct check_options opts = { .data = data, .problem = on_problem, .ctx = &found };
	struct volume_options open_opts = { .read_only = true, .manual = true };
	struct check_result result;
	struct volume *vol;
	char why[512] = "";
	int err = volume_open(image->dev, NULL, &open_opts, &vol, why, sizeof(why));

	if (err == -EIO) {		/* as fsck.tux3 does */
		open_opts.no_recovery = true;
		err = volume_open(image->dev, NULL, &open_opts, &vol, why, sizeof(why));
	}
	if (err) {
		fprintf(stderr, "the image cannot be opened: error %d, %s\n", err, why);
		return err;
	}
	err = volume_check(vol, &opts, &result);
	volume_close(vol);
	return err ? err : (int)found.count;
}

/* ---- damaging ---- */

static struct volume *edit_open(struct tux3_device *dev, bool cut_log, char *why, size_t why_size)
{
	struct volume_options opts = { .manual = true, .cut_log = cut_log };
	struct volume *vol;

	if (volume_open(dev, NULL, &opts, &vol, why, why_size))
		return NULL;
	/* As if a commit was under way: what is made now has numbers that were never used. */
	vol->delta.applying = vol->delta.committed + 1;
	tree_edit_begin(vol);
	return vol;
}

struct volume *image_edit_begin(struct image *image)
{
	char why[512] = "";
	struct volume *vol = edit_open(image->dev, false, why, sizeof(why));

	if (!vol)
		fprintf(stderr, "the image cannot be opened: %s\n", why);
	return vol;
}

struct volume *image_edit_damaged(struct tux3_device *dev)
{
	char why[512];

	return edit_open(dev, true, why, sizeof(why));
}

int image_edit_end(struct volume *vol)
{
	tree_edit_end(vol);
	vol->delta.committed = vol->delta.applying;
	vol->delta.front = vol->delta.committed + 1;
	return volume_close(vol);
}

void *image_block(struct image *image, u64 addr)
{
	return (u8 *)device_memory_bytes(image->dev) + addr * 4096;
}

void image_seal_map(struct image *image, u64 addr)
{
	struct disk_map *map = image_block(image, addr);

	map->crc = 0;
	map->crc = cpu_to_le32(crc32c(~0u, map, 4096));
}

struct disk_anchor *image_anchor(struct image *image)
{
	struct disk_anchor anchor;
	unsigned int slot;
	char why[200];

	if (volume_read_anchor(image->dev, &anchor, &slot, why, sizeof(why)))
		return NULL;
	return (void *)((u8 *)device_memory_bytes(image->dev) + anchor_slot_offset(IMAGE_BYTES, slot));
}
