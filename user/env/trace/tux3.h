/* SPDX-License-Identifier: GPL-2.0-or-later */
/* User-space stand-in for the kernel's tracepoints: see core/env.h and linux/trace/tux3.h.  Nobody listens. */
#ifndef TUX3_ENV_TRACE_H
#define TUX3_ENV_TRACE_H

#include <linux/types.h>

struct volume;

#define ENV_NO_TRACE(name, ...) static inline void trace_tux3_##name(struct volume *vol, __VA_ARGS__) { }

ENV_NO_TRACE(enter, u64 delta, u64 blocks, u64 waited_ns, int err)
ENV_NO_TRACE(transition, u64 delta, s64 charged, u64 drain_ns)
ENV_NO_TRACE(commit, u64 delta, u64 changes, u64 data_blocks, u64 log_blocks, u64 ns, int err)
ENV_NO_TRACE(unify_begin, u64 delta, u64 nodes, u64 log_length)
ENV_NO_TRACE(unify_end, u64 delta, int err)
ENV_NO_TRACE(balloc, unsigned int kind, u64 goal, u64 addr, u32 count)
ENV_NO_TRACE(enospc, u64 blocks, s64 balance)

#endif
