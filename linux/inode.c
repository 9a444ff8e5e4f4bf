// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Inode objects: their life, and their attributes.  The life is told in vfs.h.
 *
 * Who holds references in i_count: users (dentries, open files, whoever looked the inode up); pins, one for each
 * delta in which it is dirty; the put worker (NODE_PUT) and the reaper (NODE_REAP), one each while they have the node
 * on their lists.  An inode is *unused* when there is none of the first kind.
 *
 * Invariants
 *  1. unused(), asked with i_lock held, never says so of an inode in use.  Therefore a reference is taken before
 *     it is counted in pins or flags, and it is taken out of these with i_lock held before it is dropped.
 *  2. A DEAD inode is unused and stays so: lookups turn away from it.
 *  3. An inode without a name that is unused is DEAD, or dirty in the front delta, whose commit will ask inode_kill(),
 *     or on its way through the put worker to data_forget(); or data_forget() failed, and its orphan item is left to the
 *     next mount.
 *  4. The back end never evicts: the last reference goes to the put worker, unless the inode has a name (then
 *     it only moves to the LRU list), or the volume is being unmounted.
 *
 * The workers' lists are puts (lockless) and reap (reap_lock).  Nothing of theirs is done with locks held.
 *
 * __i_nlink is written directly: set_nlink() also counts inodes without a name for the whole superblock, and would
 * keep a volume from being remounted read-only for as long as the commit of an unlink takes.  Ours have orphan items.
 */
#include <linux/fs.h>
#include <linux/posix_acl.h>
#include <linux/security.h>

#include "linux/vfs.h"
#include "linux/folio.h"
#include "core/data/data_change.h"
#include "core/inode/ialloc.h"
#include "core/inode/inode_quota.h"
#include "core/names/ops.h"

#define REAP_DELAY_MS	10
#define REAP_AT_ONCE	1024u	/* so many on the list: do not wait for the timer */
#define REAP_MAX	16384u	/* no more: they wait for the commit */
#define REAP_BATCH	64u	/* in one delta operation */
#define FLUSH_ROUNDS	16u

/* ---- objects ---- */

struct inode *node_alloc(struct super_block *sb)
{
	struct tux3_node *node = alloc_inode_sb(sb, tux3_node_cache, GFP_KERNEL);

	if (!node)
		return NULL;
	memset(node, 0, offsetof(struct tux3_node, vfs));	/* core: until inode_setup() */
	spin_lock_init(&node->data_lock);
	INIT_LIST_HEAD(&node->dirty[0]);
	INIT_LIST_HEAD(&node->dirty[1]);
	INIT_LIST_HEAD(&node->reap_link);
	return &node->vfs;
}

void node_free(struct inode *inode)
{
	struct tux3_node *node = node_of(inode);

	kfree(node->core.target);	/* i_link: readers under RCU may have used it until now */
	kmem_cache_free(tux3_node_cache, node);
}

void node_evict(struct inode *inode)
{
	struct tux3_node *node = node_of(inode);
	char *target = node->core.target;

	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
	inode->__i_nlink = 1;		/* it was never counted as removed */
	if (!node->core.vol)
		return;
	WARN_ON_ONCE(atomic_read(&node->pins) || !list_empty(&node->dirty[0]) || !list_empty(&node->dirty[1]));
	node->core.target = NULL;
	inode_exit(&node->core);
	node->core.target = target;
}

/* ---- VFS fields from the core's attributes ---- */

/*
 * What the VFS sets times from.  Where some filesystems have multigrain timestamps, that is the coarse clock, but never
 * before a fine time that any of them has given to an inode: with the coarse one alone, what is changed by us could be older
 * than what was touched before.
 *
 * The kernel tells it to who has an inode.  That of the block device is there for as long as anybody asks: the back end does at
 * umount, too, when our own inodes are going.
 */
void vfs_now(struct volume *vol, struct timespec64 *now)
{
	*now = current_time(bdev_device_of(vol->dev)->bdev->bd_mapping->host);
}

/* core.lock held. */
static void pull_times(struct inode *inode, const struct tux3_attr *attr)
{
	inode_set_atime_to_ts(inode, time_to_vfs(attr->atime));
	inode_set_mtime_to_ts(inode, time_to_vfs(attr->mtime));
	inode_set_ctime_to_ts(inode, time_to_vfs(attr->ctime));
}

static unsigned int flags_to_vfs(u32 flags)
{
	return (flags & TUX3_ATTR_IMMUTABLE ? S_IMMUTABLE : 0) | (flags & TUX3_ATTR_APPEND ? S_APPEND : 0) |
	       (flags & TUX3_ATTR_NOATIME ? S_NOATIME : 0);
}

static void pull(struct inode *inode, bool size)
{
	struct tux3_inode *core = core_of(inode);
	const struct tux3_attr *attr = &core->attr;

	spin_lock(&core->lock);
	pull_times(inode, attr);
	if (likely(!test_bit(NODE_MODE_TO_COME, &node_of(inode)->flags)))	/* else it would never come */
		inode->i_mode = attr->mode;
	i_uid_write(inode, attr->uid);
	i_gid_write(inode, attr->gid);
	inode->__i_nlink = attr->nlink;
	inode->i_generation = attr->generation;
	inode->i_blocks = core->blocks << (core->vol->block_shift - SECTOR_SHIFT);
	if (size)
		i_size_write(inode, attr->size);
	inode_set_flags(inode, flags_to_vfs(attr->flags), S_IMMUTABLE | S_APPEND | S_NOATIME);
	spin_unlock(&core->lock);
}

void node_pull(struct inode *inode)
{
	pull(inode, !S_ISREG(inode->i_mode));
}

void node_set_ops(struct inode *inode)
{
	unsigned int shift = vol_of(inode)->block_shift - PAGE_SHIFT;

	switch (inode->i_mode & S_IFMT) {
	case S_IFREG:
		inode->i_op = &file_inode_ops;
		inode->i_fop = &file_file_ops;
		inode->i_mapping->a_ops = &file_aops;
		/* Smaller than what one entry of a page middle directory maps: see mmap.c. */
		mapping_set_folio_order_range(inode->i_mapping, shift,
					      min(shift + ilog2(FOLIO_BLOCKS_MAX), PMD_SHIFT - PAGE_SHIFT - 1u));
		break;
	case S_IFDIR:
		inode->i_op = &dir_inode_ops;
		inode->i_fop = &dir_file_ops;
		break;
	case S_IFLNK:
		inode->i_op = &symlink_inode_ops;
		break;
	default:
		inode->i_op = &special_inode_ops;
		init_special_inode(inode, inode->i_mode, inode->i_rdev);
	}
}

/* Without xattrs there is no ACL and no capability to look for. */
static void note_no_xattrs(struct inode *inode)
{
	if (READ_ONCE(core_of(inode)->attr.flags) & TUX3_ATTR_XATTRS)
		return;
	cache_no_acl(inode);
	inode_has_no_xattr(inode);
}

/* ---- by number ---- */

static struct inode *node_read(struct inode *inode)
{
	struct tux3_inode *core = core_of(inode);
	int err;

	inode_setup(sb_of(inode->i_sb)->vol, core, inode->i_ino);
	err = inode_read(core);
	if (err) {
		iget_failed(inode);
		return ERR_PTR(err == -ENOENT ? -ESTALE : err);
	}
	pull(inode, true);
	inode->i_rdev = MKDEV(core->attr.rdev_major, core->attr.rdev_minor);
	node_set_ops(inode);
	note_no_xattrs(inode);
	unlock_new_inode(inode);
	return inode;
}

struct inode *node_get(struct super_block *sb, u64 ino)
{
	struct inode *inode;

	if (ino != TUX3_INO_ROOT && (ino < TUX3_INO_FIRST || ino > TUX3_INO_MAX))
		return ERR_PTR(-ESTALE);
	inode = iget_locked(sb, ino);
	/* Or somebody makes an inode with this number, which an old handle knows from before: who has that tries again. */
	if (!inode)
		return ERR_PTR(-ENOMEM);
	if (inode_state_read_once(inode) & I_NEW)
		return node_read(inode);
	if (test_bit(NODE_IS_DEAD, &node_of(inode)->flags)) {
		iput(inode);
		return ERR_PTR(-ESTALE);
	}
	return inode;
}

/* ---- new ones ---- */

/* A dead inode whose number was just given back may still be hashed: it goes. */
static bool unhash_dead(struct super_block *sb, u64 ino)
{
	struct inode *old = ilookup(sb, ino);
	bool dead = true;

	if (!old)
		return true;
	dead = test_bit(NODE_IS_DEAD, &node_of(old)->flags);
	if (dead)
		remove_inode_hash(old);
	iput(old);
	return dead;
}

static int new_number(struct inode *inode, struct inode *dir, bool is_dir)
{
	struct tux3_inode *above = core_of(dir);
	struct volume *vol = above->vol;
	u64 ino;
	int err = ialloc_new(above, is_dir, &ino);

	if (err)
		return err;
	inode->i_ino = ino;
	inode_setup(vol, core_of(inode), ino);
	do {
		err = insert_inode_locked(inode);
	} while (err == -EBUSY && unhash_dead(inode->i_sb, ino));
	if (err) {
		WARN_ON_ONCE(err == -EBUSY);
		ialloc_free(vol, ino);
		return err == -EBUSY ? -EIO : err;
	}
	return 0;
}

struct inode *node_new(struct mnt_idmap *idmap, struct inode *dir, umode_t mode, dev_t rdev)
{
	struct inode *inode = new_inode(dir->i_sb);
	struct tux3_attr *attr;
	int err;

	if (!inode)
		return ERR_PTR(-ENOMEM);
	err = new_number(inode, dir, S_ISDIR(mode));
	if (err) {
		iput(inode);
		return ERR_PTR(err);
	}
	inode_init_owner(idmap, inode, dir, mode);
	inode->i_rdev = rdev;
	attr = &core_of(inode)->attr;
	attr->mode = inode->i_mode;
	attr->uid = i_uid_read(inode);
	attr->gid = i_gid_read(inode);
	attr->rdev_major = MAJOR(rdev);
	attr->rdev_minor = MINOR(rdev);
	attr_inherit(attr, core_of(dir));
	node_set_ops(inode);
	return inode;
}

void node_created(struct inode *inode)
{
	pull(inode, true);
	note_no_xattrs(inode);
	if (S_ISLNK(inode->i_mode))
		smp_store_release(&inode->i_link, core_of(inode)->target);
}

void node_failed(struct inode *inode)
{
	struct volume *vol = vol_of(inode);
	u64 ino = inode->i_ino;
	struct tux3_attr attr;

	inode->__i_nlink = 0;
	inode_get_attr(core_of(inode), &attr);
	if (attr.change) {
		/* A delta knows it already, by its ACL: it is deleted like any file without a name. */
		inode_quota_unused(core_of(inode));
		discard_new_inode(inode);
		return;
	}
	spin_lock(&inode->i_lock);
	set_bit(NODE_IS_DEAD, &node_of(inode)->flags);
	spin_unlock(&inode->i_lock);
	discard_new_inode(inode);
	ialloc_free(vol, ino);
}

/* ---- references ---- */

/* i_lock held. */
static bool unused(struct tux3_node *node)
{
	int own = atomic_read(&node->pins) + test_bit(NODE_PUT, &node->flags) + test_bit(NODE_REAP, &node->flags);

	smp_rmb();	/* what is counted in own was in i_count before */
	return atomic_read(&node->vfs.i_count) <= own;
}

/* The caller's reference goes to the put worker. */
static void queue_put(struct tux3_node *node)
{
	struct tux3_sb *sbi = sb_of(node->vfs.i_sb);

	WARN_ON_ONCE(test_and_set_bit(NODE_PUT, &node->flags));
	if (llist_add(&node->put_link, &sbi->puts))
		queue_work(sbi->workqueue, &sbi->put_work);
}

void host_inode_grab(struct tux3_inode *core)
{
	struct tux3_node *node = core_node(core);

	ihold(&node->vfs);	/* whoever changes it has a reference: it is not being evicted */
	smp_mb__before_atomic();
	atomic_inc(&node->pins);
}

void host_inode_release(struct tux3_inode *core)
{
	struct tux3_node *node = core_node(core);
	struct inode *inode = &node->vfs;
	bool gone;

	spin_lock(&inode->i_lock);
	gone = atomic_dec_and_test(&node->pins) && test_bit(NODE_IS_DEAD, &node->flags);
	spin_unlock(&inode->i_lock);
	if (gone)
		remove_inode_hash(inode);
	/*
	 * With a name it only moves to the LRU list, unless it is not to be cached: evicting would wait for the flusher,
	 * and that perhaps for us.  Or it has a time that no delta knows of: the last iput() makes that a change
	 * (node_dirty()), which may wait for a commit.  Else it goes to the worker, while that still takes it.
	 */
	if (READ_ONCE(sb_of(inode->i_sb)->puts_closed) ||
	    (inode->i_nlink && !(inode_state_read_once(inode) & (I_DONTCACHE | I_DIRTY_TIME)) &&
	     !(READ_ONCE(inode->i_sb->s_flags) & SB_LAZYTIME)))
		iput(inode);
	else
		node_put_later(node);
}

bool node_grab_living(struct tux3_node *node)
{
	struct inode *inode = &node->vfs;

	/* When puts are closed, nobody could drop the reference for us. */
	if (READ_ONCE(sb_of(inode->i_sb)->puts_closed) || !igrab(inode))
		return false;
	/* As long as we hold it, it does not become DEAD. */
	if (!test_bit(NODE_IS_DEAD, &node->flags))
		return true;
	node_put_later(node);
	return false;
}

void node_put_later(struct tux3_node *node)
{
	/* If it is the last one, the put worker has none, and does not have the node on its list. */
	if (!atomic_add_unless(&node->vfs.i_count, -1, 1))
		queue_put(node);
}

/* Of an unused one, i_lock held: who gave it a name (linkat of an O_TMPFILE) had a reference then, and its dentry until now. */
static bool got_name(struct tux3_node *node)
{
	smp_rmb();	/* the name is older than the end of these references */
	return READ_ONCE(node->core.attr.nlink);
}

bool host_inode_kill(struct tux3_inode *core)
{
	struct tux3_node *node = core_node(core);
	bool dead;

	spin_lock(&node->vfs.i_lock);
	dead = test_bit(NODE_IS_DEAD, &node->flags) || (unused(node) && !got_name(node));
	if (dead)
		set_bit(NODE_IS_DEAD, &node->flags);
	else
		clear_bit(NODE_FORGOTTEN, &node->flags);
	spin_unlock(&node->vfs.i_lock);
	return dead;
}

/*
 * Nobody has told the back end yet that this inode is out of use, and it can still be told: while the volume is read-only,
 * for later.
 */
static bool to_be_forgotten(struct tux3_node *node)
{
	struct volume *vol = node->core.vol;

	return !node->vfs.i_nlink && vol && !READ_ONCE(node->core.deleted) && !volume_error(vol) &&
	       !(READ_ONCE(node->flags) & (BIT(NODE_IS_DEAD) | BIT(NODE_FORGOTTEN)));
}

/*
 * The last reference went; i_lock held.  0 keeps the object, 1 evicts it.  There is never anything to write: what is
 * dirty is pinned, but for strays, which stay in the cache, and which super_kill() has had written before puts are
 * closed.  So at unmount everything is evicted at once, without asking for its ->writepages, which could wait for the
 * commit in which we are.
 */
int node_drop(struct inode *inode)
{
	struct tux3_node *node = node_of(inode);

	if (READ_ONCE(sb_of(inode->i_sb)->puts_closed) || !(inode->i_sb->s_flags & SB_ACTIVE))
		return 1;
	if (to_be_forgotten(node)) {
		atomic_inc(&inode->i_count);
		inode_state_clear(inode, I_DONTCACHE);	/* else the VFS would evict it regardless */
		queue_put(node);
		return 0;
	}
	if (test_bit(NODE_STRAYS, &node->flags) && inode->i_nlink)
		inode_state_clear(inode, I_DONTCACHE);	/* they are only in its pages */
	return inode_state_read_once(inode) & I_DONTCACHE ? 1 : inode_generic_drop(inode);
}

/* ---- the put worker ---- */

static void put_one(struct tux3_node *node)
{
	struct inode *inode = &node->vfs;
	bool forget;

	spin_lock(&inode->i_lock);
	/* If a delta pins it, its release will bring the node here again. */
	forget = to_be_forgotten(node) && !atomic_read(&node->pins) && unused(node);
	if (forget)
		set_bit(NODE_FORGOTTEN, &node->flags);
	spin_unlock(&inode->i_lock);
	if (forget)
		data_forget(&node->core, folio_dirty_blocks(node));
	spin_lock(&inode->i_lock);
	clear_bit(NODE_PUT, &node->flags);
	spin_unlock(&inode->i_lock);
	iput(inode);
}

static void put_work_run(struct work_struct *work)
{
	struct tux3_sb *sbi = container_of(work, struct tux3_sb, put_work);
	struct llist_node *list = llist_reverse_order(llist_del_all(&sbi->puts));
	struct tux3_node *node, *next;

	llist_for_each_entry_safe(node, next, list, put_link) {
		put_one(node);
		cond_resched();
	}
}

/* ---- the reaper ---- */

void node_unnamed(struct inode *inode)
{
	struct tux3_sb *sbi = sb_of(inode->i_sb);
	struct tux3_node *node = node_of(inode);
	unsigned int count = 0;

	/* Only page cache is worth the trouble, and blocks that df is to count as free. */
	if (inode->i_nlink || (!inode->i_mapping->nrpages && !READ_ONCE(node->core.blocks)) ||
	    test_bit(NODE_REAP, &node->flags))
		return;
	spin_lock(&sbi->reap_lock);
	if (sbi->reap_count < REAP_MAX) {
		ihold(inode);
		smp_mb__before_atomic();
		set_bit(NODE_REAP, &node->flags);
		list_add_tail(&node->reap_link, &sbi->reap);
		count = ++sbi->reap_count;
	}
	spin_unlock(&sbi->reap_lock);
	if (count == 1)
		queue_delayed_work(sbi->workqueue, &sbi->reap_work, msecs_to_jiffies(REAP_DELAY_MS));
	else if (count == REAP_AT_ONCE)
		mod_delayed_work(sbi->workqueue, &sbi->reap_work, 0);
}

/*
 * Inside a delta.  Only an inode that this delta knows: its commit then finds it dead.  One that got
 * clean with somebody still using it goes the way of all last references.
 */
static bool reap_kill(struct delta_op *op, struct tux3_node *node)
{
	bool dead;

	spin_lock(&node->core.lock);
	dead = node->core.slot[op->delta & 1].dirty && !node->core.attr.nlink;
	spin_unlock(&node->core.lock);
	if (!dead)
		return false;
	spin_lock(&node->vfs.i_lock);
	dead = test_bit(NODE_IS_DEAD, &node->flags) || unused(node);
	if (dead)
		set_bit(NODE_IS_DEAD, &node->flags);
	spin_unlock(&node->vfs.i_lock);
	if (dead) {
		folio_forget_dirty(op, node, 0, DATA_END);
		data_give_back(op, &node->core, 0);
	}
	return dead;
}

static void reap_put(struct tux3_node *node)
{
	struct inode *inode = &node->vfs;

	if (test_bit(NODE_IS_DEAD, &node->flags))
		truncate_inode_pages(&inode->i_data, 0);
	spin_lock(&inode->i_lock);
	clear_bit(NODE_REAP, &node->flags);
	spin_unlock(&inode->i_lock);
	iput(inode);
}

static unsigned int reap_take(struct tux3_sb *sbi, struct tux3_node **nodes)
{
	unsigned int count = 0;

	spin_lock(&sbi->reap_lock);
	while (count < REAP_BATCH && !list_empty(&sbi->reap)) {
		nodes[count] = list_first_entry(&sbi->reap, struct tux3_node, reap_link);
		list_del_init(&nodes[count]->reap_link);
		count++;
	}
	sbi->reap_count -= count;
	spin_unlock(&sbi->reap_lock);
	return count;
}

static void reap_work_run(struct work_struct *work)
{
	struct tux3_sb *sbi = container_of(to_delayed_work(work), struct tux3_sb, reap_work);
	struct tux3_node *nodes[REAP_BATCH];
	unsigned int count, i;
	struct delta_op op;

	while ((count = reap_take(sbi, nodes))) {
		if (!delta_enter(sbi->vol, &op, 0, DELTA_FREES | DELTA_MUST)) {
			for (i = 0; i < count; i++)
				reap_kill(&op, nodes[i]);
			delta_leave(&op);
		}
		for (i = 0; i < count; i++) {
			reap_put(nodes[i]);
			cond_resched();
		}
	}
}

int node_grab_init(struct tux3_sb *sbi)
{
	unsigned int i;

	init_llist_head(&sbi->puts);
	INIT_WORK(&sbi->put_work, put_work_run);
	sbi->puts_closed = false;
	spin_lock_init(&sbi->reap_lock);
	INIT_LIST_HEAD(&sbi->reap);
	sbi->reap_count = 0;
	INIT_DELAYED_WORK(&sbi->reap_work, reap_work_run);
	for (i = 0; i < ARRAY_SIZE(sbi->xattr_locks); i++)
		init_rwsem(&sbi->xattr_locks[i]);
	sbi->workqueue = alloc_workqueue("tux3/%s", WQ_MEM_RECLAIM | WQ_UNBOUND, 0, sbi->sb->s_id);
	return sbi->workqueue ? 0 : -ENOMEM;
}

static bool workers_idle(struct tux3_sb *sbi)
{
	return llist_empty(&sbi->puts) && list_empty_careful(&sbi->reap);
}

/* The reaper first: what it drops may go on to the put worker.  While others unlink there may always be more. */
void node_flush_puts(struct tux3_sb *sbi)
{
	unsigned int round = 0;

	do {
		flush_delayed_work(&sbi->reap_work);
		flush_work(&sbi->put_work);
	} while (!workers_idle(sbi) && ++round < FLUSH_ROUNDS);
}

/* Who makes or reads it (I_NEW) may be writing its attributes; nobody else knows it then.  One that is evicted is clean. */
bool host_inode_peek(struct volume *vol, u64 ino, struct tux3_attr *attr, u64 *blocks)
{
	struct inode *inode;
	bool found = false;

	rcu_read_lock();
	inode = find_inode_by_ino_rcu(bdev_device_of(vol->dev)->sb, ino);
	if (inode && !(inode_state_read_once(inode) & I_NEW)) {
		struct tux3_inode *core = core_of(inode);

		smp_rmb();	/* pairs with unlock_new_inode() */
		inode_get_attr(core, attr);
		if (READ_ONCE(core->blocks_epoch) == READ_ONCE(vol->blocks_epoch))
			*blocks = data_blocks(core, S_ISREG(attr->mode) ? folio_dirty_blocks(node_of(inode)) : 0);
		found = true;
	}
	rcu_read_unlock();
	return found;
}

/* The caller may have locks of inodes and folios that are in use: the workers want those of unused ones only. */
void host_settle_unused(struct volume *vol)
{
	node_flush_puts(sb_of(bdev_device_of(vol->dev)->sb));
}

void node_close_puts(struct tux3_sb *sbi)
{
	node_flush_puts(sbi);
	WRITE_ONCE(sbi->puts_closed, true);
	/* node_drop() is called with a spinlock held, and the VFS acts on its answer before it drops it. */
	synchronize_rcu();
	node_flush_puts(sbi);
}

void node_grab_exit(struct tux3_sb *sbi)
{
	if (!sbi->workqueue)
		return;
	node_flush_puts(sbi);
	WARN_ON_ONCE(!workers_idle(sbi));
	cancel_delayed_work_sync(&sbi->reap_work);
	destroy_workqueue(sbi->workqueue);
	sbi->workqueue = NULL;
}

/* ---- stat ---- */

/*
 * What the NFS server and IMA compare to see whether something was changed.  After a crash the count of changes may be
 * lower than what was seen before, and come to the same number again by other changes.  These have a later ctime, and a
 * second weighs more than all changes that can be made in it.
 */
static u64 change_cookie(const struct tux3_attr *attr)
{
	return attr->change + ((u64)attr->ctime.sec << 30) + attr->ctime.nsec;
}

int node_getattr(struct mnt_idmap *idmap, const struct path *path, struct kstat *stat, u32 mask, unsigned int flags)
{
	struct inode *inode = d_inode(path->dentry);
	struct tux3_inode *core = core_of(inode);
	u64 blocks;

	generic_fillattr(idmap, mask, inode, stat);
	spin_lock(&core->lock);
	if (mask & STATX_CHANGE_COOKIE) {
		stat->change_cookie = change_cookie(&core->attr);
		stat->result_mask |= STATX_CHANGE_COOKIE;
	}
	stat->btime = time_to_vfs(core->attr.btime);
	if (core->attr.flags & TUX3_ATTR_NODUMP)
		stat->attributes |= STATX_ATTR_NODUMP;
	spin_unlock(&core->lock);
	stat->result_mask |= STATX_BTIME;
	/* At any other alignment O_DIRECT is served from the page cache. */
	if (S_ISREG(inode->i_mode) && mask & STATX_DIOALIGN) {
		stat->result_mask |= STATX_DIOALIGN;
		stat->dio_mem_align = direct_alignment(core->vol->dev);
		stat->dio_offset_align = core->vol->block_size;
	}
	if (S_ISREG(inode->i_mode) && mask & STATX_WRITE_ATOMIC)
		generic_fill_statx_atomic_writes(stat, core->vol->block_size, data_atomic_max(core->vol), 0);
	stat->attributes_mask |= STATX_ATTR_NODUMP;
	generic_fill_statx_attr(inode, stat);
	blocks = data_blocks(core, S_ISREG(inode->i_mode) ? folio_dirty_blocks(node_of(inode)) : 0);
	stat->blocks = blocks << (core->vol->block_shift - SECTOR_SHIFT);
	return 0;
}

/* ---- setting ---- */

/* What is to be set besides the size, as a mask for op_setattr(). */
static u32 attr_to_set(struct mnt_idmap *idmap, struct inode *inode, const struct iattr *from, unsigned int valid,
		       struct tux3_attr *attr)
{
	struct user_namespace *ns = i_user_ns(inode);
	u32 mask = 0;

	if (valid & ATTR_MODE) {
		attr->mode = from->ia_mode;
		mask |= OP_ATTR_MODE;
	}
	if (valid & ATTR_UID) {
		attr->uid = from_kuid(ns, from_vfsuid(idmap, ns, from->ia_vfsuid));
		mask |= OP_ATTR_UID;
	}
	if (valid & ATTR_GID) {
		attr->gid = from_kgid(ns, from_vfsgid(idmap, ns, from->ia_vfsgid));
		mask |= OP_ATTR_GID;
	}
	if (valid & ATTR_ATIME) {
		attr->atime = time_from_vfs(from->ia_atime);
		mask |= OP_ATTR_ATIME;
	}
	if (valid & ATTR_MTIME) {
		attr->mtime = time_from_vfs(from->ia_mtime);
		mask |= OP_ATTR_MTIME;
	}
	if (valid & ATTR_CTIME) {
		attr->ctime = time_from_vfs(from->ia_ctime);
		mask |= OP_ATTR_CTIME;
	}
	return mask;
}

int node_synced(struct inode *inode)
{
	return IS_SYNC(inode) ? delta_commit_inode(core_of(inode)) : 0;
}

/*
 * A truncate is one delta with what comes with it: no crash shows a file that was overwritten and is still setuid.  Taking
 * setuid and setgid away does not touch what an ACL says.
 */
static int setattr_size(struct inode *inode, const struct iattr *from, const struct tux3_attr *attr, u32 mask)
{
	umode_t old = inode->i_mode;
	int err = file_truncate(inode, from->ia_size, attr, mask);

	if (!err && mask & OP_ATTR_MODE && (old ^ attr->mode) & S_IRWXUGO)
		err = min(node_acl_chmod(inode, from->ia_mode), 0);
	return err;
}

static int setattr_rest(struct inode *inode, const struct iattr *from, const struct tux3_attr *attr, u32 mask)
{
	int err = mask & OP_ATTR_MODE ? node_acl_chmod(inode, from->ia_mode) : 0;

	return err < 0 ? err : op_setattr(core_of(inode), attr, mask);
}

int node_setattr(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *from)
{
	struct inode *inode = d_inode(dentry);
	unsigned int valid = from->ia_valid;
	struct tux3_attr attr;
	u32 mask;
	int err = setattr_prepare(idmap, dentry, from);

	if (err)
		return err;
	if (valid & ATTR_SIZE)		/* it sets these, to the same */
		valid &= valid & ATTR_MTIME_SET ? ~ATTR_CTIME : ~(ATTR_CTIME | ATTR_MTIME);
	mask = attr_to_set(idmap, inode, from, valid, &attr);
	if (unlikely(test_bit(NODE_PUTS_OFF_MODE, &node_of(inode)->flags)) && mask == OP_ATTR_MODE) {
		inode->i_mode = from->ia_mode;
		set_bit(NODE_MODE_TO_COME, &node_of(inode)->flags);
		return 0;
	}
	if (valid & ATTR_SIZE)
		err = setattr_size(inode, from, &attr, mask);
	else if (mask)
		err = setattr_rest(inode, from, &attr, mask);
	if (mask)
		node_pull(inode);
	return err ? err : node_synced(inode);
}

int node_remove_privs(struct file *file)
{
	struct inode *inode = file_inode(file);
	struct tux3_node *node = node_of(inode);
	int err;

	if (likely(IS_NOSEC(inode)))
		return 0;
	set_bit(NODE_PUTS_OFF_MODE, &node->flags);
	err = file_remove_privs(file);
	clear_bit(NODE_PUTS_OFF_MODE, &node->flags);
	return err;
}

int node_remove_privs_end(struct inode *inode)
{
	struct tux3_node *node = node_of(inode);
	struct tux3_attr attr = { .mode = inode->i_mode };
	int err;

	if (likely(!test_bit(NODE_MODE_TO_COME, &node->flags)))
		return 0;
	clear_bit(NODE_MODE_TO_COME, &node->flags);
	err = op_setattr(&node->core, &attr, OP_ATTR_MODE);
	if (err)
		inode_set_flags(inode, 0, S_NOSEC);	/* there is something to remove still */
	node_pull(inode);
	return err;
}

/*
 * With lazytime no delta knows of it.  The next one in which the inode is changed takes the time along; if there is
 * none, the VFS comes to node_dirty(): for fsync and sync, before the inode is evicted, and after dirtytime_expire_seconds.
 * (Other times change with what they are times of.)
 */
static void touch_atime_lazily(struct inode *inode)
{
	struct tux3_inode *core = core_of(inode);
	struct tux3_time now = inode_now(core->vol);

	spin_lock(&core->lock);
	core->attr.atime = now;
	pull_times(inode, &core->attr);
	spin_unlock(&core->lock);
	__mark_inode_dirty(inode, I_DIRTY_TIME);
}

/*
 * A time that no delta knows of becomes part of the front one.  Whoever frees memory may hold locks that the back end
 * wants: he does not wait for it, and perhaps a time is lost.
 */
void node_dirty(struct inode *inode, int flags)
{
	struct tux3_node *node = node_of(inode);
	struct volume *vol = node->core.vol;
	u64 cost = space_cost_uncounted(space_cost_items(vol, 1));
	bool frees = current->flags & PF_MEMALLOC;
	struct delta_op op;

	if (!(flags & I_DIRTY_TIME) || (frees && delta_would_wait(vol, cost)) || !node_grab_living(node))
		return;
	if (!delta_enter(vol, &op, cost, frees ? DELTA_NOWAIT : 0)) {
		inode_atime_begin(&op, &node->core);
		inode_change_end(&node->core);
		delta_leave(&op);
	}
	node_put_later(node);
}

static int node_update_time(struct inode *inode, enum fs_update_time type, unsigned int flags)
{
	struct tux3_inode *core = core_of(inode);
	struct volume *vol = core->vol;
	u64 cost = space_cost_uncounted(space_cost_items(vol, 1));
	struct tux3_time now = inode_now(vol);
	bool only_atime = type == FS_UPD_ATIME;
	struct tux3_attr *attr;
	struct delta_op op;
	int err;

	if (only_atime && inode->i_sb->s_flags & SB_LAZYTIME) {
		touch_atime_lazily(inode);
		return 0;
	}
	if ((only_atime || flags & IOCB_NOWAIT) && delta_would_wait(vol, cost))
		return only_atime ? 0 : -EAGAIN;
	err = delta_enter(vol, &op, cost, flags & IOCB_NOWAIT ? DELTA_NOWAIT : 0);
	if (err)
		return only_atime ? 0 : err;
	/* Of a regular file it is a fault that asks: who writes sets the times with the data. */
	attr = only_atime ? inode_atime_begin(&op, core) : inode_stored_begin(&op, core);
	if (only_atime)
		attr->atime = now;
	else
		attr->mtime = attr->ctime = now;
	pull_times(inode, attr);
	inode_change_end(core);
	delta_leave(&op);
	return 0;
}
COMPAT_UPDATE_TIME(node_update_time)
