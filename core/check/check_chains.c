/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The checker: items that chain several entries whose hashes collide: directory entries, parent
 * pointers, extended attributes.
 *
 * A chain that is cut short is told once; its entries up to there count.
 */
#include "core/volume.h"
#include "core/format/name_hash.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/data/data.h"
#include "core/check/check_internal.h"

#define NAME_TEXT 80u

/* The next entry, NULL at the end; chain->bad: it is no good from there on. */
static const void *chain_next(struct check_chain *chain, u32 (*entry_size)(const void *entry, u32 left))
{
	chain->at += chain->size;
	chain->size = 0;
	chain->bad = !chain->len;
	if (chain->at == chain->len)
		return NULL;
	chain->size = entry_size(chain->data + chain->at, chain->len - chain->at);
	chain->bad = !chain->size;
	return chain->bad ? NULL : chain->data + chain->at;
}

static u32 check_dirent_size(const void *p, u32 left)
{
	const struct disk_dirent *entry = p;

	return left < sizeof(*entry) || left - sizeof(*entry) < entry->len ? 0 : sizeof(*entry) + entry->len;
}

static u32 check_parent_size(const void *p, u32 left)
{
	const struct disk_parent *entry = p;

	return left < sizeof(*entry) || left - sizeof(*entry) < entry->len ? 0 : sizeof(*entry) + entry->len;
}

static u32 check_xattr_size(const void *p, u32 left)
{
	const struct disk_xattr *entry = p;
	u32 value_len, size = sizeof(*entry);

	if (left < size)
		return 0;
	value_len = get_unaligned_le32(&entry->value_len);
	if (value_len > TUX3_XATTR_SIZE_MAX)
		return 0;
	size += entry->len;
	size += entry->pieces ? entry->pieces * (u32)sizeof(struct disk_xattr_piece) : value_len;
	return size <= left ? size : 0;
}

const struct disk_dirent *check_next_dirent(struct check_chain *chain)
{
	return chain_next(chain, check_dirent_size);
}

const struct disk_parent *check_next_parent(struct check_chain *chain)
{
	return chain_next(chain, check_parent_size);
}

const struct disk_xattr *check_next_xattr(struct check_chain *chain)
{
	return chain_next(chain, check_xattr_size);
}

bool check_name_valid(const u8 *name, u32 len)
{
	if (!len || (len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.'))
		return false;
	return !memchr(name, '/', len) && !memchr(name, 0, len);
}

/* ---- directory entries ---- */

static bool dirent_seen(const struct check_chain *chain, const struct disk_dirent *entry)
{
	struct check_chain before = { .data = chain->data, .len = chain->at };
	const struct disk_dirent *other;

	while ((other = check_next_dirent(&before)))
		if (other->len == entry->len && !memcmp(other->name, entry->name, entry->len))
			return true;
	return false;
}

static int dirent_check(struct check *check, const struct tree_key *key, const struct disk_dirent *entry)
{
	u64 hash = name_hash(check->vol, key->ino, TUX3_ITEM_DIRENT, (const char *)entry->name, entry->len);
	char text[NAME_TEXT];

	if (!check_name_valid(entry->name, entry->len)) {
		check_name_text(text, sizeof(text), entry->name, entry->len);
		check_problem(check, DIRENT_NAME, key->ino, 0, text, key->ino);
	}
	if (hash != key->offset) {
		check_name_text(text, sizeof(text), entry->name, entry->len);
		check_problem(check, DIRENT_HASH, key->ino, 0, text, key->ino, key->offset, hash);
	}
	return check->stop;
}

int check_dirents(struct check *check, const struct tree_key *key, const void *data, u32 len)
{
	struct check_chain chain = { .data = data, .len = len };
	const struct disk_dirent *entry;
	char text[NAME_TEXT];

	while (!check->stop && (entry = check_next_dirent(&chain))) {
		u64 ino = get_unaligned_le64(&entry->ino);
		struct check_link *link = check_table_add(check, &check->links);

		if (!link)
			return check->stop;
		link->ino_type = ino << 8 | entry->type;
		link->dir = check->now.index;
		link->mix = check_name_mix(key->ino, name_hash(check->vol, key->ino, TUX3_ITEM_PARENT,
							       (const char *)entry->name, entry->len),
					   entry->name, entry->len);
		if (ino > TUX3_INO_MAX)		/* does not fit the table: lead nowhere */
			link->ino_type = entry->type;
		check->now.entries++;
		check->result->names++;
		if (entry->type == S_IFDIR >> 12)
			check->now.subdirs++;
		if (dirent_seen(&chain, entry)) {
			check_name_text(text, sizeof(text), entry->name, entry->len);
			check_problem(check, DIRENT_DUPLICATE, key->ino, 0, text, key->ino);
		}
		dirent_check(check, key, entry);
	}
	if (chain.bad && !check->stop)
		check_problem(check, DIRENT_BAD, key->ino, 0, NULL, key->ino, key->offset);
	return check->stop;
}

/* ---- parent pointers ---- */

static bool parent_seen(const struct check_chain *chain, const struct disk_parent *entry)
{
	struct check_chain before = { .data = chain->data, .len = chain->at };
	const struct disk_parent *other;

	while ((other = check_next_parent(&before)))
		if (other->dir == entry->dir && other->len == entry->len &&
		    !memcmp(other->name, entry->name, entry->len))
			return true;
	return false;
}

int check_parents(struct check *check, const struct tree_key *key, const void *data, u32 len)
{
	struct check_chain chain = { .data = data, .len = len };
	struct check_inode *inode = check_inode_at(check, check->now.index);
	const struct disk_parent *entry;
	char text[NAME_TEXT];

	while (!check->stop && (entry = check_next_parent(&chain))) {
		u64 dir = get_unaligned_le64(&entry->dir);
		u64 hash = name_hash(check->vol, dir, TUX3_ITEM_PARENT, (const char *)entry->name, entry->len);

		inode->sum -= check_name_mix(dir, hash, entry->name, entry->len);
		inode->parents++;
		if (hash != key->offset) {
			check_name_text(text, sizeof(text), entry->name, entry->len);
			check_problem(check, PARENT_HASH, key->ino, 0, text, key->ino, key->offset, hash);
		}
		if (parent_seen(&chain, entry)) {
			check_name_text(text, sizeof(text), entry->name, entry->len);
			check_problem(check, PARENT_DUPLICATE, key->ino, 0, text, key->ino, dir);
		}
	}
	if (chain.bad && !check->stop)
		check_problem(check, PARENT_BAD, key->ino, 0, NULL, key->ino, key->offset);
	return check->stop;
}

/* ---- extended attributes ---- */

static bool xattr_seen(const struct check_chain *chain, const struct disk_xattr *entry)
{
	struct check_chain before = { .data = chain->data, .len = chain->at };
	const struct disk_xattr *other;

	while ((other = check_next_xattr(&before)))
		if (other->len == entry->len && !memcmp(other->name, entry->name, entry->len))
			return true;
	return false;
}

static void xattr_check_pieces(struct check *check, u64 ino, const struct disk_xattr *entry)
{
	const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);
	u32 value_len = get_unaligned_le32(&entry->value_len), i;
	u64 blocks = 0;

	for (i = 0; i < entry->pieces && !check->stop; i++, piece++) {
		u64 addr = get_unaligned_le64(&piece->addr);
		u32 len = get_unaligned_le32(&piece->len);
		u64 fixed;

		blocks += len;
		if (!check_range_inside(check, addr, len) || balloc_first_fixed(check->vol, addr, len, &fixed))
			check_problem(check, XATTR_PLACE, ino, addr, NULL, ino, addr, len);
		else
			check_use_blocks(check, ino, addr, len);
	}
	check->now.blocks += blocks;
	check->result->data_blocks += blocks;
	if (blocks != DIV_ROUND_UP(value_len, check->vol->block_size))
		check_problem(check, XATTR_LENGTH, ino, 0, NULL, ino, value_len, blocks);
}

static void xattr_check(struct check *check, const struct tree_key *key, const struct disk_xattr *entry)
{
	u64 hash = name_hash(check->vol, key->ino, TUX3_ITEM_XATTR, (const char *)entry->name, entry->len);
	u32 value_len = get_unaligned_le32(&entry->value_len), want = get_unaligned_le32(&entry->value_crc), crc;
	char text[NAME_TEXT];

	check_name_text(text, sizeof(text), entry->name, entry->len);
	if (hash != key->offset)
		check_problem(check, XATTR_HASH, key->ino, 0, text, key->ino, key->offset, hash);
	if (entry->pieces) {
		xattr_check_pieces(check, key->ino, entry);
		return;
	}
	if (value_len > TUX3_XATTR_INLINE_MAX)
		check_problem(check, XATTR_LENGTH, key->ino, 0, text, key->ino, value_len, 0);
	crc = crc32c(~0, entry->name + entry->len, value_len);
	if (crc != want)
		check_problem(check, XATTR_VALUE, key->ino, 0, text, key->ino, crc, want);
}

int check_xattrs(struct check *check, const struct tree_key *key, const void *data, u32 len)
{
	struct check_chain chain = { .data = data, .len = len };
	const struct disk_xattr *entry;
	char text[NAME_TEXT];

	check->now.has_xattrs = true;
	while (!check->stop && (entry = check_next_xattr(&chain))) {
		check->result->xattrs++;
		if (xattr_seen(&chain, entry)) {
			check_name_text(text, sizeof(text), entry->name, entry->len);
			check_problem(check, XATTR_DUPLICATE, key->ino, 0, text, key->ino);
		}
		xattr_check(check, key, entry);
	}
	if (chain.bad && !check->stop)
		check_problem(check, XATTR_BAD, key->ino, 0, NULL, key->ino, key->offset);
	return check->stop;
}
