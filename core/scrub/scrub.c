// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Scrub: portions and their cursor; anchors, log, free maps.  See scrub.h.
 *
 * What lies at a fixed place and is written again, as anchors and maps, is looked at up to SCRUB_LOOKS times: only if twice no
 * anchor was made from before the look to after it, and it was to be whole all the time, it is a problem.
 *
 * Locking: commit_mutex and balloc->lock while numbers are copied, nothing across I/O.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/delta/delta.h"
#include "core/device/device.h"
#include "core/format/anchor.h"
#include "core/log/log_read.h"
#include "core/inode/path.h"
#include "core/scrub/scrub.h"
#include "core/scrub/scrub_internal.h"

#define CURSOR_MAGIC	0x6373u
#define LOG_BATCH	32u

/* tux3_ioc_scrub.cursor; all zeros: the beginning. */
struct scrub_cursor {
	__le16 magic;
	__u8 phase;
	__u8 spare;
	__le32 skip;
	__le64 high, low;
	__le64 volume_id;
};
static_assert(sizeof(struct scrub_cursor) == TUX3_SCRUB_CURSOR);
static_assert(sizeof(struct tux3_ioc_scrub) < 16384 && sizeof(struct tux3_ioc_scrub) % 8 == 0);

/* ---- reading, counting, telling ---- */

void scrub_read_many(struct scrub *scrub, struct device_io *reads, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		scrub->out->bytes_read += (u64)reads[i].count << scrub->vol->block_shift;
	device_read_media(scrub->vol->dev, reads, count);
}

int scrub_read(struct scrub *scrub, u64 addr, u32 count, void *data)
{
	struct device_io read = { .addr = addr, .count = count, .data = data };

	scrub_read_many(scrub, &read, 1);
	return read.err;
}

bool scrub_has_room(const struct scrub *scrub)
{
	return scrub->out->problem_count < TUX3_SCRUB_PROBLEMS;
}

u64 scrub_left(const struct scrub *scrub)
{
	return scrub->out->budget_bytes - min(scrub->out->budget_bytes, scrub->out->bytes_read + scrub->memory_bytes);
}

bool scrub_is_over(const struct scrub *scrub)
{
	cond_resched();
	return !scrub_left(scrub) || fatal_signal_pending(current);
}

void scrub_done(struct scrub *scrub, u64 blocks, u64 *counter)
{
	*counter += blocks;
	scrub->out->bytes_done += blocks << scrub->vol->block_shift;
	count_add(scrub->vol, TUX3_COUNT_SCRUBBED_BLOCKS, blocks);
}

/* Does it follow the last one, in the same file and on the disk? */
static bool problem_continues(const struct scrub *scrub, const struct tux3_ioc_scrub_problem *problem)
{
	const struct tux3_ioc_scrub_problem *last = &scrub->out->problem[scrub->out->problem_count - 1];

	return scrub->out->problem_count && problem->kind == TUX3_SCRUB_DATA && last->kind == problem->kind &&
	       last->flags == problem->flags && last->ino == problem->ino && last->addr + last->count == problem->addr &&
	       last->offset + (last->count << scrub->vol->block_shift) == problem->offset;
}

void scrub_problem(struct scrub *scrub, const struct tux3_ioc_scrub_problem *problem)
{
	struct tux3_ioc_scrub *out = scrub->out;
	struct tux3_ioc_scrub_problem *to;

	if (problem_continues(scrub, problem)) {
		out->problem[out->problem_count - 1].count += problem->count;
		return;
	}
	if (WARN_ON_ONCE(!scrub_has_room(scrub)))
		return;
	to = &out->problem[out->problem_count++];
	*to = *problem;
	strscpy(to->why, scrub->why, sizeof(to->why));
	if (problem->ino && (problem->kind != TUX3_SCRUB_NODE || problem->ino == problem->ino_last))
		path_first_copy(scrub->vol, problem->ino, to->path, sizeof(to->path));
	count_add(scrub->vol, TUX3_COUNT_SCRUB_PROBLEMS, 1);
}

static u64 anchors_made(struct scrub *scrub)
{
	return atomic64_read(&scrub->vol->counters[TUX3_COUNT_UNIFIES]);
}

static void why_unreadable(struct scrub *scrub, int err)
{
	snprintf(scrub->why, sizeof(scrub->why), "the device failed to read it (%s)", error_text(err));
}

/* ---- anchors ---- */

/* The anchor that counts.  -EINTR: killed. */
static int anchor_now(struct scrub *scrub, u64 *generation, unsigned int *slot)
{
	struct volume *vol = scrub->vol;

	if (delta_lock_killable(vol))
		return -EINTR;
	*generation = le64_to_cpu(vol->anchor.generation);
	*slot = vol->anchor_slot;
	delta_unlock(vol);
	return 0;
}

/*
 * Is there what belongs there?  One copy may be older than the other as long as this mount has made no anchor: then the power
 * failed between the two.
 */
static int anchor_look(struct scrub *scrub, u64 addr, u64 generation)
{
	struct volume *vol = scrub->vol;
	struct disk_anchor anchor;
	int err = scrub_read(scrub, addr, 1, scrub->again);

	if (err) {
		why_unreadable(scrub, err);
		return -EREMOTEIO;
	}
	memcpy(&anchor, scrub->again, sizeof(anchor));
	err = anchor_check_copy(&anchor, addr << vol->block_shift, vol->id, generation, scrub->why, sizeof(scrub->why));
	if (!err || (err == -ESTALE && !anchors_made(scrub)))
		return 0;
	if (err == 1 || err == -ESTALE)
		snprintf(scrub->why, sizeof(scrub->why), "it has generation %llu instead of %llu",
			 le64_to_cpu(anchor.generation), (unsigned long long)generation);
	return err < 0 ? err : -EIO;
}

/* One of the two copies: 0 at the beginning of the volume, 1 at its end. */
static int scrub_anchor(struct scrub *scrub, unsigned int copy)
{
	struct volume *vol = scrub->vol;
	struct tux3_ioc_scrub_problem problem = { .kind = TUX3_SCRUB_ANCHOR, .count = 1 };
	u64 generation, after = 0;
	unsigned int slot, look, bad = 0;
	int err = anchor_now(scrub, &generation, &slot), wrong;

	for (look = 0; !err && look < SCRUB_LOOKS && bad < 2; look++) {
		problem.addr = anchor_slot_offset(vol->total_blocks << vol->block_shift, (slot & 1) + 2 * copy) >> vol->block_shift;
		wrong = anchor_look(scrub, problem.addr, generation);
		problem.flags = wrong == -EREMOTEIO ? TUX3_SCRUB_UNREADABLE : 0;
		if (!wrong)
			break;
		err = anchor_now(scrub, &after, &slot);
		bad += after == generation;
		generation = after;
	}
	if (!err && bad == 2)
		scrub_problem(scrub, &problem);
	if (!err)
		scrub_done(scrub, 1, &scrub->out->nodes);
	return err;
}

static int scrub_anchors(struct scrub *scrub)
{
	for (; scrub->at.low < 2; scrub->at.low++) {
		int err = scrub_is_over(scrub) ? 1 : scrub_anchor(scrub, scrub->at.low);

		if (err)
			return err;
	}
	return 0;
}

/* ---- the log ---- */

/* What the log has now, from block number `from` on. */
struct log_look {
	u64 generation;		/* of the anchor that it begins behind */
	u64 first, end;		/* the numbers that its blocks may have */
	u64 addr[LOG_BATCH];
	u32 count;
};

static void log_look_add(struct log_look *look, const struct range_list *list, u64 *from)
{
	u32 i;
	u64 n;

	for (i = 0; i < list->count && look->count < LOG_BATCH; i++) {
		u64 skip = min(*from, list->ranges[i].len);

		*from -= skip;
		for (n = skip; n < list->ranges[i].len && look->count < LOG_BATCH; n++)
			look->addr[look->count++] = list->ranges[i].addr + n;
	}
}

static int log_look(struct scrub *scrub, struct log_look *look, u64 from)
{
	struct volume *vol = scrub->vol;

	if (delta_lock_killable(vol))
		return -EINTR;
	look->generation = le64_to_cpu(vol->anchor.generation);
	look->first = le64_to_cpu(vol->anchor.log_seq);
	look->end = vol->log.next_seq;
	look->count = 0;
	log_look_add(look, &vol->log.old_blocks, &from);
	log_look_add(look, &vol->log.blocks, &from);
	delta_unlock(vol);
	return volume_error(vol) ? -EIO : 0;
}

static bool log_block_good(struct scrub *scrub, const struct log_look *look, u64 addr, const void *data)
{
	const struct disk_log *block = data;
	u64 seq = le64_to_cpu(block->seq);

	if (!log_block_whole(scrub->vol, block, addr, U64_MAX))
		snprintf(scrub->why, sizeof(scrub->why), "it is not a whole block of the log");
	else if (seq < look->first || seq >= look->end)
		snprintf(scrub->why, sizeof(scrub->why), "it is block number %llu of the log, which has numbers from %llu to %llu",
			 (unsigned long long)seq, (unsigned long long)look->first, (unsigned long long)look->end - 1);
	else
		return true;
	return false;
}

/* The block that is number `index` was not as it should be. */
static int log_again(struct scrub *scrub, u64 index, u64 addr)
{
	struct tux3_ioc_scrub_problem problem = { .kind = TUX3_SCRUB_LOG, .addr = addr, .count = 1 };
	struct log_look *look = kmalloc(sizeof(*look), GFP_KERNEL);
	u64 generation;
	int err = look ? log_look(scrub, look, index) : -ENOMEM;

	if (err || look->generation != scrub->at.high || !look->count || look->addr[0] != addr)
		goto out;
	generation = look->generation;
	err = scrub_read(scrub, addr, 1, scrub->again);
	if (err) {
		problem.flags = TUX3_SCRUB_UNREADABLE;
		why_unreadable(scrub, err);
	} else if (log_block_good(scrub, look, addr, scrub->again)) {
		goto out;
	}
	err = log_look(scrub, look, index);
	if (!err && look->generation == generation)
		scrub_problem(scrub, &problem);
out:
	kfree(look);
	return err;
}

/* One batch.  1: the portion ends; 0: the log does; -EAGAIN: there may be more; -errno. */
static int log_batch(struct scrub *scrub, struct log_look *look)
{
	struct device_io reads[LOG_BATCH];
	u32 shift = scrub->vol->block_shift, i, count;
	int err = log_look(scrub, look, scrub->at.low);

	if (err)
		return err;
	if (!scrub->at.high)
		scrub->at.high = look->generation;
	/* Since there is another anchor, what was not looked at yet is free. */
	if (!look->count || look->generation != scrub->at.high)
		return 0;
	count = min_t(u64, min(look->count, scrub->buffer_blocks), max(scrub_left(scrub) >> shift, (u64)1));
	for (i = 0; i < count; i++)
		reads[i] = (struct device_io){ look->addr[i], 1, 0, scrub->buffer + ((size_t)i << shift) };
	scrub_read_many(scrub, reads, count);
	for (i = 0; i < count; i++, scrub->at.low++) {
		if (!scrub_has_room(scrub))
			return 1;
		if (reads[i].err || !log_block_good(scrub, look, look->addr[i], reads[i].data))
			err = log_again(scrub, scrub->at.low, look->addr[i]);
		if (err)
			return err;
		scrub_done(scrub, 1, &scrub->out->log_blocks);
	}
	return -EAGAIN;
}

static int scrub_log(struct scrub *scrub)
{
	struct log_look *look = kmalloc(sizeof(*look), GFP_KERNEL);
	int err = look ? -EAGAIN : -ENOMEM;

	while (err == -EAGAIN)
		err = scrub_is_over(scrub) || !scrub_has_room(scrub) ? 1 : log_batch(scrub, look);
	kfree(look);
	return err;
}

/* ---- free maps ---- */

/* Which of these slots (bits) are not as they should be?  Both are read. */
static u32 map_look(struct scrub *scrub, u64 group, u32 slots, u32 *unreadable)
{
	struct volume *vol = scrub->vol;
	struct device_io reads[2];
	u32 i;

	*unreadable = 0;
	for (i = 0; i < 2; i++)
		reads[i] = (struct device_io){ balloc_slot_addr(vol, group, i), 1, 0,
					       scrub->buffer + ((size_t)i << vol->block_shift) };
	scrub_read_many(scrub, reads, 2);
	for (i = 0; i < 2; i++) {
		if (reads[i].err) {
			*unreadable |= slots & 1u << i;
			why_unreadable(scrub, reads[i].err);
			memset(reads[i].data, 0, vol->block_size);
		}
	}
	return *unreadable | balloc_slots_bad(vol, group, slots & ~*unreadable, scrub->buffer, scrub->why, sizeof(scrub->why));
}

static void map_problems(struct scrub *scrub, u64 group, u32 bad, u32 unreadable)
{
	struct tux3_ioc_scrub_problem problem = { .kind = TUX3_SCRUB_MAP, .offset = group, .count = 1 };
	u32 i;

	for (i = 0; i < 2; i++) {
		if (!(bad & 1u << i))
			continue;
		problem.addr = balloc_slot_addr(scrub->vol, group, i);
		problem.flags = unreadable & 1u << i ? TUX3_SCRUB_UNREADABLE : 0;
		scrub_problem(scrub, &problem);
	}
}

static int scrub_group(struct scrub *scrub, u64 group)
{
	struct volume *vol = scrub->vol;
	u32 slots, bad = 0, unreadable = 0, look, sure;
	u64 made;
	int err = 0;

	for (look = 0, sure = 0; look < SCRUB_LOOKS && sure < 2; look++) {
		made = anchors_made(scrub);
		err = balloc_slots_whole(vol, group, &slots);
		if (err || !slots)
			return err;
		bad = map_look(scrub, group, slots, &unreadable);
		if (!bad)
			break;
		err = balloc_slots_whole(vol, group, &slots);
		if (err)
			return err;
		bad &= slots;
		/* Without an anchor in between, only slots that are no longer to be whole now were written. */
		sure += bad && made == anchors_made(scrub);
	}
	if (sure == 2)
		map_problems(scrub, group, bad, unreadable);
	scrub_done(scrub, (slots & 1) + (slots >> 1 & 1), &scrub->out->maps);
	return 0;
}

static int scrub_maps(struct scrub *scrub)
{
	int err;

	for (; scrub->at.low < scrub->vol->group_count; scrub->at.low++) {
		if (scrub_is_over(scrub) || scrub->out->problem_count + 2 > TUX3_SCRUB_PROBLEMS)
			return 1;
		err = scrub_group(scrub, scrub->at.low);
		if (err)
			return err;
	}
	return 0;
}

/* ---- a portion ---- */

static int cursor_load(struct scrub *scrub)
{
	struct scrub_cursor cursor;

	memcpy(&cursor, scrub->out->cursor, sizeof(cursor));
	if (!memchr_inv(&cursor, 0, sizeof(cursor)))
		return 0;
	if (le16_to_cpu(cursor.magic) != CURSOR_MAGIC || cursor.phase > SCRUB_PHASES || cursor.spare)
		return -EINVAL;
	if (le64_to_cpu(cursor.volume_id) != scrub->vol->id)
		return -ESTALE;
	scrub->phase = cursor.phase;
	scrub->skip = le32_to_cpu(cursor.skip);
	scrub->at = (struct node_key){ le64_to_cpu(cursor.high), le64_to_cpu(cursor.low) };
	return 0;
}

static void cursor_store(struct scrub *scrub)
{
	struct scrub_cursor cursor = {
		.magic = cpu_to_le16(CURSOR_MAGIC), .phase = scrub->phase, .skip = cpu_to_le32(scrub->skip),
		.high = cpu_to_le64(scrub->at.high), .low = cpu_to_le64(scrub->at.low),
		.volume_id = cpu_to_le64(scrub->vol->id),
	};

	memcpy(scrub->out->cursor, &cursor, sizeof(cursor));
}

static int portion_init(struct scrub *scrub, struct volume *vol, struct tux3_ioc_scrub *out)
{
	const size_t in = offsetof(struct tux3_ioc_scrub, nodes);

	scrub->vol = vol;
	scrub->out = out;
	if (out->flags || memchr_inv(out->spare, 0, sizeof(out->spare)) || !out->budget_bytes)
		return -EINVAL;
	memset((u8 *)out + in, 0, sizeof(*out) - in);
	out->bytes_all = atomic64_read(&vol->balloc.disk_used) - balloc_fixed_blocks(vol) + 2 * vol->balloc.group_count;
	out->bytes_all = (out->bytes_all + 2 + READ_ONCE(vol->log.length)) << vol->block_shift;
	scrub->buffer_blocks = max(SCRUB_BATCH_BYTES >> vol->block_shift, 2u);
	scrub->buffer = kvmalloc((size_t)scrub->buffer_blocks << vol->block_shift, GFP_KERNEL);
	scrub->again = kvmalloc(vol->block_size, GFP_KERNEL);
	return scrub->buffer && scrub->again ? cursor_load(scrub) : -ENOMEM;
}

static void portion_exit(struct scrub *scrub)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(scrub->node); i++)
		kvfree(scrub->node[i].data);
	kvfree(scrub->buffer);
	kvfree(scrub->again);
	kfree(scrub);
}

static int scrub_phases(struct scrub *scrub)
{
	static int (*const phases[])(struct scrub *scrub) = { scrub_anchors, scrub_log, scrub_maps, scrub_tree };
	int err;

	static_assert(ARRAY_SIZE(phases) == SCRUB_PHASES);
	while (scrub->phase < SCRUB_PHASES) {
		if (volume_error(scrub->vol))
			return -EIO;
		err = phases[scrub->phase](scrub);
		if (err)
			return err;
		scrub->phase++;
		scrub->at = (struct node_key){ 0, 0 };
		scrub->skip = 0;
	}
	return 0;
}

int volume_scrub(struct volume *vol, struct tux3_ioc_scrub *out)
{
	struct scrub *scrub = kzalloc(sizeof(*scrub), GFP_KERNEL);
	int err;

	lockdep_assert_not_held(&vol->delta.inside);
	if (!scrub)
		return -ENOMEM;
	err = portion_init(scrub, vol, out);
	if (!err)
		err = scrub_phases(scrub);
	if (!err)
		out->flags |= TUX3_SCRUB_OVER;
	if (err >= 0)
		cursor_store(scrub);
	portion_exit(scrub);
	/* Killed between two locks: as with a budget that is used up. */
	return min(err, 0);
}
