// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * File handles, for NFS and open_by_handle_at(2): finding an inode, its directory and its name without a path.
 *
 * A handle is an array of 32 bit words, least significant half first:
 *
 *	FILEID_INO64_GEN		inode number (2 words), generation (1)
 *	FILEID_INO64_GEN_PARENT		the same, then that of a directory in which it has a name
 *
 * Numbers are used again, generations tell the old inode from the new one.  A handle is good as long as the inode has
 * a name or somebody has it open.
 *
 * The way up: directories know their parent; the name of an inode in a directory is in its parent pointers, as far as
 * they are committed.  What they say is checked against the directory; if that says otherwise, the directory is searched.
 */
#include <linux/exportfs.h>
#include "linux/vfs.h"
#include "core/format/chain.h"
#include "core/names/name_list.h"

#define HANDLE_WORDS		3
#define HANDLE_PARENT_WORDS	6
#define NAMES_TRIED		8	/* of one inode in one directory, before the directory is searched */

static void handle_put(u32 *words, struct inode *inode)
{
	u64 ino = core_of(inode)->ino;

	words[0] = lower_32_bits(ino);
	words[1] = upper_32_bits(ino);
	words[2] = inode->i_generation;
}

static int export_encode_fh(struct inode *inode, __u32 *words, int *len, struct inode *parent)
{
	int needed = parent ? HANDLE_PARENT_WORDS : HANDLE_WORDS;
	bool room = *len >= needed;

	*len = needed;
	if (!room)
		return FILEID_INVALID;
	handle_put(words, inode);
	if (!parent)
		return FILEID_INO64_GEN;
	handle_put(words + HANDLE_WORDS, parent);
	return FILEID_INO64_GEN_PARENT;
}

/* Without a name, and nobody has it open (who has, has a dentry): it waits for being deleted. */
static bool inode_is_going(struct inode *inode)
{
	bool going;

	spin_lock(&inode->i_lock);
	going = !inode->i_nlink && hlist_empty(&inode->i_dentry);
	spin_unlock(&inode->i_lock);
	return going;
}

struct inode *node_get_handle(struct super_block *sb, u64 ino, u32 generation)
{
	struct inode *inode;

	if (ino != TUX3_INO_ROOT && (ino < TUX3_INO_FIRST || ino > TUX3_INO_MAX))
		return ERR_PTR(-ESTALE);
	inode = node_get(sb, ino);
	if (IS_ERR(inode))
		return inode;
	if (inode->i_generation != generation || inode_is_going(inode)) {
		iput(inode);
		return ERR_PTR(-ESTALE);
	}
	return inode;
}

static struct dentry *handle_get(struct super_block *sb, const u32 *words)
{
	return d_obtain_alias(node_get_handle(sb, words[0] | (u64)words[1] << 32, words[2]));
}

static struct dentry *export_fh_to_dentry(struct super_block *sb, struct fid *fid, int len, int type)
{
	if ((type != FILEID_INO64_GEN && type != FILEID_INO64_GEN_PARENT) || len < HANDLE_WORDS)
		return NULL;
	return handle_get(sb, fid->raw);
}

static struct dentry *export_fh_to_parent(struct super_block *sb, struct fid *fid, int len, int type)
{
	if (type != FILEID_INO64_GEN_PARENT || len < HANDLE_PARENT_WORDS)
		return NULL;
	return handle_get(sb, fid->raw + HANDLE_WORDS);
}

static struct dentry *export_get_parent(struct dentry *child)
{
	struct tux3_inode *inode = core_of(d_inode(child));
	u64 parent;

	spin_lock(&inode->lock);
	parent = inode->parent;
	spin_unlock(&inode->lock);
	return d_obtain_alias(node_get(child->d_sb, parent));
}

/* ---- names ---- */

struct name_search {
	u64 dir, ino;
	u32 skip;		/* parent pointers to leave out */
	char *name;		/* NAME_MAX + 1 bytes */
	unsigned int len;	/* 0: not found */
};

/* Under the tree's lock. */
static int search_parent_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	struct name_search *search = ctx;
	const struct disk_parent *item;

	while ((item = chain_next_parent(&chain))) {
		if (le64_to_cpu(item->dir) != search->dir || search->skip-- > 0)
			continue;
		memcpy(search->name, item->name, item->len);
		search->len = item->len;
		return 1;
	}
	return chain.bad ? -EIO : 0;
}

/* 0: search->name is what the tree says and the directory confirms. */
static int search_parents(struct tux3_inode *dir, struct name_search *search)
{
	struct tree_key from = tree_key(search->ino, TUX3_ITEM_PARENT, 0);
	struct tree_key to = tree_key(search->ino, TUX3_ITEM_PARENT, U64_MAX);
	u32 tried;
	u64 ino;
	u8 type;

	for (tried = 0; tried < NAMES_TRIED; tried++) {
		int err;

		search->skip = tried;
		search->len = 0;
		err = tree_scan(dir->vol, &from, &to, search_parent_item, search);
		if (err < 0 || !search->len)
			return err < 0 ? err : -ENOENT;
		err = name_lookup(dir, search->name, search->len, &ino, &type);
		if (!err && ino == search->ino)
			return 0;
		if (err && err != -ENOENT)
			return err;
	}
	return -ENOENT;
}

static int search_entry(void *ctx, const struct name_found *found)
{
	struct name_search *search = ctx;

	if (found->ino != search->ino)
		return 0;
	memcpy(search->name, found->name, found->len);
	search->len = found->len;
	return 1;
}

static int search_directory(struct tux3_inode *dir, struct name_search *search)
{
	u64 cookie = 0;
	int err;

	search->len = 0;
	err = name_iterate(dir, &cookie, search_entry, search);
	if (err < 0)
		return err;
	return search->len ? 0 : -ENOENT;
}

static int export_get_name(struct dentry *parent, char *name, struct dentry *child)
{
	struct inode *dir = d_inode(parent);
	struct name_search search = { .dir = core_of(dir)->ino, .ino = core_of(d_inode(child))->ino, .name = name };
	int err;

	if (!S_ISDIR(dir->i_mode))
		return -ENOTDIR;
	inode_lock_shared(dir);
	err = search_parents(core_of(dir), &search);
	if (err)
		err = search_directory(core_of(dir), &search);
	inode_unlock_shared(dir);
	if (!err)
		name[search.len] = '\0';
	return err;
}

static int export_commit_metadata(struct inode *inode)
{
	return delta_commit_inode(core_of(inode));
}

const struct export_operations export_ops = {
	.encode_fh	 = export_encode_fh,
	.fh_to_dentry	 = export_fh_to_dentry,
	.fh_to_parent	 = export_fh_to_parent,
	.get_name	 = export_get_name,
	.get_parent	 = export_get_parent,
	.commit_metadata = export_commit_metadata,
};
