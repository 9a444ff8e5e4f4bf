// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Intents at open: those that no durable delta supersedes are carried out on top of the newest one.
 *
 * First all batches are read and looked at: the first that is not whole is the end.  They are written one at a time, so a later
 * one says that this one was whole once, and is damaged.  Then the intents become records, logged and applied as those of a
 * commit are.  What they find in the tree is what capture saw to (intent_capture.c); anything else is damage.  Data stays where
 * it is: blocks of the area become blocks of the file.  The commit is written when the volume becomes writable, before
 * anything else is; until then a crash finds all as it was.
 *
 * While the volume is mounted the same is read to know what was promised of a block that is lost (intent_promised()).
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/device/device.h"
#include "core/format/attr.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/log/apply.h"
#include "core/log/log.h"
#include "core/delta/delta.h"
#include "core/delta/space.h"
#include "core/inode/inode.h"
#include "core/data/data.h"
#include "core/data/delete.h"
#include "core/intent/intent.h"
#include "core/intent/intent_internal.h"

#define AREA_BYTES_MAX	(64u << 20)	/* nobody has made a larger one */
#define FAR_BYTES_MAX	(1u << 30)	/* nor had so much data elsewhere that no commit superseded */
#define PIECE_BYTES	(1u << 20)	/* that is read at a time */

/* One intent, as found. */
struct intent_found {
	const struct disk_intent *intent;
	u64 addr;			/* of its first data block */
	u64 seq;			/* of its batch */
};

/* The data blocks of a batch. */
struct batch_data {
	u64 addr;			/* of the first */
	const u32 *csum;		/* of each */
	u32 count, used;		/* used: by the intents so far */
	bool copied;			/* this is a copy of the volume without them */
};

struct recovery {
	struct volume *vol;
	bool mounted;			/* nothing is carried out */
	u64 seq_first;			/* mounted: the number of the first batch since the open, if it had been in this area */
	struct intent_place place;	/* of the next batch */
	u32 *csum;			/* of each block of the area */
	u8 *piece;			/* what is being read */
	struct disk_intents **header;	/* for each: its part in use, if it is the header of a batch of the area, and whole */
	u64 header_bytes;		/* of all of these: more than they have of payload */
	u64 far_left;			/* so many blocks elsewhere there may be data in: each is read once */
	u8 *payloads;			/* of all batches, what found[] points into */
	u64 payload_used;
	struct intent_found *found;
	u32 count;
	u64 delta;			/* the newest that one of them belongs to */
};

/* ---- reading ---- */

/* Is the block at this offset, which was read, one of a header of a batch of the area, and whole? */
static bool is_header(struct recovery *recovery, u32 offset, struct disk_intents *block)
{
	struct volume *vol = recovery->vol;
	__le32 crc = block->crc;
	bool whole;

	if (le32_to_cpu(block->magic) != TUX3_INTENT_MAGIC || le64_to_cpu(block->volume_id) != vol->id ||
	    le64_to_cpu(block->addr) != recovery->place.addr + offset || le64_to_cpu(block->life) != recovery->place.life)
		return false;
	block->crc = 0;
	whole = crc32c(~0u, block, vol->block_size) == le32_to_cpu(crc);
	block->crc = crc;
	return whole && le32_to_cpu(block->used) <= intent_header_room(vol);
}

/* The header block at offset, if it is this one of the next batch. */
static const struct disk_intents *header_at(struct recovery *recovery, u32 offset, u32 index)
{
	const struct disk_intents *block = recovery->header[offset];

	return block && le64_to_cpu(block->seq) == recovery->place.seq && le32_to_cpu(block->index) == index ? block : NULL;
}

/* The headers' payloads, put together behind those of the batches before.  Bytes, or 0: the batch is not whole. */
static u32 batch_payload(struct recovery *recovery, u32 offset, u32 blocks)
{
	u8 *to = recovery->payloads + recovery->payload_used;
	u32 len = 0, i;

	for (i = 0; i < blocks; i++) {
		const struct disk_intents *block = header_at(recovery, offset + i, i);

		if (!block || le32_to_cpu(block->blocks) != blocks)
			return 0;
		memcpy(to + len, block + 1, le32_to_cpu(block->used));
		len += le32_to_cpu(block->used);
	}
	return len;
}

/* Is it well formed, and its data there?  *data is moved on behind that. */
static bool intent_whole(struct recovery *recovery, const struct disk_intent *intent, u32 len, struct batch_data *data)
{
	u32 runs = le32_to_cpu(intent->runs), records = le32_to_cpu(intent->records), i, j;
	u64 at = sizeof(*intent), max = (TUX3_SIZE_MAX >> recovery->vol->block_shift) + 1;	/* blocks */

	for (i = 0; i < runs; i++) {
		const struct disk_intent_run *run = (const void *)((const u8 *)intent + at);
		u32 count;

		if (len < at || len - at < sizeof(*run))
			return false;
		count = le32_to_cpu(run->count);
		at += intent_run_bytes(count);
		if (at > len || !count || count > data->count - data->used || count > max || le64_to_cpu(run->block) > max - count)
			return false;
		for (j = 0; j < count; j++, data->used++)
			if (!data->copied && data->csum[data->used] != le32_to_cpu(run->csum[j]))
				return false;
	}
	return !(records & 7) && at + records + intent->name_len == len;
}

/* A commit that was durable may be damaged since (log_end.c): what was synced on top of it is then lost with it. */
static bool base_is_there(struct recovery *recovery, const struct disk_intents *head)
{
	unsigned long long base = le64_to_cpu(head->base), newest = recovery->vol->delta.committed;
	struct volume *vol = recovery->vol;

	if (base <= newest)
		return true;
	if (vol->opts.mend)
		volume_leave_out(vol, -EIO, "Delta %llu was durable, but only delta %llu is there: what was synced on top of it is lost, too",
				 base, newest);
	else
		vol->intent.missing = base;
	volume_warn(vol, "delta %llu was durable, but only delta %llu is there: what was synced on top of it is lost, too", base, newest);
	return false;
}

/*
 * Blocks of an area, also if they cannot be read as a whole: a block that was being written when the power failed may be such, and
 * so may any that no batch is in.  It is none of a batch then.  How many cannot, *last: why; or -ENOMEM.
 */
static int piece_read(struct recovery *recovery, u64 addr, u32 count, int *last)
{
	struct tux3_device *dev = recovery->vol->dev;
	int err = device_read(dev, addr, count, recovery->piece);
	u32 bad = 0, i;

	if (!err || err == -ENOMEM)
		return err;
	for (i = 0; i < count; i++) {
		u8 *block = recovery->piece + (size_t)i * dev->block_size;

		err = device_read(dev, addr + i, 1, block);
		if (!err)
			continue;
		memset(block, 0, dev->block_size);
		*last = err;
		bad++;
	}
	return bad;
}

/* What is there is remembered by checksums and the headers. */
static int piece_note(struct recovery *recovery, u32 offset, u32 count)
{
	u32 block_size = recovery->vol->block_size, bytes, i;

	for (i = 0; i < count; i++) {
		struct disk_intents *block = (struct disk_intents *)(recovery->piece + (size_t)i * block_size);

		recovery->csum[offset + i] = crc32c(~0u, block, block_size);
		if (!is_header(recovery, offset + i, block))
			continue;
		bytes = sizeof(*block) + le32_to_cpu(block->used);
		recovery->header[offset + i] = kvmalloc(bytes, GFP_KERNEL);
		if (!recovery->header[offset + i])
			return -ENOMEM;
		memcpy(recovery->header[offset + i], block, bytes);
		recovery->header_bytes += bytes;
	}
	return 0;
}

static void tell_unread(struct recovery *recovery, u64 addr, u32 blocks, u32 bad, int why)
{
	volume_warn(recovery->vol, "of the %u blocks from block %llu on, which are for what was synced last, %u cannot be read (%s)",
		    blocks, (unsigned long long)addr, bad, error_text(why));
}

/* In pieces: memory is little where volumes are mounted. */
static int area_fetch(struct recovery *recovery)
{
	struct intent_place *place = &recovery->place;
	struct volume *vol = recovery->vol;
	u32 piece = max(PIECE_BYTES >> vol->block_shift, 1u), bad = 0, count, i;
	int err = 0, last = 0;

	for (i = 0; i < place->blocks && err >= 0; i += count) {
		count = min(piece, place->blocks - i);
		err = piece_read(recovery, place->addr + i, count, &last);
		if (err < 0)
			break;
		bad += err;
		err = piece_note(recovery, i, count);
	}
	if (err < 0)
		return err;
	if (bad)
		tell_unread(recovery, place->addr, place->blocks, bad, last);
	return bad == place->blocks ? last : 0;
}

/* Its intents, in a payload of len bytes, the first at this one: those that count are found.  Are all of them whole? */
static bool batch_intents(struct recovery *recovery, u32 at, u32 len, struct batch_data *data)
{
	while (at < len) {
		const struct disk_intent *intent = (const void *)(recovery->payloads + recovery->payload_used + at);
		u64 addr = data->addr + data->used;
		u32 bytes;

		if (len - at < sizeof(*intent))
			return false;
		bytes = le32_to_cpu(intent->len);
		if (bytes > len - at || !intent_whole(recovery, intent, bytes, data))
			return false;
		at += round_up(bytes, 8);
		if (le64_to_cpu(intent->delta) > recovery->vol->delta.committed)
			recovery->found[recovery->count++] = (struct intent_found){ intent, addr, recovery->place.seq };
	}
	return at == len && data->used == data->count;
}

/* Data that is elsewhere: read.  Nothing else may be in these blocks.  true, or it is not there, or (*err) cannot be looked at. */
static bool batch_read_far(struct recovery *recovery, struct batch_data *data, u32 *csum, int *err)
{
	struct volume *vol = recovery->vol;
	u32 at, count, i;
	int last;

	for (at = 0; at < data->count; at += count) {
		count = min(data->count - at, max(PIECE_BYTES >> vol->block_shift, 1u));
		*err = recovery->mounted ? 1 : balloc_is_free(vol, data->addr + at, count);
		if (*err <= 0)
			return false;
		*err = 0;
		if (data->copied)
			continue;
		*err = piece_read(recovery, data->addr + at, count, &last);
		if (*err > 0)
			tell_unread(recovery, data->addr + at, count, *err, last);
		if (*err)
			return false;
		for (i = 0; i < count; i++)
			csum[at + i] = crc32c(~0u, recovery->piece + ((size_t)i << vol->block_shift), vol->block_size);
	}
	data->csum = csum;
	return true;
}

static bool batch_whole_far(struct recovery *recovery, u32 len, u32 count, bool copied, int *err)
{
	struct volume *vol = recovery->vol;
	struct batch_data data = { .count = count, .copied = copied };
	bool whole = false;
	u32 *csum;

	if (len < sizeof(__le64) || !count || count > recovery->far_left)
		return false;
	recovery->far_left -= count;
	data.addr = get_unaligned_le64(recovery->payloads + recovery->payload_used);
	if (!apply_blocks_valid(vol, data.addr, count))
		return false;
	csum = kvmalloc(count * sizeof(*csum), GFP_KERNEL);
	if (!csum)
		*err = -ENOMEM;
	else if (batch_read_far(recovery, &data, csum, err))
		whole = batch_intents(recovery, sizeof(__le64), len, &data);
	kvfree(csum);
	return whole;
}

/* The next batch, if it is at offset, and whole.  1, 0: it is not; -ENOMEM, -EIO: what a free map says is not known. */
static int batch_read(struct recovery *recovery, u32 offset)
{
	struct intent_place *place = &recovery->place;
	u32 count = recovery->count, blocks, data_blocks, near, len;
	const struct disk_intents *head;
	bool whole, far, copied;
	int err = 0;

	if (offset >= place->blocks)
		return 0;
	head = header_at(recovery, offset, 0);
	if (!head || !base_is_there(recovery, head))
		return 0;
	blocks = le32_to_cpu(head->blocks);
	data_blocks = le32_to_cpu(head->data_blocks) & ~(TUX3_INTENTS_FAR | TUX3_INTENTS_COPY);
	far = le32_to_cpu(head->data_blocks) & TUX3_INTENTS_FAR;
	copied = le32_to_cpu(head->data_blocks) & TUX3_INTENTS_COPY;
	near = far ? 0 : data_blocks;
	if (!blocks || blocks > place->blocks - offset || near > place->blocks - offset - blocks)
		return 0;
	len = batch_payload(recovery, offset, blocks);
	if (!far) {
		struct batch_data data = {
			.addr = place->addr + offset + blocks, .csum = recovery->csum + offset + blocks, .count = near,
			.copied = copied,
		};

		whole = len && batch_intents(recovery, 0, len, &data);
	} else {
		whole = batch_whole_far(recovery, len, data_blocks, copied, &err);
	}
	if (!whole) {
		recovery->count = count;
		return min(err, 0);
	}
	recovery->payload_used += round_up(len, 8);
	place->offset = offset + blocks + near;
	place->seq++;
	return 1;
}

/* Where the batches end, is there damage?  0, or -EIO with a message. */
static int area_judge_end(struct recovery *recovery)
{
	struct volume *vol = recovery->vol;
	const struct disk_intents *block;
	u32 i;

	for (i = 0; i < recovery->place.blocks; i++) {
		block = recovery->header[i];
		if (block && le64_to_cpu(block->seq) > recovery->place.seq &&
		    le64_to_cpu(block->base) <= vol->delta.committed)
			break;
	}
	if (i == recovery->place.blocks)
		return 0;
	volume_warn(vol, "what was synced last is damaged: batch %llu of the intents from block %llu on is not whole, but later ones exist. %s",
		    (unsigned long long)recovery->place.seq, (unsigned long long)recovery->place.addr, vol->opts.cut_log ?
		    "All from there on is dropped, as the option cutlog says" :
		    "The option cutlog opens the volume as it was before that, and drops what came after");
	return volume_leave_out(vol, vol->opts.cut_log && !vol->opts.mend ? 0 : -EIO,
				"What was synced after delta %llu is damaged from batch %llu of the intents on, and dropped",
				(unsigned long long)vol->delta.committed, (unsigned long long)recovery->place.seq);
}

static int area_read(struct recovery *recovery)
{
	struct volume *vol = recovery->vol;
	u32 blocks = recovery->place.blocks;
	int err;

	if ((u64)blocks << vol->block_shift > AREA_BYTES_MAX) {
		volume_warn(vol, "the log names %u blocks for intents, which is more than there ever are", blocks);
		return -EIO;
	}
	recovery->far_left = min_t(u64, FAR_BYTES_MAX >> vol->block_shift, vol->total_blocks);
	recovery->csum = kvmalloc(blocks * sizeof(*recovery->csum), GFP_KERNEL);
	recovery->header = kvcalloc(blocks, sizeof(*recovery->header), GFP_KERNEL);
	recovery->piece = kvmalloc(max(PIECE_BYTES, vol->block_size), GFP_KERNEL);
	if (!recovery->csum || !recovery->header || !recovery->piece)
		return -ENOMEM;
	err = area_fetch(recovery);
	if (err || !recovery->header_bytes)
		return err;
	recovery->payloads = kvmalloc(recovery->header_bytes, GFP_KERNEL);
	recovery->found = kvmalloc(recovery->header_bytes / sizeof(struct disk_intent) * sizeof(*recovery->found), GFP_KERNEL);
	if (!recovery->payloads || !recovery->found)
		return -ENOMEM;
	do {
		err = batch_read(recovery, recovery->place.offset);
		if (!err && recovery->place.offset)
			err = batch_read(recovery, 0);
	} while (err > 0);
	return err || recovery->mounted ? err : area_judge_end(recovery);
}

/* ---- carrying out ---- */

int intent_bad(struct volume *vol, const struct disk_intent *intent, const char *what)
{
	volume_warn(vol, "the intent of inode %llu, of delta %llu, cannot be carried out: %s",
		    (unsigned long long)le64_to_cpu(intent->ino), (unsigned long long)le64_to_cpu(intent->delta), what);
	return -EIO;
}

int intent_log_attr(struct volume *vol, __le64 ino, const struct disk_attr *attr)
{
	struct tree_key key = tree_key(le64_to_cpu(ino), TUX3_ITEM_ATTR, 0);
	struct record_attr record = { .ino = ino, .attr = *attr };

	if (!attr_possible(attr, vol->total_blocks)) {
		volume_warn(vol, "an intent gives inode %llu attributes that no inode can have", (unsigned long long)le64_to_cpu(ino));
		return -EIO;
	}
	return log_record_at(vol, &key, TUX3_RECORD_ATTR_SET, &record, sizeof(record), NULL, 0);
}

int intent_tree_attr(struct volume *vol, __le64 ino, struct disk_attr *attr)
{
	struct tree_key key = tree_key(le64_to_cpu(ino), TUX3_ITEM_ATTR, 0);
	int len = tree_lookup(vol, &key, attr, sizeof(*attr));

	if (len == -ENOENT)
		return 0;
	return len < 0 ? len : len == sizeof(*attr) ? 1 : -EIO;
}

static int drop_inline(struct volume *vol, __le64 ino)
{
	struct tree_key key = tree_key(le64_to_cpu(ino), TUX3_ITEM_INLINE, 0);
	struct record_item record;

	tree_key_to_disk(&record.key, &key);
	return log_record_at(vol, &key, TUX3_RECORD_ITEM_DELETE, &record, sizeof(record), NULL, 0);
}

static int map_run(struct volume *vol, __le64 ino, const struct disk_intent_run *run, u64 addr)
{
	struct tree_key key = tree_key(le64_to_cpu(ino), TUX3_ITEM_EXTENT, le64_to_cpu(run->block));
	bool csums = vol->feature_incompat & TUX3_FEATURE_INCOMPAT_DATA_CSUM;
	u32 left = le32_to_cpu(run->count), at = 0;
	int err = 0;

	while (left && !err) {
		struct record_extent *record = vol->log.extent;
		u32 count = min(left, LOG_EXTENT_BLOCKS), len = sizeof(*record);

		record->ino = ino;
		record->block = cpu_to_le64(le64_to_cpu(run->block) + at);
		record->count = cpu_to_le64(count);
		record->addr = cpu_to_le64(addr + at);
		record->flags = cpu_to_le32(csums ? TUX3_EXTENT_CSUM : 0);
		record->spare = 0;
		if (csums) {
			memcpy(record->csum, run->csum + at, count * sizeof(__le32));
			len += count * sizeof(__le32);
		}
		key.offset = le64_to_cpu(record->block);
		err = log_record_at(vol, &key, TUX3_RECORD_EXTENT_MAP, record, len, NULL, 0);
		at += count;
		left -= count;
	}
	return err;
}

/* Of names, which were carried out before. */
static bool is_of_names(const struct disk_record *record)
{
	u32 type = le16_to_cpu(record->type);

	return type == TUX3_RECORD_DIRENT_SET || type == TUX3_RECORD_DIRENT_DELETE || type == TUX3_INTENT_NAMED;
}

/* About this inode, and of a kind that an intent may have? */
static bool record_key(const struct disk_intent *intent, const struct disk_record *record, struct tree_key *key)
{
	const struct record_extent *punch = (const void *)(record + 1);
	const struct record_xattr *xattr = (const void *)(record + 1);
	u32 type = le16_to_cpu(record->type), len = le32_to_cpu(record->len);

	key->ino = le64_to_cpu(intent->ino);
	if (type == TUX3_RECORD_EXTENT_PUNCH && len == sizeof(*punch)) {
		key->type = TUX3_ITEM_EXTENT;
		key->offset = le64_to_cpu(punch->block);
		return punch->ino == intent->ino && S_ISREG(le32_to_cpu(intent->attr.mode));
	}
	if ((type != TUX3_RECORD_XATTR_SET && type != TUX3_RECORD_XATTR_DELETE) ||
	    len < offsetof(struct record_xattr, entry) + sizeof(xattr->entry) || xattr->entry.pieces)
		return false;
	key->type = TUX3_ITEM_XATTR;
	key->offset = le64_to_cpu(xattr->hash);
	return xattr->ino == intent->ino;
}

/* What was removed of it, and its xattrs. */
static int recover_records(struct recovery *recovery, const struct disk_intent *intent, const void *records, struct disk_attr *attr)
{
	const struct disk_record *record;
	struct tree_key key;
	u32 at = 0;
	int more, err = 0;

	while (!err && (more = log_next_record(records, le32_to_cpu(intent->records), &at, &record)) != 0) {
		if (more > 0 && is_of_names(record) && S_ISREG(le32_to_cpu(intent->attr.mode)))
			continue;
		if (more < 0 || !record_key(intent, record, &key))
			return intent_bad(recovery->vol, intent, "one of its records is not valid");
		if (key.type == TUX3_ITEM_XATTR)
			attr->flags |= cpu_to_le32(TUX3_ATTR_XATTRS);
		err = log_record_at(recovery->vol, &key, le16_to_cpu(record->type), record + 1, le32_to_cpu(record->len), NULL, 0);
	}
	return err;
}

static const void *intent_records(const struct disk_intent *intent)
{
	const struct disk_intent_run *run = (const void *)(intent + 1);
	u32 i;

	for (i = 0; i < le32_to_cpu(intent->runs); i++)
		run = intent_next_run(run);
	return run;
}

/* Is all of the file that there was before removed? */
static bool removes_all(const struct disk_intent *intent)
{
	const void *records = intent_records(intent);
	const struct disk_record *record;
	u32 at = 0;

	while (log_next_record(records, le32_to_cpu(intent->records), &at, &record) > 0) {
		const struct record_extent *punch = (const void *)(record + 1);

		if (le16_to_cpu(record->type) == TUX3_RECORD_EXTENT_PUNCH && le32_to_cpu(record->len) == sizeof(*punch) &&
		    !punch->block && le64_to_cpu(punch->count) == DATA_END)
			return true;
	}
	return false;
}

static int recover_data(struct recovery *recovery, const struct intent_found *found, struct disk_attr *attr)
{
	const struct disk_intent *intent = found->intent;
	const struct disk_intent_run *run = (const void *)(intent + 1);
	struct volume *vol = recovery->vol;
	u32 runs = le32_to_cpu(intent->runs), i;
	u64 addr = found->addr;
	int err = 0;

	if (attr->flags & cpu_to_le32(TUX3_ATTR_INLINE)) {
		if ((!runs || run->block) && !removes_all(intent))
			return intent_bad(recovery->vol, intent, "its data is inline, and not in the intent");
		err = drop_inline(vol, intent->ino);
		attr->flags &= ~cpu_to_le32(TUX3_ATTR_INLINE);
	}
	vol->log.blocks_delta = 0;
	if (!err)
		err = recover_records(recovery, intent, intent_records(intent), attr);
	for (i = 0; i < runs && !err; i++) {
		err = map_run(vol, intent->ino, run, addr);
		addr += le32_to_cpu(run->count);
		run = intent_next_run(run);
	}
	attr->blocks = cpu_to_le64(attr_blocks_after(vol, le64_to_cpu(attr->blocks), vol->log.blocks_delta));
	return err;
}

/* Made by this intent, or by one before it: a file can be synced several times in the delta in which it is made. */
static int recover_new(struct recovery *recovery, const struct disk_intent *intent, bool named, struct disk_attr *attr)
{
	u64 ino = le64_to_cpu(intent->ino);

	if ((!intent->name_len && !named) || ino < TUX3_INO_FIRST || ino > TUX3_INO_MAX)
		return intent_bad(recovery->vol, intent, "it has no name, or a number that no file has");
	memset(attr, 0, sizeof(*attr));
	return intent->name_len ? intent_recover_name(recovery->vol, intent) : 0;
}

/*
 * It has a name after this.  Where the tree has it without one, that had none yet, or no more: its ACL may have been committed
 * before it got its first.
 */
static int recover_named(struct recovery *recovery, const struct disk_intent *intent, bool there, bool named, struct disk_attr *old)
{
	int err;

	if (!there)
		return recover_new(recovery, intent, named, old);
	if (old->nlink)
		return 0;
	err = delete_mark_orphan(recovery->vol, le64_to_cpu(intent->ino), 0, 0);
	return err || !intent->name_len ? err : intent_recover_name(recovery->vol, intent);
}

static int recover_file(struct recovery *recovery, const struct intent_found *found, bool there, struct disk_attr *old)
{
	const struct disk_intent *intent = found->intent;
	struct disk_attr attr = intent->attr;
	struct volume *vol = recovery->vol;
	bool named;
	u32 stored;
	int err = intent_recover_names(vol, intent, intent_records(intent), &named);

	if (!err)
		err = recover_named(recovery, intent, there, named, old);
	if (!err)
		err = recover_data(recovery, found, old);
	if (err)
		return err;
	stored = le32_to_cpu(old->flags) & TUX3_ATTR_STORED;
	attr.flags = cpu_to_le32((le32_to_cpu(attr.flags) & TUX3_ATTR_SETTABLE) | stored);
	attr.blocks = old->blocks;
	return intent_log_attr(vol, intent->ino, &attr);
}

/* Nothing is in it yet. */
static int recover_new_dir(struct recovery *recovery, const struct disk_intent *intent, bool there, struct disk_attr *old)
{
	struct disk_attr attr = intent->attr;
	struct volume *vol = recovery->vol;
	int err = recover_named(recovery, intent, there, false, old);

	attr.flags = (attr.flags & cpu_to_le32(TUX3_ATTR_SETTABLE)) | (old->flags & cpu_to_le32(TUX3_ATTR_STORED));
	vol->log.blocks_delta = 0;
	if (!err)
		err = recover_records(recovery, intent, intent_records(intent), &attr);
	attr.size = 0;
	attr.blocks = cpu_to_le64(attr_blocks_after(vol, le64_to_cpu(old->blocks), vol->log.blocks_delta));
	attr.nlink = cpu_to_le32(2);
	return err ? err : intent_log_attr(vol, intent->ino, &attr);
}

/* Either it is made, if it is not there, or names in it are said. */
static int recover_dir(struct recovery *recovery, const struct disk_intent *intent, bool there, struct disk_attr *old)
{
	bool named;

	if (intent->runs)
		return intent_bad(recovery->vol, intent, "it is a directory, and has data");
	if (intent->name_len)
		return there && old->nlink ? 0 : recover_new_dir(recovery, intent, there, old);
	if (!there)
		return intent_bad(recovery->vol, intent, "there is no such directory");
	return intent_recover_names(recovery->vol, intent, intent_records(intent), &named);
}

static int recover_one(struct recovery *recovery, const struct intent_found *found)
{
	const struct disk_intent *intent = found->intent;
	u32 mode = le32_to_cpu(intent->attr.mode);
	struct disk_attr old;
	int there = intent_tree_attr(recovery->vol, intent->ino, &old), err;

	if (there < 0)
		return there;
	if ((!S_ISREG(mode) && !S_ISDIR(mode)) || !intent->attr.nlink ||
	    (there && (le32_to_cpu(old.mode) & S_IFMT) != (mode & S_IFMT)))
		return intent_bad(recovery->vol, intent, "it is no regular file or directory, or another one");
	err = S_ISDIR(mode) ? recover_dir(recovery, intent, there, &old) : recover_file(recovery, found, there, &old);
	if (!err)
		count_add(recovery->vol, TUX3_COUNT_INTENTS_RECOVERED, 1);
	return err;
}

static int recover_all(struct recovery *recovery)
{
	struct volume *vol = recovery->vol;
	int err = 0;
	u32 i;

	for (i = 0; i < recovery->count; i++)
		recovery->delta = max_t(u64, recovery->delta, le64_to_cpu(recovery->found[i].intent->delta));
	if (recovery->delta >= TUX3_COUNT_MAX)
		return intent_bad(recovery->vol, recovery->found[0].intent, "there is no such delta");
	vol->delta.applying = recovery->delta;
	log_begin_commit(vol);
	vol->log.replaying = true;	/* blocks of the area are not allocated yet */
	for (i = 0; i < recovery->count && !err; i++)
		err = recover_one(recovery, &recovery->found[i]);
	vol->log.replaying = false;
	tree_edit_leave(vol);
	if (err)
		return err;
	vol->delta.committed = recovery->delta;
	vol->intent.recovered = recovery->count;
	for (i = 0; i < recovery->count; i++)
		vol->intent.recovered_beside += recovery->found[i].intent->beside == 1;
	return 0;
}

static void recovery_free(struct recovery *recovery)
{
	u32 i;

	for (i = 0; recovery->header && i < recovery->place.blocks; i++)
		kvfree(recovery->header[i]);
	kvfree(recovery->header);
	kvfree(recovery->csum);
	kvfree(recovery->piece);
	kvfree(recovery->payloads);
	kvfree(recovery->found);
}

int intent_recover(struct volume *vol)
{
	struct disk_intent_place *named = &vol->log.intent;
	struct recovery recovery = {
		.vol = vol,
		.place = {
			.addr = le64_to_cpu(named->addr), .life = le64_to_cpu(named->life), .seq = le64_to_cpu(named->seq),
			.blocks = le32_to_cpu(named->blocks), .offset = le32_to_cpu(named->offset),
		},
	};
	int err;

	vol->intent.base = vol->delta.committed;
	vol->intent.missing = 0;
	vol->intent.recovered = vol->intent.recovered_beside = 0;
	if (!recovery.place.addr)
		return 0;
	vol->intent.returning = (struct block_range){ recovery.place.addr, recovery.place.blocks };
	delta_lock(vol);
	err = area_read(&recovery);
	if (!err && recovery.count)
		err = recover_all(&recovery);
	delta_unlock(vol);
	recovery_free(&recovery);
	return err;
}

/* ---- while it is mounted: what they say of a block ---- */

/* Where the file's block is after this intent, with its checksum; *addr 0: nowhere, or where it was before all of them. */
static void found_block(const struct intent_found *found, const struct volume *vol, u64 block, u64 *addr, __le32 *csum)
{
	const struct disk_intent *intent = found->intent;
	const struct disk_intent_run *run = (const void *)(intent + 1);
	u64 at = found->addr;
	u32 i;

	if (removes_all(intent) || block << vol->block_shift >= le64_to_cpu(intent->attr.size))
		*addr = 0;
	for (i = 0; i < le32_to_cpu(intent->runs); i++) {
		u64 first = le64_to_cpu(run->block), count = le32_to_cpu(run->count);

		if (block >= first && block - first < count) {
			*addr = at + (block - first);
			*csum = run->csum[block - first];
		}
		at += count;
		run = intent_next_run(run);
	}
}

static bool recovery_of_mounted(struct recovery *recovery, struct volume *vol)
{
	struct intent *intent = &vol->intent;

	*recovery = (struct recovery){ .vol = vol, .mounted = true };
	spin_lock(&intent->lock);
	if (intent->first.count) {
		recovery->place = intent->place;
		recovery->seq_first = intent->place.seq - intent->batches;
		recovery->place.seq = intent->first.batch[0].seq;
		recovery->place.offset = intent->first.batch[0].offset;
	}
	spin_unlock(&intent->lock);
	return recovery->place.addr;
}

/* A hint of the past: what is captured from now on is in a batch that comes later. */
u64 intent_now(struct volume *vol)
{
	return READ_ONCE(vol->intent.batches);
}

int intent_promised(struct tux3_inode *inode, u64 block, u64 delta, u64 since, void *data)
{
	struct volume *vol = inode->vol;
	struct recovery recovery;
	__le32 csum = 0;
	u64 addr = 0;
	int err;
	u32 i;

	if (!recovery_of_mounted(&recovery, vol))
		return 0;
	err = area_read(&recovery);
	for (i = 0; i < recovery.count && !err; i++)
		if (le64_to_cpu(recovery.found[i].intent->ino) == inode->ino &&
		    le64_to_cpu(recovery.found[i].intent->delta) >= delta && recovery.found[i].seq - recovery.seq_first >= since)
			found_block(&recovery.found[i], vol, block, &addr, &csum);
	recovery_free(&recovery);
	if (!err && addr)
		err = device_read(vol->dev, addr, 1, data);
	if (!err && addr)
		err = data_verify(inode, block, addr, data, csum);
	return err ? err : addr != 0;
}

/* What was replaced, but for blocks of the area, which an intent behind replaced: that goes as a whole. */
static int release_replaced(struct volume *vol)
{
	struct range_list *freed = &vol->log.freed, *list = &vol->intent.leaving;
	u64 area = vol->intent.returning.addr, area_end = area + vol->intent.returning.len;
	int err = 0;
	u32 i;

	for (i = 0; i < freed->count && !err; i++) {
		u64 addr = freed->ranges[i].addr, end = addr + freed->ranges[i].len;

		if (addr < area)
			err = range_list_add(list, addr, min(end, area) - addr);
		if (!err && end > area_end)
			err = range_list_add(list, max(addr, area_end), end - max(addr, area_end));
	}
	freed->count = 0;
	freed->blocks = 0;
	return err ? err : balloc_release(vol, list);
}

/* Of the area what did not become data. */
static int area_give_back(struct volume *vol)
{
	struct block_range *area = &vol->intent.returning;
	struct range_list *list = &vol->intent.leaving;
	int err = 0, used;
	u64 i;

	for (i = 0; i < area->len && !err; i++) {
		used = balloc_test(vol, area->addr + i, 1);
		err = used ? min(used, 0) : range_list_add(list, area->addr + i, 1);
	}
	memset(area, 0, sizeof(*area));
	return err ? err : balloc_release(vol, list);
}

int intent_commit_recovered(struct volume *vol)
{
	struct io_wait wait;
	int err = 0, io_err;

	vol->intent.missing = 0;	/* that was told, and from now on it is so */
	if (!vol->intent.returning.addr)
		return 0;
	delta_lock(vol);
	if (vol->intent.recovered) {
		io_wait_init(&wait);
		memset(&vol->log.intent, 0, sizeof(vol->log.intent));
		err = log_write_commit(vol, vol->delta.committed, TUX3_COMMIT_DATA_FLUSHED, &wait);
		device_kick(vol->dev);
		io_err = io_wait_finish(&wait);
		if (!err)
			err = io_err ? io_err : device_flush(vol->dev);
		log_end_commit(vol);
		vol->log.must_write = false;
	}
	if (!err)
		err = release_replaced(vol);
	if (!err)
		err = area_give_back(vol);
	if (!err)
		space_init(vol);
	else		/* the records are gone: it cannot be tried again before the volume is opened anew */
		volume_abort(vol, err, "what was synced last could not be committed");
	delta_unlock(vol);
	return err;
}
