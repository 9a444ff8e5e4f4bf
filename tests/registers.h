/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is seen of a volume is something that it had between the beginning and the end of the call.
 *
 * Each block of some files, each size, name and extended attribute is a register: one thread writes it, others read it.  The
 * writer notes what it will be before each call, and that it is after the call.  So a reader knows which values are right: the
 * one that was there before, or one that began to be written until it had its answer.
 *
 * For libtux3 (unit/test_lib_registers.c) and for whatever is mounted (vm/guest/registers.c).  Who includes this defines before:
 * struct reg_held, what a writer works with; FAIL(format, ...), which does not return; and may define REG_TORN, if a block is not
 * read as a whole while it is written: then each byte of it is looked at alone.  And after it the functions named reg_do_...
 */
#ifndef TESTS_REGISTERS_H
#define TESTS_REGISTERS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <linux/falloc.h>

#define REG_BLOCK	4096u
#define REG_BLOCKS	80u
#define REG_WRITERS	2u
#define REG_FILES	2u		/* of each writer */
#define REG_NAMES	10u		/* of each writer, in two directories in turn */
#define REG_XATTRS	3u
#define REG_XATTR_MAX	30000u
#define REG_RING	128u

struct reg {
	uint64_t begun, done;		/* how many values; the last one that is done is there */
	uint64_t value[REG_RING];
};

struct owned {				/* by one writer */
	struct reg_held held;
	uint64_t seed, stamp;
	uint64_t size[REG_FILES];
	struct reg block[REG_FILES][REG_BLOCKS], bytes[REG_FILES], xattr[REG_FILES][REG_XATTRS], name[REG_NAMES];
};

static struct owned owned[REG_WRITERS];
static bool reg_stop;
static bool reg_moves;			/* there are COLLAPSE_RANGE and exchanges of ranges */
static bool reg_names;			/* mostly names are changed, looked up and listed */
static bool reg_pieces;			/* while a write goes on the size may be what is written so far */

/*
 * What each world does.  Whatever fails that should not is its to tell, by FAIL().  What may fail is what needs space, where it
 * is short: then it returns less, false, or 0, and nothing else was changed.  way: a random number, to choose among several ways to
 * do the same.
 */
static size_t reg_do_write(struct owned *own, uint32_t f, const void *data, size_t size, uint64_t pos, uint64_t way);
static ssize_t reg_do_read(const struct owned *own, uint32_t f, void *data, size_t size, uint64_t pos, uint64_t way);
static void reg_do_truncate(struct owned *own, uint32_t f, uint64_t size);
static bool reg_do_fallocate(struct owned *own, uint32_t f, int mode, uint64_t pos, uint64_t size);
static bool reg_do_exchange(struct owned *own, uint64_t pos, uint64_t size);	/* of both files */
static void reg_do_fsync(struct owned *own, uint32_t f, bool data_only);
static int64_t reg_do_seek_data(const struct owned *own, uint32_t f, uint64_t pos);	/* -ENXIO */
static uint64_t reg_do_size(const struct owned *own, uint32_t f);
static bool reg_do_set_xattr(struct owned *own, uint32_t f, const char *name, const void *value, size_t size);	/* NULL: remove */
/* Its length, or less than 16 (an error) if there is none. */
static ssize_t reg_do_get_xattr(const struct owned *own, uint32_t f, const char *name, void *value, size_t size);
static uint64_t reg_do_create(struct owned *own, uint32_t d, const char *name);	/* its inode number */
static void reg_do_unlink(struct owned *own, uint32_t d, const char *name);
static void reg_do_rename(struct owned *own, uint32_t d, const char *name, uint32_t to, const char *new_name, bool exchange);
static uint64_t reg_do_look_up(const struct owned *own, uint32_t d, const char *name);	/* 0: there is none */
static void reg_do_list(const struct owned *own, uint32_t d, void (*fn)(void *ctx, const char *name, uint64_t ino), void *ctx);

static uint64_t reg_random(uint64_t *seed)
{
	uint64_t x = *seed += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* ---- registers ---- */

static uint64_t reg_load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void reg_store(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static void reg_init(struct reg *reg)
{
	memset(reg, 0, sizeof(*reg));
	reg->begun = reg->done = 1;
}

static uint64_t reg_value(const struct reg *reg)
{
	return reg_load(&reg->value[(reg_load(&reg->done) - 1) % REG_RING]);
}

static void reg_begin(struct reg *reg, uint64_t value)
{
	uint64_t begun = reg_load(&reg->begun);

	reg_store(&reg->value[begun % REG_RING], value);
	reg_store(&reg->begun, begun + 1);
}

static void reg_end(struct reg *reg)
{
	reg_store(&reg->done, reg_load(&reg->begun));
}

static uint64_t reg_look(const struct reg *reg)
{
	return reg_load(&reg->done);
}

/* May somebody who looked before his call have got a value like this in these bits? */
static bool reg_allows(const struct reg *reg, uint64_t looked, uint64_t value, uint64_t bits)
{
	uint64_t begun = reg_load(&reg->begun), i;

	for (i = looked - 1; i < begun; i++)
		if (!((reg_load(&reg->value[i % REG_RING]) ^ value) & bits))
			return true;
	/* So many that the first of them are forgotten. */
	return reg_load(&reg->begun) - looked + 1 >= REG_RING;
}

static void reg_expect(const struct reg *reg, uint64_t looked, uint64_t value, const char *what, uint32_t f, uint32_t index)
{
	if (!reg_allows(reg, looked, value, ~0ull))
		FAIL("%s %u of file %u is %#" PRIx64 "; it was %#" PRIx64 ", and of %" PRIu64 " values since none is that", what, index,
		     f, value, reg_load(&reg->value[(looked - 1) % REG_RING]), reg_load(&reg->begun) - looked);
}

static void reg_expect_data(const struct reg *reg, uint64_t looked, uint64_t value, uint32_t f, uint32_t block)
{
#ifdef REG_TORN
	uint32_t i;

	for (i = 0; i < 64 && reg_allows(reg, looked, value, 0xffull << i); i += 8)
		;
	if (i == 64)
		return;
#endif
	reg_expect(reg, looked, value, "block", f, block);
}

/* ---- writers ---- */

static uint64_t roll(struct owned *own, uint64_t sides)
{
	return reg_random(&own->seed) % sides;
}

/* It did not come to that. */
static void reg_undo(struct reg *reg)
{
	reg_begin(reg, reg_value(reg));
}

/* All of a file: ending one that did not begin does nothing. */
static void file_end(struct owned *own, uint32_t f)
{
	uint32_t i;

	for (i = 0; i < REG_BLOCKS; i++)
		reg_end(&own->block[f][i]);
	reg_end(&own->bytes[f]);
}

static void size_begin(struct owned *own, uint32_t f, uint64_t size)
{
	own->size[f] = size;
	reg_begin(&own->bytes[f], size);
}

static void *reg_memory(size_t size)
{
	void *data = aligned_alloc(REG_BLOCK, size);	/* as O_DIRECT wants it */

	if (!data)
		FAIL("no memory");
	memset(data, 0, size);
	return data;
}

static void write_blocks(struct owned *own, uint32_t f, uint32_t block, uint32_t count)
{
	uint64_t *data = reg_memory(count * REG_BLOCK), size = own->size[f], done;
	uint32_t i, k;

	for (i = 0; i < count; i++) {
		reg_begin(&own->block[f][block + i], ++own->stamp);
		for (k = 0; k < REG_BLOCK / 8; k++)
			data[i * REG_BLOCK / 8 + k] = own->stamp;
	}
	if (own->size[f] < (uint64_t)(block + count) * REG_BLOCK)
		size_begin(own, f, (uint64_t)(block + count) * REG_BLOCK);
	done = reg_do_write(own, f, data, count * REG_BLOCK, (uint64_t)block * REG_BLOCK, roll(own, 1000));
	for (i = done / REG_BLOCK; i < count; i++)
		reg_undo(&own->block[f][block + i]);
	if (done < count * REG_BLOCK && own->size[f] > size)
		size_begin(own, f, done && block * REG_BLOCK + done > size ? block * REG_BLOCK + done : size);
	free(data);
}

/* A few bytes in the middle of a block: no reader looks there. */
static void write_middle(struct owned *own, uint32_t f, uint32_t block)
{
	uint64_t pos = (uint64_t)block * REG_BLOCK + 1000;

	uint64_t size = own->size[f];

	if (size < pos + 20)
		size_begin(own, f, pos + 20);
	if (!reg_do_write(own, f, "twenty bytes of data", 20, pos, roll(own, 1000)) && size < pos + 20)
		size_begin(own, f, size);
}

static void truncate_file(struct owned *own, uint32_t f, uint32_t blocks)
{
	uint32_t i;

	for (i = blocks; i < REG_BLOCKS; i++)
		reg_begin(&own->block[f][i], 0);
	size_begin(own, f, (uint64_t)blocks * REG_BLOCK);
	reg_do_truncate(own, f, (uint64_t)blocks * REG_BLOCK);
}

static void make_zeros(struct owned *own, uint32_t f, uint32_t block, uint32_t count, int mode)
{
	uint32_t i;

	for (i = block; i < block + count; i++)
		reg_begin(&own->block[f][i], 0);
	if (reg_do_fallocate(own, f, mode, (uint64_t)block * REG_BLOCK, (uint64_t)count * REG_BLOCK))
		return;
	if (mode & FALLOC_FL_PUNCH_HOLE)
		FAIL("a hole cannot be punched for want of space");
	/* Some of them may be zeros now: only their allocation needs space. */
	for (i = block; i < block + count; i++) {
		uint64_t *data = reg_memory(REG_BLOCK);

		reg_do_read(own, f, data, REG_BLOCK, (uint64_t)i * REG_BLOCK, 2);
		if (*data && *data != reg_value(&own->block[f][i]))
			FAIL("block %u of file %u, not allocated, is %#" PRIx64, i, f, *data);
		reg_begin(&own->block[f][i], *data);
		free(data);
	}
}

static void exchange(struct owned *own, uint32_t block, uint32_t count)
{
	uint64_t end = (uint64_t)(block + count) * REG_BLOCK, value[2];
	uint32_t i;

	if (!reg_moves || end > own->size[0] || end > own->size[1])
		return;
	for (i = block; i < block + count; i++) {
		value[0] = reg_value(&own->block[0][i]);
		value[1] = reg_value(&own->block[1][i]);
		reg_begin(&own->block[0][i], value[1]);
		reg_begin(&own->block[1][i], value[0]);
	}
	if (!reg_do_exchange(own, (uint64_t)block * REG_BLOCK, (uint64_t)count * REG_BLOCK)) {
		for (i = block; i < block + count; i++) {
			reg_undo(&own->block[0][i]);
			reg_undo(&own->block[1][i]);
		}
	}
	file_end(own, 0);
	file_end(own, 1);
}

/* What is behind the range moves to its place. */
static void collapse(struct owned *own, uint32_t f, uint32_t block, uint32_t count)
{
	uint64_t value[REG_BLOCKS], size = own->size[f];
	uint32_t i;

	if (!reg_moves || (uint64_t)(block + count) * REG_BLOCK >= own->size[f])
		return;
	for (i = 0; i < REG_BLOCKS; i++)
		value[i] = reg_value(&own->block[f][i]);
	for (i = block; i < REG_BLOCKS; i++)
		reg_begin(&own->block[f][i], i + count < REG_BLOCKS ? value[i + count] : 0);
	size_begin(own, f, size - (uint64_t)count * REG_BLOCK);
	if (reg_do_fallocate(own, f, FALLOC_FL_COLLAPSE_RANGE, (uint64_t)block * REG_BLOCK, (uint64_t)count * REG_BLOCK))
		return;
	for (i = block; i < REG_BLOCKS; i++)
		reg_undo(&own->block[f][i]);
	size_begin(own, f, size);
}

static void set_xattr(struct owned *own, uint32_t f, uint32_t x)
{
	static const uint32_t sizes[] = { 16, 100, 1000, 4000, REG_XATTR_MAX };
	uint32_t size = sizes[roll(own, 5)];
	struct reg *reg = &own->xattr[f][x];
	uint8_t *value = reg_memory(REG_XATTR_MAX / REG_BLOCK * REG_BLOCK + REG_BLOCK);
	char name[20];

	snprintf(name, sizeof(name), "user.x%u", x);
	if (roll(own, 4) || !reg_value(reg)) {
		reg_begin(reg, ++own->stamp);
		memcpy(value, &own->stamp, 8);
		memcpy(value + size - 8, &own->stamp, 8);
		if (!reg_do_set_xattr(own, f, name, value, size))
			reg_undo(reg);
	} else {
		reg_begin(reg, 0);
		if (!reg_do_set_xattr(own, f, name, NULL, 0))
			FAIL("an attribute cannot be removed for want of space");
	}
	reg_end(reg);
	free(value);
}

static const char *name_of(uint32_t n, char *name)
{
	sprintf(name, "name-%u", n);
	return name;
}

/* The number is known when it has another name already. */
static void make_name(struct owned *own, uint32_t n)
{
	uint64_t ino = reg_do_create(own, n % 2, "new");
	char name[20];

	if (!ino)
		return;
	reg_begin(&own->name[n], ino);
	reg_do_rename(own, n % 2, "new", n % 2, name_of(n, name), false);
}

static void change_names(struct owned *own)
{
	uint32_t n = roll(own, REG_NAMES), to = roll(own, REG_NAMES);
	uint64_t is = reg_value(&own->name[n]), was = reg_value(&own->name[to]);
	char name[20], new_name[20];

	if (!is) {
		make_name(own, n);
	} else if (n == to) {
		reg_begin(&own->name[n], 0);
		reg_do_unlink(own, n % 2, name_of(n, name));
	} else {
		bool both = was && roll(own, 2);

		reg_begin(&own->name[n], both ? was : 0);
		reg_begin(&own->name[to], is);
		reg_do_rename(own, n % 2, name_of(n, name), to % 2, name_of(to, new_name), both);
	}
	reg_end(&own->name[n]);
	reg_end(&own->name[to]);
}

static void write_step(struct owned *own)
{
	uint32_t f = roll(own, REG_FILES), block = roll(own, REG_BLOCKS), count = 1 + roll(own, roll(own, 2) ? 4 : REG_BLOCKS);

	if (count > REG_BLOCKS - block)
		count = REG_BLOCKS - block;
	switch (roll(own, reg_names && roll(own, 4) ? 6 : 64)) {
	case 0 ... 5:
		change_names(own);
		break;
	case 6 ... 9:
		set_xattr(own, f, roll(own, REG_XATTRS));
		break;
	case 10 ... 14:
		truncate_file(own, f, block);
		break;
	case 15 ... 19:
		make_zeros(own, f, block, count, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
		break;
	case 20 ... 22:
		make_zeros(own, f, block, count, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE);
		break;
	case 23 ... 25:
		reg_do_fallocate(own, f, FALLOC_FL_KEEP_SIZE, (uint64_t)block * REG_BLOCK, (uint64_t)count * REG_BLOCK);
		break;
	case 26 ... 32:
		write_middle(own, f, block);
		break;
	case 33:
		exchange(own, block, count);
		break;
	case 34:
		collapse(own, f, block, count);
		break;
	case 35:
		reg_do_fsync(own, f, roll(own, 2));
		break;
	default:
		write_blocks(own, f, block, count);
	}
	file_end(own, f);
}

static void *reg_writer(void *arg)
{
	while (!__atomic_load_n(&reg_stop, __ATOMIC_RELAXED))
		write_step(arg);
	return NULL;
}

/* ---- readers ---- */

static void read_blocks(const struct owned *own, uint32_t f, uint32_t block, uint32_t count, uint64_t way)
{
	uint64_t looked[REG_BLOCKS], *data = reg_memory(count * REG_BLOCK), *at = data;
	ssize_t got;
	uint32_t i;

	for (i = 0; i < count; i++)
		looked[i] = reg_look(&own->block[f][block + i]);
	got = reg_do_read(own, f, data, count * REG_BLOCK, (uint64_t)block * REG_BLOCK, way);
	for (i = 0; i < count; i++, at += REG_BLOCK / 8) {
		uint64_t last = at[REG_BLOCK / 8 - 1];

		/* What is behind the end is zeros, as it was before anything was written there. */
		reg_expect_data(&own->block[f][block + i], looked[i], at[0], f, block + i);
		if (got >= (ssize_t)((i + 1) * REG_BLOCK))
			reg_expect_data(&own->block[f][block + i], looked[i], last, f, block + i);
#ifndef REG_TORN
		if (got >= (ssize_t)((i + 1) * REG_BLOCK) && at[0] != last)
			FAIL("block %u of file %u begins with %#" PRIx64 " and ends with %#" PRIx64, block + i, f, at[0], last);
#endif
	}
	free(data);
}

/* What is passed over on the way to data has none. */
static void seek_data(const struct owned *own, uint32_t f, uint32_t block)
{
	uint64_t looked[REG_BLOCKS];
	int64_t found;
	uint32_t i;

	for (i = block; i < REG_BLOCKS; i++)
		looked[i] = reg_look(&own->block[f][i]);
	found = reg_do_seek_data(own, f, (uint64_t)block * REG_BLOCK);
	if (found < 0)
		found = REG_BLOCKS * REG_BLOCK;
	for (i = block; i < found / REG_BLOCK; i++)
		reg_expect(&own->block[f][i], looked[i], 0, "not data, but not zero: block", f, i);
}

static void read_size(const struct owned *own, uint32_t f)
{
	uint64_t looked = reg_look(&own->bytes[f]), size = reg_do_size(own, f);

	if (!reg_pieces || reg_load(&own->bytes[f].begun) == looked)
		reg_expect(&own->bytes[f], looked, size, "size", f, 0);
}

static void read_xattr(const struct owned *own, uint32_t f, uint32_t x)
{
	uint64_t looked = reg_look(&own->xattr[f][x]), first = 0, last = 0;
	uint8_t *value = malloc(REG_XATTR_MAX);
	char name[20];
	ssize_t size;

	snprintf(name, sizeof(name), "user.x%u", x);
	size = reg_do_get_xattr(own, f, name, value, REG_XATTR_MAX);
	if (size >= 16) {
		memcpy(&first, value, 8);
		memcpy(&last, value + size - 8, 8);
	}
	if (first != last)
		FAIL("attribute %u of file %u begins with %#" PRIx64 " and ends with %#" PRIx64, x, f, first, last);
	reg_expect(&own->xattr[f][x], looked, first, "attribute", f, x);
	free(value);
}

static void look_up(const struct owned *own, uint32_t n)
{
	uint64_t looked = reg_look(&own->name[n]);
	char name[20];

	reg_expect(&own->name[n], looked, reg_do_look_up(own, n % 2, name_of(n, name)), "name", 0, n);
}

struct listed {
	uint32_t times;
	uint64_t ino;
};

static void note_entry(void *ctx, const char *name, uint64_t ino)
{
	struct listed *listed = ctx;
	uint32_t n;

	if (sscanf(name, "name-%u", &n) == 1 && n < REG_NAMES) {
		listed[n].times++;
		listed[n].ino = ino;
	}
}

/* What stands is listed once; what changes is listed as it was at some time. */
static void list(const struct owned *own, uint32_t d)
{
	struct listed listed[REG_NAMES] = {};
	uint64_t looked[REG_NAMES];
	uint32_t n;

	for (n = d; n < REG_NAMES; n += 2)
		looked[n] = reg_look(&own->name[n]);
	reg_do_list(own, d, note_entry, listed);
	for (n = d; n < REG_NAMES; n += 2) {
		reg_expect(&own->name[n], looked[n], listed[n].ino, "listed: name", 0, n);
		if (listed[n].times > 1 && reg_load(&own->name[n].begun) == looked[n])
			FAIL("name %u is listed %u times", n, listed[n].times);
	}
}

static void *reg_reader(void *arg)
{
	uint64_t seed = (uintptr_t)arg;

	while (!__atomic_load_n(&reg_stop, __ATOMIC_RELAXED)) {
		const struct owned *own = &owned[reg_random(&seed) % REG_WRITERS];
		uint32_t f = reg_random(&seed) % REG_FILES, block = reg_random(&seed) % REG_BLOCKS;
		uint32_t count = 1 + reg_random(&seed) % (REG_BLOCKS - block);

		switch (reg_names && reg_random(&seed) % 8 ? 7 + reg_random(&seed) % 2 : reg_random(&seed) % 16) {
		case 0:
			read_size(own, f);
			break;
		case 1 ... 2:
			seek_data(own, f, block);
			break;
		case 3 ... 4:
			read_xattr(own, f, reg_random(&seed) % REG_XATTRS);
			break;
		case 5 ... 7:
			look_up(own, reg_random(&seed) % REG_NAMES);
			break;
		case 8:
			list(own, reg_random(&seed) % 2);
			break;
		default:
			read_blocks(own, f, block, count, reg_random(&seed));
		}
	}
	return NULL;
}

/* What a writer works with is there, and empty. */
static void owned_begin(struct owned *own, uint64_t seed, uint32_t number)
{
	uint32_t i;

	own->seed = seed;
	own->stamp = (uint64_t)number << 40;
	for (i = 0; i < REG_FILES; i++)
		own->size[i] = 0;
	for (i = 0; i < REG_FILES * REG_BLOCKS; i++)
		reg_init(&own->block[i / REG_BLOCKS][i % REG_BLOCKS]);
	for (i = 0; i < REG_FILES * REG_XATTRS; i++)
		reg_init(&own->xattr[i / REG_XATTRS][i % REG_XATTRS]);
	for (i = 0; i < REG_FILES; i++)
		reg_init(&own->bytes[i]);
	for (i = 0; i < REG_NAMES; i++)
		reg_init(&own->name[i]);
}

#endif
