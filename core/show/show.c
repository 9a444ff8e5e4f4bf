/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Printers of on-disk objects, as text or JSON: see show.h.
 *
 * Called by tools, error messages and tests; no state, no locks.  Objects may come from a damaged
 * disk, so whatever has a length is checked against the room it is in.
 */
#include "core/env.h"
#include "core/format/chain.h"
#include "core/format/format.h"
#include "core/tree/tree.h"
#include "core/data/data.h"
#include "core/show/show.h"

void show_printf(struct show_buffer *out, const char *format, ...)
{
	va_list args;

	if (out->used + 1 >= out->size)
		return;
	va_start(args, format);
	out->used += vscnprintf(out->text + out->used, out->size - out->used, format, args);
	va_end(args);
}

/* ---- fields ---- */

static void show_name(struct show_buffer *out, const char *name)
{
	if (out->more)
		show_printf(out, "%s", out->json ? ", " : out->separator ? out->separator : " ");
	out->more = true;
	if (name && out->json)
		show_printf(out, "\"%s\": ", name);
	else if (name)
		show_printf(out, "%s ", name);
}

void show_begin(struct show_buffer *out, const char *name)
{
	if (name || out->depth)
		show_name(out, name);
	if (out->json || out->depth)
		show_printf(out, "{");
	out->depth++;
	out->more = false;
}

void show_end(struct show_buffer *out)
{
	out->depth--;
	if (out->json || out->depth)
		show_printf(out, "}");
	out->more = true;
}

void show_list_begin(struct show_buffer *out, const char *name)
{
	show_name(out, name);
	show_printf(out, "[");
	out->depth++;
	out->more = false;
}

void show_list_end(struct show_buffer *out)
{
	out->depth--;
	show_printf(out, "]");
	out->more = true;
}

void show_u64(struct show_buffer *out, const char *name, u64 value)
{
	show_name(out, name);
	show_printf(out, "%llu", (unsigned long long)value);
}

void show_node_addr(struct show_buffer *out, const char *name, u64 addr)
{
	if (node_unplaced(addr))
		show_string(out, name, "none");
	else
		show_u64(out, name, addr);
}

void show_s64(struct show_buffer *out, const char *name, s64 value)
{
	show_name(out, name);
	show_printf(out, "%lld", (long long)value);
}

void show_hex(struct show_buffer *out, const char *name, u64 value)
{
	show_name(out, name);
	show_printf(out, out->json ? "\"0x%llx\"" : "0x%llx", (unsigned long long)value);
}

void show_octal(struct show_buffer *out, const char *name, u64 value)
{
	show_name(out, name);
	show_printf(out, out->json ? "\"0%llo\"" : "0%llo", (unsigned long long)value);
}

void show_bool(struct show_buffer *out, const char *name, bool value)
{
	show_name(out, name);
	show_printf(out, "%s", value ? "true" : "false");
}

/* Length of the UTF-8 sequence at text, 0 if it is not one. */
static unsigned int utf8_length(const u8 *text, u32 len)
{
	unsigned int n = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 :
			 text[0] < 0xf0 ? 3 : text[0] < 0xf5 ? 4 : 0;
	unsigned int i;

	if (n > len)
		return 0;
	for (i = 1; i < n; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if (n == 3 && ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f)))
		return 0;
	if (n == 4 && ((text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f)))
		return 0;
	return n;
}

static void show_quoted(struct show_buffer *out, const u8 *text, u32 len)
{
	u32 i = 0;

	show_printf(out, "\"");
	while (i < len) {
		unsigned int n = utf8_length(text + i, len - i);

		if (text[i] == '"' || text[i] == '\\')
			show_printf(out, "\\%c", text[i]);
		else if (n == 2 && text[i] == 0xc2 && text[i + 1] < 0xa0)	/* control characters, too */
			show_printf(out, out->json ? "\\u00%02x" : "\\xc2\\x%02x", text[i + 1]);
		else if (n == 0)
			show_printf(out, out->json ? "\\udc%02x" : "\\x%02x", text[i]);
		else if (text[i] < 0x20 || text[i] == 0x7f)
			show_printf(out, out->json ? "\\u00%02x" : "\\x%02x", text[i]);
		else
			show_printf(out, "%.*s", (int)n, (const char *)text + i);
		i += n ? n : 1;
	}
	show_printf(out, "\"");
}

void show_bytes(struct show_buffer *out, const char *name, const void *data, u32 len)
{
	show_name(out, name);
	show_quoted(out, data, len);
}

void show_bytes_short(struct show_buffer *out, const char *name, const void *data, u32 len)
{
	show_bytes(out, name, data, min(len, SHOW_BYTES_SHORT));
	if (len > SHOW_BYTES_SHORT && !out->json)
		show_printf(out, "...");
}

void show_string(struct show_buffer *out, const char *name, const char *text)
{
	if (out->json) {
		show_bytes(out, name, text, strlen(text));
	} else {
		show_name(out, name);
		show_printf(out, "%s", text);
	}
}

static void show_uuid(struct show_buffer *out, const char *name, const u8 *uuid)
{
	char text[40];
	size_t used = 0;
	unsigned int i;

	for (i = 0; i < 16; i++) {
		bool dash = i == 4 || i == 6 || i == 8 || i == 10;

		used += scnprintf(text + used, sizeof(text) - used, dash ? "-%02x" : "%02x", uuid[i]);
	}
	show_string(out, name, text);
}

static void show_time(struct show_buffer *out, const char *name, __le64 sec, __le32 nsec)
{
	char text[40];

	scnprintf(text, sizeof(text), "%lld.%09u", (long long)(s64)le64_to_cpu(sec), le32_to_cpu(nsec));
	show_string(out, name, text);
}

struct flag_name {
	u64 flag;
	const char *name;
};

static void show_flags(struct show_buffer *out, const char *name, u64 flags, const struct flag_name *names)
{
	show_list_begin(out, name);
	for (; names->name; names++) {
		if (flags & names->flag)
			show_string(out, NULL, names->name);
		flags &= ~names->flag;
	}
	if (flags)
		show_hex(out, NULL, flags);
	show_list_end(out);
}

static void show_bad(struct show_buffer *out, const void *data, u32 len)
{
	show_bool(out, "bad", true);
	show_bytes_short(out, "bytes", data, len);
}

/* ---- names of numbers ---- */

const char *item_type_name(unsigned int type)
{
	static const char *const names[] = {
#define X(number, NAME, name, what) [number] = name,
		TUX3_ITEMS(X)
#undef X
	};

	return type < ARRAY_SIZE(names) && names[type] ? names[type] : "?";
}

const char *record_type_name(unsigned int type)
{
	static const char *const names[] = {
#define X(number, NAME, name, record, what) [number] = name,
		TUX3_RECORDS(X)
#undef X
	};

	return type < ARRAY_SIZE(names) && names[type] ? names[type] : "?";
}

static const struct flag_name attr_flags[] = {
	{ TUX3_ATTR_XATTRS, "xattrs" },
	{ TUX3_ATTR_PREALLOC, "prealloc" },
	{ TUX3_ATTR_INLINE, "inline" },
	{ TUX3_ATTR_IMMUTABLE, "immutable" },
	{ TUX3_ATTR_APPEND, "append" },
	{ TUX3_ATTR_NODUMP, "nodump" },
	{ TUX3_ATTR_NOATIME, "noatime" },
	{ TUX3_ATTR_PROJINHERIT, "projinherit" },
	{ }
};

static const struct flag_name extent_flags[] = {
	{ TUX3_EXTENT_UNWRITTEN, "unwritten" },
	{ TUX3_EXTENT_CSUM, "csum" },
	{ TUX3_EXTENT_UNCHECKED, "unchecked" },
	{ }
};

static const struct flag_name commit_flags[] = {
	{ TUX3_COMMIT_DATA_FLUSHED, "data-flushed" },
	{ TUX3_COMMIT_SNAPSHOT, "snapshot" },
	{ }
};

static const struct flag_name no_names[] = { { } };

/* ---- anchors, block headers ---- */

static void show_features(struct show_buffer *out, const char *field, enum tux3_feature_word word, u64 flags)
{
	const struct flag_name names[] = {
#define X(WORD, bit, NAME, name, ...) { word == TUX3_##WORD ? TUX3_FEATURE_##WORD##_##NAME : 0, name },
		TUX3_FEATURES(X)
#undef X
		{ }
	};

	show_flags(out, field, flags, names);
}

static u32 label_length(const u8 *label)
{
	u32 len = 0;

	while (len < TUX3_LABEL_MAX && label[len])
		len++;
	return len;
}

void show_anchor(struct show_buffer *out, const struct disk_anchor *anchor)
{
	const char *separator = out->separator;

	out->separator = "\n";
	show_begin(out, NULL);
	show_u64(out, "slot_offset", le64_to_cpu(anchor->slot_offset));
	show_u64(out, "generation", le64_to_cpu(anchor->generation));
	show_u64(out, "version", le32_to_cpu(anchor->version));
	show_hex(out, "volume_id", le64_to_cpu(anchor->volume_id));
	show_uuid(out, "uuid", anchor->uuid);
	show_bytes(out, "label", anchor->label, label_length(anchor->label));
	show_features(out, "compat", TUX3_COMPAT, le64_to_cpu(anchor->feature_compat));
	show_features(out, "ro_compat", TUX3_RO_COMPAT, le64_to_cpu(anchor->feature_ro_compat));
	show_features(out, "incompat", TUX3_INCOMPAT, le64_to_cpu(anchor->feature_incompat));
	show_u64(out, "block_shift", le32_to_cpu(anchor->block_shift));
	show_u64(out, "group_blocks", le32_to_cpu(anchor->group_blocks));
	show_u64(out, "total_blocks", le64_to_cpu(anchor->total_blocks));
	show_u64(out, "created_ns", le64_to_cpu(anchor->created_ns));
	show_u64(out, "delta", le64_to_cpu(anchor->delta));
	show_u64(out, "root_addr", le64_to_cpu(anchor->root_addr));
	show_u64(out, "root_birth", le64_to_cpu(anchor->root_birth));
	show_u64(out, "root_level", le32_to_cpu(anchor->root_level));
	show_flags(out, "flags", le32_to_cpu(anchor->flags), no_names);
	show_u64(out, "log_addr", le64_to_cpu(anchor->log_addr));
	show_u64(out, "log_after", le64_to_cpu(anchor->log_after));
	show_u64(out, "log_seq", le64_to_cpu(anchor->log_seq));
	show_u64(out, "used_blocks", le64_to_cpu(anchor->used_blocks));
	show_u64(out, "data_blocks", le64_to_cpu(anchor->data_blocks));
	show_u64(out, "unwritten_blocks", le64_to_cpu(anchor->unwritten_blocks));
	show_u64(out, "inodes", le64_to_cpu(anchor->inodes));
	show_u64(out, "written_ns", le64_to_cpu(anchor->written_ns));
	show_hex(out, "crc", le32_to_cpu(anchor->crc));
	show_end(out);
	out->separator = separator;
}

void show_node(struct show_buffer *out, const struct disk_node *node)
{
	show_begin(out, NULL);
	show_string(out, "object", le16_to_cpu(node->level) ? "inner-node" : "leaf");
	show_node_addr(out, "addr", le64_to_cpu(node->addr));
	show_u64(out, "level", le16_to_cpu(node->level));
	show_u64(out, "birth", le64_to_cpu(node->birth));
	show_u64(out, "count", le16_to_cpu(node->count));
	show_u64(out, "data_start", le32_to_cpu(node->data_start));
	show_hex(out, "volume_id", le64_to_cpu(node->volume_id));
	show_hex(out, "crc", le32_to_cpu(node->crc));
	show_end(out);
}

void show_map(struct show_buffer *out, const struct disk_map *map)
{
	show_begin(out, NULL);
	show_string(out, "object", "free-map");
	show_u64(out, "addr", le64_to_cpu(map->addr));
	show_u64(out, "group", le64_to_cpu(map->group));
	show_u64(out, "delta", le64_to_cpu(map->delta));
	show_u64(out, "free", le32_to_cpu(map->free));
	show_hex(out, "volume_id", le64_to_cpu(map->volume_id));
	show_hex(out, "crc", le32_to_cpu(map->crc));
	show_end(out);
}

void show_log_block(struct show_buffer *out, const struct disk_log *log)
{
	show_begin(out, NULL);
	show_string(out, "object", "log-block");
	show_u64(out, "addr", le64_to_cpu(log->addr));
	show_u64(out, "seq", le64_to_cpu(log->seq));
	show_u64(out, "delta", le64_to_cpu(log->delta));
	show_u64(out, "next", le64_to_cpu(log->next));
	show_u64(out, "after", le64_to_cpu(log->after));
	show_u64(out, "skip", le32_to_cpu(log->skip));
	show_u64(out, "index", le32_to_cpu(log->index));
	show_u64(out, "blocks", le32_to_cpu(log->blocks));
	show_u64(out, "used", le32_to_cpu(log->used));
	show_hex(out, "volume_id", le64_to_cpu(log->volume_id));
	show_hex(out, "crc", le32_to_cpu(log->crc));
	show_end(out);
}

void show_commit(struct show_buffer *out, const struct disk_commit *commit)
{
	show_begin(out, NULL);
	show_u64(out, "delta", le64_to_cpu(commit->delta));
	show_u64(out, "time_ns", le64_to_cpu(commit->time_ns));
	show_u64(out, "records", le32_to_cpu(commit->records));
	show_u64(out, "bytes", le32_to_cpu(commit->bytes));
	show_flags(out, "flags", le32_to_cpu(commit->flags), commit_flags);
	show_u64(out, "used_blocks", le64_to_cpu(commit->used_blocks));
	show_u64(out, "inodes", le64_to_cpu(commit->inodes));
	show_hex(out, "crc", le32_to_cpu(commit->crc));
	show_end(out);
}

/* ---- item data: each printer adds fields to the object that its caller opened ---- */

typedef void (*show_data_fn)(struct show_buffer *out, const void *data, u32 len);

static void show_attr(struct show_buffer *out, const void *data, u32 len)
{
	struct disk_attr attr;

	if (len != sizeof(attr)) {
		show_bad(out, data, len);
		return;
	}
	memcpy(&attr, data, sizeof(attr));	/* aligned */
	show_octal(out, "mode", le32_to_cpu(attr.mode));
	show_u64(out, "uid", le32_to_cpu(attr.uid));
	show_u64(out, "gid", le32_to_cpu(attr.gid));
	show_u64(out, "nlink", le32_to_cpu(attr.nlink));
	show_u64(out, "size", le64_to_cpu(attr.size));
	show_u64(out, "blocks", le64_to_cpu(attr.blocks));
	show_time(out, "atime", attr.atime_sec, attr.atime_nsec);
	show_time(out, "mtime", attr.mtime_sec, attr.mtime_nsec);
	show_time(out, "ctime", attr.ctime_sec, attr.ctime_nsec);
	show_time(out, "btime", attr.btime_sec, attr.btime_nsec);
	show_u64(out, "rdev_major", le32_to_cpu(attr.rdev_major));
	show_u64(out, "rdev_minor", le32_to_cpu(attr.rdev_minor));
	show_flags(out, "flags", le32_to_cpu(attr.flags), attr_flags);
	show_u64(out, "generation", le32_to_cpu(attr.generation));
	show_u64(out, "projid", le32_to_cpu(attr.projid));
	show_u64(out, "change", le64_to_cpu(attr.change));
}

static void show_inline(struct show_buffer *out, const void *data, u32 len)
{
	show_u64(out, "length", len);
	show_bytes_short(out, "data", data, len);
}

static void show_chain_end(struct show_buffer *out, const struct chain *chain)
{
	if (chain->bad) {
		show_begin(out, NULL);
		show_bad(out, chain->data + chain->at, chain->len - chain->at);
		show_end(out);
	}
	show_list_end(out);
}

static void show_parents(struct show_buffer *out, const void *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	const struct disk_parent *parent;

	show_list_begin(out, "parents");
	while ((parent = chain_next_parent(&chain))) {
		show_begin(out, NULL);
		show_u64(out, "dir", get_unaligned_le64(&parent->dir));
		show_bytes(out, "name", parent->name, parent->len);
		show_end(out);
	}
	show_chain_end(out, &chain);
}

static void show_dirents(struct show_buffer *out, const void *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	const struct disk_dirent *entry;

	show_list_begin(out, "entries");
	while ((entry = chain_next_dirent(&chain))) {
		show_begin(out, NULL);
		show_u64(out, "ino", get_unaligned_le64(&entry->ino));
		show_u64(out, "type", entry->type);
		show_bytes(out, "name", entry->name, entry->len);
		show_end(out);
	}
	show_chain_end(out, &chain);
}

static void show_pieces(struct show_buffer *out, const u8 *at, u32 count)
{
	show_list_begin(out, "pieces");
	for (; count; count--, at += sizeof(struct disk_xattr_piece)) {
		const struct disk_xattr_piece *piece = (const void *)at;

		show_begin(out, NULL);
		show_u64(out, "addr", get_unaligned_le64(&piece->addr));
		show_u64(out, "len", get_unaligned_le32(&piece->len));
		show_end(out);
	}
	show_list_end(out);
}

static void show_xattrs(struct show_buffer *out, const void *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	const struct disk_xattr *xattr;

	show_list_begin(out, "xattrs");
	while ((xattr = chain_next_xattr(&chain))) {
		u32 value_len = get_unaligned_le32(&xattr->value_len);

		show_begin(out, NULL);
		show_bytes(out, "name", xattr->name, xattr->len);
		show_u64(out, "length", value_len);
		show_hex(out, "crc", get_unaligned_le32(&xattr->value_crc));
		if (xattr->pieces)
			show_pieces(out, xattr->name + xattr->len, xattr->pieces);
		else
			show_bytes_short(out, "value", xattr->name + xattr->len, value_len);
		show_end(out);
	}
	show_chain_end(out, &chain);
}

static void show_csums(struct show_buffer *out, const void *csum, u32 bytes)
{
	const u8 *at = csum;

	show_list_begin(out, "csums");
	for (; bytes >= sizeof(__le32); bytes -= sizeof(__le32), at += sizeof(__le32))
		show_hex(out, NULL, get_unaligned_le32(at));
	show_list_end(out);
}

static void show_extent(struct show_buffer *out, const void *data, u32 len)
{
	struct disk_extent extent;

	if (len < sizeof(extent)) {
		show_bad(out, data, len);
		return;
	}
	memcpy(&extent, data, sizeof(extent));
	show_u64(out, "addr", le64_to_cpu(extent.addr));
	show_u64(out, "len", le32_to_cpu(extent.len));
	show_u64(out, "birth", le64_to_cpu(extent.birth));
	show_flags(out, "flags", le32_to_cpu(extent.flags), extent_flags);
	if (len > sizeof(extent))
		show_csums(out, (const u8 *)data + sizeof(extent), len - sizeof(extent));
}

static void show_quota(struct show_buffer *out, const void *data, u32 len)
{
	struct disk_quota quota;

	if (len != sizeof(quota)) {
		show_bad(out, data, len);
		return;
	}
	memcpy(&quota, data, sizeof(quota));
	show_u64(out, "blocks", le64_to_cpu(quota.blocks));
	show_u64(out, "inodes", le64_to_cpu(quota.inodes));
	show_u64(out, "blocks_soft", le64_to_cpu(quota.blocks_soft));
	show_u64(out, "blocks_hard", le64_to_cpu(quota.blocks_hard));
	show_u64(out, "inodes_soft", le64_to_cpu(quota.inodes_soft));
	show_u64(out, "inodes_hard", le64_to_cpu(quota.inodes_hard));
	show_u64(out, "blocks_time", le64_to_cpu(quota.blocks_time));
	show_u64(out, "inodes_time", le64_to_cpu(quota.inodes_time));
}

static void show_orphan(struct show_buffer *out, const void *data, u32 len)
{
	static const char *const kinds[] = { "?", "delete", "truncate" };
	struct disk_orphan orphan;
	u32 kind;

	if (len != sizeof(orphan)) {
		show_bad(out, data, len);
		return;
	}
	memcpy(&orphan, data, sizeof(orphan));
	kind = le32_to_cpu(orphan.kind);
	show_string(out, "kind", kinds[kind < ARRAY_SIZE(kinds) ? kind : 0]);
	show_u64(out, "block", le64_to_cpu(orphan.block));
}

/* What the key's offset means decides how it is printed. */
static const struct item_printer {
	show_data_fn show;
	bool hashed;
} item_printers[] = {
	[TUX3_ITEM_ATTR] = { .show = show_attr },
	[TUX3_ITEM_PARENT] = { .show = show_parents, .hashed = true },
	[TUX3_ITEM_INLINE] = { .show = show_inline },
	[TUX3_ITEM_XATTR] = { .show = show_xattrs, .hashed = true },
	[TUX3_ITEM_DIRENT] = { .show = show_dirents, .hashed = true },
	[TUX3_ITEM_EXTENT] = { .show = show_extent },
	[TUX3_ITEM_QUOTA_USER] = { .show = show_quota },
	[TUX3_ITEM_QUOTA_GROUP] = { .show = show_quota },
	[TUX3_ITEM_QUOTA_PROJECT] = { .show = show_quota },
	[TUX3_ITEM_ORPHAN] = { .show = show_orphan },
};

static const struct item_printer *item_printer(unsigned int type)
{
	static const struct item_printer unknown = { .show = show_bad };

	if (type < ARRAY_SIZE(item_printers) && item_printers[type].show)
		return &item_printers[type];
	return &unknown;
}

static void show_key_fields(struct show_buffer *out, const struct tree_key *key)
{
	show_u64(out, "ino", key->ino);
	if (item_type_name(key->type)[0] == '?')
		show_u64(out, "type", key->type);
	else
		show_string(out, "type", item_type_name(key->type));
	if (item_printer(key->type)->hashed)
		show_hex(out, "hash", key->offset);
	else
		show_u64(out, "offset", key->offset);
}

void show_key(struct show_buffer *out, const struct tree_key *key)
{
	if (out->json) {
		show_begin(out, NULL);
		show_key_fields(out, key);
		show_end(out);
		return;
	}
	show_printf(out, "(%llu, %s, ", (unsigned long long)key->ino, item_type_name(key->type));
	show_printf(out, item_printer(key->type)->hashed ? "0x%llx)" : "%llu)",
		    (unsigned long long)key->offset);
}

void show_item(struct show_buffer *out, const struct tree_key *key, const void *data, u32 len)
{
	show_begin(out, NULL);
	show_key_fields(out, key);
	item_printer(key->type)->show(out, data, len);
	show_end(out);
}

/* ---- log records: likewise ---- */

static void show_record_item(struct show_buffer *out, const void *payload, u32 len)
{
	const struct record_item *item = payload;
	struct tree_key key = tree_key_from_disk(&item->key);

	show_key_fields(out, &key);
	if (len > sizeof(*item))
		item_printer(key.type)->show(out, item->data, len - sizeof(*item));
}

static void show_record_attr(struct show_buffer *out, const void *payload, u32 len)
{
	const struct record_attr *record = payload;

	show_u64(out, "ino", le64_to_cpu(record->ino));
	show_attr(out, &record->attr, sizeof(record->attr));
}

static void show_record_inode(struct show_buffer *out, const void *payload, u32 len)
{
	show_u64(out, "ino", get_unaligned_le64(payload));
}

static void show_record_dirent(struct show_buffer *out, const void *payload, u32 len)
{
	const struct record_dirent *record = payload;

	show_u64(out, "dir", get_unaligned_le64(&record->dir));
	show_hex(out, "hash", get_unaligned_le64(&record->hash));
	show_dirents(out, &record->entry, len - offsetof(struct record_dirent, entry));
}

static void show_record_xattr(struct show_buffer *out, const void *payload, u32 len)
{
	const struct record_xattr *record = payload;

	show_u64(out, "ino", get_unaligned_le64(&record->ino));
	show_hex(out, "hash", get_unaligned_le64(&record->hash));
	show_xattrs(out, &record->entry, len - offsetof(struct record_xattr, entry));
}

static void show_record_extent(struct show_buffer *out, const void *payload, u32 len)
{
	const struct record_extent *record = payload;

	show_u64(out, "ino", le64_to_cpu(record->ino));
	show_u64(out, "block", le64_to_cpu(record->block));
	show_u64(out, "count", le64_to_cpu(record->count));
	show_u64(out, "addr", le64_to_cpu(record->addr));
	show_flags(out, "flags", le32_to_cpu(record->flags), extent_flags);
	if (len > sizeof(*record))
		show_csums(out, record->csum, len - sizeof(*record));
}

static void show_record_group(struct show_buffer *out, const void *payload, u32 len)
{
	u64 first = get_unaligned_le64(payload), i;
	const u8 *bits = payload;
	u32 n;

	show_list_begin(out, "groups");
	for (i = sizeof(struct record_group); i + sizeof(__le64) <= len; i += sizeof(__le64)) {
		for (n = 0; n < 64; n++)
			if (get_unaligned_le64(bits + i) & 1ULL << n)
				show_u64(out, NULL, first + 8 * (i - sizeof(struct record_group)) + n);
	}
	show_list_end(out);
}

static void show_record_merge(struct show_buffer *out, const void *payload, u32 len)
{
	struct record_merge record;
	struct tree_key key;

	memcpy(&record, payload, sizeof(record));
	key = tree_key_from_disk(&record.key);
	show_key_fields(out, &key);
	show_u64(out, "level", le32_to_cpu(record.level));
	show_string(out, "with", le32_to_cpu(record.right) ? "next" : "previous");
}

static void show_record_hashes(struct show_buffer *out, const void *payload, u32 len)
{
	const struct record_hashes *record = payload;

	show_u64(out, "ino", get_unaligned_le64(&record->ino));
	show_hex(out, "first", get_unaligned_le64(&record->first));
	show_hex(out, "last", get_unaligned_le64(&record->last));
}

/* Not sizeof for the last two: that has padding after the packed entry. */
#define MIN_record_item		sizeof(struct record_item)
#define MIN_record_attr		sizeof(struct record_attr)
#define MIN_record_inode	sizeof(struct record_inode)
#define MIN_record_extent	sizeof(struct record_extent)
#define MIN_record_group	sizeof(struct record_group)
#define MIN_record_merge	sizeof(struct record_merge)
#define MIN_record_hashes	sizeof(struct record_hashes)
#define MIN_record_dirent	(offsetof(struct record_dirent, entry) + sizeof(struct disk_dirent))
#define MIN_record_xattr	(offsetof(struct record_xattr, entry) + sizeof(struct disk_xattr))

static const struct {
	show_data_fn show;
	u32 min;		/* bytes of the fixed part */
} record_printers[] = {
#define X(number, NAME, name, type, what) [number] = { show_##type, MIN_##type },
	TUX3_RECORDS(X)
#undef X
};

void show_record(struct show_buffer *out, const struct disk_record *record)
{
	u32 type = le16_to_cpu(record->type), len = le32_to_cpu(record->len);

	show_begin(out, NULL);
	show_string(out, "record", record_type_name(type));
	if (type >= ARRAY_SIZE(record_printers) || !record_printers[type].show ||
	    len < record_printers[type].min) {
		show_u64(out, "number", type);
		show_bad(out, record + 1, len);
	} else {
		record_printers[type].show(out, record + 1, len);
	}
	show_end(out);
}
