/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The state and the counters of a volume as text: see statistics.h.
 *
 * Any thread may ask at any time: what is read without its lock is read once, as a hint.
 */
#include <errno.h>
#include <stdlib.h>
#include "internal.h"
#include "statistics.h"

struct text {
	char *at;
	size_t used, size;
};

static void __printf(5, 6) line(struct text *text, const char *name, u64 value, const char *unit, const char *what, ...)
{
	va_list args;

	text->used += scnprintf(text->at + text->used, text->size - text->used, "%s %llu %s ", name,
				(unsigned long long)value, unit);
	va_start(args, what);
	text->used += vscnprintf(text->at + text->used, text->size - text->used, what, args);
	va_end(args);
	text->used += scnprintf(text->at + text->used, text->size - text->used, "\n");
}

static void volume_lines(struct volume *vol, struct text *text)
{
	u64 total, free, available;

	space_stat(vol, &total, &free, &available);
	line(text, "block_size", vol->block_size, "bytes", "of a block");
	line(text, "blocks", total, "blocks", "of the volume");
	line(text, "free_blocks", free, "blocks", "not in use");
	line(text, "available_blocks", available, "blocks", "that can still be written");
	line(text, "used_blocks", atomic64_read(&vol->balloc.disk_used), "blocks",
	     "in use by fixed structures, tree and data");
	line(text, "inodes", atomic64_read(&vol->inodes), "inodes", "in use");
}

static void delta_lines(struct volume *vol, struct text *text)
{
	u64 front = READ_ONCE(vol->delta.front);

	line(text, "front_delta", front, "number", "of the delta that is open for changes");
	line(text, "committed_delta", READ_ONCE(vol->delta.committed), "number", "of the newest durable delta");
	line(text, "dirty_bytes", atomic64_read(&vol->delta.dirty_bytes[front & 1]), "bytes",
	     "of file data waiting in the front delta");
	line(text, "dirty_changes", atomic64_read(&vol->delta.changes[front & 1]), "changes",
	     "of inodes and names waiting in the front delta");
	line(text, "log_length", READ_ONCE(vol->log.length), "blocks", "of log that a mount would read");
	line(text, "anchor_delta", le64_to_cpu(vol->anchor.delta), "number", "of the delta that the anchor stands for");
	line(text, "anchor_generation", le64_to_cpu(vol->anchor.generation), "number", "of the anchor");
	line(text, "unify_phase", READ_ONCE(vol->unify.phase), "number",
	     "0 idle, 1 writing, 2 written, 3 anchoring, 4 anchored");
	line(text, "error", -atomic_read(&vol->error), "errno", "that stopped the volume, 0 if all is well");
}

static void tree_lines(struct volume *vol, struct text *text)
{
	line(text, "tree_height", READ_ONCE(vol->tree.root_level) + 1, "levels", "of the tree");
	line(text, "dirty_nodes", READ_ONCE(vol->tree.dirty_count), "nodes", "changed since the last unify");
	line(text, "node_splits", atomic64_read(&vol->tree.splits), "nodes", "split");
	line(text, "node_merges", atomic64_read(&vol->tree.merges), "nodes", "merged");
	line(text, "node_redirects", atomic64_read(&vol->tree.redirects), "nodes", "moved to a new block");
	line(text, "tree_edits", atomic64_read(&vol->tree.edits), "items", "set or deleted");
	line(text, "cache_bytes", atomic64_read(&vol->cache.bytes), "bytes", "of tree nodes in memory");
	line(text, "cache_misses", atomic64_read(&vol->cache.misses), "nodes", "read from the device");
	line(text, "names_cached", atomic64_read(&vol->names.entries), "names", "in memory");
	line(text, "groups_read", atomic64_read(&vol->balloc.group_loads), "groups", "whose free map was read");
	line(text, "device_reads", atomic64_read(&vol->dev->reads), "calls", "to read from the device");
	line(text, "device_writes", atomic64_read(&vol->dev->writes), "calls", "to write to the device");
	line(text, "device_flushes", atomic64_read(&vol->dev->flushes), "calls", "to flush the device");
}

static void counter_lines(struct volume *vol, struct text *text)
{
	static const struct {
		const char *name, *unit, *what;
	} counters[] = {
#define X(NAME, name, unit, what) { name, unit, what },
		TUX3_COUNTERS(X)
#undef X
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(counters); i++)
		line(text, counters[i].name, atomic64_read(&vol->counters[i]), counters[i].unit, "%s",
		     counters[i].what);
}

ssize_t volume_statistics_text(struct volume *vol, bool counters, char *out, size_t size)
{
	struct text text = { .size = TUX3_STATISTICS_MAX };
	ssize_t len;

	text.at = malloc(text.size);
	if (!text.at)
		return -ENOMEM;
	volume_lines(vol, &text);
	delta_lines(vol, &text);
	if (counters) {
		tree_lines(vol, &text);
		counter_lines(vol, &text);
	}
	len = text.used;
	if (size && size < text.used)
		len = -ERANGE;
	else if (size)
		memcpy(out, text.at, text.used);
	free(text.at);
	return len;
}

ssize_t tux3_statistics_text(struct tux3 *volume, char *text, size_t size)
{
	return volume_statistics_text(tux3_core(volume), true, text, size);
}
