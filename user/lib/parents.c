/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Parents of nodes, and paths of inodes: what the core says, in the library's words.
 */
#include "lib.h"
#include "core/names/parent_list.h"

static_assert(sizeof(struct tux3_parent_cursor) == sizeof(struct parent_cursor), "one is copied to the other");

struct parents_call {
	tux3_parent_fn fn;
	void *ctx;
};

static int tell_parent(void *ctx, const struct parent_found *found)
{
	struct parents_call *call = ctx;
	struct tux3_parent parent = { .dir = found->dir, .generation = found->generation, .name = found->name };

	return call->fn(call->ctx, &parent);
}

int tux3_parents(struct tux3_node *node, struct tux3_parent_cursor *cursor, tux3_parent_fn fn, void *ctx)
{
	struct parents_call call = { fn, ctx };
	struct parent_cursor at;
	int ret;

	memcpy(&at, cursor, sizeof(at));
	ret = parent_iterate(&node->inode, &at, tell_parent, &call);
	memcpy(cursor, &at, sizeof(at));
	return ret;
}

int tux3_path_of(struct tux3 *volume, uint64_t ino, uint32_t generation, struct tux3_parent_cursor *cursor, char *path,
		 size_t size)
{
	struct parent_cursor at;
	int ret;

	if (!volume || !cursor)
		return -EINVAL;
	if (size < 2)
		return -ENAMETOOLONG;
	memcpy(&at, cursor, sizeof(at));
	ret = parent_path(volume->vol, ino, generation, &at, path, size);
	if (ret >= 0)
		memcpy(cursor, &at, sizeof(at));
	return ret;
}
