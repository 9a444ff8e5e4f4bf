/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Can what a change of names takes be read?  A commit that finds out that it cannot stops the volume.  Asked once some node could
 * not be read in this mount, by who is about to make the change, outside a delta.
 */
#ifndef TUX3_NAME_LOOK_H
#define TUX3_NAME_LOOK_H

#include "core/env.h"
#include "core/volume.h"

struct tree_key;
struct tux3_inode;

static inline bool name_must_look(struct volume *vol)
{
	return unlikely(READ_ONCE(vol->tree.met_bad));
}

/* The directory's entries with this hash, and its attributes.  0, -EIO, -ENOMEM; so do the others. */
int name_look_entry(struct tux3_inode *dir, u64 hash);
/* Attributes of an inode that gets or loses a name, and its mark should it be the last one. */
int name_look_inode(struct tux3_inode *inode);
/* An item that may be set or deleted. */
int name_look_item(struct volume *vol, const struct tree_key *key);

#endif
