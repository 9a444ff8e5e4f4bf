// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /sys/fs/tux3/DEVICE: what a mounted volume is and does, one number in each file.
 *
 * Each of the core's counters is a file with the counter's name; the other numbers have the names that `tux3 stat` gives
 * them.  All are since the mount, and read as hints without locks.
 *
 * A file is only read while its folder is there (kernfs sees to that), and the folder goes before the volume: so the
 * volume needs no lock against us.  But its thread comes and goes with a remount: back_cpu_ns takes s_umount for it.
 */
#include <linux/kobject.h>
#include <linux/sysfs.h>
#include "linux/vfs.h"

struct volume_file {
	struct attribute attr;
	ssize_t (*show)(struct tux3_sb *sbi, char *text);	/* NULL: a counter */
	enum tux3_counter counter;
};

static struct kobject *sysfs_root;

/* ---- what is not a counter ---- */

static ssize_t show_label(struct tux3_sb *sbi, char *text)
{
	return sysfs_emit(text, "%.*s\n", TUX3_LABEL_MAX, sbi->vol->label);
}

static ssize_t show_uuid(struct tux3_sb *sbi, char *text)
{
	return sysfs_emit(text, "%pU\n", sbi->vol->uuid);
}

/* CPU time of the volume's own thread.  What commits cost in the tasks that asked for them is in commit_ns. */
static ssize_t show_back_cpu_ns(struct tux3_sb *sbi, char *text)
{
	u64 ns = 0;

	/* Umount waits for us with it held. */
	if (!down_read_trylock(&sbi->sb->s_umount))
		return -EBUSY;
	if (sbi->vol->delta.thread)
		ns = READ_ONCE(sbi->vol->delta.thread->se.sum_exec_runtime);
	up_read(&sbi->sb->s_umount);
	return sysfs_emit(text, "%llu\n", ns);
}

static u64 space_number(struct volume *vol, unsigned int which)
{
	u64 number[3];

	space_stat(vol, &number[0], &number[1], &number[2]);
	return number[which];
}

/*	X(name, u64 of struct volume *vol) */
#define VOLUME_NUMBERS(X) \
	X(block_size,		vol->block_size) \
	X(blocks,		space_number(vol, 0)) \
	X(free_blocks,		space_number(vol, 1)) \
	X(available_blocks,	space_number(vol, 2)) \
	X(used_blocks,		atomic64_read(&vol->balloc.disk_used)) \
	X(inodes,		atomic64_read(&vol->inodes)) \
	X(front_delta,		READ_ONCE(vol->delta.front)) \
	X(committed_delta,	READ_ONCE(vol->delta.committed)) \
	X(dirty_bytes,		atomic64_read(&vol->delta.dirty_bytes[READ_ONCE(vol->delta.front) & 1])) \
	X(dirty_changes,	atomic64_read(&vol->delta.changes[READ_ONCE(vol->delta.front) & 1])) \
	X(log_length,		READ_ONCE(vol->log.length)) \
	X(anchor_delta,		le64_to_cpu(READ_ONCE(vol->anchor.delta))) \
	X(unify_phase,		READ_ONCE(vol->unify.phase)) \
	X(error,		-atomic_read(&vol->error)) \
	X(tree_height,		READ_ONCE(vol->tree.root_level) + 1) \
	X(dirty_nodes,		READ_ONCE(vol->tree.dirty_count)) \
	X(cache_bytes,		atomic64_read(&vol->cache.bytes)) \
	X(cache_hits,		cache_hits(vol)) \
	X(cache_misses,		atomic64_read(&vol->cache.misses)) \
	X(names_cached,		atomic64_read(&vol->names.entries)) \
	X(device_reads,		atomic64_read(&vol->dev->reads)) \
	X(device_read_bytes,	atomic64_read(&vol->dev->read_bytes)) \
	X(device_writes,	atomic64_read(&vol->dev->writes)) \
	X(device_write_bytes,	atomic64_read(&vol->dev->write_bytes)) \
	X(device_flushes,	atomic64_read(&vol->dev->flushes))

#define X(name, number) \
static ssize_t show_##name(struct tux3_sb *sbi, char *text)	\
{								\
	struct volume *vol = sbi->vol;				\
								\
	return sysfs_emit(text, "%llu\n", (u64)(number));	\
}
VOLUME_NUMBERS(X)
#undef X

/* ---- all files ---- */

#define FILE_ATTR(file_name) { .name = file_name, .mode = 0444 }

static struct volume_file volume_files[] = {
	{ FILE_ATTR("label"), show_label },
	{ FILE_ATTR("uuid"), show_uuid },
	{ FILE_ATTR("back_cpu_ns"), show_back_cpu_ns },
#define X(name, number) { FILE_ATTR(#name), show_##name },
	VOLUME_NUMBERS(X)
#undef X
#define X(NAME, name, unit, what) { FILE_ATTR(name), NULL, TUX3_COUNT_##NAME },
	TUX3_COUNTERS(X)
#undef X
};

static struct attribute *volume_attrs[ARRAY_SIZE(volume_files) + 1];

static const struct attribute_group volume_group = { .attrs = volume_attrs };
static const struct attribute_group *volume_groups[] = { &volume_group, NULL };

static ssize_t sysfs_show(struct kobject *kobj, struct attribute *attr, char *text)
{
	struct tux3_sb *sbi = container_of(kobj, struct tux3_sb, kobj);
	struct volume_file *file = container_of(attr, struct volume_file, attr);

	if (file->show)
		return file->show(sbi, text);
	return sysfs_emit(text, "%llu\n", (u64)atomic64_read(&sbi->vol->counters[file->counter]));
}

static const struct sysfs_ops volume_sysfs_ops = { .show = sysfs_show };

static void sysfs_release(struct kobject *kobj)
{
	complete(&container_of(kobj, struct tux3_sb, kobj)->kobj_gone);
}

static const struct kobj_type volume_type = {
	.release = sysfs_release,
	.sysfs_ops = &volume_sysfs_ops,
	.default_groups = volume_groups,
};

/* Of two mounts, that of a device whose name was given to another before it was unmounted fails. */
int sysfs_add(struct tux3_sb *sbi)
{
	return kobject_init_and_add(&sbi->kobj, &volume_type, sysfs_root, "%s", sbi->sb->s_id);
}

/* Also after sysfs_add() failed, or was not called. */
void sysfs_remove(struct tux3_sb *sbi)
{
	if (!sbi->kobj.state_initialized)
		return;
	kobject_put(&sbi->kobj);	/* the only reference: removes the folder, waits for readers */
	wait_for_completion(&sbi->kobj_gone);
}

int sysfs_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(volume_files); i++)
		volume_attrs[i] = &volume_files[i].attr;
	sysfs_root = kobject_create_and_add("tux3", fs_kobj);
	return sysfs_root ? 0 : -ENOMEM;
}

void sysfs_exit(void)
{
	kobject_put(sysfs_root);
}
