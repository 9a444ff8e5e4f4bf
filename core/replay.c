// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reading the log: at open, replay takes the tree of the anchor to the last complete commit.
 *
 * Two passes.  The first follows the chain and keeps the record streams, the second applies the commits in
 * order.  No block is allocated: a dirty tree node has none until a unify writes it (tree.h), and by then it is
 * known which ones the log occupies (balloc_settle).
 *
 * The last commit may be torn: its log is complete but its data did not reach the disk, because one
 * flush was to cover both.  So its data is read and compared with the checksums that the records
 * hold, unless the commit says that its data was flushed before.  An earlier commit whose records are
 * damaged is corruption.
 */
#include "volume.h"
#include "data.h"
#include "apply.h"

#define READ_AHEAD_BLOCKS 32u

struct chain_commit {
	struct list_head link;
	struct log_commit info;
	struct disk_log head;	/* of its first block */
	void *payload;		/* struct disk_commit, then the records */
	u32 bytes;
	u64 *blocks;
	bool damaged;		/* complete, but its records do not match their checksum */
};

struct chain {
	struct volume *vol;
	struct list_head commits;
	u64 addr, seq;		/* the next block expected */
	u8 *ahead;		/* READ_AHEAD_BLOCKS blocks read at ahead_addr */
	u64 ahead_addr;
	u32 ahead_count;
	u64 blocks;		/* followed so far */
};

static void chain_commit_free(struct chain_commit *commit)
{
	kvfree(commit->payload);
	kvfree(commit->blocks);
	kfree(commit);
}

static void chain_exit(struct chain *chain)
{
	struct chain_commit *commit, *next;

	list_for_each_entry_safe(commit, next, &chain->commits, link) {
		list_del(&commit->link);
		chain_commit_free(commit);
	}
	kvfree(chain->ahead);
}

static bool log_block_valid(struct volume *vol, const struct disk_log *block, u64 addr, u64 seq)
{
	struct disk_log head = *block;
	u32 crc;

	if (le32_to_cpu(block->magic) != TUX3_LOG_MAGIC || le64_to_cpu(block->volume_id) != vol->id ||
	    le64_to_cpu(block->addr) != addr || le64_to_cpu(block->seq) != seq)
		return false;
	head.crc = 0;
	crc = crc32c(~0u, &head, sizeof(head));
	crc = crc32c(crc, block + 1, vol->block_size - sizeof(head));
	return crc == le32_to_cpu(block->crc) &&
	       le32_to_cpu(block->used) <= vol->block_size - sizeof(*block) &&
	       le32_to_cpu(block->index) < le32_to_cpu(block->blocks) && !block->spare;
}

/* The block the chain goes on with, or NULL where it ends.  Valid until the next call. */
static const struct disk_log *chain_next(struct chain *chain, int *err)
{
	struct volume *vol = chain->vol;
	const struct disk_log *block;

	*err = 0;
	if (!apply_blocks_valid(vol, chain->addr, 1)) {
		volume_warn(vol, "the log goes on at block %llu, which cannot hold it",
			    (unsigned long long)chain->addr);
		*err = -EIO;
		return NULL;
	}
	if (chain->addr < chain->ahead_addr || chain->addr >= chain->ahead_addr + chain->ahead_count) {
		u64 count = min_t(u64, READ_AHEAD_BLOCKS, vol->total_blocks - chain->addr);

		*err = device_read(vol->dev, chain->addr, count, chain->ahead);
		if (*err) {		/* a bad block behind the log's end is not our concern */
			count = 1;
			*err = device_read(vol->dev, chain->addr, count, chain->ahead);
		}
		if (*err)
			return NULL;
		chain->ahead_addr = chain->addr;
		chain->ahead_count = count;
	}
	block = (const void *)(chain->ahead + ((chain->addr - chain->ahead_addr) << vol->block_shift));
	return log_block_valid(vol, block, chain->addr, chain->seq) ? block : NULL;
}

/* Start a commit with its first block.  NULL: *err, or the block cannot begin one (0). */
static struct chain_commit *chain_begin(struct chain *chain, const struct disk_log *block, int *err)
{
	struct volume *vol = chain->vol;
	struct chain_commit *commit;
	u64 blocks = le32_to_cpu(block->blocks), bytes;

	*err = 0;
	bytes = blocks * (vol->block_size - sizeof(*block));
	if (le32_to_cpu(block->index) || blocks > vol->total_blocks || bytes > U32_MAX)
		return NULL;
	*err = -ENOMEM;
	commit = kzalloc(sizeof(*commit), GFP_KERNEL);
	if (!commit)
		return NULL;
	commit->payload = kvmalloc(bytes, GFP_KERNEL | __GFP_NOWARN);
	commit->blocks = kvmalloc(blocks * sizeof(u64), GFP_KERNEL | __GFP_NOWARN);
	if (!commit->payload || !commit->blocks) {
		chain_commit_free(commit);
		return NULL;
	}
	*err = 0;
	commit->info.block_count = blocks;
	commit->info.blocks = commit->blocks;
	commit->head = *block;
	commit->info.first = &commit->head;
	return commit;
}

static bool commit_records_valid(struct volume *vol, struct chain_commit *commit)
{
	struct disk_commit *head = commit->payload;
	u32 bytes;

	if (commit->bytes < sizeof(*head))
		return false;
	bytes = le32_to_cpu(head->bytes);
	return bytes == commit->bytes - sizeof(*head) &&
	       crc32c(~0u, head + 1, bytes) == le32_to_cpu(head->crc);
}

/* Read one commit.  1: added to the list; 0: the chain ends here; -errno. */
static int chain_read_commit(struct chain *chain)
{
	struct volume *vol = chain->vol;
	u64 addr = chain->addr, seq = chain->seq, delta = 0;
	struct chain_commit *commit = NULL;
	const struct disk_log *block;
	u32 i = 0, blocks = 0;
	int err;

	do {
		block = chain_next(chain, &err);
		if (!block)
			break;
		if (!commit) {
			commit = chain_begin(chain, block, &err);
			if (!commit)
				break;
			delta = le64_to_cpu(block->delta);
			blocks = commit->info.block_count;
		}
		if (le32_to_cpu(block->index) != i || le32_to_cpu(block->blocks) != blocks ||
		    le64_to_cpu(block->delta) != delta)
			break;
		memcpy((u8 *)commit->payload + commit->bytes, block + 1, le32_to_cpu(block->used));
		commit->bytes += le32_to_cpu(block->used);
		commit->blocks[i++] = chain->addr;
		chain->addr = le64_to_cpu(block->next);
		chain->seq++;
	} while (i < blocks);

	if (!commit || err || i < blocks) {	/* torn: the last write of a crashed machine, or of nobody */
		if (commit)
			chain_commit_free(commit);
		if (i)
			vol->log.must_write = true;
		chain->addr = addr;
		chain->seq = seq;
		return err;
	}
	chain->blocks += blocks;
	commit->damaged = !commit_records_valid(vol, commit);
	commit->info.commit = commit->payload;
	commit->info.records = commit->info.commit + 1;
	list_add_tail(&commit->link, &chain->commits);
	return 1;
}

/* ---- did the data of the last commit reach the disk? ---- */

#define VERIFY_TORN 1		/* readable, but not what the commit wrote */

struct verify {
	struct volume *vol;
	void *data;		/* READ_AHEAD_BLOCKS blocks */
};

static int verify_extent(struct verify *verify, const struct record_extent *record, u32 len)
{
	struct volume *vol = verify->vol;
	u64 count = le64_to_cpu(record->count), addr = le64_to_cpu(record->addr), done, i, n;
	int err;

	if (!(le32_to_cpu(record->flags) & TUX3_EXTENT_CSUM))
		return 0;
	if (!apply_blocks_valid(vol, addr, count) || len != sizeof(*record) + count * sizeof(__le32))
		return VERIFY_TORN;
	for (done = 0; done < count; done += n) {
		n = min_t(u64, READ_AHEAD_BLOCKS, count - done);
		err = device_read(vol->dev, addr + done, n, verify->data);
		if (err)
			return err;
		for (i = 0; i < n; i++) {
			if (crc32c(~0u, (u8 *)verify->data + (i << vol->block_shift), vol->block_size) !=
			    le32_to_cpu(record->csum[done + i]))
				return VERIFY_TORN;
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

	if (!entry->pieces || !xattr_entry_size(entry, len - offsetof(struct record_xattr, entry)))
		return 0;
	for (i = 0; i < entry->pieces; i++, piece++) {
		for (b = 0; b < get_unaligned_le32(&piece->len) && left; b++) {
			u64 addr = get_unaligned_le64(&piece->addr) + b;
			int err = apply_blocks_valid(vol, addr, 1) ? device_read(vol->dev, addr, 1, verify->data) :
				  VERIFY_TORN;

			if (err)
				return err;
			bytes = min(left, vol->block_size);
			crc = crc32c(crc, verify->data, bytes);
			left -= bytes;
		}
	}
	return left || crc != le32_to_cpu(entry->value_crc) ? VERIFY_TORN : 0;
}

/* 0: all of the commit's data is there; VERIFY_TORN; or -errno: cannot tell. */
static int commit_verify_data(struct volume *vol, const struct log_commit *commit)
{
	struct verify verify = { .vol = vol };
	const struct disk_record *record;
	u32 at = 0;
	int err = 0;

	if (le32_to_cpu(commit->commit->flags) & TUX3_COMMIT_DATA_FLUSHED)
		return 0;
	verify.data = kvmalloc((size_t)READ_AHEAD_BLOCKS << vol->block_shift, GFP_KERNEL);
	if (!verify.data)
		return -ENOMEM;
	while (!err && log_next_record(commit->records, le32_to_cpu(commit->commit->bytes), &at, &record) == 1) {
		u32 len = le32_to_cpu(record->len);
		const void *payload = record + 1;

		if (le16_to_cpu(record->type) == TUX3_RECORD_EXTENT_MAP && len >= sizeof(struct record_extent))
			err = verify_extent(&verify, payload, len);
		else if (le16_to_cpu(record->type) == TUX3_RECORD_XATTR_SET &&
			 len >= offsetof(struct record_xattr, entry) + sizeof(struct disk_xattr))
			err = verify_xattr(&verify, payload, len);
	}
	kvfree(verify.data);
	return err;
}

/* Follow the chain to its end.  The last commit is marked torn where it is. */
static int chain_read(struct chain *chain)
{
	struct chain_commit *commit;
	int err;

	do {
		err = chain_read_commit(chain);
	} while (err == 1);
	if (err || list_empty(&chain->commits))
		return err;
	commit = list_entry(chain->commits.prev, struct chain_commit, link);
	err = commit->damaged ? VERIFY_TORN : commit_verify_data(chain->vol, &commit->info);
	if (err == VERIFY_TORN) {
		commit->info.torn = true;
		err = 0;
	}
	if (err)
		volume_warn(chain->vol, "the data of the newest commit (at block %llu) cannot be read, so that nobody knows whether it is complete",
			    (unsigned long long)commit->blocks[0]);
	if (err)
		return err;
	list_for_each_entry(commit, &chain->commits, link) {
		if (commit->damaged && !commit->info.torn) {
			volume_warn(chain->vol, "the log is damaged: the records of the commit at block %llu do not match their checksum, and it is not the last",
				    (unsigned long long)commit->blocks[0]);
			return -EIO;
		}
	}
	return 0;
}

static int chain_init(struct chain *chain, struct volume *vol)
{
	memset(chain, 0, sizeof(*chain));
	chain->vol = vol;
	INIT_LIST_HEAD(&chain->commits);
	chain->addr = le64_to_cpu(vol->anchor.log_addr);
	chain->seq = le64_to_cpu(vol->anchor.log_seq);
	chain->ahead = kvmalloc((size_t)READ_AHEAD_BLOCKS << vol->block_shift, GFP_KERNEL);
	return chain->ahead ? 0 : -ENOMEM;
}

int log_walk(struct volume *vol, log_commit_fn fn, void *ctx)
{
	struct chain_commit *commit;
	struct chain chain;
	int err = chain_init(&chain, vol);
	bool torn = vol->log.must_write;

	if (!err)
		err = chain_read(&chain);
	vol->log.must_write = torn;		/* only looking */
	if (!err) {
		list_for_each_entry(commit, &chain.commits, link) {
			if (commit->damaged)
				continue;
			err = fn(ctx, &commit->info);
			if (err)
				break;
		}
	}
	chain_exit(&chain);
	return err;
}

/* ---- replay ---- */

/* The free maps of the groups that the log names may be half written.  A torn commit names none: no unify followed. */
static int commit_note_groups(void *ctx, const struct log_commit *commit)
{
	const struct disk_record *record;
	struct volume *vol = ctx;
	u32 at = 0;
	int err = 0;

	while (!err && !commit->torn &&
	       log_next_record(commit->records, le32_to_cpu(commit->commit->bytes), &at, &record) == 1) {
		const struct record_group *group = (const void *)(record + 1);

		if (le16_to_cpu(record->type) == TUX3_RECORD_GROUP_TOUCHED && le32_to_cpu(record->len) >= sizeof(*group))
			err = balloc_note_in_log(vol, le64_to_cpu(group->group));
	}
	return err;
}

int log_note_groups(struct volume *vol)
{
	return log_walk(vol, commit_note_groups, vol);
}

static int replay_commit(struct volume *vol, const struct log_commit *commit)
{
	const struct disk_record *record;
	u32 at = 0;
	int more, err = 0;

	if (le64_to_cpu(commit->commit->delta) <= vol->delta.committed ||
	    le64_to_cpu(commit->commit->delta) >= S64_MAX) {
		volume_warn(vol, "the log goes on with delta %llu after delta %llu",
			    (unsigned long long)le64_to_cpu(commit->commit->delta),
			    (unsigned long long)vol->delta.committed);
		return -EIO;
	}
	vol->delta.applying = le64_to_cpu(commit->commit->delta);
	tree_edit_begin(vol);
	if (le32_to_cpu(commit->commit->flags) & TUX3_COMMIT_SNAPSHOT)
		tree_forget_appends(vol);
	while ((more = log_next_record(commit->records, le32_to_cpu(commit->commit->bytes), &at, &record)) == 1) {
		err = apply_record(vol, le16_to_cpu(record->type), record + 1, le32_to_cpu(record->len));
		if (err)
			break;
	}
	tree_edit_end(vol);
	if (more < 0)
		err = more;
	vol->log.freed.count = 0;	/* settled at the end of replay */
	vol->log.freed.blocks = 0;
	if (err) {
		volume_warn(vol, "replay of delta %llu stopped at byte %u of its records",
			    (unsigned long long)vol->delta.applying, at);
		return err;
	}
	if (vol->tree_inodes != le64_to_cpu(commit->commit->inodes)) {
		volume_warn(vol, "after delta %llu there are %llu inodes, but its commit says %llu",
			    (unsigned long long)vol->delta.applying, (unsigned long long)vol->tree_inodes,
			    (unsigned long long)le64_to_cpu(commit->commit->inodes));
		return -EIO;
	}
	if (le64_to_cpu(commit->commit->used_blocks) > vol->total_blocks) {
		volume_warn(vol, "the commit of delta %llu counts %llu data blocks, more than there are",
			    (unsigned long long)vol->delta.applying,
			    (unsigned long long)le64_to_cpu(commit->commit->used_blocks));
		return -EIO;
	}
	vol->delta.committed = vol->delta.applying;
	atomic64_set(&vol->balloc.data_used, le64_to_cpu(commit->commit->used_blocks));
	count_add(vol, TUX3_COUNT_REPLAYED, 1);
	return 0;
}

static int replay_commits(struct volume *vol, struct chain *chain)
{
	struct chain_commit *commit;
	u32 i;
	int err = 0;

	vol->log.replaying = true;
	list_for_each_entry(commit, &chain->commits, link) {
		if (!err)
			err = replay_commit(vol, &commit->info);
		for (i = 0; i < commit->info.block_count && !err; i++)
			err = range_list_add(&vol->log.blocks, commit->blocks[i], 1);
		vol->log.length += commit->info.block_count;
	}
	vol->log.replaying = false;
	return err;
}

int replay_log(struct volume *vol, char *why, size_t why_size)
{
	struct range_list log;
	struct chain_commit *commit;
	struct chain chain;
	int err = chain_init(&chain, vol);

	range_list_init(&log);
	if (!err)
		err = chain_read(&chain);
	if (!err && !list_empty(&chain.commits)) {
		commit = list_entry(chain.commits.prev, struct chain_commit, link);
		if (commit->info.torn) {	/* as if it had never been */
			volume_warn(vol, "the newest commit, delta %llu, was not complete when the power failed: the volume is as the delta before it left it",
				    (unsigned long long)le64_to_cpu(commit->info.first->delta));
			chain.addr = commit->blocks[0];
			chain.seq -= commit->info.block_count;
			vol->log.must_write = true;
			list_del(&commit->link);
			chain_commit_free(commit);
		}
	}
	vol->log.next_addr = chain.addr;
	vol->log.next_seq = chain.seq;
	list_for_each_entry(commit, &chain.commits, link) {
		if (!err)
			err = commit_note_groups(vol, &commit->info);
	}
	if (!err)
		err = replay_commits(vol, &chain);
	list_for_each_entry(commit, &chain.commits, link) {
		u32 i;

		for (i = 0; i < commit->info.block_count && !err; i++)
			err = range_list_add(&log, commit->blocks[i], 1);
	}
	if (!err)
		err = range_list_add(&log, vol->log.next_addr, 1);
	if (!err)
		err = balloc_settle(vol, &log);
	if (err)
		snprintf(why, why_size, err == -ENOMEM ? "out of memory while replaying the log" :
			 "the log cannot be replayed (error %d, see the messages); open read-only with norecovery to see the state of the last unify", err);
	range_list_exit(&log);
	chain_exit(&chain);
	return err;
}
