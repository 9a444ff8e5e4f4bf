/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker: do names and inodes agree?
 *
 * Each name leads to an inode, and each inode has a parent pointer for each of its names.  The walk
 * over the tree leaves a small record of each name, and sums up a mix of each parent pointer; here
 * the names are summed up too.  Only where the sums differ is the tree walked again, for a comparison name by name.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"
#include "core/check/check_internal.h"

#define NAME_TEXT 80u

u64 check_name_mix(u64 dir, u64 hash, const void *name, u32 len)
{
	u64 mix = hash ^ dir * 0x9e3779b97f4a7c15ULL ^ (u64)crc32c(~0, name, len) << 31;

	mix = (mix ^ mix >> 32) * 0xd6e8feb86659fd93ULL;
	return mix ^ mix >> 29;
}

/* Names and the inodes they lead to are mostly in the same order. */
static struct check_inode *inode_find_near(struct check *check, u64 ino, u64 *near)
{
	struct check_inode *inode;
	u64 i;

	for (i = *near; i < *near + 4 && i < check->inodes.count; i++) {
		if (check_inode_at(check, i)->ino == ino) {
			*near = i;
			return check_inode_at(check, i);
		}
	}
	inode = check_inode_find(check, ino);
	if (inode)
		*near = inode - check_inode_at(check, 0);
	return inode;
}

/* ---- link counts ---- */

static void link_count(struct check *check, const struct check_link *link, u64 *near)
{
	struct check_inode *inode = inode_find_near(check, link->ino_type >> 8, near);

	if (!inode) {
		check->names_differ = true;
		return;
	}
	if (inode->ino == TUX3_INO_ROOT)
		check_problem(check, ROOT_NAMED, inode->ino, 0, NULL, inode->ino);
	inode->names++;
	inode->sum += link->mix;
	if (inode->flags & INODE_HAS_ATTR && (link->ino_type & 0xff) != inode->mode >> 12)
		check->names_differ = true;
	if (inode->up == CHECK_NONE)
		inode->up = link->dir;
}

static void inode_check_links(struct check *check, struct check_inode *inode)
{
	u64 ino = inode->ino;

	if (!(inode->flags & INODE_HAS_ATTR))
		return;
	if (inode->sum || inode->names != inode->parents) {
		inode->flags |= INODE_SUSPECT;
		check->names_differ = true;
	}
	if (ino == TUX3_INO_ROOT)
		return;
	if (!inode->names && inode->nlink)
		check_problem(check, INODE_NAMELESS, ino, 0, NULL, ino, inode->nlink);
	else if (S_ISDIR(inode->mode) && inode->names > 1)
		check_problem(check, DIR_NAMES, ino, 0, NULL, ino, inode->names);
	else if (S_ISDIR(inode->mode) ? inode->names && !inode->nlink : inode->names != inode->nlink)
		check_problem(check, NLINK, ino, 0, NULL, ino, inode->nlink, inode->names);
}

/* ---- name by name ---- */

struct exact_name {
	u64 ino, dir;
	union {
		u64 at;			/* in bytes, while these may move */
		const u8 *name;
	};
	u8 len;
	bool is_parent;			/* else a directory entry */
};

struct exact {
	struct check *check;
	struct check_table names;
	struct check_table bytes;
	u64 near;
};

static void exact_add(struct exact *exact, u64 ino, u64 dir, const u8 *name, u32 len, bool is_parent)
{
	struct exact_name *entry = check_table_add(exact->check, &exact->names);
	u8 *byte;
	u32 i;

	if (!entry)
		return;
	entry->ino = ino;
	entry->dir = dir;
	entry->at = exact->bytes.count;
	entry->len = len;
	entry->is_parent = is_parent;
	for (i = 0; i < len; i++) {
		byte = check_table_add(exact->check, &exact->bytes);
		if (!byte)
			return;
		*byte = name[i];
	}
}

static void exact_dirents(struct exact *exact, u64 dir, const u8 *data, u32 len)
{
	struct check *check = exact->check;
	struct check_chain chain = { .data = data, .len = len };
	const struct disk_dirent *entry;
	char text[NAME_TEXT];

	while (!check->stop && (entry = check_next_dirent(&chain))) {
		u64 ino = get_unaligned_le64(&entry->ino);
		struct check_inode *inode;

		inode = ino <= TUX3_INO_MAX ? inode_find_near(check, ino, &exact->near) : NULL;
		check_name_text(text, sizeof(text), entry->name, entry->len);
		if (!inode) {
			check_name_problem(check, DIRENT_DANGLING, dir, entry->name, entry->len, text, dir, ino);
			continue;
		}
		if (inode->flags & INODE_HAS_ATTR && entry->type != inode->mode >> 12)
			check_name_problem(check, DIRENT_TYPE, dir, entry->name, entry->len, text, dir, ino, entry->type,
					   inode->mode >> 12);
		if (inode->flags & INODE_SUSPECT)
			exact_add(exact, ino, dir, entry->name, entry->len, false);
	}
}

static void exact_parents(struct exact *exact, u64 ino, const u8 *data, u32 len)
{
	struct check *check = exact->check;
	struct check_inode *inode = inode_find_near(check, ino, &exact->near);
	struct check_chain chain = { .data = data, .len = len };
	const struct disk_parent *entry;

	if (!inode || !(inode->flags & INODE_SUSPECT))
		return;
	while (!check->stop && (entry = check_next_parent(&chain)))
		exact_add(exact, ino, get_unaligned_le64(&entry->dir), entry->name, entry->len, true);
}

static int exact_visit(void *ctx, const struct tree_visit *visit)
{
	struct exact *exact = ctx;
	u32 i;

	if (!visit->data || visit->level)
		return exact->check->stop;
	for (i = 0; i < node_count(visit->data) && !exact->check->stop; i++) {
		struct node_key packed = leaf_key(visit->data, i);
		struct tree_key key = node_key_unpack(&packed);

		if (key.type == TUX3_ITEM_DIRENT)
			exact_dirents(exact, key.ino, leaf_data(visit->data, i), leaf_len(visit->data, i));
		else if (key.type == TUX3_ITEM_PARENT)
			exact_parents(exact, key.ino, leaf_data(visit->data, i), leaf_len(visit->data, i));
	}
	return exact->check->stop;
}

static int exact_compare(const void *a, const void *b)
{
	const struct exact_name *left = a, *right = b;

	if (left->ino != right->ino)
		return left->ino < right->ino ? -1 : 1;
	if (left->dir != right->dir)
		return left->dir < right->dir ? -1 : 1;
	if (left->len != right->len)
		return left->len < right->len ? -1 : 1;
	return memcmp(left->name, right->name, left->len);
}

static void exact_match(struct exact *exact)
{
	struct exact_name *names = exact->names.entries;
	struct check *check = exact->check;
	u64 i, next;
	char text[NAME_TEXT];

	for (i = 0; i < exact->names.count; i++)
		names[i].name = (const u8 *)exact->bytes.entries + names[i].at;
	sort(names, exact->names.count, sizeof(*names), exact_compare, NULL);
	for (i = 0; i < exact->names.count && !check->stop; i = next) {
		bool has_name = false, has_parent = false;

		for (next = i; next < exact->names.count && !exact_compare(&names[i], &names[next]); next++) {
			has_name |= !names[next].is_parent;
			has_parent |= names[next].is_parent;
		}
		if (has_name && has_parent)
			continue;
		check_name_text(text, sizeof(text), names[i].name, names[i].len);
		if (has_name)
			check_name_problem(check, PARENT_MISSING, names[i].ino, names[i].name, names[i].len, text,
					   names[i].ino, names[i].dir);
		else
			check_name_problem(check, PARENT_DANGLING, names[i].ino, names[i].name, names[i].len, text,
					   names[i].ino, names[i].dir);
	}
}

static int check_exact(struct check *check)
{
	struct exact exact = { .check = check };
	int err;

	exact.names.size = sizeof(struct exact_name);
	exact.bytes.size = 1;
	err = tree_walk(check->vol, exact_visit, &exact);
	if (!err)
		exact_match(&exact);
	kvfree(exact.names.entries);
	kvfree(exact.bytes.entries);
	return err ? err : check->stop;
}

int check_links(struct check *check)
{
	struct check_link *links = check->links.entries;
	u64 i, near = 0;

	if (check->damaged)
		return 0;
	for (i = 0; i < check->links.count && !check->stop; i++) {
		check_progress(check, CHECK_INODES, i, check->links.count);
		link_count(check, &links[i], &near);
	}
	for (i = 0; i < check->inodes.count && !check->stop; i++)
		inode_check_links(check, check_inode_at(check, i));
	if (check->stop || !check->names_differ)
		return check->stop;
	return check_exact(check);
}

/* ---- is every directory below the root? ---- */

/*
 * Follow the names of one inode up to one that is known to be below the root.  A directory without a name
 * was told of before; what is below it is not told again.
 */
static void inode_reach(struct check *check, struct check_inode *start)
{
	struct check_inode *inode = start;
	u32 up;

	while (!(inode->flags & (INODE_REACHED | INODE_WALKED)) && inode->up != CHECK_NONE) {
		inode->flags |= INODE_WALKED;
		inode = check_inode_at(check, inode->up);
	}
	if (inode->flags & INODE_WALKED && S_ISDIR(inode->mode))
		check_problem(check, DIR_LOOP, inode->ino, 0, NULL, inode->ino);
	inode->flags |= INODE_REACHED;
	for (inode = start; inode->flags & INODE_WALKED; inode = check_inode_at(check, up)) {
		up = inode->up;
		inode->flags = (inode->flags & ~INODE_WALKED) | INODE_REACHED;
	}
}

int check_reachable(struct check *check)
{
	struct check_inode *root = check_inode_find(check, TUX3_INO_ROOT);
	u64 i;

	if (check->damaged)
		return 0;
	if (root)
		root->flags |= INODE_REACHED;
	for (i = 0; i < check->inodes.count && !check->stop; i++) {
		check_progress(check, CHECK_NAMES, i, check->inodes.count);
		if (S_ISDIR(check_inode_at(check, i)->mode))
			inode_reach(check, check_inode_at(check, i));
	}
	return check->stop;
}
