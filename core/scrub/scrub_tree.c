// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Scrub: the nodes of the tree, in the order of keys.
 *
 * The way to the next leaf is gone from the root, with tree.sem held, over nodes that are dirty or being written as they are in
 * memory, and else over what this portion has read of them.  Where that is missing sem is let go, the node is read and checked,
 * and the way begins anew.  So each node that has its block is read once in a portion, and none is brought into the cache.
 *
 * A node that is not what its link says is read once more if the next way comes to the same link; if the one after that does,
 * too, it was there all the time, for a link never means two nodes.  From then on the copy in the cache stands in for it, so
 * that the rest is seen; without one, its keys are passed over.
 *
 * A node is counted, and told of, when the walk comes to the first of its keys.  A portion that begins further on reads it again.
 */
#include "core/error.h"
#include "core/volume.h"
#include "core/scrub/scrub_internal.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

#define WAY_MISS	1	/* way->link is to be read */
#define WAY_LOST	2	/* it cannot be used, and was told of */

/* Where the way to scrub->at has come to. */
struct way {
	struct node_link link;
	struct node_key low, high;	/* the keys that lead there */
	bool has_low, has_high;
	u32 top;			/* level of the root */
};

static bool link_equal(const struct node_link *a, const struct node_link *b)
{
	return a->addr == b->addr && a->birth == b->birth && a->level == b->level;
}

/* A node in memory that has no block, or not yet what is to be in it; or that stands in for a bad one. */
static struct node_buffer *way_peek(struct scrub *scrub, const struct node_link *link, bool clean)
{
	struct node_buffer *buffer = cache_peek(scrub->vol, link);

	if (buffer && !clean && !test_bit(NODE_DIRTY, &buffer->state) && !test_bit(NODE_FLUSHING, &buffer->state)) {
		cache_put(scrub->vol, buffer);
		return NULL;
	}
	return buffer;
}

/* The node at the end of the way; with *buffer if it is that in memory. */
static const struct disk_node *way_node(struct scrub *scrub, const struct node_link *link, struct node_buffer **buffer, int *ret)
{
	struct scrub_node *own = &scrub->node[link->level];
	bool same = own->there && link_equal(&own->link, link);

	lockdep_assert_held(&scrub->vol->tree.sem);
	*ret = 0;
	*buffer = way_peek(scrub, link, same && own->bad);
	if (*buffer)
		return (*buffer)->data;
	if (same && !own->bad)
		return own->data;
	*ret = same || node_unplaced(link->addr) ? WAY_LOST : WAY_MISS;
	return NULL;
}

static void way_step(struct way *way, const struct disk_node *node, const struct node_key *key)
{
	u32 at = inner_find(node, key);

	way->low = inner_key(node, at);
	way->has_low |= at > 0;
	if (at + 1 < node_count(node)) {
		way->high = inner_key(node, at + 1);
		way->has_high = true;
	}
	way->link = inner_link(node, at);
}

/* A leaf that is changed in memory is looked at as it is now. */
static int way_keep_leaf(struct scrub *scrub, const struct disk_node *node)
{
	struct scrub_node *own = &scrub->node[0];

	if (!own->data)
		own->data = kvmalloc(scrub->vol->block_size, GFP_NOFS);
	if (!own->data)
		return -ENOMEM;
	node_copy(own->data, node, scrub->vol->block_size);	/* its header, and what is unused, are just being sealed */
	own->there = false;
	scrub->memory_bytes += scrub->vol->block_size;
	return 0;
}

/* To the leaf of scrub->at, with sem: 0, WAY_MISS, WAY_LOST, -errno. */
static int way_down(struct scrub *scrub, struct way *way)
{
	struct volume *vol = scrub->vol;
	struct node_key key = scrub->at;
	const struct disk_node *node;
	struct node_buffer *buffer;
	bool leaf;
	int ret;

	*way = (struct way){ .link = tree_root_link(&vol->tree), .top = vol->tree.root_level };
	if (way->top > TUX3_MAX_LEVEL)
		return -EIO;
	do {
		node = way_node(scrub, &way->link, &buffer, &ret);
		if (!node)
			return ret;
		leaf = !way->link.level;
		if (!leaf)
			way_step(way, node, &key);
		else if (buffer)
			ret = way_keep_leaf(scrub, node);
		if (buffer)
			cache_put(vol, buffer);
	} while (!leaf);
	return ret;
}

/* ---- nodes from the device ---- */

/* 0: it is there and as it should be; -EIO: why; *flags: of the problem. */
static int node_read(struct scrub *scrub, const struct way *way, u32 *flags)
{
	struct scrub_node *own = &scrub->node[way->link.level];
	struct volume *vol = scrub->vol;
	int err;

	*flags = 0;
	own->there = false;
	if (!own->data)
		own->data = kvmalloc(vol->block_size, GFP_KERNEL);
	if (!own->data)
		return -ENOMEM;
	err = scrub_read(scrub, way->link.addr, 1, own->data);
	if (err) {
		*flags = TUX3_SCRUB_UNREADABLE;
		snprintf(scrub->why, sizeof(scrub->why), "the device failed to read it (%s)", error_text(err));
		return -EIO;
	}
	err = node_check(vol, own->data, way->link.addr, way->link.birth, way->link.level, scrub->why, sizeof(scrub->why));
	if (!err && way->link.level < way->top &&
	    !node_in_range(own->data, &way->low, way->has_high ? &way->high : NULL)) {
		snprintf(scrub->why, sizeof(scrub->why), "its keys are outside of the range that its parent gives it");
		err = -EIO;
	}
	own->link = way->link;
	own->there = !err;
	own->bad = false;
	return err;
}

/* The walk has just come to the first of its keys. */
static bool way_begins(const struct scrub *scrub, const struct way *way)
{
	const struct node_key none = { 0, 0 };

	return !scrub->skip && node_key_equal(&scrub->at, way->has_low ? &way->low : &none);
}

/* From now on it is known to be bad. */
static void node_tell(struct scrub *scrub, const struct way *way, u32 flags)
{
	struct tux3_ioc_scrub_problem problem = {
		.kind = TUX3_SCRUB_NODE, .flags = flags, .addr = way->link.addr, .count = 1, .offset = way->link.level,
		.ino = TUX3_INO_VOLUME, .ino_last = TUX3_INO_MAX,
	};
	struct scrub_node *own = &scrub->node[way->link.level];
	struct node_buffer *spare = cache_peek(scrub->vol, &way->link);
	struct node_key last = way->high;

	own->link = way->link;
	own->there = own->bad = true;
	WRITE_ONCE(scrub->vol->tree.must_look, true);
	if (way->has_low)
		problem.ino = way->low.high >> 8;
	if (way->has_high && node_key_step_down(&last))
		problem.ino_last = last.high >> 8;
	if (way_begins(scrub, way) || !spare) {
		scrub_problem(scrub, &problem);
		scrub_done(scrub, 1, &scrub->out->nodes);
	}
	if (spare)
		cache_put(scrub->vol, spare);
}

/* To the leaf of scrub->at: 0, WAY_LOST, -errno. */
static int scrub_way(struct scrub *scrub, struct way *way)
{
	struct node_link suspect = {};
	u32 bad = 0, flags = 0;
	int ret;

	for (;;) {
		down_read(&scrub->vol->tree.sem);
		ret = way_down(scrub, way);
		up_read(&scrub->vol->tree.sem);
		if (ret != WAY_MISS)
			return ret;
		if (volume_error(scrub->vol))
			return -EIO;
		if (!link_equal(&way->link, &suspect))
			bad = 0;
		if (bad == 2) {
			node_tell(scrub, way, flags);
			continue;
		}
		ret = node_read(scrub, way, &flags);
		if (ret == -ENOMEM)
			return ret;
		suspect = way->link;
		bad = ret ? bad + 1 : 0;
		if (!ret && way_begins(scrub, way))
			scrub_done(scrub, 1, &scrub->out->nodes);
	}
}

int scrub_tree(struct scrub *scrub)
{
	struct way way;
	int ret;

	for (;;) {
		/* All nodes on a way may be bad. */
		if (scrub_is_over(scrub) || scrub->out->problem_count + TUX3_MAX_LEVEL + 1 > TUX3_SCRUB_PROBLEMS)
			return 1;
		ret = scrub_way(scrub, &way);
		if (ret < 0)
			return ret;
		ret = ret == WAY_LOST ? 0 : scrub_leaf_data(scrub);
		if (ret)
			return ret;
		if (!way.has_high)
			return 0;
		scrub->at = way.high;
		scrub->skip = 0;
	}
}
