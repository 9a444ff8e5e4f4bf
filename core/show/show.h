/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One printer for each on-disk object: for tools, error messages and tracing.
 * Each writes a line (or, where said, several) without a final newline to a text buffer, as words
 * ("size 5 nlink 1") or, if json is set, as a JSON object ({"size": 5, "nlink": 1}).
 *
 * The objects may be damaged: nothing is read beyond the length given, and what makes no sense is
 * printed as "bad".
 */
#ifndef TUX3_SHOW_H
#define TUX3_SHOW_H

#include "core/env.h"
#include "core/format/format.h"
#include "core/tree/tree.h"

struct show_buffer {
	char *text;
	size_t size, used;	/* used: bytes without the terminator; output beyond size is cut */
	bool json;
	/* For the functions below: */
	bool more;		/* something precedes in this object or list */
	unsigned int depth;	/* of objects and lists */
	const char *separator;	/* between fields of text; NULL: a space */
};

static inline void show_init(struct show_buffer *out, char *text, size_t size, bool json)
{
	*out = (struct show_buffer){ .text = text, .size = size, .json = json };
	if (size)
		text[0] = 0;
}

__printf(2, 3) void show_printf(struct show_buffer *out, const char *format, ...);
void show_anchor(struct show_buffer *out, const struct disk_anchor *anchor);	/* several lines */
void show_key(struct show_buffer *out, const struct tree_key *key);
/* Key and decoded data. */
void show_item(struct show_buffer *out, const struct tree_key *key, const void *data, u32 len);
void show_node(struct show_buffer *out, const struct disk_node *node);		/* its header */
void show_record(struct show_buffer *out, const struct disk_record *record);	/* checked with its len */
void show_map(struct show_buffer *out, const struct disk_map *map);		/* header */
void show_log_block(struct show_buffer *out, const struct disk_log *log);	/* header */
void show_commit(struct show_buffer *out, const struct disk_commit *commit);
const char *item_type_name(unsigned int type);		/* "?" if unknown */
const char *record_type_name(unsigned int type);

/*
 * The pieces that printers are made of.  name NULL: the object, list or value is an element of a
 * list, or the whole.
 */
void show_begin(struct show_buffer *out, const char *name);		/* an object */
void show_end(struct show_buffer *out);
void show_list_begin(struct show_buffer *out, const char *name);
void show_list_end(struct show_buffer *out);
void show_u64(struct show_buffer *out, const char *name, u64 value);
void show_node_addr(struct show_buffer *out, const char *name, u64 addr);	/* "none": not on the disk yet */
void show_s64(struct show_buffer *out, const char *name, s64 value);
void show_hex(struct show_buffer *out, const char *name, u64 value);	/* in JSON a string */
void show_octal(struct show_buffer *out, const char *name, u64 value);	/* likewise */
void show_bool(struct show_buffer *out, const char *name, bool value);
void show_string(struct show_buffer *out, const char *name, const char *text);
/* Any bytes, quoted.  JSON: UTF-8 as it is; a byte that is not UTF-8 as \udcXX. */
void show_bytes(struct show_buffer *out, const char *name, const void *data, u32 len);
/* At most as many bytes as fit a message. */
#define SHOW_BYTES_SHORT 64u
void show_bytes_short(struct show_buffer *out, const char *name, const void *data, u32 len);

#endif
