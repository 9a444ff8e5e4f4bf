/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CRC32C and SipHash-2-4.
 *
 * CRC32C: with SSE 4.2 the processor does 8 bytes at a time, a result every cycle but each three cycles
 * late.  So long data is cut into three lanes that are done side by side; a lane's CRC is
 * then moved past the lanes behind it by tables, because "append LANE zero bytes" is a linear
 * map of the CRC's bits.  Without SSE 4.2: eight tables, 8 bytes at a time.  Tables are made at start-up.
 */
#include "core/env.h"

#define CASTAGNOLI 0x82f63b78u	/* the polynomial, lowest power in the top bit */
#define LANE_BYTES 1360u	/* three of them: nearly a block */
#define SHORT_LANE_BYTES 168u

/* slice[k][b]: the CRC of byte b with k zero bytes behind it. */
static u32 slice[8][256];

#ifdef __x86_64__
/* shift[k][b]: what byte k of a CRC, being b, becomes when a lane of zeros follows. */
static u32 long_shift[4][256], short_shift[4][256];
#endif

static u32 crc32c_tables(u32 crc, const u8 *p, size_t bytes)
{
	for (; bytes >= 8; bytes -= 8, p += 8) {
		u64 x = get_unaligned_le64(p) ^ crc;

		crc = slice[7][x & 255] ^ slice[6][x >> 8 & 255] ^
		      slice[5][x >> 16 & 255] ^ slice[4][x >> 24 & 255] ^
		      slice[3][x >> 32 & 255] ^ slice[2][x >> 40 & 255] ^
		      slice[1][x >> 48 & 255] ^ slice[0][x >> 56];
	}
	while (bytes--)
		crc = slice[0][(crc ^ *p++) & 255] ^ crc >> 8;
	return crc;
}

#ifdef __x86_64__
#include <nmmintrin.h>

static u32 shift_crc(const u32 shift[4][256], u32 crc)
{
	return shift[0][crc & 255] ^ shift[1][crc >> 8 & 255] ^
	       shift[2][crc >> 16 & 255] ^ shift[3][crc >> 24];
}

static inline u64 load64(const u8 *p)
{
	u64 x;

	memcpy(&x, p, sizeof(x));
	return x;
}

/* Three lanes of this length from p on, as many times as they fit. */
static __always_inline __attribute__((target("sse4.2")))
u32 crc32c_lanes(u32 crc, const u8 **p, size_t *bytes, size_t lane, const u32 shift[4][256])
{
	while (*bytes >= 3 * lane) {
		u64 a = crc, b = 0, c = 0;
		const u8 *at = *p, *end = at + lane;

#pragma GCC unroll 10
		for (; at < end; at += 8) {
			a = _mm_crc32_u64(a, load64(at));
			b = _mm_crc32_u64(b, load64(at + lane));
			c = _mm_crc32_u64(c, load64(at + 2 * lane));
		}
		crc = shift_crc(shift, shift_crc(shift, a) ^ b) ^ c;
		*p += 3 * lane;
		*bytes -= 3 * lane;
	}
	return crc;
}

static __attribute__((target("sse4.2"))) u32 crc32c_sse42(u32 crc, const u8 *p, size_t bytes)
{
	u64 x;

	crc = crc32c_lanes(crc, &p, &bytes, LANE_BYTES, long_shift);
	crc = crc32c_lanes(crc, &p, &bytes, SHORT_LANE_BYTES, short_shift);
	for (x = crc; bytes >= 32; bytes -= 32, p += 32) {
		x = _mm_crc32_u64(x, load64(p));
		x = _mm_crc32_u64(x, load64(p + 8));
		x = _mm_crc32_u64(x, load64(p + 16));
		x = _mm_crc32_u64(x, load64(p + 24));
	}
	for (; bytes >= 8; bytes -= 8, p += 8)
		x = _mm_crc32_u64(x, load64(p));
	for (crc = x; bytes; bytes--)
		crc = _mm_crc32_u8(crc, *p++);
	return crc;
}

static void make_shift(u32 shift[4][256], size_t lane)
{
	static const u8 zeros[LANE_BYTES];
	unsigned int byte, b, bit;

	for (byte = 0; byte < 4; byte++)
		for (bit = 0; bit < 8; bit++) {
			u32 moved = crc32c_tables(1u << (8 * byte + bit), zeros, lane);

			for (b = 0; b < 256; b++)
				if (b >> bit & 1)
					shift[byte][b] ^= moved;
		}
}
#endif

static u32 (*crc32c_best)(u32 crc, const u8 *p, size_t bytes) = crc32c_tables;

static void __attribute__((constructor(102))) make_crc32c_tables(void)
{
	unsigned int b, k;

	for (b = 0; b < 256; b++) {
		u32 crc = b;

		for (k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? CASTAGNOLI : 0);
		slice[0][b] = crc;
	}
	for (b = 0; b < 256; b++)
		for (k = 1; k < 8; k++)
			slice[k][b] = slice[0][slice[k - 1][b] & 255] ^ slice[k - 1][b] >> 8;
#ifdef __x86_64__
	make_shift(long_shift, LANE_BYTES);
	make_shift(short_shift, SHORT_LANE_BYTES);
	__builtin_cpu_init();
	if (__builtin_cpu_supports("sse4.2"))
		crc32c_best = crc32c_sse42;
#endif
}

u32 crc32c(u32 crc, const void *data, size_t bytes)
{
	return crc32c_best(crc, data, bytes);
}

/* For the test that both ways agree. */
u32 env_crc32c_tables(u32 crc, const void *data, size_t bytes);
u32 env_crc32c_tables(u32 crc, const void *data, size_t bytes)
{
	return crc32c_tables(crc, data, bytes);
}

/* SipHash: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. */

static inline u64 rotl(u64 x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

static inline void sip_rounds(u64 v[4], unsigned int rounds)
{
	while (rounds--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotl(v[1], 13) ^ v[0];
		v[3] = rotl(v[3], 16) ^ v[2];
		v[0] = rotl(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotl(v[1], 17) ^ v[2];
		v[3] = rotl(v[3], 21) ^ v[0];
		v[2] = rotl(v[2], 32);
	}
}

static inline void sip_word(u64 v[4], u64 word)
{
	v[3] ^= word;
	sip_rounds(v, 2);
	v[0] ^= word;
}

u64 siphash(const void *data, size_t bytes, const siphash_key_t *key)
{
	/* The constants are "somepseudorandomlygeneratedbytes". */
	u64 v[4] = {
		key->key[0] ^ 0x736f6d6570736575ULL,
		key->key[1] ^ 0x646f72616e646f6dULL,
		key->key[0] ^ 0x6c7967656e657261ULL,
		key->key[1] ^ 0x7465646279746573ULL,
	};
	const u8 *p = data;
	u64 last = (u64)bytes << 56;
	unsigned int i;

	for (; bytes >= 8; bytes -= 8, p += 8)
		sip_word(v, get_unaligned_le64(p));
	for (i = 0; i < bytes; i++)
		last |= (u64)p[i] << 8 * i;
	sip_word(v, last);
	v[2] ^= 0xff;
	sip_rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
