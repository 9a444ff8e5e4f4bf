// SPDX-License-Identifier: GPL-2.0-or-later
/* See support_balloc.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "support_balloc.h"
#include "user/env/device_memory.h"

char last_message[512];
static u64 rng;

void keep_quiet(int level, const char *message)
{
	strscpy(last_message, message, sizeof(last_message));
	if (getenv("TUX3_TEST_VERBOSE"))
		print_message("%s\n", message);
}

void random_begin(const char *name, u64 seed)
{
	check_begin(name, seed);
	rng = test_seed;
}

u64 random64(void)
{
	u64 x = rng += 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

u64 random_below(u64 limit)
{
	return random64() % limit;
}

void volume_geometry(struct volume *vol, u64 bytes, u32 block_size)
{
	memset(vol, 0, sizeof(*vol));
	vol->block_size = block_size;
	vol->block_shift = ilog2(block_size);
	vol->group_blocks = (block_size - 64) * 8;
	vol->total_blocks = bytes / block_size;
	vol->group_count = DIV_ROUND_UP(vol->total_blocks, vol->group_blocks);
	vol->id = 0x1234567890abcdefULL;
}

void volume_mount(struct volume *vol, u64 delta, u64 used)
{
	vol->anchor.delta = cpu_to_le64(delta);
	check(balloc_init(vol, used) == 0);
}

struct volume *volume_make(u64 bytes, u32 block_size)
{
	struct volume *vol = calloc(1, sizeof(*vol));

	volume_geometry(vol, bytes, block_size);
	vol->dev = device_memory_create(bytes);
	if (!vol->dev) {
		free(vol);
		return NULL;
	}
	vol->dev->block_size = block_size;
	volume_mount(vol, 0, balloc_fixed_blocks(vol));
	return vol;
}

void volume_drop(struct volume *vol)
{
	balloc_exit(vol);
	vol->dev->ops->close(vol->dev);
	free(vol);
}

void volume_remount(struct volume *vol, u64 delta, u64 used)
{
	balloc_exit(vol);
	volume_mount(vol, delta, used);
}

void volume_replay(struct volume *vol, u64 delta, u64 used, u64 group)
{
	volume_remount(vol, delta, used);
	check(balloc_note_in_log(vol, group) == 0);
	check(balloc_touch(vol, group) == 0);
}

void write_maps(struct volume *vol, struct list_head *writes)
{
	struct map_write *write;
	u32 count = 0, written = 0;
	struct io_wait wait;
	char why[100];

	list_for_each_entry(write, writes, link) {
		check(write->addr == balloc_slot_addr(vol, write->group, write->slot));
		count++;
	}
	do {
		io_wait_init(&wait);
		list_for_each_entry(write, writes, link) {
			if (!write->data)
				continue;
			check(map_check(vol, write->data, write->addr, write->group, why, sizeof(why)) == 0);
			device_write(vol->dev, write->addr, write->data, 1, 0, &wait);
			written++;
		}
		check(io_wait_finish(&wait) == 0);
	} while (balloc_snapshot_more(vol, writes));
	check(written == count);
}

u32 touched_groups(struct volume *vol, u64 *groups, u32 max)
{
	u64 bits[TOUCHED_WORDS], first;
	u32 words = balloc_touched(vol, &first, bits), count = 0, i;

	for (i = 0; i < 64 * words; i++) {
		if (bits[i / 64] >> i % 64 & 1) {
			if (count < max)
				groups[count] = first + i;
			count++;
		}
	}
	return count;
}

void unify(struct volume *vol, u64 delta)
{
	u64 groups[8];
	LIST_HEAD(writes);

	while (touched_groups(vol, groups, ARRAY_SIZE(groups)))
		;
	check(balloc_snapshot(vol, delta, &writes) == 0);
	write_maps(vol, &writes);
	balloc_snapshot_done(vol, &writes, true);
}

u64 free_blocks(struct volume *vol)
{
	return atomic64_read(&vol->balloc.free_blocks);
}

u64 disk_used(struct volume *vol)
{
	return atomic64_read(&vol->balloc.disk_used);
}

u64 alloc_exactly(struct volume *vol, enum balloc_kind kind, u64 goal, u32 want)
{
	u64 addr;
	u32 len;

	check(balloc_alloc(vol, kind, goal, want, want, &addr, &len) == 0);
	check(len == want);
	return addr;
}
