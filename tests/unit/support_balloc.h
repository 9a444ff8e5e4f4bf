/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * For tests of free space: a volume that has a device and free maps, and nothing else.
 */
#ifndef TUX3_SUPPORT_BALLOC_H
#define TUX3_SUPPORT_BALLOC_H

#include "core/blocks/freemap.h"
#include "core/volume.h"
#include "support_check.h"

#define KIB	1024ULL
#define MIB	(KIB * KIB)
#define GIB	(KIB * MIB)
#define TIB	(KIB * GIB)

/* For env_set_log(): calls that must be refused say so, thousands of times here.  What was said last is kept. */
void keep_quiet(int level, const char *message);
extern char last_message[512];

void random_begin(const char *name, u64 seed);
u64 random64(void);
u64 random_below(u64 limit);

void volume_geometry(struct volume *vol, u64 bytes, u32 block_size);
void volume_mount(struct volume *vol, u64 delta, u64 used);
struct volume *volume_make(u64 bytes, u32 block_size);
void volume_drop(struct volume *vol);
/* As after a crash, or a clean end: what counts is on the device. */
void volume_remount(struct volume *vol, u64 delta, u64 used);
/* After a crash, where the log names that group. */
void volume_replay(struct volume *vol, u64 delta, u64 used, u64 group);
void write_maps(struct volume *vol, struct list_head *writes);
/* How many groups a GROUP_TOUCHED record would name, and up to max of them. */
u32 touched_groups(struct volume *vol, u64 *groups, u32 max);
void unify(struct volume *vol, u64 delta);
u64 free_blocks(struct volume *vol);
u64 disk_used(struct volume *vol);
u64 alloc_exactly(struct volume *vol, enum balloc_kind kind, u64 goal, u32 want);

#endif
