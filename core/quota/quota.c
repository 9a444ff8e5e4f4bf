// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Quotas in memory, described in quota.h: who has one, what is reserved, and what a commit makes of it.
 */
#include "core/volume.h"
#include "core/quota/quota.h"
#include "core/tree/tree.h"

static struct tree_key quota_key(u32 type, u32 id)
{
	return tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER + type, id);
}

/* ---- the table ---- */

static int quota_compare(const struct quota *quota, u32 type, u32 id)
{
	if (quota->type != type)
		return quota->type < type ? -1 : 1;
	return quota->id < id ? -1 : quota->id > id;
}

static int owner_compare(const struct quota_owner *owner, const u32 *id)
{
	int i;

	for (i = 0; i < QUOTA_KINDS - 1 && owner->id[i] == id[i]; i++)
		;
	return owner->id[i] < id[i] ? -1 : owner->id[i] > id[i];
}

/* With table.lock: the one that there is, or fresh, inserted; fresh may be NULL. */
static struct quota *quota_find(struct quota_table *table, u32 type, u32 id, struct quota *fresh)
{
	struct rb_node **link = &table->quotas.rb_node, *parent = NULL;

	lockdep_assert_held(&table->lock);
	while (*link) {
		struct quota *quota = rb_entry(*link, struct quota, node);
		int order = quota_compare(quota, type, id);

		if (!order)
			return quota;
		parent = *link;
		link = order < 0 ? &parent->rb_right : &parent->rb_left;
	}
	if (fresh) {
		rb_link_node(&fresh->node, parent, link);
		rb_insert_color(&fresh->node, &table->quotas);
	}
	return fresh;
}

static struct quota_owner *owner_find(struct quota_table *table, const u32 *id, struct quota_owner *fresh)
{
	struct rb_node **link = &table->owners.rb_node, *parent = NULL;

	lockdep_assert_held(&table->lock);
	while (*link) {
		struct quota_owner *owner = rb_entry(*link, struct quota_owner, node);
		int order = owner_compare(owner, id);

		if (!order)
			return owner;
		parent = *link;
		link = order < 0 ? &parent->rb_right : &parent->rb_left;
	}
	if (fresh) {
		rb_link_node(&fresh->node, parent, link);
		rb_insert_color(&fresh->node, &table->owners);
	}
	return fresh;
}

struct quota *quota_hold(struct volume *vol, u32 type, u32 id)
{
	struct quota *quota, *fresh = NULL;

	for (;;) {
		spin_lock(&vol->quota.lock);
		quota = quota_find(&vol->quota, type, id, fresh);
		if (quota)
			atomic_inc(&quota->refs);
		spin_unlock(&vol->quota.lock);
		if (quota)
			break;
		fresh = kzalloc(sizeof(*fresh), GFP_NOFS);
		if (!fresh)
			return NULL;
		spin_lock_init(&fresh->lock);
		fresh->type = type;
		fresh->id = id;
	}
	if (quota != fresh)
		kfree(fresh);
	return quota;
}

/* One reference of several.  false: it is the last, and goes with table.lock. */
static bool refs_drop(atomic_t *refs)
{
	int now = atomic_read(refs), was;

	for (; now > 1; now = was) {
		was = atomic_cmpxchg(refs, now, now - 1);
		if (was == now)
			return true;
	}
	return false;
}

void quota_put(struct volume *vol, struct quota *quota)
{
	bool last;

	if (!quota || refs_drop(&quota->refs))
		return;
	spin_lock(&vol->quota.lock);
	last = atomic_dec_and_test(&quota->refs);
	if (last)
		rb_erase(&quota->node, &vol->quota.quotas);
	spin_unlock(&vol->quota.lock);
	if (last)
		kfree(quota);
}

static void owner_free(struct volume *vol, struct quota_owner *owner)
{
	int i;

	for (i = 0; i < QUOTA_KINDS; i++)
		quota_put(vol, owner->quota[i]);
	kfree(owner);
}

static struct quota_owner *owner_new(struct volume *vol, const u32 *id)
{
	struct quota_owner *owner = kzalloc(sizeof(*owner), GFP_NOFS);
	bool whole = owner;
	int i;

	for (i = 0; owner && i < QUOTA_KINDS; i++) {
		owner->id[i] = id[i];
		owner->quota[i] = quota_hold(vol, i, id[i]);
		whole &= owner->quota[i] != NULL;
	}
	if (!owner || whole)
		return owner;
	owner_free(vol, owner);
	return NULL;
}

struct quota_owner *quota_owner_get(struct volume *vol, const u32 *id)
{
	struct quota_owner *owner, *fresh = NULL;

	for (;;) {
		spin_lock(&vol->quota.lock);
		owner = owner_find(&vol->quota, id, fresh);
		if (owner)
			atomic_inc(&owner->refs);
		spin_unlock(&vol->quota.lock);
		if (owner)
			break;
		fresh = owner_new(vol, id);
		if (!fresh)
			return NULL;
	}
	if (fresh && owner != fresh)
		owner_free(vol, fresh);
	return owner;
}

void quota_owner_put(struct volume *vol, struct quota_owner *owner)
{
	bool last;

	if (!owner || refs_drop(&owner->refs))
		return;
	spin_lock(&vol->quota.lock);
	last = atomic_dec_and_test(&owner->refs);
	if (last)
		rb_erase(&owner->node, &vol->quota.owners);
	spin_unlock(&vol->quota.lock);
	if (last)
		owner_free(vol, owner);
}

void quota_owner_deletes(struct quota_owner *owner, int more)
{
	int i;

	for (i = 0; owner && i < QUOTA_KINDS; i++)
		atomic_add(more, &owner->quota[i]->deleting);
}

int quota_init(struct volume *vol)
{
	struct quota_table *table = &vol->quota;
	int i;

	spin_lock_init(&table->lock);
	table->quotas = table->owners = RB_ROOT;
	for (i = 0; i < 2; i++)
		init_llist_head(&table->changed[i]);
	if (!(vol->feature_ro_compat & TUX3_FEATURE_RO_COMPAT_QUOTA))
		return 0;
	for (i = 0; i < QUOTA_KINDS; i++) {
		table->zero[i] = quota_hold(vol, i, 0);
		if (!table->zero[i])
			return -ENOMEM;
	}
	return 0;
}

/* Those whose delta will not be committed any more. */
static void quota_drop_changed(struct volume *vol, unsigned int n)
{
	struct quota *quota, *next;

	llist_for_each_entry_safe(quota, next, llist_del_all(&vol->quota.changed[n]), slot[n].node)
		quota_put(vol, quota);
}

void quota_exit(struct volume *vol)
{
	int i;

	for (i = 0; i < 2; i++)
		quota_drop_changed(vol, i);
	for (i = 0; i < QUOTA_KINDS; i++)
		quota_put(vol, vol->quota.zero[i]);
	WARN_ON_ONCE(!RB_EMPTY_ROOT(&vol->quota.quotas) || !RB_EMPTY_ROOT(&vol->quota.owners));
}

/* ---- reading ---- */

/* What an item says is used.  A damaged one may say anything: then it is more than there can be, and sums are numbers still. */
static s64 used_of(__le64 used)
{
	return min_t(u64, le64_to_cpu(used), S64_MAX / 4);
}

static struct quota_limits limits_of(const struct disk_quota *item)
{
	return (struct quota_limits){
		.blocks_soft = le64_to_cpu(item->blocks_soft), .blocks_hard = le64_to_cpu(item->blocks_hard),
		.inodes_soft = le64_to_cpu(item->inodes_soft), .inodes_hard = le64_to_cpu(item->inodes_hard),
		.blocks_time = le64_to_cpu(item->blocks_time), .inodes_time = le64_to_cpu(item->inodes_time),
	};
}

/* Id 0 is who has no limits: the superuser, and what belongs to no project. */
static u32 mode_of(const struct quota *quota)
{
	const struct quota_limits *limits = &quota->limits;

	return quota->id && (limits->blocks_soft | limits->blocks_hard | limits->inodes_soft | limits->inodes_hard) ?
	       QUOTA_LIMITED : QUOTA_FREE;
}

static int quota_load_one(struct volume *vol, struct quota *quota)
{
	struct tree_key key = quota_key(quota->type, quota->id);
	struct disk_quota item = {};
	int len;

	if (READ_ONCE(quota->mode) != QUOTA_UNKNOWN)
		return 0;
	len = tree_lookup(vol, &key, &item, sizeof(item));
	if (len < 0 && len != -ENOENT)
		return len;
	if (len != -ENOENT && len != sizeof(item)) {
		volume_warn(vol, "quota item of type %u, id %u has %d bytes instead of %zu", TUX3_ITEM_QUOTA_USER + quota->type,
			    quota->id, len, sizeof(item));
		return -EIO;
	}
	spin_lock(&quota->lock);
	if (quota->mode == QUOTA_UNKNOWN) {
		if (!quota->known)	/* else a commit has changed it since, perhaps after we looked */
			quota->tree = item;
		quota->known = true;
		quota->limits = limits_of(&quota->tree);
		quota->blocks = used_of(quota->tree.blocks);
		quota->inodes = used_of(quota->tree.inodes);
		smp_store_release(&quota->mode, mode_of(quota));
	}
	spin_unlock(&quota->lock);
	return 0;
}

int quota_look(struct volume *vol, const u32 *id, u64 delta)
{
	struct tree_look look = { .delta = delta, .goes = true };
	int i, err = 0;

	for (i = 0; i < QUOTA_KINDS && !err; i++) {
		struct tree_key key = tree_key(TUX3_INO_VOLUME, TUX3_ITEM_QUOTA_USER + i, id[i]);

		err = tree_look_for(vol, &key, &key, &look);
	}
	return err;
}

int quota_load(struct volume *vol, struct quota *quota)
{
	int err = quota_load_one(vol, vol->quota.zero[quota->type]);

	return err ? err : quota_load_one(vol, quota);
}

static int next_found(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	*(u64 *)ctx = key->offset;
	return 1;
}

int quota_next(struct volume *vol, u32 type, u32 *id)
{
	struct tree_key from = quota_key(type, *id), to = quota_key(type, U32_MAX);
	u64 found = 0;
	int got = tree_scan(vol, &from, &to, next_found, &found);

	if (got < 0)
		return got;
	*id = found;
	return got ? 0 : -ENOENT;
}

/* ---- the front end ---- */

/* With quota->lock: a commit is to look at it. */
static void quota_list(struct volume *vol, struct quota *quota, unsigned int n)
{
	lockdep_assert_held(&quota->lock);
	if (quota->slot[n].listed)
		return;
	quota->slot[n].listed = true;
	atomic_inc(&quota->refs);
	llist_add(&quota->slot[n].node, &vol->quota.changed[n]);
}

static u64 grace(struct volume *vol, u32 type, bool inodes)
{
	struct quota_limits *limits = &vol->quota.zero[type]->limits;
	u64 seconds = inodes ? READ_ONCE(limits->inodes_time) : READ_ONCE(limits->blocks_time);

	return seconds ? seconds : QUOTA_GRACE;
}

static bool above(s64 used, u64 limit)
{
	return limit && used > 0 && (u64)used > limit;
}

static bool reached(s64 used, u64 limit)
{
	return limit && used > 0 && (u64)used >= limit;
}

static bool may_use(s64 used, s64 more, u64 soft, u64 hard, u64 time, u64 now)
{
	return more <= 0 || (!above(used + more, hard) && !(time && now >= time && above(used + more, soft)));
}

/* With quota->lock: used + reserved. */
static s64 granted_blocks(const struct quota *quota)
{
	return quota->blocks + quota->slot[0].blocks + quota->slot[1].blocks;
}

/* Without those that may turn out to be none. */
static s64 sure_blocks(const struct quota *quota)
{
	return granted_blocks(quota) - quota->slot[0].unsure - quota->slot[1].unsure;
}

static s64 granted_inodes(const struct quota *quota)
{
	return quota->inodes + quota->slot[0].inodes + quota->slot[1].inodes;
}

static bool may_reserve(const struct quota *quota, const struct quota_amount *amount, u64 now)
{
	const struct quota_limits *limits = &quota->limits;

	return may_use(granted_blocks(quota), amount->blocks, limits->blocks_soft, limits->blocks_hard, limits->blocks_time, now) &&
	       may_use(granted_inodes(quota), amount->inodes, limits->inodes_soft, limits->inodes_hard, limits->inodes_time, now);
}

/* With quota->lock. */
static void reserve(struct volume *vol, struct quota *quota, u64 delta, const struct quota_amount *amount, u64 now)
{
	struct quota_limits *limits = &quota->limits;
	struct quota_slot *slot = &quota->slot[delta & 1];

	slot->blocks += amount->blocks;
	slot->inodes += amount->inodes;
	slot->unsure += amount->unsure ? amount->blocks : 0;
	if (!limits->blocks_time && above(sure_blocks(quota), limits->blocks_soft))
		limits->blocks_time = now + grace(vol, quota->type, false);
	if (!limits->inodes_time && above(granted_inodes(quota), limits->inodes_soft))
		limits->inodes_time = now + grace(vol, quota->type, true);
	quota_list(vol, quota, delta & 1);
}

int quota_reserve(struct volume *vol, struct quota *const *quotas, u64 delta, const struct quota_amount *amount, u64 now,
		  bool force, struct quota **refused)
{
	int i, err = 0;

	for (i = 0; i < QUOTA_KINDS; i++)
		if (quotas[i])
			spin_lock_nested(&quotas[i]->lock, i);
	for (i = 0; i < QUOTA_KINDS && !err; i++)
		if (quotas[i] && !force && !may_reserve(quotas[i], amount, now)) {
			*refused = quotas[i];
			err = -EDQUOT;
		}
	for (i = 0; i < QUOTA_KINDS && !err; i++)
		if (quotas[i])
			reserve(vol, quotas[i], delta, amount, now);
	for (i = QUOTA_KINDS; i-- > 0; )
		if (quotas[i])
			spin_unlock(&quotas[i]->lock);
	return err;
}

void quota_unreserve(struct quota *quota, u64 delta, const struct quota_amount *amount)
{
	struct quota_slot *slot = &quota->slot[delta & 1];

	spin_lock(&quota->lock);
	slot->blocks -= amount->blocks;
	slot->inodes -= amount->inodes;
	slot->unsure -= amount->unsure ? amount->blocks : 0;
	spin_unlock(&quota->lock);
}

void quota_carry(struct volume *vol, struct quota *quota, s64 blocks)
{
	unsigned int n = vol->delta.front & 1;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (READ_ONCE(quota->mode) == QUOTA_FREE)
		return;
	spin_lock(&quota->lock);
	quota->slot[n].blocks += blocks;
	quota->slot[n].unsure += blocks;
	quota_list(vol, quota, n);
	spin_unlock(&quota->lock);
}

/* Of one that was not read yet, too: perhaps it has limits. */
static bool frees_noted(const struct quota *quota, u64 delta, bool blocks, bool inodes)
{
	return READ_ONCE(quota->mode) == QUOTA_FREE || ((!blocks || READ_ONCE(quota->frees_blocks) >= delta) &&
							(!inodes || READ_ONCE(quota->frees_inodes) >= delta));
}

static void note_frees(struct quota *quota, u64 delta, bool blocks, bool inodes)
{
	lockdep_assert_held(&quota->lock);
	if (blocks)
		WRITE_ONCE(quota->frees_blocks, max(quota->frees_blocks, delta));
	if (inodes)
		WRITE_ONCE(quota->frees_inodes, max(quota->frees_inodes, delta));
}

void quota_note_frees(struct volume *vol, struct quota *quota, u64 delta, bool blocks, bool inodes)
{
	if (likely(frees_noted(quota, delta, blocks, inodes)))
		return;
	spin_lock(&quota->lock);
	note_frees(quota, delta, blocks, inodes);
	quota_list(vol, quota, delta & 1);	/* it stays in memory until then */
	spin_unlock(&quota->lock);
}

void quota_note_unused(struct quota *quota, u64 delta)
{
	if (likely(frees_noted(quota, delta, true, true)))
		return;
	spin_lock(&quota->lock);
	note_frees(quota, delta, true, true);
	spin_unlock(&quota->lock);
}

enum quota_outlook quota_outlook(struct volume *vol, struct quota *quota, const struct quota_amount *amount, u64 now)
{
	u64 committed = READ_ONCE(vol->delta.committed);
	bool fits, frees;

	spin_lock(&quota->lock);
	fits = may_reserve(quota, amount, now);
	frees = (amount->inodes && quota->frees_inodes > committed) ||
		(amount->blocks && (quota->frees_blocks > committed || quota->slot[0].unsure > 0 || quota->slot[1].unsure > 0));
	spin_unlock(&quota->lock);
	if (fits)
		return QUOTA_FITS;
	if (atomic_read(&quota->deleting))
		return QUOTA_SHRINKS;
	return frees || amount->unsure || atomic_read(&vol->quota.unknown) ? QUOTA_MAY_SHRINK : QUOTA_HOPELESS;
}

void quota_granted(struct quota *quota, s64 *blocks, s64 *inodes, struct quota_limits *limits)
{
	spin_lock(&quota->lock);
	*blocks = granted_blocks(quota);
	*inodes = granted_inodes(quota);
	*limits = quota->limits;
	spin_unlock(&quota->lock);
}

void quota_why(struct quota *quota, const struct quota_amount *amount, bool *inodes, bool *hard)
{
	struct quota_limits limits;
	s64 used_blocks, used_inodes;

	quota_granted(quota, &used_blocks, &used_inodes, &limits);
	*inodes = amount->inodes > 0 && above(used_inodes + amount->inodes,
					      limits.inodes_soft ? limits.inodes_soft : limits.inodes_hard);
	*hard = *inodes ? above(used_inodes + amount->inodes, limits.inodes_hard) :
		above(used_blocks + amount->blocks, limits.blocks_hard);
}

/* When the grace ends: it goes on, begins, or is none. */
static u64 time_for(s64 used, u64 soft, u64 time, u64 otherwise)
{
	if (!above(used, soft))
		return 0;
	return time ? time : otherwise;
}

bool quota_change(struct volume *vol, struct quota *quota, u64 delta, const struct quota_limits *new, u32 set, u64 now)
{
	struct quota_slot *slot = &quota->slot[delta & 1];
	struct quota_limits *limits = &quota->limits;
	bool first;

	spin_lock(&quota->lock);
	limits->blocks_soft = set & QUOTA_SET_BLOCKS_SOFT ? new->blocks_soft : limits->blocks_soft;
	limits->blocks_hard = set & QUOTA_SET_BLOCKS_HARD ? new->blocks_hard : limits->blocks_hard;
	limits->inodes_soft = set & QUOTA_SET_INODES_SOFT ? new->inodes_soft : limits->inodes_soft;
	limits->inodes_hard = set & QUOTA_SET_INODES_HARD ? new->inodes_hard : limits->inodes_hard;
	limits->blocks_time = set & QUOTA_SET_BLOCKS_TIME ? new->blocks_time : limits->blocks_time;
	limits->inodes_time = set & QUOTA_SET_INODES_TIME ? new->inodes_time : limits->inodes_time;
	if (quota->id) {	/* as reserve() counts */
		limits->blocks_time = time_for(sure_blocks(quota), limits->blocks_soft, limits->blocks_time,
					       now + grace(vol, quota->type, false));
		limits->inodes_time = time_for(granted_inodes(quota), limits->inodes_soft, limits->inodes_time,
					       now + grace(vol, quota->type, true));
	}
	slot->set = true;
	slot->limits = *limits;
	first = quota->mode != QUOTA_LIMITED;
	smp_store_release(&quota->mode, mode_of(quota));
	quota_list(vol, quota, delta & 1);
	spin_unlock(&quota->lock);
	return first;
}

/* ---- the back end ---- */

void quota_applied(struct volume *vol, u8 item_type, u32 id, const struct disk_quota *item)
{
	struct quota *quota;

	lockdep_assert_held_write(&vol->tree.sem);
	if (!quota_kept(&vol->quota))
		return;
	spin_lock(&vol->quota.lock);
	quota = quota_find(&vol->quota, item_type - TUX3_ITEM_QUOTA_USER, id, NULL);
	if (quota)
		atomic_inc(&quota->refs);
	spin_unlock(&vol->quota.lock);
	if (!quota)
		return;
	spin_lock(&quota->lock);
	quota->tree = *item;
	quota->known = true;
	quota_list(vol, quota, vol->delta.applying & 1);
	spin_unlock(&quota->lock);
	quota_put(vol, quota);
}

void quota_item_settle(u32 id, struct disk_quota *item)
{
	if (!id)
		return;
	if (!above(used_of(item->blocks), le64_to_cpu(item->blocks_soft)))
		item->blocks_time = 0;
	if (!above(used_of(item->inodes), le64_to_cpu(item->inodes_soft)))
		item->inodes_time = 0;
}

void quota_item(struct volume *vol, struct quota *quota, u64 delta, u64 now, struct disk_quota *item)
{
	const struct quota_slot *slot = &quota->slot[delta & 1];
	struct quota_limits limits;

	spin_lock(&quota->lock);
	limits = slot->set ? slot->limits : limits_of(item);
	if (quota->id) {
		limits.blocks_time = time_for(used_of(item->blocks), limits.blocks_soft, limits.blocks_time,
					      quota->limits.blocks_time ? quota->limits.blocks_time :
					      now + grace(vol, quota->type, false));
		limits.inodes_time = time_for(used_of(item->inodes), limits.inodes_soft, limits.inodes_time,
					      quota->limits.inodes_time ? quota->limits.inodes_time :
					      now + grace(vol, quota->type, true));
	}
	spin_unlock(&quota->lock);
	item->blocks_soft = cpu_to_le64(limits.blocks_soft);
	item->blocks_hard = cpu_to_le64(limits.blocks_hard);
	item->inodes_soft = cpu_to_le64(limits.inodes_soft);
	item->inodes_hard = cpu_to_le64(limits.inodes_hard);
	item->blocks_time = cpu_to_le64(limits.blocks_time);
	item->inodes_time = cpu_to_le64(limits.inodes_time);
}

/* With quota->lock: what was used in this delta is known now; the other one may be the front delta, with limits of its own. */
static void quota_settle_one(struct quota *quota, unsigned int n)
{
	struct quota_slot *other = &quota->slot[!n];
	struct quota_limits *limits = &quota->limits;

	lockdep_assert_held(&quota->lock);
	if (quota->known) {
		quota->blocks = used_of(quota->tree.blocks);
		quota->inodes = used_of(quota->tree.inodes);
	}
	quota->slot[n] = (struct quota_slot){};
	if (quota->mode != QUOTA_LIMITED || other->set)
		return;
	if (quota->tree.blocks_time)
		limits->blocks_time = le64_to_cpu(quota->tree.blocks_time);
	limits->blocks_time = time_for(quota->blocks + other->blocks - other->unsure, limits->blocks_soft, limits->blocks_time, 0);
	if (quota->tree.inodes_time)
		limits->inodes_time = le64_to_cpu(quota->tree.inodes_time);
	limits->inodes_time = time_for(quota->inodes + other->inodes, limits->inodes_soft, limits->inodes_time, 0);
}

/* Of nothing above or below a limit, so of most, nothing is told. */
static void tell_crossed(struct volume *vol, const struct quota *quota, bool inodes, s64 before, s64 after, u64 soft, u64 hard)
{
	void (*told)(struct volume *, u32, u32, bool, enum quota_event) = vol->host->quota_told;

	if (above(before, soft) != above(after, soft))
		told(vol, quota->type, quota->id, inodes, above(after, soft) ? QUOTA_ABOVE_SOFT : QUOTA_BELOW_SOFT);
	if (reached(before, hard) && !reached(after, hard))
		told(vol, quota->type, quota->id, inodes, QUOTA_BELOW_HARD);
}

/*
 * That a soft limit is exceeded is told when the commit knows it, not at the operation: most blocks may turn out to be none.  One
 * message for a delta, of what is durable.
 */
void quota_settle(struct volume *vol, u64 delta)
{
	bool tells = vol->host && vol->host->quota_told && !READ_ONCE(vol->opts.no_quota), limited;
	unsigned int n = delta & 1;
	struct quota *quota, *next;

	llist_for_each_entry_safe(quota, next, llist_del_all(&vol->quota.changed[n]), slot[n].node) {
		s64 blocks, inodes, blocks_now, inodes_now;
		struct quota_limits limits;

		spin_lock(&quota->lock);
		limited = quota->mode == QUOTA_LIMITED;
		blocks = quota->blocks;
		inodes = quota->inodes;
		quota_settle_one(quota, n);
		blocks_now = quota->blocks;
		inodes_now = quota->inodes;
		limits = quota->limits;
		spin_unlock(&quota->lock);
		if (limited && tells) {
			tell_crossed(vol, quota, false, blocks, blocks_now, limits.blocks_soft, limits.blocks_hard);
			tell_crossed(vol, quota, true, inodes, inodes_now, limits.inodes_soft, limits.inodes_hard);
		}
		quota_put(vol, quota);
	}
}
