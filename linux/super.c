// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A mount from its beginning to its end: mount, remount, sync, freeze, statfs, memory pressure, umount.
 *
 * The end of a mount, in this order (super_close; a mount that fails half way takes the same way):
 *
 *	1. Everything is synced, strays too.  node_close_puts(): inodes without a name and use are known to the back end;
 *	   from now on the last reference evicts.
 *	2. The VFS drops dentries, syncs, and evicts the inodes that nothing pins.
 *	3. super_settle(): the workers are idle, everything is committed.
 *	4. volume_stop(): the last commit and unify, or after an error giving up; nothing is pinned any more, so that all
 *	   inodes are gone.
 *	5. Only now the volume's memory goes: evicting needed it.  Then the device.
 *
 * Locking: mount, remount, freeze and umount have s_umount exclusively, sync and statfs shared or not at all.
 */
#include <linux/exportfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/statfs.h>
#include "core/error.h"
#include "core/open.h"
#include "linux/vfs.h"

/* ---- memory pressure: clean tree nodes and directory entries ---- */

/* In objects: nodes and entries. */
static u64 nodes_reclaimable(struct volume *vol)
{
	return cache_reclaimable(vol) >> vol->block_shift;
}

static unsigned long super_shrink_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct volume *vol = ((struct tux3_sb *)shrinker->private_data)->vol;
	unsigned long count = nodes_reclaimable(vol) + name_reclaimable(vol);

	return count ? count : SHRINK_EMPTY;
}

/* Of each kind as large a share. */
static unsigned long super_shrink_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct volume *vol = ((struct tux3_sb *)shrinker->private_data)->vol;
	u64 nodes = nodes_reclaimable(vol), names = name_reclaimable(vol), part, freed;

	if (!nodes && !names)
		return SHRINK_STOP;
	part = mult_frac((u64)sc->nr_to_scan, nodes, nodes + names);
	freed = part ? cache_shrink(vol, part << vol->block_shift) >> vol->block_shift : 0;
	if (part < sc->nr_to_scan)
		freed += name_shrink(vol, sc->nr_to_scan - part);
	return freed;
}

static int super_add_shrinker(struct tux3_sb *sbi)
{
	sbi->shrinker = shrinker_alloc(0, "tux3:%s", sbi->sb->s_id);
	if (!sbi->shrinker)
		return -ENOMEM;
	sbi->shrinker->count_objects = super_shrink_count;
	sbi->shrinker->scan_objects = super_shrink_scan;
	sbi->shrinker->private_data = sbi;
	shrinker_register(sbi->shrinker);
	return 0;
}

/* ---- the end ---- */

/*
 * Inodes whose last user has gone are deleted, and everything is committed.  alone: nobody else changes anything, and so there is
 * an end to it; else what is there now.
 */
static int super_settle(struct tux3_sb *sbi, bool alone)
{
	int err;

	do {
		node_flush_puts(sbi);
		err = delta_commit_surely(sbi->vol);
		node_flush_puts(sbi);
	} while (!err && alone && !sbi->vol->read_only && delta_has_changes(sbi->vol));
	return err;
}

static void super_close_volume(struct tux3_sb *sbi)
{
	sysfs_remove(sbi);
	shrinker_free(sbi->shrinker);
	super_settle(sbi, true);
	volume_stop(sbi->vol);		/* what went wrong has been told */
	if (sbi->mounted)
		pr_info("%s: volume %pU unmounted%s\n", sbi->dev->name, sbi->vol->uuid,
			volume_error(sbi->vol) ? ", after an error" : "");
	node_flush_puts(sbi);
	node_grab_exit(sbi);
	volume_release(sbi->vol);
}

/* Also of a mount that did not succeed: what is not there is NULL. */
static void super_close(struct super_block *sb)
{
	struct tux3_sb *sbi = sb_of(sb);

	if (sbi->vol)
		super_close_volume(sbi);
	else if (sbi->workqueue)
		node_grab_exit(sbi);
	if (sbi->dev)
		sbi->dev->ops->close(sbi->dev);
	/* Others may have the block device open and its blocks, as they were, in its page cache. */
	invalidate_bdev(sb->s_bdev);
	flush_work(&sbi->stopped_work);
	sb->s_fs_info = NULL;
	kfree(sbi);
}

/* Monitors that listen for errors of file systems (fanotify, FAN_FS_ERROR) hear of it. */
static void stopped_work_run(struct work_struct *work)
{
	struct tux3_sb *sbi = container_of(work, struct tux3_sb, stopped_work);

	compat_tell_error(sbi->sb, sbi->stopped_err);
}

/* Nobody listens before it is mounted. */
void host_stopped(struct volume *vol, int err)
{
	struct tux3_sb *sbi = sb_of(bdev_device_of(vol->dev)->sb);

	sbi->stopped_err = err;
	if (sbi->mounted)
		schedule_work(&sbi->stopped_work);
}

/* The device was pulled out. */
static void super_device_gone(struct super_block *sb)
{
	volume_abort(sb_of(sb)->vol, -EIO, "the device is gone");
}

/* ---- while it is there ---- */

/*
 * Nice, of a class that gets what others leave, or in a group: that may have a limit of time, or little weight beside others.
 * The scheduler does not know who waits for him.
 */
bool host_lacks_time(struct volume *vol)
{
	bool grouped = false;

#ifdef CONFIG_CGROUP_SCHED
	rcu_read_lock();
	grouped = task_css(current, cpu_cgrp_id)->parent;
	rcu_read_unlock();
#endif
	return grouped || task_nice(current) > 0 || current->policy == SCHED_IDLE;
}

/*
 * sync(2) and syncfs(2) come twice.  A commit that the first call began would not be the last one beside somebody who goes on
 * working: so there is one, made for who waits.  A frozen volume is all committed, and must not be waited for with s_umount
 * held: thawing needs that.
 */
static int super_sync(struct super_block *sb, int wait)
{
	return wait && !super_is_frozen(sb) ? delta_commit(sb_of(sb)->vol) : 0;
}

static int super_freeze(struct super_block *sb)
{
	struct tux3_sb *sbi = sb_of(sb);
	int err;

	node_flush_puts(sbi);		/* so that what is removed is, as far as it can be */
	err = delta_pause(sbi->vol);
	if (!err)
		invalidate_bdev(sb->s_bdev);	/* who copies the device now is to read what is on it */
	return err;
}

static int super_unfreeze(struct super_block *sb)
{
	delta_resume(sb_of(sb)->vol);
	return 0;
}

static int super_statfs(struct dentry *dentry, struct kstatfs *stat)
{
	struct volume *vol = sb_of(dentry->d_sb)->vol;
	u64 total, free, available;

	space_stat(vol, &total, &free, &available);
	stat->f_type = TUX3_SUPER_MAGIC;
	stat->f_bsize = stat->f_frsize = vol->block_size;
	stat->f_blocks = total;
	stat->f_bfree = free;
	stat->f_bavail = available;
	stat->f_ffree = available;	/* each takes less than a block of the tree */
	stat->f_files = percpu_counter_sum(&vol->inodes) + available;
	stat->f_fsid = uuid_to_fsid(vol->uuid);
	stat->f_namelen = TUX3_NAME_MAX;
	quota_statfs(d_inode(dentry), stat);
	return 0;
}

static const struct super_operations super_ops = {
	.alloc_inode	= node_alloc,
	.free_inode	= node_free,
	.drop_inode	= node_drop,
	.dirty_inode	= node_dirty,
	.evict_inode	= node_evict,
	.put_super	= super_close,
	.sync_fs	= super_sync,
	.freeze_fs	= super_freeze,
	.unfreeze_fs	= super_unfreeze,
	.statfs		= super_statfs,
	.show_options	= options_show,
	.shutdown	= super_device_gone,
};

/* ---- mount ---- */

/* A folio has at least one block, and a block one folio: so it is as large as a page at least, and as a folio at most. */
static int super_check_block_size(const struct volume *vol, char *why, size_t why_size)
{
	size_t most = mapping_max_folio_size_supported();

	if (vol->block_size >= PAGE_SIZE && vol->block_size <= most)
		return 0;
	snprintf(why, why_size, "its blocks have %u bytes: this kernel mounts volumes with blocks of %lu to %zu; tux3-fuse mounts all",
		 vol->block_size, PAGE_SIZE, most);
	return -EINVAL;
}

static int super_open_volume(struct tux3_sb *sbi, char *why, size_t why_size)
{
	const struct tux3_options *options = &sbi->options;
	struct super_block *sb = sbi->sb;
	struct volume_options core = {
		.read_only = sb_rdonly(sb),
		.no_recovery = options->norecovery,
		.accept_last = options->acceptlast,
		.cut_log = options->cutlog,
		.age_ms = options->age_ms,
		.dirty_bytes = options->dirty_bytes,
		.cache_bytes = options->cache_bytes,
		.names_cached = options->names_cached,
		.fsync = options->fsync,
		.discard = options->discard,
		.no_quota = options->noquota,
		.costs = options->costs,
	};
	struct tux3_device *dev;
	int err;

	if (options->norecovery && !core.read_only) {
		snprintf(why, why_size,
			 "norecovery needs ro: changes on top of a log that was not replayed would destroy data");
		return -EINVAL;
	}
	err = sync_blockdev(sb->s_bdev);	/* what a program wrote to it: we read past its page cache */
	if (err) {
		snprintf(why, why_size, "the device cannot be written (%s)", error_text(err));
		return err;
	}
	dev = bdev_device_open(sb->s_bdev, core.read_only, why, why_size);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	sbi->dev = dev;
	bdev_device_of(dev)->sb = sb;
	err = volume_open(dev, &vfs_host_ops, &core, &sbi->vol, why, why_size);
	return err ? err : super_check_block_size(sbi->vol, why, why_size);
}

static void super_set_acl(struct super_block *sb, bool noacl)
{
	if (noacl)
		sb->s_flags &= ~SB_POSIXACL;
	else
		sb->s_flags |= SB_POSIXACL;
}

static void super_set_fields(struct tux3_sb *sbi)
{
	struct super_block *sb = sbi->sb;
	struct volume *vol = sbi->vol;

	sb->s_magic = TUX3_SUPER_MAGIC;
	sb->s_maxbytes = MAX_LFS_FILESIZE;
	sb->s_time_gran = 1;
	/* Not that of the block device, which may be no larger than a page, and is not used. */
	sb->s_blocksize_bits = vol->block_shift;
	sb->s_blocksize = vol->block_size;
	sb->s_op = &super_ops;
	sb->s_xattr = xattr_handlers;
	sb->s_export_op = &export_ops;
	sb->s_flags |= SB_NOSEC;
	super_set_acl(sb, sbi->options.noacl);
	super_set_quota(sbi);
	super_set_uuid(sb, vol->uuid, sizeof(vol->uuid));
	super_set_sysfs_name_id(sb);
	sb->s_iflags |= SB_I_CGROUPWB;	/* dirty pages are counted, and writers held up, for each memory cgroup */
	sb->s_iflags |= SB_I_ALLOW_HSM;	/* the VFS asks who fills files on demand before it calls us, and filemap_fault() does */
}

static int super_make_root(struct super_block *sb)
{
	struct inode *root = node_get(sb, TUX3_INO_ROOT);

	if (IS_ERR(root))
		return PTR_ERR(root);
	if (!S_ISDIR(root->i_mode)) {
		iput(root);
		return -EIO;
	}
	sb->s_root = d_make_root(root);
	return sb->s_root ? 0 : -ENOMEM;
}

static int super_start(struct tux3_sb *sbi, char *why, size_t why_size)
{
	int err = super_add_shrinker(sbi);

	snprintf(why, why_size, "out of memory");
	if (err)
		return err;
	err = sysfs_add(sbi);
	if (err) {
		snprintf(why, why_size, "/sys/fs/tux3/%s cannot be made (%s)", sbi->sb->s_id, error_text(err));
		return err;
	}
	err = super_make_root(sbi->sb);		/* last: from now on the VFS calls put_super */
	if (err && err != -ENOMEM)
		snprintf(why, why_size, "the root directory cannot be read (%s)", error_text(err));
	return err;
}

static void super_tell(struct tux3_sb *sbi)
{
	u64 replayed = delta_counter(sbi->vol, TUX3_COUNT_REPLAYED);

	sbi->mounted = true;
	pr_info("%s: volume %pU mounted%s\n", sbi->dev->name, sbi->vol->uuid, sb_rdonly(sbi->sb) ? " read-only" : "");
	if (replayed)
		pr_info("%s: the log was replayed%s: %llu deltas\n", sbi->dev->name,
			sb_rdonly(sbi->sb) ? ", in memory only" : "", replayed);
	if (sbi->options.discard && !bdev_max_discard_sectors(sbi->sb->s_bdev))
		pr_warn("%s: the device cannot discard blocks: the option discard does nothing\n", sbi->dev->name);
}

static int super_fill(struct super_block *sb, struct fs_context *fc)
{
	struct tux3_sb *sbi = kzalloc(sizeof(*sbi), GFP_KERNEL);
	char why[256] = "out of memory";
	int err;

	if (!sbi)
		return -ENOMEM;
	sbi->sb = sb;
	sbi->options = *(struct tux3_options *)fc->fs_private;
	init_completion(&sbi->kobj_gone);
	INIT_WORK(&sbi->stopped_work, stopped_work_run);
	sb->s_fs_info = sbi;
	err = node_grab_init(sbi);
	if (!err)
		err = super_open_volume(sbi, why, sizeof(why));
	if (!err) {
		super_set_fields(sbi);
		err = super_start(sbi, why, sizeof(why));
	}
	if (!err) {
		super_tell(sbi);
		return 0;
	}
	if (!(fc->sb_flags & SB_SILENT))
		errorfc(fc, "%s: %s", sb->s_id, why);
	super_close(sb);
	return err;
}

static int super_get_tree(struct fs_context *fc)
{
	return get_tree_bdev(fc, super_fill);
}

/* ---- remount ---- */

/* Only what was given is not 0. */
static void super_apply_options(struct tux3_sb *sbi, const struct tux3_options *options)
{
	struct volume_options *core = &sbi->vol->opts;

	if (options->age_ms)
		WRITE_ONCE(core->age_ms, options->age_ms);
	if (options->dirty_bytes) {
		volume_set_dirty_bytes(core, options->dirty_bytes, 0);
		pace_update(sbi->vol);
	}
	if (options->cache_bytes)
		cache_set_limit(sbi->vol, options->cache_bytes);
	if (options->names_cached)
		WRITE_ONCE(core->names_cached, options->names_cached);
	if (options->fsync)
		WRITE_ONCE(core->fsync, options->fsync);
	WRITE_ONCE(core->discard, options->discard);
	WRITE_ONCE(core->no_quota, options->noquota);
	super_set_acl(sbi->sb, options->noacl);
	sbi->options = *options;
}

/* Files without a name that somebody has open. */
static unsigned int super_count_unnamed(struct super_block *sb)
{
	unsigned int count = 0;
	struct inode *inode;

	spin_lock(&sb->s_inode_list_lock);
	list_for_each_entry(inode, &sb->s_inodes, i_sb_list)
		if (!READ_ONCE(inode->i_nlink) && !hlist_empty(&inode->i_dentry))
			count++;
	spin_unlock(&sb->s_inode_list_lock);
	return count;
}

/* What is without a name may be deleted, as after a crash: so nobody must have such a file open. */
static int super_make_writable(struct fs_context *fc, struct tux3_sb *sbi)
{
	int err = volume_error(sbi->vol);
	unsigned int unnamed;
	char why[256] = "";

	if (err) {
		errorfc(fc, "%s: the volume stopped after an error (%s): unmount it, and check it with fsck.tux3",
			sbi->sb->s_id, error_text(err));
		return -EROFS;
	}
	/* Those that were closed are to be deleted now: see delta_forget_later(). */
	node_flush_puts(sbi);
	unnamed = super_count_unnamed(sbi->sb);
	if (unnamed) {
		errorfc(fc, "%s: %u files that have no name any more are still open", sbi->sb->s_id, unnamed);
		return -EBUSY;
	}
	err = bdev_device_set_read_only(sbi->dev, false);
	if (err) {
		errorfc(fc, "%s: the device is read-only", sbi->sb->s_id);
		return err;
	}
	err = volume_set_read_only(sbi->vol, false, why, sizeof(why));
	if (err) {
		errorfc(fc, "%s: %s", sbi->sb->s_id, why);
		bdev_device_set_read_only(sbi->dev, true);
	}
	return err;
}

/*
 * No changes come any more, the VFS saw to that: but for SB_FORCE (sysrq u), when who has files open goes on writing until the
 * volume refuses it.  After an error of the volume there is nothing to do.
 */
static int super_make_read_only(struct fs_context *fc, struct tux3_sb *sbi)
{
	unsigned int unnamed;
	char why[256] = "";
	int err;

	if (volume_error(sbi->vol))
		return 0;
	node_flush_puts(sbi);
	unnamed = super_count_unnamed(sbi->sb);
	if (unnamed && !(fc->sb_flags & SB_FORCE)) {
		errorfc(fc, "%s: %u files that have no name any more are still open: they could not be deleted",
			sbi->sb->s_id, unnamed);
		return -EBUSY;
	}
	err = super_settle(sbi, !(fc->sb_flags & SB_FORCE));
	if (!err)
		err = volume_set_read_only(sbi->vol, true, why, sizeof(why));
	if (err) {
		errorfc(fc, "%s: %s", sbi->sb->s_id, why[0] ? why : "not everything could be committed");
		return err;
	}
	bdev_device_set_read_only(sbi->dev, true);
	return 0;
}

static int super_reconfigure(struct fs_context *fc)
{
	struct super_block *sb = fc->root->d_sb;
	struct tux3_sb *sbi = sb_of(sb);
	const struct tux3_options *options = fc->fs_private;
	bool read_only = sb_rdonly(sb);
	int err;

	if (options->costs != sbi->options.costs)
		return invalfc(fc, "%s: costs cannot be changed by a remount: unmount and mount again", sb->s_id);
	if (options->norecovery != sbi->options.norecovery)
		return invalfc(fc, "%s: norecovery cannot be changed by a remount: unmount and mount again", sb->s_id);
	if (fc->sb_flags_mask & SB_RDONLY)
		read_only = fc->sb_flags & SB_RDONLY;
	err = sync_filesystem(sb);
	if (err && !volume_error(sbi->vol))
		return err;
	err = 0;
	if (read_only && !sb_rdonly(sb))
		err = super_make_read_only(fc, sbi);
	else if (!read_only && sb_rdonly(sb))
		err = super_make_writable(fc, sbi);
	if (!err)
		super_apply_options(sbi, options);
	return err;
}

/* ---- the file system type ---- */

static void super_free_context(struct fs_context *fc)
{
	kfree(fc->fs_private);
}

static const struct fs_context_operations context_ops = {
	.parse_param	= options_parse,
	.get_tree	= super_get_tree,
	.reconfigure	= super_reconfigure,
	.free		= super_free_context,
};

static int super_init_context(struct fs_context *fc)
{
	struct tux3_options *options = kzalloc(sizeof(*options), GFP_KERNEL);

	if (!options)
		return -ENOMEM;
	if (fc->purpose == FS_CONTEXT_FOR_RECONFIGURE)
		*options = sb_of(fc->root->d_sb)->options;
	fc->fs_private = options;
	fc->ops = &context_ops;
	return 0;
}

static void super_kill(struct super_block *sb)
{
	if (sb_of(sb)) {
		sync_filesystem(sb);	/* strays are pinned by no delta: evicting would lose them */
		node_close_puts(sb_of(sb));
	}
	kill_block_super(sb);
}

struct file_system_type tux3_fs_type = {
	.owner			= THIS_MODULE,
	.name			= "tux3",
	.init_fs_context	= super_init_context,
	.parameters		= options_spec,
	.kill_sb		= super_kill,
	.fs_flags		= FS_REQUIRES_DEV | FS_ALLOW_IDMAP,
};
