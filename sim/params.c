/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What follows from a seed: the volume, the disk, the limits, and the mix of operations. */
#include <string.h>
#include "sim.h"

#define MIB (1ULL << 20)

/* Some kinds often, some rarely, some never: each seed has its own mix. */
static void draw_weights(struct sim_params *params, struct rng *rng)
{
	static const u32 usual[SIM_OP_KINDS] = {
		[SIM_CREATE] = 10, [SIM_MKDIR] = 4, [SIM_MKNOD] = 1, [SIM_SYMLINK] = 2, [SIM_LINK] = 3,
		[SIM_UNLINK] = 5, [SIM_RMDIR] = 2, [SIM_RENAME] = 6, [SIM_WRITE] = 14, [SIM_APPEND] = 5,
		[SIM_TRUNCATE] = 4, [SIM_FALLOCATE] = 5, [SIM_SETATTR] = 2, [SIM_SETXATTR] = 4,
		[SIM_REMOVEXATTR] = 2, [SIM_OPEN] = 2, [SIM_CLOSE] = 1, [SIM_TMPFILE] = 1, [SIM_FSYNC] = 3,
		[SIM_FDATASYNC] = 2, [SIM_SYNC] = 5, [SIM_COMPARE] = 2,
	};
	u32 i;

	for (i = 0; i < SIM_QUOTA; i++)		/* that one is for volumes with quotas */
		params->weights[i] = usual[i] * (rng_one_in(rng, 5) ? 0 : rng_log(rng, 4));
	params->weights[SIM_CREATE] += 10;
	params->weights[SIM_SYNC] += 5;
}

static void draw_options(struct volume_options *opts, struct rng *rng)
{
	opts->manual = opts->verify = opts->costs = true;
	opts->age_ms = 3600 * 1000;	/* real time must not matter */
	opts->log_blocks = rng_one_in(rng, 3) ? 1 + rng_below(rng, 4) : 4 + rng_below(rng, 60);
	opts->dirty_nodes = rng_one_in(rng, 3) ? 1 + rng_below(rng, 6) : 64;
	opts->cache_bytes = rng_one_in(rng, 2) ? 4096 * rng_log(rng, 5) : 4 * MIB;
	opts->names_cached = rng_one_in(rng, 2) ? rng_log(rng, 4) : 1000;
	opts->slice_extents = rng_one_in(rng, 2) ? 1 + rng_below(rng, 3) : 0;
	opts->dirty_bytes = rng_one_in(rng, 3) ? 4096 * rng_log(rng, 5) : 16 * MIB;
	opts->overlay_entries = rng_one_in(rng, 3) ? rng_log(rng, 4) : 1000;
	if (rng_one_in(rng, 3))
		opts->name_hash_mask = rng_one_in(rng, 2) ? 3 : 0x7000000000000000ULL;
}

/*
 * Apart from all else that follows from the seed, so that this stays as it is.  Not what the volume does on its own: that depends
 * on how long commits took.
 */
void params_fsync(struct sim_params *params, const struct sim_config *config, u64 seed)
{
	bool ahead = rng_hash(seed, 6) % 2;

	params->options.fsync = config->fsync ? config->fsync : ahead ? TUX3_FSYNC_AHEAD : TUX3_FSYNC_FULL;
	if (rng_hash(seed, 13) % 2)		/* what is large here has its data in the far area */
		params->options.intent_near_bytes = 4096 * (1 + rng_hash(seed, 17) % 8);
}

void params_canary(struct sim_params *params, const struct sim_config *config)
{
	if (config->canary > CANARY_CHEAP_COSTS) {
		params->options.cheap = config->canary - CANARY_CHEAP_COSTS;
		params->options.cheap_by = config->cheap_by;
		return;
	}
	if (!config->canary)
		return;
	params->disk.volatile_cache = true;
	params->disk.has_fua = false;
	params->disk.ignore_flush = config->canary == CANARY_IGNORE_FLUSH;
	params->disk.unflushed_magic = config->canary == CANARY_AHEAD_FLUSH ? TUX3_INTENT_MAGIC : 0;
	params->options.drop_flush = config->canary == CANARY_DROP_FLUSH;
	params->options.keep_changed = config->canary == CANARY_KEEP_CHANGED;
	if (config->canary == CANARY_LOSE_AHEAD || config->canary == CANARY_AHEAD_FLUSH || config->canary == CANARY_KEEP_CHANGED)
		params->options.fsync = TUX3_FSYNC_AHEAD;
}

/* So many fsyncs and so few commits that intents stand on each other. */
static void draw_ahead(struct sim_params *params)
{
	params->ahead = true;
	params->options.overlay_entries = 1000;
	params->options.dirty_bytes = 16 * MIB;
	params->weights[SIM_FSYNC] += 5;
	params->weights[SIM_WRITE] += 20;
	params->weights[SIM_SETATTR] += 5;
	params->weights[SIM_SYNC] = 2;
}

void params_remaps(struct sim_params *params, const struct sim_config *config, u64 seed)
{
	if (config->canary || rng_hash(seed, 12) % 3)
		return;
	params->weights[SIM_EXCHANGE] = 12;
	params->weights[SIM_COLLAPSE] = params->weights[SIM_INSERT] = 5;
	params->weights[SIM_WRITE] += 10;
}

void params_draw(struct sim_params *params, const struct sim_config *config, u64 seed)
{
	struct rng rng = { rng_mix(seed) };

	memset(params, 0, sizeof(*params));
	params->family = SIM_KINDS - 1;
	params->lives = 1;
	params->seed = seed;
	params->holds = seed % 3 == 0;
	params->volume_bytes = (4 + rng_below(&rng, rng_one_in(&rng, 3) ? 13 : 3)) * MIB;
	params->block_size = rng_one_in(&rng, 20) ? 4096u << rng_below(&rng, 5) : 4096;
	if (params->block_size > 4096)
		params->volume_bytes = max_t(u64, params->volume_bytes, 1024ull * params->block_size);
	params->no_csum = rng_one_in(&rng, 4);
	params->quota = rng_one_in(&rng, 4);
	params->tight = params->block_size == 4096 && rng_one_in(&rng, 8);
	if (params->tight) {
		params->volume_bytes = 4 * MIB;
		params->fill = 2000 + rng_below(&rng, 1800);
	}
	params->close_at_end = rng_one_in(&rng, 2);
	params->ops = config->ops ? config->ops : 8 + rng_below(&rng, rng_one_in(&rng, 50) ? 150 : 28);
	if (!params->tight && rng_one_in(&rng, 25))
		params->bulk = 20 + rng_below(&rng, 150);
	params->names = 3 + rng_below(&rng, 8);
	params->data_cache_bytes = rng_one_in(&rng, 2) ? 4096 * rng_log(&rng, 4) : 4 * MIB;
	draw_options(&params->options, &rng);
	draw_weights(params, &rng);
	if (params->bulk)
		params->options.name_hash_mask = 0;	/* only so many names of one hash fit in an item */

	params->disk.size_bytes = params->volume_bytes;
	params->disk.volatile_cache = !rng_one_in(&rng, 8);
	params->disk.has_fua = params->disk.volatile_cache && rng_one_in(&rng, 4);
	params->disk.defer = rng_one_in(&rng, 2);
	params->disk.seed = rng_next(&rng);
	params->options.discard = rng_one_in(&rng, 3);
	params_fsync(params, config, seed);
	if (params->quota && rng_hash(seed, 11) % 4) {
		params->weights[SIM_QUOTA] = 12;
		params->weights[SIM_SETATTR] += 30;
		params->weights[SIM_WRITE] += 20;
		params->ops += params->ops / 2;
	}
	params_remaps(params, config, seed);
	if (params->options.fsync == TUX3_FSYNC_AHEAD && rng_hash(seed, 7) % 2)
		draw_ahead(params);
	params_canary(params, config);
}
