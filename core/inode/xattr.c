// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Extended attributes.  Changes live in inode->xattrs, a tree by hash and name, with a value for each
 * of the two deltas, until the back end has applied them; then only the volume's tree has them.  What they take
 * counts as dirty data: it triggers commits, and holds up who sets more than the device takes.  No page cache has a limit
 * for them, so the large ones of both deltas together take no more than the dirty data that makes a commit due.
 *
 * The host holds the inode's lock for xattr_set, and at least shared for the others.  xattr_mutex protects the changes
 * and is taken inside deltas: so nobody holds it across I/O.
 */
#include "core/volume.h"
#include "core/device/device.h"
#include "core/format/name_hash.h"
#include "core/blocks/balloc.h"
#include "core/tree/tree.h"
#include "core/format/chain.h"
#include "core/log/apply.h"
#include "core/log/log.h"
#include "core/delta/delta.h"
#include "core/delta/paid.h"
#include "core/delta/space.h"
#include "core/inode/inode_quota.h"
#include "core/inode/inode.h"
#include "core/inode/path.h"
#include "core/inode/xattr.h"

struct xattr_value {
	bool dirty;
	bool present;		/* false: the attribute is removed */
	u32 size;
	u8 *data;		/* rounded up to whole blocks with zeros if it gets blocks of its own */
};

struct xattr_change {
	struct rb_node node;
	u64 hash;
	struct xattr_value slot[2];
	unsigned int newest;	/* which slot is the current value */
	u8 len;
	char name[];
};

static u64 xattr_hash(struct tux3_inode *inode, const char *name, u32 len)
{
	return name_hash(inode->vol, inode->ino, TUX3_ITEM_XATTR, name, len);
}

static struct xattr_change *change_of(struct rb_node *node)
{
	return node ? rb_entry(node, struct xattr_change, node) : NULL;
}

static struct xattr_change *change_next(struct xattr_change *change)
{
	return change_of(rb_next(&change->node));
}

static int change_compare(const struct xattr_change *change, u64 hash, const char *name, u32 len)
{
	if (hash != change->hash)
		return hash < change->hash ? -1 : 1;
	return len != change->len ? (int)len - (int)change->len : memcmp(name, change->name, len);
}

/* The first change of this name or behind it; *exact: it is the one.  xattr_mutex held. */
static struct xattr_change *change_from(struct tux3_inode *inode, u64 hash, const char *name, u32 len, bool *exact)
{
	struct rb_node *node = inode->xattrs.rb_node;
	struct xattr_change *found = NULL;

	lockdep_assert_held(&inode->xattr_mutex);
	*exact = false;
	while (node && !*exact) {
		struct xattr_change *change = change_of(node);
		int order = change_compare(change, hash, name, len);

		*exact = !order;
		if (order <= 0)
			found = change;
		node = order < 0 ? node->rb_left : node->rb_right;
	}
	return found;
}

static struct xattr_change *change_find(struct tux3_inode *inode, u64 hash, const char *name, u32 len)
{
	bool exact;
	struct xattr_change *change = change_from(inode, hash, name, len, &exact);

	return exact ? change : NULL;
}

static void value_free(struct xattr_value *value)
{
	kvfree(value->data);
	memset(value, 0, sizeof(*value));
}

static void change_free(struct xattr_change *change)
{
	value_free(&change->slot[0]);
	value_free(&change->slot[1]);
	kfree(change);
}

/* ---- reading ---- */

/* Read a value that has blocks of its own, and verify it. */
static int pieces_read(struct tux3_inode *inode, const struct disk_xattr *entry, void *value, size_t size)
{
	struct volume *vol = inode->vol;
	const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);
	u32 left = le32_to_cpu(entry->value_len), crc = ~0u, i, b, n;
	u8 *block = kvmalloc(vol->block_size, GFP_NOFS), *to = value;
	int err = block ? 0 : -ENOMEM;

	for (i = 0; i < entry->pieces && !err; i++, piece++) {
		u64 addr = get_unaligned_le64(&piece->addr);

		for (b = 0; b < get_unaligned_le32(&piece->len) && left && !err; b++) {
			err = apply_blocks_valid(vol, addr + b, 1) ? device_read(vol->dev, addr + b, 1, block) : -EIO;
			n = min(left, vol->block_size);
			crc = crc32c(crc, block, n);
			if (to && !err) {
				memcpy(to, block, min_t(size_t, n, size));
				to += min_t(size_t, n, size);
				size -= min_t(size_t, n, size);
			}
			left -= n;
		}
	}
	kvfree(block);
	if (!err && (left || crc != le32_to_cpu(entry->value_crc))) {
		inode_warn(vol, "file", inode->ino, ": the value of an extended attribute has checksum %08x instead of %08x", crc,
			   le32_to_cpu(entry->value_crc));
		err = -EIO;
	}
	return err;
}

static int entry_read(struct tux3_inode *inode, const struct disk_xattr *entry, void *value, size_t size)
{
	u32 len = le32_to_cpu(entry->value_len);
	int err = 0;

	if (len > TUX3_XATTR_SIZE_MAX)
		return -EIO;
	if (size && !entry->pieces)
		memcpy(value, entry->name + entry->len, min_t(size_t, size, len));
	else if (size)
		err = pieces_read(inode, entry, value, size);
	return err ? err : len;
}

static bool xattr_is_named(const struct disk_xattr *entry, const char *name, u32 len)
{
	return entry->len == len && !memcmp(entry->name, name, len);
}

static int tree_get(struct tux3_inode *inode, u64 hash, const char *name, u32 name_len, void *value, size_t size)
{
	struct volume *vol = inode->vol;
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_XATTR, hash);
	u32 max = TUX3_ITEM_MAX(vol->block_size);
	u8 *bytes = kvmalloc(max, GFP_NOFS);
	const struct disk_xattr *entry;
	int len, result = -ENODATA;
	struct chain chain;

	if (!bytes)
		return -ENOMEM;
	len = tree_lookup(vol, &key, bytes, max);
	if (len < 0 && len != -ENOENT)
		result = len;
	chain = chain_of(bytes, max(len, 0));
	while ((entry = chain_next_xattr(&chain))) {
		if (xattr_is_named(entry, name, name_len)) {
			result = entry_read(inode, entry, value, size);
			break;
		}
	}
	if (chain.bad) {
		inode_warn(vol, "file", inode->ino, " has an extended attribute that is not valid");
		result = -EIO;
	}
	kvfree(bytes);
	return result;
}

static bool has_xattrs(struct tux3_inode *inode)
{
	bool has;

	spin_lock(&inode->lock);
	has = inode->attr.flags & TUX3_ATTR_XATTRS;
	spin_unlock(&inode->lock);
	return has;
}

int xattr_get(struct tux3_inode *inode, const char *name, void *value, size_t size)
{
	u32 len = strlen(name);
	struct xattr_change *change;
	int result;
	u64 hash;

	if (!has_xattrs(inode) || len > TUX3_NAME_MAX)
		return -ENODATA;
	hash = xattr_hash(inode, name, len);
	mutex_lock(&inode->xattr_mutex);
	change = change_find(inode, hash, name, len);
	if (change) {
		struct xattr_value *now = &change->slot[change->newest];

		result = now->present ? (int)now->size : -ENODATA;
		if (now->present && size && now->size)
			memcpy(value, now->data, min_t(size_t, size, now->size));
		mutex_unlock(&inode->xattr_mutex);
		return result;
	}
	mutex_unlock(&inode->xattr_mutex);
	return tree_get(inode, hash, name, len, value, size);
}

/* ---- listing ---- */

struct xattr_listing {
	struct tux3_inode *inode;
	char *names;		/* length byte, then the name, one after another */
	u32 used, size;
};

static int listing_add(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	struct xattr_listing *list = ctx;
	const struct disk_xattr *entry;

	while ((entry = chain_next_xattr(&chain))) {
		if (list->used + 1 + entry->len > list->size)
			return -E2BIG;
		list->names[list->used] = entry->len;
		memcpy(list->names + list->used + 1, entry->name, entry->len);
		list->used += 1 + entry->len;
	}
	return chain.bad ? -EIO : 0;
}

/* The names of the tree that have no change, and those that changes give; xattr_mutex held. */
static int list_merge(struct xattr_listing *list, xattr_fn fn, void *ctx)
{
	struct tux3_inode *inode = list->inode;
	struct xattr_change *change;
	int err = 0;
	u32 at;

	lockdep_assert_held(&inode->xattr_mutex);
	for (change = change_of(rb_first(&inode->xattrs)); change && !err; change = change_next(change))
		if (change->slot[change->newest].present)
			err = fn(ctx, change->name, change->len);
	for (at = 0; at < list->used && !err; at += 1 + (u8)list->names[at]) {
		const char *name = list->names + at + 1;
		u8 len = list->names[at];

		if (!change_find(inode, xattr_hash(inode, name, len), name, len))
			err = fn(ctx, name, len);
	}
	return err;
}

static u64 changes_done(struct tux3_inode *inode)
{
	u64 done;

	mutex_lock(&inode->xattr_mutex);
	done = inode->xattrs_done;
	mutex_unlock(&inode->xattr_mutex);
	return done;
}

int xattr_list(struct tux3_inode *inode, xattr_fn fn, void *ctx)
{
	struct tree_key from = tree_key(inode->ino, TUX3_ITEM_XATTR, 0);
	struct tree_key to = tree_key(inode->ino, TUX3_ITEM_XATTR, U64_MAX);
	struct xattr_listing list = { .inode = inode, .size = TUX3_XATTR_SIZE_MAX * 4 };
	bool merged = false;
	u64 done;
	int err;

	if (!has_xattrs(inode))
		return 0;
	list.names = kvmalloc(list.size, GFP_NOFS);
	if (!list.names)
		return -ENOMEM;
	/*
	 * What is applied and dropped after the tree was read would be missing: then again.  That can happen twice at
	 * most, since nobody makes changes meanwhile (the host's lock).
	 */
	do {
		done = changes_done(inode);
		list.used = 0;
		err = tree_scan(inode->vol, &from, &to, listing_add, &list);
		if (err)
			break;
		mutex_lock(&inode->xattr_mutex);
		merged = done == inode->xattrs_done;
		if (merged)
			err = list_merge(&list, fn, ctx);
		mutex_unlock(&inode->xattr_mutex);
	} while (!merged);
	kvfree(list.names);
	return err;
}

/* ---- room: names whose hashes collide share an item, and a commit must not be the one to find it full ---- */

static u32 entry_room(struct volume *vol, u32 name_len, u64 size)
{
	u32 head = sizeof(struct disk_xattr) + name_len;
	u32 blocks = space_value_blocks(vol, size);

	return head + (blocks ? blocks * sizeof(struct disk_xattr_piece) : size);
}

/* Whatever the tree has of this change while a delta is applied; xattr_mutex held. */
static u32 change_room(struct tux3_inode *inode, const struct xattr_change *change)
{
	u32 room = 0, i;

	lockdep_assert_held(&inode->xattr_mutex);
	for (i = 0; i < 2; i++)
		if (change->slot[i].present)
			room = max(room, entry_room(inode->vol, change->len, change->slot[i].size));
	return room;
}

/* What the changes under way with this hash may need, but for that of this name. */
static u32 changes_room(struct tux3_inode *inode, u64 hash, const char *name, u32 len)
{
	struct xattr_change *change;
	u32 room = 0;
	bool exact;

	mutex_lock(&inode->xattr_mutex);
	change = change_from(inode, hash, NULL, 0, &exact);	/* names have at least a byte */
	for (; change && change->hash == hash; change = change_next(change))
		if (change->len != len || memcmp(change->name, name, len))
			room += change_room(inode, change);
	mutex_unlock(&inode->xattr_mutex);
	return room;
}

/* Bytes of the entries with other names in the chain of this hash. */
static int chain_measure(struct tux3_inode *inode, u64 hash, const char *name, u32 name_len, u32 *others)
{
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_XATTR, hash);
	u32 max = TUX3_ITEM_MAX(inode->vol->block_size);
	u8 *bytes = kvmalloc(max, GFP_NOFS);
	const struct disk_xattr *entry;
	struct chain chain;
	int len;

	if (!bytes)
		return -ENOMEM;
	len = tree_lookup(inode->vol, &key, bytes, max);
	chain = chain_of(bytes, max(len, 0));
	*others = 0;
	while ((entry = chain_next_xattr(&chain)))
		if (!xattr_is_named(entry, name, name_len))
			*others += chain.size;
	kvfree(bytes);
	if (chain.bad)
		return -EIO;
	return len < 0 && len != -ENOENT ? len : 0;
}

/*
 * Outside a delta: is there room for the value?  What has been changed and what the tree holds is counted, in this order:
 * in between it can only go from here to there.  Some is then counted twice: before that counts, there is a commit.
 */
static int set_room(struct tux3_inode *inode, const char *name, size_t size)
{
	struct volume *vol = inode->vol;
	u32 len = strlen(name), need = entry_room(vol, len, size), pending, others, tries;
	u64 hash = xattr_hash(inode, name, len);
	int err = 0;

	if (!has_xattrs(inode))
		return 0;
	for (tries = 0; tries < 2 && !err; tries++) {
		pending = changes_room(inode, hash, name, len);
		err = chain_measure(inode, hash, name, len, &others);
		if (!err && pending + others + need <= TUX3_ITEM_MAX(vol->block_size))
			return 0;
		if (!err)
			err = tries ? -ENOSPC : delta_commit(vol);
	}
	return err;
}

/* ---- changing ---- */

static size_t value_bytes(struct volume *vol, size_t size)
{
	return size > TUX3_XATTR_INLINE_MAX ? round_up(size, (size_t)vol->block_size) : size;
}

static u8 *value_copy(struct volume *vol, const void *value, size_t size)
{
	u8 *data = kvzalloc(max_t(size_t, value_bytes(vol, size), 1), GFP_NOFS);

	if (data && size)
		memcpy(data, value, size);
	return data;
}

static int set_check(struct tux3_inode *inode, const char *name, const void *value, size_t size, unsigned int flags)
{
	u32 len = strlen(name);
	int old;

	if (!len || len > TUX3_NAME_MAX)
		return -ERANGE;
	if (size > TUX3_XATTR_SIZE_MAX)
		return -E2BIG;
	if (value && !flags)
		return 0;
	old = xattr_get(inode, name, NULL, 0);
	if (old < 0 && old != -ENODATA)
		return old;
	if (flags & XATTR_OP_CREATE && old >= 0)
		return -EEXIST;
	return (flags & XATTR_OP_REPLACE || !value) && old < 0 ? -ENODATA : 0;
}

static struct xattr_change *change_new(struct tux3_inode *inode, const char *name)
{
	u32 len = strlen(name);
	struct xattr_change *change = kzalloc(sizeof(*change) + len + 1, GFP_NOFS);

	if (!change)
		return NULL;
	change->len = len;
	memcpy(change->name, name, len);
	change->hash = xattr_hash(inode, name, len);
	return change;
}

/* Insert it, unless there is one of this name: then that is returned.  xattr_mutex held. */
static struct xattr_change *change_insert(struct tux3_inode *inode, struct xattr_change *new)
{
	struct rb_node **link = &inode->xattrs.rb_node, *parent = NULL;

	lockdep_assert_held(&inode->xattr_mutex);
	while (*link) {
		struct xattr_change *change = change_of(*link);
		int order = change_compare(change, new->hash, new->name, new->len);

		if (!order)
			return change;
		parent = *link;
		link = order < 0 ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&new->node, parent, link);
	rb_insert_color(&new->node, &inode->xattrs);
	return new;
}

static s64 value_own_bytes(struct volume *vol, size_t size)
{
	return size > TUX3_XATTR_INLINE_MAX ? value_bytes(vol, size) : 0;
}

/* Outside a delta: where the front one has its half of what large values may take in memory, wait until it is committed. */
static int set_wait(struct volume *vol, size_t size)
{
	struct delta_state *delta = &vol->delta;
	s64 limit = READ_ONCE(vol->opts.dirty_bytes) / 2;

	if (size <= TUX3_XATTR_INLINE_MAX || atomic64_read(&delta->value_bytes[READ_ONCE(delta->front) & 1]) < limit)
		return 0;
	count_add(vol, TUX3_COUNT_ENTER_WAITS, 1);
	return delta_commit(vol);
}

/* Takes over data; returns new if it was not needed. */
static struct xattr_change *change_set(struct delta_op *op, struct tux3_inode *inode, struct xattr_change *new, u8 *data,
				       u32 size)
{
	struct volume *vol = inode->vol;
	unsigned int n = op->delta & 1;
	struct xattr_change *change;
	struct xattr_value *slot;
	s64 own;

	mutex_lock(&inode->xattr_mutex);
	change = change_insert(inode, new);
	slot = &change->slot[n];
	if (slot->dirty)
		delta_add_dirty_bytes(op, (s64)value_bytes(vol, size) - (s64)value_bytes(vol, slot->size));
	else
		delta_add_change(op, sizeof(*change) + change->len + value_bytes(vol, size));
	own = value_own_bytes(vol, size) - value_own_bytes(vol, slot->size);
	if (own)
		atomic64_add(own, &vol->delta.value_bytes[n]);
	kvfree(slot->data);
	*slot = (struct xattr_value){ .dirty = true, .present = data, .size = size, .data = data };
	change->newest = n;
	inode_mark_dirty(op, inode, INODE_DIRTY_XATTRS);
	mutex_unlock(&inode->xattr_mutex);
	return change == new ? NULL : new;
}

/*
 * What the value takes besides, of blocks, than the one that it replaces.  *less: it takes fewer.  A new inode gets its ACL before
 * its name, and a commit may come between: so that counts as an inode here, and no more when it gets the name.
 */
static int value_more(struct tux3_inode *inode, const char *name, u64 blocks, struct quota_amount *more, bool *less)
{
	struct volume *vol = inode->vol;
	bool unknown = inode_is_unknown(inode);
	int old = 0;

	*less = false;
	if (blocks || unknown)
		old = inode_quota_attach(inode, NULL);
	if (old || !inode->owner)
		return old;
	more->inodes = unknown;
	if (!blocks && !inode_quota_counts(inode))
		return 0;
	old = xattr_get(inode, name, NULL, 0);
	if (old < 0 && old != -ENODATA)
		return old;
	more->blocks = (s64)blocks - space_value_blocks(vol, max(old, 0));
	*less = more->blocks < 0;
	more->blocks = max_t(s64, more->blocks, 0);
	return *less ? inode_quota_read(inode) : 0;
}

/* How far below zero it may go.  An ACL that goes with a new mode takes the place of one: chmod is not refused. */
static unsigned int set_enters(struct tux3_inode *inode, const char *name, bool value, size_t size, const u32 *new_mode)
{
	if (!value)
		return DELTA_FREES;
	return new_mode && xattr_get(inode, name, NULL, 0) >= (int)size ? DELTA_KEEPS : 0;
}

/*
 * What is due of its cost: the attributes, unless the delta has changed them; and paths, where these are not paid.  What is in a
 * new inode has no path.  Blocks of an inode are counted for its owner, and so is a new one: without them, that is not to be paid.
 */
struct xattr_look {
	struct paid_look leaves;
	bool entry, attr, uncounted;
};

static u64 set_due(const struct xattr_look *look, u64 delta, u64 cost, struct tux3_inode *inode)
{
	struct volume *vol = inode->vol;
	u32 beside = 0;
	bool paid;

	if (likely(!space_is_tight(&vol->space, delta)))
		return cost;
	paid = inode_attr_is_paid(inode, delta);
	if (inode_is_new(inode, delta))
		beside = SPACE_ITEMS_XATTR - paid;
	else if (paid_holds(&look->leaves, delta))
		beside = look->entry + (look->attr && !paid);
	if (!look->uncounted)		/* that needs an item, see space_cost_items() */
		return cost - space_cost_items(vol, paid);
	return space_cost_uncounted(cost - space_cost_items(vol, paid + beside) + space_cost_beside(beside));
}

/* The host's lock keeps others from changing its attributes. */
static void set_look(struct xattr_look *look, struct tux3_inode *inode, const char *name, u32 blocks)
{
	struct volume *vol = inode->vol;
	struct tree_key key;

	paid_begin(vol, &look->leaves);
	look->entry = look->attr = look->uncounted = false;
	if (likely(!space_is_tight(&vol->space, READ_ONCE(vol->delta.front))))
		return;
	look->uncounted = !blocks && (!inode->owner || (!inode_is_unknown(inode) &&
							!space_value_blocks(vol, max(xattr_get(inode, name, NULL, 0), 0))));
	if (!look->uncounted || inode_is_new(inode, look->leaves.delta))
		look->leaves.delta = 0;
	if (!look->leaves.delta)
		return;
	key = tree_key(inode->ino, TUX3_ITEM_XATTR, xattr_hash(inode, name, strlen(name)));
	look->entry = paid_items(vol, &look->leaves, &key, &key, 1);
	look->attr = paid_attr(vol, &look->leaves, inode->ino);
}

/* The value has so many blocks. */
static int set_enter(struct tux3_inode *inode, struct delta_op *op, const char *name, u32 blocks, u64 cost,
		     unsigned int flags, struct quota_charge *charge)
{
	struct xattr_look look;
	u64 due = cost;
	int err;

	set_look(&look, inode, name, blocks);
	/* Who is charged something enters with all of it: that is not undone. */
	if (!charge->amount.blocks && !charge->amount.inodes)
		due = set_due(&look, READ_ONCE(inode->vol->delta.front), cost, inode);
	for (;;) {
		err = inode_quota_enter(inode, op, due, flags, charge);
		if (err || delta_settle(op, due, set_due(&look, op->delta, cost, inode)))
			break;
		due = cost;
	}
	if (!err)
		paid_keep(op, &look.leaves);
	return err;
}

int xattr_set(struct tux3_inode *inode, const char *name, const void *value, size_t size, unsigned int flags,
	      const u32 *new_mode)
{
	struct volume *vol = inode->vol;
	struct tux3_time now = inode_now(vol);
	u64 cost = space_cost_xattr(vol, strlen(name), value ? size : 0);
	unsigned int enter;
	struct quota_charge charge = {};
	struct xattr_change *change;
	struct tux3_attr *attr;
	struct delta_op op;
	bool less = false;
	u8 *data = NULL;
	int err = set_check(inode, name, value, size, flags);

	if (!err)
		err = value_more(inode, name, space_value_blocks(vol, size), &charge.amount, &less);
	if (!err && value)
		err = set_room(inode, name, size);
	if (!err && value)
		err = set_wait(vol, size);
	if (err)
		return err;
	change = change_new(inode, name);
	if (value)
		data = value_copy(vol, value, size);
	enter = set_enters(inode, name, value, size, new_mode);
	err = -ENOMEM;
	if (change && (data || !value))
		err = set_enter(inode, &op, name, value ? space_value_blocks(vol, size) : 0, cost, enter, &charge);
	if (err) {
		kvfree(data);
		kfree(change);
		return err;
	}
	if (unlikely(less))
		inode_quota_frees(&op, inode, false);
	change = change_set(&op, inode, change, data, value ? size : 0);
	attr = inode_change_begin(&op, inode);
	attr->ctime = now;
	WRITE_ONCE(attr->flags, attr->flags | TUX3_ATTR_XATTRS);
	if (new_mode)
		WRITE_ONCE(attr->mode, (attr->mode & S_IFMT) | (*new_mode & ~S_IFMT));
	inode_change_end(inode);
	delta_leave(&op);
	kfree(change);
	return 0;
}

/* ---- back end, and intents ---- */

/* Find blocks for a large value, in as few pieces as there are, and submit it. */
static int pieces_write(struct tux3_inode *inode, const struct xattr_value *value, struct disk_xattr_piece *pieces,
			u8 *count, struct io_wait *wait)
{
	struct volume *vol = inode->vol;
	u32 left = space_value_blocks(vol, value->size), run;
	const u8 *data = value->data;
	u64 addr;
	int err;

	for (*count = 0; left; (*count)++) {
		err = balloc_alloc(vol, BALLOC_DATA, inode->goal, 1, left, &addr, &run);
		if (err)
			return err;
		device_write(vol->dev, addr, data, run, 0, wait);
		put_unaligned_le64(addr, &pieces[*count].addr);
		put_unaligned_le32(run, &pieces[*count].len);
		count_add(vol, TUX3_COUNT_DATA_BLOCKS, run);
		data += (size_t)run << vol->block_shift;
		left -= run;
	}
	return 0;
}

#define RECORD_HEAD (offsetof(struct record_xattr, entry) + sizeof(struct disk_xattr))

/* Of the record of a change, without the pieces of a value that has blocks of its own. */
static u32 change_bytes(const struct xattr_change *change, const struct xattr_value *value)
{
	u32 bytes = RECORD_HEAD + change->len;

	return value->present && value->size <= TUX3_XATTR_INLINE_MAX ? bytes + value->size : bytes;
}

/* So many bytes. */
static void change_record(struct tux3_inode *inode, const struct xattr_change *change, const struct xattr_value *value,
			  struct record_xattr *record)
{
	memset(record, 0, RECORD_HEAD);
	record->ino = cpu_to_le64(inode->ino);
	record->hash = cpu_to_le64(change->hash);
	record->entry.len = change->len;
	memcpy(record->entry.name, change->name, change->len);
	if (!value->present)
		return;
	record->entry.value_len = cpu_to_le32(value->size);
	record->entry.value_crc = cpu_to_le32(crc32c(~0u, value->data, value->size));
	if (value->size <= TUX3_XATTR_INLINE_MAX)
		memcpy(record->entry.name + change->len, value->data, value->size);
}

static enum tux3_record_type change_type(const struct xattr_value *value)
{
	return value->present ? TUX3_RECORD_XATTR_SET : TUX3_RECORD_XATTR_DELETE;
}

/* Log one change. */
static int change_commit(struct tux3_inode *inode, struct xattr_change *change, const struct xattr_value *value,
			 struct io_wait *wait)
{
	struct volume *vol = inode->vol;
	struct tree_key key = tree_key(inode->ino, TUX3_ITEM_XATTR, change->hash);
	struct disk_xattr_piece pieces[TUX3_XATTR_SIZE_MAX >> TUX3_MIN_BLOCK_SHIFT];
	struct record_xattr *record = kmalloc(change_bytes(change, value), GFP_COMMIT);
	u32 tail = 0;
	int err = 0;

	if (!record)
		return -ENOMEM;
	change_record(inode, change, value, record);
	if (value->present && value->size > TUX3_XATTR_INLINE_MAX) {
		err = pieces_write(inode, value, pieces, &record->entry.pieces, wait);
		tail = record->entry.pieces * sizeof(*pieces);
	}
	if (!err)
		err = log_record_at(vol, &key, change_type(value), record, change_bytes(change, value), pieces, tail);
	kfree(record);
	return err;
}

/* What cannot be read cannot be edited: it is looked before anything is placed or logged. */
static int change_commit_looked(struct tux3_inode *inode, struct xattr_change *change, const struct xattr_value *value,
				xattr_look_fn look, struct io_wait *wait, bool *lost)
{
	int err = look(inode, change->hash);

	if (unlikely(err == -EIO)) {
		*lost = true;
		return 0;
	}
	return err ? err : change_commit(inode, change, value, wait);
}

int xattr_commit(struct tux3_inode *inode, u64 delta, xattr_look_fn look, struct io_wait *wait, bool *lost)
{
	struct xattr_change *change;
	int err = 0;

	lockdep_assert_held(&inode->vol->delta.commit_mutex);
	/*
	 * Changes are removed only by xattr_done, and the front end only adds some and writes the other slot: so the
	 * mutex is needed for following the links only.
	 */
	mutex_lock(&inode->xattr_mutex);
	for (change = change_of(rb_first(&inode->xattrs)); change; change = change_next(change)) {
		struct xattr_value *value = &change->slot[delta & 1];

		if (!value->dirty)
			continue;
		mutex_unlock(&inode->xattr_mutex);
		err = change_commit_looked(inode, change, value, look, wait, lost);
		cond_resched();
		mutex_lock(&inode->xattr_mutex);
		if (err)
			break;
	}
	mutex_unlock(&inode->xattr_mutex);
	return err;
}

/* The mutex is not held while the tree is read, so changes may go meanwhile. */
int xattr_look(struct tux3_inode *inode, xattr_look_fn look)
{
	struct xattr_change *change;
	u64 hash = 0;
	bool exact;
	int err = 0;

	while (!err) {
		mutex_lock(&inode->xattr_mutex);
		change = change_from(inode, hash, NULL, 0, &exact);
		if (change)
			hash = change->hash;
		mutex_unlock(&inode->xattr_mutex);
		if (!change)
			break;
		err = look(inode, hash);
		if (!++hash)
			break;
	}
	return err;
}

/* One of them: bytes, or -EAGAIN. */
static int pending_record(struct tux3_inode *inode, const struct xattr_change *change, void *to, u32 room, u64 *cost)
{
	const struct xattr_value *now = &change->slot[change->newest];
	u32 len = change_bytes(change, now);

	if ((now->present && now->size > TUX3_XATTR_INLINE_MAX) || log_record_size(len) > room)
		return -EAGAIN;
	if (to)
		change_record(inode, change, now, log_begin_record(to, change_type(now), len));
	if (!space_cost_add(cost, space_cost_xattr(inode->vol, change->len, now->present ? now->size : 0)))
		return -EAGAIN;
	return log_record_size(len);
}

int xattr_pending(struct tux3_inode *inode, void *to, u32 room, u64 *cost)
{
	struct xattr_change *change;
	int used = 0, got = 0;

	mutex_lock(&inode->xattr_mutex);
	for (change = change_of(rb_first(&inode->xattrs)); change && got >= 0; change = change_next(change)) {
		got = pending_record(inode, change, to ? (u8 *)to + used : NULL, room - used, cost);
		used += got;
	}
	mutex_unlock(&inode->xattr_mutex);
	return got < 0 ? got : used;
}

void xattr_done(struct tux3_inode *inode, u64 delta)
{
	struct xattr_change *change, *next;
	u32 n = 0;

	lockdep_assert_held(&inode->vol->delta.commit_mutex);
	mutex_lock(&inode->xattr_mutex);
	inode->xattrs_done++;
	for (change = change_of(rb_first(&inode->xattrs)); change; change = next) {
		next = change_next(change);
		value_free(&change->slot[delta & 1]);
		if (!change->slot[0].dirty && !change->slot[1].dirty) {
			rb_erase(&change->node, &inode->xattrs);
			change_free(change);
		}
		if (!(++n % 1024))
			cond_resched();
	}
	mutex_unlock(&inode->xattr_mutex);
}

void xattr_free(struct tux3_inode *inode)
{
	struct xattr_change *change, *next;

	rbtree_postorder_for_each_entry_safe(change, next, &inode->xattrs, node)
		change_free(change);
	inode->xattrs = RB_ROOT;
}

bool xattr_has_changes(struct tux3_inode *inode, u64 delta)
{
	struct xattr_change *change;
	bool dirty = false;

	mutex_lock(&inode->xattr_mutex);
	for (change = change_of(rb_first(&inode->xattrs)); change && !dirty; change = change_next(change))
		dirty = change->slot[delta & 1].dirty;
	mutex_unlock(&inode->xattr_mutex);
	return dirty;
}
