/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: a set of keys, as ranges of them.  They are in order and apart from each other, in a repair_table.
 */
#ifndef TUX3_KEY_RANGES_H
#define TUX3_KEY_RANGES_H

#include "core/tree/tree_internal.h"

struct repair_table;

struct key_range {
	struct node_key first, last;	/* both included */
};

/* Index of the first range that does not end before the key. */
u64 key_ranges_find(const struct repair_table *ranges, const struct node_key *key);
bool key_ranges_have(const struct repair_table *ranges, const struct node_key *key);
int key_ranges_add(struct repair_table *ranges, const struct node_key *first, const struct node_key *last);
/* A range, but for what of it is in the other set. */
int key_ranges_add_without(struct repair_table *ranges, const struct key_range *range, const struct repair_table *without);

#endif
