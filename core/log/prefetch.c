// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reading ahead: see prefetch.h.
 *
 * Keys are sorted and followed down the tree as far as it is in memory.  The nodes that are missing, on whatever level,
 * are read together; then all whose leaf was not reached start again.  So a tree of n levels takes at most n rounds, each
 * with as many reads in flight as the device takes.
 *
 * Locking: tree->sem for reading while nodes in memory are looked at, none while anything is read.
 */
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/format/chain.h"
#include "core/tree/tree_internal.h"
#include "core/log/apply.h"
#include "core/log/prefetch.h"

#define PREFETCH_FEW	16u	/* keys of a small commit, which allocates nothing here */
#define PREFETCH_IN_TURN	64u	/* keys followed before sem is given to others */

struct prefetch *prefetch_create(struct volume *vol)
{
	struct prefetch *prefetch = kvmalloc(sizeof(*prefetch), GFP_NOFS | __GFP_NOWARN);
	u64 fit;

	if (!prefetch)
		return NULL;
	fit = READ_ONCE(vol->cache.limit_bytes) / 4 >> vol->block_shift;
	prefetch->vol = vol;
	prefetch->keys = prefetch->groups = 0;
	prefetch->key_limit = clamp_t(u64, fit, 1, PREFETCH_KEYS);
	prefetch->group_limit = min(balloc_prefetch_limit(vol), PREFETCH_KEYS);
	return prefetch;
}

void prefetch_free(struct prefetch *prefetch)
{
	kvfree(prefetch);
}

bool prefetch_full(const struct prefetch *prefetch)
{
	return prefetch && (prefetch->keys >= prefetch->key_limit || prefetch->groups >= prefetch->group_limit);
}

void prefetch_add_key(struct prefetch *prefetch, const struct tree_key *key)
{
	if (prefetch && prefetch->keys < prefetch->key_limit)
		prefetch->key[prefetch->keys++] = *key;
}

void prefetch_add_group(struct prefetch *prefetch, u64 group)
{
	if (prefetch->groups && prefetch->group[prefetch->groups - 1] == group)
		return;
	if (prefetch->groups < prefetch->group_limit)
		prefetch->group[prefetch->groups++] = group;
}

void prefetch_add_blocks(struct prefetch *prefetch, u64 addr, u64 count)
{
	struct volume *vol;
	u64 group, last;

	if (!prefetch || !count || addr >= prefetch->vol->total_blocks ||
	    count > prefetch->vol->total_blocks - addr || balloc_all_loaded(prefetch->vol))
		return;
	vol = prefetch->vol;
	last = (addr + count - 1) / vol->group_blocks;
	for (group = addr / vol->group_blocks; group <= last && prefetch->groups < prefetch->group_limit; group++)
		prefetch_add_group(prefetch, group);
}

static int key_order(const void *a, const void *b)
{
	return tree_key_compare(a, b);
}

static int group_order(const void *a, const void *b)
{
	const u64 *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/*
 * Follow the keys down; those whose way is not in memory are kept.  With links, and then keys are in order: the first
 * node missing on each way, once, is put there.
 */
static u32 prefetch_descend(struct prefetch *prefetch, struct node_link *links)
{
	struct volume *vol = prefetch->vol;
	u32 i, kept = 0, missing = 0;
	bool reached = false;
	struct tree_path path;

	for (i = 0; i < prefetch->keys; i++) {
		struct node_key key = node_key_pack(&prefetch->key[i]);

		if (i % PREFETCH_IN_TURN == 0) {
			if (i)
				up_read(&vol->tree.sem);
			cond_resched();
			down_read(&vol->tree.sem);
			reached = false;
		}
		if (reached && path_leads(&path, &key))
			continue;
		switch (path_descend(vol, &path, &key, false)) {
		case 0:
			tree_path_put(vol, &path);
			reached = true;
			break;
		case PATH_MISS:
			reached = false;
			prefetch->key[kept++] = prefetch->key[i];
			if (links && (!missing || links[missing - 1].addr != path.miss.addr))
				links[missing++] = path.miss;
			break;
		default:
			reached = false;
		}
	}
	if (prefetch->keys)
		up_read(&vol->tree.sem);
	prefetch->keys = kept;
	return missing;
}

static int link_order(const void *a, const void *b)
{
	const struct node_link *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void prefetch_keys(struct prefetch *prefetch)
{
	struct node_link few[PREFETCH_FEW], *links = few;
	u32 rounds = READ_ONCE(prefetch->vol->tree.root_level) + 1, round, missing;

	prefetch_descend(prefetch, NULL);	/* mostly all is there, and there is nothing to sort */
	if (!prefetch->keys)
		return;
	if (prefetch->keys > PREFETCH_FEW)
		links = kvmalloc(prefetch->keys * sizeof(*links), GFP_NOFS | __GFP_NOWARN);
	if (!links)
		return;
	sort(prefetch->key, prefetch->keys, sizeof(prefetch->key[0]), key_order, NULL);
	for (round = 0; round < rounds; round++) {
		missing = prefetch_descend(prefetch, links);
		if (!missing)
			break;
		sort(links, missing, sizeof(*links), link_order, NULL);	/* as they lie on the disk */
		cache_fetch(prefetch->vol, links, missing);
	}
	if (links != few)
		kvfree(links);
}

static void prefetch_groups(struct prefetch *prefetch)
{
	u32 i, count = 0;

	sort(prefetch->group, prefetch->groups, sizeof(prefetch->group[0]), group_order, NULL);
	for (i = 0; i < prefetch->groups; i++) {
		if (!count || prefetch->group[count - 1] != prefetch->group[i])
			prefetch->group[count++] = prefetch->group[i];
	}
	balloc_prefetch(prefetch->vol, prefetch->group, count);
}

void prefetch_run(struct prefetch *prefetch)
{
	if (!prefetch)
		return;
	if (prefetch->keys)
		prefetch_keys(prefetch);
	if (prefetch->groups)
		prefetch_groups(prefetch);
	prefetch->keys = prefetch->groups = 0;
}

/* ---- what a log record needs ---- */

static void prefetch_add_quota(struct prefetch *prefetch, const struct disk_attr *attr)
{
	const struct tree_key keys[] = {
		tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER, le32_to_cpu(attr->uid)),
		tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_GROUP, le32_to_cpu(attr->gid)),
		tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_PROJECT, le32_to_cpu(attr->projid)),
	};
	u32 i;

	if (!(prefetch->vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA))
		return;
	for (i = 0; i < ARRAY_SIZE(keys); i++)
		prefetch_add_key(prefetch, &keys[i]);
}

static int prefetch_group(void *ctx, u64 group)
{
	prefetch_add_group(ctx, group);
	return 0;
}

/* Leaves of what a record names by its key, and of what it changes besides. */
void prefetch_add_record(struct prefetch *prefetch, const struct disk_record *record)
{
	const struct record_item *item = (const void *)(record + 1);
	const struct record_attr *attr = (const void *)(record + 1);
	const struct record_inode *inode = (const void *)(record + 1);
	const struct record_dirent *dirent = (const void *)(record + 1);
	const struct record_xattr *xattr = (const void *)(record + 1);
	const struct record_extent *extent = (const void *)(record + 1);
	const struct record_merge *merge = (const void *)(record + 1);
	const struct record_hashes *hashes = (const void *)(record + 1);
	u32 len = le32_to_cpu(record->len), type = le16_to_cpu(record->type);
	struct tree_key key;

	if (!prefetch)
		return;
	if ((type == TUX3_RECORD_ITEM_SET || type == TUX3_RECORD_ITEM_DELETE) && len >= sizeof(*item)) {
		key = tree_key_from_disk(&item->key);
	} else if (type == TUX3_RECORD_ATTR_SET && len >= sizeof(*attr)) {
		key = tree_key(le64_to_cpu(attr->ino), TUX3_ITEM_ATTR, 0);
		prefetch_add_quota(prefetch, &attr->attr);
	} else if (type == TUX3_RECORD_INODE_DELETE && len >= sizeof(*inode)) {
		key = tree_key(le64_to_cpu(inode->ino), 0, 0);
	} else if ((type == TUX3_RECORD_DIRENT_SET || type == TUX3_RECORD_DIRENT_DELETE) && len >= sizeof(*dirent)) {
		key = tree_key(le64_to_cpu(dirent->entry.ino), TUX3_ITEM_PARENT, 0);
		prefetch_add_key(prefetch, &key);
		key = tree_key(le64_to_cpu(dirent->dir), TUX3_ITEM_DIRENT, le64_to_cpu(dirent->hash));
	} else if ((type == TUX3_RECORD_XATTR_SET || type == TUX3_RECORD_XATTR_DELETE) && len >= sizeof(*xattr)) {
		key = tree_key(le64_to_cpu(xattr->ino), TUX3_ITEM_XATTR, le64_to_cpu(xattr->hash));
	} else if ((type == TUX3_RECORD_EXTENT_MAP || type == TUX3_RECORD_EXTENT_PUNCH) && len >= sizeof(*extent)) {
		key = tree_key(le64_to_cpu(extent->ino), TUX3_ITEM_EXTENT, le64_to_cpu(extent->block));
		if (type == TUX3_RECORD_EXTENT_MAP)
			prefetch_add_blocks(prefetch, le64_to_cpu(extent->addr), le64_to_cpu(extent->count));
	} else if (type == TUX3_RECORD_XATTR_PUNCH && len >= sizeof(*hashes)) {
		key = tree_key(le64_to_cpu(hashes->ino), TUX3_ITEM_XATTR, le64_to_cpu(hashes->first));
	} else if (type == TUX3_RECORD_TREE_MERGE && len >= sizeof(*merge)) {
		key = tree_key_from_disk(&merge->key);
	} else {
		if (type == TUX3_RECORD_GROUP_TOUCHED)
			log_for_groups(record + 1, len, prefetch_group, prefetch);
		return;
	}
	prefetch_add_key(prefetch, &key);
}

/* ---- what a delete frees ---- */

static void prefetch_add_values(struct prefetch *prefetch, const void *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	const struct disk_xattr *entry;
	u32 i;

	while ((entry = chain_next_xattr(&chain))) {
		const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);

		for (i = 0; i < entry->pieces; i++)
			prefetch_add_blocks(prefetch, get_unaligned_le64(&piece[i].addr),
					    get_unaligned_le32(&piece[i].len));
	}
}

static int prefetch_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct prefetch *prefetch = ctx;

	if (key->type == TUX3_ITEM_XATTR) {
		prefetch_add_values(prefetch, data, len);
	} else if (key->type == TUX3_ITEM_EXTENT && len >= sizeof(struct disk_extent)) {
		struct disk_extent extent;

		memcpy(&extent, data, sizeof(extent));
		prefetch_add_blocks(prefetch, le64_to_cpu(extent.addr), le32_to_cpu(extent.len));
	}
	return prefetch_full(prefetch);
}

void prefetch_add_items(struct prefetch *prefetch, const struct tree_key *from, const struct tree_key *to)
{
	if (prefetch)
		tree_scan(prefetch->vol, from, to, prefetch_item, prefetch);
}
