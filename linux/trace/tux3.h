/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tracepoints: what the back end does, and where the front end waits for it.  core/ calls them (core/env.h);
 * in user space they are empty.  For use:
 *
 *	echo 1 > /sys/kernel/tracing/events/tux3/enable; cat /sys/kernel/tracing/trace_pipe
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM tux3

#if !defined(TUX3_LINUX_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define TUX3_LINUX_TRACE_H

#include <linux/tracepoint.h>

struct volume;

/* An operation had to wait before it could enter a delta, or was refused. */
TRACE_EVENT(tux3_enter,
	TP_PROTO(struct volume *vol, u64 delta, u64 blocks, u64 waited_ns, int err),
	TP_ARGS(vol, delta, blocks, waited_ns, err),
	TP_STRUCT__entry(
		__string(device, vol->dev->name)
		__field(u64, delta)
		__field(u64, blocks)
		__field(u64, waited_ns)
		__field(int, err)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->delta = delta;
		__entry->blocks = blocks;
		__entry->waited_ns = waited_ns;
		__entry->err = err;
	),
	TP_printk("%s: delta %llu, cost %llu blocks, waited %llu ns, result %d", __get_str(device), __entry->delta,
		  __entry->blocks, __entry->waited_ns, __entry->err)
);

/* The front delta became the back delta. */
TRACE_EVENT(tux3_transition,
	TP_PROTO(struct volume *vol, u64 delta, s64 charged, u64 drain_ns),
	TP_ARGS(vol, delta, charged, drain_ns),
	TP_STRUCT__entry(
		__string(device, vol->dev->name)
		__field(u64, delta)
		__field(s64, charged)
		__field(u64, drain_ns)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->delta = delta;
		__entry->charged = charged;
		__entry->drain_ns = drain_ns;
	),
	TP_printk("%s: delta %llu, charged %lld blocks, drained in %llu ns", __get_str(device), __entry->delta,
		  __entry->charged, __entry->drain_ns)
);

/* A delta was committed, or could not be. */
TRACE_EVENT(tux3_commit,
	TP_PROTO(struct volume *vol, u64 delta, u64 changes, u64 data_blocks, u64 log_blocks, u64 ns, int err),
	TP_ARGS(vol, delta, changes, data_blocks, log_blocks, ns, err),
	TP_STRUCT__entry(
		__string(device, vol->dev->name)
		__field(u64, delta)
		__field(u64, changes)
		__field(u64, data_blocks)
		__field(u64, log_blocks)
		__field(u64, ns)
		__field(int, err)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->delta = delta;
		__entry->changes = changes;
		__entry->data_blocks = data_blocks;
		__entry->log_blocks = log_blocks;
		__entry->ns = ns;
		__entry->err = err;
	),
	TP_printk("%s: delta %llu, %llu changes, %llu data blocks, %llu log blocks, %llu ns, result %d",
		  __get_str(device), __entry->delta, __entry->changes, __entry->data_blocks, __entry->log_blocks,
		  __entry->ns, __entry->err)
);

/* A unify has submitted tree nodes and free maps. */
TRACE_EVENT(tux3_unify_begin,
	TP_PROTO(struct volume *vol, u64 delta, u64 nodes, u64 log_length),
	TP_ARGS(vol, delta, nodes, log_length),
	TP_STRUCT__entry(
		__string(device, vol->dev->name)
		__field(u64, delta)
		__field(u64, nodes)
		__field(u64, log_length)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->delta = delta;
		__entry->nodes = nodes;
		__entry->log_length = log_length;
	),
	TP_printk("%s: delta %llu, %llu nodes, %llu log blocks", __get_str(device), __entry->delta, __entry->nodes,
		  __entry->log_length)
);

/* Its anchor is durable. */
TRACE_EVENT(tux3_unify_end,
	TP_PROTO(struct volume *vol, u64 delta, int err),
	TP_ARGS(vol, delta, err),
	TP_STRUCT__entry(
		__string(device, vol->dev->name)
		__field(u64, delta)
		__field(int, err)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->delta = delta;
		__entry->err = err;
	),
	TP_printk("%s: delta %llu, result %d", __get_str(device), __entry->delta, __entry->err)
);

/* Blocks were allocated: kind 0 data, 1 node, 2 log. */
TRACE_EVENT(tux3_balloc,
	TP_PROTO(struct volume *vol, unsigned int kind, u64 goal, u64 addr, u32 count),
	TP_ARGS(vol, kind, goal, addr, count),
	TP_STRUCT__entry(
		__string(device, vol->dev->name)
		__field(unsigned int, kind)
		__field(u64, goal)
		__field(u64, addr)
		__field(u32, count)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->kind = kind;
		__entry->goal = goal;
		__entry->addr = addr;
		__entry->count = count;
	),
	TP_printk("%s: %s, goal %llu, %u blocks at %llu", __get_str(device),
		  __print_symbolic(__entry->kind, { 0, "data" }, { 1, "node" }, { 2, "log" }), __entry->goal,
		  __entry->count, __entry->addr)
);

/* An operation was refused for want of space. */
TRACE_EVENT(tux3_enospc,
	TP_PROTO(struct volume *vol, u64 blocks, s64 balance),
	TP_ARGS(vol, blocks, balance),
	TP_STRUCT__entry(
		__string(device, vol->dev->name)
		__field(u64, blocks)
		__field(s64, balance)
	),
	TP_fast_assign(
		__assign_str(device);
		__entry->blocks = blocks;
		__entry->balance = balance;
	),
	TP_printk("%s: cost %llu blocks, balance %lld blocks", __get_str(device), __entry->blocks, __entry->balance)
);

#endif

/* Not "linux/trace": the compiler takes the first word for a macro. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH trace
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE tux3
#include <trace/define_trace.h>
