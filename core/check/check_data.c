/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker: read all data that has checksums, and compare.
 *
 * A second walk over the tree.  Extents that the first has found to be wrong are passed over, and no
 * more blocks are read than the volume has.
 */
#include "core/volume.h"
#include "core/device/device.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/log/apply.h"
#include "core/data/data.h"
#include "core/check/check_internal.h"

#define READ_BLOCKS 64u

/* Read up to READ_BLOCKS blocks; block by block if that fails, to find the bad ones. */
static void data_read_run(struct check *check, u64 ino, u64 block, u64 addr, u32 count, const u8 *csums)
{
	u32 size = check->vol->block_size, i, crc, want;
	bool whole = !device_read(check->vol->dev, addr, count, check->buffer);

	for (i = 0; i < count && !check->stop; i++) {
		const u8 *data = (const u8 *)check->buffer + (whole ? i * size : 0);

		if (!whole && device_read(check->vol->dev, addr + i, 1, check->buffer)) {
			check_problem(check, DATA_READ, ino, addr + i, NULL, block + i, ino, addr + i);
			continue;
		}
		crc = crc32c(~0, data, size);
		want = get_unaligned_le32(csums + i * sizeof(__le32));
		if (crc != want)
			check_problem(check, DATA_CSUM, ino, addr + i, NULL, block + i, ino, crc, want);
	}
}

/* False: enough was read. */
static bool data_account(struct check *check, u32 count)
{
	if (count > check->vol->total_blocks - check->data_read)
		return false;
	check->data_read += count;
	check_progress(check, CHECK_DATA, check->data_read, max(check->result->data_blocks, check->data_read));
	return true;
}

static void data_check_extent(struct check *check, const struct tree_key *key, const u8 *data, u32 len)
{
	struct disk_extent extent;
	u32 count, done, run;
	u64 addr;

	if (len < sizeof(extent))
		return;
	memcpy(&extent, data, sizeof(extent));
	if (extent_check(check->vol, &extent, len) || !(le32_to_cpu(extent.flags) & TUX3_EXTENT_CSUM))
		return;
	count = le32_to_cpu(extent.len);
	addr = le64_to_cpu(extent.addr);
	for (done = 0; done < count && !check->stop; done += run) {
		run = min(count - done, READ_BLOCKS);
		if (!data_account(check, run))
			return;
		data_read_run(check, key->ino, key->offset + done, addr + done, run,
			      data + sizeof(extent) + done * sizeof(__le32));
	}
}

/* A value in blocks of its own: one checksum over all pieces. */
static void data_check_value(struct check *check, u64 ino, const struct disk_xattr *entry)
{
	const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);
	u32 left = get_unaligned_le32(&entry->value_len), want = get_unaligned_le32(&entry->value_crc);
	u32 crc = ~0, i, done, size = check->vol->block_size;

	for (i = 0; i < entry->pieces; i++, piece++) {
		u64 addr = get_unaligned_le64(&piece->addr);
		u32 count = get_unaligned_le32(&piece->len);

		if (!apply_blocks_valid(check->vol, addr, count))
			return;
		for (done = 0; done < count && left; done++) {
			u32 bytes = min(left, size);

			if (!data_account(check, 1))
				return;
			if (device_read(check->vol->dev, addr + done, 1, check->buffer)) {
				check_problem(check, DATA_READ, ino, addr + done, "an extended attribute", done, ino,
					      addr + done);
				return;
			}
			crc = crc32c(crc, check->buffer, bytes);
			left -= bytes;
		}
	}
	if (!left && crc != want)
		check_problem(check, XATTR_VALUE, ino, 0, NULL, ino, crc, want);
}

static void data_check_xattrs(struct check *check, u64 ino, const u8 *data, u32 len)
{
	struct check_chain chain = { .data = data, .len = len };
	const struct disk_xattr *entry;

	while (!check->stop && (entry = check_next_xattr(&chain)))
		if (entry->pieces)
			data_check_value(check, ino, entry);
}

static int data_visit(void *ctx, const struct tree_visit *visit)
{
	struct check *check = ctx;
	u32 i;

	if (!visit->data || visit->level)
		return check->stop;
	for (i = 0; i < node_count(visit->data) && !check->stop; i++) {
		struct node_key packed = leaf_key(visit->data, i);
		struct tree_key key = node_key_unpack(&packed);

		if (key.type == TUX3_ITEM_EXTENT)
			data_check_extent(check, &key, leaf_data(visit->data, i), leaf_len(visit->data, i));
		else if (key.type == TUX3_ITEM_XATTR)
			data_check_xattrs(check, key.ino, leaf_data(visit->data, i), leaf_len(visit->data, i));
	}
	return check->stop;
}

int check_data(struct check *check)
{
	int err;

	check->buffer = kvmalloc((size_t)READ_BLOCKS * check->vol->block_size, GFP_KERNEL);
	if (!check->buffer)
		return check_fail(check, -ENOMEM);
	err = tree_walk(check->vol, data_visit, check);
	check_progress(check, CHECK_DATA, check->result->data_blocks, check->result->data_blocks);
	return err;
}
