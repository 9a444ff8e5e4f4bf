// SPDX-License-Identifier: GPL-2.0-or-later
/* The hash of a name: SipHash with the key of the volume. */
#include "core/volume.h"
#include "core/format/name_hash.h"

/*
 * What readdir publishes, the hashes of entries, says nothing about those of parent pointers and of attributes, nor about
 * those of the same name in another directory: number and type are hashed with the name.
 */
u64 name_hash(struct volume *vol, u64 ino, u8 type, const char *name, unsigned int len)
{
	struct {
		__le64 ino_type;
		char name[TUX3_NAME_MAX];
	} text;
	u64 hash;

	len = min_t(unsigned int, len, TUX3_NAME_MAX);
	text.ino_type = cpu_to_le64(ino << 8 | type);
	memcpy(text.name, name, len);
	hash = siphash(&text, offsetof(typeof(text), name) + len, &vol->hash_key) & S64_MAX;
	if (vol->opts.name_hash_mask)
		hash &= vol->opts.name_hash_mask;
	return hash < NAME_HASH_MIN ? hash + NAME_HASH_MIN : min_t(u64, hash, NAME_HASH_MAX);
}
