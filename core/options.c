// SPDX-License-Identifier: GPL-2.0-or-later
/* Values of mount options: see options.h. */
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

static bool parse_size(const char *text, u64 *bytes)
{
	static const char units[] = "KMGT";
	unsigned int shift = 0, unit;

	if (!parse_digits(&text, bytes))
		return false;
	if (*text) {
		for (unit = 0; units[unit] && units[unit] != (*text & ~0x20); unit++)
			;
		if (!units[unit] || text[1])
			return false;
		shift = 10 * (unit + 1);
	}
	if (!*bytes || *bytes >> (62 - shift))
		return false;
	*bytes <<= shift;
	return true;
}

bool option_parse_value(enum option_kind kind, const char *text, void *field)
{
	u64 number;

	switch (kind) {
	case OPTION_SECONDS:
		return parse_seconds(text, field);
	case OPTION_SIZE:
		return parse_size(text, field);
	default:
		if (!parse_digits(&text, &number) || *text || !number || number > S64_MAX)
			return false;
		*(u64 *)field = number;
		return true;
	}
}
