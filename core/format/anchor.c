// SPDX-License-Identifier: GPL-2.0-or-later
/* Anchors (other filesystems say superblocks): where they are, whether one is whole, and which of them counts. */
#include "core/error.h"
#include "core/device/device.h"
#include "core/format/anchor.h"

u64 anchor_slot_offset(u64 volume_bytes, unsigned int slot)
{
	if (slot < 2)
		return (slot + 1) * (u64)TUX3_ANCHOR_STRIDE;
	return volume_bytes - (TUX3_ANCHOR_SLOTS - slot) * (u64)TUX3_ANCHOR_STRIDE;
}

static u32 anchor_crc(const struct disk_anchor *anchor)
{
	struct disk_anchor copy = *anchor;

	copy.crc = 0;
	return crc32c(~0u, &copy, sizeof(copy));
}

void anchor_seal(struct disk_anchor *anchor)
{
	anchor->crc = cpu_to_le32(anchor_crc(anchor));
}

int anchor_check(const struct disk_anchor *anchor, u64 offset, char *why, size_t why_size)
{
	u32 shift = le32_to_cpu(anchor->block_shift);
	u64 total = le64_to_cpu(anchor->total_blocks);

	if (le64_to_cpu(anchor->magic) != TUX3_ANCHOR_MAGIC)
		snprintf(why, why_size, "there is no Tux3 volume here (no anchor)");
	else if (anchor_crc(anchor) != le32_to_cpu(anchor->crc))
		snprintf(why, why_size, "the anchor at byte %llu has checksum %08x instead of %08x",
			 (unsigned long long)offset, anchor_crc(anchor), le32_to_cpu(anchor->crc));
	else if (le32_to_cpu(anchor->version) > TUX3_FORMAT_VERSION) {
		snprintf(why, why_size, "the volume has format version %u, newer than this program knows (%u)",
			 le32_to_cpu(anchor->version), TUX3_FORMAT_VERSION);
		return -EOPNOTSUPP;
	} else if (le64_to_cpu(anchor->slot_offset) != offset)
		snprintf(why, why_size, "the anchor at byte %llu belongs at byte %llu", (unsigned long long)offset,
			 (unsigned long long)le64_to_cpu(anchor->slot_offset));
	else if (shift < TUX3_MIN_BLOCK_SHIFT || shift > TUX3_MAX_BLOCK_SHIFT ||
		 le32_to_cpu(anchor->group_blocks) != ((1u << shift) - sizeof(struct disk_map)) * 8 ||
		 total > (U64_MAX >> 1) >> shift || total << shift < TUX3_MIN_VOLUME_BYTES ||
		 (total << shift) % TUX3_ANCHOR_STRIDE || le32_to_cpu(anchor->root_level) > TUX3_MAX_LEVEL ||
		 le64_to_cpu(anchor->delta) >= S64_MAX)
		snprintf(why, why_size, "the anchor at byte %llu describes an impossible volume",
			 (unsigned long long)offset);
	else
		return 0;
	return le64_to_cpu(anchor->magic) != TUX3_ANCHOR_MAGIC ? -EINVAL : -EIO;
}

/* Those that follow it would come to the end of the numbers, or begin anew below it. */
static bool anchor_is_last(const struct disk_anchor *anchor)
{
	return le64_to_cpu(anchor->generation) >= TUX3_COUNT_MAX || le64_to_cpu(anchor->delta) >= TUX3_COUNT_MAX ||
	       le64_to_cpu(anchor->log_seq) > S64_MAX;
}

int anchor_check_copy(const struct disk_anchor *copy, u64 offset, u64 volume_id, u64 generation, char *why, size_t why_size)
{
	u64 found = le64_to_cpu(copy->generation);
	int err;

	if (generation <= 2 && !memchr_inv(copy, 0, sizeof(*copy)))	/* the first that is written there */
		return -ESTALE;
	err = anchor_check(copy, offset, why, why_size);
	if (err)
		return err;
	if (le64_to_cpu(copy->volume_id) != volume_id) {
		snprintf(why, why_size, "the anchor at byte %llu is of another volume", (unsigned long long)offset);
		return -EIO;
	}
	return found > generation ? 1 : found < generation ? -ESTALE : 0;
}

int anchor_write_copy(struct tux3_device *dev, const struct disk_anchor *anchor, u64 addr)
{
	struct disk_anchor *copy = kvzalloc(dev->block_size, GFP_KERNEL);
	struct io_wait wait;
	int err;

	if (!copy)
		return -ENOMEM;
	*copy = *anchor;
	copy->slot_offset = cpu_to_le64(addr * dev->block_size);
	anchor_seal(copy);
	io_wait_init(&wait);
	device_write(dev, addr, copy, 1, 0, &wait);
	device_kick(dev);
	err = io_wait_finish(&wait);
	kvfree(copy);
	return err;
}

/* An anchor at this byte; the device's block size is 4096 at this time, or that of the volume. */
static int anchor_read_at(struct tux3_device *dev, u64 offset, struct disk_anchor *anchor, char *why, size_t why_size)
{
	u8 *block = kvmalloc(dev->block_size, GFP_KERNEL);
	int err;

	if (!block) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	if (offset + dev->block_size > dev->size_bytes || offset > dev->size_bytes) {
		snprintf(why, why_size, "there is no Tux3 volume here (only %llu bytes)",
			 (unsigned long long)dev->size_bytes);
		err = -EINVAL;
	} else {
		err = device_read(dev, offset / dev->block_size, 1, block);
		if (err)
			snprintf(why, why_size, "the anchor at byte %llu cannot be read (%s)",
				 (unsigned long long)offset, error_text(err));
	}
	if (!err) {
		memcpy(anchor, block, sizeof(*anchor));
		err = anchor_check(anchor, offset, why, why_size);
		if (!err && anchor_is_last(anchor)) {
			snprintf(why, why_size, "the anchor at byte %llu has numbers that nobody has counted to", (unsigned long long)offset);
			err = -EIO;
		}
	}
	kvfree(block);
	return err;
}

/* Where slot n would be: the volume's size is in every anchor, else take the device's. */
int volume_read_anchor_slot(struct tux3_device *dev, unsigned int n, struct disk_anchor *anchor,
			    char *why, size_t why_size)
{
	u64 size = round_down(dev->size_bytes, (u64)TUX3_ANCHOR_STRIDE);
	struct disk_anchor first;
	unsigned int i;
	int err;

	if (n >= TUX3_ANCHOR_SLOTS)
		return -EINVAL;
	for (i = 0; i < 2 && n >= 2; i++) {
		err = anchor_read_at(dev, anchor_slot_offset(0, i), &first, why, why_size);
		if (err == -ENOMEM)
			return err;
		if (!err) {
			size = le64_to_cpu(first.total_blocks) << le32_to_cpu(first.block_shift);
			break;
		}
	}
	if (size < TUX3_MIN_VOLUME_BYTES) {
		snprintf(why, why_size, "there is no Tux3 volume here (only %llu bytes)",
			 (unsigned long long)dev->size_bytes);
		return -EINVAL;
	}
	return anchor_read_at(dev, anchor_slot_offset(size, n), anchor, why, why_size);
}

int volume_read_anchor(struct tux3_device *dev, struct disk_anchor *anchor, unsigned int *slot,
		       char *why, size_t why_size)
{
	struct disk_anchor found;
	unsigned int n, best = 0;
	int err = -EINVAL, this;
	char reason[160];

	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++) {
		this = volume_read_anchor_slot(dev, n, &found, reason, sizeof(reason));
		/* A newer program wrote here: what older anchors say does not hold.  Nor may it if this one was not looked at. */
		if (this == -EOPNOTSUPP || this == -ENOMEM) {
			strscpy(why, reason, why_size);
			return this;
		}
		if (this) {
			/* What is most worth saying: damage rather than absence, the first rather than later. */
			if (err && (n == 0 || (err == -EINVAL && this != -EINVAL))) {
				err = this;
				strscpy(why, reason, why_size);
			}
			continue;
		}
		if (err || le64_to_cpu(found.generation) > le64_to_cpu(anchor->generation)) {
			*anchor = found;
			best = n;
		}
		err = 0;
	}
	if (slot)
		*slot = best;
	return err;
}
