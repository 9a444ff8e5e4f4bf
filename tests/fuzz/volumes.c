/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Making volumes: see volumes.h.
 *
 * Some hundred changes in STAGES stages, each of them committed and some unified.  A change may be refused, for want of space or of
 * what it is to be made of: then there is one less.
 */
#include <fcntl.h>
#include <string.h>

#include "volumes.h"
#include "core/delta/delta.h"

#define DIRS		5u		/* of the root: /d0 ... */
#define FILES		100u		/* "/file 0" ... */
#define WRITE_MAX	(1u << 20)
#define FILL_FILES	4000u
#define FILL_REFUSED	6u		/* then it is full */

u32 below(struct trial *trial, u32 limit)
{
	return limit ? bed_random(&trial->random) % limit : 0;
}

u8 *trial_block(struct trial *trial, u64 block)
{
	return (u8 *)device_memory_bytes(trial->bed.dev) + block * trial->block_size;
}

u8 *trial_copy(struct trial *trial)
{
	u8 *copy = malloc(trial->bytes);

	assert_non_null(copy);
	return memcpy(copy, trial_block(trial, 0), trial->bytes);
}

void trial_say(struct trial *trial, const char *form, ...)
{
	va_list arguments;

	if (!trial->verbose)
		return;
	va_start(arguments, form);
	vprintf(form, arguments);
	va_end(arguments);
}

ssize_t trial_write(struct trial *trial, struct tux3_node *node, u32 bytes, u64 offset)
{
	static u8 data[WRITE_MAX];

	memset(data, 1 + below(trial, 255), bytes);
	return tux3_write(node, data, bytes, offset);
}

/* ---- changes ---- */

static struct tux3_node *make_file(struct trial *trial, const char *path)
{
	struct tux3_node *node;

	return tux3_path(trial->bed.volume, NULL, path, TUX3_CREATE, 0644, &node) ? NULL : node;
}

/* "/KIND NUMBER", made if need be; NULL: it cannot be. */
static struct tux3_node *numbered_file(struct trial *trial, const char *kind, u32 limit)
{
	char path[40];

	snprintf(path, sizeof(path), "/%s %u", kind, below(trial, limit));
	return make_file(trial, path);
}

static void add_directories(struct trial *trial)
{
	char path[60];
	u32 i;

	snprintf(path, sizeof(path), "/d%u/e%u/f%u/g%u", below(trial, DIRS), below(trial, 3), below(trial, 3), below(trial, 3));
	for (i = 1; path[i]; i++) {
		if (path[i] != '/')
			continue;
		path[i] = 0;
		tux3_path_mkdir(trial->bed.volume, NULL, path, 0755);
		path[i] = '/';
	}
	tux3_path_mkdir(trial->bed.volume, NULL, path, 0700);
}

static void add_links(struct trial *trial)
{
	struct tux3_node *node = numbered_file(trial, "file", 20), *dir;
	u32 count = 1 + below(trial, 40);
	char name[40];

	if (!node)
		return;
	snprintf(name, sizeof(name), "/d%u", below(trial, DIRS));
	dir = bed_find(&trial->bed, name);
	while (dir && count--) {
		snprintf(name, sizeof(name), "link %u", below(trial, 10000));
		tux3_link(node, NULL, dir, name);
	}
	if (dir)
		tux3_node_put(dir, 1);
	tux3_node_put(node, 1);
}

static void add_symlink(struct trial *trial)
{
	char name[40], target[300];
	u32 len = 1 + below(trial, 290);

	snprintf(name, sizeof(name), "sym %u", below(trial, 100));
	memset(target, 'x', len);
	target[len] = 0;
	tux3_symlink(trial->bed.root, NULL, name, target, NULL);
}

static void set_xattrs(struct trial *trial)
{
	static const u32 sizes[] = { 0, 10, 200, 300, 5000, 30000 };
	struct tux3_node *node = numbered_file(trial, "file", 30);
	static u8 value[30000];
	u32 count = 1 + below(trial, 6);
	char name[40];

	if (!node)
		return;
	while (count--) {
		snprintf(name, sizeof(name), "user.a%u", below(trial, 30));
		memset(value, below(trial, 256), sizeof(value));
		tux3_setxattr(node, NULL, name, value, sizes[below(trial, ARRAY_SIZE(sizes))], 0);
	}
	tux3_node_put(node, 1);
}

static void write_sparse(struct trial *trial)
{
	struct tux3_node *node = numbered_file(trial, "sparse", 6);
	u32 count = below(trial, 60);

	if (!node)
		return;
	while (count--) {
		u64 block = one_in(trial, 10) ? below(trial, 1u << 31) : below(trial, 1000);

		trial_write(trial, node, 1 + below(trial, trial->block_size), block * trial->block_size);
	}
	tux3_node_put(node, 1);
}

static void preallocate(struct trial *trial)
{
	struct tux3_node *node = numbered_file(trial, "prealloc", 6);
	u64 at = below(trial, 40), blocks = 1 + below(trial, 30);

	if (!node)
		return;
	tux3_fallocate(node, one_in(trial, 2) ? FALLOC_FL_KEEP_SIZE : 0, at * trial->block_size, blocks * trial->block_size);
	if (one_in(trial, 2))
		trial_write(trial, node, 1 + below(trial, 3 * trial->block_size), (u64)below(trial, 30) * trial->block_size);
	tux3_node_put(node, 1);
}

static void remove_file(struct trial *trial)
{
	char path[40];

	snprintf(path, sizeof(path), "/file %u", below(trial, 60));
	tux3_path_unlink(trial->bed.volume, NULL, path);
}

static void move_directory(struct trial *trial)
{
	char from[40], to[40];

	snprintf(from, sizeof(from), "/d%u/e%u", below(trial, DIRS), below(trial, 3));
	snprintf(to, sizeof(to), "/d%u/e%u", below(trial, DIRS), below(trial, 5));
	tux3_path_rename(trial->bed.volume, NULL, from, to, one_in(trial, 2) ? TUX3_RENAME_EXCHANGE : 0);
}

static void open_unnamed(struct trial *trial)
{
	struct tux3_node *node;

	if (trial->unnamed_count == UNNAMED_MAX || tux3_tmpfile(trial->bed.root, NULL, 0600, &node))
		return;
	trial_write(trial, node, 1 + below(trial, 5 * trial->block_size), 0);
	trial->unnamed[trial->unnamed_count++] = node;
}

static void change_owner(struct trial *trial)
{
	struct tux3_stat stat = { .uid = below(trial, 5), .gid = below(trial, 4), .projid = below(trial, 3) };
	struct tux3_node *node = numbered_file(trial, "file", 30);

	if (!node)
		return;
	tux3_setattr(node, NULL, &stat, TUX3_SET_UID | TUX3_SET_GID | TUX3_SET_PROJID);
	tux3_node_put(node, 1);
}

static void write_file(struct trial *trial)
{
	static const u32 sizes[] = { 0, 1, 50, 400, 900, 4096, 5000, 20000, 70000, 200000 };
	struct tux3_node *node;
	char path[80];

	snprintf(path, sizeof(path), "/d%u/a name of some length, so that leaves fill %u", below(trial, DIRS), below(trial, 400));
	if (below(trial, 3))
		snprintf(path, sizeof(path), "/file %u", below(trial, FILES));
	node = make_file(trial, path);
	if (!node)
		return;
	trial_write(trial, node, sizes[below(trial, ARRAY_SIZE(sizes))], one_in(trial, 4) ? below(trial, 10000) : 0);
	if (one_in(trial, 6))
		tux3_fsync(node, false);
	tux3_node_put(node, 1);
}

static void change_some(struct trial *trial, u32 count)
{
	static void (*const changes[])(struct trial *trial) = {
		add_directories, add_links, add_symlink, set_xattrs, write_sparse, preallocate, remove_file, move_directory,
		open_unnamed, change_owner, write_file, write_file, write_file, write_file,
	};

	while (count--)
		changes[below(trial, ARRAY_SIZE(changes))](trial);
}

/* Until nothing more fits; then some of it is written over. */
static void fill_up(struct trial *trial)
{
	struct tux3_node *node;
	u32 i, refused = 0;
	char path[40];

	for (i = 0; refused < FILL_REFUSED && i < FILL_FILES; i++) {
		snprintf(path, sizeof(path), "/fill %u", i);
		node = make_file(trial, path);
		if (!node) {
			refused++;
			tux3_sync(trial->bed.volume);
			continue;
		}
		if (trial_write(trial, node, refused ? trial->block_size : i < 300 ? 300000 : 9000, 0) <= 0)
			refused++;
		tux3_node_put(node, 1);
	}
	for (i = 0; i < 60; i++) {
		snprintf(path, sizeof(path), "/fill %u", below(trial, 400));
		node = bed_find(&trial->bed, path);
		if (!node)
			continue;
		trial_write(trial, node, 1 + below(trial, 3 * trial->block_size), (u64)below(trial, 3) * trial->block_size);
		tux3_node_put(node, 1);
	}
}

/* ---- the whole ---- */

static void leave(struct trial *trial, bool log)
{
	u32 i;

	if (log) {
		change_some(trial, below(trial, 60));
		if (one_in(trial, 2))
			tux3_sync(trial->bed.volume);
		tux3_abandon(trial->bed.volume);
		trial->bed.volume = NULL;
		return;
	}
	for (i = 0; i < trial->unnamed_count; i++)
		tux3_node_put(trial->unnamed[i], 1);
	bed_close(&trial->bed);
}

void volumes_make(struct trial *trial)
{
	static const u32 shifts[] = { 12, 12, 12, 13, 14, 16 };
	struct bed *bed = &trial->bed;
	bool full, log;
	u32 i;

	trial->block_size = 1u << shifts[below(trial, ARRAY_SIZE(shifts))];
	trial->bytes = max_t(u64, 512ull * trial->block_size, 4u << 20) + (u64)below(trial, 2) * (8u << 20);
	if (one_in(trial, 2))
		trial->bytes += (u64)below(trial, 64) * 65536;
	trial->blocks = trial->bytes / trial->block_size;
	bed->quota = one_in(trial, 2);
	bed->no_data_csum = one_in(trial, 4);
	bed->opts = (struct volume_options){ .manual = true, .fsync = one_in(trial, 2) ? TUX3_FSYNC_AHEAD : 0 };
	bed->data_cache_bytes = 8u << 20;
	full = one_in(trial, 4);
	log = one_in(trial, 2);
	trial_say(trial, "%llu blocks of %u bytes%s%s%s%s\n", (unsigned long long)trial->blocks, trial->block_size,
		  bed->quota ? ", quotas" : "", bed->no_data_csum ? ", no checksums of data" : "", full ? ", full" : "",
		  log ? ", with a log" : "");
	bed_make(bed, trial->bytes, trial->block_size);
	for (i = 0; i < STAGES; i++) {
		change_some(trial, below(trial, i ? 120 : 400));
		if (full && i == STAGES - 1)
			fill_up(trial);
		tux3_sync(bed->volume);
		if (one_in(trial, 2))
			delta_commit_unify(tux3_core(bed->volume));
		trial->stage[i] = trial_copy(trial);
	}
	leave(trial, log);
}
