/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The state and the counters of a volume as text: see statistics.h; what there is: core/statistics.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/statistics.h"
#include "internal.h"
#include "statistics.h"

static const struct statistic {
	const char *name, *unit, *what;
} statistics[] = {
#define X(name, number, unit, what) { #name, unit, what },
	STATISTICS_NUMBERS(X)
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
	STATISTICS_OF_VOLUME(X)
	if (counters) {
		STATISTICS_COUNTED(X)
		for (i = 0; i < TUX3_COUNTER_COUNT; i++)
			line(&text, delta_counter(vol, i));
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

bool statistics_name(unsigned int i, const char **name, const char **unit, const char **what)
{
	if (i >= ARRAY_SIZE(statistics))
		return false;
	*name = statistics[i].name;
	*unit = statistics[i].unit;
	*what = statistics[i].what;
	return true;
}
