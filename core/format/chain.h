/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Chains: items that hold several entries, one after another, because their hashes collide.  Names of a directory, parent
 * pointers and extended attributes are such items.
 *
 *	struct chain chain = chain_of(data, len);
 *
 *	while ((entry = chain_next_dirent(&chain)))
 *		...
 *	if (chain.bad)
 *		what is at chain.at is not an entry, or not a whole one
 *
 * This is the one place that knows where an entry ends, but for the checker: that has an iterator of its own, so that it
 * can be of another opinion.
 */
#ifndef TUX3_CHAIN_H
#define TUX3_CHAIN_H

#include "core/env.h"
#include "core/format/format.h"

struct chain {
	const u8 *data;
	u32 len;
	u32 at, size;		/* the entry that was returned last; at the end: at == len, or bad */
	bool bad;
};

static inline struct chain chain_of(const void *data, u32 len)
{
	return (struct chain){ .data = data, .len = len };
}

/* Bytes of the entry at p, 0 if it has no name or does not fit into left bytes. */
static inline u32 dirent_size(const struct disk_dirent *entry, u32 left)
{
	return left < sizeof(*entry) || !entry->len || left - sizeof(*entry) < entry->len ? 0 : sizeof(*entry) + entry->len;
}

static inline u32 parent_size(const struct disk_parent *entry, u32 left)
{
	return left < sizeof(*entry) || !entry->len || left - sizeof(*entry) < entry->len ? 0 : sizeof(*entry) + entry->len;
}

/* With what follows the name: the value, or where it is. */
static inline u32 xattr_size(const struct disk_xattr *entry, u32 left)
{
	u32 size = sizeof(*entry);

	if (left < size || !entry->len)
		return 0;
	size += entry->len;
	if (entry->pieces)
		size += entry->pieces * (u32)sizeof(struct disk_xattr_piece);
	else if (le32_to_cpu(entry->value_len) > TUX3_XATTR_INLINE_MAX)
		return 0;
	else
		size += le32_to_cpu(entry->value_len);
	return size <= left ? size : 0;
}

/* The next entry, NULL at the end. */
#define CHAIN_NEXT(kind)								\
static inline const struct disk_##kind *chain_next_##kind(struct chain *chain)		\
{											\
	const struct disk_##kind *entry;						\
											\
	chain->at += chain->size;							\
	chain->size = 0;								\
	if (chain->at == chain->len)							\
		return NULL;								\
	entry = (const void *)(chain->data + chain->at);				\
	chain->size = kind##_size(entry, chain->len - chain->at);			\
	chain->bad = !chain->size;							\
	return chain->bad ? NULL : entry;						\
}
CHAIN_NEXT(dirent)
CHAIN_NEXT(parent)
CHAIN_NEXT(xattr)
#undef CHAIN_NEXT

#endif
