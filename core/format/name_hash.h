/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The hash of a name, which is where in the tree it is. */
#ifndef TUX3_NAME_HASH_H
#define TUX3_NAME_HASH_H

#include "core/env.h"

struct volume;

#define NAME_HASH_MIN	16u	/* lower cookies belong to the host */
#define NAME_HASH_MAX	((1ULL << 63) - 16)	/* and so do the highest */

/*
 * The offset of the item for a name: type DIRENT, PARENT (then ino is the directory, not the owner of the item) or XATTR.
 */
u64 name_hash(struct volume *vol, u64 ino, u8 type, const char *name, unsigned int len);

#endif
