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
