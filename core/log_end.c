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
#include "volume.h"
#include "apply.h"
#include "log_read.h"

#define VERIFY_DAMAGED	1	/* not what the commit wrote, or unreadable */
#define VERIFY_BLOCKS	32u

struct verify {
	struct volume *vol;
	void *data;		/* VERIFY_BLOCKS blocks */
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

static int verify_extent(struct verify *verify, const struct record_extent *record, u32 len)
{
	struct volume *vol = verify->vol;
	u64 count = le64_to_cpu(record->count), addr = le64_to_cpu(record->addr), done, i, n;
	int err;

	if (!(le32_to_cpu(record->flags) & TUX3_EXTENT_CSUM))
		return 0;
	if (!apply_blocks_valid(vol, addr, count) || len != sizeof(*record) + count * sizeof(__le32))
		return verify_bad(verify, addr, 0);
	for (done = 0; done < count; done += n) {
		n = min_t(u64, VERIFY_BLOCKS, count - done);
		err = device_read(vol->dev, addr + done, n, verify->data);
		if (err)
			return verify_bad(verify, addr + done, err);
		for (i = 0; i < n; i++) {
			if (crc32c(~0u, (u8 *)verify->data + (i << vol->block_shift), vol->block_size) !=
			    le32_to_cpu(record->csum[done + i]))
				return verify_bad(verify, addr + done + i, 0);
		}
	}
	return 0;
}

static int verify_xattr(struct verify *verify, const struct record_xattr *record, u32 len)
{
	struct volume *vol = verify->vol;
	const struct disk_xattr *entry = &record->entry;
	const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);
	u32 left = le32_to_cpu(entry->value_len), crc = ~0u, i, b, bytes;
	u64 addr = 0;

	if (!entry->pieces || !xattr_entry_size(entry, len - offsetof(struct record_xattr, entry)))
		return 0;
	for (i = 0; i < entry->pieces; i++, piece++) {
		for (b = 0; b < get_unaligned_le32(&piece->len) && left; b++) {
			int err = 0;

			addr = get_unaligned_le64(&piece->addr) + b;
			if (!apply_blocks_valid(vol, addr, 1))
				return verify_bad(verify, addr, 0);
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

/* 0: all of the commit's data is there; VERIFY_DAMAGED; or -errno. */
static int verify_commit(struct log_chain *chain, const struct log_found *commit, struct verify *verify)
{
	bool flushed = le32_to_cpu(commit->head.flags) & TUX3_COMMIT_DATA_FLUSHED;
	struct disk_record *record;
	struct log_stream stream = {};
	int err, more, ret = 0;

	err = log_stream_open(&stream, &chain->reader, commit);
	verify->data = kvmalloc((size_t)VERIFY_BLOCKS << verify->vol->block_shift, GFP_KERNEL);
	if (!verify->data)
		err = -ENOMEM;
	while (!err && (more = log_stream_next(&stream, &record)) != 0) {
		if (more < 0)
			err = more;
		else if (!flushed || le16_to_cpu(record->type) == TUX3_RECORD_ATTR_SET ||
			 le16_to_cpu(record->type) == TUX3_RECORD_INODE_DELETE)
			err = verify_record(verify, record);
		if (err == VERIFY_DAMAGED) {	/* count on */
			ret = err;
			err = 0;
			flushed = true;
		}
	}
	log_stream_close(&stream);
	kvfree(verify->data);
	return err ? err : ret;
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
