/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker: what each user, group and project has in use, counted anew and compared with the quota items.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/check/check_internal.h"

/* The record of (type, id), made if need be; NULL: no memory. */
static struct check_quota *quota_get(struct check *check, u8 type, u32 id)
{
	struct rb_node **link = &check->quota.rb_node, *parent = NULL;
	struct check_quota *quota;

	while (*link) {
		parent = *link;
		quota = rb_entry(parent, struct check_quota, node);
		if (quota->type == type && quota->id == id)
			return quota;
		if (type < quota->type || (type == quota->type && id < quota->id))
			link = &parent->rb_left;
		else
			link = &parent->rb_right;
	}
	quota = kzalloc(sizeof(*quota), GFP_KERNEL);
	if (!quota) {
		check_fail(check, -ENOMEM);
		return NULL;
	}
	quota->type = type;
	quota->id = id;
	rb_link_node(&quota->node, parent, link);
	rb_insert_color(&quota->node, &check->quota);
	return quota;
}

int check_quota_item(struct check *check, const struct tree_key *key, const void *data, u32 len)
{
	struct check_quota *quota;
	struct disk_quota disk;

	if (!(check->vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA))
		return check_problem(check, QUOTA_UNEXPECTED, 0, 0, NULL, key->type, key->offset);
	if (len != sizeof(disk) || key->offset > U32_MAX)
		return check_problem(check, QUOTA_BAD, 0, 0, NULL, key->type, key->offset, len);
	quota = quota_get(check, key->type, key->offset);
	if (!quota)
		return check->stop;
	memcpy(&disk, data, sizeof(disk));
	quota->listed = true;
	quota->blocks = le64_to_cpu(disk.blocks);
	quota->inodes = le64_to_cpu(disk.inodes);
	return 0;
}

static int quota_use(struct check *check, u8 type, u32 id, u64 blocks)
{
	struct check_quota *quota = quota_get(check, type, id);

	if (!quota)
		return check->stop;
	quota->used_blocks += blocks;
	quota->used_inodes++;
	return 0;
}

int check_quota_count(struct check *check, const struct disk_attr *attr)
{
	u64 blocks = le64_to_cpu(attr->blocks);
	int err;

	if (!(check->vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA))
		return 0;
	err = quota_use(check, TUX3_ITEM_QUOTA_USER, le32_to_cpu(attr->uid), blocks);
	if (!err)
		err = quota_use(check, TUX3_ITEM_QUOTA_GROUP, le32_to_cpu(attr->gid), blocks);
	if (!err)
		err = quota_use(check, TUX3_ITEM_QUOTA_PROJECT, le32_to_cpu(attr->projid), blocks);
	return err;
}

static void quota_compare(struct check *check, const struct check_quota *quota)
{
	char detail[120];

	if (!quota->listed) {
		check_problem(check, QUOTA_MISSING, 0, 0, NULL, quota->type, quota->id, quota->used_blocks,
			      quota->used_inodes);
	} else if (quota->blocks != quota->used_blocks || quota->inodes != quota->used_inodes) {
		scnprintf(detail, sizeof(detail), "%llu blocks, should be %llu; %llu inodes, should be %llu",
			  quota->blocks, quota->used_blocks, quota->inodes, quota->used_inodes);
		check_problem(check, QUOTA_USAGE, 0, 0, detail, quota->type, quota->id, quota->used_blocks,
			      quota->used_inodes);
	}
}

int check_quotas(struct check *check)
{
	struct rb_node *node;

	if (check->damaged)
		return 0;
	for (node = rb_first(&check->quota); node && !check->stop; node = rb_next(node))
		quota_compare(check, rb_entry(node, struct check_quota, node));
	return check->stop;
}

void check_quota_exit(struct check *check)
{
	struct check_quota *quota, *next;

	rbtree_postorder_for_each_entry_safe(quota, next, &check->quota, node)
		kfree(quota);
	check->quota = RB_ROOT;
}
