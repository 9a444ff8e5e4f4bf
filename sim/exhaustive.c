/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every sequence of one or two operations of a fixed set on a small fixed tree, with every sync between
 * and after them, and a cut after every write.
 *
 *	A/foo	7000 bytes, an xattr		A/bar	100 bytes, also known as B/bar
 *	A/C	an empty directory		B	a directory		foo	a file of 20,000 bytes
 */
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "sim.h"

#define PUNCH	(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define ZERO	FALLOC_FL_ZERO_RANGE
#define KEEP	FALLOC_FL_KEEP_SIZE

static const struct sim_op initial[] = {
	{ .kind = SIM_MKDIR, .a = "A", .mode = 0755 },
	{ .kind = SIM_MKDIR, .a = "B", .mode = 0755 },
	{ .kind = SIM_MKDIR, .a = "A/C", .mode = 0755 },
	{ .kind = SIM_CREATE, .a = "A/foo", .mode = 0644 },
	{ .kind = SIM_CREATE, .a = "A/bar", .mode = 0644 },
	{ .kind = SIM_CREATE, .a = "foo", .mode = 0644 },
	{ .kind = SIM_WRITE, .a = "A/foo", .len = 7000, .seed = 101 },
	{ .kind = SIM_WRITE, .a = "A/bar", .len = 100, .seed = 102 },
	{ .kind = SIM_WRITE, .a = "foo", .len = 20000, .seed = 103 },
	{ .kind = SIM_SETXATTR, .a = "A/foo", .b = "user.x", .len = 50, .seed = 104 },
	{ .kind = SIM_LINK, .a = "A/bar", .b = "B/bar" },
	{ .kind = SIM_FSYNC, .a = "foo" },	/* there may be more: its commit makes the room in which later ones go ahead */
	{ .kind = SIM_SYNC },
};

static const struct sim_op set[] = {
	{ .kind = SIM_CREATE, .a = "bar", .mode = 0644 },
	{ .kind = SIM_CREATE, .a = "B/foo", .mode = 0600 },
	{ .kind = SIM_MKDIR, .a = "B/C", .mode = 0755 },
	{ .kind = SIM_MKDIR, .a = "A/C/D", .mode = 0755 },
	{ .kind = SIM_MKNOD, .a = "B/foo", .mode = S_IFCHR | 0600, .major = 5, .minor = 77 },
	{ .kind = SIM_SYMLINK, .a = "B/foo", .b = "../A/foo" },
	{ .kind = SIM_TMPFILE, .a = "A", .mode = 0600, .flags = 0 },
	{ .kind = SIM_LINK, .a = "@0", .b = "B/foo" },
	{ .kind = SIM_LINK, .a = "A/foo", .b = "B/foo" },
	{ .kind = SIM_LINK, .a = "A/bar", .b = "A/baz" },
	{ .kind = SIM_UNLINK, .a = "A/foo" },
	{ .kind = SIM_UNLINK, .a = "A/bar" },
	{ .kind = SIM_UNLINK, .a = "B/bar" },
	{ .kind = SIM_UNLINK, .a = "foo" },
	{ .kind = SIM_RMDIR, .a = "A/C" },
	{ .kind = SIM_RMDIR, .a = "B" },
	{ .kind = SIM_OPEN, .a = "A/foo", .flags = 0 },
	{ .kind = SIM_RENAME, .a = "A/foo", .b = "B/foo" },
	{ .kind = SIM_RENAME, .a = "A/foo", .b = "A/bar" },
	{ .kind = SIM_RENAME, .a = "A/bar", .b = "B/bar" },
	{ .kind = SIM_RENAME, .a = "foo", .b = "A/foo" },
	{ .kind = SIM_RENAME, .a = "A/C", .b = "B/C" },
	{ .kind = SIM_RENAME, .a = "A", .b = "B/A" },
	{ .kind = SIM_RENAME, .a = "B", .b = "A/C" },
	{ .kind = SIM_RENAME, .a = "A/foo", .b = "B/bar", .flags = TUX3_RENAME_EXCHANGE },
	{ .kind = SIM_RENAME, .a = "A/C", .b = "foo", .flags = TUX3_RENAME_EXCHANGE },
	{ .kind = SIM_RENAME, .a = "A/foo", .b = "B/foo", .flags = TUX3_RENAME_WHITEOUT },
	{ .kind = SIM_RENAME, .a = "A/foo", .b = "B/foo", .flags = TUX3_RENAME_NOREPLACE },
	{ .kind = SIM_APPEND, .a = "A/foo", .len = 3000, .seed = 1 },
	{ .kind = SIM_APPEND, .a = "A/bar", .len = 100, .seed = 2 },
	{ .kind = SIM_APPEND, .a = "A/bar", .len = 9000, .seed = 3 },
	{ .kind = SIM_APPEND, .a = "foo", .len = 4096, .seed = 4 },
	{ .kind = SIM_WRITE, .a = "A/foo", .len = 4096, .seed = 5 },
	{ .kind = SIM_WRITE, .a = "A/foo", .offset = 3000, .len = 2500, .seed = 6 },
	{ .kind = SIM_WRITE, .a = "A/bar", .offset = 10, .len = 20, .seed = 7 },
	{ .kind = SIM_WRITE, .a = "foo", .offset = 8192, .len = 4096, .seed = 8 },
	{ .kind = SIM_WRITE, .a = "foo", .offset = 60000, .len = 5000, .seed = 9 },
	{ .kind = SIM_WRITE, .a = "A/foo", .offset = 1ULL << 40, .len = 10, .seed = 10 },
	{ .kind = SIM_TRUNCATE, .a = "A/foo", .len = 0 },
	{ .kind = SIM_TRUNCATE, .a = "A/foo", .len = 5000 },
	{ .kind = SIM_TRUNCATE, .a = "foo", .len = 8192 },
	{ .kind = SIM_TRUNCATE, .a = "A/bar", .len = 30 },
	{ .kind = SIM_TRUNCATE, .a = "A/bar", .len = 12000 },
	{ .kind = SIM_TRUNCATE, .a = "foo", .len = 50000 },
	{ .kind = SIM_FALLOCATE, .a = "A/foo", .offset = 0, .len = 30000 },
	{ .kind = SIM_FALLOCATE, .a = "foo", .offset = 16384, .len = 40000, .mode = KEEP },
	{ .kind = SIM_FALLOCATE, .a = "foo", .offset = 4096, .len = 8192, .mode = PUNCH },
	{ .kind = SIM_FALLOCATE, .a = "foo", .offset = 5000, .len = 9000, .mode = PUNCH },
	{ .kind = SIM_FALLOCATE, .a = "A/bar", .offset = 20, .len = 50, .mode = PUNCH },
	{ .kind = SIM_FALLOCATE, .a = "foo", .offset = 3000, .len = 40000, .mode = ZERO },
	{ .kind = SIM_FALLOCATE, .a = "foo", .offset = 12288, .len = 20000, .mode = ZERO | KEEP },
	{ .kind = SIM_SETATTR, .a = "A/foo", .flags = TUX3_SET_MODE | TUX3_SET_UID, .mode = 0421, .uid = 77 },
	{ .kind = SIM_SETATTR, .a = "A", .flags = TUX3_SET_MTIME, .mtime = 1234567890123456789ULL },
	{ .kind = SIM_SETXATTR, .a = "A/foo", .b = "user.x", .len = 200, .seed = 11 },
	{ .kind = SIM_SETXATTR, .a = "A/foo", .b = "user.y", .len = 10, .seed = 12 },
	{ .kind = SIM_SETXATTR, .a = "A/bar", .b = "user.big", .len = 9000, .seed = 13 },
	{ .kind = SIM_REMOVEXATTR, .a = "A/foo", .b = "user.x" },
	{ .kind = SIM_FSYNC, .a = "A/foo" },
	{ .kind = SIM_FSYNC, .a = "A" },
	{ .kind = SIM_FDATASYNC, .a = "foo" },
	{ .kind = SIM_SYNC },
};

#define SET_COUNT	((u64)ARRAY_SIZE(set))
#define SYNC_COUNT	3u	/* none or sync, fsync, fdatasync */

u64 exhaustive_count(u32 length)
{
	return length == 1 ? SET_COUNT * SYNC_COUNT * 2 : SET_COUNT * SET_COUNT * SYNC_COUNT * SYNC_COUNT;
}

/* A sync after op: of the whole volume, or of the file that op was about (by its new name, if it has one). */
static void make_sync(struct sim_op *sync, const struct sim_op *op, u32 which, bool none)
{
	memset(sync, 0, sizeof(*sync));
	sync->kind = which == 0 ? (none ? SIM_NONE : SIM_SYNC) : which == 1 ? SIM_FSYNC : SIM_FDATASYNC;
	if (!which)
		return;
	if (op->kind == SIM_RENAME || op->kind == SIM_LINK)
		snprintf(sync->a, sizeof(sync->a), "%s", op->b);
	else
		snprintf(sync->a, sizeof(sync->a), "%s", op->kind == SIM_TMPFILE ? "@0" : op->a);
}

static u32 make_sequence(u64 index, u32 length, struct sim_op *ops)
{
	u32 which, count = 0;

	if (length == 1)
		index %= SET_COUNT * SYNC_COUNT;
	which = index % SYNC_COUNT;
	index /= SYNC_COUNT;
	if (length == 2) {
		ops[count++] = set[index % SET_COUNT];
		index /= SET_COUNT;
		make_sync(&ops[count], &ops[count - 1], index % SYNC_COUNT, true);
		count++;
		index /= SYNC_COUNT;
	}
	ops[count++] = set[index % SET_COUNT];
	make_sync(&ops[count], &ops[count - 1], which, false);
	return count + 1;
}

/* Short sequences are run with both ways of an fsync, of the others half with this one, half with that. */
static u32 draw_fsync(const struct sim_config *config, u64 index, u64 chance)
{
	bool ahead = config->length == 1 ? index >= SET_COUNT * SYNC_COUNT : chance & 8;

	if (config->fsync)
		return config->fsync;
	return ahead ? TUX3_FSYNC_AHEAD : TUX3_FSYNC_FULL;
}

static void exhaustive_params(struct sim_params *params, const struct sim_config *config, u64 index)
{
	u64 chance = rng_mix(index);

	params->family = SIM_KINDS - 1;
	params->lives = 1;
	params->seed = index;
	params->volume_bytes = TUX3_MIN_VOLUME_BYTES;
	params->block_size = 4096;
	params->data_cache_bytes = 4 << 20;
	params->options.manual = params->options.verify = params->options.costs = true;
	params->options.age_ms = 3600 * 1000;
	params->options.cache_bytes = 4 << 20;
	params->options.fsync = draw_fsync(config, index, chance);
	params->options.log_blocks = chance & 1 ? 1 : 100;	/* unify at once, or never */
	params->weights[SIM_CREATE] = params->weights[SIM_WRITE] = params->weights[SIM_UNLINK] = 1;
	params->names = 4;
	params->disk.size_bytes = params->volume_bytes;
	params->disk.volatile_cache = true;
	params->disk.defer = chance & 2;
	params->disk.seed = chance;
	params->close_at_end = !(chance & 4);
}

static void exhaustive_live(struct sim_run *run, struct rng *rng)
{
	struct sim_op ops[4];
	u32 count = make_sequence(run->params->seed, run->config->length, ops), i;

	for (i = 0; i < ARRAY_SIZE(initial) && !run->failed; i++)
		run_op(run, &initial[i]);
	disk_begin_trace(run->disk);
	run_begin(run, run->state, tux3_committed(run->volume));
	for (i = 0; i < count && !run->failed; i++)
		run_op(run, &ops[i]);
}

const struct workload exhaustive_workload = { .params = exhaustive_params, .live = exhaustive_live };
