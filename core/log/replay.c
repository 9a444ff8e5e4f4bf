// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Replay: at open, what the log holds takes the tree of the anchor to the last commit that counts.
 *
 * The chain is followed to its end, which is judged (log_end.c); nothing but a header of each commit is kept.  Then the
 * commits are read again, one after the other and a batch of records at a time: first the leaves and free maps that a
 * batch needs are read, many at once (prefetch.c), then it is applied.  So neither memory nor time depends on more than the
 * length of the log and the number of nodes and groups that it changes, which writers keep within bounds (delta.c).
 *
 * No block is allocated: a dirty tree node has none until a unify writes it (tree.h), and by then it is known which ones
 * the log occupies (balloc_settle).
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/log/apply.h"
#include "core/log/log_read.h"
#include "core/log/prefetch.h"
#include "core/log/replay.h"

#define BATCH_BYTES	(256u << 10)	/* of records */

static_assert(BATCH_BYTES >= 2 * LOG_RECORD_BYTES_MAX);

struct replay {
	struct volume *vol;
	struct log_chain chain;
	struct prefetch *prefetch;
	u8 *batch;
	u32 bytes;
	struct range_list log;		/* what balloc_settle() shall know of */
};

/* ---- walking through it ---- */

typedef int (*record_fn)(void *ctx, const struct disk_record *record);

static int commit_each_record(struct log_chain *chain, const struct log_found *commit, record_fn fn, void *ctx)
{
	struct log_stream stream = {};
	struct disk_record *record;
	int err = log_stream_open(&stream, &chain->reader, commit), more = 1;

	while (!err && more) {
		more = log_stream_next(&stream, &record);
		err = more > 0 ? fn(ctx, record) : more;
	}
	log_stream_close(&stream);
	return err;
}

struct note {
	struct volume *vol;
	struct prefetch *prefetch;	/* or NULL */
};

static int note_group(void *ctx, u64 group)
{
	struct note *note = ctx;

	if (note->prefetch)
		prefetch_add_group(note->prefetch, group);
	return balloc_note_in_log(note->vol, group);
}

static int note_groups(void *ctx, const struct disk_record *record)
{
	if (le16_to_cpu(record->type) != TUX3_RECORD_GROUP_TOUCHED)
		return 0;
	return log_for_groups(record + 1, le32_to_cpu(record->len), note_group, ctx);
}

/* The free maps of the groups that the log names may be half written.  A torn commit names none: no unify followed. */
static int chain_note_groups(struct log_chain *chain, struct prefetch *prefetch)
{
	struct note note = { chain->reader.vol, prefetch };
	u32 i;
	int err = 0;

	for (i = 0; i < chain->count && !err; i++) {
		if (!chain->commits[i].torn && !chain->commits[i].damaged)
			err = commit_each_record(chain, &chain->commits[i], note_groups, &note);
	}
	return err;
}

int log_note_groups(struct volume *vol)
{
	struct log_chain chain;
	bool must_write;
	int err = log_chain_read(&chain, vol);

	if (!err)
		err = log_end_judge(&chain, &must_write);
	if (!err)
		err = chain_note_groups(&chain, NULL);
	log_chain_exit(&chain);
	return err;
}

struct walk {
	u8 *records;
	u32 bytes;
	u64 *addrs;
	u32 count;
};

static int walk_block(void *ctx, u64 addr)
{
	struct walk *walk = ctx;

	walk->addrs[walk->count++] = addr;
	return 0;
}

/* All of one commit in memory. */
static int walk_commit(struct log_chain *chain, struct log_found *found, log_commit_fn fn, void *ctx)
{
	u32 bytes = le32_to_cpu(found->head.bytes);
	struct walk walk = {
		.records = kvmalloc(max(bytes, 1u), GFP_KERNEL | __GFP_NOWARN),
		.addrs = kvmalloc(found->blocks * sizeof(u64), GFP_KERNEL | __GFP_NOWARN),
	};
	struct log_stream stream = { .block_fn = walk_block, .ctx = &walk };
	struct log_commit commit = {
		.commit = &found->head, .records = walk.records, .blocks = walk.addrs, .torn = found->torn,
	};
	struct disk_record *record;
	struct disk_log first;
	int err = -ENOMEM, more = 1;

	if (walk.records && walk.addrs)
		err = log_stream_open(&stream, &chain->reader, found);
	while (!err && more) {
		more = log_stream_next(&stream, &record);
		if (walk.count && !commit.first) {
			first = *stream.block;
			commit.first = &first;
		}
		if (more > 0) {
			u32 size = sizeof(*record) + round_up(le32_to_cpu(record->len), 8);

			memcpy(walk.records + walk.bytes, record, size);
			walk.bytes += size;
		}
		err = min(more, 0);
	}
	commit.block_count = walk.count;
	if (!err)
		err = fn(ctx, &commit);
	log_stream_close(&stream);
	kvfree(walk.records);
	kvfree(walk.addrs);
	return err;
}

int log_walk(struct volume *vol, log_commit_fn fn, void *ctx)
{
	struct log_chain chain;
	bool must_write;
	u32 i;
	int err = log_chain_read(&chain, vol);

	if (!err)
		err = log_end_judge(&chain, &must_write);
	if (chain.why[0] && err)
		volume_warn(vol, "%s", chain.why);
	for (i = 0; i < chain.count && !err; i++) {
		if (!chain.commits[i].damaged)
			err = walk_commit(&chain, &chain.commits[i], fn, ctx);
	}
	log_chain_exit(&chain);
	return err;
}

/* ---- replay ---- */

static int batch_apply(struct replay *replay)
{
	struct volume *vol = replay->vol;
	const struct disk_record *record;
	u32 at = 0;
	int more, err = 0;

	prefetch_run(replay->prefetch);
	tree_edit_begin(vol);
	while (!err && (more = log_next_record(replay->batch, replay->bytes, &at, &record)) != 0) {
		err = more < 0 ? more :
		      apply_record(vol, le16_to_cpu(record->type), record + 1, le32_to_cpu(record->len));
		/* Which nodes are merged is of no matter where a tree was put together anew.  But a mount would stop here. */
		if (more > 0 && err == -EIO && vol->opts.mend && le16_to_cpu(record->type) == TUX3_RECORD_TREE_MERGE) {
			vol->opts.mend->log_odd(vol->opts.mend, "The log, which merges nodes that cannot be merged, was begun anew");
			err = 0;
		}
		if (more > 0)
			err = volume_leave_out(vol, err, "A record of type %u in the log, of delta %llu, does not fit what is there (%s); it is left out",
					       le16_to_cpu(record->type), (unsigned long long)vol->delta.applying, error_text(err));
	}
	tree_edit_end(vol);
	tree_edit_leave(vol);
	replay->bytes = 0;
	vol->log.freed.count = 0;	/* settled at the end of replay */
	vol->log.freed.blocks = 0;
	return err;
}

static int batch_add(void *ctx, const struct disk_record *record)
{
	struct replay *replay = ctx;
	u32 size = sizeof(*record) + round_up(le32_to_cpu(record->len), 8);
	int err = 0;

	if (replay->bytes + size > BATCH_BYTES || prefetch_full(replay->prefetch))
		err = batch_apply(replay);
	memcpy(replay->batch + replay->bytes, record, size);
	replay->bytes += size;
	prefetch_add_record(replay->prefetch, record);
	return err;
}

static int replay_note_block(void *ctx, u64 addr)
{
	struct replay *replay = ctx;
	int err = range_list_add(&replay->vol->log.blocks, addr, 1);

	return err ? err : range_list_add(&replay->log, addr, 1);
}

static int replay_records(struct replay *replay, const struct log_found *commit)
{
	struct log_stream stream = { .block_fn = replay_note_block, .ctx = replay };
	struct disk_record *record;
	int err, more = 1;

	err = log_stream_open(&stream, &replay->chain.reader, commit);
	while (!err && more) {
		more = log_stream_next(&stream, &record);
		err = more > 0 ? batch_add(replay, record) : more;
	}
	if (!err)
		err = batch_apply(replay);
	log_stream_close(&stream);
	return err;
}

/* What the commit says of the state after it. */
static int replay_check(struct volume *vol, const struct disk_commit *commit)
{
	if (vol->tree_inodes != le64_to_cpu(commit->inodes)) {
		volume_warn(vol, "after delta %llu there are %llu inodes, but its commit says %llu",
			    (unsigned long long)vol->delta.applying, (unsigned long long)vol->tree_inodes,
			    (unsigned long long)le64_to_cpu(commit->inodes));
		return -EIO;
	}
	/* A block that a file gave back may have been another's in the commit, and is nobody's here: so these may differ. */
	if (atomic64_read(&vol->balloc.data_used) != (s64)le64_to_cpu(commit->used_blocks) && !vol->balloc.foreign) {
		volume_warn(vol, "after delta %llu there are %lld data blocks, but its commit says %llu",
			    (unsigned long long)vol->delta.applying, (long long)atomic64_read(&vol->balloc.data_used),
			    (unsigned long long)le64_to_cpu(commit->used_blocks));
		return -EIO;
	}
	return 0;
}

static int replay_commit(struct replay *replay, const struct log_found *commit)
{
	struct volume *vol = replay->vol;
	u64 delta = le64_to_cpu(commit->head.delta);
	int err;

	if (delta <= vol->delta.committed || delta >= TUX3_COUNT_MAX) {
		volume_warn(vol, "the log goes on with delta %llu after delta %llu", (unsigned long long)delta,
			    (unsigned long long)vol->delta.committed);
		return -EIO;
	}
	vol->delta.applying = delta;
	if (le32_to_cpu(commit->head.flags) & TUX3_COMMIT_SNAPSHOT) {
		tree_edit_begin(vol);
		tree_forget_appends(vol);
		apply_settle_counts(vol);
		tree_edit_end(vol);
	}
	err = volume_leave_out(vol, replay_records(replay, commit), "What the log has of delta %llu could not be read to its end",
			       (unsigned long long)delta);
	if (err) {
		volume_warn(vol, "replay of delta %llu, whose log begins at block %llu, failed (%s)",
			    (unsigned long long)delta, (unsigned long long)commit->addr, error_text(err));
		return err;
	}
	err = volume_leave_out(vol, replay_check(vol, &commit->head), "What the commit of delta %llu counts is not what there is",
			       (unsigned long long)delta);
	if (err)
		return err;
	vol->delta.committed = delta;
	vol->log.intent = commit->head.intent;
	vol->log.length += commit->blocks;
	count_add(vol, TUX3_COUNT_REPLAYED, 1);
	return 0;
}

/*
 * Where the log goes on.  At next, unless that cannot be read, or there is something at after that a reader would take for
 * the next block; then at after.  Blocks behind the end may have the next numbers, so those are skipped, and all up to the latest
 * that is known: what a cut leaves out, or has left out here before, is never taken for a later part.  At random, so that what
 * is not known of has no number that is given again.
 */
static int replay_set_end(struct replay *replay)
{
	struct log_chain *chain = &replay->chain;
	const struct log_place *end = &chain->end;
	struct log *log = &replay->vol->log;
	u32 margin = chain->goes_on ? LOG_SKIP_CUT : LOG_SKIP;
	bool detour, bad;
	int err;

	if (chain->count && chain->commits[chain->count - 1].torn) {
		chain->end = chain->commits[chain->count - 1].place;
		chain->count--;
	}
	bad = chain->stop_err && chain->stop.addr == end->addr;
	detour = bad || chain->goes_on || log_reader_block(&chain->reader, end->after, end->seq, &err);
	log->next_addr = detour ? end->after : end->addr;
	log->after_addr = detour || chain->stop_err ? 0 : end->after;
	log->next_seq = end->seq;
	log->skip = 0;
	if (log->must_write)
		log->skip = chain->latest - end->seq + margin + get_random_u32() % margin;
	err = range_list_add(&replay->log, end->addr, 1);
	return err ? err : range_list_add(&replay->log, end->after, 1);
}

#define TOUCH_WORDS 4u		/* so many groups, times 64, have their maps read together */

static int touch_prefetch(void *ctx, u64 group)
{
	prefetch_add_group(ctx, group);
	return 0;
}

static int touch_groups(void *ctx, const struct disk_record *record)
{
	const struct record_group *groups = (const void *)(record + 1);
	struct replay *replay = ctx;
	struct {
		struct record_group head;
		__le64 bits[TOUCH_WORDS];
	} part;
	u32 words, i, n, len = le32_to_cpu(record->len);
	int err = 0;

	/* A record that is not valid is told of when its turn comes. */
	if (le16_to_cpu(record->type) != TUX3_RECORD_GROUP_TOUCHED || len < sizeof(*groups) ||
	    (len - sizeof(*groups)) % sizeof(__le64))
		return 0;
	words = (len - sizeof(*groups)) / sizeof(__le64);
	for (i = 0; i < words && !err; i += n) {
		n = min(words - i, TOUCH_WORDS);
		len = sizeof(part.head) + n * sizeof(__le64);
		part.head.group = cpu_to_le64(le64_to_cpu(groups->group) + 64ULL * i);
		memcpy(part.bits, groups->bits + i, n * sizeof(__le64));
		log_for_groups(&part, len, touch_prefetch, replay->prefetch);
		prefetch_run(replay->prefetch);
		err = apply_record(replay->vol, TUX3_RECORD_GROUP_TOUCHED, &part, len);
	}
	return err;
}

/*
 * The log names more groups than stay in memory until they are used: all become part of the next snapshot now, a part after
 * the other, since those do stay.
 */
static int replay_touch_all(struct replay *replay)
{
	struct log_chain *chain = &replay->chain;
	int err = 0;
	u32 i;

	for (i = 0; i < chain->count && !err; i++) {
		if (!chain->commits[i].torn && !chain->commits[i].damaged)
			err = commit_each_record(chain, &chain->commits[i], touch_groups, replay);
	}
	return err;
}

/* What the intent area holds is looked at later: until then it is kept. */
static int replay_note_intents(struct replay *replay)
{
	const struct disk_intent_place *place = &replay->vol->log.intent;
	u64 addr = le64_to_cpu(place->addr);
	u32 blocks = le32_to_cpu(place->blocks);

	if (!addr)
		return 0;
	if (!blocks || !apply_blocks_valid(replay->vol, addr, blocks) || le32_to_cpu(place->offset) > blocks) {
		volume_warn(replay->vol, "the log names %u blocks from block %llu on for intents, which cannot hold them", blocks,
			    (unsigned long long)addr);
		return -EIO;
	}
	return range_list_add(&replay->log, addr, blocks);
}

static int replay_run(struct replay *replay)
{
	struct volume *vol = replay->vol;
	bool many;
	u32 i;
	int err = log_chain_read(&replay->chain, vol);

	if (!err)
		err = log_end_judge(&replay->chain, &vol->log.must_write);
	if (!err)
		err = replay_set_end(replay);
	if (!err)
		err = chain_note_groups(&replay->chain, replay->prefetch);
	many = prefetch_full(replay->prefetch);
	prefetch_run(replay->prefetch);		/* the maps of all that is going to change */
	vol->log.replaying = true;
	if (!err && many)
		err = replay_touch_all(replay);
	for (i = 0; i < replay->chain.count && !err; i++)
		err = replay_commit(replay, &replay->chain.commits[i]);
	vol->log.replaying = false;
	if (!err)
		err = replay_note_intents(replay);
	if (vol->opts.mend && err && err != -ENOMEM)
		memset(&vol->log.intent, 0, sizeof(vol->log.intent));
	err = volume_leave_out(vol, err, "The log cannot be replayed beyond delta %llu (%s); what it has after that is left out",
			       (unsigned long long)vol->delta.committed, error_text(err));
	if (!err)
		err = balloc_settle(vol, &replay->log);
	if (likely(!err || !vol->opts.mend || err == -ENOMEM))
		return err;
	/* The free maps are made anew afterwards; the log must not stay where it is. */
	vol->opts.mend->log_odd(vol->opts.mend, "The log, which claims blocks that something else has, was begun anew");
	return 0;
}

int replay_log(struct volume *vol, char *why, size_t why_size)
{
	struct replay replay = { .vol = vol };
	int err = -ENOMEM;

	range_list_init(&replay.log);
	replay.batch = kvmalloc(BATCH_BYTES, GFP_KERNEL);
	replay.prefetch = prefetch_create(vol);
	if (replay.batch)
		err = replay_run(&replay);
	if (err && replay.chain.why[0])
		strscpy(why, replay.chain.why, why_size);
	else if (err)
		snprintf(why, why_size, err == -ENOMEM ? "out of memory while replaying the log" :
			 "the log cannot be replayed (%s, see the messages); open read-only with norecovery to see the state of the last unify", error_text(err));
	log_chain_exit(&replay.chain);
	prefetch_free(replay.prefetch);
	kvfree(replay.batch);
	range_list_exit(&replay.log);
	return err;
}
