// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * quotactl(2), and what df shows of a project's directory.  There are no quota files: usage and limits are in the tree, and
 * on whenever the volume has the feature.  Charging is the core's (core/inode/inode_quota.h).
 *
 * Limits come in bytes and are kept in blocks, rounded up.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <linux/quotaops.h>
#include <linux/statfs.h>
#include "core/inode/inode_quota.h"
#include "core/open.h"
#include "linux/vfs.h"

/* ---- one id ---- */

static void fill_dqblk(struct volume *vol, const struct quota_state *state, struct qc_dqblk *dqblk)
{
	u32 shift = vol->block_shift;

	memset(dqblk, 0, sizeof(*dqblk));
	dqblk->d_spc_hardlimit = state->limits.blocks_hard << shift;
	dqblk->d_spc_softlimit = state->limits.blocks_soft << shift;
	dqblk->d_ino_hardlimit = state->limits.inodes_hard;
	dqblk->d_ino_softlimit = state->limits.inodes_soft;
	dqblk->d_space = state->blocks << shift;
	dqblk->d_ino_count = state->inodes;
	dqblk->d_spc_timer = state->limits.blocks_time;
	dqblk->d_ino_timer = state->limits.inodes_time;
}

/* Of id 0 the times are how long the grace is: get_state() tells them. */
static void hide_grace(u32 id, struct quota_state *state)
{
	if (!id)
		state->limits.blocks_time = state->limits.inodes_time = 0;
}

static int get_dqblk(struct super_block *sb, struct kqid qid, struct qc_dqblk *dqblk)
{
	struct volume *vol = sb_of(sb)->vol;
	u32 id = from_kqid(&init_user_ns, qid);
	struct quota_state state;
	int err = volume_quota_get(vol, qid.type, id, &state);

	if (err)
		return err;
	hide_grace(id, &state);
	fill_dqblk(vol, &state, dqblk);
	return 0;
}

static int get_nextdqblk(struct super_block *sb, struct kqid *qid, struct qc_dqblk *dqblk)
{
	struct volume *vol = sb_of(sb)->vol;
	u32 id = from_kqid(&init_user_ns, *qid);
	struct quota_state state;
	int err = volume_quota_next(vol, qid->type, &id, &state);

	if (err)
		return err;
	*qid = make_kqid(&init_user_ns, qid->type, id);
	hide_grace(id, &state);
	fill_dqblk(vol, &state, dqblk);
	return 0;
}

#define QUOTA_FIELDS (QC_SPC_SOFT | QC_SPC_HARD | QC_INO_SOFT | QC_INO_HARD | QC_SPC_TIMER | QC_INO_TIMER)

static int set_dqblk(struct super_block *sb, struct kqid qid, struct qc_dqblk *dqblk)
{
	static const struct {
		int field;
		u32 set;
	} fields[] = {
		{ QC_SPC_SOFT, QUOTA_SET_BLOCKS_SOFT }, { QC_SPC_HARD, QUOTA_SET_BLOCKS_HARD },
		{ QC_INO_SOFT, QUOTA_SET_INODES_SOFT }, { QC_INO_HARD, QUOTA_SET_INODES_HARD },
		{ QC_SPC_TIMER, QUOTA_SET_BLOCKS_TIME }, { QC_INO_TIMER, QUOTA_SET_INODES_TIME },
	};
	struct volume *vol = sb_of(sb)->vol;
	u32 id = from_kqid(&init_user_ns, qid), set = 0, shift = vol->block_shift, i;
	struct quota_limits limits = {
		.blocks_soft = DIV_ROUND_UP_ULL(dqblk->d_spc_softlimit, vol->block_size),
		.blocks_hard = DIV_ROUND_UP_ULL(dqblk->d_spc_hardlimit, vol->block_size),
		.inodes_soft = dqblk->d_ino_softlimit, .inodes_hard = dqblk->d_ino_hardlimit,
		.blocks_time = max_t(s64, dqblk->d_spc_timer, 0), .inodes_time = max_t(s64, dqblk->d_ino_timer, 0),
	};

	/* Usage is what it is.  What does not fit into the tools' numbers is no limit. */
	if (dqblk->d_fieldmask & ~QUOTA_FIELDS)
		return -EINVAL;
	if (max(dqblk->d_spc_softlimit, dqblk->d_spc_hardlimit) > S64_MAX - (1ULL << shift))
		return -ERANGE;
	for (i = 0; i < ARRAY_SIZE(fields); i++)
		set |= dqblk->d_fieldmask & fields[i].field ? fields[i].set : 0;
	return volume_quota_set(vol, qid.type, id, &limits, set);
}

/* ---- all of a type ---- */

static int get_state(struct super_block *sb, struct qc_state *state)
{
	struct tux3_sb *sbi = sb_of(sb);
	struct quota_state zero;
	int type, err;

	memset(state, 0, sizeof(*state));
	for (type = 0; type < MAXQUOTAS; type++) {
		struct qc_type_state *of = &state->s_state[type];

		err = volume_quota_get(sbi->vol, type, 0, &zero);
		if (err)
			return err;
		of->flags = QCI_SYSFILE | QCI_ACCT_ENABLED | (sbi->options.noquota ? 0 : QCI_LIMITS_ENFORCED);
		of->spc_timelimit = zero.limits.blocks_time;
		of->ino_timelimit = zero.limits.inodes_time;
	}
	return 0;
}

static int set_info(struct super_block *sb, int type, struct qc_info *info)
{
	struct quota_limits limits = { .blocks_time = info->i_spc_timelimit, .inodes_time = info->i_ino_timelimit };
	u32 set = (info->i_fieldmask & QC_SPC_TIMER ? QUOTA_SET_BLOCKS_TIME : 0) |
		  (info->i_fieldmask & QC_INO_TIMER ? QUOTA_SET_INODES_TIME : 0);

	if (info->i_fieldmask & ~(QC_SPC_TIMER | QC_INO_TIMER | QC_FLAGS) ||
	    (info->i_fieldmask & QC_FLAGS && info->i_flags & QCI_ROOT_SQUASH))
		return -EINVAL;
	return set ? volume_quota_set(sb_of(sb)->vol, type, 0, &limits, set) : 0;
}

static int quota_sync(struct super_block *sb, int type)
{
	if (sb_rdonly(sb) || super_is_frozen(sb))
		return 0;
	node_flush_puts(sb_of(sb));	/* what is removed is not counted any more, as far as it can be */
	return delta_commit(sb_of(sb)->vol);
}

static const struct quotactl_ops quotactl_ops = {
	.quota_sync	= quota_sync,
	.set_info	= set_info,
	.get_dqblk	= get_dqblk,
	.get_nextdqblk	= get_nextdqblk,
	.set_dqblk	= set_dqblk,
	.get_state	= get_state,
};

/*
 * The quota tools ask filesystems that they do not know by name for the format of their quota files (Q_GETFMT), and take no
 * answer for quotas that are off.  The VFS answers that out of its own state for such files.  So it is told of a format,
 * and that they are on: nobody else reads this but who uses the VFS's quotas (dquot_...), as we do not.
 */
static struct quota_format_type told_format = {
	.qf_fmt_id	= QFMT_VFS_V1,
	.qf_owner	= THIS_MODULE,
};

void super_set_quota(struct tux3_sb *sbi)
{
	struct super_block *sb = sbi->sb;
	struct quota_info *told = sb_dqopt(sb);
	int type;

	if (!quota_kept(&sbi->vol->quota))
		return;
	sb->s_quota_types = QTYPE_MASK_USR | QTYPE_MASK_GRP | QTYPE_MASK_PRJ;
	sb->s_qcop = &quotactl_ops;
	for (type = 0; type < MAXQUOTAS; type++) {
		told->flags |= dquot_state_flag(DQUOT_USAGE_ENABLED, type);
		told->info[type].dqi_format = &told_format;
	}
}

/* ---- for the core ---- */

bool host_quota_exempt(struct volume *vol)
{
	return capable(CAP_SYS_RESOURCE);
}

/* A message to who listens for it by netlink. */
void host_quota_told(struct volume *vol, u32 type, u32 id, bool inodes, enum quota_event event)
{
	static const char kinds[][2] = {
		[QUOTA_REFUSED_HARD]  = { QUOTA_NL_BHARDWARN, QUOTA_NL_IHARDWARN },
		[QUOTA_REFUSED_GRACE] = { QUOTA_NL_BSOFTLONGWARN, QUOTA_NL_ISOFTLONGWARN },
		[QUOTA_ABOVE_SOFT]    = { QUOTA_NL_BSOFTWARN, QUOTA_NL_ISOFTWARN },
		[QUOTA_BELOW_SOFT]    = { QUOTA_NL_BSOFTBELOW, QUOTA_NL_ISOFTBELOW },
		[QUOTA_BELOW_HARD]    = { QUOTA_NL_BHARDBELOW, QUOTA_NL_IHARDBELOW },
	};

	quota_send_warning(make_kqid(&init_user_ns, type, id), bdev_device_of(vol->dev)->sb->s_dev, kinds[event][inodes]);
}

/* ---- df ---- */

void quota_statfs(struct inode *inode, struct kstatfs *stat)
{
	struct quota_room room;

	if (!inode_quota_room(core_of(inode), &room))
		return;
	if (room.blocks && room.blocks < stat->f_blocks) {
		stat->f_blocks = room.blocks;
		stat->f_bfree = min(stat->f_bfree, room.blocks_left);
		stat->f_bavail = min(stat->f_bavail, stat->f_bfree);
	}
	if (room.inodes && room.inodes < stat->f_files) {
		stat->f_files = room.inodes;
		stat->f_ffree = min(stat->f_ffree, room.inodes_left);
	}
}
