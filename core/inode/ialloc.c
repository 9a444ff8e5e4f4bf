/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inode numbers: which are in use, and which one a new inode gets.
 *
 * Bitmaps of windows of 4096 numbers, in memory only.  A window is filled from the tree when it is
 * needed.  Every number for which the tree has any item counts as used, so that an inode never inherits stray items.
 *
 * A number is *held* while it is used whatever the tree says: from being handed out until its inode is in the tree
 * (ialloc_settle), and from before its items go from there until it is given back (ialloc_hold, ialloc_free), when that
 * is durable and the inode object is gone.  Of a window in which none is held the tree knows all, so it may go:
 * the least recently used ones do when there are more than windows_max.
 *
 * Invariants
 *  1. Numbers below TUX3_INO_FIRST are set in window 0.
 *  2. A number can only be handed out while its window is in memory and filled.
 *  3. A window with numbers held is in memory, filled or not.  So what is held need not be looked for in the tree, and
 *     the bitmap may be filled without the lock.  Held numbers are set in the bitmap of a filled window.
 *     A window stays while somebody reads the tree to fill it: another one may fill it first and hand out numbers, of
 *     which what was read does not know.
 *  4. A number given back while its window is being filled does not stay set: it is noted, and overrides what was read.
 *     Nobody gets it before the window is filled.
 *  5. Numbers whose leaf cannot be read are set: nobody gets one that could not be committed.  A volume with some bad blocks
 *     so still takes new inodes, wherever else the tree has room for them.  What a leaf has to hold may become more, when one
 *     beside it goes: so once some were met that is also asked when a number was found (ialloc_look()).
 *
 * A directory holds some numbers for its next files (ialloc_new()), and takes them without a lock.  It is in the list of their
 * window, so that who wants to know about inodes that are not in the tree yet can leave these out (ialloc_held()).
 *
 * Directories go to stretches of 32 numbers of which none is in use, each behind the one before, from the
 * highest number of the tree on; files to the next free number after their parent or its last child.  Where a few windows
 * have none they go behind the highest number, too: a directory of millions is not read as a whole for the first file that a
 * mount makes in it.
 *
 * Locking: ialloc->lock; the tree is read without it.  Any thread.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/inode/ialloc.h"

#define WINDOW_SHIFT	12
#define WINDOW_NUMBERS	IALLOC_WINDOW_NUMBERS
#define WINDOW_LAST	(TUX3_INO_MAX >> WINDOW_SHIFT)
#define DIR_STRETCH	32u
#define FILL_ITEMS	48u	/* items of one inode looked at before skipping to the next inode */
#define LIMIT_TRIES	16u	/* windows looked at when one is added */
#define NEAR_WINDOWS	4u	/* looked at for a file before it goes where there is room */
#define HELD_WINDOWS	16u	/* looked at by ialloc_held(): with the lock */

struct ialloc_window {
	struct rb_node node;
	struct list_head lru;
	u64 index;
	u64 skip;		/* a search that found this window full went on there; 0: nothing is known */
	u64 unread;		/* its last number is in a leaf that cannot be read, which ends in this window; 0: it can be read */
	u32 free;
	u32 held_count;
	u32 fillers;		/* threads that read the tree for it, without the lock: it stays */
	struct hlist_head dirs;	/* of tux3_inode.child_link: those that hold numbers of it for their files, or did */
	bool filled;
	unsigned long bits[WINDOW_NUMBERS / BITS_PER_LONG];	/* filled: set, used; else: set, given back since */
	unsigned long held[WINDOW_NUMBERS / BITS_PER_LONG];	/* used, though the tree may not say so */
};

void ialloc_init(struct volume *vol)
{
	struct ialloc *ialloc = &vol->ialloc;

	memset(ialloc, 0, sizeof(*ialloc));
	mutex_init(&ialloc->lock);
	ialloc->windows = RB_ROOT;
	INIT_LIST_HEAD(&ialloc->lru);
	ialloc->windows_max = IALLOC_WINDOWS_MAX;
}

static void window_free(struct ialloc_window *window)
{
	struct tux3_inode *dir;
	struct hlist_node *next;

	hlist_for_each_entry_safe(dir, next, &window->dirs, child_link)
		hlist_del_init(&dir->child_link);
	kfree(window);
}

void ialloc_exit(struct volume *vol)
{
	struct ialloc_window *window, *next;

	rbtree_postorder_for_each_entry_safe(window, next, &vol->ialloc.windows, node)
		window_free(window);
	vol->ialloc.windows = RB_ROOT;
	vol->ialloc.count = 0;
}

static struct ialloc_window *window_find(struct ialloc *ialloc, u64 index)
{
	struct rb_node *node = ialloc->windows.rb_node;

	lockdep_assert_held(&ialloc->lock);
	while (node) {
		struct ialloc_window *window = rb_entry(node, struct ialloc_window, node);

		if (index == window->index)
			return window;
		node = index < window->index ? node->rb_left : node->rb_right;
	}
	return NULL;
}

/* The first in memory with this index or a higher one. */
static struct ialloc_window *window_from(struct ialloc *ialloc, u64 index)
{
	struct rb_node *node = ialloc->windows.rb_node;
	struct ialloc_window *found = NULL;

	lockdep_assert_held(&ialloc->lock);
	while (node) {
		struct ialloc_window *window = rb_entry(node, struct ialloc_window, node);

		if (window->index >= index)
			found = window;
		node = window->index >= index ? node->rb_left : node->rb_right;
	}
	return found;
}

static struct ialloc_window *window_next(struct ialloc_window *window)
{
	struct rb_node *node = rb_next(&window->node);

	return node ? rb_entry(node, struct ialloc_window, node) : NULL;
}

static void window_insert(struct ialloc *ialloc, struct ialloc_window *window)
{
	struct rb_node **place = &ialloc->windows.rb_node, *parent = NULL;

	lockdep_assert_held(&ialloc->lock);
	while (*place) {
		struct ialloc_window *other = rb_entry(*place, struct ialloc_window, node);

		parent = *place;
		place = window->index < other->index ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&window->node, parent, place);
	rb_insert_color(&window->node, &ialloc->windows);
	list_add_tail(&window->lru, &ialloc->lru);
	ialloc->count++;
}

static void window_drop(struct ialloc *ialloc, struct ialloc_window *window)
{
	lockdep_assert_held(&ialloc->lock);
	rb_erase(&window->node, &ialloc->windows);
	list_del(&window->lru);
	ialloc->count--;
	window_free(window);
}

/* Some windows of which the tree knows all go, if there are too many; not this one. */
static void windows_limit(struct ialloc *ialloc, struct ialloc_window *keep)
{
	u32 tries = LIMIT_TRIES;

	lockdep_assert_held(&ialloc->lock);
	while (ialloc->count > ialloc->windows_max && tries--) {
		struct ialloc_window *window = list_first_entry(&ialloc->lru, struct ialloc_window, lru);

		if (window->held_count || window->fillers || window == keep)
			list_move_tail(&window->lru, &ialloc->lru);
		else
			window_drop(ialloc, window);
	}
}

static void number_hold(struct ialloc *ialloc, struct ialloc_window *window, u32 bit)
{
	lockdep_assert_held(&ialloc->lock);
	if (!test_bit(bit, window->held)) {
		__set_bit(bit, window->held);
		window->held_count++;
		ialloc->held_total++;
	}
	if (!window->filled)
		__clear_bit(bit, window->bits);
}

/* The tree knows about this number.  May drop the window. */
static void number_unhold(struct ialloc *ialloc, struct ialloc_window *window, u32 bit)
{
	lockdep_assert_held(&ialloc->lock);
	if (!test_bit(bit, window->held))
		return;
	__clear_bit(bit, window->held);
	ialloc->held_total--;
	if (!--window->held_count && !window->fillers && (!window->filled || ialloc->count > ialloc->windows_max))
		window_drop(ialloc, window);
}

struct window_fill {
	struct ialloc_window *window;
	u64 ino;		/* the last one seen */
	u32 items;		/* of it */
};

static int window_fill_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct window_fill *fill = ctx;

	if (key->ino != fill->ino) {
		fill->ino = key->ino;
		fill->items = 0;
		__set_bit(key->ino % WINDOW_NUMBERS, fill->window->bits);
	}
	return ++fill->items >= FILL_ITEMS;
}

/* The leaf of this key cannot be read: no number whose items may be there is free.  end: where the next leaf begins, or NULL. */
static void window_fill_unread(struct ialloc *ialloc, struct ialloc_window *window, const struct tree_key *from,
			       const struct tree_key *end)
{
	u64 first = window->index << WINDOW_SHIFT, last = first + WINDOW_NUMBERS - 1, upto = TUX3_INO_MAX;

	WRITE_ONCE(ialloc->unread, true);
	if (end)	/* the number that it begins at may have items before it */
		upto = end->type || end->offset ? end->ino : end->ino - 1;
	if (upto > last)
		window->unread = (upto >> WINDOW_SHIFT) + (upto == TUX3_INO_MAX);
	upto = min(upto, last);
	if (upto >= from->ino)
		bitmap_set(window->bits, from->ino - first, upto - from->ino + 1);
}

/* All inodes of the window leaf by leaf; those with many items are skipped. */
static int window_fill(struct volume *vol, struct ialloc_window *window)
{
	u64 first = window->index << WINDOW_SHIFT;
	u64 last = first + WINDOW_NUMBERS - 1;
	struct window_fill fill = { .window = window };
	struct tree_key at = tree_key(max_t(u64, first, TUX3_INO_FIRST), 0, 0), next;
	struct tree_key high = tree_key(last, U8_MAX, U64_MAX);
	bool more;
	int ret;

	bitmap_zero(window->bits, WINDOW_NUMBERS);
	if (first < TUX3_INO_FIRST)
		bitmap_set(window->bits, first, TUX3_INO_FIRST - first);
	do {
		ret = tree_scan_leaf(vol, &at, &high, window_fill_item, &fill, &more, &next);
		if (ret == -EIO)
			window_fill_unread(&vol->ialloc, window, &at, more ? &next : NULL);
		else if (ret < 0)
			return ret;
		at = ret > 0 ? tree_key(fill.ino + 1, 0, 0) : next;
	} while ((more || ret > 0) && tree_key_compare(&at, &high) <= 0);
	window->free = WINDOW_NUMBERS - bitmap_weight(window->bits, WINDOW_NUMBERS);
	return 0;
}

/* What was found in the tree, and what is held besides; unless somebody else was first.  The lock held. */
static void window_take(struct ialloc *ialloc, struct ialloc_window *window, const struct ialloc_window *found)
{
	u32 i;

	lockdep_assert_held(&ialloc->lock);
	if (!window->filled) {
		for (i = 0; i < ARRAY_SIZE(window->bits); i++)
			window->bits[i] = (found->bits[i] & ~window->bits[i]) | window->held[i];
		window->free = WINDOW_NUMBERS - bitmap_weight(window->bits, WINDOW_NUMBERS);
		window->unread = found->unread;
	}
	window->filled = true;
	windows_limit(ialloc, window);
}

/* A window that is not to be filled yet. */
static struct ialloc_window *window_add(struct ialloc *ialloc, u64 index, gfp_t gfp)
{
	struct ialloc_window *window = kzalloc(sizeof(*window), gfp);

	lockdep_assert_held(&ialloc->lock);
	if (window) {
		window->index = index;
		window_insert(ialloc, window);
		windows_limit(ialloc, window);
	}
	return window;
}

/* Read the tree for a window that is in memory; the lock is dropped meanwhile. */
static int window_read(struct volume *vol, struct ialloc_window *window)
{
	struct ialloc *ialloc = &vol->ialloc;
	struct ialloc_window *found;
	int err = -ENOMEM;

	window->fillers++;
	mutex_unlock(&ialloc->lock);
	found = kzalloc(sizeof(*found), GFP_NOFS);
	if (found) {
		found->index = window->index;
		err = window_fill(vol, found);
	}
	mutex_lock(&ialloc->lock);
	window->fillers--;
	if (!err)
		window_take(ialloc, window, found);
	else if (!window->filled && !window->held_count && !window->fillers)
		window_drop(ialloc, window);
	kfree(found);
	return err;
}

/* With the lock held: the window, or NULL after it was dropped and taken again, to look anew; or an error. */
static struct ialloc_window *window_get(struct volume *vol, u64 index)
{
	struct ialloc *ialloc = &vol->ialloc;
	struct ialloc_window *window = window_find(ialloc, index);
	int err;

	lockdep_assert_held(&vol->ialloc.lock);
	if (window && window->filled) {
		list_move_tail(&window->lru, &ialloc->lru);
		return window;
	}
	if (!window)
		window = window_add(ialloc, index, GFP_NOFS);
	err = window ? window_read(vol, window) : -ENOMEM;
	return err ? ERR_PTR(err) : NULL;
}

/* With the lock held, which is dropped for a while if the window is not in memory. */
static int window_load(struct volume *vol, u64 index, struct ialloc_window **window)
{
	lockdep_assert_held(&vol->ialloc.lock);
	do {
		*window = window_get(vol, index);
	} while (!*window);
	return IS_ERR(*window) ? PTR_ERR(*window) : 0;
}

/* The first of stretch free numbers, aligned to it, from this one of the window on; or WINDOW_NUMBERS. */
static u32 window_search(struct ialloc_window *window, u32 from, u32 stretch)
{
	if (window->free < stretch)
		return WINDOW_NUMBERS;
	if (stretch == 1)
		return find_next_zero_bit(window->bits, WINDOW_NUMBERS, from);
	for (from = roundup(from, stretch); from < WINDOW_NUMBERS; from += stretch)
		if (find_next_bit(window->bits, from + stretch, from) == from + stretch)
			return from;
	return WINDOW_NUMBERS;
}

/* Where a search goes on that has found nothing in this window; may be behind the last one. */
static u64 window_after(const struct ialloc_window *window, u32 stretch)
{
	if (window->unread)
		return window->unread;
	return stretch == 1 && !window->free && window->skip > window->index ? window->skip : window->index + 1;
}

/* Where directories begin after a mount: behind the highest number of the tree; where that cannot be read, where there is room. */
static int ialloc_find_next(struct volume *vol, u64 *next)
{
	struct tree_key at = tree_key(TUX3_INO_MAX, U8_MAX, U64_MAX);
	struct tree_key from = tree_key(TUX3_INO_FIRST, 0, 0), found;
	int len = tree_lookup_before(vol, &at, &from, &found, NULL, 0);

	if (len < 0 && len != -ENOENT && len != -EIO)
		return len;
	*next = roundup(len < 0 ? TUX3_INO_FIRST : found.ino + 1, DIR_STRETCH);
	if (*next > TUX3_INO_MAX)
		*next = TUX3_INO_FIRST;
	return 0;
}

/* Have *next, which is next_dir or next_file.  The lock is dropped for a while if it is not known yet. */
static int ialloc_know(struct volume *vol, u64 *next)
{
	u64 found = 0;
	int err;

	lockdep_assert_held(&vol->ialloc.lock);
	if (*next)
		return 0;
	mutex_unlock(&vol->ialloc.lock);
	err = ialloc_find_next(vol, &found);
	mutex_lock(&vol->ialloc.lock);
	/* Files made meanwhile may lie behind it: the search passes over them. */
	if (!err && !*next)
		*next = found;
	return err;
}

/* Nothing was found near the number: begin anew where there is room, unless that lies before. */
static int search_far(struct volume *vol, u64 *from, u64 *index, u32 *at, bool *again)
{
	u64 *far = &vol->ialloc.next_file;
	int err = ialloc_know(vol, far);

	if (err || *far >> WINDOW_SHIFT <= *index)
		return err;
	*from = *far;
	*index = *far >> WINDOW_SHIFT;
	*at = *far % WINDOW_NUMBERS;
	*again = false;
	return 0;
}

/* From this number on to the highest, and then from the first; for a file that finds nothing near it from next_file on. */
static int ialloc_search(struct volume *vol, u64 from, u32 stretch, u64 *ino)
{
	struct ialloc_window *window;
	u64 index, full = U64_MAX;
	bool again = false, unread = false;
	u32 at, looked = 0;
	int err;

	lockdep_assert_held(&vol->ialloc.lock);
	from = clamp_t(u64, from, TUX3_INO_FIRST, TUX3_INO_MAX);
	index = from >> WINDOW_SHIFT;
	at = from % WINDOW_NUMBERS;
	while (!again || index <= from >> WINDOW_SHIFT) {
		err = window_load(vol, index, &window);
		if (err)
			return err;
		at = window_search(window, at, stretch);
		if (at < WINDOW_NUMBERS) {
			__set_bit(at, window->bits);
			number_hold(&vol->ialloc, window, at);
			window->free--;
			*ino = (index << WINDOW_SHIFT) + at;
			window = full == U64_MAX || stretch > 1 ? NULL : window_find(&vol->ialloc, full);
			if (window)
				window->skip = index;
			if (stretch == 1 && looked >= NEAR_WINDOWS)
				vol->ialloc.next_file = *ino;
			return 0;
		}
		if (!window->free && full == U64_MAX)
			full = index;
		unread = unread || window->unread;
		index = window_after(window, stretch);
		at = 0;
		if (stretch == 1 && ++looked == NEAR_WINDOWS) {
			err = search_far(vol, &from, &index, &at, &again);
			if (err)
				return err;
		}
		if (index > WINDOW_LAST) {
			if (again)
				break;
			again = true;
			index = 0;
		}
	}
	return unread ? -EIO : -ENOSPC;
}

static void number_free(struct ialloc *ialloc, u64 ino)
{
	struct ialloc_window *window = window_find(ialloc, ino >> WINDOW_SHIFT);
	u32 bit = ino % WINDOW_NUMBERS;

	lockdep_assert_held(&ialloc->lock);
	if (!window)
		return;
	if (!window->filled)
		__set_bit(bit, window->bits);
	else if (__test_and_clear_bit(bit, window->bits))
		window->free++;
	number_unhold(ialloc, window, bit);
}

/*
 * A number was found: is its leaf, where it is to be committed, one that can be read?  Then that goes for those below *end as well.
 * Else none of that leaf is free, and another has to be looked for: -EAGAIN.
 */
static int ialloc_look(struct volume *vol, u64 ino, u64 *end)
{
	struct tree_key at = tree_key(ino, 0, 0), next;
	struct ialloc *ialloc = &vol->ialloc;
	struct ialloc_window *window;
	bool more;
	int ret;

	*end = TUX3_INO_MAX + 1;
	if (likely(!READ_ONCE(ialloc->unread)))		/* nothing is read for this where nothing bad was met */
		return 0;
	ret = tree_scan_leaf(vol, &at, &at, NULL, NULL, &more, &next);
	*end = more ? next.ino : TUX3_INO_MAX + 1;
	if (ret >= 0)
		return 0;
	mutex_lock(&ialloc->lock);
	if (ret == -EIO) {
		window = window_find(ialloc, ino >> WINDOW_SHIFT);	/* the number is held: it is there */
		window_fill_unread(&vol->ialloc, window, &at, more ? &next : NULL);
		window->free = WINDOW_NUMBERS - bitmap_weight(window->bits, WINDOW_NUMBERS);
		number_unhold(ialloc, window, ino % WINDOW_NUMBERS);
		ret = -EAGAIN;
	} else {
		number_free(ialloc, ino);
	}
	mutex_unlock(&ialloc->lock);
	return ret;
}

static int ialloc_new_dir(struct volume *vol, u64 parent, u64 *ino)
{
	struct ialloc *ialloc = &vol->ialloc;
	int err;

	mutex_lock(&ialloc->lock);
	err = ialloc_know(vol, &ialloc->next_dir);
	if (err)
		goto out;
	err = ialloc_search(vol, ialloc->next_dir, DIR_STRETCH, ino);
	if (!err)	/* behind the last number it begins anew */
		ialloc->next_dir = *ino + DIR_STRETCH > TUX3_INO_MAX ? TUX3_INO_FIRST : *ino + DIR_STRETCH;
	else if (err == -ENOSPC || err == -EIO)
		err = ialloc_search(vol, parent + 1, 1, ino);
out:
	mutex_unlock(&ialloc->lock);
	return err;
}

/*
 * tux3_inode.child: a number, and above its 56 bits how many are held for files of the directory, from that one on.  If there
 * are none, it is the number of the last file, or 0.  The uppermost bit: child_link is in a list, or was.
 */
#define CHILD_SHIFT	56u
#define CHILD_LISTED	(1ull << 63)
#define CHILD_NUMBERS	16u	/* taken at once, that of the file included */

static u64 child_number(u64 child)
{
	return child & ((1ull << CHILD_SHIFT) - 1);
}

static u64 child_count(u64 child)
{
	return (child & ~CHILD_LISTED) >> CHILD_SHIFT;
}

static u64 child_pack(u64 ino, u64 count, u64 listed)
{
	return ino | count << CHILD_SHIFT | listed;
}

/* One of those that are held. */
static bool child_take(struct tux3_inode *dir, u64 *ino)
{
	u64 child = atomic64_read(&dir->child), left, was;

	for (;;) {
		left = child_count(child);
		if (!left)
			return false;
		*ino = child_number(child);
		was = atomic64_cmpxchg(&dir->child, child, child_pack(*ino + (left > 1), left - 1, child & CHILD_LISTED));
		if (was == child)
			return true;
		child = was;
	}
}

/* Hold the free ones of its window that follow this number, below end: how many. */
static u32 child_hold(struct ialloc *ialloc, u64 ino, u64 end)
{
	struct ialloc_window *window = window_find(ialloc, ino >> WINDOW_SHIFT);
	u32 bit = ino % WINDOW_NUMBERS, got = 0;

	lockdep_assert_held(&ialloc->lock);
	while (window && ++bit < WINDOW_NUMBERS && got + 1 < CHILD_NUMBERS && ino + got + 1 < end && !test_bit(bit, window->bits)) {
		__set_bit(bit, window->bits);
		number_hold(ialloc, window, bit);
		window->free--;
		got++;
	}
	return got;
}

/* Numbers of this window are held for files of dir, from now on. */
static void child_list(struct ialloc *ialloc, struct tux3_inode *dir, u64 ino)
{
	struct ialloc_window *window = window_find(ialloc, ino >> WINDOW_SHIFT);

	lockdep_assert_held(&ialloc->lock);
	hlist_del_init(&dir->child_link);
	hlist_add_head(&dir->child_link, &window->dirs);
}

static int ialloc_new_file(struct tux3_inode *dir, u64 *ino)
{
	struct ialloc *ialloc = &dir->vol->ialloc;
	u64 child, listed, end, count = 0;
	int err;

	do {
		if (child_take(dir, ino))
			return 0;
		child = atomic64_read(&dir->child);
	} while (child_count(child));		/* somebody else got some meanwhile */
	mutex_lock(&ialloc->lock);
	err = ialloc_search(dir->vol, (child ? child_number(child) : dir->ino) + 1, 1, ino);
	mutex_unlock(&ialloc->lock);
	if (!err)
		err = ialloc_look(dir->vol, *ino, &end);
	if (err)
		return err;
	mutex_lock(&ialloc->lock);
	if (child)
		count = child_hold(ialloc, *ino, end);
	listed = count ? CHILD_LISTED : child & CHILD_LISTED;
	/* Or he does now: then these go. */
	if ((u64)atomic64_cmpxchg(&dir->child, child, child_pack(*ino + !!count, count, listed)) != child)
		while (count)
			number_free(ialloc, *ino + count--);
	if (count)
		child_list(ialloc, dir, *ino);
	mutex_unlock(&ialloc->lock);
	return 0;
}

/* Each time again some numbers more are known to be in a leaf that cannot be read. */
int ialloc_new(struct tux3_inode *dir, bool is_dir, u64 *ino)
{
	u64 end;
	int err;

	do {
		err = is_dir ? ialloc_new_dir(dir->vol, dir->ino, ino) : ialloc_new_file(dir, ino);
		if (!err && is_dir)
			err = ialloc_look(dir->vol, *ino, &end);
	} while (err == -EAGAIN);
	return err;
}

void ialloc_give_back(struct tux3_inode *dir)
{
	struct ialloc *ialloc = &dir->vol->ialloc;
	u64 child = atomic64_xchg(&dir->child, 0), n;

	if (!(child & CHILD_LISTED))
		return;
	mutex_lock(&ialloc->lock);
	hlist_del_init(&dir->child_link);
	for (n = 0; n < child_count(child); n++)
		number_free(ialloc, child_number(child) + n);
	mutex_unlock(&ialloc->lock);
}

void ialloc_free(struct volume *vol, u64 ino)
{
	if (WARN_ON_ONCE(ino < TUX3_INO_FIRST || ino > TUX3_INO_MAX))
		return;
	mutex_lock(&vol->ialloc.lock);
	number_free(&vol->ialloc, ino);
	mutex_unlock(&vol->ialloc.lock);
}

void ialloc_settle(struct volume *vol, u64 ino)
{
	struct ialloc *ialloc = &vol->ialloc;

	lockdep_assert_held(&vol->delta.commit_mutex);
	ialloc->settled[ialloc->settled_count++] = ino;
	if (ialloc->settled_count == IALLOC_SETTLE_BATCH)
		ialloc_settle_all(vol);
}

void ialloc_settle_all(struct volume *vol)
{
	struct ialloc *ialloc = &vol->ialloc;
	struct ialloc_window *window;

	lockdep_assert_held(&vol->delta.commit_mutex);
	if (!ialloc->settled_count)
		return;
	mutex_lock(&ialloc->lock);
	while (ialloc->settled_count) {
		u64 ino = ialloc->settled[--ialloc->settled_count];

		window = window_find(ialloc, ino >> WINDOW_SHIFT);
		if (window)
			number_unhold(ialloc, window, ino % WINDOW_NUMBERS);
	}
	mutex_unlock(&ialloc->lock);
}

int ialloc_hold(struct volume *vol, u64 ino)
{
	struct ialloc *ialloc = &vol->ialloc;
	struct ialloc_window *window;
	int err = 0;

	lockdep_assert_held(&vol->delta.commit_mutex);
	mutex_lock(&ialloc->lock);
	window = window_find(ialloc, ino >> WINDOW_SHIFT);
	if (!window)		/* not to be filled for this: it only says what is held */
		window = window_add(ialloc, ino >> WINDOW_SHIFT, GFP_COMMIT);
	if (window)
		number_hold(ialloc, window, ino % WINDOW_NUMBERS);
	else
		err = -ENOMEM;
	mutex_unlock(&ialloc->lock);
	return err;
}

int ialloc_mark(struct volume *vol, u64 ino)
{
	struct ialloc_window *window;
	int err;

	if (!ino || ino > TUX3_INO_MAX)
		return -EIO;
	mutex_lock(&vol->ialloc.lock);
	err = window_load(vol, ino >> WINDOW_SHIFT, &window);
	if (!err && !__test_and_set_bit(ino % WINDOW_NUMBERS, window->bits))
		window->free--;
	if (!err)
		number_hold(&vol->ialloc, window, ino % WINDOW_NUMBERS);
	mutex_unlock(&vol->ialloc.lock);
	return err;
}

int ialloc_test(struct volume *vol, u64 ino)
{
	struct ialloc_window *window;
	int result;

	if (!ino || ino > TUX3_INO_MAX)
		return 0;
	mutex_lock(&vol->ialloc.lock);
	result = window_load(vol, ino >> WINDOW_SHIFT, &window);
	if (!result)
		result = test_bit(ino % WINDOW_NUMBERS, window->bits);
	mutex_unlock(&vol->ialloc.lock);
	return result;
}

/* What is held of the window, but for what directories hold for their files; those that hold none any more leave its list. */
static bool window_held(struct ialloc *ialloc, struct ialloc_window *window, unsigned long *bits)
{
	struct tux3_inode *dir;
	struct hlist_node *next;

	lockdep_assert_held(&ialloc->lock);
	memcpy(bits, window->held, sizeof(window->held));
	hlist_for_each_entry_safe(dir, next, &window->dirs, child_link) {
		u64 child = atomic64_read(&dir->child);

		if (child_count(child))
			bitmap_clear(bits, child_number(child) % WINDOW_NUMBERS, child_count(child));
		else
			hlist_del_init(&dir->child_link);
	}
	return find_next_bit(bits, WINDOW_NUMBERS, 0) < WINDOW_NUMBERS;
}

u64 ialloc_held(struct volume *vol, u64 from, u64 *first, unsigned long *bits)
{
	struct ialloc *ialloc = &vol->ialloc;
	struct ialloc_window *window;
	u32 looks = HELD_WINDOWS;
	u64 to = TUX3_INO_MAX;

	*first = 0;
	bitmap_zero(bits, WINDOW_NUMBERS);
	mutex_lock(&ialloc->lock);
	window = ialloc->held_total ? window_from(ialloc, from >> WINDOW_SHIFT) : NULL;
	for (; window; window = window_next(window)) {
		if (!window->held_count)
			continue;
		*first = window->index << WINDOW_SHIFT;
		if (window_held(ialloc, window, bits) || !--looks) {
			to = *first + WINDOW_NUMBERS - 1;
			break;
		}
	}
	mutex_unlock(&ialloc->lock);
	return to;
}
