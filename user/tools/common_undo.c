/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an undo file says of its volume: which it is, and how it was left. */
#include <stdlib.h>
#include "common.h"
#include "core/format/anchor.h"
#include "core/device/device.h"
#include "core/open.h"
#include "user/env/undo_file.h"

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

int tool_undo_create(const char *path, struct tux3_device *dev, struct undo_file **file, char *why, size_t why_size)
{
	struct undo_left before;
	struct disk_anchor anchor;
	char ignored[256];

	tool_undo_left(dev, &before);
	if (volume_read_anchor(dev, &anchor, NULL, ignored, sizeof(ignored)))
		return undo_file_create(path, dev->size_bytes, NULL, 0, &before, file, why, why_size);
	return undo_file_create(path, dev->size_bytes, anchor.uuid, le64_to_cpu(anchor.volume_id), &before, file, why, why_size);
}

/*
 * Has nobody changed it since?  Whoever was stopped, when he saved or when he put back, left it as he found it, or on the way: then
 * its anchors and its log are no newer than they were.
 */
static bool undo_is_current(struct tux3_device *dev, const struct undo_file *file)
{
	const struct undo_left *known = file->complete ? &file->left : &file->header.before;
	struct undo_left now;

	tool_undo_left(dev, &now);
	if (file->complete && le32_to_cpu(file->header.state) == UNDO_IS_SAVED)
		return !memcmp(&now, known, sizeof(now));
	return le64_to_cpu(now.generation) <= le64_to_cpu(known->generation) &&
	       le64_to_cpu(now.delta) <= le64_to_cpu(known->delta);
}

int tool_undo_compare(struct tux3_device *dev, struct undo_file *file, u64 first)
{
	u8 *is = malloc(2 * UNDO_RECORD_MAX), *was = is + UNDO_RECORD_MAX;
	const struct undo_place *place;
	int err = is ? 0 : -ENOMEM;

	dev->block_size = UNDO_UNIT;
	for (place = file->places + first; place < file->places + file->count && !err; place++) {
		err = device_read(dev, place->offset / UNDO_UNIT, place->bytes / UNDO_UNIT, is) ?: undo_file_read(file, place, was);
		if (!err && memcmp(is, was, place->bytes))
			err = -ESTALE;
	}
	free(is);
	return err;
}

static bool undo_is_zeros(struct undo_file *file, const struct undo_place *place)
{
	u8 *was = malloc(UNDO_RECORD_MAX);
	bool zeros = !was || undo_file_read(file, place, was) || !memchr_inv(was, 0, place->bytes);

	free(was);
	return zeros;
}

/*
 * There was no anchor, and there is none: nothing else says which volume it is.  But if all was put back, all is where it was;
 * and if that was begun, what was saved last, as that is put back first.  Zeros say too little for more to be written.
 */
static bool undo_was_begun(struct tux3_device *dev, struct undo_file *file)
{
	u32 state = le32_to_cpu(file->header.state);

	if (file->header.volume_id || state == UNDO_IS_SAVED)
		return false;
	if (state == UNDO_IS_DONE || !file->count)	/* or nothing is to be put back */
		return !tool_undo_compare(dev, file, 0);
	return !undo_is_zeros(file, file->places + file->count - 1) && !tool_undo_compare(dev, file, file->count - 1);
}

static bool undo_has(const struct undo_file *file, u64 offset)
{
	u64 i;

	for (i = 0; i < file->count; i++)
		if (offset >= file->places[i].offset && offset - file->places[i].offset < file->places[i].bytes)
			return true;
	return false;
}

/*
 * Would an anchor stay that was written later?  It leads to a tree whose blocks are among what is put back: then it is neither the
 * old volume nor the new one.  The file was cut short, or the volume has been in use for a while.
 */
static bool undo_leaves_anchor(struct tux3_device *dev, const struct undo_file *file)
{
	const struct undo_left *before = &file->header.before;
	struct disk_anchor anchor;
	unsigned int n;
	char why[256];

	if (file->header.volume_id && !before->generation)	/* an earlier program did not say */
		return false;
	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++)
		if (!volume_read_anchor_slot(dev, n, &anchor, why, sizeof(why)) &&
		    le64_to_cpu(anchor.generation) > le64_to_cpu(before->generation) &&
		    !undo_has(file, le64_to_cpu(anchor.slot_offset)))
			return true;
	return false;
}

int tool_undo_match(struct tux3_device *dev, struct undo_file *file, bool force, const char *name,
		    char *why, size_t why_size)
{
	u64 bytes = le64_to_cpu(file->header.device_bytes);
	char is[FORMAT_MAX], was[FORMAT_MAX];
	struct disk_anchor anchor;
	struct undo_left now;
	char reason[256];
	int err;

	if (dev->size_bytes != bytes) {
		snprintf(why, why_size, "%.200s has %llu bytes, and %.200s is of one with %llu: nothing is put back", name,
			 (unsigned long long)dev->size_bytes, file->path, (unsigned long long)bytes);
		return -EINVAL;
	}
	if (force && undo_leaves_anchor(dev, file)) {
		snprintf(why, why_size,
			 "%.200s has an anchor that %.200s does not know, which is cut short, or it was used for long: nothing is put back",
			 name, file->path);
		return -ESTALE;
	}
	if (force)
		return 0;
	err = volume_read_anchor(dev, &anchor, NULL, reason, sizeof(reason));
	if (err && undo_was_begun(dev, file))
		return 0;
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
	if (le32_to_cpu(file->header.state) == UNDO_IS_DONE || undo_is_current(dev, file))
		return 0;
	tool_undo_left(dev, &now);
	if (file->complete && !memcmp(&now, &file->header.before, sizeof(now))) {
		snprintf(why, why_size, "%.200s is as it was before the repair that %.200s is of, which was of another copy: nothing is put back", name,
			 file->path);
		return -ESTALE;
	}
	snprintf(why, why_size, file->complete ? "%.200s was changed after %.200s was written: nothing is put back without -f" :
		 "%.200s is not as %.200s found it, which has no end, so it may have been changed since: nothing is put back without -f",
		 name, file->path);
	return -ESTALE;
}
