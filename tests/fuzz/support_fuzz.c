/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See support_fuzz.h. */
#include <time.h>

#include "support_fuzz.h"
#include "core/format/anchor.h"
#include "core/format/format.h"

/* Not too large an allocation is an error in itself: what the image asks for may be refused. */
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1:detect_leaks=1";
}

static bool magic_is_meta(u32 magic)
{
	return magic == TUX3_NODE_MAGIC || magic == TUX3_LOG_MAGIC || magic == TUX3_MAP_MAGIC || magic == TUX3_INTENT_MAGIC;
}

bool block_is_meta(const u8 *block)
{
	return magic_is_meta(get_unaligned_le32(block)) || get_unaligned_le64(block) == TUX3_ANCHOR_MAGIC;
}

static void records_seal(struct disk_log *log, u32 block_size)
{
	struct disk_commit *commit = (void *)(log + 1);
	u32 used = le32_to_cpu(log->used);

	if (log->index || used < sizeof(*commit) || used > block_size - sizeof(*log))
		return;
	commit->bytes = cpu_to_le32(used - sizeof(*commit));
	commit->crc = cpu_to_le32(crc32c(~0u, commit + 1, used - sizeof(*commit)));
}

void block_seal(u8 *block, u32 block_size, bool records)
{
	if (get_unaligned_le64(block) == TUX3_ANCHOR_MAGIC) {
		anchor_seal((void *)block);
		return;
	}
	if (!magic_is_meta(get_unaligned_le32(block)))
		return;
	if (records && get_unaligned_le32(block) == TUX3_LOG_MAGIC)
		records_seal((void *)block, block_size);
	put_unaligned_le32(0, block + 4);
	put_unaligned_le32(crc32c(~0u, block, block_size), block + 4);
}

void put_value(u8 *at, u64 value, u32 bytes)
{
	for (; bytes; bytes--, value >>= 8)
		*at++ = value;
}

u64 seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

u64 fixed_time(void)
{
	return 1700000000000000000ull;
}

void log_nothing(int level, const char *message)
{
}
