/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Scrambling names so that no two become the same: a Feistel network over the characters.
 *
 * One half is shifted by a keyed hash of the other, a few times.  Each step can be undone by who has
 * the key, so different names stay different; nobody has the key, since it is random and never stored.  Portable names
 * (letters, digits, . _ -) are kept apart from the rest by walking on until the result is of the same sort.
 */
#include "scramble.h"

#define ROUNDS 8u

/* Characters that a name is made of, and back. */
struct alphabet {
	u32 size;
	u8 symbols[256];
	s16 index[256];		/* -1: not in it */
};

static struct alphabet portable, all;
static siphash_key_t key;

static void alphabet_add(struct alphabet *alphabet, u8 c)
{
	alphabet->index[c] = alphabet->size;
	alphabet->symbols[alphabet->size++] = c;
}

static void scramble_init(void)
{
	unsigned int c;

	if (all.size)
		return;
	get_random_bytes(&key, sizeof(key));
	memset(portable.index, 0xff, sizeof(portable.index));
	memset(all.index, 0xff, sizeof(all.index));
	for (c = 1; c < 256; c++) {
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

		if (c == '/')
			continue;
		alphabet_add(&all, c);
		if (letter || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-')
			alphabet_add(&portable, c);
	}
}

static bool is_portable(const u8 *name, u32 len)
{
	u32 i;

	for (i = 0; i < len && portable.index[name[i]] >= 0; i++)
		;
	return i == len;
}

static bool is_dots(const u8 *name, u32 len)
{
	return (len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.');
}

/* A number that follows from the round, the position and the other half. */
static u32 shift_of(u32 round, u32 position, const u8 *half, u32 len)
{
	u8 input[8 + 256];

	put_unaligned_le32(round, input);
	put_unaligned_le32(position, input + 4);
	memcpy(input + 8, half, len);
	return siphash(input, 8 + len, &key) >> 20;
}

static void feistel(const struct alphabet *alphabet, u8 *name, u32 len)
{
	u32 half = len / 2, round, i;

	for (round = 0; round < ROUNDS; round++) {
		/* With one character, the other half is empty: a shift by a constant. */
		bool second = round & 1 || !half;
		u8 *from = second ? name : name + half, *to = second ? name + half : name;
		u32 from_len = second ? half : len - half, to_len = second ? len - half : half;

		for (i = 0; i < to_len; i++) {
			u32 at = alphabet->index[to[i]] + shift_of(round, i, from, from_len) % alphabet->size;

			to[i] = alphabet->symbols[at % alphabet->size];
		}
	}
}

void scramble_name(u8 *name, u32 len)
{
	bool sort;
	u32 i;

	scramble_init();
	for (i = 0; i < len && all.index[name[i]] >= 0; i++)
		;
	if (!len || len > TUX3_NAME_MAX || i < len || is_dots(name, len))
		return;
	sort = is_portable(name, len);
	do {
		feistel(sort ? &portable : &all, name, len);
	} while (is_portable(name, len) != sort || is_dots(name, len));
}

void scramble_text(u8 *text, u32 len)
{
	u32 i;

	for (i = 0; i < len; i++)
		text[i] = 'a' + get_random_u32() % 26;
}

void scramble_path(u8 *path, u32 len)
{
	u32 at = 0, end;

	while (at < len) {
		for (end = at; end < len && path[end] != '/'; end++)
			;
		scramble_name(path + at, min(end - at, (u32)TUX3_NAME_MAX));
		at = end + 1;
	}
}
