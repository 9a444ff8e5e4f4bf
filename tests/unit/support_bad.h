/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A volume with files of many extents, names and xattrs, on a device in memory of which one block cannot be read, or two.
 *
 * TUX3_TEST_VERBOSE=1 shows what the code under test prints.
 */
#ifndef SUPPORT_BAD_H
#define SUPPORT_BAD_H

#include "support_lib.h"
#include "core/tree/tree.h"

#define BLOCK		4096u
#define BAD_BYTES	(16u << 20)
#define BAD_PIECES	400u		/* extents of /pieces; /other has half as many */
#define BAD_FILES	150u		/* /big/f0, ... */
#define BAD_NODES	200u
#define BAD_AT_ONCE	2u

/* Each node is tried with each operation.  With a sanitizer, which takes a multiple of the time, one of so many is; in turn. */
#if defined(__SANITIZE_THREAD__)
#define EACH_NODE	7u
#elif defined(__SANITIZE_ADDRESS__)
#define EACH_NODE	3u
#else
#define EACH_NODE	1u
#endif

struct bad_device {
	struct tux3_device dev;
	struct tux3_device *below;
	u64 bad[BAD_AT_ONCE];	/* until they are written; 0: none is */
	u32 reads, failed;
	bool *written;		/* each BLOCK since the device was made anew */
	struct volume *reclaim;	/* its nodes leave memory with each write */
	void (*beside)(void *ctx);	/* called once, by the next write: what others do while a commit is under way */
	void *ctx;
};

struct bad_device *bad_device(struct tux3_device *dev);
void be_bad(struct bed *bed, u64 addr);		/* this block; 0: all can be read */

extern char bad_data[BLOCK * 3];

/* From now on the device, of a volume that is closed, is one of which a block may get bad. */
void bad_wrap(struct bed *bed);

/* Closes the volume, and does that.  Returns what the device has then, to begin anew with; to be freed. */
u8 *bad_save(struct bed *bed);

/* The device is as it was saved, but that this block cannot be read (0: all can be). */
void bad_anew(struct bed *bed, const u8 *saved, u64 addr);

/* All nodes of the tree: for tree_walk(). */
struct bad_nodes {
	u64 addr[BAD_NODES];
	u32 count;
};
int bad_see_node(void *ctx, const struct tree_visit *visit);

/* The leaf that has this key: likewise. */
struct bad_leaf {
	struct tree_key key;
	u64 addr;
};
int bad_see_leaf(void *ctx, const struct tree_visit *visit);

u8 *bad_make(struct bed *bed, struct bad_nodes *nodes);		/* as saved */
bool bad_open(struct bed *bed);					/* false: it cannot be */
void bad_message(int level, const char *message);		/* for env_set_log() */

/* Something may have been lost, which is told once. */
void bad_sync(struct bed *bed);

/* A volume that is in use while a leaf gets bad; and at its end the checker finds nothing. */
void bad_begin(struct bed *bed);
void bad_end(struct bed *bed);
void bad_item(struct bed *bed, struct tree_key key);		/* the leaf that has it, after all nodes have left memory */
void bad_items(struct bed *bed, struct tree_key key, struct tree_key other);	/* both of their leaves */

void bad_make_pieces(struct bed *bed, const char *path, u32 pieces);
struct tux3_node *bad_new_pieces(struct bed *bed, const char *path);
int bad_write(struct tux3_node *node, u64 block, u32 blocks);	/* 0 or -errno */
int bad_unlink(struct bed *bed, const char *path);
int bad_chown(struct tux3_node *node, u32 uid);
void bad_forget_nodes(struct bed *bed);		/* all that need not stay: what was used lately goes in a later turn */

#endif
