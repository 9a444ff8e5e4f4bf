// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Chains of entries: what the core and the checker, each with an iterator of its own, make of whole ones and of ones that
 * are cut at every byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/format/chain.h"
#include "core/volume.h"
#include "core/check/check_internal.h"

static u8 item[512];

/* Three entries, the names of which are 1, 2 and 3 bytes long; ends[]: where each ends.  Returns the bytes of all. */
static u32 make_dirents(u32 ends[3])
{
	u32 at = 0, i;

	for (i = 0; i < 3; i++) {
		struct disk_dirent *entry = (void *)(item + at);

		*entry = (struct disk_dirent){ .ino = cpu_to_le64(i), .type = 8, .len = i + 1 };
		memset(entry->name, 'a', entry->len);
		ends[i] = at += sizeof(*entry) + entry->len;
	}
	return at;
}

static u32 make_parents(u32 ends[3])
{
	u32 at = 0, i;

	for (i = 0; i < 3; i++) {
		struct disk_parent *entry = (void *)(item + at);

		*entry = (struct disk_parent){ .dir = cpu_to_le64(i), .len = i + 1 };
		memset(entry->name, 'a', entry->len);
		ends[i] = at += sizeof(*entry) + entry->len;
	}
	return at;
}

/* The second has its value in blocks. */
static u32 make_xattrs(u32 ends[3])
{
	u32 at = 0, i;

	for (i = 0; i < 3; i++) {
		struct disk_xattr *entry = (void *)(item + at);
		bool large = i == 1;

		*entry = (struct disk_xattr){ .len = i + 1, .pieces = large, .value_len = cpu_to_le32(large ? 9999 : i) };
		memset(entry->name, 'a', entry->len + sizeof(struct disk_xattr_piece));
		ends[i] = at += sizeof(*entry) + entry->len + (large ? sizeof(struct disk_xattr_piece) : i);
	}
	return at;
}

/* An item cut behind each byte: its whole entries are seen, and it is bad unless an entry ends there. */
#define test_cuts(kind) do {								\
	u32 ends[3], total = make_##kind##s(ends), len, seen, whole;			\
											\
	for (len = 1; len <= total; len++) {						\
		struct chain chain = chain_of(item, len);				\
		struct check_chain checked = { .data = item, .len = len };		\
											\
		whole = (len >= ends[0]) + (len >= ends[1]) + (len >= ends[2]);		\
		for (seen = 0; chain_next_##kind(&chain); seen++)			\
			assert_int_equal(chain.at + chain.size, ends[seen]);		\
		assert_int_equal(seen, whole);						\
		assert_int_equal(chain.bad, !whole || ends[whole - 1] != len);		\
		for (seen = 0; check_next_##kind(&checked); seen++)			\
			assert_int_equal(checked.at + checked.size, ends[seen]);	\
		assert_int_equal(seen, whole);						\
		assert_int_equal(checked.bad, chain.bad);				\
	}										\
} while (0)

static void test_cut(void **state)
{
	test_cuts(dirent);
	test_cuts(parent);
	test_cuts(xattr);
}

static void test_nothing(void **state)
{
	struct chain chain = chain_of(item, 0);
	struct check_chain checked = { .data = item };

	assert_null(chain_next_dirent(&chain));
	assert_false(chain.bad);
	assert_null(check_next_dirent(&checked));
	assert_true(checked.bad);		/* nobody stores an empty item */
}

/* No name has no bytes: the core does not go on there.  The checker does, to say what it is, see DIRENT_NAME. */
static void test_empty_name(void **state)
{
	u32 ends[3], total = make_dirents(ends);
	struct check_chain checked = { .data = item, .len = total };
	struct chain chain = chain_of(item, total);

	((struct disk_dirent *)(item + ends[0]))->len = 0;
	assert_non_null(chain_next_dirent(&chain));
	assert_null(chain_next_dirent(&chain));
	assert_true(chain.bad);
	assert_int_equal(chain.at, ends[0]);
	assert_non_null(check_next_dirent(&checked));
	assert_non_null(check_next_dirent(&checked));
}

/* A value that is too long for an item, and has no blocks either. */
static void test_long_value(void **state)
{
	struct disk_xattr *entry = (void *)item;
	u32 ends[3], total = make_xattrs(ends);
	struct chain chain = chain_of(item, total);

	entry->value_len = cpu_to_le32(TUX3_XATTR_INLINE_MAX + 1);
	assert_null(chain_next_xattr(&chain));
	assert_true(chain.bad);
	entry->value_len = cpu_to_le32(U32_MAX);
	chain = chain_of(item, total);
	assert_null(chain_next_xattr(&chain));
	assert_true(chain.bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_empty_name),
		cmocka_unit_test(test_long_value),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
