// SPDX-License-Identifier: GPL-2.0-or-later
/* Values of mount options: see options.h. */
#include "core/intent/intent.h"
#include "core/options.h"

#define AGE_MS_MAX (3600u * 1000)

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* The digits at *text, which moves behind them. */
static bool parse_digits(const char **text, u64 *number)
{
	const char *at = *text;

	*number = 0;
	for (; is_digit(*at); at++) {
		if (*number > (U64_MAX - 9) / 10)
			return false;
		*number = *number * 10 + (*at - '0');
	}
	if (at == *text)
		return false;
	*text = at;
	return true;
}

static bool parse_seconds(const char *text, u32 *ms)
{
	u64 number;
	u32 unit;

	if (!parse_digits(&text, &number) || number > AGE_MS_MAX / 1000)
		return false;
	number *= 1000;
	if (*text == '.') {
		text++;
		for (unit = 100; is_digit(*text); text++, unit /= 10)
			number += unit * (*text - '0');
	}
	*ms = number;
	return !*text && number && number <= AGE_MS_MAX;
}

int size_parse(const char *text, u64 *bytes)
{
	static const char units[] = "BKMGTPE";
	unsigned int unit = 0;
	bool fits;

	if (!is_digit(*text))
		return -EINVAL;
	fits = parse_digits(&text, bytes);
	while (is_digit(*text))
		text++;
	if (*text) {
		while (units[unit] && units[unit] != (*text & ~0x20))
			unit++;
		if (!units[unit])
			return -EINVAL;
		text++;
		if (unit && (*text & ~0x20) == 'I' && (text[1] & ~0x20) == 'B')
			text += 2;
		else if (unit && (*text & ~0x20) == 'B')
			text++;
		if (*text)
			return -EINVAL;
	}
	if (!fits || *bytes >> (63 - 10 * unit))
		return -ERANGE;
	*bytes <<= 10 * unit;
	return 0;
}

const char *const option_fsync_words[] = {
	[TUX3_FSYNC_DEFAULT] = "default", [TUX3_FSYNC_AUTO] = "auto", [TUX3_FSYNC_FULL] = "full", [TUX3_FSYNC_AHEAD] = "ahead",
};

static bool parse_fsync(const char *text, u32 *fsync)
{
	for (*fsync = TUX3_FSYNC_AUTO; *fsync <= TUX3_FSYNC_AHEAD; ++*fsync)
		if (!strcmp(text, option_fsync_words[*fsync]))
			return true;
	return false;
}

bool option_parse_value(enum option_kind kind, const char *text, void *field)
{
	u64 number;

	switch (kind) {
	case OPTION_FSYNC:
		return parse_fsync(text, field);
	case OPTION_SECONDS:
		return parse_seconds(text, field);
	case OPTION_SIZE:
		return !size_parse(text, field) && *(u64 *)field && !(*(u64 *)field >> 62);
	default:
		if (!parse_digits(&text, &number) || *text || !number || number > S64_MAX)
			return false;
		*(u64 *)field = number;
		return true;
	}
}
