/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The printers of on-disk objects: right text, valid JSON, and no harm from nonsense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <cmocka.h>

#include "core/show/show.h"

#define TEXT_MAX 65536u

static char text[TEXT_MAX];

/* ---- a small JSON reader: is it valid? ---- */

static const char *json_value(const char *at);

static const char *json_space(const char *at)
{
	while (*at == ' ' || *at == '\n')
		at++;
	return at;
}

static const char *json_string(const char *at)
{
	if (*at++ != '"')
		return NULL;
	for (; *at != '"'; at++) {
		if ((unsigned char)*at < 0x20)
			return NULL;
		if (*at == '\\') {
			at++;
			if (*at == 'u') {
				if (strspn(at + 1, "0123456789abcdef") < 4)
					return NULL;
				at += 4;
			} else if (*at != '"' && *at != '\\') {
				return NULL;
			}
		}
	}
	return at + 1;
}

/* Members of an object (keys) or elements of a list, up to the closing bracket. */
static const char *json_members(const char *at, char end, bool keys)
{
	at = json_space(at);
	if (*at == end)
		return at + 1;
	for (;;) {
		if (keys) {
			at = json_string(json_space(at));
			if (!at || *at++ != ':')
				return NULL;
		}
		at = json_value(json_space(at));
		if (!at)
			return NULL;
		at = json_space(at);
		if (*at == end)
			return at + 1;
		if (*at++ != ',')
			return NULL;
	}
}

static const char *json_value(const char *at)
{
	size_t digits;

	if (*at == '"')
		return json_string(at);
	if (*at == '{')
		return json_members(at + 1, '}', true);
	if (*at == '[')
		return json_members(at + 1, ']', false);
	if (!strncmp(at, "true", 4))
		return at + 4;
	if (!strncmp(at, "false", 5))
		return at + 5;
	digits = strspn(at, "-0123456789");
	return digits ? at + digits : NULL;
}

static void assert_json(void)
{
	const char *end = json_value(text);

	if (!end || *json_space(end))
		print_error("not JSON: %s\n", text);
	assert_non_null(end);
	assert_int_equal(*json_space(end), 0);
}

/* ---- objects ---- */

static struct show_buffer *begin(bool json)
{
	static struct show_buffer out;

	show_init(&out, text, sizeof(text), json);
	return &out;
}

static void show_item_both(struct tree_key key, const void *data, u32 len, const char *expect)
{
	show_item(begin(true), &key, data, len);
	assert_json();
	show_item(begin(false), &key, data, len);
	if (expect)
		assert_string_equal(text, expect);
}

static void test_items(void **state)
{
	struct disk_orphan orphan = { .kind = cpu_to_le32(TUX3_ORPHAN_TRUNCATE), .block = cpu_to_le64(7) };
	struct {
		struct disk_extent extent;
		__le32 csum[2];
	} extent = {
		.extent = {
			.addr = cpu_to_le64(100), .len = cpu_to_le32(2), .birth = cpu_to_le64(5),
			.flags = cpu_to_le32(TUX3_EXTENT_CSUM),
		},
		.csum = { cpu_to_le32(1), cpu_to_le32(0xabc) },
	};
	u8 chain[64];
	struct disk_dirent *entry = (void *)chain;

	show_item_both(tree_key(1, TUX3_ITEM_ORPHAN, 20), &orphan, sizeof(orphan),
		       "ino 1 type orphan offset 20 kind truncate block 7");
	show_item_both(tree_key(20, TUX3_ITEM_EXTENT, 3), &extent, sizeof(extent),
		       "ino 20 type extent offset 3 addr 100 len 2 birth 5 flags [csum] csums [0x1 0xabc]");
	entry->ino = cpu_to_le64(33);
	entry->type = 8;
	entry->len = 3;
	memcpy(entry->name, "a\"b", 3);
	show_item_both(tree_key(2, TUX3_ITEM_DIRENT, 0x1f), chain, sizeof(*entry) + 3,
		       "ino 2 type dirent hash 0x1f entries [{ino 33 type 8 name \"a\\\"b\"}]");
	/* Cut short. */
	show_item_both(tree_key(2, TUX3_ITEM_DIRENT, 0x1f), chain, sizeof(*entry) + 2, NULL);
	assert_non_null(strstr(text, "bad true"));
	show_item_both(tree_key(2, 77, 1), "xyz", 3, "ino 2 type 77 offset 1 bad true bytes \"xyz\"");
	show_item_both(tree_key(2, TUX3_ITEM_ATTR, 0), "xyz", 3, NULL);
	assert_non_null(strstr(text, "bad true"));
}

static void test_bytes(void **state)
{
	static const u8 mixed[] = { 'a', 0xc3, 0xa4, 0xff, '\n', 0xe2, 0x82 };

	show_bytes(begin(true), NULL, mixed, sizeof(mixed));
	assert_json();
	assert_string_equal(text, "\"a\xc3\xa4\\udcff\\u000a\\udce2\\udc82\"");
	show_bytes(begin(false), NULL, mixed, sizeof(mixed));
	assert_string_equal(text, "\"a\xc3\xa4\\xff\\x0a\\xe2\\x82\"");
	/* U+009B begins a control sequence of a terminal; U+00A0 is a space. */
	show_bytes(begin(true), NULL, "\xc2\x9b\xc2\xa0", 4);
	assert_json();
	assert_string_equal(text, "\"\\u009b\xc2\xa0\"");
	show_bytes(begin(false), NULL, "\xc2\x9b\xc2\xa0", 4);
	assert_string_equal(text, "\"\\xc2\\x9b\xc2\xa0\"");
}

static void test_records(void **state)
{
	u8 bytes[256] __attribute__((__aligned__(8)));
	struct disk_record *record = (void *)bytes;
	struct record_dirent *dirent = (void *)(record + 1);
	u32 type, len;

	memset(bytes, 0, sizeof(bytes));
	record->type = cpu_to_le16(TUX3_RECORD_DIRENT_SET);
	dirent->dir = cpu_to_le64(2);
	dirent->hash = cpu_to_le64(0x123);
	dirent->entry.ino = cpu_to_le64(17);
	dirent->entry.len = 1;
	dirent->entry.name[0] = 'x';
	record->len = cpu_to_le32(offsetof(struct record_dirent, entry) + sizeof(struct disk_dirent) + 1);
	show_record(begin(false), record);
	assert_string_equal(text, "record dirent-set dir 2 hash 0x123 entries [{ino 17 type 0 name \"x\"}]");

	/* Every type, with every length. */
	for (type = 0; type < 20; type++) {
		for (len = 0; len <= sizeof(bytes) - sizeof(*record); len++) {
			u8 *exact = malloc(sizeof(*record) + len);

			memset(bytes, type * 13 + len, sizeof(bytes));
			record->type = cpu_to_le16(type);
			record->len = cpu_to_le32(len);
			memcpy(exact, bytes, sizeof(*record) + len);
			show_record(begin(true), (void *)exact);
			assert_json();
			free(exact);
		}
	}
}

/* Whatever the bytes are: valid JSON, nothing read beyond them (the sanitizer looks). */
static void test_nonsense(void **state)
{
	u32 seed = 1, round, i;

	for (round = 0; round < 20000; round++) {
		u32 len = seed % 200;
		u8 *bytes = malloc(len + 1);
		struct tree_key key;

		for (i = 0; i < len; i++) {
			seed = seed * 1103515245 + 12345;
			bytes[i] = round & 1 ? seed >> 16 & 7 : seed >> 16;
		}
		seed = seed * 1103515245 + 12345;
		key = tree_key(seed, seed >> 8 & 31, seed);
		/* Not aligned. */
		memmove(bytes + 1, bytes, len);
		show_item_both(key, bytes + 1, len, NULL);
		free(bytes);
	}
}

static void test_headers(void **state)
{
	struct disk_anchor anchor;
	struct disk_node node;
	struct disk_map map;
	struct disk_log log;
	struct disk_commit commit;
	int json;

	memset(&anchor, 0xa5, sizeof(anchor));
	memset(&node, 0xa5, sizeof(node));
	memset(&map, 0xa5, sizeof(map));
	memset(&log, 0xa5, sizeof(log));
	memset(&commit, 0xa5, sizeof(commit));
	for (json = 0; json < 2; json++) {
		show_anchor(begin(json), &anchor);
		if (json)
			assert_json();
		else
			assert_non_null(strstr(text, "\nroot_addr "));
		show_node(begin(json), &node);
		if (json)
			assert_json();
		show_map(begin(json), &map);
		if (json)
			assert_json();
		show_log_block(begin(json), &log);
		if (json)
			assert_json();
		show_commit(begin(json), &commit);
		if (json)
			assert_json();
	}
}

/* A buffer that is too small: cut, terminated, never overrun. */
static void test_small_buffers(void **state)
{
	struct disk_anchor anchor = { };
	struct show_buffer out;
	size_t size;

	for (size = 0; size < 300; size++) {
		char *small = malloc(size ? size : 1);

		show_init(&out, small, size, false);
		show_anchor(&out, &anchor);
		assert_true(!size || out.used < size);
		assert_true(!size || strlen(small) == out.used);
		free(small);
	}
}

static void test_names(void **state)
{
	struct tree_key key = tree_key(2, TUX3_ITEM_XATTR, 0x10);

	assert_string_equal(item_type_name(TUX3_ITEM_QUOTA_GROUP), "quota-group");
	assert_string_equal(item_type_name(7), "?");
	assert_string_equal(item_type_name(12345), "?");
	assert_string_equal(record_type_name(TUX3_RECORD_EXTENT_PUNCH), "extent-punch");
	assert_string_equal(record_type_name(0), "?");
	show_key(begin(false), &key);
	assert_string_equal(text, "(2, xattr, 0x10)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_items),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_small_buffers),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
