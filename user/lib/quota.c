/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Quotas: the core's (core/inode/inode_quota.h), in bytes, and who may exceed them.
 */
#include "lib.h"
#include "core/inode/inode_quota.h"

static __thread bool exempt_thread;

bool tux3_quota_exempt(bool exempt)
{
	bool was = exempt_thread;

	exempt_thread = exempt;
	return was;
}

bool quota_is_exempt(void)
{
	return exempt_thread;
}

static void quota_to_bytes(struct tux3 *volume, const struct quota_state *state, struct tux3_quota *quota)
{
	u32 shift = volume->shift;

	*quota = (struct tux3_quota){
		.bytes = state->blocks << shift, .inodes = state->inodes,
		.bytes_soft = state->limits.blocks_soft << shift, .bytes_hard = state->limits.blocks_hard << shift,
		.inodes_soft = state->limits.inodes_soft, .inodes_hard = state->limits.inodes_hard,
		.bytes_time = state->limits.blocks_time, .inodes_time = state->limits.inodes_time,
	};
}

int tux3_statfs_node(struct tux3_node *node, struct tux3_statfs *stat)
{
	struct quota_room room;
	int err = tux3_statfs(node->volume, stat);

	if (err || !inode_quota_room(&node->inode, &room))
		return err;
	if (room.blocks && room.blocks < stat->blocks) {
		stat->blocks = room.blocks;
		stat->free_blocks = min(stat->free_blocks, room.blocks_left);
		stat->available_blocks = min(stat->available_blocks, stat->free_blocks);
	}
	if (room.inodes && room.inodes < stat->inodes + stat->free_inodes) {
		stat->free_inodes = min(stat->free_inodes, room.inodes_left);
		stat->inodes = room.inodes - min(stat->free_inodes, room.inodes);
	}
	return 0;
}

static int quota_check(struct tux3 *volume, enum tux3_quota_type type)
{
	if (!volume)
		return -EINVAL;
	if (!quota_kept(&volume->vol->quota))
		return -EOPNOTSUPP;
	return (u32)type < QUOTA_KINDS ? 0 : -EINVAL;
}

int tux3_quota_get(struct tux3 *volume, enum tux3_quota_type type, uint32_t id, struct tux3_quota *quota)
{
	struct quota_state state;
	int err = quota_check(volume, type);

	if (!err)
		err = volume_quota_get(volume->vol, type, id, &state);
	if (!err)
		quota_to_bytes(volume, &state, quota);
	return err;
}

int tux3_quota_next(struct tux3 *volume, enum tux3_quota_type type, uint32_t *id, struct tux3_quota *quota)
{
	struct quota_state state;
	int err = quota_check(volume, type);

	if (!err)
		err = volume_quota_next(volume->vol, type, id, &state);
	if (!err)
		quota_to_bytes(volume, &state, quota);
	return err;
}

int tux3_quota_set(struct tux3 *volume, enum tux3_quota_type type, uint32_t id, const struct tux3_quota *quota, uint32_t set)
{
	u32 size = volume ? volume->block_size : 1;
	struct quota_limits limits = {
		.blocks_soft = quota->bytes_soft / size + !!(quota->bytes_soft % size),
		.blocks_hard = quota->bytes_hard / size + !!(quota->bytes_hard % size),
		.inodes_soft = quota->inodes_soft, .inodes_hard = quota->inodes_hard,
		.blocks_time = quota->bytes_time, .inodes_time = quota->inodes_time,
	};
	int err = quota_check(volume, type);

	static_assert(TUX3_QUOTA_INODES_TIME == QUOTA_SET_INODES_TIME && TUX3_QUOTA_BYTES_SOFT == QUOTA_SET_BLOCKS_SOFT,
		      "they are numbered alike");
	if (!err && (set & ~(QUOTA_SET_LIMITS | QUOTA_SET_BLOCKS_TIME | QUOTA_SET_INODES_TIME) ||
		     (set & TUX3_QUOTA_BYTES_TIME && quota->bytes_time < 0) ||
		     (set & TUX3_QUOTA_INODES_TIME && quota->inodes_time < 0)))
		err = -EINVAL;
	return err ? err : volume_quota_set(volume->vol, type, id, &limits, set);
}
