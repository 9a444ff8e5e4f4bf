// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * /sys/fs/tux3/DEVICE: what a mounted volume is and does, one number in each file.
 *
 * Each of the core's counters and each number of core/statistics.h is a file of that name.  All are since the mount, and
 * read as hints without locks.
 *
 * A file is only read while its folder is there (kernfs sees to that), and the folder goes before the volume: so the
 * volume needs no lock against us.  But its thread comes and goes with a remount: back_cpu_ns takes s_umount for it.
 */
#include <linux/kobject.h>
#include <linux/sysfs.h>
#include "core/statistics.h"
#include "core/open.h"
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
	u8 label[TUX3_LABEL_MAX];

	volume_get_label(sbi->vol, label);
	return sysfs_emit(text, "%.*s\n", TUX3_LABEL_MAX, label);
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

#define X(name, number, unit, what) \
static ssize_t show_##name(struct tux3_sb *sbi, char *text)	\
{								\
	struct volume *vol = sbi->vol;				\
								\
	return sysfs_emit(text, "%llu\n", (u64)(number));	\
}
STATISTICS_NUMBERS(X)
#undef X

/* ---- all files ---- */

#define FILE_ATTR(file_name) { .name = file_name, .mode = 0444 }

static struct volume_file volume_files[] = {
	{ FILE_ATTR("label"), show_label },
	{ FILE_ATTR("uuid"), show_uuid },
	{ FILE_ATTR("back_cpu_ns"), show_back_cpu_ns },
#define X(name, number, unit, what) { FILE_ATTR(#name), show_##name },
	STATISTICS_NUMBERS(X)
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
	return sysfs_emit(text, "%llu\n", delta_counter(sbi->vol, file->counter));
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
