/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A volume on which every fsync goes ahead of its delta if it can, and nothing else commits. */
#ifndef SUPPORT_INTENT_H
#define SUPPORT_INTENT_H

#include <pthread.h>
#include "support_lib.h"
#include "core/intent/intent.h"

#define BLOCK 4096u
#define BYTES (64u << 20)

static inline u64 counted(struct bed *bed, enum tux3_counter which)
{
	return delta_counter(tux3_core(bed->volume), which);
}

static inline void fill(struct tux3_node *node, u64 offset, u32 bytes, u8 value)
{
	u8 *data = malloc(bytes);

	memset(data, value, bytes);
	assert_int_equal(tux3_write(node, data, bytes, offset), bytes);
	free(data);
}

static inline void assert_filled(struct tux3_node *node, u64 offset, u32 bytes, u8 value)
{
	u8 *data = malloc(bytes), *wanted = malloc(bytes);

	assert_int_equal(tux3_read(node, data, bytes, offset), bytes);
	memset(wanted, value, bytes);
	assert_memory_equal(data, wanted, bytes);
	free(wanted);
	free(data);
}

static inline u64 size_of(struct tux3_node *node)
{
	struct tux3_stat stat;

	assert_ok(tux3_stat_node(node, &stat));
	return stat.size;
}

/* fsync, and whether it went ahead. */
static inline bool synced_ahead(struct bed *bed, struct tux3_node *node)
{
	u64 ahead = counted(bed, TUX3_COUNT_FSYNCS_AHEAD), committed = tux3_committed(bed->volume);

	assert_ok(tux3_fsync(node, false));
	ahead = counted(bed, TUX3_COUNT_FSYNCS_AHEAD) - ahead;
	assert_int_equal(!ahead, tux3_committed(bed->volume) > committed);
	return ahead;
}

/* A volume with an intent area, all of it committed. */
static inline void make_sized(struct bed *bed, u64 bytes, u32 block_size)
{
	struct tux3_node *node;

	bed->opts.manual = true;
	bed->opts.verify = true;
	bed->opts.fsync = TUX3_FSYNC_AHEAD;
	bed_make(bed, bytes, block_size);
	node = bed_file(bed, "first");
	fill(node, 0, 100, 1);
	assert_false(synced_ahead(bed, node));		/* there was no area: its commit makes one */
	tux3_node_put(node, 1);
	assert_true(tux3_core(bed->volume)->intent.place.addr);
}

static inline void make(struct bed *bed, u32 block_size)
{
	make_sized(bed, BYTES, block_size);
}

static inline struct tux3_node *new_file(struct bed *bed, const char *path, u8 value)
{
	struct tux3_node *node = bed_file(bed, path);

	fill(node, 0, 5000, value);
	return node;
}

static inline void new_and_gone(struct bed *bed, const char *path, u8 value, bool synced)
{
	struct tux3_node *node = new_file(bed, path, value);

	if (synced)
		assert_true(synced_ahead(bed, node));
	tux3_node_put(node, 1);
}

static inline void rename_path(struct bed *bed, const char *from, const char *to, u32 flags)
{
	assert_ok(tux3_path_rename(bed->volume, NULL, from, to, flags));
}

static inline bool path_ahead(struct bed *bed, const char *path)
{
	struct tux3_node *node = bed_find(bed, path);
	bool ahead;

	assert_non_null(node);
	ahead = synced_ahead(bed, node);
	tux3_node_put(node, 1);
	return ahead;
}

/* 0: there is none. */
static inline void assert_file(struct bed *bed, const char *path, u8 value, u32 links)
{
	struct tux3_node *node = bed_find(bed, path);
	struct tux3_stat stat;

	if (!value) {
		assert_null(node);
		return;
	}
	if (!node)
		fail_msg("%s is not there", path);
	assert_filled(node, 0, 5000, value);
	assert_ok(tux3_stat_node(node, &stat));
	assert_int_equal(stat.nlink, links);
	tux3_node_put(node, 1);
}

static inline void begin(struct bed *bed)
{
	make(bed, BLOCK);
	new_and_gone(bed, "dir/a", 1, false);
	new_and_gone(bed, "dir/b", 2, false);
	new_and_gone(bed, "other/c", 3, false);
	assert_ok(tux3_sync(bed->volume));
}

void *fsync_path(void *node);		/* a thread */
/* Until all other threads of the test wait, or are over: on a machine that is busy that may take a while. */
void let_others_wait(void);

/* ---- a commit under way, that is not durable ---- */

void hold_commit(struct bed *bed, pthread_t *thread);
/* other: a thread that waits for it, or NULL. */
void let_commit(struct bed *bed, pthread_t thread, const pthread_t *other);
/* What a crash would have left now. */
void assert_image(struct bed *bed, u32 recovered, void (*look)(struct bed *bed));

#endif
