// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reading the log: following the chain, and taking commits apart into records.
 *
 * Each block names two addresses, next and after.  The block with the following number is at next, and the one behind it at
 * after; unless the block at next could not be used when its turn came (a detour): then the following number is at after.
 * So a reader looks there first.  FORMAT.md 7.1.
 */
#include "core/volume.h"
#include "core/device/device.h"
#include "core/log/apply.h"
#include "core/log/log_read.h"

#define READ_SHARE	16u	/* one of so many blocks that are read is the log's ... */
#define READ_FREE	4u	/* ... but for so many times what is read ahead; else that is less: */
#define READ_LEAST	8u

/* ---- blocks ---- */

int log_reader_init(struct log_reader *reader, struct volume *vol)
{
	memset(reader, 0, sizeof(*reader));
	reader->vol = vol;
	reader->ahead_max = LOG_AHEAD_BYTES >> vol->block_shift;
	reader->end = U64_MAX;
	reader->last = 1;
	reader->ahead[0].data = kvmalloc(LOG_AHEAD_BYTES, GFP_KERNEL);
	return reader->ahead[0].data ? 0 : -ENOMEM;
}

void log_reader_exit(struct log_reader *reader)
{
	kvfree(reader->ahead[0].data);
	kvfree(reader->ahead[1].data);
}

bool log_block_whole(struct volume *vol, const struct disk_log *block, u64 addr, u64 seq)
{
	struct disk_log head = *block;
	u32 crc;

	if (le32_to_cpu(block->magic) != TUX3_LOG_MAGIC || le64_to_cpu(block->volume_id) != vol->id ||
	    le64_to_cpu(block->addr) != addr || (seq != U64_MAX && le64_to_cpu(block->seq) != seq))
		return false;
	head.crc = 0;
	crc = crc32c(~0u, &head, sizeof(head));
	crc = crc32c(crc, block + 1, vol->block_size - sizeof(head));
	return crc == le32_to_cpu(block->crc) &&
	       le32_to_cpu(block->used) <= vol->block_size - sizeof(*block) &&
	       le32_to_cpu(block->index) < le32_to_cpu(block->blocks);
}

static const void *reader_ahead(struct log_reader *reader, u64 addr)
{
	u32 i;

	for (i = 0; i < 2; i++) {
		if (addr >= reader->ahead[i].addr && addr - reader->ahead[i].addr < reader->ahead[i].count) {
			reader->last = i;
			return reader->ahead[i].data +
			       ((addr - reader->ahead[i].addr) << reader->vol->block_shift);
		}
	}
	return NULL;
}

/* Most logs are short and need but one; if there is no memory for the other, any log can be read with one. */
static u32 reader_spare(struct log_reader *reader)
{
	u32 other = !reader->last;

	if (!reader->ahead[other].data)
		reader->ahead[other].data = kvmalloc(LOG_AHEAD_BYTES, GFP_KERNEL | __GFP_NOWARN);
	return reader->ahead[other].data ? other : reader->last;
}

/* A log may lie in single blocks all over a volume, and then reading ahead would read most of that. */
static u32 reader_window(const struct log_reader *reader)
{
	if (reader->read + reader->ahead_max <= READ_FREE * reader->ahead_max + READ_SHARE * reader->used)
		return reader->ahead_max;
	return min(READ_LEAST, reader->ahead_max);
}

static int reader_fill(struct log_reader *reader, u64 addr)
{
	struct volume *vol = reader->vol;
	u32 which = reader_spare(reader), count = min_t(u64, reader_window(reader), min(reader->end, vol->total_blocks) - addr);
	int err;

	reader->ahead[which].count = 0;
	reader->read += count;
	err = device_read(vol->dev, addr, count, reader->ahead[which].data);
	if (err) {		/* a bad block behind this one is not our concern */
		count = 1;
		err = device_read(vol->dev, addr, count, reader->ahead[which].data);
	}
	if (err)
		return err;
	reader->ahead[which].addr = addr;
	reader->ahead[which].count = count;
	return 0;
}

const struct disk_log *log_reader_block(struct log_reader *reader, u64 addr, u64 seq, int *err)
{
	const struct disk_log *block;

	*err = 0;
	block = reader_ahead(reader, addr);
	if (!block) {
		*err = reader_fill(reader, addr);
		block = *err ? NULL : reader_ahead(reader, addr);
	}
	if (!block || !log_block_whole(reader->vol, block, addr, seq))
		return NULL;
	reader->used++;
	return block;
}

/*
 * The two blocks of a place are mostly neighbours, and the one behind is asked for first: one read gets both.  If it fails,
 * that is told when the block itself is read.
 */
static void reader_fill_both(struct log_reader *reader, const struct log_place *place)
{
	if (place->addr < place->after && place->after - place->addr < reader->ahead_max &&
	    !reader_ahead(reader, place->addr) && !reader_ahead(reader, place->after))
		reader_fill(reader, place->addr);
}

const struct disk_log *log_reader_follow(struct log_reader *reader, struct log_place *place, u64 *at, int *err)
{
	struct volume *vol = reader->vol;
	const struct disk_log *block = NULL;

	if (!apply_blocks_valid(vol, place->addr, 1) || !apply_blocks_valid(vol, place->after, 1)) {
		volume_warn(vol, "the log goes on at block %llu or %llu, which cannot hold it",
			    (unsigned long long)place->addr, (unsigned long long)place->after);
		*err = -EUCLEAN;
		return NULL;
	}
	reader_fill_both(reader, place);
	*at = place->after;
	block = log_reader_block(reader, place->after, place->seq, err);
	if (!block && *err != -ENOMEM) {
		*at = place->addr;
		block = log_reader_block(reader, place->addr, place->seq, err);
	}
	if (!block)
		return NULL;
	place->addr = le64_to_cpu(block->next);
	place->after = le64_to_cpu(block->after);
	place->seq += 1 + (u64)le32_to_cpu(block->skip);
	return block;
}

/* ---- the first pass ---- */

static int chain_grow(struct log_chain *chain)
{
	u32 capacity = chain->capacity ? 2 * chain->capacity : 64;
	struct log_found *commits;

	if (chain->count < chain->capacity)
		return 0;
	commits = kvmalloc(capacity * sizeof(*commits), GFP_KERNEL);
	if (!commits)
		return -ENOMEM;
	if (chain->count)
		memcpy(commits, chain->commits, chain->count * sizeof(*commits));
	kvfree(chain->commits);
	chain->commits = commits;
	chain->capacity = capacity;
	return 0;
}

/* The payload of one block: the header of the commit, if it is the first, and a part of the records. */
static void found_add(struct log_found *found, const struct disk_log *block, u64 *bytes, u32 *crc)
{
	const u8 *payload = (const u8 *)(block + 1);
	u32 used = le32_to_cpu(block->used);

	if (!le32_to_cpu(block->index)) {
		if (used < sizeof(found->head)) {
			found->damaged = true;
			return;
		}
		memcpy(&found->head, payload, sizeof(found->head));
		payload += sizeof(found->head);
		used -= sizeof(found->head);
	}
	*crc = crc32c(*crc, payload, used);
	*bytes += used;
}

/* One commit.  1: complete; 0: the chain ends before it or in it; -errno. */
static int chain_read_commit(struct log_chain *chain)
{
	struct log_found *found = &chain->commits[chain->count];
	struct log_place place = chain->end;
	const struct disk_log *block;
	u32 i = 0, crc = ~0u;
	u64 bytes = 0, at;
	int err;

	memset(found, 0, sizeof(*found));
	found->place = chain->end;
	do {
		chain->stop = place;
		block = log_reader_follow(&chain->reader, &place, &at, &err);
		if (!block)
			break;
		if (!i) {
			found->addr = at;
			found->blocks = le32_to_cpu(block->blocks);
			found->delta = le64_to_cpu(block->delta);
		}
		if (le32_to_cpu(block->index) != i || le32_to_cpu(block->blocks) != found->blocks ||
		    le64_to_cpu(block->delta) != found->delta)
			break;
		found_add(found, block, &bytes, &crc);
		i++;
	} while (i < found->blocks);
	if (!i || i < found->blocks) {
		chain->stop_err = err;
		return err == -ENOMEM || err == -EUCLEAN ? err : 0;
	}
	if (bytes != le32_to_cpu(found->head.bytes) || crc != le32_to_cpu(found->head.crc))
		found->damaged = true;
	chain->end = place;
	chain->count++;
	return 1;
}

/* A whole block of this log is there, though the one at stop is not. */
static void chain_note_later(struct log_chain *chain, const struct disk_log *block)
{
	chain->goes_on |= !le32_to_cpu(block->index);
	chain->latest = max_t(u64, chain->latest, le64_to_cpu(block->seq));
}

/* The block at this place, and all that it leads to. */
static void chain_walk(struct log_chain *chain, struct log_place place)
{
	const struct disk_log *block;
	u64 at, left = chain->reader.vol->total_blocks;
	int err;

	if (!apply_blocks_valid(chain->reader.vol, place.addr, 1))
		return;
	block = log_reader_block(&chain->reader, place.addr, place.seq, &err);
	while (block && left--) {
		chain_note_later(chain, block);
		place.addr = le64_to_cpu(block->next);
		place.after = le64_to_cpu(block->after);
		place.seq = le64_to_cpu(block->seq) + 1 + le32_to_cpu(block->skip);
		/* A number that means any, or one that is lower: forged. */
		if (place.seq == U64_MAX || place.seq <= chain->latest || !apply_blocks_valid(chain->reader.vol, place.addr, 1) ||
		    !apply_blocks_valid(chain->reader.vol, place.after, 1))
			return;
		block = log_reader_follow(&chain->reader, &place, &at, &err);
	}
}

/* Is the missing block there, but not whole? */
static bool chain_stop_torn(struct log_chain *chain)
{
	struct volume *vol = chain->reader.vol;
	const struct disk_log *block;
	int err;

	log_reader_block(&chain->reader, chain->stop.addr, chain->stop.seq, &err);
	block = err ? NULL : reader_ahead(&chain->reader, chain->stop.addr);
	return block && le32_to_cpu(block->magic) == TUX3_LOG_MAGIC && le64_to_cpu(block->volume_id) == vol->id &&
	       le64_to_cpu(block->addr) == chain->stop.addr && le64_to_cpu(block->seq) == chain->stop.seq;
}

/*
 * Where several blocks in a row are damaged: those that follow on the disk are mostly of the log.  A number above the one
 * that is missing, at the beginning of a commit, means that the missing one was durable before.  Not one that is far above:
 * it is not of this log, but forged.
 */
static void chain_find_near(struct log_chain *chain)
{
	struct volume *vol = chain->reader.vol;
	u64 addr = chain->stop.addr, seq, at = 0;
	u64 end = min_t(u64, addr + (LOG_NEAR_BYTES >> vol->block_shift), vol->total_blocks);
	const struct disk_log *block;
	u32 unreadable = 0;
	int err;

	/* Most of it was read with the log, all of it with a short one.  Every mount comes here: no other MiB for a few blocks. */
	chain->reader.end = end;
	for (; addr < end && unreadable < 16; addr++) {
		block = log_reader_block(&chain->reader, addr, U64_MAX, &err);
		unreadable += !!err;
		seq = block ? le64_to_cpu(block->seq) : 0;
		if (!block || le32_to_cpu(block->index) || seq <= chain->stop.seq || seq - chain->stop.seq > LOG_LATER_MAX)
			continue;
		at = seq >= chain->latest ? addr : at;
		chain_note_later(chain, block);
	}
	chain->reader.end = U64_MAX;
	if (at)
		chain_walk(chain, (struct log_place){ at, at, chain->latest });
}

int log_chain_read(struct log_chain *chain, struct volume *vol)
{
	int err;

	memset(chain, 0, sizeof(*chain));
	chain->end = (struct log_place){ le64_to_cpu(vol->anchor.log_addr), le64_to_cpu(vol->anchor.log_after),
					 le64_to_cpu(vol->anchor.log_seq) };
	err = log_reader_init(&chain->reader, vol);
	while (!err) {
		err = chain_grow(chain);
		if (!err)
			err = chain_read_commit(chain);
		if (err <= 0)
			break;
		err = 0;
	}
	if (err)
		return err == -EUCLEAN ? -EIO : err;
	chain->stop_torn = chain_stop_torn(chain);
	chain->latest = chain->stop.seq;
	chain_walk(chain, (struct log_place){ chain->stop.after, chain->stop.after, chain->stop.seq + 1 });
	chain_find_near(chain);
	return 0;
}

void log_chain_exit(struct log_chain *chain)
{
	log_reader_exit(&chain->reader);
	kvfree(chain->commits);
	chain->commits = NULL;
}

/* ---- the records of a commit ---- */

static int stream_bad(struct log_stream *stream)
{
	volume_warn(stream->reader->vol, "the commit of delta %llu, at block %llu, cannot be read again as it was",
		    (unsigned long long)stream->commit->delta, (unsigned long long)stream->commit->addr);
	return -EIO;
}

static int stream_next_block(struct log_stream *stream)
{
	u64 at;
	int err;

	if (!stream->blocks_left)
		return stream_bad(stream);
	stream->block = log_reader_follow(stream->reader, &stream->place, &at, &err);
	if (!stream->block)
		return err == -ENOMEM ? err : stream_bad(stream);
	stream->blocks_left--;
	stream->at = 0;
	return stream->block_fn ? stream->block_fn(stream->ctx, at) : 0;
}

/* Take bytes of the payload, which may go on in the next block. */
static int stream_take(struct log_stream *stream, void *to, u32 len)
{
	while (len) {
		u32 left = stream->block ? le32_to_cpu(stream->block->used) - stream->at : 0, piece = min(left, len);
		int err;

		if (!piece) {
			err = stream_next_block(stream);
			if (err)
				return err;
			continue;
		}
		memcpy(to, (const u8 *)(stream->block + 1) + stream->at, piece);
		stream->at += piece;
		to = (u8 *)to + piece;
		len -= piece;
	}
	return 0;
}

int log_stream_open(struct log_stream *stream, struct log_reader *reader, const struct log_found *commit)
{
	stream->reader = reader;
	stream->commit = commit;
	stream->place = commit->place;
	stream->block = NULL;
	stream->at = 0;
	stream->blocks_left = commit->blocks;
	stream->bytes_left = le32_to_cpu(commit->head.bytes);
	stream->crc = ~0u;
	stream->record = kvmalloc(LOG_RECORD_BYTES_MAX, GFP_KERNEL);
	return stream->record ? 0 : -ENOMEM;
}

void log_stream_close(struct log_stream *stream)
{
	kvfree(stream->record);
	stream->record = NULL;
}

/* The last block is read even where the records end before it. */
static int stream_end(struct log_stream *stream)
{
	int err = 0;

	while (!err && stream->blocks_left)
		err = stream_next_block(stream);
	if (!err && !stream->commit->damaged && stream->crc != le32_to_cpu(stream->commit->head.crc))
		err = stream_bad(stream);
	return err;
}

int log_stream_next(struct log_stream *stream, struct disk_record **record)
{
	struct disk_record *head = stream->record;
	struct disk_commit commit;
	u64 size;
	int err;

	if (!stream->block) {
		err = stream_take(stream, &commit, sizeof(commit));
		if (err)
			return err;
	}
	if (!stream->bytes_left)
		return stream_end(stream);
	if (stream->bytes_left < sizeof(*head))
		return stream_bad(stream);
	err = stream_take(stream, head, sizeof(*head));
	if (err)
		return err;
	size = sizeof(*head) + round_up((u64)le32_to_cpu(head->len), 8);
	if (size > stream->bytes_left || size > LOG_RECORD_BYTES_MAX)
		return stream_bad(stream);
	err = stream_take(stream, head + 1, size - sizeof(*head));
	if (err)
		return err;
	stream->crc = crc32c(stream->crc, head, size);
	stream->bytes_left -= size;
	*record = head;
	return 1;
}
