/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What scrub.c (portions, anchors, log, free maps), scrub_tree.c (nodes) and scrub_data.c share. */
#ifndef TUX3_SCRUB_INTERNAL_H
#define TUX3_SCRUB_INTERNAL_H

#include "core/env.h"
#include "core/device/device.h"
#include "core/format/format.h"
#include "core/scrub/scrub.h"
#include "core/tree/tree.h"

#define SCRUB_BATCH_BYTES	(1u << 20)	/* of data read at once, or a block */
#define SCRUB_LOOKS		8u		/* at what changes under our hands, before it is let go */

enum scrub_phase { SCRUB_ANCHORS, SCRUB_LOG, SCRUB_MAPS, SCRUB_TREE, SCRUB_PHASES };

/* A node as it was read from the device. */
struct scrub_node {
	struct node_link link;	/* with data */
	void *data;		/* NULL: nothing was read at this level */
	bool there;
	bool bad;		/* it is not what its link says, and that was told */
};

/* One portion. */
struct scrub {
	struct volume *vol;
	struct tux3_ioc_scrub *out;
	enum scrub_phase phase;
	/* Where it goes on.  LOG: high is the anchor's generation, low counts blocks; MAPS: low is a group. */
	struct node_key at;
	u32 skip;		/* TREE: blocks of the extent at this key, or xattrs of this hash, that are done */
	u8 *buffer;		/* SCRUB_BATCH_BYTES, or a block */
	u32 buffer_blocks;
	void *again;		/* a block, for second looks */
	struct scrub_node node[TUX3_MAX_LEVEL + 1];
	u64 memory_bytes;	/* of leaves that were taken from memory: they count for the budget, too */
	char why[TUX3_SCRUB_WHY];
};

/* scrub.c.  Read blocks from the device: 0, or the first error. */
int scrub_read(struct scrub *scrub, u64 addr, u32 count, void *data);
void scrub_read_many(struct scrub *scrub, struct device_io *reads, u32 count);
/* Room for another problem?  The portion ends when there is none. */
bool scrub_has_room(const struct scrub *scrub);
/* The budget is used up, or the caller killed. */
bool scrub_is_over(const struct scrub *scrub);
/* How many bytes may still be read. */
u64 scrub_left(const struct scrub *scrub);
/*
 * Told: a problem, with scrub->why.  One that continues the last, if that has a count.  The path of an inode is added.
 */
void scrub_problem(struct scrub *scrub, const struct tux3_ioc_scrub_problem *problem);
void scrub_done(struct scrub *scrub, u64 blocks, u64 *counter);	/* so many blocks are as they should be, or told */

/* scrub_tree.c.  1: the portion ends here; 0: the tree is done; -errno. */
int scrub_tree(struct scrub *scrub);

/* scrub_data.c: what the leaf in scrub->node[0] leads to, from scrub->at on.  1: the portion ends here; 0: go on; -errno. */
int scrub_leaf_data(struct scrub *scrub);

#endif
