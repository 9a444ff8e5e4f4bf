// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Inodes in memory: their attributes through two deltas, and how they become dirty.
 *
 * An inode that is dirty in a delta is on delta.dirty[slot], pinned by host->inode_grab, until the
 * back end is done with that delta.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/delta/delta.h"
#include "core/inode/early.h"
#include "core/inode/ialloc.h"
#include "core/inode/inode.h"
#include "core/inode/inode_quota.h"
#include "core/inode/path.h"
#include "core/format/attr.h"
#include "core/format/chain.h"
#include "core/inode/xattr.h"
#include "core/names/name.h"

void inode_slot_reset(struct inode_slot *slot)
{
	WRITE_ONCE(slot->dirty, 0);
	WRITE_ONCE(slot->run_end, 0);
	slot->frozen = slot->taken = slot->awaited = slot->stored = false;
	slot->removed = slot->prealloc = RB_ROOT;
	slot->cut = DATA_END;
	slot->unchecked = slot->unchecked_end = 0;
	slot->extra = slot->charged = 0;
	slot->paid = slot->promised = 0;
	slot->tie = NULL;
	slot->ties = NULL;
	slot->untied = slot->lost = false;
}

/* Each field by its name: what inode_slot_reset() has forgotten is found. */
static const char *slot_left(const struct inode_slot *slot)
{
	if (slot->frozen || slot->taken)
		return "its attributes";
	if (slot->awaited)
		return "an fsync that waits";
	if (slot->stored)
		return "stores through mappings";
	if (slot->dirty)
		return "dirty bits";
	if (!RB_EMPTY_ROOT(&slot->removed) || !RB_EMPTY_ROOT(&slot->prealloc))
		return "ranges removed or preallocated";
	if (slot->cut != DATA_END)
		return "a truncate";
	if (slot->run_end)
		return "a run of written blocks";
	if (slot->unchecked || slot->unchecked_end)
		return "blocks without checksums";
	if (slot->extra || slot->paid || slot->promised)
		return "blocks that it takes besides its dirty ones, or that were paid before";
	if (slot->lost)
		return "that something was lost";
	if (slot->charged)
		return "blocks that were charged to quotas";
	if (slot->tie || slot->ties || slot->untied)
		return "names that it got or lost";
	return NULL;
}

void inode_verify_done(struct tux3_inode *inode, u64 delta)
{
	const char *left;

	if (likely(!inode->vol->opts.verify))
		return;
	spin_lock(&inode->lock);
	left = slot_left(&inode->slot[delta & 1]);
	spin_unlock(&inode->lock);
	if (!left && name_has_changes(inode, delta))
		left = "changed names";
	if (!left && xattr_has_changes(inode, delta))
		left = "changed extended attributes";
	if (left)
		volume_inconsistent(inode->vol, "delta %llu is done with inode %llu, whose slot still has %s",
				    (unsigned long long)delta, (unsigned long long)inode->ino, left);
}

void inode_setup(struct volume *vol, struct tux3_inode *inode, u64 ino)
{
	int i;

	memset(inode, 0, sizeof(*inode));
	inode->vol = vol;
	inode->ino = ino;
	inode->blocks_epoch = READ_ONCE(vol->blocks_epoch);
	spin_lock_init(&inode->lock);
	mutex_init(&inode->xattr_mutex);
	inode->xattrs = RB_ROOT;
	for (i = 0; i < 2; i++)
		inode_slot_reset(&inode->slot[i]);
}

void inode_exit(struct tux3_inode *inode)
{
	WARN_ON_ONCE(inode->slot[0].dirty || inode->slot[1].dirty);
	ialloc_give_back(inode);
	inode_quota_detach(inode);
	name_dir_free(inode);
	xattr_free(inode);
	early_free(inode->early);
	kfree(inode->target);
}

/* ---- flags ---- */

static const struct {
	u32 attr, ioctl, xflag;
} attr_flags[] = {
	{ TUX3_ATTR_IMMUTABLE,	0x10,		0x8 },
	{ TUX3_ATTR_APPEND,	0x20,		0x10 },
	{ TUX3_ATTR_NODUMP,	0x40,		0x80 },
	{ TUX3_ATTR_NOATIME,	0x80,		0x40 },
	{ TUX3_ATTR_PROJINHERIT, 0x20000000,	0x200 },
};

u32 attr_flags_to_ioctl(u32 attr)
{
	u32 flags = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(attr_flags); i++)
		if (attr & attr_flags[i].attr)
			flags |= attr_flags[i].ioctl;
	return flags;
}

u32 attr_flags_to_xflags(u32 attr)
{
	u32 flags = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(attr_flags); i++)
		if (attr & attr_flags[i].attr)
			flags |= attr_flags[i].xflag;
	return flags;
}

bool attr_flags_from_ioctl(u32 flags, u32 *attr)
{
	int i;

	*attr = 0;
	for (i = 0; i < ARRAY_SIZE(attr_flags); i++)
		if (flags & attr_flags[i].ioctl)
			*attr |= attr_flags[i].attr;
	return flags == attr_flags_to_ioctl(*attr);
}

void attr_inherit(struct tux3_attr *attr, struct tux3_inode *dir)
{
	/* Changed with the directory locked only, as the caller has it. */
	u32 flags = READ_ONCE(dir->attr.flags);

	attr->flags |= flags & (TUX3_ATTR_NODUMP | TUX3_ATTR_NOATIME);
	if (!(flags & TUX3_ATTR_PROJINHERIT))
		return;
	attr->projid = READ_ONCE(dir->attr.projid);
	if (S_ISDIR(attr->mode))
		attr->flags |= TUX3_ATTR_PROJINHERIT;
}

/* ---- attributes on disk ---- */

static void time_to_disk(const struct tux3_time *time, __le64 *sec, __le32 *nsec)
{
	*sec = cpu_to_le64(time->sec);
	*nsec = cpu_to_le32(time->nsec);
}

static void time_from_disk(struct tux3_time *time, __le64 sec, __le32 nsec)
{
	time->sec = le64_to_cpu(sec);
	time->nsec = le32_to_cpu(nsec);
}

void attr_to_disk(struct disk_attr *disk, const struct tux3_attr *attr, u64 blocks)
{
	memset(disk, 0, sizeof(*disk));
	disk->mode = cpu_to_le32(attr->mode);
	disk->uid = cpu_to_le32(attr->uid);
	disk->gid = cpu_to_le32(attr->gid);
	disk->nlink = cpu_to_le32(attr->nlink);
	disk->size = cpu_to_le64(attr->size);
	disk->blocks = cpu_to_le64(blocks);
	time_to_disk(&attr->atime, &disk->atime_sec, &disk->atime_nsec);
	time_to_disk(&attr->mtime, &disk->mtime_sec, &disk->mtime_nsec);
	time_to_disk(&attr->ctime, &disk->ctime_sec, &disk->ctime_nsec);
	time_to_disk(&attr->btime, &disk->btime_sec, &disk->btime_nsec);
	disk->rdev_major = cpu_to_le32(attr->rdev_major);
	disk->rdev_minor = cpu_to_le32(attr->rdev_minor);
	disk->flags = cpu_to_le32(attr->flags);
	disk->generation = cpu_to_le32(attr->generation);
	disk->projid = cpu_to_le32(attr->projid);
	disk->change = cpu_to_le64(attr->change);
}

u64 attr_blocks_after(const struct volume *vol, u64 blocks, s64 more)
{
	return clamp_t(s64, (s64)min(blocks, vol->total_blocks) + more, 0, vol->total_blocks);
}

u64 attr_entries_after(u64 entries, int more)
{
	return more < 0 && entries < -more ? 0 : min_t(u64, entries + more, TUX3_SIZE_MAX);
}

int attr_from_disk(const struct volume *vol, struct tux3_attr *attr, u64 *blocks, const struct disk_attr *disk)
{
	attr->mode = le32_to_cpu(disk->mode);
	attr->uid = le32_to_cpu(disk->uid);
	attr->gid = le32_to_cpu(disk->gid);
	attr->nlink = le32_to_cpu(disk->nlink);
	attr->size = le64_to_cpu(disk->size);
	*blocks = le64_to_cpu(disk->blocks);
	time_from_disk(&attr->atime, disk->atime_sec, disk->atime_nsec);
	time_from_disk(&attr->mtime, disk->mtime_sec, disk->mtime_nsec);
	time_from_disk(&attr->ctime, disk->ctime_sec, disk->ctime_nsec);
	time_from_disk(&attr->btime, disk->btime_sec, disk->btime_nsec);
	attr->rdev_major = le32_to_cpu(disk->rdev_major);
	attr->rdev_minor = le32_to_cpu(disk->rdev_minor);
	attr->flags = le32_to_cpu(disk->flags);
	attr->generation = le32_to_cpu(disk->generation);
	attr->projid = le32_to_cpu(disk->projid);
	attr->change = le64_to_cpu(disk->change);
	return attr_possible(disk, vol->total_blocks) ? 0 : -EIO;
}

static int parent_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	const struct disk_parent *first = chain_next_parent(&chain);
	u64 *parent = ctx;

	if (!first)
		return -EIO;
	*parent = le64_to_cpu(first->dir);
	return 1;
}

int inode_read(struct tux3_inode *inode)
{
	struct volume *vol = inode->vol;
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_PARENT, 0);
	struct tree_key to = tree_key(inode->ino, TUX3_ITEM_PARENT, U64_MAX);
	struct tree_key last = tree_key(inode->ino, U8_MAX, U64_MAX);
	struct disk_attr disk;
	bool one_leaf;
	int len = tree_lookup_first(vol, &key, &disk, sizeof(disk), &last, &one_leaf), err;

	if (len < 0)
		return len;
	inode->scattered = !one_leaf;
	if (len != sizeof(disk) || attr_from_disk(vol, &inode->attr, &inode->blocks, &disk)) {
		inode_warn(vol, "the attributes of inode", inode->ino, " are not valid");
		return -EIO;
	}
	if (!inode->attr.nlink)		/* being deleted */
		return -ENOENT;
	inode->in_tree = true;
	inode->tree_size = inode->attr.size;
	inode->many_names = inode->attr.nlink > 2;
	if (inode->ino == TUX3_INO_ROOT) {
		inode->parent = TUX3_INO_ROOT;
	} else if (S_ISDIR(inode->attr.mode)) {
		err = tree_scan(vol, &from, &to, parent_item, &inode->parent);
		if (err != 1) {
			inode_warn(vol, "directory", inode->ino, " has no valid parent pointer");
			return err < 0 ? err : -EIO;
		}
	}
	return inode_quota_attach(inode, NULL);
}

/* A commit does this before it changes the inode, and moves the epoch: so what was looked up before is never taken for newer. */
int inode_refresh_blocks(struct tux3_inode *inode)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_ATTR, 0);
	u32 epoch = READ_ONCE(inode->vol->blocks_epoch);
	struct disk_attr disk;
	int len;

	if (likely(READ_ONCE(inode->blocks_epoch) == epoch))
		return 0;
	len = READ_ONCE(inode->in_tree) ? tree_lookup(inode->vol, &key, &disk, sizeof(disk)) : 0;
	if (len < 0)
		return len;
	spin_lock(&inode->lock);
	if (len == sizeof(disk) && inode->blocks_epoch != epoch)
		inode->blocks = attr_blocks_after(inode->vol, le64_to_cpu(disk.blocks), 0);
	WRITE_ONCE(inode->blocks_epoch, epoch);
	spin_unlock(&inode->lock);
	return 0;
}

void inode_add_blocks(struct tux3_inode *inode, s64 more)
{
	spin_lock(&inode->lock);
	inode->blocks = attr_blocks_after(inode->vol, inode->blocks, more);
	spin_unlock(&inode->lock);
}

/*
 * The clock of everybody who sets an inode's times: the VFS, and FUSE's kernel side, which set some of them by
 * themselves, read the coarse one.  With a finer one here a change could get an earlier time than one before it.
 */
struct tux3_time inode_now(struct volume *vol)
{
	struct timespec64 now;

	if (vol->host && vol->host->now)
		vol->host->now(vol, &now);
	else
		ktime_get_coarse_real_ts64(&now);
	return (struct tux3_time){ .sec = now.tv_sec, .nsec = now.tv_nsec };
}

void inode_get_attr(struct tux3_inode *inode, struct tux3_attr *attr)
{
	spin_lock(&inode->lock);
	*attr = *inode_attr(inode);
	spin_unlock(&inode->lock);
}

/* ---- becoming dirty; inode->lock held ---- */

enum cause {
	BY_OPERATION,
	BY_STORE,	/* through a mapping, and that is all.  A read changes nothing about that. */
	BY_NAME,	/* it got or lost one */
};

static void dirty_locked(struct delta_op *op, struct tux3_inode *inode, u32 dirty, enum cause cause)
{
	unsigned int n = op->delta & 1;
	struct inode_slot *slot = &inode->slot[n], *back = &inode->slot[!n];

	lockdep_assert_held(&inode->lock);
	if (back->dirty && !back->frozen && !back->taken) {
		inode->frozen = inode->attr;
		back->frozen = true;
	}
	if (!slot->dirty || dirty & INODE_DIRTY_NAMES)
		delta_guess_leaf(op, inode->ino, !slot->dirty, dirty & INODE_DIRTY_NAMES ? inode->attr.size : 0);
	if (!slot->dirty) {
		inode->vol->host->inode_grab(inode);
		delta_add_inode(op, inode);
	}
	if (dirty != INODE_DIRTY_ATIME) {
		slot->stored = cause == BY_STORE && (slot->stored || !(slot->dirty & ~INODE_DIRTY_ATIME));
		WRITE_ONCE(inode->attr.change, inode->attr.change + 1);	/* inode_is_unknown() looks without the lock */
		if (cause != BY_NAME && dirty & ~(INODE_DIRTY_NAMES | INODE_DIRTY_LISTING)) {
			inode->changed_delta = op->delta;
			inode->changes++;
		}
	}
	WRITE_ONCE(slot->dirty, slot->dirty | dirty);	/* data_change_enter() looks without the lock */
}

void inode_dirty_locked(struct delta_op *op, struct tux3_inode *inode, u32 dirty)
{
	dirty_locked(op, inode, dirty, BY_OPERATION);
}

struct tux3_attr *inode_change_begin(struct delta_op *op, struct tux3_inode *inode)
{
	spin_lock(&inode->lock);
	inode_dirty_locked(op, inode, INODE_DIRTY_ATTR);
	return &inode->attr;
}

struct tux3_attr *inode_atime_begin(struct delta_op *op, struct tux3_inode *inode)
{
	spin_lock(&inode->lock);
	inode_dirty_locked(op, inode, INODE_DIRTY_ATIME);
	return &inode->attr;
}

struct tux3_attr *inode_stored_begin(struct delta_op *op, struct tux3_inode *inode)
{
	spin_lock(&inode->lock);
	dirty_locked(op, inode, INODE_DIRTY_ATTR, BY_STORE);
	return &inode->attr;
}

struct tux3_attr *inode_named_begin(struct delta_op *op, struct tux3_inode *inode)
{
	spin_lock(&inode->lock);
	dirty_locked(op, inode, INODE_DIRTY_ATTR, BY_NAME);
	return &inode->attr;
}

void inode_change_end(struct tux3_inode *inode)
{
	spin_unlock(&inode->lock);
}

void inode_mark_dirty(struct delta_op *op, struct tux3_inode *inode, u32 dirty)
{
	spin_lock(&inode->lock);
	inode_dirty_locked(op, inode, dirty);
	spin_unlock(&inode->lock);
}

bool inode_is_as_told(const struct tux3_inode *inode, u64 durable)
{
	lockdep_assert_held(&inode->lock);
	return inode->changed_delta <= durable || inode->changes == inode->changes_told;
}

bool inode_is_there(const struct tux3_inode *inode)
{
	return READ_ONCE(inode->born_ahead) || READ_ONCE(inode->born_delta) <= READ_ONCE(inode->vol->delta.committed);
}

void inode_told(struct tux3_inode *inode, u32 changes)
{
	lockdep_assert_held(&inode->lock);
	if ((s32)(changes - inode->changes_told) > 0)
		inode->changes_told = changes;
}

void inode_note_change(struct tux3_inode *inode, u64 block, u64 count)
{
	spin_lock(&inode->lock);
	inode->fresh = min(inode->fresh, block);
	inode->fresh_end = max(inode->fresh_end, block + count);
	spin_unlock(&inode->lock);
}

void inode_forget_told(struct tux3_inode *inode)
{
	spin_lock(&inode->lock);
	WRITE_ONCE(inode->told, 0);
	spin_unlock(&inode->lock);
}

void inode_mark_stored(struct delta_op *op, struct tux3_inode *inode)
{
	spin_lock(&inode->lock);
	dirty_locked(op, inode, INODE_DIRTY_DATA, BY_STORE);
	spin_unlock(&inode->lock);
}
