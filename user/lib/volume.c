/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Volumes: opening, closing, asking about them.
 */
#include "lib.h"
#include "device_file.h"
#include "core/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/ioctl.h>

#define DATA_CACHE_DEFAULT	(256ULL << 20)
#ifndef TUX3_VERSION
#define TUX3_VERSION "0.1.0"
#endif

#define fail(why, size, ...) ((void)snprintf(why, size, __VA_ARGS__))

/* ---- open and close ---- */

static int volume_parts_init(struct tux3 *volume)
{
	u32 i;

	mutex_init(&volume->rename_mutex);
	for (i = 0; i < FILL_LOCKS; i++)
		mutex_init(&volume->fill_lock[i]);
	for (i = 0; i < LRU_SHARDS; i++) {
		spin_lock_init(&volume->lru[i].lock);
		INIT_LIST_HEAD(&volume->lru[i].chunks);
	}
	return icache_init(volume);
}

static void volume_free(struct tux3 *volume)
{
	u32 i;

	if (volume->block_size)
		for (i = 0; i < BUFFER_POOLS; i++)
			buffer_pool_exit(&volume->pools[i]);
	icache_exit(volume);
	if (volume->own_device)
		volume->dev->ops->close(volume->dev);
	kfree(volume);
}

static int open_root(struct tux3 *volume, char *why, size_t why_size)
{
	int err = icache_get(volume, TUX3_INO_ROOT, &volume->root);

	if (err)
		fail(why, why_size, "the root directory cannot be read: %s", strerror(-err));
	else if (!S_ISDIR(node_type(volume->root)))
		err = -EIO;
	return err;
}

/* The device is ours on success only. */
int tux3_open_device(struct tux3_device *dev, bool own, const struct volume_options *opts,
		     u64 data_cache_bytes, struct tux3 **volumep, char *why, size_t why_size)
{
	struct tux3 *volume = kzalloc(sizeof(*volume), GFP_KERNEL);
	int err = volume ? volume_parts_init(volume) : -ENOMEM;
	u32 i;

	if (err) {
		fail(why, why_size, "there is not enough memory");
		kfree(volume);
		return err;
	}
	volume->dev = dev;
	err = volume_open(dev, &lib_host_ops, opts, &volume->vol, why, why_size);
	if (err) {
		volume_free(volume);
		return err;
	}
	volume->vol->host_data = volume;
	volume->shift = volume->vol->block_shift;
	volume->block_size = volume->vol->block_size;
	volume->clean_limit = (data_cache_bytes ? data_cache_bytes : DATA_CACHE_DEFAULT) >> volume->shift;
	for (i = 0; i < BUFFER_POOLS; i++)
		buffer_pool_init(&volume->pools[i], volume->block_size);
	err = open_root(volume, why, why_size);
	if (err) {
		tux3_abandon(volume);
		return err;
	}
	volume->own_device = own;
	*volumep = volume;
	return 0;
}

/* What is wrong with them, or NULL. */
static const char *options_wrong(const struct tux3_options *opts)
{
	if (opts->no_recovery && !opts->read_only)
		return "no_recovery needs read_only: changes on top of a log that was not replayed would destroy data";
	if (opts->fsync > 3)
		return "fsync is 0 to 3";
	if (opts->atime > 3)
		return "atime is 0 to 3";
	return NULL;
}

int tux3_open(const char *path, const struct tux3_options *opts, struct tux3 **volumep, char *why,
	      size_t why_size)
{
	static const struct tux3_options defaults;
	struct volume_options core = {};
	char reason[384] = "";
	unsigned int flags = 0;
	struct tux3_device *dev;
	const char *wrong;
	int err;

	why_size = why ? why_size : 0;
	if (!path || !volumep) {
		fail(why, why_size, "the name of a file or device is missing, or where the volume is to be told");
		return -EINVAL;
	}
	opts = opts ? opts : &defaults;
	wrong = options_wrong(opts);
	if (wrong) {
		fail(why, why_size, "%s: %s", path, wrong);
		return -EINVAL;
	}
	core.read_only = opts->read_only;
	core.no_recovery = opts->no_recovery;
	core.accept_last = opts->accept_last;
	core.cut_log = opts->cut_log;
	core.manual = opts->manual;
	core.age_ms = opts->age_ms;
	core.delta_ms = opts->delta_ms;
	core.dirty_bytes = opts->dirty_bytes;
	core.dirty_limit_bytes = opts->dirty_limit_bytes;
	core.log_blocks = opts->log_blocks;
	core.cache_bytes = opts->cache_bytes;
	core.names_cached = opts->names_cached;
	core.fsync = opts->fsync;
	core.no_quota = opts->no_quota;
	core.costs = opts->costs;
	if (!opts->read_only)
		flags |= DEVICE_OPEN_WRITE;
	if (opts->sync_io)
		flags |= opts->manual ? DEVICE_OPEN_ALONE : DEVICE_OPEN_SYNC_IO;
	err = device_open_file(path, flags, &dev, why, why_size);
	if (err)
		return err;
	if (opts->write_rate)
		err = device_file_set_rate(dev, opts->write_rate);
	if (err)
		fail(reason, sizeof(reason), "the device's speed cannot be limited: %s", strerror(-err));
	else
		err = tux3_open_device(dev, true, &core, opts->data_cache_bytes, volumep, reason, sizeof(reason));
	if (err) {
		fail(why, why_size, "%s: %s", path, reason);
		dev->ops->close(dev);
	} else {
		(*volumep)->atime = opts->atime;
	}
	return err;
}

/* Has something been left out of commits that nobody was told of here? */
static int volume_losses(struct tux3 *volume)
{
	s64 losses = atomic64_read(&volume->losses);

	return likely(!losses) || atomic64_xchg(&volume->losses_told, losses) == losses ? 0 : -EIO;
}

/*
 * Nodes that nothing pins go first; those that deltas still pin go when volume_close has committed
 * these deltas, since `closing` is set.
 */
int tux3_close(struct tux3 *volume)
{
	u64 users;
	int err;

	if (!volume)
		return -EINVAL;
	users = icache_users(volume);
	if (users) {
		volume_warn(volume->vol, "%llu inodes are still in use; the volume stays open",
			    (unsigned long long)users);
		return -EBUSY;
	}
	WRITE_ONCE(volume->closing, true);
	tux3_node_put(volume->root, 1);
	icache_drop_unused(volume);
	err = volume_close(volume->vol);
	if (!err)
		err = volume_losses(volume);
	volume_free(volume);
	return err;
}

void tux3_abandon(struct tux3 *volume)
{
	WRITE_ONCE(volume->closing, true);
	icache_drop_all(volume);
	volume_abandon(volume->vol);
	volume_free(volume);
}

void tux3_change_options(struct tux3 *volume, const struct tux3_options *options)
{
	struct volume_options *core = &volume->vol->opts;

	if (options->age_ms)
		WRITE_ONCE(core->age_ms, options->age_ms);
	if (options->dirty_bytes) {
		volume_set_dirty_bytes(core, options->dirty_bytes, 0);
		pace_update(volume->vol);
	}
	if (options->cache_bytes)
		cache_set_limit(volume->vol, options->cache_bytes);
	if (options->names_cached)
		WRITE_ONCE(core->names_cached, options->names_cached);
	if (options->fsync)
		WRITE_ONCE(core->fsync, options->fsync);
	if (options->data_cache_bytes)
		WRITE_ONCE(volume->clean_limit, options->data_cache_bytes >> volume->shift);
	if (options->atime)
		WRITE_ONCE(volume->atime, options->atime);
}

int tux3_let_mount(struct tux3 *volume)
{
	int size = device_file_soft_block_size(volume->dev);

	if (size)
		device_file_unclaim(volume->dev);
	return size;
}

int tux3_sync(struct tux3 *volume)
{
	int err = volume ? delta_commit(volume->vol) : -EINVAL;

	return err ? err : volume_losses(volume);
}

/* ---- asking ---- */

struct tux3_node *tux3_root(struct tux3 *volume)
{
	tux3_node_ref(volume->root, 1);
	return volume->root;
}

struct volume *tux3_core(struct tux3 *volume)
{
	return volume->vol;
}

struct tux3_inode *tux3_node_core(struct tux3_node *node)
{
	return &node->inode;
}

int tux3_statfs(struct tux3 *volume, struct tux3_statfs *stat)
{
	struct volume *vol;
	u64 total, free, available;

	if (!volume)
		return -EINVAL;
	vol = volume->vol;
	space_stat(vol, &total, &free, &available);
	memset(stat, 0, sizeof(*stat));
	stat->block_size = vol->block_size;
	stat->blocks = total;
	stat->free_blocks = free;
	stat->available_blocks = available;
	stat->inodes = percpu_counter_sum(&vol->inodes);
	stat->free_inodes = available;		/* each takes less than a block of the tree */
	stat->volume_id = vol->id;
	memcpy(stat->uuid, vol->uuid, sizeof(stat->uuid));
	volume_get_label(vol, (u8 *)stat->label);
	return 0;
}

int tux3_set_label(struct tux3 *volume, const char *label)
{
	u8 padded[TUX3_LABEL_MAX] = { 0 };
	size_t len = label ? strlen(label) : 0;

	if (!volume || !label || len > sizeof(padded))
		return -EINVAL;
	memcpy(padded, label, len);
	return volume_set_label(volume->vol, padded);
}

int tux3_counter(struct tux3 *volume, unsigned int i, struct tux3_counter_info *counter)
{
	static const struct {
		const char *name, *unit, *what;
	} names[] = {
#define X(NAME, name, unit, what) { name, unit, what },
		TUX3_COUNTERS(X)
#undef X
	};

	if (!volume)
		return -EINVAL;
	if (i >= TUX3_COUNTER_COUNT)
		return -ENOENT;
	counter->name = names[i].name;
	counter->unit = names[i].unit;
	counter->what = names[i].what;
	counter->value = delta_counter(volume->vol, i);
	return 0;
}

uint64_t tux3_committed(struct tux3 *volume)
{
	return READ_ONCE(volume->vol->delta.committed);
}

const char *tux3_version(void)
{
	return TUX3_VERSION;
}
