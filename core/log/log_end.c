// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the end of the log means.
 *
 * Data and log of a commit are made durable by one flush.  So the last commit may be torn by a power cut: it was never
 * acknowledged, and does not count.  Damage that came later looks alike, but for one thing: what was written after the
 * flush confirms that the commit was durable.  The next log block does (an idle volume writes one, see delta.c), and so
 * does an anchor, behind which the log begins anew.
 *
 *	the block that is missing	what follows it		so
 *	not of the log, or unreadable	nothing			the end.  An unreadable one is not used again: a detour
 *	the same			later commits		the log is damaged: -EIO, or cut there (cut_log)
 *
 *	the last commit			confirmed
 *	its records do not match	no			torn: dropped
 *	its data does not match, or	no			torn: dropped, or kept (accept_last)
 *	cannot be read			yes			rotten: kept, reads of these blocks fail
 *
 * At mount, or for tools that look at the log; no locks.
 */
#include "core/volume.h"
#include "core/device/device.h"
#include "core/format/chain.h"
#include "core/log/apply.h"
#include "core/log/log_read.h"

#define VERIFY_DAMAGED	1	/* not what the commit wrote, or unreadable */
#define VERIFY_BLOCKS	8u	/* in one read */
#define VERIFY_BYTES_MAX (16u << 20)	/* a commit with a quarter of it flushes its data first, and says so */

/* One read under way: what the checksums of its blocks are to be. */
struct verify_read {
	u32 bytes;		/* of each block, that the checksum is of */
	__le32 csum[VERIFY_BLOCKS];
};

struct verify {
	struct volume *vol;
	u8 *data;		/* DEVICE_READS_MAX x VERIFY_BLOCKS blocks */
	struct device_io *reads;
	struct verify_read *expect;
	u32 count;
	u64 blocks;		/* so many so far, of files and of values */
	u64 files;		/* whose attributes the commit sets or deletes */
	u64 bad_addr;		/* the first block that is not what it was */
	int bad_err;		/* why, if it cannot be read */
};

static int verify_bad(struct verify *verify, u64 addr, int err)
{
	if (err == -ENOMEM)
		return err;
	verify->bad_addr = addr;
	verify->bad_err = err;
	return VERIFY_DAMAGED;
}

/* A single error in reading must not cost a commit that was acknowledged: once more, block by block. */
static int verify_read_again(struct verify *verify, const struct device_io *read, u64 *addr)
{
	struct volume *vol = verify->vol;
	int err = 0;
	u32 n;

	for (n = 0; n < read->count && !err; n++) {
		*addr = read->addr + n;
		err = device_read(vol->dev, *addr, 1, (u8 *)read->data + ((size_t)n << vol->block_shift));
	}
	return err;
}

/* Read what was collected, all at once. */
static int verify_flush(struct verify *verify)
{
	struct volume *vol = verify->vol;
	u32 count = verify->count, i, n;

	verify->count = 0;
	device_read_many(vol->dev, verify->reads, count);
	for (i = 0; i < count; i++) {
		const struct device_io *read = &verify->reads[i];
		const struct verify_read *expect = &verify->expect[i];
		u64 addr = read->addr;
		int err = read->err ? verify_read_again(verify, read, &addr) : 0;

		if (err)
			return verify_bad(verify, addr, err);
		for (n = 0; n < read->count; n++) {
			if (crc32c(~0u, (u8 *)read->data + ((size_t)n << vol->block_shift), expect->bytes) !=
			    le32_to_cpu(expect->csum[n]))
				return verify_bad(verify, read->addr + n, 0);
		}
	}
	return 0;
}

static int verify_add(struct verify *verify, u64 addr, u32 count, u32 bytes, const __le32 *csum)
{
	struct volume *vol = verify->vol;
	size_t at = ((size_t)verify->count * VERIFY_BLOCKS) << vol->block_shift;
	u32 i = verify->count++;

	verify->reads[i] = (struct device_io){ .addr = addr, .count = count, .data = verify->data + at };
	verify->expect[i].bytes = bytes;
	memcpy(verify->expect[i].csum, csum, count * sizeof(*csum));
	return verify->count == DEVICE_READS_MAX ? verify_flush(verify) : 0;
}

/* Is it more than a commit can leave to be compared? */
static bool verify_is_much(struct verify *verify, u64 blocks)
{
	verify->blocks += blocks;
	return verify->blocks << verify->vol->block_shift > VERIFY_BYTES_MAX;
}

static int verify_extent(struct verify *verify, const struct record_extent *record, u32 len)
{
	struct volume *vol = verify->vol;
	u64 count = le64_to_cpu(record->count), addr = le64_to_cpu(record->addr), done, n;
	int err = 0;

	if (!(le32_to_cpu(record->flags) & TUX3_EXTENT_CSUM))
		return 0;
	if (!apply_blocks_valid(vol, addr, count) || len != sizeof(*record) + count * sizeof(__le32) ||
	    verify_is_much(verify, count))
		return verify_bad(verify, addr, 0);
	for (done = 0; done < count && !err; done += n) {
		n = min_t(u64, VERIFY_BLOCKS, count - done);
		err = verify_add(verify, addr + done, n, vol->block_size, &record->csum[done]);
	}
	return err;
}

/* A value of several blocks has one checksum. */
static int verify_long_xattr(struct verify *verify, const struct disk_xattr *entry)
{
	const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);
	u32 left = le32_to_cpu(entry->value_len), crc = ~0u, i, b, bytes;
	struct volume *vol = verify->vol;
	u64 addr = 0;
	int err;

	err = verify_flush(verify);	/* the buffer is needed */
	if (err)
		return err;
	for (i = 0; i < entry->pieces; i++, piece++) {
		for (b = 0; b < get_unaligned_le32(&piece->len) && left; b++) {
			addr = get_unaligned_le64(&piece->addr) + b;
			if (!apply_blocks_valid(vol, addr, 1))
				return verify_bad(verify, addr, 0);
			err = device_read(vol->dev, addr, 1, verify->data);
			if (err)
				err = device_read(vol->dev, addr, 1, verify->data);
			if (err)
				return verify_bad(verify, addr, err);
			bytes = min(left, vol->block_size);
			crc = crc32c(crc, verify->data, bytes);
			left -= bytes;
		}
	}
	return left || crc != le32_to_cpu(entry->value_crc) ? verify_bad(verify, addr, 0) : 0;
}

static int verify_xattr(struct verify *verify, const struct record_xattr *record, u32 len)
{
	const struct disk_xattr *entry = &record->entry;
	const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);
	__le32 csum = entry->value_crc;
	u64 addr;

	if (!entry->pieces || !xattr_size(entry, len - offsetof(struct record_xattr, entry)))
		return 0;
	if (le32_to_cpu(entry->value_len) > TUX3_XATTR_SIZE_MAX ||
	    verify_is_much(verify, DIV_ROUND_UP(le32_to_cpu(entry->value_len), verify->vol->block_size)))
		return verify_bad(verify, get_unaligned_le64(&piece->addr), 0);
	if (le32_to_cpu(entry->value_len) > verify->vol->block_size)
		return verify_long_xattr(verify, entry);
	addr = get_unaligned_le64(&piece->addr);
	if (!apply_blocks_valid(verify->vol, addr, 1))
		return verify_bad(verify, addr, 0);
	return verify_add(verify, addr, 1, le32_to_cpu(entry->value_len), &csum);
}

static int verify_record(struct verify *verify, const struct disk_record *record)
{
	u32 len = le32_to_cpu(record->len);
	const void *payload = record + 1;

	switch (le16_to_cpu(record->type)) {
	case TUX3_RECORD_ATTR_SET:
	case TUX3_RECORD_INODE_DELETE:
		verify->files++;
		return 0;
	case TUX3_RECORD_EXTENT_MAP:
		return len >= sizeof(struct record_extent) ? verify_extent(verify, payload, len) : 0;
	case TUX3_RECORD_XATTR_SET:
		return len >= offsetof(struct record_xattr, entry) + sizeof(struct disk_xattr) ?
		       verify_xattr(verify, payload, len) : 0;
	}
	return 0;
}

static bool verify_counts(const struct disk_record *record)
{
	return le16_to_cpu(record->type) == TUX3_RECORD_ATTR_SET || le16_to_cpu(record->type) == TUX3_RECORD_INODE_DELETE;
}

static int verify_records(struct log_chain *chain, const struct log_found *commit, struct verify *verify)
{
	bool look = !(le32_to_cpu(commit->head.flags) & TUX3_COMMIT_DATA_FLUSHED);
	struct log_stream stream = {};
	struct disk_record *record;
	int err, more = 1, ret = 0;

	err = log_stream_open(&stream, &chain->reader, commit);
	while (!err && more) {
		more = log_stream_next(&stream, &record);
		if (more < 0)
			err = more;
		else if (more && (look || verify_counts(record)))
			err = verify_record(verify, record);
		else if (!more && look)
			err = verify_flush(verify);
		if (err == VERIFY_DAMAGED) {	/* count on */
			ret = err;
			err = 0;
			look = false;
		}
	}
	log_stream_close(&stream);
	return err ? err : ret;
}

/* 0: all of the commit's data is there; VERIFY_DAMAGED; or -errno. */
static int verify_commit(struct log_chain *chain, const struct log_found *commit, struct verify *verify)
{
	int err = -ENOMEM;

	verify->data = kvmalloc((size_t)DEVICE_READS_MAX * VERIFY_BLOCKS << verify->vol->block_shift, GFP_KERNEL);
	verify->reads = kcalloc(DEVICE_READS_MAX, sizeof(*verify->reads), GFP_KERNEL);
	verify->expect = kcalloc(DEVICE_READS_MAX, sizeof(*verify->expect), GFP_KERNEL);
	if (verify->data && verify->reads && verify->expect)
		err = verify_records(chain, commit, verify);
	kvfree(verify->data);
	kfree(verify->reads);
	kfree(verify->expect);
	return err;
}

/* Nothing from this commit on counts. */
static void chain_cut(struct log_chain *chain, u32 from)
{
	chain->end = chain->commits[from].place;
	chain->count = from;
}

/* The log is damaged, as why says: may it be cut there? */
static int judge_cut(struct log_chain *chain)
{
	struct volume *vol = chain->reader.vol;
	size_t len;

	if (vol->opts.cut_log) {
		volume_warn(vol, "%s. All from there on is dropped, as the option cutlog says", chain->why);
		chain->goes_on = true;
		volume_leave_out(vol, -EIO, "%s; the log is cut there", chain->why);
		return 0;
	}
	len = strlen(chain->why);
	snprintf(chain->why + len, sizeof(chain->why) - len,
		 ". The option cutlog opens the volume as it was before that, and drops what came after");
	return -EIO;
}

/* The log does not end where it seems to. */
static int judge_middle(struct log_chain *chain, bool *confirmed)
{
	u32 i;
	int err = 0;

	if (chain->goes_on) {
		snprintf(chain->why, sizeof(chain->why),
			 "the log is damaged: its block %llu (number %llu) %s, but later commits exist",
			 (unsigned long long)chain->stop.addr, (unsigned long long)chain->stop.seq,
			 chain->stop_err ? "cannot be read" : "is not what was written there");
		err = judge_cut(chain);
		*confirmed = true;
	}
	for (i = 0; i < chain->count && !err; i++) {
		if (!chain->commits[i].damaged || (i + 1 == chain->count && !*confirmed))
			continue;
		snprintf(chain->why, sizeof(chain->why),
			 "the log is damaged: the records of the commit at block %llu do not match their checksum, and it is not the last",
			 (unsigned long long)chain->commits[i].addr);
		err = judge_cut(chain);
		*confirmed = true;
		if (!err)
			chain_cut(chain, i);
	}
	return err;
}

/* The newest commit that has records: those behind it only confirm it. */
static int judge_last(struct log_chain *chain, bool confirmed)
{
	struct volume *vol = chain->reader.vol;
	struct verify verify = { .vol = vol };
	struct log_found *last;
	u32 which = chain->count;
	int err;

	while (which && !le32_to_cpu(chain->commits[which - 1].head.bytes) && !chain->commits[which - 1].damaged)
		which--;
	if (!which)
		return 0;
	last = &chain->commits[which - 1];
	confirmed |= which < chain->count;
	if (last->damaged) {		/* judge_middle() saw the others */
		volume_warn(vol, "the newest commit, delta %llu, was not complete when the power failed: its records do not match their checksum. The volume is as the delta before it left it",
			    (unsigned long long)last->delta);
		last->torn = true;
		return 0;
	}
	err = verify_commit(chain, last, &verify);
	if (err <= 0)
		return err;
	if (confirmed) {
		volume_warn(vol, "data of delta %llu was damaged after it had been written: block %llu %s. The delta is kept; files read there give an error",
			    (unsigned long long)last->delta, (unsigned long long)verify.bad_addr,
			    verify.bad_err ? "cannot be read" : "does not match its checksum");
	} else if (vol->opts.accept_last) {
		volume_warn(vol, "the newest commit, delta %llu with %llu files, is kept as the option acceptlast says, though block %llu of its data %s: files read there give an error",
			    (unsigned long long)last->delta, (unsigned long long)verify.files,
			    (unsigned long long)verify.bad_addr,
			    verify.bad_err ? "cannot be read" : "does not match its checksum");
	} else {
		volume_warn(vol, "the newest commit, delta %llu with changes of %llu files, was not complete when the power failed, or was damaged since: block %llu of its data %s. The volume is as the delta before it left it; the option acceptlast keeps it",
			    (unsigned long long)last->delta, (unsigned long long)verify.files,
			    (unsigned long long)verify.bad_addr,
			    verify.bad_err ? "cannot be read" : "does not match its checksum");
		last->torn = true;
	}
	return 0;
}

int log_end_judge(struct log_chain *chain, bool *must_write)
{
	bool confirmed = false;
	int err = judge_middle(chain, &confirmed);

	if (!err)
		err = judge_last(chain, confirmed);
	if (err)
		return err;
	if (chain->stop_err && !chain->goes_on)
		volume_warn(chain->reader.vol, "block %llu, where the log would go on, cannot be read: it goes on elsewhere",
			    (unsigned long long)chain->stop.addr);
	if (!chain->stop_err && !chain->goes_on && (chain->stop_torn || chain->stop.seq != chain->end.seq))
		volume_warn(chain->reader.vol, "the newest commit was not complete when the power failed, or was damaged since: its log ends before block %llu. The volume is as the delta before it left it",
			    (unsigned long long)chain->stop.addr);
	*must_write = chain->stop_err || chain->goes_on || chain->stop.seq != chain->end.seq ||
		      (chain->count && chain->commits[chain->count - 1].torn);
	return 0;
}
