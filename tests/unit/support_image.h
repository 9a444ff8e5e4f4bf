/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A small good volume in memory, and ways to damage it one thing at a time.  For test_check.c, test_show.c
 * and the image fuzzer.
 */
#ifndef TUX3_SUPPORT_IMAGE_H
#define TUX3_SUPPORT_IMAGE_H

#include "core/volume.h"
#include "core/check/check.h"

#define IMAGE_BYTES (16u << 20)

/* What image_build() makes, besides the directories /dir, /dir/sub and /two. */
struct image_inodes {
	u64 dir, sub, two;
	u64 small;		/* /small, hard link /two/hard: 100 bytes, inline; xattr user.one */
	u64 one;		/* /one: 600 bytes, one block */
	u64 big;		/* /big: 20 blocks; xattr user.large of 5000 bytes */
	u64 sparse;		/* /sparse: file blocks 0 and 10 */
	u64 prealloc;		/* /dir/prealloc: 16 unwritten blocks */
	u64 link;		/* /link -> small */
};

struct image {
	struct tux3_device *dev;
	struct image_inodes ino;
};

/* A new device with the volume; 0 or -errno, why is printed.  quota: usage is counted. */
int image_build(struct image *image, bool quota);
/* An image with the same bytes. */
int image_copy(struct image *to, const struct image *from);
void image_close(struct image *image);

/* Open for reading, check; codes[0 .. return value) are the problems, each once; -errno. */
int image_check(struct image *image, bool data, unsigned int *codes, unsigned int max, bool print);

/* Edit items: between these, tree_set() and the like; the result is on the device, with right checksums. */
struct volume *image_edit_begin(struct image *image);
/* The same, of a device that may be damaged already, in its log, too; NULL: then it cannot be opened, and nothing is printed. */
struct volume *image_edit_damaged(struct tux3_device *dev);
int image_edit_end(struct volume *vol);

/* Bytes of a block as they are on the device, and checksums after changing them. */
void *image_block(struct image *image, u64 addr);
void image_seal_map(struct image *image, u64 addr);
struct disk_anchor *image_anchor(struct image *image);	/* the one in use; then anchor_seal() */

#endif
