// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a commit says of quotas: limits that were changed, and grace periods that have begun.  Usage is not logged, it follows
 * from the attributes of inodes (core/log/apply.c); so this comes last, when the tree has it.  commit_mutex held.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/quota/quota.h"
#include "core/log/log.h"
#include "core/inode/inode.h"
#include "core/commit/commit.h"

/* Mostly it is who had the one before, too. */
static int reach_ids(struct volume *vol, const u32 *id, u64 delta)
{
	int err;

	if (vol->quota.reached_delta == delta && !memcmp(vol->quota.reached, id, sizeof(vol->quota.reached)))
		return 0;
	err = quota_look(vol, id, delta);
	if (!err) {
		memcpy(vol->quota.reached, id, sizeof(vol->quota.reached));
		vol->quota.reached_delta = delta;
	}
	return err;
}

static int reach_old(struct tux3_inode *inode, u64 delta, u32 dirty, const u32 *id)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	struct disk_attr attr;
	u32 old[QUOTA_KINDS];
	int err = tree_lookup(inode->vol, &key, &attr, sizeof(attr));

	if (err != sizeof(attr))
		return err < 0 ? err : -EIO;
	old[QUOTA_USER] = le32_to_cpu(attr.uid);
	old[QUOTA_GROUP] = le32_to_cpu(attr.gid);
	old[QUOTA_PROJECT] = le32_to_cpu(attr.projid);
	if (!memcmp(old, id, sizeof(old)))
		return dirty & (INODE_DIRTY_DATA | INODE_DIRTY_XATTRS) ? reach_ids(inode->vol, id, delta) : 0;
	err = reach_ids(inode->vol, old, delta);
	return err ? err : reach_ids(inode->vol, id, delta);
}

int quota_reach(struct tux3_inode *inode, u64 delta, u32 dirty, const struct tux3_attr *attr)
{
	u32 id[QUOTA_KINDS] = { [QUOTA_USER] = attr->uid, [QUOTA_GROUP] = attr->gid, [QUOTA_PROJECT] = attr->projid };

	lockdep_assert_held(&inode->vol->delta.commit_mutex);
	if (likely(!quota_kept(&inode->vol->quota)))
		return 0;
	return inode->in_tree ? reach_old(inode, delta, dirty, id) : reach_ids(inode->vol, id, delta);
}

static int quota_commit_one(struct volume *vol, struct quota *quota, u64 delta, u64 now)
{
	struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER + quota->type, quota->id);
	struct disk_quota old = {}, item;
	struct record_item record;
	int len;

	/* No limits, and none set: nothing to say. */
	if (READ_ONCE(quota->mode) != QUOTA_LIMITED && !quota->slot[delta & 1].set)
		return 0;
	len = tree_lookup(vol, &key, &old, sizeof(old));
	if (len == -EIO && !quota->slot[delta & 1].set)		/* nobody's usage has moved, or it would be in memory */
		return 0;
	if (len < 0 && len != -ENOENT)
		return len;
	if (len != -ENOENT && len != sizeof(old))
		return -EIO;
	item = old;
	quota_item(vol, quota, delta, now, &item);
	if (!memcmp(&item, &old, sizeof(item)))
		return 0;
	tree_key_to_disk(&record.key, &key);
	if (memchr_inv(&item, 0, sizeof(item)))
		return log_record_at(vol, &key, TUX3_RECORD_ITEM_SET, &record, sizeof(record), &item, sizeof(item));
	return log_record_at(vol, &key, TUX3_RECORD_ITEM_DELETE, &record, sizeof(record), NULL, 0);
}

int quota_commit(struct volume *vol, u64 delta)
{
	struct llist_node *first = READ_ONCE(vol->quota.changed[delta & 1].first);
	struct quota *quota;
	u64 now;
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (likely(!first))
		return 0;
	now = inode_now(vol).sec;
	llist_for_each_entry(quota, first, slot[delta & 1].node) {
		err = quota_commit_one(vol, quota, delta, now);
		if (err)
			break;
		cond_resched();
	}
	return err;
}
