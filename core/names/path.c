// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Paths of inodes: see path.h.
 *
 * It ends on any volume: each step makes the path longer, and its buffer has an end.
 *
 * Locking: tree.sem shared for a component.
 */
#include "core/volume.h"
#include "core/format/chain.h"
#include "core/names/path.h"
#include "core/tree/tree.h"

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
