/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A family of workloads in which single blocks of the device turn bad for reads: leaves of the tree that are of large files, and
 * blocks of their data.  What is in memory is dropped now and then, so that they are met.  The large files are registers
 * (registers.c); all else is as in other families, and must not notice.
 *
 * No leaf is taken of which something else is changed: what fails is only what is done with these files.  A file is removed also
 * when the leaf of its attributes is bad: that is refused, or goes, whether somebody has met the leaf before or not.
 */
#include <errno.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/data/data.h"
#include "core/tree/tree.h"
#include "user/lib/lib.h"
#include "families.h"

#define BAD_FILES	5u
#define BAD_AT_ONCE	3u
#define LEAVES_MAX	256u
#define SECTOR_COUNT	(REGISTER_BYTES / DISK_SECTOR)

struct leaf {
	u64 addr, birth;
	struct tree_key low, high;
};

struct bad_life {
	struct life *life;
	struct leaf bad[BAD_AT_ONCE];	/* what has turned bad since anything was mended last */
	u32 bad_count;
	/* Where to choose from: */
	struct tux3_node *nodes[BAD_FILES];
	u32 ids[BAD_FILES], node_count;
	struct leaf leaves[LEAVES_MAX];
	u32 leaf_count;
};

void bad_params(struct sim_params *params, struct rng *rng)
{
	params->volume_bytes = 40 * MIB;
	params->holds = false;
	params->no_csum = rng_one_in(rng, 4);
	params->quota = rng_one_in(rng, 4);
	params->options.log_blocks = 1 + rng_below(rng, 12);
	params->options.slice_extents = rng_one_in(rng, 2) ? 10 + rng_below(rng, 100) : 0;
	params->options.cache_bytes = rng_one_in(rng, 2) ? 128 * 4096 : 0;	/* for the same reason not less */
	params->data_cache_bytes = rng_one_in(rng, 2) ? 8192 : MIB;
	params->lives = 3;
	params->cuts = 10;
	params->weights[SIM_FSYNC] = params->weights[SIM_WRITE] = 6;	/* where it goes on after a cut */
}

/* ---- what turns bad ---- */

/* Not one that is new: in the next commit its items have to go where there was room for them. */
static bool is_file(const struct bad_life *bad, u64 ino)
{
	u32 i;

	for (i = 0; i < bad->node_count; i++)
		if (tux3_node_ino(bad->nodes[i]) == ino)
			return READ_ONCE(bad->nodes[i]->inode.in_tree);
	return false;
}

/* One that has items of these files alone, and no room for others. */
static int see_node(void *ctx, const struct tree_visit *visit)
{
	struct bad_life *bad = ctx;
	u64 ino;

	if (visit->level || visit->dirty || !visit->data || !visit->has_high || bad->leaf_count == LEAVES_MAX)
		return 0;
	for (ino = visit->low.ino; ino <= visit->high.ino; ino++)
		if (!is_file(bad, ino))
			return 0;
	bad->leaves[bad->leaf_count++] = (struct leaf){ visit->addr, visit->birth, visit->low, visit->high };
	return 0;
}

/* Not in the middle of a commit: what it has looked at is to stay until it is edited (core/data/reach.c). */
static void forget_nodes(struct life *life)
{
	run_beside_end(life->run);
	while (cache_shrink(tux3_core(life->run->volume), U64_MAX))	/* what was used since the last time goes in the next one */
		;
}

/* Edits keep the way to where the last one was. */
static bool in_memory(struct life *life, const struct leaf *leaf)
{
	struct node_link link = { .addr = leaf->addr, .birth = leaf->birth };
	struct volume *vol = tux3_core(life->run->volume);
	struct node_buffer *buffer = cache_peek(vol, &link);

	if (buffer)
		cache_put(vol, buffer);
	return buffer;
}

static void turn_leaf_bad(struct bad_life *bad)
{
	struct sim_run *run = bad->life->run;
	const struct leaf *leaf;

	bad->leaf_count = 0;
	disk_pause_faults(run->disk, true);
	if (tree_walk(tux3_core(run->volume), see_node, bad))
		sim_fail(run, "the tree cannot be walked");
	disk_pause_faults(run->disk, false);
	forget_nodes(bad->life);
	if (!bad->leaf_count)
		return;
	leaf = &bad->leaves[rng_below(bad->life->rng, bad->leaf_count)];
	if (in_memory(bad->life, leaf))
		return;
	if (run->config->verbose)
		printf("  leaf %llu turns bad: %llu:%u:%llu to %llu:%u:%llu\n", leaf->addr, leaf->low.ino, leaf->low.type,
		       leaf->low.offset, leaf->high.ino, leaf->high.type, leaf->high.offset);
	bad->bad[bad->bad_count++] = *leaf;
	disk_turn_bad(run->disk, leaf->addr);
}

static void turn_data_bad(struct bad_life *bad)
{
	struct tux3_node *node = bad->nodes[rng_below(bad->life->rng, bad->node_count)];
	struct sim_run *run = bad->life->run;
	struct data_extent extent = { .block = 0 };
	int err;

	disk_pause_faults(run->disk, true);
	err = data_map(&node->inode, rng_below(bad->life->rng, SECTOR_COUNT / 8), 1, &extent, NULL, 0);
	disk_pause_faults(run->disk, false);
	if (err || extent.kind != DATA_MAPPED)
		return;
	if (run->config->verbose)
		printf("  data %llu turns bad\n", extent.addr);
	bad->bad[bad->bad_count++] = (struct leaf){ .addr = extent.addr };
	disk_turn_bad(run->disk, extent.addr);
}

static void turn_bad(struct bad_life *bad)
{
	if (bad->bad_count == BAD_AT_ONCE || bad->life->run->beside)
		return;
	bad->node_count = registers_list(bad->life->run, bad->nodes, bad->ids, BAD_FILES);
	if (!bad->node_count)
		return;
	if (rng_one_in(bad->life->rng, 4))
		turn_data_bad(bad);
	else
		turn_leaf_bad(bad);
}

static void mend(struct bad_life *bad)
{
	if (bad->life->run->config->verbose)
		printf("  all can be read again\n");
	disk_mend(bad->life->run->disk);
	bad->bad_count = 0;
}

/* ---- what is done ---- */

static void bad_file(struct life *life, char *path)
{
	snprintf(path, SIM_PATH_MAX, "b/f%u", (u32)rng_below(life->rng, BAD_FILES));
}

static u64 sectors(struct life *life, u64 most)
{
	return (1 + rng_below(life->rng, most)) * DISK_SECTOR;
}

static u64 some_place(struct life *life, u64 len)
{
	u64 last = SECTOR_COUNT - len / DISK_SECTOR;

	return rng_below(life->rng, rng_one_in(life->rng, 3) ? last + 1 : last / 4) * DISK_SECTOR;
}

/* In many pieces. */
static void bad_make(struct life *life, const char *path)
{
	u32 pieces = 30 + rng_below(life->rng, 250), i;

	if (op_on(life, SIM_CREATE, path, 0, 0))
		return;
	for (i = 0; i < pieces; i++)
		op_on(life, SIM_WRITE, path, i * 2 * 4096, rng_one_in(life->rng, 8) ? sectors(life, 8) : 4096);
}

static void bad_allocate(struct life *life, const char *path)
{
	static const u32 modes[] = { 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE };
	struct sim_op op = { .kind = SIM_FALLOCATE, .mode = modes[rng_below(life->rng, ARRAY_SIZE(modes))] };

	snprintf(op.a, sizeof(op.a), "%s", path);
	op.len = sectors(life, rng_one_in(life->rng, 3) ? 2000 : 60);
	op.offset = some_place(life, op.len);
	make_op(life, &op);
}

static void bad_change(struct life *life, const char *path)
{
	u64 len = sectors(life, rng_one_in(life->rng, 4) ? 300 : 24);

	switch (rng_below(life->rng, 14)) {
	case 0:
		op_on(life, SIM_TRUNCATE, path, 0, rng_one_in(life->rng, 3) ? 0 : rng_below(life->rng, SECTOR_COUNT) * DISK_SECTOR);
		break;
	case 1:
	case 2:
		bad_allocate(life, path);
		break;
	case 3:
		if (!op_on(life, SIM_UNLINK, path, 0, 0) && rng_one_in(life->rng, 2))
			break;
		bad_make(life, path);
		break;
	case 4:
	case 5:
	case 6:
		len = round_up(len, 4096);
		op_on(life, SIM_WRITE, path, round_down(some_place(life, len), 4096), len);
		break;
	default:
		op_on(life, SIM_WRITE, path, some_place(life, len), len);
	}
}

/* Elsewhere, which is to notice nothing. */
static void bad_others(struct life *life, u32 number)
{
	struct sim_op op = { .kind = SIM_RENAME };

	snprintf(op.a, sizeof(op.a), "d%u/s%u", number % 2, (u32)rng_below(life->rng, 8));
	snprintf(op.b, sizeof(op.b), "d%u/s%u", (u32)rng_below(life->rng, 2), (u32)rng_below(life->rng, 8));
	switch (rng_below(life->rng, 6)) {
	case 0:
		op_on(life, SIM_UNLINK, op.a, 0, 0);
		break;
	case 1:
		make_op(life, &op);
		break;
	case 2:
		set_attr(life, op.a);
		break;
	default:
		op_on(life, SIM_CREATE, op.a, 0, 0);
		op_on(life, SIM_APPEND, op.a, 0, rng_log(life->rng, 14));
	}
	if (rng_one_in(life->rng, 3))
		op_on(life, SIM_FSYNC, op.a, 0, 0);
}

static void bad_step(struct bad_life *bad, u32 number)
{
	struct life *life = bad->life;
	char path[SIM_PATH_MAX];

	bad_file(life, path);
	switch (rng_below(life->rng, 12)) {
	case 0:
		turn_bad(bad);
		break;
	case 1:
		forget_nodes(life);
		break;
	case 2:
		bad_others(life, number);
		break;
	case 3:
		sync_all(life);
		break;
	case 4:
		op_on(life, rng_one_in(life->rng, 2) ? SIM_FDATASYNC : SIM_FSYNC, path, 0, 0);
		break;
	default:
		bad_change(life, path);
		if (rng_one_in(life->rng, 3))
			op_on(life, rng_one_in(life->rng, 3) ? SIM_FDATASYNC : SIM_FSYNC, path, 0, 0);
	}
	if (rng_one_in(life->rng, 40))
		mend(bad);
	if (rng_one_in(life->rng, 30)) {
		run_beside_end(life->run);	/* a scrub waits for it */
		op_on(life, SIM_COMPARE, "", 0, 0);
	}
}

static void bad_beside(struct life *life, u32 rarely)
{
	struct sim_run *run = life->run;
	bool begin = rng_one_in(life->rng, rarely), end = rng_one_in(life->rng, 6);
	u32 writes = rng_below(life->rng, 4);

	if (end)
		run_beside_end(run);
	if (begin && !run->beside && !run->failed)
		run_beside_begin(run, NULL, writes);
}

/* A crash may have left nothing of the life before. */
static void bad_begin(struct life *life)
{
	char path[SIM_PATH_MAX];
	bool is_new;
	u32 i;
	int err;

	is_new = model_lookup(life->run->state, "b", &err) == M_NONE;
	if (is_new) {
		make_dirs(life, 2);
		op_on(life, SIM_MKDIR, "b", 0, 0);
	}
	registers_begin(life->run, "b");
	for (i = 0; is_new && i < BAD_FILES; i++) {
		snprintf(path, sizeof(path), "b/f%u", i);
		bad_make(life, path);
	}
	if (is_new)
		sync_all(life);
}

void bad_live(struct life *life)
{
	u32 rarely = rng_one_in(life->rng, 2) ? NEVER : 10 + rng_below(life->rng, 20), i;
	struct bad_life bad = { .life = life };
	struct sim_run *run = life->run;

	bad_begin(life);
	run_first_ahead(run);
	for (i = 0; i < 120 && !run->failed; i++) {
		bad_beside(life, rarely);
		bad_step(&bad, i);
	}
	run_beside_end(run);
	if (!run->failed && rng_one_in(life->rng, 2))
		mend(&bad);
}
