// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * In a tight delta each item pays for the path to it: a node of each level redirected, and split (space.c).  But a leaf is
 * redirected once in a delta, whatever changes in it.  So who changes an item looks which leaf it is in, outside the delta; where
 * PAID_TIMES items have paid for that leaf others pay only for what they add, as so many extents (space_cost_beside).
 *
 * Why twice: a leaf may be split twice for what it holds already, behind an item that was set lately, where all that was there
 * stays, and then in the middle.  With the redirect that is three nodes, and two items pay for four.  After these there is room,
 * and further splits are growth, of which each item pays its part.  The same holds for the nodes above the leaf.
 *
 * What was found holds for the delta that was open when it was looked for, and is used in no other.  While the one before is
 * committed, the tree may still change:
 *
 *	a split		makes two leaves of one that is paid.  So when that commit is settled the delta is charged for each node
 *			that was split, as for a path (space_raise_standing): for who looked before that.  Who looks later finds
 *			that the right one of both is not paid
 *	a merge		makes one leaf of two: fewer nodes, of which one may be paid.  What lies behind a leaf's beginning is one
 *			leaf then, too
 *
 * A leaf is known by where its keys begin.  Entries of other deltas are free; where there is no room for one, others pay again.
 */
#include "core/volume.h"
#include "core/delta/delta.h"
#include "core/delta/paid.h"
#include "core/delta/space.h"
#include "core/tree/tree.h"

#define PAID_TIMES	2u
#define PAID_PROBES	8u

void paid_init(struct volume *vol)
{
	spin_lock_init(&vol->space.paid.lock);
}

void paid_begin(struct volume *vol, struct paid_look *look)
{
	u64 front = READ_ONCE(vol->delta.front);

	/* Where the delta pays for all nodes above it, and the leaves, there is nothing to be had. */
	look->delta = space_is_tight(&vol->space, front) && READ_ONCE(vol->space.levels[front & 1]) ? front : 0;
	look->count = 0;
}

/* The entry of this leaf in the delta; NULL: there is none.  room: or one that is free. */
static struct paid_leaf *paid_find(struct volume *vol, const struct node_key *low, u64 delta, bool room)
{
	u32 first = hash_64(low->high * 31 + low->low, 32), i;

	lockdep_assert_held(&vol->space.paid.lock);
	for (i = 0; i < PAID_PROBES; i++) {
		struct paid_leaf *leaf = &vol->space.paid.leaf[(first + i) % PAID_LEAVES];

		if (leaf->delta != delta)
			return room ? leaf : NULL;
		if (node_key_equal(&leaf->low, low))
			return leaf;
	}
	return NULL;
}

static u32 paid_times(struct volume *vol, const struct node_key *low, u64 delta)
{
	struct paid_leaf *leaf;
	u32 times;

	spin_lock(&vol->space.paid.lock);
	leaf = paid_find(vol, low, delta, false);
	times = leaf ? leaf->times : 0;
	spin_unlock(&vol->space.paid.lock);
	return times;
}

/* The leaf of all these, in look->own; NULL: there is none, or no room. */
static struct paid_own *paid_find_own(struct volume *vol, struct paid_look *look, const struct tree_key *from,
				      const struct tree_key *to)
{
	struct paid_own *own = look->own, *end = look->own + look->count;
	struct node_key low;

	if (!look->delta || !tree_leaf_of(vol, from, to, &low))
		return NULL;
	while (own < end && !node_key_equal(&own->low, &low))
		own++;
	if (own == end && look->count < PAID_OWN) {
		*own = (struct paid_own){ .low = low };
		look->count++;
	}
	return own < look->own + look->count ? own : NULL;
}

/* How many items have still to pay for its path. */
static u32 paid_lacks(struct volume *vol, const struct paid_look *look, const struct paid_own *own)
{
	u32 need = space_less_paid(vol, PAID_TIMES);

	return need - min(need, own->times + paid_times(vol, &own->low, look->delta));
}

u32 paid_items(struct volume *vol, struct paid_look *look, const struct tree_key *from, const struct tree_key *to, u32 items)
{
	struct paid_own *own = paid_find_own(vol, look, from, to);
	u32 pays = own ? min(items, paid_lacks(vol, look, own)) : items;

	if (own)
		own->times += pays;
	return items - pays;
}

bool paid_attr(struct volume *vol, struct paid_look *look, u64 ino)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);
	struct paid_own *own = paid_find_own(vol, look, &key, &key);

	return own && !paid_lacks(vol, look, own);
}

void paid_keep(const struct delta_op *op, const struct paid_look *look)
{
	struct volume *vol = op->vol;
	u32 i;

	if (!paid_holds(look, op->delta))
		return;
	spin_lock(&vol->space.paid.lock);
	for (i = 0; i < look->count; i++) {
		const struct paid_own *own = &look->own[i];
		struct paid_leaf *leaf = own->times ? paid_find(vol, &own->low, op->delta, true) : NULL;

		if (leaf && leaf->delta != op->delta)
			*leaf = (struct paid_leaf){ .low = own->low, .delta = op->delta };
		if (leaf)
			leaf->times += own->times;
	}
	spin_unlock(&vol->space.paid.lock);
}
