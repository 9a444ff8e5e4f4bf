// SPDX-License-Identifier: GPL-2.0-or-later
/* Values of mount options, and sizes as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/options.h"

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		int result;
		u64 bytes;
	} cases[] = {
		{ "0", 0, 0 }, { "1", 0, 1 }, { "4096", 0, 4096 }, { "007", 0, 7 }, { "5B", 0, 5 },
		{ "3K", 0, 3 << 10 }, { "3k", 0, 3 << 10 }, { "3KB", 0, 3 << 10 }, { "3KiB", 0, 3 << 10 }, { "3kib", 0, 3 << 10 },
		{ "64M", 0, 64 << 20 }, { "2G", 0, 2ULL << 30 }, { "9T", 0, 9ULL << 40 }, { "5P", 0, 5ULL << 50 },
		{ "7E", 0, 7ULL << 60 }, { "9223372036854775807", 0, S64_MAX }, { "8191P", 0, 8191ULL << 50 },
		{ "", -EINVAL, 0 }, { "K", -EINVAL, 0 }, { "-1", -EINVAL, 0 }, { "+1", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 }, { "1 ", -EINVAL, 0 },
		{ "1.5G", -EINVAL, 0 }, { "0x10", -EINVAL, 0 }, { "3X", -EINVAL, 0 }, { "3KK", -EINVAL, 0 }, { "3Ki", -EINVAL, 0 },
		{ "3iB", -EINVAL, 0 }, { "3BB", -EINVAL, 0 }, { "3KiBs", -EINVAL, 0 }, { "99999999999999999999999X", -EINVAL, 0 },
		{ "8E", -ERANGE, 0 }, { "9223372036854775808", -ERANGE, 0 }, { "99999999T", -ERANGE, 0 }, { "8192P", -ERANGE, 0 },
		{ "99999999999999999999999", -ERANGE, 0 }, { "99999999999999999999999M", -ERANGE, 0 },
	};
	u64 bytes;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		if (size_parse(cases[i].text, &bytes) != cases[i].result)
			fail_msg("\"%s\"", cases[i].text);
		if (!cases[i].result)
			assert_int_equal(bytes, cases[i].bytes);
	}
}

static void test_values(void **state)
{
	u64 number;
	u32 ms;

	assert_true(option_parse_value(OPTION_SIZE, "64M", &number) && number == 64 << 20);
	assert_false(option_parse_value(OPTION_SIZE, "0", &number));
	assert_false(option_parse_value(OPTION_SIZE, "4E", &number));	/* some are multiplied */
	assert_true(option_parse_value(OPTION_NUMBER, "1000", &number) && number == 1000);
	assert_false(option_parse_value(OPTION_NUMBER, "0", &number));
	assert_false(option_parse_value(OPTION_NUMBER, "1K", &number));
	assert_false(option_parse_value(OPTION_NUMBER, "9223372036854775808", &number));
	assert_true(option_parse_value(OPTION_SECONDS, "0.5", &ms) && ms == 500);
	assert_true(option_parse_value(OPTION_SECONDS, "0.0019", &ms) && ms == 1);
	assert_true(option_parse_value(OPTION_SECONDS, "3600", &ms) && ms == 3600000);
	assert_false(option_parse_value(OPTION_SECONDS, "3600.001", &ms));
	assert_false(option_parse_value(OPTION_SECONDS, "0.0001", &ms));
	assert_false(option_parse_value(OPTION_SECONDS, "1s", &ms));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
