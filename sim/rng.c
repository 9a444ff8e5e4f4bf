/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The bytes that files of the simulator are filled with, and comparing with them. */
#include <string.h>
#include "rng.h"

void pattern_fill(u8 *data, u64 seed, u64 offset, u64 len)
{
	u64 i = 0;

	for (; i < len && (offset + i) % 8; i++)
		data[i] = pattern_byte(seed, offset + i);
	for (; i + 8 <= len; i += 8) {
		u64 word = pattern_word(seed, (offset + i) / 8);

		memcpy(data + i, &word, 8);
	}
	for (; i < len; i++)
		data[i] = pattern_byte(seed, offset + i);
}

u64 pattern_compare(const u8 *data, u64 seed, u64 offset, u64 len)
{
	u64 i = 0;

	for (; i < len && (offset + i) % 8; i++)
		if (data[i] != pattern_byte(seed, offset + i))
			return i;
	for (; i + 8 <= len; i += 8) {
		u64 word = pattern_word(seed, (offset + i) / 8);

		if (memcmp(data + i, &word, 8))
			break;
	}
	for (; i < len; i++)
		if (data[i] != pattern_byte(seed, offset + i))
			return i;
	return len;
}

u64 zero_compare(const u8 *data, u64 len)
{
	u64 i = 0;

	if (!len || (!data[0] && !memcmp(data, data + 1, len - 1)))
		return len;
	while (!data[i])
		i++;
	return i;
}
