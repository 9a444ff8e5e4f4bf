/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Random numbers that follow from a seed, and the recognisable bytes that files are filled with. */
#ifndef TUX3_SIM_RNG_H
#define TUX3_SIM_RNG_H

#include <linux/types.h>

struct rng {
	u64 state;
};

static inline u64 rng_mix(u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static inline u64 rng_hash(u64 a, u64 b)
{
	return rng_mix(rng_mix(a) ^ b);
}

static inline u64 rng_next(struct rng *rng)
{
	rng->state += 0x9e3779b97f4a7c15ULL;
	return rng_mix(rng->state);
}

/* 0 .. n - 1 */
static inline u64 rng_below(struct rng *rng, u64 n)
{
	return n ? rng_next(rng) % n : 0;
}

/* True in one of n cases. */
static inline bool rng_one_in(struct rng *rng, u64 n)
{
	return rng_below(rng, n) == 0;
}

/* 1 .. 2^max_shift, small ones as often as large ones. */
static inline u64 rng_log(struct rng *rng, unsigned int max_shift)
{
	u64 top = 1ULL << rng_below(rng, max_shift + 1);

	return top / 2 + 1 + rng_below(rng, (top + 1) / 2);
}

/* Byte `offset` of the endless text that belongs to seed. */
static inline u64 pattern_word(u64 seed, u64 index)
{
	u64 x = (seed ^ index * 0x9e3779b97f4a7c15ULL) * 0xbf58476d1ce4e5b9ULL;

	return x ^ x >> 29;
}

static inline u8 pattern_byte(u64 seed, u64 offset)
{
	return pattern_word(seed, offset / 8) >> (offset % 8 * 8);
}

void pattern_fill(u8 *data, u64 seed, u64 offset, u64 len);
/* The index of the first byte that differs, or len. */
u64 pattern_compare(const u8 *data, u64 seed, u64 offset, u64 len);
u64 zero_compare(const u8 *data, u64 len);

#endif
