/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The oracle's states: inodes shared between them, names, extents.  What operations do is in model_ops.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "model.h"

static void *model_copy(const void *from, size_t size, size_t room)
{
	void *to = malloc(room ? room : 1);

	if (!to)
		abort();
	if (size)
		memcpy(to, from, size);
	return to;
}

static void *model_resize(void *ptr, size_t size)
{
	ptr = realloc(ptr, size ? size : 1);
	if (!ptr)
		abort();
	return ptr;
}

static void inode_put(struct m_inode *inode)
{
	if (!inode || --inode->refs)
		return;
	free(inode->entries);
	free(inode->extents);
	free(inode->xattrs);
	free(inode);
}

struct m_state *model_snapshot(const struct m_state *from)
{
	struct m_state *state = model_copy(from, sizeof(*from), sizeof(*from));
	u32 i;

	state->refs = 1;
	state->inodes = model_copy(from->inodes, from->count * sizeof(*from->inodes),
				   from->count * sizeof(*from->inodes));
	for (i = 0; i < state->count; i++)
		if (state->inodes[i])
			state->inodes[i]->refs++;
	return state;
}

void model_put(struct m_state *state)
{
	u32 i;

	if (!state || --state->refs)
		return;
	for (i = 0; i < state->count; i++)
		inode_put(state->inodes[i]);
	free(state->inodes);
	free(state);
}

struct m_inode *model_change(struct m_state *state, u32 id)
{
	struct m_inode *old = state->inodes[id], *inode;

	state->version++;
	if (old->refs == 1)
		return old;
	inode = model_copy(old, sizeof(*old), sizeof(*old));
	inode->refs = 1;
	inode->entries = model_copy(old->entries, old->entry_count * sizeof(*old->entries),
				    old->entry_count * sizeof(*old->entries));
	inode->extents = model_copy(old->extents, old->extent_count * sizeof(*old->extents),
				    old->extent_count * sizeof(*old->extents));
	inode->xattrs = model_copy(old->xattrs, old->xattr_count * sizeof(*old->xattrs),
				   old->xattr_count * sizeof(*old->xattrs));
	old->refs--;
	state->inodes[id] = inode;
	return inode;
}

struct m_state *model_copy_all(const struct m_state *from)
{
	struct m_state *state = model_snapshot(from);
	u32 i;

	for (i = 0; i < state->count; i++)
		if (state->inodes[i])
			model_change(state, i);
	return state;
}

struct m_inode *model_add_inode(struct m_state *state, u32 mode, u64 now)
{
	struct m_inode *inode = calloc(1, sizeof(*inode));

	if (!inode)
		abort();
	state->inodes = model_resize(state->inodes, (state->count + 1) * sizeof(*state->inodes));
	inode->refs = 1;
	inode->id = state->count;
	inode->mode = mode;
	inode->parent = M_NONE;
	inode->mtime = inode->ctime = inode->btime = inode->atime = now;
	state->inodes[state->count++] = inode;
	state->version++;
	return inode;
}

struct m_state *model_new(u32 root_mode, u64 now)
{
	struct m_state *state = calloc(1, sizeof(*state));
	struct m_inode *root;
	u32 i;

	if (!state)
		abort();
	state->refs = 1;
	for (i = 0; i < SIM_SLOTS; i++)
		state->slots[i] = M_NONE;
	root = model_add_inode(state, S_IFDIR | root_mode, now);
	root->nlink = 2;
	root->parent = M_ROOT;
	return state;
}

void model_drop_if_unused(struct m_state *state, u32 id)
{
	struct m_inode *inode = state->inodes[id];
	u32 i;

	if (!inode || inode->nlink)
		return;
	for (i = 0; i < SIM_SLOTS; i++)
		if (state->slots[i] == id)
			return;
	inode_put(inode);
	state->inodes[id] = NULL;
}

void model_forget_open(struct m_state *state)
{
	u32 i, id;

	for (i = 0; i < SIM_SLOTS; i++) {
		id = state->slots[i];
		state->slots[i] = M_NONE;
		if (id != M_NONE)
			model_drop_if_unused(state, id);
	}
}

/* ---- names ---- */

/* Where name is or would be. */
static u32 entry_index(const struct m_inode *dir, const char *name, bool *found)
{
	u32 low = 0, high = dir->entry_count;

	*found = false;
	while (low < high) {
		u32 mid = (low + high) / 2;
		int cmp = strcmp(dir->entries[mid].name, name);

		if (!cmp) {
			*found = true;
			return mid;
		}
		if (cmp < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct m_entry *model_entry(const struct m_inode *dir, const char *name)
{
	bool found;
	u32 at = entry_index(dir, name, &found);

	return found ? &dir->entries[at] : NULL;
}

void model_add_entry(struct m_state *state, u32 dir_id, const char *name, u32 id)
{
	struct m_inode *dir = model_change(state, dir_id);
	static u64 numbers;
	bool found;
	u32 at = entry_index(dir, name, &found);

	if (!found) {
		dir->entries = model_resize(dir->entries, (dir->entry_count + 1) * sizeof(*dir->entries));
		memmove(&dir->entries[at + 1], &dir->entries[at], (dir->entry_count - at) * sizeof(*dir->entries));
		memset(&dir->entries[at], 0, sizeof(*dir->entries));
		snprintf(dir->entries[at].name, sizeof(dir->entries[at].name), "%s", name);
		dir->entry_count++;
	}
	dir->entries[at].id = id;
	dir->entries[at].got = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
}

void model_remove_entry(struct m_state *state, u32 dir_id, const char *name)
{
	struct m_inode *dir = model_change(state, dir_id);
	bool found;
	u32 at = entry_index(dir, name, &found);

	if (!found)
		abort();
	dir->entry_count--;
	memmove(&dir->entries[at], &dir->entries[at + 1], (dir->entry_count - at) * sizeof(*dir->entries));
}

static u32 lookup_fail(int *err, int value)
{
	*err = value;
	return M_NONE;
}

u32 model_parent(const struct m_state *state, const char *path, const char **name, int *err)
{
	u32 id = M_ROOT;

	*err = 0;
	for (;;) {
		const char *slash = strchr(path, '/');
		char part[SIM_PATH_MAX];
		const struct m_entry *entry;

		if (!S_ISDIR(state->inodes[id]->mode))
			return lookup_fail(err, -ENOTDIR);
		if (!slash) {
			*name = path;
			return id;
		}
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		entry = model_entry(state->inodes[id], part);
		if (!entry)
			return lookup_fail(err, -ENOENT);
		id = entry->id;
		path = slash + 1;
	}
}

u32 model_lookup(const struct m_state *state, const char *path, int *err)
{
	const struct m_entry *entry;
	const char *name;
	u32 dir;

	*err = 0;
	if (!*path)
		return M_ROOT;
	if (*path == '@') {
		u32 id = state->slots[(path[1] - '0') % SIM_SLOTS];

		return id == M_NONE ? lookup_fail(err, -EBADF) : id;
	}
	dir = model_parent(state, path, &name, err);
	if (dir == M_NONE)
		return dir;
	entry = model_entry(state->inodes[dir], name);
	return entry ? entry->id : lookup_fail(err, -ENOENT);
}

bool model_path(const struct m_state *state, u32 id, char *path, size_t size)
{
	char above[SIM_PATH_MAX];
	u32 dir, i;

	if (id == M_ROOT) {
		*path = 0;
		return true;
	}
	for (dir = 0; dir < state->count; dir++) {
		const struct m_inode *inode = state->inodes[dir];

		if (!inode || !S_ISDIR(inode->mode))
			continue;
		for (i = 0; i < inode->entry_count; i++) {
			if (inode->entries[i].id != id || !model_path(state, dir, above, sizeof(above)))
				continue;
			return snprintf(path, size, "%s%s%s", above, *above ? "/" : "",
					inode->entries[i].name) < size;
		}
	}
	return false;
}

/* ---- contents ---- */

void model_punch(struct m_inode *inode, u64 start, u64 end)
{
	struct m_extent *new;
	u32 i, count = 0;

	if (start >= end)
		return;
	new = model_resize(NULL, (inode->extent_count + 2) * sizeof(*new));
	for (i = 0; i < inode->extent_count; i++) {
		struct m_extent ext = inode->extents[i];

		if (ext.start < start) {
			new[count] = ext;
			new[count].end = ext.end < start ? ext.end : start;
			count++;
		}
		if (ext.end > end) {
			new[count] = ext;
			new[count].start = ext.start > end ? ext.start : end;
			count++;
		}
	}
	free(inode->extents);
	inode->extents = new;
	inode->extent_count = count;
}

static int extent_compare(const void *a, const void *b)
{
	const struct m_extent *left = a, *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

void model_copy_range(struct m_inode *to, u64 at, const struct m_inode *from, u64 start, u64 len)
{
	u32 i, count = from->extent_count;

	to->extents = model_resize(to->extents, (to->extent_count + count) * sizeof(*to->extents) + 1);
	for (i = 0; i < count; i++) {
		struct m_extent ext = from->extents[i];

		ext.start = ext.start > start ? ext.start : start;
		ext.end = ext.end - start < len || ext.end < start ? ext.end : start + len;
		if (ext.start >= ext.end)
			continue;
		ext.start += at - start;
		ext.end += at - start;
		ext.moved += at - start;
		to->extents[to->extent_count++] = ext;
	}
	qsort(to->extents, to->extent_count, sizeof(*to->extents), extent_compare);
}

void model_put_extent(struct m_inode *inode, u64 start, u64 end, u64 seed)
{
	u32 at = 0;

	model_punch(inode, start, end);
	if (start >= end)
		return;
	while (at < inode->extent_count && inode->extents[at].start < start)
		at++;
	inode->extents = model_resize(inode->extents, (inode->extent_count + 1) * sizeof(*inode->extents));
	memmove(&inode->extents[at + 1], &inode->extents[at], (inode->extent_count - at) * sizeof(*inode->extents));
	inode->extents[at] = (struct m_extent){ start, end, seed, 0 };
	inode->extent_count++;
}

struct m_xattr *model_xattr(const struct m_inode *inode, const char *name)
{
	u32 i;

	for (i = 0; i < inode->xattr_count; i++)
		if (!strcmp(inode->xattrs[i].name, name))
			return &inode->xattrs[i];
	return NULL;
}

void model_set_ino(struct m_state *state, u32 id, u64 ino)
{
	model_change(state, id)->ino = ino;
}

bool model_ino_taken(const struct m_state *state, u64 ino, u32 but)
{
	u32 i;

	for (i = 0; i < state->count; i++)
		if (state->inodes[i] && i != but && state->inodes[i]->ino == ino)
			return true;
	return false;
}

/* ---- an inode ahead of the rest ---- */

static bool same_xattrs(const struct m_inode *a, const struct m_inode *b)
{
	u32 i;

	for (i = 0; i < a->xattr_count; i++) {
		const struct m_xattr *xattr = model_xattr(b, a->xattrs[i].name);

		if (!xattr || xattr->len != a->xattrs[i].len || xattr->seed != a->xattrs[i].seed)
			return false;
	}
	return a->xattr_count == b->xattr_count;
}

static void put_on_old(struct m_state *state, const struct m_state *then, u32 id)
{
	const struct m_inode *from = then->inodes[id];
	struct m_inode *inode;

	inode = model_change(state, id);
	inode->nlink = from->nlink;
	inode->mode = from->mode;
	inode->uid = from->uid;
	inode->gid = from->gid;
	inode->size = from->size;
	inode->mtime = from->mtime;
	inode->ctime = from->ctime;
	inode->atime = from->atime;
	free(inode->extents);
	inode->extents = model_copy(from->extents, from->extent_count * sizeof(*from->extents),
				    from->extent_count * sizeof(*from->extents));
	inode->extent_count = from->extent_count;
	free(inode->xattrs);
	inode->xattrs = model_copy(from->xattrs, from->xattr_count * sizeof(*from->xattrs),
				   from->xattr_count * sizeof(*from->xattrs));
	inode->xattr_count = from->xattr_count;
}

static void put_new(struct m_state *state, const struct m_state *then, u32 id)
{
	if (id >= state->count) {
		state->inodes = model_resize(state->inodes, (id + 1) * sizeof(*state->inodes));
		memset(&state->inodes[state->count], 0, (id + 1 - state->count) * sizeof(*state->inodes));
		state->count = id + 1;
	}
	then->inodes[id]->refs++;
	state->inodes[id] = then->inodes[id];
}

/* Who has an entry for it?  NULL: nobody. */
static const struct m_entry *entry_of(const struct m_inode *dir, u32 id)
{
	u32 i;

	for (i = 0; dir && i < dir->entry_count; i++)
		if (dir->entries[i].id == id)
			return &dir->entries[i];
	return NULL;
}

/*
 * Names that an intent says, and the inodes that had them before and have them then: from one to the other, since no file may
 * have more or fewer names than its link count says.
 */
#define PUT_MAX M_CLOSURE

struct put_names {
	struct m_state *state;
	const struct m_state *then;
	struct m_state *bases[M_BASES];		/* on which it must hold: names that one of them has otherwise */
	u32 base_count;
	bool listing;		/* of a directory, which takes new files along that have one name and were never synced */
	u32 ids[PUT_MAX], id_count;
	struct put_name {
		u32 dir;
		const char *name;
		u32 was, is;		/* in state */
	} names[PUT_MAX];
	u32 name_count;
};

static u64 later(u64 a, u64 b)
{
	return a > b ? a : b;
}

static const struct m_inode *inode_in(const struct m_state *state, u32 id)
{
	return id < state->count ? state->inodes[id] : NULL;
}

static u32 holder(const struct m_state *state, u32 dir, const char *name)
{
	const struct m_inode *inode = inode_in(state, dir);
	const struct m_entry *entry = inode ? model_entry(inode, name) : NULL;

	return entry ? entry->id : M_NONE;
}

static void put_id(struct put_names *put, u32 id)
{
	u32 i;

	for (i = 0; i < put->id_count && put->ids[i] != id; i++)
		;
	if (id == M_NONE || i < put->id_count)
		return;
	if (put->id_count == PUT_MAX)
		abort();
	put->ids[put->id_count++] = id;
}

/* When did who has it get it?  0: nobody has. */
static u64 got(const struct m_state *state, u32 dir, const char *name)
{
	const struct m_inode *inode = inode_in(state, dir);
	const struct m_entry *entry = inode ? model_entry(inode, name) : NULL;

	return entry ? entry->got : 0;
}

static void put_name(struct put_names *put, u32 dir, const char *name)
{
	u32 i;

	for (i = 0; i < put->name_count; i++)
		if (put->names[i].dir == dir && !strcmp(put->names[i].name, name))
			return;
	if (put->name_count == PUT_MAX)
		abort();
	put->names[put->name_count++] = (struct put_name){
		dir, strdup(name), holder(put->state, dir, name), holder(put->then, dir, name),
	};
	for (i = 0; i < put->base_count; i++)
		put_id(put, holder(put->bases[i], dir, name));
	put_id(put, holder(put->then, dir, name));
}

/*
 * If it leads elsewhere in one of them; or, again: whoever has it has lost it and got it again, so what was changed of him in
 * between comes before that.
 */
static void look_at_name(struct put_names *put, u32 dir, const char *name, bool again)
{
	u32 i;

	for (i = 0; i < put->base_count; i++)
		if (holder(put->bases[i], dir, name) != holder(put->then, dir, name) ||
		    (again && got(put->bases[i], dir, name) != got(put->then, dir, name)))
			put_name(put, dir, name);
}

static void look_at_entries(struct put_names *put, const struct m_state *state, u32 dir, u32 id)
{
	const struct m_inode *inode = inode_in(state, dir);
	u32 i;

	for (i = 0; inode && i < inode->entry_count; i++)
		if (id == M_NONE || inode->entries[i].id == id)
			look_at_name(put, dir, inode->entries[i].name, id == M_NONE);
}

/* id M_NONE: all names of the directory. */
static void put_dir(struct put_names *put, u32 dir, u32 id)
{
	u32 i;

	for (i = 0; i < put->base_count; i++)
		look_at_entries(put, put->bases[i], dir, id);
	look_at_entries(put, put->then, dir, id);
}

/* Of the file id, if it is not M_NONE, or of all names of a directory. */
static void put_find(struct put_names *put, u32 id, u32 dir)
{
	u32 i, at;

	if (dir != M_NONE)
		put_dir(put, dir, M_NONE);
	put_id(put, id);
	for (i = 0; i < put->id_count; i++)
		for (at = 0; at < put->then->count; at++)
			put_dir(put, at, put->ids[i]);
}

static void put_free(struct put_names *put)
{
	u32 i;

	for (i = 0; i < put->name_count; i++)
		free((char *)put->names[i].name);
}

void model_find_closure(struct m_state *const *bases, u32 count, const struct m_state *then, u32 id, struct m_closure *closure)
{
	bool is_dir = S_ISDIR(then->inodes[id]->mode);
	struct put_names put = { .state = bases[0], .then = then, .base_count = count };
	u32 i;

	memcpy(put.bases, bases, count * sizeof(*bases));
	put_find(&put, is_dir ? M_NONE : id, is_dir ? id : M_NONE);
	closure->count = put.name_count;
	for (i = 0; i < put.name_count; i++) {
		closure->names[i].dir = put.names[i].dir;
		snprintf(closure->names[i].name, SIM_PATH_MAX, "%s", put.names[i].name);
	}
	put_free(&put);
}

/*
 * It is set forward, to what it is by then; or to by, if that is not 0.  (It may be earlier by then: somebody has set it back.)  If
 * it may have been less than this, so it may still.
 */
static void put_time(u64 *time, u64 *low, u64 *high, u64 is, u64 by)
{
	u64 least = *low && *high == *time ? *low : *time;

	by = by ? by : is;
	*time = later(*time, later(is, by));
	*low = later(least, is < by ? is : by);
	*high = *time;
}

/* Perhaps it is set forward. */
static void put_perhaps(u64 *time, u64 *low, u64 *high, u64 is)
{
	*low = *low && *high == *time ? *low : *time;
	*time = *high = later(*time, is);
}

/*
 * The directory has been changed by then; if that was not said of the name alone, which may have come there later, when.  If it was
 * removed since, the times are those of then, which nobody knows here.
 */
static void put_times(struct put_names *put, u32 dir, u64 born)
{
	const struct m_inode *is = inode_in(put->then, dir);
	struct m_inode *inode = model_change(put->state, dir);

	if (!is) {
		put_perhaps(&inode->mtime, &inode->mtime_low, &inode->mtime_high, ~0ULL);
		put_perhaps(&inode->ctime, &inode->ctime_low, &inode->ctime_high, ~0ULL);
		return;
	}
	put_time(&inode->mtime, &inode->mtime_low, &inode->mtime_high, is->mtime, born);
	put_time(&inode->ctime, &inode->ctime_low, &inode->ctime_high, is->ctime, born);
}

/* The same where the name does not change: if more was said than that a new file has it. */
static void put_times_perhaps(struct put_names *put, u32 dir)
{
	const struct m_inode *is = inode_in(put->then, dir);
	struct m_inode *inode = model_change(put->state, dir);

	put_perhaps(&inode->mtime, &inode->mtime_low, &inode->mtime_high, is ? is->mtime : ~0ULL);
	put_perhaps(&inode->ctime, &inode->ctime_low, &inode->ctime_high, is ? is->ctime : ~0ULL);
}

/* The directory is new: it is made as it is then, with nothing in it, and those that it is in before it. */
static const char *put_dir_there(struct put_names *put, u32 id)
{
	const struct m_inode *is = inode_in(put->then, id);
	const struct m_entry *entry = is ? entry_of(inode_in(put->then, is->parent), id) : NULL;
	struct m_inode *inode;
	const char *why;

	if (inode_in(put->state, id))
		return NULL;
	if (!entry)
		return "its directory is not there";
	why = put_dir_there(put, is->parent);
	if (why)
		return why;
	put_new(put->state, put->then, id);
	inode = model_change(put->state, id);
	inode->entry_count = 0;
	inode->nlink = 2;
	model_add_entry(put->state, is->parent, entry->name, id);
	model_entry(put->state->inodes[is->parent], entry->name)->got = entry->got;
	model_change(put->state, is->parent)->nlink++;
	put_times(put, is->parent, is->btime);
	return NULL;
}

static bool is_dir(const struct m_state *state, u32 id)
{
	return id != M_NONE && inode_in(state, id) && S_ISDIR(state->inodes[id]->mode);
}

/* Does it come to one of the names?  Then it has there what it had when it got it. */
static bool gets_name(const struct put_names *put, u32 id)
{
	u32 i;

	for (i = 0; i < put->name_count; i++)
		if (put->names[i].is == id)
			return true;
	return false;
}

/* Has it lost or got one of them, as far as a crash can show? */
static bool changes_names(const struct put_names *put, u32 id)
{
	u32 i;

	for (i = 0; i < put->name_count; i++)
		if (put->names[i].was != put->names[i].is && (put->names[i].was == id || put->names[i].is == id))
			return true;
	return false;
}

/* Is it the same file but for its names, and what follows from them? */
static bool same_file(const struct m_inode *a, const struct m_inode *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->size == b->size && a->mtime == b->mtime &&
	       a->extent_count == b->extent_count &&
	       (!a->extent_count || !memcmp(a->extents, b->extents, a->extent_count * sizeof(*a->extents))) && same_xattrs(a, b);
}

static const char *put_inode(struct put_names *put, u32 id)
{
	const struct m_inode *is = inode_in(put->then, id), *was = inode_in(put->state, id);
	struct m_inode *inode;

	if (!was && is && is->nlink == 1 && S_ISREG(is->mode) && put->listing) {
		put_new(put->state, put->then, id);
		return NULL;
	}
	if (!was)
		return is && is->nlink ? "a file that is to have one of the names is not there" : NULL;
	if (S_ISDIR(was->mode))
		return NULL;
	if (gets_name(put, id) && !same_file(was, is))
		put_on_old(put->state, put->then, id);
	if (!changes_names(put, id))
		return NULL;
	inode = model_change(put->state, id);
	inode->nlink = is ? is->nlink : 0;
	inode->ctime = is ? is->ctime : inode->ctime;
	model_drop_if_unused(put->state, id);
	return NULL;
}

static void put_entry(struct put_names *put, const struct put_name *name)
{
	model_add_entry(put->state, name->dir, name->name, name->is);
	model_entry(put->state->inodes[name->dir], name->name)->got = got(put->then, name->dir, name->name);
}

/* It may only be one that is made with it. */
static bool name_is_of_dir(struct put_names *put, const struct put_name *name, const char **why)
{
	bool was = is_dir(put->state, name->was), is = is_dir(put->then, name->is);

	if (!was && !is)
		return false;
	if (name->was == name->is)
		return true;
	*why = was || inode_in(put->state, name->is) ? "a directory has got or lost one of the names" :
						       put_dir_there(put, name->is);
	return true;
}

/* subject: the file that the intent is of.  born: when it was made, if it is new. */
static const char *put_all(struct put_names *put, u32 subject, u64 born)
{
	const char *why = NULL;
	u32 i;

	for (i = 0; i < put->name_count && !why; i++) {
		const struct put_name *name = &put->names[i];

		why = put_dir_there(put, name->dir);
		if (why && name->is == M_NONE && name->was == M_NONE) {
			why = NULL;
			continue;
		}
		if (why || name_is_of_dir(put, name, &why))
			continue;
		if (name->was == name->is)
			put_times_perhaps(put, name->dir);
		if (name->is == M_NONE && name->was == M_NONE)
			continue;
		if (name->is == M_NONE)
			model_remove_entry(put->state, name->dir, name->name);
		else
			put_entry(put, name);
		if (name->was != name->is)
			put_times(put, name->dir, put->name_count == 1 ? born : 0);
	}
	for (i = 0; i < put->id_count && !why; i++)
		if (put->ids[i] != subject)
			why = put_inode(put, put->ids[i]);
	return why;
}

/* Of the file id; or dir: of all names of a directory. */
static const char *put_names(struct m_state *state, const struct m_state *then, u32 id, u32 dir, u64 born,
			     const struct m_closure *closure)
{
	struct put_names put = { .state = state, .then = then, .bases = { state }, .base_count = 1, .listing = dir != M_NONE };
	const char *why;
	u32 i;

	for (i = 0; closure && i < closure->count; i++)
		put_name(&put, closure->names[i].dir, closure->names[i].name);
	put_find(&put, id, dir);
	why = dir != M_NONE ? put_dir_there(&put, dir) : NULL;
	if (!why)
		why = put_all(&put, id, born);
	if (dir != M_NONE && !why)
		put_times(&put, dir, 0);
	put_free(&put);
	return why;
}

static bool time_differs(u64 is, u64 low, u64 high, u64 other)
{
	return is == high && low ? other < low || other > high : other != is;
}

bool model_mtime_differs(const struct m_inode *inode, u64 mtime)
{
	return time_differs(inode->mtime, inode->mtime_low, inode->mtime_high, mtime);
}

bool model_ctime_differs(const struct m_inode *inode, u64 ctime)
{
	return time_differs(inode->ctime, inode->ctime_low, inode->ctime_high, ctime);
}

/* But for its names and times. */
static bool same_dir(const struct m_inode *a, const struct m_inode *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && same_xattrs(a, b);
}

bool model_same_dir(const struct m_state *a, const struct m_state *b, u32 id)
{
	const struct m_inode *dir = id < a->count ? a->inodes[id] : NULL, *other = b->inodes[id];
	u32 i;

	if (!dir || !same_dir(dir, other) || model_mtime_differs(dir, other->mtime) ||
	    model_ctime_differs(dir, other->ctime) || dir->entry_count != other->entry_count)
		return false;
	for (i = 0; i < other->entry_count; i++) {
		const struct m_entry *entry = model_entry(dir, other->entries[i].name);

		if (!entry || entry->id != other->entries[i].id)
			return false;
	}
	return true;
}

/* With the names in it, it is as it was then, times and all. */
static const char *put_dir_ahead(struct m_state *state, const struct m_state *then, u32 id, const struct m_closure *closure)
{
	const char *why = put_names(state, then, M_NONE, id, 0, closure);
	const struct m_inode *is = then->inodes[id];
	struct m_inode *inode;

	if (why)
		return why;
	inode = model_change(state, id);
	if (!same_dir(inode, is) || model_mtime_differs(inode, is->mtime) || model_ctime_differs(inode, is->ctime))
		return "the directory itself is not as it was";
	inode->mtime = is->mtime;
	inode->mtime_low = is->mtime_low;
	inode->mtime_high = is->mtime_high;
	inode->ctime = is->ctime;
	inode->ctime_low = is->ctime_low;
	inode->ctime_high = is->ctime_high;
	return NULL;
}

const char *model_put_ahead(struct m_state *state, const struct m_state *then, u32 id, const struct m_closure *closure)
{
	bool is_there = inode_in(state, id);
	const char *why;

	if (S_ISDIR(then->inodes[id]->mode))
		return put_dir_ahead(state, then, id, closure);
	/* Without a name it is gone after a crash, and nothing of it can be seen. */
	if (!is_there && !then->inodes[id]->nlink)
		return NULL;
	why = put_names(state, then, id, M_NONE, is_there ? 0 : then->inodes[id]->btime, closure);
	if (why)
		return why;
	if (is_there)
		put_on_old(state, then, id);
	else
		put_new(state, then, id);
	return NULL;
}
