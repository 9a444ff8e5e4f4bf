// SPDX-License-Identifier: GPL-2.0-or-later
/* Nodes that a hold keeps: see held.h. */
#include "core/volume.h"
#include "core/blocks/balloc.h"
#include "core/blocks/held.h"

#define HELD_RANGES_MAX	(1u << 16)

void held_init(struct volume *vol)
{
	struct held *held = &vol->held;

	held->on = false;
	range_list_init(&held->freed);
	range_list_init(&held->leaving);
	range_list_init(&held->kept);
}

void held_exit(struct volume *vol)
{
	struct held *held = &vol->held;

	held->on = false;
	range_list_exit(&held->freed);
	range_list_exit(&held->leaving);
	range_list_exit(&held->kept);
}

void held_begin(struct volume *vol)
{
	struct held *held = &vol->held;

	lockdep_assert_held(&vol->delta.commit_mutex);
	held->on = true;
	held->delta = le64_to_cpu(vol->anchor.delta);
}

void held_end(struct volume *vol)
{
	struct held *held = &vol->held;
	int err;

	lockdep_assert_held(&vol->delta.commit_mutex);
	held->on = false;
	err = balloc_release(vol, &held->kept);
	range_list_exit(&held->kept);
	if (err)
		volume_abort(vol, err, "blocks that were held for a check could not be given back");
}

struct range_list *held_list(struct volume *vol, u64 birth)
{
	return unlikely(vol->held.on) && birth <= vol->held.delta ? &vol->held.freed : &vol->balloc.node_frees;
}

void held_snapshot(struct volume *vol)
{
	lockdep_assert_held(&vol->delta.commit_mutex);
	range_list_move(&vol->held.leaving, &vol->held.freed);
}

int held_anchored(struct volume *vol)
{
	struct held *held = &vol->held;

	lockdep_assert_held(&vol->delta.commit_mutex);
	while (held->on && held->leaving.count) {
		struct block_range *last = &held->leaving.ranges[held->leaving.count - 1];

		/* Giving them all back takes its time, and others wait then; or there is no memory. */
		if (held->kept.count == HELD_RANGES_MAX || range_list_add(&held->kept, last->addr, last->len)) {
			held_end(vol);
			break;
		}
		held->leaving.blocks -= last->len;
		held->leaving.count--;
	}
	return balloc_release(vol, &held->leaving);
}
