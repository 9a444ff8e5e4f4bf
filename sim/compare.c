/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Comparing an open volume with a state of the oracle: names, attributes, contents, xattrs. */
#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core/check/check.h"
#include "core/quota/quota.h"
#include "sim.h"

#define DIFFERENCES_MAX	8	/* told */
#define HOLE_EDGE	8192	/* of a large hole, so much is read at both ends */
#define HOLE_LARGE	(256u << 10)

void note_difference(struct difference *diff, const char *format, ...)
{
	va_list args;

	if (diff->count++ >= DIFFERENCES_MAX)
		return;
	va_start(args, format);
	diff->used += vscnprintf(diff->text + diff->used, sizeof(diff->text) - diff->used, format, args);
	va_end(args);
	diff->used += scnprintf(diff->text + diff->used, sizeof(diff->text) - diff->used, "\n");
}

int note_problem(void *ctx, const struct check_problem *problem)
{
	note_difference(ctx, "  problem %u (%s): %s", problem->code, problem->name, problem->text);
	return 0;
}

void name_expand(const char *name, char *full)
{
	size_t len = strlen(name);

	memcpy(full, name, len + 1);
	if (!len || name[len - 1] != SIM_LONG_NAME)
		return;
	memset(full + len, SIM_LONG_NAME, TUX3_NAME_MAX - len);
	full[TUX3_NAME_MAX] = 0;
}

int node_walk(struct tux3 *volume, const char *path, struct tux3_node **nodep)
{
	struct tux3_node *node = tux3_root(volume), *next;
	char part[SIM_PATH_MAX], full[TUX3_NAME_MAX + 1];
	int err;

	while (*path) {
		const char *end = strchrnul(path, '/');

		snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
		name_expand(part, full);
		err = tux3_lookup(node, NULL, full, &next);
		tux3_node_put(node, 1);
		if (err)
			return err;
		node = next;
		path = *end ? end + 1 : end;
	}
	*nodep = node;
	return 0;
}

/* ---- data ---- */

static int compare_range(struct tux3_node *node, const struct m_extent *ext, u64 from, u64 to, u8 *buffer,
			 struct difference *diff, const char *path)
{
	while (from < to) {
		u64 len = min_t(u64, to - from, SIM_BUFFER), same;
		ssize_t got = tux3_read(node, buffer, len, from);

		if (got != (ssize_t)len) {
			note_difference(diff, "%s: read of %llu bytes at %llu returned %zd", path, len, from, got);
			return got < 0 ? got : -EIO;
		}
		same = ext ? pattern_compare(buffer, ext->seed, from - ext->moved, len) : zero_compare(buffer, len);
		if (same != len) {
			note_difference(diff, "%s: byte %llu is %#x, expected %#x (%s)", path, from + same, buffer[same],
					ext ? pattern_byte(ext->seed, from + same - ext->moved) : 0, ext ? "written" : "a hole");
			return -EIO;
		}
		from += len;
	}
	return 0;
}

static int compare_hole(struct tux3_node *node, u64 from, u64 to, u8 *buffer, struct difference *diff,
			const char *path)
{
	int err;

	if (to - from <= HOLE_LARGE)
		return compare_range(node, NULL, from, to, buffer, diff, path);
	err = compare_range(node, NULL, from, from + HOLE_EDGE, buffer, diff, path);
	if (!err)
		err = compare_range(node, NULL, from + (to - from) / 2, from + (to - from) / 2 + HOLE_EDGE, buffer,
				    diff, path);
	return err ? err : compare_range(node, NULL, to - HOLE_EDGE, to, buffer, diff, path);
}

int compare_data(struct tux3_node *node, const struct m_inode *inode, u64 from, u64 to, u8 *buffer,
		 struct difference *diff, const char *path)
{
	u32 i;
	int err = 0;

	to = min_t(u64, to, inode->size);
	for (i = 0; i < inode->extent_count && from < to && !err; i++) {
		const struct m_extent *ext = &inode->extents[i];
		u64 end = min_t(u64, ext->end, to);

		if (ext->end <= from)
			continue;
		if (ext->start > from) {
			err = compare_hole(node, from, min_t(u64, ext->start, to), buffer, diff, path);
			from = min_t(u64, ext->start, to);
		}
		if (!err && from < end)
			err = compare_range(node, ext, from, end, buffer, diff, path);
		from = max_t(u64, from, end);
	}
	if (!err && from < to)
		err = compare_hole(node, from, to, buffer, diff, path);
	return err;
}

/* ---- attributes ---- */

static u64 time_ns(const struct timespec *time)
{
	return (u64)time->tv_sec * 1000000000ULL + time->tv_nsec;
}

static void compare_number(struct difference *diff, const char *path, const char *what, u64 got, u64 expected)
{
	if (got != expected)
		note_difference(diff, "%s: %s is %llu, expected %llu", path, what, got, expected);
}

static void compare_stat(struct tux3_node *node, const struct m_inode *inode, struct difference *diff,
			 const char *path)
{
	struct tux3_stat stat;
	int err = tux3_stat_node(node, &stat);

	if (err) {
		note_difference(diff, "%s: stat failed: %s", path, strerror(-err));
		return;
	}
	if (inode->ino)
		compare_number(diff, path, "inode number", stat.ino, inode->ino);
	if (stat.mode != inode->mode)
		note_difference(diff, "%s: mode is %#o, expected %#o", path, stat.mode, inode->mode);
	compare_number(diff, path, "uid", stat.uid, inode->uid);
	compare_number(diff, path, "gid", stat.gid, inode->gid);
	compare_number(diff, path, "nlink", stat.nlink, inode->nlink);
	if (!S_ISDIR(inode->mode) && !inode->loose)
		compare_number(diff, path, "size", stat.size, inode->size);
	compare_number(diff, path, "rdev major", stat.rdev_major, inode->rdev_major);
	compare_number(diff, path, "rdev minor", stat.rdev_minor, inode->rdev_minor);
	if (!inode->loose && model_mtime_differs(inode, time_ns(&stat.mtime)))
		compare_number(diff, path, "mtime", time_ns(&stat.mtime), inode->mtime);
	if (!inode->loose && model_ctime_differs(inode, time_ns(&stat.ctime)))
		compare_number(diff, path, "ctime", time_ns(&stat.ctime), inode->ctime);
	compare_number(diff, path, "btime", time_ns(&stat.btime), inode->btime);
}

static void compare_xattrs(struct tux3_node *node, const struct m_inode *inode, u8 *buffer,
			   struct difference *diff, const char *path)
{
	ssize_t got = tux3_listxattr(node, (char *)buffer, SIM_BUFFER);
	u32 count = 0, i;
	ssize_t at;

	if (got < 0) {
		note_difference(diff, "%s: listxattr failed: %s", path, strerror(-got));
		return;
	}
	for (at = 0; at < got; at += strlen((char *)buffer + at) + 1, count++)
		if (!model_xattr(inode, (char *)buffer + at))
			note_difference(diff, "%s: has xattr %s, expected none", path, buffer + at);
	compare_number(diff, path, "number of xattrs", count, inode->xattr_count);
	for (i = 0; i < inode->xattr_count; i++) {
		const struct m_xattr *xattr = &inode->xattrs[i];

		got = tux3_getxattr(node, xattr->name, buffer, SIM_BUFFER);
		if (got != xattr->len)
			note_difference(diff, "%s: xattr %s: length is %zd, expected %u", path, xattr->name, got,
					xattr->len);
		else if (pattern_compare(buffer, xattr->seed, 0, xattr->len) != xattr->len)
			note_difference(diff, "%s: xattr %s has another value", path, xattr->name);
	}
}

static void compare_target(struct tux3_node *node, const struct m_inode *inode, struct difference *diff,
			   const char *path)
{
	char target[256];
	int len = tux3_readlink(node, target, sizeof(target));

	if (len != strlen(inode->target) || memcmp(target, inode->target, len))
		note_difference(diff, "%s: target is %.*s (%d), expected %s", path, len > 0 ? len : 0, target, len,
				inode->target);
}

/* ---- directories ---- */

struct listed {
	char name[TUX3_NAME_MAX + 1];
	u64 ino;
	unsigned char type;
	bool seen;
};

struct listing {
	struct listed *entries;
	u32 count, capacity;
	u32 stop_after;		/* this batch ends after so many */
};

static int listing_add(void *ctx, const struct tux3_dirent *entry)
{
	struct listing *list = ctx;
	struct listed *listed;

	if (!list->stop_after--)
		return 1;
	if (list->count == list->capacity) {
		list->capacity = list->capacity ? 2 * list->capacity : 16;
		list->entries = realloc(list->entries, list->capacity * sizeof(*list->entries));
		if (!list->entries)
			abort();
	}
	listed = &list->entries[list->count++];
	snprintf(listed->name, sizeof(listed->name), "%s", entry->name);
	listed->ino = entry->ino;
	listed->type = entry->type;
	listed->seen = false;
	return 0;
}

static int listed_order(const void *a, const void *b)
{
	return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

/* The list is sorted.  The first with this name that was not asked for before. */
static struct listed *listing_find(struct listing *list, const char *name)
{
	u32 low = 0, high = list->count;

	while (low < high) {
		u32 mid = (low + high) / 2;

		if (strcmp(list->entries[mid].name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < list->count && !strcmp(list->entries[low].name, name); low++)
		if (!list->entries[low].seen)
			return &list->entries[low];
	return NULL;
}

/*
 * Read the directory in pieces, small ones first: what is not in memory is read anew for each.  But names whose
 * hashes collide have one cookie and come again if a piece ends between them.
 */
static int listing_read(struct tux3_node *dir, struct listing *list, u32 entries)
{
	bool pieces = !tux3_core(tux3_node_volume(dir))->opts.name_hash_mask;
	uint64_t cookie = 0;
	u32 rounds;
	int ret;

	for (rounds = 0; rounds < 4 * entries + 16; rounds++) {
		list->stop_after = pieces ? (1 + (rounds * 5 + entries) % 9) << min_t(u32, rounds / 8, 8) : ~0u;
		ret = tux3_readdir(dir, &cookie, listing_add, list);
		if (ret <= 0)
			return ret;
	}
	return -ELOOP;
}

static void compare_dots(struct listing *list, const struct m_state *state, const struct m_inode *dir,
			 struct difference *diff, const char *path)
{
	static const char *const names[] = { ".", ".." };
	u32 i;

	for (i = 0; i < 2; i++) {
		struct listed *listed = listing_find(list, names[i]);
		u64 ino = i ? state->inodes[dir->parent]->ino : dir->ino;

		if (!listed) {
			note_difference(diff, "%s: readdir does not list %s", path, names[i]);
			continue;
		}
		listed->seen = true;
		if (ino)
			compare_number(diff, path, i ? "inode number of .." : "inode number of .", listed->ino, ino);
	}
}

static void compare_names(struct tux3_node *node, const struct m_state *state, const struct m_inode *dir,
			  struct difference *diff, const char *path)
{
	struct listing list = { 0 };
	char full[TUX3_NAME_MAX + 1];
	struct listed *listed;
	u32 i;
	int err = listing_read(node, &list, dir->entry_count);

	if (err) {
		note_difference(diff, "%s: readdir failed: %s", path, strerror(-err));
		goto out;
	}
	if (list.count)
		qsort(list.entries, list.count, sizeof(*list.entries), listed_order);
	compare_dots(&list, state, dir, diff, path);
	for (i = 0; i < dir->entry_count; i++) {
		const struct m_inode *inode = state->inodes[dir->entries[i].id];

		name_expand(dir->entries[i].name, full);
		listed = listing_find(&list, full);
		if (!listed) {
			note_difference(diff, "%s: %s is missing", path, dir->entries[i].name);
			continue;
		}
		listed->seen = true;
		if (inode->ino)
			compare_number(diff, path, dir->entries[i].name, listed->ino, inode->ino);
		if (listed->type != inode->mode >> 12)
			note_difference(diff, "%s: %s has type %u in readdir, expected %u", path, dir->entries[i].name,
					listed->type, inode->mode >> 12);
	}
	for (i = 0; i < list.count; i++)
		if (!list.entries[i].seen)
			note_difference(diff, "%s: has %.40s (inode %llu), expected no such name", path,
					list.entries[i].name, list.entries[i].ino);
out:
	free(list.entries);
}

struct comparison {
	const struct m_state *state;
	struct difference *diff;
	u8 *buffer;
	bool *seen;
};

static void compare_inode(struct comparison *cmp, struct tux3_node *node, u32 id, const char *path)
{
	const struct m_inode *inode = cmp->state->inodes[id];
	char below[2 * SIM_PATH_MAX], full[TUX3_NAME_MAX + 1];
	struct tux3_node *child;
	u32 i;
	int err;

	compare_stat(node, inode, cmp->diff, path);
	if (cmp->seen[id] || cmp->diff->count > DIFFERENCES_MAX)
		return;
	cmp->seen[id] = true;
	if (inode->loose)
		return;
	compare_xattrs(node, inode, cmp->buffer, cmp->diff, path);
	if (S_ISREG(inode->mode))
		compare_data(node, inode, 0, ~0ULL, cmp->buffer, cmp->diff, path);
	if (S_ISLNK(inode->mode))
		compare_target(node, inode, cmp->diff, path);
	if (!S_ISDIR(inode->mode))
		return;
	compare_names(node, cmp->state, inode, cmp->diff, path);
	for (i = 0; i < inode->entry_count; i++) {
		snprintf(below, sizeof(below), "%s/%s", path, inode->entries[i].name);
		name_expand(inode->entries[i].name, full);
		err = tux3_lookup(node, NULL, full, &child);
		if (err == -EIO && cmp->state->inodes[inode->entries[i].id]->loose)
			continue;
		if (err) {
			note_difference(cmp->diff, "%s: lookup failed: %s", below, strerror(-err));
			continue;
		}
		compare_inode(cmp, child, inode->entries[i].id, below);
		tux3_node_put(child, 1);
	}
}

u32 compare_below(struct tux3 *volume, const struct m_state *state, u32 id, const char *path, u8 *buffer,
		  struct difference *diff)
{
	struct comparison cmp = { .state = state, .diff = diff, .buffer = buffer };
	struct tux3_node *node;
	int err = node_walk(volume, path, &node);

	if (err) {
		note_difference(diff, "/%s: lookup failed: %s", path, strerror(-err));
		return diff->count;
	}
	cmp.seen = calloc(state->count, sizeof(*cmp.seen));
	if (!cmp.seen)
		abort();
	compare_inode(&cmp, node, id, path);
	free(cmp.seen);
	tux3_node_put(node, 1);
	return diff->count;
}

static void compare_limits(struct tux3 *volume, const struct m_state *state, struct difference *diff)
{
	struct tux3_quota quota;
	struct tux3_statfs stat;
	u32 type, id;

	if (!quota_kept(&tux3_core(volume)->quota) || tux3_statfs(volume, &stat))
		return;
	for (type = 0; type < SIM_QUOTA_TYPES; type++) {
		for (id = 1; id < SIM_QUOTA_IDS; id++) {
			const struct m_limits *want = &state->limits[type][id];
			int err = tux3_quota_get(volume, type, id, &quota);
			u64 soft = quota.bytes_soft / stat.block_size, hard = quota.bytes_hard / stat.block_size;

			if (err)
				note_difference(diff, "quota of type %u, id %u: %s", type, id, strerror(-err));
			else if (soft != want->soft || hard != want->hard || quota.inodes_hard != want->inodes)
				note_difference(diff, "quota of type %u, id %u: limits %llu, %llu, %llu instead of %llu, %llu, %llu", type, id,
						soft, hard, (u64)quota.inodes_hard, want->soft, want->hard, want->inodes);
		}
	}
}

u32 compare_tree(struct tux3 *volume, const struct m_state *state, u8 *buffer, struct difference *diff)
{
	diff->count = 0;
	diff->used = 0;
	diff->text[0] = 0;
	compare_limits(volume, state, diff);
	return compare_below(volume, state, M_ROOT, "", buffer, diff);
}
