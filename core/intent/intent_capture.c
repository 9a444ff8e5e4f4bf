// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What an fsync makes durable ahead of its delta: captured inside that, as a request.
 *
 * Names that have changed may belong to another file, too, which must be what it was when it got its own: has that one changed
 * since it was last durable, its intent is written before, in the same request (intent_part).  So is that of a directory that
 * is new.
 *
 * An inode fits if it can be said in an intent what it is, whether the newest durable delta is the one it is now or
 * the one under way: what was changed since must be attributes, data, ranges removed, xattrs, that it was made, or
 * names with few others that go with them (name_closure.h); of a directory, such names.  All that is looked at inside
 * the delta, so the front delta stays the front delta.  The back end may finish a commit meanwhile, and takes away
 * first what that removed, then what it wrote.  So data is looked at first: who finds blocks clean that were written
 * into a hole does not find the hole, which would take them away.
 */
#include "core/volume.h"
#include "core/delta/delta.h"
#include "core/delta/pace.h"
#include "core/delta/space.h"
#include "core/inode/early.h"
#include "core/inode/file_range.h"
#include "core/inode/inode.h"
#include "core/inode/inode_quota.h"
#include "core/inode/xattr.h"
#include "core/log/apply.h"
#include "core/names/name_change.h"
#include "core/names/name_closure.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/data/data.h"
#include "core/data/data_change.h"
#include "core/data/delete.h"
#include "core/data/reach.h"
#include "core/intent/intent.h"
#include "core/intent/intent_internal.h"
#include "core/intent/intent_request.h"

#define PREALLOC_MAX	16u		/* ranges of one delta that are looked at */
#define PUNCHES_MAX	2u		/* all of the file, in the front delta and in the back one */
#define PUNCH_BYTES	(sizeof(struct disk_record) + sizeof(struct record_extent))
#define XATTR_BYTES	2048u
#define INTENT_BYTES	(sizeof(struct disk_intent) + INTENT_RUNS_MAX * (sizeof(struct disk_intent_run) + 4) + \
			 PUNCHES_MAX * PUNCH_BYTES + XATTR_BYTES + CLOSURE_BYTES + TUX3_NAME_MAX)	/* and 4 for each block */
#define LARGE_BYTES	(32u << 20)	/* so much may be data of large files that is not written yet */

static bool part_is_dir(const struct intent_part *part)
{
	return S_ISDIR(READ_ONCE(part->inode->attr.mode));
}

/* Those that were grabbed. */
static void parts_release(struct intent_parts *parts)
{
	u32 i;

	for (i = 0; i < parts->count; i++)
		if (parts->part[i].beside)
			parts->part[i].inode->vol->host->inode_release(parts->part[i].inode);
	parts->count = 0;
}

void intent_request_free(struct intent_request *request)
{
	parts_release(&request->parts);
	atomic64_sub(request->large, &request->vol->intent.large);
	kvfree(request->data);
	kvfree(request);
}

/* ---- does the inode fit? ---- */

static bool slot_fits(const struct inode_slot *slot)
{
	return !(slot->dirty & ~(INODE_DIRTY_ATTR | INODE_DIRTY_DATA | INODE_DIRTY_ATIME | INODE_DIRTY_XATTRS)) &&
	       slot->cut == DATA_END && !slot->unchecked_end;
}

static bool blocks_are_dirty(struct tux3_inode *inode, u64 block, u64 end)
{
	u64 found, count;

	while (block < end && inode->vol->host->data_dirty(inode, block, end, &found, &count) && found == block)
		block += count;
	return block >= end;
}

/*
 * With the lock of the file.  An intent cannot say that blocks are preallocated: so each must have its data by now.  Who saves a
 * file mostly writes all that he has asked for.  (A commit that is done meanwhile leaves clean blocks: then there is none to say.)
 */
static bool prealloc_is_written(struct tux3_inode *inode)
{
	u64 block, here;
	u32 i, ranges;
	bool in;

	for (i = 0; i < 2; i++) {
		for (block = 0, ranges = 0; block < DATA_END; block += here) {
			spin_lock(&inode->lock);
			in = file_ranges_find(&inode->slot[i].prealloc, block, &here);
			spin_unlock(&inode->lock);
			here = min(here, DATA_END - block);
			if (in && (++ranges > PREALLOC_MAX || !blocks_are_dirty(inode, block, block + here)))
				return false;
		}
	}
	return true;
}

/* New, with the one name that it was made with; and its delta is not being released. */
static bool inode_has_new_name(const struct tux3_inode *inode)
{
	u32 i;

	lockdep_assert_held(&inode->lock);
	for (i = 0; i < 2; i++)
		if (inode->slot[i].tie || inode->slot[i].ties || inode->slot[i].untied)
			return false;
	return inode->born_delta > inode->vol->intent.retired && inode->born_dir &&
	       (S_ISDIR(inode->attr.mode) ? inode->attr.nlink >= 2 : inode->attr.nlink == 1);
}

/* Are there names of it to be said, and more than that one? */
static bool inode_needs_closure(struct tux3_inode *inode, u64 durable)
{
	bool needs;

	spin_lock(&inode->lock);
	needs = inode->names_delta > durable && !inode_has_new_name(inode);
	spin_unlock(&inode->lock);
	return needs;
}

/* That name, in a directory that is there on whichever base.  0; -EAGAIN: it leads elsewhere, or that is not there. */
static int capture_new_name(struct intent_part *part, struct intent_request *request, char *name)
{
	struct tux3_inode *inode = part->inode;
	unsigned int len;

	lockdep_assert_held(&inode->lock);
	if (!inode_has_new_name(inode))
		return -EAGAIN;
	if (!closure_has(&request->closure, inode->born_dir)) {
		request->closure.lacks = inode->born_dir;
		return -EAGAIN;
	}
	len = name_go_ahead(inode->born_dir, inode->born_entry, inode->ino, inode->born_delta, request->said, name);
	part->intent->dir = cpu_to_le64(inode->born_dir->ino);
	part->intent->name_len = len;
	part->made = len;
	return len ? 0 : -EAGAIN;
}

/*
 * With the name its directory gets the time at which that was made.  If its own were set back since, they are not as the intent by
 * which it is there has them.
 */
static void note_times(const struct intent_part *part)
{
	const struct tux3_inode *inode = part->inode;
	struct tux3_inode *dir = inode->born_dir;

	lockdep_assert_held(&inode->vol->intent.capture);
	if (!part->made)
		return;
	spin_lock(&dir->lock);
	if (time_is_before(&dir->attr.mtime, &inode->attr.btime) || time_is_before(&dir->attr.ctime, &inode->attr.btime))
		dir->changes++;
	spin_unlock(&dir->lock);
}

/* Its name, if it has no other to be said.  0, or -EAGAIN: what is to be said is not. */
static int capture_name(struct intent_part *part, u64 durable, struct intent_request *request, char *name)
{
	struct tux3_inode *inode = part->inode;

	if (part->makes)
		return capture_new_name(part, request, name);
	if (part->beside)	/* its names are in the closure of the last one */
		return 0;
	if (request->closure.inodes)
		return closure_fits(&request->closure, inode) ? 0 : -EAGAIN;
	return inode->names_delta <= durable ? 0 : capture_new_name(part, request, name);
}

static void punch_record(struct tux3_inode *inode, const struct inode_range *range, void *at)
{
	struct record_extent *record = log_begin_record(at, TUX3_RECORD_EXTENT_PUNCH, sizeof(*record));

	*record = (struct record_extent){
		.ino = cpu_to_le64(inode->ino), .block = cpu_to_le64(range->block), .count = cpu_to_le64(range->count),
	};
}

/*
 * What has been removed, as far as it is in no commit yet: how many ranges; at: their records, or NULL.  -EAGAIN: not all of the
 * file.  How many blocks a part had only the commit finds out, and after an fsync stat(2) is to say what there is.
 */
static int capture_removed(struct tux3_inode *inode, u8 *at)
{
	struct inode_range *range;
	u32 count = 0, i;

	lockdep_assert_held(&inode->lock);
	for (i = 0; i < 2; i++) {
		range = file_ranges_first(&inode->slot[i].removed);
		if (!range)
			continue;
		if (range->block || range->count != DATA_END)
			return -EAGAIN;
		if (at)
			punch_record(inode, range, at + count * PUNCH_BYTES);
		count++;
	}
	return count;
}

/* The inode as it is now, without its data and xattrs: 0 or -EAGAIN. */
static int capture_inode(struct intent_part *part, u64 delta, u64 durable, struct intent_request *request, u8 **at, char *name)
{
	struct disk_intent *intent = part->intent;
	struct tux3_inode *inode = part->inode;
	struct tux3_attr *attr = &inode->attr;
	int err = -EAGAIN, punches;

	spin_lock(&inode->lock);
	if (!S_ISREG(attr->mode) || !attr->nlink || READ_ONCE(inode->cutting) || !slot_fits(&inode->slot[0]) ||
	    !slot_fits(&inode->slot[1]))
		goto out;
	/* Inline, and its data is not here: what it would become is for a commit to find out. */
	if (!part->first && (attr->flags & TUX3_ATTR_INLINE || inode->stored_delta > durable))
		goto out;
	punches = capture_removed(inode, *at);
	if (punches < 0)
		goto out;
	*at += punches * PUNCH_BYTES;
	err = capture_name(part, durable, request, name);
	if (err)
		goto out;
	intent->delta = cpu_to_le64(delta);
	intent->ino = cpu_to_le64(inode->ino);
	intent->beside = part->beside;
	inode->slot[delta & 1].stored = false;	/* the commit of this delta, which supersedes the intent, does not put it off */
	attr_to_disk(&intent->attr, attr, 0);
	intent->attr.flags = cpu_to_le32(attr->flags & TUX3_ATTR_SETTABLE);
out:
	spin_unlock(&inode->lock);
	return err;
}

/* ---- its data ---- */

/* What is looked at now is for a capture in the delta that is open, or in the next one. */
static u64 needed_until(struct volume *vol)
{
	return READ_ONCE(vol->delta.front) + 1;
}

/*
 * Is what intents have said of it all there is to say but for what is fresh?  Each intent on whose base the last one
 * does not count has it in that base.  But what was removed is said again, before the blocks; and where a base may
 * have the file inline, block 0 must be in the intent.
 */
static bool told_holds(struct tux3_inode *inode, u64 durable)
{
	lockdep_assert_held(&inode->lock);
	return READ_ONCE(inode->told) && inode->told_durable && RB_EMPTY_ROOT(&inode->slot[0].removed) &&
	       RB_EMPTY_ROOT(&inode->slot[1].removed) && !(inode->attr.flags & TUX3_ATTR_INLINE) && inode->stored_delta <= durable;
}

static bool data_is_mapped(struct tux3_inode *inode)
{
	return inode->vol->host->data_mapped && inode->vol->host->data_mapped(inode);
}

/*
 * With the lock of the file: a new intent of it.  What comes through a mapping from here on says so, but for what is mapped now.
 * Who maps the file just now has either said so since told is set, or is seen by the second look.
 */
static void span_begin(struct tux3_inode *inode, struct span *span)
{
	struct volume *vol = inode->vol;
	bool mapped = data_is_mapped(inode);
	u64 durable = READ_ONCE(vol->delta.committed);

	*span = (struct span){ .end = (TUX3_SIZE_MAX >> vol->block_shift) + 1, .told = atomic64_inc_return(&vol->intent.captures) };
	spin_lock(&inode->lock);
	if (!mapped && told_holds(inode, durable)) {
		span->from = inode->fresh;
		span->end = inode->fresh_end;
	}
	early_drop(inode, span->from, span->end);
	/* A file that is small enough may become inline. */
	if (mapped || inode->attr.size <= data_inline_max(vol->block_size))
		span->told = 0;
	WRITE_ONCE(inode->told, span->told);
	inode->told_durable = false;
	inode->fresh = DATA_END;
	inode->fresh_end = 0;
	spin_unlock(&inode->lock);
	smp_mb();		/* pairs with what makes a mapping */
	if (unlikely(!mapped && data_is_mapped(inode)))
		inode_note_all(inode);
}

/* How many blocks are dirty, if they are no more than an intent has room for. */
static int count_dirty(struct tux3_inode *inode, const struct span *span, u32 *blocks)
{
	u32 max = INTENT_DATA_BYTES >> inode->vol->block_shift, runs = 0;
	u64 block = span->from, count;

	*blocks = 0;
	while (block < span->end && inode->vol->host->data_dirty(inode, block, span->end, &block, &count)) {
		if (++runs > INTENT_RUNS_MAX || count > max - *blocks)
			return -EAGAIN;
		*blocks += count;
		block += count;
	}
	return 0;
}

/*
 * Can what this changes be read?  A commit would leave it out, and say so; an intent says that all is well, and is met by the next
 * mount, or superseded by a commit.  So what has been read stays in memory until then: the device may not have it any more.
 */
static int need(struct tux3_inode *inode, u8 type, u64 from, u64 to)
{
	struct tree_key first = tree_key(inode->ino, type, from), last = tree_key(inode->ino, type, to);

	return tree_need(inode->vol, &first, &last, needed_until(inode->vol)) ? 0 : -EAGAIN;
}

static int item_can_be_read(struct tux3_inode *inode, u8 type)
{
	int err = reach_item(inode, type);

	return err ? err : need(inode, type, 0, 0);
}

static int xattr_can_be_read(struct tux3_inode *inode, u64 hash)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_XATTR, hash);
	int err = reach_xattr(inode, hash);

	if (!err)
		err = delete_need_maps(inode->vol, &key, &key, needed_until(inode->vol));
	return err ? err : need(inode, TUX3_ITEM_XATTR, hash, hash);
}

/* Mostly the leaf is in memory. */
static int run_can_be_read(struct tux3_inode *inode, u64 block, u64 count)
{
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_EXTENT, block);
	struct tree_key to = tree_key(inode->ino, TUX3_ITEM_EXTENT, block + count);
	struct node_key low;
	int err = 0;

	if (!tree_leaf_of(inode->vol, &from, &to, &low) || !balloc_all_loaded(inode->vol))
		err = reach_all(inode, block, count);
	if (err)
		return err;
	err = reach_need_maps(inode, block, count, needed_until(inode->vol));
	return err ? err : need(inode, TUX3_ITEM_EXTENT, block, count > DATA_END - block ? DATA_END : block + count);
}

/* Outside the delta.  -EAGAIN: that is for a commit to find out; so what will not fit is not looked at. */
static int part_can_be_read(struct intent_part *part)
{
	struct tux3_inode *inode = part->inode;
	u64 block = part->span.from, count;
	int removed, err;

	part->looked = needed_until(inode->vol);
	if (inode_quota_look(inode, part->looked))
		return -EAGAIN;
	/* Made in the delta that is open: its commit finds the place that was looked at then; the next one, what that has made. */
	if (!READ_ONCE(inode->in_tree) && READ_ONCE(inode->born_delta) == part->looked - 1) {
		part->looked--;
		return 0;
	}
	spin_lock(&inode->lock);
	removed = slot_fits(&inode->slot[0]) && slot_fits(&inode->slot[1]) ? capture_removed(inode, NULL) : -EAGAIN;
	spin_unlock(&inode->lock);
	if (removed < 0 || READ_ONCE(inode->stuck) || !prealloc_is_written(inode))
		return -EAGAIN;
	err = item_can_be_read(inode, TUX3_ITEM_ATTR);
	if (!err)
		err = xattr_look(inode, xattr_can_be_read);
	if (!err && removed)
		err = run_can_be_read(inode, 0, DATA_END);
	if (!err && data_maybe_inline(inode->vol, READ_ONCE(inode->attr.flags), READ_ONCE(inode->attr.size)))
		err = item_can_be_read(inode, TUX3_ITEM_INLINE);
	while (!err && block < part->span.end && inode->vol->host->data_dirty(inode, block, part->span.end, &block, &count)) {
		err = run_can_be_read(inode, block, count);
		block += count;
	}
	return err ? -EAGAIN : 0;
}

/* A run of dirty blocks: copied, and its record at *at, without checksums: others wait for the capture. */
static int capture_run(struct intent_part *part, u64 delta, struct intent_request *request, u64 block, u32 count, u8 **at)
{
	struct tux3_inode *inode = part->inode;
	struct volume *vol = inode->vol;
	struct disk_intent_run *run = (struct disk_intent_run *)*at;
	u32 i;

	run->block = cpu_to_le64(block);
	run->count = cpu_to_le32(count);
	/* The back end is about to take them, for one: the next try will find that done. */
	if (vol->host->data_settle && !vol->host->data_settle(inode, delta, block, count))
		return -ESTALE;
	for (i = 0; i < count; i++)
		if (!vol->host->data_peek(inode, block + i, (u8 *)request->data + ((u64)request->blocks++ << vol->block_shift)))
			return -EAGAIN;
	*at += intent_run_bytes(count);
	part->blocks += count;
	part->first |= !block;
	return 0;
}

/* No more than the blocks that were counted: a store into a mapping may have made another one dirty. */
static int capture_data(struct intent_part *part, u64 delta, struct intent_request *request, u8 **at)
{
	u64 block = part->span.from, end = part->span.end, count;
	struct tux3_inode *inode = part->inode;
	u32 runs = 0;
	int err = 0;

	while (!err && block < end && inode->vol->host->data_dirty(inode, block, end, &block, &count)) {
		if (runs == INTENT_RUNS_MAX || count > part->max - part->blocks)
			return -EAGAIN;
		err = capture_run(part, delta, request, block, count, at);
		runs++;
		block += count;
	}
	part->intent->runs = cpu_to_le32(runs);
	return err;
}

/* ---- capture ---- */

/* Carrying it out may change what making it does; or, as its names do, what a rename does. */
static int capture_cost_dir(const struct intent_part *part, u64 *cost)
{
	struct tux3_inode *inode = part->inode;
	struct volume *vol = inode->vol;

	if (!part->beside) {
		*cost = space_cost_replace(vol, TUX3_NAME_MAX, TUX3_NAME_MAX);
		return 0;
	}
	/* The tree may have it, as one without a name. */
	*cost = space_cost_items(vol, SPACE_ITEMS_LINK) + space_cost_name(TUX3_NAME_MAX);
	return min(xattr_pending(inode, NULL, XATTR_BYTES, cost), 0);
}

/*
 * Carrying it out may change what making a file does; and what was removed, and xattrs.  For names that were changed
 * otherwise who did it has paid in the deltas that are not durable, but not for what comes of them in another order:
 * as much as a rename. -EAGAIN: it does not fit.
 */
static int capture_cost(const struct intent_part *part, u64 *cost)
{
	struct tux3_inode *inode = part->inode;
	struct volume *vol = inode->vol;
	int punches, got;

	if (part_is_dir(part))
		return capture_cost_dir(part, cost);
	*cost = space_cost_items(vol, SPACE_ITEMS_LINK) + space_cost_name(TUX3_NAME_MAX) + space_cost_data(vol, part->max, 0);
	if (inode_needs_closure(inode, READ_ONCE(vol->delta.committed)))
		*cost += space_cost_replace(vol, 0, TUX3_NAME_MAX);
	got = xattr_pending(inode, NULL, XATTR_BYTES, cost);
	if (got < 0)
		return got;
	spin_lock(&inode->lock);
	punches = capture_removed(inode, NULL);
	spin_unlock(&inode->lock);
	if (punches > 0 && !space_cost_add(cost, space_cost_items(vol, punches * SPACE_ITEMS_REMOVE) +
					  space_cost_records(punches * PUNCH_BYTES)))
		return -EAGAIN;
	return min(punches, 0);
}

/* -EAGAIN: a part does not fit, or all together are more than one operation may cost. */
static int capture_costs(const struct intent_parts *parts, u64 *cost)
{
	u64 one;
	int err = 0;
	u32 i;

	*cost = 0;
	for (i = 0; i < parts->count && !err; i++) {
		err = capture_cost(&parts->part[i], &one);
		if (!err && !space_cost_add(cost, one))
			err = -EAGAIN;
	}
	return err;
}

/* Records, in the order in which they count: they end at *at. */
static int capture_records(struct intent_part *part, u64 delta, struct intent_request *request, u8 **at, char *name)
{
	struct tux3_inode *inode = part->inode;
	u64 durable = READ_ONCE(inode->vol->delta.committed), cost = 0;
	u8 *begin = *at;
	int got = xattr_pending(inode, begin, XATTR_BYTES, &cost), err = 0;

	if (got < 0)
		return got;
	*at += got;
	if (!part->beside && inode_needs_closure(inode, durable))
		err = closure_of_file(&request->closure, inode, delta, inode->vol->intent.retired, request->said);
	if (err)
		return err;
	if (!part->beside)
		*at += closure_records(&request->closure, *at);
	err = capture_inode(part, delta, durable, request, at, name);
	part->intent->records = cpu_to_le32(*at - begin);
	return err;
}

static void capture_end(const struct intent_part *part, struct intent_request *request, u8 *end, const char *name)
{
	u32 name_len = part->intent->name_len, len = end + name_len - (const u8 *)part->intent;

	memcpy(end, name, name_len);
	part->intent->len = cpu_to_le32(len);
	request->len += round_up(len, 8);
}

static void note_changes(struct intent_part *part)
{
	struct tux3_inode *inode = part->inode;

	spin_lock(&inode->lock);
	part->changes = inode->changes;
	part->names_seq = inode->names_seq;
	spin_unlock(&inode->lock);
}

/* Inside the delta. */
static int capture_file(struct intent_part *part, u64 delta, struct intent_request *request)
{
	struct tux3_inode *inode = part->inode;
	u8 *at = (u8 *)(part->intent + 1);
	char name[TUX3_NAME_MAX];
	int err;

	part->blocks = 0;
	part->first = part->made = false;
	if (part->makes && closure_has(&request->closure, inode)) {	/* since it was found not to be there */
		part->intent = NULL;
		return 0;
	}
	note_changes(part);
	if (!prealloc_is_written(inode))
		return -EAGAIN;
	err = capture_data(part, delta, request, &at);
	if (!err)
		err = capture_records(part, delta, request, &at, name);
	if (err)
		return err;
	note_times(part);
	if (part->makes)
		closure_add_made(&request->closure, inode);
	else if (part->beside)
		closure_add_beside(&request->closure, inode->ino, part->changes, part->names_seq);
	else
		request->named = part->made || request->closure.names;
	capture_end(part, request, at, name);
	return 0;
}

/* ---- a directory ---- */

bool intent_dir_fits(struct tux3_inode *inode)
{
	u64 durable = READ_ONCE(inode->vol->delta.committed);
	bool named, only;
	u32 dirty;

	spin_lock(&inode->lock);
	dirty = inode->slot[0].dirty | inode->slot[1].dirty;
	named = inode->names_delta <= durable || (inode->born_ahead && !inode->names_seq);
	only = dirty && named && inode->attr.nlink && inode_is_as_told(inode, durable);
	spin_unlock(&inode->lock);
	return only;
}

/*
 * Where its delta is there, or the first intent that makes it, is all of it but its names, and those in it?  Of a later intent
 * nothing is carried out then.
 */
static bool dir_is_as_made(const struct tux3_inode *inode)
{
	lockdep_assert_held(&inode->lock);
	return inode->changed_delta == inode->born_delta && inode->changes == inode->changes_made;
}

/* The same of one that this request makes. */
static bool dir_is_made_here(const struct intent_request *request, struct tux3_inode *inode)
{
	bool here = closure_makes(&request->closure, inode);

	spin_lock(&inode->lock);
	here = here && inode->attr.nlink && dir_is_as_made(inode);
	spin_unlock(&inode->lock);
	return here;
}

/* With the lock of the inode. */
static void capture_dir_attr(const struct intent_part *part)
{
	struct tux3_inode *inode = part->inode;

	lockdep_assert_held(&inode->lock);
	attr_to_disk(&part->intent->attr, &inode->attr, 0);
	part->intent->attr.flags = cpu_to_le32(inode->attr.flags & TUX3_ATTR_SETTABLE);
}

static void capture_dir_end(const struct intent_part *part, u64 delta, struct intent_request *request, u8 *end, const char *name)
{
	struct disk_intent *intent = part->intent;

	intent->delta = cpu_to_le64(delta);
	intent->ino = cpu_to_le64(part->inode->ino);
	intent->beside = part->beside;
	intent->records = cpu_to_le32(end - (u8 *)(intent + 1));
	request->named = true;
	capture_end(part, request, end, name);
}

/*
 * Inside the delta.  It makes the directory where that is not there.  Where it is, it changes nothing: so it has not all changes
 * of one that was changed in a later delta than its own.
 */
static int capture_new_dir(struct intent_part *part, u64 delta, struct intent_request *request)
{
	struct tux3_inode *inode = part->inode;
	u8 *at = (u8 *)(part->intent + 1);
	char name[TUX3_NAME_MAX];
	u64 cost = 0;
	int got, err;

	part->made = false;
	if (closure_has(&request->closure, inode)) {	/* since it was found not to be there */
		part->intent = NULL;
		return 0;
	}
	note_changes(part);
	got = xattr_pending(inode, at, XATTR_BYTES, &cost);
	if (got < 0)
		return got;
	spin_lock(&inode->lock);
	err = capture_new_name(part, request, name);
	capture_dir_attr(part);
	if (!err && !inode->changes_made)
		inode->changes_made = part->changes;
	if (!dir_is_as_made(inode))
		part->changes = inode->changes_told;
	spin_unlock(&inode->lock);
	if (err)
		return err;
	note_times(part);
	closure_add_made(&request->closure, inode);
	capture_dir_end(part, delta, request, at + got, name);
	return 0;
}

/* Inside the delta: names in a directory that is there, and as it is after a crash. */
static int capture_listing(struct intent_part *part, u64 delta, struct intent_request *request)
{
	struct tux3_inode *inode = part->inode;
	u8 *at = (u8 *)(part->intent + 1);
	bool there;
	int err;

	if (!closure_has(&request->closure, inode)) {
		request->closure.lacks = inode;
		return -EAGAIN;
	}
	if (!intent_dir_fits(inode) && !dir_is_made_here(request, inode))
		return -EAGAIN;
	err = closure_of_dir(&request->closure, inode, delta, inode->vol->intent.retired, request->said);
	if (err)
		return err;
	at += closure_records(&request->closure, at);
	spin_lock(&inode->lock);
	there = inode->attr.nlink;
	part->changes = inode->changes_told;
	capture_dir_attr(part);
	spin_unlock(&inode->lock);
	if (there)
		capture_dir_end(part, delta, request, at, "");
	return there ? 0 : -EAGAIN;
}

/* Inside the delta. */
static int capture_part(struct intent_part *part, u64 delta, struct intent_request *request)
{
	part->intent = (struct disk_intent *)(request->intents + request->len);
	if (!part_is_dir(part))
		return part->looked < delta ? -ESTALE : capture_file(part, delta, request);
	return part->beside ? capture_new_dir(part, delta, request) : capture_listing(part, delta, request);
}

bool intent_dirs_have_moved(struct volume *vol)
{
	u64 durable = READ_ONCE(vol->delta.committed);

	return READ_ONCE(vol->delta.dirs_moved[0]) > durable || READ_ONCE(vol->delta.dirs_moved[1]) > durable;
}

/* Inside the delta: what is beside comes first, since names of the last one are to lead to it. */
static int capture_parts(struct intent_request *request, u64 delta)
{
	int err = 0;
	u32 i;

	for (i = 0; i < request->parts.count && !err; i++)
		err = capture_part(&request->parts.part[i], delta, request);
	/* Its names were changed since it was found to be needed, or a commit has made them durable. */
	if (!err && !closure_has_beside(&request->closure))
		err = -EAGAIN;
	/* Since fsync has looked: what was captured may be what was changed after that. */
	if (!err && intent_dirs_have_moved(request->vol))
		err = -EAGAIN;
	request->delta = delta;
	return err;
}

static void note_ahead(struct intent *intent, const struct intent_request *request)
{
	bool first = intent->ahead_delta != request->delta;

	lockdep_assert_held(&intent->capture);
	WRITE_ONCE(intent->ahead_blocks, (first ? 0 : intent->ahead_blocks) + (request->large ? 0 : request->blocks) + 1);
	intent->ahead_far = (first ? 0 : intent->ahead_far) + (request->large ? request->blocks : 0);
	WRITE_ONCE(intent->ahead_delta, request->delta);
}

/*
 * While a commit is made the next delta's intents need room, too: so it begins before the ring is full.  How much room is what came
 * beside the last ones, twice, and a quarter of the ring to spare.
 */
static bool ring_is_due(const struct intent *intent, bool committing)
{
	u64 blocks = intent->place.blocks, ahead = intent->ahead_blocks;

	return ahead > blocks / 4 && (committing || ahead + 2 * READ_ONCE(intent->beside_blocks) > blocks - blocks / 4);
}

/* If a commit that is due must wait for another one deltas are too large: when the ring is full fsyncs wait for them. */
static void queue_request(struct volume *vol, struct intent_request *request)
{
	struct intent *intent = &vol->intent;
	bool committing = READ_ONCE(vol->delta.committing), due;

	lockdep_assert_held(&intent->capture);
	spin_lock(&intent->lock);
	list_add_tail(&request->link, &intent->queue);
	due = ring_is_due(intent, committing) || intent->ahead_far > intent->far.blocks / 4;
	spin_unlock(&intent->lock);
	if (!due)
		return;
	delta_request(vol);
	if (committing)
		pace_wait(vol);
}

/* It is in memory as long as its change is not released, which intent.capture prevents; from here on because it is grabbed. */
static struct tux3_inode *grab_lacking(struct tux3_inode *lacking)
{
	lockdep_assert_held(&lacking->vol->intent.capture);
	lacking->vol->host->inode_grab(lacking);
	return lacking;
}

/*
 * In the order in which inodes are captured they are queued, and written.  *lacking: NULL, or with -EAGAIN a file or directory that
 * is to go beside, grabbed.
 */
static int capture_and_queue(struct volume *vol, struct intent_request *request, struct tux3_inode **lacking)
{
	struct intent *intent = &vol->intent;
	struct delta_op op;
	u64 cost;
	int err;

	mutex_lock(&intent->capture);
	request->said = ++intent->said;
	err = capture_costs(&request->parts, &cost);
	if (!err)
		err = delta_enter(vol, &op, cost, DELTA_NOWAIT | DELTA_ADDS_NOTHING);
	if (!err) {
		err = capture_parts(request, op.delta);
		request->base = READ_ONCE(intent->durable);
		if (!err)
			note_ahead(intent, request);
		else
			delta_refund(&op, cost, 0);
		if (err && request->closure.lacks)
			*lacking = grab_lacking(request->closure.lacks);
		delta_leave(&op);
	}
	if (!err)
		queue_request(vol, request);
	mutex_unlock(&intent->capture);
	return err;
}

/* Data of large files has an area of its own, and does not take all memory. */
static bool request_has_room(struct intent_request *request, u32 blocks)
{
	struct volume *vol = request->vol;
	struct intent_far *far = &vol->intent.far;
	u32 most = READ_ONCE(far->blocks);

	if ((u64)blocks << vol->block_shift <= vol->opts.intent_near_bytes)
		return true;
	if (blocks > most / INTENT_FAR_SHARE)
		WRITE_ONCE(far->wanted, true);
	request->large = blocks;
	return atomic64_add_return(blocks, &vol->intent.large) <= LARGE_BYTES >> vol->block_shift &&
	       blocks <= most / INTENT_FAR_SHARE;
}

static struct intent_request *request_new(struct volume *vol, const struct intent_parts *parts, u32 blocks)
{
	u64 bytes = parts->count * round_up(INTENT_BYTES, 8) + round_up((u64)blocks * sizeof(__le32), 8);
	struct intent_request *request = kvzalloc(sizeof(*request) + bytes, GFP_NOFS | __GFP_NOWARN);

	if (!request)
		return NULL;
	request->vol = vol;
	init_completion(&request->wake);
	request->lacks_time = vol->intent.writer && vol->host->lacks_time && vol->host->lacks_time(vol);
	if (blocks && request_has_room(request, blocks))
		request->data = kvmalloc((u64)blocks << vol->block_shift, GFP_NOFS | __GFP_NOWARN);
	if (blocks && !request->data) {
		intent_request_free(request);
		return NULL;
	}
	request->parts = *parts;
	return request;
}

/* Before those that are there, but behind the directory that it was made in. */
static u32 part_place(const struct intent_parts *parts, const struct tux3_inode *inode)
{
	u32 i;

	for (i = 0; i < parts->count; i++)
		if (parts->part[i].beside && parts->part[i].inode == READ_ONCE(inode->born_dir))
			return i + 1;
	return 0;
}

u64 intent_fresh_blocks(struct tux3_inode *inode)
{
	u64 dirty = inode->vol->host->data_dirty_blocks(inode), fresh = dirty;

	spin_lock(&inode->lock);
	if (READ_ONCE(inode->told))
		fresh = inode->fresh_end > inode->fresh ? inode->fresh_end - inode->fresh : 0;
	spin_unlock(&inode->lock);
	return min(dirty, fresh);
}

/*
 * May it be little that an intent of the file has to have, with what is being written?  Then who writes to it is waited for: as a
 * rule that takes less than a commit, and of a log that one thread writes and another one syncs there always is somebody.  Who has
 * written much, or is about to, may take long.
 */
static bool file_may_be_small(struct tux3_inode *inode)
{
	struct volume *vol = inode->vol;

	return (intent_fresh_blocks(inode) + READ_ONCE(inode->writing)) << vol->block_shift <= vol->opts.intent_near_bytes;
}

/* One more: 0, and it is held if it is a file; or -EAGAIN, and it is none of them.  wait: nothing else is held. */
static int parts_add(struct intent_parts *parts, struct tux3_inode *inode, bool wait)
{
	struct volume *vol = inode->vol;
	struct intent_part part = {
		.inode = inode, .beside = parts->count, .makes = parts->count && !inode_is_there(inode),
	};
	bool is_dir = S_ISDIR(READ_ONCE(inode->attr.mode));
	u32 same = 0, i;
	int err = 0;

	for (i = 0; i < parts->count; i++) {
		/* It is being changed all the time.  But a directory that is new is said before what is in it. */
		if (parts->part[i].inode == inode && (parts->part[i].beside || !is_dir))
			return -EAGAIN;
		same += parts->part[i].beside && part_is_dir(&parts->part[i]) == is_dir;
	}
	if (same == (is_dir ? CLOSURE_DIRS : CLOSURE_BESIDE) ||
	    (!is_dir && !vol->host->data_hold(inode, wait && file_may_be_small(inode))))
		return -EAGAIN;
	if (!is_dir) {
		span_begin(inode, &part.span);
		err = count_dirty(inode, &part.span, &part.max);
		if (!err)
			err = part_can_be_read(&part);
	}
	if (err) {
		vol->host->data_let(inode);
		return err;
	}
	i = part_place(parts, inode);
	memmove(&parts->part[i + 1], &parts->part[i], (parts->count - i) * sizeof(part));
	parts->part[i] = part;
	parts->count++;
	return 0;
}

static void parts_let(const struct intent_parts *parts)
{
	u32 i;

	for (i = 0; i < parts->count; i++)
		if (!part_is_dir(&parts->part[i]))
			parts->part[i].inode->vol->host->data_let(parts->part[i].inode);
}

/* Or has nothing of it changed since the delta that is being committed? */
static bool part_is_of_front(const struct intent_part *part)
{
	const struct tux3_inode *inode = part->inode;

	return READ_ONCE(inode->slot[READ_ONCE(inode->vol->delta.front) & 1].dirty);
}

/* As these parts are now.  *lacking: NULL, or with -EAGAIN one more that is to be among them, grabbed. */
static int capture_once(struct volume *vol, const struct intent_parts *parts, struct intent_request **captured,
			struct tux3_inode **lacking)
{
	struct intent_request *request;
	u32 blocks = 0, front = 0, i;
	int err;

	*lacking = NULL;
	for (i = 0; i < parts->count; i++) {
		blocks += parts->part[i].max;
		front += part_is_of_front(&parts->part[i]) ? parts->part[i].max : 0;
	}
	if (!intent_goes_ahead(vol, blocks, front))
		return -EMSGSIZE;
	request = request_new(vol, parts, blocks);
	err = request ? capture_and_queue(vol, request, lacking) : -EAGAIN;
	if (err && request) {
		request->parts.count = 0;		/* they are the caller's */
		intent_request_free(request);
	}
	*captured = request;
	return err;
}

int intent_capture(struct tux3_inode *inode, bool wait, struct intent_request **captured)
{
	struct intent_parts parts = {};
	struct tux3_inode *lacking = NULL;
	int err = parts_add(&parts, inode, wait);

	while (!err) {
		err = capture_once(inode->vol, &parts, captured, &lacking);
		if (!err || !lacking)
			break;
		err = parts_add(&parts, lacking, false);
		if (err)
			inode->vol->host->inode_release(lacking);
	}
	parts_let(&parts);
	if (err)
		parts_release(&parts);
	return err;
}
