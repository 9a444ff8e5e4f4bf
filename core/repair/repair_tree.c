/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: nodes of the tree that cannot be used, and the search for what they led to.
 *
 * Done before the log is replayed, on the tree of the anchor: the free maps on the disk are of the same state.  A block that
 * they say is in use, and that nothing leads to, belongs to what is lost; if it holds a leaf of this volume, its items are
 * put back into the tree.  Where a free map is damaged, too, also leaves of older states are found.  The leaves of one state do not
 * overlap, and each is written anew when it changes: so one that overlaps a newer one, or what is still in the tree, is older, and
 * nothing is taken from it.  What was deleted since would come back.  Of a leaf that is lost itself nothing is searched for: there
 * was one of it, and others would be older.
 *
 * Inner nodes are not searched for: what they say follows from the leaves.
 */
#include "core/device/device.h"
#include "core/blocks/balloc.h"
#include "core/blocks/freemap.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/log/apply.h"
#include "core/log/replay.h"
#include "core/repair/repair_internal.h"
#include "core/repair/key_ranges.h"

#define SCAN_BLOCKS 128u

/* ---- cutting off ---- */

struct cut {
	struct node_key low;
	u32 level;		/* of the node that cannot be used */
	bool root;
};

struct salvage {
	struct repair *repair;
	struct repair_table cuts;	/* struct cut */
	struct repair_table lost;	/* struct key_range: what was below, if it may be found */
	struct repair_table found;	/* struct leaf */
	struct repair_table covered;	/* struct key_range: of leaves that were put back */
	struct repair_table judged;	/* struct judged: the first key of each that was found, in order */
	u64 items;
	struct block_set odd;		/* blocks that no map and no node explains: in use, but no node, and not in the tree */
	struct block_set bad;		/* where the nodes are that cannot be used */
	bool unsure;			/* the map of the group that is searched is lost */
	bool unused;			/* groups are searched of which the maps say that they were never used */
	u64 in_maps;			/* blocks in use, by the maps */
};

struct leaf {
	u64 addr, birth;
	struct node_key first, last;
	bool unsure;		/* no map says that it is in use: it may be of an earlier state */
	bool old;		/* a newer one has something between its keys */
};

/* gone: it is a leaf, and its block does not hold it. */
static int note_cut(struct salvage *salvage, const struct tree_visit *visit, bool gone, const char *why)
{
	struct node_key low = node_key_pack(&visit->low), high = NODE_KEY_MAX;
	struct cut *cut = repair_add(&salvage->cuts, sizeof(*cut));

	if (!cut)
		return -ENOMEM;
	if (apply_blocks_valid(salvage->repair->vol, visit->addr, 1) &&
	    block_set_add(&salvage->bad, salvage->repair->vol, visit->addr, 1))
		return -ENOMEM;
	cut->low = low;
	cut->level = visit->level;
	cut->root = !visit->parent_addr;
	if (cut->root)
		low = (struct node_key){ 0, 0 };
	else if (visit->has_high)
		high = node_key_pack(&visit->high);
	if (visit->has_high)
		node_key_step_down(&high);
	repair_note(salvage->repair, REPAIR_MENDED, 0,
		    "The tree node at block %llu, level %u, cannot be used and was taken out of the tree: %s",
		    (unsigned long long)visit->addr, visit->level, why);
	return key_ranges_add(gone ? &salvage->repair->lost_leaves : &salvage->lost, &low, &high);
}

static int note_leaf(struct salvage *salvage, u64 addr, const struct disk_node *node)
{
	struct leaf *leaf = repair_add(&salvage->found, sizeof(*leaf));

	if (!leaf)
		return -ENOMEM;
	*leaf = (struct leaf){ addr, le64_to_cpu(node->birth), node_first_key(node), node_last_key(node), salvage->unsure, false };
	return 0;
}

/* What lies where anchors and free maps do is whole, for now, but cannot stay. */
static int visit_bad(void *ctx, const struct tree_visit *visit)
{
	struct salvage *salvage = ctx;
	int err;

	if (!visit->data)	/* an anchor that was searched for leads nowhere */
		return note_cut(salvage, visit, !visit->level && visit->addr, visit->why);
	if (!balloc_is_fixed(salvage->repair->vol, visit->addr))
		return 0;
	err = note_cut(salvage, visit, false, "the block belongs to anchors or free maps");
	if (!err && !visit->level && node_count(visit->data))
		err = note_leaf(salvage, visit->addr, visit->data);
	return err ? err : 1;
}

static int cut_all(struct salvage *salvage)
{
	struct volume *vol = salvage->repair->vol;
	const struct cut *cut = salvage->cuts.entries;
	int err = 0;
	u64 i;

	tree_edit_begin(vol);
	for (i = 0; i < salvage->cuts.count && !err; i++) {
		struct tree_key key = node_key_unpack(&cut[i].low);
		/* The last branch that is left becomes the root, also if it leads to what is to be cut off. */
		bool root = cut[i].root || cut[i].level >= vol->tree.root_level;

		salvage->repair->changes++;
		err = root ? tree_create(vol) : tree_cut(vol, &key, cut[i].level + 1);
	}
	tree_edit_end(vol);
	tree_edit_leave(vol);
	return err;
}

/* ---- searching ---- */

/* Does it lie in what is lost?  One that reaches beyond that is of an earlier state. */
static bool leaf_wanted(const struct salvage *salvage, const struct disk_node *node)
{
	struct node_key first = node_first_key(node), last = node_last_key(node);
	const struct key_range *range = salvage->lost.entries;
	u64 at = key_ranges_find(&salvage->lost, &first);

	return at < salvage->lost.count && !node_key_less(&first, &range[at].first) && !node_key_less(&range[at].last, &last);
}

static int scan_block(struct salvage *salvage, u64 addr, const void *data)
{
	const struct disk_node *node = data;
	struct volume *vol = salvage->repair->vol;
	char why[NODE_WHY_MAX];

	if (le32_to_cpu(node->magic) != TUX3_NODE_MAGIC || node_check(vol, data, addr, 0, 0, why, sizeof(why)))
		return block_set_add(&salvage->odd, vol, addr, 1);
	return node_count(node) && leaf_wanted(salvage, node) ? note_leaf(salvage, addr, node) : 0;
}

static int scan_run(struct salvage *salvage, u64 addr, u32 count, u8 *data)
{
	struct volume *vol = salvage->repair->vol;
	bool whole = !device_read(vol->dev, addr, count, data);
	int err = 0;
	u32 i;

	for (i = 0; i < count && !err; i++) {
		u8 *block = data + ((size_t)i << vol->block_shift);

		if (whole || !device_read(vol->dev, addr + i, 1, block))
			err = scan_block(salvage, addr + i, block);
		else
			err = block_set_add(&salvage->odd, vol, addr + i, 1);
	}
	return err;
}

/* May this block of a group hold a leaf that is looked for? */
static bool scan_candidate(struct salvage *salvage, u64 addr, const u8 *bits, u32 n)
{
	return bits[n / 8] >> n % 8 & 1 && !balloc_is_fixed(salvage->repair->vol, addr) &&
	       !block_set_has(&salvage->repair->used, salvage->repair->vol, addr);
}

/*
 * Is the map of a group, which is in memory, perhaps of an earlier state?  Where the log says that it was about to be written,
 * a slot that is damaged is taken for one that was cut off, and the other one counts; it may as well have been the newest.
 * slots: room for both.  -EIO: so it is.
 */
static int map_doubt(struct salvage *salvage, u64 index, u8 *slots)
{
	struct volume *vol = salvage->repair->vol;
	char why[160];
	u32 counts, other;
	int err = balloc_slots_whole(vol, index, &counts);

	if (err || !is_power_of_2(counts))
		return err;
	other = counts == 1;
	err = device_read(vol->dev, balloc_slot_addr(vol, index, other), 1, slots + ((size_t)other << vol->block_shift));
	return err || balloc_slots_bad(vol, index, 1u << other, slots, why, sizeof(why)) ? -EIO : 0;
}

/*
 * The map of a group as it is on the disk, or all bits if nobody knows; *used: what of its blocks is in use, by that.  slots: room
 * for them.
 */
static int scan_bits(struct salvage *salvage, u64 index, u8 *bits, u32 *used, u8 *slots)
{
	struct volume *vol = salvage->repair->vol;
	u32 length = group_length(vol, index), i;
	int err = balloc_copy_group(vol, index, bits);

	if (!err)
		err = map_doubt(salvage, index, slots);
	*used = 0;
	salvage->unsure = salvage->unused || err == -EIO;
	if (err == -EIO) {
		memset(bits, salvage->unused ? 0 : 0xff, vol->group_blocks / 8);
		return 0;
	}
	for (i = 0; i < length && !err; i++)
		*used += bits[i / 8] >> i % 8 & 1;
	/* Never used, or its map was overwritten. */
	if (salvage->unused && *used == group_fixed_blocks(vol, index, 0, length))
		memset(bits, 0xff, vol->group_blocks / 8);
	else if (salvage->unused)
		memset(bits, 0, vol->group_blocks / 8);
	return err;
}

static int scan_group(struct salvage *salvage, u64 index, u8 *bits, u8 *data)
{
	struct volume *vol = salvage->repair->vol;
	u64 start = balloc_group_start(vol, index);
	u32 length = group_length(vol, index), from = 0, run, used;
	int err = scan_bits(salvage, index, bits, &used, data);

	salvage->in_maps += used;
	while (from < length && !err) {
		for (run = 0; run < SCAN_BLOCKS && from + run < length && scan_candidate(salvage, start + from + run, bits,
											 from + run); run++)
			;
		if (run)
			err = scan_run(salvage, start + from, run, data);
		from += max(run, 1u);
	}
	return err;
}

static int scan_groups(struct salvage *salvage, u8 *bits, u8 *data)
{
	struct repair *repair = salvage->repair;
	struct volume *vol = repair->vol;
	u64 index;
	int err = 0;

	for (index = 0; index < vol->group_count && !err; index++) {
		if (repair->opts->progress)
			repair->opts->progress(repair->opts->ctx, CHECK_SPACE, index, vol->group_count);
		err = scan_group(salvage, index, bits, data);
	}
	return err;
}

/*
 * If the maps say that less is in use than the anchor counts, some are missing; a map that was overwritten with something else
 * cannot be told from one that was never written.  Then the groups that seem never to have been used are searched, too.
 */
static int scan_all(struct salvage *salvage)
{
	struct volume *vol = salvage->repair->vol;
	u8 *bits = kvmalloc(vol->group_blocks / 8, GFP_KERNEL);
	u8 *data = kvmalloc((size_t)SCAN_BLOCKS << vol->block_shift, GFP_KERNEL);
	int err = bits && data ? scan_groups(salvage, bits, data) : -ENOMEM;

	salvage->unused = true;
	if (!err && (!vol->anchor.root_addr || salvage->in_maps < le64_to_cpu(vol->anchor.used_blocks)))
		err = scan_groups(salvage, bits, data);
	kvfree(bits);
	kvfree(data);
	return err;
}

/* ---- putting back ---- */

static int leaf_newest(const void *a, const void *b)
{
	const struct leaf *x = a, *y = b;

	if (x->birth != y->birth)
		return x->birth > y->birth ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int put_item(struct salvage *salvage, const struct disk_node *node, u32 pos)
{
	struct node_key packed = leaf_key(node, pos);
	struct tree_key key = node_key_unpack(&packed);
	struct repair *repair = salvage->repair;
	int err;

	if (!key_ranges_have(&salvage->lost, &packed) || key_ranges_have(&salvage->covered, &packed))
		return 0;
	err = tree_set(repair->vol, &key, leaf_data(node, pos), leaf_len(node, pos));
	if (err == -EINVAL)	/* the checker would not have it either */
		return 0;
	salvage->items += !err;
	return err;
}

/* What the last unify wrote is of the newest state in any case. */
static void tell_unsure(struct salvage *salvage, const struct leaf *leaf)
{
	u64 first = node_key_unpack(&leaf->first).ino, last = node_key_unpack(&leaf->last).ino;

	if (leaf->unsure && leaf->birth < le64_to_cpu(salvage->repair->vol->anchor.delta))
		repair_note(salvage->repair, REPAIR_LOST, first == last ? first : 0,
			    "Inodes %llu to %llu may be as they were at delta %llu: what tells if they were changed later is lost",
			    (unsigned long long)first, (unsigned long long)last, (unsigned long long)leaf->birth);
}

static int put_leaf(struct salvage *salvage, const struct leaf *leaf, struct disk_node *node)
{
	struct volume *vol = salvage->repair->vol;
	u64 before = salvage->items;
	char why[NODE_WHY_MAX];
	int err = 0;
	u32 i;

	if (leaf->old || device_read(vol->dev, leaf->addr, 1, node) ||
	    node_check(vol, node, leaf->addr, leaf->birth, 0, why, sizeof(why)))
		return 0;
	tree_edit_begin(vol);
	for (i = 0; i < node_count(node) && !err; i++)
		err = put_item(salvage, node, i);
	tree_edit_end(vol);
	if (!err)
		err = key_ranges_add(&salvage->covered, &leaf->first, &leaf->last);
	if (!err && salvage->items > before) {
		salvage->repair->result->leaves++;
		repair_note(salvage->repair, REPAIR_FOUND, 0,
			    "The leaf at block %llu, of delta %llu, was put back into the tree: %llu items",
			    (unsigned long long)leaf->addr, (unsigned long long)leaf->birth,
				(unsigned long long)(salvage->items - before));
		tell_unsure(salvage, leaf);
	}
	return err;
}

static int leaf_in_order(const void *a, const void *b)
{
	const struct leaf *x = a, *y = b;

	if (node_key_less(&x->first, &y->first) || node_key_less(&y->first, &x->first))
		return node_key_less(&x->first, &y->first) ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/*
 * A cell of a Fenwick tree, by first keys: of the newer ones that belong to it, that which reaches farthest.  There may be as many
 * leaves as the volume has blocks, in any order.
 */
struct judged {
	struct node_key first;
	u64 farthest;		/* its number in found, from 1 on; 0: there is none yet */
};

static int judged_order(const void *a, const void *b)
{
	const struct judged *x = a, *y = b;

	return node_key_less(&x->first, &y->first) ? -1 : node_key_less(&y->first, &x->first);
}

/* How many first keys are not above this one. */
static u64 judged_count(const struct salvage *salvage, const struct node_key *key)
{
	const struct judged *judged = salvage->judged.entries;
	u64 low = 0, high = salvage->judged.count;

	while (low < high) {
		u64 middle = low + (high - low) / 2;

		if (node_key_less(key, &judged[middle].first))
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void judged_add(struct salvage *salvage, u64 n)
{
	const struct leaf *leaf = salvage->found.entries;
	struct judged *judged = salvage->judged.entries;
	u64 at = judged_count(salvage, &leaf[n].first);

	for (; at <= salvage->judged.count; at += at & -at) {
		u64 *farthest = &judged[at - 1].farthest;

		if (!*farthest || node_key_less(&leaf[*farthest - 1].last, &leaf[n].last))
			*farthest = n + 1;
	}
}

/* Has one of those that were added something between its keys? */
static bool judged_have(const struct salvage *salvage, const struct leaf *leaf)
{
	const struct leaf *found = salvage->found.entries;
	const struct judged *judged = salvage->judged.entries;
	u64 at = judged_count(salvage, &leaf->last), farthest;

	for (; at; at -= at & -at) {
		farthest = judged[at - 1].farthest;
		if (farthest && !node_key_less(&found[farthest - 1].last, &leaf->first))
			return true;
	}
	return false;
}

/* Of which of them are there newer ones? */
static int judge_leaves(struct salvage *salvage)
{
	struct leaf *leaf = salvage->found.entries;
	struct judged *judged;
	u64 i, same = 0;

	sort(leaf, salvage->found.count, sizeof(*leaf), leaf_newest, NULL);
	for (i = 0; i < salvage->found.count; i++) {
		judged = repair_add(&salvage->judged, sizeof(*judged));
		if (!judged)
			return -ENOMEM;
		judged->first = leaf[i].first;
	}
	sort(salvage->judged.entries, salvage->judged.count, sizeof(*judged), judged_order, NULL);
	for (i = 0; i < salvage->found.count; i++) {
		for (; same < i && leaf[same].birth > leaf[i].birth; same++)
			judged_add(salvage, same);
		leaf[i].old = judged_have(salvage, &leaf[i]);
	}
	return 0;
}

/*
 * In the order of their keys: so nodes become full, as where items are added one behind the other, and no more are needed than
 * there were.  A volume that is full has no room for others.
 */
static int put_all(struct salvage *salvage)
{
	struct volume *vol = salvage->repair->vol;
	struct leaf *leaf = salvage->found.entries;
	void *node = kvmalloc(vol->block_size, GFP_KERNEL);
	int err = node ? 0 : -ENOMEM;
	u64 i;

	if (!err && salvage->found.count) {
		err = judge_leaves(salvage);
		sort(leaf, salvage->found.count, sizeof(*leaf), leaf_in_order, NULL);
	}
	for (i = 0; i < salvage->found.count && !err; i++)
		err = put_leaf(salvage, &leaf[i], node);
	tree_edit_leave(vol);
	kvfree(node);
	return err;
}

/*
 * Leaves that are found are all that there were, if each block is explained that was in use: by them, by what they lead to, or as
 * a node that could not be used.
 */
static bool leaf_missing(struct salvage *salvage)
{
	struct repair *repair = salvage->repair;
	struct volume *vol = repair->vol;
	u64 index, addr, end;

	for (index = 0; index < vol->group_count; index++) {
		addr = balloc_group_start(vol, index);
		end = salvage->odd.groups[index] ? addr + group_length(vol, index) : addr;
		for (; addr < end; addr++)
			if (block_set_has(&salvage->odd, vol, addr) && !block_set_has(&repair->used, vol, addr) &&
			    !block_set_has(&salvage->bad, vol, addr))
				return true;
	}
	return false;
}

/* What was lost and not put back: nobody knows what was there. */
static int note_lost(struct salvage *salvage)
{
	const struct key_range *range = salvage->lost.entries;
	int err = 0;
	u64 i;

	for (i = 0; i < salvage->lost.count && !err; i++)
		err = key_ranges_add_without(&salvage->repair->lost_keys, &range[i], &salvage->covered);
	range = salvage->repair->lost_leaves.entries;
	for (i = 0; i < salvage->repair->lost_leaves.count && !err; i++)
		err = key_ranges_add(&salvage->repair->lost_keys, &range[i].first, &range[i].last);
	return err;
}

/* The search goes by the maps as they are on the disk, the edits by those that fit what is left of the tree. */
static int salvage_run(struct salvage *salvage)
{
	struct repair *repair = salvage->repair;
	int err = tree_walk(repair->vol, visit_bad, salvage);

	if (!err)
		err = repair_count_used(repair);
	if (!err && salvage->lost.count)
		err = scan_all(salvage);
	if (!err)
		err = repair_set_maps(repair, false, !salvage->cuts.count);
	if (err || !salvage->cuts.count)
		return err;
	err = cut_all(salvage);
	if (!err)
		err = put_all(salvage);
	if (!err)
		err = note_lost(salvage);
	if (!err)
		err = repair_count_used(repair);
	if (err)
		return err;
	repair->leaf_missing = leaf_missing(salvage);
	return repair_set_maps(repair, false, false);
}

int repair_tree(struct volume_mend *mend, struct volume *vol)
{
	struct repair *repair = container_of(mend, struct repair, mend);
	struct salvage salvage = { .repair = repair };
	int err;

	repair->vol = vol;
	vol->delta.applying = vol->delta.committed + 1;
	vol->log.replaying = true;	/* nodes need not find room now */
	err = log_note_groups(vol);
	if (err != -ENOMEM)
		err = block_set_init(&salvage.odd, vol);
	if (!err)
		err = block_set_init(&salvage.bad, vol);
	if (!err)
		err = salvage_run(&salvage);
	if (!err)
		repair_check_totals(repair, salvage.cuts.count);
	block_set_exit(&salvage.odd);
	block_set_exit(&salvage.bad);
	kvfree(salvage.cuts.entries);
	kvfree(salvage.lost.entries);
	kvfree(salvage.found.entries);
	kvfree(salvage.covered.entries);
	kvfree(salvage.judged.entries);
	return err;
}
