// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writing the log: the records of a commit are put together in memory and go out as log blocks.
 *
 * Invariants
 *  1. log.next_addr and log.after_addr are always allocated (busy), so the blocks before them can name them.
 *  2. Every record is applied to the tree when it is logged, by the code that replay uses.
 *  3. What is written passes the checks that reading it will make; if not the commit fails (log_seal_checked).
 *  4. Log blocks of the chain are in log.blocks (or old_blocks, while an anchor is being moved).
 *
 * All of it by the back end, commit_mutex held.
 */
#include "core/volume.h"
#include "core/device/device.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/log/apply.h"
#include "core/log/log.h"

#define CASTAGNOLI	0x82f63b78u	/* the polynomial of CRC32C, that of 1 on top */

struct log_chunk {
	struct list_head link;
	u64 addr;
	u32 used;
	struct disk_log *block;
};

struct log_buffer {
	struct list_head link;
	u64 data[];
};

static u32 chunk_capacity(struct volume *vol)
{
	return vol->block_size - sizeof(struct disk_log);
}

static u32 log_record_max(struct volume *vol)
{
	return sizeof(struct record_extent) + TUX3_ITEM_MAX(vol->block_size) + TUX3_NAME_MAX;
}

/*
 * A checksum is linear in its beginning, and its bits are the powers of x, that of 1 on top: what zeros make of one bit is x times
 * what they make of the bit above.  So one pass over the zeros does for all: a mount should not checksum 128 blocks for this.
 */
static int log_init_shift(struct volume *vol)
{
	void *zeros = kvzalloc(vol->block_size, GFP_KERNEL);
	u32 bits[32], i, k;

	if (!zeros)
		return -ENOMEM;
	bits[31] = crc32c(1u << 31, zeros, chunk_capacity(vol));
	for (i = 31; i--;)
		bits[i] = bits[i + 1] >> 1 ^ (bits[i + 1] & 1 ? CASTAGNOLI : 0);
	memset(vol->log.shift, 0, sizeof(vol->log.shift));
	for (i = 0; i < ARRAY_SIZE(bits); i++)
		for (k = 0; k < ARRAY_SIZE(vol->log.shift[0]); k++)
			vol->log.shift[i / 4][k] ^= k >> i % 4 & 1 ? bits[i] : 0;
	kvfree(zeros);
	return 0;
}

int log_init(struct volume *vol)
{
	struct log *log = &vol->log;
	int err = log_init_shift(vol);

	INIT_LIST_HEAD(&log->chunks);
	INIT_LIST_HEAD(&log->buffers);
	range_list_init(&log->blocks);
	range_list_init(&log->old_blocks);
	range_list_init(&log->freed);
	log->record = kvmalloc(log_record_max(vol), GFP_KERNEL);
	log->extent = kvmalloc(sizeof(*log->extent) + LOG_EXTENT_BLOCKS * sizeof(__le32), GFP_KERNEL);
	log->item[0] = kvmalloc(TUX3_ITEM_MAX(vol->block_size), GFP_KERNEL);
	log->item[1] = kvmalloc(TUX3_ITEM_MAX(vol->block_size), GFP_KERNEL);
	return !err && log->record && log->extent && log->item[0] && log->item[1] ? 0 : -ENOMEM;
}

void log_exit(struct volume *vol)
{
	struct log *log = &vol->log;

	log_end_commit(vol);
	range_list_exit(&log->blocks);
	range_list_exit(&log->old_blocks);
	range_list_exit(&log->freed);
	kvfree(log->record);
	kvfree(log->extent);
	kvfree(log->item[0]);
	kvfree(log->item[1]);
	log->record = NULL;
}

static struct log_chunk *log_add_chunk(struct volume *vol)
{
	struct log_chunk *chunk = kzalloc(sizeof(*chunk), GFP_COMMIT);

	if (!chunk)
		return NULL;
	chunk->block = kvmalloc(vol->block_size, GFP_COMMIT);
	if (!chunk->block) {
		kfree(chunk);
		return NULL;
	}
	memset(chunk->block, 0, sizeof(*chunk->block));
	list_add_tail(&chunk->link, &vol->log.chunks);
	vol->log.chunk_count++;
	return chunk;
}

/* Append bytes to the payload of the commit. */
static int log_append(struct volume *vol, const void *data, u32 len)
{
	struct log *log = &vol->log;
	struct log_chunk *chunk;

	while (len) {
		u32 piece;

		chunk = list_empty(&log->chunks) ? NULL : list_entry(log->chunks.prev, struct log_chunk, link);
		if (!chunk || chunk->used == chunk_capacity(vol)) {
			chunk = log_add_chunk(vol);
			if (!chunk)
				return -ENOMEM;
		}
		piece = min(len, chunk_capacity(vol) - chunk->used);
		memcpy((u8 *)(chunk->block + 1) + chunk->used, data, piece);
		chunk->used += piece;
		data = (const u8 *)data + piece;
		len -= piece;
	}
	return 0;
}

/* What has been put together of a record is in the log. */
static void log_count_record(struct log *log, u32 size)
{
	log->bytes += size;
	log->records++;
}

/* The record in one piece, if the last block has room for it: returns where its payload is then. */
static const void *log_append_whole(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len,
				    const void *tail, u32 tail_len)
{
	struct log *log = &vol->log;
	struct log_chunk *chunk = list_empty(&log->chunks) ? NULL : list_last_entry(&log->chunks, struct log_chunk, link);
	u32 size = log_record_size(len + tail_len);
	u8 *at, *data;

	if (!chunk || size > chunk_capacity(vol) - chunk->used)
		return NULL;
	at = (u8 *)(chunk->block + 1) + chunk->used;
	data = log_begin_record(at, type, len + tail_len);
	memcpy(data, payload, len);
	if (tail_len)
		memcpy(data + len, tail, tail_len);
	log->crc = crc32c(log->crc, at, size);
	chunk->used += size;
	log_count_record(log, size);
	return data;
}

/* In pieces, into this block and the next. */
static int log_append_pieces(struct volume *vol, const struct disk_record *head, const void *payload, u32 len, u32 padding)
{
	static const u8 zeros[8];
	struct log *log = &vol->log;
	int err = 0;

	if (list_empty(&log->chunks)) {		/* room for the commit header */
		struct disk_commit commit = {};

		err = log_append(vol, &commit, sizeof(commit));
	}
	if (!err)
		err = log_append(vol, head, sizeof(*head));
	if (!err)
		err = log_append(vol, payload, len);
	if (!err)
		err = log_append(vol, zeros, padding);
	if (err)
		return err;
	log->crc = crc32c(log->crc, head, sizeof(*head));
	log->crc = crc32c(log->crc, payload, len);
	log->crc = crc32c(log->crc, zeros, padding);
	return 0;
}

static int log_append_record(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len)
{
	struct disk_record head = { .type = cpu_to_le16(type), .len = cpu_to_le32(len) };
	u32 padding = round_up(len, 8) - len;
	int err;

	if (log_append_whole(vol, type, payload, len, NULL, 0))
		return 0;
	err = log_append_pieces(vol, &head, payload, len, padding);
	if (!err)
		log_count_record(&vol->log, sizeof(head) + len + padding);
	return err;
}

/* Merging what the record before left underfull is a matter of what is in memory: so replay has to be told. */
static int log_merges(struct volume *vol)
{
	struct record_merge record = {};
	struct tree_merge merge;
	int err = 0;

	while (!err && tree_next_merge(vol, &merge)) {
		vol->log.merges++;
		tree_key_to_disk(&record.key, &merge.key);
		record.level = cpu_to_le32(merge.level);
		record.right = cpu_to_le32(merge.right);
		err = log_append_record(vol, TUX3_RECORD_TREE_MERGE, &record, sizeof(record));
		if (!err)
			err = apply_record(vol, TUX3_RECORD_TREE_MERGE, &record, sizeof(record));
	}
	return err;
}

int log_record(struct volume *vol, enum tux3_record_type type, const void *payload, u32 len,
	       const void *tail, u32 tail_len)
{
	const void *logged = log_append_whole(vol, type, payload, len, tail, tail_len);
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!logged) {
		if (tail_len) {
			if (WARN_ON_ONCE(len + tail_len > log_record_max(vol)))
				return -EINVAL;
			memcpy(vol->log.record, payload, len);
			memcpy((u8 *)vol->log.record + len, tail, tail_len);
			payload = vol->log.record;
		}
		logged = payload;
		err = log_append_record(vol, type, payload, len + tail_len);
	}
	if (!err)
		err = apply_record(vol, type, logged, len + tail_len);
	return err || !vol->tree.underfull_count ? err : log_merges(vol);
}

int log_record_at(struct volume *vol, const struct tree_key *key, enum tux3_record_type type,
		  const void *payload, u32 len, const void *tail, u32 tail_len)
{
	int err;

	tree_edit_begin_at(vol, key);
	err = log_record(vol, type, payload, len, tail, tail_len);
	tree_edit_end(vol);
	return err;
}

void log_begin_commit(struct volume *vol)
{
	struct log *log = &vol->log;

	lockdep_assert_held(&vol->delta.commit_mutex);
	WARN_ON_ONCE(!list_empty(&log->chunks));
	log->bytes = 0;
	log->moved = false;
	log->records = log->merges = log->inlined = 0;
	log->inlined_bytes = 0;
	log->crc = ~0u;
	log->blocks_delta = 0;
}

/* Say which free maps changed since the last snapshot: replay must have the next unify write them. */
static int log_touched_groups(struct volume *vol)
{
	struct record_group *record = vol->log.record;
	u64 bits[TOUCHED_WORDS], first;
	u32 words, i;
	int err = 0;

	while (!err && (words = balloc_touched(vol, &first, bits))) {
		record->group = cpu_to_le64(first);
		for (i = 0; i < words; i++)
			record->bits[i] = cpu_to_le64(bits[i]);
		err = log_append_record(vol, TUX3_RECORD_GROUP_TOUCHED, record,
					sizeof(*record) + words * sizeof(__le64));
	}
	return err;
}

/* The addresses of the blocks to come, one after the other: those that were chosen before, then new ones. */
struct log_addresses {
	u64 chosen[2];		/* 0: none */
	u64 addr;		/* the newest */
	u32 run, left;		/* new ones in a row behind it; to be allocated in all */
};

static int log_next_address(struct volume *vol, struct log_addresses *addresses)
{
	u64 goal = addresses->addr + 1;
	int err = 0;

	if (addresses->chosen[0]) {
		addresses->addr = addresses->chosen[0];
		addresses->chosen[0] = addresses->chosen[1];
		addresses->chosen[1] = 0;
		return 0;
	}
	if (addresses->run)
		addresses->addr++;
	else
		err = balloc_alloc(vol, BALLOC_LOG, goal, 1, addresses->left, &addresses->addr, &addresses->run);
	addresses->run--;
	addresses->left--;
	return err;
}

/* The first chunk goes to next_addr, the second to after_addr; the others, and two for the next commit, get new blocks. */
static int log_place(struct volume *vol, u64 *next, u64 *after)
{
	struct log *log = &vol->log;
	struct log_addresses addresses = {
		.chosen = { log->next_addr, log->after_addr },
		.left = log->chunk_count + 2 - 1 - !!log->after_addr,
	};
	struct log_chunk *chunk;
	int err;

	list_for_each_entry(chunk, &log->chunks, link) {
		err = log_next_address(vol, &addresses);
		if (!err)
			err = range_list_add(&log->blocks, addresses.addr, 1);
		if (err)
			return err;
		chunk->addr = addresses.addr;
	}
	err = log_next_address(vol, &addresses);
	*next = addresses.addr;
	if (!err)
		err = log_next_address(vol, &addresses);
	*after = addresses.addr;
	return err;
}

/* Where the walk through the chunks is. */
struct log_scan {
	u64 left;		/* of a record: bytes in later chunks */
	u64 bytes;
	u32 records;
};

/* The records in one chunk.  What is wrong, or NULL. */
static const char *log_scan_chunk(struct volume *vol, const struct log_chunk *chunk, u32 at, struct log_scan *walk)
{
	const u8 *payload = (const u8 *)(chunk->block + 1);
	u32 used = chunk->used, piece;

	walk->bytes += used - at;
	for (; at < used; at += piece, walk->left -= piece) {
		if (!walk->left) {
			const struct disk_record *head = (const void *)(payload + at);

			if (used - at < sizeof(*head) || !apply_record_possible(le16_to_cpu(head->type), le32_to_cpu(head->len)))
				return "there is a record that nobody can read";
			walk->left = sizeof(*head) + round_up((u64)le32_to_cpu(head->len), 8);
			walk->records++;
		}
		piece = min_t(u64, walk->left, used - at);
	}
	return NULL;
}

/* Where records begin in the payload of a chunk. */
static u32 chunk_first(struct volume *vol, const struct log_chunk *chunk)
{
	return chunk->link.prev == &vol->log.chunks ? sizeof(struct disk_commit) : 0;
}

static const char *log_scan(struct volume *vol)
{
	struct log *log = &vol->log;
	struct log_scan walk = {};
	struct log_chunk *chunk;
	const char *why;

	list_for_each_entry(chunk, &log->chunks, link) {
		why = log_scan_chunk(vol, chunk, chunk_first(vol, chunk), &walk);
		if (why)
			return why;
	}
	return walk.left || walk.bytes != log->bytes || walk.records != log->records ?
	       "there are not as many records as were logged" : NULL;
}

/* All chunks are full, but for the last one, and have a place where logs can be. */
static const char *log_check_chunks(struct volume *vol, u64 next, u64 after)
{
	struct log *log = &vol->log;
	u64 bytes = log->bytes + sizeof(struct disk_commit);
	struct log_chunk *chunk;

	list_for_each_entry(chunk, &log->chunks, link) {
		if (chunk->used != min_t(u64, bytes, chunk_capacity(vol)))
			return "a block does not hold as much as it has room for";
		if (!apply_blocks_valid(vol, chunk->addr, 1))
			return "a block would go where no log can be";
		bytes -= chunk->used;
	}
	if (bytes)
		return "a block is missing";
	if (!apply_blocks_valid(vol, next, 1) || !apply_blocks_valid(vol, after, 1))
		return "it would go on where no log can be";
	return NULL;
}

/* What a checksum becomes when a whole payload of zeros follows. */
static u32 log_shift(const struct log *log, u32 crc)
{
	u32 shifted = 0, i;

	for (i = 0; i < ARRAY_SIZE(log->shift); i++, crc >>= 4)
		shifted ^= log->shift[i][crc & 15];
	return shifted;
}

/* The field has 32 bits: what is more is skipped by the commits behind it. */
static u32 log_skip_now(const struct log *log)
{
	return min_t(u64, log->skip, U32_MAX);
}

/*
 * Returns the checksum of all records up to the end of this chunk; records: of those before it.  Checksums are linear: two
 * that go over the same bytes differ by what the difference of their beginnings becomes there.  So for a chunk in the
 * middle one pass does for both.
 */
static u32 log_seal(struct volume *vol, struct log_chunk *chunk, u64 delta, u32 index, u64 next, u64 after, u32 records)
{
	struct log *log = &vol->log;
	struct disk_log *block = chunk->block;
	u32 crc, first = chunk_first(vol, chunk);
	bool last = index + 1 == log->chunk_count;

	block->magic = cpu_to_le32(TUX3_LOG_MAGIC);
	block->volume_id = cpu_to_le64(vol->id);
	block->addr = cpu_to_le64(chunk->addr);
	block->seq = cpu_to_le64(log->next_seq + index);
	block->delta = cpu_to_le64(delta);
	block->next = cpu_to_le64(next);
	block->after = cpu_to_le64(after);
	block->index = cpu_to_le32(index);
	block->blocks = cpu_to_le32(log->chunk_count);
	block->used = cpu_to_le32(chunk->used);
	block->skip = cpu_to_le32(last ? log_skip_now(log) : 0);
	block->crc = 0;
	memset((u8 *)(block + 1) + chunk->used, 0, chunk_capacity(vol) - chunk->used);
	crc = crc32c(~0u, block, vol->block_size);
	if (last || first)
		records = crc32c(records, (const u8 *)(block + 1) + first, chunk->used - first);
	else
		records = crc ^ log_shift(log, crc32c(~0u, block, sizeof(*block)) ^ records);
	block->crc = cpu_to_le32(crc);
	return records;
}

/* Each names the two behind it.  Returns the checksum of all records. */
static u32 log_seal_all(struct volume *vol, u64 delta, u64 next, u64 after)
{
	u64 addr[2] = { next, after };
	struct log_chunk *chunk, *ahead;
	u32 index = 0, crc = ~0u;

	list_for_each_entry(chunk, &vol->log.chunks, link) {
		u32 more = vol->log.chunk_count - 1 - index;

		ahead = list_next_entry(chunk, link);
		if (more > 1)
			crc = log_seal(vol, chunk, delta, index, ahead->addr, list_next_entry(ahead, link)->addr, crc);
		else
			crc = log_seal(vol, chunk, delta, index, more ? ahead->addr : next, addr[!more], crc);
		index++;
	}
	return crc;
}

/*
 * Seals what passes the checks that reading will make: each record was applied when it was logged, and is as it was then.  So
 * their checksum is enough; record by record they are gone through to say what is wrong, and where all is verified.
 */
static int log_seal_checked(struct volume *vol, u64 delta, u64 next, u64 after)
{
	const char *why = log_check_chunks(vol, next, after), *scanned;
	bool same = !why && log_seal_all(vol, delta, next, after) == vol->log.crc;

	if (!why && (!same || vol->opts.verify)) {
		scanned = log_scan(vol);
		why = scanned ? scanned : same ? NULL : "records are not as they were logged";
	}
	if (!why)
		return 0;
	volume_warn(vol, "the log of delta %llu is not as it must be: %s; it is not written", (unsigned long long)delta, why);
	return -EIO;
}

static void log_fill_header(struct volume *vol, u64 delta, u32 flags)
{
	struct log *log = &vol->log;
	struct log_chunk *first = list_first_entry(&log->chunks, struct log_chunk, link);
	struct disk_commit *commit = (struct disk_commit *)(first->block + 1);
	struct timespec64 now;

	ktime_get_real_ts64(&now);
	commit->delta = cpu_to_le64(delta);
	commit->time_ns = cpu_to_le64(now.tv_sec * 1000000000ULL + now.tv_nsec);
	commit->bytes = cpu_to_le32(log->bytes);
	commit->crc = cpu_to_le32(log->crc);
	commit->records = cpu_to_le32(log->records);
	commit->flags = cpu_to_le32(flags | (log->after_snapshot ? TUX3_COMMIT_SNAPSHOT : 0));
	log->after_snapshot = false;
	commit->used_blocks = cpu_to_le64(atomic64_read(&vol->balloc.data_used));
	commit->inodes = cpu_to_le64(vol->tree_inodes);
	commit->intent = log->intent;
}

/* Submit the chunks, contiguous ones as one write. */
static void log_submit(struct volume *vol, struct io_wait *wait)
{
	struct kvec vec[32];
	struct log_chunk *chunk;
	u64 start = 0;
	u32 count = 0;

	list_for_each_entry(chunk, &vol->log.chunks, link) {
		if (count && (count == ARRAY_SIZE(vec) || chunk->addr != start + count)) {
			device_writev(vol->dev, start, vec, count, 0, wait);
			count = 0;
		}
		if (!count)
			start = chunk->addr;
		vec[count].iov_base = chunk->block;
		vec[count++].iov_len = vol->block_size;
	}
	if (count)
		device_writev(vol->dev, start, vec, count, 0, wait);
}

int log_write_commit(struct volume *vol, u64 delta, u32 flags, struct io_wait *wait)
{
	struct log *log = &vol->log;
	u64 next, after;
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	err = log_touched_groups(vol);
	if (!err && list_empty(&log->chunks)) {		/* a commit without records, to overwrite a torn one */
		struct disk_commit commit = {};

		err = log_append(vol, &commit, sizeof(commit));
	}
	if (!err && log->bytes > U32_MAX)
		err = -EFBIG;
	if (!err)
		err = log_place(vol, &next, &after);
	if (err)
		return err;
	log_fill_header(vol, delta, flags);
	err = log_seal_checked(vol, delta, next, after);
	if (err)
		return err;
	log_submit(vol, wait);
	log->next_addr = next;
	log->after_addr = after;
	log->next_seq += (u64)log->chunk_count + log_skip_now(log);
	log->skip -= log_skip_now(log);
	log->unconfirmed = log->bytes;
	log->commit_ns = ktime_get_ns();
	WRITE_ONCE(log->length, log->length + log->chunk_count);
	count_add(vol, TUX3_COUNT_LOG_BLOCKS, log->chunk_count);
	count_add(vol, TUX3_COUNT_LOG_BYTES, log->bytes);
	count_add(vol, TUX3_COUNT_RECORDS, log->records);
	return 0;
}

void log_end_commit(struct volume *vol)
{
	struct log_chunk *chunk, *next;
	struct log_buffer *buffer, *after;

	tree_edit_leave(vol);
	list_for_each_entry_safe(chunk, next, &vol->log.chunks, link) {
		list_del(&chunk->link);
		kvfree(chunk->block);
		kfree(chunk);
	}
	vol->log.chunk_count = 0;
	list_for_each_entry_safe(buffer, after, &vol->log.buffers, link) {
		list_del(&buffer->link);
		kvfree(buffer);
	}
}

void *log_commit_buffer(struct volume *vol, u32 size)
{
	struct log_buffer *buffer = kvzalloc(sizeof(*buffer) + size, GFP_COMMIT);

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!buffer)
		return NULL;
	list_add(&buffer->link, &vol->log.buffers);
	return buffer->data;
}
