/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The bitmap functions of core/env.h, a word at a time.  The caller's lock protects the bitmap. */
#include <linux/bitmap.h>
#include <linux/string.h>

/* The bits of a word from first on, and up to but not including end (1..64). */
static unsigned long mask_from(unsigned long first)
{
	return ~0UL << first % BITS_PER_LONG;
}

static unsigned long mask_below(unsigned long end)
{
	return ~0UL >> (-end & (BITS_PER_LONG - 1));
}

static unsigned long find_next(const unsigned long *map, unsigned long size, unsigned long offset,
			       unsigned long invert)
{
	unsigned long word = offset / BITS_PER_LONG;
	unsigned long bits;

	if (offset >= size)
		return size;
	bits = (map[word] ^ invert) & mask_from(offset);
	while (!bits) {
		if (++word * BITS_PER_LONG >= size)
			return size;
		bits = map[word] ^ invert;
	}
	return min(word * BITS_PER_LONG + (unsigned long)__builtin_ctzl(bits), size);
}

unsigned long find_next_bit(const unsigned long *map, unsigned long size, unsigned long offset)
{
	return find_next(map, size, offset, 0);
}

unsigned long find_next_zero_bit(const unsigned long *map, unsigned long size, unsigned long offset)
{
	return find_next(map, size, offset, ~0UL);
}

static void change_range(unsigned long *map, unsigned long start, unsigned long bits, bool set)
{
	unsigned long end = start + bits;
	unsigned long first = start / BITS_PER_LONG, last = (end - 1) / BITS_PER_LONG;
	unsigned long word;

	if (!bits)
		return;
	for (word = first; word <= last; word++) {
		unsigned long mask = ~0UL;

		if (word == first)
			mask &= mask_from(start);
		if (word == last)
			mask &= mask_below(end);
		map[word] = set ? map[word] | mask : map[word] & ~mask;
	}
}

void bitmap_set(unsigned long *map, unsigned int start, unsigned int bits)
{
	change_range(map, start, bits, true);
}

void bitmap_clear(unsigned long *map, unsigned int start, unsigned int bits)
{
	change_range(map, start, bits, false);
}

unsigned int bitmap_weight(const unsigned long *map, unsigned int bits)
{
	unsigned int weight = 0, word;

	for (word = 0; word < bits / BITS_PER_LONG; word++)
		weight += hweight64(map[word]);
	if (bits % BITS_PER_LONG)
		weight += hweight64(map[word] & mask_below(bits));
	return weight;
}

void bitmap_zero(unsigned long *map, unsigned int bits)
{
	memset(map, 0, BITS_TO_LONGS(bits) * sizeof(long));
}
