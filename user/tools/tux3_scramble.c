/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 image --scramble: a volume like another one, but without its secrets.
 *
 * Names are ordered in the tree by their hashes, so other names need another tree: an empty volume of the same
 * geometry is made, and every item of the old one is put into it, changed.  File data has
 * blocks allocated, where it was if possible, but none of it is there.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "commands.h"
#include "scramble.h"
#include "core/format/chain.h"
#include "core/tree/tree_internal.h"
#include "core/format/name_hash.h"
#include "core/mkfs.h"
#include "core/open.h"
#include "user/env/device_file.h"

#define UNIFY_NODES 4096u	/* write to disk when so many nodes are dirty */

struct scramble {
	struct volume *in, *out;
	u8 *item, *chain;	/* TUX3_ITEM_MAX bytes each */
	u64 inodes, skipped;
};

/*
 * The tree is edited without a log, so by hand: what is made has the number of a delta of its own, and when
 * it is to go to disk that delta counts as committed.
 */
static void edits_begin(struct volume *vol)
{
	vol->delta.applying = vol->delta.committed + 1;
}

static int edits_write(struct volume *vol)
{
	vol->delta.committed = vol->delta.applying;
	vol->delta.front = vol->delta.committed + 1;
	return delta_commit_unify(vol);
}

/* Add an entry to the chain under key, or begin it. */
static int chain_append(struct scramble *scramble, const struct tree_key *key, const void *entry, u32 len)
{
	u32 max = TUX3_ITEM_MAX(scramble->out->block_size);
	int had = tree_edit_lookup(scramble->out, key, scramble->chain, max);

	if (had == -ENOENT)
		had = 0;
	if (had < 0)
		return had;
	if (had + len > max) {
		scramble->skipped++;
		return 0;
	}
	memcpy(scramble->chain + had, entry, len);
	return tree_set(scramble->out, key, scramble->chain, had + len);
}

static int scramble_plain(struct scramble *scramble, const struct tree_key *key, u8 *data, u32 len)
{
	if (key->type == TUX3_ITEM_ATTR)
		scramble->inodes++;
	return tree_set(scramble->out, key, data, len);
}

static int scramble_inline(struct scramble *scramble, const struct tree_key *key, u8 *data, u32 len)
{
	struct tree_key attr_key = tree_key(key->ino, TUX3_ITEM_ATTR, 0);
	struct disk_attr attr = { };

	tree_edit_lookup(scramble->out, &attr_key, &attr, sizeof(attr));
	if (S_ISLNK(le32_to_cpu(attr.mode)))
		scramble_path(data, len);
	else
		scramble_text(data, len);
	return tree_set(scramble->out, key, data, len);
}

static int scramble_dirents(struct scramble *scramble, const struct tree_key *key, u8 *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	struct disk_dirent *entry;
	int err = 0;

	while (!err && (entry = (void *)chain_next_dirent(&chain))) {
		struct tree_key to;

		scramble_name(entry->name, entry->len);
		to = tree_key(key->ino, key->type, name_hash(scramble->out, key->ino, key->type,
							     (char *)entry->name, entry->len));
		err = chain_append(scramble, &to, entry, chain.size);
	}
	scramble->skipped += chain.bad;
	return err;
}

static int scramble_parents(struct scramble *scramble, const struct tree_key *key, u8 *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	struct disk_parent *entry;
	int err = 0;

	while (!err && (entry = (void *)chain_next_parent(&chain))) {
		struct tree_key to;

		scramble_name(entry->name, entry->len);
		to = tree_key(key->ino, key->type, name_hash(scramble->out, get_unaligned_le64(&entry->dir), key->type,
							     (char *)entry->name, entry->len));
		err = chain_append(scramble, &to, entry, chain.size);
	}
	scramble->skipped += chain.bad;
	return err;
}

/* Blocks for data that was at addr.  -ENOSPC: there are none in one run. */
static int place(struct scramble *scramble, u64 *addr, u32 len)
{
	u32 got;

	if (!len || *addr >= scramble->out->total_blocks)
		return -ENOSPC;
	return balloc_alloc(scramble->out, BALLOC_DATA, *addr, len, len, addr, &got);
}

static int scramble_extent(struct scramble *scramble, const struct tree_key *key, u8 *data, u32 len)
{
	struct disk_extent extent;
	u64 addr;
	int err;

	if (len < sizeof(extent)) {
		scramble->skipped++;
		return 0;
	}
	memcpy(&extent, data, sizeof(extent));
	addr = le64_to_cpu(extent.addr);
	err = place(scramble, &addr, le32_to_cpu(extent.len));
	if (err == -ENOSPC) {
		scramble->skipped++;
		return 0;
	}
	if (err)
		return err;
	extent.addr = cpu_to_le64(addr);
	extent.birth = cpu_to_le64(1);
	if (le32_to_cpu(extent.flags) & TUX3_EXTENT_UNWRITTEN)
		scramble->out->space.unwritten += le32_to_cpu(extent.len);
	memcpy(data, &extent, sizeof(extent));
	return tree_set(scramble->out, key, data, len);
}

/* What follows the prefix, unless it is a name that the system gives. */
static void scramble_xattr_name(u8 *name, u32 len)
{
	static const char *const prefixes[] = { "user.", "trusted." };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(prefixes); i++) {
		u32 skip = strlen(prefixes[i]);

		if (len > skip && !memcmp(name, prefixes[i], skip))
			scramble_name(name + skip, len - skip);
	}
}

static int scramble_xattr(struct scramble *scramble, const struct tree_key *key, struct disk_xattr *entry, u32 size)
{
	struct disk_xattr_piece *piece = (void *)(entry->name + entry->len);
	u32 i;

	scramble_xattr_name(entry->name, entry->len);
	for (i = 0; i < entry->pieces; i++, piece++) {
		u64 addr = get_unaligned_le64(&piece->addr);

		if (place(scramble, &addr, get_unaligned_le32(&piece->len))) {
			scramble->skipped++;
			return 0;
		}
		put_unaligned_le64(addr, &piece->addr);
	}
	if (!entry->pieces) {
		u32 value_len = get_unaligned_le32(&entry->value_len);

		if (memcmp(entry->name, "system.", min(entry->len, (u8)7)))
			scramble_text(entry->name + entry->len, value_len);
		put_unaligned_le32(crc32c(~0u, entry->name + entry->len, value_len), &entry->value_crc);
	}
	return chain_append(scramble, &(struct tree_key){
		.ino = key->ino, .type = key->type,
		.offset = name_hash(scramble->out, key->ino, key->type, (char *)entry->name, entry->len),
	}, entry, size);
}

static int scramble_xattrs(struct scramble *scramble, const struct tree_key *key, u8 *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	struct disk_xattr *entry;
	int err = 0;

	while (!err && (entry = (void *)chain_next_xattr(&chain)))
		err = scramble_xattr(scramble, key, entry, chain.size);
	scramble->skipped += chain.bad;
	return err;
}

typedef int (*scramble_fn)(struct scramble *scramble, const struct tree_key *key, u8 *data, u32 len);

static int scramble_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	static const scramble_fn types[] = {
		[TUX3_ITEM_ATTR] = scramble_plain,
		[TUX3_ITEM_PARENT] = scramble_parents,
		[TUX3_ITEM_INLINE] = scramble_inline,
		[TUX3_ITEM_XATTR] = scramble_xattrs,
		[TUX3_ITEM_DIRENT] = scramble_dirents,
		[TUX3_ITEM_EXTENT] = scramble_extent,
		[TUX3_ITEM_QUOTA_USER] = scramble_plain,
		[TUX3_ITEM_QUOTA_GROUP] = scramble_plain,
		[TUX3_ITEM_QUOTA_PROJECT] = scramble_plain,
		[TUX3_ITEM_ORPHAN] = scramble_plain,
	};
	struct scramble *scramble = ctx;
	int err;

	if (key->type >= ARRAY_SIZE(types) || !types[key->type] || len > TUX3_ITEM_MAX(scramble->in->block_size)) {
		scramble->skipped++;
		return 0;
	}
	memcpy(scramble->item, data, len);
	tree_edit_begin(scramble->out);
	err = types[key->type](scramble, key, scramble->item, len);
	tree_edit_end(scramble->out);
	scramble->out->tree_inodes = scramble->inodes;
	if (!err && scramble->out->tree.dirty_count > UNIFY_NODES) {
		err = edits_write(scramble->out);
		edits_begin(scramble->out);
	}
	return err;
}

static int scramble_visit(void *ctx, const struct tree_visit *visit)
{
	struct scramble *scramble = ctx;
	u32 i;
	int err = 0;

	if (!visit->data)
		scramble->skipped++;
	if (!visit->data || visit->level)
		return 0;
	for (i = 0; i < node_count(visit->data) && !err; i++) {
		struct node_key packed = leaf_key(visit->data, i);
		struct tree_key key = node_key_unpack(&packed);

		err = scramble_item(scramble, &key, leaf_data(visit->data, i), leaf_len(visit->data, i));
	}
	return err;
}

/* An empty volume like the other one, open for editing. */
static int make_empty(struct volume *in, struct tux3_device *dev, struct volume **out, char *why, size_t why_size)
{
	struct volume_options opts = { .manual = true };
	struct format_options format = {
		.size_bytes = in->total_blocks << in->block_shift,
		.block_size = in->block_size,
		.no_data_csum = !(in->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM),
		.quota = in->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA,
	};
	struct tree_key from = tree_key(0, 0, 0), to = tree_key(TUX3_INO_MAX, U8_MAX, U64_MAX), next;
	int err;

	memcpy(format.uuid, in->uuid, sizeof(format.uuid));
	memcpy(format.label, in->label, sizeof(format.label));
	scramble_name((u8 *)format.label, label_length(in->label));
	err = volume_format(dev, &format, why, why_size);
	if (!err)
		err = volume_open(dev, NULL, &opts, out, why, why_size);
	if (err)
		return err;
	edits_begin(*out);
	tree_edit_begin(*out);
	err = tree_delete_range(*out, &from, &to, U32_MAX, NULL, NULL, &next);
	tree_edit_end(*out);
	snprintf(why, why_size, "the empty tree cannot be edited");
	return err < 0 ? err : 0;
}

static int scramble_fill(struct scramble *scramble, const char *path)
{
	u32 max = TUX3_ITEM_MAX(scramble->in->block_size);
	int err = -ENOMEM;

	scramble->item = malloc(max);
	scramble->chain = malloc(max);
	if (scramble->item && scramble->chain)
		err = tree_walk(scramble->in, scramble_visit, scramble);
	if (!err)
		err = edits_write(scramble->out);
	if (!err && !scramble->inodes)
		err = -ENODATA;
	free(scramble->item);
	free(scramble->chain);
	percpu_counter_set(&scramble->out->inodes, scramble->out->tree_inodes);
	if (err == -ENODATA)
		tool_error("No inode of the volume can be read: there is nothing to scramble.  Without --scramble what can be read is copied.");
	else if (err)
		tool_error("%s: the scrambled copy cannot be written: %s.", path, strerror(-err));
	else if (scramble->skipped)
		tool_error("%llu damaged objects are not in the copy.", (unsigned long long)scramble->skipped);
	return err;
}

int scramble_volume(struct volume *vol, struct tool_output *output)
{
	const char *path = output->path;
	struct scramble scramble = { .in = vol };
	struct tux3_device *dev;
	char why[512];
	int err;

	if (ftruncate(output->fd, vol->total_blocks << vol->block_shift)) {
		tool_error("%s cannot be made as large as the volume: %s.", path, strerror(errno));
		return EXIT_FAILED;
	}
	if (device_open_file(output->made, DEVICE_OPEN_WRITE, &dev, why, sizeof(why))) {
		tool_error("%s.", why);
		return EXIT_FAILED;
	}
	/* The copy is no volume of anybody's: what becomes of it is said here. */
	tool_log(false);
	err = make_empty(vol, dev, &scramble.out, why, sizeof(why));
	if (err)
		tool_error("%s: %s.", path, why);
	else
		err = scramble_fill(&scramble, path);
	if (scramble.out && err)
		volume_abandon(scramble.out);
	else if (scramble.out) {
		err = volume_close(scramble.out);
		if (err)
			tool_error("%s cannot be written: %s.", path, strerror(-err));
	}
	tool_log(true);
	dev->ops->close(dev);
	if (err || output_done(output))
		return EXIT_FAILED;
	printf("%s: a scrambled copy of %llu inodes\n", path, (unsigned long long)scramble.inodes);
	return EXIT_CLEAN;
}
