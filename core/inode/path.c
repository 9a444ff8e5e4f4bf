// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Paths of inodes: see path.h.
 *
 * It ends on any volume: each step makes the path longer, and its buffer has an end.
 *
 * Locking: tree.sem shared for a component; for messages it is only tried for, and nodes are taken that are in memory.
 */
#include "core/volume.h"
#include "core/format/chain.h"
#include "core/inode/path.h"
#include "core/tree/tree.h"
#include "core/tree/tree_internal.h"

int path_prepend(struct path_text *path, const void *name, u32 len)
{
	if (path->at <= len)
		return -ENAMETOOLONG;
	path->at -= len;
	memcpy(path->text + path->at, name, len);
	path->text[--path->at] = '/';
	return 0;
}

/* The parent pointer of a directory. */
struct above {
	struct path_text *path;
	bool first;		/* of several names one will do */
	u64 dir;		/* that it is in; 0: none was found */
};

static int above_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct above *above = ctx;
	struct chain chain = chain_of(data, len);
	const struct disk_parent *parent = chain_next_parent(&chain);
	int err;

	if (!parent || above->dir)		/* a directory has one name */
		return -EUCLEAN;
	above->dir = get_unaligned_le64(&parent->dir);
	err = path_prepend(above->path, parent->name, parent->len);
	return err ? err : above->first;
}

static int path_step(struct volume *vol, u64 ino, struct above *above)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_PARENT, 0), to = tree_key(ino, TUX3_ITEM_PARENT, U64_MAX);
	int err = tree_scan(vol, &from, &to, above_item, above);

	return err < 0 ? err : above->dir ? 0 : -ENOENT;
}

int path_above(struct volume *vol, struct path_text *path, u64 *dir)
{
	while (*dir != TUX3_INO_ROOT) {
		struct above above = { .path = path };
		int err = path_step(vol, *dir, &above);

		if (err)
			return err;
		*dir = above.dir;
	}
	return 0;
}

const char *path_first(struct volume *vol, u64 ino, char *text, size_t size)
{
	struct path_text path = { text, size - 1 };
	struct above above = { .path = &path, .first = true };

	text[size - 1] = 0;
	if (ino == TUX3_INO_ROOT)
		return "/";
	return path_step(vol, ino, &above) || path_above(vol, &path, &above.dir) ? NULL : text + path.at;
}

static void path_to_begin(char *text, size_t size, const char *path)
{
	size_t len = path ? strlen(path) : 0;

	memmove(text, path ? path : "", len);
	memset(text + len, 0, size - len);
}

void path_first_copy(struct volume *vol, u64 ino, char *text, size_t size)
{
	path_to_begin(text, size, path_first(vol, ino, text, size));
}

/* ---- for messages ---- */

/* The first parent pointer in nodes that are in memory, at the end of one leaf or the beginning of the next. */
static int note_step(struct volume *vol, u64 ino, struct above *above)
{
	struct tree_key from = tree_key(ino, TUX3_ITEM_PARENT, 0);
	struct node_key key = node_key_pack(&from);
	const u64 high = key.high;
	u32 turn;

	lockdep_assert_held(&vol->tree.sem);
	for (turn = 0; turn < 2 && key.high == high; turn++) {
		const struct disk_node *leaf;
		struct tree_path path;
		bool found;
		int err = path_descend(vol, &path, &key, false);
		u32 pos;

		if (err)
			return -EAGAIN;
		leaf = path_node(&path, 0);
		pos = leaf_find(leaf, &key, &found);
		err = -ENOENT;
		if (pos < node_count(leaf)) {
			key = leaf_key(leaf, pos);
			if (key.high == high)
				err = above_item(above, &from, leaf_data(leaf, pos), leaf_len(leaf, pos));
			key.high = 0;
		} else {
			key = path.has_high ? path.high : (struct node_key){ 0, 0 };
		}
		tree_path_put(vol, &path);
		if (err != -ENOENT)
			return min(err, 0);
	}
	return -ENOENT;
}

#define PATH_NOTE_MAX 300

/* " (/its/path)", or nothing.  Returns text. */
static const char *path_note(struct volume *vol, u64 ino, char *text, size_t size)
{
	struct path_text path = { text, size - 2 };
	int err = 0;

	text[0] = 0;
	if (ino == TUX3_INO_ROOT) {
		snprintf(text, size, " (/)");
		return text;
	}
	if (!down_read_trylock(&vol->tree.sem))
		return text;
	while (!err && ino != TUX3_INO_ROOT) {
		struct above above = { .path = &path, .first = true };

		err = note_step(vol, ino, &above);
		ino = above.dir;
	}
	up_read(&vol->tree.sem);
	if (!err && path.at >= 2) {
		text[path.at - 1] = '(';
		text[path.at - 2] = ' ';
		text[size - 2] = ')';
		text[size - 1] = 0;
		path_to_begin(text, size, text + path.at - 2);
	} else {
		text[0] = 0;
	}
	return text;
}

void inode_warn(struct volume *vol, const char *what, u64 ino, const char *format, ...)
{
	char text[300], note[PATH_NOTE_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	volume_warn(vol, "%s %llu%s%s", what, (unsigned long long)ino, path_note(vol, ino, note, sizeof(note)), text);
}

void inode_tell(struct volume *vol, const char *what, u64 ino, const char *text)
{
	char note[PATH_NOTE_MAX];

	volume_tell(vol, "%s %llu%s%s", what, (unsigned long long)ino, path_note(vol, ino, note, sizeof(note)), text);
}
