/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * User-space stand-in for the kernel's header: see core/env.h.
 *
 * Bit n is bit n % 64 of word n / 64.  set_bit(), clear_bit(), test_bit() and test_and_...() are
 * atomic; the rest, and the __ forms, are not.
 */
#ifndef TUX3_ENV_BITMAP_H
#define TUX3_ENV_BITMAP_H

#include <linux/compiler.h>
#include <linux/kernel.h>
#include <linux/types.h>

#undef BITS_PER_LONG
#define BITS_PER_LONG		64
#define BITS_TO_LONGS(bits)	DIV_ROUND_UP(bits, BITS_PER_LONG)
#define DECLARE_BITMAP(name, bits) unsigned long name[BITS_TO_LONGS(bits)]

#define env_bit(nr)	(1UL << ((nr) & (BITS_PER_LONG - 1)))
#define env_word(nr)	((nr) / BITS_PER_LONG)

static inline void set_bit(long nr, volatile unsigned long *map)
{
	__atomic_fetch_or(&map[env_word(nr)], env_bit(nr), __ATOMIC_RELAXED);
}

static inline void clear_bit(long nr, volatile unsigned long *map)
{
	__atomic_fetch_and(&map[env_word(nr)], ~env_bit(nr), __ATOMIC_RELAXED);
}

static inline bool test_bit(long nr, const volatile unsigned long *map)
{
	return __atomic_load_n(&map[env_word(nr)], __ATOMIC_RELAXED) & env_bit(nr);
}

static inline bool test_and_set_bit(long nr, volatile unsigned long *map)
{
	return __atomic_fetch_or(&map[env_word(nr)], env_bit(nr), __ATOMIC_SEQ_CST) & env_bit(nr);
}

static inline bool test_and_clear_bit(long nr, volatile unsigned long *map)
{
	return __atomic_fetch_and(&map[env_word(nr)], ~env_bit(nr), __ATOMIC_SEQ_CST) & env_bit(nr);
}

static inline void __set_bit(unsigned long nr, unsigned long *map)
{
	map[env_word(nr)] |= env_bit(nr);
}

static inline void __clear_bit(unsigned long nr, unsigned long *map)
{
	map[env_word(nr)] &= ~env_bit(nr);
}

static inline bool __test_and_set_bit(unsigned long nr, unsigned long *map)
{
	bool was = map[env_word(nr)] & env_bit(nr);

	map[env_word(nr)] |= env_bit(nr);
	return was;
}

static inline bool __test_and_clear_bit(unsigned long nr, unsigned long *map)
{
	bool was = map[env_word(nr)] & env_bit(nr);

	map[env_word(nr)] &= ~env_bit(nr);
	return was;
}

/* The first set (clear) bit from offset on, or size if there is none. */
unsigned long find_next_bit(const unsigned long *map, unsigned long size, unsigned long offset);
unsigned long find_next_zero_bit(const unsigned long *map, unsigned long size, unsigned long offset);
#define find_first_bit(map, size)	find_next_bit(map, size, 0)
#define find_first_zero_bit(map, size)	find_next_zero_bit(map, size, 0)
#define for_each_set_bit(bit, map, size) \
	for ((bit) = find_next_bit(map, size, 0); (bit) < (size); \
	     (bit) = find_next_bit(map, size, (bit) + 1))

void bitmap_set(unsigned long *map, unsigned int start, unsigned int bits);
void bitmap_clear(unsigned long *map, unsigned int start, unsigned int bits);
unsigned int bitmap_weight(const unsigned long *map, unsigned int bits);
void bitmap_zero(unsigned long *map, unsigned int bits);

#define hweight64(x)	((unsigned int)__builtin_popcountll(x))
#define hweight32(x)	((unsigned int)__builtin_popcount(x))

#endif
