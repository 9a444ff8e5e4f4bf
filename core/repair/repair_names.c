/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Repair: names and inodes that do not agree.
 *
 * Each name is written down twice: in its directory, and in the inode that it leads to.  Whichever is left brings
 * back the other.  A
 * directory of which nothing is left but a name that leads to it, or parent pointers of what was in it, is made anew.  What has no
 * name at all gets one in lost+found.
 */
#include "core/format/name_hash.h"
#include "core/tree/tree.h"
#include "core/show/show.h"
#include "core/check/check_internal.h"
#include "core/repair/repair_internal.h"
#include "core/repair/repair_lost.h"

#define NAME_TEXT 300u
#define TRIES_MAX 64u		/* of inode numbers: nearly all are free */

/* ---- directory entries ---- */

static u64 dirent_hash(struct repair *repair, u64 dir, const u8 *name, u32 len)
{
	return name_hash(repair->vol, dir, TUX3_ITEM_DIRENT, (const char *)name, len);
}

/* The entry of this name, in repair->chain; bytes of all in *total. */
static struct disk_dirent *dirent_find(struct repair *repair, u64 dir, const u8 *name, u32 len, u32 *total)
{
	int bytes = repair_get(repair, dir, TUX3_ITEM_DIRENT, dirent_hash(repair, dir, name, len), repair->chain);
	struct check_chain chain = { .data = repair->chain, .len = max(bytes, 0) };
	const struct disk_dirent *entry;

	*total = max(bytes, 0);
	while (bytes > 0 && (entry = check_next_dirent(&chain)))
		if (entry->len == len && !memcmp(entry->name, name, len))
			return (struct disk_dirent *)entry;
	return NULL;
}

static int dirent_add(struct repair *repair, u64 dir, const u8 *name, u32 len, u64 ino, u32 mode)
{
	struct disk_dirent entry = { .ino = cpu_to_le64(ino), .type = (mode & S_IFMT) >> 12, .len = len };
	u32 total;

	if (dirent_find(repair, dir, name, len, &total))
		return -EEXIST;
	if (total + sizeof(entry) + len > TUX3_ITEM_MAX(repair->vol->block_size))
		return -ENOSPC;
	memcpy(repair->chain + total, &entry, sizeof(entry));
	memcpy(repair->chain + total + sizeof(entry), name, len);
	return repair_set(repair, dir, TUX3_ITEM_DIRENT, dirent_hash(repair, dir, name, len), repair->chain,
			  total + sizeof(entry) + len);
}

/* What is left of a chain without this entry. */
static int chain_drop(struct repair *repair, u64 ino, u8 type, u64 hash, u8 *entry, u32 size, u32 total)
{
	u32 at = entry - repair->chain;

	memmove(entry, entry + size, total - at - size);
	total -= size;
	return total ? repair_set(repair, ino, type, hash, repair->chain, total) : repair_delete(repair, ino, type, hash);
}

/* If it leads there. */
static int dirent_remove(struct repair *repair, u64 dir, const u8 *name, u32 len, u64 ino)
{
	u32 total;
	struct disk_dirent *entry = dirent_find(repair, dir, name, len, &total);

	if (!entry || get_unaligned_le64(&entry->ino) != ino)
		return 0;
	return chain_drop(repair, dir, TUX3_ITEM_DIRENT, dirent_hash(repair, dir, name, len), (u8 *)entry,
			  sizeof(*entry) + len, total);
}

static bool dirent_leads(struct repair *repair, u64 dir, const u8 *name, u32 len, u64 ino)
{
	u32 total;
	const struct disk_dirent *entry = dirent_find(repair, dir, name, len, &total);

	return entry && get_unaligned_le64(&entry->ino) == ino;
}

/* ---- parent pointers ---- */

static u64 parent_hash(struct repair *repair, u64 dir, const u8 *name, u32 len)
{
	return name_hash(repair->vol, dir, TUX3_ITEM_PARENT, (const char *)name, len);
}

static struct disk_parent *pointer_find(struct repair *repair, u64 ino, u64 dir, const u8 *name, u32 len, u32 *total)
{
	int bytes = repair_get(repair, ino, TUX3_ITEM_PARENT, parent_hash(repair, dir, name, len), repair->chain);
	struct check_chain chain = { .data = repair->chain, .len = max(bytes, 0) };
	const struct disk_parent *entry;

	*total = max(bytes, 0);
	while (bytes > 0 && (entry = check_next_parent(&chain)))
		if (get_unaligned_le64(&entry->dir) == dir && entry->len == len && !memcmp(entry->name, name, len))
			return (struct disk_parent *)entry;
	return NULL;
}

static int pointer_add(struct repair *repair, u64 ino, u64 dir, const u8 *name, u32 len)
{
	struct disk_parent entry = { .dir = cpu_to_le64(dir), .len = len };
	u32 total;

	if (pointer_find(repair, ino, dir, name, len, &total))
		return 0;
	if (total + sizeof(entry) + len > TUX3_ITEM_MAX(repair->vol->block_size))
		return -ENOSPC;
	memcpy(repair->chain + total, &entry, sizeof(entry));
	memcpy(repair->chain + total + sizeof(entry), name, len);
	return repair_set(repair, ino, TUX3_ITEM_PARENT, parent_hash(repair, dir, name, len), repair->chain,
			  total + sizeof(entry) + len);
}

static int pointer_remove(struct repair *repair, u64 ino, u64 dir, const u8 *name, u32 len)
{
	u32 total;
	struct disk_parent *entry = pointer_find(repair, ino, dir, name, len, &total);

	if (!entry)
		return 0;
	return chain_drop(repair, ino, TUX3_ITEM_PARENT, parent_hash(repair, dir, name, len), (u8 *)entry,
			  sizeof(*entry) + len, total);
}

/* All parent pointers of an inode, as a list of disk_parent in memory. */
struct parents_list {
	u8 *data;
	u32 len, room, count;
	bool no_memory;
};

static int parents_collect(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct check_chain chain = { .data = data, .len = len };
	const struct disk_parent *entry;
	struct parents_list *list = ctx;

	while ((entry = check_next_parent(&chain))) {
		u32 size = sizeof(*entry) + entry->len;

		if (list->len + size > list->room)
			return 1;
		memcpy(list->data + list->len, entry, size);
		list->len += size;
		list->count++;
	}
	return 0;
}

static int parents_get(struct repair *repair, u64 ino, struct parents_list *list)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_PARENT, 0), to = tree_key(ino, TUX3_ITEM_PARENT, U64_MAX);
	int err = 1;

	memset(list, 0, sizeof(*list));
	for (list->room = 4096; err > 0; list->room *= 4) {
		kvfree(list->data);
		list->len = list->count = 0;
		list->data = kvmalloc(list->room, GFP_KERNEL);
		if (!list->data)
			return -ENOMEM;
		err = tree_scan(repair->vol, &from, &to, parents_collect, list);
	}
	return err;
}

static const struct disk_parent *parents_next(const struct parents_list *list, u32 *at)
{
	const struct disk_parent *entry = (const void *)(list->data + *at);

	if (*at >= list->len)
		return NULL;
	*at += sizeof(*entry) + entry->len;
	return entry;
}

/*
 * Look at each parent pointer of an inode for which there is a name: *names of them.  Beyond keep the names and their pointers
 * go.
 */
static int names_limit(struct repair *repair, u64 ino, u32 keep, u32 *names)
{
	const struct disk_parent *entry;
	struct parents_list list;
	int err = parents_get(repair, ino, &list);
	char text[NAME_TEXT];
	u32 at = 0;

	*names = 0;
	while (!err && (entry = parents_next(&list, &at))) {
		u64 dir = get_unaligned_le64(&entry->dir);

		if (!dirent_leads(repair, dir, entry->name, entry->len, ino))
			continue;
		if (++*names <= keep)
			continue;
		check_name_text(text, sizeof(text), entry->name, entry->len);
		repair_note(repair, REPAIR_LOST, ino, "The name %s in directory %llu, one too many for directory %llu", text,
			    (unsigned long long)dir, (unsigned long long)ino);
		err = dirent_remove(repair, dir, entry->name, entry->len, ino);
		if (!err)
			err = pointer_remove(repair, ino, dir, entry->name, entry->len);
	}
	kvfree(list.data);
	return err;
}

/*
 * As names_limit(), of a directory; but of one with many names and pointers, each of which is a problem, only one has to be
 * found, and that stays while they are gone through.
 */
static int directory_named(struct repair *repair, u64 ino, u32 keep, u32 *names)
{
	int err = 0;

	*names = 1;
	if (repair->named == ino)
		return 0;
	err = names_limit(repair, ino, keep, names);
	if (!err && *names)
		repair->named = ino;
	return err;
}

/* ---- lost+found ---- */

/* The last inode with items up to this number; it is below all that there are if there is none. */
static int last_inode(struct repair *repair, u64 upto, u64 *ino)
{
	struct tree_key from = tree_key(TUX3_INO_FIRST, 0, 0), at = tree_key(upto, 0xff, U64_MAX), found;
	int len = tree_lookup_before(repair->vol, &at, &from, &found, repair->chain, TUX3_ITEM_MAX(repair->vol->block_size));

	*ino = len >= 0 ? found.ino : TUX3_INO_FIRST - 1;
	return len < 0 && len != -ENOENT ? len : 0;
}

/* A number that nobody has: behind all others; or at random, if somebody has the last one. */
static int free_inode(struct repair *repair, u64 *ino)
{
	u64 upto = TUX3_INO_MAX, last;
	u32 tries;
	int err;

	for (tries = 0; tries < TRIES_MAX; tries++) {
		err = last_inode(repair, upto, &last);
		if (err)
			return err;
		*ino = last + 1;
		if (last < upto)
			return 0;
		upto = TUX3_INO_FIRST + get_random_u64() % (TUX3_INO_MAX - TUX3_INO_FIRST);
	}
	return -ENOSPC;
}

static int make_lost_found(struct repair *repair, const u8 *name, u32 len)
{
	struct disk_attr attr;
	u64 ino;
	int err = free_inode(repair, &ino);

	if (err)
		return err;
	repair_default_attr(repair, S_IFDIR, &attr);
	err = repair_set_attr(repair, ino, &attr);
	if (!err)
		err = dirent_add(repair, TUX3_INO_ROOT, name, len, ino, S_IFDIR);
	if (!err)
		err = pointer_add(repair, ino, TUX3_INO_ROOT, name, len);
	repair->lost_found = ino;
	return err;
}

/* The directory of that name in the root; if that is something else, one with a number behind it. */
static int need_lost_found(struct repair *repair)
{
	struct disk_attr attr;
	char name[32] = "lost+found";
	u32 total, n;

	if (repair->lost_found)
		return 0;
	if (repair_get_attr(repair, TUX3_INO_ROOT, &attr))
		return -EAGAIN;		/* the root directory is made anew in this round */
	for (n = 2; ; n++) {
		const struct disk_dirent *entry = dirent_find(repair, TUX3_INO_ROOT, (u8 *)name, strlen(name), &total);

		if (!entry)
			return make_lost_found(repair, (u8 *)name, strlen(name));
		repair->lost_found = get_unaligned_le64(&entry->ino);
		if (entry->type == S_IFDIR >> 12 && !repair_get_attr(repair, repair->lost_found, &attr) &&
		    S_ISDIR(le32_to_cpu(attr.mode)))
			return 0;
		repair->lost_found = 0;
		scnprintf(name, sizeof(name), "lost+found.%u", n);
	}
}

/* A directory that has a name is not one that was removed, whatever it says. */
static int directory_links(struct repair *repair, u64 ino, struct disk_attr *attr)
{
	int err = 0;

	if (!attr->nlink) {
		repair_note(repair, REPAIR_MENDED, ino, "Directory %llu has a name, but had a link count of 0", (unsigned long long)ino);
		attr->nlink = cpu_to_le32(2);
		err = repair_set_attr(repair, ino, attr);
	}
	return err ? err : repair_inode(repair, ino);
}

int repair_connect(struct repair *repair, u64 ino)
{
	struct disk_attr attr;
	u32 names, total, n;
	char name[40];
	int err;

	if (ino == TUX3_INO_ROOT)
		return repair_inode(repair, ino);
	if (repair_get_attr(repair, ino, &attr))
		return 0;
	err = names_limit(repair, ino, U32_MAX, &names);
	if (err)
		return err;
	if (!names) {
		if (ino == repair->lost_found)		/* it was inside of itself: there is to be another one */
			repair->lost_found = 0;
		err = need_lost_found(repair);
		if (err)
			return err == -EAGAIN ? 0 : err;
		scnprintf(name, sizeof(name), "#%llu", (unsigned long long)ino);
		for (n = 2; dirent_find(repair, repair->lost_found, (u8 *)name, strlen(name), &total); n++)
			scnprintf(name, sizeof(name), "#%llu.%u", (unsigned long long)ino, n);
		err = dirent_add(repair, repair->lost_found, (u8 *)name, strlen(name), ino, le32_to_cpu(attr.mode));
		if (!err)
			err = pointer_add(repair, ino, repair->lost_found, (u8 *)name, strlen(name));
		if (err)
			return err;
		names = 1;
		repair_note(repair, REPAIR_FOUND, ino, "Inode %llu had no name: it is lost+found/%s now",
			    (unsigned long long)ino, name);
	}
	if (S_ISDIR(le32_to_cpu(attr.mode)))
		return directory_links(repair, ino, &attr);
	attr.nlink = cpu_to_le32(names);
	return repair_set_attr(repair, ino, &attr);
}

/* ---- problems ---- */

/* Is it there, and what is it?  0 or -ENOENT. */
static int kind_of(struct repair *repair, u64 ino, u32 *mode)
{
	struct disk_attr attr;
	int err = repair_get_attr(repair, ino, &attr);

	*mode = err ? 0 : le32_to_cpu(attr.mode);
	return err;
}

static bool is_deleted(struct repair *repair, u64 ino)
{
	struct disk_attr attr;

	return !repair_get_attr(repair, ino, &attr) && !attr.nlink &&
	       repair_get(repair, TUX3_INO_VOLUME, TUX3_ITEM_ORPHAN, ino, repair->item) >= 0;
}

static bool may_be_made(u64 ino)
{
	return ino >= TUX3_INO_FIRST && ino <= TUX3_INO_MAX;
}

static int make_directory(struct repair *repair, u64 ino)
{
	struct disk_attr attr;

	repair_default_attr(repair, S_IFDIR, &attr);
	repair_note(repair, REPAIR_LOST, ino, "The attributes of directory %llu: owner, permissions%s and times; it has new ones",
		    (unsigned long long)ino, repair_xattrs_lost(repair, ino) ? ", extended attributes if it had any," : "");
	return repair_set_attr(repair, ino, &attr);
}

static int mend_dangling_name(struct repair *repair, u64 dir, u64 ino, const u8 *name, u32 len, const char *text)
{
	u32 total, mode;
	const struct disk_dirent *entry = dirent_find(repair, dir, name, len, &total);
	u8 type = entry ? entry->type : 0;
	int err;

	if (!entry || !kind_of(repair, ino, &mode))
		return 0;
	if (type == S_IFDIR >> 12 && may_be_made(ino)) {
		err = make_directory(repair, ino);
		return err ? err : pointer_add(repair, ino, dir, name, len);
	}
	repair_note(repair, REPAIR_LOST, dir,
		    "The name %s in directory %llu: of inode %llu, to which it led, nothing is left", text,
		    (unsigned long long)dir, (unsigned long long)ino);
	return dirent_remove(repair, dir, name, len, ino);
}

static int mend_name_type(struct repair *repair, u64 dir, u64 ino, const u8 *name, u32 len, const char *text)
{
	u32 total, mode;
	struct disk_dirent *entry;
	int err = kind_of(repair, ino, &mode);

	if (err)
		return 0;
	entry = dirent_find(repair, dir, name, len, &total);
	if (!entry || get_unaligned_le64(&entry->ino) != ino || entry->type == (mode & S_IFMT) >> 12)
		return 0;
	err = repair_take_kind(repair, ino, (u32)entry->type << 12);
	if (err)
		return min(err, 0);
	entry = dirent_find(repair, dir, name, len, &total);	/* again: it is in repair->chain */
	entry->type = (mode & S_IFMT) >> 12;
	repair_note(repair, REPAIR_MENDED, dir, "The name %s in directory %llu says of what type inode %llu is", text,
		    (unsigned long long)dir,
		    (unsigned long long)ino);
	return repair_set(repair, dir, TUX3_ITEM_DIRENT, dirent_hash(repair, dir, name, len), repair->chain, total);
}

static int mend_missing_parent(struct repair *repair, u64 ino, u64 dir, const u8 *name, u32 len, const char *text)
{
	u32 mode, names = 0;
	int err = kind_of(repair, ino, &mode);

	if (err || !dirent_leads(repair, dir, name, len, ino))
		return 0;
	if (S_ISDIR(mode) && ino != TUX3_INO_ROOT)
		err = directory_named(repair, ino, 1, &names);
	if (err)
		return err;
	if (ino == TUX3_INO_ROOT || names) {
		repair_note(repair, REPAIR_LOST, dir,
			    "The name %s in directory %llu: it led to directory %llu, which is elsewhere", text,
			    (unsigned long long)dir, (unsigned long long)ino);
		return dirent_remove(repair, dir, name, len, ino);
	}
	repair_note(repair, REPAIR_MENDED, ino, "Inode %llu has a parent pointer for its name %s in directory %llu",
		    (unsigned long long)ino,
		    text, (unsigned long long)dir);
	if (S_ISDIR(mode))
		repair->named = ino;
	return pointer_add(repair, ino, dir, name, len);
}

/* A name that the log has deleted: where the tree had lost it before, an inode that says it has it is of an earlier state. */
struct gone_name {
	u64 dir, hash;
};

static int gone_order(const void *a, const void *b)
{
	const struct gone_name *x = a, *y = b;

	if (x->dir != y->dir)
		return x->dir < y->dir ? -1 : 1;
	return x->hash < y->hash ? -1 : x->hash > y->hash;
}

int repair_name_gone(struct volume_mend *mend, u64 dir, u64 hash)
{
	struct repair *repair = container_of(mend, struct repair, mend);
	struct gone_name *gone = repair_add(&repair->gone_names, sizeof(*gone));

	if (!gone)
		return -ENOMEM;
	*gone = (struct gone_name){ dir, hash };
	return 0;
}

static bool is_gone(struct repair *repair, u64 dir, const u8 *name, u32 len)
{
	struct gone_name wanted = { dir, name_hash(repair->vol, dir, TUX3_ITEM_DIRENT, (const char *)name, len) };
	const struct gone_name *gone = repair->gone_names.entries;
	u64 low = 0, high = repair->gone_names.count;

	if (high && !repair->gone_sorted)
		sort(repair->gone_names.entries, high, sizeof(*gone), gone_order, NULL);
	repair->gone_sorted = true;
	while (low < high) {
		u64 middle = low + (high - low) / 2;
		int order = gone_order(&gone[middle], &wanted);

		if (!order)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static int mend_dangling_parent(struct repair *repair, u64 ino, u64 dir, const u8 *name, u32 len, const char *text)
{
	u32 mode, dir_mode, total, names = 0;
	int err = kind_of(repair, ino, &mode);
	bool drop, make;

	if (err || !pointer_find(repair, ino, dir, name, len, &total) || dirent_leads(repair, dir, name, len, ino))
		return 0;
	make = kind_of(repair, dir, &dir_mode);
	drop = ino == TUX3_INO_ROOT || !check_name_valid(name, len) || is_deleted(repair, ino) || is_gone(repair, dir, name, len) ||
		dirent_find(repair, dir, name, len, &total) || (make ? !may_be_made(dir) || dir == ino : !S_ISDIR(dir_mode));
	if (!drop && S_ISDIR(mode))
		err = directory_named(repair, ino, U32_MAX, &names);
	drop |= names;
	if (!err && !drop && make)
		err = make_directory(repair, dir);
	if (err)
		return err;
	if (!drop && repair_kind_unknown(repair, ino)) {
		repair_note(repair, REPAIR_LOST, ino,
			    "The name %s in directory %llu: inode %llu was a symlink or a small file there, and nobody knows which",
			    text, (unsigned long long)dir, (unsigned long long)ino);
		return pointer_remove(repair, ino, dir, name, len);
	}
	if (drop) {
		repair_note(repair, REPAIR_MENDED, ino,
			    "Inode %llu has no parent pointer for the name %s in directory %llu, which is not its own",
			    (unsigned long long)ino, text, (unsigned long long)dir);
		return pointer_remove(repair, ino, dir, name, len);
	}
	repair_note(repair, REPAIR_FOUND, ino,
		    "The name %s in directory %llu came back from the parent pointer of inode %llu", text,
		    (unsigned long long)dir, (unsigned long long)ino);
	if (S_ISDIR(mode))
		repair->named = ino;
	return dirent_add(repair, dir, name, len, ino, mode);
}

static int mend_links(struct repair *repair, u64 ino)
{
	struct disk_attr attr;
	u32 names;
	int err = repair_get_attr(repair, ino, &attr);

	if (err)
		return 0;
	if (S_ISDIR(le32_to_cpu(attr.mode)) && attr.nlink)
		return repair_inode(repair, ino);
	err = names_limit(repair, ino, U32_MAX, &names);
	if (!err && names && S_ISDIR(le32_to_cpu(attr.mode)))
		return directory_links(repair, ino, &attr);
	if (err || !names || names == le32_to_cpu(attr.nlink))
		return err;
	repair_note(repair, REPAIR_MENDED, ino, "The link count of inode %llu is %u, not %u", (unsigned long long)ino, names,
		    le32_to_cpu(attr.nlink));
	attr.nlink = cpu_to_le32(names);
	return repair_set_attr(repair, ino, &attr);
}

int repair_name_problem(struct repair *repair, const struct repair_problem *problem)
{
	const u8 *name = problem->name_len ? (const u8 *)repair->names.entries + problem->name : (const u8 *)"";
	const u64 *arg = problem->args;
	char text[NAME_TEXT];
	u32 names;
	int err;

	check_name_text(text, sizeof(text), name, problem->name_len);
	switch (problem->code) {
	case CHECK_DIRENT_DANGLING:
		return mend_dangling_name(repair, arg[0], arg[1], name, problem->name_len, text);
	case CHECK_DIRENT_TYPE:
		return mend_name_type(repair, arg[0], arg[1], name, problem->name_len, text);
	case CHECK_PARENT_MISSING:
		return mend_missing_parent(repair, arg[0], arg[1], name, problem->name_len, text);
	case CHECK_PARENT_DANGLING:
		return mend_dangling_parent(repair, arg[0], arg[1], name, problem->name_len, text);
	case CHECK_DIR_NAMES:
		return names_limit(repair, arg[0], 1, &names);
	case CHECK_ROOT_NAMED:		/* of each name; if it has no pointer back, that is told with the name */
		if (repair->root_unnamed)
			return 0;
		repair->root_unnamed = true;
		return names_limit(repair, arg[0], 0, &names);
	case CHECK_DIR_LOOP:
		err = names_limit(repair, arg[0], 0, &names);
		return err ? err : repair_connect(repair, arg[0]);
	case CHECK_INODE_NAMELESS:
		return repair_connect(repair, arg[0]);
	case CHECK_NLINK:
		return mend_links(repair, arg[0]);
	}
	return 0;
}
