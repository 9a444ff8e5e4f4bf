/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading ahead in the tree: who comes to a node that is not in memory mostly needs those beside it, too.  Their parent, which is
 * there, names them.  So they are read together, and waited for once.
 *
 * A scan knows how far it goes.  The first node that it misses is read alone, for many a scan ends there; with each further leaf
 * eight times as many come, up to TREE_AHEAD, and none behind the end of the scan.
 *
 * Who looks up single keys does not say what he will want next.  But inodes are mostly gone through all together: in the order of
 * their numbers, or in that of a directory that has them.  So of the parents under which something was read lately it is noted how
 * much that was (struct tree_stream), and what is missed next under the same one comes with twice as many, an aligned window
 * of them around it.  Where the reading has come to the end of a parent, it goes on so under the next one.  It begins anew, with
 * one, if something is missed that was just read.  And there is none of it for a while when the cache had to give up much of what
 * was read ahead before anybody used it.
 *
 * Nothing depends on it.  What could not be read is left to who needs it, and he tells what is wrong with it.  At once no more is
 * read than a quarter of what the cache may hold, and nothing for which memory would have to be given back.
 *
 * Locking: tree->sem for reading while a parent is looked at, none while anything is read.  tree->stream_lock, inside sem, for
 * the notes, by those who are about to wait for the disk.
 */
#include "core/volume.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

#define AHEAD_GROWS	8u		/* a scan's window, with each leaf that it misses */
#define STREAM_PERIOD	64		/* nodes read ahead, after which it is seen what came of it */
#define STREAM_PAUSE	1024u		/* nodes missed */

struct ahead {
	u32 count, max;
	struct node_link links[TREE_AHEAD];
};

void tree_ahead_init(struct tree *tree)
{
	spin_lock_init(&tree->stream_lock);
	memset(tree->streams, 0, sizeof(tree->streams));
	tree->stream_victim = 0;
	tree->stream_ahead = tree->stream_wasted = 0;
	tree->stream_pause = 0;
}

static void ahead_begin(struct volume *vol, struct ahead *ahead)
{
	ahead->count = 0;
	ahead->max = clamp_t(u64, READ_ONCE(vol->cache.limit_bytes) / 4 >> vol->block_shift, 1, TREE_AHEAD);
}

/* false: there is no room for it. */
static bool ahead_add(struct volume *vol, struct ahead *ahead, const struct node_link *link)
{
	if (link->addr >= vol->total_blocks || cache_has(vol, link))
		return true;
	if (ahead->count == ahead->max)
		return false;
	ahead->links[ahead->count++] = *link;
	return true;
}

/* Of these branches all that are not in memory, or as many as there is room for; returns the first that was not looked at. */
static u32 ahead_branches(struct volume *vol, struct ahead *ahead, const struct disk_node *node, u32 at, u32 end)
{
	for (; at < end; at++) {
		struct node_link link = inner_link(node, at);

		if (!ahead_add(vol, ahead, &link))
			break;
	}
	return at;
}

static int ahead_order(const void *a, const void *b)
{
	const struct node_link *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

/* As they lie on the disk. */
static void ahead_sort(struct ahead *ahead)
{
	sort(ahead->links, ahead->count, sizeof(ahead->links[0]), ahead_order, NULL);
}

/* ---- keys that are looked up ---- */

/* May more be read than is needed now?  Not for a while if much of what was went for want of memory, before anybody used it. */
static bool streams_go(struct volume *vol)
{
	struct tree *tree = &vol->tree;
	s64 ahead = atomic64_read(&vol->cache.ahead) - tree->stream_ahead;
	s64 wasted = atomic64_read(&vol->cache.wasted) - tree->stream_wasted;

	lockdep_assert_held(&tree->stream_lock);
	if (tree->stream_pause) {
		tree->stream_pause--;
		return false;
	}
	if (ahead < STREAM_PERIOD)
		return true;
	tree->stream_ahead += ahead;
	tree->stream_wasted += wasted;
	if (wasted <= ahead / 4)
		return true;
	tree->stream_pause = STREAM_PAUSE;
	memset(tree->streams, 0, sizeof(tree->streams));
	return false;
}

/* That of the parent to which path leads, or the oldest; how much was read last there, or up to there: 0: nothing. */
static struct tree_stream *stream_of(struct tree *tree, const struct tree_path *path, u32 level, u32 *window)
{
	u32 i;

	lockdep_assert_held(&tree->stream_lock);
	*window = 0;
	for (i = 0; i < TREE_STREAMS; i++) {
		struct tree_stream *stream = &tree->streams[i];

		if (!stream->window || stream->level != level)
			continue;
		if (node_key_equal(&stream->low, &path->low)) {
			*window = stream->window;
			return stream;
		}
		if (node_key_equal(&stream->to, &path->low) || node_key_equal(&stream->from, &path->high))
			*window = stream->window;
	}
	return &tree->streams[tree->stream_victim++ % TREE_STREAMS];
}

/*
 * key leads to branch `at` of a node at this level + 1, and it and those up to *end are read anyhow.  Those from *first on and
 * before *end are to be.
 */
static void stream_window(struct volume *vol, const struct tree_path *path, u32 level, const struct node_key *key, u32 at,
			  u32 *first, u32 *end)
{
	const struct disk_node *node = path_node(path, level + 1);
	u32 count = node_count(node), window;
	struct tree_stream *stream;
	bool same;

	*first = at;
	spin_lock(&vol->tree.stream_lock);
	if (!streams_go(vol)) {
		spin_unlock(&vol->tree.stream_lock);
		return;
	}
	stream = stream_of(&vol->tree, path, level, &window);
	same = stream->window && stream->level == level && node_key_equal(&stream->low, &path->low);
	if (!window || (same && !node_key_less(key, &stream->from) && node_key_less(key, &stream->to)))
		window = 1;
	else if (same)
		window = min(2 * window, TREE_AHEAD);
	*first = at - at % window;
	*end = min(max(*first + window, *end), count);
	*stream = (struct tree_stream){
		.low = path->low, .high = path->high, .level = level, .window = window,
		.from = *first ? inner_key(node, *first) : path->low, .to = *end < count ? inner_key(node, *end) : path->high,
	};
	spin_unlock(&vol->tree.stream_lock);
}

/* ---- what is beside what was missed ---- */

/* A scan up to this key has come to branch at: it will go on before which one?  No further than its window. */
static u32 ahead_scanned(const struct disk_node *node, u32 at, const struct node_key *to, u32 window)
{
	u32 end = at + 1, most = min(at + window, node_count(node));

	for (; end < most; end++) {
		struct node_key low = inner_key(node, end);

		if (node_key_less(to, &low))
			break;
	}
	return end;
}

/* With sem; path leads to the parent, and key from there to the node that was missed, which is in ahead. */
static void ahead_collect(struct volume *vol, struct ahead *ahead, const struct tree_path *path, u32 level,
			  const struct node_key *key, const struct node_key *to, u32 window)
{
	const struct disk_node *node = path_node(path, level + 1);
	u32 at = inner_find(node, key), first, end = ahead_scanned(node, at, to, window);

	stream_window(vol, path, level, key, at, &first, &end);
	if (ahead_branches(vol, ahead, node, at + 1, end) == end)
		ahead_branches(vol, ahead, node, first, at);
}

/* Which of them is the node that was missed; U32_MAX: it has come meanwhile. */
static u32 ahead_find(struct volume *vol, struct ahead *ahead, const struct tree_path *way, const struct node_key *to, u32 window)
{
	u32 level = way->miss.level;
	struct tree_path path;
	u32 i;

	ahead_begin(vol, ahead);
	ahead_add(vol, ahead, &way->miss);
	if (!ahead->count)
		return U32_MAX;
	down_read(&vol->tree.sem);
	if (level < vol->tree.root_level && !path_descend_to(vol, &path, &way->low, level + 1, false)) {
		ahead_collect(vol, ahead, &path, level, &way->low, to, window);
		tree_path_put(vol, &path);
	}
	up_read(&vol->tree.sem);
	ahead_sort(ahead);
	for (i = 0; ahead->links[i].addr != way->miss.addr || ahead->links[i].birth != way->miss.birth; i++)
		;
	return i;
}

struct node_buffer *ahead_get(struct volume *vol, const struct tree_path *path, const struct node_key *to, u32 *window,
			      char *why, size_t why_size)
{
	struct ahead *ahead = kmalloc(sizeof(*ahead), GFP_NOFS | __GFP_NOWARN);	/* large, on a stack that others are on */
	struct node_buffer *buffer;
	u32 wanted = U32_MAX;

	if (ahead)
		wanted = ahead_find(vol, ahead, path, to, *window);
	if (wanted != U32_MAX)
		buffer = cache_get_among(vol, ahead->links, ahead->count, wanted, why, why_size);
	else
		buffer = cache_get(vol, &path->miss, why, why_size);
	kfree(ahead);
	if (!path->miss.level)
		*window = min(*window * AHEAD_GROWS, TREE_AHEAD);
	return buffer;
}

/* ---- who visits all nodes ---- */

u32 ahead_fetch(struct volume *vol, const struct disk_node *node, u32 at)
{
	struct ahead ahead;

	ahead_begin(vol, &ahead);
	at = ahead_branches(vol, &ahead, node, at, node_count(node));
	ahead_sort(&ahead);
	if (ahead.count > 1)		/* else who wants it reads it */
		cache_fetch(vol, ahead.links, ahead.count);
	return at;
}

/* ---- who looks for items of one type ---- */

/* May there be an item of this type, with offset 0, from low on before high? */
static bool keys_have_type(const struct node_key *low, const struct node_key *high, u8 type)
{
	struct node_key first = { (low->high & ~(u64)U8_MAX) | type, 0 };

	if (node_key_less(&first, low))
		first.high += U8_MAX + 1;
	return node_key_less(&first, high);
}

/*
 * Leaves under one node that are not in memory; *end: all that is wanted of those before it is there, or among these.  At most max,
 * or as many as the walk over these leaves has come to.
 */
static void leaves_missing(struct volume *vol, struct ahead *ahead, const struct tree_path *path, const struct node_key *key,
			   u8 type, u32 max, struct node_key *end)
{
	const struct disk_node *node = path_node(path, 1);
	u32 at, count = node_count(node), first, stop;

	for (at = inner_find(node, key); at < count; at++) {
		struct node_key low = inner_key(node, at), high = at + 1 < count ? inner_key(node, at + 1) : path->high;
		struct node_link link = inner_link(node, at);

		if (!keys_have_type(&low, &high, type) || cache_has(vol, &link))
			continue;
		if (!ahead->count) {
			stop = at + max;
			stream_window(vol, path, 0, &low, at, &first, &stop);
			max = stop - first;
		}
		if (ahead->count >= max || !ahead_add(vol, ahead, &link)) {
			*end = low;
			return;
		}
	}
	*end = path->high;
}

void tree_read_ahead(struct volume *vol, const struct tree_key *from, u8 type, u32 max, struct tree_key *upto)
{
	struct node_key key = node_key_pack(from), end = NODE_KEY_MAX;
	struct tree_path path;
	struct ahead ahead;
	int err = PATH_MISS;
	u32 turn;

	ahead_begin(vol, &ahead);
	for (turn = 0; turn < 2 && err == PATH_MISS; turn++) {
		if (turn)
			tree_prefetch(vol, from);	/* the way there, and the first of them */
		down_read(&vol->tree.sem);
		err = vol->tree.root_level ? path_descend_to(vol, &path, &key, 1, false) : -ENOENT;
		if (!err) {
			leaves_missing(vol, &ahead, &path, &key, type, max, &end);
			tree_path_put(vol, &path);
		}
		up_read(&vol->tree.sem);
	}
	ahead_sort(&ahead);
	cache_fetch(vol, ahead.links, ahead.count);
	*upto = node_key_unpack(&end);
}
