/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Free maps: allocation groups between disk and memory.
 *
 * The fixed blocks of a volume are everything up to and including the slots of group 0, the first
 * two blocks of every other group (its slots) and the last 128 KiB (anchors 2 and 3).  In a last group
 * that is so short that all its blocks are fixed, slots and anchors may overlap: its slots are neither
 * read nor written.
 *
 * Which slot of a group counts?  The first snapshot with the group writes both slots, alike; each later one
 * writes the slot that is not current.  So once an anchor is durable, the groups that were ever written have
 * two whole slots, none newer than that anchor.  Only a unify that was cut off makes an exception, and the
 * log from the anchor on names all the groups that it wrote (GROUP_TOUCHED: see balloc.h).  Hence, on first load:
 *
 *			valid, delta <= mount_delta	valid, newer	ours, damaged	anything else
 *	in the log	the highest delta counts	left over	cut off		not written yet
 *	not in the log	the highest delta counts	damage		damage		damage, unless both are
 *
 * where a group in the log without a slot that counts, or another whose slots are both not ours, was never
 * written.  Damage is never taken for one of these: what an older slot says is free may be in use.  Such a
 * group is left alone.
 *
 * A left-over would count as soon as a later anchor overtakes its delta, and a slot that was cut off would
 * be damage as soon as the log is over.  So replay has all groups in the log written by the next snapshot.
 *
 * What is on the disk of a group never loaded since the mount was there at the mount: so the threshold is
 * the anchor's delta of that time.  Later loads of the same group ask for the slot that was current.
 *
 * Locking: balloc->lock, taken by the functions that balloc.h lists, held in all others.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/device/device.h"
#include "core/blocks/balloc.h"
#include "core/blocks/freemap.h"

#define MAP_TAIL_BYTES	(2 * TUX3_ANCHOR_STRIDE)	/* anchors 2 and 3 */
#define MAP_READS	8u			/* of slots that somebody else writes */
#define MAP_HEAD_BYTES	(3 * TUX3_ANCHOR_STRIDE)	/* boot area, anchors 0 and 1 */

/* ---- geometry ---- */

u64 balloc_group_start(struct volume *vol, u64 group)
{
	return group * vol->group_blocks;
}

u64 balloc_slot_addr(struct volume *vol, u64 group, unsigned int slot)
{
	if (!group)
		return (MAP_HEAD_BYTES >> vol->block_shift) + slot;
	return balloc_group_start(vol, group) + slot;
}

u32 group_length(struct volume *vol, u64 index)
{
	return min_t(u64, vol->group_blocks, vol->total_blocks - balloc_group_start(vol, index));
}

void group_fixed_bounds(struct volume *vol, u64 index, u32 *head, u32 *tail)
{
	u64 start = balloc_group_start(vol, index);
	u64 tail_addr = vol->total_blocks - (MAP_TAIL_BYTES >> vol->block_shift);
	u32 length = group_length(vol, index);

	*head = min_t(u64, length, balloc_slot_addr(vol, index, MAP_SLOTS) - start);
	*tail = tail_addr > start ? min_t(u64, length, tail_addr - start) : 0;
	*tail = max(*head, *tail);
}

static u32 range_overlap(u32 from, u32 to, u32 low, u32 high)
{
	from = max(from, low);
	to = min(to, high);
	return to > from ? to - from : 0;
}

u32 group_fixed_blocks(struct volume *vol, u64 index, u32 from, u32 len)
{
	u32 head, tail;

	group_fixed_bounds(vol, index, &head, &tail);
	return range_overlap(from, from + len, 0, head) +
	       range_overlap(from, from + len, tail, group_length(vol, index));
}

static bool group_has_map(struct volume *vol, u64 index)
{
	u32 length = group_length(vol, index);

	return group_fixed_blocks(vol, index, 0, length) < length;
}

bool balloc_is_fixed(struct volume *vol, u64 addr)
{
	/* What group_fixed_blocks() says of one block. */
	return addr < balloc_slot_addr(vol, addr / vol->group_blocks, MAP_SLOTS) ||
	       addr + (MAP_TAIL_BYTES >> vol->block_shift) >= vol->total_blocks;
}

bool balloc_first_fixed(struct volume *vol, u64 addr, u64 len, u64 *fixed)
{
	while (len) {
		u64 index = addr / vol->group_blocks;
		u32 from = addr % vol->group_blocks, count = min_t(u64, len, vol->group_blocks - from), head, tail;

		group_fixed_bounds(vol, index, &head, &tail);
		*fixed = from < head ? addr : addr + max(tail, from) - from;
		if (from < head || from + count > tail)
			return true;
		addr += count;
		len -= count;
	}
	return false;
}

u64 balloc_fixed_blocks(struct volume *vol)
{
	u64 last = (vol->total_blocks - 1) / vol->group_blocks;
	u64 count = 0, index;

	/* Only the first group and the last two differ from the others. */
	for (index = last; index + 2 > last; index--) {
		count += group_fixed_blocks(vol, index, 0, group_length(vol, index));
		if (!index)
			return count;
	}
	count += group_fixed_blocks(vol, 0, 0, vol->group_blocks);
	return count + MAP_SLOTS * index;
}

/* ---- slots ---- */

static u32 map_crc(struct volume *vol, const void *data)
{
	const u8 *bytes = data;
	const size_t at = offsetof(struct disk_map, crc);
	__le32 zero = 0;
	u32 crc;

	crc = crc32c(~0u, bytes, at);
	crc = crc32c(crc, &zero, sizeof(zero));
	return crc32c(crc, bytes + at + sizeof(zero), vol->block_size - at - sizeof(zero));
}

/*
 * 0: this block was written as that map, whole.  -ENOENT: nothing of this volume.  -EIO: it was meant to be.
 */
static int map_check_seal(struct volume *vol, const void *data, u64 addr, u64 group, char *why, size_t why_size)
{
	struct disk_map map;
	u32 crc;

	memcpy(&map, data, sizeof(map));
	if (le32_to_cpu(map.magic) != TUX3_MAP_MAGIC) {
		scnprintf(why, why_size, "magic 0x%x is not that of a free map", le32_to_cpu(map.magic));
		return le64_to_cpu(map.volume_id) == vol->id ? -EIO : -ENOENT;
	}
	if (le64_to_cpu(map.volume_id) != vol->id) {
		scnprintf(why, why_size, "belongs to volume 0x%llx, not to 0x%llx",
			  (unsigned long long)le64_to_cpu(map.volume_id), (unsigned long long)vol->id);
		return -ENOENT;
	}
	crc = map_crc(vol, data);
	if (le32_to_cpu(map.crc) != crc) {
		scnprintf(why, why_size, "checksum 0x%x, expected 0x%x", le32_to_cpu(map.crc), crc);
		return -EIO;
	}
	if (le64_to_cpu(map.addr) != addr || le64_to_cpu(map.group) != group) {
		scnprintf(why, why_size, "was written for group %llu at block %llu",
			  (unsigned long long)le64_to_cpu(map.group), (unsigned long long)le64_to_cpu(map.addr));
		return -EIO;
	}
	return 0;
}

/* The first clear bit in [from, to), or to. */
static u32 map_first_clear(const u8 *bits, u32 from, u32 to)
{
	while (from < to) {
		if (from % 64 == 0 && get_unaligned_le64(bits + from / 8) == U64_MAX)
			from += 64;
		else if (bits[from / 8] & 1u << from % 8)
			from++;
		else
			return from;
	}
	return to;
}

/* What a sealed map says must be possible for this volume. */
static int map_check_bits(struct volume *vol, const void *data, u64 group, char *why, size_t why_size)
{
	const struct disk_map *map = data;
	const u8 *bits = (const u8 *)data + sizeof(*map);
	u32 length = group_length(vol, group);
	u32 head, tail, bit, free = 0, claimed;

	if (memchr_inv((const u8 *)data + offsetof(struct disk_map, spare), 0, sizeof(map->spare))) {
		scnprintf(why, why_size, "spare bytes are not zero");
		return -EIO;
	}
	group_fixed_bounds(vol, group, &head, &tail);
	bit = map_first_clear(bits, 0, head);
	if (bit == head)
		bit = map_first_clear(bits, tail, length);
	if (bit != length) {
		scnprintf(why, why_size, "fixed block %llu is marked free",
			  (unsigned long long)(balloc_group_start(vol, group) + bit));
		return -EIO;
	}
	bit = map_first_clear(bits, length, vol->group_blocks);
	if (bit != vol->group_blocks) {
		scnprintf(why, why_size, "block %llu beyond the end of the volume is marked free",
			  (unsigned long long)(balloc_group_start(vol, group) + bit));
		return -EIO;
	}
	for (bit = 0; bit < vol->group_blocks; bit += 64) {
		unsigned long word = ~get_unaligned_le64(bits + bit / 8);

		free += bitmap_weight(&word, 64);
	}
	claimed = get_unaligned_le32((const u8 *)data + offsetof(struct disk_map, free));
	if (free != claimed) {
		scnprintf(why, why_size, "says %u blocks are free, marks %u so", claimed, free);
		return -EIO;
	}
	return 0;
}

int map_check(struct volume *vol, const void *data, u64 addr, u64 group, char *why, size_t why_size)
{
	if (map_check_seal(vol, data, addr, group, why, why_size))
		return -EIO;
	return map_check_bits(vol, data, group, why, why_size);
}

/* The bits are in place, as they are in memory. */
static void map_seal(struct volume *vol, u64 group, u64 addr, u64 delta, void *data)
{
	struct disk_map *map = data;
	__le64 *bits = (__le64 *)map->bits;
	u32 words = vol->group_blocks / 64, free = 0, i;

	for (i = 0; i < words; i++) {
		u64 word = *(u64 *)&bits[i];

		free += 64 - hweight64(word);
		bits[i] = cpu_to_le64(word);
	}
	memset(map, 0, sizeof(*map));
	map->magic = cpu_to_le32(TUX3_MAP_MAGIC);
	map->volume_id = cpu_to_le64(vol->id);
	map->addr = cpu_to_le64(addr);
	map->group = cpu_to_le64(group);
	map->delta = cpu_to_le64(delta);
	map->free = cpu_to_le32(free);
	map->crc = cpu_to_le32(map_crc(vol, data));
}

/* What was sealed is what reading will accept.  free: so many blocks are, by the books; or -1. */
static int map_check_ours(struct volume *vol, u64 group, const void *data, s64 free)
{
	u32 marked = get_unaligned_le32((const u8 *)data + offsetof(struct disk_map, free));
	char why[120];
	int err = map_check_bits(vol, data, group, why, sizeof(why));

	if (!err && free >= 0 && free != marked) {
		scnprintf(why, sizeof(why), "it marks %u blocks as free, there are %lld", marked, (long long)free);
		err = -EIO;
	}
	if (err)
		volume_warn(vol, "the free map of group %llu is not as it must be: %s; it is not written",
			    (unsigned long long)group, why);
	return err;
}

static u64 map_delta(const void *data)
{
	return get_unaligned_le64((const u8 *)data + offsetof(struct disk_map, delta));
}

/* ---- loading ---- */

struct balloc_info *group_info(struct volume *vol, u64 index)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_chunk **place = &balloc->chunks[index / CHUNK_GROUPS];
	u64 first = rounddown(index, CHUNK_GROUPS);
	u32 count = min_t(u64, CHUNK_GROUPS, balloc->group_count - first);

	lockdep_assert_held(&vol->balloc.lock);
	if (!*place) {
		*place = kvzalloc(sizeof(**place) + count * sizeof(struct balloc_info), GFP_COMMIT);
		if (!*place)
			return NULL;
		(*place)->count = count;
	}
	return &(*place)->info[index - first];
}

static struct balloc_group *group_create(struct volume *vol, u64 index, struct balloc_info *info)
{
	struct balloc_group *group = kzalloc(sizeof(*group), GFP_COMMIT);

	lockdep_assert_held(&vol->balloc.lock);
	if (!group || group_bitmaps_alloc(vol, group)) {
		kfree(group);
		return NULL;
	}
	INIT_LIST_HEAD(&group->link);
	INIT_LIST_HEAD(&group->unlogged_link);
	INIT_LIST_HEAD(&group->hot_link);
	group->info = info;
	group->chunk = vol->balloc.chunks[index / CHUNK_GROUPS];
	group->index = index;
	group->start = balloc_group_start(vol, index);
	group->blocks = group_length(vol, index);
	return group;
}

/* What a group without a map has in use. */
static void group_fill_fixed(struct volume *vol, struct balloc_group *group)
{
	u32 head, tail;

	group_fixed_bounds(vol, group->index, &head, &tail);
	bitmap_set(group->disk, 0, head);
	bitmap_set(group->disk, tail, vol->group_blocks - tail);
}

static void group_fill_bits(struct volume *vol, struct balloc_group *group, const void *data)
{
	const u8 *bits = (const u8 *)data + sizeof(struct disk_map);
	u32 i;

	for (i = 0; i < vol->group_blocks / BITS_PER_LONG; i++)
		group->disk[i] = get_unaligned_le64(bits + i * sizeof(u64));
}

/* The slots of such a group may be as a unify left them that was cut off. */
static bool group_in_log(const struct balloc *balloc, const struct balloc_info *info)
{
	return !balloc->log_over && (balloc->log_unread || info->in_log);
}

static int slot_damaged(u64 addr, const char *reason, char *why, size_t why_size)
{
	scnprintf(why, why_size, "its slot at block %llu was damaged or overwritten: %s",
		  (unsigned long long)addr, reason);
	return -EIO;
}

/* Which of the two slots in buf counts (or MAP_NONE)?  *stale: the other one is a left-over.  -EIO: damage. */
static int group_pick_slot(struct volume *vol, struct balloc_group *group, const void *buf, bool *stale,
			   char *why, size_t why_size)
{
	int pick = MAP_NONE, slot, strange = 0, damage = 0;
	char reason[100];

	for (slot = 0; slot < MAP_SLOTS; slot++) {
		const void *data = (const u8 *)buf + slot * vol->block_size;
		u64 addr = balloc_slot_addr(vol, group->index, slot);
		int err = map_check_seal(vol, data, addr, group->index, reason, sizeof(reason));

		if (!err && map_delta(data) > vol->balloc.mount_delta) {
			scnprintf(reason, sizeof(reason), "its delta %llu is newer than the anchor's, %llu",
				  (unsigned long long)map_delta(data), (unsigned long long)vol->balloc.mount_delta);
			*stale = true;
			err = -EIO;
		}
		strange += err == -ENOENT;
		if (err == -EIO || (err && !damage))
			damage = slot_damaged(addr, reason, why, why_size);
		if (!err && (pick == MAP_NONE || map_delta(data) > group->slot_delta)) {
			pick = slot;
			group->slot_delta = map_delta(data);
		}
	}
	if (damage && strange < MAP_SLOTS && !group_in_log(&vol->balloc, group->info))
		return damage;
	return pick;
}

/* For balloc_slots_whole(). */
static u32 group_slots_whole(struct volume *vol, u64 index, const struct balloc_info *info)
{
	const u32 all = (1u << MAP_SLOTS) - 1;

	if (!group_has_map(vol, index))
		return 0;
	if (info->state != GROUP_KNOWN)
		return group_in_log(&vol->balloc, info) ? 0 : all | BALLOC_SLOTS_OR_NONE;
	if (info->slot == MAP_NONE)
		return 0;
	if ((info->group && info->group->writing) || group_in_log(&vol->balloc, info))
		return 1u << info->slot;
	return all;
}

int balloc_slots_whole(struct volume *vol, u64 index, u32 *slots)
{
	struct balloc_info *info;

	mutex_lock(&vol->balloc.lock);
	info = group_info(vol, index);
	*slots = info ? group_slots_whole(vol, index, info) : 0;
	mutex_unlock(&vol->balloc.lock);
	return info ? 0 : -ENOMEM;
}

u32 balloc_slots_bad(struct volume *vol, u64 index, u32 slots, const void *buf, char *why, size_t why_size)
{
	u32 slot, strange = 0, bad = 0;

	for (slot = 0; slot < MAP_SLOTS; slot++) {
		const void *data = (const u8 *)buf + slot * vol->block_size;
		int err;

		if (!(slots & 1u << slot))
			continue;
		err = map_check_seal(vol, data, balloc_slot_addr(vol, index, slot), index, why, why_size);
		strange += err == -ENOENT;
		if (!err)
			err = map_check_bits(vol, data, index, why, why_size);
		if (err)
			bad |= 1u << slot;
	}
	return strange == MAP_SLOTS && slots & BALLOC_SLOTS_OR_NONE ? 0 : bad;
}

/* Both slots, read until they read the same again: then neither was being written. */
static int held_read_slots(struct volume *vol, u64 index, u8 *buf)
{
	size_t bytes = (size_t)MAP_SLOTS << vol->block_shift;
	u32 tries;
	int err;

	for (tries = 0; tries < MAP_READS; tries++) {
		err = device_read(vol->dev, balloc_slot_addr(vol, index, 0), MAP_SLOTS, buf + (tries & 1) * bytes);
		if (err)
			return -EIO;
		if (tries && !memcmp(buf, buf + bytes, bytes))
			return 0;
	}
	return -ESTALE;
}

/* Of two slots as old as the anchor the newer one; if one is newer than that, the other.  MAP_NONE: there never was one. */
static int held_pick_slot(struct volume *vol, u64 index, const u8 *buf)
{
	u64 anchor = le64_to_cpu(vol->anchor.delta), best = 0;
	int pick = MAP_NONE, slot, strange = 0;
	char why[100];

	for (slot = 0; slot < MAP_SLOTS; slot++) {
		const u8 *data = buf + slot * vol->block_size;
		int err = map_check_seal(vol, data, balloc_slot_addr(vol, index, slot), index, why, sizeof(why));

		strange += err == -ENOENT;
		if (err == -EIO)
			return -ESTALE;
		if (!err && map_delta(data) <= anchor && (pick == MAP_NONE || map_delta(data) > best)) {
			pick = slot;
			best = map_delta(data);
		}
	}
	return pick == MAP_NONE && strange < MAP_SLOTS ? -ESTALE : pick;
}

int balloc_read_held(struct volume *vol, u64 index, u8 *bits)
{
	u32 bytes = vol->block_size - sizeof(struct disk_map), head, tail, i;
	int slot = MAP_NONE, err = 0;
	u8 *buf;

	buf = kvmalloc((size_t)2 * MAP_SLOTS << vol->block_shift, GFP_KERNEL);
	if (!buf)
		return -ENOMEM;
	if (group_has_map(vol, index)) {
		err = held_read_slots(vol, index, buf);
		slot = err ? err : held_pick_slot(vol, index, buf);
	}
	if (slot >= 0 && slot != MAP_NONE) {
		memcpy(bits, buf + slot * vol->block_size + sizeof(struct disk_map), bytes);
	} else if (slot == MAP_NONE) {
		memset(bits, 0, bytes);
		group_fixed_bounds(vol, index, &head, &tail);
		for (i = 0; i < vol->group_blocks; i++)
			if (i < head || i >= tail)
				bits[i / 8] |= 1u << i % 8;
	}
	kvfree(buf);
	return min(slot, 0);
}

/* What to read of a group that is not in memory: at first both slots, later just the current one.  0: nothing. */
static u32 group_slots_to_read(struct volume *vol, u64 index, const struct balloc_info *info, u64 *addr)
{
	bool again = info->state == GROUP_KNOWN;

	if ((again && info->slot == MAP_NONE) || !group_has_map(vol, index))
		return 0;
	*addr = balloc_slot_addr(vol, index, again ? info->slot : 0);
	return again ? 1 : MAP_SLOTS;
}

/* Fill in a group from what was read of it.  The slot that counts, or -EIO. */
static int group_parse(struct volume *vol, struct balloc_group *group, const void *buf, u64 addr, bool *stale,
		       char *why, size_t why_size)
{
	struct balloc_info *info = group->info;
	const void *data = buf;
	char reason[100];
	int slot, err;

	if (info->state == GROUP_KNOWN) {
		slot = info->slot;
		if (map_check_seal(vol, buf, addr, group->index, reason, sizeof(reason)))
			return slot_damaged(addr, reason, why, why_size);
		group->slot_delta = map_delta(buf);
	} else {
		slot = group_pick_slot(vol, group, buf, stale, why, why_size);
		if (slot < 0)
			return slot;
		data = (const u8 *)buf + (slot != MAP_NONE ? slot * vol->block_size : 0);
	}
	if (slot == MAP_NONE) {
		group_fill_fixed(vol, group);
		return slot;
	}
	err = map_check_bits(vol, data, group->index, why, why_size);
	if (!err)
		group_fill_bits(vol, group, data);
	return err ? err : slot;
}

/* ready: what group_slots_to_read() says, read already; NULL: read it. */
static int group_read(struct volume *vol, struct balloc_group *group, const void *ready, bool *stale,
		      char *why, size_t why_size)
{
	u64 addr;
	u32 slots = group_slots_to_read(vol, group->index, group->info, &addr);
	void *buf;
	int err;

	lockdep_assert_held(&vol->balloc.lock);
	lockdep_assert_not_held(&vol->delta.inside);
	if (!slots) {
		group_fill_fixed(vol, group);
		return MAP_NONE;
	}
	if (ready)
		return group_parse(vol, group, ready, addr, stale, why, why_size);
	buf = kvmalloc((size_t)slots * vol->block_size, GFP_COMMIT);
	if (!buf)
		return -ENOMEM;
	if (READ_ONCE(vol->tree.editing))
		count_add(vol, TUX3_COUNT_READS_LOCKED, 1);
	err = device_read(vol->dev, addr, slots, buf);
	if (err) {
		scnprintf(why, why_size, "block %llu cannot be read (%s)", (unsigned long long)addr, error_text(err));
		err = err == -ENOMEM ? err : -EIO;
	} else {
		err = group_parse(vol, group, buf, addr, stale, why, why_size);
	}
	kvfree(buf);
	return err;
}

/* Groups in memory beyond this number are dropped if they are clean, else packed. */
static u32 groups_kept(struct volume *vol)
{
	if (vol->opts.groups_kept)
		return vol->opts.groups_kept;
	return max(GROUPS_KEPT_BYTES / (2 * vol->group_blocks / 8), GROUPS_KEPT_MIN);
}

/* Drop what can be read again, pack the rest.  Not the group that was used last. */
void group_evict(struct volume *vol)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group, *next;
	u64 keep = groups_kept(vol);

	lockdep_assert_held(&vol->balloc.lock);
	list_for_each_entry_safe(group, next, &balloc->clean, link) {
		/* However many cannot be dropped: what was read ahead stays until it is used. */
		if (!group->packed && (balloc->loaded - balloc->packed <= keep || balloc->clean_count <= keep / 2))
			break;
		if (group->needed <= READ_ONCE(vol->delta.committed))
			group_destroy(balloc, group);
	}
	group_pack_cold(vol, keep);
}

bool balloc_all_stay(struct volume *vol)
{
	return vol->balloc.group_count <= groups_kept(vol);
}

int balloc_need(struct volume *vol, u64 addr, u64 len, u64 delta)
{
	struct balloc *balloc = &vol->balloc;
	u64 index = addr / vol->group_blocks, last = (addr + len - 1) / vol->group_blocks;
	u64 most = groups_kept(vol) / 4 * 3;		/* there is room for others, too */
	struct balloc_group *group;
	int err = 0;

	if (!len || addr >= vol->total_blocks || len > vol->total_blocks - addr)
		return -EIO;
	mutex_lock(&balloc->lock);
	for (; index <= last && !err; index++) {
		err = balloc->clean_count > most ? -EAGAIN : group_get(vol, index, &group);
		if (!err)
			group->needed = max(group->needed, delta);
	}
	mutex_unlock(&balloc->lock);
	return err;
}

/* Is one that is KNOWN, and whose map could not be read again, among the bad_groups?  A full one misses nothing. */
static bool group_is_missed(const struct balloc_info *info)
{
	return info->given_up && info->free;
}

/* Bits are read: take the group into the books. */
static int group_adopt(struct volume *vol, struct balloc_group *group, int slot, char *why, size_t why_size)
{
	struct balloc_info *info = group->info;
	u32 free = vol->group_blocks - bitmap_weight(group->disk, vol->group_blocks);

	lockdep_assert_held(&vol->balloc.lock);
	if (info->state == GROUP_KNOWN && info->free != free) {
		scnprintf(why, why_size, "%u blocks are free, there were %u when it was dropped from memory",
			  free, info->free);
		return -EIO;
	}
	memcpy(group->busy, group->disk, vol->group_blocks / 8);
	if (info->state != GROUP_KNOWN) {
		if (info->state == GROUP_UNKNOWN)
			vol->balloc.unknown_groups--;
		else
			vol->balloc.bad_groups--;
		info->state = GROUP_KNOWN;
		info->slot = slot;
		info->free = free;
		placement_bound(group, free);
	} else if (unlikely(group_is_missed(info))) {
		vol->balloc.bad_groups--;
		placement_bound(group, free);
	}
	info->group = group;
	return 0;
}

/* Nothing is allocated there, nor is it tried for each allocation. */
static void group_give_up(struct volume *vol, u64 index, struct balloc_info *info, const char *why)
{
	struct balloc *balloc = &vol->balloc;

	lockdep_assert_held(&vol->balloc.lock);
	if (info->state == GROUP_UNKNOWN) {
		balloc->unknown_groups--;
		balloc->bad_groups++;
		info->state = GROUP_BAD;
	} else if (!info->given_up) {
		balloc->bad_groups += !!info->free;
		info->longest = 0;
	}
	info->given_up = true;
	volume_warn(vol, "free map of group %llu cannot be used: %s; no block of the group is allocated or freed until it is repaired",
		    (unsigned long long)index, why);
}

static int group_load(struct volume *vol, u64 index, struct balloc_info *info, const void *ready)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group = group_create(vol, index, info);
	bool stale = false;
	char why[200] = "";
	int slot, err;

	lockdep_assert_held(&vol->balloc.lock);
	if (!group)
		return -ENOMEM;
	slot = group_read(vol, group, ready, &stale, why, sizeof(why));
	err = slot < 0 ? slot : group_adopt(vol, group, slot, why, sizeof(why));
	if (err) {
		group_bitmaps_free(balloc, group);
		kfree(group);
		if (err != -ENOMEM)
			group_give_up(vol, index, info, why);
		return err;
	}
	info->given_up = false;
	group_evict(vol);
	WRITE_ONCE(balloc->loaded, balloc->loaded + 1);
	atomic64_inc(&balloc->group_loads);
	if (stale)
		group_mark_changed(balloc, group);
	else
		group_place(balloc, group);
	return 0;
}

int group_get(struct volume *vol, u64 index, struct balloc_group **group)
{
	struct balloc_info *info = group_info(vol, index);
	int err;

	lockdep_assert_held(&vol->balloc.lock);
	if (!info)
		return -ENOMEM;
	if (!info->group) {
		err = group_load(vol, index, info, NULL);
		if (err)
			return err;
	} else if (info->group->packed) {
		err = group_unpack(vol, info->group);
		if (err)
			return err;
		group_evict(vol);
	} else if (info->group->on == GROUP_ON_CLEAN) {
		list_move_tail(&info->group->link, &vol->balloc.clean);
	} else {
		list_move_tail(&info->group->hot_link, &vol->balloc.hot);
	}
	*group = info->group;
	return 0;
}

int group_renew(struct volume *vol, u64 index, struct balloc_group **group)
{
	struct balloc_info *info = group_info(vol, index);
	struct balloc *balloc = &vol->balloc;
	char why[200];

	lockdep_assert_held(&vol->balloc.lock);
	*group = info ? group_create(vol, index, info) : NULL;
	if (!*group)
		return -ENOMEM;
	group_fill_fixed(vol, *group);
	if (info->state == GROUP_KNOWN && !group_is_missed(info))	/* it was, and cannot be read again */
		balloc->bad_groups++;
	info->state = GROUP_BAD;
	info->given_up = false;
	group_adopt(vol, *group, MAP_NONE, why, sizeof(why));
	WRITE_ONCE(balloc->loaded, balloc->loaded + 1);
	group_mark_changed(balloc, *group);
	return 0;
}

/* ---- reading ahead ---- */

struct map_read {
	u64 index;
	u8 state, slot;		/* of the group when the read was planned */
};

/* How many slots are to be read of this group, and where?  One without a map costs no read and is loaded when it is needed. */
static u32 group_missing(struct volume *vol, u64 index, struct balloc_info **info, u64 *addr)
{
	lockdep_assert_held(&vol->balloc.lock);
	*info = index < vol->group_count ? group_info(vol, index) : NULL;
	if (!*info || (*info)->group || (*info)->state == GROUP_BAD)
		return 0;
	return group_slots_to_read(vol, index, *info, addr);
}

/* Only those that have something to be read. */
static u32 prefetch_missing(struct volume *vol, u64 *groups, u32 count)
{
	struct balloc_info *info;
	u32 i, n = 0;
	u64 addr;

	mutex_lock(&vol->balloc.lock);
	for (i = 0; i < count; i++)
		if (group_missing(vol, groups[i], &info, &addr))
			groups[n++] = groups[i];
	mutex_unlock(&vol->balloc.lock);
	return n;
}

static u32 prefetch_plan(struct volume *vol, const u64 *groups, u32 count, struct map_read *plan,
			 struct device_io *reads, u8 *buf)
{
	u32 i, n = 0;

	for (i = 0; i < count; i++) {
		struct balloc_info *info;
		u64 addr;
		u32 slots = group_missing(vol, groups[i], &info, &addr);

		if (!slots)
			continue;
		plan[n] = (struct map_read){ groups[i], info->state, info->slot };
		reads[n] = (struct device_io){ .addr = addr, .count = slots,
					       .data = buf + (size_t)n * MAP_SLOTS * vol->block_size };
		n++;
	}
	return n;
}

/* Is the group still as it was when the read was planned?  The checker may have loaded it meanwhile. */
static void prefetch_adopt(struct volume *vol, const struct map_read *plan, const struct device_io *read)
{
	struct balloc_info *info = group_info(vol, plan->index);

	lockdep_assert_held(&vol->balloc.lock);
	if (!read->err && info && !info->group && info->state == plan->state && info->slot == plan->slot)
		group_load(vol, plan->index, info, read->data);
}

static void prefetch_batch(struct volume *vol, const u64 *groups, u32 count, u8 *buf)
{
	struct device_io reads[DEVICE_READS_MAX];
	struct map_read plan[DEVICE_READS_MAX];
	u32 n, i;

	mutex_lock(&vol->balloc.lock);
	n = prefetch_plan(vol, groups, count, plan, reads, buf);
	mutex_unlock(&vol->balloc.lock);
	device_read_many(vol->dev, reads, n);
	mutex_lock(&vol->balloc.lock);
	for (i = 0; i < n; i++)
		prefetch_adopt(vol, &plan[i], &reads[i]);
	mutex_unlock(&vol->balloc.lock);
}

bool balloc_all_loaded(struct volume *vol)
{
	return READ_ONCE(vol->balloc.loaded) == vol->balloc.group_count;
}

u64 balloc_recovery_groups(struct volume *vol)
{
	return READ_ONCE(vol->balloc.changed_count) + READ_ONCE(vol->balloc.writing_count);
}

u64 balloc_recovery_bytes(struct volume *vol)
{
	return READ_ONCE(vol->balloc.packed_bytes);
}

u32 balloc_prefetch_limit(struct volume *vol)
{
	return groups_kept(vol) / 2;
}

void balloc_prefetch(struct volume *vol, u64 *groups, u32 count)
{
	u32 done, n;
	u8 *buf;

	count = prefetch_missing(vol, groups, count);
	if (!count)
		return;
	buf = kvmalloc((size_t)min(count, DEVICE_READS_MAX) * MAP_SLOTS << vol->block_shift, GFP_NOFS | __GFP_NOWARN);
	for (done = 0; buf && done < count; done += n) {
		n = min(count - done, DEVICE_READS_MAX);
		prefetch_batch(vol, groups + done, n, buf);
	}
	kvfree(buf);
}

/* ---- lists ---- */

void group_place(struct balloc *balloc, struct balloc_group *group)
{
	u8 on = GROUP_ON_CLEAN;

	lockdep_assert_held(&balloc->lock);
	if (group->changed)
		on = GROUP_ON_CHANGED;
	else if (group->extra || group->writing || !list_empty(&group->unlogged_link))
		on = GROUP_ON_PINNED;
	if (group->on == on)
		return;
	if (group->on == GROUP_ON_CHANGED)
		WRITE_ONCE(balloc->changed_count, balloc->changed_count - 1);
	if (on == GROUP_ON_CHANGED)
		WRITE_ONCE(balloc->changed_count, balloc->changed_count + 1);
	if (group->on == GROUP_ON_CLEAN)
		balloc->clean_count--;
	if (on == GROUP_ON_CLEAN)
		balloc->clean_count++;
	group->on = on;
	list_move_tail(&group->link, on == GROUP_ON_CHANGED ? &balloc->changed :
		       on == GROUP_ON_PINNED ? &balloc->pinned : &balloc->clean);
	if (on == GROUP_ON_CLEAN) {
		list_del_init(&group->hot_link);
		if (group->packed)	/* nobody is using it: the next to go */
			list_move(&group->link, &balloc->clean);
	} else if (!group->packed && list_empty(&group->hot_link)) {
		list_add_tail(&group->hot_link, &balloc->hot);
	}
}

void group_mark_changed(struct balloc *balloc, struct balloc_group *group)
{
	lockdep_assert_held(&balloc->lock);
	group->changed = true;
	if (!group->logged && list_empty(&group->unlogged_link))
		list_add_tail(&group->unlogged_link, &balloc->unlogged);
	group_place(balloc, group);
}

void group_destroy(struct balloc *balloc, struct balloc_group *group)
{
	if (group->on == GROUP_ON_CHANGED)
		WRITE_ONCE(balloc->changed_count, balloc->changed_count - 1);
	if (group->on == GROUP_ON_CLEAN)
		balloc->clean_count--;
	list_del(&group->link);
	list_del(&group->unlogged_link);
	list_del(&group->hot_link);
	group->info->group = NULL;
	WRITE_ONCE(balloc->loaded, balloc->loaded - 1);
	group_bitmaps_free(balloc, group);
	kfree(group);
}

u32 balloc_touched(struct volume *vol, u64 *first, u64 *bits)
{
	struct balloc *balloc = &vol->balloc;
	u32 from = TOUCHED_WORDS, to = 0, i;
	struct balloc_chunk *chunk;

	memset(bits, 0, TOUCHED_WORDS * sizeof(*bits));
	mutex_lock(&balloc->lock);
	if (list_empty(&balloc->unlogged))
		goto out;
	chunk = list_first_entry(&balloc->unlogged, struct balloc_group, unlogged_link)->chunk;
	for (i = 0; i < chunk->count; i++) {
		struct balloc_group *group = chunk->info[i].group;

		if (!group || list_empty(&group->unlogged_link))
			continue;
		*first = rounddown(group->index, CHUNK_GROUPS);
		bits[i / 64] |= 1ULL << i % 64;
		from = min(from, i / 64);
		to = i / 64 + 1;
		group->logged = group->changed;
		list_del_init(&group->unlogged_link);
		group_place(balloc, group);
	}
	*first += 64 * from;
	memmove(bits, bits + from, (to - from) * sizeof(*bits));
out:
	mutex_unlock(&balloc->lock);
	return to > from ? to - from : 0;
}

u64 balloc_touched_bytes(struct volume *vol)
{
	u64 records = DIV_ROUND_UP(vol->balloc.group_count, CHUNK_GROUPS);

	return records * (sizeof(struct disk_record) + sizeof(struct record_group)) +
	       DIV_ROUND_UP(vol->balloc.group_count, 64) * sizeof(__le64);
}

int balloc_note_in_log(struct volume *vol, u64 index)
{
	struct balloc_info *info;

	if (index >= vol->balloc.group_count)
		return 0;		/* balloc_touch() will complain */
	mutex_lock(&vol->balloc.lock);
	info = group_info(vol, index);
	if (info)
		info->in_log = true;
	mutex_unlock(&vol->balloc.lock);
	return info ? 0 : -ENOMEM;
}

void balloc_note_log_unread(struct volume *vol, bool unread)
{
	mutex_lock(&vol->balloc.lock);
	vol->balloc.log_unread = unread;
	mutex_unlock(&vol->balloc.lock);
}

int balloc_touch(struct volume *vol, u64 index)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group;
	int err;

	if (index >= balloc->group_count || !group_has_map(vol, index)) {
		volume_warn(vol, "the log names group %llu of %llu, which has no free map; not replayed",
			    (unsigned long long)index, (unsigned long long)balloc->group_count);
		return -EIO;
	}
	mutex_lock(&balloc->lock);
	err = group_get(vol, index, &group);
	if (!err) {
		/* The log from the anchor on has a record for it already. */
		group->logged = true;
		list_del_init(&group->unlogged_link);
		group_mark_changed(balloc, group);
	}
	mutex_unlock(&balloc->lock);
	return err;
}

int balloc_copy_group(struct volume *vol, u64 index, u8 *bits)
{
	struct balloc *balloc = &vol->balloc;
	struct balloc_group *group;
	u32 i;
	int err;

	if (index >= balloc->group_count)
		return -EIO;
	mutex_lock(&balloc->lock);
	err = group_get(vol, index, &group);
	for (i = 0; !err && i < vol->group_blocks / BITS_PER_LONG; i++)
		put_unaligned_le64(group->disk[i], bits + i * sizeof(u64));
	mutex_unlock(&balloc->lock);
	return err;
}

/* ---- unify ---- */

static void snapshot_free(struct list_head *writes)
{
	struct map_write *write, *next;

	list_for_each_entry_safe(write, next, writes, link) {
		kvfree(write->packed);
		kvfree(write->data);
		kfree(write);
	}
	INIT_LIST_HEAD(writes);
}

static void *map_bits(void *data)
{
	return (u8 *)data + sizeof(struct disk_map);
}

/* now: as a block that can be written, else packed. */
static int snapshot_add(struct volume *vol, struct balloc_group *group, u8 slot, u64 delta, bool now,
			struct list_head *writes)
{
	struct map_write *write = kzalloc(sizeof(*write), GFP_NOFS);

	lockdep_assert_held(&vol->balloc.lock);
	if (!write)
		return -ENOMEM;
	write->group = group->index;
	write->slot = slot;
	write->addr = balloc_slot_addr(vol, group->index, slot);
	list_add_tail(&write->link, writes);
	if (!now) {
		write->packed = group_copy_packed(vol, group);
		return write->packed ? 0 : -ENOMEM;
	}
	write->data = kvmalloc(vol->block_size, GFP_NOFS);
	if (!write->data)
		return -ENOMEM;
	group_copy_bits(vol, group, map_bits(write->data));
	map_seal(vol, write->group, write->addr, delta, write->data);
	return map_check_ours(vol, write->group, write->data, (s64)group->info->free + group->extra);
}

static u32 snapshot_at_once(struct volume *vol)
{
	u32 count = MAPS_AT_ONCE_BYTES >> vol->block_shift;

	return vol->opts.groups_kept ? min(vol->opts.groups_kept, count) : count;
}

/* Copies of each changed group, before anything is changed. */
static int snapshot_prepare(struct volume *vol, u64 delta, struct list_head *writes)
{
	u32 left = snapshot_at_once(vol);
	struct balloc_group *group;
	int slot, err;

	lockdep_assert_held(&vol->balloc.lock);
	list_for_each_entry(group, &vol->balloc.changed, link) {
		u8 current_slot = group->info->slot;

		if (current_slot != MAP_NONE && group->slot_delta >= delta) {
			volume_warn(vol, "group %llu has a free map for delta %llu, cannot write another for delta %llu",
				    (unsigned long long)group->index, (unsigned long long)group->slot_delta,
				    (unsigned long long)delta);
			return -EINVAL;
		}
		/* The slot that is not current; at first, both. */
		for (slot = 0; slot < MAP_SLOTS; slot++) {
			if (slot == current_slot)
				continue;
			err = snapshot_add(vol, group, slot, delta, left, writes);
			if (err)
				return err;
			left -= !!left;
		}
	}
	return 0;
}

static void snapshot_take(struct volume *vol, u64 delta, struct list_head *writes)
{
	struct balloc *balloc = &vol->balloc;
	struct map_write *write;

	lockdep_assert_held(&vol->balloc.lock);
	list_for_each_entry(write, writes, link) {
		struct balloc_group *group = group_info(vol, write->group)->group;

		if (!group->writing)	/* else the other slot of the same */
			WRITE_ONCE(balloc->writing_count, balloc->writing_count + 1);
		group->changed = false;
		group->logged = false;
		group->writing = true;
		group_place(balloc, group);
	}
	balloc->snapshot_delta = delta;
	balloc->writing = !list_empty(writes);
}

int balloc_snapshot(struct volume *vol, u64 delta, struct list_head *writes)
{
	struct balloc *balloc = &vol->balloc;
	int err = -EBUSY;

	INIT_LIST_HEAD(writes);
	mutex_lock(&balloc->lock);
	if (!WARN_ON_ONCE(balloc->writing))
		err = snapshot_prepare(vol, delta, writes);
	if (err)
		snapshot_free(writes);
	else
		snapshot_take(vol, delta, writes);
	mutex_unlock(&balloc->lock);
	return err;
}

/* Writes are in the order in which they are made: those that have data are followed by those that wait. */
int balloc_snapshot_more(struct volume *vol, struct list_head *writes)
{
	struct map_write *from, *to = list_first_entry(writes, struct map_write, link), *first;
	u64 delta = vol->balloc.snapshot_delta;
	int err;

	while (&to->link != writes && !to->packed)
		to = list_next_entry(to, link);
	first = to;
	list_for_each_entry(from, writes, link) {
		if (from == first)
			break;
		if (!from->data)
			continue;
		if (&to->link == writes) {
			kvfree(from->data);
			from->data = NULL;
			continue;
		}
		swap(from->data, to->data);
		group_bits_unpack(vol, to->packed, map_bits(to->data));
		map_seal(vol, to->group, to->addr, delta, to->data);
		err = map_check_ours(vol, to->group, to->data, -1);
		if (err)
			return err;
		kvfree(to->packed);
		to->packed = NULL;
		to = list_next_entry(to, link);
	}
	return &first->link != writes;
}

void balloc_snapshot_done(struct volume *vol, struct list_head *writes, bool ok)
{
	struct balloc *balloc = &vol->balloc;
	struct map_write *write;

	mutex_lock(&balloc->lock);
	list_for_each_entry(write, writes, link) {
		struct balloc_info *info = group_info(vol, write->group);
		struct balloc_group *group = info->group;

		if (group->writing)
			WRITE_ONCE(balloc->writing_count, balloc->writing_count - 1);
		group->writing = false;
		if (!ok) {
			group_mark_changed(balloc, group);
			continue;
		}
		/* Of two slots written alike the first, as group_pick_slot() has it. */
		if (info->slot == MAP_NONE || balloc->snapshot_delta > group->slot_delta) {
			info->slot = write->slot;
			group->slot_delta = balloc->snapshot_delta;
		}
		group_place(balloc, group);
	}
	if (ok)
		balloc->log_over = true;
	if (!list_empty(writes))
		balloc->writing = false;
	snapshot_free(writes);
	group_evict(vol);
	mutex_unlock(&balloc->lock);
}
