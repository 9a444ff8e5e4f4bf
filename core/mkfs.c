// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Making an empty volume: a root leaf with the root directory, the free map of group 0, the anchors.
 *
 * The anchors are written last, after a flush, so that an interrupted mkfs leaves no volume.  Old
 * anchors are wiped first.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/device/device.h"
#include "core/format/anchor.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/log/apply.h"
#include "core/log/log.h"
#include "core/inode/inode.h"
#include "core/mkfs.h"

/* With less, what is kept for deleting and for the back end (space.c) leaves no space for a file. */
#define MIN_BLOCKS 512ULL

static int format_geometry(struct tux3_device *dev, const struct format_options *opts, struct volume *vol,
			   char *why, size_t why_size)
{
	u64 size = opts->size_bytes ? opts->size_bytes : dev->size_bytes;
	u32 block_size = opts->block_size ? opts->block_size : 1u << TUX3_MIN_BLOCK_SHIFT;

	size = round_down(size, (u64)TUX3_ANCHOR_STRIDE);
	if (!is_power_of_2(block_size) || block_size < 1u << TUX3_MIN_BLOCK_SHIFT ||
	    block_size > 1u << TUX3_MAX_BLOCK_SHIFT) {
		snprintf(why, why_size, "block size %u is not a power of two from %u to %u", block_size,
			 1u << TUX3_MIN_BLOCK_SHIFT, 1u << TUX3_MAX_BLOCK_SHIFT);
		return -EINVAL;
	}
	if (size > dev->size_bytes) {
		snprintf(why, why_size, "a volume of %llu bytes does not fit on a device of %llu",
			 (unsigned long long)size, (unsigned long long)dev->size_bytes);
		return -EINVAL;
	}
	if (size < TUX3_MIN_VOLUME_BYTES || size < MIN_BLOCKS * block_size) {
		snprintf(why, why_size, "%llu bytes are too few for a volume with blocks of %u bytes: at least %llu",
			 (unsigned long long)(opts->size_bytes ? opts->size_bytes : dev->size_bytes), block_size,
			 max_t(unsigned long long, TUX3_MIN_VOLUME_BYTES, MIN_BLOCKS * block_size));
		return -EINVAL;
	}
	vol->dev = dev;
	vol->block_size = block_size;
	vol->block_shift = ilog2(block_size);
	vol->group_blocks = (block_size - sizeof(struct disk_map)) * 8;
	vol->total_blocks = size >> vol->block_shift;
	vol->group_count = DIV_ROUND_UP(vol->total_blocks, vol->group_blocks);
	return 0;
}

static void format_anchor(struct volume *vol, const struct format_options *opts)
{
	struct disk_anchor *anchor = &vol->anchor;
	struct timespec64 now;

	ktime_get_real_ts64(&now);
	anchor->magic = cpu_to_le64(TUX3_ANCHOR_MAGIC);
	anchor->version = cpu_to_le32(TUX3_FORMAT_VERSION);
	anchor->volume_id = cpu_to_le64(vol->id);
	anchor->generation = cpu_to_le64(1);
	if (memchr_inv(opts->uuid, 0, sizeof(opts->uuid))) {
		memcpy(anchor->uuid, opts->uuid, sizeof(anchor->uuid));
	} else {
		get_random_bytes(anchor->uuid, sizeof(anchor->uuid));
		anchor->uuid[6] = (anchor->uuid[6] & 0x0f) | 0x40;	/* RFC 4122: version 4, random */
		anchor->uuid[8] = (anchor->uuid[8] & 0x3f) | 0x80;
	}
	memcpy(anchor->label, opts->label, sizeof(anchor->label));
	anchor->feature_ro_compat = cpu_to_le64(vol->feature_ro_compat);
	anchor->feature_incompat = cpu_to_le64(vol->feature_incompat);
	anchor->block_shift = cpu_to_le32(vol->block_shift);
	anchor->group_blocks = cpu_to_le32(vol->group_blocks);
	anchor->total_blocks = cpu_to_le64(vol->total_blocks);
	get_random_bytes(anchor->hash_seed, sizeof(anchor->hash_seed));
	anchor->created_ns = cpu_to_le64(now.tv_sec * 1000000000ULL + now.tv_nsec);
	anchor->written_ns = anchor->created_ns;
}

static int format_root(struct volume *vol, const struct format_options *opts)
{
	struct tree_key key = tree_key(TUX3_INO_ROOT, TUX3_ITEM_ATTR, 0);
	struct tux3_time now = inode_now(vol);
	struct tux3_attr attr = {
		.mode = S_IFDIR | (opts->root_mode ? opts->root_mode & 07777 : 0755),
		.uid = opts->root_uid, .gid = opts->root_gid, .nlink = 2,
		.atime = now, .mtime = now, .ctime = now, .btime = now, .generation = get_random_u32(), .change = 1,
	};
	struct record_attr record = { .ino = cpu_to_le64(TUX3_INO_ROOT) };
	int err = tree_create(vol);

	if (err)
		return err;
	attr_to_disk(&record.attr, &attr, 0);
	tree_edit_begin(vol);
	err = vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA ?
		apply_record(vol, TUX3_RECORD_ATTR_SET, &record, sizeof(record)) :
		tree_set(vol, &key, &record.attr, sizeof(record.attr));
	tree_edit_end(vol);
	vol->tree_inodes = 1;
	return err;
}

/* Write zeros over every place where an anchor may be, of a volume as large as the device before too. */
static int format_wipe(struct volume *vol, void *block)
{
	u64 sizes[2] = { vol->total_blocks << vol->block_shift, round_down(vol->dev->size_bytes, (u64)TUX3_ANCHOR_STRIDE) };
	struct io_wait wait;
	unsigned int n;
	int err;

	memset(block, 0, vol->block_size);
	io_wait_init(&wait);
	for (n = 0; n < 2 * TUX3_ANCHOR_SLOTS; n++)
		device_write(vol->dev, anchor_slot_offset(sizes[n / TUX3_ANCHOR_SLOTS], n % TUX3_ANCHOR_SLOTS) >>
			     vol->block_shift, block, 1, 0, &wait);
	device_kick(vol->dev);
	err = io_wait_finish(&wait);
	return err ? err : device_flush(vol->dev);
}

static int format_write_tree(struct volume *vol)
{
	struct map_write *map;
	struct node_buffer *node;
	struct io_wait wait;
	LIST_HEAD(nodes);
	LIST_HEAD(maps);
	u64 count;
	int err;

	io_wait_init(&wait);
	err = tree_place(vol);
	if (err)
		return err;
	err = balloc_snapshot(vol, 1, &maps);
	tree_edit_begin(vol);
	tree_snapshot(vol, &nodes, &count);
	tree_edit_end(vol);
	if (!err) {
		list_for_each_entry(node, &nodes, lru_link) {
			node_seal(vol, node->data);
			device_write(vol->dev, node->addr, node->data, 1, 0, &wait);
		}
		list_for_each_entry(map, &maps, link)
			device_write(vol->dev, map->addr, map->data, 1, 0, &wait);
		device_kick(vol->dev);
	}
	if (!err)
		err = io_wait_finish(&wait);
	else
		io_wait_finish(&wait);
	tree_edit_begin(vol);
	tree_snapshot_done(vol, &nodes, !err);
	tree_edit_end(vol);
	balloc_snapshot_done(vol, &maps, !err);
	return err ? err : device_flush(vol->dev);
}

/* The two copies of the first anchor: slots 0 and 2. */
static int format_write_anchors(struct volume *vol, void *block)
{
	struct disk_anchor *anchor = &vol->anchor;
	struct io_wait wait;
	unsigned int n;
	int err = 0;

	anchor->delta = cpu_to_le64(1);
	anchor->root_addr = cpu_to_le64(vol->tree.root_addr);
	anchor->root_birth = cpu_to_le64(vol->tree.root_birth);
	anchor->root_level = cpu_to_le32(vol->tree.root_level);
	anchor->log_addr = cpu_to_le64(vol->log.next_addr);
	anchor->log_after = cpu_to_le64(vol->log.after_addr);
	anchor->log_seq = cpu_to_le64(1);
	anchor->used_blocks = cpu_to_le64(atomic64_read(&vol->balloc.disk_used));
	anchor->inodes = cpu_to_le64(1);
	for (n = 0; n < TUX3_ANCHOR_SLOTS && !err; n += 2) {
		anchor->slot_offset = cpu_to_le64(anchor_slot_offset(vol->total_blocks << vol->block_shift, n));
		anchor_seal(anchor);
		memset(block, 0, vol->block_size);
		memcpy(block, anchor, sizeof(*anchor));
		io_wait_init(&wait);
		device_write(vol->dev, le64_to_cpu(anchor->slot_offset) >> vol->block_shift, block, 1, 0, &wait);
		device_kick(vol->dev);
		err = io_wait_finish(&wait);
	}
	return err ? err : device_flush(vol->dev);
}

static int format_parts(struct volume *vol, const struct format_options *opts)
{
	void *block = kvzalloc(vol->block_size, GFP_KERNEL);
	u32 len;
	int err = log_init(vol);

	vol->delta.applying = 1;
	if (!block)
		err = -ENOMEM;
	if (!err)
		err = balloc_init(vol, balloc_fixed_blocks(vol));
	if (!err)
		err = format_wipe(vol, block);
	if (!err)
		err = format_root(vol, opts);
	if (!err)
		err = format_write_tree(vol);
	if (!err)		/* after the free map was written: log blocks are not in it */
		err = balloc_alloc(vol, BALLOC_LOG, 0, 1, 1, &vol->log.next_addr, &len);
	if (!err)
		err = balloc_alloc(vol, BALLOC_LOG, vol->log.next_addr + 1, 1, 1, &vol->log.after_addr, &len);
	if (!err)
		err = format_write_anchors(vol, block);
	tree_discard(vol);
	log_exit(vol);
	if (vol->balloc.chunks)
		balloc_exit(vol);
	kvfree(block);
	return err;
}

int volume_format(struct tux3_device *dev, const struct format_options *opts, char *why, size_t why_size)
{
	struct volume *vol = kvzalloc(sizeof(*vol), GFP_KERNEL);
	int err;

	if (!vol) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	err = format_geometry(dev, opts, vol, why, why_size);
	if (err)
		goto out;
	dev->block_size = vol->block_size;
	get_random_bytes(&vol->id, sizeof(vol->id));
	if (!opts->no_data_csum)
		vol->feature_incompat |= TUX3_FEATURE_INCOMPAT_DATA_CSUM;
	if (opts->quota)
		vol->feature_ro_compat |= TUX3_FEATURE_RO_COMPAT_QUOTA;
	format_anchor(vol, opts);
	err = cache_init(vol, 1 << 20);
	if (!err) {
		tree_init(vol);
		err = format_parts(vol, opts);
		cache_exit(vol);
	}
	if (err == -EFBIG)
		snprintf(why, why_size, "%llu bytes are too many for a volume with blocks of %u bytes%s",
			 (unsigned long long)vol->total_blocks << vol->block_shift, vol->block_size,
			 vol->block_shift < TUX3_MAX_BLOCK_SHIFT ? "; larger blocks make more possible" : "");
	else if (err)
		snprintf(why, why_size, "the volume cannot be written (%s)", error_text(err));
	dev->block_size = 1u << TUX3_MIN_BLOCK_SHIFT;
out:
	kvfree(vol);
	return err;
}
