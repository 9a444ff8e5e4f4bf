/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the fuzzers have in common: blocks of metadata that are changed under right checksums, and the world around a run. */
#ifndef TUX3_SUPPORT_FUZZ_H
#define TUX3_SUPPORT_FUZZ_H

#include "core/env.h"

/* By their first bytes: a node, a free map, a block of the log or of intents, an anchor. */
bool block_is_meta(const u8 *block);

/* Its checksum is right again; records: also that of the records of a commit that is one block of the log. */
void block_seal(u8 *block, u32 block_size, bool records);

void put_value(u8 *at, u64 value, u32 bytes);

u64 seconds_now(void);		/* of a clock that is not set */

/* For env_set_clock() and env_set_log(): a run is the same each time, and tells nothing. */
u64 fixed_time(void);
void log_nothing(int level, const char *message);

#endif
