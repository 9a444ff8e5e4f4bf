/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For tests of the tree: a volume that has a device, free maps, a cache and a tree but nothing else, and a
 * model of what the tree should hold: a sorted array.
 *
 * The data of an item follows from its key, a version and its length; the first bytes hold the version.
 */
#ifndef TUX3_SUPPORT_TREE_H
#define TUX3_SUPPORT_TREE_H

#include "core/volume.h"
#include "support_check.h"

struct model_item {
	struct tree_key key;
	u32 len;
	u32 version;
};

struct model {
	struct model_item *items;
	u32 count, capacity;
};

struct tree_fixture {
	struct volume vol;
	u32 versions;
	struct model model;		/* what the tree should hold */
	/* One snapshot at a time; its root becomes the anchor when it is finished. */
	bool flushing;
	struct list_head nodes;
	struct range_list frees;	/* what the anchor before it needs */
	struct node_link root;
	struct model at_snapshot;
	struct node_link anchor_root;
	struct model at_anchor;
	u64 leaked;			/* blocks that stayed in use because freeing them failed */
};

u64 test_random(u64 *state);
u32 test_below(u64 *state, u32 limit);

u32 model_find(const struct model *model, const struct tree_key *key, bool *found);
void model_set(struct model *model, const struct tree_key *key, u32 len, u32 version);
void model_delete(struct model *model, u32 from, u32 to);
void model_copy(struct model *to, const struct model *from);

void item_fill(void *data, const struct tree_key *key, u32 version, u32 len);
/* Is this what item_fill made for some version?  For readers that do not know which one to expect. */
bool item_is_sound(const struct tree_key *key, const void *data, u32 len);

struct tree_fixture *fixture_open(u32 block_size, u64 blocks, u64 cache_bytes);
void fixture_close(struct tree_fixture *fixture);

/* Change tree and model alike; the tree's return value. On an error the model is as before. */
int fixture_set(struct tree_fixture *fixture, const struct tree_key *key, u32 len);
int fixture_delete(struct tree_fixture *fixture, const struct tree_key *key);
int fixture_delete_range(struct tree_fixture *fixture, const struct tree_key *from, const struct tree_key *to,
			 u32 max);

void fixture_snapshot(struct tree_fixture *fixture);	/* begin, and submit the writes */
void fixture_finish(struct tree_fixture *fixture);	/* they are over; the root becomes the anchor */
void fixture_sync(struct tree_fixture *fixture);	/* both, of everything */
/* Forget the cache and open the tree of the last anchor again; what was dirty must have been synced. */
void fixture_reopen(struct tree_fixture *fixture, u64 cache_bytes);

/* Check the tree against the model: everything, by a scan. */
void fixture_compare(struct tree_fixture *fixture);
bool fixture_equals(struct tree_fixture *fixture, const struct model *model);

struct shape {
	u64 nodes, leaves, items;
	u64 leaf_bytes;			/* used in leaves, without headers */
	u32 height;
};
/* Check all invariants of tree.h that can be seen from outside, and that no block is lost. */
void fixture_check(struct tree_fixture *fixture, struct shape *shape);
/* Blocks in use without being in the tree; fixture_check() wants none, or fixture->leaked. */
u64 fixture_lost_blocks(struct tree_fixture *fixture);

/* ---- random changes ---- */

enum key_style { KEYS_DENSE, KEYS_HASHED, KEYS_MIXED, KEY_STYLES };
enum len_style { LENS_SMALL, LENS_ANY, LENS_LARGE, LEN_STYLES };

struct random_run {
	struct tree_fixture *fixture;
	u64 *random;
	enum key_style keys;
	enum len_style lens;
	u32 inodes, offsets;
	u32 growing;		/* of 100 changes so many are sets */
};

struct tree_key random_key(struct random_run *run);
u32 random_len(struct random_run *run);
struct tree_key existing_key(struct random_run *run);
void random_change(struct random_run *run);

/* Run fn for seeds 1, 2, 3 ..., or for the one that was asked for.  name: part of the test's. */
void run_seeds(const char *name, u32 runs, void (*fn)(u64 *random));

/* For env_set_log(): how many there were; TUX3_TEST_VERBOSE=1 shows them. */
extern u64 messages;
void count_message(int level, const char *message);

#endif
