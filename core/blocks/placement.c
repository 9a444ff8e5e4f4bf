/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where to allocate: the policy, and searching that stays fast on volumes that are large, full or
 * fragmented.
 *
 * Policy.  Each kind has its place.  Tree nodes and log blocks take their blocks one after another from a
 * stretch of free blocks that nobody else uses, so that the nodes of one unify, or the log, are written in
 * one sweep.  The first blocks of small files are packed behind each other (data_goal), those of large
 * files elsewhere (large_goal).  Where there is no room, and what is free is in pieces, they go on in the group
 * nearby whose longest free run is the shortest that will do, in the shortest run: so long runs stay for what needs them.
 *
 * A file that goes on gets the blocks behind its last ones.  If they are taken, it is one of several that grow at
 * the same time: it gets a stretch of its own, several times what it asks for, twice as long each time; so do the
 * others, and from then on they do not cut each other up.  Where no free run is that long, one that grows by much
 * at once gets most of the longest.  Files written at once never get a stretch, and leave no gaps; a run is looked
 * for in which all of such a file has room, though its mappings are logged in parts.  A file that is filled out of
 * order gets windows: stretches that are taken from anywhere, so that each block has its neighbours-to-be beside it.
 *
 * Stretches live in memory only, the least recently used goes, and all go when space is short: they never
 * cause -ENOSPC.  None are made when they would hold a notable part of what is free.
 *
 * Searching.  An upper bound of the longest free run is kept for each group, for each chunk of groups, and for
 * each part of a chunk: so where nearly all is full a search looks at few groups, however many there are.  It is
 * raised when blocks are freed, and made exact by a search that fails.  A group is searched for a length only if
 * its bound allows it, so the searches that fail are paid for by frees: each lowers the bound below the length
 * asked for, and lengths are halved from one attempt to the next.  Within a group, a search that had to pass many
 * short runs leaves a memo of where it need not look again.  Where all runs that are long enough are held by
 * stretches the bound cannot be lowered: that is noted beside it (held_len), until a stretch gives back what it held.
 *
 * Groups never loaded are tried sparingly as long as there is space in others: a few neighbours of the goal,
 * then a few in an order that spreads over the volume.  Only when no known group has a run of min blocks
 * are they loaded until one has.
 *
 * Locking: balloc->lock, held by all callers.
 */
#include "core/blocks/balloc.h"
#include "core/blocks/freemap.h"
#include "core/volume.h"

#define NEIGHBOURS	8u	/* groups behind the goal's that are tried before those known to have room */
#define PROBES		4u	/* unknown groups loaded by one search that has an alternative */
#define LARGE_BLOCKS	64u	/* a new file that asks for more goes to large_goal */
#define KIND_STRETCH	1024u
#define KIND_STRETCH_MIN 16u
#define FILE_STRETCH_MIN 128u
#define FILE_STRETCH_MAX 8192u
#define FILE_STRETCH_FACTOR 8u
#define STRETCH_SHARE	64u	/* a stretch is at most this part of the free blocks */
#define RUN_MAX		8192u	/* the longest run that a file is looked for, however large it is */
#define WINDOW_MAX	8192u
#define WINDOW_OTHERS	16u	/* at most this part of what is seen of it may have gone to others */
#define FIT_RUNS	512u	/* of which the shortest is sought that will do */
#define MEMO_RUNS	64u	/* a search that looked at more runs leaves a memo */

struct search {
	struct volume *vol;
	struct balloc *balloc;
	u32 min, want;
	u32 most;			/* of what is found so much is taken */
	struct placement *place;	/* the result */
};

static u64 place_end(const struct placement *place)
{
	return place->group->start + place->from + place->len;
}

/* ---- stretches ---- */

static bool stretch_has(const struct balloc_stretch *stretch, u64 addr)
{
	return addr >= stretch->next && addr < stretch->end;
}

/* Go through the stretches that there may be: bits is what is left of balloc->stretched. */
#define for_each_stretch(balloc, stretch, bits) \
	for ((bits) = (balloc)->stretched; \
	     (bits) && ((stretch) = &(balloc)->stretches[ilog2(bits)], true); (bits) &= ~(1ULL << ilog2(bits)))

/* The file's own: this stretch, or another window in which its blocks have the same places. */
static bool stretch_is_own(const struct balloc_stretch *own, const struct balloc_stretch *stretch)
{
	if (!own)
		return false;
	return stretch == own || (own->ino && stretch->ino == own->ino &&
				  stretch->next - stretch->block == own->next - own->block);
}

/* The first part, of at least len blocks, of the free blocks [*low, *high) that no stretch (but its own) holds. */
static bool stretch_clip(const struct balloc *balloc, const struct balloc_stretch *own, u64 *low, u64 *high, u32 len)
{
	const struct balloc_stretch *first, *stretch;
	u64 bits;

	for (;;) {
		first = NULL;
		for_each_stretch(balloc, stretch, bits) {
			if (stretch->next >= stretch->end || stretch->next >= *high || stretch->end <= *low)
				continue;
			if (!stretch_is_own(own, stretch) && (!first || stretch->next < first->next))
				first = stretch;
		}
		if (!first)
			return true;
		if (first->next >= *low + len) {
			*high = first->next;
			return true;
		}
		if (first->end + len > *high)
			return false;
		*low = first->end;
	}
}

static void stretch_drop(struct balloc *balloc, struct balloc_stretch *stretch)
{
	balloc->released += stretch->next < stretch->end;
	stretch->next = stretch->end = stretch->used = 0;
	balloc->stretched &= ~(1ULL << (stretch - balloc->stretches));
}

/* Space is short: give up the stretches of files, the second time all.  False: there were none. */
static bool stretches_drop(struct balloc *balloc)
{
	bool dropped = false;
	u32 i;

	lockdep_assert_held(&balloc->lock);
	for (i = BALLOC_STRETCHES; i-- > 0 && !(dropped && i < BALLOC_FILE_STRETCHES);) {
		dropped |= balloc->stretches[i].next < balloc->stretches[i].end;
		stretch_drop(balloc, &balloc->stretches[i]);
	}
	return dropped;
}

/* How long a stretch may be now. */
static u32 stretch_limit(struct search *search, u32 size)
{
	return min_t(s64, size, max_t(s64, atomic64_read(&search->balloc->free_blocks), 0) / STRETCH_SHARE);
}

/* The first blocks of the stretch were chosen: the rest waits for the next allocation. */
static void stretch_begin(struct search *search, struct balloc_stretch *stretch, u32 size)
{
	u64 begin = search->place->group->start + search->place->from;

	stretch_drop(search->balloc, stretch);
	stretch->next = place_end(search->place);
	stretch->end = begin + size;
	stretch->size = size;
	stretch->ino = 0;
	stretch->used = ++search->balloc->clock;
	search->balloc->stretched |= 1ULL << (stretch - search->balloc->stretches);
}

/* It goes on behind what was taken of it, as far as no other one begins there. */
static void stretch_extend(struct balloc *balloc, struct balloc_stretch *stretch, u32 size)
{
	u64 low = stretch->next, high = stretch->next + size;

	if (!stretch_clip(balloc, stretch, &low, &high, 1) || low != stretch->next)
		high = stretch->next;
	stretch->end = high;
}

/* ---- searching one group ---- */

struct scan {
	u32 from, len;		/* what was found */
	u32 begin;		/* of the run that it is part of */
	u32 runs;		/* runs passed */
	u32 longest;		/* of them */
};

/* The first run of len blocks that begins in [from, to). */
static bool group_scan(struct search *search, struct balloc_group *group, u32 from, u32 to, u32 len, struct scan *scan)
{
	while (from < to) {
		u32 end;
		u64 low, high;

		from = find_next_zero_bit(group->busy, group->blocks, from);
		if (from >= to)
			break;
		end = find_next_bit(group->busy, group->blocks, from);
		low = group->start + from;
		high = group->start + end;
		if (end - from >= len && stretch_clip(search->balloc, NULL, &low, &high, len)) {
			scan->begin = from;
			scan->from = low - group->start;
			scan->len = high - low;
			return true;
		}
		scan->runs++;
		scan->longest = max(scan->longest, end - from);
		from = end;
	}
	return false;
}

static void group_memo(struct balloc_group *group, u32 len, u32 from, u32 to)
{
	group->memo_len = len;
	group->memo_from = from;
	group->memo_to = max(from, to);
}

/*
 * A run of len blocks from begin on; else, if wrap, one that begins before.  Learns from what it sees, but
 * for runs that were long enough and held by a stretch.
 */
static bool group_search(struct search *search, struct balloc_group *group, u32 begin, u32 len, bool wrap,
			 struct scan *scan)
{
	bool memo = group->memo_len && len >= group->memo_len;
	u32 unseen = memo ? group->memo_len - 1 : 0;	/* runs outside of [low, high) are not longer */
	u32 low = memo ? group->memo_from : 0;
	u32 high = memo ? group->memo_to : group->blocks;
	bool found;

	begin = clamp(begin, low, high);
	found = group_scan(search, group, begin, high, len, scan);
	if (found) {
		if (begin == low && scan->runs > MEMO_RUNS && scan->longest < len)
			group_memo(group, len, scan->begin, high);
		return true;
	}
	if (scan->runs > MEMO_RUNS && scan->longest < len) {
		group_memo(group, len, low, begin);
		high = begin;
	}
	if (!wrap)
		return false;
	found = group_scan(search, group, low, begin, len, scan);
	if (found && scan->runs > MEMO_RUNS && scan->longest < len)
		group_memo(group, len, scan->begin, high);
	if (found)
		return true;
	if (scan->longest < len) {
		group->info->longest = max(scan->longest, unseen);
	} else {
		group->held_len = len;
		group->held_at = search->balloc->released;
	}
	return false;
}

/* As long as that, all are held by stretches. */
static bool group_is_held(const struct balloc *balloc, const struct balloc_group *group, u32 len)
{
	return group->held_len && len >= group->held_len && group->held_at == balloc->released;
}

/* 1: found, 0: not, -ENOMEM.  always: look at the whole group even if it is rather full. */
static int search_group(struct search *search, u64 index, u32 begin, u32 len, bool always)
{
	struct balloc_info *info = group_info(search->vol, index);
	struct scan scan = {};
	struct balloc_group *group;
	bool found;
	int err;

	lockdep_assert_held(&search->vol->balloc.lock);
	if (!info)
		return -ENOMEM;
	if (info->state == GROUP_BAD || (info->state == GROUP_KNOWN && min(info->longest, info->free) < len))
		return 0;
	err = group_get(search->vol, index, &group);
	if (err == -ENOMEM)
		return err;
	if (err || info->longest < len || group_is_held(search->balloc, group, len))
		return 0;
	found = group_search(search, group, begin, len, always || info->free >= group->blocks / 4, &scan);
	count_add(search->vol, TUX3_COUNT_SEARCHED_RUNS, scan.runs);
	if (!found)
		return 0;
	search->place->group = group;
	search->place->from = scan.from;
	search->place->len = min(scan.len, search->most);
	search->place->run = scan.len;
	return 1;
}

/* ---- searching the volume ---- */

/* Groups of one part of a chunk, from number i of the chunk on.  If nothing is found the part's bound is made exact. */
static int search_part(struct search *search, u64 chunk_at, u32 i, u32 len)
{
	struct balloc_chunk *chunk = search->balloc->chunks[chunk_at];
	u32 first = i - i % PART_GROUPS, end = min(first + PART_GROUPS, chunk->count), longest = 0;
	int found;

	count_add(search->vol, TUX3_COUNT_SEARCHED_GROUPS, end - i);
	for (; i < end; i++) {
		if (chunk->info[i].state != GROUP_KNOWN || chunk->info[i].longest < len)
			continue;
		found = search_group(search, chunk_at * CHUNK_GROUPS + i, 0, len, true);
		if (found)
			return found;
	}
	for (i = first; i < end; i++)
		if (chunk->info[i].state == GROUP_KNOWN)
			longest = max(longest, min(chunk->info[i].longest, chunk->info[i].free));
	chunk->part_longest[first / PART_GROUPS] = longest;
	return 0;
}

/* Those of a chunk, likewise. */
static int search_chunk(struct search *search, u64 chunk_at, u32 i, u32 len)
{
	struct balloc_chunk *chunk = search->balloc->chunks[chunk_at];
	u32 longest = 0, part;
	int found;

	for (part = i / PART_GROUPS; part < CHUNK_PARTS; part++, i = part * PART_GROUPS) {
		if (chunk->part_longest[part] < len)
			continue;
		found = search_part(search, chunk_at, i, len);
		if (found)
			return found;
	}
	for (part = 0; part < CHUNK_PARTS; part++)
		longest = max(longest, chunk->part_longest[part]);
	chunk->longest = longest;
	return 0;
}

/* Groups that were loaded before, in order from this one on and then from the first. */
static int search_known(struct search *search, u64 index, u32 len)
{
	struct balloc *balloc = search->balloc;
	u64 chunks = DIV_ROUND_UP(balloc->group_count, CHUNK_GROUPS);
	u64 turn, at = index / CHUNK_GROUPS;
	u32 i = index % CHUNK_GROUPS;
	int found = 0;

	for (turn = 0; turn <= chunks && !found; turn++) {
		if (balloc->chunks[at] && balloc->chunks[at]->longest >= len)
			found = search_chunk(search, at, i, len);
		at = at + 1 < chunks ? at + 1 : 0;
		i = 0;
	}
	return found;
}

/* Load up to max groups not loaded so far.  In each, a run of want blocks, or of len. */
static int search_unknown(struct search *search, u32 len, u64 max)
{
	struct balloc *balloc = search->balloc;
	struct balloc_info *info;
	int found = 0;

	while (!found && max && balloc->unknown_groups && balloc->probe_left) {
		u64 index = balloc->probe_at;

		info = group_info(search->vol, index);
		if (!info)
			return -ENOMEM;
		if (info->state == GROUP_UNKNOWN) {
			max--;
			found = search_group(search, index, 0, search->want, true);
			if (!found && len < search->want)
				found = search_group(search, index, 0, len, true);
			if (found < 0)
				break;
			cond_resched();
		}
		balloc->probe_at = (index + balloc->probe_step) % balloc->group_count;
		balloc->probe_left--;
	}
	return found;
}

/* A run of len blocks anywhere, the nearer to goal the better. */
static int search_length(struct search *search, u64 goal, u32 len, u32 probes)
{
	struct balloc *balloc = search->balloc;
	u64 index = goal / search->vol->group_blocks;
	u32 i;
	int found;

	found = search_group(search, index, goal % search->vol->group_blocks, len, false);
	for (i = 1; !found && i <= NEIGHBOURS && i < balloc->group_count; i++)
		found = search_group(search, (index + i) % balloc->group_count, 0, len, true);
	if (!found)
		found = search_known(search, index, len);
	if (!found)
		found = search_unknown(search, len, probes);
	return found;
}

/* The bound over all known groups. */
static u32 longest_known(struct balloc *balloc)
{
	u64 chunks = DIV_ROUND_UP(balloc->group_count, CHUNK_GROUPS), i;
	u32 longest = 0;

	lockdep_assert_held(&balloc->lock);
	for (i = 0; i < chunks; i++)
		if (balloc->chunks[i])
			longest = max(longest, balloc->chunks[i]->longest);
	return longest;
}

/* A good part of the longest run that is shorter than len, in groups that are known. */
static u32 next_length(struct search *search, u32 len)
{
	u32 longest = min(longest_known(search->balloc), len - 1);

	return longest - longest / 4;
}

/* A longer run than is to be taken now: for that no group is loaded. */
static int search_long(struct search *search, u64 goal)
{
	int found = 0;
	u32 len;

	for (len = search->want; !found && len > search->most; len = next_length(search, len))
		found = search_known(search, goal / search->vol->group_blocks, len);
	return found;
}

/* A run of want blocks near goal; else a good part of the longest run there is; 0, -ENOSPC, -ENOMEM. */
static int search_best(struct search *search, u64 goal)
{
	int found = search_long(search, goal);
	u32 len = search->most, probes = PROBES;

	while (!found) {
		found = search_length(search, goal, len, probes);
		if (found)
			break;
		if (min(longest_known(search->balloc), len - 1) < search->min)
			return -ENOSPC;
		len = max(search->min, next_length(search, len));
		probes = 0;
	}
	return min(found, 0);
}

/* At goal exactly: at least need blocks, up to want. */
static bool search_at(struct search *search, u64 goal, const struct balloc_stretch *own, u32 need)
{
	u32 from = goal % search->vol->group_blocks, to;
	struct balloc_group *group;
	struct balloc_info *info = group_info(search->vol, goal / search->vol->group_blocks);
	u64 low = goal, high;

	if (!info || info->state == GROUP_BAD || group_get(search->vol, goal / search->vol->group_blocks, &group))
		return false;
	if (test_bit(from, group->busy))
		return false;
	/* No further than what is needed: the run may be long. */
	to = min_t(u64, group->blocks, from + (u64)max(need, search->most));
	high = group->start + find_next_bit(group->busy, to, from);
	if (high - low < need || !stretch_clip(search->balloc, own, &low, &high, need) || low != goal)
		return false;
	search->place->group = group;
	search->place->from = from;
	search->place->len = min_t(u64, high - low, search->most);
	return true;
}

/* ---- policy ---- */

/* The bound of a known group; 0: nothing is known of it. */
static u32 group_bound(struct search *search, u64 index)
{
	struct balloc_info *info = group_info(search->vol, index);

	return info && info->state == GROUP_KNOWN ? min(info->longest, info->free) : 0;
}

/* Of the first runs of a group the shortest that has room for all that is wanted, else as search_group(). */
static int search_fit(struct search *search, u64 index)
{
	u32 len = search->want, shortest = U32_MAX, runs, from, to;
	struct balloc_group *group;
	u64 low, high;
	int err = group_get(search->vol, index, &group);

	if (err)
		return err == -ENOMEM ? err : 0;
	to = group->memo_len && len >= group->memo_len ? group->memo_from : 0;
	for (runs = 0; runs < FIT_RUNS && to < group->blocks && shortest > len; runs++) {
		from = find_next_zero_bit(group->busy, group->blocks, to);
		to = find_next_bit(group->busy, group->blocks, from);
		low = group->start + from;
		high = group->start + to;
		if (to - from < len || to - from >= shortest || !stretch_clip(search->balloc, NULL, &low, &high, len))
			continue;
		shortest = high - low;
		search->place->group = group;
		search->place->from = low - group->start;
	}
	count_add(search->vol, TUX3_COUNT_SEARCHED_RUNS, runs);
	if (shortest == U32_MAX)
		return search_group(search, index, 0, len, true);
	search->place->len = min(shortest, search->most);
	search->place->run = shortest;
	return 1;
}

/*
 * Of the goal's group and its neighbours, as far as they are known, the one that has the least to spoil.  0: none has room, or
 * most of the goal's is free in one piece.
 */
static int search_tight(struct search *search, u64 goal)
{
	u64 groups = search->balloc->group_count, index = goal / search->vol->group_blocks;
	u32 tried = 0, i, best, tightest, bound = group_bound(search, index);
	int found = 0;

	if (!bound || bound >= search->vol->group_blocks / 2)
		return 0;
	do {
		tightest = U32_MAX;
		for (i = 0; i <= NEIGHBOURS && i < groups; i++) {
			bound = group_bound(search, (index + i) % groups);
			if (bound >= search->want && bound < tightest && !(tried & 1u << i)) {
				tightest = bound;
				best = i;
			}
		}
		if (tightest == U32_MAX)
			break;
		tried |= 1u << best;
		found = search_fit(search, (index + best) % groups);
	} while (!found);
	return found;
}

static int place_new_file(struct search *search)
{
	struct balloc *balloc = search->balloc;
	u64 *goal = search->want > LARGE_BLOCKS ? &balloc->large_goal : &balloc->data_goal;
	int err = 0;

	if (!search_at(search, *goal, NULL, search->want)) {
		err = search_tight(search, *goal);
		err = err ? min(err, 0) : search_best(search, *goal);
	}
	if (!err)
		*goal = min(place_end(search->place), search->vol->total_blocks - 1);
	return err;
}

/* The stretch of a file that is to go on at this block. */
static struct balloc_stretch *stretch_of_file(struct balloc *balloc, u64 goal)
{
	struct balloc_stretch *stretch;
	u64 bits;

	lockdep_assert_held(&balloc->lock);
	for_each_stretch(balloc, stretch, bits)
		if (stretch->next < stretch->end && stretch->next == goal && !stretch->ino &&
		    stretch - balloc->stretches >= BALLOC_FILE_STRETCHES)
			return stretch;
	return NULL;
}

/* The one that makes room for another. */
static struct balloc_stretch *stretch_oldest(struct balloc *balloc)
{
	struct balloc_stretch *stretch, *oldest = &balloc->stretches[BALLOC_FILE_STRETCHES];

	for (stretch = oldest; stretch < balloc->stretches + BALLOC_STRETCHES; stretch++)
		if (stretch->used < oldest->used)
			oldest = stretch;
	return oldest;
}

static int place_growing_file(struct search *search, u64 goal)
{
	struct balloc *balloc = search->balloc;
	struct balloc_stretch *stretch = stretch_of_file(balloc, goal);
	int found, err;
	u32 size;

	if (search_at(search, goal, stretch, search->min)) {
		if (!stretch)
			return 0;
		stretch->next = place_end(search->place);
		stretch->used = ++balloc->clock;
		if (stretch->next >= stretch->end) {
			stretch->size = stretch_limit(search, min(2 * stretch->size, FILE_STRETCH_MAX));
			stretch_extend(balloc, stretch, stretch->size);
		}
		return 0;
	}
	size = min(search->most, FILE_STRETCH_MAX / FILE_STRETCH_FACTOR) * FILE_STRETCH_FACTOR;
	size = max(size, FILE_STRETCH_MIN);
	if (stretch) {
		size = max(size, min(2 * stretch->size, FILE_STRETCH_MAX));
		stretch_drop(balloc, stretch);
	}
	size = stretch_limit(search, size);
	if (size / 2 >= search->most) {
		found = search_length(search, goal, size, 0);
		if (found > 0)
			stretch_begin(search, stretch ? stretch : stretch_oldest(balloc), size);
		if (found)
			return min(found, 0);
	}
	if (search->most > LARGE_BLOCKS)
		search->want = max(search->want, size);
	err = search_best(search, goal);
	if (!err && min(search->place->run, size) / 2 >= search->most)
		stretch_begin(search, stretch ? stretch : stretch_oldest(balloc), min(search->place->run, size));
	return err;
}

/* ---- windows ---- */

u32 balloc_window_max(struct volume *vol)
{
	struct search search = { .vol = vol, .balloc = &vol->balloc };
	u32 limit = stretch_limit(&search, WINDOW_MAX);

	return limit ? rounddown_pow_of_two(limit) : 0;
}

/* No block has two windows: what others of the file had of these blocks goes, and what they had behind them. */
static void windows_cut(struct balloc *balloc, u64 ino, u64 block, u64 len)
{
	struct balloc_stretch *stretch;
	u64 bits;

	for_each_stretch(balloc, stretch, bits) {
		u64 has = stretch->end - stretch->next;

		if (stretch->ino != ino || stretch->block >= block + len || stretch->block + has <= block)
			continue;
		if (stretch->block < block)
			stretch->end = stretch->next + (block - stretch->block);
		else
			stretch_drop(balloc, stretch);
		balloc->released++;
	}
}

static void window_begin(struct search *search, const struct balloc_stretch *window)
{
	struct balloc_stretch *stretch;

	windows_cut(search->balloc, window->ino, window->block, window->end - window->next);
	stretch = stretch_oldest(search->balloc);
	stretch_begin(search, stretch, window->end - window->next);
	stretch->ino = window->ino;
	stretch->block = window->block;
	stretch->next = window->next;
	stretch->end = window->end;
}

int placement_window_open(struct volume *vol, const struct balloc_window *window, u64 hint)
{
	struct balloc *balloc = &vol->balloc;
	struct placement place;
	struct search search = { .vol = vol, .balloc = balloc, .min = window->len, .want = window->len, .most = window->len,
				 .place = &place };
	struct balloc_stretch opened = { .ino = window->ino, .block = window->block };
	int found = hint && hint < vol->total_blocks && search_at(&search, hint, NULL, window->len);

	lockdep_assert_held(&balloc->lock);
	if (!found)
		found = search_length(&search, balloc->large_goal, window->len, 0);
	if (found <= 0)
		return found ? found : -ENOSPC;
	opened.next = place.group->start + place.from;
	opened.end = opened.next + window->len;
	window_begin(&search, &opened);
	balloc->large_goal = min(place_end(&place), vol->total_blocks - 1);
	return 0;
}

/* How many blocks of the range are in use, if it is not more than max. */
static u32 count_busy(struct volume *vol, u64 addr, u64 end, u32 max)
{
	u32 busy = 0;

	while (addr < end && busy <= max) {
		u64 index = addr / vol->group_blocks;
		u32 from = addr % vol->group_blocks, to, next;
		struct balloc_info *info = group_info(vol, index);
		struct balloc_group *group;

		if (!info || info->state == GROUP_BAD || group_get(vol, index, &group))
			return U32_MAX;
		to = min_t(u64, group->blocks, from + (end - addr));
		addr += to - from;
		for (from = find_next_bit(group->busy, to, from); from < to; from = find_next_bit(group->busy, to, next)) {
			next = find_next_zero_bit(group->busy, to, from);
			busy += next - from;
		}
	}
	return busy;
}

/*
 * What no other stretch holds of [*low, *high) around this place, and for which file blocks there is no other window of the same
 * file.  False: one holds the place.
 */
static bool window_clip(const struct balloc *balloc, const struct balloc_stretch *own, u64 place, u64 *low, u64 *high)
{
	u64 block = own->block + (place - own->next), bits;
	const struct balloc_stretch *stretch;

	for_each_stretch(balloc, stretch, bits) {
		u64 len = stretch->end - stretch->next;

		if (stretch->next >= stretch->end || stretch_is_own(own, stretch))
			continue;
		if (stretch_has(stretch, place))
			return false;
		if (stretch->end <= place)
			*low = max(*low, stretch->end);
		else
			*high = min(*high, stretch->next);
		if (stretch->ino != own->ino)
			continue;
		if (stretch->block > block)
			*high = place + min(*high - place, stretch->block - block);
		else if (stretch->block + len <= block)
			*low = place - min(place - *low, block - stretch->block - len);
		else
			return false;
	}
	return true;
}

int placement_window_again(struct volume *vol, const struct balloc_window *window, u64 addr, u64 wanted)
{
	struct balloc_stretch own = { .ino = window->ino, .block = window->block, .next = addr };
	u64 low = addr, high = addr + window->len, place = addr + (wanted - window->block);
	u32 allowed = window->blocks + (window->high - window->low) / WINDOW_OTHERS;
	struct placement found;
	struct search search = { .vol = vol, .balloc = &vol->balloc, .min = 1, .want = 1, .most = 1, .place = &found };

	lockdep_assert_held(&vol->balloc.lock);
	if (!addr || addr >= vol->total_blocks || window->len > vol->total_blocks - addr ||
	    !window_clip(&vol->balloc, &own, place, &low, &high) || !search_at(&search, place, &own, 1) ||
	    count_busy(vol, addr + (window->low - window->block), addr + (window->high - window->block), allowed) > allowed)
		return -ENOSPC;
	own.block += low - addr;
	own.next = low;
	own.end = high;
	window_begin(&search, &own);
	return 0;
}

static struct balloc_stretch *window_of(struct balloc *balloc, u64 ino, u64 block)
{
	struct balloc_stretch *stretch;
	u64 bits;

	lockdep_assert_held(&balloc->lock);
	for_each_stretch(balloc, stretch, bits)
		if (stretch->ino == ino && block >= stretch->block && block - stretch->block < stretch->end - stretch->next)
			return stretch;
	return NULL;
}

int placement_in_window(struct volume *vol, u64 ino, u64 block, u32 want, struct placement *place)
{
	struct search search = { .vol = vol, .balloc = &vol->balloc, .min = 1, .place = place };
	struct balloc_stretch *stretch = window_of(&vol->balloc, ino, block);
	u64 addr;

	if (!stretch)
		return -ENOENT;
	addr = stretch->next + (block - stretch->block);
	search.want = search.most = min_t(u64, want, stretch->end - addr);
	if (!search_at(&search, addr, stretch, 1))
		return -ENOSPC;
	stretch->used = ++vol->balloc.clock;
	return 0;
}

/* ---- nodes and log ---- */

static int place_best(struct search *search, u64 near, u64 *kind_goal)
{
	int err = search_best(search, near);

	if (!err)
		*kind_goal = search->place->group->start + search->place->from;
	return err;
}

static int place_kind(struct search *search, enum balloc_kind kind, u64 goal)
{
	struct balloc *balloc = search->balloc;
	struct balloc_stretch *stretch = &balloc->stretches[kind];
	u64 *kind_goal = kind == BALLOC_NODE ? &balloc->node_goal : &balloc->log_goal;
	bool empty = stretch->next >= stretch->end;
	u32 size = stretch_limit(search, KIND_STRETCH);
	u64 near = goal ? goal : *kind_goal;
	int found;

	if (goal && search_at(search, goal, stretch, search->min)) {
		if (stretch_has(stretch, goal)) {
			balloc->released += stretch->next != goal;
			stretch->next = place_end(search->place);
		} else if (empty) {	/* as after a mount: go on from there */
			stretch_begin(search, stretch, size);
			stretch_extend(balloc, stretch, size);
		}
		return 0;
	}
	if (search->want > size)	/* as no stretch has: what is left of this one is for others */
		return place_best(search, near, kind_goal);
	if (!empty && search_at(search, stretch->next, stretch, search->min)) {
		stretch->next = place_end(search->place);
		return 0;
	}
	stretch_drop(balloc, stretch);
	/* From the start of the group: what was freed there since is used again before anything new. */
	goal = rounddown(near, search->vol->group_blocks);
	for (; size >= KIND_STRETCH_MIN && size / 2 >= search->want; size /= 4) {
		found = search_length(search, goal, size, 0);
		if (!found)
			continue;
		if (found > 0) {
			stretch_begin(search, stretch, size);
			*kind_goal = search->place->group->start + search->place->from;
		}
		return min(found, 0);
	}
	return place_best(search, near, kind_goal);
}

int placement_find(struct volume *vol, enum balloc_kind kind, u64 goal, const struct balloc_want *want, struct placement *place)
{
	struct search search = {
		.vol = vol, .balloc = &vol->balloc, .min = want->min, .most = min(want->most, vol->group_blocks),
		.want = min3(want->run, max(want->most, RUN_MAX), vol->group_blocks), .place = place,
	};
	int err, found;

	lockdep_assert_held(&vol->balloc.lock);
	if (want->min > vol->group_blocks)
		return -ENOSPC;
	if (goal >= vol->total_blocks)
		goal = 0;
	do {
		if (kind != BALLOC_DATA)
			err = place_kind(&search, kind, goal);
		else if (goal)
			err = place_growing_file(&search, goal);
		else
			err = place_new_file(&search);
	} while (err == -ENOSPC && stretches_drop(&vol->balloc));
	if (err == -ENOSPC) {
		found = search_unknown(&search, want->min, U64_MAX);
		if (found)
			err = min_t(int, found, 0);
		else if (vol->balloc.bad_groups)
			err = -EIO;
	}
	return err;
}

/* The first block of the free run that ends at bit (where the caller knows bit to be free). */
static u32 run_begin(const unsigned long *busy, u32 bit)
{
	while (bit) {
		u32 word = (bit - 1) / BITS_PER_LONG;
		unsigned long set = busy[word];

		if (bit % BITS_PER_LONG)
			set &= (1UL << bit % BITS_PER_LONG) - 1;
		if (set)
			return word * BITS_PER_LONG + ilog2(set) + 1;
		bit = word * BITS_PER_LONG;
	}
	return 0;
}

void placement_bound(struct balloc_group *group, u32 longest)
{
	struct balloc_chunk *chunk = group->chunk;
	u32 *part = &chunk->part_longest[group->index % CHUNK_GROUPS / PART_GROUPS];

	group->info->longest = longest;
	*part = max(*part, longest);
	chunk->longest = max(chunk->longest, longest);
}

void placement_freed(struct balloc_group *group, u32 from, u32 len)
{
	u32 end = find_next_bit(group->busy, group->blocks, from + len);

	from = run_begin(group->busy, from);
	placement_bound(group, max(group->info->longest, end - from));
	if (group->held_len && end - from >= group->held_len)
		group->held_len = end - from + 1;
	if (group->memo_len && end - from >= group->memo_len) {
		group->memo_from = min(group->memo_from, from);
		group->memo_to = max(group->memo_to, end);
	}
}

/* After a mount, nodes and log go on where they were; data begins anew. */
void placement_init(struct volume *vol)
{
	struct balloc *balloc = &vol->balloc;
	u64 last = vol->total_blocks - 1;

	balloc->node_goal = min_t(u64, le64_to_cpu(vol->anchor.root_addr), last);
	balloc->log_goal = min_t(u64, le64_to_cpu(vol->anchor.log_addr), last);
	balloc->data_goal = 0;
	if (balloc->group_count > 1)
		balloc->large_goal = min_t(u64, balloc->group_count / 2, NEIGHBOURS) * vol->group_blocks;
	else
		balloc->large_goal = vol->total_blocks / 2;
}
