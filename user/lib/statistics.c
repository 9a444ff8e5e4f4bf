/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The state and the counters of a volume as text: see statistics.h.
 *
 * Any thread may ask at any time: what is read without its lock is read once, as a hint.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include "internal.h"
#include "statistics.h"

static u64 space_number(struct volume *vol, unsigned int which)
{
	u64 number[3];

	space_stat(vol, &number[0], &number[1], &number[2]);
	return number[which];
}

#define FRONT(vol) (READ_ONCE((vol)->delta.front))

/*	X(name, u64 of struct volume *vol, unit, what it means) */
#define VOLUME_LINES(X) \
	X(block_size,		vol->block_size, "bytes", "of a block") \
	X(blocks,		space_number(vol, 0), "blocks", "of the volume") \
	X(free_blocks,		space_number(vol, 1), "blocks", "not in use") \
	X(available_blocks,	space_number(vol, 2), "blocks", "that can still be written") \
	X(used_blocks,		atomic64_read(&vol->balloc.disk_used), "blocks", \
	  "in use by fixed structures, tree and data") \
	X(inodes,		atomic64_read(&vol->inodes), "inodes", "in use") \
	X(front_delta,		FRONT(vol), "number", "of the delta that is open for changes") \
	X(committed_delta,	READ_ONCE(vol->delta.committed), "number", "of the newest durable delta") \
	X(dirty_bytes,		atomic64_read(&vol->delta.dirty_bytes[FRONT(vol) & 1]), "bytes", \
	  "of file data waiting in the front delta") \
	X(dirty_changes,	atomic64_read(&vol->delta.changes[FRONT(vol) & 1]), "changes", \
	  "of inodes and names waiting in the front delta") \
	X(log_length,		READ_ONCE(vol->log.length), "blocks", "of log that a mount would read") \
	X(anchor_delta,		le64_to_cpu(vol->anchor.delta), "number", "of the delta that the anchor stands for") \
	X(anchor_generation,	le64_to_cpu(vol->anchor.generation), "number", "of the anchor") \
	X(unify_phase,		READ_ONCE(vol->unify.phase), "number", \
	  "0 idle, 1 writing, 2 written, 3 anchoring, 4 anchored") \
	X(error,		-atomic_read(&vol->error), "errno", "that stopped the volume, 0 if all is well")

/* What is counted since the volume was opened, as the core's counters are. */
#define COUNTED_LINES(X) \
	X(tree_height,		READ_ONCE(vol->tree.root_level) + 1, "levels", "of the tree") \
	X(dirty_nodes,		READ_ONCE(vol->tree.dirty_count), "nodes", "changed since the last unify") \
	X(node_splits,		atomic64_read(&vol->tree.splits), "nodes", "split") \
	X(node_merges,		atomic64_read(&vol->tree.merges), "nodes", "merged") \
	X(node_redirects,	atomic64_read(&vol->tree.redirects), "nodes", "moved to a new block") \
	X(tree_edits,		atomic64_read(&vol->tree.edits), "items", "set or deleted") \
	X(cache_bytes,		atomic64_read(&vol->cache.bytes), "bytes", "of tree nodes in memory") \
	X(cache_misses,		atomic64_read(&vol->cache.misses), "nodes", "read from the device") \
	X(names_cached,		atomic64_read(&vol->names.entries), "names", "in memory") \
	X(groups_read,		atomic64_read(&vol->balloc.group_loads), "groups", "whose free map was read") \
	X(device_reads,		atomic64_read(&vol->dev->reads), "calls", "to read from the device") \
	X(device_read_bytes,	atomic64_read(&vol->dev->read_bytes), "bytes", "read from the device") \
	X(device_writes,	atomic64_read(&vol->dev->writes), "calls", "to write to the device") \
	X(device_write_bytes,	atomic64_read(&vol->dev->write_bytes), "bytes", "written to the device") \
	X(device_flushes,	atomic64_read(&vol->dev->flushes), "calls", "to flush the device")

static const struct statistic {
	const char *name, *unit, *what;
} statistics[] = {
#define X(name, number, unit, what) { #name, unit, what },
	VOLUME_LINES(X)
	COUNTED_LINES(X)
#undef X
#define X(NAME, name, unit, what) { name, unit, what },
	TUX3_COUNTERS(X)
#undef X
};

struct text {
	char *at;
	size_t used, size;
	const struct statistic *next;
};

static void line(struct text *text, u64 value)
{
	const struct statistic *is = text->next++;

	text->used += scnprintf(text->at + text->used, text->size - text->used, "%s %llu %s %s\n", is->name,
				(unsigned long long)value, is->unit, is->what);
}

ssize_t volume_statistics_text(struct volume *vol, bool counters, char *out, size_t size)
{
	struct text text = { .size = TUX3_STATISTICS_MAX, .next = statistics };
	unsigned int i;
	ssize_t len;

	text.at = malloc(text.size);
	if (!text.at)
		return -ENOMEM;
#define X(name, number, unit, what) line(&text, number);
	VOLUME_LINES(X)
	if (counters) {
		COUNTED_LINES(X)
		for (i = 0; i < TUX3_COUNTER_COUNT; i++)
			line(&text, atomic64_read(&vol->counters[i]));
	}
#undef X
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

ssize_t folder_statistics_text(const char *folder, char *out, size_t size)
{
	char path[PATH_MAX + 64], value[32];
	struct text text = { .at = out, .size = size };
	unsigned int i;
	FILE *file;

	for (i = 0; i < ARRAY_SIZE(statistics); i++) {
		text.next = &statistics[i];
		snprintf(path, sizeof(path), "%s/%s", folder, statistics[i].name);
		file = fopen(path, "re");
		if (file && fgets(value, sizeof(value), file))
			line(&text, strtoull(value, NULL, 10));
		if (file)
			fclose(file);
	}
	return text.used ? text.used : -ENOENT;
}
