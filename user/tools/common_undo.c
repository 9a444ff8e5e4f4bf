/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an undo file says of its volume: which it is, and how it was left. */
#include "common.h"
#include "core/format/anchor.h"
#include "core/open.h"
#include "user/env/undo_file.h"

int tool_undo_create(const char *path, struct tux3_device *dev, struct undo_file **file, char *why, size_t why_size)
{
	struct disk_anchor anchor;
	char ignored[256];

	if (volume_read_anchor(dev, &anchor, NULL, ignored, sizeof(ignored)))
		return undo_file_create(path, dev->size_bytes, NULL, 0, file, why, why_size);
	return undo_file_create(path, dev->size_bytes, anchor.uuid, le64_to_cpu(anchor.volume_id), file, why, why_size);
}

void tool_undo_left(struct tux3_device *dev, struct undo_left *left)
{
	struct volume_options opts = { .read_only = true, .manual = true, .cache_bytes = CACHE_BYTES };
	struct disk_anchor anchor;
	struct volume *vol;
	unsigned int n;
	char why[256];
	u32 crc = ~0u;

	memset(left, 0, sizeof(*left));
	if (!volume_read_anchor(dev, &anchor, NULL, why, sizeof(why)))
		left->generation = anchor.generation;
	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++)
		if (!volume_read_anchor_slot(dev, n, &anchor, why, sizeof(why)))
			crc = crc32c(crc, &anchor, sizeof(anchor));
	left->anchors_crc = cpu_to_le32(crc);
	/* A mount may have left nothing but commits in the log. */
	if (volume_open(dev, NULL, &opts, &vol, why, sizeof(why)))
		return;
	left->delta = cpu_to_le64(vol->delta.committed);
	volume_close(vol);
}

int tool_undo_match(struct tux3_device *dev, const struct undo_file *file, bool force, const char *name,
		    char *why, size_t why_size)
{
	u64 bytes = le64_to_cpu(file->header.device_bytes);
	char is[FORMAT_MAX], was[FORMAT_MAX];
	struct disk_anchor anchor;
	struct undo_left left;
	char reason[256];
	int err;

	if (dev->size_bytes != bytes) {
		snprintf(why, why_size, "%.200s has %llu bytes, and %.200s is of one with %llu: nothing is put back", name,
			 (unsigned long long)dev->size_bytes, file->path, (unsigned long long)bytes);
		return -EINVAL;
	}
	if (force)
		return 0;
	err = volume_read_anchor(dev, &anchor, NULL, reason, sizeof(reason));
	if (err) {
		snprintf(why, why_size, "nothing says that %.200s is the volume that %.200s is of (%.160s): nothing is put back without -f",
			 name, file->path, reason);
		return -EINVAL;
	}
	if (file->header.volume_id && (anchor.volume_id != file->header.volume_id || memcmp(anchor.uuid, file->header.uuid, 16))) {
		snprintf(why, why_size, "%.200s is another volume (UUID %s) than %.200s is of (UUID %s): nothing is put back", name,
			 format_uuid(is, sizeof(is), anchor.uuid), file->path, format_uuid(was, sizeof(was), file->header.uuid));
		return -EINVAL;
	}
	if (!file->complete || le32_to_cpu(file->header.state) != UNDO_IS_SAVED)
		return 0;
	tool_undo_left(dev, &left);
	if (!memcmp(&left, &file->left, sizeof(left)))
		return 0;
	snprintf(why, why_size, "%.200s was changed after %.200s was written: nothing is put back without -f", name, file->path);
	return -ESTALE;
}
