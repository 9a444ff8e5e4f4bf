// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Where dirty data of a file goes.
 *
 * What is written over gets a new place, and what is behind what was placed last goes behind it: so a file that is written
 * in order lies in order, and so does what is written over at one time.  Blocks for holes in the middle are different:
 * a file that is filled out of order, over many deltas, would lie in the order of its deltas for good.  So a block in a hole is
 * placed as far from its neighbours on the disk as it is in the file: what comes between will find room there.  The first one
 * among its neighbours opens a window (placement.c) for all of them; where it was forgotten, the tree says where it was.
 *
 * How large a window is depends on how much of the file there is: one block in a thousand of a large sparse file must not cut
 * all free space into pieces.  A file without holes costs no look at windows or tree.
 */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/data/data.h"
#include "core/log/log.h"
#include "core/commit/commit.h"

#define SPAN_MIN	16u
#define SPAN_FILLED	32u	/* a window may be so many times as large as what is expected to be in it now */

static u64 file_blocks(const struct data_places *places)
{
	return (places->attr->size + places->inode->vol->block_size - 1) >> places->inode->vol->block_shift;
}

/* How many blocks the file has, with those that are dirty in this delta (which may be the same). */
static u64 count_blocks(const struct data_places *places, u64 enough)
{
	struct tux3_inode *inode = places->inode;
	u64 have = inode->blocks, block = 0, count;

	while (have < enough && !inode->vol->host->data_next(inode, places->delta, block, &block, &count)) {
		have += count;
		block += count;
	}
	return have;
}

static void set_span(struct data_places *places, u64 span)
{
	places->span = span < SPAN_MIN ? 0 : rounddown_pow_of_two(span);
}

static void find_span(struct data_places *places)
{
	u64 size = file_blocks(places), most = balloc_window_max(places->inode->vol), have;

	places->known = true;
	if (size < SPAN_MIN || places->inode->blocks >= size || !most)
		return;
	have = count_blocks(places, size);
	places->filled = have >= size;
	if (have >= SPAN_MIN)		/* fewer are few pieces wherever they lie */
		set_span(places, min(most, have * SPAN_FILLED / DIV_ROUND_UP(size, most)));
}

/* Is this not a hole in the middle, but what comes after all the blocks that there are?  Then nothing is behind it. */
static bool place_is_last(const struct data_places *places, u64 block)
{
	return places->filled && (s64)block >= (s64)places->inode->blocks + places->inode->vol->log.blocks_delta;
}

/* For a block in a hole that has no window: the one that its neighbours on the disk are of, or a new one.  -ENOSPC */
static int place_open_window(struct data_places *places, u64 block, u64 count)
{
	struct volume *vol = places->inode->vol;
	struct balloc_window window = { .ino = places->inode->ino, .block = rounddown(block, places->span) };
	struct data_layout layout;
	int err;

	if (file_blocks(places) <= block)
		return -ENOSPC;
	/* A file that grows with holes in it is to go on in there. */
	window.len = min_t(u64, places->span, roundup_pow_of_two(file_blocks(places) - window.block));
	err = data_layout(places->inode, window.block, window.block + window.len, block, &layout);
	if (err)
		return err;
	if (layout.mapped)
		return -ENOSPC;
	window.low = layout.low;
	window.high = layout.high;
	window.blocks = layout.blocks;
	err = layout.votes ? balloc_window_again(vol, &window, layout.base, block) : -ENOSPC;
	if (err != -ENOSPC)
		return err;
	/* None for blocks that have places elsewhere: what comes between those is to go there. */
	window.block = layout.hole;
	window.len = layout.hole_end - layout.hole;
	if (window.len < SPAN_MIN || count > window.len / 2)
		return -ENOSPC;
	err = balloc_window_open(vol, &window, layout.hole_addr);
	if (err == -ENOSPC)		/* there are no such runs */
		set_span(places, places->span / 2);
	return err;
}

static int place_in_window(struct data_places *places, u64 block, u64 count, u64 *addr, u32 *run)
{
	struct tux3_inode *inode = places->inode;
	u32 want = min_t(u64, count, LOG_EXTENT_BLOCKS);
	int err = balloc_window_take(inode->vol, inode->ino, block, want, addr, run);

	if (err != -ENOENT && err != -ENOSPC)
		return err;
	err = place_open_window(places, block, count);
	if (!err)
		err = balloc_window_take(inode->vol, inode->ino, block, want, addr, run);
	else if (err != -ENOSPC)	/* memory, or a leaf that cannot be read: no reason for the commit to fail */
		places->span = 0;
	return err;
}

static int place_new(struct data_places *places, u64 block, u64 count, u64 *addr, u32 *run)
{
	struct tux3_inode *inode = places->inode;
	int err;

	if (!places->known)
		find_span(places);
	if (places->span && !place_is_last(places, block) && !place_in_window(places, block, count, addr, run))
		return 0;
	err = balloc_alloc_part(inode->vol, inode->goal, count, min_t(u64, count, LOG_EXTENT_BLOCKS), addr, run);
	if (!err)
		inode->goal = *addr + *run;
	return err;
}

int data_place(struct data_places *places, u64 block, u64 count, u64 *addr, u32 *run)
{
	struct data_extent extent = { .block = block, .count = count };
	int err;

	if (places->attr->flags & TUX3_ATTR_PREALLOC) {
		err = data_map_tree(places->inode, &extent, NULL, 0);
		if (err)
			return err;
		if (extent.kind == DATA_UNWRITTEN) {
			*addr = extent.addr;
			*run = min_t(u64, extent.count, LOG_EXTENT_BLOCKS);
			/*
			 * It had better be the file's own, which a forged volume may only say.  All of the extent is looked at:
			 * a part of it may be in use by others, or be so soon.
			 */
			return balloc_may_be_data(places->inode->vol, extent.whole_addr, extent.whole) ? 0 : -EUCLEAN;
		}
		if (extent.kind == DATA_HOLE || extent.kind == DATA_MAPPED)
			count = min(count, extent.count);
	}
	return place_new(places, block, count, addr, run);
}
