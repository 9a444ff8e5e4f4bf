/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Groups that have to stay in memory, packed.
 *
 * A group that the next snapshot writes, or with blocks that are busy for another reason than its map, cannot be dropped
 * and read again: what is in memory is not on the disk.  One commit can make as many of them as the volume has groups, and
 * so can the log that a mount replays.  So those not used for long keep their bitmaps as the lengths of runs, clear and
 * set in turn (seven bits in a byte, the lowest first, the eighth says that more follow); where that would be longer than the
 * bitmap, as that.  group_get() unpacks.  A file that fills a group leaves a few bytes of it.
 *
 * What packed groups take is counted (packed_bytes): a recovery makes the same groups, and would take as much.  Before
 * it becomes too much writers wait (delta.c).
 *
 * Locking: balloc->lock, held by all callers.
 */
#include "core/blocks/freemap.h"
#include "core/volume.h"

#define RUN_BYTES_MAX 5u	/* of the length of one run */

struct group_bits {
	u32 disk_bytes, busy_bytes;	/* as many as the bitmap has: that; fewer: runs.  busy_bytes 0: busy is disk */
	u8 data[];
};

u32 group_bitmap_bytes(struct volume *vol)
{
	return vol->group_blocks / 8;
}

/* out has room for as much as the bitmap takes.  Returns how much of it was used. */
static u32 bits_pack(struct volume *vol, const unsigned long *bits, u8 *out)
{
	u32 count = vol->group_blocks, at = 0, from = 0, to, len;
	bool set = false;

	for (; from < count && at + RUN_BYTES_MAX < group_bitmap_bytes(vol); from = to, set = !set) {
		to = set ? find_next_zero_bit(bits, count, from) : find_next_bit(bits, count, from);
		for (len = to - from; len > 127; len >>= 7)
			out[at++] = len | 128;
		out[at++] = len;
	}
	if (from >= count)
		return at;
	memcpy(out, bits, group_bitmap_bytes(vol));
	return group_bitmap_bytes(vol);
}

static void bits_unpack(struct volume *vol, const u8 *in, u32 bytes, unsigned long *bits)
{
	u32 at = 0, from = 0, len, shift;
	bool set = false;

	if (bytes == group_bitmap_bytes(vol)) {
		memcpy(bits, in, bytes);
		return;
	}
	memset(bits, 0, group_bitmap_bytes(vol));
	for (; at < bytes; from += len, set = !set) {
		len = 0;
		for (shift = 0; in[at] & 128; shift += 7)
			len |= (in[at++] & 127u) << shift;
		len |= (u32)in[at++] << shift;
		if (set)
			bitmap_set(bits, from, len);
	}
}

/* busy NULL: it is disk.  NULL: no memory. */
static struct group_bits *bits_create(struct volume *vol, const unsigned long *disk, const unsigned long *busy)
{
	struct balloc *balloc = &vol->balloc;
	struct group_bits *packed;
	u32 disk_bytes, busy_bytes;

	if (!balloc->scratch)
		balloc->scratch = kvmalloc(2 * group_bitmap_bytes(vol), GFP_COMMIT | __GFP_NOWARN);
	if (!balloc->scratch)
		return NULL;
	disk_bytes = bits_pack(vol, disk, balloc->scratch);
	busy_bytes = busy ? bits_pack(vol, busy, balloc->scratch + disk_bytes) : 0;
	packed = kvmalloc(sizeof(*packed) + disk_bytes + busy_bytes, GFP_COMMIT | __GFP_NOWARN);
	if (!packed)
		return NULL;
	packed->disk_bytes = disk_bytes;
	packed->busy_bytes = busy_bytes;
	memcpy(packed->data, balloc->scratch, disk_bytes + busy_bytes);
	return packed;
}

static u64 group_packed_bytes(const struct balloc_group *group)
{
	return sizeof(*group) + sizeof(*group->packed) + group->packed->disk_bytes + group->packed->busy_bytes;
}

/* Of the bitmaps, where they are. */
int group_bitmaps_alloc(struct volume *vol, struct balloc_group *group)
{
	lockdep_assert_held(&vol->balloc.lock);
	group->disk = kvzalloc(2 * group_bitmap_bytes(vol), GFP_COMMIT);
	if (!group->disk)
		return -ENOMEM;
	group->busy = group->disk + vol->group_blocks / BITS_PER_LONG;
	return 0;
}

static void group_forget_packed(struct balloc *balloc, struct balloc_group *group)
{
	WRITE_ONCE(balloc->packed_bytes, balloc->packed_bytes - group_packed_bytes(group));
	balloc->packed--;
	kvfree(group->packed);
	group->packed = NULL;
}

void group_bitmaps_free(struct balloc *balloc, struct balloc_group *group)
{
	if (group->packed)
		group_forget_packed(balloc, group);
	kvfree(group->disk);
	group->disk = group->busy = NULL;
}

/* False: no memory, it stays as it is. */
static bool group_pack(struct volume *vol, struct balloc_group *group)
{
	struct balloc *balloc = &vol->balloc;

	lockdep_assert_held(&vol->balloc.lock);
	group->packed = bits_create(vol, group->disk, group->extra ? group->busy : NULL);
	if (!group->packed)
		return false;
	kvfree(group->disk);
	group->disk = group->busy = NULL;
	list_del_init(&group->hot_link);
	balloc->packed++;
	WRITE_ONCE(balloc->packed_bytes, balloc->packed_bytes + group_packed_bytes(group));
	return true;
}

int group_unpack(struct volume *vol, struct balloc_group *group)
{
	struct group_bits *packed = group->packed;

	lockdep_assert_held(&vol->balloc.lock);
	if (!packed)
		return 0;
	if (group_bitmaps_alloc(vol, group))
		return -ENOMEM;
	bits_unpack(vol, packed->data, packed->disk_bytes, group->disk);
	if (packed->busy_bytes)
		bits_unpack(vol, packed->data + packed->disk_bytes, packed->busy_bytes, group->busy);
	else
		memcpy(group->busy, group->disk, group_bitmap_bytes(vol));
	group_forget_packed(&vol->balloc, group);
	if (group->on != GROUP_ON_CLEAN)
		list_add_tail(&group->hot_link, &vol->balloc.hot);
	else			/* it was the next to go */
		list_move_tail(&group->link, &vol->balloc.clean);
	return 0;
}

/* Of those that cannot be dropped, the ones used last stay as they are. */
void group_pack_cold(struct volume *vol, u64 keep)
{
	struct balloc *balloc = &vol->balloc;

	lockdep_assert_held(&vol->balloc.lock);
	/* Others may have to stay as they are, but the one that was used last does, too. */
	while (balloc->loaded - balloc->packed > keep && !list_empty(&balloc->hot) && !list_is_singular(&balloc->hot))
		if (!group_pack(vol, list_first_entry(&balloc->hot, struct balloc_group, hot_link)))
			return;
}

/* ---- copies of the disk bits ---- */

struct group_bits *group_copy_packed(struct volume *vol, const struct balloc_group *group)
{
	struct group_bits *copy;
	size_t size;

	lockdep_assert_held(&vol->balloc.lock);
	if (!group->packed)
		return bits_create(vol, group->disk, NULL);
	size = sizeof(*copy) + group->packed->disk_bytes;
	copy = kvmalloc(size, GFP_COMMIT | __GFP_NOWARN);
	if (!copy)
		return NULL;
	memcpy(copy, group->packed, size);
	copy->busy_bytes = 0;
	return copy;
}

void group_bits_unpack(struct volume *vol, const struct group_bits *packed, unsigned long *bits)
{
	bits_unpack(vol, packed->data, packed->disk_bytes, bits);
}

void group_copy_bits(struct volume *vol, const struct balloc_group *group, unsigned long *bits)
{
	lockdep_assert_held(&vol->balloc.lock);
	if (group->packed)
		group_bits_unpack(vol, group->packed, bits);
	else
		memcpy(bits, group->disk, group_bitmap_bytes(vol));
}
